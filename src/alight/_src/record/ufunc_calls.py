"""Calls on arrays in NumPy's own form: ufuncs with all their keywords, and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from alight._core import (
    ArrayBase,
    Value,
    at_hand,
    floor,
    hooks,
    layout_of,
    native,
    recording_errstate,
)
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings.errstate import categories_of
from alight._src.fp_warnings.filters import collected
from alight._src.ir.op_table import OPS, UFUNCS, Kind, Op, op_of
from alight._src.record.numpy_fallback import array_of, exit_to_numpy, run_in_numpy, wrap, wrapped
from alight._src.record.pending import (
    WEAK,
    WHERE,
    at_hand_below,
    call_there,
    cast,
    concrete,
    constant,
    elementwise,
    extobj,
    loses_imaginary,
    manners,
    record_floor,
    resolve,
    shape_of,
)
from alight._src.record.storage_io import assign, host, may_meet, no_scalar, read
from alight._src.run import evaluate

# NumPy function → ours; the modules above fill it. What is not here runs in NumPy and is counted.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
# Modules of NumPy's → what makes their functions ours, imported when the first is called.
LATE = {f"numpy.{name}": f"alight.{name}" for name in ("fft", "linalg")}

# Of what has no axes NumPy has arrays where it comes of these, of all else scalars.
_ARRAYS = frozenset((WHERE, OPS["tensordot"]))


def make(value: Value, operand: Any = None) -> Any:
    """Return an Array of a recorded value; in `alight run`, a NumPy scalar of a 0-d one.

    ``operand``: the array it was computed of, if that is about to die.
    """
    if value.layout.ndim == 0:
        if value.op in _ARRAYS:
            return array_of(value)
        if floor.scalars:
            if operand is not None:
                evaluate.evaluate((value,), passing=operand.storage)
            return evaluate.host_array(value)[()]
        if manners.scalar is not None:
            return manners.scalar(value)
    return hooks.array.of(value)


def operand(item: Any) -> Any:
    """Return a call's operand as a value or a Python scalar; None where it is not of a native
    dtype.

    Memory that belongs to others is copied: reading it must not be deferred.
    """
    if isinstance(item, ArrayBase):
        return item.storage.value if item.window is None else read(item)
    if type(item) in WEAK:
        return item
    if isinstance(item, np.generic):
        array = np.asarray(item)
        return concrete(array) if native(array.dtype) else None
    if isinstance(item, np.ndarray):
        if type(item) is not np.ndarray or not native(item.dtype):
            return None
        return concrete(item.copy("K")) if item.size else concrete(item.copy())
    if any([hasattr(item, name) for name in _MANNERS]):
        return None
    array = np.asarray(item)
    return concrete(array) if native(array.dtype) else None


# What types with a say in calls on them, or in what these give, have.
_MANNERS = ("__array_ufunc__", "__array_function__", "__array_wrap__")


def ufunc_call(ufunc: np.ufunc, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return ``ufunc(*inputs, **kwargs)`` with NumPy's meaning for every keyword."""
    op = UFUNCS.get(ufunc) or op_of(ufunc)  # a call less, where it is known
    out = kwargs.get("out")
    if out is not None and manners.scalar is not None:
        out = tuple(map(no_scalar, out)) if type(out) is tuple else no_scalar(out)
        kwargs = {**kwargs, "out": out}
    where = kwargs.get("where", True)
    if op is None or op.kind is not Kind.ELEMENTWISE or len(inputs) != ufunc.nin:
        return exit_to_numpy(ufunc, inputs, kwargs)
    if not kwargs:
        found = at_once(ufunc, inputs, kwargs)
        if found is not NotImplemented:
            return found
    if not outgrow(inputs) and small((*inputs, *(out if type(out) is tuple else (out,)), where)):
        return run_in_numpy(ufunc, inputs, kwargs)
    order = kwargs.get("order", "K")
    if (
        not kwargs.keys() <= _KEYWORDS
        or order not in ("K", "C", "A")
        or (order != "K" and not all(_c(i) for i in inputs))
    ):
        return exit_to_numpy(ufunc, inputs, kwargs)
    if recording_errstate() is None and (where is not True or not collected()):
        return exit_to_numpy(ufunc, inputs, kwargs)
    operands = operands_of(inputs)
    if operands is None:
        return exit_to_numpy(ufunc, inputs, kwargs)
    outs: tuple[Any, ...] = ()
    if out is not None:
        outs = out if type(out) is tuple else (out,)
        if len(outs) != ufunc.nout or not all(o is None or isinstance(o, ArrayBase) for o in outs):
            return exit_to_numpy(ufunc, inputs, kwargs)
    casting = kwargs.get("casting", "same_kind")
    try:
        signature = _signature(ufunc, kwargs)
        hash(signature)
        resolved = resolve(op, operands, signature, casting)
        if (
            resolved is None
            or (signature is not None and (where is not True or _loses(operands, resolved.dtypes)))
            or (ufunc is np.power and _negative_power(resolved.dtypes[1], operands[1]))
        ):
            return exit_to_numpy(ufunc, inputs, kwargs)
        if outs or where is not True:
            return _into(ufunc, op, operands, outs, where, signature, casting, inputs, kwargs)
        values = elementwise(op, operands, signature, casting)
    except failures(OverflowError, TypeError, ValueError):
        # Types, shapes, keywords, a Python integer that does not fit: NumPy words it, below, where
        # its traceback does not tell of our error too.
        values = None
    if values is None:
        return exit_to_numpy(ufunc, inputs, kwargs)
    results = tuple([make(value) for value in values])
    return results[0] if ufunc.nout == 1 else results


