"""Functions of the program's own under `alight run`: called again and again they are run as `jit`
runs them, and nobody can tell."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests_of_programs import run, same, write
