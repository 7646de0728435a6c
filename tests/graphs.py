"""Random graphs, and their values computed node by node: what rewriting and planning must not
change."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

from alight._core import Layout, make_layout
from alight._src.ir.graph import Graph, Node
from alight._src.ir.group import Group
from alight._src.ir.op import Kind
from alight._src.ir.op_table import OPS
from alight._src.plan.plan import LaunchStep, Plan, ViewStep

# Where a value is: bytes, the offset of its first element, its layout.
Place = tuple[np.ndarray[Any, Any], int, Layout]

F8, F4, I4, BOOL = (np.dtype(name) for name in ("float64", "float32", "int32", "bool"))


def array_at(place: Place) -> np.ndarray[Any, Any]:
    raw, offset, layout = place
    return np.ndarray(layout.shape, layout.dtype, raw, offset, layout.strides)


def stored(result: Any, layout: Layout) -> Place:
    place = np.zeros(layout.nbytes, np.uint8), 0, layout
    array_at(place)[...] = np.broadcast_to(result, layout.shape)
    return place


def run_node(node: Node, operands: list[Place]) -> Place:
    """Return a node's value; nothing given is changed."""
    if node.op.kind is Kind.VIEW:
        raw, offset, _ = operands[0]
        return raw, offset + node.attr("offset"), node.layout
    if node.op.kind is Kind.WRITE:
        old, value = operands
        new = stored(array_at(old), node.layout)
        array_at((new[0], node.attr("offset"), node.attr("layout")))[...] = array_at(value)
        return new
    attrs = dict(node.attrs)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = node.op.reference(*[array_at(place) for place in operands], **attrs)
    assert np.asarray(result).dtype == node.layout.dtype, node
    return stored(result, node.layout)


def evaluate(graph: Graph, inputs: list[Place]) -> list[Place]:
    """Return all values of a graph, computed one by one in its order."""
    values = list(inputs)
    for node in graph.nodes:
        values.append(run_node(node, [values[o] for o in node.operands]))
    return values


def run_group(group: Group, inputs: list[Place]) -> list[Place]:
    values = evaluate(group.graph, inputs)
    return [values[o] for o in group.graph.outputs]


def run_plan(plan: Plan, inputs: list[Place]) -> tuple[dict[int, Place], int]:
    """Return the values left at the end, and how many writes had to copy.

    Dead values are gone at once, and a write is in place wherever ``dead`` allows it.
    """
    there = dict(enumerate(inputs))
    copies = 0
    for step, dead in zip(plan.steps, plan.dead, strict=True):
        if isinstance(step, LaunchStep):
            made = run_group(step.group, [there[number] for number in step.inputs])
            there.update(zip(step.outputs, made, strict=True))
        elif isinstance(step, ViewStep):
            raw, offset, _ = there[step.source]
            there[step.target] = raw, offset + step.offset, step.layout
        else:
            raw, offset, layout = there[step.old]
            value = array_at(there[step.value]).copy()
            if step.old not in dead:
                copies += 1
                raw, offset, layout = stored(array_at((raw, offset, layout)), layout)
            array_at((raw, offset + step.offset, step.layout))[...] = value
            there[step.target] = raw, offset, layout
        for number in dead:
            there.pop(number, None)
    return there, copies


def same(a: Place, b: Place) -> bool:
    """Tell whether two values are equal bit for bit, the payload and sign of NaNs apart."""
    x, y = array_at(a), array_at(b)
    if a[2] is not b[2]:
        return False
    if x.dtype.kind == "f":
        equal = (x == y) & (np.signbit(x) == np.signbit(y))
        return bool(np.all(equal | (np.isnan(x) & np.isnan(y))))
    return bool(np.array_equal(x, y))


class Builder:
    """Makes a graph op by op; every method gives the number of the new value."""

    def __init__(self, *inputs: Layout) -> None:
        self.layouts = list(inputs)
        self.count = len(inputs)
        self.nodes: list[Node] = []

    def add(self, name: str, *operands: int, layout: Layout | None = None, **attrs: Any) -> int:
        op = OPS[name]
        if layout is None:
            layouts = [self.layouts[o] for o in operands]
            shape = np.broadcast_shapes(*[one.shape for one in layouts])
            probes = [np.ones(one.shape, one.dtype) for one in layouts]
            dtype = np.asarray(op.reference(*probes, **attrs)).dtype
            layout = make_layout(dtype, shape)
        self.nodes.append(Node(op, operands, tuple(attrs.items()), layout))
        self.layouts.append(layout)
        return len(self.layouts) - 1

    def cast(self, x: int, dtype: Any) -> int:
        layout = self.layouts[x]
        dtype = np.dtype(dtype)
        return self.add("cast", x, layout=make_layout(dtype, layout.shape), dtype=dtype)

    def reduce(self, name: str, x: int, axis: tuple[int, ...], keepdims: bool = False) -> int:
        probe = np.ones(self.layouts[x].shape, self.layouts[x].dtype)
        result = np.asarray(OPS[name].reference(probe, axis=axis, keepdims=keepdims))
        layout = make_layout(result.dtype, result.shape)
        return self.add(name, x, layout=layout, axis=axis, keepdims=keepdims)

    def view(self, x: int, key: Any) -> int:
        window, offset = self.window(x, key)
        return self.add("view", x, layout=window, offset=offset)

    def write(self, x: int, key: Any, value: int, leased: bool = False) -> int:
        window, offset = self.window(x, key)
        where = {"layout": self.layouts[x], "offset": offset, "window": window}
        return self.add("write", x, value, **where, leased=leased)

    def window(self, x: int, key: Any) -> tuple[Layout, int]:
        probe = self.layouts[x].probe
        part = probe[key]
        start = probe.__array_interface__["data"][0]
        offset = part.__array_interface__["data"][0] - start if part.size else 0
        return make_layout(part.dtype, part.shape, part.strides), offset

    def graph(self, *outputs: int) -> Graph:
        nodes = []
        for node in self.nodes:
            if node.op.kind is Kind.WRITE:  # its own layout and the window's have one name
                attrs = ("offset", node.attr("offset")), ("layout", node.attr("window"))
                leased = (("in_place", True),) if node.attr("leased") else ()
                node = Node(node.op, node.operands, (*attrs, *leased), node.layout)
            nodes.append(node)
        return Graph(tuple(self.layouts[: self.count]), tuple(nodes), outputs)


