"""Calls on arrays in NumPy's own form: ufuncs with all their keywords, reductions, and exits.

An exit is a call alight hands to NumPy on host memory, because the op is not in its table, the dtype is not one of
its own, or the form asks for something only NumPy does. Exits are counted with the line they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from alight import runtime, warn
from alight._core import ArrayBase, Value, View, floor, hooks, layout_of
from alight.ir.ops import OPS, Kind, Op
from alight.log import LOG
from alight.memory import assign, export, host, layout, read, writable
from alight.record import (
    WEAK,
    WHERE,
    cast,
    concrete,
    elementwise,
    exposed,
    foreign,
    native,
    record_floor,
    resolve,
    settled,
    site,
)
from alight.reduce import reduction

_extobj = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]
UFUNCS: dict[Any, Op] = {
    op.reference: op for op in OPS.values() if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc)
}
# What `ufunc.reduce` and `ufunc.accumulate` are called in the table.
REDUCES = {
    "add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max", "logical_or": "any", "logical_and": "all",
}  # fmt: skip
ACCUMULATES = {"add": "cumsum", "multiply": "cumprod"}


def wrap(result: Any) -> Any:
    """Return a fresh ndarray as the kind of array the front door promises."""
    if type(result) is not np.ndarray or not native(result.dtype):
        return result
    if floor.scalars and result.size < record_floor():
        return result
    return hooks.array.of(concrete(result))


def make(value: Value, scalar: bool = False) -> Any:
    """Return an Array of a recorded value; in `alight run`, 0-d results are NumPy scalars at once."""
    if value.layout.ndim == 0 and floor.scalars:
        return runtime.host_array(value)[()]
    return hooks.array.of(value)


def operand(item: Any) -> Any:
    """Return a call's operand as a value or a Python scalar; None where it is not of a native dtype.

    Memory that belongs to others is copied: reading it must not be deferred.
    """
    if isinstance(item, ArrayBase):
        return read(item)
    if type(item) in WEAK:
        return item
    if isinstance(item, np.generic):
        array = np.asarray(item)
        return concrete(array) if native(array.dtype) else None
    if isinstance(item, np.ndarray):
        if type(item) is not np.ndarray or not native(item.dtype):
            return None
        return concrete(item.copy("K")) if item.size else concrete(item.copy())
    if hasattr(item, "__array_ufunc__") or hasattr(item, "__array_function__"):
        return None
    array = np.asarray(item)
    return concrete(array) if native(array.dtype) else None


def ndarrays(tree: Any) -> Any:
    """Return arguments with arrays of ours, at any depth of tuples, lists and dicts, as ndarrays."""
    if isinstance(tree, ArrayBase):
        return host(tree)
    if type(tree) is tuple:
        return tuple([ndarrays(item) for item in tree])
    if type(tree) is list:
        return [ndarrays(item) for item in tree]
    if type(tree) is dict:
        return {key: ndarrays(item) for key, item in tree.items()}
    return tree


def wrapped(tree: Any, sources: Sequence[ArrayBase] = ()) -> Any:
    """Return a NumPy result with its ndarrays as arrays of ours; views of our memory stay views."""
    if type(tree) is np.ndarray:
        for source in sources:
            view = _as_view(tree, source)
            if view is not None:
                return view
        return wrap(tree)
    if isinstance(tree, np.generic) and not floor.scalars:
        return wrap(np.asarray(tree))
    if type(tree) is tuple:
        return tuple([wrapped(item, sources) for item in tree])
    if type(tree) is list:
        return [wrapped(item, sources) for item in tree]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[wrapped(item, sources) for item in tree])
    return tree


def _as_view(array: np.ndarray[Any, Any], source: ArrayBase) -> Any:
    """Return an ndarray that rests on a source's memory as a view of that source, else None."""
    value = source.storage.value
    data = value.data
    if data is None or data.array is None or array.base is None:
        return None
    base = host(source)
    if not np.may_share_memory(array, data.array):
        return None
    if not native(array.dtype):
        return None
    start = array.__array_interface__["data"][0] - data.address - value.offset
    result = type(source).__new__(type(source))
    result.storage = source.storage
    result.window = View(layout_of(array), start, array.flags.writeable and base.flags.writeable)
    return result


