"""What a program declares is held to its own function: on each device, for each declaration, and
for all the operands that the function is given."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.ir.op import UFUNCS
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.record.declared_ops import STAND_INS
from alight._src.run import kernels
from command_line import command

X = np.linspace(-4, 4, 1000)
EVERYWHERE = [
    {"floor": 0, "force": "cpu:generated"},
    {"floor": 0, "force": "sim:0", "devices": ("cpu", "sim:0")},
]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Forget what a test declares."""
    ops, ufuncs, stand_ins = dict(OPS), dict(UFUNCS), dict(STAND_INS)
    yield
    for table, before in ((OPS, ops), (UFUNCS, ufuncs), (STAND_INS, stand_ins)):
        table.clear()  # type: ignore[attr-defined]
        table.update(before)  # type: ignore[attr-defined]


def adding(number: float) -> Any:
    """Return a function that adds a number: all of these have one name."""

    def plus(x: Any) -> Any:
        return x + number

    return plus


# -- one verdict is one declaration's --------------------------------------------------------------


@pytest.mark.parametrize("policy", EVERYWHERE, ids=["cpu", "sim"])
def test_a_function_declared_anew_is_compared_anew(policy: dict[str, Any]) -> None:
    for number in (1.0, 2.0, 1.0):
        ours = alight.ops.declare(adding(number), body={"f": "x + 1.0"})
        with alight.policy(**policy):
            assert np.array_equal(np.asarray(ours(alight.asarray(X))), X + number)


def test_what_another_process_found_of_a_function_is_not_believed(tmp_path: Path) -> None:
    script = (
        "import numpy as np, alight\n"
        "def plus(x): return x + {0}\n"
        "ours = alight.ops.declare(plus, body={{'f': 'x + 1.0'}})\n"
        "with alight.policy(floor=0, force='cpu:generated'):\n"
        "    print(np.asarray(ours(alight.asarray(np.ones(500)))).max())\n"
    )
    said = [command(tmp_path, script.format(n), before=("-c",)).stdout for n in (1.0, 2.0)]
    assert said == ["2.0\n", "3.0\n"]


@pytest.mark.parametrize("policy", EVERYWHERE, ids=["cpu", "sim"])
def test_a_body_that_differs_is_found_out_on_each_device(policy: dict[str, Any]) -> None:
    ours = alight.ops.declare(adding(1.0), body={"f": "x + 2.0"})
    with alight.policy(**policy):
        before = LOG.snapshot()
        assert np.array_equal(np.asarray(ours(alight.asarray(X)) * 2), (X + 1) * 2)
    told = [one.what for one in LOG.snapshot().since(before).fallbacks]
    assert f"plus on {policy['force'].removesuffix(':generated')}" in told


# -- the function is asked about values that are not the program's ---------------------------------


class Refused(Exception):
    """An error of the program's own."""


def root(x: Any) -> Any:
    if (x < 0).any():
        raise Refused("negative numbers")
    return np.sqrt(x)


@pytest.mark.parametrize("policy", [*EVERYWHERE, {"floor": 0, "force": "numpy"}, {"floor": 0}])
def test_a_function_that_refuses_some_values_computes_the_others(policy: dict[str, Any]) -> None:
    ours = alight.ops.declare(root, body={"f": "sqrt(x)"})

    @alight.jit
    def jitted(x: Any) -> Any:
        return ours(x) + 1

    given = np.abs(X)
    with alight.policy(**policy):
        for _ in range(3):
            assert np.array_equal(np.asarray(ours(alight.asarray(given)) + 1), np.sqrt(given) + 1)
            assert np.array_equal(jitted(given), np.sqrt(given) + 1)


def test_what_a_function_refused_is_told() -> None:
    ours = alight.ops.declare(root, body={"f": "sqrt(x)"})
    with alight.policy(**EVERYWHERE[0]):
        before = LOG.snapshot()
        np.asarray(ours(alight.asarray(np.abs(X))))
    (told,) = LOG.snapshot().since(before).fallbacks
    assert "Refused: negative numbers" in told.reason


def test_an_unknown_bound_of_a_function_is_told() -> None:
    def bound(x: Any) -> Any:
        raise Refused("no bound of these")

    ours = alight.ops.declare(adding(1.0), body={"f": "x + 1.0"}, ulp=1, reference_ulp=bound)
    with alight.policy(**EVERYWHERE[0]):
        before = LOG.snapshot()
        assert np.array_equal(np.asarray(ours(alight.asarray(X))), X + 1)
    (told,) = LOG.snapshot().since(before).fallbacks
    assert "Refused: no bound of these" in told.reason


