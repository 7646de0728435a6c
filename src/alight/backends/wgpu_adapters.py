"""Which WebGPU adapters are here: asked in a process of its own, as drivers may crash or hang.

Run as a script it prints what it found as JSON and needs nothing of alight.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

# What WebGPU's own drivers are; OpenGL shows the same cards a second time, without compute on some.
_INTERFACES = ("Vulkan", "Metal", "D3D12")
# A driver that answers took 1.0 s here, interpreter and import included (llvmpipe, 2 busy cores);
# cold disks and several cards take longer, a hanging driver for ever.
SECONDS = 20.0


def adapters() -> list[Any]:
    """Return the adapters in their order here, hardware before software."""
    import wgpu

    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] in _INTERFACES]
    return sorted(found, key=lambda adapter: adapter.info["adapter_type"] == "CPU")


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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        answer = subprocess.run(
            [sys.executable, "-P", script],  # without its folder: a module there is called wgpu too
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return [], (
            f"the driver did not answer within {seconds:g} s. Fix: update the graphics driver, or "
            "leave wgpu out of devices="
        )
    except OSError as error:
        return [], f"no process could be started to ask the driver: {error}"
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        how = (
            f"status {answer.returncode}"
            if answer.returncode > 0
            else f"signal {-answer.returncode}"
        )
        return [], f"asking the driver ended with {how}: {last}"
    try:
        found: list[dict[str, Any]] = json.loads(answer.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return [], f"the driver's answer is not understood: {answer.stdout[-200:]!r}"
    if not found:
        return [], (
            "no Vulkan, Metal or D3D12 adapter was found. Fix: install the card's driver (software "
            "rendering on Debian, Ubuntu: `apt install mesa-vulkan-drivers`)"
        )
    return found, ""


if __name__ == "__main__":
    print(json.dumps(described()))
