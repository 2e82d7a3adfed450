"""The writes of the appender: the zeros ahead of batches, records in pieces, and large batches in portions."""

import errno
import os
import resource
import threading
import time
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.store.journal.activity import SYNC_BOUNDS
from pybroker.store.journal.appender import (
    AHEAD_BATCH_BYTES_MAX,
    AHEAD_BYTES,
    AHEAD_FREE_BYTES_MIN,
    LARGE_BATCH_BYTES,
    PIECE_BYTES_MIN,
    PORTION_BYTES,
    PORTIONS_CACHED,
    Appender,
    DiskFull,
    JournalSettings,
    Preallocation,
    SyncStrategy,
)
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, encode_batch
from tests.descriptors import open_in


class WatchedFiles(JournalFiles):
    """Journal files that record what they fill, or fail to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.filled: list[tuple[int, int]] = []
        self.failure: OSError | None = None
        self.free = AHEAD_FREE_BYTES_MIN

    def free_bytes(self) -> int:
        return self.free

    def fill(self, descriptor: int, start: int, stop: int) -> None:
        self.filled.append((start, stop))
        if self.failure is not None:
            raise self.failure
        super().fill(descriptor, start, stop)


class Journal:
    """An appender, and where it is in its data file, which has a first batch."""

    def __init__(self, directory: Path, kind: type[WatchedFiles] = WatchedFiles, /, **settings: object) -> None:
        directory.mkdir(exist_ok=True)
        self.files = kind(directory)
        self.appender = Appender(self.files, JournalSettings(**settings), time.monotonic)  # type: ignore[arg-type]
        self.begin(1)

    def begin(self, file_id: int) -> None:
        self.file_id, self.end = file_id, 0
        self.write(100)

    def write(self, byte_count: int) -> None:
        """Write a batch of so many bytes."""
        self.appender.write(self.file_id, self.end, [b"x" * (byte_count - BATCH_HEADER_BYTES)])
        self.end += byte_count

    @property
    def content(self) -> bytes:
        return self.files.path(self.file_id).read_bytes()


def test_the_hole_is_filled_piece_by_piece_ahead_of_batches(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.files.filled == [], "a file's first batch does not wait for it"
    journal.write(1000)
    start = journal.end + len(EOF_MARKER)
    assert journal.files.filled == [(start, start + AHEAD_BYTES)]
    while journal.end < start + AHEAD_BYTES:
        assert len(journal.files.filled) == 1
        journal.write(60_000)
    next_start = journal.end + len(EOF_MARKER)
    assert journal.files.filled[1:] == [(next_start, next_start + AHEAD_BYTES)]
    journal.appender.close()


def test_a_filled_file_reads_as_one_with_a_hole(tmp_path: Path) -> None:
    filled, hollow = (Journal(tmp_path / sync.value, sync=sync) for sync in (SyncStrategy.ALWAYS, SyncStrategy.NEVER))
    for journal in (filled, hollow):
        for _ in range(20):
            journal.write(50_000)
    assert filled.files.filled
    assert not hollow.files.filled
    assert filled.content == hollow.content
    for journal in (filled, hollow):
        journal.appender.close()
    assert filled.content == hollow.content
    assert len(filled.content) == filled.end + len(EOF_MARKER)


def test_the_marker_at_the_files_end_is_not_filled(tmp_path: Path) -> None:
    journal = Journal(tmp_path, file_bytes_max=100_000)
    journal.write(1000)
    ((_, stop),) = journal.files.filled
    assert stop == 100_000 - len(EOF_MARKER)
    assert journal.content.endswith(EOF_MARKER)
    journal.write(100_000 - journal.end - len(EOF_MARKER))
    journal.begin(2)
    assert len(journal.files.filled) == 1
    journal.write(1000)
    assert len(journal.files.filled) == 2
    journal.appender.close()


@pytest.mark.parametrize(
    ("settings", "byte_count"),
    [
        pytest.param({}, AHEAD_BATCH_BYTES_MAX + 1, id="long batches"),
        pytest.param({"sync": SyncStrategy.PERIODIC}, 1000, id="periodic"),
        pytest.param({"preallocation": Preallocation.NONE}, 1000, id="files that grow"),
    ],
)
def test_nothing_is_filled_where_it_saves_nothing(tmp_path: Path, settings: dict[str, object], byte_count: int) -> None:
    journal = Journal(tmp_path, **settings)
    journal.write(byte_count)
    journal.write(byte_count)
    assert journal.files.filled == []
    journal.appender.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_without_space_for_zeros_the_hole_stays_a_hole(tmp_path: Path, number: int) -> None:
    journal = Journal(tmp_path)
    journal.files.failure = OSError(number, os.strerror(number))
    journal.write(1000)
    journal.write(1000)
    assert len(journal.files.filled) == 1, "nor is it tried before each batch"
    assert journal.content.count(b"x") == 2100 - 3 * BATCH_HEADER_BYTES
    journal.appender.close()


def test_on_a_disk_with_little_space_nothing_is_filled(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.files.free -= 1
    journal.write(1000)
    journal.write(1000)
    assert journal.files.filled == []
    journal.appender.close()


def test_owner_is_looked_for_at_the_limit_of_open_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.appender.require_own()
    opened: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(highest + 1))
        for _ in range(3):
            journal.appender.require_own()
        journal.files.path(1).unlink()
        with pytest.raises(LockNotHeld):
            journal.appender.require_own()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in opened:
            os.close(descriptor)
    assert open_in(tmp_path) == ["db-1.log (deleted)"]
    assert tmp_path.name in open_in(tmp_path.parent), "the directory is open, too"
    journal.appender.abandon()
    assert not open_in(tmp_path)
    assert tmp_path.name not in open_in(tmp_path.parent)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("large_count", [0, 1, 3, 600])
def test_records_in_pieces_are_the_batch_of_their_bytes(tmp_path: Path, large_count: int, checksum: bool) -> None:
    journal = Journal(tmp_path, checksum=checksum, file_bytes_max=64 << 20)
    pieces = [b"one", b"two", *[b"", b"x" * PIECE_BYTES_MIN, b"end"] * large_count, b"last"]
    start = journal.end
    journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    expected = encode_batch(pieces, checksum=checksum) + EOF_MARKER
    assert journal.content[start : start + len(expected)] == expected


def test_a_large_record_in_pieces_is_written_without_a_copy(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    pieces = [b"head", bytes(8 << 20), b"tail"]
    tracemalloc.start()
    try:
        journal.appender.write(journal.file_id, journal.end, pieces, is_in_pieces=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("count", range(9))
def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    files = JournalFiles(tmp_path)
    descriptor = files.create(1)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:2], offset))
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: pwrite(fd, b"".join(buffers)[:count], offset))
    files.write(descriptor, (b"abcdef", b"", b"ghi"), 10)
    files.close(descriptor)
    assert (tmp_path / "db-1.log").read_bytes()[10:] == b"abcdefghi"


class RecordingFiles(WatchedFiles):
    """Journal files that record where they write and what they write back, or fail to write at one place."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.written: list[tuple[int, int]] = []
        self.written_back: list[tuple[int, int]] = []
        self.fails_from: int | None = None

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if self.fails_from is not None and offset >= self.fails_from:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written.append((offset, sum(map(len, buffers))))
        super().write(descriptor, buffers, offset)

    def write_back(self, descriptor: int, offset: int, byte_count: int) -> None:
        self.written_back.append((offset, byte_count))
        super().write_back(descriptor, offset, byte_count)


