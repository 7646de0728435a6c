"""What is known of one kind of call as one of a few phases; what leads from one to another; and the
way that calls in each are answered.

Pure: nothing here runs, times or keeps anything. What happens to a kind of call is an `Event`, and
`next_phase` is the one place that says what comes of it.
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = [
    "EXPIRING",
    "FORCED",
    "NUMPYS",
    "OPEN",
    "OURS",
    "RACES",
    "SETTLED",
    "WAYS",
    "Event",
    "Phase",
    "Way",
    "next_phase",
]


class Phase(Enum):
    """What is known of a kind of call.

    "Its kernels" are a program as nothing but kernels, which the guard launches without Python;
    "a plan" is a program replayed step by step, or the body on Arrays where there is no program.
    """

    # Looked up at each call that comes here; Enum's own is a function in Python.
    __hash__ = object.__hash__

    WAITING = auto()  # small: NumPy has it until there is time to look whether the whole of it pays
    COLD = auto()  # its body has not run on Arrays
    TRACED = auto()  # its body has; NumPy has it while kernels of its program are made
    IMPURE = auto()  # no program of it could be kept: its body and NumPy are timed
    RACING = auto()  # its plan and NumPy are timed, its kernels too
    PLANS_RACE = auto()  # its plan and NumPy are timed; its kernels are out
    NUMPY_LEADS = auto()  # NumPy has beaten its plan; its kernels may still win
    PLAN_LEADS = auto()  # its plan has beaten NumPy; its kernels may still beat that
    LACKING = auto()  # timed, on plans without devices that may still be opened: nothing is final
    NUMPY_LACKING = auto()  # NumPy has beaten such plans
    PLAN_LACKING = auto()  # such plans have beaten NumPy
    ON_NUMPY = auto()
    ON_BODY = auto()  # the body on Arrays has won, of which there is no program
    ON_PLAN = auto()
    ON_KERNELS = auto()
    FORCED = auto()  # the policy leaves no choice
    FORCED_PLAN = auto()  # the same, and the guard cannot launch it
    BELOW_FLOOR = auto()  # the policy leaves no choice, and every step of it is below the floor


class Event(Enum):
    """What happens to a kind of call."""

    PAYS = auto()  # looking at the whole of it, or at who was quicker, may pay by now
    KEPT = auto()  # its body has run on Arrays, and the program of it is kept
    NOT_KEPT = auto()  # its body has run on Arrays, and there is no program of it
    UNMADE = auto()  # kernels of the program are missing, and none of them has given its bits
    UNOPENED = auto()  # a plan lacks devices that may still be opened
    NO_GAIN = auto()  # alight would have NumPy do every part of it
    NO_STEP = auto()  # every step of it was below the floor
    TIMED = auto()  # a run of a plan was timed, its kernels there
    NUMPY_WON = auto()
    PLAN_WON = auto()
    KERNELS_WON = auto()
    KERNELS_OUT = auto()  # they have lost, or cannot be launched
    OTHER_SCALARS = auto()  # a call that no program is for, where none is made any more
    GIVEN_UP = auto()  # its body went on for much longer on Arrays than in NumPy
    GIVEN_UP_FIRST = auto()  # its body went on for long, and what NumPy takes is not known


_NEXT: dict[Phase, dict[Event, Phase]] = {
    Phase.WAITING: {Event.PAYS: Phase.COLD, Event.GIVEN_UP: Phase.ON_NUMPY},
    Phase.COLD: {
        Event.KEPT: Phase.RACING,
        Event.NOT_KEPT: Phase.IMPURE,
        Event.GIVEN_UP: Phase.ON_NUMPY,
        Event.GIVEN_UP_FIRST: Phase.WAITING,
    },
    Phase.TRACED: {
        Event.TIMED: Phase.RACING,
        Event.UNOPENED: Phase.LACKING,
        Event.NO_GAIN: Phase.NUMPY_LEADS,
    },
    Phase.IMPURE: {
        Event.KEPT: Phase.RACING,
        Event.UNOPENED: Phase.LACKING,
        Event.NO_GAIN: Phase.ON_NUMPY,
        Event.NUMPY_WON: Phase.ON_NUMPY,
        Event.PLAN_WON: Phase.ON_BODY,
        Event.GIVEN_UP: Phase.ON_NUMPY,
        Event.GIVEN_UP_FIRST: Phase.WAITING,
    },
    Phase.RACING: {
        Event.UNMADE: Phase.TRACED,
        Event.UNOPENED: Phase.LACKING,
        Event.NO_GAIN: Phase.NUMPY_LEADS,
        Event.NUMPY_WON: Phase.NUMPY_LEADS,
        Event.PLAN_WON: Phase.PLAN_LEADS,
        Event.KERNELS_WON: Phase.ON_KERNELS,
        Event.KERNELS_OUT: Phase.PLANS_RACE,
    },
    Phase.PLANS_RACE: {
        Event.UNOPENED: Phase.LACKING,
        Event.NO_GAIN: Phase.ON_NUMPY,
        Event.NUMPY_WON: Phase.ON_NUMPY,
        Event.PLAN_WON: Phase.ON_PLAN,
        Event.GIVEN_UP: Phase.ON_NUMPY,
    },
    Phase.NUMPY_LEADS: {
        Event.KERNELS_WON: Phase.ON_KERNELS,
        Event.KERNELS_OUT: Phase.ON_NUMPY,
        # The guard answers calls with all scalars alike: none of these is looked at any more.
        Event.OTHER_SCALARS: Phase.ON_NUMPY,
    },
    Phase.PLAN_LEADS: {
        Event.UNOPENED: Phase.PLAN_LACKING,
        Event.KERNELS_WON: Phase.ON_KERNELS,
        Event.KERNELS_OUT: Phase.ON_PLAN,
    },
    # Devices that are opened, or never will be, have all of this forgotten with the plans.
    Phase.LACKING: {
        Event.NO_GAIN: Phase.NUMPY_LACKING,
        Event.NUMPY_WON: Phase.NUMPY_LACKING,
        Event.PLAN_WON: Phase.PLAN_LACKING,
    },
    Phase.ON_NUMPY: {Event.PAYS: Phase.PLANS_RACE},
    Phase.ON_BODY: {
        Event.KEPT: Phase.PLAN_LEADS,
        Event.UNOPENED: Phase.PLAN_LACKING,
        Event.PAYS: Phase.PLANS_RACE,
    },
    Phase.ON_PLAN: {Event.PAYS: Phase.PLANS_RACE},
    Phase.ON_KERNELS: {Event.PAYS: Phase.RACING},
    Phase.FORCED: {Event.NO_STEP: Phase.BELOW_FLOOR, Event.KERNELS_OUT: Phase.FORCED_PLAN},
}


def next_phase(phase: Phase, event: Event) -> Phase:
    """Return the phase that an event leads to; in most it says nothing new."""
    return _NEXT.get(phase, {}).get(event, phase)


class Way(Enum):
    """How a call is answered that no entry of the guard answers. "Ours" is the program replayed
    or, where there is none, the body on Arrays, which is traced."""

    __hash__ = object.__hash__

    NUMPY = auto()  # NumPy's, and the guard has it until its verdict is looked at again
    NUMPY_FOR_NOW = auto()  # NumPy's; the guard has it for some calls, then asks again
    NUMPY_TOLD = auto()  # NumPy's; devices that are missing are told of each call
    WHEN_MADE = auto()  # as `TURNS`, but NumPy's for now while kernels of its program are missing
    TURNS = auto()  # NumPy's or ours, whose turn it is to be timed, or ours with NumPy's beside it
    OURS_TIMED = auto()
    OURS = auto()
    LAUNCHED = auto()  # ours, and the guard has it from now on where it can launch it


WAYS = {
    Phase.WAITING: Way.NUMPY_FOR_NOW,
    Phase.COLD: Way.OURS_TIMED,
    Phase.TRACED: Way.WHEN_MADE,
    Phase.IMPURE: Way.TURNS,
    Phase.RACING: Way.TURNS,
    Phase.PLANS_RACE: Way.TURNS,
    Phase.NUMPY_LEADS: Way.NUMPY_FOR_NOW,
    Phase.PLAN_LEADS: Way.OURS_TIMED,
    Phase.LACKING: Way.TURNS,
    Phase.NUMPY_LACKING: Way.NUMPY_TOLD,
    Phase.PLAN_LACKING: Way.OURS,
    Phase.ON_NUMPY: Way.NUMPY,
    Phase.ON_BODY: Way.OURS,
    Phase.ON_PLAN: Way.OURS,
    Phase.ON_KERNELS: Way.OURS,
    Phase.FORCED: Way.LAUNCHED,
    Phase.FORCED_PLAN: Way.OURS,
    Phase.BELOW_FLOOR: Way.NUMPY,
}

# Whose way is the faster one is not known.
OPEN = frozenset({phase for phase, way in WAYS.items() if way in (Way.TURNS, Way.WHEN_MADE)})
# Kernels are raced against whoever leads.
RACES = frozenset({phase for phase, after in _NEXT.items() if Event.KERNELS_WON in after})
# What the policy leaves no choice in.
FORCED = frozenset({Phase.FORCED, Phase.FORCED_PLAN})
# Whose way is taken, where one is.
NUMPYS = frozenset({Phase.NUMPY_LEADS, Phase.NUMPY_LACKING, Phase.ON_NUMPY, Phase.BELOW_FLOOR})
OURS = frozenset(
    {
        *(Phase.PLAN_LEADS, Phase.PLAN_LACKING, Phase.ON_BODY, Phase.ON_PLAN, Phase.ON_KERNELS),
        *FORCED,
    }
)
# Verdicts that are looked at again, once that is a small share of what the calls took since.
EXPIRING = frozenset({Phase.ON_NUMPY, Phase.ON_BODY, Phase.ON_PLAN, Phase.ON_KERNELS})
# Calls go the way they will go from now on, until their verdict is looked at again.
SETTLED = frozenset(
    {Phase.ON_NUMPY, Phase.ON_BODY, Phase.ON_PLAN, Phase.ON_KERNELS, Phase.BELOW_FLOOR}
)
