"""What the machine lacks for the moment, as errors say it: what failed for that is tried again."""

from __future__ import annotations

import errno

__all__ = ["is_shortage"]

# Of files, descriptors, memory and processes. EDQUOT is a user's own share of a disk; Windows has
# no such number.
_SHORT = {errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
_SHORT.add(getattr(errno, "EDQUOT", errno.ENOSPC))


def is_shortage(error: BaseException) -> bool:
    """Tell whether an error is of the machine as it is now, and not of what was asked of it."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORT)
