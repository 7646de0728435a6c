"""Parts of an array that lies on a device: only what is read comes to the host."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG

SEED = 17
SIZE = 1_000_000


@pytest.fixture
def there() -> Any:
    """Return an array of two million bytes a row on the simulated device, and NumPy's."""
    with alight.policy(force="sim:0", devices=["cpu", "sim:0"], floor=0):
        theirs = np.arange(float(SIZE)).reshape(100, -1) * 2
        ours = alight.asarray(np.arange(float(SIZE)).reshape(100, -1)) * 2
        alight.evaluate(ours)
        assert ours.device == "sim:0"
        yield ours, theirs


_READS: dict[str, Callable[[Any], Any]] = {
    "float": lambda y: float(y[3, 5]),
    "int": lambda y: int(y[99, 9999]),
    "bool": lambda y: bool(y[0, 0]),
    "item": lambda y: y[3].item(7),
    "list": lambda y: y[3, 10:20].tolist(),
    "shown": lambda y: str(y[3, 10:20]),
    "backwards": lambda y: y[3, 20:10:-3].tolist(),
    "column": lambda y: y[40:44, 7].tolist(),
    "format": lambda y: f"{y[3, 4]:.2f}",
    "halves": lambda y: y[3, 10:12].view("i4").tolist(),
    # What NumPy makes an array of shares all of the memory, both ways: it asks for a buffer first.
    "copied": lambda y: y[3, 10:20].__array__(copy=True).tolist(),
    "converted": lambda y: y[3, 10:20].__array__("f4").tolist(),
    "turned": lambda y: y.T[10:20, 3].__array__("i4").tolist(),
    "pickled": lambda y: pickle.loads(pickle.dumps(y[3, 10:20])).tolist(),
    "pickled in Fortran's order": lambda y: pickle.loads(pickle.dumps(y.T[10:20, 3:5])).tolist(),
    "copied deeply": lambda y: copy.deepcopy(y[3, 10:20]).tolist(),
    "bytes": lambda y: y[3, 10:20].tobytes(),
    "bytes in Fortran's order": lambda y: y[3:5, 10:20].tobytes("F"),
    "byte": lambda y: y[3, 10:11].view("u1")[3:].tolist(),
}


@pytest.mark.parametrize("name", _READS)
def test_what_is_read_comes_and_nothing_else(name: str, there: Any) -> None:
    ours, theirs = there
    before = LOG.snapshot().counts["download_bytes"]
    assert _READS[name](ours) == _READS[name](theirs)
    brought = LOG.snapshot().counts["download_bytes"] - before
    assert 0 < brought <= 4 * 8 * 10_000
    assert ours.device == "sim:0"


def test_writes_between_reads_are_seen(there: Any) -> None:
    print("seed", SEED)
    ours, theirs = there
    draw = random.Random(SEED)
    for _ in range(60):
        row, column = draw.randrange(100), draw.randrange(9000)
        if draw.random() < 0.5:
            assert float(ours[row, column]) == float(theirs[row, column])
        elif draw.random() < 0.6:
            key = (slice(row, row + 3), slice(column, column + 5, draw.choice((1, 2))))
            assert ours[key].tolist() == theirs[key].tolist()
        else:
            for array in (ours, theirs):
                array[row, column : column + 700] += 1.0
    assert (np.asarray(ours) == theirs).all()


def test_many_parts_bring_all_in_the_end(there: Any) -> None:
    ours, theirs = there
    before = LOG.snapshot().counts["download_bytes"]
    for row in range(100):
        assert ours[row, ::2].tolist() == theirs[row, ::2].tolist()
    assert LOG.snapshot().counts["download_bytes"] - before <= 2 * theirs.nbytes
    assert ours.storage.value.data.array is not None


def test_a_view_that_is_exported_is_shared(there: Any) -> None:
    ours, _ = there
    view = np.asarray(ours[3, 10:20])
    view[0] = -1
    assert float(ours[3, 10]) == -1.0
