"""Every backend keeps the same promises; the simulated one also catches who breaks its own."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from alight._core import Data, Layout, layout_of, make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight.backends import host
from alight.backends.base import Backend, Copy, Fill, Launch, Operand
from alight.backends.cuda.cuda_backend import CudaBackend
from alight.backends.host import (
    HostBackend,
    NumpyKernel,
    address_of,
    clear_floating_point_flags,
    floating_point_flags,
    host_view,
)
from alight.backends.sim.sim_backend import RaceError, SimBackend, SimBuffer
from alight.backends.sim.virtual_clock import DEFAULT_SPEC
from alight.backends.wgpu.wgpu_backend import WgpuBackend
from alight.device import Device, Unsupported
from alight.errors import DeviceUnavailable, KernelError, OutOfDeviceMemory

F8 = np.dtype(np.float64)


def loop(layouts: Sequence[Layout], names: str, out: Layout | None = None) -> Group:
    """Return a group of ops in a row, each on the result before and, if binary, the last input."""
    nodes: list[Node] = []
    out = out or layouts[0]
    for name in names.split():
        op = OPS[name]
        before = len(layouts) + len(nodes) - 1 if nodes else 0
        operands = (before, len(layouts) - 1)[: op.nin]
        nodes.append(Node(op, operands, (), out))
    graph = Graph(tuple(layouts), tuple(nodes), (len(layouts) + len(nodes) - 1,))
    return Group(GroupKind.LOOP, graph, out.shape)


class Rig:
    """A backend with a device, and the way from ndarrays to its memory and back."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        probe = backend.probe()
        if not probe.devices:
            pytest.skip(f"no {backend.name}: {probe.reason}")
        self.device = probe.devices[0]
        backend.open(self.device)
        has = self.device.support.dtypes
        self.float = np.dtype(np.float64 if "float64" in has else np.float32)
        self.other = np.dtype(np.float32 if "float64" in has else np.int32)

    @property
    def host(self) -> bool:
        return self.device.space == "host"

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        data = Data(layout_of(array), array)
        if self.host:
            return data
        target = self.backend.allocate(self.device, array.nbytes)
        copy = Copy(data, target, array.nbytes, "host", self.device.space)
        self.backend.wait(self.backend.submit(self.device, 0, [copy], []))
        return target

    def get(self, buffer: Any, layout: Layout) -> np.ndarray[Any, Any]:
        if self.host:
            return host_view(Operand(buffer, 0, layout))
        target = HostBackend().fresh(layout)
        copy = Copy(buffer, target, layout.nbytes, self.device.space, "host")
        self.backend.wait(self.backend.submit(self.device, 0, [copy], []))
        assert target.array is not None
        return target.array

    def run(
        self, group: Group, implementation: str, arrays: Sequence[np.ndarray[Any, Any]]
    ) -> list[np.ndarray[Any, Any]]:
        kernel = self.backend.compile(self.device, group, implementation, None)
        inputs = tuple(Operand(self.put(a), 0, layout_of(a)) for a in arrays)
        outputs = (None,) * len(group.graph.outputs)
        event = self.backend.submit(self.device, 0, [Launch(kernel, inputs, outputs)], [])
        self.backend.wait(event)
        layouts = [group.graph.layouts[i] for i in group.graph.outputs]
        return [self.get(b, lay) for b, lay in zip(event.buffers, layouts, strict=True)]


# A driver is asked and started once.
BACKENDS = {
    "host": HostBackend,
    "sim": SimBackend,
    "wgpu": cache(WgpuBackend),
    "cuda": cache(CudaBackend),
}


@pytest.fixture(params=list(BACKENDS))
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(BACKENDS[request.param]())


@pytest.fixture
def sim() -> Rig:
    return Rig(SimBackend())


def all_implementations(device: Device) -> Sequence[str]:
    # a library of named functions has no elementwise groups
    named = device.support.library is not None
    return [n for n in device.support.implementations if not (named and n == "library")]


