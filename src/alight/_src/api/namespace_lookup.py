"""Every public name of NumPy as the array namespace has it, found when it is first asked for.

Ufuncs and functions return Arrays; constants, dtypes, exceptions and settings are NumPy's own
objects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from alight._src.api import (
    product_calls,  # noqa: F401  (each makes its functions ours)
    reduction_calls,  # noqa: F401  (each makes its functions ours)
    shaping,  # noqa: F401  (each makes its functions ours)
    sorting_selection,  # noqa: F401  (each makes its functions ours)
)
from alight._src.api.creation import MAKERS
from alight._src.api.elementwise import parameters
from alight._src.api.ufunc_objects import Ufunc, ufunc
from alight._src.base import package
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.record.array import Array
from alight._src.record.numpy_fallback import exit_to_numpy, holds_arrays, run_in_numpy
from alight._src.record.structural_calls import dress
from alight._src.record.tracebacks import public
from alight._src.record.ufunc_calls import FUNCTIONS

__all__ = ["NamespaceInfo", "find", "found_in", "names"]

# They take and give no arrays: NumPy's own objects.
_SETTINGS = frozenset(
    (
        "base_repr", "binary_repr", "broadcast_shapes", "datetime_data", "errstate",
        "format_float_positional",
        "format_float_scientific", "get_include", "get_printoptions", "getbufsize", "geterr",
        "geterrcall", "info",
        "isdtype", "issubdtype", "iterable", "mintypecode", "printoptions", "promote_types",
        "set_printoptions",
        "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime", "typename",
    )
)  # fmt: skip
_INDEXED = frozenset(("c_", "r_", "mgrid", "ogrid"))


def names() -> list[str]:
    """Return the public names of NumPy."""
    return [name for name in dir(np) if not name.startswith("_")]


def find(name: str) -> Any:
    """Return what the array namespace has under a public name of NumPy."""
    if name == "ndarray":
        return Array
    if name == "ufunc":
        return Ufunc
    if name in MAKERS:
        return _as_programs_have_it(MAKERS[name], package.NAME)
    return found_in(np, name)


def found_in(module: ModuleType, name: str) -> Any:
    """Return what the array namespace has for a name of one of NumPy's modules."""
    found = _found(module, name)
    if type(found) is not FunctionType or not found.__module__.startswith(f"{package.NAME}."):
        return found
    return _as_programs_have_it(found, module.__name__.replace("numpy", package.NAME, 1))


@cache  # a function has several names in NumPy
def _as_programs_have_it(function: FunctionType, module: str) -> Any:
    """Return a function of ours under the name and module by which pickle finds it."""
    once, reads = getattr(function, "once", (None, 1))
    view, pace = getattr(function, "view", None), getattr(function, "pace", function.__name__)
    made = public(function, once, view, operands=reads, pace=pace)
    made.__module__, made.__qualname__ = module, function.__name__
    return made


def _found(module: ModuleType, name: str) -> Any:
    theirs = getattr(module, name)
    if isinstance(theirs, np.ufunc):
        return ufunc(theirs)
    if isinstance(theirs, type):
        return vectorize if theirs is np.vectorize else theirs
    if name in _INDEXED and module is np:
        return Indexed(theirs)
    if isinstance(theirs, ModuleType):
        return import_module(theirs.__name__)  # what alight computes with may be a copy
    if not callable(theirs) or name in _SETTINGS:
        return theirs
    if theirs is np.frompyfunc:
        return frompyfunc
    try:
        return FUNCTIONS.get(theirs) or in_numpy(theirs)
    except failures(TypeError):  # cannot be a key: no function of arrays
        return theirs


def in_numpy(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in NumPy and is counted where arrays are involved."""

    def call(*args: Any, **kwargs: Any) -> Any:
        # A function that writes into its first argument knows itself what to do; no such is left
        # here.
        counted = holds_arrays(args) or holds_arrays(kwargs)
        return (exit_to_numpy if counted else run_in_numpy)(theirs, args, kwargs)

    made: Any = dress(call, theirs, getattr(theirs, "__name__", str(theirs)))
    made.once = (theirs, _read_by(theirs))
    return made  # type: ignore[no-any-return]


def _read_by(theirs: Callable[..., Any]) -> int:
    """Return how many of the first arguments a function of NumPy's may be given arrays to read."""
    try:
        names = parameters(theirs)
    except failures(AttributeError):  # not of Python
        return 1
    return names.index("out") if "out" in names else len(names)


class Indexed:
    """One of NumPy's objects that make arrays when they are indexed."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy makes of the key, as Arrays."""
        return run_in_numpy(self.theirs.__getitem__, (key,), {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)

    def __len__(self) -> int:
        return len(self.theirs)


class vectorize(np.vectorize):
    """NumPy's vectorize with Arrays as results."""

    __doc__ = np.vectorize.__doc__

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function of every element, or the decorated function."""
        return run_in_numpy(super().__call__, args, kwargs)


class NamespaceInfo(np.__array_namespace_info__):  # type: ignore[misc]
    """What the array API standard asks of a namespace: dtypes, devices, capabilities."""

    def devices(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the devices an array can be made on; placement is alight's."""
        return tuple(super().devices())


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, **kwargs: Any) -> Ufunc:
    """Return a Ufunc of a Python function."""
    return Ufunc(np.frompyfunc(func, nin, nout, **kwargs))
