"""Measure elementwise ops in generated kernels against NumPy; write ``bench-results/maths.json``.

    python tools/speed.py [NAME ...]

One thread, 10,000 elements, results into memory that is there already; the two take turns, and the
least of many runs counts. Rows of ops that are not named stay as they are.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from alight._core import layout_of
from alight._src.codegen.llvm import object_code
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS, Kind, Op
from alight._src.measure.timing import laps
from alight.backends.machine import cpu_model

Array = np.ndarray[Any, Any]
RESULT = Path(__file__).parent.parent / "bench-results/maths.json"
COUNT = 10_000
TURNS, RUNS = 12, 40
# what has no vector instruction in NumPy's arithmetic loops: beside the transcendentals
MORE = (
    *("fmod", "remainder", "floor_divide", "divmod", "modf", "frexp", "nextafter", "spacing"),
    *("copysign", "heaviside", "degrees", "sqrt", "divide", "sign"),
)


def operands(op: Op, dtype: np.dtype[Any]) -> list[Array]:
    """Return ordinary operands: all of an op's domain that gives finite results."""
    random = np.random.default_rng(3)
    name = op.name
    if name in ("log", "log2", "log10"):
        found = [np.exp(random.uniform(-10, 10, COUNT))]
    elif name == "log1p":
        found = [np.exp(random.uniform(-10, 10, COUNT)) - 0.9]
    elif name in ("arcsin", "arccos", "arctanh"):
        found = [random.uniform(-1, 1, COUNT)]
    elif name == "arccosh":
        found = [1 + np.exp(random.uniform(-5, 5, COUNT))]
    elif name in ("power", "float_power"):
        found = [np.exp(random.uniform(-3, 3, COUNT)), random.uniform(-10, 10, COUNT)]
    elif name == "sqrt":
        found = [random.uniform(0, 10, COUNT)]
    else:
        found = [random.uniform(-10, 10, COUNT) for _ in range(op.nin)]
    return [x.astype(dtype) for x in found]


def measure(op: Op, dtype: np.dtype[Any]) -> dict[str, float]:
    """Return nanoseconds for an element, ours and NumPy's, and the seconds of the first compile."""
    inputs = operands(op, dtype)
    found = op.reference(*inputs)
    outputs = [np.empty_like(a) for a in (found if isinstance(found, tuple) else (found,))]
    nodes = tuple(
        Node(op, tuple(range(op.nin)), (("output", i),) if op.nout > 1 else (), layout_of(a))
        for i, a in enumerate(outputs)
    )
    places = tuple(range(op.nin, op.nin + op.nout))
    graph = Graph(tuple(map(layout_of, inputs)), nodes, places)
    began = time.perf_counter()
    kernel = object_code.compile_group(Group(GroupKind.LOOP, graph, (COUNT,)))
    compiled = time.perf_counter() - began
    addresses = [int(a.__array_interface__["data"][0]) for a in (*inputs, *outputs)]
    ours = numpy = float("inf")
    for _ in range(TURNS):
        ours = min(ours, laps(lambda: kernel(addresses), RUNS)[0])
        plain = laps(lambda: op.reference(*inputs, out=tuple(outputs)), RUNS)
        numpy = min(numpy, plain[0])
    each = 1e9 / COUNT
    return {
        "alight_ns": round(ours * each, 3),
        "numpy_ns": round(numpy * each, 3),
        "ratio": round(ours / numpy, 3),
        "compile_ms": round(compiled * 1e3, 1),
    }


def main() -> None:
    """Measure, print and write."""
    wanted = sys.argv[1:]
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else {}
    for op in OPS.values():
        if op.kind is not Kind.ELEMENTWISE or not (op.special or op.name in MORE):
            continue
        if wanted and op.name not in wanted:
            continue
        for dtype in ("float64", "float32"):
            if op.name == "float_power" and dtype == "float32":
                continue  # NumPy has no such loop
            with np.errstate(all="ignore"):
                row = measure(op, np.dtype(dtype))
            rows[f"{op.name}/{dtype}"] = row
            print(f"{op.name:14s} {dtype} {row}", flush=True)
    ratios = [row["ratio"] for row in rows.values()]
    document = {
        "machine": " ".join(cpu_model()),
        "numpy": np.__version__,
        "compiler": ".".join(map(str, object_code.llvm.llvm_version_info)),
        "elements": COUNT,
        "threads": 1,
        "geometric_mean_ratio": round(float(np.exp(np.mean(np.log(ratios)))), 3),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
