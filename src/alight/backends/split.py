"""How a kernel's nest is cut into parts for several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alight._core.threads import Launcher, set_threads

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

# Parts meet at whole pages: what two threads write to is never on one cache line, and a page is
# touched for the first time by one of them. The smallest page of the machines met so far. Not so
# what reductions give, of which a part may be one element: its state is on the thread's own stack,
# and each result is written once, after all that is reduced into it was read, so that lines change
# hands far too seldom to count.
PAGE_BYTES = 4096

# Columns that are reduced side by side stay together by an equal share of a row for each thread, of
# a page at most and 256 bytes at least: narrower parts each read nearly all lines, and no
# prefetcher sees a run. Sums over the first axis (2 threads, EPYC) with 512, 1024, 2048 and 4096
# bytes in a part: 6.0, 5.9, 5.7 and 3.7 ms of 16384 x 1024 float64 (NumPy 5.6), 3.2, 2.7 and 2.1 of
# float32, 0.23, 0.22, 0.19 and 0.17 of 2048 x 1024 float64; 64 MiB of float32 in parts of 64 bytes
# 9.9, in eight parts whatever the columns 109.
WIDEST_COLUMNS_BYTES, LEAST_COLUMNS_BYTES = 4096, 256

# Rows for each thread below which a reduction is cut along the reduced axis: with fewer, who is
# done first waits for the others longer than a quarter of its work.
ROWS_FOR_EACH = 4


def launcher(group: Group, code: Any, threads: int) -> Launcher:
    """Return what runs compiled code, on so many threads where that pays."""
    set_threads(threads)
    nest: Nest = code.nest
    graph = group.graph
    layouts = graph.operand_layouts
    inputs, outputs = len(graph.inputs), len(graph.outputs)
    flat = [step for steps in nest.own_strides for step in steps]
    elements = 1
    for length in nest.dims:
        elements *= length
    page = PAGE_BYTES // max(layout.itemsize for layout in layouts)
    axis, unit = _axis(nest, elements, page, threads)
    parts = code.parts
    if nest.slots and not nest.places:
        around = axis, nest.dims[axis], 0, 0
        return Launcher(
            code.entry, nest.dims, flat, inputs, outputs, code, axis, unit, elements, extra=around
        )
    extra = code.told
    if parts is None:
        return Launcher(
            code.entry, nest.dims, flat, inputs, outputs, code, axis, unit, elements, extra=extra
        )
    if axis >= 0 and nest.dims[axis] >= ROWS_FOR_EACH * threads:
        return Launcher(
            code.entry, nest.dims, flat, inputs, outputs, code, axis, unit, elements, extra=extra
        )
    return Launcher(
        *(code.entry, nest.dims, flat, inputs + parts.given, outputs - parts.given, code),
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
        least, widest = (
            page * nbytes // PAGE_BYTES for nbytes in (LEAST_COLUMNS_BYTES, WIDEST_COLUMNS_BYTES)
        )
        unit = max(unit, min(widest, max(least, -(-nest.dims[axis] // threads))))
        if unit >= nest.dims[axis] and axis and (most := max(nest.dims[:axis])) > 1:
            # They are too few to be cut: rows of them are not. Of a product of few columns these
            # are the columns of the result, and threads write neighbouring elements of all of it.
            return nest.dims.index(most), 1
    return axis, unit
