"""A fix that says to calibrate names the settings that a profile depends on, as they are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import command

LACK = (
    "from alight._src.adapt.lazy_devices import lack\n"
    "from alight.backends import registry\n"
    "print(lack(registry.device('cpu')).fix)\n"
)


@pytest.mark.parametrize("threads", ["1", "3", ""])
def test_the_fix_calibrates_with_the_threads_that_are_set(tmp_path: Path, threads: str) -> None:
    done = command(tmp_path, LACK, before=("-c",), ALIGHT_THREADS=threads)
    given = f"ALIGHT_THREADS={threads} " if threads else ""
    assert done.stdout == f"Fix: `{given}alight calibrate cpu`\n", done.stderr


def test_a_setting_of_the_file_is_read_by_calibrate_itself(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("threads = 1\n")
    file = str(tmp_path / "config.toml")
    done = command(tmp_path, LACK, before=("-c",), ALIGHT_CONFIG=file)
    assert done.stdout == "Fix: `alight calibrate cpu`\n", done.stderr


def test_a_report_of_uncalibrated_work_says_so_too(tmp_path: Path) -> None:
    program = (
        "import alight as np\n"
        "from alight._src.adapt.first_plan import plan_at_once\n"
        "plan_at_once()\n"
        "float((np.ones(2_000_000) * 2 + 1).sum())\n"
        "print(np.report())\n"
    )  # fmt: skip
    done = command(
        tmp_path, program, before=("-c",), ALIGHT_THREADS="1", ALIGHT_CALIBRATE="off"
    )  # fmt: skip
    assert "Fix: run `ALIGHT_THREADS=1 alight calibrate` while" in done.stdout, done.stdout
