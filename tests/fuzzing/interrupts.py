"""Exceptions of signal handlers at random moments: each reaches the program once, and all goes on.

``python -m fuzzing.interrupts DOOR MODE KIND COUNT [SEED]`` prints a line of JSON; its exit status
is 1 where something went wrong. DOOR: ``namespace``, ``jit`` (``run`` is ``python -m alight run -m
fuzzing.interrupts numpy …``: NumPy's names, which are alight's there). KIND: ``signal`` (a handler
that raises an error of the program's own) or ``keyboard``. An array that was being assigned to is
as it was, or as it was to be.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import time
import traceback
from typing import Any

import numpy

import alight
from alight._src.base.originals import np
from fuzzing.shared_arrays import MODES

NdArray = np.ndarray[Any, Any]
LENGTHS = (16, 3_000, 60_000)
LATEST_SECONDS = 0.004  # as long as some statements take, so that moments are spread over them
_LOST_SECONDS = 60.0


class Timeout(Exception):
    """What a program's handler raises."""


# Of any class, and of those that are caught where something fails.
_CLASSES = (
    Timeout,
    *(type(f"Timeout{base.__name__}", (base,), {}) for base in (
        TypeError, ValueError, TimeoutError, KeyError, AttributeError, OverflowError, RuntimeError,
    )),
)  # fmt: skip


class Wrong(Exception):
    """Something was lost, or is not as it must be."""


class Alarm:
    """One signal at a time, at a moment that is drawn."""

    def __init__(self, kind: str, draw: random.Random) -> None:
        self.draw = draw
        self.kind = kind
        self.fired = self.caught = 0
        self.until = 0.0
        self.place = ""  # where in the program the last one came
        self.error = _CLASSES if kind == "signal" else (KeyboardInterrupt,)
        signal.signal(signal.SIGALRM, self.handle)

    def handle(self, number: int, frame: Any) -> None:
        self.fired += 1
        self.place = "".join(traceback.format_stack(frame)[-8:])
        if self.kind == "keyboard":
            signal.default_int_handler(number, frame)
        raise self.draw.choice(_CLASSES)(self.fired)

    def set(self) -> None:
        self.until = time.monotonic() + _LOST_SECONDS
        signal.setitimer(signal.ITIMER_REAL, self.draw.uniform(1e-6, LATEST_SECONDS))

    def look(self) -> None:
        """Raise Wrong where what the handler raised has not come."""
        if self.fired > self.caught:
            raise Wrong(f"exception {self.fired} of the handler was swallowed in:\n{self.place}")
        if time.monotonic() > self.until:
            raise Wrong("a signal did not arrive at all")


def equal(found: NdArray, wanted: NdArray) -> bool:
    """Compare two arrays; ``np.array_equal`` swallows errors itself."""
    return found.shape == wanted.shape and bool((found == wanted).all())


class Writing:
    """An array, what it must hold, and what it may hold while a statement changes it."""

    def __init__(self, array: Any, holds: NdArray) -> None:
        self.array, self.holds = array, holds
        self.next: NdArray | None = None

    def check(self, exact: bool = True) -> None:
        found = np.array(self.array)
        if self.next is not None and not exact and equal(found, self.next):
            self.holds = self.next
        elif not equal(found, self.holds):
            wrong = np.flatnonzero(found != self.holds)
            raise Wrong(
                f"{len(wrong)} of {len(found)} elements, at {wrong[0]} {found[wrong[0]]}: "
                f"not {self.holds[wrong[0]]}"
                + ("" if self.next is None else f" nor {self.next[wrong[0]]}")
            )
        self.next = None


