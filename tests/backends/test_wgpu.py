"""WebGPU: the table's ops on a device against NumPy, whole programs, and what goes wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import Data, layout_of, make_layout
from alight._src.adapt import planner_facts
from alight._src.base.cache_registry import Cache, forget
from alight._src.codegen.common.source import DIALECTS, gap
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.log.decisions import LOG, Snapshot
from alight._src.measure import verify_ops
from alight._src.plan.cost import Profile
from alight.backends import driver_subprocess, registry
from alight.backends.base import Copy, Launch, Operand
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight.backends.wgpu import adapters, wgpu_session
from alight.backends.wgpu import wgpu_backend as backend_module
from alight.backends.wgpu.wgpu_backend import WgpuBackend
from alight.device import Device
from alight.errors import DeviceUnavailable, KernelError, OutOfDeviceMemory
from conformance.compare import TIES, Findings, bound_of, differences, evaluated, room_of
from conformance.layouts import LAYOUTS, PAIRS, make, points
from generated import loop_group
from generated import run as run_on_host

F4 = np.dtype(np.float32)


@cache
def backend() -> WgpuBackend:
    """Return the backend the registry uses."""
    try:
        found = registry.backend_of(registry.device("wgpu:0"))
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    assert isinstance(found, WgpuBackend)
    return found


@pytest.fixture
def device() -> Device:
    backend()
    return registry.device("wgpu:0")


@pytest.fixture
def forced(device: Device) -> Iterator[Device]:
    """Run the test with all work forced to the device."""
    with alight.policy(force="wgpu:0", floor=0), np.errstate(all="ignore"):
        yield device


def on_device(log: Snapshot) -> int:
    """Return how many elements the device made."""
    return sum(count for place, count in log.elements.items() if "wgpu:0" in place)


# --- the table ------------------------------------------------------------------------------------
SIGNATURES = ("?", "i", "I", "f", "??", "ii", "II", "ff", "???", "iii", "III", "fff")


def ops_of(loop: str) -> list[tuple[Op, Any]]:
    """Return the ufuncs that have a loop of these operands with results that WGSL has."""
    found = []
    for op in OPS.values():
        if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc):
            for text in op.reference.types:
                before, _, after = text.partition("->")
                if before == loop and set(after) <= set("?iIf"):
                    found.append((op, tuple(map(np.dtype, before + after))))
    return found


def printed(op: Op, dtypes: tuple[Any, ...]) -> bool:
    return gap(DIALECTS["wgsl"], op, (*dtypes[: op.nin], dtypes[-1])) is None


@pytest.mark.parametrize("loop", SIGNATURES)
def test_every_printed_op_equals_numpy_on_the_device(
    forced: Device, loop: str, request: pytest.FixtureRequest
) -> None:
    full = request.config.getoption("--full")
    findings = Findings()
    layouts: list[tuple[str, ...]] = [(name,) for name in LAYOUTS]
    if len(loop) > 1:
        layouts = [
            (*pair, "C") for pair in PAIRS if len(loop) < 3 or not {"one axis", "empty"} & {*pair}
        ]
    values = points(tuple(loop))
    for place, names in enumerate(layouts if full else layouts[:1] + layouts[2:9:3]):
        ops = [
            (op, d)
            for op, d in ops_of(loop)
            if printed(op, d) and (full or not (place and op.special))
        ]
        pairs = [make(v, name) for v, name in zip(values, names[: len(loop)], strict=True)]
        plain, ours = [p[0] for p in pairs], [p[1] for p in pairs]
        if loop[1:] == "i" and loop[0] != "f":
            exponent = [plain[0], plain[1] & 15], [ours[0], ours[1] & 15]
        else:
            exponent = plain, ours
        before = LOG.snapshot()
        results: list[Any] = []
        pending: list[Any] = []
        for op, _ in ops:
            results.append(op.reference(*(exponent[1] if op.name == "power" else ours)))
            pending += results[-1] if op.nout > 1 else [results[-1]]
            if op.special or op is ops[-1][0]:  # long bodies in one kernel take long to compile
                evaluated(pending)
                pending = []
        after = LOG.snapshot().since(before)
        assert not plain[0].size or on_device(after)
        assert not after.fallbacks, after.fallbacks
        for (op, _), got in zip(ops, results, strict=True):
            want = op.reference(*(exponent[0] if op.name == "power" else plain))
            together = [(got, want)] if op.nout == 1 else zip(got, want, strict=True)
            for g, w in together:
                room = room_of(op, plain)
                bound = bound_of(op, np.asarray(w).dtype, plain)
                text = differences(g, w, bound, op.name in TIES, None, room)
                findings.note(text, op.name, loop, names)
    findings.check()


def test_maths_of_ours_gives_the_hosts_bits(forced: Device) -> None:
    generator = np.random.default_rng(7)
    scales = [1e-3, 1.0, 30.0, 1e4]
    x, y = (
        np.concatenate([generator.standard_normal(5000) * scale for scale in scales]).astype(F4)
        for _ in range(2)
    )
    names = []
    for op, dtypes in ops_of("f") + ops_of("ff"):
        if op.special and printed(op, dtypes):
            names.append(op.name)
            group = loop_group([x, y][: op.nin], [(op, tuple(range(op.nin)), (), F4)])
            (host,) = run_on_host(group, [x, y][: op.nin])
            got = np.asarray(op.reference(*[alight.asarray(v) for v in (x, y)[: op.nin]]))
            differ = (got.view("u4") != host.view("u4")) & ~(np.isnan(got) & np.isnan(host))
            # a fused multiply-add made of others is exact while its errors are normal numbers
            differ &= ~(np.abs(host) < 1e-30)
            assert not differ.any(), (op.name, differ.sum(), x[differ][:3], got[differ][:3])
    assert {"exp", "log", "tanh", "power", "arctan2"} <= set(names)


def test_arithmetic_is_not_contracted_or_rearranged(forced: Device) -> None:
    x, y, z = np.random.default_rng(3).uniform(-2, 2, (3, 50_000)).astype(F4)
    big = np.float32(12582912)
    cases = (
        lambda a, b, c: a * b + c,
        lambda a, b, c: a * b - c * a,
        lambda a, b, c: (a + big) - big,
        lambda a, b, c: (a + b) - a,
        lambda a, b, c: a / b * b,
        lambda a, b, c: (a * np.float32(0.1)) * np.float32(0.1) / c,
        lambda a, b, c: np.sqrt(a * a + b * b) - np.abs(c),
        lambda a, b, c: np.sqrt(np.abs(a)) * np.sqrt(np.abs(a)) - np.abs(a),
    )
    ours = [alight.asarray(v) for v in (x, y, z)]
    for number, case in enumerate(cases):
        assert np.array_equal(np.asarray(case(*ours)), case(x, y, z)), number


# --- programs -------------------------------------------------------------------------------------
def step(r: np.random.Generator, values: list[Any]) -> Any:
    """Return a new value made of earlier ones by an operation that is exact on every device."""
    x, y = (values[i] for i in r.integers(0, len(values), 2))
    rows = x.shape[0]
    choice = int(r.integers(0, 12))
    if choice < 4:
        return (np.add, np.subtract, np.multiply, np.maximum)[choice](x, y)
    if choice == 4:
        return x / (np.abs(y) + np.float32(1))
    if choice == 5:
        return np.sqrt(np.abs(x))
    if choice == 6:
        return np.where(x > y, x, -y)
    if choice == 7:
        return x[::-1] + y[:, :1]
    if choice == 8:
        return x[rows // 2] * y
    if choice == 9:
        return np.floor(x * np.float32(4)) - (x < y)
    if choice == 10:
        return (x.T.copy() + np.float32(0.5)).T
    low = int(r.integers(0, rows - 1))
    x[low:, 1:] = y[low:, :-1]  # later reads see it
    return x * np.float32(0.25)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_give_numpys_bits(forced: Device, seed: int) -> None:
    def run(make: Any) -> list[Any]:
        r = np.random.default_rng(seed)
        shape = tuple(int(n) for n in r.integers(2, 40, 2))
        values = [make(r.standard_normal(shape).astype(F4)) for _ in range(3)]
        for _ in range(25):
            values.append(step(r, values))
        return [np.asarray(value) for value in values]

    before = LOG.snapshot()
    ours = run(alight.asarray)
    there = LOG.snapshot().since(before)
    plain = run(lambda array: array)
    for number, (got, want) in enumerate(zip(ours, plain, strict=True)):
        assert got.dtype == want.dtype and got.strides == want.strides, number
        assert np.array_equal(got, want, equal_nan=True), number
    assert on_device(there), there.elements
    assert not there.fallbacks


def test_what_the_device_lacks_is_numpys_and_the_rest_is_not(forced: Device) -> None:
    x = np.random.default_rng(1).uniform(0.1, 2, (200, 300)).astype(F4)
    before = LOG.snapshot()
    a = alight.asarray(x)
    row = (np.sqrt(a * a + 1) - a).sum(axis=1)  # the sum is the host's, what it sums is not
    wide = a.astype(np.float64) * 2
    assert np.allclose(np.asarray(row), (np.sqrt(x * x + 1) - x).sum(axis=1), rtol=1e-6)
    assert np.array_equal(np.asarray(wide), x.astype(np.float64) * 2)
    found = LOG.snapshot().since(before)
    assert on_device(found)
    assert not found.fallbacks


def profile_like(name: str, bandwidth: float) -> Profile:
    """Return a profile of a device with so many bytes per second, links included."""
    spec: Any = {
        **DEFAULT_SPEC,
        "memory": {"value": bandwidth, "unit": "bytes per second", "source": "guess"},
    }
    found = recorded(name, spec)
    return dataclasses.replace(
        found, rates={"numpy": found.rates["generated"], "generated": found.rates["generated"]}
    )


@pytest.mark.parametrize("faster", [True, False])
def test_by_itself_it_is_chosen_where_it_is_predicted_to_be_faster(
    device: Device, monkeypatch: pytest.MonkeyPatch, faster: bool
) -> None:
    own, host = (1e12, 1e7) if faster else (1e7, 1e12)
    profiles = {"wgpu:0": profile_like("wgpu:0", own), "cpu": profile_like("cpu", host)}
    monkeypatch.setattr(planner_facts, "_profiles", profiles)
    x = np.random.default_rng(2).uniform(0.1, 2, 100_000).astype(F4)
    before = LOG.snapshot()
    with alight.policy(devices=("wgpu:0", "cpu"), floor=0):
        assert np.array_equal(np.asarray(np.sqrt(alight.asarray(x)) + 1), np.sqrt(x) + 1)
    there = LOG.snapshot().since(before)
    assert (on_device(there) > 0) is faster, there
    forget(Cache.PLANS)


def test_what_is_never_chosen_is_never_started() -> None:
    backend()
    code = """
