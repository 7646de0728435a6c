"""CuPy's modules for CUDA."""

from cupy.cuda import compiler, function, memory, runtime

__all__ = ["compiler", "function", "memory", "runtime"]
