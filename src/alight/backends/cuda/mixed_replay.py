"""A plan with calls of CuPy's between generated kernels, made ready to run again and again: each
run of generated kernels is one sequence, and what they and the library give one another stays on
the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from alight._src.base.failures import failures
from alight._src.config.loading import config
from alight.backends.base import LaunchSequence, Operand, Steps
from alight.backends.cuda.cupy_functions import LibraryKernel
from alight.backends.cuda.launch_sequence import CudaSequence
from alight.errors import AlightError, KernelError

if TYPE_CHECKING:
    from alight._core import DeviceBuffer
    from alight.backends.cuda.cuda_session import Session


class _Call(NamedTuple):
    """A call of the library: numbers of arrays, with the bytes before what it reads of them, and of
    what it makes."""

    kernel: LibraryKernel
    reads: tuple[tuple[int, int], ...]
    makes: int

    @property
    def bases(self) -> tuple[int, ...]:
        """Return the numbers of the arrays that it reads."""
        return tuple([base for base, _ in self.reads])


class _Kernels(NamedTuple):
    """Generated kernels in a row: numbers of the arrays that they read and make for others; what
    they were made ready as, with numbers of its own, and which those are here."""

    sequence: CudaSequence
    bases: tuple[int, ...]
    makes: tuple[int, ...]
    work: LaunchSequence
    names: tuple[int, ...]


class CudaParts:
    """Launches of all kinds in a row. Called with the buffers of what is given, it returns those of
    what is wanted; the host goes on."""

    def __init__(self, session: Session, work: LaunchSequence) -> None:
        self.session = session
        launches, given, layouts, views, wanted, fixed = work
        self._given, self._layouts, self._fixed = given, layouts, fixed
        # by number: the array behind it, and the bytes from where that begins
        self._lies = {number: (number, 0) for number in (*range(len(given)), *layouts)}
        for number, (source, offset) in views.items():
            base, before = self._lies[source]
            self._lies[number] = base, before + offset
        self._wanted = tuple(wanted)
        runs = [
            (library, list(steps))
            for library, steps in groupby(launches, lambda s: isinstance(s[0], LibraryKernel))
        ]
        self._parts: list[_Call | _Kernels] = []
        for place, (library, steps) in enumerate(runs):
            if library:
                self._parts += map(self._call, steps)
            else:
                later = [step for _, others in runs[place + 1 :] for step in others]
                self._parts.append(self._kernels(steps, later))
        # What each part is the last to read is given back then, and not at the end.
        last = {base: place for place, part in enumerate(self._parts) for base in part.bases}
        self._ends: list[tuple[int, ...]] = [
            tuple(b for b, at in last.items() if at == place and b not in wanted)
            for place in range(len(self._parts))
        ]
        if config().check:
            from alight.backends.cuda.checked_launches import prove_parts

            prove_parts(self, work)

    def _call(self, step: tuple[LibraryKernel, Sequence[int], Sequence[int]]) -> _Call:
        kernel, inputs, outputs = step
        reads = []
        for number in inputs:
            base, offset = self._lies[number]
            if base < len(self._given):
                offset += self._given[base][1]
            reads.append((base, offset))
        (made,) = outputs
        return _Call(kernel, tuple(reads), made)

    def _kernels(self, steps: Steps, later: Steps) -> _Kernels:
        """Return kernels as a sequence, which has numbers of its own: first for what it reads."""
        inside = {number for _, _, outputs in steps for number in outputs}
        read = [self._lies[number][0] for _, inputs, _ in steps for number in inputs]
        reads = tuple(dict.fromkeys(base for base in read if base not in inside))
        needed = {self._lies[number][0] for _, inputs, _ in later for number in inputs}
        makes = tuple(sorted(inside & (needed | set(self._wanted))))
        own = {number: place for place, number in enumerate((*reads, *sorted(inside)))}
        windows: dict[int, tuple[int, int]] = {}
        for _, inputs, _ in steps:
            for number in inputs:
                base, offset = self._lies[number]
                if number != base and number not in own:
                    own[number] = len(own)
                    windows[own[number]] = own[base], offset
        given = [
            self._given[base] if base < len(self._given) else (self._layouts[base], 0)
            for base in reads
        ]
        work = LaunchSequence(
            [
                (kernel, [own[n] for n in inputs], [own[n] for n in outputs])
                for kernel, inputs, outputs in steps
            ],
            given,
            {own[number]: self._layouts[number] for number in inside},
            windows,
            [own[number] for number in makes],
            {own[number]: self._fixed[number] for number in reads if number in self._fixed},
        )
        return _Kernels(CudaSequence(self.session, work), reads, makes, work, tuple(own))

    def __call__(self, buffers: Sequence[DeviceBuffer]) -> list[DeviceBuffer]:
        """Launch, and return the buffers of what is wanted."""
        session = self.session
        known = dict(enumerate(buffers))
        with session.lock:
            before = session.enter()
            try:
                with session.library(session.stream(0)):
                    for part, ends in zip(self._parts, self._ends, strict=True):
                        if type(part) is _Kernels:
                            made = part.sequence([known[number] for number in part.bases])
                            known.update(zip(part.makes, made, strict=True))
                        elif type(part) is _Call:
                            known[part.makes] = self._called(part, known)
                        for number in ends:
                            del known[number]
            except AlightError:
                raise
            except failures() as error:  # libraries raise anything
                session.tell(error)
                raise KernelError(
                    f"{session.device}: a call of the library failed: {type(error).__name__}: "
                    f"{error}. Fix: none, NumPy does it."
                ) from error
            finally:
                session.leave(before)
        return [known[number] for number in self._wanted]

    def _called(self, part: _Call, known: Mapping[int, DeviceBuffer]) -> DeviceBuffer:
        kernel = part.kernel
        operands = [
            Operand(known[base], offset, layout)
            for (base, offset), layout in zip(part.reads, kernel.layouts, strict=False)
        ]
        made = kernel.run(self.session, operands, None)
        assert made is not None  # no target was given
        return made
