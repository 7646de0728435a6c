"""Values, which are immutable, and storages, which name the current one."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from alight._src.base.at_fork import renewed
from alight._src.base.originals import np

from .asked import numpy_errstate, recording_errstate
from .data import Data, references
from .layout import Layout, make_layout


class Value:
    """One immutable result. Pending: ``op`` and ``operands`` say how to compute it. Concrete:
    ``op`` is None and ``data``/``offset`` say where its bytes are; a constant has neither and
    keeps a 0-d array in ``attrs``. ``error``: what it failed with, or the type of that once it was
    raised. What failed is tried again only where it is asked for, or something made of it.
    """

    __slots__ = (
        "__weakref__",
        "attrs",
        "data",
        "error",
        "errstate",
        "layout",
        "offset",
        "op",
        "operands",
        "seq",
        "site",
    )
    op: Any
    operands: tuple[Value, ...]
    attrs: Any
    layout: Layout
    data: Data | None
    offset: int
    seq: int
    site: Any
    errstate: Any
    error: BaseException | type[BaseException] | None

    def __init__(
        self, op: Any, operands: tuple[Value, ...], attrs: Any, layout: Layout, site: Any = None
    ) -> None:
        self.op = op
        self.operands = operands
        self.attrs = attrs
        self.layout = layout
        self.site = site
        self.data = None
        self.offset = 0
        self.error = None
        self.seq = next_number()
        self.errstate = recording_errstate() or numpy_errstate()

    def bind(self, data: Data, offset: int) -> None:
        """Make the value concrete: these bytes, from this offset on."""
        self.data = data
        self.offset = offset
        self.op = None  # from here on others read where the bytes are
        self.operands = ()
        self.attrs = ()
        self.error = None  # of a time before: it holds all that its traceback leads to

    def bind_written(
        self, data: Data, offset: int, write: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function that writes into these bytes, and bind the value to them if it returns:
        in the native core nothing can interrupt between its end and the binding, so that what has
        been written in place is not written twice."""
        made = write(*args, **kwargs)
        self.bind(data, offset)
        return made

    def __repr__(self) -> str:
        name = (
            self.op.name if self.op is not None else "data" if self.data is not None else "constant"
        )
        return f"<Value {self.seq} {name} {self.layout!r}>"


next_number = itertools.count().__next__


class Storage:
    """The current version of some memory. ``lease`` is what is known of it while ``jit`` has it
    from its caller."""

    __slots__ = ("__weakref__", "lease", "value")
    value: Value
    lease: Any

    def __init__(self, value: Value) -> None:
        self.value = value
        self.lease = None
        if value.op is not None:
            pending.append(weakref.ref(self))

    def rebind(self, value: Value) -> None:
        """Make ``value`` the current version, whatever that is now."""
        with _turns:
            _wait_for_turn(self)
            self.value = value
            if value.op is not None:
                pending.append(weakref.ref(self))
            _let_go(self)

    def replace(self, old: Value, value: Value) -> bool:
        """Make a value that was made of ``old`` the current version, and return True; False, with
        nothing done, where another thread has written since, or others were given its memory."""
        with _turns:
            _wait_for_turn(self)
            data = old.data
            current = self.value is old
            if current and old.op is None and data is not None and data.exported:
                current = False
            if current:
                self.value = value
                if value.op is not None:
                    pending.append(weakref.ref(self))
            _let_go(self)
            return current

    def open(self) -> None:
        """Note, in one's turn, that the current bytes are written from now on."""
        with _turns:
            turn = _writers.get(id(self))
            data = self.value.data
            if turn is None or turn.thread != threading.get_ident() or data is None:
                raise RuntimeError("bytes are opened in one's turn to write them")
            data.writing += 1
            if turn.open is not None:
                turn.open.writing -= 1
            turn.open = data


