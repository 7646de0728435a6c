"""LLVM IR of a loop group in explicit vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight.codegen.emit import Code, Module
from alight.codegen.kernels import SIGNATURE, Frame
from alight.codegen.lanes import Operand, Stage, Width, stage_loop
from alight.ir.body import part_of, width_of

if TYPE_CHECKING:
    from alight.codegen.loops import Nest, Schedule
    from alight.ir.group import Graph, Group


def strip_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a loop group to a module."""
    graph = group.graph
    code = Code(module)
    frame = Frame(code, group, shape)
    last = frame.rank - 1
    width = _width(graph, schedule, vector_bits)
    with code.when(frame.nonempty(range(frame.rank))), frame.along(range(last)):
        operands = [
            Operand(dtype, motion, base, steps[last])
            for dtype, motion, base, steps in zip(
                _dtypes(graph), shape.classes, frame.pointers, frame.steps, strict=True
            )
        ]
        stage = Stage(
            dict(enumerate(operands[: frame.inputs])),
            tuple(graph.numbered()),
            tuple(zip(graph.outputs, operands[frame.inputs :], strict=True)),
        )
        stage_loop(code, graph, stage, frame.dims[last], width)
    code.finish()
    module.functions.append(code.function(SIGNATURE, "#0"))


def _dtypes(graph: Graph) -> list[str]:
    """Return the dtypes of the operands."""
    layouts = [*graph.inputs, *(graph.layout(i) for i in graph.outputs)]
    return [layout.dtype.name for layout in layouts]


def _width(graph: Graph, schedule: Schedule, vector_bits: int) -> Width:
    layouts = [*graph.inputs, *(node.layout for node in graph.nodes)]
    widest = max(width_of(part_of(layout.dtype.name)) for layout in layouts)
    return Width(vector_bits // widest * (schedule.interleave or 2), vector_bits == 512)
