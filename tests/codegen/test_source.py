"""Kernels as source text: every op has a form in CUDA C that compiles; packs, indices, branches."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import nvrtc
from alight._core import layout_of, make_layout
from alight._src.codegen.common.loops import nest
from alight._src.codegen.common.source import Grid, gap
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.group_forms import OPTIONS, index_bits, packs
from alight._src.codegen.cuda.loop_kernels import cuda_loop
from alight._src.codegen.wgsl.wgsl_dialect import wgsl
from alight._src.codegen.wgsl.wgsl_loops import wgsl_loop
from alight._src.ir.body import constant, typed
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight.device import Unsupported
from elementwise_cases import CASES
from generated import loop_group
from without_card import needs_nvrtc


def group_of(signature: str, n: int = 64) -> Group:
    """Return a group that computes every op on these dtypes."""
    cases = CASES[signature]
    inputs = [np.ones(n, dtype) for dtype in cases[0][1]]
    uses = [(op, tuple(range(op.nin)), attrs, out) for op, _, out, attrs in cases]
    return loop_group(inputs, uses)


def test_every_op_with_a_body_has_a_form_in_cuda() -> None:
    count = 0
    for cases in CASES.values():
        for op, ins, out, _ in cases:
            assert gap(CUDA, op, (*ins, out)) is None
            count += 1
    assert count > 800


def test_every_gap_of_wgsl_says_what_is_missing() -> None:
    has = {"float32", "int32", "uint32", "bool"}
    gaps = {}
    for cases in CASES.values():
        for op, ins, out, _ in cases:
            reason = gap(wgsl(True, False), op, (*ins, out))
            if {d.name for d in (*ins, out)} <= has:
                gaps[op.name] = reason
            else:
                assert reason is not None and "WGSL has no" in reason
    printed = {name for name, reason in gaps.items() if reason is None}
    assert {"add", "divide", "sqrt", "exp", "log", "tanh", "maximum", "gcd"} <= printed
    for reason in filter(None, gaps.values()):
        assert "WGSL has no" in reason


@needs_nvrtc
def test_every_op_compiles_in_cuda_c(request: pytest.FixtureRequest) -> None:
    full = request.config.getoption("--full")
    sample = ("float32", "float64-float64", "int8-int8", "uint64-uint64", "bool-bool", "complex64")
    sample += ("uint32-uint64-uint64",)
    for signature in CASES if full else sample:
        group = group_of(signature)
        text = cuda_loop(group, nest(group))
        for architecture in ("sm_80", "sm_90", "sm_100") if full else ("sm_90",):
            assert nvrtc.cubin(text, architecture, OPTIONS)[:4] == b"\x7fELF"


@needs_nvrtc
@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_cuda_compiles_complex_powers(name: str) -> None:
    x = np.ones(64, name)
    group = loop_group([x, x], [(OPS["power"], (0, 1), (), x.dtype)])
    text = cuda_loop(group, nest(group))
    assert nvrtc.cubin(text, "sm_90", OPTIONS)[:4] == b"\x7fELF"


@needs_nvrtc
@pytest.mark.parametrize("elements", [1, 4])
@pytest.mark.parametrize("bits", [32, 64])
def test_cuda_compiles_on_every_layout(elements: int, bits: int) -> None:
    x = np.ones((8, 12, 16), np.float32)
    others = (x, x[:, :1], np.float32(2)[None], x.swapaxes(0, 1).copy().swapaxes(0, 1), x > 0)
    for y in others:
        out, flags = make_layout(x.dtype, x.shape), make_layout(np.dtype(bool), x.shape)
        mixed = "where" if y.dtype.kind == "b" else "multiply"
        nodes = (
            Node(OPS["sqrt"], (0,), (), out),
            Node(OPS[mixed], (1, 2, 0)[: OPS[mixed].nin], (), out),
            Node(OPS["isfinite"], (3,), (), flags),
        )
        graph = Graph((layout_of(x), layout_of(y)), nodes, (3, 4))
        group = Group(GroupKind.LOOP, graph, x.shape)
        shape = nest(group)
        text = cuda_loop(group, shape, Grid(128, elements, bits))
        assert nvrtc.cubin(text, "sm_90", OPTIONS)


@needs_nvrtc
def test_a_wrong_text_does_not_compile() -> None:
    with pytest.raises(AssertionError, match="undefined"):
        nvrtc.cubin("__global__ void f() { g(); }", "sm_90", ())


def test_packs_go_where_everything_is_aligned() -> None:
    def asked(x: Any, offsets: tuple[int, ...]) -> bool:
        group = loop_group([x, x], [(OPS["add"], (0, 1), (), x.dtype)])
        return packs(nest(group), offsets, (x.itemsize,) * 3, 4)

    x = np.ones((6, 8), np.float32)
    assert asked(x, (0, 16, 32))
    assert not asked(x, (0, 4, 0))  # not on 16 bytes
    assert asked(np.ones(7, np.float32), (0, 0, 0))  # one axis: the rest goes one by one
    assert not asked(np.ones((6, 9), np.float32)[:, :7], (0, 0, 0))  # rows end in a rest
    assert not asked(np.ones((6, 10), np.float32)[:, :8], (0, 0, 0))  # rows of 40 bytes
    assert not asked(x[:, ::2], (0, 0, 0))
    with pytest.raises(Unsupported, match="packs"):
        group = loop_group([x[:, ::2]], [(OPS["sqrt"], (0,), (), x.dtype)])
        cuda_loop(group, nest(group), Grid(elements=4))


def test_indices_are_as_wide_as_the_farthest_element_needs() -> None:
    far = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (2, 3), (4 << 29, 4))
    near = np.ones((2, 3), np.float32)
    for x, bits in ((near, 32), (far, 32)):
        group = loop_group([x], [(OPS["sqrt"], (0,), (), x.dtype)])
        assert index_bits(nest(group), (4, 4)) == bits
    farther = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (3, 3), (4 << 29, 4))
    group = loop_group([farther], [(OPS["sqrt"], (0,), (), farther.dtype)])
    assert index_bits(nest(group), (4, 4)) == 64


def test_only_loops_are_printed_and_the_reason_is_given() -> None:
    x = np.ones(4, np.float32)
    node = Node(OPS["sum"], (0,), (("axis", (0,)),), make_layout(np.dtype(np.float32), ()))
    group = Group(GroupKind.REDUCE, Graph((layout_of(x),), (node,), (1,)), x.shape)
    with pytest.raises(Unsupported, match="reduce groups are not printed"):
        wgsl_loop(wgsl(True, False), group, nest(group), Grid())
    assert "elementwise" in str(gap(wgsl(True, False), OPS["sum"], (x.dtype, x.dtype)))
    assert gap(CUDA, OPS["sum"], (x.dtype, x.dtype)) is None
    half = np.dtype(np.float16)
    assert gap(CUDA, OPS["sum"], (half, half)) is None
    for dtype in (half, x.dtype, np.dtype(float)):
        assert "NumPy's order" in str(gap(CUDA, OPS["prod"], (dtype, dtype)))


def test_what_is_rare_is_a_branch() -> None:
    from alight._src.codegen.common.source import Statements

    (tree,) = typed("rarely(x > 1, sqrt(x) * 2, x + 1)", ("float32",), ("float32",))
    code = Statements(CUDA)
    result = code.evaluate(tree, ["a"])
    text = "\n".join(code.lines)
    branch = text[text.index("if (") :]
    assert "sqrtf" in branch and "sqrtf" not in text[: text.index("if (")]
    assert f"{result} = " in branch


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e-45, 3e38, np.inf, -np.inf, np.nan, 2.0**-149])
def test_literals_of_float32_are_exact(value: float) -> None:
    text = CUDA.literal(constant(value, "float32").value, "float32")
    if np.isfinite(value):
        got = np.float32(text.strip("()").removesuffix("f"))
    else:
        got = np.uint32(int(text[text.index("0x") : -1], 16)).view(np.float32)
    assert np.array_equal(got, np.float32(value), equal_nan=True)
    assert np.signbit(got) == np.signbit(np.float32(value))


def test_a_dialect_says_which_dtype_it_lacks() -> None:
    small = dataclasses.replace(CUDA, types={"float32": "float"})
    with pytest.raises(Unsupported, match="no float64"):
        small.type_of("float64")
    with pytest.raises(Unsupported, match="no real of float32"):
        CUDA.form("real", "float32")
    assert CUDA.functions("gcd<int>(a, b)").startswith("template")
