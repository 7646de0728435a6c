"""A CUDA device: bits against the host's kernels, and speed beside its peers.

``PYTHONPATH=src:tests python -m tests.ratchets.cuda [PART …] [--out FOLDER]``. Parts: ``bits``
(every elementwise op with a body on a million random values), ``trusted`` (each against
NumPy), ``reductions``, ``faults``, ``capped``, ``workloads``, ``prices``, ``resident``,
``schedules``, ``calls``, ``host`` (beside NumExpr where that is installed, and where it was placed
by what ``alight calibrate`` left), ``fuzz``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any

import numpy as np

import alight
from alight._src.codegen.common.loops import nest
from alight._src.codegen.common.source import Grid
from alight._src.codegen.cuda.group_forms import schedule
from alight._src.measure.timing import laps
from alight.backends.base import Copy, Launch

from .cuda_faults import faults
from .cuda_large import capped
from .cuda_rig import DEVICE, Array, Rig, differing, said
from .cuda_workloads import prices, workloads

ROOT = Path(__file__).resolve().parents[2]
VALUES = 10**6
FULL = 1 << 27
FUZZED = 1000  # operations of each process
PEER_SECONDS = 0.5  # of measuring one figure
SHOWN = 10  # faults named in the last lines; of a lease's jobs so many lines are kept
LINE = 300
TURN = 25  # short calls, before others have theirs


# --- bits
def random_values(dtype: np.dtype[Any], generator: Any, count: int) -> Array:
    """Return values of a dtype: half of them any bits at all, half as programs have them."""
    if dtype.kind == "b":
        return np.asarray(generator.random(count) < 0.5)
    drawn = np.frombuffer(generator.bytes(count * dtype.itemsize), dtype).copy()
    if dtype.kind in "fc":
        with np.errstate(all="ignore"):
            usual = generator.standard_normal(count) * np.exp(generator.uniform(-9, 9, count))
            drawn[::2] = usual[::2].astype(dtype)
    return drawn


def bits(rig: Rig, found: dict[str, Any]) -> None:
    """Compare every elementwise op with the host's kernels."""
    from elementwise_cases import CASES
    from generated import loop_group
    from generated import run as on_host

    generator = np.random.default_rng(5)
    wrong, failed, count = {}, {}, 0
    began = perf_counter()
    for signature, cases in CASES.items():
        inputs = [random_values(d, generator, VALUES) for d in cases[0][1]]
        for start in range(0, len(cases), 16):
            part = cases[start : start + 16]
            uses = []
            for op, _, out, attrs in part:
                uses.append((op, tuple(range(op.nin)), attrs, out))
            given = list(inputs)
            if any(op.name == "power" for op, *_ in part) and inputs[1].dtype.kind == "i":
                given[1] = inputs[1] & 7
            group = loop_group(given, uses)
            try:
                got = rig.run(group, given)
                with np.errstate(all="ignore"):
                    expected = on_host(group, given)
            except Exception as error:
                failed[f"{signature} {part[0][0].name}…"] = said(error)
                continue
            for (op, *_), one, other in zip(part, got, expected, strict=True):
                count += 1
                if number := differing(one, other):
                    at = [i for i in range(VALUES) if differing(one[i : i + 1], other[i : i + 1])]
                    name = f"{op.name} {signature}->{other.dtype.name}"
                    wrong[name] = [number, *(
                        f"{[a[i].item() for a in given[: op.nin]]}: {one[i]}, host {other[i]}"
                        for i in at[:3]
                    )]  # fmt: skip
    found["square roots that differ"] = roots(rig)
    found["bits"] = {
        "ops": count, "values each": VALUES, "differing": wrong, "failed": failed,
        "seconds": round(perf_counter() - began, 1),
    }  # fmt: skip


def roots(rig: Rig) -> int:
    """Return how many of all positive floats have another root than on the host."""
    from generated import loop_group

    wrong = 0
    for start in range(0, 0x7F800000, 1 << 27):
        end = min(start + (1 << 27), 0x7F800000)
        values = np.arange(start, end, dtype=np.uint32).view(np.float32)
        group = loop_group([values], [(alight_op("sqrt"), (0,), (), values.dtype)])
        wrong += differing(rig.run(group, [values])[0], np.sqrt(values))
    return wrong