KEYS = (
    np.s_[1:3, 1:5], np.s_[::2, ::-1], np.s_[...], np.s_[:, 2], np.s_[1], np.s_[2:, :3],
    np.s_[:, ::2],
)  # fmt: skip


def random_graph(
    seed: int, size: int, whole: tuple[int, int] = (4, 6)
) -> tuple[Graph, list[Place]]:
    """Return a graph of many shapes, dtypes, views and writes, and inputs for it. Graphs of one
    seed are of one structure, of whatever size ``whole`` says."""
    rng = random.Random(seed)
    rows, columns = whole
    shapes = (whole, whole, whole, (columns,), (rows, 1), ())
    layouts = [
        make_layout(rng.choice((F8, F8, F4, I4, BOOL)), rng.choice(shapes)) for _ in range(4)
    ]
    layouts.append(make_layout(F8, whole, (8, 8 * rows)))
    build = Builder(*layouts)
    views: set[int] = set()

    def pick(*kinds: str, shape: tuple[int, ...] | None = None) -> int | None:
        fit = [
            n
            for n, layout in enumerate(build.layouts)
            if layout.dtype.kind in kinds and shape in (None, layout.shape)
        ]
        # Mostly the newest, so that chains come about.
        return rng.choice(fit[-6:] if rng.random() < 0.6 else fit) if fit else None

    def step() -> None:
        choice = rng.random()
        x = pick("f", "i")
        if x is None:
            return
        layout = build.layouts[x]
        if choice < 0.35:
            like = [n for n, one in enumerate(build.layouts) if one.dtype == layout.dtype]
            y = rng.choice(like)
            try:
                shape = np.broadcast_shapes(layout.shape, build.layouts[y].shape)
            except ValueError:
                return
            if len(shape) <= 2:
                build.add(rng.choice(("add", "subtract", "multiply", "maximum")), x, y)
        elif choice < 0.55:
            name = rng.choice(("negative", "absolute", "square", "copy", "positive", "negative"))
            build.add(name, x)
        elif choice < 0.6 and layout.dtype.kind == "f":
            build.add(rng.choice(("exp", "floor", "rint")), x)
        elif choice < 0.7:
            build.cast(x, rng.choice((F8, F4, F8, I4) if layout.dtype.kind == "i" else (F8, F4)))
        elif choice < 0.78 and layout.ndim:
            axis = rng.choice([(0,), tuple(range(layout.ndim)), (layout.ndim - 1,)])
            name = rng.choice(("sum", "max"))
            build.reduce(name, x, axis, keepdims=rng.random() < 0.4)
        elif choice < 0.82 and layout.shape == whole:
            build.add("roll", x, layout=make_layout(layout.dtype, layout.shape), shift=1)
        elif choice < 0.9:
            base = x if x not in views else rng.choice([*views, x])
            if build.layouts[base].shape == whole:
                views.add(build.view(base, rng.choice(KEYS)))
        else:
            old = rng.choice([n for n, one in enumerate(build.layouts) if n not in views])
            if build.layouts[old].shape != whole:
                return
            key = rng.choice(KEYS)
            window, _ = build.window(old, key)
            fit = [
                n
                for n, one in enumerate(build.layouts)
                if one.dtype == window.dtype and one.shape in (window.shape, ())
            ]
            if fit:
                build.write(old, key, rng.choice(fit))

    while len(build.nodes) < size:
        step()
    numbers = range(len(layouts), len(build.layouts))
    read = {o for node in build.nodes for o in node.operands}
    ends = [n for n in numbers if n not in read]
    outputs = tuple(
        {*rng.sample(numbers, min(len(numbers), 3)), *rng.sample(ends, (len(ends) + 1) // 2)}
    )
    data = np.random.default_rng(seed)
    inputs = []
    for layout in layouts:
        with np.errstate(all="ignore"):
            values = (data.standard_normal(layout.shape) * 3).astype(layout.dtype)
        inputs.append(stored(values, layout))
    return build.graph(*outputs), inputs
