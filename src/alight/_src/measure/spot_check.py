"""A short look whether a profile still holds, for when a decision is close."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from alight._src.ir.group import Group
from alight._src.measure import probes
from alight._src.measure.probe_bench import Bench
from alight._src.measure.probes import Probe
from alight._src.measure.sizes import main_dtype
from alight._src.measure.timing import quantile
from alight._src.plan.cost import Profile, estimate
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight.backends.base import Backend
    from alight.device import Device

BUDGET_SECONDS = 0.02  # of all of it
# Two measurements of the same thing agree to 2.4 % at best and 11 % at worst on a busy machine.
_APART = math.log(1.12)
# Elements: a call, the second-level cache, and past it. None is a knot.
_SIZES = (3_000, 50_000, 300_000)
_MOST_BYTES = 8 * max(_SIZES)


def canary(backend: Backend, device: Device, profile: Profile) -> float | None:
    """Return how many times as long as predicted a few probes take now; None where none ran."""
    began = perf_counter()
    bench = Bench(backend, device, _MOST_BYTES)
    dtype = main_dtype(device)
    # compiling takes longer than there is, so libraries are asked first
    names = sorted(device.support.implementations, key=lambda name: name == "generated")
    groups: Sequence[Group] = [probes.loop("multiply", dtype, n) for n in _SIZES]
    ratios = []
    for group in groups:
        predicted = estimate(group, device, names[0], profile)
        if predicted is None or perf_counter() - began > BUDGET_SECONDS:
            break
        try:
            samples = sorted(bench.visit(bench.launch(Probe(names[0], group))))
        except Unsupported:
            break
        ratios.append(math.log(quantile(samples, 0.2) / predicted.seconds))
    return math.exp(sum(ratios) / len(ratios)) if ratios else None


def holds(ratio: float, profile: Profile) -> bool:
    """Tell whether a profile that is off by so much is as good as it says it is."""
    spread = min((rates.spread for rates in profile.rates.values()), default=0.0)
    return abs(math.log(ratio)) <= max(_APART, spread)
