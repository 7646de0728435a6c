"""Fusion groups: values that run as one, and what is asked of them again and again."""

from __future__ import annotations

from collections.abc import Iterable

from alight._src.base.records import dataclass, field, replace
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.inner_products import Sides, as_reduction, sides_of
from alight._src.ir.nested_reductions import Flat, packed, written_out
from alight._src.ir.op import Kind, Origin
from alight._src.ir.rolls import Rolled, as_copies, without_rolls
from alight._src.ir.row_column import CrossSection, cross_section

__all__ = ["Group", "GroupForm", "one_per_result", "one_per_row"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Values that run as one kernel or library call. ``shape`` is the iteration space: every
    elementwise node has it or broadcasts to it; in a REDUCE group it is the shape before the
    reduction. ``form`` is what follows from that. A group equals itself: what is known of one is
    found by identity, and of those of one graph that are alike there is one."""

    kind: GroupKind
    graph: Graph
    shape: tuple[int, ...] = ()
    form: GroupForm = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", form_of(self.kind, self.graph, self.shape))


@dataclass(frozen=True, slots=True)
class GroupForm:
    """What planning, predicting and generating code ask of a group, worked out where it is made.

    ``reductions`` and ``scans`` are its nodes of these kinds, and ``axes`` those that the first of
    them goes along, sorted; ``beside`` are the values over the shape that the reductions leave (see
    `one_per_result`; None where one of them meets another shape). ``product``: it is a sum of
    products and nothing else; ``same_bits``: its kernel gives NumPy's bits by the table's bounds;
    ``library``: no code of ours can be a kernel of it; ``host_implementation`` is what NumPy's own
    code for it is called: a library where that is BLAS, LAPACK, an FFT or a sort; ``declared`` are
    those of its nodes whose ops the program declared.

    The others are None where there is nothing of the kind. ``lowered`` are the sums of products
    that a library's product is, of ``sides`` where it is one of matrices. ``flat`` is what a group
    is with its inner reductions written out, ``plain`` the group of that, ``packed`` the one by
    which it is predicted. ``rolled`` is a loop with its rolls as inputs, ``copied`` the group with
    copies in their place, which takes as long. ``section`` is how a row-and-column group goes
    through memory; where it cannot in one visit, ``fault`` says why.
    """

    reductions: tuple[Node, ...]
    scans: tuple[Node, ...]
    axes: tuple[int, ...]
    beside: frozenset[int] | None
    product: bool
    same_bits: bool
    library: bool = False
    host_implementation: str = "numpy"
    declared: tuple[Node, ...] = ()
    lowered: Group | None = None
    sides: Sides | None = None
    flat: Flat | None = None
    plain: Group | None = None
    packed: Group | None = None
    rolled: Rolled | None = None
    copied: Group | None = None
    section: CrossSection | None = None
    fault: str | None = None


def form_of(kind: GroupKind, graph: Graph, shape: tuple[int, ...]) -> GroupForm:
    """Return what is asked of a group of that kind."""
    if kind is GroupKind.LIBRARY:
        form = _BY_NAME if graph.nodes[0].op.kind is Kind.LIBRARY else _BY_NUMPY
        made = as_reduction(graph)
        if made is None:
            return form
        lowered = Group(GroupKind.REDUCE, *made)
        return replace(form, library=False, lowered=lowered, sides=sides_of(*made))
    layouts, ndim = graph.layouts, len(shape)
    reductions = tuple([node for node in graph.nodes if node.op.kind is Kind.REDUCTION])
    scans = tuple([node for node in graph.nodes if node.op.kind is Kind.SCAN])
    exact = all([node.op.ulp == 0 and node.op.bound is None for node in graph.nodes])
    over = [layouts[node.operands[0]].ndim for node in reductions]
    reduced = zip(graph.axes.values(), over, strict=True)
    axes = next((axes for axes, n in reduced if n <= ndim), ())
    names = [node.op.name for node in graph.nodes]
    declared = tuple([node for node in graph.nodes if node.op.origin is Origin.PROGRAM])
    product = names == ["multiply", "sum"]
    form = GroupForm(reductions, scans, axes, frozenset(), product, exact, declared=declared)
    if kind is GroupKind.ROW_COLUMN:
        section = cross_section(graph)
        if isinstance(section, str):
            return replace(form, fault=section)
        return replace(form, section=section)
    if kind is GroupKind.LOOP and graph.rolls:
        copied = Group(kind, as_copies(graph), shape)
        return replace(form, rolled=without_rolls(graph), copied=copied)
    if kind is not GroupKind.REDUCE and kind is not GroupKind.ROWWISE:
        return form
    flat = written_out(graph, shape) if any([n > ndim for n in over]) else None
    if flat is None:
        return replace(form, beside=one_per_result(graph, shape, axes))
    plain = Group(kind, flat.graph, shape)
    return replace(form, flat=flat, plain=plain, packed=Group(kind, packed(graph, flat), shape))


def one_per_row(shape: tuple[int, ...], over: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Tell whether a shape broadcasts to ``over`` as one element for each row along ``axes``."""
    lead = len(over) - len(shape)
    if lead < 0:
        return False
    whole = (1,) * lead + shape
    return all(n == (1 if i in axes else over[i]) for i, n in enumerate(whole))


def one_per_result(
    graph: Graph, shape: tuple[int, ...], axes: tuple[int, ...], members: Iterable[int] = ()
) -> frozenset[int] | None:
    """Return the values over the shape that reductions of ``shape`` along ``axes`` leave without
    ``keepdims``: those reductions, elementwise nodes made of them, and what these read besides.
    None where one of them meets a value over another shape; nothing where that shape broadcasts as
    one with ``keepdims`` does. ``members`` are the nodes to look at, if not all."""
    first = len(graph.inputs)
    left = tuple(n for i, n in enumerate(shape) if i not in axes)
    if left == shape or one_per_row(left, shape, axes):
        return frozenset()
    inside = sorted(members) or range(first, first + len(graph.nodes))
    found: set[int] = set()
    beside: set[int] = set()
    others: set[int] = set()
    for number in inside:
        node = graph.made_by[number]
        if node.op.kind is Kind.REDUCTION:
            others.update(node.operands)
            if node.layout.ndim < len(shape):  # without keepdims
                found.add(number)
        elif found.isdisjoint(node.operands):
            others.update(node.operands)
        else:
            if node.layout.shape != left:
                return None
            found.add(number)
            beside.update(o for o in node.operands if graph.layouts[o].size != 1)
    own = set(inside)
    if others & (found | beside) or (beside & own) - found:
        return None
    return frozenset(found | beside)


_BY_NUMPY = GroupForm((), (), (), frozenset(), False, False, library=True)
_BY_NAME = replace(_BY_NUMPY, host_implementation="library")
