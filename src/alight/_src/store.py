"""Documents and compiled objects on disk, keyed by fingerprint, that survive anything.

A file is whole or it is not there: it is written beside its place, synced and renamed, and what is
in it is checked when it is read. Updates are locked and merged. What cannot be read is put aside as
`*.bad` with one warning; where nothing can be written, the memory of the process serves instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from alight._src.base.at_fork import renewed
from alight._src.base.hashing import sha256
from alight._src.config.loading import config
from alight.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

SCHEMA = 1  # of the files; a kind that changes what it stores says so in its keys
OBJECT_BYTES = 512 * 2**20

Document = dict[str, Any]
Merge = Callable[[Document, Document], Document]
Form = Literal["document", "object", "quarantined"]
_Content = TypeVar("_Content")

_FORMS: Mapping[str, Form] = {".json": "document", ".bin": "object", ".bad": "quarantined"}
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_LOCK_SECONDS = 10.0  # far above any update: only a stopped process holds a lock for longer
_STALE_SECONDS = 3600.0  # a temporary file as old as this has lost its writer
_WRITES_PER_SCAN = 32  # other processes write too, so the running total is wrong after a while
_KEEP_SHARE = 0.9  # of the cap, after a removal: the next object shall not need one again


class Blob(NamedTuple):
    """A compiled object and what was noted about it."""

    header: Document
    data: bytes


class Entry(NamedTuple):
    """One file of the store, or what would be one if it could be written."""

    kind: str
    key: str
    form: Form
    bytes: int
    used_at: float
    path: Path


def canonical(value: object) -> str:
    """Return the one JSON text of a value: keys sorted, no spaces, a tuple as a list."""
    return _as_text(_plain(value))


def _as_text(plain: object) -> str:
    import json

    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _plain(value: object) -> object:
    # The json module turns the key 1 into "1" and so makes two keys one; hence the walk.
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError(
        f"{type(value).__name__} {value!r} cannot be stored or digested. Fix: use dicts with text "
        "keys, lists, text, numbers, true, false and None."
    )


def digest(value: object, domain: str = "document") -> str:
    """Return the SHA-256 of a value's canonical JSON; another domain gives another digest."""
    return sha256(f"alight\0{domain}\0{canonical(value)}".encode())


def _document_file(document: object, path: str) -> bytes:
    text = canonical(document)
    kind, name = path.split(os.sep)[-2:]
    envelope = {"schema": SCHEMA, "kind": kind, "key": name.partition(".")[0]}
    envelope["sha256"] = sha256(text.encode())
    return f'{canonical(envelope)[:-1]},"document":{text}}}\n'.encode()


def _read_document(content: bytes) -> Document | None:
    """Return the document of a file; None when another version of alight wrote it."""
    import json

    envelope = json.loads(content)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("schema"), int):
        raise ValueError("it has no schema version")
    if envelope["schema"] != SCHEMA:
        return None
    document = envelope.get("document")
    if not isinstance(document, dict):
        raise ValueError("it holds no document")
    # As we wrote it, its bytes are what was digested; put otherwise it means the same. What comes
    # out of JSON is plain already.
    asis = content.partition(b',"document":')[2].removesuffix(b"}\n")
    given = envelope.get("sha256")
    if given != sha256(asis) and given != sha256(_as_text(document).encode()):
        raise ValueError("its document does not match its digest")
    return document


def _object_file(header: Document, data: bytes) -> bytes:
    body = canonical(header).encode() + b"\n" + data
    return f"alight {SCHEMA} {sha256(body)}\n".encode() + body


def _read_object(content: bytes) -> Blob | None:
    """Return the object of a file; None when another version of alight wrote it."""
    import json

    first, _, body = content.partition(b"\n")
    name, schema, expected = (*first.split(b" "), b"", b"", b"")[:3]
    if name != b"alight" or not schema.isdigit():
        raise ValueError("its first line is not one of alight's")
    if int(schema) != SCHEMA:
        return None
    if expected != sha256(body).encode():
        raise ValueError("its content does not match its digest")
    header, _, data = body.partition(b"\n")
    return Blob(json.loads(header), data)


