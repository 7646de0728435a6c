"""Random programs of statements: names that share memory, and all that can be done through them.

The other moves of this folder call one thing on a pair of arrays; here a program is text, whose
names, containers, objects, closures and threads come by the same memory on many ways.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = [
    "IMPORT",
    "NAMES",
    "PREAMBLE",
    "Body",
    "body",
    "in_functions",
    "in_hot_functions",
    "in_one_function",
    "in_order",
]

Body = list[str]
PREAMBLE = Path(__file__).with_name("preamble.py").read_text(encoding="utf-8")
NAMES = tuple(f"v{i}" for i in range(5))

# What NumPy leaves to chance is not among them: ufunc.at writes to what is read-only, a view that
# says it may be written to depends on what its base is an object of, and Generator.random(out=)
# takes a number's memory for an array's.
# {v}: any of the names; {s}: a slice; {e}: an expression; {digit}, {i}, {k}: small numbers.
VIEWS = """
{v} = {v}[{s}]
{v} = {v}[::-1]
{v} = {v}.reshape(2, -1)[1]
{v} = {v}.reshape(-1, 2)[:, 1]
{v} = {v}.reshape(-1, 2).T.reshape(-1)
{v} = {v}.view(np.int64)
{v} = {v}.real
{v} = {v}.ravel()
{v} = {v}.squeeze()
{v} = {v}.swapaxes(0, -1)
{v} = np.broadcast_to({v}, (2, *{v}.shape))[1]
say(np.lib.stride_tricks.sliding_window_view({v}, 3)[:, {i}])
{v} = np.lib.stride_tricks.sliding_window_view({v}, 3, writeable=True)[:, {i}]
{v} = np.squeeze({v}[None])
{v} = np.atleast_1d({v})
{v} = np.diagonal({v}[:9].reshape(3, 3))
{v} = np.split({v}, 2)[1]
{v} = np.array_split({v}, 3)[0]
{v} = np.flip({v})
{v} = np.rollaxis({v}.reshape(2, -1), 1)[0]
{v} = np.moveaxis({v}.reshape(2, -1), 0, 1)[:, 0]
{v} = np.expand_dims({v}, 0)[0]
{v}, {v} = {v}.reshape(2, -1)
{v}, *_ = {v}, 1
{v} = np.asarray({v})
{v} = np.require({v}, requirements=["C"])
{v} = np.ascontiguousarray({v})
{v} = np.nan_to_num({v}, copy=False)
{v} = np.array({v}, copy=None)
{v}.shape = (2, -1)
{v}.flags.writeable = {b}
{v}.setflags(write=True)
"""
WRITES = """
{v} {in_place} {e}
{v} {in_place} {e}
{v}[{s}] {assign} {e}
{v}[{s}] {assign} {e}
{v}[{s}] {assign} {v}[{s}]
{v}[{k}] {assign} {e}
{v}[{v} > {digit}] {assign} {digit}
{v}[[{i}, {k}]] = {v}[[{i}, {k}]]
{v}[:2], {v}[2:4] = {v}[2:4], {v}[:2]
{v}[...] = {v}[0]
{v}[1:] = {v}[0:1]
{v}.fill({digit})
{v}.sort()
{v}[::-1].sort()
{v}.partition(2)
{v}.put([1, 3], {digit})
{v}.flat[{i}] = {digit}
{v}.flat = {v}
{v}.byteswap(inplace=True).byteswap(inplace=True)
{v} @= np.eye(len({v}))
np.add({v}[{s}], {e}, out={v}[{s}])
np.add({w}[1:], {w}[:-1], out={w}[{shift}])
np.multiply({v}, {digit}, out={v}, where={v} > {digit})
np.divmod({v}, 3, out=({v}, {v}))
np.modf({v}, out=({v}[:3], {v}[3:6]))
np.copyto({v}[{s}], {e}, where={v} > 2, casting="unsafe")
np.copyto({v}[{s}], {e}, casting="unsafe")
np.put({v}, [0, 2, {k}], {e})
np.place({v}, {v} > {digit}, [1, 2, 3])
np.putmask({v}, {v} > {digit}, {e})
np.fill_diagonal({v}[:4].reshape(2, 2), {e})
np.put_along_axis({v}, np.array([1, 0, 2]), {digit}, 0)
if {w}.flags.writeable: np.add.at({w}, [0, 0, {k}], {digit})
np.cumsum({v}, out={v})
np.clip({v}, 1, {digit}, out={v})
np.take({v}, [3, 2, 1], out={v}[:3], mode="clip")
np.sum({v}[:6].reshape(2, 3), axis=0, out={v}[:3])
np.concatenate([{v}[:3], {v}[:3]], out={v}[:6])
np.einsum("i,i->i", {v}, {v}, out={v})
np.matmul({v}[:4].reshape(2, 2), {v}[:4].reshape(2, 2), out={v}[:4].reshape(2, 2))
np.dot({v}[:4].reshape(2, 2), {v}[2:6].reshape(2, 2), out={v}[:4].reshape(2, 2))
np.random.default_rng({digit}).shuffle({v})
np.random.default_rng({digit}).permuted({v}, out={v})
if isinstance({w}, ndarray): np.random.default_rng({digit}).random(out={w}); np.floor({w} * 9, {w})
np.random.RandomState({digit}).shuffle({v})
z = {v}.copy(); z.resize({digit} + 1, refcheck=False); {v} = z; del z
"""
NEW = """
{v} = {e}
{v} = {e}
{v} = np.arange({n}.) + {k}
{v} = np.arange({n}) * {digit}
{v} = {v}.copy()
{v} = np.array([{v}[:3], {v}[:3]]).ravel()
{v} = np.select([{v} > 3], [{v}], 1)
{v} = copy.deepcopy({v})
{v} = copy.copy({v})
{v} = pickle.loads(pickle.dumps({v}))
"""
SHARED = """
m = memoryview({v}); say(m.tolist())
m[{i}] = 5
say(m.tolist())
{v} = np.asarray(memoryview({v}))
{v} = np.frombuffer({v}.ravel(), dtype={v}.dtype)
{v} = np.asarray(m)
s = np.asarray({v}).view(Sub); s += 1; say(type(s + {v}).__name__); say(total(s))
a = np.ma.array({v}, mask={v} > 4, copy=False); a += 1; say(a.filled(-1))
with np.nditer({v}, op_flags=["readwrite"]) as cells: [q.__iadd__(1) for q in cells]
say([float(q) for q in np.nditer({v})])
say([float(q) for q in {v}])
o = np.empty(2, object); o[0] = {v}; o[1] = {v}; o[0] += 1; say(o[0], o[1])
rec = np.zeros(3, [("a", "f8"), ("b", "i8")]); rec["a"] = {v}[:3]; fa = rec["a"]; fa += 1
rec["b"] = {v}[:3]; say(rec["a"], rec["b"], fa)
{v} = fa
z = np.array({digit}.); z += {v}[0]; {v} *= z; z *= 2; say(z, z[()])
z = {v}[1:2].reshape(()); z += 1; say(z)
say(np.shares_memory({v}, {v}), np.may_share_memory({v}, {v}))
say({v} is {v}, len({v}), {v}.flags.writeable)
"""
HELD = """
L.append({v})
{v} = L[{held}]
D[{i}] = {v}
{v} = D[{i}]
B.x = {e}
{v} = B.x
B.x += {digit}
L[-1] += 1
D[0][1:] = {e}
L[:] = copy.deepcopy(L)
G = {v}
G[1:] += 1
grid = Grid({v})
{v} = grid.step({digit})
{v} = grid.trade({v})
say(grid.total, grid.inner)
{v} = grid.inner
"""
CALLS = """
{v} = twice({v})
{v} = window({v}, {i})
{v}, {v} = swap({v}, {v})
say(late({v})())
f = late({v})
say(f())
say([list(q) for q in pieces({v})])
it = pieces({v})
{v} = next(it)
say([total(q) for q in lazily({v})])
it = lazily({v})
say(*counted({v}))
{v} = keeps({v})
{v} = keeps_new({v}, {i})
fails({v})
say(reads_global({v}))
say(reads_list({v}))
{v} = sets_global({v})
{v}, {v} = nests({v}, {v})
d = in_a_dict({v}, y={v}, zz={v}); say(d["x"], d["y"]); {v} = d["zz"]
say(*in_a_list([{v}, {v}]))
{v} = in_a_list(L)[-1]
{v} = remembers({v})
say(tries({v}, {v}))
say(branches({v}, {v}))
{v}, {v}, _ = steps({v})
in_a_thread({v})
"""
ASKED = """
say({v})
say({v}.max(), total({v}))
say(float({v}[{k}]))
say({v}.argmax(), total({v}) / len({v}))
say(bool({v}.any(0, None)), {v}.all())
"""
EXPRESSIONS = """
{v}
{v}[{s}]
{digit}
({v} + {k})
{v} * {i}
np.abs({v})
{v}.T
np.minimum({v}, {v})
{v}.astype(float)
np.where({v} > 3, {v}, 2)
total({v})
np.cumsum({v})
{v}[::-1]
np.sort({v})
np.roll({v}, 1)
np.concatenate([{v}[:4], {v}[4:]])
np.maximum.accumulate({v})
"""
# How often a statement of each table is drawn, for each of it.
_WEIGHTS = ((VIEWS, 1), (WRITES, 1), (NEW, 1), (SHARED, 1), (HELD, 1), (CALLS, 1), (ASKED, 2))
_STATEMENTS = [line for table, n in _WEIGHTS for line in table.strip().splitlines() * n]
_EXPRESSIONS = EXPRESSIONS.strip().splitlines()
_FIELD = re.compile(r"{(\w+)}")
_MODULUS = 97  # keeps elements small, so that sums of them are exact in any order
_REDUCED = 0.35  # of the statements are followed by taking the remainder of an array
FIRST = 6  # statements of every program that make what the others change
STATEMENTS = 25


class _Filling:
    """Fills a template's fields at random; {w} is one name throughout a statement."""

    def __init__(self, r: random.Random) -> None:
        self._random = r
        self._choices: dict[str, Callable[[], str]] = {
            "v": partial(r.choice, NAMES),
            "s": self._slice,
            "e": lambda: f"({self.filled(r.choice(_EXPRESSIONS))})",
            "b": partial(r.choice, ("True", "False", "True")),
            "i": lambda: str(r.randint(0, 3)),
            "k": lambda: str(r.randint(0, 5)),
            "n": lambda: str(r.randint(6, 12)),
            "digit": lambda: str(r.randint(1, 9)),
            "held": partial(r.choice, ("0", "-1", "-2")),
            "shift": partial(r.choice, ("1:", ":-1")),
            "assign": partial(r.choice, ("=", "=", "+=", "-=", "*=")),
            "in_place": partial(r.choice, ("+=", "-=", "*=", "//=")),
        }

    def filled(self, template: str) -> str:
        one = self._random.choice(NAMES)
        return _FIELD.sub(
            lambda found: one if found[1] == "w" else self._choices[found[1]](), template
        )

    def _slice(self) -> str:
        r = self._random
        if r.random() < 0.1:
            return "::-1"
        start = r.choice(("", "0", "1", "2", "3"))
        stop = r.choice(("", "-1", "-2", "7", "8", "9"))
        return f"{start}:{stop}:{r.choice(('', '', '2', '3'))}"


