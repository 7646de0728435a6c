"""From a group to a loop nest: which axes, in which order, and how each operand steps along them.

What comes out splits in two. The *structure* (ops, dtypes, how many axes, contiguous or not)
decides the code and is the kernel's key (``codegen.common.keys``). Sizes and strides are arguments
of the compiled code, so the same kernel serves every size.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from alight._src.base.records import dataclass, replace
from alight._src.codegen.common.caches import last_level_bytes
from alight._src.ir.graph import GroupKind, steps_of
from alight._src.ir.row_column import Role
from alight._src.ir.table_reduction import LANES
from alight._src.ir.vectors import SHORT_ROW, one_by_one

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.ir.group import Group
    from alight._src.ir.nested_reductions import Flat
    from alight._src.ir.rolls import Rolled

# Numbers behind the dims that a part is told: three of a reduction
# (``codegen.llvm.split_reduction``), four of what goes round an end (``codegen.llvm.circular``).
TOLD = 4


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is shaped. ``vector_bits`` is the widest register the compiler may prefer (0:
    its own choice); ``interleave`` the vectors in flight per iteration of an inner loop (0: by the
    length of the group, or in reductions the compiler's own choice)."""

    vector_bits: int = 512
    interleave: int = 0

    def __str__(self) -> str:
        return f"v{self.vector_bits}i{self.interleave}"


# Reductions whose results are places.
ARGUMENT_REDUCTIONS = ("argmin", "argmax")


# --- the nest ---
@dataclass(frozen=True, slots=True)
class Nest:
    """Axes outermost first, ``kept`` of them kept and the rest reduced. ``strides`` holds the bytes
    per step for each operand (inputs, then outputs) and axis. ``classes`` says how each moves along
    the vector axis: c(ontiguous), b(roadcast), r(eversed), every 2nd, 3rd or 4th, or s(trided) in
    any other way. Where the two innermost axes go in tiles, ``tiles`` says so: p(ut) an operand in
    order in a buffer first, or (-) take it where it is. With ``flat`` the rows of a tile are one
    run. With ``stream`` results go past the caches, which they would leave before they are read.
    With ``single`` vectors go one by one.

    The last axes may be ``unrolled``: their sizes are part of the code, in which every index has
    instructions of its own; ``along`` says for each operand along which of them it moves. All
    reduced axes are among them, and the vector axis is the one before. k in ``classes`` is for an
    operand whose elements along them are one packed record after the other.

    Where ``places`` has an index for each operand, that lies so many steps along an inner axis from
    where its slot begins (-1: there); ``inner`` has the bytes of a step of each input.

    Where operands are rolled, each roll is one of its own, behind the inputs: ``slots`` says for
    each operand which of the kernel's it lies in, and ``turns`` has (operand, axis, shift)."""

    dims: tuple[int, ...]
    kept: int
    strides: tuple[tuple[int, ...], ...]
    classes: str
    columns: bool
    tiles: str = ""
    flat: bool = False
    stream: bool = False
    single: bool = False
    unrolled: tuple[int, ...] = ()
    along: tuple[tuple[bool, ...], ...] = ()
    slots: tuple[int, ...] = ()
    turns: tuple[tuple[int, int, int], ...] = ()
    places: tuple[int, ...] = ()
    inner: tuple[int, ...] = ()

    @property
    def own_strides(self) -> tuple[tuple[int, ...], ...]:
        """Return the strides of what the kernel is given: rolls lie in what they roll."""
        found: dict[int, tuple[int, ...]] = {}
        for slot, steps in zip(self.slots or range(len(self.strides)), self.strides, strict=True):
            found.setdefault(slot, steps)
        return tuple(found[slot] for slot in sorted(found))

    @property
    def looped(self) -> int:
        """Return how many of the kept axes are loops."""
        return min(self.kept, len(self.dims) - len(self.unrolled))

    @property
    def vector_axis(self) -> int:
        """Return the axis of the innermost loop."""
        if self.unrolled:
            return self.looped - 1
        return self.kept - 1 if self.columns else len(self.dims) - 1


@dataclass(frozen=True, slots=True)
class _Axis:
    size: int
    strides: tuple[int, ...]


