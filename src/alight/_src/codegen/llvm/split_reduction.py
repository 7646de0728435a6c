"""A reduction in parts: what each part leaves behind, and the function that makes one result of it.

A part is a run of 2**k chunks, but for the last: its reduction is a subtree of the tree that the
whole has (``codegen.llvm.combine``), so that the result has the same bits however many parts there
are. A kernel that can reduce in parts finds three numbers behind its dims: the first element of the
part, its end, and whether to leave its state in the memory of the outputs in place of a result.
``combine(slots, parts, dims, strides, addresses)`` takes the states, part after part, in each one
for every result and every reduction, and writes the results, or what is made of them: where a
rowwise group visits its rows once and gives nothing of their length, it can be cut like a
reduction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.base.records import dataclass
from alight._src.codegen.common.phases import phases
from alight._src.codegen.llvm.combine import LEVELS, Reduction, population
from alight._src.codegen.llvm.expressions import Code, Module, register_type
from alight._src.codegen.llvm.kernel_frame import Frame, elementwise
from alight._src.codegen.llvm.minmax import BLOCK
from alight._src.codegen.llvm.moments import push_moments
from alight._src.codegen.llvm.spans import Span, push
from alight._src.ir.body import width_of
from alight._src.ir.graph import GroupKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.ir.group import Group

COMBINE = "void @combine(ptr %slots, i64 %parts, ptr %dims, ptr %strides, ptr %addresses)"
# Behind the dims: the first element, the end, and whether it is a part.
FIRST, END, PARTIAL = range(3)


@dataclass(frozen=True, slots=True)
class Parts:
    """How a reduction can be cut: ``unit`` elements stay together, a state takes ``state_bytes``; a
    part leaves those of all its reductions one after another, for which each output gives
    ``slot_bytes``. ``absorbing`` is the first byte of a state that decides the whole, -1 where
    there is none. ``given`` are the outputs, the first ones, that parts write themselves."""

    elements: int
    unit: int
    state_bytes: int
    slot_bytes: int
    absorbing: int
    given: int = 0


def parts(group: Group, shape: Nest) -> Parts | None:
    """Return how the reductions of a group can be cut along the reduced axis, None where they
    cannot."""
    one_axis = len(shape.dims) == shape.kept + 1 and not shape.unrolled
    if group.kind not in (GroupKind.REDUCE, GroupKind.ROWWISE) or shape.columns or not one_axis:
        return None
    if group.kind is GroupKind.ROWWISE and not _reduced_once(group):
        return None
    graph = group.graph
    reductions = [Reduction(graph, graph.made_by[number]) for number in slots(group)]
    if any(
        reduction.moments and source(group, shape, reduction) is None for reduction in reductions
    ):
        return None  # distances are from the first element, which a part has to find in memory
    stops = reductions[0].stops() if len(reductions) == 1 else None
    absorbing = -1 if stops is None else int(stops == "true")
    state = max(_state_bytes(reduction) for reduction in reductions)
    each = -(-len(reductions) // len(graph.outputs))
    return Parts(shape.dims[-1], BLOCK, state, each * state, absorbing)


def _reduced_once(group: Group) -> bool:
    """Tell whether rows are visited once, before anything but elements is made and for nothing but
    reductions."""
    visits = phases(group).passes
    first = visits[0]
    beside = first.scalars or first.written or first.saved
    return len(visits) == 2 and not beside


def slots(group: Group) -> dict[int, int]:
    """Return the reductions of a group, and of each the place of its state among those of a
    part."""
    return {number: place for place, number in enumerate(group.graph.axes)}


def make_scalars(frame: Frame, scalars: Iterable[int], known: dict[int, str]) -> None:
    """Add the values that a row has one of to those that are known, its reductions among them."""
    graph = frame.graph
    for number in scalars:
        node = graph.nodes[number - frame.inputs]
        known[number] = elementwise(frame.code, graph, node, known)


def deliver(frame: Frame, scalars: Iterable[int], known: dict[int, str]) -> None:
    """Make the last of them, and store those that are outputs."""
    if scalars:  # they may read what there is one of for all rows, or for a row
        known = {**frame.broadcast(), **known}
    make_scalars(frame, scalars, known)
    for place, number in enumerate(frame.graph.outputs, frame.inputs):
        if number in known:
            dtype = frame.graph.layouts[number].dtype.name
            frame.code.store(known[number], frame.pointers[place], dtype)


def source(group: Group, shape: Nest, reduction: Reduction) -> int | None:
    """Return the input whose memory holds what is reduced, one element after another."""
    (number, *mask) = reduction.node.operands
    direct = not mask and reduction.lanewise and number < len(group.graph.inputs)
    return number if direct and shape.classes[number] == "c" else None


_LINE_BYTES = 64  # a cache line on nearly all processors: states of two threads must not share one


def _state_bytes(reduction: Reduction) -> int:
    size = max(1, width_of(reduction.dtype) // 8)
    if reduction.argument:
        nbytes = 16 + size
    elif reduction.moments:
        nbytes = 16 + (3 + 2 * LEVELS) * size
    else:
        nbytes = size if reduction.exact else 8 + LEVELS * size
    return -(-nbytes // _LINE_BYTES) * _LINE_BYTES


def combine_function(module: Module, group: Group, shape: Nest, schedule: Schedule) -> None:
    """Add the function that makes results of the states of parts."""
    found = parts(group, shape)
    if found is None:
        return
    code = Code(module, schedule.interleave)
    frame = Frame(code, group, shape)
    graph = group.graph
    spans = {
        number: Span(code, Reduction(graph, graph.nodes[number - frame.inputs]), False)
        for number in slots(group)
    }
    scalars = phases(group).passes[-1].scalars
    cell = code.alloca("i64")
    code.do(f"store i64 0, ptr {cell}")
    pitch = str(len(graph.outputs) * found.slot_bytes)
    for k in range(shape.kept):
        pitch = code.emit(f"mul i64 {pitch}, {frame.dims[k]}")
    with code.when(frame.nonempty(range(shape.kept))), frame.along(range(shape.kept)):
        known: dict[int, str] = {}
        ahead = code.emit(f"load i64, ptr {cell}")
        for place, (number, span) in enumerate(spans.items()):
            span.begin()
            first = code.offset(
                "%slots", code.emit(f"add i64 {ahead}, {place * found.state_bytes}")
            )
            with code.loop("%parts") as part:
                distance = code.emit(f"mul i64 {part}, {pitch}")
                other = code.offset(first, distance)
                name = _merge_function(module, span)
                code.do(f"call void @{name}(ptr {span.state}, ptr {other}, ptr {first})")
            known[number] = span.result(frame.dims[shape.kept])
        deliver(frame, scalars, known)
        following = code.emit(f"add i64 {ahead}, {len(graph.outputs) * found.slot_bytes}")
        code.do(f"store i64 {following}, ptr {cell}")
    code.finish()
    module.functions.append(code.function(COMBINE, "#0"))


def _merge_function(module: Module, span: Span) -> str:
    """Return the function that adds a part's state to that of all parts before it: ``(ptr state,
    ptr other, ptr first)``; ``first`` is the state of the first part, which is a full one."""
    reduction = span.reduction
    kind = "best" if reduction.argument else "moments" if reduction.moments else "reduction"
    name = f"merge.{kind}.{reduction.stem}"
    if name not in module.shared:
        code = Code(module)
        if reduction.argument:
            _merge_best(code, reduction)
        elif reduction.moments:
            _merge_moments(code, reduction)
        elif reduction.exact:
            before, more = (code.load(state, reduction.dtype) for state in ("%state", "%other"))
            code.store(reduction.combined(code, before, more), "%state", reduction.dtype)
        else:
            _merge_sums(code, reduction)
        code.do("ret void")
        signature = f"internal void @{name}(ptr %state, ptr %other, ptr %first)"
        module.share(name, code.function(signature, "#3"))
    return name


def _merge_best(code: Code, reduction: Reduction) -> None:
    seen, more = (code.emit(f"load i64, ptr {state}") for state in ("%state", "%other"))
    index_at = code.offset("%state", "8")
    index = code.emit(f"load i64, ptr {index_at}")
    best, value = (
        code.load(code.offset(state, "16"), reduction.dtype) for state in ("%state", "%other")
    )
    (better,) = code.evaluate(reduction.better, [value, best])
    none = code.emit(f"icmp eq i64 {index}, -1")
    with code.when(code.emit(f"select i1 {none}, i1 true, i1 {better}")):
        place = code.emit(f"load i64, ptr {code.offset('%other', '8')}")
        code.do(f"store i64 {code.emit(f'add i64 {place}, {seen}')}, ptr {index_at}")
        code.store(value, code.offset("%state", "16"), reduction.dtype)
    code.do(f"store i64 {code.emit(f'add i64 {seen}, {more}')}, ptr %state")


def _full(code: Code) -> tuple[str, str, str, str]:
    """Return the chunks so far, those of this part, whether it is a full one, and how many levels
    of the counter a full one fills."""
    chunks, more, full = (
        code.emit(f"load i64, ptr {state}") for state in ("%state", "%other", "%first")
    )
    code.module.share("llvm.cttz.i64", "declare i64 @llvm.cttz.i64(i64, i1)")
    level = code.emit(f"call i64 @llvm.cttz.i64(i64 {full}, i1 false)")
    return chunks, more, code.emit(f"icmp eq i64 {more}, {full}"), level


def _append(
    code: Code, reduction: Reduction, chunks: str, more: str, start: int, width: int
) -> None:
    """Put the levels of a part behind those so far: they are of fewer chunks."""
    top = code.emit(f"mul i64 {population(code, chunks)}, {width}")
    count = code.emit(f"mul i64 {population(code, more)}, {width}")
    with code.when(code.emit(f"icmp sgt i64 {count}, 0")), code.loop(count) as i:
        levels = code.offset("%other", str(start))
        value = code.load(code.at(levels, i, reduction.dtype), reduction.dtype)
        levels = code.offset("%state", str(start))
        target = code.at(levels, code.emit(f"add i64 {top}, {i}"), reduction.dtype)
        code.store(value, target, reduction.dtype)
    code.do(f"store i64 {code.emit(f'add i64 {chunks}, {more}')}, ptr %state")


def _merge_sums(code: Code, reduction: Reduction) -> None:
    chunks, more, whole, level = _full(code)
    cell, value_cell = code.alloca("i64"), code.alloca(register_type(reduction.dtype))
    code.do(f"store i64 {chunks}, ptr {cell}")
    with code.when(whole):
        value = code.load(code.offset("%other", "8"), reduction.dtype)
        push(code, reduction, value, (cell, value_cell, code.offset("%state", "8")), level)
        code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")
    with code.when(code.emit(f"xor i1 {whole}, true")):
        _append(code, reduction, chunks, more, 8, 1)


def _merge_moments(code: Code, reduction: Reduction) -> None:
    chunks, more, whole, level = _full(code)
    size = width_of(reduction.dtype) // 8
    start = 16 + 3 * size
    cell = code.alloca("i64")
    code.do(f"store i64 {chunks}, ptr {cell}")
    with code.when(whole):
        levels = code.offset("%other", str(start))
        new = [code.load(code.at(levels, i, reduction.dtype), reduction.dtype) for i in "01"]
        pushed = code.offset("%state", str(start))
        push_moments(code, reduction, (new[0], new[1]), cell, pushed, level)
        code.do(f"store i64 {code.emit(f'load i64, ptr {cell}')}, ptr %state")
    with code.when(code.emit(f"xor i1 {whole}, true")):
        _append(code, reduction, chunks, more, start, 2)
        rest = code.emit(f"load i64, ptr {code.offset('%other', '8')}")
        code.do(f"store i64 {rest}, ptr {code.offset('%state', '8')}")
        for i in range(2):
            at = str(16 + i * size)
            value = code.load(code.offset("%other", at), reduction.dtype)
            code.store(value, code.offset("%state", at), reduction.dtype)
