"""Random bodies of jitted functions, run beside NumPy: whole copies by every spelling, writes into
arguments that are one array, overlap or lie in each other backwards, views kept and returned."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import alight

# What a call may run under; sizes are drawn so that the automatic choice meets both of its sides.
POLICIES: dict[str, dict[str, Any]] = {
    "automatic": {},
    "floor 0": {"floor": 0},
    "cpu:generated": {"force": "cpu:generated", "floor": 0},
    "cpu:numpy": {"force": "cpu:numpy", "floor": 0},
    "sim:0": {"force": "sim:0", "floor": 0},
}

COPIES = (
    "{t} = {x}.copy()",
    "{t} = np.copy({x})",
    "{t} = np.array({x})",
    "{t} = {x} + 0",
    "{t} = {x}.astype({x}.dtype)",
    "{t} = np.positive({x})",
    "{t} = {x}.T.copy().T",
    "{t} = {x}[::-1].copy()",
    "{t} = np.zeros({x}.shape)\n{t}[:] = {x}",
    "{t} = np.empty({x}.shape)\n{t}[...] = {x}",
    "{t} = np.empty_like({x})\nnp.copyto({t}, {x})",
    "{t} = np.empty_like({x})\nnp.positive({x}, out={t})",
    "{t} = np.ascontiguousarray({x})",
    "{t} = np.asarray({x})",
)
MADE = (
    "{t} = {x} * 0.5 + {y}",
    "{t} = np.sqrt(abs({x})) * 0.5",
    "{t} = np.where({x} > {y}, {x}, 1.0)",
    "{t} = np.maximum({x}, {y})",
    "{t} = np.zeros({x}.shape)",
)
VIEWS = (
    "{t} = {x}",
    "{t} = {x}[::-1]",
    "{t} = {x}.T",
    "{t} = {x}[:, ::-1]",
    "{t} = {x}[:]",
    "{t} = {x}.view('i8').view('f8')",
)
WHOLE = (
    "{o}[...] = {x}",
    "{o}[:] = {x}",
    "np.copyto({o}, {x})",
    "np.positive({x}, out={o})",
    "np.add({x}, 0, out={o})",
    "{o}[::-1] = {x}",
    "{o}.T[...] = {x}",
    "{o}[:, ::-1] = {x}",
)
WRITES = (
    "{o}[...] = {x} * 0.5 + {y}",
    "np.add({x}, {y}, out={o})",
    "{o}[...] = {k}",
    "{o}[{i}] = {k}",
    # (computed, as NumPy itself reads what it has just written where a column crosses a row)
    "{o}[{i}] = {x}[{j}] * 1.0",
    "{o}[:, {i}] = {x}[{j}] * 1.0",
    "{o}[1:] = {x}[:-1]",
    "{o}[1:-1, 1:-1] *= 0.5",
    "{o}[1:, :2] = {x}[:-1, :2] + {y}[1:, :2]",
    "{o}[{x} > {k}] = {k}",
    "np.copyto({o}, {x}, where={y} > {k})",
    "np.add({x}, {y}, out={o}, where={x} > {k})",
    "np.multiply({x}, 0.5, out={o}, where={o} > {k})",
    "{o} += {x}",
    "{o} *= 0.5",
    "{o} -= {y} * 0.5",
)
# These look at elements at the call: a body with them is not replayed.
AT_ONCE = (
    "{o}.fill({k})",
    "{o}[{x} > {k}] = {y}[{x} > {k}]",
    "{o}[[0, 2]] = {x}[[1, 0]]",
    "{o}[{i}, {j}] = {x}[{j}, {i}] + 1",
)
# What arguments are, of bases of one row more than those have: independent, or views of one.
PLACES = (
    "{b}[:-1, :n]",
    "{b}[1:, :n]",
    "{b}[:-1, :n][::-1]",
    "{b}[:-1, :n].T",
    "{b}[1:, :n][:, ::-1]",
)
# Of bases twice as wide: no two of these share an element.
APART = ("{b}[:-1, ::2]", "{b}[:-1, 1::2]")


class Body:
    """One body: its source, how its arguments lie in how many bases, and how large they are."""

    def __init__(self, seed: int, size: int) -> None:
        draw = random.Random(seed)
        count = draw.randint(2, 4)
        apart = draw.random() < 0.7  # a program is made only where no two arguments overlap
        bases = count if apart else draw.randint(1, count)
        self.size = size
        self.seed = seed
        self.widths = [draw.choice((1, 1, 2)) for _ in range(bases)]
        self.places = [
            draw.choice(PLACES[:1] * 4 + PLACES).format(
                b=f"b[{number if apart else draw.randrange(bases)}]"
            )
            for number in range(count)
        ]
        if draw.random() < 0.2:
            self.widths[0] = 2
            self.places[:2] = [place.format(b="b[0]") for place in APART]
        names = [f"a{n}" for n in range(count)]
        arguments = tuple(names)
        lines: list[str] = []
        kinds = [COPIES, COPIES, MADE, VIEWS, *[WHOLE] * 2, *[WRITES] * 3]
        if draw.random() < 0.3:
            kinds.append(AT_ONCE)
        for number in range(draw.randint(2, 8)):
            kind = draw.choice(kinds)
            target = f"t{number}"
            lines.append(
                draw.choice(kind).format(
                    t=target,
                    x=draw.choice(names),
                    y=draw.choice(names),
                    o=draw.choice(names),
                    i=draw.randrange(3),
                    j=draw.randrange(3),
                    k=draw.choice((0, 0.25, 0.5, 9)),
                )
            )
            if kind in (COPIES, MADE, VIEWS):
                names.append(target)
        wanted = draw.sample(names, draw.randint(0, min(3, len(names))))
        form = draw.choice(("({0},)", "[{0}]"))
        lines.append(f"return {form.format(', '.join(wanted))}" if wanted else "return None")
        body = textwrap.indent("\n".join(lines), "    ")
        self.source = f"def f({', '.join(arguments)}):\n{body}\n"

    def function(self) -> Callable[..., Any]:
        """Return the body as a function of its own."""
        space: dict[str, Any] = {"np": np}
        exec(compile(self.source, f"<body {self.seed}>", "exec"), space)
        function: Callable[..., Any] = space["f"]
        return function

    def given(self, call: int) -> tuple[list[Any], list[Any]]:
        """Return the bases and the arguments of a call."""
        draw = np.random.default_rng((self.seed, call))
        rows, columns = self.size + 1, self.size
        bases = [draw.random((rows, columns * width)) for width in self.widths]
        return bases, [eval(place, {"b": bases, "n": columns}) for place in self.places]

    def __repr__(self) -> str:
        places = ", ".join(self.places)
        return f"seed {self.seed}, {self.size} rows, arguments {places}:\n{self.source}"


def faults(body: Body, policy: dict[str, Any], calls: int = 8) -> Iterator[str]:
    """Yield what a jitted body does that NumPy does not: its results, what is in its arguments and
    around them afterwards, and who shares memory with whom."""
    plain, jitted = body.function(), alight.jit(body.function())
    for call in range(calls):
        bases, args = body.given(call)
        wanted_bases, wanted_args = body.given(call)
        wanted = plain(*wanted_args)
        try:
            with alight.policy(**policy):
                found = jitted(*args)
        except Exception as error:
            yield f"call {call}: {type(error).__name__}: {error}"
            return
        for number, (base, expected) in enumerate(zip(bases, wanted_bases, strict=True)):
            if not np.array_equal(base, expected):
                yield f"call {call}: base {number} is {base}, NumPy {expected}"
        if type(found) is not type(wanted) or len(found or ()) != len(wanted or ()):
            yield f"call {call}: {found!r}, NumPy {wanted!r}"
            continue
        for number, (a, b) in enumerate(zip(found or (), wanted or (), strict=True)):
            if type(a) is not type(b) or a.dtype != b.dtype or not np.array_equal(a, b):
                yield f"call {call}: result {number} is {a}, NumPy {b}"
            elif a.strides != b.strides or a.flags.writeable != b.flags.writeable:
                yield f"call {call}: result {number} has strides {a.strides}, NumPy {b.strides}"
        ours = [*(found or ()), *bases]
        theirs = [*(wanted or ()), *wanted_bases]
        for i in range(len(ours)):
            for j in range(i):
                shared = np.shares_memory(ours[i], ours[j])
                if shared is not np.shares_memory(theirs[i], theirs[j]):
                    yield f"call {call}: {j} and {i} share memory: {shared}"
