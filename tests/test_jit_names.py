"""What a jitted function names is what is found under the names at each call: whatever is put there
meanwhile, and whichever way calls take, the answer is the plain function's."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy import sqrt as own_sqrt
from numpy import zeros as own_zeros

import alight
from alight import runtime, trial
from alight.config import policy
from alight.jit import Jitted
from alight.purity import prove

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
    monkeypatch.setattr(trial.Foreground, "allows", lambda self, seconds: True)
    monkeypatch.setattr(sys.modules[Jitted.__module__], "_ASK_SECONDS", 0.0)
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


def test_rebound_before_the_first_call(mode: str) -> None:
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


def test_arrays_of_the_callers(mode: str) -> None:
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


def test_numpys_dict_and_getattr(mode: str) -> None:
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
    sites = jitted._sites
    assert sites

    def counted(x: Any) -> Any:
        ran.append(1)
        return own_sqrt(x)

    with mock.patch.object(np, "sqrt", counted):
        check(jitted, plain, A)
        assert jitted._sites is not sites
        assert len(ran) == 2 * CALLS  # not proven: it runs at every call
    check(jitted, plain, A)
    assert jitted._sites is sites and len(ran) == 2 * CALLS


def test_many_states_are_not_kept(mode: str) -> None:
    names: dict[str, Any] = {"k": 0.0}
    exec("def plain(x): return x * k", names)
    jitted: Any = alight.jit(names["plain"])
    for number in range(30):
        names["k"] = float(number)
        assert np.array_equal(jitted(A), A * number)
        assert np.array_equal(jitted(A), A * number)
    assert len(jitted._states._kept) <= 8
    runtime.forget_plans()
    assert np.array_equal(jitted(A), A * 29.0)


def test_the_entries_of_numpys_way_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was NumPy's because of what had been put there is looked at anew without it."""
    monkeypatch.setattr(trial.Foreground, "allows", lambda self, seconds: True)
    monkeypatch.setattr(sys.modules[Jitted.__module__], "_ASK_SECONDS", 0.0)

    def plain(x: Any) -> Any:
        return np.sqrt(x) + 1

    jitted: Any = alight.jit(plain)
    with mock.patch.object(np, "sqrt", lambda x: sorted(x.tolist())[0]):
        for _ in range(20):  # both ways are timed until one is clearly the faster
            check(jitted, plain, A)
        (site,) = jitted._sites.values()
        assert site.verdict == "numpy" and not site.programs
    check(jitted, plain, A)
    (site,) = jitted._sites.values()
    assert site.programs


def test_the_proof_looks_each_name_up_once() -> None:
    def plain(x: Any) -> Any:
        return np.sqrt(x) + np.sqrt(x + 1) + np.sqrt(x + 2) + np.exp(np.exp(x))

    found = [(id(lookup.place), lookup.name) for lookup in prove(plain).lookups]
    assert len(found) == len(set(found)) == 6  # np, sqrt, exp, and what the function is made of
