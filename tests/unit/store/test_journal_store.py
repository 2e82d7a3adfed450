"""The journal store's own behaviour: take-over of a directory, sealing, cleaning up, metadata records."""

import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pybroker import __version__
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import JournalCorrupt, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
)
from pybroker.broker.domain.recovery import PreparedAck
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal import clean_stop, store_snapshot
from pybroker.store.journal.appender import JournalSettings, SyncStrategy
from pybroker.store.journal.bodies import BodyReader
from pybroker.store.journal.clean_stop import CLEAN_STOP
from pybroker.store.journal.commands import Command, Rollback, Trace, decode, encode
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import EOF_MARKER, encode_batch, encode_record
from pybroker.store.journal.marks import decode_mark
from pybroker.store.journal.reader import DataFileWalk
from pybroker.store.journal.snapshot_messages import SnapshotMessages
from pybroker.store.journal.store import JournalStore
from tests.descriptors import open_in
from tests.runtimes import runtime, wait_for_end
from tests.soundness import assert_sound

QUEUE = queue("Q")
TOPIC = topic("T")
TX = LocalTransactionId("ID:c:1", 1)
SMALL = JournalSettings(file_bytes_max=2000)


def message(sequence: int, size: int = 10, destination: Any = QUEUE) -> Message:
    producer = ProducerId("ID:c:1", 1, 1)
    return to_message(
        OpenWireMessage(
            type=MessageType.BYTES,
            producer_id=producer,
            destination=destination,
            message_id=OpenWireMessageId(None, producer, sequence),
            persistent=True,
            content=b"x" * size,
        )
    )


