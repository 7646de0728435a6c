"""Jitted calls under NumPy's error states: what is ignored stays in the kernels, and what is not is
told in NumPy's words, whoever set the state, wherever."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.ir.op_table import OPS
from alight._src.jit.decorator import Jitted
from alight._src.run import kernels

pytest.importorskip("llvmlite")

N = 2_000
STATES: dict[str, dict[str, Any]] = {
    "usual": {},
    "nothing": {"all": "ignore"},
    "two": {"divide": "ignore", "invalid": "ignore"},
    "all": {"all": "warn"},
    "restored": {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
}
VALUES = {
    "ordinary": np.linspace(0.5, 2, N),
    "negative": np.linspace(-1, 2, N),
    "zero": np.arange(N) / 8.0,
    "large": np.linspace(1, 800, N),
    "nan": np.where(np.arange(N) % 7, 1.5, np.nan),
    "infinite": np.where(np.arange(N) % 7, 1.5, np.inf),
}


def inside(a: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        b = np.log(a) + 1 / a
    return b * np.exp(a)


def whole(a: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.where(a > 0, np.log(a), 0.0) * 2


def plain(a: Any) -> Any:
    return np.sqrt(a) * 2 - a


def nested(a: Any) -> Any:
    with np.errstate(all="ignore"):
        b = np.log(a)
        with np.errstate(invalid="warn"):
            b = b + np.sqrt(a)
    return b - 1


BODIES = [inside, whole, plain, nested]
# No body has more than one of each, and beside them three steps that round, of terms that add up to
# 1 or more where they cancel.
CLOSE = (OPS["log"].ulp_from_numpy + OPS["exp"].ulp_from_numpy + 3) * float(np.finfo(float).eps)


def told(work: Callable[[], Any], state: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the result, and what was warned of under an error state."""
    with np.errstate(**state), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = np.asarray(work())
    texts = [str(one.message) for one in caught]
    return result, sorted(set(texts))


@contextmanager
def misses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Count the calls of jitted functions that their guards do not answer."""
    seen: list[Any] = []
    miss = Jitted.miss

    def counted(self: Jitted, args: Any, kwargs: Any) -> Any:
        seen.append(args)
        return miss(self, args, kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Jitted, "miss", counted)
        yield seen


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_calls_tell_what_numpy_tells(body: Callable[[Any], Any], name: str) -> None:
    state = STATES[name]
    with alight.policy(floor=0, force="cpu:generated"):
        function = alight.jit(body)
        with np.errstate(**state):  # made and answered by the guard before anything is to be told
            for _ in range(3):
                function(VALUES["ordinary"])
                kernels.settle()
        for which, a in VALUES.items():
            expected, warned = told(lambda a=a: body(a), state)
            for turn in range(3):
                found, heard = told(lambda a=a: function(a), state)
                assert heard == warned, (which, turn)
                np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE, err_msg=which)


@pytest.mark.parametrize("name", ["nothing", "restored", "two"])
def test_the_guard_answers_under_any_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block makes a state of its own: others that ask for the same do as well."""
    function = alight.jit(plain)
    a = VALUES["ordinary"]
    with alight.policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            with np.errstate(**STATES[name]):
                function(a)
                kernels.settle()
        with misses(monkeypatch) as seen:
            for _ in range(5):
                with np.errstate(**STATES[name]):
                    function(a)
            assert not seen
            with np.errstate(all="raise"):
                function(a)
            assert len(seen) == 1


@pytest.mark.parametrize("body", [whole, plain])
@pytest.mark.parametrize("which", VALUES)
def test_what_is_ignored_stays_in_the_kernels(
    body: Callable[[Any], Any], which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, a = alight.jit(body), VALUES[which]
    with alight.policy(floor=0, force="cpu:generated"), np.errstate(all="ignore"):
        expected = body(a)
        for _ in range(3):
            function(a)
            kernels.settle()
        with misses(monkeypatch) as seen:
            for _ in range(3):
                np.testing.assert_allclose(function(a), expected, rtol=CLOSE, atol=CLOSE)
            assert not seen


def test_a_state_of_a_block_inside_holds_where_the_call_is_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function, a = alight.jit(whole), VALUES["negative"]
    with alight.policy(floor=0, force="cpu:generated"):
        for _ in range(3):
            function(a)
            kernels.settle()
        with misses(monkeypatch) as seen, warnings.catch_warnings():
            warnings.simplefilter("error")
            function(a)
        assert not seen


def test_raising_states_raise_in_numpys_words() -> None:
    function, a = alight.jit(plain), VALUES["negative"]
    with alight.policy(floor=0, force="cpu:generated"):
        with np.errstate(all="ignore"):
            for _ in range(3):
                function(a)
                kernels.settle()
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="invalid value"):
            function(a)


