"""Devices that nobody named: one that was calibrated here takes part once it is worth opening.

Until then plans are made without it, and each says what it lacks by that. When what single requests
have lost so, with what loops have lost beyond their own moves (`plan.rent_or_buy`), is what opening
takes, the device is opened and plans are made anew with it. All of it are predictions, so a program
joins its devices at the same place each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from time import time
from typing import TYPE_CHECKING, NamedTuple

from alight._src.adapt import planner_facts
from alight._src.base.failures import failures
from alight._src.base.formatting import readable_seconds
from alight._src.base.records import dataclass, field, replace
from alight._src.config.loading import calibrate_here
from alight._src.config.policy import Policy
from alight._src.ir.graph import Graph
from alight._src.ir.group import Group
from alight._src.log.decisions import logger
from alight._src.plan.compile_work import compile_seconds
from alight._src.plan.place import make_plan
from alight._src.plan.plan import (
    Estimate,
    Facts,
    LaunchStep,
    Plan,
    UnopenedDevices,
    WriteStep,
)
from alight._src.plan.plan_cost import account, chosen, write_seconds
from alight._src.plan.prior import prior
from alight._src.plan.rent_or_buy import Switch, open_due
from alight.backends import known_devices, registry
from alight.backends.known_devices import Recalled
from alight.device import HOST_DEVICE, Device

if TYPE_CHECKING:
    from alight._src.measure.profiles import Refused

__all__ = [
    "Lack",
    "Standing",
    "gone",
    "known",
    "lack",
    "notice",
    "ran_without",
    "standing",
    "unopened_devices",
    "waiting",
]

# What opening takes where its profile does not say: the longest that making a context was seen to
# take (0.1 to 1 s).
_OPEN_SECONDS = 1.0
# Less than this is not counted: a jitted call that is told of each run took 18 µs where the native
# core answers in 0.8, so counting would cost more than it could ever show to be lost.
_COUNTING_SECONDS = 2e-5


def waiting(policy: Policy) -> tuple[Recalled, ...]:
    """Return the calibrated devices that the policy allows, unnamed, and that were not opened."""
    if not registry.leaves_open(policy):
        return ()
    found = known_devices.recalled()
    return tuple([one for one in found if _waits(one) and policy.allows(one.device.id)])


def may_leave_the_host(policy: Policy) -> bool:
    """Tell whether another memory than the host's may have any work."""
    return len(registry.devices_allowed(policy)) > 1 or bool(waiting(policy))


def _waits(one: Recalled) -> bool:
    name = one.device.id
    if one.reason or registry.left(name) or name in registry.joined():
        return False
    return planner_facts.stored_profile(one.device) is not None


def unopened_devices(
    plan: Plan, graph: Graph, facts: Facts, devices: Sequence[Recalled]
) -> UnopenedDevices | None:
    """Return what a plan lacks by not having these devices; None where it lacks nothing."""
    without = predicted_seconds(plan, graph, facts)
    least = {one.device.id: _least_seconds(one.device, facts) for one in devices}
    counted = without - _COUNTING_SECONDS
    able = [one.device for one in devices if counted > least[one.device.id]]
    if not able:
        return None
    most = without - min([least[device.id] for device in able])
    if not _account.close:
        names = tuple([device.id for device in able])
        return UnopenedDevices(names, most, None, min(map(opening_seconds, able)))
    more = with_devices(facts, able)
    better = make_plan(graph, more)
    launches = [step for step in better.steps if isinstance(step, LaunchStep)]
    used = [device for device in able if any([step.device == device.id for step in launches])]
    seconds = without - predicted_seconds(better, graph, more)
    if not used or seconds < _COUNTING_SECONDS:
        return None
    opening = sum(map(opening_seconds, used))
    for step in launches:
        if step.implementation == "generated" and step.device in least:
            profile = more.profiles[step.device]
            opening += compile_seconds(step.group, profile, stored=False, first=False)
    return UnopenedDevices(tuple([device.id for device in used]), most, seconds, opening)


def with_devices(facts: Facts, devices: Sequence[Device]) -> Facts:
    """Return the facts as they are where these devices take part, too, open or not."""
    there = {device.id for device in facts.devices}
    new = [device for device in devices if device.id not in there]
    if not new:
        return replace(facts, timed=None)
    return replace(
        facts,
        devices=(*facts.devices, *new),
        profiles={**facts.profiles, **planner_facts.profiles(new)},
        supports=planner_facts.likely_supports,
        timed=None,
    )


_NOTHING = Estimate(0.0, 0.0, 0.0, {})


def nothing(group: Group, device: str, implementation: str) -> Estimate:
    """Return what a group takes where only copies are counted."""
    return _NOTHING


