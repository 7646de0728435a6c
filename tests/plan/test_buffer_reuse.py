"""Results in the memory of temporaries that die: the same answers, in less memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import alight
from alight import _core
from alight._src.base.cache_registry import Cache, forget
from alight._src.log.decisions import LOG
from alight._src.plan.plan import LaunchStep
from alight._src.run import evaluate, execute
from alight.backends.host import HostBackend
from hearing import collected
from programs import assert_close

N = 1 << 16


def reused() -> list[tuple[int, int]]:
    """Return the reuses of all plans there are."""
    steps = [step for plan in evaluate._plans.values() for step in plan.steps]
    return [s.over for s in steps if isinstance(s, LaunchStep) and s.over is not None]


def scaled(x: Any, y: Any) -> Any:
    t = np.sin(x) * y + 1.0  # too dear to compute twice
    return (t - t.mean()) * y + t


def twice(x: Any, y: Any) -> Any:
    t = np.sin(x) * y + 1.0
    return scaled(scaled(t / t.max(), y), y)


def product(x: Any, y: Any) -> Any:
    return np.maximum((x.reshape(256, 256) @ y.reshape(256, 256)) * 0.5 + y[:256], 0.0)


EPILOGUES = {
    "alpha": lambda p, c, row, column: 0.5 * p,
    "beta": lambda p, c, row, column: 0.5 * p + 2.0 * c,
    "row": lambda p, c, row, column: p * row,
    "column": lambda p, c, row, column: p * column,
    "clamp": lambda p, c, row, column: np.clip(p, 60.0, 65.0),
    "power": lambda p, c, row, column: p**2,
    "bias": lambda p, c, row, column: np.maximum(p + row, 0.0),
    "tanh": lambda p, c, row, column: np.tanh(p * 1e-3 + row) * column,
}


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    return generator.random(N), generator.random(N) + 0.5


@pytest.mark.parametrize(("program", "most"), [(scaled, 1), (twice, 1), (product, 1)])
def test_results_take_the_memory_of_what_dies(program: Any, most: int, arrays: Any) -> None:
    x, y = arrays
    with alight.policy(floor=0, force="cpu:generated", on_gap="host"):
        a, b = alight.asarray(x), alight.asarray(y)
        for _ in range(3):  # the first run of a step finds out how it can run
            got = program(a, b)
            alight.evaluate(got)
        expected = np.asarray(got).copy()
        del got
        assert_close(expected, program, x, y)
        gc.collect()
        _core.keep_bytes(0)
        _core.keep_bytes(1 << 28)
        for _ in range(3):
            got = program(a, b)
            alight.evaluate(got)
            del got
            # All there was at once, for it was kept when it died.
            assert _core.kept_bytes() <= most * N * 8
        np.testing.assert_array_equal(np.asarray(program(a, b)), expected)
    assert reused()
    np.testing.assert_array_equal(np.asarray(a), x)
    HostBackend()


@pytest.mark.parametrize("name", EPILOGUES)
def test_what_follows_a_product_is_one_kernel_over_it(name: str, arrays: Any) -> None:
    a, b, c = arrays[0].reshape(256, 256), arrays[1].reshape(256, 256), arrays[0][::-1]
    operands = (c.reshape(256, 256), arrays[1][:256], arrays[1][:256, None])
    with alight.policy(floor=0, force="cpu:generated", on_gap="host"):
        given = [alight.asarray(array) for array in (a, b, *operands)]
        alight.reset()
        for _ in range(3):
            got = EPILOGUES[name](given[0] @ given[1], *given[2:])
            alight.evaluate(got)
        rows = alight.report().to_dict()["decisions"]
        # The first run of a step finds out how it can run.
        written = [row["in_place"] for row in rows if row["kind"] == "loop"]
        assert written == [False, True, True]
        assert "3 runs (2 in place of an operand)" in alight.report().explanation()
    assert_close(got, lambda a, b, *more: EPILOGUES[name](a @ b, *more), a, b, *operands)


def test_who_has_written_over_an_operand_warns_as_numpy_does(arrays: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        t = np.sin(x) * y
        return (t - t.max()) * 1e200 + np.sqrt(t) + y

    x, y = arrays
    for number, message in (
        (0.5, []),
        (-1.0, ["invalid value encountered in sqrt"]),
    ):
        x[7] = number
        with alight.policy(floor=0, force="cpu:generated"):
            a, b = alight.asarray(x), alight.asarray(y)
            results = []
            for _ in range(4):
                with collected() as caught:
                    results.append(np.asarray(program(a, b)))
                assert [str(w.message) for w in caught] == message
                assert all(w.filename == __file__ for w in caught)
            assert reused()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert_close(results[0], program, x, y)
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def test_what_is_read_round_the_end_is_not_written_over(arrays: Any) -> None:
    x, y = (array[:4000].copy() for array in arrays)
    t = x * y
    wanted = np.roll(t, 1) + 2 * t + np.roll(t, -1)
    with alight.policy(floor=0, force="cpu:generated"):
        a, b = alight.asarray(x), alight.asarray(y)
        for _ in range(4):
            t = a * b
            r = np.roll(t, 1) + 2 * t + np.roll(t, -1)
            del t
            np.testing.assert_array_equal(np.asarray(r), wanted)


def test_words_that_cannot_be_made_again_change_no_result(
    arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError("no room")

    x, _ = arrays
    x[7] = -1.0
    LOG.reset()
    monkeypatch.setattr(execute, "made_again", full)
    with alight.policy(floor=0, force="cpu:generated"), np.errstate(invalid="warn"):
        a = alight.asarray(x)
        results = []
        for _ in range(4):
            t = np.sin(a)
            s = np.sort(t)
            r = np.sqrt(t) * 2 + s
            del t
            w = np.sort(r)
            with collected():
                results.append((np.asarray(r), np.asarray(w)))
        assert reused()
    for r, w in results[1:]:
        np.testing.assert_array_equal(r, results[0][0])
        np.testing.assert_array_equal(w, results[0][1])
    assert LOG.snapshot().fallbacks[0].what == "the warning of sqrt+multiply+add"
    LOG.reset()


def test_memory_of_unknown_size_is_not_kept_for_a_warning(arrays: Any) -> None:
    x, y = arrays
    with alight.policy(floor=0, force="cpu:generated"):
        b = alight.asarray(y)
        for whole in (True, False):
            forget(Cache.PLANS)
            a = alight.asarray(x if whole else np.concatenate([x, x, x]))
            given = a if whole else a[:N]
            np.testing.assert_array_equal(
                np.asarray(scaled(given, b)), np.asarray(scaled(a[:N], b))
            )
            assert bool(reused()) == whole


def test_a_window_is_counted_with_all_of_its_memory(arrays: Any) -> None:
    x, y = np.concatenate([arrays[0]] * 3), arrays[1]
    with alight.policy(floor=0, force="cpu:generated"):
        b = alight.asarray(y)
        for least in (False, True):
            forget(Cache.PLANS)
            a = alight.asarray(x[:N] if least else x)
            first = a.sum()  # all of the memory, and needed no more
            t = np.sin(a[:N]) * b + 1.0
            others = [np.sort(t), np.cumsum(t)]  # live when t is written over
            got = t * b * first + sum(array.max() for array in others)
            del t
            alight.evaluate(got, *others)
            assert bool(reused()) == least


def test_words_are_told_once_where_a_value_is_made_again(arrays: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        m = np.nanmean(x, axis=1, keepdims=True)  # says in words that rows are empty
        t = np.sin(y) * m
        return np.sqrt(t) * 2.0 + (t - t.max()) * y

    x, y = (array.reshape(256, 256) for array in arrays)
    x = x[:, :8].copy()
    x[3], x[5] = np.nan, -1.0
    with collected() as caught:
        program(x, y)
    wanted = sorted(str(w.message) for w in caught)
    assert [told.rstrip(".") for told in wanted] == [
        *("Mean of empty slice", "invalid value encountered in sqrt")
    ]
    with alight.policy(floor=0, force="cpu:generated", on_gap="host"):
        a, b = alight.asarray(x), alight.asarray(y)
        for _ in range(4):
            with collected() as caught:
                alight.evaluate(program(a, b))
            assert sorted(str(w.message) for w in caught) == wanted
        assert reused()


def test_a_kernel_runs_once_however_little_memory_there_is(arrays: Any) -> None:
    script = textwrap.dedent(
        """
        import _testcapi, gc
        import numpy as np, alight
        from alight._src.run import execute
        x = np.linspace(0.1, 1.0, 1 << 16)
        failing = []
        run = execute.Execution._launch

        def launch(self, step):
            ready = execute.ready_of(step)
            if ready.direct is None or step.over is None or not failing:
                return run(self, step)
            numbers = [i * 0.5 for i in range(300)]  # Python keeps some to give out again
            after = failing.pop()
            _testcapi.set_nomemory(after, after + 1)
            try:
                took = ready.direct.run(self.values)
            finally:
                _testcapi.remove_mem_hooks()
            told.append(took)
            if took is None:
                run(self, step)

        execute.Execution._launch = launch
        told = []
        with alight.policy(floor=0, force="cpu:generated"):
            a, b = alight.asarray(x), alight.asarray(x[::-1].copy())
            def program():
                t = np.sin(a) * b + 1.0
                return (t - t.mean()) * b + t
            for _ in range(3):
                wanted = np.asarray(program())
            for after in range(12):
                failing.append(after)
                got = np.asarray(program())
                assert np.array_equal(got, wanted), after
        assert None in told and any(told), told
        print("done")
        """
    )
    pytest.importorskip("_testcapi")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr


def test_what_somebody_else_holds_is_not_written_over(arrays: Any) -> None:
    x, y = arrays
    with alight.policy(floor=0, force="cpu:generated"):
        a, b = alight.asarray(x), alight.asarray(y)
        for turn in range(4):
            t = np.sin(a) * b + 1.0
            half = t[::2] if turn % 2 else t
            r = (t - t.mean()) * b + t
            del t
            got, kept = np.asarray(r), np.asarray(half)
            assert_close(got, scaled, x, y)
            step = 1 + turn % 2
            assert_close(kept, lambda x, y, s=step: np.sin(x[::s]) * y[::s] + 1.0, x, y)


STEP = some.tuples(some.integers(0, 7), some.integers(0, 9), some.integers(0, 9))


def run(module: Any, steps: list[tuple[int, int, int]], inputs: list[Any]) -> list[Any]:
    """Return what a program leaves alive: the last few of its values."""
    values = list(inputs)
    for kind, first, second in steps:
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        if kind == 0:
            values.append(x + y)
        elif kind == 1:
            values.append(x * y - 0.5)
        elif kind == 2:
            values.append(x - y.mean())
        elif kind == 3:
            values.append(module.maximum(x, y[::-1]))
        elif kind == 4:
            values.append(module.abs(x) / (module.abs(y).max() + 1.0))
        elif kind == 5:
            values[-1][3:] += x[3:]
        elif kind == 7:
            values.append(module.roll(x, 1) + x * 2.0 + module.roll(x, -1))
        else:
            values.append(x.copy())
            values[-1][:-4] *= y[4:]
        del values[: max(0, len(values) - 8)]
    return values[-3:]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(steps=some.lists(STEP, min_size=3, max_size=14), seed=some.integers(0, 99))
@pytest.mark.parametrize("force", ["cpu:generated", "sim:0", None])
def test_random_programs_have_the_same_answers_each_time(
    force: str | None, steps: list[tuple[int, int, int]], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    given = [generator.standard_normal(50) for _ in range(3)]
    LOG.reset()
    with np.errstate(all="ignore"):
        wanted = run(np, steps, [array.copy() for array in given])
        with alight.policy(floor=0, force=force):
            for _ in range(4):
                ours = [alight.asarray(array) for array in given]
                results = run(alight, steps, ours)
                del ours
                alight.evaluate(*results)
                for got, want in zip(results, wanted, strict=True):
                    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-11, atol=1e-11)
    assert LOG.snapshot().counts["fallbacks"] == 0
