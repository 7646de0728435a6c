"""Durations and sizes in words, as all that alight prints has them."""

from __future__ import annotations

__all__ = ["readable_bytes", "readable_seconds"]


def readable_seconds(value: float | None) -> str:
    """Return seconds with three digits in a fitting unit."""
    if value is None:
        return "unknown"
    if abs(value) >= 999.5:
        return f"{value:,.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= 0.9995 * size:  # three digits of it make one
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def readable_bytes(value: int) -> str:
    """Return bytes in a fitting unit."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} bytes"
