"""Run the ratchets one after the other: ``python -m tests.ratchets [--mode M] [--only NAME]``.

Each writes ``bench-results/ratchets/<name>-<mode>.json``. Ends with 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from . import array_api, conformance, fuzz, jitted, npbench, numpy_tests, scripts
from .modes import MODES, Mode
from .result import RESULTS, Result

RATCHETS: dict[str, Callable[[Mode, str], Result]] = {
    numpy_tests.NAME: numpy_tests.measure,
    array_api.NAME: array_api.measure,
    npbench.NAME: npbench.measure,
    conformance.NAME: conformance.measure,
    fuzz.NAME: fuzz.measure,
    jitted.NAME: jitted.measure,
    scripts.NAME: scripts.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names, all modes of all ratchets by default."""
    parser = argparse.ArgumentParser(prog="tests.ratchets", description=__doc__)
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all three")
    parser.add_argument("--only", action="append", choices=RATCHETS, help="default: all")
    parser.add_argument("--target", default="alight", help="any module with NumPy's names")
    given = parser.parse_args(arguments)
    results = [
        RATCHETS[name](MODES[mode], given.target)
        for name in given.only or RATCHETS
        for mode in given.mode or MODES
    ]
    print(f"results are in {RESULTS}")
    for result in results:
        verdict = "passes" if result.passed else f"FAILS: {result.problems[0]}"
        print(f"  {result.ratchet:12s} {result.mode:10s} {verdict}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
