"""Op bodies in generated kernels against NumPy: every op × dtype × special values."""

from __future__ import annotations

import math
import platform
import re
from typing import Any

import numpy as np
import pytest

from alight._core import layout_of
from alight._src.codegen.common.gaps import supports
from alight._src.codegen.common.loops import Schedule
from alight._src.codegen.llvm import object_code
from alight._src.fp_warnings.emit import capturing
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.measure import probes
from alight.backends import machine
from generated import (
    INTEGERS,
    Array,
    address,
    loop_group,
    loops,
    points,
    reduce_layout,
    reference,
    run,
    ulp_distance,
)  # fmt: skip

# NumPy differs from itself in the sign of a zero from a tie of these
TIES = {"maximum", "minimum", "fmax", "fmin", "clip"}

ELEMENTWISE = [op for op in OPS.values() if op.kind is Kind.ELEMENTWISE]
CASES: dict[tuple[str, ...], list[tuple[Op, tuple[Any, ...], tuple[Any, ...]]]] = {}
for _op in ELEMENTWISE:
    for _ins, _outs in loops(_op):
        CASES.setdefault(tuple(d.name for d in _ins), []).append((_op, _ins, _outs))


def in_range(op: Op, node: Node, operands: list[Array]) -> Array:
    """Tell which points NumPy defines: integer powers not below 0, casts to integers in range."""
    ok = np.ones(operands[0].shape, bool)
    if op.name == "power" and operands[1].dtype.kind == "i":
        ok &= operands[1] >= 0
    to_integer = op.name == "cast" and node.layout.dtype.kind in "iu"
    if op.name == "reciprocal" and operands[0].dtype.kind in "iu":
        ok &= operands[0] != 0
    if to_integer and operands[0].dtype.kind in "fc":
        info = np.iinfo(node.layout.dtype)
        whole = np.trunc(operands[0].real.astype(np.longdouble))
        with np.errstate(invalid="ignore"):
            ok &= (whole >= info.min) & (whole <= info.max)
    return ok


@pytest.mark.parametrize("signature", CASES, ids="-".join)
def test_elementwise_equals_numpy_on_special_values(signature: tuple[str, ...]) -> None:
    cases = CASES[signature]
    inputs = points(cases[0][1])
    uses = []
    for op, ins, outs in cases:
        assert supports(op, (*ins, *outs)) is None
        for i, dtype in enumerate(outs):
            if op.name == "power" and ins[1].kind == "i":
                continue  # its own test: NumPy raises for the negative exponents among these
            attrs = (
                (("output", i),)
                if op.nout > 1
                else (("dtype", dtype),)
                if op.name == "cast"
                else ()
            )
            uses.append((op, tuple(range(len(ins))), attrs, dtype))
    group = loop_group(inputs, uses)
    outputs = run(group, inputs)
    for node, actual in zip(group.graph.nodes, outputs, strict=True):
        assert_close(node, actual, [inputs[i] for i in node.operands])


def assert_close(node: Node, actual: Array, operands: list[Array]) -> None:
    ok = in_range(node.op, node, operands)
    expected = np.asarray(reference(node, operands))
    assert actual.dtype == expected.dtype, node.op
    with np.errstate(invalid="ignore"):
        distance = ulp_distance(actual, expected)
    if node.op.name in TIES and actual.dtype.kind == "f":
        distance[(actual == 0) & (expected == 0)] = 0
    # of complex products and quotients NumPy's own loops give different ones, with fma and without
    bound = node.op.ulp_from_reference(operands)
    if actual.dtype.kind == "c" and not node.op.special:
        bound = 2
    if node.op.name == "absolute" and operands[0].dtype.kind == "c":
        bound = 2
    with np.errstate(all="ignore"):
        room = None
        if actual.dtype.kind == "c":
            room = bound * node.op.plane_unit(operands, expected)
        elif node.op.against is not None:
            room = bound * np.spacing(node.op.against(*operands))
        if room is not None:
            distance[np.abs(actual - expected) <= room] = 0
    wrong = np.flatnonzero(ok & ~(distance <= bound))
    shown = [(*(a[i] for a in operands), actual[i], expected[i]) for i in wrong[:4]]
    assert not len(wrong), f"{node.op}, {len(wrong)} points, max {distance[ok].max()} ulp: {shown}"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="C99 leaves some of the signs open")
