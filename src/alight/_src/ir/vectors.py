"""How elements of a body go together in the vectors of generated code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph, Node

# Rows shorter than this run together where a vector is worth more than the copies that takes:
# exp(x + y) of rows of 3, 7, 17, 33 and 40 float64 took 5.0, 2.2, 1.6, 1.2 and 1.0 ns each row
# by row and 1.2 to 1.0 together (AVX-512).
SHORT_ROW = 36

# Of longer rows the ends are a seventh at most.
_ENDS_TELL = 256
# Elements of the vectors that go together, of simple ops on the narrowest of common floats.
_FOURS = 64


def one_by_one(graph: Graph, length: int) -> bool:
    """Tell whether the vectors of rows so long go one by one: those at the ends would leave empty
    more than a seventh of what they go through, and no function or long chain waits for itself.

    Heat in three dimensions took in fours and in ones of vectors 1440 and 520 us for rows of 8
    float64 in cubes of 10**6, 750 and 550 of 16, 890 and 780 of 48, 984 and 815 of 98, 611 and 607
    of 128 (float32: 1500 and 520, 750 and 231, 449 and 344, 471 and 360, 329 and 387).
    """
    if length >= _ENDS_TELL or len(graph.nodes) >= 2 * _LONG:
        return False
    least, whole = (-(-length // step) * step for step in (8, _FOURS))
    return 7 * whole > 8 * least and not any([node.op.special for node in graph.nodes])


# Of vectors, on the machines that have the widest ones (AVX-512); others have half of them.
REGISTERS = 32


def vectors_together(graph: Graph, registers: int, live: int | None = None) -> int:
    """Return how many vectors go together, so that the processor need not wait for results.
    ``live``: what `most_live` says of the graph, where that is known."""
    return together(graph.numbered, registers, most_live(graph) if live is None else live)


def together(numbered: Sequence[tuple[int, Node]], registers: int, live: int) -> int:
    """Return how many vectors of nodes in their order go together, with so many values live."""
    nodes = [node for _, node in numbered]
    # The 20 special functions of one operand, geometric mean: 1.29 ns an element one by one, 1.26
    # in twos, 1.32 in fours (the constants of exp leave no room). 100 additions and multiplications
    # in a row took 4.9 one by one, 3.8 in twos, 2.5 in fours, 1.8 in eights.
    special = [node for node in nodes if node.op.special]
    if special:
        # Those that do not wait for one another hide what each waits for: 16 steps of a Monte Carlo
        # over 2^20 paths took 10.2 ms one by one, 14 to 18 in twos (float32 4.9 and 5.7), where two
        # to four in a row took 0.88 of the time in twos (Zen 4, AVX-512).
        # Nor do they where registers lack: an equation of state (336 nodes, two logarithms, 60
        # values at once) took 0.22 ms in ones and in twos, 57 and 81 ms to compile (Zen 4).
        if _side_by_side(numbered) > _APART or 2 * live > registers:
            return 1
        return 4 if len(special) == 1 and _in_fours(special[0]) and registers == 32 else 2
    # Six remainders in a row took 184 us one by one, 142 in twos, 109 in fours, 116 in eights.
    long = any([node.op.flops >= LONG_FLOPS for node in nodes])
    most = 4 if long or len(nodes) < _LONG else 8
    # Values that wait for one another have no need of it, and find no registers: a step of
    # Gray-Scott (11 at once) took 82, 85, 113 and 174 us in ones, twos, fours and eights, moving
    # statistics (10) 156, 157, 157 and 248, an equation of state (12) 255, 256, 292 and 306.
    while most > 1 and most * live > registers:
        most //= 2
    return most


_LONG = 16
LONG_FLOPS = 8  # fmod's
_APART = 4
# Bodies that wait for themselves in twos: alone they took 0.71 to 0.94 of the time in fours (in
# float32 0.88 to 0.96, tan and tanh 1.05), other special functions 0.92 to 1.12, powers 1.06 and
# 1.10 (Zen 4, AVX-512).
_IN_FOURS = frozenset(("sin", "cos", "tan", "tanh", "logaddexp", "logaddexp2"))
_SHORT = frozenset(("tan", "tanh"))


def _side_by_side(numbered: Iterable[tuple[int, Node]]) -> int:
    """Return how many special functions do not wait for one another, at most."""
    depths: dict[int, int] = {}
    levels: dict[int, int] = defaultdict(int)
    for number, node in numbered:
        depth = max([depths.get(operand, 0) for operand in node.operands], default=0)
        if node.op.special:
            levels[depth] += 1
        depths[number] = depth + node.op.special
    return max(levels.values(), default=0)


def _in_fours(node: Node) -> bool:
    short = node.op.name in _SHORT and node.layout.dtype == "float32"
    return node.op.name in _IN_FOURS and not short


def most_live(graph: Graph) -> int:
    """Return how many values are waited for at once, at most: all inputs are loaded first."""
    small = [i for i, layout in enumerate(graph.inputs) if layout.size <= 1]
    return live_at_most(graph.numbered, graph.outputs, len(graph.inputs) - len(small), small)


def live_at_most(
    numbered: Sequence[tuple[int, Node]], outputs: Iterable[int], loaded: int, beside: Iterable[int]
) -> int:
    """Return how many values of nodes in their order are waited for at once, at most, beside what
    is loaded before; what is read ``beside`` takes no vector."""
    last = {o: number for number, node in numbered for o in node.operands}
    for value in (*outputs, *beside):
        last[value] = -1
    ends = Counter(last.values())
    now = most = loaded
    for number, _ in numbered:
        now += 1
        most = max(most, now)
        now -= ends[number] + (number not in last)
    return most
