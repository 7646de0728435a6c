"""Functions of the program's own that `alight run` takes as `jit` does: nobody can tell but by the
clock."""

from __future__ import annotations

import ast
import json
import marshal
import pickle
import subprocess
import sys
from pathlib import Path
from types import CodeType

import pytest

from alight._core import Gate
from alight._src.jit.gates import Origin, gated, ungated, with_gates
from command_line import command
from own_programs import ALL, FORCED, MODES, same, write

# ------------------------------------------------------------------- what a program sees of itself

PROGRAM = '''
    import functools, gc, inspect, pickle, sys, traceback, warnings, weakref
    import numpy as np

    X = np.linspace(0.125, 1.0, 57)
    SCALE = 2.0
    CALLS = []

    def scaled(x, k=3.0, *more, flag=True, **named):
        """A text."""
        y = x * k + SCALE
        if flag:
            y = y - 1.0
        for item in more:
            y = y + item
        return y / named["by"] if named else y

    def in_place(x, y):
        x += y * 2.0
        y[2:4] = 0.0
        return x

    def bad(x, y):
        z = x * 2.0

        return z + y

    def divides(x, y):
        a = x + 1.0
        return a / y

    def deep(x):
        return scaled(x) + helper(x)

    def helper(x):
        return np.sqrt(x) * SCALE

    def power(x, n):
        return x if n == 0 else power(x * n, n - 1)

    def parts(x):
        yield x * 2 + 1

    def counts(x):
        CALLS.append(len(CALLS))
        return x * 2 + len(CALLS)

    class Body:
        def __init__(self, x):
            self.x = x

        def step(self, dt):
            self.x = self.x + dt * self.x
            return self.x

        @staticmethod
        def force(x, k):
            return -k * x + x * x

        @classmethod
        def named(cls, x):
            return cls.__name__, x * 2 + 1

        @property
        def twice(self):
            return self.x * 2 + 1

    def outer(k):
        def inner(x):
            return x * k + 1
        return inner

    def two(x, y):
        return x * 2 + y, x

    def itself(x):
        y = x * 2 + 1
        return x

    def seen(function):
        SEEN.append((type(function).__name__, function.__name__, function.__code__.co_argcount))
        @functools.wraps(function)
        def called(*args):
            return function(*args)
        return called

    SEEN = []

    @functools.lru_cache
    @seen
    def decorated(k):
        return (k * 2 + 1) ** 2

    @seen
    def wrapped(x):
        return x * 2 - x

    def show(*results):
        for r in results:
            if isinstance(r, np.ndarray):
                print(r.dtype, r.shape, r.strides, r.flags.writeable, r.tobytes().hex()[:64])
            else:
                print(repr(r), type(r))

    def main():
        global SCALE, helper
        body, inner = Body(X.copy()), outer(5.0)
        for i in range(12):
            print("--", i)
            show(scaled(X), scaled(X, 2.0), scaled(X, 2.0, X, X), scaled(k=1.5, x=X, flag=False))
            show(scaled(X, by=2.0), scaled(X[::2]), scaled(X.astype("f4"), np.float32(3)))
            p, q = X.copy(), X.copy()
            show(in_place(p, q), p, q)
            print(in_place(p, q) is p)
            show(in_place(p[1:10], p[2:11]), p)
            try:
                bad(X, X[:3])
            except ValueError as error:
                print(traceback.format_exc(), error.__context__, error.__cause__)
                print([f.name for f in traceback.extract_tb(error.__traceback__)])
            try:
                scaled()
            except TypeError as error:
                print(traceback.format_exc())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                show(divides(X, X - X))
                print([(w.lineno, str(w.message), w.filename) for w in caught])
            with np.errstate(all="raise"):
                try:
                    divides(X, X - X)
                except FloatingPointError as error:
                    print(traceback.format_exc())
            show(deep(X), power(X, 4), *parts(X), counts(X))
            show(body.step(0.125), body.force(X, 2.0), Body.force(X, 3), *Body.named(X))
            show(body.twice, inner(X), wrapped(X), decorated(3))
            r = two(X, X + i)
            show(*r)
            print(r[1] is X, itself(X) is X)
            show(scaled(3.0), scaled(2), helper(4.0), helper(np.float32(2)), helper(np.arange(4)))
            show(*map(helper, [X, X + 1]))
            if i == 5:
                SCALE = 7.5
            if i == 7:
                scaled.__defaults__ = (9.0,)
                deep.__code__ = helper.__code__
                in_place.tag = 1

                def helper(x):
                    return x * 2 + 4

            if i == 9:
                SCALE = np.arange(57.0)[: len(X)]
                break
        print(CALLS, SEEN)

    main()
    print(scaled.__name__, scaled.__doc__, inspect.signature(scaled), type(scaled))
    print(inspect.getsource(divides), pickle.loads(pickle.dumps(scaled)) is scaled)
    print(in_place.__dict__, scaled.__code__.co_argcount, scaled.__code__.co_firstlineno)

    lines = []
    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            lines.append((frame.f_code.co_name, event, frame.f_lineno))
        return tracer
    sys.settrace(tracer)
    scaled(X, SCALE[0])
    divides(X, X)
    sys.settrace(None)
    sys.setprofile(lambda frame, event, arg: lines.append((event, frame.f_code.co_name)))
    divides(X, X)
    sys.setprofile(None)
    print(lines)
    print(sorted(names_inside(X)))
'''.replace(  # locals() ends a proof: what it shows is the program's alone
    "    def show(",
    "    def names_inside(x):\n        y = x * 2 + 1\n        return locals()\n\n    def show(",
    1,
)


