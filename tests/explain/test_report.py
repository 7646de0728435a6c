"""The report: its schema, regret, text forms, files at exit."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight
import alight.errors
from alight._src.base.records import replace
from alight._src.config.loading import policy
from alight._src.explain import text_tables
from alight._src.explain.report import Report, report, reset
from alight._src.explain.tables_data import profile_row
from alight._src.explain.text_tables import tables
from alight._src.log.decisions import LOG
from alight._src.measure.profile_delta import profile_delta
from alight._src.plan.cost import Profile, Rates
from alight._src.plan.curve import Curve, Measured
from alight._src.plan.plan import Candidate, Decision, Estimate
from alight.device import Reason
from alight.errors import AlightError

NUMBER = (int, float)
CANDIDATE = {
    "device": str,
    "implementation": ("numpy", "generated", "library"),
    "seconds": (*NUMBER, None),
    "low": (*NUMBER, None),
    "high": (*NUMBER, None),
    "terms": {str: NUMBER},
    "reason": (*Reason, None),
}
DECISION = {
    "time": float,
    "call_site": (str, None),
    "operation": str,
    "kind": str,
    "group": str,
    "dtypes": [str],
    "shapes": [[int]],
    "elements": int,
    "flops": NUMBER,
    "bytes": int,
    "chosen": str,
    "implementation": ("numpy", "generated", "library"),
    "reason": tuple(Reason),
    "threshold": (int, None),
    "in_place": bool,
    "residency_in": [[str]],
    "batch": int,
    "candidates": [CANDIDATE],
    "measured_seconds": (*NUMBER, None),
    "regret_seconds": (*NUMBER, None),
}
COUNTS = (
    *("uploads", "downloads", "upload_bytes", "download_bytes", "launches", "cache_hits"),
    *("cache_misses", "fallbacks", "exits", "decisions_dropped"),
)
SCHEMA = {
    "schema": int,
    "alight": str,
    "machine": {
        **dict.fromkeys(("platform", "python", "numpy", "cpu"), str),
        "processors": int,
    },
    "devices": [{"id": str, "name": str, "memory_bytes": int, "implementations": [str]}],
    "profiles": [
        {
            "device": str,
            "origin": str,
            "path": (str, None),
            "overrides": {str: {"source": str}},
            "made_seconds": NUMBER,
            "delta": ({str: NUMBER}, None),
            "validation": {str: NUMBER},
        }
    ],
    "decisions": [DECISION],
    "exits": [{"name": str, "call_site": (str, None), "count": int}],
    "fallbacks": [{"what": str, "call_site": (str, None), "count": int, "reason": str}],
    "totals": {
        "seconds": NUMBER,
        **dict.fromkeys(COUNTS, int),
        "element_operations": {
            **dict.fromkeys(("eligible", "generated", "numpy", "library"), int),
            "by_device": {str: int},
        },
    },
}


def faults(value: Any, schema: Any, where: str = "report") -> Iterator[str]:
    """Yield what of a document is not as the schema has it; further fields are allowed."""
    if isinstance(schema, tuple):
        if not any(not list(faults(value, option, where)) for option in schema):
            yield f"{where}: {value!r} is none of {schema}"
    elif isinstance(schema, type):
        if not isinstance(value, schema) or (isinstance(value, bool) and schema is not bool):
            yield f"{where}: {value!r} is not {schema.__name__}"
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{where}: {value!r} is not a list"
        else:
            for i, item in enumerate(value):
                yield from faults(item, schema[0], f"{where}[{i}]")
    elif isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is not an object"
        elif str in schema:
            for key, item in value.items():
                yield from faults(item, schema[str], f"{where}.{key}")
        else:
            for key, inner in schema.items():
                if key not in value:
                    yield f"{where}.{key} is missing"
                else:
                    yield from faults(value[key], inner, f"{where}.{key}")
    elif value != schema:
        yield f"{where}: {value!r} is not {schema!r}"


def decision(**changes: Any) -> Decision:
    candidates = (
        Candidate("cpu", "numpy", Estimate(3e-3, 2e-3, 4e-3, {"memory": 3e-3})),
        Candidate("cpu", "generated", Estimate(1e-3, 0.5e-3, 2e-3, {"memory": 1e-3})),
        Candidate("cuda:0", "generated", None, Reason.GAP, "no erf there"),
    )
    fields: dict[str, Any] = {
        **{"operation": "sin", "kind": "loop", "group": "g1", "dtypes": ("float64",)},
        **{"shapes": ((100,),), "elements": 100, "flops": 1.0, "bytes": 1600, "batch": 1},
        **{"residency_in": (("host",),), "chosen": "cpu", "implementation": "generated"},
        **{"reason": Reason.CHEAPEST, "threshold": 50, "candidates": candidates},
    }
    return Decision(**(fields | changes))


def here() -> Any:
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti


@pytest.fixture(autouse=True)
def empty_log() -> Iterator[None]:
    reset()
    yield
    reset()


def full() -> Report:
    LOG.replayed([(decision(), here())], 1, 4e-3)
    LOG.replayed([(decision(), here())], 1, 2e-3)
    LOG.replayed([(decision(candidates=()), None)], 1, None)
    LOG.exit("unique", here())
    LOG.fallback("matmul", "no room", here())
    LOG.count(launches=3, uploads=1, upload_bytes=8)
    LOG.elements("generated", "cpu", 90)
    LOG.elements("numpy", "cpu", 10)
    return report()


def test_document_has_the_published_fields() -> None:
    document = full().to_dict()
    assert list(faults(document, SCHEMA)) == []
    assert len(document["decisions"]) == 3
    assert document["totals"]["element_operations"] == {
        **{"eligible": 100, "generated": 90, "numpy": 10, "library": 0, "by_device": {"cpu": 100}}
    }


def test_the_checker_of_fields_can_fail() -> None:
    document = full().to_dict()
    del document["totals"]["exits"]
    document["decisions"][0]["chosen"] = None
    document["decisions"][1]["candidates"][0]["implementation"] = "magic"
    assert [fault.split(":")[0] for fault in faults(document, SCHEMA)] == [
        "report.decisions[0].chosen",
        "report.decisions[1].candidates[0].implementation",
        "report.totals.exits is missing",
    ]


def test_decisions_keep_their_losers_and_the_chosen_one_its_prediction() -> None:
    row = full().to_dict()["decisions"][0]
    by_name = {(c["device"], c["implementation"]): c for c in row["candidates"]}
    assert by_name[row["chosen"], row["implementation"]]["seconds"] == 1e-3
    assert by_name["cuda:0", "generated"]["seconds"] is None
    assert by_name["cuda:0", "generated"]["reason"] == "gap"
    assert row["call_site"].startswith(__file__)


@pytest.mark.parametrize(
    ("measured", "changes", "expected"),
    [
        (4e-3, {}, 1e-3),
        (2e-3, {}, 0.0),
        (None, {}, None),
        (4e-3, {"candidates": ()}, None),
        (4e-3, {"implementation": "numpy"}, 3e-3),
    ],
)
def test_regret_is_measured_minus_the_best_other_prediction(
    measured: float | None, changes: dict[str, Any], expected: float | None
) -> None:
    LOG.replayed([(decision(**changes), None)], 1, measured)
    found = report().to_dict()["decisions"][0]["regret_seconds"]
    assert found == (None if expected is None else pytest.approx(expected))


def test_what_is_not_finite_is_null() -> None:
    LOG.replayed([(decision(flops=float("nan"), threshold=None), None)], 1, float("inf"))
    row = json.loads(report().to_json())["decisions"][0]
    assert (row["flops"], row["measured_seconds"]) == (None, None)


def test_text_shows_decisions_exits_and_totals() -> None:
    text = str(full())
    assert repr(full()) != ""
    for part in ("Decisions: 3", "sin", "cpu:generated", "1 ms", "Exits: 1", "unique", "no room"):
        assert part in text, part
    assert max(map(len, text.splitlines())) < 250


def test_no_column_of_a_table_is_empty() -> None:
    shown = {
        title.split(":")[0]: (header, rows) for title, header, rows in tables(full().to_dict(), 9)
    }
    assert shown["Exits"][0] == ["name", "call site", "times"]
    assert shown["Fallbacks"][0] == ["what", "call site", "times", "reason"]
    for header, rows in shown.values():
        assert all(len(row) == len(header) for row in rows)
        assert all(any(column) for column in zip(*rows, strict=True)), header


def test_text_says_once_where_the_files_are_and_leaves_out_what_is_nothing() -> None:
    text = str(full())
    folder = os.path.join(os.path.dirname(__file__), "")
    assert text.splitlines()[1] == f"call sites in {folder}" and text.count(folder) == 1
    assert f"  {os.path.basename(__file__)}:" in text
    assert "downloads" not in text
    assert ("Devices" in text) == (len(report().to_dict()["devices"]) > 1)  # what tests before met
    assert "element_operations.generated 90 (90%)" in " ".join(text.split())
    LOG.exit("elsewhere", (here.__code__.replace(co_filename="<string>"), 0))
    assert not str(report()).splitlines()[1]


def test_text_names_the_floor() -> None:
    with alight.policy(floor=1234):
        assert report().to_dict()["totals"]["floor_elements"] == 1234
        text = str(report())
    assert "1,234: additions of fewer are NumPy's at once" in text


def test_explanation_names_a_dtype_once_and_exits_beside_decisions() -> None:
    where = here()
    LOG.replayed([(decision(dtypes=("float64",) * 19 + ("bool",)), where)], 1, 1e-3)
    for _ in range(3):
        LOG.exit("percentile", where)
    lines = report().explanation().splitlines()
    assert lines[1].startswith("  sin, 100 elements, float64, bool: cpu:generated")
    assert lines[-1] == "  percentile: NumPy's own (exit), 3 runs"
    reset()
    LOG.exit("percentile", where)
    assert report().explanation().endswith("exit), 1 run")


def test_what_was_learned_and_how_far_off_predictions_were_is_told() -> None:
    ours = Estimate(1e-3, 0.5e-3, 2e-3, {"memory": 1e-3}, "a", 2.5e-4, 90)
    numpys = Estimate(3e-3, 2e-3, 4e-3, {"memory": 3e-3}, "b", 2e-3)
    candidates = Candidate("cpu", "numpy", numpys), Candidate("cpu", "generated", ours)
    taught = decision(candidates=candidates)
    for seconds in (1e-3, 2e-3, 2e-3, 50.0):
        LOG.launched(taught, here(), seconds, ("generated", "cpu"), 100, False)
    text = report().explanation()
    assert "predicted 1 ms (×4, learned from 90 runs), measured 2 ms" in text
    assert "not cpu:numpy: 3 ms (×1.5, as other work)" in text
    assert "predictions off by 50% in the median" in str(report())
    document = report().to_dict()
    assert document["totals"]["prediction_error"] == 0.5
    assert [c["learned_runs"] for c in document["decisions"][0]["candidates"]] == [0, 90]


def test_the_whole_decision_log_is_shown_where_it_is_asked_for() -> None:
    for number in range(15):
        LOG.replayed([(decision(operation=f"op{number}"), here())], 7, 1e-3)
    document = report().to_dict()
    assert sum(f"op{number} " in text_tables.text(document) for number in range(15)) == 10
    whole = text_tables.text(document, math.inf)
    assert all(f"op{number} " in whole for number in range(15))
    assert "the 10 kinds" not in whole


def test_work_below_the_floor_has_a_table_of_its_own() -> None:
    small = replace(decision(), reason=Reason.BELOW_FLOOR)
    LOG.launched(decision(), here(), 1e-3, ("generated", "cpu"), 100, False)
    LOG.launched(small, here(), 1e-6, ("numpy", "cpu"), 0, False, 17)
    shown = {title.split(":")[0]: rows for title, _, rows in tables(report().to_dict(), 9)}
    assert len(shown["Decisions"]) == len(shown["Below the floor"]) == 1
    assert "17" in shown["Below the floor"][0]


def test_explanation_groups_by_call_site_and_names_the_losers() -> None:
    for seconds in (1e-3, 3e-3):
        LOG.replayed([(decision(), here())], 1, seconds)
    lines = report().explanation().splitlines()
    assert lines[0].startswith(__file__)
    assert "2 runs, predicted 1 ms, measured 2 ms" in lines[1]
    assert lines[2:] == [
        "    not cpu:numpy: 3 ms",
        "    not cuda:0:generated: unknown gap no erf there",
    ]
    reset()
    assert "nothing was placed" in report().explanation()


def test_a_call_of_which_nothing_was_placed_says_why_and_what_to_do() -> None:
    def root(x: Any) -> Any:
        return np.sqrt(x * x)

    x = np.ones(3)
    given = alight.explain(root, x)
    line = f"{root.__qualname__} at {__file__}:{root.__code__.co_firstlineno}: numpy ("
    assert given.explanation().startswith(line)
    for text in (given.explanation(), str(given), given.to_html()):
        assert "functions that are not jitted do with ndarrays" in text
        assert f"Fix: alight.explain(alight.jit({root.__qualname__}), …); alight.pol" in unescape(
            text
        )
    (row,) = alight.explain(root, alight.asarray(x)).to_dict()["calls"]
    assert "elements than the floor" in row["reason"] and "jitted" not in row["reason"]
    (row,) = alight.explain(np.sqrt, x).to_dict()["calls"]
    assert (row["name"], row["call_site"], row["way"]) == ("sqrt", None, "numpy")
    with policy(floor=0):
        assert alight.explain(root, alight.asarray(x)).to_dict()["calls"] == []
        (row,) = alight.explain(root, x).to_dict()["calls"]
        assert "floor" not in row["reason"] and "Fix: alight.explain(alight.jit(" in row["reason"]


def test_what_was_not_measured_comes_with_what_to_do() -> None:
    LOG.replayed([(decision(implementation="numpy", reason=Reason.UNCALIBRATED), None)], 1, 1e-3)
    for text in (str(report()), report().explanation()):
        assert text.count("Fix: run `alight calibrate`") == 1
    assert "uncalibrated work" not in str(full().__class__({**full().to_dict(), "decisions": []}))


def test_a_first_run_is_marked_and_left_out_of_the_mean() -> None:
    def launched(seconds: float, first: bool) -> None:
        LOG.launched(decision(), None, seconds, ("generated", "cpu"), 0, first)

    launched(1.0, True)
    assert report().to_dict()["decisions"][0]["first_run"] is True
    assert "1 run, predicted 1 ms, measured 1 s (first run)" in report().explanation()
    launched(1e-3, False)
    launched(3e-3, False)
    assert "3 runs, predicted 1 ms, measured 2 ms" in report().explanation()
    assert "Decisions: 3, 1 s measured" in str(report())


def test_the_first_run_of_a_kernel_is_the_one_marked() -> None:
    with alight.policy(force="cpu:generated", floor=0):
        x = alight.ones(33)
        for _ in range(2):
            assert float((x * 3.25 - 1)[0]) == 2.25
    assert [row["first_run"] for row in report().to_dict()["decisions"]] == [True, False]


def test_a_report_is_saved_in_the_form_of_its_name(tmp_path: Path) -> None:
    made = full()
    for name, start in (("r.json", "{"), ("r.txt", "alight "), ("r.html", "<!doctype html>")):
        made.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert Report.load(tmp_path / "r.json").to_dict() == made.to_dict()
    assert str(Report.load(tmp_path / "r.json")) == str(made)
    assert sorted(os.listdir(tmp_path)) == ["r.html", "r.json", "r.txt"]


def test_html_escapes_what_programs_wrote() -> None:
    LOG.exit("<script>", None)
    assert "<script>" not in report().to_html()


def test_loading_something_else_says_so(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(AlightError, match=r"schema None.*Fix:"):
        Report.load(path)
    path.write_text('{"schema": 1, "machine": {}, "decisions": []}')
    with pytest.raises(AlightError, match=r"lacks alight, devices, gone, profiles, exits.*Fix: m"):
        Report.load(path)
    path.write_text("nonsense")
    with pytest.raises(AlightError, match=r"not JSON.*Fix:"):
        Report.load(path)


def profile(name: str, factor: float) -> Profile:
    curve = Curve([(240.0, factor * 1e-6), (24e6, factor * 1e-2)])
    number = Measured(0.0, "s", 0.0, 0.0, 1, "probe")
    return Profile(
        "cpu", {name: Rates(number, number, {"elementwise/float64": curve}, {}, number, 0.1)}
    )


def test_profile_rows_tell_crossovers_and_deltas() -> None:
    numpy = profile("numpy", 1.0)
    assert profile_row(profile("generated", 0.5), numpy)["crossovers"] == {"generated": 1}
    assert profile_row(profile("generated", 2.0), numpy)["crossovers"] == {"generated": None}
    slow_start = Curve([(240.0, 1e-5), (24e3, 2e-5), (24e6, 0.5e-2)])
    mixed = profile("generated", 1.0)
    mixed.rates["generated"].curves["elementwise/float64"] = slow_start  # type: ignore[index]
    crossover = profile_row(mixed, numpy)["crossovers"]["generated"]
    # lines between the knots, 1e-5 + 4e-10 s a byte and 4e-10, which fall below past the middle one
    assert 1000 < crossover <= 8192
    assert profile_row(mixed, numpy)["crossovers_by_class"] == {
        "generated": {"elementwise": crossover}
    }
    for made, factor in ((numpy, 1.0), (mixed, 2.0)):
        curve = Curve([(8.0, factor * 1e-6), (24e6, factor * 1e-2)])
        (rates,) = made.rates.values()
        rates.curves["reduce_inner/float64"] = curve  # type: ignore[index]
    row = profile_row(mixed, numpy)["crossovers_by_class"]
    assert row == {"generated": {"elementwise": crossover, "reduce_inner": None}}
    delta = profile_delta(numpy, profile("numpy", 1.1))
    assert delta == {"numpy/elementwise/float64": pytest.approx(0.1)}
    assert profile_row(numpy)["delta"] is None
    found = profile_row(numpy)["rates"]["numpy"]
    assert found == {
        "launch_seconds": 0.0,
        "bytes_per_second": pytest.approx(2.4e9),
        "flops_per_second": None,
    }


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "ALIGHT_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(Path(alight.errors.__file__).parents[1]),
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )


def test_at_exit_writes_once_and_not_from_a_forked_child(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom alight._src.explain.report_at_exit import at_exit\n"
        "from alight._src.log.decisions import LOG\n"
        "at_exit('r.json'); at_exit('r.json'); at_exit('-')\n"
        "LOG.exit('unique', None)\n"
        "child = os.fork() if hasattr(os, 'fork') else 1\n"
        "if child == 0:\n    LOG.exit('of the child', None)\n    sys.exit(0)\n"
        "if hasattr(os, 'fork'):\n    os.waitpid(child, 0)\n"
        "    assert not os.path.exists('r.json')\n"
        "os.chdir('/')\n"
    )
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    assert [row["name"] for row in document["exits"]] == ["unique"]
    assert done.stderr.count("Exits: 1") == 1
    assert done.stdout == ""


def test_a_report_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    code = "from alight._src.explain.report_at_exit import at_exit\nat_exit('missing/r.json')"
    done = python(code, tmp_path)
    assert done.returncode == 0
    assert "cannot write the report to" in done.stderr and "Fix:" in done.stderr


def test_devices_name_implementations_as_decisions_do() -> None:
    with LOG.forgetting(), alight.policy(floor=0):
        alight.evaluate(alight.ones((64, 64)) @ alight.ones((64, 64)))
        used = {(row["chosen"], row["implementation"]) for row in report().to_dict()["decisions"]}
    named = {(d["id"], name) for d in alight.devices() for name in d["implementations"]}
    assert used == {("cpu", "library")} and used < named


def test_what_is_asked_of_the_whole_process_takes_no_argument() -> None:
    """They are easily taken for such as save, choose or drop one thing."""
    for ask, fix in (
        (alight.report, r"alight\.report\(\)\.save\(path\)"),
        (alight.devices, r"alight\.policy\(devices=…\)"),
        (alight.reset, r"call alight\.reset\(\)"),
    ):
        with pytest.raises(
            TypeError, match=rf"{ask.__name__} takes no argument, not 'x'\. .*{fix}"
        ):
            ask("x")


def test_a_call_that_does_not_fit_is_told_as_it_was_made() -> None:
    with pytest.raises(TypeError) as caught:
        alight.explain(len)
    assert str(caught.value) == (
        "alight.explain: len does not take the arguments given after it; it is len(obj, /): "
        "missing a required argument: 'obj'. Fix: write alight.explain(len, x) for the call len(x)."
    )


def test_what_is_forced_and_too_small_is_said(small_is_small: None) -> None:
    """A floor holds for forced work, too: where nothing ran there, that is why."""
    x = np.arange(5.0)

    def root(x: Any) -> Any:
        return np.sqrt(x) + 1

    with policy(force="sim:0"):
        for call, array in ((root, alight.asarray(x)), (alight.jit(root), x)):
            told = alight.explain(call, array).explanation()
            assert "the floor" in told and "forced or not" in told, told
            assert "Fix: alight.policy(floor=0)" in told, told
    with policy(force="sim:0", floor=0):
        assert "sim:0" in alight.explain(root, alight.asarray(x)).explanation()


def test_each_device_is_asked_where_one_is_forced() -> None:
    with policy(force="sim:0"):
        rows = alight.device_report(np.sqrt, np.ones(1000))
    blocked = {row["device"]: row["blocked"] for row in rows}
    assert "not named, and argument force forces sim:0" not in blocked["sim:0"]
    assert {"cpu", "sim:0"} <= blocked.keys()
