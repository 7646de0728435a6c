"""CuPy's arrays and functions: NumPy's on memory of the device's, which NumPy itself does not get,
and CuPy's manners where they differ: indices wrap around, sums are arrays without axes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy.cuda import memory


class ndarray:
    """An array over memory of the device's."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None
    ) -> None:
        dtype = np.dtype(dtype)
        if memptr is None:
            memptr = memory.POOL.malloc(max(1, prod(shape) * dtype.itemsize))
        self.data = memptr
        self.base: ndarray | None = None
        self.held = np.ndarray(shape, dtype, memptr.array, memptr.offset, strides)
        if strides is None:  # of no elements, too
            steps = [dtype.itemsize * prod(self.held.shape[i + 1 :]) for i in range(self.held.ndim)]
            self.held = np.lib.stride_tricks.as_strided(self.held, strides=steps)

    def __array__(self, *given: Any, **keywords: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def get(self) -> Any:
        return self.held.copy()

    def item(self) -> Any:
        return self.held.item()

    def __len__(self) -> int:
        return len(self.held)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # NumPy must not find its own interface
        found = getattr(self.held, name)
        return _with_arrays(found, self) if callable(found) else found

    def __getitem__(self, key: Any) -> Any:
        return made(self.held[_wrapped(plain(key), self.held.shape)], (self,))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held[_wrapped(plain(key), self.held.shape)] = plain(value)


def _number(kind: Callable[[Any], Any]) -> Callable[[ndarray], Any]:
    def convert(self: ndarray) -> Any:
        return kind(self.held.item())

    return convert


def _operator(name: str) -> Callable[..., Any]:
    def run(self: ndarray, *others: Any) -> Any:
        return made(getattr(self.held, name)(*map(plain, others)), (self, *others))

    return run


for _kind in (int, float, bool):
    setattr(ndarray, f"__{_kind.__name__}__", _number(_kind))
ndarray.__index__ = _number(int)  # type: ignore[method-assign,assignment]
for _name in ("add", "sub", "mul", "truediv", "mod", "and", "or", "xor"):
    for _side in ("", "r"):
        setattr(ndarray, f"__{_side}{_name}__", _operator(f"__{_side}{_name}__"))
for _name in ("lt", "le", "eq", "ne", "gt", "ge", "neg", "invert"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def plain(item: Any) -> Any:
    """Return what NumPy works with; CuPy takes no arrays of NumPy's."""
    if isinstance(item, ndarray):
        return item.held
    if isinstance(item, np.ndarray):
        raise TypeError(f"Unsupported type {type(item)}")
    return type(item)(map(plain, item)) if type(item) in (tuple, list) else item


def made(result: Any, sources: Any) -> Any:
    """Return a result of NumPy's as CuPy's: a view of its source, or in memory of its own."""
    if isinstance(result, tuple):
        return tuple([made(part, sources) for part in result])
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    array = np.asarray(result)
    for source in sources:
        if not isinstance(source, ndarray):
            continue
        if array is source.held:
            return source
        if array.base is not None and np.may_share_memory(array, source.held):
            start = array.__array_interface__["data"][0] - source.data.ptr
            view = ndarray(array.shape, array.dtype, source.data + start, array.strides)
            view.base = source if source.base is None else source.base
            return view
    own = ndarray(array.shape, array.dtype)
    own.held[...] = array
    return own


def _wrapped(key: Any, shape: tuple[int, ...]) -> Any:
    """Return a key whose integers out of bounds wrap around."""
    if isinstance(key, np.ndarray) and key.dtype.kind in "iu" and shape and shape[0]:
        return key % shape[0]
    return key


def _with_arrays(function: Callable[..., Any], *sources: Any) -> Callable[..., Any]:
    def call(*args: Any, **keywords: Any) -> Any:
        given = [plain(item) for item in args]
        named = {key: plain(item) for key, item in keywords.items()}
        return made(function(*given, **named), (*sources, *args))

    return call


def asarray(a: Any, dtype: Any = None) -> Any:
    """Return an array on the device: NumPy's are copied there."""
    if isinstance(a, ndarray):
        return a if dtype is None else a.astype(dtype)
    return made(np.asarray(a, dtype), ())


# --- functions with CuPy's manners
def take(a: Any, indices: Any, axis: Any = None) -> Any:
    return made(np.take(a.held, plain(indices), axis, mode="wrap"), ())


def take_along_axis(a: Any, indices: Any, axis: Any) -> Any:
    length = a.size if axis is None else a.shape[axis]
    return made(np.take_along_axis(a.held, indices.held % length, axis), ())


def compress(condition: Any, a: Any, axis: Any = None) -> Any:
    return take(a, made(np.flatnonzero(condition.held), ()), axis)


def extract(condition: Any, a: Any) -> Any:
    return compress(condition.ravel(), a.ravel())


def nonzero(a: Any) -> Any:
    rows = argwhere(a)
    return tuple([rows[:, i] for i in range(a.ndim)])


def argwhere(a: Any) -> Any:
    return made(np.argwhere(a.held), ())


def _stable(kind: Any) -> None:
    if kind not in (None, "stable"):
        raise ValueError("CuPy sorts in one way")


def argsort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    _stable(kind)
    return made(np.argsort(a.held, axis, kind="stable"), ())


def sort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    _stable(kind)
    return made(np.sort(a.held, axis, kind="stable"), ())


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Compare as C++ does: an integer is as unsigned, and a float as short, as the other."""
    first, second = a.held, v.held
    kinds = {first.dtype.kind, second.dtype.kind}
    common = np.result_type(first, second)
    if kinds == {"i", "u"} and common.kind == "f":
        common = np.dtype(np.uint64)
    elif "f" in kinds and len(kinds) == 2:
        common = first.dtype if first.dtype.kind == "f" else second.dtype
    return made(np.searchsorted(first.astype(common), second.astype(common), side), ())


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
) -> Any:
    found = np.unique(
        ar.held, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan
    )
    return made(found, ())


def put(a: Any, ind: Any, v: Any, mode: str = "wrap") -> None:
    np.put(a.held, plain(ind), plain(v).astype(a.dtype), mode)


def place(arr: Any, mask: Any, vals: Any) -> None:
    if arr.size != mask.size:
        raise ValueError("Mask and data must be the same size.")
    np.place(arr.held, mask.held.reshape(arr.shape), vals.held.astype(arr.dtype))


def putmask(a: Any, mask: Any, values: Any) -> None:
    if a.shape != mask.shape:
        raise ValueError("mask and data must be the same size")
    if not np.isscalar(values):
        values = values.held
    np.putmask(a.held, mask.held, values)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    np.fill_diagonal(a.held, asarray(val, a.dtype).held, wrap)


def concatenate(tup: Any, axis: Any = 0, out: Any = None, **attrs: Any) -> Any:
    if not all(isinstance(item, ndarray) for item in tup):
        raise TypeError("Only cupy arrays can be concatenated")
    return made(np.concatenate([item.held for item in tup], axis, **attrs), ())


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    x, rest, rank, values = np.linalg.lstsq(a.held, b.held, rcond)
    return made((x, rest, np.asarray(rank, np.int32), values), ())


class _Module(SimpleNamespace):
    """A module of NumPy's, on the device."""

    def __init__(self, module: Any, **own: Any) -> None:
        super().__init__(**own)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return numpys(self._module, name)


def numpys(module: Any, name: str) -> Any:
    """Return what a module of NumPy's has, its functions on the device."""
    found = getattr(module, name)
    return _with_arrays(found) if callable(found) and not isinstance(found, type) else found


linalg = _Module(np.linalg, lstsq=lstsq)
fft = _Module(np.fft)
