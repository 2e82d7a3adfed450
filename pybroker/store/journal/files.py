"""The journal's file operations in one small object, so that a test can make any of them fail, stop or kill.

They use `System`, which is `os` or a simulator's disk. The appender and the store decide which bytes go into which file
and when. All methods block, and raise `OSError` as the operating system does; callers translate it.

Durability:

* `create` returns after the file, its length and its name are on disk.
* `write` reaches the page cache; `sync` makes it last. `fdatasync` is enough for that: POSIX has it write whatever
  metadata is needed to read the data back, so it covers blocks allocated in the hole of a sparse file, and a length
  that grew. What it leaves out is times. A length fixed by preallocation merely makes it cheaper, and so does `fill`.
  One `pwritev` with `RWF_DSYNC` would do both; measured on ext4 it is no faster, and not every file system and kernel
  has it.
* `remove`, `archive`, `put` and `replace` return after the directory entry is on disk.

A file that could not be created, copied or allocated completely is removed, so that it can be tried again and takes no
space; except for a number that a new master claims, which stays taken.

`find_new_owner` checks if another master has taken the journal over. It opens the directory for each check: on NFS that
is what makes the client ask the server, where `stat` alone may answer from its cache.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

from pybroker.store.journal.format import EOF_MARKER, data_file_name

SEALED_SUFFIX = ".sealed"
"""Ends the name of an unfinished copy; neither ActiveMQ nor this package reads such a file as a data file."""


_UNNEEDED: int | None = getattr(os, "POSIX_FADV_DONTNEED", None)
"""None on macOS."""

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class System(Protocol):
    """The functions of `os` that change files or check for changes by another master; a simulator has its own."""

    close: Callable[[int], None]
    fdatasync: Callable[[int], None]
    fsync: Callable[[int], None]
    ftruncate: Callable[[int, int], None]
    link: Callable[[Path, Path], None]
    makedirs: Callable[..., None]
    open: Callable[..., int]
    posix_fadvise: Callable[[int, int, int, int], None]
    posix_fallocate: Callable[[int, int, int], None]
    pwrite: Callable[[int, memoryview, int], int]
    pwritev: Callable[[int, Sequence[bytes | memoryview], int], int]
    replace: Callable[[Path, Path], None]
    stat: Callable[..., os.stat_result]
    statvfs: Callable[[Path], os.statvfs_result]
    unlink: Callable[[Path], None]


OS = cast("System", os)  # its functions take more parameters


class JournalFiles:
    """Files of one journal directory."""

    def __init__(self, directory: Path, system: System = OS) -> None:
        self.directory = directory
        self._os = system
        self._name = os.fspath(directory)
        self._newest_own = 0
        """The newest data file created here, whose number no other process has: part of the names of copies."""
        self._spare = -1  # a descriptor that `find_new_owner` may close, to open the directory when there is no other

    def path(self, file_id: int) -> Path:
        """Return the path of a data file."""
        return self.directory / data_file_name(file_id)

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        """Create an empty data file and return its descriptor.

        As ActiveMQ does it (scope ENTIRE_JOURNAL, strategy SPARSE_FILE): an EOF marker at the start, and one in the
        last five bytes of the preallocated length, with a hole between. With 0 the file grows with the writes.

        The creation is exclusive: two processes that both believe to be master never share a data file.

        Args:
            file_id: the number.
            preallocate_bytes: the length.
            is_claim: the name stays if anything fails after its creation, see decision 030.
        """
        descriptor = self._os.open(self.path(file_id), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._newest_own = file_id
        try:
            self.write(descriptor, (EOF_MARKER,), 0)
            if preallocate_bytes > 2 * len(EOF_MARKER):
                self.write(descriptor, (EOF_MARKER,), preallocate_bytes - len(EOF_MARKER))
            self._os.fsync(descriptor)
            self.sync_directory()
        except BaseException:
            if not is_claim:
                self._remove_unfinished(self.path(file_id), descriptor)
            self._os.close(descriptor)
            raise
        return descriptor

    def find_new_owner(self, name: str, own: os.stat_result, *, next_name: str = "") -> str:
        """Return the name of the file that shows that another master has taken over, or an empty string.

        Args:
            name: of the caller's data file.
            own: of its descriptor, which is open.
            next_name: of the data file that no other master may have created; empty: not checked.

        Raises:
            OSError: the directory cannot be read.
        """
        directory = self._open_directory()
        try:
            if next_name:
                try:
                    self._os.stat(next_name, dir_fd=directory)
                except FileNotFoundError:
                    pass  # the expected case
                else:
                    return next_name
            try:
                found = self._os.stat(name, dir_fd=directory)
            except FileNotFoundError:
                return name
            return "" if found.st_ino == own.st_ino and found.st_dev == own.st_dev else name
        finally:
            if self._spare < 0:
                self._spare = directory
            else:
                self._os.close(directory)

    def _open_directory(self) -> int:
        """Open the directory, on the spare descriptor if the limit on open files is reached: clients may reach it."""
        try:
            return self._os.open(self._name, _DIRECTORY_FLAGS)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or self._spare < 0:
                raise
        self.close_spare()
        return self._os.open(self._name, _DIRECTORY_FLAGS)

    def close_spare(self) -> None:
        """Close what `find_new_owner` keeps open; nothing happens when it keeps nothing."""
        descriptor, self._spare = self._spare, -1
        if descriptor >= 0:
            self._os.close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Write all buffers, one after the other, at that offset."""
        total = sum(map(len, buffers))
        written = self._os.pwritev(descriptor, buffers, offset)
        if written == total:
            return
        end = offset
        for buffer in buffers:  # after a short write: a signal, or the disk filling up, which the next call reports
            begin, end = end, end + len(buffer)
            rest = memoryview(buffer)[max(offset + written - begin, 0) :]
            while rest:
                count = self._os.pwrite(descriptor, rest, end - len(rest))
                if count == 0:
                    raise OSError(errno.EIO, "the device takes no more bytes")
                rest = rest[count:]

    def fill(self, descriptor: int, start: int, stop: int) -> None:
        """Fill a hole with zeros, which reads the same: a later write there allocates no blocks."""
        self.write(descriptor, (bytes(stop - start),), start)

    def write_back(self, descriptor: int, offset: int, byte_count: int) -> None:
        """Have the system begin to write a part of the file to the disk, and drop what is there from the page cache.

        Linux does both for `POSIX_FADV_DONTNEED`, and waits for neither. It makes nothing durable, as `sync` does.
        """
        if _UNNEEDED is not None:
            with suppress(OSError):  # advice, which a file system may not take
                self._os.posix_fadvise(descriptor, offset, byte_count, _UNNEEDED)

    def sync(self, descriptor: int) -> None:
        """Make everything written to the file durable."""
        self._os.fdatasync(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut the file; durable at some later time, on which nothing depends."""
        self._os.ftruncate(descriptor, length)

    def finish(self, file_id: int, end: int) -> None:
        """Cut a data file that no process writes behind an EOF marker at its end; durable at some later time."""
        descriptor = self._os.open(self.path(file_id), os.O_RDWR | os.O_CLOEXEC)
        try:
            self.write(descriptor, (EOF_MARKER,), end)
            self._os.ftruncate(descriptor, end + len(EOF_MARKER))
        finally:
            self._os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        self._os.close(descriptor)

    def discard(self, file_id: int, descriptor: int) -> None:
        """Close and remove a data file that is not used after all."""
        self._remove_unfinished(self.path(file_id), descriptor)
        self._os.close(descriptor)

    def remove(self, *paths: Path) -> None:
        """Delete files permanently; it is no error if one is already gone."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._os.unlink(path)
        self.sync_directory()

    def archive(self, path: Path, target: Path) -> None:
        """Move a file into another directory of the same file system, creating that if needed."""
        self._os.makedirs(target, exist_ok=True)
        self._os.replace(path, target / path.name)
        self._sync_directory(target)
        self.sync_directory()

    def link(self, path: Path, target: Path) -> None:
        """Link a file into another directory of the same file system, creating that if needed.

        A file of that name which is there already stays.
        """
        self._os.makedirs(target, exist_ok=True)
        with suppress(FileExistsError):
            self._os.link(path, target / path.name)
        self._sync_directory(target)

    def replace(
        self, file_id: int, content: Sequence[bytes | memoryview], fence: Callable[[], None] = lambda: None
    ) -> None:
        """Replace a data file's content, see `put`."""
        self.put(self.path(file_id), content, fence)

    def put(self, path: Path, content: Sequence[bytes | memoryview], fence: Callable[[], None] = lambda: None) -> None:
        """Replace a file of the directory by a new one with that content, in one step: a crash leaves one of the two.

        The former file is not changed: a process that has it open writes into a file without a name.

        A process that is frozen between fence and replacement replaces nothing when it goes on as a former master: the
        copy's name is its own, and the new master has removed the copy. `fence` then raises `LockNotHeld`.

        Args:
            path: of the file.
            content: the whole of it.
            fence: called before the replacement, and after one that failed; if it raises, the former file stays.
        """
        copy = path.with_name(f"{path.name}.{self._newest_own}{SEALED_SUFFIX}")
        descriptor = self._os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            offset = 0
            for piece in content:
                self.write(descriptor, (piece,), offset)
                offset += len(piece)
            self._os.fsync(descriptor)
            fence()
            try:
                self._os.replace(copy, path)
            except FileNotFoundError:
                fence()
                raise
        except BaseException:
            self._remove_unfinished(copy, descriptor)
            raise
        finally:
            self._os.close(descriptor)
        self.sync_directory()

    def unfinished(self) -> list[Path]:
        """Return the unfinished copies that a crash has left."""
        return sorted(self.directory.glob("*" + SEALED_SUFFIX))

    def allocate(self, path: Path, byte_count: int) -> None:
        """Create an empty file that occupies that many bytes. Not synced: it is created again if it is missing."""
        descriptor = self._os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            self._os.posix_fallocate(descriptor, 0, byte_count)
        except BaseException:
            self._remove_unfinished(path, descriptor)
            raise
        finally:
            self._os.close(descriptor)

    def free_bytes(self) -> int:
        """Return the free bytes that the file system reports; a quota may leave less."""
        status = self._os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize

    def sync_directory(self) -> None:
        """Make all creations, renames and removals of names durable."""
        self._sync_directory(self.directory)

    def _remove_unfinished(self, path: Path, descriptor: int) -> None:
        """Remove an open unfinished file, unless another master has replaced it."""
        with contextlib.suppress(OSError):  # the caller is to get the original error
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                self._os.unlink(path)

    def _sync_directory(self, path: Path) -> None:
        """Make a directory's entries durable."""
        descriptor = self._os.open(path, _DIRECTORY_FLAGS)
        try:
            self._os.fsync(descriptor)
        finally:
            self._os.close(descriptor)
