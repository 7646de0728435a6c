"""Jitted functions that assign globals: NumPy's creation functions are alight's there, too."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.log.decisions import LOG

pytestmark = pytest.mark.usefixtures("looked_at_once")

TEXT = """
import numpy as np

kept = None
count = 0
undefined = None
del undefined


def plain(x):
    global kept
    kept = x
    y = np.asarray(x)
    return y is x, np.ones(x.shape) + y


def in_place(x):
    global count, kept
    count += 1
    kept = np.zeros(x.shape)
    kept += x
    kept[1] = count
    return kept * 2


def several(x):
    global kept, count
    kept, (count, *rest) = x + 1, (3, 4)
    for count in range(5):
        pass
    with open(__file__) as kept:
        rest.append(kept.readline())
    kept = [kept.name for kept in [open(__file__)]][0] == __file__
    return rest, count, kept


def inside(x):
    def store(value):
        global kept
        kept = value
        return np.ones(3) + value

    return store(x[:3]), kept


def deletes(x):
    global kept
    kept = x
    del kept
    try:
        del kept
    except NameError as error:
        told = str(error)
    try:
        kept += 1
    except NameError as error:
        told += str(error)
    kept = None
    return told


def of_builtins(x):
    global len
    try:
        len += 1
    except TypeError as error:
        return str(error)


def by_import(x):
    global kept
    import math as kept
    return kept.pi + x


def by_definition(x):
    global kept
    def kept():
        return x
    return kept()


def by_walrus(x):
    global kept
    return [(kept := part) for part in (1, 2)], kept


def by_handler(x):
    global kept
    try:
        raise KeyError(1)
    except KeyError as kept:
        told = repr(kept)
    kept = 1
    return told, kept


def by_match(x):
    global kept
    match (1, 2):
        case (1, kept):
            return kept


class Counter:
    def count(self, x):
        global count
        count = count + 1
        self.last = np.full(x.shape, count) * x
        return self.last


def by_method(x):
    return Counter().count(x)
"""
NAMES = [
    *("plain", "in_place", "several", "inside", "deletes", "of_builtins", "by_import"),
    *("by_definition", "by_walrus", "by_handler", "by_match", "by_method"),
]
_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    name = f"stores_{next(_numbers)}"
    path = tmp_path / f"{name}.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules[name]


def state(module: ModuleType) -> str:
    kept = module.kept
    kept = kept.__name__ if callable(kept) or isinstance(kept, ModuleType) else kept
    return f"{type(kept).__name__} {kept!r} {module.count!r}"


@pytest.mark.parametrize("name", NAMES)
def test_globals_are_assigned_as_in_plain_python(module: ModuleType, name: str) -> None:
    plain = getattr(module, name)
    x = np.arange(6.0)
    wanted = []
    for _ in range(3):
        wanted.append((repr(plain(x)), state(module)))
    module.kept, module.count = None, 0
    jitted = alight.jit(plain)
    with alight.policy(floor=0, force="cpu:generated"):
        found = [(repr(jitted(x)), state(module)) for _ in range(3)]
    assert found == wanted
    assert "__alight_globals__" not in vars(module)


@pytest.mark.parametrize("name", ["plain", "in_place", "inside", "by_method"])
def test_what_is_created_beside_a_global_store_is_computed_by_kernels(
    module: ModuleType, name: str
) -> None:
    alight.reset()
    with alight.policy(floor=0, force="cpu:generated"):
        alight.jit(getattr(module, name))(np.arange(600.0))
    launched = {row.decision.implementation for row in LOG.snapshot().records}
    assert "generated" in launched


def test_other_threads_see_a_global_when_it_is_stored(module: ModuleType) -> None:
    heard = []

    def listen() -> None:
        heard.append(module.count)

    def body(x: Any) -> Any:
        module.several(x)  # its last loop leaves 4
        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        return x + 1

    alight.jit(body)(np.arange(6.0))
    assert heard == [4]
