"""Answers that were once other than NumPy's: what writes in place, and what is given out=."""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import alight


def agree(function: Any) -> None:
    """Compare what a function of a namespace gives with what it gives of NumPy's."""
    want, got = function(np), function(alight)
    for mine, theirs in zip(got, want, strict=True):
        assert np.shape(mine) == np.shape(theirs)
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.mark.parametrize("name", ["concatenate", "stack"])
def test_parts_may_be_joined_into_one_of_them(mode: str, name: str) -> None:
    def joined(np: Any) -> Any:
        a = np.arange(12.0) * 2
        first, second = a[4:8], a[:4]
        out = a[:8] if name == "concatenate" else a[:8].reshape(2, 4)
        getattr(np, name)([first, second], out=out)
        return [a]

    agree(joined)


def test_a_product_into_what_numpy_does_not_take(mode: str) -> None:
    a = alight.arange(16.0).reshape(4, 4)
    with pytest.raises(ValueError, match="output array is not acceptable"):
        alight.dot(a, a, out=alight.zeros((4, 4)).T)
    with pytest.raises(ValueError, match="output array is not acceptable"):
        alight.dot(a, a, out=alight.zeros((4, 4), "c16"))
    out = alight.zeros((4, 4))
    assert alight.dot(a, a, out=out) is out and np.array_equal(out, np.asarray(a) @ np.asarray(a))


@pytest.mark.parametrize("shape", [(3,), (40,), (2, 3), (5, 7), (0,), ((2, 6),), (12,), ()])
def test_an_array_is_resized_in_place(mode: str, shape: Any) -> None:
    def resized(np: Any) -> Any:
        a = np.arange(12.0) + 1
        a.resize(*shape)
        before = a + 0
        a += 1
        a[...] = a * 2
        return before, a

    agree(resized)


def test_resizing_what_others_see(mode: str) -> None:
    a = alight.arange(12.0) + 1
    window = a[2:]
    with pytest.raises(ValueError, match="referenced"):
        a.resize(3)
    with pytest.raises(ValueError, match="does not own"):
        window.resize(30)
    window.resize(2, 5)
    assert window.shape == (2, 5)
    shared = np.asarray(a)
    a.resize(100_000, refcheck=False)
    assert shared[3] == 4.0 and np.asarray(a)[3] == 4.0 and not np.asarray(a)[12:].any()


def test_memory_that_others_were_told_of_lives_as_long_as_the_array(mode: str) -> None:
    a = alight.arange(1000.0) + 1
    first = np.ndarray((1000,), buffer=a)  # keeps the array, and nothing of its memory
    memory = weakref.ref(a.storage)
    a.resize(3000)
    second = np.ndarray((3000,), buffer=a)
    a.resize(5000)
    others = [np.full(count, 7.0) for count in (1000, 3000) for _ in range(50)]
    assert others and first[:3].tolist() == second[:3].tolist() == [1.0, 2.0, 3.0]
    assert first[-1] == 1000.0 and second[-1] == 0.0 and memory() is not None
    del a, first, second
    assert memory() is None


def test_a_window_keeps_what_there_was(mode: str) -> None:
    a = alight.arange(9.0)
    window = a.reshape(-1, 3)[:, 1]
    a.resize(4, refcheck=False)
    a += 1
    assert a.tolist() == [1.0, 2.0, 3.0, 4.0] and window.tolist() == [1.0, 4.0, 7.0]


def test_two_results_may_go_into_one_array(mode: str) -> None:
    def divided(np: Any) -> Any:
        a, b = np.arange(9.0), np.arange(18.0)
        np.divmod(a, 3, out=(a, a))
        np.divmod(a + 7, 3, out=(b[:9], b[9:]))
        return a, b

    agree(divided)


@pytest.mark.parametrize("start", [0, 1])
def test_the_flat_iterator_assigned_from_its_own_memory(mode: str, start: int) -> None:
    def assigned(np: Any) -> Any:
        a, b = np.arange(9.0), np.arange(9.0)
        a.flat = np.flip(a)[start:]
        b.flat = b[start:]
        return a, b

    agree(assigned)


def test_a_jitted_function_gives_its_argument_a_shape(mode: str) -> None:
    @alight.jit
    def shaped(a: Any, b: Any) -> None:
        a.shape = (3, -1)
        a += 1
        b.dtype = np.int64
        b[0] = 7

    x, y = np.arange(600.0), np.zeros(600)
    shaped(x, y)
    assert x.shape == (3, 200) and x[1, 0] == 201.0
    assert y.dtype == np.int64 and y[0] == 7


