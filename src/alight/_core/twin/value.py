"""Values, which are immutable, and storages, which name the current one."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from alight._src.base.at_fork import renewed
from alight._src.base.originals import np

from .asked import numpy_errstate, recording_errstate
from .data import Data, references
from .layout import Layout, make_layout


class Value:
    """One immutable result. Pending: ``op`` and ``operands`` say how to compute it. Concrete:
    ``op`` is None and ``data``/``offset`` say where its bytes are; a constant has neither and
    keeps a 0-d array in ``attrs``. ``error``: what it failed with, or the type of that once it was
    raised. What failed is tried again only where it is asked for, or something made of it.
    """

    __slots__ = (
        "__weakref__",
        "attrs",
        "data",
        "error",
        "errstate",
        "layout",
        "offset",
        "op",
        "operands",
        "seq",
        "site",
    )
    op: Any
    operands: tuple[Value, ...]
    attrs: Any
    layout: Layout
    data: Data | None
    offset: int
    seq: int
    site: Any
    errstate: Any
    error: BaseException | type[BaseException] | None

    def __init__(
        self, op: Any, operands: tuple[Value, ...], attrs: Any, layout: Layout, site: Any = None
    ) -> None:
        self.op = op
        self.operands = operands
        self.attrs = attrs
        self.layout = layout
        self.site = site
        self.data = None
        self.offset = 0
        self.error = None
        self.seq = next_number()
        self.errstate = recording_errstate() or numpy_errstate()

    def __repr__(self) -> str:
        name = (
            self.op.name if self.op is not None else "data" if self.data is not None else "constant"
        )
        return f"<Value {self.seq} {name} {self.layout!r}>"


next_number = itertools.count().__next__


class Storage:
    """The current version of some memory. ``lease`` is what is known of it while ``jit`` has it
    from its caller."""

    __slots__ = ("__weakref__", "lease", "value")
    value: Value
    lease: Any

    def __init__(self, value: Value) -> None:
        self.value = value
        self.lease = None
        if value.op is not None:
            pending.append(weakref.ref(self))

    def rebind(self, value: Value) -> None:
        """Make ``value`` the current version."""
        self.value = value
        if value.op is not None:
            pending.append(weakref.ref(self))


pending: list[weakref.ref[Storage]] = []
_pending_lock = renewed(globals(), "_pending_lock", threading.RLock)


def pending_storages() -> list[Storage]:
    """Return the live storages whose version is pending, oldest first."""
    seen: dict[int, Storage] = {}
    with _pending_lock:
        # Other threads may append meanwhile, never remove: what they add stays behind what was
        # counted.
        count = len(pending)
        for reference in pending[:count]:
            storage = reference()
            if storage is not None and storage.value.op is not None:
                seen[id(storage)] = storage
        pending[:count] = [weakref.ref(s) for s in seen.values()]
    return list(seen.values())


def sole(value: Value, held: int, data_held: int = 0) -> bool:
    """Tell whether nobody else needs a concrete value's bytes: ``value`` has only ``held``
    references besides one (the caller's name for it, or the storage it was just read from), and
    its data only ``data_held`` besides the value's own."""
    return references(value) <= _SOLE + held and references(value.data) <= _SOLE_DATA + data_held


def _sole_baseline() -> tuple[int, int]:
    def counts(value: Value) -> tuple[int, int]:
        return references(value), references(value.data)

    layout = make_layout(np.dtype(np.int8), ())
    value = Value(None, (), (), layout)
    value.data = Data(layout)
    return counts(value)


_SOLE, _SOLE_DATA = _sole_baseline()
