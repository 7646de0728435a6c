"""What is measured of a device, the most useful first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from alight._src.base.records import replace
from alight._src.measure import probes
from alight._src.measure.dtype_points import DtypePoints, Point
from alight._src.measure.sizes import (
    COARSE_BYTES,
    FEW_PRODUCTS,
    LIBRARY_KNOTS,
    PRODUCTS,
    SHARED_ELEMENTS,
    VITAL,
    dtypes_of,
    main_dtype,
)
from alight._src.plan.loop_overhead import OUTER_ROWS

if TYPE_CHECKING:
    from alight.device import Device

__all__ = ["CURVE_CLASSES", "points_of"]

CURVE_CLASSES = ("elementwise", "select", "reduce_inner", "reduce_outer", "reduce_narrow",
                 "reduce_rows", "reduce_sum", "scan", "sort", "gather", "fft", "move", "dot",
                 "matvec", "negate")  # fmt: skip


# Of what one block alone takes: a reduction, simple operations, exponentials. Without any of it
# random walks of 65,536 paths were predicted to take an H200 7 us where they took 419, and 4 of 12
# wrong choices were such; the others are told by these.
_VITAL_LONE = 3


def _coarse_points(device: Device) -> Iterator[Point]:
    """Yield what is measured of a device however little time there is: of each implementation the
    ends and a middle of the curve that all else is read off, of each class of work one size."""
    names = sorted(device.support.implementations, key=lambda name: name == "generated")
    own = DtypePoints(device, main_dtype(device), True)
    for name in names:
        for point in (*itertools.islice(own.curve(name), VITAL), *_one_of_each(own, name)):
            yield replace(point, coarse=True)


def _one_of_each(own: DtypePoints, name: str) -> Iterator[Point]:
    """Yield one size of each class of work, of those that the finer points have."""
    dtype, n = own.dtype, COARSE_BYTES // own.size
    columns = (OUTER_ROWS, n // OUTER_ROWS | 1)
    inner = probes.reduction(own.simplest, dtype, (n,), (0,))
    yield Point(name, f"reduce_inner/{dtype}", n, inner)
    outer = probes.reduction(own.simplest, dtype, columns, (0,))
    yield own.more(name, "reduce_outer", math.prod(columns), outer)
    if name == "generated":
        return
    yield from itertools.islice(own.basic_work(name), _BASIC)
    # cuBLAS took 2.8 ms for what our kernel did in 128, which ran as only float64 was measured
    for other in dtypes_of(own.device):
        if np.dtype(other).kind == "f":
            yield from itertools.islice(
                DtypePoints(own.device, other, own.main).products(name, 0, 1), 1
            )
    few = LIBRARY_KNOTS[-1] // own.size
    for key, group in probes.library(dtype, few):
        yield own.more(name, key, few, group)
    side = math.isqrt(n)
    yield own.more(name, "scan", side * side, probes.scan("cumsum", dtype, side))
    yield own.more(name, "select", n, probes.where(dtype, (n,)))
    for key, m, k in (("dot", 1, n), ("matvec", side, side)):
        yield own.more(name, key, 2.0 * m * k, probes.product(dtype, m, k, 1))


# Of a library: what a further call takes, a division and an exponential.
_BASIC = 3


def points_of(device: Device) -> Iterator[Point]:
    """Yield the points of a device, each once, the most useful first."""
    known: set[tuple[str, str, float]] = set()
    for point in itertools.chain(_coarse_points(device), _finer_points(device)):
        where = point.implementation, point.key, point.amount
        if where not in known:
            known.add(where)
            yield point


def _finer_points(device: Device) -> Iterator[Point]:
    names = device.support.implementations
    libraries = [name for name in names if name != "generated"]
    compiled = [name for name in names if name == "generated"]
    main, host = main_dtype(device), device.space == "host"
    every = [DtypePoints(device, dtype, dtype == main) for dtype in dtypes_of(device)]
    for own in every:
        for name in (*libraries, *compiled):
            yield from itertools.islice(own.curve(name), VITAL if own.main else 0, None)
            yield from own.basic_work(name)
            yield from own.reductions(name)
            yield from itertools.islice(own.lone(name), _VITAL_LONE)
        for name in libraries:
            if own.main or not host:
                yield from own.products(name, 0, FEW_PRODUCTS)
            # Kernels of the other dtypes took all the time of a calibration of 14 s: its sorts and
            # transforms of 2^20 stayed on the host, six to nine times as long (H200).
            if own.main and not host:
                yield from own.vectors(name)
                yield from own.library(name)
        if own.main and host and compiled:
            for n in SHARED_ELEMENTS:
                yield Point("generated", f"sharing/{main}", n, probes.loop("sin", main, n))
    # What needs no compiler takes a millisecond or two, what does some tens.
    for name in libraries:
        for own in every:
            yield from own.loops(name)
            yield from own.other_classes(name)
    # Of other dtypes together: a host's library leaves threads spinning, for which others wait.
    for own in every[1:] if host else ():
        for name in libraries:
            yield from own.products(name, 0, FEW_PRODUCTS)
    for name in libraries:
        for own in every:
            yield from own.more_work(name)
            yield from own.library(name) if host or not own.main else ()
            yield from own.scans(name)
        for own in every:
            yield from own.products(name, FEW_PRODUCTS, PRODUCTS if own.kind == "f" else 0)
            yield from own.vectors(name) if host or not own.main else ()
    # On a device reduces are kernels of many forms; on the host, whose op it is tells more.
    for name in compiled:
        for own in every:
            yield from itertools.islice(own.lone(name), _VITAL_LONE, None)
            yield from own.loops(name)
            yield from own.other_classes(name) if not host else ()
        for own in every[:1] if host else every:
            yield from own.more_work(name)
            # in busy times the rest is not reached: variances and places took half of what they do
            yield from own.other_classes(name) if host else ()
    # what stands for these till then takes up to ten times as long, or a tenth
    for name in compiled if host else ():
        for own in every[1:]:
            yield from own.seldom(name)
    for name in libraries:
        for own in every:
            yield from own.work_apart(name)
    for name in compiled if host else ():
        for own in every[1:]:
            yield from own.more_work(name)
        for own in every[:1]:
            yield from own.seldom(name)
        # A product nobody measured is a library's. Their kernels took 0.6 of the 3.7 s that a host
        # without any compiled ones had for all points (EPYC), and left no time for other ops.
        for own in every:
            yield from own.reduced_products()
        for own in every[1:]:
            yield from own.other_classes(name)
    for name in compiled:
        for own in every:
            yield from own.scans(name)
