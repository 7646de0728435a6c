"""The command: every subcommand works, usage errors exit with 2, JSON is JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alight._src.adapt import record_floor
from alight._src.adapt.record_floor import GUESSED_FLOOR
from command_line import PACKAGE, command


def python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return command(folder, *arguments, before=(), **variables)


def printed(folder: Path, *arguments: str, **variables: str) -> str:
    done = command(folder, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(folder: Path, *arguments: str, **variables: str) -> Any:
    return json.loads(printed(folder, *arguments, **variables))


def calibrated(folder: Path, *arguments: str) -> Any:
    """Return the profile of a calibration, which exits with 1 where other work disturbed it."""
    done = command(folder, *arguments, "--json")
    (made,) = json.loads(done.stdout)["profiles"]
    assert done.returncode == 0, done.stderr
    return made


def script(folder: Path, text: str = "") -> None:
    default = """
        import numpy as np
        x = np.linspace(0.0, 1.0, 100_000)
        print((x * 2.0 + x).sum())
    """
    (folder / "script.py").write_text(textwrap.dedent(text or default))


def test_version_and_help_are_printed(tmp_path: Path) -> None:
    assert printed(tmp_path, "--version").startswith("alight ")
    text = printed(tmp_path, "--help")
    assert "..." not in text.partition("Commands:")[2]  # each says it in one line
    for name in ("run", "explain", "devices", "calibrate", "report", "cache", "doctor"):
        assert f"\n  {name} " in text
        assert printed(tmp_path, name, "--help").startswith(f"Usage: alight {name}")


@pytest.mark.parametrize(
    "arguments",
    [("run",), ("run", "--nothing", "script.py"), ("nothing",), ("calibrate", "--seconds", "0")],
)
def test_wrong_use_is_error_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = command(tmp_path, *arguments)
    assert done.returncode == 2
    assert "Usage: alight" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_after_the_script_are_the_scripts(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nprint(sys.argv)\n")
    text = printed(tmp_path, "run", "script.py", "--report", "x", "-h", "--", "--help")
    assert text == "['script.py', '--report', 'x', '-h', '--', '--help']\n"


def test_run_writes_the_report(tmp_path: Path) -> None:
    script(tmp_path)
    variables = {"ALIGHT_FLOOR_ALL": "0"}
    plain = printed(tmp_path, "run", "script.py", **variables)
    assert printed(tmp_path, "run", "--report", "r.json", "script.py", **variables) == plain
    document = json.loads((tmp_path / "r.json").read_text())
    places = {str(row["call_site"]).rpartition("/")[2] for row in document["decisions"]}
    assert places & {"script.py:3", "script.py:4"}, places
    assert any(row["measured_seconds"] for row in document["decisions"])
    done = command(tmp_path, "run", "--report=-", "script.py", **variables)
    assert done.stdout == plain
    assert "script.py:4" in done.stderr and "Totals" in done.stderr


def test_the_report_is_written_when_the_script_fails(tmp_path: Path) -> None:
    script(tmp_path, "import numpy as np\nnp.ones(10) / 1\nraise SystemExit(5)\n")
    done = command(tmp_path, "run", "--report", "r.json", "script.py")
    assert done.returncode == 5
    assert json.loads((tmp_path / "r.json").read_text())["schema"] == 1


def test_explain_prints_the_script_and_then_its_decisions(tmp_path: Path) -> None:
    script(tmp_path)
    lines = printed(tmp_path, "explain", "script.py", ALIGHT_FLOOR_ALL="0").splitlines()
    assert float(lines[0]) == pytest.approx(150_000)
    assert any(line.endswith("script.py:4") for line in lines)
    assert any("predicted" in line and "measured" in line for line in lines)


def test_explain_says_why_nothing_was_decided(tmp_path: Path) -> None:
    script(tmp_path, "import numpy as np\nnp.ones(2_000_000).sum()\n")
    off = {"ALIGHT_CALIBRATE": "off"}  # on a busy machine it would be told to have been refused
    lines = printed(tmp_path, "explain", "script.py", **off).splitlines()
    assert lines[0] == "no decisions:"
    assert lines[1].startswith("  all work: no profile of the host yet") and len(lines) == 2
    script(tmp_path, "import numpy as np\nnp.ones(2).sum()\n")
    assert printed(tmp_path, "explain", "script.py").startswith("no decisions: nothing was placed")


def test_nobody_need_read_an_explanation_to_its_end(tmp_path: Path) -> None:
    script(tmp_path, "import numpy as np\nnp.ones(2).sum()\n")
    asked = [sys.executable, "-m", "alight", "explain", str(tmp_path / "script.py")]
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    with subprocess.Popen(asked, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_report_prints_a_saved_one(tmp_path: Path) -> None:
    script(tmp_path)
    printed(tmp_path, "run", "--report", "r.json", "script.py")
    assert printed(tmp_path, "report", "r.json").startswith("alight ")
    assert printed(tmp_path, "report", "r.json", "--all").startswith("alight ")
    assert loaded(tmp_path, "report", "r.json", "--json") == json.loads(
        (tmp_path / "r.json").read_text()
    )
    assert printed(tmp_path, "report", "r.json", "--html", "r.html") == ""
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    if Path("/dev/stdout").exists():  # which nothing takes the place of
        page = printed(tmp_path, "report", "r.json", "--html", "/dev/stdout")
        assert page.startswith("<!doctype")
    done = command(tmp_path, "report", "r.json", "--html", "missing/r.html")
    assert done.returncode == 1
    assert "cannot write the report to missing/r.html" in done.stderr and "Fix:" in done.stderr
    done = command(tmp_path, "report", "script.py")
    assert done.returncode == 1
    assert "is not JSON" in done.stderr and "Traceback" not in done.stderr


def test_devices_and_doctor_print_what_is_there(tmp_path: Path) -> None:
    assert "cpu" in printed(tmp_path, "devices")
    devices = loaded(tmp_path, "devices", "--json")["devices"]
    assert devices[0]["id"] == "cpu" and devices[0]["profile"] is None
    found = loaded(tmp_path, "doctor", "--json", ALIGHT_FLOOR_ALL="7")
    assert found["cache"] == {
        "path": str(tmp_path / "cache"),
        "writable": True,
        "reason": None,
        "owner_checked": os.name == "posix",
    }
    assert {
        "name": "floor.all",
        "value": 7,
        "source": "environment variable ALIGHT_FLOOR_ALL",
    } in found["settings"]
    text = printed(tmp_path, "doctor")
    for part in ("NumPy", "BLAS", "llvmlite", "processors", "Fix: `alight calibrate cpu`"):
        assert part in text, part


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_doctor_tells_of_a_cache_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    found = loaded(tmp_path, "doctor", "--json")
    assert not found["cache"]["writable"] and "Fix: let it be" in found["cache"]["reason"]


@pytest.mark.skipif(sys.platform == "win32", reason="it has no modes of files")
def test_doctor_tells_of_a_cache_that_others_can_write(tmp_path: Path) -> None:
    assert loaded(tmp_path, "doctor", "--json")["cache"]["reason"] is None
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache").chmod(0o777)
    found = loaded(tmp_path, "doctor", "--json")["cache"]
    assert "can be written by others (mode 0777)" in found["reason"] and found["owner_checked"]
    assert "Fix: name a folder in ALIGHT_CACHE_DIR that only you can write" in found["reason"]


def test_doctor_tells_of_a_cache_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    found = loaded(tmp_path, "doctor", "--json")["cache"]
    assert not found["writable"] and "(Not a directory)" in found["reason"]
    assert found["reason"].endswith(" Fix: name another folder in ALIGHT_CACHE_DIR.")


@pytest.mark.skipif(sys.platform == "win32", reason="it has no limits of processes")
def test_doctor_tells_of_a_cache_that_is_full(tmp_path: Path) -> None:
    """A file may be made there, and nothing written into it, as on a full disk."""
    full = """
        import resource
        from alight._src.cli import doctor
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        print(doctor.text(doctor.findings()))
    """
    done = python(tmp_path, "-c", textwrap.dedent(full))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("cache")]
    assert f"cannot write 4096 bytes in {tmp_path} (File too large)" in line, done.stderr
    assert "Fix: make room there" in line


def test_calibrate_stores_unless_dry_and_cache_shows_it(tmp_path: Path) -> None:
    short = ("calibrate", "cpu", "--seconds", "0.2")
    dry = calibrated(tmp_path, *short, "--dry-run")
    assert (dry["device"], dry["path"], dry["delta"]) == ("cpu", None, None)
    assert printed(tmp_path, "cache", "size") == "0 bytes\n"
    made = calibrated(tmp_path, *short)
    assert made["made_seconds"] > 0
    entries = loaded(tmp_path, "cache", "list", "--json")
    total = sum(entry["bytes"] for entry in entries)
    assert printed(tmp_path, "cache", "size") == f"{total} bytes\n"
    assert printed(tmp_path, "cache", "path") == f"{tmp_path / 'cache'}\n"
    stored = [entry["kind"] for entry in entries].count("profile")
    assert stored == 1
    told = printed(tmp_path, "cache")
    assert told == printed(tmp_path, "cache", "list")
    assert told.startswith(f"{len(entries):,} file") and str(tmp_path / "cache") in told
    assert len(printed(tmp_path, "cache", "list", "--all").splitlines()) == 1 + len(entries)
    kinds = {entry["kind"] for entry in entries}
    assert kinds == {line.split()[0] for line in told.splitlines()[2:-1]}
    if stored:
        assert "profile" in told
        text = command(tmp_path, *short).stdout
        assert "cpu: measured in" in text and "_error" not in text
        lines = printed(tmp_path, "devices").splitlines()
        own = next(line for line in lines if line.split()[:1] == ["cpu"])  # crossovers come below
        assert "none: run" not in own
    files = len(loaded(tmp_path, "cache", "list", "--json"))
    told = "1 file removed" if files == 1 else f"{files} files removed"
    assert printed(tmp_path, "cache", "clear").startswith(told)
    assert printed(tmp_path, "cache", "size") == "0 bytes\n"


def test_a_calibration_that_was_disturbed_says_so_and_is_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from alight._src.cli import commands
    from alight._src.explain import calibration_text
    from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded

    made = dataclasses.replace(recorded("cpu", DEFAULT_SPEC), contended=True)
    monkeypatch.setattr(calibration_text, "measure", lambda *args, **kwargs: [made])
    with pytest.raises(SystemExit) as ended:
        commands.main(["calibrate", "cpu"])
    assert ended.value.code == 0
    assert "other work disturbed the measuring, and intervals are as" in capsys.readouterr().out
    quiet = dataclasses.replace(made, contended=False)
    monkeypatch.setattr(calibration_text, "measure", lambda *args, **kwargs: [quiet])
    with pytest.raises(SystemExit) as ended:
        commands.main(["calibrate", "cpu", "--dry-run"])
    assert ended.value.code == 0


def test_a_calibration_says_how_much_was_there_from_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from alight._src.cli import commands
    from alight._src.explain import calibration_text
    from alight._src.measure.saved_samples import Kept
    from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded

    quiet = dataclasses.replace(recorded("cpu", DEFAULT_SPEC), origin="measured", contended=False)
    known = Kept(1.0, timings={"numpy": {"a/f": {1.0: [1e-6], 2.0: [1e-6]}, "b/f": {1.0: [1e-6]}}})
    monkeypatch.setattr(calibration_text, "load_profile", lambda device: None)
    for left, before, options, told in (
        (None, 0.0, (), "measurements: 1,234, all new"),
        (known, 987.0, (), "measurements: 987 from before, 1,234 new"),
        (known, 0.0, ("--fresh",), "measurements: 1,234, all new; 3 from before are passed over"),
        (known, 0.0, ("--dry-run",), "measurements: 1,234, all new; 3 from before are passed over"),
    ):
        made = dataclasses.replace(quiet, validation={"before": before, "new": 1234.0})
        monkeypatch.setattr(calibration_text, "measure", lambda *given, made=made, **more: [made])
        monkeypatch.setattr(calibration_text.saved_samples, "load", lambda device, left=left: left)
        with pytest.raises(SystemExit) as ended:
            commands.main(["calibrate", "cpu", *options])
        assert ended.value.code == 0
        assert f"  {told}\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        commands.main(["calibrate", "cpu", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["profiles"]
    assert (row["validation"]["before"], row["validation"]["new"]) == (0.0, 1234.0)


def test_a_calibration_that_measured_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from alight._src.cli import commands
    from alight._src.explain import calibration_text

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a driver's message")

    monkeypatch.setattr(calibration_text, "measure", broken)
    for more in ((), ("--dry-run",)):
        with pytest.raises(SystemExit) as ended:
            commands.main(["calibrate", *more])
        assert ended.value.code == 1
        assert "cpu: not measured: RuntimeError: a driver's message" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stored", "options"), [(True, ()), (False, ()), (False, ("--dry-run",))], ids=str
)
def test_an_interrupted_calibration_says_what_is_kept(
    stored: bool,
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from alight._src.cli import commands
    from alight._src.explain import calibration_text
    from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded

    made = recorded("cpu", DEFAULT_SPEC)
    there = [made] if options else [None, made if stored else None]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration_text, "measure", interrupted)
    monkeypatch.setattr(calibration_text, "load_profile", lambda device: there.pop(0))
    with pytest.raises(SystemExit) as ended:
        commands.main(["calibrate", "cpu", *options])
    told = capsys.readouterr().err
    assert ended.value.code == 130 and told.endswith("alight: interrupted\n")
    then = "what was measured until then is stored. Fix: " if stored else "nothing is stored\n"
    assert f"cpu: interrupted: {then}" in told


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (("calibrate", "--seconds", "0.1"), "numpy"),
        (("calibrate", "--seconds", "0.1"), "alight._src.cli.commands"),
        (("calibrate", "--seconds", "0.1"), "alight._src.explain.calibration_text"),
        (("bench",), "alight._src.record.array"),
        (("bench",), "alight._src.bench.command"),
        (("run", "script.py"), "alight._src.record.array"),
    ],
    ids=str,
)
def test_an_interrupt_before_a_command_has_begun_is_told_as_later(
    tmp_path: Path, arguments: tuple[str, ...], module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            exec('raise KeyboardInterrupt')  # as where a data class is made\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    script(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    done = command(tmp_path, *arguments, PYTHONPATH=path)
    if arguments[0] == "run":  # a program ends as by Python
        assert done.stderr.endswith("KeyboardInterrupt\n") and "Traceback" in done.stderr
    else:
        assert done.returncode == 130 and done.stderr.strip() == "alight: interrupted"


def test_a_profile_from_a_file_is_shown_beside_what_there_is_and_taken(tmp_path: Path) -> None:
    from alight._src.measure.profiles import fingerprint
    from alight.backends.host import HostBackend
    from alight.backends.sim.virtual_clock import DEFAULT_SPEC, recorded

    device = HostBackend().probe().devices[0]
    made = recorded("cpu", DEFAULT_SPEC).to_dict()
    # as the command's own process finds this machine
    here = calibrated(tmp_path, "calibrate", "cpu", "--seconds", "0.1", "--dry-run")
    made |= {"fingerprint": fingerprint(device), "origin": "measured", "made_at": here["made_at"]}
    file = tmp_path / "given.json"
    file.write_text(json.dumps(made))
    dry = printed(tmp_path, "calibrate", "--from", str(file), "--dry-run")
    header = next(line for line in dry.splitlines() if "before" in line)
    assert header.split() == ["number", "before", "after", "absolute", "ratio"]
    (line,) = [line for line in dry.splitlines() if "generated launch" in line]
    assert line.split()[2] == "none"  # nothing was there before
    sizes = [line for line in dry.splitlines() if " generated elementwise/float64 of " in line]
    assert len(sizes) == 3 and all("iB  " in line or " bytes  " in line for line in sizes)
    assert printed(tmp_path, "cache", "size") == "0 bytes\n"
    assert "imported" in printed(tmp_path, "calibrate", "--from", str(file))
    made["rates"]["generated"]["launch"]["value"] *= 2
    file.write_text(json.dumps(made))
    dry = printed(tmp_path, "calibrate", "--from", str(file), "--dry-run")
    (line,) = [line for line in dry.splitlines() if "generated launch" in line]
    assert line.split()[-1] == "2.000"
    own = json.loads(printed(tmp_path, "devices", "--json"))["devices"]
    (before,) = [row["profile"] for row in own if row["id"] == "cpu"]
    assert before["delta"] is None and before["rates"]["generated"]["launch_seconds"] > 0.0
    for curve in made["rates"]["generated"]["curves"].values():
        curve["knots"] = [[work, 1.25 * took] for work, took in curve["knots"]]
    file.write_text(json.dumps(made | {"made_at": made["made_at"] + 1.0}))
    printed(tmp_path, "calibrate", "--from", str(file))
    own = json.loads(printed(tmp_path, "devices", "--json"))["devices"]
    (after,) = [row["profile"] for row in own if row["id"] == "cpu"]
    changes = {name: change for name, change in after["delta"].items() if change}
    assert changes == {
        name: pytest.approx(0.25) for name in after["delta"] if name.startswith("generated/")
    }
    text = printed(tmp_path, "devices")
    assert "cpu generated: launch " in text and " GB/s" in text
    assert "profile: against the profile before, " in text
    made["rates"]["generated"]["launch"]["value"] = 0.0
    file.write_text(json.dumps(made))
    done = command(tmp_path, "calibrate", "--from", str(file))
    assert done.returncode == 1 and "Fix:" in done.stderr and "Traceback" not in done.stderr


def test_a_bad_setting_is_told_before_the_script_runs(tmp_path: Path) -> None:
    script(tmp_path, "print('ran')")
    done = command(tmp_path, "run", "script.py", ALIGHT_FLOOR_ALL="much")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("alight: environment variable ALIGHT_FLOOR_ALL: 'much'")
    assert "Traceback" not in done.stderr


def test_help_and_doctor_go_on_where_a_setting_is_bad(tmp_path: Path) -> None:
    bad = {"ALIGHT_FORCE": "gpu", "ALIGHT_FLOOR_ALL": "much", "ALIGHT_LOG_SIZE": "7"}
    assert "Commands:" in printed(tmp_path, "--help", **bad)
    found = loaded(tmp_path, "doctor", "--json", **bad)
    assert [text.partition(": ")[0] for text in found["bad_settings"]] == [
        "environment variable ALIGHT_FLOOR_ALL",
        "environment variable ALIGHT_FORCE",
    ]
    held = {row["name"]: row["value"] for row in found["settings"]}
    assert (held["force"], held["floor.all"], held["log_size"]) == (None, None, 7)
    assert "'gpu' is not" in printed(tmp_path, "doctor", **bad)
    assert "Bad settings" not in printed(tmp_path, "doctor")


def test_a_device_that_is_not_there_is_told_before_the_script_runs(tmp_path: Path) -> None:
    script(tmp_path, "print('ran')")
    for name in ("run", "explain"):
        done = command(tmp_path, name, "script.py", ALIGHT_FORCE="cuda:7")
        assert (done.returncode, done.stdout) == (1, "")
        told = "alight: environment variable ALIGHT_FORCE: device 'cuda:7' is not available"
        assert done.stderr.startswith(told) and done.stderr.count("Fix:") == 1
    done = command(tmp_path, "run", "script.py", ALIGHT_FORCE="sim:7")
    assert "sim has sim:0, sim:1. Fix: name one of them.\n" in done.stderr
    found = loaded(tmp_path, "doctor", "--json", ALIGHT_FORCE="cuda:7")["bad_settings"]
    assert len(found) == 1
    assert found[0].startswith("environment variable ALIGHT_FORCE: device 'cuda:7'")


@pytest.mark.parametrize("name", ["nonsense", "cuda:7"])
def test_a_bad_device_is_told_at_the_first_array_however_small(tmp_path: Path, name: str) -> None:
    script(tmp_path, "import alight as np\nprint('began')\nnp.ones(3) + 1\nprint('ran')\n")
    found = python(tmp_path, "script.py", ALIGHT_DEVICES=name)
    assert (found.returncode, found.stdout) == (1, "began\n")
    told = found.stderr.splitlines()[-1]
    assert "environment variable ALIGHT_DEVICES" in told and told.count("Fix:") == 1


@pytest.mark.parametrize("line", ["np.ones(3) + 1", "alight.jit(lambda x: x + 1)(np.ones(3))"])
def test_a_bad_setting_is_told_at_the_programs_own_line(tmp_path: Path, line: str) -> None:
    text = f"import alight\nimport alight as np\ndef main():\n    return {line}\nmain()\n"
    script(tmp_path, text)
    found = python(tmp_path, "script.py", ALIGHT_FORCE="gpu")
    assert found.returncode == 1 and "environment variable ALIGHT_FORCE: 'gpu'" in found.stderr
    assert "in main" in found.stderr and str(PACKAGE) not in found.stderr


def test_more_threads_than_processors_are_told_of(tmp_path: Path) -> None:
    script(tmp_path, "import numpy as np\nprint((np.ones(4_000_000) + 1).max())\n")
    settings = {"ALIGHT_FORCE": "cpu:generated", "ALIGHT_FLOOR_ALL": "0"}
    done = command(tmp_path, "run", "script.py", ALIGHT_THREADS="999", **settings)
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert done.stderr.count("environment variable ALIGHT_THREADS: 999 threads share") == 1
    assert command(tmp_path, "run", "script.py", ALIGHT_THREADS="1", **settings).stderr == ""


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_report_of_a_form_there_is_not_is_told_before_the_script_runs(
    tmp_path: Path, way: str
) -> None:
    script(tmp_path, "print('ran')")
    given = ("--report", "r.csv") if way == "option" else ()
    variables = {"ALIGHT_REPORT": "r.csv"} if way == "variable" else {}
    done = command(tmp_path, "run", *given, "script.py", **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count(".json, .html or .txt") == done.stderr.count("Fix:") == 1


def test_a_file_that_is_no_profile_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"name": "x", "size": 1}')
    done = command(tmp_path, "calibrate", "--from", "other.json")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "it is neither a profile nor the result of a benchmark: it has 'name', 'size'"
        in done.stderr
    )


def test_a_script_that_is_not_there_is_all_that_is_told(tmp_path: Path) -> None:
    for name in ("run", "explain"):
        done = command(tmp_path, name, "nothing.py")
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1


def test_a_crossover_below_every_measured_size_is_no_number() -> None:
    from alight._src.cli.commands import _by_class, _crossovers

    row = {"crossovers": {"generated": 1, "library": 2048, "numpy": None}}
    assert _crossovers(row) == "generated any size; library 2,048 elements; numpy never"
    kinds = {"elementwise": 8, "reduce_inner": 1, "reduce_outer": 4096, "sort": None}
    (line,) = _by_class({"crossovers_by_class": {"generated": kinds}})
    assert line == (
        "generated beats NumPy from: reductions of rows any size; "
        "reductions of columns 4,096 elements; sorts never"
    )
    assert not [*_by_class(None)]


def test_what_measures_itself_says_so(tmp_path: Path) -> None:
    script(tmp_path, "import numpy as np\nprint((np.ones(4_000_000) + 1).sum())\n")
    done = command(tmp_path, "run", "script.py", ALIGHT_LOG="info")
    assert "left to NumPy from the next start on, measured in" in done.stderr
    assert "measuring cpu for at most 0.9 s" in done.stderr


def test_a_program_that_plans_nothing_measures_nothing_at_exit(tmp_path: Path) -> None:
    script(tmp_path, "import numpy as np\nprint(np.ones(100_000).sum())\n")
    done = command(tmp_path, "run", "script.py", ALIGHT_LOG="info")
    assert "left to NumPy from the next start on, measured in" in done.stderr
    assert "measuring cpu" not in done.stderr


def test_without_a_profile_a_program_has_numpys_own_arrays(tmp_path: Path) -> None:
    program = (
        "import numpy as np\nfrom alight._core import ArrayBase, floor\n"
        "few, many = np.linspace(0, 1, 10), np.linspace(0, 1, 2_000_000)\n"
        "assert not isinstance(few, ArrayBase)\n"
        "print(isinstance(many, ArrayBase), floor.record_floor > 1 << 40, (many * 2).max())\n"
    )
    script(tmp_path, program)
    report = tmp_path / "report.json"

    def run(**variables: str) -> tuple[str, dict[str, Any]]:
        done = command(tmp_path, "run", "--report", str(report), "script.py", **variables)
        return done.stdout, json.loads(report.read_text())

    told, found = run(ALIGHT_CALIBRATE="off")
    assert told == "False True 2.0\n"
    (row,) = found["demotions"]
    assert row["what"] == "all work" and "alight calibrate" in row["reason"]
    assert found["decisions"] == [] and found["totals"]["floor_elements"] is None
    # What is asked for is recorded all the same.
    for asked in ({"ALIGHT_FORCE": "cpu:numpy"}, {"ALIGHT_FLOOR_ALL": "100"}):
        told, found = run(ALIGHT_CALIBRATE="off", **asked)
        assert told == "True False 2.0\n"
        assert found["decisions"] and not found["demotions"]


def test_on_a_busy_machine_measuring_at_exit_is_not_tried_every_time(tmp_path: Path) -> None:
    program = (
        "import numpy as np\nfrom alight._src.measure.device_calibration import Calibration\n"
        "real = Calibration.profile\n"
        "def contended(self):\n"
        "    import dataclasses\n"
        "    return dataclasses.replace(real(self), contended=True)\n"
        "Calibration.profile = contended\n"
        "print((np.ones(4_000_000) + 1).sum())\n"
    )
    script(tmp_path, program)
    tried = []
    for _ in range(3):
        done = command(tmp_path, "run", "script.py", ALIGHT_LOG="info")
        tried.append("measuring cpu for at most 0.9 s" in done.stderr)
        (attempt,) = tmp_path.rglob("attempt/*.json")
    assert tried == [True, False, False]
    assert json.loads(attempt.read_text())["document"]["wait_seconds"] == 20.0


def test_the_floor_is_kept_once_three_processes_have_measured_it(tmp_path: Path) -> None:
    program = (
        "import numpy as np\nfrom alight._core import floor\n"
        "np.ones(100_000) + 1\nprint(floor.auto)\n"
    )
    script(tmp_path, program)
    measured, floors = [], []
    for _ in range(5):
        done = command(tmp_path, "run", "script.py", ALIGHT_LOG="info", ALIGHT_CALIBRATE="off")
        measured.append("from the next start on, measured in" in done.stderr)
        floors.append(int(done.stdout))
    assert measured == [True, True, True, False, False]
    assert floors[0] == GUESSED_FLOOR and floors[1] >= floors[2] >= floors[3] == floors[4]
    known = loaded(tmp_path, "doctor", "--json")["measured_floors"]
    assert len(known) == 3 and min(known) == floors[4]
    told = printed(tmp_path, "doctor")
    assert f"NumPy has work on fewer than {floors[4]:,} elements at once, the least of 3" in told
    lines = printed(tmp_path, "doctor", ALIGHT_FLOOR_ALL="7").splitlines()
    assert [line.split() for line in lines if line.startswith("floor ")] == [
        ["floor", "as", "set,", "below"]
    ]
    assert "as set, below" in printed(tmp_path, "doctor", ALIGHT_FLOOR_ALL="0")


def test_a_report_alone_starts_no_measuring(tmp_path: Path) -> None:
    script(tmp_path, "import alight\nalight.report()\nalight.devices()\n")
    printed(tmp_path, "run", "script.py")
    assert printed(tmp_path, "cache", "size") == "0 bytes\n"


def test_the_report_goes_to_one_place_and_what_is_wrong_with_it_is_said_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "script.py").write_text("import numpy\n")
    for given in ((), ("--report", "missing/other.json")):
        done = command(tmp_path, "run", *given, "script.py", ALIGHT_REPORT="missing/r.json")
        assert done.returncode == 1 and done.stderr.count("cannot write the report") == 1
        assert "Fix: make it." in done.stderr
    done = command(tmp_path, "run", "--report", "own.json", "script.py", ALIGHT_REPORT="r.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "own.json").exists() and not (tmp_path / "r.json").exists()
    done = command(tmp_path, "run", "script.py", ALIGHT_REPORT="r.json")
    assert (tmp_path / "r.json").exists()


def test_a_planning_time_that_was_disturbed_has_no_gigabytes_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    real = np.ones
    monkeypatch.setattr(record_floor.np, "ones", lambda size: made.append(size) or real(size))
    found = record_floor._planning_floor(1.0)  # a second for a plan that takes 100 us
    assert found > made[-1] == record_floor._MOST_ELEMENTS
