"""What tests of CUDA run with where there is no card: compilers, and processes whose CuPy is
``cupy_on_cpu``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_on_cpu
import nvrtc

TESTS = Path(__file__).resolve().parent

needs_compiler = pytest.mark.skipif(
    cuda_on_cpu.compiler() is None, reason="no g++ to run CUDA C on the CPU with"
)
needs_nvrtc = pytest.mark.skipif(
    nvrtc.library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc-cu12"
)


def elsewhere(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python where CuPy is ``cupy_on_cpu``."""
    path = [str(TESTS / "cupy_on_cpu"), str(TESTS), str(TESTS.parent / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment,
        cwd=TESTS.parent, check=False,
    )  # fmt: skip


def passes(program: str) -> None:
    """Run a program beside a device; it prints "done" in the end."""
    done = elsewhere("-c", with_entry_point(program))
    assert done.stdout.endswith("done\n") and "Warning" not in done.stderr, done.stderr


def with_entry_point(program: str) -> str:
    """Return a program that finds the backend also where alight's was installed without it."""
    return f"""
from alight.backends import registry
from alight.backends.cuda.cuda_backend import CudaBackend
backend = registry._backends["cuda"] = CudaBackend()
registry._devices |= {{d.id: d for d in backend.probe().devices}}
import cuda_driver_on_cpu
cuda_driver_on_cpu.install()
{program}"""
