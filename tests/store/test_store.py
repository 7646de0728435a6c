"""The store: whole files or none, whatever is killed, corrupt, concurrent or read-only."""

from __future__ import annotations

import json
import logging
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from alight._src import store as store_module
from alight._src.base import own_files
from alight._src.config.loading import reload_config
from alight._src.store import SCHEMA, Document, Store, default_store, digest
from alight.errors import StoreError

VERSION = f"v{SCHEMA}"
SCHEMA_TEXT = b'"schema":%d' % SCHEMA
SOURCE = Path(store_module.__file__).parents[1]


@pytest.fixture(autouse=True)
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_warned", set())


def names(store: Store) -> list[tuple[str, str, str]]:
    return [(entry.kind, entry.key, entry.form) for entry in store.entries()]


def add(old: Document, new: Document) -> Document:
    return {**old, **new}


DOCUMENT: Document = {
    "text": "äß \ud800 \0",
    "numbers": [0, -1, 2**70, 1.5, -0.0, 1e-320, math.inf, -math.inf],
    "nested": {"b": {"a": [True, False, None, {}]}, "": []},
}


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_written_is_read(tmp_path: Path, on_disk: bool) -> None:
    root = tmp_path / "not" / "there" if on_disk else None
    store = Store(root)
    assert store.read("profile", "k") is None and store.read_bytes("kernel", "k") is None
    store.write("profile", "k", DOCUMENT)
    store.write_bytes("kernel", "k", b"\0\nALIGHT\n" * 9, {"name": "add"})
    for reader in [store, Store(root)] if on_disk else [store]:
        assert reader.read("profile", "k") == DOCUMENT
        assert reader.read_bytes("kernel", "k") == ({"name": "add"}, b"\0\nALIGHT\n" * 9)
        assert names(reader) == [("kernel", "k", "object"), ("profile", "k", "document")]
        assert reader.size() == sum(entry.bytes for entry in reader.entries()) > 81
    assert (store.problem is None) == on_disk
    first = store.read("profile", "k")
    assert first is not None
    first["text"] = "changed"
    assert store.read("profile", "k") == DOCUMENT


def test_a_nan_survives_in_a_document(tmp_path: Path) -> None:
    Store(tmp_path).write("profile", "k", {"value": math.nan})
    again = Store(tmp_path).read("profile", "k")
    assert again is not None and math.isnan(again["value"])


@pytest.mark.parametrize("root", ["disk", None])
def test_merge_sees_the_old_document(tmp_path: Path, root: str | None) -> None:
    store = Store(tmp_path / root if root else None)
    assert store.write("tuned", "k", {"a": 1}, merge=add) == {"a": 1}
    assert store.write("tuned", "k", {"b": 2}, merge=add) == {"a": 1, "b": 2}
    assert store.read("tuned", "k") == {"a": 1, "b": 2}
    assert store.write("tuned", "k", {"c": 3}) == {"c": 3}

    def fail(old: Document, new: Document) -> Document:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write("tuned", "k", {}, merge=fail)
    assert store.write("tuned", "k", {"d": 4}, merge=add) == {"c": 3, "d": 4}


def test_remove_and_clear_take_what_they_name(tmp_path: Path) -> None:
    for store in (Store(tmp_path), Store(None)):
        for key in ("one", "two"):
            store.write("profile", key, {})
            store.write_bytes("kernel", key, b"x", {})
        assert store.remove("profile", "three") == 0
        assert store.remove("profile", "one") == 1 and store.remove("kernel") == 2
        assert names(store) == [("profile", "two", "document")]
        assert store.clear() == 1 and store.entries() == [] and store.size() == 0


