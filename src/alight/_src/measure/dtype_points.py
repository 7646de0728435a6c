"""What is measured of one dtype on a device: what each class of work takes, in all its sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from alight._src.base.failures import failures
from alight._src.base.records import dataclass
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind
from alight._src.measure import probes
from alight._src.measure.probes import CHAIN
from alight._src.measure.row_probes import (
    apart_in_memory,
    complex_rows,
    few_columns,
    places,
    whole_rows,
)
from alight._src.measure.sizes import (
    APART,
    COMBINED_ROWS,
    DEVICE_ELEMENTS,
    FAR_KNOTS,
    FEW,
    FEW_KNOTS,
    FEW_ROWS,
    HOST_SIDE,
    KNOTS,
    LARGE,
    LEAST_COLUMNS,
    LIBRARY_KNOTS,
    LONE_ELEMENTS,
    MANY,
    MOST_BYTES,
    MOST_REDUCED,
    OTHER_KNOTS,
    REDUCED_PRODUCTS,
    REDUCED_ROW,
    REDUCTION_KNOTS,
    SHARED_BODIES,
    SUMMED_BYTES,
    VITAL,
    compute_elements,
    hides,
    most_bytes,
    sides,
)
from alight._src.plan.loop_overhead import DISTANT_BYTES, LONG_ROW, OUTER_ROWS, ROW, TURNED_SIDES
from alight._src.plan.loop_starts import START_ROWS
from alight._src.plan.occupancy import LONE_OPS
from alight._src.plan.passes import COMBINED_BYTES, NARROW_COLUMNS
from alight._src.plan.products import TURNED, turned_key
from alight._src.plan.workload import PARTS, body_parts

if TYPE_CHECKING:
    from alight.device import Device

__all__ = ["DtypePoints", "Point"]

# Probes of overlap.
_LARGE = ("divide", "exp", "sqrt", "log", "tanh", "maximum", "power")
# Bodies with special functions, by what they tell of: simple ops beside one, or more of them.
BESIDE = {
    "flop": ("tanh", *("add", "multiply", "maximum") * 4),
    "special": ("tanh", "add", "cos", "maximum", "arctan", "multiply"),
}
MANY_FLOPS = "remainder"
# Ops of generated code that are compiled to be timed; the others are estimated by their bodies.
_TIMED = {
    "f": (
        "divide", "exp", "sin", "sqrt", MANY_FLOPS, "log", "tanh", "power", "maximum", "where",
        "cos", "arctan2", "log1p", "expm1", "hypot", "logaddexp", "arctan",
    ),
    "i": ("floor_divide", MANY_FLOPS, "absolute", "maximum", "left_shift", "power"),
    "c": ("divide", "absolute", "less"),
}  # fmt: skip
_REDUCTIONS = {
    "f": ("sum", "prod", "mean", "var", "min", "argmax"),
    "i": ("sum", "prod", "min", "mean", "argmin"),
    "c": ("prod", "mean"),
}
# Of those, what generated code does in ways of its own: compiling one takes 20 to 130 ms.
_OWN_REDUCTIONS = {"f": ("sum", "var", "argmax"), "i": ("sum",), "c": ()}


@dataclass(slots=True)
class Point:
    """Something to measure: where its timing goes, whether the core of a profile needs it, and
    whether it is measured however little time there is."""

    implementation: str
    key: str
    amount: float
    group: Group
    core: bool = True
    coarse: bool = False


@dataclass(slots=True)
class DtypePoints:
    """The points of one dtype."""

    device: Device
    dtype: str
    main: bool

    @property
    def size(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def kind(self) -> str:
        return np.dtype(self.dtype).kind

    @property
    def simplest(self) -> str:
        """Return the reduction that computes least: what others take longer is their work."""
        return "sum" if self.kind == "c" else "max"

    def summed(self, name: str) -> Sequence[str]:
        """Return the reductions that are read off the curve of sums."""
        exact = self.kind == "f" or (self.kind == "c" and name != "generated")
        return ("sum", "mean") if exact and self.device.space == "host" else ()

    @property
    def n(self) -> int:
        return compute_elements(self.device)

    @property
    def apart(self) -> int:
        """How many elements of probes lie apart: they span a multiple of what they are."""
        return min(self.n, self.most // self.size // APART)

    @property
    def most(self) -> int:
        """Return the bytes of the largest array of a probe."""
        return most_bytes(self.device)

    @property
    def hides(self) -> bool:
        return hides(self.device)

    def more(self, name: str, kind: str, amount: float, group: Group) -> Point:
        """Return a point of an implementation that the core of a profile does not need."""
        return Point(name, f"{kind}/{self.dtype}", amount, group, core=False)

    def told(self, name: str, group: Group) -> bool:
        """Tell whether an op is timed by itself: where arithmetic hides, what a body is made of
        says more, but of what loops."""
        if name != "generated" or not self.hides:
            return True
        return body_parts(group.graph, group.graph.nodes[0])[PARTS.index("scalar")] > 0

    def beyond(self, knots: Sequence[int]) -> Sequence[int]:
        """Return knots of the main dtype, and one more for a device whose caches hold the last:
        behind the first that have to be measured."""
        last = 8 * compute_elements(self.device)
        more = (last,) if last > MOST_BYTES else ()
        return (*knots[:VITAL], *more, *knots[VITAL:])

    def curve(self, name: str) -> Iterator[Point]:
        for nbytes in self.beyond(KNOTS) if self.main else OTHER_KNOTS:
            n = nbytes // self.size
            yield Point(name, f"elementwise/{self.dtype}", n, probes.loop("add", self.dtype, n))

    def other_classes(self, name: str) -> Iterator[Point]:
        yield from self.negations(name)
        yield from self.more_reductions(name)

    def negations(self, name: str) -> Iterator[Point]:
        """Yield what reads as much as it writes, past the caches, where that makes a difference."""
        for nbytes in self.beyond(FAR_KNOTS) if self.main else ():
            n = nbytes // self.size
            yield self.more(name, "negate", n, probes.loop("negative", self.dtype, n))

    def basic_work(self, name: str) -> Iterator[Point]:
        dtype, n = self.dtype, self.n
        if name == "generated":
            # of integers that are only added or multiplied a compiler makes one sum or power
            other = {"f": "multiply", "i": "maximum", "c": "add"}[self.kind]
            # one of complex numbers is several, and compiling so many took 70 ms
            count = CHAIN * MANY if self.hides else CHAIN // 3 if self.kind == "c" else CHAIN
            yield Point(name, f"flop/{dtype}", n, probes.chain(dtype, n, ("add", other), count))
            if self.kind != "f":
                ops = ("multiply", "maximum") if self.kind == "i" else ("multiply",)
                group = probes.chain(dtype, n, ops, count)
                yield Point(name, f"chain.multiply/{dtype}", n, group)
            for op in ("divide", "sqrt") if self.hides and self.kind == "f" else ():
                group = probes.chain(dtype, n, (op,))
                yield Point(name, f"chain.{op}/{dtype}", n, group)
        elif self.main:
            small = min(KNOTS) // self.size
            yield Point(name, f"call/{dtype}", small, probes.chain(dtype, small))
        for op in _TIMED[self.kind][:5]:
            group = _loop(op, dtype, n)
            if self.told(name, group):
                yield Point(name, f"{op}/{dtype}", n, group)
        if self.main and (name != "generated" or not self.hides):
            # Large ones tell how much of the arithmetic hides behind the memory.
            for op in _LARGE[:4] if name == "generated" else _LARGE:
                large = min(LARGE * n, self.most // self.size)
                yield Point(name, f"{op}/{dtype}", large, probes.loop(op, dtype, large))

    def more_work(self, name: str) -> Iterator[Point]:
        done = set(_TIMED[self.kind][:5])
        ops = _TIMED[self.kind] if name == "generated" else _every_op(self.dtype)
        for op in ops:
            group = _loop(op, self.dtype, self.n)
            if op not in done and self.told(name, group):
                yield self.more(name, op, self.n, group)
        # One operand less is a shorter call: NumPy's took 2.9 us where an addition took 3.4.
        every = (self.n, FEW) if name == "generated" else (FEW,)
        for count in every if self.main and self.device.space == "host" else ():
            yield self.more(name, "negative", count, _loop("negative", self.dtype, count))
        if name == "generated":
            if self.kind == "c":  # a number's parts and their squares are there before the loop
                group = _loop("divide", self.dtype, self.n, still=True)
                yield self.more(name, "divide@still", self.n, group)
            return
        # Which of two is picked: no branch predictor knows more than the first thousands.
        # Those of the probes of rows have a knot, since it is there that it has learnt them.
        own = [self.n * self.size] if self.device.space == "host" else []
        for nbytes in (*FEW_KNOTS, *own) if self.main else (*OTHER_KNOTS, max(KNOTS) // 4):
            n = nbytes // self.size
            yield self.more(name, "select", n, probes.where(self.dtype, (n,)))

    def work_apart(self, name: str) -> Iterator[Point]:
        """Yield a library's ops on elements that lie apart, or stay."""
        for op in _every_op(self.dtype):
            # Vector code of libraries is for elements side by side; one by one is another loop, and
            # for some there is none between.
            group = _loop(op, self.dtype, self.apart, APART)
            yield self.more(name, f"{op}@apart", self.apart, group)
            if OPS[op].nin == 2:
                group = _loop(op, self.dtype, self.n, still=True)
                yield self.more(name, f"{op}@still", self.n, group)
            if self.kind != "c":
                # some have vector code for this way, too
                yield self.more(name, f"{op}@back", self.n, _loop(op, self.dtype, self.n, -1))

    def reductions(self, name: str) -> Iterator[Point]:
        host = self.device.space == "host"
        far = (SUMMED_BYTES,) if host and self.kind != "i" and not self.main else ()
        for nbytes in self.beyond(REDUCTION_KNOTS) if self.main else (*OTHER_KNOTS, *far):
            n = nbytes // self.size
            group = probes.reduction(self.simplest, self.dtype, (n,), (0,))
            # of what is only read memory takes as long in all dtypes, of what is summed it may not
            if nbytes not in far or self.simplest == "sum":
                yield Point(name, f"reduce_inner/{self.dtype}", n, group)
            if host and self.kind == "f":
                group = probes.reduction("sum", self.dtype, (n,), (0,))
                yield self.more(name, "reduce_sum", n, group)
            if name == "generated" and self.device.space != "host" and n >= REDUCED_ROW:
                # what is reduced into one is two kernels there, rows are one
                group = probes.reduction(
                    self.simplest, self.dtype, (n // REDUCED_ROW, REDUCED_ROW), (1,)
                )
                yield Point(name, f"reduce_rows/{self.dtype}", n, group)

    def lone(self, name: str) -> Iterator[Point]:
        """Yield what one block takes that has a device to itself, the most used first."""
        if name == "generated" and self.kind == "f" and self.device.space != "host":
            for op in LONE_OPS:
                group = probes.lone(self.dtype, LONE_ELEMENTS, op)
                yield self.more(name, f"{op}@lone", LONE_ELEMENTS, group)

    def more_reductions(self, name: str) -> Iterator[Point]:
        dtype, n = self.dtype, self.n
        knots = (
            LEAST_COLUMNS,
            *(self.beyond(REDUCTION_KNOTS)[1:] if self.main else OTHER_KNOTS[1:]),
        )
        for nbytes in knots if self.kind != "c" or name != "generated" else ():
            shape = (OUTER_ROWS, nbytes // self.size // OUTER_ROWS | 1)
            group = probes.reduction(self.simplest, dtype, shape, (0,))
            yield self.more(name, "reduce_outer", math.prod(shape), group)
        for nbytes in knots if name == "generated" and self.main else ():
            shape = (nbytes // self.size // NARROW_COLUMNS, NARROW_COLUMNS)
            group = probes.reduction(self.simplest, dtype, shape, (0,))
            yield self.more(name, "reduce_narrow", math.prod(shape), group)
        if name == "generated" and self.kind != "c":
            # Bodies in front of a reduction, whose state leaves fewer registers and waits for
            # itself.
            host = self.device.space == "host"
            for key, ops in (("flop", ("add",) * CHAIN), ("exp", ("exp",))):
                if (key == "flop" or self.kind == "f") and not self.hides:
                    yield self.more(name, f"{key}@reduced", n, probes.reduced(dtype, n, ops))
            for key, ops in BESIDE.items() if self.kind == "f" and host else ():
                if key == "flop" and not self.main:
                    continue
                for where, count in (("beside", n), ("shared", SHARED_BODIES)):
                    group = probes.chain(dtype, count, ops, len(ops))
                    yield self.more(name, f"{key}@{where}", count, group)
            if self.kind == "f" and host:
                count = COMBINED_BYTES // self.size
                group = probes.reduction(
                    "sum", dtype, (COMBINED_ROWS, count // COMBINED_ROWS), (1,)
                )
                yield self.more(name, "combined@reduce_inner", count, group)
            if self.kind == "f":
                group = probes.reduced(dtype, self.apart, ("add",), APART)
                yield self.more(name, "far@reduced", self.apart, group)
        reductions = _REDUCTIONS[self.kind] if name != "generated" else _OWN_REDUCTIONS[self.kind]
        for op in reductions[:1] if name == "generated" and not self.main else reductions:
            # Some of NumPy's are written in Python: few elements tell what that takes.
            few = name != "generated" and (self.kind != "i" or op.startswith("arg"))
            # what sums take is in their curve, and means are sums that are called in another way
            own = op not in self.summed(name)
            for count in (n,) * own + (FEW,) * (few and (own or op == "mean")):
                group = probes.reduction(op, dtype, (count,), (0,))
                yield self.more(name, f"{op}@reduce_inner", count, group)
            # Generated code reduces columns as it reduces rows.
            if name != "generated" and not op.startswith("arg"):
                group = probes.reduction(op, dtype, (OUTER_ROWS, n // OUTER_ROWS), (0,))
                yield self.more(name, f"{op}@reduce_outer", n, group)

        if name != "generated" and self.kind != "i" and self.device.space == "host":
            # By how many they were, sums are divided once they are there: in some dtypes by way of
            # buffers in another one.
            for op in ("sum", "mean"):
                group = probes.reduction(op, dtype, (FEW_ROWS, n), (0,))
                yield self.more(name, f"{op}@after", n, group)

    def loops(self, name: str) -> Iterator[Point]:
        """Yield short inner loops, and operands that do not go from one element to the next."""
        dtype, n = self.dtype, self.n
        if name != "generated" or self.main:
            for found in self.places(name):
                yield self.more(name, *found)
        if name == "generated" and self.kind == "i":
            return  # goes through arrays as floats of that width do
        # Elements that lie apart span up to six times as much as they are.
        there = min(n, self.most // self.size // 8)
        rows = there // ROW
        yield self.more(name, "start@elementwise", n, probes.rows("add", dtype, rows, ROW))
        if name != "generated":
            group = probes.rows("add", dtype, there // LONG_ROW, LONG_ROW)
            yield self.more(name, "long@elementwise", n, group)
        few = (rows, ROW) if name == "generated" else (max(1, there // LONG_ROW), LONG_ROW)
        yield self.more(name, "start@near", n, probes.rows("add", dtype, *few, step=3))
        if name != "generated" and self.main:
            yield self.more(name, "start@where", n, probes.where(dtype, (rows, ROW)))
        if self.kind == "f" or name != "generated":
            for op in ("sum", "prod") if self.kind == "c" else ("sum", "max", "prod"):
                if op == "prod" and name == "generated":
                    continue  # as all of them
                key = "" if op == "sum" else f"{op}@"
                for start, length in zip(("short", "start"), START_ROWS, strict=True):
                    shape = (n // length, length)
                    if start == "start" or name != "generated":
                        group = probes.reduction(op, dtype, shape, (1,))
                        yield self.more(name, f"{start}@{key}reduce_inner", n, group)
                    if name != "generated":
                        group = probes.reduction(op, dtype, shape, (0,))
                        yield self.more(name, f"{start}@{key}reduce_outer", n, group)
            if name == "generated":
                for key, between in (("beside", 0), ("torn", 7)):
                    group = probes.reduction(self.simplest, dtype, (n // ROW, ROW), (1,), between)
                    yield self.more(name, f"{key}@reduce_inner", n, group)
                if self.device.space != "host":  # partial reductions of places are wider
                    group = probes.reduction("argmax", dtype, (n // ROW, ROW), (1,))
                    yield self.more(name, "beside@argmax@reduce_inner", n, group)
                # on the host what rounds goes by another tree than what does not
                ops = [("", self.simplest)]
                if self.device.space == "host":
                    ops = [("", "sum"), ("max@", "max")] if self.main else []
                for key, op in ops:
                    for found in few_columns(dtype, n, op, key):
                        yield self.more(name, *found)
        if self.kind == "f" and self.device.space == "host":
            for found in whole_rows(dtype, n, self.simplest):
                yield self.more(name, *found)
        if self.main and name != "generated":
            yield self.more(name, "iterator", 8, probes.rows("add", dtype, 2, 4))
        for side in TURNED_SIDES if self.main else ():
            # a row less, or lines that lie a power of two apart would drive one another out
            group = probes.turned("add", dtype, side - 1)
            yield self.more(name, f"turned{side}", (side - 1) ** 2, group)
            if name != "generated":  # libraries bring what they look for a place in into order
                group = probes.reduction("argmax", dtype, (side - 1, side - 1), (0,))
                yield self.more(name, f"copied{side}", (side - 1) ** 2, group)
        if self.main and self.device.space == "host":
            group = probes.loop("negative", dtype, DISTANT_BYTES // (6 * self.size), step=5)
            yield self.more(name, "distant", group.shape[0], group)
        for key, step in (("near", 3), ("far", 5), ("back", -1)):
            if key == "back" and (name != "generated" or self.device.space != "host"):
                continue  # by the op, or as any other way
            yield self.more(name, key, n, probes.loop("add", dtype, there, step=step))

    def places(self, name: str) -> Iterator[tuple[str, int, Group]]:
        """Yield reductions of rows that look for a place."""
        if self.device.space == "host":
            yield from places(self.dtype, self.n, name == "generated", self.main)
        elif self.main and name != "generated":
            length = START_ROWS[1]  # a call for each row, or threads
            group = probes.reduction("argmax", self.dtype, (self.n // length, length), (1,))
            yield "start@argmax@reduce_inner", self.n, group

    def seldom(self, name: str) -> Iterator[Point]:
        """Yield what few groups of generated code need, and others stand for till then."""
        dtype, n = self.dtype, self.n
        if self.kind == "c":
            found = complex_rows(dtype, n, self.most)
        elif self.kind == "i":
            found = itertools.chain(self.places(name), few_columns(dtype, n, "max"))
        else:
            found = apart_in_memory(dtype) if self.main else iter(())
        for one in found:
            yield self.more(name, *one)

    def products(self, name: str, start: int, stop: int) -> Iterator[Point]:
        elements = compute_elements(self.device)
        host = self.device.space == "host"
        if start == 0 and self.kind == "f" and (host or elements > DEVICE_ELEMENTS):
            # Of smaller ones such a device shows calls and operands alone: 4000 x 4000 was
            # predicted at a ninth of what it took (H200, a profile of 12 s).
            side = HOST_SIDE if host else math.isqrt(elements)
            group = probes.product(self.dtype, side, side, side)
            yield Point(name, f"matmul/{self.dtype}", 2.0 * side**3, group)
        for m, k, n in itertools.islice(sides(self.dtype, stop), start, stop):
            group = probes.product(self.dtype, m, k, n)
            yield Point(name, f"matmul/{self.dtype}", 2.0 * m * k * n, group, start == 0)

    def reduced_products(self) -> Iterator[Point]:
        """Yield products of matrices by generated code, as they were made and, of floats, one of
        the two turned."""
        for turned in TURNED if self.kind == "f" else TURNED[:1] if self.kind == "i" else ():
            for m, k, n in sides(self.dtype, REDUCED_PRODUCTS, MOST_REDUCED):
                group = probes.product(self.dtype, m, k, n, turned)
                key = f"matmul/{turned_key(self.dtype, turned)}"
                yield Point("generated", key, 2.0 * m * k * n, group, core=False)

    def vectors(self, name: str) -> Iterator[Point]:
        """Yield products of two vectors, and of a matrix and one."""
        # where a library begins to share them among threads, it does so in each dtype by itself
        for nbytes in OTHER_KNOTS + FEW_KNOTS[-1:] * (self.main or self.kind == "f"):
            count = nbytes // self.size
            side = math.isqrt(count)
            for key, m, k in (("dot", 1, count), ("matvec", side, side)):
                yield self.more(name, key, 2.0 * m * k, probes.product(self.dtype, m, k, 1))

    def scans(self, name: str) -> Iterator[Point]:
        for nbytes in FEW_KNOTS[1:] if self.main else ():
            side = math.isqrt(nbytes // self.size)
            yield self.more(name, "scan", side * side, probes.scan("cumsum", self.dtype, side))

    def library(self, name: str) -> Iterator[Point]:
        """Yield sorts, gathers, copies that turn arrays around, and Fourier transforms."""
        more = FEW_KNOTS[1:2] if self.device.space != "host" else ()
        for nbytes in (*LIBRARY_KNOTS, *more) if self.main else ():
            n = nbytes // self.size
            for key, group in probes.library(self.dtype, n):
                yield self.more(name, key, n, group)


def _loop(op: str, dtype: str, n: int, step: int = 1, still: bool = False) -> Group:
    """Return the probe of an op, its result in the dtype that NumPy gives it; of the first operand
    every ``step``-th element, of the second one where it stays ``still``."""
    if op == "where":
        return probes.where(dtype, (n,))
    if op == "cast":
        other = np.dtype("float64" if np.dtype(dtype).kind == "i" else "int64")
        return probes.loop(op, dtype, n, other.name, (("dtype", other),), step)
    with np.errstate(all="ignore"):
        result = np.asarray(OPS[op].reference(*[np.ones(1, dtype)] * OPS[op].nin)).dtype
    return probes.loop(op, dtype, n, result.name, step=step, still=still)


def _every_op(dtype: str) -> Sequence[str]:
    """Return the elementwise ops that NumPy has a loop of this dtype for, used ones first."""
    wanted = np.dtype(dtype)
    found = [] if wanted.kind == "c" else ["cast"]
    for op in list(OPS.values()):
        if op.kind is not Kind.ELEMENTWISE or op.nout != 1 or op.nin > 2:
            continue
        if isinstance(op.reference, np.ufunc) and op.name not in ("ldexp", "isnat"):
            try:
                loop = op.reference.resolve_dtypes((*[wanted] * op.nin, None))
            except failures(TypeError):
                continue
            if all(operand == wanted for operand in loop[:-1]):
                found.append(op.name)
    return found
