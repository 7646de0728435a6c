"""Arrays as indices of ndarrays that are not ours: as NumPy's, or an error that says why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import alight

SHAPES = [(6,), (3, 4), (0,), (3, 0), (0, 3), (2, 3, 0)]
MASKS = [(6,), (3, 4), (3,), (2,), (0,), (3, 0), (0, 3), (), (2, 3, 0), (5, 0)]
KEYS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda key: key,
    "with a slice": lambda key: (key, slice(1)),
    "behind the rest": lambda key: (..., key),
    "behind a new axis": lambda key: (None, key),
}


def read(there: Any, key: Any) -> Any:
    return there[key]


def outcome(work: Callable[[], Any]) -> Any:
    try:
        found = work()
    except IndexError as error:
        return IndexError, str(error)
    return found.dtype, found.shape, found.tolist()


@pytest.mark.parametrize("dtype", ["?", "i8", "u1", "f8", "c16"])
@pytest.mark.parametrize("how", KEYS)
@pytest.mark.parametrize("floor", [0, None])
def test_reading_by_arrays_is_numpys_or_an_error(how: str, dtype: str, floor: Any) -> None:
    for shape in SHAPES:
        there = np.arange(float(math.prod(shape))).reshape(shape)
        for wanted in MASKS:
            key = (np.arange(math.prod(wanted)).reshape(wanted) % 2).astype(dtype)
            want = outcome(partial(read, there, KEYS[how](key)))
            with alight.policy(floor=floor):
                got = outcome(partial(read, there, KEYS[how](alight.asarray(key))))
            if got[0] is not IndexError:
                # An empty mask of one axis selects what it does as integers.
                mismatched = dtype == "?" and wanted == (0,) and want[0] is IndexError
                assert got == want or mismatched, (shape, wanted)
            elif want[0] is not IndexError:
                assert dtype == "?" and key.ndim > 1 and not key.size
                assert "Fix: make the mask an ndarray" in got[1] and str(wanted) in got[1]


def test_arrays_that_are_ours_are_masked_by_empty_ones() -> None:
    for shape in ((3, 0), (0, 3), (2, 3, 0), (0,)):
        plain = np.empty(shape)
        with alight.policy(floor=0):
            ours = alight.asarray(plain)
            for mask in (ours > 1, plain > 1):
                assert ours[mask].shape == plain[plain > 1].shape
                ours[mask] = 7.0
        assert np.asarray(ours > 1).shape == shape and np.array(ours.astype("?")).shape == shape
        assert np.asarray([ours > 1]).shape == (1, *shape)


def test_values_of_no_elements_are_assigned() -> None:
    there = np.ones((3, 0))
    with alight.policy(floor=0):
        there[...] = alight.asarray(np.empty((3, 0)))
        there[:, :0] = alight.asarray(np.empty((3, 0), "?"))


def test_a_jitted_body_that_masks_a_global_says_why_not() -> None:
    """Where a module imports packages, the border has what is masked get an ndarray."""
    names: dict[str, Any] = {"there": np.ones((3, 0))}
    exec("def masked(a):\n    return there[a > 1]\n", names)
    masked = alight.jit(names["masked"])
    with alight.policy(force="cpu:numpy", floor=0), pytest.raises(IndexError, match="Fix: make"):
        masked(np.ones((3, 0)))


class Tensor:
    """As those of packages are: it has `__index__`, and refuses it unless it is one integer."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __index__(self) -> int:
        if self.plain.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.plain.item())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.plain

    def __len__(self) -> int:
        return len(self.plain)

    def __getitem__(self, at: Any) -> Any:
        return self.plain[at]


@pytest.mark.parametrize(
    "key", [np.arange(6) % 2 == 0, np.array([1, 4, 2]), np.array(3), np.array([2])]
)
def test_tensors_of_packages_are_keys(key: Any) -> None:
    tensor = Tensor(key)
    for packed in (lambda: tensor, lambda: (tensor,)):
        plain, ours = np.arange(6.0), alight.arange(6.0)
        with alight.policy(floor=0, force="cpu:generated"):
            ours = ours * 1
            assert np.array_equal(ours[packed()], plain[packed()])
            ours[packed()] += 1
            plain[packed()] += 1
            assert np.array_equal(ours, plain)
