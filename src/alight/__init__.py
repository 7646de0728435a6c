"""alight: a NumPy-compatible runtime that runs each piece of a program where the whole ends soonest.

`import alight as np` offers every public name of NumPy: arrays are Arrays, functions record. Names are found
when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from alight import surface as _surface
from alight.array import Array, evaluate
from alight.config import policy

__version__ = "0.1.0"
__array_api_version__ = "2025.12"
__array_namespace_info__ = _surface.NamespaceInfo

_MODULES = frozenset(("fft", "linalg", "random"))

# Modules of ours with names that NumPy has, too: as attributes of the package they are NumPy's names.
array = _surface.find("array")
asarray = _surface.find("asarray")
log = _surface.find("log")
record = _surface.find("record")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"alight.{name}")
    if name == "__all__":
        found: Any = __dir__()
    elif name.startswith("_"):
        raise AttributeError(f"module 'alight' has no attribute {name!r}")
    else:
        try:
            found = _surface.find(name)
        except AttributeError:
            raise AttributeError(f"module 'alight' has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    own = ("Array", "evaluate", "policy")
    return sorted({*_surface.names(), *own})
