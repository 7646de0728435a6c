"""Functions that a program makes ops of, and those of SciPy, in each door."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import layout_of
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op import UFUNCS
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import LOG
from alight._src.plan.choose import group_key
from alight._src.plan.workload import body_size
from alight._src.record.declared_ops import STAND_INS
from alight._src.record.numpy_fallback import stands_for_scalar
from alight._src.record.ufunc_calls import FUNCTIONS
from command_line import command

special = pytest.importorskip("scipy.special")

X = np.linspace(-4, 4, 1000)
KERNELS = {"floor": 0, "force": "cpu:generated", "on_gap": "raise"}


def smoothstep(x: Any) -> Any:
    return x * x * (3 - 2 * x)


FACTOR = 2.0


BODY = {"f": "x * x * (3 - 2 * x)"}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Forget what a test declares."""
    tables: tuple[dict[Any, Any], ...] = (OPS, UFUNCS, STAND_INS, FUNCTIONS)
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def ran_as(call: Any) -> tuple[Any, list[str]]:
    """Return what a call gives, and the groups that ran for it."""
    before = LOG.snapshot()
    result = np.asarray(call())
    rows = alight.report().to_dict()["decisions"]
    exits = LOG.snapshot().since(before).exits
    return result, [row["operation"] for row in rows] + [f"exit {e.what}" for e in exits]


@pytest.mark.parametrize("name", ["expit", "erf", "erfc", "ndtr", "log_ndtr", "exprel"])
def test_a_ufunc_of_scipys_fuses_with_what_is_around_it(name: str) -> None:
    function = getattr(special, name)
    with alight.policy(**KERNELS):
        x = alight.asarray(X)
        result, ran = ran_as(lambda: function(x + 0.5) * x)
    assert f"add+special.{name}+multiply" in ran
    assert not any(row.startswith("exit") for row in ran)
    np.testing.assert_allclose(result, function(X + 0.5) * X, rtol=1e-13)


def test_dtypes_are_the_functions_own() -> None:
    with alight.policy(floor=0):
        for dtype in "?bhilBHILefd":
            given = np.ones(7, dtype)
            found = special.expit(alight.asarray(given))
            assert found.dtype == special.expit(given).dtype, dtype
        with pytest.raises(TypeError) as ours:
            special.expit(alight.asarray(np.ones(7, "D")))
    with pytest.raises(TypeError) as theirs:
        special.expit(np.ones(7, "D"))
    assert str(ours.value) == str(theirs.value)


def test_results_go_where_the_program_says() -> None:
    with alight.policy(**KERNELS):
        x, out = alight.asarray(X), alight.zeros(1000)
        mask = x > 0
        assert special.erf(x, out=out, where=mask) is out
    np.testing.assert_allclose(np.asarray(out), np.where(X > 0, special.erf(X), 0), rtol=1e-14)


def test_jitted_calls_record_ufuncs_and_functions() -> None:
    @alight.jit
    def both(x: Any, m: Any) -> Any:
        return special.expit(x) * 2, special.softmax(m, axis=1), special.logsumexp(m)

    matrix = X.reshape(20, 50)
    with alight.policy(**KERNELS):
        for _ in range(4):
            before = LOG.snapshot()
            logistic, shares, total = both(X, matrix)
            assert not LOG.snapshot().since(before).exits
    np.testing.assert_allclose(logistic, special.expit(X) * 2, rtol=1e-14)
    np.testing.assert_allclose(shares, special.softmax(matrix, axis=1), rtol=1e-13)
    assert total == pytest.approx(special.logsumexp(matrix), rel=1e-14)


OF_NO_AXES = """
def spread(x):
    return np.log(np.sum(np.exp(x - x.max())))

spread = alight.ops.declare(spread, lower=spread)
matrix = np.linspace(-5, 5, 900).reshape(30, 30) + 0

def kinds(m):
    found = logsumexp(m), logsumexp(m[0], axis=0), logsumexp(m, axis=(0, 1)), spread(m)
    return [type(one) for one in found], len({one for one in found}), softmax(m[0].max())
"""


def test_what_has_no_axes_is_a_scalar_as_scipys_is(tmp_path: Path) -> None:
    before = "import alight, numpy as np\nfrom scipy.special import logsumexp, softmax\n"
    (tmp_path / "script.py").write_text(f"{before}{OF_NO_AXES}print(kinds(matrix), kinds(matrix))")
    plain = command(tmp_path, "script.py", before=())
    assert "float64'>, <class 'numpy.float64'>" in plain.stdout, plain.stderr
    ours = command(tmp_path, "run", "script.py", ALIGHT_FLOOR_ALL="0",
                   ALIGHT_FORCE="cpu:generated", ALIGHT_CALIBRATE="off")  # fmt: skip
    assert ours.stdout == plain.stdout, ours.stderr


