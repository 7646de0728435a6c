"""The op table: nothing of NumPy is missing, every body has types, every reference is NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir import body
from alight._src.ir.op import declare
from alight._src.ir.op_table import OPS, Kind, Op, loop_dtypes
from alight._src.ir.table_structure import Slot

NUMERIC = set("?bhilqBHILQefdgFDG")
GENERATED = set("?bhilqBHILQfd")


def numpy_ufuncs() -> dict[str, np.ufunc]:
    """Return every ufunc of NumPy by its own name."""
    found = (getattr(space, name) for space in (np, np._core.umath) for name in dir(space))
    return {f.__name__: f for f in found if isinstance(f, np.ufunc)}


def numeric(ufunc: np.ufunc) -> bool:
    return any(set(text) <= NUMERIC | set("->") for text in ufunc.types)


def test_no_numeric_ufunc_of_numpy_is_missing() -> None:
    missing = [
        n for n, f in numpy_ufuncs().items() if numeric(f) and n not in OPS and n != "_ones_like"
    ]
    assert missing == []
    assert not any(numeric(numpy_ufuncs()[n]) for n in ("isnat", "str_len", "isalpha"))


def test_a_ufunc_is_its_own_reference() -> None:
    for name, ufunc in numpy_ufuncs().items():
        if name in OPS and OPS[name].kind is Kind.ELEMENTWISE:
            assert OPS[name].reference is ufunc
            assert (OPS[name].nin, OPS[name].nout) == (ufunc.nin, ufunc.nout)
        elif name in OPS:
            assert ufunc.signature is not None and OPS[name].kind is Kind.LIBRARY


ELEMENTWISE = [op for op in OPS.values() if op.kind is Kind.ELEMENTWISE]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_every_loop_on_bools_integers_and_floats_has_a_body(op: Op) -> None:
    if not isinstance(op.reference, np.ufunc):
        assert isinstance(op.body, (str, dict))
        return
    for text in op.reference.types:
        operands, results = text.split("->")
        if set(operands + results) <= GENERATED:
            names = tuple(np.dtype(c).name for c in operands)
            chosen = body.choose(op.body, names)
            assert chosen is not None, (op, text)
            trees = body.typed(chosen, names, tuple(np.dtype(c).name for c in results))
            assert [t.dtype for t in trees] == [np.dtype(c).name for c in results]


def test_only_transcendentals_may_differ_from_numpy() -> None:
    for op in ELEMENTWISE:
        assert (op.ulp > 0) == op.special, op
        # SciPy's have functions of functions in them; docs/accuracy.md has what was measured
        assert op.ulp <= (5 if op.name.startswith("special.") else 2), op
    for op in OPS.values():
        if op.kind is Kind.REDUCTION:
            assert op.bound is not None and op.bound(10) <= op.bound(1000), op
            if op.name.rpartition("_")[2] in ("min", "max", "any", "all", "argmin", "nonzero"):
                assert op.bound(1000) == 0


def test_loop_dtypes_are_numpys() -> None:
    f4, f8, i1, i8, u8, flag = (np.dtype(c) for c in ("f4", "f8", "i1", "i8", "u8", "?"))
    assert loop_dtypes(OPS["add"], (f4, float)) == (f4, f4, f4)
    assert loop_dtypes(OPS["add"], (i1, float)) == (np.dtype("f8"),) * 3
    assert loop_dtypes(OPS["add"], (i1, bool)) == (i1, i1, i1)
    assert loop_dtypes(OPS["divide"], (i8, i8)) == (f8, f8, f8)
    assert loop_dtypes(OPS["less"], (i8, u8)) == (i8, u8, flag)
    assert loop_dtypes(OPS["divmod"], (f4, f4)) == (f4, f4, f4, f4)
    assert loop_dtypes(OPS["where"], (flag, f4, float)) == (flag, f4, f4, f4)
    assert loop_dtypes(OPS["where"], (flag, i1, i8)) == (flag, i8, i8, i8)
    assert loop_dtypes(OPS["clip"], (f4, float, float)) == (f4,) * 4
    assert loop_dtypes(OPS["isposinf"], (f4,)) == (f4, flag)
    with pytest.raises(TypeError) as ours:
        loop_dtypes(OPS["bitwise_and"], (f8, f8))
    with pytest.raises(TypeError) as numpys:
        np.bitwise_and(1.0, 1.0)
    assert type(ours.value) is type(numpys.value)
    with pytest.raises(TypeError, match=r"NumPy has no loops for it\. Fix"):
        loop_dtypes(OPS["sort"], (f8,))


def test_an_op_is_declared_once() -> None:
    with pytest.raises(ValueError, match=r"'add' is declared twice\. Fix"):
        declare("add", Kind.ELEMENTWISE, np.add)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x + nothing", "unknown name"),
        ("x + int32(y)", "it is int32 and float64 is needed"),
        ("x & y", "and is not defined on float64"),
        ("x if y else x", "not part of the language"),
        ("1 + 1 < 3", "no operand of it has a type"),
        ("x, y", "it has 2 results and the op 1"),
        ("x < y", "it is bool and float64 is needed"),
        ("frobnicate(x)", "unknown call"),
    ],
)
def test_a_body_that_is_wrong_says_so(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="Fix: correct the op's body") as caught:
        body.typed(text, ("float64", "float64"), ("float64",))
    assert why in str(caught.value)


def test_constants_are_rounded_to_their_type() -> None:
    (tree,) = body.typed("x * 0.1", ("float32",), ("float32",))
    assert tree.args[1].value == float(np.float32(0.1))
    (tree,) = body.typed("x & ~(MIN + 3)", ("uint8",), ("uint8",))
    assert tree.args[1].value == 252
    (tree,) = body.typed("a = x + x\na * a", ("int8",), ("int8",))
    assert tree.args[0] is tree.args[1]
    assert str(tree) == "mul:int8(add:int8(x, x), add:int8(x, x))"


def test_reductions_take_their_mask_from_the_operands() -> None:
    array, mask = np.arange(6.0).reshape(2, 3), np.array([True, False, True])
    assert OPS["sum"].reference(array, mask, axis=(0, 1), where=True) == 10
    assert OPS["reduce_maximum"].reference(
        array, mask, axis=(1,), where=True, initial=-9
    ).tolist() == [2, 5]
    assert OPS["argmax"].reference(array, axis=(0, 1)) == 5
    assert OPS["argmax"].reference(array, axis=(1,)).tolist() == [2, 2]
    assert OPS["accumulate_maximum"].reference(array, axis=1).tolist() == array.tolist()


X = np.arange(12.0).reshape(3, 4) - 5
ROWS = np.array([0, 2, 1])
EXAMPLES: dict[str, tuple[tuple[Any, ...], dict[str, Any], Callable[[], Any]]] = {
    "concatenate": ((X, X), {"axis": 1}, lambda: np.concatenate([X, X], 1)),
    "stack": ((X, X), {"axis": 1}, lambda: np.stack([X, X], 1)),
    "hstack": ((X, X), {}, lambda: np.hstack([X, X])),
    "repeat": ((X,), {"repeats": 2, "axis": 0}, lambda: np.repeat(X, 2, 0)),
    "getitem": ((X, ROWS), {"key": (Slot(0), ("slice", 1, 3, None))}, lambda: X[ROWS, 1:3]),
    "take_along_axis": ((X, X.argsort(1)), {"axis": 1}, lambda: np.sort(X, 1)),
    "choose": ((ROWS, X[0, :3], -ROWS, ROWS), {}, lambda: np.choose(ROWS, [X[0, :3], -ROWS, ROWS])),
    "select": ((X > 0, X < -2, X, -X), {}, lambda: np.select([X > 0, X < -2], [X, -X])),
    "einsum": ((X, X), {"subscripts": "ij,kj->ik"}, lambda: X @ X.T),
    "matmul": ((X, X.T), {}, lambda: X @ X.T),
    "searchsorted": ((X[0], X[1]), {}, lambda: np.searchsorted(X[0], X[1])),
    "linalg.norm": ((X,), {}, lambda: np.linalg.norm(X)),
    "linalg.multi_dot": ((X, X.T, X), {}, lambda: np.linalg.multi_dot([X, X.T, X])),
    "fft.fft": ((X,), {"axis": 0}, lambda: np.fft.fft(X, axis=0)),
    "arange": ((3, 9), {"dtype": "f4"}, lambda: np.arange(3, 9, dtype="f4")),
    "linspace": ((0, 1, 5), {}, lambda: np.linspace(0, 1, 5)),
    "cast": ((X,), {"dtype": np.dtype("i2")}, lambda: X.astype("i2")),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_references_of_ops_are_numpys(name: str) -> None:
    operands, attrs, expected = EXAMPLES[name]
    actual = OPS[name].reference(*operands, **attrs)
    np.testing.assert_array_equal(actual, expected())
    assert np.asarray(actual).dtype == np.asarray(expected()).dtype


def put(array: Any) -> None:
    np.put(array, [0, 5], [1, 2])


def set_rows(array: Any) -> None:
    array[ROWS, 1:3] = 7


SCATTERS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Callable[[Any], None]]] = {
    "put": ((np.array([0, 5]), np.array([1, 2])), {}, put),
    "put_mask": ((X > 0, np.array(3.0)), {}, lambda a: np.putmask(a, X > 0, 3)),
    "setitem": ((np.array(7.0), ROWS), {"key": (Slot(0), ("slice", 1, 3, None))}, set_rows),
    "ufunc_at": ((ROWS, np.ones((3, 4))), {"ufunc": "add"}, lambda a: np.add.at(a, ROWS, 1)),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_leave_their_operand_alone(name: str) -> None:
    operands, attrs, change = SCATTERS[name]
    before = X.copy()
    expected = X.copy()
    change(expected)
    np.testing.assert_array_equal(OPS[name].reference(X, *operands, **attrs), expected)
    np.testing.assert_array_equal(before, X)


def test_views_and_writes_name_bytes() -> None:
    layout = make_layout(np.dtype("f8"), (3,), (32,))
    for array in (X, X.T):
        assert OPS["view"].reference(array, offset=8, layout=layout).tolist() == X[:, 1].tolist()
        written = OPS["write"].reference(array, np.array([1, 2, 3]), offset=8, layout=layout)
        assert written.strides == array.strides
        changed = X.copy()
        changed[:, 1] = 1, 2, 3
        assert (written == (changed if array is X else changed.T)).all()


NEEDED = """
    sum prod min max any all mean var std argmin argmax count_nonzero ptp nansum nanprod nanmin
    nanmax nanmean nanvar nanstd nanargmin nanargmax reduce_logical_or reduce_subtract cumsum
    cumprod nancumsum nancumprod cumulative_sum cumulative_prod accumulate_add where clip cast copy
    view write concatenate stack repeat tile roll pad take compress choose put setitem sort argsort
    partition argpartition searchsorted unique nonzero dot vdot inner outer tensordot einsum kron
    cross convolve correlate trace interp histogram percentile median quantile zeros ones full
    arange linspace eye tri indices linalg.solve linalg.inv linalg.svd fft.fft fft.irfftn
"""


def test_what_programs_need_is_declared() -> None:
    assert [name for name in NEEDED.split() if name not in OPS] == []
