"""Calls whose arguments cannot be described (objects with arrays inside, records, text, dtypes that
are not ours, foreign byte orders) are judged like any others."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt.foreground import ForegroundBudget
from alight._src.jit import dispatch, guarding
from alight._src.jit.call_phases import OURS, Phase
from alight._src.jit.decorator import Jitted
from alight._src.jit.dispatch import Dispatching
from alight._src.jit.specialization import Specialization

CALLS = 40


class Particles:
    def __init__(self, count: int) -> None:
        self.x = np.linspace(-1.0, 1.0, count)
        self.v = np.linspace(0.5, 1.5, count)

    def step(self, dt: float) -> None:
        self.v -= dt * self.x
        self.x += dt * self.v


def moved(particles: Particles, dt: float) -> Any:
    for _ in range(3):
        particles.step(dt)
    return (particles.v**2).sum(), particles.x


def counted(table: Any) -> Any:
    table["n"] += 1
    table["x"] *= 0.5
    return table["x"] + 1, table["n"].max()


def doubled(x: Any, y: Any = None) -> Any:
    return x * 2 + 1 if y is None else x * 2 + y


def upper(x: Any) -> Any:
    return np.char.upper(x)


def held(tree: Any) -> Any:
    tree["seen"] = tree["x"] * 2
    return tree["own"].x + tree["seen"]


def table() -> Any:
    made = np.zeros(8, dtype=[("x", "f8"), ("n", "i4")])
    made["x"] = np.arange(8)
    return made


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "object": (moved, lambda: (Particles(9), 0.01), {}),
    "records": (counted, lambda: (table(),), {}),
    "swapped": (doubled, lambda: (np.arange(9.0).astype(">f8"),), {}),
    "keywords": (doubled, lambda: (np.arange(9.0).astype(">f8"),), {"y": 2.0}),
    "longdouble": (doubled, lambda: (np.arange(9, dtype=np.longdouble),), {}),
    "text": (upper, lambda: (np.array(["ab", "c"]),), {}),
    "dict": (held, lambda: ({"x": np.ones(9), "own": Particles(9)},), {}),
}


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        same(tuple(one.values()), tuple(other.values()))
    elif isinstance(one, Particles):
        same((one.x, one.v), (other.x, other.v))
    else:
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have all that is worth looking at be looked at; return what ran on Arrays."""
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(guarding, "_ASK_SECONDS", 0.0)
    ran: list[Any] = []
    body = Dispatching._body
    monkeypatch.setattr(
        Dispatching, "_body", lambda *given, **more: ran.append(1) or body(*given, **more)
    )
    return ran


