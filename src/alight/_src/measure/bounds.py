"""What no clock and no machine can show: bounds on the numbers of a profile from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from alight._src.base.failures import failures
from alight._src.plan.profile import Profile, Rates, unit_of

# The shortest and the longest that anything here can take: a processor's cycle, and longer than
# any budget there is for measuring.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1e-10, 1e4
# Bytes a second that nothing reads and writes: a core's first-level cache moves three lines of 64
# bytes a cycle at 6 GHz, times the largest host; the fastest memory on a card is at 8 TB/s, its
# caches at some 20.
_PEAK_BYTES_PER_SECOND = {"host": 512 * 1.2e12, "device": 1e14}
# A link: twice that between a Grace and a Hopper, the fastest there is.
_PEAK_LINK_BYTES_PER_SECOND = 2e12
# Multiplications and additions: ten times what the fastest card does in its shortest floats.
_PEAK_FLOPS = 1e17
_MOST_KNOTS = 10_000


def profile_of_document(document: object, path: str | None = None) -> Profile:
    """Return the profile that a document from anywhere describes.

    Raises ValueError, with what is wrong and the fix, for anything that is no profile or that no
    machine can have.
    """
    try:
        if not isinstance(document, Mapping):
            raise ValueError(f"a {type(document).__name__} where a profile is wanted")
        profile = Profile.from_dict(document, path)
        problem = next(iter(_problems(profile)), None)
    except RecursionError:
        raise ValueError("it is nested too deeply. Fix: alight calibrate.") from None
    except failures(ValueError) as error:
        text = str(error)
        raise ValueError(text if "Fix:" in text else f"{text}. Fix: alight calibrate.") from error
    except failures(KeyError, TypeError, AttributeError, OverflowError, ArithmeticError) as error:
        raise ValueError(
            f"it is no profile ({type(error).__name__}: {error}). Fix: alight calibrate."
        ) from error
    if problem is not None:
        raise ValueError(f"{problem}. Fix: measure anew with alight calibrate.")
    return profile


def _problems(profile: Profile) -> Iterable[str]:
    """Yield what in a profile no machine can have."""
    if not isinstance(profile.device, str) or not profile.device:
        yield f"its device is {profile.device!r}"
    if not isinstance(profile.fingerprint, Mapping):
        yield "it does not say what it was measured on"
    peak = _PEAK_BYTES_PER_SECOND["host" if profile.device == "cpu" else "device"]
    for name, rates in profile.rates.items():
        for problem in _rate_problems(rates, peak):
            yield f"{profile.device}:{name}: {problem}"
    for direction, curve in profile.links.items():
        for problem in _curve_problems(curve.knots, _PEAK_LINK_BYTES_PER_SECOND):
            yield f"{profile.device} {direction}: {problem}"
    for name, number in profile.one_offs.items():
        yield from _seconds_problems(name, number.value)
    for what, error in profile.validation.items():
        if not _finite(error):
            yield f"{what} is {error!r}"
    for what, seconds in (("made_at", profile.made_at), ("made_seconds", profile.made_seconds)):
        if not _finite(seconds) or seconds < 0:
            yield f"{what} is {seconds!r}"
    if profile.pace_seconds is not None:
        yield from _seconds_problems("what tells the processor's pace", profile.pace_seconds)


def _rate_problems(rates: Rates, peak: float) -> Iterable[str]:
    for key, curve in rates.curves.items():
        limit = _PEAK_FLOPS if unit_of(key) == "flops" else peak
        for problem in _curve_problems(curve.knots, limit):
            yield f"{key}: {problem}"
    for what, number in (("launch", rates.launch), ("call", rates.call)):
        if what == "launch" or number.value:
            yield from _seconds_problems(what, number.value)
    for key, number in rates.work.items():
        value = number.value
        least = -1.0 if key.startswith("call.") else 0.0  # beside the call of another
        if type(value) not in (int, float) or not least <= value <= 1.0:
            yield f"{key}: {number.value!r} seconds for an element"
    if not _finite(rates.overlap.value) or not 0 <= rates.overlap.value <= 1:
        yield f"overlap: {rates.overlap.value!r} is no share"
    for key, spread in {"all": rates.spread, **rates.spreads}.items():
        if not _finite(spread) or not 0 <= spread <= 10:
            yield f"{key}: {spread!r} is no spread"
    for dtype, surface in rates.surfaces.items():
        side = 4096.0
        seconds = surface.seconds_at(side, side, side)
        if not _finite(seconds) or 2 * side**3 / seconds > _PEAK_FLOPS:
            yield f"matmul/{dtype}: {seconds!r} seconds for a product of side {side:.0f}"


def _curve_problems(knots: Iterable[tuple[float, float]], peak: float) -> Iterable[str]:
    points = list(knots)
    if len(points) > _MOST_KNOTS:
        yield f"{len(points)} knots"
        return
    for work, seconds in points:
        if not _finite(work) or work <= 0:
            yield f"a knot at {work!r}"
            return
        for problem in _seconds_problems(f"the knot at {work:g}", seconds):
            yield problem
            return
        if work / seconds > peak:
            yield f"{work / seconds:.3g} a second at {work:g}, more than {peak:.3g}"
            return


def _seconds_problems(what: str, seconds: Any) -> Iterable[str]:
    if not _finite(seconds) or not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        yield f"{what} takes {seconds!r} s"


def _finite(number: Any) -> bool:
    return type(number) in (int, float) and math.isfinite(number)
