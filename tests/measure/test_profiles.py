"""Profiles on disk and from elsewhere: what is used, what is doubted, what is put aside."""

from __future__ import annotations

import cProfile
import itertools
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alight._src.adapt import recalibrate
from alight._src.adapt.foreground import FOREGROUND
from alight._src.base.originals import ENVIRONMENT
from alight._src.measure import spot_check as canaries
from alight._src.measure.bounds import profile_of_document
from alight._src.measure.calibrate import calibrate
from alight._src.measure.device_calibration import Calibration
from alight._src.measure.findings import COPY_BYTES
from alight._src.measure.fit import fit
from alight._src.measure.imported import changes, import_profile
from alight._src.measure.link_probes import copied, rarely_copied
from alight._src.measure.points import points_of
from alight._src.measure.probe_bench import Bench
from alight._src.measure.probes import Probe, loop
from alight._src.measure.profiles import SOFT, fingerprint, load_profile, profile_key, save_profile
from alight._src.measure.samples import Samples
from alight._src.measure.sizes import MOST_BYTES
from alight._src.measure.spot_check import canary, holds
from alight._src.plan.cost import Profile, estimate
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.gemm_surface import Surface
from alight._src.plan.nearest import BORROWED_SPREAD
from alight._src.plan.passes import passes
from alight._src.plan.plan import Candidate, Decision, Estimate
from alight._src.run import evaluate
from alight._src.store import Store
from alight.backends.host import HostBackend
from alight.backends.registry import device
from alight.backends.sim.sim_backend import SimBackend
from alight.backends.sim.virtual_clock import DEFAULT_SPEC, Spec, recorded
from alight.device import Device
from alight.errors import StoreError
from cost_profiles import plan_by
from own_store import own_store

