"""How one reduction reduces: what each element becomes, how two are combined, where partial
reductions are kept.

The tree depends on the number of elements alone, so the same values give the same bits in any
memory layout and with any vector width: runs of CHUNK elements, in each LANES interleaved
reductions that then meet pairwise, and the runs meet pairwise as the carries of a binary counter
do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.codegen.common.loops import ARGUMENT_REDUCTIONS
from alight._src.codegen.common.trees import scalar_only
from alight._src.codegen.llvm.expressions import Code, Module, literal, memory_type
from alight._src.ir.body import COMPLEX, FLOATS, choose, kind_of, typed
from alight._src.ir.op_table import OPS
from alight._src.ir.table_reduction import CHUNK, LANES, MOMENTS, ORIGIN

if TYPE_CHECKING:
    from alight._src.ir.body import Expr
    from alight._src.ir.graph import Graph, Node

# A binary counter of this many bits counts the chunks of 2**47 elements: they take days to reduce.
LEVELS = 40
CHUNK_BITS = CHUNK.bit_length() - 1

_BETTER = {
    "argmin": "(x < y) | ((x != x) & (y == y))",
    "argmax": "(x > y) | ((x != x) & (y == y))",
}


class Reduction:
    """One reduction of a group, for code that is being written."""

    def __init__(self, graph: Graph, node: Node) -> None:
        op = node.op
        source = graph.layouts[node.operands[0]].dtype.name
        result = node.layout.dtype.name
        self.node = node
        self.result = result
        self.source = source
        self.argument = op.name in ARGUMENT_REDUCTIONS
        self.origin: tuple[Expr, ...] = ()
        self.moments = op.combine == MOMENTS
        self.dtype = source if self.argument else result
        if self.dtype == "float16":  # NumPy, too, reductions half floats as single ones
            self.dtype = "float32"
        if self.moments:
            self.origin = typed(ORIGIN[self.dtype], (self.dtype,), (self.dtype,))
        if self.argument:
            self.combine_name = "minimum" if op.name == "argmin" else "maximum"
        else:
            assert op.combine is not None  # gaps.check has seen to it
            self.combine_name = "add" if self.moments else op.combine
        body = "x" if self.argument else choose(op.body, (source,)) or "R(x)"
        if body == "x" and self.dtype != source:
            body = "R(x)"
        self.element = typed(body, (source,), (self.dtype,))
        pair = choose(OPS[self.combine_name].body, (self.dtype, self.dtype))
        assert pair is not None
        self.pair = typed(pair, (self.dtype, self.dtype), (self.dtype,))
        self.better: tuple[Expr, ...] = ()
        self.better_body = _BETTER[op.name] if self.argument else ""
        if self.argument:
            self.better = typed(self.better_body, (self.dtype, self.dtype), ("bool",))
        self.finish_body = choose(op.finish, (self.dtype,))
        self.finish: tuple[Expr, ...] | None = None
        if self.finish_body is not None:
            self.finish = typed(self.finish_body, (self.dtype, "float64"), (result,))
        self.masked = bool(node.attr("where"))
        self.initial = node.attr("initial")
        self.stem = f"{self.combine_name}.{self.dtype}"
        self.body = body
        # what of the count is left to divide by
        self.freedom = float(node.attr("correction", node.attr("ddof", 0)) or 0)

    @property
    def identity(self) -> float | int | bool | complex:
        """Return the value that changes nothing when it is combined."""
        return identity(self.combine_name, self.dtype)

    @property
    def lanewise(self) -> bool:
        """Tell whether elements are made, and combined, in vectors as they are one by one."""
        return not any(scalar_only(tree) for tree in (*self.element, *self.pair))

    @property
    def exact(self) -> bool:
        """Tell whether any order of reducing gives the same bits."""
        if self.combine_name not in ("add", "multiply"):
            return True
        return self.dtype not in (*FLOATS, *COMPLEX)

    @property
    def element_key(self) -> str:
        """Return what the elements are made of and by what, as part of a name."""
        return "".join(c if c.isalnum() else f"_{ord(c)}_" for c in f"{self.source}.{self.body}")

    def stops(self) -> str | None:
        """Return the partial reduction that nothing can change any more: there is one for bools."""
        if self.dtype != "bool" or self.argument:
            return None
        if self.combine_name in ("logical_or", "bitwise_or", "maximum", "fmax"):
            return "true"
        if self.combine_name in ("logical_and", "bitwise_and", "minimum", "fmin"):
            return "false"
        return None

    def value(self, code: Code, known: dict[int, str]) -> str:
        """Return the element to reduce, from the values of the group at one index."""
        (value,) = code.evaluate(self.element, [known[self.node.operands[0]]])
        if self.masked:
            mask = known[self.node.operands[-1]]
            value = code.chosen(mask, value, literal(self.identity, self.dtype), self.dtype)
        return value

    def combined(self, code: Code, a: str, b: str, lanes: int = 0) -> str:
        """Return two partial reductions combined; with an element, the element comes first."""
        # so that what is asked about the first alone does not wait for the reduction so far
        (value,) = code.evaluate(self.pair, [a, b], lanes)
        return value

    def finished(self, code: Code, reduced: str, count: str) -> str:
        """Return the result made of the whole reduction and the number of elements."""
        if self.start is not None:
            reduced = self.combined(code, literal(self.start, self.dtype), reduced)
        if self.finish is None:
            return code.cast(reduced, self.dtype, self.result)
        number = code.emit(f"uitofp i64 {count} to double")
        if self.moments:
            number = _freedom(code, number, self.freedom)
        (value,) = code.evaluate(self.finish, [reduced, number])
        return value

    @property
    def start(self) -> float | int | bool | complex | None:
        """Return what the whole reduction is combined with, in its dtype: a value of the
        result's."""
        start = self.initial
        if start is None and self.combine_name == "add" and not self.moments:
            start = 0  # NumPy's sum starts at +0, and -0 is the identity of the reduction
        return None if start is None else np.asarray(start).astype(self.result).item()


