"""Objects of the program that are the only ones to have an array, handed to a package."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

import alight
from alight._src.jit.border import border

PACKAGE: dict[str, Any] = {"__name__": "outside"}
exec(compile("def look(item):\n    pass\n", "/site-packages/outside.py", "exec"), PACKAGE)


def first(holder: Any) -> Any:
    """Return what is in a holder."""
    if isinstance(holder, SimpleNamespace):
        return holder.x
    return holder["x"] if isinstance(holder, dict) else holder[0]


@pytest.mark.parametrize(
    "make",
    [lambda x: [x], lambda x: deque([x]), lambda x: {"x": x}, lambda x: SimpleNamespace(x=x)],
)
def test_an_array_that_nothing_else_holds_comes_back(make: Any) -> None:
    holder = make(alight.arange(5.0))
    border(PACKAGE["look"], holder)
    assert type(first(holder)) is alight.Array
