"""The core's operators: what is recorded, what the hooks are asked; the same for C and Python."""

from __future__ import annotations

import gc
import operator
import sys
import warnings
from collections.abc import Iterator
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alight._src.fp_warnings.filters import recording_errstate

F8 = np.dtype(np.float64)
BINARY = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "divmod": divmod, "power": pow,
    "left_shift": operator.lshift, "right_shift": operator.rshift, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "matmul": operator.matmul,
}  # fmt: skip
COMPARE = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
MIRRORED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal",
}  # fmt: skip
# Compared with `is`: an Array compares with anything, and what comes back is true.
ASKED = "from the hook"
UNSUPPORTED = r"not supported between|unsupported operand|Concatenation operation"
UNARY = {
    "negative": operator.neg,
    "positive": operator.pos,
    "absolute": abs,
    "invert": operator.invert,
}


class Other:
    """An operand of a type that knows nothing of arrays."""

    def __repr__(self) -> str:
        return "Other()"


class World:
    """A core with operators and hooks of its own; ``asked`` is what the hooks were called with."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.layout = core.make_layout(F8, (16,))
        self.scalar = core.make_layout(F8, ())
        self.ops = {
            name: SimpleNamespace(name=name, same={self.layout: self.layout}, weak={})
            for name in (*BINARY, *COMPARE, *UNARY)
        }
        self.asked: list[tuple[Any, ...]] = []
        self.answer: Any = ASKED
        self.flushed = 0
        core.set_operators(self.ops)
        core.hooks.binary = core.hooks.unary = core.hooks.in_place = self.hook
        core.hooks.ufunc = lambda ufunc, _, *inputs: self.hook(self.ops[ufunc.__name__], *inputs)
        core.hooks.getitem = core.hooks.setitem = lambda *given: self.call("item", *given)
        core.hooks.flush = self.flush
        core.hooks.errstate = recording_errstate
        core.floor.record_floor = 16
        core.floor.count = core.floor.pending = 0
        core.floor.limit = core.floor.budget = 1 << 62
        core.floor.anchor = None

        class Methods(core.ArrayBase):  # type: ignore[misc, name-defined]
            __slots__ = ()

        class Array(Methods):
            __slots__ = ()

        self.Array = Array

    def hook(self, op: Any, *operands: Any) -> Any:
        self.asked.append(self.call(op.name, *operands))
        return self.answer

    def call(self, name: str, *operands: Any) -> tuple[Any, ...]:
        return (name, *[id(o) if isinstance(o, self.core.ArrayBase) else o for o in operands])

    def flush(self) -> None:
        self.flushed += 1
        self.core.floor.count = self.core.floor.pending = 0

    def array(self, n: int = 16, cls: Any = None, dtype: Any = F8) -> Any:
        array = np.zeros(n, dtype)
        value = self.core.Value(None, (), (), self.core.layout_of(array))
        value.data = self.core.Data(value.layout, array)
        return (cls or self.Array).of(value)


@pytest.fixture
def world(core: Any) -> Iterator[World]:
    filled = [n for n in dir(core.hooks) if n[0] != "_" and hasattr(core.hooks, n)]
    hooks = {name: getattr(core.hooks, name) for name in filled}
    names = ("record_floor", "auto", "budget", "limit", "count", "pending", "anchor", "scalars")
    numbers = {name: getattr(core.floor, name) for name in names}
    operators = dict(core.ArrayBase.operators)
    yield World(core)
    for name, hook in hooks.items():
        setattr(core.hooks, name, hook)
    for name, number in numbers.items():
        setattr(core.floor, name, number)
    if operators:
        core.set_operators(operators)


# -- the fast way ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BINARY, *COMPARE])
def test_equal_arrays_are_recorded(world: World, name: str) -> None:
    a, b = world.array(), world.array()
    out = world.core.make_layout(np.dtype(bool), (16,))
    world.ops[name].same[world.layout] = out
    result = {**BINARY, **COMPARE}[name](a, b)
    assert type(result) is world.Array and result.window is None and result.storage.lease is None
    value = result.storage.value
    assert value.op is world.ops[name] and value.layout is out
    assert value.operands == (a.storage.value, b.storage.value)
    assert (value.attrs, value.data, value.error, value.offset) == ((), None, None, 0)
    assert value.errstate is np._core.umath._extobj_contextvar.get()
    assert world.core.floor.pending == 16 and world.core.floor.count == 1
    assert result.storage in world.core.pending_storages()
    assert not world.asked


@pytest.mark.parametrize("name", UNARY)
def test_unary_operators_are_recorded(world: World, name: str) -> None:
    a = world.array()
    result = UNARY[name](a)
    assert type(result) is world.Array and result.storage.value.operands == (a.storage.value,)
    assert result.storage.value.op is world.ops[name] and world.core.floor.pending == 16
    small = world.array(8)
    assert UNARY[name](small) is ASKED and world.asked == [world.call(name, small)]


def test_the_call_site_is_the_users_line(world: World) -> None:
    a = world.array()
    world.ops["add"].weak[(float, world.layout)] = (world.layout, world.scalar)
    here = sys._getframe().f_lineno
    recorded = [a + a]
    recorded.append(operator.mul(a, a))
    recorded.append(-a)
    recorded.append(1.5 + a)
    recorded.append(a <= a)
    for line, result in enumerate(recorded, here + 1):
        site = result.storage.value.site
        assert site == result.storage.value.site and type(site) is tuple
        code, instruction = site
        assert code is sys._getframe().f_code
        assert [n for start, end, n in code.co_lines() if start <= instruction < end] == [line]


def test_what_is_recorded_can_be_recorded_on(world: World) -> None:
    a = world.array()
    chain = a
    for _ in range(100):
        chain = chain * a
    value, length = chain.storage.value, 0
    while value.op is not None:
        assert value.operands[1] is a.storage.value
        value, length = value.operands[0], length + 1
    assert length == 100 and value is a.storage.value
    assert world.core.pending_storages()[-1] is chain.storage
    numbers = [r.storage.value.seq for r in (a + a, a - a, a * a)]
    assert numbers == sorted(numbers)


# -- where the hooks are asked ---------------------------------------------------------------------


def reason(world: World, name: str) -> tuple[Any, Any]:
    a, b = world.array(), world.array()
    core = world.core
    if name == "a window":
        b.window = core.View(world.layout, 0)
    elif name == "another class":
        b = world.array(cls=type("Array2", (world.Array,), {"__slots__": ()}))
    elif name == "another layout":
        b = world.array(dtype=np.float32)
    elif name == "below the floor":
        core.floor.record_floor = 17
    elif name == "not in the memo":
        world.ops["add"].same.clear()
    elif name == "shared on the left":
        a.storage.value.data.shared = True
    elif name == "shared on the right":
        b.storage.value.data.shared = True
    elif name == "an ndarray":
        b = Other()
    elif name == "None":
        b = None
    return a, b


@pytest.mark.parametrize(
    "why",
    ["a window", "another class", "another layout", "below the floor", "not in the memo",
     "shared on the left", "shared on the right", "an ndarray", "None"],
)  # fmt: skip
def test_the_hook_decides_everything_else(world: World, why: str) -> None:
    a, b = reason(world, why)
    assert (a + b) is ASKED and world.asked == [world.call("add", a, b)]
    world.asked.clear()
    assert (b + a) is ASKED and world.asked == [world.call("add", b, a)]
    assert world.core.floor.pending == 0


@pytest.mark.parametrize("mode", ["raise", "call", "log"])
def test_errors_that_act_at_the_call_are_numpys(world: World, mode: str) -> None:
    a = world.array()
    with np.errstate(divide=mode, call=lambda *_: None):
        assert (a / a) is ASKED and (-a) is ASKED
        with np.errstate(all="print"):
            assert type(a / a) is world.Array
        assert (a / a) is ASKED
    with np.errstate(all="ignore"):
        quiet = a / a
    assert quiet.storage.value.errstate is not (a / a).storage.value.errstate


def test_the_policy_in_force_has_a_floor_of_its_own(world: World) -> None:
    a = world.array()
    for least, recorded in ((17, False), (16, True), (0, True), (1 << 100, False)):
        token = world.core.POLICY.set(SimpleNamespace(record_floor=least))
        assert (type(a + a) is world.Array) == recorded
        assert (type(a + a) is world.Array) == recorded
        world.core.POLICY.reset(token)
    assert type(a + a) is world.Array
    measured = world.core.floor

    class Policy:
        @property
        def record_floor(self) -> int:
            return int(measured.auto)

    token = world.core.POLICY.set(Policy())
    for measured.auto, recorded in ((17, False), (3, True)):
        assert (type(a + a) is world.Array) == recorded
    world.core.POLICY.reset(token)

    class Broken:
        @property
        def record_floor(self) -> int:
            raise LookupError("no floor")

    token = world.core.POLICY.set(Broken())
    with pytest.raises(LookupError, match="no floor"):
        a + a
    world.core.POLICY.reset(token)


def test_notimplemented_follows_pythons_rules(world: World) -> None:
    a = world.array()
    world.answer = NotImplemented
    small = world.array(3)
    for function in (*BINARY.values(), operator.lt, operator.ge):
        with pytest.raises(TypeError, match=UNSUPPORTED):
            function(a, Other())
        with pytest.raises(TypeError, match=UNSUPPORTED):
            function(Other(), a)
        with pytest.raises(TypeError):
            function(small, small)
    assert (a == Other()) is False and (a != Other()) is True

    class Knows:
        def __radd__(self, left: Any) -> Any:
            return "reflected", left

        def __gt__(self, left: Any) -> Any:
            return "mirrored", left

    assert (a + Knows())[0] == "reflected" and (a < Knows())[0] == "mirrored"


@pytest.mark.parametrize("name", [*BINARY, *COMPARE])
def test_operands_keep_their_order(world: World, name: str) -> None:
    a, other = world.array(), Other()
    function = {**BINARY, **COMPARE}[name]
    assert function(a, other) is ASKED and function(other, a) is ASKED
    mirrored = (MIRRORED.get(name, name), a, other) if name in COMPARE else (name, other, a)
    assert world.asked == [world.call(name, a, other), world.call(*mirrored)]


def test_power_with_a_modulus_is_no_array_operation(world: World) -> None:
    a = world.array()
    for arguments in ((a, a, a), (a, 2, 3), (2, 3, a)):
        with pytest.raises(TypeError):
            pow(*arguments)
    assert world.asked == []


def test_in_place_operators_and_keys_are_the_hooks(world: World) -> None:
    a = b = world.array()
    a += 1.0
    assert a is ASKED and world.asked.pop() == ("add", id(b), 1.0)
    a = b
    a **= b
    assert a is ASKED and world.asked.pop() == ("power", id(b), id(b))
    assert b[3] == ("item", id(b), 3)
    b[...] = 1
    with pytest.raises(ValueError, match="cannot delete array elements"):
        del b[0]
    assert np.subtract(b, 2.0) is ASKED and world.asked.pop() == ("subtract", id(b), 2.0)


def test_errors_of_the_hooks_pass(world: World) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("from the hook")

    a = world.array()
    world.core.hooks.binary = world.core.hooks.unary = fail
    for call in (lambda: a + 1.5, lambda: 1.5 + a, lambda: a == None, lambda: abs(world.array(2))):  # noqa: E711
        with pytest.raises(RuntimeError, match="from the hook"):
            call()


# -- Python scalars --------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", [2.5, -0.0, float("nan"), 7, True, 1j, np.float64(2.0)])
@pytest.mark.parametrize("on_the_left", [False, True])
def test_python_scalars_are_recorded_where_the_memo_says_so(
    world: World, scalar: Any, on_the_left: bool
) -> None:
    a, op = world.array(), world.ops["subtract"]
    left, right = (scalar, a) if on_the_left else (a, scalar)
    assert (left - right) is ASKED
    kinds = (type(scalar), world.layout) if on_the_left else (world.layout, type(scalar))
    op.weak[kinds] = (world.layout, world.scalar)
    result = left - right
    if type(scalar) not in (float, int):
        assert result is ASKED
        return
    value = result.storage.value
    assert (
        value.op is op and value.layout is world.layout and value.site[0] is sys._getframe().f_code
    )
    constant = value.operands[0 if on_the_left else 1]
    assert value.operands[1 if on_the_left else 0] is a.storage.value
    assert (constant.op, constant.data, constant.operands) == (None, None, ())
    assert (
        constant.layout is world.scalar
        and constant.attrs.dtype == F8
        and constant.attrs.shape == ()
    )
    assert constant.attrs.tobytes() == np.float64(scalar).tobytes()
    assert world.core.floor.pending == 16
    assert (right - left) is ASKED  # the memo goes by the order of the operands


def test_scalars_that_do_not_fit_are_the_hooks(world: World) -> None:
    core = world.core
    byte, scalar = (core.make_layout(np.dtype(np.uint8), shape) for shape in ((16,), ()))
    world.ops["add"].weak[(byte, int)] = (byte, scalar)
    a = world.array(dtype=np.uint8)
    assert type(a + 255) is world.Array
    assert (
        (a + 256) is ASKED
        and (a + -1) is ASKED
        and world.asked == [world.call("add", a, 256), world.call("add", a, -1)]
    )
    a.storage.value.data.shared = True
    assert (a + 1) is ASKED
    a.storage.value.data.shared = False
    a.window = core.View(byte, 0)
    assert (a + 1) is ASKED


# -- flushing --------------------------------------------------------------------------------------


def test_a_flush_is_due_when_the_anchor_comes_round(world: World) -> None:
    core, a = world.core, world.array()
    core.floor.limit = 10
    kept: list[Any] = []
    flushes: list[int] = []
    for _ in range(20):
        kept.append(a + a)
        kept.append(a - a)
        kept.append(a * a)
        flushes.append(world.flushed)
    assert core.floor.anchor is not None and core.floor.anchor == kept[9].storage.value.site
    # Op 10 becomes the anchor; ops 13, 25, 37 and 49 stand at it with ten or more before them.
    assert world.flushed == 4 and flushes[3] == 0 and flushes[4] == 1
    counts = []
    for _ in range(149):
        kept.append(a / a)
        counts.append(core.floor.count)
    # The anchor of the loop before never comes: at twice the limit this one's site takes over, and
    # from then on every tenth op flushes.
    assert max(counts) == 20 and counts[-20:].count(0) == 2
    assert core.floor.anchor == kept[-1].storage.value.site
    flushed = world.flushed
    core.floor.budget = 16 * 5
    core.floor.limit = 3
    core.floor.anchor = ("elsewhere", 0)
    core.floor.count = core.floor.pending = 0
    kept += [a + a for _ in range(5)]
    assert world.flushed == flushed
    kept += [a + a for _ in range(2)]
    assert world.flushed == flushed + 1


def test_what_the_flush_says_is_heard(world: World) -> None:
    core, a = world.core, world.array()

    def fail() -> None:
        raise KeyboardInterrupt

    core.hooks.flush = fail
    core.floor.limit = 1
    core.floor.anchor = None
    with pytest.raises(KeyboardInterrupt):
        for _ in range(2):
            a + a
    assert core.floor.due("code", 4) is False  # another place than the anchor's


def test_a_flush_that_settles_and_drops_the_operands(world: World) -> None:
    core, a = world.core, world.array()
    b = a + a

    def settle() -> None:
        for storage in core.pending_storages():
            storage.value.operands, storage.value.op = (), None
            storage.rebind(a.storage.value)
        world.flush()

    core.hooks.flush = settle
    core.floor.limit = 1
    core.floor.anchor = None
    kept = []
    old = b.storage.value
    for _ in range(3):
        kept.append(b * b)
    assert kept[-1].storage.value.op is world.ops["multiply"]
    assert old.op is None and core.floor.count == 0


# -- what an array is ------------------------------------------------------------------------------


def test_an_array_shows_its_class_or_what_the_hook_says(world: World) -> None:
    a = world.array()
    assert a.__class__ is world.Array and isinstance(a, world.core.ArrayBase)
    assert not isinstance(a, np.ndarray)
    seen = []

    def appears(cls: type, code: CodeType) -> type:
        seen.append((cls, code.co_filename))
        return np.ndarray

    world.core.hooks.appears = appears
    try:
        assert isinstance(a, np.ndarray) and a.__class__ is np.ndarray and type(a) is world.Array
        assert isinstance(a, world.Array)
        assert set(seen) == {(world.Array, __file__)}
    finally:
        world.core.hooks.appears = None
    with pytest.raises(AttributeError):
        a.__class__ = int


def test_arrays_are_made_bare_and_not_hashed(world: World) -> None:
    bare = world.Array.__new__(world.Array)
    for name in ("storage", "window"):
        with pytest.raises(AttributeError):
            getattr(bare, name)
    with pytest.raises(TypeError, match="unhashable"):
        hash(bare)
    with pytest.raises(TypeError):
        world.Array(1, 2)
    with pytest.raises(AttributeError):
        bare.other = 1
    assert world.Array.operators is world.core.ArrayBase.operators
    assert world.core.ArrayBase.operators["add"] is world.ops["add"]
    with pytest.raises(KeyError):
        world.core.set_operators({})


def test_subclasses_of_arrays_override_operators(world: World) -> None:
    class Louder(world.Array):  # type: ignore[name-defined, misc]
        __slots__ = ()

        def __radd__(self, other: Any) -> Any:
            return "louder"

        def __mul__(self, other: Any) -> Any:
            return super().__mul__(other)

        def __iadd__(self, other: Any) -> Any:
            return "in place"

    a, louder = world.array(), world.array(cls=Louder)
    assert str(a + louder) == "louder" and type(louder * louder) is Louder
    louder += a
    assert str(louder) == "in place"


def test_filters_that_are_taken_away_are_noticed(world: World) -> None:
    a = world.array()
    world.core.hooks.errstate = np._core.umath._extobj_contextvar.get  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        assert (a + a).storage.value.op is world.ops["add"]
        warnings.resetwarnings()  # empties the list that was known
        for _ in range(2):
            assert (a + a).storage.value.op is world.ops["add"]
    assert (a + a).storage.value.op is world.ops["add"]


def test_recording_and_dropping_leaks_nothing(world: World) -> None:
    world.ops["add"].weak[(world.layout, float)] = (world.layout, world.scalar)
    a = world.array()

    def work(rounds: int) -> None:
        for i in range(rounds):
            c = ((a + a) * a) + 2.0
            c = -(c == c) if i % 2 else a + None
            assert c is not None
            if i % 16 == 0:
                world.core.pending_storages()
                world.asked.clear()
        world.core.pending_storages()
        world.asked.clear()

    work(200)
    gc.collect()
    before = sys.getallocatedblocks()
    watched = (a.storage.value, world.layout, world.ops["add"])
    references = [sys.getrefcount(thing) for thing in watched]
    work(3000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 300
    assert [sys.getrefcount(thing) for thing in watched] == references
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    work(200)
    gc.set_threshold(*thresholds)
