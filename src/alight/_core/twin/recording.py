"""Operators of arrays, and the fast way to record one."""

from __future__ import annotations

import sys
import warnings
import weakref
from _thread import interrupt_main
from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar

from alight._core.numbering import Key, numbered
from alight._src.base.failures import failures
from alight._src.base.originals import np

from .asked import POLICY, hooks, known, numpy_errstate, recording_errstate
from .layout import Layout, View
from .value import Storage, Value, next_number, pending, pending_storages


class Floor:
    """What recording looks at: when to leave work to NumPy, and when enough is pending.

    ``record_floor``: result elements below which an op on concrete operands is left to NumPy at
    once (a policy in force has its own; -n: not known yet, and not asked for by new arrays of
    less than n elements). ``auto``: what the measured profile
    says of it. ``count`` and ``pending``: ops and result elements recorded since the last flush.
    Past ``limit`` ops a flush is due when the ``anchor`` call site comes round again, so that a
    loop is cut at the same place each time and its plan is found again (an anchor that has not
    come by twice ``limit`` is of a loop that is over, and gives way); past 16 times that, or past
    ``budget`` elements, at once. ``scalars``: `alight run`, where small results are plain ndarrays
    and NumPy scalars. ``traced``: how many calls are followed in what they read (`jit`).
    ``kept``: while all work waits, the elements from which on a new array is alight's; else 0.
    """

    __slots__ = (
        *("anchor", "auto", "begins", "budget", "count", "kept", "limit", "pending"),
        *("record_floor", "scalars", "traced"),
    )
    anchor: tuple[Any, int] | None

    def __init__(self) -> None:
        self.record_floor = -1
        self.auto = 1
        self.budget = 1 << 62
        self.limit = 1 << 62
        self.count = 0
        self.pending = 0
        self.anchor = None
        self.scalars = False
        self.traced = 0
        self.kept = 0
        self.begins = 0.0

    def wait(self, seconds: float) -> None:
        """Leave ops on concrete operands to NumPy, however large, for so many seconds from now on;
        arrays that were to be alight's go on to be. 0: no longer."""
        if seconds > 0.0 and self.record_floor > 0:
            if self.kept == 0:
                self.kept, self.record_floor = self.record_floor, sys.maxsize
            self.begins = perf_counter() + seconds
        elif self.kept > 0:
            self.record_floor, self.kept = self.kept, 0

    def waits(self) -> bool:
        """Tell whether all work is left to NumPy for a while."""
        if self.kept > 0 and perf_counter() >= self.begins:
            self.wait(0.0)
        return self.kept > 0

    def due(self, code: Any, instruction: int) -> bool:
        """Tell whether everything pending should be evaluated before an op of this site is
        recorded."""
        site = (code, instruction)
        if self.anchor is None or (self.count == 2 * self.limit and self.anchor != site):
            self.anchor = site  # none yet, or one of a loop that is over
        elif self.anchor == site or self.pending > self.budget:
            return True
        elif self.count >= 16 * self.limit:
            self.anchor = site
            return True
        return False


floor = Floor()


def request(
    roots: list[Value],
    read: bool,
    stamp: int,
    passing: Storage | None = None,
    connected: bool = True,
) -> tuple[Key, list[Value]] | None:
    """Return the key of a request and its leaves and pending values by number; None where nothing
    is pending.

    ``connected``: every live pending value that shares pending work with the roots is requested,
    too, but for that of ``passing``, which nobody will ask for any more; what is left pending is
    what the floor counts from here on. ``read``: the host is about to read the roots.
    """
    others = (
        [s.value for s in pending_storages() if s is not passing] if connected and roots else ()
    )
    found = numbered(roots, others, read, stamp)
    if found is None:
        return None
    key, values, count, elements = found
    if connected:
        floor.count, floor.pending = count, elements
    return key, values


class _Recorded(Value):
    """A value whose fields are filled by who makes it: a call of `__init__` costs more than they
    do."""

    __slots__ = ()
    __init__ = object.__init__


class _Written(Storage):
    """A storage whose fields are filled by who makes it, as above."""

    __slots__ = ()
    __init__ = object.__init__


_policy = POLICY.get
_frame = sys._getframe
_blank = object.__new__
_append = pending.append
_reference = weakref.ref
_errstate = numpy_errstate
_operators: dict[str, Any] = {}


def _may_wait(value: Value) -> bool:
    """Tell whether an op on a value may be recorded: it is large enough and nobody else sees its
    bytes."""
    data = value.data
    return (
        value.layout.size >= (_policy() or floor).record_floor
        and (data is None or not data.shared)
        and recording_errstate() is not None
    )


