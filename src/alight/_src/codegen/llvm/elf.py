"""Put object code into memory without a linker: ELF files of x86-64 as LLVM writes them for code
that runs in the process that made it.

LLVM's own loader does the same for every kind of file, but importing llvmlite for it takes ten
times as long as loading a kernel from disk may take. Such code reaches everything by whole
addresses (the large code model), so one kind of relocation is all there is.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from alight._src.base.failures import failures, ignoring_failures
from alight.device import Unsupported

__all__ = ["HERE", "Placed", "place"]

# Whether files of this kind are what this machine runs.
HERE = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32

# From the ELF specification and its x86-64 supplement.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ADDRESS = struct.Struct("<Q")
_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL = 1, 2, 4, 8, 9
_WRITE, _ALLOC, _EXECUTE, _TLS = 1, 2, 4, 0x400
_R_X86_64_64 = 1
_GLOBAL_FUNCTION = 1 << 4 | 2
_UNDEFINED, _RESERVED = 0, 0xFF00  # indices of sections from the second on mean something else


class Placed(NamedTuple):
    """Object code in memory: the addresses of its functions, and what owns the memory."""

    functions: dict[str, int]
    owner: Any


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


def place(data: bytes, known: Mapping[str, int]) -> Placed:
    """Return object code as code that can be called. It may call functions that are known, by their
    addresses, besides those of the C library.

    Raises Unsupported, with the reason, where there is more in the file than is known here.
    """
    if not HERE:
        raise Unsupported("object code is placed on x86-64 Linux only")
    try:
        return _placed(data, known)
    except failures(struct.error, IndexError, ValueError, OSError) as error:
        raise Unsupported(f"object code of {len(data)} bytes: {error}") from error


def _placed(data: bytes, known: Mapping[str, int]) -> Placed:
    identity, kind, machine, *_, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    if (identity[:7], kind, machine, size) != (_IDENTITY, _RELOCATABLE, _X86_64, _SECTION.size):
        raise ValueError("it is no relocatable ELF file of x86-64")
    table = data[at : at + count * size]
    sections = [_Section._make(fields) for fields in _SECTION.iter_unpack(table)]
    if len(sections) != count:
        raise ValueError("it ends too early")
    starts, code_bytes, total = _laid_out(sections)
    memory = mmap.mmap(-1, total)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i, start in starts.items():
        memory[start : start + sections[i].size] = _content(data, sections[i])
    symbols: list[tuple[str, int, bool]] = []
    for section in sections:
        if section.kind == _SYMTAB:
            names = _content(data, sections[section.link])
            for fields in _SYMBOL.iter_unpack(_content(data, section)):
                symbols.append(_symbol(fields, names, starts, base, known))
    addresses = [address for _, address, _ in symbols]
    for section in sections:
        if section.kind == _REL or (section.kind == _RELA and section.info not in starts):
            raise ValueError("it has relocations of another kind")
        if section.kind == _RELA:
            entries, target = _content(data, section), section.info
            _relocate(memory, starts[target], sections[target].size, entries, addresses)
    protect = _c_library().mprotect
    for start, end, allowed in (
        (0, code_bytes, mmap.PROT_READ | mmap.PROT_EXEC),
        (code_bytes, total, mmap.PROT_READ),
    ):
        if end > start and protect(base + start, end - start, allowed) != 0:
            raise OSError(ctypes.get_errno(), "its memory cannot be made executable")
    return Placed({name: address for name, address, function in symbols if function}, memory)


def _laid_out(sections: list[_Section]) -> tuple[dict[int, int], int, int]:
    """Return where each section that is needed begins, and where code and all end: whole pages."""
    starts: dict[int, int] = {}
    end = code_bytes = 0
    needed = [(i, s) for i, s in enumerate(sections) if s.flags & _ALLOC and s.size]
    for code in (True, False):
        for i, section in needed:
            if bool(section.flags & _EXECUTE) is not code:
                continue
            if section.kind != _PROGBITS or section.flags & (_WRITE | _TLS):
                raise ValueError(f"section {i} is of kind {section.kind}, flags {section.flags}")
            if section.align > mmap.PAGESIZE:
                raise ValueError(f"section {i} is aligned to {section.align} bytes")
            align = max(1, section.align)
            starts[i] = -(-end // align) * align
            end = starts[i] + section.size
        end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        if code:
            code_bytes = end
    if not code_bytes:
        raise ValueError("there is no code in it")
    return starts, code_bytes, end


def _content(data: bytes, section: _Section) -> bytes:
    content = data[section.offset : section.offset + section.size]
    if len(content) != section.size:
        raise ValueError("it ends too early")
    return content


def _symbol(
    fields: tuple[Any, ...], names: bytes, starts: dict[int, int], base: int,
    known: Mapping[str, int],
) -> tuple[str, int, bool]:  # fmt: skip
    """Return a symbol's name, its address (0: none) and whether others may call it."""
    name_at, info, _, section, value, _ = fields
    name = names[name_at : names.index(b"\0", name_at)].decode()
    if section in starts:
        return name, base + starts[section] + value, info == _GLOBAL_FUNCTION
    if section == _UNDEFINED and name:
        return name, known.get(name) or _outside(name), False
    if section >= _RESERVED and info & 15 != 4:  # 4: the name of a source file
        raise ValueError(f"symbol {name!r} has no section")
    return name, 0, False


def _relocate(
    memory: mmap.mmap, start: int, size: int, entries: bytes, addresses: list[int]
) -> None:
    put, last = _ADDRESS.pack_into, size - _ADDRESS.size
    for offset, info, addend in _RELOCATION.iter_unpack(entries):
        address, kind = addresses[info >> 32], info & 0xFFFFFFFF
        if kind != _R_X86_64_64 or not address or offset > last:
            raise ValueError(f"relocation {kind} at {offset} is not known")
        put(memory, start + offset, (address + addend) % 2**64)


@cache
def _c_library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


@cache
def _outside(name: str) -> int:
    """Return the address of a function of the C library."""
    libraries = [_c_library()]
    # Python and NumPy load the C maths for themselves only; elsewhere it is in the C library.
    with ignoring_failures(OSError):
        libraries.append(ctypes.CDLL("libm.so.6"))
    for library in libraries:
        with ignoring_failures(AttributeError):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    raise ValueError(f"the C library has no {name}")
