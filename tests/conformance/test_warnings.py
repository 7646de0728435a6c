"""Floating-point errors: NumPy's warnings at the line that made them; what errstate asks for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import ArrayBase
from alight._src.ir.op_table import OPS, Kind
from conformance.compare import Findings
from conformance.modes import MODES
from conformance.programs import FILE, Ended, lines
from hearing import collected

PROGRAMS = lines("""
x / 0
x / y
y / y
1 / y
x // 0
i // 0
i % 0
j // 0
divmod(i, 0)
np.sqrt(x)
np.log(x)
np.log(y)
np.log1p(x - 9)
np.exp(x * 1000)
np.power(y, -1.0)
np.power(-x, 0.5)
big * big
big + big
f * np.float32(1e38)
np.square(big)
np.arcsin(x)
np.arctanh(x)
np.float64(1e308) * x
(x / y).sum()
np.sqrt(x).mean(axis=0)
inf - inf
inf * y
np.sum(inf - x)
np.prod(big)
np.cumsum(big)
np.multiply.reduce(big)
np.add.reduce(big)
np.max(nan)
nan + 1
nan < 1
np.maximum(nan, x)
np.isnan(y / y)
np.sin(inf)
np.floor_divide(x, y)
np.fmod(x, y)
np.remainder(x, 0)
np.hypot(big, big)
np.reciprocal(y)
x.astype("i4")
tiny * tiny
np.var(inf)
np.where(x > 0, np.log(x), 0)
np.divide(x, y, where=y > 0, out=np.zeros_like(x))
x[1:] / y[:-1]
np.add(inf, -inf, where=y > 0, out=np.zeros_like(x))
np.divide(x, y, where=x > 0, out=np.zeros_like(x))
np.divide(x, 0, where=x > 0, out=np.zeros_like(x))
np.log(x, where=y > 0, out=np.zeros_like(x))
np.log(x, where=x > 0, out=np.zeros_like(x))
np.floor_divide(i, 0, where=i > 0, out=np.zeros_like(i))
np.floor_divide(i, np.zeros_like(i), where=i > 100, out=np.zeros_like(i))
np.arctanh(y, where=x > 0, out=np.zeros_like(x))
np.multiply(big, big, where=[True, False]*6, out=np.zeros_like(x))
inf.astype("i4")
nan.astype("i8")
nan.astype("u1")
big.astype("i2")
big.astype("f4")
(x * 1e300).astype("f4")
(x / y).astype("i4")
np.rint(nan).astype(int)
inf.astype("u8")
big.astype("u4")
inf.astype(bool)
np.std(inf, axis=0)
np.var(nan)
np.var(big * x)
np.std(x, ddof=12)
np.var(x, ddof=13)
x.std(ddof=12)
np.var(x.reshape(3, 4), axis=0, ddof=3)
np.var(x.reshape(3, 4), axis=0, ddof=4)
np.var(inf.reshape(3, 4), axis=0)
np.mean(inf - inf)
np.mean(x, where=x > 100)
np.var(x, where=x > 100)
np.mean(f * np.float32(1e38))
np.nanstd(x, ddof=12)
np.nansum(inf)
np.mean(inf)
np.sum(inf)
np.prod(y * inf)
np.max(x / y)
np.cumsum(inf - x)
np.clip(nan, 0, 1)
np.round(big * big)
(big * big).sum()
f.astype("f2")
(f * 1e5).astype("f2")
np.dot(big, big)
np.inner(big, big)
np.inner(big.reshape(3, 4), inf[:4])
np.vdot(big, big)
np.vecdot(inf, y)
big.reshape(3, 4) @ big.reshape(4, 3)
np.matvec(big.reshape(3, 4), big[:4])
np.vecmat(big[:3], big.reshape(3, 4))
np.tensordot(big, big, 1)
np.tensordot(big.reshape(3, 4), big.reshape(4, 3), 1)
np.einsum("ij,jk->ik", big.reshape(3, 4), big.reshape(4, 3))
np.outer(big, big)
np.kron(inf, y)
np.trace(np.diag(inf) - inf)
np.trace(np.diag(big * 1e108))
np.convolve(big, big)
""")
if not hasattr(np, "matvec"):  # newer than NumPy 2.1
    PROGRAMS = [line for line in PROGRAMS if "matvec" not in line and "vecmat" not in line]
# What NumPy says in words, whatever the error state. It says so from lines of its own.
WORDED = lines("""
np.nanmean(nan)
np.nanvar(nan)
np.nanmax(nan)
np.nanmin(nan.reshape(3, 4), axis=0)
np.nanmedian(nan)
""")
LATER = "a = {}\nb = x + 1\nc = a\n"


def start() -> dict[str, Any]:
    return {
        "x": np.linspace(-2, 2, 12),
        "y": np.resize([0.0, 1.0], 12),
        "i": np.arange(-3, 9),
        "j": np.arange(12, dtype="u1"),
        "f": np.arange(12, dtype="f4"),
        "big": np.full(12, 1e200),
        "tiny": np.full(12, 1e-200),
        "inf": np.full(12, np.inf),
        "nan": np.full(12, np.nan),
    }


def heard(text: str, names: dict[str, Any]) -> tuple[Any, set[tuple[str, str, int | None]]]:
    """Return how a program ended, and what was warned of in which of its lines."""
    with collected() as caught:
        ended = Ended(text, names)
        alight.evaluate(*arrays(list(names.values())))
    # Some of NumPy's functions are Python: what they warn of has a line in NumPy.
    told = {
        (w.category.__name__, str(w.message), w.lineno if w.filename == FILE else None)
        for w in caught
    }
    return ended.error, told


def arrays(items: Any) -> list[Any]:
    found = [x for x in items if isinstance(x, ArrayBase)]
    return found + [x for item in items if type(item) is tuple for x in arrays(item)]


def same(ours: Any, plain: Any) -> bool:
    """Tell whether errors and warnings agree; ours have the program's line even where NumPy's do
    not."""
    (error, told), (must, wanted) = ours, plain
    texts = {row[:2] for row in told}, {row[:2] for row in wanted}
    placed = {row for row in wanted if row[2] is not None}
    # np.multiply.reduce runs as np.prod, which is Python in NumPy and warns from there.
    lost = {row for row in placed - told if not row[1].endswith("in reduce")}
    return error == must and texts[0] == texts[1] and not lost


def check(mode: str, programs: list[str], states: tuple[dict[str, Any], ...]) -> None:
    findings = Findings()
    for state in states:
        for text in programs:
            ours = {name: alight.asarray(array) for name, array in start().items()}
            with alight.policy(**MODES[mode]), np.errstate(**state):
                want, got = heard(text, start()), heard(text, ours)
            told = None if same(got, want) else f"{got}, must be {want}"
            findings.note(told, state, repr(text))
    findings.check()


def test_warnings_of_programs_are_numpys(mode: str) -> None:
    with np.errstate(divide="warn", over="warn", invalid="warn", under="ignore"):
        check(mode, [LATER.format(text) for text in PROGRAMS], ({},))


SPECIAL = (0.0, -0.0, 1.0, -2.0, 0.5, "max", "-max", "smallest_subnormal", np.inf, -np.inf, np.nan)
UFUNCS = [
    op.reference
    for op in OPS.values()
    if op.kind is Kind.ELEMENTWISE and isinstance(op.reference, np.ufunc)
]


def special(dtype: np.dtype[Any]) -> list[Any]:
    """Return special values of a dtype; of complex numbers, parts that are."""
    if dtype.kind == "c":
        return [
            complex(*parts) for parts in itertools.product((0.0, -1.5, np.inf, np.nan), repeat=2)
        ]
    limits = np.finfo(dtype)
    return [
        float(getattr(limits, v.lstrip("-"))) * (-1 if v[0] == "-" else 1)
        if isinstance(v, str)
        else v
        for v in SPECIAL
    ]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("force", ["cpu:generated", "sim:0"])
def test_special_values_warn_as_in_numpy(force: str, dtype: type[np.inexact[Any]]) -> None:
    numbers = special(np.dtype(dtype))
    findings = Findings()
    with alight.policy(floor=0, force=force, on_gap="host"):
        for ufunc in UFUNCS:
            if not takes(ufunc, np.dtype(dtype)):
                continue
            for operands in itertools.product(numbers, repeat=ufunc.nin):
                plain = [np.full(2, number, dtype) for number in operands]
                ours = [alight.asarray(array) for array in plain]
                wanted, got = (told(ufunc, arrays) for arrays in (plain, ours))
                text = None if got == wanted else f"{got}, must be {wanted}"
                findings.note(text, {}, f"{ufunc.__name__}{operands}")
    findings.check()


def takes(ufunc: np.ufunc, dtype: np.dtype[Any]) -> bool:
    """Tell whether NumPy has a loop for these operands."""
    try:
        ufunc.resolve_dtypes((*[dtype] * ufunc.nin, *[None] * ufunc.nout))
    except TypeError:
        return False
    return True


def told(ufunc: np.ufunc, operands: list[Any]) -> set[str]:
    """Return what is warned of while a result is made."""
    usual: Any = {"divide": "warn", "over": "warn", "invalid": "warn", "under": "ignore"}
    with np.errstate(**usual), collected() as caught:
        results = ufunc(*operands)
        alight.evaluate(*arrays([results]), *arrays(results if type(results) is tuple else []))
    return {str(w.message) for w in caught}


@pytest.mark.parametrize("kind", ["ignore", "raise"])
def test_errstate_is_that_of_the_recording_line(mode: str, kind: str) -> None:
    texts = [f"with np.errstate(all='{kind}'): a = {text}\nb = x * 2" for text in PROGRAMS]
    check(mode, texts, ({"divide": "warn", "over": "warn", "invalid": "warn", "under": "warn"},))


def test_a_callback_is_called_at_the_line(mode: str) -> None:
    calls: list[str] = []

    def call(what: str, flag: int) -> None:
        calls.append(what)

    counts = []
    for names in (start(), {k: alight.asarray(v) for k, v in start().items()}):
        calls.clear()
        with np.errstate(all="call", call=call):
            names["x"] / names["y"]
            np.log(names["x"])
            counts.append(list(calls))
    assert counts[0] == counts[1] and counts[0]


ERRORS = "with warnings.catch_warnings():\n warnings.simplefilter('error')\n a = {}\nb = x * 2"
COLLECTED = """\
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    a = {}
    texts = sorted({{str(one.message) for one in caught}})
caught = None
"""
IGNORED = "with warnings.catch_warnings():\n warnings.simplefilter('ignore')\n a = {}\nb = x * 2"


def test_filters_that_make_errors_make_them_at_the_line(mode: str) -> None:
    check(mode, [ERRORS.format(text) for text in PROGRAMS + WORDED], ({},))


def test_what_a_block_collects_is_there_in_the_block(mode: str) -> None:
    findings = Findings()
    for text in PROGRAMS + WORDED:
        ours, plain = {k: alight.asarray(v) for k, v in start().items()}, start()
        for names in (ours, plain):
            assert Ended(COLLECTED.format(text), names).error is None, text
        same = ours["texts"] == plain["texts"]
        findings.note(None if same else f"{ours['texts']}, must be {plain['texts']}", repr(text))
    findings.check()


def test_what_a_block_ignores_is_not_told_after_it(mode: str) -> None:
    check(mode, [IGNORED.format(text) for text in PROGRAMS + WORDED], ({},))
