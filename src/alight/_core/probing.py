"""Arrays that NumPy is asked about in the place of others: they have a layout, and no elements.

Behind them lies memory that can be read and not written, as far as the layout reaches: NumPy does
not say which of its ways copy (setting a shape does, before it fails), and a copy must not read
past its end. Pages that nobody reads take address space, and nothing else.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

from alight._src.base.failures import failures
from alight._src.base.originals import np

__all__ = ["memory", "probe"]

# Bytes of the first ground, and between a probe's place there and an element's: so long a line of
# a cache is, and no dtype is aligned to more.
_LEAST = mmap.ALLOCATIONGRANULARITY
_LINE = 64

_ground = np.zeros(_LEAST, np.uint8)
_ground.flags.writeable = False


def memory(nbytes: int) -> np.ndarray[Any, Any]:
    """Return so many readable bytes, all of them zero.

    Where the process may not have the address space, all but the first are none: nothing that
    copies is asked of probes on purpose.
    """
    global _ground
    if _ground.nbytes < nbytes:
        try:
            # In eighths of a power of two: however many layouts there are, few grounds are made.
            step = 1 << max(0, nbytes.bit_length() - 4)
            _ground = _mapped(-(-nbytes // step) * step)
        except failures(OSError, OverflowError, ValueError):
            return np.lib.stride_tricks.as_strided(_ground[:1], (nbytes,), (1,), writeable=False)
    return _ground[:nbytes]


def _mapped(nbytes: int) -> np.ndarray[Any, Any]:
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, nbytes, access=mmap.ACCESS_READ), np.uint8)
    # What cannot be written is not counted as memory that the system has promised.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags, mmap.PROT_READ), np.uint8)


def probe(
    dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return an array of this layout that has no elements: index or transpose it, never read it."""
    if not dtype.itemsize or dtype.hasobject:  # neither can be had over a buffer
        first = np.zeros(1, np.uint8).view(dtype) if not dtype.itemsize else np.zeros(1, dtype)
        return np.lib.stride_tricks.as_strided(first, shape, strides)
    low = high = 0
    if 0 not in shape:
        for n, step in zip(shape, strides, strict=True):
            reach = (n - 1) * step
            low, high = low + min(reach, 0), high + max(reach, 0)
    before = -(low // _LINE) * _LINE
    span = memory(before + high + dtype.itemsize)
    first = span[before : before + dtype.itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)
