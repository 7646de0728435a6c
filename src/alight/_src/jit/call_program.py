"""A traced call kept as a program: its plan, where its operands come from, and the form of its
results, for ndarrays (``host_program``) and for Arrays (``array_program``) alike.

A program is made only of a trace in which nobody asked for an element of the arguments; everything
else it depends on (layouts, scalars, globals) is in the key and the lookups that whoever keeps it
checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alight._core import ArrayBase, Layout, Value, View
from alight._src.fp_warnings.errstate import asked
from alight._src.ir.graph import Graph
from alight._src.jit.exchange import attributes
from alight._src.jit.scalar import Scalar
from alight._src.plan.plan import Plan
from alight._src.run import evaluate
from alight._src.run.execute import WriteOrder

__all__ = ["SCALARS", "Argument", "Fixed", "Fresh", "Leaf", "Making", "NotKept", "Program", "Tree"]


SCALARS = (int, float, complex, bool, str, type(None))


class NotKept(Exception):
    """Raised where a trace cannot be kept as a program."""


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
                raise error
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
        raise NotImplementedError

    def fresh(self, form: Fresh, values: dict[int, Value], made: dict[Any, Any]) -> Any:
        """Return what the plan made."""
        raise NotImplementedError


class Making:
    """A program in the making, of a body that has just run, its work not yet done."""

    def __init__(self) -> None:
        self.roots: list[Value] = []
        self._slots: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []  # what ids in these dicts are of

    def fixed(self, item: Any) -> bool:
        """Tell whether a result is the same object at every call."""
        return type(item) in SCALARS

    def argument(self, slot: int, array: Any) -> Argument | None:
        """Return the form of a result that is an argument, or a window of one."""
        raise NotImplementedError

    def leaf(self, value: Value) -> Any:
        """Return the leaf that a value is, or the value, which is constant."""
        raise NotImplementedError

    def root(self, value: Value) -> None:
        """Make a pending value a root."""
        if not any(value is root for root in self.roots):
            self.roots.append(value)

    def form_of(self, item: Any) -> Any:
        """Return the form of a result; what has none is no program's."""
        self._alive.append(item)
        kind = type(item)
        if isinstance(item, ArrayBase):
            return self._array(item)
        if kind is dict:
            return Tree(dict, tuple([self.form_of(part) for part in item.values()]), tuple(item))
        named = isinstance(item, tuple) and hasattr(item, "_fields") and not attributes(item)
        if kind in (tuple, list) or named:
            return Tree(kind, tuple([self.form_of(part) for part in item]), ())
        if self.fixed(item):
            return Fixed(item)
        raise NotKept

    def _array(self, array: Any) -> Any:
        slot = self._slots.setdefault(id(array), len(self._slots))
        argument = self.argument(slot, array)
        if argument is not None:
            return argument
        value = array.storage.value
        if value.op is None:
            raise NotKept  # made and not computed: every call must make its own
        self.root(value)
        memory = self._storages.setdefault(id(array.storage), len(self._storages))
        return Fresh(slot, id(value), array.window, type(array) is Scalar, memory)

    def prepared(self, default_errstate: Any, read: bool) -> tuple[evaluate.Prepared, Any, Any]:
        """Return what a request for the roots would run, its leaves, and the lines and errstates of
        its nodes."""
        if not self.roots:
            raise NotKept  # nothing is computed: the body itself is as quick
        prepared = evaluate.prepare(self.roots, read)
        self._numbers = {
            id(value): number for number, value in enumerate((*prepared.leaves, *prepared.pending))
        }
        leaves = tuple([self.leaf(leaf) for leaf in prepared.leaves])
        nodes = [
            (v.site, None if v.errstate is default_errstate else asked(v.errstate))
            for v in prepared.pending
        ]
        return prepared, leaves, tuple(nodes)

    def number(self, value: Value) -> int:
        """Return the number of a value of what is prepared."""
        return self._numbers[id(value)]

    def numbered(self, form: Any) -> Any:
        """Return a form with values by their numbers in place of their ids."""
        if type(form) is Fresh:
            return form._replace(value=self._numbers[form.value])
        if type(form) is Tree:
            return form._replace(parts=tuple([self.numbered(part) for part in form.parts]))
        return form
