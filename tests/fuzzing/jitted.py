"""Random jitted functions: what their calls return, change, raise and warn of must be NumPy's.

``python -m fuzzing.jitted MODE FIRST_SEED STATEMENTS`` prints a line of JSON; on stderr, the seed
at work, which is the last one said where the process dies. Each body is called nine times at least.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from textwrap import dedent, indent
from typing import Any

import numpy as np

import alight

from . import arguments, bodies
from .bodies import Form
from .known_faults import known, told
from .program import DEVICES
from .witness import HEARING, Witness, difference

__all__ = [
    "MODES",
    "Difference",
    "Program",
    "differs",
    "drawn",
    "odd_warnings",
    "run_many",
    "shrunk",
]

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "floor": {"floor": 0},
    "numpy": {"floor": 0, "force": "cpu:numpy"},
    "generated": {"floor": 0, "force": "cpu:generated"},
    "sim": {"floor": 0, "force": "sim:0"},
}
CALLS = 9
_LARGE = {"auto": 0.15, "floor": 0.02}  # the share of programs with large arrays
_ON_THREADS = 0.08
_ON_ARRAYS = 0.15
_SHRUNK = 5  # failures made small; each costs many runs of its program
_BLOCK = ("for ", "if ", "try:", "with ", "def ")


@dataclass(frozen=True, slots=True)
class Program:
    """A function's body and the arguments of its calls, as text."""

    seed: int
    form: Form
    body: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    calls: tuple[int, ...]
    threads: int = 1
    hearing: str = "ignored"
    ours: bool = False  # some arguments are Arrays

    def text(self) -> str:
        """Return the program; `jit` is given to it."""
        inner = "\n".join(self.body)
        function = f"@jit\ndef f(a, b, c, k, e):\n{indent(inner, '    ')}\n"
        words = set(_words("\n".join([inner, *map("\n".join, self.sets)])))
        parts = [part for part in _PARTS if part[0] == "" or part[0] in words]
        used = {"new"} | {
            name for name, text in parts if name in words for name in (name, *_words(text))
        }
        lines = [text for name, text in _PARTS if name == "" or name in used]
        dtype, shape = self.form.dtypes[0], self.form.shape
        if "G" in words:
            function = function.replace("e):\n", "e):\n    global G\n")
            lines.append(f"G = new({dtype!r}, {shape}, 3)\n")
        if "h" in words:
            function = function.replace("e):\n", "e):\n    nonlocal h\n")
            function = f"def around(h):\n{indent(function, '    ')}    return f\n"
            function += f"f = around(new({dtype!r}, {shape}, 4))\n"
        lines.append(function)
        for number, made in enumerate(self.sets):
            lines.append(f"def given{number}(n):\n{indent(chr(10).join(made), '    ')}\n")
            lines.append("    return a, b, c, k, e\n")
        return "".join(lines)

    def pasted(self, mode: str) -> str:
        """Return the program as one that runs by itself and shows what its calls did."""
        given = ", ".join([f"given{number}" for number in range(len(self.sets))])
        loop = (
            f"for n, number in enumerate({list(self.calls)}):\n"
            f"    args = [{given}][number](n)\n"
            f"    try:\n        with policy(**{(MODES | DEVICES)[mode]}):\n"
            "            print(n, f(*args), args)\n"
            "    except Exception as error:\n        print(n, repr(error), args)\n"
        )
        return "from alight import asarray as ours, jit, policy\n" + self.text() + loop


