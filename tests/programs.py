"""Small NumPy programs through alight and NumPy, as far apart as the op table allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alight
from alight._src.ir.op_table import OPS
from alight._src.plan.workload import is_contraction, product_shape
from alight._src.record import storage_io
from alight._src.record.pending import settled
from alight._src.run import evaluate
from conformance.modes import MODES
from generated import Array


def slack_eps(result: alight.Array) -> float:
    """Return the sum of what the ops of a result that are still pending are declared to be off, in
    epsilons of what they reduce or make."""
    value = storage_io.read(result)
    if settled(value):
        return 0.0
    graph = evaluate.prepare((value,)).graph
    total = 0.0
    for node in graph.nodes:
        if node.op.bound is not None:
            shape = graph.layouts[node.operands[0]].shape
            axis = node.attr("axis")
            axes = range(len(shape)) if axis is None else axis if type(axis) is tuple else (axis,)
            total += node.op.bound(int(np.prod([shape[i] for i in axes], dtype=int)))
        elif is_contraction(node):
            total += product_eps(product_shape(graph, node)[2])
        else:
            total += node.op.ulp_from_numpy
    return total


def product_eps(terms: int) -> float:
    """Return how far from NumPy's a kernel's product of so many terms may be, in epsilons of what
    it has of absolute values: it sums products, each half an epsilon off."""
    bound = OPS["sum"].bound
    assert bound is not None
    return bound(terms) + 0.5


def assert_close(got: Any, program: Callable[..., Any], *arrays: Any) -> None:
    """Compare what a program of arrays gave, one result or several, with what it gives in NumPy."""
    with np.errstate(all="ignore"):
        expected = program(*[np.array(array) for array in arrays])
        with alight.policy(floor=0):
            recorded = program(*[alight.asarray(array) for array in arrays])
            several = recorded if isinstance(recorded, tuple) else (recorded,)
            slacks = [slack_eps(result) for result in several]
    if not isinstance(expected, tuple):
        got, expected = (got,), (expected,)
    scale = max(float(np.abs(v[np.isfinite(v)]).max()) for v in (*arrays, *expected))
    for one, other, slack in zip(got, expected, slacks, strict=True):
        actual = np.asarray(one)
        assert actual.dtype == other.dtype and actual.shape == other.shape
        allowed = slack * float(np.finfo(other.dtype).eps) * scale
        np.testing.assert_allclose(actual, other, rtol=0.0, atol=allowed)


def assert_program(program: str, x: Array, mode: str) -> None:
    """Run a program, which makes ``r`` of ``x``, in a mode; compare ``r`` with NumPy's."""
    plain: dict[str, Any] = {"np": np, "x": x.copy()}
    exec(program, plain)
    expected = np.asarray(plain["r"])
    recorded: dict[str, Any] = {"np": alight, "x": alight.asarray(x.copy())}
    with alight.policy(floor=0):
        exec(program, recorded)
        slack = slack_eps(recorded["r"])
    ours: dict[str, Any] = {"np": alight, "x": alight.asarray(x.copy())}
    with alight.policy(**MODES[mode]):
        exec(program, ours)
        actual = np.asarray(ours["r"])
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, program
    # what one op is off counts by the largest values that meet it, which are x's or the result's
    scale = max(float(np.abs(values).max()) for values in (x, expected))
    allowed = slack * float(np.finfo(expected.dtype).eps) * np.maximum(np.abs(expected), scale)
    error = np.abs(actual - expected)
    assert np.all(error <= allowed), (program, float(np.max(error / np.maximum(allowed, 1e-300))))
