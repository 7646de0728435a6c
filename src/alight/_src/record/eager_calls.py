"""NumPy's functions called at once where their arguments lie: those whose results have a size that
only the values tell, or that raise for some values, and those that write into an argument.

A device that has the op in its library does the call when it is forced, or when it alone holds most
of what the call reads. Whatever it does not do as NumPy does, NumPy does on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from alight._core import ArrayBase, Turn, Value, View, floor, hooks, layout_of, make_layout
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.config.loading import config, current_policy
from alight._src.config.schema import HOST_DEVICE
from alight._src.log.decisions import LOG
from alight._src.record.pending import concrete, manners, site
from alight._src.record.storage_io import read
from alight._src.run import evaluate, residency
from alight.backends.registry import backend_of, device, joined, only_host
from alight.errors import PlanError

if TYPE_CHECKING:
    from alight.backends.base import Operand
    from alight.device import Device

__all__ = ["called"]

_OTHER_NAMES = {"putmask": "put_mask"}
# What gives columns of one array, as NumPy does.
_COLUMNS = ("nonzero", "flatnonzero")
# Named tuples that NumPy gives back, by op.
_TUPLES = {"linalg.qr": "QRResult", "linalg.svd": "SVDResult", "linalg.eigh": "EighResult"}


@cache
def _names() -> dict[Any, str]:
    """Return NumPy's functions with their names in the table of ops."""
    found = {}
    for prefix, space in (("fft.", np.fft), ("linalg.", np.linalg), ("", np)):
        for name, item in vars(space).items():
            if callable(item) and getattr(item, "__name__", "") == name:
                path = prefix + name
                found[item] = _OTHER_NAMES.get(path, path)
    return found


def _name(function: Any) -> str:
    """Return the name of NumPy's function in the table of ops; "" for any other, as for methods of
    ufuncs (`less.outer` is no `outer`)."""
    return _names().get(function, "")


def called(
    function: Callable[..., Any] | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    changed: Sequence[Any] = (),
) -> Any:
    """Return what a device gives for a call of NumPy's function, its arrays as Arrays;
    NotImplemented where the call is not for a device. ``changed``: what the call writes into."""
    if only_host() and current_policy().force is None:
        return NotImplemented
    found: list[ArrayBase] = []
    for item in (*args, *kwargs.values()):
        found += [p for p in (item if type(item) in (tuple, list) else (item,)) if _ours(p)]
    if not found or any(isinstance(item, np.ndarray) for item in (*args, *kwargs.values())):
        return NotImplemented
    name = function if isinstance(function, str) else _name(function)
    where = _place(found, name)
    if where is None or name not in where.support.calls or kwargs.get("out") is not None:
        return NotImplemented
    if not all(layout_of(array).size for array in found):
        return NotImplemented
    if not all(layout_of(array).dtype.name in where.support.dtypes for array in found):
        return NotImplemented
    if len(changed) > 1 or (changed and changed[0] is not args[0]):
        return NotImplemented
    from alight.device import Unsupported

    try:
        with residency.LOCK, Turn(*[array.storage for array in changed]):
            return _run(where, name, args, kwargs, bool(changed))
    except Unsupported as gap:
        LOG.fallback(f"{name} on {where.id}:library", str(gap), site())
    except np.linalg.LinAlgError:
        pass  # NumPy words it
    except PlanError:
        raise
    except failures() as error:
        LOG.fallback(f"{name} on {where.id}:library", error, site())
    return NotImplemented


def _ours(item: Any) -> bool:
    return isinstance(item, ArrayBase)


