"""Work that calibration never saw: groups of odd, prime, skinny, strided and broadcast shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from alight._core import Layout, make_layout
from alight._src.codegen.common.gaps import unsupported
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan.cost import Profile, estimate
from alight.device import Device

__all__ = ["CLASSES", "Case", "draw"]

DTYPES = ("float32", "float64", "int64", "complex128")
# Of one array: four of the largest are still far from the memory of a small machine. Rows of two
# that lie seven elements apart span 4.5 times what they hold.
MOST_BYTES, MOST_SPAN = 1 << 25, 5
FEWEST, MOST = 16, 1 << 22

_OPS = {
    "f": (
        "add", "subtract", "multiply", "divide", "sqrt", "square", "absolute", "maximum", "minimum",
        "negative", "floor", "copysign", "exp", "log", "sin", "cos", "tanh", "arctan", "log1p",
        "expm1", "power", "arctan2", "hypot", "less", "where", "cast", "isnan",
    ),
    "i": (
        "add", "subtract", "multiply", "maximum", "minimum", "absolute", "negative", "bitwise_and",
        "left_shift", "less", "where", "sign", "floor_divide", "cast", "square",
    ),
    "c": (
        "add", "subtract", "multiply", "divide", "negative", "conjugate", "square", "absolute",
        "equal", "where",
    ),
}  # fmt: skip
# Of a group of many: what a program has in the middle, closed in its dtype.
_INNER = {
    # no exponentials of exponentials: what overflows takes its time elsewhere
    "f": (
        "add", "subtract", "multiply", "maximum", "minimum", "sin", "cos", "tanh", "arctan",
        "absolute", "negative", "copysign",
    ),
    "i": ("add", "subtract", "multiply", "maximum", "bitwise_and", "absolute", "negative"),
    "c": ("add", "subtract", "multiply", "conjugate", "negative", "square"),
}  # fmt: skip
# Not any and all, which end at the first element that decides: no shape tells when.
_REDUCTIONS = {
    "f": ("sum", "prod", "min", "max", "mean", "var", "argmax"),
    "i": ("sum", "prod", "min", "max", "argmin"),
    "c": ("sum", "prod", "mean"),
}
_LAYOUTS = ("whole", "strided", "reversed", "columns", "row", "column", "transposed", "scalar")


@dataclass(frozen=True, slots=True)
class Case:
    """One group and who runs it; ``label`` says how to make it again."""

    kind: str
    implementation: str
    group: Group
    label: str
    near: bool  # within a factor of four of where two implementations cross


def _layout(dtype: np.dtype[Any], shape: tuple[int, ...], how: str) -> Layout:
    """Return the layout of an operand that broadcasts to this shape."""
    size = dtype.itemsize
    strides = [size * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if how == "strided":
        strides = [3 * step for step in strides]
    elif how == "reversed":
        strides[-1] = -size
    elif how == "columns" and len(shape) == 2:
        strides[0] = size * (shape[1] + 7)
    elif how == "transposed" and len(shape) == 2:
        strides = [size, size * shape[0]]
    elif how == "row" and len(shape) == 2:
        shape, strides = (1, shape[1]), [size * shape[1], size]
    elif how == "column" and len(shape) == 2:
        shape, strides = (shape[0], 1), [size, size]
    elif how == "scalar":
        shape, strides = (), []
    return make_layout(dtype, shape, tuple(strides))


def _shape(random: Random, n: int) -> tuple[int, ...]:
    """Return a shape of about n elements: a vector, a matrix, or a skinny one."""
    n |= 1
    form = random.choice(("vector", "vector", "matrix", "tall", "wide"))
    if form == "vector":
        return (_prime(n),)
    rows = {
        "matrix": max(1, round(math.sqrt(n) * random.uniform(0.3, 3))),
        "tall": max(1, n // random.choice((2, 3, 5, 7))),
        "wide": random.choice((2, 3, 5, 7)),
    }[form]
    return rows, max(1, n // rows)


def _prime(n: int) -> int:
    """Return the least prime from n on."""
    while any(n % d == 0 for d in range(2, math.isqrt(n) + 1)):
        n += 1
    return n


def _node(name: str, operands: tuple[int, ...], layouts: list[Layout], out: Layout) -> Node:
    attrs: tuple[tuple[str, Any], ...] = ()
    dtypes = [layouts[i].dtype for i in operands]
    if name == "cast":
        result = {"f": np.dtype("int64"), "i": np.dtype("float64")}[dtypes[0].kind]
        attrs = (("dtype", result),)
    elif name == "where":
        result = dtypes[1]
    else:
        result = OPS[name].reference.resolve_dtypes((*dtypes, *[None] * OPS[name].nout))[-1]
    return Node(OPS[name], operands, attrs, make_layout(result, out.shape, _like(out, result)))


def _like(layout: Layout, dtype: np.dtype[Any]) -> tuple[int, ...]:
    return tuple(s // layout.itemsize * dtype.itemsize for s in layout.strides)


def _elementwise(random: Random, dtype: str, shape: tuple[int, ...]) -> Group:
    kind = np.dtype(dtype)
    name = random.choice(_OPS[kind.kind])
    how = [random.choice(_LAYOUTS) if random.random() < 0.6 else "whole"]
    count = OPS[name].nin
    how += [random.choice(("whole", how[0], "scalar", "row"))] * (count - 1)
    if "transposed" in how:
        how = ["transposed"] * count
    elif all(h in ("row", "column", "scalar") for h in how):
        how[0] = "whole"
    dtypes = [kind] * count
    if name == "where":
        dtypes[0] = np.dtype(bool)
    if name == "left_shift":
        how[1:] = ["scalar"]
    inputs = [_layout(d, shape, h) for d, h in zip(dtypes, how, strict=True)]
    out = _layout(kind, shape, "transposed" if "transposed" in how else "whole")
    node = _node(name, tuple(range(count)), inputs, out)
    return Group(GroupKind.LOOP, Graph(tuple(inputs), (node,), (count,)), shape)


def _reduction(random: Random, dtype: str, shape: tuple[int, ...]) -> Group:
    kind = np.dtype(dtype)
    name = random.choice(_REDUCTIONS[kind.kind])
    axes = random.choice([tuple(range(len(shape))), (0,), (len(shape) - 1,)])
    how = random.choice(("whole", "whole", "transposed", "columns"))
    if how == "transposed" and len(shape) != 2:
        how = "whole"
    return _reduced(name, [_layout(kind, shape, how)], [], axes, shape)


def _reduced(
    name: str,
    inputs: list[Layout],
    nodes: list[Node],
    axes: tuple[int, ...],
    shape: tuple[int, ...],
) -> Group:
    """Return a group that ends in a reduction of its last value."""
    last = len(inputs) + len(nodes) - 1
    before = (nodes[-1].layout if nodes else inputs[-1]).dtype
    attrs: Any = (("axis", axes),)
    if name.startswith("arg"):
        axes = axes if len(axes) == 1 else tuple(range(len(shape)))
        attrs = (("axis", axes[0] if len(axes) == 1 else None),)
    result = np.asarray(OPS[name].reference(np.ones(2, before))).dtype
    kept = tuple(length for i, length in enumerate(shape) if i not in axes)
    node = Node(OPS[name], (last,), attrs, make_layout(result, kept))
    graph = Graph(tuple(inputs), (*nodes, node), (last + 1,))
    return Group(GroupKind.REDUCE, graph, shape)


def _fused(random: Random, dtype: str, shape: tuple[int, ...]) -> Group:
    kind = np.dtype(dtype)
    count = random.randint(1, 20)
    whole = _layout(kind, shape, "whole")
    inputs = [whole]
    for _ in range(random.randint(0, 3)):
        inputs.append(_layout(kind, shape, random.choice((*["whole"] * 4, *_LAYOUTS[1:]))))
    nodes: list[Node] = []
    layouts = list(inputs)
    unused = list(range(len(inputs)))
    for _ in range(count):
        name = random.choice(_INNER[kind.kind])
        operands: list[int] = []
        for place in range(OPS[name].nin):  # what nobody reads yet first: all of it is one value
            pick = unused.pop(0) if unused and place == 0 else random.randrange(len(layouts))
            if place and unused and random.random() < 0.6:
                pick = unused.pop(0)
            operands.append(pick)
        node = _node(name, tuple(operands), layouts, whole)
        # of a value that is subtracted from itself a compiler makes a number
        if node.layout.dtype != kind or (name == "subtract" and len(set(operands)) == 1):
            continue
        layouts.append(node.layout)
        nodes.append(node)
        unused.append(len(layouts) - 1)
    if not nodes or (kind.kind == "i" and not _wanted(random, inputs, nodes)):
        return _fused(random, dtype, shape)
    return _pruned(random, inputs, nodes, shape, kind)


def _wanted(random: Random, inputs: list[Layout], nodes: list[Node]) -> bool:
    """Tell whether the last value depends on each input that it is made of. Of integers a compiler
    finds that | |x| | - |x| is nothing, and reads none of them: no shape tells so."""
    generator = np.random.default_rng(random.randrange(1 << 32))
    arrays = [generator.integers(-99, 99, 64) for _ in inputs]

    def last(arrays: list[Any]) -> Any:
        values = list(arrays)
        for node in nodes:
            values.append(node.op.reference(*[values[i] for i in node.operands]))
        return values[-1]

    needed = {len(inputs) + len(nodes) - 1}
    for number in range(len(inputs) + len(nodes) - 1, len(inputs) - 1, -1):
        if number in needed:
            needed.update(nodes[number - len(inputs)].operands)
    base = last(arrays)
    for i in needed.intersection(range(len(inputs))):
        other = [*arrays[:i], generator.integers(-99, 99, 64), *arrays[i + 1 :]]
        if np.array_equal(last(other), base):
            return False
    return True


def _pruned(
    random: Random, inputs: list[Layout], nodes: list[Node], shape: tuple[int, ...], kind: Any
) -> Group:
    """Return the group of what the last node needs, at times reduced at its end."""
    count = len(inputs)
    wanted = {count + len(nodes) - 1}
    for number in range(count + len(nodes) - 1, count - 1, -1):
        if number in wanted:
            wanted.update(nodes[number - count].operands)
    number_of = {old: new for new, old in enumerate(sorted(wanted))}
    kept_inputs = [inputs[i] for i in sorted(wanted) if i < count]
    kept = [
        Node(n.op, tuple(number_of[o] for o in n.operands), n.attrs, n.layout)
        for i, n in enumerate(nodes, count)
        if i in wanted
    ]
    if random.random() < 0.3:
        axes = random.choice([tuple(range(len(shape))), (len(shape) - 1,)])
        # nor products of what is no longer typical: where they get denormal no shape tells
        reductions = [f for f in _REDUCTIONS[kind.kind][:4] if f != "prod" or kind.kind == "i"]
        return _reduced(random.choice(reductions), kept_inputs, kept, axes, shape)
    last = len(kept_inputs) + len(kept) - 1
    return Group(GroupKind.LOOP, Graph(tuple(kept_inputs), tuple(kept), (last,)), shape)


def _product(random: Random, dtype: str) -> Group:
    most = 29.0 if dtype.startswith("f") else 24.0
    while True:
        m, k, n = (round(2 ** random.uniform(3, 11)) | 1 for _ in range(3))
        if m * k * n < 2**most:
            break
    kind = np.dtype(dtype)
    first, second, out = (make_layout(kind, s) for s in ((m, k), (k, n), (m, n)))
    node = Node(OPS["matmul"], (0, 1), (), out)
    return Group(GroupKind.LIBRARY, Graph((first, second), (node,), (2,)), (m, n))


Make = Callable[[int], Group]


def _crossover(make: Make, device: Device, profile: Profile) -> int | None:
    """Return about how many elements two implementations are predicted to take as long for."""
    before = None
    for exponent in range(5, 22):
        group = make(1 << exponent)
        found = [estimate(group, device, name, profile) for name in ("numpy", "generated")]
        if found[0] is None or found[1] is None:
            return None
        now = found[1].seconds < found[0].seconds
        if before is not None and now != before:
            return 1 << exponent
        before = now
    return None


_MAKERS = {"elementwise": _elementwise, "reduction": _reduction, "fused": _fused}
CLASSES = (*_MAKERS, "matmul")


def draw(seed: int, count: int, device: Device, profile: Profile) -> Iterator[Case]:
    """Yield so many groups of each class for every implementation that can run them.

    Every second one has a size within a factor of four of where NumPy's and generated code's
    predictions cross, the others any.
    """
    for kind, maker in _MAKERS.items():
        for number in range(count):
            dtype = DTYPES[number % len(DTYPES)]
            own = f"{seed}/{kind}/{number}"

            def make(n: int, own: str = own, dtype: str = dtype, maker: Any = maker) -> Group:
                random = Random(own)
                n = min(n, MOST_BYTES // np.dtype(dtype).itemsize // MOST_SPAN)
                group: Group = maker(random, dtype, _shape(random, n))
                return group

            random = Random(f"{own}/size")
            crossing = _crossover(make, device, profile) if number % 8 >= 4 else None
            if crossing is None:
                n = round(2 ** random.uniform(math.log2(FEWEST), math.log2(MOST)))
            else:
                n = round(crossing * 4 ** random.uniform(-1, 1))
            group = make(max(2, n))
            yield Case(kind, "numpy", group, own, crossing is not None)
            if unsupported(group) is None:
                yield Case(kind, "generated", group, own, crossing is not None)
    for number in range(count):
        own = f"{seed}/matmul/{number}"
        dtype = ("float64", "float32", "float64", "float32", "int64", "complex128")[number % 6]
        yield Case("matmul", "library", _product(Random(own), dtype), own, False)
