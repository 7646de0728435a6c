"""What CuPy's own functions do on a CUDA device: NumPy's functions of the same names.

``NAMES`` is the one table: a name stands for CuPy's function of that name, or for what is beside it
here where NumPy's has another form. Some have results whose size or success only the values tell:
these are called at once (``called``), the others run as nodes of a plan (``LibraryKernel``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import make_layout
from alight.backends.base import Operand
from alight.backends.cuda_session import CudaBuffer
from alight.device import Gap, Unsupported
from alight.ir.group import GroupKind

if TYPE_CHECKING:
    from alight._core import Layout
    from alight.backends.cuda_session import Session
    from alight.ir.group import Group

# Why functions that CuPy has, too, are NumPy's.
LACKING = (
    Gap("eig, eigvals", "CuPy has none for all matrices, and their order is open", "CuPy"),
    Gap("det, slogdet, norm, rank", "their results are numbers on the host", "nobody"),
    Gap("argsort unless stable", "NumPy leaves the order of equals to its own sort", "nobody"),
    Gap("put and assignment with duplicates", "the last one written is not known", "nobody"),
    Gap("ufunc.at, bincount, histogram", "no deterministic form yet", "alight"),
)


def _packed(name: str) -> Callable[..., Any]:
    """Return a function of a sequence of arrays as one of its operands."""

    def run(cupy: Any, *arrays: Any, **attrs: Any) -> Any:
        return getattr(cupy, name)(arrays, **attrs)

    return run


def _einsum(cupy: Any, *operands: Any, subscripts: str) -> Any:
    return cupy.einsum(subscripts, *operands)


def _take(cupy: Any, a: Any, indices: Any, axis: int | None = None) -> Any:
    return cupy.take(a, indices, axis)  # recording has checked the indices


def _take_along(cupy: Any, a: Any, indices: Any, axis: int = -1) -> Any:
    return cupy.take_along_axis(a, indices, axis)


def _argsort(cupy: Any, a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Any:
    if not stable and kind not in ("stable", "mergesort"):
        raise Unsupported("NumPy leaves the order of equals to its own sort")
    return cupy.argsort(a, axis=axis)  # a stable sort


def _convolve(cupy: Any, a: Any, v: Any, mode: str = "full") -> Any:
    """Each element is a sum of products: CuPy's own function goes by Fourier transforms."""
    import cupyx.scipy.signal

    if a.ndim != 1 or v.ndim != 1 or a.dtype.kind == "b" or v.dtype.kind == "b":
        raise Unsupported("CuPy has no convolution of these")
    if a.size < v.size:
        a, v = v, a
    whole = cupyx.scipy.signal.convolve(a, v, "full", "direct")
    start, count = {
        "full": (0, a.size + v.size - 1),
        "same": ((v.size - 1) // 2, a.size),
        "valid": (v.size - 1, a.size - v.size + 1),
    }[mode]
    return whole[start : start + count]


def _correlate(cupy: Any, a: Any, v: Any, mode: str = "valid") -> Any:
    if a.size < v.size:
        raise Unsupported("NumPy turns the result around where the second is longer")
    return _convolve(cupy, a, v[::-1].conj(), mode)


def _solve(cupy: Any, a: Any, b: Any) -> Any:
    if b.ndim != a.ndim and (b.ndim, a.ndim) != (1, 2):
        raise Unsupported("CuPy and NumPy read these shapes in different ways")
    return cupy.linalg.solve(a, b)


def _lstsq(cupy: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    x, rest, rank, values = cupy.linalg.lstsq(a, b, rcond)
    return x, rest, np.int32(rank), values


def _apart(cupy: Any, indices: Any, length: int) -> Any:
    """Return indices that are all different and in bounds, counted from the start."""
    if indices.dtype.kind not in "iu":
        raise Unsupported("indices that are no integers")
    if int(indices.min()) < -length or int(indices.max()) >= length:
        raise Unsupported("an index is out of bounds")
    positive = cupy.where(indices < 0, indices + length, indices)
    if cupy.unique(positive).size != positive.size:
        raise Unsupported("an index comes twice")
    return positive


def _put(cupy: Any, a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    if mode != "raise" or not a.flags.c_contiguous:
        raise Unsupported("CuPy has no such put")
    cupy.put(a, _apart(cupy, cupy.asarray(ind), a.size), v)


def _get(cupy: Any, a: Any, key: Any) -> Any:
    parts = key if type(key) is tuple else (key,)
    if not a.flags.c_contiguous or len(parts) > 1:
        raise Unsupported("NumPy decides the strides")
    if key.dtype.kind == "b":
        if key.shape != a.shape[: key.ndim]:
            raise Unsupported("NumPy words the error")
        return a[key]
    length = a.shape[0]
    if int(key.min()) < -length or int(key.max()) >= length:
        raise Unsupported("an index is out of bounds")
    return a[key]


def _set(cupy: Any, a: Any, key: Any, value: Any) -> None:
    if type(key) is tuple or getattr(value, "ndim", 0) > a.ndim:
        raise Unsupported("several index arrays at once")
    if key.dtype.kind == "b":
        if key.shape != a.shape[: key.ndim]:
            raise Unsupported("NumPy words the error")
        if getattr(value, "ndim", 0) and int(key.sum()) != value.shape[0] and value.size != 1:
            raise Unsupported("NumPy words the error")
    else:
        key = _apart(cupy, key, a.shape[0])
    a[key] = value


_OWN: Mapping[str, Callable[..., Any]] = {
    **{
        name: _packed(name)
        for name in ("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack")
    },
    "einsum": _einsum,
    "take": _take,
    "take_along_axis": _take_along,
    "argsort": _argsort,
    "convolve": _convolve,
    "correlate": _correlate,
    "linalg.solve": _solve,
    "linalg.lstsq": _lstsq,
    "put": _put,
    "getitem": _get,
    "setitem": _set,
}
# The ops whose CuPy function has another name than the op.
_NAMED = {"put_mask": "putmask"}
NAMES = frozenset(
    (
        *_OWN,
        *_NAMED,
        "matmul", "dot", "vdot", "inner", "outer", "tensordot", "kron",
        "sort", "tile", "roll", "tril", "triu", "diff", "searchsorted",
        "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.fft2", "fft.ifft2", "fft.fftn",
        "fft.ifftn", "fft.rfftn", "fft.irfftn", "fft.fftshift", "fft.ifftshift",
        "linalg.inv", "linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.eigh",
        "linalg.eigvalsh", "linalg.pinv",
        "unique", "nonzero", "flatnonzero", "compress", "extract", "place",
        "fill_diagonal",
    )
)  # fmt: skip


def _function(cupy: Any, name: str) -> Callable[..., Any]:
    own = _OWN.get(name)
    if own is not None:
        return lambda *args, **attrs: own(cupy, *args, **attrs)
    found: Any = cupy
    for part in _NAMED.get(name, name).split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


class LibraryKernel:
    """One call of a function of CuPy's."""

    def __init__(self, session: Session, group: Group) -> None:
        graph = group.graph
        node = graph.nodes[0]
        name = node.op.name
        if group.kind is not GroupKind.LIBRARY or len(graph.nodes) != 1 or name not in NAMES:
            raise Unsupported(f"CuPy has no {name} that is NumPy's in every case")
        self.group = group
        self.layouts = [*graph.inputs, *(graph.layout(i) for i in graph.outputs)]
        self.attrs = dict(node.attrs)
        self.positions = node.operands
        self.function = _function(session.cupy, name)

    def run(
        self, session: Session, operands: Sequence[Operand], target: Operand | None
    ) -> CudaBuffer | None:
        """Return the buffer of the result, or None where a target was given."""
        arrays = [_array(session, operands[i]) for i in self.positions]
        result = self.function(*arrays, **self.attrs)
        layout = self.layouts[-1]
        result = session.cupy.asarray(result)
        if result.shape != layout.shape or result.dtype != layout.dtype:
            raise Unsupported(
                f"CuPy made {result.dtype} {result.shape} where NumPy makes {layout.dtype} "
                f"{layout.shape}"
            )
        if target is None and _whole(result, layout):
            return CudaBuffer(result.data, layout.nbytes, session.device)
        made = None
        if target is None:
            made = session.buffer(layout.nbytes)
            target = Operand(made, 0, layout)
        _array(session, target)[...] = result
        return made


def called(session: Session, name: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return what CuPy's function gives, each array as an operand: a buffer of its own, in C order.
    Arrays among the arguments are operands, too; the first is written into by what writes."""
    import cupyx

    def given(item: Any) -> Any:
        if isinstance(item, Operand):
            return _array(session, item)
        return tuple([given(part) for part in item]) if type(item) in (tuple, list) else item

    def made(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple([made(part) for part in item])
        if not isinstance(item, session.cupy.ndarray):
            return item
        layout = make_layout(item.dtype, item.shape)
        if _whole(item, layout):
            return Operand(CudaBuffer(item.data, layout.nbytes, session.device), 0, layout)
        target = Operand(session.buffer(layout.nbytes), 0, layout)
        if layout.size:
            _array(session, target)[...] = item
        return target

    keywords = {key: given(item) for key, item in attrs.items()}
    with cupyx.errstate(linalg="raise"):
        return made(_function(session.cupy, name)(*map(given, args), **keywords))


def _array(session: Session, operand: Operand) -> Any:
    layout, memory = operand.layout, operand.buffer.memory
    return session.cupy.ndarray(
        layout.shape, layout.dtype, memory + operand.offset, strides=layout.strides
    )


def _whole(result: Any, layout: Layout) -> bool:
    """Tell whether a result is alone in memory of its own, laid out as NumPy lays it out."""
    if result.base is not None or isinstance(result, np.ndarray):
        return False
    return bool(result.strides == layout.strides and min(layout.strides, default=1) >= 0)
