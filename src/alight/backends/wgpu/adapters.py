"""Which WebGPU adapters are here: asked in a process of its own, as drivers may crash or hang.

Run as a script it prints what it found as JSON and needs nothing of alight.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alight._src.base.uninterrupted import whereabouts

# What WebGPU's own drivers are; OpenGL shows the same cards a second time, without compute on some.
_INTERFACES = ("Vulkan", "Metal", "D3D12")
# A driver that answers took 1.0 s here, interpreter and import included (llvmpipe, 2 busy cores);
# cold disks and several cards take longer, a hanging driver for ever.
SECONDS = 20.0


def adapters() -> list[Any]:
    """Return the adapters in the driver's order."""
    import wgpu

    with _no_desktop():
        found = wgpu.gpu.enumerate_adapters_sync()
    return [adapter for adapter in found if adapter.info["backend_type"] in _INTERFACES]


@contextmanager
def _no_desktop() -> Iterator[None]:
    """Name a folder of the desktop's where none is named: Mesa asks the desktop which card it
    shows, and its library complains on the terminal of who has none."""
    name = "XDG_RUNTIME_DIR"
    before = os.environ.get(name)
    if before is not None and os.path.isabs(before):
        yield
        return
    os.environ[name] = os.devnull  # no desktop is found there, and nothing said
    try:
        yield
    finally:
        if os.environ.get(name) == os.devnull:  # else the program's own by now: of another thread
            del os.environ[name]
            if before is not None:
                os.environ[name] = before


# What WebGPU calls the kinds of adapters, in the order for much power; for little, the first two
# change places.
_KINDS = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")


def preferred(infos: Sequence[Mapping[str, Any]], power: str, software: bool) -> list[int]:
    """Return the adapters to use by their places in ``infos``, the preferred first: by power, then
    in the driver's order, and those that are software last, or not at all."""
    order = _KINDS if power == "high" else ("IntegratedGPU", "DiscreteGPU", *_KINDS[2:])
    ranks = {kind: rank for rank, kind in enumerate(order)}

    def rank(place: int) -> int:
        return ranks.get(infos[place]["adapter_type"], ranks["Unknown"])

    kept = [i for i in range(len(infos)) if software or infos[i]["adapter_type"] != "CPU"]
    return sorted(kept, key=rank)


# What names other drivers to the Vulkan loader.
CHOOSING = (
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_ADD_DRIVER_FILES",
    "VK_LOADER_DRIVERS_SELECT",
)
# Where drivers are declared (the Vulkan loader's documentation), each with its version; what cards
# there are, and NVIDIA's driver, whose declaration does not name its every version. Metal and D3D12
# come with the system.
_FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
_SYSTEM = (
    *("/dev/dri", "/dev/dxg", "/proc/driver/nvidia/version", "/proc/driver/nvidia/gpus"),
    "/System/Library/CoreServices/SystemVersion.plist",
    "C:\\Windows\\System32\\d3d12core.dll",
)


def paths() -> tuple[str, ...]:
    """Return the files that are others once adapters or their drivers are: also wgpu-py's, whose
    version is in a name."""
    spec = whereabouts("wgpu")
    packages = Path(spec.origin or "").absolute().parents[1] if spec is not None else Path()
    own = [str(path) for path in sorted(packages.glob("wgpu-*.dist-info"))]
    home = os.path.join(os.path.expanduser("~"), ".local", "share", "vulkan", "icd.d")
    folders = (*_FOLDERS, home)
    declared = [str(path) for folder in folders for path in sorted(Path(folder).glob("*.json"))]
    return *_SYSTEM, *folders, *declared, *own


def described() -> list[dict[str, Any]]:
    """Return what the adapters say of themselves, and the version of the package."""
    import wgpu

    return [
        {
            "info": {str(k): v for k, v in dict(adapter.info).items()},
            "limits": {str(k): int(v) for k, v in dict(adapter.limits).items()},
            "package": wgpu.__version__,
        }
        for adapter in adapters()
    ]


def ask(seconds: float = SECONDS, script: str = __file__) -> tuple[list[dict[str, Any]], str]:
    """Return what another process says of the adapters here, or nothing and why."""
    from alight.backends import driver_subprocess  # as a script this module needs nothing of alight

    found, reason = driver_subprocess.ask(script, seconds, "wgpu")
    if found is None:
        return [], reason
    if not found:
        return [], (
            "no Vulkan, Metal or D3D12 adapter was found. Fix: install the card's driver (software "
            "rendering on Debian, Ubuntu: `apt install mesa-vulkan-drivers`)"
        )
    return found, ""


if __name__ == "__main__":
    print(json.dumps(described()))
