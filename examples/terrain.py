"""Terrain analysis of a real elevation model: slope, aspect, hillshade, relief, curvature.

The model is the Jacksboro fault (Tennessee, USA; SRTM, 3 arc seconds) that comes with matplotlib,
repeated to a larger grid with every other copy mirrored, so that the ground has no cliff at a seam.

Formulas:
- gradient: third-order finite difference of Horn, "Hill shading and the reflectance map",
  Proceedings of the IEEE 69 (1981); slope and aspect from it, aspect as a compass bearing;
- hillshade: Lambert's cosine law, as in Burrough and McDonnell, "Principles of Geographical
  Information Systems" (1998), here between 0 (shadow) and 1 (facing the sun);
- relief: height over the smoothed ground, the topographic position of Weiss (2001), smoothed by
  repeated binomial 1-4-6-4-1 filters;
- curvature: of Zevenbergen and Thorne, "Quantitative analysis of land surface topography" (1987),
  in 1/(100 m), positive on a ridge;
- metres per degree: those of matplotlib's own "Topographic hillshading" example.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.cbook import get_sample_data

COMPASS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
SLOPE_CLASSES = (0.0, 2.0, 5.0, 10.0, 15.0, 30.0, 90.0)
PLACES = ((10, 20), (60, 350), (123, 200), (171, 95), (240, 310), (333, 44))


class Ground(NamedTuple):
    """Elevation in metres, rows from north to south, and the size of a cell in metres."""

    elevation: np.ndarray
    cell_x: float
    cell_y: float


class Terrain(NamedTuple):
    """What the analysis finds, one value per cell."""

    slope: np.ndarray
    aspect: np.ndarray
    hillshade: np.ndarray
    relief: np.ndarray
    curvature: np.ndarray


def load_ground(copies: int) -> Ground:
    """Return the elevation model, repeated `copies` times each way."""
    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as model:
        elevation = model["elevation"].astype(np.float64)
        metres_per_degree = 111200.0
        cell_y = metres_per_degree * float(model["dy"])
        north_shrink = float(np.cos(np.radians(model["ymin"])))
        cell_x = metres_per_degree * float(model["dx"]) * north_shrink
    return Ground(repeat_mirrored(elevation, copies), cell_x, cell_y)


def repeat_mirrored(tile: np.ndarray, copies: int) -> np.ndarray:
    """Return `copies` x `copies` of the tile, every other one mirrored."""
    rows, columns = tile.shape
    four = np.block([[tile, tile[:, ::-1]], [tile[::-1], tile[::-1, ::-1]]])
    pairs = (copies + 1) // 2
    return np.tile(four, (pairs, pairs))[: rows * copies, : columns * copies]


def gradient(ground: Ground) -> tuple[np.ndarray, np.ndarray]:
    """Return the rise per metre eastwards and northwards (Horn)."""
    z = np.pad(ground.elevation, 1, mode="edge")
    north_west, north, north_east = z[:-2, :-2], z[:-2, 1:-1], z[:-2, 2:]
    west, east = z[1:-1, :-2], z[1:-1, 2:]
    south_west, south, south_east = z[2:, :-2], z[2:, 1:-1], z[2:, 2:]
    rise_east = (north_east + 2 * east + south_east) - (north_west + 2 * west + south_west)
    rise_north = (north_west + 2 * north + north_east) - (south_west + 2 * south + south_east)
    return rise_east / (8 * ground.cell_x), rise_north / (8 * ground.cell_y)


def smooth(values: np.ndarray, passes: int) -> np.ndarray:
    """Return the values after `passes` binomial filters along both axes, edges repeated."""
    for _ in range(passes):
        p = np.pad(values, ((2, 2), (0, 0)), mode="edge")
        values = (p[:-4] + p[4:] + 4 * (p[1:-3] + p[3:-1]) + 6 * p[2:-2]) / 16
        p = np.pad(values, ((0, 0), (2, 2)), mode="edge")
        values = (p[:, :-4] + p[:, 4:] + 4 * (p[:, 1:-3] + p[:, 3:-1]) + 6 * p[:, 2:-2]) / 16
    return values


def shade(slope: np.ndarray, aspect: np.ndarray, azimuth: float, altitude: float) -> np.ndarray:
    """Return the light that falls on the ground, 0 to 1; all angles in degrees."""
    zenith = np.radians(90.0 - altitude)
    tilt = np.radians(slope)
    turn = np.radians(azimuth - aspect)
    light = np.cos(zenith) * np.cos(tilt) + np.sin(zenith) * np.sin(tilt) * np.cos(turn)
    # Flat ground has no aspect; its light depends on the height of the sun only.
    light = np.where(slope > 0, light, np.cos(zenith))
    return np.maximum(light, 0.0)


def bend(elevation: np.ndarray, cell_x: float, cell_y: float) -> np.ndarray:
    """Return the curvature in 1/(100 m); 0 on the border."""
    curvature = np.zeros_like(elevation)
    middle = elevation[1:-1, 1:-1]
    along_x = (elevation[1:-1, :-2] + elevation[1:-1, 2:] - 2 * middle) / cell_x**2
    along_y = (elevation[:-2, 1:-1] + elevation[2:, 1:-1] - 2 * middle) / cell_y**2
    curvature[1:-1, 1:-1] = -100 * (along_x + along_y)
    return curvature


def analyse(ground: Ground) -> Terrain:
    """Return slope and aspect in degrees, hillshade, relief in metres and curvature."""
    east, north = gradient(ground)
    slope = np.degrees(np.arctan(np.sqrt(east * east + north * north)))
    downhill = np.degrees(np.arctan2(-east, -north)) % 360.0
    aspect = np.where(slope > 0, downhill, np.nan)
    hillshade = shade(slope, downhill, azimuth=315.0, altitude=45.0)
    relief = ground.elevation - smooth(ground.elevation, passes=4)
    curvature = bend(smooth(ground.elevation, passes=1), ground.cell_x, ground.cell_y)
    return Terrain(slope, aspect, hillshade, relief, curvature)


def summary(name: str, values: np.ndarray) -> str:
    """Return one line of the table: extremes, percentiles, mean and spread."""
    low, median, high = np.percentile(values, [5, 50, 95])
    numbers = (values.min(), low, median, high, values.max(), values.mean(), values.std())
    # Adding 0.0 turns the -0.0 that rounding can leave into 0.0.
    return f"{name:<10}" + "".join(f"{round(float(x), 4) + 0.0:11.4f}" for x in numbers)


def shares(counts: np.ndarray) -> str:
    """Return the counts as percentages of their sum."""
    return "".join(f"{100 * count / counts.sum():9.3f}" for count in counts)


def report(ground: Ground, terrain: Terrain) -> None:
    """Print the table."""
    rows, columns = ground.elevation.shape
    print(f"{rows} x {columns} cells of {ground.cell_x:.2f} m x {ground.cell_y:.2f} m")
    heads = ("min", "5%", "median", "95%", "max", "mean", "std")
    print(f"{'':<10}" + "".join(f"{head:>11}" for head in heads))
    print(summary("elevation", ground.elevation))
    for name, values in zip(Terrain._fields, terrain, strict=True):
        if name != "aspect":
            print(summary(name, values))

    slope, aspect, hillshade, relief, _ = terrain
    steep, _ = np.histogram(slope, bins=SLOPE_CLASSES)
    print("\nslope in degrees, % of the cells")
    print("".join(f"{f'{a:.0f}-{b:.0f}':>9}" for a, b in pairwise(SLOPE_CLASSES)))
    print(shares(steep))

    tilted = slope > 0
    octant = ((aspect[tilted] + 22.5) / 45.0).astype(np.int64) % 8
    print(f"\nfacing, % of the cells that are not flat ({np.count_nonzero(~tilted)} are)")
    print("".join(f"{name:>9}" for name in COMPASS))
    print(shares(np.bincount(octant, minlength=8)))

    # No class ends at 0.7071: flat ground, of which there is much, has exactly that light.
    light, _ = np.histogram(hillshade, bins=8, range=(0.0, 1.0))
    print("\nhillshade in eighths, % of the cells")
    print(shares(light))

    print("\n  row column elevation    slope   aspect    shade   relief")
    for row, column in PLACES:
        here = (ground.elevation, slope, aspect, hillshade, relief)
        _, *rest = (float(values[row, column]) for values in here)
        print(f"{row:5d} {column:6d} {ground.elevation[row, column]:9.0f}", end="")
        print("".join(f"{value + 0.0:9.3f}" for value in rest))


def draw(path: str, ground: Ground, terrain: Terrain) -> None:
    """Write a picture of the first copy of the model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = {
        "elevation (m)": (ground.elevation, "terrain"),
        "slope (degrees)": (terrain.slope, "viridis"),
        "aspect (degrees)": (terrain.aspect, "twilight"),
        "hillshade": (terrain.hillshade, "gray"),
        "relief (m)": (terrain.relief, "RdBu_r"),
        "curvature (1/100 m)": (terrain.curvature, "PuOr"),
    }
    figure, axes = plt.subplots(2, 3, figsize=(15, 9), layout="constrained")
    for axis, (title, (values, colours)) in zip(axes.flat, panels.items(), strict=True):
        picture = axis.imshow(values[:344, :403], cmap=colours)
        figure.colorbar(picture, ax=axis, shrink=0.7)
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Analyse, print, and draw when asked."""
    parser = argparse.ArgumentParser(description="Terrain analysis of a real elevation model.")
    parser.add_argument("--size", type=int, default=4, help="copies each way (default: 4)")
    parser.add_argument("--png", metavar="FILE", help="also draw the maps into FILE")
    options = parser.parse_args()
    ground = load_ground(options.size)
    terrain = analyse(ground)
    report(ground, terrain)
    if options.png:
        draw(options.png, ground, terrain)


if __name__ == "__main__":
    main()
