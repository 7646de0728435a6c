"""CuPy's functions that are called at once: the size of a result or the success lies in the values,
or an argument is written into.

Where CuPy's is not NumPy's for some arguments, the reason is raised as Unsupported before anything
is written: CuPy's own indexing wraps around what is out of bounds, and casts what NumPy refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alight._core import make_layout
from alight._src.base.originals import np
from alight.backends.base import Operand
from alight.backends.cuda.cupy_functions import NAMES, array_of, whole
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight.backends.cuda.cuda_session import Session

# Why functions of NumPy's that CuPy has, too, are refused.
_OUTSIDE = "an index is out of bounds"
_WORDED = "NumPy words the error"


# --- linear algebra
def _finite(cupy: Any, a: Any) -> Any:
    """Return a matrix as it is: iterations over infinities and NaN end in each library's way."""
    if a.dtype.kind in "fc" and not bool(cupy.isfinite(a).all()):
        raise Unsupported("NumPy decides about matrices with infinities and NaN")
    return a


def _of_finite(name: str) -> Callable[..., Any]:
    """Return the function of linear algebra of this name, for finite matrices."""

    def run(cupy: Any, a: Any, *rest: Any, **attrs: Any) -> Any:
        return getattr(cupy.linalg, name)(_finite(cupy, a), *rest, **attrs)

    return run


def _inv(cupy: Any, a: Any) -> Any:
    return cupy.linalg.inv(a)