def _sources(tree: Any, found: list[ArrayBase]) -> list[ArrayBase]:
    if isinstance(tree, ArrayBase):
        found.append(tree)
    elif type(tree) in (tuple, list):
        for item in tree:
            _sources(item, found)
    elif type(tree) is dict:
        for item in tree.values():
            _sources(item, found)
    return found


def exit_to_numpy(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], changed: Sequence[Any] = ()
) -> Any:
    """Run a NumPy function on host memory and count it. ``changed``: arrays of ours it writes into."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", str(function))
    LOG.exit(name, site())
    out = kwargs.get("out")
    targets = list(changed)
    if out is not None:
        targets += [o for o in (out if type(out) is tuple else (out,)) if isinstance(o, ArrayBase)]
    swapped = {id(target): writable(target) for target in targets}

    def convert(item: Any) -> Any:
        if isinstance(item, ArrayBase):
            found = swapped.get(id(item))
            return host(item) if found is None else found
        if type(item) is tuple:
            return tuple([convert(part) for part in item])
        if type(item) is list:
            return [convert(part) for part in item]
        if type(item) is dict:
            return {key: convert(part) for key, part in item.items()}
        return item

    result = function(*[convert(a) for a in args], **{k: convert(v) for k, v in kwargs.items()})
    for target in targets:
        if result is swapped[id(target)]:
            return target
    if type(result) is tuple and targets:
        back = {id(swapped[id(target)]): target for target in targets}
        result = tuple([back.get(id(item), item) for item in result])
    return wrapped(result, _sources((args, kwargs), []))


def ufunc_call(ufunc: np.ufunc, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return ``ufunc(*inputs, **kwargs)`` with NumPy's meaning for every keyword."""
    op = UFUNCS.get(ufunc)
    out = kwargs.get("out")
    if op is None or len(inputs) != ufunc.nin:
        return _ufunc_exit(ufunc, inputs, kwargs)
    unknown = kwargs.keys() - _KEYWORDS
    where = kwargs.get("where", True)
    if (
        unknown
        or kwargs.get("order", "K") not in ("K", "C", "A")
        or (kwargs.get("order") not in (None, "K") and not all(_c(i) for i in inputs))
        or warn.immediate(_extobj.get())
    ):
        return _ufunc_exit(ufunc, inputs, kwargs)
    operands = [operand(item) for item in inputs]
    if None in [o if o is None else 0 for o in operands]:
        return _ufunc_exit(ufunc, inputs, kwargs)
    outs: tuple[Any, ...] = ()
    if out is not None:
        outs = out if type(out) is tuple else (out,)
        if len(outs) != ufunc.nout or not all(o is None or isinstance(o, ArrayBase) for o in outs):
            return _ufunc_exit(ufunc, inputs, kwargs)
    signature = kwargs.get("signature", kwargs.get("sig"))
    if kwargs.get("dtype") is not None:
        signature = (*[None] * ufunc.nin, *[np.dtype(kwargs["dtype"])] * ufunc.nout)
    if type(signature) is list or (signature is not None and where is not True):
        return _ufunc_exit(ufunc, inputs, kwargs)
    casting = kwargs.get("casting", "same_kind")
    if not outs and where is True and _small(operands):
        return _at_once(ufunc, op, operands, kwargs)
    try:
        hash(signature)
    except TypeError:
        return _ufunc_exit(ufunc, inputs, kwargs)
    try:
        resolved = resolve(op, operands, signature, casting)
    except (TypeError, ValueError):
        if not outs:
            raise
        return _ufunc_exit(ufunc, inputs, kwargs)  # NumPy's message names the shape of out as well
    if resolved is None:
        return _ufunc_exit(ufunc, inputs, kwargs)
    if outs or where is not True:
        return _into(ufunc, op, operands, outs, where, signature, casting, inputs, kwargs)
    values = elementwise(op, operands, signature, casting)
    if values is None:
        return _ufunc_exit(ufunc, inputs, kwargs)
    results = tuple([make(value) for value in values])
    return results[0] if ufunc.nout == 1 else results


_KEYWORDS = {"out", "where", "casting", "order", "dtype", "subok", "signature", "sig"}


def _c(item: Any) -> bool:
    return not isinstance(item, ArrayBase) or layout(item).c_contiguous


