"""Jitted functions on Arrays: traced once, then run again where their arguments lie."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import floor
from alight._src.jit import array_program, traced_program
from alight._src.plan.plan import LaunchStep
from alight._src.run import residency
from jitted_bodies import (
    DIRECT,
    chain,
    drawn,
    near,
    priced,
    two,
)
from programs import assert_close
from without_card import needs_compiler, passes


def kept_or_hosted(made: Any, programs: int) -> bool:
    """Tell whether calls on Arrays are programs, or, on the host, calls on their ndarrays."""
    hosted = list(made._learned().hosted.values())
    kept = list(made._learned().on_ours.values())
    if hosted:
        return not kept and all(kind.entry is not None and not kind.refused for kind in hosted)
    return len(kept) == programs and None not in kept


@pytest.mark.parametrize("force", ["sim:0", "cpu:generated"])
def test_a_traced_call_is_run_again_on_other_arrays(force: str) -> None:
    made: Any = alight.jit(chain)
    with alight.policy(force=force, floor=0):
        for seed in range(4):
            x, y = drawn(seed)
            for scale in (2.0, -0.0, 0.0):
                got = made(alight.asarray(x), alight.asarray(y), scale)
                assert type(got) is alight.Array
                assert np.array_equal(np.asarray(got), chain(x, y, scale))
                assert np.array_equal(np.signbit(np.asarray(got)), np.signbit(chain(x, y, scale)))
    assert kept_or_hosted(made, 3)


def test_several_results_have_the_form_that_the_body_gave_them() -> None:
    made: Any = alight.jit(two)
    x, y = drawn(1)
    with alight.policy(force="sim:0", floor=0):
        a, b = alight.asarray(x), alight.asarray(y)
        for _ in range(3):
            shares, (sums, same) = made(a, b)
            assert same is a
            near((shares, sums), two, x, y)


def test_one_array_given_twice_is_another_call() -> None:
    made: Any = alight.jit(lambda x, y: x - y)
    x, y = drawn(2)
    with alight.policy(force="sim:0", floor=0):
        a, b = alight.asarray(x), alight.asarray(y)
        for _ in range(3):
            assert not np.asarray(made(a, a)).any()
            assert np.array_equal(np.asarray(made(a, b)), x - y)


def test_a_body_that_writes_into_its_argument_runs_every_time() -> None:
    def grow(x: Any) -> Any:
        x += 1.0
        return x * 2

    made: Any = alight.jit(grow)
    x, _ = drawn(3)
    with alight.policy(force="sim:0", floor=0):
        a = alight.asarray(x)
        grown = x
        for _ in range(3):
            grown = grown + 1.0
            assert np.array_equal(np.asarray(made(a)), grown * 2)
            assert np.array_equal(np.asarray(a), grown)
    assert all(program is None for program in made._learned().on_ours.values())


def test_a_body_that_looks_at_elements_runs_every_time() -> None:
    made: Any = alight.jit(lambda x: x * 2 if float(x[0]) > 0 else x - 1)
    with alight.policy(force="sim:0", floor=0):
        for sign in (1.0, -1.0, 1.0, -1.0):
            x = drawn(4)[0] * sign
            assert np.array_equal(np.asarray(made(alight.asarray(x))), x * 2 if sign > 0 else x - 1)


@pytest.mark.parametrize("force", ["sim:0", "cpu:generated", "cpu:numpy"])
def test_what_a_body_creates_is_kept_as_it_was(force: str) -> None:
    made: Any = alight.jit(priced)
    with alight.policy(force=force, floor=0):
        for seed in range(5):
            draws = drawn(seed, 600)[0].reshape(6, 100)
            found = made(alight.asarray(draws))
            assert_close(found, priced, draws)
            for got in found:
                np.asarray(got)[:] = 7.0  # a result is the caller's to write
    assert kept_or_hosted(made, 1)


def test_what_is_too_large_to_keep_is_created_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traced_program, "CONSTANT_BYTES", 99 * 8)
    made: Any = alight.jit(priced)
    with alight.policy(force="sim:0", floor=0):
        for seed in range(3):
            draws = drawn(seed, 600)[0].reshape(6, 100)
            assert_close(made(alight.asarray(draws)), priced, draws)
    assert list(made._learned().on_ours.values()) == [None]


def filled(draws: Any) -> Any:
    spot = np.full_like(draws[0], 100.0)
    marked = np.zeros_like(draws)
    marked[:, 1:] = draws[:, :-1]
    for step in range(draws.shape[0]):
        spot *= np.exp(0.01 * draws[step])
    return spot, marked + np.ones_like(draws, dtype=np.float32), np.ones_like(draws[0])


def test_what_is_the_same_everywhere_is_made_where_the_arguments_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traced_program, "CONSTANT_BYTES", 8)
    made: Any = alight.jit(filled)
    with alight.policy(force="sim:0", floor=0):
        for seed in range(3):
            draws = drawn(seed, 600)[0].reshape(6, 100)
            there = alight.positive(alight.asarray(draws))
            alight.evaluate(there)
            found = made(there)
            assert_close(found, filled, draws)
            for got in found:
                np.asarray(got)[:] = 7.0  # a result is the caller's to write
    (program,) = made._learned().on_ours.values()
    assert program is not None
    steps = [step for step in program.plan.steps if isinstance(step, LaunchStep)]
    held = [spaces for step in steps for spaces in step.decision.residency_in]
    assert ("*",) in held and not any("host" in spaces for spaces in held), held


def test_what_the_host_has_read_stays_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = alight.jit(priced)
    draws = drawn(6, 600)[0].reshape(6, 100)
    with alight.policy(force="sim:0", floor=0):
        there = alight.positive(alight.asarray(draws))
        alight.evaluate(there)
    monkeypatch.setattr(floor, "record_floor", 10_000)
    residency.bring_to_host(there.storage.value.data)  # as a group does that is placed there
    with alight.policy(devices=["sim:0", "cpu"]):
        for _ in range(3):
            assert_close(made(there), priced, draws)
    (program,) = made._learned().on_ours.values()
    assert program is not None


TWICE = """
import jitted_bodies as t
import numpy as np, alight
x, y = t.drawn(2)
with alight.policy(force="cuda:0", floor=0):
    a, b = alight.positive(alight.asarray(x)), alight.positive(alight.asarray(y))
    alight.evaluate(a, b)
    for calls in (((a, a), (a, b)), ((a, b), (a, a))):
        made = alight.jit(lambda u, v: u * 2 - v)
        for left, right in 4 * (*calls, *calls[::-1], (b, b), (b, a)):
            for _ in range(3):
                expected = np.asarray(left) * 2 - np.asarray(right)
                assert np.array_equal(np.asarray(made(left, right)), expected)
        assert [p.direct is not None for p in made._learned().on_ours.values()] == [True, True]