def nest(group: Group, unroll: bool = False) -> Nest:
    """Return the loop nest of a supported group; if asked to, with short reduced axes unrolled."""
    if group.kind is GroupKind.ROW_COLUMN:
        return _row_column_nest(group)
    graph, made = group.graph, group.form
    if made.rolled is not None:
        return _rolled_nest(made.rolled, group.shape, len(graph.inputs))
    if made.flat is not None and made.plain is not None:
        return _nested_nest(made.flat, nest(made.plain, unroll))
    inputs, outputs, layouts = graph.inputs, graph.output_layouts, graph.operand_layouts
    first_output = len(inputs)
    reduced: frozenset[int] = frozenset()
    in_order = False
    steps = [steps_of(layout, group.shape) for layout in inputs]
    if group.kind in (GroupKind.LOOP, GroupKind.SCAN):
        steps += [steps_of(layout, group.shape) for layout in outputs]
        reduced = frozenset(n.attr("axis") for n in made.scans)
    else:
        reduced = frozenset(made.axes)
        # an index counts elements in C order, so the loops must run in it
        in_order = any(n.op.name in ARGUMENT_REDUCTIONS for n in made.reductions)
        beside = made.beside or frozenset()
        for i in beside.intersection(range(first_output)):
            steps[i] = steps_of(inputs[i], group.shape, reduced)
        for number in graph.outputs:
            node = graph.made_by[number]
            if number in beside:
                steps.append(steps_of(node.layout, group.shape, reduced))
            else:
                steps.append(steps_of(node.layout, group.shape))
    axes = [_Axis(size, tuple(s[i] for s in steps)) for i, size in enumerate(group.shape)]
    kept = [a for i, a in enumerate(axes) if i not in reduced and a.size != 1]
    reduction = [a for i, a in enumerate(axes) if i in reduced and a.size != 1]

    def memory_order(axis: _Axis) -> tuple[int, ...]:
        # K order of the outputs; inputs break ties
        ordered = (*axis.strides[first_output:], *axis.strides[:first_output])
        return tuple(-abs(s) for s in ordered)

    kept = _merged(sorted(kept, key=memory_order))
    reduction = _merged(reduction if in_order else sorted(reduction, key=memory_order))
    if group.kind is GroupKind.LOOP:
        kept = kept or [_Axis(1, tuple(x.itemsize if x.ndim else 0 for x in layouts))]
    else:
        # what has one element for each row stays where it is, whatever its number of axes
        own = [i >= first_output or x.shape == group.shape for i, x in enumerate(layouts)]
        steps_of_one = (x.itemsize if moves else 0 for x, moves in zip(layouts, own, strict=True))
        reduction = reduction or [_Axis(1, tuple(steps_of_one))]
        unrolled = _unrolled(group, kept, reduction) if unroll else 0
        if unrolled:
            return _unrolled_nest([*kept, *reduction], len(kept), unrolled, layouts, first_output)
    columns = bool(
        group.kind is not GroupKind.LOOP
        and kept
        and (
            _contiguous(kept[-1], inputs) > _contiguous(reduction[-1], inputs)
            # a reduction this short fills no vector, but many of them side by side do; a scan never
            # fills one
            or (prod(a.size for a in reduction) < LANES <= kept[-1].size)
            # rows of a product read one of two matrices across, columns neither
            or (
                group.kind is GroupKind.REDUCE
                and made.product
                and kept[-1].size >= LANES
                and _across(kept[-1], inputs) < _across(reduction[-1], inputs)
            )
        )
    )
    if unroll and columns and len(kept) > 1 and made.product:
        # who asks for unrolled axes is the host, where so many columns side by side are a vector
        kept = _longest_last(kept, inputs)
    tiles, flat = "", False
    if rows := group.kind is GroupKind.LOOP and len(kept) > 1:
        kept, tiles, flat = _tiled(group, kept, layouts)
    vector = kept[-1] if columns or not reduction else reduction[-1]
    return Nest(
        tuple(a.size for a in (*kept, *reduction)),
        len(kept),
        tuple(tuple(a.strides[i] for a in (*kept, *reduction)) for i in range(len(layouts))),
        "".join(
            _motion(step, layout, group.kind, place >= first_output)
            for place, (step, layout) in enumerate(zip(vector.strides, layouts, strict=True))
        ),
        columns,
        tiles,
        flat,
        group.kind is GroupKind.LOOP and _streams(kept, layouts, first_output),
        rows and not tiles and one_by_one(graph, kept[-1].size),
    )


