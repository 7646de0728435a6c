"""An elementwise op is used on a device once it has matched NumPy there, on every special value.

It is asked when a plan first wants the op on these dtypes. The verdict is kept in the store for the
device, its driver and our code as they are; what failed is a gap that says how. Of an op that the
program declared it is kept in this process, for that declaration: its function may be another in
the next.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from alight._core import Data, layout_of, make_layout
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.base.shortage import is_shortage
from alight._src.fp_warnings.filters import warnings_suppressed
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import Op, Origin
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import code_fingerprint
from alight._src.store import default_store, digest
from alight.backends.base import Copy, Launch, Operand
from alight.backends.registry import backend_of
from alight.device import Device, Unsupported
from alight.errors import DeviceUnavailable, OutOfDeviceMemory

__all__ = ["doubt"]

KIND = "trust"

Array = np.ndarray[Any, Any]

# Random values beside the special ones: enough that a wrong bit in one of a thousand is met.
_RANDOM = 4096
# NumPy picks one of two equal zeros by how it happens to vectorise.
_TIES = frozenset(("maximum", "minimum", "fmax", "fmin", "clip"))

_Dtypes = tuple[np.dtype[Any], ...]

# By op, and then by device, dtypes and output; "" for what matched. An op that is declared anew is
# let go of with its verdicts.
_known: WeakKeyDictionary[Op, dict[tuple[str, _Dtypes, int], str]] = WeakKeyDictionary()
_documents: dict[str, dict[str, str]] = {}
register(Cache.VERIFIED_OPS, _known.clear)
register(Cache.VERIFIED_OPS, _documents.clear)


def doubt(where: Device, op: Op, dtypes: _Dtypes, output: int, ask: bool = True) -> str | None:
    """Return why an op on these dtypes (operands, then the result) is not used on a device, or
    None where it matched NumPy. Without ``ask`` what nobody compared yet is no doubt."""
    known = _known.get(op)
    if known is None:
        known = _known.setdefault(op, {})
    key = where.id, dtypes, output
    found = known.get(key)
    if found is None:
        found = None if op.origin is Origin.PROGRAM else _kept(where, op, dtypes, output)
        if found is None:
            if not ask:
                return None
            try:
                found = _compared(where, op, dtypes, output)
            except (DeviceUnavailable, OutOfDeviceMemory) as error:
                return str(error)  # of the device as it is now, and not of the op
            except failures() as error:
                if is_shortage(error):
                    return f"{type(error).__name__}: {error}"
                raise
            if op.origin is not Origin.PROGRAM:
                _keep(where, op, dtypes, output, found)
            if found:
                LOG.fallback(f"{op.name} on {where.id}", found)
        known[key] = found
    return found or None


def _kept(where: Device, op: Op, dtypes: _Dtypes, output: int) -> str | None:
    """Return the verdict that the store has, or None."""
    kept = _documents.get(where.id)
    if kept is None:
        document = default_store().read(KIND, _place(where)) or {}
        kept = _documents[where.id] = dict(document.get("ops", {}))
    return kept.get(_name(op, dtypes, output))


def _keep(where: Device, op: Op, dtypes: _Dtypes, output: int, verdict: str) -> None:
    kept = _documents.setdefault(where.id, {})
    kept[_name(op, dtypes, output)] = verdict
    default_store().write(KIND, _place(where), {"ops": kept}, merge=_merged)


def _place(where: Device) -> str:
    here = Path(__file__).stat()  # another way to compare is another verdict
    return digest([code_fingerprint(where), here.st_size, here.st_mtime_ns], KIND)


def _name(op: Op, dtypes: _Dtypes, output: int) -> str:
    return f"{op.key} {' '.join(dtype.name for dtype in dtypes)} {output}"


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"ops": {**old.get("ops", {}), **new["ops"]}}


def _compared(where: Device, op: Op, dtypes: _Dtypes, output: int) -> str:
    with warnings_suppressed():  # these are no operands of the program's
        return _verdict(where, op, dtypes, output)


def _verdict(where: Device, op: Op, dtypes: _Dtypes, output: int) -> str:
    operands = _operands(op, dtypes[:-1])
    attrs: tuple[tuple[str, Any], ...] = (("output", output),) if op.nout > 1 else ()
    if op.name == "cast":
        attrs = (("dtype", dtypes[-1]),)
    try:
        expected = op.reference(*operands, **{k: v for k, v in attrs if k != "output"})
        expected = np.asarray(expected[output] if op.nout > 1 else expected)
    except failures() as error:
        if op.origin is not Origin.PROGRAM or is_shortage(error):
            raise
        return _refused(op, error)
    if expected.shape != operands[0].shape or expected.dtype != dtypes[-1]:
        return (
            f"{op.name} of {operands[0].shape} elements has the shape {expected.shape} and dtype "
            f"{expected.dtype}, where {operands[0].shape} and {dtypes[-1]} were recorded"
        )
    layout = make_layout(dtypes[-1], expected.shape)
    node = Node(op, tuple(range(len(operands))), attrs, layout)
    graph = Graph(tuple(map(layout_of, operands)), (node,), (len(operands),))
    try:
        actual = _run(where, Group(GroupKind.LOOP, graph, expected.shape), operands)
    except (DeviceUnavailable, OutOfDeviceMemory):
        raise
    except Unsupported as gap:
        return str(gap)
    except failures() as error:
        if is_shortage(error):
            raise
        return f"{op.name} failed on {where.id}: {type(error).__name__}: {error}"
    try:
        differs = _differs(op, operands, actual, expected)
    except failures() as error:  # out of reference_ulp
        if op.origin is not Origin.PROGRAM or is_shortage(error):
            raise
        return _refused(op, error)
    wrong = np.flatnonzero(differs & ~_open(op, operands, dtypes[-1]))
    if not len(wrong):
        return ""
    first = wrong[0]
    given = ", ".join(repr(operand[first].item()) for operand in operands)
    return (
        f"{op.name}({given}) of {dtypes[0].name} was {actual[first].item()!r} on {where.id} where "
        f"NumPy has {expected[first].item()!r}; {len(wrong)} of {len(expected)} values differ"
    )


def _refused(op: Op, error: BaseException) -> str:
    """Word an error of a program's function: the values are none of the program's, and it may
    refuse them."""
    return f"{op.name} of values to compare it on failed: {type(error).__name__}: {error}"


def _run(where: Device, group: Group, arrays: list[Array]) -> Array:
    backend = backend_of(where)
    kernel = backend.compile(where, group, "generated", None)
    commands: list[Any] = []
    operands = []
    for array in arrays:
        target = backend.allocate(where, array.nbytes)
        layout = layout_of(array)
        commands.append(Copy(Data(layout, array), target, array.nbytes, "host", where.space))
        operands.append(Operand(target, 0, layout))
    commands.append(Launch(kernel, tuple(operands), (None,)))
    made = backend.submit(where, 0, commands)
    backend.wait(made)
    result = np.empty(group.shape, group.graph.nodes[0].layout.dtype)
    target = Data(layout_of(result), result)
    download = Copy(made.buffers[0], target, result.nbytes, where.space, "host")
    backend.wait(backend.submit(where, 0, [download], [made]))
    return result


def _operands(op: Op, dtypes: _Dtypes) -> list[Array]:
    """Return operands that hold every tuple of special values, and random ones."""
    grids = np.meshgrid(*(_special(dtype, len(dtypes) > 2) for dtype in dtypes), indexing="ij")
    generator = np.random.default_rng(1)
    operands = []
    for grid, dtype in zip(grids, dtypes, strict=True):
        drawn: Any
        if dtype.kind in "fc":
            # numbers as programs have them, and any bits at all: every exponent, subnormals
            drawn = generator.standard_normal(_RANDOM) * np.exp(generator.uniform(-9, 9, _RANDOM))
            drawn = drawn.astype(dtype)
            drawn[::2] = np.frombuffer(generator.bytes(drawn.nbytes), dtype)[::2]
            drawn[::16] = generator.uniform(-4, 4, len(drawn[::16])) * np.finfo(dtype).tiny
        elif dtype.kind == "b":
            drawn = generator.integers(0, 2, _RANDOM)
        else:
            info = np.iinfo(dtype)
            drawn = generator.integers(info.min, info.max, _RANDOM, dtype, endpoint=True)
        operands.append(np.concatenate([grid.ravel(), drawn.astype(dtype)]))
    if op.name == "power" and dtypes[1].kind == "i":  # negative exponents are an error
        operands[1] &= np.iinfo(dtypes[1]).max
    return operands


def _special(dtype: np.dtype[Any], few: bool) -> Array:
    """Return values of a dtype where devices go wrong."""
    values: list[Any]
    if dtype.kind == "b":
        values = [False, True]
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = (0, 1, 2, 7, 31, 32, 63, info.max, info.max - 1, -1, -2, -7, info.min, info.min + 1)
        values = [n for n in near if info.min <= n <= info.max]
    else:
        limits = np.finfo(dtype)
        some = [0.0, limits.smallest_subnormal, limits.tiny, 0.1, 1.0, 2.5, limits.max, np.inf]
        more = [limits.tiny / 2, 0.5, 1.5, 2.0, 3.0, np.pi, 10.0, 100.0, 1e4, limits.max / 2]
        positive = some if few else some + more
        values = [*positive, *(-v for v in positive), np.nan, -np.nan]
        if dtype.kind == "c":
            real = np.array(values[:: 2 if few else 1], limits.dtype)
            pairs = np.empty((len(real), len(real)), dtype)
            pairs.real, pairs.imag = np.meshgrid(real, real)
            return pairs.ravel()
    return np.array(values, dtype)


def _differs(op: Op, operands: list[Array], actual: Array, expected: Array) -> Array:
    """Return where a result is further from NumPy's than the op allows; one NaN equals another."""
    if expected.dtype.kind == "c":
        # Products and quotients of complex numbers are promised to 2 ulp of their size, which may
        # be infinite where both parts are not: half of it is not.
        room = max(op.ulp_from_numpy, 2.0) * 2 * op.plane_unit(operands, expected / 2)
        odd = ~np.isfinite(expected) & ~np.isfinite(actual)
        return np.asarray(~((np.abs(actual - expected) <= room) | odd | (actual == expected)))
    if expected.dtype.kind != "f":
        return np.asarray(actual != expected)
    bits = np.dtype(f"i{expected.itemsize}")
    same = actual.view(bits) == expected.view(bits)
    same |= np.isnan(actual) & np.isnan(expected)
    if op.name in _TIES:
        same |= (actual == 0) & (expected == 0)
    # Lengths of complex numbers are real, and no real one of the same op is rounded.
    room = op.ulp_from_reference(operands)
    if not op.ulp and operands[0].dtype.kind == "c":
        room = op.plane_ulp
    if np.any(room):
        # beside infinity lies the largest number
        top = np.finfo(expected.dtype).max
        near, exact = (np.clip(array, -top, top) for array in (actual, expected))
        size = np.abs(exact)
        if op.against is not None:
            size = np.maximum(size, op.against(*operands))
        same |= np.abs(near - exact) <= room * np.spacing(np.minimum(size, top / 2))
    return np.asarray(~same)


def _open(op: Op, operands: list[Array], result: np.dtype[Any]) -> Array:
    """Return where NumPy leaves the result to the machine."""
    x = operands[0]
    if op.name == "reciprocal" and x.dtype.kind in "iu":
        return np.asarray(x == 0)
    if op.name == "cast" and x.dtype.kind in "fc" and result.kind in "iu":
        info = np.iinfo(result)
        whole = np.trunc(x.real.astype(np.longdouble))
        return np.asarray(~((whole >= info.min) & (whole <= info.max)))
    return np.zeros(x.shape, bool)