def _freedom(code: Code, number: str, taken: float) -> str:
    """Return the count less the degrees of freedom taken, at least 0 as in NumPy."""
    zero = literal(0, "float64")
    left = code.emit(f"fsub double {number}, {literal(taken, 'float64')}")
    some = code.emit(f"fcmp ogt double {left}, {zero}")
    return code.emit(f"select i1 {some}, double {left}, double {zero}")


def identity(combine: str, dtype: str) -> float | int | bool | complex:
    """Return what changes nothing when combined with any value of the dtype, bit for bit."""
    kind = kind_of(dtype)
    if kind == "c":
        assert combine == "add"  # gaps.supports has seen to it
        return complex(-0.0, -0.0)
    if combine == "add":
        return -0.0 if kind == "f" else 0
    if combine == "multiply":
        return 1
    if combine in ("logical_or", "logical_xor", "bitwise_or", "bitwise_xor"):
        return 0
    if combine in ("logical_and", "bitwise_and"):
        return True if kind == "b" else -1
    if dtype in FLOATS and combine in ("fmax", "fmin"):
        return math.nan  # they ignore it
    least = combine in ("maximum", "fmax")
    if kind == "b":
        return not least
    if kind == "f":
        return -math.inf if least else math.inf
    info = np.iinfo(dtype)
    return int(info.min if least else info.max)


# --- shared functions: one reduction of a chunk, and the counter of chunks ---
def chunk_of(code: Code, reduction: Reduction, vectors: list[str]) -> str:
    """Return the reduction of a full chunk, given as vectors of LANES."""
    value = vectors[0]
    for vector in vectors[1:]:
        value = reduction.combined(code, vector, value, LANES)
    return across(code, reduction, value)


