"""Methods, closures and loops at a script's top level, taken as `jit` takes functions: nobody can
tell but by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import command
from own_programs import ALL, MODES, same, write

METHODS = '''
    import copy, dataclasses, functools, pickle, sys, threading, traceback, warnings
    import numpy as np

    X = np.linspace(0.125, 1.0, 57)

    def show(*results):
        for r in results:
            if isinstance(r, np.ndarray):
                print(r.dtype, r.shape, r.strides, r.flags.writeable, r.tobytes().hex()[:64])
            else:
                print(repr(r), type(r))

    def state(o):
        for name, value in vars(o).items():
            print(name, end=" ")
            show(value)

    class Plain:
        scale = 2.0

        def __init__(self, x):
            self.u, self.v = x.copy(), x * 0.5
            self.t, self.n, self.on, self.z = 0.0, 0, True, 1j
            self.dt = 0.125
            self.__hidden = 3.0
            self.label = "a"

        def step(self):
            """A text."""
            self.u += self.dt * (self.v - self.u)
            self.v = self.v * 0.5 + np.sqrt(self.u)
            self.t += self.dt
            self.n += 1
            self.n = self.n * 2 - self.n
            return self.u

        def energy(self, w, *more, k=2.0, **named):
            total = (self.u * self.u * w + self.v).max() * k
            for item in more:
                total = total + item
            return total + named.get("by", 0.0)

        def hidden(self):
            return self.u * self.__hidden + self.__hidden

        def swap(self):
            self.u, self.v = self.v, self.u + 1.0

        def parts(self):
            self.u[1:5] *= 2.0
            self.u[0] = self.v[-1] + self.t
            self.v[:] = self.u[::-1] - 1.0
            return self.u[2:4], self.v, self.label

        def early(self, x):
            if x.sum() > 20.0:
                self.n += 5
                return x * 2 + self.n
            self.t = self.t - 1.0
            self.u = x + self.u
            return self.t * 2

        def fails(self, x):
            self.t += 1.0
            self.u += 1.0
            self.v = self.v + 1.0

            self.v = self.v + x
            self.t = self.t * 100
            self.n += 1

        def new(self, x):
            self.fresh = x * 2 + self.scale
            self.also = self.fresh + 1

        def two(self):
            self.v = self.u
            self.v += 1.0
            return self.v is self.u, self.u * 2

        def inner(self, x):
            def g(y):
                return y * self.dt + x
            return g(x) + [self.t * i for i in range(3)][1]

        def shared(self):
            w = self.u * 2 + 1
            self.u = w
            self.v = w
            return w

        def itself(self):
            x = self.u * 2 + 1
            return self

        def loops(self):
            for i in range(3):
                self.u = self.u * 0.5 + i
                self.n += i
            self.t = 0.25 * self.n
            return self.u

        def power(self):
            self.t = self.t / (self.t - self.t)
            return self.u * 2 + 1

        def aliases(self):
            self.u[2:] += self.w[:-2] * 2
            self.w *= 0.5

    class Slots:
        __slots__ = ("u", "t")

        def __init__(self, x):
            self.u, self.t = x.copy(), 0.0

        def step(self):
            self.u = self.u * 2 - self.u * 0.5
            self.t += 0.5
            return self.u

    class Told(Plain):
        def __getattr__(self, name):
            print("asked for", name)
            return 5.0

        def asks(self):
            return self.nothing * self.u + 1

    class Counted(Plain):
        def __getattribute__(self, name):
            CALLS.append(name)
            return super().__getattribute__(name)

    class Noted(Plain):
        def __setattr__(self, name, value):
            CALLS.append("set " + name)
            super().__setattr__(name, value)

    class Properties(Plain):
        @property
        def dt(self):
            CALLS.append("dt")
            return 0.25

        @dt.setter
        def dt(self, value):
            CALLS.append("dt set")

        @functools.cached_property
        def lazy(self):
            CALLS.append("lazy")
            return self.u * 2 + 1

        def uses(self):
            return self.lazy * 2 + self.dt

    class Meta(type):
        def __call__(cls, *args):
            CALLS.append("made")
            return super().__call__(*args)

    class Metaed(Plain, metaclass=Meta):
        pass

    class Descriptor:
        def __get__(self, instance, owner):
            CALLS.append("get")
            return 3.0

    class Described(Plain):
        scale = Descriptor()

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        u: object
        t: float

        def step(self):
            return self.u * 2 + self.t

        def writes(self):
            self.t = self.t + self.t * 2

    CALLS = []

    def outer(k, table):
        def helper(x):
            return x * 2 - k

        def inner(x):
            return helper(x) * k + table - x

        def late(x):
            return x * unset + 1

        def sets(value):
            nonlocal k
            k = value

        def both(x):
            y = x * 2
            return y + k + table[0]

        class Local:
            def __init__(self, u):
                self.u = u

            def uses(self, x):
                return self.u * k + x

        if k > 100:
            unset = 1.0
        return inner, late, sets, both, Local

    def caught(f, *args):
        try:
            show(f(*args))
        except Exception as error:
            print(traceback.format_exc())

    def main():
        objects = [c(X) for c in (Plain, Told, Counted, Noted, Properties, Metaed, Described)]
        for i in range(9):
            print("--", i)
            for o in objects:
                print(type(o).__name__)
                u = o.u = o.u * 1e-3
                o.v = o.v / 1024
                r = o.step()
                print(r is o.u, o.u is u, o.t, o.n)
                show(r, o.energy(2.0), o.energy(X, 1.0, 2, k=i, by=i), o.hidden())
                o.swap()
                show(*o.parts(), o.early(X), o.early(X - 1.0), o.inner(X), o.itself() is o)
                show(o.two(), o.u is o.v, o.loops())
                w = o.shared()
                print(w is o.u, w is o.v)
                o.v = X.copy()
                caught(o.fails, X[:5])
                caught(o.power)
                with np.errstate(all="raise"):
                    caught(o.fails, np.full(57, 1e308) * 1.5)
                o.new(X)
                o.w = o.u
                o.aliases()
                print(o.w is o.u)
                state(o)
                if i == 3:
                    o.dt, o.v = 1, o.v.astype("f4")
                if i == 4:
                    o.label, o.n = None, 1.5
                if i == 5:
                    o.u = o.u.reshape(19, 3)
                    o.v, o.w = o.u + 1, o.u[1:, 1:]
                    caught(o.step)
                    caught(o.hidden)
                    o.u, o.v = X.copy(), X.copy()
                if i == 6:
                    del o.t
                    caught(o.step)
                    o.t = np.float32(2.0)
                if i == 7:
                    o.scale = X
            show(objects[1].asks(), objects[4].uses())
            a, b = Slots(X + i), Frozen(X, float(i))
            for _ in range(4):
                show(a.step(), a.t, b.step())
                caught(b.writes)
            if i == 6:
                Plain.scale = 7.0
                Plain.extra = 1.0
            print(len(CALLS), CALLS[-3:])
            CALLS.clear()
            inner, late, sets, both, Local = outer(1.0 + i, X * i)
            for j in range(5):
                show(inner(X), both(X), both(2.0), Local(X).uses(X))
                caught(late, X)
                if j == 2:
                    sets(np.float64(9.0))
                if j == 3:
                    sets(X[::-1])
                if i == 7 and j == 1:
                    sets([1.0])
                    caught(both, X)
                    sets(2)
        twin = pickle.loads(pickle.dumps(objects[0]))
        state(copy.deepcopy(twin))
        many = [Plain(X + k) for k in range(4)]
        threads = [threading.Thread(target=lambda o=o: [o.step() for _ in range(50)]) for o in many]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for o in many:
            state(o)

    main()
    lines = []
    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            lines.append((frame.f_code.co_name, event, frame.f_lineno))
        return tracer
    o = Plain(X)
    for _ in range(5):
        o.step()
    sys.settrace(tracer)
    o.step()
    sys.settrace(None)
    print(lines, Plain.step.__doc__, Plain.step.__code__.co_varnames[:1])
'''

LOOPS = """
    import sys
    import numpy as np
    def laplace(a):
        return np.roll(a, 1) - 2.0 * a + np.roll(a, -1)
    def show(*results):
        for r in results:
            if isinstance(r, np.ndarray):
                print(r.dtype, r.shape, r.strides, r.flags.writeable, r.tobytes().hex()[:64])
            else:
                print(repr(r), type(r))
    N = 64
    u, v = np.linspace(0.0, 1.0, N), np.ones(N)
    w, total, t, n, kept = u, 0.0, 0.0, 0, []
    scale = 2.0
    for i in range(12):
        u = u + 0.25 * laplace(u)
        v *= 0.5
        v += u * scale
        t += 0.25
        n = n + 1
        first, last = u[0], v[-1]
        kept.append(u)
        if i % 3 == 0:
            show(u, v, t, n, first, last, w is u)
        if i == 5:
            def laplace(a):
                return a * 2.0 - 1.0
        if i == 7:
            scale = v * 0.25
        if i == 9:
            n = 0.5
        total = total + (u * v).sum()
        half = u[::2] * 2 - 1
        u[0] = v[1]; u[-1] = half[0]
        if i == 8:
            continue
        for j in range(3):
            u[j] = u[j] * 2 + j
        while n > 100:
            n = n - 1
        w = u
        a, b = u * 2 + 1, v
        b = a
        a, b = b, a * 1
    show(u, v, w, total, t, n, first, last, half, a, b, i, j)
    print(w is u, [x.sum() for x in kept])
    print([name for name in globals() if name[:2] != "__"][-20:])
    k = 0
    while k < 8:
        with np.errstate(all="ignore"):
            y = u / (u - u) + k * 2
            z = y * 0 + 1
        k += 1
    show(np.isnan(y).sum(), z)
    for k in range(6):
        v = v * 2 + 1
        if k == 4:
            break
        v = v - u * 3
        if v.sum() > 1e30:
            v = v * 0 + 1
            x = 5
        else:
            x = v * 2
    show(k, v, x)
    for k in range(5):
        del y
        y = v * 2 + k
        f = lambda q: q * 2 + y
        s = [q * 2 + 1 for q in y]
        show(f(y))
    if __name__ == "__main__":
        import part_that_fails
