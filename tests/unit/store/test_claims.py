"""A former master that lost its lock without noticing begins a data file during the new master's take-over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER
from pybroker.store.journal.store_snapshot import follower
from tests.unit.store.test_journal_store import QUEUE, Bench, message

LONG = 1500
"""Content that does not fit into the first data file, and leaves some space in the next."""


class Hooked(JournalFiles):
    """Files of a new master, which is interrupted before it creates or replaces one."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.before_create: list[Callable[[], None]] = []
        self.before_replace: list[Callable[[], None]] = []

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        if self.before_create:
            self.before_create.pop(0)()
        return super().create(file_id, preallocate_bytes, is_claim=is_claim)

    def replace(self, file_id: int, content: Any, *fence: Callable[[], None]) -> None:
        if self.before_replace:
            self.before_replace.pop(0)()
        super().replace(file_id, content, *fence)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kahadb"


def master(directory: Path, **options: Any) -> Bench:
    """Return a master with one confirmed message."""
    bench = Bench(directory, **options)
    bench.store.recover()
    bench.store.add(message(1))
    bench.sync()
    return bench


def ids(*messages: Message) -> list[str]:
    return [each.message_id for each in messages]


def recovered(directory: Path) -> list[str]:
    """Return what yet another new master finds."""
    bench = Bench(directory)
    found = bench.store.recover().queues[QUEUE]
    assert not bench.store.damages
    bench.store.abandon()
    return list(found)


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_number_that_a_former_master_takes_first_is_left_to_it(
    directory: Path, is_warm: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stale = master(directory)
    standby = follower(directory) if is_warm else None
    if standby is not None:
        standby.advance()

    def rotate() -> None:
        stale.store.add(message(2, LONG))
        stale.sync()

    files = Hooked(directory)
    files.before_create = [rotate]
    new_master = Bench(directory, files=files, follower=standby)
    found = new_master.store.recover()
    assert list(found.queues[QUEUE]) == ids(message(1), message(2, LONG)), "all that was there when the number was got"
    assert new_master.store.epoch == 3
    assert "db-2.log is there already" in caplog.text
    if standby is not None:
        assert standby.rebuild_count == 0, "nothing is read twice"

    stale.store.remove(QUEUE, message(1).message_id)
    assert stale.store._writer.file_id == 2
    with pytest.raises(LockNotHeld, match=r"db-3\.log is its own"):
        stale.store.close()
    new_master.store.abandon()
    assert recovered(directory) == ids(message(1), message(2, LONG))


def test_once_a_number_is_claimed_no_former_master_gets_past_it(directory: Path) -> None:
    """Else its next file would stay, and what it wrote before would not: half a transaction, for instance."""
    stale = master(directory)
    transaction = LocalTransactionId("ID:c:1", 7)

    def go_on() -> None:
        stale.store.add(message(2), transaction)
        stale.store.add(message(3, LONG), transaction)
        stale.store.commit(transaction)
        with pytest.raises(LockNotHeld, match=r"db-2\.log is its own"):
            stale.store.close()

    files = Hooked(directory)
    files.before_replace = [go_on]
    new_master = Bench(directory, files=files)
    assert new_master.store.recover().queues[QUEUE] == ids(message(1))
    new_master.store.abandon()
    assert recovered(directory) == ids(message(1))


@pytest.mark.parametrize("tail", [b"", b"\0\0\0\x1c\x02WRITE BATCH\0\0"])
def test_a_new_master_that_only_claimed_a_number_is_cut_off(directory: Path, tail: bytes) -> None:
    master(directory, settings=JournalSettings(preallocation=Preallocation.NONE)).store.abandon()
    path = directory / "db-1.log"
    path.write_bytes(path.read_bytes().removesuffix(EOF_MARKER) + (tail or EOF_MARKER))
    claimed = JournalFiles(directory).create(2)

    new_master = Bench(directory)
    assert new_master.store.recover().queues[QUEUE] == ids(message(1))
    assert not new_master.store.damages, "what is torn below an empty file was written last"
    assert new_master.store.epoch == 3
    late = path.read_bytes()
    JournalFiles(directory).write(claimed, (late,), 0)
    JournalFiles(directory).close(claimed)
    new_master.store.abandon()
    assert (directory / "db-2.log").read_bytes() == EOF_MARKER
    assert late.endswith(EOF_MARKER)
    assert recovered(directory) == ids(message(1))