def alight_op(name: str) -> Any:
    """Return an op of the table."""
    from alight._src.ir.op_table import OPS

    return OPS[name]


def trusted(rig: Rig, found: dict[str, Any]) -> None:
    """Ask for every elementwise op in every dtype whether the device matches NumPy."""
    rows, died = in_shares("tests.ratchets.cuda_trust")
    found["trusted"] = {
        "results": sum(row["results"] for row in rows),
        "differing": {k: v for row in rows for k, v in row["doubted"].items()},
        "failed": {k: v for row in rows for k, v in row["failed"].items()},
        "died": died,
    }


def reductions(rig: Rig, found: dict[str, Any]) -> None:
    """Compare reductions, rows and scans with the host's kernels, in processes of their own: most
    of the time goes into compiling."""
    rows, died = in_shares("tests.ratchets.cuda_reductions")
    found["reductions"] = {
        "results": sum(row["results"] for row in rows),
        "differing": {k: v for row in rows for k, v in row["differing"].items()},
        "failed": {k: v for row in rows for k, v in row["failed"].items()},
        "died": died,
        "seconds of each": [row["seconds"] for row in rows],
    }


# --- speed of what is resident
def chain(np: Any, x: Any, y: Any) -> Any:
    return np.sqrt(x * x + y * y) * np.exp(-x) + np.sin(y) * np.float32(0.5)


def pure_chain(x: Any, y: Any) -> Any:
    return np.sqrt(x * x + y * y) * np.exp(-x) + np.sin(y) * np.float32(0.5)


def chain_sum(np: Any, x: Any, y: Any) -> Any:
    return chain(np, x, y).sum()


