"""A number that is none is a clear error, in every option and setting that takes one."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from alight._src.cli.commands import commands
from alight._src.config.schema import SETTINGS, known, meant, setting
from alight.errors import ConfigError

NO_AMOUNTS = ("nan", "inf", "-inf", "1e400", "-1", "0", "", "five")
NO_COUNTS = ("nan", "inf", "-inf", "1e3", "-1", "1.5", str(sys.maxsize + 1), "five")
COUNTED = [name for name in SETTINGS if isinstance(meant(name, "7"), int)]


def _numeric() -> list[tuple[str, str]]:
    """Return every option that has a number by default, with its command."""
    found = []
    for name, command in commands.commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and type(option.default) in (int, float):
                found.append((name, option.opts[0]))
    return found


def test_the_options_are_found() -> None:
    assert {("calibrate", "--seconds"), ("bench", "--budget")} <= set(_numeric())
    assert {"floor", "log_size", "threads"} <= set(COUNTED) and len(known()) > len(COUNTED)


@pytest.mark.parametrize("text", NO_AMOUNTS)
@pytest.mark.parametrize("option", _numeric(), ids=" ".join)
def test_an_option_takes_amounts_only(option: tuple[str, str], text: str) -> None:
    done = CliRunner().invoke(commands, [*option, text])
    assert done.exit_code == 2
    assert option[1] in done.output and repr(text) in done.output and "Fix: " in done.output


@pytest.mark.parametrize("text", ["nan", "2^nan", "2^-1", "-4096", "2^9999", "9^999999999", "1e6"])
def test_sizes_of_the_bench_are_such_as_a_machine_can_have(text: str) -> None:
    done = CliRunner().invoke(commands, ["bench", "--sizes", text, "--only", "chain"])
    assert isinstance(done.exception, ConfigError)
    assert repr(text) in str(done.exception) and "Fix: " in str(done.exception)


@pytest.mark.parametrize("text", NO_COUNTS)
@pytest.mark.parametrize("name", COUNTED)
def test_a_setting_takes_counts_only(name: str, text: str) -> None:
    for raw in (meant(name, text), float(text) if text in ("nan", "inf", "-1") else text):
        with pytest.raises(ConfigError, match=r"a variable: .*whole number.*Fix: "):
            setting(name, raw, "a variable")
