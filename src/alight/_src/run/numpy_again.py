"""What NumPy computes again: what a failed step can still give, and what was written over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings import emit
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.ir.graph import Graph
from alight._src.plan.plan import LaunchStep, Plan
from alight.backends.host import run_node

__all__ = ["made_again", "one_by_one"]


def one_by_one(graph: Graph, operands: Sequence[Any], error: BaseException) -> list[Any]:
    """Return operands and results of a graph's nodes, done one by one where the step that was all
    of them failed with ``error``: for each an array, or the failure that it meets itself."""
    results = [*operands]
    for node in graph.nodes:
        given = [results[i] for i in node.operands]
        failed = next((item for item in given if isinstance(item, Exception)), None)
        if failed is None:
            try:
                with warnings_suppressed():
                    results.append(np.asarray(run_node(node, given)))
                continue
            except failures() as raised:
                if raised.__context__ is error:  # the same failure, met again
                    raised.__context__ = None
                failed = raised
        results.append(failed)
    return results


def made_again(
    number: int, there: Callable[[int], np.ndarray[Any, Any] | None], plan: Plan
) -> np.ndarray[Any, Any]:
    """Return a value of a plan made again of what is still ``there``."""
    made: dict[int, np.ndarray[Any, Any]] = {}  # two may need the same one

    def again(number: int) -> np.ndarray[Any, Any]:
        if number not in made:
            step = next(
                step
                for step in plan.steps
                if isinstance(step, LaunchStep) and number in step.outputs
            )
            operands = []
            for operand in step.inputs:
                found = there(operand)
                operands.append(again(operand) if found is None else found)
            results = emit.computed(step.group.graph, operands)
            for output, inner in zip(step.outputs, step.group.graph.outputs, strict=True):
                made[output] = results[inner]
        return made[number]

    return again(number)
