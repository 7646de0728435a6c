"""The call guard: what stands between a call of a jitted function and a kernel that is already
there.

A ``CallGuard`` is called like the function. It keeps entries, the one used last in front; the first
one whose guards hold answers, and where none does its ``miss`` is called. ``_guard`` (C) and this
module have the same names and pass the same tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from time import perf_counter
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._src.base.failures import failures
from alight._src.base.originals import np

__all__ = [
    "KERNEL",
    "WATCHED",
    "Call",
    "CallGuard",
    "Entry",
    "by_position",
    "clear_flags",
    "raise_flags",
    "raised_flags",
]

NdArray = np.ndarray[Any, Any]

# Of the calls one in this many is timed: reading the clock twice costs as much as a small kernel.
SAMPLED = 16

# As the kinds of call that jit keeps apart by exact shapes. One that does not hold is passed by in
# 4 ns, and those in use are in front.
_ENTRIES = 64

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

# What an entry may watch, as bits.
WATCHED = {"divide": 1, "over": 2, "invalid": 4}


def _pointer_to_state() -> Callable[[Any], Any]:
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    return lambda state: pointer(state, b"numpy.ufunc.extobj")


_pointer = _pointer_to_state()


def _mask_of(state: Any) -> int:
    """Return what NumPy does about errors in a state, as bits; -1 where it is no such state."""
    try:
        return ctypes.c_int.from_address(_pointer(state)).value
    except failures(ValueError):
        return -1


def _masks_are_known() -> bool:
    """Tell whether error states begin with their masks, three bits for each category, which NumPy
    promises nowhere."""
    state = np._core.umath._extobj_contextvar.get  # type: ignore[attr-defined]
    given: tuple[tuple[dict[str, Any], int], ...] = (
        ({"all": "ignore"}, 0),
        ({"all": "raise"}, 0o2222),
        ({"divide": "warn", "over": "raise", "under": "ignore", "invalid": "print"}, 0o4021),
    )
    for modes, mask in given:
        with np.errstate(**modes):
            if _mask_of(state()) != mask:
                return False
    return True


_MASKS_KNOWN = _masks_are_known()


def _same_errors(state: Any, other: Any) -> bool:
    """Tell whether these are two of NumPy's error states that do the same: every block makes a new
    one."""
    return _MASKS_KNOWN and _mask_of(state) == _mask_of(other) >= 0


class Call(NamedTuple):
    """A function of NumPy's in a kernel's place: ``function(*operands, result)``, on arrays that
    are like these, over the memory of the operands.

    ``before()`` is called first. ``quiet`` is (variable, object): meanwhile the variable has that
    object, by which NumPy tells nobody of the flags that it raises.
    """

    function: Callable[..., Any]
    like: tuple[NdArray, ...]
    before: Callable[[], Any]
    quiet: tuple[ContextVar[Any], Any]


class _Missing:
    pass


_MISSING = _Missing()


class _TwinEntry:
    """Guards, and what to do where they hold: launch kernels, or call a function.

    ``pattern`` says what each argument is like: an ndarray stands for all of its dtype, shape,
    strides and writeability, a type for all that is of it, (dtype, bits) for ndarrays of so many
    elements, (int, bits) for integers of so many bits, anything else for that very value. An
    ndarray given twice in the pattern must be given twice. ``lookups`` are (dict, name, object),
    (cell, None, object) and (function, name, object), where the name is ``__code__``,
    ``__defaults__`` or ``__kwdefaults__``; ``absent`` stands for no such name. ``contexts`` are
    (variable, default, object); of NumPy's error states another will do that asks for the same.

    ``inputs`` are (position of an argument, offset in bytes from its first element) or (-1,
    address); ``outputs`` are ndarrays that what is made is made like. ``kernels`` run in their
    order: each ``(address or Call, dims, strides, keep, how many of the outputs are there after
    it, operands)``, its operands (place among inputs and outputs, offset in bytes). ``results`` and
    ``scalars`` say which outputs come back, and whether as NumPy scalars; ``form`` is None, tuple
    or list. ``watched``: the ``WATCHED`` of floating-point flags that end the guard's way, to be
    told of elsewhere, unless ``already_shown(flags, *args)``, asked with these bits, says that
    there is nothing to tell. What is called ``looks`` at the arguments itself, and leaves those
    that are not for it to other entries.
    """

    __slots__ = (
        "_absent", "_already_shown", "_call", "_calls", "_contexts", "_form", "_inputs", "_kernels",
        "_left", "_lookups", "_number", "_outputs", "_pattern", "_results", "_same", "_sampled",
        "_scalars", "_seconds", "_watched", "looks",
    )  # fmt: skip

    def __init__(
        self,
        pattern: tuple[Any, ...],
        lookups: Sequence[tuple[Any, Any, Any]],
        absent: object,
        contexts: Sequence[tuple[ContextVar[Any], Any, Any]],
        call: Callable[..., Any] | None = None,
        left: int = -1,
        kernels: Sequence[tuple[Any, int, int, Any, int, Sequence[tuple[int, int]]]] = (),
        inputs: Sequence[tuple[int, int]] = (),
        outputs: Sequence[NdArray] = (),
        results: Sequence[int] = (),
        scalars: Sequence[bool] = (),
        form: type | None = None,
        watched: int = 0,
        already_shown: Callable[..., bool] | None = None,
        looks: bool = False,
    ) -> None:
        self._pattern = tuple(map(_Example, pattern))
        self._same = tuple(
            [next(j for j, other in enumerate(pattern) if other is item) for item in pattern]
        )
        self._number = len(pattern)
        self._lookups = tuple(lookups)
        self._absent = absent
        self._contexts = tuple(contexts)
        self._call = call
        self._left = left
        self._kernels = tuple(kernels)
        self._inputs = tuple(inputs)
        self._outputs = tuple([_Made(output) for output in outputs])
        self._results = tuple(results)
        self._scalars = tuple(scalars)
        self._form = form
        self._watched = watched
        self._already_shown = already_shown
        self.looks = looks
        self._calls = self._sampled = 0
        self._seconds = 0.0

    def matches(self, args: tuple[Any, ...]) -> bool:
        """Tell whether every guard holds for these arguments, here and now."""
        if len(args) != self._number:
            return False
        for item, example in zip(args, self._pattern, strict=True):
            if not example.like(item):
                return False
        for number, first in enumerate(self._same):
            given = args[number]
            if first != number and type(given) is np.ndarray and args[first] is not given:
                return False
        for place, name, expected in self._lookups:
            if name is None:
                try:
                    if place.cell_contents is not expected:
                        return False
                except failures(ValueError):
                    return False
            elif type(place) is FunctionType:
                if getattr(place, name) is not expected:
                    return False
            elif place.get(name, self._absent) is not expected:
                return False
        for variable, default, expected in self._contexts:
            value = variable.get(default)
            if value is not expected and not _same_errors(value, expected):
                return False
        return True

    def run(self, args: tuple[Any, ...]) -> Any:
        """Return the results, or NotImplemented where they must be had in another way."""
        if self._call is not None:
            if self._left == 0:
                return NotImplemented
            self._left -= self._left > 0
            return self._counted(self._call, args)
        return self._counted(self._launch, args)

    def _counted(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._calls += 1
        if self._calls % SAMPLED != 1:
            return call(*args)
        began = perf_counter()
        result = call(*args)
        self._seconds += perf_counter() - began
        self._sampled += 1
        return result

    def _launch(self, *args: Any) -> Any:
        made: list[NdArray] = []
        addresses = [
            offset if position < 0 else args[position].__array_interface__["data"][0] + offset
            for position, offset in self._inputs
        ]
        for entry, dims, strides, _, there, operands in self._kernels:
            for output in self._outputs[len(made) : there]:
                made.append(output.empty())
                addresses.append(made[-1].__array_interface__["data"][0])
            given = [addresses[place] + offset for place, offset in operands]
            if self._watched:
                clear_flags()
            if isinstance(entry, Call):
                _called(entry, given)
            elif callable(entry):  # a launcher of alight._core.threads
                entry(given)
            else:
                packed = (ctypes.c_uint64 * len(given))(*given)
                KERNEL(entry)(ctypes.addressof(packed), dims, strides)
            heard = _heard(self._watched) if self._watched else 0
            if heard and (self._already_shown is None or not self._already_shown(heard, *args)):
                self._calls -= 1
                return NotImplemented
        found = [
            made[number][()] if scalar else made[number]
            for number, scalar in zip(self._results, self._scalars, strict=True)
        ]
        return found[0] if self._form is None else self._form(found)

    def take(self) -> tuple[int, float]:
        """Return the calls since the last time and their seconds, estimated from those that were
        timed."""
        calls, sampled, seconds = self._calls, self._sampled, self._seconds
        self._calls = self._sampled = 0
        self._seconds = 0.0
        return calls, seconds / sampled * calls if sampled else 0.0


def _called(call: Call, addresses: Sequence[int]) -> None:
    """Call a function of NumPy's on memory at these addresses."""
    arrays = []
    for address, like in zip(addresses, call.like, strict=True):
        low, high = np.lib.array_utils.byte_bounds(like)
        first = like.__array_interface__["data"][0] - low
        memory: Any = (ctypes.c_char * (high - low)).from_address(address - first)
        arrays.append(np.ndarray(like.shape, like.dtype, memory, first, like.strides))
    call.before()
    variable, value = call.quiet
    token = variable.set(value)
    try:
        call.function(*arrays)
    finally:
        variable.reset(token)


