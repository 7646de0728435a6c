"""The methods an ndarray has, on Arrays: movement as views, reductions, sorting and the like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from alight._core import ArrayBase, View, layout_of, native
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.ir.op_table import OPS
from alight._src.record import storage_io
from alight._src.record.array_flags import owns, set_writeable
from alight._src.record.conversions import astype, copy_of, made_of, reshape, seen
from alight._src.record.flat_iterator import FlatIterator
from alight._src.record.numpy_fallback import arrays_in, ndarrays, run_in_numpy
from alight._src.record.pending import call_there, concrete, shape_of
from alight._src.record.reductions import given, reduce_call
from alight._src.record.storage_io import apply_view, host
from alight._src.record.ufunc_calls import FUNCTIONS, exit_to_numpy, ufunc_call

_type = type
CLIP: Any = OPS["clip"].reference


def _named(method: Callable[..., Any], name: str, doc: str) -> Any:
    """Return a method under its own name, as `help` has it."""
    method.__name__, method.__doc__ = name, doc
    return method


def _total(name: str, doc: str) -> Any:
    def method(
        self: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = np._NoValue,
        where: Any = True,
    ) -> Any:
        more = given(dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        return reduce_call(name, self, axis, out, more)

    return _named(method, name, doc)


def _variance(name: str, doc: str) -> Any:
    def method(
        self: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        **kw: Any,
    ) -> Any:
        more = given(dtype=dtype, ddof=ddof, keepdims=keepdims, **kw)
        return reduce_call(name, self, axis, out, more)

    return _named(method, name, doc)


def _extreme(name: str, doc: str) -> Any:
    def method(
        self: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = np._NoValue,
        where: Any = True,
    ) -> Any:
        more = given(keepdims=keepdims, initial=initial, where=where)
        return reduce_call(name, self, axis, out, more)

    return _named(method, name, doc)


def _truth(name: str, doc: str) -> Any:
    def method(
        self: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        where: Any = True,
    ) -> Any:
        more = given(keepdims=keepdims, where=where)
        if dtype is None:
            return reduce_call(name, self, axis, out, more)
        # The methods have it, the functions not.
        keywords = {"axis": axis, "dtype": dtype, **more, **given(out=out)}
        return run_in_numpy(getattr(np.ndarray, name), (self,), keywords)

    return _named(method, name, doc)


class ArrayMethods(ArrayBase):
    """ndarray's methods. Signatures, defaults and meaning are NumPy's."""

    __slots__ = ()

    # -- movement: views --------------------------------------------------------------------------
    @property
    def T(self) -> Any:
        """Return the array with its axes reversed."""
        return self.transpose()

    @property
    def mT(self) -> Any:
        """Return the array with its last two axes exchanged."""
        return apply_view(self, lambda p: p.mT)

    def transpose(self, *axes: Any) -> Any:
        """Return a view with its axes permuted."""
        return apply_view(self, lambda p: p.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int, /) -> Any:
        """Return a view with two axes exchanged."""
        return apply_view(self, lambda p: p.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> Any:
        """Return a view without axes of length one, the array itself where there are none."""
        if axis is None and 1 not in layout_of(self).shape:
            return self
        return apply_view(self, lambda p: p.squeeze(axis))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """Return a read-only view of a diagonal."""
        result = apply_view(self, lambda p: p.diagonal(offset, axis1, axis2))
        result.window.writeable = False
        return result

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """Return the array with another shape: a view where NumPy gives one."""
        if not shape:
            return apply_view(self, lambda p: p.reshape())  # NumPy words it
        return reshape(self, shape[0] if len(shape) == 1 else shape, order, copy)

    def ravel(self, order: str = "C") -> Any:
        """Return the array as one axis: a view where NumPy gives one."""
        lay = layout_of(self)
        flags = lay.probe.flags
        if order == "A":
            order = "F" if flags.fnc else "C"
        if (
            flags.c_contiguous
            if order == "C"
            else flags.f_contiguous
            if order == "F"
            else flags.forc
        ):
            return apply_view(self, lambda p: p.ravel(order))
        if order in ("C", "F"):
            return seen(copy_of(self, order), lambda p: p.ravel(order))
        if lay.dense:
            axes = sorted(range(lay.ndim), key=lambda i: -lay.strides[i])
            return apply_view(self, lambda p: p.transpose(axes).reshape(-1, copy=False))
        return exit_to_numpy(np.ndarray.ravel, (self, order), {})

    def flatten(self, order: str = "C") -> Any:
        """Return a copy of the array as one axis."""
        lay = layout_of(self)
        if order == "A":
            order = "F" if lay.probe.flags.fnc else "C"
        if order in ("C", "F"):
            return seen(copy_of(self, order), lambda p: p.reshape(-1, order=order, copy=False))
        if order == "K" and all(lay.strides):
            whole = copy_of(self, "K")
            steps = whole.strides
            axes = sorted(range(lay.ndim), key=lambda i: -steps[i])
            return seen(whole, lambda p: p.transpose(axes).reshape(-1, copy=False))
        return exit_to_numpy(np.ndarray.flatten, (self, order), {})

    def view(self, dtype: Any = None, type: Any = None) -> Any:
        """Return the same bytes as another dtype, or a view that is another object of the same
        array.
        """
        if type is not None or (isinstance(dtype, _type) and issubclass(dtype, np.ndarray)):
            return np.ndarray.view(
                storage_io.export(self), *[t for t in (dtype, type) if t is not None]
            )
        if dtype is None:
            return apply_view(self, lambda p: p[...])
        if not native(np.dtype(dtype)):
            return storage_io.export(self).view(dtype)
        return apply_view(self, lambda p: p.view(dtype))

    @property
    def flat(self) -> Any:
        """Return NumPy's iterator over the exported memory."""
        return FlatIterator(self)

    @flat.setter
    def flat(self, items: Any) -> None:
        storage_io.check_writeable(self)
        own = self.storage
        # Opening it may give it memory of its own; where theirs is the same, NumPy knows.
        others = {id(item): host(item) for item in arrays_in(items) if item.storage is not own}

        def plain(item: Any) -> Any:
            return others[id(item)] if id(item) in others else host(item)

        def write() -> None:
            target: Any = storage_io.opened(self)
            call_there(setattr, (target, "flat", ndarrays(items, plain)), {})

        storage_io.at_once((self,), write)

    @property
    def real(self) -> Any:
        """Return the real part: a view."""
        if layout_of(self).dtype.kind != "c":
            return self
        return apply_view(self, lambda p: p.real)

    @real.setter
    def real(self, item: Any) -> None:
        self.real[...] = item

    @property
    def imag(self) -> Any:
        """Return the imaginary part: a view for complex arrays, else zeros."""
        lay = layout_of(self)
        if lay.dtype.kind != "c":
            zeros = made_of(self, storage_io.read(ArrayBase.of(_zeros(lay))))
            if zeros.window is None and isinstance(zeros, ArrayMethods):
                zeros = apply_view(zeros, lambda p: p[...])
                zeros.window.writeable = False
            return zeros
        return apply_view(self, lambda p: p.imag)

    @imag.setter
    def imag(self, item: Any) -> None:
        dtype = layout_of(self).dtype
        if dtype.kind != "c":
            np.zeros((), dtype).imag = 0  # raises, in the words of the NumPy that is there
        self.imag[...] = item

    # -- copies -----------------------------------------------------------------------------------
    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """Return a copy of the array cast to a dtype."""
        return astype(self, dtype, order, casting, copy, scalar=True)

    def copy(self, order: str = "C") -> Any:
        """Return a copy in memory of its own."""
        return copy_of(self, order, scalar=True)

    def fill(self, value: Any, /) -> None:
        """Set every element to a scalar."""
        if shape_of(value):  # for some dtypes that is a scalar, too; for others NumPy words it
            storage_io.check_writeable(self)
            one = np.empty((), layout_of(self).dtype)
            call_there(one.fill, (value,), {})
            value = one[()]
        self[...] = value

    # -- reductions and scans ---------------------------------------------------------------------
    sum = _total("sum", "Return the sum over axes.")
    prod = _total("prod", "Return the product over axes.")
    var = _variance("var", "Return the variance over axes.")
    std = _variance("std", "Return the standard deviation over axes.")
    min = _extreme("min", "Return the minimum over axes.")
    max = _extreme("max", "Return the maximum over axes.")
    any = _truth("any", "Tell whether any element is true, over axes.")
    all = _truth("all", "Tell whether all elements are true, over axes.")

    def mean(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        **kw: Any,
    ) -> Any:
        """Return the mean over axes."""
        return reduce_call("mean", self, axis, out, given(dtype=dtype, keepdims=keepdims, **kw))

    def argmin(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the index of the minimum along an axis."""
        return reduce_call("argmin", self, axis, out, given(keepdims=keepdims))

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the index of the maximum along an axis."""
        return reduce_call("argmax", self, axis, out, given(keepdims=keepdims))

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Return the running sum along an axis."""
        return _scan("cumsum", self, axis, dtype, out)

    def cumprod(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """Return the running product along an axis."""
        return _scan("cumprod", self, axis, dtype, out)

    # -- elementwise ------------------------------------------------------------------------------
    def conj(self, out: Any = None, /) -> Any:
        """Return the complex conjugate; of real numbers the array itself."""
        if out is not None and not isinstance(out, (ArrayBase, np.ndarray)):
            raise TypeError("output must be an array")
        if layout_of(self).dtype.kind == "c":
            return ufunc_call(np.conjugate, (self,), {} if out is None else {"out": (out,)})
        if out is None:
            return self
        FUNCTIONS[np.copyto](out, self)
        return out

    conjugate = conj

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **kw: Any) -> Any:
        """Return the array with its elements limited to an interval."""
        if out is not None:
            kw["out"] = (out,)
        dtype = layout_of(self).dtype
        if dtype.kind in "iu":  # Python integers outside the dtype limit nothing
            limits = np.iinfo(dtype)
            min = None if _type(min) is int and min <= limits.min else min
            max = None if _type(max) is int and max >= limits.max else max
        if min is None and max is None:
            return ufunc_call(np.positive, (self,), kw)
        if min is None:
            return ufunc_call(np.minimum, (self, max), kw)
        if max is None:
            return ufunc_call(np.maximum, (self, min), kw)
        return ufunc_call(CLIP, (self, min, max), kw)

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        """Return the array rounded to decimals."""
        real = layout_of(self).dtype.kind == "f" and _type(decimals) is int
        if real and decimals == 0:
            return ufunc_call(np.rint, (self,), {} if out is None else {"out": (out,)})
        if real and out is None:
            # As NumPy does it, a power of ten up and down.
            there, back = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
            scale = 10.0 ** abs(decimals)
            return ufunc_call(
                back,
                (ufunc_call(np.rint, (ufunc_call(there, (self, scale), {}),), {}), scale),
                {},
            )
        return exit_to_numpy(np.round, (self, decimals), {} if out is None else {"out": out})

    # -- functions that are methods, too --------------------------------------------------------
    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
        """Return elements picked by an index array."""
        return FUNCTIONS[np.take](self, indices, axis, out, mode)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        """Return elements, each as often as asked."""
        return FUNCTIONS[np.repeat](self, repeats, axis)

    def argsort(
        self, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
    ) -> Any:
        """Return the indices that sort the array."""
        return FUNCTIONS[np.argsort](self, axis, kind, order, stable=stable)

    def sort(
        self, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
    ) -> None:
        """Sort the array in place."""
        if axis is None or (self.window is not None and not self.window.writeable):
            exit_to_numpy(np.ndarray.sort, (self, axis), {}, (self,))  # NumPy words the error
        self[...] = FUNCTIONS[np.sort](self, axis, kind, order, stable=stable)

    def resize(self, *shape: Any, refcheck: bool = True) -> None:
        """Give the array another shape in place, of more elements, which are zeros, or fewer."""
        if not owns(self) or self.storage.members:
            seen = host(self).view()  # other sizes are refused, in NumPy's words
            try:
                call_there(seen.resize, shape, {"refcheck": False})
            except failures(ValueError) as error:
                if owns(self) and refcheck and "own its data" in str(error):
                    _refuse_to_resize()  # the caller of a jitted function holds it
                raise
            before = View(layout_of(self), 0) if self.window is None else self.window
            self.window = View(layout_of(seen), before.offset, before.writeable)
            return
        # NumPy moves its own memory, and ours may be another's.
        made = host(self).copy("K")
        call_there(made.resize, shape, {"refcheck": False})
        alone = type(self).of(self.storage.value)
        if (
            refcheck
            and made.nbytes != layout_of(self).nbytes
            and (_holders(self) > _holders(alone) or storage_io.lent(self))
        ):
            _refuse_to_resize()
        storage_io.hold_told(self)
        writeable = self.window is None or self.window.writeable
        self.storage = type(self).of(concrete(made)).storage  # windows keep what there was
        self.window = None
        if not writeable:
            set_writeable(self, False)

    def searchsorted(self, v: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Return where elements would go to keep the array sorted."""
        return FUNCTIONS[np.searchsorted](self, v, side, *([] if sorter is None else [sorter]))

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
    ) -> Any:
        """Return the sum along diagonals."""
        return FUNCTIONS[np.trace](self, offset, axis1, axis2, dtype, out)

    def dot(self, other: Any, out: Any = None) -> Any:
        """Return the dot product."""
        return np.dot(self, other) if out is None else np.dot(self, other, out)


def _refuse_to_resize() -> None:
    """Raise what NumPy raises where others hold an array's memory."""
    held = np.empty(1)
    window = held[:]
    call_there(held.resize, (window.size + 1,), {})


def _holders(array: ArrayBase) -> int:
    return sys.getrefcount(array.storage)


def _zeros(lay: Any) -> Any:
    return concrete(np.zeros(lay.shape, lay.dtype, "F" if lay.probe.flags.fnc else "C"))


def _scan(name: str, array: Any, axis: Any, dtype: Any, out: Any) -> Any:
    if axis is None:
        array, axis = array.ravel(), 0
    return reduce_call(name, array, axis, out, given(dtype=dtype))


__all__ = ["ArrayMethods"]
