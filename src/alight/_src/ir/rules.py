"""The rules by which a graph is made smaller: each takes a node away, or brings it closer to the
inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.ir.graph import Attrs, Node, reduced_axes
from alight._src.ir.op import OPS, UPDATED_IN_PLACE, Kind

if TYPE_CHECKING:
    from alight._src.ir.rewrite import Work

__all__ = ["BY_KIND", "BY_NAME", "Rule"]

_COPY = OPS["copy"]

# A rule returns a value that equals the node, a better node, or None.
Rule = Callable[["Work", Node], "Node | int | None"]


def same_bytes(work: Work, node: Node) -> int | None:
    """Take x for ``copy(x)``, ``positive(x)``, a cast to x's dtype, ``conjugate`` of a real x."""
    (x,) = node.operands
    if work.layout(x) is not node.layout:
        return None
    if node.op.name == "conjugate" and node.layout.dtype.kind == "c":
        return None
    below = work.node(x)
    # A copy of a window exists to be written to.
    return None if below is not None and below.op.kind is Kind.VIEW else _unwritten(work, x)


def _unwritten(work: Work, x: int) -> int | None:
    """Return x for the node being added; None where one of them is written to and x may lie in
    memory that the caller of a jitted function sees: the last to write does so there."""
    first = x
    while (below := work.node(first)) is not None and below.op.kind is Kind.WRITE:
        first = below.operands[0]
    if first >= work.first:
        return x
    for version in (work.number,) if first == x else (work.number, work.names[x]):
        for reader, _ in work.readers_of(version):
            if reader.op.kind is Kind.WRITE and reader.operands[0] == version:
                return None
    return x


def _again(work: Work, node: Node) -> Node | None:
    """Return the node that a node rests on, where that is of the same op."""
    below = work.node(node.operands[0])
    return below if below is not None and below.op is node.op else None


def cast_of_cast(work: Work, node: Node) -> Node | None:
    """Make ``cast(cast(x, wider), dtype)`` one cast where the first one loses nothing."""
    if (below := _again(work, node)) is None:
        return None
    x = below.operands[0]
    if work.layout(x).shape != node.layout.shape:
        return None
    if not _merges(work.layout(x).dtype, below.layout.dtype, node.layout.dtype):
        return None
    return Node(node.op, (x,), node.attrs, node.layout)


@lru_cache(maxsize=4096)
def _merges(start: np.dtype[Any], middle: np.dtype[Any], end: np.dtype[Any]) -> bool:
    if not _exact(start, middle):
        return False
    # From floats to integers and from complex to real the middle decides what is out of range,
    # and who is warned.
    if middle.kind == "c" and end.kind not in "cb":
        return False
    return middle.kind not in "fc" or end.kind not in "iu"


def _exact(start: np.dtype[Any], end: np.dtype[Any]) -> bool:
    """Tell whether every value of one dtype is a value of the other."""
    if start.kind not in "biufc" or end.kind not in "biufc" or not np.can_cast(start, end, "safe"):
        return False
    if start.kind in "iu" and end.kind in "fc":  # NumPy calls int64 → float64 safe
        return bool(np.finfo(end).nmant + 1 >= np.iinfo(start).bits)
    return True


def twice_is_nothing(work: Work, node: Node) -> int | None:
    """Take x for ``negative(negative(x))``; so too invert, conjugate, and logical_not of bools."""
    if (below := _again(work, node)) is None:
        return None
    x = below.operands[0]
    return _unwritten(work, x) if work.layout(x) is node.layout else None


def twice_is_once(work: Work, node: Node) -> int | None:
    """Take the first for ``absolute(absolute(x))``; so too floor, ceil, trunc, rint."""
    below = _again(work, node)
    return None if below is None or below.layout is not node.layout else node.operands[0]


def sign_is_lost(work: Work, node: Node) -> Node | None:
    """Drop the sign in ``absolute(negative(x))``, unless x is unsigned; so too fabs, square."""
    below = work.node(node.operands[0])
    if below is None or below.op.name != "negative":
        return None
    x = below.operands[0]
    if node.op.name == "absolute" and work.layout(x).dtype.kind not in "if":
        return None
    if work.layout(x).shape != node.layout.shape:
        return None
    return Node(node.op, (x,), node.attrs, node.layout)


def add_of_negative(work: Work, node: Node) -> Node | None:
    """Make ``a + -b`` ``a - b``, and ``a - -b`` ``a + b``: IEEE 754 defines them to be equal."""
    a, b = node.operands
    below = work.node(b)
    if below is None or below.op.name != "negative" or node.attrs:
        return None
    op = OPS["subtract" if node.op.name == "add" else "add"]
    return Node(op, (a, below.operands[0]), (), node.layout)


