"""Every reduction and scan of the table × dtypes × layouts × axes × keepdims, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import ArrayBase
from alight._src.ir.op_table import OPS, Kind, Op
from conformance.compare import (
    COMPLEX_ULP,
    TIES,
    Findings,
    Raised,
    Sample,
    differences,
    evaluated,
    outcome,
    unlike_error,
)
from conformance.layouts import LAYOUTS, make, ordinary

NATIVE = "?bhilqBHILQefdFD"
SHAPE = (4, 7, 3)
AXES: tuple[Any, ...] = (None, 0, 1, -1, (0, 2), (0, 1, 2), ())
REDUCTIONS = [op for op in OPS.values() if op.kind is Kind.REDUCTION]
SCANS = [op for op in OPS.values() if op.kind is Kind.SCAN]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


def function(op: Op) -> Callable[..., Any]:
    """Return NumPy's function for a reduction or scan of the table."""
    method, _, ufunc = op.name.partition("_")
    if method in ("reduce", "accumulate"):
        return getattr(getattr(np, ufunc), method)  # type: ignore[no-any-return]
    return getattr(np, op.name)  # type: ignore[no-any-return]


def values(dtype: str, shape: tuple[int, ...] = SHAPE) -> Any:
    """Return ordinary values, and in some rows NaN, an infinity, negative zeros."""
    array = ordinary(dtype, shape, 1)
    if array.dtype.kind in "fc":
        array[0, 1, 0] = np.nan
        array[1, 2, -1] = np.inf
        array[2, 3:5] = -0.0
        array[3, 4, 0], array[3, 4, 1] = np.inf, -np.inf
    elif array.dtype.kind in "iu":
        array[1, 2], array[2, 3, 0] = np.iinfo(dtype).max, np.iinfo(dtype).min
    return array


def room(op: Op, array: Any, axis: Any, keepdims: bool, result: Any) -> Any:
    """Return the absolute difference the table allows, or None where results must be equal."""
    if type(axis) is not tuple:
        axes = tuple(range(array.ndim)) if axis is None or not array.ndim else (axis,)
    else:
        axes = axis
    count = math.prod(array.shape[i] for i in axes)
    limit = 0.0 if op.bound is None else op.bound(count)
    if result.dtype.kind not in "fc" or not limit or op.name in TIES:
        return None
    if result.dtype.kind == "c":
        limit += COMPLEX_ULP * count
    # the smallest integer has no absolute value in its own dtype
    wide = np.clongdouble if array.dtype.kind == "c" else np.longdouble
    sizes = np.abs(array.astype(wide))
    product = op.combine == "multiply" or "prod" in op.name
    sizes = np.where(np.isfinite(sizes), sizes, 1.0 if product else 0.0)
    if op.kind is Kind.SCAN:
        reduction = np.cumprod if product else np.cumsum
        total = reduction(np.maximum(sizes, 1) if product else sizes, axis=axis)
    elif product:
        total = np.prod(sizes, axis=axes, keepdims=keepdims)
    elif any(name in op.name for name in ("var", "std")):
        total = np.sum(sizes**2, axis=axes, keepdims=keepdims)
    else:
        total = np.sum(sizes, axis=axes, keepdims=keepdims)
    if "mean" in op.name:
        total = total / max(count, 1)
    allowed = limit * float(np.finfo(result.dtype).eps) * total
    return np.sqrt(allowed) if "std" in op.name else allowed


def compare(
    findings: Findings, op: Op, array: Any, keywords: dict[str, Any], got: Any, *case: Any
) -> None:
    want = outcome(lambda: function(op)(array, **keywords))
    if isinstance(want, Raised) and isinstance(got, ArrayBase):  # what only elements tell
        got = outcome(lambda: np.asarray(got))
    if isinstance(want, Raised) or isinstance(got, Raised):
        findings.note(unlike_error(got, want), op.name, *case)
        return
    allowed = room(op, array, keywords["axis"], keywords.get("keepdims", False), np.asarray(want))
    ties = op.name in TIES or op.combine in TIES
    findings.note(differences(got, want, 0, ties, room=allowed), op.name, *case)


def cases(
    ops: Sequence[Op], axes: Sequence[Any], flags: Sequence[bool], share: float, *case: Any
) -> list[tuple[Op, dict[str, Any]]]:
    sample: Sample = case[0]
    found = []
    for op in ops:
        rare = op.name.startswith(("reduce_", "accumulate_"))
        for axis in axes:
            for keepdims in flags:
                named = share * 0.2 if rare else share
                if sample.takes(named, op.name, axis, keepdims, *case[1:]):
                    keywords = {"axis": axis} | ({"keepdims": True} if keepdims else {})
                    found.append((op, keywords))
    return found


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", NATIVE)
def test_reductions_of_every_layout_equal_numpy(
    mode: str, dtype: str, name: str, sample: Sample
) -> None:
    findings = Findings()
    plain, ours = make(values(dtype), name)
    share = 0.08 if name == "C" else 0.015
    axes = [a for a in AXES if a in (None, (), 0, -1) or plain.ndim == 3]
    chosen = cases(REDUCTIONS, axes, (False, True), share, sample, dtype, name)
    results = [outcome(lambda o=o, k=k, x=ours: function(o)(x, **k)) for o, k in chosen]
    evaluated(results)
    for (op, keywords), got in zip(chosen, results, strict=True):
        compare(findings, op, plain, keywords, got, dtype, name, keywords)
    findings.check()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", NATIVE)
