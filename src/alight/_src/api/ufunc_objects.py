"""The ufuncs of the array namespace: NumPy's, with Arrays as results."""

from __future__ import annotations

from typing import Any

from alight._core import ArrayBase, UfuncBase
from alight._src.base.originals import np
from alight._src.record.numpy_fallback import exit_to_numpy, ndarrays
from alight._src.record.operators import change_at, ufunc_method
from alight._src.record.structural_calls import bound
from alight._src.record.tracebacks import public
from alight._src.record.ufunc_calls import FUNCTIONS

__all__ = ["Ufunc", "ufunc"]

_known: dict[np.ufunc, Ufunc] = {}


class Ufunc(UfuncBase):
    """A universal function whose results are Arrays, with NumPy's attributes and methods.

    What Arrays cannot hold (object, string, datetime) gives NumPy's own results.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, numpy: np.ufunc) -> None:
        self._numpy = numpy

    @public
    def _call(self, *args: Any, **kwargs: Any) -> Any:
        ufunc = self._numpy
        nin, out = ufunc.nin, kwargs.get("out")
        inputs, outs = args[:nin], out if type(out) is tuple else (out,)
        if len(args) > nin:
            outs = args[nin:]
            wrong = "out" in kwargs or len(args) > ufunc.nargs or len(inputs) < nin
            if wrong or any(item is Ellipsis for item in outs):
                return ufunc(*ndarrays(args), **kwargs)  # NumPy words the error
        if _handed_over((*inputs, *outs, kwargs.get("where"))):
            return ufunc(*args, **kwargs)
        if len(args) > nin or out is not None:
            kwargs = {key: item for key, item in kwargs.items() if key != "out"}
            if out is Ellipsis:  # "an array, please": it always is one
                outs = (None,)
            elif len(args) > nin:
                outs = (*outs, *[None] * (ufunc.nout - len(outs)))
            elif type(out) is not tuple and ufunc.nout > 1:
                raise TypeError("'out' must be a tuple of arrays")
            if len(outs) != ufunc.nout or any([item is not None for item in outs]):
                kwargs["out"] = outs
        ours = FUNCTIONS.get(ufunc)
        return ours(*inputs, **kwargs) if ours else ufunc_method(ufunc, "__call__", inputs, kwargs)

    @public
    def reduce(self, array: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the array reduced along axes."""
        return self._reduced("reduce", _REDUCE, array, args, kwargs)

    @public
    def accumulate(self, array: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return every step of reducing the array along an axis."""
        return self._reduced("accumulate", _REDUCE[:3], array, args, kwargs)

    @public
    def reduceat(self, array: Any, /, indices: Any, *args: Any, **kwargs: Any) -> Any:
        """Return slices of the array reduced, each from an index to the next."""
        return self._reduced("reduceat", _REDUCE[:3], array, (indices, *args), kwargs)

    def _reduced(self, method: str, names: Any, array: Any, args: Any, kwargs: Any) -> Any:
        function = getattr(self._numpy, method)
        words = method == "reduceat" or any(item is Ellipsis for item in args)  # NumPy's, for both
        given = None if words else bound(names, args, kwargs)
        if given is None or _handed_over((array,)):
            return exit_to_numpy(function, (array, *args), kwargs)
        out = given.pop("out", None)
        out = out if type(out) is tuple or out is None else (out,)
        plain = {"axis": 0, "dtype": None, "keepdims": False, "initial": np._NoValue, "where": True}
        keywords = {k: v for k, v in given.items() if k == "axis" or v is not plain[k]}
        if out is not None:
            keywords["out"] = out
        if not isinstance(array, ArrayBase):
            return exit_to_numpy(function, (array,), keywords)
        return ufunc_method(self._numpy, method, (array,), keywords)

    @public
    def outer(self, A: Any, B: Any, /, **kwargs: Any) -> Any:
        """Return the function of every pair of elements."""
        if _handed_over((A, B)):
            return self._numpy.outer(A, B, **kwargs)
        if not kwargs and isinstance(A, ArrayBase) and self._numpy.signature is None:
            ndim = np.ndim(ndarrays(B))
            return self(A.reshape(A.shape + (1,) * ndim), B)  # type: ignore[attr-defined]
        return exit_to_numpy(self._numpy.outer, (A, B), kwargs)

    @public
    def at(self, a: Any, indices: Any, *b: Any) -> Any:
        """Do the function in place at indices, once for each time an index appears."""
        if _handed_over((a, indices, *b)):
            at: Any = self._numpy.at
            return at(a, indices, *b)  # and give what the operand's own type gives
        return change_at(self._numpy, a, indices, *b)

    def resolve_dtypes(self, dtypes: Any, **kwargs: Any) -> Any:
        """Return the dtypes of the loop NumPy would run."""
        return self._numpy.resolve_dtypes(dtypes, **kwargs)

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


_REDUCE = ("axis", "dtype", "out", "keepdims", "initial", "where")
_OURS = frozenset((np.ndarray, int, float, complex, bool, list, tuple, type(None)))


def _handed_over(items: Any) -> bool:
    """Tell whether an operand's own type wants the call: masked arrays, other libraries."""
    for item in items:
        kind = type(item)
        own = kind in _OURS or isinstance(item, (ArrayBase, np.generic))
        if not own and hasattr(kind, "__array_ufunc__"):
            return True
    return False
