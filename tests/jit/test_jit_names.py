"""What a jitted function names is what is found under the names at each call: whatever is put there
meanwhile, and whichever way calls take, the answer is the plain function's."""

from __future__ import annotations

import dataclasses
import dis
import functools
import gc
import inspect
import math
import subprocess
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy import sqrt as own_sqrt
from numpy import zeros as own_zeros

import alight
from alight._src.adapt.foreground import ForegroundBudget
from alight._src.base.cache_registry import Cache, forget
from alight._src.config.loading import policy
from alight._src.jit import globals_rewrite
from alight._src.jit.bytecode import Step, instructions
from alight._src.jit.call_phases import Phase
from alight._src.jit.purity import prove
from alight._src.jit.specialization import Specialization

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0", "devices": ["cpu", "sim:0"]},
}
CALLS = 10  # enough for NumPy's turns, a trace, its program and the kernel's race
A = np.linspace(0.5, 4.0, 40)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # As in a program that has run for long: whatever is worth measuring is measured at once.
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(import_module("alight._src.jit.guarding"), "_ASK_SECONDS", 0.0)
    with policy(**MODES[request.param]):
        yield request.param


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def check(jitted: Callable[..., Any], plain: Callable[..., Any], *args: Any) -> Any:
    """Return what a few calls, which agree with the plain function, gave last."""
    for _ in range(CALLS):
        got, want = outcome(jitted, *args), outcome(plain, *args)
        assert type(got) is type(want)
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got, want, rtol=1e-13)
        else:
            assert got == want
    return got