def view_of_view(work: Work, node: Node) -> Node | None:
    """Make a window of a window one; offsets count from the first element looked at."""
    below = work.node(node.operands[0])
    if below is None or below.op.kind is not Kind.VIEW:
        return None
    offset = node.attr("offset", 0) + below.attr("offset", 0)
    return Node(node.op, below.operands, _with_offset(node.attrs, offset), node.layout)


def _with_offset(attrs: Attrs, offset: int) -> Attrs:
    return (*[(k, v) for k, v in attrs if k != "offset"], ("offset", offset))


# Nodes between a view and the reductions it is a view of: a norm, a deviation, a scale.
_LIFTED = 8


def view_of_rows(work: Work, node: Node) -> Node | None:
    """Make ``sqrt(sum(x, axis))[:, None]`` ``sqrt(sum(x, axis, keepdims=True))``: where a view's
    only new axes are those that reductions reduced, it is what they give with those axes kept."""
    (x,) = node.operands
    layout = work.layout(x)
    shape = node.layout.shape
    if (
        node.attr("offset", 0)
        or work.number in work.live
        or not 0 < layout.ndim < len(shape)
        or layout.size != node.layout.size
        or layout.dtype != node.layout.dtype
    ):
        return None
    chain = _chain(work, x, shape)
    if chain is None:
        return None
    place: dict[int, int] = {}
    result = node
    for number in chain:
        below = work.node(number)
        assert below is not None
        operands = tuple([place.get(o, o) for o in below.operands])
        attrs = below.attrs
        if below.op.kind is Kind.REDUCTION:
            attrs = (*[(k, v) for k, v in attrs if k != "keepdims"], ("keepdims", True))
        result = Node(below.op, operands, attrs, make_layout(below.layout.dtype, shape))
        if number != x:
            place[number] = work.instead(number, result)
    work.origin = work.origins[x]
    return result


def _chain(work: Work, x: int, shape: tuple[int, ...]) -> list[int] | None:
    """Return the values between reductions and ``x``, in order, if all of them have a form with the
    reduced axes kept and nobody reads those below ``x`` in another form."""
    own = work.layout(x).shape
    found: set[int] = set()
    ready = [x]
    reduced = False
    while ready:
        number = ready.pop()
        if number in found or work.layout(number).ndim == 0:
            continue
        below = work.node(number)
        if below is None or len(found) == _LIFTED or work.layout(number).shape != own:
            return None
        if number != x and not work.is_own(number):
            return None
        if below.op.kind is Kind.REDUCTION:
            over = work.layout(below.operands[0]).shape
            axes = reduced_axes(below, len(over))
            if below.attr("keepdims") or shape != tuple(
                1 if i in axes else n for i, n in enumerate(over)
            ):
                return None
            reduced = True
        elif below.op.kind is Kind.ELEMENTWISE:
            ready += below.operands
        else:
            return None
        found.add(number)
    return sorted(found) if reduced else None


def whole_view(work: Work, node: Node) -> int | None:
    """Take the value for a window that is all of it."""
    (x,) = node.operands
    whole = work.layout(x) is node.layout and node.attr("offset", 0) == 0
    return x if whole else None


def whole_write(work: Work, node: Node) -> Node | int | None:
    """Take what was written for a write of all of ``old``: no copy, no wait for its readers. What
    the caller of a jitted function sees in the end is written there, where it was at first."""
    value = node.operands[1]
    layout = node.layout
    if node.attr("layout") is not layout or node.attr("offset", 0) or not layout.dense:
        return None
    below = work.node(value)
    if work.layout(value) is not layout or (below is not None and below.op.kind is Kind.VIEW):
        return None
    large = layout.nbytes >= UPDATED_IN_PLACE
    if large and node.attr("in_place") and work.number in work.live and _computed(below):
        home = work.number
        while (made := work.graph.made_by.get(home)) is not None and made.op.kind is Kind.WRITE:
            home = made.operands[0]
        if work.layout(home) is layout and home < work.first:
            same = home == node.operands[0]
            return None if same else Node(node.op, (home, value), node.attrs, layout)
    return _unwritten(work, value)


def _computed(node: Node | None) -> bool:
    """Tell whether a kernel that makes a value can leave it anywhere."""
    return node is not None and node.op.kind is Kind.ELEMENTWISE and node.op is not _COPY


def write_over_write(work: Work, node: Node) -> Node | None:
    """Leave out what was written to the same window before, and is read nowhere else but there:
    `b[1:-1] += a` in a loop would keep every version of the window."""
    old, value = node.operands
    below = work.node(old)
    if below is None or below.op.kind is not Kind.WRITE or below.attrs != node.attrs:
        return None
    if not _serves_window(work, work.names[old], node.attrs):
        return None
    return Node(node.op, (below.operands[0], value), node.attrs, node.layout)


