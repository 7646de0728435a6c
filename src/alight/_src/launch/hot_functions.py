"""When a function of the program's own is worth to be taken as `jit` takes it, and who takes it."""

from __future__ import annotations

from functools import cache
from typing import Any

from alight._core import take_functions
from alight._src.config.loading import config

__all__ = ["takes_functions"]

# What it takes to load `jit` and all that plans: 0.1 s of processor time (EPYC at rest). A function
# whose calls have taken NumPy as long, by prediction, may well take it as long again.
_LOADING_SECONDS = 0.1


@cache
def takes_functions() -> bool:
    """Tell whether functions of the program's own may be taken, and have the core ask who does."""
    which = config().own_functions
    if which == "off":
        return False
    take_functions(_take, _LOADING_SECONDS if which == "hot" else 0.0)
    return True


def _take(*call: Any) -> None:
    from alight._src.jit.own_functions import take  # programs without such functions do without

    take(*call)
