"""The border under `alight run`: packages are handed ndarrays, whatever way leads there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

# A package as others are: it asks for ndarrays by their type, keeps them, and writes into them.
OUTSIDE = """
    import ctypes
    import numpy as np

    def kinds(tree):
        if isinstance(tree, (list, tuple)):
            return [kinds(item) for item in tree]
        if isinstance(tree, dict):
            return {key: kinds(item) for key, item in tree.items()}
        return type(tree).__name__

    def show(*args, **kwargs):
        return kinds([*args, *kwargs.values()])

    def copied(x):
        return x.copy() if type(x) is np.ndarray else x

    def read(x):  # as C code does, by the address that an ndarray has
        assert type(x) is np.ndarray and x.flags.c_contiguous
        return ctypes.cast(x.ctypes.data, ctypes.POINTER(ctypes.c_double))[1]

    def fill(value, output):
        if type(output) is np.ndarray:
            output[...] = value
        return output

    def call(f, *args):
        return kinds(f(*args))

    def drain(items):
        return kinds(list(items))

    def same(x):
        return x

    def change(items):
        items.append(items[0] * 2)
        items[1] = "changed"
        return items

    def attributes(item):
        return kinds([item.a, item.b])

    class Keeper:
        def __init__(self, x=None):
            self.x = x
        def put(self, x):
            self.x = x
            return self
        def get(self):
            return self.x
        def __setitem__(self, key, x):
            self.x = x
        def __call__(self, x):
            return kinds(x)
        @property
        def kind(self):
            return kinds(self.x)
        @classmethod
        def of(cls, x):
            return cls(x)

    class Base:
        def kind(self):
            return kinds(vars(self))
        def run(self, x):
            return kinds([x, self.forward(x)])
"""
START = "import numpy as np\nimport outside\nn = 1000\nx = np.arange(n) * 1.0\ny = x * 2.0 + 1.0\n"


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
    path.write_text(START + dedent(text))
    environment = {**os.environ, "PYTHONPATH": str(folder / "site-packages"), **variables}
    done = subprocess.run(
        [sys.executable, *command, str(path)],
        env=environment,
        cwd=folder / "program",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr, done.returncode


def same(folder: Path, text: str) -> None:
    """Run a program both ways: what it prints and how it ends are the same, and arrays were
    alight's."""
    report = folder / "report.json"
    expected = run(folder, text)
    told = {"ALIGHT_FLOOR_ALL": "0", "ALIGHT_REPORT": str(report), "ALIGHT_FORCE": "cpu:generated"}
    actual = run(folder, text, "-m", "alight", "run", **told)
    assert (actual[0], actual[2]) == (expected[0], expected[2]), actual[1]
    assert expected[2] == 0, expected[1]
    operations = json.loads(report.read_text())["totals"]["element_operations"]
    assert operations["generated"] > 0


def test_callables_of_every_kind_are_given_ndarrays(folder: Path) -> None:
    same(
        folder,
        """
        from outside import show, Keeper, read
        from functools import partial
        keep = Keeper(y)
        print(show(y, x, k=y), show(*[y, x], **{"k": y}), read(y), keep.kind)
        print(Keeper.of(y).kind, keep(y), keep.put(x).kind, partial(show, y)(x), partial(show)(y))
        table = {"f": show}
        print(table["f"](y), (lambda f, v: f(v))(show, y), [show(v) for v in (x, y)])
        def own(f, v, *more, **named):
            return f(v, *more, **named)
        print(own(show, y, x, k=y), own(own, show, y), show(show(y), y * 2))
        print(outside.copied(y) is not y, partial(show, y).func is show)
        """,
    )


