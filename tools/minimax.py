"""Make ``_src/ir/maths/coefficients.py``: polynomials, constants and tables of the maths.

    python tools/minimax.py

needs mpmath, which alight itself does not. A polynomial is the one of least degree whose error, as
it counts in the result, is below the goal. It comes from Remez's exchange; then, from the lowest
power up, each coefficient is rounded to the format and the rest is fitted anew, so that the later
ones make up for the rounding of the earlier. What is approximated is in ``minimax_functions.py``,
the constants are in ``minimax_constants.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from minimax_constants import FORMATS, constants, two_over_pi
from minimax_functions import POLYNOMIALS, Polynomial, double_part

TARGET = Path(__file__).parent.parent / "src/alight/_src/ir/maths/coefficients.py"
GRID = 400


def remez(target: Polynomial, known: Sequence[Any], degree: int) -> tuple[list[Any], Any]:
    """Return the coefficients after the known ones of the best polynomial, and its error."""
    count = degree + 1 - len(known)
    points = _points(target)
    wanted = [
        (z, w, f - mpmath.polyval(list(reversed(known)), z) if known else f) for z, w, f in points
    ]
    usable = [item for item in wanted if item[1]]
    step = (len(usable) - 1) / count
    chosen = [usable[round(i * step)] for i in range(count + 1)]
    for _ in range(30):
        rows = mpmath.matrix(count + 1, count + 1)
        right = mpmath.matrix(count + 1, 1)
        for i, (z, w, f) in enumerate(chosen):
            for j in range(count):
                rows[i, j] = w * z ** (j + len(known))
            rows[i, count] = (-1) ** i
            right[i] = w * f
        try:
            solved = mpmath.lu_solve(rows, right)
        except ZeroDivisionError:
            return [], mpmath.inf
        found = [solved[j] for j in range(count)]
        level = abs(solved[count])
        tail = [mpf(0)] * len(known) + found
        errors = [w * (mpmath.polyval(tail[::-1], z) - f) for z, w, f in usable]
        extremes = _alternating(errors, count + 1)
        worst = max(map(abs, errors))
        if extremes is None or worst <= level * mpf("1.02"):
            break
        chosen = [usable[i] for i in extremes]
    return found, worst


def _alternating(errors: Sequence[Any], count: int) -> list[int] | None:
    """Return the places of the extremes, of alternating sign; None where they are too few."""
    places: list[int] = []
    for i, error in enumerate(errors):
        if places and (errors[places[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[places[-1]]):
                places[-1] = i
        else:
            places.append(i)
    while len(places) > count:
        # the weaker end goes
        places.pop(0 if abs(errors[places[0]]) < abs(errors[places[-1]]) else -1)
    return places if len(places) == count else None


_cached: dict[int, list[tuple[Any, Any, Any]]] = {}


def _points(target: Polynomial) -> list[tuple[Any, Any, Any]]:
    """Return Chebyshev's points of the interval with weight and value."""
    if id(target) not in _cached:
        middle, half = (mpf(target.high) + target.low) / 2, (mpf(target.high) - target.low) / 2
        angles = [mpmath.pi * i / GRID for i in range(GRID, -1, -1)]
        points = [middle + half * mpmath.cos(a) for a in angles]
        _cached[id(target)] = [(z, target.weight(z), target.function(z)) for z in points]
    return _cached[id(target)]


def fitted(target: Polynomial, bits: int) -> tuple[list[Any], Any]:
    """Return rounded coefficients, lowest first, and the error in ulp of the result."""
    goal = target.enough(bits)
    degree = 0
    while remez(target, [], degree)[1] > goal:
        degree += 1
    known: list[Any] = []
    rest: list[Any] = []
    while len(known) <= degree:
        found, error = remez(target, known, degree)
        # Few powers cannot alternate about zero as often as they should: there what was fitted
        # before stays.
        rest = found if error < 2 * goal else rest[1:]
        known.append(double_part(rest[0], bits))
    error = max(abs(w * (mpmath.polyval(known[::-1], z) - f)) for z, w, f in _points(target))
    return known, error * mpf(2) ** bits


def written(value: Any, format_: str) -> str:
    """Return the number as Python's shortest text for it."""
    return repr(float(value)) if format_ == "float64" else repr(float(np.float32(float(value))))


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=TARGET, help="another file than alight's own")
    into: Path = parser.parse_args().into
    lines = [
        '"""Coefficients of polynomials, lowest power first, constants and tables.',
        "",
        "Made by tools/minimax.py: do not edit. Beside each polynomial: its worst error as it",
        'counts in the result, in ulp."""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        "POLYNOMIALS: dict[str, dict[str, tuple[float, ...]]] = {",
    ]
    for name, target in POLYNOMIALS.items():
        lines.append(f'    "{name}": {{')
        for format_ in target.formats:
            bits = FORMATS[format_]
            coefficients, error = fitted(target, bits)
            lines.append(f'        "{format_}": (  # {mpmath.nstr(error, 2)}')
            lines += [f"            {written(c, format_)}," for c in coefficients]
            lines.append("        ),")
            print(name, format_, len(coefficients), mpmath.nstr(error, 3), file=sys.stderr)
        lines.append("    },")
    lines += ["}", "CONSTANTS: dict[str, dict[str, float]] = {"]
    for name, values in constants().items():
        shown = ", ".join(f'"{f}": {written(v, f)}' for f, v in values.items())
        lines.append(f'    "{name}": {{{shown}}},')
    lines += [
        "}",
        "# the element type, and the elements",
        "TABLES: dict[str, tuple[str, tuple[int, ...]]] = {",
    ]
    lines.append('    "two_over_pi": ("uint64", (')
    lines += [f"        0x{word:016X}," for word in two_over_pi()]
    lines += ["    )),", "}", ""]
    into.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
