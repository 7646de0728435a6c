"""Which elementwise ops of the table a CUDA device is not trusted with: each in each dtype against
NumPy, as at its first use.

``python -m tests.ratchets.cuda_trust NUMBER COUNT`` asks for every COUNTth case from NUMBER on and
prints a line of JSON. What there was no time for is named among what failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from alight._src.ir.op import Op
from alight._src.measure import verify_ops
from elementwise_cases import CASES

from .cuda_rig import Rig

SECONDS = 45.0

Case = tuple[Op, tuple[np.dtype[Any], ...], int]


def cases() -> Iterator[Case]:
    """Yield every op with the dtypes of its operands and of a result of it."""
    seen: set[Case] = set()
    for group in CASES.values():
        for op, operands, result, attrs in group:
            case = op, (*operands[: op.nin], result), dict(attrs).get("output", 0)
            if case not in seen:
                seen.add(case)
                yield case


def main() -> None:
    """Ask for this process's share of the cases."""
    number, count = map(int, sys.argv[1:])
    began = perf_counter()
    rig = Rig()
    rig.backend.open(rig.device)
    asked, doubted, failed = 0, {}, {}
    for op, dtypes, output in list(cases())[number::count]:
        name = f"{op.name} {' '.join(d.name for d in dtypes)} {output}"
        if perf_counter() - began > SECONDS:
            failed[name] = "no time left"
            continue
        asked += 1
        reason = verify_ops.doubt(rig.device, op, dtypes, output)
        if reason is not None:
            doubted[name] = reason[:300]
    print(json.dumps({"results": asked, "doubted": doubted, "failed": failed}))


if __name__ == "__main__":
    main()
