"""The log: exact totals, a ring that drops, call sites, cost of an entry."""

from __future__ import annotations

import logging
import os
import sys
import threading

import numpy as np
import pytest

from alight._core import make_layout
from alight._src.ir.graph import Graph, GroupKind, Node
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight._src.log.decisions import Log, Site, eligible_elements, place_of
from alight._src.plan.plan import Candidate, Decision, Estimate
from alight.device import Reason
from counting import counted

ESTIMATE = Estimate(2e-6, 1e-6, 4e-6, {"launch": 1e-6, "memory": 1e-6})
DECISION = Decision(
    operation="add",
    kind="loop",
    group="g",
    dtypes=("float64",),
    shapes=((10,),),
    elements=10,
    flops=10.0,
    bytes=240,
    batch=1,
    residency_in=(("host",),),
    chosen="cpu",
    implementation="numpy",
    reason=Reason.CHEAPEST,
    threshold=None,
    candidates=(
        Candidate("cpu", "numpy", ESTIMATE),
        Candidate("cpu", "generated", None, Reason.UNCALIBRATED),
    ),
)


def here() -> Site:
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti


def test_ring_drops_the_oldest_and_totals_stay_exact() -> None:
    log = Log(4)
    for i in range(10):
        log.replayed([(DECISION, None)], 1, float(i))
    snapshot = log.snapshot()
    assert [record.seconds for record in snapshot.records] == [6.0, 7.0, 8.0, 9.0]
    assert (snapshot.decisions, snapshot.dropped, snapshot.seconds) == (10, 6, 45.0)


def test_a_ring_of_none_keeps_totals() -> None:
    log = Log(0)
    log.replayed([(DECISION, None)], 1, 1.0)
    log.exit("unique", here())
    snapshot = log.snapshot()
    assert snapshot.records == ()
    assert (snapshot.dropped, snapshot.seconds) == (1, 1.0)
    assert snapshot.counts["exits"] == 1


def test_call_site_is_the_line_of_the_instruction() -> None:
    site = here()
    line = sys._getframe().f_lineno - 1
    assert place_of(site) == f"{__file__}:{line}"
    assert place_of(None) is None


def test_exits_are_counted_by_name_and_line() -> None:
    log = Log(10)
    for _ in range(3):
        log.exit("unique", here())
    log.exit("unique", here())
    log.exit("sort", None)
    exits = log.snapshot().exits
    assert [row.times for row in exits] == [3, 1, 1]
    assert exits[0].what == "unique"
    assert exits[0].call_site != exits[1].call_site
    assert {row.what for row in exits if row.call_site is None} == {"sort"}


def test_code_made_in_a_loop_does_not_grow_the_table() -> None:
    log = Log(5)
    for _ in range(50):
        code = compile("pass", "<made>", "exec")
        log.exit("unique", (code, 0))
    snapshot = log.snapshot()
    assert len(log._exits.rows) <= 6
    assert snapshot.counts["exits"] == 50 == sum(row.times for row in snapshot.exits)


def test_texts_made_in_a_loop_do_not_grow_the_table() -> None:
    log = Log(5)
    for number in range(50):
        log.fallback("exp on sim:0", f"no room for {number} bytes", None if number % 2 else here())
    snapshot = log.snapshot()
    assert len(log._fallbacks.rows) <= 11
    assert snapshot.counts["fallbacks"] == 50 == sum(row.times for row in snapshot.fallbacks)
    assert "others" in {row.what for row in snapshot.fallbacks}


def test_counts_elements_fallbacks_demotions_and_reset() -> None:
    log = Log(10)
    log.count(launches=2, uploads=1, upload_bytes=80, cache_misses=1)
    log.count(cache_hits=3, downloads=1, download_bytes=8)
    log.elements("generated", "cpu", 100)
    log.elements("generated", "cpu", 11)
    log.elements("numpy", "cpu", 0)
    log.fallback("matmul", "out of memory", None)
    log.demotion("sin", "1.2 times NumPy's time", None)
    snapshot = log.snapshot()
    assert snapshot.counts == {
        **{"launches": 2, "uploads": 1, "upload_bytes": 80, "cache_misses": 1, "cache_hits": 3},
        **{"downloads": 1, "download_bytes": 8, "fallbacks": 1, "exits": 0, "demotions": 1},
        **{"kernels_compiled": 0, "kernels_loaded": 0, "plans_loaded": 0},
    }
    assert snapshot.elements == {("generated", "cpu"): 111}
    assert snapshot.fallbacks[0].reason == "out of memory"
    log.reset()
    empty = log.snapshot()
    assert (empty.records, empty.decisions, empty.elements) == ((), 0, {})
    assert not any(empty.counts.values())


