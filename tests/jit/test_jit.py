"""`@alight.jit`: NumPy in, NumPy out, whichever way a call takes: body, program, kernel, NumPy."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import pickle
import sys
import sysconfig
import threading
import time
import traceback
import types
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from numpy import zeros as make_zeros

import alight
from alight._core import _native, guard
from alight._src.adapt.contest import Contender
from alight._src.adapt.foreground import FOREGROUND, SHARE, ForegroundBudget
from alight._src.config.loading import policy
from alight._src.jit.call_phases import Phase
from alight._src.jit.call_signature import describe
from alight._src.jit.code_origin import written_by_user
from alight._src.jit.decorator import Jitted
from alight._src.jit.guarding import Lap
from alight._src.jit.host_program import HostProgram
from alight._src.jit.kernel_race import PROGRAMS as KEPT_PROGRAMS
from alight._src.jit.kernel_race import KernelRace
from alight._src.jit.purity import declare_pure, prove
from alight._src.jit.specialization import Bits, Specialization
from alight._src.log.decisions import LOG
from alight._src.run import kernels
from alight.errors import ConfigError
from hearing import collected
from preferring import be_generated

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0", "devices": ["cpu", "sim:0"]},
}
NUMPY, PLAN = Contender.NUMPY, Contender.PLAN
CALLS = 16  # enough for NumPy's turns, a trace, its program and the kernel's race


def be_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has run for long: whatever is worth measuring is measured at once."""
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(sys.modules["alight._src.jit.guarding"], "_ASK_SECONDS", 0.0)
    # Measured once a process: a moment in which that is slow would have all calls be NumPy's.
    monkeypatch.setattr(
        sys.modules["alight._src.jit.body_ending"], "_planning_seconds", lambda: 0.0
    )


def be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every run of alight's way take a minute: NumPy wins."""
    ran = Specialization.ran_alight
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: ran(self, 60.0, cold))


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    be_eager(monkeypatch)
    with policy(**MODES[request.param]):
        yield request.param


def same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, np.ndarray):
        assert (got.dtype, got.shape, got.strides) == (want.dtype, want.shape, want.strides)
        assert got.flags.writeable == want.flags.writeable
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, (float, np.floating)):
        assert got == pytest.approx(want, rel=1e-13, nan_ok=True)
    else:
        assert got == want


def agree(function: Callable[..., Any], *args: Any, calls: int = CALLS, **kwargs: Any) -> Jitted:
    """Call the function plain and jitted on equal arguments: results and arguments must agree."""
    jitted: Any = alight.jit(function)
    for _ in range(calls):
        # One deepcopy for all: arguments that overlap or are one object stay so.
        plain = copy_arguments((args, kwargs))
        ours = copy_arguments((args, kwargs))
        want = function(*plain[0], **plain[1])
        got = jitted(*ours[0], **ours[1])
        same(got, want)
        same(list(ours), list(plain))
    return jitted


def copy_arguments(tree: Any) -> Any:
    """Return a copy in which views of one array are views of one copy."""
    bases: dict[int, np.ndarray[Any, Any]] = {}

    def copied(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            base = item if item.base is None else item.base
            if id(base) not in bases:
                bases[id(base)] = np.array(base, order="K")
            new = bases[id(base)]
            if base is item:
                return new
            start = item.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            return np.ndarray(item.shape, item.dtype, new, start, item.strides)
        if isinstance(item, (tuple, list)):
            return type(item)([copied(part) for part in item])
        if isinstance(item, dict):
            return {key: copied(part) for key, part in item.items()}
        return item

    return copied(tree)


# ------------------------------------------------------------------------------ programs
def chain(a: Any, b: Any) -> Any:
    return np.sqrt(a * a + b * b) * np.exp(-a) + np.sin(b) * 0.5


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def in_place(a: Any, b: Any) -> None:
    b[1:-1] = 0.5 * (a[:-2] + a[2:])
    a += b
    a[b > 5] = -1


def heat(steps: int, u: Any) -> Any:
    for _ in range(steps):
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
    return u


def smoothed(x: Any) -> Any:
    out = np.zeros_like(x)
    out[1:] = x[:-1]
    table = make_zeros((2, len(x)))
    table[0] = out
    table[1, :] = helped(x)
    return table


def helped(x: Any) -> Any:
    padded = np.empty(len(x) + 1)
    padded[0] = 0
    padded[1:] = np.cumsum(x)
    return padded[1:] - padded[:-1]


def statistics(x: Any) -> Any:
    mean = x.mean()
    mean += 1
    spread = x.std()
    kept = mean
    mean *= 2
    return {"mean": mean, "kept": kept, "spread": [spread, x.max()], "shape": x.shape, "n": x.size}


def branching(x: Any, limit: float) -> Any:
    if x.sum() > limit:
        return x * 2
    return x - limit


def windows(x: Any) -> Any:
    y = x * 2
    return x, x[1:], y, y[::2], y


def integers(i: Any, j: Any) -> Any:
    return i // j, i % j, i << 2, (i > j).sum()


def scalars_first(a: Any) -> Any:
    total = a[0]
    total = total + a[1]
    total += a
    return total


def scalars_given(a: Any, i: Any) -> Any:
    np.putmask(i, i > 2, a.sum())  # an array without axes would not be cast
    np.put(i, [0], a.max())
    np.place(i, i == 2, a[-1])
    return i


def matrices(a: Any, b: Any) -> Any:
    c = a @ b.T
    c[0] = c.sum(axis=0)
    return np.linalg.norm(c), c, np.eye(3)[:, :2]


def broadcast(row: Any, column: Any) -> Any:
    return np.where(row > column[:, None], row, -1.0) + np.arange(row.size)


def nested(items: Any) -> Any:
    first, (second, third) = items["pair"]
    items["list"].append(first + second)
    items["sum"] = third.sum()
    return items["list"]


def complexes(x: Any) -> Any:
    z = x + 1j * x[::-1]
    return z.real, abs(z), z.conj()


RANDOM = np.random.default_rng(1)
PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (chain, (RANDOM.random(16), RANDOM.random(16))),
    (chain, (RANDOM.random((7, 5)).T, RANDOM.random((5, 1)))),
    (softmax, (RANDOM.random((4, 6)),)),
    (in_place, (np.arange(12.0), np.zeros(12))),
    (heat, (4, RANDOM.random((6, 7)))),
    (smoothed, (RANDOM.random(9),)),
    (statistics, (RANDOM.random((3, 4)),)),
    (branching, (np.arange(5.0), 3.0)),
    (branching, (np.arange(5.0), 1e9)),
    (windows, (np.arange(6.0),)),
    (integers, (np.arange(1, 9), np.arange(8, 0, -1))),
    (scalars_first, (np.arange(4.0),)),
    (scalars_given, (np.arange(4.0), np.arange(6))),
    (matrices, (RANDOM.random((3, 4)), RANDOM.random((3, 4)))),
    (broadcast, (RANDOM.random(4), RANDOM.random(3))),
    (nested, ({"pair": [np.arange(3.0), (np.ones(3), np.arange(3.0))], "list": []},)),
    (complexes, (RANDOM.random(5),)),
    (chain, (np.zeros(0), np.zeros(0))),
    (softmax, (RANDOM.random((4, 6))[::-1, ::2],)),
]


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_programs_agree_with_numpy(mode: str, function: Any, args: Any) -> None:
    agree(function, *args)


# ------------------------------------------------------------------------------ aliasing
def overlapping(a: Any, b: Any) -> Any:
    a[1:] = b[:-1] * 2
    b += 1
    return a + b


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x[:6], x[2:8]),
        lambda x: (x[::2], x[1::2]),
        lambda x: (x[:6], x[:6]),
        lambda x: (x[5::-1], x[:6]),
        lambda x: (x[:6], x[4:10].astype(x.dtype)),
    ],
)
def test_arguments_that_overlap_are_seen_in_each_other(mode: str, make: Any) -> None:
    agree(overlapping, *make(np.arange(12.0)))


def test_one_array_given_twice_is_one_array(mode: str) -> None:
    def function(a: Any, b: Any) -> Any:
        a += 1
        return a is b, b * 2

    x = np.arange(4.0)
    assert alight.jit(function)(x, x)[0] is True
    agree(function, x, x)
    agree(function, x, x.copy())


def test_results_are_the_callers_memory(mode: str) -> None:
    jitted = alight.jit(windows)
    x = np.arange(6.0)
    for _ in range(CALLS):
        same_object, view, y, stepped, again = jitted(x)
        assert same_object is x
        assert np.shares_memory(view, x) and view.base is x
        assert again is y and np.shares_memory(stepped, y) and not np.shares_memory(y, x)


def test_two_results_do_not_share_one_version(mode: str) -> None:
    def function(x: Any) -> Any:
        y = x + 1
        z = np.empty_like(y)
        z[:] = y
        x += 1
        w = np.empty_like(x)
        w[:] = x
        return y, z, w

    jitted = alight.jit(function)
    for _ in range(CALLS):
        x = np.arange(4.0)
        y, z, w = jitted(x)
        for one, other in [(y, z), (y, w), (z, w), (w, x)]:
            assert not np.shares_memory(one, other)
        same([y, z, w, x], [np.arange(1.0, 5)] * 4)


def copied_written(x: Any) -> Any:
    y = x.copy()
    y[1:-1] = 0
    return y


def both_written(x: Any) -> Any:
    y = x.copy()
    x[0] = 5
    y[1] = 7
    return y


def versions_written(x: Any) -> Any:
    x[0] = 5
    y, z = x.copy(), x.copy()
    x[1] = 6
    y[2] = 7
    return y, z


def negated_twice(x: Any) -> Any:
    y = np.negative(-x)
    y[1] = 7
    return y


