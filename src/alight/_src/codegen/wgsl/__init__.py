"""Groups as WGSL: change here what it writes for each primitive; the statements around them come
from `codegen.common.source`."""
