"""The NumPy that the files of an `alight run` program import.

Every name is NumPy's own object, except those that make or load arrays: they call NumPy and hand
large results to ``adopt``. Arrays below the floor stay the plain ndarrays NumPy made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from types import EllipsisType, FunctionType, ModuleType
from typing import Any

import numpy as np

from alight._core import POLICY, ArrayBase, Creation, Namespace, floor

__all__ = [
    "NAME", "RunNamespace", "numpy_namespace", "random_namespace", "stand_ins", "wrap_creation",
    "wrap_many",
]  # fmt: skip

# The key in sys.modules under which rewritten imports find the namespace; no import statement can
# be written with it, so it shadows nobody's module.
NAME = "alight:numpy"

_MAKING = (
    *("zeros", "empty", "zeros_like", "ones_like", "empty_like", "full_like"),
    *("arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri", "indices"),
    *("fromfunction", "fromfile", "frombuffer", "fromiter", "fromstring", "fromregex"),
    *("loadtxt", "genfromtxt", "copy"),
)
# What makes large arrays of small ones: without these a program whose data grows would stay
# outside.
_GROWING = (
    *("tile", "repeat", "block", "concatenate", "stack", "vstack", "hstack", "dstack"),
    *("column_stack", "pad", "kron", "outer", "resize"),
)
_CONVERTING = (
    *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"),
    *("asarray_chkfinite", "require"),
)
# What a generator has beside draws.
_NOT_DRAWS = frozenset(
    ("bit_generator", "spawn", "bytes", "seed", "get_state", "set_state", "default_rng", "test")
)
_FILLING = frozenset(("random", "standard_normal", "standard_exponential", "standard_gamma"))
_IN_PLACE = frozenset(("shuffle", "permuted"))

_ndarray = np.ndarray


def _settle(result: np.ndarray[Any, Any]) -> Any:
    """Return a new large result as alight's, where nobody else can see its memory."""
    from alight._src.api.adopted import settled  # late: most programs have no large arrays

    return settled(result)


def _dress(wrapper: Any, name: str) -> Any:
    """Return the wrapper under the name by which pickle finds it in this module."""
    wrapper.__module__ = __name__
    wrapper.__qualname__ = name
    return wrapper


def wrap_creation(
    function: Callable[..., Any],
    name: str | None = None,
    convert: Callable[..., Any] | None = None,
    fills: float | EllipsisType | None = None,
    writing: Callable[..., Any] | None = None,
) -> Any:
    """Return NumPy's function with large new results adopted.

    What somebody else holds too (``asarray`` of an ndarray) is returned as it is. ``convert`` is
    called instead where the first argument is an array of ours. ``fills`` and ``writing`` as
    `Creation` has them.
    """
    made = Creation(function, _settle, convert, fills, writing)
    return _dress(made, name or function.__name__)


def _wrap_method(function: Callable[..., Any], writing: Callable[..., Any] | None = None) -> Any:
    """Return the method of a NumPy class with large new results adopted."""
    return Creation(function, _settle, None, None, writing)


def _wrap_conversion(function: Callable[..., Any]) -> Any:
    """Return one of the ``asarray`` family, which leaves an array of ours ours."""
    name = function.__name__
    plain = wrap_creation(function)

    def convert(array: Any, *rest: Any, **kwargs: Any) -> Any:
        from alight._src.api.adopted import converted

        return converted(name, plain, array, *rest, **kwargs)

    return wrap_creation(function, name, convert)


