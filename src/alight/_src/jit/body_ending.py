"""How a run of a jitted function's body on Arrays ends, and what is noted of it then."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, NamedTuple

from alight._src.base.originals import np
from alight._src.jit.guarding import MissedCall
from alight._src.jit.host_program import HostProgram
from alight._src.jit.specialization import PLANNING_SHARE, Bits
from alight._src.jit.trace import Trace
from alight._src.record.pending import record_floor
from alight._src.run import recording_costs
from alight._src.run.prepared_step import kernels_at_hand

__all__ = ["UNDONE", "EndedBody", "Ending", "ending_of"]


class Ending(Enum):
    """How a run of a body ends that raises nothing."""

    DONE = auto()  # all of it was done as it was recorded
    GIVEN_UP = auto()  # it went on for too long, and what was left of it was NumPy's op by op
    BEGUN_ANEW = auto()  # nothing of it was done yet when it was given up
    PUT_OFF = auto()  # nor of this one, whose plan is made behind


# The call is NumPy's, whose memory is as before.
UNDONE = frozenset((Ending.BEGUN_ANEW, Ending.PUT_OFF))


def ending_of(trace: Trace, later: str) -> Ending:
    """Return how a run ended; ``later``: the job that makes the plan of its program behind."""
    if later or trace.later:
        return Ending.PUT_OFF
    if trace.starts_anew:
        return Ending.BEGUN_ANEW
    return Ending.GIVEN_UP if trace.given_up else Ending.DONE


class EndedBody(NamedTuple):
    """A run of a body, what it took, and the program of it that may be kept."""

    trace: Trace
    later: str
    seconds: float
    program: HostProgram | None
    wanted: bool  # a program of it was
    whole: bool  # what is below the floor was recorded, too

    def note(self, ending: Ending, missed: MissedCall) -> None:
        """Have the call's kind know how it ended, and what comes of that."""
        kind, trace = missed.specialization, self.trace
        kind.put_off(self.later or trace.later)
        if ending is Ending.BEGUN_ANEW:
            kind.gave_up(self.seconds)
        if ending in UNDONE:
            return
        if self.wanted:
            kind.tries += 1
        if ending is Ending.GIVEN_UP:
            kind.gave_up(self.seconds, trace.exact)
            return
        planned = False
        if not trace.exact or kind.bits is not Bits.SAME:  # else nobody asks
            planned = PLANNING_SHARE * trace.steps * _planning_seconds() > self.seconds
        program = self.program if missed.learned.holds() else None
        there = [] if program is None else kernels_at_hand(program.plan)
        straight = self.wanted and missed.learned.proof.straight and not missed.kwargs
        idle = straight and not trace.requests and _below_floor(missed.args)
        scalars = () if missed.described is None else missed.described.scalars
        gains = trace.ours or not self.whole
        kind.traced(trace, scalars, program, there, gains, planned, idle)


def _below_floor(args: tuple[Any, ...]) -> bool:
    """Tell whether arguments are small arrays and nothing else."""
    small = [type(item) is np.ndarray and item.size < record_floor() for item in args]
    return bool(args) and all(small)


_planning: list[float] = []


def _planning_seconds() -> float:
    """Return what a step costs beyond its kernel, measured once."""
    if not _planning:
        _planning.append(recording_costs.planning_seconds())
    return _planning[0]
