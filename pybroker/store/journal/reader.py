"""Reads data files of a KahaDB journal: verifies batches, yields user records and reports damage.

A crash can tear the last write, and disks lose or change bytes. The walk gives a batch whole or not at all: its
control record, its records' headers and, when it has one, its checksum must all fit. Behind a damaged batch the walk
goes on at the next sound one, and the gap is reported.

| found where a batch should begin          | the walk                                                         |
|-------------------------------------------|------------------------------------------------------------------|
| an EOF marker                             | ends; what lies behind is stale                                  |
| the end of the file, or part of a marker  | ends                                                             |
| zeros                                     | goes on at the next control record; without one, ends            |
| a batch that does not fit                 | skips it, see `_next_batch`; without another one behind it, ends |

The caller decides if a gap at the end of a file is a torn write (normal in the file that was being written) or a loss.
Nothing is changed on disk.

Source: ActiveMQ 5.17, `Journal.recoveryCheck`, made stricter: there only the last file is verified by default.
"""

import errno
import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pybroker import regular
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.format import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    USER_RECORD,
    Location,
    data_file_id,
)

FIRST_WINDOW_BYTES = 16 * 1024
"""First read of `sound_batches`: a follower polls every few milliseconds, and mostly finds nothing."""
WINDOW_GROWTH = 8
WINDOW_BYTES_MAX = 1024 * 1024
"""Its further reads: larger windows do not fit the processor's cache."""

CHECKSUM_BYTES = 8
"""Length and checksum at the end of a batch control record."""

UNBEGUN = "there are only zeros before its EOF marker"
"""Reason of a damage that a power failure during the file's creation leaves, or a disk that loses blocks."""

Buffer = bytes | mmap.mmap


class Damage(NamedTuple):
    """Bytes of a data file that cannot be used.

    Attributes:
        file_id: the data file.
        offset: where the damage begins.
        length: how many bytes were skipped.
        reason: the flaw, in words.
        at_end: nothing usable follows in this file: a torn write, if it is the file that was written last.

    A length of 0 means that the end of the file is missing, see `missing_end`.
    """

    file_id: int
    offset: int
    length: int
    reason: str
    at_end: bool = False

    def __str__(self) -> str:
        """Return one line for a log."""
        skipped = f"; {self.length} bytes skipped" if self.length else ""
        return f"db-{self.file_id}.log: offset {self.offset}: {self.reason}{skipped}"


def missing_end(file_id: int, offset: int) -> Damage:
    """Return the damage of a file that was truncated or zeroed exactly where a batch ended; the loss is unknown.

    Each write ends with an EOF marker, which only the next one overwrites. So a finished file without a marker has lost
    its end. Two exceptions are the caller's to exclude: a file that may have been written last, and one by a writer
    without markers (an early ActiveMQ, or another program).
    """
    return Damage(file_id, offset, 0, "there is no EOF marker where the file ends, so its end is missing", at_end=True)


def is_finished(behind: bytes) -> bool:
    """Return True if an EOF marker, or the truncated beginning of one, follows a file's last batch."""
    return bool(behind) and EOF_MARKER.startswith(behind[: len(EOF_MARKER)])


