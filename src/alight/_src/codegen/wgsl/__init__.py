"""Groups as WGSL: change here which kernels it has and what it writes for each primitive; their
statements come from `codegen.common.source`."""
