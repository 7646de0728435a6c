"""A store of a test's own, for whatever asks for the process's: profiles, samples, verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alight._src.base.cache_registry import Cache, forget
from alight._src.config.loading import Config
from alight._src.store import Store, default_store


@contextmanager
def own_store(folder: Path) -> Iterator[Store]:
    """Yield the store in a folder, which is everybody's until the block ends; what other tests left
    in theirs is not found, and what is read from it is no other test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Config, "cache_folder", lambda config: str(folder))
        forget(Cache.PROFILES)
        yield default_store()
    forget(Cache.PROFILES)
