"""The native core: recording, storage and views, memory for results, launches.

``_native`` is compiled from ``native/``; ``_native.pyi`` says what its names mean.
"""

from __future__ import annotations

import sys

from alight._core.built import digest


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