@pytest.mark.parametrize("policy", [{}, {"floor": 0}, KERNELS], ids=["default", "floor", "kernels"])
def test_what_has_no_axes_is_a_scalar_in_jitted_functions(policy: dict[str, Any]) -> None:
    def lower(x: Any) -> Any:
        return np.log(np.sum(np.exp(x)))

    ours = alight.ops.declare(lambda x: np.log(np.sum(np.exp(x))), lower=lower, name="log_total")

    @alight.jit
    def totals(m: Any) -> Any:
        return special.logsumexp(m), special.logsumexp(m, axis=(0, 1)), ours(m)

    @alight.jit
    def keys(m: Any) -> int:
        return len({special.logsumexp(m): 1, special.logsumexp(m[0], axis=0): 2, ours(m[1]): 3})

    matrix = np.linspace(-4, 4, 300_000).reshape(300, 1000)
    with alight.policy(**policy):
        for _ in range(12):
            assert [type(one) for one in totals(matrix)] == [np.float64] * 3
        assert keys(matrix) == 3


def test_what_has_no_axes_stands_for_a_scalar_in_the_namespace() -> None:
    # `alight.ops` gives the stand-in of a program's function alone: SciPy's is asked of the table.
    with alight.policy(**KERNELS):
        found = STAND_INS[special.logsumexp](alight.asarray(X))
        assert stands_for_scalar(found) and stands_for_scalar(np.sum(alight.asarray(X)))


def test_scripts_hand_declared_functions_their_arrays(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import numpy as np\n"
        "import scipy.special\n"
        "from scipy.special import softmax\n"
        "x = np.linspace(-5, 5, 900) + 0\n"
        "m = x.reshape(30, 30)\n"
        "print(round(float((scipy.special.erf(x + 1) * x).sum()), 9))\n"
        "print(round(float((softmax(m, axis=0) * m).sum()), 9))\n"
        "print(round(float(scipy.special.logsumexp(m, b=2.0)), 9))\n"
    )
    plain = command(tmp_path, "script.py", before=())
    ours = command(tmp_path, "run", "--report", "-", "script.py", ALIGHT_FLOOR_ALL="0",
                   ALIGHT_FORCE="cpu:generated", ALIGHT_CALIBRATE="off")  # fmt: skip
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout
    assert "special.erf" in ours.stderr and "subtract+exp" in ours.stderr, ours.stderr
    exits = ours.stderr.partition("Exits")[2].partition("\n\n")[0]
    assert "logsumexp" in exits and "softmax" not in exits, ours.stderr  # with b it is SciPy's


def test_scipy_is_imported_for_no_program_that_has_it_not(tmp_path: Path) -> None:
    found = command(
        tmp_path,
        "import sys, numpy as np, alight; x = alight.ones(1000);"
        "np.exp(x); np.frompyfunc(abs, 1, 1)(x); import alight.ops;"
        "print([m for m in sys.modules if m.partition('.')[0] == 'scipy'])",
        before=("-c",),
    )
    assert found.stdout == "[]\n", found.stderr


def test_a_function_that_asks_nobody_is_called_by_what_declare_returns() -> None:
    ours = alight.ops.declare(smoothstep, body=BODY, flops=4)
    with alight.policy(**KERNELS):
        x = alight.asarray(X)
        result, ran = ran_as(lambda: ours(x) + 1)
    assert "smoothstep+add" in ran
    assert np.array_equal(result, smoothstep(X) + 1)
    assert np.array_equal(ours(X), smoothstep(X)) and type(ours(X)) is np.ndarray
    assert ours(alight.ones(3)).tolist() == [1, 1, 1]  # small: the function's own


def test_a_composition_is_recorded_as_its_ops() -> None:
    def lower(x: Any, power: Any = 2) -> Any:
        return np.abs(x) ** power if type(power) is int else NotImplemented

    def magnitude(x: Any, power: Any = 2) -> Any:
        return np.abs(np.asarray(x)) ** power

    ours = alight.ops.declare(magnitude, lower=lower, name="signal.magnitude")
    with alight.policy(**{**KERNELS, "on_gap": "host"}):
        x = alight.asarray(X)
        assert "absolute+power" in str(ran_as(lambda: ours(x, power=3))[1])
        result, ran = ran_as(lambda: ours(x, power=0.5))
    assert any("exit" in row and "magnitude" in row for row in ran)
    assert np.array_equal(result, magnitude(X, 0.5))


def twice(x: Any) -> Any:
    return x * FACTOR


def head(x: Any) -> Any:
    return x[: int(x[0])] * 1.0


