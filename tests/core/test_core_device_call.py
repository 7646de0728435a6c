"""Calls on arrays of a device as the native core answers them: every way out of one gives back
what it took."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

from alight._core import (
    Data,
    DeviceBuffer,
    DeviceCall,
    Storage,
    Value,
    make_layout,
    recording_errstate,
)
from alight._src.record.array import Array
from alight._src.run.pending_outcomes import Started

SPACE = "far"
TIMES = 1000
LAYOUT = make_layout(np.dtype(np.float64), (3,))
_addresses = count(4096, 512)


class Memory:
    """Memory with an address, as a pool gives it."""

    def __init__(self) -> None:
        self.ptr = next(_addresses)


class RefusedError(Exception):
    """An error that leaves the call to others."""


def there() -> Array:
    """Return an array that lies on the device alone."""
    data = Data(LAYOUT)
    data.remote = {SPACE: DeviceBuffer(Memory(), LAYOUT.nbytes, SPACE)}
    value = Value(None, (), (), LAYOUT)
    value.data = data
    array: Array = Array.__new__(Array)
    array.storage, array.window = Storage(value), None
    return array


class Rig:
    """A call of two arrays and a scalar that makes two results, all its parts to be replaced."""

    def __init__(self, **parts: Any) -> None:
        self.fresh: list[Any] = []
        self.running: list[Any] = []
        self.lock = threading.RLock()
        self.constant = Data(LAYOUT), DeviceBuffer(Memory(), LAYOUT.nbytes, SPACE)
        self.left = 0

        def run(buffers: list[Any]) -> list[Any]:
            assert len(buffers) == 3
            return [DeviceBuffer(Memory(), LAYOUT.nbytes, SPACE) for _ in range(2)]

        def otherwise(*args: Any) -> str:
            self.left += 1
            return "left"

        given: dict[str, Any] = {
            "launches": run,
            "pattern": (LAYOUT, LAYOUT, (2.5,)),
            "space": SPACE,
            "constants": (self.constant,),
            "order": (1, 0, 3),
            "results": ((LAYOUT, 0.5), (LAYOUT, 0.25)),
            "form": (tuple, (1, 0, 1)),
            "lock": (self.lock.acquire, self.lock.release),
            "running": self.running.append,
            "fresh": self.fresh,
            "most": 1 << 30,
            "failing": (RefusedError,),
            "array": Array,
            "started": Started,
            "row": ("graph", "told", "reads", recording_errstate()),
            "build": lambda args, values: (len(args), len(values)),
            "otherwise": otherwise,
        }
        given |= parts
        self.call = DeviceCall(**given)
        self.call.next = 1 << 62
        # what everybody refers to would be counted with others
        self.held = [v for v in given.values() if type(v) not in (int, type, type(None), type(...))]

    def counts(self, *more: Any) -> list[int]:
        """Return how often each part is referred to."""
        return [sys.getrefcount(item) for item in (*self.held, *self.constant, *more)]


def raising(error: BaseException) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        # Made anew: an error that is raised again keeps its tracebacks, and what ran there.
        raise type(error)(*error.args)

    return refuse


WAYS: dict[str, tuple[dict[str, Any], Any]] = {
    "a tuple": ({}, tuple),
    "a list": ({"form": (list, (0, 1))}, list),
    "the first": ({"form": None}, Array),
    "built": ({"form": ...}, tuple),
    "refused": ({"launches": raising(RefusedError("no"))}, str),
    "failed": ({"launches": raising(ValueError("no"))}, ValueError),
    "no list": ({"launches": lambda buffers: None}, TypeError),
    "too few": ({"launches": lambda buffers: buffers[:1]}, TypeError),
    "no buffers": ({"launches": lambda buffers: [None, None]}, TypeError),
    "not kept": ({"running": raising(ValueError("no"))}, ValueError),
    "not built": ({"form": ..., "build": raising(ValueError("no"))}, ValueError),
    "not acquired": ({"lock": (raising(ValueError("no")), bool)}, ValueError),
    "busy": ({"lock": (lambda blocking: False, bool)}, str),
    "not released": ({"lock": (lambda blocking: True, raising(ValueError("no")))}, ValueError),
    "refused and not released": (
        {
            "launches": raising(RefusedError("no")),
            "lock": (lambda blocking: True, raising(ValueError("no"))),
        },
        ValueError,
    ),
    "failed and not released": (
        {
            "launches": raising(TypeError("first")),
            "lock": (lambda blocking: True, raising(ValueError("no"))),
        },
        TypeError,
    ),
}


def ended(rig: Rig, *args: Any) -> type:
    """Return the type of what a call gives or raises."""
    try:
        return type(rig.call(*args))
    except Exception as error:
        error.__traceback__ = None
        return type(error)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_back_what_it_took(way: str) -> None:
    parts, expected = WAYS[way]
    rig, a, b = Rig(**parts), there(), there()
    datas = [array.storage.value.data for array in (a, b)]
    buffers = [data.remote[SPACE] for data in datas]
    made: list[Any] = []

    def once(scalar: float) -> None:
        assert ended(rig, a, b, scalar) is (expected if scalar == 2.5 else str)
        made.extend(reference() for reference in rig.fresh[::2])
        assert len(rig.fresh) % 2 == 0
        assert all(type(seconds) is float for seconds in rig.fresh[1::2])
        rig.fresh.clear()
        rig.running.clear()

    once(2.5)
    once(-2.5)
    assert all(reference is None for reference in made), made  # results live as long as they do
    made.clear()
    gc.collect()
    before = rig.counts(a, b, *datas, *buffers)
    for turn in range(TIMES):
        once(2.5 if turn % 8 else 1.0)
        made.clear()
    gc.collect()
    assert rig.counts(a, b, *datas, *buffers) == before


def test_results_are_those_of_the_run() -> None:
    rig, a, b = Rig(), there(), there()
    second, first, again = rig.call(a, b, 2.5)
    assert type(first) is type(second) is Array and rig.left == 0
    assert second.storage.value is again.storage.value is not first.storage.value
    (row,) = rig.running
    assert type(row) is Started and [ref() for ref in row.outputs] == [
        array.storage.value.data for array in (first, second)
    ]
    sources = [b.storage.value.data, a.storage.value.data, rig.constant[0]]
    assert [ref() for ref in row.sources] == sources
    for args in ((a, b), (a, b, 2.0), (a, None, 2.5), (a, np.ones(3), 2.5)):
        assert rig.call(*args) == "left"


@pytest.mark.parametrize(
    "parts, expected",
    [
        ({"results": (), "form": None}, ValueError),
        ({"results": ()}, ValueError),
        ({"pattern": ()}, ValueError),
        ({"pattern": ((), LAYOUT, (2.5,))}, TypeError),
        ({"pattern": (LAYOUT, (LAYOUT, 1), (2.5,))}, ValueError),
        ({"pattern": (LAYOUT, (LAYOUT, -1), (2.5,))}, ValueError),
        ({"order": (2,)}, ValueError),
        ({"order": (4,)}, ValueError),
        ({"order": (-1,)}, ValueError),
        ({"order": ("a",)}, TypeError),
        ({"form": ()}, TypeError),
        ({"form": (tuple, (2,))}, ValueError),
        ({"form": (tuple, (-1,))}, ValueError),
        ({"results": ((LAYOUT,),)}, TypeError),
        ({"results": ((LAYOUT, 1),)}, TypeError),
        ({"constants": ((None, None),)}, TypeError),
        ({"results": ((LAYOUT, 0.5),) * 1000}, ValueError),
        ({"array": int}, TypeError),
        ({"started": int}, TypeError),
        ({"space": b"far"}, TypeError),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    parts: dict[str, Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        Rig(**parts)


def test_without_operands_a_call_is_launched_as_well() -> None:
    def run(buffers: list[Any]) -> list[Any]:
        assert buffers == []
        return [DeviceBuffer(Memory(), LAYOUT.nbytes, SPACE)]

    rig = Rig(launches=run, pattern=(), order=(), results=((LAYOUT, 0.5),), form=None)
    assert type(rig.call()) is Array and rig.left == 0


def test_a_call_that_is_in_a_cycle_goes_with_it() -> None:
    rig = Rig(otherwise=[].append)
    gone, constant = weakref.ref(rig.call), weakref.ref(rig.constant[0])
    rig.fresh.append(rig.call)
    rig.fresh.append(0.0)
    del rig
    gc.collect()
    assert gone() is None and constant() is None


@pytest.fixture
def uncollected() -> Any:
    """Have no garbage collected meanwhile, which refers to what is counted."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_without_memory_nothing_is_lost() -> None:
    memory = pytest.importorskip("_testcapi", reason="this Python came without its tests")
    made = [DeviceBuffer(Memory(), LAYOUT.nbytes, SPACE) for _ in range(2)]
    for form in (None, (list, (0, 1))):
        for place in range(40):
            fresh: list[Any] = [0.0] * 5
            fresh.pop()  # there is room for one of the two things that are kept of a result
            rig = Rig(launches=lambda buffers: [*made], form=form, fresh=fresh)
            a, b = there(), there()
            before, buffers = rig.counts(a, b), [sys.getrefcount(one) for one in made]
            failed = False
            memory.set_nomemory(place, place + 1)
            try:
                result = rig.call(a, b, 2.5)
            except MemoryError:
                failed = True
            finally:
                memory.remove_mem_hooks()
            result = None
            assert len(fresh) % 2 == 0, (form, place)
            fresh.clear()
            rig.running.clear()
            assert rig.lock.acquire(blocking=False)
            rig.lock.release()
            assert rig.counts(a, b) == before, (form, place, failed, result)
            assert [sys.getrefcount(one) for one in made] == buffers, (form, place, failed)
