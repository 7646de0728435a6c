"""Warnings are the program's: its filters stay as they are, and each is shown as often as by
NumPy."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import hooks
from alight._src.fp_warnings import filters
from alight._src.record import dead_operands
from hearing import collected


@pytest.fixture
def often() -> Iterator[None]:
    """Have threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often")
def test_recording_in_several_threads_leaves_the_filters_as_they_are() -> None:
    def record(thread: int) -> None:
        with alight.policy(floor=0, force="numpy"):
            for length in range(3 + thread, 1603 + thread, 8):  # new layouts: NumPy is asked
                a = alight.arange(float(length))
                b = (a * 2).reshape(-1, 1)
                b.mean(axis=0), b.T.var(axis=1, ddof=1), alight.add(b, a)

    with warnings.catch_warnings():
        before = list(warnings.filters)
        threads = [threading.Thread(target=record, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(warnings.filters) == before


def test_a_new_layout_has_no_warning_shown_again() -> None:
    def run(module: Any) -> int:
        registry: dict[str, Any] = {"np": module, "__name__": "program"}
        code = compile(
            "for n in range(2002, 2014, 2):\n"
            "    a = np.reshape(np.arange(float(n)), (-1, 2)).T\n"
            "    float((np.log(a - 3) + a.mean(axis=0) + a.sum(axis=0))[0, 0])\n",
            "program.py",
            "exec",
        )
        shown = []
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("default")
            patch.setattr(warnings, "showwarning", lambda *given, **_: shown.append(str(given[0])))
            exec(code, registry)
        return len(shown)

    with alight.policy(floor=0, force="numpy"):
        assert run(alight) == run(np) == 2


def test_a_scalar_that_overflows_warns_at_the_line_of_the_program() -> None:
    a = np.ones(2000, np.float16)
    with alight.policy(floor=0), collected() as caught:
        np.asarray(alight.asarray(a) + 1e10)
        np.asarray(alight.add(alight.asarray(a), -1e10))
    assert [(w.filename, str(w.message)) for w in caught] == [
        (__file__, "overflow encountered in cast")
    ] * 2


def test_references_counted_in_one_thread_do_not_end_a_call_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array = alight.ones(3)
    failed: list[BaseException] = []

    def other() -> None:
        try:
            dead_operands.temporary(array, False)
        except BaseException as error:
            failed.append(error)

    def counts(call: Any) -> Any:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return (), (0, 0)

    monkeypatch.setattr(dead_operands, "_counts", counts)
    monkeypatch.setattr(dead_operands, "_held", None)
    dead_operands.temporary(array, False)
    assert failed == []


@pytest.fixture
def deferring() -> Iterator[None]:
    with alight.policy(floor=0, force="cpu:generated"):
        yield


def pending(array: Any) -> bool:
    return array.storage.value.op is not None


@pytest.mark.usefixtures("deferring")
def test_a_warning_is_told_where_the_op_was_called() -> None:
    a = alight.asarray([0.0, 1.0])
    with collected() as caught:
        early = 1 / a
        for action in ("error", "ignore"):
            with warnings.catch_warnings():
                warnings.simplefilter(action)  # type: ignore[arg-type]
                np.asarray(early)  # NumPy has warned before
    assert [str(w.message) for w in caught] == ["divide by zero encountered in divide"]


@pytest.mark.parametrize("force", ["cpu:numpy", "cpu:generated"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_range_that_is_too_wide_is_told_as_the_difference(force: str, dtype: str) -> None:
    most = np.finfo(dtype).max
    array = np.array([most, 0, -most], dtype)
    with collected() as wanted:
        np.ptp(array)
    with alight.policy(floor=0, force=force), collected() as caught:
        np.asarray(np.ptp(alight.asarray(array)))
    assert [str(w.message) for w in caught] == [str(w.message) for w in wanted]


WHEN_LOADED = """
import warnings
import contextlib
outer = warnings.catch_warnings(record=True) if {collects} else contextlib.nullcontext()
with outer:
    import alight
    with alight.policy(floor=0, force="cpu:generated"):
        a = alight.asarray([0.0, 1.0])
        for filters in ([], ["always"]):
            with warnings.catch_warnings(record=True) as caught:
                for action in filters:
                    warnings.simplefilter(action)
                print((1 / a).storage.value.op is not None, len(caught))
"""


@pytest.mark.parametrize(
    ("collects", "waits"), [(False, ["False 1", "False 1"]), (True, ["True 0", "False 1"])]
)
def test_who_collected_when_alight_was_loaded_runs_the_program(
    collects: bool, waits: list[str]
) -> None:
    """A test runner's block around every test is no reason to do all work at the call."""
    done = subprocess.run(
        [sys.executable, "-c", WHEN_LOADED.format(collects=collects)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == waits


@pytest.mark.usefixtures("deferring")
def test_filters_put_back_let_work_wait_again() -> None:
    a = alight.asarray([0.0, 1.0])
    for _ in range(3):
        assert pending(1 / a)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning):
                1 / a
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert pending(1 / a)
            with pytest.raises(RuntimeWarning), np.errstate(divide="warn"):
                1 / a
            with pytest.raises(FloatingPointError), np.errstate(divide="raise"):
                1 / a
            with np.errstate(divide="ignore"):
                assert not np.isnan(np.asarray(1 / a)).any()


@pytest.mark.usefixtures("deferring")
@pytest.mark.parametrize("append", [False, True])
def test_filters_of_the_process_itself_hold_from_the_next_op_on(append: bool) -> None:
    a = alight.asarray([0.0, 1.0])
    with collected():
        warnings.resetwarnings()
        assert pending(1 / a)
        warnings.simplefilter("error", append=append)
        with pytest.raises(RuntimeWarning):
            1 / a
        warnings.resetwarnings()
        assert pending(1 / a)


@pytest.mark.usefixtures("deferring")
def test_what_the_process_ignores_at_the_call_is_not_told_later() -> None:
    a = alight.asarray([0.0, 1.0])
    with collected() as caught:
        warnings.filterwarnings("ignore")
        silent = 1 / a
        assert pending(silent)
        warnings.resetwarnings()
        warnings.simplefilter("always")
        np.asarray(silent)  # NumPy has dropped it before
        assert not caught
        np.asarray(2 / a)
    assert [str(w.message) for w in caught] == ["divide by zero encountered in divide"]


@pytest.mark.usefixtures("deferring")
@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({"action": "ignore", "category": DeprecationWarning}, True),
        ({"action": "error", "category": DeprecationWarning}, True),
        ({"action": "error", "message": "divide by zero"}, False),
        ({"action": "ignore", "message": "divide by zero"}, False),
        ({"action": "default"}, True),
        ({"action": "error", "category": RuntimeWarning, "module": "other"}, False),
    ],
)
def test_only_filters_that_a_floating_point_warning_can_meet_matter(
    given: dict[str, Any], waits: bool
) -> None:
    a = alight.asarray([1.0, 2.0])
    with collected(), warnings.catch_warnings():
        vars(warnings)["_showwarnmsg_impl"] = lambda message: None
        warnings.filterwarnings(**given)
        assert pending(1 / a) == waits


@pytest.mark.usefixtures("deferring")
def test_looking_at_the_filters_is_rare() -> None:
    a = alight.asarray([1.0, 2.0])
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks, "errstate", lambda: asked.append(1) or filters.recording_errstate())
        with collected():
            for _ in range(100):
                a = a * 2 + a
            assert len(asked) <= 1
            for _ in range(10):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    a = a * 2 + a
                a = a * 2 + a
            assert len(asked) <= 11


@pytest.mark.parametrize("force", ["numpy", "cpu:generated"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("ours", [False, True])
def test_imaginary_parts_lost_in_an_assignment_are_told_at_its_line(
    force: str, mask: bool, ours: bool
) -> None:
    a = alight.arange(6.0) * 2
    value: Any = alight.asarray(np.array(2 + 1j)) * 2 if ours else np.array(4 + 2j)
    with alight.policy(floor=0, force=force), collected() as caught, np.errstate(all="ignore"):
        a[a > 4 if mask else ...] = value
        got = np.asarray(a)
    want = np.arange(6.0) * 2
    want[want > 4 if mask else ...] = 4
    assert got.tolist() == want.tolist()
    told = [(warning.category, warning.filename) for warning in caught]
    assert told == [(np.exceptions.ComplexWarning, __file__)]


@pytest.mark.parametrize("name", ["nanmax", "nanmean", "nanstd"])
@pytest.mark.parametrize("force", ["numpy", "cpu:generated"])
def test_what_numpy_says_in_words_is_told_at_the_recorded_line(force: str, name: str) -> None:
    with alight.policy(floor=0, force=force), collected() as caught:
        numbers = getattr(alight, name)(alight.asarray(np.full((2, 3), np.nan)), axis=1)
        np.asarray(numbers)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("floor", [0, None])
@pytest.mark.parametrize("keywords", [{}, {"out": True}, {"where": True}], ids=str)
def test_the_mean_of_nothing_is_told_at_the_line_of_the_program(
    floor: int | None, keywords: dict[str, Any]
) -> None:
    with alight.policy(**({} if floor is None else {"floor": floor})):
        empty = alight.zeros((0, 3))
        given = {key: alight.zeros(3) if key == "out" else True for key in keywords}
        for call in (lambda: alight.mean(empty, axis=0, **given), lambda: empty.mean(0, **given)):
            with collected() as caught:
                np.asarray(call())
            told = [w.filename for w in caught if str(w.message).startswith("Mean of empty slice")]
            assert told == [__file__]


@pytest.mark.parametrize("force", ["cpu:generated", "sim:0"])
def test_ops_whose_warnings_are_collected_run_where_they_are_to_and_warn_at_the_call(
    force: str,
) -> None:
    with alight.policy(floor=0, force=force):
        a = alight.asarray([0.0, 1.0, 4.0])
        waiting = a * 2
        alight.reset()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lines = [sys._getframe().f_lineno + k for k in (1, 2, 3, 4)]
            made = a / (a - 1)
            inverse = np.divide(3.0, a)
            total = inverse.sum() - np.log(waiting - waiting).max()
            narrow = (a * 1e300).astype(np.float32)
            told = [(w.filename, w.lineno, str(w.message)) for w in caught]
    assert not any(pending(array) for array in (made, inverse, total, narrow))
    assert told == [
        (__file__, lines[0], "divide by zero encountered in divide"),
        (__file__, lines[1], "divide by zero encountered in divide"),
        (__file__, lines[2], "divide by zero encountered in log"),
        (__file__, lines[3], "overflow encountered in cast"),
    ]
    report = alight.report().to_dict()
    assert report["exits"] == []
    operations = report["totals"]["element_operations"]
    assert operations["numpy"] == 0 and operations["by_device"].get(force.partition(":g")[0], 0) > 9


def told_by(program: Any, x: np.ndarray, y: np.ndarray) -> list[tuple[int, str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for part in program:
            part(x, y)
        return [(w.lineno, str(w.message)) for w in caught if w.filename == __file__]


CALLS = (
    lambda x, y: x.astype(np.float32),
    lambda x, y: x.astype(np.int32) + 1,
    lambda x, y: np.divmod(x, y),
    lambda x, y: np.frexp(x / y),
    lambda x, y: np.add(x, x, out=y * 1),
    lambda x, y: np.cumsum(x),
    lambda x, y: np.convolve(x, x),
    lambda x, y: np.einsum("i,i->", x, x),
)


@pytest.mark.parametrize("force", ["numpy", "cpu:generated", "sim:0"])
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_casts_and_library_calls_warn_at_the_call_too_and_several_outputs_once(
    number: int, force: str
) -> None:
    x, y = np.array([1e308, -1.0, 3.0, 2.0]), np.array([0.5, 0.0, 0.0, 2.0])
    with alight.policy(floor=0, force=force):
        ours = told_by(CALLS[number : number + 1], alight.asarray(x), alight.asarray(y))
    assert ours == told_by(CALLS[number : number + 1], x, y)


def test_what_one_thread_asks_without_warnings_another_is_told() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with filters.warnings_suppressed():
            np.mean([])
            context = copy_context()  # where filters are a context's, from Python 3.14 on
            other = threading.Thread(target=context.run, args=(np.mean, []))
            other.start()
            other.join()
        assert list(warnings.filters) == before
    (one,) = caught  # the other's
    assert str(one.message).startswith("Mean of empty slice")  # NumPy 2.1 has a full stop there
