"""Seeds whose programs show a fault that is known and not yet mended; to be emptied.

An entry is left out of the random runs, and a test fails for each that no longer differs.
"""

from __future__ import annotations

# By door of `fuzzing.threaded`: what is wrong. The test that names it fails once it is mended.
THREADED = {
    "jitted": "what one thread writes into its part of an argument, another writes back old"
}
# By mode: what is wrong, with the seeds that show it.
_COPIES = "a whole copy of an argument, or of a local, is taken for the memory it was copied from"
_REVERSED = "a window of a local that is written from itself: shift of the wrong shape"
_PLACE = "a ComplexWarning names a line of backends/host.py in place of the program's"
JITTED: dict[str, dict[str, tuple[int, ...]]] = {
    "numpy": {_COPIES: (20309, 20342, 20395), _PLACE: (20008,)},
    "generated": {
        _COPIES: (20309, 20395),
        _REVERSED: (20096, 20181, 20227, 20254, 20260, 20269),
    },
    "sim": {_COPIES: (20309, 20395), _PLACE: (20008,)},
}


def known(seed: int, mode: str) -> bool:
    """Tell whether a program of `fuzzing.jitted` shows a known fault."""
    return any(seed in seeds for seeds in JITTED.get(mode, {}).values())
