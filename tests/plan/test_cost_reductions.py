"""What reductions cost by how long their rows are: rows side by side, few columns, what lies
across; and which of their timings are doubted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import device_calibration, probes
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.dtype_points import Point
from alight._src.measure.fit import fit
from alight._src.measure.points import CURVE_CLASSES, points_of
from alight._src.measure.row_probes import few_columns
from alight._src.measure.samples import Samples
from alight._src.plan.cost import estimate
from alight._src.plan.curve import Curve
from alight._src.plan.loop_overhead import ROW
from alight._src.plan.loop_starts import START_ROWS, WHOLE_ROW
from alight.backends.host import HostBackend
from cost_profiles import LAUNCH, profile_with, terms

N = 8192
BACKEND = HostBackend()
(HOST,) = BACKEND.probe().devices


def loops(group: Group, work: dict[str, float]) -> float:
    return terms(group, work, "generated")["loops"]


def test_shorter_rows_side_by_side_take_as_much_less_for_an_element() -> None:
    """Lanes of a vector come out of as many others as a row is long."""
    work = {"beside@reduce_inner/float64": 1e-9, "torn@reduce_inner/float64": 2e-9}
    for length, share in ((2, 2 / ROW), (3, 3 / ROW), (ROW, 1.0), (10, 1.0)):
        for op in ("max", "sum"):
            group = probes.reduction(op, "float64", (100, length), (1,))
            assert loops(group, work) == pytest.approx(100 * length * share * 1e-9)
        # read one by one
        torn = probes.reduction("max", "float64", (100, length), (1,), 7)
        assert loops(torn, work) == pytest.approx(100 * length * 2e-9)


def test_taking_short_rows_apart_hides_behind_memory() -> None:
    """What a probe shows is beyond what hides: of shorter rows as much hides, and less is left."""
    profile = profile_with({"beside@reduce_inner/float64": 1e-9}, "generated")
    rates = profile.rates["generated"]
    stream = 1e-10  # for a byte, of which a row of the probe moves 8 for each element, and a result
    curve = Curve([(n, LAUNCH + stream * n) for n in (1 << i for i in range(4, 31))])
    curves = {**rates.curves, "reduce_inner/float64": curve}
    object.__setattr__(rates, "curves", curves)
    for length in (2, 3, 5):
        group = probes.reduction("max", "float64", (1000, length), (1,))
        found = estimate(group, "cpu", "generated", profile)
        assert found is not None
        n, moved = 1000 * length, 8 * (1 + 1 / ROW) * stream
        takes = n * (1e-9 + moved) * length / ROW  # all of it
        hidden = 8 * (n + 1000) * stream
        assert found.seconds == pytest.approx(LAUNCH + max(takes, hidden), rel=1e-3)


def test_what_few_columns_compute_is_in_what_their_rows_take() -> None:
    """A vector of three columns is not full: what it computes was counted once more."""
    # moments are sums, twice
    for op, name, times in (("var", "", 2), ("argmax", "argmax@", 1), ("argmin", "argmax@", 1)):
        inner = f"{op if times == 2 else 'argmax'}@reduce_inner/float64"
        work = {f"short@{name}reduce_outer/float64": 1e-9, inner: 5e-9}
        work |= {f"start@{name}reduce_outer/float64": 4e-9}
        few = terms(probes.reduction(op, "float64", (100, 3), (0,)), work, "generated")
        assert few["compute"] == 0.0 and few["loops"] == pytest.approx(times * 200e-9)
        some = terms(probes.reduction(op, "float64", (100, START_ROWS[1]), (0,)), work, "generated")
        assert some["compute"] == 0.0 and some["loops"] == pytest.approx(times * 800e-9)
        more = terms(
            probes.reduction(op, "float64", (100, START_ROWS[1] + 8), (0,)), work, "generated"
        )
        assert more["compute"] == pytest.approx(100 * 8 * 5e-9)
        # where nothing was measured of such rows, all of it is computed
        few = terms(probes.reduction(op, "float64", (100, 8), (0,)), {inner: 5e-9}, "generated")
        assert few["compute"] == pytest.approx(100 * 8 * 5e-9)


def test_what_does_not_round_asks_for_no_nans() -> None:
    """Rows of integers begin as sums do, columns of them reduce in any order, as maxima do."""
    work = {"start@reduce_inner/float64": 1e-9, "start@max@reduce_inner/float64": 9e-9}
    work |= {"start@reduce_outer/float64": 3e-9, "start@max@reduce_outer/float64": 2e-9}
    for axis, wanted in ((1, {"float64": (1, 9), "int64": (1, 1)}),
                         (0, {"float64": (3, 2), "int64": (2, 2)})):  # fmt: skip
        for dtype, each in wanted.items():
            for op, seconds in zip(("sum", "max"), each, strict=True):
                group = probes.reduction(op, dtype, (100, 40), (axis,))
                assert loops(group, work) == pytest.approx(100 * 2e-9 * seconds)


def test_elements_across_are_fetched_one_by_one() -> None:
    """Places are counted along rows, whose elements may lie apart."""
    work = {"short@whole/float64": 1e-9, "start@whole/float64": 9e-9}
    work |= {"short@across/float64": 10e-9, "start@across/float64": 90e-9}
    for length, seconds in ((3, 10e-9), (WHOLE_ROW, 90e-9)):
        group = probes.reduction("argmax", "float64", (50, length), (0, 1), 7, across=True)
        assert group.graph.inputs[0].strides == (8, 57 * 8)
        assert loops(group, work) == pytest.approx(100 * seconds)
        torn = probes.reduction("argmax", "float64", (50, length), (0, 1), 7)
        assert loops(torn, work) == pytest.approx(10 * seconds)


def test_what_few_columns_take_is_told_with_what_they_compute() -> None:
    samples = Samples("generated", N)

    def add(key: str, amount: int, group: Group, seconds: float) -> None:
        samples.add(key, amount, group, [LAUNCH + seconds] * 2)

    for n in (16, 1 << 10, 1 << 20):
        add("elementwise/float64", n, probes.loop("add", "float64", n), 1e-12 * n)
        add("reduce_inner/float64", n, probes.reduction("max", "float64", (n,), (0,)), 1e-12 * n)
        outer = probes.reduction("max", "float64", (4, n // 4), (0,))
        add("reduce_outer/float64", n, outer, 1e-12 * n)
    add(
        "argmax@reduce_outer/float64",
        N,
        probes.reduction("argmax", "float64", (8, N // 8), (0,)),
        1e-5,
    )
    for key, n, group in few_columns("float64", N, "argmax"):
        add(f"{key}/float64", n, group, 1e-12 * n + 6e-9 * group.shape[0])
    rates = fit(samples)
    assert rates is not None
    for start in ("short", "start"):
        found = rates.work[f"{start}@argmax@reduce_outer/float64"].value
        assert found == pytest.approx(3e-9, rel=0.01)
    assert rates.work["argmax@reduce_outer/float64"].value == pytest.approx(1e-5 / N, rel=0.01)


def test_rows_of_every_kind_are_measured_before_products_that_others_make_too() -> None:
    keys = [p.key for p in points_of(HOST) if p.implementation == "generated"]
    wanted = ["beside@reduce_inner/complex128", "start@whole/complex128", "short@across/float64"]
    wanted += ["short@argmin@reduce_outer/int64", "start@max@reduce_outer/int64"]
    assert max(map(keys.index, wanted)) < keys.index("matmul/float64")
    every = [(p.implementation, p.key, p.amount) for p in points_of(HOST)]
    assert len(every) == len(set(every))


def knots_of(seconds: dict[int, float], key: str = "reduce_inner/float64") -> Samples:
    samples = Samples("numpy", N)
    for n, each in seconds.items():
        samples.add(key, n, probes.reduction("max", "float64", (n,), (0,)), [each] * 2)
    return samples


def test_a_knot_above_the_line_between_those_beside_it_is_doubted() -> None:
    line = {1 << i: 1e-6 + 1e-10 * (1 << i) for i in (4, 12, 15, 18, 20, 21)}
    assert not knots_of(line).doubtful(CURVE_CLASSES)
    # a cache that ends is no doubt
    ends = {**line, 1 << 20: 2 * line[1 << 20], 1 << 21: 5 * line[1 << 21]}
    assert not knots_of(ends).doubtful(CURVE_CLASSES)
    slow = {**line, 1 << 20: 1.5 * line[1 << 20]}
    assert knots_of(slow).doubtful(CURVE_CLASSES) == {("reduce_inner/float64", 1 << 20)}
    assert not knots_of(slow, "var@reduce_inner/float64").doubtful(CURVE_CLASSES)


def test_what_is_doubted_is_visited_again_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow moment that ended within a visit left no sign but the knot itself."""
    sizes = [1 << i for i in (4, 21, 12, 18, 20, 15)]
    loop = probes.loop("negative", "float64", N)
    points = [Point("numpy", "elementwise/float64", n, probes.loop("add", "float64", n), True)
              for n in sizes]  # fmt: skip
    points += [Point("numpy", f"op{i}/float64", N, loop) for i in range(5)]
    points += [
        Point("numpy", "reduce_inner/float64", n, probes.reduction("max", "float64", (n,), (0,)))
        for n in sizes
    ]
    visited: list[tuple[str, float]] = []

    def visit(run: Calibration, point: Point, launch: Any) -> tuple[list[float], bool]:
        seconds = [1e-5 + 1e-10 * point.amount] * 2
        again = (point.key, point.amount) in visited
        if point.key.startswith("reduce_inner") and point.amount == 1 << 20 and not again:
            seconds = [2 * s for s in seconds]
        visited.append((point.key, point.amount))
        samples = run._samples(point)
        if not again:
            run.found.points.append(point)
        samples.add(point.key, point.amount, point.group, seconds)
        return seconds, True

    monkeypatch.setattr(device_calibration, "points_of", lambda device: points)
    monkeypatch.setattr(device_calibration, "time_threads", lambda limit: {})
    monkeypatch.setattr(Calibration, "_visit", visit)
    monkeypatch.setattr(Calibration, "_return", lambda run: None)
    monkeypatch.setattr(Calibration, "_refine", lambda run: iter(()))
    monkeypatch.setattr(Calibration, "_validate", lambda run: iter(()))
    monkeypatch.setattr(Calibration, "_steady", lambda run, seconds=0.0: True)
    # time for all of them, and for one visit more
    monkeypatch.setattr(Calibration, "spent", lambda run: float(len(visited) > len(points)))
    monkeypatch.setattr(device_calibration, "REPEAT_SHARE", 0.5)
    run = Calibration(BACKEND, HOST, 1.5)
    assert len(list(run.steps())) == len(points) + 1
    assert visited[len(points)] == ("reduce_inner/float64", 1 << 20)
    found = run.found.samples["numpy"].seconds_of("reduce_inner/float64", 1 << 20)
    assert found == pytest.approx(1e-5 + 1e-10 * (1 << 20))


def test_a_body_before_short_rows_takes_what_was_measured() -> None:
    layout = make_layout(np.dtype("float64"), (100, 3))
    nodes = (
        Node(OPS["negative"], (0,), (), layout),
        Node(OPS["max"], (1,), (("axis", (1,)),), make_layout(layout.dtype, (100,))),
    )
    group = Group(GroupKind.REDUCE, Graph((layout,), nodes, (2,)), layout.shape)
    assert loops(group, {"beside@reduce_inner/float64": 1e-9}) == pytest.approx(300 * 1e-9)