@pytest.mark.parametrize("mode", MODES)
def test_a_program_sees_what_it_sees_without(tmp_path: Path, mode: str) -> None:
    same(tmp_path, PROGRAM, **MODES[mode])


def test_large_arrays_that_are_not_plain_are_given_and_got_back(tmp_path: Path) -> None:
    text = """
        import numpy as np
        def step(x, y):
            x += y * 0.5
            return x, x * 2 - y, x[1:], x.sum() * 0
        a = np.linspace(0.0, 1.0, 400_000)
        b = np.ones(400_000)
        for i in range(9):
            c, d, e, f = step(a, b * 2)
            print(c is a, isinstance(d, np.ndarray), np.shares_memory(e, a), a[i], d[-1], f)
            e[0] = 7.0
            print(a[:3])
    """
    same(tmp_path, text, **ALL)
    same(tmp_path, text, **FORCED)


def test_threads_and_nested_calls_get_their_own_results(tmp_path: Path) -> None:
    text = """
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np
        def inner(x, k):
            return x * k + 1
        def outer(x, k):
            return inner(x, k) - inner(x, k + 1)
        def work(k):
            x = np.arange(200.0) + k
            return [float(outer(x, k)[3] + inner(x, k)[5]) for _ in range(40)]
        with ThreadPoolExecutor(6) as pool:
            print(list(pool.map(work, range(24))))
    """
    for mode in ("auto", "generated"):
        same(tmp_path, text, **MODES[mode])


def test_modules_may_be_loaded_anew_and_dropped(tmp_path: Path) -> None:
    text = """
        import gc, importlib, pathlib, sys, weakref
        import numpy as np
        x = np.arange(100.0)
        file = pathlib.Path(__file__).with_name("part.py")
        for k in (2, 3):
            text = f"import numpy as np\\ndef f(x):\\n    return x * {k} + 1  #"
            file.write_text(text + "#" * k)
            importlib.invalidate_caches()
            known = sys.modules.get("part")
            part = importlib.reload(known) if known else importlib.import_module("part")
            print([f"{part.f(x)[7]:.1f}" for _ in range(8)])
        class Kept: pass
        part.kept = Kept()
        gone = weakref.ref(part.kept)
        del sys.modules["part"], part, known
        gc.collect()
        print(gone() is None)
    """
    for mode in ("auto", "generated", "off"):
        assert same(tmp_path, text, **MODES[mode]).endswith("True\n")
        (tmp_path / "part.py").unlink()


# ------------------------------------------------------------------------------ which are taken

TAKEN = """
    import numpy as np
    CALLS = []
    def taken(x, k):
        y = x * k + 1.0
        return np.sqrt(y) - x
    def prints(x):
        CALLS.append(1)
        return x * 2 + 1
    def of_numbers(a, b):
        return a * b + 1
    def once(x):
        return x * 2 + 1
    class Body:
        def step(self, x):
            return x * self.k + 1
    x = np.linspace(0.0, 1.0, 1000)
    for i in range(50):
        taken(x, 2.0); prints(x); of_numbers(i, 2)
    once(x)
    def gate(function):
        found = [c for c in function.__code__.co_consts if type(c).__name__ == "Gate"]
        return [c.answers is not None for c in found]
    print(*map(gate, (taken, prints, of_numbers, once, Body.step)), len(CALLS))
"""