def test_a_chain_equals_numpy_on_every_implementation(rig: Rig) -> None:
    a, b = np.random.default_rng(1).uniform(0.5, 2, (2, 3000)).astype(rig.float)
    group = loop([layout_of(a), layout_of(b)], "add multiply sqrt subtract")
    expect = np.sqrt((a + b) * b) - b
    for implementation in all_implementations(rig.device):
        (result,) = rig.run(group, implementation, [a, b])
        assert result.dtype == expect.dtype
        np.testing.assert_array_equal(result, expect)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.T,
        lambda x: np.asfortranarray(x),
        lambda x: x.reshape(10, 1, 60).swapaxes(0, 2),
        lambda x: x.reshape(600, 1, 1),
    ],
    ids=["transposed", "fortran", "swapped", "columns"],
)
def test_results_have_the_recorded_strides(rig: Rig, make: Any) -> None:
    x = make(np.random.default_rng(2).uniform(0.5, 2, (20, 30)).astype(rig.float))
    # As if NumPy had recorded another stride for the axes of length one.
    strides = tuple(24 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True))
    out = make_layout(rig.float, x.shape, strides)
    group = loop([layout_of(x), layout_of(x)], "multiply sqrt", out)
    for implementation in all_implementations(rig.device):
        (result,) = rig.run(group, implementation, [x, x])
        assert result.strides == strides
        np.testing.assert_array_equal(result, np.sqrt(x * x))


def test_windows_of_a_buffer_are_read_in_place(rig: Rig) -> None:
    base = np.random.default_rng(3).uniform(0.5, 2, (40, 50)).astype(rig.float)
    window = base[30:3:-3, 5::2]
    layout = layout_of(window)
    offset = window.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    out = make_layout(rig.float, window.shape)
    group = loop([layout, layout], "add", out)
    buffer = rig.put(base)
    operand = Operand(buffer, offset, layout)
    for implementation in all_implementations(rig.device):
        kernel = rig.backend.compile(rig.device, group, implementation, None)
        event = rig.backend.submit(rig.device, 0, [Launch(kernel, (operand,) * 2, (None,))], [])
        np.testing.assert_array_equal(rig.get(event.buffers[0], out), window + window)


def test_given_outputs_are_filled(rig: Rig) -> None:
    x = np.arange(1.0, 100.0, dtype=rig.float)
    layout = layout_of(x)
    for names in ("add", "add cast"):
        group = loop([layout, layout], "add")
        if names == "add cast":
            out = make_layout(rig.other, x.shape)
            cast = Node(OPS["cast"], (2,), (("dtype", out.dtype),), out)
            graph = Graph(group.graph.inputs, (*group.graph.nodes, cast), (3,))
            group = Group(GroupKind.LOOP, graph, x.shape)
        result = group.graph.layouts[group.graph.outputs[0]]
        for implementation in all_implementations(rig.device):
            target = rig.backend.allocate(rig.device, result.nbytes)
            kernel = rig.backend.compile(rig.device, group, implementation, None)
            operand = Operand(rig.put(x), 0, layout)
            launch = Launch(kernel, (operand, operand), (Operand(target, 0, result),))
            event = rig.backend.submit(rig.device, 0, [launch], [])
            assert event.buffers == ()
            got = rig.get(target, result)
            np.testing.assert_array_equal(got, (x + x).astype(result.dtype))


def test_inputs_and_repeated_outputs_come_back_as_copies(rig: Rig) -> None:
    name = "numpy" if rig.host else "library"
    if name not in all_implementations(rig.device):
        pytest.skip(f"{rig.device.id} has no library of all ops")
    x = np.arange(1.0, 20.0)
    layout = layout_of(x)
    node = Node(OPS["add"], (0, 0), (), layout)
    group = Group(GroupKind.LIBRARY, Graph((layout,), (node,), (1, 0, 1)), x.shape)
    kernel = rig.backend.compile(rig.device, group, name, None)
    launch = Launch(kernel, (Operand(rig.put(x), 0, layout),), (None,) * 3)
    event = rig.backend.submit(rig.device, 0, [launch], [])
    results = [rig.get(buffer, layout) for buffer in event.buffers]
    for result, expect in zip(results, (x + x, x, x + x), strict=True):
        np.testing.assert_array_equal(result, expect)
        assert not np.may_share_memory(result, x)
    assert not np.may_share_memory(results[0], results[2])


