"""CuPy's modules for CUDA."""

from contextlib import nullcontext

from cupy.cuda import compiler, function, memory, runtime


class ExternalStream(nullcontext[None]):
    """A stream of somebody else's."""

    def __init__(self, stream: int) -> None:
        super().__init__()


__all__ = ["ExternalStream", "compiler", "function", "memory", "runtime"]
