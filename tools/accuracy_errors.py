"""How far an op's kernel is off: on operands, on every bit pattern of a single float, and on
samples of where bodies go wrong. What is measured and published is said by ``tools/accuracy.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.special  # noqa: F401  (its functions are in the table of who has imported it)

from accuracy_true_values import FEWER, PLANE, TRUE, Array, true_values
from alight._core import layout_of, make_layout
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind, Op, bring_tables

bring_tables()
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


def confirmed(op: Op, bits: int, extent: str) -> Worst:
    """Return the row of an operand, measured in long double."""
    operand = np.array([bits], np.uint32).view(np.float32)
    return _measure(op.name, "float32").worst(iter([[operand]]), extent)


def sampled(name: str, dtype: str, points: int) -> Worst:
    """Return the worst error of an op on samples; for a process of its own."""
    if name in TRUE:
        points = max(points // FEWER, 1)
    measure = _measure(name, dtype)
    batches = list(samples(measure.op, measure.dtype, points))
    extent = f"{len(batches) * points / 1e6:.3g} million samples"
    return measure.worst(iter(batches), extent)
