"""`alight.random`: NumPy's generators, bit for bit, with Arrays as results, and `Counter`.

NumPy's draw at once, in program order; a `Counter` draws lazily, on any device.
"""

from __future__ import annotations

from typing import Any

from alight._core import ArrayBase
from alight._src.api import namespace_lookup as _lookup  # noqa: F401  (arrays and their methods)
from alight._src.api.counter_rng import Counter
from alight._src.base.originals import as_now, np
from alight._src.record.numpy_fallback import run_in_numpy
from alight._src.record.structural_calls import dress
from alight._src.record.tracebacks import public

_real = np.random
_now: Any = as_now(_real)
__all__ = [n for n in dir(_real) if not n.startswith("_") and n not in ("mtrand", "test")]
__all__ += ["Counter"]

# What a generator has beside draws.
_NOT_DRAWS = frozenset(("bit_generator", "spawn", "bytes", "seed", "get_state", "set_state"))
_IN_PLACE = frozenset(("shuffle",))


def _draw(theirs: Any, name: str, own: int) -> Any:
    def draw(*args: Any, **kwargs: Any) -> Any:
        changed = [a for a in args if isinstance(a, ArrayBase)] if name in _IN_PLACE else ()
        result = run_in_numpy(theirs, args, kwargs, changed)
        # One draw is NumPy's scalar, as NumPy's generators give a Python one for some.
        return (
            np.asarray(result)[()]
            if isinstance(result, ArrayBase) and not _shape(result)
            else result
        )

    return public(dress(draw, theirs, name), draw=theirs, operands=own)


def _shape(array: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = array.shape
    return shape


def _draws(source: Any) -> dict[str, Any]:
    """Return every drawing function of a generator class, with Arrays as results."""
    return {
        name: _draw(value, name, 1)
        for name, value in vars(source).items()
        if not name.startswith("_") and name not in _NOT_DRAWS and callable(value)
    }


class Generator(_real.Generator):
    """NumPy's Generator with Arrays as results."""

    __doc__ = _real.Generator.__doc__
    locals().update(_draws(_real.Generator))


class RandomState(_real.RandomState):
    """NumPy's RandomState with Arrays as results."""

    __doc__ = _real.RandomState.__doc__
    locals().update(_draws(_real.RandomState))


def default_rng(seed: Any = None) -> Any:
    """Return a Generator over what NumPy's ``default_rng`` makes of the seed."""
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, ArrayBase):
        seed = np.asarray(seed)
    return Generator(_now.default_rng(seed).bit_generator)


dress(default_rng, _real.default_rng)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    theirs = getattr(_now, name)
    drawn = callable(theirs) and not isinstance(theirs, type) and name not in _NOT_DRAWS
    found = globals()[name] = _draw(theirs, name, 0) if drawn else theirs
    return found


def __dir__() -> list[str]:
    return __all__
