"""What is timed settles first; what caches keep, what repeats, and how reductions are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import alight
from alight._core import make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import probes
from alight._src.measure.timing import sample_calls, settled
from alight._src.plan.cache_distance import ReuseDistance
from alight._src.plan.cost import Profile, Rates, estimate
from alight._src.plan.curve import Curve, guess
from alight._src.plan.loop_overhead import padding, step_of
from alight._src.plan.passes import Pass, passes

LAUNCH = 1e-6


def rates(curves: dict[str, Curve], **work: float) -> Rates:
    units = {name.replace("_of_", "/"): guess(value, "seconds") for name, value in work.items()}
    return Rates(
        *(guess(LAUNCH, "seconds"), guess(LAUNCH, "seconds"), curves),
        *({"flop/float64": guess(0.0, "seconds")} | units, guess(0.0, "share"), 0.1),
    )


def seconds(group: Group, found: Rates, implementation: str) -> float:
    estimated = estimate(group, "cpu", implementation, Profile("cpu", {implementation: found}))
    assert estimated is not None
    return estimated.seconds - LAUNCH


def clock(*takes: float) -> Iterator[float]:
    """Yield these seconds, and the last again and again."""
    yield from takes
    while True:
        yield takes[-1]


def test_timing_begins_once_calls_get_no_quicker() -> None:
    spent = clock(200e-6, 150e-6, 120e-6, 100e-6)
    first = next(spent)
    assert settled(lambda count: next(spent), 1, first) == (100e-6, 100e-6)
    spent = clock(400e-6, 261e-6, 191e-6, 153e-6, 132e-6, 110e-6)
    assert max(sample_calls(lambda count: next(spent), 250e-6, 2, 100e-6)) == 110e-6


def test_what_gets_quicker_for_ever_or_takes_long_is_not_waited_for() -> None:
    calls: list[float] = []

    def quicker(count: int) -> float:
        calls.append(1e-6 * 0.9 ** len(calls))
        return calls[-1]

    settled(quicker, 1, 2e-6)
    assert len(calls) < 20
    calls.clear()
    settled(lambda count: calls.append(0.0) or 1e-3, 1, 10e-3)  # type: ignore[func-returns-value]
    assert len(calls) == 1


def choice(made_by: tuple[int, ...], shape: tuple[int, ...]) -> Group:
    kind = np.dtype(np.float64)
    whole = make_layout(kind, shape)
    inputs = (make_layout(np.dtype(bool), made_by), whole, whole)
    node = Node(OPS["where"], (0, 1, 2), (), whole)
    return Group(GroupKind.LOOP, Graph(inputs, (node,), (3,)), shape)


def test_what_is_chosen_by_the_same_few_again_and_again_is_foreseen() -> None:
    # past a thousand choices each is a guess
    guessed = Curve([(25.0, LAUNCH), (25e3, LAUNCH + 1e-6), (25e5, LAUNCH + 1e-3)])
    found = rates(
        {
            "select/float64": guessed,
            "elementwise/float64": Curve([(8.0, LAUNCH), (8e9, LAUNCH + 1e-9)]),
        }
    )
    alike, other = (
        seconds(choice(by, (1000, 100)), found, "numpy") for by in ((1, 100), (1000, 100))
    )
    assert other > 5 * alike
    assert alike == pytest.approx(100 * 1e-6)
    assert 0.0 <= seconds(choice((1, 0), (3, 0)), found, "numpy") <= LAUNCH  # of nothing


def test_sums_of_floats_are_read_off_their_own_curve() -> None:
    curves = {
        f"{kind}/float64": Curve([(8.0, LAUNCH), (8e9, LAUNCH + unit)])
        for kind, unit in (("elementwise", 1.0), ("reduce_inner", 1.0), ("reduce_sum", 2.0))
    }
    found = rates(curves)
    one, other = (
        seconds(probes.reduction(op, "float64", (100_000,), (0,)), found, "generated")
        for op in ("max", "sum")
    )
    assert other == pytest.approx(2 * one, rel=1e-3)
    rows = probes.reduction("sum", "float64", (50_000, 2), (1,))  # a chunk each: nothing meets
    most = probes.reduction("max", "float64", (50_000, 2), (1,))
    assert seconds(rows, found, "generated") == pytest.approx(seconds(most, found, "generated"))


def test_what_does_not_round_is_reduced_as_two_arrays_are() -> None:
    tiny = Curve([(8.0, LAUNCH), (8e9, LAUNCH + 1e-12)])
    found = rates({"reduce_inner/int64": tiny, "elementwise/int64": tiny}, multiply_of_int64=1e-9)
    found.work["prod@reduce_inner/float64"] = guess(5e-9, "seconds")  # type: ignore[index]
    group = probes.reduction("prod", "int64", (1000,), (0,))
    assert seconds(group, found, "generated") == pytest.approx(1e-6, rel=1e-3)


def whole_rows(op: str, count: int, length: int) -> tuple[Graph, Pass]:
    """Return what reductions everything of what an op makes of rows that lie apart."""
    kind = np.dtype(np.float64)
    apart = make_layout(kind, (count, length), (8 * (length + 7), 8))
    made = make_layout(kind, (count, length))
    nodes = (
        Node(OPS[op], (0,), (), made),
        Node(OPS["max"], (1,), (("axis", (0, 1)),), make_layout(kind, ())),
    )
    graph = Graph((apart,), nodes, (2,))
    (item,) = passes(Group(GroupKind.REDUCE, graph, (count, length)), "generated")
    return graph, item


def test_short_rows_before_a_reduction_of_everything_fill_as_many_vectors_as_go_together() -> None:
    graph, item = whole_rows("sin", 1000, 5)
    step = step_of(graph, item)
    assert step >= 16 and padding(item, step) == step / 5
    assert step_of(graph, item, away=True) == 8
    assert step_of(*whole_rows("negative", 1000, 5)) == 8  # which hide behind the rest


def test_what_a_cache_was_given_once_is_halfway_to_memory() -> None:
    knots = [(1e3, LAUNCH + 1e-7), (1e6, LAUNCH + 1e-4), (1e7, LAUNCH + 1e-3), (1e8, LAUNCH + 1.0)]
    curve = Curve(knots)
    layout = make_layout(np.dtype(np.float64), (1 << 19,))
    nodes = (Node(OPS["negative"], (0,), (), layout), Node(OPS["negative"], (1,), (), layout))
    reach = ReuseDistance(rates({"elementwise/float64": curve}), Graph((layout,), nodes, (2,)))
    reach.whole = 4e7

    def each(nbytes: float) -> float:
        return (curve.seconds_at(nbytes) - LAUNCH - 1e-7) / nbytes

    assert reach.farther(curve, 1e7, each(1e7)) == pytest.approx(each(2e7) - each(1e7))
    assert reach.farther(curve, 1e6, each(1e6)) == 0  # nothing spills there
    reach.whole = 1e7
    assert reach.farther(curve, 1e7, each(1e7)) == 0  # nothing else is gone through


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "float16"])
@pytest.mark.parametrize("length", [63, 64, 65, 130, 511, 512, 513, 1030, 4099])
def test_places_are_found_wherever_they_are(dtype: str, length: int) -> None:
    generator = np.random.default_rng(length)
    places = {0, 1, length // 2, length - 65, length - 64, length - 2, length - 1} - {-1, -2}
    rows = generator.integers(0, 50, (2 * len(places) + 1, length)).astype(dtype)
    for row, place in enumerate(sorted(p for p in places if p >= 0)):
        rows[row, place] = 99
        rows[row, place // 2 : place] = 98
        if rows.dtype.kind == "f":  # the first of these is the place
            rows[len(places) + row, place:] = np.nan
    with alight.policy(force="cpu:generated", floor=0):
        for axis in (1, None):
            assert np.array_equal(
                alight.argmax(alight.asarray(rows), axis=axis), np.argmax(rows, axis)
            )
            assert np.array_equal(
                alight.argmin(alight.asarray(-rows.astype("f8")), axis=axis),
                np.argmin(-rows.astype("f8"), axis),
            )


def test_memory_gives_a_library_no_more_than_the_threads_of_generated_code() -> None:
    # up to 16 MB in a cache at 100 GB/s; what comes from memory at 25
    near, far = Curve(((1e5, 1e-6), (16e6, 160e-6)), "probe"), 1 / 25e9
    reader = Curve(((1e5, 1e-6), (16e6, 160e-6), (48e6, 160e-6 + 32e6 * far)), "probe")
    own = rates({"elementwise/float64": reader})
    for name, flop_bytes in (("dot", 8), ("matvec", 4)):
        curve = Curve(tuple((n / flop_bytes, s) for n, s in near.knots), "probe")
        library = rates({f"{name}/float64": curve})
        both = Profile("cpu", {"numpy": library, "generated": own})
        for nbytes, expected in ((16e6, 160e-6), (48e6, 160e-6 + 32e6 * far)):
            count = int(nbytes / flop_bytes / 2)
            k = count if name == "dot" else round(count**0.5)
            group = probes.product("float64", 1 if name == "dot" else k, k, 1)
            found = estimate(group, "cpu", "numpy", both)
            sole = rates(dict(library.curves))
            alone = estimate(group, "cpu", "numpy", Profile("cpu", {"numpy": sole}))
            assert found is not None and alone is not None
            assert found.seconds == pytest.approx(expected, rel=0.01)
            assert (found.seconds > 1.5 * alone.seconds) is (nbytes > 16e6)
