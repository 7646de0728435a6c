"""The memory that dead results leave goes where it is missed, and where nobody asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of the process"),
]

DROPPED = """
import resource, sys, time
import numpy as np
import alight
from alight._core import kept_bytes

def limit(beyond):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + beyond,) * 2)

def drop(results, megabytes=8):
    with alight.policy(floor=0, force="cpu:numpy"):
        x = alight.ones(megabytes << 17)
        made = [x * n for n in range(results)]
        for one in made:
            alight.evaluate(one)
        del made, one, x
"""


def prints(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", DROPPED + program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_under_a_limit_numpy_has_what_results_leave() -> None:
    said = prints("""
drop(1)
limit(256 << 20)
drop(20)
assert kept_bytes() <= (256 << 20) // 7, kept_bytes()
np.ones(180 << 17)
print("done")
""")
    assert said == "done\n"


def test_a_limit_that_comes_later_is_kept_to() -> None:
    said = prints("""
drop(20)
limit(50 << 20)
until = time.monotonic() + 30
while kept_bytes() > 30 << 20 and time.monotonic() < until:
    x = alight.ones(1 << 17) * 2  # the program goes on
    time.sleep(0.05)
np.ones(120 << 17)
print("done")
""")
    assert said == "done\n"


def test_all_of_it_goes_when_the_program_does_other_things() -> None:
    said = prints("""
drop(20)
assert kept_bytes() >= 8 << 20, kept_bytes()
until = time.monotonic() + 30
while kept_bytes() and time.monotonic() < until:
    time.sleep(0.05)
print(kept_bytes())
drop(3)
print(kept_bytes() > 0)
""")
    assert said == "0\nTrue\n"


def test_a_forked_child_gives_back_what_it_keeps() -> None:
    said = prints("""
import os
drop(3)
child = os.fork()
if child == 0:
    drop(3)
    until = time.monotonic() + 30
    while kept_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    os._exit(bool(kept_bytes()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert said == "0\n"


def test_what_lies_idle_in_the_heap_counts_as_kept() -> None:
    said = prints("""
until = time.monotonic() + 30
while True:
    parts = [np.ones(1 << 16) for _ in range(120)]  # 60 MB of the C library's heap
    pin = np.ones(1 << 16)  # above them, so that they stay resident
    del parts
    drop(9)  # of 80 MB
    if kept_bytes() <= 48 << 20 or time.monotonic() > until:
        break
print(kept_bytes() <= 48 << 20)
""")
    assert said == "True\n"


def test_threads_reserve_no_heaps_where_addresses_are_limited() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ADDRESSES], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 64 << 20, ran.stdout


ADDRESSES = """
import resource, threading
resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2)
import numpy as np
import alight

def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

threading.stack_size(256 << 10)
before, done = used(), threading.Barrier(4)
def work():
    made = [np.ones(2000) for _ in range(8)]
    done.wait()
    done.wait()
threads = [threading.Thread(target=work) for _ in range(3)]
for one in threads:
    one.start()
done.wait()
print(used() - before)
done.wait()
"""
