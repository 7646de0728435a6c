"""Constants of graphs: their bytes on the host, and their bits."""

from __future__ import annotations

import sys

from alight._core import Data, Layout, Value
from alight._src.base.originals import np

__all__ = ["bits", "constant"]

# Constants on devices: their copies serve every launch that reads the same one.
_constants: dict[tuple[Layout, bytes], Data] = {}
_CONSTANT_BYTES, _CONSTANTS = 16, 1 << 12  # the largest scalar; some 2 MB of them


def constant(value: Value) -> Data:
    """Return the bytes of a constant."""
    array = np.asarray(value.attrs)
    if array.nbytes > _CONSTANT_BYTES:
        return Data(value.layout, array)
    key = value.layout, array.tobytes()
    found = _constants.get(key)
    if found is None:
        if len(_constants) >= _CONSTANTS:
            _constants.clear()
        found = _constants[key] = Data(value.layout, array)
        found.fixed = True
    return found


def bits(value: Value) -> int:
    """Return the bits of a constant as a number."""
    return int.from_bytes(np.asarray(value.attrs).tobytes(), sys.byteorder)
