"""`alight.install()`, and programs named without a command."""

from __future__ import annotations

from pathlib import Path

from test_loader import run, write

FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}

SCRIPT = '''
    """A script."""
    from __future__ import annotations
    print("above")
    {install}
    import numpy as np
    import beside
    x = np.ones(2000)
    def kind(array: np.ndarray) -> np.float64:
        return array.sum()
    print({shown}, __name__, __file__, __doc__, kind.__annotations__, kind(x) + beside.x.sum())
    if __name__ == "__main__":
        print("main")
    {end}
'''
BESIDE = "import numpy as np\nx = np.ones(2000)\n"
KINDS = "type(x).__module__, type(beside.x).__module__"


def script(install: str, end: str = "", shown: str = "0") -> str:
    return SCRIPT.format(install=install, end=end, shown=shown)


def test_the_rest_of_a_script_runs_as_by_alight_run(tmp_path: Path) -> None:
    own = script("import alight; alight.install(); alight.install()", shown=KINDS)
    write(tmp_path, {"script.py": own, "beside.py": BESIDE})
    found = run(tmp_path, "script.py", **FLOORLESS)
    assert found.stderr == ""
    assert "above\nalight alight __main__" in found.stdout
    assert found.stdout.endswith("4000.0\nmain\n")
    assert run(tmp_path, "-m", "alight", "run", "script.py", **FLOORLESS).stdout == found.stdout


def test_a_script_that_installs_ends_as_the_plain_one_does(tmp_path: Path) -> None:
    install = "import alight; alight.install()"
    for end in ("1 / 0", "raise SystemExit(3)", "import sys; sys.exit('words')", "x[5000]"):
        write(tmp_path, {"beside.py": BESIDE, "script.py": script("import alight; 0", end)})
        plain = run(tmp_path, "script.py")
        write(tmp_path, {"script.py": script(install, end)})
        ours = run(tmp_path, "script.py", **FLOORLESS)
        assert ours.returncode == plain.returncode
        assert ours.stdout == plain.stdout
        assert ours.stderr == plain.stderr


def test_a_script_without_columns_in_its_code_runs_by_lines(tmp_path: Path) -> None:
    """`python -X no_debug_ranges` leaves them out: of two statements on a line nobody tells which
    is at work."""
    bare = ("-X", "no_debug_ranges", "script.py")
    own = script("import alight\n    alight.install()", shown=KINDS)
    write(tmp_path, {"script.py": own, "beside.py": BESIDE})
    found = run(tmp_path, *bare, **FLOORLESS)
    assert found.stderr == "" and "above\nalight alight __main__" in found.stdout
    own = script("import alight; print('once'); alight.install()", shown=KINDS)
    write(tmp_path, {"script.py": own, "beside.py": BESIDE})
    found = run(tmp_path, *bare, **FLOORLESS)
    assert found.stderr == "" and "above\nonce\nnumpy alight __main__" in found.stdout


def test_later_imports_see_alight_where_a_function_or_a_module_installs(tmp_path: Path) -> None:
    first = "import alight\ndef begin():\n    alight.install()\nbegin()\n"
    for text in (first + "import beside\n", "import first\nimport beside\n"):
        write(tmp_path, {"first.py": first, "beside.py": BESIDE})
        shown = (
            "import numpy as np\nprint(type(beside.x).__module__, type(np.ones(2000)).__module__)"
        )
        write(tmp_path, {"script.py": text + shown})
        found = run(tmp_path, "script.py", **FLOORLESS)
        assert (found.stdout, found.stderr) == ("alight numpy\n", "")


def test_a_program_may_be_named_without_a_command(tmp_path: Path) -> None:
    shown = "import numpy as np, sys\nprint(type(np.ones(2000)).__module__, sys.argv[1:])\n"
    write(tmp_path, {"program.py": shown})
    for named in (["program.py"], ["-m", "program"], [str(tmp_path / "program.py")]):
        found = run(tmp_path, "-m", "alight", *named, "--fast", **FLOORLESS)
        assert (found.stdout, found.stderr) == ("alight ['--fast']\n", "")
    found = run(tmp_path, "-m", "alight", "-c", shown, "one", **FLOORLESS)
    assert (found.stdout, found.stderr) == ("alight ['one']\n", "")
