"""Recording: a call on arrays becomes a value with op, operands, dtype, shape and strides.

NumPy's manners live here; below, dtypes are exact and shapes explicit. Errors are NumPy's own: on
the error path NumPy itself is asked, with operands that have no storage.
"""

from __future__ import annotations

import os
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from alight._core import (
    POLICY,
    ArrayBase,
    Data,
    Layout,
    Value,
    View,
    floor,
    hooks,
    layout_of,
    make_layout,
    native,
    recording_errstate,
    take_over,
)
from alight._src.adapt import first_plan
from alight._src.adapt.record_floor import settle_floor
from alight._src.base import package
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.fp_warnings.filters import at_the_call, collected
from alight._src.ir.op_table import OPS, Kind, Op, loop_dtypes
from alight._src.log.decisions import LOG
from alight._src.record.result_strides import dense_like, result_strides
from alight._src.run import evaluate, recording_costs
from alight._src.run.recording_limits import enough

VIEW = OPS["view"]
WRITE = OPS["write"]
CAST = OPS["cast"]
COPY = OPS["copy"]
WHERE = OPS["where"]

extobj = np._core.umath._extobj_contextvar  # type: ignore[attr-defined]

# The folders of files that are not the user's: alight's and NumPy's.
INSIDE = (package.FOLDER + "/", os.path.dirname(np.__file__) + "/")
WEAK = (bool, int, float, complex)


class Manners(threading.local):
    """How this thread's calls show results. ``scalar`` makes what stands for a NumPy scalar
    (`jit`, where programs rely on scalars being immutable); None: 0-d results are Arrays."""

    scalar: Callable[[Value], Any] | None = None


manners = Manners()

# What recording learned, by op and operand layouts. Structures repeat; past this count they do not,
# and starting over costs one round of asking NumPy.
_KEPT = 1 << 14
_memo: dict[Any, Any] = {}
register(Cache.OPS, _memo.clear)


def site() -> tuple[Any, int]:
    """Return the user's place in the program: the first frame outside alight and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


# The name of the frame `call_there` makes; tracebacks of `alight run` leave it out.
STAND_IN = "<alight>"
_stand_ins: dict[tuple[int, int], tuple[Any, Any]] = {}


def _there(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def call_there(function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
    """Return what NumPy's function returns, called as if from the user's line: its warnings name
    that line, and are shown as often as that line's warnings are."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        frame = frame.f_back
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    found = _stand_ins.get(key)
    if found is None or found[0].__globals__ is not frame.f_globals:
        if len(_stand_ins) >= _KEPT:
            _stand_ins.clear()
        there = _there.__code__.replace(
            co_filename=code.co_filename,
            co_firstlineno=(frame.f_lineno or 1) - 1,
            co_name=STAND_IN,
            co_qualname=STAND_IN,
        )
        # The code is kept, so that its id stays its own.
        found = _stand_ins[key] = (FunctionType(there, frame.f_globals, STAND_IN), code)
    return found[0](function, args, kwargs)


# The result elements below which an op on concrete operands is left to NumPy at once.
record_floor = floor.here
hooks.settle = partial(settle_floor, recording_costs.planning_seconds)
hooks.large = partial(start_new_thread, first_plan.come, ())


def array_floor() -> int:
    """Return the elements from which on a new array is alight's in `alight run`: also while all
    work on arrays waits to be planned."""
    record_floor()  # which is an op's own: it is called for the floor to be known
    policy = POLICY.get()
    return policy.record_floor if policy is not None else floor.kept or floor.record_floor


def constant(scalar: Any, dtype: np.dtype[Any]) -> Value:
    """Return a 0-d value that plans take as a parameter.

    Raises OverflowError, as NumPy does, where a Python integer does not fit.
    """
    if dtype.char in "efF" and type(scalar) in (float, complex):  # it may overflow: NumPy warns
        array = call_there(np.asarray, (scalar, dtype), {})
    else:
        array = np.asarray(scalar, dtype)
    return Value(None, (), array, make_layout(dtype, ()))


