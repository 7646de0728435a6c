"""NumPy's functions called where their arguments lie: CuPy's on the CPU."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

import alight
from alight._src.record.eager_calls import _name
from without_card import needs_compiler, passes


@needs_compiler
def test_functions_run_where_their_arguments_lie() -> None:
    passes("import eager_cases; eager_cases.check()")


# What fuzzing found on a card: columns of indices, and strides of none.
FUZZED = """
from fuzzing.program import run
for seed, steps in ((10010, (2, 46)), (30008, (0, 5)), (60004, (50, 51, 54, 57, 59)),
                    (40010, (31,)), (725012043, (12, 31, 33, 36, 37, 38, 44, 59))):
    failure = run(seed, "cuda", steps)[1]
    assert failure is None, failure
print("done")
"""


@needs_compiler
def test_what_was_once_wrong_on_a_card() -> None:
    passes(FUZZED)


def test_a_function_is_known_by_itself_and_not_by_its_name() -> None:
    assert [_name(f) for f in (np.outer, np.putmask, np.linalg.inv, np.fft.fft)] == [
        "outer", "put_mask", "linalg.inv", "fft.fft",
    ]  # fmt: skip
    assert [_name(f) for f in (np.less.outer, np.add.reduce)] == ["", ""]


def test_functions_that_are_called_on_a_device_can_go() -> None:
    class Kept:
        def same(self, item: Any) -> Any:
            return item

    kept = Kept()
    gone = weakref.ref(kept)
    with alight.policy(force="sim:0", floor=0):
        assert np.frompyfunc(kept.same, 1, 1)(alight.arange(3) + 1).tolist() == [1, 2, 3]
    del kept
    gc.collect()
    assert gone() is None


SCATTERED = """
import numpy as np, alight
from alight._src.record import eager_calls
from alight._src.run import checked_calls
from alight.errors import PlanError
def call(shift=0):
    with alight.policy(force="cuda:0", floor=0):
        a = alight.asarray(np.arange(12.0)) + 1
        i = alight.asarray(np.array([3, 1, 7]))
        alight.evaluate(a, i)
        alight.put(a, i, 5)
        return np.asarray(a)
wanted = np.arange(12.0) + 1
np.put(wanted, [3, 1, 7], 5)
before = checked_calls.counts["calls"]
np.testing.assert_array_equal(call(), wanted)
assert checked_calls.counts["calls"] > before
version = eager_calls._version
def refused(match, broken):
    eager_calls._version = broken
    try:
        call()
    except PlanError as error:
        assert match in str(error) and "put on cuda:0" in str(error), error
    else:
        raise AssertionError("not refused")
    eager_calls._version = version
refused("holds the version before", lambda where, backend, array, operand: operand)
refused("outside of", lambda *given: (one := version(*given))._replace(offset=one.offset + 8))
print("done")
"""


@needs_compiler
def test_what_scatters_elements_on_a_card_writes_memory_of_its_own() -> None:
    passes(SCATTERED)


SOLVED = """
import numpy as np, alight
generator = np.random.default_rng(1)
matrix, right = generator.random((64, 64)) + 30 * np.eye(64), generator.random((64, 4))
with alight.policy(force="cuda:0", floor=0):
    there = alight.asarray(matrix) + 0.0
    alight.evaluate(there)
data = there.storage.value.data
assert data.array is None and "cuda:0" in data.remote
found = alight.linalg.solve(there, alight.asarray(right))
assert data.array is None, "the matrix came to the host"
assert np.allclose(np.asarray(found), np.linalg.solve(matrix, right))
few = alight.linalg.solve(alight.asarray(matrix), alight.asarray(right))  # both are the host's
assert np.array_equal(np.asarray(few), np.linalg.solve(matrix, right))
print("done")
"""


@needs_compiler
def test_a_small_operand_of_the_hosts_brings_no_matrix_from_a_device() -> None:
    passes(SOLVED)