def across(
    code: Code,
    reduction: Reduction,
    value: str,
    lanes: int = LANES,
    combined: Callable[[str, str, int], str] | None = None,
) -> str:
    """Return the lanes of a vector reduced pairwise: lane i meets lane i + half."""
    while lanes > 1:
        whole, lanes = lanes, lanes // 2
        low, high = (
            code.some_lanes(value, reduction.dtype, whole, first, lanes) for first in (0, lanes)
        )
        if combined is None:
            value = reduction.combined(code, low, high, lanes)
        else:
            value = combined(low, high, lanes)
    return code.sole_lane(value, reduction.dtype)


def push_function(module: Module, reduction: Reduction, tile: int = 1) -> str:
    """Return the function that adds a reduced chunk to the counter: ``(ptr chunk, ptr stack, ptr
    count, i64 width)``, for ``width`` columns side by side, ``tile`` of which fit."""
    name = f"push{tile}.{reduction.stem}"
    if name not in module.shared:
        code = Code(module)
        width = "1" if tile == 1 else "%width"  # a loop of 1 is no loop once compiled
        chunks = code.emit("load i64, ptr %count")
        with carried(code, chunks) as entry:
            row = stack_row(code, reduction, "%stack", entry.place, tile)
            combine_rows(code, reduction, row, "%chunk", "%chunk", width)
        row = stack_row(code, reduction, "%stack", entry.place, tile)
        with code.loop(width, parallel=True, brief=True) as j:
            value = code.load(code.at("%chunk", j, reduction.dtype), reduction.dtype, parallel=True)
            code.store(value, code.at(row, j, reduction.dtype), reduction.dtype, parallel=True)
        code.do(f"store i64 {code.emit(f'add i64 {chunks}, 1')}, ptr %count")
        code.do("ret void")
        given = ", ".join(f"ptr noalias {p}" for p in ("%chunk", "%stack", "%count"))
        signature = f"internal void @{name}({given}, i64 %width)"
        module.share(name, code.function(signature, "#3"))
    return name


def total_function(module: Module, reduction: Reduction, tile: int = 1) -> str:
    """Return the function that leaves the reduction of all chunks in row 0 of the stack: ``(ptr
    stack, i64 count, i64 width)``; the identity where there were none."""
    name = f"total{tile}.{reduction.stem}"
    if name not in module.shared:
        code = Code(module)
        width = "1" if tile == 1 else "%width"
        none = code.emit("icmp eq i64 %count, 0")
        with code.when(none), code.loop(width, parallel=True, brief=True) as j:
            value = literal(reduction.identity, reduction.dtype)
            code.store(value, code.at("%stack", j, reduction.dtype), reduction.dtype, parallel=True)
        top = code.alloca("i64")
        code.do(f"store i64 {population(code, '%count')}, ptr {top}")
        with repeat(code) as proceed:
            level = code.emit(f"load i64, ptr {top}")
            more = code.emit(f"icmp ugt i64 {level}, 1")
            proceed(more)
            upper = code.emit(f"sub i64 {level}, 1")
            lower = code.emit(f"sub i64 {level}, 2")
            code.do(f"store i64 {upper}, ptr {top}")
            target = stack_row(code, reduction, "%stack", lower, tile)
            combine_rows(
                code,
                reduction,
                target,
                stack_row(code, reduction, "%stack", upper, tile),
                target,
                width,
            )
        code.do("ret void")
        signature = f"internal void @{name}(ptr noalias %stack, i64 %count, i64 %width)"
        module.share(name, code.function(signature, "#3"))
    return name


def combine_rows(code: Code, reduction: Reduction, a: str, b: str, target: str, width: str) -> None:
    """Combine ``width`` (at least 1) elements of two rows into a third, which may be one of the
    two."""
    with code.loop(width, parallel=True, brief=True) as j:
        left = code.load(code.at(a, j, reduction.dtype), reduction.dtype, parallel=True)
        right = code.load(code.at(b, j, reduction.dtype), reduction.dtype, parallel=True)
        value = reduction.combined(code, left, right)
        code.store(value, code.at(target, j, reduction.dtype), reduction.dtype, parallel=True)


