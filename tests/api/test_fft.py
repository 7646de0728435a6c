"""Fourier transforms: recorded, with NumPy's results, strides, errors and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.config.loading import policy
from alight._src.explain.dry_run import requests_of

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
OF_ONE: tuple[Mapping[str, Any], ...] = (
    *({}, {"n": 5}, {"n": 1}, {"n": 0}, {"n": 2.0}, {"n": np.int64(4)}, {"axis": 0}, {"axis": 9}),
    *({"norm": "ortho"}, {"norm": "none"}, {"n": 6, "axis": 0, "norm": "forward"}),
)
OF_SEVERAL: tuple[Mapping[str, Any], ...] = (
    *({}, {"axes": (0,)}, {"axes": (0, 0)}, {"s": (4, 4)}, {"axes": (1, 0)}, {"norm": "ortho"}),
    *({"axes": [0, 1]}, {"axes": ()}),
)
WAYS: tuple[Callable[[Any], Any], ...] = (
    lambda a: a,
    lambda a: a.T,
    lambda a: a[::-1],
    lambda a: np.broadcast_to(a, (2, *a.shape)),
)


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """Return what a call gives or raises, bit by bit, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = np.asarray(call())
            told: tuple[Any, ...] = (found.dtype, found.shape, found.strides, found.tobytes())
        except Exception as error:
            told = type(error), str(error)
    # what several transforms in a row say is said once
    return *told, list(dict.fromkeys(str(warning.message) for warning in caught))


@pytest.fixture(autouse=True)
def everything_recorded() -> Iterator[None]:
    with policy(floor=0):
        yield


@pytest.mark.parametrize("name", (*ONE, *SEVERAL))
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
def test_results_of_transforms_are_numpys(name: str, dtype: str) -> None:
    function = getattr(np.fft, name)
    rng = np.random.default_rng(5)
    for shape in ((8,), (7,), (1,), (3, 4), (1, 5), (2, 3, 4)):
        array = (9 * rng.standard_normal((2, *shape)))[0].astype(dtype)
        for kwargs in OF_ONE if name in ONE else OF_SEVERAL:
            for way in WAYS:
                wanted = outcome(lambda: function(way(array), **kwargs))  # noqa: B023
                found = outcome(lambda: function(way(alight.asarray(array)), **kwargs))  # noqa: B023
                assert found == wanted, (shape, kwargs)


def test_lengths_and_axes_by_place_are_numpys() -> None:
    array = np.arange(12.0).reshape(3, 4)
    for args in ((5,), (5, 0), (None, 0, "ortho")):
        assert outcome(lambda: np.fft.rfft(alight.asarray(array), *args)) == outcome(  # noqa: B023
            lambda: np.fft.rfft(array, *args)  # noqa: B023
        )
    for args in (((2, 2),), (None, (1, 0))):
        assert outcome(lambda: np.fft.fft2(alight.asarray(array), *args)) == outcome(  # noqa: B023
            lambda: np.fft.fft2(array, *args)  # noqa: B023
        )


def test_a_filter_is_one_request() -> None:
    signal, weights = np.linspace(-1.0, 1.0, 4096), np.linspace(1.0, 0.0, 2049)

    def body(signal: Any, weights: Any) -> Any:
        return np.fft.irfft(np.fft.rfft(signal) * weights, signal.shape[0])

    (request,) = requests_of(body, (signal, weights), {})
    assert [node.op.name for node in request.graph.nodes if node.op.name.startswith("fft.")] == [
        "fft.rfft",
        "fft.irfft",
    ]


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "ifft", "fft2", "irfftn"])
def test_warnings_of_transforms_are_numpys(name: str) -> None:
    function = getattr(np.fft, name)
    array = np.full((4, 7), 1e308)
    assert outcome(lambda: function(alight.asarray(array))) == outcome(lambda: function(array))
    with np.errstate(all="ignore"):
        assert outcome(lambda: function(alight.asarray(array))) == outcome(lambda: function(array))


def test_results_go_where_they_are_told_to() -> None:
    array = np.arange(8.0)
    for dtype in ("complex128", "complex64", "float64"):
        ours, theirs = alight.zeros(8, dtype), np.zeros(8, dtype)
        wanted = outcome(lambda: np.fft.fft(array, out=theirs))  # noqa: B023
        found = outcome(lambda: np.fft.fft(alight.asarray(array), out=ours))  # noqa: B023
        assert found == wanted and np.asarray(ours).tobytes() == theirs.tobytes()
