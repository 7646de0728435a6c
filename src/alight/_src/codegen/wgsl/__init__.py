"""Groups as WGSL."""
