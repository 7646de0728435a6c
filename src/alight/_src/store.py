"""Documents and compiled objects on disk, keyed by fingerprint, that survive anything.

A file is whole or it is not there: it is written beside its place, synced and renamed, and what is
in it, and for which key, is checked when it is read. Updates are locked and merged. Nothing is read
but what this user alone can write (`own_files`). What is not as it was written is put aside as
`*.bad` with one warning; where nothing can be written, or a folder is not this user's alone, the
memory of the process serves instead until it can.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from alight._src.base.at_fork import renewed
from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.file_forms import (
    SCHEMA,
    Blob,
    Document,
    Place,
    canonical,
    digest,
    document_file,
    object_file,
    read_document,
    read_object,
)
from alight._src.base.own_files import Folder, Lock, NotOwn, enter, has
from alight._src.config.loading import config
from alight.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FILE_BYTES",
    "OBJECT_BYTES",
    "SCHEMA",
    "Blob",
    "Document",
    "Entry",
    "Merge",
    "Store",
    "canonical",
    "default_store",
    "digest",
]

OBJECT_BYTES = 512 * 2**20
# What is larger is neither written nor read. The largest that our programs and tests left were a
# kernel of 131 kB and timings of 130 kB: 250 times as much is no file of ours.
FILE_BYTES = 32 * 2**20

Merge = Callable[[Document, Document], Document]
Form = Literal["document", "object", "quarantined"]
_Content = TypeVar("_Content")

_FORMS: Mapping[str, Form] = {".json": "document", ".bin": "object", ".bad": "quarantined"}
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_STALE_SECONDS = 3600.0  # a temporary file as old as this has lost its writer
_WRITES_PER_SCAN = 32  # other processes write too, so the running total is wrong after a while
_KEEP_SHARE = 0.9  # of the cap, after a removal: the next object shall not need one again


class Entry(NamedTuple):
    """One file of the store, or what would be one if it could be written."""

    kind: str
    key: str
    form: Form
    bytes: int
    used_at: float
    path: Path


_Read = Callable[[bytes, Place], _Content | None]


class Store:
    """Documents and objects under a folder; with None, or where nothing can be written, in memory.

    `problem` says why what was written last will not outlive the process; None when it will.
    """

    # A look at what is stored does without pathlib, whose modules take 3 ms: programs wait for it.
    def __init__(
        self, root: str | os.PathLike[str] | None, *, object_bytes: int = OBJECT_BYTES
    ) -> None:
        self.root = None if root is None else os.fspath(root)
        self.object_bytes = object_bytes
        self.problem: str | None = "no folder was given" if root is None else None
        # Another schema has a folder of its own: an older alight beside this one keeps its files.
        self._version = f"v{SCHEMA}"
        self._folder = os.path.join(self.root or "memory", self._version)
        self._memory: dict[str, tuple[bytes, float]] = {}
        # What could not be written: documents as they came, to be merged with what others write.
        self._unwritten: dict[Place, list[tuple[Document, Merge | None]]] = {}
        self._stopped = False  # another process held a lock for longer than any takes
        self._object_total = 0
        self._writes = 0

    def read(self, kind: str, key: str) -> Document | None:
        """Return a document, fresh at every call, or None."""
        return self._load(self._place(kind, key, ".json"), read_document)

    def write(
        self, kind: str, key: str, document: Document, merge: Merge | None = None
    ) -> Document:
        """Return what is stored now: the document, or `merge(old, document)` if there was one.

        No other process writes between the reading and the writing. `merge` must not call the
        store.
        """
        place = self._place(kind, key, ".json")
        new = self._update(place, [(document, merge)])
        self._write_again()
        return new

    def read_bytes(self, kind: str, key: str) -> Blob | None:
        """Return an object whose content was verified, or None; it counts as used now."""
        place = self._place(kind, key, ".bin")
        blob = self._load(place, read_object)
        if place.path in self._memory:
            self._memory[place.path] = (self._memory[place.path][0], time.time())
        return blob

    def has_bytes(self, kind: str, key: str) -> bool:
        """Tell whether an object is there; what is in it is not looked at."""
        place = self._place(kind, key, ".bin")
        if place.path in self._memory:
            return True
        if self.root is not None:
            with ignoring_failures(OSError):
                return has(self.root, self._version, kind, place.name)
        return False

    def write_bytes(self, kind: str, key: str, data: bytes, header: Document) -> None:
        """Keep an object; the longest unused objects go when all are over the cap."""
        place = self._place(kind, key, ".bin")
        content = object_file(header, data, place)
        if len(content) > min(self.object_bytes, FILE_BYTES):
            return  # it would push out everything else, and then itself; or never be read
        self._keep_bytes(place, content)
        self._object_total += len(content)
        if self._object_total > self.object_bytes or self._writes % _WRITES_PER_SCAN == 0:
            self._trim()
        self._writes += 1
        self._write_again()

    def place(self, kind: str, key: str) -> str | None:
        """Return the file of a document; None where it lives in memory only."""
        path = self._place(kind, key, ".json").path
        return None if self.root is None or path in self._memory else path

    def entries(self) -> list[Entry]:
        """Return everything that is stored, by kind and key."""
        from pathlib import Path

        kept = [(Path(path), *held) for path, held in list(self._memory.items())]
        found = {path: self._entry(path, len(content), at) for path, content, at in kept}
        for kind in self._kinds():
            with _as_far_as_possible(), self._enter(kind) as folder:
                for name in folder.names():
                    path = Path(self._folder, kind, name)
                    if path.suffix in _FORMS and path not in found:
                        with ignoring_failures(OSError):  # removed by another process since
                            status = folder.status(name)
                            found[path] = self._entry(path, status.st_size, status.st_mtime)
        return sorted(found.values())

    def remove(self, kind: str, key: str | None = None) -> int:
        """Return how many files went: those of one key, or of the whole kind."""
        self._place(kind, key or "any", "")
        return self._remove(e for e in self.entries() if e.kind == kind and key in (None, e.key))

    def put_aside(self, kind: str, key: str, why: Exception) -> None:
        """Move a document out of the way whose content is of no use to who asked for it."""
        place = self._place(kind, key, ".json")
        self._memory.pop(place.path, None)
        self._unwritten.pop(place, None)
        if self.root is not None:
            with self._exclusive(place.path) as folder:
                self._put_aside(place, folder, why)

    def clear(self) -> int:
        """Return how many files went: all."""
        return self._remove(self.entries())

    def size(self) -> int:
        """Return the bytes of everything that is stored."""
        return sum(entry.bytes for entry in self.entries())

    def _place(self, kind: str, key: str, suffix: str) -> Place:
        for word, pattern in ((kind, _KIND), (key, _KEY)):
            if pattern.fullmatch(word) is None:
                raise StoreError(
                    f"{word!r} cannot name something stored (it must match {pattern.pattern}). "
                    "Fix: take a digest of what it stands for."
                )
        return Place(kind, key, suffix, os.path.join(self._folder, kind, key + suffix))

    def _entry(self, path: Path, size: int, used_at: float) -> Entry:
        key = path.name.partition(".")[0]
        return Entry(path.parent.name, key, _FORMS[path.suffix], size, used_at, path)

    def _enter(self, kind: str, make: bool = False) -> Folder:
        """Return the folder of a kind."""
        return enter(self.root or "", self._version, kind, make=make)

    def _can_ever_write(self) -> bool:
        return self.root is not None and not self._stopped

    def _kinds(self) -> list[str]:
        if self.root is not None:
            with _as_far_as_possible(), enter(self.root, self._version) as folder:
                return [name for name in folder.names() if _KIND.fullmatch(name)]
        return []

    def _load(self, place: Place, read: _Read[_Content]) -> _Content | None:
        try:
            content = self._at_hand(place)
            return None if content is None else read(content, place)
        except failures(ValueError, RecursionError):
            # Look again with the lock: another process may have put a good file there since.
            with self._exclusive(place.path) as folder:
                return self._load_locked(place, folder, read, self._at_hand)

    def _load_locked(
        self,
        place: Place,
        folder: Folder | None,
        read: _Read[_Content],
        get: Callable[[Place], bytes | None],
    ) -> _Content | None:
        try:
            content = get(place)
            return None if content is None else read(content, place)
        except failures(ValueError, RecursionError) as error:
            self._put_aside(place, folder, error)
            return None

    def _at_hand(self, place: Place) -> bytes | None:
        """Return a content, from memory where it is there."""
        kept = self._memory.get(place.path)
        return self._on_disk(place) if kept is None else kept[0]

    def _on_disk(self, place: Place) -> bytes | None:
        """Return what is in a file, None where there is none; ValueError where it is not to be
        used."""
        if self.root is None:
            return None
        with _as_far_as_possible(), self._enter(place.kind) as folder:
            try:
                content = folder.read(place.name, FILE_BYTES)
            except NotOwn as error:
                raise ValueError(f"it {error.why}") from None
            if content is not None and place.suffix == ".bin":
                with ignoring_failures(OSError):
                    folder.touch(place.name)  # it counts as used now
            return content
        return None

    def _put_aside(self, place: Place, folder: Folder | None, error: Exception) -> None:
        aside = place.name + ".bad"
        try:
            if folder is None:
                raise OSError(self.problem)
            folder.rename(place.name, aside)
            _warn_once(
                f"{place.path}: {error}; it is not used, is now {aside} and is made anew. Fix: "
                "`alight cache clear` removes it."
            )
        except failures(OSError) as reason:
            fix = f"remove {place.path}"
            _warn_once(f"{place.path}: {error}; it is not used ({reason}). Fix: {fix}.")

    def _update(self, place: Place, changes: list[tuple[Document, Merge | None]]) -> Document:
        """Return a document after these changes, which are made on disk or else in memory."""
        with self._exclusive(place.path) as folder:
            unwritten = self._unwritten.get(place, [])
            # Others may have written it since, so what is in memory is not all there is.
            every = changes if folder is None else [*unwritten, *changes]
            old = None
            if any(merge is not None for _, merge in every):
                if folder is not None and unwritten:
                    old = self._load_locked(place, folder, read_document, self._on_disk)
                else:
                    old = self._load_locked(place, folder, read_document, self._at_hand)
            for document, merge in every:
                old = document if merge is None or old is None else merge(old, document)
            new = old or {}
            if not every or self._put(place, document_file(new, place), folder):
                return new
            if self._can_ever_write():
                self._unwritten[place] = [*unwritten, *changes]
        return new

    def _keep_bytes(self, place: Place, content: bytes) -> None:
        with self._exclusive(place.path) as folder:
            if not self._put(place, content, folder) and self._can_ever_write():
                self._unwritten[place] = []

    def _write_again(self) -> None:
        """Write what could not be written before, once something could."""
        if self.problem is not None or not self._unwritten:
            return
        for place in list(self._unwritten):
            if self.problem is None and place.suffix == ".json":
                self._update(place, [])
            elif self.problem is None and (kept := self._memory.get(place.path)) is not None:
                self._keep_bytes(place, kept[0])

    def _put(self, place: Place, content: bytes, folder: Folder | None) -> bool:
        """Tell whether a content is on disk now; else it is in memory."""
        if folder is not None:
            try:
                if len(content) > FILE_BYTES:
                    raise OSError(f"{place.name} would have {len(content)} bytes")
                folder.replace(place.name, content)
                self._memory.pop(place.path, None)
                self._unwritten.pop(place, None)
                self.problem = None
                return True
            except failures(OSError) as error:
                self._not_written(error)
        self._memory[place.path] = (content, time.time())
        return False

    @contextlib.contextmanager
    def _exclusive(self, path: str) -> Iterator[Folder | None]:
        """Yield the folder of a file, alone among threads and processes; None where nothing can be
        written there."""
        # Threads wait for one another however long a disk takes. The limit is for other processes,
        # one of which may have been stopped: a file's lock is asked for again and again, and of
        # several threads that ask on a slow disk one may have it every time.
        with _threads_lock, contextlib.ExitStack() as held:
            folder = None
            if self._can_ever_write():
                try:
                    folder = held.enter_context(
                        self._enter(os.path.basename(os.path.dirname(path)), make=True)
                    )
                    held.callback(Lock(folder).release)
                except failures(OSError) as error:
                    folder = None
                    self._not_written(error)
            yield folder

    def _not_written(self, error: OSError) -> None:
        """Say, once, why what was to be written is in memory only."""
        self.problem = f"{type(error).__name__}: {error}"
        if isinstance(error, NotOwn):
            return _distrusted(error)
        if isinstance(error, TimeoutError):
            # For good: to ask again would cost every later write the same wait.
            self._stopped = True
        _warn_once(
            f"{self.root} cannot be written ({self.problem}), so what is not written by the end "
            "does not outlive this process. Fix: let it be written, make room there, or name "
            "another folder in ALIGHT_CACHE_DIR.",
            (self.root, error.errno),
        )
        return None

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
                with ignoring_failures(OSError):
                    self._unlink(entry)
                self._object_total -= entry.bytes
        for kind in self._kinds():
            with _as_far_as_possible(), self._enter(kind) as folder:
                for name in folder.names():
                    with ignoring_failures(OSError):
                        left = name.endswith(".tmp")
                        if left and folder.status(name).st_mtime < time.time() - _STALE_SECONDS:
                            folder.unlink(name)

    def _unlink(self, entry: Entry) -> bool:
        """Tell whether an entry was there, and is not any more."""
        in_memory = self._memory.pop(str(entry.path), None) is not None
        for place in [place for place in self._unwritten if place.path == str(entry.path)]:
            del self._unwritten[place]
        try:
            if self.root is not None:
                with self._enter(entry.kind) as folder:
                    folder.unlink(entry.path.name)
                    return True
        except failures(OSError) as error:
            # another process was faster, or it was never written
            if not in_memory and not isinstance(error, FileNotFoundError):
                raise
        return in_memory

    def _remove(self, entries: Iterator[Entry] | list[Entry]) -> int:
        removed = 0
        for entry in entries:
            try:
                removed += self._unlink(entry)
            except failures(OSError) as error:
                raise StoreError(
                    f"{entry.path} cannot be removed ({error}). Fix: remove it by hand, or "
                    "name another folder in ALIGHT_CACHE_DIR."
                ) from error
        return removed


@contextlib.contextmanager
def _as_far_as_possible() -> Iterator[None]:
    """Go on where something cannot be opened; say which folder is not to be trusted."""
    try:
        yield
    except NotOwn as error:
        _distrusted(error)
    except failures(OSError):
        pass


def _distrusted(error: NotOwn) -> None:
    _warn_once(f"{error}, so it is not used. Fix: {error.fix}.")


_threads_lock = renewed(globals(), "_threads_lock", threading.RLock)
_warned: set[object] = set()
_default: Store | None = None


def _warn_once(message: str, problem: object = None) -> None:
    """Log a message, once for a problem, by default for its text."""
    if (problem := problem or message) not in _warned:
        import logging

        _warned.add(problem)
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
