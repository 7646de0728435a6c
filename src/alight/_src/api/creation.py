"""Making arrays: NumPy makes them, alight takes the memory over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alight._core import ArrayBase, View, hooks, layout_of, make_layout, native
from alight._src.base.originals import np
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.record.array import Array
from alight._src.record.array_flags import Flags, made_over
from alight._src.record.conversions import astype
from alight._src.record.numpy_fallback import ndarrays, over, run_in_numpy, wrap
from alight._src.record.pending import COPY, alias, concrete, foreign, pend, shape_of
from alight._src.record.storage_io import apply_view
from alight._src.record.structural_calls import dress, implements
from alight._src.run import evaluate

_HERE = (None, "cpu")

# What the array namespace calls, by name, where it is not NumPy's function with wrapped results.
MAKERS: dict[str, Any] = {}


def _checked_device(device: Any) -> None:
    if device not in _HERE:
        raise ValueError(
            f'Device not understood. Only "cpu" is allowed, but received: {device}. Fix: leave '
            "device= out; placement is alight's, and alight.policy(force=…) overrules it."
        )


def _maker(name: str, at_once: bool = True) -> Callable[..., Any]:
    function = getattr(np, name)

    def make(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            _checked_device(kwargs.pop("device"))
        if isinstance(kwargs.get("like"), ArrayBase):
            del kwargs["like"]
        return run_in_numpy(function, args, kwargs)

    made = MAKERS[name] = dress(make, function)
    if at_once:
        made.once = (function, 0)
    return make


for _name in (
    "zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "geomspace", "eye",
    "identity", "tri", "indices", "hanning", "hamming", "blackman", "bartlett", "kaiser",
    "diag_indices", "tril_indices", "triu_indices", "vander",
):  # fmt: skip
    _maker(_name)
for _name in (
    "fromfunction", "fromfile", "fromiter", "fromstring", "fromregex", "loadtxt", "genfromtxt",
    "load", "mask_indices",
):  # fmt: skip
    _maker(_name, at_once=False)


def _alike(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether all elements of what a function of NumPy's makes are the same, in a body that is
    traced on arrays which lie on a device."""
    trace = evaluate.watch.by
    if trace is None or not trace.away:
        return False
    if name == "full_like":
        return not shape_of(args[1] if args[1:] else kwargs["fill_value"])
    return name != "empty_like"


def _repeated(result: Any) -> Any:
    """Return an ndarray, all of whose elements are the same, as recorded copies of one: a device
    makes them, or none where it reads the one. None where NumPy's array stays what it is."""
    if type(result) is not np.ndarray or result.size < 2:
        return None
    if not native(result.dtype) or not result.flags.c_contiguous:
        return None
    element = concrete(np.asarray(result.reshape(-1)[0]))
    whole = make_layout(result.dtype, result.shape, (0,) * result.ndim)
    value = pend(COPY, (alias(element, View(whole, 0)),), (("order", "C"),), layout_of(result))
    return hooks.array.of(value)


def _like(name: str) -> None:
    function = getattr(np, name)

    def make(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            _checked_device(kwargs.pop("device"))
        # The prototype's shape, dtype and order are all that matter, never its elements.
        if args and isinstance(args[0], ArrayBase):
            args = (layout_of(args[0]).probe, *args[1:])
        for key in ("a", "prototype"):
            if isinstance(kwargs.get(key), ArrayBase):
                kwargs[key] = layout_of(kwargs[key]).probe
        result = function(*ndarrays(args), **{k: ndarrays(v) for k, v in kwargs.items()})
        found = _repeated(result) if _alike(name, args, kwargs) else None
        return wrap(result) if found is None else found

    implements(function, reads=1)(make)


for _name in ("zeros_like", "ones_like", "empty_like", "full_like"):
    _like(_name)


# --- conversion ----------------------------------------------------------------------------------
def _maker_named(name: str) -> Callable[[Any], Any]:
    def decorate(ours: Any) -> Any:
        MAKERS[name] = dress(ours, getattr(np, name))
        ours.once = (getattr(np, name), 1)
        return ours

    return decorate


@_maker_named("array")
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
) -> Any:
    """Return a new Array of anything NumPy can make an array of."""
    if isinstance(object, ArrayBase):
        result = _converted(object, dtype, order, copy)
        if ndmin <= result.ndim:
            return result
        return apply_view(result, lambda p: np.array(p, copy=False, ndmin=ndmin))
    keywords = {} if like is None or isinstance(like, ArrayBase) else {"like": like}
    made = np.array(
        ndarrays(object), dtype=dtype, copy=copy, order=order, subok=subok, ndmin=ndmin, **keywords
    )
    return _taken(made, object, copy)


@_maker_named("asarray")
def asarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: Any = None,
    copy: bool | None = None,
    like: Any = None,
) -> Any:
    """Return an Array of anything NumPy can make an array of; an Array comes back as it is.

    An ndarray is copied, since others can write to it; with ``copy=False`` its memory is shared,
    and then nothing about it is deferred.
    """
    return _as_array(np.asarray, a, dtype, order, device, copy, like)


