"""Write a window of an array where the array is: on a device, by a kernel that copies elements; on
the host, by the kernel itself that makes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from alight._core import Data, Layout, Value, sole, uses_within
from alight._src.base.cache_registry import Cache, register
from alight._src.base.records import replace
from alight._src.codegen.common.gaps import unsupported
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.plan.access_pattern import LINE_BYTES
from alight._src.plan.plan import LaunchStep, WriteStep
from alight._src.run import kernels, residency
from alight._src.run.residency import Place
from alight.backends.base import Command, Copy, Launch, Operand
from alight.backends.machine import thread_count
from alight.backends.registry import backend_of, device
from alight.device import HOST_DEVICE, Device, Unsupported

# From so much memory on it pays to have a window written by all threads: one takes 100 µs for it,
# and others begin within some 20.
_SHARED_BYTES = 1 << 20
# Bytes a second that one thread moves by a strided copy at most (EPYC, lines of a window of every
# ninth float64; a Xeon took three times as long).
_THREAD_RATE = 3.7e10

__all__ = [
    "group_into",
    "meets_itself",
    "only_read",
    "overlaps",
    "replaced",
    "shared_copy",
    "takes_all",
    "uses_below",
    "write_there",
]


def takes_all(step: LaunchStep, write: WriteStep) -> bool:
    """Tell whether a write takes a result of a loop on the host as it is, into a window in which
    every element has memory of its own."""
    if write.value not in step.outputs or step.implementation not in ("generated", "numpy"):
        return False
    if step.device != HOST_DEVICE or write.device != HOST_DEVICE:
        return False
    group, window = step.group, write.layout
    made = group.graph.layouts[group.graph.outputs[step.outputs.index(write.value)]]
    if group.kind is not GroupKind.LOOP or made.shape != window.shape or not window.size:
        return False
    return not meets_itself(window.shape, window.strides, window.itemsize)


@lru_cache(1024)  # windows that are written have few layouts
def meets_itself(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Tell whether what is written into an element may be seen in another one: then which of them
    comes last is NumPy's to say, and kernels, which write in any order, leave it to NumPy."""
    if 0 in shape:
        return False
    reached = itemsize
    axes = [(abs(step), n) for step, n in zip(strides, shape, strict=True) if n > 1]
    for step, length in sorted(axes):
        if step < reached:
            return True
        reached += step * (length - 1)
    return False


def overlaps(a: Data, b: Data) -> bool:
    """Tell whether two pieces of memory on the host share bytes."""
    if a is b or a.array is None or b.array is None:
        return a is b
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def replaced(
    step: LaunchStep, write: WriteStep, places: Sequence[Place], data: Data, offset: int
) -> list[int] | None:
    """Return the inputs, which lie in ``places``, that a launch straight into the window of
    ``data`` at an offset takes the place of; None where it would read what it has written."""
    found = []
    around = bool(step.group.graph.rolls)
    for number, (memory, start, layout) in zip(step.inputs, places, strict=True):
        if not overlaps(memory, data):
            continue
        # An element may take the place of the one it is made of, and of no other.
        same = memory is data and start == offset and layout is write.layout
        if not same or around:
            return None
        found.append(number)
    return found


