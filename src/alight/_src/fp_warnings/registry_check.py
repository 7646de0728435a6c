"""Warnings that Python would not show again, so that NumPy need not be asked for them.

Python notes in a module's ``__warningregistry__`` what was shown at which of its lines, until a
filter changes. Kernels leave only flags behind: where all that NumPy could say of them is noted
there, or every warning is ignored, there is nothing to find out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._core.guard import WATCHED
from alight._src.base.failures import failures
from alight._src.fp_warnings.categories import ALL, may_raise
from alight._src.fp_warnings.errstate import ERRSTATE, settings_of
from alight._src.fp_warnings.filters import when_to_warn
from alight._src.ir.op import Warns
from alight._src.log.call_site import Names, names_of, place_of
from alight.backends.machine import CATEGORY

if TYPE_CHECKING:
    from alight._core import Value
    from alight._src.ir.graph import Graph

__all__ = ["AlreadyShown", "NodeCategories", "was_shown"]

_WORDS = {category: words for words, category in CATEGORY.items()}


# -- what the registries say -----------------------------------------------------------------------

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
    except failures(TypeError):
        return False
    return True


NodeCategories = frozenset[tuple[int, str]]  # which node, and what it may warn of


class _Possible(NamedTuple):
    """What NumPy may say of a node: which one, of what, and how registries have it."""

    node: int
    category: str
    names: Names
    key: tuple[str, type, int]


def _not_noted(possible: Sequence[_Possible]) -> list[_Possible]:
    """Return those that Python would show."""
    left: list[_Possible] = []
    versions: dict[int, bool] = {}
    for one in possible:
        registry = one.names.get("__warningregistry__")
        if type(registry) is dict and registry.get(one.key):
            held = versions.get(id(registry))
            if held is None:
                held = versions[id(registry)] = _in_force(registry.get("version"))
            if held:
                continue
        left.append(one)
    return left


def _possible(
    graph: Graph, nodes: Iterable[tuple[Any, Any]], categories: frozenset[str]
) -> list[_Possible] | None:
    """Return what NumPy may say of these categories, for nodes of which each has its site and its
    errstate; None where that is not known, or no warning."""
    found = []
    for number, (node, (site, state)) in enumerate(zip(graph.nodes, nodes, strict=True)):
        if node.op.warns is Warns.IN_WORDS:
            return None
        modes = settings_of(state)
        for category in categories & may_raise(graph, node):
            if modes[category] == "ignore":
                continue
            names = None if site is None else names_of(site[0])
            if modes[category] != "warn" or names is None or node.op.warns is not Warns.BY_NAME:
                return None
            words = f"{_WORDS[category]} encountered in {node.op.called}"
            key = words, RuntimeWarning, place_of(site)[1]
            found.append(_Possible(number, category, names, key))
    return found


def was_shown(graph: Graph, heard: Iterable[str], values: Sequence[Value]) -> bool:
    """Tell whether all that NumPy may warn of in a group was shown before.

    ``values`` are the recorded values of the graph's nodes; ``heard`` is what happened, in words.
    """
    categories = frozenset([CATEGORY.get(what, what) for what in heard])
    if not categories <= ALL:
        return False
    found = _possible(graph, [(value.site, value.errstate) for value in values], categories)
    return found is not None and not _not_noted(found)


class _Noted:
    """What was found of possible, for as long as registries and filters are as they were."""

    __slots__ = ("_registries", "left", "nodes", "silent")

    def __init__(self, possible: Sequence[_Possible]) -> None:
        self.left = _not_noted(possible)
        self.nodes = frozenset([(one.node, one.category) for one in self.left])
        self.silent = not self.left
        by_names: dict[int, tuple[Names, list[Any]]] = {}
        for one in possible:
            own = by_names.setdefault(id(one.names), (one.names, []))[1]
            if one not in self.left:
                own.append(one.key)
        self._registries: list[tuple[Names, dict[Any, Any], Any, int, list[Any]]] = []
        for names, keys in by_names.values():
            found = names.get("__warningregistry__")
            registry: dict[Any, Any] = found if type(found) is dict else {}
            version = registry.get("version")
            self._registries.append((names, registry, version, len(registry), keys))

    def holds(self) -> bool:
        for names, registry, version, count, keys in self._registries:
            if names.get("__warningregistry__") is not registry or version is None:
                return False
            if len(registry) != count or registry.get("version") != version:
                return False
            for key in keys:
                if not registry.get(key):
                    return False
            if not _in_force(version):
                return False
        return True


class AlreadyShown:
    """What the call guard asks when kernels have raised flags: whether NumPy would show nothing.

    ``none_raised(flags, nodes, args)`` tells of nodes and categories that were not shown whether
    none of them is what raised the flags.
    """

    __slots__ = ("_graph", "_nodes", "_possible", "_seen", "none_raised")

    def __init__(self, graph: Graph, nodes: Sequence[tuple[Any, Any]]) -> None:
        self._graph = graph
        here = ERRSTATE.get()
        self._nodes = [(site, here if state is None else state) for site, state in nodes]
        self._possible: dict[int, list[_Possible] | None] = {}
        self._seen: dict[int, _Noted] = {}
        self.none_raised: Callable[[int, NodeCategories, tuple[Any, ...]], bool] | None = None

    def __call__(self, raised: int, *args: Any) -> bool:
        seen = self._seen.get(raised)
        if seen is None or not seen.holds():
            found = self._of(raised)
            if found is None:
                return False
            seen = self._seen[raised] = _Noted(found)
        if seen.silent:
            return True
        if self.none_raised is not None and self.none_raised(raised, seen.nodes, args):
            return True
        return when_to_warn() == "never"

    def _of(self, raised: int) -> list[_Possible] | None:
        if raised not in self._possible:
            categories = frozenset([name for name, bit in WATCHED.items() if raised & bit])
            self._possible[raised] = _possible(self._graph, self._nodes, categories)
        return self._possible[raised]
