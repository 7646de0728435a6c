"""Whose code a function is: the program's own, a package's or the standard library's."""

from __future__ import annotations

import os
import threading
from functools import cache
from types import FunctionType

from alight._src.base import package
from alight._src.base.at_fork import renewed
from alight._src.base.originals import np
from alight._src.base.uninterrupted import uninterrupted

__all__ = [
    "READERS",
    "installed",
    "of_a_package",
    "standard",
    "written_by_user",
]

# Packages that read the code of functions, and compile it: what they make of one comes by what that
# does and keeps no arrays.
READERS = frozenset(("numba",))

# sysconfig makes what it answers from at its first questions: two threads fail one another there.
_asking = renewed(globals(), "_asking", threading.RLock)


@cache
def _paths() -> dict[str, str]:
    return uninterrupted(_asked)  # it imports what it answers from


def _asked() -> dict[str, str]:
    import sysconfig  # late: most programs' starts do not ask

    with _asking:
        return sysconfig.get_paths()  # every question makes them all anew


def _folders(*names: str) -> set[str]:
    return {_paths()[name] for name in names}


def _resolved(paths: set[str]) -> tuple[str, ...]:
    """Return folders as they are named and as they are, each with a slash at its end."""
    # pathlib takes 3 ms to import, and every program's first call comes here.
    real = {os.path.realpath(path) for path in paths}
    return tuple(sorted([path + "/" for path in paths | real]))


@cache
def installed() -> tuple[str, ...]:
    """Return the folders of the standard library, of installed packages and of alight."""
    found = _folders("stdlib", "platstdlib", "purelib", "platlib")
    return _resolved(found | {os.path.dirname(np.__file__), package.FOLDER})


@cache
def standard() -> tuple[str, ...]:
    """Return the folders of the standard library."""
    return _resolved(_folders("stdlib", "platstdlib"))


@cache
def of_a_package(path: str) -> bool:
    """Tell whether a file is an installed package's, and not the standard library's."""
    # Packages are installed inside its folder.
    parts = path.split(os.sep)
    installed_there = "site-packages" in parts or "dist-packages" in parts
    return path.startswith(installed()) and (installed_there or not path.startswith(standard()))


def written_by_user(function: FunctionType) -> bool:
    """Tell whether a function is the program's own, not the standard library's or a package's."""
    path = function.__code__.co_filename
    return not path.startswith(installed()) and not path.startswith("<frozen")
