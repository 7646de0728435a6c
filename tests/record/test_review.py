"""Programs that once gave other answers than NumPy, or took a time out of all proportion."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import pending_storages
from hearing import collected

MODES: list[dict[str, Any]] = [
    {"force": "numpy"},
    {"force": "cpu:generated"},
    {"force": "sim:0"},
]
SIZE = 2000


@pytest.fixture(params=MODES, ids=lambda mode: mode["force"])
def forced(request: pytest.FixtureRequest) -> Any:
    with alight.policy(floor=0, **request.param):
        yield request.param["force"]


def test_what_others_write_into_an_export_is_seen_after_every_upload(forced: str) -> None:
    x = alight.asarray(np.arange(float(SIZE)))
    exported = np.asarray(x)
    for number in range(3):
        exported[0] = 50.0 + number
        assert (x + 1)[0] == 51.0 + number
        assert np.array_equal(np.array(x[::2] * 2), exported[::2] * 2)
    del exported
    x[0] = 7.0
    assert (x + 1)[0] == 8.0


@pytest.mark.parametrize(
    ("name", "dtype", "out"),
    [
        ("sum", "f2", "f8"),
        ("sum", "f4", "f8"),
        ("sum", "i1", "i1"),
        ("prod", "i4", "f8"),
        ("cumsum", "i1", "f8"),
        ("cumprod", "i1", "f4"),
        ("mean", "f2", "f2"),
        ("mean", "f4", "f8"),
        ("mean", "i4", "f4"),
        ("var", "f2", "f2"),
    ],
)
def test_a_reduction_computes_in_the_dtype_of_out(
    forced: str, name: str, dtype: str, out: str
) -> None:
    data = (np.arange(SIZE) % 7 + 20).astype(dtype).reshape(2, -1)
    shape = data.shape if name.startswith("cum") else (2,)
    expected = np.zeros(shape, out)
    with np.errstate(all="ignore"):
        getattr(np, name)(data, axis=1, out=expected)
        target = alight.asarray(np.zeros(shape, out))
        assert getattr(np, name)(alight.asarray(data), axis=1, out=target) is target
    np.testing.assert_allclose(np.array(target), expected, rtol=1e-6)


def test_a_reduction_into_a_read_only_array_says_what_numpy_says(forced: str) -> None:
    data, out = np.arange(float(SIZE)).reshape(2, -1), np.zeros(2)
    out.flags.writeable = False
    with pytest.raises(ValueError) as expected:
        np.sum(data, axis=1, out=out)
    target = alight.asarray(np.zeros(2))
    target.setflags(write=False)
    with pytest.raises(ValueError) as raised:
        np.sum(alight.asarray(data), axis=1, out=target)
    assert str(raised.value) == str(expected.value)


def test_a_cast_that_overflows_warns_by_numpys_name(forced: str) -> None:
    x = alight.asarray(np.full(SIZE, 1e300))
    with collected() as caught:
        alight.evaluate(x.astype("f4"))
    assert [str(w.message) for w in caught] == ["overflow encountered in cast"]


def test_copies_keep_the_order_of_strides() -> None:
    data = np.arange(24.0).reshape(4, 6).T
    x = alight.asarray(data)
    assert copy.copy(x).strides == copy.copy(data).strides
    assert copy.deepcopy(x).strides == copy.deepcopy(data).strides


def test_results_nobody_asks_for_do_not_slow_down_other_requests() -> None:
    a, b = (alight.asarray(np.ones(64)) for _ in range(2))
    kept = []
    with alight.policy(floor=0, force="numpy"):
        for number in range(1500):
            kept.append(a * number)
            float(b.sum())
        assert len(pending_storages()) < 1024  # it is flushed like any other pending work
    assert all(float(item[0]) == number for number, item in enumerate(kept))


def test_pending_work_is_joined_through_what_it_shares() -> None:
    a = alight.asarray(np.ones(64))
    with alight.policy(floor=0, force="numpy"):
        base = a + 1
        left, far, apart = base * 2, base * 3, a * 5
        middle = left + far
        float(left.sum())
        assert middle.storage.value.op is None and far.storage.value.op is None
        assert apart.storage.value.op is not None
        assert float(apart[0]) == 5.0


class _Two:
    def __index__(self) -> int:
        return 2


def test_an_object_with_an_index_picks_a_view(forced: str) -> None:
    data = np.arange(3.0 * SIZE).reshape(3, SIZE)
    x, plain = alight.asarray(data), data.copy()
    for array in (x, plain):
        row = array[_Two()]
        later = row + 1
        part = array[_Two(), 2:]
        row += 1
        part[0] = -5.0
        array *= 2
        assert np.array_equal(np.array(later), data[2] + 1)
        assert row[2] == -10.0 and array[_Two(), _Two()] == -10.0
    assert np.array_equal(np.array(x), plain)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1])
def test_powers_that_numpy_has_a_ufunc_for_have_its_bits(
    forced: str, dtype: str, exponent: float
) -> None:
    data = np.random.default_rng(3).uniform(0.01, 10.0, 20 * SIZE).astype(dtype)
    x = alight.asarray(data)
    assert np.array_equal(np.array(x**exponent), data**exponent)
    x **= exponent
    assert np.array_equal(np.array(x), data**exponent)


def test_a_mask_of_another_shape_is_refused_where_nothing_is_copied(forced: str) -> None:
    def onto(row: Any, names: Any, place: int) -> None:
        parts = row[3::3].reshape(2, -1)
        names.copyto(parts[0][:-2], parts[place][:-2], where=row > 2)

    row = np.arange(9.0)
    calls = (onto, row, np), (alight.jit(onto), row, np), (onto, alight.asarray(row), alight)
    for body, *given in calls:
        with pytest.raises(ValueError, match=r"mask from shape \(9,\) into shape \(0,\)"):
            body(*given, 1)
        body(*given, 0)  # onto itself: NumPy does not look
    behind = alight.zeros((0, 3))[:, 1:]  # begins after the end of its memory
    assert np.asarray(behind + 1).shape == np.asarray(behind).shape == (0, 2)


@pytest.mark.parametrize("floor", [None, 0])
def test_what_stands_for_a_scalar_becomes_an_array_of_any_shape_and_type(floor: int | None) -> None:
    with alight.policy(**({} if floor is None else {"floor": floor})):
        row = alight.arange(12.0)
        for total in (row.sum(), 6 * alight.array(7.0), row[3]):
            before, same = float(total), total
            total += row
            assert np.array_equal(np.asarray(total), before + np.arange(12.0))
            assert same.ndim == 0 and float(same) == before
        count = alight.arange(5).sum()
        count *= 0.25
        assert count.dtype == float and float(count) == 2.5
        for made in (alight.array(7.0), alight.zeros(()), alight.ones_like(row[0]), row[3, ...]):
            made *= 2
            with pytest.raises(ValueError, match="non-broadcastable output operand"):
                made += row


SCALAR_METHODS: list[tuple[str, tuple[Any, ...]]] = [
    ("put", ([1, 3], 6)),
    ("put", (0, 6)),
    ("choose", ([1, 2],)),
    ("partition", (0,)),
    ("byteswap", ()),
    ("setfield", (1, "i4")),
    ("fill", (3,)),
    ("view", ("u8",)),
    ("tobytes", ()),
]


@pytest.mark.parametrize(("name", "given"), SCALAR_METHODS)
def test_methods_of_a_scalar_inside_jit_are_numpys(
    forced: str, name: str, given: tuple[Any, ...]
) -> None:
    def called(row: Any) -> Any:
        total = row.sum()
        try:
            result = getattr(total, name)(*given)
        except Exception as error:
            result = type(error).__name__, str(error)
        return result, total, total.imag, total.flags.writeable

    for dtype in (float, int):
        row = np.arange(5).astype(dtype)
        assert repr(alight.jit(called)(row)) == repr(called(row))


FACTORS = np.array([1e200, 1e-200, -1.5, 3.0])
PRODUCTS: dict[str, Any] = {
    "all in turn": lambda p, x: p.prod(p.tile(x[:2], SIZE)),
    "the first overflow": lambda p, x: p.prod(p.repeat(x[:2], SIZE)),
    "the first underflow": lambda p, x: p.prod(p.repeat(x[1::-1], SIZE)),
    "small of single floats": lambda p, x: p.prod(p.tile(p.sqrt(abs(x[:2])).astype("f4"), SIZE)),
    "of some": lambda p, x: p.prod(p.tile(x, SIZE), where=p.tile(x > 0, SIZE), initial=2.0),
    "of numbers": lambda p, x: p.nanprod(p.where(p.tile(x, SIZE) == 3, p.nan, p.tile(x, SIZE))),
    "rows": lambda p, x: p.tile(x[[0, 0, 1, 1]], (SIZE, 1)).prod(axis=1),
    "short rows": lambda p, x: p.prod(p.tile(x[[0, 0, 1, 1, 3]], (SIZE, 1)) * 0.5, axis=1),
    "backwards": lambda p, x: p.tile(x[[1, 0, 1, 0, 0]], (SIZE, 1))[:, ::-1].prod(axis=1),
    "short rows from 2": lambda p, x: p.prod(p.tile(x[[0, 1, 0]], (SIZE, 1)), 1, initial=1e200),
    "short rows of some": lambda p, x: p.prod(
        p.tile(x[[0, 0, 1, 1]], (SIZE, 1)), axis=1, where=p.arange(4) != 1
    ),
    "short rows beside": lambda p, x: (
        p.tile(x[[0, 1, 1, 0, 2]], (SIZE, 1))
        / p.tile(x[[0, 0, 1, 1, 2]], (SIZE, 1)).prod(axis=1, keepdims=True)
    ),
    "the largest of": lambda p, x: p.max(
        p.prod(p.tile(x[[0, 0, 1, 1]], (30, SIZE, 1)) * (p.arange(4.0) + 1), axis=2), axis=0
    ),
    "small single ones": lambda p, x: p.nanprod(
        p.tile(p.sqrt(abs(x[[1, 1, 0]])).astype("f4"), (SIZE, 1)), axis=1
    ),
    "columns": lambda p, x: p.multiply.reduce(p.tile(x[[0, 0, 1, 1]], (SIZE, 1)).T * 1.0, axis=0),
    "of what is made": lambda p, x: p.prod(p.tile(x, SIZE) * 2 / 2 + 0.0, axis=0),
    "beside others": lambda p, x: p.tile(x, SIZE) / p.prod(p.tile(x[:2], SIZE)),
    "so far": lambda p, x: p.cumprod(p.tile(x[:2], SIZE)),
    "complex": lambda p, x: p.prod(p.tile(x[:2] * (1 + 0j), SIZE)),
    "whole": lambda p, x: p.prod(p.arange(SIZE) % 3 + 1, dtype=float),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("mode", [{}, {"floor": 0}, *({"floor": 0, **mode} for mode in MODES)])
def test_a_product_is_numpys_whatever_partial_products_are(mode: Any, name: str) -> None:
    with np.errstate(all="ignore"):
        wanted = PRODUCTS[name](np, FACTORS)
        with alight.policy(**mode):
            ours = np.asarray(PRODUCTS[name](alight, alight.asarray(FACTORS)))
            jitted = alight.jit(lambda x: PRODUCTS[name](np, x))
            theirs = [jitted(FACTORS) for _ in range(3)]
    for found in (ours, *theirs):
        assert np.array_equal(found, wanted, equal_nan=True)  # NumPy's own order gives its bits


MEMORY = bytearray(np.arange(8.0).tobytes())


def _read_only_view() -> Any:
    view = np.arange(8.0)[:]
    view.flags.writeable = False
    return view


def _view_of_read_only() -> Any:
    owner = np.arange(8.0)
    owner.flags.writeable = False
    return owner[:]


GIVEN: dict[str, Any] = {
    "own": lambda: np.arange(8.0),
    "view": lambda: np.arange(16.0)[4:12],
    "buffer": lambda: np.frombuffer(bytearray(MEMORY)),
    "bytes": lambda: np.frombuffer(bytes(MEMORY)),
    "read-only view": _read_only_view,
    "view of read-only": _view_of_read_only,
}


def _bases(a: Any) -> Any:
    first = a[2:]
    second = first[::2]
    if isinstance(a.base, np.ndarray):  # which is none of those the body has
        return second.base is not None, first.flags.owndata
    above = a if a.base is None else a.base
    return (
        *(view.base is a for view in (first, second, a.T, a.reshape(2, 4))),
        *(type(above).__name__, a.base is above, first.base.base is a.base, first.flags.owndata),
    )


def _made_over_bytes(a: Any) -> Any:
    return _bases(np.frombuffer(bytes(MEMORY))), a + 1


def _made_over_buffer(a: Any) -> Any:
    return _bases(np.frombuffer(MEMORY)), a + 1


def _allowed(*arrays: Any) -> Any:
    told = []
    for array in arrays:
        try:
            array.flags.writeable = True
            told.append("allowed")
        except ValueError as error:
            told.append(str(error))
    return told


def _locked_view(a: Any) -> Any:
    first = a[1:]
    first.flags.writeable = False
    second = first[1:]
    told = [array.flags.writeable for array in (a, first, second)]
    told += _allowed(second)
    if second.flags.writeable:
        second[0] = 50.0
    return told + _allowed(first), a + 0


def _locked_owner(a: Any) -> Any:
    first = a[1:]
    second = first[1:]
    a.flags.writeable = False
    third = a[2:]
    told = [array.flags.writeable for array in (first, second, third)]
    return told + _allowed(third, second, first, a, third), a + 0


def _locked_copy(a: Any) -> Any:
    return _locked_owner(a + 1)


def _locked_bytes(a: Any) -> Any:
    return _allowed(np.frombuffer(bytes(MEMORY)), np.frombuffer(MEMORY)[2:]), a + 1


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize(
    "body",
    [
        *(_bases, _made_over_bytes, _made_over_buffer),
        *(_locked_view, _locked_owner, _locked_copy, _locked_bytes),
    ],
)
def test_memory_inside_jit_is_whose_numpy_says(forced: str, body: Any, given: str) -> None:
    theirs, ours = GIVEN[given](), GIVEN[given]()
    assert repr(alight.jit(body)(ours)) == repr(body(theirs))
    assert np.array_equal(ours, theirs) and ours.flags.writeable == theirs.flags.writeable


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3), (1, 6), (6, 1, 1)])
def test_an_argument_is_resized_in_its_own_order(forced: str, shape: tuple[int, ...]) -> None:
    def resized(a: Any) -> Any:
        a.resize(shape, refcheck=False)
        return a * 2

    for order in "CF":
        theirs = np.arange(6.0).reshape(2, 3).copy(order)
        ours = theirs.copy(order)
        wanted, found = resized(theirs), alight.jit(resized)(ours)
        for a, b in ((ours, theirs), (found, wanted)):
            assert np.array_equal(a, b) and a.strides == b.strides


def test_an_argument_that_its_caller_holds_is_not_resized(forced: str) -> None:
    def resized(a: Any) -> Any:
        a.resize((4, 4))

    held = np.arange(6.0)
    for body in (resized, alight.jit(resized)):
        with pytest.raises(ValueError, match="references or is referenced"):
            body(held)


def test_an_average_of_nothing_divides_by_nothing(forced: str) -> None:
    empty = np.ones((2, 0))
    for array in (empty, alight.asarray(empty)):
        with pytest.raises(ZeroDivisionError):
            np.average(array, axis=0)
