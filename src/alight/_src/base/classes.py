"""Classes by what they are, whatever their own classes think of being equal."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from alight._src.base.failures import failures

__all__ = ["classes_of", "is_among", "kept_by_class", "module_of"]

_Told = TypeVar("_Told")


def kept_by_class(function: Callable[[Any], _Told]) -> Callable[[Any], _Told]:
    """Return a function of a class that keeps what it has told, but of classes that have their own
    idea of which are equal: their code is not run, and not trusted with it."""
    kept = lru_cache(1024)(function)

    @wraps(function)
    def told(kind: Any) -> _Told:
        made_by: Any = type(kind)
        same = made_by is type or (made_by.__hash__ is _hash and made_by.__eq__ is _equal)
        return kept(kind) if same else function(kind)

    return told


def module_of(kind: Any) -> str:
    """Return the name of the module that a class is of; "" where it gives the name something else,
    as classes do whose objects say it themselves."""
    try:
        name = _module.__get__(kind)
    except failures(AttributeError):
        return ""
    return name if isinstance(name, str) else ""


def is_among(kind: Any, kinds: Container[Any]) -> bool:
    """Tell whether a class is one of some that `type` has made; what others think of being equal
    is not asked."""
    return type(kind) is type and kind in kinds


def classes_of(items: Iterable[Any]) -> Iterable[Any]:
    """Return the classes of items, each once; of those that have no hash, too."""
    try:
        return set(map(type, items))  # in C: lists of numbers are long
    except failures():
        return {id(kind): kind for kind in map(type, items)}.values()


_module: Any = vars(type)["__module__"]  # which runs none of a metaclass's code
_hash: Any = type.__hash__
_equal: Any = type.__eq__