DEVICE = HostBackend().probe().devices[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store(tmp_path / "cache") as made:
        yield made


def host_profile(**fields: Any) -> Profile:
    """Return a profile of this host with the numbers of a simulated device."""
    made = replace(
        recorded("cpu", DEFAULT_SPEC), origin="measured", fingerprint=fingerprint(DEVICE)
    )
    rates = {"numpy": made.rates["library"], "generated": made.rates["generated"]}
    return replace(made, rates=rates, made_at=time.time(), **fields)


# --- what a profile is valid for ------------------------------------------------------------------


@pytest.mark.parametrize("part", [*SOFT, "older"])
def test_another_version_of_something_widens_intervals(store: Store, part: str) -> None:
    made = host_profile()
    if part == "older":
        made = replace(made, made_at=made.made_at - 40 * 24 * 3600)
    else:
        made = replace(made, fingerprint={**made.fingerprint, part: "another"})
    save_profile(made)
    found = load_profile(DEVICE)
    assert found is not None and part in found.doubts[0]
    for name, rates in found.rates.items():
        assert rates.spread == 2 * made.rates[name].spread
        assert rates.curves == made.rates[name].curves
    assert "doubts" not in found.to_dict()


@pytest.mark.parametrize("part", sorted({*fingerprint(DEVICE)} - {*SOFT}))
def test_with_anything_else_changed_a_profile_is_not_used(store: Store, part: str) -> None:
    made = host_profile()
    save_profile(replace(made, fingerprint={**made.fingerprint, part: "another"}))
    assert load_profile(DEVICE) is None
    # the same file under this machine's name, as a copied cache has it
    key = profile_key(made.fingerprint)
    foreign = {**made.to_dict(), "fingerprint": {**made.fingerprint, part: "another"}}
    store.write("profile", key, foreign)
    assert load_profile(DEVICE) is None
    assert [entry.form for entry in store.entries() if entry.key == key] == ["quarantined"]


def test_a_profile_that_had_too_little_time_does_not_replace_a_whole_one(store: Store) -> None:
    whole = host_profile(made_seconds=5.0)
    save_profile(whole)
    save_profile(host_profile(made_seconds=0.1, complete=False))
    found = load_profile(DEVICE)
    assert found is not None and found.complete and found.made_seconds == 5.0
    save_profile(host_profile(made_seconds=6.0))
    found = load_profile(DEVICE)
    assert found is not None and found.made_seconds == 6.0


def test_fresh_memory_is_measured_on_pages_that_nobody_touched(store: Store) -> None:
    backend = HostBackend()
    bench = Bench(backend, DEVICE, 1 << 12)
    for _ in range(8):  # an allocator that was given memory back hands it out again
        np.ones(1 << 23, np.uint8).sum()
        bench.time_allocation()
        made = replace(host_profile(), one_offs=bench.one_offs())
        assert save_profile(made).path is not None


def test_what_no_machine_can_have_is_not_stored(store: Store) -> None:
    instant = Measured(1e-12, "seconds", 1e-12, 1e-12, 1, "probe")
    with pytest.raises(StoreError, match=r"not stored: first_touch takes 1e-12 s.*Fix"):
        save_profile(replace(host_profile(), one_offs={"first_touch": instant}))
    assert load_profile(DEVICE) is None


@pytest.mark.parametrize("space", ["host", "card"])
def test_probes_stay_inside_of_the_arrays_they_are_given(space: str) -> None:
    host = device("cpu")
    support = replace(host.support, implementations=("generated", "library"))
    other = replace(host, id=space, space=space, unified_memory=False, support=support)
    for point in points_of(host if space == "host" else other):
        for layout in point.group.graph.inputs:
            ends = [(n - 1) * abs(s) for n, s in zip(layout.shape, layout.strides, strict=True)]
            assert sum(ends) + layout.dtype.itemsize <= MOST_BYTES, point.key


def test_a_profile_is_loaded_in_few_calls(store: Store) -> None:
    """Loading may take 5 ms. It is Python throughout, and the 9,700 calls of this one took 4 ms on
    an EPYC, 5.6 on a Xeon at half of its speed: calls are counted, for they are always the same."""
    made = host_profile()
    one = made.rates["numpy"].work["flop/float64"]
    surface = Surface((1e-6,) * 6, ((3.5, 4.5, 5.5),) * 64, (0.123456789,) * 64, 1.0)
    curves = {
        key: Curve(curve.knots[::4]) for key, curve in list(made.rates["numpy"].curves.items())[:16]
    }
    full = replace(
        made.rates["numpy"],
        curves=curves,
        work={f"some_operation_{i}/float64": one for i in range(250)},
        surfaces={"float32": surface, "float64": surface},
    )
    # as large as five seconds of measuring make it
    save_profile(replace(made, rates={"numpy": full, "generated": full}))
    load_profile(DEVICE)
    counted = cProfile.Profile()
    assert counted.runcall(load_profile, DEVICE) is not None
    assert sum(entry.callcount for entry in counted.getstats()) < 11_000


# --- hostile files --------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], Any]


def deep() -> dict[str, Any]:
    nested: Any = []
    for _ in range(400):
        nested = [nested]
    return {"device": nested}


def at(document: dict[str, Any], value: Any, *path: Any) -> dict[str, Any]:
    """Return the document with a value changed somewhere inside."""
    inner: Any = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return document


_NUMPY = ("rates", "numpy")
_ADD = (*_NUMPY, "curves", "elementwise/float64", "knots")
ABSURD: dict[str, Change] = {
    "a time of zero": lambda d: at(d, [[64.0, 0.0]], *_ADD),
    "a time below zero": lambda d: at(d, -1e-6, *_NUMPY, "launch", "value"),
    "no time": lambda d: at(d, None, *_NUMPY, "launch", "value"),
    "a launch of a day": lambda d: at(d, 86400.0, *_NUMPY, "launch", "value"),
    "a bandwidth above any peak": lambda d: at(d, [[1e15, 1e-6], [2e15, 2e-6]], *_ADD),
    "a knot of infinite work": lambda d: at(d, [[1e400, 1.0]], *_ADD),
    "two knots at one place": lambda d: at(d, [[64.0, 1e-6], [64.0, 2e-6]], *_ADD),
    "knots of text": lambda d: at(d, [["64", "fast"]], *_ADD),
    "twenty thousand knots": lambda d: at(d, [[64.0 + i, 1e-6] for i in range(20_000)], *_ADD),
    "an overlap of two": lambda d: at(d, 2.0, *_NUMPY, "overlap", "value"),
    "a spread that is no number": lambda d: at(d, "wide", *_NUMPY, "spread"),
    "8.9 s for an element": lambda d: at(d, 8.9, *_NUMPY, "work", "flop/float64", "value"),
    "a surface that multiplies for nothing": lambda d: at(
        d,
        {"float64": {"seconds": [1e-9, 0, 0, 0, 0], "centres": [], "heights": [], "width": 1.0}},
        *(*_NUMPY, "surfaces"),
    ),
    "rates that are a list": lambda d: at(d, [1, 2, 3], "rates"),
    "no rates": lambda d: {k: v for k, v in d.items() if k != "rates"},
    "another schema": lambda d: at(d, 99, "schema"),
    "a schema that is no number": lambda d: at(d, {"a": 1}, "schema"),
    "made by nobody": lambda d: at(d, None, "fingerprint"),
    "a link faster than any": lambda d: at(
        d, {"upload": {"knots": [[1e9, 1e-6]], "source": "probe"}}, "links"
    ),
    "nested without end": lambda d: deep(),
    "a list": lambda d: {"0": [d]},
}


@pytest.mark.parametrize("what", ABSURD)
def test_what_no_machine_can_have_is_put_aside_with_a_warning_and_its_fix(
    store: Store, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    made = host_profile()
    assert profile_of_document(made.to_dict()) == made
    key = profile_key(made.fingerprint)
    path = Path(str(store.place("profile", key)))
    bad = ABSURD[what](json.loads(json.dumps(made.to_dict())))
    store.write("profile", key, bad)
    with caplog.at_level(logging.WARNING, "alight"):
        assert load_profile(DEVICE) is None
    assert "Fix:" in caplog.text and str(path) in caplog.text
    assert not path.exists() and path.with_name(path.name + ".bad").exists()
    save_profile(made)  # and the place is free again
    found = load_profile(DEVICE)
    assert found is not None and found.rates == made.rates


@pytest.mark.parametrize(
    "content", [b"", b"\\x00\\xff garbage", b"[" * 100_000, b"{}", b'{"schema": 1}', b"null"]
)
def test_garbage_is_put_aside(store: Store, content: bytes) -> None:
    save_profile(host_profile())
    (path,) = [entry.path for entry in store.entries()]
    for text in (content, path.read_bytes()[:-100]):
        path.write_bytes(text)
        assert load_profile(DEVICE) is None
        assert save_profile(host_profile()).path == str(path)
        assert load_profile(DEVICE) is not None


def test_32_processes_that_store_profiles_and_are_killed_lose_none_and_corrupt_none(
    store: Store,
) -> None:
    random = Random(5)
    made = host_profile()
    save_profile(made)
    children = []
    for number in range(32):
        child = os.fork()
        if child == 0:
            try:
                os.nice(5)  # who looks at them is not kept waiting for its turn among 33
                backend = SimBackend()
                for again in range(100_000):
                    save_profile(replace(made, made_seconds=float(1 + again + 100_000 * number)))
                    run = Calibration(backend, backend.probe().devices[0], budget_seconds=0.005)
                    for _ in itertools.islice(run.steps(), 9):
                        pass
                    save_profile(run.profile())
            finally:
                os._exit(0)
        children.append(child)
    seen: set[float] = set()
    alive = list(children)
    try:
        while alive:  # the limit of a test's time ends one in which none ever stores
            found = load_profile(DEVICE)
            assert found is not None and found.rates == made.rates
            seen.add(found.made_seconds)
            if len(seen) > 1 and random.random() < 0.5:  # once they are storing
                victim = alive.pop(random.randrange(len(alive)))
                os.kill(victim, signal.SIGKILL)
                os.waitpid(victim, 0)
    finally:
        for victim in alive:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
    assert load_profile(DEVICE) is not None
    assert len(seen) > 1  # some of them did store
    assert [e for e in store.entries() if e.form == "quarantined"] == []
    save_profile(replace(made, made_seconds=7.0))  # nobody holds the lock any more
    found = load_profile(DEVICE)
    assert found is not None and found.made_seconds == 7.0


# --- profiles from files --------------------------------------------------------------------------


def written(folder: Path, document: object) -> Path:
    path = folder / "given.json"
    path.write_text(json.dumps(document))
    return path


def test_a_profile_is_imported_from_its_file_in_the_store(store: Store, tmp_path: Path) -> None:
    made = host_profile()
    place = save_profile(made).path
    assert place is not None
    for path in (place, written(tmp_path, made.to_dict())):
        found = import_profile(path, DEVICE)
        assert found.origin == "imported" and found.rates == made.rates and not found.doubts
    softer = {**made.to_dict(), "fingerprint": {**made.fingerprint, "numpy": "1.0"}}
    found = import_profile(written(tmp_path, softer), DEVICE)
    assert "numpy" in found.doubts[0]
    assert found.rates["numpy"].spread == 2 * made.rates["numpy"].spread


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_numbers_are_not_imported(store: Store, tmp_path: Path, what: str) -> None:
    bad = ABSURD[what](json.loads(json.dumps(host_profile().to_dict())))
    with pytest.raises(StoreError, match="Fix:"):
        import_profile(written(tmp_path, bad), DEVICE)


def test_a_foreign_profile_is_refused(store: Store, tmp_path: Path) -> None:
    made = host_profile()
    foreign = {**made.to_dict(), "fingerprint": {**made.fingerprint, "cpu": "Z80"}}
    with pytest.raises(StoreError, match=r"another machine.*Z80.*Fix:"):
        import_profile(written(tmp_path, foreign), DEVICE)
    with pytest.raises(StoreError, match=r"not of cpu.*Fix:"):
        import_profile(written(tmp_path, {**made.to_dict(), "device": "cuda:0"}), DEVICE)


def test_what_cannot_be_imported_is_said_with_its_fix(tmp_path: Path) -> None:
    files = {
        "text": b"not json", "empty": b"", "binary": bytes(range(128, 256)), "list": b"[1]",
        "other": b'{"a": 1}', "deep": b"[" * 100_000, "number": b'{"rates": NaN}',
        "half": b'{"rates": {', "rates": b'{"rates": 3}',
        "device": b'{"rates": {}, "device": "cpu"}',
    }  # fmt: skip
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(StoreError, match=rf"{name} is not imported: .*Fix: "):
            import_profile(path, DEVICE)
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreError, match=r"not imported: .*Fix: name a file that can be read"):
            import_profile(path, DEVICE)


def test_what_changes_is_told_in_the_unit_of_its_curve() -> None:
    curve = Curve([(2.0**k, 1e-6 * k) for k in (12, 16, 20)], "probe")
    made = host_profile()
    curves = {f"{kind}/float64": curve for kind in ("matmul", "dot", "matvec", "sort", "scan")}
    numpy = replace(made.rates["numpy"], curves=curves, surfaces={})
    names = [c.name for c in changes(None, replace(made, rates={"numpy": numpy}))]
    told = {name.split()[1]: name.partition(" of ")[2] for name in names if "/float64 of " in name}
    products = dict.fromkeys(("matmul/float64", "dot/float64", "matvec/float64"), "1.05e+06 flops")
    assert told == products | dict.fromkeys(("sort/float64", "scan/float64"), "1.0 MiB")


# --- devices that are not what their profile says -------------------------------------------------


def slowed(spec: Spec, factor: float) -> Spec:
    """Return a spec by which everything takes so many times as long."""

    def each(value: Any, key: str = "") -> Any:
        if isinstance(value, dict) and "value" in value:
            seconds = value["unit"] == "seconds"
            rate = "per second" in value["unit"]
            scaled = value["value"] * factor if seconds else value["value"]
            return {**value, "value": value["value"] / factor if rate else scaled}
        if isinstance(value, dict):
            return {k: each(v) for k, v in value.items()}
        return value

    return {k: each(v) for k, v in spec.items()}


def test_a_device_slowed_twice_is_noticed_and_one_that_is_not_holds() -> None:
    profile = replace(recorded("sim:0", DEFAULT_SPEC), origin="measured")
    for factor in (1.0, 2.0, 0.5):
        backend = SimBackend({"sim:0": slowed(DEFAULT_SPEC, factor)})
        device = backend.probe().devices[0]
        backend.open(device)
        ratio = canary(backend, device, profile)
        assert ratio is not None and ratio == pytest.approx(factor, rel=0.05)
        assert holds(ratio, profile) is (factor == 1.0)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 3), (0.015, 2), (0.03, 1)])
