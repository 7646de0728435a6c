"""Who does the work: what is forced on generated kernels or a device must run there."""

from __future__ import annotations

import numpy as np
import pytest

import alight
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.log.decisions import LOG
from conformance.compare import Sample, evaluated
from conformance.layouts import ordinary

LEAST = 0.9
ELIGIBLE = "?bhilBHILfd"
REDUCTIONS = ("sum", "prod", "min", "max", "any", "all", "mean")
SHAPE = (40, 25)
UFUNCS: list[Op] = [
    op
    for op in OPS.values()
    if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc) and op.name != "clip"
]


def elementwise_programs(dtype: str) -> None:
    x, y = (alight.asarray(ordinary(dtype, SHAPE, seed)) for seed in (1, 2))
    results = []
    for op in UFUNCS:
        operands = (x, y & 7) if op.name == "power" and dtype in "bhilBHIL" else (x, y)
        try:
            found = op.reference(*operands[: op.nin])
        except TypeError:
            continue
        results += list(found) if op.nout > 1 else [found]
    evaluated(results)


def reduction_programs(dtype: str) -> None:
    x = alight.asarray(ordinary(dtype, SHAPE, 3))
    evaluated(
        [
            getattr(np, f)(v, axis=axis)
            for f in REDUCTIONS
            for axis in (None, 0, 1)
            for v in (x, x.T)
        ]
    )


def mixed_programs(dtype: str) -> None:
    """Whole programs, as users write them: views, writes, masks, statistics."""
    x = alight.asarray(ordinary(dtype, SHAPE, 4))
    y = x[1:, ::2] * 2 + x[:-1, 1::2][:, :1]
    x[2:4] = x[4:6] + 1
    z = np.where(x > 1, x, -x if dtype in "bhilfd" else x) if dtype != "?" else x | (x ^ True)
    w = (z.T + z.mean(axis=1)).sum(axis=0) / z.max() if dtype != "?" else z.any(axis=0)
    x += x
    z[z > 2] = 0
    evaluated([x, y, z, w, np.sqrt(abs(x)) if dtype != "?" else x])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("must", ["generated", "sim:0"])
def test_forced_work_runs_where_it_is_forced(must: str, sample: Sample) -> None:
    force = "cpu:generated" if must == "generated" else must
    before = LOG.snapshot()
    with alight.policy(floor=0, force=force), np.errstate(all="ignore"):
        for dtype in ELIGIBLE if sample.full else "?hlBfd":
            elementwise_programs(dtype)
            reduction_programs(dtype)
            mixed_programs(dtype)
    after = LOG.snapshot().since(before)
    total = sum(after.elements.values())
    there = sum(n for place, n in after.elements.items() if must in place)
    listed = "\n".join(f"{row.what} × {row.times} at {row.call_site}" for row in after.exits)
    kept = "\n".join(f"{row.what}: {row.reason} × {row.times}" for row in after.fallbacks)
    told = f"{there:,} of {total:,} on {must}\n{after.elements}\nexits:\n{listed}\n{kept}"
    print(told)
    assert total > 500_000 and there >= LEAST * total, told
