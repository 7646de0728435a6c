"""alight: a NumPy-compatible runtime that runs each piece of a program where the whole ends
soonest.

`import alight as np` offers every public name of NumPy: arrays are Arrays, functions record. Names
are found
when they are first asked for.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from alight import ending as ending  # first: it has the command say that it was interrupted
from alight import linalg as linalg  # NumPy's own functions of arrays dispatch to it
from alight import surface as _surface
from alight.array import Array as Array
from alight.array import evaluate as evaluate
from alight.calls import LATE as _LATE
from alight.config import policy as policy

if TYPE_CHECKING:
    from alight.forecast import device_report as device_report
    from alight.forecast import estimate as estimate
    from alight.forecast import fastest_device as fastest_device
    from alight.forecast import fusion_report as fusion_report
    from alight.jit import jit as jit
    from alight.report import devices as devices
    from alight.report import explain as explain
    from alight.report import report as report
    from alight.report import reset as reset

__version__ = "0.1.0"
__array_api_version__ = "2025.12"
__array_namespace_info__ = _surface.NamespaceInfo

_MODULES = frozenset(("fft", "random"))
_LATE["numpy.fft"] = lambda: import_module("alight.fft")
_REPORTING = frozenset(("devices", "explain", "reset"))
_FORECASTS = frozenset(("device_report", "estimate", "fastest_device", "fusion_report"))

# Modules of ours with names that NumPy has, too: as attributes of the package they are NumPy's
# names.
array = _surface.find("array")
asarray = _surface.find("asarray")
log = _surface.find("log")
record = _surface.find("record")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"alight.{name}")
    if name == "__all__":
        found: Any = __dir__()
    elif name in _REPORTING:
        found = getattr(import_module("alight.report"), name)
    elif name in _FORECASTS:
        found = getattr(import_module("alight.forecast"), name)
    elif name.startswith("__"):
        raise AttributeError(f"module 'alight' has no attribute {name!r}")
    else:
        try:
            found = _surface.find(name)
        except AttributeError:
            told = f"module 'alight' has no attribute {name!r}"
            if hasattr(Array, name):
                told += f". Fix: arrays have it: write x.{name}"
            raise AttributeError(told) from None
    globals()[name] = found
    return found


class _Package(ModuleType):
    """The package, whose functions win over submodules of the same name, whichever is imported
    first."""

    @property
    def jit(self) -> Any:
        return import_module("alight.jit").jit

    @property
    def report(self) -> Any:
        return import_module("alight.report").report

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("jit", "report"):  # the import system sets submodules as attributes
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    own = ("Array", "evaluate", "jit", "policy", "report", *_REPORTING, *_FORECASTS)
    return sorted({*_surface.names(), *own})


if os.environ.get("ALIGHT_REPORT"):
    import_module("alight.report").at_exit(os.environ["ALIGHT_REPORT"])
