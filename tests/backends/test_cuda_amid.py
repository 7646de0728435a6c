"""What happens in the midst of something else on a CUDA device: finalizers and signal handlers,
other threads while a graph is captured, and a thread's own CuPy code around ours."""

from __future__ import annotations

import pytest

from without_card import needs_compiler, passes

# Work that begins in the midst of a launch: the arguments are in place, the driver has not read
# them yet.
BEGIN = """
import threading
import jitted_bodies as t
import numpy as np, alight
from alight.backends import registry
from alight._src.log.decisions import LOG
from cupy.cuda import runtime
from cupy_backends.cuda.api import driver
double, single = alight.jit(t.two), alight.jit(t.one)
x, y = t.drawn(1)
u, v = t.drawn(2)
waiting, launch = [], driver.launchKernel
def launched(*given):
    for one in tuple(waiting):
        one[0] -= 1
        if one[0] == 0:
            waiting.remove(one)
            one[1]()
    launch(*given)
driver.launchKernel = launched
def right(found, x, y):
    shares, (sums, same) = found
    np.testing.assert_array_equal(np.asarray(shares), wanted[x is u][0])
    np.testing.assert_array_equal(np.asarray(sums), wanted[x is u][1])
def sequence_of(made):
    return [p for p in made._learned().on_ours.values() if p.direct][-1].direct._sequence
def drawn():
    made = alight.asarray(x), alight.asarray(y), alight.asarray(u), alight.asarray(v)
    alight.evaluate(*[array + 0 for array in made])
    return made
with alight.policy(force="cpu:generated", floor=0):
    wanted = [[np.asarray(shares), np.asarray(sums)]
              for shares, (sums, _) in (double(*map(alight.asarray, given))
                                        for given in ((x, y), (u, v)))]
"""

AMID = """
with alight.policy(force="cuda:0", floor=0):
    a, b, c, d = drawn()
    for _ in range(4):
        right(double(a, b), x, y)
    sequence = sequence_of(double)
    count = len(sequence._launches)
    assert count > 1 and sequence._inner_sizes  # what kernels give one another
    sequence._graphs._give_up("of a test")
    for place in range(1, count + 1):
        inside = []
        def handler():
            inside.append(double(c, d))
        waiting.append([place, handler])
        outside = double(a, b)
        assert not waiting and inside
        right(outside, x, y)
        right(inside[0], u, v)
        waiting.append([place, handler])
        waiting.append([place + 1, handler])  # in the midst of that one
        right(double(a, b), x, y)
        right(inside[1], u, v)
        right(inside[2], u, v)
    # kernels as the usual way launches them
    group = a * b + a
    alight.evaluate(group)
    inside = []
    waiting.append([1, lambda: inside.append(np.asarray(c * d + c))])
    assert np.array_equal(np.asarray(a * b + a), x * y + x)
    assert np.array_equal(inside[0], u * v + u) and not waiting
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""

CAPTURE = """
with alight.policy(force="cuda:0", floor=0):
    a, b, c, d = drawn()
    session = backend._sessions["cuda:0"]
    right(double(a, b), x, y)
    right(double(a, b), x, y)
    sequence = sequence_of(double)
    count = len(sequence._launches)
    begin = runtime.streamBeginCapture
    for place in range(1, count + 1):
        inside, began = [], []
        def handler():
            inside.append(np.asarray(double(c, d)[0]))  # which waits for the stream
        def beginning(*given):
            if not began:
                waiting.append([place, handler])
            began.append(True)
            begin(*given)
        runtime.streamBeginCapture = beginning
        sequence._graphs._give_up("of a test")
        sequence._graphs.reason, sequence._graphs.faster = "", True
        if sequence.launches is not None:
            sequence.launches.single = False
        for _ in range(12):
            found = double(a, b)
            right(found, x, y)
            del found
        assert inside and np.array_equal(inside[0], wanted[1][0])
        assert len(began) > 1 and sequence._graphs.graphs  # the next one was not disturbed
        assert session.capture is None and not runtime.captures
        runtime.streamBeginCapture = begin
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""

