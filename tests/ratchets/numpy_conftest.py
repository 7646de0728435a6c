"""Stands beside copies of NumPy's test files as ``conftest.py``: their ``np`` becomes a target.

``$RATCHET_TARGET`` names the target's module; without it the tests stay NumPy's own. Only names
are exchanged: what a test asserts, and the functions it asserts with, stay as NumPy wrote them.
"""

from __future__ import annotations

import importlib
import os
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


class Namespace(ModuleType):
    """The target under NumPy's name. A name that the target lacks is an AttributeError."""

    def __init__(self, target: ModuleType) -> None:
        super().__init__("numpy")
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy if name in STAYS_NUMPY else self._target, name)


def rebind(module: ModuleType, namespace: Namespace) -> None:
    """Exchange a test module's globals that are NumPy, or functions out of NumPy's namespaces.

    Classes that were imported by name stay: they stand in ``isinstance`` and as base classes.
    """
    for name, value in list(vars(module).items()):
        if value is numpy:
            setattr(module, name, namespace)
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
    if not (target := os.environ.get("RATCHET_TARGET")):
        return
    namespace = Namespace(importlib.import_module(target))
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        rebind(module, namespace)
