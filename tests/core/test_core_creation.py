"""Creation functions that adopt large results, and which core is used; for C and for Python."""

from __future__ import annotations

import ast
import gc
import pickle
import sys
import types
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def core(core: Any) -> Iterator[Any]:
    before = core.floor.record_floor
    core.floor.record_floor = 16
    yield core
    core.floor.record_floor = before


def made(n: int, *, fill: float = 0.0) -> np.ndarray[Any, Any]:
    """Return n elements."""
    return np.full(n, fill)


def test_large_new_results_are_settled(core: Any) -> None:
    held = np.zeros(100)
    settled = lambda array: ("settled", array)  # noqa: E731
    create = core.Creation(made, settled)
    assert create(16)[0] == "settled" and create(n=20, fill=2.0)[1].tolist() == [2.0] * 20
    assert type(create(15)) is np.ndarray
    assert core.Creation(lambda: held, lambda array: "settled")() is held
    assert core.Creation(lambda: [1] * 50, lambda array: "settled")() == [1] * 50
    matrix = core.Creation(lambda: np.zeros((5, 5)).view(np.recarray), lambda array: "settled")
    assert type(matrix()) is np.recarray
    token = core.POLICY.set(SimpleNamespace(record_floor=10))
    assert create(10)[0] == "settled"
    core.POLICY.reset(token)
    a = core.ArrayBase.of(core.Value(None, (), (), core.make_layout(np.dtype(float), (4,))))
    convert = core.Creation(made, lambda array: "settled", lambda *args, **kwargs: (args, kwargs))
    assert convert(a, order="C") == ((a,), {"order": "C"}) and convert(16) == "settled"
    writing = core.Creation(made, settled, None, None, lambda *args, **kwargs: (args, kwargs))
    assert writing(3, a) == ((3, a), {}) and writing(n=3, fill=a) == ((), {"n": 3, "fill": a})
    assert writing(3, fill=1.0).tolist() == [1.0] * 3 and writing(16)[0] == "settled"
    with pytest.raises(TypeError, match="made"):
        create()
    with pytest.raises(ZeroDivisionError):
        core.Creation(made, lambda array: 1 / 0)(16)


