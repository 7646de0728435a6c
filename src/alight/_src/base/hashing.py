"""Digests by Python's own modules: hashlib loads OpenSSL, 3 ms of every start. Where a program has
loaded that, its SHA-256 takes a fifth of the time."""

from __future__ import annotations

import sys
from functools import cache, partial
from importlib import import_module
from typing import Any

from alight._src.base.failures import ignoring_failures
from alight._src.base.uninterrupted import uninterrupted

__all__ = ["sha256", "short"]


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    # None, too, while another thread imports it
    quick = getattr(sys.modules.get("_hashlib"), "openssl_sha256", None)
    made: str = (quick or _own("sha256"))(data).hexdigest()
    return made


def short(data: bytes) -> str:
    """Return sixteen hexadecimal digits that tell bytes from others, BLAKE2b's."""
    made: str = _own("blake2b")(data, digest_size=8).hexdigest()
    return made


@cache
def _own(name: str) -> Any:
    # _sha2 from 3.12 on, _sha256 before, hashlib in other interpreters
    for module in ("_blake2", "_sha2", "_sha256", "hashlib"):
        with ignoring_failures(ImportError, AttributeError):
            return getattr(uninterrupted(partial(import_module, module)), name)
    raise ImportError(f"this Python has no {name}. Fix: install one that has hashlib.")