@_maker_named("asanyarray")
def asanyarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: Any = None,
    copy: bool | None = None,
    like: Any = None,
) -> Any:
    """Return an Array; subclasses of ndarray come back as they are."""
    return _as_array(np.asanyarray, a, dtype, order, device, copy, like)


def _as_array(
    function: Any, a: Any, dtype: Any, order: Any, device: Any, copy: bool | None, like: Any
) -> Any:
    _checked_device(device)
    if isinstance(a, ArrayBase):
        return _converted(a, dtype, order, copy)
    keywords = {} if like is None or isinstance(like, ArrayBase) else {"like": like}
    return _taken(function(ndarrays(a), dtype, order, copy=copy, **keywords), a, copy)


@_maker_named("ascontiguousarray")
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """Return an Array in C order with at least one axis."""
    return array(a, dtype, copy=None, order="C", ndmin=1, like=like)


@_maker_named("asfortranarray")
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """Return an Array in Fortran order with at least one axis."""
    return array(a, dtype, copy=None, order="F", ndmin=1, like=like)


@_maker_named("asarray_chkfinite")
def asarray_chkfinite(a: Any, dtype: Any = None, order: Any = None) -> Any:
    """Return an Array; ValueError where an element is infinite or NaN."""
    result = asarray(a, dtype, order)
    if np.dtype(result.dtype).kind in "fc" and not np.isfinite(result).all():
        np.asarray_chkfinite([np.nan])
    return result


@_maker_named("require")
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """Return an Array that meets requirements of memory order."""
    if not isinstance(a, ArrayBase):
        return _taken(np.require(a, dtype, requirements), a, None)
    wanted = np.require(np.zeros(1), dtype or layout_of(a).dtype, requirements).dtype
    flags = {str(flag).upper() for flag in requirements or ()} - {"E", "ENSUREARRAY"}
    found = Flags(a)
    if wanted == layout_of(a).dtype and all(found[flag] for flag in flags):
        return a
    asked = {_ORDERS[flag] for flag in flags & _ORDERS.keys()}
    order = asked.pop() if asked else "A" if requirements else "K"
    return astype(a, wanted, order, "unsafe", True)


_ORDERS = {
    **dict.fromkeys(("C", "C_CONTIGUOUS", "CONTIGUOUS"), "C"),
    **dict.fromkeys(("F", "F_CONTIGUOUS", "FORTRAN"), "F"),
}


def _converted(array: Any, dtype: Any, order: Any, copy: bool | None) -> Any:
    """Return an Array in another dtype or order; the same object where nothing changes."""
    lay = layout_of(array)
    order = order or "K"
    # NumPy decides whether a copy is needed, and whether the arguments make sense.
    few = lay.probe[:0] if lay.ndim else lay.probe
    with warnings_suppressed():  # who casts the elements warns
        wanted = np.array(few, dtype=dtype, copy=copy or None).dtype
    if order not in ("K", "A", "C", "F"):
        np.array(0, order=order)
    flags = lay.probe.flags
    ordered = order in ("K", "A") or (flags.c_contiguous if order == "C" else flags.f_contiguous)
    if wanted == lay.dtype and ordered and not copy:
        return array if wanted.num == lay.dtype.num else array.view(wanted)  # long and long long
    if copy is False:
        np.array(lay.probe, dtype=wanted, order=order, copy=False)
    return astype(array, wanted, order, "unsafe", True)


def _taken(made: Any, source: Any, copy: bool | None) -> Any:
    """Return a conversion's result as an Array, with memory of its own unless ``copy`` is False."""
    if type(made) is not np.ndarray or not native(made.dtype):
        return made
    if copy is False and (made is source or made.base is not None):
        return shared(made)
    if not copy and (made is source or made.base is not None):
        made = made.copy("K")
    return wrap(made)


def shared(array: Any) -> Any:
    """Return an Array over memory that others can see: nothing about it is ever deferred."""
    if type(array) is not np.ndarray or not native(array.dtype):
        return array
    value, view = foreign(array)
    result = Array.of(value)
    result.window = view
    return result


@_maker_named("from_dlpack")
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an Array over the memory of another library's array."""
    if isinstance(x, ArrayBase):
        _checked_device(device)
        return array(x) if copy else apply_view(x, lambda p: p[...])
    made = np.from_dlpack(x, device=device, copy=copy)
    return wrap(made) if copy else shared(made)


@_maker_named("frombuffer")
def frombuffer(
    buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0, *, like: Any = None
) -> Any:
    """Return an Array over a buffer's memory."""
    if isinstance(buffer, ArrayBase):
        return over(buffer, np.frombuffer(np.asarray(buffer), dtype, count, offset))
    array = np.frombuffer(buffer, dtype, count, offset)
    result = shared(array)
    if isinstance(result, ArrayBase):
        made_over(result, array.base)
    return result


__all__ = ["MAKERS", "array", "asarray", "from_dlpack", "require", "shared"]
