"""The least cut of a network: the exact answer to which of two memories each piece of work belongs
in."""

from __future__ import annotations

from collections.abc import Iterable


def far_side(count: int, arcs: Iterable[tuple[int, int, int]], source: int, sink: int) -> set[int]:
    """Return the nodes on the sink's side of a least cut, as few of them as a least cut can have.

    ``arcs`` are (from, to, capacity) between nodes 0 … count-1. Capacities are integers, so that
    sums are exact and the answer does not depend on the order of the arcs.
    """
    heads: list[int] = []
    room: list[int] = []
    leaving: list[list[int]] = [[] for _ in range(count)]
    for tail, head, capacity in arcs:
        leaving[tail].append(len(heads))
        leaving[head].append(len(heads) + 1)
        heads += (head, tail)
        room += (capacity, 0)

    while (level := _levels(leaving, heads, room, source, sink)) is not None:
        _fill(leaving, heads, room, level, source, sink)

    # Who can still reach the sink. Everything else, ties included, stays with the source.
    reached = {sink}
    ready = [sink]
    while ready:
        for arc in leaving[ready.pop()]:
            tail = heads[arc]
            if room[arc ^ 1] and tail not in reached:
                reached.add(tail)
                ready.append(tail)
    return reached


def _levels(
    leaving: list[list[int]], heads: list[int], room: list[int], source: int, sink: int
) -> list[int] | None:
    """Return how many arcs with room lie between the source and each node; None if none reach the
    sink."""
    level = [-1] * len(leaving)
    level[source] = 0
    ready = [source]
    for node in ready:
        for arc in leaving[node]:
            head = heads[arc]
            if room[arc] and level[head] < 0:
                level[head] = level[node] + 1
                ready.append(head)
    return level if level[sink] >= 0 else None


def _fill(
    leaving: list[list[int]],
    heads: list[int],
    room: list[int],
    level: list[int],
    source: int,
    sink: int,
) -> None:
    """Send flow along shortest paths until every one of them is blocked (Dinic)."""
    tried = [0] * len(leaving)
    path: list[int] = []
    node = source
    while True:
        if node == sink:
            flow = min([room[arc] for arc in path])
            full = 0
            for index in range(len(path) - 1, -1, -1):
                arc = path[index]
                room[arc] -= flow
                room[arc ^ 1] += flow
                if not room[arc]:
                    full = index
            node = heads[path[full] ^ 1]
            del path[full:]
        arcs = leaving[node]
        at = tried[node]
        while at < len(arcs):
            arc = arcs[at]
            if room[arc] and level[heads[arc]] == level[node] + 1:
                break
            at += 1
        tried[node] = at
        if at < len(arcs):
            path.append(arcs[at])
            node = heads[arcs[at]]
        elif node == source:
            return
        else:
            level[node] = -1
            node = heads[path.pop() ^ 1]
