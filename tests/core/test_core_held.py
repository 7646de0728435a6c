"""What the native core has in its hands stays what it is while code of others runs in between."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import POLICY, exported, floor, items_count, items_of
from alight._src.run import evaluate

pytestmark = pytest.mark.usefixtures("small_is_small")

COUNT = 4000
NO_FLOOR = 1 << 40


def counted() -> Any:
    return alight.asarray(np.arange(float(COUNT)))


def made() -> Any:
    """Return an array that NumPy made, of which nobody has asked the storage yet."""
    before, floor.record_floor = floor.record_floor, NO_FLOOR
    try:
        return counted() + 1
    finally:
        floor.record_floor = before


@pytest.fixture
def collecting() -> Iterator[Callable[[Callable[[], None], int], None]]:
    """Call something once, in the collection that comes after so many new objects."""
    before = gc.get_threshold()
    called: list[Callable[[], None]] = []

    def meanwhile(phase: str, _: object) -> None:
        if phase == "start" and called:
            called.pop()()

    def begin(call: Callable[[], None], objects: int) -> None:
        gc.collect()
        called[:] = [call]
        gc.set_threshold(objects)

    gc.collect()
    gc.freeze()  # what other tests left is not looked through before each turn
    gc.callbacks.append(meanwhile)
    yield begin
    gc.set_threshold(*before)
    gc.callbacks.remove(meanwhile)


WORK: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "x @ y": lambda x, y: x @ y,
    "-x": lambda x, y: -x,
    "x * 2": lambda x, y: x * 2,
    "x += y": lambda x, y: x.__iadd__(y),
    "x[1] = y.sum()": lambda x, y: x.__setitem__(1, y.sum()),
    "np.asarray(x)": lambda x, y: np.asarray(x),
}


@pytest.mark.parametrize("text", WORK)
def test_operands_live_while_the_collector_runs_code(text: str, collecting: Any) -> None:
    results = {}
    for before in (np.arange(float(COUNT)) + 1, np.arange(float(COUNT)) * 3):
        here = before.copy()
        found = WORK[text](here, np.arange(float(COUNT)) + 1)
        results[np.asarray(here if found is None else found).tobytes()] = True
    for objects in range(1, 40):
        x, y = made(), made()
        x.storage  # noqa: B018
        other = counted() * 3

        def rebind(x: Any = x, other: Any = other) -> None:
            fresh: Any = alight.asarray(np.asarray(other).copy())
            x.storage.rebind(fresh.storage.value)

        collecting(rebind, objects)
        found = WORK[text](x, y)
        gc.set_threshold(1 << 20)
        last = np.asarray(x if found is None else found)
        assert last.tobytes() in results, objects


class Interrupted:
    """A policy in whose floor a signal's handler raises."""

    @property
    def record_floor(self) -> int:
        raise RuntimeError("from a handler")


def test_what_a_handler_raises_in_a_floor_is_raised() -> None:
    x = made()
    floor.traced += 1
    token = POLICY.set(Interrupted())
    try:
        with pytest.raises(RuntimeError, match="from a handler"):
            items_of(x)
        with pytest.raises(RuntimeError, match="from a handler"):
            x[1:]
        with pytest.raises(RuntimeError, match="from a handler"):
            x[1:] = 3
    finally:
        POLICY.reset(token)
        floor.traced -= 1


@pytest.mark.parametrize("value", [None, object(), "gone"])
def test_views_of_a_storage_without_a_version_are_refused(value: Any) -> None:
    view = made()[2:5]
    if value == "gone":
        del view.storage.value
    else:
        view.storage.value = value
    assert exported(view) is NotImplemented
    with pytest.raises(AttributeError):
        np.asarray(view)
    with pytest.raises(AttributeError):
        view.to_numpy()
    assert items_count(view) == 3


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of programs are POSIX's")
@pytest.mark.parametrize("ask", [memoryview, bytes, np.frombuffer, np.asarray])
def test_what_a_handler_raises_is_raised_once(
    ask: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupt(Exception):
        pass

    def handle(number: int, frame: object) -> None:
        raise Interrupt

    x = counted()
    with alight.policy(floor=0):
        x = x + 1
    before = signal.signal(signal.SIGUSR1, handle)
    times = 0
    try:
        with monkeypatch.context() as patch:
            patch.setattr(evaluate, "evaluate", lambda _: signal.raise_signal(signal.SIGUSR1))
            try:
                ask(x)
                for _ in range(3):
                    pass
            except Interrupt:
                times += 1
        for _ in range(3):  # where what is owed is raised
            try:
                len("")
            except Interrupt:
                times += 1
    except Interrupt:
        times += 1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert times == 1
