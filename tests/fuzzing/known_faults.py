"""Seeds whose programs show a fault that is known and not yet mended; to be emptied.

An entry is left out of the random runs, and a test fails for each that no longer differs.
"""

from __future__ import annotations

# By door of `fuzzing.threaded`: what is wrong. The test that names it fails once it is mended.
_CHECK = "the check of plans meets memory that another thread has written meanwhile: PlanError"
THREADED = {"namespace": _CHECK, "jitted": _CHECK}
# By mode: what is wrong, with the seeds that show it.
JITTED: dict[str, dict[str, tuple[int, ...]]] = {}


def known(seed: int, mode: str) -> bool:
    """Tell whether a program of `fuzzing.jitted` shows a known fault."""
    return any(seed in seeds for seeds in JITTED.get(mode, {}).values())
