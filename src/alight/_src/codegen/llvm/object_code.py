"""Compile groups to object code with llvmlite.

llvmlite is imported with this module and ``target``, and nothing that ``import alight`` loads
imports either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from alight._core import give_back_heap
from alight._src.codegen.common.gaps import check
from alight._src.codegen.common.loops import Nest, Schedule, nest
from alight._src.codegen.llvm.circular import rolled_kernel
from alight._src.codegen.llvm.compiled import Kernel, at_work, bound
from alight._src.codegen.llvm.expressions import Module
from alight._src.codegen.llvm.reduction import reduce_kernel
from alight._src.codegen.llvm.row_column_reductions import row_column_kernel
from alight._src.codegen.llvm.rowwise import rowwise_kernel
from alight._src.codegen.llvm.scan import scan_kernel
from alight._src.codegen.llvm.shared import packed, parts_for
from alight._src.codegen.llvm.target import machine, ready, widest
from alight._src.codegen.llvm.unrolled import unrolled_kernel
from alight._src.codegen.llvm.vector_loops import strip_kernel
from alight._src.ir.graph import GroupKind
from alight.device import Unsupported

if TYPE_CHECKING:
    from alight._src.ir.group import Group

__all__ = ["compile_group"]


def _explicit(group: Group, form: Nest) -> bool:
    """Tell whether a group's code comes as vectors."""
    # LLVM makes more of loops over single elements: reductions of columns, and scans of rows, one
    # of which took 570 us for 220
    return bool(form.unrolled) or (group.kind is GroupKind.SCAN) == form.columns


def module_text(group: Group, schedule: Schedule) -> str:
    """Return the IR of a group before optimisation."""
    return _module(group, schedule).text(schedule.vector_bits)


def _module(group: Group, schedule: Schedule) -> Module:
    ready()
    shape = nest(group, unroll=True)
    bits = min(schedule.vector_bits, widest())
    # AVX has such comparisons; without it they are made one by one
    module = Module(quiet=widest() > 128, explicit=_explicit(group, shape), vector_bits=bits)
    group = group.form.plain or group
    if shape.slots and not shape.places:
        rolled_kernel(module, group, shape, schedule, bits)
    elif group.kind is GroupKind.LOOP:
        strip_kernel(module, group, shape, schedule, bits)
    elif group.kind is GroupKind.ROW_COLUMN:
        row_column_kernel(module, group, shape, schedule)
    elif group.kind is GroupKind.SCAN:
        scan_kernel(module, group, shape, schedule, bits)
    elif shape.unrolled:
        unrolled_kernel(module, group, shape, schedule, bits)
    elif shape.columns or len(shape.dims) - shape.kept > 1:
        reduce_kernel(module, group, shape, schedule, bits)
    else:
        rowwise_kernel(module, group, shape, schedule, bits)
    for symbol in sorted(module.libm):
        # the linker does not complain about a symbol that is missing: it calls whatever is there
        if llvm.address_of_symbol(symbol) is None:
            raise Unsupported(f"{symbol}: the C library of this machine has no such function")
    return module


def _object(group: Group, schedule: Schedule, explicit: bool) -> bytes:
    """Return the object code of a group, with that of the shared functions it calls."""
    module = _module(group, schedule)
    own = _translated(module.text(schedule.vector_bits), explicit)
    return packed(own, parts_for(module.apart, _together))


def _together(texts: Mapping[str, str]) -> bytes:
    """Return functions that kernels share as object code."""
    module = Module()
    module.shared.update(texts)
    # By level 1 those of sin, of log1p, and of arcsinh, exp2 and tan took 9.5, 6.5 and 20.6 ms, by
    # level 0 4.5, 2.9 and 7.1; they are seldom called, and take 1.4 times as long (Zen 5).
    return _translated(module.text(0), True, level=0)


def _translated(text: str, explicit: bool, level: int = 1) -> bytes:
    """Return a module as object code; ``explicit`` code comes as vectors, without what is computed
    twice. LLVM chooses instructions and registers as for its optimisation ``level``."""
    # in a context of its own: a child that is forked meanwhile finds the one that all share whole
    module = llvm.parse_assembly(text, llvm.create_context())
    # For 1, 6 and 12 special functions O3 took 80, 105 and 162 ms for code of the same speed as
    # what is done to explicit code, which takes 25, 35 and 76.
    target = machine(level)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(target.target_data)
    module.verify()
    # The others have vectors where it matters; the loops left to LLVM need no unrolling. So tuned,
    # a sum of columns compiled in 59 ms and a softmax in 57, with O3 in 104 and 80; nine kernels at
    # three shapes each took 1.0 times as long as with O3 (geometric mean; 0.76 to 1.20).
    options = llvm.create_pipeline_tuning_options(speed_level=1 if explicit else 2)
    options.loop_unrolling = options.loop_interleaving = options.slp_vectorization = False
    builder = llvm.create_pass_builder(target, options)
    if explicit:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
    else:
        passes = builder.getModulePassManager()
    at_work.append(None)
    try:
        passes.run(module, builder)
        data: bytes = target.emit_object(module)
    finally:
        at_work.pop()
    return data


def compile_group(group: Group, schedule: Schedule | None = None) -> Kernel:
    """Return the kernel of a group, compiled unless one of its structure is in this process
    already.

    Raises ``device.Unsupported`` with the reason where there is no code for a node.
    """
    check(group)
    schedule = schedule or Schedule()
    explicit = _explicit(group, nest(group, unroll=True))

    def made() -> bytes:
        try:
            return _object(group, schedule, explicit)
        finally:
            give_back_heap()  # LLVM leaves tens of MB there; it takes 1 ms, of 25 to 150

    return bound(group, schedule, made)
