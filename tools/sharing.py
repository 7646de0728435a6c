"""Show what sharing kernels among threads gives here: bandwidth by size and threads.

    python tools/sharing.py [--seconds S] [--threads N]

For ``2.5 * x + 1.5 * x * x`` (one array read, one written), a sum and an inner product (one and
two read), from what one core's caches hold to what none does: GB/s, STREAM's counting, as the
launcher chooses among at most 1, 2, 4, ... threads after it was left to learn, called in a row; and
with all of them after pauses in which they fall asleep. ``machine`` is what copies and maxima reach
with a thread on every core and the same bytes in all (``alight._src.bench``), ``share``
the launcher's part of it with all threads. All numbers are medians; the columns take turns.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from alight._core import layout_of, threads
from alight._src.bench import bandwidth
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.measure.profiles import share_costs
from alight._src.measure.timing import time_threads
from alight.backends.machine import cpu_model, thread_count
from alight.backends.split import launcher

Array = np.ndarray[Any, Any]
SIZES = tuple(1 << i for i in range(12, 26))  # float64: 32 KiB to 256 MiB an array
LEARN = 40  # runs before one is timed: more than it takes to try every number of threads
PAUSE = 1e-3  # long enough for threads to fall asleep


def quadratic(x: Array, out: Array) -> Group:
    """Return the group of ``2.5 * x + 1.5 * x * x``."""
    layout, one = layout_of(x), layout_of(np.array(1.0))
    mul, add = OPS["multiply"], OPS["add"]
    nodes = (
        Node(mul, (0, 1), (), layout),
        Node(mul, (0, 0), (), layout),
        Node(mul, (4, 2), (), layout),
        Node(add, (3, 5), (), layout),
    )
    return Group(GroupKind.LOOP, Graph((layout, one, one), nodes, (6,)), x.shape)


def reduction(x: Array, pairs: bool) -> Group:
    """Return the group of a sum, or of the sum of products with a second array."""
    layout, one = layout_of(x), layout_of(np.zeros(()))
    attrs = (("axis", (0,)), ("keepdims", False))
    if not pairs:
        nodes = (Node(OPS["sum"], (0,), attrs, one),)
        return Group(GroupKind.REDUCE, Graph((layout,), nodes, (1,)), x.shape)
    product = Node(OPS["multiply"], (0, 1), (), layout)
    nodes = (product, Node(OPS["sum"], (2,), attrs, one))
    return Group(GroupKind.REDUCE, Graph((layout, layout), nodes, (3,)), x.shape)


def programs(n: int) -> dict[str, tuple[Group, list[Array], int]]:
    """Return groups with what they run on and the bytes they move."""
    x, y = np.random.default_rng(1).random((2, n))
    out, cell = np.empty(n), np.zeros(())
    a, b = np.array(2.5), np.array(1.5)
    return {
        "quadratic": (quadratic(x, out), [x, a, b, out], 2 * x.nbytes),
        "sum": (reduction(x, False), [x, cell], x.nbytes),
        "dot": (reduction(x, True), [x, y, cell], 2 * x.nbytes),
    }


def runner(group: Group, arrays: list[Array], most: int) -> Callable[[], float]:
    """Return what runs a group once and gives its seconds."""
    launch = launcher(group, object_code.compile_group(group), most)
    places = [a.__array_interface__["data"][0] for a in arrays]

    def once() -> float:
        began = time.perf_counter()
        launch(places)
        return time.perf_counter() - began

    return once


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.4, help="for each row")
    parser.add_argument("--threads", type=int, default=thread_count())
    chosen = parser.parse_args()
    most = chosen.threads
    threads.set_threads(most)
    costs = {name: timing.measured() for name, timing in time_threads().items()}
    print(", ".join(cpu_model()), f"{most} threads;", end=" ")
    print(", ".join(f"{name} {cost.value * 1e6:.1f} us" for name, cost in costs.items()))
    counts = [1 << i for i in range(most.bit_length()) if 1 << i < most] + [most]
    head = "".join(f"{count:>8}" for count in counts)
    print(f"{'GB/s on':22}{head}  paused  machine  share")
    limits = bandwidth.measure().curve
    for n in SIZES:
        for name, (group, arrays, moved) in programs(n).items():
            rows: dict[Any, Callable[[], float]] = {}
            for count in (*counts, "paused"):
                threads.set_threads(most if count == "paused" else int(count))
                share_costs(costs)
                rows[count] = runner(group, arrays, threads.state()["threads"])
                for _ in range(LEARN):
                    rows[count]()
            took: dict[Any, list[float]] = {count: [] for count in rows}
            began = time.perf_counter()
            while time.perf_counter() - began < chosen.seconds or len(took["paused"]) < 3:
                for count, once in rows.items():
                    threads.set_threads(most if count == "paused" else count)
                    if count == "paused":
                        time.sleep(PAUSE)
                        took[count].append(once())
                    else:
                        once()
                        took[count] += [once() for _ in range(8)]
            rate = {count: moved / median(seconds) / 1e9 for count, seconds in took.items()}
            bytes_used = sum(array.nbytes for array in arrays)
            limit = min(limits, key=lambda point: abs(math.log(point[0] / bytes_used)))[1] / 1e9
            cells = "".join(f"{rate[count]:8.1f}" for count in counts)
            print(
                f"{name:10}{n * 8 >> 10:>8} KiB{cells}{rate['paused']:8.1f}{limit:9.1f}"
                f"{rate[most] / limit:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
