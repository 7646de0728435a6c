"""Small programs in the styles in which people write NumPy, drawn from a seed: each makes arguments
and has a function that is called again and again with them.

A program is a text with ``np`` as its only module, a function ``make()`` that returns the arguments
and a function ``body(*arguments)``. Nobody tuned alight to them: the generator was committed before
the first was run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import NamedTuple

__all__ = ["SEED", "STYLES", "Program", "programs"]

SEED = 20_261_127


class Program(NamedTuple):
    """One program: its style and number as a name, and its text."""

    name: str
    text: str


def _text(make: str, body: str, before: str = "") -> str:
    """Return the text of a program of what makes the arguments and of what the body does."""
    parts = ["import numpy as np", dedent(before).strip()]
    parts.append("def make():\n    rng = np.random.default_rng(1)\n" + _indented(make))
    return "\n\n".join(filter(None, [*parts, dedent(body).strip()])) + "\n"


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in dedent(lines).strip().splitlines())


def _size(draw: random.Random, least: int, most: int) -> int:
    """Return a size between two, as likely in each power of two."""
    return round(least * (most / least) ** draw.random())


def _many_outputs(draw: random.Random) -> str:
    k, n = draw.randint(3, 90), _size(draw, 1_000, 300_000)
    return _text(
        f"return [rng.random({n})]",
        f"""
        def body(x):
            return [x * (i + .5) + {draw.random():.3f} for i in range({k})]
        """,
    )


def _long_formula(draw: random.Random) -> str:
    n, terms = _size(draw, 4_000, 1_000_000), draw.randint(15, 120)
    lines = []
    for i in range(terms):
        before = draw.choice(["s", "t", "p"]) if i < 3 else f"a{draw.randrange(i)}"
        other = draw.choice(["s", "t", "p", f"{draw.uniform(0.1, 2):.4f}"])
        lines.append(f"    a{i} = {before} {draw.choice('+-*+*')} {other} * {draw.random():.4f}")
    used = " + ".join(f"a{i}" for i in range(0, terms, 3))
    root = f"np.sqrt(np.abs({used})) / (1.0 + a{terms - 1} ** 2)"
    return _text(
        f"return [rng.random({n}) for _ in range(3)]",
        "def body(s, t, p):\n" + "\n".join(lines) + f"\n    return {root}",
    )


def _triangular_solve(draw: random.Random) -> str:
    n = _size(draw, 60, 1_200)
    return _text(
        f"return [np.tril(rng.random(({n}, {n}))) + {n} * np.eye({n}), rng.random({n})]",
        """
        def body(lower, b):
            x = np.zeros(len(b))
            for i in range(len(b)):
                x[i] = (b[i] - lower[i, :i] @ x[:i]) / lower[i, i]
            return x
        """,
    )


def _row_updates(draw: random.Random) -> str:
    n, m = _size(draw, 30, 250), _size(draw, 30, 250)
    return _text(
        f"return [rng.random(({n}, {n})), rng.random(({n}, {m})), rng.random(({n}, {m}))]",
        f"""
        def body(c, a, b):
            for i in range({n}):
                c[i, :i + 1] *= {draw.uniform(0.8, 0.99):.3f}
                c[i, :i + 1] += a[:i + 1, {draw.randrange(m)}] * b[i, {draw.randrange(m)}]
        """,
    )


def _element_loop(draw: random.Random) -> str:
    n, turns = _size(draw, 100, 200_000), _size(draw, 500, 30_000)
    if draw.random() < 0.5:
        return _text(
            f"return [rng.random({n})]",
            f"""
            def body(x):
                for i in range({turns}):
                    x[i % {n}] = i * .5
                return x
            """,
        )
    return _text(
        f"return [rng.random({n})]",
        f"""
        def body(x):
            total = 0.0
            for i in range({turns}):
                total += x[(i * 7) % {n}] * x[i % {n}]
            return total
        """,
    )


def _branch_on_value(draw: random.Random) -> str:
    n, turns = _size(draw, 50, 300_000), draw.randint(20, 300)
    return _text(
        f"return [rng.random({n})]",
        f"""
        def body(x):
            for i in range({turns}):
                x += .5
                if x.{draw.choice(["max", "mean", "min"])}() > 10:
                    x -= 9.5
            return x
        """,
    )


def _kept_in_list(draw: random.Random) -> str:
    n, turns = _size(draw, 100, 100_000), draw.randint(10, 200)
    kept = draw.choice(["(x * i).sum()", "x[i:]", "x * i", "float((x * x).sum()) + i", "x[i % 5]"])
    return _text(
        f"return [rng.random({n})]",
        f"""
        def body(x):
            kept = []
            for i in range({turns}):
                kept.append({kept})
            return kept
        """,
    )


def _gradient_descent(draw: random.Random) -> str:
    n, m, turns = _size(draw, 50, 20_000), draw.randint(3, 30), draw.randint(20, 400)
    return _text(
        f"return [rng.random(({n}, {m})), rng.random({n})]",
        f"""
        def body(a, y):
            w = np.zeros(a.shape[1])
            for _ in range({turns}):
                w -= {draw.uniform(0.001, 0.05):.4f} * (a.T @ (a @ w - y)) / len(y)
            return w
        """,
    )


def _lists_of_arrays(draw: random.Random) -> str:
    count, n = _size(draw, 20, 2_000), _size(draw, 4, 2_000)
    return _text(
        f"arrays = [rng.random({n}) for _ in range({2 * count})]\n"
        f"return [arrays[:{count}], arrays[{count}:]]",
        f"""
        def body(parameters, gradients):
            for p, g in zip(parameters, gradients):
                p -= {draw.uniform(0.001, 0.1):.4f} * g
        """,
    )


def _in_place(draw: random.Random) -> str:
    n = _size(draw, 10_000, 3_000_000)
    ends = draw.choice(["x.max()", "x[0]", "None", "float(x.sum())", "x"])
    return _text(
        f"return [rng.random({n}), rng.random({n})]",
        f"""
        def body(x, y):
            x *= .999
            x += y
            return {ends}
        """,
    )


def _axes(draw: random.Random) -> str:
    shape = tuple(draw.choice([1, 2, 3, 5, 8, 13, 40]) for _ in range(draw.randint(3, 8)))
    axes = tuple(sorted(draw.sample(range(len(shape)), draw.randint(1, 2))))
    name = draw.choice(["sum", "mean", "max", "std", "argmax", "prod"])
    axis = axes[0] if name == "argmax" else axes
    return _text(
        f"return [rng.random({shape})]",
        f"""
        def body(x):
            return (x - x.mean(axis={axes[0]}, keepdims=True)).{name}(axis={axis})
        """,
    )


def _few_columns(draw: random.Random) -> str:
    rows, columns = draw.choice([(500_000, 2), (20, 30_000), (37, 50_000), (100_000, 7), (3, 3)])
    dtype = draw.choice(["f8", "f4", "i4", "u1", ">f8"])
    return _text(
        f"return [(rng.random(({rows}, {columns})) * 100).astype({dtype!r})]",
        f"""
        def body(x):
            return x.sum(0), x.max({draw.choice([0, 1])}), x.mean()
        """,
    )


def _long_chain(draw: random.Random) -> str:
    n, lines = _size(draw, 5_000, 200_000), draw.randint(15, 60)
    steps = ["x = x * {} + y", "x = np.sqrt(x * x + {})", "y = y - {} * x", "x = np.tanh(x) + {}"]
    chosen = [draw.choice(steps).format(f"{draw.random():.3f}") for _ in range(lines)]
    return _text(
        f"return [rng.random({n}), rng.random({n})]",
        "def body(x, y):\n" + "\n".join(f"    {line}" for line in chosen) + "\n    return x + y",
    )


def _single_calls(draw: random.Random) -> str:
    n = _size(draw, 1_000, 1_000_000)
    calls = ["x.any()", "np.trace(m)", "u.max()", "x @ y", "np.linalg.norm(x)", "float(x[3])"]
    calls += ["m @ y[:len(m)]", "(x > 2).any()", "np.all(x < 2)", "u.min()", "x.argmax()"]
    chosen = ", ".join(draw.sample(calls, 4))
    side = int(n**0.5)
    return _text(
        f"x = rng.random({n})\n"
        f"return [x, rng.random({n}), rng.random(({side}, {side})), (x * 200).astype('u1')]",
        f"""
        def body(x, y, m, u):
            return {chosen}
        """,
    )


def _small_expressions(draw: random.Random) -> str:
    n, turns = _size(draw, 2, 5_000), draw.randint(20, 200)
    expressions = [
        "(x - y) ** 2 + x * y - 3",
        "np.exp(-x * x) / (1 + y)",
        "np.hypot(x, y) - x.mean()",
    ]
    chosen = draw.choice(expressions)
    return _text(
        f"return [rng.random({n}), rng.random({n})]",
        f"""
        def body(x, y):
            for _ in range({turns}):
                x = {chosen}
                x = x / (1 + np.abs(x).max())
            return x
        """,
    )


def _functions_as_arguments(draw: random.Random) -> str:
    n = _size(draw, 100, 200_000)
    return _text(
        f"return [rng.random({n})]",
        f"""
        def apply(f, x):
            return f(x) + f(-x)

        def body(x):
            out = 0.0
            for k in range({draw.randint(2, 30)}):
                out += apply(lambda v: np.sin(v * k) + k, x).sum()
            return out
        """,
    )


def _keywords(draw: random.Random) -> str:
    n = _size(draw, 100, 300_000)
    return _text(
        f"return [rng.random({n})]",
        f"""
        turn = [0]

        def scaled(x, gain=1.0, offset=0.0, clip=None, power=1):
            out = x * gain + offset
            if clip is not None:
                out = np.clip(out, *clip)
            return out ** power

        def body(x):
            turn[0] += 1
            k = turn[0] % {draw.randint(3, 32)}
            forms = [{{}}, {{"gain": k + .5}}, {{"clip": (0, k)}}, {{"power": 2, "offset": k}}]
            return scaled(x, **forms[k % 4])
        """,
    )


def _dtype_pairs(draw: random.Random) -> str:
    n = _size(draw, 1_000, 300_000)
    names = ["f8", "f4", "i8", "i4", "u1", "?", "c16", ">f8", "f2", "i2"]
    chosen = draw.sample(names, draw.randint(3, 7))
    return _text(
        f"return [[(rng.random({n}) * 9).astype(d) for d in {chosen}]]",
        """
        def body(arrays):
            return [float(np.real(a + b).sum()) for a in arrays for b in arrays]
        """,
    )


def _generator(draw: random.Random) -> str:
    n, parts = _size(draw, 2_000, 800_000), draw.randint(2, 40)
    return _text(
        f"return [rng.random({n})]",
        f"""
        def pieces(x, count):
            step = len(x) // count
            for k in range(count):
                piece = x[k * step:(k + 1) * step]
                yield (piece - piece.mean()) / (piece.std() + 1)

        def body(x):
            return sum(float((p * p).sum()) for p in pieces(x, {parts}))
        """,
    )


def _recursion(draw: random.Random) -> str:
    n = 2 ** draw.randint(6, 17)
    return _text(
        f"return [rng.random({n})]",
        f"""
        def haar(x, least):
            if len(x) <= least:
                return [x]
            low, high = (x[::2] + x[1::2]) / 2, (x[::2] - x[1::2]) / 2
            return [*haar(low, least), high]

        def body(x):
            return np.concatenate(haar(x, {2 ** draw.randint(0, 5)}))
        """,
    )


def _class_with_state(draw: random.Random) -> str:
    n, turns = _size(draw, 20, 200_000), draw.randint(3, 60)
    return _text(
        f"return [Particles(rng.random(({n}, 3)), rng.random(({n}, 3)) - .5)]",
        f"""
        def body(particles):
            for _ in range({turns}):
                particles.step(.01)
            return particles.energy()
        """,
        """
        class Particles:
            def __init__(self, x, v):
                self.x, self.v, self.steps = x, v, 0

            def step(self, dt):
                self.v -= dt * self.x
                self.x += dt * self.v
                outside = np.abs(self.x) > 1
                self.v[outside] *= -1
                self.steps += 1

            def energy(self):
                return .5 * (self.v ** 2).sum() + .5 * (self.x ** 2).sum()
        """,
    )


def _closure(draw: random.Random) -> str:
    n = _size(draw, 50, 400_000)
    return _text(
        f"return [rng.random({n}), rng.random({n})]",
        f"""
        def smoother(weights):
            total = weights.sum()

            def smooth(x):
                return (x * weights).sum() / total + x * {draw.random():.3f}
            return smooth

        def body(x, w):
            f, g = smoother(w), smoother(w[::-1])
            return f(x) - g(x)
        """,
    )


def _changing_sizes(draw: random.Random) -> str:
    n = _size(draw, 2_000, 500_000)
    return _text(
        f"return [rng.random({n})]",
        f"""
        calls = [0]

        def body(x):
            calls[0] += 1
            part = x[:len(x) // 2 + calls[0] * {draw.choice([1, 17, 333])} % (len(x) // 2)]
            return np.sqrt(part * part + 1) - part.mean()
        """,
    )


def _dictionary(draw: random.Random) -> str:
    n, names = _size(draw, 10, 300_000), draw.randint(2, 20)
    return _text(
        f"return [{{f'k{{i}}': rng.random({n}) for i in range({names})}}]",
        """
        def body(table):
            made = {name: (a - a.min()) / (np.ptp(a) + 1) for name, a in table.items()}
            made["all"] = sum(made.values()) / len(made)
            return made
        """,
    )


def _masks_and_sorts(draw: random.Random) -> str:
    n = _size(draw, 100, 500_000)
    lines = ["x[x > .5] *= .9", "x = np.where(x > y, x, y * .9)", "y = np.sort(y)[::-1].copy()"]
    lines += ["y = y[np.argsort(x, kind='stable')]", "x = np.clip(x, .1, .9)"]
    lines += ["k = np.flatnonzero(x > y)", "x = np.maximum(x, np.minimum(y, .3))"]
    chosen = draw.sample(lines, draw.randint(2, 5))
    return _text(
        f"return [rng.random({n}), rng.random({n})]",
        "def body(x, y):\n    k = x[:1]\n"
        + "\n".join(f"    {line}" for line in chosen)
        + "\n    return x.sum(), y[:5], len(k)",
    )


def _stencil(draw: random.Random) -> str:
    side, turns = _size(draw, 8, 700), draw.randint(2, 60)
    return _text(
        f"return [rng.random(({side}, {side}))]",
        f"""
        def body(u):
            for _ in range({turns}):
                u[1:-1, 1:-1] = .25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
                u[0], u[-1] = u[1], u[-2]
            return u
        """,
    )


def _rolls_and_scans(draw: random.Random) -> str:
    shape = (_size(draw, 4, 500), _size(draw, 4, 1_000))
    return _text(
        f"return [rng.random({shape})]",
        f"""
        def body(x):
            d = np.roll(x, 1, axis={draw.choice([0, 1])}) - x
            c = np.cumsum(d, axis={draw.choice([0, 1])})
            return c - np.diff(np.pad(x, ((0, 0), (1, 0))), axis=1), d.max()
        """,
    )


def _linear_algebra(draw: random.Random) -> str:
    n = _size(draw, 3, 250)
    return _text(
        f"a = rng.random(({n}, {n}))\nreturn [a @ a.T + {n} * np.eye({n}), rng.random({n})]",
        f"""
        def body(a, b):
            x = np.linalg.solve(a, b)
            r = a @ x - b
            for _ in range({draw.randint(1, 20)}):
                r = r - .1 * (a @ r) / np.abs(a).max()
            return x, np.linalg.norm(r), np.outer(x, b).sum()
        """,
    )


def _other_dtypes(draw: random.Random) -> str:
    n = _size(draw, 10, 20_000)
    return _text(
        f"days = np.datetime64('2026-01-01') + np.arange({n})\n"
        f"return [days, np.array([f'w{{i % 7}}' for i in range({n})]), rng.random({n})]",
        """
        def body(days, words, x):
            week = (days - days[0]).astype('m8[D]').astype(int) // 7
            sums = np.bincount(week, weights=x)
            kinds, counts = np.unique(words, return_counts=True)
            return sums / np.maximum(np.bincount(week), 1), dict(zip(kinds.tolist(), counts))
        """,
    )


def _monte_carlo(draw: random.Random) -> str:
    n, turns = _size(draw, 100, 300_000), draw.randint(1, 10)
    return _text(
        f"return [{n}]",
        f"""
        def body(n):
            rng = np.random.default_rng(7)
            inside = 0
            for _ in range({turns}):
                x, y = rng.random(n), rng.random(n)
                inside += int((x * x + y * y < 1).sum())
            return 4 * inside / (n * {turns})
        """,
    )


def _errors(draw: random.Random) -> str:
    n = _size(draw, 10, 200_000)
    return _text(
        f"return [rng.random({n})]",
        f"""
        def body(x):
            found = []
            for k in range({draw.randint(2, 30)}):
                try:
                    found.append((x[k:] + x[:-k or None]).sum() if k % 3 else x + x[:k + 1])
                except ValueError as error:
                    found.append(type(error).__name__)
            return found
        """,
    )


def _signals(draw: random.Random) -> str:
    n, width = _size(draw, 256, 200_000), draw.choice([5, 31, 101])
    return _text(
        f"return [np.sin(np.arange({n}) * .01) + rng.random({n}), np.hanning({width})]",
        """
        def body(x, window):
            smooth = np.convolve(x, window / window.sum(), mode="same")
            power = np.abs(np.fft.rfft(smooth)) ** 2
            counts, edges = np.histogram(x - smooth, bins=20)
            return power[:10], counts, np.interp(edges, edges[:-1], counts)
        """,
    )


def _pairs(draw: random.Random) -> str:
    n, m, d = _size(draw, 5, 800), _size(draw, 3, 60), draw.randint(1, 6)
    return _text(
        f"return [rng.random(({n}, {d})), rng.random(({m}, {d}))]",
        f"""
        def body(points, centres):
            for _ in range({draw.randint(1, 8)}):
                far = ((points[:, None] - centres[None]) ** 2).sum(-1)
                nearest = far.argmin(1)
                for k in range(len(centres)):
                    if (nearest == k).any():
                        centres[k] = points[nearest == k].mean(0)
            return centres
        """,
    )


def _fields(draw: random.Random) -> str:
    n = _size(draw, 10, 200_000)
    return _text(
        f"table = np.zeros({n}, dtype=[('x', 'f8'), ('n', 'i4'), ('w', 'f4')])\n"
        f"table['x'], table['w'] = rng.random({n}), rng.random({n})\nreturn [table]",
        """
        def body(table):
            table["x"] += table["w"] * .5
            table["n"] += 1
            return (table["x"] * table["w"]).sum(), table["n"].max()
        """,
    )


def _outs(draw: random.Random) -> str:
    n, turns = _size(draw, 100, 500_000), draw.randint(1, 30)
    return _text(
        f"return [rng.random({n}), rng.random({n}), np.empty({n})]",
        f"""
        def body(x, y, scratch):
            for _ in range({turns}):
                np.multiply(x, y, out=scratch)
                np.add(scratch, {draw.random():.3f}, out=scratch, where=x > .2)
                np.subtract(y, scratch, out=y)
            return y[::100]
        """,
    )


STYLES: tuple[Callable[[random.Random], str], ...] = (
    _many_outputs, _long_formula, _triangular_solve, _row_updates, _element_loop, _branch_on_value,
    _kept_in_list, _gradient_descent, _lists_of_arrays, _in_place, _axes, _few_columns, _long_chain,
    _single_calls, _small_expressions, _functions_as_arguments, _keywords, _dtype_pairs, _generator,
    _recursion, _class_with_state, _closure, _changing_sizes, _dictionary, _masks_and_sorts,
    _stencil, _rolls_and_scans, _linear_algebra, _other_dtypes, _monte_carlo, _errors, _signals,
    _pairs, _fields, _outs,
)  # fmt: skip


def programs(seed: int = SEED, of_each: int = 6) -> Iterator[Program]:
    """Yield so many programs of each style, the same for a seed; 210 by default."""
    for style in STYLES:
        for number in range(of_each):
            name = style.__name__.strip("_")
            draw = random.Random(f"{seed} {name} {number}")
            yield Program(f"{name}-{number}", style(draw))
