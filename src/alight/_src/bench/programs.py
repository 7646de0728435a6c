"""The programs that are timed: plain functions written with `import numpy as np`.

Beside each stand its inputs, what it computes and, where somebody has published one, an oracle:
a figure its result must reach whoever computes it. Bytes are the least any peer can move: inputs
read once and outputs written once, counted from the arrays themselves.

``n`` counts the elements of the largest array a program cannot do without, so that programs of one
size are of one weight: rows x columns of a matrix, pairs of bodies, paths x steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from alight._src.bench.inputs import (
    CENTRES,
    FEATURES,
    STEPS,
    Arrays,
    Floats,
    Inputs,
    between,
    bodies,
    clusters,
    draws,
    grid,
    images,
    layer,
    line,
    market,
    rows,
    sea,
    signal,
    symmetric,
    table,
    two_clouds,
)

__all__ = ["FAMILIES", "PROGRAMS", "Program"]

Oracle = Callable[[Arrays, int], tuple[float, float, float] | None]

FAMILIES = ("fused", "bandwidth", "library")


@dataclass(frozen=True, slots=True)
class Program:
    """A function and what is known of it.

    ``flops`` and ``special`` count arithmetic operations and transcendental ones for n elements.
    ``elements`` counts n from the sizes of the inputs.
    ``live`` is how many arrays of n elements NumPy holds at its worst, inputs included.
    ``within_eps`` is how far a result may be from NumPy's: epsilons of the dtype, times the larger
    of the element itself and the root mean square of all. ``reduces`` allows for the length of a
    sum: 4·log2(n) epsilons more, which pairwise sums stay within, and alight must. Who adds up one
    element after the other drifts as √n; the others are allowed that, so that none is left out for
    what its users know.
    ``exactly``: what results are compared with where NumPy's own is not near enough to be that.
    ``expressions`` states it for NumExpr, one for each output, in the names of the parameters.
    """

    name: str
    family: str
    function: Callable[..., Any]
    inputs: Inputs
    flops: Callable[[int], float]
    special: float = 0.0
    live: float = 5.0
    within_eps: float = 16.0
    reduces: bool = False
    exactly: Callable[..., Any] | None = None
    expressions: tuple[str, ...] = ()
    oracle: Oracle | None = None
    least: int = 0
    elements: Callable[[Sequence[int]], int] = max

    def tolerance_eps(self, n: int, peer: str = "alight") -> float:
        """Return how many epsilons a result may be off."""
        if not self.reduces:
            return self.within_eps
        drift = 0.0 if peer == "alight" else math.sqrt(n)
        return self.within_eps + 4.0 * math.log2(max(n, 2)) + drift


# -- the programs: fused ---------------------------------------------------------------------------


def chain(x: Floats, y: Floats) -> Any:
    """Return a chain of elementwise operations."""
    return np.sqrt(x * x + y * y) * np.exp(-x) + np.sin(y) * 0.5


def chain_sum(x: Floats, y: Floats) -> Any:
    """Return the sum of the chain."""
    return (np.sqrt(x * x + y * y) * np.exp(-x) + np.sin(y) * 0.5).sum()


def black_scholes(price: Floats, strike: Floats, years: Floats) -> Any:
    """Return what calls and puts are worth; normal distribution: Abramowitz-Stegun 26.2.17."""
    root = 0.3 * np.sqrt(years)
    up = (np.log(price / strike) + 0.065 * years) / root
    down = up - root
    k = 1.0 / (1.0 + 0.2316419 * np.abs(up))
    tail = k * (
        0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429)))
    )
    tail = 0.3989422804 * np.exp(-0.5 * up * up) * tail
    likely = np.where(up < 0.0, tail, 1.0 - tail)
    k = 1.0 / (1.0 + 0.2316419 * np.abs(down))
    tail = k * (
        0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429)))
    )
    tail = 0.3989422804 * np.exp(-0.5 * down * down) * tail
    likelier = np.where(down < 0.0, tail, 1.0 - tail)
    discounted = strike * np.exp(-0.02 * years)
    call = price * likely - discounted * likelier
    return call, call - price + discounted


def elementwise(x: Floats) -> Any:
    """Return RunMat's elementwise chain."""
    y0 = np.sin(x) * np.exp(-x / 10.0)
    y1 = y0 * np.cos(x / 4.0) + 0.25 * y0**2
    return np.tanh(y1) + 0.1 * y1


