"""The published accuracy of the maths: it holds, and the worst operands still have that error."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generated import Schedule, loop_group, run

if np.finfo(np.longdouble).nmant < 60:
    pytest.skip("no longer float to compare with", allow_module_level=True)


TOOLS = str(Path(__file__).parents[2] / "tools")
sys.path.insert(0, TOOLS)
accuracy: Any = import_module("accuracy")
errors: Any = import_module("accuracy_errors")
sys.path.remove(TOOLS)
PUBLISHED = {(row.op, row.dtype): row for row in accuracy.published()}
MEASURED = accuracy.measured_ops()


@pytest.mark.parametrize(("op", "dtype"), MEASURED, ids=lambda item: getattr(item, "name", None))
def test_the_error_is_what_is_published(op: Any, dtype: np.dtype[Any]) -> None:
    row = PUBLISHED[op.name, dtype.name]
    assert row.error <= op.ulp_on(dtype)
    measure = errors.Measure(op, dtype)
    parts = np.array([float.fromhex(x) for x in row.operands])
    if dtype.kind == "c":
        operands = [np.array([complex(*pair)], dtype) for pair in parts.reshape(-1, 2)]
    else:
        operands = list(parts.astype(dtype)[:, None])
    assert measure.errors(operands)[0] == pytest.approx(row.error, abs=6e-4)
    worst = measure.worst(errors.samples(op, dtype, 4000, seed=7), "")
    assert worst.error <= op.ulp_on(dtype), worst


def test_every_row_is_of_an_op() -> None:
    assert set(PUBLISHED) == {(op.name, dtype.name) for op, dtype in MEASURED}


@pytest.mark.parametrize(("op", "dtype"), MEASURED, ids=lambda item: getattr(item, "name", None))
def test_every_width_gives_the_same_bits(op: Any, dtype: np.dtype[Any]) -> None:
    batches = list(errors.samples(op, dtype, 500, seed=9))
    operands = [np.concatenate(part) for part in zip(*batches, strict=True)]
    found = [
        run(loop_group(operands, [(op, tuple(range(op.nin)), (), dtype)]), operands, schedule)[0]
        for schedule in (Schedule(), Schedule(vector_bits=256), Schedule(vector_bits=128))
    ]
    for other in found[1:]:
        assert np.array_equal(found[0], other, equal_nan=True)
        real = f"f{dtype.itemsize // (2 if dtype.kind == 'c' else 1)}"
        assert np.array_equal(np.signbit(found[0].view(real)), np.signbit(other.view(real)))
