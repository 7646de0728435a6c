"""A setting is one row: what follows from a row that a test adds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from command_line import PACKAGE, command

ROWS = """
def _ratio(raw: object, source: str) -> float:
    if type(raw) not in (int, float) or not 0 <= raw <= 1:
        bad(raw, source, "a number from 0 to 1", "write for example 0.5")
    return float(raw)


def _text_of_ratio(text: str) -> object:
    with ignoring_failures(ValueError):
        return float(text)
    return text


_ROWS = (
    Setting("colour", one_of("red", "blue"), "red", Scope.PROCESS, "Which colour."),
    Setting("retries", counted("times", "write 3"), 2, Scope.PROCESS, "How often."),
    Setting("share", Reader(_ratio, "0 to 1", _text_of_ratio), 0.5, Scope.PLACEMENT, "How much."),
"""

USE = """
import alight
from alight._src.config import schema
from alight._src.config.loading import config, current_policy
print(config().colour, config().retries, current_policy().share)
print({row.name: row.source for row in config().rows() if row.name in ("colour", "share")})
before = current_policy().stamp
with alight.policy(share=1) as here:
    print(here.share, here.stamp != before, here == current_policy())
for given in ({"share": 2}, {"shard": 1}):
    try:
        alight.policy(**given)
    except Exception as error:
        print(error)
print(schema.SETTINGS["share"].cells)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package whose table has three rows more."""
    made = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, made / "alight", ignore=shutil.ignore_patterns("__pycache__"))
    table = made / "alight/_src/config/schema.py"
    text = table.read_text(encoding="utf-8")
    assert text.count("_ROWS = (\n") == 1
    table.write_text(text.replace("_ROWS = (\n", ROWS), encoding="utf-8")
    return made


def run(folder: Path, toml: str = "", **variables: str) -> tuple[str, str]:
    (folder / "config.toml").write_text(toml)
    file = str(folder / "config.toml")
    variables |= {"ALIGHT_CONFIG": file, "PYTHONPATH": str(folder)}
    done = command(folder, USE, before=("-c",), **variables)
    return done.stdout, done.stderr


def test_a_row_is_a_key_a_variable_an_argument_and_a_line_of_the_page(folder: Path) -> None:
    shown, errors = run(folder)
    assert shown.splitlines() == [
        "red 2 0.5",
        "{'colour': 'default', 'share': 'default'}",
        "1.0 True True",
        "argument share: 2 is not a number from 0 to 1. Fix: write for example 0.5.",
        "alight.policy: 'shard' is not a setting of it. Fix: write share.",
        "('`share`', '`ALIGHT_SHARE`', '`policy(share=)`', '0.5', '0 to 1', 'How much.')",
    ], errors


def test_a_row_is_read_from_file_and_environment(folder: Path) -> None:
    shown, _ = run(
        folder, 'colour = "blue"\nshare = 0.25\n', ALIGHT_SHARE="0.75", ALIGHT_RETRIES="7"
    )
    first, sources, *_ = shown.splitlines()
    assert first == "blue 7 0.75"
    assert "config.toml key colour" in sources and "variable ALIGHT_SHARE" in sources


def test_bad_values_of_a_row_name_their_source(folder: Path) -> None:
    for variables, told in (
        ({"ALIGHT_COLOUR": "green"}, "environment variable ALIGHT_COLOUR: 'green' is not one of"),
        ({"ALIGHT_RETRIES": "-1"}, "ALIGHT_RETRIES: -1 is not a whole number >= 0. Fix: write 3."),
        ({"ALIGHT_SHARE": "much"}, "ALIGHT_SHARE: 'much' is not a number from 0 to 1"),
    ):
        _, errors = run(folder, **variables)
        assert told in errors
    _, errors = run(folder, "colour = 3\n")
    assert "config.toml key colour: 3 is not one of red, blue" in errors
    _, errors = run(folder, "color = 'red'\n")
    assert "Fix: write colour" in errors
