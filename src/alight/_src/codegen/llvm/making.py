"""The elements of a group that reduces: a run of them, made in explicit vectors for where they
go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.base.records import dataclass, replace
from alight._src.codegen.llvm.combine import Reduction
from alight._src.codegen.llvm.simd import Operand
from alight._src.codegen.llvm.vector_loops import run_stages, width_of_group
from alight._src.ir.graph import Attrs, Graph, Node
from alight._src.ir.op_table import Kind, Op

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Schedule
    from alight._src.codegen.llvm.expressions import Code
    from alight._src.codegen.llvm.simd import Width

# What one vector may write past the end of a run: a register of bytes, eight at a time.
ROOM = 512

Add = Callable[[Op, tuple[int, ...], "np.dtype[Any] | str"], int]


@dataclass(frozen=True, slots=True)
class Making:
    """A graph that makes some values of a group: ``reads`` are the values it is given, in the order
    of its inputs; its outputs are what was asked for."""

    graph: Graph
    reads: tuple[int, ...]
    width: Width

    def write(
        self, code: Code, reads: Sequence[Operand], writes: Sequence[Operand], n: str
    ) -> None:
        """Write the loop over ``n`` elements, at least one."""
        run_stages(code, self.graph, [*reads, *writes], n, self.width, False)


def making(
    graph: Graph,
    needed: Iterable[int],
    targets: Sequence[int | Reduction],
    schedule: Schedule,
    vector_bits: int,
    lanes: int = ROOM,
    together: int = 0,
) -> Making:
    """Return what makes some values of a group, and elements of reductions, by the elementwise
    nodes ``needed``; at most so many ``lanes`` of them go together, or so many vectors
    ``together``."""
    own = sorted(needed)
    wanted = {o for n in own for o in graph.made_by[n].operands}
    for target in targets:
        wanted.update(target.node.operands if isinstance(target, Reduction) else (target,))
    reads = tuple(sorted(wanted.difference(own)))
    local = {number: place for place, number in enumerate(reads)}
    nodes: list[Node] = []

    def add(
        op: Op, operands: tuple[int, ...], dtype: np.dtype[Any] | str, attrs: Attrs = ()
    ) -> int:
        nodes.append(Node(op, operands, attrs, make_layout(np.dtype(dtype), ())))
        return len(reads) + len(nodes) - 1

    for number in own:
        node = graph.made_by[number]
        operands = tuple([local[o] for o in node.operands])
        local[number] = add(node.op, operands, node.layout.dtype, node.attrs)
    outputs = [
        element(add, target, tuple([local[o] for o in target.node.operands]))
        if isinstance(target, Reduction)
        else local[target]
        for target in targets
    ]
    inputs = tuple([graph.layouts[number] for number in reads])
    made = Graph(inputs, tuple(nodes), tuple(outputs))
    width = width_of_group(made, schedule, vector_bits, together)
    return Making(made, reads, replace(width, lanes=min(width.lanes, lanes)))


def step(op: Op, body: str) -> Op:
    """Return a step of a reduction or a scan as an elementwise op."""
    return Op(f"{op.name}.step", Kind.ELEMENTWISE, op.reference, body=body)


def spelled(value: object) -> str:
    """Return a constant as it stands in a body; one of no type takes that of the result."""
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    return f"R({value!r})"


def element(add: Add, reduction: Reduction, operands: tuple[int, ...]) -> int:
    """Return what an element is reduced as; ``add`` returns the value of a new node."""
    value, *mask = operands
    if reduction.body not in ("x", "R(x)") or reduction.source != reduction.dtype:
        value = add(step(reduction.node.op, reduction.body), (value,), reduction.dtype)
    if mask:
        neutral = f"where(y, x, {spelled(reduction.identity)})"
        value = add(step(reduction.node.op, neutral), (value, mask[0]), reduction.dtype)
    return value