import numpy as np
import alight
from alight.backends import registry
x = np.arange(100_000, dtype=np.float32)
with alight.policy(devices=("wgpu:0", "cpu"), floor=0):
    assert (np.asarray(alight.asarray(x) + 1) == x + 1).all()
assert registry.device("wgpu:0") and "wgpu:0" not in registry._opened
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- trust ----------------------------------------------------------------------------------------
def test_an_op_that_differs_is_a_gap_and_its_results_are_right(
    forced: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = backend()
    dialect = own._dialects["wgpu:0"]
    forms = {**dialect.forms, "floor:f": "(floor({0}) + 1.0)"}
    monkeypatch.setitem(own._dialects, "wgpu:0", dataclasses.replace(dialect, forms=forms))
    monkeypatch.setattr(own, "_texts", {})
    monkeypatch.setattr(verify_ops, "_known", {})
    monkeypatch.setattr(verify_ops, "_documents", {"wgpu:0": {}})
    monkeypatch.setattr(verify_ops.default_store(), "write", lambda *args, **kwargs: {})
    reason = verify_ops.doubt(forced, OPS["floor"], (F4, F4), 0)
    assert reason is not None and "NumPy has" in reason
    assert verify_ops.doubt(forced, OPS["ceil"], (F4, F4), 0) is None
    forget(Cache.PLANS)
    x = np.linspace(-3, 3, 999, dtype=F4)
    assert np.array_equal(np.asarray(np.floor(alight.asarray(x)) + 1), np.floor(x) + 1)
    forget(Cache.PLANS)


def test_a_verdict_outlives_the_process(forced: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify_ops.doubt(forced, OPS["trunc"], (F4, F4), 0) is None
    forget(Cache.VERIFIED_OPS)

    def never(*args: Any) -> str:
        raise AssertionError("it was asked again")

    monkeypatch.setattr(verify_ops, "_compared", never)
    assert verify_ops.doubt(forced, OPS["trunc"], (F4, F4), 0) is None


# --- memory, pieces, queues -----------------------------------------------------------------------
def put(device: Device, array: np.ndarray[Any, Any]) -> Any:
    own = backend()
    target = own.allocate(device, array.nbytes)
    copy = Copy(Data(layout_of(array), array), target, array.nbytes, "host", device.space)
    own.submit(device, 0, [copy])
    return target


def get(device: Device, buffer: Any, like: np.ndarray[Any, Any]) -> Any:
    result = np.empty(like.shape, like.dtype)
    target = Data(layout_of(result), result)
    own = backend()
    own.wait(own.submit(device, 0, [Copy(buffer, target, like.nbytes, device.space, "host")]))
    return result


def launch(device: Device, names: Sequence[str], *arrays: np.ndarray[Any, Any]) -> Launch:
    group = loop_group(arrays, [(OPS[name], tuple(range(OPS[name].nin)), (), F4) for name in names])
    kernel = backend().compile(device, group, "generated", None)
    operands = tuple(Operand(put(device, a), 0, layout_of(a)) for a in arrays)
    return Launch(kernel, operands, (None,) * len(names))


@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::3], lambda x: x[:, None, 1], lambda x: x[1]],
)
def test_operands_beyond_a_binding_go_in_pieces(
    device: Device, monkeypatch: pytest.MonkeyPatch, view: Any
) -> None:
    session = backend()._sessions[device.id]
    monkeypatch.setattr(session, "binding_bytes", 4096)
    monkeypatch.setattr(session, "groups", 3)
    x = view(np.random.default_rng(4).standard_normal((150, 90)).astype(F4))
    base = x if x.base is None else x.base
    group = loop_group([x, x], [(OPS["subtract"], (0, 1), (), F4)])
    kernel = backend().compile(device, group, "generated", None)
    offset = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    operand = Operand(put(device, base), offset, layout_of(x))
    event = backend().submit(device, 0, [Launch(kernel, (operand, operand), (None,))])
    assert np.array_equal(get(device, event.buffers[0], np.empty(x.shape, F4)), x - x)
    group = loop_group([x], [(OPS["sqrt"], (0,), (), F4)])
    kernel = backend().compile(device, group, "generated", None)
    event = backend().submit(device, 0, [Launch(kernel, (operand,), (None,))])
    with np.errstate(invalid="ignore"):
        want = np.sqrt(x)
    assert np.array_equal(
        get(device, event.buffers[0], np.empty(x.shape, F4)), want, equal_nan=True
    )


