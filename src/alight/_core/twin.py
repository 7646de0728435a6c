"""The core in Python: what one recorded call is made of, and the fast way to record it.

Four small classes. A ``Layout`` says how bytes are read (dtype, shape, strides) and is interned,
so layouts compare by identity. A ``Value`` is one immutable result: pending (it knows its op and
operands) or concrete (it knows its ``Data``). ``Data`` is the bytes of one version, with a copy in
each memory space that has one. A ``Storage`` names the current version; every view of an array
shares it, so a write, which makes a new version and rebinds the storage, is seen by all of them.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import warnings
import weakref
from _thread import interrupt_main
from collections.abc import Callable
from contextvars import ContextVar
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np

from alight._core.numbering import Key, numbered

# The policy in force (alight.config.Policy) or None for the default one. It lives here because
# recording must look at its floor.
POLICY: ContextVar[Any] = ContextVar("alight.policy", default=None)

_errstate = np._core.umath._extobj_contextvar.get  # type: ignore[attr-defined]


class Hooks:
    """What the core calls when its fast way does not apply; ``array`` fills these in.

    The native core has NumPy do small work on bytes that are at hand without asking (ufuncs of
    ``elementwise``, indexing, in-place operators), as the hooks would: unless the call comes from
    files under the folders ``inside``, or a thread is traced.
    """

    __slots__ = (
        *("appears", "array", "binary", "elementwise", "errstate", "flush", "getitem"),
        *("in_place", "inside", "setitem", "ufunc", "unary", "wrap"),
    )
    # `alight run`: the class an array shows to the file that asks; None: always its own.
    appears: Callable[[type[ArrayBase], str], type] | None
    array: type[ArrayBase]  # the public class, for results made below it
    binary: Callable[[Any, Any, Any], Any]
    unary: Callable[[Any, Any], Any]
    in_place: Callable[[Any, Any, Any], Any]
    getitem: Callable[[Any, Any], Any]
    setitem: Callable[[Any, Any, Any], None]
    ufunc: Callable[..., Any]
    elementwise: dict[Any, Any]
    wrap: Callable[[Any], Any]  # an ndarray or NumPy scalar as what the front door promises
    inside: tuple[str, ...]
    flush: Callable[[], None]
    errstate: Callable[[], Any]  # the state to record under, or None: for `recording_errstate`

    def __init__(self) -> None:
        self.appears = None


hooks = Hooks()


# NumPy's error state, the list of warning filters, its first entry, its length, and what the hook
# said of them. Filters are put in front of the list or behind it, or another list takes its place.
# First what was asked for last, then what was known before: that of a block of the program's, or
# around it. An entry is read as one, or another thread's could come in between. One that must not
# be found by operators, which look without a call, has a length that no list has: where there are
# no filters, or the list in the module is not the one in force (Python 3.14).
_known: list[tuple[Any, ...]] = [(None, None, None, -1, None)] * 2
_filters_in_context = bool(getattr(sys.flags, "context_aware_warnings", False))


def recording_errstate() -> Any:
    """Return the floating-point error state to record an op under; None where NumPy must act at
    the call."""
    current = _errstate()
    filters = warnings.filters
    first = filters[0] if filters else None
    count = -2 if _filters_in_context else len(filters) or -1
    for place, one in enumerate(_known):
        same = one[0] is current and one[1] is filters and one[2] is first and one[3] == count
        if same and not _filters_in_context:
            if place:
                _known.reverse()
            return one[4]
    ask = getattr(hooks, "errstate", None)
    answer = current if ask is None else ask()
    _known[:] = (current, filters, first, count, answer), _known[0]
    return answer


class Layout:
    """How bytes are read as an array: dtype, shape and strides in bytes. Interned: compare with
    ``is``."""

    __slots__ = (
        "__weakref__",
        "_probe",
        "c_contiguous",
        "dense",
        "dtype",
        "itemsize",
        "nbytes",
        "ndim",
        "ordinary",
        "shape",
        "size",
        "strides",
    )
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    ndim: int
    size: int
    itemsize: int
    nbytes: int
    c_contiguous: bool
    dense: bool
    ordinary: bool  # the strides are those of a fresh C-order array, axes of length one included

    def __init__(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.ndim = len(shape)
        self.itemsize = dtype.itemsize
        size = 1
        for n in shape:
            size *= n
        self.size = size
        self.nbytes = size * self.itemsize
        self.c_contiguous = size == 0 or _is_dense(shape, strides, self.itemsize, range(self.ndim))
        self.dense = self.c_contiguous or _is_dense(
            shape, strides, self.itemsize, sorted(range(self.ndim), key=lambda i: -strides[i])
        )
        self.ordinary = size > 0 and strides == _c_strides(dtype, shape)
        self._probe: np.ndarray[Any, Any] | None = None

    @property
    def probe(self) -> np.ndarray[Any, Any]:
        """Return an array of this layout that has no storage: index or transpose it, never read
        it."""
        if self._probe is None:
            base = (
                np.zeros(1, self.dtype) if self.itemsize else np.zeros(1, np.uint8).view(self.dtype)
            )
            self._probe = np.lib.stride_tricks.as_strided(base, self.shape, self.strides)
        return self._probe

    def __repr__(self) -> str:
        order = "" if self.c_contiguous else f", strides={self.strides}"
        return f"{self.dtype.name}{list(self.shape)}{order}"


def _c_strides(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    step = dtype.itemsize
    steps = []
    for n in reversed(shape):
        steps.append(step)
        step *= n if n else 1
    return tuple(reversed(steps))


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, order: Any) -> bool:
    expected = itemsize
    for i in reversed(order):
        if shape[i] != 1:
            if strides[i] != expected:
                return False
            expected *= shape[i]
    return True


_layouts: weakref.WeakValueDictionary[tuple[Any, ...], Layout] = weakref.WeakValueDictionary()


def make_layout(
    dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Layout:
    """Return the one layout with these fields; strides default to C order."""
    if strides is None:
        strides = _c_strides(dtype, shape)
    key = (dtype, shape, strides)
    found = _layouts.get(key)
    if found is None:
        found = _layouts.setdefault(key, Layout(dtype, shape, strides))
    return found


def layout_of(array: np.ndarray[Any, Any]) -> Layout:
    """Return the layout of an ndarray."""
    return make_layout(array.dtype, array.shape, array.strides)


class View:
    """A window on a storage: a layout, the byte it starts at, and whether it may be written."""

    __slots__ = ("layout", "offset", "writeable")

    def __init__(self, layout: Layout, offset: int, writeable: bool = True) -> None:
        self.layout = layout
        self.offset = offset
        self.writeable = writeable

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, View)
            and self.layout is other.layout
            and self.offset == other.offset
            and self.writeable == other.writeable
        )

    def __hash__(self) -> int:
        return hash((id(self.layout), self.offset))

    def __repr__(self) -> str:
        return f"View({self.layout!r}, offset={self.offset})"


_references = sys.getrefcount


class Data:
    """The bytes of one version: on the host (``array``, and ``raw`` as plain bytes), in other
    spaces, or both.

    ``array`` is a dense ndarray that nobody else holds, or, when ``foreign``, memory that others
    can see. ``remote`` maps a memory space to that space's own buffer.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_raw",
        "array",
        "foreign",
        "layout",
        "nbytes",
        "owner",
        "remote",
        "shared",
    )
    array: np.ndarray[Any, Any] | None
    owner: np.ndarray[Any, Any] | None
    layout: Layout
    remote: dict[str, Any] | None
    foreign: bool
    shared: (
        bool  # set by exports: others may see the memory; ``exported`` says whether they still do
    )
    nbytes: int

    def __init__(
        self,
        layout: Layout,
        array: np.ndarray[Any, Any] | None = None,
        owner: np.ndarray[Any, Any] | None = None,
        foreign: bool = False,
    ) -> None:
        self.layout = layout
        self.array = array
        self.owner = owner if owner is not None else array
        self.foreign = foreign
        self.shared = foreign
        self.nbytes = layout.nbytes
        self.remote = None
        self._raw: np.ndarray[Any, Any] | None = None
        self._address = -1

    @property
    def raw(self) -> np.ndarray[Any, Any]:
        """Return the host copy as a 1-d uint8 array over the same memory."""
        raw = self._raw
        if raw is None:
            array = self.array
            assert array is not None, "no host copy"
            if not array.flags.c_contiguous:
                strides = array.strides
                array = array.transpose(sorted(range(array.ndim), key=lambda i: -strides[i]))
            raw = np.ndarray((array.nbytes,), np.uint8, array)
            self._raw = raw
        return raw

    @property
    def address(self) -> int:
        """Return the address of the host copy."""
        if self._address < 0:
            assert self.array is not None, "no host copy"
            self._address = self.array.__array_interface__["data"][0]
        return self._address

    @property
    def exported(self) -> bool:
        """Tell whether anyone outside can see the host memory: an ndarray, a buffer, a DLPack
        capsule.

        While ``jit`` holds a caller's array (foreign, not shared) nobody looks.
        """
        if not self.shared:
            return False
        if self.foreign or self.seen_outside():
            return True
        self.shared = False
        return False

    def seen_outside(self) -> bool:
        """Tell whether references to the host memory exist beyond those held here.

        NumPy keeps the owner of the memory as the base of every view, so its reference count tells.
        """
        owner = self.owner
        if owner is None:
            return False
        # Ours: the slot and this name; array (it is the owner, or rests on it); raw rests on it.
        ours = _BASELINE + (0 if self._raw is None else 1)
        return (
            _references(owner) > ours
            or (self.array is not owner and _references(self.array) > _ALONE)
            or (self._raw is not None and _references(self._raw) > _ALONE)
        )


