"""Build the native core, as tools/building.py says; the rest is in pyproject.toml."""

from __future__ import annotations

import os
import sys

from setuptools import setup

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools"))

from building import Build, BuildModules, extensions

setup(ext_modules=extensions(), cmdclass={"build_ext": Build, "build_py": BuildModules})
