"""`alight bench --regret`: what choosing by the model costs, against the best there was.

Every program is planned freely and forced to every device and implementation. Each group of these
plans is timed on every candidate, each program in every place, in turns. What comes out is a table
from which the choices can be judged, here and later, on a machine without the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from random import Random
from time import monotonic, perf_counter, time
from typing import Any

import numpy as np

from alight._src.adapt import planner_facts
from alight._src.bench.inputs import SEED, Arrays
from alight._src.bench.programs import PROGRAMS
from alight._src.bench.worker import rest
from alight._src.config.loading import current_policy, policy
from alight._src.explain.dry_run import Request, Unwatched, arrays_in, requests_of
from alight._src.explain.tables_data import machine_row
from alight._src.ir.group import Group
from alight._src.jit.decorator import as_jitted
from alight._src.measure.probe_bench import Bench
from alight._src.measure.timing import LEAST_SECONDS, QUANTILE, Pace, quantile
from alight._src.plan.choose import group_key, operation
from alight._src.plan.plan import Decision, LaunchStep, Plan, Spot, Step
from alight._src.plan.plan_cost import account
from alight._src.record.conversions import asarray
from alight._src.run import evaluate, measured_choice, residency
from alight.backends import registry
from alight.device import Device, Reason

__all__ = ["SCHEMA", "Case", "cases", "collect", "planned", "runner", "signature"]

SCHEMA = 1

Row = dict[str, Any]
Case = tuple[str, int, str]  # program, elements, dtype

# Rounds over the places of a program. The 20 % quantile of fifteen is the fourth best.
_ROUNDS = 15
# What a round may take: a program that takes longer is timed less often, three times at least.
_ROUND_SECONDS = 2.0
# From here on a call takes as long whatever was before it: some tenths of a millisecond more.
_LONG_SECONDS = 10e-3
# Calls of a program in a row, of which the last counts: what one takes that is called again and
# again. Threads that have slept take some calls to come back (16 of them after a rest, dot products
# of 2^17 float64 in turn: 207, 121, 141, 100, 95, 96 us, by BLAS 380, 166, 127, 101, 106, 97;
# softmax of 2^20 float32 511, 368, 354, 345, 334, 304 and in the end 285).
_IN_A_ROW = 6
# Passes over the candidates of a group; the better counts, as other work only adds. More where the
# processor was slow all through them: for some tenths of a second all took up to 1.7 times as long.
_PASSES, _MOST_PASSES = 2, 6
_PACE = Pace()
# Candidates that lie within this factor are timed once more when all is done, and the better
# counts: there are moments that outlast a program's turn, in which all that an H200 did took 3 us
# longer (1.2 times, for tens of seconds), a stencil 1.5 times, what one thread of its host did 1.3.
_MOMENTS = 1.5

_IMPOSSIBLE = (Reason.GAP, Reason.DTYPE_UNSUPPORTED, Reason.OUT_OF_MEMORY)


def cases(names: Sequence[str], sizes: Sequence[int], dtypes: Sequence[str]) -> Iterator[Case]:
    """Yield what is timed, every program once before any is timed at another size."""
    for n in sizes:
        for dtype in dtypes:
            for name in names:
                if n >= PROGRAMS[name].least:
                    yield name, n, dtype


def inputs_of(case: Case) -> Arrays:
    """Return a case's arrays, the same on every machine."""
    name, n, dtype = case
    return PROGRAMS[name].inputs(n, np.dtype(dtype), np.random.default_rng(SEED))


def planned(case: Case) -> list[Request]:
    """Return the requests of a case, planned as the policy in force says."""
    return requests_of(PROGRAMS[case[0]].function, inputs_of(case), {})


