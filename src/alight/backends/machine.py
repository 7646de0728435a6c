"""What the operating system and C say of the host: memory, CPU, floating-point flags."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from alight._core import memory_limits
from alight._src.base.failures import failures
from alight._src.base.originals import ENVIRONMENT, np
from alight._src.config.loading import config

# Every bit, as the C int these functions take; the C library keeps only those that are flags.
_EVERY = -1

# NumPy's words for what happened, and errstate's.
CATEGORY = {
    "divide by zero": "divide",
    "overflow": "over",
    "underflow": "under",
    "invalid value": "invalid",
}


@cache
def _flag_functions() -> tuple[Callable[[int], int], Callable[[int], int], dict[str, int]] | None:
    """Return C's clear and test, and the bits of NumPy's categories; None where C has none.

    The bits differ between processors, so each is learned by making its exception happen.
    """
    try:
        library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
        clear, test = library.feclearexcept, library.fetestexcept
        log, exp, sqrt = library.log, library.exp, library.sqrt
    except failures(OSError, AttributeError):
        return None
    for function in (clear, test):
        function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
    for function in (log, exp, sqrt):
        function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double

    def raised(function: Callable[[float], float], argument: float) -> int:
        clear(_EVERY)
        function(argument)
        return int(test(_EVERY))

    inexact = raised(sqrt, 2.0)
    bits = {
        "divide": raised(log, 0.0) & ~inexact,
        "over": raised(exp, 1e4) & ~inexact,
        "under": raised(exp, -1e4) & ~inexact,
        "invalid": raised(sqrt, -1.0) & ~inexact,
    }
    clear(_EVERY)
    known = 0
    for bit in bits.values():
        if bit == 0 or bit & known:
            return None
        known |= bit
    return clear, test, bits


def clear_floating_point_flags() -> None:
    """Clear this thread's floating-point flags."""
    if (functions := _flag_functions()) is not None:
        functions[0](_EVERY)


def floating_point_flags() -> frozenset[str]:
    """Return what happened in this thread since the flags were cleared.

    The words are those of ``np.errstate``. Where the C library has no flags, everything may have
    happened, and so all four come back.
    """
    functions = _flag_functions()
    if functions is None:
        return frozenset(("divide", "over", "under", "invalid"))
    _, test, bits = functions
    raised = test(_EVERY)
    return frozenset([name for name, bit in bits.items() if raised & bit]) if raised else _NOTHING


_NOTHING: frozenset[str] = frozenset()


def raise_floating_point_flags(names: Iterable[str]) -> None:
    """Set flags of this thread, as if it had happened here."""
    functions = _flag_functions()
    if functions is not None:
        ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).feraiseexcept(
            sum({functions[2][name] for name in names})
        )


@cache
def _cpu_described() -> dict[str, str]:
    try:
        with open("/proc/cpuinfo") as stream:
            text = stream.read(4096)  # the first core is enough, and a long list takes long to make
    except failures(FileNotFoundError, PermissionError):  # not for want of descriptors: it is kept
        text = ""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def cpu_flags() -> str:
    """Return what instructions the CPU has, in the system's words; empty where it has none."""
    found = _cpu_described()
    return found.get("flags") or found.get("Features") or ""


@cache
def cpu_model() -> tuple[str, str]:
    """Return the vendor and the model name of the CPU."""
    found = _cpu_described()
    vendor = found.get("vendor_id") or found.get("CPU implementer") or ""
    model = found.get("model name") or found.get("CPU part") or ""
    if not model and sys.platform == "darwin":
        model = _system_control("machdep.cpu.brand_string")
    if vendor and model:
        return vendor, model
    import platform

    return vendor or platform.system(), model or platform.processor() or platform.machine()


def host_fingerprint() -> str:
    """Return what kernels for this CPU, and what was measured on it, are valid for."""
    if sys.platform == "win32":
        import platform

        return f"{platform.machine()} {cpu_model()[1]}"
    return f"{os.uname().machine} {cpu_model()[1]}"  # which is what platform says, for 2 ms


def _system_control(name: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(len(buffer))
    code = ctypes.CDLL(None).sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, 0)
    return buffer.value.decode() if code == 0 else ""