def _serves_window(work: Work, version: int, attrs: Attrs) -> bool:
    """Tell whether a version of the original graph is read only through the window that writes with
    these attributes set, in elementwise ops, and overwritten."""
    window = dict(attrs)

    def serves(reader: Node, number: int) -> bool:
        if reader.op.kind is Kind.WRITE:
            return True
        return (
            reader.op.kind is Kind.VIEW
            and reader.layout is window["layout"]
            and reader.attr("offset", 0) == window.get("offset", 0)
            # these read what was written instead: `read_of_written`
            and work.is_read_by(number, lambda user, _: user.op.kind is Kind.ELEMENTWISE)
        )

    return work.is_read_by(version, serves)


def read_of_written(work: Work, node: Node) -> Node | None:
    """Read what was written instead of the window it was written to, in elementwise ops: but not to
    set the same window anew where the version between is needed, or a loop of such updates would
    make what all of them write before the first one is written."""
    operands = list(node.operands)
    for position, operand in enumerate(operands):
        view = work.node(operand)
        if view is not None and _is_whole(work, view) and view.layout.shape == node.layout.shape:
            operands[position] = view.operands[1]
        if view is None or view.op.kind is not Kind.VIEW:
            continue
        write = work.node(view.operands[0])
        if write is None or write.op.kind is not Kind.WRITE:
            continue
        value = write.operands[1]
        if (
            write.attr("layout") is view.layout
            and write.attr("offset", 0) == view.attr("offset", 0)
            and work.layout(value).shape == view.layout.shape
            and not _updates(work, view.operands[0], write.attrs)
        ):
            operands[position] = value
    return _reading(node, operands)


def _is_whole(work: Work, node: Node) -> bool:
    """Tell whether a node writes a value as it is over all of another."""
    layout = node.layout
    if node.op.kind is not Kind.WRITE or node.attr("layout") is not layout:
        return False
    return work.layout(node.operands[1]) is layout


def _reading(node: Node, operands: Sequence[int]) -> Node | None:
    """Return the node with these operands; None where it has them."""
    if tuple(operands) == node.operands:
        return None
    return Node(node.op, tuple(operands), node.attrs, node.layout)


def read_of_repeated(work: Work, node: Node) -> Node | None:
    """Read one element where it is instead of copies of it, in elementwise ops but copies."""
    if node.op is _COPY:
        return None
    operands = list(node.operands)
    for position, operand in enumerate(operands):
        below = work.node(operand)
        if below is not None and below.op is _COPY:
            (x,) = below.operands
            if x < work.first and not any(work.layout(x).strides):
                operands[position] = x
    return _reading(node, operands)


def _updates(work: Work, version: int, attrs: Attrs) -> bool:
    """Tell whether the node being added makes, by elementwise ops alone, what a later write puts
    into the window that was written last, in a version that is needed for itself."""
    name = work.names[version]
    if _serves_window(work, name, attrs):
        return False
    seen = {work.number}
    ready = [work.number]
    while ready:
        number = ready.pop()
        for reader, at in work.readers_of(number):
            if reader.op.kind is Kind.WRITE and reader.attrs == attrs:
                if reader.operands[1] == number and work.follows(reader.operands[0], name):
                    return True
            elif reader.op.kind is Kind.ELEMENTWISE and at not in seen:
                seen.add(at)
                ready.append(at)
    return False


BY_KIND: dict[Kind, tuple[Rule, ...]] = {
    Kind.VIEW: (view_of_view, whole_view, view_of_rows),
    Kind.WRITE: (whole_write, write_over_write),
    Kind.ELEMENTWISE: (read_of_written, read_of_repeated),
}


def _bools(rule: Rule) -> Rule:
    def bools(work: Work, node: Node) -> Node | int | None:
        x = work.layout(node.operands[0])
        return rule(work, node) if x.dtype.kind == "b" else None

    return bools


BY_NAME: dict[str, tuple[Rule, ...]] = {
    "copy": (same_bytes,),
    "positive": (same_bytes,),
    "cast": (same_bytes, cast_of_cast),
    "conjugate": (same_bytes, twice_is_nothing),
    "negative": (twice_is_nothing,),
    "invert": (twice_is_nothing,),
    "logical_not": (_bools(twice_is_nothing),),
    "absolute": (twice_is_once, sign_is_lost),
    "fabs": (twice_is_once, sign_is_lost),
    "square": (sign_is_lost,),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint"), (twice_is_once,)),
    "add": (add_of_negative,),
    "subtract": (add_of_negative,),
}
