"""Reads the manifest of a store: lengths and checksums of its data files.

A file is walked batch by batch, so that a torn tail does not count. The checksums of files that are not their journal's
last one are kept in `replica/manifest.json` with size, time and inode number. A file that was changed in the last
seconds is not kept there: it may be changed again without another time.

Used by one thread at a time. Blocks.
"""

import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pybroker import regular
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.manifest import ManifestFile
from pybroker.broker.domain.replica.operations import Journal
from pybroker.store.journal.files import OS, JournalFiles, System
from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.reader import DataFileWalk, data_files, has_vanished, load
from pybroker.store.replica import DIRECTORY

CACHE_NAME: Final = "manifest.json"

RECENT_NS: Final = 2_000_000_000
"""The time of a file has a resolution of at most two seconds."""

_PART_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)


class FileFacts(NamedTuple):
    """A data file as it was read.

    Attributes:
        entry: its entry in the manifest.
        size: its length, with what follows the logical contents.
        inode: its inode number, by which a replaced file is recognised.
    """

    entry: ManifestFile
    size: int
    inode: int


class _Kept(NamedTuple):
    """The cached checksum of a data file, valid while its first three fields are those of the file."""

    size: int
    modified_ns: int
    inode: int
    length: int
    crc: int


class ManifestFiles:
    """Reads manifests of one store.

    Args:
        root: the store's directory.
        journals: the directories of the journals. One that is not there has no files.
        system: the operating system's files.
        clock_ns: the clock that gives files their times.
    """

    def __init__(
        self,
        root: Path,
        journals: Mapping[Journal, Path],
        system: System = OS,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._directory = root / DIRECTORY
        self._journals = journals
        self._system = system
        self._clock_ns = clock_ns
        self._kept: dict[str, _Kept] | None = None

    def read(self, *, sync: bool) -> list[FileFacts]:
        """Return the data files, in ascending order.

        Args:
            sync: first make everything in them durable, and their names.

        Raises:
            StoreUnavailable: a directory or a file cannot be read.
            OSError: something cannot be synced: its content is unknown.
        """
        kept = self._load() if self._kept is None else self._kept
        self._kept = {}
        facts: list[FileFacts] = []
        for journal, directory in sorted(self._journals.items()):
            if not directory.is_dir():
                continue
            if sync:
                JournalFiles(directory, self._system).sync_directory()
            paths = data_files(directory)
            newest = max(paths, default=0)
            for file_id, path in paths.items():
                key = f"{journal.register_name}/{file_id}"
                each = self._read_file(ManifestFile(journal, file_id, 0, 0), path, kept.get(key), sync=sync)
                if each is not None:
                    facts.append(each)
                    if file_id != newest:
                        self._keep(key, each, path)
        if self._kept != kept:
            self._save()
        return facts

    def checksum(self, journal: Journal, file_id: int, length: int) -> int | None:
        """Return the CRC-32 of the beginning of a data file; None if it is gone or shorter.

        Raises:
            OSError: it cannot be read.
        """
        return self._checksum(journal, file_id, lambda descriptor: checksum_of(descriptor, length))

    def part_checksum(self, journal: Journal, file_id: int, offset: int, length: int) -> int | None:
        """Return the CRC-32 of a part of a data file; None if it is gone or shorter.

        What the kernel has in memory of the file is dropped first, so that the disk is read. It keeps what is not
        written yet.

        Raises:
            OSError: it cannot be read.
        """

        def read(descriptor: int) -> int | None:
            if (advise := getattr(os, "posix_fadvise", None)) is not None:  # macOS has none
                advise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)
            return checksum_of(descriptor, length, offset)

        return self._checksum(journal, file_id, read)

    def _checksum(self, journal: Journal, file_id: int, read: Callable[[int], int | None]) -> int | None:
        """Return the checksum that a function reads from a data file's descriptor; None if the file is gone."""
        try:
            descriptor = regular.descriptor(self._journals[journal] / data_file_name(file_id))
        except FileNotFoundError:
            return None
        try:
            return read(descriptor)
        finally:
            os.close(descriptor)

    def _read_file(self, entry: ManifestFile, path: Path, kept: _Kept | None, *, sync: bool) -> FileFacts | None:
        """Return a file's facts; None if it is gone."""
        try:
            status = path.stat()
            if kept is not None and kept[:3] == (status.st_size, status.st_mtime_ns, status.st_ino):
                return FileFacts(entry._replace(length=kept.length, crc=kept.crc), status.st_size, status.st_ino)
            if sync:
                self._sync(path)
            data = load(path)
        except FileNotFoundError:
            return None
        except StoreUnavailable as error:
            if has_vanished(error.__cause__):  # collected since the directory was listed
                return None
            raise
        walk = DataFileWalk(data, entry.file_id)
        for _ in walk.batches():
            pass
        with memoryview(data) as view, view[: walk.end] as content:
            crc = zlib.crc32(content)
        return FileFacts(entry._replace(length=walk.end, crc=crc), status.st_size, status.st_ino)

    def _sync(self, path: Path) -> None:
        descriptor = self._system.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._system.fdatasync(descriptor)
        finally:
            self._system.close(descriptor)

    def _keep(self, key: str, facts: FileFacts, path: Path) -> None:
        """Keep a file's checksum, unless it was changed since or may be changed without notice."""
        assert self._kept is not None, "a manifest is being read"
        try:
            status = path.stat()
        except FileNotFoundError:  # collected since it was read
            return
        if status.st_ino == facts.inode and status.st_size == facts.size:
            age = self._clock_ns() - status.st_mtime_ns
            if age > RECENT_NS:
                entry = facts.entry
                self._kept[key] = _Kept(facts.size, status.st_mtime_ns, facts.inode, entry.length, entry.crc)

    def _load(self) -> dict[str, _Kept]:
        """Return what was kept; nothing if it cannot be used, for it can be made again."""
        path = self._directory / CACHE_NAME
        try:
            with open(path, "rb", opener=regular.opener) as stream:
                values: Any = json.load(stream)
            return {str(key): _Kept(*map(int, each)) for key, each in values["files"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("%s cannot be used, so all data files are read again: %s", path, error)
            return {}

    def _save(self) -> None:
        content = json.dumps({"format": 1, "files": self._kept}).encode()
        files = JournalFiles(self._directory, self._system)
        try:
            self._system.makedirs(self._directory, exist_ok=True)
            files.put(self._directory / CACHE_NAME, (content,))
        except OSError as error:
            _log.warning("%s cannot be written, so the next start reads all data files: %s", files.directory, error)


def checksum_of(descriptor: int, length: int, offset: int = 0) -> int | None:
    """Return the CRC-32 of an open file's first bytes, or of those behind an offset; None if it is shorter.

    Raises:
        OSError: it cannot be read.
    """
    crc, at = 0, 0
    while at < length:
        data = os.pread(descriptor, min(_PART_BYTES, length - at), offset + at)
        if not data:
            return None
        crc = zlib.crc32(data, crc)
        at += len(data)
    return crc
