"""The ops that move, gather, scatter and make elements, and the library calls.

They have no scalar body: on the host NumPy runs them, on a device the library's function of that
name. Lists of arrays are operands here; index arrays too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from alight._src.base.originals import np
from alight._src.ir.op import FlagsRaised, Kind, Warns, declare

Array = np.ndarray[Any, Any]
_MOVES: dict[str, Any] = {"flops": 0, "flags": FlagsRaised.MOVE}


# --- windows on memory ---
def _window(array: Array, offset: int, layout: Any) -> Array:
    flat = array.transpose(sorted(range(array.ndim), key=lambda i: -array.strides[i]))
    raw = np.ascontiguousarray(flat).reshape(-1).view(np.uint8)
    first = offset if layout.size else 0  # one of no elements may lie behind all memory
    return np.ndarray(layout.shape, layout.dtype, raw, first, layout.strides)


def view(array: Array, *, offset: int, layout: Any) -> Array:
    """Return the window of a dense array's bytes that the layout and byte offset name; ``layout``
    is the node's."""
    return _window(array, offset, layout)


def write(old: Array, value: Array, *, offset: int, layout: Any) -> Array:
    """Return a copy of ``old`` with a window of it set to ``value``."""
    new = old.copy(order="K")
    np.copyto(_window(new, offset, layout), value, casting="unsafe")
    return new


declare("view", Kind.VIEW, view, **_MOVES)
declare("write", Kind.WRITE, write, nin=2, flops=0)


# --- movement ---
def concatenate(*arrays: Array, axis: int | None = 0, **attrs: Any) -> Array:
    """Return the operands joined along an axis."""
    return np.concatenate(arrays, axis=axis, **attrs)


def stack(*arrays: Array, axis: int = 0, **attrs: Any) -> Array:
    """Return the operands joined along a new axis."""
    return np.stack(arrays, axis=axis, **attrs)


def block_of(joiner: Callable[..., Array]) -> Callable[..., Array]:
    """Return NumPy's function of a list of arrays as a function of operands."""

    @functools.wraps(joiner)
    def reference(*arrays: Array, **attrs: Any) -> Array:
        return joiner(arrays, **attrs)

    return reference


declare("concatenate", Kind.MOVEMENT, concatenate, **_MOVES)
declare("stack", Kind.MOVEMENT, stack, **_MOVES)
for _name in ("vstack", "hstack", "dstack", "column_stack"):
    declare(_name, Kind.MOVEMENT, block_of(getattr(np, _name)), **_MOVES)
for _name in (
    "repeat", "tile", "roll", "append", "insert", "delete", "tril", "triu", "diag", "diagflat",
    "resize", "trim_zeros", "broadcast_to", "ascontiguousarray", "asfortranarray", "unstack",
    "ravel", "reshape",
):  # fmt: skip
    declare(_name, Kind.MOVEMENT, getattr(np, _name), **_MOVES)
declare("pad", Kind.MOVEMENT, np.pad, flops=0)  # what it puts at the edges it may compute


# --- gather and scatter ---
class Slot:
    """The place in a frozen key of an index array that is operand number ``operand`` (after the
    array, from 0)."""

    __slots__ = ("operand",)

    def __init__(self, operand: int) -> None:
        self.operand = operand

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slot) and self.operand == other.operand

    def __hash__(self) -> int:
        return hash(("Slot", self.operand))

    def __repr__(self) -> str:
        return f"Slot({self.operand})"


def thawed_key(key: tuple[Any, ...], arrays: Sequence[Array]) -> tuple[Any, ...]:
    """Return the index key again, its slots filled with the index arrays."""
    return tuple(
        arrays[k.operand] if isinstance(k, Slot) else slice(*k[1:]) if isinstance(k, tuple) else k
        for k in key
    )


def getitem(array: Array, *indices: Array, key: tuple[Any, ...]) -> Array:
    """Return ``array[key]`` with the index operands in the key's slots."""
    return np.asarray(array[thawed_key(key, indices)])


def setitem(array: Array, value: Array, *indices: Array, key: tuple[Any, ...]) -> Array:
    """Return a copy of the array with ``array[key] = value`` done."""
    new = array.copy(order="K")
    new[thawed_key(key, indices)] = value
    return new


def choose(index: Array, *choices: Array, mode: str = "raise") -> Array:
    """Return elements picked from the choices by the index."""
    return np.choose(index, choices, mode=mode)  # type: ignore[call-overload,no-any-return]


def select(*arrays: Array, default: Any = 0) -> Array:
    """Return elements of the first choice whose condition holds: conditions, then as many
    choices."""
    half = len(arrays) // 2
    return np.select(arrays[:half], arrays[half:], default)


def scatter(function: Callable[..., None]) -> Callable[..., Array]:
    """Return NumPy's function that writes into its first argument as one that returns a new
    array."""

    @functools.wraps(function)
    def reference(array: Array, *operands: Array, **attrs: Any) -> Array:
        new = array.copy(order="K")
        function(new, *operands, **attrs)
        return new

    return reference


