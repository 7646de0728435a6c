"""Which functions of numbers may be given whole arrays: each element of the result is then what the
element alone would have given.

A pure function is called once with a stand-in for a number. That has a number's operators and takes
part in NumPy's ufuncs; whatever else the body asks of it, its truth or its type, ends the look. So
no body passes that does not do the same for every element.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.jit.purity import prove

__all__ = ["Elements", "Verdict", "looked_at"]


class Elements(enum.Enum):
    """What a body is given, where it is not given the whole array."""

    PYTHON_FLOATS = enum.auto()
    ARRAYS = enum.auto()


class Verdict(enum.Enum):
    """Whether a body may be given a whole array instead. MAY_RAISE: it may, but where NumPy only
    warns, a division of Python's own floats raises."""

    YES = enum.auto()
    MAY_RAISE = enum.auto()
    NO = enum.auto()


class _Refused(Exception):
    """Something was asked of a stand-in that has no answer for all elements."""


def looked_at(
    function: Any, elements: Elements, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Verdict:
    """Return whether a function does the same with every element of its first argument."""
    if type(function) is not FunctionType or not prove(function).pure:
        return Verdict.NO
    look = _Look(elements)
    start = _Number(elements is Elements.PYTHON_FLOATS, False, look)
    if not all(map(_is_number, (*args, *kwargs.values()))):
        return Verdict.NO
    try:
        result = function(start, *args, **kwargs)
    except failures():  # the body's own errors are for its call to raise
        return Verdict.NO
    return look.verdict if type(result) is _Number else Verdict.NO


def _is_number(value: Any) -> bool:
    """Tell whether a number means the same beside an element and beside an array. Larger integers
    are rounded, or refused, by the dtype."""
    if type(value) is int:
        return abs(value) <= 2**15
    return type(value) in (float, bool)


class _Look:
    """What was found so far."""

    def __init__(self, elements: Elements) -> None:
        self.elements = elements
        self.verdict = Verdict.YES


class _Number:
    """Stands for each element: Python's own float or bool (``plain``), or NumPy's."""

    __slots__ = ("look", "plain", "truth")
    __hash__ = None  # type: ignore[assignment]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # what isinstance asks for
        raise _Refused

    def __init__(self, plain: bool, truth: bool, look: _Look) -> None:
        self.plain = plain
        self.truth = truth
        self.look = look

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> _Number:
        if method != "__call__" or kwargs or ufunc.nout != 1 or ufunc.signature is not None:
            raise _Refused
        dtypes = [
            np.dtype(bool if one.truth else float) if type(one) is _Number else type(one)
            for one in inputs
            if type(one) is _Number or _is_number(one) or _refuse()
        ]
        made = ufunc.resolve_dtypes((*dtypes, None))[-1]
        if made not in (np.dtype(float), np.dtype(bool)):
            raise _Refused
        return _Number(False, made == np.dtype(bool), self.look)


def _refuse(*_: Any, **__: Any) -> Any:
    raise _Refused


def _arithmetic(name: str, reverse: bool) -> Callable[[_Number, Any], _Number]:
    def method(one: _Number, other: Any) -> _Number:
        number = type(other) is _Number
        if not number and not _is_number(other):
            raise _Refused
        if one.truth and (other.truth if number else True):  # Python counts with them
            raise _Refused
        plain = one.plain and (other.plain if number else True)
        if plain and name == "truediv" and (number or reverse or not other):
            one.look.verdict = Verdict.MAY_RAISE
        if name == "pow" and one.look.elements is Elements.PYTHON_FLOATS:
            raise _Refused  # NumPy squares arrays, and takes C's function for a number
        return _Number(plain, False, one.look)

    return method


def _comparing(one: _Number, other: Any) -> _Number:
    number = type(other) is _Number
    if not number and not _is_number(other):
        raise _Refused
    return _Number(one.plain and (other.plain if number else True), True, one.look)


def _combining(one: _Number, other: Any) -> _Number:
    if type(other) is not _Number or not (one.truth and other.truth):
        raise _Refused
    return _Number(one.plain and other.plain, True, one.look)


def _changing(one: _Number) -> _Number:
    return _refuse() if one.truth else _Number(one.plain, False, one.look)


_ARITHMETIC = ("add", "sub", "mul", "truediv", "pow")
for _name in _ARITHMETIC:
    setattr(_Number, f"__{_name}__", _arithmetic(_name, reverse=False))
    setattr(_Number, f"__r{_name}__", _arithmetic(_name, reverse=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Number, f"__{_name}__", _comparing)
for _name in ("and", "or", "xor"):
    setattr(_Number, f"__{_name}__", _combining)
for _name in ("neg", "pos", "abs"):
    setattr(_Number, f"__{_name}__", _changing)
# An array would change where a number is bound anew.
for _name in (*_ARITHMETIC, "and", "or", "xor"):
    setattr(_Number, f"__i{_name}__", _refuse)
for _name in ("bool", "repr", "str", "format", "getattr", "array", "len", "iter", "index"):
    setattr(_Number, f"__{_name}__", _refuse)