@pytest.mark.parametrize("policy", EVERYWHERE, ids=["cpu", "sim"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_a_function_that_refuses_ones_computes_the_others(
    dtype: str, policy: dict[str, Any]
) -> None:
    def doubled(x: Any) -> Any:
        if declared and (x == 1).any():
            raise Refused("a one")
        return x * 2

    declared: list[None] = []
    ours = alight.ops.declare(doubled, body={"f": "x * 2", "i": "x * 2"})
    declared.append(None)
    given = np.arange(3000).reshape(60, 50).astype(dtype) * 2
    with alight.policy(**policy):
        for one in (given, given.T, given[::2, 3:]):
            assert np.array_equal(np.asarray(ours(alight.asarray(one))), one * 2)


def test_another_shape_or_dtype_of_the_functions_is_told() -> None:
    def no_nans(x: Any) -> Any:
        return x[x == x]

    def longer(x: Any) -> Any:
        return x * 1 if np.isfinite(x).all() else x.astype(np.float32)

    for function, said in ((no_nans, "shape"), (longer, "float32")):
        ours = alight.ops.declare(function, body={"f": "x"})
        with alight.policy(**EVERYWHERE[0]):
            before = LOG.snapshot()
            assert np.array_equal(np.asarray(ours(alight.asarray(X))), function(X))
        (told,) = LOG.snapshot().since(before).fallbacks
        assert said in told.reason


def test_a_sum_has_no_body_of_single_elements() -> None:
    with pytest.raises(ValueError, match="no dtype of alight"):
        alight.ops.declare(lambda x: x.sum(), body={"f": "x"}, name="total")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGALRM there")
def test_a_signals_error_out_of_a_comparison_is_the_programs() -> None:
    def interrupt(*_: Any) -> None:
        raise Refused("time is up")

    def slow(x: Any) -> Any:
        if len(x) > len(X):  # of a comparison
            signal.raise_signal(signal.SIGALRM)
        return x + 1.0

    ours = alight.ops.declare(slow, body={"f": "x + 1.0"})
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with alight.policy(**EVERYWHERE[0]), pytest.raises(Refused, match="time is up"):
            np.asarray(ours(alight.asarray(X)))
    finally:
        signal.signal(signal.SIGALRM, before)


# -- dtypes ----------------------------------------------------------------------------------------


def root_of_second(x: Any, y: Any) -> Any:
    return x * np.sqrt(y)


def square_of_first(x: Any, y: Any) -> Any:
    return x * x + y


def first(x: Any, y: Any) -> Any:
    return x + 0


MIXED = [
    (root_of_second, "x * sqrt(y)", np.float32(1.5), np.int8(2)),
    (square_of_first, "x * x + y", np.int32(100_000), np.int64(1)),
    (square_of_first, "x * x + y", np.float32(1.1), np.float64(1)),
    (first, "x + 0 * y", np.float32(1.1), np.int64(1)),
    (first, "x + 0 * y", np.uint8(200), np.int8(1)),
    (root_of_second, "x * sqrt(y)", np.float32(1.5), 2),
    (root_of_second, "x * sqrt(y)", np.float32(1.5), 2.0),
    (first, "x + 0 * y", np.int64(3), 2.5),
    (square_of_first, "x * x + y", 3, np.int32(1)),
    (square_of_first, "x * x + y", np.float32(1.5), 1),
    (square_of_first, "x * x + y", np.float64(1.5), True),
]


@pytest.mark.parametrize("policy", [*EVERYWHERE, {"floor": 0, "force": "numpy"}])
@pytest.mark.parametrize(("function", "body", "x", "y"), MIXED)
def test_operands_of_several_dtypes_are_the_functions(
    function: Any, body: str, x: Any, y: Any, policy: dict[str, Any]
) -> None:
    bodies = dict.fromkeys("f" if "sqrt" in body else "fiu", body)
    ours = alight.ops.declare(function, body=bodies)
    plain = [np.full(500, one) if isinstance(one, np.generic) else one for one in (x, y)]
    with alight.policy(**policy), np.errstate(all="ignore"):
        got = ours(*[alight.asarray(a) if isinstance(a, np.ndarray) else a for a in plain])
        want = function(*plain)
        assert got.dtype == want.dtype
        assert np.array_equal(np.asarray(got), want)


def test_one_dtype_and_a_weak_scalar_record_the_op() -> None:
    ours = alight.ops.declare(square_of_first, body={"f": "x * x + y"})
    with alight.policy(**EVERYWHERE[0]):
        before = LOG.snapshot()
        for scalar in (1, 2.5, np.float64(2.5)):
            got = np.asarray(ours(alight.asarray(X), scalar) * 2)
            assert np.array_equal(got, square_of_first(X, scalar) * 2)
    assert not LOG.snapshot().since(before).exits


# -- declared by several threads, and over and over ------------------------------------------------


def test_threads_declare_at_a_time() -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(40):
                function = adding(1.0)
                function.__name__ = f"plus{number}"
                ours = alight.ops.declare(function, body={"f": "x + 1.0"})
                assert ours(X)[0] == -3
        except BaseException as error:
            failed.append(error)

    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in (0, 0, 1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(every)
    assert not failed, failed


def test_a_name_always_has_an_op_while_it_is_declared_anew() -> None:
    alight.ops.declare(adding(1.0), body={"f": "x + 1.0"})
    missing: list[None] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            if "plus" not in OPS:
                missing.append(None)

    thread = threading.Thread(target=look)
    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(100):
            alight.ops.declare(adding(1.0), body={"f": "x + 1.0"})
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(every)
    assert not missing


def test_what_was_declared_anew_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    # also where what was compiled of it waits for a disk that is slow
    over, keep = threading.Event(), kernels.keep
    monkeypatch.setattr(kernels, "keep", lambda *what: over.wait() and keep(*what))
    kept = []
    for number in range(4):
        function = adding(float(number))
        kept.append(weakref.ref(function))
        ours = alight.ops.declare(function, body={"f": f"x + {float(number)}"})
        with alight.policy(**EVERYWHERE[0]):
            np.asarray(ours(alight.asarray(X)) * 2)
    del function, ours
    gc.collect()
    gone = [one() is None for one in kept]
    over.set()
    kernels.settle()
    assert gone == [True, True, True, False]