class _Writer:
    """Whose turn it is to write into a storage, how often it took it, and what it writes into."""

    __slots__ = ("depth", "open", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.depth = 0
        self.open: Data | None = None

    def close(self) -> None:
        if self.open is not None:
            self.open.writing -= 1


class _Waiter:
    """Who waits for the turn of a storage."""

    __slots__ = ("number", "thread")

    def __init__(self, number: int) -> None:
        self.number = number
        self.thread = threading.get_ident()


# By the ids of storages, which those that have the turn, or wait for it, hold.
_writers: dict[int, _Writer] = {}
_waiting: list[_Waiter] = []  # who came first is first
_turns = renewed(globals(), "_turns", threading.Condition)


def _forget_writers() -> threading.Condition:
    """Forget turns: a forked child has none of its parent's other threads."""
    own = threading.get_ident()
    for number in [n for n, writer in _writers.items() if writer.thread != own]:
        _writers.pop(number).close()
    _waiting.clear()
    return _turns


renewed({}, "", _forget_writers)


def _wait_for_turn(storage: Storage) -> None:
    """Return when no other thread has the turn, which this one was given, if there was one: it
    takes it, or lets it go (`_let_go`)."""
    own = threading.get_ident()
    try:
        while (writer := _writers.get(id(storage))) and writer.thread != own:
            waiter = _Waiter(id(storage))
            _waiting.append(waiter)
            try:
                while waiter in _waiting:
                    _turns.wait()
            finally:
                if waiter in _waiting:
                    _waiting.remove(waiter)
    except BaseException:
        _let_go(storage)
        raise


def _let_go(storage: Storage) -> None:
    """Let a turn go that was waited for and is not taken."""
    writer = _writers.get(id(storage))
    if writer is not None and writer.thread == threading.get_ident() and not writer.depth:
        _hand_over(id(storage))


def _hand_over(number: int) -> None:
    """Give a turn that nobody has any more to the thread that has waited longest: who has just had
    it may want it again and again. All that the thread has waiting go on: a signal's handler may
    wait above what it interrupted."""
    _writers.pop(number).close()
    waiting = [waiter for waiter in _waiting if waiter.number == number]
    if waiting:
        thread = waiting[0].thread
        _writers[number] = _Writer(thread)
        for waiter in waiting:
            if waiter.thread == thread:
                _waiting.remove(waiter)
    _turns.notify_all()


class Turn:
    """The turn to write at once into storages: until it ends no other thread does, or makes
    another version of one of them current."""

    __slots__ = ("_had", "_storages")

    def __init__(self, *storages: Storage) -> None:
        # In one order: so that two threads never wait for each other.
        self._storages = sorted(storages, key=id)
        self._had: list[Storage] = []

    def __enter__(self) -> None:
        """Wait until no other thread has it."""
        with _turns:
            try:
                for storage in self._storages:
                    _wait_for_turn(storage)
                    writer = _writers.setdefault(id(storage), _Writer(threading.get_ident()))
                    writer.depth += 1
                    self._had.append(storage)
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        """End it."""
        with _turns:
            while self._had:
                storage = self._had.pop()
                writer = _writers[id(storage)]
                writer.depth -= 1
                if not writer.depth:
                    _hand_over(id(storage))


pending: list[weakref.ref[Storage]] = []
_pending_lock = renewed(globals(), "_pending_lock", threading.RLock)


def pending_storages() -> list[Storage]:
    """Return the live storages whose version is pending, oldest first."""
    seen: dict[int, Storage] = {}
    with _pending_lock:
        # Other threads may append meanwhile, never remove: what they add stays behind what was
        # counted.
        count = len(pending)
        for reference in pending[:count]:
            storage = reference()
            if storage is not None and storage.value.op is not None:
                seen[id(storage)] = storage
        pending[:count] = [weakref.ref(s) for s in seen.values()]
    return list(seen.values())


def sole(value: Value, held: int, data_held: int = 0) -> bool:
    """Tell whether nobody else needs a concrete value's bytes: ``value`` has only ``held``
    references besides one (the caller's name for it, or the storage it was just read from), and
    its data only ``data_held`` besides the value's own."""
    return references(value) <= _SOLE + held and references(value.data) <= _SOLE_DATA + data_held


def _sole_baseline() -> tuple[int, int]:
    def counts(value: Value) -> tuple[int, int]:
        return references(value), references(value.data)

    layout = make_layout(np.dtype(np.int8), ())
    value = Value(None, (), (), layout)
    value.data = Data(layout)
    return counts(value)


_SOLE, _SOLE_DATA = _sole_baseline()
