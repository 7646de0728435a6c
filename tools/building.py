"""How the native core is built: the build backend that pip asks, and the command that compiles.

It is setuptools' backend, but for one thing: where no C compiler is found it asks for the
``ziglang`` wheel, which has one. ``setup.py`` uses the command, whoever runs it.
``ALIGHT_BUILD_TARGET`` (``x86_64-linux-gnu.2.17``) is what ziglang compiles for, whatever compilers
there are: ``tools/wheels.py`` says it, for systems older than the one that builds.
"""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import Extension, build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that are left as they are)
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

WINDOWS, MACOS = sys.platform == "win32", sys.platform == "darwin"
ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "alight" / "_core"
DIGEST: str = runpy.run_path(str(CORE / "built.py"))["digest"]()
# Results have NumPy's bits: a compiler must not make one rounding of two (Clang does, unasked).
FLAGS = ["-O3", "-ffp-contract=off", "-fvisibility=hidden"]
# MSVC has C11's atomics on request only.
MSVC_FLAGS = ["/O2", "/std:c11", "/experimental:c11atomics", "/fp:precise"]

START = "alight.pth"
ZIG = "ziglang"
TARGET = os.environ.get("ALIGHT_BUILD_TARGET")
# Where there is none of the name that Python's own had, which may have been built elsewhere.
COMPILERS = ("cc", "gcc", "clang")


def found_compiler() -> list[str] | None:
    """Return the command of a C compiler on PATH, [] for the one that setuptools takes by itself,
    and None where there is none, or ziglang's is wanted."""
    if TARGET:
        return None
    if WINDOWS or os.environ.get("CC"):
        return []
    pythons = shlex.split(sysconfig.get_config_var("CC") or "")
    if pythons and shutil.which(pythons[0]):
        return []
    return next(([name] for name in COMPILERS if shutil.which(name)), None)


def zig() -> list[str]:
    """Return the command of ziglang's C compiler."""
    spec = find_spec(ZIG)
    if spec is None or not spec.submodule_search_locations:
        raise CompileError(
            "no C compiler (cc, gcc or clang) is on PATH. Fix: install one, or name one in CC, or "
            f"`{sys.executable} -m pip install {ZIG}`, which has one"
        )
    command = [str(Path(spec.submodule_search_locations[0]) / ZIG.removesuffix("lang")), "cc"]
    # Without a target it would compile for this very processor.
    return [*command, "-target", TARGET] if TARGET else [*command, "-mcpu=baseline"]


def expect_headers() -> None:
    """End the build where Python's own headers are missing."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SystemExit(
            f"error: {header} is missing, without which nothing can be compiled for this Python. "
            f"Fix: install its headers (Debian, Ubuntu: `apt install python{version}-dev`; Fedora: "
            f"`dnf install python{version}-devel`), or use a Python that has them"
        )


def _needed() -> list[str]:
    """Return what building needs beside what pyproject.toml says."""
    expect_headers()
    return [ZIG] if found_compiler() is None else []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what a wheel is built with."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_needed()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what an editable install is built with."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_needed()]


def extensions() -> list[Extension]:
    """Return the native core."""
    import numpy

    native = (CORE / "native").relative_to(ROOT)
    return [
        Extension(
            "alight._core._native",
            sources=[str(native / path.name) for path in sorted((ROOT / native).glob("*.c"))],
            depends=[str(native / path.name) for path in sorted((ROOT / native).glob("*.h"))],
            include_dirs=[numpy.get_include()],
            define_macros=[("ALIGHT_SOURCES", f'"{DIGEST}"')],
            extra_compile_args=MSVC_FLAGS if WINDOWS else FLAGS,
        )
    ]


class Build(build_ext):
    """Compile the core where it is not yet built of these sources; what fails there fails."""

    def build_extensions(self) -> None:
        """Compile, with the compiler that was found."""
        expect_headers()
        command = found_compiler()
        if command is None:
            command = zig()
        if command:
            # Without the flags that this Python was compiled with: they are another compiler's.
            shared = ["-bundle", "-undefined", "dynamic_lookup"] if MACOS else ["-shared", "-s"]
            self.compiler.set_executables(
                compiler=command, compiler_so=[*command, "-fPIC"], linker_so=[*command, *shared]
            )
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Compile one, unless it is there: what is in it tells, times of files say little."""
        made = Path(self.get_ext_fullpath(ext.name))
        if self.force or not made.exists() or DIGEST.encode() not in made.read_bytes():
            self.force = True
            super().build_extension(ext)


class BuildModules(build_py):
    """Put the file beside the package that Python reads when it starts."""

    def run(self) -> None:
        """Copy what is to be installed."""
        super().run()
        if not self.editable_mode:
            self.copy_file(str(ROOT / "tools" / START), str(Path(self.build_lib, START)))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return what is installed."""
        made = [] if self.editable_mode else [str(Path(self.build_lib, START))]
        return [*super().get_outputs(include_bytecode), *made]
