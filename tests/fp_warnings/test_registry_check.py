"""What Python would not show again is not asked of NumPy again, and nothing that it would show is
lost."""

from __future__ import annotations

import gc
import random
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import layout_of
from alight._src.fp_warnings import emit, filters
from alight._src.fp_warnings.categories import may_raise
from alight._src.ir.graph import Graph, Node
from alight._src.ir.op import Kind, Op
from alight._src.ir.op_table import OPS
from alight._src.jit import guarding
from alight._src.jit.decorator import Jitted
from alight._src.run import kernels
from alight.backends.machine import CATEGORY

pytest.importorskip("llvmlite")

BODY = """
import numpy as np


def work(a):
    b = np.log(a)
    return b


def twice(a):
    b = 1 / a
    return b * 2 - b


def reduced(a):
    b = np.sqrt(a) * a
    return b.reshape(50, -1).sum(axis=1)


def beside(a, b):
    return np.sqrt(a), b.sum()
"""
N = 2_000
CLOSE = OPS["log"].ulp_from_numpy * float(np.finfo(float).eps)
VALUES = {
    "ordinary": np.linspace(0.5, 2, N),
    "zero": np.arange(N) / 8.0,
    "negative": np.linspace(-1, 2, N),
    "both": np.r_[0.0, np.linspace(-1, 2, N - 1)],
}


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """Return a module of its own of the body."""
    (folder / f"{name}.py").write_text(BODY)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__(name)


@pytest.fixture(params=[{"floor": 0, "force": "cpu:generated"}], ids=["kernels"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Any]]:
    """The module as NumPy runs it, and one of which the functions are jitted, their kernels
    made."""
    theirs = loaded(tmp_path, monkeypatch, "of_numpy")
    ours = loaded(tmp_path, monkeypatch, "of_alight")
    with alight.policy(**request.param):
        for name, count in (("work", 1), ("twice", 1), ("reduced", 1), ("beside", 2)):
            setattr(ours, name, alight.jit(getattr(ours, name)))
            for _ in range(3):
                getattr(ours, name)(*[VALUES["ordinary"]] * count)
                kernels.settle()
        yield theirs, ours


def filtered(action: Any) -> Callable[[ModuleType], None]:
    return lambda module: warnings.simplefilter(action)


