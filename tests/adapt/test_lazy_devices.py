"""Devices that nobody named: calibrated ones take part where it pays, and cost nothing else.

The device is a simulated one that comes through an entry point, in packages that each test makes;
it writes down what is done with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import alight.backends.registry
import alight.errors
from alight._src.base.cache_registry import Cache, forget
from alight._src.store import SCHEMA
from alight.backends import known_devices

SOURCE = Path(alight.errors.__file__).parents[1]

# The file "card" is the device: what is in it is its driver's version. "told" is what was done.
BACKEND = """
from __future__ import annotations
import dataclasses, os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from alight.backends.sim.sim_backend import SimBackend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC
from alight.device import Probe, Traces

HERE = Path(__file__).parent
CARD = HERE / "card"

def tell(what):
    with open(HERE / "told", "a") as stream:
        stream.write(what + "\\n")

tell("import")

class FarBackend(SimBackend):
    name = "far"
    profile = None  # it is measured like any other

    def __init__(self):
        super().__init__({"far:0": DEFAULT_SPEC})

    def device(self):
        made = super()._device("far:0", self.specs["far:0"])
        version = (HERE / "version").read_text() if (HERE / "version").exists() else "1"
        support = dataclasses.replace(made.support, library=frozenset(), verified=True)
        return dataclasses.replace(made, fingerprint=f"card, driver {version}", support=support)

    def probe(self):
        tell("probe")
        if not CARD.exists():
            return Probe((), "it is unplugged. Fix: plug it in")
        traces = Traces((str(CARD),), ("FAR_CHOICE",), modules=("driven",))
        return Probe((self.device(),), traces=traces)

    def open(self, device):
        tell("open")
        if (HERE / "broken").exists():
            raise OSError("the driver does not answer")
        super().open(device)

    def described(self, device):
        if (HERE / "mute").exists():
            raise OSError("the driver describes nothing")
        return self.device()
"""

# The figures that calibrating would find, had the machine such a card and so slow a processor.
MEASURED = """
import dataclasses, sys, time
from alight.backends import registry
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded
from alight._src.measure.profiles import KIND, fingerprint, profile_key, save_profile
from alight._src.plan.curve import Measured
from alight._src.store import default_store

def measured(name, one_offs, **slower):
    spec = {**DEFAULT_SPEC, "launch": {"value": 1e-6, "source": "test"}, **slower}
    found = dataclasses.replace(
        recorded(name, spec), fingerprint=fingerprint(registry.device(name)),
        made_at=time.time(), origin="measured", one_offs=one_offs, complete=True)
    if name == "cpu":
        rates = dict.fromkeys(("numpy", "generated"), found.rates["generated"])
        found = dataclasses.replace(found, rates=rates, links={})
    # in the place of one that a program has measured meanwhile, where the machine was quiet
    default_store().remove(KIND, profile_key(found.fingerprint))
    save_profile(found)
    registry.remember(registry.device(name))

def seconds(value):
    return Measured(value, "seconds", value, value, 1, "probe")

from alight._src.adapt import record_floor as automatic_floor

default_store().write("floor", automatic_floor._floor_key(), {"elements": [1000] * 3})
slow = {"value": float(sys.argv[2]), "source": "test"}
measured("cpu", {}, memory=slow)
measured("far:0", {"open": seconds(float(sys.argv[1])), "kernel": seconds(1e-9),
                   "operation": seconds(1e-9), "reduction": seconds(1e-9)})
"""

PROGRAM = """
import json, sys
import numpy as np
import alight
from alight._src.log.decisions import LOG

def placed():
    return [record.decision.chosen for record in LOG.snapshot().records]

x = np.linspace(0.0, 1.0, 200_000)
a = alight.asarray(x)
for _ in range({runs}):
    assert np.array_equal(np.asarray(a * 2.0 + a), x * 2.0 + x)
places = dict()
for record in LOG.snapshot().records:
    where = record.decision.chosen
    places[where] = places.get(where, 0) + record.runs
modules = set(sys.modules)
report = alight.report()
print(json.dumps(dict(
    places=places, devices=alight.devices(), gone=json.loads(report.to_json())["gone"],
    text=str(report), metadata="importlib.metadata" in modules,
    children="subprocess" in modules)))