class _Example:
    __slots__ = ("bits", "dtype", "kind", "many", "shape", "strides", "writeable")

    def __init__(self, item: Any) -> None:
        self.kind = type(item)
        self.bits: Any = None
        self.many = -1
        if self.kind is tuple:
            kind, self.many = item
            self.kind = int if kind is int else np.ndarray
            self.dtype = kind
        elif isinstance(item, type):
            self.kind = item
        elif self.kind is np.ndarray:
            self.dtype = item.dtype
            self.shape = item.shape
            self.strides = item.strides
            self.writeable = item.flags.writeable
        else:
            self.bits = _bits(item)

    def like(self, item: Any) -> bool:
        if type(item) is not self.kind:
            return False
        if self.many >= 0:
            if self.kind is int:
                return bool(item.bit_length() == self.many)
            sized = item.size.bit_length() == self.many and item.flags.aligned
            return bool(sized and item.dtype == self.dtype)
        if self.kind is np.ndarray:
            flags = item.flags
            same: bool = (
                item.dtype == self.dtype
                and item.shape == self.shape
                and item.strides == self.strides
                and flags.writeable == self.writeable
                and flags.aligned
            )
            return same
        return self.bits is None or _bits(item) == self.bits


def _bits(item: Any) -> Any:
    """Return what tells a value from every other of its type: for floats, the sign of zero
    included."""
    if type(item) is float:
        return item.hex()
    if type(item) is complex:
        return item.real.hex(), item.imag.hex()
    return (item.dtype, item.tobytes()) if isinstance(item, np.generic) else (item,)


