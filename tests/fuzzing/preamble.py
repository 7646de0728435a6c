"""What every fuzzed program starts with: functions that change, keep and pass on their arrays."""

import copy  # noqa: F401  (the statements that follow use them all)
import pickle  # noqa: F401
import threading

import numpy as np
from numpy import ndarray

LOG = []
L = []
D = {}
G = None


class Box:
    """Keeps what it is given."""


class Sub(ndarray):
    """An ndarray of the program's own."""


class Grid:
    """An object that steps its own arrays."""

    def __init__(self, cells):
        self.cells = cells
        self.inner = cells[1:-1]

    @property
    def total(self):
        return total(self.cells)

    def step(self, by):
        self.inner += by
        self.cells[0] = self.inner[-1]
        return self.cells

    def trade(self, other):
        before = self.cells
        self.cells = other
        self.inner = other[::2]
        return before


B = Box()


def shown(item):
    if isinstance(item, (list, tuple)):
        return [shown(part) for part in item]
    if hasattr(item, "dtype"):
        return [str(item.dtype), list(item.shape), item.tolist()]
    return item if isinstance(item, (int, float, bool, str)) else type(item).__name__


def say(*items):
    LOG.append([shown(item) for item in items])


def total(x):
    # Sums of what is not whole may differ in their last bits: the op's bound says how far.
    if x.dtype.kind == "f" and not ((np.rint(x) == x) & (np.abs(x) < 2.0**40)).all():
        return x.max()
    return x.sum()


def twice(x):
    x *= 2
    return x


def window(x, n):
    return x[n:]


def swap(x, y):
    t = x + 0
    x[...] = y
    y[...] = t
    return t, x


def late(x):
    def inner():
        return x[0] * 2

    x += 3
    return inner


def pieces(x):
    for i in range(min(3, len(x))):
        x[i] = x[i] + 10
        yield x[i:]


def lazily(x):
    x += 1
    return (part * 2 for part in (x[:3], x[3:], x))


def counted(x):
    n = 0

    def more():
        nonlocal n, x
        n += 1
        x = x + n
        return x

    x[1:] -= 1
    return more(), more(), x


def keeps(x):
    L.append(x)
    x += 1
    return x[::-1]


def keeps_new(x, key=0):
    D[key] = x * 2
    B.x = D[key][1:]
    D[key][0] = 7
    return D[key]


def fails(x):
    y = x * 2
    x += 1
    L.append(y)
    x[10**6] = 1


def reads_global(x):
    x += 5
    return G[0] + total(G)


def reads_list(x):
    x -= 4
    return [total(item) for item in L[-3:]]


def sets_global(x):
    global G
    G = x * 3
    x += 1
    return G


def nests(x, y):
    a = twice(x)
    b = window(y, 1)
    b += total(a) % 7
    return b, a


def in_a_dict(x, **more):
    more["x"] = x
    for name in sorted(more):
        more[name][0] += len(name)
    return more


def in_a_list(items):
    items[0] += 1
    items.append(items[0][1:])
    items[-1] *= 2
    return items


def remembers(x, kept=[]):  # noqa: B006  (programs do)
    kept[:] = [*kept[-2:], x]
    x[0] = len(kept)
    return kept[0]


def in_a_thread(x):
    thread = threading.Thread(target=lambda: x.flags.writeable and twice(x))
    thread.start()
    thread.join()


def tries(x, y):
    try:
        x += 1
        x[: len(y)] = y[: len(x)]
        return x[2] / (y[0] - y[0])
    except Exception as error:
        return type(error).__name__
    finally:
        y -= 1


def branches(x, y):
    if total(x) > total(y):
        x[...] = x - y.min()
    while y.max() > 90:
        y //= 3
    return [v for v in (x, y) if v[0] > 2]


def steps(x):
    grid = Grid(x)
    grid.step(2)
    old = grid.trade(x * 2)
    grid.step(1)
    return old, grid.cells, grid.inner
