"""Folders and files that this user alone can write, since what lies in them may be run.

A file is reached from the folder that a user named step by step, each folder opened in the one
before it, so that no link leads out of it; what was looked at is what is read.

Not seen: access lists that stand beside the mode, as those of macOS and NFS 4 do (POSIX ones show
in it). Windows has no owner and mode to look at (`CHECKED` is False): there a file must be a plain
one of bounded size, and who can write it is left to the folder of the user's profile.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time

from alight._src.base.failures import failures, ignoring_failures

__all__ = ["CHECKED", "Folder", "Lock", "NotOwn", "enter", "has"]

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

CHECKED = sys.platform != "win32"
# Far above any update: only a stopped process holds a lock for longer.
LOCK_SECONDS = 10.0

# What Windows lacks counts as 0: no file there has such a meaning. Nothing but plain files is
# opened; without O_NONBLOCK one that became a FIFO meanwhile would be waited for.
_PLAIN = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)  # fmt: skip
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_OTHERS_WRITE = 0o022
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


# The root is whatever a user named, which may be any folder or file of the machine: nothing is said
# that would change it. What is under it has names of alight's, and is made anew.
_ROOT_FIX = (
    "name a folder in ALIGHT_CACHE_DIR that only you can write; one that is not there is made"
)


class NotOwn(OSError):
    """What is at a path is no plain file or folder of this user alone."""

    def __init__(self, path: str, why: str, fix: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path
        self.why = why
        self.fix = fix


def _check(path: str, found: os.stat_result, kind: int, root: bool = False) -> None:
    """Raise NotOwn unless this is of that kind, this user's, and nobody else can write it."""
    is_kind, mode = stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode)
    within = f"remove {path} if alight made it, else name another folder in ALIGHT_CACHE_DIR"
    fix = _ROOT_FIX if root else within
    if is_kind != kind:
        why = f"is {_KINDS.get(is_kind, 'something')}, not {_KINDS[kind]}"
        raise NotOwn(path, why, fix)
    if sys.platform == "win32":
        return
    if found.st_uid != (me := os.geteuid()):
        why = f"belongs to user {found.st_uid}, and this program is run by {me}"
        raise NotOwn(path, why, fix)
    if mode & _OTHERS_WRITE:
        raise NotOwn(path, f"can be written by others (mode {mode:04o})", fix)
    if kind == stat.S_IFREG and found.st_nlink > 1:
        # Files are written with one name each: somebody else has given it the other.
        raise NotOwn(path, f"has {found.st_nlink} names (hard links)", fix)


class Folder:
    """A folder that is this user's alone, open for as long as a `with` block lasts."""

    __slots__ = ("_file", "path")

    def __init__(self, path: str, file: int | None) -> None:
        self.path = path
        self._file = file  # None on Windows, where files are opened by their whole paths

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _at(self, name: str) -> str:
        return name if self._file is not None else os.path.join(self.path, name)

    def inner(self, name: str, make: bool = False) -> Folder:
        """Return a folder in this one."""
        if make:
            with ignoring_failures(FileExistsError):
                os.mkdir(self._at(name), 0o700, dir_fd=self._file)
        return _opened(os.path.join(self.path, name), self._at(name), self._file)

    def open(self, name: str, flags: int) -> int:
        """Return the descriptor of a file; a new one is this user's alone."""
        return os.open(self._at(name), flags | _PLAIN, 0o600, dir_fd=self._file)

    def status(self, name: str) -> os.stat_result:
        """Return what is there under a name, be it a link."""
        return os.stat(self._at(name), dir_fd=self._file, follow_symlinks=False)

    def names(self) -> list[str]:
        """Return what is in the folder, in order."""
        return sorted(os.listdir(self.path if self._file is None else self._file))

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """Return what is in a file, None where there is none.

        Raises NotOwn where it is not this user's alone, or has more bytes than that.
        """
        path = os.path.join(self.path, name)
        try:
            _check(path, self.status(name), stat.S_IFREG)  # before it is opened: a device may act
            file = self.open(name, os.O_RDONLY)
        except failures(FileNotFoundError):
            return None
        with open(file, "rb", buffering=0) as stream:
            found = os.fstat(file)
            _check(path, found, stat.S_IFREG)
            if found.st_size > most_bytes:
                why = f"has {found.st_size} bytes, and alight writes {most_bytes} at most"
                raise NotOwn(path, why, f"remove {path}")
            return stream.read(found.st_size)

    def replace(self, name: str, content: bytes) -> None:
        """Put a file there, or none: it is written beside its place, synced and renamed."""
        # Random, since processes in two containers can have one number and share this folder.
        temporary = f".{os.urandom(8).hex()}.tmp"
        try:
            with open(self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())  # or the rename may reach the disk before the content
            for attempt in range(20):
                try:
                    self.rename(temporary, name)
                    return
                except failures(PermissionError):  # Windows, while somebody reads the old file
                    if sys.platform != "win32" or attempt == 19:
                        raise
                    time.sleep(0.005)
        except BaseException:
            with ignoring_failures(OSError):
                self.unlink(temporary)
            raise

    def rename(self, old: str, new: str) -> None:
        """Give what is there under a name another, in the place of what has that."""
        os.replace(self._at(old), self._at(new), src_dir_fd=self._file, dst_dir_fd=self._file)

    def unlink(self, name: str) -> None:
        """Remove what is there under a name; a folder with all that is in it."""
        if stat.S_ISDIR(self.status(name).st_mode):
            import shutil

            shutil.rmtree(self._at(name), dir_fd=self._file)
        else:
            os.unlink(self._at(name), dir_fd=self._file)

    def touch(self, name: str) -> None:
        """Have a file count as used now."""
        if os.utime in os.supports_follow_symlinks:
            os.utime(self._at(name), dir_fd=self._file, follow_symlinks=False)
        else:
            os.utime(self._at(name))


