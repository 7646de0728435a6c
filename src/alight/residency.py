"""Which memory spaces hold a current copy of some bytes, and the copies between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import Data, Layout
from alight.backends.base import Copy
from alight.log import LOG
from alight.registry import backend_of, device

if TYPE_CHECKING:
    from alight.device import Device

HOST = "host"


def buffer(data: Data, where: Device) -> Any:
    """Return the buffer of some bytes in a device's space, copying them there when it has none."""
    if where.space == HOST:
        bring_to_host(data)
        return data
    remote = data.remote
    if remote is not None and where.space in remote:
        return remote[where.space]
    bring_to_host(data)
    backend = backend_of(where)
    target = backend.allocate(where, data.nbytes)
    event = backend.submit(where, 0, [Copy(data, target, data.nbytes, HOST, where.space)], [])
    backend.wait(event)
    LOG.count(uploads=1, upload_bytes=data.nbytes)
    if data.foreign and data.shared:
        return target  # others may change the bytes: this copy serves one use
    if data.remote is None:
        data.remote = {}
    data.remote[where.space] = target
    return target


def bring_to_host(data: Data) -> None:
    """Make the host copy current."""
    if data.array is not None:
        return
    assert data.remote, "bytes that are nowhere"
    space, source = next(iter(data.remote.items()))
    where = device(space)
    backend = backend_of(where)
    array = np.empty_like(data.layout.probe)
    target = Data(data.layout, array)
    event = backend.submit(where, 0, [Copy(source, target, data.nbytes, space, HOST)], [])
    backend.wait(event)
    data.array = data.owner = array
    LOG.count(downloads=1, download_bytes=data.nbytes)


def only_on_host(data: Data) -> None:
    """Make the host copy current and drop the others: the host is about to write."""
    bring_to_host(data)
    data.remote = None


def made_on(where: Device, layout: Layout, made: Any) -> Data:
    """Return the data of a result a device made: the host's own, or a remote buffer's."""
    if where.space == HOST:
        result: Data = made
        return result
    data = Data(layout)
    data.remote = {where.space: made}
    return data


__all__: Sequence[str] = ("bring_to_host", "buffer", "made_on", "only_on_host")