def only_read(values: list[Value | None], number: int, step: LaunchStep, write: WriteStep) -> bool:
    """Tell whether nobody holds a value but a launch's nodes, apart from its bytes."""
    value = values[number]
    assert value is not None, number
    uses = uses_below(value, values, step, write)
    return uses is not None and sole(value, 1 + uses, sys.maxsize // 2)


def uses_below(
    old: Value, values: list[Value | None], step: LaunchStep, write: WriteStep
) -> int | None:
    """Return how many operands a value is of what a launch, whose result ``write`` takes, was
    recorded as; None where others may yet ask for a part of that, as other threads do."""
    target = values[write.target]
    assert target is not None, write
    bound = [number for number in step.outputs if number != write.value]
    return uses_within(old, values, step.nodes, bound, target)


def group_into(group: Group, output: int, window: Layout) -> Group:
    """Return the group with one of its results in memory of this layout."""
    graph = group.graph
    place = graph.outputs[output] - len(graph.inputs)
    nodes = list(graph.nodes)
    nodes[place] = replace(nodes[place], layout=window)
    return replace(group, graph=replace(graph, nodes=tuple(nodes)))


def write_there(where: Device, old: Data, window: Operand, value: Operand, in_place: bool) -> Data:
    """Return data on a device with the bytes of ``old`` and, in the window of them, a value that
    broadcasts to it. The buffers of both operands are ``Data``; the window does not meet itself.

    ``in_place``: nobody needs the old bytes, and the value is not among them. Raises what the
    backend raises.
    """
    backend = backend_of(where)
    kernel = _kernel(where.id, value.layout, window.layout)
    taken = value._replace(buffer=residency.buffer(value.buffer, where))
    target = residency.buffer(old, where)
    commands: list[Command] = []
    if not in_place:
        source, target = target, backend.allocate(where, old.nbytes)
        commands.append(Copy(source, target, old.nbytes, where.space, where.space))
    commands.append(Launch(kernel, (taken,), (window._replace(buffer=target),)))
    written = backend.submit(where, 0, commands)
    if not backend.late:
        backend.wait(written)
    LOG.count(launches=1)
    # Data of its own even in place: the old one's host copy is of the old bytes.
    if in_place and old.remote:
        old.remote = {space: kept for space, kept in old.remote.items() if space != where.space}
    return residency.made_on(where, old.layout, target)


def shared_copy(window: Operand, value: Operand) -> Callable[..., Any] | None:
    """Return what copies a value into a window on the host by all threads, given the addresses of
    both; None where NumPy does it as soon or in an order of its own, or while the kernel for it is
    not made."""
    size = window.layout.size
    if size * LINE_BYTES < _SHARED_BYTES or overlaps(value.buffer, window.buffer):
        return None
    axes = zip(window.layout.strides, window.layout.shape, strict=True)
    nearest = min([abs(step) for step, n in axes if n > 1], default=0)
    touched = size * min(max(nearest, window.layout.itemsize), LINE_BYTES)
    if touched < _SHARED_BYTES or thread_count() == 1:
        return None
    maker = _maker(value.layout, window.layout)
    if maker is None:
        return None
    # what is read and written of memory, and what one thread takes for it beyond all of them
    seconds = 2 * touched / _THREAD_RATE * (1.0 - 1.0 / thread_count())
    try:
        kernel = kernels.kernel(maker.device, maker.group, "generated", None, seconds, maker)
    except Unsupported:
        return None
    return None if kernel is None else kernel.launch


@lru_cache(1024)
def _maker(value: Layout, window: Layout) -> kernels.Maker | None:
    itself = meets_itself(window.shape, window.strides, window.itemsize)
    if itself or value.dtype != window.dtype:
        return None
    host, group = device(HOST_DEVICE), _copy_group(value, window)
    return None if unsupported(group) else kernels.Maker(host, group, None)


def _copy_group(value: Layout, window: Layout) -> Group:
    node = Node(OPS["copy"], (0,), (), window)
    return Group(GroupKind.LOOP, Graph((value,), (node,), (1,)), window.shape)


@lru_cache(1024)  # by structure; a program with more windows than this makes them anew
def _kernel(name: str, value: Layout, window: Layout) -> Any:
    where = device(name)
    group = _copy_group(value, window)
    gap: Unsupported | None = None
    for implementation in where.support.implementations:
        try:
            return kernels.kernel(where, group, implementation)
        except Unsupported as error:
            gap = error
    raise gap or Unsupported(f"{where.id} has no implementation")


register(Cache.PREPARED_STEPS, _kernel.cache_clear)
register(Cache.PREPARED_STEPS, _maker.cache_clear)
