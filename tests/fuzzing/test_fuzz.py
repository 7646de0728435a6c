"""Random programs and aliasing chains equal NumPy: a seeded mass run, and ones that shrink."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alight._src.log.decisions import LOG
from alight._src.record import storage_io
from fuzzing import scripts, statements
from fuzzing.program import MODES, STEPS, Failure, run, run_many, shrunk

# Operations in each mode; where code is generated most of the time goes into compiling it.
OPERATIONS = {"auto": 8_000, "numpy": 6_000, "generated": 3_000, "sim": 3_000, "random": 3_000}
FIRST_SEED = 20_000


def told(failures: list[Failure]) -> str:
    lines = [f"{len(failures)} programs differ from NumPy:"]
    for failure in failures[:3]:
        small = shrunk(failure)
        lines += [str(failure), f"  smallest: run({small.seed}, {small.mode!r}, {small.steps})"]
        lines += [f"    {small.message}"]
    return "\n".join(lines)


def test_operations_are_as_many_as_promised() -> None:
    assert OPERATIONS.keys() == MODES.keys() and sum(OPERATIONS.values()) >= 20_000


@pytest.mark.parametrize("mode", MODES)
def test_random_programs_equal_numpy(mode: str) -> None:
    done, _, failures = run_many(mode, FIRST_SEED, OPERATIONS[mode])
    assert done >= OPERATIONS[mode]
    assert not failures, told(failures)


def test_random_placement_goes_everywhere() -> None:
    LOG.reset()
    run_many("random", FIRST_SEED, 400)
    totals = LOG.snapshot().elements
    places = {(implementation, device) for (implementation, device), n in totals.items() if n}
    assert {("numpy", "cpu"), ("generated", "cpu"), ("generated", "sim:0")} <= places
    counts = LOG.snapshot().counts
    assert counts["uploads"] > 20 and counts["downloads"] > 20


@pytest.mark.parametrize("mode", ["numpy", "generated"])
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    seed=st.integers(1, 10**6),
    steps=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=20, unique=True).map(sorted),
)
def test_small_programs_equal_numpy(mode: str, seed: int, steps: list[int]) -> None:
    _, failure = run(seed, mode, steps)
    assert failure is None, failure


def test_the_same_seed_is_the_same_program() -> None:
    assert run(7, "numpy") == run(7, "numpy")
    first, second = run(9, "numpy", [3, 5, 8]), run(9, "numpy", [3, 5, 8])
    assert first == second and first[0] == 3


def test_a_write_to_the_wrong_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = storage_io.pend

    def misplaced(op: Any, operands: Any, attrs: Any, layout: Any) -> Any:
        if op is storage_io.WRITE:
            (_, offset), target = attrs
            attrs = (("offset", offset and offset - operands[0].layout.itemsize), target)
        return whole(op, operands, attrs, layout)

    monkeypatch.setattr(storage_io, "pend", misplaced)
    _, _, failures = run_many("numpy", 1, 2_000)
    assert failures and len(shrunk(failures[0]).steps) < STEPS


def test_a_wrong_element_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from alight._src.ir.op_table import OPS

    op = OPS["subtract"]
    monkeypatch.setattr(op, "reference", np.add)
    _, _, failures = run_many("numpy", 1, 1_000)
    assert failures


# Scripts by each door, of seeds that the ratchet does not have.
SCRIPTS = 32
FIRST_SCRIPT = 20_000


@pytest.mark.parametrize("mode", ["auto", "numpy", "generated", "sim"])
@pytest.mark.parametrize("door", scripts.DOORS)
def test_random_scripts_equal_numpy(door: str, mode: str) -> None:
    # Compiling takes most of the time where code is generated.
    programs = SCRIPTS // 4 if mode in ("generated", "sim") else SCRIPTS
    found = scripts.differences(door, mode, FIRST_SCRIPT, programs)
    assert not found, "\n".join(map(str, found))


def test_scripts_say_much_and_fail_little() -> None:
    said = [entry for log in scripts.logs_of_numpy(range(SCRIPTS)) for entry in log]
    errors = [entry for entry in said if isinstance(entry, str)]
    assert len(said) > 5 * SCRIPTS and len(errors) < len(said) / 2


@pytest.mark.parametrize("given, calls", [(np.zeros(3), 1), (7, 0), (np.float64(7), 0)])
def test_generators_are_told_to_write_to_arrays_alone(given: Any, calls: int) -> None:
    # Generator.random reads whatever it is given as an array: with a number the process may die.
    outs: list[Any] = []
    generator = SimpleNamespace(random=lambda out: outs.append(out))
    namespace = SimpleNamespace(default_rng=lambda seed: generator)
    names = {"np": SimpleNamespace(random=namespace, floor=np.floor), "ndarray": np.ndarray}
    templates = [line for line in statements.WRITES.splitlines() if ".random(out=" in line]
    for template in templates:
        exec(template.format(w="v", digit=1), names | {"v": given})
    assert templates and len(outs) == calls * len(templates)


def test_a_script_that_says_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = scripts.DOORS["lazy"]
    wrong = "def float(x, real=float):\n    return real(x) + 1\n"
    monkeypatch.setitem(scripts.DOORS, "lazy", replace(real, imports=real.imports + wrong))
    asked = [n for n in range(1, 99) if any("say(float(" in s for s in statements.body(n))]
    # In some, what it asks for raises.
    found = next(f for n in asked for f in scripts.differences("lazy", "numpy", n, 1))
    assert any("float(" in statement for statement in found.statements)
    assert len(found.statements) <= statements.FIRST + 3
