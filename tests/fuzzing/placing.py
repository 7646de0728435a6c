"""Placement at random: every group gets made-up seconds on every device, so that values end up
anywhere and are copied from everywhere to everywhere."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from alight._src.adapt import planner_facts
from alight._src.base.cache_registry import Cache, forget
from alight._src.ir.group import Group
from alight._src.plan.choose import group_key
from alight._src.plan.plan import Estimate
from alight.backends import registry
from alight.errors import DeviceUnavailable

# Far more than any kernel takes to compile: nobody runs NumPy because a kernel is not there yet.
_MOST_SECONDS = 1000.0


@cache
def devices() -> tuple[str, ...]:
    """Return the devices to place on: the simulated one, and graphics cards where there are any."""
    found = ["cpu", "sim:0"]
    with suppress(DeviceUnavailable):  # a machine without a driver places on the others
        found.append(registry.device("wgpu:0").id)
    return tuple(found)


@contextmanager
def at_random(seed: int) -> Iterator[None]:
    """Have estimates and copies cost what the seed says."""
    chooser = random.Random(seed)
    # Dear copies leave values where they are, cheap ones send them round.
    copy = _MOST_SECONDS * chooser.choice((0.0, 0.001, 0.1))

    def estimate(group: Group, device: str, implementation: str) -> Estimate:
        key = f"{seed}{group_key(group)}{device}{implementation}"
        seconds = 1.0 + zlib.crc32(key.encode()) / 2**32 * _MOST_SECONDS
        return Estimate(seconds, seconds, seconds, {"compute": seconds})

    before = planner_facts.estimate, planner_facts.copy_seconds
    planner_facts.estimate, planner_facts.copy_seconds = (
        estimate,
        lambda source, target, nbytes: copy,
    )
    forget(Cache.PLANS)
    try:
        yield
    finally:
        planner_facts.estimate, planner_facts.copy_seconds = before
        forget(Cache.PLANS)
