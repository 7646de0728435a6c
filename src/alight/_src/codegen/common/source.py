"""Kernels as source text: statements from the typed trees of ops, and what a language can print.

The text depends on a group's structure alone; sizes, strides and offsets are arguments of a launch,
counted in elements. A thread finds its element by dividing its number by the sizes of the nest's
axes, the innermost first. Kernels are printed in ``codegen.cuda`` and ``codegen.wgsl``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from alight._src.base.cache_registry import Cache, register
from alight._src.base.records import dataclass
from alight._src.codegen.common.dialects import Dialect
from alight._src.codegen.common.gaps import check, supports, unsupported
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.nest_choice import card_nest, unordered_gap
from alight._src.codegen.wgsl.wgsl_dialect import wgsl
from alight._src.ir.body import COMPLEX, FLOATS, Expr, width_of
from alight._src.ir.graph import GroupKind
from alight._src.ir.maths.coefficients import TABLES
from alight._src.ir.op_table import Kind, trees
from alight._src.ir.table_reduction import CHUNK, LANES
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight._src.codegen.cuda.slow_path import RareLaneTest
    from alight._src.ir.graph import Node
    from alight._src.ir.group import Group
    from alight._src.ir.op_table import Op

ENTRY = "entry"

# by the names that devices give
DIALECTS = {"wgsl": wgsl(fused=True, rearranges=False), "cuda": CUDA}


@dataclass(frozen=True, slots=True)
class Grid:
    """The schedule of a printed kernel: threads in a block (WGSL: workgroup), elements that a
    thread has side by side in memory, bits of an index.

    Of CUDA's rows and columns: ``team`` threads share a row, or one of few columns; ``held``: what
    they read stays in registers; ``turns`` runs a warp, or chunks a column, are reduced one after
    another, and with ``cut`` the others elsewhere; ``unroll`` steps of a run are written out.
    ``ahead`` steps are read before the first of them is computed; ``whole``: no run ends early,
    ``long``: few of many do; a run has so many ``steps`` of sixteen elements to a chunk. Registers
    leave room for so many ``resident`` blocks of a multiprocessor (0: the compiler decides); a
    launch has at most so many ``blocks`` (0: as many as there is work for). Of short reductions,
    addresses are multiples of so many bytes as are ``wide``; ``staged``: a warp stores records
    through shared memory. Of long ones so many steps as are ``ahead`` are on their way to shared
    memory ``depth`` times over. Inputs of one element that are ``by_value`` come with the
    launch."""

    block: int = 256
    elements: int = 1
    index_bits: int = 32
    team: int = 0
    held: bool = False
    cut: bool = False
    turns: int = 1
    unroll: int = 1
    ahead: int = 1
    whole: bool = False
    long: bool = False
    steps: int = CHUNK // LANES
    resident: int = 0
    blocks: int = 0
    wide: int = 1
    staged: bool = False
    depth: int = 0
    by_value: tuple[int, ...] = ()

    @property
    def bounds(self) -> str:
        """Return what CUDA C is told of a block."""
        return f"{self.block}, {self.resident}" if self.resident else f"{self.block}"

    def __str__(self) -> str:
        named = {"h": self.held, "c": self.cut, "w": self.whole, "l": self.long, "s": self.staged}
        flags = "".join(letter for letter, holds in named.items() if holds)
        return (
            f"b{self.block}e{self.elements}i{self.index_bits}"
            f"t{self.team}{flags}r{self.turns}u{self.unroll}a{self.ahead}s{self.steps}m{self.resident}n{self.blocks}w{self.wide}d{self.depth}"
            + "".join(f"v{place}" for place in self.by_value)
        )


# --- expressions ---
class Statements:
    """Statements under construction; every operation gets a name of its own."""

    def __init__(self, dialect: Dialect, outside: dict[str, str] | None = None) -> None:
        self.dialect = dialect
        self.lines: list[str] = []
        # functions and tables that stand before the kernel, by name, in the order of their use
        self.outside: dict[str, str] = {} if outside is None else outside
        self.indent = 1
        self.count = 0
        # a variable that is set where an element is not usual: what such ones need is left out
        self.seldom = ""
        # what else tells of such elements, asked later for many
        self.told: RareLaneTest | None = None

    def add(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Put what is added inside between braces after a head."""
        self.add(f"{head} {{")
        self.indent += 1
        yield
        self.indent -= 1
        self.add("}")

    def name(self, value: str, dtype: str, variable: bool = False) -> str:
        """Return a new name for a value."""
        name = f"v{self.count}"
        self.count += 1
        form = self.dialect.var if variable else self.dialect.let
        self.add(form.format(type=self.dialect.type_of(dtype), name=name, value=value))
        return name

    def evaluate(self, tree: Expr, operands: Sequence[str]) -> str:
        """Return the text of a tree's value; its operations are added."""
        done: dict[int, str] = {}
        sure: set[int] = set()  # conditions that hold where an element is usual
        instead: list[Expr] = []  # what stands for other trees: while it lives its id is its own

        def other(tree: Expr) -> Expr | None:
            """Return the tree that is printed in the place of one."""
            found = (of_magnitude(tree) or of_parity(tree)) if self.dialect.magnitudes else None
            if found is not None:
                instead.append(found)
            return found

        def value(tree: Expr) -> str:
            found = done.get(id(tree))
            if found is None:
                if tree.prim == "rarely":
                    found = rarely(tree)
                elif tree.prim == "where" and id(tree.args[0]) in sure:
                    found = value(tree.args[1])
                elif (better := other(tree)) is not None:
                    found = value(better)
                else:
                    found = self._one(tree, [value(a) for a in tree.args], operands)
                done[id(tree)] = found
            return found

        def holding(tree: Expr) -> list[Expr]:
            """Return what holds where a condition does, part by part."""
            sure.add(id(tree))
            near = other(tree) or tree
            return [p for a in near.args for p in holding(a)] if near.prim == "and" else [near]

        def rarely(tree: Expr) -> str:
            if self.seldom:
                told = tree.args[0]
                if told.prim == "not":
                    for part in holding(told.args[0]):
                        later = self.told.unless(part, value) if self.told else None
                        self.add(later or f"{self.seldom} |= !{value(part)};")
                else:
                    self.add(f"{self.seldom} |= {value(told)};")
                return value(tree.args[2])
            condition = value(tree.args[0])
            result = self.name(value(tree.args[2]), tree.dtype, variable=True)
            known = dict(done)
            with self.block(f"if ({condition})"):
                self.add(f"{result} = {value(tree.args[1])};")
            done.clear()  # what was computed inside is not known after it
            done.update(known)
            return result

        return value(tree)

    def _one(self, tree: Expr, args: list[str], operands: Sequence[str]) -> str:
        prim, dialect = tree.prim, self.dialect
        result = dialect.type_of(tree.dtype)
        if prim == "operand":
            position: int = tree.value
            return operands[position]
        if prim == "const":
            return dialect.literal(tree.value, tree.dtype)
        if prim in ("apart", "table"):
            text = self._apart(tree, args) if prim == "apart" else self._table(tree, args[0])
            return self.name(text, tree.dtype)
        source = tree.args[0].dtype
        if prim == "cast":
            text = dialect.cast(args[0], source, tree.dtype)
        elif self.told and f"{prim}:{source}" == "sqrt:float32":
            text = self.told.root(args[0])
        elif self.seldom and f"{prim}:{source}" in dialect.usual:
            text = dialect.usual[f"{prim}:{source}"].format(*args, seldom=self.seldom)
        elif prim == "libm":
            text = f"{dialect.library(tree.value, source)}({', '.join(args)})"
        else:
            wide = "unsigned long long" if width_of(source) == 64 else "unsigned int"
            text = dialect.form(prim, source).format(*args, T=result, W=wide)
        return text if text in args else self.name(text, tree.dtype)

    def _apart(self, tree: Expr, args: list[str]) -> str:
        """Return a call of a function of its own, which is what is seldom needed."""
        name, (body,) = tree.value
        dialect, name = self.dialect, f"{name}_{tree.dtype}"
        if name not in self.outside:
            inner = Statements(dialect, self.outside)
            names = "xyz"[: len(args)]
            result = inner.evaluate(body, names)
            parameters = [
                dialect.parameter.format(type=dialect.type_of(a.dtype), name=n)
                for n, a in zip(names, tree.args, strict=True)
            ]
            head = dialect.function_head.format(
                type=dialect.type_of(tree.dtype), name=name, parameters=", ".join(parameters)
            )
            inner.add(f"return {result};")
            self.outside[name] = "\n".join((f"{head} {{", *inner.lines, "}"))
        return f"{name}({', '.join(args)})"

    def _table(self, tree: Expr, index: str) -> str:
        dialect, name = self.dialect, f"table_{tree.value}"
        if name not in self.outside:
            values = TABLES[tree.value][1]
            self.outside[name] = dialect.table.format(
                type=dialect.type_of(tree.dtype),
                name=name,
                count=len(values),
                values=", ".join(dialect.literal(value, tree.dtype) for value in values),
            )
        return f"{name}[{index}]"