"""

FAILS = """
    import numpy as np
    u, v, t, n = np.ones(8), np.ones(8), 0.0, 0
    others = [np.ones(8)] * 5 + [np.ones(3)]
    for other in others:
        t = t + 1.0
        u += 1.0
        v = v + 1.0

        v = v * 2 + other
        n += 1
        w = v * 2
"""


INSIDE = """
    import sys, traceback
    import numpy as np
    X = np.linspace(0.125, 1.0, 57)
    RATE = 0.5

    def show(*results):
        for r in results:
            if isinstance(r, np.ndarray):
                print(r.dtype, r.shape, r.strides, r.flags.writeable, r.tobytes().hex()[:64])
            else:
                print(repr(r), type(r))

    def lap(a):
        return np.roll(a, 1) - 2.0 * a + np.roll(a, -1)

    def main(x, steps=9):
        global RATE
        for i in range(steps):
            x = x * RATE + 1
        return x

    def runs(x, steps=9, *more, key=2.0, **named):
        u, v = x.copy(), x * 2
        t, n, dt, w = 0.0, 0, 0.125, None

        def local(a):
            return a * 2.0 - RATE

        def late(a):
            return a * dt + 1.0

        for i in range(steps):
            du = lap(u)
            u = u + dt * du
            v += u * dt
            u[0] = v[1]
            t += dt
            n = n + 1
            same = u
            if i % 3 == 0:
                print("at", i, t, n, same is u)
                show(u, v, du)
            w = local(v) * key + t
            w = late(w) - w * 2.0
            x, y = w, x * 2.0 + n
            if i == 4:
                dt = 0.25
            if i == 5:
                w = v = u.astype("f4")
            if i == 6:
                continue
            z = w * 2 + more[0] if more else w * 3 + 1
            for j in range(3):
                z = z * 0.5 + j
                z[j] = t
            show(z)
        try:
            for i in range(4):
                u = u * 2 + 1
        finally:
            show(u)
        for i in range(5):
            q = u * 2 + i
            del q
        for i in range(5):
            if i > 1:
                show(maybe)
            maybe = u * 2 + i
            maybe = maybe - 1
        return u, v, w, x, y, z, t, n

    def fails(n):
        u, v, x = np.ones(8), np.ones(8), 3.0
        for i in range(9):
            x = x + 1.0
            if i == n:
                v = np.ones(5)
            u = u * 0.5

            u = u * 2 + v
            v = v * 0.5
            print(i, end=" ")
        return u

    def parts(n):
        u = np.ones(n)
        for i in range(6):
            u = u * 2 + 1
            got = yield u
            u = u - 0.5 if got is None else u * got + 1

    def knows(x):
        for i in range(6):
            x = x * 2 + 1
            print(sorted(locals()))

    class Body:
        def __init__(self):
            self.x = X

        def both(self, steps):
            u = self.x * 2
            for i in range(steps):
                self.x = u
                u = u * 0.5 + 1
                u = u - lap(u)
            return u

    def unassigned():
        for i in range(6):
            if i > 7:
                a = X
            a = a * 2 + 1

    def main_loop():
        for k in range(3):
            show(*runs(X), *runs(X, 7, X, key=3.0))
            show(main(X), Body().both(6))
            for n in (3, 7, 20):
                try:
                    show(fails(n))
                except ValueError:
                    print(traceback.format_exc())
            try:
                unassigned()
            except UnboundLocalError:
                print(traceback.format_exc())
            show(*parts(8))
            g = parts(8)
            show(next(g), g.send(2.0), next(g), g.send(X[0]))
            knows(X)

    main_loop()
    lines = []
    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            lines.append((frame.f_code.co_name, event, frame.f_lineno))
        return tracer
    sys.settrace(tracer)
    fails(20)
    sys.settrace(None)
    print(lines)
