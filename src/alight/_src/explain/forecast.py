"""What a call would cost, where, and why: asked without computing its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alight._src.adapt import lazy_devices, planner_facts
from alight._src.config.loading import current_policy, policy
from alight._src.explain.dry_run import Request, requests_of
from alight._src.explain.explained_call import as_called
from alight._src.explain.row_table import RowTable
from alight._src.plan.benefit import fusions
from alight._src.plan.plan import LaunchStep
from alight._src.plan.plan_cost import account
from alight.backends import registry
from alight.device import Device
from alight.errors import AlightError, UnsupportedOnDevice

__all__ = ["device_report", "estimate", "fastest_device", "fusion_report"]

Row = dict[str, Any]


def estimate(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> RowTable:
    """Return the predicted seconds of a call.

    The call is planned freely, and once more for every allowed device and implementation. What it
    returns is not computed.

    Parameters
    ----------
    function : callable
        What would be called. Its body is recorded on stand-ins for the arguments.
    *args, **kwargs
        Its arguments: shapes, dtypes, and where the bytes are now, count.

    Returns
    -------
    list of dict
        One row for each place; it prints as a table. ``device`` is "planned" where the planner is
        free; ``implementation``; ``seconds`` with the 80 % interval ``low``, ``high``; the
        ``terms`` they are the sum of, in seconds: launch, memory, compute, upload, download, steps
        (our own work for each step); ``places``, how many launches go where, since what a device
        cannot do is NumPy's; ``reason``, why seconds are None.

    Raises
    ------
    TypeError
        Where the function cannot be called so.

    See Also
    --------
    alight.explain : make the call, and say what it took.

    Notes
    -----
    Seconds are launch + memory(bytes) + what compute and loops show beside it, each read off the
    device's profile: "What a prediction is made of" in ``docs/calibration.md``.

    Examples
    --------
    >>> import numpy as np
    >>> rows = estimate(lambda x: np.sqrt(x * x + 1.0), np.ones(1000))
    >>> [row["device"] for row in rows][:2]
    ['planned', 'cpu']
    """
    with as_called("estimate", function, args, kwargs):
        asked = requests_of(function, args, kwargs)
    return _forecast(asked)


def _forecast(asked: Sequence[Request]) -> RowTable:
    rows = [_predicted("planned", "", asked)]
    settled = current_policy()
    unopened = [one.device for one in lazy_devices.waiting(settled)]
    for device in (*registry.devices_allowed(settled), *unopened):
        rows += _on(device, asked)
    return RowTable(rows, ("device", "implementation", "seconds", "terms", "places", "reason"))


def fastest_device(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """Return the device on which a call is predicted to take least.

    All of the call runs there but for what the device cannot do. A device that was not measured is
    unknown and not chosen; between equals the policy's order decides.

    Parameters
    ----------
    function : callable
        What would be called. Its body is recorded on stand-ins for the arguments.
    *args, **kwargs
        Its arguments: shapes, dtypes, and where the bytes are now, count.

    Returns
    -------
    str
        Its id, such as ``"cpu"`` or ``"cuda:0"``.

    Raises
    ------
    AlightError
        Where no allowed device was measured, or nothing of the call can be placed.
    TypeError
        Where the function cannot be called so.

    Examples
    --------
    >>> import numpy as np
    >>> fastest_device(np.add, np.ones(10), 1.0)  # doctest: +SKIP
    'cpu'
    """
    with as_called("fastest_device", function, args, kwargs):
        asked = requests_of(function, args, kwargs)
    planned, *rows = _forecast(asked)
    if not planned["places"] and planned["seconds"] is not None:
        raise AlightError(
            "nothing of this call is placed: it computes nothing on arrays of numbers with "
            "functions in the op table, and NumPy has it. Fix: ask of a call that does."
        )
    known = [row for row in rows if row["seconds"] is not None]
    if not known:
        reasons = "; ".join(f"{row['device']}: {row['reason']}" for row in rows)
        raise AlightError(
            f"no allowed device has figures for this call ({reasons}). Fix: `alight calibrate`."
        )
    return str(min(known, key=lambda row: row["seconds"])["device"])


def device_report(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> RowTable:
    """Return what every device and backend says to a call.

    Every backend that is installed is probed.

    Parameters
    ----------
    function : callable
        What would be called. Its body is recorded on stand-ins for the arguments.
    *args, **kwargs
        Its arguments: shapes, dtypes, and where the bytes are now, count.

    Returns
    -------
    list of dict
        One row for each; it prints as a table. ``device``; whether it is ``available``; whether the
        policy has it ``allowed``; ``supported``, the launches that can run there, of all;
        ``profile``, where its figures come from, None without; ``seconds``, predicted with its best
        implementation; ``blocked``, a list of what is in the way.

    Raises
    ------
    TypeError
        Where the function cannot be called so.

    Examples
    --------
    >>> import numpy as np
    >>> device_report(np.add, np.ones(10), 1.0)[0]["device"]
    'cpu'
    """
    with as_called("device_report", function, args, kwargs):
        asked = requests_of(function, args, kwargs)
    registry.probe_all()
    settled = current_policy()
    found = registry.known_devices()
    profiles = planner_facts.profiles(found)
    rows = []
    for device in found:
        with policy(devices=[device.id, "cpu"], force=None):  # each is asked what it could do
            own = _on(device, asked)
        known = [row for row in own if row["seconds"] is not None]
        there, less = max((_there(row, device), -sum(row["places"].values())) for row in own)
        takes_part, why, told = lazy_devices.standing(device, settled)
        blocked = [] if takes_part else [why]
        blocked += _gaps(device, asked)
        profile = profiles.get(device.id)
        if profile is None and not known:
            told = told or lazy_devices.lack(device).told
            blocked.append(f"no profile{told and f': {told}'}. Fix: `alight calibrate`")
        rows.append(
            {
                "device": device.id,
                "available": True,
                "allowed": takes_part,
                "supported": f"{there} of {-less}",
                "profile": None
                if profile is None
                else f"{profile.origin}, {profile.path or 'not stored'}",
                "seconds": min([row["seconds"] for row in known], default=None),
                "blocked": list(dict.fromkeys(blocked)),
            }
        )
    for name, reason in sorted(registry.absences().items()):
        rows.append(
            {
                "device": name,
                "available": False,
                "allowed": False,
                "supported": "",
                "profile": None,
                "seconds": None,
                "blocked": [reason],
            }
        )
    columns = ("device", "available", "allowed", "supported", "profile", "seconds", "blocked")
    return RowTable(rows, columns)


def fusion_report(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> RowTable:
    """Return the fusions that planning a call makes, and those it refuses.

    Parameters
    ----------
    function : callable
        What would be called. Its body is recorded on stand-ins for the arguments.
    *args, **kwargs
        Its arguments: shapes, dtypes, and where the bytes are now, count.

    Returns
    -------
    list of dict
        One row for each; it prints as a table. ``fused``: made or refused; ``operation``; the
        ``parts`` it is or would be made of; ``device``; ``implementation``; ``seconds`` as one and
        ``parts_seconds`` one by one; ``benefit``, their difference by term, in seconds; ``reason``.

    Raises
    ------
    TypeError
        Where the function cannot be called so.

    Examples
    --------
    >>> import numpy as np
    >>> [row["operation"] for row in fusion_report(np.add, np.ones(10), 1.0)]
    []
    """
    with as_called("fusion_report", function, args, kwargs):
        asked = requests_of(function, args, kwargs)
    rows = []
    for request in asked:
        facts = request.facts()
        for one in fusions(request.plan(), facts):
            rows.append(
                {
                    "fused": one.made,
                    "operation": one.operation,
                    "parts": list(one.parts),
                    "device": one.device,
                    "implementation": one.implementation,
                    "seconds": one.seconds,
                    "parts_seconds": one.parts_seconds,
                    "benefit": dict(one.benefit),
                    "reason": one.reason,
                }
            )
    columns = ("fused", "operation", "device", "implementation", "seconds", "parts_seconds")
    return RowTable(rows, (*columns, "benefit", "reason"))


def _on(device: Device, asked: Sequence[Request]) -> list[Row]:
    """Return a row for each implementation of a device that is forced on all requests."""
    rows = []
    for name in device.support.implementations:
        with policy(force=f"{device.id}:{name}", on_gap="host"):
            row = _predicted(device.id, name, asked)
        if row["seconds"] is not None and not _there(row, device):
            row |= {"seconds": None, "low": None, "high": None, "terms": {}}
            row["reason"] = "; ".join(_gaps(device, asked)) or f"{name} can do none of it"
        rows.append(row)
    return rows


def _there(row: Row, device: Device) -> int:
    """Return how many launches of a row are the device's own."""
    own = ("library",) if device.id == "cpu" and row["implementation"] == "numpy" else ()
    names = [f"{device.id}:{name}" for name in (row["implementation"], *own)]
    return sum(row["places"].get(name, 0) for name in names)