OTHER = """
import cuda_driver_on_cpu as core
with alight.policy(force="cuda:0", floor=0):
    a, b, c, d = drawn()
    for _ in range(4):
        assert np.array_equal(np.asarray(single(c, d)), t.one(u, v))
        right(double(a, b), x, y)
    sequence_of(single)._graphs._give_up("of a test")
    before = len(core.launches)
    kept = single(c, d)
    assert len(core.launches) > before  # it is launched without Python
    sequence = sequence_of(double)
    sequence._graphs._give_up("of a test")
    sequence._graphs.reason, sequence._graphs.faster = "", True
    sequence.launches.single = False
    inside, began, begin = [], [], runtime.streamBeginCapture
    def handler():
        inside.append(np.asarray(single(c, d)))
    def beginning(*given):
        if not began:
            waiting.append([1, handler])
        began.append(True)
        begin(*given)
    runtime.streamBeginCapture = beginning
    for _ in range(12):
        found = double(a, b)
        right(found, x, y)
        del found
    assert inside and np.array_equal(inside[0], t.one(u, v))
    assert len(began) > 1 and sequence._graphs.graphs
    before = len(core.launches)
    again = single(c, d)
    assert len(core.launches) > before and np.array_equal(np.asarray(again), t.one(u, v))
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""

THREADS = """
import time
device = registry.device("cuda:0")
with alight.policy(force="cuda:0", floor=0):
    a, b, c, d = drawn()
    session = backend._sessions["cuda:0"]
    failed, came = [], []
    def others():
        try:
            backend.finish(device)
            came.append(bool(runtime.captures))
        except Exception as error:
            failed.append(error)
    begin, ran = runtime.streamBeginCapture, []
    def beginning(*given):
        begin(*given)
        ran.append(threading.Thread(target=others))
        ran[-1].start()
        ran[-1].join(0.05)  # it must not get through, nor break the capture
    runtime.streamBeginCapture = beginning
    for _ in range(12):
        found = double(a, b)
        right(found, x, y)
        del found
    for thread in ran:
        thread.join()
    graphs = sequence_of(double)._graphs
    assert ran and came == [False] * len(ran) and not failed, (came, failed)
    assert "Capture" not in graphs.reason, graphs.reason

    # one that waits already, and a download whose pieces other threads give to the stream
    runtime.streamBeginCapture = begin
    synchronize, inside, go = runtime.streamSynchronize, threading.Event(), threading.Event()
    def slow(stream):
        inside.set()
        go.wait()
        assert not runtime.captures
        synchronize(stream)
    runtime.streamSynchronize = slow
    came.clear()
    thread = threading.Thread(target=others)
    thread.start()
    inside.wait()
    for _ in range(6):
        made = single(a, b)
        assert np.array_equal(np.asarray(made), t.one(x, y))
        del made
    graphs = sequence_of(single)._graphs
    assert not any(graphs.graphs.values()) and not graphs.reason, graphs.graphs
    go.set()
    thread.join()
    runtime.streamSynchronize = synchronize
    assert came == [False] and session.waiting == 0 and not failed, failed

    from alight.backends.cuda.staging_ring import Transfer
    transfer = Transfer(1, 1, 1, 1, None)
    session._coming[0] = [transfer]
    for _ in range(6):
        made = single(a, b)
        del made
    assert not any(graphs.graphs.values()), graphs.graphs
    transfer.sent.set()
    del session._coming[0]
    for _ in range(6):
        made = single(a, b)
        assert np.array_equal(np.asarray(made), t.one(x, y))
        del made
    assert any(graphs.graphs.values()) or graphs.faster is not None, graphs.graphs
print("done")
"""

UPLOADS = """
from alight.backends.cuda import staging_ring
large = [np.random.default_rng(i).random(5 << 18) for i in range(2)]
inside, copy = [], staging_ring.threads.copy
def copied(*given):
    copy(*given)
    if not inside:
        inside.append(None)
        inside[0] = alight.asarray(large[1]) + 0
        alight.evaluate(inside[0])
staging_ring.threads.copy = copied
with alight.policy(force="cuda:0", floor=0):
    outside = alight.asarray(large[0]) + 0
    alight.evaluate(outside)
    assert inside and np.array_equal(np.asarray(inside[0]), large[1])
    assert np.array_equal(np.asarray(outside), large[0])
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""

DEVICE = """
device = registry.device("cuda:0")
runtime.setDevice(1)  # the user's own; every call of ours to the stand-in needs the other
with alight.policy(force="cuda:0", floor=0):
    a, b, c, d = drawn()
    session = backend._sessions["cuda:0"]
    def unchanged():
        assert runtime.getDevice() == 1
    unchanged()
    for turn in range(12):
        found = double(a, b)
        unchanged()
        right(found, x, y)
        unchanged()
        del found
        made = single(a, b)
        unchanged()
        alight.evaluate(made, wait=True)
        unchanged()
    assert np.array_equal(np.asarray(np.sort(a)), np.sort(x))
    unchanged()
    square = alight.reshape(a[:4] + 0, (2, 2))
    assert np.allclose(np.asarray(np.linalg.inv(square)) @ x[:4].reshape(2, 2), np.eye(2))
    unchanged()
    large = np.arange(3 << 20, dtype=np.float32)
    assert np.array_equal(np.asarray(alight.asarray(large) + 1), large + 1)
    unchanged()
    backend.memory(device), backend.allocate(device, 1 << 20, "pinned")
    unchanged()
    def refuse(*given): raise runtime.CUDARuntimeError("of a launch")
    driver.launchKernel, usual = refuse, driver.launchKernel
    import cuda_driver_on_cpu as fake
    fake.refused.extend([719] * 2)
    assert np.array_equal(np.asarray(single(a, b)), t.one(x, y))
    unchanged()
    fake.refused.clear()
    driver.launchKernel = usual
    backend.close(device)
    unchanged()
print("done")
"""

WITHOUT = """
from alight.backends.cuda import cuda_session
cuda_session.driver_of = lambda: None
"""
ways = pytest.mark.parametrize("driver", ["", WITHOUT], ids=["the driver's own", "CuPy's calls"])


@needs_compiler
@ways
def test_a_run_in_the_midst_of_another_leaves_it_its_arrays(driver: str) -> None:
    passes(driver + BEGIN + AMID)


@needs_compiler
@ways
def test_a_run_in_the_midst_of_a_capture_is_done_and_the_capture_broken_off(driver: str) -> None:
    passes(driver + BEGIN + CAPTURE)


@needs_compiler
def test_another_programs_launch_without_python_in_the_midst_of_a_capture_is_done() -> None:
    passes(BEGIN + OTHER)


@needs_compiler
def test_no_thread_waits_for_a_stream_that_is_captured() -> None:
    passes(BEGIN + THREADS)


@needs_compiler
def test_an_upload_in_the_midst_of_another_leaves_it_its_bytes() -> None:
    passes(BEGIN + UPLOADS)


@needs_compiler
@ways
def test_a_thread_has_its_own_device_back_after_every_call(driver: str) -> None:
    passes(driver + BEGIN + DEVICE)
