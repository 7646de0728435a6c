"""Threads that write disjoint parts of shared arrays: afterwards these must be what NumPy makes.

``python -m fuzzing.threaded DOOR MODE FIRST_SEED STATEMENTS`` prints a line of JSON. A thread's
part is a slice, every so-manieth row, or what a mask or a list of indices picks; what threads do to
their parts commutes, so that NumPy may do it one thread after the other.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import alight

from .jitted import MODES
from .program import DEVICES

__all__ = ["DOORS", "Difference", "differs", "run_many"]

DOORS = ("namespace", "jitted")
THREADS = 4
_ROUNDS = 6  # a thread does its statements so often
_STATEMENTS = (2, 6)
# {p} is the thread's part of the shared array `w`, {m} a mask of it, {z} indices of it; `v` is an
# array that nobody writes, `x` the thread's own.
TEMPLATES = """
w[{p}] += 1
w[{p}] = w[{p}] * 1 + 2
w[{p}] = {k}
w[{p}] = v[{p}] + {k}
w[{p}] *= 2; w[{p}] %= 97
np.add(w[{p}], {k}, out=w[{p}])
np.add(w, {k}, out=w, where={m})
np.copyto(w, v, where={m})
np.copyto(w, w + 1, where={m})
w[{m}] = {k}
w[{m}] += 1
w[{z}] += 1
w[{z}] = {k}
np.put(w, {z}, {k})
x = w[{p}] + 1; x[0] = {k}; w[{p}] = x
x = w[{p}].copy(); x += 1; w[{p}] = x
x = w[{p}]; x += 1
x = w[{p}]; x[...] = x[::-1]
w[{p}].fill({k})
"""
_LINES = TEMPLATES.strip().splitlines()


@dataclass(slots=True)
class Difference:
    """What a program's shared array was, and must have been."""

    seed: int
    door: str
    mode: str
    message: str
    program: str


def drawn(seed: int) -> tuple[str, str]:
    """Return the program of a seed, a function for each thread; and how the array is made."""
    r = random.Random(seed)
    size = r.choice((8, 40, 4000, 400_000)) // THREADS * THREADS
    dtype = r.choice(("float64", "int64", "float32"))
    texts = []
    strided = r.random() < 0.4
    for thread in range(THREADS):
        share = size // THREADS
        low = thread * share
        part = f"{thread}::{THREADS}" if strided else f"{low}:{low + share}"
        first = thread if strided else low
        step = THREADS if strided else 1
        indices = [first + step * r.randrange(share) for _ in range(2)]
        fields = {"p": part, "m": f"m{thread}", "z": sorted(set(indices))}
        lines = [
            r.choice(_LINES).format(k=r.randint(0, 9), **fields)
            for _ in range(r.randint(*_STATEMENTS))
        ]
        masks = ", ".join([f"m{t}" for t in range(THREADS)])
        inner = "".join([f"    {line}\n" for line in lines])
        texts.append(f"def work{thread}(w, v, {masks}):\n{inner}")
    made = f"w = np.arange({size}).astype({dtype!r}) % 9\n"
    made += f"v = np.arange({size}).astype({dtype!r}) % 5\n"
    at = (
        "np.arange({size}) % {threads} == {t}" if strided else "np.arange({size}) // {share} == {t}"
    )
    for t in range(THREADS):
        made += f"m{t} = {at.format(size=size, threads=THREADS, share=size // THREADS, t=t)}\n"
    return "".join(texts), made


def differs(seed: int, door: str, mode: str) -> tuple[int, Difference | None]:
    """Return the statements of a program, and how it differs from NumPy."""
    text, made = drawn(seed)
    count = sum(line.startswith("    ") for line in text.splitlines())
    plain = _names(text, made, np)
    works = [plain[f"work{t}"] for t in range(THREADS)]
    given = [plain[name] for name in ("w", "v", *[f"m{t}" for t in range(THREADS)])]
    for work in works:
        for _ in range(_ROUNDS):
            work(*given)
    ours = _names(text, made, alight if door == "namespace" else np)
    works = [ours[f"work{t}"] for t in range(THREADS)]
    if door == "jitted":
        works = [alight.jit(work) for work in works]
    shared = [ours[name] for name in ("w", "v", *[f"m{t}" for t in range(THREADS)])]
    errors: list[str] = []
    begin = threading.Barrier(THREADS)

    def run(work: Callable[..., Any]) -> None:
        begin.wait()
        try:
            with alight.policy(**(MODES | DEVICES)[mode]):
                for _ in range(_ROUNDS):
                    work(*shared)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = np.arange(0)
    try:
        wrong = np.flatnonzero(np.asarray(ours["w"]) != plain["w"])
    except Exception as error:  # what a thread left pending is computed here
        errors.append(f"{type(error).__name__}: {error}")
    if not errors and not wrong.size:
        return count, None
    message = "; ".join(errors) or f"{wrong.size} elements differ, the first at {wrong[0]}"
    return count, Difference(seed, door, mode, message, text + made)


def _names(text: str, made: str, namespace: Any) -> dict[str, Any]:
    names = {"np": namespace}
    exec(compile(text + made, "<threads>", "exec"), names)
    return names


def run_many(door: str, mode: str, first: int, statements: int) -> tuple[int, list[Difference]]:
    """Run programs until their threads' functions had so many statements."""
    done, seed = 0, first
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while done < statements:
            count, wrong = differs(seed, door, mode)
            done += count
            seed += 1
            if wrong is not None:
                found.append(wrong)
    return done, found


def main() -> None:
    door, mode = sys.argv[1:3]
    done, found = run_many(door, mode, int(sys.argv[3]), int(sys.argv[4]))
    rows = [asdict(wrong) for wrong in found]
    print(json.dumps({"statements": done, "differences": rows}))


if __name__ == "__main__":
    main()
