"""One peer in a process of its own: takes requests, a line of JSON each, and answers in kind.

Thread pools that spin after their work (OpenMP's, BLAS's, XLA's) would take the processor from
whoever is timed next, in the same process or not. So each peer has its own process, and none says
that it is done before its threads have come to rest.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from alight._src.bench.device_peers import peers_on
from alight._src.bench.inputs import SEED, Arrays, placed
from alight._src.bench.peers import HOST, Call, CannotRun, NumPy, Peer, package_version, several
from alight._src.bench.programs import PROGRAMS, Program
from alight._src.measure.timing import Pace, calls_lasting, host_clock, quiet, settled

# One sample: 10 times what time-slices of a busy machine and the clock make of a shorter one.
SAMPLE_SECONDS = 2e-4
# Calls shorter than this are warmed up anew in every turn: the other peers have had the caches.
REWARMED_SECONDS = 0.03
# For so long a turn waits for a steady processor: slow moments last some tenths of a second (EPYC),
# and others have their turns meanwhile.
_STEADY_SECONDS = 0.05
# At rest: no other thread runs in so many looks, one after the other. OpenBLAS's spin for 0.1 s.
_LOOK_SECONDS, _LOOKS, _REST_SECONDS = 5e-4, 3, 0.5
# Where only processor time can be asked for: it is added up at ticks of 10 ms and less,
# so that a look must see one. At rest then: less than a tenth of one processor.
_TICK_SECONDS, _AT_REST = 0.02, 0.1
_TASKS = Path("/proc/self/task")
# A first call touches memory and caches anew, a second may still find code to compile.
_CALLS = 2
# Compiling a large program takes so long; who has settled does not wait for it.
_SETTLE_SECONDS = 1.0
_BLOCK = 1 << 16  # elements compared at a time: they and their difference stay in the cache


class Server:
    """What a worker has open: one program on one set of arrays."""

    def __init__(self, name: str, device: str = HOST) -> None:
        self.name = name
        self.peer: Peer = peers_on(device)[name]()
        self.program: Program | None = None
        self.call: Call | None = None
        self.plain: Call | None = None  # the same function on the same arrays, by NumPy alone
        self.calls = 1
        self.plain_calls: int | None = None
        self.cold_seconds = 0.0
        self.pace = Pace()
        self._kept: list[tuple[Call, int]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request."""
        action = getattr(self, f"on_{request.pop('do')}")
        answered: dict[str, Any] = action(**request)
        return answered

    def on_hello(self) -> dict[str, Any]:
        """Say who is here."""
        peer = self.peer
        return {
            "version": package_version(peer), "settings": peer.settings(), "timed": peer.timed,
        }  # fmt: skip

    def on_open(self, program: str, n: int, dtype: str, reference: str) -> dict[str, Any]:
        """Make the arrays, call once, compare with the reference, which NumPy's worker makes.

        NumPy's compares as well: a process that has had other memory before gets other memory now.
        """
        self.on_close()
        self.program = PROGRAMS[program]
        drawn = self.program.inputs(n, np.dtype(dtype), np.random.default_rng(SEED))
        arrays = placed(drawn)
        del drawn
        empty = [i for i, array in enumerate(arrays) if not array.any()]
        call = self.peer.call(self.program, arrays)
        began = perf_counter()
        result = call()
        self.cold_seconds = perf_counter() - began
        outputs = self.peer.host(result)
        loose = {i for i, x in enumerate(several(result)) if type(x) in (float, int)}
        answer: dict[str, Any] = {
            "cold_seconds": self.cold_seconds,
            "elements": [int(x.size) for x in arrays],
            "results": [int(x.size) for x in outputs],
            "bytes": sum(x.nbytes for x in (*arrays, *outputs)),
            "zero_inputs": empty,
            "finite": all(_finite(x) for x in outputs),
        }
        oracle = self.program.oracle
        if oracle is not None and n >= self.program.least:
            answer["oracle"] = oracle(outputs, n)
        if self.name == "numpy":
            exactly = self.program.exactly
            right = outputs if exactly is None else self.peer.host(exactly(*arrays))
            for i, output in enumerate(right):
                np.save(f"{reference}.{i}.npy", output)
        answer["apart"], answer["error_eps"] = compare(outputs, reference, loose, dtype)
        self.call = call
        if self.name == "alight":  # others let go of the host's arrays where they have their own
            self.plain = NumPy().call(self.program, arrays)
        return answer

    def on_warm(self, least_seconds: float) -> dict[str, Any]:
        """Call until so long has passed, twice at least, and until calls go the way of all later
        ones; return how long a call takes then, and what it took to get there."""
        assert self.call is not None and self.program is not None
        take = host_clock(self.call)
        taken = [self.cold_seconds]
        answer: dict[str, Any] = {}
        for _ in range(2):
            began = perf_counter()
            while True:
                if "settled_calls" not in answer and self.peer.settled(self.program):
                    answer["settled_calls"] = len(taken)
                spent = perf_counter() - began
                enough = least_seconds if "settled_calls" in answer else _SETTLE_SECONDS
                if len(taken) > _CALLS and spent >= enough:
                    break
                taken.append(take(1))
            rest()
            if "settled_calls" in answer:
                break
            self.peer.settle()  # its kernels are waited for, and it goes on
        self.calls, spent = calls_lasting(take, SAMPLE_SECONDS)
        usual = spent / self.calls
        before = taken[: answer.get("settled_calls", len(taken))]
        answer["settling_seconds"] = sum(max(0.0, seconds - usual) for seconds in before)
        return {**answer, "seconds": usual, "calls": self.calls}

    def on_take(self, samples: int) -> dict[str, Any]:
        """Return seconds of one call, so many times, and whether the processor was as fast before
        as it has ever been for this process."""
        assert self.call is not None
        return self._turn(host_clock(self.call), self.calls, samples)

    def on_take_plain(self, samples: int) -> dict[str, Any]:
        """Return what `on_take` does, of NumPy in this very process and on the same arrays."""
        assert self.plain is not None
        take = host_clock(self.plain)
        if self.plain_calls is None:
            self.plain_calls, _ = calls_lasting(take, SAMPLE_SECONDS)
        return self._turn(take, self.plain_calls, samples)

    def on_pair(self, rounds: int) -> dict[str, Any]:
        """Return seconds of one call and of NumPy's, one right after the other, so many times, each
        time beginning with the other one: what both meet for a while is in both."""
        assert self.call is not None and self.plain is not None
        takes = host_clock(self.call), host_clock(self.plain)
        found: tuple[list[float], list[float]] = ([], [])
        with quiet():
            for take in takes:
                settled(take, self.calls, take(self.calls))
            for round_ in range(rounds):
                for way in (round_ % 2, 1 - round_ % 2):
                    found[way].append(takes[way](self.calls) / self.calls)
        return {"samples": found[0], "plain": found[1]}

    def _turn(self, take: Callable[[int], float], calls: int, samples: int) -> dict[str, Any]:
        with quiet():
            self.pace.steady()  # a thread that has slept finds its caches cold
            # Before the call: threads that spin after it would slow down the process's own pace.
            steady = self.pace.awaited(_STEADY_SECONDS)
            first = take(1)
            taken = [] if first < REWARMED_SECONDS else [first]
            if not taken:  # the other peers had the caches, which fill up again slowly
                settled(take, calls, take(calls))
            while len(taken) < samples:
                taken.append(take(calls) / calls)
        return {"samples": taken, "steady": steady}

    def on_keep(self) -> dict[str, Any]:
        """Keep what is open for turns among several; return by which number."""
        assert self.call is not None
        self._kept.append((self.call, self.calls))
        self.on_close()
        return {"kept": len(self._kept) - 1}

    def on_turn(self, kept: int, samples: int) -> dict[str, Any]:
        """Return what `on_take` does, of one that was kept."""
        self.call, self.calls = self._kept[kept]
        return self.on_take(samples)

    def on_drop(self) -> dict[str, Any]:
        """Let go of all that was kept."""
        self._kept.clear()
        return self.on_close()

    def on_explain(self) -> dict[str, Any]:
        """Return what ran where."""
        return {"lines": self.peer.explain(), "settings": self.peer.settings()}

    def on_digest(self, program: str, n: int, dtype: str) -> dict[str, Any]:
        """Return a digest of the result's bits."""
        from hashlib import sha256

        chosen = PROGRAMS[program]
        arrays: Arrays = chosen.inputs(n, np.dtype(dtype), np.random.default_rng(SEED))
        call = self.peer.call(chosen, arrays)
        call()
        hashed = sha256()
        for output in self.peer.host(call()):
            hashed.update(np.ascontiguousarray(output).data)
        return {"digest": hashed.hexdigest()[:16], "lines": self.peer.explain()}

    def on_close(self) -> dict[str, Any]:
        """Let go of the arrays."""
        self.call = self.plain = self.program = self.plain_calls = None
        gc.collect()
        return {}