def _longest_last(kept: list[_Axis], layouts: tuple[Layout, ...]) -> list[_Axis]:
    """Return the kept axes of a product with a longer one last, if the last fills no vector and
    elements of an operand have their neighbours along that, too."""
    inner = kept[-1]
    beside = [a for a in kept[:-1] if a.size > inner.size and _contiguous(a, layouts)]
    if inner.size >= LANES or not beside:
        return kept
    longest = max(beside, key=lambda a: a.size)
    return [*(a for a in kept if a is not longest), longest]


def _row_column_nest(group: Group) -> Nest:
    """Return the nest of a group that reduces rows and columns: two reduced axes."""
    graph, found = group.graph, group.form.section
    assert found is not None  # gaps.check has seen to it
    first = len(graph.inputs)
    roles = [found.roles[number - first] for number in graph.outputs]
    sizes = [graph.layouts[number].itemsize for number in graph.outputs]
    steps = [
        (size if role is Role.ALONG else 0, size if role is Role.DOWN else 0)
        for role, size in zip(roles, sizes, strict=True)
    ]
    return Nest(
        (found.rows, found.width),
        0,
        ((found.pitch, graph.inputs[0].itemsize), *steps),
        "c" + "".join({Role.ALONG: "s", Role.DOWN: "c", Role.WHOLE: "b"}[role] for role in roles),
        True,
    )


def _nested_nest(flat: Flat, shape: Nest) -> Nest:
    """Return the nest of a group whose inner reductions are written out: operands that lie in one
    input are a record of it where they are whole."""
    inputs = len(flat.graph.inputs)
    outputs = len(shape.strides) - inputs
    classes = list(shape.classes)
    axis = shape.vector_axis
    for number, layout in enumerate(flat.graph.inputs):
        count = flat.sources.count(flat.sources[number])
        record = flat.steps[flat.sources[number]] == layout.itemsize
        still = not (shape.unrolled and any(shape.along[number]))
        if flat.places[number] >= 0 and record and still and classes[number] in "s234":
            width = count * layout.itemsize
            if shape.strides[number][axis] == width and layout.dtype.kind != "c":
                classes[number] = "k"
    given = len(flat.steps)
    return replace(
        shape,
        classes="".join(classes),
        slots=(*flat.sources, *range(given, given + outputs)),
        places=(*flat.places, *[-1] * outputs),
        inner=flat.steps,
    )


# Marks an axis along which something is rolled: it is merged with no other.
_APART = 1 << 60


def _rolled_nest(rolled: Rolled, shape: tuple[int, ...], inputs: int) -> Nest:
    """Return the nest of a loop group over a shape in which each roll is an input."""
    graph = rolled.graph
    layouts = graph.operand_layouts
    steps = [steps_of(layout, shape) for layout in layouts]
    turned = {axis for _, axis, _ in rolled.turns}
    marks = [_APART + i if i in turned else 0 for i in range(len(shape))]
    axes = [_Axis(size, (*(s[i] for s in steps), marks[i])) for i, size in enumerate(shape)]
    outer = len(graph.inputs)

    def memory_order(axis: _Axis) -> tuple[int, ...]:
        ordered = (*axis.strides[outer:-1], *axis.strides[:outer])
        return tuple(-abs(s) for s in ordered)

    kept = _merged(sorted((a for a in axes if a.size != 1), key=memory_order))
    kept = kept or [_Axis(1, (*(x.itemsize if x.ndim else 0 for x in layouts), 0))]
    place = {axis.strides[-1] - _APART: k for k, axis in enumerate(kept) if axis.strides[-1]}
    own = [i for i in range(len(layouts)) if i < inputs or i >= outer]  # what memory is read
    around = [i for i, axis, _ in rolled.turns if place.get(axis) == len(kept) - 1]
    tiles = _turned_tiles(kept, layouts, around)
    return Nest(
        tuple(a.size for a in kept),
        len(kept),
        tuple(tuple(a.strides[i] for a in kept) for i in range(len(layouts))),
        "".join(
            _motion(kept[-1].strides[i], layout, GroupKind.LOOP, i >= outer)
            for i, layout in enumerate(layouts)
        ),
        False,
        tiles,
        bool(tiles),
        stream=_streams(
            [_Axis(a.size, tuple(a.strides[i] for i in own)) for a in kept],
            tuple(layouts[i] for i in own),
            inputs,
            whole=not around or bool(tiles),
        ),
        single=len(kept) > 1 and (bool(tiles) or one_by_one(graph, kept[-1].size)),
        slots=(*rolled.sources, *(inputs + i for i in range(len(graph.outputs)))),
        turns=tuple((i, place[axis], by) for i, axis, by in rolled.turns if axis in place),
    )


