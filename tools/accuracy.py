"""Measure how far the maths of generated code is from the true values.

    python tools/accuracy.py [--jobs N] [--stride N] [--points N] [NAME ...]

Writes ``bench-results/accuracy.json`` and, from it, ``docs/accuracy.md``. Single floats of one
operand are gone through by their bit patterns, every one (or every ``stride``-th), in shards, by
``jobs`` processes: a minute of processor time an op, or six of sines, whose far arguments are made
one by one. What they are compared with is the op's own body in float64, in the same kernel, whose
error is 2**-29 of a single float's; and one in 509 with NumPy in float64, which shares nothing with
it. What is published is measured again in long double. Everything else is sampled and compared with
long double, which must have more bits than float64 (x86). A run that was stopped goes on with the
shards that are missing; rows of ops that are not named stay as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special  # noqa: F401  (its functions are in the table of who has imported it)

from alight._core import layout_of, make_layout
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.maths import FUNCTIONS, coefficients
from alight._src.ir.op_table import OPS, Kind, Op, bring_tables, trees

bring_tables()
Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/accuracy.md"
RESULT = ROOT / "bench-results/accuracy.json"
# What a kernel is given at once: with the float64 beside it, it stays in a second-level cache.
BLOCK = 1 << 15
# One in so many patterns is compared with NumPy, too.
CHECK = 509
# The patterns of a shard: few enough that a run that was stopped loses seconds.
SHARD = 1 << 27


@dataclass(frozen=True)
class Worst:
    """The greatest error, in units in the last place of the true value, and the operands that
    have it, in hexadecimal."""

    op: str
    dtype: str
    error: float
    operands: tuple[str, ...]
    extent: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", tuple(self.operands))


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


class Measure:
    """One op on one dtype: its kernel, and its error on operands."""

    def __init__(self, op: Op, dtype: np.dtype[Any]) -> None:
        self.op = op
        self.dtype = dtype
        self.wide: Any = np.longdouble if dtype.kind == "f" else np.clongdouble
        self.true = TRUE.get(op.name) and partial(true_values, op)
        layout = make_layout(dtype, (BLOCK,))
        node = Node(op, tuple(range(op.nin)), (), layout)
        graph = Graph((layout,) * op.nin, (node,), (op.nin,))
        self.group = Group(GroupKind.LOOP, graph, (BLOCK,))
        self.kernel = object_code.compile_group(self.group)
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
        if self.dtype.kind == "c":
            return self.errors_in_the_plane(operands)
        with np.errstate(all="ignore"):
            wide = [x.astype(self.wide) for x in operands]
            exact = self.op.reference(*wide) if self.true is None else self.true(operands)
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

    def errors_in_the_plane(self, operands: Sequence[Array]) -> Array:
        """Return the errors in ulp of the absolute values, of what is finite."""
        with np.errstate(all="ignore"):
            if self.op.name in PLANE:
                exact = PLANE[self.op.name](*operands)
            else:
                exact = self.op.reference(*[x.astype(self.wide) for x in operands])
            rounded = exact.astype(self.dtype)
            actual = self.results(operands)
            unit = self.op.plane_unit(operands, rounded)
            found = np.abs(actual.astype(self.wide) - exact) / unit
        finite = np.isfinite(np.abs(rounded)) & np.isfinite(rounded)
        return np.where(finite, np.where(np.isnan(found), np.inf, found), 0).astype(float)

    def against_numpy(self, patterns: Array) -> tuple[float, int]:
        """Return the worst error of single floats, by their bits, against NumPy in float64, and
        its bits."""
        operand = patterns.view(np.float32)
        with np.errstate(all="ignore"):
            exact = self.op.reference(operand.astype(np.float64))
            rounded = exact.astype(np.float32).view(np.uint32)
            actual = self.results([operand])
            exponent = (rounded >> 23) & 255
            # what 1 is in units of the last place, of a float of that exponent
            units = (1023 + 150 - np.clip(exponent, 1, 254)).astype(np.uint64) << 52
            errors = np.abs(actual.astype(np.float64) - exact) * units.view(np.float64)
        other = ~(errors < np.inf) | ((rounded ^ actual.view(np.uint32)) >> 31 != 0)
        if other.any():
            errors[other] = self.errors([operand[other]])
        place = int(np.argmax(errors))
        return float(errors[place]), int(patterns[place])

    def swept(self, start: int, stride: int) -> tuple[float, int]:
        """Return the worst error of one shard of the patterns of a single float, and its bits."""
        kernel, end = _sweep_kernel(self.op), start + SHARD
        few = np.arange(start, end, stride * CHECK, np.uint32)
        found = [self.against_numpy(few[i : i + BLOCK]) for i in range(0, len(few), BLOCK)]
        patterns = np.arange(start, start + BLOCK * stride, stride, np.uint32)
        errors = np.empty(BLOCK, np.float32)
        for first in range(start, end, BLOCK * stride):
            kernel([layout_address(patterns), layout_address(errors)])
            # the last block may go on into the next shard
            place = int(np.argmax(errors[: -(-(end - first) // stride)]))
            found.append((float(errors[place]), int(patterns[place])))
            patterns += np.uint32(BLOCK * stride)
        return max(found)

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
                    operands = tuple(x.hex() for array in part for x in _parts(array[place]))
        return Worst(self.op.name, self.dtype.name, most, operands, extent)


def exp2_in_the_plane(z: Array) -> Array:
    """Return 2**z in long double, by an angle that is rounded as the dtype has it."""
    length = np.exp2(z.real.astype(np.longdouble))
    angle = (z.imag * z.real.dtype.type(np.log(2))).astype(np.longdouble)
    return length * np.cos(angle) + 1j * (length * np.sin(angle))


def log1p_in_the_plane(z: Array) -> Array:
    """Return log(1 + z) in long double, right also where z is small."""
    a, b = z.real.astype(np.longdouble), z.imag.astype(np.longdouble)
    length = np.hypot(1 + a, b)
    near = np.log1p(np.where(abs(length - 1) < 0.5, a * (2 + a) + b * b, 0)) / 2
    return np.where(abs(length - 1) < 0.5, near, np.log(length)) + 1j * np.arctan2(b, 1 + a)


def power_in_the_plane(x: Array, y: Array) -> Array:
    """Return x**y in long double; what NumPy makes of them where products overflow: those whose
    inverse is a whole negative power, and those of exponents and logarithms."""
    narrow = np.power(x, y)
    exact = np.power(x.astype(np.clongdouble), y.astype(np.clongdouble))
    inverse = (y.imag == 0) & (y.real < 0) & (np.rint(y.real) == y.real)
    over = inverse & (np.abs(exact) * np.finfo(x.dtype).max < 1.01)
    return np.where(over | ~np.isfinite(narrow), narrow, exact)


# What NumPy's own long double loses too much of, or defines otherwise than its narrower loops do.
PLANE: dict[str, Callable[..., Array]] = {
    "exp2": exp2_in_the_plane,
    "log1p": log1p_in_the_plane,
    "power": power_in_the_plane,
    "float_power": power_in_the_plane,
}


def _log_of_normal(mp: Any, x: Any) -> Any:
    beyond = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log1p(-beyond) if x > 0 else mp.log(beyond)


EXP_MOST = 709.78  # of more exprel is infinite in SciPy, for the exponential in it is
GAMMA_LEAST = 2.0**-1024  # and the inverse of less, of which it takes a logarithm


# SciPy's functions have no loops of long double, or none that is exact: their values by mpmath.
TRUE: dict[str, Callable[..., Any]] = {
    "special.expit": lambda mp, x: 1 / (1 + mp.exp(-x)),
    "special.logit": lambda mp, x: mp.log(x) - mp.log1p(-x),
    "special.xlogy": lambda mp, x, y: x * mp.log(y) if x else x,
    "special.xlog1py": lambda mp, x, y: x * mp.log1p(y) if x else x,
    "special.exprel": lambda mp, x: mp.expm1(x) / x if x < EXP_MOST else mp.inf,
    "special.erf": lambda mp, x: mp.erf(x),
    "special.erfc": lambda mp, x: mp.erfc(x),
    "special.ndtr": lambda mp, x: mp.erfc(-x / mp.sqrt(2)) / 2,
    "special.log_ndtr": _log_of_normal,
    "special.gammaln": lambda mp, x: mp.re(mp.loggamma(x)) if abs(x) > GAMMA_LEAST else mp.inf,
}
# How many of the points that others are measured on these take: a value takes mpmath 0.1 ms.
FEWER = 400
# Beyond it results are what the function says: zero, one, the operand or infinity.
FAR = 1e5


def true_values(op: Op, operands: Sequence[Array]) -> Array:
    """Return the values of a function of SciPy's in long double, by mpmath; SciPy's own where the
    operands are special, or far from all that bends."""
    import mpmath

    found = op.reference(*[x.astype(np.float64) for x in operands]).astype(np.longdouble)
    with mpmath.workprec(200):
        for i, row in enumerate(zip(*operands, strict=True)):
            if not np.all(np.isfinite(row)) or (op.nin == 1 and abs(row[0]) > FAR):
                continue
            try:
                value = TRUE[op.name](mpmath, *[mpmath.mpf(float(x)) for x in row])
                high = float(value)
            except (ValueError, ZeroDivisionError, TypeError):  # no real number
                continue
            if not high:
                continue  # of which sign it is the function says
            found[i] = np.longdouble(high)
            if np.isfinite(high):
                found[i] += np.longdouble(float(value - high))
    return found


# The error of single floats y whose true value, but for what float64 rounds, is x: in units in the
# last place, and infinite where a special value or a sign is another one.
ERROR = """r = float32(x)
    a = bits(r)
    b = bits(y)
    n = (a >> 23) & 255
    n = where(n > 254, 254, where(n < 1, 1, n))
    e = fabs(float64(y) - x) * floating((1023 + 150 - uint64(n)) << 52)
    finite = e < inf
    e = where(finite & (((a ^ b) >> 31) == 0), e, inf)
    float32(where((x != x) & (y != y) | (a == b) & ~finite, 0, e))"""


@cache
def _sweep_kernel(op: Op) -> Any:
    """Return a kernel that makes errors of an op of single floats from their bits: it has the true
    value from the op's body in float64."""

    def step(name: str, body: str) -> Op:
        return Op(f"sweep.{name}", Kind.ELEMENTWISE, np.copy, body=body, nin=1 + (name == "error"))

    def node(use: Op, operands: tuple[int, ...], dtype: str) -> Node:
        return Node(use, operands, (), make_layout(np.dtype(dtype), (BLOCK,)))

    nodes = (
        node(step("float", "floating(x)"), (0,), "float32"),
        node(op, (1,), "float32"),
        node(OPS["cast"], (1,), "float64"),
        node(op, (3,), "float64"),
        node(step("error", ERROR), (4, 2), "float32"),
    )
    graph = Graph((make_layout(np.dtype(np.uint32), (BLOCK,)),), nodes, (5,))
    return object_code.compile_group(Group(GroupKind.LOOP, graph, (BLOCK,)))