def _finite(array: np.ndarray[Any, Any]) -> bool:
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[i : i + _BLOCK]).all()) for i in range(0, flat.size, _BLOCK))


def compare(
    outputs: Arrays, reference: str, loose: set[int], dtype: str
) -> tuple[str | None, float]:
    """Return what differs in kind, if anything, and how many epsilons the values are apart.

    An output that came as a plain Python number has no dtype to compare.
    """
    worst = 0.0
    for i, got in enumerate(outputs):
        try:
            want = np.load(f"{reference}.{i}.npy", mmap_mode="r")
        except FileNotFoundError:
            return f"has {len(outputs)} results", worst
        if got.shape != want.shape:
            return f"result {i} has shape {got.shape}, not {want.shape}", worst
        if got.dtype != want.dtype and i not in loose:
            return f"result {i} is {got.dtype}, not {want.dtype}", worst
        worst = max(worst, _apart(got.reshape(-1), want.reshape(-1), float(np.finfo(dtype).eps)))
    return None, worst


def _apart(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], eps: float) -> float:
    blocks = range(0, want.size, _BLOCK)
    if want.dtype.kind != "f":
        same = all(np.array_equal(got[i : i + _BLOCK], want[i : i + _BLOCK]) for i in blocks)
        return 0.0 if same else float("inf")
    squares = sum(float(np.square(want[i : i + _BLOCK], dtype=np.float64).sum()) for i in blocks)
    scale = (squares / want.size) ** 0.5
    worst = 0.0
    for i in blocks:
        a, b = got[i : i + _BLOCK], want[i : i + _BLOCK]
        off = float((np.abs(a - b) / np.maximum(np.abs(b), scale)).max())
        worst = max(worst, off) if off == off else float("inf")
    return worst / eps


