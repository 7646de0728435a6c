"""NumPy's names, and the environment, as they were when alight was imported.

A program may give one of them something else while it runs: a test that counts calls, a tracer.
What the program calls by that name is then that; what alight computes with stays NumPy's.
"""

from __future__ import annotations

import os
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy

__all__ = ["BEGAN", "ENVIRONMENT", "as_now", "ndarray_method", "np"]

# When that was: what records, and measures, is loaded later.
BEGAN = perf_counter()

# NumPy's libraries read it once, where they are loaded: what a program puts there later, as scripts
# do above their own `import numpy`, tells them nothing.
ENVIRONMENT = dict(os.environ)


def as_now(module: ModuleType, *inner: str) -> ModuleType:
    """Return a module with the names that a module has now, those of the named submodules, too."""
    made = ModuleType(module.__name__)
    vars(made).update(vars(module))
    for path in inner:
        name, _, rest = path.partition(".")
        if name in vars(made):  # NumPy loads some when they are asked for
            vars(made)[name] = as_now(vars(made)[name], *[rest] * bool(rest))
    return made


if TYPE_CHECKING:
    import numpy as np
else:
    np = as_now(numpy, "lib", "lib.array_utils", "lib.stride_tricks", "linalg")


def ndarray_method(name: str, otherwise: Any) -> Any:
    """Return ndarray's method of a name, or what is given where it has none.

    Of methods that it has no more (``ptp``, ``itemset``) NumPy 2.1 and 2.2 keep attributes that
    raise.
    """
    found = getattr(np.ndarray, name, None)
    return found if callable(found) else otherwise
