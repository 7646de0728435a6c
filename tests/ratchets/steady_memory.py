"""Whether memory stays as it is while a program makes and drops arrays.

``python -m tests.ratchets.steady_memory [DOOR] [--seconds 300]`` runs one program so long in a
process of its own with an empty cache by each door (``jit``, ``namespace`` or ``run``; all by
default), and in one that runs as long in NumPy. What Linux says is resident (VmRSS) is read between
its turns: the most in each tenth of the time must not grow, and be within 64 MB of NumPy's. Code
that is mapped meanwhile is left out, as by ``memory``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from .memory import MORE_KEPT
from .modes import MODES, child_environment
from .result import Result, finish

__all__ = ["DOORS", "PARTS", "faults", "main", "measure", "run"]

NAME = "steady_memory"
SECONDS = 300.0
PARTS = 10

# The text before each door's program, and what makes a function of it the door's.
DOORS = {
    "numpy": ("import numpy as np", "def jit(body):\n    return body"),
    "jit": ("import numpy as np", "from alight import jit"),
    "namespace": ("import alight as np", "def jit(body):\n    return body"),
    "run": ("import numpy as np", "def jit(body):\n    return body"),
}

# Arrays of 8 KB to 24 MB in sizes that come again and sizes that do not, some kept for a while.
PROGRAM = """
{heading}

import json, random, sys, time, warnings

{jit}

warnings.simplefilter("ignore")

def figure(name):
    with open("/proc/self/status") as file:
        return int(file.read().split(name + ":")[1].split()[0]) << 10

@jit
def smooth(x, y):
    z = np.sqrt(x * x + y * y)
    return (z - z.mean()) / (1.0 + z.std())

@jit
def update(x, y):
    x *= 0.5
    x += y
    return x.sum()

def turn(draw, held):
    size = draw.choice([1000, 50_000, 400_000, 3_000_000, draw.randrange(1000, 1_000_000)])
    x = np.linspace(0.0, 1.0, size)
    y = np.ones(size)
    held.append(smooth(x, y))
    float(update(x, y))
    parts = [x[i::7] * i for i in range(7)]
    float(sum([part.sum() for part in parts]))
    if len(held) > 4:
        del held[draw.randrange(len(held))]
    if draw.random() < 0.02:
        held.clear()

def go(seconds, turns):
    draw, held, most, began = random.Random(7), [], [0] * {parts}, time.monotonic()
    files, part, done = figure("RssFile"), 0, 0
    while part < {parts}:
        turn(draw, held)
        done += 1
        used = figure("RssAnon") + min(files, figure("RssFile"))
        most[part] = max(most[part], used)
        reached = done / turns if turns else (time.monotonic() - began) / seconds
        part = max(part, int(reached * {parts}))
    print(json.dumps({{"most": most, "turns": done}}))

go(float(sys.argv[1]), int(sys.argv[2]))
"""


def faults(numpy: list[int], alight: list[int]) -> Iterator[str]:
    """Yield what breaks the promise, by the most that was resident in each part of the time."""
    # The first part has the compiling; a drawn program's most is a matter of chance, so NumPy's own
    # parts say how much they differ.
    half = PARTS // 2
    grown = max(alight[half:]) - max(alight[1:half])
    if grown > max(0, max(numpy[half:]) - max(numpy[1:half])) + MORE_KEPT // 4:
        yield f"the most grows by {grown / 1e6:.0f} MB from the first half to the second"
    over = max(alight) - max(numpy)
    if over > MORE_KEPT:
        yield f"at most {max(alight) / 1e6:.0f} MB are resident, NumPy's {max(numpy) / 1e6:.0f}"


def run(door: str, seconds: float, turns: int = 0) -> list[int]:
    """Return the most bytes that were resident in each part of so many seconds, or turns."""
    heading, jit = DOORS[door]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(PROGRAM.format(heading=heading, jit=jit, parts=PARTS))
        launcher = ["-m", "alight", "run"] if door == "run" else []
        environment = child_environment(MODES["auto"], "alight")
        found = subprocess.run(
            [sys.executable, *launcher, str(path), str(seconds), str(turns)],
            capture_output=True, text=True, timeout=2 * seconds + 300, cwd=folder,
            env=environment | {"ALIGHT_CACHE_DIR": str(Path(folder, "cache"))},
        )  # fmt: skip
    if found.returncode:
        raise RuntimeError(f"{door}: {found.returncode}: {found.stderr[-800:]}")
    most: list[int] = json.loads(found.stdout.strip().splitlines()[-1])["most"]
    return most


def measure(door: str, seconds: float = SECONDS) -> Result:
    """Run the program by a door and in NumPy."""
    began = perf_counter()
    result = Result(NAME, door, "alight", whole=seconds >= SECONDS)
    plain, own = run("numpy", seconds), run(door, seconds)
    result.problems += faults(plain, own)
    result.details = {"numpy": plain, "alight": own, "seconds": seconds}
    result.counts = {"most": max(own), "numpy_most": max(plain)}
    result.seconds = perf_counter() - began
    return finish(result, MODES["auto"])


def main() -> None:
    """Run what is named."""
    named = sys.argv[1:]
    seconds = SECONDS
    if "--seconds" in named:
        place = named.index("--seconds")
        seconds = float(named[place + 1])
        del named[place : place + 2]
    sys.exit(not all([measure(door, seconds).passed for door in named or list(DOORS)[1:]]))


if __name__ == "__main__":
    main()
