"""Modules that are run, and may run the program's script themselves: ``-m cProfile script.py``.

They have it compiled by runpy, or compile it in the module that is run. There ``compile`` is
another name than Python's own: files of the program become what `alight run` makes of them.
"""

from __future__ import annotations

import builtins
import os
import runpy
from collections.abc import Sequence
from typing import Any

from alight._src.launch import loader

__all__ = ["run_module"]


def run_module(name: str, arguments: Sequence[str] = ()) -> None:
    """Run a module, or a package's ``__main__``, as `python -m` does; exceptions as for
    ``run_script``."""
    package = name.partition(".")[0]
    # Python shows a module that asks while it is being found "-m", and then its file.
    names = loader.main_module(os.getcwd(), ["-m", *arguments], package)
    vars(runpy)["compile"] = _compile
    folder = loader.folder_of(package)
    # The program's own modules have the names that they have without alight.
    if folder is not None and loader.is_installed(os.path.join(folder, package)):
        names["compile"] = _compile
    loader.run_found(name, alter_argv=True)


def _compile(source: Any, filename: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what Python's own function does; of a file of the program that is run, its code."""
    own = mode == "exec" and isinstance(source, bytes) and isinstance(filename, str)
    asked = bool(args) or bool(kwargs.keys() - {"dont_inherit"})  # for a tree, or without asserts
    if own and not asked and os.path.isfile(filename) and not loader.is_installed(filename):
        return loader.script_code(source, filename)
    if len(args) < 2:  # the second is this one
        kwargs = {"dont_inherit": True, **kwargs}
    return builtins.compile(source, filename, mode, *args, **kwargs)