@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("all", "[True] [False] [False] [False] [False] 50"),
        ("hot", "[False] [False] [False] [False] [False] 50"),
        ("off", "[] [] [] [] [] 50"),
    ],
)
def test_what_computes_on_arrays_again_and_again_is_taken(
    tmp_path: Path, which: str, told: str
) -> None:
    write(tmp_path, TAKEN)
    done = command(tmp_path, "run", "script.py", ALIGHT_OWN_FUNCTIONS=which)
    assert done.stdout.strip() == told, done.stderr


def test_functions_that_take_numpy_long_are_taken(tmp_path: Path) -> None:
    text = TAKEN.replace("linspace(0.0, 1.0, 1000)", "linspace(0.0, 1.0, 1_000_000)[::2]")
    write(tmp_path, text.replace("range(50)", "range(1300)"))
    done = command(tmp_path, "run", "script.py")
    assert done.stdout.startswith("[True] [False] [False] [False] [False]"), done.stderr


def test_the_report_tells_of_their_lines(tmp_path: Path) -> None:
    write(tmp_path, TAKEN)
    done = command(tmp_path, "run", "--report", "report.json", "script.py", **FORCED)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "report.json").read_text())
    sites = {
        decision["call_site"].rpartition("script.py:")[2] for decision in document["decisions"]
    }
    assert sites & {"5", "6"}, sites


def test_packages_that_read_code_get_it_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, TAKEN.replace("import numpy as np", "import numpy as np\n    import torch", 1))
    write(tmp_path, "", "torch.py")
    done = command(tmp_path, "run", "script.py", **ALL)
    assert done.stdout.strip() == "[] [] [] [] [] 50", done.stderr


# --------------------------------------------------------------------------------- gates themselves


def _made(text: str) -> tuple[CodeType, CodeType]:
    plain = compile(text, "made.py", "exec")
    tree = ast.parse(text)
    places = gated(tree)
    assert places

    def compiled(made: ast.Module) -> CodeType:
        return compile(made, "made.py", "exec")

    return with_gates(compiled(tree), places, Origin(lambda: ast.parse(text), compiled)), plain


def test_code_without_gates_is_found() -> None:
    text = (
        "def f(x):\n    'doc'\n    def g(y):\n        return y * 2 + 1\n    return g(x) + x * 3\n"
    )
    code, plain = _made(text)
    names: dict[str, object] = {}
    exec(code, names)
    f = names["f"]
    assert f(2) == 11 and f.__doc__ == "doc"  # type: ignore[operator]
    own = f.__code__  # type: ignore[attr-defined]
    assert ungated(own) in plain.co_consts and ungated(own) != own
    inner = [c for c in own.co_consts if hasattr(c, "co_code")]
    assert ungated(inner[0]).co_qualname == "f.<locals>.g"
    assert not any(type(c) is Gate for c in ungated(inner[0]).co_consts)


