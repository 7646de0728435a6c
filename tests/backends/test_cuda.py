"""The CUDA backend without a card: CuPy's calls on the CPU; what is said where CuPy is absent."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import cuda_on_cpu
from alight._src.ir.op_table import OPS
from alight._src.measure import verify_ops
from alight.backends import driver_subprocess
from alight.backends.cuda import cuda_backend as backend_module
from alight.backends.cuda.cuda_backend import CudaBackend
from generated import loop_group, points, run
from without_card import elsewhere, needs_compiler, passes

PROGRAM = """
import numpy as np
import alight

x = np.random.default_rng(0).random((50, 100), np.float32)
with alight.policy(force="cuda:0", floor=0):
    a = alight.asarray(x)
    grown = alight.exp(a - alight.max(a, axis=1, keepdims=True))
    rows = np.asarray(grown / alight.sum(grown, axis=1, keepdims=True))
    total = float(np.asarray((a * a).sum()))
    b = alight.asarray(x[:, :70].copy())
    assert np.allclose(np.asarray(a.T @ b), x.T @ x[:, :70], rtol=1e-4)
    assert np.array_equal(np.asarray(np.sort(alight.concatenate([a, b], axis=1), axis=0)),
                          np.sort(np.concatenate([x, x[:, :70]], axis=1), axis=0))
    large = np.arange(3 << 20, dtype=np.float32)
    assert np.array_equal(np.asarray(alight.asarray(large) + 1), large + 1)
assert np.allclose(rows.sum(axis=1), 1, rtol=1e-5) and abs(total / (x * x).sum() - 1) < 1e-5
with alight.policy(force="cpu:generated", floor=0):
    a = alight.asarray(x)
    grown = alight.exp(a - alight.max(a, axis=1, keepdims=True))
    assert np.array_equal(rows, np.asarray(grown / alight.sum(grown, axis=1, keepdims=True)))
    assert total == float(np.asarray((a * a).sum()))
from alight._src.log.decisions import LOG
log = LOG.snapshot()
assert not log.fallbacks, log.fallbacks
assert sum(n for place, n in log.elements.items() if "cuda:0" in place) >= 20000, log.elements
print("done")
"""


@needs_compiler
def test_the_backend_keeps_the_protocol() -> None:
    protocol = "tests/backends/test_backends.py"
    done = elsewhere("-m", "pytest", "-q", "-p", "no:cacheprovider", protocol, "-k", "cuda")
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout, done.stdout


ROLLS = """
import numpy as np, alight
from alight._core import layout_of
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
x = np.random.default_rng(0).random((200, 300))
a = alight.asarray(x)
with alight.policy(force="cuda:0", floor=0):
    b = alight.roll(a, 1, 0) - alight.roll(a, -1, 1) * 2 + a
    np.testing.assert_array_equal(np.asarray(b), np.roll(x, 1, 0) - np.roll(x, -1, 1) * 2 + x)
assert LOG.snapshot().fallbacks == (), LOG.snapshot().fallbacks
node = Node(OPS["roll"], (0,), (("shift", 1), ("axis", 0)), layout_of(x))
group = Group(GroupKind.LOOP, Graph((layout_of(x),), (node,), (1,)), x.shape)
backend.compile(registry.device("cuda:0"), group, "library", None)
print("done")
"""


@needs_compiler
def test_a_device_rolls_by_its_library() -> None:
    passes(ROLLS)


@needs_compiler
def test_whole_programs_have_the_bits_of_the_hosts_kernels() -> None:
    passes(PROGRAM)


CALIBRATION = """
import math
from alight._src.measure import device_calibration as measuring, findings, points
measuring.COPY_BYTES = findings.COPY_BYTES = 4, 1 << 12, 1 << 10, 1 << 11
WANTED = ("elementwise/float64", "reduce_inner/float32", "matmul/float64", "sort/float64",
          "gather/float64", "fft/float64")

def few(device):
    found = {}
    for point in points.points_of(device):
        same = found.setdefault((point.implementation, point.key), [])
        most, count = (1 << 24, 14) if "matmul" in point.key else (1 << 18, 3)
        if point.key in WANTED and point.amount <= most and len(same) < count:
            same.append(point)
            yield point

measuring.points_of = few
visit = measuring.Bench.visit

def on_a_clock(bench, launch, shared=False):
    # what a machine at rest shows: 1 us, and 1 ns for each element or multiplication
    visit(bench, launch, shared)
    first, *others = [operand.layout.shape for operand in launch.inputs]
    sizes = (*first, others[0][-1]) if len(first) == 2 else first
    return [1e-6 + 1e-9 * math.prod(sizes)] * 3

