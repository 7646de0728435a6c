"""Functions of the program's own that `alight run` takes as `@alight.jit` does, undecorated.

The gate at the beginning of such a function (`gates`) asks here for who answers its calls, once
NumPy has had them for long enough. Only a body that is proven to do nothing but compute is
answered for; all others go on as they are written.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import ref

from alight._core import ArrayBase, Gate
from alight._src.jit.border_handover import given_back, handed_over
from alight._src.jit.call_signature import describe
from alight._src.jit.decorator import Jitted
from alight._src.record.tracebacks import hide_ours

__all__ = ["OwnFunction", "take"]

# Calls after which a function that was not proven is looked at again: what it names may be another
# by then. A proof takes 0.1 to 1 ms, a ten-thousandth of these calls where each takes 1 µs.
_LOOKED_AT_AGAIN = 1_000_000


class OwnFunction(Jitted):
    """What answers calls of a function of the program's own; NotImplemented: its body is to go on,
    as nothing of it was done."""

    def __init__(self, function: FunctionType, module: ModuleType, gate: Gate) -> None:
        super().__init__(function, False)
        # A gate is held by code, which the collector does not look into: with what answers at it
        # it would keep the module's names for ever.
        whose = ref(gate)
        self._module = ref(module, lambda _: _close(whose()))

    def is_pure(self) -> bool:
        """Tell whether the body is proven to do nothing but compute, as things stand."""
        return self._learned().proof.pure

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.is_pure() or describe(args, kwargs) is None:
            return NotImplemented
        return super()._called(args, kwargs)

    def on_arrays(self, args: tuple[Any, ...]) -> Any:
        """Return the result of a call with Arrays among its arguments, by that on the ndarrays over
        their memory."""
        try:
            given = tuple([_handed(item) for item in args])
            result = self(*given)
        except BaseException as error:
            hide_ours(error)
            raise
        if type(result) is tuple:
            return tuple([given_back(part) for part in result])
        return given_back(result)


def _close(gate: Gate | None) -> None:
    if gate is not None:
        gate.close(_LOOKED_AT_AGAIN)


def _handed(item: Any) -> Any:
    if isinstance(item, ArrayBase):
        return handed_over(item)
    if type(item) is tuple and any([isinstance(part, ArrayBase) for part in item]):
        return tuple([_handed(part) for part in item])
    return item


def take(gate: Gate, args: tuple[Any, ...], names: dict[str, Any]) -> None:
    """Have a gate answer calls of its function from now on, where that is proven to compute."""
    gate.close(_LOOKED_AT_AGAIN)
    origin, path = gate.origin
    code = origin.code(path)
    module = sys.modules.get(names.get("__name__", ""))
    if code is None or module is None or vars(module) is not names:
        return
    own = OwnFunction(FunctionType(_by_position(code), names), module, gate)
    if own.is_pure():
        gate.open(own, names)


def _by_position(code: CodeType) -> CodeType:
    """Return code that is given every argument by position: what it collects, too."""
    flags = code.co_flags
    collected = bool(flags & inspect.CO_VARARGS) + bool(flags & inspect.CO_VARKEYWORDS)
    return code.replace(
        co_argcount=code.co_argcount + code.co_kwonlyargcount + collected,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )
