"""What a call would ask for: the graphs of its requests, found by recording it on copies.

The function's body runs, on Arrays that stand for the arguments, as inside `jit`. What it asks for
on the way (an element, a branch) is computed; what it returns, and what it assigned into its
arguments, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any

from alight._core import ArrayBase, Storage, Value, floor
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.config.loading import policy
from alight._src.ir.graph import Graph
from alight._src.jit.call_signature import leasable
from alight._src.jit.decorator import Jitted
from alight._src.jit.scope import as_jitted
from alight._src.plan.plan import Facts, Plan
from alight._src.record.array import Array
from alight._src.record.conversions import asarray
from alight._src.run import evaluate

__all__ = ["Request", "Unwatched", "arrays_in", "requests_of"]


@dataclass(frozen=True, slots=True)
class Request:
    """One graph that is evaluated as a whole. ``described`` are its leaves; the host reads the
    first ``read`` outputs."""

    graph: Graph
    described: tuple[evaluate.Leaf, ...]
    read: int

    def plan(self) -> Plan:
        """Return the plan under the policy in force."""
        return evaluate.plan_of(self.graph, self.described, self.read)

    def facts(self) -> Facts:
        """Return what that plan is made from."""
        return evaluate.facts_of(self.described, self.read)


class Unwatched:
    """Follows nothing while a body runs."""

    touched = False
    away = False

    def read(self, value: Value) -> None:
        """Do nothing: what is read was asked for."""

    def ran(self, leaves: Sequence[Value], plan: Plan) -> None:
        """Do nothing."""

    def recorded(self) -> None:
        """Do nothing: nobody waits for this body."""

    def plans(self, what: Any, ops: int, plan: Any) -> None:
        """Do nothing: it is planned where it is asked for."""

    def settle_given_up(self) -> None:
        """Do nothing: no body is given up."""

    def order(self, values: Sequence[Value]) -> None:
        """Return None: nothing is leased."""


class _Requests(Unwatched):
    """Notes the requests that run while a body is recorded."""

    def __init__(self) -> None:
        self.found: list[Request] = []

    def ran(self, leaves: Sequence[Value], plan: Plan) -> None:
        """Note the request behind a plan."""
        found = evaluate.asked_for(plan)
        if found is not None:
            self.found.append(Request(*found))


def requests_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Request]:
    """Return the requests of a call, in their order; the arguments stay as they are."""
    if isinstance(function, MethodType):
        args, function = (function.__self__, *args), function.__func__
    if isinstance(function, Jitted):
        function = function.__wrapped__
    stand_ins: list[Any] = []
    given = tuple([_stand_in(item, stand_ins) for item in args])
    keywords = {name: _stand_in(item, stand_ins) for name, item in kwargs.items()}
    before = [(array, array.storage.value) for array in stand_ins]
    watcher = _Requests()
    with policy(floor=0), _counted_apart(), as_jitted(function, watcher) as body:
        result = body(*given, **keywords)
        written = [array for array, value in before if array.storage.value is not value]
        roots = [
            array.storage.value
            for array in (*arrays_in(result), *written)
            if array.storage.value.op is not None
        ]
        if roots:
            last = evaluate.prepare(roots)
            watcher.found.append(Request(last.graph, last.described, len(set(map(id, roots)))))
    return watcher.found


@contextmanager
def _counted_apart() -> Iterator[None]:
    """Have what is recorded counted from nothing on, and forget it then: what nobody will ask for
    is not pending, and where a call is cut into requests must not depend on those before it."""
    before = floor.count, floor.pending, floor.anchor
    floor.count = floor.pending = 0
    floor.anchor = None
    try:
        yield
    finally:
        floor.count, floor.pending, floor.anchor = before


def _stand_in(item: Any, made: list[Any]) -> Any:
    """Return an argument whose arrays are Arrays of their own, each noted in ``made``."""
    if isinstance(item, ArrayBase):
        evaluate.evaluate((item.storage.value,), read=False)
        array = Array.__new__(Array)
        array.storage, array.window = Storage(item.storage.value), item.window
        made.append(array)
        return array
    if isinstance(item, np.ndarray) and leasable(item):
        array = asarray(item)
        made.append(array)
        return array
    if type(item) in (tuple, list):
        return type(item)([_stand_in(part, made) for part in item])
    if type(item) is dict:
        return {key: _stand_in(part, made) for key, part in item.items()}
    return item


def arrays_in(item: Any) -> list[Any]:
    """Return the Arrays in a result."""
    if isinstance(item, ArrayBase):
        return [item]
    if isinstance(item, (tuple, list)):
        return [array for part in item for array in arrays_in(part)]
    if isinstance(item, dict):
        return [array for part in item.values() for array in arrays_in(part)]
    return []
