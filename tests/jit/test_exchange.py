"""What containers of the program keep, exchanged while other threads change them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

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
