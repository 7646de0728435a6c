"""Threads that write disjoint and shared parts of shared Arrays, beside what each knows of them.

``python -m fuzzing.shared_arrays MODE ROUNDS [SEED [THREADS]]`` prints a line of JSON; its exit
status is 1 where a write was lost. ``python -m alight run -m fuzzing.shared_arrays …`` is the other
door. Every thread owns a part of each array (a run of elements, every
n-th one, or what a mask or an index array picks), of which it keeps NumPy's answer. What all write
to must hold, at each place, the last that one of them wrote there.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import threading
import traceback
from typing import Any

import numpy

import alight
from alight._src.base.originals import np
from lock_order import followed

# ``numpy`` is what a program has: under `alight run` that is alight's. ``np`` is NumPy's own, for
# what a thread knows of its part.
NdArray = np.ndarray[Any, Any]

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "floor0": {"floor": 0},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "numpy": {"floor": 0, "force": "cpu:numpy"},
    "sim": {"floor": 0, "force": "sim:0"},
}
LENGTHS = (48, 1_000, 6_000, 40_000)
LARGE, _OF_LARGE = 400_000, 0.02  # beyond any floor that is measured, in so many of the rounds
SLICES, STRIDED, PICKED = range(3)  # how an array is divided
_PATIENCE_SECONDS = 120.0  # with no round done by any thread: they wait for one another


class _Part:
    """What one thread owns of an array: how it is picked there, and what it holds."""

    def __init__(self, array: Any, kind: int, number: int, threads: int) -> None:
        self.array = array
        length = len(array)
        places = np.arange(length)
        self.key: Any
        if kind == SLICES:
            self.key = slice(number * length // threads, (number + 1) * length // threads)
        elif kind == STRIDED:
            self.key = slice(number, None, threads)
        else:
            self.key = None
        owned = places[self.key] if kind != PICKED else places[places * 7919 % threads == number]
        self.indices = owned
        self.mask = np.zeros(length, bool)
        self.mask[owned] = True
        self.ours = alight.asarray(self.mask)
        self.holds = np.asarray(array)[owned]

    def check(self, found: NdArray) -> None:
        """Compare what the array has at the owner's places."""
        if not np.array_equal(found, self.holds):
            wrong = np.flatnonzero(found != self.holds)
            place = self.indices[wrong[0]]
            raise AssertionError(
                f"{len(wrong)} of {len(found)} elements of {len(self.array)}: at {place} "
                f"{found[wrong[0]]}, not {self.holds[wrong[0]]}"
            )


class _Thread:
    def __init__(self, arena: Arena, number: int, seed: int) -> None:
        self.arena = arena
        self.number = number
        self.draw = random.Random(seed)
        self.parts = [_Part(array, kind, number, arena.threads) for array, kind in arena.divided]
        self.last = [np.zeros(len(array), np.int64) for array in arena.common]
        self.later: list[tuple[Any, NdArray, NdArray]] = []
        self.error: str | None = None
        self.rounds = 0

    def work(self, rounds: int) -> None:
        try:
            with alight.policy(**self.arena.policy):
                while self.rounds < rounds and not self.arena.failed:
                    self.round()
                    self.rounds += 1
                for part in self.parts:
                    part.check(np.asarray(part.array)[part.indices])
        except BaseException:
            self.error = traceback.format_exc()
            self.arena.failed = True

    def round(self) -> None:
        draw = self.draw
        if draw.random() < 0.2:
            self.write_common()
            return
        part = self.parts[-1] if draw.random() < _OF_LARGE else draw.choice(self.parts[:-1])
        x, holds, key = part.array, part.holds, part.key
        small = float(draw.randrange(1, 5))
        kind = draw.randrange(11)
        if kind == 0:  # masks and indices: only what is picked may be written
            if draw.random() < 0.5:
                x[part.ours] = small
            else:
                x[part.mask] = small
            holds[...] = small
        elif kind == 1:
            if draw.random() < 0.3:
                numpy.add.at(x, part.indices, small)
            else:
                add = draw.choice((numpy.add, alight.add))
                add(x, small, out=x, where=draw.choice((part.ours, part.mask)))
            holds += small
        elif kind == 2:
            x[part.indices] = holds * 0.5
            holds *= 0.5
        elif kind == 3 or key is None:
            self.look(part)
        elif kind == 4:
            x[key] += small
            holds += small
        elif kind == 5:
            x[key] = x[key] * 0.5
            holds *= 0.5
        elif kind == 6:
            own = x[key]
            own[::2] -= small
            holds[::2] -= small
        elif kind == 7:
            draw.choice((numpy.multiply, alight.multiply))(x[key], 0.5, out=x[key])
            holds *= 0.5
        elif kind == 8:
            x[key][::-1] = x[key]
            holds[...] = holds[::-1].copy()
        elif kind == 9:
            x[key] = holds = np.sqrt(np.abs(holds)).round(3)
            part.holds = holds
        else:
            x[key].sort()
            holds.sort()
        if np.abs(part.holds).max(initial=0.0) > 1e9:
            x[part.indices] = 1.0
            part.holds[...] = 1.0

    def look(self, part: _Part) -> None:
        """Read one's own part now, or record what reads it for later."""
        draw, x = self.draw, part.array
        kind = draw.randrange(5)
        if kind == 0:
            part.check(np.asarray(x[part.key] if part.key is not None else x[part.indices]))
        elif kind == 1:
            place = draw.randrange(len(part.indices))
            found = float(x[int(part.indices[place])])
            assert found == part.holds[place], (found, part.holds[place])
        elif kind == 2:  # of all, and only the own places are compared
            self.later.append((x * 2.0, part.holds * 2.0, part.indices))
        elif kind == 3 and draw.random() < 0.2:  # open to others while this holds it
            shared = np.asarray(x)
            shared[part.indices] += 1.0
            part.holds += 1.0
            part.check(shared[part.indices])
        elif self.later:
            found, wanted, indices = self.later.pop(draw.randrange(len(self.later)))
            assert np.array_equal(np.asarray(found)[indices], wanted), "read later, as it was"
        while len(self.later) > 3:
            self.later.pop(0)

    def write_common(self) -> None:
        """Write to places that others write to, what tells who did and when."""
        draw = self.draw
        which = draw.randrange(len(self.arena.common))
        x, last = self.arena.common[which], self.last[which]
        begin = draw.randrange(len(last))
        key = slice(begin, begin + 1 + draw.randrange(len(last)), draw.choice((1, 1, 1, 3)))
        word = self.rounds * self.arena.threads + self.number + 1
        kind = draw.randrange(4)
        if kind == 0:
            x[key] = word
        elif kind == 1:
            x[key] = alight.zeros(len(last[key]), alight.int64) + word
        elif kind == 2:
            alight.add(x[key] * 0, word, out=x[key])
        else:
            key = slice(None)
            x[...] = word
        last[key] = word


