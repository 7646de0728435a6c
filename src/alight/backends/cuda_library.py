"""What CuPy's own functions do on a CUDA device: NumPy's functions of the same names.

Left to NumPy on the host are those whose results NumPy leaves open (signs of vectors in qr, svd and
eigh; the order of what is equal in argsort), those that raise for some values (solve, inv,
cholesky), and those whose results have a size that only the values tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alight.backends.base import Operand
from alight.backends.cuda_session import CudaBuffer
from alight.device import Unsupported
from alight.ir.group import GroupKind

if TYPE_CHECKING:
    from alight._core import Layout
    from alight.backends.cuda_session import Session
    from alight.ir.group import Group

# Called with one sequence of arrays.
_PACKED = frozenset(("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"))
NAMES = _PACKED | frozenset(
    (
        "matmul", "dot", "vdot", "inner", "outer", "tensordot", "kron",
        "sort", "tile", "roll", "tril", "triu", "diff",
        "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.fft2", "fft.ifft2", "fft.fftn",
        "fft.ifftn", "fft.rfftn", "fft.irfftn", "fft.fftshift", "fft.ifftshift",
    )
)  # fmt: skip


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
        self.packed = name in _PACKED
        function: Any = session.cupy
        for part in name.split("."):
            function = getattr(function, part)
        self.function: Callable[..., Any] = function

    def run(
        self, session: Session, operands: Sequence[Operand], target: Operand | None
    ) -> CudaBuffer | None:
        """Return the buffer of the result, or None where a target was given."""
        arrays = [_array(session, operands[i]) for i in self.positions]
        result = (
            self.function(arrays, **self.attrs)
            if self.packed
            else self.function(*arrays, **self.attrs)
        )
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
