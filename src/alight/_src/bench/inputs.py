"""What the programs are given: arrays drawn from one seed, the same in every process."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Floats = np.ndarray[Any, Any]
Arrays = tuple[Floats, ...]
Inputs = Callable[[int, np.dtype[Any], np.random.Generator], Arrays]

SEED = 20


# What a call takes depends on where its arrays begin: inner products of 2^14 float32 took 1.12 us
# in one process of NumPy and 1.24 in another, in each of four runs, as their mallocs had it (EPYC).
# So arrays begin at one place of a page for every peer, where malloc puts those it maps pages for.
_PAGE, _PLACE = 4096, 16


def placed(arrays: Arrays) -> Arrays:
    """Return copies of arrays that begin at the same place of a page in every process."""
    return tuple(_placed(array) for array in arrays)


def _placed(array: Floats) -> Floats:
    memory = np.empty(array.nbytes + _PAGE, np.uint8)
    start = (_PLACE - memory.ctypes.data) % _PAGE
    copied = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def between(low: float, high: float, count: int = 1) -> Inputs:
    """Return what draws ``count`` vectors between two numbers."""

    def make(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
        return tuple(_uniform(rng, dtype, (n,), low, high) for _ in range(count))

    return make


def _uniform(
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    low: float = 0.0,
    high: float = 1.0,
) -> Floats:
    drawn: Floats = rng.random(shape, dtype=dtype.type)
    drawn *= high - low
    drawn += low
    return drawn


def market(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return prices, strikes and years."""
    return (
        _uniform(rng, dtype, (n,), 10.0, 50.0),
        _uniform(rng, dtype, (n,), 10.0, 50.0),
        _uniform(rng, dtype, (n,), 0.2, 2.0),
    )


def line(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return 0 to 4π in even steps."""
    return (np.linspace(0.0, 4.0 * math.pi, n, dtype=dtype),)


# 4K, as published, from where one image fits; below that four small ones of the same shape.
_HEIGHT, _WIDTH = 2160, 3840


def images(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return 4K images where one fits, else four small ones of about the same shape."""
    if n >= _HEIGHT * _WIDTH:
        return (_uniform(rng, dtype, (n // (_HEIGHT * _WIDTH), _HEIGHT, _WIDTH)),)
    height = max(1, math.isqrt(n * 9 // 64))
    return (_uniform(rng, dtype, (4, height, n // (4 * height))),)


# Of the published 256: time grows with the steps and nothing else does.
STEPS = 16


def draws(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return steps x paths of normal draws."""
    return (rng.standard_normal((STEPS, n // STEPS), dtype=dtype.type),)


_ROW = 512


def rows(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return rows of 512."""
    return (_uniform(rng, dtype, (n // _ROW, _ROW), -4.0, 4.0),)


def layer(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return rows, and a gain and a bias for each column."""
    given = rows(n, dtype, rng)[0]
    return (
        given,
        _uniform(rng, dtype, (_ROW,), 0.5, 1.5),
        _uniform(rng, dtype, (_ROW,), -1.0, 1.0),
    )


def two_clouds(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return points in space, twice."""
    side = math.isqrt(n)
    return (_uniform(rng, dtype, (side, 3)), _uniform(rng, dtype, (n // side, 3)))


def bodies(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return x, y, z and mass of bodies."""
    return tuple(_uniform(rng, dtype, (math.isqrt(n),), 0.0, 1.0) for _ in range(4))


CENTRES = 8


def clusters(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return points in the plane, and centres to start from."""
    # Clusters far apart: no point is so near a border that a last bit decides its label.
    centres = np.array([(x, y) for x in range(4) for y in range(2)], dtype=dtype)
    points = _uniform(rng, dtype, (n // CENTRES, 2), -0.3, 0.3)
    points += centres[rng.integers(CENTRES, size=n // CENTRES)]
    return points, centres + dtype.type(0.1)


def grid(count: int) -> Inputs:
    """Return what draws ``count`` square matrices."""

    def make(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
        side = math.isqrt(n)
        return tuple(_uniform(rng, dtype, (side, n // side)) for _ in range(count))

    return make


def sea(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return salinity, temperature and pressure."""
    salt = _uniform(rng, dtype, (n,), 30.0, 40.0)
    celsius = _uniform(rng, dtype, (n,), 0.0, 30.0)
    return salt, celsius, _uniform(rng, dtype, (n,), 0.0, 1000.0)


FEATURES = 64


def table(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return observations of 64 features."""
    return (_uniform(rng, dtype, (n // FEATURES, FEATURES), 0.0, 1.0),)


def symmetric(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return a symmetric matrix and a vector."""
    side = math.isqrt(n)
    matrix = _uniform(rng, dtype, (side, side))
    return matrix + matrix.T, _uniform(rng, dtype, (side,), 0.5, 1.0)


def signal(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Arrays:
    """Return a signal and the weights of its spectrum."""
    response = np.exp(-np.linspace(0.0, 8.0, n // 2 + 1)).astype(dtype)
    return _uniform(rng, dtype, (n,), -1.0, 1.0), response
