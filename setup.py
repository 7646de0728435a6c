"""Build the native core where a compiler is present; the rest is in pyproject.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/alight/_core/native")
GUARD = [NATIVE / "guard.c", NATIVE / "entry.c", NATIVE / "entry_read.c"]
THREADS = [NATIVE / "threads.c", NATIVE / "launcher.c", NATIVE / "ways.c"]


def extensions() -> list[Extension]:
    """Return the native core, or nothing where it is not wanted."""
    # The pure-Python twin passes the same tests, so a build without the core is whole.
    if os.environ.get("ALIGHT_NO_NATIVE", "0") not in ("", "0"):
        return []
    import numpy

    flags = ["/O2", "/std:c11"] if sys.platform == "win32" else ["-O3", "-fvisibility=hidden"]
    sources = {
        "_native": [p for p in sorted(NATIVE.glob("*.c")) if p not in (*GUARD, *THREADS)],
        "_guard": GUARD,
    }
    if sys.platform != "win32":  # POSIX threads; elsewhere the twin serves
        sources["_threads"] = THREADS
    return [
        Extension(
            f"alight._core.{name}",
            sources=[str(path) for path in paths],
            depends=[str(path) for path in sorted(NATIVE.glob("*.h"))],
            include_dirs=[numpy.get_include()],
            extra_compile_args=flags,
            optional=True,  # no compiler, or one that fails: a warning, and the twin is used
        )
        for name, paths in sources.items()
    ]


setup(ext_modules=extensions())