def test_a_document_is_readable_json_with_its_schema(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("profile", "k", {"b": 1, "a": [2]})
    (entry,) = store.entries()
    file = json.loads(entry.path.read_text())
    assert (file["schema"], file["kind"], file["key"]) == (SCHEMA, "profile", "k")
    assert file["document"] == {"a": [2], "b": 1}


def test_a_digest_is_of_the_value_and_its_domain() -> None:
    assert digest({"a": 1, "b": (2, 3)}) == digest({"b": [2, 3], "a": 1})
    values: list[object] = [1, 1.0, "1", True, None, [], {}, [1], "", 0.0, -0.0, "\0", {"": None}]
    assert len({digest(value) for value in values}) == len(values)
    assert len({digest(1), digest(1, "plan"), digest(1, "kernel")}) == 3
    for bad in ({1: 2}, {"a": {3}}, b"x", object()):
        with pytest.raises(TypeError, match="Fix: "):
            digest(bad)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a.b", "A b", "x" * 200, ".lock"])
def test_a_name_that_is_no_name_is_an_error(name: str) -> None:
    for kind, key in (("profile", name), (name, "k")):
        with pytest.raises(StoreError, match="Fix: take a digest"):
            Store(None).write(kind, key, {})


CORRUPTIONS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "one byte": lambda content: content[:-4] + bytes([content[-4] ^ 1]) + content[-3:],
    "zeros": lambda content: bytes(len(content)),
    "binary": lambda content: os.urandom(64),
    "a list": lambda content: b"[1, 2]",
    "no schema": lambda content: content.replace(SCHEMA_TEXT, b'"schema":"x"').replace(
        b"alight %d" % SCHEMA, b"alight x"
    ),
    "deep": lambda content: b"[" * 100_000,
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
@pytest.mark.parametrize("form", ["document", "object"])
def test_a_corrupt_file_is_put_aside_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, corruption: str, form: str
) -> None:
    store = Store(tmp_path)

    def write() -> None:
        if form == "document":
            store.write("profile", "k", {"seconds": 12345}, merge=add)
        else:
            store.write_bytes("profile", "k", b"12345", {"n": 1})

    def read() -> object:
        return (store.read if form == "document" else store.read_bytes)("profile", "k")

    write()
    (entry,) = store.entries()
    bad = CORRUPTIONS[corruption](entry.path.read_bytes())
    entry.path.write_bytes(bad)
    assert read() is None and read() is None
    assert names(store) == [("profile", "k", "quarantined")]
    assert store.entries()[0].path.read_bytes() == bad
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(entry.path) in caplog.text
    write()
    assert read() is not None and len(store.entries()) == 2
    # The update itself meets a corrupt file, too: it must not merge with it.
    entry.path.write_bytes(bad)
    write()
    assert read() is not None and store.clear() == 2


def test_a_file_of_another_schema_is_a_miss_and_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    store.write("profile", "k", {"a": 1})
    store.write_bytes("kernel", "k", b"x", {})
    for entry in store.entries():
        content = entry.path.read_bytes()
        for old, new in ((SCHEMA_TEXT, b'"schema":99'), (b"alight %d " % SCHEMA, b"alight 99 ")):
            content = content.replace(old, new)
        entry.path.write_bytes(content)
    assert store.read("profile", "k") is None and store.read_bytes("kernel", "k") is None
    assert len(store.entries()) == 2 and not caplog.records


def test_a_home_that_cannot_be_written_serves_from_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A file where a folder should be binds everybody; permission bits do not bind root.
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "cache")
    assert store.read("profile", "k") is None and store.entries() == []
    store.write("profile", "k", {"a": 1})
    store.write("profile", "k", {"b": 2}, merge=add)
    store.write_bytes("kernel", "k", b"code", {"n": 1})
    assert store.read("profile", "k") == {"a": 1, "b": 2}
    assert store.read_bytes("kernel", "k") == ({"n": 1}, b"code")
    assert store.problem is not None and "NotADirectory" in store.problem
    assert len(caplog.records) == 1 and "Fix: " in caplog.text
    assert store.clear() == 2 and store.entries() == []