@cache
def of_magnitude(tree: Expr) -> Expr | None:
    """Return a comparison of the bits of a float32's magnitude with a number's, which bodies do as
    a comparison of a NaN would raise a flag, as one of the magnitude; None for any other tree.

    Bits less one compare as those where a zero is beyond all others."""
    if tree.prim not in ("lt", "le"):
        return None
    a, b = tree.args
    less_one = a.prim == b.prim == "sub" and all(t.args[1].value == 1 for t in (a, b))
    signed = a.prim == b.prim == "cast" and a.dtype == b.dtype == "int32"
    if not less_one and not signed:
        return None
    a, b = a.args[0], b.args[0]
    if not a.prim == b.prim == "bitcast" or a.args[0].prim != "fabs" or b.args[0].prim != "const":
        return None
    magnitude, limit = a.args[0], b.args[0]
    if magnitude.dtype != "float32" or not limit.value > 0:
        return None
    near = Expr(tree.prim, (magnitude, limit), "bool")
    if not less_one:
        return near
    zero = Expr("const", (), "float32", 0.0)
    return Expr("and", (near, Expr("ne", (magnitude.args[0], zero), "bool")), "bool")


def of_parity(tree: Expr) -> Expr | None:
    """Return the question whether an uint32 is odd as one of a float32 that has its lowest two bits
    in front: one comparison, where a bit's needs an operation more, after a shift that sine and
    cosine have use for anyway. None for any other tree."""
    if tree.prim != "ne" or tree.args[0].prim != "and" or tree.args[0].dtype != "uint32":
        return None
    (whole, one), zero = tree.args[0].args, tree.args[1]
    if not one.prim == zero.prim == "const" or (one.value, zero.value) != (1, 0):
        return None
    high = Expr("shl", (whole, Expr("const", (), "uint32", 30)), "uint32")
    front = Expr("fabs", (Expr("bitcast", (high,), "float32"),), "float32")
    return Expr("ne", (front, Expr("const", (), "float32", 0.0)), "bool")


