"""Which results take the memory of a temporary that dies where they are made.

What a kernel reads and writes at the same place stays in the caches, and is memory that the program
need not have twice. Kernels allow for it, but for those that roll: they store an element after all
that is made of it was read. What a kernel warns of is found out by running it again on its
operands, though, and one of these is gone then. So only values take part that steps made of what is
still there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from alight._src.base.records import replace
from alight._src.ir.graph import GroupKind
from alight._src.plan.plan import LaunchStep, Step, ViewStep
from alight.device import HOST_DEVICE

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.graph import Graph

# Steps that making a value again may take; a chain of more is as long as a program.
_STEPS = 16


def reusing(
    graph: Graph,
    bases: Sequence[int],
    windows: Collection[int],
    steps: Sequence[Step],
    last: list[int],
) -> list[Step]:
    """Return the steps, those that may write over an operand saying so.

    ``last`` are the steps that need each value last; what making an operand again needs lives on,
    where no more memory is needed then than was before. ``bases`` are those of the graph's inputs,
    of which ``windows`` are less than their memory.
    """
    return _Reuse(graph, bases, windows, steps, last).done()


class _Reuse:
    def __init__(
        self,
        graph: Graph,
        bases: Sequence[int],
        windows: Collection[int],
        steps: Sequence[Step],
        last: list[int],
    ) -> None:
        self.graph = graph
        self.steps = list(steps)
        self.last = last
        self.base = dict(enumerate(bases))
        # of each memory: its bytes, as far as they are known; and of which they are
        self.nbytes: dict[int, int] = {}
        self.known = {bases[number] for number in self.base if number not in windows}
        self.maker: dict[int, LaunchStep] = {}
        self.written: set[int] = set()
        for step in steps:
            if isinstance(step, LaunchStep):
                self.maker.update(dict.fromkeys(step.outputs, step))
            elif isinstance(step, ViewStep):
                self.base[step.target] = self.base.get(step.source, step.source)
            else:
                self.written.add(self.base.get(step.old, step.old))
        self.alive = self.alive_bytes()
        self.most = max(self.alive, default=0)

    def alive_bytes(self) -> list[int]:
        """Return the bytes in use while each step runs, by inputs and by what kernels make;
        scalars are not counted. Memory lives as long as one of its windows."""
        starts: dict[int, int] = {}
        for number, layout in enumerate(self.graph.inputs):
            base = self.base[number]
            self.nbytes[base] = max(self.nbytes.get(base, 0), _bytes(layout))
            starts[base] = 0
        for index, step in enumerate(self.steps):
            if isinstance(step, LaunchStep):
                group = step.group.graph
                for number, inner in zip(step.outputs, group.outputs, strict=True):
                    self.nbytes[number] = _bytes(group.layouts[inner])
                    starts[number] = index
        change = [0] * (len(self.steps) + 1)
        for base, start in starts.items():
            change[start] += self.nbytes[base]
            change[min(self.last[base] + 1, len(self.steps))] -= self.nbytes[base]
        return list(accumulate(change[:-1]))

    def done(self) -> list[Step]:
        """Return the steps."""
        for index, step in enumerate(self.steps):
            if not isinstance(step, LaunchStep) or step.group.kind is not GroupKind.LOOP:
                continue
            if (step.device, step.implementation) == (HOST_DEVICE, "generated"):
                over = self.over(index, step)
                if over is not None:
                    self.steps[index] = replace(step, over=over)
        return self.steps

    def over(self, index: int, step: LaunchStep) -> tuple[int, int] | None:
        """Return which output may take the place of which input, both by their position."""
        group = step.group.graph
        if group.rolls:  # an element is read again for those beside it
            return None
        found = [self.base.get(number, number) for number in step.inputs]
        for place, number in enumerate(step.inputs):
            layout = group.inputs[place]
            if number not in self.maker or self.last[number] != index or layout.size < 2:
                continue
            if not layout.dense or layout.shape != step.group.shape:
                continue
            if found.count(found[place]) > 1:
                continue
            for output, inner in enumerate(group.outputs):
                if group.layouts[inner] is layout and self.kept(number, index, layout):
                    return output, place
        return None

    def kept(self, number: int, index: int, layout: Layout) -> bool:
        """Tell whether a value can be made again after a step; keep what that needs."""
        needed: set[int] = set()
        made: set[int] = set()
        ready = [number]
        while ready:
            one = ready.pop()
            if one in made:
                continue
            made.add(one)
            if one not in self.maker or len(made) > _STEPS:
                return False
            for operand in self.maker[one].inputs:
                if self.last[operand] >= index:
                    continue
                if operand >= len(self.graph.inputs):
                    ready.append(operand)
                elif self.base[operand] in self.written:
                    return False
                else:
                    needed.add(operand)
        alive = list(self.alive)
        alive[index] -= _bytes(layout)
        longer = {base for n in needed if self.last[base := self.base[n]] < index}
        for base in longer:
            for later in range(self.last[base] + 1, index + 1):
                alive[later] += self.nbytes[base]
        if not longer <= self.known or max(alive) > self.most:
            return False
        self.alive = alive
        for operand in (*needed, *longer):
            self.last[operand] = index
        return True


def _bytes(layout: Layout) -> int:
    return layout.nbytes if layout.size > 1 else 0
