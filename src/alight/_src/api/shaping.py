"""NumPy's functions that move elements: views where NumPy gives views, else recorded copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alight._core import ArrayBase, layout_of, probing
from alight._src.api.elementwise import ours, parameters
from alight._src.base.originals import np
from alight._src.record.conversions import copy_of
from alight._src.record.numpy_fallback import exit_to_numpy, ndarrays
from alight._src.record.pending import WEAK
from alight._src.record.storage_io import host, is_scalar, view_of, warn_when_written
from alight._src.record.structural_calls import bound, implements, records

Shape = tuple[int, ...]


def views(arrays: Sequence[Any], expression: Callable[..., Any]) -> Any:
    """Return what an expression of ndarrays makes of arrays, where it only makes views of them.

    NumPy decides, on probes without elements; nested lists and tuples of views keep their shape.
    """
    # Equal layouts share a probe, and here each must be told apart.
    layouts = [layout_of(array) for array in arrays]
    probes = [probing.probe(lay.dtype, lay.shape, lay.strides) for lay in layouts]
    return _matched(expression(*probes), arrays, probes)


def _matched(result: Any, arrays: Sequence[Any], probes: Sequence[Any]) -> Any:
    if isinstance(result, np.generic):  # an operand without axes, indexed
        return view_of(arrays[0], probes[0], probes[0])
    if isinstance(result, np.ndarray):
        for array, probe in zip(arrays, probes, strict=True):
            if result is probe:
                return array
            if result.base is probe:
                return view_of(array, result, probe)  # type: ignore[arg-type]
        raise AssertionError("not a view")
    return type(result)([_matched(item, arrays, probes) for item in result])


def _is_scalar(item: Any) -> bool:
    return getattr(type(item), "immutable", False)


def _view_function(function: Any) -> None:
    """Make a function ours that returns views of its first argument."""
    first = parameters(function)[0]

    def move(*args: Any, **kwargs: Any) -> Any:
        item = args[0] if args else kwargs.get(first)
        # Of Python's numbers NumPy asks what it does not ask of arrays, and its own scalars come
        # back as they are.
        array = None if type(item) in WEAK or is_scalar(item) else ours(item)
        if array is None:
            return exit_to_numpy(function, args, kwargs)
        # Where to split may be an array of ours, too: given as it is, NumPy would ask this again.
        others, named = ndarrays(args[1:]), ndarrays(kwargs)
        if args:
            return views((array,), lambda p: function(p, *others, **named))
        return views((array,), lambda p: function(**{**named, first: p}))

    implements(function, views="split" not in function.__name__)(move)


for _function in (
    np.transpose, np.permute_dims, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze,
    np.expand_dims, np.flip, np.fliplr,
    np.flipud, np.rot90, np.matrix_transpose, np.split, np.array_split, np.hsplit, np.vsplit,
    np.dsplit,
):  # fmt: skip
    _view_function(_function)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """Return views of the sub-arrays along an axis; of one axis the elements, which are none."""
    array = ours(x)
    if array is None or not array.ndim:
        return exit_to_numpy(np.unstack, (x,), {"axis": axis})
    first = views((array,), lambda p: np.moveaxis(p, axis, 0))
    return tuple([first[i] for i in range(first.shape[0])])


def _many_views(function: Any) -> None:
    def move(*arys: Any, **kwargs: Any) -> Any:
        arrays = [ours(item) for item in arys]
        if any(array is None for array in arrays) or kwargs:
            return exit_to_numpy(function, arys, kwargs)
        return views(arrays, function)

    implements(function)(move)


for _function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    _many_views(_function)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Return views with a common shape, which warn when they are written to, as NumPy's do."""
    arrays = [ours(item) for item in args]
    if any(array is None for array in arrays) or subok or all(map(_is_scalar, arrays)):
        return exit_to_numpy(np.broadcast_arrays, args, {"subok": subok})
    results = views(arrays, np.broadcast_arrays)
    for result, array in zip(results, arrays, strict=True):
        if result is not array and result.window.writeable:
            warn_when_written(result)
    return results


