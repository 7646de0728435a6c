"""Plans kept on disk beside kernels: a later start that asks for the same work plans nothing.

What is read is checked as a plan is where the settings say so, and then runs as one that was made
here: a file tells nothing but numbers and names of ops. Planning 251 nodes took 122 ms of processor
time, reading and checking that plan 22; 37 nodes 8.7 and 2 to 3; 11 nodes both 3 (EPYC).
"""

from __future__ import annotations

import json
from functools import partial

from alight._src.adapt.learning import holds
from alight._src.adapt.planner_facts import profile_of
from alight._src.base.cache_registry import Cache, register
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.base.uninterrupted import bring
from alight._src.ir.graph import Graph
from alight._src.log.decisions import LOG
from alight._src.measure.profiles import code_fingerprint
from alight._src.plan.choose import ANYWHERE
from alight._src.plan.plan import Facts, Plan
from alight._src.run.kernels import written_later
from alight._src.run.residency import HOST
from alight._src.store import default_store, digest
from alight.backends import registry
from alight.device import HOST_DEVICE

__all__ = ["LEAST_NODES", "found", "keep"]

_KIND = "plan"
# Part of every key: raise it when a document says something else.
_VERSION = 2
# Of fewer nodes a plan is made in less time than one is read and checked.
LEAST_NODES = 16
# What plans are made of: who changes a file of it never runs an old plan.
_FOLDERS = ("_src/codegen", "_src/ir", "_src/plan", "_src/adapt")


def found(graph: Graph, facts: Facts) -> Plan | None:
    """Return the plan that an earlier process made of the same facts; None where there is none, or
    what there is is none."""
    key = _key(graph, facts)
    blob = None if key is None else default_store().read_bytes(_KIND, key)
    if key is None or blob is None:
        return None
    bring("alight._src.plan.plan_text", "alight._src.plan.check")
    from alight._src.plan.check import check_plan
    from alight._src.plan.plan_text import of_document

    try:
        plan = of_document(json.loads(blob.data))
        check_plan(plan, graph, facts.bases)
    except failures() as error:  # whoever wrote it: what is there is of no use
        LOG.fallback(f"plan {key}", error)
        default_store().remove(_KIND, key)
        return None
    if facts.learned is not None and not holds(plan):
        return None  # and one by what has been learned since takes its place
    LOG.count(plans_loaded=1)
    return plan


def keep(graph: Graph, facts: Facts, plan: Plan) -> None:
    """Have a plan written for later processes, once nobody waits for anything else."""
    key = _key(graph, facts) if len(_written) < _MOST_WRITTEN else None
    if key is not None:
        _written.append(key)
        written_later(key, partial(_write, key, plan))


# A program that makes more of them has sizes that never come again, and would only fill the disk:
# plans of 250 nodes are 70 kB each.
_MOST_WRITTEN = 64
_written: list[str] = []
register(Cache.PROFILES, _written.clear)  # where plans lie goes by these


def _write(key: str, plan: Plan) -> None:
    bring("alight._src.plan.plan_text")
    from alight._src.plan.plan_text import NotWritten, as_document

    try:
        text = json.dumps(as_document(plan), separators=(",", ":"))
    except NotWritten:
        return
    default_store().write_bytes(_KIND, key, text.encode(), {"steps": len(plan.steps)})


def _key(graph: Graph, facts: Facts) -> str | None:
    """Return where the plan of these facts lies; None for what is not kept: plans for devices, on
    a host that was not measured, decided by the clock, or of the program's own ops."""
    at_home = all([spaces <= {HOST, ANYWHERE} for spaces in facts.residency])
    alone = [device.id for device in facts.devices] == [HOST_DEVICE]
    host = registry.device(HOST_DEVICE)
    profile = profile_of(host)
    if not (at_home and alone) or facts.timed is not None or profile is None:
        return None
    bring("alight._src.plan.plan_text")
    from alight._src.plan.plan_text import NotWritten, graph_document

    try:
        asked = graph_document(graph)
    except NotWritten:
        return None
    known = [code_fingerprint(host, *_FOLDERS), np.__version__, dict(profile.fingerprint)]
    policy = [facts.force, sorted(facts.floors.items()), facts.on_gap, sorted(facts.demoted)]
    lies = [
        [sorted(spaces) for spaces in facts.residency],
        *(facts.bases, sorted(facts.windows.items()), sorted(facts.host_required)),
    ]
    own = [facts.step_seconds, sorted(facts.steps.items()), facts.learned is not None]
    measured = [profile.made_at, profile.doubts]
    return digest([_VERSION, asked, known, measured, policy, lies, own], _KIND)