def test_the_hosts_canary_begins_nothing_once_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: int
) -> None:
    """How long it takes is measured by the ratchet of overheads."""
    profile = host_profile()
    now, compiled = 0.0, []
    visit = Bench.visit

    def visited(bench: Bench, launch: Any) -> list[float]:
        nonlocal now
        now += seconds
        compiled.append(len(bench.compiled))
        return visit(bench, launch)

    monkeypatch.setattr(canaries, "perf_counter", lambda: now)
    monkeypatch.setattr(Bench, "visit", visited)
    ratio = canary(HostBackend(), DEVICE, profile)
    assert ratio is not None and ratio > 0
    assert compiled == [0] * expected  # compiling takes longer than all of the time there is


def test_a_close_decision_has_its_profile_looked_at_when_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[str] = []

    def look(backend: object, device: Device, profile: Profile) -> float:
        looks.append(device.id)
        return 2.0

    def decision(*seconds: float) -> Decision:
        found = tuple(
            Candidate("cpu", name, Estimate(s, s / 1.2, s * 1.2, {"launch": s}))
            for name, s in zip(("numpy", "generated"), seconds, strict=True)
        )
        blank = Decision.__new__(Decision)
        object.__setattr__(blank, "candidates", found)
        return blank

    due: list[str] = []
    ends: list[tuple[Callable[[str], None], str]] = []
    monkeypatch.setattr("alight._src.measure.spot_check.canary", look)
    monkeypatch.setattr(FOREGROUND, "began", -1e9)
    monkeypatch.setattr(recalibrate, "config", lambda: SimpleNamespace(calibrate="auto"))
    monkeypatch.setattr(recalibrate, "when_over", lambda *work: ends.append(work))
    monkeypatch.setattr(recalibrate, "_due", set())
    monkeypatch.setattr(recalibrate, "_measure_at_exit", due.append)
    plan_by(monkeypatch, host_profile())
    recalibrate.note_close([decision(1e-3, 5e-3)])
    assert ends == []
    for _ in range(2):
        recalibrate.note_close([decision(1e-3, 1.1e-3)])
        evaluate.evaluate(())
    assert len(ends) == 1 and looks == [], "no call of the program's waits for it"
    with caplog.at_level(logging.INFO, "alight"):
        for work, name in ends:
            work(name)
    assert looks == ["cpu"] and due == ["cpu"]
    assert "2.00 times as long" in caplog.text and "Fix:" in caplog.text


