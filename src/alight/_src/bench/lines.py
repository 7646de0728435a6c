"""A run as text: a line for each row as it is done, and all of it at the end."""

from __future__ import annotations

from collections.abc import Sequence

from alight._src.base.formatting import readable_seconds
from alight._src.bench.rows import Cell, Row
from alight._src.bench.run import Run, grouped, size_in_words
from alight._src.explain.text_tables import aligned

__all__ = ["row_line", "text"]

_SLOWEST = 15


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    found = []
    for peer in peers:
        cell = row.cells.get(peer)
        if cell is None:
            found.append("")
        elif cell.counts and cell.seconds is not None:
            found.append(readable_seconds(cell.seconds))
        else:
            found.append("off" if (cell.reason or "").startswith("off") else "–")
    return found


def row_line(row: Row) -> str:
    """Return one finished row as a line."""
    name = f"{row.case.program} {row.case.dtype} {size_in_words(row.case.n)}"
    if row.skipped is not None:
        return f"{name}: skipped, {row.skipped}"
    told = [
        f"{p} {readable_seconds(c.seconds)}"
        for p, c in row.cells.items()
        if c.counts and c.seconds is not None
    ]
    ratio, best = row.ratio(), row.best_peer()
    end = ""
    if ratio is not None and best is not None:
        end = f"; alight takes {ratio:.2f} x {best[0]}'s time"
    faults = "".join(f"\n  FAULT {fault}" for fault in row.faults)
    return f"{name}: {', '.join(told)}{end} [{readable_seconds(row.spent_seconds)}]{faults}"


def text(run: Run) -> str:
    """Return the run as plain tables and lines."""
    machine, blas = run.machine, run.machine["blas"]
    peers = [peer for peer in run.peers if peer not in run.absent]
    lines = [
        f"alight {machine['alight']}, {machine['cpu']}, {machine['processors']} processors, "
        f"Python {machine['python']}; load {_loads(machine['load_before'])} before, "
        f"{_loads(machine['load_after'])} after; {run.seconds / 60:.1f} min",
        f"NumPy's BLAS: {blas['name']} {blas['version']}, "
        + (", ".join(blas["settings"]) or "nothing set"),
        "peers: " + ", ".join(f"{peer} {run.peers[peer]['version']}" for peer in peers),
        *(f"  no {peer}: {reason}" for peer, reason in run.absent.items()),
        _calibration(run),
    ]
    if run.bandwidth is not None:
        lines.append(
            f"memory: {run.bandwidth.memory / 1e9:.1f} GB/s, by reading alone "
            f"{run.bandwidth.reading / 1e9:.1f}, last cache ends at "
            f"{run.bandwidth.knee / 2**20:.1f} MiB ({run.bandwidth.threads} threads)"
        )
    header = [
        "program",
        "dtype",
        "n",
        *peers,
        "best",
        "/ best",
        "/ NumPy",
        "GB/s",
        "first call",
        "settled",
    ]
    cells = []
    for (program, dtype), rows in grouped(run.rows):
        for row in rows:
            if row.skipped is None:
                cells.append([program, dtype, size_in_words(row.case.n), *_numbers(row, peers)])
    lines += ["", "Warm calls, medians of interleaved turns; – cannot, off: wrong by more than"]
    lines += ["the tolerance. / best, / NumPy: alight's time over that of the best other peer and"]
    lines += [
        "of NumPy, below 1 where alight is quicker. GB/s, first call and settled are alight's;"
    ]
    lines += [
        "settled: after how many calls NumPy or kernels have it for good, and the time lost on"
    ]
    lines += ["the way.", ""]
    lines += aligned(header, cells)
    lines += [*_steadiness(run), *_processes(run)]
    lines += ["", *_reasons(run), *_skipped(run), "", *_slowest(run), "", "Must show"]
    lines += [f"  {line}" for line in run.shown]
    if run.faults:
        lines += ["", "FAULTS: these rows count for nothing", *(f"  {f}" for f in run.faults)]
    return "\n".join(lines)


