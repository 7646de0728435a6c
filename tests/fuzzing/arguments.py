"""Random arguments of jitted functions, as text: layouts, dtypes, aliases, holders and numbers."""

from __future__ import annotations

import random
import re

from .bodies import Form

# What every program starts with. All memory that `new` makes is watched from outside.
PREAMBLE = """
import numpy as np

BASES = []


class Box:
    pass


def new(dtype, shape, first=0):
    array = np.empty(shape, dtype)
    numbers = np.tile(np.arange(first, first + 9) * 5 % 9, array.size // 9 + 1)[: array.size]
    array[...] = (numbers > 3 if dtype == "?" else numbers).reshape(shape)
    BASES.append(array)
    return array


def unaligned(dtype, shape, first=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 1, "u1")
    array = memory[1:].view(dtype).reshape(shape)
    array[...] = new(dtype, shape, first)
    BASES.extend((array, memory[:1]))  # as what they are: bytes would tell one NaN from another
    return array


def mapped(dtype, shape, first=0):
    import tempfile
    array = np.memmap(tempfile.TemporaryFile(), dtype, "w+", shape=shape)
    array[...] = new(dtype, shape, first)
    BASES.append(array)
    return array


def frozen(array):
    array.flags.writeable = False
    return array


def special(array):
    array.flat[::3] = np.nan
    array.flat[1::4] = np.inf
    array.flat[2::5] = -0.0
    return array


def structured(dtype, shape, first=0):
    array = np.zeros(shape, [("x", dtype), ("n", "u1"), ("y", dtype)])
    array["x"], array["y"] = new(dtype, shape, first), new(dtype, shape, first + 1)
    BASES.append(array)
    return array


def in_objects(*arrays):
    array = np.empty(len(arrays), object)
    for i, item in enumerate(arrays):
        array[i] = item
    return array


def box(x, y):
    made = Box()
    made.x, made.y = x, y
    return made
"""
_SHARED = 0.35  # of the sets of arguments have arrays that share memory
# Where a body finds more arrays in `e`, and how that is made of two.
HOLDERS = {
    "list": (("e[0]", "e[1]"), "[{0}, {1}]"),
    "tuple": (("e[0]", "e[1]"), "({0}, {1})"),
    "dict": (('e["x"]', 'e["y"]'), '{{"x": {0}, "y": {1}}}'),
    "object": (("e.x", "e.y"), "box({0}, {1})"),
    "structured": (('e["x"]', 'e["y"]'), "structured({dtype!r}, {shape}, n)"),
    "objects": (("e[0]", "e[1]"), "in_objects({0}, {1})"),
    "nothing": ((), "None"),
}
_SHAPES = ((6,), (8,), (4, 4), (3, 4), (6, 2), (2, 3, 4), (1,), (5, 1))
_LARGE = ((560_000,), (700, 800), (800, 800))  # above what recording costs, wherever that is
_EMPTY = ((0,), (0, 4), (3, 0))
_PALETTES = (("d", "d"), ("d", "f"), ("d", "l"), ("f", "f"), ("l", "i"), ("d", "?"), ("D", "d"),
             ("e", "f"), ("l", "?"), ("d", "d"))  # fmt: skip
_NUMBERS = ("1", "2", "3", "0", "2.5", "True", "np.float32(2)", "np.int64(3)", "n % 3", "n")


def form(r: random.Random, large: bool, pure: bool) -> tuple[Form, str]:
    """Return what a program's arrays are like, and what holds more of them."""
    shape = r.choice(_LARGE if large else _EMPTY if r.random() < 0.04 else _SHAPES)
    holder = r.choice(("nothing", "list") if pure else (*HOLDERS, "nothing", "nothing"))
    # Arguments and locals more often than the rest.
    names = [*"aabbcppqqr", *HOLDERS[holder][0]]
    if not pure and r.random() < 0.25:
        names.append("G")
    if not pure and r.random() < 0.15:
        names.append("h")
    plain = r.random() < 0.5
    return Form(shape, r.choice(_PALETTES), tuple(names), plain), holder


def _array(r: random.Random, form: Form, first: str) -> str:
    """Return an array of memory of its own, in some layout."""
    shape, dtype = form.shape, form.dtypes[not form.plain and r.random() < 0.2]
    longer = (shape[0] * 2, *shape[1:])
    wider = (shape[0] + 2, *shape[1:])
    last = (*shape[:-1], shape[-1] * 2)
    plain = f"new({dtype!r}, {shape}, {first})"
    if form.plain or r.random() < 0.5:
        return plain
    choices = [
        f"new({dtype!r}, {shape[::-1]}, {first}).T",
        f"new({dtype!r}, {shape}, {first})[::-1]",
        f"new({dtype!r}, {longer}, {first})[::2]",
        f"new({dtype!r}, {wider}, {first})[1:-1]",
        f"new({dtype!r}, {last}, {first})[..., 1::2]",
        f"unaligned({dtype!r}, {shape}, {first})",
    ]
    if r.random() < 0.3:  # few: a body that writes ends there
        choices.append(f"frozen({plain})")
        choices.append(f"np.broadcast_to(new({dtype!r}, {(1, *shape[1:])}, {first}), {shape})")
    if 0 not in shape:
        choices.append(f"mapped({dtype!r}, {shape}, {first})")
    if form.dtypes[0] in "dfe" and form.dtypes[1] in "dfe":
        choices.append(f"special({plain})")
    return r.choice(choices)


def _second(r: random.Random, form: Form, first: str, shared: bool) -> str:
    """Return an array that may share the memory of `a`."""
    if not shared or r.random() < 0.5:
        return _array(r, form, first)
    choices = ["a", "a[::-1]", "a[...]", "a", "a.view()"]
    if form.square and len(form.shape) == 2:
        choices += ["a.T", "a.T[::-1]"]
    return r.choice(choices)


def made(r: random.Random, form: Form, holder: str, ours: bool) -> list[str]:
    """Return the lines that make the arguments of a call; `n` is the call's number.

    ``ours``: `a`, `b` and `c` are Arrays, where they do not share the memory of an ndarray.
    """
    shape, dtype = form.shape, form.dtypes[0]
    lines = []
    shared = r.random() < _SHARED
    if shared and r.random() < 0.2:
        wider = (shape[0] + 1, *shape[1:])
        lines += [f"m = new({dtype!r}, {wider}, n)", "a = m[:-1]", "b = m[1:]"]
    else:
        lines += [f"a = {_array(r, form, 'n')}", f"b = {_second(r, form, 'n + 2', shared)}"]
    third = _second(r, form, "7", shared)
    lines.append(f"c = {r.choice(('b', third)) if shared else third}")
    parts = [_array(r, form, "3"), _array(r, form, "4")]
    if shared:
        parts = [r.choice(("a", "b[::-1]", part)) for part in parts]
    lines.append(f"k = {r.choice(_NUMBERS)}")
    if ours:
        lines = [re.sub(r"^(\w) = ((?:new|frozen|special).*)", r"\1 = ours(\2)", x) for x in lines]
    lines.append("e = " + HOLDERS[holder][1].format(*parts, dtype=dtype, shape=shape))
    return lines


def plain(form: Form, line: str) -> str:
    """Return a line that makes the same name in the simplest way."""
    name = line.split(" = ")[0]
    if name in "abc":
        return f"{name} = new({form.dtypes[0]!r}, {form.shape}, {ord(name) - ord('a')})"
    return f"{name} = 2" if name == "k" else line
