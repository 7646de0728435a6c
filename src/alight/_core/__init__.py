"""The native core: recording, storage and views, memory for results.

``_native`` (C) and ``twin`` (Python) have the same names and pass the same tests; the twin serves
where no compiler was present at install, or where ``ALIGHT_TWIN=1`` asks for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from alight._src.base.failures import ignoring_failures
from alight._src.base.originals import np

NATIVE: bool

if TYPE_CHECKING:
    from alight._core.twin import *  # noqa: F403  (the list of names stands there)
else:
    _chosen = None
    if os.environ.get("ALIGHT_TWIN", "0") in ("", "0"):
        with suppress(ImportError):  # not built
            _chosen = import_module("alight._core._native")
    NATIVE = _chosen is not None
    if not NATIVE:
        _chosen = import_module("alight._core.twin")
    for _name, _found in vars(_chosen).items():
        if not _name.startswith("_") and not isinstance(_found, ModuleType):
            globals()[_name] = _found

# What is freed at the end of its heap glibc gives back to the system, and the next call that needs
# it waits for fresh pages, unless it is less than twice the largest block that was ever freed, of
# 32 MiB at most (mallopt(3), M_MMAP_THRESHOLD). So that is shown such a block: a transform and its
# inverse of 2**20 float64 by NumPy took 15 ms then and 33 before, (x * 2 + 1) * x - x / 3 of as
# many 1.1 and 3.4 (EPYC). Elsewhere it is memory that nobody touched.
_LARGEST = (32 << 20) - 8192  # with what the heap and pages add
with ignoring_failures(MemoryError):
    np.empty(_LARGEST, np.uint8)
