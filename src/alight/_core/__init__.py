"""The native core: recording, storage and views, memory for results.

``_native`` (C) and ``twin`` (Python) have the same names and pass the same tests; the twin serves
where no compiler was present at install, or where ``ALIGHT_TWIN=1`` asks for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

NATIVE: bool

if TYPE_CHECKING:
    from alight._core.twin import *  # noqa: F403  (the list of names stands there)
else:
    _chosen = None
    if os.environ.get("ALIGHT_TWIN", "0") in ("", "0"):
        with suppress(ImportError):  # not built
            _chosen = import_module("alight._core._native")
    NATIVE = _chosen is not None
    if not NATIVE:
        _chosen = import_module("alight._core.twin")
    for _name, _found in vars(_chosen).items():
        if not _name.startswith("_") and not isinstance(_found, ModuleType):
            globals()[_name] = _found
