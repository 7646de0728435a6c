"""Programs whose memory is measured: what NumPy needs for each is what alight may need.

Each is the text of a module with ``make(scale)``, which gives the arguments, and ``body``, written
as people write NumPy. At a scale of 1 the arguments of one program take 6 to 400 MB.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PROGRAMS", "Program"]


class Program(NamedTuple):
    """A program: its name, the text of its arguments and of its body."""

    name: str
    make: str
    body: str

    @property
    def text(self) -> str:
        """Return the module's text."""
        made = f"def make(scale):\n    n = int(scale * 500_000)\n    return {self.make}\n"
        return f"import numpy as np\n\n\n{made}\n\n{self.body.strip()}\n"


_TWO = "np.linspace(-3.0, 3.0, 25 * n), np.linspace(1.0, 2.0, 25 * n)"
_ONE = "(np.linspace(-3.0, 3.0, 25 * n),)"

PROGRAMS = (
    Program(
        "in_place",
        "np.linspace(-3.0, 3.0, 50 * n), np.linspace(1.0, 2.0, 50 * n)",
        """
def body(x, y):
    x *= 0.999
    x += y
    return x.max()
""",
    ),
    Program(
        "three_outputs",
        _TWO,
        """
def body(x, y):
    s = x + y
    d = x - y
    return s * 0.5, d * 0.5, s * d
""",
    ),
    Program(
        "standardised",
        "(np.linspace(-3.0, 3.0, 25 * n).reshape(-1, 50),)",
        """
def body(z):
    return (z - z.mean(0)) / z.std(0)
""",
    ),
    Program(
        "hypotenuse",
        _TWO,
        """
def body(x, y):
    return np.sqrt(x * x + y * y)
""",
    ),
    Program(
        "density",
        _ONE,
        """
def body(x):
    return np.exp(-0.5 * ((x - 0.25) / 1.5) ** 2) / (1.5 * np.sqrt(2 * np.pi))
""",
    ),
    Program(
        "rebound",
        _ONE,
        """
def body(x):
    y = x * 2.0
    z = np.sin(y)
    y = z + x
    z = np.abs(y)
    y = z - 1.0
    return y.sum()
""",
    ),
    Program(
        "stencil",
        "(np.zeros((4000, 25 * n // 4000)),)",
        """
def body(u):
    u[0] = 1.0
    for _ in range(4):
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return u
""",
    ),
    Program(
        "make_and_drop",
        _ONE,
        """
def body(x):
    total = 0.0
    for i in range(5):
        y = x * i
        y += 1.0
        total += float(y.sum())
    return total
""",
    ),
    Program(
        "list_of_arrays",
        "(np.linspace(-3.0, 3.0, 8 * n),)",
        """
def body(x):
    return [x * (i + 0.5) for i in range(8)]
""",
    ),
    Program(
        "softmax",
        "(np.linspace(-3.0, 3.0, 25 * n).reshape(-1, 100),)",
        """
def body(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
""",
    ),
    Program(
        "product",
        "np.ones((20 * n // 2000, 2000)), np.ones((2000, 200)), np.ones(200)",
        """
def body(a, w, b):
    h = a @ w + b
    return np.maximum(h, 0.0)
""",
    ),
    Program(
        "out",
        _TWO,
        """
def body(x, y):
    np.multiply(x, 0.5, out=x)
    np.add(x, y, out=x)
    np.sqrt(np.abs(x), out=y)
    return float(y[0])
""",
    ),
    Program(
        "selected",
        _ONE,
        """
def body(x):
    low = x[x < 0.0]
    return np.where(x > 0.0, x, -x), low.sum()
""",
    ),
    Program(
        "single_precision",
        _TWO,
        """
def body(x, y):
    a = x.astype(np.float32)
    b = y.astype(np.float32)
    return (a * b + a).astype(np.float64)
""",
    ),
    Program(
        "joined",
        _TWO,
        """
def body(x, y):
    both = np.concatenate([x, y])
    return np.cumsum(both * 0.5)
""",
    ),
    Program(
        "moments",
        _ONE,
        """
def body(x):
    m = x.mean()
    d = x - m
    v = (d ** 2).mean()
    return m, v, (d ** 3).mean() / v ** 1.5, (d ** 4).mean() / v ** 2
""",
    ),
    Program(
        "velocity",
        "[np.ones(12 * n) for _ in range(3)]",
        """
def body(p, v, g):
    for _ in range(3):
        v *= 0.9
        v -= 0.01 * g
        p += v
    return p, v
""",
    ),
    Program(
        "distances",
        "[np.linspace(0.0, 1.0, 3 * m).reshape(m, 3) for m in (2000, n // 300)]",
        """
def body(a, b):
    d = a[:, None, :] - b[None, :, :]
    return np.sqrt((d * d).sum(axis=2)).min(axis=1)
""",
    ),
    Program(
        "equation_of_state",
        _TWO,
        """
def body(t, p):
    a = 999.8 + t * (6.79e-2 + t * (-9.09e-3 + t * (1.0e-4 - 1.1e-6 * t)))
    b = 8.24e-1 + t * (-4.09e-3 + 7.6e-5 * t)
    k = 19652.2 + t * (148.4 + t * (-2.3 + 1.36e-2 * t)) + p * (3.24 + 1.4e-3 * t)
    r = a + b * p
    return r / (1.0 - p / k)
""",
    ),
)
