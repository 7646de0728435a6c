"""One device measured, within a budget, the most useful points first.

It can stop after any point and still gives a profile of what it has. What was measured while other
work disturbed it is marked contended, and its intervals are as wide as the moment was noisy; of
what predicts badly for any other reason they are as wide as its errors.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from statistics import median
from typing import TYPE_CHECKING

from alight._core import threads
from alight._src.base.records import dataclass, field
from alight._src.measure import probes
from alight._src.measure.dtype_points import Point
from alight._src.measure.findings import COPY_BYTES, Findings
from alight._src.measure.held_out import MATMUL, unseen
from alight._src.measure.link_probes import copied, rarely_copied
from alight._src.measure.points import CURVE_CLASSES, points_of
from alight._src.measure.probe_bench import Bench
from alight._src.measure.probes import Probe
from alight._src.measure.profiles import share_costs
from alight._src.measure.samples import Samples, better_half
from alight._src.measure.saved_samples import Kept
from alight._src.measure.sizes import VITAL, compute_elements, hides, main_dtype, most_bytes
from alight._src.measure.timing import DISAGREEMENT, Pace, summary, switches, time_threads
from alight._src.plan.cost import Profile, estimate
from alight.backends.machine import thread_count
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight.backends.base import Backend, Launch
    from alight.device import Device

__all__ = ["Calibration"]

# Of the budget, up to which the first pass, added knots, repeats and the first visits of what no
# curve has seen may go; in the rest these are visited again. With 0.74 for the first pass 985 of
# 1,551 points were reached within 5 s from nothing, with 0.80, and compiled products last, 1,440.
FIRST_SHARE, REFINE_SHARE, REPEAT_SHARE, VALIDATE_SHARE = 0.80, 0.81, 0.87, 0.97
# Of the budget, for threads that spin and for those that sleep each: of the shortest one, 0.9 s,
# twice the 45 ms that the latter take on a quiet machine. Among other programs they took all of it.
SHARING_SHARE = 0.1
# Of the budget, for a look whether what was kept still holds: a canary has as much of a program.
LOOK_SHARE = 0.05
# Past which the 20 % quantile no longer moves: what one visit in five meets is in it.
MOST_REPEATS = 9
# Points between which one of a curve is visited again: a quarter more time for the first pass.
RETURN_EVERY = 4
# For so long at least after a product a library's threads still spin: OpenBLAS's for 2**28 ticks,
# 60 ms at 4.5 GHz.
SPIN_SECONDS = 0.05
# What takes this long outlasts a scheduler's slice in a visit or two.
LONG_REPEATS, LONG_SECONDS = 2, 1e-3
# What is predicted to take longer is not tried: a handful would take the time of all others.
LONG_TRIED = 2e-3
# A knot is added between two whose curve misses the measured middle by more than this: it is the
# error that 20 knots reach where 11 do not.
MISSED = math.log(1.05)
# Within so long of a host, or of a device since it opened, what is coarse is to be there.
_COARSE_SECONDS = 0.5
# Sizes of copies that are measured before all else: a few bytes, and what shows the bandwidth.
_COARSE_COPIES = 2
# Of a visit, until one was made: an EPYC's took 1.0 to 1.2 ms in the mean, 2.6 in slow moments.
_VISIT_SECONDS = 2.6e-3
# Bytes of a probe after which nothing of what tells the pace is in the caches: first readings took
# 1.6 to 2.5 times as long as at best after each of those of 16 MB and more, and second ones 1.02
# (EPYC), so that the largest knots were never met in a quick moment; after those of 8 MB and less
# first ones did as seldom as second ones.
_DRIVES_OUT = 1 << 23
# Nearer ones only show noise: two that differ by it bend the curve between them.
NEAREST_KNOTS = 2.5


@dataclass(slots=True)
class Calibration:
    """One device being measured. ``steps`` yields after every point; ``profile`` may follow any."""

    backend: Backend
    device: Device
    budget_seconds: float = 2.0
    time_step: Callable[[str], float] | None = None
    pace: Pace = field(default_factory=Pace)
    kept: Kept | None = None
    found: Findings = field(init=False)
    _bench: Bench = field(init=False)
    _anew: bool = False  # what was kept before is not to be joined with what this one keeps
    _had: list[Point] = field(default_factory=list)
    _beside: Pace = field(default_factory=Pace)
    _launches: list[tuple[Point, Launch]] = field(default_factory=list)
    _busy: float = 0.0
    _spinning: bool = False
    _spun: float = -math.inf
    _visiting: float = 0.0
    _resumed: float | None = None
    _waiting: deque[tuple[Point, Launch]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.found = Findings(self.device, kept=self.kept)
        self._bench = Bench(self.backend, self.device, most_bytes(self.device))

    def profile(self) -> Profile:
        """Return the profile of what has been measured so far."""
        return self.found.profile(self.spent(), self._bench, self.pace)

    def to_keep(self) -> Kept | None:
        """Return what the next calibration goes on from; None where there is nothing new."""
        return self.found.to_keep(self._anew, self._bench, self.pace)

    def steps(self) -> Iterator[str]:
        """Yield the name of each point once it is measured, until the budget is spent.

        Only the time in here counts, so that a program may go on between two points.
        """
        points = self._measured_points()
        while True:
            self._resumed = time.perf_counter()
            what = next(points, None)
            self._busy, self._resumed = self.spent(), None
            if what is None:
                return
            yield what

    def _measured_points(self) -> Iterator[str]:
        self._bench.time_allocation()
        self._look_at_kept()
        left = all_of = 0
        limit = self.budget_seconds * FIRST_SHARE
        prepared = False
        if not self.device.unified_memory:
            yield from copied(self._bench, self.found, COPY_BYTES[:_COARSE_COPIES], ("",))
        for point in points_of(self.device):
            if not prepared and (point.implementation == "generated" or not point.coarse):
                prepared = True
                self._prepare_finer()
            all_of += point.core
            if self._known_before(point):
                continue
            if self.spent() > limit and not point.coarse:
                left += point.core
            elif (launch := self._launch(point)) is not None:
                # What is to be measured is made ready in slow moments, too, which takes more time
                # than measuring it (EPYC, beside other work: 45 to 65 % of all points were met in
                # slow moments alone where each was measured as soon as it was ready, 30 to 40 % as
                # it is).
                self._waiting.append((point, launch))
                while (
                    self._waiting
                    and not self._over(limit)
                    and (self._next_ready() or self._to_spare(limit) < 0.0)
                ):
                    yield self._first_visit(*self._waiting.popleft())
        while self._waiting and not self._over(limit):
            self._next_ready(self._to_spare(limit))
            yield self._first_visit(*self._waiting.popleft())
        left += sum([point.core for point, _ in self._waiting])
        if not self.device.unified_memory:
            yield from copied(self._bench, self.found, COPY_BYTES, ("",))
            over = self.budget_seconds * REFINE_SHARE
            for what in rarely_copied(self._bench, self.found):
                if self.spent() > over:
                    break
                yield what
        self.found.complete = left == 0
        self.found.share = 1.0 - left / max(all_of, 1)
        yield from self._refine()
        yield from self._repeat()
        yield from self._validate()

    def _prepare_finer(self) -> None:
        """Have what generated code and finer points need, which takes as long as all coarse ones of
        libraries do."""
        self._import_compiler()
        self._share_work()
        if self.time_step is not None:
            self.found.step_seconds = self.time_step(":".join(self.found.stepped))

    def _import_compiler(self) -> None:
        """Import the compiler of the host's kernels, apart from the first kernel's own time."""
        if self.device.space != "host" or "llvmlite.binding" in sys.modules:
            return
        began = time.perf_counter()
        with contextlib.suppress(ImportError):
            import llvmlite.binding  # noqa: F401

            self.found.import_seconds = time.perf_counter() - began

    def _share_work(self) -> None:
        """Measure what other threads cost; kernels are split by it from here on."""
        if self.device.space != "host":
            return
        threads.set_threads(thread_count())
        if found := time_threads(self.budget_seconds * SHARING_SHARE):
            self.found.sharing = {name: timing.measured() for name, timing in found.items()}
            share_costs(self.found.sharing)

    def _look_at_kept(self) -> None:
        """Begin anew where a few points do not take what they did when they were kept: the machine
        is another one now, or what disturbs it cannot be seen."""
        kept = self.found.kept
        if kept is None:
            return
        limit = self.spent() + LOOK_SHARE * self.budget_seconds
        name = min(self.device.support.implementations, key=lambda name: name == "generated")
        apart = []
        for point in points_of(self.device):
            before = kept.samples(name, point.key, point.amount)
            if point.implementation != name or point.key != self.found.main or not before:
                continue
            launch = self._launch(point)
            if launch is None or not self._steady(limit - self.spent()) or self.spent() > limit:
                break
            now = summary(self._bench.visit(launch, self.found.shared(point)))
            if self._steady() and not self.pace.quicker:
                apart.append(math.log(now.seconds / better_half(before).seconds))
        if len(apart) >= VITAL and abs(median(apart)) > DISAGREEMENT:
            self.begin_anew()

    def _known_before(self, point: Point) -> bool:
        """Take what an earlier calibration knows of a point, if it does; tell whether."""
        kept = self.found.kept
        if kept is None:
            return False
        where = point.implementation, point.key, point.amount
        before, slow = kept.samples(*where), kept.slow_samples(*where)
        if found := before or slow:
            samples = self._samples(point)
            samples.add(point.key, point.amount, point.group, found, steady=bool(before))
            self.found.sample(point).before = True
            self.found.points.append(point)
            self._had.append(point)
        return bool(found)

    def _samples(self, point: Point) -> Samples:
        return self.found.samples.setdefault(
            point.implementation,
            Samples(point.implementation, compute_elements(self.device), hides(self.device)),
        )

    def spent(self) -> float:
        """Return the seconds that measuring has taken."""
        if self._resumed is None:
            return self._busy
        return self._busy + time.perf_counter() - self._resumed

    def _launch(self, point: Point) -> Launch | None:
        """Return what runs a point; None where the device cannot."""
        try:
            return self._bench.launch(Probe(point.implementation, point.group))
        except Unsupported:
            return None

    def _ready(self, spins: bool, seconds: float = 0.0) -> bool:
        """Tell whether what leaves a library's threads spinning, or does not, may be measured now,
        or within so many seconds: what follows on another such one finds its own threads there, and
        the processor as quick as it is beside these."""
        left = self._spun + SPIN_SECONDS - time.perf_counter()
        if spins and self._spinning and left > 0.0:
            return self._steady_beside(min(seconds, left))
        return self._steady(seconds)

    def _spins(self, point: Point) -> bool:
        return self.found.leaves_threads(point.implementation, point.key)

    def _next_ready(self, seconds: float = 0.0) -> bool:
        return self._ready(self._spins(self._waiting[0][0]), seconds)

    def _over(self, limit: float) -> bool:
        """Tell whether no more first visits are made: where all was slow they took 3 s more than
        the 5 that there were."""
        return self.spent() > limit and not self._waiting[0][0].coarse

    def _to_spare(self, limit: float) -> float:
        """Return how long what is ready may wait for a quick moment until all that is left of the
        budget is what it will take itself; what is coarse, until it is to be there."""
        visits = len(self._launches)
        if self._waiting and self._waiting[0][0].coarse:
            limit = min(limit, _COARSE_SECONDS)
        each = self._visiting / visits if visits else _VISIT_SECONDS
        return limit - self.spent() - len(self._waiting) * each

    def _first_visit(self, point: Point, launch: Launch) -> str:
        """Measure a point for the first time; return its name."""
        self._first_launch(point, launch)
        self._visit(point, launch)
        if len(self._launches) % RETURN_EVERY == 0 and self._steady():
            self._return()
        return f"{point.implementation} {point.key}"

    def _first_launch(self, point: Point, launch: Launch) -> None:
        self._launches.append((point, launch))
        if self.found.shared(point):  # one thread has nothing to learn
            self._bench.settle(launch, thread_count())

    def _visit(self, point: Point, launch: Launch) -> tuple[list[float], bool]:
        """Take samples of a point; return them, and whether nothing disturbed them."""
        spins = self._spins(point)
        before, left = self._ready(spins), switches()
        began, worked = time.perf_counter(), time.thread_time()
        with self._threads(point):
            seconds = self._bench.visit(launch, self.found.shared(point))
        self._spinning = spins
        steady_now = self._steady_beside if spins else self._steady
        if sum([layout.nbytes for layout in point.group.graph.inputs]) > _DRIVES_OUT:
            steady_now()
        if spins:
            self._spun = time.perf_counter()
            if self._beside.met == math.inf:
                self._beside.now()
            steady = self._steady_beside() and not self._beside.quicker and before
        else:
            steady = before and self._steady() and not self.pace.quicker
        # Threads wait for the one that other work keeps from its processor: products of 60 us took
        # 8 ms then, a slice of the scheduler's.
        if thread_count() > 1 and self.found.threaded(point):
            steady = steady and switches() == left
        self._visiting += time.perf_counter() - began
        alone = point.implementation == "numpy" and point.key.startswith("elementwise")
        # One thread, which never waits. Where kernels have one too, its own clock is enough.
        if alone and self.device.space == "host" and thread_count() > 1:
            self.found.elapsed += time.perf_counter() - began
            self.found.worked += time.thread_time() - worked
        samples = self._samples(point)
        if point.amount not in samples.by_key.get(point.key, {}):
            self.found.points.append(point)
        samples.add(point.key, point.amount, point.group, seconds, steady)
        return seconds, steady

    def _steady(self, seconds: float = 0.0) -> bool:
        """Tell whether nothing disturbs the host, or no longer within so many seconds."""
        if self.device.space != "host":
            return True
        steady = self.pace.awaited(seconds)
        if self.pace.quicker:
            self._anew = True
            if self.found.kept is not None:
                self.found.kept = self.found.kept.slowed()
            self._was_slow(lambda name, key: True)
        return steady

    def _steady_beside(self, seconds: float = 0.0) -> bool:
        """Tell the same beside the threads that a library leaves spinning: products of two threads
        took 1.4 times as long for a quarter of the time, and in 0.4 % of the moments in which
        additions were as quick as at best (EPYC)."""
        steady = self._beside.awaited(seconds)
        if self._beside.quicker:
            self._anew = True
            self._was_slow(self.found.leaves_threads)
        return steady

    def _was_slow(self, which: Callable[[str, str], bool]) -> None:
        """Note that what was measured of these, by implementation and key, was in slow moments."""
        for name, samples in self.found.samples.items():
            for key, found in samples.by_key.items():
                if which(name, key):
                    for sample in found.values():
                        sample.steady = False

    def begin_anew(self) -> None:
        """Pass over what earlier calibrations kept, for good."""
        self.found.kept, self._anew = None, True

    @contextlib.contextmanager
    def _threads(self, point: Point) -> Iterator[None]:
        """Have work that is measured for one thread run on one."""
        if self.device.space != "host" or ("@" not in point.key and "sharing" in point.key):
            yield
            return
        one = point.amount <= compute_elements(self.device)
        threads.set_threads(1 if one else thread_count())
        try:
            yield
        finally:
            threads.set_threads(thread_count())

    def _refine(self) -> Iterator[str]:
        """Add knots where the curve of NumPy's or our additions misses its measured middle."""
        limit = self.budget_seconds * REFINE_SHARE
        main, key = main_dtype(self.device), self.found.main
        for name, samples in self.found.samples.items():
            queue = samples.gaps(key)
            while queue and self.spent() < limit:
                low, high = queue.pop(0)
                middle = round(math.sqrt(low * high))
                if high < NEAREST_KNOTS * low or not low < middle < high:
                    continue
                predicted = samples.interpolated(key, middle)
                point = Point(name, key, middle, probes.loop("add", main, middle))
                if not self._known_before(point):
                    launch = self._launch(point)
                    if launch is None:
                        break
                    self._steady(limit - self.spent())
                    self._first_visit(point, launch)
                if abs(math.log(samples.seconds_of(key, middle) / predicted)) > MISSED:
                    queue += [(low, middle), (middle, high)]
                yield f"{name} {key} {middle}"

    def _repeat(self) -> Iterator[str]:
        """Measure points again, seconds later: it is other work that makes them differ."""
        limit = self.budget_seconds * REPEAT_SHARE
        for again in range(MOST_REPEATS):
            # those first of which nothing is known but what they took beside other work, or little
            known = self.found.samples.items()
            doubts = {(name, *knot) for name, s in known for knot in s.doubtful(CURVE_CLASSES)}
            ready: list[tuple[Point, Launch | None]] = [*self._launches]
            ready += [(point, None) for point in self._had]
            for point, launch in sorted(ready, key=lambda found: self._known(found[0], doubts)):
                spins = self._spins(point)
                if not self._ready(spins, limit - self.spent()) or self.spent() > limit:
                    return
                sample = self.found.sample(point)
                if again >= LONG_REPEATS and min(sample.seconds) > LONG_SECONDS:
                    continue
                if launch is None:
                    self._had.remove(point)
                    if (launch := self._launch(point)) is None:
                        continue
                    self._first_launch(point, launch)
                earlier, both = sample.timing, sample.steady
                seconds, steady = self._visit(point, launch)
                # What a slow moment did is known, and replaced: it says nothing of the others.
                if both and steady:
                    self.found.passes.append((earlier, summary(seconds)))
                yield f"{point.implementation} {point.key} again"

    def _return(self) -> None:
        """Visit the point of a curve again that was visited least: all predictions are read off
        these, so they are met in as many moments of the first pass as there is time for."""
        curves = [
            (len(self.found.sample(point).seconds), number)
            for number, (point, _) in enumerate(self._launches)
            if point.key.partition("/")[0] in CURVE_CLASSES and not self._spins(point)
        ]
        if curves:
            point, launch = self._launches[min(curves)[1]]
            if min(self.found.sample(point).seconds) < LONG_SECONDS:
                self._visit(point, launch)

    def _known(
        self, point: Point, doubts: Collection[tuple[str, str, float]]
    ) -> tuple[bool, bool, bool, int, bool]:
        """Return what is less for a point that is to be visited before others: whether it was
        measured while nothing disturbed it and is in no doubt, whether all else can be read without
        it, or much, how often; and, since what leaves threads spinning is visited together, whether
        it does so."""
        sample = self.found.sample(point)
        visits, spins = len(sample.seconds), self._spins(point)
        sure = sample.steady and (point.implementation, point.key, point.amount) not in doubts
        curve = point.key.partition("/")[0] in CURVE_CLASSES
        return sure, point.key != self.found.main, not curve, visits, spins

    def _validate(self) -> Iterator[str]:
        """Measure sizes and combinations that no curve has seen, and keep the errors."""
        profile = self.profile()
        found: list[tuple[str, str, float, Launch, bool, list[float]]] = []
        limit = self.budget_seconds * VALIDATE_SHARE
        for kind, name, group in unseen(self.device):
            if self.spent() > limit:
                break
            predicted = estimate(group, self.device, name, profile)
            if predicted is None or predicted.seconds > LONG_TRIED:
                continue
            try:
                launch = self._bench.launch(Probe(name, group))
            except Unsupported:
                continue
            shared = name == "generated" and self.device.space == "host" and thread_count() > 1
            if shared:
                self._bench.settle(launch, thread_count())
            spins = self.found.leaves_threads(name, f"{kind}/")
            self._ready(spins, limit - self.spent())
            first, self._spinning = self._bench.visit(launch, shared), spins
            found.append((kind, name, predicted.seconds, launch, shared, first))
            yield f"{name} unseen"
        found.sort(key=lambda one: one[0] == MATMUL)
        for _ in range(LONG_REPEATS):
            for kind, name, _, launch, shared, seconds in found:
                spins = self.found.leaves_threads(name, f"{kind}/")
                if not self._ready(spins, self.budget_seconds - self.spent()):
                    break
                seconds += self._bench.visit(launch, shared)
                self._spinning = spins
                yield f"{name} unseen again"
        for kind, name, expected, _, _, seconds in found:
            error = math.log(expected / summary(seconds).seconds)
            self.found.errors.setdefault(name, {}).setdefault(kind, []).append(error)
