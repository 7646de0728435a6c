"""The native core: built where no compiler is, and missed with a message."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

SMOKE = """
import numpy
import alight
import alight as np
from alight._src.log.decisions import LOG

x = numpy.linspace(0.0, 1.0, 100_000)
assert numpy.array_equal(numpy.asarray(np.asarray(x) * 2 + 1), x * 2 + 1)
assert np.zeros((3, 4)).sum() == 0 and np.sqrt(np.arange(5.0)).shape == (5,)


@alight.jit
def smooth(height):
    height[1:-1] = (height[:-2] + height[1:-1] + height[2:]) / 3
    return numpy.sqrt(height).max()


height = numpy.arange(6.0) ** 2
assert smooth(height) == 5.0 and height[1] == 1.6666666666666667
with alight.policy(floor=0, force="cpu:generated"):
    assert numpy.array_equal(numpy.asarray(np.asarray(x) * x + x), x * x + x)
assert any(record.decision.implementation == "generated" for record in LOG.snapshot().records)
print(alight.__file__)
"""


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return tools/building.py."""
    spec = importlib.util.spec_from_file_location("building", ROOT / "tools" / "building.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("CC", "ALIGHT_BUILD_TARGET"):
        monkeypatch.delenv(name, raising=False)
    return module


def asked(program: str) -> str:
    """Return the last line of what a program that fails says."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


# -- where it is missed ----------------------------------------------------------------------------


def test_a_core_that_was_not_built_is_missed_with_its_fix() -> None:
    said = asked("import sys; sys.modules['alight._core._native'] = None; import alight")
    assert said.startswith("ImportError: alight's native core cannot be used: ")
    assert "Fix: build it for this Python" in said and sys.executable in said


@pytest.mark.parametrize("sources", ["SOURCES = 'abc'", "pass"])
def test_a_core_of_other_sources_is_not_used(sources: str) -> None:
    said = asked(f"""
import sys, types
core = types.ModuleType("alight._core._native")
exec({sources!r}, vars(core))
sys.modules["alight._core._native"] = core
import alight
""")
    assert said.startswith("ImportError: alight's native core cannot be used: ")
    assert ("built of other sources (abc)" in said) == (sources != "pass") and "Fix: " in said


# -- how it is built -------------------------------------------------------------------------------


def test_a_compiler_is_taken_from_path_and_asked_for_where_there_is_none(
    building: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pythons = {"CC": "odd-cc -pthread"}
    monkeypatch.setattr(building.sysconfig, "get_config_var", pythons.get)
    assert building.found_compiler() is None
    assert "ziglang" in building.get_requires_for_build_editable()
    for name, found in (("clang", ["clang"]), ("cc", ["cc"]), ("odd-cc", [])):
        (tmp_path / name).touch(mode=0o755)
        assert building.found_compiler() == found
    assert "ziglang" not in building.get_requires_for_build_wheel()
    monkeypatch.setattr(building, "TARGET", "x86_64-linux-gnu.2.17")
    assert building.found_compiler() is None
    monkeypatch.setattr(building, "find_spec", lambda name: None)
    with pytest.raises(building.CompileError, match=r"no C compiler .* Fix: install one"):
        building.zig()


def test_missing_headers_are_named(
    building: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building.sysconfig, "get_path", lambda name: str(tmp_path))
    for hook in (building.get_requires_for_build_wheel, building.get_requires_for_build_editable):
        with pytest.raises(SystemExit) as caught:
            hook()
        said = str(caught.value)
        assert str(tmp_path / "Python.h") in said and "Fix: install its headers" in said


@pytest.mark.skipif(shutil.which("false") is None, reason="no command that fails here")
def test_a_compiler_that_fails_fails_the_build(tmp_path: Path) -> None:
    folders = ("--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temporary"))
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", *folders],
        cwd=ROOT, env={**os.environ, "CC": "false"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "error: " in done.stderr
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.slow
@pytest.mark.timeout(900)  # 40 seconds of a processor, and a download of 100 MB
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not run elsewhere")
def test_a_wheel_is_built_and_runs_where_no_compiler_is(tmp_path: Path) -> None:
    source, wheels, nothing = tmp_path / "source", tmp_path / "wheels", tmp_path / "nothing"
    for folder in (source, wheels, nothing):
        folder.mkdir()
    # A copy: what setuptools leaves in the tree it builds is of no other build.
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "tools", source / "tools")
    left_out = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=left_out)
    other = ("CC", "PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if k not in other and k[:7] != "ALIGHT_"}
    env |= {"PATH": str(nothing), "ALIGHT_CACHE_DIR": str(tmp_path), "ALIGHT_CALIBRATE": "off"}
    env["PIP_NO_COMPILE"] = "1"  # of what is put into environments little is imported

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)

    # Its own download, so that a package index that cannot be reached fails no test.
    got = pip("download", "-q", "--no-deps", "-d", str(wheels), "ziglang")
    if got.returncode:
        pytest.skip(f"ziglang cannot be had: {got.stderr.strip().splitlines()[-1]}")
    env["PIP_FIND_LINKS"] = " ".join([*env.get("PIP_FIND_LINKS", "").split(), str(wheels)])
    built = pip("wheel", "--no-deps", "-w", str(wheels), str(source))
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-1000:]
    (wheel,) = wheels.glob("alight-*.whl")
    home = tmp_path / "home"
    assert run(sys.executable, "-m", "venv", "--without-pip", str(home)).returncode == 0
    python = str(home / "bin" / "python")
    put = pip("--python", python, "install", "-q", str(wheel))
    assert put.returncode == 0, put.stderr[-3000:]
    smoke = run(python, "-c", SMOKE)
    assert smoke.returncode == 0, smoke.stderr[-3000:]
    assert smoke.stdout.startswith(str(home))
    doctor = run(str(home / "bin" / "alight"), "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
