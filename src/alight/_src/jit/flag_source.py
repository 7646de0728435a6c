"""Which nodes of a program raised the flags that its kernels left, found out by a kernel.

A NaN that comes of none is an invalid operation, an infinity that comes of finite numbers an
overflow or a division by zero. Where several nodes may have raised a flag and Python would show
some of their warnings again, to look for those takes as long as the kernel, and to ask NumPy as
long as NumPy.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from weakref import ref

from alight._core import layout_of
from alight._core.guard import WATCHED, Entry
from alight._src.base.originals import np
from alight._src.fp_warnings.registry_check import NodeCategories
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import Kind
from alight._src.ir.op_table import OPS
from alight._src.jit.call_signature import describe
from alight._src.jit.guard_entries import SILENT, generated, kernel_entry
from alight._src.jit.host_program import HostProgram, watching
from alight._src.run.plans_behind import Behind
from alight._src.run.prepared_step import kernel_at_hand

__all__ = ["FlagSearch"]

# Of a set of nodes: how often NumPy is asked before a kernel is made, and how often one may find
# that they did raise it before it is asked no more.
_MET, _FOUND = 2, 3
_KEPT = 4  # sets of one program: each has a kernel


# Which nodes may have raised what, and whether something overflowed, which sums then do not tell
# from a NaN.
_Sought = tuple[NodeCategories, bool]


class FlagSearch:
    """The kernels that look for what raised flags in a program."""

    def __init__(self, program: HostProgram, lookups: Any) -> None:
        # an entry that holds its program would keep it for good: it is known by programs
        self._of = ref(program)
        self.lookups = lookups
        self._met: Counter[_Sought] = Counter()
        self._found: Counter[_Sought] = Counter()
        self._programs: dict[_Sought, HostProgram | None] = {}
        self._entries: dict[_Sought, Entry] = {}

    def none_raised(self, raised: int, nodes: NodeCategories, args: tuple[Any, ...]) -> bool:
        """Tell whether these nodes are none of those that raised the flags."""
        sought = nodes, bool(raised & WATCHED["over"])
        entry = self._entries.get(sought)
        if entry is None:
            self._met[sought] += 1
            if self._met[sought] <= _MET:
                return False
            entry = self._entry(sought, args)
        elif self._found[sought] >= _FOUND:
            return False
        if entry is None or not entry.matches(args):
            return False
        found = entry.run(args)
        if found is NotImplemented:
            return False
        if any(found):
            self._found[sought] += 1
            return False
        return True

    def _entry(self, sought: _Sought, args: tuple[Any, ...]) -> Entry | None:
        if sought not in self._programs:
            of = self._of()
            if of is None or len(self._programs) >= _KEPT:
                return None
            self._programs[sought] = _search_program(of, *sought)
        program = self._programs[sought]
        described = describe(args, {})
        if program is None or described is None:
            return None
        try:
            launchable = generated(program)[1]
        except Behind:
            return None
        if launchable is None:
            self._programs[sought] = None
            return None
        steps = [step for step in launchable.steps if step.implementation == "generated"]
        if not all(map(kernel_at_hand, steps)):
            return None  # it is made meanwhile
        entry = kernel_entry(launchable, args, described.arrays, self.lookups)
        if entry is None:
            self._programs[sought] = None
        else:
            self._entries[sought] = entry
        return entry


class _SearchGraph:
    """A graph in the making: what the nodes of interest are made of, and what is asked of them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.numbers: dict[int, int] = {n: n for n in range(len(graph.inputs))}
        self.layouts = [*graph.inputs]
        self.made: dict[tuple[str, tuple[int, ...]], int] = {}

    def value(self, number: int) -> int:
        """Return the number here of a value of the program."""
        if number not in self.numbers:
            ready = [number]
            while ready:
                node = self.graph.nodes[ready[-1] - len(self.graph.inputs)]
                missing = [n for n in node.operands if n not in self.numbers]
                if missing:
                    ready += missing
                    continue
                last = ready.pop()
                if last not in self.numbers:
                    operands = tuple([self.numbers[n] for n in node.operands])
                    self.numbers[last] = self.add(Node(node.op, operands, node.attrs, node.layout))
        return self.numbers[number]

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        self.layouts.append(node.layout)
        return len(self.layouts) - 1

    def asked(self, name: str, *operands: int) -> int:
        """Return the number of a truth value for each element of the first operand."""
        key = name, operands
        if key not in self.made:
            truths = np.empty_like(self.layouts[operands[0]].probe, dtype=bool, subok=False)
            self.made[key] = self.add(Node(OPS[name], operands, (), layout_of(truths)))
        return self.made[key]

    def anywhere(self, number: int) -> int:
        """Return the number of whether a truth value holds for some element."""
        axes = tuple(range(self.layouts[number].ndim))
        if not axes:
            return number
        attrs = (("axis", axes), ("keepdims", False))
        return self.add(Node(OPS["any"], (number,), attrs, layout_of(np.empty((), bool))))


def _search_program(program: HostProgram, nodes: NodeCategories, over: bool) -> HostProgram | None:
    """Return the program that tells, by shapes, whether some of the nodes raised what they may;
    None where that is not seen in their results."""
    graph = program.graph
    work = _SearchGraph(graph)
    by_shape: dict[Any, list[int]] = {}
    for number, category in sorted(nodes):
        node = graph.nodes[number]
        finite = node.op.signs
        chars = {node.layout.dtype.char, *[graph.layouts[n].dtype.char for n in node.operands]}
        if finite is None or not chars <= set("fd"):
            return None
        operands = [work.value(n) for n in node.operands]
        if node.op.kind is Kind.REDUCTION:
            if category != "invalid" or over:
                return None
            truth = work.asked("isinf", operands[0])
        else:
            result = work.value(len(graph.inputs) + number)
            truth = work.asked("isnan" if category == "invalid" else "isinf", result)
            for place, operand in enumerate(operands):
                if category == "invalid":
                    usual = work.asked("logical_not", work.asked("isnan", operand))
                elif place in finite:
                    usual = work.asked("isfinite", operand)
                else:
                    continue
                truth = work.asked("logical_and", truth, usual)
        layout = work.layouts[truth]
        by_shape.setdefault(layout, []).append(truth)
    outputs = []
    for truths in by_shape.values():
        whole = truths[0]
        for truth in truths[1:]:
            whole = work.asked("logical_or", whole, truth)
        outputs.append(work.anywhere(whole))
    made = Graph(graph.inputs, tuple(work.nodes), tuple(outputs))
    return watching(program, made, SILENT)
