"""What products take: those of two matrices by a measured surface, those with vectors, which stream
through memory, by curves of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alight._src.ir.op import dtype_name, width_in_bits
from alight._src.plan.nearest import BORROWED_SPREAD
from alight._src.plan.workload import product_shape

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph
    from alight._src.ir.inner_products import Sides
    from alight._src.plan.curve import Curve
    from alight._src.plan.gemm_surface import Surface
    from alight._src.plan.passes import Pass
    from alight._src.plan.profile import Rates

Terms = tuple[dict[str, float], float]
# Which operand of a product lies turned, as far as that has a surface of its own.
TURNED = ("", "first", "second")


def turned_key(dtype: str, turned: str) -> str:
    """Return the name of the surface of a dtype's products of which one operand lies turned."""
    return f"{dtype} {turned} turned" if turned else dtype


def _vector_curve(rates: Rates, dtype: str, m: int, k: int, n: int) -> Curve | None:
    """Return the curve of products with vectors, which stream through memory and have functions of
    their own in every library, over flops; None of those of two matrices."""
    if m > 1 and n > 1:
        return None
    return rates.curves.get(f"{'dot' if m == n == 1 else 'matvec'}/{dtype}")


def _streamed(vector: Curve, flops: float, flop_bytes: float, reader: Curve | None) -> float:
    """Return the seconds of a product with a vector. Past the last knot, which a cache may still
    hold, as many more as the ``reader`` takes for so many more bytes: memory gives no library more
    than it gives the threads of generated code."""
    last, seconds = vector.knots[-1]
    whole = vector.seconds_at(flops)
    if flops <= last or reader is None:
        return whole
    more = reader.seconds_at(flops * flop_bytes) - reader.seconds_at(last * flop_bytes)
    return max(whole, seconds + more)


def _surface_of(rates: Rates, dtype: str) -> tuple[Surface | None, float]:
    """Return the surface of a dtype's products, and what that adds to their spread: of integers,
    for all of which libraries have one loop, that of the nearest in width."""
    alike = [name for name in rates.surfaces if name.lstrip("u").startswith("int")]
    if dtype in rates.surfaces or not dtype.lstrip("u").startswith("int") or not alike:
        return rates.surfaces.get(dtype), 0.0
    width = width_in_bits(dtype)
    near = min(alike, key=lambda name: (abs(width_in_bits(name) - width), name))
    return rates.surfaces[near], BORROWED_SPREAD


def generated_terms(rates: Rates, graph: Graph, sides: Sides) -> Terms | None:
    """Return the terms of a product of matrices by the host's generated code; None where nobody
    knows.

    What it takes is by how both lie: 16 x 65536 x 4 takes 1.3 ms as they were made, 0.24 where the
    second is turned, 3.0 where the first is, and 2.0 where both are (float32, an EPYC). So each of
    the first three is measured; where both are turned, at up to ten times what either takes alone,
    it is no rival of a library's.
    """
    count, m, k, n, (first, second) = sides
    if not first and second:
        return None
    dtype = dtype_name(graph.nodes[0].layout.dtype)
    turned = "first" if not first else "second" if second else ""
    surface, borrowed = rates.surfaces.get(turned_key(dtype, turned)), 0.0
    if surface is None and not dtype.startswith("float"):
        surface, borrowed = _surface_of(rates, dtype)
        borrowed = max(borrowed, BORROWED_SPREAD) if turned else borrowed
    if surface is None:
        return None
    spread = math.hypot(rates.spreads.get("matmul", rates.spread), borrowed)
    return _repeated(rates, surface.seconds[0], surface.seconds_at(m, k, n), count), spread


def product_terms(rates: Rates, graph: Graph, item: Pass, host: Rates | None) -> Terms | None:
    """Return the terms of a matrix product, by its surface where there is one; ``host``: what the
    host's generated code takes."""
    surface, borrowed = _surface_of(rates, item.dtype)
    count, m, k, n = product_shape(graph, item.nodes[0])
    vector = _vector_curve(rates, item.dtype, m, k, n)
    spread = rates.spreads.get("matmul", rates.spread)
    if vector is not None:
        size = graph.layouts[item.nodes[0].operands[0]].itemsize
        reader = None if host is None else host.curves.get(f"elementwise/{item.dtype}")
        flop_bytes = size if m == n == 1 else size / 2  # an element has an addition, too
        call = vector.knots[0][1]
        one = _streamed(vector, item.amount / count, flop_bytes, reader)
    elif surface is not None:
        call, one = surface.seconds[0], surface.seconds_at(m, k, n)
        spread = math.hypot(spread, borrowed)
    else:
        found = rates.curve_of["matmul", item.dtype]
        if found is None:
            return None
        call, one, count = 0.0, found[0].seconds_at(item.amount), 1
        spread = found[1]
    return _repeated(rates, call, one, count), spread


def _repeated(rates: Rates, call: float, one: float, count: int) -> dict[str, float]:
    """Return the terms of so many products of which each takes ``one``, ``call`` of it once."""
    whole = one + (count - 1) * max(one - call, 0.0)
    launch = min(rates.launch.value, whole)
    return {"launch": launch, "memory": 0.0, "compute": whole - launch, "loops": 0.0}