@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "op",
    [
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt"),
    ],
)
def test_complex_maths_has_numpys_infinities_nans_and_signs(op: str, name: str) -> None:
    part = np.finfo(name).dtype
    ends = [0.0, 0.5, 3.0, 50.0, 90.0, 1500.0, 1e5, float(np.finfo(part).max), np.inf]
    edges = np.array([*ends, *(-x for x in ends), np.nan], part)
    x = np.array([complex(a, b) for a in edges for b in edges], name)
    (actual,) = run(loop_group([x], [(OPS[op], (0,), (), np.dtype(name))]), [x])
    with np.errstate(all="ignore"):
        expected = OPS[op].reference(x)
        wide = OPS[op].reference(x.astype(np.clongdouble)).astype(name)
    parts = [(getattr(z, p) for z in (actual, expected, wide)) for p in ("real", "imag")]
    for ours, theirs, exact in parts:
        # what overflows on NumPy's way to a finite result need not on ours
        early = np.isinf(theirs) & np.isfinite(exact)
        kinds = [
            np.where(np.isnan(p), 2, np.where(np.isinf(p), np.sign(p), 0.5 * (p == 0)))
            for p in (ours, theirs)
        ]
        signs = np.isnan(ours) | (np.signbit(ours) == np.signbit(theirs))
        wrong = (kinds[0] != kinds[1]) & ~early | ~signs
        assert not wrong.any(), (x[wrong][:4], actual[wrong][:4], expected[wrong][:4])


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("op", ["power", "float_power"])
def test_complex_powers_equal_numpys(op: str, name: str) -> None:
    dtype = np.dtype(name)
    if (op, name) == ("float_power", "complex64"):
        pytest.skip("NumPy has no such loop")
    generator = np.random.default_rng(4)

    def drawn(scale: float) -> Array:
        parts = generator.standard_normal((2, 3000)) * scale
        return (parts[0] + 1j * parts[1]).astype(dtype)

    whole = generator.integers(-99, 100, 3000).astype(dtype)
    some: list[tuple[Array, Array]] = [
        *((drawn(a), drawn(b)) for a, b in ((1, 1), (1e3, 3), (1e-3, 3), (1, 30))),
        (drawn(1), whole),
        (drawn(1), (whole / 2).astype(dtype)),
    ]
    kernel_inputs = points([dtype, dtype])
    for x, y in [(kernel_inputs[0], kernel_inputs[1]), *some]:
        group = loop_group([x, y], [(OPS[op], (0, 1), (), dtype)])
        (actual,) = run(group, [x, y])
        assert_close(group.graph.nodes[0], actual, [x, y])


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_whole_complex_powers_have_numpys_zeros_infinities_and_signs(name: str) -> None:
    dtype = np.dtype(name)
    ends = np.array([0.0, 0.5, 1.0, 3.0, 1e30, np.inf], np.finfo(dtype).dtype)
    edges = [*ends, *-ends, np.nan]
    bases = np.array([complex(a, b) for a in edges for b in edges], dtype)
    exponents = np.array([0, 1, 2, 3, 4, 5, 8, 99, -1, -2, -3, -99, -0.0], dtype)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(bases, exponents))
    (actual,) = run(loop_group([x, y], [(OPS["power"], (0, 1), (), dtype)]), [x, y])
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    for ours, theirs in ((actual.real, expected.real), (actual.imag, expected.imag)):
        kinds = [np.where(np.isnan(p), 2, np.where(np.isinf(p), 1, 0)) for p in (ours, theirs)]
        wrong = (kinds[0] != kinds[1]) | ((ours == 0) != (theirs == 0))
        wrong |= ~np.isnan(theirs) & (np.signbit(ours) != np.signbit(theirs))
        assert not wrong.any(), (x[wrong][:4], y[wrong][:4], actual[wrong][:4], expected[wrong][:4])


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_powers_raise_the_flags_that_numpy_raises(name: str) -> None:
    dtype = np.dtype(name)
    for base, exponent, told in (
        (2 + 1j, 3, set()),
        (2 + 1j, -7, set()),
        (2 + 1j, 2.5 - 1j, set()),
        (0, 0, set()),
        (0, 2 + 1j, set()),
        (0, -1, {"invalid"}),
        (0, 1j, {"invalid"}),
        (complex(np.inf, 1), 0, set()),
        (complex(np.inf, 1), 1, set()),
        (1e30 + 1j, 99, {"over", "invalid"}),
    ):
        x = np.full(40, 1.5 + 1j, dtype)
        y = np.resize(np.array([0.5, 2, -3, 1j], dtype), 40)
        x[7], y[7] = base, exponent
        group = loop_group([x, y], [(OPS["power"], (0, 1), (), dtype)])
        run(group, [x, y])
        machine.clear_floating_point_flags()
        run(group, [x, y])
        raised = machine.floating_point_flags() & {"divide", "over", "invalid"}
        assert raised == told, (base, exponent)


