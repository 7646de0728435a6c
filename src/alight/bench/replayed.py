"""A table of `alight bench --regret` played again, on a machine without the devices.

The programs are planned as they are here, with the predictions of the table for the host and those
of a simulated device's profile for it; what the plan would have taken is then added up from what
was measured, and from the simulated clock. Beside it stands the plan made from the measured seconds
themselves: the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from alight import costs, registry
from alight.backends import sim_clock
from alight.backends.sim import SimBackend
from alight.backends.sim_clock import Spec, group_seconds, recorded
from alight.bench.regret import planned
from alight.ir.group import Group
from alight.plan import cost
from alight.plan.account import account
from alight.plan.choose import group_key
from alight.plan.place import make_plan
from alight.plan.plan import Estimate

__all__ = ["program_regrets"]

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
        return costs.supports(device, implementation, group) if device == "cpu" else None

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
                return sim_clock.copy_seconds(self.specs[device], nbytes, direction)
            return cost.copy_seconds(self.profiles[device], nbytes, direction) or 0.0

        def copy_seconds(source: str, target: str, nbytes: int) -> float:
            down = 0.0 if source == "host" else one(source, nbytes, "download")
            return down + (0.0 if target == "host" else one(target, nbytes, "upload"))

        return copy_seconds
