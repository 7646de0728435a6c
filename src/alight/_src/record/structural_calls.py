"""Recording calls that move, gather or combine whole arrays: matmul, concatenate, sort and their
like.

NumPy says what the result's layout is: it is asked about small arrays with the same order of
strides, whose lengths are distinct primes, so that every length of its result names the lengths it
is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from alight._core import (
    ArrayBase,
    Layout,
    Value,
    layout_of,
    make_layout,
    native,
    recording_errstate,
)
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.ir.op_table import OPS, Op
from alight._src.record.numpy_fallback import run_in_numpy
from alight._src.record.pending import (
    WEAK,
    concrete,
    loses_imaginary,
    may_record,
    pend,
    record_floor,
)
from alight._src.record.result_strides import dense_strides, lying_alike
from alight._src.record.storage_io import assign, may_meet
from alight._src.record.ufunc_calls import (
    FUNCTIONS,
    at_once,
    exit_to_numpy,
    make,
    operand,
    outgrow,
    small,
)

Shape = tuple[int, ...]
# The result's shape from the operands' shapes and the attributes; None: from NumPy's answer for
# primes.
Shaper = Callable[..., Shape | None]

_PRIMES = (2, 3, 5, 7, 11, 13)
# Elements of a stand-in: past this, asking costs as much as a small call does.
_STAND_IN_ELEMENTS = 1 << 15
_KEPT = 1 << 12
# Where None says what leaving the keyword out says.
_OPTIONAL = frozenset(("dtype", "kind", "order", "stable"))
_memo: dict[Any, Layout | None] = {}


def result_layout(
    op: Op, layouts: Sequence[Layout], attrs: Mapping[str, Any], shape: Shape | None
) -> Layout | None:
    """Return the layout of the op's result; None where NumPy must be given the real thing.

    Raises what NumPy raises for operands of these shapes and dtypes.
    """
    try:
        key = (op, *layouts, *attrs.items(), *map(type, attrs.values()), shape)
        found = _memo.get(key, _memo)
    except failures(TypeError):  # an attribute that cannot be a key
        return None
    if found is _memo:
        if len(_memo) >= _KEPT:
            _memo.clear()
        found = _memo[key] = _result_layout(op, layouts, attrs, shape)
    return found  # type: ignore[return-value]


def _result_layout(
    op: Op, layouts: Sequence[Layout], attrs: Mapping[str, Any], shape: Shape | None
) -> Layout | None:
    lengths: dict[int, int] = {1: 1}
    for lay in layouts:
        for n in lay.shape:
            if n == 0:
                return None
            if n not in lengths:
                if len(lengths) > len(_PRIMES):
                    return None
                lengths[n] = _PRIMES[len(lengths) - 1]
    stand_ins = [_stand_in(lay, lengths) for lay in layouts]
    if None in [s if s is None else 0 for s in stand_ins]:
        return None
    with warnings_suppressed():
        try:
            answer = op.reference(*stand_ins, **attrs)
        except failures():
            return None
    if type(answer) is tuple or isinstance(answer, list):
        return None
    answer = np.asarray(answer)
    if not native(answer.dtype) or answer.size == 0:
        return None
    if any(np.may_share_memory(answer, stand_in) for stand_in in stand_ins):
        return None
    if shape is None:
        shape = _decoded(answer.shape, {small: n for n, small in lengths.items() if n > 1})
    if shape is None or len(shape) != answer.ndim:
        return None
    return make_layout(answer.dtype, shape, dense_strides(answer, shape, answer.itemsize))


def _stand_in(lay: Layout, lengths: Mapping[int, int]) -> np.ndarray[Any, Any] | None:
    """Return a small array of ones with the same order, signs and zeros of strides."""
    shape = [lengths[n] for n in lay.shape]
    if np.prod(shape, initial=1) > _STAND_IN_ELEMENTS:
        return None
    # Zeros where they may be indices, ones where they may be divided by.
    array = lying_alike(lay, shape, np.zeros if lay.dtype.kind in "iu" else np.ones)
    still = any([s == 0 and n > 1 for s, n in zip(lay.strides, lay.shape, strict=True)])
    if still or (1 in lay.shape and not lay.probe.flags.forc):
        # A copy in K order sorts axes of length one in among the others.
        steps = list(array.strides)
        step = lay.itemsize  # less than any other: elements are apart
        for i in sorted(range(lay.ndim), key=lambda i: -abs(lay.strides[i]))[::-1]:
            if lay.strides[i] == 0:
                steps[i] = 0
            elif lay.shape[i] == 1:
                steps[i] = step
            else:
                step = abs(steps[i]) // 2 * 3  # the next axis out is at least twice as far
        array = np.lib.stride_tricks.as_strided(array, array.shape, steps)
    return array


def _decoded(shape: Shape, lengths: Mapping[int, int]) -> Shape | None:
    """Return real lengths for lengths that are products of primes."""
    found = []
    for n in shape:
        real = 1
        for prime, length in lengths.items():
            while n % prime == 0:
                n //= prime
                real *= length
        if n != 1:
            return None
        found.append(real)
    return tuple(found)


def reads_same_memory(function: Callable[..., Any], array: ArrayBase) -> bool:
    """Tell whether a function of one array only makes a view of it."""
    lay = layout_of(array)
    lengths = dict(zip(dict.fromkeys([n for n in lay.shape if n > 1]), _PRIMES, strict=False))
    if not all(n == 1 or n in lengths for n in lay.shape):
        return False
    stand_in = _stand_in(lay, {1: 1, **lengths})
    if stand_in is None:
        return False
    try:
        return bool(np.may_share_memory(function(stand_in), stand_in))
    except failures():
        return False


def strong(item: Any) -> Value | None:
    """Return an operand as a value: Python scalars are as strong as arrays here."""
    if isinstance(item, ArrayBase) and item.window is None:
        return item.storage.value
    value = operand(item)
    if value is None or isinstance(value, Value):
        return value
    array = np.asarray(value)
    return concrete(array) if native(array.dtype) else None


def plain(item: Any) -> bool:
    """Tell whether an attribute may be part of a plan's key and is the same there and in NumPy."""
    if type(item) is tuple:
        return all([plain(part) for part in item])
    if type(item) is float:
        return item != 0.0  # 0.0 and -0.0 are one key
    return item is None or type(item) in (bool, int, str, complex) or isinstance(item, np.dtype)


