"""Caches that somebody else, or a broken disk, has been at: no code out of them is run, nothing
hangs, each fault is told once, and the answers are NumPy's.

``python -m fuzzing.hostile_cache [--count 1000] [--seed 1]``, from the folder of the tests. What
needs other users is left out where this is not run by root; what was left out is told.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy

import alight
from alight._src.base.file_forms import SCHEMA, Place, object_file, read_object
from alight._src.config.loading import reload_config
from alight._src.log.decisions import LOG
from alight._src.run import kernels
from alight._src.store import FILE_BYTES, default_store

ROOT = os.name == "posix" and os.geteuid() == 0
STRANGER, USER = 5432, 4321  # nobody's numbers
# A run takes 0.1 to 0.5 s; nothing but a hang takes as long as this on the busiest machine.
LIMIT_SECONDS = 60.0

_X = numpy.linspace(1.0, 2.0, 1000)
# Each is a kernel of its own; the code of one under another's name gives another answer.
PROGRAMS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda np, x: x * x + x,
    lambda np, x: x - x * x,
    lambda np, x: np.sqrt(x) * x - x,
)


class Case(NamedTuple):
    """A cache to be spoilt: its folders, the kernels' files, and a folder beside it."""

    root: Path
    names: list[str]
    outside: Path
    user: int
    chance: random.Random

    @property
    def kernels(self) -> Path:
        return self.root / f"v{SCHEMA}" / "kernel"

    @property
    def stranger(self) -> int:
        return STRANGER if ROOT else os.getuid()

    def target(self) -> Path:
        """Return the file of a kernel."""
        return self.kernels / self.chance.choice(self.names)

    def folder(self, least: int = 0) -> Path:
        """Return a folder of the cache, the outermost of them at ``least`` so deep."""
        return [self.root, self.kernels.parent, self.kernels][self.chance.randrange(least, 3)]

    def forge(self, path: Path) -> bytes:
        """Return what a file would hold with the code of another kernel, every digest right."""
        other = self.chance.choice([name for name in self.names if name != path.name])
        given = read_object((self.kernels / other).read_bytes(), _place(other))
        mine = read_object((self.kernels / path.name).read_bytes(), _place(path.name))
        assert given is not None and mine is not None
        return object_file(mine.header, given.data, _place(path.name))

    def forge_all(self) -> None:
        """Have every kernel's file hold another's code."""
        forged = {name: self.forge(self.kernels / name) for name in self.names}
        for name, content in forged.items():
            (self.kernels / name).write_bytes(content)

    def own(self, path: Path, user: int) -> None:
        """Give a file, or a folder with all that is in it, to a user."""
        if ROOT:
            for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
                os.chown(one, user, user, follow_symlinks=False)


class Expected(NamedTuple):
    """How many warnings there are, and how many kernels come from disk."""

    warnings: int
    loaded: int


def _place(name: str) -> Place:
    return Place("kernel", name.removesuffix(".bin"), ".bin", "")


# --- what is put in the place of a file or folder
def _fifo(case: Case, path: Path) -> None:
    os.mkfifo(path, 0o600)


def _socket(case: Case, path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _device(case: Case, path: Path) -> None:
    minor = case.chance.choice((3, 5, 7, 8, 9))  # null, zero, full, random, urandom
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, minor))


def _block_device(case: Case, path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, case.chance.randrange(8)))


def _dangling(case: Case, path: Path) -> None:
    path.symlink_to(case.outside / "nothing")


def _to_itself(case: Case, path: Path) -> None:
    path.symlink_to(path.name)


def _to_a_device(case: Case, path: Path) -> None:
    path.symlink_to(case.chance.choice(("/dev/zero", "/dev/tty", "/dev/full")))


def _folder(case: Case, path: Path) -> None:
    path.mkdir(0o700)
    if case.chance.random() < 0.5:
        (path / "inside").write_bytes(b"x")


def _file(case: Case, path: Path) -> None:
    path.write_bytes(case.chance.randbytes(100))
    path.chmod(0o600)


