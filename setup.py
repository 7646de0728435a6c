"""Build the native core where a compiler is present; the rest is in pyproject.toml."""

from __future__ import annotations

import os
import sys

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """Return the native core, or nothing where it is not wanted."""
    # The pure-Python twin passes the same tests, so a build without the core is whole.
    if os.environ.get("ALIGHT_NO_NATIVE", "0") not in ("", "0"):
        return []
    import numpy

    flags = ["/O2"] if sys.platform == "win32" else ["-O3", "-fvisibility=hidden"]
    return [
        Extension(
            "alight._core._native",
            sources=["src/alight/_core/native.c"],
            include_dirs=[numpy.get_include()],
            extra_compile_args=flags,
            optional=True,  # no compiler, or one that fails: a warning, and the twin is used
        )
    ]


setup(ext_modules=extensions())