def concrete(array: np.ndarray[Any, Any]) -> Value:
    """Return a value that takes over a fresh ndarray nobody else holds."""
    value = take_over(array)
    if value is not None:
        return value
    layout = layout_of(array)
    value = Value(None, (), (), layout)
    base = array.base
    if layout.dense and (base is None or (type(base) is np.ndarray and base.base is None)):
        value.data = Data(layout, array, base)
    else:
        value.data = Data(layout, array.copy("K")) if layout.dense else None
        if value.data is None:
            copied = array.copy("K")
            value.layout = layout_of(copied)
            value.data = Data(value.layout, copied)
    return value


def foreign(array: np.ndarray[Any, Any]) -> tuple[Value, View | None]:
    """Return a value over memory that belongs to others, with the view of it that is ``array``.

    The value covers the bytes from the first to the last element.
    """
    value, (view,) = _foreign([array])
    return value, view


def lent(arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Value, list[View | None]]:
    """Return a value over memory of the caller's, one for all arrays that lie in it, with the view
    of it that each of them is: nobody else looks at it while the call lasts."""
    value, views = _foreign(arrays)
    assert value.data is not None
    value.data.shared = False
    return value, views


def _foreign(arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Value, list[View | None]]:
    first = arrays[0]
    layout = layout_of(first)
    if len(arrays) == 1 and layout.dense:
        whole = first
        views = [None if first.flags.writeable else View(layout, 0, writeable=False)]
    else:
        span = _Span(arrays)
        whole = np.asarray(span)
        layout = layout_of(whole)
        views = [
            View(
                layout_of(array),
                array.__array_interface__["data"][0] - span.address,
                array.flags.writeable,
            )
            for array in arrays
        ]
    value = Value(None, (), (), layout)
    value.data = Data(layout, whole, foreign=True)
    return value, views


class _Span:
    """The bytes ndarrays reach, offered to NumPy as one run of memory that keeps them alive."""

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.arrays = arrays
        bounds = [np.lib.array_utils.byte_bounds(array) for array in arrays]
        self.address = min([low for low, _ in bounds])
        self.__array_interface__ = {
            "data": (self.address, not any([array.flags.writeable for array in arrays])),
            "shape": (max([high for _, high in bounds]) - self.address,),
            "typestr": "|u1",
            "version": 3,
        }


def alias(value: Value, view: View) -> Value:
    """Return what a view of a value reads: at once where the value has bytes, else recorded."""
    if value.op is None:
        data = value.data
        if data is not None:
            result = Value(None, (), (), view.layout)
            result.data = data
            result.offset = value.offset + view.offset
            return result
    return Value(VIEW, (value,), (("offset", view.offset),), view.layout, site())


def settled(value: Value) -> bool:
    """Tell whether the value's host bytes can be read now, without any work."""
    return value.op is None and (value.data is None or value.data.array is not None)


# The floor of a body that was given up: nothing is recorded any more, what is pending is done where
# it is met, and what is made is NumPy's own (core.h has the same number).
OUTRIGHT = sys.maxsize - 1


def at_hand_below(value: Value, least: int) -> bool:
    """Tell whether the value's host bytes can be read now, under a floor of so many elements: where
    that is `OUTRIGHT`, they can once this returns."""
    if least == OUTRIGHT and value.op is not None:
        evaluate.evaluate((value,))
    return settled(value)


def exposed(value: Value) -> bool:
    """Tell whether others can write to the value's bytes: then reading it must not be deferred."""
    data = value.data
    return data is not None and data.shared and data.exported


def may_record() -> bool:
    """Tell whether an op that is called now may be recorded: what it warns of can wait, or `pend`
    does its work at the call."""
    return recording_errstate() is not None or collected()


# All others move elements, and warn of nothing.
_COMPUTING = frozenset((Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN, Kind.LIBRARY))


# Ops between two looks at the clock while a body is traced: some tenths of a millisecond.
_LOOK_EVERY = 32


def pend(op: Op, operands: tuple[Value, ...], attrs: Any, layout: Layout) -> Value:
    """Record one value. Where an operand's memory is open to others, or somebody collects
    warnings, the work is done before returning."""
    return pend_each(op, operands, ((attrs, layout),))[0]