def body(seed: int, statements: int = STATEMENTS) -> Body:
    """Return the statements of the program that a seed is."""
    r = random.Random(seed)
    filling = _Filling(r)
    lines = [f"v{i} = np.arange({r.choice(('8', '9.', '12.', '12'))}) + {i}" for i in range(5)]
    lines.append("G = v0")
    for _ in range(statements):
        lines.append(filling.filled(r.choice(_STATEMENTS)))
        if r.random() < _REDUCED:
            name = r.choice(NAMES)
            lines.append(f"np.remainder({name}, {_MODULUS}, out={name})")
    return lines


_TRIED = "try:\n    {}\nexcept Exception as error:\n    LOG.append(type(error).__name__)\n"
IMPORT = "import numpy as np\n"  # the line of the preamble that doors put theirs in place of
assert IMPORT in PREAMBLE
_IMPORTS = IMPORT + "from alight import jit\n"
_ALL = f"say(*[{', '.join(NAMES)}]); say(L); say([D[key] for key in sorted(D)])"


def in_order(lines: Body) -> str:
    """Return a program that does the statements one after the other."""
    return PREAMBLE + "".join(_TRIED.format(line) for line in [*lines, _ALL])


# What does no more than to make a name or change an array of the five, but for what it calls.
_OWN = re.compile(r"(v\d|np\.)[^;]*")
_TURNS = 6  # `alight run` may take a function from its third call on


