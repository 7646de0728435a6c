"""A sample of programs in which alight must do no harm, by counts: the clock is the ratchet's."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.codegen.llvm import object_code
from alight._src.jit.call_phases import NUMPYS
from alight._src.log.decisions import LOG
from alight._src.run import kernels
from own_store import own_store
from ratchets.harmless_child import alike, leaves, loaded
from ratchets.harmless_programs import Program, programs

# One of each style, the first that was drawn.
SAMPLE = [next(same) for _, same in itertools.groupby(programs(), lambda p: p.name.split("-")[0])]
CALLS = 24


@pytest.mark.usefixtures("looked_at_once")
@pytest.mark.parametrize("program", SAMPLE, ids=[program.name for program in SAMPLE])
def test_no_call_compiles_and_a_site_that_was_dropped_records_nothing(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[str] = []
    make = object_code._object

    def counted(group: Any, *rest: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            here.append(repr(group))
        return make(group, *rest)

    monkeypatch.setattr(object_code, "_object", counted)
    plain, ours = loaded(program.text, "plain"), loaded(program.text, "ours")
    jitted: Any = alight.jit(ours["body"])
    wanted, given = plain["make"](), ours["make"]()
    with own_store(tmp_path / "cache"), np.errstate(all="ignore"):
        for _ in range(CALLS):
            kinds = [*jitted._specializations.values()]
            dropped = bool(kinds) and all(kind.phase in NUMPYS for kind in kinds)
            before = LOG.snapshot().decisions
            result = jitted(*given)
            for leaf in leaves(result):
                if hasattr(leaf, "to_numpy"):
                    leaf.to_numpy()
            assert alike(plain["body"](*wanted), result)
            if dropped and all(kind.phase in NUMPYS for kind in kinds):
                assert LOG.snapshot().decisions == before
        kernels.settle()
    assert not here
