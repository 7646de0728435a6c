"""pandas given arrays of the namespace, and what stands for scalars among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight

pd = pytest.importorskip("pandas", reason="pandas is not installed")

# Its tables of labels take no number but Python's and NumPy's own: s[x[2]] and s.map({x[2]: …}) are
# not among these.
_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "isin of an array": lambda s, x: s.isin(x[:5]),
    "isin of scalars": lambda s, x: s.isin([x[1], x[4]]),
    "clip": lambda s, x: s.clip(x[2], x[5]),
    "replace": lambda s, x: s.replace(x[2], x[5]),
    "replace by a dict": lambda s, x: s.replace({x[2]: x[5]}),
    "at": lambda s, x: s.at[int(x[2])],
    "fillna": lambda s, x: s.where(s > 3).fillna(x.mean()),
    "between": lambda s, x: s.between(x[2], x[5]),
    "compared": lambda s, x: s > x.mean(),
    "sum": lambda s, x: s + x.sum(),
    "where": lambda s, x: s.where(s > x[3], x[0]),
    "column": lambda s, x: s.to_frame("a").assign(m=x.mean())["m"],
    "column of whole numbers": lambda s, x: s.to_frame("a").assign(m=x.argmax())["m"],
    "column of truths": lambda s, x: s.to_frame("a").assign(m=(x > 3).any())["m"],
    "set column": lambda s, x: _with_column(s, x.mean()),
    "frame of scalars": lambda s, x: pd.DataFrame({"a": x.mean(), "b": x.sum()}, index=[0, 1])["b"],
    "series of one": lambda s, x: pd.Series(x.mean(), index=[0, 1]),
}


def _with_column(series: Any, item: Any) -> Any:
    frame = series.to_frame("a")
    frame["m"] = item
    return frame["m"]


@pytest.mark.parametrize("name", _CALLS)
def test_pandas_takes_them_for_numpys(name: str) -> None:
    def outcome(make: Any) -> Any:
        x = make(np.arange(10.0))
        made = _CALLS[name](pd.Series(np.arange(10.0)), x)
        return (str(getattr(made, "dtype", "")), np.asarray(made).tolist())

    assert outcome(alight.asarray) == outcome(np.array)
