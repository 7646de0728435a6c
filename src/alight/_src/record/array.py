"""Array: what programs hold. NumPy's manners over recorded values, and the protocols by which
others take them: ``__array__``, buffers, DLPack."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from opcode import opmap
from typing import Any, TypeVar

from alight._core import ArrayBase, floor, hooks, layout_of, native, set_operators
from alight._src.base import package
from alight._src.base.failures import failures, from_signal
from alight._src.base.originals import np
from alight._src.config.schema import truth
from alight._src.fp_warnings.filters import recording_errstate
from alight._src.ir.op_table import OPS, UFUNCS
from alight._src.record import operators, storage_io
from alight._src.record.array_flags import Flags, owner_of, owns, rests_on, set_writeable
from alight._src.record.conversions import copy_of, refuse_as_index
from alight._src.record.html_form import html_form
from alight._src.record.indexing import getitem, setitem
from alight._src.record.methods import ArrayMethods
from alight._src.record.numpy_fallback import stands_for_scalar, taken, wrap
from alight._src.record.numpy_methods import complete
from alight._src.record.pending import INSIDE, call_there, concrete, foreign
from alight._src.record.reported_class import class_told
from alight._src.record.tracebacks import public
from alight._src.record.ufunc_calls import FUNCTIONS, LATE, exit_to_numpy
from alight._src.run import residency
from alight._src.run.evaluate import evaluate as evaluate_values
from alight._src.run.recording_limits import enough

_Number = TypeVar("_Number")

# What Python's own messages call the class.
_TOLD = f"{package.NAME}.Array"
_STORES = opmap["STORE_SUBSCR"]


class Array(ArrayMethods):
    """A NumPy-compatible array whose elements are computed when they are asked for.

    Made by ``alight.asarray``, the creation functions, or any operation on another Array. Methods
    and attributes are those of ``numpy.ndarray``, and mean the same.

    Examples
    --------
    >>> import alight
    >>> a = alight.arange(6.0).reshape(2, 3)
    >>> (a * 2).sum(axis=0)
    array([ 6., 10., 14.])
    """

    __slots__ = ()
    __module__ = package.NAME  # where programs find it
    __array_priority__ = 1000.0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return an uninitialised array of a shape, or one over a buffer: `ndarray(shape, dtype,
        …)`."""
        if not args and not kwargs:
            return super().__new__(cls)
        try:
            made = np.ndarray(*args, **kwargs)
        except failures(TypeError):
            if not args or not hasattr(args[0], "numerator") or hasattr(args[0], "__index__"):
                raise
            # Python's statistics give a fraction to the class of what they were given; where that
            # stood for a scalar, so does this.
            made = np.array(float(args[0]))
        if not native(made.dtype):
            return made
        if made.base is None:
            return cls.of(concrete(made))
        value, view = foreign(made)
        result = cls.of(value)
        result.window = view
        return result

    # -- what it is -------------------------------------------------------------------------------
    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype."""
        return layout_of(self).dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        storage_io.set_layout(self, "dtype", dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the lengths of the axes."""
        return layout_of(self).shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        storage_io.set_layout(self, "shape", shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the bytes between neighbours along each axis, as NumPy's result would have
        them."""
        return layout_of(self).strides

    @strides.setter
    def strides(self, strides: Any) -> None:
        storage_io.set_layout(self, "strides", strides)

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return layout_of(self).ndim

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return layout_of(self).size

    @property
    def itemsize(self) -> int:
        """Return bytes per element."""
        return layout_of(self).itemsize

    @property
    def nbytes(self) -> int:
        """Return bytes of all elements."""
        return layout_of(self).nbytes

    @property
    def flags(self) -> Flags:
        """Return what NumPy would say of memory with this layout."""
        return Flags(self)

    def setflags(self, write: Any = None, align: Any = None, uic: Any = None) -> None:
        """Set whether the array may be written to."""
        if write is not None:
            set_writeable(self, bool(write))

    @property
    def base(self) -> Any:
        """Return None for an array that is the whole of its memory, else an array that is, or the
        buffer that the memory is."""
        if owns(self):
            return None
        if (owner := owner_of(self)) is not None:
            return rests_on(self) if owner is self else owner
        whole = type(self).__new__(type(self))
        whole.storage, whole.window = self.storage, None
        return whole

    @property
    def device(self) -> str:
        """Where the elements are now, as the array API standard has it.

        It is the device's id; arrays that are not computed yet count as ``"cpu"``.
        """
        data = self.storage.value.data
        if data is not None and data.array is None and data.remote:
            return next(iter(data.remote))
        return "cpu"

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """Return the array itself: placement is alight's.

        Parameters
        ----------
        device : str
            ``"cpu"``, or the device where the elements are.
        stream : None, optional
            Not supported.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        ValueError
            For another device, or a stream. ``alight.policy(force=…)`` places work.

        Examples
        --------
        >>> import alight
        >>> a = alight.ones(3)
        >>> a.to_device("cpu") is a
        True
        """
        if stream is not None:
            raise ValueError("stream is not supported here. Fix: leave it out.")
        if device not in ("cpu", self.device):
            raise ValueError(
                f"cannot pin an array to {device!r}. Fix: leave the call out; placement is "
                "alight's, and alight.policy(force=…) overrules it by a device that "
                "alight.devices() lists."
            )
        return self

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return sys.modules[package.NAME]

    # -- exits ------------------------------------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        storage_io.raise_dropped(self)
        if not self.size and dtype is None:
            refuse_as_index(self, sys._getframe(1))
        if copy:
            return np.array(storage_io.looked_at(self), dtype=dtype, copy=True)
        if dtype is not None and np.dtype(dtype) != self.dtype:
            found = storage_io.looked_at(self)
            return np.array(found, dtype=dtype, copy=copy)  # and NumPy's error
        return storage_io.export(self)

    def _for_buffer(self) -> np.ndarray[Any, Any]:
        storage_io.forget_dropped()
        try:
            if not self.size:
                refuse_as_index(self, sys._getframe(1))
            return self.__array__()
        except failures() as error:
            if not from_signal(error):  # the native core sees to those
                storage_io.note_dropped(self, error, sys._getframe().f_back)
            raise

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return storage_io.export(self).__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU, device 0: exports are host memory

    @property
    def ctypes(self) -> Any:
        """Return NumPy's ctypes view of the exported memory."""
        return storage_io.export(self).ctypes

    def to_numpy(self, dtype: Any = None, copy: bool = False) -> np.ndarray[Any, Any]:
        """Return an ndarray that shares the memory, both ways.

        What pandas calls it: packages that were given no ndarray (matplotlib's ``hist`` and
        ``boxplot``) look for it before they go through the elements one by one.

        Parameters
        ----------
        dtype : dtype, optional
            Another dtype makes a copy.
        copy : bool, default False
            Whether to copy in any case.

        Returns
        -------
        ndarray
            The elements, computed, of the array's shape.

        Examples
        --------
        >>> import alight
        >>> alight.arange(3).to_numpy("float32")
        array([0., 1., 2.], dtype=float32)
        """
        return self.__array__(dtype, True if copy else None)

    @property
    def data(self) -> memoryview:
        """Return the exported memory as a buffer."""
        return storage_io.export(self).data

    def __reduce__(self) -> Any:
        return _pickled(storage_io.looked_at(self)).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _pickled(storage_io.looked_at(self)).__reduce_ex__(protocol)

    # Under `alight run` plain ndarrays, as pickles are everywhere: for who knows of no other.
    def __copy__(self) -> Any:
        return storage_io.host(self).copy("K") if floor.scalars else copy_of(self, "K")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def item(self, *args: Any) -> Any:
        """Return one element as a Python scalar."""
        return storage_io.looked_at(self).item(*args)

    def tolist(self) -> Any:
        """Return the elements as nested Python lists."""
        return storage_io.looked_at(self).tolist()

    def tobytes(self, *args: Any, **kwargs: Any) -> bytes:
        """Return the elements as bytes, in C order unless another is named."""
        return storage_io.looked_at(self).tobytes(*args, **kwargs)

    def tofile(self, *args: Any, **kwargs: Any) -> None:
        """Write the elements to a file, as bytes or as text with a separator."""
        storage_io.looked_at(self).tofile(*args, **kwargs)

    def __bool__(self) -> bool:
        found = storage_io.looked_at(self)
        return _number(bool, found) if found.ndim else bool(found)

    def __int__(self) -> int:
        try:
            found = storage_io.looked_at(self)
            return _number(int, found) if found.ndim else int(found)
        except failures(TypeError) as error:
            if (real := _real_part(self)) is not None:
                return int(real)
            frame = sys._getframe(1)
            if frame.f_code.co_code[frame.f_lasti] == _STORES:
                # An element of an ndarray of integers is assigned: NumPy asks for an int.
                raise ValueError("setting an array element with a sequence.") from error
            raise

    def __float__(self) -> float:
        try:
            found = storage_io.looked_at(self)
            return _number(float, found) if found.ndim else float(found)
        except failures(TypeError):
            if (real := _real_part(self)) is None:
                raise
            return real

    def __complex__(self) -> complex:
        found = storage_io.looked_at(self)
        return _number(complex, found) if found.ndim else complex(found)

    def __trunc__(self) -> int:
        # NumPy's scalars have it, and its arrays not.
        if self.shape:
            raise TypeError("type alight.Array doesn't define __trunc__ method")
        return math.trunc(storage_io.looked_at(self)[()])  # type: ignore[arg-type]

    def __hash__(self) -> int:  # type: ignore[override]
        # What NumPy has a scalar for is a key as that is; arrays are none.
        if not stands_for_scalar(self):
            raise TypeError(f"unhashable type: {_TOLD!r}")
        return hash(storage_io.looked_at(self)[()])

    def __index__(self) -> int:
        return operator.index(storage_io.looked_at(self))

    def __round__(self, digits: int | None = None) -> Any:
        # Scalars have it in NumPy and 0-d arrays not; a total here is what a scalar is there.
        if self.shape:
            raise TypeError("type alight.Array doesn't define __round__ method")
        scalar: Any = storage_io.looked_at(self)[()]
        return round(scalar, digits)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return self._elements() if floor.scalars and self.ndim == 1 else self._items(0)

    def _items(self, index: int) -> Iterator[Any]:
        """Yield items from an index on, as many as there are when their turn comes."""
        while self.ndim and index < self.shape[0]:
            yield self[index]
            index += 1

    def _elements(self) -> Iterator[Any]:
        """Yield NumPy's scalars, each as it is when its turn comes."""
        index, value, window = 0, self.storage.value, self.window
        for scalar in storage_io.host(self):
            if self.storage.value is not value or self.window is not window:
                break  # somebody wrote, or gave the array another shape
            yield scalar
            index += 1
        del value  # who writes to what is held copies it, each time
        yield from self._items(index)

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(self == item))  # an item may say it in its own way

    def __repr__(self) -> str:
        return repr(storage_io.looked_at(self))

    _repr_html_ = property(html_form)

    def __str__(self) -> str:
        return str(storage_io.looked_at(self))

    def __format__(self, spec: str) -> str:
        host = storage_io.looked_at(self)
        return format(host[()] if host.ndim == 0 else host, spec)

    # -- protocols --------------------------------------------------------------------------------
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        ours = FUNCTIONS.get(func)
        if ours is None and (late := LATE.pop(getattr(func, "__module__", ""), None)) is not None:
            import_module(late)
            ours = FUNCTIONS.get(func)
        if ours is not None:
            return ours(*args, **kwargs)
        return exit_to_numpy(func, args, kwargs)


