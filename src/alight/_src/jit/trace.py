"""What is asked for while the body of a jitted function runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from time import perf_counter, thread_time
from typing import Any

from alight._core import POLICY, Value, floor
from alight._src.config.loading import current_policy, policy
from alight._src.ir.op import UPDATED_IN_PLACE
from alight._src.plan.plan import LaunchStep, Plan, UnopenedDevices
from alight._src.record.argument_memory import Lease, one_after_the_other, settle
from alight._src.record.array import Array
from alight._src.record.pending import OUTRIGHT
from alight._src.run import evaluate
from alight._src.run.plans_behind import Behind, begin
from alight._src.run.written_steps import WriteOrder
from alight.device import HOST_DEVICE

__all__ = ["RECORD_SECONDS", "TRACE_SECONDS", "ArrayTrace", "StartsAnew", "Trace"]

# What an op takes to trace and to plan: 50 µs in one kernel (255 operators: 13 ms), 65 to 130 where
# each is a step (stencils of 366 to 406 steps: 24 to 44 ms; EPYC).
TRACE_SECONDS = 1e-4
# Of that, where it is planned behind: 14 µs (366 ops), with the run of it by NumPy that is lost.
RECORD_SECONDS = 2e-5

# Steps of plans and elements read between two looks at the clock. Bodies that ask for fewer between
# large steps are judged by what a whole run of them takes.
_LEAST_STEPS = 64
# Requests from which on there is a look at each element read: a body that asks for one a turn may
# have each planned anew, of other dtypes or sizes, in some milliseconds each.
_LEAST_REQUESTS = 8


# Of a body's work so far, what planning took from which on it gains nothing: had the rest taken no
# time at all, it would be twice as quick at most.
_ASKING = 0.5


class StartsAnew(BaseException):
    """Raised in a body that is given up where nothing of it was done: NumPy begins it anew. No
    error: a proven body catches none, and what calls it for the body catches errors at most."""


class Trace:
    """What was asked for while a body ran. A body that goes on past ``ends``, by the clock of
    `perf_counter`, is given up: what is left of it is NumPy's, op by op. One that may begin
    ``anew``, as nothing of it is done before it ends, does so in NumPy within ``early_seconds``;
    where it does little but ask, as soon as it had its ``room_seconds``; and where a plan that it
    asks for takes longer than its ``patience``, which it has if it may."""

    __slots__ = (
        "_began",
        "_began_working",
        "_early_seconds",
        "_leases",
        "_patience",
        "_room_seconds",
        "anew",
        "away",
        "closed",
        "ends",
        "exact",
        "given_up",
        "later",
        "ours",
        "reads",
        "requests",
        "started",
        "steps",
        "touched",
        "unopened_devices",
    )  # fmt: skip

    def __init__(
        self,
        leases: Sequence[Lease] = (),
        ends: float = math.inf,
        patience: float = math.inf,
        room_seconds: float = math.inf,
        early_seconds: float = math.inf,
    ) -> None:
        self._leases = leases
        self._patience = patience
        self._began, self._began_working = perf_counter(), thread_time()
        self._room_seconds = room_seconds
        self._early_seconds = early_seconds
        self.ends = ends
        self.anew = patience < math.inf  # what is given up is NumPy's from its beginning
        self.later = ""  # the job that makes a plan which the body did not wait for
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
        self.started = evaluate.requests.count

    def read(self, value: Value) -> None:
        """Note that a concrete value's elements were read."""
        if self.closed:
            return
        if value.data is not None and self.mine(value):
            self.touched = True
        self.reads += 1
        if self.reads + self.steps >= _LEAST_STEPS or self.requests >= _LEAST_REQUESTS:
            self.recorded()

    def recorded(self) -> None:
        """Give the body up where it is late, or will be when what is pending is planned: what
        follows is NumPy's. Whoever runs the body puts its policy back."""
        if self.closed or self.given_up:
            return
        now = perf_counter()
        planning_seconds = floor.count * TRACE_SECONDS
        late = now + planning_seconds > self.ends
        asks = self.anew and self._only_asks()
        if self.anew and floor.count >= floor.limit:  # it is about to be planned here
            late = late or planning_seconds > self._early_seconds
        if late or (asks and now - self._began > self._room_seconds):
            self.given_up = self.touched = True
            early = now - self._began <= self._early_seconds
            self.anew = self.anew and (asks or early) and not self._opened()
            if self.anew:
                raise StartsAnew
            POLICY.set(policy(floor=OUTRIGHT).over(current_policy()))

    def _only_asks(self) -> bool:
        """Tell whether most of what a body has done so far was to have planned what it asked
        for."""
        done_seconds = thread_time() - self._began_working  # whatever else the machine does
        return self.steps * TRACE_SECONDS > _ASKING * done_seconds

    @property
    def starts_anew(self) -> bool:
        """Tell whether the body was given up, and NumPy is to begin it anew."""
        return self.given_up and self.anew

    def settle_given_up(self) -> None:
        """Put what was written into the caller's memory, of which nothing is deferred from now on,
        if the body was given up."""
        if not self.given_up or self.anew:
            return
        evaluate.evaluate_all()
        settle([lease for lease in self._leases if lease.storage.lease is not None])

    def mine(self, value: Value) -> bool:
        """Tell whether these are the caller's bytes."""
        return value.data is not None and value.data.foreign

    def plans(self, what: Hashable, ops: int, plan: Callable[[], Plan]) -> None:
        """Have a request's plan made behind where that takes longer than the body may wait for it,
        which NumPy begins anew meanwhile."""
        if self.closed or self.given_up or not self.anew or self._opened():
            return
        try:
            begin(what, ops, plan, self._patience)
        except Behind as comes:
            self.later = comes.name
            self.given_up = self.touched = True
            raise StartsAnew from None

    def _opened(self) -> bool:
        """Tell whether the caller's memory may have been written, or is others' too."""
        return any([lease.leased.opened for lease in self._leases])

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
        of it in its turn, and once those before it have their last version. Of a body that may
        begin anew none is written before it has ended, but for what is too large for a copy: then
        it begins anew no more."""
        written, sizes = [], []
        for lease in self._leases:
            leased, version = lease.leased, lease.storage.value
            if leased.span is not None and not leased.holds(version.data):
                own = [n for n, v in enumerate(values) if v.op is None and leased.holds(v.data)]
                last = [n for n, v in enumerate(values) if v is version]
                written.append((leased.span, frozenset(own), last[0] if last else -1))
                sizes.append(version.layout.nbytes)
            del version
        if not written:
            return None
        if self.anew and not self.closed:
            self.anew = max(sizes) < UPDATED_IN_PLACE
            if self.anew:
                return WriteOrder(())
        numbers = one_after_the_other([span for span, _, _ in written])
        return WriteOrder([written[number][1:] for number in numbers])


class ArrayTrace(Trace):
    """What is asked for while a body runs on Arrays of the caller's."""

    __slots__ = ("_datas", "args", "made", "values")

    def __init__(self, args: tuple[Any, ...]) -> None:
        super().__init__()
        self.args = args
        self.values = [a.storage.value if type(a) is Array else None for a in args]
        datas = [v.data for v in self.values if v is not None and v.data is not None]
        self._datas = set(map(id, datas))
        self.away = any([bool(data.remote) for data in datas])
        self.made: Any = None  # the program of it

    def mine(self, value: Value) -> bool:
        """Tell whether these are an argument's bytes."""
        return id(value.data) in self._datas
