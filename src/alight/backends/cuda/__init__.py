"""CUDA devices, by way of CuPy."""
