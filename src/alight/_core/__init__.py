"""The native core: recording, storage and views, memory for results, launches.

``_native`` is compiled from ``native/``; ``_native.pyi`` says what its names mean.
"""

from __future__ import annotations

import sys

from alight._core.built import digest
from alight._src.base.failures import ignoring_failures
from alight._src.base.originals import np


def _unusable(cause: str) -> ImportError:
    return ImportError(
        f"alight's native core cannot be used: {cause}. Fix: build it for this Python, with "
        f"`{sys.executable} -m pip install --force-reinstall --no-deps alight`, or in a checkout "
        f"`{sys.executable} -m pip install -e .`"
    )


try:
    from alight._core._native import *  # noqa: F403  (the list of names stands there)
    from alight._core._native import SOURCES
except ImportError as error:  # not built, or for another Python or NumPy
    raise _unusable(str(error)) from error
# A core of other sources would be called with arguments that it takes for others.
if (_digest := digest()) not in ("", SOURCES):
    raise _unusable(f"it was built of other sources ({SOURCES}) than those beside it ({_digest})")

# What is freed at the end of its heap glibc gives back to the system, and the next call that needs
# it waits for fresh pages, unless it is less than twice the largest block that was ever freed, of
# 32 MiB at most (mallopt(3), M_MMAP_THRESHOLD). So that is shown such a block: a transform and its
# inverse of 2**20 float64 by NumPy took 15 ms then and 33 before, (x * 2 + 1) * x - x / 3 of as
# many 1.1 and 3.4 (EPYC). Elsewhere it is memory that nobody touched.
_LARGEST = (32 << 20) - 8192  # with what the heap and pages add
with ignoring_failures(MemoryError):
    np.empty(_LARGEST, np.uint8)