def predicted_seconds(plan: Plan, graph: Graph, facts: Facts) -> float:
    """Return what a plan is predicted to take, apart from what nobody measured."""
    # What was measured instead of predicted is not to be compared with what is predicted.
    launches = [s for s in plan.steps if isinstance(s, LaunchStep) and facts.timed is None]
    told = {id(step.group): chosen(step.decision) for step in launches}

    def known(group: Group, device: str, implementation: str) -> Estimate:
        found = told.get(id(group)) or facts.estimate(group, device, implementation)
        if found is None and device == HOST_DEVICE:
            # by the least that NumPy may take: nothing is opened for a guess of more
            profile = facts.profiles.get(HOST_DEVICE)
            low = prior(group, HOST_DEVICE, implementation, profile).low
            found = Estimate(low, low, low, {})
        return found or _NOTHING

    found = account(plan, graph, facts, known).estimate
    assert found is not None, plan
    # Decisions are made as if writes took nothing, as they go where what they change is; but what
    # a program loses by being here, it loses by them, too.
    writes = [write_seconds(step, facts) for step in plan.steps if isinstance(step, WriteStep)]
    return found.seconds + sum(writes)


def _least_seconds(device: Device, facts: Facts) -> float:
    """Return what the least work on a device takes, and bringing it a byte and one back."""
    profile = planner_facts.profiles((device,))[device.id]
    least = min([rates.launch.value for rates in profile.rates.values()], default=0.0)
    return (
        least
        + facts.copy_seconds("host", device.space, 1)
        + (facts.copy_seconds(device.space, "host", 1) if facts.host_required else 0.0)
    )


def opening_seconds(device: Device) -> float:
    """Return what opening a device takes, by its profile; nothing where it is open."""
    if registry.open_seconds(device) is not None:
        return 0.0  # somebody named it before
    found = planner_facts.profiles((device,))[device.id].one_offs.get("open")
    if found is None:
        return _OPEN_SECONDS if registry.real(device) else 0.0
    return found.value


@dataclass(slots=True)
class _Account:
    """What this process lost by not having devices open: at most, in all, while nobody looked
    closely; then by device, of requests alone; and the loops that would go there."""

    most: float = 0.0
    close: bool = False
    alone: dict[str, float] = field(default_factory=dict)
    loops: dict[str, list[Switch]] = field(default_factory=dict)


_account = _Account()


def bidders(name: str) -> list[Switch]:
    """Return the loops that would go to a device."""
    return _account.loops.setdefault(name, [])


def is_due(name: str, opening: float) -> bool:
    """Tell whether a device is to be opened, by what requests and loops have lost without it."""
    return open_due(opening, _account.alone.get(name, 0.0), bidders(name))


def ran_without(lacks: UnopenedDevices) -> bool:
    """Note a run, as no turn of a loop, of a plan that lacks devices. True where plans are to be
    made anew: since the devices were opened by it, or found to be gone, or since what they lack
    matters by now."""
    if lacks.seconds is None:
        # Planning for the devices takes as long as planning does: it waits until it can matter.
        _account.most += lacks.most
        _account.close = _account.most >= lacks.opening
        return _account.close
    alone = _account.alone
    # What was lost before is taken for the same share of what it was at most.
    before = max(0.0, _account.most - lacks.most) * lacks.seconds / lacks.most
    for name in lacks.devices:
        alone[name] = alone.get(name, before) + lacks.seconds
    if not all([is_due(name, lacks.opening) for name in lacks.devices]):
        return False
    for name in lacks.devices:
        open_device(name)
    return True


def is_unopened(name: str) -> bool:
    """Tell whether a device, which nobody named, was calibrated here and may be opened."""
    return any([one.device.id == name and _waits(one) for one in known_devices.recalled()])


def open_device(name: str) -> None:
    """Have a device that was calibrated here take part; where that fails it never does."""
    for one in known_devices.recalled():
        if one.device.id != name or not _waits(one):
            continue
        try:
            registry.join(one)
        except failures() as error:  # drivers raise anything, and the host can do all of it
            logger().info("%s takes no part: %s. Fix: `alight doctor` says more.", name, error)
        else:
            lost = _account.alone.get(name, 0.0) + sum([x.lost_seconds for x in bidders(name)])
            logger().info("%s takes part: %.3g s were lost without it", name, lost)


# Threads that open devices: one of their own, as a program's first kernels are being made by then,
# and Python waits for it at the end.
_opening: dict[str, Thread] = {}


def open_behind(name: str) -> None:
    """Have a device opened while the program goes on."""
    if not is_being_opened(name):
        own = _opening[name] = Thread(target=open_device, args=(name,), name=f"alight-open-{name}")
        own.start()


