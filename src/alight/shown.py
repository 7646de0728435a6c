"""Warnings that Python would not show again, so that NumPy need not be asked for them.

Python notes in a module's ``__warningregistry__`` what was shown at which of its lines, until a
filter changes. Kernels leave only flags behind: where all that NumPy could say of them is noted
there, or every warning is ignored, there is nothing to find out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from alight import warn
from alight._core.guard import WATCHED
from alight.backends.machine import CATEGORY
from alight.ir.op import Kind
from alight.sites import Names, names_of, place_of

if TYPE_CHECKING:
    from alight._core import Value
    from alight.ir.group import Graph, Node

__all__ = ["Excuse", "known", "may_raise"]

_WORDS = {category: words for words, category in CATEGORY.items()}
_ALL = frozenset(_WORDS)

# What NumPy can warn of, by op, on single and double floats: of the others everything. Signalling
# NaNs apart, which no arithmetic makes.
_RAISING = MappingProxyType(
    {
        name: frozenset(("under", *categories.split()))
        for categories, names in (
            ("over invalid", "add subtract multiply square sum cumsum"),
            ("invalid", "sqrt sin cos tan arcsin arccos arccosh rint floor ceil trunc"),
            ("divide invalid", "log log2 log10 log1p arctanh"),
            ("over", "exp exp2 expm1 sinh cosh hypot"),
            ("", "maximum minimum fmax fmin clip tanh arctan cbrt arcsinh sign copysign fabs"),
            ("", "conjugate min max amin amax all any"),
        )
        for name in names.split()
    }
)
_PLAIN = frozenset("?bBhHiIlLqQfd")


def may_raise(graph: Graph, node: Node) -> frozenset[str]:
    """Return the categories that NumPy may warn of when it computes a node."""
    layouts = [node.layout, *[graph.layout(number) for number in node.operands]]
    kinds = {layout.dtype.char for layout in layouts}
    if node.layout.dtype.kind == "b" or warn.is_quiet(graph, node):
        return frozenset()
    if not kinds <= _PLAIN or node.op.kind is Kind.LIBRARY:
        return _ALL
    return _RAISING.get(node.op.name, _ALL)


# -- what the registries say -----------------------------------------------------------------------

_Keys = list[tuple[Names, list[tuple[str, type, int]]]]
_warn_explicit: Callable[..., Any] = warnings.warn_explicit  # as Python has it


def _no_category(text: str) -> str:
    """Stand for the category of a warning: no class, so that no filter can be asked about it."""
    return text


_OWN = "", _no_category, 1


def _in_force(version: Any) -> bool:
    """Tell whether filters are as they were when a registry noted this version of them.

    Python tells nobody the version that holds; but a warning that is noted under it is dropped
    before the filters are looked at.
    """
    in_context = getattr(sys.flags, "context_aware_warnings", False)  # Python 3.14
    if version is None or in_context or not warnings.filters:
        return False
    try:
        _warn_explicit("", _no_category, "", 1, "", {"version": version, _OWN: True})
    except TypeError:
        return False
    return True


def _all_noted(keys: _Keys) -> bool:
    for names, own in keys:
        registry = names.get("__warningregistry__")
        if type(registry) is not dict or not all([registry.get(key) for key in own]):
            return False
        if not _in_force(registry.get("version")):
            return False
    return True


def _keys(
    graph: Graph, nodes: Iterable[tuple[Any, Any]], categories: frozenset[str]
) -> _Keys | None:
    """Return what NumPy may say of these categories, as registries have it, for nodes of which
    each has its site and its errstate; None where that is not known, or no warning."""
    found: dict[int, tuple[Names, list[tuple[str, type, int]]]] = {}
    for node, (site, state) in zip(graph.nodes, nodes, strict=True):
        if node.op.name in warn.WORDED:
            return None
        modes = warn.settings_of(state)
        for category in categories & may_raise(graph, node):
            if modes[category] == "ignore":
                continue
            names = None if site is None else names_of(site[0])
            if modes[category] != "warn" or names is None or warn.in_python(node):
                return None
            words = f"{_WORDS[category]} encountered in {warn.name_of(node)}"
            key = words, RuntimeWarning, place_of(site)[1]
            found.setdefault(id(names), (names, []))[1].append(key)
    return list(found.values())


def known(graph: Graph, heard: Iterable[str], values: Sequence[Value]) -> bool:
    """Tell whether all that NumPy may warn of in a group was shown before.

    ``values`` are the recorded values of the graph's nodes; ``heard`` is what happened, in words.
    """
    categories = frozenset([CATEGORY.get(what, what) for what in heard])
    if not categories <= _ALL:
        return False
    keys = _keys(graph, [(value.site, value.errstate) for value in values], categories)
    return keys is not None and _all_noted(keys)


class Excuse:
    """What the call guard asks when kernels have raised flags: whether NumPy would show nothing."""

    __slots__ = ("_graph", "_keys", "_nodes")

    def __init__(self, graph: Graph, nodes: Sequence[tuple[Any, Any]]) -> None:
        self._graph = graph
        here = warn.ERRSTATE.get()
        self._nodes = [(site, here if state is None else state) for site, state in nodes]
        self._keys: dict[int, _Keys | None] = {}

    def __call__(self, raised: int, *args: Any) -> bool:
        if raised not in self._keys:
            categories = frozenset([name for name, bit in WATCHED.items() if raised & bit])
            self._keys[raised] = _keys(self._graph, self._nodes, categories)
        keys = self._keys[raised]
        return keys is not None and (_all_noted(keys) or warn.telling() == "never")
