"""Launch steps made ready in this process: the kernel of each, who stands in for it while it is
made, and its contest against NumPy."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

from alight._core import OPERANDS, KernelCall, Layout, Value
from alight._src.adapt.contest import Contender
from alight._src.adapt.foreground import FOREGROUND
from alight._src.adapt.regression_guard import GuardPhase, guard_of
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.formatting import readable_seconds
from alight._src.base.originals import np
from alight._src.base.records import replace
from alight._src.fp_warnings.categories import OF_WORDS, is_worded
from alight._src.fp_warnings.emit import FlagCapture, capturing
from alight._src.fp_warnings.errstate import wanted_by
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.log.decisions import LOG, eligible_elements
from alight._src.plan.plan import Decision, Estimate, LaunchStep, Plan, gained
from alight._src.run import kernels, residency, window_writes
from alight._src.run.residency import Place
from alight._src.run.streaming import Passage
from alight.backends.base import Launch, Operand, prepared
from alight.backends.host import BindingKernel, Bound, NumpyKernel
from alight.backends.machine import host_memory
from alight.backends.registry import backend_of, device
from alight.device import HOST_DEVICE, Reason
from alight.errors import OutOfDeviceMemory

__all__ = [
    "HERE",
    "HOST_DEVICE",
    "Ready",
    "kernel_at_hand",
    "kernel_of",
    "kernels_at_hand",
    "let_go",
    "ready_of",
    "stood_in",
]


# What NumPy is timed on beside a kernel, and its temporaries, must fit in memory that is free.
_SHARE_OF_MEMORY = 8

HERE = ("generated", HOST_DEVICE)
# What the native core hears of (native/flags.h).
_WATCHED = frozenset(("divide", "over", "invalid"))


def array_at(place: Place) -> np.ndarray[Any, Any]:
    """Return the elements at a place as an ndarray over its host copy."""
    data, offset, layout = place
    residency.bring_to_host(data)
    if data.layout is layout and offset == 0 and data.array is not None:
        return data.array
    return np.ndarray(
        layout.shape, layout.dtype, data.raw, offset if layout.size else 0, layout.strides
    )


class _StoodIn(threading.local):
    """How often NumPy ran a step of this thread in the place of a kernel that is being made, or
    that a request ``rehearses``: it could have run, and is not to yet."""

    times = 0
    rehearses = False


stood_in = _StoodIn()


class Ready:
    """A launch step made ready in this process: its device, its kernel, what the log needs of
    it."""

    __slots__ = (
        "_maker",
        "backend",
        "by_numpy",
        "direct",
        "displacing",
        "eligible",
        "elsewhere",
        "guard",
        "implementation",
        "kernel",
        "late",
        "layouts",
        "missed_fp_errors",
        "none",
        "passed",
        "plainly",
        "ran",
        "spare",
        "spot",
        "step",
        "where",
        "windows",
        "worded",
    )

    def __init__(self, step: LaunchStep, where: str, implementation: str) -> None:
        self.step = step
        self.where = device(where)
        self.implementation = implementation
        self.backend = backend_of(self.where)
        self.late = self.backend.late
        self.spot = (implementation, where)
        self.kernel: Any = None
        self.direct: KernelCall | None = None
        self.eligible = eligible_elements(step.group)
        graph = step.group.graph
        self.layouts = graph.output_layouts
        self.none = (None,) * len(step.outputs)
        self.ran = False
        self.spare: Ready | None = None
        self.elsewhere: dict[Reason, Decision] = {}
        self.displacing: Decision | None = None
        own = implementation == step.implementation and where == step.device
        self.guard = guard_of(step) if own else None
        self.plainly = False  # the kernel is there, and nothing is left to find out
        self.windows: dict[tuple[int, Layout], Ready] = {}
        self.worded = is_worded(step.group.graph)
        ours = implementation == "generated" and not self.late
        self.missed_fp_errors = frozenset(
            c for node in graph.nodes for c in node.op.missed_fp_errors if ours
        )
        self.passed: Passage | None = None
        self._maker: kernels.Maker | None = None
        self.by_numpy = False  # as calls that say in flags alone what they warn of

    @property
    def maker(self) -> kernels.Maker | None:
        """Return what makes the kernel, where it is generated."""
        if self._maker is None and self.implementation == kernels.GENERATED:
            self._maker = kernels.Maker(self.where, self.step.group, self.step.schedule)
        return self._maker

    @property
    def passage(self) -> Passage | None:
        """Return how the step passes its device in chunks, once its kernel is there."""
        if self.passed is None and self.kernel is not None and self.plainly:
            self.passed = Passage(self.where, self.step.group)
        return self.passed

    def compiled(self, patience: float = math.inf) -> Any:
        """Return the kernel, or None where having it would take longer than ``patience`` seconds
        and it is left to the background."""
        if self.kernel is None:
            step = self.step
            self.kernel = kernels.kernel(
                self.where, step.group, self.implementation, step.schedule, patience, self.maker
            )
            numpys = isinstance(self.kernel, NumpyKernel) and self.where.id == HOST_DEVICE
            self.by_numpy = numpys and not self.worded
        return self.kernel

    def into(self, output: int, window: Layout) -> Ready:
        """Return the same step made ready to leave one of its results in memory of this layout."""
        if (output, window) not in self.windows:
            group = window_writes.group_into(self.step.group, output, window)
            step = replace(self.step, group=group)
            self.windows[output, window] = Ready(step, self.where.id, self.implementation)
        return self.windows[output, window]

    @property
    def patience(self) -> float:
        """Return the seconds after which waiting for the kernel has cost more than NumPy."""
        decision = self.step.decision
        if not decision.is_by_cost or self.where.id != HOST_DEVICE:
            return math.inf  # the kernel was asked for, or what it works on is not NumPy's to take
        own: Estimate | None = None
        numpys: Estimate | None = None
        for candidate in decision.candidates:
            if candidate.device == HOST_DEVICE:
                if candidate.implementation == self.implementation:
                    own = candidate.estimate
                else:
                    numpys = candidate.estimate
        return math.inf if own is None or numpys is None else gained(own, numpys)

    def listened(self, recorded: Sequence[Value | None]) -> frozenset[str]:
        """Return the categories to listen for: those that some state of what was recorded does not
        ignore, and what stands for NumPy's words, which come whatever the state."""
        found = wanted_by(recorded)
        return found | OF_WORDS if self.worded else found

    def submit(
        self,
        places: Sequence[Place],
        listen: frozenset[str],
        heard: list[str],
        results: tuple[Operand | None, ...] = (),
        bound: tuple[Bound, Sequence[Value | None]] | None = None,
    ) -> tuple[Sequence[Any], float | None, tuple[Any, Any]]:
        """Run the kernel and return the buffers of its results, unless it is given memory for them;
        the seconds it took, or None where it goes on, and then the events around it. ``bound``: the
        value that is bound as it ends, and to what, and the values of what it makes (of a generated
        kernel on the host)."""
        where = self.where
        kernel = self.kernel or self.compiled()
        if self.by_numpy and not results:
            arrays = [array_at(place) for place in places]
            began = perf_counter()
            with capturing(listen, heard):
                made = kernel.made(arrays)
            return made, perf_counter() - began, (None, None)
        beside = [place[0] for place in places] if where.id != HOST_DEVICE else ()
        held = residency.buffers([place[0] for place in places], where, beside)
        operands = tuple(
            [
                Operand(buffer, offset, lay)
                for buffer, (_, offset, lay) in zip(held, places, strict=True)
            ]
        )
        if bound is not None:
            kernel = BindingKernel(kernel, *bound)
        launch = (Launch(kernel, operands, results or self.none),)
        if self.late and not self.ran:
            prepared(self.backend, where, launch[0])
        start = self.backend.submit(where, 0, ()) if self.late else None
        with FlagCapture(listen, heard, self.implementation, self.worded):
            try:
                event = self.backend.submit(where, 0, launch)
            except OutOfDeviceMemory:
                needed = sum([layout.nbytes for layout in self.layouts])
                if not residency.make_room(where, needed, beside):
                    raise
                event = self.backend.submit(where, 0, launch)
            if not self.late:
                self.backend.wait(event)
        if self.missed_fp_errors:  # NumPy says whether it happened, where somebody wants to know
            heard.extend((self.missed_fp_errors & listen).difference(heard))
        seconds = None if self.late else event.ended - event.began
        made = event.buffers
        if self.late:  # the event is kept until the log is told, and what it made must not be
            event.buffers = ()
        return made, seconds, (start, event)

    def shorten(self, recorded: Sequence[Value | None], listen: frozenset[str]) -> None:
        """Have the next runs go straight to the kernel, which is generated code on the host, on
        values recorded as these that hear what these ``listen`` to: there is nothing left to find
        out."""
        if not listen <= _WATCHED:
            return
        states = [value.errstate for value in recorded if value is not None]
        if not states or any([state is not states[0] for state in states]):
            return
        if self.direct is None:
            launch = self.kernel.launch
            graph = self.step.group.graph
            layouts = (*graph.inputs, *self.layouts)
            if len(layouts) > OPERANDS:
                return
            self.direct = KernelCall(
                launch.entry,
                self.kernel,
                self.step.inputs,
                self.step.outputs,
                self.step.nodes,
                tuple(self.layouts),
                max([layout.size for layout in layouts]),
                self.step.over or (-1, -1),
            )
        self.direct.watch_flags(states[0], bool(listen))

    def on_host(self) -> Ready:
        """Return the same step made ready to run in NumPy."""
        if self.spare is None:
            self.spare = Ready(self.step, HOST_DEVICE, "numpy")
        return self.spare

    def instead(self) -> Iterator[Ready]:
        """Yield who can run the step where this failed: other devices, the preferred first, then
        NumPy."""
        if self.where.id != HOST_DEVICE:
            for candidate in self.step.decision.candidates:
                other = candidate.device not in (self.where.id, HOST_DEVICE)
                if other and candidate.estimate is not None:
                    yield Ready(self.step, candidate.device, candidate.implementation)
        yield self.on_host()

    def turn(self) -> Ready:
        """Return what runs the step now: itself, or NumPy while its kernel is being made, while
        NumPy is timed, and where the kernel has lost."""
        guard = self.guard
        if guard is not None and guard.phase is GuardPhase.LOST:
            return self.on_host()
        if self.kernel is None and self.compiled(self.patience) is None:
            return self.on_host()
        if stood_in.rehearses and self.where.id == HOST_DEVICE:
            stood_in.times += 1
            return self.on_host()
        if guard is not None and not guard.is_over:
            return self.on_host() if guard.phase is GuardPhase.IN_TURNS else self
        self.plainly = True
        return self

    def tried(self, seconds: float, runner: Ready, site: Any) -> None:
        """Note what a run took, while the kernel's contest goes on."""
        guard = self.guard
        if guard is None or guard.is_over or self.kernel is None:
            return
        if guard.ran(Contender.KERNELS if runner is self else Contender.NUMPY, seconds):
            LOG.demotion(
                self.step.decision.operation,
                f"NumPy took {readable_seconds(guard.numpy_seconds)}, "
                f"the kernel {readable_seconds(guard.kernel_seconds)}"
                + (": NumPy's from the next start on" if guard.beside else ""),
                site,
            )

    def shadow(self, places: Sequence[Place], site: Any) -> None:
        """Time NumPy on the operands of a kernel that has just run; what it gives is thrown
        away."""
        guard, other = self.guard, self.on_host()
        assert guard is not None
        try:
            if self.step.decision.bytes * _SHARE_OF_MEMORY > host_memory()[0]:
                raise MemoryError
            with FOREGROUND.measuring(), warnings_suppressed():
                _, seconds, _ = other.submit(places, frozenset(), [])
        except failures():
            guard.phase = GuardPhase.KEPT  # there is nothing to compare with
            return
        if other.ran and seconds is not None:  # a first run touches memory anew
            self.tried(seconds, other, site)
        other.ran = True

    def decision_in_place(self) -> Decision:
        """Return the decision that is logged where a result took the memory of an operand."""
        if self.displacing is None:
            self.displacing = replace(self.step.decision, in_place=True)
        return self.displacing

    def decision_elsewhere(self) -> Decision:
        """Return the decision that is logged where NumPy runs in the kernel's place."""
        if self.kernel is None:
            group, schedule = self.step.group, self.step.schedule
            reason = kernels.missing(self.where, group, schedule, self.maker)
        else:
            lost = self.guard is not None and self.guard.phase is GuardPhase.LOST
            reason = Reason.DEMOTED if lost else Reason.TRIAL
        if reason not in self.elsewhere:
            self.elsewhere[reason] = replace(
                self.step.decision, implementation="numpy", reason=reason
            )
        return self.elsewhere[reason]


