"""How much is measured of what: bytes at the knots of curves, elements of probes, sides of
products; and in which dtypes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from alight._src.plan.occupancy import PROCESSOR_THREADS

if TYPE_CHECKING:
    from alight.device import Device

# Bytes of an array at the knots of a curve, in the order in which they are measured: the ends and
# the middle first, so that a curve that has to stop early still spans the sizes. From a few
# elements, where the call is all, to 16 MB, three of which pass the caches of most machines. What
# is read alone has a knot for each level of caches, too: between 32 kB and 1 MB, where there was
# none, maxima of 480 kB took two thirds of what was predicted (1 MB second level, EPYC). Where
# a last cache ends seconds double within a third more bytes (32 MB of it: 0.4 ms for 25 MB in all,
# 1.0 to 1.4 for 50), so knots lie closer there.
KNOTS = (*(1 << i for i in (7, 24, 15, 20, 22, 11, 18, 13, 23)), *(n << 20 for n in (6, 10, 13)))
FEW_KNOTS = tuple(1 << i for i in (7, 24, 15, 20, 22, 18, 23))
# Two threads have two caches of the second level, four four: what they read has a knot for both.
# Where there is time for one size of a class only: past the call, and no millisecond on a host. It
# is a knot of all of them.
COARSE_BYTES = 1 << 20
REDUCTION_KNOTS = (*FEW_KNOTS, 1 << 21)
FAR_KNOTS = tuple(1 << i for i in (20, 22, 23, 24))
# Past the caches, of sums that round: what a library computes for them differs with the dtype.
SUMMED_BYTES = 1 << 23
# Of the other dtypes: past the caches all move bytes alike, so the main dtype's knots go on.
OTHER_KNOTS = tuple(1 << i for i in (7, 20, 15, 18))
# A sort of 2**18 elements takes 20 ms on a host; where sorts are 200 times as quick, one of eight
# times as many is needed to see more than calls (H200: 0.14 ms and 0.3).
LIBRARY_KNOTS = tuple(1 << i for i in (7, 21, 13, 17))
MOST_BYTES = max(KNOTS)
# Probes of overlap have this many times the elements of those of arithmetic, if there is room:
# on a host that is past the second-level cache.
LARGE = 64
# Elements of the probes of arithmetic. On a host, three arrays of float64 (96 kB) are near the
# first-level cache, so that memory hides least. A device with thousands of lanes shows nothing at
# that size: it gets as many as half of its largest probe of memory has, and 32 for each thread that
# it has room for, or what the host takes to submit a kernel (9 us, where an H200 adds 2**20 float64
# in 6) would be all there is to see.
HOST_ELEMENTS = 8192
DEVICE_ELEMENTS = 1 << 20
_EACH_THREAD = 32
# Elements that one block of threads goes through alone: some tens of us of arithmetic.
LONE_ELEMENTS = 1 << 16
# Of rows that are reduced each by some threads of a device.
REDUCED_ROW = 512
# Elements that share their work among threads: from what none can to what all must.
SHARED_ELEMENTS = tuple(1 << i for i in (9, 19, 14, 16, 12, 11))
# Elements of bodies with special functions that share their work: what they compute takes three
# times as long as what they move, and no cache has to give it to another.
SHARED_BODIES = 1 << 17
# As many times a chain's operations, where these hide (`hides`): an H200 takes 59 us for the memory
# of 2**23 float64 and 12 for 24 operations on each.
MANY = 8
APART = 3  # elements from one to the next where they lie apart: no two in one vector's load
LEAST_COLUMNS = 1 << 12  # bytes of few such rows
FEW_ROWS = 4  # whose results are a part of what is reduced that can be told from it
COMBINED_ROWS = 8  # each of which all threads reduce a part of
VITAL = 3  # knots without which there is no curve
FEW = 64  # elements that take no time beside the call


# Products: sides from 8 to 2048, no more than half a second of them at 10 GFLOP/s; 64 of a dtype
# were as good as 256 (11.6 % either way, measured with one thread). In every fourth one side is
# long and the others are short, as of many points and few centres: without any such, products of
# 16 x 65536 x 4 were predicted to take BLAS a thirteenth of what they did (float64, 16 processors).
PRODUCTS, FEW_PRODUCTS = 72, 18
_SIDES = (3.0, 11.0)
_LONG_EVERY, _LONG_SIDE, _SHORT_SIDES = 4, (11.0, 17.0), (1.0, 6.0)
# Logarithms of their multiplications; every eighth may have eight times as many.
_MOST_MULTIPLICATIONS = {"f": 23.5, "c": 21.0, "i": 20.5}
# Of generated code, each way that the two can lie, as few as make a surface: of more
# multiplications a library with loops of its own for them is always quicker, and integers take as
# long for each.
REDUCED_PRODUCTS, MOST_REDUCED = 12, 20.0  # no fewer than gemm_fit.LEAST
# Of the largest that a host is asked for: where all threads have enough to do. From smaller ones
# 1024 x 1024 was predicted to take 16 of them five times as long as it did.
HOST_SIDE = 512


def compute_elements(device: Device) -> int:
    """Return how many elements probes of arithmetic have."""
    if device.space == "host":
        return HOST_ELEMENTS
    room = int(device.limits.get("processors", 0)) * PROCESSOR_THREADS * _EACH_THREAD
    return max(DEVICE_ELEMENTS, 1 << max(room.bit_length() - 1, 0))


def hides(device: Device) -> bool:
    """Tell whether a device has so many threads that, of memory and arithmetic, the shorter hides
    behind the longer (H200: 183 operations on 2**24 float32 took 102 us, as long as they and a
    launch; the memory alone would have taken 46)."""
    return device.space != "host" and device.limits.get("processors", 0) > 0


def most_bytes(device: Device) -> int:
    """Return the bytes of the largest array that a probe of a device reads: of complex numbers."""
    return max(MOST_BYTES, 16 * compute_elements(device))


def dtypes_of(device: Device) -> list[str]:
    """Return the dtypes measured of a device: those that it has, the most used first."""
    known = device.support.dtypes
    wanted = ("float64", "float32", "int64", "int32", "complex128", "complex64")
    found = [dtype for dtype in wanted if not known or dtype in known]
    # Two of one kind tell each other by their widths.
    for wide, narrow in (("int64", "int32"), ("complex128", "complex64")):
        if wide in found and narrow in found:
            found.remove(narrow)
    return found


def main_dtype(device: Device) -> str:
    """Return the float type that is measured most closely: the one NumPy makes, if it is there."""
    return next(iter(dtypes_of(device)), "float64")


def sides(dtype: str, count: int, most: float | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield m, k, n of products, evenly spread over logarithms; ``most``: the logarithm to base 2
    of their multiplications."""
    most = _MOST_MULTIPLICATIONS[np.dtype(dtype).kind] if most is None else most
    room = math.log2(MOST_BYTES // np.dtype(dtype).itemsize)
    number = made = 0
    while made < count:
        number += 1
        # Steps by powers of the root of x⁴ = x + 1: any number of points is evenly spread.
        place = [(0.5 + number * _STEP**-i) % 1 for i in (1, 2, 3)]
        ranges = [_SIDES] * 3
        turn, last = divmod(made, _LONG_EVERY)
        if last == _LONG_EVERY - 1:
            ranges = [_LONG_SIDE if side == turn % 3 else _SHORT_SIDES for side in range(3)]
        sides = [
            low + (high - low) * share for (low, high), share in zip(ranges, place, strict=True)
        ]
        largest = sum(sides) - min(sides)
        if sum(sides) <= most + 3 * (made % 8 == 0) and largest <= room:
            made += 1
            m, k, n = (round(2**side) for side in sides)
            yield m, k, n


_STEP = 1.22074408460575947536
