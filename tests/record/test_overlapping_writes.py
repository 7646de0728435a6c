"""Statements that read the memory they write, where NumPy's order of doing it can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight

POLICIES: dict[str, dict[str, Any]] = {
    "numpy": {"force": "numpy"},
    "generated": {"force": "cpu:generated"},
    "sim": {"force": "sim:0", "devices": ["cpu", "sim:0"]},
}


def other_steps(np_: Any) -> Any:
    a = np_.arange(12) + 2
    a[0:-2:3] = a[:7:2]
    return a


def other_steps_downwards(np_: Any) -> Any:
    a = np_.arange(12) + 2
    a[8::-2] = a[5:0:-1]
    return a


def one_for_all(np_: Any) -> Any:
    a = np_.arange(12.0)
    a[1:] = a.view(np.int64)[3:4]
    return a


def other_way(np_: Any) -> Any:
    a = np_.arange(12) + 2
    a[:6] = a[7:1:-1]
    return a


def two_axes(np_: Any) -> Any:
    a = np_.arange(12)
    a.reshape(3, 4)[...] = a[:4]
    a.reshape(4, 3)[1:] = a.reshape(3, 4)[:, :3]
    return a


def same_steps(np_: Any) -> Any:
    a = np_.arange(12.0)
    a[1:] = a[:-1]
    a[:-2] = a.view(np.int64)[2:]
    return a


def other_steps_through_others(np_: Any) -> Any:
    a = np_.arange(12)
    theirs = np.asarray(memoryview(a))
    a[:-1:2] = theirs[3:9]
    return a


def joined(np_: Any) -> Any:
    a = np_.arange(12)
    np_.concatenate([np_.ones(3, int), a[:3]], out=a[:6])
    return a


def joined_through_others(np_: Any) -> Any:
    a = np_.arange(12)
    theirs = np.asarray(memoryview(a))
    np_.concatenate([np_.ones(3, int), theirs[:3]], out=a[:6])
    return a


def joined_in_one_buffer(np_: Any) -> Any:
    a = np_.arange(9.0)
    np_.concatenate([np_.ones(3), np_.frombuffer(a, np.int64)[:3]], out=a[:6])
    return a


def masked(np_: Any) -> Any:
    a = np_.arange(12.0) + 1
    bits = a.view(np.int64)
    np_.remainder(bits, 97, out=bits)
    np_.multiply(bits, 7, out=a, where=np_.arange(12) > 3)
    return bits


def masked_and_wide(np_: Any) -> Any:
    a = np_.arange(12, dtype=np.float32)
    np_.multiply(a[::-1], np_.arange(12.0), out=a, where=np_.arange(12) > 3)
    return a


def two_results(np_: Any) -> Any:
    a = np_.arange(8)
    also = a[:]
    quotient, rest = np_.divmod(a[::-1], 3, out=(a, also))
    assert quotient is a and rest is also
    return a


@pytest.mark.parametrize("where", POLICIES)
@pytest.mark.parametrize(
    "body",
    [
        *(other_steps, other_steps_downwards, one_for_all, other_way, two_axes, same_steps),
        *(other_steps_through_others, joined, joined_through_others, joined_in_one_buffer),
        *(masked, masked_and_wide, two_results),
    ],
)
def test_what_is_read_while_it_is_written_is_numpys(body: Callable[[Any], Any], where: str) -> None:
    expected = body(np)
    with alight.policy(floor=0, **POLICIES[where]):
        actual = np.asarray(body(alight))
    np.testing.assert_array_equal(actual, expected)
    jitted = alight.jit(lambda: body(np))
    for _ in range(3):
        with alight.policy(floor=0, **POLICIES[where]):
            np.testing.assert_array_equal(np.asarray(jitted()), expected)


def test_one_array_twice_is_refused_as_in_numpy() -> None:
    for np_ in (np, alight):
        with alight.policy(floor=0):
            a = np_.arange(8)
            with pytest.raises(ValueError, match="WRITEBACKIFCOPY base is read-only"):
                np_.divmod(a[::-1], 3, out=(a, a))


def over_a_read_only_view(np_: Any) -> Any:
    a = np_.arange(8)
    part = a[4:]
    part.flags.writeable = False
    bits = np_.frombuffer(part.ravel(), np.int64)
    assert not bits.flags.writeable
    bits.flags.writeable = True  # what it is a view of may be written
    bits[0] = 99
    return a, part, bits


def over_what_is_read_only(np_: Any) -> Any:
    a = np_.arange(8)
    a.flags.writeable = False
    bits = np_.frombuffer(a, np.int64)
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag to True"):
        bits.flags.writeable = True
    return a, bits


@pytest.mark.parametrize("body", [over_a_read_only_view, over_what_is_read_only])
def test_what_is_made_over_an_arrays_buffer_is_a_view_of_it(body: Callable[[Any], Any]) -> None:
    expected = body(np)
    with alight.policy(floor=0):
        for actual, wanted in zip(body(alight), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(actual), wanted)
        for _ in range(3):
            for actual, wanted in zip(alight.jit(lambda: body(np))(), expected, strict=True):
                np.testing.assert_array_equal(actual, wanted)