def test_fill_copy_and_memory(rig: Rig) -> None:
    buffer = rig.backend.allocate(rig.device, 64)
    other = rig.backend.allocate(rig.device, 64)
    space = rig.device.space
    commands = [Fill(buffer, 64, 7), Copy(buffer, other, 32, space, space), Fill(buffer, 64, 0)]
    start = rig.backend.submit(rig.device, 0, [], [])
    end = rig.backend.submit(rig.device, 0, commands, [start])
    rig.backend.wait(end)
    bytes_layout = make_layout(np.dtype(np.uint8), (32,))
    np.testing.assert_array_equal(rig.get(other, bytes_layout), np.full(32, 7, np.uint8))
    assert rig.backend.seconds(start, end) > 0
    free, total = rig.backend.memory(rig.device)
    assert 0 < free <= total
    rig.backend.free(rig.device, buffer)


def test_empty_arrays_and_scalars_are_computed(rig: Rig) -> None:
    for x in (np.empty((0, 3), rig.float), np.array(2.5, rig.float)):
        group = loop([layout_of(x), layout_of(x)], "multiply")
        for implementation in all_implementations(rig.device):
            (result,) = rig.run(group, implementation, [x, x])
            assert result.shape == x.shape
            np.testing.assert_array_equal(result, x * x)


def test_a_kernel_survives_dump_and_load(rig: Rig) -> None:
    x = np.arange(1.0, 1000.0, dtype=rig.float)
    layout = layout_of(x)
    group = loop([layout, layout], "add multiply")
    for implementation in all_implementations(rig.device):
        kernel = rig.backend.compile(rig.device, group, implementation, None)
        data = rig.backend.dump(kernel)
        loaded = rig.backend.load(rig.device, group, None, data)
        operand = Operand(rig.put(x), 0, layout)
        event = rig.backend.submit(rig.device, 0, [Launch(loaded, (operand,) * 2, (None,))], [])
        np.testing.assert_array_equal(rig.get(event.buffers[0], layout), (x + x) * x)


def test_memory_of_the_caller_can_be_registered(rig: Rig) -> None:
    x = np.arange(5.0)
    address = x.__array_interface__["data"][0]
    if isinstance(rig.backend, WgpuBackend):
        with pytest.raises(Unsupported, match="memory of the host"):
            rig.backend.register(rig.device, address, x.nbytes)
        return
    data = rig.backend.register(rig.device, address, x.nbytes)
    assert data.foreign
    np.testing.assert_array_equal(np.ndarray(5, F8, data.raw), x)


# --- the host alone ---------------------------------------------------------------------


def test_errors_and_warnings_of_numpy_pass_unchanged() -> None:
    rig = Rig(HostBackend())
    x = np.array([1.0, 0.0])
    group = loop([layout_of(x), layout_of(x)], "subtract divide")
    heard: list[str] = []
    with np.errstate(all="ignore", divide="call", call=lambda what, flag: heard.append(what)):
        rig.run(group, "numpy", [x, x])
    assert heard == []
    with np.errstate(all="ignore", invalid="call", call=lambda what, flag: heard.append(what)):
        rig.run(group, "numpy", [x, x])
    assert heard == ["invalid value"]
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="divide"):
        rig.run(group, "numpy", [x, x])
    matrix = np.zeros((2, 2))
    node = Node(OPS["linalg.inv"], (0,), (), layout_of(matrix))
    singular = Group(GroupKind.LIBRARY, Graph((layout_of(matrix),), (node,), (1,)), matrix.shape)
    with pytest.raises(np.linalg.LinAlgError):
        rig.run(singular, "numpy", [matrix])


