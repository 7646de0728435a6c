"""What one language writes for each primitive of op bodies: a table for each, in a module of its
own (``cuda_dialect``, ``wgsl_dialect``).

A form is text with ``{0} {1} {2}`` for the arguments, ``{T}`` for the type of the result and
``{W}`` for an unsigned type at least as wide as ``int``, in which arithmetic wraps. Forms are
looked up as ``prim:dtype``, ``prim:kind``, ``prim``, by the dtype of the first argument; what has
none is a gap. Functions of ``shared`` go along with the text that calls them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from alight._src.base.records import dataclass, field
from alight._src.ir.body import COMPARISONS, kind_of
from alight.device import Unsupported

Cast = Callable[[str, str, str], str]


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """A language that kernels are printed in. ``types`` are those of values, ``memory`` those of
    array elements where they differ; ``let`` and ``var`` declare a value and a variable. ``usual``
    are forms that set ``{seldom}`` where the argument needs another; ``gaps`` says why ops by name
    are left out although their bodies can be printed; ``magnitudes`` tells that comparisons of
    floats know a NaN and raise no flag."""

    name: str
    types: Mapping[str, str]
    memory: Mapping[str, str]
    forms: Mapping[str, str]
    let: str
    var: str
    function_head: str
    parameter: str
    table: str
    literal: Callable[[float | int | bool | complex, str], str]
    cast: Cast
    shared: Mapping[str, str] = field(default_factory=dict)
    libm: Mapping[str, str] = field(default_factory=dict)
    usual: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    magnitudes: bool = False

    def type_of(self, dtype: str) -> str:
        """Return the type of a value; raise Unsupported where there is none."""
        found = self.types.get(dtype)
        if found is None:
            raise Unsupported(f"{self.name} has no {dtype}")
        return found

    def form(self, prim: str, dtype: str) -> str:
        """Return the form of a primitive on a first argument of this dtype."""
        # half floats are no floats here: a language has their arithmetic or it has not
        kind = "h" if dtype == "float16" else kind_of(dtype)
        for key in (f"{prim}:{dtype}", f"{prim}:{kind}", prim):
            if key in self.forms:
                return self.forms[key]
        raise Unsupported(f"{self.name} has no {prim} of {dtype}")

    def library(self, name: str, dtype: str) -> str:
        """Return what a function of the C library is called."""
        found = self.libm.get(f"{name}:{dtype}") or self.libm.get(dtype)
        if found is None:
            raise Unsupported(f"{self.name} has no {name} of {dtype} that is as exact as C's")
        return found.replace("NAME", name)

    def functions(self, text: str) -> str:
        """Return the shared functions that a text calls, and those that they call, in order."""
        wanted: set[str] = set()
        queue = [text]
        while queue:
            words = set(re.findall(r"\w+(?=[(<])", queue.pop()))
            for name in words & self.shared.keys() - wanted:
                wanted.add(name)
                queue.append(self.shared[name])
        return "\n".join(body for name, body in self.shared.items() if name in wanted)


SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "quot": "/", "rem": "%", "and": "&", "or": "|",
    "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
FLOAT_FUNCTIONS = {
    "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "fabs": 1, "sqrt": 1, "copysign": 2, "fma": 3,
}  # fmt: skip


def forms(kinds: str, prims: str, form: str) -> dict[str, str]:
    """Return a form for each of the primitives on each of the kinds; SYMBOL is its operator."""
    return {
        f"{prim}:{kind}": form.replace("SYMBOL", SYMBOLS.get(prim, ""))
        for prim in prims.split()
        for kind in kinds
    }


ALL_COMPARISONS = " ".join(sorted(COMPARISONS))