"""


class Machine:
    """A machine with that device, and its cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = folder / "far-1.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
        (record / "entry_points.txt").write_text("[alight.backends]\nfar = far:FarBackend\n")
        (folder / "far.py").write_text(BACKEND)
        (folder / "card").write_text("driver 1")
        (folder / "driven.py").touch()  # what its driver is asked through

    def python(self, *arguments: str, ends: tuple[int, ...] = (0,), **variables: str) -> str:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")},
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(SOURCE)]),
            "ALIGHT_CACHE_DIR": str(self.folder / "cache"),
            "ALIGHT_CALIBRATE": "off",
            "ALIGHT_LEARN": "off",  # what the host takes is nothing like the profile it is given
            "ALIGHT_FLOOR_ALL": "1000",
            "ALIGHT_WGPU_SOFTWARE": "0",
            **variables,
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True, text=True, cwd=self.folder, env=environment,
        )  # fmt: skip
        assert done.returncode in ends, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def measured(self, open_seconds: float = 1e-3, host_bytes: float = 1e7) -> None:
        """Have the host, of so many bytes a second, and the device calibrated."""
        self.python("-c", MEASURED, str(open_seconds), str(host_bytes))
        self.told()

    def told(self) -> list[str]:
        """Return what was done with the device since this was asked last."""
        path = self.folder / "told"
        found = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def run(self, runs: int = 3, **variables: str) -> Any:
        return json.loads(self.python("-c", PROGRAM.replace("{runs}", str(runs)), **variables))

    def alight(self, *arguments: str, **variables: str) -> str:
        # calibrating ends with 1 where other work disturbed it
        ends = (0, 1) if arguments[0] == "calibrate" else (0,)
        return self.python("-m", "alight", *arguments, ends=ends, **variables)

    def listed(self, **variables: str) -> dict[str, Any]:
        """Return what `alight devices` says of the device."""
        found = json.loads(self.alight("devices", "--json", **variables))["devices"]
        return next(row for row in found if row["id"] == "far:0")

    def index(self) -> Path:
        return self.folder / "cache" / f"v{SCHEMA}" / "device" / f"{known_devices.KEY}.json"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_who_has_no_calibrated_device_pays_for_none(machine: Machine) -> None:
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and found["gone"] == {}
    assert not found["metadata"] and not found["children"]
    assert machine.told() == []


def test_a_calibrated_device_takes_part_without_being_asked_for_first(machine: Machine) -> None:
    machine.measured()
    found = machine.run()
    assert set(found["places"]) == {"far:0"}
    assert machine.told() == ["import", "open"]
    (row,) = [row for row in found["devices"] if row["id"] == "far:0"]
    assert row["takes_part"] and row["why"] == "calibrated"
    assert row["profile"]["origin"] == "measured"


def test_a_device_is_opened_once_what_was_lost_without_it_is_what_opening_takes(
    machine: Machine,
) -> None:
    # 3.2 MB of memory at 10 MB/s, by the host's profile: opening pays at the fourth run
    machine.measured(open_seconds=1.2)
    first = machine.run(runs=3)
    assert set(first["places"]) == {"cpu"}
    (row,) = [row for row in first["devices"] if row["id"] == "far:0"]
    assert row["takes_part"] and "1.2 s" in row["why"]
    assert machine.told() == []  # not even imported
    assert machine.run(runs=5)["places"] == {"cpu": 3, "far:0": 2}
    assert machine.told() == ["import", "open"]


LOOP = """
import json, threading
import numpy as np, alight
from alight._src.run import kernels
x = alight.asarray(np.linspace(0.0, 1.0, 1_000_000))
y = alight.asarray(np.linspace(1.0, 2.0, 1_000_000))
for turn in range(100):
    x = x * 0.5 + y * 0.25
    assert float(x.max()) < 1e9
    kernels.settle()  # so that it does not depend on a clock when the device is open
    for thread in threading.enumerate():
        if thread.name.startswith("alight-open"):
            thread.join()
(loop,) = alight.report().to_dict()["loops"]
loop["last"] = float(x[17])
print(json.dumps(loop))
"""


