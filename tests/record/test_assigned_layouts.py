"""Shape, strides and dtype of an array that are assigned: what NumPy does, in its words."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight


@pytest.mark.parametrize("least", [0, 100])
def test_a_dtype_is_assigned_in_place(least: int) -> None:
    seen: list[Any] = []
    for module in (np, alight):
        with alight.policy(floor=least):
            a = module.arange(6.0) + 1
            before, every = a[::2], module.arange(24.0).reshape(4, 6)[:, ::2]
            a.dtype = "i4"
            a[5] = 0
            seen.append([a.dtype, a.shape, a.strides, a.tolist(), before.dtype, before.tolist()])
            a.dtype, every.dtype = float, "u8"
            seen[-1] += [a.dtype, a.tolist(), every.dtype, every.strides, every.tolist()]
            with pytest.raises(ValueError, match="last axis must be contiguous") as caught:
                every.dtype = "i4"
            seen[-1] += [str(caught.value), every.dtype]
    assert seen[0] == seen[1]


# NumPy 2.4 deprecates the assignment of strides; what is installed decides what is to be said.
def assigned(array: Any, name: str, given: Any) -> list[Any]:
    """Return what an assignment leaves behind: errors, warnings with their file, the elements."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            setattr(array, name, given)
            error = None
        except Exception as raised:
            error = (type(raised), str(raised))
    said = [(w.category, str(w.message), Path(w.filename) == Path(__file__)) for w in caught]
    return [error, said, array.shape, array.strides, array.dtype, array.flags.writeable]


STRIDES = [(16,), [8], 8, (4,), (0,), (-8,), (24,), (8, 8), None, "text"]


@pytest.mark.parametrize("least", [0, 100])
@pytest.mark.parametrize("given", STRIDES, ids=str)
@pytest.mark.parametrize("key", [slice(6), slice(None), slice(None, None, -2), slice(3, 5)])
def test_strides_are_assigned_as_numpy_does(least: int, given: Any, key: slice) -> None:
    seen = []
    for module in (np, alight):
        with alight.policy(floor=least):
            whole = module.arange(12.0) + 1
            a = whole[key]
            made = assigned(a, "strides", given)
            elements = a.tolist()
            a[1:3] = -1
            seen.append([*made, elements, a.tolist(), whole.tolist()])
    assert seen[0] == seen[1]
    if isinstance(given, tuple) and given == (8,):
        assert seen[1][0] is None or key.step == -2


def test_strides_of_pending_arrays_are_assigned_before_anything_is_computed() -> None:
    with alight.policy(floor=0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = (alight.arange(12.0) * 2)[:6]
        a.strides = (16,)
        assert a.storage.value.op is not None
        assert a.tolist() == [0, 4, 8, 12, 16, 20]


@pytest.mark.parametrize("given", [(4, 3), -1, (5,), (2, 2, -1), 12, "text"], ids=str)
def test_a_shape_is_assigned_as_numpy_does(given: Any) -> None:
    seen = []
    for module in (np, alight):
        for a in (module.arange(12), module.arange(24)[::2], module.arange(12).reshape(3, 4).T):
            seen.append([*assigned(a, "shape", given), a.tolist()])
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


# What an array of such a dtype is asked for. Its elements are NumPy's, views share its memory.
ASKED = {
    "M8[s]": ["a + np.timedelta64(1, 's')", "a.astype('i8') + 1", "a.view('i8')", "a.max()"],
    "S8": ["a == b'abc'", "a.astype('S30')"],
    "V8": ["a.tobytes()"],
    "g": ["a * 2", "-a", "a + np.arange(len(a))", "np.where(a == a, a, 0)"],
    "i8,i8": ["a['f0'] + 1", "a[['f1', 'f0']]", "a[0]['f1']", "np.sort(a, order='f1')"],
}
EVERY = [
    *(
        "repr(a)",
        "a[0]",
        "a[1:3]",
        "a[a == a[1]]",
        "a == a",
        "list(a)",
        "a.tolist()",
        "np.array(a)",
    ),
    *(
        "a.copy()[::2]",
        "a.flatten()",
        "a.reshape(2, -1)",
        "a.reshape(2, -1).T.ravel()",
        "a[[1, 0]]",
    ),
    *("np.concatenate([a, a])", "np.asarray(a)", "np.unique(a)", "a.argsort()", "np.zeros_like(a)"),
    *("copy(a)", "a.__setitem__(0, a[1])", "a.__setitem__(slice(0, 2), a[2:4])", "a.nonzero()"),
]


@pytest.mark.parametrize("policy", [{"floor": 0}, {"floor": 100}, {"force": "cpu:generated"}])
@pytest.mark.parametrize("dtype", ASKED)
def test_dtypes_that_alight_does_not_compute_with_are_numpys(dtype: str, policy: Any) -> None:
    def ask(module: Any, expression: str) -> list[Any]:
        @alight.jit
        def copied(array: Any) -> Any:
            return array[::2].copy()

        with alight.policy(**policy):
            array = module.arange(12, dtype="f4" if dtype != "g" else "f8").repeat(4)
            assert assigned(array, "dtype", dtype)[0] is None
            names = {"a": array, "np": np, "copy": copied if module is alight else lambda x: x[::2]}
            made = eval(expression, names)
            return [type(made) if np.isscalar(made) else None, repr(made), repr(array)]

    for expression in (*EVERY, *ASKED[dtype]):
        assert ask(alight, expression) == ask(np, expression), expression


def test_a_record_of_an_array_is_a_window_on_it() -> None:
    a = alight.arange(6)
    a.dtype = "i8, i8"
    a["f1"][0] = 7
    a[1]["f0"] = 8
    assert a.tolist() == [(0, 7), (8, 3), (4, 5)]


def test_a_dtype_of_references_is_refused_in_numpys_words() -> None:
    made = [assigned(module.arange(6), "dtype", object) for module in (np, alight)]
    assert made[0] == made[1]
    assert made[0][0] is not None


@pytest.mark.parametrize("name", ["sort", "argsort", "partition", "roll"])
@pytest.mark.parametrize("shape", [(3, 2, 1, 2), (3, 1, 1), (1, 3, 1, 1)])
def test_axes_of_length_one_beside_repeated_ones_lie_as_in_numpy(
    name: str, shape: tuple[int, ...]
) -> None:
    """Recorded results of arrays that repeat along an axis, which NumPy copies in K order."""
    seen: list[Any] = []
    for module in (np, alight):
        base = module.arange(4).reshape(2, 2).T if shape[-1] > 1 else module.arange(1)
        with alight.policy(floor=0, force="cpu:generated"):
            array = module.broadcast_to(base[:, None, :] if base.ndim > 1 else base, shape)
            further = {"kth": 0} if name == "partition" else {"shift": 1} if name == "roll" else {}
            seen.append([array.strides, getattr(module, name)(array, axis=-1, **further).strides])
    assert seen[0] == seen[1]
