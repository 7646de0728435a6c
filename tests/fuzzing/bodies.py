"""Random bodies of jitted functions, and the arrays that they are called with, as text.

A body works on names of one shape: its arguments `a`, `b` and `c`, its locals `p`, `q` and `r`,
parts of what it is given in `e` (a list, a dict, an object, a structured array), the global `G` and
the closure's `h`. `k` is a number, `u` a part or a number, `d` of another dtype. A template's
fields: {v} such a name, {w} one that stays the same throughout the statement, {l} a local, {x} an
expression of the shape, {s} and {t} slices of one length, {i} and {j} indices, {k} a number, {m} a
mask, {z} a list of indices, {o} the palette's other dtype.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

COPIES = """
{l} = {v}.copy()
{l} = np.copy({v})
{l} = {v} + 0
{l} = +{v}
{l} = {v} * 1
{l} = np.positive({v})
{l} = np.empty_like({w}); np.positive({w}, out={l})
{l} = np.zeros_like({w}); np.copyto({l}, {w})
{l} = np.zeros({w}.shape, {w}.dtype); {l}[:] = {w}
{l} = np.empty({w}.shape, {w}.dtype); {l}[...] = {w}
{l} = {w}.astype({w}.dtype)
{l} = {w}.astype({w}.dtype, copy=False)
{l} = {v}.astype("{o}")
{l} = np.array({v})
{l} = np.asarray({v})
{l} = np.ascontiguousarray({v})
{l} = {v}.copy("F")
{l} = np.full_like({v}, {k})
{l} = np.where({m}, {v}, {v})
"""
MOVED = """
{v}[...] = {v}
{v}[:] = {v}
np.copyto({v}, {v})
np.positive({v}, out={v})
np.add({v}, 0, out={v})
{v}[...] = {v} + 0
{v}[...] = {v}.copy()
{l} = {v}.copy()
{l} = {v} + 0
{l} = np.zeros({w}.shape, {w}.dtype); {l}[:] = {w}
{l} = np.empty_like({w}); {l}[...] = {w}
"""
SMALL = """
{v}[{i}] = {k}
{v}[{i}] += {k}
{v}[{s}] = {k}
{v}[{s}] = {v}[{t}]
{v}[{s}] *= 2
"""
WHOLE = """
{v}[...] = {x}
{v}[:] = {x}
np.copyto({v}, {x}, casting="unsafe")
{v}.fill({k})
{v}[...] = {k}
{v}[::-1] = {v}
{v}[...] = {v}[::-1]
{v}.T[...] = {v}.T
{v}[::-1] = {x}
{w}[::-1] = {w}
{w}.T[...] = {w}.T[::-1]
{w}[...] = {w}[::-1] + {w}
np.add({w}, {w}[::-1], out={w}, casting="unsafe")
{l} = np.sqrt({v} * 2 + 1) * 3; {l}[::-1] = {l}
np.positive({v}, out={v})
np.add({v}, {k}, out={v}, casting="unsafe")
np.multiply({x}, 2, out={v}, casting="unsafe")
np.subtract({v}, {v}, out={v}, casting="unsafe")
np.maximum({v}, {k}, out={w}); {w} += 0
np.clip({v}, -1, 5, out={v}, casting="unsafe")
np.sqrt(np.abs({v}), out={v}, casting="unsafe")
np.add({w}, {k}, out={w}, where={w} > {i}, casting="unsafe")
{v} += {k}
{v} += {v}
{v} -= {x}
{v} *= 2
{v} += 1; {v} -= {v}
"""
PARTS = """
{v}[{s}] = {v}[{t}]
{v}[{s}] = {v}[{t}]
{w}[{s}] = {w}[{t}]
{w}[{s}] = {w}[{t}] * 2 + {v}[{s}]
{v}[{s}] = {x}[{t}]
{v}[{s}] = {k}
{v}[{s}] += {k}
{v}[{s}] += {v}[{t}]
{w}[{s}] -= {w}[{t}]
{v}[{i}] = {k}
{v}[{i}] = {v}[{j}]
{v}[{i}] += 1
{v}[-1] = {x}[0]
{w}[{i}], {w}[{j}] = {w}[{j}] + 0, {w}[{i}] + 0
{v}[{m}] = {k}
{v}[{m}] += 1
{v}[{m}] = 0
{v}[{z}] = {k}
{v}[{z}] += {k}
{v}[{z}] = {v}[0]
np.copyto({v}, {v}, where={m}, casting="unsafe")
np.copyto({v}, {k}, where={m}, casting="unsafe")
np.putmask({v}, {m}, {k})
np.put({v}, {z}, {k})
np.place({v}, {m}, [1, 2])
if {w}.flags.writeable: np.add.at({w}, {z}, 1)
{v}.flat[{i}] = {k}
{l} = {w}.copy(); np.add({w}, {k}, out={l}, where={m}, casting="unsafe")
np.add({v}[{s}], {k}, out={v}[{t}], casting="unsafe")
{v}.real[{s}] = {k}
"""
VIEWS = """
{l} = {v}
{l} = {v}[...]
{l} = {v}[::-1]
{l} = {v}.view()
{l} = {w}.reshape({w}.shape)
{l} = {w}.view({w}.dtype)
{l} = np.flip({v}, 0)
u = {v}[{s}]; u += 1
u = {v}[{s}]; u[...] = {v}[{t}]
u = {v}[{s}]
u = {v}.ravel(); u[{i}] = {k}
u = {v}.reshape(-1)[::2]; u *= 2
u = {w}.T; u[...] = {w}.T + 1
u = {v}[{i}:]; {v}[{i}:] = u
u = np.broadcast_to({v}[:1], {v}.shape)
"""
COMPUTED = """
{l} = {x}
{l} = {x} * 2 - {x}
{l} = ({x} + {k}) * {v}
{l} = np.where({m}, {x}, {k})
{l} = np.square({v}) + {v} * 3
{l} = np.concatenate([{v}[:1], {v}[1:]])
{l} = np.roll({v}, 1, 0)
{l} = {v}[np.arange(len({v}))[::-1]]
u = ({v} > {k}).sum()
u = {v}.max() + 0
u = {v}[{i}]
u = {v}[{m}]
u = {v}.sum(0) * 0
d = {v} > {k}
d = {v}.astype("{o}"); {v}[...] = d
d = np.argmax({v}, 0)
u = len({v}) + {v}.ndim
u = {v} / {v}
u = np.sqrt({x})
"""
CALLS = """
u = swap({v}, {v})
u = halves({v}, {i})
u = [part.sum() * 0 for part in each({v})]
u = each_in_turn({v})
u = twice({v})
u = (lambda y: y[{s}])({v})
u = inner_of({v})()
u = [y[0] for y in ({v}, {v})]
u = sum(int(y) for y in range({i}))
u = {{"x": {v}, "y": {x}}}
"""
BLOCKS = r"""
for i in range({i}):\n    {1}
for i in range(len({w}) - 1):\n    {w}[i + 1] = {w}[i] + {k}
for i in range(2):\n    {1}\n    {2}
for row in {v}[:2]:\n    row += 1
if {v}.sum() > {k}:\n    {1}\nelse:\n    {2}
if ({v} > {i}).any():\n    {1}
if k > 2:\n    {1}
if {v}.flat[0] > {k}:\n    return {v}
try:\n    {1}\nexcept Exception as error:\n    u = type(error).__name__
try:\n    {1}\n    raise KeyError({i})\nexcept KeyError:\n    {2}
try:\n    {1}\nfinally:\n    {2}
with np.errstate(all="ignore"):\n    {1}
def inner():\n    nonlocal p\n    p = {v} + 1\n    return p[{s}]\nu = inner()
"""
RAISING = """
{v}[10**6] = 1
{v}[...] = np.ones(7)
raise ValueError("told")
{v}[{s}] += {v}
np.add({v}, 0.5, out=np.zeros(np.shape({v}), "i4"))
u = 1 // (k - k)
{v}.reshape(-1, 11)
{v}[[0, 10**6]] = 1
np.copyto({v}[:1], {v}, casting="no")
{v}[np.ones(10, bool)] = 1
u = {v} @ np.ones(11)
"""
EXPRESSIONS = """
{v}
{v}
{v} + {k}
{v} * 2
{v} + {v}
{v} - {v} * 2
np.abs({v})
{v}[::-1]
np.minimum({v}, {v}) + 0
{v}.copy()
np.negative({v})
np.square({v})
({v} + 1) * 2 - {v}
"""
MASKS = ("{v} > {k}", "{v} == {k}", "({v} > {i}) & ({v} < 6)", "{w} != {w}", "{v} < {v}")
HELPERS = '''
def swap(x, y):
    t = x + 0
    x[...] = y
    y[...] = t
    return t
def halves(x, n):
    if n <= 0 or len(x) < 2:
        return x
    x[0] += 1
    return halves(x[1:], n - 1)
def each(x):
    for i in range(min(3, len(x))):
        x[i] = x[i] + 1
        yield x[i:]
def each_in_turn(x):
    return [part + 0 for part in each(x)]
@jit
def twice(x):
    x *= 2
    return x
def inner_of(x):
    def inner():
        return x[0] * 2
    x += 3
    return inner
'''  # fmt: skip
# How often a statement of each table is drawn.
_TABLES = (
    (MOVED, 14), (SMALL, 10), (COPIES, 16), (WHOLE, 28), (PARTS, 24), (VIEWS, 12), (COMPUTED, 16),
    (CALLS, 4), (BLOCKS, 7),
)  # fmt: skip
_LINES = [
    [line.replace("\\n", "\n") for line in table.strip().splitlines()] for table, _ in _TABLES
]
_FIELD = re.compile(r"{(\w+)}|({{|}})")
_FIRST = ("{l} = {v}.copy()", "{l} = {x}", "{l} = np.zeros_like({v})", "{l} = {v}", "{l} = {x} * 2")
_LAST = (
    "return", "return {v}", "return {v}, {v}[{s}], u", "return {v}, {v}", "return {v}[::-1], d",
    "return [{v}, {x}], u", 'return {{"x": {v}, "u": u}}', "return {v}[{s}], {v}[{t}], {v}",
    "return {x}", "return {v}, {v}, {v}", "return u, {v}.T",
)  # fmt: skip
_RAISES = 0.15  # of the bodies
# What keeps a body from being proven pure, and so from being replayed; or asks for elements.
_IMPURE = re.compile(
    r"\.flat|\.at\(|\.view\(|error|each|inner|halves|real\[|\bif |u = {v}\[{m}\]|int\(|for row"
)


@dataclass(frozen=True, slots=True)
class Form:
    """What the arrays of one program are like."""

    shape: tuple[int, ...]
    dtypes: tuple[str, str]
    names: tuple[str, ...]
    plain: bool  # every array is contiguous and of the first dtype

    @property
    def square(self) -> bool:
        return len(set(self.shape)) == 1


class _Filling:
    """Fills a template's fields at random."""

    def __init__(self, r: random.Random, form: Form, locals_: str) -> None:
        self._random, self._form = r, form
        length = form.shape[0]
        self._choices: dict[str, Callable[[], str]] = {
            "v": lambda: r.choice(form.names),
            "l": lambda: r.choice(locals_),
            "x": lambda: f"({self.filled(r.choice(_EXPRESSIONS))})",
            "i": lambda: str(r.randint(0, max(0, min(length - 1, 3)))),
            "k": lambda: r.choice(("0", "1", "2", "3", "k", "k", "k + 1")),
            "m": lambda: self.filled(r.choice(MASKS)),
            "z": lambda: str([r.randrange(max(1, min(length, 5))) for _ in range(r.randint(1, 3))]),
            "o": lambda: r.choice(form.dtypes),
        }
        self._choices["j"] = self._choices["i"]

    def filled(self, template: str) -> str:
        one = {"l": self._choices["l"]()}
        others = [name for name in self._form.names if name != one["l"]]
        one["w"] = self._random.choice(others)  # never what the statement makes anew
        one["s"], one["t"] = self._slices()

        def field(found: re.Match[str]) -> str:
            if found[2]:
                return found[2][0]
            if found[1] in "12":
                inner = self.filled(self._random.choice(self._random.choice(_LINES[:6])))
                return inner.replace("\n", "\n    ")
            return one[found[1]] if found[1] in one else self._choices[found[1]]()

        return _FIELD.sub(field, template)

    def _slices(self) -> tuple[str, str]:
        """Return two keys of one shape."""
        r = self._random
        axes = [self._axis(length) for length in self._form.shape[: r.choice((1, 1, 2))]]
        first, second = (", ".join(part) for part in zip(*axes, strict=True))
        return first, second

    def _axis(self, length: int) -> tuple[str, str]:
        r = self._random
        kind = r.random()
        if kind < 0.25 or length < 2:
            return r.choice(((":", ":"), ("::-1", ":"), (":", "::-1"), ("::-1", "::-1")))
        if kind < 0.4 and not length % 2:
            return r.choice((("::2", "1::2"), ("1::2", "::2"), ("::2", "::-2"), ("::2", "::2")))
        if kind < 0.7:
            return r.choice((("1:", ":-1"), (":-1", "1:"), ("1:", "1:"), (":-1", ":0:-1")))
        size = r.randint(1, length)
        at, other = r.randint(0, length - size), r.randint(0, length - size)
        return f"{at}:{at + size}", f"{other}:{other + size}"


