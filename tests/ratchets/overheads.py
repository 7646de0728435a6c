"""What alight costs beside the work: ``python -m tests.ratchets.overheads``.

Every figure is a minimum of interleaved repeats, as notes on timing say: on a busy machine minima
of fifteen or more resolve a few per cent, means do not. Limits stand beside each; the result is
written as JSON.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from .modes import ROOT
from .result import RESULTS, keep, machine

REPEATS = 15


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured overhead against its limit."""

    name: str
    value: float
    unit: str
    limit: float
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Tell whether the limit holds."""
        return self.value <= self.limit


def python(program: str, *arguments: str, **environment: str) -> str:
    """Return what a Python program prints, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, *arguments, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )
    return done.stdout.strip()


RECORDING = """
    import gc, numpy as np, alight
    from alight import _core
    from time import perf_counter
    with alight.policy(floor=0):
        a = alight.asarray(np.random.default_rng(0).random(100_000))
        b = alight.asarray(np.random.default_rng(1).random(100_000))
        a + b
        def chain(a, b):
            x = a
            for _ in range(100):
                x = x + b
            return x
        def empty(a, b):
            x = a
            for _ in range(100):
                x = b
            return x
        best = loop = 1e9
        _core.floor.limit = 1 << 60  # flushes excluded
        gc.disable()
        for _ in range(400):
            began = perf_counter(); x = chain(a, b); best = min(best, perf_counter() - began)
            del x
            began = perf_counter(); empty(a, b); loop = min(loop, perf_counter() - began)
    print((best - loop) / 100 * 1e6)
"""


def recording() -> Figure:
    """Return microseconds to record ``a + b`` by operator, mean over a chain of 100."""
    value = float(python(RECORDING))
    return Figure("record a + b", value, "µs", 0.15, "mean over a 100-op chain, no flush")


JIT = """
    import numpy as np, alight
    from time import perf_counter
    @alight.jit
    def body(x, y):
        return np.sqrt(x * x + y * y) * 0.5 + x
    x, y = np.random.default_rng(0).random((2, 16))
    want = np.sqrt(x * x + y * y) * 0.5 + x
    # Cached and guarded: both ways were timed, which takes a second where the kernel is new.
    began = perf_counter()
    while perf_counter() - began < 0.1 or not body.settled:
        got = body(x, y)
        assert perf_counter() - began < 10, "the race does not end"
    assert np.array_equal(got, want), (got, want)
    def plain(x, y):
        return np.sqrt(x * x + y * y) * 0.5 + x
    best = [1e9, 1e9]
    for _ in range(200):
        for i, f in enumerate((body, plain)):
            began = perf_counter()
            for _ in range(200):
                f(x, y)
            best[i] = min(best[i], (perf_counter() - began) / 200)
    print(best[0] * 1e6, best[1] * 1e6)
"""


def jitted() -> Figure:
    """Return microseconds of a guarded, cached call of a 6-operation body on two 16-element
    arrays."""
    ours, plain = map(float, python(JIT).split())
    return Figure("jit call, 6 ops, 16 elements", ours, "µs", 1.0, f"NumPy: {plain:.2f} µs")


WRITES = """
    import numpy as np, alight
    from time import perf_counter
    def work(a):
        for i in range(200):
            a[i * 10 : i * 10 + 10] = i
    plain = np.zeros(10**7)
    ours = alight.asarray(plain)
    best = [1e9, 1e9]
    for _ in range(60):
        for i, array in enumerate((plain, ours)):
            began = perf_counter()
            work(array)
            alight.evaluate(array)
            best[i] = min(best[i], perf_counter() - began)
    assert np.array_equal(plain, np.asarray(ours))
    print(best[1] / best[0], best[0] * 1e6, best[1] * 1e6)
"""


def slice_writes() -> Figure:
    """Return the time of 200 slice writes into 10⁷ float64 over NumPy's."""
    ratio, plain, ours = map(float, python(WRITES).split())
    return Figure("200 slice writes", ratio, "× NumPy", 10.0, f"{plain:.0f} µs → {ours:.0f} µs")


