"""`alight run`: what a plain `python` run prints, returns and raises, and what a program may do."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import alight.errors
from alight._src.api.stand_ins import NAME
from alight._src.launch.numpy_imports import rewrite

Run = subprocess.CompletedProcess[str]
PACKAGE = Path(alight.errors.__file__).parent


def run(folder: Path, *command: str, **variables: str) -> Run:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("ALIGHT_")},
        "PYTHONPATH": str(PACKAGE.parent),
        "ALIGHT_CACHE_DIR": str(folder / "cache"),
        **variables,
    }
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def same(
    folder: Path, *arguments: str, script: str | Sequence[str] = "script.py", **variables: str
) -> Run:
    """Return alight's run, which was found to be like the plain one."""
    program = [script] if isinstance(script, str) else script
    plain = run(folder, *program, *arguments, **variables)
    ours = run(folder, "-m", "alight", "run", *program, *arguments, **variables)
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode
    return ours


# -------------------------------------------------------------------------- as python script.py

PROGRAM = '''
    """A script."""
    import dataclasses, inspect, os, pickle, sys
    import numpy as np, json
    import numpy
    import numpy.linalg
    import numpy.linalg as la, numpy.random as nr
    from numpy import *
    from numpy import random, zeros as z, linalg
    from numpy.random import default_rng, rand
    from numpy.linalg import norm
    try:
        import missing
    except ImportError as error:
        print(error)
    def inner():
        import numpy as other
        return other

    @dataclasses.dataclass
    class Point:
        x: np.ndarray
        y: "np.ndarray | None" = None

    class Named(np.ndarray):
        def __new__(cls, data, name):
            made = np.asarray(data).view(cls)
            made.name = name
            return made
        def __array_finalize__(self, other):
            self.name = getattr(other, "name", None)

    if __name__ == "__main__":
        print(sys.argv, __file__, __name__, sys.path[0] == os.getcwd(), __doc__, __spec__)
        print(sorted(k for k in globals() if k.startswith("__")))
        print(sys.modules["__main__"].Point is Point, sys.modules["numpy"].__name__)
        print(np, np is numpy is inner(), linalg is np.linalg is la, norm is la.norm, nr is random)
        print(np.sin is sin, np.add is sys.modules["numpy"].add, len(dir(np)), np.__version__ > "2")
        a = np.zeros(3)
        print(type(a) is np.ndarray, isinstance(a, np.ndarray), a, z(2), np.arange(3, dtype="f4"))
        print(pickle.loads(pickle.dumps(Point(a, np.ones(1)))))
        n = Named([1.0, 2.0], "n")
        print(n, n.name, (n + 1).name, isinstance(n, np.ndarray), type(n.view(np.ndarray)))
        print(inspect.getsource(inner))
        print(inspect.signature(np.linspace))
        print(pickle.loads(pickle.dumps(np.zeros))(2))
        print(np.load.__doc__ == numpy.load.__doc__, np.zeros.__name__)
        rng = default_rng(1)
        print(rng.normal(size=3), isinstance(rng, np.random.Generator), type(rng).__name__)
        print(pickle.loads(pickle.dumps(rng)).random(), default_rng(rng) is rng)
        print(rng.spawn(1)[0].random())
        print(np.random.RandomState(3).rand(2), issubclass(np.random.RandomState, object))
        nr.seed(3); print(rand(2), np.random.choice(5, 3), np.random.randint(9))
        print(np.mgrid[0:2, 0:2], np.ogrid[0:2], np.meshgrid([1, 2], [3, 4]))
        try:
            np.nothing
        except AttributeError as error:
            print(error)
        try:
            from numpy import nothing
        except ImportError as error:
            print(error)
        np.float = float
        print(sys.modules["numpy"].float)
        print(eval("np.ones(2)"), [np.ones(1) for _ in range(2)])
        exec("import numpy as np; print(np.full(2, 7))")
'''


