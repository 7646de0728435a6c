"""Copies of the CUDA backend between a device and the host's memory, and the blocks that results
land in: with CuPy's calls on the CPU, on streams that do nothing before they must."""

from __future__ import annotations

import pytest

from without_card import elsewhere, needs_compiler, with_entry_point

SETTING = """
import ctypes, gc, os, weakref
from time import sleep
import numpy as np
import alight
from alight._core import Data, layout_of
from alight.backends.base import Copy, Fill
from alight.backends.host import memory_at
from alight.errors import KernelError
from alight._src.log.decisions import LOG
from cuda_streams import postpone
device = registry.device("cuda:0")
backend.open(device)
session = backend._sessions["cuda:0"]
runtime, pinned = session.runtime, session.pinned
postpone(runtime, session.driver)
size = (41 << 20) + 3
generator = np.random.default_rng(0)
def drawn(): return np.frombuffer(generator.bytes(size), np.uint8).copy()
def host(array): return Data(layout_of(array), array)
def up(array, near, queue=1, wait=()):
    return backend.submit(device, queue, [Copy(host(array), near, size, "host", "cuda:0")], wait)
def down(near, array, queue=2, wait=()):
    return backend.submit(device, queue, [Copy(near, host(array), size, "cuda:0", "host")], wait)
def zero(near, queue, wait=()):
    return backend.submit(device, queue, [Fill(near, size, 0)], wait)
near, far = (backend.allocate(device, size) for _ in range(2))
"""

COPIES = """
a, b, back = drawn(), drawn(), np.empty(size, np.uint8)
event = up(a, near)
kept, a[:] = a.copy(), 0  # pageable memory has been read when an upload was submitted
event = down(near, back, 2, [event])
backend.wait(event)
assert np.array_equal(back, kept)

# Uploads of one submission keep their order, though pieces of all pass the same memory.
both = [Copy(host(x), target, size, "host", "cuda:0")
        for x, target in ((a, near), (b, near), (kept, far))]
backend.wait(backend.submit(device, 1, both))
backend.wait(down(near, back))
assert np.array_equal(back, b)
backend.wait(down(far, back))
assert np.array_equal(back, kept)

# What comes behind a download that threads are at does so on its queue and on others.
back[:] = 1
event = down(near, back, 2)
last = zero(near, 2)
backend.wait(event)
assert np.array_equal(back, b)
backend.wait(last)
backend.wait(up(b, near))
back[:] = 1
event = down(near, back, 2)
last = zero(near, 1, [event])
backend.wait(event)
assert np.array_equal(back, b)
backend.wait(last)
backend.wait(down(near, back))
assert not back.any()

# Several commands of one submission keep their order.
backend.wait(up(a, near))
commands = [Copy(host(b), near, size, "host", "cuda:0"),
            Copy(near, host(back), size, "cuda:0", "host"), Fill(near, size, 0)]
backend.wait(backend.submit(device, 0, commands))
assert np.array_equal(back, b)

# What goes wrong in a thread is told by who waits, and the next copy is whole again.
whole = runtime.memcpyAsync
def failing(target, source, nbytes, kind, stream):
    if kind == 2 and source != near.address:
        raise runtime.CUDARuntimeError("of a piece")
    whole(target, source, nbytes, kind, stream)
runtime.memcpyAsync = failing
backend.wait(up(b, near))
event = down(near, back)
try:
    backend.wait(event)
except KernelError as error:
    assert "of a piece" in str(error), error
else:
    raise AssertionError("nothing was told")
runtime.memcpyAsync = whole
back[:] = 1
backend.wait(down(near, back))
assert np.array_equal(back, b)
def failing(target, source, nbytes, kind, stream):
    if kind == 1 and target != near.address:
        raise runtime.CUDARuntimeError("of a piece")
    whole(target, source, nbytes, kind, stream)
runtime.memcpyAsync = failing
try:
    up(a, near)
except KernelError as error:
    assert "of a piece" in str(error), error
else:
    raise AssertionError("nothing was told")
runtime.memcpyAsync = whole
backend.wait(up(a, near))
backend.wait(down(near, back))
assert np.array_equal(back, a)
print("done")
"""