Put = Callable[[Case, Path], None]
PUT: tuple[Put, ...] = (_fifo, _socket, _device, _block_device, _dangling, _to_itself, _to_a_device)


# --- cases: each returns what is expected of a run
def _as_it_was(case: Case) -> Expected:
    return Expected(0, 3)


def _through_a_link_of_the_users(case: Case) -> Expected:
    there = case.outside / "cache"
    shutil.move(case.root, there)
    case.root.symlink_to(there)
    return Expected(0, 3)


def _file_of_a_stranger(case: Case) -> Expected:
    path = case.target()
    path.write_bytes(case.forge(path))
    case.own(path, STRANGER)
    path.chmod(case.chance.choice((0o600, 0o644, 0o444)))
    return Expected(1, 2)


def _file_that_others_write(case: Case) -> Expected:
    path = case.target()
    path.write_bytes(case.forge(path))
    path.chmod(case.chance.choice((0o666, 0o622, 0o660, 0o602, 0o777)))
    return Expected(1, 2)


def _link_to_a_file(case: Case) -> Expected:
    path, there = case.target(), case.outside / "evil"
    there.write_bytes(case.forge(path))
    there.chmod(0o600)
    case.own(there, case.chance.choice((case.user, case.stranger)))
    path.unlink()
    if case.chance.random() < 0.5:
        path.symlink_to(there)
    else:
        os.link(there, path)
    return Expected(1, 2)


def _no_file(case: Case, put: Put) -> Expected:
    path = case.target()
    path.unlink()
    put(case, path)
    return Expected(1, 2)


def _giant(case: Case) -> Expected:
    path = case.target()
    size = case.chance.choice((FILE_BYTES + 1, 2**30, 2**40))
    if case.chance.random() < 0.5:
        path.write_bytes(b"")
    os.truncate(path, size)
    return Expected(1, 2)


def _zeros(case: Case) -> Expected:
    path = case.target()
    path.write_bytes(b"")
    os.truncate(path, case.chance.randrange(1, FILE_BYTES))
    return Expected(1, 2)


def _truncated(case: Case) -> Expected:
    path = case.target()
    os.truncate(path, case.chance.randrange(path.stat().st_size))
    return Expected(1, 2)


def _flipped(case: Case) -> Expected:
    path = case.target()
    content = bytearray(path.read_bytes())
    at = len("alight ")
    while at == len("alight "):  # the number of another form: that is no fault, and not ours
        at = case.chance.randrange(len(content))
    content[at] ^= 1 << case.chance.randrange(8)
    path.write_bytes(content)
    return Expected(1, 2)


def _garbage(case: Case) -> Expected:
    path = case.target()
    size = case.chance.randrange(3000)
    path.write_bytes(case.chance.choice((b"", b"\0", b"\n", b"alight 2 ")) + os.urandom(size))
    return Expected(1, 2)


def _longer(case: Case) -> Expected:
    path = case.target()
    path.write_bytes(path.read_bytes() * 2)
    return Expected(1, 2)


def _swapped(case: Case) -> Expected:
    first, second = (case.kernels / name for name in case.chance.sample(case.names, 2))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    if case.chance.random() < 0.5:
        return Expected(1, 2)
    second.write_bytes(one)
    return Expected(2, 1)


def _folder_of_a_stranger(case: Case) -> Expected:
    case.forge_all()
    folder = case.folder()
    if case.chance.random() < 0.5:
        case.own(folder, STRANGER)
    else:
        os.chown(folder, STRANGER, STRANGER)
    folder.chmod(case.chance.choice((0o755, 0o700)))
    return Expected(1, 0)


def _folder_that_others_write(case: Case) -> Expected:
    case.forge_all()
    case.folder().chmod(case.chance.choice((0o777, 0o770, 0o757, 0o1777, 0o2775, 0o722)))
    return Expected(1, 0)


