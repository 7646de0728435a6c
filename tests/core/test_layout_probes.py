"""What NumPy is asked about in the place of arrays: never more than there is can be read of it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alight
from alight._core import probing

SEED = 20260
BIG = 300_000


def _layouts(seed: int, count: int) -> list[np.ndarray[Any, Any]]:
    """Return ndarrays of random layouts: slices, transposes, broadcasts, fields, other dtypes."""
    draw = random.Random(seed)
    found: list[np.ndarray[Any, Any]] = []
    while len(found) < count:
        ndim = draw.randint(0, 4)
        shape = tuple([draw.choice((0, 1, 1, 2, 3, 5, 8)) for _ in range(ndim)])
        dtype = np.dtype(draw.choice(("?", "i1", "u2", "f4", "f8", "c8", "c16", "f2", "i8")))
        array = np.zeros(shape, dtype, draw.choice("CF"))
        for _ in range(draw.randint(0, 3)):
            way = draw.randint(0, 4)
            if way == 0 and array.ndim:
                step = tuple([draw.choice((1, 1, -1, 2, -2)) for _ in array.shape])
                array = array[tuple([slice(None, None, s) for s in step])]
            elif way == 1:
                array = array.transpose(draw.sample(range(array.ndim), array.ndim))
            elif way == 2 and array.ndim < 4:
                array = np.broadcast_to(array, (draw.choice((1, 2, 4)), *array.shape))
            elif way == 3 and array.dtype.kind == "c":
                array = array.imag
            elif way == 4 and array.ndim < 4:
                array = array[..., None]
        found.append(array)
    return found


def test_probes_have_the_layout_and_all_of_it_can_be_read(core: Any) -> None:
    print("seed", SEED)
    for array in _layouts(SEED, 400):
        probe = core.layout_of(array).probe
        assert (probe.dtype, probe.shape, probe.strides) == (
            array.dtype,
            array.shape,
            array.strides,
        )
        assert probe.flags.num & 0x103 == array.flags.num & 0x103
        assert not probe.flags.writeable
        assert not probe.copy().any()


@pytest.mark.parametrize("dtype", ["V0", "S0", "O", "U3", "M8[s]", "i4,f8"])
def test_dtypes_that_alight_does_not_compute_with_have_probes_too(core: Any, dtype: str) -> None:
    array = np.zeros((3, 2), dtype).T
    probe = core.layout_of(array).probe
    assert (probe.shape, probe.strides) == (array.shape, array.strides)
    assert probe.dtype == array.dtype or not array.itemsize


def test_what_is_no_view_of_the_probe_is_refused(core: Any) -> None:
    array = core.ArrayBase.of(core.Value(None, (), (), core.make_layout(np.dtype("f8"), (4, 6))))
    probe = array.storage.value.layout.probe
    made = core.view_of(core.ArrayBase, array, probe[1:, ::2].T, probe)
    assert made.window.offset == 48
    for window in (probe.copy(), np.zeros((4, 6)), probe.T.reshape(-1)):
        with pytest.raises(RuntimeError, match="copy"):
            core.view_of(core.ArrayBase, array, window, probe)


def test_memory_grows_and_stays_readable() -> None:
    few, many = probing.memory(10), probing.memory(1 << 28)
    assert many.nbytes == 1 << 28
    assert not few.any() and not many[:: 1 << 20].any()
    with pytest.raises(ValueError, match="read-only"):
        many[0] = 1


def test_little_more_is_taken_of_the_addresses_than_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    taken = probing._mapped
    monkeypatch.setattr(probing, "_ground", probing._ground[:1])
    monkeypatch.setattr(probing, "_mapped", lambda n: (asked.append(n), taken(n))[1])
    for nbytes in range(100_000, 20_000_000, 9_973):
        probing.memory(nbytes)
        assert asked[-1] <= nbytes * 9 // 8 + 1, nbytes
    assert len(asked) < 8 * 8 + 2  # few, however many sizes there are


def _small(ndim: int, turned: bool) -> np.ndarray[Any, Any]:
    shape = (BIG,) if ndim == 1 else (1500, BIG // 1500)
    made = np.arange(BIG, dtype="f8").reshape(shape)
    return made.T if turned else made


_SET: list[Callable[[Any], Any]] = [
    lambda x: setattr(x, "shape", (x.size,)),
    lambda x: setattr(x, "shape", (-1,)),
    lambda x: setattr(x, "shape", x.size),
    lambda x: setattr(x, "shape", (1000, x.size // 1000)),
    lambda x: setattr(x, "shape", (7, -1)),
    lambda x: setattr(x, "shape", (x.size, 1, 1)),
    lambda x: setattr(x, "shape", (-1, -1)),
    lambda x: setattr(x, "shape", "ab"),
    lambda x: setattr(x, "shape", ()),
    lambda x: setattr(x[::-1], "shape", (x.size,)),
    lambda x: setattr(x[::2], "shape", (-1,)),
    lambda x: setattr(x, "dtype", "f4"),
    lambda x: setattr(x, "dtype", "c16"),
    lambda x: setattr(x, "dtype", "V3"),
    lambda x: setattr(x, "strides", x.strides[::-1]),
    lambda x: setattr(x, "strides", (8,)),
    lambda x: setattr(x, "strides", (1 << 40,) * x.ndim),
    lambda x: x.reshape(-1, copy=False),
    lambda x: x.reshape((1000, -1), copy=False),
    lambda x: x.reshape((1000, -1), order="F", copy=False),
    lambda x: x.reshape(7, -1),
    lambda x: x.reshape(-1, order="F")[:9],
    lambda x: x.reshape(-1, order="A")[:9],
    lambda x: x.reshape(1000, -1)[:2, :3],
    lambda x: x.ravel("K")[:9],
    lambda x: x.ravel("F")[:9],
    lambda x: x.ravel("A")[:9],
    lambda x: x.flatten("K")[:9],
    lambda x: x.flatten("F")[:9],
    lambda x: x.view("f4")[..., :3].shape,
    lambda x: x.view("c16").shape,
    lambda x: x.copy("A").strides,
    lambda x: x.copy("F").strides,
    lambda x: x.astype("f4", order="K").strides,
    lambda x: x.flat[5:9],
    lambda x: np.array(x, copy=False).strides,
    lambda x: np.array(x, order="F", copy=False).strides,
    lambda x: np.array(x, dtype="f4", copy=False).strides,
    lambda x: np.lib.stride_tricks.as_strided(x, (3, 2), (8, 8)),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=0)[:2],
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=0).reshape(-1)[:3],
    lambda x: np.broadcast_to(x, (2, *x.shape)).reshape(-1)[:3],
    lambda x: [p[0] for p in np.meshgrid(x, x[:2], copy=False)] if x.ndim == 1 else 0,
    lambda x: np.atleast_3d(x).shape,
    lambda x: [p.strides for p in np.split(x, 2)],
    lambda x: np.split(x, 7),
    lambda x: np.rot90(x, 3).strides,
    lambda x: np.moveaxis(x, 0, -1).strides,
    lambda x: np.result_type(x, 1.0),
    lambda x: np.can_cast(x, "f4"),
]


@pytest.mark.usefixtures("small_is_small")
@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")  # from NumPy 2.4 on
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("ndim", [1, 2])
@pytest.mark.parametrize("number", range(len(_SET)))
def test_views_of_what_is_large_are_numpys(
    number: int, ndim: int, turned: bool, pending: bool
) -> None:
    def outcome(array: Any) -> Any:
        try:
            found = _SET[number](array)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        return found, array.shape, array.strides, array.dtype

    theirs = _small(ndim, turned)
    ours = alight.asarray(_small(ndim, turned))
    if pending:
        ours = ours + 0.0
    expected, found = outcome(theirs), outcome(ours)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_equal(np.asarray(other) if hasattr(other, "dtype") else other, one)


_LIMITED = """
import resource
import numpy
import alight as np
def in_use():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
x = np.ones((20_000, 1000)).T
y = (x * 2).T
numpy.asarray(y)
resource.setrlimit(resource.RLIMIT_AS, (in_use() + (64 << 20),) * 2)
for shape in ((-1,), (4000, 5000)):
    try:
        x.shape = shape
    except AttributeError as error:
        print(error)
assert x[::-1, 5:].T[3:].shape == (19992, 1000), x[::-1, 5:].T[3:].shape
z = x.T
z.shape = (-1,)
print(z.shape, float(x[3, 5]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space as Linux has it")
def test_a_process_without_address_space_left_is_served() -> None:
    made = subprocess.run(
        [sys.executable, "-c", _LIMITED], capture_output=True, text=True, timeout=120
    )
    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert len(lines) == 3 and all("Incompatible shape" in line for line in lines[:2])
    assert lines[2] == "(20000000,) 1.0"