@pytest.mark.parametrize("our_seconds", [60.0, 1e-9], ids=["numpy wins", "alight wins"])
@pytest.mark.parametrize("case", CASES)
def test_calls_of_objects_and_foreign_dtypes_are_judged(
    case: str, our_seconds: float, bodies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Specialization.ran_alight
    monkeypatch.setattr(
        Specialization, "ran_alight", lambda self, _, cold: ran(self, our_seconds, cold)
    )
    body, given, more = CASES[case]
    jitted: Any = alight.jit(body)
    own, plain = given(), given()
    for _ in range(CALLS):
        same(jitted(*own, **more), body(*plain, **more))
        same(own, plain)
    (kind,) = jitted._specializations.values()
    if our_seconds < 1.0:
        # A verdict on microseconds is looked at again after some milliseconds.
        assert kind.phase in OURS | {Phase.PLANS_RACE} and len(bodies) > CALLS // 2
        return
    assert kind.phase is Phase.ON_NUMPY and 2 <= len(bodies) <= 4
    missed: list[Any] = []
    miss = Jitted.miss
    monkeypatch.setattr(
        Jitted, "miss", lambda self, *given: missed.append(given) or miss(self, *given)
    )
    for _ in range(CALLS):
        same(jitted(*own, **more), body(*plain, **more))
    assert not missed or more  # the guard knows no keywords
    assert len(bodies) <= 4
    assert jitted.standing(own, more).way == "numpy"


def test_numpy_has_the_first_ones() -> None:
    """Nothing runs on Arrays before NumPy was timed."""
    jitted: Any = alight.jit(moved)
    jitted(Particles(9), 0.01)
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.WAITING and kind.numpy_seconds and not kind.alight_seconds


def test_other_sizes_and_types_are_kinds_of_their_own(bodies: list[Any]) -> None:
    jitted: Any = alight.jit(doubled)
    for count in (4, 5, 7, 8, 9, 100):
        jitted(np.arange(float(count)).astype(">f8"))
    assert len(jitted._specializations) == 3
    jitted(np.arange(4).astype(">i4"))
    jitted(np.arange(4.0))
    assert len(jitted._specializations) == 5


@pytest.mark.parametrize("where", ["object", "list"])
def test_what_leads_to_arrays_of_ours_runs_on_them(where: str, bodies: list[Any]) -> None:
    def body(held: Any) -> Any:
        x = held.x if hasattr(held, "x") else held[0]
        return x * 2 + 1

    x = alight.asarray(np.arange(9.0))
    given: Any = SimpleNamespace(x=x) if where == "object" else [x]
    jitted: Any = alight.jit(body)
    kinds = set()
    for _ in range(CALLS):
        made = jitted(given)
        kinds.add(type(made))
        np.testing.assert_array_equal(np.asarray(made), np.arange(9.0) * 2 + 1)
    assert len(kinds) == 1 and len(bodies) == CALLS
    assert {kind.phase for kind in jitted._specializations.values()} == {Phase.ON_BODY}


def test_many_shapes_of_them_do_not_grow_what_is_kept(bodies: list[Any]) -> None:
    jitted: Any = alight.jit(lambda items: len(items))
    for count in range(300):
        jitted({"many": Particles(2), **{str(n): 1.0 for n in range(count % 7)}})
        jitted([Particles(2)] * (1 << (count % 9)))
        types = type(f"Own{count}", (Particles,), {})
        assert jitted([types(2)]) == 1
    assert len(jitted._specializations) <= 128


def test_texts_that_never_come_again_are_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at what arguments lead to takes milliseconds: not for each name that a call gets."""
    looks: list[Any] = []
    reachability = dispatch.Reachability
    monkeypatch.setattr(
        dispatch, "Reachability", lambda *given: looks.append(1) or reachability(*given)
    )
    jitted: Any = alight.jit(lambda particles, name: particles.x.sum() + len(name))
    for turn in range(200):
        jitted(Particles(9), f"file{turn:04}")
        jitted(Particles(9), b"%d" % (turn + 1000))
    assert len(looks) == len(jitted._specializations) == 2


def refusing(name: str) -> Any:
    def refuse(*given: Any, **more: Any) -> Any:
        raise AssertionError(f"{name} was asked")

    return refuse


class Unequal(type):
    __eq__ = refusing("a metaclass for equality")
    __hash__ = None  # type: ignore[assignment]


class Unhashed(type):
    __hash__ = refusing("a metaclass for a hash")


class OfUnequal(metaclass=Unequal):
    pass


class OfUnhashed(metaclass=Unhashed):
    pass


class Items(list[Any]):
    __len__ = refusing("a list for its length")
    __iter__ = refusing("a list for its items")


class Names(dict[str, Any]):
    __len__ = refusing("a dict for its length")
    __iter__ = values = refusing("a dict for its items")


class Proxy:
    """As frameworks have them for what is there during a request alone."""

    __class__ = property(refusing("a proxy for its class"))  # type: ignore[assignment]


class OfDict:
    """A proxy that says what it stands for."""

    __class__ = property(lambda self: dict)  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [OfUnequal, OfUnhashed, Items, Names, Proxy, OfDict])
def test_arguments_are_outlined_without_their_code(kind: Any, bodies: list[Any]) -> None:
    jitted: Any = alight.jit(lambda particles, other: particles.x * 2)
    particles, other = Particles(9), kind()
    for _ in range(CALLS):
        same(jitted(particles, other), particles.x * 2)
    assert jitted.standing((particles, other), {}).way in ("numpy", "alight", "undecided")
