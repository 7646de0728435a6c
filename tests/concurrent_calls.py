"""Calls that many threads make at once, on arrays they share, each beside NumPy."""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.run import residency
from alight.backends import registry

THREADS = 8
SECONDS = 2.0  # of each kind: the test is for what a thousand rounds meet
LENGTHS = (1, 7, 64, 1000)
NdArray = np.ndarray[Any, Any]


# Ops with NumPy's bits on every device; sums are of integers.
def chain(x: Any, y: Any) -> Any:
    return np.sqrt(x * x + y * y) - np.minimum(x, y) / 2.0


def several(x: Any, y: Any) -> Any:
    m = np.where(x > y, x - y, y)
    return m, [(m * 2.0).astype(np.int64).sum(), np.maximum(x, 0.25)[::-1]]


def written(x: Any, y: Any) -> Any:
    t = x + 1.0
    t[1:] += y[:-1]
    t[::2] = t[::2] * t[::2]
    return t


def added(x: Any, y: Any) -> None:
    x += y
    x[: len(y) // 2] *= 0.5


PURE = (chain, several, written)


def flat(item: Any) -> list[NdArray]:
    if isinstance(item, (tuple, list)):
        return [part for one in item for part in flat(one)]
    return [np.asarray(item)]


def same(got: Any, expected: Any) -> None:
    for one, other in zip(flat(got), flat(expected), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)


class Shared:
    """What all threads use: functions, arrays of NumPy's and the same as Arrays."""

    def __init__(self, seed: int, force: str | None) -> None:
        generator = np.random.default_rng(seed)
        self.force = force
        self.jitted = {body: alight.jit(body) for body in (*PURE, added)}
        self.plain = {n: [generator.random(n) for _ in range(3)] for n in LENGTHS}
        self.ours = {n: [alight.asarray(x) for x in own] for n, own in self.plain.items()}
        self.until = time.monotonic() + SECONDS
        self.errors: list[tuple[int, int, BaseException]] = []

    def work(self, seed: int) -> None:
        draw = random.Random(seed)
        turn = 0
        try:
            with alight.policy(floor=0, force=self.force):
                while (turn == 0 or time.monotonic() < self.until) and not self.errors:
                    self.round(draw)
                    turn += 1
        except BaseException as error:
            self.errors.append((seed, turn, error))

    def round(self, draw: random.Random) -> None:
        length = draw.choice(LENGTHS)
        i, j = draw.randrange(3), draw.randrange(3)
        x, y = self.plain[length][i], self.plain[length][j]
        a, b = self.ours[length][i], self.ours[length][j]
        body = draw.choice(PURE)
        kind = draw.randrange(7)
        if kind == 0:  # ndarrays, the memory that others read
            same(self.jitted[body](x, y), body(x, y))
        elif kind == 1:  # Arrays that others read
            same(self.jitted[body](a, b), body(x, y))
        elif kind == 2:  # recorded, of what others have pending or asked for
            same(body(a[::-1], b), body(x[::-1], y))
        elif kind == 3:  # results that go into others
            first = self.jitted[chain](a, b)
            second = self.jitted[body](first, a)
            del first
            same(second, body(chain(x, y), x))
        elif kind == 4:  # an array of its own, written by jitted functions and by slices
            mine, wanted = alight.asarray(x), x.copy()
            for _ in range(3):
                self.jitted[added](mine, b)
                added(wanted, y)
                mine[1:] = mine[:-1] * 0.5
                wanted[1:] = wanted[:-1] * 0.5
            same(mine, wanted)
        elif kind == 5:  # an ndarray of its own, and one of the others as its operand
            mine, wanted = x.copy(), x.copy()
            self.jitted[added](mine, y)
            added(wanted, y)
            same(mine, wanted)
        else:  # what others are short of
            where = registry.device("cuda:0" if self.force == "cuda:0" else "sim:0")
            residency.make_room(where, draw.choice((1, 1 << 12, 1 << 20)))
            same(a + b, x + y)


def run(force: str | None) -> None:
    """Have threads compute and compare for a while."""
    seed = int(os.environ.get("ALIGHT_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"ALIGHT_TEST_SEED={seed}", file=sys.stderr)
    shared = Shared(seed, force)
    threads = [threading.Thread(target=shared.work, args=(seed + i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * SECONDS)
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(sys.__stderr__)
        pytest.fail("threads wait for one another")
    if shared.errors:
        number, turn, error = shared.errors[0]
        raise AssertionError(f"thread of seed {number}, round {turn}") from error
    for length, arrays in shared.ours.items():  # what was only read is as it was
        same(arrays, shared.plain[length])
