"""What planning may know of costs: profiles as measured, supports and estimates as plain functions.

This is the edge between what was measured (files, clocks) and ``plan``, which sees neither.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from alight._src.adapt.paces import pace_by
from alight._src.base.at_exit import when_over
from alight._src.base.cache_registry import Cache, register
from alight._src.base.uninterrupted import bring
from alight._src.config.loading import current_policy
from alight._src.config.schema import HOST_DEVICE
from alight._src.ir.op import Kind, Op, Origin
from alight._src.store import default_store, digest
from alight.backends import registry

if TYPE_CHECKING:
    from alight._core import Layout
    from alight._src.config.policy import Policy
    from alight._src.ir.group import Group
    from alight._src.plan.plan import Estimate, Facts
    from alight._src.plan.profile import Profile
    from alight.device import Device

__all__ = [
    "aside",
    "asides",
    "copy_seconds",
    "estimate",
    "facts",
    "gap_on",
    "is_host_stored",
    "learned",
    "likely_supports",
    "profile_at_hand",
    "profile_of",
    "profiles",
    "step_seconds",
    "steps_on",
    "stored_profile",
    "supports",
]

_profiles: dict[str, Profile | None] = {}
register(Cache.PROFILES, _profiles.clear)


def _let_ops_go() -> None:
    """Forget what ops of the program's were estimated to take."""
    for profile in tuple(_profiles.values()):
        for rates in () if profile is None else profile.rates.values():
            for key in list(rates.nodes):
                if any([isinstance(o, Op) and o.origin is Origin.PROGRAM for o in key]):
                    rates.nodes.pop(key, None)


register(Cache.OPS, _let_ops_go)


def profile_of(device: Device) -> Profile | None:
    """Return the profile of a device on this machine, or None where it was never calibrated."""
    if device.id not in _profiles:
        if device.id == HOST_DEVICE or _is_recalled(device):
            return stored_profile(device)  # nobody needs to ask who drives it
        # not opened for it: a plan that takes another device needs no context on this one
        own: Callable[[Device], Profile] | None = getattr(
            registry.driver_of(device), "profile", None
        )
        if own is not None:  # a simulated device is what its record says
            _profiles[device.id] = own(device)
        else:
            return stored_profile(device)
    return _profiles[device.id]


def _is_recalled(device: Device) -> bool:
    from alight.backends.known_devices import recalled

    return any([one.device is device for one in recalled()])


def stored_profile(device: Device) -> Profile | None:
    """Return the profile of a device as the store has it, and ask nobody who drives it."""
    if device.id not in _profiles:
        bring("alight._src.measure.profiles")
        from alight._src.measure.profiles import load_profile, share_costs

        _profiles[device.id] = found = load_profile(device)
        if found is not None and device.id == HOST_DEVICE:
            share_costs(found.one_offs)
            pace_by(found)
    return _profiles[device.id]


def profile_at_hand(device: str) -> Profile | None:
    """Return the profile by which work was placed on a device; none is read for it."""
    return _profiles.get(device)


def is_host_stored() -> bool:
    """Tell whether a profile of the host is stored; what is in it is not looked at."""
    from alight._src.measure.profiles import is_host_known

    return HOST_DEVICE in _profiles or is_host_known()


# Is anything in it, what is planned now is planned to see what planning takes.
asides: list[None] = []


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Have what is planned inside, to see what planning takes, ask for no calibration and leave
    nothing to later processes."""
    asides.append(None)
    try:
        yield
    finally:
        asides.pop()


def profiles(devices: Sequence[Device]) -> Mapping[str, Profile]:
    """Return the profiles of these devices; a device without one is uncalibrated."""
    found = {device.id: profile_of(device) for device in devices}
    return {name: profile for name, profile in found.items() if profile is not None}


def step_seconds() -> float:
    """Return our own seconds for one step more of a plan, as the host's profile has it."""
    from alight._src.plan.plan import STEP_SECONDS

    profile = _profiles.get(HOST_DEVICE)
    found = None if profile is None else profile.one_offs.get("step")
    return STEP_SECONDS if found is None else found.value