def body(r: random.Random, form: Form, pure: bool) -> list[str]:
    """Return the statements of a random body, each of one or more lines."""
    short = r.random() < 0.6
    locals_ = "p" if short else "pqr"
    hidden = set("pqr") - set(locals_)
    lines = []
    for at, name in enumerate(locals_):
        known = tuple(n for n in form.names if n not in set("pqr") or n in set("pqr"[:at]))
        first = _Filling(r, replace(form, names=known), name).filled(r.choice(_FIRST))
        lines.append(first)
    names = tuple(name for name in form.names if name not in hidden)
    filling = _Filling(r, replace(form, names=names), locals_)
    if not short:
        lines.append(filling.filled("u = {v}[{s}]; d = u > 1"))
    weights = [weight for _, weight in _TABLES]
    for _ in range(r.randint(1, 5) if short else r.randint(3, 14)):
        line = r.choice(r.choices(_LINES, weights)[0])
        while pure and _IMPURE.search(line):
            line = r.choice(r.choices(_LINES, weights)[0])
        lines.append(filling.filled(line))
    if r.random() < _RAISES:
        lines.insert(r.randint(len(locals_), len(lines)), filling.filled(r.choice(_RAISING)))
    last = [line for line in _LAST if not short or not re.search(r"\b[ud]\b", line)]
    lines.append(filling.filled(r.choice(last)))
    return lines


_EXPRESSIONS = EXPRESSIONS.strip().splitlines()
_RAISING = RAISING.strip().splitlines()