def collect(wanted: Sequence[Case], budget_seconds: float, say: Callable[[str], None]) -> Row:
    """Return the table of these cases, as many as there is time for."""
    devices = registry.devices_allowed(current_policy())
    places = [(d.id, name) for d in devices for name in d.support.implementations]
    began = monotonic()
    groups: dict[str, Row] = {}
    met: dict[str, Group] = {}
    programs: list[Row] = []
    away = [device for device in devices if device.space != "host"]
    copies: dict[str, Row] = {device.id: {way: {} for way in _ENDS} for device in away}
    left_out = 0
    for case in wanted:
        if monotonic() - began > budget_seconds:
            left_out += 1
            continue
        say(f"{case[0]} {case[1]} {case[2]}")
        programs.append(_program(case, places, groups, met))
        for device in away:
            _copies(device, groups.values(), copies[device.id])
    for key, group in met.items():
        if monotonic() - began <= budget_seconds:
            _again(group, groups[key])
    profiles = planner_facts.profiles(devices)
    return {
        "schema": SCHEMA,
        "made_at": time(),
        "machine": machine_row(),
        "devices": [device.id for device in devices],
        "profiles": {name: profile.to_dict() for name, profile in profiles.items()},
        "programs": programs,
        "left_out": left_out,
        "groups": groups,
        "copies": copies,
    }


_ENDS = {"upload": "inputs", "download": "outputs"}  # of a group, that are copied this way


def _copies(device: Device, groups: Iterable[Row], known: Row) -> None:
    """Add to what is known what copies of all that these groups read to a device, and of what they
    make from it, were predicted to take, and took."""
    bench = Bench(registry.backend_of(device), device, 0)
    for way, ends in _ENDS.items():
        spaces = ("host", device.space) if way == "upload" else (device.space, "host")
        for nbytes in sorted({nbytes for group in groups for nbytes in group[ends]}):
            if str(nbytes) not in known[way]:
                known[way][str(nbytes)] = {
                    "seconds": bench.time_copy(way, nbytes).seconds,
                    "predicted": planner_facts.copy_seconds(*spaces, nbytes),
                }


def _program(
    case: Case, places: Sequence[Spot], groups: dict[str, Row], met: dict[str, Group]
) -> Row:
    """Return a program's seconds in every place, and have its groups timed on all candidates."""
    asked = planned(case)
    ways = {"planned": policy(floor=0)}
    for device, name in places:
        ways[f"{device}:{name}"] = policy(force=f"{device}:{name}", floor=0)
    runs: dict[str, Callable[[], float]] = {}
    predicted: dict[str, float | None] = {}
    names: dict[str, list[str]] = {}  # of the ways with the plan of each that runs
    first: dict[Hashable, str] = {}
    for way, settings in ways.items():
        with settings:
            plans = [request.plan() for request in asked]
        alike = first.setdefault(signature(plans), way)
        names.setdefault(alike, []).append(way)
        for plan in plans:
            for step in plan.steps:
                if isinstance(step, LaunchStep):
                    key = group_key(step.group)
                    if key not in groups:
                        met[key] = step.group
                        groups[key] = _group(step.group, step.decision)
        if alike == way:  # one plan is timed once: what it takes twice differs by noise alone
            runs[way] = runner(case, settings)
            with settings:
                predicted[way] = _predicted(asked, plans)
    samples: dict[str, list[float]] = {way: [] for way in runs}
    apart: dict[str, list[float]] = {way: [] for way in runs}
    spent = 0.0
    order = Random(SEED)
    for turn in range(_ROUNDS):
        began = perf_counter()
        # Each way follows each other one: what ran before leaves caches, pages and threads behind,
        # in which the first call is apart from a program's others. After 40 ms of rest a dot
        # product that takes 0.24 ms again and again took 0.59, by whichever way (H200's host).
        # A library's threads spin on for 128 ms, and slow down whoever is next: a program that runs
        # in one place meets no other place's (a dot product of 2^20 took 290 us behind them, a
        # quadratic of as many bytes 164: H200's host).
        for way, run in order.sample([*runs.items()], len(runs)):
            rest()
            seconds = alone = run()
            for _ in range(_IN_A_ROW - 1 if alone < _LONG_SECONDS else 0):
                seconds = run()
            if turn:  # the first one compiles and fills caches
                samples[way].append(seconds)
                apart[way].append(alone)
        spent += perf_counter() - began
        if turn >= 3 and spent > _ROUND_SECONDS:
            break
    name, n, dtype = case
    return {
        "program": name,
        "n": n,
        "dtype": dtype,
        "requests": len(asked),
        "predicted": {way: predicted[run] for run in runs for way in names[run]},
        "seconds": _spread(samples, names),
        "apart": _spread(apart, names),
    }


