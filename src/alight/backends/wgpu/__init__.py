"""WebGPU devices, by way of wgpu-py: change here how they are found, opened and driven; their
kernels are written in `codegen.wgsl`."""
