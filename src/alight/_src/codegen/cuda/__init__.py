"""Groups as CUDA C."""
