"""alight: a NumPy-compatible runtime that runs each piece of a program where the whole ends soonest."""

from alight import functions as _functions  # noqa: F401
from alight.array import Array, asarray, evaluate
from alight.config import policy

__all__ = ["Array", "asarray", "evaluate", "policy"]
