"""Measure how far the maths of generated code is from the true values; write ``docs/accuracy.md``.

    python tools/accuracy.py [--stride N] [--points N] [NAME ...]

Single floats of one operand are gone through by their bit patterns, every ``stride``-th (1: all),
against float64. Everything else is sampled, and compared with long double, which must have more
bits than float64 (x86). Rows of ops that are not named stay as they are.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alight._core import layout_of, make_layout
from alight.codegen import llvm
from alight.ir.group import Graph, Group, GroupKind, Node
from alight.ir.ops import OPS, Kind, Op

Array = np.ndarray[Any, Any]
PAGE = Path(__file__).parent.parent / "docs/accuracy.md"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Worst:
    """The greatest error, in units in the last place of the true value, and the operands that
    have it, in hexadecimal."""

    op: str
    dtype: str
    error: float
    operands: tuple[str, ...]
    extent: str


def measured_ops() -> list[tuple[Op, np.dtype[Any]]]:
    """Return the ops that may differ from NumPy, with the dtypes of their loops."""
    return [
        (op, np.dtype(dtype))
        for op in OPS.values()
        if op.kind is Kind.ELEMENTWISE and op.ulp and op.nout == 1
        for dtype in ("float64", "float32")
        if f"{np.dtype(dtype).char * op.nin}->{np.dtype(dtype).char}" in op.reference.types  # type: ignore[attr-defined]
    ]


class Measure:
    """One op on one dtype: its kernel, and its error on operands."""

    def __init__(self, op: Op, dtype: np.dtype[Any]) -> None:
        self.op = op
        self.dtype = dtype
        self.wide: Any = np.longdouble if dtype.itemsize == 8 else np.float64
        layout = make_layout(dtype, (BLOCK,))
        node = Node(op, tuple(range(op.nin)), (), layout)
        graph = Graph((layout,) * op.nin, (node,), (op.nin,))
        self.group = Group(GroupKind.LOOP, graph, (BLOCK,))
        self.kernel = llvm.compile_group(self.group)
        self.buffers = [np.zeros(BLOCK, dtype) for _ in range(op.nin + 1)]

    def results(self, operands: Sequence[Array]) -> Array:
        """Return what the kernel makes of at most BLOCK operands."""
        count = len(operands[0])
        for buffer, operand in zip(self.buffers, operands, strict=False):
            buffer[:count] = operand
            buffer[count:] = operand[-1]
        self.kernel([layout_address(b) for b in self.buffers])
        return self.buffers[-1][:count].copy()

    def errors(self, operands: Sequence[Array]) -> Array:
        """Return the errors in ulp; infinite where a special value is another one."""
        with np.errstate(all="ignore"):
            wide = [x.astype(self.wide) for x in operands]
            exact = self.op.reference(*wide)
            rounded = exact.astype(self.dtype)
            actual = self.results(operands)
            most = np.finfo(self.dtype).max
            unit = np.spacing(np.minimum(np.abs(rounded), most)).astype(self.wide)
            if self.op.against is not None:
                terms = self.op.against(*operands)
                unit = np.maximum(unit, np.spacing(np.minimum(terms, most)).astype(self.wide))
            found = np.abs(actual.astype(self.wide) - exact) / unit
            same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
            found = np.where(same, np.where(found <= 0.5, found, 0.0), found)
            found[np.isnan(found)] = np.inf
            signs = (rounded == 0) & (actual == 0) & (np.signbit(actual) != np.signbit(rounded))
            if self.op.against is None:
                found[signs] = np.inf
        return found.astype(float)

    def worst(self, batches: Iterator[Sequence[Array]], extent: str) -> Worst:
        """Return the worst of all batches."""
        most, operands = -1.0, ()
        for batch in batches:
            for start in range(0, len(batch[0]), BLOCK):
                part = [x[start : start + BLOCK] for x in batch]
                errors = self.errors(part)
                place = int(np.argmax(errors))
                if errors[place] > most:
                    most = float(errors[place])
                    operands = tuple(float(x[place]).hex() for x in part)
        return Worst(self.op.name, self.dtype.name, most, operands, extent)


def layout_address(array: Array) -> int:
    """Return the address of an array's first element."""
    assert layout_of(array).size
    return int(array.__array_interface__["data"][0])


def patterns(stride: int) -> Iterator[Sequence[Array]]:
    """Yield single floats by their bits, every ``stride``-th."""
    for start in range(0, 1 << 32, BLOCK * stride):
        bits = np.arange(start, min(start + BLOCK * stride, 1 << 32), stride, np.uint64)
        yield [bits.astype(np.uint32).view(np.float32)]