def wrap_many(function: Callable[..., Any]) -> Any:
    """Return NumPy's function, which gives several new arrays, with large ones adopted."""

    @wraps(function)
    def creation(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        policy = POLICY.get()
        least = floor.kept or floor.record_floor if policy is None else policy.record_floor
        return type(results)(
            # below zero the floor is not known yet: from that size on it is asked for
            _settle(r) if type(r) is _ndarray and r.size >= abs(least) else r
            for r in results
        )

    return _dress(creation, function.__name__)


def _writing(draw: Callable[..., Any]) -> Any:
    """Return what a draw is that is given arrays of ours to write into: as ``out=``, or as its
    first (``shuffle``)."""

    def writing(*args: Any, **kwargs: Any) -> Any:
        # NumPy's generators write through C pointers: give them the shared export.
        out = kwargs.get("out")
        if isinstance(out, ArrayBase):
            draw(*_exported(args), **{**kwargs, "out": np.asarray(out)})
            return out
        return draw(*_exported(args), **kwargs)

    return writing


def _exported(args: Iterable[Any]) -> list[Any]:
    return [np.asarray(arg) if isinstance(arg, ArrayBase) else arg for arg in args]


def _draws(source: Any) -> dict[str, Any]:
    """Return every drawing function of a generator class or of the random module, wrapped."""
    in_class = isinstance(source, type)
    found = {}
    for name in dir(source):
        value = getattr(source, name)
        if name.startswith("_") or name in _NOT_DRAWS or not callable(value):
            continue
        if isinstance(value, (type, ModuleType)):
            continue
        writes = name in _IN_PLACE or (name in _FILLING and source is np.random.Generator)
        writing = _writing(_wrap_method(value)) if writes else None
        if in_class:
            found[name] = _wrap_method(value, writing)
        else:
            found[name] = wrap_creation(value, f"random.{name}", writing=writing)
    return found


class RunNamespace(Namespace):
    """A module that is NumPy's as it is now, but for what stands for creation and loading.

    A name that the program, or a test, has given something else is that, here as in NumPy.
    """


def _shown_as(real: Any, ours: Any) -> tuple[Any, Any]:
    """Return the object of NumPy's and what stands for it, for ever by the ids of both."""
    _stand_ins[id(real)] = real, ours
    return real, ours


_stand_ins: dict[int, tuple[Any, Any]] = {}


def stand_ins(draws: bool) -> dict[int, tuple[Any, Any]]:
    """Return NumPy's modules and creation functions, with what stands for them, by their ids; if
    asked to, those of ``numpy.random``, too, which is loaded for it."""
    numpy_namespace()
    if draws:
        random_namespace()
    return _stand_ins


def stand_in(value: Any) -> tuple[Any, Any] | None:
    """Return an object of NumPy's, with what stands for it; None where nothing does."""
    found = _stand_ins.get(id(value))
    if found is None and ((draws := _may_draw(value)) or not _stand_ins):
        found = stand_ins(draws).get(id(value))
    return found


def _may_draw(value: Any) -> bool:
    # To load numpy.random takes 12 ms, to make what stands for what is in it 1 ms: of the first
    # call of a function that does not draw, neither.
    module = sys.modules.get("numpy.random")
    if module is None or NAME + ".random" in sys.modules:
        return False
    return value is module if type(value) is ModuleType else type(value) is not FunctionType


# As NumPy has them, whatever a test has put there when they are first asked for.
_OWN = {
    name: getattr(np, name)
    for name in (*_MAKING, *_GROWING, *_CONVERTING, "ones", "full", "meshgrid", "load", "mgrid")
}


def numpy_namespace() -> RunNamespace:
    """Return the one namespace of this process, made at the first call."""
    found = sys.modules.get(NAME)
    if isinstance(found, RunNamespace):
        return found
    ours = {name: wrap_creation(_OWN[name]) for name in _MAKING + _GROWING}
    ours["ones"] = wrap_creation(_OWN["ones"], fills=1.0)
    ours["full"] = wrap_creation(_OWN["full"], fills=...)
    for name in _CONVERTING:
        ours[name] = _wrap_conversion(_OWN[name])
    ours["frombuffer"] = wrap_creation(_OWN["frombuffer"], convert=_from_buffer)
    ours["meshgrid"] = wrap_many(_OWN["meshgrid"])
    ours["load"] = _dress(_load_any, "load")
    ours["mgrid"] = _MeshGrid()
    shown: dict[str, Any] = {name: _shown_as(_OWN[name], made) for name, made in ours.items()}

    def random(module: Any) -> Any:
        # NumPy loads it when it is asked for.
        if module is not sys.modules.get("numpy.random"):
            return module
        shown["random"] = module, random_namespace()
        return shown["random"][1]

    shown["random"] = random
    made = RunNamespace(np, shown)
    _shown_as(np, made)
    sys.modules[NAME] = made
    return made


def _from_buffer(array: Any, *rest: Any, **kwargs: Any) -> Any:
    from alight._src.record.numpy_fallback import over  # late: there are arrays of ours by now

    return over(array, _OWN["frombuffer"](np.asarray(array), *rest, **kwargs))


class _MeshGrid(type(np.mgrid)):  # type: ignore[misc]
    __getitem__ = _wrap_method(type(np.mgrid).__getitem__)


class NpzFile(np.lib.npyio.NpzFile):
    """An archive whose large arrays are alight's."""

    __module__ = np.lib.npyio.NpzFile.__module__
    __getitem__ = _wrap_method(np.lib.npyio.NpzFile.__getitem__)


_load_array = wrap_creation(np.load)


@wraps(np.load)
def _load_any(*args: Any, **kwargs: Any) -> Any:
    result = _load_array(*args, **kwargs)
    if type(result) is np.lib.npyio.NpzFile:
        result.__class__ = NpzFile
    return result


def random_namespace() -> RunNamespace:
    """Return what `np.random` is: its draws wrapped, and generators whose draws are wrapped."""
    found = sys.modules.get(NAME + ".random")
    if isinstance(found, RunNamespace):
        return found
    real = import_module("numpy.random")
    generator = _generator_class(real.Generator)
    make_generator = real.default_rng

    @wraps(make_generator)
    def default_rng(seed: Any = None) -> Any:
        made = make_generator(seed)
        # Given a generator NumPy returns that very object, and so do we.
        return made if made is seed else generator(made.bit_generator)

    ours = _draws(real)
    ours["Generator"] = generator
    ours["RandomState"] = _generator_class(real.RandomState)
    ours["default_rng"] = _dress(default_rng, "random.default_rng")
    content = vars(real)
    made = RunNamespace(real, {k: _shown_as(content[k], v) for k, v in ours.items()})
    _shown_as(real, made)
    sys.modules[NAME + ".random"] = made
    return made


def _generator_class(real: type) -> Any:
    """Return a subclass of a NumPy generator class whose draws are wrapped.

    In isinstance it stands for NumPy's own: others make those.
    """

    class Seen(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return type.__instancecheck__(real if cls is made else cls, instance)

        def __subclasscheck__(cls, other: type) -> bool:
            return type.__subclasscheck__(real if cls is made else cls, other)

    body = {"__module__": real.__module__, "__doc__": real.__doc__, **_draws(real)}
    made: Any = Seen(real.__name__, (real,), body)
    return made


def __getattr__(name: str) -> Any:
    # Where pickle looks for a wrapped function.
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(numpy_namespace(), name)
