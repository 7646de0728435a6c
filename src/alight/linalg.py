"""`alight.linalg`: NumPy's linear algebra on Arrays.

Products record. What may fail on the data (solve, cholesky, inv, …) is computed at the call, by
NumPy.
"""

from __future__ import annotations

import math
from typing import Any

from alight._src.api import product_calls, shaping
from alight._src.api.elementwise import ours
from alight._src.api.namespace_lookup import found_in
from alight._src.base.originals import np
from alight._src.record.numpy_fallback import exit_to_numpy
from alight._src.record.reductions import given, reduce_call
from alight._src.record.structural_calls import implements
from alight._src.record.tracebacks import public
from alight._src.record.ufunc_calls import FUNCTIONS, small, ufunc_call

_real = np.linalg
__all__ = [n for n in dir(_real) if not n.startswith("_") and n not in ("linalg", "test")]


def _same(function: Any, recorded: Any) -> None:
    """Make a function of NumPy's linalg the one that NumPy has at the top, too."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return recorded(*args, **kwargs)

    implements(function, reads=2)(call)


_same(_real.matmul, product_calls.matmul)
_same(_real.vecdot, product_calls.vecdot)
_same(_real.tensordot, product_calls.tensordot)
_same(_real.matrix_transpose, FUNCTIONS[np.matrix_transpose])


@implements(_real.outer)
def _outer(x1: Any, x2: Any, /) -> Any:
    """Return the outer product of two vectors."""
    first, second = ours(x1), ours(x2)
    if first is None or second is None or first.ndim != 1 or second.ndim != 1:
        return exit_to_numpy(_real.outer, (x1, x2), {})
    return product_calls.outer(first, second)


@implements(_real.trace)
def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sum along diagonals of the last two axes."""
    return product_calls.trace(x, offset, -2, -1, dtype)


@implements(_real.diagonal)
def _diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return a read-only view of the diagonals of the last two axes."""
    return shaping.diagonal(x, offset, -2, -1)


@implements(_real.norm, reads=1)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return norms of vectors or matrices along axes: those that elementwise functions and a
    reduction make are recorded as NumPy computes them, the others are NumPy's."""
    axes = axis if type(axis) is tuple else (axis,)
    array = ours(x)
    plain = array is not None and array.dtype.kind in "fc" and type(keepdims) is bool
    kind = _kind(ord, len(axes))
    if plain and kind and array.size and not small((array,)):
        ndim = array.ndim
        known = all([type(i) is int and -ndim <= i < ndim for i in axes])
        if known and len({i % ndim for i in axes}) == len(axes) < ndim:
            keywords = given(keepdims=keepdims)
            if kind != "squares":
                return reduce_call(kind, abs(array), axis, None, keywords)
            squares = (array.conj() * array).real if array.dtype.kind == "c" else array * array
            return ufunc_call(np.sqrt, (reduce_call("sum", squares, axis, None, keywords),), {})
    return exit_to_numpy(_real.norm, (x, ord, axis, keepdims), {})


def _kind(order: Any, axes: int) -> str:
    """Return what a norm along so many axes sums up or picks; "" of one that is not recorded."""
    if order is None or (axes == 2 and order in ("f", "fro")):
        return "squares" if axes <= 2 else ""
    if axes != 1 or type(order) not in (int, float):
        return ""
    return {2.0: "squares", 1.0: "sum", math.inf: "max", -math.inf: "min"}.get(order, "")


def _complex(item: Any) -> Any:
    kinds = {"f": np.complex64, "d": np.complex128}
    found = kinds.get(getattr(item, "dtype", np.dtype(object)).char)
    return item if found is None else item.astype(found)


@public
def eig(a: Any) -> Any:
    """Return eigenvalues and right eigenvectors of square matrices.

    They are complex whatever the values, as the array API standard has them; NumPy gives reals
    where all happen to be.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        The matrices, of a real or complex dtype.

    Returns
    -------
    EigResult
        ``eigenvalues`` of shape (..., n) and ``eigenvectors`` of shape (..., n, n), complex64 of
        single precision, else complex128.

    Raises
    ------
    LinAlgError
        Where the computation does not converge, or the matrices are not square.

    Examples
    --------
    >>> import alight
    >>> found = alight.linalg.eig(alight.asarray([[2.0, 0.0], [0.0, 3.0]]))
    >>> found.eigenvalues
    array([2.+0.j, 3.+0.j])
    """
    result = exit_to_numpy(_real.eig, (a,), {})
    return type(result)(*[_complex(item) for item in result])


@public
def eigvals(a: Any) -> Any:
    """Return eigenvalues of square matrices.

    They are complex whatever the values, as the array API standard has them; NumPy gives reals
    where all happen to be.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        The matrices, of a real or complex dtype.

    Returns
    -------
    Array, shape (..., n)
        The eigenvalues, complex64 of single precision, else complex128.

    Raises
    ------
    LinAlgError
        Where the computation does not converge, or the matrices are not square.

    Examples
    --------
    >>> import alight
    >>> alight.linalg.eigvals(alight.asarray([[2.0, 0.0], [0.0, 3.0]]))
    array([2.+0.j, 3.+0.j])
    """
    return _complex(exit_to_numpy(_real.eigvals, (a,), {}))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = found_in(_real, name)
    return found


def __dir__() -> list[str]:
    return __all__
