"""What calls of jitted functions need beside their arguments, counted in the bytes of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import keep_bytes, kept_bytes, living_bytes
from alight.backends.host import HostBackend

N = 1 << 20
BYTES = 8 * N


@pytest.fixture(autouse=True)
def room() -> Iterator[None]:
    keep_bytes(0)
    keep_bytes(1 << 28)
    yield
    keep_bytes(0)
    HostBackend()  # as it was


def needed(call: Callable[[], Any]) -> int:
    """Return the most bytes that results have while a call runs, beyond those they had before."""
    before, _ = living_bytes()
    call()
    return living_bytes()[1] - before


def test_numpys_calls_find_no_more_kept_than_results_need() -> None:
    def body(x: Any, y: Any) -> Any:
        return np.sqrt(x * x + y * y) - np.exp(x) * np.cos(y)

    jitted, x, y = alight.jit(body), np.linspace(0.0, 1.0, N), np.linspace(1.0, 2.0, N)

    jitted(x, y)  # on Arrays: its results come back, and what is between them
    for _ in range(3):
        jitted(x, y)
        assert kept_bytes() <= BYTES
