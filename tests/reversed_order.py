"""Have tests run in the reverse of their order: `pytest -p reversed_order`, with `tests` on the
path of Python. What passes in one order only rests on what a test before it left behind."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.reverse()
