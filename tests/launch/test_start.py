"""`ALIGHT=1`: scripts, modules, subprocesses and workers that see alight with no command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from test_loader import PACKAGE, run, write

LINE = (Path(__file__).resolve().parents[2] / "tools" / "alight.pth").read_text(encoding="utf-8")
FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
SHOWN = "print(type(np.ones(2000)).__module__, __name__, __spec__, sys.argv, sys.path[0])\n"
SCRIPT = f"import numpy as np, sys, beside\n{SHOWN}beside.show()\n"
BESIDE = "import numpy as np, sys\ndef show(): print(type(np.ones(2000)).__module__)\n"


def start(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as where a wheel is installed, whose file it reads when it starts."""
    write(folder, {"installed/sitecustomize.py": LINE})
    path = f"{folder / 'installed'}:{PACKAGE.parent}"
    return run(folder, *command, **{"ALIGHT": "1", **FLOORLESS, "PYTHONPATH": path, **variables})


def test_a_script_runs_as_by_alight_run(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": SCRIPT, "beside.py": BESIDE})
    for options in ((), ("-W", "error"), ("-X", "utf8")):
        found = start(tmp_path, *options, "script.py", "-m", "one")
        wanted = run(tmp_path, "-m", "alight", "run", "script.py", "-m", "one", **FLOORLESS)
        assert (found.stdout, found.stderr) == (wanted.stdout, "")
        assert found.stdout.startswith("alight __main__ None ['script.py', '-m', 'one']")


def test_without_the_variable_nothing_is_loaded(tmp_path: Path) -> None:
    own = "import sys, numpy\nprint(*[n for n in sys.modules if n.startswith('alight')])\n"
    write(tmp_path, {"script.py": own})
    assert start(tmp_path, "script.py", ALIGHT="0").stdout == "\n"
    assert start(tmp_path, "script.py", ALIGHT="").stdout == "\n"
    write(tmp_path, {"script.py": own.replace(", numpy", "")})
    assert start(tmp_path, "script.py").stdout == "alight_start\n"


def test_modules_of_a_script_that_names_no_numpy_see_alight(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": "import beside\nbeside.show()\n", "beside.py": BESIDE})
    found = start(tmp_path, "script.py")
    assert (found.stdout, found.stderr) == ("alight\n", "")
    found = start(tmp_path, "-c", "import beside; beside.show()")
    assert (found.stdout, found.stderr) == ("alight\n", "")


def test_a_module_that_is_run_sees_alight(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": SCRIPT, "beside.py": BESIDE})
    found = start(tmp_path, "-m", "script", "one")
    assert found.stdout.startswith("alight __main__ ModuleSpec")
    assert found.stdout.endswith("\nalight\n") and found.stderr == ""


def test_a_script_ends_as_the_plain_one_does(tmp_path: Path) -> None:
    for end in ("1 / 0", "raise SystemExit(3)", "import sys; sys.exit('words')", "np.ones(3)[7]"):
        write(tmp_path, {"script.py": f"import numpy as np\nprint(1)\n{end}\n"})
        plain, ours = run(tmp_path, "script.py"), start(tmp_path, "script.py")
        assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)
        assert ours.stderr == plain.stderr


def test_subprocesses_and_workers_see_alight(tmp_path: Path) -> None:
    own = """
        import multiprocessing, subprocess, sys
        import numpy as np

        def kind(n):
            return type(np.ones(n)).__module__

        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(kind, [2000]), flush=True)
            subprocess.run([sys.executable, "other.py"])
        """
    other = "import numpy as np\nprint(type(np.ones(2000)).__module__)\n"
    write(tmp_path, {"script.py": own, "other.py": other})
    found = start(tmp_path, "script.py")
    assert found.stdout == "['alight']\n['alight']\nalight\n"
    assert found.stderr == ""


def test_files_of_packages_and_commands_stay_plain(tmp_path: Path) -> None:
    own = "import numpy as np\nprint(type(np.ones(2000)).__module__)\n"
    write(tmp_path, {"site-packages/tool.py": own})
    found = start(tmp_path, "site-packages/tool.py")
    assert (found.stdout, found.stderr) == ("numpy\n", "")
