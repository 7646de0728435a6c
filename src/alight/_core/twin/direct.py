"""Launches straight on recorded values: the native core's way, which the twin leaves to others."""

from __future__ import annotations

from typing import Any

from .layout import Layout

# Of a kernel, that the native core's calls and launches take (native/kernel.h).
OPERANDS = 64


class Direct:
    """A generated kernel of the host that runs straight on recorded values: natively. Here
    everything takes more than this knows, and goes the way that any launch can go."""

    def __init__(
        self,
        entry: tuple[Any, ...],
        keep: Any,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        nodes: tuple[int, ...],
        layouts: tuple[Layout, ...],
        elements: int,
        over: tuple[int, int] = (-1, -1),
    ) -> None:
        self.in_place = False  # whether the last run wrote over an operand

    def run(self, values: list[Any]) -> float | None:
        """Run the kernel on the values of a list, bind its results, and return the seconds; None,
        with nothing done, where that takes more than this knows. Where the result of ``over`` took
        the memory of its operand and the kernel has something to warn of, they are negative."""
        return None

    def listen(self, state: Any, watched: bool) -> None:
        """Serve values recorded under this error state, and leave to others what it has to warn of
        where ``watched``."""