def test_a_full_disk_serves_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    store.write("profile", "k", {"a": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    store.write("profile", "k", {"b": 2}, merge=add)
    assert store.read("profile", "k") == {"a": 1, "b": 2}
    assert Store(tmp_path).read("profile", "k") == {"a": 1}  # whole, if old
    assert len(caplog.records) == 1 and not list(tmp_path.rglob("*.tmp"))


def test_a_held_lock_is_waited_for_and_then_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own_files, "LOCK_SECONDS", 0.05)
    store = Store(tmp_path)
    with Store(tmp_path)._exclusive(str(tmp_path / VERSION / "profile" / "k.json")):
        store.write("profile", "k", {"a": 1})
    assert store.read("profile", "k") == {"a": 1} and "TimeoutError" in caplog.text
    assert Store(tmp_path).read("profile", "k") is None


@pytest.mark.skipif(sys.platform == "win32", reason="replaces fcntl.flock")
def test_where_the_file_system_has_no_locks_a_file_is_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_file: int, _how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    folder = tmp_path / VERSION / "count"
    count_up(Store(tmp_path), threads=4, each=10)
    assert not (folder / ".held").exists()
    monkeypatch.setattr(own_files, "LOCK_SECONDS", 0.2)
    (folder / ".held").touch()  # by a process that was killed
    os.utime(folder / ".held", (0, 0))
    store = Store(tmp_path)
    store.write("count", "k", {"n": 1})
    assert store.problem is None


def count_up(store: Store, threads: int, each: int) -> None:
    def increment(_: int) -> None:
        store.write("count", "n", {"n": 1}, merge=lambda old, new: {"n": old["n"] + new["n"]})

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(increment, range(threads * each)))
    assert store.read("count", "n") == {"n": threads * each}


@pytest.mark.parametrize("on_disk", [True, False])
def test_threads_lose_no_update(tmp_path: Path, on_disk: bool) -> None:
    count_up(Store(tmp_path if on_disk else None), threads=8, each=20)


def test_threads_wait_for_one_another_however_slow_the_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = os.replace

    def slow(source: str, target: str, **where: Any) -> None:
        time.sleep(0.02)
        replaced(source, target, **where)

    monkeypatch.setattr(os, "replace", slow)
    monkeypatch.setattr(own_files, "LOCK_SECONDS", 0.01)  # of other processes
    store = Store(tmp_path)
    count_up(store, threads=8, each=3)
    assert store.problem is None


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_longest_unused_objects_go_first(tmp_path: Path, on_disk: bool) -> None:
    store = Store(tmp_path if on_disk else None, object_bytes=5000)
    store.write("profile", "k", {"text": "x" * 9000})  # documents are not under the cap
    for number in range(4):
        store.write_bytes("kernel", f"k{number}", bytes(1000), {})
        for entry in store.entries() if on_disk else ():
            if entry.key == f"k{number}":  # apart, however coarse the clock of files is
                os.utime(entry.path, (1e9 + number, 1e9 + number))
    assert store.read_bytes("kernel", "k0") is not None
    store.write_bytes("kernel", "k4", bytes(1000), {})
    kept = [entry.key for entry in store.entries() if entry.form == "object"]
    assert kept == ["k0", "k2", "k3", "k4"][-len(kept) :] or kept == ["k0", "k3", "k4"]
    assert "k0" in kept and "k4" in kept and "k1" not in kept
    assert sum(entry.bytes for entry in store.entries() if entry.form == "object") <= 5000
    store.write_bytes("kernel", "huge", bytes(6000), {})
    assert store.read_bytes("kernel", "huge") is None and store.read("profile", "k") is not None


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_bytes("kernel", "k", b"x", {})
    old, young = (tmp_path / VERSION / "kernel" / name for name in (".old.tmp", ".young.tmp"))
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    assert len(store.entries()) == 1
    Store(tmp_path).write_bytes("kernel", "k2", b"x", {})
    assert not old.exists() and young.exists()


