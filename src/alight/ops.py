"""`alight.ops`: make any ufunc or function one of alight's ops, which fuse and compile."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from alight._core import native
from alight._src.base.at_fork import renewed
from alight._src.base.cache_registry import Cache, forget
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.ir.body import choose, operands_named, typed
from alight._src.ir.op import NUMPY_ULP
from alight._src.ir.op_table import OPS, UFUNCS, Kind, Op, Origin, enter
from alight._src.record.declared_ops import STAND_INS, adopt, adopt_all
from alight._src.record.ufunc_calls import FUNCTIONS
from alight._src.run import residency

__all__ = ["declare"]

_declaring = renewed(globals(), "_declaring", threading.RLock)

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Where a function of Python's own is tried out: dtypes whose bodies are chosen apart.
_TRIED = ("float64", "float32", "int64", "bool")


def declare(
    function: _Function,
    *,
    body: str | Mapping[str, str] | None = None,
    lower: Callable[..., Any] | None = None,
    name: str | None = None,
    ulp: float = 0.0,
    reference_ulp: float | Callable[..., Any] = NUMPY_ULP,
    flops: float = 1.0,
) -> _Function:
    """Make calls of a function on Arrays an op: recorded, fused with others, compiled.

    The function itself defines the op. Its dtypes, its errors and its small calls are its own;
    generated code is used on a device after it gave the function's results there, on special and
    random values; and the function computes what no device has code for.

    Parameters
    ----------
    function : callable
        A ufunc, such as ``scipy.special.j0``, or a function of arrays.
    body : str or mapping, optional
        What is computed of one element: an expression over the operands ``x``, ``y`` and ``z``,
        perhaps after lines that name intermediate values, in the language of op bodies. A mapping
        chooses it by the operands' dtype or kinds: ``{"f": ..., "i": ...}``; see "Add an op".
    lower : callable, optional
        In place of `body`: the function again, written with NumPy's functions or other ops. It
        is given the call's arguments and returns an Array, or NotImplemented for arguments that
        it leaves to `function`.
    name : str, optional
        What reports call the op. By default the function's ``__name__``.
    ulp : float, default: 0
        How far results of `body` may be from the true value, in units in the last place. Zero:
        they have the bits of `function`.
    reference_ulp : float or callable, default: 4
        How far `function` itself may be from the true value, in the same units; where that
        differs, a function of the operands that gives the units of each element.
    flops : float, default: 1
        Arithmetic operations for one element, for the cost model. An op with an `ulp` is priced
        by its body.

    Returns
    -------
    callable
        What to call: `function`, if NumPy asks Arrays in it, as in all ufuncs. Other functions
        ask nobody: what is returned stands in for them, and is the op. Calls of the program's own
        `function` itself stay calls of it, in every door; those of a package's that is written in
        Python go to the op under ``alight run`` and in ``@alight.jit``.

    Raises
    ------
    ValueError
        The function is one of alight's ops, or the declaration cannot hold. The message says why.
        What a program declared itself it may declare anew.

    Examples
    --------
    >>> import numpy as np
    >>> import alight
    >>> def smoothstep(x):
    ...     return x * x * (3 - 2 * x)
    >>> smoothstep = alight.ops.declare(smoothstep, body={"f": "x * x * (3 - 2 * x)"}, flops=4)
    >>> smoothstep(alight.asarray([0.0, 0.25, 1.0]))
    array([0.     , 0.15625, 1.     ])
    """
    adopt_all()  # what alight has for packages that are imported counts as declared
    if not callable(function) or isinstance(function, type):
        raise _bad(function, "it is no function", "give a ufunc or a function of arrays")
    called = name or str(getattr(function, "__name__", ""))
    with _declaring:
        _replaced(function, called)
    if (body is None) == (lower is None):
        why = "neither a body nor a lower is given" if body is None else "both are given"
        raise _bad(function, why, "give body=, or lower= for what is composed of other ops")
    if not ulp >= 0 or not flops >= 0:
        raise _bad(function, f"ulp is {ulp!r} and flops {flops!r}", "give numbers from zero up")
    fields: dict[str, Any] = {
        "ulp": ulp,
        "reference_ulp": reference_ulp,
        "origin": Origin.PROGRAM,
        "called": getattr(function, "__name__", called),
    }
    kind = Kind.ELEMENTWISE
    if lower is not None:
        if not callable(lower):
            raise _bad(function, f"lower is {lower!r}", "give a function with the same arguments")
        kind, fields["lower"] = Kind.COMPOSITION, lower
    else:
        assert body is not None
        fields |= {"body": body, "flops": flops, "special": ulp > 0}
        if not isinstance(function, np.ufunc):
            fields |= {"nin": _operands(function, body), "resolve": _resolver(function)}
        else:
            fields |= {"nin": function.nin, "nout": function.nout}
    op = Op(called, kind, function, **fields)
    if lower is None:
        _check_body(function, op)
    with _declaring:
        earlier = _replaced(function, called)  # once more: another thread may have declared it
        enter(op)
        adopt(op)
        for one in earlier:
            if one.name != called:
                del OPS[one.name]
            if one.reference is not function:
                for table in (UFUNCS, FUNCTIONS, STAND_INS):
                    table.pop(one.reference, None)
        ours = STAND_INS.get(function, function)
    if earlier:
        with residency.LOCK:  # no plan is made meanwhile
            forget(Cache.OPS)  # or their functions would stay, with all that these hold
    return ours  # type: ignore[return-value]


def _replaced(function: Any, called: str) -> list[Op]:
    """Return the ops in whose place a function of that name comes: what the program declared it
    may declare anew, as a cell of a notebook is run again. Raise ValueError where it cannot."""
    earlier = [
        op
        for op in list(OPS.values())
        if op.origin is Origin.PROGRAM and (op.reference is function or op.name == called)
    ]
    known = isinstance(function, np.ufunc) and function in UFUNCS
    known = known or function in FUNCTIONS or function in STAND_INS
    if known and not any(op.reference is function for op in earlier):
        raise _bad(function, "it is an op already", "call it, or declare a function of your own")
    there = OPS.get(called)
    if not called or (there is not None and there.origin is not Origin.PROGRAM):
        why = f"the name {called!r} is another op's" if called else "it has no name"
        raise _bad(function, why, "give one with name=")
    return earlier


def _bad(function: Any, why: str, fix: str) -> ValueError:
    called = getattr(function, "__name__", repr(function))
    return ValueError(f"alight.ops.declare({called}): {why}. Fix: {fix}.")


def _operands(function: Any, body: str | Mapping[str, str]) -> int:
    """Return how many operands a function of Python's takes: as many as its bodies name."""
    texts = [body] if isinstance(body, str) else list(body.values())
    count = max(map(operands_named, texts), default=0)
    try:
        inspect.signature(function).bind(*range(count))
    except failures(TypeError):
        raise _bad(
            function,
            f"its body has {count} operands and the function takes others",
            "name as many of x, y and z in the body as the function has arguments",
        ) from None
    except failures(ValueError):
        pass  # it tells nothing of its arguments
    if not count:
        raise _bad(function, "its body names no operand", "write an expression of x, y and z")
    return count