def _calibration(run: Run) -> str:
    said = run.calibration.result.splitlines()
    if not said:
        return "not calibrated"
    return f"calibration, {readable_seconds(run.calibration.seconds)}: {said[0]}"


def _loads(load: Sequence[float] | None) -> str:
    return "unknown" if load is None else f"{load[0]:.2f}"


def _numbers(row: Row, peers: Sequence[str]) -> list[str]:
    best, ratio, numpy = row.best_peer(), row.ratio(), row.ratio("numpy")
    ours = row.cells.get("alight")
    seconds = row.seconds("alight")
    return [
        *_cells(row, peers),
        best[0] if best else "",
        "" if ratio is None else f"{ratio:.2f}",
        "" if numpy is None else f"{numpy:.3f}",
        "" if seconds is None else f"{row.bytes / seconds / 1e9:.3g}",
        "" if ours is None or ours.cold_seconds is None else readable_seconds(ours.cold_seconds),
        "" if ours is None or ours.settling_seconds is None else _settled(ours),
    ]


def _settled(cell: Cell) -> str:
    calls = "not yet" if cell.settled_calls is None else f"{cell.settled_calls:,}"
    return f"{calls}, {readable_seconds(cell.settling_seconds or 0.0)}"


def _steadiness(run: Run) -> list[str]:
    """Return what there is to say of slow processors."""
    slow = [row.unsteady for row in run.rows if row.skipped is None and row.unsteady]
    if not slow:
        return []
    return [
        "",
        f"Too few turns met a steady processor in {len(slow)} rows; {len(run.timed_again)} rows "
        "have the times of a second, steadier run.",
    ]


def _processes(run: Run) -> list[str]:
    """Return what there is to say of rows that were timed in several processes."""
    counts = [
        max(counts)
        for row in run.rows
        if (counts := [cell.processes for cell in row.cells.values()]) and max(counts) > 1
    ]
    paired = [len(row.paired) for row in run.rows if row.paired]
    told = []
    if counts:
        told += [
            f"{len(counts)} rows over or near a limit were timed in up to {max(counts)} processes "
            "of each peer: the medians of their medians."
        ]
    if paired:
        told += [
            f"In {len(paired)} rows over or near a limit of NumPy's time alight and NumPy had "
            f"turns in one process, in {min(paired)} to {max(paired)} of them: what stands against "
            "NumPy's time is the median of these."
        ]
    return ["", *told] if told else []


def _reasons(run: Run) -> list[str]:
    """Return why peers have no time, each reason once."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in run.rows:
        for cell in row.cells.values():
            if cell.reason is not None:
                where = found.setdefault((cell.peer, cell.reason[:110]), [])
                where.append(f"{row.case.program} {row.case.dtype}")
    return [
        f"  {peer} on {', '.join(dict.fromkeys(where))}: {reason}"
        for (peer, reason), where in found.items()
    ]


def _skipped(run: Run) -> list[str]:
    return [f"  {row_line(row)}" for row in run.rows if row.skipped is not None]


def _slowest(run: Run) -> list[str]:
    """Return the rows where alight is furthest behind, with what it ran there."""
    ranked = sorted(
        ((ratio, row) for row in run.rows if (ratio := row.ratio()) is not None and not row.faults),
        key=lambda found: -found[0],
    )
    lines = [f"Where alight's time over the best peer's is largest (of {len(ranked)} rows)"]
    for ratio, row in ranked[:_SLOWEST]:
        best = row.best_peer()
        assert best is not None
        name = f"{row.case.program} {row.case.dtype} {size_in_words(row.case.n)}"
        lines.append(f"  {ratio:.2f} x {best[0]}: {name}")
        lines += [f"      {line}" for line in row.explained[:3]]
    return lines
