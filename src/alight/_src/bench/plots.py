"""A run as pictures: time against size, crossovers, share of the bandwidth limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alight._src.bench.programs import FAMILIES
from alight._src.bench.rows import Row
from alight._src.bench.run import Run, grouped

__all__ = ["draw"]

# Colours that stay apart for colour-blind readers (Okabe and Ito), alight's the darkest.
_COLOURS = {
    "numpy": "#999999", "alight": "#000000", "numexpr": "#E69F00", "numba": "#009E73",
    "jax": "#0072B2", "torch": "#D55E00", "cupy": "#CC79A7", "cupy.fuse": "#F0E442",
}  # fmt: skip

# Medians of so many turns tell no less apart (shows.py: what a library call may cost more).
_EQUAL = 1.05


def draw(run: Run, folder: Path) -> list[Path]:
    """Write the pictures as PNG and return their paths. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    made = []
    for family in FAMILIES:
        parts = [(key, rows) for key, rows in grouped(run.rows) if rows[0].case.of.family == family]
        parts = [(key, timed) for key, rows in parts if (timed := _timed(rows))]
        if parts:
            made.append(_times(Figure, parts, folder / f"time-{family}.png"))
    every = [(key, timed) for key, rows in grouped(run.rows) if (timed := _timed(rows))]
    if every:
        made.append(_crossovers(Figure, every, folder / "crossovers.png"))
    if run.bandwidth is not None and every:
        made.append(_shares(Figure, run, every, folder / "bandwidth.png"))
    return made


_Part = tuple[tuple[str, str], list[Row]]


def _timed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if any(cell.counts for cell in row.cells.values())]


def _times(figure_class: Any, parts: Sequence[_Part], path: Path) -> Path:
    columns = min(4, len(parts))
    height = math.ceil(len(parts) / columns)
    figure = figure_class(figsize=(3.4 * columns, 2.6 * height), layout="constrained")
    axes = figure.subplots(height, columns, squeeze=False)
    for place in range(height * columns):
        ax = axes[place // columns][place % columns]
        if place >= len(parts):
            ax.set_axis_off()
            continue
        (program, dtype), rows = parts[place]
        for peer, colour in _COLOURS.items():
            points = [(r.case.n, s * 1e9 / r.case.n) for r in rows if (s := r.seconds(peer))]
            if points:
                wide = 2.2 if peer == "alight" else 1.1
                ax.plot(*zip(*points, strict=True), ".-", color=colour, lw=wide, label=peer)
        ax.set(xscale="log", yscale="log", title=f"{program} {dtype}")
        ax.title.set_fontsize(9)
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.3)
    _legend(figure)
    figure.supxlabel("elements", fontsize=9)
    figure.supylabel("ns for each element, warm (median)", fontsize=9)
    figure.savefig(path, dpi=110)
    return path


def _crossovers(figure_class: Any, parts: Sequence[_Part], path: Path) -> Path:
    figure = figure_class(figsize=(8.5, 0.24 * len(parts) + 1.2), layout="constrained")
    ax = figure.subplots()
    lowest = min(row.case.n for _, rows in parts for row in rows)
    for place, (_, rows) in enumerate(parts):
        for row in rows:
            ratio = row.ratio()
            if ratio is None:
                continue
            # What is NumPy's own call is within some per cent of it, on either side.
            behind = (row.ratio("numpy") or math.inf) > _EQUAL
            marker = "x" if ratio >= 1 and behind else "o"
            face = "#0072B2" if ratio < 1 else "none"
            colour = "#D55E00" if marker == "x" else "#0072B2"
            shape = {"color": colour} if marker == "x" else {"facecolor": face, "edgecolor": colour}
            ax.scatter(row.case.n, place, marker=marker, s=34, **shape)
    ax.set_yticks(range(len(parts)), [" ".join(key) for key, _ in parts], fontsize=7)
    ax.set(xscale="log", xlabel="elements", xlim=(lowest / 2, None), ylim=(len(parts) - 0.5, -0.5))
    ax.set_title(
        "filled: alight ahead of every peer; hollow: of NumPy, or equal to it; cross: behind NumPy",
        fontsize=8,
    )
    ax.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    return path


def _shares(figure_class: Any, run: Run, parts: Sequence[_Part], path: Path) -> Path:
    assert run.bandwidth is not None
    figure = figure_class(figsize=(8.5, 0.24 * len(parts) + 1.2), layout="constrained")
    ax = figure.subplots()
    for place, (_, rows) in enumerate(parts):
        row = rows[-1]  # the largest: beyond the caches, if the run went so far
        for peer, colour in _COLOURS.items():
            seconds = row.seconds(peer)
            if seconds:
                # Of what memory gives where the row is beyond the caches, else of their own limit.
                beyond = row.bytes > run.bandwidth.knee
                limit = run.bandwidth.memory if beyond else run.bandwidth.limit(row.bytes)
                share = row.bytes / seconds / limit
                ax.scatter(share, place, color=colour, s=30, label=peer)
    ax.set_yticks(
        range(len(parts)), [f"{' '.join(k)} {rows[-1].case.n:.2g}" for k, rows in parts], fontsize=7
    )
    ax.axvline(1.0, color="black", lw=0.8)
    ax.set(xscale="log", xlabel="share of the bandwidth limit, largest size that was run")
    ax.set_ylim(len(parts) - 0.5, -0.5)
    _legend(figure)
    ax.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    return path


def _legend(figure: Any) -> None:
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        found, labels = ax.get_legend_handles_labels()
        handles.update(zip(labels, found, strict=True))
    figure.legend(
        list(handles.values()), list(handles), loc="outside upper center", ncols=6, fontsize=8
    )