def in_hot_functions(lines: Body) -> str:
    """Return the program with its statements in functions of their own, which are called again and
    again with the same arrays."""
    names = ", ".join(NAMES)
    parts = [_TRIED.format(line) for line in lines[:FIRST]]
    for number, line in enumerate(lines[FIRST:]):
        if _OWN.fullmatch(line) is None:
            parts.append(_TRIED.format(line))
            continue
        parts += (
            f"def act_{number}({names}):\n    {line}\n    return {names}\n",
            f"for turn in range({_TURNS}):\n",
            textwrap.indent(_TRIED.format(f"made = act_{number}({names})"), "    "),
            f"    else:\n        if turn == {_TURNS - 1}:\n            {names} = made\n",
        )
    return PREAMBLE + "".join(parts) + _TRIED.format(_ALL)


def in_functions(lines: Body) -> str:
    """Return the program with the functions and methods that it calls jitted."""
    own = re.sub(r"^( *)def (?!pieces|__init__)", r"\1@jit\n\1def ", in_order(lines), flags=re.M)
    own = re.sub(r"( *)@property\n *@jit", r"\1@property", own)
    own = own.replace("@jit\ndef shown", "def shown").replace("@jit\ndef say", "def say")
    return own.replace(IMPORT, _IMPORTS)


def in_one_function(lines: Body) -> str:
    """Return the program with its statements in a jitted function, which is given their arrays and
    an object that keeps two of them."""
    first, rest = lines[:FIRST], lines[FIRST:]
    inner = "".join(_TRIED.format(line) for line in rest).replace("\n", "\n    ").rstrip()
    parts = (
        PREAMBLE.replace(IMPORT, _IMPORTS),
        *(f"{line}\n" for line in first),
        "box = Box(); box.q = [v0, {'a': v1[1:]}]\n",
        f"@jit\ndef main({', '.join(NAMES)}, box):\n    global G\n",
        "    m = f = it = z = o = rec = fa = s = a = d = grid = t = None\n",
        f"    {inner or 'pass'}\n",
        f"main({', '.join(NAMES)}, box)\n",
        _TRIED.format("say(box.q[0], box.q[1]['a'])"),
        _TRIED.format(_ALL),
    )
    return "".join(parts)
