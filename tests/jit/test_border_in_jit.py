"""The border inside `jit`: installed packages are handed ndarrays by the bodies of functions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

pytestmark = pytest.mark.usefixtures("looked_at_once")

OUTSIDE = """
    import weakref
    import numpy as np

    def kinds(tree):
        if isinstance(tree, (list, tuple)):
            return [kinds(item) for item in tree]
        return type(tree).__name__

    def show(*args, **kwargs):
        return kinds([*args, *kwargs.values()])

    def fill(value, output):
        if type(output) is np.ndarray:
            output[...] = value

    def call(f, *args):
        return kinds(f(*args))

    class Keeper:
        def __init__(self, x=None):
            self.x = x
        def get(self):
            return self.x
        def __setitem__(self, key, x):
            self.x = x
        @property
        def kind(self):
            return kinds(self.x)

    kept = []

    def keep_weakly(out, *more):
        kept[:] = [weakref.ref(out)]

    def fill_again(value):
        found = kept[0]()
        if found is not None:
            found[...] = value
        return found is not None

    class Loader:
        def __init__(self, rows):
            self.rows = rows
        def fetch(self, i):
            return kinds(self.rows[i])
        def first(self):
            return kinds(self.rows[0][1])
        def __iter__(self):
            for i in range(3):
                yield self.rows[i]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package in it, where packages are installed."""
    made = tmp_path_factory.mktemp("border")
    package = made / "site-packages" / "outside"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(dedent(OUTSIDE))
    return made


def run(folder: Path, before: str, body: str, decorator: str, floor: str = "0") -> tuple[str, str]:
    """Return what a function prints, called five times, and its errors."""
    text = (
        "import numpy as np\nimport outside\nimport alight\n"
        f"{dedent(before)}\n{decorator}\ndef main(x):\n{indent(dedent(body), '    ')}\n"
        "for _ in range(5):\n    print(main(np.arange(2000.0)))\n"
    )
    path = folder / "script.py"
    path.write_text(text)
    variables = {"PYTHONPATH": str(folder / "site-packages"), "ALIGHT_FLOOR_ALL": floor}
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


def same(folder: Path, before: str, body: str) -> None:
    """Run a function jitted and plain: what it returns is the same."""
    expected = run(folder, before, body, "")
    actual = run(folder, before, body, "@alight.jit")
    assert actual[0] == expected[0] and expected[0], actual[1]


def test_packages_are_given_ndarrays_and_give_arrays_back(folder: Path) -> None:
    same(
        folder,
        "from functools import partial\nfrom outside import show",
        """
        y = x * 2.0 + 1.0
        out = np.zeros(2000)
        outside.fill(y, out)
        keep = outside.Keeper(y)
        seen = [show(y, k=y), partial(show, y)(x), list(map(show, [y, x])), show([y], (x,))]
        keep["k"] = y
        return seen, keep.kind, keep.get() is y, float(out.sum()), show(y.sum()), show(y[3])
        """,
    )


def test_what_a_package_has_kept_is_the_array_that_it_was_given(folder: Path) -> None:
    same(
        folder,
        "",
        """
        y = x * 2.0 + 1.0
        keep, other = outside.Keeper(y), outside.Keeper(x)
        parts = [keep.x is y, y is keep.x, keep.x is not y, keep.x is x, other.x is x]
        return parts, [a is y for a in (keep.x, other.x)], keep.x is None
        """,
    )


def test_the_functions_that_it_calls(folder: Path) -> None:
    same(
        folder,
        """
        def own(f, v):
            w = np.ones(2000) * v
            return outside.show(w, f(w)), lambda: outside.show(w)
        """,
        """
        seen, later = own(lambda v: outside.call(lambda w: np.zeros(2000) + w, v), x)
        return seen, later(), outside.call(own, outside.kinds, x)[:1]
        """,
    )


def test_what_packages_write_is_seen_by_the_caller(folder: Path) -> None:
    same(
        folder,
        "",
        """
        outside.fill(3.0, x)
        y = x * 2.0
        outside.fill(9.0, y[:5])
        x[0] = 7.0
        outside.fill(x[0] + 1.0, x[1:2])
        return x, y[:7]
        """,
    )


def test_names_of_a_jitted_function_are_still_numpys_and_the_programs(folder: Path) -> None:
    same(
        folder,
        """
        def helper(v, make=np.zeros):
            return np.zeros(3) + v[:3]
        table = {"h": helper}
        """,
        """
        return helper(x), table["h"](x), outside.show(helper(x)), type(np.ones(5)).__name__
        """,
    )


def test_results_of_classes_that_take_more_than_their_items(folder: Path) -> None:
    same(
        folder,
        """
        from collections import namedtuple
        Base = namedtuple("Base", "a b")
        class Result(Base):
            def __new__(cls, a, b, *, df):
                made = super().__new__(cls, a, b)
                made.df = df
                return made
            def __repr__(self):
                return f"{type(self).__name__}({list(self)}, {self.df})"
        """,
        """
        return Result(x.sum(), (x * 2.0)[:3], df=x[:2] + 1.0), Result(1.0, 2, df=None)
        """,
    )


def test_scalars_of_a_body_repeat_sequences(folder: Path) -> None:
    same(
        folder,
        "",
        """
        k, f, out, items = np.argmax(x[:3] * 2.0), np.max(x), [], [3]
        items *= k
        for make in (
            lambda: ("ab" * k, k * "ab", [0] * k, k * (1, 2), b"a" * k, k * [1.5], items),
            lambda: "ab" * f, lambda: f * [1, 2], lambda: (1, 2) * f, lambda: [1] + k,
        ):
            try:
                out.append(make())
            except TypeError as error:
                out.append(str(error))
        return out
        """,
    )


def test_jitted_closures_are_pickled_by_value(folder: Path) -> None:
    pytest.importorskip("cloudpickle")
    same(
        folder,
        """
        import cloudpickle, pickle
        jit = getattr(alight, "jit")
        def make(c):
            def again(v):
                return v * c + 1.0
            return jit(again), jit(lambda v: v - c)
        @jit
        def named(v):
            return v * 3.0
        assert pickle.loads(pickle.dumps(named)) is named
        """,
        """
        made = [cloudpickle.loads(cloudpickle.dumps(f)) for f in (*make(2.0), named)]
        return [float(f(x).sum()) for f in made]
        """,
    )


CALLED_LATER = """
    class Rows:
        def __init__(self, data):
            self.data = data
            self.inside = Plain(data)
            self.parts = [data, {"data": data}, (data, Plain([data]))]
        def __getitem__(self, i):
            return [self.data * i, self.inside.data * i, self.parts[0] + i,
                self.parts[1]["data"] + i, self.parts[2][0] + i, self.parts[2][1].data[0] + i]
    class Slotted:
        __slots__ = ("data", "parts")
        def __init__(self, data):
            self.data, self.parts = data, [data]
        def __getitem__(self, i):
            return self.data * i, self.parts[0] + i
    class Plain:
        def __init__(self, data):
            self.data = data
