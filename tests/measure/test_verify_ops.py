"""What ops are compared with on a device is alight's own: nothing of it is heard by the program."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure import verify_ops
from alight.backends import registry
from elementwise_cases import CASES


@pytest.mark.parametrize("signature", CASES)
def test_no_comparison_of_an_op_warns(signature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(where: Any, group: Group, arrays: list[Any]) -> Any:
        """What a device has that is wrong everywhere: each difference is looked into."""
        made = group.graph.nodes[0].layout
        return np.full(made.shape, np.nan if made.dtype.kind in "fc" else 1).astype(made.dtype)

    monkeypatch.setattr(verify_ops, "_run", run)
    where = registry.device("sim:0")
    for op, inputs, output, attrs in CASES[signature]:
        place = dict(attrs).get("output", 0)
        with warnings.catch_warnings(record=True) as heard, np.errstate(all="warn"):
            warnings.simplefilter("always")
            verify_ops._compared(where, op, (*inputs, output), place)
        assert not heard, (op, inputs, output, [str(one.message) for one in heard])
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            verify_ops._compared(where, op, (*inputs, output), place)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_lengths_are_held_to_what_the_table_says(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's differ by the machine: the kernels of this one's host are within the bound of them,
    and whatever is further off is refused."""
    op, where = OPS["absolute"], registry.device("cpu")
    dtypes = np.dtype(dtype), np.abs(np.ones(1, dtype)).dtype
    assert verify_ops._compared(where, op, dtypes, 0) == ""
    for ulps, trusted in ((op.plane_ulp, True), (op.plane_ulp + 1, False), (-3, False)):

        def run(where: Any, group: Group, arrays: list[Any], ulps: float = ulps) -> Any:
            exact = np.abs(*arrays)
            within = np.isfinite(exact) & (exact > 1) & (exact < 1e30)
            return np.where(within, exact + (ulps * np.spacing(exact)).astype(exact.dtype), exact)

        monkeypatch.setattr(verify_ops, "_run", run)
        assert (verify_ops._compared(where, op, dtypes, 0) == "") is trusted