def in_block(action: Any, work: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    def step(module: ModuleType) -> Any:
        with warnings.catch_warnings():
            if action is not None:
                warnings.simplefilter(action)
            return work(module)

    return step


def recorded(work: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    def step(module: ModuleType) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            work(module)
            return [str(warning.message) for warning in caught]

    return step


def under(modes: dict[str, Any], work: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    def step(module: ModuleType) -> Any:
        with np.errstate(**modes):
            return work(module)

    return step


def threaded(work: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    def step(module: ModuleType) -> None:
        thread = threading.Thread(target=work, args=(module,))
        thread.start()
        thread.join()

    return step


def of(name: str, values: str) -> Callable[[ModuleType], Any]:
    def call(module: ModuleType) -> str:
        try:
            getattr(module, name)(VALUES[values])
        except (RuntimeWarning, FloatingPointError) as error:
            return repr(error)
        return ""

    return call


CALLS = [of(name, values) for name in ("work", "twice", "reduced") for values in VALUES]
OTHERS: list[Callable[[ModuleType], Any]] = [
    filtered("default"),
    filtered("always"),
    filtered("once"),
    filtered("ignore"),
    filtered("error"),
    lambda module: warnings.resetwarnings(),
    lambda module: warnings.filterwarnings("ignore", message="divide by zero"),
    lambda module: vars(module).get("__warningregistry__", {}).clear(),
    lambda module: vars(module).update(__warningregistry__={}),
]


def told(module: ModuleType, steps: list[Callable[[ModuleType], Any]]) -> list[Any]:
    """Return what each step answered and had shown, as by a fresh process with Python's filters."""
    said: list[Any] = []
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        vars(warnings)["onceregistry"].clear()
        seen: list[Any] = []

        def show(message: Any, category: Any, filename: str, line: int, *rest: Any) -> None:
            seen.append((str(message), category, Path(filename).suffix, line))

        patch.setattr(warnings, "showwarning", show)
        patch.setattr(filters, "_usual", filters._Route.now())
        for step in steps:
            answer = step(module)
            kernels.settle()
            said.append((answer, sorted(seen)))
            seen.clear()
    return said


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "pair", [{"floor": 0, "force": "cpu:generated"}, {}], ids=["kernels", "raced"], indirect=True
)
def test_a_program_is_shown_what_numpy_shows(seed: int, pair: tuple[Any, Any]) -> None:
    draw = random.Random(seed)
    steps = []
    for _ in range(20):
        step = draw.choice(CALLS)
        kind = draw.random()
        if kind < 0.15:
            step = draw.choice(OTHERS)
        elif kind < 0.3:
            step = in_block(draw.choice([None, "ignore", "always", "error", "default"]), step)
        elif kind < 0.4:
            step = recorded(step)
        elif kind < 0.5:
            how = draw.choice(["ignore", "warn", "raise"])
            step = under({draw.choice(["divide", "invalid", "all"]): how}, step)
        elif kind < 0.6:
            step = threaded(step)
        steps += [step] * draw.choice([1, 1, 2, 6])
    theirs, ours = pair
    expected, found = told(theirs, steps), told(ours, steps)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, number


@pytest.fixture
def misses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of jitted functions that their guards do not answer."""
    seen: list[Any] = []
    miss = Jitted.miss

    def counted(self: Jitted, args: Any, kwargs: Any) -> Any:
        seen.append(args)
        return miss(self, args, kwargs)

    monkeypatch.setattr(Jitted, "miss", counted)
    return seen


def test_the_guard_answers_what_was_shown(pair: tuple[Any, Any], misses: list[Any]) -> None:
    _, ours = pair

    def answered(module: ModuleType) -> list[int]:
        counts = []
        for values in ("zero", "negative"):
            for _ in range(4):
                misses.clear()
                got = module.work(VALUES[values])
                counts.append(len(misses))
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(got, np.log(VALUES[values]), rtol=CLOSE)
        return counts

    ((counts, seen),) = told(ours, [answered])
    assert counts == [1, 0, 0, 0] * 2
    assert len(seen) == 2


def test_the_guard_answers_where_all_is_ignored(pair: tuple[Any, Any], misses: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair[1].twice(VALUES["both"])
    assert not misses


@pytest.mark.parametrize("name", ["twice", "reduced"])
def test_a_kernel_finds_what_raised_the_flags(
    name: str, pair: tuple[Any, Any], misses: list[Any]
) -> None:
    """Several ops may have raised them, of which some were never warned of."""
    theirs, ours = pair

    def twice(module: ModuleType) -> list[int]:
        return [call(module, name, misses) for _ in range(7)]

    ((counts, seen),) = told(ours, [twice])
    assert counts[0] == 1 and counts[-2:] == [0, 0]
    assert seen == told(theirs, [lambda module: getattr(module, name)(VALUES["both"])])[0][1]


def test_a_kernel_that_looks_is_of_the_flags_it_was_made_for(pair: tuple[Any, Any]) -> None:
    """A sum that overflows both ways is no number, of which nothing is seen in its operands."""
    theirs, ours = pair
    ordinary, negative = VALUES["ordinary"], VALUES["negative"]
    huge = np.full(N, 1e308)
    away = huge * np.repeat([1, -1], N // 2)

    def step(a: Any, b: Any) -> Callable[[ModuleType], Any]:
        return lambda module: module.beside(a, b) and None

    steps = [step(ordinary, huge), *[step(negative, ordinary)] * 6, step(ordinary, away)]
    # NumPy's reductions warn at a line of its own
    expected, found = [
        [[text for text, *_ in seen] for _, seen in told(module, steps)]
        for module in (theirs, ours)
    ]
    assert [len(seen) for seen in expected] == [1, 1, 0, 0, 0, 0, 0, 1]
    assert found == expected


def call(module: ModuleType, name: str, misses: list[Any]) -> int:
    misses.clear()
    getattr(module, name)(VALUES["both"])
    kernels.settle()
    return len(misses)


def test_what_one_op_was_told_of_is_told_of_another(pair: tuple[Any, Any]) -> None:
    """The flags do not say which op raised them."""
    theirs, ours = pair
    steps = [of("twice", "zero"), of("twice", "zero")]
    assert told(ours, steps) == told(theirs, steps)


def test_a_function_that_is_gone_leaves_no_program() -> None:
    """What looks for the cause of flags knows the program, and the entry that asks it."""
    seen: list[Any] = []
    with alight.policy(floor=0, force="cpu:generated"), pytest.MonkeyPatch.context() as patch:
        make = guarding.FlagSearch

        def made(program: Any, lookups: Any) -> Any:
            seen.append(weakref.ref(program))
            return make(program, lookups)

        patch.setattr(guarding, "FlagSearch", made)
        function = alight.jit(lambda a: np.log(a) + 1 / a)
        for _ in range(4):
            function(VALUES["ordinary"])
            kernels.settle()
        del function
    gc.collect()
    assert seen and not any(program() for program in seen)


def test_requests_ask_numpy_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    tell = emit.tell
    monkeypatch.setattr(emit, "tell", lambda *given: asked.append(1) or tell(*given))

    def work(module: Any) -> None:
        for _ in range(4):
            np.asarray(1 / alight.asarray(VALUES["zero"]))

    with alight.policy(floor=0, force="cpu:generated"):
        ((_, seen),) = told(sys.modules[__name__], [work])
    assert len(seen) == len(asked) == 1


# -- what NumPy may say of an op -------------------------------------------------------------------


def specials(dtype: str) -> np.ndarray[Any, Any]:
    info = np.finfo(dtype)
    some = [0.0, 1.0, 0.5, 2.0, 3.7, 1e3, 1e30, info.max, info.tiny, np.inf, np.nan]
    positive = [*some, float(info.smallest_subnormal), float(info.max) * 0.75]
    return np.array([*positive, *[-value for value in positive]], dtype)


def raised(op: Op, operands: list[Any]) -> set[str]:
    heard: list[str] = []
    with emit.capturing(frozenset(CATEGORY.values()), heard):
        op.reference(*operands)
    return {CATEGORY[what] for what in heard}


ELEMENTWISE = [
    op
    for op in OPS.values()
    if isinstance(op.reference, np.ufunc) and op.kind is Kind.ELEMENTWISE and op.nin <= 3
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_numpy_warns_of_nothing_else(op: Op, dtype: str) -> None:
    try:
        dtypes = op.reference.resolve_dtypes((*[np.dtype(dtype)] * op.nin, *[None] * op.nout))
    except TypeError:
        return  # no floats
    if any(d.char not in "fd?" for d in dtypes):
        return
    values = specials(dtype)
    grids = [g.reshape(-1) for g in np.meshgrid(*[values[:: 1 if op.nin < 3 else 3]] * op.nin)]
    # each by itself: an overflow must not hide behind another element's
    may = _may_raise(op, grids, dtypes[-1])
    for cut in (slice(None), slice(0, 1), slice(1, None, 2), slice(3, 40)):
        operands = [grid[cut] for grid in grids]
        assert raised(op, operands) <= may, cut


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "min", "max", "cumsum", "all", "any"])
def test_reductions_raise_what_their_op_says_at_most(name: str, dtype: str) -> None:
    op, values = OPS[name], specials(dtype)
    rng = np.random.default_rng(0)
    for _ in range(50):
        some = rng.choice(values, 7)
        result = np.asarray(op.reference(some)) if name in ("all", "any") else some[0]
        assert raised(op, [some]) <= _may_raise(op, [some], result.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [op.name for op in ELEMENTWISE if op.signs])
def test_what_numpy_warns_of_is_seen_in_results(name: str, dtype: str) -> None:
    op, values = OPS[name], specials(dtype)
    finite = op.signs
    assert finite is not None
    for grids in zip(*[grid.flat for grid in np.meshgrid(*[values] * op.nin)], strict=True):
        operands = [np.array([operand]) for operand in grids]
        categories = raised(op, operands)
        with np.errstate(all="ignore"):
            result = op.reference(*operands)
        if "invalid" in categories:
            assert np.isnan(result) and not np.isnan(operands).any(), operands
        if categories & {"over", "divide"}:
            assert np.isinf(result), operands
            assert np.isfinite([operands[place] for place in finite]).all(), operands


@pytest.mark.parametrize(
    ("name", "operands", "result", "quiet"),
    [
        ("concatenate", "dd", "d", True),
        ("roll", "D", "D", True),
        ("concatenate", "fd", "d", False),  # which casts one of them
        ("pad", "d", "d", False),  # a mean, at the edges
        ("cast", "l", "d", True),
        ("cast", "l", "e", False),  # too large for half floats
        ("cast", "d", "f", False),
    ],
)
def test_moves_warn_of_nothing_and_casts_of_floats_alone(
    name: str, operands: str, result: str, quiet: bool
) -> None:
    given = [np.zeros(3, char) for char in operands]
    assert (not _may_raise(OPS[name], given, result)) is quiet


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_warn_of_no_nan_that_came_of_no_infinity(dtype: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        some = rng.choice(specials(dtype), 5)
        if "invalid" in (categories := raised(OPS["sum"], [some])) and "over" not in categories:
            assert np.isinf(some).any()


def _may_raise(op: Op, operands: list[Any], dtype: Any) -> frozenset[str]:
    layouts = tuple(layout_of(operand) for operand in operands)
    result = layout_of(np.empty(operands[0].shape, dtype))
    node = Node(op, tuple(range(len(operands))), (), result)
    return may_raise(Graph(layouts, (node,), (len(operands),)), node)
