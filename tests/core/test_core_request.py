"""Requests in numbers: what belongs together, in which order, and when two are the same work."""

from __future__ import annotations

import importlib
import random
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

from alight._src.run import kernels
from request_numbering import numbered


class Named:
    """Stands for an op: equal to nothing but itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name  # an address would give tests another name in each process


OPS = [Named(name) for name in "abcd"]
SHAPES = ((), (3,), (2, 3), (3, 1))
ATTRS = ((), (), (("axis", 0),), (("axis", (0, 1)), ("keepdims", True)))


class World:
    """Values of one core, made by choices that a seed settles."""

    def __init__(self, core: Any, seed: int) -> None:
        self.core = core
        self.random = random.Random(seed)
        self.values: list[Any] = [self.leaf() for _ in range(self.random.randint(1, 6))]
        self.storages: list[Any] = []

    def layout(self) -> Any:
        """Return some layout."""
        dtype = np.dtype(self.random.choice("dfi"))
        return self.core.make_layout(dtype, self.random.choice(SHAPES))

    def leaf(self) -> Any:
        """Return a constant, bytes on the host or elsewhere, or a window of what another has."""
        layout = self.layout()
        kind = self.random.randrange(6)
        if kind < 2:
            layout = self.core.make_layout(layout.dtype, ())
            number = np.asarray(self.random.choice((0.0, -0.0, 1.0, 2.0)), layout.dtype)
            return self.core.Value(None, (), number, layout)
        value = self.core.Value(None, (), (), layout)
        others = [v for v in getattr(self, "values", []) if v.op is None and v.data is not None]
        if kind == 2 and others:
            value.data = self.random.choice(others).data
            value.offset = self.random.choice((0, 8))
            return value
        value.data = self.core.Data(layout, np.zeros(layout.shape, layout.dtype))
        if kind == 3:
            value.data.remote = {"sim:0": object()}
            if self.random.random() < 0.5:
                value.data.array = None
        return value

    def grow(self, count: int) -> None:
        """Record values on what is there; some are stored."""
        for _ in range(count):
            if self.random.random() < 0.2:
                self.values.append(self.leaf())
            recent = self.values[-self.random.choice((3, 10, 1000)) :]
            operands = tuple(self.random.choices(recent, k=self.random.randint(0, 3)))
            op, attrs = self.random.choice(OPS), self.random.choice(ATTRS)
            value = self.core.Value(op, operands, attrs, self.layout())
            self.values.append(value)
            if self.random.random() < 0.1:
                value.error = ValueError
            if self.random.random() < 0.3:
                self.storages.append(self.core.Storage(value))

    def roots(self) -> list[Any]:
        """Return what is asked for: some of it twice, some of it concrete."""
        asked = self.random.choices(self.values, k=self.random.randint(1, 3))
        return asked + asked[:1] * self.random.randint(0, 1)


def described(world: World, found: Any) -> Any:
    """Return a request in terms that mean the same in a world of the same seed."""
    if found is None:
        return None
    key, values = found
    places = {id(value): place for place, value in enumerate(world.values)}
    return (
        key.leaves,
        key.nodes,
        (key.outputs, key.read, key.stamp, key.count),
        [places[id(value)] for value in values],
    )


def settle(core: Any) -> None:
    """Leave nothing pending that other worlds and tests left."""
    for storage in core.pending_storages():
        storage.rebind(core.Value(None, (), (), storage.value.layout))


def chosen(core: Any, seed: int) -> tuple[World, tuple[Any, ...]]:
    """Return a random world of a seed and what `request` is asked in it."""
    settle(core)
    world = World(core, seed)
    world.grow(world.random.choice((1, 4, 12, 40, 150)))
    core.floor.count, core.floor.pending = -1, sys.maxsize
    passing = world.random.choice([None, *world.storages])
    read, stamp = world.random.random() < 0.5, world.random.randrange(3)
    return world, (world.roots(), read, stamp, passing, world.random.random() < 0.8)


def asked(core: Any, seed: int) -> tuple[World, Any]:
    """Return a random world of a seed and a request in it."""
    world, given = chosen(core, seed)
    return world, core.request(*given)


def test_random_graphs_are_numbered_as_in_python(core: Any) -> None:
    pending = 0
    for seed in range(600):
        _, (roots, read, stamp, passing, connected) = chosen(core, seed)
        storages = core.pending_storages() if connected else []
        others = [storage.value for storage in storages if storage is not passing]
        expected = numbered(roots, others, read, stamp)
        found = core.request(roots, read, stamp, passing, connected)
        assert (found is None) == (expected is None), seed
        if found is None or expected is None:
            continue
        key, values = found
        said = key.leaves, key.nodes, key.outputs, key.read, key.stamp
        assert (said, key.count) == (expected[0], len(expected[0][0])), seed
        assert [id(value) for value in values] == [id(value) for value in expected[1]], seed
        if connected:
            assert (core.floor.count, core.floor.pending) == expected[2:], seed
        pending += 1
    assert pending > 300


def test_equal_work_is_one_key_and_other_work_another(core: Any) -> None:
    keys: dict[Any, Any] = {}
    for seed in range(400):
        world, found = asked(core, seed)
        if found is None:
            continue
        said = described(world, found)[:3]
        again = asked_again(core, seed, world)
        assert again == found[0] and hash(again) == hash(found[0]), seed
        other = keys.setdefault(found[0], said)
        assert other == said, seed
    said = list(keys.values())
    assert all(said.count(one) == 1 for one in said)  # no two keys say the same
    assert len(keys) > 150


def asked_again(core: Any, seed: int, world: World) -> Any:
    """Return the key of the same request in another world of the same seed, without the first."""
    world.storages.clear()
    world.values.clear()
    _, found = asked(core, seed)
    return found[0]


def simple(core: Any, **changed: Any) -> Any:
    """Return the key of a small request, with something changed."""
    said = {
        "shape": (4,),
        "op": OPS[0],
        "attrs": (("axis", 0),),
        "number": 1.5,
        "twice": False,
        "read": True,
        "stamp": 7,
        "space": None,
        "shared": False,
        "swapped": False,
        **changed,
    }
    layout = core.make_layout(np.dtype("d"), said["shape"])
    array = core.Value(None, (), (), layout)
    array.data = core.Data(layout, np.zeros(said["shape"]))
    if said["space"] is not None:
        array.data.remote = {said["space"]: object()}
    window = core.Value(None, (), (), layout)
    window.data = array.data if said["shared"] else core.Data(layout, np.zeros(said["shape"]))
    window.offset = 8
    scalar = core.make_layout(np.dtype("d"), ())
    constant = core.Value(None, (), np.asarray(said["number"]), scalar)
    other = core.Value(None, (), np.asarray(2.5), scalar)
    operands = (array, window, constant, other)
    inner = core.Value(said["op"], operands[::-1] if said["swapped"] else operands, (), layout)
    root = core.Value(OPS[1], (inner, inner), said["attrs"], layout)
    roots = [root, inner] if said["twice"] else [root]
    return core.request(roots, said["read"], said["stamp"], connected=False)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": (5,)},
        {"op": OPS[2]},
        {"attrs": ()},
        {"attrs": (("axis", 1),)},
        {"number": 2.5},  # two constants become one input
        {"twice": True},
        {"read": False},
        {"stamp": 8},
        {"space": "sim:0"},
        {"shared": True},
        {"swapped": True},
    ],
    ids=str,
)
def test_whatever_a_plan_depends_on_tells_keys_apart(core: Any, changed: dict[str, Any]) -> None:
    assert simple(core) == simple(core)
    assert simple(core, number=-7.0) == simple(core)  # an input's value is no part of it
    assert simple(core, **changed) == simple(core, **changed)
    # Another dictionary entry, whatever the hashes do.
    assert simple(core, **changed) != simple(core)


def test_a_key_holds_what_it_names(core: Any) -> None:
    layout = core.make_layout(np.dtype("d"), (12345,))

    def key_of() -> Any:
        op = Named("passing")
        value = core.Value(op, (), (("what", ("made", 1.25)),), layout)
        return core.request([value], True, 0)[0]

    keys = [key_of() for _ in range(50)]  # each op would lie where the last one lay
    assert len({id(key.nodes[0][0]) for key in keys}) == 50
    assert len(set(keys)) == 50
    assert keys[0].nodes[0][2] == (("what", ("made", 1.25)),)


def test_what_cannot_be_part_of_a_key_is_an_error_and_nothing_breaks(core: Any) -> None:
    layout = core.make_layout(np.dtype("d"), (3,))
    bad = core.Value(OPS[0], (), (("list", []),), layout)
    with pytest.raises(TypeError, match="unhashable"):
        core.request([bad], True, 0)
    good = core.Value(OPS[0], (), (), layout)
    for _ in range(3):
        assert core.request([good, good], True, 0)[1] == [good]
    assert core.request([], True, 0) is None


def test_equality_in_python_asked_while_looking_up_may_ask_itself(core: Any) -> None:
    layout = core.make_layout(np.dtype("d"), (3,))

    class Asks:
        def __hash__(self) -> int:
            core.request([core.Value(OPS[1], (), (), layout)], True, 0)
            return 1

        def __eq__(self, other: object) -> bool:
            core.request([core.Value(OPS[1], (), (), layout)], True, 0)
            return True

    def key_of() -> Any:
        inner = core.Value(OPS[0], (), (("by", Asks()),), layout)
        return core.request([core.Value(OPS[0], (inner,), (), layout)], True, 0)[0]

    assert {key_of(): 1}[key_of()] == 1
    assert key_of().nodes[1][1] == (0,)


def test_a_request_within_another_gives_back_its_memory() -> None:
    native = importlib.import_module("alight._core._native")
    layout = native.make_layout(np.dtype("d"), ())
    asked = [native.Value(None, (), np.zeros(()), layout)]

    class Asking:
        """Hashing it asks for what is there already."""

        def __hash__(self) -> int:
            assert native.request(asked, False, 0) is None
            return 1

    def ask() -> None:
        value = native.Value(OPS[0], (asked[0],), (("of", Asking()),), layout)
        assert native.request([value], False, 0, connected=False) is not None

    ask()
    kernels.settle()  # what tests before asked for is compiled in the background
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            ask()
        assert tracemalloc.get_traced_memory()[0] - before < 200 * 64
    finally:
        tracemalloc.stop()
