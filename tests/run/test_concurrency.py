"""Many threads at once: the same jitted functions, plans, pools and copies, on shared arrays."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from alight.backends import registry
from concurrent_calls import run
from without_card import needs_compiler, passes


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Have threads take turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_turns")
@pytest.mark.parametrize("force", ["sim:0", "cpu:generated", None])
def test_threads_have_numpys_results(force: str | None) -> None:
    run(force)


# Graphs are replayed from the first time that addresses come again.
CUDA = """
import concurrent_calls as t, sys
from alight.backends.cuda import graph_replay
graph_replay._TURNS = 1
sys.setswitchinterval(5e-6)
t.run("cuda:0")
print("done")
"""


@needs_compiler
def test_threads_have_numpys_results_of_a_card() -> None:
    passes(CUDA)


def test_who_asks_for_a_device_that_others_look_for_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = registry.driver_of(registry.device("sim:0"))
    found, begun, go = backend.probe(), threading.Event(), threading.Event()

    def probe() -> Any:
        begun.set()
        go.wait()
        return found

    monkeypatch.setattr(backend, "probe", probe)
    for name, empty in (("_probed", set()), ("_devices", {}), ("_opened", {})):
        monkeypatch.setattr(registry, name, empty)
    got: list[object] = []

    def ask() -> None:
        try:
            got.append(registry.device("sim:0").id)
        except Exception as error:
            got.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    begun.wait()
    threads[1].start()
    threads[1].join(0.05)  # time enough to have gone on without waiting
    go.set()
    for thread in threads:
        thread.join()
    assert got == ["sim:0", "sim:0"]