def test_generated_kernels_leave_flags_behind() -> None:
    rig = Rig(HostBackend())
    if "generated" not in rig.device.support.implementations:
        pytest.skip("llvmlite is not installed")
    one = np.ones(100)
    group = loop([layout_of(one), layout_of(one)], "divide")
    rig.run(group, "generated", [one, one])
    for denominator, expect in ((0.0, "divide"), (1e-320, "over"), (1e300, "under")):
        divisor = np.full(100, denominator)
        numerator = np.full(100, 1e-300 if expect == "under" else 1.0)
        clear_floating_point_flags()
        rig.run(group, "generated", [numerator, divisor])
        assert expect in floating_point_flags()
    clear_floating_point_flags()
    assert floating_point_flags() == frozenset()


def test_intermediates_that_die_are_reused_and_others_are_not() -> None:
    x = layout_of(np.ones(10))
    chain = NumpyKernel(loop([x, x], "add multiply subtract sqrt exp"))
    assert [step.reuse for step in chain.steps] == [None, 2, 3, 4, None]
    kept = loop([x, x], "add multiply subtract").graph
    kernel = NumpyKernel(Group(GroupKind.LOOP, Graph(kept.inputs, kept.nodes, (2, 4)), x.shape))
    assert [step.reuse for step in kernel.steps] == [None, None, 3]  # 2 is asked for


def test_a_reused_intermediate_is_not_one_that_a_view_still_shows() -> None:
    rig = Rig(HostBackend())
    x = np.arange(12.0).reshape(3, 4)
    layout, flat = layout_of(x), make_layout(F8, (12,))
    nodes = (
        Node(OPS["add"], (0, 0), (), layout),
        Node(OPS["ravel"], (1,), (), flat),  # the same memory
        Node(OPS["negative"], (1,), (), layout),  # the last reader of the sum by name
        Node(OPS["multiply"], (3, 3), (), layout),
        Node(OPS["add"], (2, 2), (), flat),
    )
    for outputs in ((4, 5), (1, 2, 4, 5)):
        group = Group(GroupKind.LIBRARY, Graph((layout,), nodes, outputs), x.shape)
        results = rig.run(group, "numpy", [x])
        total = x + x
        expect = {1: total, 2: total.ravel(), 4: total * total, 5: (total + total).ravel()}
        for number, result in zip(outputs, results, strict=True):
            np.testing.assert_array_equal(result, expect[number])
        assert len(results) == 2 or not np.may_share_memory(results[0], results[1])


def test_no_memory_is_numpys_own_error() -> None:
    rig = Rig(HostBackend())
    assert isinstance(rig.backend, HostBackend)
    with pytest.raises(MemoryError):
        rig.backend.fresh(make_layout(F8, (1 << 50,)))


def test_an_address_is_the_operands_own() -> None:
    x = np.arange(10.0)
    data = Data(layout_of(x), x)
    address = address_of(Operand(data, 24, make_layout(F8, (2,))))
    assert ctypes.c_double.from_address(address).value == 3.0


def test_unknown_implementations_are_gaps(rig: Rig) -> None:
    x = layout_of(np.ones(3, rig.float))
    with pytest.raises(Unsupported, match="pytorch"):
        rig.backend.compile(rig.device, loop([x, x], "add"), "pytorch", None)


# --- the simulated device ---------------------------------------------------------------


def launched(rig: Rig, buffer: Any, layout: Layout, queue: int, wait: Sequence[Any]) -> Any:
    group = loop([layout, layout], "add")
    kernel = rig.backend.compile(rig.device, group, "generated", None)
    operand = Operand(buffer, 0, layout)
    launch = Launch(kernel, (operand, operand), (None,))
    return rig.backend.submit(rig.device, queue, [launch], wait)


def uploaded(rig: Rig, array: np.ndarray[Any, Any], queue: int = 0) -> tuple[Any, Any]:
    data = Data(layout_of(array), array)
    buffer = rig.backend.allocate(rig.device, array.nbytes)
    copy = Copy(data, buffer, array.nbytes, "host", rig.device.space)
    return buffer, rig.backend.submit(rig.device, queue, [copy], [])


