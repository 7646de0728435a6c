"""NumPy in the place of a kernel that leaves its result in memory it is given: as calls that make
nothing, so that a body which updates an array needs no second one before its kernel is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from io import StringIO
from operator import call
from typing import Any

from alight._core import Data, Layout, Value, fresh_data, threads
from alight._src.base.originals import np
from alight.backends.host import Bound, NumpyKernel, bind_written
from alight.backends.machine import CATEGORY

__all__ = ["makes_nothing", "run_into"]

NdArray = np.ndarray[Any, Any]


def makes_nothing(kernel: Any) -> bool:
    """Tell whether NumPy can be told of all that a kernel makes where to leave it."""
    if not isinstance(kernel, NumpyKernel) or any([step.into is None for step in kernel.steps]):
        return False
    graph = kernel.group.graph
    return min(graph.outputs) >= len(graph.inputs) and len({*graph.outputs}) == len(graph.outputs)


def calls_into(
    kernel: NumpyKernel, arrays: Sequence[NdArray], position: int, window: NdArray
) -> tuple[list[Callable[[], Any]], list[Data]]:
    """Return calls that leave one of a kernel's results in a window of memory, in which some of the
    operands may lie, and the data that they make for the others. What is between lies there, too,
    once nothing that it overwrites is read again."""
    graph, steps = kernel.group.graph, kernel.steps
    output = graph.outputs[position]
    reads = {operand: number for number, node in graph.numbered for operand in node.operands}
    over = {i for i, array in enumerate(arrays) if np.may_share_memory(array, window)}
    taken = max([reads.get(i, 0) for i in over], default=0)  # until when what lies there is read
    inside, number = {output}, output
    first = max(taken, len(arrays))
    while (before := _displaced(steps[number - len(arrays)], graph.layouts)) >= first:
        inside.add(before)
        number = before
    # Whether vector loops of transcendentals take overlapping memory differs between NumPy's.
    special = steps[number - len(arrays)].node.op.special
    if taken > number or (special and over & {*graph.made_by[number].operands}):
        inside.clear()
    values: dict[int, NdArray] = dict(enumerate(arrays))
    owners: dict[int, Data] = {}
    free: dict[Layout, list[Data]] = {}
    calls: list[Callable[[], Any]] = []
    for step in steps:
        layout = step.node.layout
        if step.number in inside:
            target = window
        else:
            if step.reuse in owners:
                data = owners.pop(step.reuse)
            else:
                data = free[layout].pop() if free.get(layout) else fresh_data(layout)
            owners[step.number] = data
            assert data.array is not None
            target = data.array
        operands = [values[i] for i in step.node.operands]
        values[step.number] = target
        if isinstance(step.into, np.ufunc):
            calls.append(partial(step.into, *operands, out=target))
        else:
            (source,) = operands
            calls.append(partial(np.copyto, target, source, casting="unsafe"))
        for dead in step.dead:
            if dead in owners:
                free.setdefault(graph.layouts[dead], []).append(owners.pop(dead))
    if not inside:
        calls.append(partial(np.copyto, window, values[output]))
    return calls, [owners[number] for number in graph.outputs if number != output]


def _displaced(step: Any, layouts: Sequence[Layout]) -> int:
    """Return the value whose memory may take a step's result as it dies there; -1 for none."""
    if step.node.op.special or not isinstance(step.into, np.ufunc):
        return -1
    found = [i for i in step.dead if layouts[i] is step.node.layout]
    return max(found, default=-1)


def run_into(
    kernel: NumpyKernel,
    arrays: Sequence[NdArray],
    position: int,
    window: NdArray,
    listen: frozenset[str],
    bound: Bound,
    others: Sequence[Value | None],
) -> tuple[list[Data], list[tuple[int, str]]]:
    """Leave one of a kernel's results in a window of memory and bind a value to it, and the others
    to what is made for them; return that data, and what its nodes warn of in the categories that
    are listened for, each with the node's index.

    Signals are looked at between instructions of Python's, of which there is none from the first
    call to the binding: what is half written is nobody's version.
    """
    calls, made = calls_into(kernel, arrays, position, window)
    log = StringIO()
    if listen:
        marks = [partial(log.write, f"{index}\n") for index in range(len(calls))]
        calls = [one for pair in zip(marks, calls, strict=True) for one in pair]
    threads.rest()  # libraries have threads of their own, which need the processors
    modes: Any = {c: "log" if c in listen else "ignore" for c in CATEGORY.values()}
    with np.errstate(call=log, **modes):
        bind_written(bound, others, made, deque, map(call, calls), 0)
    found: list[tuple[int, str]] = []
    index = -1
    for line in log.getvalue().splitlines():
        if line.isdigit():
            index = int(line)
        else:
            found += [(index, what) for what in CATEGORY if f" {what} " in line]
    return made, list(dict.fromkeys(found))
