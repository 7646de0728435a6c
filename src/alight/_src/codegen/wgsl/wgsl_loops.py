"""Loop groups as WGSL kernels: the text, how many threads a workgroup has, and the words of the
arguments that each launch has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from alight._src.base.originals import np
from alight._src.codegen.common.source import ENTRY, Grid, Statements, checked, values

if TYPE_CHECKING:
    from alight._src.codegen.common.dialects import Dialect
    from alight._src.codegen.common.loops import Nest
    from alight._src.ir.group import Group

# Words of the argument array before the sizes: elements, and a zero that no compiler knows of.
WGSL_HEAD = 2
# Threads of a workgroup: every adapter has as many (the least that WebGPU allows
# maxComputeInvocationsPerWorkgroup to be).
GRID = Grid(block=256)


def wgsl_arguments(shape: Nest, offsets: Sequence[int], itemsizes: Sequence[int]) -> list[int]:
    """Return the words of a launch: elements, a zero, the sizes of the axes but the first, then for
    each operand its offset and its steps, in elements. ``offsets`` are in elements too."""
    words = [int(np.prod(shape.dims, dtype=np.int64)), 0, *shape.dims[1:]]
    for offset, strides, size in zip(offsets, shape.strides, itemsizes, strict=True):
        words += (offset, *(stride // size for stride in strides))
    return [word & 0xFFFFFFFF for word in words]


def wgsl_loop(dialect: Dialect, group: Group, shape: Nest, grid: Grid) -> str:
    """Return the WGSL of a loop group. Binding 0 is the array of ``wgsl_arguments``, then inputs
    and outputs follow; bools are bytes, four to a word."""
    dtypes = checked(group)
    count = len(group.graph.inputs)
    rank = len(shape.dims)
    head = ["@group(0) @binding(0) var<storage, read> arguments: array<u32>;"]
    for place, dtype in enumerate(dtypes):
        word = dialect.memory.get(dtype, dialect.type_of(dtype))
        if place >= count and dtype == "bool":
            word = f"atomic<{word}>"
        access = "read" if place < count else "read_write"
        head.append(
            f"@group(0) @binding({place + 1}) var<storage, {access}> m{place}: array<{word}>;"
        )
    head.append("var<private> nothing: u32;")
    code = Statements(dialect)
    used: set[int] = set()

    def argument(number: int) -> str:
        used.add(number)
        return f"a{number}"

    with code.block(f"for (var e = id.x; e < {argument(0)}; e = e + apart)"):
        indices = ["e"]
        if rank > 1:
            code.add("var rest = e;")
            for axis in range(rank - 1, 0, -1):
                size = argument(WGSL_HEAD + axis - 1)
                code.add(f"let i{axis} = rest % {size};")
                code.add(f"rest = rest / {size};")
            indices = ["rest", *(f"i{axis}" for axis in range(1, rank))]

        def element(place: int) -> str:
            first = WGSL_HEAD + rank - 1 + place * (rank + 1)
            terms = [argument(first)]
            for axis, index in enumerate(indices):
                kind = shape.classes[place] if axis == shape.vector_axis else "s"
                if kind == "c":
                    terms.append(index)
                elif kind != "b":
                    terms.append(f"{index} * {argument(first + 1 + axis)}")
            return " + ".join(terms)

        loaded = []
        for place, dtype in enumerate(dtypes[:count]):
            code.add(f"let p{place} = {element(place)};")
            text = f"m{place}[p{place}]"
            if dtype == "bool":
                byte = f"m{place}[p{place} >> 2u] >> ((p{place} & 3u) * 8u)"
                text = f"(({byte}) & 0xffu) != 0u"
            loaded.append(code.name(text, dtype))
        results = values(code, group, loaded)
        for place, (result, dtype) in enumerate(zip(results, dtypes[count:], strict=True), count):
            code.add(f"let p{place} = {element(place)};")
            if dtype == "bool":  # the other bytes of the word are other threads'
                word, shift = f"&m{place}[p{place} >> 2u]", f"((p{place} & 3u) * 8u)"
                code.add(f"atomicAnd({word}, ~(0xffu << {shift}));")
                code.add(f"atomicOr({word}, u32({result}) << {shift});")
            else:
                code.add(f"m{place}[p{place}] = {result};")
    # read once: in the loop they are read again for each element, as the results could be there
    before = Statements(dialect)
    before.add("nothing = arguments[1];")
    before.add(f"let apart = threads.x * {grid.block}u;")
    for number in sorted(used):
        before.add(f"let a{number} = arguments[{number}];")
    body = "\n".join(before.lines + code.lines)
    outside = "\n".join(code.outside.values())
    return f"""{chr(10).join(head)}
{dialect.functions(outside + body)}
{outside}
@compute @workgroup_size({grid.block})
fn {ENTRY}(@builtin(global_invocation_id) id: vec3<u32>,
         @builtin(num_workgroups) threads: vec3<u32>) {{
{body}
}}
"""
