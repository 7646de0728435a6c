"""What ops are compared with on a device is alight's own: nothing of it is heard by the program."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from alight._src.ir.group import Group
from alight._src.measure import verify_ops
from alight.backends import registry
from elementwise_cases import CASES


@pytest.mark.parametrize("signature", CASES)
def test_no_comparison_warns(signature: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
