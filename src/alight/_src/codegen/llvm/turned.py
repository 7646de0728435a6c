"""Vectors of elements read round the end of short rows that lie one behind the other.

A row's elements stand ``shift`` places further on; the last ones come round to its front. Counted
through all rows, the element at a place lies ``shift`` places before it, or, in the first ``shift``
columns of a row, a row's length behind that. So two masked loads make a vector, whatever rows it
goes across.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alight._src.base.records import dataclass, replace
from alight._src.codegen.llvm.blocks import letter
from alight._src.codegen.llvm.expressions import register_type

if TYPE_CHECKING:
    from alight._src.codegen.llvm.expressions import Code

# A place is divided by a row's length as a product with 2**20 / length, rounded up. That is exact
# while place * length is below 2**20, and fits into 32 bits while place is below 2**12.
_BITS = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """How an operand goes round the end of its rows: by how many places, the length of a row, the
    column of the operand's first element, and the inverse of the length; all are numbers in the
    code."""

    shift: str
    length: str
    first: str
    inverse: str

    def after(self, code: Code, start: str) -> Turn:
        """Return the turn of the operand some elements on."""
        return replace(self, first=code.emit(f"add i64 {self.first}, {start}"))


def inverse(code: Code, length: str) -> str:
    """Return the inverse of a row's length."""
    more = code.emit(f"add i64 {length}, {(1 << _BITS) - 1}")
    return code.emit(f"udiv i64 {more}, {length}")


def turned_lanes(
    code: Code, turn: Turn, index: str, lanes: int, columns: dict[tuple[str, str], str]
) -> str:
    """Return the mask of the lanes, from an index on, that have come round; ``columns`` holds the
    columns of the lanes found so far."""
    whole = f"<{lanes} x i32>"
    known = turn.length, turn.first
    if known not in columns:
        start = code.emit(f"add i64 {turn.first}, {index}")
        steps = ", ".join(f"i32 {i}" for i in range(lanes))
        place = code.emit(f"add {whole} {_every(code, start, lanes)}, <{steps}>")
        times = code.emit(f"mul {whole} {place}, {_every(code, turn.inverse, lanes)}")
        row = code.emit(f"lshr {whole} {times}, splat (i32 {_BITS})")
        before = code.emit(f"mul {whole} {row}, {_every(code, turn.length, lanes)}")
        columns[known] = code.emit(f"sub {whole} {place}, {before}")
    return code.emit(f"icmp ult {whole} {columns[known]}, {_every(code, turn.shift, lanes)}")


def load_turned(
    code: Code, dtype: str, base: str, turn: Turn, index: str, lanes: int, mask: str, valid: str
) -> str:
    """Return the elements of an operand from an index on, of which those of a mask have come
    round. If only some lanes are ``valid``, the first one stands again in the others."""
    straight = code.emit(f"sub i64 {index}, {turn.shift}")
    around = code.emit(f"add i64 {straight}, {turn.length}")
    flags = f"<{lanes} x i1>"
    rest = code.emit(f"xor {flags} {mask}, splat (i1 true)")
    other = "poison"
    if valid:
        first = code.emit(f"extractelement {flags} {mask}, i32 0")
        place = code.emit(f"select i1 {first}, i64 {around}, i64 {straight}")
        one, whole = register_type(dtype), register_type(dtype, lanes)
        value = code.load(code.at(base, place, dtype), dtype)
        only = code.emit(f"insertelement {whole} poison, {one} {value}, i32 0")
        other = code.emit(
            f"shufflevector {whole} {only}, {whole} poison, <{lanes} x i32> zeroinitializer"
        )
        mask, rest = (code.emit(f"and {flags} {m}, {valid}") for m in (mask, rest))
    loaded = _masked_load(code, dtype, code.at(base, straight, dtype), lanes, rest, other)
    return _masked_load(code, dtype, code.at(base, around, dtype), lanes, mask, loaded)


def _masked_load(code: Code, dtype: str, address: str, lanes: int, mask: str, other: str) -> str:
    whole, flags = register_type(dtype, lanes), f"<{lanes} x i1>"
    name = f"llvm.masked.load.v{lanes}{letter(dtype)}.p0"
    code.module.share(name, f"declare {whole} @{name}(ptr, {flags}, {whole})")
    given = f"ptr align 1 {address}, {flags} {mask}, {whole} {other}"
    return code.emit(f"call {whole} @{name}({given})")


def _every(code: Code, value: str, lanes: int) -> str:
    whole = f"<{lanes} x i32>"
    few = code.emit(f"trunc i64 {value} to i32")
    first = code.emit(f"insertelement {whole} poison, i32 {few}, i32 0")
    return code.emit(f"shufflevector {whole} {first}, {whole} poison, {whole} zeroinitializer")