def test_an_error_in_a_block_leaves_it() -> None:
    def body(a: Any) -> Any:
        with np.errstate(all="ignore"):
            if a.shape[0] > 3:
                raise ValueError("too long")
            return np.log(a)

    function = alight.jit(body)
    before = np.geterr()
    for _ in range(3):
        with pytest.raises(ValueError, match="too long"):
            function(np.ones(5))
        assert np.geterr() == before
        assert np.isnan(function(np.array([-1.0]))).all()


def least(a: Any) -> Any:
    return np.nanmin(a * 2)


def least_inside(a: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.nanmax(a.reshape(50, -1) * 2, axis=1)


def average(a: Any) -> Any:
    return np.nanmean(a * 2)


@pytest.mark.parametrize("force", ["cpu:generated", "sim:0"])
@pytest.mark.parametrize("body", [least, least_inside, average])
def test_what_numpy_says_in_words_no_state_ignores(body: Callable[[Any], Any], force: str) -> None:
    function, none = alight.jit(body), np.full(N, np.nan)
    with alight.policy(floor=0, force=force), np.errstate(all="ignore"):
        for _ in range(3):
            function(VALUES["nan"])
            kernels.settle()
        _, expected = told(lambda: body(none), {"all": "ignore"})
        assert len(expected) == 1
        for _ in range(3):
            assert told(lambda: function(none), {"all": "ignore"})[1] == expected
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(none)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match=expected[0]):
                function(none)


def told_inside(a: Any) -> Any:
    with np.errstate(divide="warn"):
        return 1 / a


@pytest.mark.parametrize("state", ["usual", "nothing"])
def test_a_filter_is_of_the_calls_inside_it(state: str) -> None:
    """What is kept of a call that was made where warnings are ignored warns elsewhere."""
    function, a = alight.jit(told_inside), VALUES["zero"]
    with alight.policy(floor=0, force="cpu:generated"), np.errstate(**STATES[state]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                function(VALUES["ordinary"])
                kernels.settle()
        for _ in range(3):
            assert told(lambda: function(a), {})[1] == ["divide by zero encountered in divide"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with warnings.catch_warnings(record=True) as caught:  # of what is told too late
                    function(a)
            assert not caught


def printed_inside(a: Any) -> Any:
    with np.errstate(divide="print"):
        return 1 / a


def programs_of(function: Any) -> list[Any]:
    return [p for kind in function._specializations.values() for p in kind.programs.values()]


def test_timing_numpy_beside_a_call_tells_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    warning, printing, a = alight.jit(told_inside), alight.jit(printed_inside), VALUES["zero"]
    with alight.policy(floor=0, force="cpu:generated"):
        warning(VALUES["ordinary"])
        printing(VALUES["ordinary"])
        (program,) = programs_of(warning)
        assert not program.once
        _, heard = told(lambda: warning.shadow(program, (a,), {}), {})
        assert not heard
        (program,) = programs_of(printing)
        assert program.once  # nothing keeps NumPy from printing: it is not done beside the call
        capfd.readouterr()
        printing(a)
        ours = capfd.readouterr()
    printed_inside(a)
    numpys = capfd.readouterr()
    assert (ours.out, ours.err) == (numpys.out, numpys.err) != ("", "")


def neighbours(board: Any) -> Any:
    around = np.roll(board, 1, 0) + np.roll(board, -1, 0) + np.roll(board, 1, 1)
    return ((around == 2) | (board == 1)).astype(np.int8)


def neighbours_one_by_one(board: Any) -> Any:
    around = sum(np.roll(board, shift, axis) for shift in (1, -1) for axis in (0, 1))
    return ((around == 2) | (board == 1)).astype(np.int8)


@pytest.mark.parametrize("action", ["always", "error"])
@pytest.mark.parametrize("body", [neighbours, neighbours_one_by_one])
def test_bodies_are_not_run_op_by_op_where_warnings_are_told_at_once(
    body: Callable[[Any], Any], action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []
    run = Jitted._body
    monkeypatch.setattr(Jitted, "_body", lambda *given: runs.append(1) or run(*given))
    function, board = alight.jit(body), np.eye(40, dtype=np.int8)
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        inside = warnings.filters
        for _ in range(30):
            assert function(board).tolist() == body(board).tolist()
        assert warnings.filters is inside
    assert len(runs) <= 2 and not caught  # once to know it, once more where it could not be kept
    assert warnings.filters == before


@pytest.mark.parametrize("body", [plain, nested])
def test_what_is_collected_is_told_before_the_call_returns(body: Callable[[Any], Any]) -> None:
    function, a = alight.jit(body), VALUES["negative"]
    expected = told(lambda: body(a), {})[1]
    for _ in range(12):
        assert told(lambda: function(a), {})[1] == expected
        kernels.settle()