class _Made:
    __slots__ = ("dtype", "order", "shape")

    def __init__(self, like: NdArray) -> None:
        self.dtype = like.dtype
        self.shape = like.shape
        self.order: Any = "C" if like.flags.c_contiguous else "F"

    def empty(self) -> NdArray:
        return np.empty(self.shape, self.dtype, self.order)


def _flag_functions() -> tuple[Callable[[int], int], Callable[[int], int], int, dict[str, int]]:
    library = ctypes.CDLL("ucrtbase" if os.name == "nt" else None)

    def raised(function: Any, value: float) -> int:
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        library.feclearexcept(-1)
        function(value)
        flags: int = library.fetestexcept(-1)
        library.feclearexcept(-1)
        return flags

    inexact = raised(library.sqrt, 2.0)
    flags = {
        "divide": raised(library.log, 0.0) & ~inexact,
        "over": raised(library.exp, 1e4) & ~inexact,
        "invalid": raised(library.sqrt, -1.0) & ~inexact,
    }
    return library.feclearexcept, library.fetestexcept, ~inexact, flags


_functions: list[Any] = []


def clear_flags() -> None:
    """Take down every floating-point flag of this thread."""
    if not _functions:
        _functions.extend(_flag_functions())
    _functions[0](-1)


def raised_flags() -> int:
    """Return the flags that are up, the one for inexact results apart."""
    if not _functions:
        _functions.extend(_flag_functions())
    raised: int = _functions[1](-1) & _functions[2]
    return raised


