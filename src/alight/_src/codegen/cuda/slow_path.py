"""What tells that some of many elements are not usual: the ends of bits, asked about once.

Comparisons are an instruction for each element, and each waits for the one before it. The greatest
and the least of some bits are one for two elements (two before Hopper), and a thread asks once a
run whether one is beyond its limit. Bits of floats without a sign are in the order of the floats,
and squares have none: what is zero, huge or no number is at an end. That calls some elements
unusual that are not, as what has a square of zero; they are made again, and have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from alight._src.base.originals import np
from alight._src.base.records import dataclass, field

if TYPE_CHECKING:
    from alight._src.ir.body import Expr

# Of a root turned negative that one step rounds right (``sqrt_usual`` of the dialect); what is no
# number has no sign on the card.
_LEAST_ROOT = -8.8817842e-16


@dataclass(frozen=True, slots=True)
class End:
    """One end of some bits of each element: what is beyond ``limit`` is not usual."""

    name: str
    function: str  # max, of what is usual below the limit, or min, from it on
    limit: int

    @property
    def beyond(self) -> str:
        return f"{self.name} {'>=' if self.function == 'max' else '<'} {self.limit}u"


@dataclass(slots=True)
class RareLaneTest:
    """The ends that a thread looks at for some steps of four elements, ``[i][j]`` of arrays."""

    ends: list[End] = field(default_factory=list)

    def _element(self, function: str, limit: int) -> str:
        end = End(f"end{len(self.ends)}", function, limit)
        self.ends.append(end)
        return f"{end.name}s[i][j]"

    def root(self, text: str) -> str:
        """Return a square root of which is told."""
        return f"sqrt_told({text}, {self._element('min', _bits(_LEAST_ROOT))})"

    def unless(self, part: Expr, value: Callable[[Expr], str]) -> str | None:
        """Return a statement that tells of an element for which a condition does not hold, or None
        where bits cannot."""
        asked, const = (*part.args, None, None)[:2]
        if asked is None or const is None or const.prim != "const" or const.dtype != "float32":
            return None
        if part.prim == "ne" and const.value == 0:
            end, limit = "min", 1
        elif part.prim in ("lt", "le") and asked.prim == "fabs":
            if not const.value > 0:  # a square would be in order with one of the other sign
                return None
            asked = asked.args[0]
            with np.errstate(over="ignore", under="ignore"):
                square = np.float32(const.value) * np.float32(const.value)
            if not np.finfo(np.float32).tiny <= square < np.inf:
                return None
            end, limit = "max", _bits(square)
        else:
            return None
        text = value(asked)
        return f"{self._element(end, limit)} = __float_as_uint({text} * {text});"

    def arrays(self, steps: int) -> list[str]:
        """Return the declarations of what is kept of the elements of some steps."""
        return [f"unsigned int {end.name}s[{steps}][4];" for end in self.ends]

    def together(self) -> list[str]:
        """Return what puts an element with an odd number and the one before it to the others: two
        at once, as one instruction takes three numbers."""
        lines = []
        for end in self.ends:
            name, of = end.name, end.function
            lines.append(f"{name} = {of}({of}({name}, {name}s[i][j - 1]), {name}s[i][j]);")
        return lines

    def begun(self) -> list[str]:
        """Return the declarations of the ends."""
        return [
            f"unsigned int {end.name} = {'0u' if end.function == 'max' else '0xffffffffu'};"
            for end in self.ends
        ]

    def beyond(self) -> str:
        """Return whether an element was not usual."""
        return " | ".join(f"({end.beyond})" for end in self.ends)


def _bits(value: float | np.float32) -> int:
    return int(np.float32(value).view(np.uint32))