def test_a_loop_has_its_device_opened_while_it_goes_on(machine: Machine) -> None:
    # by requests alone nothing is ever lost: bringing the arrays takes longer than the host
    machine.measured(open_seconds=0.02, host_bytes=4e10)
    x, y = (np.linspace(low, low + 1.0, 1_000_000)[17] for low in (0.0, 1.0))
    for _ in range(100):
        x = x * 0.5 + y * 0.25
    found = json.loads(machine.python("-c", LOOP))
    expected = float(x)
    assert found["last"] == expected and found["device"] == "far:0" and found["state"] == "away"
    assert machine.told() == ["import", "open"]
    (at,) = found["switched_at"]
    gain = found["here_seconds"] - found["there_seconds"]
    needed = (found["moving_seconds"] + 0.02) / gain
    assert needed <= at <= needed + 3  # found open a turn later, and kernels a turn after that
    again = json.loads(machine.python("-c", LOOP))
    assert again["last"] == expected and again["state"] == "away"
    # opened from the first request on: the first turn or the second finds it so
    assert again["switched_at"] in ([1], [2]) and machine.told() == ["import", "open"]
    (machine.folder / "broken").touch()  # what looks the same does not open
    kept = json.loads(machine.python("-c", LOOP))
    assert kept["last"] == expected and kept["state"] == "stays" and "OSError" in kept["reason"]


def test_a_child_forked_while_a_device_is_being_opened_does_without_it(machine: Machine) -> None:
    machine.measured()
    text = """
        import os, threading
        import far
        from alight._src.adapt import lazy_devices
        from alight.backends import known_devices, registry
        begun, goes_on = threading.Event(), threading.Event()
        opened = far.FarBackend.open
        def slow(self, device):
            begun.set()
            assert goes_on.wait(60)
            opened(self, device)
        far.FarBackend.open = slow
        thread = threading.Thread(target=lazy_devices.open_device, args=("far:0",))
        thread.start()
        assert begun.wait(60)
        child = os.fork()
        if not child:
            (one,) = known_devices.recalled()
            os._exit(0 if "forked" in registry.left("far:0") else 1)
        goes_on.set()
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        assert list(registry.joined()) == ["far:0"]
        """
    machine.python("-W", "ignore", "-c", textwrap.dedent(text))


def test_small_work_does_not_even_recall_it(machine: Machine) -> None:
    machine.measured(open_seconds=1e-9)
    text = """
        import numpy as np, alight
        from alight.backends import known_devices as calibrated
        x = np.linspace(0.0, 1.0, 500)
        for _ in range(100):
            assert np.array_equal(np.asarray(alight.asarray(x) * 2.0), x * 2.0)
        assert calibrated._recalled is None
        """
    machine.python("-c", textwrap.dedent(text))
    assert machine.told() == []


def test_where_it_wins_nothing_it_is_not_planned_for_twice(machine: Machine) -> None:
    machine.measured(open_seconds=1e-9)
    text = """
        import numpy as np, alight
        from alight._src.adapt import lazy_devices as candidates
        from alight._src.adapt import planner_facts as costs
        from alight.backends import registry
        from dataclasses import replace
        profile = costs.profile_of(registry.device("cpu"))
        curve = profile.rates["numpy"].curves["elementwise/float64"]
        quick = replace(profile.rates["numpy"], curves={
            name: type(curve)([(work, 1e-9 + work * 1e-12) for work, _ in found.knots])
            for name, found in profile.rates["numpy"].curves.items()})
        costs._profiles["cpu"] = replace(profile, rates={"numpy": quick, "generated": quick})
        candidates.make_plan = None  # a second plan would call it
        x = np.linspace(0.0, 1.0, 2000)
        assert np.array_equal(np.asarray(alight.asarray(x) * 2.0), x * 2.0)
        """
    machine.python("-c", textwrap.dedent(text))
    assert machine.told() == []


def test_until_it_can_matter_nothing_is_planned_for_it(machine: Machine) -> None:
    machine.measured(open_seconds=1.2)
    text = """
        import numpy as np, alight
        from alight._src.adapt import lazy_devices as candidates
        planned = []
        make_plan = candidates.make_plan
        candidates.make_plan = lambda *given: planned.append(given) or make_plan(*given)
        x = np.linspace(0.0, 1.0, 200_000)
        for run in range(5):
            assert np.array_equal(np.asarray(alight.asarray(x) * 2.0), x * 2.0)
            assert len(planned) == (run > 2), (run, planned)  # 0.32 s each at most
        """
    machine.python("-c", textwrap.dedent(text))


@pytest.mark.parametrize("said", [
    {"ALIGHT_DEVICES": "cpu"}, {"ALIGHT_DEVICES": "-far:0"}, {"ALIGHT_FORCE": "generated"},
], ids=str)  # fmt: skip
def test_what_the_settings_say_holds(machine: Machine, said: dict[str, str]) -> None:
    machine.measured(open_seconds=1e-9)
    assert set(machine.run(**said)["places"]) == {"cpu"}
    assert machine.told() == []
    row = machine.listed(**said)
    (variable,) = said
    assert not row["takes_part"] and variable in row["why"]


