"""The host: NumPy's own kernels and our generated ones, on memory that Python sees.

It is synchronous: ``submit`` returns when the work is done. Kernels run in the caller's thread and
so under the caller's ``np.errstate``; generated ones leave only flags behind, which
``floating_point_flags`` reads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from alight._core import Data, Layout, Value, fresh_data, keep_bytes, make_layout, threads
from alight._src.base.originals import np
from alight._src.base.uninterrupted import whereabouts
from alight._src.ir.graph import Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import Kind
from alight.backends.base import Command, Copy, Event, Launch, Operand
from alight.backends.machine import (
    clear_floating_point_flags,
    cpu_model,
    floating_point_flags,
    host_fingerprint,
    host_memory,
    thread_count,
)
from alight.backends.split import launcher
from alight.device import Device, Gap, Probe, Support, Unsupported

__all__ = [
    "BindingKernel",
    "Bound",
    "GeneratedKernel",
    "HostBackend",
    "HostKernel",
    "NumpyKernel",
    "address_of",
    "adopt",
    "bind_written",
    "clear_floating_point_flags",
    "floating_point_flags",
    "host_view",
    "memory_at",
    "run_node",
]

NATIVE_DTYPES = frozenset(np.dtype(c).name for c in "?bBhHiIlLqQefdFD")

# Of free memory. What dead results leave is kept for later ones, on top of what the program holds
# alive: with an eighth, a program that needs up to 7/8 of what is free still fits beside it.
_KEPT_SHARE = 1 / 8

_UINT8 = np.dtype(np.uint8)


class HostKernel(Protocol):
    """A group made ready to run on the host."""

    group: Group

    def run(self, inputs: Sequence[Operand], outputs: Sequence[Operand | None]) -> list[Data]:
        """Return the data made for outputs that are None, in order; the others are filled."""


def host_view(operand: Operand) -> np.ndarray[Any, Any]:
    """Return an operand's elements as an ndarray over its own memory."""
    data, layout = operand.buffer, operand.layout
    if data.layout is layout and operand.offset == 0:
        array: np.ndarray[Any, Any] = data.array
        return array
    return np.ndarray(
        layout.shape, layout.dtype, data.raw, operand.offset if layout.size else 0, layout.strides
    )


def address_of(operand: Operand) -> int:
    """Return the address of an operand's first element."""
    address: int = operand.buffer.address + operand.offset
    return address


def run_node(node: Node, arrays: Sequence[Any]) -> Any:
    """Return a node's result as NumPy computes it; ``output`` picks one of several."""
    attrs = dict(node.attrs)
    output = attrs.pop("output", None)
    result = node.op.reference(*arrays, **attrs)
    return result if output is None else result[output]


class _Step:
    """One node of a NumPy kernel: what to call, where its result goes, what is dead after it."""

    __slots__ = ("apart", "dead", "into", "node", "number", "reuse")

    def __init__(self, number: int, node: Node, dead: tuple[int, ...], reuse: int | None) -> None:
        self.number = number
        self.node = node
        self.dead = dead
        self.reuse = reuse  # the operand whose memory takes the result
        reference = node.op.reference
        self.into: Any = None  # called as into(*operands, out=result), where the op has such a form
        if node.op.kind is Kind.ELEMENTWISE and isinstance(reference, np.ufunc):
            if reference.nout == 1 and not node.attrs:
                self.into = reference
        elif node.op.name in ("cast", "copy"):
            self.into = _copy_into
        # called in the same way, but never on a result that lies over an operand
        self.apart: Any = self.into
        if isinstance(reference, np.ufunc) and node.op.kind is Kind.LIBRARY and not node.attrs:
            self.apart = reference  # products
        elif node.op.name in _TRANSFORMS:
            self.apart = functools.partial(reference, **dict(node.attrs))


# What takes memory for its result as ufuncs do, with the same bits. Memory that a result had before
# has its pages and may lie in the caches: 100,000 x 16 by 16 x 64 float64 (51 MB) took 9.6 ms there
# and 15.2 in memory that NumPy asked the system for.
_TRANSFORMS = frozenset(("fft.fft", "fft.ifft", "fft.rfft", "fft.irfft"))