def test_without_a_profile_nothing_is_predicted() -> None:
    from alight._src.measure import probes

    group = probes.loop("add", "float64", 1000)
    assert estimate(group, "sim:0", "generated", None) is None


def test_an_interrupt_keeps_what_there_is(store: Store) -> None:
    backend = SimBackend()
    device = backend.probe().devices[0]
    told = []

    def progress(share: float, what: str) -> None:
        told.append(what)
        if len(told) == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(60.0, [(backend, device)], progress)
    found = load_profile(device)
    assert found is not None and not found.complete
    assert found.rates["generated"].curves


def test_links_are_measured_both_ways_and_for_every_kind_of_memory() -> None:
    backend = SimBackend()
    device = backend.probe().devices[0]
    backend.open(device)
    run = Calibration(backend, device, budget_seconds=60.0)
    run._bench = Bench(backend, device, 1 << 20)
    run._bench.time_allocation()
    told = list(copied(run._bench, run.found, COPY_BYTES[:2], ("",)))
    assert len(told) == 6
    told = list(copied(run._bench, run.found, COPY_BYTES, ("",)))
    assert len(told) == 3 * (len(COPY_BYTES) - 2)  # each once
    told = list(rarely_copied(run._bench, run.found))
    assert told[-1].startswith("both ways")
    profile = run.profile()
    for direction in ("upload", "download", "device"):
        link = DEFAULT_SPEC["links"][direction]
        for nbytes in (4, 1 << 13, 1 << 26):
            expected = link["latency"]["value"] + nbytes / link["bandwidth"]["value"]
            found = profile.links[direction].seconds_at(nbytes)
            assert found == pytest.approx(expected, rel=0.1), (direction, nbytes)
    assert {"upload_pinned", "download_registered"} <= {*profile.links}
    assert {"allocate", "first_touch", "both_ways"} <= {*profile.one_offs}