def test_numpys_own_generators_refuse_arrays_of_ours() -> None:
    a = alight.zeros(100)
    for draw in ("random", "standard_normal", "standard_exponential"):
        with pytest.raises(ValueError, match="contiguous"):
            getattr(np.random.default_rng(1), draw)(out=a)
    assert sys.getsizeof(a) >= 64 and not np.asarray(a).any()


@pytest.mark.parametrize("name", ["any", "all", "sum", "prod", "min", "max"])
def test_reductions_take_their_arguments_by_position(mode: str, name: str) -> None:
    def reduced(np: Any) -> Any:
        a = np.arange(6.0).reshape(2, 3)
        truth = name in ("any", "all")
        out = np.zeros(3, bool if truth else float)
        method = getattr(a, name)
        if name in ("min", "max"):
            return method(0, out), out, method(1, None, True), method(1, None, False, 2.0)
        typed = [method(0, bool)] if truth else [method(0, float, None, False, 2.0)]
        return [method(0, None, out), out, method(1, None, None, True), *typed]

    agree(reduced)


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "L"])
def test_means_in_integers_are_divided(mode: str, dtype: str) -> None:
    def means(np: Any) -> list[Any]:
        found = []
        for kind in "ild":
            a = (np.arange(600) % 97 * 1000 + 1).reshape(20, 30).astype(kind)
            for axis in (None, 0, 1):
                found.append(np.mean(a, axis, dtype=dtype))
            found.append(np.mean(a * 2 - 1, 1, dtype=dtype, keepdims=True))
        return found

    agree(means)


@pytest.mark.parametrize("wanted", [None, "C", "F", "O", "W", "E", ["C", "O"], ["FORTRAN"], "CF"])
@pytest.mark.parametrize("dtype", [None, "f4"])
def test_what_is_required_has_numpys_order(mode: str, dtype: Any, wanted: Any) -> None:
    def required(namespace: Any) -> list[Any]:
        a = namespace.arange(12.0).reshape(3, 4) + 1
        found = []
        for form in (a, a.T, a.copy("F"), a[::2], a[:, 1:]):
            try:
                got = namespace.require(form, dtype, wanted)
            except ValueError as error:
                return [str(error)]
            found += [got is form, got.strides, got.dtype, got.tolist()]
        return found

    assert required(alight) == required(np)

    def written(x: Any) -> Any:
        x[0, 0] = 5.0
        got = np.require(x, dtype, wanted)
        got[1] = 3.0
        return got.strides, x.sum()

    if wanted != "CF":
        for form in (np.arange(12.0).reshape(3, 4), np.zeros((3, 4), order="F").T):
            mine, theirs = form.copy("K"), form.copy("K")
            for _ in range(3):
                assert alight.jit(written)(mine) == written(theirs)
                assert np.array_equal(mine, theirs)


def test_a_view_stays_read_only_with_what_it_is_a_view_of(mode: str) -> None:
    def flagged(np: Any) -> Any:
        a = np.arange(9.0)
        whole, part = a.reshape(3, 3), a[2:]
        a.flags.writeable = False
        first = [x.flags.writeable for x in (a, whole, part, a[1:])]
        later = a[1:]
        for view in (later, a[::2]):
            with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
                view.setflags(write=True)
        alone = a.base is None and a.flags.owndata
        part.flags.writeable = False
        a.flags.writeable = True
        later.setflags(write=True)
        part.flags.writeable = True
        later += 1
        return first, alone, a, whole, part

    agree(flagged)


def test_resizing_what_is_read_only_or_lent(mode: str) -> None:
    def resized(np: Any) -> Any:
        a, b = np.arange(6.0), np.arange(6.0)
        a.flags.writeable = False
        a.resize(3)
        shown = memoryview(b)
        with pytest.raises(ValueError, match="referenced"):
            b.resize(3)
        shown.release()
        b.resize(2)
        return a, a.flags.writeable, b

    agree(resized)