def _gaps(device: Device, asked: Sequence[Request]) -> list[str]:
    """Return why a device cannot do parts of the requests."""
    found: list[str] = []
    with policy(devices=[device.id, "cpu"], force=device.id, on_gap="host"):
        for request in asked:
            for step in request.plan().steps:
                if isinstance(step, LaunchStep) and step.device != device.id:
                    details = [c.detail for c in step.decision.candidates if c.device == device.id]
                    found += dict.fromkeys(filter(None, details))
    return list(dict.fromkeys(found))


def _predicted(device: str, implementation: str, asked: Sequence[Request]) -> Row:
    """Return one row: the requests under the policy in force."""
    total = dict.fromkeys(("seconds", "low", "high"), 0.0)
    terms: dict[str, float] = {}
    places: dict[str, int] = {}
    unknown: list[str] = []
    for request in asked:
        try:
            found = account(request.plan(), request.graph, request.facts())
        except UnsupportedOnDevice as error:
            unknown.append(str(error))
            continue
        unknown += found.unknown
        for name, count in found.places.items():
            places[name] = places.get(name, 0) + count
        if found.estimate is not None:
            for name in total:
                total[name] += getattr(found.estimate, name)
            for term, seconds in found.estimate.terms.items():
                terms[term] = terms.get(term, 0.0) + seconds
    row: Row = {"device": device, "implementation": implementation, **total}
    row |= {"terms": terms, "places": places, "reason": ""}
    if unknown:
        row |= {"seconds": None, "low": None, "high": None, "terms": {}}
        row["reason"] = "not measured: " + ", ".join(dict.fromkeys(unknown))
    return row