def test_a_program_of_everything_prints_the_same(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": PROGRAM})
    done = same(tmp_path, "--report", "x", "--", "-v")
    assert done.returncode == 0
    assert "['script.py', '--report', 'x', '--', '-v']" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit()",
        "import sys; sys.exit('a message')",
        "raise SystemExit([1])",
        "import os; os._exit(7)",
        "import numpy as np\ndef f():\n    return np.zeros(-1)\nf()",
        "import numpy as np\nnp.zeros(3) + np.zeros(4)",
        "import numpy as np\nnp.linspace(0, 1, -1)",
        "import numpy as np\nnp.nope",
        "import numpy as np\ndef f(:\n",
        "import numpy as np\n  x = 1\n",
        "import sys\nsys.excepthook = lambda *a: print('mine', a[0].__name__, a[2].tb_lineno)\n1/0",
        "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
        "import numpy as np\ntry:\n    np.zeros(-1)\nexcept ValueError:\n    np.ones('a')",
        "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
        "import atexit, threading, time\natexit.register(print, 'end')\n"
        "threading.Thread(target=lambda: (time.sleep(.2), print('thread'))).start()\n1/0",
        "import warnings\nwarnings.warn('careful')\nx = '\\d'",
        "# -*- coding: latin-1 -*-\nprint('\\xe9')",
        "from __future__ import annotations\nimport numpy as np\n"
        "def f(x: nothing): ...\nprint(f.__annotations__)",
    ],
)
def test_endings_are_those_of_python(tmp_path: Path, text: str) -> None:
    (tmp_path / "script.py").write_bytes(text.encode("latin-1"))
    same(tmp_path)


