"""Which categories of floating-point warnings the nodes of a group may cause: whatever the op table
and the dtypes say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alight._src.fp_warnings.errstate import categories_of
from alight._src.ir.op import FlagsRaised, Kind, Warns
from alight.backends.machine import CATEGORY

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph, Node

# What generated code raises where NumPy says in words that there was no number.
OF_WORDS = frozenset(("invalid",))
ALL = frozenset(CATEGORY.values())
_PLAIN = frozenset("?bBhHiIlLqQfd")


def may_raise(graph: Graph, node: Node) -> frozenset[str]:
    """Return the categories that NumPy may warn of when it computes a node."""
    layouts = [node.layout, *[graph.layouts[number] for number in node.operands]]
    kinds = {layout.dtype.char for layout in layouts}
    if is_quiet(graph, node):
        return frozenset()
    if not kinds <= _PLAIN or node.op.kind is Kind.LIBRARY:
        return ALL  # comparisons of complex numbers, too
    if node.layout.dtype.kind == "b":
        return frozenset()
    return ALL if node.op.raises is None else node.op.raises | {"under"}


def is_quiet(graph: Graph, node: Node) -> bool:
    """Tell whether a node raises no flags, whatever its operands."""
    dtype, flags = node.layout.dtype, node.op.flags
    dtypes = [graph.layouts[operand].dtype for operand in node.operands]
    match flags:
        case FlagsRaised.LIKE_NUMPY:
            return dtype.kind in "biu"  # whole numbers wrap around
        case FlagsRaised.CAST:
            return all([given.kind in "biu" for given in dtypes]) and dtype.char != "e"
        case FlagsRaised.MOVE:
            return all([given == dtype for given in dtypes])
    return flags is FlagsRaised.NONE and all([given.kind != "c" for given in dtypes])


def wanted_of(graph: Graph, states: Sequence[Any]) -> frozenset[str]:
    """Return the categories that the state of some node which can raise a flag does not ignore."""
    found: frozenset[str] = frozenset()
    for node, state in zip(graph.nodes, states, strict=True):
        # truth values never warn
        if node.layout.dtype.kind != "b" and not is_quiet(graph, node):
            found |= categories_of(state)
        if node.op.warns is Warns.IN_WORDS:
            found |= OF_WORDS
    return found


def told_by_flags(graph: Graph) -> bool:
    """Tell whether the flags that a group's kernel leaves say which node raised them: by IEEE
    arithmetic, of which all others have none."""
    raising = [node for node in graph.nodes if not is_quiet(graph, node)]
    return len(raising) <= 1 and all(map(_raises_as_numpy, raising))


def _raises_as_numpy(node: Node) -> bool:
    # half floats are made of single ones, in other ways
    return node.op.flags is FlagsRaised.LIKE_NUMPY and node.layout.dtype.char in "fd"


def is_worded(graph: Graph) -> bool:
    """Tell whether NumPy may say something in words of one of the nodes."""
    return any([node.op.warns is Warns.IN_WORDS for node in graph.nodes])