# Rows shorter than this that are rolled run together. On one thread of a machine with AVX-512,
# 800,000 elements that three rolls read took 686, 450, 397 and 312 us row by row for rows of 64,
# 128, 200 and 300 float64, 342 to 409 together (float32: 718, 470, 284, 208 and 197 to 217); with
# an exponential 868, 639, 605 and 566, together 727 to 766. Their vectors go one by one: several
# lack registers for their places. Heat in 10,000 x 10 x 10 took 1208 us in fours and 809 in ones
# of float64, 1080 and 510 of float32.
_TURNED_ROW = 128


def _turned_tiles(kept: list[_Axis], layouts: tuple[Layout, ...], around: list[int]) -> str:
    """Return what flat tiles of the last two axes do with each operand, some of which are rolled
    along the last; nothing if they are not to be."""
    if not around or len(kept) == 1 or kept[-1].size >= _TURNED_ROW:
        return ""
    tiles = _flat_tiles(kept[-2], kept[-1], layouts)
    # what is narrower is not loaded by a mask, and complex numbers are loaded in parts
    fit = all(layouts[i].dtype.kind != "c" and layouts[i].itemsize >= 4 for i in around)
    return tiles if fit and all(tiles[i] == "-" for i in around) else ""


def _flat_tiles(outer: _Axis, inner: _Axis, layouts: tuple[Layout, ...]) -> str:
    """Return, for each operand, whether the rows of a tile are one run in memory (-) or are put in
    order in a buffer (p)."""

    def in_place(i: int) -> bool:
        a, b = outer.strides[i], inner.strides[i]
        return a == b == 0 or (b == layouts[i].itemsize and a == b * inner.size)

    return "".join("-" if in_place(i) else "p" for i in range(len(layouts)))


# Of rows shorter than this the ends cost more than the lines between, unless each is whole vectors:
# 6 * 2**20 elements between the ends of rows took past the caches and through them, in ms, 6.6 and
# 3.8 for rows of 98 float64, 3.9 and 4.4 of 500, 2.8 and 3.9 of 998 (float32: 1.8 and 1.5 to 2.0 of
# 998, 1.4 and 1.8 of 2000); 2.7 and 4.0 for rows of 96 float64, which are whole.
_LONG_ROW = 4096
# The bytes that a loop writes in one turn, at most: four vectors of 512 bits. Rows of 96 float32
# took 3.3 ms past the caches, 1.9 through them; of 64 and 192, 1.2 and 1.9.
_TURN_BYTES = 256


def _streams(
    axes: list[_Axis], layouts: tuple[Layout, ...], inputs: int, run: int = -1, whole: bool = True
) -> bool:
    """Tell whether the arrays do not fit into the caches together, and results are written in long
    runs or whole vectors along the axis ``run``, which are not ``whole`` if something is rolled
    along it."""
    # Where they did not (2**22 to 2**25 float64, 32 MiB of L3), a * x + b * x**2 reached 33 to 43
    # GB/s past the caches and 21 to 30 through them: there, every line is read before it is
    # written.
    nbytes = sum(
        prod(a.size for a in axes if a.strides[i]) * layout.itemsize
        for i, layout in enumerate(layouts)
    )
    if not 0 < last_level_bytes() < nbytes:
        return False
    row, outer = axes[run], axes[:run]
    for i in range(inputs, len(layouts)):
        size = layouts[i].itemsize
        steps = [row.size * size, *[axis.strides[i] for axis in outer]]
        even = whole and not any(step % _TURN_BYTES for step in steps)
        if outer and row.strides[i] == size and row.size * size < _LONG_ROW and not even:
            return False
    return True


# Copies of all nodes in a kernel whose last axes are unrolled: of that many a loop group is one
# kernel at most (plan.fuse.KERNEL_NODES), for what compiling costs.
UNROLLED_NODES = 256
# Elements of a record of which some are kept: so many have registers of their own (32 of them) and
# leave as many for what is reduced.
_RECORD = 16


def _unrolled(group: Group, kept: list[_Axis], reduction: list[_Axis]) -> int:
    """Return how many of the last axes to unroll: reduced ones that would fill no vector, and a
    kept one as short beside them; 0 where another axis would not fill vectors either."""
    copies = prod(a.size for a in reduction)
    if group.kind is GroupKind.SCAN or not kept or not 1 <= copies <= LANES:
        return 0
    last = kept[-1].size
    within = UNROLLED_NODES // len(group.graph.nodes)
    if last >= LANES:
        return len(reduction) if copies <= within else 0
    fits = last <= _RECORD and copies * last <= within
    return len(reduction) + 1 if fits and len(kept) > 1 and kept[-2].size >= LANES else 0


