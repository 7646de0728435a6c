"""Which names code looks up among its globals, and which are attributes: an attribute that is
called as a global is, or as `eval`, costs nothing, and what modules keep is found by any way to
it."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.config.loading import policy
from alight._src.jit.bytecode import names_of
from alight._src.log.decisions import LOG

# Named below as an attribute, too. `exec` gives the name to the tests' module alone.
kept: Any = None
MODULE = types.ModuleType("names_in_code_kept")
PACKAGE = types.ModuleType("names_in_code_package")
PACKAGE.inner = MODULE  # type: ignore[attr-defined]
sys.modules[MODULE.__name__] = MODULE


class Box:
    """Has attributes and methods of every name."""

    def __init__(self) -> None:
        self.kept = 3.0

    def eval(self, x: Any) -> Any:
        """Return what is asked for."""
        return x * 2.0

    exec = vars = locals = globals = eval


class Derived(Box):
    def eval(self, x: Any) -> Any:
        """Return what the base does: by a load of the attribute from `super`."""
        return super().eval(x) + 1.0


BOX, DERIVED = Box(), Derived()


def attribute(x: Any) -> Any:
    """Take an attribute that is called as the global is that holds the argument."""
    return np.sqrt(x * BOX.kept + 1.0)


def attribute_inside(x: Any) -> Any:
    """Take it in code inside the code."""
    return np.sqrt(x + sum([part.kept for part in (BOX, BOX)]))


def attribute_stored(x: Any) -> Any:
    """Store and delete it."""
    box = Box()
    box.kept = 4.0
    other = np.sqrt(x * box.kept + 1.0)
    del box.kept
    return other


def imported_from(x: Any) -> Any:
    """Import a name that is called as the global is."""
    from names_in_code_kept import kept

    return np.sqrt(x * kept + 1.0)


def method_eval(x: Any) -> Any:
    """Call a method that is called `eval`."""
    return np.sqrt(BOX.eval(x) + 1.0)


def method_of_super(x: Any) -> Any:
    """Call one that calls its base's."""
    return np.sqrt(DERIVED.eval(x) + 1.0)


def other_methods(x: Any) -> Any:
    """Call methods that are called as the other builtins are by which code finds all names."""
    return np.sqrt(BOX.vars(x) + BOX.locals(x) + BOX.globals(x) + BOX.exec(x))


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    global kept
    vars(MODULE)["kept"] = 2.0
    yield
    kept = None
    vars(MODULE).clear()


def generated(function: Callable[..., Any], x: Any) -> int:
    """Return how many element-operations of generated kernels a call is logged with."""
    before = dict(LOG.snapshot().elements)
    function(x)
    after = LOG.snapshot().elements
    return sum(n - before.get(key, 0) for key, n in after.items() if key[0] == "generated")


@pytest.mark.parametrize(
    "body",
    [
        *(attribute, attribute_inside, attribute_stored, imported_from),
        *(method_eval, method_of_super, other_methods),
    ],
)
def test_an_attribute_is_no_global(body: Callable[..., Any]) -> None:
    global kept
    x = kept = np.arange(3000.0)
    expected = body(x)
    with policy(floor=0, force="cpu:generated"):
        jitted = alight.jit(body)
        assert np.array_equal(jitted(x), expected)
        assert generated(jitted, x) > 0


def own_function(x: Any) -> Any:
    return helped_creation(x)


def helped_creation(x: Any) -> Any:
    """Create an array in a function that has a method called `eval`: ours is made there."""
    return BOX.eval(np.ones(2000) * 3.0) + x[0]


def test_a_function_that_calls_a_method_eval_creates_arrays_of_ours() -> None:
    x = np.arange(3000.0)
    with policy(floor=0, force="cpu:generated"):
        jitted = alight.jit(own_function)
        assert np.array_equal(jitted(x), own_function(x))
        assert generated(jitted, x) > 0


