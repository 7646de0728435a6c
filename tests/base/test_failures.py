"""What a signal's handler raises is nobody's failure, whatever class it has."""

from __future__ import annotations

import ast
import builtins
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.base.failures import failures, ignoring_failures

SOURCE = Path(alight.__file__).parent
# Programs of their own; what says which errors are failures; and what is told of packages' classes.
LEFT_OUT = ("_src/bench", "_src/cli", "_src/base/failures.py", "_src/jit/border", "backends/sim")
# Python's own, of which a handler has no need: they say what a module, a text, a generator is.
_OF_PYTHON = {"ImportError", "SyntaxError", "RecursionError", "StopIteration", "GeneratorExit"}
_ERRORS = {
    name
    for name, item in vars(builtins).items()
    if isinstance(item, type) and issubclass(item, Exception) and name not in _OF_PYTHON
}


def _named(node: ast.expr | None) -> set[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {part.id for part in parts if isinstance(part, ast.Name)} & _ERRORS


def _caught(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """Return the lines where Python's errors are caught, and which."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield node.lineno, {"all"}
            elif names := _named(node.type):
                yield node.lineno, names
        elif isinstance(node, ast.Call):
            function = node.func
            word = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if word == "suppress" and (names := set().union(*map(_named, node.args))):
                yield node.lineno, names


def test_no_handlers_error_is_caught() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(LEFT_OUT):
            for line, names in _caught(ast.parse(path.read_text(encoding="utf-8"))):
                wrong.append(f"{name}:{line}: {', '.join(sorted(names))}")
    # The namespace looks a name up there, and says that it has none.
    assert wrong == [line for line in wrong if line.startswith("__init__.py")], wrong


class Handler:
    def __init__(self, error: type[Exception]) -> None:
        self.error = error
        self.calls = 0

    def __call__(self, number: int, frame: Any) -> None:
        self.calls += 1
        raise self.error("of the handler")

    def __enter__(self) -> Handler:
        self.before = signal.signal(signal.SIGTERM, self)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGTERM, self.before)


def interrupt(*_: Any) -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("error", [ValueError, TimeoutError])
def test_some_kinds_are_caught_where_they_are_named(error: type[Exception]) -> None:
    with pytest.raises(KeyError), ignoring_failures(ValueError):
        raise KeyError
    try:
        with ignoring_failures(ValueError):
            raise ValueError
        raise error
    except failures(ValueError, OSError) as caught:
        assert type(caught) is error
    with Handler(error), pytest.raises(error):
        try:
            interrupt()
        except failures(ValueError, OSError):
            raise AssertionError from None
    with Handler(error), pytest.raises(error), ignoring_failures(ValueError, OSError):
        interrupt()


def zero() -> Any:
    return alight.asarray(np.zeros(()))


# What NumPy does at once, of which `errstate` says to call the program.
STATEMENTS: dict[str, Callable[[], Any]] = {
    "in place": lambda: zero().__itruediv__(0.0),
    "operator": lambda: alight.zeros(3) / alight.zeros(3),
    "function": lambda: alight.std(alight.zeros(0), ddof=0),
    "average": lambda: alight.average(alight.zeros(3), weights=[0.0, 0.0, 1.0]) / 0.0,
    "method": lambda: alight.zeros(0).mean(),
    "compare": lambda: alight.zeros(3).var(ddof=3),
    "set": lambda: alight.zeros(3, "f4").__setitem__(0, 1e300),
    "clip": lambda: alight.clip(alight.zeros(3), alight.zeros(3) / 0.0, None),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("error", [TypeError, ValueError, OverflowError, IndexError])
@pytest.mark.parametrize("name", STATEMENTS)
def test_what_a_handler_raises_inside_of_numpy_comes_once(
    name: str, error: type[Exception]
) -> None:
    with (
        alight.policy(floor=1000),
        np.errstate(all="call", call=interrupt),
        Handler(error) as handler,
        pytest.raises(error, match="of the handler"),
    ):
        STATEMENTS[name]()
    assert handler.calls == 1


class OfAHandler(Exception):
    """What handlers raise here."""


def takes(number: Any, frame: Any) -> None:
    raise OfAHandler


def takes_any(*args: Any) -> None:
    raise OfAHandler


def drops_its_frame(number: Any, frame: Any) -> None:
    del frame
    raise OfAHandler


def has_its_frame_looked_at(number: Any, frame: Any) -> None:
    frame = frame.f_lineno
    raise OfAHandler


def takes_one_more(more: Any, number: Any, frame: Any = None) -> None:
    raise OfAHandler


def is_one_handlers_tail(number: Any, frame: Any) -> None:
    def raises() -> None:
        raise OfAHandler

    raises()


def asks_for_none(number: Any, frame: Any) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise OfAHandler


class Handling:
    def __call__(self, number: Any, frame: Any) -> None:
        del frame
        raise OfAHandler

    def method(self, *args: Any) -> None:
        del args
        raise OfAHandler


@functools.wraps(drops_its_frame)
def wrapping(*args: Any) -> None:
    drops_its_frame(*args)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no SIGALRM here")
@pytest.mark.parametrize(
    "handler",
    [
        *(takes, takes_any, drops_its_frame, has_its_frame_looked_at, is_one_handlers_tail),
        *(asks_for_none, Handling(), Handling().method, wrapping),
        *(functools.partial(takes_one_more, 1), functools.partial(drops_its_frame)),
        lambda *args: drops_its_frame(*args),
        lambda number, frame: drops_its_frame(1, 2),
    ],
)
def test_handlers_are_known_however_they_take_their_frame(handler: Any) -> None:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(OfAHandler), ignoring_failures():
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_who_is_given_the_frame_that_calls_is_no_handler() -> None:
    def looks(frame: Any) -> None:
        raise OSError(frame.f_lineno)

    def looks_in_a_place(name: str, frame: Any, depth: int = 0) -> None:
        raise OSError(frame.f_lineno)

    def looks_far(depth: int, frame: Any) -> None:
        raise OSError(depth)

    def all_of_them(*args: Any) -> None:
        raise OSError(args[-1].f_lineno)

    for call in (
        lambda frame: looks(frame),
        lambda frame: looks_in_a_place("a", frame),
        lambda frame: looks_far(10**6, frame),
        lambda frame: looks_far(-1, frame),
        lambda frame: all_of_them("a", frame),
    ):
        with ignoring_failures():
            call(sys._getframe())
        assert call is not None