def test_a_read_must_wait_for_the_write(sim: Rig) -> None:
    x = np.arange(4.0)
    buffer, event = uploaded(sim, x)
    with pytest.raises(RaceError, match="reads"):
        launched(sim, buffer, layout_of(x), 1, [])
    second = launched(sim, buffer, layout_of(x), 1, [event])  # waited for: green
    launched(sim, buffer, layout_of(x), 0, [])  # same queue: in order
    third = launched(sim, second.buffers[0], layout_of(x), 2, [second])
    launched(sim, buffer, layout_of(x), 2, [])  # through the second, queue 2 is after the upload
    sim.backend.wait(third)
    launched(sim, third.buffers[0], layout_of(x), 5, [])  # the host waited, so all that follows


def test_a_write_must_wait_for_reads_and_writes(sim: Rig) -> None:
    x = np.arange(4.0)
    buffer, event = uploaded(sim, x)
    with pytest.raises(RaceError, match="writes"):
        sim.backend.submit(sim.device, 1, [Fill(buffer, 32, 0)], [])
    reader = launched(sim, buffer, layout_of(x), 1, [event])
    with pytest.raises(RaceError, match="writes"):
        sim.backend.submit(sim.device, 0, [Fill(buffer, 32, 0)], [])
    sim.backend.submit(sim.device, 0, [Fill(buffer, 32, 0)], [reader])


def test_what_was_not_written_or_was_freed_cannot_be_used(sim: Rig) -> None:
    layout = make_layout(F8, (4,))
    buffer = sim.backend.allocate(sim.device, 32)
    with pytest.raises(RaceError, match="nothing has written"):
        launched(sim, buffer, layout, 0, [])
    sim.backend.submit(sim.device, 0, [Fill(buffer, 32, 0)], [])
    launched(sim, buffer, layout, 0, [])
    sim.backend.free(sim.device, buffer)
    with pytest.raises(KernelError, match="freed"):
        launched(sim, buffer, layout, 0, [])


def test_a_download_is_there_when_its_event_was_waited_for(sim: Rig) -> None:
    x = np.arange(4.0)
    buffer, event = uploaded(sim, x)
    target = HostBackend().fresh(layout_of(x))
    assert target.array is not None
    down = sim.backend.submit(
        sim.device, 1, [Copy(buffer, target, 32, sim.device.space, "host")], [event]
    )
    assert np.isnan(target.array).all()
    sim.backend.wait(event)
    assert np.isnan(target.array).all()
    sim.backend.wait(down)
    np.testing.assert_array_equal(target.array, x)


def test_other_memories_are_out_of_reach(sim: Rig) -> None:
    one, other = sim.backend.probe().devices
    x = np.arange(4.0)
    layout = layout_of(x)
    buffer, event = uploaded(sim, x)
    kernel = sim.backend.compile(other, loop([layout, layout], "add"), "generated", None)
    for wrong in (buffer, Data(layout, x)):
        operand = Operand(wrong, 0, layout)
        with pytest.raises(KernelError, match="Fix"):
            sim.backend.submit(other, 0, [Launch(kernel, (operand,) * 2, (None,))], [event])
    moved = sim.backend.allocate(other, 32)
    peer = Copy(buffer, moved, 32, one.space, other.space)
    event = sim.backend.submit(other, 0, [peer], [event])
    operand = Operand(moved, 0, layout)
    sim.backend.submit(other, 0, [Launch(kernel, (operand,) * 2, (None,))], [event])
    # The copies are separate: what happens to one does not show in the other.
    x[:] = 0
    sim.backend.submit(other, 0, [Fill(moved, 32, 0)], [])
    np.testing.assert_array_equal(sim.get(buffer, layout), np.arange(4.0))


def test_gaps_are_stated_and_kept(sim: Rig) -> None:
    stated = {gap.what for gap in sim.device.support.gaps}
    for name in ("float16", "complex64", "complex128"):
        layout = make_layout(np.dtype(name), (4,))
        assert name in stated and name not in sim.device.support.dtypes
        with pytest.raises(Unsupported, match=name):
            sim.backend.compile(sim.device, loop([layout, layout], "add"), "library", None)