# --------------------------------------------------------- names of NumPy's, given something else
def unguarded(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same and is not proven to."""

    def function(x: Any) -> Any:
        try:
            return body(x)
        except ZeroDivisionError:
            return x

    return function


BODIES: dict[str, tuple[Any, str, Any, Callable[..., Any]]] = {
    "ufunc": (np, "sqrt", np.exp, lambda x: np.sqrt(x) + 1),
    "function": (np, "where", lambda c, a, b: b, lambda x: np.where(x > 2, x, -x)),
    "python": (np, "sqrt", lambda x: x * 7, lambda x: np.sqrt(x) + 1),
    "constant": (np, "pi", 3.0, lambda x: x * np.pi),
    "dtype": (np, "float64", np.float32, lambda x: x.astype(np.float64) * 2),
    "creation": (np, "zeros", np.ones, lambda x: np.zeros(x.shape) + x),
    "filled": (np, "ones", lambda n: np.full(n, 3.0), lambda x: np.ones(x.shape) + x),
    "submodule": (np.linalg, "norm", lambda x: 5.0, lambda x: np.linalg.norm(x) * x),
    "a submodule": (
        np, "linalg", types.SimpleNamespace(norm=lambda x: 5.0), lambda x: np.linalg.norm(x) * x
    ),
    "random": (np.random, "permutation", lambda n: np.arange(n), lambda x: (
        np.random.permutation(1) + x
    )),
    "math": (math, "sqrt", lambda x: 7.0, lambda x: x * math.sqrt(4.0)),
}  # fmt: skip


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("name", BODIES)
def test_a_name_that_is_rebound(mode: str, name: str, proven: bool) -> None:
    module, attribute, other, body = BODIES[name]
    plain = body if proven else unguarded(body)
    jitted: Any = alight.jit(plain)
    before = check(jitted, plain, A)
    with mock.patch.object(module, attribute, other):
        assert not np.array_equal(check(jitted, plain, A), before) or name in ("dtype", "random")
    check(jitted, plain, A)
    own = getattr(module, attribute)
    delattr(module, attribute)
    try:
        gone = check(jitted, plain, A)
        assert name == "a submodule" or gone[0] is AttributeError  # which NumPy imports anew
    finally:
        setattr(module, attribute, own)
    assert np.array_equal(check(jitted, plain, A), before)


def test_a_name_rebound_before_the_first_call_counts(mode: str) -> None:
    def plain(x: Any) -> Any:
        return np.ones_like(x) + np.cosh(x)

    jitted = alight.jit(plain)
    with mock.patch.object(np, "ones_like", np.zeros_like), mock.patch.object(np, "cosh", np.sinh):
        check(jitted, plain, A)
    check(jitted, plain, A)
    assert prove(plain).pure


def test_names_of_the_programs_own_stay(mode: str) -> None:
    def plain(x: Any) -> Any:
        return own_sqrt(x) + own_zeros(x.shape)

    jitted = alight.jit(plain)
    before = check(jitted, plain, A)
    with mock.patch.object(np, "sqrt", np.exp), mock.patch.object(np, "zeros", np.ones):
        assert np.array_equal(check(jitted, plain, A), before)


def test_other_names_for_numpy(mode: str) -> None:
    xp: Any = np
    names: dict[str, Any] = {"npx": np}
    exec("def plain(x): return npx.sqrt(x) + npx.zeros(3)[0]", names)
    stand_in = types.SimpleNamespace(sqrt=np.exp, zeros=np.ones)

    def closed(x: Any) -> Any:
        return xp.sqrt(x) + xp.zeros(3)[0]

    for plain in (names["plain"], closed):
        jitted = alight.jit(plain)
        seen = [check(jitted, plain, A)]
        with mock.patch.object(np, "sqrt", np.exp):
            seen.append(check(jitted, plain, A))
        names["npx"] = xp = stand_in
        seen.append(check(jitted, plain, A))
        names["npx"] = xp = np
        seen.append(check(jitted, plain, A))
        assert np.array_equal(seen[0], seen[3]) and not np.array_equal(seen[0], seen[1])
        np.testing.assert_allclose(seen[1] + 1, seen[2])


@pytest.mark.parametrize("proven", [True, False])
def test_declared_pure_what_it_names_must_stay(mode: str, proven: bool) -> None:
    plain = BODIES["ufunc"][3]
    if not proven:

        def plain(x: Any) -> Any:
            try:
                return np.sqrt(x) + np.linalg.norm(x)
            except ZeroDivisionError:
                return x

    jitted = alight.jit(pure=True)(plain)
    check(jitted, plain, A)
    with mock.patch.object(np, "sqrt", np.exp):
        check(jitted, plain, A)
        with mock.patch.object(np.linalg, "norm", np.max):
            check(jitted, plain, A)
    check(jitted, plain, A)


def test_names_are_looked_up_for_arrays_of_the_callers_too(mode: str) -> None:
    def plain(x: Any) -> Any:
        return np.sqrt(x) * 2 + 1

    jitted = alight.jit(plain)
    with policy(floor=0):
        a = alight.asarray(A)
        for replaced in (np.sqrt, np.exp, np.sqrt):
            with mock.patch.object(np, "sqrt", replaced):
                for _ in range(CALLS):
                    np.testing.assert_allclose(np.asarray(jitted(a)), plain(A), rtol=1e-13)


def test_a_body_that_rebinds(mode: str) -> None:
    def plain(x: Any) -> Any:
        before = np.sqrt, np.zeros
        np.sqrt, np.zeros = np.exp, np.ones
        try:
            return np.sqrt(x) + np.zeros(x.shape)
        finally:
            np.sqrt, np.zeros = before

    check(alight.jit(plain), plain, A)
    assert np.sqrt is own_sqrt and np.zeros is own_zeros


def test_numpys_dict_and_getattr_find_what_is_there_now(mode: str) -> None:
    def plain(x: Any) -> Any:
        return np.__dict__["sqrt"](x) + getattr(np, "exp")(x)  # noqa: B009

    jitted = alight.jit(plain)
    check(jitted, plain, A)
    with mock.patch.dict(np.__dict__, {"sqrt": np.cos}), mock.patch.object(np, "exp", np.sin):
        check(jitted, plain, A)
    check(jitted, plain, A)


def test_what_was_learned_holds_again_when_a_name_is_put_back(mode: str) -> None:
    ran: list[int] = []

    def plain(x: Any) -> Any:
        return np.sqrt(x) + 1

    jitted: Any = alight.jit(plain)
    check(jitted, plain, A)
    sites = jitted._specializations
    assert sites

    def counted(x: Any) -> Any:
        ran.append(1)
        return own_sqrt(x)

    with mock.patch.object(np, "sqrt", counted):
        check(jitted, plain, A)
        assert jitted._specializations is not sites
        assert len(ran) == 2 * CALLS  # not proven: it runs at every call
    check(jitted, plain, A)
    assert jitted._specializations is sites and len(ran) == 2 * CALLS


def test_many_states_are_not_kept(mode: str) -> None:
    names: dict[str, Any] = {"k": 0.0}
    exec("def plain(x): return x * k", names)
    jitted: Any = alight.jit(names["plain"])
    for number in range(30):
        names["k"] = float(number)
        assert np.array_equal(jitted(A), A * number)
        assert np.array_equal(jitted(A), A * number)
    assert len(jitted._states._kept) <= 8
    forget(Cache.PLANS)
    assert np.array_equal(jitted(A), A * 29.0)


def test_the_entries_of_numpys_way_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was NumPy's because of what had been put there is looked at anew without it."""
    monkeypatch.setattr(ForegroundBudget, "allows", lambda self, *seconds: True)
    monkeypatch.setattr(import_module("alight._src.jit.guarding"), "_ASK_SECONDS", 0.0)
    ran = Specialization.ran_alight  # which loses, however long it took
    monkeypatch.setattr(Specialization, "ran_alight", lambda self, _, cold: ran(self, 60.0, cold))

    def plain(x: Any) -> Any:
        return np.sqrt(x) + 1

    jitted: Any = alight.jit(plain)
    with mock.patch.object(np, "sqrt", lambda x: sorted(x.tolist())[0]):
        for _ in range(CALLS):
            check(jitted, plain, A)
        (kind,) = jitted._specializations.values()
        assert kind.phase is Phase.ON_NUMPY and not kind.programs
    check(jitted, plain, A)
    (kind,) = jitted._specializations.values()
    assert kind.programs


def test_the_proof_looks_each_name_up_once() -> None:
    def plain(x: Any) -> Any:
        return np.sqrt(x) + np.sqrt(x + 1) + np.sqrt(x + 2) + np.exp(np.exp(x))

    found = [(id(lookup.place), lookup.name) for lookup in prove(plain).lookups]
    assert len(found) == len(set(found)) == 6  # np, sqrt, exp, and what the function is made of


# ------------------------------------------------------- what is found is the thing itself
SCALE = 2.0


def gauss(x: Any) -> Any:
    return np.exp(-x) * np.ones(x.shape)


def line(x: Any) -> Any:
    return x * SCALE


def counted(x: Any) -> Any:
    counted.calls += 1  # type: ignore[attr-defined]
    return x + 1


KERNELS = {gauss: 3.0, line: 4.0}


def by_comparison(x: Any, kernel: Any = gauss) -> Any:
    return kernel(x) * (3.0 if kernel is gauss else 4.0) + (kernel == gauss)


def by_table(x: Any) -> Any:
    return gauss(x) * KERNELS[gauss] + (line in KERNELS)


def by_helper(x: Any) -> Any:
    return by_comparison(x, gauss) + by_comparison(x, line)


def by_attribute(x: Any) -> Any:
    holder = types.SimpleNamespace(kernel=gauss, module=np, create=np.zeros)
    known = holder.kernel is gauss, holder.module is np, holder.create is np.zeros
    return x * sum(known) + len(gauss.__globals__["KERNELS"]) + ("SCALE" in line.__globals__)


def by_module(x: Any, xp: Any = np) -> Any:
    return xp.sqrt(x) * (3.0 if xp is np else 4.0) + (sys.modules["numpy"] is np)


def by_creation(x: Any) -> Any:
    makers = {np.zeros: 2.0, own_zeros: 2.0, np.ones: 3.0}
    return x * makers[np.zeros] + makers[np.ones] + next(iter(makers))(40)


def by_class(x: Any) -> Any:
    rng = np.random.default_rng(1)
    return x * (type(rng) is np.random.Generator) + isinstance(rng, np.random.Generator)


def by_type(x: Any) -> Any:
    known = (
        type(x) is np.ndarray,
        type(x.sum()) is np.float64,
        type(SCALE) is float,
        type(x[0]).__name__,
    )
    return x * sum(known[:3]) + len(known[3]) + type("Made", (), {"size": 3}).size  # type: ignore


def by_pickle(x: Any) -> Any:
    import pickle

    return x * (pickle.loads(pickle.dumps(line)) is line)


@pytest.mark.parametrize(
    "plain",
    [
        *(by_comparison, by_table, by_helper, by_attribute, by_module, by_creation, by_class),
        *(by_type, by_pickle),
    ],
)
def test_functions_and_modules_are_themselves(mode: str, plain: Any) -> None:
    check(alight.jit(plain), plain, A)


def test_functions_and_modules_that_are_given(mode: str) -> None:
    def chosen(x: Any, kernel: Any, xp: Any) -> Any:
        return (
            kernel(x) * (3.0 if kernel is gauss else 4.0) + (xp is np) + (kernel is np.zeros_like)
        )

    for kernel in (gauss, line, np.zeros_like, np.sqrt):
        check(alight.jit(chosen), chosen, A, kernel, np)


def test_what_a_function_notes_down_on_itself(mode: str) -> None:
    counted.calls = 0  # type: ignore[attr-defined]
    jitted = alight.jit(lambda x: counted(x))
    for _ in range(CALLS):
        jitted(A)
    assert counted.calls == CALLS  # type: ignore[attr-defined]


def test_what_a_body_keeps_or_returns_is_the_programs(mode: str) -> None:
    kept: list[Any] = []

    def plain(x: Any) -> Any:
        def inner() -> Any:
            return np.zeros(200_000) + SCALE

        kept[:] = line, np, np.zeros, inner
        return x + 1, line, np, np.zeros

    jitted = alight.jit(plain)
    for _ in range(CALLS):
        assert jitted(A)[1:] == (line, np, own_zeros)
        assert kept[0] is line and kept[1] is np and kept[2] is own_zeros
    inner = kept[3]
    assert type(inner()) is np.ndarray  # outside of the call it is as any other function
    assert inner.__globals__.get("SCALE") == SCALE and "line" in inner.__globals__
    assert inner.__globals__.keys() == globals().keys()


def test_helpers_that_are_called_create_by_alight(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    behind = type  # what a body calls `type` says what the program knows arrays as

    def helper(x: Any) -> Any:
        made.append(np.zeros(x.shape))
        made.append(behind(made[-1]))
        return made[-2] + x

    def plain(x: Any) -> Any:
        return helper(x) + line(x)

    with policy(floor=0, force="cpu:generated"):
        assert np.array_equal(alight.jit(plain)(A), plain(A))
    assert made[1] is alight.Array and type(made[0]) is np.ndarray


def test_a_variable_that_others_assign_while_the_body_runs(mode: str) -> None:
    def kernel(x: Any) -> Any:
        return x + 1

    first = kernel

    def change() -> None:
        nonlocal kernel
        kernel = line

    def plain(x: Any) -> Any:
        before = kernel(x)
        change()
        return before * 10 + kernel(x)

    jitted = alight.jit(plain)
    for _ in range(CALLS):
        kernel = first
        want = plain(A)
        kernel = first
        np.testing.assert_allclose(jitted(A), want, rtol=1e-13)


def test_the_standard_library_takes_arrays_for_what_they_are(mode: str) -> None:
    import functools

    @functools.singledispatch
    def kind(x: Any) -> float:
        return 1.0

    @kind.register(np.ndarray)
    def _(x: Any) -> float:
        return 2.0

    @kind.register(float)
    def _(x: Any) -> float:
        return 3.0

    def plain(x: Any) -> Any:
        return x * kind(x) + kind(x.sum()) + kind(2.0)

    check(alight.jit(plain), plain, A)


def test_numbers_with_operators_of_their_own(mode: str) -> None:
    class Meters(float):
        __array_ufunc__ = None

        def __rmul__(self, other: Any) -> Any:
            return "mine", len(other)

    class Prior(float):
        __array_priority__ = 10.0

        def __radd__(self, other: Any) -> Any:
            return "prior"

    def plain(x: Any, unit: Any, prior: Any) -> Any:
        return x * unit, x + prior, x * 2.0

    jitted = alight.jit(plain)
    for _ in range(CALLS):
        got, want = jitted(A, Meters(2.0), Prior(1.0)), plain(A, Meters(2.0), Prior(1.0))
        assert got[:2] == want[:2] and np.array_equal(got[2], want[2])


# ------------------------------------------------------- objects that results are kept in
@dataclasses.dataclass
class Result:
    field: Any
    total: Any
    more: Any = None


class Slotted:
    __slots__ = ("field", "never")


class Model:
    def __init__(self) -> None:
        self.field: Any = np.zeros(40)
        self.total: Any = None

    def step(self, x: Any) -> Any:
        self.field = np.zeros(x.shape) + x * 2
        self.total = x.sum()
        self.given = x
        return x.mean()


def kinds(tree: Any) -> Any:
    """Return the types of what is kept, at any depth."""
    if isinstance(tree, dict):
        return type(tree), {key: kinds(item) for key, item in tree.items()}
    if isinstance(tree, (list, tuple, deque)):
        return type(tree), [kinds(item) for item in tree]
    if isinstance(tree, (set, frozenset)):
        return type(tree), sorted(type(item).__name__ for item in tree)
    if isinstance(tree, (Result, types.SimpleNamespace, Model)):
        return type(tree), kinds(vars(tree))
    return type(tree)


MADE: list[Callable[[Any], Any]] = [
    lambda x: Result(x + 1, x.sum(), [x, Result(x * 2, {"a": (x, x.max())})]),
    lambda x: types.SimpleNamespace(field=x + 1, given=x),
    lambda x: OrderedDict(a=x + 1, b=[x * 2]),
    lambda x: defaultdict(list, a=[x + 1]),
    lambda x: deque([x, x + 1]),
    lambda x: ({x.sum(), 2}, frozenset([x.max()])),
    lambda x: (lambda: x + 1)(),
    lambda x: [Result(x[1:], 1)],
]


@pytest.mark.parametrize("number", range(len(MADE)))
def test_objects_that_are_returned_keep_ndarrays(mode: str, number: int) -> None:
    plain = MADE[number]
    jitted = alight.jit(plain)
    for _ in range(CALLS):
        assert kinds(jitted(A)) == kinds(plain(A))


def test_a_function_that_is_returned_keeps_ndarrays(mode: str) -> None:
    def plain(x: Any) -> Any:
        twice, total = x * 2, x.sum()
        return lambda y: (twice + y, total, twice)

    for _ in range(CALLS):
        got, want = alight.jit(plain)(A)(1.0), plain(A)(1.0)
        assert kinds(got) == kinds(want) and np.array_equal(got[0], want[0])


def handed(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def noted(x: Any) -> Any:
    found = functools.partial(handed)
    found.note = x * 2  # type: ignore[attr-defined]
    return lambda: found.note  # type: ignore[attr-defined]


def with_defaults(x: Any) -> Any:
    def given(a: Any = x * 2, *, b: Any = x.sum()) -> Any:  # noqa: B008
        return a, b, given.c  # type: ignore[attr-defined]

    given.c = x + 1  # type: ignore[attr-defined]
    return given


CALLED: list[Callable[[Any], Any]] = [
    lambda x: functools.partial(handed, x * 2, x, total=x.sum()),
    lambda x: functools.partial(functools.partial(handed, [x * 2]), functools.partial(handed, x)),
    lambda x: functools.partial(lambda twice: twice, x * 2),
    noted,
    with_defaults,
    lambda x: types.MethodType(handed, x * 2),
    lambda x: types.MethodType(handed, types.SimpleNamespace(field=x * 2)),
    lambda x: (x * 2).copy,
    lambda x: {"a": x * 2}.copy,
    lambda x: [*{"a": x * 2}.values()].pop,
    lambda x: functools.partial(list, {"a": x * 2}.values()),
    lambda x: functools.partial(dict, types.MappingProxyType({"a": x * 2})),
]


@pytest.mark.parametrize("number", range(len(CALLED)))
def test_what_is_returned_to_be_called_has_ndarrays(mode: str, number: int) -> None:
    plain = CALLED[number]
    for _ in range(CALLS):
        got, want = alight.jit(plain)(A)(), plain(A)()
        assert kinds(got) == kinds(want)


def test_what_a_body_puts_into_attributes_is_ndarrays(mode: str) -> None:
    ours, theirs = Model(), Model()
    step: Any = alight.jit(Model.step)
    for number in range(CALLS):
        x = A + number
        np.testing.assert_allclose(step(ours, x), theirs.step(x), rtol=1e-13)
        assert kinds(ours) == kinds(theirs) and ours.given is x
        np.testing.assert_allclose(ours.field, theirs.field, rtol=1e-13)

    def filled(x: Any) -> Any:
        kept = Slotted()
        kept.field = x + 1
        return kept

    for _ in range(CALLS):
        kept = alight.jit(filled)(A)
        assert type(kept.field) is np.ndarray and not hasattr(kept, "never")


def test_what_an_error_carries_is_ndarrays(mode: str) -> None:
    def plain(x: Any) -> Any:
        error = ValueError("too large", x, x.sum())
        error.found = x + 1  # type: ignore[attr-defined]
        raise error

    for _ in range(CALLS):
        with pytest.raises(ValueError, match="too large") as caught:
            alight.jit(plain)(A)
        assert kinds(caught.value.args) == (tuple, [str, np.ndarray, np.float64])
        assert type(vars(caught.value)["found"]) is np.ndarray


def test_objects_that_lead_to_one_another(mode: str) -> None:
    def plain(x: Any) -> Any:
        one, other = types.SimpleNamespace(), types.SimpleNamespace()
        one.other, other.one, one.all = other, one, [one, other]
        other.field = x + 1
        return one

    for _ in range(CALLS):
        made = alight.jit(plain)(A)
        assert made.other.one is made and made.all[1] is made.other
        assert type(made.other.field) is np.ndarray


def test_objects_may_lead_to_one_another_for_long(mode: str) -> None:
    def plain(x: Any, first: Any) -> Any:
        first.field = x + 1
        return first

    first = last = types.SimpleNamespace()
    for _ in range(20_000):
        last.after = types.SimpleNamespace()
        last = last.after
    made = alight.jit(plain)
    for _ in range(3):
        assert made(A, first) is first and type(first.field) is np.ndarray
    while hasattr(first, "after"):  # the interpreter would drop it in recursion
        first = first.after


def test_attributes_in_slots_are_as_others(mode: str) -> None:
    def filled(kept: Any, x: Any) -> None:
        kept.field = x + 1

    def changed(kept: Any, x: Any) -> Any:
        x += 1
        return kept.field.sum()

    fill, change = alight.jit(filled), alight.jit(changed)
    kept = Slotted()
    for _ in range(CALLS):
        fill(kept, A)
        assert type(kept.field) is np.ndarray
        x = A.copy()
        kept.field = x  # written by another name
        assert change(kept, x) == (A + 1).sum()


def test_attributes_that_a_class_written_in_c_keeps_to_itself(mode: str) -> None:
    class Partial(functools.partial[Any]):
        pass

    made = alight.jit(lambda x: Partial(np.add, x * 2))
    for _ in range(CALLS):
        assert np.array_equal(made(A)(1.0), A * 2 + 1.0)


@pytest.mark.parametrize("name", ["may_share_memory", "shares_memory"])
def test_a_name_that_only_alight_uses(mode: str, name: str) -> None:
    """What a program puts there is for its own calls; overlap is found all the same."""

    def plain(x: Any, y: Any) -> Any:
        y[1:] += x[:-1]
        return y * 2, x.sum()

    jitted = alight.jit(plain)
    with mock.patch.object(np, name, lambda *args, **kwargs: False):
        for _ in range(CALLS):
            ours, theirs = A.copy(), A.copy()
            got, want = jitted(ours[5:], ours[:-5]), plain(theirs[5:], theirs[:-5])
            np.testing.assert_allclose(got[0], want[0], rtol=1e-13)
            np.testing.assert_allclose(got[1], want[1], rtol=1e-13)
            np.testing.assert_allclose(ours, theirs, rtol=1e-13)


@pytest.mark.parametrize(
    "shown",
    [
        [("LOAD_GLOBAL", False), ("LOAD_METHOD", False), ("LOAD_CONST", False)],  # CPython 3.11
        [("LOAD_GLOBAL", False), ("LOAD_ATTR", True), ("LOAD_CONST", False)],  # from 3.12 on
        [("LOAD_GLOBAL", True), ("LOAD_CONST", False)],
        [("PUSH_NULL", False), ("LOAD_DEREF", False), ("LOAD_CONST", False)],
        [("LOAD_DEREF", False), ("PUSH_NULL", False), ("LOAD_CONST", False)],
    ],
)
def test_what_is_called_is_seen_as_every_interpreter_has_it(shown: list[tuple[str, bool]]) -> None:
    steps = tuple([Step(name, "", calls, 0) for name, calls in shown])
    place = next(i for i, s in enumerate(steps) if s.opname in globals_rewrite._LOADS)
    end = place + 2 if steps[place + 1].opname in globals_rewrite._TAKES else place + 1
    assert globals_rewrite._is_called(steps, place, end)
    plain = tuple(
        [
            step._replace(calls=False, opname=step.opname.replace("METHOD", "ATTR"))
            for step in steps
            if step.opname != "PUSH_NULL"
        ]
    )
    assert not globals_rewrite._is_called(plain, 0, len(plain) - 1)


ALIAS = """
import sys, types
import numpy as np
import alight
known = place = None
def own(x):
    return x * 2 if place.normal is known else x
jitted = alight.jit(own)
x = np.arange(3.0)
place = types.ModuleType("place")
place.normal = known = object()
assert "numpy.random" not in sys.modules
with alight.policy(floor=0, force="cpu:generated"):
    assert jitted(x)[1] == 2.0
    import numpy.random as place
    known = place.normal
    assert jitted(x)[1] == own(x)[1] == 2.0
"""


def test_what_draws_may_be_loaded_after_the_first_call() -> None:
    subprocess.run([sys.executable, "-c", ALIAS], check=True)


def _in_its_globals(number: int) -> Any:
    space: dict[str, Any] = {"np": np}
    exec(f"def f(x): return np.sin(x) * {number}", space)
    return space["f"]


def _in_its_closure(number: int) -> Any:
    space: dict[str, Any] = {"np": np}
    text = f"def f(x, n=0): return f(x, n + 1) if n < 2 else np.sin(x) * {number}"
    exec(f"def make():\n    {text}\n    return f", space)
    return space["make"]()


def _asking_for_globals(number: int) -> Any:
    return eval(f"lambda x: (globals(), np.cos(x) * {number})[1]", {"np": np})


def _assigning(number: int) -> Any:
    space: dict[str, Any] = {"np": np}
    exec(
        f"def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        n += {number}\n"
        "        return f and np.sin(x) * n\n    return f",
        space,
    )
    return space["make"]()


def _globals_of_twins() -> int:
    gc.collect()
    return sum(type(item) is globals_rewrite._Names for item in gc.get_objects())


@pytest.mark.parametrize(
    "make", [_in_its_globals, _in_its_closure, _asking_for_globals, _assigning]
)
def test_functions_made_without_end_are_let_go_of(make: Callable[[int], Any]) -> None:
    more = 100
    made, codes = [], []
    before = _globals_of_twins()
    for number in range(globals_rewrite.KEPT + more):
        function = make(number)
        globals_rewrite.inside(function)
        made.append(weakref.ref(function))
        codes.append(weakref.ref(function.__code__))
    del function
    gc.collect()
    assert not any(reference() for reference in made[: more // 2])
    assert not any(reference() for reference in codes[: more // 2])
    assert _globals_of_twins() - before <= globals_rewrite.KEPT


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


# Long functions among them, whose instructions have extended arguments, and functions in others.
@pytest.mark.parametrize("module", [dis, inspect, dataclasses, functools, globals_rewrite])
def test_instructions_are_read_as_dis_reads_them(module: types.ModuleType) -> None:
    known: Callable[[str], bool] = {"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"}.__contains__
    named = 0
    for code in _codes(compile(inspect.getsource(module), "module", "exec")):
        read = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]
        found = instructions(code)
        assert [(s.opname, s.offset) for s in found] == [(i.opname, i.offset) for i in read]
        for ours, own in zip(found, read, strict=True):
            if known(ours.opname):
                assert ours.calls == (" + " in own.argrepr)
            if known(ours.opname) or own.opcode in dis.hasfree:
                assert ours.name == own.argval
                named += 1
            if ours.opname == "CALL_INTRINSIC_1":
                assert ours.name == own.argrepr
    assert named > 100


def test_a_module_may_get_names_while_its_own_are_looked_through() -> None:
    """Other threads note warnings in it, under a name that it gets with the first of them."""
    code = compile("def f(x):\n    return np.sqrt(x) + 1.0\n", __file__, "exec")
    names: dict[str, Any] = {"np": np}

    class Met(str):
        def __getitem__(self, place: Any) -> str:
            names.setdefault("__warningregistry__", {})
            return str(self)[place]

    names[Met("__met__")] = None
    exec(code, names)
    x = np.arange(100.0)
    with alight.policy(floor=0):
        assert alight.jit(names["f"])(x).tobytes() == names["f"](x).tobytes()
    assert "__warningregistry__" in names


def test_the_collector_may_change_a_module_whose_names_are_looked_through() -> None:
    """Finalizers set globals as other threads do, and run where memory is asked for."""
    names: dict[str, Any] = {f"__{number}__": number for number in range(300)}
    own = dict(names)

    def finalize(*_: object) -> None:
        names[f"more {len(names)}"] = None

    before = gc.get_threshold()
    gc.callbacks.append(finalize)
    gc.set_threshold(1, *before[1:])
    try:
        found = globals_rewrite._Names(names, globals_rewrite._Uses(frozenset(), frozenset()))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(finalize)
    assert len(names) > len(own)
    assert {name: dict.get(found, name) for name in own} == own
