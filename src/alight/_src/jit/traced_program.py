"""The program that is made of a body which has just run, its work not yet done: of one on the
caller's ndarrays, and of one on Arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from alight._core import ArrayBase, Layout, Value, layout_of
from alight._src.base.originals import np
from alight._src.base.uninterrupted import bring
from alight._src.config.loading import config
from alight._src.fp_warnings.errstate import asked
from alight._src.ir.well_formed import reach
from alight._src.jit.argument_leases import Leases
from alight._src.jit.array_program import ArrayProgram
from alight._src.jit.call_program import SCALARS, Argument, Fixed, Fresh, Leaf, Tree
from alight._src.jit.exchange import attributes
from alight._src.jit.host_program import HostProgram, Written
from alight._src.jit.reachability import NdArray
from alight._src.jit.scalar import Scalar
from alight._src.jit.trace import ArrayTrace, Trace
from alight._src.record.argument_memory import Lease, Window
from alight._src.record.array import Array
from alight._src.run import evaluate, residency

__all__ = ["make_array_program", "make_program"]

# What a program may hold in constant arrays (what its body creates and does not compute). With
# eight programs to a function this keeps a function's below 8 MiB; larger ones are made at every
# call.
CONSTANT_BYTES = 1 << 20


class NotKept(Exception):
    """Raised where a trace cannot be kept as a program."""


def make_program(
    trace: Trace, leases: Leases, result: Any, default_errstate: Any, patience: float = math.inf
) -> HostProgram | None:
    """Return the program of a body that has just run, its work not yet done; None where it is
    not replayable. `Behind` is raised where planning it takes longer than ``patience`` seconds."""
    if trace.touched or leases.ours_too:
        return None
    with residency.LOCK:  # another thread's request may run what is pending here
        if not _undisturbed(trace):
            return None
        try:
            making = _HostMaking(leases, patience)
            made = making.program(result, default_errstate)
        except NotKept:
            return None
        if config().check:
            bring("alight._src.jit.checked_programs")
            from alight._src.jit.checked_programs import prove_host

            prove_host(made)
        leases.roots = making.roots
        return made


def _undisturbed(trace: Trace) -> bool:
    """Tell whether nobody but this call's own requests evaluated anything meanwhile."""
    return evaluate.requests.count - trace.started == trace.requests


def make_array_program(trace: ArrayTrace, result: Any, default_errstate: Any) -> None:
    """Make the program of a body on the caller's Arrays that has just returned, its work not yet
    done; where it cannot be run again there is none."""
    with residency.LOCK, suppress(NotKept):
        if trace.touched or not _undisturbed(trace):
            return
        for item, value in zip(trace.args, trace.values, strict=True):
            if value is not None and item.storage.value is not value:
                return  # the body has written into it
        trace.made = _ArrayMaking(trace).program(result, default_errstate)


