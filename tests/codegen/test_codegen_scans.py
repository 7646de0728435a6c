"""Generated scans against NumPy: the same bits, along any axis, with producers and consumers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alight
from alight._core import layout_of
from alight._src.codegen.common.gaps import unsupported
from alight._src.codegen.common.loops import Schedule
from alight._src.codegen.llvm.object_code import module_text
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.ir.well_formed import group_faults
from alight._src.log.decisions import LOG
from conformance.modes import EVERYWHERE
from generated import DTYPES, Array, layouts, reference, run, values_for
from programs import assert_program
from reduction_cases import scan_group, scans_of


def assert_scans(group: Group, array: Array) -> None:
    assert group_faults(group) == []
    assert unsupported(group) is None
    for node, actual in zip(group.graph.nodes, run(group, [array]), strict=True):
        expected = reference(node, [array])
        label = (node.op.name, array.dtype, array.shape, array.strides, node.attrs)
        assert actual.dtype == expected.dtype, label
        same = (actual == expected) | ((actual != actual) & (expected != expected))
        assert same.all(), (label, actual, expected)
        signs = np.signbit(actual) == np.signbit(expected) if actual.dtype.kind == "f" else same
        assert (signs | (actual != actual) | ("m" in node.op.name)).all(), label


@pytest.mark.parametrize("name", DTYPES)
def test_every_scan_has_the_bits_of_numpys(name: str) -> None:
    dtype = np.dtype(name)
    ops = scans_of(dtype)
    assert {"cumsum", "cumprod", "accumulate_maximum"} <= {op.name for op in ops}
    for shape, axis in (((3, 1100), 1), ((40, 7), 0)):
        array = values_for(dtype, shape, 5)
        with np.errstate(all="ignore"):
            assert_scans(scan_group(array, ops, axis), array)


def test_scans_equal_numpys_in_every_layout_along_every_axis() -> None:
    ops = [OPS["cumsum"], OPS["accumulate_minimum"]]
    for shape in ((3, 5, 7), (1, 520, 2), (2, 3, 600)):
        for array in layouts(values_for(np.dtype("f8"), shape, 7)):
            for axis in range(3):
                assert_scans(scan_group(array, ops, axis), array)


def test_scans_of_special_values_equal_numpys() -> None:
    array = np.resize([-0.0, 1.0, np.inf, -1.0, np.nan, 2.0, -np.inf], (9, 30))
    array[:, 0] = -0.0
    with np.errstate(all="ignore"):
        for axis in (0, 1):
            assert_scans(scan_group(array, scans_of(array.dtype), axis), array)


def test_a_scan_takes_its_producers_and_consumers_along() -> None:
    for shape, axis in (((3, 1300), 1), ((300, 700), 0), ((2000,), 0)):
        x = values_for(np.dtype("f4"), shape, 1)
        y = values_for(np.dtype("f4"), shape[-1:], 2)
        full = layout_of(x)
        nodes = (
            Node(OPS["multiply"], (0, 1), (), full),
            Node(OPS["cumsum"], (2,), (("axis", axis),), full),
            Node(OPS["cumsum"], (0,), (("axis", axis),), full),
            Node(OPS["subtract"], (3, 2), (), full),
            Node(OPS["add"], (5, 4), (), full),
        )
        outputs = (6, 3, 2)
        group = Group(GroupKind.SCAN, Graph((full, layout_of(y)), nodes, outputs), x.shape)
        assert group_faults(group) == []
        values: list[Any] = [x, y]
        for node in nodes:
            values.append(reference(node, [values[i] for i in node.operands]))
        for actual, number in zip(run(group, [x, y]), outputs, strict=True):
            assert np.array_equal(actual, values[number])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scans_of_elements_that_need_more_than_others(dtype: str) -> None:
    # a zero, a NaN, an infinity under a power: what is seldom stands in some vectors of a row
    base = np.abs(values_for(np.dtype(dtype), (9, 77), 1))
    base[:, ::5], base[1, 7], base[2, 76] = 0, np.nan, np.inf
    exponent = np.array(1.8, dtype)
    full = layout_of(base)
    power = Node(OPS["power"], (0, 1), (), full)
    inputs = (full, layout_of(exponent))
    loop = Group(GroupKind.LOOP, Graph(inputs, (power,), (2,)), base.shape)
    (raised,) = run(loop, [base, exponent])
    for axis in (0, 1):
        scan = Node(OPS["cumsum"], (2,), (("axis", axis),), full)
        after = Node(OPS["subtract"], (3, 0), (), full)
        group = Group(GroupKind.SCAN, Graph(inputs, (power, scan, after), (4, 3)), base.shape)
        with np.errstate(all="ignore"):
            sums = raised.cumsum(axis=axis)
            wanted = (sums - base, sums)
        for actual, expect in zip(run(group, [base, exponent]), wanted, strict=True):
            assert np.array_equal(actual, expect, equal_nan=True)
        text = module_text(group, Schedule())
        assert "@llvm.fma.f" not in text[text.index("define void @entry") :]


PROGRAMS = """
r = (x * 2).cumsum(axis=1) - x
r = np.cumsum(np.cumsum(x, axis=0), axis=1)
r = np.cumsum(np.cumsum(x, axis=1), axis=1)
s = np.cumsum(x, axis=0); r = (s[5:] - s[:-5]) / 5
r = np.cumsum(x, axis=0) * np.cumprod(x, axis=0) + np.maximum.accumulate(x, axis=0)
r = np.cumsum(x) / x.sum()
s = x.cumsum(axis=1); r = s - s.max(axis=1, keepdims=True)
"""


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("program", PROGRAMS.strip().splitlines())
def test_programs_with_scans_equal_numpy(program: str, mode: str) -> None:
    assert_program(program, values_for(np.dtype("f8"), (30, 50), 4), mode)


def test_a_moving_chain_is_one_visit() -> None:
    x = alight.asarray(values_for(np.dtype("f8"), (50, 300), 1))
    with alight.policy(floor=0, force="cpu:generated"):
        before = LOG.snapshot()
        np.asarray(alight.sqrt(alight.cumsum(x * x, axis=1)) - x)
        kinds = [record.decision.kind for record in LOG.snapshot().since(before).records]
    assert kinds == ["scan"]
