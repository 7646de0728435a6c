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

from alight import warn
from alight._core.guard import WATCHED
from alight.backends.machine import CATEGORY
from alight.ir.op import Kind
from alight.sites import Names, names_of, place_of

if TYPE_CHECKING:
    from alight._core import Value
    from alight.ir.group import Graph, Node

__all__ = ["Excuse", "Nodes", "known", "may_raise"]

_WORDS = {category: words for words, category in CATEGORY.items()}
_ALL = frozenset(_WORDS)

_PLAIN = frozenset("?bBhHiIlLqQfd")


def may_raise(graph: Graph, node: Node) -> frozenset[str]:
    """Return the categories that NumPy may warn of when it computes a node."""
    layouts = [node.layout, *[graph.layout(number) for number in node.operands]]
    kinds = {layout.dtype.char for layout in layouts}
    moves = node.op.kind in (Kind.VIEW, Kind.MOVEMENT) and node.op.name != "pad"  # which computes
    if moves and len(kinds) == 1:
        return frozenset()
    if warn.is_quiet(graph, node):
        return frozenset()
    if not kinds <= _PLAIN or node.op.kind is Kind.LIBRARY:
        return _ALL  # comparisons of complex numbers, too
    if node.layout.dtype.kind == "b":
        return frozenset()
    return _ALL if node.op.raises is None else node.op.raises | {"under"}


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
    except TypeError:
        return False
    return True


Nodes = frozenset[tuple[int, str]]  # which one, and a category


class Candidate(NamedTuple):
    """What NumPy may say of a node: which one, of what, and how registries have it."""

    node: int
    category: str
    names: Names
    key: tuple[str, type, int]


def _not_noted(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that Python would show."""
    left: list[Candidate] = []
    versions: dict[int, bool] = {}
    for one in candidates:
        registry = one.names.get("__warningregistry__")
        if type(registry) is dict and registry.get(one.key):
            held = versions.get(id(registry))
            if held is None:
                held = versions[id(registry)] = _in_force(registry.get("version"))
            if held:
                continue
        left.append(one)
    return left


def _candidates(
    graph: Graph, nodes: Iterable[tuple[Any, Any]], categories: frozenset[str]
) -> list[Candidate] | None:
    """Return what NumPy may say of these categories, for nodes of which each has its site and its
    errstate; None where that is not known, or no warning."""
    found = []
    for number, (node, (site, state)) in enumerate(zip(graph.nodes, nodes, strict=True)):
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
            found.append(Candidate(number, category, names, key))
    return found


def known(graph: Graph, heard: Iterable[str], values: Sequence[Value]) -> bool:
    """Tell whether all that NumPy may warn of in a group was shown before.

    ``values`` are the recorded values of the graph's nodes; ``heard`` is what happened, in words.
    """
    categories = frozenset([CATEGORY.get(what, what) for what in heard])
    if not categories <= _ALL:
        return False
    found = _candidates(graph, [(value.site, value.errstate) for value in values], categories)
    return found is not None and not _not_noted(found)


class _Seen:
    """What was found of candidates, for as long as registries and filters are as they were."""

    __slots__ = ("_registries", "left", "nodes", "silent")

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.left = _not_noted(candidates)
        self.nodes = frozenset([(one.node, one.category) for one in self.left])
        self.silent = not self.left
        by_names: dict[int, tuple[Names, list[Any]]] = {}
        for one in candidates:
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


class Excuse:
    """What the call guard asks when kernels have raised flags: whether NumPy would show nothing.

    ``absent(flags, nodes, args)`` tells of nodes and categories that were not shown whether none of
    them is what raised the flags.
    """

    __slots__ = ("_candidates", "_graph", "_nodes", "_seen", "absent")

    def __init__(self, graph: Graph, nodes: Sequence[tuple[Any, Any]]) -> None:
        self._graph = graph
        here = warn.ERRSTATE.get()
        self._nodes = [(site, here if state is None else state) for site, state in nodes]
        self._candidates: dict[int, list[Candidate] | None] = {}
        self._seen: dict[int, _Seen] = {}
        self.absent: Callable[[int, Nodes, tuple[Any, ...]], bool] | None = None

    def __call__(self, raised: int, *args: Any) -> bool:
        seen = self._seen.get(raised)
        if seen is None or not seen.holds():
            found = self._of(raised)
            if found is None:
                return False
            seen = self._seen[raised] = _Seen(found)
        if seen.silent:
            return True
        if self.absent is not None and self.absent(raised, seen.nodes, args):
            return True
        return warn.telling() == "never"

    def _of(self, raised: int) -> list[Candidate] | None:
        if raised not in self._candidates:
            categories = frozenset([name for name, bit in WATCHED.items() if raised & bit])
            self._candidates[raised] = _candidates(self._graph, self._nodes, categories)
        return self._candidates[raised]