class _Making:
    """A program in the making, of a body that has just run, its work not yet done."""

    def __init__(self, patience: float = math.inf) -> None:
        self.roots: list[Value] = []
        self._rooted: set[int] = set()
        self._patience = patience
        self._slots: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []  # what ids in these dicts are of

    def fixed(self, item: Any) -> bool:
        """Tell whether a result is the same object at every call."""
        return type(item) in SCALARS

    def argument(self, slot: int, array: Any) -> Argument | None:
        """Return the form of a result that is an argument, or a window of one."""
        raise NotImplementedError(
            "argument: a subclass gives the form of an argument, None for other arrays"
        )

    def leaf(self, value: Value) -> Any:
        """Return the leaf that a value is, or the value, which is constant."""
        raise NotImplementedError("leaf: a subclass gives where a value comes from at each call")

    def root(self, value: Value) -> None:
        """Make a pending value a root."""
        if id(value) not in self._rooted:
            self._rooted.add(id(value))
            self.roots.append(value)

    def form_of(self, item: Any) -> Any:
        """Return the form of a result; what has none is no program's."""
        self._alive.append(item)
        kind = type(item)
        if isinstance(item, ArrayBase):
            return self._array(item)
        if kind is dict:
            return Tree(dict, tuple([self.form_of(part) for part in item.values()]), tuple(item))
        named = isinstance(item, tuple) and hasattr(item, "_fields") and not attributes(item)
        if kind in (tuple, list) or named:
            return Tree(kind, tuple([self.form_of(part) for part in item]), ())
        if self.fixed(item):
            return Fixed(item)
        raise NotKept

    def _array(self, array: Any) -> Any:
        slot = self._slots.setdefault(id(array), len(self._slots))
        argument = self.argument(slot, array)
        if argument is not None:
            return argument
        value = array.storage.value
        if value.op is None:
            raise NotKept  # made and not computed: every call must make its own
        self.root(value)
        memory = self._storages.setdefault(id(array.storage), len(self._storages))
        return Fresh(slot, id(value), array.window, type(array) is Scalar, memory)

    def prepared(self, default_errstate: Any, read: bool) -> tuple[evaluate.Prepared, Any, Any]:
        """Return what a request for the roots would run, its leaves, and the lines and errstates of
        its nodes."""
        if not self.roots:
            raise NotKept  # nothing is computed: the body itself is as quick
        prepared = evaluate.prepare(self.roots, read, self._patience)
        self._numbers = {
            id(value): number for number, value in enumerate((*prepared.leaves, *prepared.pending))
        }
        leaves = tuple([self.leaf(leaf) for leaf in prepared.leaves])
        nodes = [
            (v.site, None if v.errstate is default_errstate else asked(v.errstate))
            for v in prepared.pending
        ]
        return prepared, leaves, tuple(nodes)

    def number(self, value: Value) -> int:
        """Return the number of a value of what is prepared."""
        return self._numbers[id(value)]

    def numbered(self, form: Any) -> Any:
        """Return a form with values by their numbers in place of their ids."""
        if type(form) is Fresh:
            return form._replace(value=self._numbers[form.value])
        if type(form) is Tree:
            return form._replace(parts=tuple([self.numbered(part) for part in form.parts]))
        return form


class Homes:
    """Where a program finds what it reads and writes, by numbers: the arguments', and behind them
    those of memory that several arguments lie in together and the body has written."""

    def __init__(self, members: Sequence[NdArray], leases: Sequence[Lease]) -> None:
        numbers = {id(member): number for number, member in enumerate(members)}
        self._count = len(members)
        self._arguments = [[numbers[id(member)] for member in lease.members] for lease in leases]
        bounds = np.lib.array_utils.byte_bounds
        self._bounds = [[bounds(member) for member in lease.members] for lease in leases]
        self._written: dict[int, int] = {}  # the numbers of leases of several, by those of leases
        self.together: list[tuple[int, ...]] = []
        # No arguments overlap. Where some do, what the body did hangs on how, as a copy of bytes
        # onto themselves is none: the guard, which compares layouts, must not answer for others.
        self.uninterrupted = all(len(own) == 1 for own in self._arguments)

    def argument(self, lease: int, member: int) -> int:
        """Return the number of an argument."""
        return self._arguments[lease][member]

    def written(self, lease: int) -> int:
        """Return the number of a lease that is written."""
        own = self._arguments[lease]
        if len(own) == 1:
            return own[0]
        self._written[lease] = self._count + len(self.together)
        self.together.append(tuple(own))
        return self._written[lease]

    def of(self, lease: int, layout: Layout, offset: int) -> tuple[int, Layout, int]:
        """Return where a window of a lease's bytes is found, as a leaf has it."""
        home = self._written.get(lease)
        return self.member(lease, layout, offset) if home is None else (home, layout, offset)

    def member(self, lease: int, layout: Layout, offset: int) -> tuple[int, Layout, int]:
        """Return an argument that a window of a lease's bytes lies in, and where."""
        own, bounds = self._arguments[lease], self._bounds[lease]
        if len(own) == 1:
            return own[0], layout, offset
        first = min([low for low, _ in bounds])
        low, high = (first + offset + end for end in reach(layout))
        found = [n for n, (start, end) in enumerate(bounds) if start <= low and high <= end]
        if not found:
            raise NotKept
        return own[found[0]], layout, offset + first - bounds[found[0]][0]