def test_other_denials_leave_it_open_and_a_name_makes_it_preferred(machine: Machine) -> None:
    machine.measured(open_seconds=1e-9)
    assert set(machine.run(ALIGHT_DEVICES="-cuda:0")["places"]) == {"far:0"}
    assert machine.told() == ["import", "open"]
    assert set(machine.run(ALIGHT_DEVICES="far:0,cpu")["places"]) == {"far:0"}
    assert machine.told() == ["import", "open"]
    row = machine.listed(ALIGHT_DEVICES="far:0,cpu")
    assert row["why"] == "named by environment variable ALIGHT_DEVICES"


def test_a_named_device_is_asked_for_first_unless_it_was_calibrated(machine: Machine) -> None:
    assert set(machine.run(ALIGHT_FORCE="far:0")["places"]) == {"far:0"}
    assert machine.told() == ["import", "probe", "open"]
    machine.measured()
    assert set(machine.run(ALIGHT_FORCE="far:0")["places"]) == {"far:0"}
    assert machine.told() == ["import", "open"]
    (machine.folder / "card").write_text("driver 1, moved")  # it does not look the same
    assert set(machine.run(ALIGHT_FORCE="far:0")["places"]) == {"far:0"}
    assert machine.told() == ["import", "probe", "open"]
    machine.measured()
    (machine.folder / "broken").touch()  # it looks the same, and is not
    found = machine.run(ALIGHT_FORCE="far:0")
    assert "far:0" not in found["places"] and "OSError" in found["text"]
    assert machine.told()[:2] == ["import", "open"]
    machine.run(ALIGHT_FORCE="far:0")
    assert machine.told()[:2] == ["import", "probe"]  # nobody goes the same way


def test_a_device_that_opens_and_cannot_be_described_is_closed_and_found_again(
    machine: Machine,
) -> None:
    machine.measured()
    (machine.folder / "mute").touch()
    text = """
        import far
        from alight.backends import registry
        try:
            registry.backend_of(registry.device("far:0"))
        except OSError:
            pass
        else:
            raise SystemExit("it was described")
        assert registry.only_host()
        (far.HERE / "mute").unlink()
        again = registry.device("far:0")  # its driver is asked now
        assert registry.backend_of(again) is registry.driver_of(again)
        assert not registry.only_host()
        """
    machine.python("-c", textwrap.dedent(text))
    assert machine.told() == ["import", "open", "probe", "open"]


def test_a_device_that_is_gone_costs_no_look_and_is_told_of(machine: Machine) -> None:
    machine.measured()
    (machine.folder / "card").unlink()
    for _ in range(2):
        found = machine.run()
        assert set(found["places"]) == {"cpu"}
        assert machine.told() == []
    reason = found["gone"]["far:0"]
    assert "'driver 1' then, 'absent' now" in reason and "Fix: `alight devices`" in reason
    assert reason[:40] in found["text"]
    assert reason in machine.alight("doctor") and "unplugged" in machine.alight("devices")
    machine.told()
    (machine.folder / "card").write_text("driver 1")  # back again
    assert set(machine.run()["places"]) == {"far:0"}


def test_a_device_is_recalled_where_the_environment_has_its_library(machine: Machine) -> None:
    machine.measured()
    (machine.folder / "driven.py").unlink()
    found = machine.run()
    assert set(found["places"]) == {"cpu"}
    assert "far:0" not in [row["id"] for row in found["devices"]]
    assert "module driven: 'there' then, 'nothing' now" in found["gone"]["far:0"]
    assert machine.told() == []  # nothing was tried, which would be kept against it elsewhere
    (machine.folder / "driven.py").touch()
    assert set(machine.run()["places"]) == {"far:0"}


def test_a_device_is_recalled_where_its_backend_is_installed(machine: Machine) -> None:
    """Its code may still be found, as in the folder that it was installed from."""
    machine.measured()
    (machine.folder / "far-1.0.dist-info").rename(machine.folder / "far-1.0.gone")
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and machine.told() == []
    assert "far:0" not in [row["id"] for row in found["devices"]]
    assert "no backend named far is installed" in found["gone"]["far:0"]
    assert "Fix: " in found["gone"]["far:0"] and "far:0 takes part" not in found["text"]
    assert found["gone"]["far:0"] in machine.alight("doctor")
    with pytest.raises(AssertionError, match="no backend of that name is installed"):
        machine.run(ALIGHT_FORCE="far:0")
    (machine.folder / "far-1.0.gone").rename(machine.folder / "far-1.0.dist-info")
    assert set(machine.run()["places"]) == {"far:0"}  # nothing is kept against it


