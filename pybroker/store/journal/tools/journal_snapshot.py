"""A journal's data files as they are at one moment, read while a master may be writing, rotating and deleting them.

All data files are opened before the first is read. A file that vanishes on the way was collected, and so perhaps were
the acknowledgements for messages of a file opened before: the listing begins again. From then on a deleted or replaced
file stays readable, so what is read is a state in which the journal once was, plus what was appended since.

Nothing is created, locked or changed.

Source: `cleanup` for the order in which files go; ActiveMQ 5.17, ack compaction, for files that appear late.
"""

import errno
import os
import resource
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pybroker import regular
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.commands import CommandType
from pybroker.store.journal.format import BATCH_HEADER_BYTES, BATCH_MAGIC, EOF_MARKER, RECORD_HEADER_BYTES, Location
from pybroker.store.journal.reader import Buffer, DataFileWalk, data_files, has_vanished, load, unavailable
from pybroker.store.journal.replay import inspect
from pybroker.store.journal.tools.scan import Scan

LISTINGS_MAX = 20
"""Attempts to list the directory. A collection removes files within milliseconds, every 30 s."""
SECOND_LOOKS_MAX = 5
"""Attempts to read a file that is being written, because a read may meet a batch half written."""

Progress = Callable[[int, int], None]
"""Called after each data file with bytes done and bytes in all."""


class DataFile(NamedTuple):
    """An open data file.

    Attributes:
        file_id: its id.
        path: where it was, for messages.
        descriptor: through which it is read.
        size: its length when it was opened.
        is_compacted: it begins with a `RewrittenDataFile`.
        is_empty: nothing is written at its beginning: a master has only claimed it so far.
    """

    file_id: int
    path: Path
    descriptor: int
    size: int
    is_compacted: bool
    is_empty: bool


class JournalSnapshot(AbstractContextManager["JournalSnapshot"]):
    """A directory's data files, open for reading, in ascending order of their ids.

    Attributes:
        directory: the journal's.
        files: by id.
    """

    def __init__(self, directory: Path) -> None:
        """Open the files.

        Raises:
            StoreUnavailable: the directory or a file cannot be read, or there is no data file.
            JournalCorrupt: the data files are no KahaDB journal.
        """
        self.directory = directory
        self.files: dict[int, DataFile] = {}
        for _ in range(LISTINGS_MAX):
            try:
                self._open()
                return
            except StoreUnavailable as error:
                self.close()
                if not has_vanished(error.__cause__) or not directory.is_dir():
                    raise
            except BaseException:
                self.close()
                raise
        raise StoreUnavailable(
            f"{directory}: data files vanish faster than they can be opened",
            path=str(directory),
            hint="run the command again, or on a stopped store",
        )

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())

    @property
    def last_file_id(self) -> int:
        """The highest id."""
        return max(self.files)

    @property
    def writable(self) -> set[int]:
        """The files that may have been written last: the highest, and the next one below compacted and empty ones."""
        lowest = lowest_writable(
            self.files, [each.file_id for each in self.files.values() if each.is_compacted or each.is_empty]
        )
        return {file_id for file_id in self.files if file_id >= lowest}

    def load(self, file_id: int) -> Buffer:
        """Return a file's bytes; of one that may be being written, the soundest of several readings.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        file = self.files[file_id]
        best = self._load(file)
        if file_id in self.writable:
            fewest = _damage_count(best, file_id)
            for _ in range(SECOND_LOOKS_MAX):
                if not fewest:
                    break
                again = self._load(file)
                count = _damage_count(again, file_id)
                if count < fewest:
                    best, fewest = again, count
        return best

    def scan(self, file_id: int) -> Scan:
        """Return a scan of a file.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        return Scan(self.load(file_id), file_id, is_writable=file_id in self.writable)

    def read(self, location: Location, length: int) -> bytes:
        """Return that many bytes from a location on, or fewer where the file ends.

        Raises:
            StoreUnavailable: the file cannot be read.
        """
        file = self.files[location.file_id]
        try:
            return os.pread(file.descriptor, length, location.offset)
        except OSError as error:
            raise unavailable(file.path, error) from error

    def close(self) -> None:
        """Close the files."""
        while self.files:
            os.close(self.files.popitem()[1].descriptor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def _open(self) -> None:
        if not data_files(self.directory):
            raise StoreUnavailable(
                f"{self.directory}: there is no KahaDB journal here, no db-<number>.log",
                path=str(self.directory),
                hint="name the directory that has these files, or the one with kahadb in it",
            )
        for file_id, path in inspect(self.directory).items():
            self.files[file_id] = _opened(file_id, path)

    def _load(self, file: DataFile) -> Buffer:
        # By its descriptor: the name may be gone, or stand for another file.
        try:
            return load(Path(f"/proc/self/fd/{file.descriptor}"))
        except StoreUnavailable as error:
            cause = error.__cause__
            assert isinstance(cause, OSError), "what `load` translates"
            raise unavailable(file.path, cause) from cause


def _opened(file_id: int, path: Path) -> DataFile:
    try:
        descriptor = _descriptor(path)
        try:
            size = os.fstat(descriptor).st_size
            first_payload = BATCH_HEADER_BYTES + RECORD_HEADER_BYTES
            beginning = os.pread(descriptor, first_payload + 1, 0)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise unavailable(path, error) from error
    rewritten = bytes((CommandType.REWRITTEN_DATA_FILE,))
    is_compacted = beginning.startswith(BATCH_MAGIC) and beginning[first_payload:] == rewritten
    is_empty = beginning.startswith(EOF_MARKER) or not beginning.strip(b"\0")
    return DataFile(file_id, path, descriptor, size, is_compacted, is_empty)


def lowest_writable(file_ids: Collection[int], passed_over: Collection[int]) -> int:
    """Return the lowest data file that may have been written last.

    Args:
        file_ids: the files there are.
        passed_over: compacted and empty ones, which may have been made behind the file that was written.
    """
    return max(set(file_ids).difference(passed_over), default=min(file_ids, default=0))


def _descriptor(path: Path) -> int:
    """Open a file; where too many are open, raise this process's soft limit to the hard one."""
    try:
        return regular.descriptor(path)
    except OSError as error:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if error.errno != errno.EMFILE or soft == hard:
            raise
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return regular.descriptor(path)


def _damage_count(data: Buffer, file_id: int) -> int:
    walk = DataFileWalk(data, file_id)
    for _ in walk:
        pass
    return len(walk.damages)
