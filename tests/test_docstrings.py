"""What is public and not NumPy's is documented in numpydoc's form, with examples that run."""

from __future__ import annotations

import doctest
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy
import pytest

import alight
import alight.backends.base
import alight.device
import alight.errors
import alight.ops

# In the order in which numpydoc has them.
SECTIONS = (
    *("Parameters", "Returns", "Yields", "Raises", "See Also", "Notes", "References"),
    *("Examples", "Attributes"),
)
OWN = (alight.errors, alight.device, alight.ops, alight.backends.base)
# Attributes and methods of Arrays that NumPy documents otherwise, or not at all.
OF_ARRAYS = ("device", "to_device", "to_numpy")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Entry(NamedTuple):
    """A public name that is not NumPy's; `exempt` from an example: what only backends call."""

    name: str
    it: Any
    exempt: bool = False


def members(name: str, owner: type, exempt: bool = False) -> Iterator[Entry]:
    """Yield a class and what it defines itself under a public name."""
    yield Entry(name, owner, exempt)
    for member, value in vars(owner).items():
        found = getattr(value, "__func__", value)
        if not member.startswith("_") and isinstance(found, (property, type(members))):
            yield Entry(f"{name}.{member}", found, True)


def entries() -> Iterator[Entry]:
    for name in alight.__all__:
        found = getattr(alight, name)
        if not (hasattr(numpy, name) or inspect.ismodule(found) or found is alight.Array):
            yield Entry(name, found)
    yield Entry("Array", alight.Array)
    for member in OF_ARRAYS:
        yield Entry(f"Array.{member}", vars(alight.Array)[member])
    yield from members("Report", type(alight.report()))
    for entry in members("random.Counter", alight.random.Counter):
        yield Entry(entry.name, entry.it)
    for name in ("eig", "eigvals"):
        yield Entry(f"linalg.{name}", getattr(alight.linalg, name))
    for module in OWN:
        for name, value in vars(module).items():
            defined = getattr(value, "__module__", None) == module.__name__
            if name.startswith("_") or not defined:
                continue
            title = f"{module.__name__.removeprefix('alight.')}.{name}"
            exempt = module is not alight.device or issubclass(value, Exception)
            if isinstance(value, type):
                yield from members(title, value, exempt)
            else:
                yield Entry(title, value, exempt)


ALL = list(entries())


def parts(text: str) -> dict[str, list[str]]:
    """Return the lines of each section of a docstring; what stands before them has no name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line, after in zip(lines := text.splitlines(), [*lines[1:], ""], strict=True):
        if line and after and set(after) == {"-"} and not line.startswith(" "):
            name = line
            assert name in SECTIONS, f"{name!r} is no section of numpydoc's"
            assert len(after) == len(line), f"the line below {name} is not as long"
            found[name] = []
        elif not (set(line) == {"-"} and line):
            found[name].append(line)
    return found


def described(lines: list[str]) -> dict[str, str]:
    """Return what is said of each name of a section; `a, b : kind` says it of both."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if line and not line.startswith(" "):
            names = [name.lstrip("*") for name in line.partition(" : ")[0].split(", ")]
            found |= dict.fromkeys(names, "")
        elif line:
            for name in names:
                found[name] += line.strip() + " "
    return found


def parameters(it: Any) -> list[str] | None:
    """Return the names that a caller gives; None where there is no call, or it says nothing."""
    if isinstance(it, property):
        return None
    if isinstance(it, type):
        if issubclass(it, tuple):
            return list(it._fields)  # type: ignore[attr-defined]
        # An exception's message, an enumeration's value, a protocol: nothing of their own.
        own = "__init__" in vars(it) and not getattr(it, "_is_protocol", False)
        if not own or issubclass(it, enum.Enum):
            return None
    signature = inspect.signature(it)
    # What is never given is there for the error that says so.
    return [
        name
        for name, one in signature.parameters.items()
        if name not in ("self", "cls") and str(one.annotation) not in ("Never", "typing.Never")
    ]


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_a_public_docstring_has_the_form_of_numpydoc(entry: Entry) -> None:
    text = inspect.getdoc(entry.it) or ""
    found = parts(text)
    summary, *rest = found[""] or [""]
    assert summary.endswith("."), "the summary is one line, and a sentence"
    assert rest[:1] in ([], [""]), "an empty line follows the summary"
    assert [name for name in SECTIONS if name in found] == list(found)[1:], "other order"
    for name in ("Parameters", "Returns", "Raises", "Attributes"):
        for what, said in described(found.get(name, [])).items():
            assert said.strip().endswith("."), f"{name}: {what} is described in sentences"
    if (names := parameters(entry.it)) is not None:
        assert list(described(found.get("Parameters", []))) == names
    if inspect.isfunction(inspect.unwrap(entry.it)):
        returns = inspect.signature(entry.it).return_annotation not in (None, "None")
        assert ("Returns" in found) == returns
    assert entry.exempt or isinstance(entry.it, property) or "Examples" in found
    for error in described(found.get("Raises", [])):
        known = (alight.errors, alight.device, numpy.linalg, __import__("builtins"))
        assert any(hasattr(where, error) for where in known), error


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_examples_of_a_public_docstring_run(entry: Entry) -> None:
    text = inspect.getdoc(entry.it) or ""
    function: Callable[..., Any] = inspect.unwrap(getattr(entry.it, "fget", entry.it))
    names = dict(vars(import_module(function.__module__)))
    example = doctest.DocTestParser().get_doctest(text, names, entry.name, None, None)
    written: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=written.append)
    assert not result.failed, "".join(written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("No end", "sentence"),
        ("One.\nTwo.", "empty line"),
        ("One.\n\nParameters\n---\nx : int\n    It.", "as long"),
        ("One.\n\nArguments\n---------\nx : int\n    It.", "no section"),
        ("One.\n\nParameters\n----------\ny : int\n    It.", "'y'"),
        ("One.\n\nParameters\n----------\nx : int", "described"),
        ("One.\n\nReturns\n-------\nint\n    It.\n\nParameters\n----------\nx : int", "order"),
        ("One.\n\nParameters\n----------\nx : int\n    It.", "Returns"),
    ],
)
def test_the_check_of_docstrings_can_fail(text: str, said: str) -> None:
    def written(x: int) -> int:
        return x

    written.__doc__ = text
    with pytest.raises(AssertionError, match=re.escape(said)):
        test_a_public_docstring_has_the_form_of_numpydoc(Entry("written", written))
