"""`pytest -p alight`: tests of a program, which see alight, and are told of as by plain pytest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_loader import run, write

FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
PROJECT = {
    "pack/__init__.py": "",
    "pack/work.py": "import numpy as np\ndef wave(n): return np.exp(-np.linspace(0, 1, n))\n",
    "tests/conftest.py": """
        import numpy as np, pytest
        made = np.arange(5000.0)
        @pytest.fixture
        def ramp(): return np.arange(5000.0)
    """,
    "tests/test_kinds.py": """
        import numpy as np
        from conftest import made
        from pack.work import wave
        def test_what_arrays_are():
            kinds = {type(a).__module__ for a in (made, wave(5000), np.ones(5000))}
            print("kinds", *kinds, isinstance(made, np.ndarray))
    """,
    "tests/test_results.py": '''
        """Tests of results."""
        import numpy as np
        import pytest
        from pack.work import wave

        def test_equal_arrays(ramp):
            assert np.allclose(ramp * 2, ramp + ramp)
            assert (ramp + 1).sum() == pytest.approx(12502500.0)
            assert wave(5000) == pytest.approx(wave(5000))

        def test_unequal_sums(ramp):
            total = ramp.sum()
            wanted = 3 + wave(5000).max()
            assert total == wanted

        @pytest.mark.parametrize("by", [1, 2])
        def test_unequal_arrays(by):
            ones = np.ones(5000)
            first = list(ones[:3])
            same = first == [1, by, 1]
            assert same, first

        def test_errors_of_numpy(ramp):
            with pytest.raises(IndexError, match="out of bounds"):
                np.ones(5000)[7000]
            np.ones(5000)[7000]
    ''',
}


def told(text: str) -> str:
    """Return what pytest says but for times, the line of alight's and objects' addresses."""
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("alight: ")]
    return re.sub(r"0x[0-9a-f]+|\d+\.\d+s", "#", "\n".join(line for line in lines if line))


@pytest.mark.parametrize("options", [("--assert=plain",), ("--import-mode=importlib",)])
def test_tests_are_told_of_as_by_plain_pytest(tmp_path: Path, options: tuple[str, ...]) -> None:
    write(tmp_path, {**PROJECT, "pytest.ini": "[pytest]\npythonpath = . tests\n"})
    command = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "-s", *options)
    plain = run(tmp_path, *command)
    ours = run(tmp_path, *command, "-p", "alight", **FLOORLESS)
    assert "kinds alight True" in ours.stdout and "kinds numpy True" in plain.stdout
    assert told(ours.stdout).replace("kinds alight", "kinds numpy") == told(plain.stdout)
    assert (ours.stderr, ours.returncode) == (plain.stderr, plain.returncode) == ("", 1)
    (line,) = [line for line in ours.stdout.splitlines() if line.startswith("alight: ")]
    assert re.match(r"alight: \d+ launch(es)?, .*% of the work on large arrays", line)
    if "--assert=plain" not in options:
        assert "assert np.float64(12497500.0) == np.float64(4.0)" in ours.stdout


def test_what_workers_did_is_counted_together(tmp_path: Path) -> None:
    write(tmp_path, {**PROJECT, "pytest.ini": "[pytest]\npythonpath = . tests\n"})
    command = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "alight", "-n", "2", "-q")
    ours = run(tmp_path, *command, **FLOORLESS)
    (line,) = [line for line in ours.stdout.splitlines() if line.startswith("alight: ")]
    assert not line.startswith("alight: 0 launches"), ours.stdout


def test_a_bad_setting_is_an_error_of_usage(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    ours = run(tmp_path, "-m", "pytest", "-p", "alight", ALIGHT_FLOOR_ALL="many")
    assert ours.returncode == 4 and "ALIGHT_FLOOR_ALL" in ours.stderr and "Fix: " in ours.stderr