def test_keyboard_interrupt_ends_by_the_signal(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": "import numpy\ndef f():\n    raise KeyboardInterrupt\nf()\n"})
    assert same(tmp_path).returncode == -signal.SIGINT


def test_an_interrupted_program_leaves_its_report_and_ends_by_the_signal(tmp_path: Path) -> None:
    text = "import numpy as np\nprint(np.sqrt(np.ones(3_000_000))[0])\nraise KeyboardInterrupt\n"
    write(tmp_path, {"script.py": text})
    command = [sys.executable, "-m", "alight", "run", "--report", "report.json", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert (tmp_path / "report.json").exists()


def test_file_and_folder_names_are_those_of_python(tmp_path: Path) -> None:
    text = "import sys; print(__file__, sys.argv, sys.path[0], __cached__, __package__)\n1/0\n"
    write(tmp_path, {"deep/script.py": text})
    os.symlink(tmp_path / "deep" / "script.py", tmp_path / "link.py")
    for script in (
        "deep/script.py",
        "./deep/script.py",
        str(tmp_path / "deep/script.py"),
        "link.py",
    ):
        same(tmp_path, script=script)
    same(tmp_path, script="deep/script.py", PYTHONSAFEPATH="1")


def test_a_folder_runs_by_its_main(tmp_path: Path) -> None:
    text = """
        import sys
        import numpy as np, beside
        print(__name__, __file__, repr(__package__), sys.argv, sys.path[0], type(np).__name__)
        print(np.arange(4.0).sum(), beside.x)
        1 / 0
    """
    plain = textwrap.dedent(text).replace(", type(np).__name__", "")
    write(tmp_path, {"app/__main__.py": plain, "app/beside.py": "import numpy as np\nx = 1\n"})
    for script in ("app", "./app", "app/"):
        same(tmp_path, "--fast", script=script)
    write(tmp_path, {"app/__main__.py": text, "empty/other.py": ""})
    assert "RunNamespace" in run(tmp_path, "-m", "alight", "run", "app").stdout
    assert run(tmp_path, "-m", "alight", "run", "empty").returncode == 1


def archive(folder: Path, name: str, files: Mapping[str, str]) -> None:
    with zipfile.ZipFile(folder / name, "w") as made:
        for path, text in files.items():
            made.writestr(path, textwrap.dedent(text))


@pytest.mark.parametrize("end", ["", "1/0", "sys.exit(3)", "import broken"])
def test_a_zip_file_runs_by_its_main(tmp_path: Path, end: str) -> None:
    text = f"""
        import sys
        import numpy as np, beside
        from pack import near
        print(__name__, __file__, repr(__package__), __spec__.name, sys.argv, sys.path[0])
        print(np.arange(4.0).sum(), beside.x, near.scaled(np.ones(3)))
        {end}
    """
    files = {"beside.py": "import numpy as np\nx = 1\n", "broken.py": "import numpy\nx = = 1\n"}
    files |= {"pack/__init__.py": "", "pack/near.py": NEAR}
    # How a file ends and what it is called are two things: each name with one of the endings.
    for name in ("app.zip", *{"": ["app.pyz"], "1/0": ["bare"]}.get(end, [])):
        archive(tmp_path, name, {"__main__.py": text, **files})
        same(tmp_path, "--fast", script=name)
    archive(tmp_path, "lib.zip", {"pack/__main__.py": text, **files})
    paths = os.pathsep.join((str(PACKAGE.parent), str(tmp_path / "lib.zip")))
    same(tmp_path, "--fast", script=["-m", "pack"], PYTHONPATH=paths)


def test_a_zip_file_without_a_main_does_not_run(tmp_path: Path) -> None:
    archive(tmp_path, "empty.zip", {"beside.py": "import numpy as np\nx = 1\n"})
    assert run(tmp_path, "-m", "alight", "run", "empty.zip").returncode == 1


def test_the_files_in_a_zip_file_are_the_programs(tmp_path: Path) -> None:
    text = "import numpy as np, near\nprint(type(near.scaled(np.ones(500_000))).__module__)\n"
    archive(tmp_path, "app.zip", {"__main__.py": text, "near.py": NEAR})
    settings = {"ALIGHT_FLOOR_ALL": "0"}
    ours = run(tmp_path, "-m", "alight", "run", "app.zip", **settings)
    assert ours.stdout == "alight\n", ours.stderr


@pytest.mark.parametrize("end", ["", "1/0", "f(", "raise SystemExit(3)"])
def test_a_script_is_read_from_standard_input(tmp_path: Path, end: str) -> None:
    text = f"import sys, numpy as np\nprint(__name__, sys.argv, sys.path[0], np.ones(3))\n{end}\n"
    plain, ours = (
        subprocess.run(
            [sys.executable, *command, "-", "--fast"],
            **{"input": text, "capture_output": True, "text": True, "cwd": tmp_path},
        )
        for command in ((), ("-m", "alight", "run"))
    )
    found = [(done.stdout, done.stderr, done.returncode) for done in (plain, ours)]
    assert found[0] == found[1]


def test_a_missing_script_is_error_2(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "alight", "run", "missing.py")
    assert done.returncode == 2
    path = tmp_path / "missing.py"
    assert f"can't open file '{path}': [Errno 2] No such file or directory" in done.stderr


# --------------------------------------------------------------------------------- its modules

MODULES = {
    "script.py": """
        import os, sys, json
        import sibling, pack, pack.inner
        from pack import helper
        from pack.deep.other import where
        print(sibling.np is pack.np is pack.inner.np, sibling.__file__, sibling.__cached__)
        print(helper(), where, pack.__path__ == [os.path.join(os.getcwd(), "pack")])
        print(sibling.__spec__.origin, type(sibling.__spec__.loader).__mro__[-3].__name__)
        import importlib, inspect, pkgutil
        print(inspect.getsource(sibling.size))
        importlib.reload(sibling)
        print([m.name for m in pkgutil.iter_modules(pack.__path__)])
        print(pkgutil.get_data("pack", "data.txt"))
        import space.part
        print(space.part.np.zeros(2))
        try:
            import broken
        except SyntaxError as error:
            print(error.filename, error.lineno)
        sibling.fail()
    """,
    "sibling.py": """
        import numpy as np
        def size(n):
            return np.zeros(n).size
        def fail():
            import failing
    """,
    "pack/__init__.py": "import numpy as np\nfrom .inner import helper\n",
    "pack/inner.py": "import numpy as np\nfrom . import deep\ndef helper(): return np.ones(2)\n",
    "pack/deep/__init__.py": "",
    "pack/deep/other.py": "from ..inner import np\nwhere = np.where([1, 0])\n",
    "pack/data.txt": "data",
    "space/part.py": "import numpy as np\n",
    "broken.py": "import numpy as np\nx = (\n",
    "failing.py": "import numpy as np\ndef f():\n    np.zeros(-2)\nf()\n",
}


def test_modules_packages_and_their_errors_are_those_of_python(tmp_path: Path) -> None:
    write(tmp_path, MODULES)
    done = same(tmp_path)
    assert done.returncode == 1 and "failing.py" in done.stderr


def test_an_uncaught_syntax_error_in_a_module_is_that_of_python(tmp_path: Path) -> None:
    write(tmp_path, {**MODULES, "script.py": "import numpy as np\nimport broken\n"})
    same(tmp_path)


def test_only_the_programs_own_files_see_alight(tmp_path: Path) -> None:
    asks = "import numpy as np\nours = type(np).__name__ == 'RunNamespace'\n"
    elsewhere, packages = tmp_path / "elsewhere", tmp_path / "program/venv/lib/site-packages"
    write(
        tmp_path,
        {
            "program/own.py": asks,
            "program/venv/lib/site-packages/packed.py": asks,
            "elsewhere/foreign.py": asks,
            "program/script.py": f"""
                import sys
                sys.path += {[str(elsewhere), str(packages)]}
                import numpy as np, own, foreign, packed, builtins
                print(type(np).__name__, own.ours, foreign.ours, packed.ours)
                print(type(sys.modules["numpy"]).__name__, builtins.__import__)
                import importlib
                print(type(importlib.import_module("numpy")).__name__)
                import scipy.linalg
                print(type(scipy.linalg._basic.np).__name__)
            """,
        },
    )
    done = run(tmp_path, "-m", "alight", "run", "program/script.py")
    assert done.stdout.splitlines() == [
        "RunNamespace True False False",
        "module <built-in function __import__>",
        "module",
        "module",
    ], done.stderr


def test_no_bytecode_of_rewritten_files_is_left_for_plain_runs(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "script.py": "import own, other\nprint(type(own.np).__name__)\n",
            "own.py": "import numpy as np\n",
            "other.py": "x = 1\n",
        },
    )
    ours = run(tmp_path, "-m", "alight", "run", "script.py", PYTHONDONTWRITEBYTECODE="")
    assert ours.stdout == "RunNamespace\n"
    kept = [path.name.split(".")[0] for path in tmp_path.glob("__pycache__/*")]
    assert kept == ["other"]
    assert run(tmp_path, "script.py").stdout == "module\n"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_programs_may_start_processes(tmp_path: Path, method: str) -> None:
    if method not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip(f"no {method} here")
    write(
        tmp_path,
        {
            "script.py": f"""
                import multiprocessing
                import numpy as np
                class Task:
                    def __init__(self, n): self.array = np.arange(n)
                def work(task):
                    return (np.zeros(3) + task.array.sum()).tolist(), type(task).__module__[:2]
                if __name__ == "__main__":
                    context = multiprocessing.get_context({method!r})
                    with context.Pool(2) as pool:
                        print(pool.map(work, [Task(3), Task(100_000)]))
                        print(pool.map(np.zeros, [1, 2]))
            """
        },
    )
    same(tmp_path)


# ------------------------------------------------------------------------------ the namespace

LARGE = """
    import collections, functools, pickle, copy, sys, unittest
    import numpy as np
    real = sys.modules["numpy"]
    def ours(*arrays):
        return [type(a).__name__ for a in arrays]
    def show(**arrays):
        for name, a in arrays.items():
            plain = real.asarray(a)
            print(name, ours(a), a.dtype, a.shape, plain.ravel()[:3], plain.flags.f_contiguous)
    n = (300, 400)
    np.random.seed(0)
    np.save("a.npy", np.ones(n)); np.savez("z.npz", a=np.ones(n), b=np.ones(2))
    np.savetxt("t.txt", np.ones((30, 4)))
    archive = np.load("z.npz")
    show(zeros=np.zeros(n), ones=np.ones(n, order="F"), full=np.full(n, 2), empty=np.empty(n) * 0,
         like=np.zeros_like(np.zeros(n)), plain=np.zeros_like(real.zeros(n)), arange=np.arange(1e5),
         linspace=np.linspace(0, 1, 10**5), log=np.logspace(0, 1, 10**5), eye=np.eye(300),
         identity=np.identity(300), tri=np.tri(300), indices=np.indices(n),
         mgrid=np.mgrid[:30, :40],
         function=np.fromfunction(lambda i, j: i + j, n), array=np.array([[1.0] * 400] * 300),
         copy=np.copy(real.ones(n)), load=np.load("a.npy"), npz=archive["a"], small=archive["b"],
         loadtxt=np.loadtxt("t.txt"), iter=np.fromiter(range(10**5), float),
         buffer=np.frombuffer(bytes(8 * 10**5)), file=np.fromfile("a.npy"),
         asarray=np.asarray([1.0] * 10**5), rand=np.random.rand(*n), randn=np.random.randn(*n) * 0,
         normal=np.random.default_rng(1).normal(size=n), state=np.random.RandomState(1).rand(*n),
         integers=np.random.default_rng(1).integers(9, size=n),
         mesh=np.meshgrid(*[np.arange(300.)] * 2)[0],
         astype=np.zeros(n, np.float32), object=np.full(9, None))
    print(np.frombuffer(bytes(8 * 10**5)).flags.writeable, ours(np.load("a.npy", mmap_mode="r")))
    x, plain = np.ones(n), real.ones(n)
    print(np.asarray(x) is x, np.asanyarray(x) is x, np.ascontiguousarray(x) is x, np.array(x) is x)
    print(np.asarray(plain) is plain, np.array(plain, copy=None) is plain)
    print(np.require(plain) is plain)
    print(ours(np.array(x), np.asarray(x, dtype="f4"), np.asfortranarray(x), np.array(x, ndmin=3)))
    class Keeps:
        def __init__(self): self.kept = real.ones(n)
        def __array__(self, dtype=None, copy=None): return self.kept
    keeps = Keeps()
    taken = np.asarray(keeps); taken[0, 0] = 5; print(keeps.kept[0, 0])
    print(isinstance(x, np.ndarray), x.__class__ is np.ndarray, issubclass(type(x), np.ndarray))
    match x:
        case np.ndarray(): print("matched")
    @functools.singledispatch
    def kind(a): return "object"
    kind.register(np.ndarray, lambda a: "array")
    print(kind(x), kind(plain))
    unittest.TestCase().assertIsInstance(x, np.ndarray)
    print(type(pickle.loads(pickle.dumps(x))), type(copy.deepcopy(x)))
    print(type(x.sum()), type(x[0, 0]), type(np.mean(x)), x.sum())
    r = np.random.default_rng(3)
    z = np.arange(100_000); same = z; r.shuffle(z); print(z[:3], same is z)
    np.random.seed(1); np.random.shuffle(z); print(z[:3])
    out = np.empty(100_000); print(r.random(out=out) is out, out[:3], r.permutation(z)[:3])
    print(collections.defaultdict(functools.partial(np.zeros, 2))["a"])
    few = np.cumsum(x, axis=1)[:2, :3].T  # a view of a large array, copied below the floor
    print(few.reshape(6), few.reshape(6, order="F"), few.ravel(), few.flatten(), few.flatten("K"))
"""


def arrays_named(text: str) -> str:
    return text.replace("'Array'", "'ndarray'")


def test_large_arrays_are_ours_and_nothing_else_differs(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": LARGE})
    plain = run(tmp_path, "script.py")
    assert plain.returncode == 0, plain.stderr
    ours = run(tmp_path, "-m", "alight", "run", "script.py", ALIGHT_FLOOR_ALL="1000")
    assert ours.stderr == plain.stderr
    expected = plain.stdout.replace("True True True\nmatched", "True True False\nmatched")
    assert arrays_named(ours.stdout) == expected
    lines = dict(line.split(" ", 1) for line in ours.stdout.splitlines()[:33])
    small = {name for name, rest in lines.items() if rest.startswith("['ndarray']")}
    assert small == {"small", "loadtxt", "object"}


def test_installed_packages_are_given_ndarrays_by_calls_and_operators(tmp_path: Path) -> None:
    asks = """
        import numpy as np
        def ask(x): return isinstance(x, np.ndarray)
        class Left:
            def __add__(self, other): return ask(other)
    """
    write(
        tmp_path,
        {
            "site-packages/packed.py": asks,
            "script.py": """
                import numpy as np, packed
                x = np.zeros(10_000)
                print(packed.ask(x), packed.ask(np.zeros(3)), isinstance(x, np.ndarray))
                print(packed.Left() + x)
            """,
        },
    )
    variables = {
        "ALIGHT_FLOOR_ALL": "1000",
        "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{tmp_path / 'site-packages'}",
    }
    done = run(tmp_path, "-m", "alight", "run", "script.py", **variables)
    assert done.stdout == "True True True\nTrue\n", done.stderr


# ----------------------------------------------------------------------------------- rewriting


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import numpy", "import N as numpy"),
        ("import numpy as np, os", "import N as np, os"),
        ("import numpy.linalg", "import numpy.linalg, N as numpy"),
        ("import numpy.random", "import numpy.random, N as numpy"),
        ("import numpy.random as r", "import N.random as r"),
        ("import numpy.linalg as la", "import numpy.linalg as la"),
        ("from numpy import a, b as c", "from N import a, b as c"),
        ("from numpy import *", "from N import *"),
        ("from numpy.random import rand", "from N.random import rand"),
        ("from numpy.linalg import norm", "from numpy.linalg import norm"),
        ("from .numpy import a", "from .numpy import a"),
        ("from . import numpy", "from . import numpy"),
        ("import numpyx, xnumpy", "import numpyx, xnumpy"),
        ("def f():\n    import numpy", "def f():\n    import N as numpy"),
        ("try:\n    import numpy\nfinally:\n    x", "try:\n    import N as numpy\nfinally:\n    x"),
        (
            "match x:\n    case 1:\n        import numpy",
            "match x:\n    case 1:\n        import N as numpy",
        ),
        (
            "try:\n    x\nexcept E:\n    import numpy",
            "try:\n    x\nexcept E:\n    import N as numpy",
        ),
    ],
)
def test_imports_are_rewritten_in_place(before: str, after: str) -> None:
    tree = rewrite(ast.parse(before))
    assert ast.unparse(tree).replace(NAME, "N") == after
    compile(tree, "x", "exec")