@pytest.mark.parametrize("nbytes", [1, 3, 4, 5000, 70_001, (9 << 20) + 5])
def test_bytes_come_back_as_they_went(device: Device, nbytes: int) -> None:
    x = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
    assert np.array_equal(get(device, put(device, x), x), x)


def test_large_downloads_go_piece_by_piece(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu_session, "_AT_ONCE_BYTES", 1 << 20)
    x = np.random.default_rng(1).integers(0, 256, 20 << 20).astype(np.uint8)
    assert np.array_equal(get(device, put(device, x), x), x)


def test_many_launches_are_sent_together(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    session = backend()._sessions[device.id]
    sent = []
    real = session.flush
    monkeypatch.setattr(session, "flush", lambda: (sent.append(session.encoded), real()))
    x = np.ones(1000, F4)
    one = launch(device, ["sqrt"], x)
    sent.clear()
    event = backend().submit(device, 0, [one] * 50)
    assert sent == []
    backend().wait(event)
    assert sent == [50] and len(event.buffers) == 50
    assert np.array_equal(get(device, event.buffers[-1], x), x)


def test_events_know_their_time_once_waited_for(device: Device) -> None:
    own = backend()
    start = own.submit(device, 0, [])
    end = own.submit(device, 0, [launch(device, ["exp"], np.ones(1 << 20, F4))])
    with pytest.raises(RuntimeError, match="Fix: wait"):
        assert end.ended
    own.wait(end)
    assert own.seconds(start, end) > 0


def test_what_is_written_may_be_read_in_the_same_launch(device: Device) -> None:
    own = backend()
    x = np.arange(1, 100, dtype=F4)
    one = launch(device, ["add"], x, x)
    buffer = one.inputs[0].buffer
    into = Operand(buffer, 0, layout_of(x))
    own.submit(device, 0, [one._replace(outputs=(into,))])
    assert np.array_equal(get(device, buffer, x), x + x)


def test_dropped_buffers_serve_again_and_the_room_is_kept(device: Device) -> None:
    own = backend()
    session = own._sessions[device.id]
    first = own.allocate(device, 5000)
    handle = first.handle
    del first
    assert own.allocate(device, 4900).handle is handle
    free, total = own.memory(device)
    held = own.allocate(device, 1 << 20)
    assert own.memory(device)[0] <= free - (1 << 20) and total == device.memory_bytes
    room, session.room = session.room, session.in_use
    try:
        with pytest.raises(OutOfDeviceMemory, match="in use"):
            own.allocate(device, 100 << 20)
    finally:
        session.room = room
    with pytest.raises(OutOfDeviceMemory, match="most is"):
        own.allocate(device, 1 << 40)
    own.free(device, held)
    with pytest.raises(KernelError, match="freed"):
        layout = make_layout(F4, (4,))
        kernel = own.compile(
            device, loop_group([np.ones(4, F4)], [(OPS["sqrt"], (0,), (), F4)]), "generated", None
        )
        own.submit(device, 0, [Launch(kernel, (Operand(held, 0, layout),), (None,))])


def test_bools_are_bytes_beside_their_neighbours(device: Device) -> None:
    own = backend()
    x = np.array([1, -1, 2, -3, 4, 5, -6], F4)
    group = loop_group([x, x * 0], [(OPS["less"], (0, 1), (), bool)])
    kernel = own.compile(device, group, "generated", None)
    target = put(device, np.full(20, 7, np.uint8))
    operands = tuple(Operand(put(device, a), 0, layout_of(a)) for a in (x, x * 0))
    into = Operand(target, 5, make_layout(np.dtype(bool), (7,)))
    own.submit(device, 0, [Launch(kernel, operands, (into,))])
    got = get(device, target, np.empty(20, np.uint8))
    assert got.tolist() == [7] * 5 + (x < 0).tolist() + [7] * 8


# --- what goes wrong ------------------------------------------------------------------------------
def test_a_lost_device_is_noticed_and_numpy_goes_on(
    forced: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = backend()._sessions["wgpu:0"]
    monkeypatch.setattr(session, "lost", "pulled out")
    x = np.arange(3000, dtype=F4)
    before = LOG.snapshot()
    assert np.array_equal(np.asarray(np.sqrt(alight.asarray(x)) + 1), np.sqrt(x) + 1)
    assert any("pulled out" in f.reason for f in LOG.snapshot().since(before).fallbacks)


def test_absence_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "whereabouts", lambda name: None)
    probe = WgpuBackend().probe()
    assert probe.devices == () and "pip install" in probe.reason
    monkeypatch.undo()
    monkeypatch.setitem(driver_subprocess._loaded_in, "WebGPU", os.getpid() + 1)
    assert "spawn" in WgpuBackend().probe().reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import time; time.sleep(280)", "did not answer within 1 s"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("raise ValueError('broken')", "broken"),
        ("print('noise')", "not understood"),
        ("print('[]')", "mesa-vulkan-drivers"),
    ],
)
def test_a_driver_that_crashes_or_hangs_is_a_reason(
    tmp_path: Path, script: str, reason: str
) -> None:
    path = tmp_path / "script.py"
    path.write_text(script)
    # However long it takes to start an interpreter.
    found, why = adapters.ask(1.0 if "sleep" in script else 250.0, str(path))
    assert found == [] and reason in why