def test_what_calls_for_the_program(folder: Path) -> None:
    same(
        folder,
        """
        from concurrent.futures import ThreadPoolExecutor
        from functools import partial, reduce
        from itertools import starmap
        from threading import Thread
        from outside import show, same, fill
        print(list(map(show, [x, y])), list(map(show, (v * 2 for v in (x, y)))),
            list(starmap(show, [(x, y)])))
        print(len(list(filter(show, [x, y]))), sorted([3, 1], key=show), reduce(show, [x, y]))
        with ThreadPoolExecutor(1) as pool:
            print(pool.submit(show, y).result(), list(pool.map(show, [x, y])),
                pool.submit(partial(show, y), x).result())
        out = np.zeros(n)
        t = Thread(target=fill, args=(4.0, out))
        t.start()
        t.join()
        print(out.sum())
        """,
    )


def test_what_is_written_there_is_seen(folder: Path) -> None:
    same(
        folder,
        """
        out = np.zeros(n)
        before = out + 1.0
        outside.fill(5.0, out)
        print(out.sum(), before.sum(), (out * 2.0).sum())
        view = y[10:20]
        outside.fill(7.0, output=view)
        print(y[9:21], outside.fill(0.0, y[::-3]).sum(), y.sum())
        kept = outside.Keeper(x)
        x[0] = 50.0
        print(kept.get()[0], kept.x[0])
        kept.x[1] = 60.0
        print(x[1], (x + 1.0)[1])
        fixed = y * 1.0
        fixed.flags.writeable = False
        try:
            outside.fill(1.0, fixed)
        except ValueError as error:
            print(error)
        """,
    )


def test_an_array_comes_back_as_it_is(folder: Path) -> None:
    same(
        folder,
        """
        print(outside.same(y) is y, outside.Keeper(y).get() is y, outside.same([y, x])[1] is x)
        print(outside.same({"k": y})["k"] is y, outside.same((y, x))[0] is y)
        keep = outside.Keeper()
        keep.put(y)
        first = keep.get()
        y[0] = 3.0
        print(first is y, keep.get()[0], keep.get() is y)
        def look(v):
            look.seen.append(v)
        look.seen = []
        outside.call(look, y)
        outside.call(look, y)
        print(look.seen[0] is look.seen[1], look.seen[0].flags.owndata,
            look.seen[0].flags.writeable)
        t = np.asfortranarray(y.reshape(10, -1) * 1.0)
        outside.call(look, t[:, 1:])
        print(look.seen[2].strides, look.seen[2].flags.owndata)
        """,
    )


def test_what_a_package_has_kept_is_the_array_that_it_was_given(folder: Path) -> None:
    same(
        folder,
        """
        keep = outside.Keeper(y)
        print(keep.x is y, y is keep.x, keep.x is not y, keep.x is x, x is not keep.x)
        kept = outside.same({"k": outside.Keeper([y, x])})
        print([a is y for a in kept["k"].x], [b is x for b in vars(kept["k"])["x"]])
        first, second = kept["k"].x
        print(first is y, second is y, y[:5] is y, keep.x[:5] is y, keep.x is None)
        def held(k, v):
            return k.x is v and not k.x is not v
        print(held(keep, y), held(keep, x), 1 if keep.x is y else 2, [keep][0].x is y)
        """,
    )


def test_containers_and_objects_hand_over_ndarrays(folder: Path) -> None:
    same(
        folder,
        """
        from dataclasses import dataclass
        from collections import namedtuple, deque
        from types import SimpleNamespace
        @dataclass
        class Pair:
            a: object
            b: object
        class Slotted:
            __slots__ = ("a", "b")
        items = [y, x, 3]
        print(outside.show(items), outside.show({"k": [y]}, (x, {"d": y})), items[0] is y)
        print([type(i).__name__ for i in outside.change(items)[1:2]], len(items), items[0] is y,
            items[1])
        pair = Pair(y, [x])
        print(outside.attributes(pair), pair.a is y, pair.b[0] is x)
        slotted = Slotted()
        slotted.a, slotted.b = x, y
        print(outside.attributes(slotted), slotted.b is y,
            outside.attributes(SimpleNamespace(a=y, b=x)))
        Named = namedtuple("Named", "a b")
        print(outside.attributes(Named(y, 1)), type(outside.same(Named(y, 1))).__name__)
        print(outside.drain(deque([y])), outside.drain(zip([y], [x])), outside.drain(iter([y])))
        loop = [y]
        loop.append(loop)
        print(outside.same(loop) is loop, loop[0] is y)
        """,
    )


