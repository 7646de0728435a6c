"""Reductions, rows and scans on a CUDA device against the host's kernels, bit for bit.

``python -m tests.ratchets.cuda_reductions NUMBER COUNT`` runs every COUNTth case from NUMBER on and
prints a line of JSON. What there was no time for is named among what failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from alight._src.codegen.common.source import group_gap
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind
from generated import DTYPES, Array, layouts, reduce_group, values_for
from generated import run as on_host
from reduction_cases import lacking, names_of, scan_group, scans_of, softmax

from .cuda_rig import Rig, differing, said

SECONDS = 45.0  # of a process; the job that starts it has 60
TOGETHER = 8  # ops of the table in one group: what they read is read once

# A name, and what makes a group with its operands.
Case = tuple[str, Callable[[], tuple[Group, list[Array]]]]

GEOMETRIES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1 << 22,), (0,)), ((1000003,), (0,)), ((999, 1000), (1,)), ((1000, 999), (0,)),
    ((7, 100000), (1,)), ((100000, 7), (0,)), ((60, 70, 80), (0, 2)), ((60, 70, 80), (1,)),
    ((3000, 40), (1,)), ((5, 33000), (1,)), ((130000, 17), (1,)), ((200, 1500), (1,)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield every case: geometries and layouts with the usual reductions, every reduction of the
    table in every dtype, rows that are visited once, scans."""
    for shape, axes in GEOMETRIES:
        for dtype in ("float32", "float64", "int32", "int8", "uint64", "bool"):
            several = len(shape) > 1 and dtype in ("float32", "int8")
            for number in range(5 if several else 1):
                make = partial(usual, shape, axes, dtype, number)
                yield f"{shape} {axes} {dtype} layout {number}", make
    for dtype in DTYPES:
        for shape, axes in (((300, 700), (1,)), ((700, 300), (0,))):
            names = reductions_of(dtype, shape, axes)
            for start in range(0, len(names), TOGETHER):
                some = names[start : start + TOGETHER]
                yield (
                    f"{shape} {axes} {dtype} {some[0]}…",
                    partial(all_of, shape, axes, dtype, some),
                )
        for shape, axis in (((300, 2600), 1), ((2600, 300), 0)):
            names = scans_on_devices(dtype, shape, axis)
            if names:
                yield f"scans {shape} {axis} {dtype}", partial(scans, shape, axis, dtype, names)
    for length in (40, 1000, 1024, 1500, 2500, 5000, 30000):
        for dtype in ("float32", "float64"):
            yield f"softmax {length} {dtype}", partial(rows, length, dtype)


def usual(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, number: int
) -> tuple[Group, list[Array]]:
    """Return the usual reductions of an array in a layout."""
    values = values_for(np.dtype(dtype), shape, 1)
    array = list(layouts(values))[number] if number else values
    return reduce_group([array], names_of(dtype, axes), axes), [array]


def reductions_of(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[str]:
    """Return the table's reductions that generated code has for a dtype."""
    values = np.ones(shape, dtype)
    names = [op.name for op in OPS.values() if op.kind is Kind.REDUCTION]
    return [name for name in names if not lacking(name, values, axes)]


def all_of(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, names: list[str]
) -> tuple[Group, list[Array]]:
    """Return these reductions of an array."""
    array = values_for(np.dtype(dtype), shape, 2)
    return reduce_group([array], names, axes), [array]


def scans_on_devices(dtype: str, shape: tuple[int, ...], axis: int) -> list[str]:
    """Return the table's scans that a device has for a dtype."""
    values = np.ones(shape, dtype)
    ops = scans_of(values.dtype)
    return [o.name for o in ops if group_gap("cuda", scan_group(values, [o], axis)) is None]


def scans(
    shape: tuple[int, ...], axis: int, dtype: str, names: list[str]
) -> tuple[Group, list[Array]]:
    """Return these scans of an array."""
    array = values_for(np.dtype(dtype), shape, 7)
    return scan_group(array, [OPS[name] for name in names], axis), [array]


def rows(length: int, dtype: str) -> tuple[Group, list[Array]]:
    """Return a softmax of rows of a length."""
    array = values_for(np.dtype("float32"), (300, length), 6).astype(dtype)
    return softmax(array, (1,)), [array]


def main() -> None:
    """Run this process's share of the cases."""
    number, count = map(int, sys.argv[1:])
    began = perf_counter()
    rig = Rig()
    results, wrong, failed = 0, {}, {}
    for name, make in list(cases())[number::count]:
        if perf_counter() - began > SECONDS:
            failed[name] = "no time left"
            continue
        try:
            group, arrays = make()
            with np.errstate(all="ignore"):
                got, expected = rig.run(group, arrays), on_host(group, arrays)
        except Exception as error:
            failed[name] = said(error)
            continue
        outputs = [group.graph.nodes[i - len(group.graph.inputs)] for i in group.graph.outputs]
        for node, one, other in zip(outputs, got, expected, strict=True):
            results += 1
            if amount := differing(one, other):
                values = str(one.ravel()[:2]), str(other.ravel()[:2])
                wrong[f"{node.op.name} {name}"] = [*values, amount]
    found: dict[str, Any] = {
        "results": results, "differing": wrong, "failed": failed,
        "seconds": round(perf_counter() - began, 1),
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
