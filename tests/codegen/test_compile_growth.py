"""What LLVM takes for a kernel grows no faster than what the kernel has in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import thread_time

import numpy as np
import pytest

from alight._src.codegen.common.loops import Schedule
from alight._src.codegen.llvm import object_code
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from generated import loop_group


def outputs(count: int) -> Group:
    """Return a group of so many multiples of one array, by a scalar each."""
    inputs = [np.ones(400_000), *[np.float64(k + 0.5) for k in range(count)]]
    uses = [(OPS["multiply"], (0, 1 + k), (), "f8") for k in range(count)]
    return loop_group([np.asarray(a) for a in inputs], uses)


def sums(count: int) -> Group:
    """Return a group of so many additions, all results of which leave it."""
    uses = [(OPS["add"], (max(k, 0), k + 1), (), "f8") for k in range(count)]
    return loop_group([np.ones(400_000), np.ones(400_000)], uses)


@pytest.mark.parametrize("make", [outputs, sums])
def test_text_of_a_kernel_grows_with_its_outputs(make: Callable[[int], Group]) -> None:
    lengths = [object_code.module_text(make(k), Schedule()).count("\n") for k in (20, 40, 80)]
    assert lengths[2] - lengths[1] <= 2.1 * (lengths[1] - lengths[0])


def test_time_of_a_kernel_does_not_explode_with_its_outputs() -> None:
    def seconds(count: int) -> float:
        best = math.inf
        for _ in range(2):
            began = thread_time()
            object_code._object(outputs(count), Schedule(), True)
            best = min(best, thread_time() - began)
        return best

    # it was to the fifth power: 80 results took 40 s, twenty times what 44 do
    assert seconds(80) < 8 * seconds(40)