def _link_to_a_folder(case: Case) -> Expected:
    case.forge_all()
    folder, there = case.folder(1), case.outside / "there"
    shutil.move(folder, there)
    case.own(there, case.chance.choice((case.user, case.stranger)))
    folder.symlink_to(there)
    return Expected(1, 0)


def _link_to_a_cache_of_a_stranger(case: Case) -> Expected:
    case.forge_all()
    there = case.outside / "there"
    shutil.move(case.root, there)
    case.own(there, STRANGER)
    case.root.symlink_to(there)
    return Expected(1, 0)


def _no_folder(case: Case, put: Put) -> Expected:
    folder = case.folder(1)
    shutil.rmtree(folder)
    put(case, folder)
    return Expected(1, 0)


def _no_cache(case: Case, put: Put) -> Expected:
    shutil.rmtree(case.root)
    put(case, case.root)
    return Expected(1, 0)


def _lock(case: Case, put: Put) -> Expected:
    case.target().unlink()  # so that one is made, and written
    lock = case.kernels / ".lock"
    lock.unlink()
    put(case, lock)
    return Expected(1, 2)


def _lock_of_others(case: Case) -> Expected:
    case.target().unlink()
    lock = case.kernels / ".lock"
    if ROOT and case.chance.random() < 0.5:
        case.own(lock, STRANGER)
    else:
        lock.chmod(0o666)
    return Expected(1, 2)


class Kind(NamedTuple):
    """A kind of case, and whether only root can make it."""

    make: Callable[[Case], Expected]
    root: bool = False


def _with(make: Callable[[Case, Put], Expected], put: Put) -> Kind:
    return Kind(lambda case: make(case, put), put in (_device, _block_device))


KINDS: dict[str, Kind] = {
    "as it was": Kind(_as_it_was),
    "through a link of the user's": Kind(_through_a_link_of_the_users),
    "a stranger's file": Kind(_file_of_a_stranger, root=True),
    "file that others can write": Kind(_file_that_others_write),
    "link to a file": Kind(_link_to_a_file),
    "giant": Kind(_giant),
    "zeros": Kind(_zeros),
    "truncated": Kind(_truncated),
    "flipped bit": Kind(_flipped),
    "garbage": Kind(_garbage),
    "longer": Kind(_longer),
    "swapped": Kind(_swapped),
    "a stranger's folder": Kind(_folder_of_a_stranger, root=True),
    "folder that others can write": Kind(_folder_that_others_write),
    "link to a folder": Kind(_link_to_a_folder),
    "link to a stranger's cache": Kind(_link_to_a_cache_of_a_stranger, root=True),
    "lock of others": Kind(_lock_of_others),
    **{f"file: {put.__name__[1:]}": _with(_no_file, put) for put in (*PUT, _folder)},
    **{f"folder: {put.__name__[1:]}": _with(_no_folder, put) for put in (*PUT, _file)},
    **{f"cache: {put.__name__[1:]}": _with(_no_cache, put) for put in (*PUT, _file)},
    **{f"lock: {put.__name__[1:]}": _with(_lock, put) for put in (*PUT, _folder)},
}


# --- runs
def _answers(names: list[str] | None = None) -> bool:
    """Tell whether every program's answer is NumPy's; ``names``: the files that each one left."""
    right = True
    with alight.policy(force="cpu:generated", floor=0):
        for program in PROGRAMS:
            expected = program(numpy, _X)
            before = {entry.path.name for entry in default_store().entries()}
            for _ in range(2):
                actual = numpy.asarray(program(alight, alight.asarray(_X)))
                right = right and actual.tobytes() == expected.tobytes()
            kernels.settle()
            if names is not None:
                found = [e for e in default_store().entries() if e.kind == "kernel"]
                names += {entry.path.name for entry in found} - before
    return right