@implements(np.meshgrid, reads=8)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Return coordinate arrays of a grid."""
    arrays = [ours(item) for item in xi]
    if any(array is None for array in arrays):
        return exit_to_numpy(
            np.meshgrid, xi, {"copy": copy, "sparse": sparse, "indexing": indexing}
        )
    keywords: dict[str, Any] = {"copy": False, "sparse": sparse, "indexing": indexing}
    # Of a matrix whose rows do not lie one after the other NumPy makes a copy, and no view.
    arrays = [array if array.ndim < 2 else array.ravel() for array in arrays]
    results = views(arrays, lambda *probes: np.meshgrid(*probes, **keywords))
    return tuple([copy_of(result, "C") for result in results]) if copy else results


@implements(np.diagonal)
def diagonal(*args: Any, **kwargs: Any) -> Any:
    """Return a read-only view of a diagonal."""
    arguments = bound(parameters(np.diagonal), args, kwargs)
    array = None if arguments is None else ours(arguments.pop("a", None))
    if array is None or arguments is None:
        return exit_to_numpy(np.diagonal, args, kwargs)
    return array.diagonal(**arguments)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """Return a read-only view with a larger shape."""
    source = ours(array)
    if source is None or subok:
        return exit_to_numpy(np.broadcast_to, (array, shape, subok), {})
    result = views((source,), lambda p: np.broadcast_to(p, shape))
    if result is not source:
        result.window.writeable = False
    return result


@implements(np.reshape, views=True)
def reshape(a: Any, /, shape: Any, order: Any = "C", *, copy: bool | None = None) -> Any:
    """Return the array with another shape."""
    array = ours(a)
    if array is None:
        return exit_to_numpy(np.reshape, (a, shape), {"order": order, "copy": copy})
    return array.reshape(shape, order=order, copy=copy)


@implements(np.ravel, views=True)
def ravel(a: Any, order: Any = "C") -> Any:
    """Return the array as one axis."""
    array = ours(a)
    if array is None:
        return exit_to_numpy(np.ravel, (a, order), {})
    return array.ravel(order)


# --- copies ------------------------------------------------------------------------------------
def _axis_of(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(axis)
    return axis % ndim


def _joined(*shapes: Shape, axis: Any = 0, **attrs: Any) -> Shape | None:
    if axis is None:
        return (sum([int(np.prod(shape)) for shape in shapes]),)
    if type(axis) is not int or not all(shapes):
        return None
    at = _axis_of(axis, len(shapes[0]))
    rest = {(len(shape), shape[:at], shape[at + 1 :]) for shape in shapes}
    if len(rest) > 1:
        return None
    return (*shapes[0][:at], sum([shape[at] for shape in shapes]), *shapes[0][at + 1 :])


def _stacked(*shapes: Shape, axis: Any = 0, **attrs: Any) -> Shape | None:
    if type(axis) is not int or len(set(shapes)) > 1:
        return None
    at = _axis_of(axis, len(shapes[0]) + 1)
    return (*shapes[0][:at], len(shapes), *shapes[0][at:])


def _at_least(ndim: int, shape: Shape) -> Shape:
    stand_in = np.broadcast_to(0, shape)
    return (np.atleast_2d if ndim == 2 else np.atleast_3d)(stand_in).shape


def _vertical(*shapes: Shape, **attrs: Any) -> Shape | None:
    return _joined(*[_at_least(2, shape) for shape in shapes], axis=0)


def _horizontal(*shapes: Shape, **attrs: Any) -> Shape | None:
    full = [shape or (1,) for shape in shapes]
    return _joined(*full, axis=0 if len(full[0]) == 1 else 1)


def _deep(*shapes: Shape, **attrs: Any) -> Shape | None:
    return _joined(*[_at_least(3, shape) for shape in shapes], axis=2)


def _columns(*shapes: Shape, **attrs: Any) -> Shape | None:
    return _joined(*[s if len(s) > 1 else (*(s or (1,)), 1) for s in shapes], axis=1)


_JOIN = "arrays axis out * dtype casting"
concatenate = records(np.concatenate, _JOIN, many=True, shape=_joined)
records(np.stack, _JOIN, many=True, shape=_stacked)
records(np.vstack, "tup * dtype casting", many=True, shape=_vertical)
records(np.hstack, "tup * dtype casting", many=True, shape=_horizontal)
records(np.dstack, "tup", many=True, shape=_deep)
records(np.column_stack, "tup", many=True, shape=_columns)


@implements(np.append, reads=2)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """Return a copy of the array with values behind its end."""
    first, second = ours(arr), ours(values)
    if first is None or second is None:
        return exit_to_numpy(np.append, (arr, values, axis), {})
    if axis is None:
        first, second, axis = first.ravel(), second.ravel(), 0
    return concatenate((first, second), axis=axis)


def _repeated(shape: Shape, repeats: Any = None, axis: Any = None) -> Shape | None:
    if type(repeats) is not int:
        return None
    if axis is None:
        return (int(np.prod(shape)) * repeats,)
    at = _axis_of(axis, len(shape))
    return (*shape[:at], shape[at] * repeats, *shape[at + 1 :])


def _tiled(shape: Shape, reps: Any = ()) -> Shape | None:
    if not shape:
        return None  # of scalars NumPy makes arrays, which have no axes
    reps = reps if type(reps) is tuple else (reps,)
    ndim = max(len(shape), len(reps))
    full = (1,) * (ndim - len(shape)) + shape
    return tuple([n * r for n, r in zip(full, (1,) * (ndim - len(reps)) + reps, strict=True)])


def _rolled(shape: Shape, shift: Any = None, axis: Any = None) -> Shape | None:
    return shape or None


def _padded(
    shape: Shape, pad_width: Any = None, mode: Any = "constant", **attrs: Any
) -> Shape | None:
    if not shape or mode not in ("constant", "edge", "empty"):
        return None  # how the others look depends on the lengths
    widths = np.broadcast_to(np.asarray(pad_width), (len(shape), 2))
    return tuple(
        [n + int(before) + int(after) for n, (before, after) in zip(shape, widths, strict=True)]
    )


def _triangle(shape: Shape, k: Any = 0) -> Shape | None:
    return shape if len(shape) > 1 else None


def _diagonal_matrix(shape: Shape, k: int = 0) -> Shape | None:
    return (shape[0] + abs(k),) * 2 if len(shape) == 1 else None


records(np.repeat, "a repeats axis", shape=_repeated)
records(np.tile, "A reps", shape=_tiled)
records(np.roll, "a shift axis", shape=_rolled)
records(np.pad, "array pad_width mode * constant_values", shape=_padded)
records(np.tril, "m k", shape=_triangle)
records(np.triu, "m k", shape=_triangle)
_new_diagonal = records(np.diag, "v k", shape=_diagonal_matrix)
records(np.diagflat, "v k", shape=_diagonal_matrix)


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    """Return a view of a diagonal, or a matrix with one."""
    array = ours(v)
    if array is not None and array.ndim == 2:
        return array.diagonal(k)
    return _new_diagonal(v, k)


@implements(np.delete, reads=1)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Return a copy without some sub-arrays."""
    array = ours(arr)
    if array is None or type(obj) is not int or type(axis) not in (int, type(None)):
        return exit_to_numpy(np.delete, (arr, obj, axis), {})
    if axis is None:
        array, axis = array.ravel(), 0
    if not -array.ndim <= axis < array.ndim or not -array.shape[axis] <= obj < array.shape[axis]:
        return exit_to_numpy(np.delete, (arr, obj, axis), {})
    axis, at = axis % array.ndim, obj % array.shape[axis]
    if not array.flags.c_contiguous:  # NumPy fills an array of the other order
        return exit_to_numpy(np.delete, (arr, obj, axis), {})
    before = array[(slice(None),) * axis + (slice(None, at),)]
    after = array[(slice(None),) * axis + (slice(at + 1, None),)]
    return concatenate((before, after), axis=axis)