def _bits_of(watched: int) -> int:
    """Return the processor's flags of what is watched."""
    if not _functions:
        _functions.extend(_flag_functions())
    flags = [flag for name, flag in _functions[3].items() if watched & WATCHED[name]]
    # a C library whose functions raise none would leave what is watched unheard
    return sum(flags) if all(flags) else _functions[2]


def _heard(watched: int) -> int:
    """Return which of what is watched the processor's flags say happened, and take them down."""
    raised = raised_flags()
    if not raised & _bits_of(watched):
        return 0
    clear_flags()
    return sum([bit for bit in WATCHED.values() if watched & bit and raised & _bits_of(bit)])


def raise_flags(flags: int) -> None:
    """Put up flags of this thread."""
    if flags:
        ctypes.CDLL("ucrtbase" if os.name == "nt" else None).feraiseexcept(flags)


def by_position(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Return all arguments of a Python function by position; None where keywords leave out a
    parameter before them, or name what is none."""
    if not kwargs:
        return args
    if type(function) is not FunctionType:
        return None
    code, first = function.__code__, len(args)
    names = code.co_varnames[first : min(first + len(kwargs), code.co_argcount)]
    if first < code.co_posonlyargcount or kwargs.keys() != set(names):
        return None
    return (*args, *[kwargs[name] for name in names])


class _TwinGuard:
    """A callable that answers from its entries, and calls ``miss(args, kwargs)`` where none
    does; ``__wrapped__``, where there is one, names the arguments. The first entry whose guards
    hold has the call, but for functions that look at the arguments themselves: where one gives
    NotImplemented, the next may have it."""

    def __init__(self) -> None:
        self._entries: tuple[_TwinEntry, ...] = ()
        self._running: _TwinEntry | None = None  # the last one that was begun and is not over

    def insert(self, entry: _TwinEntry) -> None:
        """Make an entry the first to be tried; that used longest ago, but for one that runs, goes
        where there are too many."""
        kept = self._entries
        if len(kept) == _ENTRIES and kept[-1] is self._running:
            kept = (*kept[:-2], kept[-1])
        self._entries = (entry, *kept[: _ENTRIES - 1])

    def holds(self, entry: _TwinEntry) -> bool:
        """Tell whether an entry is among those that are tried."""
        return any(other is entry for other in self._entries)

    def remove(self, entry: _TwinEntry) -> None:
        """Drop an entry; one that is not there is no error."""
        self._entries = tuple([other for other in self._entries if other is not entry])

    def clear(self) -> None:
        """Drop every entry."""
        self._entries = ()

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result where no entry's guards hold."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = by_position(getattr(self, "__wrapped__", None), args, kwargs)
        if given is not None:
            for entry in self._entries:
                if entry.matches(given):
                    looks, outer = entry.looks, self._running
                    self._running = entry
                    try:
                        result = entry.run(given)
                    finally:
                        self._running = outer
                    passed = result is NotImplemented
                    if not (passed and looks):
                        self._to_front(entry)
                    if not passed:
                        return result
                    if not looks:
                        break
        return self.miss(args, kwargs)

    def _to_front(self, entry: _TwinEntry) -> None:
        if self.holds(entry) and entry is not self._entries[0]:
            self._entries = (entry, *[e for e in self._entries if e is not entry])


if TYPE_CHECKING:
    CallGuard = _TwinGuard
    Entry = _TwinEntry
else:
    CallGuard, Entry = _TwinGuard, _TwinEntry
    if os.environ.get("ALIGHT_TWIN", "0") in ("", "0"):
        with contextlib.suppress(ImportError):  # no compiler was present at install
            from alight._core._guard import CallGuard, Entry, know_masks

            know_masks(_MASKS_KNOWN)