"""


@pytest.mark.parametrize("kind", ["Rows", "Slotted"])
def test_methods_that_packages_call_after_the_call_that_was_given_the_object(
    folder: Path, kind: str
) -> None:
    same(
        folder,
        CALLED_LATER,
        f"""
        y = x * 2.0 + 1.0
        rows = {kind}(y)
        loader = outside.Loader(rows)
        seen = [outside.kinds(found) for found in loader]
        seen.append(loader.fetch(1))
        own = Slotted(y) if {kind!r} == "Rows" else Plain(y)
        seen.append([outside.show(own), own.data is y])
        held = [{kind}(y * 2.0)]
        seen.append([outside.Loader(part).fetch(2) for part in held])
        seen.append(outside.Loader(held).first())
        return seen, float(rows.data.sum()), float(y.sum())
        """,
    )


def test_what_has_no_methods_gets_its_arrays_back(folder: Path) -> None:
    same(
        folder,
        CALLED_LATER,
        """
        y = x * 2.0 + 1.0
        plain, parts = Plain(y), [y]
        seen = outside.show(plain, parts), outside.show(Rows(y))
        return seen, plain.data is y, parts[0] is y
        """,
    )


def test_methods_given_to_packages_as_functions(folder: Path) -> None:
    same(
        folder,
        CALLED_LATER,
        """
        from functools import partial
        y = x * 2.0 + 1.0
        rows = Rows(y)
        keeper = outside.Keeper(rows.__getitem__)
        return (outside.call(rows.__getitem__, 1), outside.call(Slotted(y).__getitem__, 1),
            outside.kinds(keeper.get()(2)), outside.call(partial(rows.__getitem__, 2)),
            [outside.kinds(f(3)) for f in [rows.__getitem__]], float(rows.data.sum()),
            outside.call(y.take, [1, 2]), outside.call(partial(y.take, [1, 2])),
            outside.Keeper(y.sum).get()(), list(map(outside.show, map(y.take, [[1], [2]]))))
        """,
    )


def test_objects_of_the_program_are_made_by_its_code(folder: Path) -> None:
    same(
        folder,
        """
        class Base:
            def __init__(self, data, *more, key=None):
                self.seen = outside.show(data, np.ones(2000) * data, key)
                self.more, self.key = more, key
        class Line(Base):
            def __init__(self, data, *more, **kwargs):
                super().__init__(data * 2.0, *more, **kwargs)
        class Wrong:
            def __init__(self, data):
                return 3
        class Other:
            def __new__(cls, data):
                return data if cls is Other else super().__new__(cls)
            def __init__(self, data):
                self.seen = outside.show(data)
        class Third(Other):
            pass
        class Meta(type):
            def __call__(cls, data):
                return outside.show(data)
        class Made(metaclass=Meta):
            def __init__(self, data):
                raise OSError
        class Plain(outside.Keeper):
            pass
        class Called:
            def __call__(self, data, by=1.0):
                return outside.show(data * by, np.ones(2000) * by)
        def error(call, *args, **kwargs):
            try:
                return call(*args, **kwargs)
            except TypeError as error:
                return str(error)
        """,
        """
        y = x * 2.0
        line = Line(y, 1, y, key=y)
        return (line.seen, line.key is y, line.more[1] is y, type(line).__name__,
            error(Wrong, y), error(Line), error(Base, y, 1, keys=2), Other(y) is y, Third(y).seen,
            Made(y), Plain(y).kind, Called()(y), Called()(y, by=3.0))
        """,
    )


def test_what_packages_keep_weakly_lives_as_long_as_the_array(folder: Path) -> None:
    same(
        folder,
        "",
        """
        y = np.zeros((2, 2000)) + x
        out = y[1]
        outside.keep_weakly(out, x)
        x += 1.0
        seen = [outside.fill_again(3.0), float(y.sum()), out[5] == 3.0]
        out = out * 2.0
        seen += [outside.fill_again(4.0), float(out.sum())]
        outside.keep_weakly(out)
        del out
        return [*seen, outside.fill_again(5.0)]
        """,
    )
