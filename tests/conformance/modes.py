"""The ways placement is constrained while conformance is tested."""

from __future__ import annotations

from typing import Any

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0"},
    "wgpu": {"floor": 0, "force": "wgpu:0"},
    "cuda": {"floor": 0, "force": "cuda:0"},
}

# Without --mode. What a WebGPU device has of the table is drawn in tests/backends/test_wgpu.py; the
# rest of that mode is NumPy's.
EVERYWHERE = ("auto", "generated", "sim")
# Devices have no floating-point flags to warn from.
SILENT = ("wgpu", "cuda")
