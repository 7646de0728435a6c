"""WebGPU devices, by way of wgpu-py."""