def ufunc_at(array: Array, indices: Array, *value: Array, ufunc: str) -> Array:
    """Return a copy of the array with ``ufunc.at`` done to it."""
    new = array.copy(order="K")
    getattr(np, ufunc).at(new, indices, *value)
    return new


declare("getitem", Kind.GATHER, getitem, flops=0)
declare("take", Kind.GATHER, np.take, nin=2, flops=0)
declare("take_along_axis", Kind.GATHER, np.take_along_axis, nin=2, flops=0)
declare("compress", Kind.GATHER, np.compress, nin=2, flops=0)
declare("extract", Kind.GATHER, np.extract, nin=2, flops=0)
declare("choose", Kind.GATHER, choose, flops=0)
declare("select", Kind.GATHER, select, flops=0)
declare("setitem", Kind.SCATTER, setitem, nin=2, flops=0)
declare("put", Kind.SCATTER, scatter(np.put), nin=3, flops=0)
declare("put_mask", Kind.SCATTER, scatter(np.putmask), nin=3, flops=0)
declare("place", Kind.SCATTER, scatter(np.place), nin=3, flops=0)
declare("put_along_axis", Kind.SCATTER, scatter(np.put_along_axis), nin=3, flops=0)
declare("fill_diagonal", Kind.SCATTER, scatter(np.fill_diagonal), nin=2, flops=0)
declare("ufunc_at", Kind.SCATTER, ufunc_at, nin=3)


# --- library calls ---
def library(path: str) -> Callable[..., Any]:
    """Return NumPy's function of that name; a dotted one is looked up when called, as numpy.fft
    loads late."""
    if "." not in path:
        return getattr(np, path)  # type: ignore[no-any-return]

    def reference(*operands: Any, **attrs: Any) -> Any:
        return functools.reduce(getattr, path.split("."), np)(*operands, **attrs)  # type: ignore[operator]

    reference.__name__ = path
    return reference


def einsum(*operands: Array, subscripts: str, **attrs: Any) -> Any:
    """Return the Einstein sum of the operands."""
    return np.einsum(subscripts, *operands, **attrs)


def multi_dot(*arrays: Array) -> Any:
    """Return the product of the operands in the cheapest order."""
    return np.linalg.multi_dot(arrays)


declare("einsum", Kind.LIBRARY, einsum)
for _name in ("matvec", "vecmat"):
    if hasattr(np, _name):  # NumPy 2.2
        declare(_name, Kind.LIBRARY, library(_name), nin=2)
declare("linalg.multi_dot", Kind.LIBRARY, multi_dot)
for _name in (
    "matmul", "vecdot", "dot", "vdot", "cross", "convolve", "correlate", "interp", "searchsorted",
    "digitize", "isin", "linalg.solve", "linalg.lstsq", "polyval",
):  # fmt: skip
    declare(_name, Kind.LIBRARY, library(_name), nin=2)
for _name, _part in (  # of these NumPy warns by the name of what they are made of
    *(("inner", "dot"), ("tensordot", "dot"), ("outer", "multiply"), ("kron", "multiply")),
):
    declare(_name, Kind.LIBRARY, library(_name), nin=2, called=_part)
declare("trace", Kind.LIBRARY, library("trace"), called="reduce")
for _name in (
    "sort", "argsort", "partition", "argpartition", "lexsort", "unique", "nonzero",
    "flatnonzero", "argwhere", "histogram", "bincount", "median", "percentile", "quantile",
    "nanmedian", "nanpercentile", "nanquantile", "average", "cov", "corrcoef", "gradient", "diff",
    "ediff1d", "unwrap", "angle", "round", "nan_to_num", "i0", "real_if_close", "vander",
    "trapezoid", "apply_along_axis", "linalg.inv", "linalg.det", "linalg.slogdet",
    "linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.svdvals", "linalg.eig", "linalg.eigh",
    "linalg.eigvals", "linalg.eigvalsh", "linalg.norm", "linalg.pinv", "linalg.matrix_power",
    "linalg.matrix_rank", "linalg.cond", "linalg.vector_norm", "linalg.matrix_norm",
    "linalg.tensorinv",
):  # fmt: skip
    declare(_name, Kind.LIBRARY, library(_name))
for _name in (
    "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn",
    "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift",
):  # fmt: skip
    declare(f"fft.{_name}", Kind.LIBRARY, library(f"fft.{_name}"), warns=Warns.BY_PARTS)
for _name in ("linalg.tensorsolve", "logspace", "geomspace"):
    declare(_name, Kind.LIBRARY if "." in _name else Kind.CREATION, library(_name), nin=2)

# --- creation: no operands, or the ends of a range ---
for _name in (
    "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "identity", "tri", "indices",
    "hanning", "hamming", "blackman", "bartlett", "kaiser",
):  # fmt: skip
    declare(_name, Kind.CREATION, library(_name), nin=0, flops=0)
for _name in ("fft.fftfreq", "fft.rfftfreq"):
    declare(_name, Kind.CREATION, library(_name), nin=0, flops=0, warns=Warns.BY_PARTS)
