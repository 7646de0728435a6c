"""THE op table: one entry declares an op, and nothing else has to be edited for it.

The entries stand in ``table_elementwise``, ``table_reduction``, ``table_structure`` and
``table_random``, those of SciPy's functions in ``table_scipy``; this is where the rest of alight
gets them from.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from alight._src.base.cache_registry import Cache, register
from alight._src.base.originals import np
from alight._src.ir import table_elementwise, table_random, table_reduction, table_structure
from alight._src.ir.op import OPS, UFUNCS, Dtype, Kind, Op, Origin, Warns, declare, enter

if TYPE_CHECKING:
    from alight._src.ir.body import Expr

__all__ = [
    "OPS", "TABLES", "UFUNCS", "Dtype", "Kind", "Op", "Origin", "Warns", "bring_tables", "declare",
    "enter", "loop_dtypes", "op_of", "trees",
]  # fmt: skip

# The order matters: every binary ufunc of the first table gets its reduce in the second.
TABLES = (table_elementwise, table_reduction, table_structure, table_random)

# By the module of a package: the table of its functions, which is read once a program has it.
_LATE_TABLES = {"scipy.special": "alight._src.ir.table_scipy"}


def bring_tables() -> None:
    """Declare the ops of packages that the program has imported by now."""
    for name in list(_LATE_TABLES):
        module = sys.modules.get(name)
        if module is not None and not getattr(
            getattr(module, "__spec__", None), "_initializing", False
        ):
            import_module(_LATE_TABLES[name])  # by two threads at once, it runs once
            _LATE_TABLES.pop(name, None)


def op_of(ufunc: np.ufunc) -> Op | None:
    """Return the op that a ufunc defines; None where the table has none."""
    if ufunc not in UFUNCS and _LATE_TABLES:
        bring_tables()
    return UFUNCS.get(ufunc)


def loop_dtypes(op: Op, operands: Sequence[Dtype | type]) -> tuple[Dtype, ...]:
    """Return input and output dtypes of the loop NumPy would run.

    A Python scalar is given as its type. Raises what NumPy raises where there is no loop.
    """
    return _loop_dtypes(op, *operands)


# Bounded, so that structured and string dtypes made in a loop cannot pile up: 4096 entries hold
# every op with every pair of plain dtypes that a program can be expected to mix.
@lru_cache(maxsize=4096, typed=True)  # long and long long are one dtype to NumPy, of two types
def _loop_dtypes(op: Op, *operands: Any) -> tuple[Dtype, ...]:
    # resolve_dtypes takes int, float and complex; a bool is not weak
    wanted = tuple(np.dtype(bool) if o is bool else o for o in operands)
    if op.resolve is not None:
        return op.resolve(wanted)
    reference = op.reference
    if not isinstance(reference, np.ufunc):
        raise TypeError(
            f"op {op.name}: NumPy has no loops for it. Fix: ask for dtypes of a ufunc, or declare "
            "the op with resolve=."
        )
    resolved: tuple[Dtype, ...] = reference.resolve_dtypes((*wanted, *[None] * reference.nout))
    return resolved


register(Cache.OPS, _loop_dtypes.cache_clear)


def trees(op: Op, operands: Sequence[Dtype], result: Dtype) -> tuple[Expr, ...] | None:
    """Return the typed trees of an elementwise op, one for each of its outputs; None where it has
    no body for these dtypes."""
    from alight._src.ir.body import resolved  # who only records needs no bodies

    names = tuple([d.name for d in operands])
    results: tuple[str, ...] = (result.name,)
    if op.nout > 1 and op.body is not None:
        results = tuple([d.name for d in loop_dtypes(op, operands)[op.nin :]])
    return resolved(op.body, names, results)