def _lstsq(cupy: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    x, rest, rank, values = cupy.linalg.lstsq(_finite(cupy, a), b, rcond)
    return x, rest, np.int32(int(rank)), values  # CuPy's is an array without axes


def _qr(cupy: Any, a: Any, mode: str = "reduced") -> Any:
    if mode == "raw":
        raise Unsupported("the reflections of a library are its own")
    return cupy.linalg.qr(a, mode)


def _solve(cupy: Any, a: Any, b: Any) -> Any:
    if b.ndim != a.ndim and (b.ndim, a.ndim) != (1, 2):
        raise Unsupported("CuPy and NumPy read these shapes in different ways")
    return cupy.linalg.solve(a, b)


def _fourier(name: str) -> Callable[..., Any]:
    """Return the function of Fourier transforms of this name."""

    def run(cupy: Any, a: Any, *rest: Any, **attrs: Any) -> Any:
        if not a.flags.c_contiguous:
            raise Unsupported("NumPy keeps the order of axes")
        return getattr(cupy.fft, name)(a, *rest, **attrs)

    return run


# --- elements that are picked
def _inside(indices: Any, length: int) -> Any:
    """Return an array of integers, each of which is in bounds."""
    if indices.dtype.kind not in "iu" or not indices.flags.c_contiguous:
        raise Unsupported("NumPy decides about indices that are no integers, or in another order")
    if int(indices.min()) < -length or int(indices.max()) >= length:
        raise Unsupported(_OUTSIDE)
    return indices


def _get(cupy: Any, a: Any, key: Any) -> Any:
    taken = key.ndim if key.dtype.kind == "b" else 1
    steps = [step for step, n in zip(a.strides[taken:], a.shape[taken:], strict=True) if n > 1]
    if any(step < 0 for step in steps) or steps != sorted(steps, reverse=True):
        raise Unsupported("NumPy decides the strides")
    if key.dtype.kind == "b":
        if key.shape != a.shape[: key.ndim]:
            raise Unsupported(_WORDED)
        return a[key]
    return a[_inside(key, a.shape[0])]


def _compress(cupy: Any, condition: Any, a: Any, axis: int | None = None) -> Any:
    if getattr(condition, "ndim", 0) != 1:
        raise Unsupported(_WORDED)
    if condition.size > (a.size if axis is None else a.shape[axis]):
        raise Unsupported(_OUTSIDE)
    return cupy.compress(condition, a, axis)


def _extract(cupy: Any, condition: Any, arr: Any) -> Any:
    if getattr(condition, "size", arr.size + 1) > arr.size:
        raise Unsupported(_OUTSIDE)
    return cupy.extract(condition, arr)


def _nonzero(cupy: Any, a: Any) -> Any:
    if a.ndim == 0:
        raise Unsupported(_WORDED)
    return cupy.argwhere(a)  # whose columns NumPy gives: ``record.eager_calls`` makes them


def _flatnonzero(cupy: Any, a: Any) -> Any:
    return cupy.argwhere(a.ravel())


def _unique(
    cupy: Any,
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    if axis is not None:
        raise Unsupported("CuPy compares rows one by one on the host")
    found = cupy.unique(ar, return_index, return_inverse, return_counts, equal_nan=equal_nan)
    if not return_inverse:
        return found
    place = 1 + return_index
    inverse = found[place].reshape(ar.shape)  # CuPy 13 gives it flat
    return (*found[:place], inverse, *found[place + 1 :])


# --- elements that are written
def _fitting(cupy: Any, values: Any, dtype: Any, safely: bool) -> Any:
    """Return values in a dtype, as NumPy casts them; ``safely``: which refuses arrays that lose."""
    if not hasattr(values, "dtype"):
        return cupy.asarray(np.asarray(values, dtype))  # raises as NumPy does
    if not np.can_cast(values.dtype, dtype, "safe" if safely else "same_kind"):
        raise Unsupported("NumPy refuses this cast, or warns of it")
    return values


def _apart(cupy: Any, indices: Any, length: int) -> Any:
    """Return indices that are all different and in bounds, counted from the start."""
    indices = _inside(indices, length)
    positive = cupy.where(indices < 0, indices + length, indices)
    if cupy.unique(positive).size != positive.size:
        raise Unsupported("an index comes twice")
    return positive


def _put(cupy: Any, a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    if mode != "raise" or not a.flags.c_contiguous:
        raise Unsupported("CuPy has no such put")
    values = _fitting(cupy, v, a.dtype, safely=False)
    if values.size:
        cupy.put(a, _apart(cupy, cupy.asarray(ind), a.size), values, "wrap")


def _put_mask(cupy: Any, a: Any, mask: Any, values: Any) -> None:
    if getattr(mask, "shape", None) != a.shape:
        raise Unsupported("CuPy has masks of the same shape only")
    values = _fitting(cupy, values, a.dtype, safely=True)
    if not values.size:
        raise Unsupported("nothing to put")
    cupy.putmask(a, mask, values)


def _place(cupy: Any, arr: Any, mask: Any, vals: Any) -> None:
    values = _fitting(cupy, vals, arr.dtype, safely=True)
    if getattr(mask, "size", None) != arr.size or not values.size:
        raise Unsupported(_WORDED)
    cupy.place(arr, mask, values)


def _fill_diagonal(cupy: Any, a: Any, val: Any, wrap: bool = False) -> None:
    values = _fitting(cupy, val, a.dtype, safely=False)
    if values.size != 1:
        raise Unsupported("NumPy repeats the values")
    cupy.fill_diagonal(a, values.reshape(()), wrap)


def _set(cupy: Any, a: Any, key: Any, value: Any) -> None:
    if type(key) is tuple or getattr(value, "ndim", 0) > a.ndim:
        raise Unsupported("several index arrays at once")
    value = _fitting(cupy, value, a.dtype, safely=False)
    if key.dtype.kind == "b":
        if key.shape != a.shape[: key.ndim]:
            raise Unsupported(_WORDED)
        if value.ndim and int(key.sum()) != value.shape[0] and value.size != 1:
            raise Unsupported(_WORDED)
    else:
        key = _apart(cupy, key, a.shape[0])
    a[key] = value


CALLS: Mapping[str, Callable[..., Any]] = {
    **{
        f"linalg.{name}": _of_finite(name)
        for name in ("cholesky", "eigh", "eigvalsh", "pinv", "svd")
    },
    "linalg.inv": _inv,
    "linalg.lstsq": _lstsq,
    "linalg.qr": _qr,
    "linalg.solve": _solve,
    **{name: _fourier(name.partition(".")[2]) for name in NAMES if name.startswith("fft.")},
    "getitem": _get,
    "compress": _compress,
    "extract": _extract,
    "nonzero": _nonzero,
    "flatnonzero": _flatnonzero,
    "unique": _unique,
    "put": _put,
    "put_mask": _put_mask,
    "place": _place,
    "fill_diagonal": _fill_diagonal,
    "setitem": _set,
}


def called(session: Session, name: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return what CuPy's function gives, each array as an operand: a buffer of its own, in C order.
    Arrays among the arguments are operands, too; the first is written into by what writes."""
    import cupyx

    arrays: list[Any] = []

    def given(item: Any) -> Any:
        if isinstance(item, Operand):
            arrays.append(array_of(session, item))
            return arrays[-1]
        return tuple([given(part) for part in item]) if type(item) in (tuple, list) else item

    def made(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple([made(part) for part in item])
        if not isinstance(item, session.cupy.ndarray):
            return item
        layout = make_layout(item.dtype, item.shape)
        buffer = whole(session, item, layout, arrays)
        if buffer is None:
            buffer = session.buffer(layout.nbytes)
            if layout.size:
                array_of(session, Operand(buffer, 0, layout))[...] = item
        return Operand(buffer, 0, layout)

    keywords = {key: given(item) for key, item in attrs.items()}
    with cupyx.errstate(linalg="raise"):
        return made(CALLS[name](session.cupy, *map(given, args), **keywords))
