"""What a jitted body comes by beside its arguments: the same memory by another way, and what it
leaves there."""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit.reachability import Reachability


class Slotted:
    __slots__ = ("kept",)

    def __init__(self, kept: Any) -> None:
        self.kept = kept


@dataclass
class Node:
    kept: Any = None
    parts: list[Any] = field(default_factory=list)


class OfAClass:
    kept: Any = None

    @property
    def total(self) -> Any:
        return TABLE["u"]


TABLE: dict[str, Any] = {}
KEPT = Node()


def of_table() -> Any:
    return TABLE["u"]


def of_class(a: Any) -> Any:
    OfAClass.kept = [a]
    return OfAClass()


def of_proxy(a: Any) -> Any:
    kept = Node(a)
    proxy = weakref.proxy(kept)
    return kept, proxy


def generated(a: Any) -> Any:
    def values() -> Any:
        while True:
            yield a

    made = values()
    next(made)
    return made


def record(a: Any) -> Any:
    kept = np.empty(1, object)
    kept[0] = a
    return kept


def module(a: Any) -> Any:
    made = types.ModuleType("kept")
    made.u = [a]  # type: ignore[attr-defined]
    return made


def of_context(a: Any) -> Any:
    made = contextvars.ContextVar[Any]("kept")
    made.set(a)
    return made


# How the memory of an argument is kept, and how the body gets at it from that.
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list in an attribute": (lambda a: Node([a]), lambda h: h.kept[0]),
    "dict in an attribute": (lambda a: Node({"u": a}), lambda h: h.kept["u"]),
    "attribute of an attribute": (lambda a: Node(Node(a)), lambda h: h.kept.kept),
    "window in a slot": (lambda a: Slotted([a[1:]]), lambda h: h.kept[0]),
    "set of objects": (lambda a: {Slotted(a)}, lambda h: next(iter(h)).kept),
    "deque": (lambda a: collections.deque([a]), lambda h: h[0]),
    "ordered dict": (lambda a: collections.OrderedDict(u=a), lambda h: h["u"]),
    "user dict": (lambda a: collections.UserDict(u=a), lambda h: h["u"]),
    "partial": (lambda a: functools.partial(lambda x: x, a), lambda h: h()),
    "function with a closure": (lambda a: lambda: a, lambda h: h()),
    "bound method": (lambda a: {"u": a}.get, lambda h: h("u")),
    "class attribute": (of_class, lambda h: h.kept[0]),
    "proxy": (of_proxy, lambda h: h[1].kept),
    "generator": (generated, next),
    "iterator": (lambda a: iter([a, a]), next),
    "memoryview": (memoryview, lambda h: h),
    "flat iterator": (lambda a: a.flat, lambda h: h),
    "weak reference": (weakref.ref, lambda h: h()),
    "object array": (record, lambda h: h[0]),
    "masked array": (lambda a: Node(np.ma.MaskedArray(a, copy=False)), lambda h: h.kept.data),
    "structured view": (lambda a: Node(a.view([("x", "f8")])), lambda h: h.kept["x"]),
    "record": (lambda a: [a.view([("x", "f8")])[0]], lambda h: [h[0]["x"]]),
    "module": (module, lambda h: h.u[0]),
    "context variable": (of_context, lambda h: h.get()),
    "default of a context variable": (
        lambda a: contextvars.ContextVar("kept", default=a),
        lambda h: h.get(),
    ),
    "jitted function": (lambda a: alight.jit(lambda: a), lambda h: h()),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_an_argument_that_is_kept_elsewhere_too(mode: str, name: str) -> None:
    keep, get = HOLDERS[name]

    def function(a: Any, holder: Any) -> Any:
        a += 10
        return float(get(holder)[0])

    def function_of_outside(a: Any) -> Any:
        a += 10
        return float(get(kept)[0])

    x = np.arange(600.0)
    first = 11.0 if name == "window in a slot" else 10.0
    assert alight.jit(function)(x, keep(x)) == first
    y = np.arange(600.0)
    kept = keep(y)
    assert alight.jit(function_of_outside)(y) == first
    assert x[0] == y[0] == 10.0


@pytest.mark.parametrize("name", ["under a global name", "by a function", "by a property"])
def test_an_argument_that_is_reached_by_global_names(mode: str, name: str) -> None:
    def by_name(a: Any) -> Any:
        a += 10
        return TABLE["u"][0]

    def by_function(a: Any) -> Any:
        a += 10
        return of_table()[0]

    def by_property(a: Any) -> Any:
        a += 10
        return OfAClass().total[0]

    function = {"under": by_name, "by a f": by_function, "by a p": by_property}[name[:6].strip()]
    x = TABLE["u"] = np.arange(600.0)
    assert alight.jit(function)(x) == 10.0


