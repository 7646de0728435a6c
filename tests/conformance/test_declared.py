"""Ops beside NumPy's own: compositions, and what a program declares, against their functions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.ir.op import UFUNCS
from alight._src.ir.op_table import OPS, Kind, Op, Origin
from alight._src.ir.table_reduction import tree_depth
from alight._src.record.declared_ops import STAND_INS
from conformance.compare import Findings, Sample, differences, evaluated
from conformance.layouts import LAYOUTS, make, ordinary
from conformance.test_elementwise import compare_with_reference, ufunc_loops

special = pytest.importorskip("scipy.special")

COMPOSITIONS = [op for op in OPS.values() if op.kind is Kind.COMPOSITION]
KEYWORDS: tuple[dict[str, Any], ...] = (
    {}, {"axis": 0}, {"axis": -1}, {"axis": (0, 2)}, {"axis": 1, "keepdims": True}, {"axis": 7},
    {"axis": 1, "b": 2.0}, {"axis": None, "return_sign": True},
)  # fmt: skip


def called(op: Op) -> Any:
    """Return what a program in the namespace calls."""
    return STAND_INS.get(op.reference, op.reference)


def outcome(function: Any, array: Any, keywords: dict[str, Any]) -> Any:
    try:
        return function(array, **keywords)
    except Exception as error:
        return type(error)


def rounding(op: Op, count: int) -> float:
    """Return the units in the last place that a composition and its function may be apart: theirs,
    and those of sums of so many."""
    return 2 * op.ulp + count - 1 + tree_depth(count)


@pytest.mark.parametrize("op", COMPOSITIONS, ids=lambda op: op.name)
def test_compositions_equal_their_functions(mode: str, op: Op, sample: Sample) -> None:
    findings = Findings()
    takes = inspect.signature(op.reference).parameters
    for dtype in "?bhilBILefdFD":
        for layout in LAYOUTS:
            plain, ours = make(ordinary(dtype, (4, 6, 3), seed=3), layout)
            for keywords in KEYWORDS:
                if not keywords.keys() <= takes.keys():
                    continue
                case = op.name, dtype, layout, keywords
                if not (layout == "C" or sample.takes(0.15, *case)):
                    continue
                want = outcome(op.reference, plain, keywords)
                got = outcome(called(op), ours, keywords)
                if isinstance(want, type):
                    findings.note(None if got is want else f"{got}, must be {want}", *case)
                    continue
                pairs = [(got, want)] if type(want) is not tuple else zip(got, want, strict=True)
                for g, w in pairs:
                    bound = rounding(op, max(plain.size, 1))
                    findings.note(differences(g, w, bound), *case)
    findings.check()


SPECIAL_VALUES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e300, -1e300, 700.0]


@pytest.mark.parametrize("op", COMPOSITIONS, ids=lambda op: op.name)
def test_compositions_of_special_values_equal_their_functions(mode: str, op: Op) -> None:
    findings = Findings()
    rows = [[a, b, c] for a in SPECIAL_VALUES for b in SPECIAL_VALUES for c in (0.0, np.inf, -2.0)]
    keywords = {"axis": 1} if "axis" in inspect.signature(op.reference).parameters else {}
    for dtype in ("float64", "float32"):
        with np.errstate(all="ignore"):
            plain = np.array(rows).astype(dtype)
            want = op.reference(plain, **keywords)
        got = called(op)(alight.asarray(plain), **keywords)
        evaluated([got])
        findings.note(differences(got, want, rounding(op, 3)), op.name, dtype)
    findings.check()


@pytest.fixture
def entr() -> Iterator[Op]:
    """Declare an op as a program does, for as long as a test runs."""
    body = "where(x == 0, 0, where(x > 0, -x * log(where(x > 0, x, 1)), where(x == x, -inf, x)))"
    assert alight.ops.declare(special.entr, body={"f": body}, ulp=2) is special.entr
    op = OPS["entr"]
    yield op
    del OPS["entr"], UFUNCS[special.entr]


def test_what_a_program_declares_is_drawn_as_all_ops_are(
    mode: str, entr: Op, sample: Sample
) -> None:
    assert entr.origin is Origin.PROGRAM
    loops = ufunc_loops([entr])
    assert {"f", "d"} <= set(loops)
    for loop, ops in loops.items():
        compare_with_reference(loop, ops, sample)