class Bench:
    """A store on a directory; `sync` waits for its writer and then runs what it posted."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.posted: list[Callable[[], None]] = []
        self.failures: list[Exception] = []
        options = {"settings": SMALL, **options}
        world: dict[str, Any] = {name: options.pop(name) for name in ("fence", "call_later") if name in options}
        world |= {"on_failure": self.failures.append, "clock": lambda: 1_700_000_000_123}
        self.store = JournalStore(directory, runtime=runtime(self.posted.append, **world), **options)

    def sync(self) -> None:
        done = threading.Event()
        self.store._writer.submit(done.set)
        assert done.wait(20)
        self.turn()

    def turn(self) -> None:
        """Run what was posted."""
        while self.posted:
            self.posted.pop(0)()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "kahadb"


def commands(path: Path) -> list[Command]:
    """Return the records of a data file without its time marks."""
    walk = DataFileWalk(path.read_bytes(), 1)
    found = [decode(payload) for _, payload in walk]
    return [each for each in found if not (isinstance(each, Trace) and decode_mark(each.message) is not None)]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


class TestTransactionsInDoubt:
    """Prepared by an ActiveMQ that was killed, decided by pybroker."""

    def test_prepared_transactions_are_recovered_whole(self, sample: Callable[[str], Any]) -> None:
        bench = Bench(sample("05-xa-indoubt-kill9").kahadb)
        one, five = bench.store.recover().prepared
        bench.store.abandon()
        assert one.transaction_id == XATransactionId(4660, b"global-one", b"branch-one")
        assert [each.message_id.rpartition(":")[2] for each in one.sent] == ["1", "2", "3"]
        consumed = [f"ID:vm-34099-1795219907897-4:1:1:1:{number}" for number in (1, 2)]
        assert list(one.acknowledged) == [PreparedAck(queue("XA.Q"), message_id) for message_id in consumed]
        assert five.transaction_id == XATransactionId(-1, b"global-five", b"b5")
        assert (len(five.sent), len(five.acknowledged)) == (2, 0)

    @pytest.mark.parametrize("lives", [1, 3])
    @pytest.mark.parametrize(("outcome", "facts"), [("commit", "after_xacommit"), ("rollback", "after_xarollback")])
    def test_the_outcome_is_what_activemq_makes_of_it(
        self, sample: Callable[[str], Any], outcome: str, facts: str, lives: int
    ) -> None:
        store = sample("05-xa-indoubt-kill9")
        for _ in range(lives - 1):
            earlier = Bench(store.kahadb)
            earlier.store.recover()
            earlier.store.abandon()
        bench = Bench(store.kahadb)
        prepared = bench.store.recover().prepared
        for each in prepared:
            getattr(bench.store, outcome)(each.transaction_id)
        bench.store.close()
        new_master = Bench(store.kahadb)
        recovery = new_master.store.recover()
        new_master.store.abandon()
        found = {str(each): list(message_ids) for each, message_ids in recovery.queues.items()}
        assert found == store.facts[facts]["queues"]
        assert not recovery.prepared

    def test_a_message_about_to_be_added_that_is_damaged_is_reported(self, directory: Path) -> None:
        branch = XATransactionId(1, b"g", b"b")
        bench = Bench(directory, settings=JournalSettings(checksum=False))
        bench.store.recover()
        bench.store.add(message(1), branch)
        bench.store.add(message(2), branch)
        bench.store.prepare(branch)
        bench.store.close()
        path = directory / "db-1.log"
        data = path.read_bytes()
        path.write_bytes(data.replace(message(1).data[:40], b"\xff" * 40, 1))
        new_master = Bench(directory)
        (prepared,) = new_master.store.recover().prepared
        assert [each.message_id for each in prepared.sent] == [message(1).message_id, message(2).message_id]
        new_master.store.commit(branch)
        found = new_master.store.read(message(1).destination, [each.message_id for each in prepared.sent])
        new_master.store.abandon()
        assert [each.message_id for each in found] == [message(2).message_id]
        assert len(new_master.store.damages) == 1


class TestTakeOver:
    def test_a_missing_directory_is_made(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.recover()
        bench.store.close()
        assert names(directory) == {"db-1.log"}

    def test_each_life_begins_a_data_file_with_a_remark(self, directory: Path) -> None:
        for life in (1, 2, 3):
            bench = Bench(directory)
            bench.store.recover()
            bench.store.abandon()
            expected = [Trace(f"pybroker {__version__} started 2023-11-14T22:13:20.123+00:00, epoch {life}")]
            assert commands(directory / f"db-{life}.log") == expected

    def test_activemqs_index_goes_before_any_data_file_is_touched(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "db-7.log").write_bytes(encode_batch([encode_record(encode(Trace("LOADED")))]) + b"torn")
        for name in ("db.data", "db.redo", "db.free", "lock"):
            (directory / name).write_bytes(b"12345678")
        states: list[set[str]] = []

        class Files(JournalFiles):
            def replace(self, file_id: int, content: Any, *fence: Callable[[], None]) -> None:
                states.append(names(self.directory))
                super().replace(file_id, content, *fence)

        bench = Bench(directory, files=Files(directory))
        bench.store.recover()
        bench.store.abandon()
        assert states == [{"damaged", "db-7.log", "db-8.log", "lock"}]
        assert names(directory) == {"damaged", "db-7.log", "db-8.log", "lock"}

    @pytest.mark.parametrize(
        ("header", "delivered"), [("cleanShutdown=true", frozenset()), ("cleanShutdown=false", None)]
    )
    def test_a_clean_stop_of_activemq_marks_nothing_redelivered(
        self, directory: Path, header: str, delivered: frozenset[str] | None
    ) -> None:
        directory.mkdir(parents=True)
        (directory / "db-1.log").write_bytes(encode_batch([encode_record(encode(Trace("LOADED")))]) + EOF_MARKER)
        (directory / "db.data").write_bytes(f"#\nfileTypeVersion=1\n{header}\n".encode().ljust(4096))
        bench = Bench(directory)
        assert bench.store.recover().delivered == delivered
        bench.store.abandon()

    def test_unfinished_local_transactions_are_rolled_back(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.recover()
        bench.store.add(message(1), TX)
        bench.sync()
        bench.store.abandon()
        bench = Bench(directory)
        bench.store.recover()
        bench.store.abandon()
        assert commands(directory / "db-2.log")[0] == Rollback(TX)

    def test_nothing_is_written_when_the_replay_fails(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "db-1.log").write_bytes(b"This is a log, but no one's journal." * 10)
        (directory / "db.data").write_bytes(b"someone's")
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        with pytest.raises(JournalCorrupt, match="not a KahaDB journal"):
            Bench(directory).store.recover()
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before

    def test_nothing_is_written_without_the_lock(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "db.data").write_bytes(b"the master's")

        def check() -> None:
            raise LockNotHeld("another has it")

        with pytest.raises(LockNotHeld):
            Bench(directory, fence=check).store.recover()
        assert names(directory) == {"db.data"}

    def test_a_former_master_that_wakes_up_writes_into_nothing(self, directory: Path) -> None:
        stale = Bench(directory, settings=JournalSettings())
        stale.store.recover()
        stale.store.add(message(1))
        stale.sync()

        new_master = Bench(directory)
        new_master.store.recover()
        stale.store.remove(QUEUE, message(1).message_id)
        stale.store.add(message(2))
        with pytest.raises(LockNotHeld, match=r"db-2\.log is its own"):
            stale.store.close()
        new_master.store.abandon()

        last = Bench(directory)
        recovered = last.store.recover().queues[QUEUE]
        last.store.abandon()
        assert recovered == [message(1).message_id]

    def test_former_master_confirms_nothing_behind_a_required_fence(self, directory: Path) -> None:
        """A new master has taken the journal over, though the former one's lock still passes."""
        former, new, confirmed = Bench(directory), Bench(directory), list[str]()
        former.store.recover()
        former.store.require_fence()
        former.store.when_confirmed(partial(confirmed.append, "as master"))
        former.sync()
        new.store.recover()
        former.store.require_fence()
        former.store.when_confirmed(partial(confirmed.append, "as former master"))
        with pytest.raises(LockNotHeld, match=r"db-2\.log is its own"):
            former.store.close()
        assert confirmed == ["as master"]
        new.store.abandon()

    def test_a_file_whose_end_is_cut_off_is_kept_as_it_was(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = Bench(directory)
        bench.store.recover()
        bench.store.add(message(1))
        bench.sync()
        bench.store.abandon()
        path = directory / "db-1.log"
        data = bytearray(path.read_bytes())
        data[data.index(message(1).data) + 3] ^= 0xFF  # a torn write, or damage: they look the same
        path.write_bytes(data)
        with caplog.at_level(logging.INFO):
            bench = Bench(directory)
            assert bench.store.recover().queues == {}
        bench.store.abandon()
        assert (directory / "damaged" / "db-1.log").read_bytes() == data
        assert f"the file as it was is in {directory / 'damaged'}" in caplog.text

        path = directory / "db-2.log"
        path.write_bytes(path.read_bytes().replace(b"started", b"STARTED"))

        def refuse(path: Path, target: Path) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", str(path))

        monkeypatch.setattr(os, "link", refuse)
        bench = Bench(directory)
        bench.store.recover()
        bench.store.abandon()
        assert "could not be kept" in caplog.text

    def test_a_torn_tail_below_a_torn_claim_is_no_damage(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.recover()
        bench.store.add(message(1))
        bench.sync()
        bench.store.abandon()
        path = directory / "db-1.log"
        path.write_bytes(path.read_bytes().replace(message(1).data, bytes(len(message(1).data))))
        # The next master had claimed a number, and no more, when power failed: of two markers one was written.
        (directory / "db-2.log").write_bytes(bytes(4000) + EOF_MARKER)
        for _ in range(2):
            bench = Bench(directory)
            assert bench.store.recover().queues == {}
            assert bench.store.damages == []
            bench.store.abandon()
        assert_sound(directory)

    def test_a_former_master_that_goes_on_to_a_new_file_stops_there(self, directory: Path) -> None:
        stale = Bench(directory)
        stale.store.recover()
        new_master = Bench(directory)
        new_master.store.recover()
        stale.store.add(message(1, 3000))
        with pytest.raises(LockNotHeld, match=r"db-2\.log is its own"):
            stale.store.close()
        new_master.store.abandon()

    def test_a_directory_that_cannot_be_made_is_explained(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailable, match="Not a directory"):
            Bench(tmp_path / "file" / "kahadb").store.recover()

    def test_damage_is_logged_record_by_record_and_the_rest_is_used(
        self, directory: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = Bench(directory)
        bench.store.recover()
        for number in (1, 2, 3):
            bench.store.add(message(number))
            bench.sync()
        bench.store.close()
        path = directory / "db-1.log"
        data = bytearray(path.read_bytes())
        data[data.index(message(2).data) + 3] ^= 0xFF
        path.write_bytes(data)
        with caplog.at_level(logging.ERROR):
            bench = Bench(directory)
            recovered = bench.store.recover().queues[QUEUE]
        bench.store.abandon()
        assert recovered == [message(1).message_id, message(3).message_id]
        assert len(bench.store.damages) == 1
        assert "db-1.log: offset" in caplog.text


class TestCleanStop:
    def last_command(self, directory: Path) -> Command:
        path = max(directory.glob("db-*.log"), key=lambda each: int(each.stem[3:]))
        return commands(path)[-1]

    def test_clean_stop_is_the_last_record_and_plain_json(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.recover()
        bench.store.close(delivered=["ID:b", "ID:a", "ID:b"])
        trace = self.last_command(directory)
        assert isinstance(trace, Trace)
        assert json.loads((trace.message or "").removeprefix(CLEAN_STOP)) == {"delivered": ["ID:a", "ID:b"]}

    def test_too_many_to_name_are_all_called_delivered(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clean_stop, "DELIVERED_MAX", 2)
        for delivered, expected in ((["a", "b"], {"a", "b"}), (["a", "b", "c"], None)):
            bench = Bench(directory)
            bench.store.recover()
            bench.store.close(delivered)
            bench = Bench(directory)
            assert bench.store.recover().delivered == expected
            bench.store.abandon()

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"delivered": 5}', '{"seen": []}', '{"delivered": null}'])
    def test_a_trace_record_that_is_not_ours_is_ignored(self, directory: Path, text: str) -> None:
        directory.mkdir(parents=True)
        batch = encode_batch([encode_record(encode(Trace(CLEAN_STOP + text)))])
        (directory / "db-1.log").write_bytes(batch + EOF_MARKER)
        bench = Bench(directory)
        assert bench.store.recover().delivered is None
        bench.store.abandon()

    def test_close_is_harmless_twice_and_before_opening(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.close()
        bench.store.recover()
        bench.store.close()
        bench.store.close()


class TestCleanup:
    def filled(self, directory: Path, **options: Any) -> Bench:
        """Return a store with ten files, all but the last needed no more."""
        bench = Bench(directory, **options)
        bench.store.recover()
        for number in range(10):
            bench.store.add(message(number, 1500))
        for number in range(10):
            bench.store.remove(QUEUE, message(number).message_id)
        bench.sync()
        return bench

    def test_files_needed_no_more_are_deleted(self, directory: Path) -> None:
        bench = self.filled(directory)
        bench.store.cleanup()
        bench.sync()
        assert len(names(directory)) == 1
        bench.store.close()

    def test_files_are_moved_into_the_archive(self, directory: Path, tmp_path: Path) -> None:
        settings = JournalSettings(file_bytes_max=2000, archive_directory=tmp_path / "archive")
        bench = self.filled(directory, settings=settings)
        before = names(directory)
        bench.store.cleanup()
        bench.sync()
        assert len(names(directory)) == 1
        assert names(directory) | names(tmp_path / "archive") == before
        bench.store.close()

    def test_files_are_removed_in_ascending_order_each_durably(self, directory: Path) -> None:
        calls: list[str] = []

        class Files(JournalFiles):
            def remove(self, *paths: Path) -> None:
                calls.extend(path.name for path in paths)
                super().remove(*paths)

            def sync_directory(self) -> None:
                calls.append("sync")
                super().sync_directory()

        bench = self.filled(directory, files=Files(directory))
        calls.clear()
        bench.store.cleanup()
        bench.sync()
        removed = [int(name[3:-4]) for name in calls if name != "sync"]
        assert removed == sorted(removed)
        assert len(removed) > 5
        assert calls[1::2] == ["sync"] * len(removed)
        bench.store.close()

    def test_messages_are_written_between_two_removals(self, directory: Path) -> None:
        calls: list[str] = []
        is_removing, may_go_on = threading.Event(), threading.Event()

        class Files(JournalFiles):
            def remove(self, *paths: Path) -> None:
                calls.append("remove")
                if calls.count("remove") == 3:
                    is_removing.set()
                    assert may_go_on.wait(20)
                super().remove(*paths)

            def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
                calls.append("write")
                super().write(descriptor, buffers, offset)

        bench = self.filled(directory, files=Files(directory))
        bench.store.cleanup()
        while not is_removing.wait(0.01):
            bench.turn()
        calls.clear()
        bench.store.add(message(1000))
        bench.store.when_durable(lambda: calls.append("written"))
        bench.turn()
        may_go_on.set()
        bench.sync()
        assert calls[:3] == ["write", "remove", "remove"]
        assert calls[-1] == "written"
        bench.store.close()

    def test_files_are_removed_only_once_the_acks_are_on_disk(self, directory: Path) -> None:
        settings = JournalSettings(file_bytes_max=2000, sync=SyncStrategy.PERIODIC, sync_interval_seconds=1000)
        calls: list[str] = []

        class Files(JournalFiles):
            def sync(self, descriptor: int) -> None:
                calls.append("sync")
                super().sync(descriptor)

            def remove(self, *paths: Path) -> None:
                calls.append("remove")
                super().remove(*paths)

        bench = Bench(directory, settings=settings, files=Files(directory))
        bench.store.recover()
        bench.store.add(message(1, 1900))
        bench.store.add(message(2))
        bench.store.remove(QUEUE, message(1).message_id)
        calls.clear()
        bench.store.cleanup()
        bench.sync()
        assert calls.index("sync") < calls.index("remove")
        bench.store.close()

    def test_one_that_cannot_be_removed_is_a_warning_and_tried_again(
        self, directory: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Files(JournalFiles):
            stuck = True

            def remove(self, *paths: Path) -> None:
                if self.stuck and any(path.name == "db-3.log" for path in paths):
                    raise OSError(errno.EPERM, "Operation not permitted")
                super().remove(*paths)

        files = Files(directory)
        bench = self.filled(directory, files=files)
        bench.store.cleanup()
        bench.sync()
        assert "Operation not permitted" in caplog.text
        assert "db-3.log" in names(directory)
        assert not bench.failures
        files.stuck = False
        bench.store.cleanup()
        bench.sync()
        assert len(names(directory)) == 1
        bench.store.close()

    def test_an_idle_subscription_does_not_hold_files_for_ever(self, directory: Path) -> None:
        bench = Bench(directory)
        bench.store.recover()
        made = DurableSubscription(client_id="c", name="s", destination=TOPIC, subscribed_destination=TOPIC)
        bench.store.subscribe(made)
        for number in range(5):
            bench.store.add(message(number, 1500))
            bench.store.remove(QUEUE, message(number).message_id)
        bench.store.cleanup()
        bench.sync()
        bench.store.cleanup()
        bench.sync()
        assert len(names(directory)) <= 2
        bench.store.close()
        bench = Bench(directory)
        assert [each.subscription for each in bench.store.recover().backlogs] == [made]
        bench.store.abandon()

    def test_a_lost_lock_stops_it(self, directory: Path) -> None:
        held = [True]

        def check() -> None:
            if not held[0]:
                raise LockNotHeld("another has it")

        bench = self.filled(directory, fence=check)
        before = names(directory)
        held[0] = False
        bench.store.cleanup()
        wait_for_end(bench.store._writer._commits._worker)
        assert names(directory) == before
        bench.store.abandon()


class TestReading:
    """Bodies are read when the core requests them, a page at a time."""

    def filled(self, directory: Path, count: int = 40, **options: Any) -> Bench:
        bench = Bench(directory, **options)
        bench.store.recover()
        for number in range(1, count + 1):
            bench.store.add(message(number, 300))
        bench.sync()
        return bench

    def ids(self, *numbers: int) -> list[str]:
        return [message(number).message_id for number in numbers]

    def test_messages_come_in_the_requested_order(self, directory: Path) -> None:
        bench = self.filled(directory)
        assert len(list(directory.glob("db-*.log"))) > 3, "from several files"
        wanted = self.ids(31, 2, 3, 40, 1)
        found = bench.store.read(QUEUE, wanted)
        assert [each.message_id for each in found] == wanted
        assert [each.data for each in found] == [message(number, 300).data for number in (31, 2, 3, 40, 1)]
        bench.store.abandon()

    def test_no_file_stays_open(self, directory: Path) -> None:
        bench = self.filled(directory)
        before = open_in(directory)
        bench.store.read(QUEUE, self.ids(*range(1, 41)))
        assert open_in(directory) == before, "a removed file would keep its space on the disk"
        bench.store.abandon()

    def test_a_recovery_reads_no_body(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filled(directory).store.abandon()
        monkeypatch.setattr(BodyReader, "page", pytest.fail)
        bench = Bench(directory)
        assert bench.store.recover().queues[QUEUE] == self.ids(*range(1, 41))
        bench.store.abandon()

    def test_what_is_damaged_is_left_out_logged_and_counted(
        self, directory: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = self.filled(directory)
        path = next(path for path in directory.glob("db-*.log") if message(20, 300).data in path.read_bytes())
        data = bytearray(path.read_bytes())
        data[data.index(message(20, 300).data)] = 0xEE
        path.write_bytes(data)
        with caplog.at_level(logging.ERROR):
            found = bench.store.read(QUEUE, self.ids(19, 20, 21))
        assert [each.message_id for each in found] == self.ids(19, 21)
        (damage,) = bench.store.damages
        assert damage.file_id == int(path.stem[3:])
        (line,) = caplog.messages
        assert f"{path.name}: offset {damage.offset}" in line
        assert message(20).message_id in line
        assert str(QUEUE) in line
        assert "is not delivered" in line
        assert "restore a copy" in line
        bench.store.abandon()

    def test_a_sector_that_is_lost_costs_only_what_lies_there(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = self.filled(directory)
        path = next(path for path in directory.glob("db-*.log") if message(20, 300).data in path.read_bytes())
        bad = path.read_bytes().index(message(20, 300).data) + 50
        inode = path.stat().st_ino
        read = os.pread

        def pread(descriptor: int, length: int, offset: int) -> bytes:
            if os.fstat(descriptor).st_ino == inode and offset <= bad < offset + length:
                raise OSError(errno.EIO, "Input/output error")
            return read(descriptor, length, offset)

        monkeypatch.setattr(os, "pread", pread)
        found = bench.store.read(QUEUE, self.ids(*range(15, 26)))
        assert [each.message_id for each in found] == self.ids(*range(15, 20), *range(21, 26))
        (damage,) = bench.store.damages
        assert "the disk does not give it back" in damage.reason
        bench.store.abandon()

    def test_a_store_that_is_away_is_no_damage(self, directory: Path) -> None:
        bench = self.filled(directory)
        away = directory.with_name("away")
        directory.rename(away)
        with pytest.raises(StoreUnavailable, match=r"db-1\.log cannot be read"):
            bench.store.read(QUEUE, self.ids(1, 2))
        away.rename(directory)
        assert len(bench.store.read(QUEUE, self.ids(1, 2))) == 2
        assert not bench.store.damages
        bench.store.abandon()

    def test_what_the_journal_lacks_is_logged(self, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
        bench = self.filled(directory)
        assert len(bench.store.read(QUEUE, ["ID:no one:1:1:1", *self.ids(1)])) == 1
        assert "ID:no one:1:1:1" in caplog.text
        bench.store.abandon()

    def test_what_was_written_since_the_last_read_is_seen(self, directory: Path) -> None:
        bench = self.filled(directory, 3, settings=JournalSettings())
        assert len(bench.store.read(QUEUE, self.ids(1, 2, 3))) == 3
        bench.store.add(message(4, 300))
        bench.sync()
        assert [each.message_id for each in bench.store.read(QUEUE, self.ids(3, 4))] == self.ids(3, 4)
        bench.store.abandon()


class TestStartFromAnIndex:
    """A long queue is looked up by columns at first, and becomes a dictionary in the time to spare."""

    COUNT = 9

    @pytest.fixture(autouse=True)
    def stopped(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Leave messages, and an index in which three make a slice."""
        monkeypatch.setattr(store_snapshot, "SLICE_MESSAGES", 3)
        master = Bench(directory, snapshot_bytes_min=0)
        master.store.recover()
        for number in range(self.COUNT):
            master.store.add(message(number))
        master.store.close()

    def new_master(self, directory: Path) -> tuple[Bench, list[Callable[[], None]]]:
        """Return the next master, and what it wants to do later."""
        alarms: list[Callable[[], None]] = []
        bench = Bench(directory, snapshot_bytes_min=0, call_later=lambda _, callback: alarms.append(callback))
        assert bench.store.recover().queues == {QUEUE: [message(number).message_id for number in range(self.COUNT)]}
        assert type(self.messages(bench)) is SnapshotMessages
        return bench, alarms

    @staticmethod
    def messages(bench: Bench) -> Any:
        return bench.store._state.destinations[QUEUE].messages

    def test_snapshot_is_materialised_in_slices_once_it_serves(self, directory: Path) -> None:
        bench, alarms = self.new_master(directory)
        assert alarms == []
        bench.store.cleanup()
        steps = 0
        while alarms:
            steps += 1
            alarms.pop()()
            assert len(self.messages(bench)) == self.COUNT
        assert steps == 3
        assert type(self.messages(bench)) is dict
        bench.store.cleanup()
        assert alarms == []
        bench.store.abandon()

    def test_a_closed_store_or_one_without_timer_materialises_all(self, directory: Path) -> None:
        bench, alarms = self.new_master(directory)
        bench.store.cleanup()
        bench.store.abandon()
        alarms.pop()()
        assert alarms == []
        other = Bench(directory)
        other.store.recover()
        other.store.cleanup()
        assert type(self.messages(other)) is dict
        other.store.abandon()

    @pytest.mark.parametrize("steps", [0, 1, 2, 3])
    def test_nothing_is_lost_whatever_is_done_on_the_way(self, directory: Path, steps: int) -> None:
        bench, alarms = self.new_master(directory)
        store = bench.store
        store.cleanup()
        for _ in range(steps):
            alarms.pop()()
        ids = [message(number).message_id for number in range(self.COUNT + 2)]
        assert store.add(message(self.COUNT))
        assert not store.add(message(self.COUNT)), "sent again"
        assert not store.add(message(4))
        store.remove(QUEUE, ids[0])
        store.remove(QUEUE, ids[7])
        store.remove(QUEUE, ids[7])
        assert store.add(message(self.COUNT + 1))
        bench.sync()
        expected = [each for each in ids if each not in (ids[0], ids[7])]
        assert [each.message_id for each in store.read(QUEUE, expected)] == expected
        store.close()
        last = Bench(directory)
        assert last.store.recover().queues == {QUEUE: expected}
        last.store.abandon()
