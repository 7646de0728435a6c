"""Random jitted functions do what NumPy does: a seeded mass run, and faults that it must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alight._src.ir.ops import OPS
from alight._src.jit.host_program import Program as HostProgram
from fuzzing import jitted
from fuzzing.known_faults import JITTED

# Statements in each mode; where code is generated most of the time goes into compiling it.
STATEMENTS = {"auto": 5_000, "floor": 3_000, "numpy": 6_000, "generated": 3_000, "sim": 3_000}
FIRST_SEED = 20_000


def told(found: list[jitted.Difference]) -> str:
    lines = [f"{len(found)} programs differ from NumPy:"]
    for wrong in found[:3]:
        small = jitted.shrunk(wrong)
        lines += [str(wrong), f"  smallest: {small}", small.program.pasted(small.mode)]
    return "\n".join(lines)


def test_statements_are_as_many_as_promised() -> None:
    assert STATEMENTS.keys() == jitted.MODES.keys() and sum(STATEMENTS.values()) >= 20_000


@pytest.mark.parametrize("mode", jitted.MODES)
def test_random_bodies_equal_numpy(mode: str) -> None:
    done, _, found = jitted.run_many(mode, FIRST_SEED, STATEMENTS[mode])
    assert done >= STATEMENTS[mode]
    assert not found, told(found)


@pytest.mark.parametrize(
    "seed, mode",
    [(s, mode) for mode, faults in JITTED.items() for seeds in faults.values() for s in seeds],
)
def test_known_faults_are_faults(seed: int, mode: str) -> None:
    assert jitted.differs(jitted.drawn(seed, mode), mode), "mended: take it off known_faults.py"


def test_bodies_are_called_often_and_replayed() -> None:
    programs = [jitted.drawn(seed, "floor") for seed in range(300)]
    assert min(len(program.calls) for program in programs) >= 8
    replayed = 0
    before = HostProgram.run

    def counted(self: HostProgram, *args: Any) -> Any:
        nonlocal replayed
        replayed += 1
        return before(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostProgram, "run", counted)
        for program in programs[:100]:
            jitted.differs(program, "numpy")
    assert replayed > 50


def test_a_wrong_element_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["subtract"], "reference", np.add)
    _, _, found = jitted.run_many("numpy", 1, 1_500)
    assert found
    small = jitted.shrunk(found[0])
    assert len(small.program.body) < len(found[0].program.body)
    assert "def f(a, b, c, k, e):" in small.program.pasted("numpy")


def test_a_write_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = HostProgram.run

    def lost(self: HostProgram, arrays: Any, *rest: Any) -> Any:
        kept = [array.copy() for array in arrays]
        result = before(self, arrays, *rest)
        for array, old in zip(arrays, kept, strict=True):
            if array.flags.writeable:
                array[...] = old
        return result

    monkeypatch.setattr(HostProgram, "run", lost)
    _, _, found = jitted.run_many("numpy", 1, 3_000)
    assert any(wrong.where.startswith("arguments") for wrong in found)
