"""A group ready to run on a card: its programs of launches, and what they are called with."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from alight._src.base.records import replace
from alight._src.codegen.common.keys import structure
from alight._src.codegen.common.loops import Nest
from alight._src.codegen.common.source import Grid, group_gap
from alight._src.codegen.cuda.group_forms import Form, card_nest, form, schedule
from alight._src.codegen.cuda.kernel_program import scalars
from alight._src.ir.group import Group
from alight.backends.cuda.cuda_session import Session
from alight.device import Unsupported


class _Call:
    """One launch of a kernel with all its arguments in place but those of its operands."""

    __slots__ = (
        "_addresses", "arguments", "blocks", "busy", "function", "given", "numbers", "threads"
    )  # fmt: skip

    def __init__(self, function: int, step: Any, pointers: int) -> None:
        count = pointers + len(step.numbers)
        self.function = function
        self.numbers = tuple(step.numbers)
        self.blocks = step.blocks
        self.threads = step.threads
        self.busy = False
        # eight bytes for each: a number of four is read from the lower half
        self.given = (ctypes.c_longlong * count)(*[0] * pointers, *step.numbers)
        start = ctypes.addressof(self.given)
        self._addresses = (ctypes.c_void_p * count)(*[start + 8 * i for i in range(count)])
        self.arguments = ctypes.addressof(self._addresses)

    def launch(self, driver: Any, addresses: Sequence[int], stream: int) -> None:
        """Launch for operands at these addresses."""
        if self.busy:  # a finalizer or signal handler, between filling them in and the launch
            _Call(self.function, self, len(addresses)).launch(driver, addresses, stream)
            return
        self.busy = True
        try:
            self.given[: len(addresses)] = [*addresses]
            driver.launchKernel(
                *(self.function, self.blocks, 1, 1, self.threads, 1, 1, 0, stream),
                self.arguments,
                0,
            )
        finally:
            self.busy = False


class CudaKernel:
    """A group ready to run: one program of launches for packs, where operands are aligned, one for
    other places in memory, and each of these for what comes by value."""

    def __init__(self, session: Session, group: Group, grid: Grid | None, processors: int) -> None:
        graph = group.graph
        self.session = session
        self.group = group
        self.shape: Nest = card_nest(group)
        self.grid = grid
        self.processors = processors
        self.layouts = graph.operand_layouts
        self.empty = 0 in self.shape.dims[: self.shape.kept]
        self.scalars = scalars(group, self.shape)
        self.programs: dict[tuple[int, ...], tuple[tuple[int, ...], list[_Call]]] = {}
        if not self.scalars:
            self.program([0] * len(self.layouts))
        elif reason := group_gap("cuda", group):  # else its first launch says what is by value
            raise Unsupported(reason)

    def program(
        self, offsets: Sequence[int], by_value: tuple[int, ...] = ()
    ) -> tuple[tuple[int, ...], list[_Call]]:
        """Return the bytes of partial results and the launches, for operands at byte offsets but
        for those that come ``by_value``."""
        places = [offset & 15 for offset in offsets]
        for place in by_value:
            places[place] = 0
        key = (*places, *by_value)
        found = self.programs.get(key)
        if found is None:
            grid = self.grid or schedule(self.group, self.shape, places, self.processors)
            grid = replace(grid, by_value=by_value)
            made = form(self.group, self.shape, grid)
            text = self.text(made, grid)
            scratch, calls = made.scratch(), []
            if not self.empty:
                for step in made.steps():
                    function = self.session.function(text, step.entry)
                    calls.append(_Call(function, step, len(offsets) + len(scratch)))
            found = self.programs[key] = scratch, calls
        return found

    def text(self, made: Form, grid: Grid) -> str:
        """Return the text of a form, printed once for all groups of one structure."""
        key = structure(self.group, self.shape, grid)  # type: ignore[arg-type]
        found = _texts.get(key)
        if found is None:
            found = _texts[key] = made.text()
        return found


_texts: dict[str, str] = {}
