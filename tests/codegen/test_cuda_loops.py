"""Loops in CUDA C, run on the CPU: tiles of what cannot be read in packs, and schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cuda_on_cpu
from alight._src.codegen.common.loops import nest
from alight._src.codegen.common.source import Grid
from alight._src.codegen.cuda.group_forms import schedule
from alight._src.ir.op_table import OPS
from generated import Array, loop_group, run, values_for

needs_compiler = pytest.mark.skipif(
    cuda_on_cpu.compiler() is None, reason="no g++ to run CUDA C on the CPU with"
)
F = np.dtype(np.float32)


def neighbours(size: tuple[int, ...]) -> list[Array]:
    """Return what lies inside of an array, what is before and behind it, and rows in reverse."""
    whole = values_for(F, size, 5)
    inside = (slice(1, -1),) * (whole.ndim - 1)
    shifted = [whole[(*inside, s)] for s in (slice(1, -1), slice(None, -2), slice(2, None))]
    return [*shifted, shifted[0][..., ::-1, :]]


@needs_compiler
@pytest.mark.parametrize("size", [(37, 131), (3, 21, 68), (4, 3, 18, 200)])
@pytest.mark.parametrize(("turns", "ahead"), [(2, 1), (4, 2), (8, 4)])
def test_tiles_have_the_bits_of_the_hosts(size: tuple[int, ...], turns: int, ahead: int) -> None:
    inputs = neighbours(size)
    uses = [(OPS["add"], (0, 1), (), F), (OPS["maximum"], (2, 3), (), F)]
    group = loop_group(inputs, uses)
    for bits in (32, 64):
        grid = Grid(64, 1, bits, turns=turns, ahead=ahead)
        ours = cuda_on_cpu.run(group, inputs, grid)
        for actual, expected in zip(ours, run(group, inputs), strict=True):
            np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


def planned(*arrays: Any, exponentials: int = 0) -> Grid:
    """Return the schedule of the sum of all arrays, and of so many exponentials of it in turn."""
    count, dtype = len(arrays), arrays[0].dtype
    uses: list[Any] = [(OPS["add"], (0, 1), (), dtype)]
    uses += [(OPS["add"], (count + i, 2 + i), (), dtype) for i in range(count - 2)]
    uses += [(OPS["exp"], (2 * count - 2 + i,), (), dtype) for i in range(exponentials)]
    group = loop_group(arrays, uses)
    graph = replace(group.graph, outputs=group.graph.outputs[-1:])
    group = replace(group, graph=graph)
    addresses = [a.__array_interface__["data"][0] for a in arrays]
    return schedule(group, nest(group), [*addresses, 0], 132)


def test_what_is_not_in_packs_goes_in_tiles_where_there_are_rows_enough() -> None:
    x = np.empty((4096, 4096), np.float32)
    inner = x[1:-1, 1:-1]
    tiles = planned(inner, x[:-2, 1:-1])
    assert (tiles.block, tiles.elements, tiles.turns, tiles.ahead) == (128, 1, 8, 4)
    assert planned(x[:, 1:4095:2], x[:, :4094:2]).turns == 8
    assert planned(inner[:60], x[:60, 1:-1]).turns == 1  # each processor has some
    assert planned(inner[:, :140], x[:-2, :140]).turns == 1
    assert planned(*[x[1:-1, i : i + 4093] for i in range(3)]).ahead == 4
    assert planned(*[x[1:-1, i : i + 4085] for i in range(10)]).ahead == 2
    wide = np.empty((4096, 4096))
    assert planned(*[wide[1:-1, i : i + 4085] for i in range(10)]).turns == 1  # no registers
    assert planned(x, x).elements == 4  # in packs
    narrow = np.empty((1 << 17, 160), np.float32)
    assert planned(narrow[:, :150], narrow[:, 1:151]).block == 64
    assert planned(narrow[:, :70], narrow[:, 1:71]).turns == 1  # half of each tile would be empty


def test_what_computes_much_reads_no_more_than_there_are_registers_for() -> None:
    wide, narrow = np.empty(1 << 24), np.empty(1 << 24, np.float32)
    light, heavy = planned(narrow, narrow), planned(narrow, narrow, exponentials=4)
    assert (light.block, light.ahead, light.blocks) == (256, 1, 0)
    assert (heavy.block, heavy.elements, heavy.ahead) == (128, 4, 2)
    assert planned(wide, wide, exponentials=4).ahead == 2
    assert planned(narrow, narrow, narrow, exponentials=4).ahead == 1
