"""Machine code in this process: found by the structure of its group, bound to a group's sizes."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from alight._src.base.at_fork import renewed
from alight._src.base.failures import failures
from alight._src.base.records import dataclass
from alight._src.codegen.common.keys import keyed
from alight._src.codegen.common.loops import TOLD, Schedule
from alight._src.codegen.llvm import shared
from alight._src.ir.graph import GroupKind

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.codegen.llvm.split_reduction import Parts
    from alight._src.ir.group import Group

__all__ = ["Kernel", "at_work", "bound", "forget", "give_up_work", "here", "load_object"]

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(slots=True, eq=False)
class _Code:
    """Machine code in this process. The owner has the memory it lies in."""

    entry: int
    combine: int
    call: Any
    owner: Any
    object: bytes


class Kernel:
    """Machine code bound to the sizes and strides of one group.

    ``kernel(addresses)`` runs it: the byte addresses of element 0 of each input, then each output.
    Any number of threads may call it at once, and the GIL is not held meanwhile. A C caller may
    call ``void entry(void **addresses, int64_t *dims, int64_t *strides)`` itself. ``parts`` and
    ``combine`` are for reductions that can be made in parts (``split_reduction``); ``object`` is
    the object code, for a cache on disk.
    """

    __slots__ = (
        "_call", "_code", "_dims", "_pack", "_strides", "combine", "dims", "entry", "key", "nest",
        "parts", "strides",
    )  # fmt: skip

    def __init__(self, key: str, code: _Code, group: Group, shape: Nest) -> None:
        self.key = key
        self.entry = code.entry
        self.combine = code.combine
        self.nest = shape
        self.parts = _parts(group, shape)
        own = shape.own_strides
        flat = [step for steps in own for step in steps]
        dims = (*shape.dims, *self.told)
        if shape.slots and not shape.places:
            dims = (*dims, -1, 0, 0, 0)
        self.dims = (ctypes.c_int64 * len(dims))(*dims)
        self.strides = (ctypes.c_int64 * len(flat))(*flat)
        self._code = code
        self._call = code.call
        self._dims = ctypes.addressof(self.dims)
        self._strides = ctypes.addressof(self.strides)
        # packing into bytes is the quickest way from Python ints to a C array of one's own
        self._pack = struct.Struct(f"={len(own)}Q").pack

    def __call__(self, addresses: Sequence[int]) -> None:
        """Run the kernel on the arrays at these addresses."""
        self._call(self._pack(*addresses), self._dims, self._strides)

    def __repr__(self) -> str:
        return f"<Kernel {self.key} dims={tuple(self.dims)}>"

    @property
    def told(self) -> tuple[int, ...]:
        """Return what stands behind the dims of a reduction: of a part of it, then the inner
        steps."""
        found = () if self.parts is None else (0, self.parts.elements, 0)
        if not self.nest.places:
            return found
        return (*found, *[0] * (TOLD - len(found)), *self.nest.inner)

    @property
    def object(self) -> bytes:
        """Return the object code."""
        return self._code.object


def _parts(group: Group, shape: Nest) -> Parts | None:
    """Return how a kernel that reduces can be made in parts, None where it cannot."""
    if group.kind in (GroupKind.LOOP, GroupKind.SCAN):
        return None
    # late: with them comes all that writes kernels, which one from the disk has no need of
    from alight._src.codegen.llvm.row_column_reductions import row_column_parts
    from alight._src.codegen.llvm.split_reduction import parts

    row_column = group.kind is GroupKind.ROW_COLUMN
    return row_column_parts(group) if row_column else parts(group.form.plain or group, shape)


_lock = renewed(globals(), "_lock", threading.RLock)
_known: dict[str, _Code] = {}

# Has anything in it while LLVM is at work, on what is nobody else's.
at_work: list[None] = []


def give_up_work() -> bool:
    """Have a forked child, which was born with LLVM at work, use it anew; tell whether it can."""
    at_work.clear()
    ffi = sys.modules["llvmlite.binding.ffi"]
    try:
        # held for good by a thread that does not exist here
        ffi.lib._lock._lock = threading.RLock()
    except failures(AttributeError):
        return False
    return True


def bound(group: Group, schedule: Schedule | None, make: Callable[[], bytes]) -> Kernel:
    """Return the kernel of a group from code of its structure in this process, else from the
    object code that ``make`` gives."""
    _, _, shape, key = keyed(group, schedule)
    code = _known.get(key)
    if code is None:
        data = make()  # nobody else's kernel waits for it
        with _lock:
            code = _known.get(key)
            if code is None:
                code = _known[key] = _linked(data)
    return Kernel(key, code, group, shape)


def here(group: Group, schedule: Schedule | None) -> Kernel | None:
    """Return the kernel of a group from code in this process, None where there is none yet."""
    _, _, shape, key = keyed(group, schedule)
    code = _known.get(key)
    return None if code is None else Kernel(key, code, group, shape)


def forget(key: str) -> None:
    """Let go of the code of a structure; kernels that were bound to it keep it."""
    _known.pop(key, None)


def load_object(group: Group, schedule: Schedule | None, data: bytes) -> Kernel:
    """Return the kernel of a group from its object code, made on this machine as it is."""
    return bound(group, schedule, lambda: data)


def _linked(data: bytes) -> _Code:
    """Return object code as code that can be called."""
    placed = shared.placed(data)
    entry = placed.functions["entry"]
    combine = placed.functions.get("combine", 0)
    return _Code(entry, combine, _CALL(entry), placed.owner, data)
