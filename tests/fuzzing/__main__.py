"""Run random programs, print a line of JSON: ``python -m fuzzing MODE FIRST_SEED OPERATIONS``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from .program import run_many, shrunk

_SHRUNK = 5  # failures made small; each costs many runs of its program


def main() -> None:
    mode, first, operations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    done, programs, failures = run_many(mode, first, operations)
    small = [asdict(shrunk(failure)) for failure in failures[:_SHRUNK]]
    rest = [asdict(failure) for failure in failures[_SHRUNK:]]
    print(json.dumps({"operations": done, "programs": programs, "failures": small + rest}))


if __name__ == "__main__":
    main()