def _resolver(function: Any) -> Callable[..., tuple[np.dtype[Any], ...]]:
    """Return what gives the dtypes of operands and result of a function that has no loops: where
    the operands have one dtype, that and the dtype of what the function makes of it.

    What it does with several nobody but the function knows: it may cast at any step, or never. Of
    Python's numbers it may compute before an array comes to it, in double or with whole numbers
    that have no end; these are taken where that is what the op computes in.
    """

    def resolve(operands: Any) -> tuple[np.dtype[Any], ...]:
        dtypes = [o for o in operands if not isinstance(o, type)]
        common = dtypes[0]
        for one in operands:
            if isinstance(one, type):
                same = common.kind in "fc" and np.result_type(common, np.dtype(one)) == common
            else:
                same = one == common and one.num == common.num
            if not same:
                raise TypeError(f"{one} beside {common}: the function knows what comes of both")
        try:
            with warnings_suppressed():
                found = np.asarray(function(*[np.ones(2, common) for _ in operands]))
        except failures() as error:  # ones are none of the program's
            raise TypeError(f"the function makes nothing of ones of {common}") from error
        if found.shape != (2,):
            raise TypeError(f"the function makes {found.shape} of (2,) elements")
        return (*[common] * len(operands), found.dtype)

    return resolve


def _check_body(function: Any, op: Op) -> None:
    """Raise ValueError unless the body has types for a loop of the function."""
    if isinstance(function, np.ufunc):
        if function.signature is not None or function.nin > 3:
            why = f"its loops take {function.signature or f'{function.nin} operands'}"
            raise _bad(function, why, "give lower=; a body is of up to three single elements")
        loops = [tuple(text.split("->")) for text in function.types]
        found = [
            (tuple(map(np.dtype, before)), tuple(map(np.dtype, after)))
            for before, after in loops
            if all(native(np.dtype(c)) for c in before + after)
        ]
    else:
        found = []
        for name in _TRIED:
            try:
                dtypes = op.resolve([np.dtype(name)] * op.nin) if op.resolve else ()
            except failures():
                continue  # the function takes no such operands
            if all(map(native, dtypes)):
                found.append((dtypes[:-1], dtypes[-1:]))
    bodies = 0
    for operands, results in found:
        names = tuple([dtype.name for dtype in operands])
        text = choose(op.body, names)
        if text is not None:
            single = not isinstance(op.body, str)
            typed(text, names, tuple([dtype.name for dtype in results]), single)
            bodies += 1
    if not bodies:
        loops_told = ", ".join(" ".join(map(str, operands)) for operands, _ in found[:8])
        why = f"it has no body for what it computes with ({loops_told or 'no dtype of alight'})"
        raise _bad(function, why, 'give one for that kind, as {"f": ...}')