@pytest.mark.parametrize("way", ["composed", "of elements", "NumPy's", "itself"])
def test_what_a_declared_function_reads_is_looked_into(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "composed":
        called = alight.ops.declare(twice, lower=lambda x: x * FACTOR)
    elif way == "of elements":
        called = alight.ops.declare(head, lower=head)
    elif way == "NumPy's":
        called = alight.ops.declare(np.fix, lower=twice)
    else:  # no op is made of calls of the program's own function
        called = twice
        assert alight.ops.declare(twice, body={"f": "x * 2"}) is not twice
    plain = head if way == "of elements" else twice

    @alight.jit
    def more(x: Any) -> Any:
        return called(x) + 1

    with alight.policy(floor=0, force="cpu:generated"):
        for factor, length in ((2.0, 5), (2.0, 9), (3.0, 9), (4.0, 7), (3.0, 9)):
            monkeypatch.setattr(sys.modules[__name__], "FACTOR", factor)
            given = X.copy()
            given[0] = length
            for _ in range(6):
                assert np.array_equal(more(given), plain(given) + 1), (factor, length)


def test_a_body_that_differs_from_its_function_is_not_used() -> None:
    ours = alight.ops.declare(smoothstep, body={"f": "x * x * (3 - 2.5 * x)"})
    with alight.policy(floor=0, force="cpu:generated"):
        before = LOG.snapshot()
        result = np.asarray(ours(alight.asarray(X)) + 1)
    assert np.array_equal(result, smoothstep(X) + 1)
    (told,) = LOG.snapshot().since(before).fallbacks
    assert told.what == "smoothstep on cpu" and "where NumPy has" in told.reason


def test_one_name_with_another_body_has_another_kernel() -> None:
    for factor in (2, 3):
        ours = alight.ops.declare(
            lambda x, factor=factor: x * factor, body={"f": f"x * {factor}"}, name="scaled"
        )
        with alight.policy(**KERNELS):
            assert np.array_equal(np.asarray(ours(alight.asarray(X))), X * factor)


def test_one_name_with_another_body_is_counted_and_measured_anew() -> None:
    given = layout_of(np.ones(1000))
    sizes, keys = [], []
    for body in ("x + 1", "exp(exp(exp(x)))"):
        alight.ops.declare(lambda x: x + 1, body={"f": body}, name="counted", ulp=9)
        graph = Graph((given,), (Node(OPS["counted"], (0,), (), given),), (1,))
        sizes.append(body_size(graph, graph.nodes[0]))
        keys.append(group_key(Group(GroupKind.LOOP, graph, given.shape)))
    assert sizes[0] == 1 < sizes[1]
    assert keys[0] != keys[1]


def test_what_a_program_declared_it_may_declare_anew() -> None:
    for factor in (1, 2):
        body = {"f": f"{factor} * where(x > 0, -x * log(where(x > 0, x, 1)), 0 * x)"}
        assert alight.ops.declare(special.entr, body=body, ulp=2) is special.entr
    assert OPS["entr"] is UFUNCS[special.entr] and "2 *" in str(OPS["entr"].body)


@pytest.mark.parametrize(
    ("function", "given", "why"),
    [
        (np.add, {"body": "x + y"}, "it is an op already"),
        (np.sum, {"lower": smoothstep}, "it is an op already"),
        (special.erf, {"body": "x"}, "it is an op already"),
        (3, {"body": "x"}, "it is no function"),
        (float, {"body": "x"}, "it is no function"),
        (smoothstep, {}, "neither a body nor a lower is given"),
        (smoothstep, {"body": "x", "lower": smoothstep}, "both are given"),
        (smoothstep, {"lower": 3}, "lower is 3"),
        (smoothstep, {"body": "x", "name": "add"}, "the name 'add' is another op's"),
        (smoothstep, {"body": "x + y"}, "its body has 2 operands"),
        (smoothstep, {"body": "1.0"}, "takes others"),
        (smoothstep, {"body": "x +"}, "invalid syntax"),
        (smoothstep, {"body": "nothing(x)"}, "unknown call"),
        (smoothstep, {"body": {"c": "x"}}, "it has no body for what it computes with"),
        (smoothstep, {"body": "x", "ulp": -1}, "ulp is -1"),
        (np.frompyfunc(abs, 1, 1), {"body": "x"}, "no dtype of alight"),
        (special.hyp2f1, {"body": "x"}, "its loops take 4 operands"),
    ],
)
def test_a_bad_declaration_says_what_is_wrong(
    function: Any, given: dict[str, Any], why: str
) -> None:
    before = set(OPS)
    with pytest.raises(ValueError, match=r"Fix: ") as caught:
        alight.ops.declare(function, **given)
    assert why in str(caught.value)
    assert set(OPS) == before


def test_the_table_is_brought_where_scipy_came_later(tmp_path: Path) -> None:
    found = command(
        tmp_path,
        "import numpy as np, alight; x = alight.ones(1000) * 2\n"
        "import scipy.special\n"
        "with alight.policy(floor=0): np.asarray(scipy.special.expit(x) + 1)\n"
        "rows = alight.report().to_dict()\n"
        "print([r['operation'] for r in rows['decisions']], rows['exits'])",
        before=("-c",),
    )
    assert "special.expit+add" in found.stdout and found.stdout.endswith(" []\n"), found.stdout
