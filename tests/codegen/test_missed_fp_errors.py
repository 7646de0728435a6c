"""What NumPy warns of, kernels leave flags of, or the op table says that they may not: then NumPy
is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.run import kernels
from alight.backends import machine
from hearing import collected

pytest.importorskip("llvmlite")

from alight._src.codegen.llvm import object_code
from generated import address, loop_group, loops, special

TINY = float(np.finfo(float).tiny)
UFUNCS = [
    op
    for op in OPS.values()
    if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc) and op.nout == 1
]


def values(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return special values, and floats on both sides of where exponentials underflow."""
    found = special(dtype)
    if dtype.kind != "f":
        return found
    ends = [-80, -90, -104, -127, -150, -710, -746, -1023, -1075, -1e4, 1e-20, 1e-160]
    with np.errstate(all="ignore"):
        return np.concatenate([found, np.array(ends).astype(dtype)])


def warned(op: Op, operands: list[np.ndarray[Any, Any]]) -> set[str]:
    """Return what NumPy warns of."""
    found: set[str] = set()
    with np.errstate(all="call", call=lambda what, flag: found.add(machine.CATEGORY[what])):
        op.reference(*operands)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", UFUNCS, ids=lambda op: op.name)
def test_what_numpy_warns_of_is_heard(op: Op, dtype: str) -> None:
    for before, after in loops(op):
        if before[0] != dtype:
            continue
        grids = np.meshgrid(*[values(d) for d in before], indexing="ij")
        tuples = np.random.default_rng(0).permutation(grids[0].size)[:400]
        operands = [np.empty(16, d) for d in before]
        result = np.empty(16, after[0])
        kernel = object_code.compile_group(
            loop_group(operands, [(op, (*range(op.nin),), (), after[0].name)])
        )
        for k in tuples:
            for operand, grid in zip(operands, grids, strict=True):
                operand[:] = grid.flat[k]
            machine.clear_floating_point_flags()
            kernel([address(a) for a in (*operands, result)])
            heard = machine.floating_point_flags() | op.missed_fp_errors
            assert warned(op, operands) <= heard, [operand[0] for operand in operands]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "exp": (lambda a: np.exp(a) * 2, (np.full(1000, -1e4),)),
    "exp2": (lambda a: np.exp2(a), (np.full(1000, -1e4),)),
    "nextafter": (lambda a, b: np.nextafter(a, b), (np.full(1000, TINY), np.zeros(1000))),
    "spacing": (lambda a: np.spacing(a) + 1, (np.full(1000, TINY / 2),)),
    "hypot": (lambda a, b: np.hypot(a, b), (np.full(1000, TINY / 2), np.full(1000, 5e-324))),
    "logaddexp": (lambda a, b: np.logaddexp(a, b), (np.zeros(1000), np.full(1000, -2000.0))),
    "power": (lambda a, b: np.power(a, b), (np.full(1000, -2.0), np.full(1000, -1074.0))),
    "mean": (lambda a: np.mean(a), (np.full(1000, TINY / 2 + 0j),)),
    "none": (lambda a, b: np.logaddexp(a, b), (np.ones(1000), np.ones(1000))),
}


@pytest.mark.parametrize("where", ["cpu:generated", "sim:0"])
@pytest.mark.parametrize("name", CASES)
def test_underflows_are_told_as_numpy_tells_them(name: str, where: str) -> None:
    body, arguments = CASES[name]
    function = alight.jit(body)
    with alight.policy(floor=0, force=where):
        for _ in range(3):  # made, and answered by the guard, before anything is to be told
            function(*[np.full(1000, 1.5) for _ in arguments])
            kernels.settle()
        for state in ({"all": "warn"}, {"all": "ignore"}, {"under": "warn"}, {}):
            with np.errstate(**state):  # type: ignore[arg-type]
                with collected() as theirs:
                    body(*arguments)
                for _ in range(3):
                    with collected() as ours:
                        np.asarray(function(*arguments))
                    texts = [{str(w.message) for w in found} for found in (ours, theirs)]
                    assert texts[0] == texts[1], state
                with collected() as ours:
                    np.asarray(body(*map(alight.asarray, arguments)))
                assert {str(w.message) for w in ours} == texts[1], state