class DataFileWalk:
    """One walk through a data file: iterate for its records; `damages` has the gaps.

    Attributes:
        file_id: the data file.
        damages: gaps met so far.
        end: the logical end, once the walk is over: where the next batch would be written.
    """

    def __init__(self, data: Buffer, file_id: int, *, start: int = 0) -> None:
        """Prepare a walk.

        Args:
            data: the file's bytes.
            file_id: names the file in locations.
            start: offset of a batch to begin with, such as the `end` of an earlier walk.
        """
        self.file_id = file_id
        self.damages: list[Damage] = []
        self.end = start
        self._data = data

    def __iter__(self) -> Iterator[tuple[Location, bytes]]:
        """Yield location and payload of the records from `end` on, moving it behind each batch.

        A batch is verified before its first record is given.
        """
        data = self._data
        file_id = self.file_id
        for offset, end in self.batches():
            while offset < end:
                size, _ = RECORD_HEADER.unpack_from(data, offset)
                yield Location(file_id, offset), data[offset + RECORD_HEADER_BYTES : offset + size]
                offset += size

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yield, per sound batch from `end` on, where its first record begins and where its last one ends.

        `end` moves behind a batch when the next one is requested.
        """
        data = self._data
        while self.end + len(EOF_MARKER) <= len(data):
            if _is_marker(data, self.end):
                return
            batch = verify(data, self.end)
            if isinstance(batch, str):
                if not self._skip(batch):
                    return
                continue
            yield batch
            self.end = batch[1]
        self._stray_bytes()

    def _skip(self, reason: str) -> bool:
        """Skip a damaged stretch and report it; return True if a batch follows."""
        data, start = self._data, self.end
        following = _next_batch(data, start)
        if following is None or _is_marker(data, following):
            length = _used_bytes(data, start) if following is None else following - start
            if length:
                # `end` stays: a torn batch is overwritten by the next write, as in ActiveMQ.
                if start == 0 and not any(data[:length]):
                    reason = UNBEGUN
                self.damages.append(Damage(self.file_id, start, length, reason, at_end=True))
            return False
        self.damages.append(Damage(self.file_id, start, following - start, reason))
        self.end = following
        return True

    def _stray_bytes(self) -> None:
        stray = self._data[self.end :]
        if stray.strip(b"\0") and not EOF_MARKER.startswith(stray):
            reason = "the file ends inside a batch control record"
            self.damages.append(Damage(self.file_id, self.end, len(stray), reason, at_end=True))


def sound_batches(descriptor: int, start: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the sound batches from an offset of an open data file on, as far as they follow one another.

    They end at an EOF marker, a batch that is still being written, or damage; the caller finds out which. Nothing
    behind that is read, except for the rest of the window. A batch without checksum counts only when something follows
    it: each write ends with a marker, so then all of it is there.

    Yields:
        Bytes of the file; where in them the first record of a batch begins, right behind its control record; where its
        last record ends; where in the file the bytes begin.

    Raises:
        OSError: the file cannot be read.
    """
    wanted = FIRST_WINDOW_BYTES
    while True:
        data = os.pread(descriptor, wanted, start)
        position = 0
        while not isinstance(batch := verify(data, position), str):
            offset, end = batch
            if not (has_checksum(data, offset) or _is_boundary(data, end)):
                break
            yield data, offset, end, start
            position = end
        start += position
        if position:
            wanted = min(wanted * WINDOW_GROWTH, WINDOW_BYTES_MAX)
            continue
        there = os.fstat(descriptor).st_size - start
        batch_bytes = _batch_bytes(data)
        wanted = min(batch_bytes + len(EOF_MARKER), there)
        if not len(data) < batch_bytes <= there and not len(data) == batch_bytes < wanted:
            return


def has_checksum(data: Buffer, offset: int) -> bool:
    """Return True if a batch has a checksum, and so was verified; its first record begins at `offset`.

    A negative one is damage that switches the check off (kahadb.md §2).
    """
    return int.from_bytes(data[offset - CHECKSUM_BYTES : offset], signed=True) > 0


def _batch_bytes(data: bytes) -> int:
    """Return the length of the batch at the start of `data`, its control record included; 0 if there is none."""
    if len(data) < BATCH_HEADER_BYTES:
        return 0
    magic, length, _ = BATCH_HEADER.unpack_from(data)
    return BATCH_HEADER_BYTES + length if magic == BATCH_MAGIC else 0


def data_files(directory: Path) -> dict[int, Path]:
    """Return a directory's data files by id, in ascending order; other files are ignored.

    Raises:
        StoreUnavailable: the directory cannot be read.
    """
    try:
        found = [(data_file_id(path.name), path) for path in directory.iterdir()]
    except OSError as error:
        raise unavailable(directory, error) from error
    return dict(sorted((file_id, path) for file_id, path in found if file_id is not None))


def load(path: Path) -> Buffer:
    """Return a data file's bytes, read and never mapped: a read error in a mapping kills the process.

    Raises:
        StoreUnavailable: the file cannot be read, or does not fit into memory; the message has the offset.
    """
    try:
        with open(path, "rb", buffering=0, opener=regular.opener) as file:
            size = os.fstat(file.fileno()).st_size
            return _read_sparse(file.fileno(), size) if size else b""
    except OSError as error:
        raise unavailable(path, error) from error


def read_start(path: Path, length: int) -> bytes:
    """Return a data file's first bytes, faster than `load` does at a take-over: 4 ms against 38 ms for 30 MB.

    Raises:
        OSError: the file cannot be read, or is shorter.
    """
    with open(path, "rb", buffering=0, opener=regular.opener) as file:
        data = os.pread(file.fileno(), length, 0)
    if len(data) != length:
        raise OSError(errno.EIO, f"{length} bytes were there, and now there are {len(data)}", str(path))
    return data


