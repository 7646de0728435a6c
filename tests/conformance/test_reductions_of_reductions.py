"""Reductions of what was reduced, along axes of one element among others: random programs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import alight

_OPS = ("add", "root", "sum", "sum", "max", "max", "min", "mean", "prod", "cumsum")
Program = list[tuple[str, int, int, int]]


def _drawn(seed: int) -> tuple[tuple[int, ...], Program]:
    draw = random.Random(seed)
    shape = tuple(draw.choice((1, 1, 2, 3, 5)) for _ in range(draw.choice((1, 2, 3))))
    count = draw.randrange(2, 7)
    return shape, [
        (draw.choice(_OPS), draw.randrange(9), draw.randrange(9), draw.randrange(3))
        for _ in range(count)
    ]


def _values(namespace: Any, x: Any, program: Program) -> list[Any]:
    values = [x]
    for name, one, other, axis in program:
        a, b = values[one % len(values)], values[other % len(values)]
        if name == "add":
            values.append(a + b * 0.5)
        elif name == "root":
            values.append(namespace.sqrt(a) + 1)
        elif name == "cumsum":
            values.append(namespace.cumsum(a, axis=axis % a.ndim))
        else:
            values.append(getattr(namespace, name)(a, axis=axis % a.ndim, keepdims=True))
    return values[1:]


@pytest.mark.parametrize("device", ["cpu:generated", "sim:0"])
@pytest.mark.parametrize("kept", [True, False])
def test_reductions_of_reductions_equal_numpy(kept: bool, device: str) -> None:
    for seed in range(120):
        shape, program = _drawn(seed)
        x = np.random.default_rng(seed).random(shape) + 0.5
        wanted = _values(np, x, program)
        with alight.policy(floor=0, force=device, devices=("cpu", "sim:0")):
            found = _values(alight, alight.asarray(x), program)
            pairs = [*zip(found, wanted, strict=True)][0 if kept else -1 :]
            for ours, theirs in pairs:
                assert np.allclose(np.asarray(ours), theirs, rtol=1e-12), (seed, shape, program)


def test_a_large_sum_is_reduced_again_by_default() -> None:
    @alight.jit
    def body(x: Any) -> Any:
        total = np.sum(x, axis=1, keepdims=True)
        again = np.sum(total, axis=0, keepdims=True)
        return total, again, np.max(again, axis=0, keepdims=True), again.sum()

    x = np.random.default_rng(1).random((1, 1_000_000))
    for _ in range(3):
        for ours, theirs in zip(body(x), body.__wrapped__(x), strict=True):
            assert np.allclose(ours, theirs, rtol=1e-12)