class Arena:
    """The arrays that threads share."""

    def __init__(self, policy: dict[str, Any], seed: int, threads: int) -> None:
        self.policy = policy
        self.threads = threads
        self.failed = False
        with alight.policy(**policy):
            self.divided = [
                (alight.zeros(length) + 1.0, kind)
                for length in LENGTHS
                for kind in (SLICES, STRIDED, PICKED)
            ]
            self.divided.append((alight.zeros(LARGE) + 1.0, SLICES))
            self.common = [alight.zeros(length, alight.int64) for length in LENGTHS]
        self.workers = [_Thread(self, n, seed + n) for n in range(threads)]

    def run(self, rounds: int) -> list[str]:
        """Return what went wrong."""
        running = [
            threading.Thread(target=w.work, args=(rounds,), daemon=True) for w in self.workers
        ]
        for thread in running:
            thread.start()
        before = -1
        while any(thread.is_alive() for thread in running):
            for thread in running:
                thread.join(_PATIENCE_SECONDS / len(running))
            done = sum(w.rounds for w in self.workers)
            if done == before and any(thread.is_alive() for thread in running):
                faulthandler.dump_traceback(sys.__stderr__)
                return ["threads wait for one another"]
            before = done
        wrong = [worker.error for worker in self.workers if worker.error]
        return wrong or self.compare()

    def compare(self) -> list[str]:
        """Return what the arrays do not hold that they must."""
        wrong = []
        for worker in self.workers:
            for part in worker.parts:
                try:
                    part.check(np.asarray(part.array)[part.indices])
                except AssertionError as error:
                    wrong.append(f"thread {worker.number}, in the end: {error}")
        for number, array in enumerate(self.common):
            found = np.asarray(array)
            lasts = np.stack([worker.last[number] for worker in self.workers])
            lost = ~((lasts == found).any(0))
            if lost.any():
                place = int(np.flatnonzero(lost)[0])
                wrong.append(
                    f"{int(lost.sum())} common elements of {len(found)}: at {place} "
                    f"{found[place]}, none of {lasts[:, place].tolist()}"
                )
        return wrong


def run(mode: str, rounds: int, seed: int, threads: int = 8) -> list[str]:
    """Return what went wrong in so many rounds of each thread."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)  # a thousand times as many turns as usual
    try:
        with followed() as locks:
            wrong = Arena(MODES[mode], seed, threads).run(rounds)
        return [*wrong, *sorted(locks.wrong)]
    finally:
        sys.setswitchinterval(before)


def main() -> None:
    mode, rounds = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 30)
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else 8
    wrong = run(mode, rounds, seed, threads)
    told = {"mode": mode, "rounds": rounds, "threads": threads, "seed": seed, "wrong": wrong}
    print(json.dumps(told))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