class Program:
    """Statements of one door. ``xp`` has the names that they are written with. What draws catches
    no errors, as ``randrange`` does."""

    def __init__(self, door: str, draw: random.Random) -> None:
        self.draw = draw
        self.xp: Any = numpy if door == "numpy" else alight
        self.statement = self.call if door == "jit" else self.state
        self.arrays: list[Writing] = []
        for length in LENGTHS:
            holds = np.arange(length) % 7 + 1.0
            array = holds.copy() if door == "jit" else self.xp.arange(length) % 7 + 1.0
            self.arrays.append(Writing(array, holds))
        self.bodies = [alight.jit(body) for body in (shifted, summed, scaled)]

    def state(self) -> None:
        draw = self.draw
        one = draw.choice(self.arrays)
        x, holds = one.array, one.holds
        kind = draw.choice(range(8))
        word = float(draw.choice(range(2, 6)))
        begin = draw.choice(range(len(holds) // 2))
        key = slice(begin, begin + len(holds) // 3, draw.choice((1, 2)))
        after = holds.copy()
        if kind == 0:
            self.same(self.xp.sqrt(x * word + 1.0) - x, np.sqrt(holds * word + 1.0) - holds)
        elif kind == 1:
            self.same(x[::-1] * x + word, holds[::-1] * holds + word)
        elif kind == 2:
            self.same((x > word).sum(), (holds > word).sum())
        elif kind == 3:
            after[key] = (after[key] + word) % 11.0
            one.next = after
            x[key] = (x[key] + word) % 11.0
        elif kind == 4:
            after[key] += word
            one.next = after
            x[key] += word
        elif kind == 5:
            after[1:] = holds[:-1]
            one.next = after
            x[1:] = x[:-1]
        elif kind == 6:
            after[holds > word] = 1.0
            one.next = after
            x[x > word] = 1.0
        else:
            after[...] = (holds * 0.5 + word) % 13.0
            one.next = after
            x[...] = (x * 0.5 + word) % 13.0
        if one.next is not None:
            one.holds, one.next = after, None
        if draw.random() < 0.3:
            one.check()

    def call(self) -> None:
        draw = self.draw
        one = draw.choice(self.arrays)
        kind = draw.choice(range(3))
        if kind < 2:
            self.same(self.bodies[kind](one.array), (shifted, summed)[kind](one.holds))
            return
        after = one.holds.copy()
        scaled(after)
        one.next = after
        self.bodies[2](one.array)
        one.holds, one.next = after, None
        one.check()

    def same(self, found: Any, wanted: Any) -> None:
        if not equal(np.asarray(found), np.asarray(wanted)):
            raise Wrong("a result is not NumPy's")


def shifted(x: Any) -> Any:
    return numpy.sqrt(x + 1.0) * 2.0 - x[::-1]


def summed(x: Any) -> Any:
    return (x * 2.0 > 5.0).sum()


def scaled(x: Any) -> None:
    x[1:] = (x[:-1] * 0.5 + x[1:]) % 9.0


def interrupted(door: str, mode: str, kind: str, count: int, seed: int) -> list[str]:
    """Return what went wrong while so many signals came."""
    draw = random.Random(seed)
    before = signal.getsignal(signal.SIGALRM)
    alarm = Alarm(kind, draw)
    wrong: list[str] = []
    try:
        with alight.policy(**MODES[mode]):
            program = Program(door, draw)
            while alarm.caught < count and not wrong:
                try:
                    alarm.set()
                    while True:
                        program.statement()
                        alarm.look()
                except alarm.error as error:
                    alarm.caught += 1
                    if kind == "signal" and error.args != (alarm.caught,):
                        wrong.append(f"{error!r} came as exception {alarm.caught}")
                except BaseException:
                    wrong.append(traceback.format_exc())
                if alarm.fired != alarm.caught and not wrong:
                    wrong.append(f"{alarm.fired} raised, {alarm.caught} arrived")
                if wrong:
                    wrong.append(f"the last one came in:\n{alarm.place}")
                try:
                    for array in program.arrays:
                        array.check(exact=False)
                    if alarm.caught % 100 == 0:
                        gc.collect()
                except BaseException:
                    wrong.append(f"after exception {alarm.caught}: {traceback.format_exc()}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return wrong


def main() -> None:
    door, mode, kind, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else random.SystemRandom().randrange(1 << 30)
    wrong = interrupted(door, mode, kind, count, seed)
    print(json.dumps([door, mode, kind, count, {"seed": seed, "wrong": wrong}]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
