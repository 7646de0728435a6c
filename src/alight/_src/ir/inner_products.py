"""Products of matrices and vectors: library calls that are reductions of products, too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._core import make_layout
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import OPS

if TYPE_CHECKING:
    from alight._core import Layout

__all__ = ["Sides", "as_reduction", "sides_of"]

# Of real floats and integers all of these add up products of two elements each; NumPy multiplies
# half floats as single ones.
_NAMES = frozenset(
    (
        *("dot", "inner", "vdot", "vecdot", "matmul", "matvec", "vecmat"),
        *("tensordot", "einsum"),
    )
)
_DTYPES = frozenset("fdbBhHiIlLqQ")
# A name for each axis of the first operand, of the second and of the result: those that the result
# lacks are summed over.
_Axes = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


class Sides(NamedTuple):
    """``stacked`` products of an (m, k) by a (k, n) matrix; ``along``: which of the two have the
    axis that is summed over nearest in memory."""

    stacked: int
    m: int
    k: int
    n: int
    along: tuple[bool, bool]


def sides_of(graph: Graph, shape: tuple[int, ...]) -> Sides | None:
    """Return the sides of a product of matrices, given as sums of products over a shape; None where
    one of the two is a vector."""
    views = [graph.layouts[i] for i in graph.nodes[0].operands]
    ndim, kept = len(shape), graph.nodes[-1].layout.ndim
    lengths = {"both": 1, "m": 1, "n": 1}
    nearest: list[tuple[float, bool]] = [(math.inf, True)] * 2
    for axis, length in enumerate(shape):
        steps = [abs(view.strides[axis]) * (view.shape[axis] > 1) for view in views]
        if axis < kept:
            name = "both" if all(steps) else "m" if steps[0] else "n"
            lengths[name] *= length
        for own, step in enumerate(steps):
            if step:
                nearest[own] = min(nearest[own], (step, axis >= kept))
    k = math.prod(shape[kept:ndim])
    if lengths["m"] == 1 or lengths["n"] == 1:
        return None
    along = nearest[0][1], nearest[1][1]
    return Sides(lengths["both"], lengths["m"], k, lengths["n"], along)


def as_reduction(graph: Graph) -> tuple[Graph, tuple[int, ...]] | None:
    """Return the sums of products that a product of two arrays of one dtype, floats or integers,
    is, and the shape that they go over; None of any other graph.

    The error of floats is that of the sum and half an ulp of each product, which is less than BLAS
    promises; the bits may be others.
    """
    node = graph.nodes[0]
    if node.op.name not in _NAMES:
        return None
    dtype = node.layout.dtype
    operands = [graph.layouts[i] for i in node.operands]
    if dtype.char not in _DTYPES or {dtype} != {layout.dtype for layout in operands}:
        return None
    if len(operands) != 2 or not all(layout.size for layout in operands):
        return None
    axes = _axes(node, *(layout.ndim for layout in operands))
    if axes is None:
        return None
    *names, kept = axes
    lengths: dict[Any, int] = {}
    for own, layout in zip(names, operands, strict=True):
        for name, n in zip(own, layout.shape, strict=True):
            lengths[name] = n if lengths.get(name, 1) == 1 else lengths[name]
    summed = [name for name in names[0] if name in names[1] and name not in kept]
    every = (*kept, *summed)
    if not summed or len(every) != len(lengths):
        return None
    views = [_spread(*pair, every) for pair in zip(operands, names, strict=True)]
    inputs = dict(zip(node.operands, views, strict=True))
    if tuple([lengths[name] for name in kept]) != node.layout.shape or (
        [inputs[i] for i in node.operands] != views
    ):
        return None  # one array in two views would be two inputs
    shape = tuple([lengths[name] for name in every])
    count = len(graph.inputs)
    along = tuple(range(len(kept), len(every)))
    nodes = (
        Node(OPS["multiply"], node.operands, (), make_layout(dtype, shape)),
        Node(OPS["sum"], (count,), (("axis", along), ("keepdims", False)), node.layout),
    )
    return Graph(tuple([inputs[i] for i in range(count)]), nodes, (count + 1,)), shape


def _spread(layout: Layout, own: tuple[Any, ...], every: tuple[Any, ...]) -> Layout:
    """Return a layout that has an axis for each of ``every``, of length one where it has none."""
    place = {name: i for i, name in enumerate(own)}
    shape = tuple([layout.shape[place[name]] if name in place else 1 for name in every])
    steps = tuple([layout.strides[place[name]] if name in place else 0 for name in every])
    return make_layout(layout.dtype, shape, steps)


def _axes(node: Node, first: int, second: int) -> _Axes | None:
    """Return the axes of a product of arrays of so many axes; None where it has none to name."""
    name, attrs = node.op.name, dict(node.attrs)
    if name == "einsum":
        return _subscripts(attrs, first, second)
    if not first or not second:
        return None
    if name == "tensordot":
        return _tensordot(attrs, first, second)
    if attrs or (name == "vdot" and (first, second) != (1, 1)):
        return None
    if name in ("dot", "inner"):
        at = second - 1 if name == "inner" or second == 1 else second - 2
        return _paired(first, second, (first - 1,), (at,))
    # the last axes are a matrix's or a vector's, those before are stacked from the right
    rows = name == "matvec" or (name == "matmul" and first > 1)
    columns = name == "vecmat" or (name == "matmul" and second > 1)
    if first < 1 + rows or second < 1 + columns:
        return None
    stacks = first - 1 - rows, second - 1 - columns
    left, right, both = (tuple(range(-n, 0)) for n in (*stacks, max(stacks)))
    m, n = (("m",) if rows else ()), (("n",) if columns else ())
    return (*left, *m, "k"), (*right, "k", *n), (*both, *m, *n)


def _paired(first: int, second: int, ours: tuple[int, ...], theirs: tuple[int, ...]) -> _Axes:
    """Return the axes of a product that sums over pairs of axes, and has the others in order."""
    left = tuple([("k", ours.index(i)) if i in ours else ("m", i) for i in range(first)])
    right = tuple([("k", theirs.index(i)) if i in theirs else ("n", i) for i in range(second)])
    return left, right, tuple([name for name in (*left, *right) if name[0] != "k"])


def _tensordot(attrs: dict[str, Any], first: int, second: int) -> _Axes | None:
    axes = attrs.pop("axes", 2)
    if attrs:
        return None
    if isinstance(axes, int):
        pairs = (tuple(range(first - axes, first)), tuple(range(axes)))
    elif isinstance(axes, tuple) and len(axes) == 2:
        ours, theirs = ((part,) if isinstance(part, int) else part for part in axes)
        pairs = (
            tuple([range(first)[i] for i in ours]),
            tuple([range(second)[i] for i in theirs]),
        )
    else:
        return None
    return _paired(first, second, *pairs) if all(map(len, pairs)) else None


def _subscripts(attrs: dict[str, Any], first: int, second: int) -> _Axes | None:
    """Return the axes that an einsum of two operands names, each once to an operand."""
    text = str(attrs.pop("subscripts")).replace(" ", "")
    given, arrow, kept = text.partition("->")
    parts = given.split(",")
    if attrs or "." in text or len(parts) != 2:
        return None
    if not arrow:
        kept = "".join(sorted(name for name in set(given) - {","} if given.count(name) == 1))
    if [len(part) for part in parts] != [first, second]:
        return None
    if any(len(set(part)) != len(part) for part in (*parts, kept)):
        return None
    return tuple(parts[0]), tuple(parts[1]), tuple(kept)