@pytest.mark.parametrize(
    "function", [copied_written, both_written, versions_written, negated_twice]
)
def test_what_is_written_into_a_copy_is_in_no_argument(mode: str, function: Any) -> None:
    agree(function, np.arange(12.0))
    agree(function, np.arange(12.0).reshape(4, 3))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("a[0] = 1.0", "assignment destination is read-only"),
        ("a += 1.0", "output array is read-only"),
        ("a[::2][:] = 3.0", "assignment destination is read-only"),
        ("np.add(a, 1.0, out=a)", "output array is read-only"),
        ("a[a > 1.0] = 0.0", "assignment destination is read-only"),
        ("np.copyto(a, 3.0)", "assignment destination is read-only"),
        ("a.sort()", "sort array is read-only"),
        ("a.fill(3.0)", "assignment destination is read-only"),
        ("np.cumsum(a, out=a)", "is read-only"),  # NumPy 2.1 words it otherwise
        ("a.T.real[...] = 1.0", "assignment destination is read-only"),
    ],
)
def test_arguments_that_are_read_only_refuse_writes(mode: str, statement: str, words: str) -> None:
    names: dict[str, Any] = {"np": np}
    exec(f"def function(a):\n    {statement}\n    return a * 2", names)
    jitted = alight.jit(names["function"])
    x = np.arange(3.0)
    x.flags.writeable = False
    for _ in range(4):  # also once the function has done as much in an array of its own
        told = []
        for function in (names["function"], jitted):
            with pytest.raises(ValueError, match=words) as caught:
                function(x)
            told.append(str(caught.value))
        assert told[0] == told[1]
        assert x.tolist() == [0.0, 1.0, 2.0]
        jitted(np.arange(3.0))


def test_a_body_makes_its_arguments_writeable_where_numpy_does(mode: str) -> None:
    def plain(a: Any, left: bool) -> Any:
        a.setflags(write=True)
        a[0] = 7.0
        a.flags.writeable = left
        return a * 2

    jitted = alight.jit(plain)
    owner = np.arange(3.0)
    owner.flags.writeable = False
    for left in (True, False, True):
        x, y = np.arange(3.0), np.arange(3.0)
        x.flags.writeable = y.flags.writeable = False
        assert jitted(x, left).tolist() == plain(y, left).tolist() == [14.0, 2.0, 4.0]
        assert x.tolist() == y.tolist() and x.flags.writeable is y.flags.writeable is left
        for function in (jitted, plain):  # what owns the memory is locked
            with pytest.raises(ValueError, match="cannot set WRITEABLE flag to True"):
                function(owner[:2], left)


def test_arguments_own_their_memory_where_they_do_outside(mode: str) -> None:
    def plain(x: Any, y: Any = None) -> Any:
        x[1] = 5.0
        own = np.require(x, requirements="O")
        own[0] = 9.0
        whole = x.base is None, x[:].base is None, x[:].flags.owndata
        cuts = x[1:], x[None], x.T, x.view(np.int64)
        based = [cut.base is x and cut[:1].base is x for cut in cuts]
        return own is x, whole, based, x.flags.owndata, y is None or y.flags["OWNDATA"]

    jitted = alight.jit(plain)
    for cut in (slice(None), slice(1, None), slice(None, None, 2)):
        for _ in range(3):
            x, y = np.arange(6.0), np.arange(6.0)
            whole = cut == slice(None)
            given = (x if whole else x[cut], y if whole else y[cut])
            assert jitted(given[0]) == plain(given[1])
            assert x.tolist() == y.tolist()
            assert jitted(given[0], x[2:]) == plain(given[1], y[2:])
            assert jitted(x[2:], x) == plain(y[2:], y)
            assert x.tolist() == y.tolist()


def test_ufunc_at_writes_into_nothing_that_is_read_only(mode: str) -> None:
    # NumPy's does, and says nothing: dropping what it wrote would be as silent.
    def function(a: Any) -> None:
        np.add.at(a, [0, 0], 1.0)

    x = np.arange(3.0)
    x.flags.writeable = False
    with policy(floor=0), pytest.raises(ValueError, match="destination is read-only"):
        alight.jit(function)(x)
    ours = alight.asarray(x)
    ours.flags.writeable = False
    with pytest.raises(ValueError, match="destination is read-only"):
        alight.add.at(ours, [0], 1.0)
    assert x.tolist() == ours.tolist() == [0.0, 1.0, 2.0]


def test_structured_and_object_arrays_pass_as_they_are(mode: str) -> None:
    records = np.zeros(3, [("a", float), ("b", int)])
    field = records["a"]

    def function(record: Any, column: Any, anything: Any) -> Any:
        column += 2
        return record["a"].sum(), anything[0]

    got = alight.jit(function)(records, field, np.array([None, "x"], object))
    assert got == (6.0, None) and field[0] == 2


SEEN = np.arange(4.0)


def reads_global(x: Any) -> Any:
    x += 1
    return SEEN.sum()


def test_a_global_that_is_an_argument_too(mode: str) -> None:
    for _ in range(3):
        SEEN[:] = range(4)
        assert alight.jit(reads_global)(SEEN) == 10.0
        assert alight.jit(reads_global)(SEEN[:2]) == 12.0


class Model:
    def __init__(self) -> None:
        self.state = np.zeros(4)

    @alight.jit
    def step(self, amount: Any) -> Any:
        amount[:] = amount * 2
        self.state = self.state + amount
        return self.state.sum()


def test_methods_can_be_jitted(mode: str) -> None:
    model = Model()
    assert [float(model.step(np.ones(4))) for _ in range(3)] == [8.0, 16.0, 24.0]
    assert isinstance(Model.step, Jitted)
    shared = model.state = np.ones(4)
    assert float(model.step(shared)) == 16.0  # the body sees its own change through self.state


# ------------------------------------------------------------------------------ inside
behind = type  # what a body calls `type` says what the program knows arrays as


def test_what_the_body_sees(mode: str) -> None:
    found: list[Any] = []

    def function(x: Any) -> Any:
        made = np.zeros(x.size)
        found.append((type(x), isinstance(x, np.ndarray), type(made), type(helped(x)), np.pi))
        found.append([behind(item) for item in (x, made, helped(x))])
        return x.sum()

    x = np.arange(3.0)
    with policy(floor=0):
        assert type(alight.jit(function)(x)) is np.float64
    assert found == [(np.ndarray, True, np.ndarray, np.ndarray, np.pi), [alight.Array] * 3]
    assert np.zeros is not make_zeros or type(np.zeros(1)) is np.ndarray


def counting(x: Any) -> Any:
    global COUNT
    COUNT += 1
    return np.zeros(x.shape) + x


COUNT = 0


def test_a_record_of_outside_is_read_at_every_call() -> None:
    settings = np.zeros((), [("scale", "f8")])[()]

    @alight.jit
    def scaled(x: Any) -> Any:
        return x * settings["scale"]

    x = np.arange(1.0, 5.0)
    with alight.policy(floor=0, force="cpu:generated"):
        for scale in (2.0, 2.0, 3.0):
            settings["scale"] = scale
            np.testing.assert_array_equal(scaled(x), x * scale)


def test_globals_can_be_assigned(mode: str) -> None:
    before = COUNT
    agree(counting, np.arange(3.0), calls=2)
    assert before + 4 == COUNT


def test_closures_and_nested_functions_are_jitted_too(mode: str) -> None:
    scale = 2.0

    def inner(x: Any) -> Any:
        return np.ones_like(x) * scale

    def function(x: Any) -> Any:
        def innermost(y: Any) -> Any:
            return inner(y) + x

        return [innermost(row) for row in (x, x + 1)]

    agree(function, np.arange(3.0))


def test_a_jitted_function_may_call_itself(mode: str) -> None:
    namespace: dict[str, Any] = {"np": np}
    exec("def f(x, n):\n    return x if n == 0 else f(x * 2, n - 1) + np.ones(x.shape)", namespace)
    plain = namespace["f"]
    want = plain(np.arange(3.0), 4)
    jitted = namespace["f"] = alight.jit(plain)
    for _ in range(CALLS):
        same(jitted(np.arange(3.0), 4), want)


def test_a_jitted_function_may_call_another(mode: str) -> None:
    inner = alight.jit(chain)

    def outer(a: Any) -> Any:
        a += inner(a, a)
        return inner(a, np.ones(3))

    agree(outer, np.arange(3.0))


def test_named_tuples_keywords_and_defaults_are_kept(mode: str) -> None:
    Pair = namedtuple("Pair", "left right")

    def function(a: Any, *rest: Any, scale: float = 2.0, **more: Any) -> Any:
        return Pair(a * scale, [r + more.get("shift", 0) for r in rest])

    agree(function, np.arange(3.0))
    agree(function, np.arange(3.0), np.ones(2), scale=3.0, shift=np.ones(2))


def test_arrays_of_ours_as_arguments_give_arrays_of_ours(mode: str) -> None:
    x = alight.asarray(np.arange(4.0))
    other = np.ones(4)

    def function(a: Any, b: Any) -> Any:
        b += a
        return a * 2, a.sum(), b

    doubled, total, same_b = alight.jit(function)(x, other)
    assert type(doubled) is alight.Array and type(total) is alight.Array and same_b is other
    assert doubled.storage.value.op is None  # all work is done
    same(np.asarray(doubled), np.arange(4.0) * 2)
    same(other, np.arange(4.0) + 1)


# ------------------------------------------------------------------------------ errors
def failing(x: Any) -> Any:
    x[0] = 7
    y = x + np.ones(len(x) + 1)  # this line
    return y


