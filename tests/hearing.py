"""Warnings of work that waits, collected."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from alight._src.fp_warnings import filters


@contextmanager
def collected() -> Iterator[list[warnings.WarningMessage]]:
    """Collect every warning as if the process had no block around it.

    Work that may warn is done at the call where a program collects warnings; here it waits.
    """
    with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(filters, "_usual", filters._Route.now())
        yield caught
