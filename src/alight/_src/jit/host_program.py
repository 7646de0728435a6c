"""Programs of calls on ndarrays, and the kernels that a guard can launch in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from alight._core import OPERANDS, Data, Layout, Value, layout_of, make_layout
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.config.loading import config
from alight._src.fp_warnings.categories import is_worded, wanted_of
from alight._src.fp_warnings.errstate import ERRSTATE, settings_of
from alight._src.fp_warnings.filters import at_the_call, when_to_warn
from alight._src.fp_warnings.registry_check import AlreadyShown
from alight._src.ir.graph import Graph
from alight._src.jit.call_program import Argument, Fresh, Leaf, Program, Tree
from alight._src.jit.reachability import NdArray
from alight._src.plan.plan import LaunchStep, Plan, ViewStep
from alight._src.record.argument_memory import Move, Window, one_after_the_other, put_back
from alight._src.record.pending import foreign, lent
from alight._src.run import evaluate
from alight._src.run.written_steps import WriteOrder
from alight.device import HOST_DEVICE
from alight.errors import PlanError

__all__ = ["HostProgram", "Launchable", "NothingWritten", "Written", "called", "watching"]


class NothingWritten(Exception):
    """Raised where a program cannot be run to its end, and its arguments are as they were."""


class Written(NamedTuple):
    """An argument that is written: its number, the value it has in the end, and which windows of
    it are written, their masks by the numbers of values."""

    number: int
    value: int
    windows: tuple[Window, ...]


def called(step: LaunchStep) -> Callable[..., Any] | None:
    """Return the function of NumPy's, called with the operands and where the result goes, that a
    step not generated is; None where it is more than one call of such a function."""
    nodes = step.group.graph.nodes
    if len(nodes) != 1 or nodes[0].attrs:
        return None
    reference = nodes[0].op.reference
    takes_result = reference is np.dot or (isinstance(reference, np.ufunc) and reference.nout == 1)
    return reference if takes_result else None


class Launchable(NamedTuple):
    """A program that is generated kernels on the host, with calls of NumPy's between them, from
    arguments to fresh arrays.

    ``inputs`` are (position of an ndarray, offset from its first element) or constant arrays.
    ``operands`` of each step are (place, offset in bytes): inputs first, then ``outputs``, which
    the steps make in this order. ``results`` are positions among the outputs, ``scalars`` marks
    NumPy scalars, and ``form`` is None for one result, else tuple or list. ``told`` are the
    categories of floating-point errors that are not ignored here.
    """

    steps: tuple[LaunchStep, ...]
    operands: tuple[tuple[tuple[int, int], ...], ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Layout, ...]
    results: tuple[int, ...]
    scalars: tuple[bool, ...]
    form: type | None
    told: frozenset[str]
    already_shown: AlreadyShown  # tells whether flags say nothing new


class HostProgram(Program):
    """A program of a call on ndarrays, what it assigns being in them afterwards."""

    def __init__(
        self,
        prepared: evaluate.Prepared,
        leaves: tuple[Any, ...],
        nodes: tuple[tuple[Any, Any], ...],
        form: Any,
        writes: tuple[Written, ...] = (),
        spans: tuple[tuple[int, int], ...] = (),
        together: tuple[tuple[int, ...], ...] = (),
        apart: bool = True,
    ) -> None:
        """``spans``: of each argument that is written the first and the last time, in the body's
        order. ``together``: arguments that overlap and are written, each of these a piece of memory
        that is numbered behind the arguments. ``apart``: no arguments overlap; the guard,
        which compares no addresses, launches no other programs."""
        super().__init__(prepared, leaves, nodes, form)
        # Once it was asked for: the plan in generated kernels, and these if it is nothing else.
        self.generated: tuple[Plan, Launchable | None] | None = None
        states = [settings_of(errstate) for _, errstate in nodes if errstate is not None]
        modes = {mode for settings in states for mode in settings.values()}
        self.writes = writes
        # What its results have, apart from what it is given.
        assigned = {written.value for written in writes}
        self.result_bytes = sum(
            [self.graph.layouts[n].nbytes for n in set(self.graph.outputs) - assigned]
        )
        self._together = together
        self._apart = apart
        # Whether a call must not be done twice: it changes an argument, or prints.
        self.once = bool(writes) or "print" in modes
        ordered = [writes[number] for number in one_after_the_other(spans)] if writes else []
        self._order = tuple([(self._inputs(w.number), w.value) for w in ordered])
        # Whether NumPy may warn of something whatever the state around the call is.
        self.warns = "warn" in modes or is_worded(self.graph)

    @property
    def may_wait(self) -> bool:
        """Tell whether what NumPy warns of whatever the state around the call is may be told once
        all is done."""
        return not self.warns or when_to_warn() in ("later", "never")

    def _inputs(self, number: int) -> frozenset[int]:
        """Return which inputs of the plan lie in an argument."""
        leaves = enumerate(self.leaves)
        return frozenset([n for n, leaf in leaves if type(leaf) is Leaf and leaf.number == number])

    def run(self, arrays: Sequence[NdArray]) -> Any:
        """Return the results for these arrays; what the body assigns is in them afterwards.

        Whatever ends it leaves them with what the body had written by some time; where one of its
        operations does, before anything was written, `NothingWritten` is raised.
        """
        order = WriteOrder(self._order) if self.writes else None
        # A block that ignores warnings is still open when a replay ends.
        with at_the_call() if self.warns else nullcontext():
            values = [lent([array])[0] for array in arrays]
            if self._together:
                values += [lent(members)[0] for members in self._members(arrays)]
            try:
                kept = self.compute(values, order)
            except PlanError:  # what the check finds is not to be answered by NumPy
                raise
            except failures() as error:
                if order is None or order.begun:
                    raise
                raise NothingWritten from error
        if self.writes:
            memory = arrays
            if self._together:
                memory = [*arrays, *[_array_of(lent(m)[0]) for m in self._members(arrays)]]
            put_back([move for w in self.writes for move in _moves(w, memory[w.number], kept)])
        return self.build(self.form, arrays, kept, {})

    def _members(self, arrays: Sequence[NdArray]) -> list[list[NdArray]]:
        return [[arrays[number] for number in own] for own in self._together]

    def window(self, given: Any, form: Argument) -> Any:
        """Return a window of an argument."""
        assert form.window is not None
        layout, offset, writeable = form.window
        value, _ = foreign(given)
        assert value.data is not None
        result = evaluate.elements_at(value.data.raw, value.offset + offset, layout)
        if not writeable:
            result.flags.writeable = False
        return result

    def fresh(self, form: Fresh, values: dict[int, Value], made: dict[Any, Any]) -> Any:
        """Return what the plan made as an ndarray, or a NumPy scalar."""
        value = values[form.value]
        host = evaluate.host_array(value)
        if form.scalar:
            return host[()]
        data, start = value.data, value.offset
        assert data is not None
        # Versions are shared until one is written (`b[:] = a`); what goes out must not be.
        if data.foreign or made.setdefault(("owner", id(data)), form.memory) != form.memory:
            copied = made.get(("copy", form.memory))
            if copied is None:
                copied = made["copy", form.memory] = host.copy("K")
            host, data, start = copied, Data(value.layout, copied), 0
        view = form.window
        if view is None:
            return host
        result = np.ndarray(
            view.layout.shape, view.layout.dtype, data.raw, start + view.offset, view.layout.strides
        )
        result.flags.writeable = view.writeable
        return result

    def launchable(self, plan: Plan | None = None) -> Launchable | None:
        """Return the program as the generated kernels of a plan (by default its own), if there is
        nothing between them but calls."""
        form = self.form
        parts = form.parts if type(form) is Tree and form.kind in (tuple, list) else (form,)
        fresh = [part for part in parts if type(part) is Fresh]
        if (
            self.writes
            or not self._apart
            or len(fresh) != len(parts)
            or any(p.window is not None for p in fresh)
        ):
            return None
        wiring = _Wiring(self.leaves)
        if not all(wiring.add(step) for step in (plan or self.plan).steps):
            return None
        results = [wiring.made.get(part.value, -1) for part in fresh]
        few = len(wiring.inputs) + len(wiring.outputs) <= OPERANDS
        if not few or -1 in results or len(set(results)) != len(results):
            return None
        if not all([_as_made(wiring.outputs[number]) for number in results]):
            return None
        if not any([step.implementation == "generated" for step in wiring.steps]):
            return None  # NumPy's own way is as quick
        found = Launchable(
            tuple(wiring.steps),
            tuple([wiring.placed(operands) for operands in wiring.operands]),
            tuple(wiring.inputs),
            tuple(wiring.outputs),
            tuple(results),
            tuple([part.scalar for part in fresh]),
            form.kind if type(form) is Tree else None,
            wanted_of(self.graph, [errstate or ERRSTATE.get() for _, errstate in self.nodes]),
            AlreadyShown(self.graph, self.nodes),
        )
        if config().check:
            from alight._src.jit.checked_programs import prove_launches

            prove_launches(self, plan or self.plan, found)
        return found


def watching(program: HostProgram, graph: Graph, state: Any) -> HostProgram:
    """Return the program of another graph on what a program is given, under an error state: its
    results are the outputs, in a tuple."""
    unplanned = Plan((), (), graph.outputs)  # it runs as generated code, or not at all
    prepared = evaluate.Prepared(graph, unplanned, (), (), program.described)
    parts = [Fresh(k, number, None, True, k) for k, number in enumerate(graph.outputs)]
    nodes = ((program.site, state),) * len(graph.nodes)
    return HostProgram(prepared, program.leaves, nodes, Tree(tuple, tuple(parts), ()))


class _Wiring:
    """What the kernels of a plan read and make, by the numbers of its values."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.steps: list[LaunchStep] = []
        self.operands: list[list[tuple[bool, int, int]]] = []
        self.inputs: list[Any] = []
        self.outputs: list[Layout] = []
        self.made: dict[int, int] = {}  # outputs that are values, not windows of them
        # Whether it is an output or an input, which one, and how many bytes on.
        self.places: dict[int, tuple[bool, int, int]] = {}

    def add(self, step: Any) -> bool:
        """Add a step of the plan; tell whether it is one that a guard can take."""
        if isinstance(step, ViewStep):
            made, number, offset = self.place(step.source)
            self.places[step.target] = made, number, offset + step.offset
            return True
        if not isinstance(step, LaunchStep):
            return False
        if step.device != HOST_DEVICE:
            return False
        if step.implementation != "generated" and called(step) is None:
            return False
        graph = step.group.graph
        operands = [self.place(number) for number in step.inputs]
        for number, value in zip(step.outputs, graph.outputs, strict=True):
            layout = graph.layouts[value]
            if not (layout.c_contiguous or layout.probe.flags.f_contiguous):
                return False
            self.made[number] = len(self.outputs)
            self.places[number] = True, len(self.outputs), 0
            operands.append(self.places[number])
            self.outputs.append(layout)
        self.steps.append(step)
        self.operands.append(operands)
        return True

    def place(self, number: int) -> tuple[bool, int, int]:
        """Return where a value is; what no step made is an input."""
        found = self.places.get(number)
        if found is None:
            found = self.places[number] = False, len(self.inputs), 0
            self.inputs.append(_input(self.leaves[number]))
        return found

    def placed(self, operands: Sequence[tuple[bool, int, int]]) -> tuple[tuple[int, int], ...]:
        """Return operands as places among inputs and outputs, now that all inputs are known."""
        first = len(self.inputs)
        return tuple([(number + made * first, offset) for made, number, offset in operands])


