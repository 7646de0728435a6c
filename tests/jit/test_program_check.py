"""Programs kept of jitted calls are proven when they are made: those that would write into what
their callers still need are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit import checked_programs, guard_entries
from alight._src.jit.checked_programs import prove_host, prove_launches
from alight._src.jit.host_program import HostProgram as Program
from alight._src.plan.plan import LaunchStep, WriteStep
from alight.errors import PlanError

Array = np.ndarray[Any, Any]
WAYS: dict[str, dict[str, Any]] = {
    "generated": {"floor": 0, "force": "cpu:generated"},
    "numpy": {"floor": 0, "force": "cpu:numpy"},
    "sim": {"floor": 0, "force": "sim:0"},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with alight.policy(**WAYS[request.param]):
        yield request.param


def arrays(count: int) -> list[Array]:
    generator = np.random.default_rng(1)
    return [generator.random((70, 80)) for _ in range(count)]


def assigned_whole(dst: Any, src: Any) -> None:
    dst[...] = src
    dst[1] = 0


def local_copy(src: Any) -> Any:
    c = np.zeros(src.shape)
    c[:] = src
    c[1] = 0
    return c


def exchanged(dst: Any, src: Any) -> None:
    t = dst.copy()
    dst[...] = src
    src[...] = t
    src[0] = 9
    dst[1] = 0


def kept_whole(x: Any, y: Any) -> Any:
    """A local array that lies in an argument's memory when that is written back."""
    t = x * 1.5
    t[...] = y
    t[...] = y
    y[2:] = y[:-2]
    return t


def stencil(u: Any) -> Any:
    u[1:-1] = (u[:-2] + u[2:]) / 2
    return u[::2], u * 2


def updated(x: Any, y: Any) -> Any:
    x += y
    x[3] = x[2] * 2
    y[:, 1] = 0
    return x - y, y.T


def fresh(x: Any, y: Any) -> Any:
    t = x * 2 + y
    t[2] = 1
    return t, t[3:]


CALLS: dict[Callable[..., Any], int] = {
    assigned_whole: 2, local_copy: 1, exchanged: 2, kept_whole: 2, stencil: 1, updated: 2, fresh: 2,
}  # fmt: skip


def called(function: Callable[..., Any]) -> None:
    """Call a function often enough to be kept and run again, beside NumPy."""
    jitted = alight.jit(function)
    for _ in range(6):
        ours, plain = arrays(CALLS[function]), arrays(CALLS[function])
        found, expected = jitted(*ours), function(*plain)
        for one, other in zip(ours, plain, strict=True):
            np.testing.assert_array_equal(one, other)
        if isinstance(expected, np.ndarray):
            found, expected = (found,), (expected,)
        for one, other in zip(found or (), expected or (), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_a_program_is_right_or_refused(way: str, function: Callable[..., Any]) -> None:
    """No call gives wrong elements: where the program made of a call would, it is refused."""
    before = checked_programs.counts["programs"]
    try:
        called(function)
    except PlanError as error:
        assert error.buffer is not None and "argument" in error.buffer, error
        assert function in (assigned_whole, local_copy, exchanged, kept_whole), error
    assert checked_programs.counts["programs"] > before


class Kept(list[Program]):
    """The programs that are made."""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    found = Kept()

    def keep(program: Program) -> None:
        found.append(program)
        prove_host(program)

    monkeypatch.setattr(checked_programs, "prove_host", keep)
    return found


def program_of(kept: Kept, function: Callable[..., Any]) -> Program:
    with alight.policy(**WAYS["generated"]):
        alight.jit(function)(*arrays(CALLS[function]))
    return kept[-1]


def changed(program: Program, **fields: Any) -> Program:
    """Return a program with parts of its plan replaced."""
    made = copy.copy(program)
    for name, item in fields.items():
        setattr(made, name, item)
    return made


def refused(match: str, call: Any, *args: Any) -> PlanError:
    with pytest.raises(PlanError, match=match) as caught:
        call(*args)
    return caught.value


def test_a_program_that_is_broken_is_refused(kept: Kept) -> None:
    program = program_of(kept, updated)
    prove_host(program)
    plan = program.plan
    # a write into the caller's memory is left out of what is told
    assert len(program.writes) == 2
    refused("argument", prove_host, changed(program, writes=program.writes[:1]))
    one, other = program.writes
    crossed = one._replace(value=other.value), other._replace(value=one.value)
    refused("argument", prove_host, changed(program, writes=crossed))
    # windows that were written and are not put back, or elsewhere
    for at, whole in enumerate(program.writes):
        windows = whole.windows
        for kept_back in (windows[1:], (windows[0]._replace(offset=windows[0].offset + 8),)):
            broken = [*program.writes]
            broken[at] = whole._replace(windows=kept_back)
            refused("argument", prove_host, changed(program, writes=tuple(broken)))
    # a step dropped, and two in each other's place
    writes = [i for i, step in enumerate(plan.steps) if isinstance(step, WriteStep)]
    first = writes[0]
    short = replace(plan, steps=(*plan.steps[:first], *plan.steps[first + 1 :]),
                    dead=(*plan.dead[:first], *plan.dead[first + 1 :]))  # fmt: skip
    assert refused("not there", prove_host, changed(program, plan=short)).step.startswith("step")


def test_launches_for_a_guard_are_proven(kept: Kept) -> None:
    def two(x: Any, y: Any) -> Any:
        t = np.sqrt(x * 2 + y)
        s = t.sum(axis=0)
        return t - s, s

    CALLS[two] = 2
    try:
        program = program_of(kept, two)
    finally:
        del CALLS[two]
    plan, launchable = guard_entries.generated(program)
    assert launchable is not None
    prove_launches(program, plan, launchable)
    operands = launchable.operands
    assert len(operands) > 1
    step = launchable.steps[-1]
    assert isinstance(step, LaunchStep)
    # an operand taken from another place, from further on, from what is made later
    for place, wrong in ((0, (1, 0)), (0, (0, 8)), (0, (len(launchable.inputs), 0))):
        rows = list(operands[0])
        if rows[place] == wrong:
            continue
        rows[place] = wrong
        bad = launchable._replace(operands=(tuple(rows), *operands[1:]))
        assert refused("step 0", prove_launches, program, plan, bad).step.startswith("step 0")
    # two results in one place; one that is too small; another than was asked for
    last = list(operands[-1])
    last[-1] = operands[0][-1]
    refused("wants", prove_launches, program, plan,
            launchable._replace(operands=(*operands[:-1], tuple(last))))  # fmt: skip
    small = alight._core.make_layout(np.dtype(np.float64), (3,))
    refused("outside of output", prove_launches, program, plan,
            launchable._replace(outputs=(small, *launchable.outputs[1:])))  # fmt: skip
    refused("at the end", prove_launches, program, plan,
            launchable._replace(results=launchable.results[::-1]))  # fmt: skip