def test_names_of_numpy_that_are_rebound(tmp_path: Path) -> None:
    script = """
    import sys
    from unittest import mock
    import numpy as np
    from numpy import sqrt, zeros
    real = sys.modules["numpy"]
    a = np.linspace(0, 1, 50_001)
    def show():
        made = np.zeros(3), np.empty(0), np.random.default_rng(1).random(2), zeros(2)
        print(float(np.sqrt(a).sum()), float(sqrt(a).sum()), *made)
    before = real.zeros, real.sqrt
    show()
    real.sqrt = np.exp  # as another package would
    real.zeros = np.ones
    show()
    np.sqrt, np.zeros = sqrt, zeros
    show()
    print(before == (real.zeros, real.sqrt))
    with mock.patch.object(np, "sqrt", np.cos), mock.patch.object(np, "zeros", np.ones):
        show()
    with mock.patch("numpy.random.default_rng", lambda seed: np.random.RandomState(seed)):
        print(hasattr(np.random.default_rng(1), "rand"))
    with mock.patch.dict(vars(np), {"sqrt": np.sin}):
        show()
    show()
    print(before == (real.zeros, real.sqrt))
    del np.sqrt
    try:
        show()
    except AttributeError as error:
        print(error)
    """
    write(tmp_path, {"script.py": script})
    assert "module 'numpy' has no attribute 'sqrt'" in same(tmp_path, script="script.py").stdout