def _small(operands: Sequence[Any]) -> bool:
    least = record_floor()
    if least <= 0:
        return False
    largest = 0
    for item in operands:
        if isinstance(item, Value):
            if not settled(item):
                return False
            largest = max(largest, item.layout.size)
    return largest < least


def _at_once(ufunc: np.ufunc, op: Op, operands: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    arrays = [runtime.host_array(o) if isinstance(o, Value) else o for o in operands]
    result = ufunc(*arrays, **kwargs)
    if ufunc.nout > 1:
        return tuple([_scalar_or_wrap(item) for item in result])
    return _scalar_or_wrap(result)


def _scalar_or_wrap(result: Any) -> Any:
    if isinstance(result, np.generic):
        return result if floor.scalars else wrap(np.asarray(result))
    return wrap(result)


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
        return _ufunc_exit(ufunc, inputs, kwargs)
    mask = None
    if where is not True:
        mask = operand(where)
        if not isinstance(mask, Value) or mask.layout.dtype != np.bool_:
            return _ufunc_exit(ufunc, inputs, kwargs)
    resolved = resolve(op, operands, signature, casting)
    assert resolved is not None
    for target, result_layout in zip(outs, resolved.outputs, strict=True):
        if target is None:
            continue
        lay = layout(target)
        shape = result_layout.shape if mask is None else np.broadcast_shapes(result_layout.shape, mask.layout.shape)
        if (
            not np.can_cast(result_layout.dtype, lay.dtype, casting)
            or lay.shape != shape
            or (target.window is not None and not target.window.writeable)
            or not native(lay.dtype)
        ):
            return _ufunc_exit(ufunc, inputs, kwargs)  # NumPy's broadcasting into out, and its errors
    quiet = None
    if mask is not None:
        with np.errstate(all="ignore"):
            quiet = _extobj.get()
    values = elementwise(op, operands, signature, casting, quiet)
    if values is None:
        return _ufunc_exit(ufunc, inputs, kwargs)
    results = []
    for target, value in zip(outs, values, strict=True):
        if target is None:
            results.append(make(value))
            continue
        if mask is not None:
            old = read(target)
            picked = elementwise(WHERE, (mask, cast(value, old.layout.dtype), old))
            assert picked is not None
            value = picked[0]
        assign(target, value)
        results.append(target)
    return results[0] if ufunc.nout == 1 else tuple(results)


def _ufunc_exit(ufunc: np.ufunc, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return exit_to_numpy(ufunc, inputs, kwargs)


def reduce_call(name: str, array: Any, axis: Any, out: Any, kwargs: dict[str, Any]) -> Any:
    """Return a reduction or scan of the table on an array; ``kwargs`` hold only what the caller gave."""
    op = OPS[name]
    value = operand(array)
    recorded = None
    if (
        isinstance(value, Value)
        and kwargs.get("where", True) is True
        and (out is None or isinstance(out, ArrayBase))
        and not any(isinstance(v, (ArrayBase, np.ndarray)) for v in kwargs.values())
        and not warn.immediate(_extobj.get())
    ):
        attrs = {k: v for k, v in kwargs.items() if k != "where"}
        if not attrs.get("keepdims", True):
            del attrs["keepdims"]
        if attrs.get("dtype", 0) is None:
            del attrs["dtype"]
        elif "dtype" in attrs:
            attrs["dtype"] = np.dtype(attrs["dtype"])
        if isinstance(axis, (np.integer,)):
            axis = int(axis)
        if not (axis is None or type(axis) in (int, tuple)):
            recorded = None
        elif all(native(d) for d in [attrs.get("dtype", np.dtype(bool))]):
            recorded = reduction(op, value, axis, attrs)
    if recorded is None:
        keywords = dict(kwargs)
        if out is not None:
            keywords["out"] = out
        return exit_to_numpy(op.reference, (array,), {"axis": axis, **keywords})
    if out is None:
        return make(recorded)
    lay = layout(out)
    if lay.shape != recorded.layout.shape or not np.can_cast(recorded.layout.dtype, lay.dtype, "same_kind"):
        return exit_to_numpy(op.reference, (array,), {"axis": axis, "out": out, **kwargs})
    assign(out, recorded)
    return out


__all__ = ["exit_to_numpy", "export", "exposed", "foreign", "ndarrays", "reduce_call", "ufunc_call", "wrap", "wrapped"]
