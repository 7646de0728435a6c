"""Functions to be jitted on Arrays, and a program that runs them on a card."""

from __future__ import annotations

from typing import Any

import numpy as np

from programs import assert_close

Array = np.ndarray[Any, Any]


def chain(x: Any, y: Any, scale: float = 2.0) -> Any:
    return np.sqrt(x * x + y * y) * scale + np.float32(0.5)


def one(x: Any, y: Any) -> Any:
    return x * y + x


def two(x: Any, y: Any) -> Any:
    m = x.max()
    e = np.exp(x - m)
    return e / e.sum(), [(e[:, None] * y[1:4]).sum(axis=0), x]


def parts(item: Any) -> tuple[Any, ...]:
    """Return the arrays of a result in a row."""
    if isinstance(item, (tuple, list)):
        return tuple([one for part in item for one in parts(part)])
    return (item,)


def near(got: Any, body: Any, *arrays: Array) -> None:
    """Compare what a body gave with NumPy's, by the bounds of its ops; ``got`` has no results that
    are arguments, which would be fetched."""

    def made(*given: Any) -> tuple[Any, ...]:
        return tuple([p for p in parts(body(*given)) if not any(p is one for one in given)])

    assert_close(parts(got), made, *arrays)


def drawn(seed: int, count: int = 500) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    return generator.random(count), generator.random(count)


def priced(draws: Any) -> Any:
    spot = np.full_like(draws[0], 100.0)
    for step in range(draws.shape[0]):
        spot *= np.exp(0.01 * draws[step])
    return np.maximum(spot - 100.0, 0.0), spot * np.arange(draws.shape[1])


DIRECT = """
import threading
import jitted_bodies as t
import numpy as np, alight
from alight._src.run import residency
from alight._src.jit import array_program as resident
from alight._src.log.decisions import LOG
chained, double, price = alight.jit(t.chain), alight.jit(t.two), alight.jit(t.priced)
with alight.policy(force="cuda:0", floor=0):
    for seed in range(40):
        x, y = t.drawn(seed, 500 if seed % 8 else 499)
        a, b = alight.asarray(x), alight.asarray(y)
        alight.evaluate(a + 0, b + 0)  # now they lie there
        assert np.array_equal(np.asarray(chained(a, b)), t.chain(x, y)), seed
        shares, (sums, same) = double(a, b)
        assert same is a
        t.near((shares, sums), t.two, x, y)
        once = chained(chained(a, b), b)
        assert np.array_equal(np.asarray(once), t.chain(t.chain(x, y), y)), seed
        draws = t.drawn(seed, 600)[0].reshape(6, 100)
        t.near(price(alight.positive(alight.asarray(draws))), t.priced, draws)
    def missed(*given):
        raise AssertionError("the guard did not answer")
    alight.jit.__globals__["Jitted"].miss = missed
    # others who settle meanwhile take turns with the launches
    keep, free = resident.started, []
    def others() -> None:
        free.append(residency.LOCK.acquire(blocking=False))
        if free[-1]:
            residency.LOCK.release()
    def watched(where, work):
        other = threading.Thread(target=others)
        other.start()
        other.join()
        keep(where, work)
    resident.started = watched
    for _ in range(20):
        once = chained(chained(a, b), b)
    assert np.array_equal(np.asarray(once), t.chain(t.chain(x, y), y))
    assert free and not any(free)
ways = [p.direct for made in (chained, double, price) for p in made._learned().on_ours.values()]
# of two functions one for each layout, which answers for what lies there alone, too; the third is
# called with what is still to be computed
assert len(ways) == 4 and None not in ways, ways
log = LOG.snapshot()
assert not log.fallbacks, log.fallbacks
assert log.counts["launches"] >= 40 * 5 + 40, log.counts
assert any(r.decision.chosen == "cuda:0" and r.seconds for r in log.records)
print("done")
"""


def products(x: Any, y: Any) -> Any:
    near = np.exp(-((x[:, None] - y[None, :20]) ** 2))
    member = near / near.sum(axis=1, keepdims=True)
    mixed = (member.T @ member[:, 3:]) * 2.0
    return mixed.max(axis=0), mixed[2:], np.sqrt(mixed[1:].T @ near[:19]) + near[:1].sum()


def mixed(x: Any, y: Any) -> Any:
    p = (x * 2) @ y.T
    r = p - p.max(axis=1, keepdims=True)
    s = np.sort(r / (1 + np.abs(r).sum(axis=0)), axis=1)
    return s[1:, ::2] @ (y[3:, 2] + 1)[: s.shape[1] // 2], np.sqrt(s[2:] * s[2:]), r, x
