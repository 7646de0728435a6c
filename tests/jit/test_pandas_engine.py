"""`frame.apply(…, engine=alight.jit)` and `series.map(…, engine=alight.jit)` by pandas' own."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit.elementwise_body import Elements, Verdict, looked_at

pd = pytest.importorskip("pandas", minversion="3.0", reason="no pandas 3: pip install pandas")

RNG = np.random.default_rng(7)
SHAPE = (40, 3)
FRAMES = {
    "float64": pd.DataFrame(RNG.random(SHAPE), columns=list("abc")),
    "int64": pd.DataFrame(RNG.integers(-9, 9, SHAPE), index=range(5, 45)),
    "float32": pd.DataFrame(RNG.random(SHAPE).astype(np.float32)),
    "mixed": pd.DataFrame({"n": RNG.integers(0, 9, 9), "x": RNG.random(9), "t": list("abcdefghi")}),
    "missing": pd.DataFrame({"x": [1.0, np.nan, -2.0], "y": [0.0, np.inf, 3.0]}),
    "no rows": pd.DataFrame({"x": [], "y": []}, dtype=float),
}
BODIES: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x: np.sqrt(x * x + 1) - x / 2,
    "power": lambda x: x**2 + 2**x,
    "reduction": lambda x: (x - x.mean()).sum(),
    "row": lambda x: x / np.abs(x).max(),
    "sorted": np.sort,
    "parts": lambda x: x[::2],
    "number": lambda x: 1.5,
    "text": lambda x: "ab" if x[0] == x[-1] else "abcd",
    "spread": lambda x, by=1.0: x.std() * by,
    "compared": lambda x: (x > 0) & (x < 0.5),
    "branch": lambda x: x if isinstance(x, np.ndarray) else None,
    "fails": lambda x: x.nothing,
}


def outcome(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            result = type(error), str(error)
    return result, {(one.category, str(one.message)) for one in told}


def same(ours: Any, plain: Any) -> None:
    (found, told), (expected, warned) = ours, plain
    assert type(found) is type(expected)
    if isinstance(expected, (pd.Series, pd.DataFrame)):
        check = "series" if isinstance(expected, pd.Series) else "frame"
        getattr(pd.testing, f"assert_{check}_equal")(found, expected, rtol=1e-14, atol=0.0)
    else:
        assert found == expected
    assert told == warned


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("axis", [0, 1, "index", "columns"])
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("body", BODIES)
def test_apply_gives_what_pandas_gives(body: str, frame: str, axis: Any, raw: bool) -> None:
    function, data = BODIES[body], FRAMES[frame]
    plain = outcome(lambda: data.apply(function, axis=axis, raw=raw))
    if frame == "no rows" and axis == "index" and not isinstance(plain[0], pd.Series):
        pytest.skip("pandas asks axis == 0 there, of every engine")
    for engine in (alight.jit, alight.jit(pure=True)):
        same(outcome(lambda e=engine: data.apply(function, axis=axis, raw=raw, engine=e)), plain)


def test_apply_hands_on_arguments() -> None:
    data = FRAMES["float64"]
    for raw in (True, False):
        found = data.apply(BODIES["spread"], raw=raw, args=(3.0,), engine=alight.jit)
        pd.testing.assert_series_equal(found, data.apply(BODIES["spread"], raw=raw, args=(3.0,)))
        found = data.apply(BODIES["spread"], axis=1, raw=raw, by=3.0, engine=alight.jit)
        pd.testing.assert_series_equal(found, data.apply(BODIES["spread"], axis=1, raw=raw, by=3.0))


def test_apply_calls_a_body_once_that_does_the_same_with_every_element() -> None:
    data = pd.DataFrame(RNG.random((3000, 4)))
    alight.reset()
    with alight.policy(force="cpu:generated", floor=0):
        found = data.apply(lambda x: np.sqrt(x) + 1, axis=1, raw=True, engine=alight.jit)
    assert alight.report().to_dict()["totals"]["launches"] == 1
    pd.testing.assert_frame_equal(found, np.sqrt(data) + 1)


SERIES = {
    "floats": pd.Series(RNG.random(50) - 0.5, name="x"),
    "single": pd.Series(RNG.random(50).astype(np.float32), index=range(3, 53)),
    "missing": pd.Series([1.0, np.nan, -2.0, 0.0, np.inf]),
    "large": pd.Series([1e300, -1e300, 3.0]),
    "integers": pd.Series([3, -4, 2**62]),
    "nullable": pd.Series([1.5, None], dtype="Float64"),
    "texts": pd.Series(["a", "b"]),
    "empty": pd.Series([], dtype=float),
}
OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "polynomial": lambda x: (x * 3 + 1) * x - 2.5,
    "maths": lambda x: np.exp(-x) * x,
    "logarithm": lambda x: np.log(x),
    "inverse": lambda x: 1 / x,
    "inverse of NumPy's": lambda x: 1 / np.sqrt(x),
    "hidden inverse": lambda x: 1 / (1 / x),
    "halved": lambda x: x / 2,
    "by nothing": lambda x: x / 0,
    "power": lambda x: x**2,
    "root": lambda x: x**0.5,
    "compared": lambda x: (x > 0) & (x < 0.25),
    "counted": lambda x: (x > 0) + (x > 0.25),
    "chosen": lambda x: (x > 0) * x,
    "branch": lambda x: x if x > 0 else 0.0,
    "typed": lambda x: x if isinstance(x, float) else 0.0,
    "printed": lambda x: f"{x:.3f}",
    "shaped": lambda x: np.ndim(x) + x,
    "whole": lambda x: x.sum(),
    "drawn": lambda x: x + 0 * RNG.random(),
    "where": lambda x: np.where(x > 0, 1.0, 0.0),
    "same": lambda x: x,
    "number": lambda x: 2.0,
    "huge": lambda x: x * 10**400,
    "scalar": lambda x: x * np.float32(0.1),
    "magnitude": lambda x: abs(-x),
    "inverted": lambda x: ~(x > 0),
}


@pytest.mark.parametrize("action", [None, "ignore"])
@pytest.mark.parametrize("data", SERIES)
@pytest.mark.parametrize("body", OF_NUMBERS)
def test_map_gives_what_pandas_gives(body: str, data: str, action: Any) -> None:
    function, series = OF_NUMBERS[body], SERIES[data]
    plain = outcome(lambda: series.map(function, na_action=action))
    same(outcome(lambda: series.map(function, na_action=action, engine=alight.jit)), plain)


def test_map_looks_at_a_body_before_it_gives_it_arrays() -> None:
    yes = ("polynomial", "maths", "logarithm", "inverse of NumPy's", "halved", "compared", "chosen")
    raising = ("inverse", "hidden inverse", "by nothing")
    for name, body in OF_NUMBERS.items():
        wanted = Verdict.YES if name in (*yes, "same", "magnitude") else Verdict.NO
        wanted = Verdict.MAY_RAISE if name in raising else wanted
        assert looked_at(body, Elements.PYTHON_FLOATS, (), {}) is wanted, name
    scaled = lambda x, by: x * by  # noqa: E731
    assert looked_at(scaled, Elements.ARRAYS, (np.ones(3),), {}) is Verdict.NO
    assert looked_at(scaled, Elements.ARRAYS, (), {"by": 2.0}) is Verdict.YES


def test_a_body_that_changes_its_argument_is_called_as_pandas_calls_it() -> None:
    def doubled(x: Any) -> Any:
        x *= 2
        return x

    series = pd.Series(RNG.random(50))
    kept = series.copy()
    pd.testing.assert_series_equal(series.map(doubled, engine=alight.jit), kept * 2)
    pd.testing.assert_series_equal(series, kept)


def test_no_pandas_is_imported_by_the_engine() -> None:
    text = "import sys, alight; alight.jit.__pandas_udf__; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
