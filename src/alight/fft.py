"""`alight.fft`: NumPy's Fourier transforms on Arrays.

Those along one axis, and along several of the lengths they have, are recorded: a device's library
does them where that is predicted to end sooner. The others NumPy computes at the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alight._src.api.namespace_lookup import found_in
from alight._src.base.originals import as_now, np
from alight._src.record.numpy_fallback import run_in_numpy
from alight._src.record.structural_calls import Shape, dress, records
from alight._src.record.tracebacks import public

_fft = as_now(np.fft)
__all__ = [n for n in dir(np.fft) if not n.startswith("_") and n not in ("helper", "test")]


def _frequencies(theirs: Any) -> Any:
    def frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
        """Return the sample frequencies."""
        result = run_in_numpy(theirs, (n, d), {"device": device})
        return result if dtype is None else result.astype(dtype)

    return public(dress(frequencies, theirs, signature=False))


fftfreq = _frequencies(np.fft.fftfreq)
rfftfreq = _frequencies(np.fft.rfftfreq)


def _told(given: Shape, found: Shape) -> Shape | None:
    """Return a result's shape, None where it does not tell NumPy's strides: beside axes of length
    one they depend on those of the operand."""
    return None if min(found) < 1 or (len(given) > 1 and 1 in (*given, *found)) else found


def _of_one(length: Callable[[int], int] | None, real: bool) -> Callable[..., Shape | None]:
    """Return what says the shape of a transform along one axis: ``length`` of how many elements
    come of so many, None where they are as many; ``real``: without a number told, the result of a
    spectrum has twice its elements less two."""

    def shape(given: Shape, n: Any = None, axis: Any = -1, norm: Any = None) -> Shape | None:
        if type(axis) is not int or not -len(given) <= axis < len(given):
            return None
        count = given[axis] if n is None else n
        if n is None and real:
            count = 2 * (given[axis] - 1)
        if type(count) is not int or count < 1:
            return None
        found = list(given)
        found[axis] = count if length is None else length(count)
        return _told(given, tuple(found))

    return shape


def _of_several(real: str, default: tuple[int, ...] | None) -> Callable[..., Shape | None]:
    """Return what says the shape of a transform along several axes, of the lengths they have;
    ``real``: the one along the last of them, where that is between reals and their spectrum."""

    def shape(given: Shape, s: Any = None, axes: Any = default, norm: Any = None) -> Shape | None:
        places = tuple(range(len(given))) if axes is None else axes
        if s is not None or type(places) is not tuple or not places:
            return None
        if not all(type(i) is int and -len(given) <= i < len(given) for i in places):
            return None
        if len({i % len(given) for i in places}) < len(places):
            return None
        found, last = list(given), places[-1]
        if real == "rfft":
            found[last] = given[last] // 2 + 1
        elif real == "irfft":
            found[last] = 2 * (given[last] - 1)
        return _told(given, tuple(found))

    return shape


def _half(n: int) -> int:
    return n // 2 + 1


for _name, _length, _real in (
    ("fft", None, False),
    ("ifft", None, False),
    ("rfft", _half, False),
    ("irfft", None, True),
    ("hfft", None, True),
    ("ihfft", _half, False),
):
    records(
        getattr(np.fft, _name),
        "a n axis norm out",
        name=f"fft.{_name}",
        shape=_of_one(_length, _real),
        lengths=("n",),
    )
for _name, _last in (("fft", ""), ("ifft", ""), ("rfft", "rfft"), ("irfft", "irfft")):
    for _end, _axes in (("2", (-2, -1)), ("n", None)):
        records(
            getattr(np.fft, _name + _end),
            "a s axes norm out",
            name=f"fft.{_name}{_end}",
            shape=_of_several(_last, _axes),
        )


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = found_in(_fft, name)
    return found


def __dir__() -> list[str]:
    return __all__