def _place(arrays: Sequence[ArrayBase], name: str) -> Device | None:
    """Return the device that should do a call of a function with these arrays."""
    force = current_policy().force
    if force is not None and force.device is not None:
        wanted = force.implementation in (None, "library") and force.device != HOST_DEVICE
        return device(force.device) if wanted else None
    if force is not None:
        return None
    if any([name in opened.support.calls for opened in joined().values()]):
        # what is pending lies somewhere once it is made, and NumPy would have it made, too
        evaluate.evaluate([array.storage.value for array in arrays], read=False)
    spaces: set[str] = set()
    there = here = 0
    for array in arrays:
        data = array.storage.value.data
        if data is None:
            return None
        if data.array is None and data.remote:
            spaces.update(data.remote)
            there += data.nbytes
        elif not data.remote:
            here += data.nbytes
    # fewer bytes go up than would come down: a small right side must not bring the matrix
    return device(spaces.pop()) if len(spaces) == 1 and here < there else None


def _run(
    where: Device, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], writes: bool
) -> Any:
    from alight.backends.base import Operand
    from alight.device import Unsupported

    backend: Any = backend_of(where)
    # Read once: another thread may write to them meanwhile.
    values = {id(item): read(item) for item in args if _ours(item)}
    evaluate.evaluate(values.values(), read=False)
    watch = evaluate.watch.by

    def given(item: Any) -> Any:
        if _ours(item):
            value = values.get(id(item)) or read(item)
            if value.data is None:
                raise Unsupported("a constant")
            if watch is not None:  # as where the host reads: the result is no constant
                watch.read(value)
            return Operand(residency.buffer(value.data, where), value.offset, value.layout)
        return type(item)([given(p) for p in item]) if type(item) in (tuple, list) else item

    operands = [given(item) for item in args]
    if writes:
        operands[0] = _version(where, backend, args[0], operands[0])
    named = {k: given(item) for k, item in kwargs.items()}
    if config().check:
        from alight._src.run.checked_calls import prove

        target, old = (operands[0], args[0].storage.value.data) if writes else (None, None)
        prove(f"{name} on {where.id}", (*operands, *named.values()), target, old)
    result = backend.call(where, name, operands, named)
    LOG.count(launches=1)
    if not writes:
        return _taken(where, name, result)
    old = args[0].storage.value
    value = Value(None, (), (), old.layout)
    value.data = residency.made_on(where, old.data.layout, operands[0].buffer)
    value.offset = old.offset
    args[0].storage.rebind(value)
    return result


def _version(where: Device, backend: Any, array: Any, operand: Operand) -> Operand:
    """Return a copy of what an array lies in, to be written."""
    from alight.backends.base import Copy
    from alight.device import Unsupported

    data = array.storage.value.data
    view = array.window
    if data.exported or array.storage.lease is not None or (view and not view.writeable):
        raise Unsupported("others see this memory, or it is read-only")
    target = backend.allocate(where, data.nbytes)
    backend.submit(where, 0, [Copy(operand.buffer, target, data.nbytes, where.space, where.space)])
    return operand._replace(buffer=target)


def _taken(where: Device, name: str, result: Any) -> Any:
    from alight.backends.base import Operand

    if isinstance(result, Operand):
        value = _value(where, result)
        if name not in _COLUMNS:
            return hooks.array.of(value)
        columns = [_column(value, i) for i in range(result.layout.shape[1])]
        return tuple(columns) if name == "nonzero" else columns[0]
    if type(result) is tuple:
        parts = [_taken(where, name, part) for part in result]
        words = _TUPLES.get(name)
        return getattr(np.linalg._linalg, words)(*parts) if words else tuple(parts)
    if isinstance(result, np.generic) and not floor.scalars and manners.scalar is None:
        return hooks.array.of(concrete(np.asarray(result)))
    return result


def _value(where: Device, made: Operand) -> Value:
    layout = made.layout
    if not layout.size:
        return concrete(np.empty(layout.shape, layout.dtype))  # with NumPy's strides
    value = Value(None, (), (), layout)
    value.data = residency.made_on(where, layout, made.buffer)
    return value


def _column(value: Value, number: int) -> Any:
    """Return a column of an array of indices: a row apart also where there are no rows."""
    rows, count = value.layout.shape
    step = value.layout.itemsize
    array = hooks.array.of(value)
    window = make_layout(value.layout.dtype, (rows,), (count * step,))
    array.window = View(window, number * step if rows else 0, True)
    return array
