"""Settings: where each value comes from, what a bad one says, how policies nest."""

from __future__ import annotations

import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

import alight
from alight._core import POLICY, floor
from alight._src.config import loading, schema
from alight._src.config.loading import (
    Config,
    config,
    current_policy,
    load,
    policy,
    reload_config,
)
from alight._src.config.policy import _STAMPS_KEPT, Policy, _stamps
from alight._src.config.schema import Force
from alight.errors import AlightError, ConfigError


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Give an environment without settings, and read the real one again afterwards."""
    with monkeypatch.context() as patch:
        for name in [*schema.known()]:
            patch.delenv(name, raising=False)
        patch.setenv("ALIGHT_CONFIG", str(tmp_path / "config.toml"))
        (tmp_path / "config.toml").write_text("")
        yield patch
    reload_config()


def load_with(tmp_path: Path, toml: str = "", **environ: str) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load({"ALIGHT_CONFIG": str(file), **environ})


def test_settings_have_their_defaults(tmp_path: Path) -> None:
    settings = load_with(tmp_path)
    own = settings.policy
    assert (own.devices, own.force, dict(own.floor)) == (None, None, {})
    assert (own.on_gap, own.pick, own.reproducible) == ("host", "model", True)
    assert (settings.log_size, settings.log_level, settings.calibrate) == (10_000, "off", "auto")
    assert (settings.cache_dir, settings.report, settings.check) == (None, None, False)
    assert {row.source for row in settings.rows()} == {"default"}


def test_no_file_at_the_usual_place_is_no_error(tmp_path: Path) -> None:
    assert load({}).file is None or Path(str(load({}).file)).is_file()


def test_environment_beats_file_beats_default(tmp_path: Path) -> None:
    toml = 'on_gap = "raise"\nlog_size = 5\nreproducible = false\ncache_dir = "/from/file"\n'
    settings = load_with(tmp_path, toml, ALIGHT_ON_GAP="host", ALIGHT_LOG_SIZE="7")
    rows = {row.name: row for row in settings.rows()}
    file = f"file {tmp_path / 'config.toml'}"
    assert rows["on_gap"][1:] == ("host", "environment variable ALIGHT_ON_GAP")
    assert rows["log_size"][1:] == (7, "environment variable ALIGHT_LOG_SIZE")
    assert rows["reproducible"][1:] == (False, f"{file} key reproducible")
    assert rows["pick"][1:] == ("model", "default")
    assert Path(rows["cache_dir"].value) == settings.cache_root()


def test_every_setting_has_an_environment_name(tmp_path: Path) -> None:
    environ = {
        "ALIGHT_DEVICES": "cuda:0, cpu ,-wgpu:0",
        "ALIGHT_FORCE": "cpu:generated",
        "ALIGHT_FLOOR_ALL": "5",
        "ALIGHT_FLOOR_MATMUL": "7",
        "ALIGHT_ON_GAP": "raise",
        "ALIGHT_PICK": "measure",
        "ALIGHT_REPRODUCIBLE": "0",
        "ALIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "ALIGHT_LOG": "trace",
        "ALIGHT_LOG_SIZE": "3",
        "ALIGHT_REPORT": "-",
        "ALIGHT_CALIBRATE": "off",
        "ALIGHT_THREADS": "3",
        "ALIGHT_CHECK": "on",
        "ALIGHT_LEARN": "now",
        "ALIGHT_OWN_FUNCTIONS": "all",
        "ALIGHT_ENABLED": "no",
        "ALIGHT_WGPU_POWER": "low",
        "ALIGHT_WGPU_SOFTWARE": "off",
    }
    assert set(environ) <= set(schema.known())
    settings = load_with(tmp_path, "", **environ)
    own = settings.policy
    assert own.devices == ("cuda:0", "cpu", "-wgpu:0")
    assert own.force == Force("cpu", "generated")
    assert [own.floor_for(kind) for kind in ("unary", "matmul", "scan")] == [5, 7, 5]
    assert own.source("floor.matmul") == "environment variable ALIGHT_FLOOR_MATMUL"
    assert own.source("floor.all") == "environment variable ALIGHT_FLOOR_ALL"
    assert (own.on_gap, own.pick, own.reproducible) == ("raise", "measure", False)
    assert (own.learn, own.enabled) == ("now", False)
    assert settings.cache_root() == tmp_path / "cache"
    assert (settings.log_level, settings.log_size, settings.report) == ("trace", 3, "-")
    assert (settings.calibrate, settings.threads, settings.check) == ("off", 3, True)
    assert (settings.wgpu_power, settings.wgpu_software) == ("low", False)
    assert settings.own_functions == "all"
    assert all(row.source.startswith("environment variable ALIGHT_") for row in settings.rows())


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    assert load_with(tmp_path, "", ALIGHT_FORCE="", ALIGHT_FLOOR_ALL="").policy == Policy()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALIGHT_DEVICES", "cuda"),
        ("ALIGHT_DEVICES", "cpu:0"),
        ("ALIGHT_DEVICES", "cpu,"),
        ("ALIGHT_DEVICES", "cpu,-cpu"),
        ("ALIGHT_DEVICES", "-cpu"),  # there is always the host
        ("ALIGHT_FORCE", "nunpy"),
        ("ALIGHT_FORCE", "cuda:0:fast"),
        ("ALIGHT_FORCE", "generated:cpu"),
        ("ALIGHT_FLOOR_ALL", "lots"),
        ("ALIGHT_FLOOR_UNARY", "-1"),
        ("ALIGHT_FLOOR_BINARY", "1.5"),
        ("ALIGHT_FLOOR_REDUCTION", "1e6"),
        ("ALIGHT_FLOOR_MATMUL", "None"),
        ("ALIGHT_ON_GAP", "ignore"),
        ("ALIGHT_PICK", "Model"),
        ("ALIGHT_REPRODUCIBLE", "maybe"),
        ("ALIGHT_REPRODUCIBLE", "2"),
        ("ALIGHT_LOG", "debug"),
        ("ALIGHT_LOG_SIZE", "-5"),
        ("ALIGHT_CALIBRATE", "on"),
        ("ALIGHT_THREADS", "-1"),
        ("ALIGHT_CHECK", "plans"),
    ],
)
def test_a_bad_environment_value_names_its_variable(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with(tmp_path, "", **{name: value})
    assert isinstance(caught.value, ValueError | AlightError)
    text = str(caught.value)
    assert text.startswith(f"environment variable {name}: ") and "Fix: " in text


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ('devices = ["cpu", 3]', "devices"),
        ("devices = []", "devices"),
        ("force = 1", "force"),
        ("floor = true", "floor"),
        ("floor = 2.0", "floor"),
        ("[floor]\nunary = -1", "floor['unary']"),
        ("[floor]\nmatrix = 1", "floor"),
        ("reproducible = 1", "reproducible"),
        ('reproducible = "no"', "reproducible"),
        ('floor = "5"', "floor"),
        ('threads = "2"', "threads"),
        ('cache_dir = ""', "cache_dir"),
    ],
)
def test_a_bad_file_value_names_file_and_key(tmp_path: Path, toml: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with(tmp_path, toml)
    assert str(caught.value).startswith(f"file {tmp_path / 'config.toml'} key {key}: ")
    assert "Fix: " in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    for toml in ("floor = = 1", 'on_gaps = "host"', "\0"):
        with pytest.raises(ConfigError, match=r"config\.toml.*Fix: "):
            load_with(tmp_path, toml)
    with pytest.raises(ConfigError, match=r"variable ALIGHT_CONFIG.*absent\.toml.*Fix: "):
        load({"ALIGHT_CONFIG": str(tmp_path / "absent.toml")})


def test_what_is_on_or_off_is_one_or_zero(tmp_path: Path) -> None:
    for name in schema.SWITCHES:
        for value in ("", "0", "1"):
            load_with(tmp_path, "", **{name: value})
        for value in ("2", "yes", "-"):
            with pytest.raises(ConfigError, match=rf"{name}: '{value}' is not 1 or 0. Fix: "):
                load_with(tmp_path, "", **{name: value})


def test_settings_without_names_are_told_how_to_be_written() -> None:
    with pytest.raises(TypeError, match=r"by name, not 'cpu' alone. Fix: write devices='cpu' for"):
        alight.policy("cpu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"by name, not <function .* Fix: write devices='cpu' for"):
        alight.policy(lambda x: x)  # type: ignore[arg-type]


def test_no_fix_is_refused_itself(tmp_path: Path) -> None:
    for value in ("cpu,-cpu", "-cpu", "-cpu,sim:0"):
        with pytest.raises(ConfigError, match=r"'-cpu' is not .* Fix: leave it out; force names"):
            load_with(tmp_path, "", ALIGHT_DEVICES=value)
    with pytest.raises(ConfigError, match="name 'sim:0' or '-sim:0', not both"):
        load_with(tmp_path, "", ALIGHT_DEVICES="sim:0,-sim:0")
    with pytest.raises(ConfigError, match=r"Fix: write 'off', 'info' or 'trace'\."):
        load_with(tmp_path, "", ALIGHT_LOG="debug")
    with pytest.raises(ConfigError, match=r"Fix: write 'auto' or 'off'\."):
        load_with(tmp_path, "", ALIGHT_CALIBRATE="on")


def test_a_heading_over_settings_is_told_to_go(tmp_path: Path) -> None:
    for heading in ("policy", "alight"):
        with pytest.raises(ConfigError, match=rf"'{heading}' is not a setting.*above every table"):
            load_with(tmp_path, f'[{heading}]\nforce = "cpu"\n')


def test_an_unknown_name_in_a_policy_is_told_the_right_one() -> None:
    unknown: Any = policy
    with pytest.raises(TypeError, match=r"'device' is not a setting of it. Fix: write devices\."):
        unknown(device="cpu")
    for far in ("backend", "foo"):  # three of the letters of floor
        with pytest.raises(TypeError, match=rf"'{far}' is not .* one of devices, force, floor, on"):
            unknown(**{far: "cpu"})
    for slip in ("froce", "forc", "fo"):
        with pytest.raises(TypeError, match=rf"'{slip}' is not .* write force\."):
            unknown(**{slip: "cpu"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"devices": 3},
        {"devices": ()},
        {"force": "gpu"},
        {"floor": -1},
        {"floor": 1.5},
        {"floor": {"every": 1}},
        {"on_gap": None},
        {"pick": "best"},
        {"devices": [3]},
        {"floor": "5"},
        {"floor": {"unary": "5"}},
        {"reproducible": 1},
        {"reproducible": "yes"},
        {"reproducible": None},
    ],
)
def test_a_bad_argument_names_itself_at_the_line_that_gave_it(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(ConfigError, match=rf"^argument {name}.*: .*Fix: ") as caught:
        policy(**arguments)
    assert len(caught.traceback) == 2  # this line, and the one that raises
    assert caught.value.__suppress_context__


def test_what_a_policy_cannot_be_laid_over_is_told_at_the_line_that_enters_it() -> None:
    with pytest.raises(ConfigError, match="not among the devices allowed") as caught:
        policy(devices="cpu", force="sim:0").__enter__()
    assert len(caught.traceback) == 2


@pytest.mark.parametrize(
    ("text", "device", "implementation"),
    [
        ("cuda:0", "cuda:0", None),
        ("cpu", "cpu", None),
        ("cpu:generated", "cpu", "generated"),
        ("cuda:11:library", "cuda:11", "library"),
        ("numpy", None, "numpy"),
        ("sim:0", "sim:0", None),
    ],
)
def test_force_is_a_device_an_implementation_or_both(
    text: str, device: str | None, implementation: str | None
) -> None:
    force = policy(force=text).over(Policy()).force
    assert force == Force(device, implementation) and str(force) == text
    assert policy(force=force).over(Policy()).force == force


def test_inner_policies_change_only_what_they_name(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("ALIGHT_FLOOR_UNARY", "3")
    fresh.setenv("ALIGHT_ON_GAP", "raise")
    outside = reload_config().policy
    assert current_policy() is outside
    with policy(floor={"binary": 9}) as one:
        assert current_policy() is one and one.on_gap == "raise"
        assert [one.floor_for(kind) for kind in ("unary", "binary", "matmul")] == [3, 9, None]
        with policy(force="numpy", floor=0) as two:
            # A floor for all says it for every class, whoever spoke before.
            assert [two.floor_for(kind) for kind in ("unary", "binary", "scan")] == [0, 0, 0]
            assert two.force == Force(None, "numpy")
            with policy(force=None, floor=None) as three:
                assert three.force is None and three.floor_for("unary") is None
                assert three.source("on_gap") == "environment variable ALIGHT_ON_GAP"
                assert three.source("floor") == three.source("floor.all") == "argument floor"
            assert current_policy() is two
    assert current_policy() is outside


def test_a_policy_decorates_and_may_be_entered_again() -> None:
    twice = policy(floor=7)
    depths: list[int | None] = []

    @twice
    def inside(depth: int) -> int:
        """Return the depth."""
        depths.append(current_policy().floor_for("unary"))
        with twice:
            return depth if depth == 0 else inside(depth - 1)

    before = current_policy()
    assert inside(3) == 0 and depths == [7] * 4
    assert (inside.__name__, inside.__doc__) == ("inside", "Return the depth.")
    assert current_policy() == before
    with pytest.raises(ZeroDivisionError), twice:
        raise ZeroDivisionError
    assert current_policy() == before


def test_what_runs_after_the_call_cannot_be_decorated() -> None:
    def items() -> Iterator[int]:
        yield 1

    async def later() -> None:
        return None

    for function in (items, later):
        with pytest.raises(ConfigError, match="Fix: use `with"):
            policy(floor=0)(function)


def test_a_policy_is_of_its_thread_and_its_context() -> None:
    shared = policy(floor=5)
    before = current_policy()
    barrier = threading.Barrier(4)

    @shared
    def here(value: int) -> bool:
        barrier.wait()  # all four are inside the same policy object at once
        with policy(floor=value):
            barrier.wait()
            inner = current_policy().floor_for("all")
        return inner == value and current_policy().floor_for("all") == 5

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(here, range(4)))
        assert pool.submit(current_policy).result() == before
    with shared:
        context = copy_context()
    assert current_policy() == before
    inside: Policy | None = context.run(POLICY.get)
    assert inside is not None and inside.floor_for("all") == 5


def test_force_outside_the_allowed_devices_names_both_sources(tmp_path: Path) -> None:
    settings = load_with(tmp_path, "", ALIGHT_DEVICES="cpu")
    with pytest.raises(ConfigError, match=r"argument force: 'cuda:0:library'.*ALIGHT_DEVICES: cpu"):
        policy(force="cuda:0:library").over(settings.policy)
    with pytest.raises(ConfigError, match=r"ALIGHT_FORCE: 'sim:0'.*argument devices: -sim:0"):
        forced = load_with(tmp_path, "", ALIGHT_FORCE="sim:0").policy
        policy(devices="-sim:0").over(forced)


def test_devices_are_an_allow_list_in_order_of_preference() -> None:
    present = ("cpu", "wgpu:0", "cuda:0", "cuda:1")

    def order(devices: str | None) -> tuple[str, ...]:
        return policy(devices=devices).over(Policy()).order(present)

    assert order(None) == present
    assert order("cuda:1,cpu,sim:0") == ("cuda:1", "cpu")
    assert order("-wgpu:0") == ("cpu", "cuda:0", "cuda:1")
    assert order("cuda:0,-wgpu:0") == ("cuda:0",)
    assert policy(devices="cpu,sim:0").over(Policy()).names("sim:0")
    assert policy(force="sim:0").over(Policy()).names("sim:0")
    assert not Policy().names("cpu")


def test_a_stamp_is_one_to_one_with_what_the_policy_says() -> None:
    base = Policy()
    same = [policy(floor={"all": 3, "unary": 4}).over(base)]
    same.append(policy(floor={"unary": 4}).over(policy(floor=3).over(base)))
    same.append(pickle.loads(pickle.dumps(same[0])))
    assert len({p.stamp for p in same}) == len({hash(p) for p in same}) == 1
    assert same[0] == same[1] == same[2] and same[2].sources == same[0].sources
    changes: list[dict[str, Any]] = [
        *({"floor": n} for n in (0, 1, {"unary": 0}, {"binary": 0})),
        *({"force": f} for f in ("cpu", "cpu:numpy", "numpy")),
        *({"devices": d} for d in ("cpu", "cpu,cuda:0", "cuda:0,cpu", "-cuda:0")),
        *({"on_gap": "raise"}, {"pick": "measure"}, {"reproducible": False}),
    ]
    stamps = {policy(**change).over(base).stamp for change in changes}
    assert len(stamps | {base.stamp}) == len(changes) + 1
    assert base != policy(floor=0).over(base) and base != "Policy()"


def test_the_recording_floor_follows_the_elementwise_floors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(floor, "auto", 50)
    assert Policy().record_floor == 50
    assert policy(floor=0).over(Policy()).record_floor == 0
    assert policy(floor={"unary": 70, "binary": 20}).over(Policy()).record_floor == 20
    assert policy(floor={"unary": 10}).over(Policy()).record_floor == 10
    assert policy(floor={"unary": 70}).over(Policy()).record_floor == 50, "of binary ops"
    assert policy(floor={"all": 70, "reduction": 30}).over(Policy()).record_floor == 30
    assert policy(floor={"matmul": 1000}).over(Policy()).record_floor == 50
    assert policy(floor={"matmul": 64}).over(Policy()).record_floor == 16


def test_a_misspelt_variable_is_named_once_with_the_right_one(
    fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.setattr(loading, "_told", set())
    for name, value in {"ALIGHT_DEVICE": "cpu", "ALIGHT_FLOOR": "3", "OTHER": "x"}.items():
        fresh.setenv(name, value)
    for _ in range(2):
        reload_config()
    first, second = sorted(record.getMessage() for record in caplog.records)
    assert "ALIGHT_DEVICE is not known" in first and "Fix: write ALIGHT_DEVICES." in first
    assert "ALIGHT_FLOOR is not known" in second and "Fix: write ALIGHT_FLOOR_" in second
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_variable_that_may_be_another_programs_is_told_of_only_where_asked(
    fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.setattr(loading, "_told", set())
    fresh.setenv("ALIGHT_API_KEY", "1")
    with caplog.at_level("INFO", "alight"):
        for _ in range(2):
            reload_config()
    (record,) = caplog.records
    told = record.getMessage()
    assert record.levelname == "INFO" and "ALIGHT_API_KEY is no setting of alight's. Fix:" in told
    assert len(told) < 160


def test_what_is_no_setting_is_told_of_once_it_is_known_how_much_is_logged() -> None:
    command = [sys.executable, "-c", "from alight._src.config.loading import config; config()"]
    for level, lines in (("off", 0), ("info", 1)):
        own = {**os.environ, "ALIGHT_LOG": level, "ALIGHT_API_KEY": "1"}
        done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
        assert done.stderr.count("ALIGHT_API_KEY") == lines


def test_what_is_read_of_the_environment_is_known() -> None:
    folders = (Path(alight.__file__).parent, Path(__file__).parents[1])
    texts = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"environ\b.{0,9}\"(ALIGHT_\w+)\"", text)}
    assert {"ALIGHT_REPORT", "ALIGHT_FULL"} <= read <= set(schema.known())


def test_a_settings_key_is_not_taken_for_its_variable_in_silence(
    fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.setattr(loading, "_told", set())
    fresh.setenv("ALIGHT_LOG_LEVEL", "info")  # `alight doctor` lists it as log_level
    with caplog.at_level(logging.WARNING, "alight"):
        reload_config()
    (record,) = caplog.records
    assert record.getMessage().endswith("Fix: write ALIGHT_LOG.")


def test_a_floor_misspelt_is_taken_for_a_floor(
    fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fresh.setattr(loading, "_told", set())
    fresh.setenv("ALIGHT_FLOR", "3")
    with caplog.at_level(logging.WARNING, "alight"):
        reload_config()
    assert [record.getMessage().rpartition("Fix: ")[2] for record in caplog.records] == [
        "write ALIGHT_FLOOR_ALL."
    ]


def test_a_bad_log_size_is_told_of_as_a_log_size(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="or 0 to keep no decisions"):
        load_with(tmp_path, "", ALIGHT_LOG_SIZE="x")


def test_problems_are_collected_and_the_rest_holds(tmp_path: Path) -> None:
    problems: list[Any] = []
    environ = {
        **{"ALIGHT_CONFIG": str(tmp_path / "none"), "ALIGHT_FLOOR_UNARY": "-1"},
        **{"ALIGHT_DEVICES": "cpu", "ALIGHT_FORCE": "sim:0", "ALIGHT_LOG_SIZE": "9"},
    }
    settings = loading.load(environ, problems)
    assert settings.log_size == 9 and settings.policy == Policy()
    assert [text in str(p) for text, p in zip(["none", "-1", "sim:0"], problems, strict=True)] == [
        True
    ] * 3


def test_ever_new_policies_do_not_grow_the_process() -> None:
    base = Policy()
    for number in range(2 * _STAMPS_KEPT):
        policy(floor=number).over(base)
    assert len(_stamps) <= _STAMPS_KEPT
    again = Policy()  # what was forgotten gets another number and says the same
    assert again == base and hash(again) == hash(base)
    known = {stamp: said for said, stamp in _stamps.items()}
    assert known.get(base.stamp, base._said) == base._said


def test_the_log_level_reaches_the_logger_only_when_asked(
    fresh: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("alight")
    level, handlers = logger.level, list(logger.handlers)
    try:
        logger.setLevel(logging.ERROR)
        assert reload_config().log_level == "off" and logger.level == logging.ERROR
        for word, expect in (("off", logging.WARNING), ("info", logging.INFO), ("trace", 5)):
            fresh.setenv("ALIGHT_LOG", word)
            reload_config()
            assert logger.level == expect
    finally:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def test_the_configuration_is_read_once(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("ALIGHT_ON_GAP", "raise")
    first = reload_config()
    fresh.setenv("ALIGHT_ON_GAP", "host")
    assert config() is first and current_policy().on_gap == "raise"
    assert reload_config().policy.on_gap == "host"


def test_an_error_in_the_environment_comes_at_every_use(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(loading, "_config", None)
    fresh.setattr(loading, "_base", None)
    fresh.setenv("ALIGHT_FLOOR_ALL", "many")
    for _ in range(2):
        with pytest.raises(ConfigError, match="environment variable ALIGHT_FLOOR_ALL"):
            current_policy()


def test_the_policy_is_cheap_to_read() -> None:
    # Counted, not timed: no file, no environment and no lock after the first time.
    config()
    calls: list[str] = []

    def count(_: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    with policy(floor=0):
        sys.setprofile(count)
        current_policy()
        sys.setprofile(None)
    assert len(calls) <= 3  # the function, ContextVar.get and setprofile itself


def test_a_policy_made_again_over_the_same_base_is_the_same() -> None:
    def made(**changes: Any) -> Policy:
        with policy(**changes) as result:
            return result

    assert made(force="cpu:generated", floor=0) is made(force="cpu:generated", floor=0)
    assert made(floor={"unary": 3}) == made(floor={"unary": 3})  # no key for a dict
    assert made(reproducible=True) is not made(reproducible=False)
    for number in (True, 1.0):  # equal to a number that is one, and no count
        assert made(floor=1).floor == {"all": 1}
        with pytest.raises(ConfigError):
            made(floor=number)
    with policy(floor=7):
        assert made(force="numpy").floor == {"all": 7}
    assert made(force="numpy").floor != {"all": 7}


def test_what_a_policy_cannot_decorate() -> None:
    async def pieces() -> Any:
        yield 1

    with pytest.raises(ConfigError, match=r"runs after the call has returned. Fix: "):
        policy(floor=0)(pieces)
    for other in (3, int):
        with pytest.raises(TypeError, match=r"decorates functions, not .* Fix: "):
            policy(floor=0)(other)  # type: ignore[type-var]


def test_devices_in_one_text_are_a_list_as_in_the_environment(tmp_path: Path) -> None:
    read = load_with(tmp_path, ALIGHT_DEVICES="cpu, -sim:0").policy
    with policy(devices="cpu, -sim:0") as here:
        assert here.devices == read.devices == ("cpu", "-sim:0")
    with policy(devices="cpu") as here:
        assert here.devices == ("cpu",) and not here.allows("cuda:0")