def _as_made(layout: Layout) -> bool:
    """Tell whether an ndarray that is made in C or Fortran order has these strides: those of axes
    of length one may be any."""
    if not layout.size:
        return bool(np.empty_like(layout.probe, order="K").strides == layout.strides)
    # Not asked of NumPy, which would make the array: there may be no room for one more.
    if layout.c_contiguous:
        return layout.strides == make_layout(layout.dtype, layout.shape).strides
    return layout.strides == make_layout(layout.dtype, layout.shape[::-1]).strides[::-1]


def _input(leaf: Any) -> Any:
    if type(leaf) is Leaf:
        return leaf
    return evaluate.host_array(leaf)


def _array_of(value: Value) -> NdArray:
    assert value.data is not None and value.data.array is not None
    return value.data.array


def _moves(written: Written, array: NdArray, kept: dict[int, Value]) -> Iterator[Move]:
    """Yield what is to be put into an argument, if it is not there."""
    value = kept[written.value]
    data = value.data
    memory = array
    if value.layout is not layout_of(array):  # of the bytes that its elements are among
        memory = _array_of(foreign(array)[0])
    if data is not None and (
        data.array is memory or (data.foreign and data.address == memory.ctypes.data)
    ):
        return
    windows = [w if w.mask is None else w._replace(mask=kept[w.mask]) for w in written.windows]
    yield Move(memory, value, windows)
