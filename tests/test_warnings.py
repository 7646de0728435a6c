"""Warnings are the program's: its filters stay as they are, and each is shown as often as by
NumPy."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight import temporary


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
    with alight.policy(floor=0), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
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
            temporary.temporary(array, False)
        except BaseException as error:
            failed.append(error)

    def counts(call: Any) -> Any:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return (), (0, 0)

    monkeypatch.setattr(temporary, "_counts", counts)
    monkeypatch.setattr(temporary, "_held", None)
    temporary.temporary(array, False)
    assert failed == []
