"""Has Python start a program as ``alight run`` does, where ``ALIGHT=1`` is in the environment.

``alight.pth`` imports this in every process that has the variable. Nothing of alight is loaded
before a file of the program that names NumPy is compiled: a process that has none loses a
millisecond.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType
from typing import Any

__all__ = ["begin"]


_started = ""  # the script that Python was started with, or "-c" or "-m"


def begin() -> None:
    """Look at the script that Python runs from here on, and at what it imports from beside it."""
    global _started
    _started = sys.argv[0] if sys.argv else ""
    sys.path_hooks.insert(0, _hook)


def _hook(path: str) -> Any:
    """Return what finds modules in the program's folder, or ``__main__`` in a script, which Python
    asks for as in an archive."""
    real = os.path.realpath(path or os.curdir)
    if not _is_installed(real):
        if real.endswith(".py") and os.path.isfile(real) and _names_numpy(real):
            return _Script(path, real)
        if os.path.isdir(real) and real == _folder():
            return FileFinder(
                path or os.curdir,
                (ExtensionFileLoader, EXTENSION_SUFFIXES),
                (_loader, SOURCE_SUFFIXES),  # type: ignore[arg-type]  # called, like the classes
                (SourcelessFileLoader, BYTECODE_SUFFIXES),
            )
    raise ImportError("not of the program")


def _folder() -> str:
    """Return the folder of the script, or the current one where Python was given none."""
    none = _started in ("", "-", "-c", "-m")
    return os.path.realpath(os.curdir if none else os.path.dirname(_started))


def _is_installed(path: str) -> bool:
    """Tell whether a file or folder is a package's, Python's own, or beside its commands."""
    own = (os.path.dirname(os.__file__), os.path.dirname(os.path.abspath(sys.executable)))
    within = os.path.join(path, "")
    return within.startswith(tuple(os.path.join(folder, "") for folder in own)) or any(
        os.sep + name + os.sep in within for name in ("site-packages", "dist-packages")
    )


def _names_numpy(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return b"numpy" in stream.read()
    except OSError:  # Python's own reading of it says so
        return False


def _loader(name: str, path: str) -> SourceFileLoader:
    """Return the loader of a module of the program: alight's where it names NumPy."""
    if not _names_numpy(path):
        return SourceFileLoader(name, path)
    from alight._src.launch import loader

    if not loader.serving():
        loader.serve(_folder())
    return loader.program_loader(name, path)


class _Script(SourceFileLoader):
    """A script, as what has a module ``__main__``."""

    def __init__(self, path: str, real: str) -> None:
        super().__init__("__main__", path)
        self.real = real

    def find_spec(self, name: str, _: Any = None) -> ModuleSpec | None:
        """Return where ``__main__`` is."""
        return ModuleSpec(name, self, origin=self.path) if name == "__main__" else None

    def get_code(self, fullname: str) -> CodeType:
        """Return what runs the script that Python was started with; another's own code."""
        if self.real != os.path.realpath(_started):  # a worker imports its parent's
            return _loader(fullname, self.path).get_code(fullname)  # type: ignore[return-value]
        text = "from alight._src.launch.program import to_start; to_start()"
        return compile(text, self.path, "exec")
