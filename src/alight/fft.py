"""`alight.fft`: NumPy's Fourier transforms on Arrays; NumPy computes them, at the call."""

from __future__ import annotations

from typing import Any

import numpy as np

from alight.exits import run_in_numpy
from alight.library import dress
from alight.surface import found_in

__all__ = [n for n in dir(np.fft) if not n.startswith("_") and n not in ("helper", "test")]


def _frequencies(theirs: Any) -> Any:
    def frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
        """Return the sample frequencies."""
        result = run_in_numpy(theirs, (n, d), {"device": device})
        return result if dtype is None else result.astype(dtype)

    return dress(frequencies, theirs, signature=False)


fftfreq = _frequencies(np.fft.fftfreq)
rfftfreq = _frequencies(np.fft.rfftfreq)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = found_in(np.fft, name)
    return found


def __dir__() -> list[str]:
    return __all__
