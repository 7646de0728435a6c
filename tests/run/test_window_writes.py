"""Windows that are written where an array is."""

from __future__ import annotations

import numpy as np
import pytest

import alight
from alight._core import Data, make_layout
from alight._src.run import residency
from alight._src.run.window_writes import write_there
from alight.backends.base import Operand
from alight.backends.registry import device


@pytest.mark.parametrize("in_place", [True, False])
def test_bytes_that_were_written_over_are_no_copy_of_the_old_ones(in_place: bool) -> None:
    with alight.policy(devices=["cpu", "sim:0"]):
        where = device("sim:0")
        whole, row = (make_layout(np.dtype(np.int64), shape) for shape in ((3, 4), (4,)))
        old = Data(whole, np.arange(12).reshape(3, 4))
        value = Data(row, np.full(4, 7))
        buffer = residency.buffer(old, where)
        new = write_there(where, old, Operand(old, 32, row), Operand(value, 0, row), in_place)
    assert new.remote is not None and (new.remote[where.space] is buffer) is in_place
    assert (where.space in (old.remote or {})) is not in_place
    residency.bring_to_host(new)
    assert new.array is not None and new.array[1].tolist() == [7, 7, 7, 7]
    assert old.array is not None and old.array[1].tolist() == [4, 5, 6, 7]
