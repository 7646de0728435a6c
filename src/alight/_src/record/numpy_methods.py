"""What ndarray has and Array does not do itself, and how programs call what it does."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from alight._core import exported, items_count, items_of
from alight._src.base import package
from alight._src.base.originals import np
from alight._src.record import storage_io
from alight._src.record.numpy_fallback import exit_to_numpy, stands_for_scalar
from alight._src.record.tracebacks import public

__all__ = ["complete"]

_TOLD = f"{package.NAME}.Array"  # what Python's own messages call the class
# Of floats, and of whole numbers.
_SCALARS_ALONE = ("as_integer_ratio", "hex", "is_integer", "bit_count", "numerator", "denominator")

_ASKED = frozenset(
    f"__{name}__"
    for name in (
        *("bool", "int", "float", "complex", "index", "round", "trunc"),
        *("len", "iter", "contains", "hash"),
        *("array", "array_function", "dlpack", "format", "repr", "str"),
    )
)
# Methods that change nothing, and how many arrays they read: of small ones, the native core calls
# NumPy's at once. A loop over the rows of a large array calls little else.
_AT_ONCE = {
    **dict.fromkeys(
        (
            *("sum", "prod", "min", "max", "mean", "std", "var", "any", "all", "argmin", "argmax"),
            *("cumsum", "cumprod", "copy", "astype", "round", "argsort", "nonzero", "trace"),
            *("flatten", "conj", "conjugate", "argpartition"),
        ),
        1,
    ),
    **dict.fromkeys(("take", "repeat", "searchsorted", "dot", "compress", "choose"), 2),
    "clip": 3,
}
_VIEWS = frozenset(("reshape", "ravel", "transpose", "swapaxes", "squeeze"))
_CHANGES = frozenset(("sort", "fill"))


# What the core does of most arrays.
_FIRST: dict[str, Any] = {
    **{"to_numpy": exported, "__array__": exported},
    **{"__iter__": items_of, "__len__": items_count},
}
# What gives Python's own objects.
_ASKS: dict[str, Any] = {
    **{"__bool__": bool, "__int__": int, "__float__": float},
    **{name: getattr(np.ndarray, name) for name in ("item", "tolist", "tobytes")},
}
_CHANGES_ITSELF = frozenset(("partition", "put", "byteswap", "setfield"))


def complete(array: type, methods: type) -> None:
    """Give the class of arrays, whose methods of its own stand in ``methods`` too, all that
    ndarray has."""
    for name in _SCALARS_ALONE:
        setattr(array, name, _of_scalars(name))
    # Not by `__getattr__`: a class that has one is slow in every attribute.
    for name in dir(np.ndarray):
        if not name.startswith("_") and not hasattr(array, name):
            setattr(array, name, _method_in_numpy(name))
    # Methods as programs call them. What Python asks of an object by itself is among them.
    for name, found in {**vars(methods), **vars(array)}.items():
        if type(found) is FunctionType and (name[0] != "_" or name in _ASKED):
            found.__module__, found.__qualname__ = array.__module__, f"Array.{name}"
            setattr(array, name, _public(found, name))
        elif type(found) is property and found.fset is not None:
            setattr(array, name, found.setter(public(found.fset)))


def _of_scalars(name: str) -> property:
    """Return a method of NumPy's scalars alone, which arrays have not."""

    def method(self: Any) -> Any:
        if not stands_for_scalar(self):
            raise AttributeError(f"{_TOLD!r} object has no attribute {name!r}")
        return getattr(storage_io.looked_at(self)[()], name)

    return property(method, doc=f"Return NumPy's ``{name}`` of what stands for a scalar.")


def _method_in_numpy(name: str) -> Any:
    theirs = getattr(np.ndarray, name)
    if not callable(theirs):
        return property(lambda self: getattr(storage_io.looked_at(self), name))

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        changed = (self,) if name in _CHANGES_ITSELF else ()
        return exit_to_numpy(theirs, (self, *args), kwargs, changed)

    method.__name__ = name
    method.__doc__ = theirs.__doc__
    method.in_numpy = True  # type: ignore[attr-defined]
    return method


def _public(method: Any, name: str) -> Any:
    """Return a method as programs have it."""
    theirs = getattr(np.ndarray, name, None)
    if name in _VIEWS:
        return public(method, view=theirs)
    if name in _CHANGES:
        return public(method, change=theirs)
    if name in _FIRST:
        return public(method, first=_FIRST[name])
    if name in _ASKS:
        return public(method, ask=_ASKS[name])
    once = theirs if name in _AT_ONCE else None
    return public(method, once, operands=_AT_ONCE.get(name, 1), pace=name)
