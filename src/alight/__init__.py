"""alight: a NumPy-compatible runtime that runs each piece of a program where the whole ends
soonest.

`import alight as np` offers every public name of NumPy: arrays are Arrays, functions record. Names
are found when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module as _import
from os import environ as _environ
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

# First: from here on an interrupt of the command ends it in one line.
from alight._src.base.at_exit import interrupted as _interrupted  # noqa: F401

# isort: split
# Here, not five imports deep: where a piece of Python's stack ends a call takes two system calls.
import numpy as _numpy

from alight import _core  # noqa: F401  (NumPy's names as they are now; what records comes later)

if _TYPE_CHECKING:
    from alight import linalg as linalg
    from alight._src.api.namespace_lookup import NamespaceInfo as __array_namespace_info__  # noqa: F401
    from alight._src.bench.imported_results import import_results as import_results
    from alight._src.config.loading import policy as policy
    from alight._src.explain.explained_call import explain as explain
    from alight._src.explain.forecast import device_report as device_report
    from alight._src.explain.forecast import estimate as estimate
    from alight._src.explain.forecast import fastest_device as fastest_device
    from alight._src.explain.forecast import fusion_report as fusion_report
    from alight._src.explain.report import devices as devices
    from alight._src.explain.report import report as report
    from alight._src.explain.report import reset as reset
    from alight._src.jit.decorator import jit as jit
    from alight._src.launch.install import install as install
    from alight._src.record.array import Array as Array
    from alight._src.record.array import evaluate as evaluate

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

# What users have beside NumPy's names, and where it is defined below `_src`.
_OWN = {
    **dict.fromkeys(
        ("device_report", "estimate", "fastest_device", "fusion_report"), "explain.forecast"
    ),
    **dict.fromkeys(("devices", "report", "reset"), "explain.report"),
    **dict.fromkeys(("Array", "evaluate"), "record.array"),
    "explain": "explain.explained_call",
    "import_results": "bench.imported_results",
    "install": "launch.install",
    "jit": "jit.decorator",
    "policy": "config.loading",
}
# Packages and modules that are users' own, too.
_INNER = frozenset(
    ("_core", "_src", "backends", "device", "errors", "fft", "linalg", "ops", "random")
)
# Of names above, what is had without what records; all else is loaded with NumPy's names.
_WITHOUT_ARRAYS = frozenset(("install", "policy"))
_NAMES = "alight._src.api.namespace_lookup"


def __getattr__(name: str) -> _Any:
    if name in _INNER:
        return _import(f"alight.{name}")
    if name == "__all__":
        found: _Any = __dir__()
    elif name == "__array_namespace_info__":
        found = _import(_NAMES).NamespaceInfo
    elif name in ("load_ipython_extension", "unload_ipython_extension"):  # as IPython asks for them
        found = getattr(_import("alight._src.launch.notebook"), name.partition("_")[0])
    elif name == "pytest_plugins":  # as pytest asks for them
        found = ["alight._src.launch.pytest_plugin"]
    elif name in _OWN:
        if name not in _WITHOUT_ARRAYS:
            _import(_NAMES)
        found = getattr(_import(f"alight._src.{_OWN[name]}"), name)
    elif name.startswith("__"):
        raise AttributeError(f"module 'alight' has no attribute {name!r}")
    else:
        try:
            found = _import(_NAMES).find(name)
        except AttributeError:
            told = f"module 'alight' has no attribute {name!r}"
            if hasattr(_import("alight._src.record.array").Array, name):
                told += f". Fix: arrays have it: write x.{name}"
            raise AttributeError(told) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*_import(_NAMES).names(), "ops", *_OWN})


if _environ.get("ALIGHT_REPORT"):
    _import("alight._src.explain.report_at_exit").at_exit(_environ["ALIGHT_REPORT"])

# The import system binds it; to users of the namespace it is no name of NumPy's.
globals().pop("_src", None)
del _numpy