def test_the_memory_limit_holds_and_dropped_buffers_come_back() -> None:
    spec = {**DEFAULT_SPEC, "memory_bytes": {"value": 1000, "unit": "bytes", "source": "guess"}}
    rig = Rig(SimBackend({"sim:0": spec}))
    buffer = rig.backend.allocate(rig.device, 600)
    assert rig.backend.memory(rig.device) == (400, 1000)
    with pytest.raises(OutOfDeviceMemory, match="401 bytes"):
        rig.backend.allocate(rig.device, 401)
    with pytest.raises(MemoryError):  # as NumPy code expects it
        rig.backend.allocate(rig.device, 401)
    assert isinstance(buffer, SimBuffer)
    del buffer
    gc.collect()
    assert rig.backend.memory(rig.device) == (1000, 1000)
    x = np.arange(100.0)
    uploaded_buffer, _ = uploaded(rig, x)
    with pytest.raises(OutOfDeviceMemory):  # a launch makes its results there too
        launched(rig, uploaded_buffer, layout_of(x), 0, [])


def test_faults_strike_once_at_the_nth(sim: Rig) -> None:
    assert isinstance(sim.backend, SimBackend)
    x = np.arange(4.0)
    buffer, _ = uploaded(sim, x)
    sim.backend.fail("allocate", 2)
    sim.backend.allocate(sim.device, 8)
    with pytest.raises(OutOfDeviceMemory):
        sim.backend.allocate(sim.device, 8)
    sim.backend.allocate(sim.device, 8)
    sim.backend.fail("launch")
    with pytest.raises(KernelError, match="injected"):
        launched(sim, buffer, layout_of(x), 0, [])
    launched(sim, buffer, layout_of(x), 0, [])
    with pytest.raises(ValueError, match="Fix"):
        sim.backend.fail("launch", 0)


def test_virtual_time_is_that_of_the_spec(sim: Rig) -> None:
    nbytes = 8 << 20
    start = sim.backend.submit(sim.device, 0, [], [])
    buffer, up = uploaded(sim, np.zeros(nbytes // 8))
    link = DEFAULT_SPEC["links"]["upload"]
    expect = link["latency"]["value"] + nbytes / link["bandwidth"]["value"]
    assert sim.backend.seconds(start, up) == pytest.approx(expect)
    # Queues run side by side; a wait joins them.
    one = launched(sim, buffer, make_layout(F8, (nbytes // 8,)), 1, [up])
    two = launched(sim, buffer, make_layout(F8, (nbytes // 8,)), 2, [up])
    assert one.ended == two.ended > up.ended == one.began
    after = sim.backend.submit(sim.device, 0, [], [one, two])
    assert after.ended == one.ended


def test_devices_that_are_not_there_say_so(sim: Rig) -> None:
    stranger = Device("sim:7", "", "", "sim:7", 0, False, sim.device.support)
    with pytest.raises(DeviceUnavailable, match="sim:0"):
        sim.backend.submit(stranger, 0, [], [])


@pytest.mark.parametrize("name", ["matmul", "vecdot", "fft.fft", "fft.rfft", "fft.irfft"])
def test_products_and_transforms_take_memory_that_was_kept(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(HostBackend())
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((40, 60)), rng.standard_normal((60, 60))
    op = OPS[name]
    arrays = [x, x if name == "vecdot" else y][: op.nin]
    attrs = (("axis", 0), ("n", 31)) if name.startswith("fft") else ()
    expected = op.reference(*arrays, **dict(attrs))
    count = len(arrays)
    inputs = tuple([layout_of(array) for array in arrays])
    made = Node(op, tuple(range(count)), attrs, layout_of(expected))
    twice = Node(OPS["add"], (count, count), (), layout_of(expected))
    copied: list[object] = []
    monkeypatch.setattr(host, "adopt", lambda *args: copied.append(args))
    for nodes, outputs in (((made,), (count,)), ((made, twice), (count, count + 1))):
        graph = Graph(inputs, nodes, outputs)
        results = rig.run(Group(GroupKind.LIBRARY, graph, expected.shape), "numpy", arrays)
        assert results[0].tobytes() == expected.tobytes()
        assert len(nodes) == 1 or results[1].tobytes() == (expected + expected).tobytes()
    assert not copied
