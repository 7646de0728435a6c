"""Which cards CuPy finds: asked in a process of its own, as drivers may crash or hang.

Run as a script it prints what it found as JSON and needs nothing of alight.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from alight._src.base.uninterrupted import whereabouts

# Where the driver is, under the names that distributions, containers, WSL and Windows have for it.
# What the kernel's module says, and where a library's link leads to, tells the version.
_DRIVER = (
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/gpus",
    "/dev/nvidiactl",
    "/dev/dxg",
    "/sys/module/amdgpu/version",
    "/dev/kfd",
    "/usr/lib/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "C:\\Windows\\System32\\nvcuda.dll",
)
# What chooses and numbers the cards that a process sees.
CHOOSING = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)


def paths(cards: int) -> tuple[str, ...]:
    """Return the files that are others once so many cards or their driver are: also CuPy's, whose
    version is in a name."""
    spec = whereabouts("cupy")
    packages = Path(spec.origin or "").absolute().parents[1] if spec is not None else Path()
    cupy = [str(path) for path in sorted(packages.glob("cupy*.dist-info"))]
    return *_DRIVER, *[f"/dev/nvidia{number}" for number in range(cards)], *cupy


def cards() -> dict[str, Any]:
    """Return what the driver says of the cards here, and the versions it was said by."""
    import cupy
    from cupy.cuda import runtime

    found = []
    for number in range(runtime.getDeviceCount()):
        seen = runtime.getDeviceProperties(number)
        found.append(
            {
                "name": seen["name"].decode(),
                "uuid": bytes(seen.get("uuid", b"")).hex(),
                "memory": int(seen["totalGlobalMem"]),
                "processors": int(seen["multiProcessorCount"]),
                "engines": int(seen.get("asyncEngineCount", 0)),
                "capability": f"{seen['major']}.{seen['minor']}",
            }
        )
    return {
        "cards": found,
        "vendor": "AMD" if runtime.is_hip else "NVIDIA",
        "driver": runtime.driverGetVersion(),
        "runtime": runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(cards()))
