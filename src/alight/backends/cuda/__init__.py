"""CUDA devices, by way of CuPy: change here how they are found, opened and driven; their kernels
are written in `codegen.cuda`."""