def test_replayed_runs_count_fully_and_only_a_lone_decision_has_seconds() -> None:
    log = Log(10)
    log.replayed([(DECISION, None)], calls=4, seconds=8.0)
    log.replayed([(DECISION, None), (DECISION, None)], calls=5, seconds=1.0)
    log.replayed([(DECISION, None)], calls=0, seconds=None)
    snapshot = log.snapshot()
    assert snapshot.decisions == 4 + 10
    assert snapshot.seconds == 9.0
    assert [(r.runs, r.seconds) for r in snapshot.records] == [(4, 2.0), (5, None), (5, None)]


def test_collectors_report_before_reading() -> None:
    log = Log(10)
    calls = [3]

    def collect() -> None:
        log.replayed([(DECISION, None)], calls.pop() if calls else 0, 3.0)

    log.collectors.append(collect)
    assert log.snapshot().decisions == 3
    assert log.snapshot().decisions == 3


def test_entries_of_several_threads_are_all_counted() -> None:
    log = Log(100)

    def work() -> None:
        for _ in range(2000):
            log.replayed([(DECISION, None)], 1, 0.5)
            log.count(launches=1)
            log.elements("numpy", "cpu", 2)
            log.exit("unique", None)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    snapshot = log.snapshot()
    assert (snapshot.decisions, snapshot.seconds, snapshot.dropped) == (8000, 4000.0, 7900)
    assert snapshot.counts["launches"] == 8000 == snapshot.counts["exits"]
    assert snapshot.elements == {("numpy", "cpu"): 16000}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_can_log_while_a_thread_of_the_parent_holds_the_lock() -> None:
    from alight._src.log.decisions import LOG

    with LOG._lock:
        child = os.fork()
        if child == 0:
            done = threading.Event()

            def work() -> None:
                LOG.count(launches=1)
                done.set()

            threading.Thread(target=work, daemon=True).start()
            os._exit(0 if done.wait(280) else 1)  # before the limit of a test ends the parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_entry_is_stored_and_added_and_nothing_more() -> None:
    log = Log(10_000)
    site = here()

    def entries() -> None:
        for _ in range(1000):
            log.launched(DECISION, site, 1e-6, ("numpy", "cpu"), 0, False)

    entries()
    # launched, _heard, logger; what they take is measured by the ratchet of overheads
    assert counted(entries, "call") <= 4 * 1000
    assert counted(entries, "line") <= 16 * 1000


def test_logging_says_first_exits_at_info_and_decisions_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log(10)
    with caplog.at_level(logging.INFO, "alight"):
        for _ in range(3):
            log.exit("unique", here())
        log.replayed([(DECISION, here())], 1, 1e-6)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "unique" in caplog.text and __file__ in caplog.text
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "alight"):
        log.replayed([(DECISION, here())], 1, 1e-6)
        log.fallback("matmul", "no room", None)
    assert "add of 10 elements on cpu:numpy (cheapest)" in caplog.records[0].getMessage()
    assert "predicted 2 µs, measured 1 µs" in caplog.records[0].getMessage()
    assert "matmul on the host (no room)" in caplog.records[1].getMessage()


def group(kind: GroupKind, nodes: list[Node], *inputs: tuple[str, tuple[int, ...]]) -> Group:
    layouts = tuple(make_layout(np.dtype(d), s) for d, s in inputs)
    last = len(layouts) + len(nodes) - 1
    return Group(kind, Graph(layouts, tuple(nodes), (last,)), inputs[0][1])


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("add", "float64", 6),
        ("add", "float32", 6),
        ("add", "int8", 6),
        ("add", "float16", 0),
        ("add", "complex128", 0),
        ("logical_and", "bool", 6),
    ],
)
def test_elementwise_ufuncs_count_their_output(name: str, dtype: str, expected: int) -> None:
    layout = make_layout(np.dtype(dtype), (2, 3))
    node = Node(OPS[name], (0, 0), (), layout)
    assert eligible_elements(group(GroupKind.LOOP, [node], (dtype, (2, 3)))) == expected


def test_reductions_count_what_they_read_and_other_reductions_do_not() -> None:
    out = make_layout(np.dtype("f8"), (2,))
    for name, expected in (("sum", 6), ("mean", 6), ("max", 6), ("var", 0)):
        node = Node(OPS[name], (0,), (("axis", 1),), out)
        assert eligible_elements(group(GroupKind.REDUCE, [node], ("f8", (2, 3)))) == expected, name


def test_casts_and_copies_do_not_count() -> None:
    narrow = make_layout(np.dtype("f4"), (6,))
    nodes = [Node(OPS["cast"], (0,), (), narrow), Node(OPS["copy"], (1,), (), narrow)]
    assert eligible_elements(group(GroupKind.LOOP, nodes, ("f8", (6,)))) == 0
