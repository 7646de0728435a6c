"""Locks are taken in one order, which is written down, and again by who has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import alight
from alight._src.record import storage_io
from alight._src.run import residency
from lock_order import LOCKS, ORDER, followed

SOURCE = Path(alight.__file__).parent
# Nobody waits for these.
NOT_WAITED_FOR = {"guarding"}
_MADE = re.compile(r"threading\.(?:R?Lock|Condition)\b|[ (]R?Lock\(\)|allocate_lock\(\)")


def test_every_lock_has_its_place() -> None:
    made = {p.stem for p in SOURCE.rglob("*.py") if _MADE.search(p.read_text(encoding="utf-8"))}
    placed = {name.split(".")[0] for name in ORDER if "." in name}
    assert made == placed | NOT_WAITED_FOR
    assert len(ORDER) == len(set(ORDER)) and set(LOCKS) < set(ORDER)


def test_what_is_asked_for_out_of_order_is_seen() -> None:
    x = alight.asarray([1.0, 2.0])
    with followed() as locks:
        with residency.LOCK, storage_io.Turn(x.storage), residency.LOCK:
            pass
        assert not locks.wrong and ("residency.LOCK", "Turn") in locks.pairs
        with storage_io.Turn(x.storage), residency.LOCK:
            pass
    assert locks.wrong == {"residency.LOCK asked for by who has Turn"}
    assert not hasattr(residency.LOCK, "_by")


@pytest.mark.parametrize("name", sorted(set(LOCKS) - {"uninterrupted._working"}))
def test_who_has_a_lock_gets_it_again(name: str) -> None:
    """A finalizer and a signal's handler may run anywhere. Who works apart waits for nobody."""
    lock = getattr(*LOCKS[name])
    with lock:
        assert lock.acquire(False)
        lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_work_that_is_done_apart_may_fork() -> None:
    program = """
import os
from alight._src.base.uninterrupted import uninterrupted
def work():
    child = os.fork()
    if not child:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert uninterrupted(work) == 7
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
