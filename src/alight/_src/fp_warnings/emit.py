"""Telling the program what its kernels met, in NumPy's words.

Kernels only leave flags behind. When one says that something happened which the recorded errstate
wants to hear of, the group is run once more through NumPy, node by node, to learn which op it was.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from alight._src.base.originals import np
from alight._src.fp_warnings.categories import is_quiet
from alight._src.fp_warnings.errstate import settings_of, wanted_by
from alight._src.fp_warnings.filters import collecting, warn_at, warnings_suppressed
from alight._src.ir.op import Warns
from alight._src.log.call_site import place_of
from alight.backends.machine import CATEGORY, clear_floating_point_flags, floating_point_flags

if TYPE_CHECKING:
    from alight._core import Value
    from alight._src.ir.graph import Graph, Node


def capturing(categories: frozenset[str], heard: list[str]) -> np.errstate:
    """Return a context in which NumPy appends each of these categories to ``heard`` when it
    occurs."""

    def call(what: str, flag: int) -> None:
        heard.append(what)

    return np.errstate(call=call, **_modes(categories))  # type: ignore[arg-type]


@cache
def _modes(categories: frozenset[str]) -> dict[str, str]:
    return {c: ("call" if c in categories else "ignore") for c in CATEGORY.values()}


class FlagCapture:
    """Listen, while a kernel runs, for categories: NumPy tells, generated code leaves flags
    behind. What NumPy says in words of ``worded`` groups is kept from the program until it is told
    at the recorded line."""

    __slots__ = ("block", "categories", "generated", "heard", "state", "words")

    def __init__(
        self, categories: frozenset[str], heard: list[str], implementation: str, worded: bool
    ) -> None:
        self.categories = categories
        self.heard = heard
        self.generated = implementation == "generated"
        self.block = collecting() if worded and not self.generated else None

    def __enter__(self) -> None:
        if self.block is not None:
            self.words = self.block.__enter__()
        if not self.generated:
            self.state = capturing(self.categories, self.heard)
            self.state.__enter__()
        elif self.categories:
            clear_floating_point_flags()

    def __exit__(self, *error: Any) -> None:
        if not self.generated:
            self.state.__exit__(*error)
        elif self.categories:
            self.heard.extend(self.categories & floating_point_flags())
        if self.block is not None:
            self.block.__exit__(*error)
            self.heard.extend([str(word.message) for word in self.words])


def computed(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """Return every value of a graph, its operands first, as NumPy computes them one by one; what
    there is to warn of is told elsewhere."""
    from alight.backends.host import run_node

    results = [*operands]
    with warnings_suppressed():
        for node in graph.nodes:
            results.append(np.asarray(run_node(node, [results[i] for i in node.operands])))
    return results


def tell(graph: Graph, inputs: Sequence[np.ndarray[Any, Any]], values: Sequence[Value]) -> None:
    """Run the nodes one by one in NumPy and emit what each one's own state asks for.

    ``values`` are the recorded values of the graph's nodes, in order.
    """
    from alight.backends.host import run_node

    results: list[Any] = list(inputs)
    several = set()  # ops with several outputs that were told of
    for node, value in zip(graph.nodes, values, strict=True):
        operands = [results[i] for i in node.operands]
        call = node.op, node.operands, value.site
        if call in several:
            with np.errstate(all="ignore"):
                results.append(run_node(node, operands))
            continue
        if node.attr("output") is not None:
            several.add(call)
        results.append(_told(node, operands, value))


def _told(node: Node, operands: Sequence[Any], value: Value) -> Any:
    """Return the node's result; what its state asks for is emitted before."""
    from alight.backends.host import run_node

    if node.op.warns is not Warns.BY_NAME:
        return _retold(node, operands, value)
    heard: list[str] = []
    with capturing(wanted_by((value,)), heard):
        result = run_node(node, operands)
    for what in dict.fromkeys(heard):
        _emit(what, node.op.called, settings_of(value.errstate)[CATEGORY[what]], value.site)
    return result


def _retold(node: Node, arrays: Sequence[Any], value: Value) -> Any:
    """Return the node's result; what NumPy warns of meanwhile is told at the recorded line."""
    from alight.backends.host import run_node

    settings: Any = settings_of(value.errstate)
    with collecting() as caught, np.errstate(**settings):
        result = run_node(node, arrays)
    for text in dict.fromkeys([str(warning.message) for warning in caught]):
        warn_at(text, value.site)
    return result


def tell_by_flags(graph: Graph, heard: Sequence[str], values: Sequence[Value]) -> None:
    """Emit what the node of a group that can raise flags asks for."""
    for node, value in zip(graph.nodes, values, strict=True):
        if not is_quiet(graph, node):
            modes = settings_of(value.errstate)
            for what, category in CATEGORY.items():
                if category in heard:
                    _emit(what, node.op.called, modes[category], value.site)


def tell_heard(graph: Graph, heard: Sequence[tuple[int, str]], values: Sequence[Value]) -> None:
    """Emit what nodes, by their indices, were heard to cause."""
    for index, what in heard:
        modes = settings_of(values[index].errstate)
        name = graph.nodes[index].op.called
        _emit(what, name, modes[CATEGORY[what]], values[index].site)


def _emit(what: str, name: str, mode: str, site: Any) -> None:
    message = f"{what} encountered in {name}"
    if mode == "print":
        print(f"Warning: {message}", file=sys.stderr)
    elif mode == "warn":
        warn_at(message, site)


def note(error: BaseException, value: Value) -> None:
    """Have a late error say where the value it is about was recorded, unless it says so."""
    if not getattr(error, "__notes__", None):
        path, line = place_of(value.site)
        error.add_note(f"recorded at {path}:{line}")