def test_a_probe_that_spans_more_than_its_array_is_refused() -> None:
    bench = Bench(HostBackend(), DEVICE, 1 << 12)
    with pytest.raises(ValueError, match=r"spans 20\d\d\d bytes.*Fix"):
        bench.launch(Probe("numpy", loop("add", "float64", 512, step=5)))


def test_a_profile_is_of_the_kernels_that_blas_is_told_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(ENVIRONMENT, "OPENBLAS_CORETYPE", raising=False)
    as_chosen = fingerprint()
    monkeypatch.setitem(ENVIRONMENT, "OPENBLAS_CORETYPE", "Haswell")
    told = fingerprint()
    assert "OPENBLAS_CORETYPE=Haswell" in told["blas"]["settings"]
    assert {key for key in told if told[key] != as_chosen[key]} == {"blas"}
    assert "blas" not in SOFT


def test_what_a_program_tells_blas_after_it_was_loaded_changes_no_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = fingerprint()
    other = "1" + os.environ.get("OMP_NUM_THREADS", "")
    monkeypatch.setenv("OMP_NUM_THREADS", other)  # as scripts do above their own `import numpy`
    assert fingerprint() == before


def test_one_size_of_each_class_makes_rates_of_all_of_them() -> None:
    """However little time there is, no class of a library is left without seconds of its own."""
    samples = Samples("numpy", 8192)
    coarse = [p for p in points_of(DEVICE) if p.coarse and p.implementation == "numpy"]
    for point in coarse:
        samples.add(point.key, point.amount, point.group, [1e-6 + 1e-9 * point.amount])
    found = fit(samples)
    assert found is not None
    kinds = {key.partition("/")[0] for key in found.curves}
    wanted = {"sort", "gather", "move", "fft", "scan", "select", "dot", "matvec", "reduce_outer"}
    assert kinds >= {"elementwise", "reduce_inner", *wanted}
    for key, amount, group in [(p.key, p.amount, p.group) for p in coarse]:
        kind = key.partition("/")[0]
        if kind in wanted:
            (work,) = [item.amount for item in passes(group, "numpy")]
            assert found.curves[key].seconds_at(work) == pytest.approx(1e-6 + 1e-9 * amount)
            assert found.spreads[kind] >= BORROWED_SPREAD  # of one size it is not sure
    assert {*found.surfaces} == {"float64", "float32"}
    surface = found.surfaces["float64"]
    side = round((max(p.amount for p in coarse if p.key == "matmul/float64") / 2) ** (1 / 3))
    assert surface.seconds_at(side, side, side) == pytest.approx(2e-9 * side**3, rel=0.3)
    assert found.spreads["matmul"] >= BORROWED_SPREAD


def test_what_is_coarse_comes_first_and_each_point_once() -> None:
    points = [*points_of(DEVICE)]
    where = [(p.implementation, p.key, p.amount) for p in points]
    assert len({*where}) == len(where)
    coarse = [p.coarse for p in points]
    assert coarse == sorted(coarse, reverse=True) and 15 < sum(coarse) < 40
    names = [p.implementation for p in points if p.coarse]
    assert names == sorted(names, key=lambda name: name == "generated")
