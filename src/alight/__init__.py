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
from alight import linalg as linalg  # NumPy's own functions of arrays dispatch to it
from alight._src.api.namespace_lookup import NamespaceInfo as __array_namespace_info__  # noqa: F401
from alight._src.api.namespace_lookup import find as _find
from alight._src.api.namespace_lookup import names as _names
from alight._src.config.loading import policy as policy
from alight._src.record.array import Array as Array
from alight._src.record.array import evaluate as evaluate
from alight._src.record.ufunc_calls import LATE as _LATE

if _TYPE_CHECKING:
    from alight._src.bench.imported_results import import_results as import_results
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

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

_LATE["numpy.fft"] = lambda: _import("alight.fft")
# What users have beside NumPy's names, and where it is defined.
_OWN = {
    **dict.fromkeys(("device_report", "estimate", "fastest_device", "fusion_report"), "forecast"),
    **dict.fromkeys(("devices", "report", "reset"), "report"),
    "explain": "explained_call",
}


def __getattr__(name: str) -> _Any:
    if name in ("fft", "ops", "random", "_src"):
        return _import(f"alight.{name}")
    if name == "__all__":
        found: _Any = __dir__()
    elif name == "jit":
        found = _import("alight._src.jit.decorator").jit
    elif name == "install":
        found = _import("alight._src.launch.install").install
    elif name == "import_results":
        found = _import("alight._src.bench.imported_results").import_results
    elif name in ("load_ipython_extension", "unload_ipython_extension"):  # as IPython asks for them
        found = getattr(_import("alight._src.launch.notebook"), name.partition("_")[0])
    elif name == "pytest_plugins":  # as pytest asks for them
        found = ["alight._src.launch.pytest_plugin"]
    elif name in _OWN:
        found = getattr(_import(f"alight._src.explain.{_OWN[name]}"), name)
    elif name.startswith("__"):
        raise AttributeError(f"module 'alight' has no attribute {name!r}")
    else:
        try:
            found = _find(name)
        except AttributeError:
            told = f"module 'alight' has no attribute {name!r}"
            if hasattr(Array, name):
                told += f". Fix: arrays have it: write x.{name}"
            raise AttributeError(told) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    others = ("Array", "evaluate", "import_results", "install", "jit", "ops", "policy")
    return sorted({*_names(), *others, *_OWN})


if _environ.get("ALIGHT_REPORT"):
    _import("alight._src.explain.report_at_exit").at_exit(_environ["ALIGHT_REPORT"])

# The import system binds it; to users of the namespace it is no name of NumPy's.
globals().pop("_src", None)
