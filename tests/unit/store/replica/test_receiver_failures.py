"""What a follower's files do when the disk fails, or the stream does not fit them."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.frames import BatchPiece, ReplacePiece
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.operations import BeginFile, CutFile, Journal, RemoveFiles
from pybroker.broker.domain.replica.plan import PlanAction, PlanEntry
from pybroker.broker.domain.replica.store_ports import FileChange, FollowerDiskFull, StreamMismatch
from pybroker.store.journal.files import OS, System
from pybroker.store.journal.format import EOF_MARKER, data_file_name
from pybroker.store.journal.reserve import RESERVE_NAME
from pybroker.store.replica.manifest_files import CACHE_NAME, ManifestFiles
from pybroker.store.replica.receiver import ReceiverSettings, ReplicaReceiver
from tests.replicas import MasterJournals, assert_equal_stores, batch, catch_up, journals, logical, recover_copy, trace

M, S = Journal.MESSAGES, Journal.SCHEDULER


def failing(**calls: Callable[..., Any]) -> System:
    """Return the operating system's files with other functions."""
    return cast("System", SimpleNamespace(**{name: getattr(OS, name) for name in System.__annotations__} | calls))


def failure(number: int) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def master(tmp_path: Path) -> Path:
    """Return a master's store: two message files, and one of the scheduler."""
    root = tmp_path / "a"
    writer = MasterJournals(root)
    for _ in range(2):
        writer.begin(M)
        writer.write(M, trace("a"))
    writer.begin(S)
    writer.write(S, trace("b"))
    writer.close()
    return root


def live(root: Path, master: Path, system: System = OS, settings: ReceiverSettings | None = None) -> ReplicaReceiver:
    """Return a receiver whose store is the master's, and whose stream is live."""
    root.mkdir(exist_ok=True)
    receiver = ReplicaReceiver(root, journals(root), settings, system)
    catch_up(master, receiver)
    return receiver


def piece(master: Path, payload: bytes, offset: int = 0) -> BatchPiece:
    """Return a batch for the end of the message journal."""
    end = len(logical(master)[M, 2])
    return BatchPiece(M, 2, end + offset, 0, batch(payload), is_live=True)


# ---------------------------------------------------------------- the disk


def test_failed_sync_is_final(tmp_path: Path, master: Path) -> None:
    """Also one for lack of space: the kernel may have dropped any pages."""
    for number in (errno.EIO, errno.ENOSPC):
        system = failing()
        receiver = live(tmp_path / f"b{number}", master, system)
        cast("Any", system).fdatasync = failure(number)
        with pytest.raises(StoreUnavailable):
            receiver.apply([piece(master, trace("x"))], is_live=True)
        cast("Any", system).fdatasync = OS.fdatasync
        for again in (
            lambda receiver=receiver: receiver.apply([], is_live=True),
            lambda receiver=receiver: receiver.examine(),
            lambda receiver=receiver: receiver.close(),
        ):
            with pytest.raises(StoreUnavailable):
                again()


def test_full_disk_spends_the_reserve_and_says_so(tmp_path: Path, master: Path) -> None:
    system, root = failing(), tmp_path / "b"
    receiver = live(root, master, system, ReceiverSettings(reserve_bytes=100_000))
    reserve = root / "kahadb" / RESERVE_NAME
    assert reserve.stat().st_size == 100_000, "a follower holds it from the beginning"

    def write(descriptor: int, buffers: Sequence[bytes], offset: int) -> int:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "full")
        return os.pwritev(descriptor, buffers, offset)

    cast("Any", system).pwritev = write
    receiver.apply([piece(master, trace("x"))], is_live=True)
    assert receiver.is_short_of_space
    assert not reserve.exists()
    assert logical(root)[M, 2].endswith(batch(trace("x")))
    cast("Any", system).pwritev = OS.pwritev
    receiver.examine()
    assert not receiver.is_short_of_space, "there is space again"
    assert reserve.exists()
    receiver.close()


