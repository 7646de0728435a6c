"""Random jitted functions do what NumPy does: a seeded mass run, and faults that it must find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alight._src.ir.op_table import OPS
from alight._src.jit.host_program import HostProgram
from fuzzing import arguments, jitted
from fuzzing.known_faults import CHECK, JITTED
from fuzzing.witness import Witness, difference

# Statements in each mode; where code is generated most of the time goes into compiling it.
STATEMENTS = {"auto": 1_500, "floor": 2_500, "numpy": 8_000, "generated": 4_000, "sim": 4_000}
FIRST_SEED = 20_000
TESTS = Path(__file__).parents[1]


def test_statements_are_as_many_as_promised() -> None:
    assert STATEMENTS.keys() == jitted.MODES.keys() and sum(STATEMENTS.values()) >= 20_000


@pytest.mark.parametrize("mode", jitted.MODES)
def test_random_bodies_equal_numpy(mode: str) -> None:
    # In a process of its own: pytest records warnings, and then NumPy answers more of the calls.
    call = [sys.executable, "-m", "fuzzing.jitted", mode, str(FIRST_SEED), str(STATEMENTS[mode])]
    paths = os.pathsep.join(map(str, (TESTS, TESTS.parent / "src")))
    env = os.environ | {"PYTHONPATH": paths, "ALIGHT_CHECK": CHECK}
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-300:]
    row = json.loads(done.stdout)
    assert row["statements"] >= STATEMENTS[mode]
    wrong = row["differences"]
    shown = [f"seed {w['seed']}: {w['where']}: {w['message']}\n{w['program']}" for w in wrong[:3]]
    assert not wrong, f"{len(wrong)} programs differ from NumPy:\n" + "\n".join(shown)


@pytest.mark.parametrize(
    "seed, mode",
    [(s, mode) for mode, faults in JITTED.items() for seeds in faults.values() for s in seeds],
)
def test_known_faults_are_faults(seed: int, mode: str) -> None:
    assert jitted.differs(jitted.drawn(seed, mode), mode), "mended: take it off known_faults.py"


_DIVIDE = "RuntimeWarning: divide by zero encountered in divide"
_CASTING = "ComplexWarning: Casting complex values to real discards the imaginary part"
_INSIDE = f"{Path(np.__file__).parent / '_core' / '_methods.py'}:113: "


@pytest.mark.parametrize(
    "wanted, got, shown, on_device, odd",
    [
        ([_DIVIDE], [_DIVIDE], False, False, ([], [])),
        ([_DIVIDE], [], False, False, ([_DIVIDE], [])),
        ([_DIVIDE], [], False, True, ([], [])),
        ([_CASTING], [], False, True, ([_CASTING], [])),
        ([], [_DIVIDE], False, True, ([], [_DIVIDE])),
        ([f"<seed 1>:2: {_DIVIDE}"], [], True, False, ([], [])),
        ([f"<seed 1>:2: {_DIVIDE}"], [f"<seed 1>:2: {_DIVIDE}"], True, False, ([], [])),
        ([], [f"<seed 1>:2: {_CASTING}"], True, False, ([], [f"<seed 1>:2: {_CASTING}"])),
        (
            [f"<seed 1>:2: {_CASTING}"],
            [f"<seed 1>:3: {_CASTING}"],
            True,
            False,
            ([], [f"<seed 1>:3: {_CASTING}"]),
        ),
        ([_INSIDE + _CASTING], [f"<seed 1>:2: {_CASTING}"], True, False, ([], [])),
    ],
)
def test_warnings_are_required_where_they_are_promised(
    wanted: list[str], got: list[str], shown: bool, on_device: bool, odd: Any
) -> None:
    assert jitted.odd_warnings(wanted, got, shown, on_device) == odd


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
            if replayed <= 50:
                jitted.differs(program, "numpy")
    assert replayed > 50


def found_in(programs: int) -> Iterator[jitted.Difference]:
    """Yield what is found, as soon as it is: one is enough to tell that a fault is noticed."""
    for seed in range(1, programs + 1):
        yield from jitted.run_many("numpy", seed, 1)[2]


def test_a_wrong_element_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["subtract"], "reference", np.add)
    first = next(found_in(150))
    small = jitted.shrunk(first)
    assert len(small.program.body) < len(first.program.body)
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
    assert any(wrong.where.startswith("arguments") for wrong in found_in(300))


@pytest.mark.parametrize("made", ["new('d', (4, 2))", "unaligned('d', (4, 2))"])
@pytest.mark.parametrize("within", ["array", "structured"])
def test_one_nan_is_another_wherever_it_lies(made: str, within: str) -> None:
    """Their payloads are the machine's; every other bit counts."""

    def told(bits: int, element: float = 2.0) -> Any:
        names: dict[str, Any] = {}
        exec(arguments.PREAMBLE, names)
        array = eval(made if within == "array" else "structured('d', (4, 2))", names)
        part = array if within == "array" else array["y"]
        part[0] = np.array([bits] * 2, "u8").view("d")
        part[2] = element
        return Witness(names["BASES"], "ignored").call(lambda: array, ())

    assert difference(told(0x7FF8 << 48), told(0xFFF8 << 48 | 5)) is None
    found = difference(told(0x7FF8 << 48), told(0xFFF8 << 48, 3.0))
    assert found is not None and found[0].startswith("results.elements")
    found = difference(told(0x7FF8 << 48)["arguments"], told(0xFFF8 << 48, 3.0)["arguments"])
    assert found is not None and "other bytes" in found[1]
    assert difference(told(0), told(1 << 63)) is not None  # zeros have a sign


def test_the_byte_before_unaligned_memory_is_watched() -> None:
    names: dict[str, Any] = {}
    exec(arguments.PREAMBLE, names)
    array = names["unaligned"]("d", (3,))
    before = Witness(names["BASES"], "ignored").call(lambda: None, ())
    array.base[0] = 7
    assert difference(before, Witness(names["BASES"], "ignored").call(lambda: None, ()))