def test_a_forked_child_does_without(device: Device) -> None:
    code = """
import os, sys
import numpy as np
import alight
from alight._src.log.decisions import LOG
x = np.arange(1000, dtype=np.float32)
with alight.policy(force="wgpu:0", floor=0):
    assert (np.asarray(alight.asarray(x) + 1) == x + 1).all()
    if os.fork() == 0:
        try:
            with alight.policy(force="cpu"):
                assert (np.asarray(alight.asarray(x) * 2) == x * 2).all()
            before = LOG.snapshot()
            assert (np.asarray(alight.asarray(x) + 3) == x + 3).all()
            reasons = [row.reason for row in LOG.snapshot().since(before).fallbacks]
            assert any("spawn" in reason for reason in reasons), reasons
            os._exit(0)
        except BaseException as error:
            print(type(error), error, file=sys.stderr, flush=True)
            os._exit(1)
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


JOINING = """
import dataclasses, os, sys, time
import numpy as np
import alight
from alight.backends import registry
from alight.backends.wgpu import wgpu_backend as backend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import fingerprint, save_profile
from alight._src.plan.curve import Measured

if sys.argv[1] == "measured":
    def measured(name, launch, memory):
        given = {"launch": launch, "memory": memory}
        spec = {what: {"value": float(value), "source": "test"} for what, value in given.items()}
        found = recorded(name, {**DEFAULT_SPEC, **spec})
        names = ("numpy", "generated") if name == "cpu" else ("generated",)
        rates = dict.fromkeys(names, found.rates["generated"])
        number = Measured(1e-3, "seconds", 1e-3, 1e-3, 1, "probe")
        made = dict(rates=rates, made_at=time.time(), origin="measured", one_offs={"open": number})
        device = registry.device(name)
        save_profile(dataclasses.replace(found, fingerprint=fingerprint(device), **made))
        registry.remember(device)
    measured("cpu", *sys.argv[2:4])
    measured("wgpu:0", *sys.argv[4:6])
    sys.exit()

