"""Loops that go over and come back at any turn have NumPy's bits: random programs by a seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from beside_sim import PROFILE, environment

# Each program runs a dozen turns of random exact statements, in NumPy and in alight, where a loop
# that was weighed goes to and fro by chance and not by what it takes.
PROGRAMS = """
import random, sys
import numpy
import alight
from alight._src.plan.rent_or_buy import Switch
from alight._src.plan.cycle_cost import Ring
from alight._src.run import loop_placement, loop_weighing

SEED = int(sys.argv[1])
print("seed", SEED)
chance = random.Random(SEED)
Switch.is_due = lambda self, opening_seconds=0.0: chance.random() < 0.4
loop_placement.Loop._may_pay = lambda self: True
def anywhere(stages, *rest):
    return Ring(tuple(one.away_seconds is not None for one in stages), 1.0, 0.5)
loop_weighing.best_ring = anywhere
N = 200_000
STATEMENTS = [
    "a = a * 0.5 + b", "b = np.minimum(b, a) - c * 0.25", "c = np.sqrt(abs(a)) + c * 0.125",
    "a[3:-5] += b[8:]", "b[::2] = c[1::2]", "c[a > b] = 0.5", "a = a[::-1] * 1.0",
    "b = np.where(a < c, a, b)", "c = np.concatenate((c[10:], a[:10]))", "a += 1.0",
    "total += float(a[7])", "total += float(b.max())", "total += float(c[2:9].min())",
    "c = a.reshape(400, 500).T.reshape(-1) * 0.5", "keep.append(b * 2.0)",
    "b = numpy.asarray(b) + a",
]

def run(np, statements, turns):
    a = np.linspace(0.0, 1.0, N); b = np.linspace(1.0, 2.0, N); c = np.linspace(-1.0, 1.0, N)
    here = dict(np=np, numpy=numpy, a=a, b=b, c=c, total=0.0, keep=[])
    for turn in range(turns):
        for statement in statements:
            exec(statement, here)
        here["total"] += float(here["a"].min())  # a turn asks for something
        del here["keep"][:-3]
    arrays = here["a"], here["b"], here["c"], *here["keep"]
    return [numpy.asarray(array) for array in arrays], here["total"]

moved = 0
for number in range(int(sys.argv[2])):
    draw = random.Random(SEED * 1000 + number)
    statements = draw.sample(STATEMENTS, draw.randint(2, 6))
    turns = draw.randint(8, 14)
    expected, total = run(numpy, [s for s in statements], turns)
    found, ours = run(alight, statements, turns)
    assert total == ours, (number, statements, total, ours)
    for x, y in zip(expected, found, strict=True):
        assert x.tobytes() == y.tobytes(), (number, statements)
    moved += sum(len(loop.switched_at) for loop in loop_placement._loops)
    loop_placement._loops.clear()
print("moves", moved)
assert moved > int(sys.argv[2]) // 2, moved
"""


def test_switching_at_any_turn_changes_no_bits(tmp_path: Path) -> None:
    settings = environment(tmp_path, ALIGHT_FLOOR_ALL="100", ALIGHT_CHECK="1")
    subprocess.run([sys.executable, "-c", PROFILE], check=True, env=settings)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS, "20261127", "40"],
        capture_output=True, text=True, env=settings,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