def test_bools_are_true_for_any_byte_but_zero() -> None:
    x = np.array([0, 1, 2, 255], np.uint8).view(bool)
    group = loop_group(
        [x], [(OPS["logical_not"], (0,), (), bool), (OPS["cast"], (0,), (("dtype", "f8"),), "f8")]
    )
    inverted, number = run(group, [x])
    assert inverted.tolist() == [True, False, False, False]
    assert number.tolist() == [0, 1, 1, 1]


def test_integer_power_equals_numpy() -> None:
    for char in INTEGERS:
        dtype = np.dtype(char)
        x, y = points([dtype, dtype])
        keep = y >= 0
        x, y = x[keep], y[keep]
        (actual,) = run(loop_group([x, y], [(OPS["power"], (0, 1), (), dtype)]), [x, y])
        assert np.array_equal(actual, np.power(x, y))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_maths_is_within_its_bound_of_numpy_on_random_values(name: str) -> None:
    dtype = np.dtype(name)
    generator = np.random.default_rng(11)
    unary = [op for op in ELEMENTWISE if op.special and op.nin == 1]
    binary = [op for op in ELEMENTWISE if op.special and op.nin == 2]
    for scale in (1e-3, 1, 10, 700):
        x, y = ((generator.standard_normal(2000) * scale).astype(dtype) for _ in range(2))
        uses: list[Any] = [(op, (0,), (), dtype) for op in unary]
        uses += [
            (op, (0, 1), (), dtype)
            for op in binary
            if op.name != "float_power" or name == "float64"
        ]
        group = loop_group([x, y], uses)
        for node, actual in zip(group.graph.nodes, run(group, [x, y]), strict=True):
            assert_close(node, actual, [(x, y)[i] for i in node.operands])


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="no longer float to compare with")
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("op", ["exp", "exp2", "expm1", "log", "log2", "sin", "cos", "tanh"])
def test_our_own_maths_is_within_three_ulp_of_the_truth(op: str, name: str) -> None:
    dtype = np.dtype(name)
    info = np.finfo(dtype)
    generator = np.random.default_rng(5)
    top = float(np.log(info.max))
    samples = [generator.uniform(-1, 1, 50_000), generator.uniform(-top, top, 50_000)]
    samples += [np.exp(samples[1]), np.rint(samples[1]) * (np.pi / 2), samples[0] * 1e-5]
    x = np.concatenate(samples).astype(dtype)
    x = x[x > 0] if op.startswith("log") else x[x < info.maxexp] if op == "exp2" else x
    with np.errstate(all="ignore"):
        exact = getattr(np, op)(x.astype(np.longdouble))
        (actual,) = run(loop_group([x], [(OPS[op], (0,), (), dtype)]), [x])
        error = np.abs(actual - exact) / np.spacing(np.abs(exact.astype(dtype)))
        far = ~np.isfinite(exact.astype(dtype))
        assert np.array_equal(actual[far], exact[far].astype(dtype), equal_nan=True)
    assert error[~far].max() < 3


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_rare_elements_are_computed_apart(name: str) -> None:
    dtype = np.dtype(name)
    generator = np.random.default_rng(6)
    x = generator.uniform(-10, 10, (3, 700)).astype(dtype)
    x[0, 5], x[1, 300], x[2, 699], x[2, 1] = 1e22, np.inf, -3e11, np.nan
    uses = [
        (OPS["sin"], (0,), (), dtype),
        (OPS["cos"], (0,), (), dtype),
        (OPS["exp"], (0,), (), dtype),
    ]
    group = loop_group([x], uses)
    for node, actual in zip(group.graph.nodes, run(group, [x]), strict=True):
        assert_close(node, actual.ravel(), [x.ravel()])
    for array, axes in ((x, (1,)), (np.ascontiguousarray(x.T), (1,)), (x[:, 6:200], (0, 1))):
        full = layout_of(array)
        result = reduce_layout(dtype, array.shape, axes, False)
        nodes = (
            Node(OPS["sin"], (0,), (), full),
            Node(OPS["max"], (1,), (("axis", axes),), result),
        )
        reduced = Group(GroupKind.REDUCE, Graph((full,), nodes, (2,)), array.shape)
        with np.errstate(invalid="ignore"):
            expected = np.asarray(np.max(np.sin(array), axis=axes))
        (actual,) = run(reduced, [array])
        assert ulp_distance(actual, expected).max() <= OPS["sin"].ulp_from_numpy
    single = loop_group([x], [(OPS["sin"], (0,), (), dtype)])
    (expected,) = run(single, [x])
    in_place = x.copy()
    object_code.compile_group(single)([address(in_place), address(in_place)])
    assert np.array_equal(in_place, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("op", "value", "flag"),
    [
        ("log", 0.0, "divide"),
        ("log2", -1.0, "invalid"),
        ("exp", 1e4, "over"),
        ("sin", np.inf, "invalid"),
    ],
)
def test_maths_leaves_the_flags_that_numpy_warns_by(op: str, value: float, flag: str) -> None:
    for x, raised in (
        (np.linspace(1, 2, 40), False),
        (np.append(np.linspace(1, 2, 39), value), True),
    ):
        group = loop_group([x], [(OPS[op], (0,), (), x.dtype)])
        run(group, [x])
        machine.clear_floating_point_flags()
        run(group, [x])
        assert (flag in machine.floating_point_flags()) == raised


