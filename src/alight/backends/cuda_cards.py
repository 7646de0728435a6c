"""Which cards CuPy finds: asked in a process of its own, as drivers may crash or hang.

Run as a script it prints what it found as JSON and needs nothing of alight.
"""

from __future__ import annotations

import json
from typing import Any


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
