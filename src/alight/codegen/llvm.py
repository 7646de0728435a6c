"""Compile groups to machine code with llvmlite, and run it.

llvmlite is imported with this module and nowhere else, and nothing that ``import alight`` loads
imports this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from alight.codegen.emit import Module
from alight.codegen.loops import Schedule, check, digest, kernel_key, nest, structure
from alight.codegen.partial import parts
from alight.codegen.reduction import reduce_kernel
from alight.codegen.rowwise import rowwise_kernel
from alight.codegen.scan import scan_kernel
from alight.codegen.strips import strip_kernel
from alight.device import Unsupported
from alight.errors import KernelError
from alight.ir.group import GroupKind

if TYPE_CHECKING:
    from alight.codegen.loops import Nest
    from alight.ir.group import Group

__all__ = ["Kernel", "compile_group", "emit_object", "host_signature", "kernel_key", "load_object"]

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(slots=True, eq=False)
class _Code:
    """Machine code in this process. The engine owns the memory it lies in."""

    entry: int
    combine: int
    call: Any
    engine: Any
    object: bytes


class Kernel:
    """Machine code bound to the sizes and strides of one group.

    ``kernel(addresses)`` runs it: the byte addresses of element 0 of each input, then each output.
    Any number of threads may call it at once, and the GIL is not held meanwhile. A C caller may
    call ``void entry(void **addresses, int64_t *dims, int64_t *strides)`` itself. ``parts`` and
    ``combine`` are for folds that can be made in parts (``codegen.partial``).
    """

    __slots__ = (
        "_call", "_code", "_dims", "_pack", "_strides", "combine", "dims", "entry", "key", "nest",
        "parts", "strides",
    )  # fmt: skip

    def __init__(self, key: str, code: _Code, group: Group, shape: Nest) -> None:
        self.key = key
        self.entry = code.entry
        self.combine = code.combine
        self.nest = shape
        self.parts = parts(group, shape)
        flat = [step for steps in shape.strides for step in steps]
        dims = shape.dims if self.parts is None else (*shape.dims, 0, self.parts.elements, 0)
        self.dims = (ctypes.c_int64 * len(dims))(*dims)
        self.strides = (ctypes.c_int64 * len(flat))(*flat)
        self._code = code
        self._call = code.call
        self._dims = ctypes.addressof(self.dims)
        self._strides = ctypes.addressof(self.strides)
        # packing into bytes is the quickest way from Python ints to a C array of one's own
        self._pack = struct.Struct(f"={len(shape.strides)}Q").pack

    def __call__(self, addresses: Sequence[int]) -> None:
        """Run the kernel on the arrays at these addresses."""
        self._call(self._pack(*addresses), self._dims, self._strides)

    def __repr__(self) -> str:
        return f"<Kernel {self.key} dims={tuple(self.dims)}>"


_lock = threading.Lock()
_compiled: dict[str, _Code] = {}
_host: tuple[Any, str, str] | None = None


def _target() -> tuple[Any, str, str]:
    global _host
    if _host is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # Python and NumPy load the C maths for themselves only; elsewhere it is part of the C
        # library.
        for library in ("libm.so.6", "ucrtbase.dll"):
            with contextlib.suppress(RuntimeError):
                llvm.load_library_permanently(library)
        target = llvm.Target.from_default_triple()
        _host = (target, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return _host


def _machine(opt: int = 3) -> Any:
    target, cpu, features = _target()
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, jit=True)


def _widest() -> int:
    """Return the bits of this machine's vector registers."""
    _, _, features = _target()
    known = features.split(",")
    if all(f"+avx512{part}" in known for part in ("f", "bw", "dq", "vl")):
        return 512
    return 256 if "+avx2" in known else 128


def host_signature() -> str:
    """Return what compiled code depends on besides the group: the compiler, the processor, the C
    maths."""
    _, cpu, features = _target()
    version = ".".join(map(str, llvm.llvm_version_info))
    return digest(f"{version}|{cpu}|{features}")


def module_text(group: Group, schedule: Schedule) -> str:
    """Return the IR of a group before optimisation."""
    _target()
    module = Module()
    shape = nest(group)
    if group.kind is GroupKind.LOOP:
        strip_kernel(module, group, shape, schedule, min(schedule.vector_bits, _widest()))
    elif group.kind is GroupKind.SCAN:
        scan_kernel(module, group, shape, schedule, min(schedule.vector_bits, _widest()))
    elif shape.columns or len(shape.dims) - shape.kept > 1:
        reduce_kernel(module, group, shape, schedule)
    else:
        rowwise_kernel(module, group, shape, schedule)
    for symbol in sorted(module.libm):
        # the linker does not complain about a symbol that is missing: it calls whatever is there
        if llvm.address_of_symbol(symbol) is None:
            raise Unsupported(f"{symbol}: the C library of this machine has no such function")
    return module.text(schedule.vector_bits)


def _translated(text: str, kind: GroupKind) -> bytes:
    """Return a module as object code."""
    module = llvm.parse_assembly(text)
    # Loop groups come as vectors, without what is computed twice. For 1, 6 and 12 special functions
    # O3 took 80, 105 and 162 ms for code of the same speed, this takes 25, 35 and 76.
    explicit = kind is GroupKind.LOOP
    machine = _machine(1)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    # The others have vectors where it matters; the loops left to LLVM need no unrolling. So tuned,
    # a sum of columns compiled in 59 ms and a softmax in 57, with O3 in 104 and 80; nine kernels at
    # three shapes each took 1.0 times as long as with O3 (geometric mean; 0.76 to 1.20).
    options = llvm.create_pipeline_tuning_options(speed_level=1 if explicit else 2)
    options.loop_unrolling = options.loop_interleaving = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    if explicit:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)
    data: bytes = machine.emit_object(module)
    return data


def _link(data: bytes) -> _Code:
    """Return object code as code that can be called."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    entry = engine.get_function_address("entry")
    combine = engine.get_function_address("combine")  # 0 where there is none
    return _Code(entry, combine, _CALL(entry), engine, data)


def compile_group(group: Group, schedule: Schedule | None = None) -> Kernel:
    """Return the kernel of a group, compiled unless one of its structure is in this process
    already.

    Raises ``device.Unsupported`` with the reason where there is no code for a node.
    """
    check(group)
    schedule = schedule or Schedule()
    shape = nest(group)
    key = digest(structure(group, shape, schedule))
    code = _compiled.get(key)
    if code is None:
        with _lock:
            code = _compiled.get(key)
            if code is None:
                data = _translated(module_text(group, schedule), group.kind)
                code = _compiled[key] = _link(data)
    return Kernel(key, code, group, shape)


def emit_object(kernel: Kernel) -> bytes:
    """Return the kernel's object code with the host it is for, for a cache on disk."""
    return host_signature().encode() + b"\n" + kernel._code.object


def load_object(group: Group, schedule: Schedule | None, data: bytes) -> Kernel:
    """Return the kernel of a group from what ``emit_object`` gave.

    Raises KernelError where that was made for another compiler or processor.
    """
    signature, _, data = data.partition(b"\n")
    if signature != host_signature().encode():
        raise KernelError(
            f"object code made for the host {signature.decode(errors='replace')}, not for "
            f"{host_signature()}. Fix: none is needed, it is compiled anew."
        )
    schedule = schedule or Schedule()
    shape = nest(group)
    key = digest(structure(group, shape, schedule))
    with _lock:
        code = _compiled.get(key)
        if code is None:
            _target()
            code = _compiled[key] = _link(data)
    return Kernel(key, code, group, shape)
