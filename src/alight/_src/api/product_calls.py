"""NumPy's products on Arrays: matmul, dot, einsum and their like."""

from __future__ import annotations

from typing import Any

from alight._core import ArrayBase
from alight._src.api.elementwise import ours
from alight._src.base.originals import np
from alight._src.record.numpy_fallback import exit_to_numpy
from alight._src.record.storage_io import apply_view
from alight._src.record.structural_calls import Form, dress, implements, reads_same_memory, records


def _matrix(function: Any, name: str | None = None) -> Any:
    return records(function, "x1 x2 out", operands=2, name=name or function.__name__)


matmul = _matrix(np.matmul)
vecdot = _matrix(np.vecdot)
matvec = _matrix(np.matvec) if hasattr(np, "matvec") else None
vecmat = _matrix(np.vecmat) if hasattr(np, "vecmat") else None
dot = records(np.dot, "a b out", operands=2)
records(np.vdot, "a b", operands=2)
records(np.inner, "a b", operands=2)
outer = records(np.outer, "a b out", operands=2)
records(np.kron, "a b", operands=2)
tensordot = records(np.tensordot, "a b axes", operands=2)
trace = records(
    np.trace, "a offset axis1 axis2 dtype out", shape=lambda s, **attrs: _traced(s, **attrs)
)


def _traced(
    shape: tuple[int, ...], offset: Any = 0, axis1: int = 0, axis2: int = 1, **attrs: Any
) -> tuple[int, ...]:
    first, second = range(len(shape))[axis1], range(len(shape))[axis2]
    return tuple([n for i, n in enumerate(shape) if i not in (first, second)])


def _convolved(
    a: tuple[int, ...], v: tuple[int, ...], mode: str = "full"
) -> tuple[int, ...] | None:
    if len(a) != 1 or len(v) != 1:
        return None
    longer, shorter = max(a[0], v[0]), min(a[0], v[0])
    lengths = {"full": longer + shorter - 1, "same": longer, "valid": longer - shorter + 1}
    return (lengths[mode],) if mode in lengths else None


records(np.convolve, "a v mode", operands=2, shape=_convolved)
records(
    np.correlate, "a v mode", operands=2, shape=lambda a, v, mode="valid": _convolved(a, v, mode)
)


@implements(np.einsum, reads=8)
def einsum(*operands: Any, **kwargs: Any) -> Any:
    """Return the Einstein sum of the operands."""
    if not operands or type(operands[0]) is not str or kwargs.get("optimize", False) is not False:
        return exit_to_numpy(np.einsum, operands, kwargs)
    subscripts, *items = operands
    keywords = {k: v for k, v in kwargs.items() if k != "optimize"}
    if len(items) == 1 and not keywords:
        array = ours(items[0])
        if array is not None and reads_same_memory(lambda a: np.einsum(subscripts, a), array):
            return apply_view(array, lambda p: np.einsum(subscripts, p))
    names = (
        *[f"operand{i}" for i in range(len(items))],
        "subscripts",
        "out",
        "dtype",
        "order",
        "casting",
    )
    form = Form(_subscripts_last, "einsum", names, operands=len(items))
    return form(items, {"subscripts": subscripts, **keywords})


def _subscripts_last(*operands: Any, subscripts: str, **kwargs: Any) -> Any:
    return np.einsum(subscripts, *operands, **kwargs)


dress(_subscripts_last, np.einsum)


@implements(np.interp, reads=3)
def interp(*args: Any, **kwargs: Any) -> Any:
    """Return one-dimensional linear interpolation."""
    if len(args) == 3 and not kwargs and isinstance(args[0], ArrayBase):
        return _interp(args, kwargs)
    return exit_to_numpy(np.interp, args, kwargs)


_interp = Form(np.interp, "interp", ("x", "xp", "fp"), operands=3, shape=lambda x, xp, fp: x)

__all__ = ["dot", "matmul", "matvec", "outer", "tensordot", "trace", "vecdot", "vecmat"]