def _read_sparse(fd: int, size: int) -> mmap.mmap:
    """Return a file's bytes without reading its holes.

    A preallocated file is mostly hole. Memory that is never written to stays a hole too, so taking over a store with
    little in it takes a millisecond and not the time to copy 32 MiB of zeros.
    """
    memory = mmap.mmap(-1, size)
    with memoryview(memory) as view:
        offset = _seek(fd, 0, os.SEEK_DATA, size)
        while offset < size:
            end = min(size, _seek(fd, offset, os.SEEK_HOLE, size))
            while offset < end:
                count = _read_into(fd, view[offset:end], offset)
                if not count:  # truncated by its writer since
                    return memory
                offset += count
            offset = _seek(fd, offset, os.SEEK_DATA, size)
    return memory


def _read_into(fd: int, view: memoryview, offset: int) -> int:
    try:
        return os.preadv(fd, [view], offset)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} at offset {offset}") from error


def _seek(fd: int, offset: int, whence: int, size: int) -> int:
    """Return the offset at which data or a hole begins; `size` when there is none."""
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size


def unavailable(path: Path, error: OSError) -> StoreUnavailable:
    """Return the error to raise when the operating system refuses to read a path."""
    return StoreUnavailable(
        f"{path} cannot be read: {error.strerror or error}",
        path=str(path),
        hint="check that it exists, is readable for this user, and that its file system is mounted and healthy",
    )


def has_vanished(error: BaseException | None) -> bool:
    """Return True if the operating system's error says that a file is gone."""
    return isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ESTALE)


def verify(data: Buffer, start: int) -> tuple[int, int] | str:
    """Return the bounds of the records of the batch at `start`, or its flaw."""
    if len(data) - start < BATCH_HEADER_BYTES:
        return "the file ends inside a batch control record"
    magic, length, checksum = BATCH_HEADER.unpack_from(data, start)
    if magic != BATCH_MAGIC:
        return "no batch control record where a batch should begin"
    first = start + BATCH_HEADER_BYTES
    end = first + length
    if length <= 0:
        return "a batch without records"
    if end > len(data):
        return "the file ends inside a batch"
    return _flaw(data, first, end, checksum) or (first, end)


def _flaw(data: Buffer, first: int, end: int, checksum: int) -> str | None:
    """Return the flaw of a batch's records, if there is one."""
    if checksum > 0 and zlib.adler32(memoryview(data)[first:end]) != checksum:
        return "a batch's checksum does not fit its bytes"
    return None if _records_fit(data, first, end) else "the sizes or types of a batch's records do not fit"


def _records_fit(data: Buffer, offset: int, end: int) -> bool:
    while offset + RECORD_HEADER_BYTES <= end:
        size, kind = RECORD_HEADER.unpack_from(data, offset)
        if size < RECORD_HEADER_BYTES or kind != USER_RECORD:
            return False
        offset += size
    return offset == end


def _next_batch(data: Buffer, start: int) -> int | None:
    """Return the offset of the next batch behind a damaged one, or of the EOF marker behind it.

    A damaged batch's own length is trusted when it leads to a batch or to an EOF marker, for two reasons: bytes behind
    an EOF marker are stale, and a message's body may contain what looks like a batch. (Unless the checksum fits a
    shorter stretch that ends at a batch: then the length is what is damaged.) Otherwise the next bytes that begin like
    a control record count.
    """
    found = data.find(BATCH_MAGIC, start + 1)
    if len(data) - start >= BATCH_HEADER_BYTES:
        length: int
        _, length, checksum = BATCH_HEADER.unpack_from(data, start)
        first = start + BATCH_HEADER_BYTES
        end = first + length
        if length > 0 and _is_boundary(data, end):
            return found if first < found < end and _flaw(data, first, found, checksum) is None else end
    return None if found < 0 else found


def _is_boundary(data: Buffer, offset: int) -> bool:
    return data[offset : offset + len(BATCH_MAGIC)] == BATCH_MAGIC or _is_marker(data, offset)


def _is_marker(data: Buffer, offset: int) -> bool:
    return data[offset : offset + len(EOF_MARKER)] == EOF_MARKER


def _used_bytes(data: Buffer, start: int) -> int:
    """Return the count of bytes from `start` on without the preallocated end: zeros, and EOF markers in some places."""
    rest = data[start:].rstrip(b"\0")
    while rest.endswith(EOF_MARKER):
        rest = rest.removesuffix(EOF_MARKER).rstrip(b"\0")
    return len(rest)
