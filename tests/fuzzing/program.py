"""One random program: a seed, a number of steps, a mode; and its smallest failing part."""

from __future__ import annotations

import random
import warnings
from bisect import bisect
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

import alight

from . import computing, indexed, lifetimes, methods, placing, views, writes
from .moves import LISTED
from .pool import Pool

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "numpy": {"floor": 0, "force": "numpy"},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0"},
    "random": {"floor": 0},
}
# Where there is such a device; programs of other modes never change to it.
DEVICES: dict[str, dict[str, Any]] = {"cuda": {"floor": 0, "force": "cuda:0"}}
STEPS = 60
# One program in so many is left alone by the mode's policy now and then, in its middle.
_CHANGES = 12
_LARGE = 150  # one in so many works on arrays above the floor of automatic placement
_PALETTES = [tuple(map(np.dtype, chars)) for chars in ("dl?", "dl", "df?", "lB", "iD", "de")]
# In an order of their own, whatever was imported first: a seed is the same program everywhere.
_MODULES = [module.__name__ for module in (views, writes, indexed, computing, lifetimes, methods)]
MOVES = sorted(
    LISTED, key=lambda m: (_MODULES.index(m[0].__module__), m[0].__code__.co_firstlineno)
)
_TOTALS = list(accumulate(weight for _, weight in MOVES))


@dataclass(slots=True)
class Failure:
    """What went wrong, in which step, and what came before."""

    seed: int
    mode: str
    step: int
    move: str
    message: str
    steps: Sequence[int] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed} in mode {self.mode}, step {self.step} ({self.move}): {self.message}"
        )


def run(seed: int, mode: str, steps: Sequence[int] | None = None) -> tuple[int, Failure | None]:
    """Run a program; return how many operations it made, and how it failed.

    ``steps`` leaves out all others: each step decides by a seed of its own.
    """
    chooser = random.Random(seed)
    pool = Pool(chooser, np.random.default_rng(seed))
    if seed % 4:
        # Few dtypes and short graphs make kernels that many programs share: most of the time
        # would go into compiling otherwise.
        pool.dtypes = _PALETTES[seed % len(_PALETTES)]
        pool.restless = (0.0, 0.5, 0.9, 1.0)[seed % 4]
    pool.large = mode in ("auto", "numpy") and seed % _LARGE == 0
    changes = seed % _CHANGES == 0
    number = -1
    name = "created"
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack.enter_context(np.errstate(all="ignore"))
        if mode == "random":
            stack.enter_context(placing.at_random(seed))
            stack.enter_context(alight.policy(devices=placing.devices()))
        own = stack.enter_context(ExitStack())
        own.enter_context(alight.policy(**(MODES | DEVICES)[mode]))
        try:
            for _ in range(4):
                array = pool.fresh()
                pool.add(array, alight.asarray(array))
            for number in range(STEPS) if steps is None else steps:
                chooser.seed(seed << 10 | number)
                if changes and chooser.random() < 0.1:
                    own.close()
                    other = chooser.choice(list(MODES)) if chooser.random() < 0.5 else mode
                    own.enter_context(alight.policy(**(MODES | DEVICES)[other]))
                    if chooser.random() < 0.5:
                        own.enter_context(np.errstate(divide="warn", over="ignore"))
                act, _ = MOVES[bisect(_TOTALS, chooser.random() * _TOTALS[-1])]
                name = act.__name__
                pool.operations += 1
                act(pool)
            name = "compared at the end"
            pool.compare()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return pool.operations, Failure(seed, mode, number, name, text)
    return pool.operations, None


def shrunk(failure: Failure) -> Failure:
    """Return the failure with as few steps as still fail."""
    kept = list(range(failure.step + 1 if failure.step >= 0 else 0))
    best = failure
    size = max(1, len(kept) // 2)
    while size:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            found = run(failure.seed, failure.mode, fewer)[1]
            if found is not None:
                kept, best = fewer, found
            else:
                at += size
        size //= 2
    best.steps = kept
    return best


def run_many(mode: str, first: int, operations: int) -> tuple[int, int, list[Failure]]:
    """Run programs until there were so many operations; return operations, programs, failures."""
    done, seed = 0, first
    failures = []
    while done < operations:
        count, failure = run(seed, mode)
        done += count
        seed += 1
        if failure is not None:
            failures.append(failure)
    return done, seed - first, failures