def test_the_default_store_is_in_the_configured_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("ALIGHT_CACHE_DIR", str(tmp_path / "cache"))
        reload_config()
        store = default_store()
        assert store is default_store() and store.root == str(tmp_path / "cache")
        assert not (tmp_path / "cache").exists()  # to ask is not to write
    reload_config()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_a_lock_is_held_blocks_nobody(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for store in (Store(tmp_path), Store(None)):
        held, release = threading.Event(), threading.Event()

        def hold(store: Store, held: threading.Event, release: threading.Event) -> None:
            with store._exclusive(str(tmp_path / VERSION / "profile" / "k.json")):
                held.set()
                release.wait()

        thread = threading.Thread(target=hold, args=(store, held, release))
        thread.start()
        held.wait()
        # Both children inherit what the thread holds; neither has the thread.
        sleeper = context.Process(target=time.sleep, args=(60,))
        writer = context.Process(target=store.write, args=("profile", "k", {"b": 1}))
        sleeper.start()
        writer.start()
        release.set()
        thread.join()
        try:
            store.write("profile", "k", {"a": 1}, merge=add)
            writer.join()
            assert writer.exitcode == 0
        finally:
            sleeper.kill()
            sleeper.join()
        assert store.problem is None or store.root is None


WORKER = """
import os, sys
from pathlib import Path
from alight._src.store import Store
root, worker, acknowledged = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
store = Store(root, object_bytes=60_000)
start = (store.read("count", "shared") or {}).get(worker, 0)
out = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
add = lambda old, new: {**old, **new, "filler": "x" * ((old.get("n", 0) * 7919) % 9000)}
for n in range(start + 1, 1_000_000):
    store.write("count", "shared", {worker: n}, merge=add)
    os.write(out, b"%d\\n" % n)
    data = b"%d " % n * (n % 2000)
    store.write_bytes("kernel", f"{worker}-{n % 9}", data, {"n": n, "size": len(data)})
    blob = store.read_bytes("kernel", f"{worker}-{(n + 3) % 9}")
    if blob is not None:
        assert blob.header["size"] == len(blob.data), blob.header
        assert blob.data == b"%d " % blob.header["n"] * (blob.header["n"] % 2000)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_processes_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"}
    chance = random.Random(7)
    running: dict[str, subprocess.Popen[str]] = {}

    def start(worker: str) -> None:
        command = [sys.executable, "-c", WORKER, str(tmp_path / "cache"), worker]
        running[worker] = subprocess.Popen(
            [*command, str(tmp_path / worker)], env=environ, stderr=subprocess.PIPE, text=True
        )

    def stop(worker: str) -> str:
        process = running.pop(worker)
        process.send_signal(signal.SIGKILL)
        return process.communicate()[1]

    def written(worker: str) -> bool:
        path = tmp_path / worker
        return path.exists() and path.stat().st_size > 0

    errors = ""
    workers = [f"w{n}" for n in range(4)]
    try:
        for worker in workers:
            start(worker)
        # However long the machine takes for it: every worker has had a write acknowledged.
        while not all(map(written, workers)):
            assert all(process.poll() is None for process in running.values()), "a worker ended"
            time.sleep(0.02)
        for _ in range(8):
            time.sleep(chance.uniform(0.1, 0.5))
            victim = chance.choice(workers)
            errors += stop(victim)
            start(victim)
        time.sleep(0.5)
    finally:
        errors += "".join(stop(worker) for worker in list(running))
    assert errors == ""

    store = Store(tmp_path / "cache")
    shared: dict[str, Any] = store.read("count", "shared") or {}
    for worker in workers:
        acknowledged = [int(line) for line in (tmp_path / worker).read_text().split()]
        assert acknowledged == sorted(set(acknowledged)), "a write was lost and counted again"
        # The last write may have been finished and not yet acknowledged.
        assert shared[worker] - acknowledged[-1] in (0, 1)
    objects = [entry for entry in store.entries() if entry.form == "object"]
    assert objects and all(store.read_bytes("kernel", entry.key) for entry in objects)
    assert {entry.form for entry in store.entries()} == {"object", "document"}
