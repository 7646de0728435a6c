"""What objects of packages are given by operators, subscripts and stores is an ndarray, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

# Objects that note what each of their methods is given, and give an ndarray where it asks for one.
OUTSIDE = """
    import numpy as np

    def kinds(tree):
        if isinstance(tree, (list, tuple)):
            return [kinds(item) for item in tree]
        if isinstance(tree, slice):
            return kinds((tree.start, tree.stop, tree.step))
        return type(tree).__name__

    class Seeing:
        __array_ufunc__ = None

        def __init__(self):
            vars(self)["seen"] = []

        def __setattr__(self, name, value):
            self.seen.append((name, kinds(value)))

        def __contains__(self, item):
            self.seen.append(("in", kinds(item)))
            return True

    def method(name, answer):
        def of(self, *args):
            self.seen.append((name, kinds(args)))
            return answer(self, *args)
        return of

    for name in ("add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor "
            "radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rmatmul rlshift rrshift rand ror "
            "rxor eq ne lt le gt ge").split():
        setattr(Seeing, f"__{name}__", method(name, lambda self, other: "answer"))
    for name in ("iadd isub imul itruediv ifloordiv imod ipow imatmul ilshift irshift iand ior "
            "ixor").split():
        setattr(Seeing, f"__{name}__", method(name, lambda self, other: self))
    Seeing.__getitem__ = method("getitem", lambda self, key: self)
    Seeing.__setitem__ = method("setitem", lambda self, key, value: None)
    Seeing.__delitem__ = method("delitem", lambda self, key: None)
    Seeing.__hash__ = object.__hash__

    class Giving(Seeing):
        def __init__(self, x):
            super().__init__()
            vars(self)["x"] = x

        def __add__(self, other):
            return self.x if other is not self.x else other

        def __getitem__(self, key):
            return self.x

    def show(*args):
        return kinds(args)
"""
START = "import numpy as np\nimport outside\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package beside it, where packages are installed."""
    made = tmp_path_factory.mktemp("border")
    package = made / "site-packages" / "outside"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(dedent(OUTSIDE))
    (made / "program").mkdir()
    return made


def run(folder: Path, text: str, *command: str, **variables: str) -> tuple[str, str, int]:
    """Run a program; return what it printed, its errors and how it ended."""
    path = folder / "program" / "script.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, *command, str(path)],
        env={**os.environ, "PYTHONPATH": str(folder / "site-packages"), **variables},
        cwd=folder / "program",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr, done.returncode


DATA = "x = np.arange(1000) * 1.0\n"
BEGIN = "y = x * 2.0 + 1.0\nz = y * 2.0\nm = y > 9.0\ns = outside.Seeing()\n"


def as_script(before: str, body: str, _: str) -> str:
    """Return a program of statements of the script's own."""
    return START + dedent(before) + DATA + BEGIN + dedent(body)


def as_function(before: str, body: str, decorator: str) -> str:
    """Return a program that calls a function three times."""
    made = f"{decorator}def main(x):\n{indent(BEGIN + dedent(body), '    ')}\n"
    return START + dedent(before) + made + DATA + "main(x)\n" * 3