def _spread(samples: Row, names: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the seconds of each way by the samples of the one that stands for it."""
    return {
        way: quantile(sorted(found), QUANTILE)
        for run, found in samples.items()
        for way in names[run]
    }


def _predicted(asked: Sequence[Request], plans: Sequence[Plan]) -> float | None:
    """Return the predicted seconds of these plans; None where a group has no figure."""
    found = [
        account(plan, request.graph, request.facts()).estimate
        for request, plan in zip(asked, plans, strict=True)
    ]
    known = [one.seconds for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def signature(plans: Iterable[Plan]) -> Hashable:
    """Return what two plans that run the same have in common."""
    return tuple([tuple([_step(step) for step in plan.steps]) for plan in plans])


def _step(step: Step) -> Hashable:
    if isinstance(step, LaunchStep):
        return group_key(step.group), step.device, step.implementation, step.inputs, step.outputs
    return type(step).__name__, step.target, getattr(step, "device", "")


def runner(case: Case, settings: policy) -> Callable[[], float]:
    """Return what runs a program once, from the host's memory to it, and returns its seconds."""
    given = [asarray(array) for array in inputs_of(case)]
    function = PROGRAMS[case[0]].function

    def run() -> float:
        for array in given:  # what an earlier run left on a device is not there
            residency.only_on_host(array.storage.value.data)
        with settings, np.errstate(all="ignore"), as_jitted(function, Unwatched()) as body:
            began = perf_counter()
            results = arrays_in(body(*given))
            evaluate.evaluate([array.storage.value for array in results])
            for array in results:
                evaluate.host_array(array.storage.value)
            return perf_counter() - began

    return run


def _group(group: Group, decision: Decision) -> Row:
    """Return what each candidate of a group was predicted to take, and took."""
    able = [
        (c.device, c.implementation) for c in decision.candidates if c.reason not in _IMPOSSIBLE
    ]
    places: dict[str, Row] = {}
    for (device, name), seconds in _taken(group, able).items():
        guess = planner_facts.estimate(group, device, name)
        row = places[f"{device}:{name}"] = {"seconds": seconds}
        if guess is not None:
            row |= {"predicted": guess.seconds, "low": guess.low, "high": guess.high}
    return {
        "operation": operation(group),
        "kind": group.kind.value,
        "nodes": len(group.graph.nodes),
        "elements": decision.elements,
        # numbers go along with a launch
        "inputs": [layout.nbytes for layout in group.graph.inputs if layout.ndim],
        "outputs": [group.graph.layouts[number].nbytes for number in group.graph.outputs],
        "places": places,
    }


def _taken(group: Group, able: Sequence[Spot]) -> dict[Spot, float]:
    """Return the seconds that a group took on each of these, where it can run by itself."""
    found: dict[Spot, float] = {}
    timers = {spot: measured_choice.timer(group, *spot) for spot in able}
    undisturbed = False
    for turn in range(_MOST_PASSES):
        if turn >= _PASSES and undisturbed:
            break
        steady = _PACE.steady()
        for spot in able:
            if turn and spot not in found:
                continue
            timing = timers[spot](LEAST_SECONDS)
            if timing is None:
                continue
            found[spot] = min(timing.seconds, found.get(spot, timing.seconds))
            steady = steady and _PACE.steady()
        undisturbed = undisturbed or steady
    return found


def _again(group: Group, row: Row) -> None:
    """Time those candidates of a group once more that are about as quick as its quickest."""
    places = row["places"]
    least = min([place["seconds"] for place in places.values()], default=0.0)
    near = [spot for spot, place in places.items() if place["seconds"] <= _MOMENTS * least]
    if len(near) > 1:
        spots = {(d, name): f"{d}:{name}" for d, _, name in (s.rpartition(":") for s in near)}
        for spot, seconds in _taken(group, list(spots)).items():
            place = places[spots[spot]]
            place["seconds"] = min(place["seconds"], seconds)
