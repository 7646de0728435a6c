"""Which memory spaces hold a current copy of some bytes, and the copies between them."""

from __future__ import annotations

import os
import threading
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

# One thread at a time drives devices and moves copies; recording does not take it.
LOCK = threading.RLock()


def _after_fork() -> None:
    global LOCK
    LOCK = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


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
    backend.wait(backend.submit(where, 0, [Copy(data, target, data.nbytes, HOST, where.space)]))
    LOG.count(uploads=1, upload_bytes=data.nbytes)
    if data.exported:
        return target  # others may change the bytes: this copy serves one use
    if data.remote is None:
        data.remote = {}
    data.remote[where.space] = target
    return target


def bring_to_host(data: Data) -> None:
    """Make the host copy current."""
    if data.array is not None:
        return
    with LOCK:
        if data.array is not None:
            return
        assert data.remote, "bytes that are nowhere"
        space, source = next(iter(data.remote.items()))
        where = device(space)
        backend = backend_of(where)
        # a device may know memory that its link reaches faster
        landing = getattr(backend, "landing", None)
        target = (landing(where, data.layout) if landing else None) or fresh(data.layout)
        copy = Copy(source, target, data.nbytes, space, HOST)
        try:
            backend.wait(backend.submit(where, 0, [copy]))
        except Exception as error:
            # The bytes exist nowhere else: a transfer that failed once is tried once more.
            LOG.fallback(f"download from {space}", f"{error}", None)
            backend.wait(backend.submit(where, 0, [copy]))
        data.array, data.owner = target.array, target.owner
        LOG.count(downloads=1, download_bytes=data.nbytes)


def only_on_host(data: Data) -> None:
    """Make the host copy current and drop the others: the host is about to write."""
    bring_to_host(data)
    data.remote = None


def fresh(layout: Layout) -> Data:
    """Return uninitialised host memory of exactly this dense layout."""
    array = np.empty_like(layout.probe)
    if array.strides == layout.strides:
        return Data(layout, array)
    # Axes of length one: any stride reads the same, but results have exactly NumPy's.
    owner = np.empty(layout.nbytes, np.uint8)
    return Data(layout, np.ndarray(layout.shape, layout.dtype, owner, 0, layout.strides), owner)


def made_on(where: Device, layout: Layout, made: Any) -> Data:
    """Return the data of a result a device made: the host's own, or a remote buffer's."""
    if where.space == HOST:
        result: Data = made
        return result
    data = Data(layout)
    data.remote = {where.space: made}
    return data


__all__: Sequence[str] = ("bring_to_host", "buffer", "fresh", "made_on", "only_on_host")