def _binary_method(op: Any, reflected: bool) -> Callable[[Any, Any], Any]:
    same = op.same.get

    def method(self: ArrayBase, other: Any) -> Any:
        kind = type(other)
        if kind is type(self) and self.window is None and other.window is None:
            a, b = self.storage.value, other.storage.value
            layout = a.layout
            if (
                layout is b.layout
                and (out := same(layout)) is not None
                and layout.size >= (_policy() or floor).record_floor
                and ((data := a.data) is None or not data.shared)
                and ((data := b.data) is None or not data.shared)
            ):
                # As `recording_errstate` begins, without the call.
                current, filters, first, count, state = known[0]
                if not (
                    _errstate() is current
                    and warnings.filters is filters
                    and len(filters) == count
                    and filters[0] is first
                ):
                    state = recording_errstate()
                if state is not None:
                    # What `_record` does, without the calls: they are half of what it costs.
                    frame = _frame(1)
                    site = (frame.f_code, frame.f_lasti)
                    here = floor
                    here.count = made = here.count + 1
                    here.pending = elements = here.pending + out.size
                    if (made >= here.limit or elements > here.budget) and here.due(*site):
                        hooks.flush()
                    value = _Recorded()
                    value.op = op
                    value.operands = (b, a) if reflected else (a, b)
                    value.attrs = ()
                    value.layout = out
                    value.site = site
                    value.data = None
                    value.offset = 0
                    value.error = None
                    value.seq = next_number()
                    value.errstate = state
                    storage = _Written()
                    storage.value = value
                    storage.lease = None
                    _append(_reference(storage))
                    array = _blank(kind)
                    array.storage = storage
                    array.window = None
                    return array
        elif (kind is float or kind is int) and self.window is None:
            recorded = _record_weak(op, self, other, reflected, _frame(1))
            if recorded is not None:
                return recorded
        return hooks.binary(op, other, self) if reflected else hooks.binary(op, self, other)

    return method


def _in_place_method(op: Any) -> Callable[[Any, Any], Any]:
    def method(self: ArrayBase, other: Any) -> Any:
        return hooks.in_place(op, self, other)

    return method


def _unary_method(op: Any) -> Callable[[Any], Any]:
    def method(self: ArrayBase) -> Any:
        if self.window is None:
            value = self.storage.value
            out = op.same.get(value.layout)
            if out is not None and _may_wait(value):
                return _record(type(self), op, (value,), out, _frame(1))
        return hooks.unary(op, self)

    return method


def _record_weak(op: Any, array: ArrayBase, scalar: Any, reflected: bool, frame: Any) -> Any:
    """Return an array of an op on an array and a Python scalar; None where the hook must say."""
    value = array.storage.value
    kind = type(scalar)
    found = op.weak.get((kind, value.layout) if reflected else (value.layout, kind))
    if found is None or not _may_wait(value):
        return None
    out, layout = found
    try:
        other = Value(None, (), np.asarray(scalar, layout.dtype), layout)
    except failures(OverflowError):
        return None  # the hook knows which ops can take an integer that does not fit
    operands = (other, value) if reflected else (value, other)
    return _record(type(array), op, operands, out, frame)


def _record(cls: type[ArrayBase], op: Any, operands: Any, out: Layout, frame: Any) -> Any:
    """Return a new array of a recorded value."""
    site = (frame.f_code, frame.f_lasti)
    here = floor
    here.count += 1
    here.pending += out.size
    if (here.count >= here.limit or here.pending > here.budget) and here.due(*site):
        hooks.flush()
    return cls.of(Value(op, operands, (), out, site))


BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "matmul": "matmul",
}
COMPARE = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


class ArrayBase:
    """What every Array is: a storage, and a view of it (None: the whole of it). Operators
    record."""

    __slots__ = ("__weakref__", "storage", "window")
    storage: Storage
    window: View | None
    operators: ClassVar[dict[str, Any]] = _operators
    __hash__ = None  # type: ignore[assignment]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Return the class this array shows to its asker: isinstance looks here after the type
        itself."""
        appears = hooks.appears
        if appears is None:
            return type(self)
        return appears(type(self), sys._getframe(1).f_code)

    def __getitem__(self, key: Any) -> Any:
        return hooks.getitem(self, key)

    def __setitem__(self, key: Any, item: Any) -> None:
        hooks.setitem(self, key, item)

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return hooks.ufunc(ufunc, method, *inputs, **kwargs)

    @classmethod
    def of(cls, value: Value) -> Any:
        """Return a new array whose storage starts at ``value``."""
        array = _blank(cls)
        array.storage = Storage(value)
        array.window = None
        return array

    def __buffer__(self, flags: int) -> memoryview:  # Python calls it from 3.12 on
        try:
            array: np.ndarray[Any, Any] = self._for_buffer()  # type: ignore[attr-defined]
        except KeyboardInterrupt:
            interrupt_main()  # NumPy drops it and tries __array__, where it is to be heard
            raise
        if array.dtype.kind == "V" and not array.dtype.names:  # NumPy reads padding from it
            raise BufferError("a buffer cannot say that its elements are plain bytes")
        memory = array.data
        if memory.strides != array.strides:  # axes of length one, empty arrays
            raise BufferError("a memoryview made in Python cannot have these strides")
        return memory


def set_operators(table: dict[str, Any]) -> None:
    """Tell the core which op each operator records."""
    for short, name in (BINARY | COMPARE).items():
        _operators[name] = op = table[name]
        setattr(ArrayBase, f"__{short}__", _binary_method(op, reflected=False))
        if short in BINARY:
            setattr(ArrayBase, f"__r{short}__", _binary_method(op, reflected=True))
        if short in BINARY and short != "divmod":
            setattr(ArrayBase, f"__i{short}__", _in_place_method(op))
    for short, name in UNARY.items():
        _operators[name] = table[name]
        setattr(ArrayBase, f"__{short}__", _unary_method(table[name]))
