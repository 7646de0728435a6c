"""A CUDA device that fails: out of memory and errors at every step of programs. What is computed
must be right all the same, and the log must say what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

import alight
from alight._src.log.decisions import LOG

from .cuda_rig import DEVICE, Array, Rig, said

_INVALID, _LOST = 1, 719  # cudaErrorInvalidValue, cudaErrorLaunchFailure
MOST = 60  # steps of a program that are made to fail

Program = Callable[[Any, Any], Any]


def fused(x: Any, y: Any) -> Any:
    return alight.sqrt(x * x + y * y) * alight.exp(-x) + alight.sin(y)


def several(x: Any, y: Any) -> Any:
    product = x @ y.T
    rows = product - product.max(axis=1, keepdims=True)
    return alight.sort(rows / (1 + np.abs(rows).sum(axis=0)), axis=1)


def written(x: Any, y: Any) -> Any:
    z = x + 1
    z[1:, ::2] = y[1:, ::2] * 2
    kept = z * 1
    z[0] = z.sum(axis=0)
    return z + kept


def at_once(x: Any, y: Any) -> Any:
    mask = x > 1
    z = x * 1
    z[mask] = y[mask]
    return alight.concatenate([z.ravel(), np.nonzero(mask)[0] * 1.0])


PROGRAMS: tuple[Program, ...] = (fused, several, written, at_once)


class _Proxy:
    """A module, or a function, with something that is done before its call."""

    def __init__(self, real: Any, name: str, first: Callable[[], None]) -> None:
        self._real = real
        self._name = name
        self._first = first

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name != self._name:
            return found

        def call(*args: Any) -> Any:
            self._first()
            return found(*args)

        return call

    def __call__(self, *args: Any) -> Any:
        self._first()
        return self._real(*args)


# What fails, and where a session has it. Once out of memory is mended by giving back what CuPy
# keeps; "full" is every allocation from then on.
STEPS = {
    "allocate": ("pool", "malloc"), "full": ("pool", "malloc"), "copy": ("runtime", "memcpyAsync"),
    "launch": ("driver", "launchKernel"), "lost": ("driver", "launchKernel"),
    "library": ("library", ""), "wait": ("runtime", "eventSynchronize"),
}  # fmt: skip


@contextmanager
def failing(session: Any, kind: str, at: int) -> Iterator[list[int]]:
    """Make the nth call of a kind fail; yield how many there were."""
    count = [0]
    module, name = STEPS[kind]

    def fail() -> None:
        count[0] += 1
        if count[0] == at or (kind == "full" and count[0] > at):
            if module == "pool":
                raise session._full("injected")
            raise session._errors[module == "driver"](_LOST if kind == "lost" else _INVALID)

    real = getattr(session, module)
    setattr(session, module, _Proxy(real, name, fail))
    try:
        yield count
    finally:
        setattr(session, module, real)


def outcome(program: Program, x: Array, y: Array) -> tuple[Array, Any]:
    """Return what a program computes on the device, and the log of it."""
    LOG.reset()
    with alight.policy(force=DEVICE, floor=0):
        result = np.array(program(alight.asarray(x), alight.asarray(y)))
    return result, LOG.snapshot()


def faults(rig: Rig, found: dict[str, Any]) -> None:
    """Fail at every allocation, launch and copy of every program, and lose the device once each."""
    generator = np.random.default_rng(3)
    x, y = generator.random((96, 64)) * 2, generator.random((96, 64))
    rows: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    began = perf_counter()
    for program in PROGRAMS:
        with alight.policy(force="numpy"):
            expected = np.array(program(alight.asarray(x), alight.asarray(y)))
        outcome(program, x, y)  # kernels made, ops trusted
        for kind in STEPS:
            at = told = 0
            while at < MOST:
                at += 1
                session = rig.backend._sessions[DEVICE]
                name = f"{program.__name__}, {kind} {at}"
                try:
                    with failing(session, kind, at) as count:
                        result, log = outcome(program, x, y)
                    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)
                except Exception as error:
                    wrong[name] = said(error)
                if session.lost:
                    rig.backend.close(rig.device)
                    rig.backend.open(rig.device)
                if count[0] < at:
                    break
                told += bool(log.fallbacks)
                if not log.fallbacks and kind != "allocate":
                    wrong[f"{name}, unsaid"] = "no fallback in the log"
            rows[f"{program.__name__}, {kind}"] = f"{at - 1} steps, {told} said"
    found["faults"] = {
        "programs": rows, "differing": wrong, "failed": {},
        "seconds": round(perf_counter() - began, 1),
    }  # fmt: skip