def _baseline() -> tuple[int, int]:
    # What getrefcount answers differs between interpreters: measure it on a case that is known.
    data = Data.__new__(Data)
    data.array = data.owner = np.zeros(1)
    owner = data.owner
    baseline = _references(owner)
    data.array = np.zeros(1)
    return baseline, _references(data.array)


_BASELINE, _ALONE = _baseline()


class Value:
    """One immutable result. Pending: ``op`` and ``operands`` say how to compute it. Concrete:
    ``op`` is None and ``data``/``offset`` say where its bytes are; a constant has neither and
    keeps a 0-d array in ``attrs``.
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
    error: BaseException | None

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
        self.seq = _next()
        self.errstate = recording_errstate() or _errstate()

    def __repr__(self) -> str:
        name = (
            self.op.name if self.op is not None else "data" if self.data is not None else "constant"
        )
        return f"<Value {self.seq} {name} {self.layout!r}>"


_next = itertools.count().__next__


def sole(value: Value, held: int, data_held: int = 0) -> bool:
    """Tell whether nobody else needs a concrete value's bytes: ``value`` has only ``held``
    references besides one (the caller's name for it, or the storage it was just read from), and
    its data only ``data_held`` besides the value's own."""
    return _references(value) <= _SOLE + held and _references(value.data) <= _SOLE_DATA + data_held


class Storage:
    """The current version of some memory. ``lease`` is the caller's own ndarray while ``jit``
    holds it."""

    __slots__ = ("__weakref__", "lease", "value")
    value: Value
    lease: np.ndarray[Any, Any] | None

    def __init__(self, value: Value) -> None:
        self.value = value
        self.lease = None
        if value.op is not None:
            _pending.append(weakref.ref(self))

    def rebind(self, value: Value) -> None:
        """Make ``value`` the current version."""
        self.value = value
        if value.op is not None:
            _pending.append(weakref.ref(self))


def _sole_baseline() -> tuple[int, int]:
    def counts(value: Value) -> tuple[int, int]:
        return _references(value), _references(value.data)

    layout = make_layout(np.dtype(np.int8), ())
    value = Value(None, (), (), layout)
    value.data = Data(layout)
    return counts(value)


_SOLE, _SOLE_DATA = _sole_baseline()
_pending: list[weakref.ref[Storage]] = []
_pending_lock = threading.RLock()


def pending_storages() -> list[Storage]:
    """Return the live storages whose version is pending, oldest first."""
    seen: dict[int, Storage] = {}
    with _pending_lock:
        # Other threads may append meanwhile, never remove: what they add stays behind what was
        # counted.
        count = len(_pending)
        for reference in _pending[:count]:
            storage = reference()
            if storage is not None and storage.value.op is not None:
                seen[id(storage)] = storage
        _pending[:count] = [weakref.ref(s) for s in seen.values()]
    return list(seen.values())


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


def _after_fork() -> None:
    global _pending_lock
    _pending_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Floor:
    """What recording looks at: when to leave work to NumPy, and when enough is pending.

    ``record_floor``: result elements below which an op on concrete operands is left to NumPy at
    once (a policy in force has its own; -1: not known yet). ``auto``: what the measured profile
    says of it. ``count`` and ``pending``: ops and result elements recorded since the last flush.
    Past ``limit`` ops a flush is due when the ``anchor`` call site comes round again, so that a
    loop is cut at the same place each time and its plan is found again (an anchor that has not
    come by twice ``limit`` is of a loop that is over, and gives way); past 16 times that, or past
    ``budget`` elements, at once. ``scalars``: `alight run`, where small results are plain ndarrays
    and NumPy scalars. ``traced``: how many calls are followed in what they read (`jit`).
    """

    __slots__ = (
        *("anchor", "auto", "budget", "count", "limit", "pending", "record_floor", "scalars"),
        "traced",
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
_append = _pending.append
_reference = weakref.ref
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
                current, filters, first, count, state = _known[0]
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
                    here.pending = pending = here.pending + out.size
                    if (made >= here.limit or pending > here.budget) and here.due(*site):
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
                    value.seq = _next()
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
    except OverflowError:
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
        return appears(type(self), sys._getframe(1).f_code.co_filename)

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
            array: np.ndarray[Any, Any] = self.__array__()  # type: ignore[attr-defined]
        except KeyboardInterrupt:
            interrupt_main()  # NumPy drops it and tries __array__, where it is to be heard
            raise
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


def take_over(array: np.ndarray[Any, Any]) -> Value | None:
    """Return a value that takes over a fresh dense ndarray with memory of its own; None for
    others."""
    if type(array) is not np.ndarray or array.base is not None:
        return None
    layout = layout_of(array)
    if not layout.dense:
        return None
    value = Value(None, (), (), layout)
    value.data = Data(layout, array)
    return value


def fresh_array(made: Any) -> Any:
    """Return an array of ours that takes over a fresh ndarray or a NumPy scalar; None where
    wrapping takes more (the twin: always)."""
    return None


def at_hand(array: ArrayBase) -> np.ndarray[Any, Any] | None:
    """Return an ndarray over an array's bytes where the host has them and nobody follows reads,
    else None."""
    value, view = array.storage.value, array.window
    if floor.traced or value.op is not None:
        return None
    data = value.data
    if data is None:
        return value.attrs if view is None else None
    if data.array is None:
        return None
    layout = value.layout if view is None else view.layout
    offset = value.offset + (0 if view is None else view.offset)
    if data.layout is layout and offset == 0:
        return data.array
    return np.ndarray(
        layout.shape, layout.dtype, data.raw, offset if layout.size else 0, layout.strides
    )


def view_of(
    cls: type[ArrayBase],
    array: ArrayBase,
    window: np.ndarray[Any, Any],
    probe: np.ndarray[Any, Any],
) -> Any:
    """Return the view of an array that an ndarray made from its layout's probe says."""
    outer = array.window
    start = window.__array_interface__["data"][0] - probe.__array_interface__["data"][0]
    result = _blank(cls)
    result.storage = array.storage
    result.window = View(
        layout_of(window),
        start + (0 if outer is None else outer.offset),
        True if outer is None else outer.writeable,
    )
    return result


class UfuncBase:
    """What a ufunc of the array namespace is called by: ``_numpy`` at once, or ``_call``."""

    __slots__ = ("_numpy",)
    _numpy: np.ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a subclass says how a call is recorded")


def _alone() -> int:
    result = np.empty(1)
    return _references(result)


_ALONE_BY_NAME = _alone()


def Creation(
    function: Callable[..., Any],
    settle: Callable[[Any], Any],
    convert: Callable[..., Any] | None = None,
    fills: float | EllipsisType | None = None,
) -> Any:
    """Return a function that makes arrays, with ``settle`` called on large results that nobody
    else holds.

    ``convert`` is called instead where the first argument is an array of ours. ``fills`` says what
    the function fills a shape with when it is given nothing else (Ellipsis: the second argument),
    so that the native core can do it for small shapes.
    """

    @functools.wraps(function)
    def creation(*args: Any, **kwargs: Any) -> Any:
        if convert is not None and args and isinstance(args[0], ArrayBase):
            return convert(*args, **kwargs)
        result = function(*args, **kwargs)
        if (
            type(result) is np.ndarray
            and result.size >= (_policy() or floor).record_floor
            and _references(result) <= _ALONE_BY_NAME
        ):
            return settle(result)
        return result

    return creation


def fresh_data(layout: Layout) -> Data:
    """Return data of a dense layout, uninitialised, in memory of its own."""
    if layout.dtype.hasobject:
        raise TypeError("data of Python objects have no memory of their own")
    if not layout.dense:
        raise ValueError(
            f"{layout!r} has holes or overlaps, so no buffer of its own can have it. "
            "Fix: make it a view of a dense one."
        )
    array = np.empty_like(layout.probe, order="K", subok=False)
    if array.strides == layout.strides:
        return Data(layout, array)
    # Axes of length one: any stride reads the same, but results have exactly NumPy's.
    return Data(layout, np.ndarray(layout.shape, layout.dtype, array, 0, layout.strides), array)


def keep_bytes(most: int) -> None:
    """Keep at most so many bytes of memory that came back for later results: here, none."""


def kept_bytes() -> int:
    """Return how many bytes are kept for later results."""
    return 0