measuring.Bench.visit = on_a_clock
device = registry.device("cuda:0")
run = measuring.Calibration(registry.backend_of(device), device, 1e9)
names = []
for name in run.steps():
    names.append(name)
    if name.startswith("both ways"):
        break
profile = run.profile()
ways = [way + kind for kind in ("", "_pinned", "_registered") for way in ("upload", "download")]
assert sorted(profile.links) == sorted([*ways, "device"]), profile.links
assert {"allocate", "open", "both_ways"} <= profile.one_offs.keys(), profile.one_offs
assert "float64" in profile.rates["library"].surfaces, profile.rates["library"]
assert {"sort/float64", "gather/float64", "fft/float64"} <= set(profile.rates["library"].curves)
assert {"elementwise/float64", "reduce_inner/float32"} <= set(profile.rates["generated"].curves)
from alight._src.measure.probes import library, loop, product
from alight._src.plan.cost import estimate
assert estimate(loop("add", "float32", 300), device, "generated", profile).seconds > 0
groups = dict(library("float64", 300)) | {"product": product("float64", 20)}
for name in ("sort", "gather", "fft", "product"):
    assert estimate(groups[name], device, "library", profile).seconds > 0, name
assert estimate(groups["move"], device, "library", profile) is None  # was not measured
print("done")
"""


@needs_compiler
def test_calibration_measures_kernels_libraries_and_links() -> None:
    passes(CALIBRATION)


LINK = """
import numpy as np
import alight
from alight._core import Data, layout_of
from alight.backends.base import Copy
device = registry.device("cuda:0")
backend.open(device)
session = backend._sessions["cuda:0"]
size = 9 << 20
values = np.frombuffer(np.random.default_rng(0).bytes(size), np.uint8)

def uploaded(data):
    target, back = backend.allocate(device, size), np.empty(size, np.uint8)
    backend.wait(backend.submit(device, 1, [Copy(data, target, size, "host", "cuda:0")]))
    landed = Data(data.layout, back)
    backend.wait(backend.submit(device, 0, [Copy(target, landed, size, "cuda:0", "host")]))
    assert np.array_equal(back, values)

