"""Functions and methods on small arrays are NumPy's call and nothing else: what they give, whose
memory it is, and how much Python runs."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import alight
from conformance.modes import EVERYWHERE, MODES

pytestmark = pytest.mark.usefixtures("small_is_small")

NAMES = ("a", "b", "c", "m", "q", "mask", "at", "z")
PACKAGE = os.path.dirname(alight.__file__) + os.sep


def names(np: Any) -> dict[str, Any]:
    rng = globals()["np"].random.default_rng(0)
    found = {
        "a": rng.random(8),
        "b": rng.random(8),
        "c": rng.random(8),
        "m": rng.random((2, 4)),
        "q": rng.random((3, 3)) + 3 * globals()["np"].eye(3),
        "mask": rng.random(8) > 0.5,
        "at": rng.integers(0, 8, 5),
        "z": rng.random(3) + 1j,
    }
    return {"np": np, **{name: np.asarray(array) for name, array in found.items()}}


CALLS = [
    "a.sum()",
    "a.sum(keepdims=True)",
    "m.mean(axis=1)",
    "a.std(ddof=1)",
    "a.argmax()",
    "a.cumsum()",
    "a.cumprod()",
    "a.copy()",
    'a.astype("f4")',
    'a.astype("f4",casting="same_kind")',
    "a.clip(0.2,0.8)",
    "a.clip(b,c)",
    "a.argsort()",
    "a.take(at)",
    "a.take([1,2])",
    "a.repeat(2)",
    "a.dot(b)",
    "m.flatten()",
    "m.trace()",
    "a.searchsorted(b)",
    "a.conj()",
    "a.compress(mask)",
    "mask.nonzero()",
    "m.nonzero()",
    "a.reshape(2,4)",
    "a.reshape((4,-1))",
    "m.T",
    "m.transpose(1,0)",
    "m.swapaxes(0,1)",
    "m.ravel()",
    "a.squeeze()",
    "a[at]",
    "a[mask]",
    "m[:,[0,2]]",
    "m[[1,0],[2,3]]",
    "m[mask[:2]]",
    "np.sum(a)",
    "np.sum(m,axis=0)",
    "np.mean(m,1)",
    "np.max(a)",
    "np.min(m,axis=1,keepdims=True)",
    "np.std(a)",
    "np.any(mask)",
    "np.argmax(m,axis=1)",
    "np.prod(a)",
    "np.cumsum(m,1)",
    "np.ptp(a)",
    "np.average(a)",
    "np.count_nonzero(mask)",
    "np.where(mask,a,b)",
    "np.where(mask)",
    "np.where(mask,1.0,b)",
    "np.clip(a,0.2,0.8)",
    "np.round(a,2)",
    "np.concatenate((a,b))",
    "np.concatenate([a,b,c])",
    "np.stack((a,b),axis=1)",
    "np.vstack((a,b))",
    "np.hstack((a,b))",
    "np.append(a,b)",
    "np.tile(a,2)",
    "np.repeat(a,2)",
    "np.roll(a,1)",
    "np.diff(a)",
    "np.sort(a)",
    "np.argsort(a)",
    "np.take(a,at)",
    "np.searchsorted(a,b)",
    "np.interp(a,[0.0,1.0],[1.0,2.0])",
    "np.isclose(a,b)",
    "np.allclose(a,a)",
    "np.array_equal(a,b)",
    "np.dot(a,b)",
    "np.outer(a,b)",
    'np.einsum("i,i->",a,b)',
    "np.matmul(q,q)",
    "np.linalg.inv(q)",
    "np.linalg.norm(a)",
    "np.linalg.solve(q,q)",
    "np.linalg.svd(q)",
    "np.linalg.qr(q)",
    "np.linalg.slogdet(q)",
    "np.linalg.lstsq(q,q)",
    "np.unique_counts(at)",
    "np.gradient(q)",
    "np.unique(at)",
    "np.bincount(at)",
    "np.flatnonzero(mask)",
    "np.copy(a)",
    "np.zeros(3)",
    "np.ones((2,3))",
    "np.full(3,2.0)",
    "np.arange(5)",
    "np.linspace(0,1,5)",
    "np.eye(3)",
    "np.zeros_like(m)",
    "np.array([1.0,2.0])",
    "np.array([[1,2],[3,4]])",
    "np.array(a)",
    "np.array([a,b])",
    "np.asarray(a)",
    "np.asarray([1,2])",
    'np.asarray(a,"f4")',
    "np.transpose(m)",
    "np.reshape(a,(2,4))",
    "np.ravel(m)",
    "np.expand_dims(a,0)",
    "np.flip(a)",
    "np.squeeze(a)",
    "np.meshgrid(a,b)[1]",
    "np.add(a,b,out=c)",
    "np.exp(z)",
]
# What is two steps here, or has to look at what NumPy gave: views of other functions' results.
SLOWER = frozenset(("m.nonzero()", "np.meshgrid(a,b)[1]"))


def kinds(made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return type(made), *map(kinds, made)
    array = np.asarray(made)
    writeable = made.flags.writeable if hasattr(made, "flags") and array.ndim else None
    return array.dtype, array.shape, array.strides, array.tobytes(), writeable


@pytest.mark.parametrize("call", CALLS)
def test_calls_give_what_numpy_gives(call: str) -> None:
    ours, theirs = names(alight), names(np)
    with np.errstate(all="ignore"):
        got, want = (eval(call, found) for found in (ours, theirs))
    assert kinds(got) == kinds(want)
    for item in got if isinstance(got, tuple) else (got,):
        assert not isinstance(item, (np.ndarray, np.generic))
    for name in NAMES:
        assert kinds(ours[name]) == kinds(theirs[name])


@pytest.mark.parametrize("call", [call for call in CALLS if call not in SLOWER])
def test_no_python_of_alights_runs(call: str) -> None:
    found = names(alight)
    code = compile(call, __file__, "eval")
    eval(code, found)
    ran = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            ran.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        eval(code, found)
    finally:
        sys.setprofile(None)
    # What NumPy rests on memory of its own is wrapped by the hook.
    assert set(ran) <= {"wrap", "native", "concrete", "make_layout", "Value.__init__"}, ran


def test_products_of_a_row_and_a_column_run_no_python_of_alights() -> None:
    row = alight.asarray(np.linspace(0.0, 3.0, 80).reshape(1, 80))
    column = row.T
    for call in (lambda: row @ column, lambda: alight.matmul(row, column)):
        call()
        assert frames_of_alights(call) == 0


def test_what_is_made_is_nobody_elses() -> None:
    for call in CALLS:
        found = names(alight)
        before = {name: kinds(found[name]) for name in NAMES}
        made = eval(call, found)
        views = ("reshape", "T", "transpose", "swapaxes", "ravel", "squeeze", "flip", "expand_dims")
        same = ("asarray(a)", "conj", "out=c")
        if any(word in call for word in (*views, *same)):
            continue
        for item in made if isinstance(made, tuple) else (made,):
            if isinstance(item, alight.Array):
                item[...] = 0
        assert {name: kinds(found[name]) for name in NAMES} == before, call


def test_views_are_views_and_the_same_is_the_same() -> None:
    a = alight.asarray(np.arange(8.0))
    m = a.reshape(2, 4)
    m[0, 1] = 50.0
    alight.ravel(m)[2] = 60.0
    m.T[3, 0] = 70.0
    alight.flip(a)[0] = 80.0
    assert a.tolist() == [0.0, 50.0, 60.0, 70.0, 4.0, 5.0, 6.0, 80.0]
    assert alight.asarray(a) is a and a.astype("f8", copy=False) is a and a.conj() is a
    assert alight.array(a, copy=None) is a and alight.array(a) is not a
    c = alight.zeros(8)
    assert alight.add(a, 1.0, out=c) is c and c[1].item() == 51.0
    theirs = np.zeros(3)
    ours = alight.asarray(theirs)
    theirs[0] = 5.0
    assert ours.tolist() == [0.0, 0.0, 0.0]
    column = m.T[:, 0]
    assert column.reshape(2, 2).tolist() == [[0.0, 50.0], [60.0, 70.0]]
    assert m.T.reshape(-1).tolist() == np.asarray(m).T.reshape(-1).tolist()


CHANGES: list[Any] = [
    lambda np, a: a.fill(9.0),
    lambda np, a: a.sort(),
    lambda np, a: a.__setitem__(np.asarray([0, 1]), 9.0),
    lambda np, a: a.__setitem__(a > 2, 9.0),
    lambda np, a: np.add(a, 9.0, out=a),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_what_is_read_later_keeps_its_values(number: int) -> None:
    plain, want = np.array([[3.0, 1.0, 2.0]] * 2)
    a = alight.asarray(plain)
    with alight.policy(floor=0):
        pending = a * 2
    window = a[:2]
    CHANGES[number](alight, a)
    CHANGES[number](np, want)
    assert a.tolist() == want.tolist() and window.tolist() == want[:2].tolist()
    assert pending.tolist() == (plain * 2).tolist()


def test_elements_of_one_axis_are_no_views() -> None:
    for namespace in (np, alight):
        a = namespace.asarray(np.arange(3.0))
        first, *_ = namespace.unstack(a)
        first += 5.0
        assert a.tolist() == [0.0, 1.0, 2.0] and float(first) == 5.0
        rows = namespace.unstack(a.reshape(3, 1))
        rows[0][0] = 5.0
        assert a.tolist() == [5.0, 1.0, 2.0]


ONCE = (  # what rests on memory of its own that has holes, or on the argument's
    ("histogram2d", lambda np, a, m: np.histogram2d(a, a)),
    ("trim_zeros", lambda np, a, m: np.trim_zeros(a)),
    ("meshgrid", lambda np, a, m: np.meshgrid(a, a, copy=False)),
    ("meshgrid", lambda np, a, m: np.meshgrid(a, a, copy=False, sparse=True)),
    ("real_if_close", lambda np, a, m: np.real_if_close(a)),
    ("unique", lambda np, a, m: np.unique(a)),
    ("cov", lambda np, a, m: np.cov(m)),
    ("cov", lambda np, a, m: np.cov(a)),  # an array without axes
    ("tensordot", lambda np, a, m: np.tensordot(m, m)),
    ("isin", lambda np, a, m: np.isin(np.array(1.0), a)),
    ("i0", lambda np, a, m: np.i0(np.array(1.0))),
)


@pytest.mark.parametrize("number", range(len(ONCE)))
def test_functions_run_once_and_are_no_exits(number: int) -> None:
    name, call = ONCE[number]
    ran = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == name:
            ran.append(frame.f_code.co_filename)

    a, m = np.array([0.0, 1.0, 4.0, 0.0]), np.array([[1.0, 2.0, 4.0], [2.0, 1.0, 0.0]])
    ours = alight.asarray(a), alight.asarray(m)
    alight.reset()
    sys.setprofile(note)
    try:
        got = call(alight, *ours)
    finally:
        sys.setprofile(None)
    assert [path.startswith(PACKAGE) for path in ran] == [False]
    assert alight.report().to_dict()["exits"] == []
    wanted = call(np, a, m)
    several = isinstance(wanted, (tuple, list))
    assert not several or type(got) is type(wanted)
    pairs = zip(got, wanted, strict=True) if several else ((got, wanted),)
    for one, plain in pairs:
        assert one.tolist() == plain.tolist()
        assert one.flags.writeable == bool(plain.flags.num & 0x400)  # which does not warn
        assert (one.storage is ours[0].storage) == np.shares_memory(plain, a)


GROWING = (
    (True, lambda np, x: np.clip(x[:, None], x, 2.0)),
    (True, lambda np, x: np.where(x > 9, x[:, None], x)),
    (True, lambda np, x: np.where(x[:, None] > 9, x, 1.0)),
    (True, lambda np, x: np.isclose(x[:, None], x)),
    (True, lambda np, x: np.add(x[:, None], x)),
    (True, lambda np, x: x[:, None] @ x[None, :]),
    (True, lambda np, x: x.reshape(-1, 2) @ x.reshape(2, -1)),
    (True, lambda np, x: np.dot(x.reshape(-1, 2), x.reshape(2, -1))),
    (False, lambda np, x: x[None, :] @ x[:, None]),
    (False, lambda np, x: np.dot(x[None, :], x[:, None])),
    (False, lambda np, x: np.clip(x, x, 2.0)),
    (False, lambda np, x: np.searchsorted(x, x.reshape(-1, 2))),
    (False, lambda np, x: np.concatenate([x[:, None], x[:, None]])),
)


@pytest.mark.parametrize("number", range(len(GROWING)))
def test_small_operands_of_a_large_result_are_recorded(number: int) -> None:
    grows, call = GROWING[number]
    plain = np.linspace(0.0, 3.0, 80)
    x = alight.asarray(plain)
    result = call(alight, x)
    assert (result.storage.value.op is not None) == grows
    assert np.asarray(result).tobytes() == call(np, plain).tobytes()


WRITING = (
    lambda np, x, z: (x.conj(z), z, x.conj(z) is z),
    lambda np, x, z: z.conj(z),
    lambda np, x, z: x.conj(None),
    lambda np, x, z: x.conj(3),
    lambda np, x, z: z.conj(x),
    lambda np, x, z: x.conjugate(np.zeros(2)),
    lambda np, x, z: x.conj(np.zeros(3, "i4")),
    lambda np, x, z: x.fill([]),
    lambda np, x, z: x.fill([5.0, 6.0, 7.0]),
    lambda np, x, z: x.fill(np.ones(1)),
    lambda np, x, z: np.zeros(0).fill([]),
    lambda np, x, z: np.zeros(()).fill([3]),
    lambda np, x, z: (x.fill(np.array(4.0)), x),
    lambda np, x, z: (x.fill("3"), x),
    lambda np, x, z: np.array_equal(x * np.nan, x * np.nan, True),
)


@pytest.mark.parametrize("mode", EVERYWHERE)
@pytest.mark.parametrize("number", range(len(WRITING)))
def test_arguments_of_methods_are_numpys(number: int, mode: str) -> None:
    def outcome(namespace: Any) -> Any:
        x = namespace.asarray(np.arange(3.0))
        try:
            made = WRITING[number](namespace, x, namespace.asarray(np.arange(3) + 1j))
        except (TypeError, ValueError) as error:
            return type(error).__name__, str(error)
        several = made if type(made) is tuple else (made,)
        return [getattr(item, "tolist", lambda item=item: item)() for item in several]

    with alight.policy(**MODES[mode]):
        assert outcome(alight) == outcome(np)


def test_what_may_not_be_written_is_not() -> None:
    a = alight.asarray(np.arange(9.0).reshape(3, 3))
    diagonal = a.diagonal()
    for call in (
        lambda: diagonal.fill(1.0),
        lambda: diagonal.sort(),
        lambda: diagonal.__setitem__([0, 1], 1.0),
        lambda: alight.add(diagonal, 1.0, out=diagonal),
    ):
        with pytest.raises(ValueError, match="read-only"):
            call()
    assert a.tolist() == np.arange(9.0).reshape(3, 3).tolist()


def test_what_only_ours_take() -> None:
    a = alight.asarray([1.0, 3.0, 2.0])
    assert alight.sort(a, descending=True).tolist() == [3.0, 2.0, 1.0]
    with pytest.raises(ValueError, match='Only "cpu" is allowed'):
        alight.zeros(3, device="gpu")
    mixed = alight.array([alight.asarray(1.0), 2.0])
    assert mixed.tolist() == [1.0, 2.0]
    into = np.zeros(())
    assert alight.sum(a, None, None, into) is into and into == 6.0


def test_warnings_name_the_line_of_the_program() -> None:
    zero = alight.asarray([0.0, 1.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zero.astype("f4").clip(0, 1)
        alight.mean(alight.zeros(0))
        into = alight.zeros(2)
        alight.divide(1.0, zero, out=into)
    told = [warning.filename for warning in caught if "scalar" not in str(warning.message)]
    assert told == [__file__] * 2  # what a mean divides, NumPy's own file says


def frames_of_alights(call: Any) -> int:
    """Return how many functions of alight's run in a call."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def branching(x: Any) -> Any:
    return np.dot(x, x) if x[0] > 0 else (x[:, None] * x).sum()