def samples(op: Op, dtype: np.dtype[Any], count: int, seed: int = 1) -> Iterator[Sequence[Array]]:
    """Yield operands where bodies go wrong: all bit patterns, the ends of the range, near 1, near
    multiples of pi / 2, subnormal ones, and ordinary ones of several sizes."""
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    log_most = float(np.log(info.max))

    def uniform(low: float, high: float) -> Array:
        return random.uniform(low, high, count).astype(dtype)

    def bits() -> Array:
        every = np.iinfo(unsigned).max
        return random.integers(0, every, count, unsigned, endpoint=True).view(dtype)

    def powers(low: float, high: float) -> Array:
        with np.errstate(all="ignore"):
            return np.exp(random.uniform(low, high, count)).astype(dtype)

    near_one = (1 + random.integers(-3000, 3000, count) * float(info.eps) / 2).astype(dtype)
    quarters = (np.rint(random.exponential(1e6, count)) * (np.pi / 2)).astype(dtype)
    if op.nin == 1:
        for end in (1.0, 10.0, 100.0, 1.1 * log_most, 1e5, 1e9):
            yield [uniform(-end, end)]
        yield [bits()]
        yield [powers(-log_most, log_most)]
        yield [-powers(-40, 0)]
        yield [uniform(0.4, 2.6)]
        yield [near_one]
        yield [1 + powers(-30, 0)]
        yield [quarters]
        yield [(uniform(-1, 1) * info.tiny).astype(dtype)]
        yield [uniform(1.6 * info.minexp, -0.6 * info.maxexp)]
        return
    for a, b in ((1, 1), (10, 10), (800, 800), (1e-3, 100), (100, 1e-3)):
        yield [uniform(-a, a), uniform(-b, b)]
    yield [bits(), bits()]
    yield [uniform(0, 10), uniform(-300, 300)]
    yield [1 + powers(-30, 0), uniform(-1e4, 1e4)]
    yield [powers(-log_most, log_most), uniform(-2, 2)]
    yield [powers(-20, 20), powers(-20, 20)]
    yield [np.rint(uniform(-20, 20)), np.rint(uniform(-30, 30))]
    yield [near_one, uniform(-1e17, 1e17)]


def measure(op: Op, dtype: np.dtype[Any], points: int, stride: int) -> Worst:
    """Return the worst error of an op on a dtype."""
    if op.nin == 1 and dtype == np.float32:
        extent = "all values" if stride == 1 else f"every {stride}th value"
        return Measure(op, dtype).worst(patterns(stride), extent)
    batches = list(samples(op, dtype, points))
    extent = f"{len(batches) * points / 1e6:.3g} million samples"
    return Measure(op, dtype).worst(iter(batches), extent)


_ROW = re.compile(r"\| `(\w+)` \| (\w+) \| \d \| ([\d.]+) \| ([^|]*) \| ([^|]*) \|")


def published() -> list[Worst]:
    """Return the rows of the page."""
    if not PAGE.exists():
        return []
    return [
        Worst(name, dtype, float(error), tuple(re.findall(r"`([^`]+)`", operands)), extent)
        for name, dtype, error, operands, extent in _ROW.findall(PAGE.read_text())
    ]


HEAD = """# Accuracy of the maths

How far the results of generated code are from the true values, in units in the last place of the
true value (0.5 is as near as a number of the dtype comes). NumPy's own vectorised functions are
tested to 4. All operations used are IEEE's own, fma among them, so the results have the same bits
on every machine and for every vector width.

This page is made by `python tools/accuracy.py` against long double (against float64, for float32),
and tests measure the worst operands again. A NaN, an infinity or a zero in place of another value,
or of the other sign, counts as infinitely wrong.

| function | dtype | bound | worst | at | measured on |
|---|---|---|---|---|---|
"""

TAIL = """
`logaddexp` and `logaddexp2` of operands that cancel are what remains of larger terms: their errors
are counted in units of the larger operand. float16 is computed in float32 and rounded.
"""


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--points", type=int, default=1_000_000)
    given = parser.parse_args()
    rows = {(row.op, row.dtype): row for row in published()}
    for op, dtype in measured_ops():
        if given.names and op.name not in given.names:
            continue
        row = measure(op, dtype, given.points, given.stride)
        rows[op.name, dtype.name] = row
        print(row, flush=True)
        write([rows[key] for key in ((o.name, d.name) for o, d in measured_ops()) if key in rows])


def write(rows: Sequence[Worst]) -> None:
    """Write the page."""
    lines = [
        f"| `{row.op}` | {row.dtype} | {OPS[row.op].ulp:.0f} | {row.error:.3f} | "
        f"{', '.join(f'`{x}`' for x in row.operands)} | {row.extent} |\n"
        for row in rows
    ]
    PAGE.write_text(HEAD + "".join(lines) + TAIL)


if __name__ == "__main__":
    main()
