"""What devices have made ready is proven: launches of cards and graphs of them, pieces of
WebGPU's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from test_cuda import needs_compiler, passes

from alight._core import make_layout
from alight._src.base.originals import np
from alight._src.codegen.common.loops import nest
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight.backends.wgpu.checked_pieces import counts, proven
from alight.backends.wgpu.wgpu_backend import _pieces
from alight.errors import PlanError

# --- WebGPU -------------------------------------------------------------------------------------
F4 = np.dtype(np.float32)
WHOLE, TURNED, ROW = (
    make_layout(F4, (40, 30)),
    make_layout(F4, (40, 30), (4, 160)),
    make_layout(F4, (30,)),
)


def kernel() -> Any:
    node = Node(OPS["add"], (0, 1), (), WHOLE)
    last = Node(OPS["add"], (3, 2), (), WHOLE)
    group = Group(GroupKind.LOOP, Graph((WHOLE, TURNED, ROW), (node, last), (4,)), (40, 30))
    return SimpleNamespace(shape=nest(group), itemsizes=(4, 4, 4, 4), group=group)


@pytest.mark.parametrize("most", [100_000, 3000, 1000, 500])
def test_pieces_that_are_right_pass(most: int) -> None:
    before = counts["launches"]
    found = list(proven(_pieces)(kernel(), [0, 256, 12, 0], most))
    assert (len(found) > 1) == (most < 100_000) and counts["launches"] == before + 1


def broken(how: str) -> Any:
    def pieces(made: Any, offsets: Any, most: int) -> Any:
        found = list(_pieces(made, offsets, most))
        shape, starts = found[1]
        if how == "dropped":
            del found[1]
        elif how == "twice":
            found.append(found[0])
        elif how == "shifted":
            found[1] = shape, [starts[0] + 4, *starts[1:]]
        elif how == "swapped":
            found[1] = shape, found[2][1]
        elif how == "wide":
            found = [(made.shape, list(offsets))]
        return found

    return pieces


@pytest.mark.parametrize("how", ["dropped", "twice", "shifted", "swapped", "wide"])
def test_pieces_that_are_broken_are_refused(how: str) -> None:
    with pytest.raises(PlanError, match=r"a launch: .*Fix: "):
        list(proven(broken(how))(kernel(), [0, 256, 12, 0], 1000))


# --- cards --------------------------------------------------------------------------------------
SEQUENCES = """
import ctypes
import numpy as np, alight
import jitted_bodies as t
from alight._src.log.decisions import LOG
from alight.backends.cuda import checked_launches, launch_sequence
from alight.errors import PlanError
known = []
prove = checked_launches.prove
def keep(sequence, work, addresses=None):
    known.append((sequence, work, addresses))
    prove(sequence, work, addresses)
checked_launches.prove = keep
def window(x, y):
    return np.sqrt(x[1:] * 2 + y[:-1]).sum() + x[3:-1], y - x
def turned(x, y):
    return x * (2 + 1j) - y  # a constant too wide to be passed by value
def refused(match, sequence, work, addresses=None):
    try:
        prove(sequence, work, addresses)
    except PlanError as error:
        assert match in str(error) and "Fix: " in str(error), error
    else:
        raise AssertionError("not refused")
x, y = t.drawn(1)
with alight.policy(force="cuda:0", floor=0):
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    for function in (t.one, t.two, window, turned):
        made = alight.jit(function)
        for _ in range(40):
            found = made(a, b)
        t.near([r for r in t.parts(found) if r is not a], function, x, y)
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
assert checked_launches.counts["sequences"] >= 4, checked_launches.counts
assert checked_launches.counts["graphs"] >= 1, checked_launches.counts
tried = 0
for sequence, work, addresses in known:
    if addresses is not None:
        # a table that another run has changed
        before = sequence._table[:]
        sequence._table[0] = before[0] + 8
        refused("a graph was captured for arrays at", sequence, work, addresses)
        sequence._table[:] = addresses
        # a result in the memory of what is read, and in that of another result
        count, own = len(work.given) + len(work.views), len(sequence._sizes)
        for place in (0, count + 1):
            if place < len(addresses) and sequence._sizes and own > (place > 0):
                alias = list(addresses)
                alias[count] = alias[place]
                sequence._table[:] = alias
                refused("", sequence, work, alias)
        sequence._table[:] = before
        continue
    prove(sequence, work)
    if sequence._sizes:  # a buffer that is too small
        sequence._sizes[0] -= 8
        refused("outside of result 0", sequence, work)
        sequence._sizes[0] += 8
    if sequence._windows:  # a window that lies elsewhere
        place, offset = sequence._windows[0]
        sequence._windows[0] = place, offset + 8
        refused("", sequence, work)
        sequence._windows[0] = place, offset
        tried += 1
    if len(sequence._launches) > 1:  # the parameters of two launches swapped
        one, two = sequence._launches[:2]
        sequence._launches[:2] = two, one
        refused("", sequence, work)
        sequence._launches[:2] = one, two
        tried += 1
    pointers = (ctypes.c_void_p * 2).from_address(sequence._launches[0][9])
    first = pointers[0]
    pointers[0] = first + 8 * (len(work.given) + len(work.views))  # to what it makes
    refused("", sequence, work)
    pointers[0] = first
    if len(sequence._wanted) > 1:
        sequence._wanted = sequence._wanted[::-1]
        refused("at the end", sequence, work)
        sequence._wanted = sequence._wanted[::-1]
    prove(sequence, work)
