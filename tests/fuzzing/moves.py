"""What one step of a random program may do. Each move does the same to an ndarray and an Array."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

import alight

from .pool import Mismatch, Pair, Pool, castable, described, elements, outcomes, whole

Move = Callable[[Pool], None]
MOVES: list[tuple[Move, float]] = []


def move(weight: float) -> Callable[[Move], Move]:
    def listed(function: Move) -> Move:
        MOVES.append((function, weight))
        return function

    return listed


def basic_key(pool: Pool, shape: tuple[int, ...], integers: float = 0.15) -> tuple[Any, ...]:
    """Return a key of slices, and now and then integers, new axes and an ellipsis."""
    r = pool.random
    key: list[Any] = []
    for length in shape:
        kind = r.random()
        if kind < integers and length:
            key.append(r.randrange(-length, length))
        elif kind < 0.35:
            key.append(slice(None))
        elif kind < 0.5:
            key.append(slice(None, None, -1))
        else:
            ends = sorted((r.randint(0, length), r.randint(0, length)))
            key.append(slice(*ends, r.choice((1, 1, 1, 2, 3))))
    if r.random() < 0.2:
        key = key[: r.randint(0, len(key))]
        if r.random() < 0.5:
            key.append(...)
    if r.random() < 0.1 and len(shape) < 4:
        key.insert(r.randint(0, len(key)), None)
    return tuple(key)


def fitting(pool: Pool, target: Any) -> Pair:
    """Return a pair to write into a target: often one that fits, sometimes not."""
    r = pool.random
    for _ in range(6):
        pair = pool.pick()
        if castable(pair.plain, target.dtype):
            try:
                if np.broadcast_shapes(pair.plain.shape, target.shape) == target.shape:
                    return pair
            except ValueError:
                pass
    pair = pool.pick()
    if r.random() < 0.1 and castable(pair.plain, target.dtype):
        return pair
    number = r.choice((0, 1, 3, True, 2))
    return Pair(number, number)


def too_big(*arrays: Any) -> bool:
    """Tell whether large arrays would broadcast against each other to what no memory holds."""
    try:
        shape = np.broadcast_shapes(*[np.shape(array) for array in arrays])
    except ValueError:
        return False
    return math.prod(shape) > 2_000_000


# --- views ---------------------------------------------------------------------------------------
def _view(pool: Pool, expression: Callable[[Any], Any]) -> None:
    pair = pool.pick()
    both = outcomes(lambda: expression(pair.plain), lambda: expression(pair.ours))
    if both is not None:
        pool.add(*both)


@move(10)
def slice_of(pool: Pool) -> None:
    pair = pool.pick()
    key = basic_key(pool, pair.plain.shape)
    if all(type(part) is int for part in key) and len(key) == pair.plain.ndim:
        return
    pool.add(pair.plain[key], pair.ours[key])


@move(6)
def permuted(pool: Pool) -> None:
    r = pool.random
    ndim = pool.pick().plain.ndim
    axes = r.sample(range(ndim), ndim)
    first, second = r.randint(-2, 1), r.randint(-2, 1)
    _view(
        pool,
        r.choice(
            (
                lambda a: a.T,
                lambda a: a.transpose(axes),
                lambda a: a.swapaxes(first, second),
                lambda a: np.moveaxis(a, first, second),
                lambda a: np.flip(a),
                lambda a: np.rot90(a),
                lambda a: np.squeeze(a),
                lambda a: np.expand_dims(a, first),
                lambda a: np.atleast_2d(a),
            )
        ),
    )


@move(6)
def reshaped(pool: Pool) -> None:
    r = pool.random
    order = r.choice("CCCFA")
    pair = pool.pick()
    size, shape = pair.plain.size, pair.plain.shape
    shapes: list[Any] = [(-1,), (1, -1), shape[::-1], (*shape, 1), (size,)]
    shapes += [(n, -1) for n in (2, 3, 4) if size % n == 0]
    target = r.choice(shapes)
    letter = r.choice("CFAK")
    expressions: tuple[Callable[[Any], Any], ...] = (
        lambda a: a.reshape(target, order=order),
        lambda a: np.reshape(a, target),
        lambda a: a.ravel(letter),
        lambda a: a.flatten(order),
    )
    expression = r.choice(expressions)
    both = outcomes(lambda: expression(pair.plain), lambda: expression(pair.ours))
    if both is not None:
        pool.add(*both)


@move(3)
def other_views(pool: Pool) -> None:
    r = pool.random
    dtype = r.choice("dfliBb?hD")
    offset = r.randint(-1, 1)
    pair = pool.pick()
    kind = r.randrange(6)
    if kind == 0:
        shape = (r.randint(1, 3), *pair.plain.shape)
        pool.add(np.broadcast_to(pair.plain, shape), np.broadcast_to(pair.ours, shape))
    elif kind == 1:
        _view(pool, lambda a: a.diagonal(offset))
    elif kind == 2:
        pool.add(pair.plain.real, pair.ours.real)
    elif kind == 3 and pair.plain.dtype.kind == "c":
        pool.add(pair.plain.imag, pair.ours.imag)
    elif kind == 4 and np.dtype(dtype).kind in "iuB" and pair.plain.dtype.kind in "iu":
        # Bytes read as a float would be NaNs of any payload, read as bool anything.
        both = outcomes(lambda: pair.plain.view(dtype), lambda: pair.ours.view(dtype))
        if both is not None:
            pool.add(*both)
    elif kind == 5 and pair.plain.ndim:
        plain, ours = np.array_split(pair.plain, 2), np.array_split(pair.ours, 2)
        at = r.randrange(2)
        pool.add(plain[at], ours[at])


# --- writes --------------------------------------------------------------------------------------
def _number(pool: Pool, dtype: np.dtype[Any]) -> Any:
    r = pool.random
    return r.choice((0, 1, 2, 5, True, np.int8(3), np.float32(2), np.uint8(7), 1.0))


def _set(pool: Pool, pair: Pair, key: Any, item: Pair, our_key: Any = None) -> None:
    our_key = key if our_key is None else our_key

    def write(array: Any, at: Any, value: Any) -> None:
        array[at] = value

    outcomes(
        lambda: write(pair.plain, key, item.plain), lambda: write(pair.ours, our_key, item.ours)
    )


@move(14)
def written(pool: Pool) -> None:
    pair = pool.pick()
    key = basic_key(pool, pair.plain.shape)
    target = pair.plain[key]
    item = fitting(pool, target if isinstance(target, np.ndarray) else pair.plain[(*key, ...)])
    if pool.random.random() < 0.25:
        number = _number(pool, pair.plain.dtype)
        item = Pair(number, number)
    elif pool.random.random() < 0.1 and isinstance(item.plain, np.ndarray):
        item = Pair(item.plain, item.plain.copy())
    _set(pool, pair, key, item)


_IN_PLACE = ("__iadd__", "__isub__", "__imul__", "__iand__", "__ior__", "__ixor__", "__ifloordiv__")


@move(10)
def in_place(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if not pair.plain.ndim:  # NumPy's 0-d results are scalars, alight's stay arrays
        return
    name = r.choice(_IN_PLACE)
    if r.random() < 0.5:
        other = fitting(pool, pair.plain)
    else:
        number = _number(pool, pair.plain.dtype)
        other = Pair(number, number)
    if r.random() < 0.5:
        both = outcomes(
            lambda: getattr(pair.plain, name)(other.plain),
            lambda: getattr(pair.ours, name)(other.ours),
        )
        if both is not None and both[1] is not pair.ours and both[0] is not NotImplemented:
            raise Mismatch(f"{name} returned another object")
        return
    key = basic_key(pool, pair.plain.shape, 0.05)

    def change(array: Any, value: Any) -> None:
        part = array[key]
        array[key] = getattr(part, name)(value)

    if isinstance(pair.plain[key], np.ndarray):
        outcomes(lambda: change(pair.plain, other.plain), lambda: change(pair.ours, other.ours))


@move(8)
def into_out(pool: Pool) -> None:
    r = pool.random
    target = pool.pick()
    first, second = fitting(pool, target.plain), fitting(pool, target.plain)
    if not isinstance(first.plain, np.ndarray) or not target.plain.ndim:
        return
    ufunc = r.choice((np.add, np.subtract, np.multiply, np.copysign, np.greater))
    casting = r.choice(("same_kind", "same_kind", "unsafe"))
    with np.errstate(all="ignore"):
        try:
            probe = np.asarray(ufunc(first.plain, second.plain))
        except (TypeError, ValueError):
            return
    if casting == "unsafe" and not castable(probe, target.plain.dtype):
        return
    keywords: dict[str, Any] = {"casting": casting}
    ours = dict(keywords)
    if r.random() < 0.3:
        mask = next((p for p in pool.pairs if p.plain.dtype == np.bool_), None)
        if mask is not None:
            keywords["where"], ours["where"] = mask.plain, mask.ours
    out = outcomes(
        lambda: ufunc(first.plain, second.plain, out=target.plain, **keywords),
        lambda: ufunc(first.ours, second.ours, out=target.ours, **ours),
    )
    if out is not None and out[1] is not target.ours:
        raise Mismatch("out= returned another object")


@move(6)
def masked(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if not pair.plain.ndim or pair.plain.dtype.kind == "c":
        return
    limit = r.randint(-2, 4)
    plain, ours = pair.plain > limit, pair.ours > limit
    kind = r.randrange(5)
    if kind == 0:
        pool.add(pair.plain[plain], pair.ours[ours])
    elif kind == 1:
        number = _number(pool, pair.plain.dtype)
        _set(pool, pair, plain, Pair(number, number), ours)
    elif kind == 2:
        other = pool.pick()
        if other.plain.shape == plain.shape and castable(other.plain, pair.plain.dtype):
            _set(pool, pair, plain, Pair(other.plain[plain], other.ours[ours]), ours)
    elif kind == 3:
        number = _number(pool, pair.plain.dtype)
        outcomes(
            lambda: np.copyto(pair.plain, number, where=plain),
            lambda: np.copyto(pair.ours, number, where=ours),
        )
    else:
        pool.add(plain, ours)


@move(5)
def fancy(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    if not pair.plain.ndim or not pair.plain.size:
        return
    length = pair.plain.shape[0]
    index = [r.randrange(-length, length) for _ in range(r.randint(0, 4))]
    key: Any = r.choice((index, np.array(index, int), (index, ...), (None, index)))
    kind = r.randrange(4)
    if kind == 0:
        pool.add(pair.plain[key], pair.ours[key])
    elif kind == 1:
        number = _number(pool, pair.plain.dtype)
        _set(pool, pair, key, Pair(number, number))
    elif kind == 2:
        pool.add(np.take(pair.plain, index, axis=0), np.take(pair.ours, index, axis=0))
    elif pair.plain.dtype.kind in "iuf":
        outcomes(lambda: np.add.at(pair.plain, index, 1), lambda: np.add.at(pair.ours, index, 1))


@move(2)
def whole_array_methods(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    number = r.randint(0, 3)

    def put(array: Any) -> None:
        if array.size:
            array.flat[number % array.size] = number

    name = r.choice(("fill", "sort", "flat", "copyto"))
    if name == "fill":
        outcomes(lambda: pair.plain.fill(number), lambda: pair.ours.fill(number))
    elif name == "sort" and pair.plain.dtype.kind in "biu":
        outcomes(pair.plain.sort, pair.ours.sort)
    elif name == "flat":
        outcomes(lambda: put(pair.plain), lambda: put(pair.ours))
    elif name == "copyto":
        other = pool.pick()
        if castable(other.plain, pair.plain.dtype):
            outcomes(
                lambda: np.copyto(pair.plain, other.plain, casting="unsafe"),
                lambda: np.copyto(pair.ours, other.ours, casting="unsafe"),
            )


# --- computing -----------------------------------------------------------------------------------
_EXACT_TWO = (
    np.add, np.subtract, np.multiply, np.add, np.multiply, np.less, np.greater_equal, np.equal,
    np.bitwise_and, np.bitwise_xor, np.logical_or, np.floor_divide,
)  # fmt: skip
_EXACT_ONE = (
    np.negative, np.absolute, np.square, np.isnan, np.logical_not, np.sqrt, np.sign, np.rint,
    np.invert, np.positive, np.isfinite,
)  # fmt: skip
_LOOSE_ONE = (np.sin, np.exp, np.tanh, np.log1p, np.arctan, np.cbrt)


@move(14)
def two_operands(pool: Pool) -> None:
    r = pool.random
    first, second = pool.pick(), pool.pick()
    ufunc = r.choice(_EXACT_TWO)
    if r.random() < 0.4:
        number = _number(pool, first.plain.dtype)
        second = Pair(number, number)
    if too_big(first.plain, second.plain):
        return
    if ufunc is np.floor_divide and np.result_type(first.plain, second.plain).kind not in "iu":
        ufunc = np.add
    if np.result_type(first.plain, second.plain).kind == "c" and ufunc is np.multiply:
        ufunc = np.add
    if r.random() < 0.3:
        first, second = second, first
    both = outcomes(
        lambda: ufunc(first.plain, second.plain), lambda: ufunc(first.ours, second.ours)
    )
    if both is not None and (type(first.ours), type(second.ours)) != (int, int):
        pool.add(*both)


@move(3)
def extremes(pool: Pool) -> None:
    ufunc = pool.random.choice((np.maximum, np.minimum, np.fmax))
    first, second = pool.pick(), pool.pick()
    if too_big(first.plain, second.plain):
        return

    def run(x: Any, y: Any) -> Any:
        return ufunc(x, y) + np.int8(0)  # which of two zeros wins is left open

    both = outcomes(lambda: run(first.plain, second.plain), lambda: run(first.ours, second.ours))
    if both is not None and "c" not in (first.plain.dtype.kind, second.plain.dtype.kind):
        pool.add(*both)


@move(8)
def one_operand(pool: Pool) -> None:
    pair = pool.pick()
    ufunc = pool.random.choice(_EXACT_ONE)
    if pair.plain.dtype.kind == "c" and ufunc in (np.square, np.absolute, np.sqrt, np.sign):
        return
    both = outcomes(lambda: ufunc(pair.plain), lambda: ufunc(pair.ours))
    if both is not None:
        pool.add(*both)


@move(2)
def maths(pool: Pool) -> None:
    pair = pool.pick()
    if pair.plain.dtype.kind not in "fiub":
        return
    ufunc = pool.random.choice(_LOOSE_ONE)
    plain = ufunc(pair.plain)
    room = 16 * np.spacing(np.abs(np.where(np.isfinite(plain), plain, 1)))
    pool.add_loose(plain, ufunc(pair.ours), room)


@move(3)
def quotient(pool: Pool) -> None:
    pair = pool.pick()
    number = pool.random.choice((2, 3.0, np.float32(0.5), 0))
    if pair.plain.dtype.kind != "c":
        pool.add(pair.plain / number, pair.ours / number)


@move(4)
def cast(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    dtype = np.dtype(r.choice("dfliBb?heDQ"))
    order = r.choice("KKKCF")
    if castable(pair.plain, dtype):
        pool.add(pair.plain.astype(dtype, order=order), pair.ours.astype(dtype, order=order))


@move(4)
def choice(pool: Pool) -> None:
    masks = [p for p in pool.pairs if p.plain.dtype == np.bool_] or pool.pairs
    mask, first, second = pool.random.choice(masks), pool.pick(), pool.pick()
    if too_big(mask.plain, first.plain, second.plain):
        return
    if pool.random.random() < 0.3:
        number = _number(pool, first.plain.dtype)
        second = Pair(number, number)
    both = outcomes(
        lambda: np.where(mask.plain, first.plain, second.plain),
        lambda: np.where(mask.ours, first.ours, second.ours),
    )
    if both is not None:
        pool.add(*both)


@move(2)
def joined(pool: Pool) -> None:
    r = pool.random
    first, second = pool.pick(), pool.pick()
    axis = r.choice((0, 0, 1, -1, None))
    function = r.choice((np.concatenate, np.stack))
    shift = r.randint(-2, 2)
    if r.random() < 0.3:
        pool.add(np.roll(first.plain, shift), np.roll(first.ours, shift))
        return
    if function is np.stack and axis is None:
        axis = 0
    both = outcomes(
        lambda: function([first.plain, second.plain], axis=axis),
        lambda: function([first.ours, second.ours], axis=axis),
    )
    if both is not None:
        pool.add(*both)


_FOLDS = ("sum", "sum", "max", "min", "any", "all", "prod", "mean", "argmax", "argmin", "var")


@move(7)
def folded(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    name = r.choice(_FOLDS)
    axis: Any = r.choice((None, 0, -1, 1, (0, 1), (0, -1)))
    keywords: dict[str, Any] = {"axis": axis}
    if r.random() < 0.3:
        keywords["keepdims"] = True
    function = getattr(np, name)
    both = outcomes(
        lambda: function(pair.plain, **keywords), lambda: function(pair.ours, **keywords)
    )
    if both is None:
        return
    plain = np.asarray(both[0])
    exact = pair.plain.dtype.kind in "biu" and plain.dtype.kind in "biu"
    if exact or name.startswith("arg") or (name == "sum" and whole(pair.plain)):
        pool.add(*both)
    elif name in ("max", "min"):
        pool.add(both[0] + np.int8(0), both[1] + np.int8(0))
    elif name in ("sum", "mean", "var") and pair.plain.size:
        _compared_fold(pool, pair, both, name)


def _compared_fold(pool: Pool, pair: Pair, both: tuple[Any, Any], name: str) -> None:
    result = np.asarray(both[0])
    sizes = np.abs(pair.plain.astype(np.complex128 if pair.plain.dtype.kind == "c" else float))
    if not np.isfinite(sizes).all():
        return
    total = float(sizes.sum() if name != "var" else (sizes * sizes).sum())
    # The table's bound of a fold of n, whatever n is along the axis: at most all elements.
    limit = np.finfo(result.dtype).eps * (pair.plain.size + 32) * 3
    pool.add_loose(result, both[1], limit * total + np.finfo(result.dtype).tiny)


@move(3)
def scanned(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    axis = r.choice((None, 0, -1))
    if pair.plain.dtype.kind in "biu" or whole(pair.plain):
        both = outcomes(
            lambda: np.cumsum(pair.plain, axis=axis), lambda: np.cumsum(pair.ours, axis=axis)
        )
        if both is not None:
            pool.add(*both)


@move(2)
def product(pool: Pool) -> None:
    first, second = pool.pick(), pool.pick()
    if not (whole(first.plain) and whole(second.plain)):
        return
    if max(first.plain.size, second.plain.size) > 1000:
        return
    both = outcomes(lambda: first.plain @ second.plain, lambda: first.ours @ second.ours)
    if both is None:
        return
    sizes = float(np.abs(first.plain).sum()) * float(np.abs(second.plain).sum())
    if sizes < 2.0**11 or np.asarray(both[0]).dtype.kind in "biu":
        pool.add(*both)


# --- memory --------------------------------------------------------------------------------------
@move(5)
def created(pool: Pool) -> None:
    array = pool.fresh()
    pool.add(array, alight.asarray(array))


@move(4)
def copied(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    order = r.choice("CFAK")
    kind = r.randrange(6)
    if kind < 4:
        pool.add(pair.plain.copy(order), pair.ours.copy(order))
    elif kind == 4:
        elements(Pair(*[pickle.loads(pickle.dumps(x)) for x in (pair.plain, pair.ours)]))
    else:
        elements(Pair(copy.deepcopy(pair.plain), copy.deepcopy(pair.ours)))


@move(4)
def exported(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    shared = np.asarray(pair.ours)
    described(Pair(pair.plain, shared))
    if shared.flags.writeable != pair.plain.flags.writeable:
        raise Mismatch(f"exported writeable {shared.flags.writeable}")
    pool.exports.append((pair.plain, shared))
    if len(pool.exports) > 3 or r.random() < 0.3:
        del pool.exports[r.randrange(len(pool.exports))]
    written_outside(pool)


@move(2)
def written_outside(pool: Pool) -> None:
    r = pool.random
    if not pool.exports:
        return
    plain, shared = r.choice(pool.exports)
    if plain.size and plain.flags.writeable:
        at = r.randrange(plain.size)
        plain.flat[at] = shared.flat[at] = r.randint(0, 5)


@move(3)
def dropped(pool: Pool) -> None:
    r = pool.random
    if len(pool.pairs) > 3:
        del pool.pairs[r.randrange(len(pool.pairs))]
    elif pool.exports:
        pool.exports.pop()


# --- requests ------------------------------------------------------------------------------------
@move(3)
def asked(pool: Pool) -> None:
    r = pool.random
    pair = pool.pick()
    kind = r.randrange(4)
    if kind == 0:
        elements(pair)
    elif kind == 1:
        alight.evaluate(pair.ours, pool.pick().ours)
    elif kind == 2 and pair.plain.size:
        at = tuple([r.randrange(n) for n in pair.plain.shape])
        got, want = pair.ours[at].item(), pair.plain[at].item()
        if got != want and not (got != got and want != want):
            raise Mismatch(f"element {at}: {got}, must be {want}")
    elif kind == 3 and pair.plain.ndim == 1 and pair.plain.size < 8:
        for got, want in zip(list(pair.ours), list(pair.plain), strict=True):
            elements(Pair(np.asarray(want), got))


@move(5)
def compared(pool: Pool) -> None:
    pool.compare()