def test_scans_of_every_layout_equal_numpy(
    mode: str, dtype: str, name: str, sample: Sample
) -> None:
    findings = Findings()
    plain, ours = make(values(dtype), name)
    share = 0.4 if name == "C" else 0.12
    chosen = [
        (op, keywords)
        for op, keywords in cases(SCANS, (None, 0, 1, -1), (False,), share, sample, dtype, name)
        if keywords["axis"] is not None or not op.name.startswith("cumulative")
    ]
    results = [outcome(lambda o=o, k=k, x=ours: function(o)(x, **k)) for o, k in chosen]
    evaluated(results)
    for (op, keywords), got in zip(chosen, results, strict=True):
        if keywords["axis"] is None and not isinstance(got, Raised):
            flat = plain.ravel()
            compare(findings, op, flat, {"axis": 0}, got, dtype, name, keywords)
        else:
            compare(findings, op, plain, keywords, got, dtype, name, keywords)
    findings.check()


@pytest.mark.parametrize("dtype", "?ilfdBF")
def test_large_reductions_equal_numpy(mode: str, dtype: str, sample: Sample) -> None:
    # Large enough to be planned in every mode; reductions of many chunks, in either memory order.
    findings = Findings()
    for shape in ((400_000,), (700, 600), (90, 100, 45)):
        array = ordinary(dtype, shape, 2)
        for plain in (array, np.asfortranarray(array)):
            ours = alight.asarray(plain)
            named = [op for op in REDUCTIONS if not op.name.startswith("reduce_")]
            axes = [
                None,
                0,
                *((1, (0, 1)) if plain.ndim > 1 else ()),
                *((2,) if plain.ndim > 2 else ()),
            ]
            chosen = cases(named, axes, (False,), 0.1, sample, dtype, shape)
            chosen = [c for c in chosen if "prod" not in c[0].name or dtype in "?B"]
            results = [outcome(lambda o=o, k=k, x=ours: function(o)(x, **k)) for o, k in chosen]
            evaluated(results)
            for (op, keywords), got in zip(chosen, results, strict=True):
                compare(findings, op, plain, keywords, got, dtype, shape, keywords)
    findings.check()


KEYWORDS: tuple[dict[str, Any], ...] = (
    {"dtype": np.float64}, {"dtype": "f4"}, {"dtype": np.int16}, {"dtype": complex},
    {"initial": 3}, {"initial": 3, "keepdims": True}, {"initial": -0.0}, {"initial": 2.5},
    {"where": True}, {"ddof": 1}, {"correction": 1}, {"ddof": 1, "correction": 0},
    {"mean": 0.5}, {"out": None}, {"keepdims": np.True_},
    {"axis": np.int64(1)}, {"axis": [0, 1]}, {"axis": (0, -1)}, {"axis": (0, 0)}, {"axis": 3},
    {"axis": -4}, {"axis": 1.0}, {"axis": "x"}, {"initial": "x"}, {"dtype": "nonsense"},
    {"keepdims": 2}, {"unknown": 1},
)  # fmt: skip


@pytest.mark.parametrize("dtype", "?ildfD")
def test_keywords_of_reductions_equal_numpy(mode: str, dtype: str, sample: Sample) -> None:
    findings = Findings()
    plain, ours = make(values(dtype), "C")
    mask = ordinary("?", SHAPE, 3)
    keywords = [*KEYWORDS, {"where": mask}, {"where": mask[:1]}, {"where": mask, "initial": 1}]
    keywords += [{"where": mask, "axis": 1, "initial": 1}, {"where": mask[0, 0]}]
    named = [op for op in REDUCTIONS if not op.name.startswith("reduce_")]
    named += [OPS[f"reduce_{n}"] for n in ("add", "maximum", "subtract", "bitwise_and", "hypot")]
    chosen = [
        (op, k)
        for op in named
        for k in keywords
        if sample.takes(0.2, op.name, list(k), str(k.get("axis")), dtype)
    ]
    results = [outcome(lambda o=o, k=k, x=ours: function(o)(x, **k)) for o, k in chosen]
    evaluated(results)
    for (op, given), got in zip(chosen, results, strict=True):
        want = outcome(lambda op=op, given=given: function(op)(plain, **given))
        case = (dtype, {k: getattr(v, "shape", v) for k, v in given.items()})
        if isinstance(want, Raised) or isinstance(got, Raised):
            findings.note(unlike_error(got, want), op.name, *case)
            continue
        axis = given.get("axis", 0 if op.name.startswith("reduce_") else None)
        axis = tuple(i % 3 for i in axis) if type(axis) is tuple else axis
        result = np.asarray(want)
        given_mask = given.get("where", True)
        if "prod" in op.name and result.dtype.kind in "fc" and plain.dtype.kind in "iu":
            continue  # an overflow to infinity times zero is NaN in one order and not in another
        seen = np.where(given_mask, plain, plain.dtype.type(0)) if "prod" not in op.name else plain
        allowed = room(op, seen, axis, bool(given.get("keepdims")), result)
        if allowed is not None:
            allowed = allowed + 8 * np.finfo(result.dtype).eps  # what `initial` adds
        findings.note(differences(got, want, 0, op.name in TIES, room=allowed), op.name, *case)
    findings.check()