def image_normalise(images: Floats) -> Any:
    """Return RunMat's normalised images, and how far they are from the given ones."""
    mu = images.mean(axis=(1, 2), keepdims=True)
    sd = np.sqrt(((images - mu) ** 2).mean(axis=(1, 2), keepdims=True) + 1e-6)
    out = np.maximum((images - mu) / sd * 1.0123 - 0.02, 0.0) ** 1.8
    return out, ((out - images) ** 2).mean()


def monte_carlo(draws: Floats) -> Any:
    """Return RunMat's price of a call, from steps x paths of normal draws."""
    drift = (0.05 - 0.5 * 0.2 * 0.2) / 252.0
    scale = 0.2 * (1.0 / 252.0) ** 0.5
    spot = np.full_like(draws[0], 100.0)
    for step in range(draws.shape[0]):
        spot *= np.exp(drift + scale * draws[step])
    return np.maximum(spot - 100.0, 0.0).mean() * math.exp(-0.05 * draws.shape[0] / 252.0)


def softmax(x: Floats) -> Any:
    """Return the softmax of each row."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layer_norm(x: Floats, gain: Floats, bias: Floats) -> Any:
    """Return each row with mean 0 and variance 1, times a gain plus a bias."""
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * gain + bias


def pairwise_distances(x: Floats, y: Floats) -> Any:
    """Return the distances between two clouds of points in space."""
    return np.sqrt(((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2))


def nbody(x: Floats, y: Floats, z: Floats, mass: Floats) -> Any:
    """Return how bodies pull one another, by axis."""
    dx = x - x[:, None]
    dy = y - y[:, None]
    dz = z - z[:, None]
    pull = mass * (dx * dx + dy * dy + dz * dz + 0.01) ** -1.5
    return (dx * pull).sum(axis=1), (dy * pull).sum(axis=1), (dz * pull).sum(axis=1)


def kmeans_step(points: Floats, centres: Floats) -> Any:
    """Return the label of each point, and the centres of those with one label."""
    apart = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    label = apart.argmin(axis=1)
    # torch.compile reads no `.dtype`: ones take the points' own.
    member = (label[:, None] == np.arange(centres.shape[0])) * np.ones_like(points[:, :1])
    return label, (member.T @ points) / member.sum(axis=0)[:, None]


def gray_scott(u: Floats, v: Floats) -> Any:
    """Return the inner points of two substances after one step of reaction and diffusion."""
    inner, other = u[1:-1, 1:-1], v[1:-1, 1:-1]
    spread_u = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * inner
    spread_v = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:] - 4.0 * other
    reaction = inner * other * other
    return (
        inner + 0.16 * spread_u - reaction + 0.06 * (1.0 - inner),
        other + 0.08 * spread_v + reaction - 0.122 * other,
    )


def jacobi(a: Floats) -> Any:
    """Return the inner points after one Jacobi sweep of the 5-point stencil."""
    return 0.2 * (a[1:-1, 1:-1] + a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


def moving_statistics(x: Floats) -> Any:
    """Return mean and standard deviation over a window of 8."""
    count = x.shape[0] - 7
    total = x[:count]
    square = total * total
    for start in range(1, 8):
        part = x[start : start + count]
        total = total + part
        square = square + part * part
    mean = total / 8.0
    return mean, np.sqrt(np.maximum(square / 8.0 - mean * mean, 0.0))


def equation_of_state(s: Floats, t: Floats, p: Floats) -> Any:
    """Return the density of sea water (EOS-80): salinity, Celsius, bar to kg/m³."""
    root = s * np.sqrt(s)
    water = 999.842594 + t * (
        6.793952e-2 + t * (-9.095290e-3 + t * (1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9)))
    )
    a = 8.24493e-1 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    b = -5.72466e-3 + t * (1.0227e-4 - t * 1.6546e-6)
    surface = water + a * s + b * root + 4.8314e-4 * s * s
    kw = 19652.21 + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 - t * 5.155288e-5)))
    ks = 54.6746 + t * (-0.603459 + t * (1.09987e-2 - t * 6.1670e-5))
    kr = 7.944e-2 + t * (1.6483e-2 - t * 5.3009e-4)
    aw = 3.239908 + t * (1.43713e-3 + t * (1.16092e-4 - t * 5.77905e-7))
    a1 = aw + s * (2.2838e-3 + t * (-1.0981e-5 - t * 1.6078e-6)) + 1.91075e-4 * root
    bw = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8)
    b1 = bw + s * (-9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10))
    return surface / (1.0 - p / (kw + ks * s + kr * root + p * (a1 + p * b1)))


# -- bandwidth -------------------------------------------------------------------------------------


def quadratic(x: Floats) -> Any:
    """Return a·x + b·x²."""
    return 2.5 * x + 1.5 * x**2


def total(x: Floats) -> Any:
    """Return the sum."""
    return x.sum()


def dot(x: Floats, y: Floats) -> Any:
    """Return the inner product."""
    return np.dot(x, y)


def dot_in_pairs(x: Floats, y: Floats) -> Any:
    """Return the inner product by NumPy's pairwise sum, 0.2 eps off at 2^27 float32.

    A BLAS adds up in as many running sums as its registers hold: 4604 eps off there.
    """
    return (x * y).sum()


# -- library ---------------------------------------------------------------------------------------


def matmul(a: Floats, b: Floats) -> Any:
    """Return the matrix product."""
    return a @ b


def covariance(x: Floats) -> Any:
    """Return the covariance of the columns."""
    centred = x - x.mean(axis=0)
    return centred.T @ centred / (x.shape[0] - 1.0)


def power_iteration(a: Floats, v: Floats) -> Any:
    """Return the leading eigenvector after five steps, and its eigenvalue."""
    for _ in range(5):
        v = a @ v
        v = v / np.sqrt((v * v).sum())
    return v, v @ (a @ v)


def fft_filter(signal: Floats, response: Floats) -> Any:
    """Return the signal with its spectrum weighted."""
    return np.fft.irfft(np.fft.rfft(signal) * response, signal.shape[0])


def sort(x: Floats) -> Any:
    """Return the elements in order."""
    return np.sort(x)


# -- oracles ---------------------------------------------------------------------------------------


def _call_price(outputs: Arrays, n: int) -> tuple[float, float, float]:
    # Black and Scholes in closed form; four standard errors of the mean of n / STEPS paths, whose
    # pay-off has about the spread of the underlying, 100 · 0.2 · √years.
    years, normal = STEPS / 252.0, NormalDist()
    root = 0.2 * math.sqrt(years)
    up = (0.05 + 0.02) * years / root
    worth = 100.0 * (normal.cdf(up) - math.exp(-0.05 * years) * normal.cdf(up - root))
    return float(outputs[0]), worth, 4.0 * 100.0 * root / math.sqrt(n / STEPS)


def _image_error(outputs: Arrays, n: int) -> tuple[float, float, float]:
    # Published for 33 million pixels; its terms have a standard deviation of 0.52 (drawn), and
    # below that number four standard errors are more than the published ± 1e-4.
    return float(outputs[1]), 0.28508, max(1e-4, 4.0 * 0.52 / math.sqrt(n))


def _chain_mean(outputs: Arrays, n: int) -> tuple[float, float, float]:
    # Published to five digits, for a million points and more; the ends of a short line weigh more.
    return float(outputs[0].mean(dtype=np.float64)), 0.14338, 1e-5 + 4.0 / n


def _sea_check() -> float:
    # UNESCO technical paper 44 gives this density as a check value: 1062.53817 for 35, 25 °C, 1000.
    return float(equation_of_state(np.full(1, 35.0), np.full(1, 25.0), np.full(1, 1000.0))[0])


def _sea_oracle(outputs: Arrays, n: int) -> tuple[float, float, float]:
    return _sea_check(), 1062.53817, 5e-6


def _per_element(flops: float) -> Callable[[int], float]:
    return lambda n: flops * n


_K = "(1/(1+0.2316419*abs({d})))"
_TAIL = (
    "(0.3989422804*exp(-0.5*{d}*{d})*{k}*(0.31938153+{k}*(-0.356563782+{k}*(1.781477937"
    "+{k}*(-1.821255978+{k}*1.330274429)))))"
)
_UP = "((log(price/strike)+0.065*years)/(0.3*sqrt(years)))"
_DOWN = f"({_UP}-0.3*sqrt(years))"


def _normal(d: str) -> str:
    tail = _TAIL.format(d=d, k=_K.format(d=d))
    return f"where({d}<0,{tail},1-{tail})"


_CALL = f"(price*{_normal(_UP)}-strike*exp(-0.02*years)*{_normal(_DOWN)})"
_Y0 = "(sin(x)*exp(-x/10))"
_Y1 = f"({_Y0}*cos(x/4)+0.25*{_Y0}*{_Y0})"

_LIST = (
    Program(
        "chain", "fused", chain, between(0.1, 4.0, 2), _per_element(7), 2, live=5,
        expressions=("sqrt(x*x+y*y)*exp(-x)+sin(y)*0.5",),
    ),
    Program(
        "chain_sum", "fused", chain_sum, between(0.1, 4.0, 2), _per_element(8), 2, live=5,
        reduces=True, expressions=("sum(sqrt(x*x+y*y)*exp(-x)+sin(y)*0.5)",),
    ),
    # The logarithm of a ratio near 1, over a small root: what is lost there is lost twice.
    Program(
        "black_scholes", "fused", black_scholes, market, _per_element(50), 4, live=12,
        within_eps=128, expressions=(_CALL, f"{_CALL}-price+strike*exp(-0.02*years)"),
    ),
    Program(
        "elementwise", "fused", elementwise, line, _per_element(9), 4, live=5,
        expressions=(f"tanh({_Y1})+0.1*{_Y1}",), oracle=_chain_mean, least=1 << 14,
    ),
    Program(
        "image_normalise", "fused", image_normalise, images, _per_element(12), 1, live=4,
        within_eps=64, reduces=True, oracle=_image_error,
    ),
    Program(
        "monte_carlo", "fused", monte_carlo, draws, _per_element(3), 1, live=1.3,
        within_eps=64, reduces=True, oracle=_call_price,
    ),
    Program("softmax", "fused", softmax, rows, _per_element(4), 1, live=4, reduces=True),
    Program(
        "layer_norm", "fused", layer_norm, layer, _per_element(8), live=5, reduces=True
    ),
    Program(
        "pairwise_distances", "fused", pairwise_distances, two_clouds, _per_element(9), live=7,
        elements=lambda sizes: sizes[0] // 3 * (sizes[1] // 3),
    ),
    Program(
        "nbody", "fused", nbody, bodies, _per_element(18), 1, live=7, reduces=True,
        elements=lambda sizes: sizes[0] * sizes[0],
    ),
    Program(
        "kmeans_step", "fused", kmeans_step, clusters, _per_element(8), live=6, reduces=True,
        elements=lambda sizes: sizes[0] // 2 * CENTRES,
    ),
    Program("gray_scott", "fused", gray_scott, grid(2), _per_element(20), live=8),
    Program("jacobi", "fused", jacobi, grid(1), _per_element(5), live=4),
    Program(
        "moving_statistics", "fused", moving_statistics, between(0.0, 1.0), _per_element(27),
        live=7, within_eps=32,
    ),
    Program(
        "equation_of_state", "fused", equation_of_state,
        sea, _per_element(80), live=10,
        oracle=_sea_oracle,
    ),
    Program(
        "quadratic", "bandwidth", quadratic, between(0.0, 1.0), _per_element(4), live=4,
        expressions=("2.5*x+1.5*x*x",),
    ),
    Program(
        "sum", "bandwidth", total, between(0.0, 1.0), _per_element(1), live=1, reduces=True,
        expressions=("sum(x)",),
    ),
    Program(
        "dot", "bandwidth", dot, between(0.0, 1.0, 2), _per_element(2), live=3, reduces=True,
        exactly=dot_in_pairs,
        expressions=("sum(x*y)",),
    ),
    Program(
        "matmul", "library", matmul, grid(2), lambda n: 2.0 * n**1.5, live=3, reduces=True
    ),
    Program(
        "covariance", "library", covariance, table, _per_element(2 * FEATURES), live=2,
        reduces=True,
    ),
    Program(
        "power_iteration", "library", power_iteration, symmetric, _per_element(12), live=3,
        reduces=True,
    ),
    Program(
        "fft_filter", "library", fft_filter, signal, lambda n: 5.0 * n * math.log2(n), live=5,
        reduces=True,
    ),
    Program("sort", "library", sort, between(0.0, 1.0), lambda n: n * math.log2(n), live=2),
)  # fmt: skip

PROGRAMS: Mapping[str, Program] = {program.name: program for program in _LIST}
