"""What a profile's predictions are tried on: groups of any op, dtype, shape and layout, that no
curve has seen. Their errors are how sure the profile is of itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import Layout, make_layout
from alight._src.ir.graph import Attrs, Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import probes
from alight._src.measure.sizes import compute_elements, dtypes_of, most_bytes

if TYPE_CHECKING:
    from alight.device import Device

__all__ = ["ELEMENTWISE", "FUSED", "MATMUL", "REDUCE", "unseen"]

# Classes of what is tried: each has a spread of its own.
ELEMENTWISE, REDUCE, FUSED, MATMUL = "elementwise", "reduce", "fused", "matmul"

# What programs compute and reduction, by the kind of their numbers; nothing that overflows or gets
# denormal where much of it comes together, since that takes its time elsewhere.
_OPS = {
    "f": (
        "add", "subtract", "multiply", "divide", "maximum", "negative", "absolute", "sqrt", "exp",
        "log", "sin", "tanh", "power", "less", "where", "cast",
    ),
    "i": ("add", "subtract", "multiply", "maximum", "negative", "less", "where", "floor_divide"),
    "c": ("add", "subtract", "multiply", "divide", "negative", "absolute"),
}  # fmt: skip
_INNER = {
    "f": ("add", "multiply", "subtract", "maximum", "absolute", "negative", "sin", "tanh"),
    "i": ("add", "multiply", "subtract", "maximum", "absolute", "negative"),
    "c": ("add", "multiply", "subtract", "negative"),
}
_REDUCTIONS = {
    "f": ("sum", "max", "mean", "min", "var", "argmax"),
    "i": ("sum", "max", "min", "argmin"),
    "c": ("sum", "mean"),
}
# How an operand lies: half of them as they were made.
_LAYOUTS = ("apart", "back", "columns", "row", "column", "turned", "single")
# Elements, between which all sizes are as likely; rows that are few or short are so many.
_FEWEST, _MOST = 16, 1 << 22
_SKINNY = (2, 3, 5, 7)
# Sides of products, in powers of two, and of their multiplications: a library does 2**22 of them in
# about a millisecond.
_SIDES, _MOST_MULTIPLICATIONS = (3.0, 11.0), 22.0
_TOGETHER = 4  # products
# Ops of a group, and further operands.
_MOST_OPS, _MOST_OPERANDS = 20, 3
# Of an array in which every third element is taken, and rows that are seven elements apart.
_SPANNED = 5


def unseen(device: Device) -> Iterator[tuple[str, str, Group]]:
    """Yield class, implementation and group, every class of every implementation in turn."""
    random = Random(2)  # the same for every profile, so that two can be compared
    names = device.support.implementations
    libraries = [name for name in names if name != "generated"]
    dtypes = dtypes_of(device)
    floats = [dtype for dtype in dtypes if np.dtype(dtype).kind == "f"] or dtypes[:1]
    most = max(_MOST, compute_elements(device))
    for number in range(_TRIED):
        # golden steps: however few are reached, they are spread over all sizes
        share = (number * _STEP) % 1.0
        n = round(_FEWEST * (most / _FEWEST) ** share)
        dtype = dtypes[number % len(dtypes)]
        n = max(1, min(n, most_bytes(device) // np.dtype(dtype).itemsize // _SPANNED))
        for kind, make in ((ELEMENTWISE, _loop), (REDUCE, _reduction), (FUSED, _several)):
            # what has nothing to compile is tried twice as often
            for tried in (names, libraries):
                group = make(random, dtype, _shape(random, n))
                for name in tried:
                    yield kind, name, group
        # together: a library's threads spin on for so long that all else would wait for each
        for name in libraries * (_TOGETHER if number % _TOGETHER == 0 else 0):
            sides = [random.uniform(*_SIDES) for _ in range(3)]
            # what has more multiplications than any that was measured is another question
            less = max(0.0, sum(sides) - _MOST_MULTIPLICATIONS) / 3
            m, k, columns = [round(2 ** max(side - less, _SIDES[0])) for side in sides]
            kind = random.choice((*floats, *floats, *dtypes))
            yield MATMUL, name, probes.product(kind, m, k, columns)


# More than there is ever time for.
_TRIED = 48
_STEP = (math.sqrt(5) - 1) / 2


def _shape(random: Random, n: int) -> tuple[int, ...]:
    """Return a shape of about so many elements: a vector, or a matrix of any form."""
    form = random.randrange(5)
    if form < 2:
        return (n | 1,)
    few = random.choice(_SKINNY)
    rows = (max(1, n // few), few, max(1, round(math.sqrt(n) * random.uniform(0.3, 3))))[form - 2]
    return rows, max(1, n // rows)


def _operand(dtype: str, shape: tuple[int, ...], how: str) -> Layout:
    """Return the layout of an operand that broadcasts to a shape."""
    kind = np.dtype(dtype)
    size, flat = kind.itemsize, len(shape) == 1
    steps = [size * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if how == "apart":
        steps = [3 * step for step in steps]
    elif how == "back":
        steps[-1] = -size
    elif how == "columns" and not flat:
        steps[0] = size * (shape[1] + 7)
    elif how == "turned" and not flat:
        steps = [size, size * shape[0]]
    elif how == "row" and not flat:
        shape = (1, shape[1])
    elif how == "column" and not flat:
        shape, steps = (shape[0], 1), [size, size]
    elif how == "single":
        shape, steps = (), []
    return make_layout(kind, shape, tuple(steps))


def _loop(random: Random, dtype: str, shape: tuple[int, ...]) -> Group:
    """Return a group of one op, of operands that lie in any way."""
    op = OPS[random.choice(_OPS[np.dtype(dtype).kind])]
    first = random.choice(_LAYOUTS[:3]) if random.random() < 0.4 else "whole"
    ways = [first, *random.choices(("whole", first, "single", "row"), k=op.nin - 1)]
    if random.random() < 0.1:
        ways = ["turned"] * op.nin
    dtypes = [dtype] * op.nin
    attrs: Attrs = ()
    if op.name == "where":
        dtypes[0] = "bool"
    inputs = tuple(_operand(d, shape, how) for d, how in zip(dtypes, ways, strict=True))
    if op.name == "cast":
        attrs = (("dtype", np.dtype("int64")),)
    return Group(
        GroupKind.LOOP, Graph(inputs, (_node(op.name, inputs, shape, attrs),), (op.nin,)), shape
    )


def _node(
    name: str,
    layouts: Sequence[Layout],
    shape: tuple[int, ...],
    attrs: Attrs = (),
    operands: Sequence[int] | None = None,
) -> Node:
    """Return a node of an op on these, whole, in the dtype that NumPy gives it; if they are laid
    out the other way round all of them, so is it."""
    op = OPS[name]
    operands = range(op.nin) if operands is None else operands
    dtypes = [layouts[i].dtype for i in operands]
    if name == "cast":
        result = dict(attrs)["dtype"]
    elif name == "where":
        result = dtypes[1]
    else:
        reference: Any = op.reference
        result = reference.resolve_dtypes((*dtypes, *[None] * op.nout))[-1]
    turned = all(
        layouts[i].ndim == 2 and layouts[i].strides[0] < layouts[i].strides[1] for i in operands
    )
    return Node(
        op, tuple(operands), attrs, _operand(result.name, shape, "turned" if turned else "whole")
    )


def _reduction(random: Random, dtype: str, shape: tuple[int, ...]) -> Group:
    """Return a group of one reduction, along any axis or all."""
    name = random.choice(_REDUCTIONS[np.dtype(dtype).kind])
    how = random.choice(("whole", "whole", "turned", "columns"))
    return _reduced(random, name, [_operand(dtype, shape, how)], [], shape)


def _reduced(
    random: Random, name: str, inputs: list[Layout], nodes: list[Node], shape: tuple[int, ...]
) -> Group:
    """Return a group that ends in a reduction of its last value."""
    last = len(inputs) + len(nodes) - 1
    ndim = len(shape)
    axes = random.choice((tuple(range(ndim)), (0,), (ndim - 1,)))
    before = (nodes[-1].layout if nodes else inputs[-1]).dtype
    attrs: Attrs = (("axis", axes),)
    if name.startswith("arg"):
        attrs = (("axis", axes[0] if len(axes) == 1 else None),)
    with np.errstate(all="ignore"):
        result = np.asarray(OPS[name].reference(np.ones(2, before))).dtype
    kept = tuple(length for i, length in enumerate(shape) if i not in axes)
    node = Node(OPS[name], (last,), attrs, make_layout(result, kept))
    return Group(GroupKind.REDUCE, Graph(tuple(inputs), (*nodes, node), (last + 1,)), shape)


def _several(random: Random, dtype: str, shape: tuple[int, ...]) -> Group:
    """Return a group of several ops, each on the one before and any other value, at times reduced
    at its end."""
    inputs = [_operand(dtype, shape, "whole")]
    for _ in range(random.randint(0, _MOST_OPERANDS)):
        inputs.append(_operand(dtype, shape, random.choice(("whole", "whole", *_LAYOUTS[:4]))))
    layouts, nodes = list(inputs), list[Node]()
    others = itertools.chain(
        range(1, len(inputs)), iter(lambda: random.randrange(len(layouts)), -1)
    )
    kind = np.dtype(dtype).kind
    for _ in range(max(random.randint(1, _MOST_OPS), len(inputs))):
        op = OPS[random.choice(_INNER[kind] if len(nodes) >= len(inputs) - 1 else _INNER[kind][:2])]
        last = len(layouts) - 1 if nodes else 0
        operands = (last, next(others))[: op.nin]
        node = _node(op.name, layouts, shape, (), operands)
        if node.layout.dtype != layouts[0].dtype or (
            op.name == "subtract" and len(set(operands)) == 1
        ):
            continue  # of what is subtracted from itself a compiler makes a number
        nodes.append(node)
        layouts.append(node.layout)
    if not nodes:
        return _several(random, dtype, shape)
    if random.random() < 0.3:
        return _reduced(random, random.choice(_REDUCTIONS[kind][:2]), inputs, nodes, shape)
    last = len(inputs) + len(nodes) - 1
    return Group(GroupKind.LOOP, Graph(tuple(inputs), tuple(nodes), (last,)), shape)