class _HostMaking(_Making):
    def __init__(self, leases: Leases, patience: float) -> None:
        super().__init__(patience)
        self.leases = leases.leases
        self.homes = Homes(leases.members, leases.leases)

    def program(self, result: Any, default_errstate: Any) -> HostProgram:
        written, spans = [], []
        for number, lease in enumerate(self.leases):
            value = lease.storage.value
            if value.op is not None:
                home = self.homes.written(number)
                written.append((home, value, lease.leased.windows))
                assert lease.leased.span is not None
                spans.append(lease.leased.span)
            elif value.data is None or lease.leased.held() is not value.data:
                raise NotKept
        for _, value, windows in written:
            for root in value, *[w.mask for w in windows if w.mask is not None]:
                if root.op is None:
                    raise NotKept
                self.root(root)
        form = self.form_of(result)
        prepared, leaves, nodes = self.prepared(default_errstate, read=True)
        writes = [
            Written(number, self.number(value), tuple(map(self._masked, windows)))
            for number, value, windows in written
        ]
        own = self.numbered(form)
        homes = self.homes
        return HostProgram(
            *(prepared, leaves, nodes, own, tuple(writes), tuple(spans)),
            *(tuple(homes.together), homes.uninterrupted),
        )

    def _masked(self, window: Window) -> Window:
        mask = window.mask
        return window if mask is None else window._replace(mask=self.number(mask))

    def fixed(self, item: Any) -> bool:
        return (
            type(item) is bytes or isinstance(item, (np.generic, np.dtype)) or super().fixed(item)
        )

    def leaf(self, value: Value) -> Any:
        for number, lease in enumerate(self.leases):
            if value.data is not None and lease.leased.held() is value.data:
                return Leaf(*self.homes.of(number, value.layout, value.offset))
        data = value.data
        if value.layout.nbytes > CONSTANT_BYTES or (data is not None and data.foreign):
            raise NotKept
        return value

    def argument(self, slot: int, array: Any) -> Argument | None:
        for number, lease in enumerate(self.leases):
            for member, own in enumerate(lease.arrays):
                if array is own:
                    return Argument(slot, self.homes.argument(number, member), None)
            if array.storage is lease.storage:
                start = 0 if array.window is None else array.window.offset
                writeable = array.window is None or array.window.writeable
                layout = layout_of(array)
                home, _, start = self.homes.member(number, layout, start)
                return Argument(slot, home, (layout, start, writeable))
        return None


class _ArrayMaking(_Making):
    def __init__(self, trace: ArrayTrace) -> None:
        super().__init__()
        self.trace = trace

    def program(self, result: Any, default_errstate: Any) -> ArrayProgram:
        form = self.form_of(result)
        prepared, leaves, nodes = self.prepared(default_errstate, read=False)
        if any(errstate is not None for _, errstate in nodes):
            raise NotKept
        made = ArrayProgram(prepared, leaves, nodes, self.numbered(form), self.trace.args)
        if config().check:
            from alight._src.jit.checked_programs import prove_arrays

            prove_arrays(made)
        return made

    def argument(self, slot: int, array: Any) -> Argument | None:
        for number, given in enumerate(self.trace.args):
            if array is given:
                return Argument(slot, number, None)
        return None

    def leaf(self, value: Value) -> Any:
        if not value.layout.ndim and not self.trace.mine(value):  # a constant
            return Value(None, (), evaluate.host_array(value).copy(), value.layout)
        data = value.data
        for number, item in enumerate(self.trace.args):
            if type(item) is Array and item.storage.value.data is data:
                return Leaf(number, value.layout, value.offset)
        # What a pure body creates and does not compute is the same at every call.
        if data is None or data.foreign or data.exported:
            raise NotKept
        if data.layout.nbytes > CONSTANT_BYTES:
            raise NotKept
        return value