def test_what_is_written_elsewhere_is_seen_by_nothing_that_was_read_before(mode: str) -> None:
    def function(a: Any) -> Any:
        b = a * 2
        TABLE["u"][0] = 77
        return b[0], a[0]

    x = np.arange(600.0)
    TABLE["u"] = x
    assert alight.jit(function)(x) == (0.0, 77.0)


@pytest.mark.parametrize("make", [bytearray, lambda data: array.array("d", data)])
def test_memory_that_is_no_arrays(mode: str, make: Any) -> None:
    kept = make(np.arange(600.0).tobytes())
    growing = make(b"")

    def function(a: Any) -> Any:
        a += 10
        growing.append(1)  # nothing holds what is none of it
        return bytes(memoryview(kept).cast("B")[:8])

    x = np.frombuffer(kept)
    assert np.frombuffer(alight.jit(function)(x))[0] == 10.0
    assert x[0] == 10.0


def test_an_array_and_its_export_see_each_others_writes(mode: str) -> None:
    ours = alight.asarray(np.arange(600.0))
    shared = np.asarray(ours)

    def function(a: Any, e: Any) -> Any:
        e += 10
        first = float(a[0])
        a *= 2
        return first, float(e[0]), float(a[0])

    def of_outside(e: Any) -> Any:
        e += 1
        return float(ours[0])

    assert alight.jit(function)(ours, shared) == (10.0, 20.0, 20.0)
    assert alight.jit(of_outside)(shared) == 21.0


def test_what_the_body_leaves_anywhere_is_ndarrays(mode: str) -> None:
    held: list[Any] = []
    count = None

    def function(a: Any, node: Node) -> Any:
        nonlocal count
        held.append(a * 2)
        count = a * 3
        node.parts.append(a)
        node.kept = Node(a[2:], [a * 4])
        node.kept.parts.append(node)
        TABLE["v"] = {"deep": [a + 1]}
        a += 1
        return node.kept

    x, node = np.arange(600.0), Node()
    result = alight.jit(function)(x, node)
    assert result is node.kept and node.kept.parts[1] is node
    assert node.parts[0] is x and node.kept.kept.base is x
    for item, factor in ((held[0], 2), (count, 3), (node.kept.parts[0], 4)):
        assert type(item) is np.ndarray and np.array_equal(item, np.arange(600.0) * factor)
    assert type(TABLE["v"]["deep"][0]) is np.ndarray


def of_an_attribute_of_a_class(a: Any) -> Any:
    OfAClass.kept = a * 2
    return OfAClass.kept


def of_a_context(a: Any) -> Any:
    CONTEXT.set(a * 2)
    return CONTEXT.get()


def of_an_element(a: Any) -> Any:
    ELEMENTS[0, 1] = a * 2
    return ELEMENTS[0, 1]


def of_one_element(a: Any) -> Any:
    ELEMENT[()] = [a * 2]
    return ELEMENT[()][0]


CONTEXT: contextvars.ContextVar[Any] = contextvars.ContextVar("CONTEXT", default=None)
ELEMENTS, ELEMENT = np.empty((2, 2), object), np.empty((), object)
LEFT: list[tuple[Any, Any]] = [
    (of_an_attribute_of_a_class, lambda: OfAClass.kept),
    (of_a_context, CONTEXT.get),
    (of_an_element, lambda: ELEMENTS[0, 1]),
    (of_one_element, lambda: ELEMENT[()][0]),
]


@pytest.mark.parametrize(("leave", "find"), LEFT, ids=[leave.__name__ for leave, _ in LEFT])
def test_what_a_body_leaves_where_only_its_kind_has_it_is_ndarrays(
    mode: str, leave: Any, find: Any
) -> None:
    x = np.arange(600.0)
    for _ in range(3):
        result = alight.jit(leave)(x)
        assert result is find() and type(result) is np.ndarray
        assert np.array_equal(result, x * 2)


def test_scalars_that_are_keys_are_numpys(mode: str) -> None:
    counted: dict[Any, int] = {"first": 0}

    def function(a: Any) -> Any:
        counted[a.max()] = counted["last"] = 1
        return {a.min(): a * 2}, {a.max(): 3, "next": 4}

    for _ in range(3):
        results = (counted, *alight.jit(function)(np.arange(600.0)))
        assert [type(key) for d in results for key in d] == [
            *(str, np.float64, str),
            *(np.float64, np.float64, str),
        ]
        assert counted == {"first": 0, 599.0: 1, "last": 1}


def test_arrays_of_the_program_stay_where_they_are(mode: str) -> None:
    node = Node(alight.zeros(5))
    before = node.kept

    def function(a: Any, node: Node) -> Any:
        node.parts.append(a + 1)

    alight.jit(function)(np.arange(600.0), node)
    assert node.kept is before and type(node.parts[0]) is np.ndarray


