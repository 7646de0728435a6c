"""Measure how far the maths of generated code is from the true values.

    python tools/accuracy.py [--jobs N] [--stride N] [--points N] [NAME ...]

Writes ``bench-results/accuracy.json`` and, from it, ``docs/accuracy.md``. Single floats of one
operand are gone through by their bit patterns, every one (or every ``stride``-th), in shards, by
``jobs`` processes: a minute of processor time an op, or six of sines, whose far arguments are made
one by one. What they are compared with is the op's own body in float64, in the same kernel, whose
error is 2**-29 of a single float's; and one in 509 with NumPy in float64, which shares nothing with
it. What is published is measured again in long double. Everything else is sampled and compared with
long double, which must have more bits than float64 (x86). A run that was stopped goes on with the
shards that are missing; rows of ops that are not named stay as they are. Errors are found in
``accuracy_errors.py``; values that no function of NumPy's gives are in ``accuracy_true_values.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from accuracy_errors import SHARD, Worst, confirmed, sampled, shard
from alight._src.ir.maths import FUNCTIONS, coefficients
from alight._src.ir.op_table import OPS, Kind, Op, trees

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/accuracy.md"
RESULT = ROOT / "bench-results/accuracy.json"


def measured_ops() -> list[tuple[Op, np.dtype[Any]]]:
    """Return the ops that may differ from NumPy, with the dtypes of their loops."""
    return [
        (op, np.dtype(dtype))
        for op in OPS.values()
        if op.kind is Kind.ELEMENTWISE and op.nout == 1
        for dtype in ("float64", "float32", "complex128", "complex64")
        if op.ulp_on(dtype)
        and isinstance(op.reference, np.ufunc)
        and f"{np.dtype(dtype).char * op.nin}->{np.dtype(dtype).char}" in op.reference.types
        and trees(op, (np.dtype(dtype),) * op.nin, np.dtype(dtype)) is not None
    ]


def by_patterns(op: Op, dtype: np.dtype[Any]) -> bool:
    """Tell whether all operands of an op can be gone through."""
    return op.nin == 1 and dtype == np.float32


def bodies() -> str:
    """Return what tells this maths from an earlier one."""
    parts = (FUNCTIONS, coefficients.POLYNOMIALS, coefficients.CONSTANTS)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Document:
    """What was measured: rows, and the shards of a run that is under way."""

    def __init__(self) -> None:
        known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        self.rows = {(r["op"], r["dtype"]): Worst(**r) for r in known.get("rows", [])}
        current = known.get("bodies") == bodies()
        self.shards: dict[str, list[Any]] = known.get("shards", {}) if current else {}

    def write(self) -> None:
        """Write the results, and the page from them."""
        order = [(op.name, dtype.name) for op, dtype in measured_ops()]
        rows = [self.rows[key] for key in order if key in self.rows]
        document = {
            "bodies": bodies(),
            "shards": self.shards,
            "rows": [asdict(row) for row in rows],
        }
        part = RESULT.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1) + "\n")
        part.replace(RESULT)
        PAGE.write_text(page(rows))


def sweep(document: Document, names: Sequence[str], stride: int, jobs: int) -> None:
    """Go through the patterns of single floats for ops."""
    starts = range(0, 1 << 32, SHARD)
    missing = [
        (name, start)
        for name in names
        for start in starts
        if f"{name}/{start:08x}/{stride}" not in document.shards
    ]
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(shard, *item, stride) for item in missing]):
            name, start, error, bits = done.result()
            document.shards[f"{name}/{start:08x}/{stride}"] = [error, bits]
            found = [document.shards.get(f"{name}/{s:08x}/{stride}") for s in starts]
            if None in found:
                document.write()
                continue
            error, bits = max(item for item in found if item is not None)
            row = confirmed(OPS[name], bits, "all values" if stride == 1 else f"one in {stride}")
            document.rows[name, "float32"] = row
            for s in starts:
                del document.shards[f"{name}/{s:08x}/{stride}"]
            document.write()
            print(row, flush=True)


def published() -> list[Worst]:
    """Return the rows that are published."""
    return list(Document().rows.values())


HEAD = """# Accuracy of the maths

How far the results of generated code are from the true values, in units in the last place of the
true value (0.5 is as near as a number of the dtype comes). NumPy's own vectorised functions are
tested to 4. All operations used are IEEE's own, fma among them, so the results have the same bits
on every machine and for every vector width.

This page is made by `python tools/accuracy.py`: functions of one float32 over its bit patterns (all
values, or one in so many, as the last column says), against float64: its own body there, and one in
509 against NumPy; all others on samples, against long double, and SciPy's functions (`special.…`)
against mpmath. Tests measure the worst operands again.
A NaN, an infinity or a zero in place of another value, or of the other sign, counts as infinitely
wrong.

| function | dtype | bound | worst | at | measured on |
|---|---|---|---|---|---|
"""

TAIL = """
SciPy's own functions are less exact in places: `erfc`, `ndtr` and `log_ndtr` lose x² units in their
tails and give zero for what is subnormal, `expit` the latter; `gammaln` has absolute errors next to
1 and 2. Where NumPy's way is chosen, results are SciPy's. Single floats are computed in float64,
but for `expit`, `logit`, `xlogy` and `xlog1py`. `gammaln` of a number below zero is the difference
of two terms: its errors are counted in units of the larger. `exprel` of more than 709.78 is
infinite and so is `gammaln` of less than 2**-1024, as SciPy's are. `softmax`, `logsumexp` and
NumPy's `sinc` are compositions of ops that stand here: within 8 units (`sinc`: 4) and the bound of
the sum in them.

`logaddexp` and `logaddexp2` of operands that cancel are what remains of larger terms: their errors
are counted in units of the larger operand. float16 is computed in float32 and rounded. Of complex
functions the distance from the true value is counted in units of its absolute value; the operand is
given by its parts. The angle of a complex `exp2` is the rounded product with ln 2, as NumPy's. Of a
complex power the units are those of 1 + |y| (1 + |log x|) times the result: so much is lost by the
products that a whole exponent stands for, and by the exponential of a product, in NumPy, too.
"""


def page(rows: Sequence[Worst]) -> str:
    """Return the page's text."""
    lines = [
        f"| `{row.op}` | {row.dtype} | {OPS[row.op].ulp_on(row.dtype):.0f} | {row.error:.3f} | "
        f"{', '.join(f'`{x}`' for x in row.operands)} | {row.extent} |\n"
        for row in rows
    ]
    return HEAD + "".join(lines) + TAIL


def main() -> None:
    """Measure, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument(
        "--patterns-only", action="store_true", help="leave the samples as they are"
    )
    given = parser.parse_args()
    began = time.perf_counter()
    document = Document()
    wanted = [pair for pair in measured_ops() if not given.names or pair[0].name in given.names]
    names = [op.name for op, dtype in wanted if by_patterns(op, dtype)]
    sweep(document, names, given.stride, given.jobs)
    rest = [] if given.patterns_only else [pair for pair in wanted if not by_patterns(*pair)]
    with ProcessPoolExecutor(given.jobs) as pool:
        found = [pool.submit(sampled, op.name, dtype.name, given.points) for op, dtype in rest]
        for done in as_completed(found):
            row = done.result()
            document.rows[row.op, row.dtype] = row
            document.write()
            print(row, flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
