"""The keys of kernels: equal keys mean equal code, whatever the sizes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from alight._src.base.hashing import sha256
from alight._src.codegen.common.loops import Nest, Schedule, nest

if TYPE_CHECKING:
    import numpy as np

    from alight._src.ir.group import Group

# Part of every key: raise it when the code made for an unchanged group changes.
VERSION = 28
# attributes that the code depends on
_CODED = ("output", "initial", "where", "ddof", "correction")


def structure(group: Group, shape: Nest, schedule: Schedule) -> str:
    """Return, as text, all that the generated code depends on."""
    group = group.form.plain or group
    graph = group.graph
    nodes = []
    for _, node in graph.numbered:
        attrs = [(k, v) for k, v in node.attrs if k in _CODED]
        operands = ",".join(map(str, node.operands))
        # in a rowwise group it matters what there is one of for a row
        extent = "" if node.layout.shape == group.shape else "-"
        dtype = _dtype_name(node.layout.dtype)
        nodes.append(f"{node.op.key}({operands}){dtype}{extent}{attrs or ''}")
    inputs = ",".join([_dtype_name(layout.dtype) for layout in graph.inputs])
    return "|".join(
        (
            str(VERSION),
            group.kind,
            inputs,
            ";".join(nodes),
            repr(graph.outputs),
            f"{shape.kept}+{len(shape.dims) - shape.kept}{shape.classes}{shape.columns:d}",
            f"{shape.tiles}{shape.flat:d}{shape.stream:d}{'s' if shape.single else ''}",
            f"{shape.unrolled}{shape.along}" if shape.unrolled else "",
            f"{shape.slots}{shape.turns}{shape.places}" if shape.slots else "",
            _as_text(schedule),
        )
    )


# Both take longer to be told anew than all else of a short structure, and there are few.
@lru_cache(256)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.name


@lru_cache(256)
def _as_text(schedule: Any) -> str:
    """Return the fields of a schedule: of a loop's, or of a printed kernel's (`source.Grid`)."""
    return repr(tuple([getattr(schedule, name) for name in type(schedule).__match_args__]))


def kernel_key(group: Group, schedule: Schedule | None = None) -> str:
    """Return the key of a group's kernel on the host: equal keys mean equal code, whatever the
    sizes."""
    return keyed(group.form.lowered or group, schedule).key


class Keyed(NamedTuple):
    """A group's nest on the host, and the key of its kernel. They are of ``group`` itself."""

    group: Group
    schedule: Schedule | None
    nest: Nest
    key: str


# Who looks for a kernel asks by its key, and then has the code bound to the same group.
_latest: list[Keyed] = []


def keyed(group: Group, schedule: Schedule | None) -> Keyed:
    """Return the nest of a group without inner reductions on the host, with the key of its
    kernel."""
    for found in _latest:
        if found.group is group and found.schedule is schedule:
            return found
    shape = nest(group, unroll=True)
    key = digest(structure(group, shape, schedule or Schedule()))
    found = Keyed(group, schedule, shape, key)
    _latest[:] = (found,)
    return found


@lru_cache(1024)  # of a structure's text, whatever the sizes
def digest(text: str) -> str:
    """Return a short name for a structure."""
    return sha256(text.encode())[:32]
