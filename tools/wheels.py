"""Build what is published: the sdist, and wheels for Linux of this processor.

    python tools/wheels.py [--into FOLDER] [PYTHON ...]

Each PYTHON (an interpreter with its headers and pip; by default this one) gets a wheel, compiled
by the ``ziglang`` wheel for glibc 2.17, so that pip installs it on every Linux since 2014. What
the wheels ask of a system is checked by ``auditwheel`` where that is installed (``pip install
auditwheel``). Run so far: Linux x86-64, CPython 3.11 to 3.13. aarch64 is built by this on such a
machine; macOS and Windows by ``pip wheel .`` with their own compilers: neither was run here.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 17)  # of manylinux2014, the oldest that pip still takes


def run(*command: str, **environment: str) -> None:
    """Run a command in the root; end where it fails."""
    print(" ".join(command), flush=True)
    if subprocess.call(command, cwd=ROOT, env=os.environ | environment):
        sys.exit(f"{command[0]} failed, see above.")


def source(into: Path) -> Path:
    """Return the sdist, made with what pyproject.toml asks for: this Python may have older ones."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    with TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        run(python, "-m", "pip", "install", "-q", *asked["requires"])
        run(python, "setup.py", "-q", "sdist", "-d", str(into))
    (made,) = into.glob("alight-*.tar.gz")
    return made


def build(python: str, sdist: Path, into: Path) -> Path:
    """Return the wheel of an sdist for one Python."""
    machine, (major, minor) = platform.machine(), GLIBC
    before = set(into.glob("*.whl"))
    option = f"--config-settings=--build-option=--plat-name=manylinux_{major}_{minor}_{machine}"
    run(
        *(python, "-m", "pip", "wheel", "-q", "--no-deps", option, "-w", str(into), str(sdist)),
        ALIGHT_BUILD_TARGET=f"{machine}-linux-gnu.{major}.{minor}",
    )
    (made,) = set(into.glob("*.whl")) - before
    return made


def check(wheel: Path) -> None:
    """End where a wheel lacks its core, or asks more of a system than its name says."""
    names = zipfile.ZipFile(wheel).namelist()
    if not any(name.startswith("alight/_core/_native.") and name.endswith(".so") for name in names):
        sys.exit(f"{wheel.name} has no native core.")
    if not {"alight.pth", "alight_start.py"} <= {*names}:
        sys.exit(f"{wheel.name} lacks what ALIGHT=1 begins with.")
    if find_spec("auditwheel") is None:
        print(f"{wheel.name}: not checked, auditwheel is not installed")
        return
    call = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    said = " ".join(subprocess.run(call, capture_output=True, text=True, check=True).stdout.split())
    tag = wheel.stem.rpartition("-")[2]
    if f'consistent with the following platform tag: "{tag}"' not in said:
        sys.exit(f"{wheel.name} is not what its name says: {said}")
    print(f"{wheel.name}: auditwheel finds {tag}")


def main() -> None:
    """Build and check all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    given = parser.parse_args()
    into: Path = given.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    for old in into.glob("alight-*"):
        old.unlink()
    sdist = source(into)
    for python in given.pythons:
        check(build(python, sdist, into))


if __name__ == "__main__":
    main()
