"""What was asked for while the body of a jitted function ran, and the program made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from alight._core import POLICY, Layout, Value, layout_of
from alight._src.base.originals import np
from alight._src.base.uninterrupted import bring
from alight._src.config.loading import config, current_policy, policy
from alight._src.ir.well_formed import reach
from alight._src.jit.argument_leases import Leases
from alight._src.jit.call_program import Argument, Leaf, Making, NotKept
from alight._src.jit.host_program import HostProgram, Written
from alight._src.jit.lease import Lease, NdArray
from alight._src.plan.plan import LaunchStep, Plan, UnopenedDevices
from alight._src.record.argument_memory import Window, bring_home, one_after_the_other
from alight._src.record.pending import OUTRIGHT
from alight._src.run import evaluate, residency
from alight._src.run.execute import WriteOrder
from alight.device import HOST_DEVICE

__all__ = ["CONSTANT_BYTES", "Trace", "make_program"]

# What a program may hold in constant arrays (what its body creates and does not compute). With
# eight programs to a function this keeps a function's below 8 MiB; larger ones are made at every
# call.
CONSTANT_BYTES = 1 << 20

# Steps of plans and elements read between two looks at the clock. Bodies that ask for fewer between
# large steps are judged by what a whole run of them takes.
_LEAST_STEPS = 64


class Trace:
    """What was asked for while a body ran. A body that goes on past ``ends``, by the clock of
    `perf_counter`, is given up: what is left of it is NumPy's, op by op."""

    __slots__ = (
        "_leases",
        "away",
        "closed",
        "ends",
        "exact",
        "given_up",
        "ours",
        "reads",
        "requests",
        "started",
        "steps",
        "touched",
        "unopened_devices",
    )  # fmt: skip

    def __init__(self, leases: Sequence[Lease] = (), ends: float = math.inf) -> None:
        self._leases = leases
        self.ends = ends
        self.given_up = False
        self.away = False  # some of the arguments lie on a device
        self.touched = False  # an element that depends on the arguments was asked for
        self.closed = False  # the body has returned: what runs now is the work itself
        self.exact = True  # everything that ran gives NumPy's bits
        self.ours = False  # something was planned for other than NumPy
        self.unopened_devices: list[UnopenedDevices] = []  # what plans lack by not having devices
        self.reads = 0
        self.requests = 0
        self.steps = 0
        self.started = evaluate.requests()

    def read(self, value: Value) -> None:
        """Note that a concrete value's elements were read."""
        if self.closed:
            return
        if value.data is not None and self.mine(value):
            self.touched = True
        self.reads += 1
        if self.reads + self.steps >= _LEAST_STEPS:
            self.recorded()

    def recorded(self) -> None:
        """Give the body up where it is late: what follows is NumPy's. Whoever runs the body puts
        its policy back."""
        if not self.closed and not self.given_up and perf_counter() > self.ends:
            self.given_up = self.touched = True
            POLICY.set(policy(floor=OUTRIGHT).over(current_policy()))

    def settle_given_up(self) -> None:
        """Put what was written into the caller's memory, of which nothing is deferred from now on,
        if the body was given up."""
        if not self.given_up:
            return
        evaluate.evaluate_all()
        leases = [lease for lease in self._leases if lease.storage.lease is not None]
        bring_home([lease.storage for lease in leases])
        for lease in leases:
            lease.settle()

    def mine(self, value: Value) -> bool:
        """Tell whether these are the caller's bytes."""
        return value.data is not None and value.data.foreign

    def ran(self, leaves: Sequence[Value], plan: Plan) -> None:
        """Note that a request is about to run a plan on these leaves."""
        self.requests += 1
        self.steps += len(plan.steps)
        if plan.unopened_devices is not None:
            self.unopened_devices.append(plan.unopened_devices)
        if not self.closed and any(map(self.mine, leaves)):
            self.touched = True
        for step in plan.steps:
            if isinstance(step, LaunchStep) and step.implementation == "generated":
                self.exact = self.exact and step.group.form.same_bits
                self.ours = True
            elif isinstance(step, LaunchStep) and step.device != HOST_DEVICE:
                self.exact, self.ours = False, True

    def order(self, values: Sequence[Value]) -> WriteOrder | None:
        """Return in which order a request for these values may write into leased memory: each piece
        of it in its turn, and once those before it have their last version."""
        written = []
        for lease in self._leases:
            leased, version = lease.leased, lease.storage.value
            if leased.span is not None and not leased.holds(version.data):
                own = [n for n, v in enumerate(values) if v.op is None and leased.holds(v.data)]
                last = [n for n, v in enumerate(values) if v is version]
                written.append((leased.span, frozenset(own), last[0] if last else -1))
            del version
        if not written:
            return None
        numbers = one_after_the_other([span for span, _, _ in written])
        return WriteOrder([written[number][1:] for number in numbers])

    def undisturbed(self) -> bool:
        """Tell whether nobody but this call's own requests evaluated anything meanwhile."""
        return evaluate.requests() - self.started == self.requests


def make_program(
    trace: Trace, leases: Leases, result: Any, default_errstate: Any
) -> HostProgram | None:
    """Return the program of a body that has just run, its work not yet done; None where it is
    not replayable."""
    if trace.touched or leases.ours_too:
        return None
    with residency.LOCK:  # another thread's request may run what is pending here
        if not trace.undisturbed():
            return None
        try:
            made = _Making(leases).program(result, default_errstate)
        except NotKept:
            return None
        if config().check:
            bring("alight._src.jit.checked_programs")
            from alight._src.jit.checked_programs import prove_host

            prove_host(made)
        return made


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


class _Making(Making):
    def __init__(self, leases: Leases) -> None:
        super().__init__()
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
            elif not lease.leased.holds(value.data):
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
            if lease.leased.holds(value.data):
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
