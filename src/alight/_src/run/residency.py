"""Which memory spaces hold a current copy of some bytes, and the copies between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from alight._core import Data, Layout, fresh_data, make_layout
from alight._src.adapt import planner_facts
from alight._src.base.at_fork import renewed
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.log.decisions import LOG, logger
from alight._src.run.eviction import kept
from alight.backends.registry import backend_of, device
from alight.errors import OutOfDeviceMemory

if TYPE_CHECKING:
    from alight.device import Device

# Where a value's elements are: the bytes of which memory, from which of them on, in which layout.
Place = tuple[Data, int, Layout]

HOST = "host"
_WORD = 4  # bytes: WebGPU copies no less

# Asked for bytes that a device has lost: each puts them on the host, or tells that it cannot.
rescues: list[Callable[[Data, Device, BaseException], bool]] = []

# One thread at a time drives devices and moves copies; recording does not take it.
LOCK = renewed(globals(), "LOCK", threading.RLock)


def buffer(data: Data, where: Device, beside: Iterable[Data] = ()) -> Any:
    """Return the buffer of some bytes in a device's space, copying them there when it has none.

    Where there is no room, copies make way, but for those of ``beside``.
    """
    return buffers((data,), where, beside)[0]


def buffers(several: Sequence[Data], where: Device, beside: Iterable[Data] = ()) -> list[Any]:
    """Return the buffers of the bytes of each in a device's space; what has none there is copied
    together, so that one is read while another passes the link."""
    space = where.space
    if space == HOST:
        for data in several:
            bring_to_host(data)
        return list(several)
    found: list[Any] = []
    missing: dict[int, Data] = {}
    for data in several:
        remote = data.remote
        if remote is not None and space in remote:
            _used(data, where)
            found.append(remote[space])
        else:
            missing[id(data)] = data
            found.append(None)
    if missing:
        targets = _uploaded(list(missing.values()), where, beside)
        for number, data in enumerate(several):
            if found[number] is None:
                found[number] = targets[id(data)]
    return found


def _uploaded(several: Sequence[Data], where: Device, beside: Iterable[Data]) -> dict[int, Any]:
    """Return new buffers with the bytes of each, by their ids; the device keeps them as copies."""
    from alight.backends.base import Copy

    backend, space = backend_of(where), where.space
    targets: dict[int, Any] = {}
    copies = []
    writing = {id(data) for data in several if data.writing}
    for data in several:
        bring_to_host(data)
        try:
            target = backend.allocate(where, data.nbytes)
        except OutOfDeviceMemory:
            if not make_room(where, data.nbytes, (*several, *beside)):
                raise
            target = backend.allocate(where, data.nbytes)
        targets[id(data)] = target
        copies.append(Copy(data, target, data.nbytes, HOST, space))
    backend.wait(backend.submit(where, 0, copies))
    for data in several:
        LOG.count(uploads=1, upload_bytes=data.nbytes)
        if data.exported or id(data) in writing:
            continue  # others may change the bytes: this copy serves one use
        if data.remote is None:
            data.remote = {}
        data.remote[space] = targets[id(data)]
        _used(data, where)
    return targets


def _used(data: Data, where: Device) -> None:
    """Note that a copy was used, with what bringing it again would take."""
    kept(where.space).use(data, worth(where, data.nbytes, alone=data.array is None))


def worth(where: Device, nbytes: int, alone: bool = True) -> float:
    """Return the seconds that bringing a copy again would take; ``alone``: it would have to be
    brought to safety first."""
    seconds = planner_facts.copy_seconds(HOST, where.space, nbytes)
    return seconds + (planner_facts.copy_seconds(where.space, HOST, nbytes) if alone else 0.0)


def make_room(where: Device, nbytes: int, spared: Iterable[Data] = ()) -> bool:
    """Drop copies on a device, the least worth first, until so many bytes are free; what is
    nowhere else comes to the host before. Tell whether anything was dropped."""
    ids = {id(data) for data in spared}
    space = where.space
    freed = 0
    with LOCK:
        while freed < nbytes:
            data = kept(space).least(space, ids)
            if data is None:
                break
            bring_to_host(data)
            assert data.remote is not None
            del data.remote[space]
            freed += data.nbytes
            logger().debug("%s: a copy of %d bytes makes way", space, data.nbytes)
    return freed > 0


def bring_to_host(data: Data) -> None:
    """Make the host copy current."""
    if data.array is not None:
        return
    from alight.backends.base import Copy

    with LOCK:
        if data.array is not None:
            return
        assert data.remote, "bytes that are nowhere"
        space, source = next(iter(data.remote.items()))
        where = device(space)
        backend = backend_of(where)
        target = landing(where, data.layout)
        copy = Copy(source, target, data.nbytes, space, HOST)
        try:
            backend.wait(backend.submit(where, 0, [copy]))
        except failures() as error:
            # The bytes exist nowhere else: a transfer that failed once is tried once more.
            LOG.fallback(f"download from {space}", f"{error}")
            try:
                backend.wait(backend.submit(where, 0, [copy]))
            except failures() as again:
                if any([rescue(data, where, again) for rescue in rescues]):
                    return
                raise
        # In this order: who looks in between takes it for memory that is still on its way.
        data.owner, data.array = target.owner, target.array
        LOG.count(downloads=1, download_bytes=data.nbytes)


# What parts of bytes that stayed on a device have cost, in seconds.
_in_parts: WeakKeyDictionary[Data, float] = WeakKeyDictionary()


def part_on_host(data: Data, offset: int, layout: Layout) -> np.ndarray[Any, Any] | None:
    """Return a copy of what a layout reads of bytes that lie on a device alone; None where all of
    them had better come: parts have cost as much by now, as those who rent before they buy."""
    from alight.backends.base import Copy

    with LOCK:
        if data.array is not None or not data.remote or not layout.size:
            return None
        space, source = next(iter(data.remote.items()))
        where = device(space)
        backend = backend_of(where)
        reaches = [(n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True)]
        low = offset + sum([min(reach, 0) for reach in reaches])
        high = offset + sum([max(reach, 0) for reach in reaches]) + layout.itemsize
        begin = low // _WORD * _WORD
        part, whole = (
            planner_facts.copy_seconds(space, HOST, n) for n in (high - begin, data.nbytes)
        )
        if not whole:  # never measured: bytes say it, too
            part, whole = float(high - begin), float(data.nbytes)
        spent = _in_parts.get(data, 0.0) + part
        if spent >= whole or not getattr(backend, "downloads_parts", False):
            return None
        target = landing(where, make_layout(np.dtype("u1"), (high - begin,)))
        copy = Copy(source, target, high - begin, space, HOST, begin)
        try:
            backend.wait(backend.submit(where, 0, [copy]))
        except failures() as error:
            LOG.fallback(f"download of a part from {space}", f"{error}")
            return None
        _in_parts[data] = spent
        LOG.count(downloads=1, download_bytes=high - begin)
    return np.ndarray(layout.shape, layout.dtype, target.raw, offset - begin, layout.strides)


def wait_for(datas: Iterable[Data | None]) -> None:
    """Return when what is on devices alone is there; what one of them has failed to make is then
    on the host."""
    there = [data for data in datas if data is not None and data.array is None and data.remote]
    for name in {space for data in there for space in data.remote or ()}:
        where = device(name)
        backend: Any = backend_of(where)
        finish = getattr(backend, "finish", None)
        try:
            if finish is not None:
                finish(where)
            else:
                backend.wait(backend.submit(where, 0, ()))
        except failures() as error:
            LOG.fallback(f"waiting for {name}", error)
            for data in there:
                if name in (data.remote or ()):
                    bring_to_host(data)


def only_on_host(data: Data) -> None:
    """Make the host copy current and drop the others: the host is about to write."""
    bring_to_host(data)
    data.remote = None


def landing(where: Device, layout: Layout) -> Data:
    """Return uninitialised host memory of exactly this dense layout for what a device sends: its
    backend may know some that the link reaches faster."""
    own = getattr(backend_of(where), "landing", None)
    return (own(where, layout) if own else None) or fresh_data(layout)


def exact_copy(array: np.ndarray[Any, Any], layout: Layout) -> Data:
    """Return data of exactly this dense layout with the elements of an array."""
    result = fresh_data(layout)
    assert result.array is not None
    result.array[...] = array
    return result


def made_on(where: Device, layout: Layout, made: Any) -> Data:
    """Return the data of a result a device made: the host's own, or a remote buffer's."""
    if where.space == HOST:
        result: Data = made
        return result
    data = Data(layout)
    data.remote = {where.space: made}
    _used(data, where)
    return data


__all__: Sequence[str] = (
    "bring_to_host",
    "buffer",
    "buffers",
    "exact_copy",
    "landing",
    "made_on",
    "make_room",
    "only_on_host",
    "part_on_host",
    "wait_for",
)