@implements(np.block)
def block(arrays: Any) -> Any:
    """Return an array put together from nested lists of blocks."""
    return exit_to_numpy(np.block, (arrays,), {})


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Set the elements of one array to those of another."""
    source = ours(src) if type(src) not in (bool, int, float, complex) else None
    known = casting in ("no", "equiv", "safe", "same_kind", "unsafe")
    if isinstance(dst, ArrayBase) and source is not None and known:
        # A copy onto itself is no write, and may be of a read-only array; without axes it is one.
        if layout_of(dst).shape and dst.storage is source.storage and _span(dst) == _span(source):
            return
        if (
            where is True
            and np.can_cast(source.dtype, layout_of(dst).dtype, casting)
            and source.ndim <= layout_of(dst).ndim
        ):
            dst[...] = source
            return
    changed = (dst,) if isinstance(dst, ArrayBase) else ()
    keywords = {"casting": casting, "where": where}
    exit_to_numpy(np.copyto, (dst, src), keywords, changed)


def _memory_function(function: Any) -> None:
    """Make a function ours that asks whether two arrays have memory in common. Of two arrays whose
    elements nobody has been shown, that is whether they are views of one: they may well have one
    copy of equal elements until either is written."""

    def ask(a: Any, b: Any, /, max_work: Any = None) -> Any:
        memory: dict[int, Any] = {}
        return function(_in_memory(a, memory), _in_memory(b, memory), max_work)

    implements(function, signature=False)(ask)


for _asking in (np.shares_memory, np.may_share_memory):
    _memory_function(_asking)


def _in_memory(item: Any, memory: dict[int, Any]) -> Any:
    """Return an ndarray that lies as an Array does: where others see it, or in memory that nobody
    touches, one run of it for each storage."""
    if not isinstance(item, ArrayBase):
        return item
    storage = item.storage
    data = storage.value.data
    if storage.lease is not None or (data is not None and (data.shared or data.foreign)):
        return host(item)
    whole = memory.get(id(storage))
    if whole is None:
        whole = memory[id(storage)] = np.empty(storage.value.layout.nbytes, np.uint8)
    lay = layout_of(item)
    offset = 0 if item.window is None else item.window.offset
    return np.ndarray(lay.shape, lay.dtype, whole, offset if lay.size else 0, lay.strides)


def _span(array: ArrayBase) -> tuple[int, Any]:
    return (0 if array.window is None else array.window.offset), layout_of(array)


__all__ = ["concatenate", "views"]
