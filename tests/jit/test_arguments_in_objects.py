"""Arrays that object arrays and records lead to: a jitted body writes into them once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alight

pytestmark = pytest.mark.usefixtures("looked_at_once")

Array = np.ndarray[Any, Any]
WAYS: list[dict[str, Any]] = [{}, {"floor": 0}, {"floor": 0, "force": "cpu:numpy"}]


@pytest.mark.parametrize("policy", WAYS, ids=str)
@pytest.mark.parametrize("made", ["argument", "nothing", "window", "error"])
def test_what_an_object_array_holds_is_written_once(policy: dict[str, Any], made: str) -> None:
    @alight.jit
    def body(a: Any, c: Any, e: Any) -> Any:
        e[0][...] += 1
        if made == "error":
            raise ValueError("told")
        return {"argument": c, "nothing": None, "window": e[0][1:]}[made]

    held, c = np.arange(4.0), np.arange(2.0)
    e = np.empty(1, object)
    e[0] = held
    a = alight.asarray(np.arange(3.0))
    for call in range(1, 6):
        with alight.policy(**policy):
            if made == "error":
                with pytest.raises(ValueError, match="told"):
                    body(a, c, e)
            else:
                body(a, c, e)
        assert held.tolist() == [call, call + 1, call + 2, call + 3]


@pytest.mark.parametrize("policy", WAYS, ids=str)
@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("held", [False, True], ids=["record", "record of objects"])
def test_a_record_is_written_at_every_call(policy: dict[str, Any], ours: bool, held: bool) -> None:
    @alight.jit
    def body(a: Any, record: Any) -> Any:
        record["n"] += 1
        return a

    records = np.zeros(1, [("n", "i8"), ("o", object)] if held else [("n", "i8")])
    a: Any = np.arange(3.0)
    record = records[0]
    for call in range(1, 6):
        with alight.policy(**policy):
            body(alight.asarray(a) if ours else a, record)
        assert records["n"].tolist() == [call]


def test_a_record_is_written_where_a_call_is_like_one_before() -> None:
    @alight.jit
    def body(a: Any, record: Any) -> Any:
        record["n"] = 2
        return a + 1

    records = np.zeros(1, [("n", "i8")])
    for _ in range(5):
        records["n"] = 0
        with alight.policy(floor=0, force="cpu:numpy"):
            body(np.arange(3.0), records[0])
        assert records["n"].tolist() == [2]