def steps_on(known: Mapping[str, Profile]) -> dict[str, float]:
    """Return our own seconds for one step more on each of these devices, where they are known."""
    steps = {name: profile.one_offs.get("step") for name, profile in known.items()}
    return {name: step.value for name, step in steps.items() if step is not None}


def facts(
    policy: Policy,
    devices: tuple[Device, ...],
    leaves: Sequence[tuple[Layout, frozenset[str], int, int]],
    read: int,
    demoted: frozenset[Any],
    timed: Callable[..., Any] | None,
) -> Facts:
    """Return all that a plan for these leaves may depend on, as things stand now."""
    from alight._src.plan.choose import ANYWHERE
    from alight._src.plan.plan import Facts

    known = profiles(devices)
    away = any([leaf[1] - {_HOST, ANYWHERE} for leaf in leaves])
    force = policy.force
    return Facts(
        devices=devices,
        profiles=known,
        # One element that the host repeats goes along with a launch, as a constant does.
        residency=tuple(
            [
                frozenset((ANYWHERE,))
                if _HOST in spaces and layout.ndim and not any(layout.strides)
                else spaces
                for layout, spaces, _, _ in leaves
            ]
        ),
        bases=tuple([leaf[2] for leaf in leaves]),
        windows={number: leaf[3] for number, leaf in enumerate(leaves) if leaf[3]},
        host_required=frozenset(range(read)),
        force=(None, None) if force is None else (force.device, force.implementation),
        floors=dict(policy.floor),
        on_gap=policy.on_gap,
        demoted=demoted,
        enabled=policy.enabled,
        supports=supports,
        estimate=estimate,
        learned=None if policy.learn == "off" else learned,
        copy_seconds=copy_seconds,
        timed=timed,
        step_seconds=step_seconds(),
        # Calls on what lies on a device are made ready, and launched without a step of ours.
        steps={} if away else steps_on(known),
    )


# Where the host's arrays lie.
_HOST = "host"


def supports(device: str, implementation: str, group: Group) -> str | None:
    """Return why a device's implementation cannot run a group, or None."""
    if implementation != "generated":
        return None if device == HOST_DEVICE else _library_gap(registry.device(device), group)
    if device == HOST_DEVICE:
        found = _unsupported()(group.form.lowered or group.form.plain or group)
        return found or (_doubt_of_programs_ops(group) if group.form.declared else None)
    where = registry.device(device)
    # Without a profile only who names it for all work gets it: nothing is started to be refused.
    asked = profile_of(where) is not None or current_policy().force is not None
    return _device_gap(where, group, asked)


def _doubt_of_programs_ops(group: Group) -> str | None:
    """Return why generated code of an op that the program declared is not used on the host, or
    None: alight's own are compared with NumPy by its tests."""
    from alight._src.measure.verify_ops import doubt

    where, layouts = registry.device(HOST_DEVICE), group.graph.layouts
    for node in group.form.declared:
        dtypes = *[layouts[number].dtype for number in node.operands], node.layout.dtype
        if reason := doubt(where, node.op, dtypes, node.attr("output", 0)):
            return reason
    return None


@cache
def _unsupported() -> Callable[[Group], str | None]:
    """Return what tells why generated code cannot run a group, once that is needed."""
    bring("alight._src.codegen.common.gaps")
    from alight._src.codegen.common.gaps import unsupported

    return unsupported


def gap_on(where: Device, implementation: str, group: Group) -> str | None:
    """Return why an implementation of a device, which need not be here, cannot run a group, by what
    the device says of itself."""
    if where.id == HOST_DEVICE:
        return supports(where.id, implementation, group)
    if implementation == "generated":
        return _device_gap(where, group, False)
    return _library_gap(where, group)


def likely_supports(device: str, implementation: str, group: Group) -> str | None:
    """Return why a device's implementation cannot run a group as far as that is known of one that
    was recalled and not opened: ops that were never compared with NumPy there are thought well
    of."""
    from alight.backends.known_devices import recalled

    where = next((one.device for one in recalled() if one.device.id == device), None)
    if where is None:
        return supports(device, implementation, group)
    if implementation == "library":
        return _library_gap(where, group)
    return _device_gap(where, group, True, ask=False) if implementation == "generated" else None