def is_being_opened(name: str) -> bool:
    """Tell whether a thread opens a device."""
    own = _opening.get(name)
    return own is not None and own.is_alive()


class Lack(NamedTuple):
    """What became of measuring a device of which no profile is used, and what to do about it."""

    told: str
    fix: str

    def __str__(self) -> str:
        return f"uncalibrated{self.told and f' ({self.told})'}"


class Standing(NamedTuple):
    """Whether work may be placed on a device, and why (not). ``no_profile``: what became of
    measuring it, where a profile of it is not used or could not be made."""

    takes_part: bool
    why: str
    no_profile: str = ""


def standing(device: Device, policy: Policy) -> Standing:
    """Return whether a device takes part under a policy, and why (not)."""
    name = device.id
    host = registry.device(HOST_DEVICE)
    without_host = planner_facts.profile_of(host) is None
    if name == HOST_DEVICE:
        if not without_host:
            return Standing(True, "always")
        own = lack(host)
        return Standing(True, f"always, {own}: its work is NumPy's. {own.fix}", own.told)
    if policy.names(name):
        forced = policy.devices is None or name not in policy.devices
        measured = told = ""
        if planner_facts.profile_of(device) is None:
            lacks = lack(device)
            measured, told = f", {lacks}. {lacks.fix}", lacks.told
        elif without_host and policy.force is None:
            measured = f", {_BESIDE_GUESSES}. {lack(host).fix}"
        return Standing(
            True, f"named by {policy.source('force' if forced else 'devices')}{measured}", told
        )
    if not policy.allows(name):
        return Standing(False, f"not allowed by {policy.source('devices')}")
    if policy.force is not None:
        return Standing(False, f"not named, and {policy.source('force')} forces {policy.force}")
    known_as = name, device.fingerprint
    one = next(
        (o for o in known_devices.recalled() if (o.device.id, o.device.fingerprint) == known_as),
        None,
    )
    reason = registry.left(name) or (one.reason if one is not None else "")
    if reason and name not in registry.joined():
        return Standing(False, reason)
    if one is None and not registry.real(device):
        return Standing(False, "used only when it is named")
    if planner_facts.stored_profile(device) is None:
        lacks = lack(device)
        return Standing(False, f"{lacks}. {lacks.fix}", lacks.told)
    if without_host:
        return Standing(True, f"{_BESIDE_GUESSES}. {lack(host).fix}")
    if one is None or name in registry.joined() or registry.open_seconds(device) is not None:
        return Standing(True, "calibrated")
    return Standing(
        True,
        "calibrated; it is opened once programs have lost the "
        f"{readable_seconds(opening_seconds(device))} without it that opening takes",
    )


# What is said of a device that was measured beside a host that was not.
_BESIDE_GUESSES = (
    "calibrated, but the host is not, so that only work is placed there for which the quickest of "
    "hosts would take longer"
)


def known() -> tuple[Device, ...]:
    """Return the devices found so far, and those that were calibrated here and are recalled."""
    found = registry.known_devices()
    there = {device.id for device in found}
    recalled = [one.device for one in known_devices.recalled() if not one.reason]
    return *found, *[device for device in recalled if device.id not in there]


def gone() -> dict[str, str]:
    """Return, by device, why one that was calibrated here and that nobody found takes no part."""
    there = {device.id for device in known()}
    found = [(one.device.id, one.reason) for one in known_devices.recalled()]
    why = {name: registry.left(name) or reason for name, reason in found if name not in there}
    return {name: reason for name, reason in why.items() if reason}


def lack(device: Device) -> Lack:
    """Return what a device lacks of which no profile is used: what became of measuring it when a
    program ended, where other work disturbed it or there was little time, and what to do."""
    from alight._src.measure import profiles  # late: few need it

    last = profiles.refused(device)
    told = "" if last is None else _refusal(last)
    if other := profiles.passed_over(device):
        told += f"{told and '; '}a profile is not used: {other}"
    quiet = " when the machine is quiet" if last is not None and last.why else ""
    return Lack(told, f"Fix: {calibrate_here(device.id)}{quiet}")


def _refusal(last: Refused) -> str:
    passed = max(0.0, time() - last.at)
    wait = last.wait_seconds - passed
    again = f"in {readable_seconds(wait)} at the earliest" if wait > 0.0 else "at the next end"
    ago = readable_seconds(passed)
    found = f"was disturbed by other work ({last.why})"
    if not last.why:
        found = "found time for little of it"
    return f"measuring it when a program ended, {ago} ago, {found}, and is tried again {again}"


def notice(devices: Sequence[Device]) -> None:
    """Have later processes know those of these devices, which were just looked for, that are
    calibrated."""
    for device in devices:
        if registry.real(device) and planner_facts.stored_profile(device) is not None:
            registry.remember(device)
