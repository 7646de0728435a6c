"""The three ways placement is constrained while conformance is tested."""

from __future__ import annotations

from typing import Any

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0"},
    "wgpu": {"floor": 0, "force": "wgpu:0"},
}