def large_batch(directory: Path) -> tuple[Journal, RecordingFiles, list[bytes]]:
    """Return a journal whose files record, and the pieces of a record that is written in portions."""
    journal = Journal(directory, RecordingFiles, file_bytes_max=64 << 20)
    files = journal.files
    assert isinstance(files, RecordingFiles)
    files.written.clear()
    body = b"".join(number.to_bytes(4) for number in range(LARGE_BATCH_BYTES // 4 + 1000))
    return journal, files, [b"head", body, b"tail"]


@pytest.mark.parametrize("checksum", [True, False])
def test_a_large_batch_is_the_same_bytes_with_its_header_last(tmp_path: Path, checksum: bool) -> None:
    journal, files, pieces = large_batch(tmp_path)
    journal.appender._settings = JournalSettings(checksum=checksum)
    start = journal.end
    journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    expected = encode_batch(pieces, checksum=checksum) + EOF_MARKER
    assert journal.content[start : start + len(expected)] == expected
    assert files.written[-1] == (start, BATCH_HEADER_BYTES), "until then the former marker ends the file"
    assert all(offset > start for offset, _ in files.written[:-1])
    assert max(count for _, count in files.written) == PORTION_BYTES


def test_a_large_batch_is_written_while_its_checksum_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, files, pieces = large_batch(tmp_path)
    adler32, write, is_written = zlib.adler32, files.write, threading.Event()

    def computing(piece: bytes, value: int) -> int:
        assert is_written.wait(20), "no portion waits for the checksum"
        return adler32(piece, value)

    def writing(descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        write(descriptor, buffers, offset)
        if buffers == (EOF_MARKER,):
            is_written.set()

    monkeypatch.setattr(zlib, "adler32", computing)
    monkeypatch.setattr(files, "write", writing)
    start = journal.end
    journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    monkeypatch.undo()
    assert journal.content[start:].startswith(encode_batch(pieces) + EOF_MARKER)


def test_each_portion_of_a_large_batch_is_written_back(tmp_path: Path) -> None:
    journal, files, pieces = large_batch(tmp_path)
    start = journal.end
    journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    portions = [each for each in files.written if each[0] > start][:-1]
    assert len(files.written_back) == len(portions)
    for number, (offset, count) in enumerate(portions):
        covering = [at for at, (begin, size) in enumerate(files.written_back) if begin < offset + count <= begin + size]
        assert covering[0] == number, "at once"
        assert covering[-1] >= min(number + PORTIONS_CACHED, len(portions) - 1), "and once it is on disk, to be dropped"
    assert max(count for _, count in files.written_back) <= (PORTIONS_CACHED + 1) * PORTION_BYTES


def test_a_large_batch_without_space_leaves_the_end_where_it_was(tmp_path: Path) -> None:
    journal, files, pieces = large_batch(tmp_path)
    start = journal.end
    files.fails_from = start + LARGE_BATCH_BYTES // 2
    with pytest.raises(DiskFull):
        journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    assert journal.content[start : start + len(EOF_MARKER)] == EOF_MARKER
    files.fails_from = None
    journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    assert journal.content[start:].startswith(encode_batch(pieces) + EOF_MARKER)


def test_a_file_system_that_takes_no_advice_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    journal, _, pieces = large_batch(tmp_path)
    start = journal.end
    journal.appender.write(journal.file_id, start, pieces, is_in_pieces=True)
    assert journal.content[start:].startswith(encode_batch(pieces) + EOF_MARKER)


def test_bytes_and_syncs_are_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    times = iter([10.0, 10.0004, 20.0, 20.003, 30.0, 33.0])
    journal.appender = Appender(journal.files, JournalSettings(), lambda: next(times))
    journal.begin(2)
    journal.write(1000)
    journal.write(500)
    activity = journal.appender.activity
    assert activity.written_bytes == 1600
    assert {SYNC_BOUNDS[at] if at < len(SYNC_BOUNDS) else None for at, n in enumerate(activity.sync_counts) if n} == {
        0.0005,
        0.005,
        None,
    }
    assert activity.sync_seconds == pytest.approx(3.0034)


def test_without_syncs_none_are_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path, sync=SyncStrategy.NEVER)
    journal.write(1000)
    assert journal.appender.activity.written_bytes == 1100
    assert sum(journal.appender.activity.sync_counts) == 0