def _opened(path: str, at: str, outer: int | None, root: bool = False) -> Folder:
    """Return a folder, seen from another one by its name there, or from anywhere."""
    if sys.platform == "win32":
        _check(path, os.stat(at, follow_symlinks=False), stat.S_IFDIR, root)
        return Folder(path, None)
    try:
        file = os.open(at, _FOLDER | (0 if outer is None else os.O_NOFOLLOW), dir_fd=outer)
    except failures(FileNotFoundError):
        raise
    except failures(OSError):
        # Others' folders may be closed to this user: say whose it is, not that it cannot be opened.
        found = os.stat(at, dir_fd=outer, follow_symlinks=outer is None)
        _check(path, found, stat.S_IFDIR, root)
        raise
    try:
        _check(path, os.fstat(file), stat.S_IFDIR, root)
    except BaseException:
        os.close(file)
        raise
    return Folder(path, file)


def enter(root: str, *names: str, make: bool = False) -> Folder:
    """Return the folder of these names, each in the one before it, under a root that may itself be
    a link: where that leads is the user's to say. With ``make`` what is missing is made.

    Raises NotOwn for the first of them, from the root on, that is not this user's alone, and
    FileNotFoundError where one is not there.
    """
    if make:
        _make(root)
    folder = _opened(root, root, None, root=True)
    for name in names:
        with folder:
            folder = folder.inner(name, make)
    return folder


def has(root: str, *names: str) -> bool:
    """Tell whether there is a file of these names that could be read as it looks now; nothing is
    opened, so this says what to expect and no more."""
    path, found = root, os.stat(root)
    for name in names:
        _check(path, found, stat.S_IFDIR, root=path == root)
        path = f"{path}{os.sep}{name}"
        found = os.lstat(path)
    _check(path, found, stat.S_IFREG)
    return True


def _make(path: str) -> None:
    """Make a folder, and those around it that are missing, for this user alone."""
    try:
        os.mkdir(path, 0o700)  # whatever the mask says: what the group can write is not used
    except failures(FileExistsError):
        pass
    except failures(FileNotFoundError):
        outer = os.path.dirname(path)
        if outer == path:
            raise
        _make(outer)
        with ignoring_failures(FileExistsError):
            os.mkdir(path, 0o700)


class Lock:
    """An exclusive lock on a folder, freed by the system when its process dies."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._holds_file = False
        try:
            self._file = folder.open(".lock", os.O_RDWR | os.O_CREAT)
        except failures(OSError):
            with ignoring_failures(FileNotFoundError):
                self._check(folder.status(".lock"))
            raise
        try:
            self._check(os.fstat(self._file))
            deadline, pause = time.monotonic() + LOCK_SECONDS, 0.0005
            while not self._try():
                if time.monotonic() > deadline:
                    where = os.path.join(folder.path, ".lock")
                    raise TimeoutError(f"another process holds {where}")
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
        except BaseException:
            os.close(self._file)
            raise

    def _check(self, found: os.stat_result) -> None:
        _check(os.path.join(self._folder.path, ".lock"), found, stat.S_IFREG)

    def _try(self) -> bool:
        try:
            if sys.platform == "win32":
                msvcrt.locking(self._file, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except failures(OSError) as error:
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return False
        # Some network folders have no locks. Two who break a stale lock in the same instant may
        # both go on: an update can be lost then, a file cannot, because each is replaced whole.
        with ignoring_failures(FileNotFoundError):
            if self._folder.status(".held").st_mtime < time.time() - LOCK_SECONDS:
                self._folder.unlink(".held")
        try:
            os.close(self._folder.open(".held", os.O_CREAT | os.O_EXCL))
        except failures(FileExistsError):
            return False
        self._holds_file = True
        return True

    def release(self) -> None:
        """Let others have it."""
        if self._holds_file:
            with ignoring_failures(FileNotFoundError):
                self._folder.unlink(".held")
        elif sys.platform == "win32":
            os.lseek(self._file, 0, os.SEEK_SET)
            msvcrt.locking(self._file, msvcrt.LK_UNLCK, 1)
        else:
            # Said, not left to the closing: a forked child may still hold the same open file.
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)
