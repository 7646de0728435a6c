"""Loop groups that read some operands round the end of an axis.

In what is compiled each roll is an input of its own, over the memory of what it rolls: its places
are those of the loop less the shift, with the length of the axis added where that is below 0. An
outer axis moves such an operand at every index; along the innermost a run ends wherever one of them
comes round, so that the loop over its elements is that of any other group. Short rows are flat:
they are one run, each vector of which is made of what has come round and what has not (``turned``).

Behind the dims of the nest stand, in this order: the axis that is cut for threads (or -1), its
length, a zero, and the first index of this part along it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.base.records import replace
from alight._src.codegen.llvm.turned import Turn, inverse
from alight._src.codegen.llvm.vector_loops import Strips, least
from alight._src.ir.group import Group

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest, Schedule
    from alight._src.codegen.llvm.expressions import Module
    from alight._src.codegen.llvm.simd import Operand

AXIS, LENGTH, _, FIRST = range(4)
# Machines with vectors this wide have masked loads of 32 and 64 bits (AVX).
_MASKED_BITS = 256


def rolled_kernel(
    module: Module, group: Group, shape: Nest, schedule: Schedule, vector_bits: int
) -> None:
    """Add the entry point of a loop group with rolls to a module."""
    found = group.form.rolled
    assert found is not None  # nest has found it, too
    whole = Group(group.kind, found.graph, group.shape)
    _Rolled(module, whole, shape, schedule, vector_bits).write()


class _Rolled(Strips):
    def loops(self) -> None:
        """Write the loops over all axes."""
        code, frame = self.code, self.frame
        cut, length, first = (
            code.emit(f"load i64, ptr {code.offset('%dims', str(8 * (frame.rank + k)))}")
            for k in (AXIS, LENGTH, FIRST)
        )
        # of each axis along which something is rolled: the first index here, and its whole length
        self.begins: dict[int, str] = {}
        self.wholes: dict[int, str] = {}
        self.shifts: dict[tuple[int, int], str] = {}
        for operand, axis, by in self.shape.turns:
            if axis not in self.begins:
                here = code.emit(f"icmp eq i64 {cut}, {axis}")
                self.begins[axis] = code.emit(f"select i1 {here}, i64 {first}, i64 0")
                self.wholes[axis] = code.emit(
                    f"select i1 {here}, i64 {length}, i64 {frame.dims[axis]}"
                )
            whole = self.wholes[axis]
            rest = code.emit(f"srem i64 {by}, {whole}")
            rest = code.emit(f"add i64 {rest}, {whole}")
            self.shifts[operand, axis] = code.emit(f"srem i64 {rest}, {whole}")
        self.turned_rows = self.shape.flat and self.vector_bits >= _MASKED_BITS
        if self.turned_rows:
            self.inverse = inverse(code, self.wholes[self.last])
        self.along(0)

    def along(self, axis: int) -> None:
        """Write the loops over an axis and those inside."""
        if axis == self.last:
            self.innermost()
            return
        if axis == self.last - 1 and self.turned_rows:
            self.flat()
            return
        code, frame = self.code, self.frame
        with code.loop(frame.dims[axis]) as index:
            before = frame.pointers
            frame.pointers = self.turned(axis, index)
            self.along(axis + 1)
            frame.pointers = before

    def turned(self, axis: int, index: str) -> list[str]:
        """Return the addresses a number of steps along an axis, round its end where they are."""
        code, frame = self.code, self.frame
        pointers = frame.moved(axis, index)
        for (operand, other), shift in self.shifts.items():
            if other == axis:
                place = code.emit(f"add i64 {index}, {self.begins[axis]}")
                around = code.emit(f"icmp slt i64 {place}, {shift}")
                more = code.emit(f"select i1 {around}, i64 {self.wholes[axis]}, i64 0")
                steps = code.emit(f"sub i64 {more}, {shift}")
                far = code.emit(f"mul nsw i64 {steps}, {frame.steps[operand][axis]}")
                pointers[operand] = code.offset(pointers[operand], far)
        return pointers

    def moved(self, axis: int, start: str) -> str:
        """Move on along an axis, and return how much of it is left before an operand comes
        round."""
        left = self.code.emit(f"sub i64 {self.until(axis, start)}, {start}")
        self.frame.pointers = self.turned(axis, start)
        return left

    def until(self, axis: int, start: str) -> str:
        """Return where, behind an index, the first operand comes round the end of an axis."""
        code, length = self.code, self.frame.dims[axis]
        stop = length
        for (_, other), shift in self.shifts.items():
            if other == axis:
                end = code.emit(f"sub i64 {shift}, {self.begins[axis]}")
                ahead = code.emit(f"icmp sgt i64 {end}, {start}")
                stop = least(code, stop, code.emit(f"select i1 {ahead}, i64 {end}, i64 {length}"))
        return stop

    def operands(self) -> list[Operand]:
        """Return the operands where they are now, those of flat rows with their turns."""
        found, last = super().operands(), self.last
        if self.turned_rows:
            for (operand, axis), shift in self.shifts.items():
                if axis == last:
                    turn = Turn(shift, self.wholes[last], self.begins[last], self.inverse)
                    found[operand] = replace(found[operand], motion="t", turn=turn)
        return found

    def innermost(self) -> None:
        """Write the runs along the innermost axis."""
        frame, last = self.frame, self.last
        if last not in self.begins:
            self.run(self.operands(), frame.dims[last])
            return
        with self.code.runs(frame.dims[last]) as run:
            run.stop = self.until(last, run.start)
            before = frame.pointers
            frame.pointers = self.turned(last, run.start)
            self.run(self.operands(), self.code.emit(f"sub i64 {run.stop}, {run.start}"))
            frame.pointers = before
