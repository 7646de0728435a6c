"""How often a walk through the code comes back to a file it has left: ``python tools/walks.py``.

A walk is one piece of work from end to end: the arguments of a jitted call, a launch step, a group
through the cost model, a graph through planning. Each Python function of alight's that is called
on the way is an event; an event in another file than the last one is a step, and a step into a file
that the walk has been in before is a return. Nothing is cut, unless ``--cut`` says so. Of each kind
the figures are means over six programs, each the first of its shapes in the process; ``--asked``
lists which functions of the rooms that know groups were called, how often, and from which files.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import alight
from alight._src.adapt import planner_facts
from alight._src.jit import decorator
from alight._src.plan import cost, place
from alight._src.plan.curve import Curve, guess
from alight._src.plan.profile import Profile, Rates
from alight._src.run import execute

ROOT = str(Path(alight.__file__).parent) + "/"
KINDS = (
    "elementwise",
    "select",
    "reduce_inner",
    "reduce_outer",
    "scan",
    "move",
    "gather",
    "matmul",
)
ASKED = ("ir/", "codegen/common/loops.py")


class Walk:
    """The functions called in one piece of work, in their order."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.called: Counter[tuple[str, str, str]] = Counter()  # file, function, the caller's file

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        if frame.f_code.co_name.startswith("<"):
            return
        file = frame.f_code.co_filename.removeprefix(ROOT).removeprefix("_src/")
        caller = frame.f_back.f_code.co_filename.removeprefix(ROOT).removeprefix("_src/")
        self.files.append(file)
        self.called[file, frame.f_code.co_name, caller] += 1

    def returns(self, cut: int | None = None) -> int:
        """Return how many steps lead into a file that was left before."""
        found, seen, last = 0, set(), ""
        for file in self.files[:cut]:
            if file != last:
                found += file in seen
            seen.add(file)
            last = file
        return found


WALKS: dict[str, list[Walk]] = defaultdict(list)
_current: list[Walk | None] = [None]


@contextmanager
def walking(name: str) -> Iterator[None]:
    """Count what is called inside; a walk inside another is a walk of its own."""
    walk = Walk()
    outer = _current[0]
    _current[0] = walk
    sys.setprofile(walk)
    try:
        yield
    finally:
        sys.setprofile(outer)
        _current[0] = outer
        WALKS[name].append(walk)


def walked(owner: Any, attribute: str, name: str) -> None:
    """Have each call of a function be a walk."""
    inner: Callable[..., Any] = getattr(owner, attribute)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        with walking(name):
            return inner(*args, **kwargs)

    setattr(owner, attribute, outer)


def rates() -> Rates:
    """Return rates in which every class was measured."""
    knots = [(n, 1e-6 + 1e-10 * n) for n in (1 << i for i in range(4, 31))]
    curves = {f"{kind}/float64": Curve(knots) for kind in KINDS}
    known = {"flop/float64": guess(1e-10, "seconds"), "special/float64": guess(1e-9, "seconds")}
    launch = guess(1e-6, "seconds")
    return Rates(launch, launch, curves, known, guess(0.5, "share"), 0.1)


def chain(a: Any, b: Any) -> Any:
    """Return an elementwise chain."""
    return np.sqrt(a * 2.0 + b) - np.exp(a) * b


def reductions(a: Any, b: Any) -> Any:
    """Return reductions over axis 0, axis 1 and all."""
    return (a * b).sum(axis=0), (a + b).sum(axis=1), a.max()


def softmax(a: Any, b: Any) -> Any:
    """Return a softmax of each row."""
    e = np.exp(a - a.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def product(a: Any, b: Any) -> Any:
    """Return a product with an epilogue."""
    return np.maximum(a @ b.T + 1.0, 0.0)


def stencil(a: Any, b: Any) -> Any:
    """Return a periodic stencil."""
    return np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) - 4.0 * a


def nearest(a: Any, b: Any) -> Any:
    """Return places of maxima."""
    return np.argmax(a * b, axis=1)


PROGRAMS = (chain, reductions, softmax, product, stencil, nearest)


def main() -> None:
    """Print how often each kind of walk returned."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--asked", action="store_true")
    parser.add_argument("--cut", type=int)
    options = parser.parse_args()
    own = rates()
    profile = Profile("cpu", {"numpy": own, "generated": own, "library": own})
    planner_facts._profiles["cpu"] = profile
    walked(cost, "estimate", "group")
    walked(place, "make_plan", "graph")
    walked(execute.Execution, "_launch", "step")
    walked(decorator.Jitted, "miss", "call")
    for program in PROGRAMS:
        jitted = alight.jit(program)
        a, b = np.random.default_rng(0).random((2, 700, 600))
        with alight.policy(floor=0):
            jitted(a, b)
    report = {
        name: {
            "walks": len(walks),
            "events": round(sum(len(w.files) for w in walks) / len(walks), 1),
            "returns": round(sum(w.returns(options.cut) for w in walks) / len(walks), 1),
            "most": max(w.returns(options.cut) for w in walks),
        }
        for name, walks in WALKS.items()
    }
    print(json.dumps(report, indent=1))
    if options.asked:
        asked: Counter[tuple[str, str]] = Counter()
        by: dict[tuple[str, str], set[str]] = defaultdict(set)
        for walk in [w for walks in WALKS.values() for w in walks]:
            for (file, function, caller), count in walk.called.items():
                if file.startswith(ASKED):
                    asked[file, function] += count
                    by[file, function].add(caller)
        for key, count in asked.most_common(40):
            print(f"{count:6} {'.'.join(key):45} {' '.join(sorted(by[key]))}")


if __name__ == "__main__":
    main()
