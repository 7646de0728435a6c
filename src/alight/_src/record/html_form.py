"""What notebooks show of an Array: its elements as NumPy prints them, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from alight._core import floor
from alight._src.base.formatting import readable_bytes

__all__ = ["html_form"]


def html_form(array: Any) -> Callable[[], str]:
    """Return what makes the HTML of an Array. Raises AttributeError where arrays pass for NumPy's
    own, which have none: what a notebook shows is then what it shows without alight."""
    if floor.scalars:
        raise AttributeError("'numpy.ndarray' object has no attribute '_repr_html_'")
    return partial(_made, array)


def _made(array: Any) -> str:
    from html import escape  # only notebooks ask

    lengths = " × ".join(map(str, array.shape)) or "scalar"
    about = f"{lengths}, {array.dtype}, {readable_bytes(array.nbytes)}, {array.device}"
    return f"<pre>{escape(str(array))}</pre><small>{escape(about)}</small>"
