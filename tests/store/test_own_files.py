"""What is not this user's alone is not read, said once, and nothing waits for it."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from alight._src import store as store_module
from alight._src.base import own_files
from alight._src.store import FILE_BYTES, SCHEMA, Document, Store
from fuzzing import hostile_cache

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no owner and mode")
ROOT = hostile_cache.ROOT


@pytest.fixture(autouse=True)
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_warned", set())


def add(old: Document, new: Document) -> Document:
    return {**old, **new}


def filled(root: Path) -> Store:
    store = Store(root)
    for key in ("one", "two"):
        store.write("profile", key, {"of": key})
        store.write_bytes("kernel", key, key.encode(), {"of": key})
    return Store(root)


def read(store: Store, key: str) -> tuple[Document | None, bytes | None]:
    blob = store.read_bytes("kernel", key)
    return store.read("profile", key), None if blob is None else blob.data


def files(store: Store, key: str) -> list[Path]:
    return [entry.path for entry in store.entries() if entry.key == key]


def test_hostile_caches_run_nothing_and_hang_nothing() -> None:
    kinds = len(hostile_cache.KINDS)
    done, wrong = hostile_cache.try_many(kinds, first_seed=20_000)
    assert not wrong and done.total() == kinds


def test_what_is_made_is_this_users_alone_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = filled(tmp_path / "not" / "there")
    finally:
        os.umask(before)
    made = [tmp_path / "not", *(tmp_path / "not").rglob("*")]
    assert len(made) > 8 and not any(path.stat().st_mode & 0o077 for path in made)
    assert read(store, "one") == ({"of": "one"}, b"one")


def test_files_under_each_others_names_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    for one, other in zip(files(store, "one"), files(store, "two"), strict=True):
        aside = one.with_suffix(".aside")
        os.replace(one, aside)
        os.replace(other, one)
        os.replace(aside, other)
    for _ in range(3):
        assert read(store, "one") == read(store, "two") == (None, None)
    assert len(caplog.records) == 4 and caplog.text.count("digest") == 4
    filled(tmp_path)
    assert read(store, "one") == ({"of": "one"}, b"one")


def test_a_kind_is_no_other_kind(tmp_path: Path) -> None:
    store = filled(tmp_path)
    (tmp_path / f"v{SCHEMA}" / "kernel").rename(tmp_path / f"v{SCHEMA}" / "cubin")
    assert store.read_bytes("cubin", "one") is None


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def giant(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 2**40)


def others(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o666)


def strangers(path: Path) -> None:
    path.write_bytes(b"")
    os.chown(path, 5432, 5432)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def named_twice(path: Path) -> None:
    (path.parents[2] / "other").write_bytes(b"")
    os.link(path.parents[2] / "other", path)


BAD: dict[str, Callable[[Path], None]] = {
    "is a FIFO": fifo,
    "is a socket": bound,
    "is a link": link,
    "is a folder": Path.mkdir,
    f"alight writes {FILE_BYTES} at most": giant,
    "can be written by others": others,
    "has 2 names": named_twice,
    **({"belongs to user 5432": strangers} if ROOT else {}),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("why", BAD)
@pytest.mark.parametrize("key", ["profile/one.json", "kernel/one.bin"])
def test_no_file_of_ours_is_put_aside_and_made_anew(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    key: str,
) -> None:
    store = filled(tmp_path)
    path = tmp_path / f"v{SCHEMA}" / key
    path.unlink()
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    BAD[why](path)
    for _ in range(3):
        document, data = read(store, "one")
        assert (document if "profile" in key else data) is None
    assert len(caplog.records) == 1 and why in caplog.text and "Fix: " in caplog.text
    assert not path.exists() and os.path.lexists(f"{path}.bad")
    filled(tmp_path)
    assert read(store, "one") == ({"of": "one"}, b"one")
    assert store.clear() == 5 and store.entries() == []


FOLDERS: dict[str, Callable[[Path], None]] = {
    "(mode 0777)": lambda path: path.chmod(0o777),
    "(mode 1777)": lambda path: path.chmod(0o1777),
    "(mode 0770)": lambda path: path.chmod(0o770),
    **({"belongs to user 5432": lambda path: os.chown(path, 5432, 0)} if ROOT else {}),
}


@pytest.mark.parametrize("why", FOLDERS)
@pytest.mark.parametrize("inner", [".", f"v{SCHEMA}", f"v{SCHEMA}/kernel"])
def test_a_folder_that_others_write_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str, inner: str
) -> None:
    store = filled(tmp_path / "cache")
    folder = tmp_path / "cache" / inner
    FOLDERS[why](folder)
    before = sorted(folder.rglob("*"))
    for key in ("one", "two", "three"):
        assert store.read_bytes("kernel", key) is None
        assert not store.has_bytes("kernel", key)
        store.write_bytes("kernel", key, b"new", {})
        blob = store.read_bytes("kernel", key)
        assert blob is not None and blob.data == b"new"  # from memory
    assert len(caplog.records) == 1 and why in caplog.text and "Fix: " in caplog.text
    assert str(folder) in caplog.text and sorted(folder.rglob("*")) == before
    assert store.clear() >= 3 and sorted(folder.rglob("*")) == before


ROOTS: dict[str, Callable[[Path], object]] = {
    "is a file": Path.touch,
    "is a FIFO": lambda path: os.mkfifo(path),
    "is a device": lambda path: path.symlink_to("/dev/null"),
    **{why: lambda path, set_=set_: (path.mkdir(), set_(path)) for why, set_ in FOLDERS.items()},
}


@pytest.mark.parametrize("why", ROOTS)
def test_what_a_user_named_is_not_to_be_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    """It may be /tmp or /etc/passwd by mistake: to remove it or its modes would do harm."""
    root = tmp_path / "named"
    ROOTS[why](root)
    store = Store(str(root))
    assert store.read_bytes("kernel", "one") is None
    store.write_bytes("kernel", "one", b"new", {})
    (record,) = caplog.records
    said, _, fix = record.getMessage().partition("Fix: ")
    assert why in said and fix.startswith("name a folder in ALIGHT_CACHE_DIR that only you can")
    assert str(root) not in fix and "chmod" not in fix and "remove" not in fix


def test_no_link_leads_out_of_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = filled(tmp_path / "cache")
    folder = tmp_path / "cache" / f"v{SCHEMA}" / "kernel"
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / ".old.tmp").touch()
    os.utime(tmp_path / "outside" / ".old.tmp", (0, 0))
    assert store.read_bytes("kernel", "one") is None
    store.write_bytes("kernel", "one", b"new", {})
    assert store.clear() == 3  # one in memory, two profiles
    assert len(list((tmp_path / "outside").iterdir())) == 4
    assert len(caplog.records) == 1 and "is a link" in caplog.text


def test_the_cache_itself_may_be_a_link(tmp_path: Path) -> None:
    filled(tmp_path / "there")
    (tmp_path / "cache").symlink_to(tmp_path / "there")
    store = Store(tmp_path / "cache")
    assert read(store, "one") == ({"of": "one"}, b"one")
    store.write("profile", "one", {"of": "new"})
    assert Store(tmp_path / "there").read("profile", "one") == {"of": "new"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("put", [fifo, bound, link, Path.mkdir, others], ids=lambda f: f.__name__)
def test_a_lock_that_is_none_of_ours_is_not_waited_for(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[Path], None],
) -> None:
    store = filled(tmp_path)
    monkeypatch.chdir(tmp_path)
    lock = tmp_path / f"v{SCHEMA}" / "profile" / ".lock"
    lock.unlink()
    put(lock)
    store.write("profile", "one", {"of": "new"})
    store.write("profile", "one", {"more": 1}, merge=add)
    assert store.read("profile", "one") == {"of": "new", "more": 1}
    assert Store(tmp_path).read("profile", "one") == {"of": "one"}
    assert len(caplog.records) == 1 and str(lock) in caplog.text and "Fix: " in caplog.text


SHORT = {"ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE, "EDQUOT": errno.EDQUOT}


@pytest.mark.parametrize("what", SHORT)
def test_a_shortage_is_over_when_it_is_over(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    store = filled(tmp_path)

    def short(*_: object, **__: object) -> int:
        raise OSError(SHORT[what], os.strerror(SHORT[what]), os.urandom(4).hex())

    with monkeypatch.context() as patch:
        patch.setattr(os, "open" if what == "EMFILE" else "fsync", short)
        for number in range(3):
            store.write("profile", "one", {f"n{number}": number}, merge=add)
            store.write_bytes("kernel", f"k{number}", b"code", {})
        store.write("tuned", "new", {"a": 1})
        found = store.read("profile", "one")
        assert found is not None and {"n0": 0, "n1": 1, "n2": 2}.items() <= found.items()
        assert store.problem is not None and store.place("profile", "one") is None
    assert len(caplog.records) == 1 and "Fix: " in caplog.text
    other = Store(tmp_path)
    other.write("profile", "one", {"others": 9}, merge=add)  # another process, meanwhile
    store.write_bytes("kernel", "later", b"code", {})
    assert store.problem is None
    for reader in (store, Store(tmp_path)):
        expected = {"of": "one", "others": 9, "n0": 0, "n1": 1, "n2": 2}
        assert reader.read("profile", "one") == expected
        assert reader.read("tuned", "new") == {"a": 1}
        assert all(reader.read_bytes("kernel", f"k{number}") for number in range(3))
    assert store.place("profile", "one") is not None


def test_what_is_too_large_to_be_read_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FILE_BYTES", 1000)
    store = Store(tmp_path)
    store.write_bytes("kernel", "k", bytes(1000), {})
    store.write("profile", "k", {"text": "x" * 1000})
    assert store.read("profile", "k") == {"text": "x" * 1000} and len(caplog.records) == 1
    assert Store(tmp_path).read("profile", "k") is None and not caplog.text.count("Traceback")


def test_descriptors_are_let_go(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc to count descriptors in")
    store = filled(tmp_path)
    (tmp_path / f"v{SCHEMA}" / "kernel" / "two.bin").chmod(0o666)
    before = count()
    for _ in range(3):
        read(store, "one")
        read(store, "two")
        store.write("profile", "one", {}, merge=add)
        (tmp_path / f"v{SCHEMA}").chmod(0o777)
        read(store, "one")
        store.write_bytes("kernel", "three", b"", {})
        (tmp_path / f"v{SCHEMA}").chmod(0o700)
    assert count() == before


def test_threads_may_write_while_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    synced, turns = os.fsync, iter(range(10_000))

    def sometimes(file: int) -> None:
        if next(turns) % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(file)

    monkeypatch.setattr(os, "fsync", sometimes)

    def count_up() -> None:
        for _ in range(20):
            store.write("count", "n", {"n": 1}, lambda old, new: {"n": old["n"] + new["n"]})

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(os, "fsync", synced)
    store.write("count", "other", {})
    assert Store(tmp_path).read("count", "n") == {"n": 80} == store.read("count", "n")


def test_what_is_not_looked_at_is_said() -> None:
    assert own_files.CHECKED
    assert "macOS" in (own_files.__doc__ or "") and "Windows" in (own_files.__doc__ or "")