def test_more_than_may_be_looked_at_leaves_the_arguments_to_numpy(mode: str) -> None:
    x = np.arange(600.0)
    chain = Node(x)
    for _ in range(20_000):
        chain = Node(chain)

    def function(a: Any, chain: Node) -> Any:
        a += 10
        while type(chain) is Node:
            chain = chain.kept
        return chain[0]

    assert not Reachability([chain], x.size).whole
    assert alight.jit(function)(x, chain) == 10.0
    numbers = [float(i) for i in range(30_000)]
    assert Reachability([numbers], x.size).whole and not Reachability([numbers * 20], x.size).whole


@pytest.mark.parametrize(
    "take",
    [np.frombuffer, lambda y: np.ndarray(y.shape, y.dtype, y), lambda y: np.frombuffer(y.data)],
    ids=["frombuffer", "ndarray", "frombuffer of a memoryview"],
)
def test_buffers_that_numpy_gives_back_at_once(mode: str, take: Any) -> None:
    y = alight.arange(600.0) * 2
    shared = take(y)
    y += 1
    assert shared[3] == 7.0
    y[3] = 5
    assert shared[3] == 5.0
    shared[4] = 9
    assert float(y[4]) == 9.0


SETTINGS = types.ModuleType("settings")
SETTINGS.inner = types.ModuleType("inner")  # type: ignore[attr-defined]


def test_what_a_body_leaves_in_modules_is_ndarrays(mode: str) -> None:
    def leaves(x: Any) -> Any:
        SETTINGS.state = x * 2  # type: ignore[attr-defined]
        SETTINGS.inner.history = [x + 1]
        return x.sum()

    x = np.arange(3000.0)
    jitted = alight.jit(leaves)
    for _ in range(3):
        assert jitted(x) == x.sum()
        state: Any = vars(SETTINGS)["state"]
        (before,) = vars(SETTINGS.inner)["history"]
        assert type(state) is type(before) is np.ndarray
        assert np.array_equal(state, x * 2) and np.array_equal(before, x + 1)


class Told:
    """Its attributes go by a name that runs code of the program's."""

    def __init__(self, kept: Any = None) -> None:
        self.kept = kept
        self.asked: list[str] = []

    @property
    def __dict__(self) -> Any:
        self.asked.append("a property")
        raise RuntimeError("nobody may ask")


class Guarding:
    def __init__(self) -> None:
        self.kept: Any = None

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise RuntimeError("nobody may ask")
        return object.__getattribute__(self, name)


class Proxying:
    """Its objects say themselves of which module they are, as proxies do."""

    __module__ = property(lambda self: 1 // 0)  # type: ignore[assignment]

    def __init__(self) -> None:
        self.kept: Any = None


# It is of no module: where it was made, nothing has a name.
Homeless: Any = eval("type('Homeless', (), {'kept': None})", {})


@pytest.mark.parametrize("made", [Told, Guarding, Proxying, Homeless])
def test_looking_runs_none_of_the_programs_code(made: type) -> None:
    @alight.jit
    def passed(x: Any, holder: Any) -> Any:
        x += 1
        return x[:2] * 2, holder

    x, holder = np.arange(6.0), made()
    holder.kept = x[1:]
    with alight.policy(floor=0):
        first, same = passed(x, holder)
    assert same is holder and getattr(holder, "asked", []) == []
    assert first.tolist() == [2.0, 4.0] and holder.kept.tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]


def yielded(x: Any) -> Any:
    x += 1
    for i in range(3):
        x[i] += 10
        got = yield x[i:], {"twice": x * 2}
        if got is not None:
            yield got + x
    return x.sum()


LAZY: dict[str, Callable[[Any], Any]] = {
    "generator": yielded,
    "expression": lambda x: (part * 2 for part in (x[:3], x[3:])),
    "map": lambda x: map(lambda part: part + 1, [x * 2, x[1:]]),
    "zip": lambda x: zip([x * 2], [x[2:]], strict=True),
    "enumerate": lambda x: enumerate([x * 2, x]),
    "reversed": lambda x: reversed([x * 2, x]),
    "iterator": lambda x: iter({1: x - 1, 2: x}.values()),
}


@pytest.mark.parametrize("name", LAZY)
def test_what_is_yielded_after_the_call_is_ndarrays(name: str) -> None:
    function = LAZY[name]

    def body(x: Any) -> Any:
        return function(x)

    logs = []
    for run in (lambda f: f, alight.jit):
        log: list[Any] = []
        x = np.arange(6.0)
        with alight.policy(floor=0):
            for item in run(body)(x):
                parts = item if type(item) is tuple else (item,)
                for part in parts:
                    part = part["twice"] if type(part) is dict else part
                    log.append((type(part), np.array(part).tolist()))
                x[0] = len(log)
        logs.append((log, x.tolist()))
    assert logs[0] == logs[1]