"""


@pytest.mark.parametrize("mode", MODES)
def test_loops_in_functions_leave_what_they_leave_without(tmp_path: Path, mode: str) -> None:
    same(tmp_path, INSIDE, **MODES[mode])


@pytest.mark.parametrize("mode", MODES)
def test_methods_and_closures_see_what_they_see_without(tmp_path: Path, mode: str) -> None:
    same(tmp_path, METHODS, **MODES[mode])


CATCHES = """
    import traceback
    try:
        import part
    except ValueError as error:
        print(traceback.format_exc())
        frame = error.__traceback__
        while frame.tb_next:
            frame = frame.tb_next
        names = frame.tb_frame.f_globals
        print({name: names.get(name) for name in "utvnw"})
"""


@pytest.mark.parametrize("mode", MODES)
def test_loops_at_top_level_leave_what_they_leave_without(tmp_path: Path, mode: str) -> None:
    same(tmp_path, LOOPS.partition("    if __name__")[0], **MODES[mode])


@pytest.mark.parametrize("mode", MODES)
def test_an_error_in_a_loop_leaves_what_was_done(tmp_path: Path, mode: str) -> None:
    write(tmp_path, FAILS, "part.py")
    told = same(tmp_path, "    import numpy\n" + CATCHES, **MODES[mode])
    assert "'t': 6.0" in told and "'n': 5" in told


FOUND_ELSEWHERE = """
    import numpy as np
    class Body:
        def __init__(self, x):
            self.x, self.n = x, 0
        def step(self, t):
            match self.x.size:
                case t:
                    pass
            self.n = t + 1
            self.x = self.x * 0.5 + 1.0
    def scaled(v):
        return v * mode + 1.0
    def chosen(v):
        return kind(v) * 0.5 + 1.0
    def more(v):
        return v + 1.0
    def less(v):
        return v - 1.0
    mode, kind, late = 2, more, []
    body = Body(np.linspace(0.0, 1.0, 1000))
    x = np.linspace(0.0, 1.0, 1000)
    for i in range(20):
        body.step(3)
    print(body.n, body.x.sum())
    for i in range(20):
        mode = 1
        x = scaled(x) * 0.5 - 0.25
        mode = 2
    print(x.sum())
    for i in range(20):
        kind = less
        x = chosen(x) * 0.5 - 0.25
        kind = more
    print(x.sum())
    for i in range(20):
        z = x * 2.0 + 1.0
        if i > 10:
            late = x * 3.0
        if i > 100:
            never = z
        for k in range(i // 15):
            z = z + k
        x = z * 0.25
    print(x.sum(), late.sum(), k, "never" in globals())
    for i in range(20):
        if i > 15:
            late = x * 3.0
        x = x * 0.25 + 1.0
        if i == 10:
            del late
        if i == 12:
            late = "text"
    print(x.sum(), late.sum())
    def inside():
        mode, k = 2, 0.0
        x = np.linspace(0.0, 1.0, 1000)
        def scaled(v):
            return v * mode + 1.0
        total = lambda: x.sum() + k
        for i in range(20):
            mode = 1
            x = scaled(x) * 0.5 - 0.25
            mode = 2
        print(x.sum())
        for i in range(20):
            k = 1.0
            x = x * 0.5 + total()
            k = 0.0
        print(x.sum())
        for i in range(20):
            z = x * 2.0 + 1.0
            if i > 10:
                late = x * 3.0
            if i > 100:
                never = z
            x = z * 0.25
        print(x.sum(), late.sum(), "never" in locals())
    inside()
"""


@pytest.mark.parametrize("mode", MODES)
def test_what_is_set_but_by_a_plain_assignment_is_found_as_without(
    tmp_path: Path, mode: str
) -> None:
    same(tmp_path, FOUND_ELSEWHERE, **MODES[mode])


HANDLED = """
    import signal
    import numpy as np
    class Body:
        def __init__(self):
            self.x, self.n, self.t = np.linspace(0.0, 1.0, 100), 0, 0.0
        def step(self):
            self.n += 1
            self.t += 0.5
            self.t = self.t * 0.5 + self.n * 0.25 - self.n * 0.125 + self.t * 0.5 - self.n
            self.x = self.x * 0.5 + 1.0
    class Stop(Exception):
        pass
    raised = caught = 0
    def handler(*given):
        global raised
        raised += 1
        raise Stop
    signal.signal(signal.SIGALRM, handler)
    body = Body()
    for _ in range(20_000):
        body.step()
    while raised < 3000:
        before = raised
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            while raised == before:
                body.step()
        except Stop:
            caught += 1
    print(raised - caught)
"""


def test_what_a_handler_raises_amid_numbers_is_not_lost(tmp_path: Path) -> None:
    write(tmp_path, HANDLED)
    done = command(tmp_path, "run", "script.py", **ALL)
    assert done.stdout == "0\n", done.stderr


TAKEN = """
    import sys
    import numpy as np
    class Body:
        def __init__(self, x):
            self.u, self.v, self.t = x, x * 2, 0.0
        def step(self, dt):
            self.u += dt * (self.v - self.u)
            self.v = self.v * 0.5 + self.u
            self.t += dt
        def calls(self):
            return self.step(0.1), self.u * 2 + 1
    def outer(k):
        def inner(x):
            return x * k + np.sqrt(x)
        return inner
    def run(x):
        for i in range(50):
            x = x * 0.5 + 1.0
            if i == 49:
                print("done")
        return x
    x = np.linspace(0.0, 1.0, 1000)
    run(x)
    body, inner = Body(x.copy()), outer(2.0)
    for i in range(50):
        body.step(0.125)
        inner(x)
        x = x * 0.5 + 1.0
        x[0] = 1.0
    def gates(code):
        for item in code.co_consts:
            if type(item).__name__ == "Gate":
                yield code.co_name, item.answers is not None
            elif hasattr(item, "co_consts"):
                yield from gates(item)
    print(*gates(sys._getframe().f_code))
"""


@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("all", "done\n('step', True) ('inner', True) ('run', True) ('<module>', True)"),
        ("hot", "done\n('step', False) ('inner', False) ('run', False) ('<module>', False)"),
        ("off", "done"),
    ],
)
def test_what_computes_from_what_it_finds_is_taken(tmp_path: Path, which: str, told: str) -> None:
    write(tmp_path, TAKEN)
    done = command(tmp_path, "run", "script.py", ALIGHT_OWN_FUNCTIONS=which)
    assert done.stdout.strip() == told, done.stderr
