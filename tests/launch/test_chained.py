"""`python -m alight -m module script.py`: a module between alight and the program's script."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_loader import run, write

FLOORLESS = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
RUNNER = """
    import runpy, sys
    if __name__ == "__main__":
        sys.argv[:] = sys.argv[1:]
        if sys.argv[0] == "-m":
            runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
"""
SCRIPT = """
    import sys
    import numpy as np
    import beside
    x = np.ones(2000)
    shown = type(x).__module__, type(beside.x).__module__, float((x + beside.x).sum())
    print(*shown, __name__, __file__, sys.argv[1:], "compile" in globals(), file=sys.stderr)
    if "fail" in sys.argv:
        x + np.ones(3)
"""


@pytest.mark.parametrize("installed", [False, True])
def test_a_script_that_a_module_runs_sees_alight(tmp_path: Path, installed: bool) -> None:
    chained = "site-packages/chain/tool/__main__.py" if installed else "chain/tool/__main__.py"
    write(tmp_path, {chained: RUNNER, "program/script.py": SCRIPT})
    write(tmp_path, {"program/beside.py": "import numpy as np\nx = np.ones(2000)\n"})
    paths = f"{tmp_path / 'program'}:{tmp_path / 'site-packages'}:"
    paths += str(Path(__file__).parents[2] / "src")
    for named in (["program/script.py"], [str(tmp_path / "program/script.py")], ["-m", "script"]):
        command = ["-m", "chain.tool", *named, "fail"]
        plain = run(tmp_path, *command, PYTHONPATH=paths)
        ours = run(tmp_path, "-m", "alight", *command, PYTHONPATH=paths, **FLOORLESS)
        first, _, rest = ours.stderr.partition("\n")
        assert plain.stderr == f"{first.replace('alight', 'numpy')}\n{rest}"
        assert ours.returncode == plain.returncode == 1
        assert first.startswith("alight alight 4000.0 __main__"), ours.stderr


@pytest.mark.parametrize("module", ["cProfile", "trace"])
def test_a_script_under_a_module_of_python_sees_alight(tmp_path: Path, module: str) -> None:
    write(tmp_path, {"script.py": SCRIPT, "beside.py": "import numpy as np\nx = np.ones(2000)\n"})
    command = {"cProfile": ["cProfile"], "trace": ["trace", "--listfuncs"]}[module]
    ours = run(tmp_path, "-m", "alight", "-m", *command, "script.py", "one", **FLOORLESS)
    assert ours.stderr.startswith("alight alight 4000.0 __main__ script.py ['one']"), ours.stderr


def test_what_else_such_a_module_compiles_is_pythons(tmp_path: Path) -> None:
    asked = "print(eval(compile('1 + 1', 'x', 'eval')), compile.__name__)\nRUNPY\n"
    told = "import runpy\nprint(runpy.compile('2', 'x', 'eval'), runpy.compile('', 'y', 'exec', 0))"
    write(tmp_path, {"tool.py": asked.replace("RUNPY", told)})
    ours = run(tmp_path, "-m", "alight", "-m", "tool")
    assert ours.stdout.startswith("2 compile\n<code object <module>"), ours.stderr


def test_what_such_a_module_asks_of_python_it_gets(tmp_path: Path) -> None:
    asked = """
        import ast, runpy
        with open("script.py", "rb") as stream:
            source = stream.read()
        print(eval(runpy.compile("1 + 1", "x", "eval", 0, True)))
        print(type(runpy.compile(source, "script.py", "exec", flags=ast.PyCF_ONLY_AST)).__name__)
        exec(runpy.compile(source, "script.py", "exec", optimize=1))
    """
    write(tmp_path, {"tool.py": asked, "script.py": "assert False\nprint('optimized')\n"})
    ours = run(tmp_path, "-m", "alight", "-m", "tool")
    assert ours.stdout.split() == ["2", "Module", "optimized"], ours.stderr