def processors() -> tuple[int, ...]:
    """Return the processors this process may run on; empty where the system does not say."""
    if sys.platform == "linux":
        return tuple(sorted(os.sched_getaffinity(0)))
    return ()


def processor_quota() -> float | None:
    """Return how many processors' worth of time the control groups allow; None without a limit."""
    allowed = [share for folder in _control_folders() if (share := _share(folder)) is not None]
    return min(allowed, default=None)


def _text(path: str) -> str:
    """Return what stands in a file of the system; it raises OSError where there is none."""
    with open(path) as stream:  # a Path would bring 3 ms of modules to every start
        return stream.read()


def _control_folders() -> list[str]:
    """Return the folders of the control groups this process is in, and of those around them."""
    roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"]
    folders = [*roots]
    try:
        lines = _text("/proc/self/cgroup").splitlines()
    except failures(OSError):
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            parts = [part for part in path.split("/") if part]
            root = roots[0 if controllers == "" else 1]
            folders += ["/".join([root, *parts[:n]]) for n in range(len(parts), 0, -1)]
    return list(dict.fromkeys(folders))


def _share(folder: str) -> float | None:
    try:
        quota, period = _text(f"{folder}/cpu.max").split()
    except failures(OSError, ValueError):
        try:
            quota = _text(f"{folder}/cpu.cfs_quota_us").strip()
            period = _text(f"{folder}/cpu.cfs_period_us").strip()
        except failures(OSError):
            return None
    return None if quota in ("max", "-1") else int(quota) / int(period)


@cache
def _threads_allowed() -> int:
    # os.cpu_count() counts what the machine has, not what this process may use.
    allowed = len(processors()) or os.cpu_count() or 1
    quota = processor_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def thread_count() -> int:
    """Return on how many threads kernels may run: as configured, or as many as this process may
    keep busy."""
    asked = config().threads
    return _threads_asked(asked) if asked else _threads_allowed()


@cache
def _threads_asked(count: int) -> int:
    allowed = _threads_allowed()
    if count > allowed:
        import logging

        logging.getLogger("alight").warning(
            "%s: %d threads share the %d processors that this process may keep busy, and wait for "
            "one another. Fix: 0 is as many threads as processors.",
            *(config().sources.get("threads", "threads"), count, allowed),
        )
    return count


# By these a BLAS, or the OpenMP that it is built on, is told its threads, kernels and caches.
_BLAS_VARIABLES = ("BLIS_", "GOTO_", "MKL_", "NVPL_BLAS_", "OMP_", "OPENBLAS_", "VECLIB_")


def blas() -> dict[str, Any]:
    """Return NumPy's BLAS: its name, its version, and the variables that it runs under, which
    change what every matrix product takes (OPENBLAS_CORETYPE by a factor of two)."""
    build = np.show_config(mode="dicts")
    found = build.get("Build Dependencies", {}).get("blas", {}) if isinstance(build, dict) else {}
    named = sorted(name for name in ENVIRONMENT if name.startswith(_BLAS_VARIABLES))
    return {
        "name": str(found.get("name", "")),
        "version": str(found.get("version", "")),
        "settings": [f"{name}={ENVIRONMENT[name]}" for name in named],
    }


def host_memory() -> tuple[int, int]:
    """Return free and total bytes of memory, as far as this process may use it."""
    free, total = _physical_memory()
    left, most = memory_limits()
    return min(free, left), min(total, most)


def _physical_memory() -> tuple[int, int]:
    if sys.platform == "win32":
        return _windows_memory()
    try:
        lines = _text("/proc/meminfo").splitlines()
        amounts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return amounts["MemAvailable"], amounts["MemTotal"]
    except failures(OSError, KeyError, ValueError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total  # macOS counts no free pages here


def _windows_memory() -> tuple[int, int]:
    class Status(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            *((name, ctypes.c_uint64) for name in ("total", "free", "a", "b", "c", "d", "e")),
        ]

    status = Status()
    status.length = ctypes.sizeof(status)
    ctypes.CDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.free), int(status.total)