REQUEST = """
    import alight
    from alight import _core
    from alight._src.config import loading as config
    from alight._src.run import evaluate as runtime
    from time import perf_counter
    count, repeats = COUNT, 400
    with alight.policy(floor=0):
        a = alight.asarray([1.0, 2.0])
        stamp = config.current_policy().stamp
        b = a
        for _ in range(count):
            b = b * a
        roots = [b.storage.value]
        plans = {_core.request(roots, True, stamp)[0]: None}
        best = 1.0
        for _ in range(40):
            began = perf_counter()
            for _ in range(repeats):
                key, values = _core.request(roots, True, stamp)
                plans[key]
            best = min(best, (perf_counter() - began) / repeats)
    print(best)
"""


def request(count: int, limit: float) -> Figure:
    """Measure from what is asked for to its cached plan, for so many pending ops."""
    program = REQUEST.replace("COUNT", str(count))
    value = 1e6 * float(python(program))
    return Figure(f"a cached plan of {count} ops found", value, "us", limit)


PLANNING = """
    import random, alight
    from alight._src.run import evaluate as runtime
    from alight._core import make_layout
    from alight._src.ir.graph import Graph, Node
    from alight._src.ir.op_table import OPS
    from alight._src.plan.place import make_plan
    from time import perf_counter
    import numpy as np
    rows, column = (make_layout(np.dtype(float), (100, n)) for n in (100, 1))
    worst = 0.0
    with alight.policy(floor=0):
        for seed in range(6):
            chooser = random.Random(seed)
            layouts, nodes, wide, thin = [rows, rows, column], [], [0, 1], [2]
            for _ in range(100):
                if chooser.random() < 0.08:
                    attrs = (("axis", (1,)), ("keepdims", True))
                    nodes.append(Node(OPS["sum"], (chooser.choice(wide[-12:]),), attrs, column))
                    thin.append(len(layouts))
                else:
                    other = chooser.choice(thin if chooser.random() < 0.1 else wide[-12:])
                    op = OPS[chooser.choice(("add", "multiply", "subtract", "maximum"))]
                    nodes.append(Node(op, (chooser.choice(wide[-12:]), other), (), rows))
                    wide.append(len(layouts))
                layouts.append(nodes[-1].layout)
            outputs = (*dict.fromkeys(chooser.choices(wide[2:], k=10)),)
            graph = Graph((rows, rows, column), tuple(nodes), outputs)
            here = frozenset(("host",))
            leaves = tuple((layout, here, i, 0) for i, layout in enumerate(graph.inputs))
            best = 1.0
            for _ in range(7):
                facts = runtime.facts_of(leaves, 1)
                began = perf_counter()
                make_plan(graph, facts)
                best = min(best, perf_counter() - began)
            worst = max(worst, best)
    print(worst)
"""


def planned() -> Figure:
    """Measure making a plan of 100 values, the worst of six random graphs; a machine without a
    profile does less."""
    return Figure("100 values planned", 1e3 * float(python(PLANNING)), "ms", 10.0)


ENTRY = """
    import logging
    from alight.device import Reason
    from alight._src.log.decisions import Log
    from alight._src.plan.plan import Decision
    from time import perf_counter
    decision = Decision("add", "loop", "g", ("float64",), ((10,),), 10, 10.0, 240, 1,
                        (("host",),), "cpu", "numpy", Reason.CHEAPEST, None, ())
    log = Log(10_000)
    site = ((lambda: None).__code__, 0)
    best = 1.0
    for _ in range(200):
        began = perf_counter()
        for _ in range(1000):
            log.launched(decision, site, 1e-6, ("numpy", "cpu"), 0, False)
        best = min(best, (perf_counter() - began) / 1000)
    print(best)
"""


def entered() -> Figure:
    """Return microseconds of an entry in the log of decisions, with nobody listening."""
    return Figure("an entry of the log", 1e6 * float(python(ENTRY)), "µs", 1.0)


