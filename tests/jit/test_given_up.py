"""Bodies that go on for much longer on Arrays than in NumPy are given up: the rest is NumPy's, on
what there is by then, and so are the calls that follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import POLICY, at_hand, floor
from alight._src.config.loading import current_policy
from alight._src.jit import trace
from alight._src.jit.call_phases import Event
from alight._src.jit.specialization import Specialization
from alight._src.jit.trace import Trace
from alight._src.record import pending
from alight._src.run import evaluate

NEVER, AT_ONCE = math.inf, -1.0


def late(monkeypatch: pytest.MonkeyPatch, ops: int) -> list[Trace]:
    """Have each body be late from an op on, and run on Arrays however small they are; return what
    becomes of it."""
    given_up: list[Trace] = []
    recorded, seen = Trace.recorded, [0]

    def counted(own: Trace) -> None:
        seen[0] += 1
        own.ends = AT_ONCE if seen[0] > ops else NEVER
        before = own.given_up
        recorded(own)
        if own.given_up and not before:
            given_up.append(own)

    monkeypatch.setattr(Trace, "recorded", counted)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: 1.0)
    monkeypatch.setattr(trace, "_LEAST_STEPS", 1)
    monkeypatch.setattr(pending, "_LOOK_EVERY", 1)
    return given_up


def triangular(lower: Any, b: Any) -> Any:
    x = np.zeros(len(b))
    for i in range(len(b)):
        x[i] = (b[i] - lower[i, :i] @ x[:i]) / lower[i, i]
    return x


def updates(c: Any, a: Any) -> Any:
    for i in range(len(c)):
        c[i, : i + 1] *= 0.5
        c[i] += a[:, i]
    c[c > 1] = -1.0
    return c[::2], c


def locals_and_views(x: Any, y: Any) -> Any:
    own = x * 2
    part, copy = own[2:], own.copy()
    part[0] = 7.0
    x[1:5] = y[:4]
    own += 1
    kept = [own, part, copy, x[::-1]]
    y[...] = x
    x[0] = 3.0
    return kept, own.sum(), float(part[0]), x, y


def elements(x: Any, y: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        x[i] = y[i] + total
        total += x[i] * 0.5
    return total, type(x[0]) is np.float64, x.max()


def masks(x: Any, y: Any) -> Any:
    np.add(x, y, out=x, where=y > 0.5)
    x[np.argsort(y)[:3]] = 0
    z = np.where(x > y, x, y)
    z[1:] -= z[:-1].copy()
    return z, np.flatnonzero(z > 0), x.reshape(2, -1).T


def rewritten(x: Any, y: Any) -> Any:
    x[...] = y * 2 + 1
    y += 1
    part = x[1:]
    x[1] = 9.0
    part[2] = 8.0
    x[5:] = y[5:] * 3
    return part, x, y[::2]


N = 12


def square(first: float, last: float) -> Any:
    return np.linspace(first, last, N * N).reshape(N, N)


CASES: list[tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = [
    (triangular, lambda: (np.tril(square(1, 9)), np.arange(1.0, N + 1))),
    (updates, lambda: (square(0, 3), square(1, 2))),
    (locals_and_views, lambda: (np.arange(float(N)), np.linspace(0, 1, N))),
    (elements, lambda: (np.arange(float(N)), np.linspace(0, 1, N))),
    (masks, lambda: (np.arange(float(N)), np.linspace(0, 1, N))),
    (rewritten, lambda: (np.arange(float(N)), np.linspace(0, 1, N))),
]  # fmt: skip


def flat(tree: Any) -> Iterator[Any]:
    for item in tree if isinstance(tree, (list, tuple)) else [tree]:
        if isinstance(item, (list, tuple)):
            yield from flat(item)
        else:
            yield item


@pytest.mark.parametrize("ops", [0, 1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize(("body", "given"), CASES, ids=[body.__name__ for body, _ in CASES])
def test_what_was_given_up_has_numpys_results(
    body: Any, given: Callable[[], tuple[Any, ...]], ops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up = late(monkeypatch, ops)
    own, plain = given(), given()
    jitted = alight.jit(body)
    for _ in range(5):
        made, wanted = jitted(*own), body(*plain)
        for one, other in zip(flat((made, own)), flat((wanted, plain)), strict=True):
            assert type(one) is type(other)
            np.testing.assert_array_equal(one, other)
    assert given_up or ops > 5


@pytest.mark.parametrize("ops", range(8))
def test_results_share_memory_as_numpys_do(ops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    late(monkeypatch, ops)
    x, y = np.arange(12.0), np.linspace(0, 1, 12)
    (own, part, copy, turned), _, _, first, second = alight.jit(locals_and_views)(x, y)
    assert first is x and second is y
    assert np.shares_memory(own, part) and not np.shares_memory(own, copy)
    assert np.shares_memory(turned, x)
    part, first, every = alight.jit(rewritten)(x, y)
    assert first is x and np.shares_memory(part, x) and np.shares_memory(every, y)


def resized(x: Any) -> Any:
    y = x + 1
    x[1] = y[5]
    x.resize((4, 3), refcheck=False)
    made = x * 2
    x[0] = 9.0
    return made, x


def resized_to_more(x: Any) -> Any:
    y = x + 1
    x[1] = y[5]
    try:
        x.resize((5, 3), refcheck=False)
    except ValueError:
        return "refused", x * 2
    return x * 2, None


def told_of_memory(x: Any) -> Any:
    found = []
    for i in range(3):
        x[i] = i
        found += [x.flags.owndata, x.flags.num, x.base is None, (x * 2).base is None]
    return found


def made_writeable(x: Any) -> Any:
    y = x + 1
    z = x[1:] * 2 + y[1:]
    x.flags.writeable = True
    x[1:] = z
    x[:2] += y[:2]
    x.flags.writeable = False
    return y, z, x.flags.writeable


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


def locked(x: Any) -> Any:
    part = x[1:]
    x.flags.writeable = False
    return part, x[2:].flags.writeable, part.flags.writeable, x


@pytest.mark.parametrize("ops", range(6))
@pytest.mark.parametrize(
    ("body", "given"),
    [
        (resized, lambda: np.arange(12.0)),
        (locked, lambda: np.arange(12.0)),
        (locked, lambda: np.arange(13.0)[1:]),
        (resized_to_more, lambda: np.arange(12.0)[:]),
        (told_of_memory, lambda: np.arange(12.0)),
        (told_of_memory, lambda: np.arange(13.0)[1:]),
        (made_writeable, lambda: read_only(np.arange(12.0))),
        (made_writeable, lambda: read_only(np.arange(12.0)[:])),
    ],
)
def test_arguments_go_on_to_be_the_callers_memory(
    body: Any, given: Callable[[], Any], ops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    late(monkeypatch, ops)
    jitted = alight.jit(body)
    for _ in range(3):
        own, plain = given(), given()
        made, wanted = jitted(own), body(plain)
        for one, other in zip(flat((made, own)), flat((wanted, plain)), strict=True):
            assert type(one) is type(other)
            np.testing.assert_array_equal(one, other, strict=True)
            assert np.asarray(one).flags.writeable is np.asarray(other).flags.writeable
        assert own.flags.num == plain.flags.num


def test_a_generator_goes_on_with_the_callers_memory() -> None:
    @alight.jit
    def steps(x: Any) -> Any:
        def each() -> Iterator[Any]:
            for i in range(3):
                x[i] = -1.0
                yield x.flags.owndata, x.base is None, x * 2
            x.resize((4, 3), refcheck=False)
            x[1] = 7.0
            yield x

        return each()

    x = np.arange(12.0)
    *found, last = steps(x)
    assert [one[:2] for one in found] == [(True, True)] * 3
    assert x.tolist()[3:6] == [7, 7, 7] or x.shape == (4, 3)
    np.testing.assert_array_equal(last.reshape(-1), x.reshape(-1))


def give_up() -> None:
    """Have the body that runs be given up here."""
    watched = evaluate.watch.by
    if isinstance(watched, Trace):
        watched.ends = AT_ONCE
        watched.recorded()


STATEMENTS = (
    "x.copy()", "x.T.copy()", "np.copy(x)", "x.astype('f4')", "x.astype('f4').astype('f8')",
    "x.flatten()", "x.T.reshape(-1)", "np.meshgrid(x, x)", "y = x.copy(); y += 1; x[...] = y",
    "x[m] = 1", "x[m] += 1", "x[1:][m[1:]] = 0", "x[...] = np.where(m, x, 1)",
    "np.copyto(x, x, where=m)", "np.add(x, 1, out=x, where=m)", "x.sum()", "np.sum(x, where=m)",
    "x[1:] -= x[:-1].copy()", "x.sort()", "x.fill(2)", "np.cumsum(x, out=x)",
)  # fmt: skip
BEFORE = (
    "x = a",
    "x = a; x += 1; x[2] = 3",
    "x = a * 2; x = x + 1",
    "y = a * 2; x = y[:]",
)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_nothing_is_recorded_once_a_body_was_given_up(
    statement: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_LEAST_STEPS", 1 << 40)  # what is read is not counted
    monkeypatch.setattr(pending, "_LOOK_EVERY", 1)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: 1.0)
    given_up: list[Trace] = []
    after: list[Trace] = []
    recorded = Trace.recorded

    def noted(own: Trace) -> None:
        (after if own.given_up else given_up).append(own)
        recorded(own)

    monkeypatch.setattr(Trace, "recorded", noted)

    space = {"np": np, "give_up": give_up}
    lines = [*before.split("; "), "m = x > 3", "give_up()", *statement.split("; ") * 3, "return x"]
    exec("def body(a):\n    " + "\n    ".join(lines), space)
    own, plain = np.arange(9.0), np.arange(9.0)
    monkeypatch.setattr(floor, "record_floor", 1)
    made = alight.jit(space["body"])(own)
    wanted = space["body"](plain)
    assert given_up and not after
    np.testing.assert_array_equal(made, wanted, strict=True)
    np.testing.assert_array_equal(own, plain, strict=True)


def added(x: Any) -> Any:
    for _ in range(4000):
        x = x + 1
    return x


def running_sums(x: Any) -> Any:
    for _ in range(2000):
        x = np.cumsum(x) * 0.01
    return x


def listed(x: Any) -> Any:
    found = [x * i for i in range(2000)]
    return sum(found)


@pytest.mark.parametrize("body", [added, running_sums, listed])
def test_the_clock_is_looked_at_however_a_body_records(
    body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, ended = [], []
    recorded = Trace.recorded

    def noted(own: Trace) -> None:
        looks.append(own)
        own.ends = AT_ONCE if len(looks) > 2 else NEVER
        recorded(own)
        if own.given_up:
            ended.append(own)

    monkeypatch.setattr(Trace, "recorded", noted)
    monkeypatch.setattr(Specialization, "waits", lambda kind, ops: False)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: 1.0)
    given = np.linspace(0, 1, 5)
    np.testing.assert_allclose(alight.jit(body)(given), body(given))
    assert ended


def test_why_numpy_has_the_calls_is_told() -> None:
    kind = Specialization()
    kind.gave_up(0.025)
    assert (
        kind.why == "alight took more than 25 ms, NumPy has it until looking at the whole may pay"
    )
    kind.ran_numpy(0.002)
    kind.came(Event.PAYS)
    kind.gave_up(0.025)
    assert kind.taken == "numpy"
    assert kind.why == "NumPy took 2 ms, alight more than 25 ms"


class Struck:
    """A policy of a body that was given up: a signal's handler raises as its floor is read."""

    def __init__(self) -> None:
        self.read = 0

    @property
    def record_floor(self) -> int:
        self.read += 1
        if self.read == 1:
            raise KeyboardInterrupt
        return pending.OUTRIGHT


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[1],
        lambda x: x[1:3],
        lambda x: x[x.argmax()],
        lambda x: x.__setitem__(1, 2.0),
        lambda x: floor.scalars,
        lambda x: at_hand(x),
    ],
)
def test_no_signal_is_lost_in_a_body_that_was_given_up(
    read: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = alight.asarray(np.arange(4.0))
    monkeypatch.setattr(floor, "traced", floor.traced + 1)
    before = POLICY.get()
    try:
        POLICY.set(Struck())  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            read(x)
    finally:
        POLICY.set(before)


def test_calls_after_one_that_was_given_up_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = late(monkeypatch, 4)
    monkeypatch.setattr(Specialization, "may_take", lambda kind: 0.0)
    jitted = alight.jit(elements)
    for _ in range(40):
        jitted(np.arange(float(N)), np.ones(N))
    assert len(given_up) <= 2  # once before NumPy was timed, and once after


def test_the_policy_of_the_program_is_its_own_again(monkeypatch: pytest.MonkeyPatch) -> None:
    late(monkeypatch, 0)

    @alight.jit
    def raises(x: Any) -> Any:
        for i in range(5):
            x[i] = i
        raise LookupError(float(x[2]))

    x = np.ones(8)
    before = current_policy()
    with pytest.raises(LookupError, match="2"):
        raises(x)
    assert current_policy() is before
    assert x.tolist() == [0, 1, 2, 3, 4, 1, 1, 1]


def test_what_policies_force_is_never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    recorded = Trace.recorded
    monkeypatch.setattr(Trace, "recorded", lambda own: (ends.append(own.ends), recorded(own))[1])
    monkeypatch.setattr(pending, "_LOOK_EVERY", 1)
    with alight.policy(floor=0, force="cpu:generated"):
        alight.jit(triangular)(np.tril(np.ones((N, N))), np.ones(N))
    assert set(ends) == {NEVER}


def test_arguments_too_many_to_be_taken_without_a_stall_are_numpys() -> None:
    ran = []

    @alight.jit
    def updated(parameters: Any, gradients: Any) -> None:
        ran.append(
            all(type(p).__module__ == "numpy" and not hasattr(p, "storage") for p in parameters)
        )
        for p, g in zip(parameters, gradients, strict=True):
            p -= 0.1 * g

    parameters = [np.ones(3) for _ in range(4000)]
    for _ in range(4):
        updated(parameters, [np.ones(3)] * 4000)
    assert ran == [True] * 4
    assert np.allclose(parameters[-1], 0.6)
