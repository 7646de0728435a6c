"""The phases of a kind of call, and what leads from one to another: no kernel runs here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alight
from alight._src.adapt.contest import PLAN_RULES
from alight._src.adapt.foreground import FOREGROUND
from alight._src.jit.call_phases import (
    EXPIRING,
    FORCED,
    NUMPYS,
    OPEN,
    OURS,
    RACES,
    SETTLED,
    WAYS,
    Event,
    Phase,
    Way,
    next_phase,
)
from alight._src.jit.specialization import Bits, Specialization
from alight._src.jit.trace import Trace

FIRST = (Phase.WAITING, Phase.COLD, Phase.FORCED)
LACKING = {Phase.LACKING, Phase.NUMPY_LACKING, Phase.PLAN_LACKING}

LIVES: dict[str, tuple[Phase, list[tuple[Event, Phase]]]] = {
    "small, then raced, and the kernels win": (
        Phase.WAITING,
        [
            (Event.PAYS, Phase.COLD),
            (Event.KEPT, Phase.RACING),
            (Event.UNMADE, Phase.TRACED),
            (Event.TIMED, Phase.RACING),
            (Event.TIMED, Phase.RACING),
            (Event.NUMPY_WON, Phase.NUMPY_LEADS),
            (Event.KERNELS_WON, Phase.ON_KERNELS),
        ],
    ),
    "kernels that cannot be launched": (
        Phase.COLD,
        [
            (Event.KEPT, Phase.RACING),
            (Event.KERNELS_OUT, Phase.PLANS_RACE),
            (Event.KEPT, Phase.PLANS_RACE),
            (Event.PLAN_WON, Phase.ON_PLAN),
        ],
    ),
    "a plan that wins, and kernels that lose to it": (
        Phase.COLD,
        [
            (Event.KEPT, Phase.RACING),
            (Event.PLAN_WON, Phase.PLAN_LEADS),
            (Event.KERNELS_OUT, Phase.ON_PLAN),
        ],
    ),
    "impure": (
        Phase.COLD,
        [
            (Event.NOT_KEPT, Phase.IMPURE),
            (Event.NOT_KEPT, Phase.IMPURE),
            (Event.TIMED, Phase.IMPURE),
            (Event.NUMPY_WON, Phase.ON_NUMPY),
        ],
    ),
    "impure for once": (
        Phase.COLD,
        [
            (Event.NOT_KEPT, Phase.IMPURE),
            (Event.PLAN_WON, Phase.ON_BODY),
            (Event.KEPT, Phase.PLAN_LEADS),
            (Event.KERNELS_WON, Phase.ON_KERNELS),
        ],
    ),
    "nothing to gain": (
        Phase.COLD,
        [(Event.NOT_KEPT, Phase.IMPURE), (Event.NO_GAIN, Phase.ON_NUMPY)],
    ),
    "ever new scalars": (
        Phase.COLD,
        [
            (Event.KEPT, Phase.RACING),
            (Event.NO_GAIN, Phase.NUMPY_LEADS),
            (Event.OTHER_SCALARS, Phase.ON_NUMPY),
            (Event.KERNELS_WON, Phase.ON_NUMPY),
        ],
    ),
    "devices that are not open": (
        Phase.COLD,
        [
            (Event.KEPT, Phase.RACING),
            (Event.UNOPENED, Phase.LACKING),
            (Event.KERNELS_WON, Phase.LACKING),
            (Event.NUMPY_WON, Phase.NUMPY_LACKING),
            (Event.OTHER_SCALARS, Phase.NUMPY_LACKING),
        ],
    ),
    "forced": (
        Phase.FORCED,
        [
            (Event.KEPT, Phase.FORCED),
            (Event.UNOPENED, Phase.FORCED),
            (Event.NO_GAIN, Phase.FORCED),
            (Event.TIMED, Phase.FORCED),
            (Event.NUMPY_WON, Phase.FORCED),
            (Event.KERNELS_OUT, Phase.FORCED_PLAN),
        ],
    ),
    "below the floor": (
        Phase.FORCED,
        [(Event.NOT_KEPT, Phase.FORCED), (Event.NO_STEP, Phase.BELOW_FLOOR)],
    ),
}


@pytest.mark.parametrize("life", LIVES)
def test_what_becomes_of_a_kind_of_call(life: str) -> None:
    phase, events = LIVES[life]
    for event, wanted in events:
        phase = next_phase(phase, event)
        assert phase is wanted


def after(phase: Phase) -> set[Phase]:
    """Return all phases that may follow."""
    found, left = {phase}, [phase]
    while left:
        phase = left.pop()
        new = {next_phase(phase, event) for event in Event} - found
        found |= new
        left += new
    return found


def test_every_phase_is_met_and_has_a_way() -> None:
    assert set(WAYS) == set(Phase) == set().union(*map(after, FIRST))
    assert set(WAYS.values()) == set(Way)


@pytest.mark.parametrize("phase", Phase)
def test_calls_end_up_one_way_until_the_verdict_is_looked_at_again(phase: Phase) -> None:
    ends = {end for end in after(phase) if after(end) == {end} or end in EXPIRING}
    assert ends <= SETTLED | {Phase.FORCED_PLAN} | LACKING and ends
    # What a policy forces says nothing of what is raced, which has a kind of its own.
    forced = {*FORCED, Phase.BELOW_FLOOR}
    assert after(phase) <= forced if phase in forced else not after(phase) & forced
    # No event leads from one way to the other but kernels, which have won, and a verdict that is
    # looked at again: then both are timed.
    for event in Event:
        new = next_phase(phase, event)
        if phase in NUMPYS and new in OURS:
            assert (event, new) == (Event.KERNELS_WON, Phase.ON_KERNELS)
        assert phase not in OURS or new not in NUMPYS - {Phase.BELOW_FLOOR}
        if phase in SETTLED and new is not phase and new not in OURS:
            assert (event, phase in EXPIRING, new in OPEN) == (Event.PAYS, True, True)


def test_kinds_of_phases_do_not_overlap() -> None:
    assert not OPEN & (NUMPYS | OURS | SETTLED) and not NUMPYS & OURS
    assert not SETTLED & RACES and not RACES & LACKING
    for phase, way in WAYS.items():
        assert (way in (Way.NUMPY, Way.NUMPY_TOLD)) <= (phase in NUMPYS)
        assert (way in (Way.OURS, Way.LAUNCHED)) <= (phase in OURS)


def traced(kind: Specialization, *there: bool, exact: bool = True, gains: bool = True) -> None:
    trace = Trace()
    trace.exact = exact
    program: Any = object()
    kind.traced(trace, (), program, there, gains, planned=False, idle=False)


def made(kind: Specialization, there: bool) -> Way:
    program: Any = object()
    return kind.way(program, 4, 2, lambda program: there)


@pytest.mark.parametrize(
    ("there", "exact", "phase"),
    [
        ((True, True), True, Phase.RACING),
        ((True, False), True, Phase.TRACED),
        ((False, False), False, Phase.TRACED),
        # Some have given bits that NumPy does not: it goes on so.
        ((True, False), False, Phase.RACING),
    ],
)
def test_numpy_has_calls_while_kernels_are_made(
    there: tuple[bool, ...], exact: bool, phase: Phase
) -> None:
    kind = Specialization()
    assert made(kind, True) is Way.OURS_TIMED
    traced(kind, *there, exact=exact)
    assert (kind.phase, kind.bits) == (phase, Bits.SAME if exact else Bits.OTHER)
    if phase is Phase.TRACED:
        assert made(kind, False) is Way.NUMPY_FOR_NOW
    kind.ran_numpy(1.0)
    assert made(kind, True) is Way.OURS_TIMED
    kind.ran_alight(1.0, cold=True)  # NumPy stood in for a kernel
    assert kind.phase is phase
    kind.ran_alight(1.0, cold=False)
    assert kind.phase is Phase.RACING and made(kind, False) is not Way.NUMPY_FOR_NOW


def test_ways_that_give_the_same_bits_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(FOREGROUND), "allows", lambda self, *seconds: True)
    for exact in (True, False):
        kind = Specialization()
        traced(kind, True, exact=exact)
        ways = []
        for _ in range(2 * PLAN_RULES.laps):
            ways.append(made(kind, True))
            if ways[-1] is Way.TURNS:
                kind.ran_numpy(1.0)
            else:
                kind.ran_alight(0.99, cold=False)
            kind.judge()
        if exact:
            assert ways == [Way.TURNS, Way.OURS_TIMED] * PLAN_RULES.laps
            assert kind.phase is Phase.NUMPY_LEADS and "too close to tell" in kind.why
        else:
            assert set(ways) == {Way.OURS_TIMED} and kind.wants_shadow()
            assert kind.taken == "undecided"


def test_no_kernels_are_waited_for_where_numpy_leads_and_scalars_change() -> None:
    kind = Specialization(Phase.NUMPY_LEADS)
    raced: Any = object()
    kind.race = raced
    assert kind.way(None, 4, 2, lambda program: True) is Way.NUMPY_FOR_NOW  # the race goes on
    kind.race = None
    assert kind.way(None, 4, 2, lambda program: True) is Way.NUMPY


def test_phases_of_real_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is met where its name says."""
    monkeypatch.setattr(type(FOREGROUND), "allows", lambda self, *seconds: True)
    monkeypatch.setattr("alight._src.jit.guarding._ASK_SECONDS", 0.0)
    x = np.arange(8.0)

    def plain(v: Any) -> Any:
        return v * 2.0 + 1.0

    def phases(jitted: Any, **told: Any) -> set[Phase]:
        with alight.policy(**told):
            for _ in range(4):
                assert np.array_equal(jitted(x), plain(x))
            return {kind.phase for kind in jitted._specializations.values()}

    jitted: Any = alight.jit(plain)
    assert phases(jitted, force="cpu:generated") == {Phase.BELOW_FLOOR}
    assert Phase.FORCED in phases(jitted, force="cpu:generated", floor=0)
    assert phases(jitted) & {Phase.WAITING, Phase.COLD, *OPEN, *RACES, *SETTLED}

    shown: list[float] = []

    def impure(v: Any) -> Any:
        shown.append(1.0)
        return v * 2.0 + 1.0

    y = np.linspace(0.0, 1.0, 400_000)  # an op on so many takes longer than to trace it
    jitted = alight.jit(impure)
    met = set()
    for _ in range(8):
        jitted(y)
        met |= {kind.phase for kind in jitted._specializations.values()}
    assert Phase.IMPURE in met and met <= {Phase.WAITING, Phase.IMPURE, *SETTLED}
