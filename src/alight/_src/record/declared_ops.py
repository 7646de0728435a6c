"""Calls of functions that the op table defines beside NumPy's own: a program's, and those of
packages for which alight has a table.

A ufunc finds its op when it meets an Array, and NumPy's functions find their stand-in in
``FUNCTIONS``. Functions that ask nobody have a stand-in here, which the border calls in their
place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from alight._core import Value
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.ir.op_table import OPS, Kind, Op, bring_tables
from alight._src.record.numpy_fallback import arrays_in, exit_to_numpy, run_in_numpy
from alight._src.record.pending import elementwise, resolve
from alight._src.record.structural_calls import implements
from alight._src.record.tracebacks import public
from alight._src.record.ufunc_calls import FUNCTIONS, make, operands_of, outgrow, small

__all__ = ["STAND_INS", "adopt", "adopt_all", "composed"]

# By functions that do not ask the classes of what they are given: what is called in their place.
STAND_INS: dict[Any, Callable[..., Any]] = {}


def adopt_all() -> None:
    """Adopt what the table has by now: packages that the program has imported bring more."""
    bring_tables()
    for op in list(OPS.values()):
        known = op.reference in STAND_INS or op.reference in FUNCTIONS
        if op.kind is Kind.COMPOSITION and not known:
            adopt(op)


def adopt(op: Op) -> None:
    """Have calls of what an op is declared for record it, in the place of an op before it."""
    function: Any = op.reference
    if isinstance(function, np.ufunc):
        return
    call = _composition(op) if op.kind is Kind.COMPOSITION else _elementwise(op)
    if hasattr(function, "_implementation"):  # NumPy asks the classes of its arguments
        implements(function, reads=op.nin)(call)
    else:
        STAND_INS[function] = public(wraps(function)(call))


def _composition(op: Op) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return composed(op, args, kwargs)

    return call


def _elementwise(op: Op) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not arrays_in([*args, *kwargs.values()]):
            return op.reference(*args, **kwargs)
        if small(args) and not outgrow(args):
            return run_in_numpy(op.reference, args, kwargs)
        values = None
        operands = None if kwargs or len(args) != op.nin else operands_of(args)
        if operands is not None and _is_known(op, operands):
            try:
                values = elementwise(op, operands)
            except failures(OverflowError, TypeError, ValueError):
                values = None  # the function says what is wrong
        return exit_to_numpy(op.reference, args, kwargs) if values is None else make(values[0])

    return call


def _is_known(op: Op, operands: list[Any]) -> bool:
    """Tell whether dtypes and layout are known of what a function makes of operands."""
    if not any(isinstance(item, Value) for item in operands):
        return False
    try:
        return resolve(op, operands) is not None
    except failures():  # it was asked about arrays that stand in for these, and may refuse them
        return False


def composed(op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return ``op.reference(*args, **kwargs)`` as its composition, where that takes these
    arguments."""
    assert op.lower is not None, op
    arrays = arrays_in([*args, *kwargs.values()])
    if not arrays:
        return op.reference(*args, **kwargs)
    if small(arrays) and not outgrow(arrays):
        return run_in_numpy(op.reference, args, kwargs)
    try:
        made = op.lower(*args, **kwargs)
    except failures(OverflowError, TypeError, ValueError):
        made = NotImplemented  # the function says what is wrong
    return exit_to_numpy(op.reference, args, kwargs) if made is NotImplemented else made


adopt_all()
