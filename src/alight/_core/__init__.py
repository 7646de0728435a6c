"""The native core: recording, storage and views, memory for results.

``_native`` (C) and ``twin`` (Python) have the same names and pass the same tests; the twin serves
where no compiler was present at install, or where ``ALIGHT_TWIN=1`` asks for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

NATIVE: bool

if TYPE_CHECKING:
    from alight._core.numbering import Key
    from alight._core.twin import (
        POLICY,
        ArrayBase,
        Creation,
        Data,
        Direct,
        Layout,
        Storage,
        UfuncBase,
        Value,
        View,
        at_hand,
        floor,
        fresh_array,
        fresh_data,
        hooks,
        keep_bytes,
        kept_bytes,
        layout_of,
        make_layout,
        pending_storages,
        recording_errstate,
        request,
        set_operators,
        sole,
        take_over,
        view_of,
    )
else:
    _chosen = None
    if os.environ.get("ALIGHT_TWIN", "0") in ("", "0"):
        with suppress(ImportError):  # not built
            _chosen = import_module("alight._core._native")
    NATIVE = _chosen is not None
    if not NATIVE:
        _chosen = import_module("alight._core.twin")

__all__ = [
    "NATIVE",
    "POLICY",
    "ArrayBase",
    "Creation",
    "Data",
    "Direct",
    "Key",
    "Layout",
    "Storage",
    "UfuncBase",
    "Value",
    "View",
    "at_hand",
    "floor",
    "fresh_array",
    "fresh_data",
    "hooks",
    "keep_bytes",
    "kept_bytes",
    "layout_of",
    "make_layout",
    "pending_storages",
    "recording_errstate",
    "request",
    "set_operators",
    "sole",
    "take_over",
    "view_of",
]

if not TYPE_CHECKING:
    globals().update({name: getattr(_chosen, name) for name in __all__ if name != "NATIVE"})
