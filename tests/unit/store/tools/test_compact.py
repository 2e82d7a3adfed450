"""Compaction of a stopped store: the same contents in fewer bytes, whatever happens on the way."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import JournalCorrupt, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.clean_stop import CLEAN_STOP
from pybroker.store.journal.commands import (
    Command,
    Commit,
    Prepare,
    RemoveDestination,
    Trace,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.declared_queues import encode_declared
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.tools.check import check
from pybroker.store.journal.tools.compact import CompactionOptions, CompactionReport, compact, compact_jobs
from pybroker.store.journal.tools.export import Export, scheduled
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from tests.unit.store.tools.journals import OTHER, PRODUCER, QUEUE, TOPIC, ack, add, message_id, subscribe, write

TX = LocalTransactionId("ID:c:1", 1)
XA = XATransactionId(1, b"g", b"b")

STORES = [
    "01-mixed",
    "02-consumed-gc",
    "03-durable",
    "04-localtx-kill9",
    "05-xa-indoubt-kill9",
    "06-priority",
    "07-large",
    "08-torn-tail",
    "11-redelivered-updates",
]

BUSY: Sequence[Sequence[Command]] = (
    [add(1), add(2), add(3, OTHER), subscribe("a"), add(4, TOPIC), subscribe("b"), add(5, TOPIC)],
    [ack(1), add(6, transaction=TX), ack(4, TOPIC, key="client:a"), add(7), Commit(TX), ack(7), add(7)],
    [subscribe("c"), Unsubscribe(TOPIC, "client:b"), add(8, TOPIC), subscribe("b"), ack(5, TOPIC, key="client:a")],
    [add(9, transaction=XA), ack(2, transaction=XA, ack=b"\x16"), Prepare(XA), add(10, transaction=TX)],
    [UpdateMessage(add(2, text="again")), RemoveDestination(OTHER), add(11, OTHER), encode_declared([queue("KEPT")])],
    [add(12, TOPIC), ack(12, TOPIC, key="client:c"), add(13, TOPIC)],
)
"""Everything that makes one record matter to another."""


def no_check() -> None:
    """The lock is held."""


def options(directory: Path, *, archive: bool = False, file_bytes_max: int = 1 << 20) -> CompactionOptions:
    return CompactionOptions(
        check=no_check, archive=directory / "data-archive" / "x" if archive else None, file_bytes_max=file_bytes_max
    )


def compacted(directory: Path, **how: Any) -> CompactionReport:
    return compact(JournalFiles(directory), options(directory, **how))


def contents(directory: Path) -> list[dict[str, Any]]:
    """Return what a directory means, wherever it lies; subscriptions have no order."""
    with JournalSnapshot(directory) as snapshot:
        lines = [without_place(json.loads(json.dumps(item.as_json()))) for item in Export(snapshot)]
    return sorted(lines, key=lambda item: (item["kind"], item.get("client_id", ""), item.get("name", "")))


def without_place(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_place(each) for name, each in value.items() if name not in ("file", "offset")}
    return [without_place(each) for each in value] if isinstance(value, list) else value


def kinds(directory: Path) -> list[str]:
    with JournalSnapshot(directory) as snapshot:
        return [finding.kind for finding in check(snapshot).findings]


@pytest.mark.parametrize("name", STORES)
def test_captured_stores_mean_the_same_afterwards(sample: Callable[[str], Any], name: str) -> None:
    directory = sample(name).kahadb
    before = contents(directory)
    done = compacted(directory)
    assert contents(directory) == before
    assert done.bytes_after < done.bytes_before
    assert not (directory / "db.data").exists()
    assert [kind for kind in kinds(directory) if kind != "in doubt"] == []


def test_a_compacted_journal_has_the_same_state(tmp_path: Path) -> None:
    for number, file_bytes_max in enumerate((1, 700, 1 << 20)):
        directory = write(tmp_path / str(number), *BUSY)
        before = contents(directory)
        done = compacted(directory, file_bytes_max=file_bytes_max)
        assert contents(directory) == before
        assert (done.files_after > 3) is (file_bytes_max < 1000)
        assert done.alive == {"messages": 7, "subscriptions": 3, "transactions": 1}
        again = compacted(directory)
        assert (contents(directory), again.files_after) == (before, 1)


def test_what_is_no_message_is_remembered_too(tmp_path: Path) -> None:
    """Kept queues, what producers last sent, and which messages consumers had seen at a clean stop."""
    clean_stop = CLEAN_STOP + json.dumps({"delivered": [message_id(11)]})
    directory = write(tmp_path / "store", *BUSY, [add(14), ack(14), Trace(clean_stop)])
    compacted(directory)
    state = StoreState()
    result = replay(directory, state)
    assert queue("KEPT") in state.queues()
    assert state.sequences.last(str(PRODUCER)) == 14
    assert result.closing_traces[-1] == clean_stop


def test_a_compaction_keeps_activemqs_clean_stop(sample: Callable[[str], Any]) -> None:
    """Its index records that it did, and goes."""
    directory = sample("01-mixed").kahadb
    compacted(directory)
    assert replay(directory, StoreState()).closing_traces[-1] == CLEAN_STOP + '{"delivered": []}'


def test_the_originals_are_moved_or_deleted_as_requested(tmp_path: Path) -> None:
    for archive in (True, False):
        directory = write(tmp_path / str(archive), *BUSY)
        originals = {path.name: path.read_bytes() for path in directory.iterdir()}
        done = compacted(directory, archive=archive)
        assert [path.name for path in sorted(directory.glob("db-*"))] == ["db-7.log"]
        if archive:
            assert {path.name: path.read_bytes() for path in Path(done.archive or "").iterdir()} == originals
        else:
            assert done.archive is None


def test_a_scheduler_means_the_same_afterwards(sample: Callable[[str], Any]) -> None:
    directory = sample("09-scheduled").scheduler
    before = [without_place(item.as_json()) | {"execution_count": 0} for item in scheduled(directory)]
    done = compact_jobs(JournalFiles(directory), options(directory))
    assert [without_place(item.as_json()) for item in scheduled(directory)] == before
    assert (done.alive, done.files_after) == ({"scheduled": 6}, 1)
    assert kinds(directory) == []


def test_an_empty_store_stays_a_store(tmp_path: Path) -> None:
    directory = write(tmp_path / "store", [add(1), ack(1)])
    compacted(directory)
    assert contents(directory) == []
    assert kinds(directory) == []


# ---------------------------------------------------------------- what goes wrong


def test_a_damaged_store_is_refused_untouched(sample: Callable[[str], Any]) -> None:
    directory = sample("10-corrupt-batch").kahadb
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(JournalCorrupt, match="offset 21438"):
        compacted(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


class Killed(BaseException):
    """The process is gone."""


class Mortal(JournalFiles):
    """Dies before or after its nth change of the directory."""

    def __init__(self, directory: Path, life: int, *, after: bool) -> None:
        super().__init__(directory)
        self.life = life
        self._after = after

    def _step(self, work: Callable[[], None]) -> None:
        self.life -= 1
        if self.life < 0:
            raise Killed  # whatever cleaning up is tried afterwards does not happen any more
        if self.life == 0 and not self._after:
            raise Killed
        work()
        if self.life == 0:
            raise Killed

    def replace(self, file_id: int, content: Sequence[bytes | memoryview], *fence: Callable[[], None]) -> None:
        self._step(lambda: JournalFiles.replace(self, file_id, content))

    def remove(self, *paths: Path) -> None:
        for path in paths:
            self._step(lambda path=path: JournalFiles.remove(self, path))  # type: ignore[misc]

    def archive(self, path: Path, target: Path) -> None:
        self._step(lambda: JournalFiles.archive(self, path, target))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("archive", [False, True], ids=["delete", "archive"])
def test_a_kill_at_any_step_leaves_the_same_state(tmp_path: Path, archive: bool, after: bool) -> None:
    for life in range(1, 60):
        directory = write(tmp_path / str(life), *BUSY)
        before = contents(directory)
        files = Mortal(directory, life, after=after)
        try:
            compact(files, options(directory, archive=archive, file_bytes_max=900))
        except Killed:
            assert contents(directory) == before, life
            assert compacted(directory).files_after == 1
            assert contents(directory) == before, life
        else:
            assert life > 8, "some steps were taken before it got through"
            return
    raise AssertionError("it never gets through")


def test_a_lost_lock_ends_it_before_anything_changes(tmp_path: Path) -> None:
    directory = write(tmp_path / "store", *BUSY)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    def lost() -> None:
        raise LockNotHeld("gone")

    with pytest.raises(LockNotHeld):
        compact(JournalFiles(directory), CompactionOptions(check=lost, archive=None, file_bytes_max=700))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


class Full(JournalFiles):
    """A disk without space for a second file."""

    def replace(self, file_id: int, content: Sequence[bytes | memoryview], *fence: Callable[[], None]) -> None:
        if list(self.directory.glob("db-[89].log")):
            raise OSError(28, "No space left on device", str(self.path(file_id)))
        super().replace(file_id, content, *fence)


def test_a_full_disk_ends_it_with_the_store_as_it_was(tmp_path: Path) -> None:
    directory = write(tmp_path / "store", *BUSY)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(StoreUnavailable, match="No space left on device; the store is as it was"):
        compact(Full(directory), options(directory, file_bytes_max=700))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


class Forgetful(JournalFiles):
    """A disk that returns something else than was written."""

    def replace(self, file_id: int, content: Sequence[bytes | memoryview], *fence: Callable[[], None]) -> None:
        data = bytearray(b"".join(content))
        data[len(data) // 2] ^= 1
        super().replace(file_id, (bytes(data),))


def test_what_does_not_read_back_is_taken_away_again(tmp_path: Path) -> None:
    directory = write(tmp_path / "store", *BUSY)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(StoreUnavailable, match="does not read back"):
        compact(Forgetful(directory), options(directory))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_dead_messages_are_gone(tmp_path: Path) -> None:
    directory = write(tmp_path / "store", [add(number, text="dead " * 500) for number in range(20)], [add(99, QUEUE)])
    write(directory, [ack(number) for number in range(20)], first=3)
    done = compacted(directory)
    assert b"dead" not in (directory / "db-4.log").read_bytes()
    assert done.bytes_after < 1000
