"""``pytest -p alight``: tests run as `alight run` runs a program.

The files under pytest's root folder are the program's, test files too: what pytest makes of their
asserts is kept. Loaded by pytest alone, which asks a plugin for its ``pytest_plugins``.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook, rewrite_asserts

from alight._src.explain.tables_data import totals_row
from alight._src.launch import loader
from alight._src.launch.program import check_settings
from alight._src.log.decisions import LOG
from alight.errors import AlightError

# What worker processes of pytest-xdist did.
_of_workers: Counter[str] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Have conftest files see alight, and all that is imported later."""
    pytest_configure(early_config)


def pytest_configure(config: Any) -> None:
    """Have tests see alight where pytest loaded this late, as in a worker process."""
    if loader.serving():
        return
    try:
        check_settings()
    except AlightError as error:
        raise pytest.UsageError(f"alight: {error}") from None
    loader.serve(str(config.rootpath))
    for place, finder in enumerate(sys.meta_path):
        if isinstance(finder, AssertionRewritingHook):  # none with --assert=plain
            sys.meta_path[place] = _Tests(finder, config)
            break


class _Tests:
    """Finds what pytest rewrites the asserts of."""

    def __init__(self, hook: AssertionRewritingHook, config: Any) -> None:
        self.hook = hook
        self.config = config

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where a module is, with what loads it."""
        spec = self.hook.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and not loader.is_installed(spec.origin):
            spec.loader = _TestLoader(name, spec.origin, self)
        return spec


class _TestLoader(SourceFileLoader):
    """Loads a file of tests."""

    def __init__(self, name: str, path: str, tests: _Tests) -> None:
        super().__init__(name, path)
        self.tests = tests

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        __tracebackhide__ = True
        source = self.get_data(self.path)
        tree = ast.parse(source, self.path)
        rewrite_asserts(tree, source, self.path, self.tests.config)
        tree = loader.program_tree(tree, self.path, b"numpy" in source, b"numpy.random" in source)
        code = loader.marked(compile(tree, self.path, "exec", dont_inherit=True))
        self.tests.hook._rewritten_names[module.__name__] = Path(self.path)
        exec(code, vars(module))


# --------------------------------------------------------------------------------------- its end


def pytest_sessionfinish(session: Any) -> None:
    """Have a worker process of pytest-xdist tell what it did."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["alight"] = dict(_done())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what a worker process did."""
    _of_workers.update(getattr(node, "workeroutput", {}).get("alight", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line what alight did."""
    done = _done() + _of_workers
    share = f"{done['generated'] / done['eligible']:.0%}" if done["eligible"] else "none"
    terminalreporter.write_line(
        f"alight: {_several(done['launches'], 'launch', 'launches')}, {share} of the work on large "
        f"arrays by generated code, {_several(done['exits'], 'exit')} to NumPy, "
        f"{_several(done['fallbacks'], 'fallback')}"
    )


def _several(count: int, one: str, more: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _done() -> Counter[str]:
    totals = totals_row(LOG.snapshot())
    counts = {name: totals[name] for name in ("launches", "exits", "fallbacks")}
    shares = {name: totals["element_operations"][name] for name in ("generated", "eligible")}
    return Counter({**counts, **shares})
