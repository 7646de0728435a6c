"""Loops that earlier starts met, kept in the store: the next start has them where they are best,
and their device opened, from turn one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import time
from typing import Any, NamedTuple

from alight._core import Layout
from alight._src.base.at_exit import when_over
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight._src.base.uninterrupted import bring
from alight._src.ir.graph import Graph
from alight._src.measure.profiles import code_fingerprint
from alight._src.plan.rent_or_buy import Trust, Turns
from alight._src.store import default_store, digest
from alight.backends import registry
from alight.device import HOST_DEVICE

__all__ = ["Known", "all_known", "any_known", "keep_at_end", "known", "name_of", "structure"]

# An input of a request as its key has it (`evaluate.Leaf`).
Leaf = tuple[Layout, frozenset[str], int, int]

_KIND = "loops"
# Part of the key: raise it when a document says something else.
_VERSION = 1
# What plans are made of: another version's requests have other structures.
_FOLDERS = ("_src/ir", "_src/plan")
# Loops that are kept, those met last: a program has a few, each takes some hundred bytes.
_KEPT = 256
# Starts whose turns are remembered: the least of them is expected, so that one short start tells.
_STARTS = 3


class Known(NamedTuple):
    """A loop as an earlier start left it. ``stages`` are the structures of a turn's requests, each
    with the inputs that are kept over there, and whether it belongs there."""

    name: str
    device: str
    fingerprint: str
    stages: tuple[tuple[str, frozenset[int], bool], ...]
    home_seconds: float
    best_seconds: float
    copy_seconds: float
    moving_seconds: float
    back_seconds: float
    keeps_bits: bool
    lines: tuple[str, ...]
    starts: tuple[int, ...]

    @property
    def expected(self) -> Turns:
        """Return how many turns are to come, by the shortest of the latest starts."""
        gain = self.home_seconds - self.best_seconds
        return Turns(min(self.starts), Trust.EARLIER_STARTS, gain)

    def row(self) -> dict[str, Any]:
        """Return what is written of it."""
        stages = [[name, sorted(kept), away] for name, kept, away in self.stages]
        return {**self._asdict(), "stages": stages, "seen_at": time()}


def structure(graph: Graph, leaves: Sequence[Leaf], read: int) -> str | None:
    """Return what later processes know requests of a structure by; None for what has no name."""
    bring("alight._src.plan.plan_text")
    from alight._src.plan.plan_text import NotWritten, graph_document

    try:
        asked = graph_document(graph)
    except NotWritten:
        return None
    return digest([asked, [[base, nbytes] for _, _, base, nbytes in leaves], read], _KIND)


def name_of(structures: Sequence[str]) -> str:
    """Return what a loop of requests of these structures is known by."""
    return digest([*structures], _KIND)


@cache
def _key() -> str:
    # how many turns a loop takes is the program's
    program = os.path.abspath((getattr(sys, "argv", None) or [""])[0])
    code = code_fingerprint(registry.device(HOST_DEVICE), *_FOLDERS)
    return digest([_VERSION, code, np.__version__, program], _KIND)


@cache
def _earlier() -> Mapping[str, tuple[Known, ...]]:
    """Return the loops of earlier starts by the structures in them; read once, as a process goes by
    what was known when it began."""
    found: dict[str, tuple[Known, ...]] = {}
    for row in (default_store().read(_KIND, _key()) or {}).values():
        try:
            one = _of_row(row)
        except failures(AttributeError, KeyError, TypeError, ValueError):  # whoever wrote it
            continue
        for name, _, _ in one.stages:
            found[name] = (*found.get(name, ()), one)
    return found


register(Cache.PROFILES, _earlier.cache_clear)
register(Cache.PROFILES, _key.cache_clear)


def _of_row(row: Mapping[str, Any]) -> Known:
    stages = tuple(
        [(str(name), frozenset(map(int, kept)), bool(away)) for name, kept, away in row["stages"]]
    )
    starts = tuple(map(int, row["starts"]))
    if not stages or not starts:
        raise ValueError(row)
    return Known(
        name=str(row["name"]),
        device=str(row["device"]),
        fingerprint=str(row["fingerprint"]),
        stages=stages,
        home_seconds=float(row["home_seconds"]),
        best_seconds=float(row["best_seconds"]),
        copy_seconds=float(row["copy_seconds"]),
        moving_seconds=float(row["moving_seconds"]),
        back_seconds=float(row["back_seconds"]),
        keeps_bits=bool(row["keeps_bits"]),
        lines=tuple(map(str, row["lines"])),
        starts=starts,
    )


def any_known() -> bool:
    """Tell whether earlier starts left any loops."""
    return bool(_earlier())


def all_known() -> tuple[Known, ...]:
    """Return the loops that earlier starts left."""
    return tuple({one.name: one for found in _earlier().values() for one in found}.values())


def known(name: str) -> tuple[Known, ...]:
    """Return the loops that requests of a structure were a turn of."""
    return _earlier().get(name, ())


Found = Callable[[], Mapping[str, Known | None]]


def keep_at_end(collect: Found) -> None:
    """Have what ``collect`` returns, loops by name and None for those to be forgotten, written when
    the process ends."""
    when_over(_write, collect)


def _write(collect: Found) -> None:
    with ignoring_failures():  # a program that ended well ends well
        found = collect()
        if found:
            own = {name: None if one is None else one.row() for name, one in found.items()}
            default_store().write(_KIND, _key(), _joined({}, own), lambda old, _: _joined(old, own))


def _joined(old: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    rows = dict(old)
    for name, row in own.items():
        before = rows.pop(name, None)
        if row is None:
            continue
        starts = before.get("starts", []) if isinstance(before, dict) else []
        rows[name] = {**row, "starts": [*starts, *row["starts"]][-_STARTS:]}
    latest = sorted(rows, key=lambda name: rows[name].get("seen_at", 0.0))[-_KEPT:]
    return {name: rows[name] for name in latest}
