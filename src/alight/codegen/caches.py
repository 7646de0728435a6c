"""What this machine's caches hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@cache
def last_level_bytes() -> int:
    """Return the bytes of the largest cache, or 0 where the system does not tell."""
    found = [0]
    for path in _CACHES.glob("index*/size"):
        try:
            text = path.read_text().strip()
            found.append(int(text[:-1]) * _UNITS[text[-1]])
        except (OSError, ValueError, KeyError, IndexError):
            continue  # not told
    return max(found)
