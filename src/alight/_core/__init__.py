"""The native core: recording, storage and views, the host buffer pool.

``_native`` (C) and ``twin`` (Python) have the same names and pass the same tests; the twin serves where no
compiler was present at install, or where ``ALIGHT_TWIN=1`` asks for it.
"""

from alight._core.twin import (
    POLICY,
    ArrayBase,
    Data,
    Layout,
    Pool,
    Storage,
    Value,
    View,
    floor,
    hooks,
    layout_of,
    make_layout,
    pending_storages,
    set_operators,
    sole,
)

__all__ = [
    "POLICY",
    "ArrayBase",
    "Data",
    "Layout",
    "Pool",
    "Storage",
    "Value",
    "View",
    "floor",
    "hooks",
    "layout_of",
    "make_layout",
    "pending_storages",
    "set_operators",
    "sole",
]