CANARY = """
    from alight.backends.host import HostBackend
    from alight._src.measure.calibrate import calibrate
    from alight._src.measure.spot_check import canary
    from time import perf_counter
    backend = HostBackend()
    (device,) = backend.probe().devices
    (profile,) = calibrate(1.0, [(backend, device)], store=False)
    best = 1.0
    for _ in range(REPEATS):
        began = perf_counter()
        assert canary(backend, device, profile) is not None
        best = min(best, perf_counter() - began)
    print(best)
"""


def looked() -> Figure:
    """Return milliseconds of a look whether the host's profile still holds."""
    value = 1e3 * float(python(CANARY.replace("REPEATS", str(REPEATS))))
    return Figure("a canary of the host", value, "ms", 20.0)


def imported() -> Figure:
    """Return seconds that ``import alight`` takes beyond ``import numpy``, bytecode warm."""
    program = """
        import numpy
        from time import perf_counter
        began = perf_counter()
        import alight
        print(perf_counter() - began)
    """
    values = [float(python(program, PYTHONDONTWRITEBYTECODE="")) for _ in range(REPEATS)]
    return Figure("import alight", min(values), "s", 0.1, "beyond NumPy's own import")


def start_up(folder: Path) -> Figure:
    """Return seconds that ``alight run`` adds to the start of an empty NumPy script, warm."""
    script = folder / "empty.py"
    script.write_text("import numpy as np\n")
    ways = ([sys.executable, str(script)], [sys.executable, "-m", "alight", "run", str(script)])
    best = _interleaved([lambda way=way: _seconds(way) for way in ways])
    return Figure("alight run, start-up", best[1] - best[0], "s", 0.03, f"plain: {best[0]:.3f} s")


SMALL = """
import sys
import numpy as np
from time import perf_counter

def body(n):
    total = 0.0
    for i in range(n):
        a = np.zeros(10)
        b = np.arange(10.0)
        a[2:5] = b[:3] * i
        c = np.sqrt(a + b) - np.ones(10)
        total += c.sum() + float(np.dot(a, b))
    return total

body(200)
best = [1e9, 1e9]
for _ in range(12):
    for i, n in enumerate((500, 2500)):
        began = perf_counter()
        body(n)
        best[i] = min(best[i], perf_counter() - began)
print((best[1] - best[0]) / 2000 * 1e6)
"""


def small_arrays(folder: Path) -> Figure:
    """Return the time per iteration of a script of small arrays under ``alight run`` over plain
    Python's.

    Plain against plain, run beside it, says what the machine's noise is.
    """
    script = folder / "small.py"
    script.write_text(SMALL)
    plain = [sys.executable, str(script)]
    ours = [sys.executable, "-m", "alight", "run", str(script)]
    best = _interleaved([lambda way=way: float(_output(way)) for way in (plain, ours, plain)])
    noise = max(best[0], best[2]) / min(best[0], best[2])
    ratio = best[1] / min(best[0], best[2])
    return Figure("small-array script, per iteration", ratio, "× plain", 1.03, f"noise {noise:.3f}")


def _interleaved(ways: list[Callable[[], float]]) -> list[float]:
    best = [float("inf")] * len(ways)
    for _ in range(REPEATS + 1):
        for i, way in enumerate(ways):
            best[i] = min(best[i], way())
    return best


def _output(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def _seconds(command: list[str]) -> float:
    began = perf_counter()
    _output(command)
    return perf_counter() - began


def main() -> int:
    """Measure all, print a table, write the JSON; 1 where a limit does not hold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = [
            recording(),
            jitted(),
            slice_writes(),
            request(8, 3.0),
            request(100, 10.0),
            planned(),
            entered(),
            looked(),
            imported(),
            start_up(folder),
            small_arrays(folder),
        ]
    for figure in figures:
        verdict = "ok  " if figure.passed else "FAIL"
        print(
            f"{verdict} {figure.name:36s} {figure.value:8.3f} {figure.unit:8s} "
            f"limit {figure.limit:<6g} {figure.detail}"
        )
    document = {
        "machine": machine(),
        "load": statistics.fmean(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "figures": [{**asdict(figure), "passed": figure.passed} for figure in figures],
    }
    keep(RESULTS / "overheads.json", document)
    return 0 if all(figure.passed for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
