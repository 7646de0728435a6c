"""What is seldom needed of a function, in code that kernels share: in vectors, and for the lanes
alone that need it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alight._src.codegen.common.loops import Schedule
from alight._src.codegen.llvm import object_code
from alight._src.ir.op_table import OPS, Kind
from alight.backends import machine
from generated import loop_group, run, special, ulp_distance

DENORMALS = ("log", "log2", "log10", "cbrt")
RARE = (
    *("exp", "exp2", "expm1", "sinh", "cosh", "tan", "log1p", "arcsinh", "arccosh", "power"),
    *("fmod", "remainder", "floor_divide"),
)
SPECIAL = [op for op in OPS.values() if op.special and op.kind is Kind.ELEMENTWISE]


def denormals(dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    width = np.dtype(dtype).itemsize * 8
    bits = 2.0 ** rng.uniform(0, 23 if width == 32 else 52, 5003)
    return bits.astype(f"u{width // 8}").view(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DENORMALS)
def test_denormals_are_computed_in_vectors(name: str, dtype: str) -> None:
    op, x = OPS[name], denormals(dtype)
    group = loop_group([x], [(op, (0,), (), dtype)])
    assert not object_code._module(group, Schedule()).apart  # as other numbers are
    x[::3] = np.random.default_rng(1).uniform(0.5, 2, len(x[::3]))
    (found,) = run(group, [x])
    exact = op.reference(x.astype(np.longdouble)).astype(dtype)  # longer than what is bounded
    assert ulp_distance(found, exact).max() <= op.ulp


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RARE)
def test_kernels_of_any_width_share_functions_on_vectors(name: str, dtype: str) -> None:
    op, x = OPS[name], np.ones(64, dtype)
    group = loop_group([x] * op.nin, [(op, (*range(op.nin),), (), dtype)])
    shared = [object_code._module(group, Schedule(interleave=n)).apart for n in (1, 2, 4)]
    assert shared[0] and all(function.startswith("lanes.") for function in shared[0])
    assert set(shared[0]) == set(shared[1]) == set(shared[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "exp2", "power"])
def test_denormal_results_come_of_no_denormal_product(name: str, dtype: str) -> None:
    """Such products take some processors 150 cycles, and raise a flag."""
    op, info = OPS[name], np.finfo(dtype)
    powers = np.random.default_rng(5).uniform(info.minexp - info.nmant, info.minexp - 0.01, 5003)
    x = (powers * (np.log(2) if name == "exp" else 1)).astype(dtype)
    operands = [np.full(5003, 2, dtype), x] if name == "power" else [x]
    group = loop_group(operands, [(op, (*range(op.nin),), (), dtype)])
    kernel, found = object_code.compile_group(group), np.empty(5003, dtype)
    machine.clear_floating_point_flags()
    kernel([a.__array_interface__["data"][0] for a in (*operands, found)])
    assert not machine.floating_point_flags()
    assert (found < info.tiny).all()
    exact = op.reference(*[a.astype(np.longdouble) for a in operands]).astype(dtype)
    assert ulp_distance(found, exact).max() <= op.ulp


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_remainders_of_any_quotient_have_numpys_bits(name: str, dtype: str) -> None:
    info = np.finfo(dtype)
    rng = np.random.default_rng(3)

    def spread(count: int) -> np.ndarray[Any, Any]:
        exponents = rng.uniform(info.minexp - info.nmant, info.maxexp, count)
        with np.errstate(all="ignore"):
            return (2.0**exponents * rng.choice([-1, 1], count)).astype(dtype)

    x, y = spread(4099), spread(4099)
    y[::5] = x[::5] / rng.integers(1, 9, len(x[::5])).astype(dtype)  # whole and nearly so
    op = OPS[name]
    group = loop_group([x, y], [(op, (0, 1), (), dtype)])
    (found,) = run(group, [x, y])
    with np.errstate(all="ignore"):
        expected = op.reference(x, y)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tangents_of_huge_arguments_are_those_of_single_ones(dtype: str) -> None:
    """By products of halves in vectors, of whole words one by one."""
    rng = np.random.default_rng(4)
    x = (2.0 ** rng.uniform(30, np.finfo(dtype).maxexp, 4099)).astype(dtype)
    (found,) = run(loop_group([x], [(OPS["tan"], (0,), (), dtype)]), [x])
    wide = x.astype("float64")
    (sines,) = run(loop_group([wide], [(OPS["sin"], (0,), (), "float64")]), [wide])
    (cosines,) = run(loop_group([wide], [(OPS["cos"], (0,), (), "float64")]), [wide])
    # a sine and a cosine are an ulp off each, their quotient half of one
    bound = OPS["tan"].ulp + 2 * OPS["sin"].ulp + 0.5
    assert ulp_distance(found, (sines / cosines).astype(dtype)).max() <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", SPECIAL, ids=lambda op: op.name)
def test_lanes_that_do_not_need_it_raise_nothing(op: Any, dtype: str) -> None:
    values = np.concatenate([special(np.dtype(dtype)), denormals(dtype)[:20]])
    grids = np.meshgrid(*[values] * op.nin)
    operands = [grid.reshape(-1) for grid in grids]
    quiet = np.ones(operands[0].shape, bool)
    told = {"divide", "over", "invalid"}
    group = loop_group([a[:1] for a in operands], [(op, (*range(op.nin),), (), dtype)])
    kernel = object_code.compile_group(group)
    result = np.empty(1, dtype)
    for k in range(len(quiet)):
        one = [a[k : k + 1].copy() for a in operands]
        machine.clear_floating_point_flags()
        kernel([a.__array_interface__["data"][0] for a in (*one, result)])
        quiet[k] = not machine.floating_point_flags() & told
    order = np.random.default_rng(2).permutation(np.flatnonzero(quiet))
    operands = [a[order] for a in operands]
    group = loop_group(operands, [(op, (*range(op.nin),), (), dtype)])
    machine.clear_floating_point_flags()
    run(group, operands)
    assert not machine.floating_point_flags() & told
