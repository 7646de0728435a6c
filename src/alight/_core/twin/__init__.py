"""The core in Python: what one recorded call is made of, and the fast way to record it.

Four small classes. A ``Layout`` says how bytes are read (dtype, shape, strides) and is interned,
so layouts compare by identity. A ``Value`` is one immutable result: pending (it knows its op and
operands) or concrete (it knows its ``Data``). ``Data`` is the bytes of one version, with a copy in
each memory space that has one. A ``Storage`` names the current version; every view of an array
shares it, so a write, which makes a new version and rebinds the storage, is seen by all of them.
"""

from alight._core.numbering import Key

from .asked import POLICY, Hooks, hooks, recording_errstate
from .crossing import Border
from .data import Data, fresh_data, keep_bytes, kept_bytes
from .device_memory import PIECES, DeviceBuffer, DeviceCall, Launches, Shelf, Stock
from .direct import OPERANDS, Direct
from .hand import Creation, Public, UfuncBase, at_hand, fresh_array, take_over, view_of
from .layout import Layout, View, layout_of, make_layout
from .masked import copy_where
from .namespace import Namespace
from .recording import ArrayBase, Floor, floor, request, set_operators
from .value import Storage, Turn, Value, pending_storages, sole

__all__ = [
    "OPERANDS",
    "PIECES",
    "POLICY",
    "ArrayBase",
    "Border",
    "Creation",
    "Data",
    "DeviceBuffer",
    "DeviceCall",
    "Direct",
    "Floor",
    "Hooks",
    "Key",
    "Launches",
    "Layout",
    "Namespace",
    "Public",
    "Shelf",
    "Stock",
    "Storage",
    "Turn",
    "UfuncBase",
    "Value",
    "View",
    "at_hand",
    "copy_where",
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