def _words(text: str) -> list[str]:
    found, word = [], ""
    for letter in text + " ":
        if letter.isidentifier() or (word and letter.isdigit()):
            word += letter
        elif word:
            found.append(word)
            word = ""
    return found


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text, each with the name of what it defines; imports have none."""
    name, lines = "", []
    for line in f"{text}\n".splitlines(keepends=True):
        if not line.strip():
            continue
        starts = line.startswith(("def ", "class ", "@"))
        if starts and not (lines and lines[-1].startswith("@")):
            yield name, "".join(lines)
            lines = []
        lines.append(line)
        if line.startswith(("def ", "class ")):
            name = _words(line)[1]
    yield name, "".join(lines)


_PARTS = [*_functions(arguments.PREAMBLE), *_functions(bodies.HELPERS)]


@dataclass(slots=True)
class Difference:
    """A program that does not do what NumPy does: where that shows, and how."""

    program: Program
    mode: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"seed {self.program.seed} in {self.mode}: {self.where}: {self.message}"


def drawn(seed: int, mode: str) -> Program:
    """Return the program that a seed is."""
    r = random.Random(seed)
    large = r.random() < _LARGE.get(mode, 0.0)
    pure = r.random() < 0.6  # what may be proven pure is answered in more ways
    form, holder = arguments.form(r, large, pure)
    body = bodies.body(r, form, pure)
    # Where NumPy has scalars these have views, through which one could write.
    ours = len(form.shape) > 1 and not large and r.random() < _ON_ARRAYS
    sets = [arguments.made(r, form, holder, ours)]
    calls = [0] * CALLS
    while r.random() < 0.35 and len(sets) < 3:
        other = arguments.form(r, False, pure)[0] if r.random() < 0.3 and not large else form
        if ours:
            other = form
        sets.append(arguments.made(r, replace(form, shape=other.shape), holder, ours))
        calls += r.choice(([len(sets) - 1] * 3, [0, len(sets) - 1] * 2, [len(sets) - 1] * CALLS))
    if r.random() < 0.3:
        r.shuffle(calls)
    alone = not ours and not {"G", "h"} & set(form.names)
    threads = 4 if alone and not large and r.random() < _ON_THREADS else 1
    hearing = "ignored" if threads > 1 or ours else r.choice((*["ignored"] * 5, *HEARING))
    made = tuple(map(tuple, sets)), tuple(calls)
    return Program(seed, form, tuple(body), *made, threads, hearing, ours)


def _record(program: Program, jit: Callable[[Any], Any], settings: dict[str, Any]) -> list[Any]:
    """Return what the program's calls did."""
    # A file name that no other program has: alight tells functions apart by where they are.
    with warnings.catch_warnings(action="ignore"):  # of what can only fail, as `k[0]` of a number
        code = compile(program.text(), f"<seed {program.seed}>", "exec")
    names: dict[str, Any] = {"jit": jit, "__name__": f"seed_{program.seed}"}
    names["ours"] = alight.asarray if jit is alight.jit else np.copy
    exec(code, names)
    function, bases = names["f"], names["BASES"]
    if program.threads > 1:
        return _on_threads(program, names, settings)
    lasting = len(bases)
    witness = Witness(bases, program.hearing, program.ours)
    records = []
    for number, which in enumerate(program.calls):
        del bases[lasting:]
        given = names[f"given{which}"](number)
        with alight.policy(**settings):
            records.append(witness.call(function, given))
    return [*records, witness.end()]


def _on_threads(program: Program, names: dict[str, Any], settings: dict[str, Any]) -> list[Any]:
    """Let several threads call the function at once, each with arguments of its own."""
    function, bases = names["f"], names["BASES"]
    numbered = list(enumerate(program.calls))
    given = [
        [names[f"given{which}"](n + thread) for n, which in numbered]
        for thread in range(program.threads)
    ]
    outcomes: list[list[Any]] = [[] for _ in given]
    begin = threading.Barrier(program.threads)

    def work(mine: list[Any], out: list[Any]) -> None:
        begin.wait()
        with alight.policy(**settings):
            for part in mine:
                try:
                    out.append((function(*part), None))
                except Exception as error:
                    out.append((None, f"{type(error).__name__}: {error}"))

    workers = [
        threading.Thread(target=work, args=pair) for pair in zip(given, outcomes, strict=True)
    ]
    with warnings.catch_warnings():  # of the whole process, while threads run
        warnings.simplefilter("ignore")
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    seen = Witness(bases, "ignored").call(lambda: outcomes, ())
    return [{"error": None, "warnings": [], **seen, "on threads": True}]


def differs(program: Program, mode: str) -> Difference | None:
    """Return how a program differs from NumPy; None where it does not, or NumPy leaves it open."""
    settings = (MODES | DEVICES)[mode]
    wanted = _record(program, lambda function: function, {})
    if _leaves_open(program):
        return None
    try:
        got = _record(program, alight.jit, settings)
    except Exception as error:
        return Difference(program, mode, "outside", f"{type(error).__name__}: {error}")
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        a["warnings"], b["warnings"] = odd_warnings(
            a["warnings"], b["warnings"], program.hearing == "shown", mode in DEVICES
        )
        found = difference(a, b)
        if found is not None:
            return Difference(program, mode, *found[:1], f"call {number}: {found[1]}")
    return None


def odd_warnings(
    wanted: list[str], got: list[str], shown: bool, on_device: bool
) -> tuple[list[str], list[str]]:
    """Return the warnings that had to be given and were not, and those that were and had not to.

    Results that nobody asks for are not computed: fewer may be ``shown`` than NumPy shows. And
    devices raise no flags. What NumPy says at a line of its own, alight may say at the caller's.
    """
    inside = {_text(told) for told in wanted if told.startswith(_NUMPYS)}
    others = [told for told in got if told not in wanted and _text(told) not in inside]
    given = {_text(told) for told in got}
    missing = [
        told
        for told in wanted
        if not shown
        and _text(told) not in given
        and not (on_device and told.startswith("RuntimeWarning"))
    ]
    return missing, others