# What NumPy tells of infinite powers differs by processor; where a flag is up, NumPy is asked.
_NUMPY_MAY_TELL_LESS = dict.fromkeys(("power", "float_power"), ("divide", "over"))


def _raised(
    op: Op, kernel: Any, places: list[int], operands: list[Any]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the categories that a kernel raises, and those that NumPy tells of."""
    told = frozenset(("divide", "over", "invalid"))
    machine.clear_floating_point_flags()
    kernel(places)
    raised = machine.floating_point_flags() & told
    heard: list[str] = []
    with capturing(told, heard):
        op.reference(*operands)
    return raised, frozenset([machine.CATEGORY[what] for what in heard])


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.special], ids=lambda op: op.name)
def test_maths_raises_the_flags_that_numpy_raises_and_no_others(op: Op, name: str) -> None:
    dtype = np.dtype(name)
    if (op.nin * (dtype,), (dtype,)) not in loops(op):
        pytest.skip("NumPy has no such loop")
    values = points([dtype] * op.nin)
    one = [np.empty(1, dtype) for _ in values]
    result = np.empty(1, dtype)
    kernel = object_code.compile_group(loop_group(one, [(op, tuple(range(op.nin)), (), dtype)]))
    places = [address(a) for a in (*one, result)]
    for operands in zip(*values, strict=True):
        for array, value in zip(one, operands, strict=True):
            array[0] = value
        raised, expected = _raised(op, kernel, places, one)
        more = raised - expected
        if any(np.isinf(v) for v in operands):
            more -= set(_NUMPY_MAY_TELL_LESS.get(op.name, ()))
        if op.name.startswith("special.") and not np.isfinite(result[0]):
            # SciPy tells of nothing, nor of what overflows or is no number in truth
            more -= {"over", "invalid"}
        assert expected <= raised and not more, (operands, raised, expected)


def _loops_of_floats(op: Op) -> list[str]:
    return [
        char for char in "fd" if (op.nin * (np.dtype(char),)) in [before for before, _ in loops(op)]
    ]


@pytest.mark.parametrize(
    ("op", "char"),
    [(op, c) for op in ELEMENTWISE if op.name != "cast" for c in _loops_of_floats(op)],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@pytest.mark.parametrize("size", [3, 64])
def test_a_nan_raises_a_flag_only_where_numpy_tells_of_it(op: Op, char: str, size: int) -> None:
    """A flag that NumPy tells nobody of has the call done once more in NumPy, to tell of nothing:
    the comparisons of x86's vectors raise one for every NaN unless others are asked for."""
    dtype = np.dtype(char)
    after = next(after for before, after in loops(op) if before == op.nin * (dtype,))
    one = [np.empty(size, dtype) for _ in range(op.nin)]
    uses = [
        (op, tuple(range(op.nin)), () if len(after) == 1 else (("output", place),), result)
        for place, result in enumerate(after)
    ]
    results = [np.empty(size, result) for result in after]
    kernel = object_code.compile_group(loop_group(one, uses))
    places = [address(a) for a in (*one, *results)]
    for operands in zip(*points([dtype] * op.nin), strict=True):
        if not any(map(np.isnan, operands)):
            continue
        for array, value in zip(one, operands, strict=True):
            array[:] = value
        raised, expected = _raised(op, kernel, places, one)
        assert raised <= expected, (operands, raised)


def test_half_floats_are_compared_as_single_ones() -> None:
    """LLVM took vectors of them apart, in a time that grew with the square of their number."""
    found = set()
    dtype = np.dtype(np.float16)
    for op in [op for op in ELEMENTWISE if op.name != "cast"]:
        after = [after for before, after in loops(op) if before == op.nin * (dtype,)]
        if after and op.nout == 1:
            uses = [(op, tuple(range(op.nin)), (), after[0][0])]
            text = object_code.module_text(
                loop_group([np.empty(64, dtype)] * op.nin, uses), Schedule()
            )
            found |= set(re.findall(r"constrained\.fcmp\.v\d+(f\d+)", text))
    assert found == {"f32"}


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin", "argmax", "argmin"])
@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("shape", [(3,), (1000,), (7, 40)])
def test_extremes_among_nans_raise_no_flag(name: str, char: str, shape: tuple[int, ...]) -> None:
    x = np.linspace(-1, 1, math.prod(shape)).astype(char).reshape(shape)
    x.flat[1] = np.nan
    for axis in range(len(shape)):
        group = probes.reduction(name, x.dtype.name, shape, (axis,))
        run(group, [x])
        machine.clear_floating_point_flags()
        run(group, [x])
        assert not machine.floating_point_flags() & {"divide", "over", "invalid"}, axis
