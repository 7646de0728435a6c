"""Run: the steps of a plan, on the devices they were placed on, bound to recorded values at once.

Each step binds its results as it finishes, so that an error or an interrupt leaves a graph that
can be asked again. What a device or generated code does wrong never reaches the program: NumPy
does it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from alight._core import Data, Value
from alight._core.guard import WATCHED
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings import emit
from alight._src.log.decisions import LOG
from alight._src.plan.plan import LaunchStep, ViewStep, WriteStep
from alight._src.run import residency
from alight._src.run.numpy_again import made_again, one_by_one
from alight._src.run.pending_outcomes import LaunchRecord, launched
from alight._src.run.prepared_step import HERE, Ready, array_at, ready_of, stood_in
from alight._src.run.streaming import streamed
from alight._src.run.written_steps import Writing
from alight.device import HOST_DEVICE
from alight.errors import OutOfDeviceMemory


class Execution(Writing):
    """One run of a plan over recorded values."""

    __slots__ = ()

    def run(self) -> None:
        """Run every step; a step that fails fails its outputs and what depends on them, nothing
        else."""
        steps = self.plan.steps
        for write in self.plan.skipping:
            # What is left out would hold the versions that it was made of until this is bound.
            target = self.values[write.target]
            if target is not None and target.operands:
                old = self.values[write.old]
                assert old is not None, write
                target.operands = (old, *target.operands[1:])
        target = old = None  # a version that nobody holds is written in place
        for index, (step, dead) in enumerate(zip(steps, self.plan.dead, strict=True)):
            try:
                if isinstance(step, LaunchStep) and self._waits(step, index + 1):
                    continue
                self._step(step, dead)
            except failures() as error:
                if isinstance(step, LaunchStep):
                    self._salvage(step, error)
                else:
                    self.later = None
                    self._fail((step.target,), error)
            for number in dead:
                self._drop(number)

    def _step(self, step: LaunchStep | ViewStep | WriteStep, dead: Sequence[int]) -> None:
        if isinstance(step, LaunchStep):
            self._launch(step)
        elif isinstance(step, ViewStep):
            data, offset, _ = self._place(step.source)
            self._bind(step.target, data, offset + step.offset, step.layout)
        else:
            self._write(step, dead)

    def _salvage(self, step: LaunchStep, error: BaseException) -> None:
        """Compute what a failed step can still give, node by node in NumPy: fusing must not spread
        errors."""
        graph = step.group.graph
        if len(graph.nodes) == 1:
            self._fail(step.outputs, error)
            return
        LOG.fallback(
            f"{step.decision.operation} on {step.device}:{step.implementation}",
            f"{type(error).__name__} in one of its ops; the others are done one by one",
        )
        operands: list[Any] = []
        for number in step.inputs:
            try:
                operands.append(array_at(self._place(number)))
            except failures() as missing:
                operands.append(missing)
        results = one_by_one(graph, operands, error)
        for number, inner in zip(step.outputs, graph.outputs, strict=True):
            result = results[inner]
            if isinstance(result, Exception):
                self._fail((number,), result)
            else:
                data = residency.exact_copy(result, graph.layouts[inner])
                self._bind(number, data, 0, data.layout)

    def _fail(self, targets: Iterable[int], error: BaseException) -> None:
        for number in targets:
            self.failed[number] = error
            value = self.values[number]
            if value is not None:
                emit.note(error, value)
                value.error = error

    def _launch(self, step: LaunchStep) -> None:
        ready, values = ready_of(step), self.values
        if ready.direct is not None:
            if step.over is not None:  # a place would hold what the kernel may write over
                self.places.pop(step.inputs[step.over[1]], None)
            took = ready.direct.run(values)
            if took is not None:
                if took < 0.0:
                    took = -took
                    try:
                        self._tell_again(step)
                    except failures() as error:  # it cannot be done again: an operand is gone
                        self._fail(step.outputs, error)
                first = values[step.outputs[0]]
                site = None if first is None else first.site
                over = step.over is not None and ready.direct.in_place
                decision = ready.decision_in_place() if over else step.decision
                LOG.launched(decision, site, took, ready.spot, ready.eligible, False)
                return
        recorded = [values[number] for number in step.nodes]
        listen = ready.listened(recorded)
        places = [self._place(number) for number in step.inputs]
        heard: list[str] = []
        where, implementation, decision = ready.where, step.implementation, step.decision
        passage = ready.passage if step.passes else None
        if passage is not None and self._stream(step, ready, lambda: passage.run(places)):
            return
        try:
            runner = ready if ready.plainly else ready.turn()
            made, seconds, events = runner.submit(places, listen, heard)
            if runner is not ready:
                stood_in.times += ready.kernel is None
                where, implementation = runner.where, runner.implementation
                decision = ready.decision_elsewhere()
        except failures() as error:
            if where.id == HOST_DEVICE and implementation != "generated":
                raise
            site = _last_site(recorded)
            what = f"{step.decision.operation} on {where.id}:{implementation}"
            LOG.fallback(what, error, site)
            heard.clear()
            if isinstance(error, OutOfDeviceMemory) and self._stream(
                *(step, ready),
                lambda: streamed(where, step.group, step.implementation, places),
            ):
                return
            for runner in ready.instead():
                where, implementation = runner.where, runner.implementation
                try:
                    made, seconds, events = runner.submit(places, listen, heard)
                    break
                except failures():
                    if where.id == HOST_DEVICE:  # the last there is
                        raise
                    heard.clear()
        if runner is ready and ready.plainly and ready.spot == HERE:
            ready.shorten(recorded, listen)
        if heard and self._tells(step, heard, recorded):
            arrays = [array_at(place) for place in places]
            emit.tell(step.group.graph, arrays, recorded)  # type: ignore[arg-type]
        first = values[step.outputs[0]]
        site = None if first is None else first.site
        known = (implementation, where.id), ready.eligible, not runner.ran
        if seconds is not None:
            LOG.launched(decision, site, seconds, *known)
            if not ready.plainly and runner.ran:
                ready.tried(seconds, runner, site)
                if ready.guard is not None and ready.guard.wants_shadow:
                    ready.shadow(places, site)
        runner.ran = True
        results = []
        for number, layout, result in zip(step.outputs, ready.layouts, made, strict=True):
            data = result if where.id == HOST_DEVICE else residency.made_on(where, layout, result)
            results.append(data)
            self._bind(number, data, 0, layout)
        if seconds is None:
            record = LaunchRecord(decision, site, *known)
            launched(where, step.group.graph, record, events, places, results)

    def _tell_again(self, step: LaunchStep) -> None:
        """Tell what a step that has written over one of its operands warns of."""
        recorded = [self.values[number] for number in step.nodes]
        if not self._tells(step, tuple(WATCHED), recorded):
            return
        assert step.over is not None
        gone = step.inputs[step.over[1]]
        try:
            arrays = [
                made_again(n, self._there, self.plan) if n == gone else array_at(self._place(n))
                for n in step.inputs
            ]
        except failures() as error:  # the results are right, and only words are missing
            LOG.fallback(f"the warning of {step.decision.operation}", error)
            return
        emit.tell(step.group.graph, arrays, recorded)  # type: ignore[arg-type]

    def _there(self, number: int) -> np.ndarray[Any, Any] | None:
        """Return a value as an array; None where its bytes are gone."""
        return None if self.values[number] is None else array_at(self._place(number))

    def _stream(self, step: LaunchStep, ready: Ready, run: Callable[[], list[Data] | None]) -> bool:
        """Run a step in chunks; tell whether it could."""
        recorded = [self.values[number] for number in step.nodes]
        site = _last_site(recorded)
        try:
            results = run()
        except failures() as error:
            LOG.fallback(f"{step.decision.operation} in chunks on {ready.where.id}", error, site)
            return False
        if results is None:
            return False
        spot = step.implementation, ready.where.id
        # what the kernels took is not known apart from the copies beside them
        LOG.launched(step.decision, site, None, spot, ready.eligible, not ready.ran)
        for number, data in zip(step.outputs, results, strict=True):
            self._bind(number, data, 0, data.layout)
        return True


def _last_site(recorded: Sequence[Value | None]) -> Any:
    """Return where the last of some ops was called that somebody still holds."""
    return next((value.site for value in reversed(recorded) if value is not None), None)


# What runs plans: where they are checked, one that looks at what it does.
runner: type[Execution] = Execution
