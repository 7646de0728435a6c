"""What is timed to learn a device: small groups of known work, and the buffers they run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from alight._core import Data, Layout, layout_of, make_layout
from alight.backends.base import Copy, Launch, Operand
from alight.ir.group import Attrs, Graph, Group, GroupKind, Node
from alight.ir.ops import OPS, Kind
from alight.measure.timing import Timing, time_device

if TYPE_CHECKING:
    from alight.backends.base import Backend
    from alight.device import Device

# Operations of the probe of arithmetic. Enough that seven of them stand out from one pass over
# memory in the first-level cache; few enough to stay in registers.
CHAIN = 8

# Compiling takes tens of milliseconds, finding a compiled kernel tenths: between them is room.
_COMPILED = 10


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to time: a group, the implementation to run it, and its inputs' dtype."""

    implementation: str
    group: Group


def _vector(dtype: str, n: int) -> Layout:
    return make_layout(np.dtype(dtype), (n,))


def loop(name: str, dtype: str, n: int, result: str | None = None, attrs: Attrs = ()) -> Group:
    """Return a group of one elementwise op over n elements, each operand its own array."""
    layout = _vector(dtype, n)
    op = OPS[name]
    out = layout if result is None else _vector(result, n)
    node = Node(op, tuple(range(op.nin)), attrs, out)
    return Group(GroupKind.LOOP, Graph((layout,) * op.nin, (node,), (op.nin,)), (n,))


def chain(dtype: str, n: int) -> Group:
    """Return a group of CHAIN additions and multiplications of the same two arrays."""
    layout = _vector(dtype, n)
    nodes = []
    last = 0
    for i in range(CHAIN):
        nodes.append(Node(OPS["multiply" if i % 2 else "add"], (last, 1), (), layout))
        last = 2 + i
    return Group(GroupKind.LOOP, Graph((layout, layout), tuple(nodes), (last,)), (n,))


def fold(name: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Group:
    """Return a group of one reduction over some axes of a C-ordered array."""
    layout = make_layout(np.dtype(dtype), shape)
    kept = tuple(length for i, length in enumerate(shape) if i not in axes)
    with np.errstate(all="ignore"):
        result = np.asarray(OPS[name].reference(np.ones(1, dtype))).dtype
    node = Node(OPS[name], (0,), (("axis", axes),), make_layout(result, kept))
    return Group(GroupKind.REDUCE, Graph((layout,), (node,), (1,)), shape)


def scan(name: str, dtype: str, n: int) -> Group:
    """Return a group of one scan over n elements."""
    layout = _vector(dtype, n)
    node = Node(OPS[name], (0,), (("axis", 0),), layout)
    return Group(GroupKind.SCAN, Graph((layout,), (node,), (1,)), (n,))


def product(dtype: str, n: int) -> Group:
    """Return a group of one n by n matrix product."""
    layout = make_layout(np.dtype(dtype), (n, n))
    node = Node(OPS["matmul"], (0, 1), (), layout)
    return Group(GroupKind.LIBRARY, Graph((layout, layout), (node,), (2,)), (n, n))


def typical(dtype: str, n: int, seed: int) -> np.ndarray[Any, Any]:
    """Return n elements as programs have them: no zeros, no denormals, nothing that overflows.

    Zeros run faster than other numbers on some devices, denormals slower on most.
    """
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    # Drawing 2^21 numbers takes longer than timing them; 2^16 that repeat are random enough for
    # any predictor of branches.
    drawn = min(n, 1 << 16)
    if kind == "b":
        block = generator.integers(0, 2, drawn).astype(bool)
    elif kind in "iu":
        block = generator.integers(1, 8, drawn).astype(dtype)
    else:
        block = generator.uniform(0.5, 1.5, drawn).astype(dtype)
    return np.resize(block, n)


def _start(layout: Layout) -> int:
    """Return how many bytes lie before the first element, since some strides lead back."""
    steps = zip(layout.shape, layout.strides, strict=True)
    return sum((length - 1) * -stride for length, stride in steps if stride < 0 < length)


class Bench:
    """A device with the arrays that probes run on, made once and read in part by smaller probes."""

    def __init__(self, backend: Backend, device: Device, most_bytes: int) -> None:
        self.backend = backend
        self.device = device
        self.most_bytes = most_bytes
        self._buffers: dict[tuple[str, int], Any] = {}
        # Of each kernel that was compiled for a probe: its group and the seconds.
        self.compiled: list[tuple[Group, float]] = []

    def _buffer(self, dtype: str, place: int) -> Any:
        found = self._buffers.get((dtype, place))
        if found is None:
            array = typical(dtype, self.most_bytes // np.dtype(dtype).itemsize, seed=place)
            found = Data(layout_of(array), array)
            if self.device.space != "host":
                found = self._uploaded(found)
            self._buffers[dtype, place] = found
        return found

    def _uploaded(self, data: Data) -> Any:
        target = self.backend.allocate(self.device, data.nbytes)
        command = Copy(data, target, data.nbytes, "host", self.device.space)
        self.backend.wait(self.backend.submit(self.device, 0, (command,), ()))
        return target

    def time(self, probe: Probe) -> Timing:
        """Return how long the probe takes, results in fresh memory as in a program.

        Raises Unsupported where the device cannot run it.
        """
        launch = self.launch(probe)
        # Results of random inputs may overflow in a long chain; what it costs is the same.
        with np.errstate(all="ignore"):
            return time_device(self.backend, self.device, (launch,))

    def launch(self, probe: Probe) -> Launch:
        """Return the command that runs the probe on arrays of typical numbers.

        Raises Unsupported where the device cannot run it.
        """
        graph = probe.group.graph
        kernel = self._kernel(probe)
        inputs = tuple(
            Operand(self._buffer(layout.dtype.name, place), _start(layout), layout)
            for place, layout in enumerate(graph.inputs)
        )
        return Launch(kernel, inputs, (None,) * len(graph.outputs))

    def _kernel(self, probe: Probe) -> Any:
        began = perf_counter()
        kernel = self.backend.compile(self.device, probe.group, probe.implementation, None)
        first = perf_counter() - began
        if probe.implementation == "generated":
            began = perf_counter()
            self.backend.compile(self.device, probe.group, probe.implementation, None)
            # One that this process has already takes as long the second time.
            if first > _COMPILED * (perf_counter() - began):
                self.compiled.append((probe.group, first))
        return kernel

    def time_copy(self, direction: str, nbytes: int) -> Timing:
        """Return how long a copy of that many bytes takes: upload, download or device."""
        space = self.device.space
        array = np.ones(nbytes, np.uint8)
        host = Data(layout_of(array), array)
        near = self._uploaded(host)
        if direction == "upload":
            command = Copy(host, near, nbytes, "host", space)
        elif direction == "download":
            command = Copy(near, host, nbytes, space, "host")
        else:
            far = self.backend.allocate(self.device, nbytes)
            command = Copy(near, far, nbytes, space, space)
        return time_device(self.backend, self.device, (command,))


def special_ops() -> Sequence[str]:
    """Return the transcendental ops of one and two operands."""
    return [
        op.name
        for op in OPS.values()
        if op.kind is Kind.ELEMENTWISE and op.special and op.nin <= 2 and op.nout == 1
    ]