def test_full_disk_gets_room_by_what_the_plan_removes(tmp_path: Path, master: Path) -> None:
    """The files that fill it may be those that the master has collected meanwhile."""
    system, root = failing(), tmp_path / "b"
    receiver = live(root, master, system, ReceiverSettings(reserve_bytes=100_000))
    before = receiver.examine()
    (root / "kahadb" / RESERVE_NAME).unlink()
    removed = [PlanEntry(*entry[:2], PlanAction.REMOVE, 0, 0) for entry in before]
    cast("Any", system).posix_fallocate = failure(errno.ENOSPC)
    receiver.examine()
    assert receiver.is_short_of_space, "also when it begins so"
    with pytest.raises(FollowerDiskFull, match="no space for the reserve of 100,000 bytes"):
        receiver.begin(1, removed)
    cast("Any", system).posix_fallocate = OS.posix_fallocate
    assert receiver.examine() == []
    assert not receiver.is_short_of_space
    receiver.close()


def test_full_disk_gets_room_where_the_plan_cannot_be_begun(tmp_path: Path, master: Path) -> None:
    """The mark of an unfinished catch-up needs space as well: what was collected is removed before."""
    system, root = failing(), tmp_path / "b"
    receiver = live(root, master, system)
    before = receiver.examine()
    cast("Any", system).pwritev = failure(errno.ENOSPC)
    actions = [PlanAction.REMOVE, PlanAction.REPLACE, PlanAction.KEEP]
    plan = [
        PlanEntry(*each[:2], action, each.length if action is PlanAction.KEEP else 0, each.length)
        for each, action in zip(before, actions, strict=True)
    ]
    with pytest.raises(FollowerDiskFull):
        receiver.begin(1, plan)
    assert not (root / "kahadb" / data_file_name(1)).exists()
    assert (root / "kahadb" / data_file_name(2)).exists()
    receiver.close()


def test_full_disk_names_what_may_be_removed(tmp_path: Path, master: Path) -> None:
    """What a former master had alone stays for the operator, and may be what fills the disk."""
    system, root = failing(), tmp_path / "b"
    receiver = live(root, master, system)
    kept = root / "replica" / "discarded" / "7-1" / "kahadb" / "db-9.log"
    kept.parent.mkdir(parents=True)
    os.link(root / "kahadb" / data_file_name(1), kept)
    cast("Any", system).pwritev = failure(errno.ENOSPC)
    with pytest.raises(FollowerDiskFull) as found:
        receiver.apply([piece(master, trace("x"))], is_live=True)
    assert "discarded" not in str(found.value), "the store has that file as well"
    kept.unlink()
    kept.write_bytes(bytes(10_000))
    os.sync()  # blocks are counted once they are allocated
    with pytest.raises(FollowerDiskFull, match=r"; [1-9][0-9,]+ bytes are in .*/discarded, and may be moved or rem"):
        receiver.apply([piece(master, trace("x"))], is_live=True)
    receiver.close()  # what was not written was not confirmed: a standby of another master does not end for it


def test_full_disk_without_a_reserve_ends_the_connection_alone(tmp_path: Path, master: Path) -> None:
    system, root = failing(), tmp_path / "b"
    receiver = live(root, master, system)
    before = logical(root)
    cast("Any", system).pwritev = failure(errno.ENOSPC)
    with pytest.raises(FollowerDiskFull):
        receiver.apply([piece(master, trace("x"))], is_live=True)
    cast("Any", system).pwritev = OS.pwritev
    catch_up(master, receiver)
    assert logical(root) == before
    receiver.apply([piece(master, trace("y"))], is_live=True)
    receiver.close()
    assert logical(root)[M, 2].endswith(batch(trace("y")))


