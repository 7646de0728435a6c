"""Heat flow in a plate: explicit steps of the 2-D heat equation, in place.

The plate is square, of side 1 and diffusivity 1. Its upper edge follows a warm-cold cycle, its
lower edge is held at 0, its left and right edges are insulated; a hot disk lies in it at first.

Scheme: forward in time, centred in space, as in LeVeque, "Finite Difference Methods for Ordinary
and Partial Differential Equations" (2007), chapter 9; stable while the time step is at most a
quarter of the squared spacing. It is checked on the plate with all edges at 0, where
sin(pi x) sin(pi y) shrinks at each step by the factor 1 - 8 r sin(pi h / 2)^2 exactly.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

RATIO = 0.2  # time step over squared spacing


def step(u: np.ndarray) -> None:
    """Advance the inside of the plate by one time step."""
    u[1:-1, 1:-1] += RATIO * (
        u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
    )


def hold_edges(u: np.ndarray, upper: float) -> None:
    """Set the upper and lower edge and insulate the other two."""
    u[:, 0] = u[:, 1]
    u[:, -1] = u[:, -2]
    u[0, :] = upper
    u[-1, :] = 0.0


def hot_disk(size: int) -> np.ndarray:
    """Return a cold plate with a hot disk left of and above its centre."""
    y, x = np.meshgrid(np.linspace(0, 1, size), np.linspace(0, 1, size), indexing="ij")
    u = np.zeros((size, size))
    u[(x - 0.375) ** 2 + (y - 0.3125) ** 2 < 0.04] = 1.0
    return u


def mode_error(size: int, steps: int) -> float:
    """Return the largest error of the scheme on a mode whose discrete decay is known exactly."""
    spacing = 1.0 / (size - 1)
    wave = np.sin(math.pi * np.linspace(0, 1, size))
    mode = np.outer(wave, wave)
    u = mode.copy()
    for _ in range(steps):
        step(u)
    decay = 1.0 - 8.0 * RATIO * math.sin(math.pi * spacing / 2) ** 2
    return float(np.abs(u - decay**steps * mode).max())


def energy(u: np.ndarray) -> float:
    """Return the heat in the plate: the mean temperature times its area."""
    return float(u.mean())


def roughness(u: np.ndarray) -> float:
    """Return the integral of the squared gradient, which diffusion wears down."""
    return float(np.sum(np.diff(u, axis=0) ** 2) + np.sum(np.diff(u, axis=1) ** 2))


def main() -> None:
    """Run the plate and print its heat, roughness, extremes and some temperatures."""
    parser = argparse.ArgumentParser(description="Heat flow in a plate.")
    parser.add_argument("--size", type=int, default=768, help="points on a side (default: 768)")
    parser.add_argument("--steps", type=int, default=400, help="time steps (default: 400)")
    options = parser.parse_args()
    size, steps = options.size, options.steps

    error = mode_error(65, 500)
    print(f"known mode: error {'below' if error < 1e-13 else 'NOT below'} 1e-13")
    u = hot_disk(size)
    print(f"{size} x {size} points, {steps} steps")
    print(f"{'step':>6}{'energy':>13}{'roughness':>16}{'coldest':>13}{'hottest':>13}{'warm %':>13}")
    for number in range(steps + 1):
        if number % max(1, steps // 8) == 0:
            warm = 100.0 * np.count_nonzero(u > 0.1) / u.size
            print(f"{number:6d}{energy(u):13.8f}{roughness(u):16.8f}", end="")
            print(f"{u[1:-1].min():13.8f}{u[1:-1].max():13.8f}{warm:13.8f}")
        hold_edges(u, upper=0.5 * math.sin(2 * math.pi * number / 150))
        step(u)

    print("\ntemperatures down the upper half, at an eighth, a quarter and a half of the width")
    for row in np.linspace(0, size // 2, 9).astype(int):
        place = u[row, [size // 8, size // 4, size // 2]]
        print(f"{row:6d}" + "".join(f"{value:13.8f}" for value in place))


if __name__ == "__main__":
    main()
