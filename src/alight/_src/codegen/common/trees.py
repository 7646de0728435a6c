"""What a typed tree is made of, and whether that goes through the lanes of vectors one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alight._src.ir.body import Expr

__all__ = ["VECTORS", "ends_of", "in_lanes", "one_by_one", "scalar_only"]

# what is computed for one element at a time
_SCALAR = frozenset(("libm", "gcd", "ipow", "rarely", "by_zero"))
# functions of the C library that have a form for vectors
VECTORS = frozenset(("fmod",))
# Functions that read tables and are made for vectors all the same, which takes LLVM 4 ms more each
# (EPYC): one by one tan of huge float64 took 2.6 of NumPy's time, sin and cos 0.2.
_GATHERING = frozenset(("tan_far",))


def scalar_only(tree: Expr) -> bool:
    """Tell whether part of a tree has a form for vectors that goes through its lanes."""
    return any(part.prim in _SCALAR for part in _parts_of(tree, lambda part: True))


def _parts_of(tree: Expr, inside: Callable[[Expr], bool]) -> Iterator[Expr]:
    """Yield a tree and what it is made of, shared parts once; nothing of what is not gone into."""
    seen: set[int] = set()
    ready = [tree]
    while ready:
        tree = ready.pop()
        if id(tree) not in seen:
            seen.add(id(tree))
            yield tree
            if inside(tree):
                ready += tree.args


def ends_of(tree: Expr, done: dict[int, str]) -> list[Expr]:
    """Return the operands of a tree and those parts that are done, where they are met first."""

    def open_(part: Expr) -> bool:
        return part.prim == "const" or id(part) not in done

    found = _parts_of(tree, open_)
    return [part for part in found if part.prim == "operand" or not open_(part)]


def one_by_one(tree: Expr) -> bool:
    """Tell whether a tree is for single elements: it leaves the kernel, or reads tables."""
    found = _parts_of(tree, lambda part: part.prim != "rarely")
    return any(part.prim in ("apart", "libm", "table") for part in found)


def in_lanes(tree: Expr) -> bool:
    """Tell whether a tree, or a function in it, goes through the lanes of vectors all the same."""
    for part in _parts_of(tree, lambda part: True):
        if part.prim in ("table", "gcd", "ipow", "by_zero"):
            return True
        if part.prim == "libm" and part.value not in VECTORS:
            return True
        alone = part.prim == "apart" and part.value[0] not in _GATHERING
        if alone and any(map(in_lanes, part.value[1])):
            return True
    return False