class Store:
    """Documents and objects under a folder; with None, or where nothing can be written, in memory.

    `problem` says why what is written now will not outlive the process; None when it will.
    """

    # A look at what is stored does without pathlib, whose modules take 3 ms: programs wait for it.
    def __init__(
        self, root: str | os.PathLike[str] | None, *, object_bytes: int = OBJECT_BYTES
    ) -> None:
        self.root = None if root is None else os.fspath(root)
        self.object_bytes = object_bytes
        self.problem: str | None = "no folder was given" if root is None else None
        # Another schema has a folder of its own: an older alight beside this one keeps its files.
        self._folder = os.path.join(self.root or "memory", f"v{SCHEMA}")
        self._memory: dict[str, tuple[bytes, float]] = {}
        self._object_total = 0
        self._writes = 0

    def read(self, kind: str, key: str) -> Document | None:
        """Return a document, fresh at every call, or None."""
        return self._load(self._path(kind, key, ".json"), _read_document)

    def write(
        self, kind: str, key: str, document: Document, merge: Merge | None = None
    ) -> Document:
        """Return what is stored now: the document, or `merge(old, document)` if there was one.

        No other process writes between the reading and the writing. `merge` must not call the
        store.
        """
        path = self._path(kind, key, ".json")
        with self._exclusive(path) as on_disk:
            old = self._load_locked(path, _read_document) if merge is not None else None
            new = document if merge is None or old is None else merge(old, document)
            self._put(path, _document_file(new, path), on_disk)
        return new

    def read_bytes(self, kind: str, key: str) -> Blob | None:
        """Return an object whose content was verified, or None; it counts as used now."""
        path = self._path(kind, key, ".bin")
        blob = self._load(path, _read_object)
        if path in self._memory:
            self._memory[path] = (self._memory[path][0], time.time())
        elif blob is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return blob

    def has_bytes(self, kind: str, key: str) -> bool:
        """Tell whether an object is there; what is in it is not looked at."""
        path = self._path(kind, key, ".bin")
        return path in self._memory or (self.root is not None and os.path.exists(path))

    def write_bytes(self, kind: str, key: str, data: bytes, header: Document) -> None:
        """Keep an object; the longest unused objects go when all are over the cap."""
        path = self._path(kind, key, ".bin")
        content = _object_file(header, data)
        if len(content) > self.object_bytes:
            return  # it would push out everything else, and then itself
        with self._exclusive(path) as on_disk:
            self._put(path, content, on_disk)
        self._object_total += len(content)
        if self._object_total > self.object_bytes or self._writes % _WRITES_PER_SCAN == 0:
            self._trim()
        self._writes += 1

    def entries(self) -> list[Entry]:
        """Return everything that is stored, by kind and key."""
        from pathlib import Path

        kept = [(Path(path), *held) for path, held in list(self._memory.items())]
        found = {path: self._entry(path, len(content), at) for path, content, at in kept}
        for path in Path(self._folder).glob("*/*") if self.root is not None else ():
            with contextlib.suppress(OSError):  # removed by another process since
                if path.suffix in _FORMS and path not in found:
                    status = path.stat()
                    found[path] = self._entry(path, status.st_size, status.st_mtime)
        return sorted(found.values())

    def remove(self, kind: str, key: str | None = None) -> int:
        """Return how many files went: those of one key, or of the whole kind."""
        self._path(kind, key or "any", "")
        return self._remove(e for e in self.entries() if e.kind == kind and key in (None, e.key))

    def put_aside(self, kind: str, key: str, why: Exception) -> None:
        """Move a document out of the way whose content is of no use to who asked for it."""
        path = self._path(kind, key, ".json")
        self._memory.pop(path, None)
        if self.root is not None:
            with self._exclusive(path):
                self._put_aside(path, why)

    def clear(self) -> int:
        """Return how many files went: all."""
        return self._remove(self.entries())

    def size(self) -> int:
        """Return the bytes of everything that is stored."""
        return sum(entry.bytes for entry in self.entries())

    def _path(self, kind: str, key: str, suffix: str) -> str:
        for word, pattern in ((kind, _KIND), (key, _KEY)):
            if pattern.fullmatch(word) is None:
                raise StoreError(
                    f"{word!r} cannot name something stored (it must match {pattern.pattern}). "
                    "Fix: take a digest of what it stands for."
                )
        return os.path.join(self._folder, kind, key + suffix)

    def _entry(self, path: Path, size: int, used_at: float) -> Entry:
        key = path.name.partition(".")[0]
        return Entry(path.parent.name, key, _FORMS[path.suffix], size, used_at, path)

    def _load(self, path: str, read: Callable[[bytes], _Content | None]) -> _Content | None:
        content = self._get(path)
        try:
            return None if content is None else read(content)
        except (ValueError, RecursionError):
            # Look again with the lock: another process may have put a good file there since.
            with self._exclusive(path):
                return self._load_locked(path, read)

    def _load_locked(self, path: str, read: Callable[[bytes], _Content | None]) -> _Content | None:
        content = self._get(path)
        try:
            return None if content is None else read(content)
        except (ValueError, RecursionError) as error:
            self._put_aside(path, error)
            return None

    def _put_aside(self, path: str, error: Exception) -> None:
        aside = path + ".bad"
        try:
            os.replace(path, aside)
            _warn_once(f"{path}: {error}; it is now {os.path.basename(aside)} and is made anew.")
        except OSError as reason:
            _warn_once(f"{path}: {error}; it is not used ({reason}). Fix: remove it.")

    def _get(self, path: str) -> bytes | None:
        if (kept := self._memory.get(path)) is not None:
            return kept[0]
        if self.root is None:
            return None
        try:
            with open(path, "rb") as stream:
                return stream.read()
        except OSError:
            return None

    def _put(self, path: str, content: bytes, on_disk: bool) -> None:
        if on_disk:
            try:
                _replace(path, content)
                self._memory.pop(path, None)
                return
            except OSError as error:
                self._give_up(error)
        self._memory[path] = (content, time.time())

    @contextlib.contextmanager
    def _exclusive(self, path: str) -> Iterator[bool]:
        """Yield whether the folder of a file can be written, alone among threads and processes."""
        # Threads wait for one another however long a disk takes. The limit is for other processes,
        # one of which may have been stopped: a file's lock is asked for again and again, and of
        # several threads that ask on a slow disk one may have it every time.
        with _threads_lock:
            lock = None
            if self.problem is None:
                try:
                    lock = _Lock(os.path.dirname(path))
                except OSError as error:
                    self._give_up(error)
            try:
                yield lock is not None
            finally:
                if lock is not None:
                    lock.release()

    def _give_up(self, error: OSError) -> None:
        # Once for the process: to try again would cost every later write the same wait.
        self.problem = f"{type(error).__name__}: {error}"
        _warn_once(
            f"{self.root} cannot be written ({self.problem}), so nothing outlives this process. "
            "Fix: name a folder that can be written in ALIGHT_CACHE_DIR."
        )

    def _trim(self) -> None:
        objects = sorted(
            (entry for entry in self.entries() if entry.form == "object"),
            key=lambda entry: (entry.used_at, entry.path),
        )
        self._object_total = sum(entry.bytes for entry in objects)
        if self._object_total > self.object_bytes:
            for entry in objects:
                if self._object_total <= self.object_bytes * _KEEP_SHARE:
                    break
                self._memory.pop(str(entry.path), None)
                with contextlib.suppress(OSError):
                    entry.path.unlink(missing_ok=True)
                self._object_total -= entry.bytes
        from pathlib import Path

        for path in Path(self._folder).glob("*/*.tmp") if self.problem is None else ():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                    path.unlink()

    def _remove(self, entries: Iterator[Entry] | list[Entry]) -> int:
        removed = 0
        for entry in entries:
            in_memory = self._memory.pop(str(entry.path), None)
            try:
                entry.path.unlink(missing_ok=in_memory is not None)
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                if in_memory is None:
                    raise StoreError(
                        f"{entry.path} cannot be removed ({error}). Fix: remove it by hand, or "
                        "name another folder in ALIGHT_CACHE_DIR."
                    ) from error
            removed += 1
        return removed