def test_a_backend_of_others_is_not_measured_unasked(machine: Machine) -> None:
    """Once measured it takes part, which `alight calibrate` is there to ask for."""
    for named in ({"ALIGHT_FORCE": "far:0"}, {"ALIGHT_DEVICES": "far:0,cpu"}):
        machine.run(ALIGHT_CALIBRATE="auto", **named)
    row = machine.listed()
    assert not row["takes_part"] and row["why"] == "uncalibrated. Fix: `alight calibrate far:0`"
    machine.measured()
    assert set(machine.run()["places"]) == {"far:0"}


def test_another_choice_of_devices_is_another_look(machine: Machine) -> None:
    machine.measured()
    assert "FAR_CHOICE: 'nothing' then, '1' now" in machine.run(FAR_CHOICE="1")["gone"]["far:0"]
    assert machine.listed(FAR_CHOICE="1")["takes_part"]  # who looks finds that it is the same one
    for choice in ("1", ""):
        assert set(machine.run(FAR_CHOICE=choice)["places"]) == {"far:0"}


def test_a_new_driver_is_not_used_before_it_is_measured(machine: Machine) -> None:
    machine.measured()
    (machine.folder / "card").write_text("driver 2")
    (machine.folder / "version").write_text("2")
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and machine.told() == []
    assert "'driver 1' then, 'driver 2' now" in found["gone"]["far:0"]
    row = machine.listed()
    assert not row["takes_part"] and row["why"].startswith("uncalibrated. Fix: `alight calibrate")
    machine.measured()
    assert set(machine.run()["places"]) == {"far:0"}


def test_another_device_in_its_place_is_found_out_once(machine: Machine) -> None:
    machine.measured()
    (machine.folder / "version").write_text("2")  # what the traces do not show
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and machine.told() == ["import", "open"]
    assert "is 'card, driver 2' now" in found["gone"]["far:0"]
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and machine.told() == []
    assert "is 'card, driver 2' now" in found["gone"]["far:0"]


def test_a_driver_that_fails_is_left_alone_until_somebody_looks(machine: Machine) -> None:
    machine.measured()
    (machine.folder / "broken").touch()
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and machine.told() == ["import", "open"]
    assert "OSError: the driver does not answer" in found["gone"]["far:0"]
    found = machine.run()
    assert set(found["places"]) == {"cpu"} and machine.told() == []
    (machine.folder / "broken").unlink()
    assert machine.listed()["takes_part"]
    assert set(machine.run()["places"]) == {"far:0"}


def test_who_waits_after_a_failure_waits_ever_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alight._src.store import Store
    from alight.backends import known_devices
    from alight.device import Device, Support, Traces

    store, now = Store(tmp_path), [1e9]
    monkeypatch.setattr(known_devices, "default_store", lambda: store)
    monkeypatch.setattr(known_devices, "time", lambda: now[0])
    monkeypatch.setattr(known_devices, "_is_installed", lambda kind: True)
    forget(Cache.RECALLED_DEVICES)
    support = Support(("generated",), frozenset(("float32",)))
    device = Device("far:0", "v", "n", "far:0", 1 << 30, False, support, {"operands": 3}, "1")

    def usable() -> bool:
        forget(Cache.RECALLED_DEVICES)
        ((found, _, reason),) = known_devices.recalled()
        assert found == device
        return not reason

    known_devices.keep(device, Traces((sys.executable,), ("HOME",), ("wgpu_power",)))
    assert usable()
    for wait in (20.0, 40.0, 80.0):
        known_devices.failed(device, "why", for_good=False)
        assert not usable()
        now[0] += wait - 1
        assert not usable()
        now[0] += 2
        assert usable()
    known_devices.trying(device)
    assert usable()  # it may be at it
    now[0] += 61
    assert not usable() and "did not get through" in known_devices.recalled()[0].reason
    now[0] += 161
    assert usable()
    known_devices.failed(device, "why", for_good=True)
    now[0] += 1e9
    assert not usable()
    known_devices.keep(device, Traces((sys.executable,), ("HOME",), ("wgpu_power",)))
    assert usable()
    forget(Cache.RECALLED_DEVICES)


