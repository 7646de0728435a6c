"""NumPy scalars inside `jit`: computed when they are asked for, and as immutable as NumPy's own.

NumPy gives a scalar where an operation ends in no axes, and plain programs rely on what scalars
are: `s += 1` makes a new one, `s *= 0.5` may change its type, a scalar is hashable and is a Python
float.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from alight._core import layout_of
from alight._src.base.originals import np
from alight._src.record import storage_io
from alight._src.record.array import Array

__all__ = ["Scalar"]


_OF_THE_CORE = frozenset(("storage", "window"))


class Scalar(Array):
    """A NumPy scalar whose value may still be pending."""

    __slots__ = ()
    immutable = True

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Return NumPy's scalar type: isinstance looks here after the type itself."""
        return layout_of(self).dtype.type

    def now(self) -> Any:
        """Return the NumPy scalar."""
        return storage_io.host(self)[()]

    @property
    def T(self) -> Any:
        """Return the scalar itself, as NumPy does."""
        return self

    def transpose(self, *axes: Any) -> Any:
        """Return the scalar itself, as NumPy does."""
        return self if not axes else self.now().transpose(*axes)

    def squeeze(self, axis: Any = None) -> Any:
        """Return the scalar itself, as NumPy does."""
        return self if axis is None else self.now().squeeze(axis)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """Return an array, or without axes the scalar itself, as NumPy does."""
        result = super().reshape(*shape, order=order, copy=copy)
        return result if result.ndim else self

    @property  # type: ignore[misc]
    def real(self) -> Any:
        """Return the real part, a scalar."""
        return Scalar.of(storage_io.read(super().real)) if self.dtype.kind == "c" else self

    @property  # type: ignore[misc]
    def imag(self) -> Any:
        """Return the imaginary part, a scalar."""
        of_two = self.dtype.kind == "c"
        return Scalar.of(storage_io.read(super().imag)) if of_two else self.now().imag

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.now())

    def __repr__(self) -> str:
        return repr(self.now())

    def __str__(self) -> str:
        return str(self.now())

    def __format__(self, spec: str) -> str:
        return format(self.now(), spec)

    def __getitem__(self, key: Any) -> Any:
        return self.now()[key]

    def __setitem__(self, key: Any, item: Any) -> None:
        operator.setitem(self.now(), key, item)  # the error NumPy words

    def __setattr__(self, name: str, item: Any) -> None:
        if name in _OF_THE_CORE:
            super().__setattr__(name, item)
        else:
            setattr(self.now(), name, item)  # the error NumPy words

    def __iter__(self) -> Any:
        return iter(self.now())

    def __len__(self) -> int:
        return len(self.now())

    def __round__(self, digits: Any = None) -> Any:
        return round(self.now(), digits)

    def __copy__(self) -> Any:
        return self.now()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.now()

    def __reduce__(self) -> Any:
        return self.now().__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.now().__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.dtype.type.__name__!r} object has no attribute {name!r}")
        return getattr(self.now(), name)


def _of_scalars(name: str) -> property:
    """Return an attribute of arrays that is the scalar's own, or that scalars have not: NumPy words
    the error."""
    return property(lambda self: getattr(self.now(), name))


# A scalar has no memory: what Arrays do with theirs is done with a copy, or not at all.
_WITH_MEMORY = frozenset(("fill", "flags", "flat", "resize", "view"))
for _name in dir(np.ndarray):
    if not _name.startswith("_") and (
        _name in _WITH_MEMORY
        or not hasattr(np.number, _name)
        or getattr(getattr(Array, _name), "in_numpy", False)
    ):
        setattr(Scalar, _name, _of_scalars(_name))


def _anew(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Scalar, other: Any) -> Any:
        return operation(self, other)

    return method


for _name in (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lshift", "rshift", "and_", "or_", "xor"),
):
    setattr(Scalar, f"__i{_name.rstrip('_')}__", _anew(getattr(operator, _name)))
