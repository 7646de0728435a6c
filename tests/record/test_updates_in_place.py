"""What an array above the floor needs to be updated as a whole: its own memory, as in NumPy."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import keep_bytes, living_bytes
from alight.backends.host import HostBackend

N = 1 << 20
BYTES = 8 * N
SLACK = 1 << 20


@pytest.fixture(params=["numpy", "cpu:generated"], autouse=True)
def room(request: pytest.FixtureRequest) -> Iterator[None]:
    keep_bytes(0)
    keep_bytes(1 << 28)
    with alight.policy(force=request.param, floor=0):
        yield
    keep_bytes(0)
    HostBackend()  # as it was


def operands(xp: Any) -> tuple[Any, Any]:
    return xp.asarray(np.linspace(-1.0, 1.0, N)), xp.asarray(np.linspace(1.0, 2.0, N))


def needed(work: Callable[[Any, Any], Any]) -> tuple[Any, Any, int]:
    """Return an array that was updated, what else came of it, and the most bytes that results had
    beyond the operands."""
    x, y = operands(alight)
    x = x + 0.0  # in memory that is counted
    alight.evaluate(x, y)
    gc.collect()
    before, _ = living_bytes()
    other = work(x, y)
    alight.evaluate(x)
    return x, other, living_bytes()[1] - before


def operator(x: Any, y: Any) -> None:
    x += y


def number(x: Any, y: Any) -> None:
    x *= 0.5


def several(x: Any, y: Any) -> None:
    x *= 0.5
    x += y
    x -= 2.0 * y


def one_after_another(x: Any, y: Any) -> None:
    for _ in range(3):
        x *= 0.5
        x += y
        alight.evaluate(*(item for item in (x,) if isinstance(item, alight.Array)))


def by_out(x: Any, y: Any) -> None:
    np.multiply(x, 0.5, out=x)
    np.add(x, y, out=x)


def whole_assignment(x: Any, y: Any) -> None:
    x[...] = y * 2.0 + 1.0


def of_itself(x: Any, y: Any) -> None:
    x[:] = x * y - x


def another_dtype(x: Any, y: Any) -> None:
    x += np.arange(N, dtype=np.int16)


def then_read(x: Any, y: Any) -> Any:
    x += y
    return x.max()


# With the arrays of x's size that each may need: those that NumPy makes, and one where several ops
# of one kernel may warn, of which it is found out on the operands which did.
WORK = [
    *((operator, 0), (number, 0), (several, 2), (one_after_another, 1), (by_out, 1)),
    *((whole_assignment, 1), (of_itself, 1), (another_dtype, 1), (then_read, 0)),
]


@pytest.mark.parametrize(("work", "arrays"), WORK, ids=lambda item: getattr(item, "__name__", ""))
def test_an_update_needs_no_second_array(work: Any, arrays: int) -> None:
    needed(work)  # what is made once
    x, got, most = needed(work)
    expected, y = operands(np)
    wanted = work(expected, y)
    np.testing.assert_array_equal(x.to_numpy(), expected)
    if wanted is not None:
        assert float(got) == wanted
    assert most <= SLACK + BYTES * arrays


def kept(x: Any, y: Any, old: list[Any]) -> None:
    old.append(+x)
    x += y


def a_view(x: Any, y: Any, old: list[Any]) -> None:
    old.append(x[::2])  # sees what is written
    x += y


def pending_reader(x: Any, y: Any, old: list[Any]) -> None:
    old.append(x * 3.0)
    x += y
    old.append(x * 3.0)
    x *= y


def reversed_operand(x: Any, y: Any, old: list[Any]) -> None:
    x += x[::-1]


def exported(x: Any, y: Any, old: list[Any]) -> None:
    old.append(np.asarray(x))
    x += y


def copied(x: Any, y: Any, old: list[Any]) -> None:
    old.append(x.copy())
    x += y
    old.append(x.copy())
    x[...] = y
    y += 1.0


def assigned_to_each_other(x: Any, y: Any, old: list[Any]) -> None:
    z = x + 0.0
    x[...] = y
    y[...] = z
    x += y
    old.append(z)


@pytest.mark.parametrize(
    "work",
    [kept, a_view, pending_reader, reversed_operand, exported, copied, assigned_to_each_other],
    ids=lambda item: item.__name__,
)
def test_what_others_have_stays_as_numpys(work: Any) -> None:
    results = []
    for xp in (np, alight):
        x, y = operands(xp)
        old: list[Any] = []
        work(x, y, old)
        results.append([np.array(item) for item in (x, y, *old)])
    for expected, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)


WARNING = """
def body(x, y):
    x *= 1e300
    x /= y
    x -= x
    return x
"""


def test_updates_warn_as_numpy_does() -> None:
    space: dict[str, Any] = {}
    exec(compile(WARNING, "warning.py", "exec"), space)
    body, said = space["body"], []
    for run, made in (
        (body, np.asarray), (body, alight.asarray), (alight.jit(body), np.asarray),
    ):  # fmt: skip
        x, y = made(np.full(N, 1e200)), made(np.append(np.zeros(5), np.ones(N - 5)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = run(x, y)
            assert result is x and np.isnan(np.asarray(result)).all()
        said.append([(str(one.message), one.filename, one.lineno) for one in caught])
    assert said[0] == said[1] == said[2] and len(said[0]) == 2
