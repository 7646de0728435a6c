"""What copies between the host and a device take, by direction, bytes and kind of host memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from alight._src.base.failures import failures, ignoring_failures
from alight._src.measure.findings import COPY_BYTES, Findings

if TYPE_CHECKING:
    from alight._src.measure.probe_bench import Bench

__all__ = ["copied", "rarely_copied"]


def copied(
    bench: Bench, found: Findings, sizes: Sequence[int], kinds: Sequence[str]
) -> Iterator[str]:
    """Measure links in these sizes and kinds of host memory, as far as that was not done; what the
    device does not have is left out."""
    for kind in kinds:
        for nbytes in sizes:
            for direction in ("upload", "download") if kind else ("upload", "download", "device"):
                if nbytes in found.links.get(direction + kind, ()):
                    continue
                try:
                    timing = bench.time_copy(direction, nbytes, kind)
                except failures():  # drivers raise anything for memory they do not have
                    break
                found.links.setdefault(direction + kind, {})[nbytes] = timing
                yield f"{direction}{kind} {nbytes}"


def rarely_copied(bench: Bench, found: Findings) -> Iterator[str]:
    """Measure copies of pinned and of registered memory, then those both ways at once."""
    yield from copied(bench, found, COPY_BYTES, ("_pinned", "_registered"))
    nbytes = COPY_BYTES[3]
    with ignoring_failures():
        found.both_seconds = bench.time_both_ways(nbytes).seconds
        yield f"both ways {nbytes}"