def pend_each(
    op: Op,
    operands: tuple[Value, ...],
    results: Sequence[tuple[Any, Layout]],
    errstate: Any = None,
) -> tuple[Value, ...]:
    """Record the values of one op, by their attributes and layouts, as `pend` does."""
    place = site()
    floor.count += len(results)
    floor.pending = min(floor.pending + sum([layout.size for _, layout in results]), sys.maxsize)
    if (floor.count >= floor.limit or floor.pending > floor.budget) and floor.due(*place):
        enough()
    if floor.traced and not floor.count % _LOOK_EVERY and (watch := evaluate.watch.by) is not None:
        watch.recorded()
    now = op.kind in _COMPUTING and recording_errstate() is None and collected()
    if now:
        evaluate.evaluate(operands)  # what was left to wait warns as such
    values = tuple([Value(op, operands, attrs, layout, place) for attrs, layout in results])
    if errstate is not None:
        for value in values:
            value.errstate = errstate
    if now:
        with at_the_call():
            evaluate.evaluate(values)
    elif any(map(exposed, operands)):
        evaluate.evaluate(values)
    return values


def cast(value: Value, dtype: np.dtype[Any]) -> Value:
    """Return the value in another dtype, as ``astype`` casts."""
    if value.layout.dtype.num == dtype.num:
        return value
    if value.op is None and value.data is None:
        return constant(value.attrs.astype(dtype), dtype)
    layout = dense_like(value.layout, dtype)
    if not may_record():  # only NumPy can raise or call now
        LOG.exit("ndarray.astype", site())
    elif layout.size >= (least := record_floor()) or not at_hand_below(value, least):
        return pend(CAST, (value,), (("dtype", dtype),), layout)
    return concrete(call_there(evaluate.host_array(value).astype, (dtype,), {}))


class Resolved:
    """What recording an elementwise op on operands of given kinds comes to."""

    __slots__ = ("dtypes", "outputs")

    def __init__(self, dtypes: tuple[np.dtype[Any], ...], outputs: tuple[Layout, ...]) -> None:
        self.dtypes = dtypes
        self.outputs = outputs


def as_key(item: Any) -> Any:
    """Return what tells dtypes apart, in tuples, too, that are equal: long and long long."""
    if isinstance(item, np.dtype):
        return item, item.num
    return tuple(map(as_key, item)) if type(item) is tuple else item


def _describe(operand: Any) -> Any:
    return operand.layout if isinstance(operand, Value) else type(operand)


_shape_in_numpy: Any = getattr(np.shape, "_implementation", np.shape)


def shape_of(item: Any) -> tuple[int, ...]:
    """Return the shape of anything; NumPy's own function would ask types with manners of their own,
    which answer in their own kind."""
    # An Array tells it in Python, where a signal's handler may raise what NumPy's function catches.
    kind: Any = type(item)
    shape = item.shape if issubclass(kind, ArrayBase) else _shape_in_numpy(item)
    return shape if isinstance(shape, tuple) else ()