# By step; each keeps its step, so that the id stays its own.
_steps: dict[int, Ready] = {}
register(Cache.PREPARED_STEPS, _steps.clear)


def ready_of(step: LaunchStep) -> Ready:
    """Return a step made ready, the same each time."""
    found = _steps.get(id(step))
    if found is None:
        found = _steps[id(step)] = Ready(step, step.device, step.implementation)
    return found


def kernel_of(step: LaunchStep) -> Any:
    """Return a step's compiled kernel; raises what its backend raises."""
    return ready_of(step).compiled()


def kernel_at_hand(step: LaunchStep) -> bool:
    """Tell whether a step's kernel can be had at once; if not, it is made in the background."""
    ready = ready_of(step)
    return ready.kernel is not None or kernels.soon(ready.where, step.group, step.schedule)


def kernels_at_hand(plan: Plan) -> list[bool]:
    """Return of each generated kernel of a plan on the host whether it is there; what is not is
    being made."""
    return [
        kernel_at_hand(step)
        for step in plan.steps
        if isinstance(step, LaunchStep)
        and (step.device, step.implementation) == (HOST_DEVICE, "generated")
    ]


def let_go(plan: Plan) -> None:
    """Drop the kernels made ready for one plan; who still runs it has them made ready again."""
    for step in plan.steps:
        _steps.pop(id(step), None)