def _library_gap(where: Device, group: Group) -> str | None:
    known = where.support.library
    if known is None:
        return None
    if len(group.graph.nodes) > 1:
        return f"{where.id} runs the functions of a library one at a time"
    lacking = [node.op.name for node in group.graph.nodes if node.op.name not in known]
    return f"{where.id} has no library form of {', '.join(lacking)}" if lacking else None


def _device_gap(where: Device, group: Group, verified: bool, ask: bool = True) -> str | None:
    # late: programs that stay on the host need neither
    bring("alight._src.codegen.common.source", "alight._src.measure.verify_ops")
    from alight._src.codegen.common.source import DIALECTS, gap, group_gap
    from alight._src.measure.verify_ops import doubt

    group = group.form.lowered or group
    graph, support = group.graph, where.support
    dialect = DIALECTS.get(support.dialect)
    most = where.limits.get("operands", math.inf)
    if len(graph.inputs) + len(graph.outputs) > most:
        return f"{where.id} binds {most} operands at most"
    if reason := group_gap(support.dialect, group):
        return reason
    for node in graph.nodes:
        dtypes = *[graph.layouts[number].dtype for number in node.operands], node.layout.dtype
        reason = gap(dialect, node.op, dtypes) if dialect is not None else None
        # Of what the program declared no test of ours speaks for a device's code, whoever makes it.
        asked = support.verified or node.op.origin is Origin.PROGRAM
        if reason is None and verified and asked and node.op.kind is Kind.ELEMENTWISE:
            reason = doubt(where, node.op, dtypes, node.attr("output", 0), ask)
        if reason is not None:
            return reason
    return None


def learned(found: Estimate, group: Group, device: str, implementation: str) -> Estimate:
    """Return a prediction as earlier runs correct it."""
    profile = _profiles.get(device)
    if profile is None or asides or profile.origin == "recorded":
        return found
    from alight._src.adapt.learning import learned_of

    return learned_of(profile).corrected(found, group, implementation)


def estimate(group: Group, device: str, implementation: str) -> Estimate | None:
    """Return the cost of a group that the profile predicts, or None where nothing was measured."""
    from alight._src.plan import cost
    from alight._src.plan.plan import Source

    if not asides:
        _recall_bodies()
    found = cost.estimate(group, device, implementation, _profiles.get(device))
    if device != HOST_DEVICE and (found is None or found.source is not Source.MEASURED):
        from alight._src.adapt.synthetic_trials import probed  # late: hosts do without

        return probed(group, device, implementation) or found
    return found


@cache
def _recall_bodies() -> None:
    """Know what earlier processes counted in the bodies of ops, and keep what this one counts."""
    from alight._src.measure.profiles import code_fingerprint
    from alight._src.plan.workload import BODIES, PARTS

    key = digest([code_fingerprint(registry.device(HOST_DEVICE)), PARTS], _BODIES)
    found = (default_store().read(_BODIES, key) or {}).get("counts", {})
    BODIES.update({body: (size, tuple(parts)) for body, (size, parts) in found.items()})
    when_over(_keep_bodies, key, len(BODIES))


register(Cache.PROFILES, _recall_bodies.cache_clear)

_BODIES = "bodies"


def _keep_bodies(key: str, known: int) -> None:
    from alight._src.plan.workload import BODIES

    if len(BODIES) > known:
        default_store().write(_BODIES, key, {"counts": BODIES}, _all_bodies)


def _all_bodies(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"counts": {**old["counts"], **new["counts"]}}


def copy_seconds(source: str, target: str, nbytes: int) -> float:
    """Return the predicted seconds of a copy between two spaces; through the host where neither is
    it."""
    seconds = 0.0
    if source != _HOST:
        seconds += _link_seconds(source, nbytes, "download")
    if target != _HOST:
        seconds += _link_seconds(target, nbytes, "upload")
    return seconds


def _link_seconds(space: str, nbytes: int, direction: str) -> float:
    from alight._src.plan import cost
    from alight._src.plan.prior import copy_prior_seconds

    found = cost.copy_seconds(_profiles.get(space), nbytes, direction)
    if found is None and _profiles.get(space) is None:
        where = next((d for d in registry.known_devices() if d.space == space), None)
        found = None if where is None else copy_prior_seconds(where, nbytes)
    return found or 0.0
