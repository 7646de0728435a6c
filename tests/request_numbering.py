"""Requests in numbers, in Python: what the native core's `request` is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

__all__ = ["numbered"]

_HOST_ONLY = frozenset(("host",))
_ANYWHERE = frozenset(("*",))


def numbered(
    roots: Sequence[Any], others: Iterable[Any], read: bool, stamp: int
) -> tuple[tuple[Any, ...], list[Any], int, int] | None:
    """Return what the key of a request says (leaves, nodes, outputs, read, stamp), its leaves and
    pending values by number, and how many values and elements it leaves pending; None where no
    root is pending.

    ``others`` are the values of further storages that may share work with the roots: those that do
    are requested too.
    """
    asked = list({id(root): root for root in roots if root.op is not None}.values())
    if not asked:
        return None
    requested, reach, count, elements = _connected(asked, others)
    pending = sorted(reach.values(), key=_sequence)
    numbers: dict[int, int] = {}
    leaves: list[Any] = []
    # Equal constants are one input, as kernels hold them in registers; so are equal windows of
    # one memory, which every use makes anew.
    same: dict[Any, int] = {}
    for value in pending:
        for operand in value.operands:
            if operand.op is None and id(operand) not in numbers:
                data = operand.data
                what = (id(data), operand.offset) if data is not None else operand.attrs.tobytes()
                number = same.setdefault((operand.layout, what), len(leaves))
                numbers[id(operand)] = number
                if number == len(leaves):
                    leaves.append(operand)
    nodes: list[tuple[Any, ...]] = []
    for value in pending:
        operands = tuple([numbers[id(operand)] for operand in value.operands])
        numbers[id(value)] = len(leaves) + len(nodes)
        nodes.append((value.op, operands, value.attrs, value.layout))
    outputs = tuple([numbers[id(root)] for root in requested])
    first: dict[int, int] = {}
    described = []
    for number, leaf in enumerate(leaves):
        data = leaf.data
        base = number if data is None else first.setdefault(id(data), number)
        within = 0 if data is None or leaf.layout.nbytes >= data.nbytes else data.nbytes
        described.append((leaf.layout, _spaces(leaf), base, within))
    key = tuple(described), tuple(nodes), outputs, len(asked) if read else 0, stamp
    return key, leaves + pending, count, elements


def _connected(
    asked: list[Any], others: Iterable[Any]
) -> tuple[list[Any], dict[int, Any], int, int]:
    """Return what is requested, all pending values it reaches by id, and what is left pending."""
    # Each pending value is walked once. Parts begin apart: 0 is what was asked for, then one for
    # each other value. ``joined``: an earlier part that shares work with a part, or itself.
    wanted = set(map(id, asked))
    roots = [asked[0]]
    parts: list[dict[int, Any]] = [{}]
    joined = [0]
    part_of: dict[int, int] = {}
    stack = asked[:]
    _walk(stack, 0, parts, part_of, joined)
    for value in others:
        failed = value.error is not None and id(value) not in part_of  # it would fail again
        if id(value) not in wanted and not failed:
            wanted.add(id(value))
            part = len(parts)
            roots.append(value)
            parts.append({})
            joined.append(part)
            _walk([value], part, parts, part_of, joined)
    requested, reach = asked[:], dict(parts[0])
    count = elements = 0
    for part in range(1, len(parts)):
        if _first(joined, part) == 0:
            requested.append(roots[part])
            reach.update(parts[part])
        else:
            count += len(parts[part])
            elements += sum([left.layout.size for left in parts[part].values()])
    return requested, reach, count, elements


def _walk(
    stack: list[Any],
    part: int,
    parts: list[dict[int, Any]],
    part_of: dict[int, int],
    joined: list[int],
) -> None:
    while stack:
        item = stack.pop()
        if item.op is None:
            continue
        owner = part_of.setdefault(id(item), part)
        if owner != part:
            one, two = _first(joined, part), _first(joined, owner)
            joined[max(one, two)] = min(one, two)
        elif id(item) not in parts[part]:
            parts[part][id(item)] = item
            stack += item.operands


def _first(joined: list[int], part: int) -> int:
    """Return the earliest part that a part was joined to; the way there is shortened."""
    while joined[part] != part:
        joined[part] = joined[joined[part]]
        part = joined[part]
    return part


_sequence = attrgetter("seq")


def _spaces(leaf: Any) -> frozenset[str]:
    """Return the memory spaces that have a leaf's bytes; a constant is everywhere."""
    data = leaf.data
    if data is None:
        return _ANYWHERE
    if data.remote is None:
        return _HOST_ONLY
    return frozenset(data.remote) | (_HOST_ONLY if data.array is not None else frozenset())
