"""Of which sources the native core was built: asked where it is built and where it is imported.

Only the standard library, and nothing of alight: ``setup.py`` runs this file by its path.
"""

from __future__ import annotations

import os
import zlib

__all__ = ["FOLDER", "digest"]

# The sources, where there are any: they lie beside this file in a checkout, and not in a wheel.
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native")


def digest() -> str:
    """Return a checksum of the sources beside this file; an empty string where there are none."""
    if not os.path.isdir(FOLDER):
        return ""
    found = 0  # hashlib is what no program is to wait for
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith((".c", ".h")):
            with open(os.path.join(FOLDER, name), "rb") as stream:
                found = zlib.crc32(name.encode() + b"\0" + stream.read(), found)
    return f"crc32-{found:08x}"