def test_a_generator_is_sent_to_thrown_at_and_closed() -> None:
    def echoes(x: Any) -> Any:
        total = x.sum()
        try:
            while True:
                try:
                    sent = yield total
                    total = total + sent[0]
                except KeyError:
                    total = x * 0
        finally:
            x[:] = -1

    def body(x: Any) -> Any:
        return echoes(x)

    results = []
    for run in (lambda f: f, alight.jit):
        x = np.arange(6.0)
        with alight.policy(floor=0):
            found = run(body)(x)
            log = [next(found), found.send(x + 4), found.throw(KeyError()), found.__name__]
            found.close()
        results.append((list(map(type, log)), list(map(np.ndarray.tolist, log[2:3])), x.tolist()))
        results[-1] += (float(log[0]), float(log[1]))
    assert results[0] == results[1] and results[0][2] == [-1.0] * 6


def test_what_a_generator_yielded_is_not_kept() -> None:
    def made(x: Any) -> Any:
        return (x * n for n in range(10))

    with alight.policy(floor=0):
        found = alight.jit(lambda x: made(x))(np.arange(1000.0))
        first = weakref.ref(next(found))
        next(found)
    assert first() is None


def test_an_iterator_that_was_closed_leads_nowhere() -> None:
    with np.nditer(np.arange(3.0)) as cells:
        list(cells)

    @alight.jit
    def passed(x: Any, cells: Any) -> Any:
        x += 1
        return x * 2

    with alight.policy(floor=0):
        assert passed(np.arange(3.0), cells).tolist() == [2.0, 4.0, 6.0]


class Compiled:
    """Stands for what a compiler of functions makes, which its whole package hangs on."""

    __module__ = "numba.core.registry"

    def __init__(self, function: Any) -> None:
        self.__wrapped__ = function
        self.package = [Node() for _ in range(5000)]

    def __call__(self, x: Any) -> Any:
        return self.__wrapped__(x)


def test_compiled_functions_lead_to_their_functions_alone(mode: str) -> None:
    kept: list[Any] = []
    compiled = Compiled(lambda x: 3.0)
    keeping = Compiled(lambda x: kept[0][0])

    def body(x: Any) -> Any:
        x += compiled(None)
        return x * 2.0

    def body_that_reaches(x: Any) -> Any:
        x += 10.0
        return keeping(None)

    assert Reachability([compiled], 0).whole and len(Reachability([compiled], 0).met) < 20
    for _ in range(3):
        x = np.arange(600.0)
        assert np.array_equal(alight.jit(body)(x), (np.arange(600.0) + 3.0) * 2.0)
        kept[:] = [x]
        before = x[0]
        assert alight.jit(body_that_reaches)(x) == before + 10.0


class Alike(type):
    """Makes classes that say they are all equal."""

    def __hash__(cls) -> int:
        return hash(int)

    def __eq__(cls, other: object) -> bool:
        return True


class Unlike(type):
    """Makes classes that nobody can compare."""

    def __eq__(cls, other: object) -> bool:
        raise OSError("equal")


class KeptAlike(metaclass=Alike):
    def __init__(self, kept: Any) -> None:
        self.kept = kept


class SlottedAlike(metaclass=Alike):
    __slots__ = ("kept",)

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class KeptUnlike(metaclass=Unlike):
    def __init__(self, kept: Any) -> None:
        self.kept = kept


@pytest.mark.parametrize("kind", [KeptAlike, SlottedAlike, KeptUnlike])
def test_classes_are_told_apart_by_what_they_are(mode: str, kind: Any) -> None:
    def body(x: Any, holder: Any) -> Any:
        x += 10
        holder.more = [kind(x * 2), 1.0]
        return [holder, kind(x + 1)], holder.kept[0]

    def body_of_slots(x: Any, holder: Any) -> Any:
        x += 10
        holder[0].kept = kind(x * 2)
        return {"a": kind(x + 1)}

    jitted: Any = alight.jit(body if kind is not SlottedAlike else body_of_slots)
    for _ in range(3):
        x = np.arange(600.0)
        if kind is SlottedAlike:
            holder = [kind(x)]
            result = jitted(x, holder)
            assert type(result["a"].kept) is type(holder[0].kept.kept) is np.ndarray
        else:
            single = kind(x)
            (kept, made), first = jitted(x, single)
            assert kept is single and first == 10.0
            assert type(made.kept) is type(single.more[0].kept) is np.ndarray
            assert np.array_equal(made.kept, np.arange(600.0) + 11)