def asked():
    raise AssertionError("the driver was asked in a process of its own")

backend.ask = asked
for size in (3000, 100_000, 3_000_000):
    x = np.linspace(0.0, 1.0, size, dtype=np.float32)
    for _ in range(20):
        with alight.policy(floor=0):
            a = alight.asarray(x)
            assert np.array_equal(np.asarray(a * a + a), x * x + x)
print(LOG.snapshot().records[-1].decision.chosen, "wgpu" in sys.modules)
assert "XDG_RUNTIME_DIR" not in os.environ
"""


def test_what_a_program_names_for_its_desktop_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "XDG_RUNTIME_DIR"
    for before in (None, "", "not absolute"):
        if before is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, before)
        with adapters._no_desktop():
            assert os.environ[name] == os.devnull
        assert os.environ.get(name) == before
        with adapters._no_desktop():
            monkeypatch.setenv(name, "/run/user/1")  # as another thread may
        assert os.environ[name] == "/run/user/1"
        with adapters._no_desktop():
            assert os.environ[name] == "/run/user/1"
        with adapters._no_desktop():
            del os.environ[name]
        assert name not in os.environ


@pytest.mark.parametrize(
    ("cpu", "adapter", "then"),
    [
        # a processor, and an adapter that is software on it: the form of what was measured of two
        # cores and llvmpipe
        ((1e-6, 1e10), (5e-4, 2e9), "cpu False\n"),
        ((1e-2, 1e7), (1e-5, 1e11), "wgpu:0 True\n"),
    ],
    ids=["wins nothing", "wins"],
)
def test_an_adapter_is_opened_unasked_where_it_wins_by_its_profile(
    device: Device,
    tmp_path: Path,
    cpu: tuple[float, float],
    adapter: tuple[float, float],
    then: str,
) -> None:
    environment = {**os.environ, "ALIGHT_CACHE_DIR": str(tmp_path)}
    environment.pop("XDG_RUNTIME_DIR", None)  # without one, Mesa talks to the terminal
    for arguments in (("measured", *map(str, (*cpu, *adapter))), ("",)):
        done = subprocess.run(
            [sys.executable, "-c", JOINING, *arguments],
            capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    assert done.stdout == then