def test_a_profile_for_other_settings_of_the_machine_is_none(machine: Machine) -> None:
    machine.measured()
    other = "1" + os.environ.get("OMP_NUM_THREADS", "")
    assert set(machine.run(OMP_NUM_THREADS=other)["places"]) == {"cpu"}
    assert machine.told() == []
    assert machine.listed(OMP_NUM_THREADS=other)["why"].startswith("uncalibrated")


@pytest.mark.parametrize("text", ["", "{", '{"schema":1,"document":{}}', "null"])
def test_an_unreadable_list_is_none(machine: Machine, text: str) -> None:
    machine.measured()
    machine.index().write_text(text)
    assert set(machine.run()["places"]) == {"cpu"}
    assert machine.listed()["takes_part"]  # who looks writes it anew
    assert set(machine.run()["places"]) == {"far:0"}


def test_looks_of_before_modules_were_named_are_passed_over(machine: Machine) -> None:
    """Nothing in them tells that what the device is driven through is missing here."""
    from alight._src.store import Store

    machine.measured()
    store = Store(machine.folder / "cache")
    document = store.read("device", known_devices.KEY)
    assert document is not None
    for entry in document["devices"].values():
        for seen in entry["looks"]:
            del seen["module driven"]
    store.remove("device", known_devices.KEY)
    store.write("device", "calibrated", document)
    assert set(machine.run()["places"]) == {"cpu"}
    assert machine.listed()["takes_part"]  # who looks keeps it anew
    assert set(machine.run()["places"]) == {"far:0"}


