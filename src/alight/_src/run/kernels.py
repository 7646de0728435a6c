"""Kernels: made in this process, kept on disk, or compiled in the background while NumPy goes on.

A kernel is waited for only where the wait, as predicted, ends sooner than NumPy would. Otherwise a
thread of ours makes it once its group comes again, in this process or a later one, and who asked
runs in NumPy until it is there.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from alight._src.adapt import tier_up
from alight._src.adapt.planner_facts import profile_of
from alight._src.base.at_exit import interrupted, when_over
from alight._src.base.failures import failures
from alight._src.base.shortage import is_shortage
from alight._src.base.uninterrupted import hold, let_go, uninterrupted, whereabouts
from alight._src.codegen.common.keys import kernel_key
from alight._src.codegen.llvm import elf
from alight._src.codegen.llvm.compiled import at_work, give_up_work
from alight._src.ir.group import Group
from alight._src.log.decisions import LOG
from alight._src.measure.timing import quiet
from alight._src.plan.compile_work import compile_seconds
from alight._src.store import default_store, digest
from alight.backends.registry import backend_of
from alight.device import HOST_DEVICE, Device, Reason, Unsupported

__all__ = [
    *("GENERATED", "Maker", "is_coming", "kernel", "missing", "planned_later", "settle", "soon"),
    "written_later",
]

GENERATED = "generated"

KIND = "kernel"

# Devices whose kernels LLVM makes here.
_BY_LLVM = (HOST_DEVICE, "sim:0")

_KEEP = "-keep"  # marks jobs that write what was made

# Promised: neither a fork nor another function waits longer than 50 ms for a compiler, and the end
# of a program for one kernel at most. What is between this and that is for what else they do.
_WAIT_SECONDS = 0.025


def kernel(
    where: Device,
    group: Group,
    implementation: str,
    schedule: Any = None,
    patience: float = math.inf,
    maker: Maker | None = None,
) -> Any:
    """Return the kernel of a group on a device, or None where having it would take longer than
    ``patience`` seconds; it is then made in the background, unless its group was never met before.
    ``maker``: its own, which who asks at every run keeps.

    Raises Unsupported, with the reason, where the implementation has a gap.
    """
    if implementation != GENERATED:
        return backend_of(where).compile(where, group, implementation, schedule)
    if maker is None:
        maker = Maker(where, group, schedule)
    reason = _failed.get(maker.key)
    if reason is not None:
        raise Unsupported(reason)
    # What this leaves is kept, or freed by its count of references; what the collector meets on the
    # way it takes for old, so that it looks through all there is: 25 ms of the 110 that a first
    # call of twelve special functions took, for nothing (EPYC).
    with quiet():
        return _had(maker, patience)


def _had(maker: Maker, patience: float) -> Any:
    made = None
    if patience == math.inf or maker.key in _made:  # nothing is to be predicted
        made = maker.make()
    else:
        seconds = maker.seconds()
        # Others may want what is locked meanwhile, and their patience nobody knows.
        most = patience if _is_alone() else min(patience, _WAIT_SECONDS)
        if seconds <= most:
            made = maker.make(most - seconds)
        if made is None:
            # A group seen once may never come again; one that did will, as programs loop and are
            # started anew.
            loss = tier_up.lost(maker.stored_as, patience, maker.loading_seconds())
            if loss.reason is Reason.COMPILING:
                # Who pays once he has lost as much never pays more than twice what was best.
                in_time = seconds if loss.seconds >= seconds else math.inf
                _background.add(maker.key, maker.quietly, in_time)
            return None
    if maker.key not in _used:
        _used.add(maker.key)
        tier_up.used(maker.stored_as)
    return made


def _is_alone() -> bool:
    """Tell whether the program has one thread."""
    return threading.active_count() <= 1 + (_background.thread is not None)


def _is_over() -> bool:
    """Tell whether no thread is left that Python waits for before it ends."""
    return not any([one.is_alive() and not one.daemon for one in threading.enumerate()])


def soon(where: Device, group: Group, schedule: Any = None) -> bool:
    """Tell whether a generated kernel can be had at once; if not, have it made in the background.

    One that cannot be made can be had at once too: asking for it raises the reason.
    """
    maker = Maker(where, group, schedule)
    if maker.key in _made or maker.key in _failed:
        return True
    _background.add(maker.key, maker.quietly)
    return False


def missing(
    where: Device, group: Group, schedule: Any = None, maker: Maker | None = None
) -> Reason:
    """Return why NumPy runs in the place of a generated kernel: it is being made, or was by now; it
    was not asked for before; or it saves less than loading it takes."""
    if maker is None:
        maker = Maker(where, group, schedule)
    if maker.key in _made or maker.key in _failed or _background.has(maker.key):
        return Reason.COMPILING
    return tier_up.reason(maker.stored_as)


def settle() -> None:
    """Return when nothing is being made in the background any more."""
    _background.settle()


class Maker:
    """What it takes to have the generated kernel of one group. What the disk and the cost model say
    of it is asked once: runs that go without the kernel asked anew for 60 µs, each time."""

    __slots__ = ("_predicted", "_stored", "_stored_as", "device", "group", "key", "schedule")

    def __init__(self, where: Device, group: Group, schedule: Any) -> None:
        self.device = where
        self.group = group
        self.schedule = schedule
        self.key = f"{where.id.replace(':', '-')}-{kernel_key(group, schedule)}"
        self._stored_as = ""
        self._stored: bool | None = None
        self._predicted: dict[tuple[bool, bool], float] = {}

    @property
    def stored_as(self) -> str:
        if not self._stored_as:
            from alight._src.measure.profiles import code_fingerprint  # late: it asks the machine

            self._stored_as = digest([code_fingerprint(self.device), self.key], KIND)
        return self._stored_as

    def seconds(self) -> float:
        """Return the predicted seconds until the kernel is there."""
        stored = self._is_stored
        # What is on disk needs no compiler where its files can be read without one.
        first = not (stored and elf.HERE) and _compiler() not in sys.modules
        return self._predicts(stored, first)

    @property
    def _is_stored(self) -> bool:
        """Tell whether the kernel was on disk when that was first asked."""
        if self._stored is None:
            self._stored = default_store().has_bytes(KIND, self.stored_as)
        return self._stored

    def _predicts(self, stored: bool, first: bool) -> float:
        found = self._predicted.get((stored, first))
        if found is None:
            found = compile_seconds(self.group, profile_of(self.device), stored, first)
            self._predicted[stored, first] = found
        return found

    def loading_seconds(self) -> float:
        """Return the predicted seconds until the kernel is there in a process that finds it on
        disk."""
        return self._predicts(stored=True, first=not elf.HERE)

    def make(self, wait_seconds: float = math.inf) -> Any:
        """Return the kernel: from this process, from disk, or compiled now; None where another one
        is being compiled for longer than it may wait."""
        # LLVM's objects are given up twice where what does so is interrupted.
        if self.device.id in _BY_LLVM:
            return uninterrupted(partial(self._make, wait_seconds))
        return self._make(wait_seconds)

    def _make(self, wait_seconds: float) -> Any:
        if self.key not in _made and elf.HERE and (found := self._loaded()) is not None:
            return found  # LLVM has no part in it
        backend = backend_of(self.device)
        if self.key in _made:
            return backend.compile(self.device, self.group, GENERATED, self.schedule)
        if not _making.acquire(timeout=-1 if wait_seconds == math.inf else wait_seconds):
            return None
        try:
            found = None if elf.HERE or self.key in _made else self._loaded()
            return self._compiled() if found is None else found
        finally:
            _making.release()

    def _loaded(self) -> Any:
        """Return the kernel from disk, None where it is not there or for another machine."""
        blob = default_store().read_bytes(KIND, self.stored_as)
        if blob is None:
            return None
        try:
            found = backend_of(self.device).load(self.device, self.group, self.schedule, blob.data)
        except failures() as error:  # made for a compiler or system that is not this one
            LOG.fallback(f"kernel {self.key}", error)
            return None
        with _background._lock:
            if self.key not in _made:
                LOG.count(kernels_loaded=1)
                _made.add(self.key)
        return found

    def _compiled(self) -> Any:
        if _lost:
            raise Unsupported(
                "this process was forked while LLVM was at work, and cannot use it. Fix: start it "
                "anew, as multiprocessing's spawn does"
            )
        backend = backend_of(self.device)
        try:
            found = backend.compile(self.device, self.group, GENERATED, self.schedule)
        except Unsupported as gap:
            _failed[self.key] = str(gap)
            raise
        if self.key not in _made:
            data = backend.dump(found)
            if data:
                kept = partial(keep, self.stored_as, self.key, self.device.id, data)
                _background.add(f"{self.key}{_KEEP}", kept)
            with _background._lock:
                LOG.count(kernels_compiled=1)
                _made.add(self.key)
        return found

    def quietly(self) -> None:
        """Make the kernel for later; an error belongs to who asks for it then."""
        try:
            self.make()
            tier_up.made(self.stored_as)
        except failures() as error:
            if not is_shortage(error):  # else it can be made once that is over
                _failed[self.key] = f"{type(error).__name__}: {error}"


def keep(stored_as: str, key: str, device: str, data: bytes) -> None:
    """Store a compiled form; who runs the kernel does not wait for the disk, and a disk that is
    slow keeps no group, nor what its ops hold, alive."""
    default_store().write_bytes(KIND, stored_as, data, {"group": key, "device": device})


def written_later(key: str, write: Callable[[], None]) -> None:
    """Have something written for later processes when nothing else is to be made, or at the end."""
    _background.add(f"{key}{_KEEP}", write)


def planned_later(name: str, plan: Callable[[], None]) -> None:
    """Have a plan made when what waits before it is."""
    _background.add(name, plan)


def is_coming(name: str) -> bool:
    """Tell whether what has this name is still to be made in the background."""
    return _background.has(name)


@cache
def _compiler() -> str:
    """Return the module whose import makes a process's first kernel take longer."""
    return "llvmlite.binding" if whereabouts("llvmlite") is not None else "alight"


