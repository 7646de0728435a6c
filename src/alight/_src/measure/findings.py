"""What calibration has found of a device by some moment, and the profile of it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from alight._src.base.records import dataclass, field, replace
from alight._src.measure.dtype_points import Point
from alight._src.measure.fit import compile_costs, fit, joined, left_out
from alight._src.measure.gemm_fit import LEAST as LEAST_PRODUCTS
from alight._src.measure.held_out import MATMUL
from alight._src.measure.intervals import far_off, spreads_of
from alight._src.measure.profiles import fingerprint
from alight._src.measure.samples import Sample, Samples
from alight._src.measure.saved_samples import Kept
from alight._src.measure.sizes import VITAL, compute_elements, main_dtype
from alight._src.measure.timing import SLOW_SHARE, Pace, Timing, contention, noise
from alight._src.plan.cost import Profile, Rates
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.profile import PRODUCTS, undisturbed
from alight.backends.machine import thread_count
from alight.backends.registry import open_seconds

if TYPE_CHECKING:
    from alight._src.measure.probe_bench import Bench
    from alight.device import Device

__all__ = ["COPY_BYTES", "Findings"]

# Of copies: from a few bytes, where the submission is all, to where a link has its bandwidth.
COPY_BYTES = tuple(1 << i for i in (2, 26, 18, 22, 12, 24, 15, 20))
# Of a step: where calls are no shorter through a plan than alone, less than any clock here tells.
LEAST_STEP = 1e-7


@dataclass(slots=True)
class Findings:
    """What was measured of one device so far, in which moments, and how well it predicts."""

    device: Device
    points: list[Point] = field(default_factory=list)
    samples: dict[str, Samples] = field(default_factory=dict)
    links: dict[str, dict[float, Timing]] = field(default_factory=dict)
    passes: list[tuple[Timing, Timing]] = field(default_factory=list)
    errors: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    complete: bool = False
    share: float | None = None
    import_seconds: float | None = None
    sharing: dict[str, Measured] = field(default_factory=dict)
    both_seconds: float | None = None
    step_seconds: float | None = None
    elapsed: float = 0.0
    worked: float = 0.0
    kept: Kept | None = None  # of calibrations before, that this one goes on from

    @property
    def main(self) -> str:
        """The key of the curve that all else is read off."""
        return f"elementwise/{main_dtype(self.device)}"

    @property
    def stepped(self) -> tuple[str, str]:
        """The device, and the implementation by which a step of ours is timed there."""
        return self.device.id, "numpy" if self.device.space == "host" else "generated"

    def shared(self, point: Point) -> bool:
        """Tell whether several threads have a part in a point."""
        several = point.amount > compute_elements(self.device) or "sharing" in point.key
        own = point.implementation == "generated" and self.device.space == "host"
        return own and several and thread_count() > 1

    def threaded(self, point: Point) -> bool:
        """Tell whether threads may have to wait for one another in a point."""
        return self.shared(point) or _is_product(point.key)

    def leaves_threads(self, implementation: str, key: str) -> bool:
        """Tell whether points of a key leave a library's threads spinning on other processors.
        OpenBLAS's do so for 2**28 ticks, 128 ms at 2.1 GHz, and where two processors are one
        core's, all else is slow meanwhile: 6 of 14 s of a calibration went by that way, once for
        each product (16 processors)."""
        library = implementation != "generated" and self.device.space == "host"
        return library and thread_count() > 1 and _is_product(key)

    def sample(self, point: Point) -> Sample:
        """Return the samples of a point."""
        return self.samples[point.implementation].by_key[point.key][point.amount]

    def slow_share(self) -> float:
        """Return the share of points that are known from slow moments alone, of those that one
        thread runs: with many others some processor is always wanted by somebody else, and what is
        left of that shows in how well its class is predicted."""
        steady = [self.sample(point).steady for point in self.points if not self.threaded(point)]
        return steady.count(False) / len(steady) if steady else 0.0

    def _slow_points(self, product: bool) -> dict[str, set[tuple[str, float]]]:
        """Return, by implementation, what was met in slow moments alone: of products, or of what
        one thread runs."""
        slow: dict[str, set[tuple[str, float]]] = {name: set() for name in self.samples}
        for point in self.points:
            kind = _is_product(point.key) if product else not self.threaded(point)
            if kind and not self.sample(point).steady:
                slow[point.implementation].add((point.key, point.amount))
        return slow

    def _sound(self) -> dict[str, Samples]:
        """Return the samples without those products that were met in slow moments alone, where
        half of them, the largest and enough for a surface are left: threads that wait for the one
        that other work keeps from its processor take a hundred times as long."""
        found = {}
        for name, slow in self._slow_points(True).items():
            samples = self.samples[name]
            left = Counter([key for key, _ in slow])
            keys = [key for key in left if _enough(samples.by_key[key])]
            found[name] = samples.without({point for point in slow if point[0] in keys})
        return found

    def _left_out(self, known: Mapping[str, Samples]) -> float:
        """Return the share of all points that is not among these samples."""
        left = sum([len(found) for s in known.values() for found in s.by_key.values()])
        return 1.0 - left / max(len(self.points), 1)

    def _undisturbed(self, sound: Mapping[str, Samples]) -> dict[str, Samples] | None:
        """Return these samples without those of slow moments that other work made; None where the
        curves that all else is read off are left without an end or a middle."""
        slow = self._slow_points(False)
        found = {name: samples.without(slow[name]) for name, samples in sound.items()}
        for name, samples in self.samples.items():
            every, left = (s.by_key.get(self.main, {}) for s in (samples, found[name]))
            if every and (len(left) < VITAL or {min(every), max(every)} - left.keys()):
                return None
        return found

    def _validation(self, off: Mapping[str, float]) -> dict[str, float]:
        """Return the error of the predictions of what was not measured for them, what the profile
        lacks: time, and products that were too far ``off``; and of how many points it is, by
        whether an earlier calibration knew them."""
        found = [e for kinds in self.errors.values() for errors in kinds.values() for e in errors]
        known = {} if self.share is None or self.complete else {"measured": self.share}
        known |= {f"left_out_{name}": math.expm1(error) for name, error in off.items()}
        before = sum([self.sample(point).before for point in self.points])
        known |= {"before": float(before), "new": float(len(self.points) - before)}
        if not found:
            return known
        percent = [abs(math.expm1(error)) for error in found]
        return known | {
            "shapes": float(len(found)),
            "mean_error": sum(percent) / len(percent),
            "median_error": median(percent),
            "worst_error": max(percent),
        }

    def _off(self, apart: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Return the implementations whose products are predicted too badly to be of use, with by
        how much. Nothing else is predicted from them, and without an estimate they are NumPy's.
        Those of generated code stay: taken for reductions, as which they would be predicted, they
        are off by 0.8 to 1.0 in logarithms, by what such took 0.35 to 0.6 (EPYC, 60 products)."""
        found = {
            name: far_off(missed, self.errors.get(name, {}).get(MATMUL, ()))
            for name, missed in apart.items()
            if name != "generated"
        }
        return {name: off for name, off in found.items() if off is not None}

    def _compile_costs(self, bench: Bench) -> dict[str, Measured]:
        """Return what compiling takes, by the calibration that compiled the most kernels."""
        kept = self.kept
        if kept is not None and len(bench.compiled) < kept.compiled:
            found = dict(kept.one_offs)
        else:
            found = compile_costs(bench.compiled)
        if self.import_seconds is not None:
            seconds = self.import_seconds
            found["compiler"] = Measured(seconds, "seconds", seconds, seconds, 1, "probe")
        elif kept is not None and "compiler" in kept.one_offs:
            found["compiler"] = kept.one_offs["compiler"]
        return found

    def to_keep(self, anew: bool, bench: Bench, pace: Pace) -> Kept | None:
        """Return what the next calibration goes on from, ``anew`` if that is not to be joined with
        what there was before; None where this one has nothing to add."""
        found = self.kept or Kept(since=time.time())
        found = replace(
            found,
            since=time.time() if anew else found.since,
            anew=anew or found.anew,
            pace_seconds=min(pace.met, found.pace_seconds),
            compiled=max(len(bench.compiled), found.compiled),
            one_offs=self._compile_costs(bench),
        ).with_samples(self.samples)
        kept = self.kept or Kept(0.0)
        return None if (found.timings, found.slow) == (kept.timings, kept.slow) else found

    def _one_offs(self, bench: Bench) -> dict[str, Measured]:
        found = self._compile_costs(bench)
        if self.both_seconds is not None:
            # How much longer a copy takes while one the other way goes on: 1 to 2.
            alone = sum(self.links[way][COPY_BYTES[3]].seconds for way in ("upload", "download"))
            share = 2 * self.both_seconds / alone
            found["both_ways"] = Measured(share, "times", share, share, 1, "probe")
        found |= bench.one_offs()
        if self.step_seconds is not None and self.stepped[1] in self.samples:
            calls = self.samples[self.stepped[1]].by_key.values()
            call = min(s.timing.seconds for found in calls for s in found.values())
            seconds = max(self.step_seconds - call, LEAST_STEP)
            found["step"] = Measured(seconds, "seconds", seconds, seconds, 1, "probe")
        opened = open_seconds(self.device)
        if opened:
            found["open"] = Measured(opened, "seconds", opened, opened, 1, "probe")
        return {**found, **self.sharing}

    def profile(self, seconds: float, bench: Bench, pace: Pace) -> Profile:
        """Return the profile of what has been measured so far, in so many seconds and at that pace,
        with what happens once as the bench met it."""
        rates: dict[str, Rates] = {}
        slow = self.slow_share()
        sound = self._sound()
        quick = self._undisturbed(sound) if slow > SLOW_SHARE else None
        known = quick or sound
        out = slow if quick else self._left_out(sound)
        apart = {name: left_out(samples) for name, samples in known.items()}
        spreads, off = spreads_of(self.errors, apart), self._off(apart)
        for name, samples in known.items():
            fitted = fit(samples, spreads[name])
            if fitted is not None:
                rates[name] = replace(fitted, surfaces={}) if name in off else fitted
        if self.device.space == "host" and thread_count() == 1:
            rates = joined(rates)
        one_offs = self._one_offs(bench)
        slow_left = 0.0 if quick else slow
        moments = self.passes, self.elapsed, self.worked, slow_left, pace.behind()
        if disturbed := contention(*moments):
            # what earlier calibrations measured was not in these moments
            before = sum([self.sample(point).before for point in self.points])
            more = noise(*moments) * (1.0 - before / max(len(self.points), 1))
            rates = {name: found.noisier(more) for name, found in rates.items()}
        return Profile(
            device=self.device.id,
            rates=undisturbed(rates, one_offs),
            links={
                direction: Curve([(nbytes, t.seconds) for nbytes, t in found.items()])
                for direction, found in self.links.items()
                if found
            },
            one_offs=one_offs,
            origin="measured",
            made_at=time.time(),
            made_seconds=seconds,
            validation=self._validation(off) | ({"slow": out} if out > 0.0 else {}),
            fingerprint=fingerprint(self.device),
            complete=self.complete,
            contended=bool(disturbed),
            pace_seconds=pace.met if pace.met < math.inf else None,
            doubts=(disturbed,) if disturbed else (),
        )


def _enough(products: Mapping[float, Sample]) -> bool:
    """Tell whether there are enough products for a surface without those of slow moments alone."""
    left = [amount for amount, sample in products.items() if sample.steady]
    least = max(LEAST_PRODUCTS, len(products) / 2)
    return len(left) >= least and max(left) == max(products)


def _is_product(key: str) -> bool:
    return key.partition("/")[0] in PRODUCTS
