"""What a program puts in the place of NumPy's names changes nothing that alight computes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight

PACKAGE = str(Path(alight.__file__).parent)
MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0", "devices": ["cpu", "sim:0"]},
}


def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put others in the place of NumPy's functions; return those that alight itself calls."""
    called: list[str] = []

    def stand_in(name: str, function: Any) -> Callable[..., Any]:
        def other(*args: Any, **kwargs: Any) -> Any:
            # NumPy's own code looks names up, too: that is between the program and NumPy.
            if sys._getframe(1).f_code.co_filename.startswith(PACKAGE):
                called.append(name)
            return function(*args, **kwargs)

        return other

    for module in (np, np.linalg, np.lib.stride_tricks, np.lib.array_utils):
        for name, value in list(vars(module).items()):
            if callable(value) and name[:2] != "__" and not isinstance(value, (type, np.ufunc)):
                monkeypatch.setattr(module, name, stand_in(name, value))
    return called


def work(np: Any, x: Any, y: Any) -> list[Any]:
    a = np.asarray(x) + 0
    b = np.asarray(y) * 2
    view = a[1:, ::2]
    view += 1
    a[0] = b[0]
    a[a > 30] = -1
    b[[0, 2]] = b[[2, 0]]
    np.copyto(b[1:], a[:-1], where=a[:-1] > 3)
    np.add(a, b, out=a, where=b > 2)
    np.fill_diagonal(b, 7)
    c = np.concatenate([a, b]).reshape(-1, 4)
    return [
        a, b, c, c.T[::-1], c.sum(axis=0), c.mean(), c.std(axis=1), np.sort(c, axis=0),
        np.where(c > 5, c, -c), c.cumsum(axis=1), np.argmax(c, axis=1), a @ b.T, np.dot(b.T, a),
        np.linalg.norm(c, axis=1), np.einsum("ij,kj->ik", a, b), np.clip(c, 0, 9),
        np.take(c, [1, 2]), np.stack([a, b], axis=1), np.roll(c, 1, axis=0), np.unique(c),
        np.nonzero(c > 3)[0], np.pad(a, 1), np.tile(a, 2), np.broadcast_to(a[0], (3, 4)) + 1,
        a.astype("f4"), np.exp(-a / 9), np.minimum.accumulate(c), np.median(c),
        np.add.reduceat(c[:, 0], [0, 2]), np.linspace(0, 1, 9),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_answers_are_those_of_before(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(24.0).reshape(6, 4), np.arange(24.0)[::-1].reshape(6, 4) / 3
    jitted = alight.jit(body)
    wanted = body(x.copy(), y.copy())
    with alight.policy(**MODES[mode]):
        want = [np.asarray(item) for item in work(alight, x, y)]
        called = watched(monkeypatch)
        got = [np.asarray(item) for item in work(alight, x, y)]
        results = [jitted(x.copy(), y.copy()) for _ in range(3)]
    assert not called
    for mine, before in zip(got, want, strict=True):
        # The same work on the same machine: all bits are the same.
        assert (mine.dtype, mine.shape) == (before.dtype, before.shape)
        assert mine.tobytes() == before.tobytes()
    for result in results:
        assert np.array_equal(result, wanted)  # additions and products: NumPy's bits


def body(x: Any, y: Any) -> Any:
    x[1:] += y[:-1]
    y[::2] = x[::2] * 3
    return x[:, 1:] - y[:, :-1]


def test_the_package_has_a_numpy_of_its_own() -> None:
    from alight._src.base.originals import np as own

    assert isinstance(own, types.ModuleType) and own is not np and own.ndarray is np.ndarray
    assert own.random is np.random  # which NumPy loads when it is asked for
