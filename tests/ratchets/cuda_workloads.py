"""Workloads that others published, from NumPy arrays to a result on the host and on arrays that lie
on the device, beside NumPy, CuPy, JAX and torch: RunMat's images, elementwise chain and Monte Carlo
price, and the equation of state of sea water."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from time import perf_counter
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

import alight
from alight._src.bench import peers, programs
from alight._src.measure.timing import laps

from .cuda_rig import DEVICE, Array, Rig, said

SECONDS = 120.0  # of all of it; what there is no time for is said
FIGURE = 0.4  # of one figure
NUMPYS = 10**8  # elements from which NumPy is left out: each takes it 60 ns and more

Function = Callable[..., Any]


# --- what is computed; `np` is whoever computes it
def image(images: Any) -> Any:
    return programs.image_normalise(images)[1]


def elementwise(x: Any) -> Any:
    return programs.elementwise(x).mean()


def sea(s: Any, t: Any, p: Any) -> Any:
    return programs.equation_of_state(s, t, p)


def with_names(function: Function, names: Any) -> Function:
    """Return a function, and those of the programs that it calls, with another ``np``."""
    made = {
        name: peers.with_names(item, names)
        for name, item in vars(programs).items()
        if isinstance(item, FunctionType) and item.__module__ == programs.__name__
    }
    known = {**globals(), "np": names, "programs": SimpleNamespace(**made)}
    return FunctionType(function.__code__, known, function.__name__)


# --- who computes it: NumPy arrays to a host result, and arrays that lie there to one
class Numpys:
    name = "numpy"

    def __init__(self, function: Function) -> None:
        self.function = function

    def given(self, arrays: list[Array]) -> list[Any]:
        return arrays

    def result(self, given: list[Any]) -> Array:
        return np.asarray(self.function(*given))

    def waited(self, given: list[Any]) -> None:
        self.function(*given)

    def over(self) -> None:
        """Give memory back."""


class Alights(Numpys):
    name = "alight"

    def __init__(self, function: Function) -> None:
        self.function = alight.jit(function)

    def given(self, arrays: list[Array]) -> list[Any]:
        with alight.policy(force=DEVICE, floor=0):
            made = [alight.asarray(a) for a in arrays]
            self.function(*made)  # which brings them there
        return made

    def result(self, given: list[Any]) -> Array:
        with alight.policy(force=DEVICE, floor=0):
            return np.asarray(self.function(*given))

    def waited(self, given: list[Any]) -> None:
        from alight.backends import registry

        with alight.policy(force=DEVICE, floor=0):
            alight.evaluate(self.function(*given))
        device = registry.device(DEVICE)
        backend = registry.backend_of(device)
        backend.wait(backend.submit(device, 0, ()))


class Cupys(Numpys):
    name = "cupy"

    def __init__(self, function: Function) -> None:
        import cupy

        self.cupy = cupy
        self.function = with_names(function, cupy)

    def given(self, arrays: list[Array]) -> list[Any]:
        return [self.cupy.asarray(a) for a in arrays]

    def result(self, given: list[Any]) -> Array:
        return np.asarray(self.cupy.asnumpy(self.function(*map(self.cupy.asarray, given))))

    def waited(self, given: list[Any]) -> None:
        self.function(*given)
        self.cupy.cuda.Device().synchronize()

    def over(self) -> None:
        self.cupy.get_default_memory_pool().free_all_blocks()


class Jaxes(Numpys):
    name = "jax"

    def __init__(self, function: Function) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.function = jax.jit(with_names(function, jax.numpy))

    def given(self, arrays: list[Array]) -> list[Any]:
        return [self.jax.device_put(a) for a in arrays]

    def waited(self, given: list[Any]) -> None:
        self.function(*given).block_until_ready()


class Torches(Numpys):
    name = "torch"

    def __init__(self, function: Function) -> None:
        import torch
        import torch._numpy as names

        self.torch = torch
        self.place = "cuda" if torch.cuda.is_available() else "cpu"
        plain = with_names(function, names)
        self.function = torch.compile(lambda *given: plain(*map(names.asarray, given)).tensor)

    def given(self, arrays: list[Array]) -> list[Any]:
        return [self.torch.from_numpy(a).to(self.place) for a in arrays]

    def result(self, given: list[Any]) -> Array:
        if isinstance(given[0], np.ndarray):
            given = self.given(given)
        return np.asarray(self.function(*given).cpu().numpy())

    def waited(self, given: list[Any]) -> None:
        self.function(*given)
        if self.place == "cuda":
            self.torch.cuda.synchronize()

    def over(self) -> None:
        if self.place == "cuda":
            self.torch.cuda.empty_cache()


WHO = (Numpys, Alights, Cupys, Jaxes, Torches)


# --- what it is computed of
def images(count: int) -> list[Array]:
    return [np.random.default_rng(1).random((count, 2160, 3840), np.float32)]


def line(count: int) -> list[Array]:
    x = np.empty(count, np.float32)
    for start in range(0, count, 1 << 24):
        part = np.arange(start, min(start + (1 << 24), count))
        x[start : start + len(part)] = part * (4 * math.pi / (count - 1))
    return [x]


def water(count: int) -> list[Array]:
    generator = np.random.default_rng(2)
    return [generator.uniform(*ends, count) for ends in ((30, 40), (0, 30), (0, 1000))]


# name, program, inputs, sizes, elements of a size, oracle, and the standard deviation of what it is
# the mean of: published within 1e-4, which is one standard error of four images.
WORKLOADS: tuple[
    tuple[str, Function, Function, tuple[int, ...], int, tuple[float, float, float]], ...
] = (
    ("elementwise", elementwise, line, (10**6, 10**8, 10**9), 1, (0.14338, 1e-4, 0.0)),
    ("images", image, images, (4, 16, 64), 2160 * 3840, (0.28508, 1e-4, 0.52)),
    ("equation of state", sea, water, (1 << 22, 1 << 24), 1, (0.0, 0.0, 0.0)),
)


def timed(call: Callable[[], Any]) -> float:
    """Return the least seconds of a call that waits for its result."""
    return laps(call, 50, FIGURE)[0]


def workloads(rig: Rig, found: dict[str, Any], share: float = 1.0) -> None:
    """Time every workload for everyone; ``share`` makes all of them smaller."""
    rows: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    ends = perf_counter() + SECONDS
    for name, program, inputs, sizes, each, (oracle, published, deviation) in WORKLOADS:
        known: dict[type[Numpys], Numpys] = {}
        for size in sizes:
            size = max(1, int(size * share))
            arrays = inputs(size)
            expected = oracle
            within = max(published, 4.0 * deviation / math.sqrt(size * each))
            row: dict[str, Any] = {}
            for who in WHO:
                if perf_counter() > ends - 10:
                    row[who.name] = "no time left"
                    continue
                if who is Numpys and size * each > NUMPYS:
                    continue
                try:
                    peer = known[who] = known.get(who) or who(program)
                    result = peer.result(arrays)
                    if not within:  # NumPy is the oracle
                        expected = expected if who is not Numpys else result
                        np.testing.assert_allclose(result, expected, rtol=1e-12)
                    elif abs(float(result) - expected) > within:
                        wrong[f"{name} {size} {who.name}"] = f"{float(result)}, not {expected}"
                    row[who.name] = [timed(lambda: peer.result(arrays))]  # noqa: B023
                    if who is not Numpys:
                        given = peer.given(arrays)
                        peer.waited(given)
                        row[who.name].append(timed(lambda: peer.waited(given)))  # noqa: B023
                        del given
                    peer.over()
                except Exception as error:
                    row[who.name] = said(error)
            rows[f"{name} {size}"] = row
            print(name, size, row, flush=True)
    found["workloads"] = {
        "seconds, from the host and on the device": rows, "differing": wrong, "failed": {},
    }  # fmt: skip


# --- the price of a call: each with normal numbers of its own
DRIFT, SCALE = (0.05 - 0.5 * 0.2**2) / 252, 0.2 * (1 / 252) ** 0.5
PRICES = ((250_000, 256, 10.552), (250_000, 1024, 25.472), (5_000_000, 1024, 25.472))


def step(np: Any, spot: Any, normal: Any) -> Any:
    return spot * np.exp(DRIFT + SCALE * normal)


def price(np: Any, spot: Any, steps: int) -> Any:
    return np.maximum(spot - 100.0, 0.0).mean() * math.exp(-0.05 * steps / 252)


def _numpy_price(paths: int, steps: int) -> float:
    draw = np.random.default_rng(5)
    spot = np.full(paths, 100.0, np.float32)
    for _ in range(steps):
        spot = step(np, spot, draw.standard_normal(paths, np.float32))
    return float(price(np, spot, steps))


def _alight_price(paths: int, steps: int) -> float:
    draw = alight.random.Counter(5)
    with alight.policy(force=DEVICE, floor=0):
        spot = alight.full(paths, 100.0, np.float32)
        for _ in range(steps):
            spot = step(alight, spot, draw.standard_normal(paths, np.float32))
        return float(price(alight, spot, steps))


def _cupy_price(paths: int, steps: int) -> float:
    import cupy

    spot = cupy.full(paths, 100.0, np.float32)
    for _ in range(steps):
        spot = step(cupy, spot, cupy.random.standard_normal(paths, np.float32))
    return float(price(cupy, spot, steps))


def _jax_price() -> Callable[[int, int], float]:
    import jax

    def run(paths: int, steps: int) -> Any:
        def one(number: Any, spot: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(5), number)
            return step(jax.numpy, spot, jax.random.normal(key, (paths,), np.float32))

        start = jax.numpy.full(paths, 100.0, np.float32)
        return price(jax.numpy, jax.lax.fori_loop(0, steps, one, start), steps)

    made = jax.jit(run, static_argnums=(0, 1))
    return lambda paths, steps: float(made(paths, steps))


def _torch_price() -> Callable[[int, int], float]:
    import torch

    place = "cuda" if torch.cuda.is_available() else "cpu"
    one = torch.compile(lambda spot: spot * torch.exp(DRIFT + SCALE * torch.randn_like(spot)))

    def run(paths: int, steps: int) -> float:
        spot = torch.full((paths,), 100.0, device=place)
        for _ in range(steps):
            spot = one(spot)
        mean = torch.clamp(spot - 100.0, min=0.0).mean()
        return float(mean) * math.exp(-0.05 * steps / 252)

    return run


def _pricers() -> Iterator[tuple[str, Callable[[], Callable[[int, int], float]]]]:
    yield "numpy", lambda: _numpy_price
    yield "alight", lambda: _alight_price
    yield "cupy", lambda: _cupy_price
    yield "jax", _jax_price
    yield "torch", _torch_price


def prices(rig: Rig, found: dict[str, Any], share: float = 1.0) -> None:
    """Time everyone's price, at first and later; it is within four standard errors of the
    oracle."""
    rows: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    ends = perf_counter() + SECONDS
    rates: dict[str, float] = {}
    makers = {name: make for name, make in _pricers()}
    known: dict[str, Callable[[int, int], float]] = {}
    for paths, steps, oracle in PRICES:
        paths = int(paths * share)
        row: dict[str, Any] = {}
        for name, make in makers.items():
            if rates.get(name, 0.0) * paths * steps > max(0.0, ends - perf_counter()) / 3:
                row[name] = "no time for it"
                continue
            try:
                run = known[name] = known.get(name) or make()
                run(paths, 2)  # imports, and code for any number of steps
                taken = []
                # once with what compiles for these steps, and then what later calls take
                while len(taken) < 2 or (len(taken) < 5 and sum(taken) < FIGURE):
                    began = perf_counter()
                    value = run(paths, steps)
                    taken.append(perf_counter() - began)
                row[name] = [taken[0], min(taken[1:])]
                rates[name] = max(taken) / (paths * steps)
                spread = 1.7 * oracle / paths**0.5  # a call's value spreads by so much of it
                if abs(value - oracle) > 4 * spread:
                    wrong[f"price {paths} {steps} {name}"] = f"{value}, not {oracle}"
            except Exception as error:
                row[name] = said(error)
        rows[f"price {paths} x {steps}"] = row
        print("price", paths, steps, row, flush=True)
    found["prices"] = {"seconds, at first and later": rows, "differing": wrong, "failed": {}}
