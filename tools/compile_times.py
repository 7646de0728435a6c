"""Time the compiler on random kernels against what is predicted of them.

    python tools/compile_times.py [SEED] [COUNT]

Each kernel is made once, in this thread's own seconds, so that other work on the machine does not
count. Prints what least squares make of the terms of ``plan.compile_work``, how far off predictions
are, and what kernels took that are below the limit.
"""

from __future__ import annotations

import random
import sys
from time import thread_time
from typing import Any

import numpy as np

from alight._core import Layout, make_layout
from alight._src.codegen.common.loops import Schedule, nest
from alight._src.codegen.llvm import object_code, shared
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.plan import compile_work
from alight._src.plan.choose import operation
from alight._src.plan.compile_work import compile_seconds
from alight.device import Unsupported

SIMPLE = ("add", "subtract", "multiply", "maximum", "absolute", "negative", "square")
DEAR = ("divide", "sqrt", "floor", "rint", "sign", "reciprocal", "copysign")
SPECIAL = ("exp", "log", "sin", "cos", "tan", "tanh", "log1p", "expm1", "arctan", "power")
WHOLE = ("add", "subtract", "multiply", "maximum", "bitwise_xor", "floor_divide", "remainder")
SHAPE = (500, 400)


def layout(rng: random.Random, dtype: Any) -> Layout:
    """Return an operand: contiguous, by steps, turned round, one for a row or one for all."""
    rows, columns = SHAPE
    size = np.dtype(dtype).itemsize
    draw = rng.random()
    if draw < 0.55:
        return make_layout(np.dtype(dtype), SHAPE)
    if draw < 0.7:
        return make_layout(np.dtype(dtype), ())
    if draw < 0.8:
        return make_layout(np.dtype(dtype), (columns,))
    if draw < 0.9:
        return make_layout(np.dtype(dtype), SHAPE, (2 * size * columns, 2 * size))
    return make_layout(np.dtype(dtype), SHAPE, (size, size * rows))


def drawn(rng: random.Random) -> Group:
    """Return a random group."""
    dtype = rng.choice(("f8", "f8", "f8", "f4", "f4", "i4", "i8", "c16"))
    whole = make_layout(np.dtype(dtype), SHAPE)
    inputs = [whole] + [layout(rng, dtype) for _ in range(rng.choice((0, 1, 2, 4, 7)))]
    inputs += [make_layout(np.dtype(dtype), ())] * rng.choice((0, 0, 5, 50))
    count = int(2 ** rng.uniform(0, 9))
    special = rng.choice((0.0, 0.0, 0.02, 0.1, 0.5))
    dear = rng.choice((0.0, 0.1, 0.3))
    names: tuple[str, ...]
    layouts, nodes = list(inputs), list[Node]()
    near = rng.choice((3, 10, 1000))
    while len(nodes) < count:
        names = SIMPLE
        if dtype.startswith("i"):
            names = WHOLE if rng.random() < dear else WHOLE[:5]
        elif dtype == "c16":
            names = ("exp", "sqrt") if rng.random() < special else ("add", "subtract", "multiply")
        elif rng.random() < special:
            names = SPECIAL
        elif rng.random() < dear:
            names = DEAR
        op = OPS[rng.choice(names)]
        first = max(0, len(layouts) - near) if nodes and rng.random() < 0.7 else 0
        operands = [rng.randrange(first, len(layouts)) for _ in range(op.nin)]
        if all(layouts[o].shape != SHAPE for o in operands):
            operands[0] = 0
        nodes.append(Node(op, tuple(operands), (), whole))
        layouts.append(whole)
    read = {o for node in nodes for o in node.operands}
    ends = [n for n in range(len(inputs), len(layouts)) if n not in read]
    more = rng.sample(range(len(inputs), len(layouts)), min(len(nodes), rng.choice((0, 0, 2, 9))))
    kind, outputs = GroupKind.LOOP, tuple(dict.fromkeys((*ends, *more)))
    if rng.random() < 0.3 and dtype != "c16":
        kind = GroupKind.REDUCE
        outputs_of = []
        axes = rng.choice(((0, 1), (0,), (1,)))
        shape = tuple(n for i, n in enumerate(SHAPE) if i not in axes)
        for end in outputs[:6]:
            name = rng.choice(("sum", "max", "min", "prod"))
            result = "i8" if dtype.startswith("i") and name in ("sum", "prod") else dtype
            one = make_layout(np.dtype(result), shape)
            nodes.append(Node(OPS[name], (end,), (("axis", axes),), one))
            outputs_of.append(len(inputs) + len(nodes) - 1)
        outputs = tuple(outputs_of)
        graph = pruned(Graph(tuple(inputs), tuple(nodes), outputs))
    else:
        graph = pruned(Graph(tuple(inputs), tuple(nodes), outputs))
    return Group(kind, graph, SHAPE)


def pruned(graph: Graph) -> Graph:
    """Return the graph without what no output needs."""
    first = len(graph.inputs)
    needed = set(graph.outputs)
    for number in range(first + len(graph.nodes) - 1, first - 1, -1):
        if number in needed:
            needed.update(graph.nodes[number - first].operands)
    kept = sorted(needed)
    local = {number: place for place, number in enumerate(kept)}
    nodes = [graph.nodes[n - first] for n in kept if n >= first]
    return Graph(
        tuple(graph.inputs[n] for n in kept if n < first),
        tuple(Node(n.op, tuple(local[o] for o in n.operands), n.attrs, n.layout) for n in nodes),
        tuple(local[o] for o in graph.outputs),
    )


def seconds(group: Group) -> float:
    """Return the seconds LLVM and we take for a kernel's object, shared functions included."""
    shared._known.clear()
    began = thread_time()
    group = group.form.lowered or group
    explicit = object_code._explicit(group, nest(group, unroll=True))
    object_code._object(group, Schedule(), explicit)
    return thread_time() - began


def main() -> None:
    """Time, and print how far off the predictions are."""
    seed, count = (int(a) for a in (sys.argv[1:] + ["0", "200"][len(sys.argv) - 1 :])[:2])
    rng = random.Random(seed)
    groups, rows, took = list[Group](), [], []
    seconds(drawn(random.Random(1)))  # what is imported, and made once
    while len(groups) < count:
        group = drawn(rng)
        try:
            spent = seconds(group)
        except Unsupported as gap:
            print("left out:", gap)
            continue
        groups.append(group)
        rows.append((1.0, *compile_work.code_size(group)))
        took.append(spent)
    sizes, spents = np.array(rows), np.array(took)
    # relative errors: a kernel of 10 ms matters as one of 1 s
    found, *_ = np.linalg.lstsq(sizes / spents[:, None], np.ones(count), rcond=None)
    for name, value in zip(("kernel", "operation", "reduction"), found, strict=True):
        print(f"{name:10} {value * 1e6:8.1f} us")
    predicted = np.array([compile_seconds(group, None, False, False) for group in groups])
    quantiles = np.quantile(spents / predicted, (0.01, 0.1, 0.5, 0.9, 0.99))
    print("measured/predicted at 1, 10, 50, 90, 99 %:", np.round(quantiles, 2))
    for place in np.argsort(spents / predicted)[-5:]:
        what = operation(groups[place])[:60]
        print(f"   {spents[place]:.3f} s for {predicted[place]:.3f}: {what}")
    inside = np.array([not compile_work.too_long(group) for group in groups])
    most = np.quantile(spents[inside], (0.9, 0.99, 1.0))
    print(f"{inside.sum()} kernels below the limit took at 90, 99, 100 %:", np.round(most, 3), "s")


if __name__ == "__main__":
    main()
