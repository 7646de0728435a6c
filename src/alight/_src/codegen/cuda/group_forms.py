"""Groups as CUDA C: which form a group has, and the schedule it has by default.

A form says its text, which depends on a group's structure and its schedule alone, its launches,
and the bytes of partial results that lie between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from alight._src.base.cache_registry import Cache, register
from alight._src.base.originals import np
from alight._src.base.records import replace
from alight._src.codegen.common.phases import phases
from alight._src.codegen.common.source import Grid, Statements, group_gap
from alight._src.codegen.cuda.column_kernels import Columns
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.kernel_program import (
    MOST_BLOCKS,
    Step,
    power,
    reduction_length,
    row_count,
)
from alight._src.codegen.cuda.loop_kernels import Loop
from alight._src.codegen.cuda.nest_choice import card_nest
from alight._src.codegen.cuda.reduction_steps import RUN
from alight._src.codegen.cuda.row_kernels import Rows
from alight._src.codegen.cuda.scan_kernels import Scans, scan_schedule
from alight._src.codegen.cuda.shared_memory import Flow
from alight._src.codegen.cuda.small_axis import PACK_BYTES, Short, short_schedule
from alight._src.ir.body import width_of
from alight._src.ir.graph import GroupKind
from alight._src.ir.op_table import Kind, trees
from alight._src.ir.table_reduction import CHUNK, LANES
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.graph import Graph
    from alight._src.ir.group import Group
    from alight._src.ir.op_table import Op

# What makes CUDA C's arithmetic IEEE's, whatever a compiler's defaults are.
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")

_PACKED = frozenset("bc")  # how operands may move along the inner axis where it goes in packs
_MOST_THREADS = 1024  # of a block: the CUDA C++ Programming Guide, of every compute capability
# 32-bit registers of a thread that may hold a row: half of what a thread has where 512 share the
# 65,536 of a multiprocessor, as the arithmetic needs some too.
_HELD_REGISTERS = 64
# Threads that keep the memory of one multiprocessor busy; H200 and A100 have room for 2048.
_THREADS = 2048
# Operations of an element above which the steps of a run are not all written out: instructions
# beyond some thousands no longer fit the caches for them (32 elements of some 60 operations).
_HEAVY = 50
# And above which a run goes step by step: four elements keep a thread busy, more need registers
# (H200, RunMat's normalised images with a power: 774 µs, with two steps at once 844, with four
# 1143; its elementwise chain: 487, 478 and 475).
_HEAVIEST = 80
# And above which a thread has one element, whose usual way and the other are written once each: in
# packs of two either is there twice, and a compiler takes longer for it (eight turns of a random
# walk, 1250 operations: NVRTC took 0.9 to 1.2 s, one by one 0.4 to 0.5).
_LONGEST = 500
# Blocks for each multiprocessor that a launch of much arithmetic has at most: each goes around, as
# starting them takes time, and many are spread well (H200, nine operations on 2**27 float32: 376 µs
# with 128, 383 with 64, 388 with one for each tile; on 2**26 float64 423, 427 and 422).
_WAVES = 128
# Threads of a block that computes much of each element: one that has done its part makes room for
# the next sooner (H200, 2**24 elements: Black-Scholes 296 µs in float64 and 114 in float32, with
# 256 threads 310 and 121; RunMat's image 131 and 61, with 256 136 and 65; shorter chains alike).
_HEAVY_BLOCK = 128
# Registers of a thread for what is read before the first of it is computed (H200, sums of 2**27
# float32: of x + y 252 µs with 64, 257 with 32, 297 with 16; of nine operations 308 with 16, 351
# with 32; Black-Scholes in float64 309 with 24, 268 with 12).
_READ_REGISTERS = 64
_READ_REGISTERS_HEAVY = 16
# Rows that a thread has one element of each of, where they cannot be read in packs: finding an
# element takes a division for each axis and two multiplications for each operand (all of these:
# H200, 2**24 elements, Jacobi's five points in float32: 46.3
# µs, 46.6 with 16 rows, 51.6 with four, 84 one by one; Gray and Scott's ten 111, 112, 118, 117).
_ROWS = 8
# Rows that are read at once (Jacobi: 46.3 µs, 46.9 with two, 48.4 one by one), and registers of 32
# bits for them (Gray and Scott: 111 µs with two rows in 20 registers, 117 with four in 40; in
# float64, with 20 a row, 154 in no tiles, 167 and more in any that have eight rows).
_ROWS_AHEAD, _ROWS_REGISTERS = 4, 24
# Of a tile, what is there at least: threads past the end of a row have nothing to do, and tiles
# take 0.55 (Jacobi) to 0.95 (Gray and Scott) of the time without them, 0.72 in the geometric mean.
_FULL = 0.75
# Turns of a block with runs of rows that are cut: few blocks leave some processors without one at
# the end, many leave many partial results (the same sums: 252 with 4, 258 with 2, 262 with 8).
_TURNS = 4
_TURNS_HEAVY = 2
# Runs of a row from which on it may take long for the one that ends early (H200, the mean of 10**8
# float32: 128 µs where every run asked how far the row goes, 97 is what the memory allows).
_LONG = 16
# Told that so many blocks of 256 are to have room, the compiler runs more operations at once (H200,
# the sum of nine operations: 308 against 422 µs).
_RESIDENT = 4
# Of what flows through shared memory (``codegen.cuda.shared_memory``): blocks that stay on a
# multiprocessor, steps that are computed at once, how often as many are on their way. The sum of
# nine operations on 2**27 float32 takes 267 µs so, with three blocks, whose threads have fewer
# registers, 270, with four 280; 322 as runs of blocks that come and go, with steps one by one 397
# (H200): two have a whole line of memory of each chunk.
_STAYING, _AHEAD, _DEPTH = 2, 2, 2
# Parts that a block has at least, as starting it takes time (the same sum of 2**22, which are two
# for each block: 22.1 µs, 21.4 as runs that come and go; of 2**23: 25.2 and 29.6).
_PARTS = 3
_WARPS = 256 // 32  # of a block that reduces parts of a row
# Turns of a block that has few columns by itself: each waits for memory once, and parts of them are
# met by another kernel (H200: 5 µs more in all where a sum has two, 16.8 and 11.8; 1 to 2 µs for a
# step of sixteen rows).
_ROUNDS = 4


class Form(Protocol):
    """A group printed with a schedule."""

    def text(self) -> str:
        """Return the text of all kernels."""

    def steps(self) -> tuple[Step, ...]:
        """Return the launches in their order."""

    def scratch(self) -> tuple[int, ...]:
        """Return the bytes of partial results between them."""


def form(group: Group, shape: Nest, grid: Grid) -> Form:
    """Return a group in the form it has."""
    if group.kind is GroupKind.LOOP:
        return Loop(group, shape, grid)
    if group.kind is GroupKind.SCAN:
        return Scans(group, shape, grid)
    if shape.unrolled:
        return Short(group, shape, grid)
    if grid.depth:
        return Flow(group, shape, grid)
    return Columns(group, shape, grid) if shape.columns else Rows(group, shape, grid)


def schedule(group: Group, shape: Nest, offsets: Sequence[int], processors: int) -> Grid:
    """Return the default schedule for operands at these byte offsets on a device of so many
    multiprocessors."""
    if reason := group_gap("cuda", group):
        raise Unsupported(reason)
    graph = group.graph
    layouts = graph.operand_layouts
    sizes = [layout.itemsize for layout in layouts]
    bits = index_bits(shape, sizes)
    if group.kind is GroupKind.LOOP:
        # a pack of the narrowest operand is 16 bytes at most
        elements = max(1, min(PACK_BYTES // max(sizes), 8))
        while elements > 1 and not packs(shape, offsets, sizes, elements):
            elements //= 2
        operations = _operations(group) if elements > 1 else 0
        if operations <= _HEAVY:
            grid = Grid(256, elements, bits)
            return _tiles(group, shape, grid, processors) if elements == 1 else grid
        grid = Grid(_HEAVY_BLOCK, elements, bits, blocks=_WAVES * processors)
        if operations > _LONGEST:
            return replace(grid, elements=1)
        fits = 2 * elements * _registers(graph, shape) <= _READ_REGISTERS_HEAVY
        if fits and prod(shape.dims) >= 2 * elements * processors * _THREADS:
            return replace(grid, ahead=2)
        return grid
    threads = processors * _THREADS
    if group.kind is GroupKind.SCAN:
        return scan_schedule(group, shape, bits, processors)
    if shape.unrolled:
        return short_schedule(group, shape, offsets, bits, threads)
    length, rows = reduction_length(shape), row_count(shape)
    if shape.columns:
        return _columns(length, rows, bits, threads)
    grid = _rows(group, shape, 4 if packs(shape, offsets, sizes, 4) else 1, bits, threads)
    # what a run has of elements, and what of that a row of one chunk has
    steps = min(-(-max(length, 1) // LANES), CHUNK // LANES)
    run = steps * LANES * min(grid.team, 32) // 4
    whole = length == run * (grid.team // 32 or 1) if grid.held else length % run == 0
    ahead, operations = 1, _operations(group)
    if grid.cut and operations > _HEAVIEST:
        grid = replace(grid, unroll=1)
    elif not grid.held:
        room = _READ_REGISTERS_HEAVY if operations > _HEAVY else _READ_REGISTERS
        each = 4 * _registers(graph, shape)
        while steps % (2 * ahead) == 0 and 2 * ahead * each <= room:
            ahead *= 2
    long = not (whole or grid.held) and length >= _LONG * run
    grid = replace(grid, whole=whole, long=long, steps=steps, ahead=ahead)
    blocks = _STAYING * processors
    if grid.cut and _HEAVY < operations <= _HEAVIEST and length >= _PARTS * blocks * RUN * _WARPS:
        flow = replace(grid, turns=1, ahead=_AHEAD, depth=_DEPTH, blocks=blocks, resident=_STAYING)
        if Flow(group, shape, flow).suits():
            return flow
    return grid


def _columns(length: int, columns: int, bits: int, threads: int) -> Grid:
    """Return the default schedule of columns, for what a device has of threads at once.

    A thread has a column where that is enough of them, and one lane of it elsewhere (H200, columns
    of float64 with a thread for each chunk and with one for each lane: 131,072 of 1024 rows 573 and
    258 µs, 65,536 of 4096 815 and 515, those of a product of two 362 × 362 matrices 307 and 66).
    """
    chunks = -(-length // CHUNK)
    if columns >= threads or chunks < 2:
        return Grid(128, 1, bits)
    block = 256
    side = min(power(columns), block // LANES)
    team = block // side
    rounds = -(-chunks * LANES // team)
    turns = power(-(-rounds * -(-columns // side) * block // threads))
    grid = Grid(block, 1, bits, team)
    if rounds <= max(turns, _ROUNDS):
        return replace(grid, turns=power(rounds))
    return replace(grid, cut=True, turns=turns)


def _tiles(group: Group, shape: Nest, grid: Grid, processors: int) -> Grid:
    """Return the schedule of elements one by one, in tiles where there are enough rows of them."""
    if len(shape.dims) < 2:
        return grid
    *_, rows, inner = shape.dims
    block = next((b for b in (128, 64) if inner >= _FULL * -(-inner // b) * b), 0)
    turns = min(_ROWS, power(prod(shape.dims) // (processors * _THREADS) // 2), power(rows))
    each = _registers(group.graph, shape)
    fits = block and turns > 1 and 2 * each <= _ROWS_REGISTERS
    if not fits or prod(shape.dims) // (turns * block) >= MOST_BLOCKS:
        return grid
    ahead = 2
    while 2 * ahead <= min(turns, _ROWS_AHEAD) and 2 * ahead * each <= _ROWS_REGISTERS:
        ahead *= 2
    return replace(grid, block=block, turns=turns, ahead=ahead)


def _registers(graph: Graph, shape: Nest) -> int:
    """Return the registers of 32 bits that one element of what moves along the nest takes."""
    moving = [i for i in range(len(graph.inputs)) if shape.classes[i] != "b"]
    return sum(max(1, graph.inputs[i].itemsize // 4) for i in moving)


def _rows(group: Group, shape: Nest, elements: int, bits: int, threads: int) -> Grid:
    """Return the default schedule of rows, for what a device has of threads at once."""
    length, rows = reduction_length(shape), row_count(shape)
    light = _operations(group) <= _HEAVY
    unroll = 8 if light else 4
    team = 4 * power(-(-length // CHUNK)) if length <= RUN else 32 * power(-(-length // RUN))
    cut = group.kind is GroupKind.REDUCE and length >= 8 * RUN and rows * 256 < threads
    if cut:
        # enough parts for every multiprocessor
        team = 256
        parts = max(1, threads // max(rows, 1) // team)
        most = _TURNS if light else _TURNS_HEAVY
        turns = min(most, max(1, power(-(-length // (parts * team // 32 * RUN)))))
        if length > turns * team // 32 * RUN:
            # wider values need more registers than that leaves
            narrow = all(layout.itemsize <= 4 for layout in group.graph.inputs)
            fits = narrow and _HEAVY < _operations(group) <= _HEAVIEST
            resident = _RESIDENT if fits else 0
            grid = Grid(team, elements, bits, team, False, True, turns, 8)
            return replace(grid, resident=resident)
    one = len(shape.dims) - shape.kept == 1
    held = one and team <= _MOST_THREADS and light
    held = held and _held_registers(group, shape) * max(team, 256) <= _HELD_REGISTERS * 512
    if held or team <= 32:
        # several teams share a block where they are less than a warp; a larger one is a block
        return Grid(team if team >= 32 else 128, elements, bits, team, held, False, 1, unroll)
    team = min(team, 256)
    turns = power(-(-length // (team // 32 * RUN)))
    return Grid(team, elements, bits, team, False, False, turns, unroll)


def _operations(group: Group) -> int:
    """Return the operations of one element that is usual."""
    graph = group.graph
    return sum(
        _printed(
            node.op,
            (*(graph.layouts[i].dtype for i in node.operands), node.layout.dtype),
            node.attr("output", 0),
        )
        for node in graph.nodes
        if node.op.kind is Kind.ELEMENTWISE
    )


@cache
def _printed(op: Op, dtypes: tuple[np.dtype[Any], ...], output: int) -> int:
    """Return how many statements an op is, for these operands and this result."""
    found = trees(op, dtypes[:-1], dtypes[-1])
    assert found is not None  # gaps.check has seen to it
    code = Statements(CUDA)
    code.seldom = "seldom"
    code.evaluate(found[output], [f"x{i}" for i in range(len(dtypes) - 1)])
    return len(code.lines)


register(Cache.OPS, _printed.cache_clear)


def _held_registers(group: Group, shape: Nest) -> int:
    """Return the registers of a thread that holds its part of a row."""
    graph = group.graph
    found = phases(group)
    first = len(graph.inputs)
    wide = [i for i in range(first) if shape.classes[i] != "b"]
    several = len([visit for visit in found.passes if visit.reductions or visit.written]) > 1
    values = [*(wide if several else wide[:1]), *found.home]
    values += [
        n for v in found.passes for n in v.reductions if graph.made_by[n].op.finish is not None
    ]
    return sum(-(-width_of(graph.layouts[n].dtype.name) // 32) for n in values) * 32


def packs(shape: Nest, offsets: Sequence[int], itemsizes: Sequence[int], elements: int) -> bool:
    """Tell whether a launch may go in packs: every operand moves by 0 or 1 along the inner axis,
    addresses (``offsets``, in bytes) and outer steps are multiples of a pack, and of several axes
    the innermost has no rest."""
    if shape.columns or set(shape.classes) - _PACKED:
        return False
    reduced = len(shape.dims) > shape.kept
    # rows of a reduction end where they end: what is left is read one by one
    alone = len(shape.dims) - shape.kept == 1 if reduced else len(shape.dims) == 1
    if not alone and shape.dims[-1] % elements:
        return False
    for kind, offset, strides, size in zip(
        shape.classes, offsets, shape.strides, itemsizes, strict=True
    ):
        pack = min(size * elements, PACK_BYTES)
        if kind == "c" and any(at % pack for at in (offset, *strides[:-1])):
            return False
    return True


def index_bits(shape: Nest, itemsizes: Sequence[int]) -> int:
    """Return the bits an index needs: 32 where no element lies further than that allows."""
    farthest = max(
        sum((n - 1) * abs(step // size) for n, step in zip(shape.dims, strides, strict=True))
        for strides, size in zip(shape.strides, itemsizes, strict=True)
    )
    # a thread looks one round of the grid past the last element: leave as much again
    return 32 if max(farthest, prod(shape.dims)) < 1 << 30 else 64


__all__ = ["OPTIONS", "Form", "card_nest", "form", "index_bits", "packs", "schedule"]