def test_errors_are_numpys_at_the_users_line(mode: str) -> None:
    jitted = alight.jit(failing)
    for _ in range(CALLS):
        x = np.arange(3.0)
        with pytest.raises(ValueError) as plain:
            failing(x.copy())
        with pytest.raises(ValueError) as ours:
            jitted(x)
        assert str(ours.value) == str(plain.value)
        lines = [frame.line for frame in traceback.extract_tb(ours.value.__traceback__)]
        assert any("# this line" in (line or "") for line in lines)
        assert x[0] == 7  # what was assigned before is in the caller's memory


def test_a_wrong_number_of_arguments_is_an_error(mode: str) -> None:
    with pytest.raises(TypeError, match=r"chain\(\) missing 1 required positional argument: 'b'"):
        alight.jit(chain)(np.ones(2))


def test_warnings_come_at_every_call_with_the_users_line(mode: str) -> None:
    def function(a: Any, b: Any) -> Any:
        return a / b + 1.0

    jitted = alight.jit(function)
    a = np.ones(4)
    for number in range(CALLS):
        b = np.array([1.0, 1.0, 1.0, number % 2])
        with collected() as caught:
            result = jitted(a, b)
        assert result[3] == (2.0 if number % 2 else np.inf)
        messages = [str(w.message) for w in caught]
        assert messages == ([] if number % 2 else ["divide by zero encountered in divide"])
        assert all(w.filename == __file__ for w in caught)
        with np.errstate(divide="raise"):
            if number % 2 == 0:
                with pytest.raises(FloatingPointError):
                    jitted(a, b)


