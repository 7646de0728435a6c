"""Which work on queues is known to come after which: by their own order, and by what is waited
for."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

__all__ = ["Mark", "QueueOrder"]

# Of a submission: its queue, and its number there. The host's own work is of no queue.
Mark = tuple[Hashable, int]
_HOST: Mark = ("", 0)


class QueueOrder:
    """What is going on: ``mark`` is the submission, of which queue and which of it."""

    def __init__(self) -> None:
        self.mark: Mark = _HOST
        self._seen: dict[Hashable, int] = {}
        self._waited: dict[Hashable, int] = {}
        self._after: dict[Mark, dict[Hashable, int]] = {}
        self._last: dict[Hashable, int] = {}

    @property
    def on_host(self) -> bool:
        """Tell whether what is going on is the host's own work."""
        return self.mark == _HOST

    def submit(self, queue: Hashable, after: Collection[Mark] = ()) -> Mark:
        """Have what is done next be a submission to a queue, which comes after that queue's last
        one, after what the host has waited for and after these; return its mark."""
        last = self._last.get(queue, 0)
        seen = dict(self._after.get((queue, last), ()))
        for other in (self._waited, *[self._after.get(mark, {}) for mark in after]):
            _join(seen, other)
        self._last[queue] = seen[queue] = last + 1
        self.mark = queue, last + 1
        self._seen = self._after[self.mark] = seen
        return self.mark

    def host(self, after: Mark | None = None) -> None:
        """Have what is done next be the host's own, which has waited for a submission."""
        if after is not None:
            _join(self._waited, self._after.get(after, {}))
        self.mark, self._seen = _HOST, self._waited

    def comes_after(self, mark: Mark) -> bool:
        """Tell whether what is going on comes after a submission, or is of the same queue."""
        queue, number = mark
        return mark == _HOST or queue == self.mark[0] or self._seen.get(queue, 0) >= number


def _join(seen: dict[Hashable, int], other: Mapping[Hashable, int]) -> None:
    for queue, number in other.items():
        seen[queue] = max(seen.get(queue, 0), number)