def _loses(operands: Sequence[Any], dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Tell whether a loop of these dtypes takes operands without their imaginary parts."""
    pairs = zip(operands, dtypes, strict=False)
    return any([isinstance(o, Value) and loses_imaginary(o.layout.dtype, d) for o, d in pairs])


def operands_of(inputs: Sequence[Any]) -> list[Any] | None:
    """Return a call's operands as values and Python scalars; None where NumPy must take one."""
    operands = [operand(item) for item in inputs]
    if any(item is None for item in operands):
        return None
    if not any(isinstance(item, Value) for item in operands):
        # Python scalars alone are as strong as arrays.
        arrays = [np.asarray(item) for item in operands]
        return [concrete(a) for a in arrays] if all(native(a.dtype) for a in arrays) else None
    return operands


def _negative_power(dtype: np.dtype[Any], exponent: Any) -> bool:
    """Tell whether an integer power has a negative exponent, which is an error at the call."""
    if dtype.kind != "i":
        return False
    if not isinstance(exponent, Value):
        return bool(exponent < 0)
    return exponent.layout.size > 0 and bool(evaluate.host_array(exponent).min() < 0)


def _signature(ufunc: np.ufunc, kwargs: Mapping[str, Any]) -> Any:
    if kwargs.get("dtype") is not None:
        if "signature" in kwargs or "sig" in kwargs:
            raise TypeError("cannot specify both 'signature' and 'dtype'")
        return (*[None] * ufunc.nin, *[np.dtype(kwargs["dtype"])] * ufunc.nout)
    if "signature" in kwargs and "sig" in kwargs:
        raise TypeError("cannot specify both 'sig' and 'signature'")
    return kwargs.get("signature", kwargs.get("sig"))


_KEYWORDS = {"out", "where", "casting", "order", "dtype", "subok", "signature", "sig"}


def _c(item: Any) -> bool:
    return not isinstance(item, ArrayBase) or layout_of(item).c_contiguous


def at_once(
    function: Callable[..., Any], inputs: Sequence[Any], kwargs: Any, least: int | None = None
) -> Any:
    """Return what a NumPy function that makes fresh arrays gives for small arrays and scalars.

    NotImplemented where something is pending, large or of another type, or may become large.
    ``kwargs`` hold no arrays. ``least``: the elements of what is large, where the floor does not
    say them.
    """
    if len(inputs) > 1 and outgrow(inputs):
        return NotImplemented
    if least is None:
        least = record_floor()
    plain = []
    for item in inputs:
        if isinstance(item, ArrayBase):
            found = at_hand(item)
            if found is None:
                if layout_of(item).size >= least or not at_hand_below(item.storage.value, least):
                    return NotImplemented
                found = host(item)  # and who follows reads is told
            elif found.size >= least:
                return NotImplemented
            plain.append(found)
        elif type(item) in WEAK or (type(item) is np.ndarray and item.size < least):
            plain.append(item)
        else:
            return NotImplemented
    result = call_there(function, plain, kwargs)
    if type(result) is tuple:
        return tuple([wrap(item) for item in result])
    return wrap(result)


_SMALL = frozenset((*WEAK, type(None)))


def small(inputs: Sequence[Any]) -> bool:
    """Tell whether everything is at hand and too small to plan for."""
    least = record_floor()
    if least <= 0:
        return False
    for item in inputs:
        if isinstance(item, ArrayBase):
            if layout_of(item).size >= least or not at_hand_below(item.storage.value, least):
                return False
        elif type(item) is np.ndarray:
            if item.size >= least:
                return False
        elif type(item) not in _SMALL and math.prod(shape_of(item)) >= least:
            return False
    return True


def outgrow(inputs: Sequence[Any]) -> bool:
    """Tell whether arrays that are small themselves make a large one, broadcast against each other
    or, two of them, as a product of matrices."""
    least = record_floor()
    if least <= 0:
        return False
    shapes = []
    elements = 1
    for item in inputs:
        if isinstance(item, ArrayBase):
            shape = layout_of(item).shape
        elif type(item) is np.ndarray:
            shape = item.shape
        else:
            continue
        if shape and shape not in shapes:
            shapes.append(shape)
            elements *= math.prod(shape)
    if len(shapes) < 2 or elements < least:
        return False
    one, other = shapes[0], shapes[1]
    if (
        len(inputs) == 2
        and len(one) > 1
        and one[-1:] == other[-2:-1]
        and elements // one[-1] ** 2 >= least
    ):
        return True
    try:
        return math.prod(np.broadcast_shapes(*shapes)) >= least
    except failures(ValueError):  # NumPy says so, elsewhere
        return False


def _into(
    ufunc: np.ufunc,
    op: Op,
    operands: Sequence[Any],
    outs: tuple[Any, ...],
    where: Any,
    signature: Any,
    casting: str,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Record a ufunc call with ``out=`` or ``where=``."""
    if where is not True and (not outs or ufunc.nout != 1):
        # Without out NumPy leaves what was in memory: nothing to defer.
        return exit_to_numpy(ufunc, inputs, kwargs)
    given = [target.storage for target in outs if target is not None]
    if len(given) > 1 and len(set(map(id, given))) < len(given):
        return exit_to_numpy(ufunc, inputs, kwargs)  # which one is written last is NumPy's affair
    mask = None
    if where is not True:
        mask = operand(where)
        if not isinstance(mask, Value) or mask.layout.dtype != np.bool_:
            return exit_to_numpy(ufunc, inputs, kwargs)
    resolved = resolve(op, operands, signature, casting)
    assert resolved is not None
    # NumPy broadcasts what it computes, and the mask, into every array it is given to write into.
    shape = resolved.outputs[0].shape
    shapes = {layout_of(target).shape for target in outs if target is not None}
    if mask is not None:
        shapes.add(mask.layout.shape)
    if shapes != {shape}:
        shape = np.broadcast_shapes(shape, *shapes)
    for target, result_layout in zip(outs, resolved.outputs, strict=True):
        lay = result_layout if target is None else layout_of(target)
        if lay.shape != shape or (
            target is not None
            and (
                not np.can_cast(result_layout.dtype, lay.dtype, casting)  # type: ignore[arg-type]
                or loses_imaginary(result_layout.dtype, lay.dtype)
                or (target.window is not None and not target.window.writeable)
                or not native(lay.dtype)
            )
        ):
            return exit_to_numpy(ufunc, inputs, kwargs)  # and its errors
        # What the mask leaves as it is goes to the loop's dtype and back where memory overlaps.
        if (
            mask is not None
            and target is not None
            and not np.can_cast(lay.dtype, result_layout.dtype)
            and any([may_meet(item, target) for item in (*inputs, where)])
        ):
            return exit_to_numpy(ufunc, inputs, kwargs)
    quiet = None
    if mask is not None and categories_of(recording_errstate()):
        loop = resolved.dtypes[: len(operands)]
        calm = _calm(op, loop)
        if calm is not None:
            # The op runs on all elements, and warns of none that the mask leaves out.
            operands = [
                _masked(mask, item, dtype, calm) for item, dtype in zip(operands, loop, strict=True)
            ]
        else:
            with np.errstate(all="ignore"):
                quiet = extobj.get()
    values = elementwise(op, operands, signature, casting, quiet)
    if values is None:
        return exit_to_numpy(ufunc, inputs, kwargs)
    results = []
    for target, value in zip(outs, values, strict=True):
        if target is None:
            results.append(make(value))
            continue
        assign(target, value, mask)
        results.append(target)
    return results[0] if ufunc.nout == 1 else tuple(results)


@lru_cache(1024)
def _calm(op: Op, dtypes: tuple[np.dtype[Any], ...]) -> float | None:
    """Return a number that no floating-point warning comes of as every operand of the op."""
    for number in (1, 0, 0.5):
        try:
            with np.errstate(all="raise"):
                op.reference(*[np.asarray(number, dtype) for dtype in dtypes])
        except failures(FloatingPointError):
            continue
        return number
    return None


register(Cache.OPS, _calm.cache_clear)


def _masked(mask: Value, item: Any, dtype: np.dtype[Any], calm: float) -> Value:
    """Return an operand with ``calm`` for its elements outside of the mask."""
    own = cast(item, dtype) if isinstance(item, Value) else constant(item, dtype)
    picked = elementwise(WHERE, (mask, own, constant(calm, dtype)))
    assert picked is not None
    return picked[0]


__all__ = [
    "FUNCTIONS",
    "LATE",
    "at_once",
    "exit_to_numpy",
    "make",
    "operand",
    "operands_of",
    "outgrow",
    "ufunc_call",
    "wrap",
    "wrapped",
]
