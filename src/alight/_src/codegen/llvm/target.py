"""The machine that LLVM makes code for, and LLVM's own loader of object code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from alight._src.base.failures import ignoring_failures
from alight._src.codegen.llvm.elf import Placed

__all__ = ["machine", "place", "ready", "widest"]

_host: tuple[Any, str, str] | None = None


def ready() -> tuple[Any, str, str]:
    """Return LLVM's target, the processor's name and its features; LLVM can then be used."""
    global _host
    if _host is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # Python and NumPy load the C maths for themselves only; elsewhere it is part of the C
        # library.
        for library in ("libm.so.6", "ucrtbase.dll"):
            with ignoring_failures(RuntimeError):
                llvm.load_library_permanently(library)
        target = llvm.Target.from_default_triple()
        _host = (target, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return _host


def machine(opt: int = 3) -> Any:
    """Return a new target machine of this processor."""
    target, cpu, features = ready()
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, jit=True)


def widest() -> int:
    """Return the bits of this machine's vector registers."""
    _, _, features = ready()
    known = features.split(",")
    if all(f"+avx512{part}" in known for part in ("f", "bw", "dq", "vl")):
        return 512
    return 256 if "+avx2" in known else 128


def place(data: bytes, names: Sequence[str], known: Mapping[str, int]) -> Placed:
    """Return object code of any kind as code that can be called: the functions of these names.
    It may call those that are known, by their addresses."""
    ready()
    for name, address in known.items():
        llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    # 0 where there is none
    functions = {name: engine.get_function_address(name) for name in names}
    return Placed(functions, engine)