def test_half_written_batch_is_written_over(tmp_path: Path, master: Path) -> None:
    """A write that stopped within a batch leaves no marker: the manifest ends before it."""
    system, root = failing(), tmp_path / "b"
    receiver = live(root, master, system)

    def half(descriptor: int, buffers: Sequence[bytes], offset: int) -> int:
        os.pwrite(descriptor, b"".join(buffers)[:35], offset)
        raise OSError(errno.ENOSPC, "full")

    cast("Any", system).pwritev = half
    with pytest.raises(FollowerDiskFull):
        receiver.apply([piece(master, trace("long" * 50))], is_live=True)
    cast("Any", system).pwritev = OS.pwritev
    catch_up(master, receiver)
    recover_copy(root, tmp_path / "scratch")
    receiver.apply([piece(master, trace("z"))], is_live=True)
    receiver.close()
    assert logical(root)[M, 2].endswith(batch(trace("z")))


# ---------------------------------------------------------------- the stream


def _replacement(length: int, crc: int, offset: int, content: bytes, file_id: int = 1) -> ReplacePiece:
    return ReplacePiece(M, file_id, length, crc, offset, content)


WRONG: list[tuple[str, Callable[[Path], FileChange]]] = [
    ("behind a gap", lambda master: piece(master, trace("x"), 1)),
    ("over what is there", lambda master: piece(master, trace("x"), -1)),
    ("empty", lambda master: piece(master, b"")._replace(content=b"")),
    ("an older file", lambda master: piece(master, trace("x"))._replace(file_id=1, offset=len(logical(master)[M, 1]))),
    ("a missing file", lambda master: piece(master, trace("x"))._replace(file_id=3, offset=0)),
    ("a file that is there", lambda _: BeginFile(M, 2)),
    ("a lower number", lambda _: BeginFile(S, 0)),
    ("another end", lambda _: CutFile(M, 2, 7)),
    ("the open file", lambda _: RemoveFiles(M, [2])),
    ("a wrong checksum", lambda _: _replacement(10, 1, 0, b"x" * 10)),
    ("too much", lambda _: _replacement(10, 1, 0, b"x" * 11)),
    ("too little", lambda _: _replacement(4, 1, 0, b"x" * 4)),
    ("the open file's content", lambda _: _replacement(10, 1, 0, b"x" * 10, 2)),
    ("a first piece without a record", lambda master: piece(master, b"")._replace(content=b"x" * 28, left=5)),
]


@pytest.mark.parametrize(("_name", "change"), WRONG, ids=[name for name, _ in WRONG])
def test_change_that_does_not_fit_is_refused(
    tmp_path: Path, master: Path, _name: str, change: Callable[[Path], FileChange]
) -> None:
    root = tmp_path / "b"
    receiver = live(root, master)
    with pytest.raises(MalformedFrame):
        receiver.apply([change(master)], is_live=True)
    catch_up(master, receiver)
    receiver.close()
    assert_equal_stores(master, root)


def test_pieces_of_another_batch_are_refused(tmp_path: Path, master: Path) -> None:
    first = piece(master, b"")._replace(content=batch(trace("x" * 100))[:50], left=100)
    for second in (
        first._replace(offset=first.offset + 50, left=60, content=b"y" * 50),
        first._replace(offset=first.offset + 51, left=50, content=b"y" * 50),
    ):
        receiver = live(tmp_path / f"b{second.offset}", master)
        receiver.apply([first], is_live=True)
        with pytest.raises(StreamMismatch):
            receiver.apply([second], is_live=True)
        with pytest.raises(StreamMismatch, match="ends within a batch"):
            receiver.apply([CutFile(M, 2, first.offset + 5)], is_live=True)
        receiver.close()


