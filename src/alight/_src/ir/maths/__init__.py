"""Elementary maths, as functions of the expression language (``ir.body``).

Nothing is used but IEEE operations, fma and integers, so that every device gives the same bits.
"""

from alight._src.ir.maths import (
    circle,
    division,
    exponential,
    inverse,
    logarithm,
    plane,
    power,
    statistics,
)

FUNCTIONS = "".join(
    part.FUNCTIONS
    for part in (exponential, logarithm, circle, inverse, power, division, plane, statistics)
)
