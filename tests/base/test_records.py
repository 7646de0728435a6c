"""Records are what `dataclasses` makes of the same classes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from alight._src.base import records


def declared(kit: Any) -> dict[str, Any]:
    """Return the same classes, as a module with ``dataclass`` and ``field`` makes them."""
    dataclass, field = kit.dataclass, kit.field

    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        y: float = 2.5
        tags: tuple[str, ...] = ()

        @property
        def far(self) -> bool:
            return self.x > 10

    @dataclass(slots=True)
    class Counter:
        """What changes."""

        name: str
        seen: dict[str, int] = field(default_factory=dict)
        total: int = field(default=0, repr=False, compare=False)

    @dataclass(frozen=True, slots=True)
    class Made:
        """What makes a field itself."""

        parts: tuple[int, ...]
        size: int = field(init=False, compare=False)
        cache: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", len(self.parts))

    @dataclass(frozen=True, slots=True, eq=False)
    class Itself:
        """What equals itself alone."""

        one: int

    @dataclass(frozen=True, slots=True)
    class Own:
        """What says itself how it is shown, and what equals it."""

        one: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class Single:
        """One field."""

        one: Any

    @dataclass(slots=True, eq=False)
    class More(Counter):
        """What has the fields of another, too."""

        last: int = 3

    return {c.__name__: c for c in (Point, Counter, Made, Itself, Own, Single, More)}


OURS, THEIRS = declared(records), declared(dataclasses)


def answer(call: Any) -> Any:
    """Return what a call gives, or its error, in words that name no place."""
    try:
        return repr(call()).replace("declared.<locals>.", "")
    except Exception as error:
        words = str(error).replace("declared.<locals>.", "")
        return type(error).__name__, words if isinstance(error, AttributeError) else ""


CALLS = {
    "positional": lambda k: k["Point"](1, 2.0, ("a",)),
    "defaults": lambda k: k["Point"](1),
    "named": lambda k: k["Point"](y=1.0, x=3).far,
    "missing": lambda k: k["Point"](),
    "too many": lambda k: k["Point"](1, 2, (), 4),
    "unknown": lambda k: k["Point"](1, z=2),
    "set": lambda k: setattr(k["Point"](1), "x", 2),
    "delete": lambda k: delattr(k["Point"](1), "x"),
    "equal": lambda k: k["Point"](1) == k["Point"](1, 2.5),
    "other": lambda k: k["Point"](1) == k["Point"](2),
    "other class": lambda k: k["Point"](1) == (1, 2.5, ()),
    "hash": lambda k: hash(k["Point"](1)),
    "hash of one": lambda k: hash(k["Single"](1)),
    "equal ones": lambda k: k["Single"](n := float("nan")) == k["Single"](n),
    "unhashable": lambda k: hash(k["Counter"]("a")),
    "itself": lambda k: k["Itself"](1) == k["Itself"](1),
    "in a set": lambda k: len({k["Itself"](1), k["Itself"](1)}),
    "own": lambda k: (k["Own"](1), k["Own"](1) == 3, hash(k["Own"](1))),
    "not shown": lambda k: k["Counter"]("a", {}, 5),
    "not compared": lambda k: k["Counter"]("a", {}, 5) == k["Counter"]("a", {}, 6),
    "apart": lambda k: k["Counter"]("a").seen is k["Counter"]("a").seen,
    "given": lambda k: k["Counter"]("a", {"b": 1}).seen,
    "changes": lambda k: setattr(k["Counter"]("a"), "total", 3),
    "no other": lambda k: setattr(k["Counter"]("a"), "other", 3),
    "made": lambda k: k["Made"]((1, 2)),
    "not given": lambda k: k["Made"]((1, 2), 3),
    "made one's own": lambda k: k["Made"]((1,)).cache is k["Made"]((1,)).cache,
    "replaced": lambda k: k["kit"].replace(k["Point"](1), y=0.0),
    "replaced made": lambda k: k["kit"].replace(k["Made"]((1,)), parts=(1, 2, 3)),
    "replaced itself": lambda k: k["kit"].replace(k["Made"]((1,)), size=4),
    "standard replace": lambda k: dataclasses.replace(k["Made"]((1,)), parts=(1, 2)),
    "asdict": lambda k: dataclasses.asdict(k["Counter"]("a", {"b": k["Point"](1)})),
    "fields": lambda k: [f.name for f in dataclasses.fields(k["Made"])],
    "is one": lambda k: dataclasses.is_dataclass(k["Point"]),
    "signature": lambda k: inspect.signature(k["Point"]),
    "copied": lambda k: copy.copy(k["Point"](1)),
    "copied deeply": lambda k: copy.deepcopy(k["Counter"]("a", {"b": 1})),
    "slots": lambda k: (k["Made"].__slots__, hasattr(k["Made"]((1,)), "__dict__")),
    "more": lambda k: (k["More"]("a", last=4), k["More"].__slots__, k["More"]("a").seen),
    "more fields": lambda k: dataclasses.asdict(k["More"]("a")),
    "matched": lambda k: k["Made"].__match_args__,
    "documented": lambda k: (k["Point"].__doc__, k["Point"].__qualname__, k["Point"].__module__),
}


@pytest.mark.parametrize("name", CALLS)
def test_records_answer_as_dataclasses_do(name: str) -> None:
    call = CALLS[name]
    ours = answer(lambda: call({**OURS, "kit": records}))
    assert ours == answer(lambda: call({**THEIRS, "kit": dataclasses}))


def test_a_record_is_pickled() -> None:
    from alight.device import Gap

    gap = Gap("what", "why", "who")
    assert pickle.loads(pickle.dumps(gap)) == gap


def test_a_default_that_may_change_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @records.dataclass(slots=True)
        class Bad:
            seen: list[int] = []  # noqa: RUF012


def test_methods_are_made_when_a_first_record_is() -> None:
    cls = declared(records)["Point"]
    before = cls.__init__
    cls(1)
    assert cls.__init__ is not before
