"""Classes of named fields, as `dataclasses` makes them, whose methods are made when they are first
needed.

What plans has sixty such classes. `dataclasses` writes six methods of each and compiles them, 0.65
ms a class: 35 of the 60 ms of processor time that a process's first plan took to be loaded (EPYC).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "field", "replace"]

_C = TypeVar("_C", bound=type)
_R = TypeVar("_R")


class _Missing:
    """What a field that has no default has for one."""

    def __repr__(self) -> str:
        return "<no default>"


_MISSING: Any = _Missing()


class _Field:
    """What is said of a field beside its type."""

    __slots__ = ("compare", "default", "factory", "init", "repr")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
    ) -> None:
        self.default = default
        self.factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare


def _dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[_C], _C]:
    """Return what makes a class one of named fields, all of which have slots."""

    def made(plain: _C) -> _C:
        assert slots, "records have no other memory"
        space = dict(plain.__dict__)
        own = {name: _of(space.pop(name, _MISSING)) for name in plain.__annotations__}
        fields: dict[str, _Field] = {**getattr(plain, "_record_fields", {}), **own}
        for name in ("__dict__", "__weakref__"):
            space.pop(name, None)
        space |= {
            "__slots__": tuple(own),
            "__match_args__": tuple([name for name, one in fields.items() if one.init]),
            "_record_fields": fields,
            "__dataclass_fields__": _Standard("__dataclass_fields__"),
            "__signature__": _Standard("__signature__"),
        }
        for name, method in _methods(fields, frozen, eq).items():
            if space.get(name) is None:  # None: a class that says what is equal has no hash
                space[name] = method
        if eq and not frozen:
            space.setdefault("__hash__", None)
        cls: Any = type(plain)(plain.__name__, plain.__bases__, space)
        cls.__qualname__ = plain.__qualname__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            cls.__init__ = _initializer(cls, fields, frozen)
            cls.__init__(self, *args, **kwargs)

        cls.__init__ = __init__
        found: _C = cls
        return found

    return made


def _of(given: Any) -> _Field:
    found = given if isinstance(given, _Field) else _Field(default=given)
    if type(found.default).__hash__ is None:
        raise ValueError(
            f"a default that may change is every record's: {found.default!r}. "
            "Fix: field(default_factory=...)."
        )
    return found


def _methods(fields: Mapping[str, _Field], frozen: bool, eq: bool) -> dict[str, Any]:
    """Return what records have for methods, beside the one that makes them."""
    found: dict[str, Any] = {"__repr__": _shown}
    if sys.version_info >= (3, 13):
        found["__replace__"] = _replaced
    compared = _getter([name for name, one in fields.items() if one.compare])
    if eq:

        def __eq__(self: Any, other: Any) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compared(self) == compared(other)

        found["__eq__"] = __eq__
    if eq and frozen:

        def __hash__(self: Any) -> int:
            return hash(compared(self))

        found["__hash__"] = __hash__
    if frozen:
        found |= {
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
            "__getstate__": _state,
            "__setstate__": _set_state,
        }
    return found


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the fields of these names of a record."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _initializer(cls: type, fields: Mapping[str, _Field], frozen: bool) -> Callable[..., None]:
    """Return the method that makes a record of its fields' values."""
    space: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    given, lines = ["self"], []
    for name, one in fields.items():
        value = name
        if one.factory is not _MISSING:
            space[f"_factory_{name}"] = one.factory
            value = f"_factory_{name}()"
            if one.init:
                given.append(f"{name}=_missing")
                value = f"{value} if {name} is _missing else {name}"
        elif one.default is not _MISSING:
            space[f"_default_{name}"] = one.default
            given.append(f"{name}=_default_{name}")
        elif one.init:
            given.append(name)
        else:
            continue  # the class itself sets it, once it is made
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__({', '.join(given)}):\n " + "\n ".join(lines or ["pass"])
    # Compiled first: where an interrupt ends the exec of a text, Python ends so once it is over.
    exec(compile(text, "<record>", "exec"), space)
    method: Any = space["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    found: Callable[..., None] = method
    return found


@recursive_repr()
def _shown(self: Any) -> str:
    shown = [name for name, one in self._record_fields.items() if one.repr]
    values = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
    return f"{type(self).__qualname__}({values})"


def _replaced(record: _R, /, **changes: Any) -> _R:
    """Return a record with some of its fields changed."""
    kept: Any = record
    for name, one in kept._record_fields.items():
        if not one.init:
            if name in changes:
                raise ValueError(f"{type(record).__qualname__} makes {name} itself")
        elif name not in changes:
            changes[name] = getattr(record, name)
    return type(record)(**changes)


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self._record_fields]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self._record_fields, state, strict=True):
        object.__setattr__(self, name, value)


class _Standard:
    """What `dataclasses` says of the same class, for who asks: `asdict`, `fields`, `signature`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, record: Any, cls: Any) -> Any:
        twin = _twins.get(cls)
        if twin is None:
            twin = _twins[cls] = self.twin(cls)
        if self.name != "__signature__":
            return twin.__dataclass_fields__
        import inspect

        return inspect.signature(twin)

    @staticmethod
    def twin(cls: Any) -> Any:
        """Return what `dataclasses` makes of the fields of a class."""
        import dataclasses

        types: dict[str, Any] = {}
        for base in reversed(cls.__mro__[:-1]):
            types |= base.__annotations__
        space: dict[str, Any] = {"__annotations__": types}
        for name, one in cls._record_fields.items():
            said: dict[str, Any] = {"init": one.init, "repr": one.repr, "compare": one.compare}
            if one.default is not _MISSING:
                said["default"] = one.default
            if one.factory is not _MISSING:
                said["default_factory"] = one.factory
            space[name] = dataclasses.field(**said)
        return dataclasses.dataclass(type(cls.__name__, (), space))


_twins: dict[type, Any] = {}  # by class; one takes a millisecond to make


if TYPE_CHECKING:  # these are what they stand for, to the letter
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = _dataclass, _Field, _replaced