FILLINGS: tuple[tuple[Any, ...], ...] = (
    (10,), (0,), ((),), ((2, 3),), ((2, 0, 3),), (-1,), ((2, -1),), (1.5,), ("3",), (None,),
    ([2, 2],), (np.int64(3),),
    (True,), ((3, True),), (1 << 70,), ((1 << 40, 1 << 40),), (3, np.float32), (3, "i4", "F"), (),
    ((1,) * 70,), ((1 << 32, 1 << 32, 0),), ((40,),), ((4, 4),),
)  # fmt: skip
FULLS: tuple[tuple[Any, ...], ...] = (
    (3, 2.5), ((2, 2), 7), (3, -0.0), (3, np.nan), (3, True), (3, 1j), (3, 1 << 63), (3, 1 << 70),
    (3, -(1 << 63)), (3, np.float32(2)), (3, [1, 2, 3]), (3, [1, 2]), (3, "text"), (3,), (-1, 2.0),
    (3, 2.5, int), (3, None), (40, 1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("function", "fills", "arguments"),
    [(np.ones, 1.0, a) for a in FILLINGS] + [(np.full, ..., a) for a in FULLS],
)
def test_what_fills_a_shape_gives_what_numpy_gives(
    core: Any, function: Any, fills: Any, arguments: tuple[Any, ...]
) -> None:
    def settled(array: np.ndarray[Any, Any]) -> Any:
        return "settled", array

    def outcome(call: Any) -> Any:
        try:
            made = call(*arguments)
        except Exception as error:
            return type(error), str(error)
        return made.dtype, made.shape, made.strides, made.tobytes(), made.flags.num

    create = core.Creation(function, settled, None, fills)

    def ours(*given: Any) -> Any:
        made = create(*given)
        if type(made) is tuple:
            assert made[1].size >= 16
            return made[1]
        assert made.size < 16
        return made

    assert outcome(ours) == outcome(function)
    token = core.POLICY.set(SimpleNamespace(record_floor=0))
    small = create(3, 2.0) if function is np.full else create(3)
    core.POLICY.reset(token)
    assert type(small) is tuple and small[1].shape == (3,)


def test_a_creation_function_looks_like_its_own(core: Any) -> None:
    create = core.Creation(made, lambda array: array)
    assert (create.__name__, create.__doc__, create.__module__) == (
        "made",
        "Return n elements.",
        __name__,
    )
    assert create.__qualname__ == "made" and create.__wrapped__ is made and callable(create)
    create.__qualname__ = "other"
    assert create.__qualname__ == "other"
    seen = weakref.ref(create)
    create.me = create
    del create
    gc.collect()
    assert seen() is None


def test_a_creation_function_binds_as_the_wrapped_one_does(core: Any) -> None:
    class Maker:
        size = 20

        def many(self, n: int = 1) -> np.ndarray[Any, Any]:
            return np.zeros(n * self.size)

    class Wrapped(Maker):
        many = core.Creation(Maker.many, lambda array: ("settled", array.size))

    assert Wrapped().many(2) == ("settled", 40) and Wrapped.many(Wrapped(), n=3) == ("settled", 60)
    random = core.Creation(np.random.Generator.random, len)
    draws = type("Draws", (np.random.Generator,), {"random": random})
    assert draws(np.random.PCG64(1)).random(30) == 30
    assert (
        draws(np.random.PCG64(1)).random(3).tolist() == np.random.default_rng(1).random(3).tolist()
    )


create_for_pickle: Any = None


def test_a_creation_function_is_pickled_by_name(core: Any) -> None:
    global create_for_pickle
    create_for_pickle = core.Creation(made, lambda array: array)
    create_for_pickle.__qualname__ = "create_for_pickle"
    assert pickle.loads(pickle.dumps(create_for_pickle)) is create_for_pickle


def test_a_public_function_shows_what_it_raises_on_its_way_out(core: Any) -> None:
    seen: list[BaseException] = []

    def erred(error: BaseException) -> None:
        assert error.__traceback__ is not None
        seen.append(error)
        error.__traceback__ = None

    def function(x: Any, *, y: int = 1) -> Any:
        """Divide."""
        return x / y

    made = core.Public(function, erred)
    assert made(3.0, y=2) == 1.5 and not seen
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("function", "Divide.", function)
    with pytest.raises(ZeroDivisionError) as caught:
        made(1, y=0)
    assert seen == [caught.value]
    names = [entry.name for entry in caught.traceback]
    assert "function" not in names
    with pytest.raises(ZeroDivisionError):  # the error matters more than how it looks
        core.Public(function, lambda error: 1 / 0)(1, y=0)

    class Holder:
        method = made

    with pytest.raises(TypeError, match="unsupported operand"):
        Holder().method()
    assert Holder.method is Holder.__dict__["method"]
    reference = weakref.ref(made)
    del made, Holder, caught
    seen.clear()
    gc.collect()
    assert reference() is None


def test_a_namespace_shows_a_module_as_it_is(core: Any) -> None:
    real = types.ModuleType("real")
    real.__file__ = "/nowhere/real.py"
    vars(real).update(one=1, made=made, late=len)
    own, other = object(), object()
    shown: dict[str, Any] = {"made": (made, own), "gone": (made, own)}

    def late(found: Any) -> Any:
        if found is len:
            shown["late"] = len, other
        return shown["late"][1] if found is len else found

    shown["late"] = late

    class Named(core.Namespace):  # type: ignore[misc]
        """As `alight run` has it."""

    namespace: Any = Named(real, shown)
    assert isinstance(namespace, types.ModuleType) and type(namespace) is Named
    assert vars(namespace) is vars(real) and dir(namespace) == dir(real)
    assert "real" in repr(namespace) and namespace.__name__ == "real"
    assert namespace.made is own and namespace.late is other and namespace.late is other
    assert (namespace.one, namespace.__class__, namespace.__file__) == (
        1,
        type(real),
        real.__file__,
    )
    with pytest.raises(AttributeError, match="module 'real' has no attribute 'gone'"):
        _ = namespace.gone
    real.one, real.made = 2, print  # type: ignore[attr-defined]
    assert namespace.one == 2 and namespace.made is print
    namespace.made = own  # put back: NumPy gets its own, not what stands for it
    assert vars(real)["made"] is made and namespace.made is own
    namespace.made = other
    assert vars(real)["made"] is namespace.made is other
    namespace.two = 3
    assert vars(real)["two"] == 3
    del namespace.two
    for absent in ("two", "three"):
        with pytest.raises(AttributeError, match=absent):
            delattr(namespace, absent)
    real.__getattr__ = lambda name: made if name == "made" else name  # type: ignore[method-assign]
    del real.made
    assert namespace.made is own and namespace.nothing == "nothing"
    with pytest.raises((TypeError, AttributeError)):
        Named(3, {})
    sys.modules["a namespace"] = namespace
    try:
        del real.__getattr__
        with pytest.raises(ImportError, match=r"cannot import name 'no' from 'real' \(/nowhere"):
            exec(_import_from("a namespace"), {})
    finally:
        del sys.modules["a namespace"]
    reference = weakref.ref(namespace)
    real.me = namespace  # type: ignore[attr-defined]
    del namespace, real
    gc.collect()
    assert reference() is None


def _import_from(module: str) -> Any:
    """Return code that imports a name from a module that no import statement can name."""
    tree = ast.parse("from x import no")
    tree.body[0].module = module  # type: ignore[attr-defined]
    return compile(tree, "x", "exec")