def same(folder: Path, door: str, body: str, before: str = "") -> None:
    """Run a program both ways: what it prints and how it ends are the same, and arrays were
    alight's."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    make = as_script if door == "run" else as_function
    command = ("-m", "alight", "run") if door == "run" else ()
    expected = run(folder, make(before, body, ""))
    told = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_REPORT": str(report), "ALIGHT_FORCE": "cpu:generated"}
    actual = run(folder, make(before, body, "import alight\n@alight.jit\n"), *command, **told)
    assert expected[2] == 0 and expected[0], expected[1]
    assert (actual[0], actual[2]) == (expected[0], expected[2]), actual[1]
    operations = json.loads(report.read_text())["totals"]["element_operations"]
    assert operations["generated"] > 0


doors = pytest.mark.parametrize("door", ["run", "jit"])
BINARY = ("+", "-", "*", "/", "//", "%", "**", "@", "<<", ">>", "&", "|", "^")
COMPARING = ("==", "!=", "<", "<=", ">", ">=")


@doors
def test_operators_give_packages_objects_ndarrays_from_both_sides(folder: Path, door: str) -> None:
    lines = [f"s {op} y; y {op} s" for op in (*BINARY, *COMPARING)]
    same(
        folder, door, "\n".join([*lines, "divmod(s, y); divmod(y, s); pow(s, y)", "print(s.seen)"])
    )


@doors
def test_operators_of_what_is_called(folder: Path, door: str) -> None:
    same(
        folder,
        door,
        """
        def get(v):
            return v
        print(get(s) + get(y), get(y) * get(s), s + y * 2.0, -y - s, (s + y) == "answer")
        print(s == (y + z), s == get(y), [s + v for v in (x, y)], (s + y if s > y else 0), y in s)
        print(s.seen, s + [y, 3] == "answer", s + (y, [z]), s.seen[-2:])
        """,
    )


@doors
def test_operators_in_place_give_packages_objects_ndarrays(folder: Path, door: str) -> None:
    lines = [f"s {op}= y; t['k'] {op}= y; o.a {op}= z * 1.0" for op in BINARY]
    same(
        folder,
        door,
        "\n".join(
            [
                "from types import SimpleNamespace",
                "t = {'k': s}; o = SimpleNamespace(a=s)",
                *lines,
                "s['k'] += y; s[m] -= y * 2.0; s.b = s; print(s.seen, t['k'] is s, o.a is s)",
            ]
        ),
    )


@doors
def test_in_place_statements_take_what_they_change_first(folder: Path, door: str) -> None:
    same(
        folder,
        door,
        """
        d = {"k": 1}
        asked = []
        def key():
            asked.append("key")
            return "k"
        def more():
            asked.append(d["k"])
            d["k"] += 10
            return d["k"]
        d[key()] += more()
        print(d, asked, outside.show(y))
        i = 5
        i += more()
        print(i)
        class Place:
            __slots__ = "a"
        p = Place()
        p.a = i
        p.a += more()
        print(p.a)
        def gone():
            p.a += undefined
        try:
            gone()
        except NameError as error:
            print(error, p.a)
        """,
    )


@doors
def test_subscripts_give_packages_objects_ndarrays(folder: Path, door: str) -> None:
    same(
        folder,
        door,
        """
        s[y]; s[m]; s[y > 3.0]; s[m, "c"]; s[y[0] : 3]; s[:, y]; s["c"][m]
        del s[m], s[y, 0], s["k"]
        print(s.seen)
        k = outside.Giving(y)
        print(k + y is y, (k + z) is y, type(k[m]) is type(y))
        """,
    )


@doors
def test_stores_of_every_form_give_ndarrays(folder: Path, door: str) -> None:
    same(
        folder,
        door,
        """
        s["b"] = y
        s["a"], s[m] = y, z
        a = s["d"] = y
        s["e"] = b = s.f = y * 3.0
        (s["g"], (s.h, *s["i"])), c = (y, (z, m, 2)), 3
        s[m, "c"] = y[1:]
        s["l"]: "text" = y
        s["m"] = [y, {"k": z}]
        for s["n"] in (y, z):
            pass
        for s.o, c in [(y, 1)]:
            pass
        d = {}
        d["a"], d["b"] = y, z
        print(s.seen, a is y, type(b) is type(y), c, d["a"] is y, list(d))
        """,
    )


@doors
def test_errors_of_operators_are_pythons(folder: Path, door: str) -> None:
    same(
        folder,
        door,
        """
        class Own:
            pass
        def raising(f):
            try:
                f()
            except Exception as error:
                print(type(error).__name__, error)
        o, i = Own(), 5
        raising(lambda: o + i)
        raising(lambda: o @ i)
        raising(lambda: o < i)
        raising(lambda: o ** i)
        raising(lambda: o[i])
        raising(lambda: o in i)
        def store(): o[i] = y
        def delete(): del o[i]
        def change():
            w = o
            w += i
        def power():
            w = o
            w **= i
        def unpack(): s["a"], s["b"] = y, z, m
        def unpack_less(): s["a"], s["b"] = [y]
        raising(store); raising(delete); raising(change); raising(power)
        raising(unpack); raising(unpack_less)
        print(s.seen, outside.show(y))
        """,
    )


@doors
def test_functions_that_are_given_to_others(folder: Path, door: str) -> None:
    same(
        folder,
        door,
        """
        print(list(map(look, [y, z])), len(list(filter(look, [y, z]))))
        print(sorted([y, z], key=total)[0] is y, min([y, z], key=total) is y)
        print(max(y, z, key=total) is z, reduce(both, [y, z, m]))
        with ThreadPoolExecutor(1) as pool:
            print(pool.submit(look, y).result(), list(pool.map(look, [y, z])))
        items = [z, y]
        items.sort(key=total)
        print(items[0] is y, list(starmap(both, [(y, z)])), list(accumulate([y, z], both))[1:])
        """,
        """
        from concurrent.futures import ThreadPoolExecutor
        from functools import reduce
        from itertools import accumulate, starmap
        def look(v):
            return outside.show(v, np.ones(3))
        def both(a, b):
            return outside.show(a, b)
        def total(v):
            return float(len(str(outside.show(v))) + v.sum())
        """,
    )
