"""What a process does when it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from alight._src.base.at_exit import interrupted, when_over
when_over(lambda: print("first", interrupted(), flush=True))
when_over(print, "last")
if hasattr(os, "fork") and (child := os.fork()):
    os.waitpid(child, 0)
    print("over", flush=True)
    {end}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process forks here")
@pytest.mark.parametrize(
    ("end", "told"), [("", "False"), ("raise KeyboardInterrupt", "True")], ids=["end", "interrupt"]
)
def test_a_process_does_at_its_end_what_its_children_leave_to_it(end: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end)], capture_output=True, text=True
    )
    assert done.stdout.split() == ["over", "last", "first", told]
