"""Groups as CUDA C: change here how kernels of NVIDIA's cards are written; what launches them is
`backends.cuda`."""
