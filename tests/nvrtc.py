"""CUDA C compiled without a GPU: NVRTC out of its wheel, called through ctypes."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any


@cache
def library() -> Any:
    """Return the library of an installed wheel, or None."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        found = sorted(Path(place).glob("*/lib/libnvrtc.so.*"))
        found = [path for path in found if "builtins" not in path.name and "alt" not in path.name]
        if found:
            return ctypes.CDLL(str(found[-1]))
    return None


def cubin(text: str, architecture: str, options: Sequence[str]) -> bytes:
    """Return the machine code of a source text; AssertionError with the log where it is wrong."""
    nvrtc = library()
    program = ctypes.c_void_p()
    given = [f"--gpu-architecture={architecture}", *options]
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    array = (ctypes.c_char_p * len(given))(*[option.encode() for option in given])
    status = nvrtc.nvrtcCompileProgram(program, len(given), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == 0, f"{log.value.decode()}\n{text}"
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw
