"""What CuPy's own functions do on a CUDA device: NumPy's functions of the same names.

``NAMES`` are those that run as nodes of a plan: a name stands for CuPy's function of that name, or
for what is beside it here where NumPy's has another form. Recording has checked their arguments.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alight._core import DeviceBuffer
from alight._src.base.originals import np
from alight._src.ir.graph import GroupKind
from alight.backends.base import Operand
from alight.device import Gap, Unsupported

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.group import Group
    from alight.backends.cuda.cuda_session import Session

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what CuPy itself tries out there
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


def _searchsorted(cupy: Any, a: Any, v: Any, side: str = "left") -> Any:
    common = np.result_type(a.dtype, v.dtype)  # CuPy compares as C++ compares the two
    return cupy.searchsorted(a.astype(common, copy=False), v.astype(common, copy=False), side)


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
    "searchsorted": _searchsorted,
}
NAMES = frozenset(
    (
        *_OWN,
        "matmul", "dot", "vdot", "inner", "outer", "tensordot", "kron",
        "sort", "tile", "roll", "tril", "triu", "diff",
        "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.fft2", "fft.ifft2", "fft.fftn",
        "fft.ifftn", "fft.rfftn", "fft.irfftn", "fft.fftshift", "fft.ifftshift",
    )
)  # fmt: skip


def _function(cupy: Any, name: str) -> Callable[..., Any]:
    own = _OWN.get(name)
    if own is not None:
        return lambda *args, **attrs: own(cupy, *args, **attrs)
    found: Any = cupy
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


class LibraryKernel:
    """One call of a function of CuPy's."""

    def __init__(self, session: Session, group: Group) -> None:
        graph = group.graph
        node = graph.nodes[0]
        name = node.op.name
        called = group.kind is GroupKind.LIBRARY or name == "roll"  # the host has loops that roll
        if not called or len(graph.nodes) != 1 or name not in NAMES:
            raise Unsupported(f"CuPy has no {name} that is NumPy's in every case")
        self.group = group
        self.layouts = graph.operand_layouts
        self.attrs = dict(node.attrs)
        self.positions = node.operands
        self.function = _function(session.cupy, name)

    def run(
        self, session: Session, operands: Sequence[Operand], target: Operand | None
    ) -> DeviceBuffer | None:
        """Return the buffer of the result, or None where a target was given."""
        arrays = [array_of(session, operands[i]) for i in self.positions]
        result = self.function(*arrays, **self.attrs)
        layout = self.layouts[-1]
        if not isinstance(result, session.cupy.ndarray):
            result = session.cupy.asarray(result)
        if result.shape != layout.shape or result.dtype != layout.dtype:
            raise Unsupported(
                f"CuPy made {result.dtype} {result.shape} where NumPy makes {layout.dtype} "
                f"{layout.shape}"
            )
        made = None
        if target is None:
            made = whole(session, result, layout, arrays)
            if made is not None:
                return made
            made = session.buffer(layout.nbytes)
            target = Operand(made, 0, layout)
        array_of(session, target)[...] = result
        return made


def array_of(session: Session, operand: Operand) -> Any:
    """Return CuPy's array over an operand's memory."""
    layout, memory = operand.layout, operand.buffer.memory
    if operand.offset:
        memory = memory + operand.offset
    if layout.c_contiguous:  # 0.9 µs, with strides 1.4 (H200's host)
        return session.cupy.ndarray(layout.shape, layout.dtype, memory)
    return session.cupy.ndarray(layout.shape, layout.dtype, memory, strides=layout.strides)


def whole(
    session: Session, result: Any, layout: Layout, given: Sequence[Any]
) -> DeviceBuffer | None:
    """Return the buffer of a result that is alone in memory of its own, laid out as NumPy lays it
    out; None for any other, as for what was given."""
    if result.base is not None or any(result is array for array in given):
        return None
    if result.strides != layout.strides or min(layout.strides, default=1) < 0:
        return None
    return DeviceBuffer(result.data, layout.nbytes, session.device)
