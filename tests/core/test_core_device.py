"""Device memory in the core: shelves keep what buffers leave, within a limit; the same for C and
for Python. What launches natively is tested in ``jit/test_array_program``."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from typing import Any

import pytest


class Memory:
    """Memory with an address, as a pool gives it."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


def test_a_buffer_that_is_dropped_leaves_its_memory_on_the_shelf(core: Any) -> None:
    stock = core.Stock(1 << 20)
    shelf = core.Shelf(stock, 512, "far")
    assert shelf.take(100) is None
    memory = Memory(4096)
    buffer = core.DeviceBuffer(memory, 400, "far", shelf)
    assert (buffer.address, buffer.nbytes, buffer.device) == (4096, 400, "far")
    assert buffer.memory is memory
    gone = weakref.ref(buffer)
    del buffer
    assert gone() is None and (shelf.count, stock.held) == (1, 512)
    again = shelf.take(100)
    assert again.memory is memory and (again.address, again.nbytes) == (4096, 100)
    assert (shelf.count, stock.held) == (0, 0)
    again.free()
    assert again.address == 0 and again.memory is None
    del again
    assert shelf.count == 0
    with pytest.raises(ValueError, match="513 bytes of a shelf with pieces of 512"):
        shelf.take(513)


def test_what_came_last_is_given_first(core: Any) -> None:
    shelf = core.Shelf(core.Stock(1 << 20), 512, "far")
    for address in (1, 2, 3):
        core.DeviceBuffer(Memory(address), 512, "far", shelf)
    assert [shelf.take(512).address] * 2 == [3, 3]  # dropped at once, and given again
    held = [shelf.take(512) for _ in range(3)]
    assert [buffer.address for buffer in held] == [3, 2, 1]


def test_shelves_keep_no_more_than_they_may(core: Any) -> None:
    stock = core.Stock(3 * 512)
    one, two = core.Shelf(stock, 512, "far"), core.Shelf(stock, 1024, "far")
    memories = [Memory(i + 1) for i in range(6)]
    alive = [weakref.ref(memory) for memory in memories]
    core.DeviceBuffer(memories[0], 1024, "far", two)
    held = [core.DeviceBuffer(memory, 512, "far", one) for memory in memories[1:]]
    del memories
    held.clear()
    assert (one.count, two.count, stock.held) == (1, 1, 3 * 512)
    assert sum(ref() is not None for ref in alive) == 2
    one.clear()
    assert (one.count, stock.held) == (0, 1024)
    del two
    gc.collect()
    stock.most = 1 << 20
    held = [core.DeviceBuffer(Memory(i + 1), 512, "far", one) for i in range(2 * core.PIECES)]
    held.clear()
    assert one.count == core.PIECES
    stock.open = False
    assert one.take(512) is None
    one.clear()
    core.DeviceBuffer(Memory(1), 512, "far", one)
    assert one.count == 0


def test_without_a_shelf_memory_goes_back(core: Any) -> None:
    memory = Memory(8)
    gone = weakref.ref(memory)
    buffer = core.DeviceBuffer(memory, 8, "far")
    del memory
    assert gone() is not None
    del buffer
    assert gone() is None


@pytest.mark.parametrize("memory", [None, object(), Memory("far"), Memory(-1)])  # type: ignore[arg-type]
def test_memory_without_an_address_makes_no_buffer_and_no_noise(
    core: Any, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    stock = core.Stock(1 << 20)
    shelf = core.Shelf(stock, 512, "far")
    with pytest.raises((AttributeError, TypeError, OverflowError, ValueError)):
        core.DeviceBuffer(memory, 400, "far", shelf)
    with pytest.raises(TypeError):
        core.DeviceBuffer(Memory(1))
    gc.collect()
    assert not ignored and (shelf.count, stock.held) == (0, 0)


def test_memory_is_given_back_once(core: Any) -> None:
    stock = core.Stock(1 << 20)
    shelf = core.Shelf(stock, 512, "far")
    buffer = core.DeviceBuffer(Memory(1), 512, "far", shelf)
    for again in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle"):
            again(buffer)
    if hasattr(buffer, "__del__"):
        buffer.__del__()
    del buffer
    gc.collect()
    assert (shelf.count, stock.held) == (1, 512)


ENDING = """
import sys
from alight._core import {core} as core
class Memory:
    ptr = 8
class Late:  # is dropped when modules have lost their globals
    def __init__(self): self.buffer = core.DeviceBuffer(Memory(), 8, "far", shelf)
shelf = core.Shelf(core.Stock(1 << 20), 512, "far")
core.late = shelf, core.DeviceBuffer(Memory(), 8, "far", shelf), Late()
sys.late = core.DeviceBuffer(Memory(), 8, "far", shelf)
import builtins
builtins.late = Late()
"""


def test_what_a_process_holds_at_its_end_goes_quietly(core: Any) -> None:
    program = ENDING.format(core=core.__name__.rpartition(".")[2])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
