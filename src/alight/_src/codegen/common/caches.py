"""What this machine's caches hold."""

from __future__ import annotations

import os
from functools import cache

from alight._src.base.failures import ignoring_failures

_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@cache
def last_level_bytes() -> int:
    """Return the bytes of the largest cache, or 0 where the system does not tell."""
    found = [0]
    with ignoring_failures(OSError):
        for name in os.listdir(_CACHES):
            # what one of them does not tell is not told
            with ignoring_failures(OSError, ValueError, KeyError, IndexError):
                with open(os.path.join(_CACHES, name, "size"), encoding="utf-8") as stream:
                    text = stream.read().strip()
                found.append(int(text[:-1]) * _UNITS[text[-1]])
    return max(found)
