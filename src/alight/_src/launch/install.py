"""Programs that ask for alight themselves: ``alight.install()``."""

from __future__ import annotations

import ast
import os
import sys
from itertools import islice
from types import FrameType
from typing import Any

from alight._src.launch import loader

__all__ = ["install"]


def install() -> None:
    """Have the rest of a script, and what it imports from its own folder, run as `alight run` does.

    Called at the top level of the script that Python was started with, it has the statements below
    compiled with alight under their NumPy, runs them, and ends the program as they do: nothing
    above is run again. Called elsewhere, in a function or a module, it is modules imported from
    then on that see alight. A second call, and one under `alight run`, does nothing.

    Examples
    --------
    The first lines of a script, which then runs as by ``alight run``::

        import alight
        alight.install()
        import numpy as np
    """
    if loader.serving():
        return
    frame = sys._getframe(1)
    names = frame.f_globals
    path = names.get("__file__")
    own = names is vars(sys.modules["__main__"]) and frame.f_code.co_name == "<module>"
    loader.serve(os.path.dirname(os.path.realpath(path)) if own and path else os.getcwd())
    if own and path and os.path.isfile(path):
        rest = _below(path, frame)
        if rest is not None:
            loader.run_rest(rest, path, frame)


def _below(path: str, frame: FrameType) -> ast.Module | None:
    """Return the statements of a script below the one at work; None where that is inside of
    another or cannot be told, or the file is not what runs."""
    with open(path, "rb") as stream:
        source = stream.read()
    tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    line, _, column, _ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))

    def holds(one: Any) -> bool:
        if column is None:  # `python -X no_debug_ranges`
            return bool(one.lineno <= line <= one.end_lineno)
        place = one.lineno, one.col_offset
        return place <= (line, column) < (one.end_lineno, one.end_col_offset)

    found = [number for number, one in enumerate(tree.body) if holds(one)]
    if len(found) != 1 or not isinstance(tree.body[found[0]], (ast.Expr, ast.Assign)):
        return None
    return ast.Module(tree.body[found[0] + 1 :], [])
