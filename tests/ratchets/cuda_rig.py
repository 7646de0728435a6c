"""The device under test with its backend, and how its results are compared."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from alight._core import Data, layout_of
from alight._src.codegen.common.source import Grid
from alight.backends import registry
from alight.backends.base import Copy, Launch, Operand
from alight.backends.host import memory_at

DEVICE = "cuda:0"

Array = np.ndarray[Any, Any]


class Rig:
    """The device with its backend, and the way from ndarrays to its memory and back."""

    def __init__(self) -> None:
        self.device = registry.device(DEVICE)
        self.backend: Any = registry.backend_of(self.device)
        self.told: list[Any] = []  # functions that plans call as long as they live

    def put(self, array: Array) -> Operand:
        """Return an array on the device, with the memory between its elements."""
        low, high = np.lib.array_utils.byte_bounds(array)
        size = high - low
        target = self.backend.allocate(self.device, size)
        copy = Copy(memory_at(low, size), target, size, "host", self.device.space)
        self.backend.wait(self.backend.submit(self.device, 0, [copy]))
        return Operand(target, array.__array_interface__["data"][0] - low, layout_of(array))

    def run(self, group: Any, arrays: Sequence[Array], grid: Grid | None = None) -> list[Array]:
        kernel = self.backend.compile(self.device, group, "generated", grid)
        operands = tuple(self.put(a) for a in arrays)
        launch = Launch(kernel, operands, (None,) * len(group.graph.outputs))
        event = self.backend.submit(self.device, 0, [launch])
        self.backend.wait(event)
        results = []
        for number, made in zip(group.graph.outputs, event.buffers, strict=True):
            layout = group.graph.layouts[number]
            order = sorted(range(layout.ndim), key=lambda i: -layout.strides[i])
            dense = np.empty([layout.shape[i] for i in order], layout.dtype)
            array = dense.transpose(np.argsort(order)) if layout.ndim else dense
            copy = Copy(made, Data(layout, array), layout.nbytes, self.device.space, "host")
            self.backend.wait(self.backend.submit(self.device, 0, [copy], [event]))
            results.append(array)
        return results

    def seconds(self, launch: Launch, times: int = 20) -> float:
        """Return the median device seconds of one launch, each between two events. One goes before
        them, so that the device is busy while the host submits what is timed."""
        backend, device = self.backend, self.device
        for _ in range(3):
            backend.wait(backend.submit(device, 0, [launch]))
        taken = []
        for _ in range(times):
            backend.submit(device, 0, [launch])
            start = backend.submit(device, 0, ())
            end = backend.submit(device, 0, [launch])
            backend.wait(end)
            taken.append(backend.seconds(start, end))
        return median(taken)


def differing(actual: Array, expected: Array) -> int:
    """Return how many values differ in a bit; a NaN equals a NaN."""
    if expected.dtype.kind == "c":
        part = expected.real.dtype
        return differing(actual.view(part), expected.view(part))
    if expected.dtype.kind == "f":
        bits = np.dtype(f"u{expected.itemsize}")
        same = actual.view(bits) == expected.view(bits)
        return int((~(same | (np.isnan(actual) & np.isnan(expected)))).sum())
    return int((actual != expected).sum())


def said(error: Exception) -> str:
    """Return what an error said, in short."""
    return f"{type(error).__name__}: {error}"[:300]