def _copy_into(source: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    np.copyto(out, source, casting="unsafe")  # as astype casts


class NumpyKernel:
    """A group run node by node by its ops' references; temporaries die at last use."""

    def __init__(self, group: Group) -> None:
        self.group = group
        graph = group.graph
        kept = set(graph.outputs)
        last: dict[int, int] = {}
        uses: dict[int, list[Node]] = {}
        for number, node in graph.numbered:
            for operand in node.operands:
                last[operand] = number
                uses.setdefault(operand, []).append(node)
        fresh: set[int] = set()  # results in memory of this kernel's own making
        self.steps: list[_Step] = []
        for number, node in graph.numbered:
            dead = tuple({i for i in node.operands if last[i] == number and i not in kept})
            step = _Step(number, node, dead, None)
            # Transcendentals stay out of place: whether their vector loops take overlapping memory
            # differs between NumPy's, and the scalar ones round differently.
            if isinstance(step.into, np.ufunc) and not node.op.special:
                step.reuse = next(
                    (
                        i
                        for i in dead
                        if i in fresh
                        and graph.layouts[i] is node.layout
                        and all(isinstance(n.op.reference, np.ufunc) for n in uses[i])
                    ),
                    None,
                )
            if step.apart is not None:
                fresh.add(number)
            self.steps.append(step)
        count = len(graph.inputs)
        # One call on the operands as they come: what most groups of NumPy's are.
        single = len(self.steps) == 1 and graph.outputs == (count,)
        as_given = single and self.steps[0].node.operands == (*range(count),)
        self.one_call = as_given and self.steps[0].apart is not None

    def made(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Data]:
        """Return the data made of these arrays, for each output."""
        threads.rest()  # libraries have threads of their own, which need the processors
        if self.one_call:
            data = fresh_data(self.steps[0].node.layout)
            self.steps[0].apart(*arrays, out=data.array)
            return [data]
        graph = self.group.graph
        values: list[Any] = [*arrays, *[None] * len(graph.nodes)]
        owners = self._computed(values, {})
        return [
            owners.pop(number)
            if number in owners
            else _copied(values[number], graph.layouts[number])
            for number in graph.outputs
        ]

    def run(self, inputs: Sequence[Operand], outputs: Sequence[Operand | None]) -> list[Data]:
        """Return the data made for outputs that are None, in order; the others are filled."""
        arrays = [host_view(operand) for operand in inputs]
        if not any([operand is not None for operand in outputs]):
            return self.made(arrays)
        threads.rest()
        graph = self.group.graph
        values: list[Any] = [*arrays, *[None] * len(graph.nodes)]
        # The first place asked for, by value number; other places are copied to.
        given: dict[int, np.ndarray[Any, Any]] = {}
        for number, operand in zip(graph.outputs, outputs, strict=True):
            if operand is not None and number >= len(arrays):
                given.setdefault(number, host_view(operand))
        owners = self._computed(values, given)
        made: list[Data] = []
        for number, operand in zip(graph.outputs, outputs, strict=True):
            if operand is not None:
                # pop: the first place is filled already; an input or a repeated output is copied.
                if given.pop(number, None) is None:
                    np.copyto(host_view(operand), values[number], casting="no")
            elif number in owners:
                made.append(owners.pop(number))
            else:
                made.append(_copied(values[number], graph.layouts[number]))
        return made

    def _computed(
        self, values: list[Any], given: dict[int, np.ndarray[Any, Any]]
    ) -> dict[int, Data]:
        """Fill in the values of nodes, those that are ``given`` a place there; return the data of
        the others that live on."""
        outputs = self.group.graph.outputs
        owners: dict[int, Data] = {}
        for step in self.steps:
            number, node = step.number, step.node
            arrays = [values[i] for i in node.operands]
            target = given.get(number)
            function = step.apart if target is None else step.into
            if function is not None:
                if target is None:
                    if step.reuse is not None:
                        owners[number] = owners.pop(step.reuse)
                    else:
                        owners[number] = fresh_data(node.layout)
                    target = owners[number].array
                function(*arrays, out=target)
            else:
                result = np.asarray(run_node(node, arrays))
                if target is not None:
                    np.copyto(target, result, casting="no")
                elif number in outputs or result.strides != node.layout.strides:
                    owners[number] = adopt(result, node.layout, arrays)
                    target = owners[number].array
                else:
                    target = result
            values[number] = target
            arrays.clear()
            for i in step.dead:
                values[i] = None
                owners.pop(i, None)
        return owners


def _copied(array: np.ndarray[Any, Any], layout: Layout) -> Data:
    data = fresh_data(layout)
    assert data.array is not None
    np.copyto(data.array, array, casting="no")
    return data


def adopt(
    result: np.ndarray[Any, Any],
    layout: Layout,
    operands: Sequence[np.ndarray[Any, Any]],
) -> Data:
    """Return data of this layout with the result's elements.

    It is the result's own memory where nobody else has a part in it, else a copy.
    """
    base = result.base
    alone = base is None or (type(base) is np.ndarray and base.base is None and base.flags.owndata)
    if (
        alone
        and type(result) is np.ndarray
        and result.dtype == layout.dtype
        and result.shape == layout.shape
        and result.strides == layout.strides
        and layout.dense
        and result.flags.writeable
        and not any(np.may_share_memory(result, operand) for operand in operands)
    ):
        return Data(layout, result, base)
    return _copied(result, layout)


# A value, and the bytes and the offset in them that it is to have.
Bound = tuple[Value, Data, int]


class GeneratedKernel:
    """A group compiled to machine code, run on the threads that pay."""

    def __init__(self, group: Group, code: Any) -> None:
        self.group = group
        self.code = code
        self.launch = launcher(group, code, thread_count())

    def run(self, inputs: Sequence[Operand], outputs: Sequence[Operand | None]) -> list[Data]:
        """Return the data made for outputs that are None, in order; the others are filled."""
        made: list[Data] = []
        addresses = [address_of(operand) for operand in inputs]
        for number, operand in zip(self.group.graph.outputs, outputs, strict=True):
            if operand is None:
                data = fresh_data(self.group.graph.layouts[number])
                made.append(data)
                addresses.append(data.address)
            else:
                addresses.append(address_of(operand))
        self.launch(addresses)
        return made


class BindingKernel:
    """A generated kernel that fills memory it is given with a result, to which a recorded value is
    bound as it ends: what was computed in place from what is then gone cannot be computed once
    more. ``others`` are the values of the other results, None where nobody has one."""

    def __init__(
        self, kernel: GeneratedKernel, bound: Bound, others: Sequence[Value | None]
    ) -> None:
        self.group = kernel.group
        self._launch = kernel.launch
        self._bound, self._others = bound, others

    def run(self, inputs: Sequence[Operand], outputs: Sequence[Operand | None]) -> list[Data]:
        """Run the kernel; return the data made for outputs that are None, in order."""
        made: list[Data] = []
        addresses = [address_of(operand) for operand in inputs]
        for number, operand in zip(self.group.graph.outputs, outputs, strict=True):
            if operand is None:
                made.append(fresh_data(self.group.graph.layouts[number]))
                addresses.append(made[-1].address)
            else:
                addresses.append(address_of(operand))
        bind_written(self._bound, self._others, made, self._launch, addresses)
        return made


def bind_written(
    bound: Bound,
    others: Sequence[Value | None],
    made: Sequence[Data],
    function: Callable[..., Any],
    *args: Any,
) -> None:
    """Call a function that writes over what values are made of, and bind all of these values as it
    returns, with nothing in between that may be interrupted: what is bound, and, for the others,
    what was made."""
    rest = [(value, data, 0) for value, data in zip(others, made, strict=True) if value is not None]
    for value, data, offset in (*rest, bound):
        args = (data, offset, function, *args)
        function = value.bind_written
    function(*args)


class HostBackend:
    """Drives the device ``cpu``; its buffers are ``Data``, its kernels are ``HostKernel``."""

    name = "host"
    late = False

    def __init__(self) -> None:
        self._kept_bytes = int(host_memory()[0] * _KEPT_SHARE)
        keep_bytes(self._kept_bytes)

    def probe(self) -> Probe:
        """Return the one device of the host."""
        generated = whereabouts("llvmlite") is not None
        gap = Gap("generated", "llvmlite is not installed", "the user: pip install llvmlite")
        support = Support(
            implementations=("numpy", "generated") if generated else ("numpy",),
            dtypes=NATIVE_DTYPES,
            gaps=() if generated else (gap,),
        )
        vendor, model = cpu_model()
        device = Device(
            id="cpu",
            vendor=vendor,
            name=model,
            space="host",
            memory_bytes=host_memory()[1],
            unified_memory=True,
            support=support,
            fingerprint=host_fingerprint(),
        )
        return Probe(devices=(device,))

    def open(self, device: Device) -> None:
        """Do nothing: the host is always open."""

    def close(self, device: Device) -> None:
        """Drop the memory kept for results."""
        keep_bytes(0)
        keep_bytes(self._kept_bytes)

    def compile(
        self, device: Device, group: Group, implementation: str, schedule: Any
    ) -> HostKernel:
        """Return a kernel for the group.

        Raises Unsupported, with the reason, where code generation has a gap.
        """
        if implementation in ("numpy", "library"):
            return NumpyKernel(group)
        if implementation != "generated":
            raise Unsupported(f"{device.id} has no implementation {implementation!r}")
        group = group.form.lowered or group
        from alight._src.codegen.llvm import compiled  # late: it loads the code generator

        kernel = compiled.here(group, schedule)
        if kernel is None:
            try:
                from alight._src.codegen.llvm import object_code
            except ImportError as error:
                raise Unsupported(f"code generation is not available: {error}") from error
            kernel = object_code.compile_group(group, schedule)
        return GeneratedKernel(group, kernel)

    def dump(self, kernel: HostKernel) -> bytes:
        """Return the kernel's compiled form; a NumPy kernel has nothing compiled and gives b""."""
        return kernel.code.object if isinstance(kernel, GeneratedKernel) else b""

    def load(self, device: Device, group: Group, schedule: Any, data: bytes) -> HostKernel:
        """Return a kernel from its compiled form; group and schedule are those it was made for."""
        if not data:
            return NumpyKernel(group)
        from alight._src.codegen.llvm import compiled

        group = group.form.lowered or group
        return GeneratedKernel(group, compiled.load_object(group, schedule, data))

    def allocate(self, device: Device, nbytes: int, where: str = "device") -> Data:
        """Return uninitialised bytes; the host has one kind of memory."""
        return fresh_data(make_layout(_UINT8, (nbytes,)))

    def fresh(self, layout: Layout) -> Data:
        """Return uninitialised memory of exactly this layout."""
        return fresh_data(layout)

    def register(self, device: Device, address: int, nbytes: int) -> Data:
        """Return data over memory of the caller, who must keep it alive."""
        return memory_at(address, nbytes)

    def free(self, device: Device, buffer: Data) -> None:
        """Do nothing: data gives its memory back when the last reference to it goes."""

    def submit(
        self, device: Device, queue: int, commands: Sequence[Command], wait: Sequence[Event] = ()
    ) -> Event:
        """Run the commands now; the event carries the buffers that launches made."""
        began = perf_counter()
        made: list[Any] = []
        for command in commands:
            if isinstance(command, Launch):
                made += command.kernel.run(command.inputs, command.outputs)
            elif isinstance(command, Copy):
                command.target.raw[: command.nbytes] = command.source.raw[: command.nbytes]
            else:
                command.target.raw[: command.nbytes] = command.byte
        return Event(device.id, queue, began, perf_counter(), tuple(made))

    def wait(self, event: Event) -> None:
        """Do nothing: the event has happened."""

    def seconds(self, start: Event, end: Event) -> float:
        """Return host-clock seconds between two events."""
        return end.ended - start.ended

    def memory(self, device: Device) -> tuple[int, int]:
        """Return free and total bytes of host memory, as far as this process may use it."""
        return host_memory()


def memory_at(address: int, nbytes: int) -> Data:
    """Return data over memory that somebody else owns."""
    array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
    return Data(make_layout(_UINT8, (nbytes,)), array, foreign=True)
