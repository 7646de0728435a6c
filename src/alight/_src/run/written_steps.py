"""The writes of a plan's run: in place where nobody else needs the old bytes, and launches that
leave their result where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from alight._core import Data, Layout, Value, fresh_data, sole
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.fp_warnings import emit
from alight._src.fp_warnings.categories import told_by_flags
from alight._src.fp_warnings.filters import make_errors
from alight._src.fp_warnings.registry_check import was_shown
from alight._src.log.decisions import LOG
from alight._src.plan.plan import LaunchStep, Plan, WriteStep
from alight._src.run import residency, window_writes
from alight._src.run.constants import constant
from alight._src.run.numpy_in_place import makes_nothing, run_into
from alight._src.run.prepared_step import Ready, array_at, ready_of, stood_in
from alight._src.run.residency import Place
from alight.backends.base import Operand
from alight.backends.host import address_of, host_view
from alight.backends.registry import device
from alight.device import HOST_DEVICE

__all__ = ["WriteOrder", "Writing"]


class WriteOrder:
    """In which order a run writes into leased memory before its end, so that whatever ends it
    leaves there what the program had written by some time, and nothing beside it.

    ``order`` are the memories that may be written, by the inputs that they are (several, where they
    are read in several windows), each with the last version of it.
    """

    __slots__ = ("_passed", "begun", "order")

    def __init__(self, order: Sequence[tuple[frozenset[int], int]]) -> None:
        self.order = order
        self._passed = 0
        self.begun = False  # some memory has been written

    def allow(self, home: int) -> bool:
        """Tell whether it is the turn of an input's memory."""
        return self._passed < len(self.order) and home in self.order[self._passed][0]

    def wrote(self, version: int) -> None:
        """Note that the memory whose turn it is holds a version."""
        self.begun = True
        self._passed += version == self.order[self._passed][1]


