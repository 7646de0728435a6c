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
    places = (ctypes.c_void_p * called.count).from_address(parameters)
    values = [ctypes.c_longlong.from_address(p or 0).value for p in places]
    words = (ctypes.c_longlong * called.count)(*values)
    runtime._within(stream, lambda: called.launch(x, threads, words))