assert tried >= 2
print("done")
"""


@needs_compiler
def test_launches_and_graphs_of_a_card_are_proven() -> None:
    passes(SEQUENCES)


PARTS = """
import numpy as np, alight
import jitted_bodies as t
import alight._src.ir.inner_products
alight._src.ir.inner_products._NAMES = frozenset()  # products are the library's
from alight._src.log.decisions import LOG
from alight.backends.cuda import checked_launches
from alight.errors import PlanError
known = []
prove = checked_launches.prove_parts
def keep(parts, work):
    known.append((parts, work))
    prove(parts, work)
checked_launches.prove_parts = keep
def refused(parts, work):
    try:
        prove(parts, work)
    except PlanError as error:
        assert "Fix: " in str(error), error
    else:
        raise AssertionError("not refused")
rng = np.random.default_rng(0)
x, y = rng.random((40, 30)), rng.random((50, 30))
def windows(x, y):
    z = np.exp(x[2:]) @ y[:, :].T
    return np.sqrt(z[:, 1:] + 1).sum(axis=0), x[:-2] + 1
with alight.policy(force="cuda:0", floor=0):
    a, b = alight.asarray(x), alight.asarray(y)
    alight.evaluate(a + 0, b + 0)
    for function in (t.mixed, windows):
        made = alight.jit(function)
        for _ in range(5):
            found = made(a, b)
        t.near([r for r in t.parts(found) if r is not a], function, x, y)
assert not LOG.snapshot().fallbacks, LOG.snapshot().fallbacks
assert len(known) >= 2 and checked_launches.counts["parts"] >= 2, checked_launches.counts
tried = dict.fromkeys(("order", "early", "offset", "source", "results", "wanted"), 0)
for parts, work in known:
    own, ends = list(parts._parts), list(parts._ends)
    def broken(how):
        tried[how] += 1
        refused(parts, work)
        parts._parts[:], parts._ends[:] = own, ends
    for place, part in enumerate(own):
        made = part.makes if type(part.makes) is tuple else (part.makes,)
        read = {base for later in own[place + 1 :] for base in later.bases}
        if read & set(made):  # what a part makes, before it or given back with it
            other = next(i for i in range(place + 1, len(own)) if set(own[i].bases) & set(made))
            parts._parts[place], parts._parts[other] = own[other], part
            broken("order")
            parts._ends[place] = (*ends[place], *(set(made) & read))
            broken("early")
        if hasattr(part, "reads"):
            (base, offset), *others = part.reads
            parts._parts[place] = part._replace(reads=((base, offset + 8), *others))
            broken("offset")
            alike = {b for b in range(len(work.given)) if b != base}
            for other in alike:
                parts._parts[place] = part._replace(reads=((other, offset), *others))
                broken("source")
        elif len(part.makes) > 1:
            parts._parts[place] = part._replace(makes=part.makes[::-1])
            broken("results")
    if len(parts._wanted) > 1:
        before = parts._wanted
        parts._wanted = before[::-1]
        broken("wanted")
        parts._wanted = before
    prove(parts, work)
assert all(tried[how] for how in ("order", "early", "offset", "wanted")), tried
print("done")
"""


@needs_compiler
def test_calls_of_a_library_between_launches_are_proven_with_them() -> None:
    passes(PARTS)