def test_every_name_of_numpy_is_in_the_namespace_and_most_are_numpys_own() -> None:
    from alight._src.api.stand_ins import numpy_namespace

    namespace = numpy_namespace()
    assert dir(namespace) == dir(np)
    replaced = {name for name in dir(np) if getattr(namespace, name) is not getattr(np, name)} - {
        "random",
        "__getattr__",
    }
    assert {"zeros", "array", "load", "mgrid"} <= replaced
    assert len(replaced) < len(dir(np)) / 8
    assert not any(isinstance(getattr(np, name), np.ufunc) for name in replaced)


def test_wrapped_functions_keep_numpys_face() -> None:
    import pickle

    from alight._src.api.stand_ins import numpy_namespace

    namespace = numpy_namespace()
    for name in ("zeros", "array", "load", "meshgrid"):
        wrapped = getattr(namespace, name)
        assert (wrapped.__name__, wrapped.__doc__) == (name, getattr(np, name).__doc__)
        assert pickle.loads(pickle.dumps(wrapped)) is wrapped
    rand = namespace.random.rand
    assert pickle.loads(pickle.dumps(rand)) is rand


def test_warning_filters_act_on_the_line_that_warns(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "script.py": """
            import warnings
            import numpy as np
            a = np.linspace(-1, 1, 50_001)
            def root():
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    try:
                        return np.sqrt(a)
                    except RuntimeWarning as error:
                        return repr(error)
            print(root())
            with warnings.catch_warnings(record=True) as caught:
                b = a / 0
                print([(w.lineno, str(w.message)) for w in caught])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                c = np.log(a)
            print(np.isnan(c + b).sum())
            d = 1 / a
            warnings.simplefilter("error")
            print(np.isinf(d).sum())
            np.log(d)
            """
        },
    )
    ours = same(tmp_path, ALIGHT_FLOOR_ALL="0", ALIGHT_FORCE="cpu:generated")
    assert "RuntimeWarning: invalid value encountered in log" in ours.stderr


