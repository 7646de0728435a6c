"""How a kernel's nest is cut into parts for several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alight._core.threads import Launcher, set_threads

if TYPE_CHECKING:
    from alight.codegen.loops import Nest
    from alight.ir.group import Group

# Parts meet at whole pages: what two threads write to is never on one cache line, and a page is
# touched for the first time by one of them. The smallest page of the machines met so far.
PAGE_BYTES = 4096

# Columns that are folded side by side stay together by so many bytes of a row, by half of them
# where another thread would get none: narrower parts each read nearly all lines, and no prefetcher
# sees a run. Sums of 64 MiB of float32 (2 threads, EPYC) with 16, 64, 128 and 256 columns in a
# part: 9.9, 3.6, 3.0 and 3.5 ms of 65536 x 256; 9.6, 3.9, 5.8 and 5.7 of 131072 x 128. In eight
# parts, whatever the columns: 109 and 85.
COLUMN_BYTES = 512

# Rows for each thread below which a fold is cut along the folded axis: with fewer, who is done
# first waits for the others longer than a quarter of its work.
ROWS_FOR_EACH = 4


def launcher(group: Group, code: Any, threads: int) -> Launcher:
    """Return what runs compiled code, on so many threads where that pays."""
    set_threads(threads)
    nest: Nest = code.nest
    graph = group.graph
    layouts = (*graph.inputs, *(graph.layout(i) for i in graph.outputs))
    inputs, outputs = len(graph.inputs), len(graph.outputs)
    flat = [step for steps in nest.strides for step in steps]
    elements = 1
    for length in nest.dims:
        elements *= length
    page = PAGE_BYTES // max(layout.itemsize for layout in layouts)
    axis, unit = _axis(nest, elements, page, threads)
    parts = code.parts
    if parts is None:
        return Launcher(code.entry, nest.dims, flat, inputs, outputs, code, axis, unit, elements)
    extra = (0, parts.elements, 0)
    if axis >= 0 and nest.dims[axis] >= ROWS_FOR_EACH * threads:
        return Launcher(
            code.entry, nest.dims, flat, inputs, outputs, code, axis, unit, elements, extra=extra
        )
    return Launcher(
        *(code.entry, nest.dims, flat, inputs, outputs, code),
        unit=parts.unit,
        elements=elements,
        combine=code.combine,
        kept=nest.kept,
        extra=extra,
        slot=parts.slot_bytes,
        absorbing=parts.absorbing,
    )


def _axis(nest: Nest, elements: int, page: int, threads: int) -> tuple[int, int]:
    """Return the kept axis to cut, and how many of its indices stay together; -1 where there is
    none."""
    if not nest.looped or not elements:
        return -1, 0
    # The outermost one that has enough for all: parts then lie far apart in memory.
    long = [k for k in range(nest.looped) if nest.dims[k] >= ROWS_FOR_EACH * threads]
    axis = long[0] if long else max(range(nest.looped), key=lambda k: nest.dims[k])
    beside = max(1, elements // nest.dims[axis])
    unit = max(1, -(-page // beside))
    if nest.columns and axis == nest.vector_axis:
        wide = page * COLUMN_BYTES // PAGE_BYTES
        unit = max(unit, min(wide, max(wide // 2, -(-nest.dims[axis] // threads))))
    return axis, unit
