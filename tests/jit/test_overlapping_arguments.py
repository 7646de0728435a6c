"""Arguments that overlap: replayed as any others, what is written in one being seen in the others
as NumPy's would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight

MODES = {
    "auto": {},
    "numpy": {"force": "cpu:numpy", "floor": 0},
    "generated": {"force": "cpu:generated", "floor": 0},
    "sim": {"force": "sim:0", "floor": 0, "devices": ["cpu", "sim:0"]},
}
Body = Callable[[Any, Any], Any]


def shifted(a: Any, b: Any) -> Any:
    a[1:] = b[:-1] * 2
    return a + b


def assigned(a: Any, b: Any) -> Any:
    b[...] = a
    a[0] = 5
    return b[::2]


def swapped(a: Any, b: Any) -> None:
    t = a.copy()
    a[...] = b
    b[...] = t


def in_place(a: Any, b: Any) -> Any:
    a += 1
    b *= 2
    a[::2] = 3
    return a, b, a[1:]


def masked(a: Any, b: Any) -> Any:
    a[b > 3] = 0
    np.add(a, 1, out=a)
    return b


def turned(a: Any, b: Any) -> Any:
    b[::-1] = b
    a[1] = a[0] + b[2]
    return np.cumsum(a)


def read(a: Any, b: Any) -> Any:
    return a[1:] * 2 + b[1:], a[:-1].sum()


def given_back(a: Any, b: Any) -> Any:
    return a, b[1:3], (a[2:5], b), a + b[0]


def parts(a: Any, b: Any) -> Any:
    return np.sqrt(a[:4]) * b[:4]


BODIES = [shifted, assigned, swapped, in_place, masked, turned, read, given_back, parts]
PAIRS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "one behind the other": lambda x: (x[:-1], x[1:]),
    "two behind": lambda x: (x[2:-1], x[1:-2]),
    "reversed": lambda x: (x, x[::-1]),
    "a part reversed": lambda x: (x[1:9], x[8:0:-1]),
    "the same": lambda x: (x, x),
    "a view of all": lambda x: (x, x[:]),
    "steps that meet": lambda x: (x[::2], x[2::2]),
    "steps that do not": lambda x: (x[::2], x[1::2]),
    "halves that meet": lambda x: (x[:8], x[4:]),
    "halves": lambda x: (x[:6], x[6:]),
    "only to be read": lambda x: (x, np.lib.stride_tricks.as_strided(x, writeable=False)),
}


def outcome(body: Body, pair: Callable[[Any], Any], x: Any) -> Any:
    """Return what comes of a call: its results, which of them lie in the arguments, and these."""
    try:
        found = body(*pair(x))
    except (IndexError, ValueError) as error:
        return str(error), x.tolist()
    results = found if isinstance(found, tuple) else (found,)
    flat = [r for part in results for r in (part if isinstance(part, tuple) else (part,))]
    told = [
        (type(r), r.dtype, r.strides, np.shares_memory(r, x), np.round(r, 9).tolist())
        for r in flat
        if r is not None
    ]
    return told, x.tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_calls_with_arguments_that_overlap_are_numpys(body: Body, mode: str) -> None:
    jitted: Any = alight.jit(body)
    with alight.policy(**MODES[mode]):  # type: ignore[arg-type]
        for number in range(5):
            for pair in PAIRS.values():
                x = np.arange(1.0, 13.0) + number
                y = x.copy()
                assert outcome(jitted, pair, y) == outcome(body, pair, x)


# All that ask for no element.
KEPT = [shifted, assigned, swapped, in_place, masked, read, parts]


@pytest.mark.parametrize("body", KEPT, ids=lambda body: body.__name__)
def test_there_are_programs_of_such_calls(body: Body) -> None:
    jitted: Any = alight.jit(body)
    with alight.policy(force="cpu:numpy", floor=0):
        for _ in range(3):
            jitted(*PAIRS["one behind the other"](np.arange(1.0, 13.0)))
        (kind,) = jitted._specializations.values()
        assert len(kind.programs) == 1


def test_what_is_read_is_told_by_how_arguments_lie() -> None:
    """A window of both arguments is one of the second here, and another one there: a program, and
    what the guard launches, are of one of these."""

    def both(a: Any, b: Any) -> Any:
        return a[3:6] * 2 + b[:3]

    jitted: Any = alight.jit(both)
    x = np.arange(20.0)
    with alight.policy(force="cpu:generated", floor=0):
        for _ in range(3):
            for start in (1, 2, 3, 4, 9, 12):
                args = x[:8], x[start : start + 8]
                assert np.array_equal(jitted(*args), both(*args))


def test_arguments_of_several_dtypes_may_share_one_memory() -> None:
    def bits(a: Any, b: Any) -> Any:
        b[1::2] = b[1::2] | 1
        return a * 2, b

    jitted: Any = alight.jit(bits)
    for mode in ("cpu:numpy", "cpu:generated"):
        with alight.policy(force=mode, floor=0):
            for number in range(4):
                x = np.arange(6.0) + number
                y = x.copy()
                got, want = jitted(y, y.view("i4")), bits(x, x.view("i4"))
                assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
                assert np.array_equal(x, y) and np.shares_memory(got[1], y)


COPIES = (
    "x[1:] = y[:-1]; return x + 1",
    "np.copyto(x[1:], y[:-1]); return x + 1",
    "x[1:], y[:-1] = y[:-1], x[1:]; return x + y",
    "x[:-1] = y[1:]; return x * 2",
)


@pytest.mark.parametrize("text", COPIES)
@pytest.mark.parametrize("policy", [{}, {"force": "cpu:generated"}, {"force": "cpu:numpy"}])
def test_a_copy_that_is_none_where_arguments_overlap_is_one_elsewhere(
    text: str, policy: dict[str, Any]
) -> None:
    names: dict[str, Any] = {"np": np}
    exec(f"def body(x, y):\n    {text}", names)
    places = ((0, 1), (1, 0), (0, 2), (0, 57), (0, 0))
    for first in places:
        for second in places:
            jitted = alight.jit(type(names["body"])(names["body"].__code__, {"np": np}))
            with alight.policy(floor=0, **policy):
                for here, there in [first] * 3 + [second] * 2 + [first, second] * 2:
                    plain, ours = np.arange(100.0), np.arange(100.0)
                    expected = names["body"](plain[here : here + 20], plain[there : there + 20])
                    result = jitted(ours[here : here + 20], ours[there : there + 20])
                    assert (result == expected).all() and (ours == plain).all(), (first, second)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        *("x[...] = v; return x + 0", "x[...] = x[::-1]; return x + 0", "x += v; return x - v"),
        *("x += v; v += x; return v * 2", "x += 1; return x * 2", "x.sort(); return x + 1"),
    ],
)
def test_arrays_that_overlap_themselves_are_numpys(text: str, overlap: bool) -> None:
    names: dict[str, Any] = {"np": np}
    exec(f"def body(x, v):\n    {text}", names)
    jitted = alight.jit(names["body"])

    def called(function: Callable[..., Any]) -> tuple[Any, Any]:
        memory = np.arange(25.0) * 7 % 5
        x = np.lib.stride_tricks.as_strided(memory, (20, 2), (8, 8))
        beside = np.lib.stride_tricks.as_strided(memory[3:], (20, 2), (8, 8))
        return function(x, beside if overlap else np.arange(40.0).reshape(20, 2)).copy(), memory

    for force in ("cpu:numpy", "cpu:generated"):
        with alight.policy(floor=0, force=force):
            for _ in range(5):
                for expected, found in zip(called(names["body"]), called(jitted), strict=True):
                    assert (expected == found).all()
