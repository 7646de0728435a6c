"""Exits: calls that alight hands to NumPy on host memory.

The op is not in the table, the dtype is not one of alight's own, or the form asks for something
only NumPy does. Every exit is counted with the line it came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MethodDescriptorType
from typing import Any
from weakref import WeakSet

from alight._core import (
    ArrayBase,
    Storage,
    Value,
    View,
    floor,
    fresh_array,
    hooks,
    layout_of,
    native,
)
from alight._src.base.classes import classes_of, is_among
from alight._src.base.originals import np
from alight._src.config.schema import HOST_DEVICE
from alight._src.log.decisions import COUNTED_DTYPES, LOG
from alight._src.record.eager_calls import called
from alight._src.record.pending import (
    array_floor,
    call_there,
    concrete,
    manners,
    record_floor,
    shape_of,
    site,
)
from alight._src.record.storage_io import at_once, check_writeable, host, is_scalar, opened

_CONTAINERS = (tuple, list, dict)
# A function that returns one of a list's arrays is given few of them; longer lists are data.
_LOOKED_AT = 64


def wrap(result: Any) -> Any:
    """Return a fresh ndarray or NumPy scalar as the kind of array the front door promises."""
    found = fresh_array(result)
    if found is not None:
        if type(result) is np.ndarray and result.ndim == 0:
            _of_no_axes.add(found.storage)
        return found
    if type(result) is not np.ndarray:
        kept = floor.scalars or manners.scalar is not None
        if isinstance(result, np.generic) and not kept and native(result.dtype):
            return hooks.array.of(concrete(np.asarray(result)))
        return result
    if not native(result.dtype) or (floor.scalars and result.size < array_floor()):
        return result
    made = hooks.array.of(concrete(result))  # `array_of`, at less cost
    if result.ndim == 0:
        _of_no_axes.add(made.storage)
    if result.base is not None and not result.flags.writeable:
        made.window = View(made.storage.value.layout, 0, writeable=False)
    return made


# Storages of what NumPy has arrays without axes for: of other Arrays without, it has scalars.
_of_no_axes: WeakSet[Storage] = WeakSet()


def array_of(value: Value) -> Any:
    """Return the Array of a value that NumPy has an array for, though it have no axes."""
    made = hooks.array.of(value)
    if value.layout.ndim == 0:
        _of_no_axes.add(made.storage)
    return made


def stands_for_scalar(array: ArrayBase) -> bool:
    """Tell whether an Array is what NumPy has a scalar for, as where alight is the namespace."""
    return is_scalar(array) or (
        layout_of(array).ndim == 0
        and array.window is None
        and array.storage not in _of_no_axes
        and not floor.scalars
        and manners.scalar is None
    )


def holds_arrays(tree: Any) -> bool:
    """Tell whether an array of ours is anywhere in tuples, lists and dicts."""
    if isinstance(tree, ArrayBase):
        return True
    kind = type(tree)
    if kind is dict:
        tree = tree.values()
    elif kind is not tuple and kind is not list:
        return False
    # Long lists are mostly numbers: their types are looked at in C.
    kinds = classes_of(tree)
    for kind in kinds:
        if issubclass(kind, ArrayBase) or (
            (kind is tuple or kind is list or kind is dict) and any(map(holds_arrays, tree))
        ):
            return True
    return False


def ndarrays(tree: Any, convert: Callable[[ArrayBase], Any] = host) -> Any:
    """Return arguments with arrays of ours, at any depth of tuples, lists and dicts, as ndarrays.

    What holds none is returned as it is.
    """
    if isinstance(tree, ArrayBase):
        return convert(tree)
    if not is_among(type(tree), _CONTAINERS) or not holds_arrays(tree):
        return tree
    if type(tree) is dict:
        return {key: ndarrays(item, convert) for key, item in tree.items()}
    return type(tree)([ndarrays(item, convert) for item in tree])


def wrapped(tree: Any, seen: Seen) -> Any:
    """Return a NumPy result with its ndarrays as arrays of ours.

    What the function was given comes back as it was given, views of our memory stay views, and
    memory of the caller's own is copied.
    """
    if type(tree) is np.ndarray:
        return seen.of(tree)
    if isinstance(tree, np.generic):
        return wrap(tree)
    if is_among(type(tree), (tuple, list)):
        return type(tree)([wrapped(item, seen) for item in tree])
    if type(tree) is dict:
        return {key: wrapped(item, seen) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return tuple_like(tree, [wrapped(item, seen) for item in tree])
    return tree


def tuple_like(like: Any, items: Sequence[Any]) -> Any:
    """Return a tuple of the class of another with other items and its attributes, whatever those of
    the class are made by (SciPy's results take more than their items)."""
    if type(like) is tuple:
        return tuple(items)
    made = tuple.__new__(type(like), items)
    if kept := getattr(like, "__dict__", None):
        vars(made).update(kept)
    return made


class Seen:
    """What a NumPy function was given: our arrays, the ndarrays in their place, and others'."""

    __slots__ = ("ours", "theirs", "written")

    def __init__(self, written: Sequence[ArrayBase]) -> None:
        self.ours: dict[int, tuple[ArrayBase, np.ndarray[Any, Any]]] = {}
        self.theirs: list[np.ndarray[Any, Any]] = []
        self.written = {id(array) for array in written}

    def plain(self, array: ArrayBase) -> np.ndarray[Any, Any]:
        """Return what stands for an array: an ndarray, which can be written to where it will
        be; a NumPy scalar for one of ours."""
        found = self.ours.get(id(array))
        if found is None:
            if is_scalar(array):
                return array.now()  # type: ignore[attr-defined, no-any-return]  # NumPy's scalar
            ndarray = host(array)
            if array.window is not None and not array.window.writeable:
                ndarray = ndarray.view()
                ndarray.flags.writeable = False  # NumPy has the words for it
            elif id(array) in self.written:
                ndarray = opened(array)
            if any([ndarray is other for _, other in self.ours.values()]):
                ndarray = ndarray.view()  # NumPy and `of` know arrays by the objects that they are
            found = self.ours[id(array)] = (array, ndarray)
        return found[1]

    def of(self, result: np.ndarray[Any, Any]) -> Any:
        """Return an ndarray of the result as an array of ours."""
        for array, ndarray in self.ours.values():
            if result is ndarray:
                return array
        if any(result is ndarray for ndarray in self.theirs):
            return wrap(result.copy("K"))
        if result.base is None or not native(result.dtype):
            return wrap(result)
        for array, _ in self.ours.values():
            view = _as_view(result, array)
            if view is not None:
                return view
        if any(np.may_share_memory(result, ndarray) for ndarray in self.theirs):
            return wrap(result.copy("K"))
        return _window(result)


def _as_view(array: np.ndarray[Any, Any], source: ArrayBase) -> Any:
    """Return an ndarray that rests on a source's memory as a view of that source, else None."""
    value = source.storage.value
    data = value.data
    if data is None or data.array is None or not np.may_share_memory(array, data.array):
        return None
    start = array.__array_interface__["data"][0] - data.address - value.offset
    # To read `flags.writeable` of what np.broadcast_arrays made is deprecated.
    writeable = bool(array.flags.num & 0x400) and (source.window is None or source.window.writeable)
    result = type(source).__new__(type(source))
    result.storage = source.storage
    result.window = View(layout_of(array), start, writeable)
    return result


def over(source: ArrayBase, made: np.ndarray[Any, Any]) -> Any:
    """Return what NumPy made over the buffer that a source gave: a view of that source, so that
    what is recorded of both goes by one memory; the ndarray where it cannot be one."""
    if not native(made.dtype):
        return made
    view = _as_view(made, source)
    return made if view is None else view


def _window(array: np.ndarray[Any, Any]) -> Any:
    """Return a view that NumPy gave of memory it made; strides may have holes or overlap."""
    base = array.base
    if (
        layout_of(array).dense
        or (floor.scalars and array.size < array_floor())
        or type(base) is not np.ndarray
        or base.base is not None
        or not native(base.dtype)
        or not layout_of(base).dense
    ):
        return wrap(array)
    whole = hooks.array.of(concrete(base))
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    whole.window = View(layout_of(array), start, array.flags.writeable)
    return whole


def taken(made: Any, given: Sequence[Any], plain: Sequence[Any], method: bool) -> Any:
    """Return what NumPy made of arguments that stood for those given, which it only read, as arrays
    of ours; NotImplemented where others' memory is among them, which some functions may share, and
    where what NumPy has a scalar for may have been made a scalar of: of scalars its methods make
    scalars."""
    if type(made) is np.ndarray and made.ndim == 0 and isinstance(given[0], ArrayBase):
        if stands_for_scalar(given[0]):
            return wrap(made[()]) if method else NotImplemented
        if made.base is None and not any(made is stood for stood in plain):
            return wrap(made)
    seen = Seen(())
    for ours, theirs in zip(given, plain, strict=True):
        pairs = zip(ours, theirs, strict=True) if type(theirs) is tuple else ((ours, theirs),)
        for one, stood in pairs:
            if isinstance(one, ArrayBase):
                seen.ours[id(one)] = (one, stood)
            elif type(stood) is np.ndarray:
                return NotImplemented
    return wrapped(made, seen)


def arrays_in(tree: Any, found: list[ArrayBase] | None = None) -> list[ArrayBase]:
    """Return the arrays of ours in tuples, lists and dicts."""
    found = [] if found is None else found
    if isinstance(tree, ArrayBase):
        found.append(tree)
    elif is_among(type(tree), (tuple, list)) and holds_arrays(tree):
        for item in tree:
            arrays_in(item, found)
    elif type(tree) is dict:
        for item in tree.values():
            arrays_in(item, found)
    return found


def exit_to_numpy(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    changed: Sequence[Any] = (),
) -> Any:
    """Run a NumPy function on host memory and count it; it writes into ``changed``."""
    found = called(function, args, kwargs, changed)
    if found is not NotImplemented:
        return found
    LOG.exit(_told(function), site())
    record_floor()  # once it is known, the core leaves small work to NumPy itself
    result = run_in_numpy(function, args, kwargs, changed)
    LOG.elements("numpy", HOST_DEVICE, _eligible_elements(function, args, result))
    return result


def _told(function: Any) -> str:
    """Return the name of NumPy's function as programs write it."""
    owner: Any = getattr(function, "__self__", None)
    if hasattr(owner, "nin"):  # a ufunc's method
        name, method = owner.__name__, function.__name__
        return name if method == "__call__" else f"{name}.{method}"
    found = getattr(function, "__qualname__", None) or getattr(function, "__name__", function)
    return str(found)


# Of other packages' arrays `size` may be a method, and `dtype` not NumPy's.
_MEASURED: Any = (np.ndarray, np.generic, ArrayBase)
_REDUCTIONS = frozenset((np.sum, np.prod, np.min, np.max, np.any, np.all, np.mean))
_REDUCING = frozenset((np.add, np.multiply, np.minimum, np.maximum, np.logical_or, np.logical_and))


def _eligible_elements(function: Any, args: Sequence[Any], result: Any) -> int:
    """Return the eligible element-operations of a call that NumPy did, as the log counts those of
    groups."""
    owner = getattr(function, "__self__", None)
    ufunc = function if isinstance(function, np.ufunc) else owner
    results = result if type(result) is tuple else (result,)
    if (
        isinstance(ufunc, np.ufunc)
        and ufunc.signature is None
        and (ufunc is function or function.__name__ == "__call__")
    ):
        elements = sum([item.size for item in results if isinstance(item, _MEASURED)])
    elif (
        function in _REDUCTIONS
        or (isinstance(owner, np.ufunc) and owner in _REDUCING and function.__name__ == "reduce")
    ) and args:
        elements = math.prod(shape_of(args[0])) if isinstance(args[0], _MEASURED) else 0
    else:
        return 0
    dtypes = [item.dtype for item in (*args, *results) if isinstance(item, _MEASURED)]
    return elements if all(dtype.char in COUNTED_DTYPES for dtype in dtypes) else 0


def run_in_numpy(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    changed: Sequence[Any] = (),
) -> Any:
    """Run a NumPy function on host memory, its results as arrays of ours, and count nothing."""
    out = kwargs.get("out")
    outs = out if type(out) is tuple else (out,)
    args = tuple(args)
    written = [array for array in (*changed, *outs) if isinstance(array, ArrayBase)]
    seen = Seen(written)
    sources = arrays_in(kwargs, arrays_in(args)) if written else []
    storages = {id(array.storage) for array in written}
    for array in sources:
        if id(array.storage) not in storages:
            seen.plain(array)
    for array in written:
        if array.window is None or array.window.writeable:
            check_writeable(array)

    def work() -> Any:
        # These first: opening one may give those that lie in its storage new memory.
        for array in sources:
            if id(array) in seen.written:
                seen.plain(array)
        plain = tuple([ndarrays(item, seen.plain) for item in args])
        keywords = {key: ndarrays(item, seen.plain) for key, item in kwargs.items()}
        for item in (*plain, *keywords.values()):
            if type(item) is np.ndarray:
                seen.theirs.append(item)
            elif is_among(type(item), (tuple, list)) and len(item) < _LOOKED_AT:
                seen.theirs += [part for part in item if type(part) is np.ndarray]
        own = function
        if type(function) is MethodDescriptorType and not isinstance(plain[0], np.ndarray):
            own = getattr(type(plain[0]), function.__name__)  # a scalar has its own of that name
        return call_there(own, plain, keywords)

    result = at_once(written, work) if written else work()
    if out is not None and not isinstance(out, ArrayBase):
        if any(result is given for given in outs):
            return result
        if type(result) is tuple:
            return tuple([r if any(r is o for o in outs) else wrapped(r, seen) for r in result])
    return wrapped(result, seen)


__all__ = [
    "Seen",
    "array_of",
    "arrays_in",
    "exit_to_numpy",
    "holds_arrays",
    "ndarrays",
    "over",
    "run_in_numpy",
    "stands_for_scalar",
    "taken",
    "tuple_like",
    "wrap",
    "wrapped",
]
