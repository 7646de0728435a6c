"""A traced call kept as a program: its plan, where its operands come from, and the form of its
results, for ndarrays (``host_program``) and for Arrays (``array_program``) alike.

A program is made only of a trace in which nobody asked for an element of the arguments; everything
else it depends on (layouts, scalars, globals) is in the key and the lookups that whoever keeps it
checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alight._core import Layout, Value, View
from alight._src.ir.graph import Graph
from alight._src.plan.plan import Plan
from alight._src.run import evaluate
from alight._src.run.written_steps import WriteOrder

__all__ = ["SCALARS", "Argument", "Fixed", "Fresh", "Leaf", "Program", "Tree"]


SCALARS = (int, float, complex, bool, str, type(None))


class Leaf(NamedTuple):
    """An operand of the plan that is an argument, or a window of one."""

    number: int
    layout: Layout
    offset: int


class Fixed(NamedTuple):
    """A result that is the same object at every call."""

    item: Any


class Argument(NamedTuple):
    """An argument itself, or a window of it. ``slot``: equal where the body returned one object
    twice."""

    slot: int
    number: int
    window: tuple[Layout, int, bool] | None


class Fresh(NamedTuple):
    """A value of the plan, or a window of one.

    ``slot``: equal where the body returned one object twice; ``memory``: where two results are
    views of one array.
    """

    slot: int
    value: int
    window: View | None
    scalar: bool
    memory: int


class Tree(NamedTuple):
    """Results in a tuple, list, dict (with its keys) or named tuple."""

    kind: Any
    parts: tuple[Any, ...]
    keys: tuple[Any, ...]


class Program:
    """One traced call, to be run again on other arguments of the same layouts."""

    def __init__(
        self,
        prepared: evaluate.Prepared,
        leaves: tuple[Any, ...],
        nodes: tuple[tuple[Any, Any], ...],
        form: Any,
    ) -> None:
        self.graph: Graph = prepared.graph
        self.plan: Plan = prepared.plan
        self.described = prepared.described
        self.site = prepared.pending[0].site if prepared.pending else None
        self.leaves = leaves  # leaves, and values that are constant
        self.nodes = nodes  # the line and, unless it was the default, the errstate of each node
        self.form = form
        self._outputs = frozenset(prepared.graph.outputs)

    def compute(self, bases: list[Any], order: WriteOrder | None = None) -> dict[int, Value]:
        """Return the outputs by number, computed of the values of the arguments. That list is used
        up: a value that is written in place must be held by nobody else, and in its turn."""
        values: list[Value | None] = []
        for leaf in self.leaves:
            if type(leaf) is Leaf:
                value = bases[leaf.number]
                if leaf.layout is not value.layout or leaf.offset != value.offset:
                    alias = Value(None, (), (), leaf.layout)
                    alias.data, alias.offset = value.data, leaf.offset
                    value = alias
                    del alias
                values.append(value)
                del value
            else:
                values.append(leaf)
        bases.clear()
        kept = {}
        for number, (node, (site, errstate)) in enumerate(
            zip(self.graph.nodes, self.nodes, strict=True), len(values)
        ):
            shell = Value(node.op, (), (), node.layout, site)
            if errstate is not None:
                shell.errstate = errstate
            if number in self._outputs:
                kept[number] = shell
            values.append(shell)
            del shell
        evaluate.replay(self.plan, values, order)
        for value in kept.values():
            if value.error is not None:
                error, value.error = value.error, None
                try:
                    raise error
                finally:
                    del error  # it leads to this frame
        return kept

    def build(
        self, form: Any, given: Sequence[Any], values: dict[int, Value], made: dict[Any, Any]
    ) -> Any:
        """Return results in the form the body gave them; ``made`` are those by slot."""
        if type(form) is Fixed:
            return form.item
        if type(form) is Tree:
            parts = [self.build(part, given, values, made) for part in form.parts]
            if form.kind is dict:
                return dict(zip(form.keys, parts, strict=True))
            return (
                form.kind(parts) if form.kind in (tuple, list) else tuple.__new__(form.kind, parts)
            )
        if type(form) is Argument and form.window is None:
            return given[form.number]
        found = made.get(form.slot)
        if found is None:
            if type(form) is Argument:
                found = self.window(given[form.number], form)
            else:
                found = self.fresh(form, values, made)
            made[form.slot] = found
        return found

    def window(self, given: Any, form: Argument) -> Any:
        """Return a window of an argument."""
        raise NotImplementedError("window: a subclass gives the window of its kind of argument")

    def fresh(self, form: Fresh, values: dict[int, Value], made: dict[Any, Any]) -> Any:
        """Return what the plan made."""
        raise NotImplementedError(
            "fresh: a subclass gives the result that its plan made, as an array"
        )