def stack_row(code: Code, reduction: Reduction, stack: str, level: str, tile: int) -> str:
    """Return the address of a level of the counter's stack."""
    return code.at(stack, code.emit(f"mul i64 {level}, {tile}"), reduction.dtype)


def population(code: Code, value: str) -> str:
    """Return how many bits of an i64 are set."""
    code.module.share("llvm.ctpop.i64", "declare i64 @llvm.ctpop.i64(i64)")
    return code.emit(f"call i64 @llvm.ctpop.i64(i64 {value})")


class repeat:
    """Repeat what is added inside; the yielded call leaves the loop unless its condition holds."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def __enter__(self) -> repeat:
        self.head, self.leave = self.code.label("again"), self.code.label("after")
        self.code.do(f"br label %{self.head}")
        self.code.start(self.head)
        return self

    def __call__(self, condition: str) -> None:
        body = self.code.label("body")
        self.code.do(f"br i1 {condition}, label %{body}, label %{self.leave}")
        self.code.start(body)

    def __exit__(self, *_: object) -> None:
        self.code.do(f"br label %{self.head}")
        self.code.start(self.leave)


def rows_of(reduction: Reduction, count: int) -> str:
    """Return the type of an array of so many elements in memory."""
    return f"[{count} x {memory_type(reduction.dtype)}]"


@dataclass(slots=True)
class Entry:
    """Where an entry of the counter's stack is."""

    place: str = ""


@contextmanager
def carried(code: Code, chunks: str, level: int | str = 0) -> Iterator[Entry]:
    """Run what is added inside for every entry, of the stack of so many chunks, that a new one of
    2**level chunks is to be combined with, as the carries of a counter are; the newest first.
    Afterwards the yielded entry is where what came of it belongs."""
    entry = Entry()
    bits, top = code.alloca("i64"), code.alloca("i64")
    code.do(f"store i64 {code.emit(f'lshr i64 {chunks}, {level}')}, ptr {bits}")
    code.do(f"store i64 {population(code, chunks)}, ptr {top}")
    with repeat(code) as proceed:
        left = code.emit(f"load i64, ptr {bits}")
        proceed(code.emit(f"trunc i64 {left} to i1"))
        code.do(f"store i64 {code.emit(f'lshr i64 {left}, 1')}, ptr {bits}")
        entry.place = code.emit(f"sub i64 {code.emit(f'load i64, ptr {top}')}, 1")
        code.do(f"store i64 {entry.place}, ptr {top}")
        yield entry
    entry.place = code.emit(f"load i64, ptr {top}")


@contextmanager
def stacked(code: Code, chunks: str) -> Iterator[tuple[str, str]]:
    """Run what is added inside for every entry of the stack of so many chunks, the newest first;
    yield its place and how many elements it stands for."""
    bits, top, weight = (code.alloca("i64") for _ in range(3))
    code.do(f"store i64 {chunks}, ptr {bits}")
    code.do(f"store i64 {population(code, chunks)}, ptr {top}")
    code.do(f"store i64 {CHUNK}, ptr {weight}")
    with repeat(code) as proceed:
        left = code.emit(f"load i64, ptr {bits}")
        proceed(code.emit(f"icmp ne i64 {left}, 0"))
        elements = code.emit(f"load i64, ptr {weight}")
        code.do(f"store i64 {code.emit(f'lshr i64 {left}, 1')}, ptr {bits}")
        code.do(f"store i64 {code.emit(f'shl i64 {elements}, 1')}, ptr {weight}")
        with code.when(code.emit(f"trunc i64 {left} to i1")):
            place = code.emit(f"sub i64 {code.emit(f'load i64, ptr {top}')}, 1")
            code.do(f"store i64 {place}, ptr {top}")
            yield place, elements