@pytest.mark.parametrize(
    "changed",
    [
        {(M, 1): (PlanAction.KEEP, 1, 1)},
        {(M, 1): (PlanAction.FETCH, 1, 9)},
        {(M, 1): (PlanAction.CUT, 1 << 20, 1 << 20)},
        {(M, 7): (PlanAction.DROP, 0, 0)},
        {(M, 7): (PlanAction.REMOVE, 0, 0)},
        {(M, 7): (PlanAction.REPLACE, 0, 9)},
        {(M, 0): (PlanAction.FETCH, 0, 9)},
        {(M, 1): None},
    ],
)
def test_plan_for_other_files_changes_nothing(
    tmp_path: Path, master: Path, changed: dict[tuple[Journal, int], tuple[PlanAction, int, int] | None]
) -> None:
    root = tmp_path / "b"
    receiver = live(root, master)
    manifest = receiver.examine()
    entries = {each[:2]: (PlanAction.KEEP, each.length, each.length) for each in manifest} | changed
    plan = [
        PlanEntry(journal, file_id, *entry)
        for (journal, file_id), entry in sorted(entries.items())
        if entry is not None
    ]
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StreamMismatch):
        receiver.begin(1, plan)
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_collected_files_are_archived_as_the_follower_wants(tmp_path: Path, master: Path) -> None:
    archive = tmp_path / "b" / "kahadb" / "data-archive"
    receiver = live(tmp_path / "b", master, settings=ReceiverSettings(archive_directory=archive))
    receiver.apply([RemoveFiles(M, [1, 99])], is_live=True)
    receiver.close()
    assert [path.name for path in archive.iterdir()] == ["db-1.log"]


# ---------------------------------------------------------------- the manifest


def test_kept_checksums_are_used_until_the_file_changes(tmp_path: Path, master: Path) -> None:
    later = 10**19
    reader = ManifestFiles(master, journals(master), clock_ns=lambda: later)
    first = reader.read(sync=True)
    cache = (master / "replica" / CACHE_NAME).read_text()
    path = master / "kahadb" / "db-1.log"
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert ManifestFiles(master, journals(master), clock_ns=lambda: later).read(sync=True) == first, "from the cache"
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns + 1))
    changed = ManifestFiles(master, journals(master), clock_ns=lambda: later).read(sync=True)
    assert changed[0].entry != first[0].entry
    assert changed[1:] == first[1:]
    assert "kahadb/2" not in cache, "the last file may grow"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"files": {"kahadb/1": [1]}}', b'{"files": {"kahadb/1": "x"}}', b"\xff"]
)
def test_unusable_cache_is_read_anew(tmp_path: Path, master: Path, content: bytes) -> None:
    first = ManifestFiles(master, journals(master)).read(sync=True)
    (master / "replica").mkdir(exist_ok=True)
    (master / "replica" / CACHE_NAME).write_bytes(content)
    assert ManifestFiles(master, journals(master)).read(sync=True) == first


def test_recent_file_is_not_kept(tmp_path: Path, master: Path) -> None:
    """Another write in the same tick of the file system's clock would not be noticed."""
    newest = max(path.stat().st_mtime_ns for path in (master / "kahadb").iterdir())
    ManifestFiles(master, journals(master), clock_ns=lambda: newest + 1_000_000_000).read(sync=True)
    assert not (master / "replica" / CACHE_NAME).exists()


def test_part_that_the_disk_cannot_read_differs_and_is_replaced(
    tmp_path: Path, master: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector in an old file must not end the member: nothing could repair the file then."""
    root = tmp_path / "b"
    receiver = live(root, master)
    content = logical(root)[M, 1] + EOF_MARKER
    with monkeypatch.context() as disk:
        disk.setattr(os, "pread", failure(errno.EIO))
        disk.setattr(os, "preadv", failure(errno.EIO))
        assert receiver.part_checksum(M, 1, 0, 10) is None
        receiver.keep_replaced(M, 1)
        receiver.apply([ReplacePiece(M, 1, len(content), crc32(content), 0, content)], is_live=True)
    assert receiver.part_checksum(M, 1, 0, len(content)) == crc32(content)
    receiver.close()
    assert_equal_stores(master, root)
    assert len([*(root / "replica" / "discarded").glob("*/kahadb/db-1.log")]) == 1


def test_part_that_cannot_be_read_for_another_reason_ends_the_receiver(
    tmp_path: Path, master: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = live(tmp_path / "b", master)
    monkeypatch.setattr(os, "pread", failure(errno.ENOMEM))
    with pytest.raises(StoreUnavailable):
        receiver.part_checksum(M, 1, 0, 10)