def test_callbacks_and_generators_return_ndarrays_to_packages(folder: Path) -> None:
    same(
        folder,
        """
        from functools import partial
        def f(v):
            return np.ones(n) * v
        def pair(v):
            return np.ones(n), [v, {"k": np.zeros(n)}]
        def rows(v):
            for i in range(2):
                yield np.ones(n) * i
            yield v
        class Model:
            kept = y
            def __call__(self, v):
                return np.zeros(n) + self.kept
            @property
            def prop(self):
                return np.ones(n)
            def method(self, v):
                return self.prop
        def late():
            def inner(v):
                try:
                    return np.ones(n)
                finally:
                    pass
            return inner
        print(outside.call(f, 2.0), outside.call(pair, y),
            outside.call(lambda v: np.ones(n) + v, 1.0))
        print(outside.drain(rows(y)), outside.drain(np.ones(n) * i for i in range(2)))
        m = Model()
        print(outside.call(m, y), outside.call(m.method, y), outside.call(partial(f), 3.0),
            outside.call(late(), 1))
        print(outside.call(y.take, [1, 2]), outside.call(partial(y.take, [1, 2])),
            outside.call(partial(m.method, 1)))
        print([type(v).__name__ == "Array" for v in ()], m.kept is y, float(f(2.0).sum()))
        """,
    )


def test_stores_into_objects_of_packages_are_ndarrays(folder: Path) -> None:
    same(
        folder,
        """
        keep = outside.Keeper()
        keep["k"] = y
        print(keep.kind)
        keep["k", 1:2] = x * 2.0
        print(keep.kind)
        keep.x = y
        print(keep.kind, type(keep.__dict__["x"]).__name__)
        setattr(keep, "x", x)
        print(outside.attributes(type("P", (), {"a": keep.x, "b": 1})()))
        def put(k, v):
            k["z"] = v
            return k.kind
        print(put(keep, y), put(keep, 1))
        own = {}
        own["k"] = y
        items = [0]
        items[0] = y
        print(own["k"] is y, items[0] is y)
        """,
    )


def test_classes_that_are_half_the_programs(folder: Path) -> None:
    same(
        folder,
        """
        class Own(outside.Base):
            def __init__(self, v):
                self.v = v
                self.more = [v]
            def forward(self, v):
                return np.ones(n) * v
        class Kept(outside.Keeper):
            pass
        own = Own(y)
        print(own.kind(), own.run(x), own.v is y, own.more[0] is y)
        print(Kept(y).kind, Kept.of(y).kind, Kept().put(y).get() is y)
        """,
    )


def test_errors_have_the_programs_lines_alone(folder: Path) -> None:
    text = """
        def bad(v):
            raise KeyError("mine")
        def outer(v):
            outside.call(
                bad,
                v,
            )
        outer(y)
    """
    expected = run(folder, text)
    actual = run(folder, text, "-m", "alight", "run", ALIGHT_FLOOR_ALL="0")
    assert actual == expected
    text = """
        class C:
            def m(self, v):
                return self
        (C().m(y)
            .m(1)
            .m(*y))
    """
    expected = run(folder, text)
    assert run(folder, text, "-m", "alight", "run", ALIGHT_FLOOR_ALL="0") == expected


