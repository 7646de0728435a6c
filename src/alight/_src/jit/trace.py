"""What was asked for while the body of a jitted function ran, and the program made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alight._core import ArrayBase, Value
from alight._src.base.originals import np
from alight._src.fp_warnings.errstate import asked
from alight._src.ir.group import same_bits
from alight._src.jit.argument_leases import Leases
from alight._src.jit.host_program import Argument, Fixed, Fresh, Program, Tree, Written
from alight._src.jit.scalar import Scalar
from alight._src.plan.plan import Foregone, LaunchStep, Plan
from alight._src.record import storage_io
from alight._src.record.leased import Window
from alight._src.run import evaluate, residency
from alight.device import HOST_DEVICE

__all__ = ["CONSTANT_BYTES", "Trace", "make_program"]

# What a program may hold in constant arrays (what its body creates and does not compute). With
# eight programs to a function this keeps a function's below 8 MiB; larger ones are made at every
# call.
CONSTANT_BYTES = 1 << 20


class _NotKept(Exception):
    """Raised where a trace cannot be kept as a program."""


class Trace:
    """What was asked for while a body ran."""

    __slots__ = (
        "away", "closed", "exact", "foregone", "ours", "requests", "started", "steps", "touched"
    )  # fmt: skip

    def __init__(self) -> None:
        self.away = False  # some of the arguments lie on a device
        self.touched = False  # an element that depends on the arguments was asked for
        self.closed = False  # the body has returned: what runs now is the work itself
        self.exact = True  # everything that ran gives NumPy's bits
        self.ours = False  # something was planned for other than NumPy
        self.foregone: list[Foregone] = []  # what plans lack by not having devices
        self.requests = 0
        self.steps = 0
        self.started = evaluate.requests()

    def read(self, value: Value) -> None:
        """Note that a concrete value's elements were read."""
        if not self.closed and value.data is not None and self.mine(value):
            self.touched = True

    def mine(self, value: Value) -> bool:
        """Tell whether these are the caller's bytes."""
        return value.data is not None and value.data.foreign

    def ran(self, leaves: Sequence[Value], plan: Plan) -> None:
        """Note that a request is about to run a plan on these leaves."""
        self.requests += 1
        self.steps += len(plan.steps)
        if plan.foregone is not None:
            self.foregone.append(plan.foregone)
        if not self.closed and any(map(self.mine, leaves)):
            self.touched = True
        for step in plan.steps:
            if isinstance(step, LaunchStep) and step.implementation == "generated":
                self.exact = self.exact and same_bits(step.group)
                self.ours = True
            elif isinstance(step, LaunchStep) and step.device != HOST_DEVICE:
                self.exact, self.ours = False, True

    def undisturbed(self) -> bool:
        """Tell whether nobody but this call's own requests evaluated anything meanwhile."""
        return evaluate.requests() - self.started == self.requests


def make_program(
    trace: Trace, leases: Leases, result: Any, default_errstate: Any
) -> Program | None:
    """Return the program of a body that has just run, its work not yet done; None where it is
    not replayable."""
    if trace.touched or leases.ours_too or any(len(lease.members) > 1 for lease in leases.leases):
        return None
    with residency.LOCK:  # another thread's request may run what is pending here
        if not trace.undisturbed():
            return None
        try:
            return _Making(leases).program(result, default_errstate)
        except _NotKept:
            return None


class _Making:
    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.roots: list[Value] = []
        self.slots: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.alive: list[Any] = []  # what ids in these dicts are of

    def program(self, result: Any, default_errstate: Any) -> Program:
        written = []
        for number, lease in enumerate(self.leases.leases):
            value = lease.storage.value
            if value.op is not None:
                self.root(value)
                windows = lease.leased.windows
                for window in windows:
                    if window.mask is not None and window.mask.op is None:
                        raise _NotKept
                    if window.mask is not None:
                        self.root(window.mask)
                written.append((number, value, windows))
            elif not lease.leased.holds(value.data):
                raise _NotKept
        form = self.form(result)
        if not self.roots:
            raise _NotKept  # nothing is computed: the body itself is as quick
        prepared = evaluate.prepare(self.roots)
        values = (*prepared.leaves, *prepared.pending)
        numbers = {id(value): number for number, value in enumerate(values)}
        leaves = tuple([self.leaf(leaf) for leaf in prepared.leaves])
        nodes = tuple(
            [
                (v.site, None if v.errstate is default_errstate else asked(v.errstate))
                for v in prepared.pending
            ]
        )
        writes = tuple(
            [
                Written(number, numbers[id(value)], tuple([_masked(w, numbers) for w in windows]))
                for number, value, windows in written
            ]
        )
        return Program(prepared, leaves, nodes, _numbered(form, numbers), writes)

    def root(self, value: Value) -> None:
        """Make a pending value a root."""
        if not any(value is root for root in self.roots):
            self.roots.append(value)

    def leaf(self, value: Value) -> Any:
        for number, lease in enumerate(self.leases.leases):
            if lease.leased.holds(value.data):
                return number, value.layout, value.offset
        data = value.data
        if value.layout.nbytes > CONSTANT_BYTES or (data is not None and data.foreign):
            raise _NotKept
        return value

    def form(self, item: Any) -> Any:
        self.alive.append(item)
        if isinstance(item, ArrayBase):
            return self.array(item)
        kind = type(item)
        if kind is dict:
            parts = tuple([self.form(part) for part in item.values()])
            return Tree(dict, parts, tuple(item))
        if isinstance(item, tuple) or kind is list:
            if kind not in (tuple, list) and not hasattr(item, "_fields"):
                raise _NotKept
            return Tree(kind, tuple([self.form(part) for part in item]), ())
        if kind in (int, float, complex, bool, str, bytes, type(None)) or isinstance(
            item, (np.generic, np.dtype)
        ):
            return Fixed(item)
        raise _NotKept

    def array(self, array: Any) -> Any:
        slot = self.slots.setdefault(id(array), len(self.slots))
        for number, lease in enumerate(self.leases.leases):
            if array is lease.arrays[0]:
                return Argument(slot, number, None)
            if array.storage is lease.storage:
                start = 0 if array.window is None else array.window.offset
                writeable = array.window is None or array.window.writeable
                return Argument(slot, number, (storage_io.layout(array), start, writeable))
        value = array.storage.value
        if value.op is None:
            raise _NotKept  # made and not computed: every call must make its own
        self.root(value)
        memory_number = self.storages.setdefault(id(array.storage), len(self.storages))
        return Fresh(slot, id(value), array.window, type(array) is Scalar, memory_number)


def _masked(window: Window, numbers: dict[int, int]) -> Window:
    return window if window.mask is None else window._replace(mask=numbers[id(window.mask)])


def _numbered(form: Any, numbers: dict[int, int]) -> Any:
    """Return a form with values by their numbers in place of their ids."""
    if type(form) is Fresh:
        return form._replace(value=numbers[form.value])
    if type(form) is Tree:
        return form._replace(parts=tuple([_numbered(part, numbers) for part in form.parts]))
    return form