class Writing:
    """What a run of a plan holds, and its writes."""

    __slots__ = ("failed", "homes", "later", "places", "plan", "values", "write_order")

    def __init__(self, plan: Plan, values: list[Value | None]) -> None:
        self.plan = plan
        self.values = values
        self.places: dict[int, Place] = {}
        self.failed: dict[int, BaseException] = {}
        # versions that lie in leased memory, by the input that is the first of them
        self.homes: dict[int, int] = {}
        # in which order leased memory may be written before the end; None: in any
        self.write_order: WriteOrder | None = None
        # a launch that is to run with the write after it, straight into the window
        self.later: _Later | None = None

    def _drop(self, number: int) -> None:
        self.places.pop(number, None)
        self.values[number] = None

    def _waits(self, step: LaunchStep, index: int) -> bool:
        """Tell whether a launch is to run with the write that follows it."""
        if index == len(self.plan.steps):
            return False
        write = self.plan.steps[index]
        if not isinstance(write, WriteStep) or not window_writes.takes_all(step, write):
            return False
        ready = ready_of(step)
        if write.value not in self.plan.dead[index] or write.old in step.outputs:
            return False  # it is needed for itself, or written into what the launch makes
        if make_errors():
            return False  # a warning would have to come before anything is written
        guard = ready.guard
        if not ready.plainly and guard is not None and guard.wants_shadow:
            return False  # NumPy is to be timed on the operands
        places = [self._place(number) for number in step.inputs]
        data, start, _ = self._place(write.old)
        if data.array is None:
            return False
        replaced = window_writes.replaced(step, write, places, data, start + write.offset)
        if replaced is None:
            return False
        runner = ready if ready.plainly else ready.turn()
        if runner.implementation == "numpy":
            if runner.worded or not makes_nothing(runner.compiled()):
                return False
            into = runner
        else:
            told = not replaced or told_by_flags(step.group.graph)
            if not told and ready.listened([self.values[number] for number in step.nodes]):
                return False  # who is to warn is found out on the operands
            into = ready.into(step.outputs.index(write.value), write.layout)
            if into.compiled(into.patience) is None:
                return False
        dead = self.plan.dead[index - 1]
        for number in {*dead} - {*step.nodes, *step.inputs}:  # versions in between: they hold it
            self._drop(number)
        self.later = _Later(step, write.value, dead, places, ready, runner, into, replaced)
        return True

    def _place(self, number: int) -> Place:
        place = self.places.get(number)
        if place is None:
            if number in self.failed:
                raise self.failed[number]
            value = self.values[number]
            assert value is not None, number
            assert value.op is None, f"%{number} is read before it is made"
            if value.data is None:
                place = (constant(value), 0, value.layout)
            else:
                place = (value.data, value.offset, value.layout)
            self.places[number] = place
        return place

    def _bind(self, number: int, data: Data, offset: int, layout: Layout) -> None:
        """Make the recorded value behind a number concrete."""
        self.places[number] = (data, offset, layout)
        value = self.values[number]
        if value is not None and value.op is not None:
            value.bind(data, offset)

    def _tells(self, step: LaunchStep, heard: Sequence[str], recorded: Sequence[Any]) -> bool:
        """Tell whether NumPy has something to show of what was heard."""
        if not heard or None in recorded:
            return False
        return not was_shown(step.group.graph, heard, recorded)

    def _write(self, step: WriteStep, dead: Sequence[int]) -> None:
        """Bind the written version: in place where nobody else needs the old bytes, else in a
        copy."""
        later, self.later = self.later, None
        value_place = None if later is not None else self._place(step.value)
        old_place = self._place(step.old)
        old, target = self.values[step.old], self.values[step.target]
        assert old is not None and target is not None
        data, offset, layout = old_place
        # Where the launch replaces windows of the old bytes, it alone may need them: their places
        # and the values, kept until then, hold the bytes.
        replaced = [] if later is None else [n for n in later.replaced if n != step.old]
        mine = later is None or all(
            [window_writes.only_read(self.values, n, later.step, step) for n in replaced]
        )
        kept = [self.values[number] for number in replaced]
        for number in dead:  # windows of the old bytes that were read before
            if number not in (step.old, step.value, step.target):
                self._drop(number)
        # Who may still hold the old bytes here: the list of values, the target's operands, the
        # place, and the value written where it is a window of the same bytes and dies with this
        # step.
        self.places.pop(step.old, None)
        del old_place
        held_by_value = 0
        if step.value == step.old:
            held_by_value = 1  # the value is the old one: a name for its place here
        elif value_place is not None and value_place[0] is data:
            held_by_value = 2 if self.values[step.value] is not None else 1
        else:
            held_by_value = 2 * len(kept)
        number_of_uses = sum(operand is old for operand in target.operands)
        if later is not None:
            held_by_value += step.old in later.replaced  # all of the old bytes at once
            below = window_writes.uses_below(old, self.values, later.step, step)
            mine = mine and below is not None
            number_of_uses += below or 0
        in_place = (
            step.old in dead  # rewriting may have given old bytes readers that were not recorded
            and mine
            and not data.exported
            and (not data.foreign or self._may_write(step))
            and offset == 0
            and layout is old.layout
            and sole(old, 1 + number_of_uses, 1 + held_by_value)
        )
        whole = step.layout is layout and not step.offset
        here = step.device == HOST_DEVICE
        lent = in_place and here and data.foreign  # the caller wants it where it was
        if whole and not lent and self._is_given(step, value_place, dead):
            assert value_place is not None
            self._bind(step.target, value_place[0], value_place[1], layout)
            return
        if (
            value_place is not None
            and not here
            and offset == 0
            and layout is data.layout
            and not window_writes.meets_itself(
                step.layout.shape, step.layout.strides, step.layout.itemsize
            )
        ):
            apart = value_place[0] is not data
            try:
                data = window_writes.write_there(
                    device(step.device),
                    data,
                    Operand(data, step.offset, step.layout),
                    Operand(*value_place),
                    in_place and apart,
                )
            except failures() as error:
                LOG.fallback(f"write on {step.device}", error, target.site)
            else:
                self._bind(step.target, data, 0, layout)
                return
        if not in_place:
            old_place = (data, offset, layout)
            data = (
                fresh_data(layout) if whole else residency.exact_copy(array_at(old_place), layout)
            )
            offset = 0
        elif data.foreign:
            self.homes[step.target] = step.home
            if self.write_order is not None:
                self.write_order.wrote(step.target)
        residency.only_on_host(data)
        if value_place is None:
            assert later is not None
            self.places[step.target] = (data, offset, layout)
            result = Operand(data, offset + step.offset, step.layout)
            self._launch_into(later, result, (target, data, offset))
            return
        self.places[step.target] = (data, offset, layout)
        window = Operand(data, offset + step.offset, step.layout)
        array, value = array_at(value_place), Operand(*value_place)
        launch = window_writes.shared_copy(window, value)
        if launch is not None:
            target.bind_written(data, offset, launch, [*map(address_of, (value, window))])
            return
        target.bind_written(data, offset, np.copyto, host_view(window), array, casting="unsafe")

    def _is_given(self, step: WriteStep, place: Place | None, dead: Sequence[int]) -> bool:
        """Tell whether what is written may be the version itself, as nobody else needs it."""
        if place is None or step.value not in dead or step.value in self.plan.outputs:
            return False
        data, offset, layout = place
        own = not data.foreign and not data.shared and not data.fixed
        return own and not offset and layout is step.layout and data.layout is layout

    def _may_write(self, step: WriteStep) -> bool:
        """Tell whether leased memory may be written before the end."""
        if self.homes.get(step.old, step.old) != step.home:
            return False
        return self.write_order is None or self.write_order.allow(step.home)

    def _launch_into(self, later: _Later, window: Operand, bound: tuple[Value, Data, int]) -> None:
        """Run a launch that waited for the memory of its result, which the written version is bound
        to."""
        step, into, ready = later.step, later.into, later.ready
        recorded = [self.values[number] for number in step.nodes]
        listen, heard = into.listened(recorded), []
        graph, position = step.group.graph, step.outputs.index(later.value)
        rest = [number for number in step.outputs if number != later.value]
        others = [self.values[number] for number in rest]
        made: Sequence[Any]
        seconds: float | None
        if into.implementation == "numpy":
            arrays = [array_at(place) for place in later.places]
            began = perf_counter()
            where = position, host_view(window)
            made, found = run_into(into.kernel, arrays, *where, listen, bound, others)
            seconds = perf_counter() - began
            heard = [what for _, what in found]
            if self._tells(step, heard, recorded):
                emit.tell_heard(graph, found, recorded)  # type: ignore[arg-type]
        else:
            results = tuple([window if n == later.value else None for n in step.outputs])
            given = listen, heard, results, (bound, others)
            made, seconds, _ = into.submit(later.places, *given)
            if self._tells(step, heard, recorded):
                if later.replaced:
                    emit.tell_by_flags(graph, heard, recorded)  # type: ignore[arg-type]
                else:
                    arrays = [array_at(place) for place in later.places]
                    emit.tell(graph, arrays, recorded)  # type: ignore[arg-type]
        first = self.values[step.outputs[0]]
        site = None if first is None else first.site
        decision, runner = step.decision, later.runner
        if runner is not ready:
            stood_in.times += ready.kernel is None
            decision = ready.decision_elsewhere()
        LOG.launched(decision, site, seconds, into.spot, into.eligible, not into.ran)
        if not ready.plainly and into.ran and seconds is not None:
            ready.tried(seconds, runner, site)
        into.ran = True
        for number, data in zip(rest, made, strict=True):
            self.places[number] = data, 0, data.layout
        for number in later.dead:
            self._drop(number)


@dataclass(frozen=True, slots=True)
class _Later:
    """A launch that waits for a write of one of its results: which, what dies with it, its
    operands, the step made ready, whose turn it is to run it, that made ready for the memory of the
    result, and the inputs that the write replaces."""

    step: LaunchStep
    value: int
    dead: Sequence[int]
    places: Sequence[Place]
    ready: Ready
    runner: Ready
    into: Ready
    replaced: Sequence[int]
