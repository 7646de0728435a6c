"""A table of `alight bench --regret` played again, on a machine without the devices.

The programs are planned as they are here, with the predictions of the table for the host and those
of a simulated device's profile for it; what the plan would have taken is then added up from what
was measured, and from the simulated clock. Beside it stands the plan made from the measured seconds
themselves: the oracle.

A table of real devices is looked at again with the profiles that it holds: what would be predicted
and planned today, beside what was measured then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alight._src.adapt import planner_facts
from alight._src.bench.regret import planned, signature
from alight._src.ir.group import Group
from alight._src.plan import cost
from alight._src.plan.choose import group_key
from alight._src.plan.place import make_plan
from alight._src.plan.plan import Estimate, LaunchStep, Plan
from alight._src.plan.plan_cost import account
from alight._src.plan.profile import Profile
from alight.backends import registry
from alight.backends.sim import virtual_clock
from alight.backends.sim.sim_backend import SimBackend
from alight.backends.sim.virtual_clock import Spec, group_seconds, recorded
from alight.device import HOST_DEVICE, Device

__all__ = ["again", "program_regrets"]

Row = dict[str, Any]


def program_regrets(table: Mapping[str, Any], specs: Mapping[str, Spec]) -> list[Row]:
    """Return, for each program of a table, its seconds as planned and as the oracle plans it, on
    the host and the simulated devices that ``specs`` describe.

    ``unknown`` names what the table has no seconds for; then both are None.
    """
    play = _Play(table, specs)
    return [play.program(row) for row in table["programs"]]


class _Play:
    def __init__(self, table: Mapping[str, Any], specs: Mapping[str, Spec]) -> None:
        self.groups = table["groups"]
        self.specs = specs
        self.profiles = {name: recorded(name, spec) for name, spec in specs.items()}
        self.devices = (registry.device("cpu"), *SimBackend(specs).probe().devices)

    def program(self, row: Row) -> Row:
        """Return what became of one program."""
        chosen = best = 0.0
        unknown: list[str] = []
        places: dict[str, int] = {}
        for request in planned((row["program"], row["n"], row["dtype"])):
            facts = replace(
                request.facts(),
                devices=self.devices,
                profiles={},
                demoted=frozenset(),  # what lost here did so on another machine
                supports=self.supports,
                estimate=self.predicted,
                copy_seconds=self.copies(predicted=True),
            )
            truth = replace(facts, estimate=self.true, copy_seconds=self.copies(predicted=False))
            plan = make_plan(request.graph, facts)
            ours = account(plan, request.graph, truth, self.true)
            oracle = account(make_plan(request.graph, truth), request.graph, truth, self.true)
            # What nobody has figures of stays with NumPy: that is a rule and no choice.
            guessed = account(plan, request.graph, facts)
            unknown += [*guessed.unknown, *ours.unknown, *oracle.unknown]
            for place, count in ours.places.items():
                places[place] = places.get(place, 0) + count
            chosen += 0.0 if ours.estimate is None else ours.estimate.seconds
            best += 0.0 if oracle.estimate is None else oracle.estimate.seconds
        found: Row = {name: row[name] for name in ("program", "n", "dtype")}
        found |= {"places": places, "unknown": list(dict.fromkeys(unknown))}
        found |= (
            {"seconds": None, "oracle": None} if unknown else {"seconds": chosen, "oracle": best}
        )
        return found

    def supports(self, device: str, implementation: str, group: Group) -> str | None:
        return planner_facts.supports(device, implementation, group) if device == "cpu" else None

    def of_table(self, group: Group, implementation: str) -> Row | None:
        row = self.groups.get(group_key(group))
        return None if row is None else row["places"].get(f"cpu:{implementation}")

    def predicted(self, group: Group, device: str, implementation: str) -> Estimate | None:
        if device != "cpu":
            return cost.estimate(group, device, implementation, self.profiles[device])
        row = self.of_table(group, implementation)
        if row is None or "predicted" not in row:
            return None
        return Estimate(row["predicted"], row["low"], row["high"], {"predicted": row["predicted"]})

    def true(self, group: Group, device: str, implementation: str) -> Estimate | None:
        # A candidate that nobody has figures of is not chosen, by the oracle either.
        if self.predicted(group, device, implementation) is None:
            return None
        row = self.of_table(group, implementation)
        if device != "cpu":
            seconds = group_seconds(self.specs[device], group, implementation)
        else:
            assert row is not None
            seconds = row["seconds"]
        return Estimate(seconds, seconds, seconds, {"measured": seconds})

    def copies(self, predicted: bool) -> Callable[[str, str, int], float]:
        def one(device: str, nbytes: int, direction: str) -> float:
            if not predicted:
                return virtual_clock.copy_seconds(self.specs[device], nbytes, direction)
            return cost.copy_seconds(self.profiles[device], nbytes, direction) or 0.0

        def copy_seconds(source: str, target: str, nbytes: int) -> float:
            down = 0.0 if source == "host" else one(source, nbytes, "download")
            return down + (0.0 if target == "host" else one(target, nbytes, "upload"))

        return copy_seconds


def again(table: Mapping[str, Any], devices: Sequence[Device]) -> Row:
    """Return a table of these devices with what is predicted and planned today from the profiles it
    holds, as `judged.figures` takes it.

    Groups that no plan of today or of then has any more are left out. A program is ``planned``
    where a way that was timed had the plan of today; ways with one plan took what the quickest did.
    """
    return _Again(table, devices).table()


class _Again:
    def __init__(self, table: Mapping[str, Any], devices: Sequence[Device]) -> None:
        self.given = table
        self.devices = tuple(devices)
        self.named = {device.id: device for device in devices}
        found = {name: Profile.from_dict(item) for name, item in table["profiles"].items()}
        self.profiles = found
        steps = {name: profile.one_offs.get("step") for name, profile in found.items()}
        self.steps = {name: step.value for name, step in steps.items() if step is not None}
        self.met: dict[str, Group] = {}

    def table(self) -> Row:
        """Return the table."""
        programs = [self.program(row) for row in self.given["programs"]]
        groups = {key: self.group(key, group) for key, group in self.met.items()}
        return {**self.given, "programs": programs, "groups": groups}

    def program(self, row: Row) -> Row:
        """Return a program's seconds by the plans that were timed, and as planned today."""
        asked = planned((row["program"], row["n"], row["dtype"]))
        known: dict[Any, float] = {}
        seconds: dict[str, float] = {}
        plans = {way: self.plans(asked, way, self.then) for way in row["seconds"]}
        keys = {way: signature(found) for way, found in plans.items()}
        for way, taken in row["seconds"].items():
            known[keys[way]] = min(taken, known.get(keys[way], taken))
        for way in row["seconds"]:
            seconds[way] = known[keys[way]]
        today = signature(self.plans(asked, "planned", self.now))
        seconds.pop("planned", None)
        if today in known:
            seconds["planned"] = known[today]
        return {**row, "seconds": seconds}

    def plans(self, asked: Sequence[Any], way: str, estimate: Callable[..., Any]) -> list[Plan]:
        """Return the plans of a program's requests, and note their groups."""
        device, _, name = way.rpartition(":")
        force = (None, None) if way == "planned" else (device, name)
        found = []
        for request in asked:
            facts = replace(
                request.facts(),
                devices=self.devices,
                profiles={},
                demoted=frozenset(),  # what lost here did so on another machine
                supports=self.supports,
                estimate=estimate,
                copy_seconds=self.copy_seconds,
                force=force,
                step_seconds=self.steps[HOST_DEVICE],
                steps=self.steps,
            )
            plan = make_plan(request.graph, facts)
            for step in plan.steps:
                if isinstance(step, LaunchStep):
                    key = group_key(step.group)
                    if key in self.given["groups"]:
                        self.met[key] = step.group
            found.append(plan)
        return found

    def group(self, key: str, group: Group) -> Row:
        """Return a group's row with the predictions of today."""
        row = self.given["groups"][key]
        places: dict[str, Row] = {}
        for place, then in row["places"].items():
            guess = self.now(group, *place.rsplit(":", 1))
            places[place] = {"seconds": then["seconds"]}
            if guess is not None:
                places[place] |= {"predicted": guess.seconds, "low": guess.low, "high": guess.high}
        return {**row, "places": places}

    def supports(self, device: str, implementation: str, group: Group) -> str | None:
        return planner_facts.gap_on(self.named[device], implementation, group)

    def now(self, group: Group, device: str, implementation: str) -> Estimate | None:
        """Return what the model says today."""
        return cost.estimate(group, device, implementation, self.profiles[device])

    def then(self, group: Group, device: str, implementation: str) -> Estimate | None:
        """Return what the model said when the table was made, where that is known."""
        row = self.given["groups"].get(group_key(group), {"places": {}})
        found = row["places"].get(f"{device}:{implementation}", {})
        if "predicted" not in found:
            return self.now(group, device, implementation)
        terms = {"predicted": found["predicted"]}
        return Estimate(found["predicted"], found["low"], found["high"], terms)

    def copy_seconds(self, source: str, target: str, nbytes: int) -> float:
        seconds = 0.0
        for space, direction in ((source, "download"), (target, "upload")):
            if space != "host":
                seconds += cost.copy_seconds(self.profiles[space], nbytes, direction) or 0.0
        return seconds