def test_c_code_that_is_called_by_the_program(folder: Path) -> None:
    same(
        folder,
        """
        import ctypes
        from numpy.ctypeslib import ndpointer
        from numpy import testing
        kind = ctypes.PYFUNCTYPE(ctypes.py_object,
            ctypes.py_object)(("PyObject_Type", ctypes.pythonapi))
        print(kind(y).__name__, [k.__name__ for k in map(kind, [x, y])])
        print(ndpointer(np.float64).from_param(y) is not None)
        testing.assert_equal(y, y.copy())
        """,
    )


def test_functions_that_cross_keep_what_they_are(folder: Path) -> None:
    same(
        folder,
        """
        import inspect, pickle
        def f(a, b=1, *c, d: "Array" = 2, **e) -> "x":
            "Text."
            return a
        print(f.__doc__, f.__annotations__, inspect.signature(f), outside.same(f) is f, f.__name__)
        print(pickle.loads(pickle.dumps(f)) is f, f.__code__.co_argcount, f(y) is y, y.sum())
        print(sorted(k for k in globals() if not k.startswith("_")))
        """,
    )


def test_a_program_of_numpy_alone_is_left_as_it_is(folder: Path) -> None:
    text = "import json, helper\nprint([f.__code__.co_names for f in (f, helper.g)])\n"
    (folder / "program" / "helper.py").write_text("def g(v):\n    return h(v).m(v)\n")
    path = folder / "program" / "alone.py"
    path.write_text("import numpy as np\ndef f(v):\n    return g(v).m(v)\n" + text)
    for command in ((), ("-m", "alight", "run")):
        done = subprocess.run(
            [sys.executable, *command, str(path)], capture_output=True, text=True, check=False
        )
        assert done.stdout == "[('g', 'm'), ('h', 'm')]\n", done.stderr


def test_no_frame_stands_between(folder: Path) -> None:
    same(
        folder,
        """
        import sys
        def names():
            frame, found = sys._getframe(1), []
            while frame is not None:
                found.append(frame.f_code.co_name)
                frame = frame.f_back
            return found[:3]
        def own(v):
            return outside.call(lambda v: names(), v)
        outside.kinds = lambda v: v
        print(own(y))
        """,
    )


def test_no_name_of_ours_is_left_where_a_statement_raises(folder: Path) -> None:
    same(
        folder,
        """
        class Refusing:
            def __setitem__(self, key, value):
                raise KeyError(key)
            def __delitem__(self, key):
                raise KeyError(key)
            def __getitem__(self, key):
                return y
            kept = property(lambda self: y)
        refusing, keep = Refusing(), outside.Keeper()
        def raising():
            raise IndexError
        for text in (1, 2, 3, 4, 5, 6, 7, 8):
            try:
                if text == 1:
                    refusing[y[0]], a = y, 1
                elif text == 2:
                    a = keep["k"] = refusing[0] = y
                elif text == 3:
                    refusing[raising()] += y
                elif text == 4:
                    refusing["k"] += y
                elif text == 5:
                    refusing.kept -= y
                elif text == 6:
                    for refusing[0] in (y, y):
                        pass
                elif text == 7:
                    (a, (refusing[1], *b)), c = (1, (y, y, y)), 2
                else:
                    (a, b), keep["k"] = y
            except Exception as error:
                print(type(error).__name__)
            print([name for name in list(globals()) if "alight" in name])
        class Body:
            try:
                refusing["k"] += y
            except KeyError:
                pass
        print([name for name in vars(Body) if "alight" in name])
        """,
    )


def test_what_is_deleted_and_named_on_the_way_is_the_programs(folder: Path) -> None:
    same(
        folder,
        """
        kept = {"a": {0: 1, 1: 2}, "b": 3}
        def number(kind):
            return {"ndarray": 0}.get(kind, 5)
        items = {0: 1, 5: 2}
        class Deleting:
            def __delitem__(self, key):
                print(outside.show(key))
        deleting = Deleting()
        del items[number(outside.show(y)[0])], deleting[y]
        del deleting[y], items[number(outside.copied(y)[:1].dtype.name)]
        print(items)
        """,
    )
