"""What containers of the program keep, exchanged while other threads change them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit.exchange import exchange

pytestmark = pytest.mark.usefixtures("looked_at_once")


class Kept:
    """Stands for what the body left in a container."""


class OwnList(list[Any]):
    pass


class OwnDeque(collections.deque[Any]):
    pass


def given_while(change: Callable[[Any], Any], holder: Any) -> list[Any]:
    """Return what a list or deque holds after an exchange of what it keeps for "new", during which
    another thread changes it once."""
    changes = [change]

    def give(item: Any) -> Any:
        if type(item) is not Kept:
            return item
        if changes:
            changes.pop()(holder)
        return "new"

    assert exchange(holder, give) is holder
    return [*holder]


KINDS: list[Any] = [list, collections.deque, OwnList, OwnDeque]


@pytest.mark.parametrize("kind", KINDS)
def test_what_moves_is_found(kind: Any) -> None:
    def first_goes(holder: Any) -> None:
        del holder[0]
        holder.append("last")

    kept = Kept()
    assert given_while(first_goes, kind(["a", "b", kept, kept])) == ["b", "new", "new", "last"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_stays_away(kind: Any) -> None:
    assert given_while(lambda holder: holder.clear(), kind(["a", Kept(), Kept()])) == []

    def other(holder: Any) -> None:
        holder[1] = "other"

    assert given_while(other, kind(["a", Kept(), Kept()])) == ["a", "other", "new"]


def test_what_a_dict_lost_or_was_given_stays() -> None:
    kept = {"a": Kept(), "b": Kept(), "c": Kept()}

    def give(item: Any) -> str:
        kept.pop("b", None)
        kept["c"] = "theirs"  # type: ignore[assignment]
        return "new"

    exchange(kept, give)
    assert kept == {"a": "new", "c": "theirs"}


def chained(x: Any) -> Any:
    raise LookupError(x[1:]) from ValueError(x.sum())


def on_the_way(x: Any) -> Any:
    try:
        raise ValueError(x.sum(), [x * 2])
    except ValueError:
        raise LookupError(x[1:])  # noqa: B904  # it is the context that is looked at


def with_attributes(x: Any) -> Any:
    error = LookupError([x * 2], {"x": x[1:]})
    error.found = [x.sum(), (x + 1,)]  # type: ignore[attr-defined]
    raise error


def several(x: Any) -> Any:
    raise ExceptionGroup("several", [ValueError(x.sum()), LookupError(x * 2)])


def generated(x: Any) -> Any:
    def steps() -> Any:
        yield x
        raise LookupError(x * 2) from ValueError(x.sum())

    return steps()


def led_to(item: Any) -> Any:
    """Yield what an error, and those that led to it, keep."""
    if isinstance(item, BaseException):
        others = item.exceptions if isinstance(item, BaseExceptionGroup) else ()
        item = (*item.args, vars(item), item.__cause__, item.__context__, *others)
    if isinstance(item, (list, tuple, dict)):
        for part in item.values() if isinstance(item, dict) else item:
            yield from led_to(part)
    else:
        yield item


@pytest.mark.parametrize("body", [chained, on_the_way, with_attributes, several, generated])
def test_errors_and_those_that_led_to_them_keep_what_numpy_gives(body: Any) -> None:
    def kept(function: Any) -> list[Any]:
        try:
            list(function(np.arange(4.0)))
        except (LookupError, ExceptionGroup) as error:
            return [*led_to(error)]
        raise AssertionError

    with alight.policy(floor=0):
        made = kept(alight.jit(body))
    for one, other in zip(made, kept(body), strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)


def test_the_error_that_the_caller_handles_stays_as_it_is() -> None:
    mine = alight.asarray(np.arange(3.0))
    try:
        raise ValueError(mine)
    except ValueError as handled:
        with pytest.raises(LookupError) as found:
            alight.jit(chained)(np.arange(4.0))
        assert handled.args[0] is mine
        assert found.value.__context__ is not None
