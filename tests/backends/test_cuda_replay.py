"""What the driver is asked for by each call of a plan that is ready: its launch, no more."""

from __future__ import annotations

import pytest

from without_card import needs_compiler, passes

# Functions of the runtime, of the driver by CuPy, and of the driver by the native core, that calls
# have asked for.
COUNTED = """
from collections import Counter
import cuda_driver_on_cpu as fake
import jitted_bodies as t
import numpy as np, alight
from alight._src.run.eviction import kept
from alight._src.log.decisions import LOG
asked = Counter()
def counting(module):
    for name, function in list(vars(module).items()):
        if isinstance(function, type(counting)) and name[0] != "_" and name != "here":
            def counted(*given, name=name, function=function):
                if not fake.inside:
                    asked[name] += 1
                return function(*given)
            setattr(module, name, counted)
one, two = alight.jit(t.one), alight.jit(t.two)
x, y = t.drawn(1)
def sequence_of(made):
    (program,) = [p for p in made._learned().on_ours.values() if p]
    return program.direct
def calls(made, count=20):
    del kept("cuda:0").fresh[:]  # when there are too many, a call looks which are left
    asked.clear()
    fake.asked.clear()
    for _ in range(count):
        made(a, b)
    return {name: times / count for name, times in (asked + fake.asked).items()}
with alight.policy(force="cuda:0", floor=0):
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    from cupy.cuda import runtime
    from cupy_backends.cuda.api import driver
    session = backend._sessions["cuda:0"]
    counting(runtime)
    counting(driver)
"""

REPLAYED = """
    for made in (one, two):
        for _ in range(40):
            made(a, b)
        direct = sequence_of(made)
        direct.call.next = 10**9  # none is timed
        graphs, kernels = direct._sequence._graphs, len(direct._sequence._launches)
        assert graphs.faster is not None
        graphs.reason, graphs.faster, graphs.native.single = "", True, False
        for addresses, graph in graphs.graphs.items():
            if graph is not None:
                graphs.native.drop(graph)
                graphs.native.keep(addresses, graph)
        made(a, b)
        made(a, b)
        found = calls(made)
        assert found == {"current": 1, "graph": 1}, found
        graphs._give_up("of a test")
        found = calls(made)
        assert found == {"current": 1, "launch": kernels}, found
        fake.elsewhere = True  # the thread's own work is on another device
        found = calls(made)
        assert found == {"current": 1, "push": 1, "pop": 1, "launch": kernels}, found
        fake.elsewhere = False
        results = made(a, b)
        t.near([r for r in t.parts(results) if r is not a], getattr(t, made.__name__), x, y)
    assert kernels > 1
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""

TURNS = """
    for made in (one, two):
        made(a, b)
        made(a, b)
        direct = sequence_of(made)
        graphs, kernels = direct._sequence._graphs, len(direct._sequence._launches)
        direct.next = direct.call.next = 10**9
        while graphs.faster is None:
            whole = {way: len(turns) for way, turns in graphs._turns.items()}
            found = calls(made, 1)
            ways = {way for way, turns in graphs._turns.items() if len(turns) > whole[way]}
            assert not {"launchKernel", "graphLaunch"} & found.keys(), found
            captured = found.get("streamBeginCapture", 0)
            if ways:
                assert found.get("graph", 0) == ways.pop(), found
                assert found.get("launch", 0) == kernels * (captured + 1 - found.get("graph", 0))
    # what the driver refuses is for CuPy's functions, which say why
    graphs._give_up("of a test")
    direct._sequence.launches.busy = False
    fake.refused[:] = [700, 700]  # of the native core, then of the way through Python
    results = made(a, b)
    assert not fake.refused and asked["launchKernel"] == kernels, asked
    t.near([r for r in t.parts(results) if r is not a], t.two, x, y)
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
print("done")
"""


# A probe's launch is timed as such calls are made, the host's work between two events too.
REPEATED = """
    from alight._src.measure.probes import Probe, reduction, loop, product
    from alight._src.measure.probe_bench import Bench
    from alight._src.measure.timing import LONG_SAMPLE_SECONDS, SAMPLE_SECONDS
    bench = Bench(backend, alight.backends.registry.device("cuda:0"), 1 << 20)
    long = reduction("sum", "float64", (20000,), (0,))
    for group, kernels in ((loop("add", "float64", 1000), 1), (long, 2)):
        launch = bench.launch(Probe("generated", group))
        clock, sample = bench._clock(launch)
        assert sample == LONG_SAMPLE_SECONDS
        clock(1)
        asked.clear()
        fake.asked.clear()
        assert clock(5) > 0
        found = {**fake.asked}
        graph = found.pop("graph", 0)
        assert graph in (0, 5) and found.pop("launch", 0) == (0 if graph else 5 * kernels), found
        assert found == {"current": 5} and not asked["launchKernel"], (found, asked)
        assert asked["malloc"] == asked["graphLaunch"] == 0, asked
        fake.refused[:] = [700]
        try:
            clock(1)
        except alight.errors.KernelError as error:
            assert "700" in str(error)
        else:
            raise AssertionError("a refused launch went unseen")
    launch = bench.launch(Probe("library", product("float64", 8)))
    assert bench._clock(launch)[1] == SAMPLE_SECONDS  # by way of Python, as its calls are
print("done")
"""


@needs_compiler
@pytest.mark.parametrize(
    "program",
    [REPLAYED, TURNS, REPEATED],
    ids=["replayed", "while both are timed", "probes"],
)
def test_calls_ask_the_driver_for_their_launch_alone(program: str) -> None:
    passes(COUNTED + program)
