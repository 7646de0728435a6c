"""The ufuncs of the array namespace: NumPy's, with Arrays as results."""

from __future__ import annotations

from typing import Any

import numpy as np

from alight._core import ArrayBase
from alight.array import ufunc_method
from alight.calls import FUNCTIONS
from alight.exits import exit_to_numpy, holds_arrays

__all__ = ["Ufunc", "ufunc"]

_known: dict[np.ufunc, Ufunc] = {}


class Ufunc:
    """A universal function whose results are Arrays, with NumPy's attributes and methods.

    What Arrays cannot hold (object, string, datetime) gives NumPy's own results.
    """

    __slots__ = ("__weakref__", "_numpy")
    _numpy: np.ufunc

    def __init__(self, numpy: np.ufunc) -> None:
        self._numpy = numpy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function of its operands."""
        ufunc = self._numpy
        if len(args) > ufunc.nin:
            outs = args[ufunc.nin :]
            if "out" in kwargs or len(args) > ufunc.nargs:
                return ufunc(*_plain(args), **kwargs)  # NumPy words the error
            args, kwargs = args[: ufunc.nin], {**kwargs, "out": outs}
        elif type(kwargs.get("out")) is not tuple and kwargs.get("out") is not None:
            kwargs = {**kwargs, "out": (kwargs["out"],)}
        if _handed_over((*args, *kwargs.get("out", ()) ) if kwargs.get("out") else args):
            return ufunc(*args, **kwargs)
        if kwargs.get("out", ()) is None:
            kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        ours = FUNCTIONS.get(ufunc)
        return ours(*args, **kwargs) if ours else ufunc_method(ufunc, "__call__", args, kwargs)

    def reduce(
        self,
        array: Any,
        /,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = np._NoValue,
        where: Any = True,
    ) -> Any:
        """Return the array folded along axes."""
        given = {"dtype": dtype, "keepdims": keepdims, "initial": initial, "where": where}
        plain = {"dtype": None, "keepdims": False, "initial": np._NoValue, "where": True}
        keywords = {k: v for k, v in given.items() if v is not plain[k]}
        return self._folded("reduce", array, axis, out, keywords)

    def accumulate(self, array: Any, /, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        """Return every step of folding the array along an axis."""
        return self._folded("accumulate", array, axis, out, {} if dtype is None else {"dtype": dtype})

    def _folded(self, method: str, array: Any, axis: Any, out: Any, keywords: dict[str, Any]) -> Any:
        if out is not None:
            keywords["out"] = out if type(out) is tuple else (out,)
        if not isinstance(array, ArrayBase):
            if _handed_over((array,)):
                return getattr(self._numpy, method)(array, axis=axis, **keywords)
            return exit_to_numpy(getattr(self._numpy, method), (array,), {"axis": axis, **keywords})
        return ufunc_method(self._numpy, method, (array,), {"axis": axis, **keywords})

    def reduceat(
        self, array: Any, /, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        """Return slices of the array folded, each from an index to the next."""
        keywords = {} if out is None else {"out": out if type(out) is tuple else (out,)}
        return exit_to_numpy(self._numpy.reduceat, (array, indices, axis, dtype), keywords)

    def outer(self, A: Any, B: Any, /, **kwargs: Any) -> Any:
        """Return the function of every pair of elements."""
        if self._numpy.nin == 2 and not kwargs and isinstance(A, ArrayBase) and self._numpy.signature is None:
            return self(A.reshape(A.shape + (1,) * np.ndim(B)), B)  # type: ignore[attr-defined]
        return exit_to_numpy(self._numpy.outer, (A, B), kwargs)

    def at(self, a: Any, indices: Any, b: Any = np._NoValue, /) -> None:
        """Do the function in place at indices, once for each time an index appears."""
        args = (a, indices) if b is np._NoValue else (a, indices, b)
        exit_to_numpy(self._numpy.at, args, {}, args[:1] if isinstance(a, ArrayBase) else ())

    def resolve_dtypes(self, dtypes: Any, *, signature: Any = None, casting: Any = None, reduction: bool = False) -> Any:
        """Return the dtypes of the loop NumPy would run."""
        return self._numpy.resolve_dtypes(
            dtypes, signature=signature, casting=casting, reduction=reduction
        )

    def __getattr__(self, name: str) -> Any:
        # nin, nout, nargs, ntypes, types, identity, signature, and what later NumPy adds.
        return getattr(self._numpy, name)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self._numpy.__doc__

    @property
    def __name__(self) -> str:
        return self._numpy.__name__

    @property
    def __wrapped__(self) -> np.ufunc:
        return self._numpy

    def __repr__(self) -> str:
        return repr(self._numpy)

    def __reduce__(self) -> Any:
        return ufunc, (self._numpy,)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ufunc):
            other = other._numpy
        return self._numpy is other

    def __hash__(self) -> int:
        return hash(self._numpy)


def ufunc(numpy: np.ufunc) -> Ufunc:
    """Return the one Ufunc of a NumPy ufunc."""
    found = _known.get(numpy)
    if found is None:
        found = _known[numpy] = Ufunc(numpy)
    return found


def _plain(args: Any) -> list[Any]:
    return [np.asarray(arg) if isinstance(arg, ArrayBase) else arg for arg in args]


def _handed_over(items: Any) -> bool:
    """Tell whether an operand's own type wants the call: masked arrays, matrices, other libraries."""
    for item in items:
        kind = type(item)
        if kind in _OURS or isinstance(item, (ArrayBase, np.generic)):
            continue
        if hasattr(kind, "__array_ufunc__"):
            return True
        if kind in (list, tuple) and not holds_arrays(item):
            continue
    return False


_OURS = frozenset((np.ndarray, int, float, complex, bool, list, tuple, type(None)))