@pytest.mark.parametrize(
    ("name", "there"),
    [("sys", True), ("nowhere_at_all", False), ("nowhere_at_all.sub", False), ("without", True)],
)
def test_modules_are_looked_for_by_their_top_level_names(
    name: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alight.device import Traces

    monkeypatch.setitem(sys.modules, "without", ModuleType("without"))  # it has no __spec__
    seen = known_devices.look(Traces(modules=(name,)))
    assert seen == {f"module {name}": "there" if there else ""}


def test_entries_of_another_version_are_passed_over(machine: Machine) -> None:
    from alight._src.store import Store

    machine.measured()
    store = Store(machine.folder / "cache")
    document = store.read("device", known_devices.KEY)
    assert document is not None
    entries = {"other": {"device": {"id": "far:0"}}, "more": 3, **document["devices"]}
    store.write("device", known_devices.KEY, {"devices": entries})
    assert set(machine.run()["places"]) == {"far:0"}


JITTED = """
import numpy as np, alight
from time import perf_counter
from alight._src.adapt.first_plan import plan_at_once
from alight._src.log.decisions import LOG
plan_at_once()  # else the first calls are NumPy's while what plans is loaded
{decorated}
def chain(x):
    return {body}
x = np.linspace(0.0, 1.0, 200_000)
began, places = perf_counter(), set()
# NumPy has the calls until they have paid for a look.
while "far:0" not in places and perf_counter() - began < 30.0:
    for _ in range(50):
        assert np.allclose(chain(x), {body}, rtol=1e-13)
    places |= {{record.decision.chosen for record in LOG.snapshot().records}}
print(sorted(places))
"""


@pytest.mark.parametrize("body", ["np.sqrt(x * x + 1.0)", "np.sqrt(x * x + 1.0).sum()", "x + x"])
def test_a_jitted_function_gets_there_too(machine: Machine, body: str) -> None:
    machine.measured(open_seconds=1.2)
    program = JITTED.format(decorated="@alight.jit", body=body)
    assert "far:0" in machine.python("-c", program, ALIGHT_FLOOR_ALL="")
    assert machine.told() == ["import", "open"]


def test_a_forked_child_leaves_it_to_its_parent(machine: Machine) -> None:
    machine.measured(open_seconds=1e-9)
    text = """
        import os, sys
        import numpy as np, alight
        from alight._src.log.decisions import LOG
        x = np.linspace(0.0, 1.0, 200_000)
        a = alight.asarray(x)
        assert np.array_equal(np.asarray(a + 1.0), x + 1.0)
        process = os.fork()
        if process:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        LOG.reset()
        b = alight.asarray(x)
        assert np.array_equal(np.asarray(b + 1.0), x + 1.0)
        assert np.array_equal(np.asarray(b * 3.0), x * 3.0)
        assert {record.decision.chosen for record in LOG.snapshot().records} == {"cpu"}
        (row,) = [row for row in alight.devices() if row["id"] == "far:0"]
        assert not row["takes_part"] and "forked" in row["why"], row
        sys.stdout.flush()
        os._exit(0)
        """
    machine.python("-W", "ignore", "-c", textwrap.dedent(text))
    assert machine.told() == ["import", "open"]


def test_a_child_of_a_parent_that_had_not_opened_it_may(machine: Machine) -> None:
    machine.measured(open_seconds=1e-9)
    text = """
        import os, sys
        import numpy as np, alight
        from alight._src.log.decisions import LOG
        x = np.linspace(0.0, 1.0, 200_000)
        process = os.fork()
        if process:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        assert np.array_equal(np.asarray(alight.asarray(x) + 1.0), x + 1.0)
        assert {record.decision.chosen for record in LOG.snapshot().records} == {"far:0"}
        os._exit(0)
        """
    machine.python("-W", "ignore", "-c", textwrap.dedent(text))
    assert machine.told() == ["import", "open"]


def test_a_pickled_policy_leaves_it_open_elsewhere_too(machine: Machine) -> None:
    machine.measured(open_seconds=1e-9)
    text = """
        import pickle, numpy as np, alight
        from alight._src.config.loading import current_policy, policy
        from alight._src.log.decisions import LOG
        kept = pickle.loads(pickle.dumps(current_policy()))
        assert kept == current_policy() and kept.devices is None
        x = np.linspace(0.0, 1.0, 200_000)
        with policy(pick="model"):
            assert np.array_equal(np.asarray(alight.asarray(x) + 1.0), x + 1.0)
        assert {record.decision.chosen for record in LOG.snapshot().records} == {"far:0"}
        """
    machine.python("-c", textwrap.dedent(text))


def test_calibrate_measures_what_the_machine_has_and_devices_lists_it(machine: Machine) -> None:
    before = machine.listed()
    assert not before["takes_part"]
    assert before["why"] == "uncalibrated. Fix: `alight calibrate far:0`"
    found = json.loads(machine.alight("calibrate", "--seconds", "0.3", "--json"))
    assert [row["device"] for row in found["profiles"]][:2] == ["cpu", "far:0"]
    assert "sim:0" not in [row["device"] for row in found["profiles"]]
    after = machine.listed()
    assert after["takes_part"] and after["why"].startswith("calibrated")
    assert after["profile"]["origin"] == "measured"
    text = machine.alight("devices")
    assert "cpu takes part: always" in text
    assert "far:0 takes part: calibrated" in text


def test_a_host_that_is_not_calibrated_keeps_no_device_out(machine: Machine) -> None:
    machine.measured()
    for profile in (machine.folder / "cache" / f"v{SCHEMA}" / "profile").glob("*.json"):
        if json.loads(profile.read_text())["document"]["device"] == "cpu":
            profile.unlink()
    # by the least that NumPy may take less was lost than opening takes
    assert set(machine.run()["places"]) == {"cpu"}
    fix = "Fix: `alight calibrate cpu`"
    row = machine.listed()
    assert row["takes_part"] and row["why"].endswith(
        f"the quickest of hosts would take longer. {fix}"
    )
    text = machine.alight("devices")
    assert f"cpu takes part: always, uncalibrated: its work is NumPy's. {fix}" in text
    named = machine.listed(ALIGHT_DEVICES="far:0,cpu")
    assert named["takes_part"] and "but the host is not" in named["why"]
    # Where it is named, work stays with what lies there, and NumPy has what lies on the host.
    text = """
        import alight
        import numpy as np
        from alight._src.log.decisions import LOG
        x = np.linspace(0.0, 1.0, 200_000)
        with alight.policy(force="far:0"):
            there = alight.asarray(x) * 2.0
            alight.evaluate(there)
        alight.reset()
        more = there + 1.0
        alight.evaluate(more)
        assert np.array_equal(np.asarray(alight.asarray(x) + 1.0), x + 1.0)
        for record in LOG.snapshot().records:
            decision = record.decision
            print(decision.chosen, decision.reason, *[
                candidate.device for candidate in decision.candidates
                if candidate.reason == "uncalibrated" and candidate.implementation == "numpy"])
        assert str(alight.report()).count("uncalibrated work is NumPy's") == 1
        assert np.array_equal(np.asarray(more), x * 2.0 + 1.0)
    """
    told = machine.python("-c", textwrap.dedent(text), ALIGHT_DEVICES="far:0,cpu")
    assert sorted(told.splitlines()) == ["cpu uncalibrated", "far:0 already_resident cpu"]
    forced = machine.listed(ALIGHT_FORCE="far:0")
    assert forced["takes_part"] and "the host" not in forced["why"]


def test_calibrate_goes_on_where_a_driver_fails_that_nobody_named(machine: Machine) -> None:
    (machine.folder / "broken").touch()
    arguments = ("calibrate", "--seconds", "0.1", "--dry-run", "--json")
    found = json.loads(machine.alight(*arguments))
    assert "cpu" in [row["device"] for row in found["profiles"]]  # and a card that is there
    assert found["failed"] == {"far:0": "OSError: the driver does not answer"}
    named = json.loads(machine.alight("calibrate", "cpu", *arguments[1:]))
    assert [row["device"] for row in named["profiles"]] == ["cpu"] and not named["failed"]


def test_settings_that_only_another_version_knows_look_unlike_any_of_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = alight.backends.registry.device("cpu").to_dict() | {"id": "far:0", "space": "far:0"}
    kept = {"device": own, "failed": None, "trying": None}
    theirs, here = {"setting of_another_version": "on"}, {"path /nothing here": "absent"}

    class Store:
        def __init__(self, *looks: dict[str, str]) -> None:
            entry = {**kept, "looks": looks}
            self.document = json.loads(json.dumps({"devices": {"far": entry}}))  # as it is stored

        def read(self, kind: str, key: str) -> Any:
            return self.document

    monkeypatch.setattr(known_devices, "_is_installed", lambda kind: True)
    for looks, why in (((here, theirs), ""), ((theirs,), "setting of_another_version")):
        forget(Cache.RECALLED_DEVICES)
        monkeypatch.setattr(known_devices, "default_store", lambda looks=looks: Store(*looks))
        (found,) = known_devices.recalled()
        assert found.device.id == "far:0" and (why in found.reason if why else not found.reason)


@pytest.mark.parametrize(
    "where, what",
    [
        *[(("device", "id"), id) for id in (7, None, ["far:1"], {"far": 1})],
        *[(("device", name), 7) for name in ("vendor", "name", "space", "fingerprint", "support")],
        *[(("device", "memory_bytes"), memory) for memory in ("1", None, True)],
        (("device", "limits", "operands"), "3"),
        (("device", "support", "dtypes"), [["float32"]]),
        (("device", "support", "gaps"), [{"what": []}]),
        (("device",), []),
        *[(("looks",), looks) for looks in ("text", [7], [{"path /": 7}], None)],
        *[(("failed",), failed) for failed in ("why", {"at": "x"}, {"reason": 7})],
        (("trying",), "now"),
        ((), 7),
    ],
)
def test_a_document_that_nobody_wrote_is_put_aside_and_the_rest_of_it_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: tuple[str, ...],
    what: Any,
) -> None:
    from alight._src.store import Store
    from alight.backends import known_devices
    from alight.device import Device, Support, Traces

    store = Store(tmp_path)
    monkeypatch.setattr(known_devices, "default_store", lambda: store)
    monkeypatch.setattr(known_devices, "_is_installed", lambda kind: True)
    support = Support(("generated",), frozenset(("float32",)))
    devices = [
        Device(f"far:{i}", "v", "n", f"far:{i}", 1 << 30, False, support, {"operands": 3}, "1")
        for i in range(2)
    ]
    for device in devices:
        known_devices.keep(device, Traces((sys.executable,)))
    document = store.read("device", known_devices.KEY)
    assert document is not None
    part: Any = document["devices"]
    for name in (known_devices._key(devices[1]), *where)[:-1]:
        part = part[name]
    part[(known_devices._key(devices[1]), *where)[-1]] = what
    store.write("device", known_devices.KEY, document)
    forget(Cache.RECALLED_DEVICES)
    with caplog.at_level("WARNING", logger="alight"):
        ((found, _, reason),) = known_devices.recalled()
    assert found == devices[0] and not reason
    (said,) = caplog.messages
    assert f"{known_devices.KEY}.json" in said and "Fix: `alight calibrate`" in said
    forms = [entry.form for entry in store.entries() if entry.key == known_devices.KEY]
    assert sorted(forms) == ["document", "quarantined"]
    forget(Cache.RECALLED_DEVICES)
    caplog.clear()
    assert [one.device for one in known_devices.recalled()] == [devices[0]] and not caplog.messages
    known_devices.keep(devices[1], Traces((sys.executable,)))
    known_devices.failed(devices[1], "why", for_good=False)
    assert len(known_devices.recalled()) == 2
    forget(Cache.RECALLED_DEVICES)