def test_filters_around_a_call_are_those_of_its_ops(mode: str) -> None:
    jitted = alight.jit(lambda a, b: a / b + 1.0)
    a, b = np.ones(4), np.array([1.0, 1.0, 1.0, 0.0])
    for _ in range(CALLS):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="divide by zero encountered in divide"):
                jitted(a, b)
        with collected() as caught:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                jitted(a, b)
            assert not caught
            assert jitted(a, b)[3] == np.inf
        assert [str(w.message) for w in caught] == ["divide by zero encountered in divide"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            jitted(a, b)
            assert [str(w.message) for w in caught] == ["divide by zero encountered in divide"]


def test_filters_inside_of_a_call_hold_there(mode: str) -> None:
    def share(a: Any, b: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return a / b
            except RuntimeWarning:
                return a * 0

    def function(a: Any, b: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            c = np.log(a - 1)
        return share(a, b) + 1.0, c

    jitted = alight.jit(function)
    a = np.ones(4)
    for number in range(CALLS):
        b = np.array([1.0, 1.0, 1.0, number % 2])
        with collected() as caught:
            result = jitted(a, b)
        np.testing.assert_array_equal(result, function(a, b))
        assert not caught


def _frames(error: BaseException) -> list[str]:
    found = traceback.extract_tb(error.__traceback__)
    return [f.name for f in found]


def test_tracebacks_hold_the_programs_frames_only(mode: str) -> None:
    def add(a: Any, b: Any) -> Any:
        return a * 2 + b

    def solve(a: Any, b: Any) -> Any:
        return np.linalg.solve(a[:, None] * a, a)

    def own(a: Any, b: Any) -> Any:
        try:
            add(a, b)
        except ValueError as error:
            raise KeyError("mine") from error

    @alight.jit
    def outer(a: Any, b: Any) -> Any:
        return inner(a, b)

    inner = alight.jit(add)
    a, b = np.ones(3), np.ones(4)
    for function in (add, solve, own):
        with pytest.raises(Exception) as plain:
            function(a, b)
        jitted = alight.jit(function)
        for _ in range(CALLS):
            with pytest.raises(plain.type) as caught:
                jitted(a, b)
            assert _frames(caught.value) == _frames(plain.value)
            if function is own:
                assert _frames(caught.value.__cause__) == ["own", "add"]  # type: ignore[arg-type]
    with pytest.raises(ValueError) as caught:
        outer(a, b)
    assert _frames(caught.value)[1:] == ["outer", "add"]


def test_tracebacks_of_faults_and_with_a_log_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(a: Any, b: Any) -> Any:
        return a + b

    with monkeypatch.context() as patch:
        patch.setitem(vars(sys.modules["alight._src.jit.dispatch"]), "describe", None)
        with pytest.raises(TypeError) as fault:
            alight.jit(add)(np.ones(3), np.ones(3))
    assert _frames(fault.value)[-2:] == ["miss", "_called"]
    logged = types.SimpleNamespace(log_level="trace")
    monkeypatch.setattr("alight._src.record.tracebacks.config", lambda: logged)
    with pytest.raises(ValueError) as caught:
        alight.jit(add)(np.ones(3), np.ones(4))
    assert "miss" in _frames(caught.value)


@pytest.mark.parametrize("bad", [np.sin, int, 3, staticmethod(chain)])
def test_what_cannot_be_jitted(bad: Any) -> None:
    with pytest.raises(TypeError, match="Fix:"):
        alight.jit(bad)


def test_what_jit_does_not_take_is_told() -> None:
    asked: Any = alight.jit
    for given in ((), (chain,)):
        with pytest.raises(TypeError, match=r"'purr' is not .* of it. Fix: leave it out; pure= is"):
            asked(*given, purr=True)
    with pytest.raises(ConfigError, match=r"argument pure: 'no' is not True or False. Fix: "):
        asked(chain, pure="no")


def test_generators_and_coroutines_are_refused() -> None:
    def generator() -> Any:
        yield 1

    async def coroutine() -> None:
        pass

    for function in (generator, coroutine):
        with pytest.raises(TypeError, match=r"runs after the call has returned. Fix:"):
            alight.jit(function)


# ------------------------------------------------------------------------------ the object
def test_the_face_of_the_function() -> None:
    jitted: Any = alight.jit(chain)
    assert (jitted.__name__, jitted.__module__, jitted.__wrapped__) == ("chain", __name__, chain)
    assert alight.jit(jitted) is jitted and alight.jit(pure=True)(jitted).declared_pure
    assert pickle.loads(pickle.dumps(Model.step.__get__(None, Model))) is Model.step
    assert copy.deepcopy(jitted) is jitted


def test_threads_may_call_one_jitted_function(mode: str) -> None:
    jitted = alight.jit(chain)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            with policy(**MODES[mode]):
                for size in (3, 16, 16, 16, 5, 16, 16):
                    a, b = random.random(size), random.random(size)
                    same(jitted(a, b), chain(a, b))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_a_race_may_be_ended_by_another_thread_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    a, b = np.random.default_rng(1).random((2, 4096))
    agree(chain, a, b)  # makes the kernels: they are raced before ours was run
    jitted: Any = alight.jit(chain)
    race, came, ended = Jitted.race_kernels, threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def in_turn(self: Jitted, *args: Any) -> Any:
        if threading.current_thread() is other:
            # It has seen that there was no race yet, and goes on when there was one.
            came.set()
            assert ended.wait(60)
            return race(self, *args)
        result = race(self, *args)
        ended.set()
        other.join()
        return result

    def call() -> None:
        try:
            while not came.is_set():
                same(jitted(a, b), chain(a, b))
        except BaseException as error:
            failures.append(error)

    other = threading.Thread(target=call)
    monkeypatch.setattr(Jitted, "race_kernels", in_turn)
    other.start()
    assert came.wait(60)
    while not ended.is_set():
        same(jitted(a, b), chain(a, b))
    if failures:
        raise failures[0]


# ------------------------------------------------------------------------------ purity
SETTING = 2.0
TABLE = [1.0, 2.0]
LOCAL = types.ModuleType("local")
LOCAL.factor = 3.0  # type: ignore[attr-defined]


def noted(x: Any) -> Any:
    TABLE.append(0.0)
    return x * len(TABLE)


def looked_up(x: Any) -> Any:
    return x * TABLE[0]


def drawn(x: Any) -> Any:
    return x + np.random.random(x.shape)


def printed(x: Any) -> Any:
    print("called")
    return x * 2


def remembered(x: Any, seen: list[Any] = []) -> Any:  # noqa: B006
    return x * len(seen)


def attribute(x: Any) -> Any:
    attribute.values = x  # type: ignore[attr-defined]
    return x * 2


def indirect(x: Any) -> Any:
    return printed(x) + 1


def imported(x: Any) -> Any:
    import time

    return x * time.perf_counter()


def guarded(x: Any) -> Any:
    try:
        return x * 2
    except ValueError:
        return x


def read_array(x: Any) -> Any:
    return x + SEEN


@pytest.mark.parametrize(
    "function",
    [
        *(noted, looked_up, drawn, printed, remembered, attribute, indirect, imported, guarded),
        *(read_array, counting),
    ],
)
def test_not_proven_pure_and_run_at_every_call(
    mode: str, function: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not prove(function).pure
    x = np.arange(4.0)
    jitted = alight.jit(function)
    before = len(TABLE), COUNT
    for _ in range(CALLS):
        TABLE[0] += 1
        SEEN[:] += 1
        remembered.__defaults__[0].append(1)  # type: ignore[index]
        result = jitted(x)
        if function in (looked_up, remembered, read_array):
            same(result, function(x))
    if function is drawn:
        assert not np.array_equal(jitted(x), jitted(x))
    assert len(TABLE) - before[0] == (CALLS if function is noted else 0)
    assert COUNT - before[1] == (CALLS if function is counting else 0)
    assert capsys.readouterr().out.count("called") == (
        CALLS if function in (printed, indirect) else 0
    )


def pure_helper(x: Any) -> Any:
    return np.where(x > 1, x, 0.0) * SETTING * LOCAL.factor


def pure_outer(x: Any, n: int = 2) -> Any:
    if x.ndim != 1:
        raise ValueError(f"one axis, not {x.ndim}")
    out = np.zeros(x.shape, dtype=np.float64)
    out[1:] = pure_helper(x)[1:] ** n
    return out, x.T.reshape(-1, 1), len(x)


@pytest.mark.parametrize("function", [chain, softmax, pure_outer, in_place, statistics, heat])
def test_bodies_that_only_compute_are_proven_pure(function: Any) -> None:
    proof = prove(function)
    assert proof.pure, proof.reason
    assert (proof.ops is None) == (function is heat)


def test_how_much_a_proven_function_does() -> None:
    def twice(x: Any) -> Any:
        return pure_helper(x) - pure_helper(-x)

    helper, both = prove(pure_helper).ops, prove(twice).ops
    assert helper is not None and both is not None
    assert helper >= 4  # a comparison, `where` and two products
    assert both >= 2 * helper + 2
    assert declare_pure(looked_up).ops == math.inf  # what it calls was not looked into


def programs(jitted: Any) -> int:
    return sum(len(kind.programs) for kind in jitted._specializations.values())


def test_a_pure_body_is_not_run_again(mode: str) -> None:
    jitted: Any = agree(chain, np.arange(16.0), np.ones(16))
    assert programs(jitted) == 1


def test_declared_pure_is_believed(mode: str) -> None:
    ran: list[int] = []

    @alight.jit(pure=True)
    def function(x: Any) -> Any:
        ran.append(1)
        return x * 2 + 1

    with policy(floor=0, force="numpy" if mode == "auto" else policy_force(mode)):
        for number in range(5):
            same(function(np.arange(4.0) + number), (np.arange(4.0) + number) * 2 + 1)
    assert len(ran) == 1


def policy_force(mode: str) -> str:
    return str(MODES[mode]["force"])


# --- functions of installed packages: proven from their bytecode, as the program's own are
PACKAGE = """
import functools, time
import numpy as np

STATE = {"calls": 0}
NUMBER = 0
ARRAY = np.ones(4)

def plain(x):
    return _scaled(np.sqrt(x * x + 1.0), 2.0)

def _scaled(x, by=1.0):
    return x * by

def made(x):
    out = np.zeros(x.shape)  # NumPy's own here: its names are swapped in the program's functions
    out[1:] = x[1:] * 2
    return out + np.arange(x.size)

def counted(x):
    STATE["calls"] += 1
    return x * STATE["calls"]

def numbered(x):
    global NUMBER
    NUMBER += 1
    return x * NUMBER

def reading(x):
    return x + ARRAY

def remembering(x, kept=[]):
    kept.append(len(kept))
    return x * len(kept)

def own(x):
    own.calls = getattr(own, "calls", 0) + 1
    return x * own.calls

@functools.lru_cache
def _drawn(n):
    return STATE["calls"] + n

def cached(x):
    return x * _drawn(x.ndim)

def timed(x):
    return x * (time.perf_counter() > 0)

def random(x):
    return x + np.random.random(x.shape) * 0

def shown(x):
    with np.errstate(all="ignore"):
        return x * np.get_printoptions()["precision"]

def asked(x):
    return x * 2 if np.asarray(x).max() > 5 else x * 3

def branching(x):
    return x * 2 if x[0] > 5 else x * 3

def shown_as(x):
    kinds = [isinstance(part, np.ndarray) for part in (x, x + 1)]
    return x * 2 if all(kinds) and not isinstance(x.sum(), np.ndarray) else x * 3
"""


@pytest.fixture
def package() -> types.SimpleNamespace:
    """A module as if it had been installed."""
    names: dict[str, Any] = {"__name__": "some_package"}
    path = f"{sysconfig.get_path('purelib')}/some_package/__init__.py"
    exec(compile(PACKAGE, path, "exec"), names)
    return types.SimpleNamespace(**{k: v for k, v in names.items() if k[0] != "_"}, names=names)


def test_a_packages_function_is_pure_by_its_bytecode(mode: str, package: Any) -> None:
    assert not written_by_user(package.plain)

    def function(x: Any) -> Any:
        return package_function(x) + 1.0

    package_function = package.plain
    jitted: Any = agree(function, np.arange(16.0))
    assert programs(jitted) == 1
    package.names["_scaled"] = lambda x, by: x + by  # what it calls is guarded, too
    agree_again(jitted, function, np.arange(16.0))


def test_a_packages_function_that_is_looked_into_sees_ndarrays(mode: str, package: Any) -> None:
    def function(x: Any) -> Any:
        return package_function(x) + 1.0

    package_function = package.shown_as
    agree(package_function, np.arange(16.0))
    agree(function, np.arange(16.0))


def agree_again(jitted: Any, function: Any, x: Any) -> None:
    for number in range(CALLS):
        same(jitted(x + number), function(x + number))


@pytest.mark.parametrize(
    "name",
    [
        *("counted", "numbered", "reading", "remembering", "own", "cached", "timed", "random"),
        *("shown",),
    ],
)
def test_a_packages_function_that_is_not_pure_runs_at_every_call(
    mode: str, package: Any, name: str
) -> None:
    package_function = getattr(package, name)

    def function(x: Any) -> Any:
        return package_function(x) + 1.0

    proof = prove(function)
    assert not proof.pure and proof.reason
    jitted = alight.jit(function)
    x = np.arange(1.0, 5.0)
    states = []
    for _ in range(CALLS):
        package.ARRAY[:] += 1
        states.append((jitted(x) - 1) / x)
    if name in ("counted", "numbered", "remembering", "own"):
        # NumPy may be timed beside ours, but no call goes without the body
        assert all(b[0] > a[0] for a, b in pairwise(states))
    if name == "reading":
        same(jitted(x), function(x))


@pytest.mark.parametrize("name", ["made", "asked", "branching"])
def test_what_a_packages_function_asks_of_elements_is_noticed(
    mode: str, package: Any, name: str
) -> None:
    package_function = getattr(package, name)

    def function(x: Any) -> Any:
        return package_function(x) + 1.0

    jitted = alight.jit(function)
    for _ in range(3):
        agree_again(jitted, function, np.arange(8.0) - 9.0)
        agree_again(jitted, function, np.arange(8.0))


@pytest.mark.parametrize(
    "function",
    [
        *(np.get_printoptions, np.set_printoptions, np.geterr, np.seterr, np.load, np.save),
        *(np.random.seed, np.random.random, np.fromfile, np.getbufsize, np.vectorize),
        *(alight.evaluate, alight.explain, alight.policy, alight.report),
        *(alight.random.default_rng, alight.jit, time.perf_counter, os.getpid, warnings.warn),
    ],
)
def test_functions_that_look_or_write_outside_are_never_proven(function: Any) -> None:
    assert not prove(lambda x: function(x)).pure


def test_a_function_that_is_called_often_is_looked_into_once() -> None:
    names: dict[str, Any] = {"f0": lambda x: x + 1}
    for number in range(60):  # 2**60 calls, if each were followed
        exec(f"def f{number + 1}(x): return f{number}(f{number}(x))", names)
    proof = prove(names["f60"])
    assert proof.pure and proof.ops == 3 * 2**60 - 2  # two calls each, and one addition


# ------------------------------------------------------------------------------ guards
def test_guards_see_changed_globals_closures_and_attributes(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = 1.0

    def function(x: Any) -> Any:
        return pure_helper(x) + offset

    jitted = alight.jit(function)
    x = np.arange(4.0)

    def check() -> None:
        for _ in range(CALLS):
            same(jitted(x), function(x))

    check()
    assert programs(jitted) == 1
    monkeypatch.setitem(globals(), "SETTING", 5.0)
    check()
    offset = 7.0
    check()
    monkeypatch.setattr(LOCAL, "factor", -1.0)
    check()
    monkeypatch.setitem(globals(), "pure_helper", lambda x: x - 1)
    check()
    monkeypatch.setattr(np, "where", lambda *a: 0.0)
    monkeypatch.undo()
    check()


def test_guards_on_what_functions_are_made_of(mode: str) -> None:
    def helper(x: Any, by: float = 2.0) -> Any:
        return x * by

    def keyed(x: Any, *, plus: float = 1.0) -> Any:
        return x + plus

    @alight.jit
    def inner(x: Any, less: float = 0.5) -> Any:
        return x - less

    @alight.jit(pure=True)
    def declared(x: Any, over: float = 4.0) -> Any:
        return x / over

    def function(x: Any, power: float = 2.0) -> Any:
        return declared(inner(keyed(helper(x)))) ** power

    jitted: Any = alight.jit(function)
    x = np.arange(4.0)

    def check() -> None:
        for _ in range(CALLS):
            same(jitted(x), function(x))

    def other(x: Any, power: float) -> Any:
        return declared(keyed(inner(helper(x)))) * power

    check()
    seen = [jitted(x)]
    for change in (
        lambda: setattr(jitted, "__defaults__", (3.0,)),
        lambda: setattr(function, "__defaults__", (2.5,)),
        lambda: setattr(helper, "__defaults__", (5.0,)),
        lambda: setattr(keyed, "__kwdefaults__", {"plus": 3.0}),
        lambda: keyed.__kwdefaults__.update(plus=4.0),
        lambda: setattr(inner, "__defaults__", (0.25,)),
        lambda: setattr(declared, "__defaults__", (8.0,)),
        lambda: setattr(helper, "__code__", (lambda x, by: x * by * by).__code__),
        lambda: setattr(jitted, "__code__", other.__code__),
    ):
        change()
        check()
        seen.append(jitted(x))
    # Each was seen; the last one computes something else altogether.
    assert all(not np.array_equal(one, other) for one, other in pairwise(seen))


def test_guards_see_changed_layouts_scalars_and_types(mode: str) -> None:
    def function(x: Any, k: Any) -> Any:
        return x * k + x.strides[0] + x.shape[0]

    jitted = alight.jit(function)
    base = np.arange(24.0).reshape(4, 6)
    for _ in range(4):
        for x in (base, base.T, base[::2], base[:, ::-1], base.astype(np.float32), base[0]):
            for k in (2, 2.0, np.float32(2), True, 0.0, -0.0, np.nan, 2 + 0j):
                got, want = jitted(x, k), function(x, k)
                assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=True)
    for _ in range(CALLS):
        assert (
            np.signbit(jitted(np.zeros(3), -0.0) * 1).any()
            == np.signbit(function(np.zeros(3), -0.0)).any()
        )


def test_the_sign_of_a_zero_is_guarded(mode: str) -> None:
    def function(x: Any, k: Any) -> Any:
        return np.copysign(x, k)

    jitted = alight.jit(function)
    for _ in range(CALLS):
        for k in (0.0, -0.0):
            assert np.array_equal(jitted(np.ones(3), k), function(np.ones(3), k))


def test_guards_see_whether_arguments_overlap(mode: str) -> None:
    jitted = alight.jit(overlapping)
    for number in range(3 * CALLS):
        x, y = np.arange(12.0), np.arange(12.0)
        shift = number % 3  # apart, overlapping, the very same
        args = [(x[:6], x[6:]), (x[:6], x[2:8]), (x[:6], x[:6])][shift]
        plain = [(y[:6], y[6:]), (y[:6], y[2:8]), (y[:6], y[:6])][shift]
        same(jitted(*args), overlapping(*plain))
        same(x, y)


def test_values_that_are_branched_on_are_looked_at(mode: str) -> None:
    jitted = alight.jit(branching)
    for number in range(2 * CALLS):
        x = np.arange(5.0) * (-1) ** number
        same(jitted(x, 3.0), branching(x, 3.0))
    assert programs(jitted) == 0


def test_unaligned_arrays_are_numpys_to_compute(mode: str) -> None:
    raw = np.zeros(8 * 4 + 1, np.uint8)
    x = raw[1:].view(np.float64)
    agree(chain, np.arange(4.0), np.ones(4))
    assert not x.flags.aligned and describe((x,), {}) is None
    same(alight.jit(chain)(x, np.ones(4)), chain(x, np.ones(4)))


# ------------------------------------------------------------------------------ ways and log
def test_the_guard_launches_and_the_log_counts() -> None:
    jitted: Any = alight.jit(chain)
    a, b = np.arange(16.0), np.ones(16)
    with policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            jitted(a, b)
        before = LOG.snapshot()
        calls: list[Any] = []
        jitted.miss = lambda *args: calls.append(args)
        for _ in range(100):
            jitted(a, b)
    after = LOG.snapshot()
    assert calls == []
    assert after.decisions - before.decisions == 100
    assert after.counts["launches"] - before.counts["launches"] == 100
    key = ("generated", "cpu")
    assert after.elements[key] - before.elements[key] == 100 * 16 * 10
    record = after.records[-1]
    assert record.decision.implementation == "generated" and (record.seconds or 0) > 0


@pytest.mark.parametrize("mode", ["auto", "generated"], indirect=True)
def test_the_guard_answers_every_kind_of_call_it_has_met(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    lap = Lap(1e-9, NotImplemented)
    monkeypatch.setattr(sys.modules["alight._src.jit.guarding"], "_lap", lambda *given: lap)
    jitted: Any = alight.jit(chain)
    given = [(np.arange(float(n)), np.ones(n)) for n in range(20, 45)]
    for args in given:
        for _ in range(CALLS):
            jitted(*args)
            kernels.settle()
    missed: list[Any] = []
    called = jitted._called
    jitted._called = lambda args, kwargs: missed.append(args) or called(args, kwargs)
    for args in given * 2:
        same(jitted(*args), chain(*args))
    assert missed == []
    # What has gone for others comes back when it is called.
    jitted.clear()
    for args in given * 3:
        same(jitted(*args), chain(*args))
    assert len(missed) == len(given)


def test_a_site_that_loses_is_numpys_and_the_log_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    be_slow(monkeypatch)

    def doubled(x: Any) -> Any:
        x[1:] = x[:-1] * 2.0  # what writes into its arguments is not the guard's to launch
        return x

    agree(doubled, np.arange(50.0))
    told = [d for d in LOG.snapshot().demotions if "doubled" in d.what]
    assert told and "NumPy took" in told[0].reason
    assert (told[0].call_site or "").startswith(__file__)


def test_what_is_numpys_all_the_same_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    x = np.random.default_rng(0).random(300_000)
    jitted: Any = agree(lambda v: np.sort(v), x)
    (kind,) = jitted._specializations.values()
    # Once recorded, never raced: what would be timed is the same call, twice.
    assert (kind.phase, kind.alight_seconds) == (Phase.ON_NUMPY, [])
    why = "alight would have NumPy do every part of it, too"
    assert any(d.reason == why for d in LOG.snapshot().demotions)
    jitted = agree(lambda v: np.sort(v) * 2.0, x)
    (kind,) = jitted._specializations.values()
    assert kind.alight_seconds


def test_keywords_in_the_place_of_positions_are_the_guards_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)

    def scaled(a: Any, b: Any, /, c: Any = 2.0, d: Any = 3.0, *rest: Any, e: Any = 0.0) -> Any:
        return a * c + b * d + sum(rest) + e

    x, y = np.random.default_rng(0).random((2, 1000))
    jitted: Any = agree(scaled, x, y, c=4.0)
    agree(scaled, x, y, d=4.0)
    agree(scaled, x, y, 5.0, d=4.0, e=1.0)
    agree(scaled, x, y, 5.0, 6.0, 7.0, e=1.0)
    kernels.settle()
    for _ in range(CALLS):
        jitted(x, y, c=4.0)
    module = sys.modules["alight._src.jit.dispatch"]
    monkeypatch.setattr(module, "describe", lambda *given: pytest.fail(f"not known: {given}"))
    same(jitted(x, y, c=4.0), scaled(x, y, c=4.0))  # the guard knows what is by position
    monkeypatch.undo()
    for wrong in ({"a": x}, {"c": 1.0, "f": 2.0}):
        with pytest.raises(TypeError) as want:
            scaled(x, y, **wrong)
        with pytest.raises(TypeError) as got:
            jitted(x, y, **wrong)
        assert str(got.value) == str(want.value)
    with pytest.raises(TypeError, match="positional-only"):
        jitted(x, b=y)


def test_numpy_has_the_calls_while_kernels_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    at_hand = False
    for module in ("jit.guarding", "run.prepared_step"):
        where = sys.modules[f"alight._src.{module}"]
        monkeypatch.setattr(where, "kernel_at_hand", lambda step: at_hand)
    ran: list[Any] = []
    traced = Specialization.traced
    monkeypatch.setattr(
        Specialization, "traced", lambda *given: ran.append(given) or traced(*given)
    )
    run = HostProgram.run
    monkeypatch.setattr(HostProgram, "run", lambda *given: ran.append(given) or run(*given))
    x, y = np.random.default_rng(0).random((2, 300_000))
    jitted: Any = agree(lambda a, b: np.sort(a * 2.0 + b) - 1.0, x, y)
    (kind,) = jitted._specializations.values()
    (program,) = kind.programs.values()
    assert len(program.plan.steps) == 3
    # It was recorded once, and not run again with NumPy in the place of its kernels.
    assert (kind.phase, kind.alight_seconds, len(ran)) == (Phase.TRACED, [], 1)
    kernels.settle()
    at_hand = True
    agreed = [jitted(x, y) for _ in range(CALLS)]
    assert all(np.array_equal(a, np.sort(x * 2.0 + y) - 1.0) for a in agreed)
    assert kind.alight_seconds


def test_small_work_waits_until_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FOREGROUND, "spent_seconds", 1e9)
    # What a trace was seen to take is the process's: earlier tests leave a millisecond, and calls
    # that the machine interrupts take as long.
    monkeypatch.setattr(FOREGROUND, "trace_seconds", 60.0)
    jitted: Any = agree(chain, np.arange(16.0), np.ones(16))
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.WAITING and programs(jitted) == 0
    kind.spent_seconds = 61.0  # as long as looking would take
    assert kind.waits(5)
    kind.spent_seconds = 61.0 / SHARE
    assert not kind.waits(5)


def test_long_work_on_small_arrays_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances between few points: what looking costs goes with the operations, not with the
    time that NumPy takes for them. Of how many nobody knows it is some milliseconds."""
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    monkeypatch.setattr(FOREGROUND, "spent_seconds", 0.0)
    monkeypatch.setattr(FOREGROUND, "trace_seconds", 0.005)
    monkeypatch.setattr(FOREGROUND, "loading_seconds", 0.0)

    def waits(numpy_seconds: float, ops: float | None) -> bool:
        kind = Specialization(Phase.WAITING)
        for _ in range(2):
            assert kind.waits(ops)
            kind.ran_numpy(numpy_seconds)
        return kind.waits(ops)

    assert not waits(0.4, 40)
    assert waits(0.09, math.inf) and waits(0.09, None)
    assert not waits(0.11, math.inf) and not waits(0.11, None)
    assert waits(2e-5, 40)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((0.96, 1.3), (1.0, 1.1), "numpy"),
        ((0.9, 0.97), (1.0, 1.2), "alight"),
        ((2.0,), (1.0,), "numpy"),
    ],
)
def test_who_is_hardly_quicker_has_not_won(
    ours: tuple[float, ...], theirs: tuple[float, ...], verdict: str
) -> None:
    kind = Specialization(Phase.PLANS_RACE)
    for seconds in ours:
        kind.ran_alight(seconds, cold=False)
    for seconds in theirs:
        kind.ran_numpy(seconds)
    kind.judge()
    assert kind.taken == "undecided"  # it is close, or one run may have met an interrupt
    kind.ran_alight(9.0, cold=False)
    kind.ran_numpy(9.0)
    kind.judge()
    assert kind.taken == verdict
    assert ("too close to tell" in kind.why) is (verdict == "numpy" and ours[0] < theirs[0])


@pytest.mark.parametrize(("kernel_seconds", "laps"), [(1e-3, 2), (0.39, 5), (0.41, 5)])
def test_kernels_and_numpy_race_in_turns_one_lap_a_call(
    monkeypatch: pytest.MonkeyPatch, kernel_seconds: float, laps: int
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    order: list[str] = []
    calls: list[list[str]] = []
    race = Jitted.race_kernels

    def shadow(self: Any, program: Any, args: Any, kwargs: Any) -> float:
        order.append("numpy")
        return 0.4

    def lap(entry: Any, args: Any) -> Lap:
        order.append("kernel")
        return Lap(kernel_seconds, NotImplemented)

    def raced(self: Any, *given: Any) -> Any:
        before = len(order)
        result = race(self, *given)
        calls.append(order[before:])
        return result

    x, y = np.random.default_rng(0).random((2, 100_000))
    jitted: Any = alight.jit(chain)
    monkeypatch.setattr(Jitted, "shadow", shadow)
    monkeypatch.setattr(Jitted, "race_kernels", raced)
    monkeypatch.setattr(Specialization, "judge", lambda self: None)  # whose times are real ones
    monkeypatch.setattr(sys.modules["alight._src.jit.guarding"], "_lap", lap)
    for _ in range(CALLS):
        jitted(x, y)
        kernels.settle()
    (kind,) = jitted._specializations.values()
    won = kernel_seconds < 0.4
    assert kind.phase is (Phase.ON_KERNELS if won else Phase.PLANS_RACE) and kind.race is None
    # A clear lead ends it; what is behind has all its laps.
    assert [call for call in calls if call] == [["numpy"], ["kernel"]] * laps


def totals(x: Any, axes: tuple[int, ...]) -> Any:
    return np.exp(x).sum(axis=axes)


def test_what_cannot_be_launched_is_in_no_race(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    laps: list[Any] = []
    monkeypatch.setattr(Jitted, "shadow", lambda *given: laps.append(given) or 0.4)
    monkeypatch.setattr(Specialization, "judge", lambda self: None)
    x = np.random.default_rng(0).random((300, 300))
    jitted: Any = alight.jit(totals)
    for _ in range(CALLS):
        jitted(x, (0,))  # no entry takes a tuple
        kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.PLANS_RACE and kind.race is None and not laps


def multiples(x: Any) -> Any:
    return [x * (k + 0.5) for k in range(80)]


def test_many_results_are_in_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    x = np.random.default_rng(0).random(10_000)
    jitted: Any = alight.jit(multiples)
    for _ in range(CALLS):
        for ours, numpys in zip(jitted(x), multiples(x), strict=True):
            assert np.array_equal(ours, numpys)
        kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.phase is not Phase.PLANS_RACE


def bent(x: Any, t: float) -> Any:
    return np.sqrt(x) * t if t < 0.5 else np.exp(np.sqrt(x + t)) - x


def test_laps_of_one_race_are_of_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    ran: list[tuple[str, int]] = []
    programs: dict[int, int] = {}
    made = Jitted._entry_of

    def entry_of(self: Any, missed: Any, program: Any, launchable: Any) -> Any:
        entry = made(self, missed, program, launchable)
        programs[id(entry)] = id(program)
        return entry

    def shadow(self: Any, program: Any, args: Any, kwargs: Any) -> float:
        ran.append(("numpy", id(program)))
        return 0.4

    def lap(entry: Any, args: Any) -> Lap:
        ran.append(("kernel", programs[id(entry)]))
        return Lap(0.5, NotImplemented)

    monkeypatch.setattr(Jitted, "_entry_of", entry_of)
    monkeypatch.setattr(Jitted, "shadow", shadow)
    monkeypatch.setattr(Specialization, "judge", lambda self: None)
    monkeypatch.setattr(sys.modules["alight._src.jit.guarding"], "_lap", lap)
    x = np.random.default_rng(0).random(100_000)
    jitted: Any = alight.jit(bent)
    for _ in range(2 * CALLS):
        for t in (0.25, 0.75):
            jitted(x, t)
            kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.PLANS_RACE and [way for way, _ in ran] == ["numpy", "kernel"] * 5
    assert len({program for _, program in ran}) == 1


def test_a_race_goes_on_under_policies_that_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    laps: list[float] = []
    lap = sys.modules["alight._src.jit.guarding"]._lap
    monkeypatch.setattr(Jitted, "shadow", lambda *given: 0.4)
    monkeypatch.setattr(Specialization, "judge", lambda self: None)

    def slow(entry: Any, args: Any) -> Lap:
        laps.append(lap(entry, args).seconds)  # infinite where the entry is another policy's
        return Lap(0.5, NotImplemented)

    monkeypatch.setattr(sys.modules["alight._src.jit.guarding"], "_lap", slow)
    x, y = np.random.default_rng(0).random((2, 100_000))
    jitted: Any = alight.jit(chain)
    for _ in range(2 * CALLS):
        with alight.policy(devices=["cpu"]):  # another object at each call
            jitted(x, y)
        kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.PLANS_RACE and len(laps) == 5 and all(map(math.isfinite, laps))


def test_a_race_that_nobody_goes_on_with_gives_way() -> None:
    one, other = (cast(Any, object()) for _ in range(2))
    race = KernelRace(one, None, None)
    for _ in range(3):
        assert [race.left(other) for _ in range(KEPT_PROGRAMS)] == [False] * KEPT_PROGRAMS
        assert not race.left(one)
    assert [race.left(other) for _ in range(KEPT_PROGRAMS + 1)][-1]


def test_where_numpy_has_lost_it_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    order: list[str] = []

    def lap(entry: Any, args: Any) -> Lap:
        order.append("kernel")
        return Lap(1e-3, NotImplemented)

    x, y = np.random.default_rng(0).random((2, 100_000))
    jitted: Any = alight.jit(chain)
    monkeypatch.setattr(sys.modules["alight._src.jit.guarding"], "_lap", lap)
    for _ in range(CALLS):
        jitted(x, y)
        kernels.settle()
    (kind,) = jitted._specializations.values()
    monkeypatch.setattr(Jitted, "shadow", lambda *given: order.append("numpy") or 0.4)
    monkeypatch.setattr(
        Specialization, "ran_alight", lambda *given, **more: None
    )  # what is set below stays
    order.clear()
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    for plan_seconds, laps in ((2e-3, 2), (1.1e-3, 5), (0.5e-3, 5)):
        jitted.clear()
        kind.phase, kind.spent_seconds, kind.race = Phase.PLAN_LEADS, 9.0, None
        kind.contest.seconds.update({NUMPY: [0.4, 0.4], PLAN: [plan_seconds] * 2})
        for _ in range(laps):
            assert kind.phase is Phase.PLAN_LEADS
            jitted(x, y)
        assert kind.phase is (Phase.ON_KERNELS if plan_seconds > 1e-3 else Phase.ON_PLAN)
        assert order == ["kernel"] * laps
        order.clear()


def test_what_is_slower_than_numpy_does_not_put_off_being_timed_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    x, y = np.random.default_rng(0).random((2, 50_000))
    jitted: Any = alight.jit(chain)
    for _ in range(CALLS):
        jitted(x, y)
        kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.bits is Bits.OTHER
    jitted.clear()
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: False)
    kind.phase = Phase.PLANS_RACE
    kind.contest.seconds.update({NUMPY: [1e-9], PLAN: [1e9] * 3})
    before = FOREGROUND.spent_seconds
    jitted(x, y)
    assert FOREGROUND.spent_seconds == before
    assert len(kind.alight_seconds) == 3 and kind.alight_seconds[0] < 1e9  # it ran


def entry(call: Any, pattern: Any, **more: Any) -> Any:
    lookups, contexts = more.pop("lookups", ()), more.pop("contexts", ())
    return guard.Entry(pattern, lookups, None, contexts, call=call, **more)


KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def test_the_guard_of_the_core_hits_and_misses() -> None:
    class Missing(guard.CallGuard):
        def miss(self, args: Any, kwargs: Any) -> Any:
            return "missed", args, kwargs

    made = Missing()
    names = {"k": 1}
    cell = (lambda x: lambda: x)(names).__closure__[0]  # type: ignore[index, misc]
    a = np.arange(6.0)[::2]

    def part(x: Any, *, y: int = 1) -> Any:
        return x

    lookups = [(names, "k", names["k"]), (names, "absent", None), (cell, None, names)]
    lookups += [(part, at, getattr(part, at)) for at in ("__code__", "__defaults__")]
    lookups += [(part, "__kwdefaults__", part.__kwdefaults__)]
    known = entry(lambda *args: "hit", (a, 1.0, None), lookups=lookups)
    made.insert(known)
    assert made(a, 1.0, None) == "hit" == made(a.copy().repeat(2)[::2], 1.0, None)
    for args in [
        (a,),
        (a.copy(), 1.0, None),
        (a.astype(int), 1.0, None),
        (a[:2], 1.0, None),
        (a, 1, None),
        (a, 1.5, None),
        (a, 1.0, 0),
        (list(a), 1.0, None),
    ]:
        assert made(*args)[0] == "missed"
    assert made(a, 1.0, b=2)[1:] == ((a, 1.0), {"b": 2})
    names["k"] = 2
    assert made(a, 1.0, None)[0] == "missed"
    names["k"] = 1
    names["absent"] = 3
    assert made(a, 1.0, None)[0] == "missed"
    del names["absent"]
    for at, other in [
        ("__code__", (lambda: 0).__code__),
        ("__defaults__", (1,)),
        ("__kwdefaults__", None),
        ("__kwdefaults__", {"y": 1}),
    ]:
        before = getattr(part, at)
        setattr(part, at, other)
        assert made(a, 1.0, None)[0] == "missed"
        setattr(part, at, before)
    assert made(a, 1.0, None) == "hit"
    calls, seconds = known.take()
    assert calls == 3 and seconds > 0 and known.take() == (0, 0.0)
    several = [entry(lambda *args, n=n: n, (n,)) for n in range(_native.ENTRIES + 2)]
    for one in several:
        made.insert(one)
        assert made(0) == 0  # what is used stays, however many come after it
    assert made(a, 1.0, None)[0] == "missed" and not made.holds(known)
    assert [made.holds(one) for one in several[:4]] == [True, False, False, True]
    assert made(1)[0] == made(2)[0] == "missed" and made(3) == 3 and made(len(several) - 1) > 3
    made.clear()
    assert made(9)[0] == "missed" and not made.holds(several[9])
    few = entry(lambda x: x, (int,), left=2)
    made.insert(few)
    assert [made(5), made(6)] == [5, 6] and made(7)[0] == "missed"
    twice = entry(lambda x, y: "same", (a, a))
    made.insert(twice)
    assert made(a, a) == "same" and made(a, a.copy().repeat(2)[::2])[0] == "missed"
    made.remove(twice)
    made.remove(twice)
    assert made(a, a)[0] == "missed"

    def fails(x: Any) -> Any:
        raise KeyError(x)

    made.insert(entry(fails, ("k",)))
    with pytest.raises(KeyError):
        made("k")


def test_the_kernels_of_an_entry_run_in_turn() -> None:
    """The first doubles its input; the second, of a part of that, adds a constant array."""
    runs = []

    def numbers(addresses: Any, place: int, count: int) -> Any:
        start = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_uint64))[place]
        return np.ctypeslib.as_array((ctypes.c_double * count).from_address(start))

    def doubled(addresses: Any, dims: int, strides: int) -> None:
        runs.append(("doubled", dims, strides))
        numbers(addresses, 1, 6)[:] = numbers(addresses, 0, 6) * 2.0

    def added(addresses: Any, dims: int, strides: int) -> None:
        runs.append(("added", dims, strides))
        numbers(addresses, 2, 4)[:] = numbers(addresses, 1, 4) + numbers(addresses, 0, 4)
        numbers(addresses, 3, 1)[0] = 7.0
        if negative:
            np.log(np.full(1, -1.0))  # raises a flag of this thread

    functions = [KERNEL(doubled), KERNEL(added)]
    first, second = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    x, more = np.arange(6.0), np.full(4, 100.0)
    inputs = [(-1, more.__array_interface__["data"][0]), (0, 0)]
    outputs = [np.empty(6), np.empty((2, 2), order="F"), np.empty(())]
    kernels = [(first, 1, 2, functions, 1, ((1, 0), (2, 0)))]
    kernels.append((second, 3, 4, functions, 3, ((0, 0), (2, 16), (3, 0), (4, 0))))
    wired = {"call": None, "inputs": inputs, "outputs": outputs, "watched": 7}
    known = entry(
        pattern=(x,), kernels=kernels, results=(2, 1), scalars=(True, False),
        form=tuple, **wired,
    )  # fmt: skip
    negative = False
    cell, made = known.run((x,))
    assert type(cell) is np.float64 and cell == 7.0
    assert made.flags.f_contiguous and not made.flags.c_contiguous
    assert np.array_equal(made.ravel("K"), x[2:] * 2.0 + 100.0)
    assert runs == [("doubled", 1, 2), ("added", 3, 4)]
    negative = True
    with np.errstate(all="ignore"):
        assert known.run((x,)) is NotImplemented
    assert known.take()[0] == 1
    # What the second makes is not there when the first runs, and every output is made.
    for wrong in (
        [(first, 1, 2, functions, 1, ((1, 0), (3, 0)))],
        [(first, 1, 2, functions, 1, ((1, 0), (2, 0)))],
        [(first, 1, 2, functions, 4, ((1, 0), (2, 0)))],
        [],
    ):
        with pytest.raises(ValueError, match="kernel"):
            entry(
                pattern=(x,), kernels=wrong, results=(0,), scalars=(False,),
                form=None, **wired,
            )  # fmt: skip


def test_a_function_that_has_no_answer_leaves_the_call_to_the_next_entry() -> None:
    class Missing(guard.CallGuard):
        def miss(self, args: Any, kwargs: Any) -> Any:
            return "missed"

    made, asked = Missing(), []

    def answers(name: str, fits: Any) -> Any:
        def call(x: Any) -> Any:
            asked.append(name)
            return name if fits(x) else NotImplemented

        return entry(call, (int,), looks=True)

    for name, fits in [("small", lambda x: x < 10), ("even", lambda x: x % 2 == 0)]:
        made.insert(answers(name, fits))
    # the last that answered is asked first, and one that has no answer keeps its place
    for x, found, order in [
        (3, "small", ["even", "small"]),
        (5, "small", ["small"]),
        (12, "even", ["small", "even"]),
        (13, "missed", ["even", "small"]),
        (14, "even", ["even"]),
    ]:
        asked.clear()
        assert made(x) == found
        assert asked == order, (x, asked)
    # a user's function may give NotImplemented, too, and what has run out of calls wants to be
    # asked about: no other may answer
    made.insert(entry(lambda x: NotImplemented, (int,)))
    assert made(2) == "missed"
    made.insert(entry(lambda x: "counted", (int,), left=1))
    assert made(2) == "counted"
    assert made(2) == "missed"


def test_entries_that_move_while_one_runs_are_each_asked_once() -> None:
    class Missing(guard.CallGuard):
        def miss(self, args: Any, kwargs: Any) -> Any:
            asked.append("missed")
            return None

    asked: list[str] = []
    made = Missing()

    def passing(name: str, then: Any) -> Any:
        def call(x: Any) -> Any:
            asked.append(name)
            then()
            return NotImplemented

        return entry(call, (int,), looks=True)

    last = passing("last", lambda: None)
    first = passing("first", lambda: (made.remove(last), made.insert(last)))
    made.insert(last)
    made.insert(first)  # which has the last one moved before itself
    made(1)
    assert asked in (["first", "missed"], ["first", "last", "missed"])
    asked.clear()
    made.clear()
    gone = passing("gone", lambda: made.remove(gone))
    for one in (last, gone):
        made.insert(one)
    made(1)
    assert asked == ["gone", "last", "missed"]
    asked.clear()
    answering = entry(lambda x: made.clear() or "answered", (int,), looks=True)
    made.insert(answering)
    assert made(1) == "answered" and not asked


def test_calls_between_the_kernels_of_an_entry() -> None:
    """A kernel doubles the input; then comes a product of that, reversed, by what it lies in."""
    variable: ContextVar[Any] = ContextVar("variable")
    heard = []

    def doubled(addresses: Any, dims: int, strides: int) -> None:
        starts = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_uint64))
        read, write = [(ctypes.c_double * 6).from_address(starts[i]) for i in range(2)]
        write[:] = [2.0 * value for value in read]

    def product(a: Any, b: Any, result: Any) -> None:
        heard.append((variable.get(None), a.strides, b.shape, result.flags.writeable))
        if len(heard) == 4:
            raise KeyError("third")
        with np.errstate(all="ignore"):
            np.matmul(a, b, result)

    kernel = KERNEL(doubled)
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    x = np.arange(6.0).reshape(2, 3)
    like = (x[::-1, ::-1], x.T, np.empty((2, 2)))
    call = guard.Call(product, like, lambda: heard.append("before"), (variable, "quiet"))
    kernels = [(address, 0, 0, kernel, 1, ((0, 0), (1, 0)))]
    kernels.append((call, 0, 0, None, 2, ((1, 40), (1, 0), (2, 0))))
    wired = {
        "call": None, "pattern": (x,), "inputs": [(0, 0)], "scalars": (False,), "watched": 7,
        "outputs": [np.empty((2, 3)), np.empty((2, 2))], "results": (1,), "form": None,
    }  # fmt: skip
    known = entry(kernels=kernels, **wired)
    expect = (x[::-1, ::-1] * 2.0) @ (x.T * 2.0)
    assert np.array_equal(known.run((x,)), expect)
    assert heard == ["before", ("quiet", (-24, -8), (3, 2), True)]
    assert variable.get(None) is None
    with pytest.raises(KeyError, match="third"):
        known.run((x,))
    assert variable.get(None) is None
    assert known.run((x * 1e300,)) is NotImplemented  # it raises a flag
    assert known.take()[0] == 2
    short = (call._replace(like=like[:2]), *kernels[1][1:])
    with pytest.raises(ValueError, match="operand"):
        entry(kernels=[kernels[0], short], **wired)
    for wrong in (call._replace(like=("x", *like[1:])), call._replace(quiet=(1, 2)), (), 0):
        with pytest.raises((TypeError, ValueError)):
            entry(kernels=[kernels[0], (wrong, *kernels[1][1:])], **wired)


def normalised(x: Any) -> Any:
    mean = x.mean(axis=0, keepdims=True)
    apart = (x - mean).reshape(-1)[8:]
    return np.cumsum(apart * 2.0), apart.sum(), (np.cumsum(apart) * 0.5)[::2].mean()


def test_a_program_of_several_kernels_is_launched_by_the_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    n = 64
    x = np.random.default_rng(0).random((n, 8))
    jitted: Any = alight.jit(normalised)
    with monkeypatch.context() as patched:
        patched.setattr(Jitted, "shadow", lambda self, *call: 0.4)  # NumPy loses
        for _ in range(CALLS):
            jitted(x)
            kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.ON_KERNELS
    before = LOG.snapshot()
    module = sys.modules["alight._src.jit.dispatch"]
    monkeypatch.setattr(module, "describe", lambda *given: pytest.fail(f"not known: {given}"))
    for given in (x, x * 3.0, x.copy()):
        for got, want in zip(jitted(given), normalised(given), strict=True):
            assert type(got) is type(want)
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15 * x.size)
    after = LOG.snapshot().since(before)
    kinds = {record.decision.operation for record in after.records}
    assert len(kinds) > 1 and all(record.runs == 3 for record in after.records)
    assert after.counts["launches"] == 3 * len(after.records)
    for record in after.records:
        assert record.decision.implementation == "generated"
        numpys, own = record.decision.candidates
        assert numpys.estimate.seconds == 0.4 > own.estimate.seconds
        assert numpys.detail.startswith("of the whole call")


def products(a: Any, b: Any) -> Any:
    """Products with one operand twice, of windows, of what is turned round, by np.dot."""
    c = a * 2.0 + 1.0
    d = (c @ c.T) @ b[::-1, 2:] + 1.0
    e = np.dot(d.T, d) * 0.5
    return e @ e, d[:, ::2] @ d[::2] * 0.125, e


def past_numpy(monkeypatch: pytest.MonkeyPatch, function: Any, *given: Any) -> Any:
    """Return a function jitted, after NumPy has lost to its kernels: the guard calls them."""
    jitted: Any = alight.jit(function)
    with monkeypatch.context() as patched:
        patched.setattr(Jitted, "shadow", lambda self, *call: 0.4)  # NumPy loses
        for _ in range(CALLS):
            jitted(*given)
            kernels.settle()
    (kind,) = jitted._specializations.values()
    assert kind.phase is Phase.ON_KERNELS
    return jitted


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i8"])
def test_the_guard_calls_numpys_products_between_kernels(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    monkeypatch.setattr("alight._src.ir.inner_products._NAMES", frozenset())  # but for products
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((6, 5), (6, 8)))
    jitted = past_numpy(monkeypatch, products, a, b)
    before = LOG.snapshot()
    module = sys.modules["alight._src.jit.dispatch"]
    with monkeypatch.context() as patched:
        patched.setattr(module, "describe", lambda *given: pytest.fail(f"not known: {given}"))
        for given in ((a, b), (a + 1, b), (a.copy(), b * 2)):
            same(jitted(*given), products(*given))  # one BLAS gives the same bits
    records = LOG.snapshot().since(before).records
    ran = {(r.decision.operation, r.decision.implementation) for r in records}
    assert {("matmul", "library"), ("dot", "library")} <= ran
    assert any(implementation == "generated" for _, implementation in ran)
    if dtype == "i8":
        return
    # Flags that a product raises are NumPy's to tell of, where it would.
    a[0, 0] = np.finfo(dtype).max / 4
    outcomes = []
    for function in (products, jitted):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            results = repr(function(a, b))
        outcomes.append((results, {(str(w.message), w.filename, w.lineno) for w in told}))
    assert outcomes[0] == outcomes[1]
    assert any(message.endswith("matmul") for message, _, _ in outcomes[0][1])
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        jitted(a, b)


def divided(a: Any, b: Any) -> Any:
    return (a + 1) // b + a


def converted(a: Any, b: Any) -> Any:
    return a.astype(np.int64) * 2 + 1


def product_of_quotients(a: Any, b: Any) -> Any:
    return (a * 2) @ (b // b) + 1


@pytest.mark.parametrize(
    ("function", "dtype", "wrong"),
    [(divided, "i8", 0), (converted, "f8", np.nan), (product_of_quotients, "i8", 0)],
)
def test_the_guard_hears_what_integers_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, function: Any, dtype: str, wrong: float
) -> None:
    be_eager(monkeypatch)
    be_generated(monkeypatch)
    a, b = (np.arange(1, 17).reshape(4, 4).astype(dtype) for _ in range(2))
    jitted = past_numpy(monkeypatch, function, a, b)
    a[1, 1] = b[1, 1] = wrong
    outcomes = []
    for called in (function, jitted):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            results = repr(called(a, b))
        outcomes.append((results, [(str(w.message), w.filename, w.lineno) for w in told]))
    assert outcomes[0] == outcomes[1] and outcomes[0][1]


def stepped(x: Any, y: Any) -> Any:
    for _ in range(5):
        x = x * 0.5 + y
    return x


def test_a_short_loop_over_small_arrays_becomes_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    be_eager(monkeypatch)
    jitted: Any = alight.jit(stepped)
    x, y = np.linspace(0.0, 1.0, 1000), np.linspace(1.0, 2.0, 1000)
    with monkeypatch.context() as patched:
        patched.setattr(Jitted, "shadow", lambda self, *call: 0.4)  # NumPy loses
        for _ in range(CALLS):
            same(jitted(x, y), stepped(x, y))
            kernels.settle()
    before = LOG.snapshot()
    same(jitted(x, y), stepped(x, y))
    (record,) = LOG.snapshot().since(before).records
    assert (record.decision.implementation, len(record.decision.shapes)) == ("generated", 4)


def test_a_run_in_which_numpy_stood_in_says_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that is being made in the background must not lose before it is there."""

    class Early:
        counted = 0

        @property
        def times(self) -> int:
            self.counted += early
            return self.counted

    be_eager(monkeypatch)
    be_generated(monkeypatch)
    monkeypatch.setattr(sys.modules["alight._src.jit.dispatch"], "stood_in", Early())
    x = np.linspace(0.0, 1.0, 100_000)
    for early in (True, False):
        jitted = alight.jit(lambda v: np.sqrt(v * 2.0).sum())
        for _ in range(CALLS):
            jitted(x)
        (kind,) = jitted._specializations.values()
        assert bool(kind.alight_seconds) is not early


def test_an_explanation_says_which_way_calls_take_and_why() -> None:
    jitted = alight.jit(chain)
    a, b = np.arange(2.0), np.ones(2)
    for _ in range(CALLS):
        told = alight.explain(jitted, a, b)
        (row,) = told.to_dict()["calls"]
        assert row["name"] == "jit chain" and row["call_site"].startswith(f"{__file__}:")
        assert row["reason"] and row["way"] in ("numpy", "alight", "undecided")
        assert told.explanation().splitlines()[0].startswith(f"jit chain at {__file__}:")
    (kind,) = jitted._specializations.values()
    kind.phase = Phase.ON_NUMPY  # no kernel is raced any more, which could win
    # less than any clock would say
    kind.contest.seconds.update({NUMPY: [1e-9], PLAN: [2e-9]})
    text = alight.explain(jitted, a, b).explanation().splitlines()[0]
    assert text.endswith(": numpy (NumPy took 1 ns, alight 2 ns)")
    with alight.policy(force="cpu:generated", floor=0):
        told = alight.explain(jitted, a, b)
    assert told.to_dict()["calls"][0]["reason"] == "the policy says so"
    assert "cpu:generated" in told.explanation()
    (row,) = alight.explain(chain, a, b).to_dict()["calls"]  # nothing of it was placed
    assert (row["name"], row["way"]) == ("chain", "numpy")


LISTS: tuple[list[Any], ...] = (
    [1, 2, 3, 4, 5, 6],
    [1.0, 2, 3, 4, 5, 6],
    [1j, 2, 3, 4, 5, 6],
    [2**40] * 6,
    [np.float32(2)] * 6,
    [True, False, True, False, True, False],
    [0, 1, 2],
    [3],
    [],
    [np.arange(6), np.arange(6.0)],
    [np.arange(6.0), np.arange(6.0)],
    [np.arange(3.0), 1],
)


def _by_length(x: Any, items: list[Any]) -> Any:
    return np.sin(x) * len(items) + x[: len(items)].sum()


def _by_items(x: Any, items: list[Any]) -> Any:
    total = x * 0
    for item in items:
        total = total + item * x[0]
    return total


def _by_dtype(x: Any, items: list[Any]) -> Any:
    return x + items


def _by_places(x: Any, items: list[Any]) -> Any:
    return x[items] * 2


@pytest.mark.parametrize("function", [_by_length, _by_items, _by_dtype, _by_places])
def test_a_list_of_other_items_has_its_own_answer(
    mode: str, function: Callable[[Any, list[Any]], Any]
) -> None:
    def outcome(run: Callable[..., Any], items: list[Any]) -> Any:
        try:
            return run(x, items)
        except (IndexError, ValueError) as error:
            return type(error), str(error)

    x = np.linspace(0.5, 4.0, 6)
    for settled in LISTS:
        jitted = alight.jit(function)
        for _ in range(CALLS):
            outcome(jitted, settled)
        for items in (*LISTS, settled):
            for _ in range(2):
                same(outcome(jitted, items), outcome(function, items))
        grown: list[Any] = []  # one list, of ever more items
        for number in range(6):
            grown.append(settled[number % len(settled)] if settled else number)
            same(outcome(jitted, grown), outcome(function, grown))


def _resized(x: Any, shape: Any) -> Any:
    made = x * 2
    window = made[1:]
    made.resize(shape, refcheck=False)
    made += 1
    return made, window.shape


def _argument_resized(x: Any, shape: Any) -> Any:
    x.resize(shape, refcheck=False)
    return x + 1


@pytest.mark.parametrize("shape", [(3, 5), 4, (2, 2), 0, (6,), (2, 3), -3])
@pytest.mark.parametrize("function", [_resized, _argument_resized])
def test_what_is_resized_without_a_check(
    mode: str, function: Callable[[Any, Any], Any], shape: Any
) -> None:
    jitted = alight.jit(function)
    for _ in range(CALLS):
        found = []
        for run in (jitted, function):
            x = np.linspace(1.0, 6.0, 6)
            try:
                found.append((run(x, shape), x))
            except ValueError as error:
                found.append((str(error), x))
        same(*found)