def rest() -> None:
    """Return when this process's other threads no longer run, or will not stop."""
    until = perf_counter() + _REST_SECONDS
    looks = 0
    while looks < _LOOKS and perf_counter() < until:
        looks = 0 if _others_run() else looks + 1


def _others_run() -> bool:
    """Tell whether other threads of this process run, or wait for a processor, after a moment."""
    if _TASKS.is_dir():
        sleep(_LOOK_SECONDS)
        own = str(threading.get_native_id())
        return any(_runs(task) for task in os.listdir(_TASKS) if task != own)
    used, began = process_time(), perf_counter()
    sleep(_TICK_SECONDS)
    return process_time() - used >= _AT_REST * (perf_counter() - began)


def _runs(task: str) -> bool:
    try:
        told = (_TASKS / task / "stat").read_bytes()
    except OSError:  # it has ended meanwhile
        return False
    return told.rpartition(b")")[2].split(None, 1)[0] == b"R"


def serve(name: str, device: str) -> None:
    """Answer requests until there are no more."""
    # Compilers print where they like; the answers must stay apart from that.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        server = Server(name, device)
    except Exception as error:  # a broken package raises anything
        say({"error": _in_words(error), "absent": True})
        return
    say(server.on_hello())
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # compilers raise anything
            server.on_close()
            answer = {"error": _in_words(error)}
        rest()
        say(answer)


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, CannotRun) else f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    serve(*sys.argv[1:])
