"""Packed records in vectors: fields taken apart, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alight._src.codegen.llvm.blocks import Blocks


def taken_apart(code: Blocks, vectors: Sequence[str], whole: str, lanes: int) -> list[str]:
    """Return the fields of records that fill vectors of a type: as many as there are vectors."""
    count = len(vectors)
    if count == 1:
        return list(vectors)
    if count % 2:
        return [
            _picked(
                code,
                vectors,
                [divmod(lane * count + field, lanes) for lane in range(lanes)],
                whole,
            )
            for field in range(count)
        ]
    # every second element first: log2 steps where the count is a power of two
    halves = []
    for odd in (0, 1):
        order = [2 * i + odd for i in range(lanes)]
        some = [
            _shuffled(code, vectors[k], vectors[k + 1], order, whole) for k in range(0, count, 2)
        ]
        halves.append(taken_apart(code, some, whole, lanes))
    return [field for pair in zip(*halves, strict=True) for field in pair]


def put_together(code: Blocks, fields: Sequence[str], whole: str, lanes: int) -> list[str]:
    """Return the vectors that records of these fields fill, one after the other."""
    count = len(fields)
    if count == 1:
        return list(fields)
    if count % 2:
        return [
            _picked(
                code,
                fields,
                [divmod(vector * lanes + lane, count)[::-1] for lane in range(lanes)],
                whole,
            )
            for vector in range(count)
        ]
    evens, odds = (put_together(code, fields[odd::2], whole, lanes) for odd in (0, 1))
    result = []
    for even, odd in zip(evens, odds, strict=True):
        for start in (0, lanes // 2):
            order = [start + i // 2 + i % 2 * lanes for i in range(lanes)]
            result.append(_shuffled(code, even, odd, order, whole))
    return result


def _picked(code: Blocks, vectors: Sequence[str], places: list[tuple[int, int]], whole: str) -> str:
    """Return for each lane the element of a vector (number, lane), one vector after the other."""
    lanes = len(places)
    needed = sorted({vector for vector, _ in places})
    if len(needed) == 1:
        order = [lane for _, lane in places]
        return _shuffled(code, vectors[needed[0]], vectors[needed[0]], order, whole)
    made, done = vectors[needed[0]], {needed[0]}
    where = [lane if vector == needed[0] else -1 for vector, lane in places]
    for other in needed[1:]:
        order = [
            lanes + lane if vector == other else where[i] if vector in done else -1
            for i, (vector, lane) in enumerate(places)
        ]
        made = _shuffled(code, made, vectors[other], order, whole)
        done.add(other)
        where = [i if vector in done else -1 for i, (vector, _) in enumerate(places)]
    return made


def _shuffled(code: Blocks, a: str, b: str, order: list[int], whole: str) -> str:
    mask = ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in order)
    return code.emit(f"shufflevector {whole} {a}, {whole} {b}, <{len(order)} x i32> <{mask}>")
