"""What NumPy's operators and its ufuncs' methods do where an operand is an Array."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

from alight._core import ArrayBase, floor, layout_of
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.ir.op_table import OPS
from alight._src.record.numpy_fallback import run_in_numpy, stands_for_scalar, wrap
from alight._src.record.pending import call_there, record_floor, shape_of
from alight._src.record.reductions import ACCUMULATES, REDUCES, reduce_call
from alight._src.record.storage_io import check_writeable, host
from alight._src.record.ufunc_calls import FUNCTIONS, exit_to_numpy, ufunc_call

__all__ = ["array_ufunc", "binary", "change_at", "in_place", "ufunc_method", "unary"]

# Keywords that np.max and np.maximum.reduce, and their like, take alike.
_SAME_MEANING = frozenset(("axis", "out", "keepdims"))


def _outputs(kwargs: dict[str, Any]) -> tuple[Any, ...]:
    out = kwargs.get("out", ())
    return out if type(out) is tuple else (out,)


def _is_masked(item: Any) -> bool:
    """Tell whether something is a masked array; NumPy imports those when they are asked for."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(item, module.MaskedArray)


def _defers(item: Any) -> bool:
    """Tell whether an operand's own type should handle the call (masked arrays, other array
    libraries)."""
    # An Array that is asked whether it is an ndarray looks who wants to know.
    if isinstance(item, ArrayBase) or item is None:
        return False
    if isinstance(item, (np.ndarray, np.generic)):
        return _is_masked(item) or _is_of_its_own(item)
    override = getattr(type(item), "__array_ufunc__", item)
    return override is not item


def ufunc_method(ufunc: np.ufunc, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """Return ``ufunc.method(*inputs, **kwargs)``; ``out`` may hold ndarrays, which are filled at
    once."""
    outs = _outputs(kwargs)
    if any(not isinstance(o, ArrayBase) and isinstance(o, np.ndarray) for o in outs):
        return exit_to_numpy(getattr(ufunc, method), inputs, kwargs)
    if method == "__call__":
        ours = FUNCTIONS.get(ufunc)
        if ours is not None:
            return ours(*inputs, **kwargs)
        return ufunc_call(ufunc, inputs, kwargs)
    name = f"{method}_{ufunc.__name__}" if method in ("reduce", "accumulate") else ""
    table = REDUCES if method == "reduce" else ACCUMULATES
    if name and kwargs.keys() <= _SAME_MEANING and shape_of(inputs[0]):
        name = table.get(ufunc.__name__, name)
    if (
        name in OPS
        and len(inputs) == 1
        and (name not in ("any", "all") or inputs[0].dtype == np.bool_)
    ):
        keywords = {k: v for k, v in kwargs.items() if k not in ("axis", "out")}
        if keywords.get("initial", 0) is np._NoValue:
            del keywords["initial"]
        out = outs[0] if outs else None
        return reduce_call(name, inputs[0], kwargs.get("axis", 0), out, keywords)
    if method == "at":
        return change_at(ufunc, *inputs)
    return exit_to_numpy(getattr(ufunc, method), inputs, kwargs)


def change_at(ufunc: np.ufunc, array: Any, *others: Any) -> None:
    """Do ``ufunc.at(array, *others)``. Raises ValueError where an Array is read-only, which NumPy
    forgets to ask: it writes into constants and what others rely on."""
    at: Any = ufunc.at
    ours = isinstance(array, ArrayBase)
    if ours:
        check_writeable(array)
    exit_to_numpy(at, (array, *others), {}, (array,) if ours else ())


def array_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Return ``ufunc.method(*inputs, **kwargs)``, or leave it to operands that handle such calls
    themselves."""
    if any(map(_defers, (*inputs, *_outputs(kwargs)))):
        # What it is given are ndarrays: types that handle calls know those, and refuse others.
        try:
            return exit_to_numpy(getattr(ufunc, method), inputs, kwargs)
        except failures(TypeError) as error:
            if str(error).startswith("operand type(s) all returned NotImplemented"):
                return NotImplemented  # a subclass may call this, and leave it to the others then
            raise
    return ufunc_method(ufunc, method, inputs, kwargs)


def binary(op: Any, left: Any, right: Any) -> Any:
    """Return what an operator gives of two operands."""
    other = right if isinstance(left, ArrayBase) else left
    if _overrides(other) or _comes_first(other):
        if other is right and (_refuses(other) or _is_masked(other)):
            return NotImplemented
        # It was asked before, or knows no arrays but ndarrays: NumPy's operator says who acts.
        return exit_to_numpy(_OPERATORS[op.name], (left, right), {})
    if op.name == "multiply" and not isinstance(other, ArrayBase) and isinstance(other, _REPEATED):
        array = left if other is right else right
        if stands_for_scalar(array):  # Python asks it how often, as it asks NumPy's scalars
            if array.dtype.kind in "iu":
                return NotImplemented
            scalar = host(array)[()]
            return scalar * other if other is right else other * scalar
    ours = FUNCTIONS.get(op.reference)
    if ours is not None:
        return ours(left, right)
    scalars = _whole_numbers(op.name, left, right)
    if scalars is not None:
        return wrap(call_there(_OPERATORS[op.name], scalars, {}))
    if op.name == "power" and isinstance(left, ArrayBase):
        quicker = _power(left, right)
        if quicker is not None:
            return ufunc_call(quicker, (left,), {})
    try:
        return ufunc_call(op.reference, (left, right), {})
    except failures(TypeError):
        if op.name not in _EQUALITY:
            raise
        return run_in_numpy(_EQUALITY[op.name], (left, right), {})


# What Python repeats by a scalar.
_REPEATED = (str, bytes, bytearray, list, tuple)
# What NumPy's own operator calls for these exponents.
_POWERS = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal}


def _power(base: Any, exponent: Any) -> np.ufunc | None:
    """Return the ufunc that NumPy computes an array's power with, where it is another."""
    if type(exponent) is int and exponent == 2 and base.dtype.kind in "biu":
        return None if base.dtype.kind == "b" and stands_for_scalar(base) else np.square
    if type(exponent) not in (int, float) or not base.ndim or base.dtype.kind not in "fc":
        return None
    return _POWERS.get(exponent)


# The operators answer for every type, where the ufuncs may have no loop.
_EQUALITY = {"equal": operator.eq, "not_equal": operator.ne}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **_EQUALITY,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "add": operator.add, "subtract": operator.sub,
    "multiply": operator.mul, "divide": operator.truediv, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "divmod": divmod, "power": operator.pow, "matmul": operator.matmul,
    "left_shift": operator.lshift, "right_shift": operator.rshift, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
}  # fmt: skip
# They say nothing of operators; what is made of them by inheritance may.
_BASIC = frozenset((bool, int, float, complex, str, bytes, list, tuple, dict, set, type(None)))