def _unrolled_nest(
    axes: list[_Axis], kept: int, count: int, layouts: tuple[Layout, ...], inputs: int
) -> Nest:
    """Return the nest in which the last axes are unrolled."""
    vector, last = axes[-count - 1], axes[-count:]

    def motion(i: int) -> str:
        layout = layouts[i]
        width = layout.itemsize
        for axis in reversed(last):
            if axis.strides[i] and axis.size > 1:
                if axis.strides[i] != width:
                    width = 0
                width *= axis.size
        packed = width > layout.itemsize and vector.strides[i] == width
        if packed and layout.dtype.kind != "c":
            return "k"
        return _motion(vector.strides[i], layout, GroupKind.LOOP, i >= inputs)

    return Nest(
        tuple(a.size for a in axes),
        kept,
        tuple(tuple(a.strides[i] for a in axes) for i in range(len(layouts))),
        "".join(motion(i) for i in range(len(layouts))),
        True,
        stream=_streams(axes, layouts, inputs, len(axes) - count - 1),
        unrolled=tuple(a.size for a in last),
        along=tuple(tuple(a.strides[i] != 0 for a in last) for i in range(len(layouts))),
    )


# An operand is turned around in a buffer if it has so many elements side by side along another
# axis than the innermost: half a cache line of float64.
_ASIDE = 4


def _tiled(
    group: Group, kept: list[_Axis], layouts: tuple[Layout, ...]
) -> tuple[list[_Axis], str, bool]:
    """Return the axes, what tiles of the last two do with each operand, and whether they are
    flat."""
    inner = kept[-1]
    count = len(group.graph.inputs)

    def aside(i: int, axis: _Axis) -> bool:
        far = abs(inner.strides[i]) > 4 * layouts[i].itemsize
        return far and axis.strides[i] == layouts[i].itemsize and axis.size >= _ASIDE

    turned = [[i for i in range(count) if aside(i, axis)] for axis in kept[:-1]]
    most = max(range(len(turned)), key=lambda k: len(turned[k]))
    special = any(node.op.special for node in group.graph.nodes)
    short = inner.size < SHORT_ROW
    if not turned[most] and not (special and short):
        return kept, "", False
    if turned[most]:
        kept = [*kept[:most], *kept[most + 1 : -1], kept[most], inner]
    outer = kept[-2]
    if not short:
        return kept, "".join("p" if i in turned[most] else "-" for i in range(len(layouts))), False

    return kept, _flat_tiles(outer, inner, layouts), True


def _motion(step: int, layout: Layout, kind: GroupKind, output: bool) -> str:
    """Return how an operand moves along the vector axis."""
    times, rest = divmod(step, layout.itemsize)
    if kind is GroupKind.LOOP:
        if output and step == 0:
            return "c"  # one element: there is no next one
        # a vector load and shuffles instead of a gather, while there are few vectors to load
        if not output and not rest and times in (-1, 2, 3, 4) and layout.dtype.kind != "c":
            return "r" if times < 0 else str(times)
    return "b" if step == 0 else "c" if step == layout.itemsize else "s"


def _merged(axes: list[_Axis]) -> list[_Axis]:
    result: list[_Axis] = []
    for axis in axes:
        if result:
            outer = result[-1]
            steps = zip(outer.strides, axis.strides, strict=True)
            if all(a == b * axis.size for a, b in steps):
                result[-1] = _Axis(outer.size * axis.size, axis.strides)
                continue
        result.append(axis)
    return result


def _contiguous(axis: _Axis, layouts: tuple[Layout, ...]) -> int:
    """Return how many elements have their neighbours along an axis: a factor of each row is few
    beside the rows (sums of the columns of 2000 x 2000 float64, divided by such ones: 10.0 ms along
    the factors, 5.3 along the rows)."""
    moved = zip(axis.strides, layouts, strict=False)
    return sum(layout.size for step, layout in moved if step == layout.itemsize)


def _across(axis: _Axis, layouts: tuple[Layout, ...]) -> int:
    """Return how many elements lie apart along an axis: they neither have neighbours nor stay."""
    moved = zip(axis.strides, layouts, strict=False)
    return sum(layout.size for step, layout in moved if step not in (0, layout.itemsize))
