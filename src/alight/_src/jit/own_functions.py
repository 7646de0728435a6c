"""Code of the program's own that `alight run` takes as `@alight.jit` does, undecorated.

The gate at the beginning of such a function, or before such statements (`gates`), asks here for who
answers, once NumPy has had them for long enough. Only code that is proven to do nothing but compute
is answered for; all else goes on as it is written.
"""

from __future__ import annotations

import sys
from types import FrameType, ModuleType
from typing import Any
from weakref import ref

from alight._core import ArrayBase, Gate
from alight._src.base.originals import np
from alight._src.jit.border_handover import given_back, handed_over
from alight._src.jit.call_signature import describe
from alight._src.jit.decorator import Jitted
from alight._src.jit.function_states import Learned
from alight._src.jit.kernel_race import PROGRAMS
from alight._src.jit.liftable import Source
from alight._src.jit.lifting import Lifted, lift
from alight._src.jit.purity import Proof
from alight._src.record.tracebacks import hide_ours

__all__ = ["OwnFunction", "take"]

# Calls after which a function that was not proven is looked at again: what it names may be another
# by then. A proof takes 0.1 to 1 ms, a ten-thousandth of these calls where each takes 1 µs.
_LOOKED_AT_AGAIN = 1_000_000
# States of what it names that a function is proven in, twice as many as are kept.
_MOST_STATES = 2 * PROGRAMS


class OwnFunction(Jitted):
    """What answers calls of a function of the program's own; NotImplemented: its body is to go on,
    as nothing of it was done."""

    def __init__(self, lifted: Lifted, module: ModuleType, gate: Gate) -> None:
        super().__init__(lifted.function, False)
        self._lifted = lifted
        self._proven: list[Learned] = []
        self._set = frozenset(lifted.stored if gate.source == Source.NAMES else ())
        # A gate is held by code, which the collector does not look into: with what answers at it
        # it would keep the module's names for ever.
        whose = self._gate = ref(gate)
        self._module = ref(module, lambda _: _close(whose()))

    def is_pure(self) -> bool:
        """Tell whether the body is proven to do nothing but compute, as things stand."""
        learned = self._learned()
        if learned not in self._proven:
            self._proven.append(learned)
        if len(self._proven) > _MOST_STATES:  # a name is another at each call: nothing is learned
            self._proven.clear()
            _close(self._gate())
            return False
        proof = learned.proof
        return proof.pure and not (self._set and self._reads_what_is_set(proof))

    def _reads_what_is_set(self, proof: Proof) -> bool:
        """Tell whether a function that statements call reads a name that they assign: it would find
        what was there before them."""
        names = self.__wrapped__.__globals__
        return any([look.place is names and look.name in self._set for look in proof.lookups])

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
        return _back(result)

    def stored_before(self, gate: Gate, error: BaseException, inputs: tuple[Any, ...]) -> Any:
        """Return what the body had stored when an error came, the gate itself where nothing."""
        code, frame, line = self._lifted.function.__code__, None, 0
        step = error.__traceback__
        while step is not None:
            own = step.tb_frame.f_code
            if (own.co_filename, own.co_name, own.co_firstlineno) == (
                code.co_filename,
                code.co_name,
                code.co_firstlineno,
            ):
                frame, line = step.tb_frame, step.tb_lineno
                break
            step = step.tb_next
        if frame is None:
            return tuple([gate for _ in self._lifted.stored])
        numbers = self._lifted.numbers_before(line, inputs, gate)
        held = [_assigned(frame, name, inputs, gate) for name in self._lifted.results]
        return (*numbers, *held)


def _assigned(frame: FrameType, name: str, inputs: tuple[Any, ...], gate: Gate) -> Any:
    value = frame.f_locals.get(name, gate)
    if not isinstance(value, ArrayBase):
        return value
    made = np.asarray(value)
    for item in inputs:
        if type(item) is np.ndarray and _same_window(item, made):
            return item
    return made


def _same_window(one: Any, other: Any) -> bool:
    parts = ("data", "shape", "strides", "typestr")
    given, made = one.__array_interface__, other.__array_interface__
    return all([given[part] == made[part] for part in parts])


def _back(result: Any) -> Any:
    if type(result) is tuple:
        return tuple([_back(part) for part in result])
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


def take(gate: Gate, inputs: tuple[Any, ...], names: dict[str, Any]) -> None:
    """Have a gate answer for its code from now on, where that is proven to compute."""
    gate.close(_LOOKED_AT_AGAIN)
    module = sys.modules.get(names.get("__name__", ""))
    if module is None or vars(module) is not names:
        return
    lifted = lift(gate, inputs, names)
    if lifted is None:
        return
    own = OwnFunction(lifted, module, gate)
    if own.is_pure():
        numbers, stored = lifted.numbers, lifted.stored
        gate.open(own, names, lifted.roles, lifted.picked, numbers, stored, own.stored_before)
