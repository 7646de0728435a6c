"""Durations and sizes as alight prints them."""

from __future__ import annotations

import pytest

from alight._src.base.formatting import readable_bytes, readable_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (0.0, "0 ns"),
        (4e-10, "0.4 ns"),
        (9.994e-7, "999 ns"),
        (9.996e-7, "1 µs"),
        (1.234e-5, "12.3 µs"),
        (-2e-6, "-2 µs"),
        (9.9996e-4, "1 ms"),
        (1.0, "1 s"),
        (21.04, "21 s"),
        (999.4, "999 s"),
        (12345.6, "12,346 s"),
    ],
)
def test_durations_have_three_digits_and_a_fitting_unit(seconds: float | None, text: str) -> None:
    assert readable_seconds(seconds) == text


def test_sizes_have_a_fitting_unit() -> None:
    sizes = (512, 1536, 3 << 20, 5 << 29)
    assert [*map(readable_bytes, sizes)] == ["512 bytes", "1.5 KiB", "3.0 MiB", "2.5 GiB"]
