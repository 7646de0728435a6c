"""Functions that kernels of a process share: made once, and stored with every kernel that calls
them.

What is seldom needed, as reducing huge arguments of a sine is, took two fifths of the time in which
LLVM made a kernel of twelve special functions, and is the same in all kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from alight._src.codegen.llvm import elf
from alight._src.codegen.llvm.elf import Placed
from alight.device import Unsupported

__all__ = ["Part", "packed", "parts_for", "placed", "unpacked"]

# Object code on its own begins otherwise on every system.
_MAGIC = b"alight:1"
_COUNT = struct.Struct("<I")
_SIZES = struct.Struct("<II")


class Part(NamedTuple):
    """Object code of shared functions, and their names."""

    names: tuple[str, ...]
    object: bytes


class _Known(NamedTuple):
    address: int
    part: Part
    owner: object


_known: dict[str, _Known] = {}


def packed(own: bytes, parts: Iterable[Part]) -> bytes:
    """Return the object code of a kernel with that of the shared functions it calls."""
    pieces = []
    for part in parts:
        names = "\n".join(part.names).encode()
        pieces.append(_SIZES.pack(len(names), len(part.object)) + names + part.object)
    if not pieces:
        return own
    return b"".join((_MAGIC, _COUNT.pack(len(pieces)), *pieces, own))


def unpacked(data: bytes) -> tuple[bytes, list[Part]]:
    """Return a kernel's own object code, and the shared functions it calls."""
    parts: list[Part] = []
    if not data.startswith(_MAGIC):
        return data, parts
    at = len(_MAGIC)
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    for _ in range(count):
        named, size = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        names = data[at : at + named].decode()
        parts.append(Part(tuple(names.split("\n")), data[at + named : at + named + size]))
        at += named + size
    return data[at:], parts


def placed(data: bytes) -> Placed:
    """Return a kernel's object code, with what it calls, as code that can be called."""
    own, parts = unpacked(data)
    for part in parts:
        _share(part)
    return _place(own, ("entry", "combine"))


def parts_for(
    wanted: Mapping[str, Mapping[str, str]], make: Callable[[Mapping[str, str]], bytes]
) -> list[Part]:
    """Return the object code of shared functions; ``wanted`` has their texts by name. Those that
    this process has not are made together, of all texts by their names."""
    missing = [name for name in wanted if name not in _known]
    if missing:
        texts = {key: text for name in missing for key, text in wanted[name].items()}
        _share(Part(tuple(missing), make(texts)))
    return list(dict.fromkeys(_known[name].part for name in wanted))


def _share(part: Part) -> None:
    if all(name in _known for name in part.names):
        return
    functions, owner = _place(part.object, part.names)
    for name in part.names:
        # for good: kernels that call it are not counted
        _known.setdefault(name, _Known(functions[name], part, owner))


def _place(data: bytes, names: tuple[str, ...]) -> Placed:
    shared = {name: known.address for name, known in _known.items()}
    try:
        return elf.place(data, shared)
    except Unsupported:
        from alight._src.codegen.llvm import target  # late: it imports llvmlite

        return target.place(data, names, shared)