MODULE = """
    import sys
    import numpy as np
    from . import near
    from .near import scaled
    a = np.linspace(0, 1, 50_001)
    print(__name__, __package__, __spec__.name, __spec__.parent, __file__, sys.argv)
    print(sys.path[0], sys.modules["__main__"].scaled is scaled, vars(near)["argv"])
    print(scaled(a).sum(), type(a).__module__ if "shown" in sys.argv else "")
    if "fail" in sys.argv:
        a + a[1:]
    if "leave" in sys.argv:
        sys.exit(7)
"""
NEAR = """
    import sys, numpy as np
    argv = list(sys.argv)
    def scaled(a):
        return np.sqrt(a) * 2
"""


def test_modules_run_as_python_runs_them(tmp_path: Path) -> None:
    inside = {"__init__": "", "tool": MODULE, "__main__": MODULE, "near": NEAR}
    write(tmp_path, {f"pack/{name}.py": text for name, text in inside.items()})
    write(tmp_path, {"bad.py": "import numpy as np\nx = = 1\n", "single.py": "print(__package__)"})
    settings = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_FORCE": "cpu:generated"}
    for arguments in (
        ["pack", "-m", "-c", "x"], ["pack.tool", "--report", "-x"], ["pack.tool", "fail"],
        ["pack.tool", "leave"], ["single"], ["bad"], ["missing"], ["pack.missing"], ["single.py"],
        ["json.tool", "--help"], ["pack.near.deeper"],
    ):  # fmt: skip
        same(tmp_path, script=["-m", *arguments], **settings)
    ours = run(tmp_path, "-m", "alight", "run", "-m", "pack.tool", "shown", ALIGHT_FLOOR_ALL="0")
    assert ours.stdout.splitlines()[-1].endswith("alight")