def softmax_rows(np: Any, x: Any, y: Any) -> Any:
    grown = np.exp(x - np.max(x, axis=1, keepdims=True))
    return grown / np.sum(grown, axis=1, keepdims=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], float]] = {
    # what to run, shape, bytes moved per element of float32
    "chain": (chain, (FULL,), 12),
    "chain+sum": (chain_sum, (FULL,), 8),
    "softmax": (softmax_rows, (FULL // 1024, 1024), 8),
}


def captured(
    rig: Rig, program: Callable[..., Any], arrays: Sequence[Any]
) -> tuple[Array, list[Launch]]:
    """Return the result of a request, and the launches that it makes."""
    seen: list[Launch] = []
    original = rig.backend.submit

    def submit(device: Any, queue: int, commands: Any, wait: Any = ()) -> Any:
        seen.extend(c for c in commands if isinstance(c, Launch))
        return original(device, queue, commands, wait)

    with alight.policy(force=DEVICE, floor=0):  # ops are compared with NumPy at their first use
        np.asarray(program(alight, *arrays))
    rig.backend.submit = submit
    try:
        with alight.policy(force=DEVICE, floor=0):
            result = np.asarray(program(alight, *arrays))
    finally:
        rig.backend.submit = original
    return result, seen


def copies(rig: Rig, found: dict[str, Any]) -> float:
    """Return the seconds that the driver takes to copy 512 MB on the device."""
    source = rig.put(np.random.default_rng(1).random(FULL, np.float32)).buffer
    target = rig.backend.allocate(rig.device, source.nbytes)
    session = rig.backend._sessions[DEVICE]
    taken = []
    for _ in range(20):
        copy = Copy(source, target, source.nbytes, rig.device.space, rig.device.space)
        rig.backend.submit(rig.device, 0, [copy])
        start = rig.backend.submit(rig.device, 0, ())
        end = rig.backend.submit(rig.device, 0, [copy])
        rig.backend.wait(end)
        taken.append(rig.backend.seconds(start, end))
    assert session.number == 0
    found["copy"] = {"bytes": 2 * source.nbytes, "seconds": median(taken)}
    return median(taken)


def operands(shape: tuple[int, ...]) -> tuple[Array, Array]:
    generator = np.random.default_rng(2)
    return tuple(generator.random(shape, np.float32) * 3 + 0.1 for _ in range(2))  # type: ignore


def resident(rig: Rig, found: dict[str, Any]) -> None:
    """Time programs on arrays that lie on the device, each beside the driver's copy."""
    whole = copies(rig, found)
    rate = 2 * 4 * FULL / whole
    rows = found.setdefault("resident", {})
    for name, (program, shape, nbytes) in PROGRAMS.items():
        x, y = operands(shape)
        ours = alight.asarray(x), alight.asarray(y)
        results, launches = captured(rig, program, ours)
        taken = [rig.seconds(launch) for launch in launches]
        floor = nbytes * FULL / rate
        with np.errstate(all="ignore"):
            expected = program(np, x[:4], y[:4]) if len(shape) > 1 else program(np, x, y)
        got = results[:4] if len(shape) > 1 else results
        rows[name] = {
            "alight": sum(taken), "launches": len(taken), "of the copy": floor / sum(taken),
            "relative error": float(np.max(np.abs(got - expected) / np.abs(expected))),
        }  # fmt: skip
        del ours
        for peer, time in peers(program, x, y).items():
            rows[name][peer] = time
        print(name, rows[name], flush=True)


def peers(program: Callable[..., Any], x: Array, y: Array) -> dict[str, Any]:
    """Return device seconds of the peers on resident arrays, and why there are none."""
    taken: dict[str, Any] = {}
    for peer in (_cupy, _torch, _jax):
        try:
            taken[peer.__name__[1:]] = peer(program, x, y)
        except Exception as error:
            taken[peer.__name__[1:]] = said(error)
    return taken


def _cupy(program: Callable[..., Any], x: Array, y: Array) -> float:
    import cupy

    a, b = cupy.asarray(x), cupy.asarray(y)

    def call() -> None:
        program(cupy, a, b)
        cupy.cuda.Device().synchronize()

    return timed(call)


def _torch(program: Callable[..., Any], x: Array, y: Array) -> float:
    import torch

    class Names:
        sqrt, exp, sin = torch.sqrt, torch.exp, torch.sin
        float32 = float
        max = staticmethod(lambda v, axis, keepdims: torch.amax(v, axis, keepdim=keepdims))
        sum = staticmethod(lambda v, axis, keepdims: torch.sum(v, axis, keepdim=keepdims))

    a, b = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    made = torch.compile(lambda p, q: program(Names, p, q))

    def call() -> None:
        made(a, b)
        torch.cuda.synchronize()

    return timed(call)


def _jax(program: Callable[..., Any], x: Array, y: Array) -> float:
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    a, b = jax.device_put(x), jax.device_put(y)
    made = jax.jit(lambda p, q: program(jax.numpy, p, q))
    return timed(lambda: made(a, b).block_until_ready())


def timed(call: Callable[[], Any]) -> float:
    """Return the median host seconds of a call that waits for its result."""
    return median(laps(call, 200, PEER_SECONDS, least=5, warm=3))


# --- schedules
def schedules(rig: Rig, found: dict[str, Any]) -> None:
    """Time other schedules than the default."""
    rows = found.setdefault("schedules", {})
    for name, (program, shape, _) in PROGRAMS.items():
        ours = tuple(map(alight.asarray, operands(shape)))
        _, launches = captured(rig, program, ours)
        group = launches[-1].kernel.group
        form = nest(group)
        usual = schedule(group, form, (0,) * len(form.strides), rig.device.limits["processors"])
        grids = [usual]
        if name == "chain":
            grids += [Grid(b, e) for b in (128, 256, 512) for e in (1, 2, 4, 8)]
        elif name == "chain+sum":
            grids += [
                Grid(b, 4, 32, b, False, True, t, u)
                for b in (128, 256, 512)
                for t in (1, 2, 4, 8, 16)
                for u in (2, 4, 8)
            ]
        else:
            grids += [
                Grid(b, 4, 32, t, True, False, 1, 8) for b in (32, 64, 128, 256) for t in (32,)
            ]
            grids += [Grid(128, 4, 32, 32, False, False, 1, u) for u in (1, 4, 8)]
        for grid in grids:
            try:
                kernel = rig.backend.compile(rig.device, group, "generated", grid)
                taken = rig.seconds(launches[-1]._replace(kernel=kernel), 10)
            except Exception as error:
                rows[f"{name} {grid}"] = said(error)
                continue
            rows[f"{name} {grid}{' default' if grid is usual else ''}"] = taken
        best = sorted(
            (v, k) for k, v in rows.items() if k.startswith(f"{name} ") and not isinstance(v, str)
        )
        print(name, [(k, round(1e6 * v, 1)) for v, k in best[:6]], flush=True)


# --- calls
def five_kernels(a: Any) -> Any:
    """Return what four reductions and one loop make."""
    b = a / a.sum(axis=0, keepdims=True)
    c = b / b.sum(axis=1, keepdims=True)
    d = c / c.sum(axis=0, keepdims=True)
    return d / d.sum(axis=1, keepdims=True)


def waited(rig: Rig, call: Callable[..., Any], *arrays: Any) -> None:
    """Call, and return when the device is done, as is waited for a peer."""
    call(*arrays)
    session = rig.backend._sessions[DEVICE]
    session.runtime.streamSynchronize(session.stream(0))


def told(function: int, result: Any, types: Sequence[Any], tell: Callable[[], None]) -> Any:
    """Return a function of the driver's that tells when it is called."""
    kind = ctypes.CFUNCTYPE(result, *types)
    real = kind(function)

    def call(*given: Any) -> Any:
        tell()
        return real(*given)

    return kind(call)


def before_launch(rig: Rig, function: Callable[..., Any], *arrays: Any) -> float:
    """Return the median host seconds from a call of a plan that is ready to its first launch, the
    microsecond in which Python is told of it included."""
    session = rig.backend._sessions[DEVICE]
    kept, times = session.direct, []

    def tell() -> None:
        times.append(perf_counter())

    pointer, number = ctypes.c_void_p, ctypes.c_uint
    launch = told(kept.launch, ctypes.c_int, (pointer, *[number] * 7, *[pointer] * 3), tell)
    graph = told(kept.graph, ctypes.c_int, (pointer, pointer), tell)
    session.direct = kept._replace(
        launch=ctypes.cast(launch, pointer).value, graph=ctypes.cast(graph, pointer).value
    )
    made = alight.jit(function)
    try:
        _ = [made(*arrays) for _ in range(40)]
        taken = []
        for _ in range(300):
            times.clear()
            began = perf_counter()
            made(*arrays)
            taken += [times[0] - began] if times else []
            rig.backend.wait(rig.backend.submit(rig.device, 0, ()))
    finally:
        session.direct = kept
        rig.told.append((made, launch, graph))  # the plan may run again
    assert len(taken) > 200, len(taken)
    return median(taken)


def in_turns(rows: dict[str, Any], several: dict[str, Callable[[], Any]]) -> None:
    """Time short calls in turns, for as long as a peer is: the median seconds of each, and those of
    its best turn. What a machine does for a while, as its neighbours let it, is in all of them."""
    taken: dict[str, list[float]] = {name: [] for name in several}
    for call in several.values():
        _ = [call() for _ in range(TURN)]
    began = perf_counter()
    while perf_counter() - began < PEER_SECONDS * len(several):
        for name, call in several.items():
            taken[name].append(median(laps(call, TURN)))
    for name, turns in taken.items():
        rows[name] = median(turns)
        rows[f"{name}, its best turn"] = min(turns)


def ways(made: Any) -> list[Any]:
    """Return how each program of a jitted function is launched, and what was timed before."""
    programs = [p for p in made._learned().on_ours.values() if p and p.direct]
    found = []
    for graphs in [p.direct._sequence._graphs for p in programs]:
        native = graphs.native.runs if graphs.native is not None else None
        found.append(
            {
                "graph": graphs.faster, "why not": graphs.reason, "graphs made": graphs.made,
                "ms as a graph and one by one": [graphs.taken.get(way) for way in (True, False)],
                "runs without Python": native,
            }
        )  # fmt: skip
    return found


def calls(rig: Rig, found: dict[str, Any]) -> None:
    """Time small calls that are waited for, beside `cupy.fuse` and what Python itself takes."""
    rows = found.setdefault("calls", {})
    x, y = (a[:1024].copy() for a in operands((1024,)))
    with alight.policy(force=DEVICE, floor=0):
        ours = alight.asarray(x), alight.asarray(y)
        square = alight.asarray(x.reshape(32, 32))
        _, launches = captured(rig, chain, ours)
        made, five = alight.jit(pure_chain), alight.jit(five_kernels)
        for _ in range(40):  # traced, made ready, its graphs timed
            waited(rig, made, *ours)
            waited(rig, five, square)

        def submitted() -> None:
            rig.backend.wait(rig.backend.submit(rig.device, 0, [launches[-1]]))

        several: dict[str, Callable[[], Any]] = {
            "Python: a sum over range(100)": lambda: sum(range(100)),
            "NumPy: the chain": lambda: pure_chain(x, y),
            "jit, waited for": lambda: waited(rig, made, *ours),
            "jit, not waited for": lambda: made(*ours),
            "jit, five kernels": lambda: waited(rig, five, square),
            "jit, five kernels, not waited for": lambda: five(square),
            "namespace, downloaded": lambda: np.asarray(chain(alight, *ours)),
            "submit and wait": submitted,
        }
        try:
            several["cupy.fuse"] = fused(x, y)
        except Exception as error:
            rows["cupy.fuse"] = said(error)
        in_turns(rows, several)
        rows["ways"] = {"chain": ways(made), "five kernels": ways(five)}
        rows["jit, before the launch"] = before_launch(rig, pure_chain, *ours)
        rows["jit, five kernels, before the launch"] = before_launch(rig, five_kernels, square)


def fused(x: Array, y: Array) -> Callable[[], None]:
    """Return the chain as `cupy.fuse` has it, waited for."""
    import cupy

    def plain(p: Any, q: Any) -> Any:
        return chain(cupy, p, q)

    made = cupy.fuse(plain)
    a, b = cupy.asarray(x), cupy.asarray(y)

    def call() -> None:
        made(a, b)
        cupy.cuda.get_current_stream().synchronize()

    call()
    return call


_EXPRESSION = "sqrt(x * x + y * y) * exp(-x) + sin(y) * half"


def host(rig: Rig, found: dict[str, Any]) -> None:
    """Time the chain from NumPy arrays to NumPy arrays."""
    import cupy
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = found.setdefault("host", {})
    for dtype in (np.float32, np.float64):
        p, q = (a.astype(dtype) for a in operands((FULL,)))
        for power in (20, 24, 27):
            x, y = p[: 1 << power], q[: 1 << power]
            name = f"2^{power} {dtype.__name__}"
            made, jitted = alight.jit(pure_chain), jax.jit(lambda p, q: chain(jax.numpy, p, q))
            with alight.policy(force=DEVICE, floor=0):
                rows[f"{name} alight"] = timed(lambda: np.asarray(made(x, y)))  # noqa: B023
            rows[f"{name} cupy"] = timed(
                lambda: cupy.asnumpy(chain(cupy, cupy.asarray(x), cupy.asarray(y)))  # noqa: B023
            )
            rows[f"{name} jax"] = timed(lambda: np.array(jitted(x, y)))  # noqa: B023
            if power == 27:
                continue
            rows[f"{name} numpy"] = timed(lambda: chain(np, x, y))  # noqa: B023
            placed = alight.jit(pure_chain)
            with alight.policy(devices=(DEVICE, "cpu")):
                rows[f"{name} alight, placed"] = timed(lambda: placed(x, y))  # noqa: B023
            if find_spec("numexpr") is not None:
                import numexpr

                half = np.float32(0.5)
                given = {"x": x, "y": y, "half": half}
                rows[f"{name} numexpr"] = timed(
                    lambda: numexpr.evaluate(_EXPRESSION, local_dict=given)  # noqa: B023
                )


def in_processes(
    module: str, arguments: Sequence[Sequence[str]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return what a module prints in its last line, run with each of these arguments at once; and
    of those that printed nothing how they ended, with the last they said."""
    rows, died = [], {}
    with ExitStack() as files:
        running = []
        for given in arguments:
            # of its own: a pipe that nobody reads would hold the process up
            words = files.enter_context(TemporaryFile("w+"))
            call = [sys.executable, "-m", module, *given]
            running.append((given, words, Popen(call, stdout=PIPE, stderr=words, text=True)))
        for given, words, process in running:
            lines = process.communicate()[0].strip().splitlines()
            try:
                rows.append(json.loads(lines[-1]))
            except (IndexError, ValueError):
                words.seek(0)
                last = " | ".join(words.read().strip().splitlines()[-3:])
                died[" ".join([module, *given])] = f"ended with {process.returncode}: {last[-350:]}"
    return rows, died


def in_shares(module: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return what a module prints of its cases, shared among most of the processors."""
    count = max(1, (os.cpu_count() or 1) * 3 // 4)
    return in_processes(module, [(str(i), str(count)) for i in range(count)])


def fuzz(rig: Rig, found: dict[str, Any]) -> None:
    """Run random programs on the device, in processes of their own."""
    given = [("cuda", str(10_000 * i + 1), str(FUZZED)) for i in range(8)]
    rows, died = in_processes("fuzzing", given)
    bodies, others = in_processes("fuzzing.jitted", given)
    failed = [failure for row in rows for failure in row["failures"]]
    failed += [wrong for row in bodies for wrong in row["differences"]]
    found["fuzz"] = {
        "operations": sum(row["operations"] for row in rows),
        "statements": sum(row["statements"] for row in bodies),
        "failed": failed,
        "died": died | others,
    }


PARTS = {
    f.__name__: f
    for f in (
        bits, trusted, reductions, faults, capped, workloads, prices, resident, schedules, calls,
        host, fuzz,
    )
}  # fmt: skip


def machine(rig: Rig) -> dict[str, Any]:
    """Return what the machine is."""
    smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False).stdout
    return {
        "device": str(rig.device), "python": platform.python_version(), "numpy": np.__version__,
        "platform": platform.platform(), "nvidia-smi": smi.splitlines()[:20],
    }  # fmt: skip


def main() -> int:
    """Run the parts named on the command line; return 1 if one of them found a fault."""
    parser = argparse.ArgumentParser(prog="tests.ratchets.cuda", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "ratchets")
    given = parser.parse_args()
    began = perf_counter()
    rig = Rig()
    found: dict[str, Any] = {"machine": machine(rig), "started": perf_counter() - began}
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.parts:
        start = perf_counter()
        try:
            PARTS[name](rig, found)
        except Exception:
            found[f"{name} failed"] = traceback.format_exc()[-1500:]
        found.setdefault("part seconds", {})[name] = round(perf_counter() - start, 1)
        (given.out / "cuda.json").write_text(json.dumps(found, indent=1, default=str))
    print(json.dumps(found, indent=1, default=str)[-9000:])
    wrong = faults_of(found)
    for line in wrong[:SHOWN]:  # at the end, where they are seen
        print(f"fault: {line}")
    if len(wrong) > SHOWN:
        print(f"… and {len(wrong) - SHOWN} more")
    return 1 if wrong else 0


def faults_of(found: dict[str, Any]) -> list[str]:
    """Return what is wrong in what the parts found, a line each."""
    wrong = [
        f"{name}: {text.strip().splitlines()[-1]}"
        for name, text in found.items()
        if name.endswith(" failed")
    ]
    for part in ("bits", "trusted", "reductions", "faults", "capped", "workloads", "fuzz"):
        for key in ("differing", "failed", "died"):
            rows = found.get(part, {}).get(key, ())
            if isinstance(rows, dict):
                wrong += [f"{part}: {key}: {name}: {row}" for name, row in rows.items()]
            else:
                wrong += [f"{part}: {key}: {_named(row)}" for row in rows]
    return [line[:LINE] for line in wrong]


def _named(row: Any) -> str:
    """Return a failure's fields, what tells it from others first, and its program left out."""
    if not isinstance(row, dict):
        return str(row)
    fields = ("seed", "mode", "where", "message", *row)
    kept = [name for name in dict.fromkeys(fields) if name in row.keys() - {"program", "steps"}]
    return ", ".join([f"{name} {row[name]}" for name in kept])


if __name__ == "__main__":
    sys.exit(main())
