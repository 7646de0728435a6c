"""Notebooks: cells run as `alight run` runs a script.

``%load_ext alight`` has the cells that follow compiled as a program's files are, and
``%unload_ext alight`` ends that. Only what IPython documents is used: transformers of syntax trees,
magics, the compiler and its names of cells.
"""

from __future__ import annotations

import ast
import os
import sys
from types import CodeType
from typing import Any

from alight._src.api.stand_ins import stand_in
from alight._src.launch import loader
from alight._src.log import call_site

__all__ = ["load", "unload"]


class _Cells(ast.NodeTransformer):
    """Has cells see alight under their NumPy."""

    def visit_Module(self, tree: ast.Module) -> ast.Module:
        """Return a cell's tree as that of a program's file."""
        return loader.program_tree(tree, os.path.join(os.getcwd(), "cell"))


def _marking(compiler: type[Any]) -> type[Any]:
    """Return a class of IPython's compilers whose code another process finds the border by."""

    class Marking(compiler):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            code = super().__call__(*args, **kwargs)
            return loader.marked(code) if isinstance(code, CodeType) else code

    return Marking


class _Shell:
    """One shell of IPython, and what is changed in it while the extension is loaded."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.cells = _Cells()
        self.compiler = type(shell.compile)

    def begin(self) -> None:
        loader.serve(os.getcwd())
        self.shell.compile.__class__ = _marking(self.compiler)
        self.shell.ast_transformers.append(self.cells)
        self.shell.register_magic_function(self.reported, "cell", "alight")
        call_site.namers.append(self.name)
        names = [
            n for n, v in self.shell.user_ns.items() if (shown := stand_in(v)) and shown[0] is v
        ]
        if names := [name for name in names if not name.startswith("_")]:
            was, stays = ("was", "stays") if len(names) == 1 else ("were", "stay")
            print(
                f"alight: {', '.join(names)} {was} imported before, and {stays} NumPy's. Fix: load "
                "alight in the first cell, or run the import again.",
                file=sys.stderr,
            )

    def end(self) -> None:
        self.shell.compile.__class__ = self.compiler
        self.shell.ast_transformers.remove(self.cells)
        self.shell.magics_manager.magics["cell"].pop("alight", None)
        call_site.namers.remove(self.name)

    def name(self, file: str) -> str | None:
        """Return what IPython's own tracebacks call the file of a cell."""
        found = self.shell.compile.format_code_name(file)
        return None if found is None else " ".join(found)

    def reported(self, line: str, cell: str) -> Any:
        """Run a cell and return the report of what it did, which is shown below it."""
        if line.strip():
            raise TypeError(f"%%alight takes nothing in its line, not {line!r}. Fix: leave it out.")
        from alight._src.adapt.first_plan import plan_at_once
        from alight._src.explain.report import made_report
        from alight._src.log.decisions import LOG
        from alight._src.run.evaluate import evaluate_all

        plan_at_once()  # plans are what is asked for
        before, count = LOG.snapshot(), self.shell.execution_count
        outer = self.shell.displayhook.exec_result
        if outer is not None and outer.execution_count is not None:
            self.shell.execution_count = outer.execution_count  # it counts on before a cell runs
        try:
            done = self.shell.run_cell(f"# %%alight\n{cell}")  # lines as the notebook has them
        finally:
            self.shell.execution_count = count
        if not done.success:
            return None  # the error was shown
        evaluate_all()
        return made_report(LOG.snapshot().since(before))


_loaded: dict[int, _Shell] = {}


def load(shell: Any) -> None:
    """Have the cells that follow in a shell of IPython run through alight."""
    if id(shell) not in _loaded:
        _loaded[id(shell)] = here = _Shell(shell)
        here.begin()


def unload(shell: Any) -> None:
    """Have the cells that follow be plain again; arrays and names that are alight's stay so."""
    here = _loaded.pop(id(shell), None)
    if here is not None:
        here.end()
