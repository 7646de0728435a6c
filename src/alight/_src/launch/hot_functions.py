"""When a function of the program's own is worth to be taken as `jit` takes it, and who takes it."""

from __future__ import annotations

from functools import cache
from typing import Any

from alight._core import take_functions
from alight._src.config.loading import config

__all__ = ["takes_functions"]

# What NumPy is predicted to have taken for all code that may be taken before any of it is: the
# first of a process has `jit` and all that plans loaded, 0.1 to 0.2 s of processor time (EPYC at
# rest), and a program that ends right then is to lose no more than a sixth of its time. And for
# each, as a proof, a plan and a race are to pay, some ms.
_WHOLE_SECONDS, _EACH_SECONDS = 1.0, 0.1


@cache
def takes_functions() -> bool:
    """Tell whether functions of the program's own may be taken, and have the core ask who does."""
    which = config().own_functions
    if which == "off":
        return False
    hot = which == "hot"
    take_functions(_take, _EACH_SECONDS if hot else 0.0, _WHOLE_SECONDS if hot else 0.0)
    return True


def _take(*call: Any) -> None:
    from alight._src.jit.own_functions import take  # programs without such functions do without

    take(*call)
