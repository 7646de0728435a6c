"""Objects of the program that are the only ones to have an array, handed to a package."""

from __future__ import annotations

import sys
import threading
from collections import deque
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.jit import border as border_module
from alight._src.jit.border import border

pytestmark = pytest.mark.usefixtures("looked_at_once")

PACKAGE: dict[str, Any] = {"__name__": "outside"}
TEXT = """
import time
def look(item):
    pass
def ask(items):
    kinds = set()
    for _ in range(3):
        kinds |= set(map(type, items.values() if type(items) is dict else items))
        time.sleep(0)
    return kinds
def call(f):
    return f()
KEPT = []
def keep(item):
    KEPT[:] = [item]
def fail(item):
    raise ValueError("no")
"""
exec(compile(TEXT, "/site-packages/outside.py", "exec"), PACKAGE)


def first(holder: Any) -> Any:
    """Return what is in a holder."""
    if isinstance(holder, SimpleNamespace):
        return holder.x
    return holder["x"] if isinstance(holder, dict) else holder[0]


@pytest.mark.parametrize(
    "make",
    [lambda x: [x], lambda x: deque([x]), lambda x: {"x": x}, lambda x: SimpleNamespace(x=x)],
)
def test_an_array_that_nothing_else_holds_comes_back(make: Any) -> None:
    holder = make(alight.arange(5.0))
    border(PACKAGE["look"], holder)
    assert type(first(holder)) is alight.Array


@pytest.mark.parametrize("make", [lambda x: [x, 2], lambda x: {"x": x}, lambda x: deque([x])])
def test_calls_on_several_threads_have_ndarrays_until_the_last_ends(make: Any) -> None:
    array = alight.arange(5.0)
    holder = make(array)
    kinds: set[type] = set()

    def ask() -> None:
        for _ in range(200):
            kinds.update(border(PACKAGE["ask"], holder))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert kinds - {int} == {np.ndarray}
    assert first(holder) is array


def test_what_is_stored_meanwhile_stays() -> None:
    array, holder = alight.arange(5.0), {"x": alight.arange(3.0), "y": alight.arange(4.0)}

    def store() -> None:
        holder["x"] = array

    border(PACKAGE["call"], lambda: border(PACKAGE["look"], [holder, store()]))
    assert holder["x"] is array and type(holder["y"]) is alight.Array


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: {"x": x}])
def test_what_a_package_keeps_stays_ndarrays(make: Any) -> None:
    kept = make(alight.arange(5.0))
    border(PACKAGE["keep"], kept)
    assert type(first(kept)) is np.ndarray
    border(PACKAGE["keep"], {"k": kept})
    assert type(first(PACKAGE["KEPT"][0]["k"])) is np.ndarray


def test_what_a_package_raised_over_comes_back() -> None:
    array = alight.arange(5.0)
    holder = [array]
    with pytest.raises(ValueError, match="no"):
        border(PACKAGE["fail"], holder)
    assert holder[0] is array


def test_an_interrupt_while_arrays_come_back_ends_the_call_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(self: Any, kept: bool = False) -> Any:
        raise KeyboardInterrupt

    array = alight.arange(10.0) + 1
    holder = [array]
    names: dict[str, Any] = {}
    exec(compile("def given(holder): pass", "/x/site-packages/pkg/mod.py", "exec"), names)
    with monkeypatch.context() as patched:
        patched.setattr(border_module._Crossing, "give_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            border(names["given"], holder)
    assert not border_module._out and border.out == 0
    holder[0] = array
    border(names["given"], holder)
    assert holder[0] is array


def test_the_class_of_a_class_is_not_asked_for_its_hash() -> None:
    asked: list[Any] = []

    class Meta(type):
        def __hash__(cls) -> int:
            asked.append(cls)
            return type.__hash__(cls)

        def __eq__(cls, other: object) -> bool:
            asked.append(cls)
            return cls is other

    class Held(metaclass=Meta):
        pass

    def outside(*args: Any) -> int:
        return len(args)

    code = outside.__code__.replace(co_filename="/a/site-packages/package/module.py")
    foreign = FunctionType(code, globals())
    alive = alight.arange(4.0) + 1
    held = {n: Held() for n in range(3)}
    for item in held.values():
        item.kept = [Held(), 1]  # type: ignore[attr-defined]
    assert border(foreign, held, [Held(), (Held(),)], Held, list(held.values())) == 4
    assert border(Held) and alive.size == 4 and not asked