def _parts(value: Any) -> list[float]:
    return [float(value.real), float(value.imag)] if value.dtype.kind == "c" else [float(value)]


def layout_address(array: Array) -> int:
    """Return the address of an array's first element."""
    assert layout_of(array).size
    return int(array.__array_interface__["data"][0])


@cache
def _measure(name: str, dtype: str) -> Measure:
    return Measure(OPS[name], np.dtype(dtype))


def shard(name: str, start: int, stride: int) -> tuple[str, int, float, int]:
    """Return an op's worst error in one shard; for a process of its own."""
    return name, start, *_measure(name, "float32").swept(start, stride)


def samples(op: Op, dtype: np.dtype[Any], count: int, seed: int = 1) -> Iterator[Sequence[Array]]:
    """Yield operands where bodies go wrong: all bit patterns, the ends of the range, near 1, near
    multiples of pi / 2, subnormal ones, and ordinary ones of several sizes."""
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        drawn = [samples(OPS["arctan2"], part, count, seed + i) for i in range(op.nin)]
        for pairs in zip(*drawn, strict=True):
            found = [np.empty(count, dtype) for _ in pairs]
            for z, parts in zip(found, pairs, strict=True):
                z.real, z.imag = parts
            for exponent in found[1:]:  # half of them real, a quarter whole
                exponent.imag[::2] = 0
                with np.errstate(invalid="ignore"):
                    exponent.real[::4] = np.rint(exponent.real[::4])
            yield found
        return
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


def sampled(op: Op, dtype: np.dtype[Any], points: int) -> Worst:
    """Return the worst error of an op on samples."""
    if op.name in TRUE:
        points = max(points // FEWER, 1)
    batches = list(samples(op, dtype, points))
    extent = f"{len(batches) * points / 1e6:.3g} million samples"
    return Measure(op, dtype).worst(iter(batches), extent)


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


def confirmed(op: Op, bits: int, extent: str) -> Worst:
    """Return the row of an operand, measured in long double."""
    operand = np.array([bits], np.uint32).view(np.float32)
    return _measure(op.name, "float32").worst(iter([[operand]]), extent)


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
        found = [pool.submit(_sampled, op.name, dtype.name, given.points) for op, dtype in rest]
        for done in as_completed(found):
            row = done.result()
            document.rows[row.op, row.dtype] = row
            document.write()
            print(row, flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


def _sampled(name: str, dtype: str, points: int) -> Worst:
    return sampled(OPS[name], np.dtype(dtype), points)


if __name__ == "__main__":
    main()