def frozen(item: Any) -> Any:
    """Return an attribute with lists as tuples and NumPy integers as Python's."""
    if type(item) in (list, tuple):
        return tuple([frozen(part) for part in item])
    return int(item) if isinstance(item, np.integer) else item


def bound(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return arguments by name; None where NumPy would not take them."""
    if len(args) > len(names):
        return None
    given = dict(zip(names, args, strict=False))
    for key, item in kwargs.items():
        if key in given or key not in names:
            return None
        given[key] = item
    return given


class Form:
    """How a NumPy function is recorded.

    ``names`` are its parameters in order, those after a ``*`` keywords alone, the first
    ``operands`` of them arrays (with ``many``: the first is a sequence of arrays); the others are
    attributes. ``shape(*shapes, **attrs)`` says the result's shape where it does not follow from
    products of lengths; the attributes that it alone depends on are ``lengths``, which NumPy is not
    asked about.
    """

    def __init__(
        self,
        function: Any,
        name: str,
        names: Sequence[str],
        operands: int = 1,
        many: bool = False,
        shape: Shaper | None = None,
        lengths: Collection[str] = (),
    ) -> None:
        self.function = function
        self.name = name
        self.names = tuple([item for item in names if item != "*"])
        self.positional = names.index("*") if "*" in names else len(names)
        self.count = operands
        self.many = many
        self.shape = shape
        self.lengths = frozenset(lengths)

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the function's result, recorded where that can be."""
        value = None
        out = None
        if not kwargs and not self.many and len(args) == self.count:
            found = at_once(self.function, args, kwargs)
            if found is not NotImplemented:
                return found
        given = None if len(args) > self.positional else bound(self.names, args, kwargs)
        if given is not None:
            out = given.pop("out", None)
            if type(out) is tuple and len(out) == 1:
                out = out[0]
            value = self._record(given, out)
        if value is None:
            return self._numpy(args, kwargs, given)
        if out is None:
            return make(value)
        assign(out, value)
        return out

    def _record(self, given: dict[str, Any], out: Any) -> Value | None:
        if out is not None and not isinstance(out, ArrayBase):
            return None
        inputs = self.inputs(given)
        if inputs is None or (recording_errstate() is None and not may_record()):
            return None
        few = record_floor() > 0 and small((*inputs, out))
        if few and not outgrow(inputs):
            return None
        attrs = {k: frozen(v) for k, v in given.items() if k not in self.names[: self.count]}
        attrs = {k: np.dtype(v) if k == "dtype" and v is not None else v for k, v in attrs.items()}
        attrs = {k: v for k, v in attrs.items() if v is not None or k not in _OPTIONAL}
        if not all([plain(item) for item in attrs.values()]):
            return None
        # Where all is joined as one axis, numbers of Python's are as weak as in arithmetic.
        if self.many and attrs.get("axis", 0) is None and any(type(i) in WEAK for i in inputs):
            return None
        operands = [strong(item) for item in inputs]
        if any(o is None for o in operands):
            return None
        values = [o for o in operands if o is not None]
        if (dtype := attrs.get("dtype")) and any(
            [loses_imaginary(v.layout.dtype, dtype) for v in values]
        ):
            return None
        shape = None
        if self.shape is not None:
            try:
                shape = self.shape(*[v.layout.shape for v in values], **attrs)
            except failures(TypeError, ValueError, IndexError):
                shape = None
            if shape is None or 0 in shape:
                return None
        op = OPS[self.name]
        asked = {k: v for k, v in attrs.items() if k not in self.lengths}
        found = result_layout(op, [v.layout for v in values], asked, shape)
        if found is None or (few and found.size < record_floor()):
            return None
        if out is not None:
            lay = layout_of(out)
            # NumPy joins one array after the other, and reads what it has just written.
            if self.many and any([may_meet(item, out) for item in inputs]):
                return None
            # What is no ufunc has `out` among its operands: it computes in its dtype, rounds
            # to it in between, or refuses it.
            if lay.dtype != found.dtype and not isinstance(self.function, np.ufunc):
                return None
            if self.function is np.dot and not lay.c_contiguous:
                return None  # it takes no other
            if not {"dtype", "casting"}.isdisjoint(attrs):
                return None
            if lay.shape != found.shape or not np.can_cast(found.dtype, lay.dtype, "same_kind"):
                return None
        return pend(op, tuple(values), tuple(attrs.items()), found)

    def inputs(self, given: Mapping[str, Any]) -> list[Any] | None:
        """Return what the array parameters were given."""
        first = self.names[: self.count]
        if any(name not in given for name in first):
            return None
        if not self.many:
            return [given[name] for name in first]
        arrays = given[first[0]]
        if isinstance(arrays, ArrayBase):
            return [*iter(arrays)] if layout_of(arrays).ndim else None
        return list(arrays) if type(arrays) in (list, tuple) else None

    def _numpy(self, args: Sequence[Any], kwargs: Mapping[str, Any], given: Any) -> Any:
        if given is not None:
            inputs = self.inputs(given)
            out = kwargs.get("out")
            if inputs is not None and small((*inputs, *(out if type(out) is tuple else (out,)))):
                return run_in_numpy(self.function, args, kwargs)
        return exit_to_numpy(self.function, args, kwargs)


def dress(ours: Any, function: Any, name: str | None = None, signature: bool = True) -> Any:
    """Return a function of ours with NumPy's face, and its signature unless it has more."""
    ours.__name__ = name or function.__name__
    ours.__qualname__ = ours.__name__
    ours.__doc__ = function.__doc__
    if signature:
        ours.__wrapped__ = function  # inspect.signature reads it from there
    return ours


def implements(
    *functions: Any, signature: bool = True, reads: int = 0, views: bool = False
) -> Callable[[Any], Any]:
    """Return a decorator that puts ours in place of NumPy functions, with the first's face.
    ``reads``: NumPy's changes nothing, and reads arrays in so many of its first arguments;
    ``views``: it makes a view of the first, at least where that lies in C order."""

    def decorate(ours: Any) -> Any:
        dress(ours, functions[0], signature=signature)
        if reads:
            ours.once = (functions[0], reads)
        if views:
            ours.view = functions[0]
        for function in functions:
            FUNCTIONS[function] = ours
        return ours

    return decorate


def records(
    function: Any,
    names: str,
    operands: int = 1,
    *,
    name: str | None = None,
    many: bool = False,
    shape: Shaper | None = None,
    lengths: Collection[str] = (),
) -> Any:
    """Make a NumPy function ours by its form; see ``Form``."""
    form = Form(function, name or function.__name__, names.split(), operands, many, shape, lengths)

    def call(*args: Any, **kwargs: Any) -> Any:
        return form(args, kwargs)

    return implements(function, reads=operands)(call)


__all__ = [
    "Form",
    "bound",
    "dress",
    "frozen",
    "implements",
    "plain",
    "reads_same_memory",
    "records",
    "result_layout",
    "strong",
]
