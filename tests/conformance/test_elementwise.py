"""Every elementwise op × its native loops × special values × layouts, against NumPy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.record.pending import record_floor
from conformance.compare import (
    TIES,
    Findings,
    Sample,
    bound_of,
    differences,
    evaluated,
    room_of,
)
from conformance.layouts import LAYOUTS, PAIRS, make, points

NATIVE = "?bhilqBHILQefdFD"
SHARE = 0.12  # of the layouts beyond the first that each op and loop is run in


def ufunc_loops(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """Return the ops that have a loop of native dtypes, by the loop's operands."""
    found: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc):
            for text in op.reference.types:
                before, _, after = text.partition("->")
                if set(before + after) <= set(NATIVE) and op not in found[before]:
                    found[before].append(op)
    return dict(found)


LOOPS = ufunc_loops(OPS.values())


def test_loops_are_drawn_from_the_table() -> None:
    named = {op.name for ops in LOOPS.values() for op in ops}
    every = {
        op.name
        for op in OPS.values()
        if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc)
    }
    assert named == every and len(every) > 80


def arguments(op: Op, arrays: Sequence[Any], loop: str) -> list[Any]:
    """Return operands the op takes without an error."""
    if op.name == "power" and loop[0] in "bhilqBHILQ":
        return [arrays[0], arrays[1] & 15]  # negative exponents are an error
    return list(arrays)


def open_results(op: Op, operands: Sequence[Any], expected: Any) -> Any:
    """Return where NumPy's own result is whatever a cast out of range gives."""
    if op.name == "reciprocal" and operands[0].dtype.kind in "iu":
        return np.asarray(operands[0] == 0)
    return None


def allowed(op: Op, dtype: np.dtype[Any], loop: str, operands: Sequence[Any]) -> Any:
    if op.name == "absolute" and loop in "FD":
        return op.plane_ulp
    return bound_of(op, dtype, operands)


@pytest.mark.parametrize("loop", LOOPS)
def test_ufuncs_of_every_loop_equal_numpy(mode: str, loop: str, sample: Sample) -> None:
    compare_with_reference(loop, LOOPS[loop], sample)


def compare_with_reference(loop: str, every: Sequence[Op], sample: Sample) -> None:
    """Fail where an op's ufunc gives another result on Arrays than on ndarrays of a loop's dtypes,
    of special values and in each layout."""
    findings = Findings()
    values = points(tuple(loop))
    thirds = {"one axis": "one axis", "empty": "empty"}  # what others do not broadcast against
    choices = [(name,) for name in LAYOUTS]
    if len(loop) > 1:
        choices = [(*pair, thirds.get(pair[0], "C")) for pair in PAIRS]
    for place, names in enumerate(choices):
        names = names[: len(loop)]
        ops = [op for op in every if not place or sample.takes(SHARE, op.name, loop, *names)]
        pairs = [make(v, name) for v, name in zip(values, names, strict=True)]
        plain, ours = [p[0] for p in pairs], [p[1] for p in pairs]
        expected = [op.reference(*arguments(op, plain, loop)) for op in ops]
        actual = [op.reference(*arguments(op, ours, loop)) for op in ops]
        flat = [r for result in actual for r in (result if type(result) is tuple else (result,))]
        evaluated(flat)
        for op, got, want in zip(ops, actual, expected, strict=True):
            skip = open_results(op, plain, want)
            together = [(got, want)] if op.nout == 1 else zip(got, want, strict=True)
            for number, (g, w) in enumerate(together):
                bound = allowed(op, np.asarray(w).dtype, loop, plain)
                room = room_of(op, plain)
                text = differences(g, w, bound, op.name in TIES, skip, room)
                findings.note(text, op.name, loop, names, number)
    findings.check()


@pytest.mark.parametrize("ndim", [1, 3])
def test_large_operands_equal_numpy(mode: str, ndim: int, sample: Sample) -> None:
    # Large enough to be planned in every mode.
    findings = Findings()
    least = min(max(300_000, record_floor() + 1), 1_000_000)
    shape = (least,) if ndim == 1 else (60, 50, -(-least // 3000))
    for loop, ops in LOOPS.items():
        if not sample.takes(0.3, "large", loop, ndim):
            continue
        chosen = [op for op in ops if sample.takes(0.08, "large", op.name, loop, ndim)]
        if not chosen:
            continue
        plain = [np.resize(v.ravel(), shape) for v in points(tuple(loop))]
        ours = [alight.asarray(v) for v in plain]
        results = [op.reference(*arguments(op, ours, loop)) for op in chosen]
        for op, got in zip(chosen, results, strict=True):
            want = op.reference(*arguments(op, plain, loop))
            together = [(got, want)] if op.nout == 1 else zip(got, want, strict=True)
            for g, w in together:
                skip = open_results(op, plain, w)
                bound = allowed(op, w.dtype, loop, plain)
                text = differences(g, w, bound, op.name in TIES, skip, room_of(op, plain))
                findings.note(text, op.name, loop, shape)
    findings.check()


def _cast_is_open(values: Any, target: np.dtype[Any]) -> Any:
    """Return which casts NumPy leaves to the machine: floats out of an integer's range."""
    if target.kind not in "iu" or values.dtype.kind not in "fc":
        return None
    real = values.real.astype(np.longdouble)
    info = np.iinfo(target)
    return ~((np.trunc(real) >= info.min) & (np.trunc(real) <= info.max))


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("source", NATIVE)
def test_casts_between_dtypes_equal_numpy(mode: str, source: str, sample: Sample) -> None:
    findings = Findings()
    values = points((source,))[0]
    for name in LAYOUTS:
        targets = [t for t in NATIVE if name == "C" or sample.takes(SHARE, source, t, name)]
        plain, ours = make(values, name)
        results = evaluated([ours.astype(t) for t in targets])
        for target, got in zip(targets, results, strict=True):
            skip = _cast_is_open(plain, np.dtype(target))
            findings.note(differences(got, plain.astype(target), skip=skip), source, target, name)
        copies = [ours.copy(order) for order in "CFAK"]
        for order, got in zip("CFAK", copies, strict=True):
            findings.note(differences(got, plain.copy(order)), "copy", source, order, name)
    findings.check()


@pytest.mark.parametrize("dtype", NATIVE)
def test_where_and_clip_equal_numpy(mode: str, dtype: str, sample: Sample) -> None:
    findings = Findings()
    masks, x, y = points(("?", dtype, dtype))
    low, high = x[0, 0, 0], x[-1, -1, -1]
    for number, (a, b) in enumerate(PAIRS):
        if "one axis" in (a, b) or not (number < 2 or sample.takes(0.4, "where", dtype, a, b)):
            continue
        (mask, our_mask), (p, our_p), (q, our_q) = make(masks, "C"), make(x, a), make(y, b)
        if "empty" in (a, b):
            mask, our_mask = mask[:, :0], our_mask[:, :0]
        cases = {
            "where": lambda m, x, y: np.where(m, x, y),
            "where, not bool": lambda m, x, y: np.where(x, y, x),
            "where, scalar": lambda m, x, y: np.where(m, x, 1),
            "clip": lambda m, x, y: np.clip(x, y, y),
            "clip, one": lambda m, x, y: np.clip(x, None, y),
            "clip, method": lambda m, x, y: x.clip(low, high),
        }
        results = evaluated([case(our_mask, our_p, our_q) for case in cases.values()])
        for (text, case), got in zip(cases.items(), results, strict=True):
            ties = text.startswith("clip")
            findings.note(differences(got, case(mask, p, q), ties=ties), text, dtype, a, b)
    findings.check()