def loses_imaginary(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Tell whether a cast leaves imaginary parts behind, of which NumPy warns at the call."""
    return source.kind == "c" and target.kind not in "cb"


def _probe_of(description: Any) -> Any:
    """Return a stand-in operand: storage-less, or a Python scalar that fits every dtype."""
    if not isinstance(description, Layout):
        return description(1)
    one = np.ones(1, description.dtype)  # strides of zero: should NumPy read it after all, it may
    return np.lib.stride_tricks.as_strided(one, description.shape, (0,) * description.ndim)


def resolve(
    op: Op, operands: Sequence[Any], signature: Any = None, casting: str = "same_kind"
) -> Resolved | None:
    """Return loop dtypes and result layouts for values and Python scalars.

    None where the loop NumPy would run is not of native dtypes, or it cannot be asked. Raises what
    NumPy raises.
    """
    key = (op, *[_describe(operand) for operand in operands], as_key(signature), casting)
    found = _memo.get(key, _memo)
    if found is _memo:
        if len(_memo) >= _KEPT:
            _memo.clear()
        found = _memo[key] = _resolve(op, key[1:-2], signature, casting)
    return found  # type: ignore[no-any-return]


def _resolve(op: Op, kinds: tuple[Any, ...], signature: Any, casting: str) -> Resolved | None:
    if casting == "equiv" and not all(isinstance(kind, Layout) for kind in kinds):
        return None  # to say that a Python scalar does not fit, NumPy 2.4's resolve_dtypes crashes
    # None is no signature of NumPy's
    keywords = {} if signature is None else {"signature": signature}
    try:
        asked = [kind.dtype if isinstance(kind, Layout) else kind for kind in kinds]
        if signature is None and casting == "same_kind":
            dtypes = loop_dtypes(op, asked)
        else:
            strong = [np.dtype(bool) if kind is bool else kind for kind in asked]
            assert isinstance(op.reference, np.ufunc), op
            ask: Any = op.reference.resolve_dtypes
            dtypes = ask((*strong, *[None] * op.nout), casting=casting, **keywords)
        shape = np.broadcast_shapes(*[k.shape for k in kinds if isinstance(k, Layout)])
    except failures(TypeError, ValueError) as error:
        failed: Exception | None = error
    else:
        failed = None
    if failed is not None:
        try:
            if isinstance(op.reference, np.ufunc):  # a function would read the elements
                # NumPy words it: an error in types or shapes comes before any element is read.
                # Asked outside of the except clause, or its traceback would tell of our error too.
                with np.errstate(all="ignore"):
                    op.reference(*[_probe_of(kind) for kind in kinds], casting=casting, **keywords)
            raise failed
        finally:
            del failed  # it leads to this frame, and to what its callers hold
    if not all(native(dtype) for dtype in dtypes):
        return None
    outputs = []
    for dtype in dtypes[len(kinds) :]:
        strides = result_strides(op.reference, kinds, shape, dtype.itemsize)
        outputs.append(make_layout(dtype, shape, strides))
    resolved = Resolved(dtypes, tuple(outputs))
    first = kinds[0]
    if (
        op.nout == 1
        and signature is None
        and casting == "same_kind"
        and isinstance(first, Layout)
        and first.ndim > 0  # where NumPy would give a scalar, `make` decides what stands for it
        and all(kind is first for kind in kinds)
        and not (op.name == "power" and first.dtype.kind == "i")  # exponents are looked at
        and all(dtype == first.dtype for dtype in dtypes[: len(kinds)])
    ):
        op.same[first] = outputs[0]
    if op.nout == 1 and signature is None and casting == "same_kind" and len(kinds) == 2:
        full = [kind for kind in kinds if isinstance(kind, Layout)]
        weak = [kind for kind in kinds if kind in (float, int)]
        if (
            len(full) == len(weak) == 1
            and full[0].ndim
            and op.name != "power"  # exponents are looked at
            and all(dtype == full[0].dtype for dtype in dtypes[:2])
        ):
            op.weak[kinds] = (outputs[0], make_layout(full[0].dtype, ()))
    return resolved


def elementwise(
    op: Op,
    operands: Sequence[Any],
    signature: Any = None,
    casting: str = "same_kind",
    errstate: Any = None,
) -> tuple[Value, ...] | None:
    """Record an elementwise op on values and Python scalars; one value per output.

    None where NumPy must do it at once (dtypes outside the table, raising errstate, a Python
    integer that only a comparison can take): the caller hands the call over.
    """
    resolved = resolve(op, operands, signature, casting)
    if resolved is None:
        return None
    loop = resolved.dtypes
    try:
        inputs = tuple(
            [
                (operand if operand.layout.dtype == dtype else cast(operand, dtype))
                if isinstance(operand, Value)
                else constant(operand, dtype)
                for operand, dtype in zip(operands, loop, strict=False)
            ]
        )
    except failures(OverflowError):
        if op.name in _COMPARISONS:
            return None
        raise
    results = [
        (() if op.nout == 1 else (("output", number),), layout)
        for number, layout in enumerate(resolved.outputs)
    ]
    return pend_each(op, inputs, results, errstate)


_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
