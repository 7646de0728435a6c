"""Memory while a program makes and drops arrays, and under a limit: by turns, not by the clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ratchets import steady_memory

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="reads and sets what Linux says of a process"
)

ONE_LESS = """
import resource
{heading}
{jit}
@jit
def body(z):
    return (z - z.mean(0)) / z.std(0)

size = 240_000
z = np.linspace(-3.0, 3.0, size * 50).reshape(-1, 50)
# Three of its arrays and 30 MB are NumPy's peak; a result and 15 % are allowed beside it. What is
# reserved and never touched counts for this limit, too: 8 MiB of stack for each of five threads,
# and what the compiler's heap is rounded up to.
allowed = int(1.15 * (3 * z.nbytes + 30e6)) + z.nbytes + 64_000_000
resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
for _ in range(9):
    result = body(z)
    last = float(result[-1, -1])
    del result
print(round(last, 3))
"""


@pytest.mark.parametrize("door", ["jit", "namespace", "run"])
def test_programs_survive_with_what_numpy_needs_and_the_result(door: str, tmp_path: Path) -> None:
    heading, jit = steady_memory.DOORS[door]
    path = tmp_path / "program.py"
    path.write_text(ONE_LESS.format(heading=heading, jit=jit))
    launcher = ["-m", "alight", "run"] if door == "run" else []
    ran = subprocess.run([sys.executable, *launcher, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-800:]
    assert ran.stdout.split() == ["1.732"]


def test_memory_does_not_grow_with_turns() -> None:
    turns = 120
    for door in ("jit", "namespace"):
        most = steady_memory.run(door, 20.0, turns)
        half = steady_memory.PARTS // 2
        assert max(most[half:]) < max(most[:half]) + (64 << 20), (door, most)