BLOCKS = """
def settled():
    for block in tuple(pinned._begun.values()):
        block.ready.wait()
x = np.random.default_rng(1).random(1 << 20)
made = alight.jit(lambda a: np.sqrt(a) + a)
def result():
    with alight.policy(force="cuda:0", floor=0):
        return np.asarray(made(x))
def owner(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
expected = np.sqrt(x) + x
first = result()
assert np.array_equal(first, expected) and pinned.held == x.nbytes
settled()
assert session.locked(first.ctypes.data, x.nbytes)
second = result()  # the first one is held
assert second.ctypes.data != first.ctypes.data and pinned.held == 2 * x.nbytes
settled()
place, gone = first.ctypes.data, weakref.ref(owner(first))
del first
assert gone() is None
third = result()
assert third.ctypes.data == place and np.array_equal(third, expected)
assert np.array_equal(second, expected) and pinned.held == 2 * x.nbytes

# No more than the limit, of which kept blocks give what others need.
pinned.most = 3 * x.nbytes
assert pinned.take(2 * x.nbytes, True) is None
fourth = result()
fifth = result()
assert np.array_equal(fifth, expected) and pinned.held == 3 * x.nbytes
settled()
assert not session.locked(fifth.ctypes.data, x.nbytes)
place = third.ctypes.data
del second, third, fourth, fifth
wide = pinned.take(2 * x.nbytes, True)
assert pinned.held == 3 * x.nbytes and session.locked(wide.ctypes.data, 2 * x.nbytes)
assert not session.locked(place, 1) or place == wide.ctypes.data
del wide

# A device whose pool is full streams, and a result that was dropped is given back at once.
gc.disable()
pinned.most = 8 * x.nbytes
session.pool.set_limit(size=6 << 20)
for _ in range(3):
    with alight.policy(force="cuda:0", floor=0):
        first = np.asarray(alight.jit(lambda a: np.sqrt(a) + a)(x))
    assert np.array_equal(first, expected)
    gone = weakref.ref(owner(first))
    del first
    assert gone() is None
assert any("no memory left" in f.reason for f in LOG.snapshot().fallbacks)
session.pool.set_limit(size=0)
gc.enable()

# Nothing of a result is locked while the process forks, and all is as it was afterwards.
first = result()
settled()
assert session.locked(first.ctypes.data, x.nbytes)
child = os.fork()
if not child:
    os._exit(int(pinned.any_locked or first[-1] != expected[-1]))
assert os.waitpid(child, 0)[1] == 0
assert not session.locked(first.ctypes.data, x.nbytes)
place = first.ctypes.data
del first
first = result()
settled()
assert first.ctypes.data == place and session.locked(place, x.nbytes)
assert np.array_equal(first, expected)
del first

# Where nothing may be locked, results come all the same, and pinned memory is refused.
def refused(address, nbytes, flags):
    raise runtime.CUDARuntimeError("may not")
runtime.hostRegister = refused
session.unlock()
assert np.array_equal(result(), expected)
try:
    backend.allocate(device, 1 << 20, "pinned")
except KernelError as error:
    assert "may not" in str(error), error
else:
    raise AssertionError("nothing was told")
assert np.array_equal(result(), expected)
assert not [f for f in LOG.snapshot().fallbacks if "no memory left" not in f.reason]
backend.close(device)
print("done")
"""


PASSING = """
from alight._src.run import streaming
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan.block import split
a, back = drawn(), np.empty(size, np.uint8)
backend.wait(up(a, near))
x = np.random.default_rng(1).random((1000, 100))
layout = layout_of(x)
node = Node(OPS["negative"], (0,), (), layout)
group = Group(GroupKind.LOOP, Graph((layout,), (node,), (1,)), x.shape)
chunks = streaming.Chunks(device, split(group))
chunks.of(300), chunks.of(100)
# What is dropped while queue 0 has yet to read it is the first memory that chunks get.
backend.submit(device, 0, [Copy(near, far, size, "cuda:0", "cuda:0")])
dropped, usual = [near.memory], session.pool.malloc
del near
session.pool.malloc = lambda nbytes: dropped.pop() if dropped else usual(nbytes)
(made,) = streaming._Stream(device, backend, chunks, 300, [(host(x), 0, layout)]).run()
assert not dropped and np.array_equal(made.array, -x)
backend.wait(down(far, back))
assert np.array_equal(back, a)
print("done")
"""


@needs_compiler
@pytest.mark.parametrize("program", [COPIES, BLOCKS, PASSING], ids=["copies", "blocks", "passing"])
def test_what_a_device_sends_and_gets(program: str) -> None:
    done = elsewhere("-c", with_entry_point(SETTING + program))
    assert done.stdout.endswith("done\n"), done.stderr