def test_a_package_elsewhere_is_the_programs_unless_it_is_installed(tmp_path: Path) -> None:
    for folder in ("src", "site-packages"):
        write(tmp_path, {f"{folder}/pack/{n}.py": t for n, t in (("near", NEAR), ("tool", MODULE))})
        paths = os.pathsep.join((str(PACKAGE.parent), str(tmp_path / folder)))
        settings = {"PYTHONPATH": paths, "ALIGHT_FLOOR_ALL": "0"}
        ours = run(tmp_path, "-m", "alight", "run", "-m", "pack.tool", "shown", **settings)
        shown = ours.stdout.splitlines()[-1]
        assert shown.endswith("alight" if folder == "src" else "numpy"), ours.stderr


def test_pandas_sees_ndarrays_where_it_asks_what_they_mean(tmp_path: Path) -> None:
    asks = """
        import numpy as np
        class ndarray:
            def __eq__(self, x):
                return isinstance(x, np.ndarray)
    """
    names = ("pandas/core/common", "pandas/core/frame", "other")
    write(tmp_path, {f"site-packages/{name}.py": asks for name in names})
    for package in ("pandas", "pandas/core"):  # before one that is installed
        write(tmp_path, {f"site-packages/{package}/__init__.py": ""})
    text = """
        import alight as np, pandas.core.common, pandas.core.frame, other
        mask = np.linspace(0.0, 1.0, 50_001) > 0.5
        core = pandas.core
        for kind in (core.common.ndarray, core.frame.ndarray, other.ndarray):
            print(kind() == mask)
    """
    write(tmp_path, {"script.py": text})
    paths = os.pathsep.join((str(PACKAGE.parent), str(tmp_path / "site-packages")))
    settings = {"ALIGHT_FLOOR_ALL": "0", "PYTHONPATH": paths}
    ours = run(tmp_path, "script.py", **settings)
    assert ours.stdout == "True\nFalse\nFalse\n", ours.stderr
    # By `alight run` operators give packages ndarrays.
    write(tmp_path, {"script.py": text.replace("import alight as np", "import numpy as np")})
    ours = run(tmp_path, "-m", "alight", "run", "script.py", **settings)
    assert ours.stdout == "True\nTrue\nTrue\n", ours.stderr