def _child(root: Path, user: int) -> dict[str, Any]:
    """Return what the programs give in a process that has this cache."""
    told: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logging.getLogger("alight").addHandler(Listening(logging.WARNING))
    logging.getLogger("alight").propagate = False
    if ROOT:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    os.environ["ALIGHT_CACHE_DIR"] = str(root)
    os.environ["ALIGHT_CALIBRATE"] = "off"
    reload_config()
    LOG.reset()
    names: list[str] = []
    right = _answers(names)
    loaded = LOG.snapshot().counts.get("kernels_loaded", 0)
    modules = [name for name in sys.modules if not name.startswith("__")]
    return {
        "right": right, "told": told, "loaded": loaded, "names": names, "modules": modules
    }  # fmt: skip


def forked(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function gives in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                found = function()
            except BaseException as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            with open(writing, "w") as stream:
                json.dump(found, stream)
        finally:
            os._exit(0)
    os.close(writing)
    text, ends = b"", time.monotonic() + LIMIT_SECONDS
    with open(reading, "rb", buffering=0) as answer:
        while select.select([answer], [], [], max(0.0, ends - time.monotonic()))[0]:
            part = answer.read(1 << 16)
            if not part:
                break
            text += part
        else:
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text or b'{"error": "it ended, or hung, without a word"}')
    return found


def _looks(folder: Path) -> dict[str, Any]:
    """Return what is in a folder, so that a change shows."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if not path.is_symlink()
    }


@contextlib.contextmanager
def caches(users: list[int]) -> Iterator[Callable[[str, int], Iterator[str]]]:
    """Yield what tries a kind of case by a seed: what was wrong with it."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    folder.chmod(0o755)
    try:
        start = folder / "start"
        start.mkdir(0o700)
        # Other users cannot read where modules are: all that is needed is there before.
        for name in forked(lambda: _child(folder / "first", os.getuid()))["modules"]:
            with contextlib.suppress(Exception):
                import_module(name)
        made = forked(lambda: _child(start, os.getuid()))
        assert made.get("right") and len(made["names"]) == len(PROGRAMS), made

        def tried(kind: str, seed: int) -> Iterator[str]:
            chance = random.Random(f"{kind} {seed}")
            user = chance.choice(users)
            here = folder / f"{seed}"
            here.mkdir(0o755)
            case = Case(here / "cache", made["names"], here / "outside", user, chance)
            shutil.copytree(start, case.root)
            case.outside.mkdir()
            case.own(here, user)
            expected = KINDS[kind].make(case)
            if KINDS[kind].make is not _through_a_link_of_the_users:
                before = _looks(case.outside)
            else:
                before = None
            found = forked(lambda: _child(case.root, user))
            if "error" in found:
                yield found["error"]
            elif not found["right"]:
                yield "the answer is wrong"
            elif (len(found["told"]), found["loaded"]) != expected:
                yield f"{found['loaded']} loaded and told {found['told']}; expected {expected}"
            elif not all("Fix: " in told for told in found["told"]):
                yield f"no fix in {found['told']}"
            if before is not None and _looks(case.outside) != before:
                yield "something outside of the cache was changed"
            shutil.rmtree(here)

        yield tried
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def try_many(count: int, first_seed: int) -> tuple[Counter[str], list[str]]:
    """Return how many cases of each kind were tried, all kinds in turn, and what was wrong."""
    kinds = [name for name, kind in KINDS.items() if ROOT or not kind.root]
    done: Counter[str] = Counter()
    wrong: list[str] = []
    with caches([0, USER] if ROOT else [os.getuid()]) as tried:
        for number in range(count):
            kind, seed = kinds[number % len(kinds)], first_seed + number
            done[kind] += 1
            wrong += [f"{kind}, seed {seed}: {what}" for what in tried(kind, seed)]
    return done, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    done, wrong = try_many(given.count, given.seed)
    left_out = [name for name in KINDS if name not in done]
    print("\n".join(wrong))
    print(
        f"{done.total()} cases of {len(done)} kinds from seed {given.seed} on: {len(wrong)} wrong"
        + (f"; left out: {', '.join(left_out)}" if left_out else "")
    )
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
