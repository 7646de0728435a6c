"""CUDA's driver where everything is done at once."""

import ctypes

from cupy.cuda import function, runtime


class CUDADriverError(RuntimeError):
    """The driver refused."""


def launchKernel(
    f: int, x: int, y: int, z: int, threads: int, v: int, w: int, shared: int, stream: int,
    parameters: int, extra: int,
) -> None:  # fmt: skip
    called = function.functions[f - 1]
    count = len(called.pointers) + len(called.numbers)
    places = (ctypes.c_void_p * count).from_address(parameters)
    values = [ctypes.c_longlong.from_address(p or 0).value for p in places]
    pointers = (ctypes.c_void_p * len(called.pointers))(*values[: len(called.pointers)])
    numbers = (ctypes.c_longlong * len(called.numbers))(*values[len(called.pointers) :])
    runtime._within(stream, lambda: called.launch(x, threads, pointers, numbers))
