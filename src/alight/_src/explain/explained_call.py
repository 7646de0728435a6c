"""One call explained: made once, and the report of what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from alight._src.adapt.first_plan import plan_at_once
from alight._src.base.failures import failures
from alight._src.explain.report import Report, below_floor, made_report
from alight._src.explain.tables_data import Row
from alight._src.log.decisions import LOG, place_of
from alight._src.run import evaluate

__all__ = ["as_called", "explain"]


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Return the report of one call.

    The call is made, and what it returns is evaluated.

    Parameters
    ----------
    function : callable
        What to call: a plain function, a jitted one, or one of NumPy's.
    *args, **kwargs
        Its arguments.

    Returns
    -------
    Report
        What was decided, where it ran, what it took. ``explanation()`` is the text with each
        decision's losers; of a jitted function it also says which way such calls take and why, and
        of another why nothing was placed, if so.

    Raises
    ------
    TypeError
        Where the function cannot be called so.

    Examples
    --------
    >>> import alight
    >>> import numpy as np
    >>> with alight.policy(force="cpu:generated", floor=0):
    ...     found = alight.explain(lambda x: np.exp(-x).sum(), alight.ones(100))
    >>> found.to_dict()["decisions"][0]["operation"]
    'negative+exp+sum'
    """
    from alight._src.jit.decorator import Jitted  # a process that jits nothing need not load it
    from alight._src.record.numpy_fallback import holds_arrays

    plan_at_once()  # plans are what is asked for
    with as_called("explain", function, args, kwargs):
        before = LOG.snapshot()
        result = function(*args, **kwargs)
    evaluate.evaluate_all()
    del result  # alive until here: what nobody holds is not computed
    explained = made_report(LOG.snapshot().since(before))
    document = explained._document
    if isinstance(function, Jitted):
        name, site, way, reason = function.standing(args, kwargs)
        row = {"name": name, "call_site": place_of(site), "way": way, "reason": reason}
        document["calls"] = [row]
    elif not any(document[part] for part in ("decisions", "exits", "fallbacks", "demotions")):
        ours = holds_arrays((args, kwargs))
        document["calls"] = [_left_to_numpy(function, ours, document["totals"])]
    return explained


def _left_to_numpy(function: Any, ours: bool, totals: Row) -> Row:
    """Return why nothing of a call was placed; ``ours``: Arrays are among its arguments."""
    name = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", "the call"))
    code = getattr(function, "__code__", None)
    why, fixes = [below_floor(totals)], ["alight.policy(floor=0) has it planned"]
    if totals["floor_elements"] == 0:
        why, fixes = [], []
    if not ours:
        why.append("what functions that are not jitted do with ndarrays")
        if code is not None:
            fixes.insert(0, f"alight.explain(alight.jit({name}), …)")
    why = why or ["what is not in the op table"]
    fix = f". Fix: {'; '.join(fixes)}" if fixes else ""
    site = None if code is None else place_of((code, 0))
    reason = f"NumPy does at once {', and '.join(why)}{fix}"
    return {"name": name, "call_site": site, "way": "numpy", "reason": reason}


@contextlib.contextmanager
def as_called(
    name: str, function: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Have a question about a call, which is made inside, raise TypeError that says how to ask
    where it was given something that cannot be called, or not as it is called there."""
    if not callable(function):
        raise TypeError(
            f"alight.{name} takes a function and the arguments of one call, not an object of type "
            f"{type(function).__name__}. Fix: write alight.{name}(f, x) for the call f(x)."
        )
    try:
        yield
    except failures(TypeError) as error:
        # Not before the call: what decorators say that a function takes need not be what it does.
        misfit = "" if _ran_others(error.__traceback__) else _misfit(function, args, kwargs)
        if not misfit:
            raise
        called = getattr(function, "__name__", "f")
        raise TypeError(
            f"alight.{name}: {called} does not take the arguments given after it; it is "
            f"{called}{misfit}. Fix: write alight.{name}({called}, x) for the call {called}(x)."
        ) from None


def _ran_others(traceback: TracebackType | None) -> bool:
    """Tell whether code that is not alight's ran until an error was raised."""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] != __name__.partition(".")[0]:
            return True
        traceback = traceback.tb_next
    return False


class _Default:
    """Stands for a default, which may be an array."""

    def __repr__(self) -> str:
        return "…"


def _misfit(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return what a function takes and what of that a call gets wrong; nothing where it says not,
    or takes the call."""
    from inspect import Parameter, Signature, signature  # late: few get it wrong

    from alight._src.jit.decorator import Jitted

    plain = function.__wrapped__ if isinstance(function, Jitted) else function
    try:
        taken = signature(plain, follow_wrapped=False)  # a decorator's takes what it takes itself
    except failures(TypeError, ValueError):  # it does not say what it takes
        return ""
    try:
        taken.bind(*args, **kwargs)
    except failures(TypeError) as error:
        empty = Parameter.empty
        shown = [
            one.replace(default=empty if one.default is empty else _Default(), annotation=empty)
            for one in taken.parameters.values()
        ]
        return f"{Signature(shown)}: {error}"
    return ""