# ---------------------------------------------------------------------- ways to what a module keeps
def by_attribute(x: Any) -> Any:
    x += 10
    return MODULE.kept[0]  # type: ignore[attr-defined]


def by_a_module_inside(x: Any) -> Any:
    x += 10
    return PACKAGE.inner.kept[0]  # type: ignore[attr-defined]


def by_an_import(x: Any) -> Any:
    import names_in_code_kept

    x += 10
    return names_in_code_kept.kept[0]


def by_an_import_under_a_name(x: Any) -> Any:
    import names_in_code_kept as short

    x += 10
    return short.kept[0]


def by_a_name_imported(x: Any) -> Any:
    from names_in_code_kept import kept as found

    x += 10
    return found[0]


def by_getattr(x: Any) -> Any:
    x += 10
    return getattr(MODULE, "ke" + "pt")[0]


def by_its_dict(x: Any) -> Any:
    x += 10
    return MODULE.__dict__["ke" + "pt"][0]


def of_a_module(module: Any) -> Any:
    return module.kept[0]


def by_a_function_given_it(x: Any) -> Any:
    x += 10
    return of_a_module(MODULE)


def by_one_given_what_is_inside(x: Any) -> Any:
    x += 10
    return of_a_module(PACKAGE.inner)  # type: ignore[attr-defined]


def by_eval(x: Any) -> Any:
    x += 10
    return eval("MODULE.kept")[0]


def by_eval_of_builtins(x: Any) -> Any:
    x += 10
    return builtins.eval("MODULE.kept")[0]


def by_eval_of_builtins_imported(x: Any) -> Any:
    import builtins as theirs

    x += 10
    return theirs.eval("MODULE.kept")[0]


def by_globals(x: Any) -> Any:
    x += 10
    return globals()["ke" + "pt"][0]


def by_builtins(x: Any) -> Any:
    x += 10
    found: Any = __builtins__
    asked = found["globals"] if isinstance(found, dict) else found.globals
    return asked()["ke" + "pt"][0]


@pytest.mark.parametrize(
    "body",
    [
        *(by_attribute, by_a_module_inside, by_an_import, by_an_import_under_a_name),
        *(by_a_name_imported, by_getattr, by_its_dict, by_a_function_given_it),
        *(by_one_given_what_is_inside, by_eval, by_eval_of_builtins),
        *(by_eval_of_builtins_imported, by_globals, by_builtins),
    ],
)
def test_an_argument_that_a_module_keeps_is_seen_there(mode: str, body: Callable[..., Any]) -> None:
    global kept
    jitted = alight.jit(body)
    for _ in range(3):
        x = np.arange(600.0)
        # Under one name alone: the other must not tell of it.
        if body in (by_globals, by_builtins):
            kept = x
        else:
            vars(MODULE)["kept"] = x
        assert jitted(x) == 10.0


# ---------------------------------------------------------------------------------- names of code
def test_names_are_told_apart_by_what_is_done_with_them() -> None:
    def code(box: Any) -> Any:
        global kept
        import os.path as there
        from sys import argv

        def inside() -> Any:
            return first.second.third(fourth), there, argv  # type: ignore[name-defined]  # noqa: F821

        box.stored = inside
        del box.gone
        kept = box.taken
        MODULE.changed = 1  # type: ignore[attr-defined]

        class Within:
            field = named  # type: ignore[name-defined]  # noqa: F821

        return Within

    found = names_of(code.__code__)
    assert {"first", "fourth", "kept", "MODULE", "named"} <= found.outside
    assert found.outside.isdisjoint(("second", "third", "stored", "gone", "taken", "changed"))
    assert {"second", "third", "stored", "gone", "taken", "changed", "argv"} <= found.attributes
    assert found.attributes.isdisjoint(("first", "fourth", "kept", "MODULE"))
    assert {"fourth", "third", "named"} <= found.values
    assert found.values.isdisjoint(("first", "second", "MODULE"))
    assert found.imported == {"os.path", "sys"}
