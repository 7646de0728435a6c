"""`@alight.jit`: a plain function written with `import numpy as np`, run through alight.

NumPy arrays go in and come out. What the function assigns into its arguments, the caller sees, and
all work is done when it returns.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType, MethodType
from typing import Any, NamedTuple, Never, TypeVar, cast, overload
from weakref import WeakSet

from alight._core.guard import by_position
from alight._src.adapt.first_plan import wait_no_longer
from alight._src.base.cache_registry import Cache, register
from alight._src.config.loading import current_policy
from alight._src.config.schema import truth
from alight._src.jit.call_phases import SETTLED
from alight._src.jit.call_signature import describe, outline
from alight._src.jit.dispatch import Dispatching
from alight._src.jit.function_states import States
from alight._src.jit.pandas_engine import PandasEngine
from alight._src.jit.scope import as_jitted
from alight._src.jit.specialization import Specialization
from alight._src.log.call_site import owned

__all__ = ["Jitted", "as_jitted", "jit"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _of_wrapped(name: str) -> Any:
    """Return a property that is the wrapped function's attribute of this name."""

    def read(self: Jitted) -> Any:
        return getattr(self.__wrapped__, name)

    def write(self: Jitted, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    return property(read, write)


class Jitted(Dispatching):
    """A function run through alight. Called like the function; `__wrapped__` is the function
    itself."""

    __wrapped__: Any  # a plain Python function
    __name__: str
    __qualname__: str
    declared_pure: bool

    def __init__(self, function: FunctionType, pure: bool) -> None:
        super().__init__()
        update_wrapper(self, function)
        self.declared_pure = pure
        self._states = States()
        _all.add(self)
        owned(function)
        wait_no_longer()  # what a call takes is measured, planned and not

    # What a program may rebind to change what a call does.
    __code__ = _of_wrapped("__code__")
    __defaults__ = _of_wrapped("__defaults__")
    __kwdefaults__ = _of_wrapped("__kwdefaults__")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        # By name, as functions are; by value where the pickler does that with functions, too.
        pickler = sys._getframe(1).f_globals.get("__name__", "")
        if "cloudpickle" not in pickler or self._is_importable():
            return self.__qualname__
        return _jitted, (self.__wrapped__, self.declared_pure)

    def _is_importable(self) -> bool:
        """Tell whether another process finds this very function by its name."""
        found: Any = None if self.__module__ == "__main__" else sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is self

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: Any) -> Jitted:
        return self

    def __repr__(self) -> str:
        return f"<alight.jit of {self.__wrapped__!r}>"

    def forget(self) -> None:
        """Drop all that was learned: the plans it rests on are gone."""
        self.clear()
        self._states.clear()

    @property
    def settled(self) -> bool:
        """Tell whether every kind of call met so far goes the way it will go from now on."""
        return all([kind.phase in SETTLED for kind in tuple(self._specializations.values())])

    @property
    def _specializations(self) -> OrderedDict[Any, Specialization]:
        return self._learned().specializations

    def standing(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Standing:
        """Return which way calls with such arguments take as things stand, and why."""
        # As calls are: by position, where that can be.
        positional = by_position(self.__wrapped__, args, kwargs) if kwargs else None
        if positional is not None:
            args, kwargs = positional, {}
        described = describe(args, kwargs)
        here = current_policy()
        if described is not None:
            kind = self._learned().specialization(described, here, self.remove)
        else:
            found = self._learned().specializations.get((outline(args, kwargs), here.stamp))
            if found is None:
                why = "its arguments have no form that a plan could be kept for"
                return Standing(f"jit {self.__qualname__}", self._place, "alight", why)
            kind = found
        way, why = kind.taken, kind.why
        return Standing(f"jit {self.__qualname__}", self._place, way, why)


class Standing(NamedTuple):
    """Which way a kind of call takes ("numpy", "alight", "undecided"), and why."""

    name: str
    site: tuple[Any, int]
    way: str
    reason: str


_all: WeakSet[Jitted] = WeakSet()


def _forget_all() -> None:
    for jitted in tuple(_all):
        jitted.forget()


register(Cache.JITTED, _forget_all)


@overload
def jit(function: _Function, /) -> _Function: ...
@overload
def jit(*, pure: bool = False) -> Callable[[_Function], _Function]: ...
def jit(function: Any = None, /, *, pure: bool = False, **unknown: Never) -> Any:
    """Return the function run through alight.

    It takes the same arguments and gives the same results, NumPy arrays in and out; what its body
    assigns into its arguments, the caller sees. Its work is done when it returns. Calls that NumPy
    does as fast are NumPy's from then on.

    Parameters
    ----------
    function : function
        A Python function, written with ``import numpy as np``. Generators and coroutines are
        refused: their bodies run after the call.
    pure : bool, default False
        A promise that results depend on the arguments alone and that nothing but arguments is
        changed: then what the body computed is run again without the body. Without the promise
        that is done where the body is seen to do nothing else.

    Returns
    -------
    callable
        The jitted function; ``__wrapped__`` is the one that was given. Without a function, what
        decorates one: ``@alight.jit(pure=True)``.

    Raises
    ------
    TypeError
        Where it is given no function, or an argument that it does not have.

    Examples
    --------
    >>> import numpy as np
    >>> @jit
    ... def relief(z):
    ...     return np.hypot(z[1:, :-1] - z[:-1, :-1], z[:-1, 1:] - z[:-1, :-1])
    >>> relief(np.arange(9.0).reshape(3, 3) ** 2).shape
    (2, 2)
    """
    for name in unknown:
        raise TypeError(
            f"alight.jit: {name!r} is not an argument of it. "
            "Fix: leave it out; pure= is all that it takes."
        )
    pure = truth(pure, "argument pure")
    if function is None:
        return _for_pandas(lambda function: _jitted(function, pure))
    return _jitted(function, pure)


def _for_pandas(decorator: Any) -> Any:
    """Return a decorator that ``frame.apply(f, engine=…)`` takes."""
    decorator.__pandas_udf__ = PandasEngine
    return decorator


_for_pandas(jit)


def _jitted(function: Any, pure: bool) -> Any:
    if isinstance(function, Jitted):
        return function if function.declared_pure == pure else Jitted(function.__wrapped__, pure)
    if not isinstance(function, FunctionType):
        kind = type(function).__name__
        raise TypeError(
            f"alight.jit takes a Python function, not {function!r} of type {kind}. Fix: "
            "decorate the function itself, below staticmethod, classmethod or property."
        )
    if (
        inspect.isgeneratorfunction(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise TypeError(
            f"alight.jit on {function.__qualname__}: the body of a generator or coroutine runs "
            "after the call has returned. Fix: decorate the functions it calls."
        )
    return cast(Any, Jitted(function, pure))
