"""Programs that once stalled, stayed slow or grew: each is one cliff, as it was seen."""

from __future__ import annotations

from .harmless_programs import Program

__all__ = ["cliffs"]


def _one(name: str, body: str, make: str) -> Program:
    make = f"def make():\n    rng = np.random.default_rng(1)\n    return [{make}]\n"
    return Program(f"cliff_{name}", f"import numpy as np\n\n{body.strip()}\n\n{make}")


def _outputs(k: int) -> Program:
    body = f"def body(x):\n    return [x * (i + .5) for i in range({k})]"
    return _one(f"outputs_{k}", body, "rng.random(400_000)")


_TRISOLV = """
def body(lower, b):
    x = np.zeros(len(b))
    for i in range(len(b)):
        x[i] = (b[i] - lower[i, :i] @ x[:i]) / lower[i, i]
    return x
"""
_SYR2K = """
def body(c, a, b):
    for i in range(c.shape[0]):
        c[i, :i + 1] *= .9
        for k in range(a.shape[1]):
            c[i, :i + 1] += a[:i + 1, k] * .5 * b[i, k] + b[:i + 1, k] * .5 * a[i, k]
"""
_TRIANGLE = """
def body(c, a):
    for i in range(len(c)):
        c[i, :i + 1] += a[i, :i + 1] * .5
"""
_WRITES = """
def body(x):
    n = len(x)
    for i in range(100_000):
        x[i % n] = i * .5
"""
_BRANCHES = """
def body(x):
    for _ in range(100_000):
        x += .5
        if x.max() > 10:
            x -= 9.5
"""
_SUMS = """
def body(x):
    kept = []
    for i in range(1, 500):
        kept.append((x * i).sum())
    return kept
"""
_VIEWS = """
def body(x):
    kept = []
    for i in range(1000):
        kept.append(x[i:])
    return len(kept)
"""
_ENERGIES = """
def body(x, v):
    energies = []
    for _ in range(300):
        v -= x * .01
        x += v * .01
        energies.append(float((x * x).sum() + (v * v).sum()))
    return energies
"""
_DESCENT = """
def body(a, b):
    w = np.zeros(a.shape[1])
    for _ in range(1000):
        w = w - .001 * (a.T @ (a @ w - b))
    return w
"""
_LISTS = """
def body(arrays):
    return arrays[0] + arrays[-1]
"""
_PAIRS = """
def body(parameters, gradients):
    for p, g in zip(parameters, gradients):
        p -= .01 * g
"""
_IN_PLACE = """
def body(x, y):
    x *= .999
    x += y
    return x.max()
"""
_CHAIN = (
    "def body(x):\n"
    + "".join(
        f"    x = x * {1 + i / 100} + {i}.5\n" if i % 3 else "    x = np.abs(x) - .25\n"
        for i in range(40)
    )
    + "    return x"
)
_SUMMED = """
def body(x):
    return x.sum(axis=({axes},))
"""
_LAMBDAS = """
def apply(f, x):
    return f(x) + 1

def body(x):
    return apply(lambda y: y * 2, x)
"""
_KEYWORDS = """
def inner(x, **options):
    for value in options.values():
        x = x * value
    return x

def body(x):
    return [inner(x, **{f"k{i}": 1.5 for i in range(n)}) for n in range(8)]
"""
_DTYPES = """
def body(pairs):
    return [(a + b).sum() for a, b in pairs]
"""
_STANDARD = """
def body(z):
    return (z - z.mean(0)) / z.std(0)
"""
_NESTED = """
def body(x, y):
    return (x * 2 + y * 3 - x * y) / (1 + x * x)
"""


def _single(name: str, expression: str, make: str) -> Program:
    return _one(name, f"def body(x):\n    return {expression}", make)


def cliffs() -> tuple[Program, ...]:
    """Return the programs."""
    kinds = "[np.int8, np.int32, np.int64, np.float32, np.float64, np.complex128]"
    return (
        *map(_outputs, (20, 44, 52, 80)),
        _one("trisolv", _TRISOLV, "np.tril(rng.random((2000, 2000))) + 2000 * np.eye(2000), "
             "rng.random(2000)"),
        _one("syr2k", _SYR2K, "rng.random((70, 70)), rng.random((70, 50)), rng.random((70, 50))"),
        _one("triangle", _TRIANGLE, "rng.random((300, 300)), rng.random((300, 300))"),
        _one("element_writes", _WRITES, "rng.random(1000)"),
        _one("branches", _BRANCHES, "rng.random(100)"),
        _one("sums", _SUMS, "rng.random(5000)"),
        _one("views", _VIEWS, "rng.random(5000)"),
        _one("energies", _ENERGIES, "rng.random(5000), rng.random(5000)"),
        _one("descent", _DESCENT, "rng.random((200, 5)), rng.random(200)"),
        _one("list_of_4000", _LISTS, "[rng.random(100) for _ in range(4000)]"),
        _one("parameters", _PAIRS, "[rng.random(300) for _ in range(200)], "
             "[rng.random(300) for _ in range(200)]"),
        *[_one(f"in_place_{n}", _IN_PLACE, f"rng.random({n}), rng.random({n})")
          for n in (600_000, 1_000_000, 3_000_000)],
        _one("axes_6", _SUMMED.format(axes="1, 3, 5"), "rng.random((6,) * 6)"),
        _one("axes_12", _SUMMED.format(axes="0, 4, 7, 11"), "rng.random((2,) * 12)"),
        _one("columns_2", _SUMMED.format(axes="0"), "rng.random((500_000, 2))"),
        _one("chain_40", _CHAIN, "rng.random(20_000)"),
        *[_single(f"{name}_{n}", expression, make.format(n=n)) for n in (10_000, 1_000_000)
          for name, expression, make in (
              ("any", "x.any()", "rng.random({n}) < .5"),
              ("trace", "x.trace()", "rng.random((int({n} ** .5),) * 2)"),
              ("uint8_max", "x.max()", "rng.integers(0, 200, {n}).astype(np.uint8)"),
              ("dot", "x.dot(x)", "rng.random({n})"),
              ("norm", "np.linalg.norm(x)", "rng.random({n})"),
              ("matvec", "x @ x[0]", "rng.random((int({n} ** .5),) * 2)"),
              ("read", "float(x[7]) + float(x[8])", "rng.random({n})"),
          )],
        _one("lambdas", _LAMBDAS, "rng.random(10_000)"),
        _one("keywords", _KEYWORDS, "rng.random(10_000)"),
        _one("dtypes", _DTYPES, f"[(rng.random(5000).astype(a), rng.random(5000).astype(b)) "
             f"for a in {kinds} for b in {kinds}]"),
        _single("swapped", "x * 2 + 1", "rng.random(100_000).astype('>f8')"),
        *[_single(f"column_sums_{r}", "x.sum(axis=0)", f"rng.random(({r}, 20_000))")
          for r in (17, 50)],
        _one("standard", _STANDARD, "rng.random((200_000, 8))"),
        *[_one(f"nested_{n}", _NESTED, f"rng.random({n}), rng.random({n})")
          for n in (1_000, 10_000, 100_000)],
    )  # fmt: skip
