"""Seeds whose programs show a fault that is known and not yet mended; to be emptied.

An entry is left out of the random runs, and a test fails for each that no longer differs.
"""

from __future__ import annotations

# `ALIGHT_CHECK` of the random jitted bodies and threads: their plans are proven, and followed.
CHECK = "1"
# By door of `fuzzing.threaded`: what is wrong. The test that names it fails once it is mended.
THREADED: dict[str, str] = {}
# By mode: what is wrong, with the seeds that show it.
_EMPTY_MASK = (
    "NumPy takes indices that are no ndarrays and have no elements for integers, and gives no"
    " place to say otherwise: to read an ndarray that is none of the arguments' by a mask of no"
    " elements and several axes is an IndexError that names the fix"
)
JITTED: dict[str, dict[str, tuple[int, ...]]] = {"generated": {_EMPTY_MASK: (210080312,)}}
# What such a fault says, whatever the seed.
_SAID = ("IndexError: NumPy takes an Array of no elements, here a mask of shape",)


def told(message: str) -> bool:
    """Tell whether a difference is a known fault's by what it says."""
    return any(said in message for said in _SAID)


def known(seed: int, mode: str) -> bool:
    """Tell whether a program of `fuzzing.jitted` shows a known fault."""
    return any(seed in seeds for seeds in JITTED.get(mode, {}).values())