def test_what_computes_the_numbers_of_a_gate_may_end_it() -> None:
    # another thread may, too, where that function lets one run
    text = """
from alight._core import Gate, take_functions
from alight._src.jit.decorator import Jitted

class Counter:
    pass

def numbers(n, x):
    gate.close(0)
    return (n + 1,)

take_functions(print, 1.0, 1.0)
gate = Gate((None, (), 0), 3, 1, ("n", "x"))
guard = Jitted(lambda x: (x * 2, x * 3), True)
gate.open(guard, globals(), ((), ()), (1,), numbers, ("n", "x"))
holder = Counter()
holder.n, holder.x = 7, 4
print(gate(holder), holder.n, holder.x, gate.answers)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "8 8 12 None\n"), done.stderr


def test_a_gate_elsewhere_is_closed() -> None:
    gate = pickle.loads(pickle.dumps(Gate((None, ()), 3)))
    assert type(gate) is Gate and gate.origin is None
    assert not any(gate != gate for _ in range(10))
    assert gate == gate and hash(gate) == hash(gate) and gate != Gate()
    assert ~gate is gate and gate.answers is None and +gate == ()
    with pytest.raises(TypeError, match="by position"):
        gate(x=1)
    with pytest.raises(ValueError, match="fewer than 0"):
        gate.close(-1)
    with pytest.raises(TypeError, match="CallGuard"):
        gate.open(len, {})


def test_gated_code_is_marshalled_and_runs_elsewhere() -> None:
    text = "def f(x):\n    y = x * 2\n    return y + 1\nfor x in (1, 2):\n    y = f(x) * 2 + x\n"
    code, _ = _made(text)
    names: dict[str, int] = {}
    exec(marshal.loads(marshal.dumps(code)), names)
    assert names["y"] == 12


def test_reductions_in_a_jitted_body_wait_as_they_do_elsewhere(tmp_path: Path) -> None:
    text = """
        import numpy as np
        import alight
        @alight.jit
        def part(x, t):
            kept = x > t
            return np.where(kept, x, 0.0).sum() / kept.sum(), x.max() - x.min()
        x = np.array(np.linspace(0.0, 1.0, 1000).tolist())
        for i in range(6):
            part(x, 0.5)
        print([len(kind.programs) for kind in part._specializations.values()])
    """
    write(tmp_path, text)
    done = command(tmp_path, "run", "script.py", ALIGHT_FLOOR_ALL="0", ALIGHT_FORCE="cpu:generated")
    assert done.stdout == "[1]\n", done.stderr


# An op on 10⁶ elements counts as half a millisecond, whatever it takes.
IN_TURN = """
    import numpy as np
    def first(x):
        return x * 2.0 + 1.0
    def second(x):
        return x * 3.0 - 1.0
    def third(x):
        return x * 4.0 - 2.0
    def is_taken(function):
        found = [c for c in function.__code__.co_consts if type(c).__name__ == "Gate"]
        return found[0].answers is not None
    x = np.ones(1_000_000)
    for _ in range(500):
        second(x)
    told = [is_taken(second)]
    for _ in range(1400):
        first(x[:1000])
    for _ in range(1400):
        first(x)
    told.append(is_taken(first))
    for _ in range(200):
        second(x); third(x)
    print(*told, is_taken(second), is_taken(third))
"""


# Two hundred calls are 0.2 s each; no function takes a second by itself.
TOGETHER = """
    import numpy as np
    def is_taken(function):
        found = [c for c in function.__code__.co_consts if type(c).__name__ == "Gate"]
        return found[0].answers is not None
    def f0(x): return x * 2.0 + 1.0
    def f1(x): return x * 3.0 + 1.0
    def f2(x): return x * 4.0 + 1.0
    def f3(x): return x * 5.0 + 1.0
    def f4(x): return x * 6.0 + 1.0
    def f5(x): return x * 7.0 + 1.0
    x = np.ones(1_000_000)
    for _ in range(250):
        f0(x); f1(x)
    told = [is_taken(f0)]
    for _ in range(250):
        f2(x); f3(x); f4(x); f5(x)
    print(*told, is_taken(f5))
"""


def test_functions_are_worth_it_together(tmp_path: Path) -> None:
    write(tmp_path, TOGETHER)
    done = command(tmp_path, "run", "script.py")
    assert done.stdout.strip() == "False True", done.stderr


def test_the_first_function_has_to_be_worth_what_loading_takes(tmp_path: Path) -> None:
    write(tmp_path, IN_TURN)
    done = command(tmp_path, "run", "script.py")
    assert done.stdout.strip() == "False True True True", done.stderr


# Both lie in Arrays, as the floor is 0; the measured one would have had the large ones alone.
RECORDED = """
    import numpy as np
    from alight._core import floor
    floor.auto = 1000
    def on_large(x):
        return x * 2 + 1
    def on_small(x):
        return x * 2 + 1
    large, small = np.linspace(0.0, 1.0, 2000), np.linspace(0.0, 1.0, 500)
    for i in range(50):
        on_large(large); on_small(small)
    for function in (on_large, on_small):
        found = [c for c in function.__code__.co_consts if type(c).__name__ == "Gate"]
        print([c.answers is not None for c in found])
"""


def test_what_is_recorded_on_large_arrays_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path, RECORDED)
    done = command(tmp_path, "run", "script.py", **FORCED)
    assert done.stdout.split() == ["[False]", "[True]"], (done.stdout, done.stderr)