def test_a_text_runs_as_python_runs_it(tmp_path: Path) -> None:
    write(tmp_path, {"near.py": NEAR})
    text = """
import sys, numpy as np, near
print(__name__, __spec__, sys.argv, sys.path[0], "__file__" in globals(), __loader__)
print(near.scaled(np.linspace(0, 1, 50_001)).sum())
if len(sys.argv) > 2: np.ones(3) + np.ones(4)
"""
    for given in ((text,), (text, "-m", "x"), ("x = = 1",)):
        same(tmp_path, script=["-c", *given], ALIGHT_FLOOR_ALL="0", ALIGHT_FORCE="cpu:generated")
    both = run(tmp_path, "-m", "alight", "run", "-c", "-m", "pass")
    assert both.returncode == 2 and "Fix: give one of them" in both.stderr


OBJECTS = """
import numpy as np
class S:
    def __init__(s, n): s.w = np.ones(n)
    def __array__(s, dtype=None, copy=None):
        def inner():
            return s.w
        if dtype is not None:
            return s.w.astype(dtype)
        return inner()
class B:
    def __array__(s, dtype=None, copy=None):
        return [1]
for n in (10, 10**6):
    o = S(n)
    print(np.asarray(o).sum(), np.add(o, 1).sum(), np.sum(o), np.stack([o, o]).shape)
    print(np.asarray(o, np.float32).dtype, (np.ones(n) + o).sum())
    a = np.asarray(o); a[0] = 7; print(o.w[0], type(a).__name__)
try: np.asarray(B())
except ValueError as e: print(e)
"""


@pytest.mark.parametrize("settings", [{}, {"ALIGHT_FLOOR_ALL": "0"}])
def test_numpy_takes_what_the_programs_own_objects_give(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    (tmp_path / "script.py").write_text(OBJECTS)
    plain = run(tmp_path, "script.py")
    ours = run(tmp_path, "-m", "alight", "run", "script.py", **settings)
    assert plain.returncode == 0 and ours.stdout == plain.stdout, ours.stderr