def _overrides(other: Any) -> bool:
    """Tell whether an operand's own type handles calls of ufuncs, or refuses them."""
    if type(other) in _BASIC or isinstance(other, ArrayBase):
        return False
    if isinstance(other, (np.ndarray, np.generic)):
        return _is_masked(other) or _is_of_its_own(other)
    return hasattr(type(other), "__array_ufunc__")


def _is_of_its_own(item: Any) -> bool:
    """Tell whether an ndarray of a subclass handles calls of ufuncs itself."""
    handles = getattr(type(item), "__array_ufunc__", np.ndarray.__array_ufunc__)
    return isinstance(item, np.ndarray) and handles is not np.ndarray.__array_ufunc__


def _refuses(other: Any) -> bool:
    """Tell whether an operand's type wants none of NumPy's operators: they leave it to its own."""
    return getattr(type(other), "__array_ufunc__", other) is None


def _comes_first(other: Any) -> bool:
    """Tell whether an operand whose type has no ufuncs of its own is asked before ndarrays, which
    have priority 0."""
    if type(other) in _BASIC or isinstance(other, (ArrayBase, np.generic)):
        return False
    if isinstance(other, np.ndarray):  # a matrix
        if type(other) is np.ndarray:
            return False
    elif _overrides(other):
        return False
    priority = getattr(other, "__array_priority__", None)
    return isinstance(priority, (int, float)) and priority > 0


_SIGNS: dict[str, Callable[[Any], Any]] = {"negative": operator.neg, "absolute": abs}
# Of whole numbers these overflow: NumPy's scalars warn of it, and its arrays do not.
OVERFLOWING = frozenset(("add", "subtract", "multiply", *_SIGNS))


def _whole_numbers(name: str, *operands: Any) -> list[Any] | None:
    """Return the operands as NumPy's scalars where they are whole numbers, none an array, and an op
    may have to warn of them; None where it may not, and in a function that is traced."""
    if name not in OVERFLOWING or floor.traced:
        return None
    found = []
    for item in operands:
        if isinstance(item, ArrayBase):
            lay = layout_of(item)
            if lay.ndim or lay.dtype.kind not in "biu" or not stands_for_scalar(item):
                return None
        elif type(item) not in (bool, int) and not isinstance(item, (np.integer, np.bool_)):
            return None
        found.append(item)
    record_floor()  # once it is known, the core does most of these itself
    return [host(item)[()] if isinstance(item, ArrayBase) else item for item in found]


def _takes_another_dtype(array: Any, other: Any) -> bool:
    """Tell whether an Array stands for a scalar, to which an operand gives another dtype: NumPy's
    scalars become it, where its arrays keep theirs."""
    if not isinstance(other, (ArrayBase, np.generic, np.ndarray)):
        return False
    given = layout_of(other).dtype if isinstance(other, ArrayBase) else other.dtype
    kept = layout_of(array).dtype
    if given == kept or layout_of(array).ndim or not stands_for_scalar(array):
        return False
    try:
        return bool(np.result_type(kept, given) != kept)
    except failures(TypeError):  # the op refuses them, or knows more
        return False


def unary(op: Any, array: Any) -> Any:
    """Return what an operator gives of an Array."""
    scalars = _whole_numbers(op.name, array)
    if scalars is not None:
        return wrap(call_there(_SIGNS[op.name], scalars, {}))
    return ufunc_call(op.reference, (array,), {})


def in_place(op: Any, array: Any, other: Any) -> Any:
    """Return the Array that an operator such as ``+=`` has assigned its result into."""
    if op.name == "matmul" and (not array.ndim or len(shape_of(other)) < 2):
        return run_in_numpy(operator.imatmul, (array, other), {}, (array,))  # NumPy words it
    if _comes_first(other) and not isinstance(other, np.ndarray):
        return NotImplemented
    scalars = _whole_numbers(op.name, array, other)
    if scalars is not None:
        made: Any = call_there(_OPERATORS[op.name], scalars, {})
        if made.dtype != array.dtype:
            return wrap(made)
        array[...] = made
        return array
    if _takes_another_dtype(array, other):
        return binary(op, array, other)
    quicker = _power(array, other) if op.name == "power" else None
    ufunc, inputs = (quicker, (array,)) if quicker is not None else (op.reference, (array, other))
    try:
        return ufunc_method(ufunc, "__call__", inputs, {"out": (array,)})
    except failures(TypeError, ValueError):
        if not stands_for_scalar(array):
            raise
    return binary(op, array, other)  # of another shape or type, as of NumPy's scalars