class _Background:
    """One thread that does jobs in turn; it starts with the first and ends with the process."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[str, Callable[[], None], float]] = deque()
        self._keys: set[str] = set()
        self._lock = threading.RLock()
        # A queue: the notify of a condition drops RuntimeErrors, also those of signals' handlers.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._settling: list[SimpleQueue[None]] = []
        self.thread: threading.Thread | None = None
        self._stopping = False

    def add(self, key: str, job: Callable[[], None], seconds: float = math.inf) -> None:
        """Have a job done, unless one of this key waits or runs. It pays even where the program is
        over before its turn, if so many ``seconds``, which it is predicted to take, are left."""
        with self._lock:
            if not self._stopping and key not in self._keys:
                self._keys.add(key)
                self._jobs.append((key, job, seconds))
                if self.thread is None:
                    self.thread = threading.Thread(
                        target=self._run, name="alight-make", daemon=True
                    )
                    self.thread.start()
                self._wake.put(None)
        if self._stopping and key.endswith(_KEEP):
            job()

    def has(self, key: str) -> bool:
        """Tell whether a job of this key waits or runs."""
        return key in self._keys

    def settle(self) -> None:
        """Wait until every job is done."""
        with self._lock:
            if not self._keys:
                return
            over: SimpleQueue[None] = SimpleQueue()
            self._settling.append(over)
        over.get()

    def stop(self) -> None:
        """Let the job that runs end, for nothing can stop it, and start none but those that pay and
        are predicted to end in time: the process is about to go."""
        ends = perf_counter() + _WAIT_SECONDS
        with self._lock:
            self._stopping = True
            waiting = [*self._jobs]
            self._jobs.clear()
            self._drop(*[key for key, _, _ in waiting])
            self._wake.put(None)
            thread = self.thread
        if thread is not None:
            thread.join(_WAIT_SECONDS)
        alone = thread is None or not thread.is_alive()
        for key, job, seconds in waiting:
            # What was made already is written in any case: the next process starts with it.
            in_time = alone and perf_counter() + seconds <= ends
            if key.endswith(_KEEP) or (in_time and not interrupted()):
                job()
        if thread is not None:
            thread.join()  # LLVM's own variables must not go while its code runs

    def _drop(self, *keys: str) -> None:
        self._keys.difference_update(keys)
        while self._settling and not self._keys:
            self._settling.pop().put(None)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.get()
            while self._jobs:
                with self._lock:
                    # What waits when the program is over is left to who ends it.
                    if not self._jobs or _is_over():
                        break
                    key, job, _ = self._jobs.popleft()
                try:
                    job()
                except failures() as error:  # the jobs behind it must not wait for ever
                    LOG.fallback(f"kernel {key}", error)
                finally:
                    del job  # with what it holds: the next may be long in coming
                    with self._lock:
                        self._drop(key)


_made: set[str] = set()
_used: set[str] = set()
_failed: dict[str, str] = {}
# Held while a kernel is made.
_making = threading.RLock()
_background = _Background()
# Has anything in it where LLVM cannot be used any more.
_lost: list[None] = []
when_over(tier_up.keep)  # later than what follows: the last is done first
atexit.register(lambda: _background.stop())


# Whether the fork that goes on waited until no kernel was being made.
_waited: list[bool] = []


def _before_fork() -> None:
    hold()  # hooks before a fork are run in reverse, locks taken in one order
    ends = perf_counter() + _WAIT_SECONDS
    # No child is born with anything half done of Python's; what LLVM does longer than a fork may
    # wait it does in a context that the child never asks for.
    while not (held := _making.acquire(timeout=max(0.001, ends - perf_counter()))):
        if at_work and perf_counter() >= ends:
            break
    _waited.append(held)


def _after_fork_in_parent() -> None:
    if _waited.pop():
        _making.release()
    let_go()


def _after_fork_in_child() -> None:
    global _making, _background
    if not _waited.pop() and not give_up_work():
        _lost.append(None)
    _making = threading.RLock()
    _background = _Background()  # its thread does not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