print("done")
"""


@needs_compiler
def test_what_is_made_for_one_array_given_twice_answers_no_other_call() -> None:
    passes(TWICE)


NEAR = """
import jitted_bodies as t
import numpy as np, alight
import alight._src.ir.inner_products
alight._src.ir.inner_products._NAMES = frozenset()  # products are the library's
from alight._src.log.decisions import LOG
made = alight.jit(t.products)
with alight.policy(force="cuda:0", floor=0):
    for seed in range(6):
        x, y = t.drawn(seed, 40)
        a, b = alight.positive(alight.asarray(x)), alight.positive(alight.asarray(y))
        alight.evaluate(a, b)
        held = [made(a, b) for _ in range(3)]
        for turn in held:  # none is written over by the next
            t.near(turn, t.products, x, y)
(program,) = made._learned().on_ours.values()
from alight.backends.cuda.mixed_replay import CudaParts
assert type(program.direct._sequence) is CudaParts
log = LOG.snapshot()
assert not log.fallbacks, log.fallbacks
assert any(r.decision.implementation == "library" and r.seconds for r in log.records)
print("done")
"""


@needs_compiler
def test_calls_of_a_library_between_kernels_are_made_ready_with_them() -> None:
    passes(NEAR)


SHORT = """
import gc
import jitted_bodies as t
import numpy as np, alight
from alight.backends import registry
backend.open(registry.device("cuda:0"))
session = backend._sessions["cuda:0"]
pool = session.pool
double = alight.jit(t.two)
with alight.policy(force="cuda:0", floor=0):
    x, y = t.drawn(1)
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    for turn in range(4):
        shares, (sums, same) = double(a, b)
    del shares, sums, same
    (program,) = double._learned().on_ours.values()
    sequence = program.direct._sequence
    gc.collect()
    gc.disable()  # buffers among garbage, given back meanwhile, would be room enough
    kept = sum(held.nbytes for held in sequence._inner) + session.stock.held
    assert kept and session.stock.held
    del sequence
    pool.set_limit(size=pool.used + 100)
    held = backend.allocate(registry.device("cuda:0"), 100 + kept // 2)  # what was kept makes room
    assert session.stock.held == 0
    del held
    shares, (sums, same) = double(a, b)
    t.near((shares, sums), t.two, x, y)
print("done")
"""


@needs_compiler
def test_what_is_kept_for_later_runs_makes_room() -> None:
    passes(SHORT)


FULL = """
import jitted_bodies as t
import numpy as np, alight
from alight.backends import registry
backend.open(registry.device("cuda:0"))
session = backend._sessions["cuda:0"]
made = alight.jit(t.one)
with alight.policy(force="cuda:0", floor=0):
    x, y = t.drawn(1)
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    for _ in range(4):
        made(a, b)
    (program,) = made._learned().on_ours.values()
    session.clear_shelves()
    session.pool.set_limit(size=session.pool.used + 4096)  # one result, and none for later
    got = program.direct(a, b)
    assert got is not NotImplemented and np.array_equal(np.asarray(got), t.one(x, y))
print("done")
"""


@needs_compiler
def test_a_result_needs_no_room_for_the_next_one() -> None:
    passes(FULL)


GRAPHS = """
import jitted_bodies as t
import numpy as np, alight
from cupy.cuda import runtime
double = alight.jit(t.two)
with alight.policy(force="cuda:0", floor=0):
    x, y = t.drawn(1)
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    first = t.parts(double(a, b))[:2]
    t.near(first, t.two, x, y)
    expected, totals = map(np.asarray, first)  # the bits are those of every call
    del first
    for turn in range(60):
        shares, (sums, same) = double(a, b)
        one, two = np.asarray(shares), np.asarray(sums)
        assert np.array_equal(one, expected) and np.array_equal(two, totals), turn
        del shares, sums, one, two
    (program,) = double._learned().on_ours.values()
    graphs = program.direct._sequence._graphs
    assert len(runtime.launched) >= 5, runtime.launched
    assert graphs.faster is not None
    before = len(runtime.launched)
    graphs.faster, graphs.reason, graphs.native.single = True, "", False
    for turn in range(30):
        shares, (sums, same) = double(a, b)
        assert np.array_equal(shares, expected) and np.array_equal(sums, totals), turn
        del shares, sums
    assert len(runtime.launched) > before + 10, (len(runtime.launched), before)
    # memory that is new at every call
    held = [double(a, b) for _ in range(150)]
    assert graphs.reason == "its arrays lie elsewhere at every call", graphs.reason
    assert all(np.array_equal(shares, expected) for shares, _ in held)
    # one launch is replayed as well as several
    single = alight.jit(t.one)
    expected = t.one(x, y)
    for turn in range(60):
        made = single(a, b)
        assert np.array_equal(made, expected), turn
        del made
    (program,) = single._learned().on_ours.values()
    sequence = program.direct._sequence
    assert len(sequence._launches) == 1 and sequence._graphs.faster is not None
print("done")
"""


@needs_compiler
def test_launches_are_replayed_as_a_graph() -> None:
    passes(GRAPHS)


WITHOUT = """
from alight.backends.cuda import cuda_session
cuda_session.driver_of = lambda: None
"""


@needs_compiler
@pytest.mark.parametrize("driver", ["", WITHOUT], ids=["the driver's own", "CuPy's calls"])
def test_launches_made_ready_have_the_same_results(driver: str) -> None:
    passes(driver + DIRECT)


MIXED = """
import jitted_bodies as t
import numpy as np, alight
import alight._src.ir.inner_products
alight._src.ir.inner_products._NAMES = frozenset()  # products are the library's
from alight.backends.cuda.mixed_replay import CudaParts
from alight._src.log.decisions import LOG
made = alight.jit(t.mixed)
rng = np.random.default_rng(0)
def right():
    x, y = rng.random((40, 30)), rng.random((50, 30))
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    one, two, three, four = made(a, b)
    assert four is a
    t.near((one, two, three), t.mixed, x, y)
with alight.policy(force="cuda:0", floor=0):
    for _ in range(5):
        right()
    (program,) = made._learned().on_ours.values()
    sequence = program.direct._sequence
    assert type(sequence) is CudaParts and len(sequence._parts) >= 5, sequence._parts
    assert type(program.direct.call).__name__ == "DeviceCall"
    assert not LOG.snapshot().fallbacks
    before = LOG.snapshot().counts["launches"]
    right()
    assert LOG.snapshot().counts["launches"] - before >= 5
    # a library that fails once: the usual way does it again
    session = backend._sessions["cuda:0"]
    library, failed = session.library, []
    def failing(stream):
        if not failed:
            failed.append(True)
            raise ValueError("of a library")
        return library(stream)
    session.library = failing
    right()
    assert failed
    session.library = library
    right()
print("done")
"""


@needs_compiler
def test_library_calls_are_made_ready_with_the_kernels_between() -> None:
    passes(MIXED)


# What the native core answers without Python between, and what it leaves to others.
NATIVE = """
import threading, weakref
import cuda_driver_on_cpu as fake
import jitted_bodies as t
import numpy as np, alight
from alight.backends import registry
from alight._src.run import residency
from alight._src.run.eviction import FRESH, kept
from alight._src.log.decisions import LOG
from cupy.cuda import runtime
from cupy_backends.cuda.api import driver
def parts(x, y): return x + y, x * y
chained, both, double = alight.jit(t.chain), alight.jit(parts), alight.jit(t.two)
x, y = t.drawn(1)
expected, scaled = t.chain(x, y), t.chain(x, y, 3.0)
def runs(made):
    programs = [p for p in made._learned().on_ours.values() if p and p.direct]
    return sum(p.direct._sequence.launches.runs for p in programs)
def natively(count, made=chained):
    class Told:
        def __enter__(self): self.before = runs(made)
        def __exit__(self, *error):
            assert error[0] or runs(made) - self.before in count, runs(made) - self.before
    return Told()
def right():
    assert np.array_equal(np.asarray(chained(a, b)), expected)
with alight.policy(force="cuda:0", floor=0):
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    device = registry.device("cuda:0")
    session = backend._sessions["cuda:0"]
    for _ in range(40):
        right()
        sums, products = both(a, b)
        assert np.array_equal(sums, x + y) and np.array_equal(products, x * y)
        shares, (sums, same) = double(a, b)
        assert same is a
        t.near((shares, sums), t.two, x, y)
    with natively(range(16, 21)):  # but for one that is timed
        for _ in range(20):
            right()
    with natively(range(6, 11), both):
        for _ in range(10):
            made = both(a, b)
            assert type(made) is tuple and np.array_equal(made[1], x * y)
    with natively(range(6, 11), double):
        for _ in range(10):
            shares, (sums, same) = double(a, b)
            assert same is a
            held = shares, sums
        t.near(held, t.two, x, y)
        del shares, sums, held
    for _ in range(20):  # an equal scalar is another object
        assert np.array_equal(np.asarray(chained(a, b, float("3"))), scaled)
    with natively(range(6, 11)):
        for _ in range(10):
            assert np.array_equal(np.asarray(chained(a, b, float("3"))), scaled)
    with natively([0]):
        assert np.array_equal(np.asarray(chained(a, b, 2.5)), t.chain(x, y, 2.5))

    # who waits does so for the stream, and no event is recorded
    asked = []
    record, synchronize = runtime.eventRecord, runtime.streamSynchronize
    runtime.eventRecord = lambda *given: asked.append("record")
    runtime.streamSynchronize = lambda stream: asked.append(stream == session.stream(0))
    made = chained(a, b)
    alight.evaluate(made, wait=True)
    runtime.eventRecord, runtime.streamSynchronize = record, synchronize
    assert asked == [True], asked
    assert made.storage.value.data.array is None

    # another context is current, and is so afterwards; a window; what the host has written
    del made
    for _ in range(10):
        right()
    for fake.elsewhere in (False, True, False):
        with natively(range(3, 6)):
            for _ in range(5):
                right()
        assert not fake.pushed
    fake.elsewhere, fake.refused[:] = True, [201]  # the driver will not have ours
    with natively([0]):
        right()
    assert not fake.refused and not fake.pushed
    fake.elsewhere = False
    with natively([0]):
        assert np.array_equal(np.asarray(chained(a[:], b)), expected)
    c = alight.asarray(x)
    alight.evaluate(c + 0)
    for _ in range(3):
        assert np.array_equal(np.asarray(chained(c, b)), expected)
    np.asarray(c)[0] = 9.0
    assert np.array_equal(np.asarray(chained(c, b)), t.chain(np.asarray(c), y))

    # a device whose results cannot be had
    LOG.reset()
    results = [chained(a, b) for _ in range(5)]
    copy = runtime.memcpyAsync
    def refuse(*given): raise runtime.CUDARuntimeError("of a copy")
    runtime.memcpyAsync = refuse
    assert all(np.array_equal(np.asarray(r), expected) for r in results)
    runtime.memcpyAsync = copy
    assert any("of a copy" in row.reason for row in LOG.snapshot().fallbacks)
    LOG.reset()

    # results that are held, and what makes room
    held = [chained(a, b) for _ in range(40)]
    assert len(set(h.storage.value.data.remote["cuda:0"].address for h in held)) == 40
    assert kept("cuda:0").fresh
    assert residency.make_room(device, 60 * x.nbytes)
    gone = [h.storage.value.data.remote == {} for h in held]
    assert any(gone), gone
    assert all(np.array_equal(np.asarray(h), expected) for h in held)
    dead = weakref.ref(held[0].storage.value.data)
    del held
    assert dead() is None
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    for _ in range(3 * FRESH):
        chained(a, b)
    assert len(kept("cuda:0").fresh) <= FRESH + 4 and len(kept("cuda:0")._copies) < 200

    # threads
    threads = [threading.Thread(target=lambda: [right() for _ in range(30)]) for _ in range(4)]
    wrong = []
    threading.excepthook = wrong.append
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong, wrong

    # a launch that is refused is done again
    for _ in range(10):
        right()
    fake.refused.append(719)
    right()
    assert not fake.refused and not LOG.snapshot().fallbacks
    # one that is lost
    for _ in range(3):
        right()
    def refuse(*given): raise runtime.CUDARuntimeError("cudaErrorLaunchFailure: injected")
    driver.launchKernel = runtime.graphLaunch = refuse
    fake.refused.extend([719] * 2)
    LOG.reset()
    right()
    fake.refused.clear()
    assert session.lost and LOG.snapshot().fallbacks
    with natively([0]):
        right()
log = LOG.snapshot()
print("done")
"""


@needs_compiler
def test_the_native_core_launches_what_it_knows_and_leaves_the_rest() -> None:
    passes(NATIVE)


def test_a_call_is_made_ready_while_no_other_thread_drives_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned = []
    direct = array_program._direct

    def watched(program: Any) -> Any:
        others = threading.Thread(target=lambda: owned.append(residency.LOCK.acquire(timeout=0.01)))
        others.start()
        others.join()
        return direct(program)

    monkeypatch.setattr(array_program, "_direct", watched)
    made: Any = alight.jit(chain)
    with alight.policy(force="sim:0", floor=0):
        for seed in range(4):
            x, y = drawn(seed)
            made(alight.asarray(x), alight.asarray(y))
    assert owned == [False]