LENGTHS = (
    lambda n: np.sin(np.arange(int(n[0]))).sum(),
    lambda n: np.sin(np.ones(n[0])).sum(),
    lambda n: np.sin(np.repeat(n, n)).sum(),
    lambda n: np.sin(n.repeat(n.item())).sum(),
    lambda n: np.sin(np.tile(n, n[0])).sum(),
    lambda n: np.sin(np.bincount(n)).sum(),
    lambda n: ramp(n[0]).sum(),
)


def ramp(length: Any) -> Any:
    return np.sin(np.linspace(0.0, 1.0, length))


@pytest.mark.parametrize("number", range(len(LENGTHS)))
def test_elements_that_say_how_much_is_done_do_so_at_every_call(number: int) -> None:
    jitted = alight.jit(LENGTHS[number])
    with alight.policy(force="cpu:generated", floor=1000):
        for length in (10, 10, 10, 5000):
            alight.reset()
            n = np.array([length])
            np.testing.assert_allclose(jitted(n), LENGTHS[number](n), rtol=1e-12)
        rows = alight.report().to_dict()["decisions"]
        assert any(row["implementation"] == "generated" for row in rows)


def test_what_is_below_the_floor_is_numpys_at_once_whatever_is_forced() -> None:
    x = np.linspace(1.0, 2.0, 100)
    jitted = alight.jit(lambda x: np.dot(x, x) + x.sum())
    with alight.policy(force="cpu:generated", floor=1000):
        for _ in range(3):
            assert jitted(x) == np.dot(x, x) + x.sum()
        assert frames_of_alights(lambda: jitted(x)) == 0
        (row,) = alight.explain(jitted, x).to_dict()["calls"]
        assert row["way"] == "numpy" and "every step of it is below the floor" in row["reason"]
    for floor, function in ((0, jitted), (1000, alight.jit(branching))):
        with alight.policy(force="cpu:generated", floor=floor):  # what may be recorded still is
            alight.reset()
            for sign in (1.0, 1.0, 1.0, -1.0):
                function(x * sign)
            rows = alight.report().to_dict()["decisions"]
            assert {row["implementation"] for row in rows} == {"generated"}
