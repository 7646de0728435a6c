"""Stands beside copies of NumPy's test files as ``conftest.py``: their ``np`` becomes a target.

``$RATCHET_TARGET`` names the target's module; without it the tests stay NumPy's own. Only names
are exchanged: what a test asserts, and the functions it asserts with, stay as NumPy wrote them.

NumPy's ``assert_equal`` and others choose by ``isinstance(x, ndarray)`` how to compare, and ask two
arrays of any other type for the truth of ``a == b``, which is ambiguous for right values, too. So
an assertion that fails is asked again with the target's arrays as ndarrays (a 0-d one as a scalar):
values, shapes and dtypes are judged the same. A test that needed this is marked in the record.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import hypothesis
import numpy
import pytest

# What describes or checks arrays, without being a way to make or change one.
STAYS_NUMPY = frozenset(
    (
        *("testing", "_core", "core", "lib", "exceptions", "dtypes", "ctypeslib"),
        *("ma", "matrixlib", "polynomial", "char", "strings", "rec"),
        *("dtype", "generic", "ndarray", "errstate", "seterr", "geterr"),
        *("__version__", "__file__"),
    )
)


# Those that compare values. assert_ and assert_raises take no arrays.
COMPARISONS = frozenset(
    (
        *("assert_equal", "assert_almost_equal", "assert_approx_equal", "assert_allclose"),
        *("assert_array_equal", "assert_array_almost_equal", "assert_array_less"),
        *("assert_array_almost_equal_nulp", "assert_array_max_ulp", "assert_string_equal"),
    )
)


class Namespace(ModuleType):
    """The target under NumPy's name. A name that the target lacks is an AttributeError."""

    def __init__(self, target: ModuleType) -> None:
        super().__init__("numpy")
        self._target = target
        self._package = target.__name__.partition(".")[0]
        self.asked_again = 0
        self.testing = ModuleType("numpy.testing")
        vars(self.testing).update(vars(numpy.testing))
        for name in COMPARISONS:
            setattr(self.testing, name, self.comparison(getattr(numpy.testing, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy if name in STAYS_NUMPY else self._target, name)

    def comparison(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return an assertion of NumPy's that, before it fails, is asked with ndarrays."""

        @functools.wraps(function)
        def compare(*arguments: Any, **keywords: Any) -> None:
            __tracebackhide__ = True
            try:
                return function(*arguments, **keywords)
            except Exception:
                host = self.on_host((arguments, keywords))
                if host is None:
                    raise
            function(*host[0], **host[1])
            self.asked_again += 1

        return compare

    def on_host(self, value: Any) -> Any:
        """Return nested lists with the target's arrays as ndarrays; None where there are none."""
        if type(value).__module__.partition(".")[0] == self._package != "numpy":
            return numpy.asarray(value)[()] if hasattr(value, "__array__") else None
        if not isinstance(value, (list, tuple, dict)):
            return None
        if isinstance(value, dict):
            changed = self.on_host(list(value.values()))
            return None if changed is None else dict(zip(value, changed, strict=True))
        changed = [self.on_host(part) for part in value]
        if all(new is None for new in changed):
            return None
        parts = [old if new is None else new for old, new in zip(value, changed, strict=True)]
        return tuple(parts) if isinstance(value, tuple) else parts


NAMESPACE: Namespace | None = None


def rebind(module: ModuleType, namespace: Namespace) -> None:
    """Exchange a test module's globals that are NumPy, or functions out of NumPy's namespaces.

    Classes that were imported by name stay: they stand in ``isinstance`` and as base classes.
    """
    for name, value in list(vars(module).items()):
        if value is numpy:
            setattr(module, name, namespace)
        elif name in COMPARISONS:
            setattr(module, name, getattr(namespace.testing, name))
        elif name in STAYS_NUMPY or isinstance(value, type) or not callable(value):
            continue
        elif value is getattr(numpy, name, None):
            setattr(module, name, getattr(namespace, name, value))


def pytest_configure(config: pytest.Config) -> None:
    """Declare NumPy's markers, and draw the same examples every time."""
    for marker in ("slow", "thread_unsafe", "leaks_references", "parallel_threads"):
        config.addinivalue_line("markers", f"{marker}: NumPy's own")
    hypothesis.settings.register_profile(
        "ratchet",
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("ratchet")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rebind each collected module once, when it is complete."""
    global NAMESPACE
    if not (target := os.environ.get("RATCHET_TARGET")):
        return
    NAMESPACE = Namespace(importlib.import_module(target))
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        rebind(module, NAMESPACE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Mark a test in which assertions had to be asked again."""
    before = NAMESPACE.asked_again if NAMESPACE is not None else 0
    try:
        return (yield)
    finally:
        if NAMESPACE is not None and NAMESPACE.asked_again > before:
            item.user_properties.append(("asked_again", NAMESPACE.asked_again - before))
