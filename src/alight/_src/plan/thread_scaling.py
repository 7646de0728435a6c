"""What threads take that share a kernel's work, of what one thread takes alone."""

from __future__ import annotations

from alight._src.plan.curve import Curve

__all__ = ["all_share", "alone_seconds", "met", "shared_seconds", "together"]


def met(sharing: Curve, busy: float, beside: float) -> float:
    """Return the seconds of threads that meet, which are in what they take to share ``busy``
    seconds of computing and once more in what memory takes ``beside`` its stream: a kernel's
    threads meet once, and one alone meets nobody. All take part from where they save half of what
    they save at most."""
    seconds = together(sharing, busy)
    meeting = max(0.0, seconds - sharing.stream_seconds(busy))
    return min(meeting * min(2 * _shared(sharing, busy, seconds), 1.0), beside)


def _shared(sharing: Curve, alone: float, seconds: float) -> float:
    """Return how much of what takes one so long, and all of them these seconds, is shared: nothing
    where that is as long, all of it where they save what they save at most."""
    (before, first), (last, end) = sharing.knots[-2:]
    most = 1 - (end - first) / (last - before)
    if most <= 0 or alone <= 0:
        return 0.0
    return min(max(1 - seconds / alone, 0.0) / most, 1.0)


def together(sharing: Curve, alone: float) -> float:
    """Return the seconds that all threads take for so many of one: past the longest that was
    measured they go on at the pace of its end, since they meet once."""
    last, seconds = sharing.knots[-1]
    if alone <= last:
        return sharing.seconds_at(alone)
    before, less = sharing.knots[-2]
    return seconds + (alone - last) * (seconds - less) / (last - before)


def alone_seconds(sharing: Curve, seconds: float) -> float:
    """Return what takes one thread so long that all of them together take these seconds."""
    less = more = max(seconds, 0.0)
    while together(sharing, more) < seconds:
        less, more = more, 2 * more
    for _ in range(_HALVINGS):
        middle = (less + more) / 2
        less, more = (middle, more) if together(sharing, middle) < seconds else (less, middle)
    return more


# To a thousandth of what is looked for.
_HALVINGS = 10


def shared_seconds(sharing: Curve, alone: float, less: float) -> float:
    """Return the seconds that all threads take for so many of one, which are so many ``less`` where
    all take part, and in between as much of it as is shared."""
    seconds = together(sharing, alone)
    if not less:
        return seconds
    return together(sharing, alone - _shared(sharing, alone, seconds) * less)


def all_share(sharing: Curve) -> float:
    """Return the least seconds in which threads saved half of what they save at most."""
    shares = [seconds / alone for alone, seconds in sharing.knots]
    half = max((1 + min(shares)) / 2, min(shares))
    return next(s for (_, s), share in zip(sharing.knots, shares, strict=True) if share <= half)