def _number(kind: Callable[[Any], _Number], found: np.ndarray[Any, Any]) -> _Number:
    """Return what Python makes of an array with axes that stands where a number is wanted: NumPy
    refuses some and warns of others, at the program's line."""
    return call_there(kind, (found,), {})  # type: ignore[no-any-return]


def _real_part(array: Array) -> float | None:
    """Return what NumPy makes of a complex scalar that is to be a real number, with its warning;
    None of all else, of which it makes none."""
    if array.dtype.kind != "c" or array.ndim or not stands_for_scalar(array):
        return None
    return call_there(float, (storage_io.looked_at(array)[()],), {})  # type: ignore[no-any-return]


def _pickled(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy in the memory order in which NumPy pickles an array: C, unless all of it is
    Fortran's."""
    return array.copy("K" if array.flags.forc else "C")


# Pillow and others in Python ask for it; NumPy takes a buffer before it.
Array.__array_interface__ = property(storage_io.interface)  # type: ignore[attr-defined]

complete(Array, ArrayMethods)
Array.T = property(vars(Array)["transpose"], doc=ArrayMethods.T.__doc__)  # type: ignore

if hooks.appears is None:  # `alight run` says it before anything records
    hooks.appears = class_told
hooks.array = Array
hooks.binary = public(operators.binary)
hooks.unary = public(operators.unary)
hooks.in_place = public(operators.in_place)
hooks.getitem = public(getitem)
hooks.setitem = public(setitem)
hooks.ufunc = public(operators.array_ufunc)
hooks.at_once = UFUNCS
hooks.wrap = wrap
hooks.taken = taken
hooks.inside = INSIDE
hooks.errstate = recording_errstate
hooks.flush = enough
set_operators(OPS)


def evaluate(*arrays: Any, wait: bool = False) -> None:
    """Compute arrays now, together.

    What they share is computed once.

    Parameters
    ----------
    *arrays : Array
        What to compute, of any shapes and dtypes. What is computed already, as ndarrays and NumPy's
        scalars are, may stand among them.
    wait : bool, default False
        Whether to return when the devices that hold the results have done it, as for a clock.
        Without it a device goes on while the program does.

    Raises
    ------
    TypeError
        For anything that is no array.

    Examples
    --------
    >>> import alight
    >>> x = alight.linspace(0.0, 1.0, 5)
    >>> low, high = x - 1, x + 1
    >>> alight.evaluate(low, high)
    >>> float(high.max())
    2.0
    """
    values = []
    for array in arrays:
        if isinstance(array, ArrayBase):
            values.append(array.storage.value)
        elif not isinstance(array, (np.ndarray, np.generic)):
            raise TypeError(
                f"alight.evaluate takes arrays, not an object of type {type(array).__name__}. "
                "Fix: give each array by itself, as in alight.evaluate(x, y)."
            )
    asked_to_wait = wait is not False and truth(wait, "argument wait")
    evaluate_values(values, read=False)
    if asked_to_wait:
        residency.wait_for([value.data for value in values])


__all__ = ["FUNCTIONS", "Array", "evaluate"]
