"""What a body gives, computed by NumPy: the reference of an op that NumPy has no function for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alight._src.base.originals import np

if TYPE_CHECKING:
    from alight._src.ir.body import Expr

__all__ = ["computed"]

# The primitives that NumPy has as one correctly rounded operation; a body that asks for others has
# no such reference.
_FORMS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": operator.lshift,
    "shr": operator.rshift, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "not": operator.invert,
    "neg": operator.neg, "sqrt": np.sqrt, "fabs": np.abs, "where": np.where, "rarely": np.where,
}  # fmt: skip


def computed(trees: Sequence[Expr], operands: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    """Return the values of trees on arrays of their operands' dtypes."""
    done: dict[int, Any] = {}

    def value(tree: Expr) -> Any:
        found = done.get(id(tree))
        if found is None:
            found = done[id(tree)] = _one(tree, [value(arg) for arg in tree.args], operands)
        return found

    with np.errstate(all="ignore"):  # what is computed for every element is wanted of some
        return [value(tree) for tree in trees]


def _one(tree: Expr, args: list[Any], operands: Sequence[np.ndarray[Any, Any]]) -> Any:
    if tree.prim == "operand":
        return operands[tree.value]
    if tree.prim == "const":
        return np.dtype(tree.dtype).type(tree.value)
    if tree.prim == "cast":
        return np.asarray(args[0]).astype(tree.dtype)
    if tree.prim == "bitcast":
        return np.asarray(args[0]).view(tree.dtype)
    return _FORMS[tree.prim](*args)
