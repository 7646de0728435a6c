"""What a jitted body writes are values: whole copies are copies, arguments end with what NumPy's
would, and no byte is stored that the body does not write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from random_bodies import POLICIES, Body, faults

pytestmark = pytest.mark.usefixtures("looked_at_once")

SIZES = (6, 700)


def _swap(dst: Any, src: Any) -> None:
    t = dst.copy()
    dst[...] = src
    src[...] = t
    src[0] = 9
    dst[1] = 0


def _taken(dst: Any, src: Any) -> None:
    dst[...] = src
    dst[1] = 0


def _local(dst: Any, src: Any) -> Any:
    c = np.zeros(src.shape)
    c[:] = src
    c[1] = 0
    return c


def _of_version(dst: Any, src: Any) -> Any:
    src *= 2.0
    c = np.zeros(src.shape)
    c[:] = src
    src[0] = 5
    return c


def _of_window(dst: Any, src: Any) -> Any:
    src[1] = 2.0
    c = np.zeros(src.shape[1])
    c[:] = src[1]
    src[1] = 3.0
    return c


def _in_turn(dst: Any, src: Any) -> Any:
    t = src + 0
    src[...] = dst
    dst[:] = src
    np.positive(t, out=src)
    dst[2] = t[1]
    return t


def _backwards(dst: Any, src: Any) -> Any:
    v = np.sqrt(src * 2 + 1) * 3
    v[::-1] = v
    return v


def _transposed(dst: Any, src: Any) -> Any:
    v = np.sqrt(src * 2 + 1) * 3
    v.T[...] = v
    return v


def _in_columns(dst: Any, src: Any) -> Any:
    v = np.sqrt(src * 2 + 1) * 3
    v[:, ::-1] = v
    return v


def _shifted(dst: Any, src: Any) -> Any:
    v = src.view("i8") >> 3
    v[::-1] = v
    return v


BODIES = (
    *(_swap, _taken, _local, _of_version, _of_window, _in_turn),
    *(_backwards, _transposed, _in_columns, _shifted),
)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", BODIES)
def test_contents_of_arguments_are_numpys(body: Callable[..., Any], size: int, policy: str) -> None:
    jitted = alight.jit(body)
    draw = np.random.default_rng(size)
    for call in range(12):
        given = draw.random((2, size, size))
        a, b = given.copy()
        wanted = body(*given)
        with alight.policy(**POLICIES[policy]):
            found = jitted(a, b)
        assert np.array_equal(a, given[0]), call
        assert np.array_equal(b, given[1]), call
        if wanted is not None:
            assert np.array_equal(found, wanted), call
            assert not np.shares_memory(found, a)
            assert not np.shares_memory(found, b)


@pytest.mark.parametrize("policy", POLICIES)
def test_random_bodies_do_what_numpy_does(policy: str) -> None:
    for seed in range(60):
        body = Body(seed, 5)
        assert next(faults(body, POLICIES[policy]), None) is None, body


def _shifts(a: Any, b: Any) -> None:
    np.positive(b, out=a)
    t = np.zeros(a.shape)
    t[:] = a
    a[t > 0.25] = 0.25


def _mirrors(a: Any, b: Any) -> Any:
    a[:, ::-1] = a
    np.positive(b, out=a)
    a[:, ::-1] = b
    t = b + 0
    b[1:] = t[:-1]
    return t


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("body", (_shifts, _mirrors))
def test_arguments_that_overlap_end_with_numpys_contents(
    body: Callable[..., Any], policy: str
) -> None:
    jitted = alight.jit(body)
    for places in (np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[-2::-1]), (np.s_[1:], np.s_[1:]):
        for call in range(8):
            base = np.random.default_rng(call).random((7, 6))
            expected = base.copy()
            wanted = body(*[expected[place] for place in places])
            with alight.policy(**POLICIES[policy]):
                found = jitted(*[base[place] for place in places])
            assert np.array_equal(base, expected), places
            assert wanted is None or np.array_equal(found, wanted), places


def _grown(a: Any, b: Any) -> None:
    a += 1.0
    b *= 2.0


@pytest.mark.parametrize("policy", POLICIES)
def test_arguments_between_whose_elements_others_lie(policy: str) -> None:
    """Layouts and bounds alike, the second argument lies between the elements of the first, or on
    them."""
    jitted = alight.jit(_grown)
    for call in range(12):
        base = np.arange(40.0)
        expected = base.copy()
        first = 1 + call % 2
        _grown(expected[0:20:2], expected[first : 20 + first : 2])
        with alight.policy(**POLICIES[policy]):
            jitted(base[0:20:2], base[first : 20 + first : 2])
        assert np.array_equal(base, expected), call


def _where(x: Any, v: Any, m: Any) -> None:
    np.add(x, v, out=x, where=m)


def _assigned(x: Any, v: Any, m: Any) -> None:
    x[m] = 7.0


def _in_window(x: Any, v: Any, m: Any) -> None:
    x[:-1][m[:-1]] = 7.0
    x[-1][m[-1]] = 7.0


def _away(x: Any, v: Any, m: Any) -> None:
    """Write rows of a version that does not lie in the argument."""
    first = int(np.argmax(m[:, 0]))
    before = x[first : first + 40] + 0
    x[first : first + 40] = v[first : first + 40]
    x[first : first + 40] = before * 0 + 7.0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("body", (_where, _assigned, _in_window, _away))
def test_threads_that_write_disjoint_elements_lose_none(
    body: Callable[..., Any], policy: str
) -> None:
    jitted = alight.jit(body)
    size = 160
    draw = np.random.default_rng(1)
    v = draw.random((size, size))
    if body is _away:
        owner = np.repeat(np.arange(4), 40)[:, None] + np.zeros((size, size), int)
    else:
        owner = draw.integers(0, 4, (size, size))
    for _ in range(4):
        x = np.zeros((size, size))
        barrier = threading.Barrier(4)

        def run(mine: int, x: Any = x, barrier: Any = barrier) -> None:
            mask = owner == mine
            barrier.wait()
            for _ in range(12):
                with alight.policy(**POLICIES[policy]):
                    jitted(x, v, mask)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wanted = np.zeros((size, size))
        for mine in range(4):
            for _ in range(12):
                body(wanted, v, owner == mine)
        assert np.array_equal(x, wanted)