def node_tree(group: Group, node: Node) -> Expr:
    """Return the typed tree of an elementwise node's value."""
    graph = group.graph
    found = trees(node.op, [graph.layouts[i].dtype for i in node.operands], node.layout.dtype)
    assert found is not None  # gaps.check has seen to it
    tree: Expr = found[node.attr("output", 0)]
    return tree


@cache
def gap(dialect: Dialect, op: Op, dtypes: tuple[Any, ...]) -> str | None:
    """Return why a dialect cannot print an op on these dtypes (operands, then the result), or
    None."""
    names = [dtype.name for dtype in dtypes]
    if op.kind is not Kind.ELEMENTWISE:
        if dialect is CUDA:
            return _unprinted(op, names[-1]) or supports(op, dtypes)
        return f"{op.name}: {dialect.name} is printed for elementwise ops only"
    try:
        found = trees(op, dtypes[: op.nin], dtypes[-1])
        if found is None:
            return f"{op.name} {names[0]}: no body for this dtype"
        for dtype in names:
            dialect.type_of(dtype)
        for tree in found:
            Statements(dialect).evaluate(tree, "xyz")
    except Unsupported as reason:
        return f"{op.name} {names[0]}: {reason}"
    if op.name in dialect.gaps:
        return f"{op.name} {names[0]}: {dialect.gaps[op.name]}"
    return None


register(Cache.OPS, gap.cache_clear)


def _unprinted(op: Op, result: str) -> str | None:
    """Return why a reduction that is generated for the host is not printed, or None."""
    if op.kind is Kind.REDUCTION and result in COMPLEX:
        return f"{op.name} {result}: reductions of complex numbers are not printed"
    if op.kind is Kind.REDUCTION and op.combine == "multiply" and result in FLOATS:
        return f"{op.name} {result}: products in NumPy's order are not printed"
    return None


def group_gap(dialect: str, group: Group) -> str | None:
    """Return why a dialect, by its name, has no form for a group of ops that it has, or None."""
    if dialect != "cuda":
        return None
    if reason := unsupported(group):
        return reason
    if group.kind is GroupKind.ROW_COLUMN:
        return "rows and columns are not reduced in one visit there"
    for node in group.graph.nodes:
        if reason := _unprinted(node.op, node.layout.dtype.name):
            return reason
    if group.kind is GroupKind.ROWWISE:
        shape = card_nest(group)
        if not shape.unrolled and (shape.columns or len(shape.dims) - shape.kept != 1):
            return "the rows are not one run in memory each"
    if group.kind is GroupKind.SCAN:
        return unordered_gap(group)
    return None


def values(code: Statements, group: Group, loaded: Sequence[str]) -> list[str]:
    """Return the names of a group's outputs; its operations are added."""
    known = list(loaded)
    for node in group.graph.nodes:
        known.append(code.evaluate(node_tree(group, node), [known[i] for i in node.operands]))
    return [known[number] for number in group.graph.outputs]


def checked(group: Group) -> list[str]:
    """Return the dtypes of a group's inputs and outputs; raise Unsupported where it has no printed
    form."""
    if group.kind is not GroupKind.LOOP:
        raise Unsupported(f"{group.kind} groups are not printed yet, loops are")
    check(group)
    return [layout.dtype.name for layout in group.graph.operand_layouts]
