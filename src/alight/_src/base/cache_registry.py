"""What a process keeps so as not to find it out again, and what makes it wrong.

Every cache that something else than its keys can make wrong is listed here with what it rests on.
Who changes a thing names it to `forget`, and all that came of it goes, wherever that is kept. What
depends on its keys alone (memos of pure functions) cannot be wrong, and is not listed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

__all__ = ["Cache", "forget", "register"]


class Cache(Enum):
    """Something that is kept. New ones get a line here, one in `RESTS_ON`, and register a reset."""

    SETTINGS = auto()  # the settings file and the environment, as read
    OPS = auto()  # what was learned of ops, by these: it keeps those that a program declared anew
    RECALLED_DEVICES = auto()  # devices that were calibrated here
    VERIFIED_OPS = auto()  # which ops match NumPy on which device
    PROFILES = auto()  # profiles of devices, and what earlier processes counted for predictions
    KERNELS_MET = auto()  # groups that NumPy ran for want of a kernel
    KERNELS_LOST = auto()  # groups whose kernels lost to NumPy
    TIMINGS = auto()  # what `pick="measure"` timed
    PLANS = auto()  # plans, by structure and sizes
    PREPARED_STEPS = auto()  # the kernels of plans, and what they have shown on trial
    JITTED = auto()  # what was learned of jitted functions


RESTS_ON: dict[Cache, tuple[Cache, ...]] = {
    Cache.SETTINGS: (),
    Cache.OPS: (Cache.SETTINGS,),
    Cache.RECALLED_DEVICES: (Cache.SETTINGS,),
    Cache.VERIFIED_OPS: (Cache.SETTINGS,),
    Cache.PROFILES: (Cache.SETTINGS,),
    Cache.KERNELS_MET: (Cache.PROFILES,),
    Cache.KERNELS_LOST: (Cache.PROFILES,),
    Cache.TIMINGS: (Cache.PROFILES,),
    Cache.PLANS: (
        Cache.OPS,
        *(Cache.RECALLED_DEVICES, Cache.VERIFIED_OPS),
        *(Cache.PROFILES, Cache.KERNELS_LOST, Cache.TIMINGS),
    ),
    Cache.PREPARED_STEPS: (Cache.PLANS,),
    Cache.JITTED: (Cache.PLANS,),
}

# By the modules that are loaded: those of others hold nothing yet.
_resets: dict[Cache, list[Callable[[], object]]] = {cache: [] for cache in Cache}


def register(cache: Cache, reset: Callable[[], object]) -> None:
    """Have a part of a cache forgotten with it, by its ``reset``."""
    _resets[cache].append(reset)


def forget(*caches: Cache) -> None:
    """Forget these caches, and then all that rests on them; without any, everything: what comes
    next finds all of it out anew, as a process that starts."""
    gone = set(caches or Cache)
    for cache in Cache:  # none stands before what it rests on
        if cache in gone or gone.intersection(RESTS_ON[cache]):
            gone.add(cache)
            for reset in tuple(_resets[cache]):
                reset()
