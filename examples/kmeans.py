"""Group points around k centres: k-means on seeded blobs in the plane.

Algorithm: Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28
(1982): every point goes to its nearest centre, every centre to the mean of its points, until no
point changes. A centre that lost all its points is put on the point that is farthest from its own
centre, as is common practice.
"""

from __future__ import annotations

import argparse

import numpy as np


def make_blobs(count: int, blobs: int, rng: np.random.Generator) -> np.ndarray:
    """Return points in the plane, drawn from round normal clouds that stand in a circle."""
    angles = 2 * np.pi * np.arange(blobs) / blobs
    centres = 10.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    widths = rng.uniform(0.6, 1.8, size=blobs)
    member = rng.integers(blobs, size=count)
    return centres[member] + widths[member, np.newaxis] * rng.standard_normal((count, 2))


def first_centres(k: int, rng: np.random.Generator) -> np.ndarray:
    """Return k places drawn evenly from the square in which the blobs stand."""
    return rng.uniform(-14.0, 14.0, size=(k, 2))


def squared_distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the squared distance of every point from every centre."""
    offset = points[:, np.newaxis, :] - centres[np.newaxis, :, :]
    return (offset * offset).sum(axis=2)


def means_by_label(points: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the points of each label (NaN where it has none) and their numbers."""
    sizes = np.bincount(labels, minlength=k)
    totals = [np.bincount(labels, weights=column, minlength=k) for column in points.T]
    with np.errstate(invalid="ignore"):
        return np.stack(totals, axis=1) / sizes[:, np.newaxis], sizes


def kmeans(
    points: np.ndarray, centres: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres, labels and squared distances after at most `rounds` rounds, one line each."""
    k = len(centres)
    labels = np.full(len(points), -1)
    for number in range(1, rounds + 1):
        distances = squared_distances(points, centres)
        previous, labels = labels, distances.argmin(axis=1)
        nearest = distances.min(axis=1)
        moved = np.count_nonzero(labels != previous)
        centres, sizes = means_by_label(points, labels, k)
        empty = np.flatnonzero(sizes == 0)
        note = ""
        if len(empty):
            farthest = np.argsort(nearest)[::-1]
            centres[empty] = points[farthest[: len(empty)]]
            note = f"  {len(empty)} empty"
        print(f"{number:5d}{nearest.sum():20.3f}{moved:10d}{note}")
        if moved == 0:
            break
    return centres, labels, nearest


def main() -> None:
    """Make the points, group them, and print the groups from left to right."""
    parser = argparse.ArgumentParser(description="k-means on seeded blobs.")
    parser.add_argument("--size", type=int, default=2**18, help="points (default: 262144)")
    parser.add_argument("--k", type=int, default=8, help="centres (default: 8)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds at most (default: 20)")
    parser.add_argument("--seed", type=int, default=28)
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    start = first_centres(options.k, rng)
    points = make_blobs(options.size, options.k, rng)
    print(f"{options.size} points, {options.k} centres")
    print("round             inertia     moved")
    centres, labels, nearest = kmeans(points, start, options.rounds)

    print(f"\n{'x':>10}{'y':>10}{'points':>10}{'radius':>10}")
    for group in np.argsort(centres[:, 0]):
        mine = labels == group
        radius = np.sqrt(nearest[mine].mean())
        x, y = centres[group]
        print(f"{x:10.5f}{y:10.5f}{np.count_nonzero(mine):10d}{radius:10.5f}")


if __name__ == "__main__":
    main()