_NUMPYS = os.path.dirname(np.__file__)


def _text(told: str) -> str:
    """Return a warning without the line that it was shown for."""
    category = told.split("Warning: ")[0].split(": ")[-1]
    return told[told.index(f"{category}Warning: ") :]


def _leaves_open(program: Program) -> bool:
    """Tell whether floats become integers that cannot hold them: what NumPy makes of those depends
    on its loop."""
    if {program.form.dtypes[0] in "dfeD", program.form.dtypes[1] in "dfeD"} == {True}:
        return False
    records = _record(replace(program, hearing="recorded"), lambda function: function, {})
    return any("in cast" in told for record in records for told in record.get("warnings", ()))


def shrunk(found: Difference) -> Difference:
    """Return the difference with as little of its program as still differs in the same part."""
    best = found
    part = found.where.split("[")[0].split(".")[0]

    def better(program: Program) -> bool:
        nonlocal best
        try:
            other = differs(program, found.mode)
        except (SyntaxError, NameError):  # of the arguments' making
            return False
        if other is None or other.where.split("[")[0].split(".")[0] != part:
            return False
        best = other
        return True

    for simpler in (_fewer_sets, _fewer_statements, _plainer_blocks, _plainer_arguments) * 2:
        _repeat(simpler, lambda: best.program, better)
    return best


def _repeat(
    simpler: Callable[[Program], Iterator[Program]],
    now: Callable[[], Program],
    better: Callable[[Program], bool],
) -> None:
    progress = True
    while progress:
        progress = any(better(program) for program in simpler(now()))


def _fewer_sets(program: Program) -> Iterator[Program]:
    if program.threads > 1:
        yield replace(program, threads=1)
    if len(program.sets) > 1:
        for made in program.sets:
            yield replace(program, sets=(made,), calls=(0,) * CALLS)
    for calls in (1, 2, 3, 5):
        if calls < len(program.calls):
            yield replace(program, calls=program.calls[:calls])


def _fewer_statements(program: Program) -> Iterator[Program]:
    body = program.body
    size = max(1, len(body) // 2)
    while size:
        for at in range(0, len(body), size):
            if len(body) > size:
                yield replace(program, body=body[:at] + body[at + size :])
        size //= 2


def _plainer_blocks(program: Program) -> Iterator[Program]:
    for at, statement in enumerate(program.body):
        before, after = program.body[:at], program.body[at + 1 :]
        if statement.startswith(_BLOCK):
            inner = [line for line in statement.splitlines() if line.startswith("    ")]
            if not statement.startswith("def "):
                yield replace(program, body=(*before, dedent("\n".join(inner)), *after))
        parts = statement.split("; ")
        # Without what follows, the elements of an empty array would be anything.
        for one in parts if len(parts) > 1 and "np.empty" not in statement else ():
            yield replace(program, body=(*before, one, *after))
        if statement.startswith("return ") and ", " in statement:
            for one in statement[7:].split(", "):
                yield replace(program, body=(*before, f"return {one.strip('[]')}", *after))


def _plainer_arguments(program: Program) -> Iterator[Program]:
    for which, made in enumerate(program.sets):
        for at, line in enumerate(made):
            for other in ((arguments.plain(program.form, line),), ()):
                lines = made[:at] + other + made[at + 1 :]
                if lines != made:
                    sets = (*program.sets[:which], lines, *program.sets[which + 1 :])
                    yield replace(program, sets=sets)


def run_many(
    mode: str, first: int, statements: int, say: Callable[[int], None] = lambda seed: None
) -> tuple[int, int, list[Difference]]:
    """Run programs until their bodies had so many statements; return statements, programs and
    the differences that are no known faults."""
    done, seed = 0, first
    found = []
    with np.errstate():
        while done < statements:
            say(seed)
            program = drawn(seed, mode)
            if not known(seed, mode):
                wrong = differs(program, mode)
                if wrong is not None and not told(wrong.message):
                    found.append(wrong)
            done += len(program.body)
            seed += 1
    return done, seed - first, found


def main() -> None:
    mode, first, statements = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    done, programs, found = run_many(
        mode, first, statements, lambda seed: print(f"seed {seed}", file=sys.stderr)
    )
    rows = []
    for number, wrong in enumerate(found):
        small = shrunk(wrong) if number < _SHRUNK else wrong
        rows.append(
            {"seed": wrong.program.seed, "where": small.where, "message": small.message}
            | {"program": small.program.pasted(mode) if number < _SHRUNK else ""}
        )
    print(json.dumps({"statements": done, "programs": programs, "differences": rows}))


if __name__ == "__main__":
    main()