pinned = backend.allocate(device, size, "pinned")
pinned.array[:] = values
uploaded(pinned)
mine = values.copy()
held = backend.register(device, mine.ctypes.data, size)
uploaded(Data(layout_of(mine), mine))
assert session._uploads is None  # the link reached both as they are
del held
half = backend.register(device, mine.ctypes.data, size // 2)
uploaded(Data(layout_of(mine), mine))
assert session._uploads is not None

# A limit of the pool's is the device's memory; what does not fit passes in chunks.
session.pool.set_limit(size=8 << 20)
assert backend.memory(device)[0] <= 8 << 20 == backend.memory(device)[1]
x = np.random.default_rng(1).random(3 << 19)
from alight._src.log.decisions import LOG
with alight.policy(force="cuda:0", floor=0):
    a, b = alight.asarray(x), alight.asarray(x[::-1].copy())
    LOG.reset()
    assert np.array_equal(np.asarray(a * b + a), x * x[::-1] + x)
log = LOG.snapshot()
assert all("no memory left" in f.reason for f in log.fallbacks) and log.fallbacks, log.fallbacks
assert 3 < log.counts["downloads"] < 40, log.counts
assert backend.memory(device)[0] > 7 << 20  # what passed through is free again
assert {place for place, n in log.elements.items() if n} == {("generated", "cuda:0")}
print("done")
"""


@needs_compiler
def test_pinned_memory_is_uploaded_as_it_is_and_the_pools_limit_is_kept() -> None:
    passes(LINK)


FAULTS = """
from ratchets.cuda_faults import faults
from ratchets.cuda_rig import Rig
found, rig = {}, Rig()
backend.open(rig.device)
faults(rig, found)
assert not found["faults"]["differing"], found["faults"]
assert len(found["faults"]["programs"]) == 28, found["faults"]
print("done")
"""


@needs_compiler
def test_whatever_step_fails_the_answer_is_right_and_the_failure_said() -> None:
    passes(FAULTS)


@needs_compiler
@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_powers_have_the_bits_of_the_host(kind: type) -> None:
    dtype = np.dtype(kind)
    part = np.finfo(dtype).dtype
    drawn = np.random.default_rng(3).standard_normal((4, 2000)).astype(part) * 3
    drawn[3, ::2] = 0
    drawn[2, ::4] = np.rint(drawn[2, ::4] * 5)
    special = points([dtype, dtype])
    made = zip(drawn[::2], drawn[1::2], special, strict=True)
    x, y = (np.concatenate([a + 1j * b, s]) for a, b, s in made)
    group = loop_group([x, y], [(OPS["power"], (0, 1), (), dtype)])
    (host,), (ours,) = run(group, [x, y]), cuda_on_cpu.run(group, [x, y])
    assert np.array_equal(host.view(part), ours.view(part), equal_nan=True)
    number = ~np.isnan(host.view(part))
    assert np.array_equal(np.signbit(host.view(part))[number], np.signbit(ours.view(part))[number])


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_products_beside_the_largest_number_are_trusted_by_their_size(kind: type) -> None:
    top = np.finfo(kind).max
    expected = np.array([top / 2 + 1j * top, 3 + 4j], kind)
    for far, differs in ((1, False), (32, True)):
        actual = expected.copy()
        actual.real -= far * np.spacing(np.abs(expected.real))
        assert verify_ops._differs(OPS["multiply"], [], actual, expected).tolist() == [differs] * 2


def test_without_cupy_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "whereabouts", lambda name: None)
    probe = CudaBackend().probe()
    assert probe.devices == () and "pip install 'alight[cuda13]'" in probe.reason


def test_a_forked_child_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(driver_subprocess._loaded_in, "CUDA", os.getpid() + 1)
    probe = CudaBackend().probe()
    assert probe.devices == () and "spawn" in probe.reason


def test_a_driver_that_dies_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os; os.kill(os.getpid(), 11)")
    monkeypatch.setattr(backend_module, "whereabouts", lambda name: object())
    monkeypatch.setattr(backend_module.cuda_cards, "__file__", str(tmp_path / "dies.py"))
    probe = CudaBackend().probe()
    assert probe.devices == () and "signal 11" in probe.reason


JOINING = """
import time, dataclasses, sys
import numpy as np
import alight
from alight._src.adapt import lazy_devices as candidates
from alight._src.adapt import planner_facts as costs
from alight.backends import registry
from alight.backends.cuda import cuda_backend
from alight.backends.cuda.cuda_backend import CudaBackend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import fingerprint, save_profile
from alight._src.plan.curve import Measured

registry._backends["cuda"] = CudaBackend()
if sys.argv[1:] == ["measured"]:
    def measured(name, **slower):
        found = recorded(name, {**DEFAULT_SPEC, **slower})
        if name == "cpu":
            rates = dict.fromkeys(("numpy", "generated"), found.rates["generated"])
            found = dataclasses.replace(found, rates=rates, links={})
        number = Measured(1e-3, "seconds", 1e-3, 1e-3, 1, "probe")
        made = dict(made_at=time.time(), origin="measured", one_offs={"open": number})
        device = registry.device(name)
        save_profile(dataclasses.replace(found, fingerprint=fingerprint(device), **made))
        registry.remember(device)
    measured("cpu", memory={"value": 1e7, "source": "test"})
    measured("cuda:0")
    print("done")
    sys.exit()

def asked(*arguments):
    raise AssertionError("the driver was asked in a process of its own")

cuda_backend.ask = asked
x = np.linspace(0.0, 1.0, 20000)
with alight.policy(floor=0):
    a = alight.asarray(x)
    assert np.array_equal(np.asarray(a * 2.0 + a), x * 2.0 + x)
assert not LOG.snapshot().fallbacks
print([row["why"] for row in alight.devices()[1:]], alight.report().to_dict()["gone"])
print({record.decision.chosen for record in LOG.snapshot().records})
"""


@needs_compiler
def test_a_calibrated_card_takes_part_without_asking_its_driver_first(tmp_path: Path) -> None:
    variables = {"ALIGHT_CACHE_DIR": str(tmp_path)}
    done = elsewhere("-c", JOINING, "measured", **variables)
    assert done.stdout == "done\n", done.stderr
    done = elsewhere("-c", JOINING, **variables)
    assert done.stdout == "['calibrated'] {}\n{'cuda:0'}\n", done.stderr
    done = elsewhere("-c", JOINING, **variables, CUDA_VISIBLE_DEVICES="1")
    assert done.stdout.endswith("\n{'cpu'}\n"), done.stderr
    assert "CUDA_VISIBLE_DEVICES: 'nothing' then, '1' now" in done.stdout