def _replace(path: str, content: bytes) -> None:
    # Random, since processes in two containers can have the same number and share this folder.
    temporary = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # or the rename may reach the disk before the content
        for attempt in range(20):
            try:
                os.replace(temporary, path)
                return
            except PermissionError:  # Windows, while somebody reads the old file
                if sys.platform != "win32" or attempt == 19:
                    raise
                time.sleep(0.005)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class _Lock:
    """An exclusive lock on a folder, freed by the system when its process dies."""

    def __init__(self, folder: str) -> None:
        if not os.path.isdir(folder):
            from pathlib import Path

            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._held: str | None = None
        self._file = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        deadline, pause = time.monotonic() + _LOCK_SECONDS, 0.0005
        try:
            while not self._try(folder):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process holds {os.path.join(folder, '.lock')}")
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
        except BaseException:
            os.close(self._file)
            raise

    def _try(self, folder: str) -> bool:
        try:
            if sys.platform == "win32":
                msvcrt.locking(self._file, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return False
        # Some network folders have no locks. Two who break a stale lock in the same instant may
        # both go on: an update can be lost then, a file cannot, because each is replaced whole.
        held = os.path.join(folder, ".held")
        with contextlib.suppress(FileNotFoundError):
            if os.stat(held).st_mtime < time.time() - _LOCK_SECONDS:
                os.unlink(held)
        try:
            os.close(os.open(held, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        self._held = held
        return True

    def release(self) -> None:
        if self._held is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._held)
        elif sys.platform == "win32":
            os.lseek(self._file, 0, os.SEEK_SET)
            msvcrt.locking(self._file, msvcrt.LK_UNLCK, 1)
        else:
            # Said, not left to the closing: a forked child may still hold the same open file.
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)


_threads_lock = renewed(globals(), "_threads_lock", threading.RLock)
_warned: set[str] = set()
_default: Store | None = None


def _warn_once(message: str) -> None:
    if message not in _warned:
        import logging

        _warned.add(message)
        logging.getLogger("alight").warning("%s", message)


def default_store() -> Store:
    """Return the store of this process, in the configured cache folder."""
    global _default
    root: str | None = config().cache_folder()
    if root is not None and not os.path.isabs(root):
        # Without a home directory the path stays "~/…", relative to wherever we are.
        _warn_once(f"there is no home for {root}. Fix: name a folder in ALIGHT_CACHE_DIR.")
        root = None
    if _default is None or _default.root != root:
        _default = Store(root)
    return _default
