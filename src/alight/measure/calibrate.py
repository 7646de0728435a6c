"""Calibration: measure a device, within a budget, the most useful points first.

It can stop after any point and still gives a profile of what it has. Whatever was measured while
other work disturbed it is marked contended and not stored.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from alight._core import threads
from alight.backends.machine import thread_count
from alight.device import Unsupported
from alight.ir.group import Group
from alight.measure import probes
from alight.measure.fit import (
    DEVICE_ELEMENTS,
    HOST_ELEMENTS,
    MANY_FLOPS,
    ROW,
    Samples,
    compile_costs,
    fit,
)
from alight.measure.probes import Bench, Probe
from alight.measure.profiles import fingerprint, load_profile, save_profile, share_costs
from alight.measure.timing import Timing, contended, time_threads
from alight.plan.cost import Profile, Rates, estimate
from alight.plan.curve import Curve, Measured

if TYPE_CHECKING:
    from alight.backends.base import Backend
    from alight.device import Device

__all__ = [
    "Calibration",
    "calibrate",
    "fingerprint",
    "load_profile",
    "save_profile",
]

Progress = Callable[[float, str], bool | None]

# Bytes of an array at the knots of a curve, in the order in which they are measured: the ends and
# the middle first, so that a curve that has to stop early still spans the sizes. From a few
# elements, where the call is all, to 16 MB, three of which pass the caches of most machines.
KNOTS = tuple(1 << i for i in (7, 24, 15, 20, 22, 11, 18, 13))
FEW_KNOTS = tuple(1 << i for i in (7, 24, 15, 20, 22))
PRODUCT_SIDES = (16, 256, 64)
# NumPy multiplies integer matrices without BLAS: some hundred times slower.
INTEGER_SIDES = (16, 64)
MORE_PRODUCT_SIDES = (512, 128, 32)
COPY_BYTES = tuple(1 << i for i in (12, 24, 18, 21, 15))
# Probes of overlap have this many times the elements of those of arithmetic, if there is room:
# on a host that is past the second-level cache.
LARGE = 64
# Elements of the validation probes: none is a knot.
UNSEEN = (700, 90_000, 9_000, 900_000)
# Of the budget, kept back: a second pass tells contention, unseen sizes tell the error.
SECOND_PASS_SHARE = 0.15
VALIDATION_SHARE = 0.12
# A knot is added between two whose curve misses the measured middle by more than this: it is the
# error that 20 knots reach where 11 do not.
MISSED = math.log(1.05)

_MOST_BYTES = max(KNOTS)


@dataclass(slots=True)
class _Point:
    """Something to measure: where its timing goes, and whether the core of a profile needs it."""

    implementation: str
    key: str
    amount: float
    group: Group
    core: bool = True


@dataclass(slots=True)
class Calibration:
    """One device being measured. ``steps`` yields after every point; ``profile`` may follow any."""

    backend: Backend
    device: Device
    budget_seconds: float = 2.0
    samples: dict[str, Samples] = field(default_factory=dict)
    links: dict[str, dict[float, Timing]] = field(default_factory=dict)
    passes: list[tuple[Timing, Timing]] = field(default_factory=list)
    spreads: dict[str, float] = field(default_factory=dict)
    validation: dict[str, float] = field(default_factory=dict)
    complete: bool = False
    import_seconds: float | None = None
    sharing: dict[str, Measured] = field(default_factory=dict)
    elapsed: float = 0.0
    worked: float = 0.0
    _busy: float = 0.0
    _resumed: float | None = None
    _bench: Bench | None = None

    def steps(self) -> Iterator[str]:
        """Yield the name of each point once it is measured, until the budget is spent.

        Only the time in here counts, so that a program may go on between two points.
        """
        points = self._measured_points()
        while True:
            self._resumed = time.perf_counter()
            what = next(points, None)
            self._busy, self._resumed = self._spent(), None
            if what is None:
                return
            yield what

    def _measured_points(self) -> Iterator[str]:
        self._bench = Bench(self.backend, self.device, _MOST_BYTES)
        self._import_compiler()
        self._share_work()
        first = self.budget_seconds * (1 - SECOND_PASS_SHARE - VALIDATION_SHARE)
        left = 0
        points = list(self._points())
        for point in points:
            if self._spent() > first:
                left += point.core
            elif self._measure(point):
                yield f"{point.implementation} {point.key}"
        if not self.device.unified_memory:
            yield from self._copies()
        self.complete = left == 0
        yield from self._second_pass(points)
        yield from self._refine()
        yield from self._validate()

    def _import_compiler(self) -> None:
        """Import the compiler of the host's kernels, apart from the first kernel's own time."""
        if self.device.space != "host" or "llvmlite.binding" in sys.modules:
            return
        began = time.perf_counter()
        with contextlib.suppress(ImportError):
            import llvmlite.binding  # noqa: F401

            self.import_seconds = time.perf_counter() - began

    def _share_work(self) -> None:
        """Measure what other threads cost; kernels are split by it from here on."""
        if self.device.space != "host":
            return
        threads.set_threads(thread_count())
        if (found := time_threads()) is not None:
            self.sharing = {"join": found[0].measured(), "wake": found[1].measured()}
            share_costs(self.sharing)

    @property
    def _compute_elements(self) -> int:
        return HOST_ELEMENTS if self.device.space == "host" else DEVICE_ELEMENTS

    def _spent(self) -> float:
        if self._resumed is None:
            return self._busy
        return self._busy + time.perf_counter() - self._resumed

    def _has(self, *dtypes: str) -> list[str]:
        """Return those of the dtypes that the device has."""
        known = self.device.support.dtypes
        return [dtype for dtype in dtypes if not known or dtype in known]

    @property
    def _float(self) -> str:
        """Return the float type that is measured most closely: the one NumPy makes, if it is
        there."""
        return next(iter(self._has("float64", "float32")), "float64")

    def _points(self) -> Iterator[_Point]:
        """Yield the points, the most useful first."""
        names = self.device.support.implementations
        libraries = [name for name in names if name != "generated"]
        floats, integers = self._has("float64", "float32"), self._has("int64", "int32")[:1]
        for dtype in (*floats, *integers):
            size = np.dtype(dtype).itemsize
            for nbytes in KNOTS if dtype == self._float else FEW_KNOTS:
                n = nbytes // size
                for name in names:
                    group = probes.loop("add", dtype, n)
                    yield _Point(name, f"elementwise/{dtype}", n, group)
            for name in names:
                yield from self._work(name, dtype)
            for nbytes in FEW_KNOTS:
                n = nbytes // size
                for name in names:
                    group = probes.fold("sum", dtype, (n,), (0,))
                    yield _Point(name, f"reduce_inner/{dtype}", n, group)
            for name in libraries:
                for side in PRODUCT_SIDES if dtype in floats else INTEGER_SIDES:
                    group = probes.product(dtype, side)
                    yield _Point(name, f"matmul/{dtype}", 2.0 * side**3, group)
        for dtype in floats:
            for nbytes in FEW_KNOTS[1:]:
                n = nbytes // np.dtype(dtype).itemsize
                for name in names:
                    shape = (n // 64, 64)
                    group = probes.fold("sum", dtype, shape, (0,))
                    yield _Point(name, f"reduce_outer/{dtype}", n, group, core=False)
        for name in libraries:
            for side in MORE_PRODUCT_SIDES:
                for dtype in floats:
                    group = probes.product(dtype, side)
                    yield _Point(name, f"matmul/{dtype}", 2.0 * side**3, group, core=False)
        for name in names:
            for nbytes in FEW_KNOTS[1:]:
                n = nbytes // 8
                group = probes.scan("cumsum", "float64", n)
                yield _Point(name, "scan/float64", n, group, core=False)
        for special in probes.special_ops():
            for dtype in floats:
                for name in names:
                    n = self._compute_elements
                    group = probes.loop(special, dtype, n)
                    yield _Point(name, f"{special}/{dtype}", n, group, core=False)

    def _work(self, name: str, dtype: str) -> Iterator[_Point]:
        n = self._compute_elements
        if name == "generated":
            yield _Point(name, f"flop/{dtype}", n, probes.chain(dtype, n))
        elif dtype == "float64":
            small = min(KNOTS) // 8
            yield _Point(name, f"call/{dtype}", small, probes.chain(dtype, small))
        floating = ("divide", "exp", "sin", "sqrt", MANY_FLOPS)
        ops = floating if dtype.startswith("float") else ("floor_divide", MANY_FLOPS)
        for op in ops:
            yield _Point(name, f"{op}/{dtype}", n, probes.loop(op, dtype, n))
        if dtype == self._float:
            # Large ones tell how much of the arithmetic hides behind the memory.
            for op in ("divide", "exp"):
                large = min(LARGE * n, _MOST_BYTES // np.dtype(dtype).itemsize)
                yield _Point(name, f"{op}/{dtype}", large, probes.loop(op, dtype, large))
        rows = (n // ROW, ROW)
        yield _Point(name, f"row/{dtype}", n, probes.fold("sum", dtype, rows, (1,)), core=False)

    def _measure(self, point: _Point) -> bool:
        """Measure a point; False where the device cannot run it."""
        assert self._bench is not None
        began, worked = time.perf_counter(), time.thread_time()
        try:
            timing = self._bench.time(Probe(point.implementation, point.group))
        except Unsupported:
            return False
        alone = point.implementation == "numpy" and point.key.startswith("elementwise")
        if alone and self.device.space == "host":  # one thread, which never waits
            self.elapsed += time.perf_counter() - began
            self.worked += time.thread_time() - worked
        samples = self.samples.setdefault(
            point.implementation, Samples(point.implementation, self._compute_elements)
        )
        samples.add(point.key, point.amount, point.group, timing)
        return True

    def _copies(self) -> Iterator[str]:
        assert self._bench is not None
        for nbytes in COPY_BYTES:
            for direction in ("upload", "download", "device"):
                found = self.links.setdefault(direction, {})
                found[nbytes] = self._bench.time_copy(direction, nbytes)
                yield f"{direction} {nbytes}"

    def _second_pass(self, points: Sequence[_Point]) -> Iterator[str]:
        """Measure knots again, seconds later: it is other work that makes them differ."""
        assert self._bench is not None
        limit = self.budget_seconds * (1 - VALIDATION_SHARE)
        for point in points:
            samples = self.samples.get(point.implementation)
            if self._spent() > limit or samples is None:
                break
            earlier = samples.found(point.key, point.amount)
            if earlier is None or not point.key.startswith("elementwise"):
                continue
            again = self._bench.time(Probe(point.implementation, point.group))
            self.passes.append((earlier, again))
            samples.add(point.key, point.amount, point.group, min(earlier, again, key=_seconds))
            yield f"{point.implementation} {point.key} again"

    def _refine(self) -> Iterator[str]:
        """Add knots where the curve of NumPy's or our additions misses its measured middle."""
        limit = self.budget_seconds * (1 - VALIDATION_SHARE)
        for name, samples in self.samples.items():
            key = f"elementwise/{self._float}"
            queue = samples.gaps(key)
            while queue and self._spent() < limit:
                low, high = queue.pop(0)
                middle = round(math.sqrt(low * high))
                if not low < middle < high:
                    continue
                predicted = samples.interpolated(key, middle)
                point = _Point(name, key, middle, probes.loop("add", self._float, middle))
                if not self._measure(point):
                    break
                found = samples.found(key, middle)
                assert found is not None
                if abs(math.log(found.seconds / predicted)) > MISSED:
                    queue += [(low, middle), (middle, high)]
                yield f"{name} {key} {middle}"

    def _validate(self) -> Iterator[str]:
        """Measure sizes and combinations that no curve has seen, and keep the errors."""
        assert self._bench is not None
        errors: dict[str, list[float]] = {}
        profile = self.profile()
        for name, group in self._unseen():
            if self._spent() > self.budget_seconds and len(errors.get(name, ())) >= 4:
                continue
            predicted = estimate(group, self.device, name, profile)
            if predicted is None:
                continue
            try:
                timing = self._bench.time(Probe(name, group))
            except Unsupported:
                continue
            errors.setdefault(name, []).append(math.log(predicted.seconds / timing.seconds))
            yield f"{name} unseen"
        found = [error for values in errors.values() for error in values]
        if not found:
            return
        self.spreads = {
            name: math.sqrt(sum(e * e for e in values) / len(values))
            for name, values in errors.items()
        }
        percent = [abs(math.expm1(error)) for error in found]
        self.validation = {
            "shapes": float(len(found)),
            "mean_error": sum(percent) / len(percent),
            "median_error": median(percent),
            "worst_error": max(percent),
        }

    def _unseen(self) -> Iterable[tuple[str, Group]]:
        for n in UNSEEN:
            for name in self.device.support.implementations:
                yield name, probes.loop("multiply", self._float, n)
                yield name, probes.loop("exp", self._float, n)
                yield name, probes.fold("sum", self._float, (n,), (0,))
                if name == "generated":
                    yield name, probes.chain(self._float, n)

    def _one_offs(self) -> dict[str, Measured]:
        found = {} if self._bench is None else compile_costs(self._bench.compiled)
        if self.import_seconds is not None:
            seconds = self.import_seconds
            found["compiler"] = Measured(seconds, "seconds", seconds, seconds, 1, "probe")
        return {**found, **self.sharing}

    def profile(self) -> Profile:
        """Return the profile of what has been measured so far."""
        rates: dict[str, Rates] = {}
        for name, samples in self.samples.items():
            fitted = fit(samples, self.spreads.get(name))
            if fitted is not None:
                rates[name] = fitted
        return Profile(
            device=self.device.id,
            rates=rates,
            links={
                direction: Curve([(nbytes, t.seconds) for nbytes, t in found.items()])
                for direction, found in self.links.items()
                if found
            },
            one_offs=self._one_offs(),
            origin="measured",
            made_at=time.time(),
            made_seconds=self._spent(),
            validation=dict(self.validation),
            fingerprint=fingerprint(self.device),
            complete=self.complete,
            contended=contended(self.passes, self.elapsed, self.worked),
        )


def _seconds(timing: Timing) -> float:
    return timing.seconds


def calibrate(
    budget_seconds: float = 2.0,
    devices: Sequence[tuple[Backend, Device]] = (),
    progress: Progress | None = None,
    store: bool = True,
) -> list[Profile]:
    """Return a measured profile of each device, within the budget in seconds for each.

    ``progress(share, what)`` is told of every point; when it returns False, measuring stops and
    what there is comes back. Profiles are stored unless they were contended.
    """
    profiles = []
    for backend, device in devices:
        run = Calibration(backend, device, budget_seconds)
        for what in run.steps():
            share = min(1.0, run._spent() / budget_seconds)
            if progress is not None and progress(share, f"{device.id} {what}") is False:
                break
        profile = run.profile()
        profiles.append(save_profile(profile) if store else profile)
    return profiles
