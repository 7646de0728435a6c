"""What a jitted function has learned while all that it names was as it is now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from alight._core.guard import Entry
from alight._src.config.policy import Policy
from alight._src.jit.array_program import ArrayProgram
from alight._src.jit.call_phases import Phase
from alight._src.jit.call_signature import CallSignature
from alight._src.jit.host_call import HostAdapter
from alight._src.jit.kernel_race import PROGRAMS
from alight._src.jit.look_costs import pays_at_once
from alight._src.jit.purity import ABSENT, Proof, declare_pure, prove
from alight._src.jit.specialization import Specialization
from alight._src.record.pending import record_floor

__all__ = ["EXACT_KINDS", "Learned", "States"]

# Kinds of call a function keeps apart by exact shapes, as many as its guard has entries; a function
# that is given ever new shapes is judged by how large they are, in powers of two.
EXACT_KINDS = 64

_THEIRS = (Phase.WAITING, Phase.NUMPY_LEADS, Phase.ON_NUMPY)


class Learned:
    """One proof, and what is known of calls for as long as it holds."""

    __slots__ = ("_standing", "answers", "guarded", "hosted", "on_ours", "proof", "specializations")

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        # To be asked, not run: it matches no arguments.
        self._standing = Entry(
            (), [tuple(lookup) for lookup in proof.lookups], ABSENT, (), call=tuple
        )
        self.specializations: OrderedDict[Any, Specialization] = OrderedDict()
        self.answers: dict[int, Entry] = {}  # the guard's entry of a kind of call, by its id
        # By key; None: such a call cannot be run again without its body.
        self.on_ours: dict[Any, ArrayProgram | None] = {}
        self.guarded: dict[Any, Entry] = {}  # the guard's, of those calls
        # By kinds of arguments: calls on Arrays as calls on what they have on the host.
        self.hosted: dict[Any, HostAdapter] = {}

    def holds(self) -> bool:
        """Tell whether all that the function names is as it was."""
        return self._standing.matches(())

    def specialization(
        self, described: CallSignature, here: Policy, drop: Callable[[Entry], Any]
    ) -> Specialization:
        """Return what is known of calls with such arguments under a policy; ``drop`` is told of the
        guard's entry for a kind of call that makes room."""
        stamp = here.stamp
        key: Any = (described.structure, stamp)
        kind = self.specializations.get(key)
        if kind is None:
            raced = here.leaves_choice
            elements = max([array.size for array in described.arrays], default=0)
            least = record_floor() if raced else 0
            small = bool(described.arrays) and all(a.size < least for a in described.arrays)
            if raced and not small and not (here.devices or here.pick != "model"):
                small = not (self.proof.pure and pays_at_once(elements, self.proof.ops))
            phase = Phase.WAITING if small else Phase.COLD if raced else Phase.FORCED
            sizes = [array.size.bit_length() for array in described.arrays]
            sizes += [number.bit_length() for number in described.integers]
            large = (tuple(sizes), tuple([a.dtype for a in described.arrays]), stamp)
            whole = 0 if self.proof.parts else elements
            if len(self.specializations) >= EXACT_KINDS:
                key = large
                kind = self.specializations.get(key)
                if kind is None:
                    kind = Specialization(phase, large, whole)
                    kind.tries = PROGRAMS  # a program is for exact shapes
            else:
                kind = Specialization(phase, large, whole)
            self._keep(key, kind, drop)
        return kind

    def outlined(
        self,
        outline: tuple[Any, ...],
        here: Policy,
        drop: Callable[[Entry], Any],
        holds_ours: Callable[[], bool],
    ) -> Specialization:
        """Return what is known of calls with arguments that look like this, and cannot be
        described; ``holds_ours`` tells whether Arrays are among what they lead to, which NumPy's
        way is not for."""
        key = (outline, here.stamp)
        kind = self.specializations.get(key)
        if kind is None:
            kind = Specialization(Phase.ON_BODY if holds_ours() else Phase.WAITING, key)
            kind.tries = PROGRAMS  # a program is for exact shapes
            self._keep(key, kind, drop)
        return kind

    def _keep(self, key: Any, kind: Specialization, drop: Callable[[Entry], Any]) -> None:
        self.specializations[key] = kind
        if len(self.specializations) > 2 * EXACT_KINDS:
            _, gone = self.specializations.popitem(last=False)
            answer = self.answers.pop(id(gone), None)  # a later one may get that id
            if answer is not None:
                drop(answer)

    def all_numpys(self, sizes: Any) -> bool:
        """Tell whether NumPy has every call of arguments so large, whatever their shapes: no more
        are kept apart by those, and where anything was tried, it won."""
        # of a tuple: other threads may meet new kinds meanwhile
        alike = [kind for kind in tuple(self.specializations.values()) if kind.sizes == sizes]
        return len(self.specializations) >= EXACT_KINDS and all([s.phase in _THEIRS for s in alike])

    def entries(self) -> tuple[Entry, ...]:
        """Return the guard's entries that rest on it."""
        hosted = [hosted.entry for hosted in self.hosted.values() if hosted.entry is not None]
        return (*self.answers.values(), *self.guarded.values(), *hosted)


class States:
    """What a function has learned in each state of what it names, the one used last in front.

    As many are kept as programs for one kind of call: what a test puts into NumPy's place and takes
    away again leaves what was learned before.
    """

    def __init__(self) -> None:
        self._kept: list[Learned] = []

    def current(self, function: Any, declared_pure: bool, drop: Callable[[Entry], Any]) -> Learned:
        """Return what is learned of a function in the state that things are in; where they never
        were, that goes in front. ``drop`` is told of the guard's entries of what makes room."""
        kept = self._kept
        for learned in kept:
            if learned.holds():
                if learned is not kept[0]:  # a list anew: other threads may be looking
                    self._kept = [learned, *[other for other in kept if other is not learned]]
                return learned
        learned = Learned(declare_pure(function) if declared_pure else prove(function))
        kept = [learned, *self._kept]
        self._kept = kept[:PROGRAMS]
        for gone in kept[PROGRAMS:]:
            for entry in gone.entries():
                drop(entry)
        return learned

    def clear(self) -> None:
        """Drop all."""
        self._kept = []