@pytest.mark.parametrize("dtype", ["i8", "u1", "f8"])
def test_an_array_is_no_element(mode: str, dtype: str) -> None:
    # Of arrays with one element NumPy before 2.4 takes it, and warns.
    def assigned(item: Any) -> tuple[Any, ...]:
        target = np.zeros(3, dtype)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                target[1] = item
                ended = target.tolist()
            except Exception as error:
                ended = repr(error)
        return ended, [(one.category, str(one.message)) for one in told]

    plain, ours = np.arange(4.0), alight.arange(4.0)
    for part in (slice(None), slice(1), slice(0), 3):
        want = assigned(plain[part])
        assert assigned(ours[part]) == assigned(ours.to_numpy()[part]) == want
    assert "setting an array element with a sequence" in assigned(ours)[0]
    with pytest.raises(TypeError, match="only"):
        int(ours)


def test_a_number_has_no_parts(mode: str) -> None:
    for call in (np.array_split, alight.array_split):
        with pytest.raises(TypeError, match="has no len"):
            call(6, 3)
    assert alight.expand_dims(6, 0).tolist() == [6] and alight.transpose(2.5).shape == ()


def test_a_total_has_no_methods_of_arrays(mode: str) -> None:
    def parted(x: Any) -> str:
        with pytest.raises(AttributeError, match="float64' object has no attribute 'partition'"):
            x.sum().partition(2)
        return str(x.sum().argsort().shape)

    assert parted(np.arange(6.0)) == alight.jit(parted)(np.arange(6.0))


def test_squeezing_nothing_gives_the_array_itself(mode: str) -> None:
    a, b = alight.arange(6.0).reshape(2, 3), alight.arange(6.0).reshape(2, 1, 3)
    assert a.squeeze() is a and alight.squeeze(a) is a and np.squeeze(a) is a
    assert b.squeeze() is not b and b.squeeze(1).shape == (2, 3)
    with pytest.raises(ValueError, match="not equal to one"):
        a.squeeze(0)


def both(function: Any, *args: Any) -> list[Any]:
    """Return what a function returns, plain and jitted, each time given new arguments."""
    return [run(function)(*[make() for make in args]) for run in (lambda f: f, alight.jit)]


def test_what_a_body_sets_is_set_for_the_caller(mode: str) -> None:
    def closed(x: Any, y: Any) -> None:
        x[::2] = y[1::2]
        x.sort()
        x.flags.writeable = False
        y.flags.writeable = False
        y.setflags(write=True)

    for run in (lambda f: f, alight.jit):
        x, y = np.arange(6.0), np.arange(6.0)
        run(closed)(x, y)
        assert (x.flags.writeable, y.flags.writeable) == (False, True)
        assert x.tolist() == [1.0, 1.0, 3.0, 3.0, 5.0, 5.0]


def test_nothing_is_written_into_a_scalar(mode: str) -> None:
    def into(x: Any, call: Any) -> Any:
        total = x.sum()
        with pytest.raises(
            TypeError, match=r"return arrays must be of|output must be an array"
        ) as no:
            call(x, total)
        return total, str(no.value)

    for call in (
        lambda x, total: np.remainder(total, 97, out=total),
        lambda x, total: np.add(x[0], 1, out=(total,)),
        lambda x, total: np.add.reduce(x, out=total),
    ):
        total, told = into(np.arange(6.0), call)
        assert alight.jit(into)(np.arange(6.0), call) == (total, told) and total == 15.0


class Shuffler:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def shuffled(self, x: Any) -> Any:
        self.random.shuffle(x)
        return x


RANDOM = np.random.default_rng(1)


def test_generators_of_numpys_own_write_into_arrays(mode: str) -> None:
    def rows(x: Any, by: Any) -> Any:
        return by.shuffled(x.reshape(4, 3)) * 2

    def filled(x: Any, random: Any) -> Any:
        mine = np.empty(4)
        random.standard_normal(out=mine)
        random.random(out=x)
        return random.permuted(x, out=x)[:4] + mine

    def of_a_global(x: Any) -> Any:
        RANDOM.random(out=x[:4])
        return x

    def drawn(x: Any, random: Any) -> Any:
        return np.add(x, random.random(12), out=x)

    def base() -> Any:
        return np.arange(12.0)

    for found in (
        both(rows, base, lambda: Shuffler(3)),
        both(filled, base, lambda: np.random.default_rng(2)),
        both(drawn, base, lambda: np.random.default_rng(2)),
    ):
        assert np.array_equal(*found)
    global RANDOM
    results = []
    for run in (lambda f: f, alight.jit):
        RANDOM = np.random.default_rng(1)
        results.append(run(of_a_global)(base()))
    assert np.array_equal(*results)
