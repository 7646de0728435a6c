"""The package's own name and folder, by which its code is told from everybody else's."""

from __future__ import annotations

import os

__all__ = ["FOLDER", "NAME"]

NAME = "alight"
# Of this file's path the package is what lies above `_src/base`.
FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
