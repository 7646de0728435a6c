"""Price options: Black-Scholes over a grid of strikes and spots, and one call by Monte Carlo.

Formulas:
- prices and greeks: Black and Scholes, "The Pricing of Options and Corporate Liabilities",
  Journal of Political Economy 81 (1973), without dividends;
- normal distribution: algorithm 5666 of Hart, "Computer Approximations" (1968), in the form given
  by West, "Better approximations to cumulative normal functions", Wilmott (2005); its absolute
  error is below 1e-15;
- Monte Carlo: geometric Brownian motion in steps, antithetic pairs, as in Glasserman, "Monte Carlo
  Methods in Financial Engineering" (2003), section 4.2.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np

RATE = 0.03
NUMERATOR = (
    3.52624965998911e-02,
    0.700383064443688,
    6.37396220353165,
    33.912866078383,
    112.079291497871,
    221.213596169931,
    220.206867912376,
)
DENOMINATOR = (
    8.83883476483184e-02,
    1.75566716318264,
    16.064177579207,
    86.7807322029461,
    296.564248779674,
    637.333633378831,
    793.826512519948,
    440.413735824752,
)


class Quote(NamedTuple):
    """Prices of a call and a put, and the sensitivities that both share or the call has."""

    call: np.ndarray
    put: np.ndarray
    delta: np.ndarray
    gamma: np.ndarray
    vega: np.ndarray


def horner(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Return the polynomial, highest power first."""
    total = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def normal_cdf(x: np.ndarray) -> np.ndarray:
    """Return the standard normal distribution function (Hart, West)."""
    size = np.abs(x)
    bell = np.exp(-0.5 * size * size)
    near = bell * horner(NUMERATOR, size) / horner(DENOMINATOR, size)
    fraction = size + 1 / (size + 2 / (size + 3 / (size + 4 / (size + 0.65))))
    far = bell / (fraction * math.sqrt(2 * math.pi))
    tail = np.where(size < 5 * math.sqrt(2), near, far)
    return np.where(x > 0, 1 - tail, tail)


def black_scholes(
    spot: np.ndarray, strike: np.ndarray, years: float, volatility: np.ndarray
) -> Quote:
    """Return prices and greeks; spot, strike and volatility broadcast."""
    spread = volatility * math.sqrt(years)
    discount = math.exp(-RATE * years)
    d1 = (np.log(spot / strike) + (RATE + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    delta = normal_cdf(d1)
    call = spot * delta - strike * discount * normal_cdf(d2)
    put = strike * discount * normal_cdf(-d2) - spot * normal_cdf(-d1)
    density = np.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    return Quote(
        call=call,
        put=put,
        delta=delta,
        gamma=density / (spot * spread),
        vega=spot * density * math.sqrt(years),
    )


def smile(spot: np.ndarray, strike: np.ndarray) -> np.ndarray:
    """Return a volatility that rises away from the money."""
    moneyness = np.log(strike / spot)
    return 0.18 - 0.05 * moneyness + 0.12 * moneyness**2


def price_grid(size: int) -> None:
    """Price size x size options at three maturities and print their averages."""
    spot = np.linspace(60.0, 140.0, size).reshape(size, 1)
    strike = np.linspace(70.0, 130.0, size).reshape(1, size)
    volatility = smile(spot, strike)
    print(f"{size} x {size} options, volatility {volatility.min():.6f} to {volatility.max():.6f}")
    names = ("call", "put", "delta", "gamma", "vega", "worth > 5", "parity")
    print(f"{'years':>5}" + "".join(f"{name:>12}" for name in names))
    for years in (0.25, 1.0, 3.0):
        quote = black_scholes(spot, strike, years, volatility)
        forward = spot - strike * math.exp(-RATE * years)
        gap = np.abs(quote.call - quote.put - forward).max()
        means = [values.mean() for values in quote]
        worth = 100 * np.count_nonzero(quote.call > 5.0) / quote.call.size
        print(f"{years:5.2f}" + "".join(f"{mean:12.7f}" for mean in means), end="")
        print(f"{worth:10.2f} %{'holds' if gap < 1e-11 else f'off by {gap:.1e}':>12}")


def check_cdf() -> None:
    """Compare the distribution function with that of the C library and print the verdict."""
    x = np.linspace(-9.0, 9.0, 3601)
    exact = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])
    error = np.abs(normal_cdf(x) - exact).max()
    print(f"normal distribution: largest error {'below' if error < 1e-15 else 'NOT below'} 1e-15")


def simulate_call(
    spot: float, strike: float, years: float, volatility: float, paths: int, steps: int, seed: int
) -> tuple[float, float]:
    """Return the price of a call and its standard error, from antithetic pairs of paths."""
    rng = np.random.default_rng(seed)
    drift = (RATE - 0.5 * volatility**2) * years / steps
    spread = volatility * math.sqrt(years / steps)
    up = np.full(paths, spot)
    down = np.full(paths, spot)
    for _ in range(steps):
        shock = spread * rng.standard_normal(paths)
        up *= np.exp(drift + shock)
        down *= np.exp(drift - shock)
    payoff = 0.5 * (np.maximum(up - strike, 0.0) + np.maximum(down - strike, 0.0))
    payoff *= math.exp(-RATE * years)
    return float(payoff.mean()), float(payoff.std(ddof=1) / math.sqrt(paths))


def main() -> None:
    """Price the grid, then one call both ways."""
    parser = argparse.ArgumentParser(description="Black-Scholes and Monte Carlo prices.")
    parser.add_argument(
        "--size", type=int, default=1024, help="the grid and the paths have size² (default: 1024)"
    )
    parser.add_argument("--steps", type=int, default=12, help="steps of a path (default: 12)")
    parser.add_argument("--seed", type=int, default=1973)
    options = parser.parse_args()

    check_cdf()
    price_grid(options.size)

    spot, strike, years, volatility = 100.0, 105.0, 1.0, 0.2
    quote = black_scholes(np.array([spot]), np.array([strike]), years, np.array([volatility]))
    closed = float(quote.call[0])
    paths = options.size**2
    price, error = simulate_call(
        spot, strike, years, volatility, paths, options.steps, options.seed
    )
    print(f"call at {strike:.0f} on {spot:.0f}, {years:.0f} year, volatility {volatility}")
    print(f"  closed form          {closed:.10f}")
    print(f"  {paths} pairs of paths  {price:.8f} +- {error:.8f}")
    print(f"  distance             {(price - closed) / error:.4f} standard errors")


if __name__ == "__main__":
    main()
