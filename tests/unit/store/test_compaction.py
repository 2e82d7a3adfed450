# mypy: disable-error-code="arg-type"
"""Compaction: what a file of dead messages is reduced to, and that it breaks the chains that hold journals together."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
)
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.collector import DAMAGED_DIRECTORY
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    Commit,
    Prepare,
    RemoveDestination,
    RemoveMessage,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
    decode,
    encode,
)
from pybroker.store.journal.compaction import CompactedFile, compacted, encode_data_file
from pybroker.store.journal.format import BATCH_BYTES_MAX, BATCH_MAGIC, EOF_MARKER, encode_record
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import DataFileWalk
from pybroker.store.journal.store import JournalStore
from tests.runtimes import runtime

QUEUE, TOPIC = queue("Q"), topic("T")
TX, OTHER = LocalTransactionId("ID:c:1", 1), LocalTransactionId("ID:c:1", 2)
XA = XATransactionId(1, b"g", b"b")
ADD = AddMessage(QUEUE, "ID:a", b"data")
ACK = RemoveMessage(QUEUE, "ID:a")
TX_ADD = ADD._replace(transaction=TX)
TX_ACK = ACK._replace(transaction=TX)


def compact(*commands: Command) -> CompactedFile:
    return compacted(encode(command) for command in commands)


def remaining(small: CompactedFile) -> list[Command]:
    return [decode(record[5:]) for record in small.records]


def test_messages_go_and_everything_else_stays_in_order() -> None:
    commands = [
        Trace("started"),
        ADD,
        ACK,
        TX_ADD,
        TX_ACK,
        Commit(TX),
        RemoveDestination(QUEUE),
        Unsubscribe(TOPIC, "s"),
        ADD,
    ]
    small = compact(*commands)
    assert remaining(small) == [each for each in commands if not isinstance(each, AddMessage)]
    assert small.dropped_count == 3


@pytest.mark.parametrize(
    ("commands", "is_closed"),
    [
        ((ADD, ACK, RemoveDestination(QUEUE), Unsubscribe(TOPIC, "s"), Trace("x")), True),
        ((TX_ACK, Commit(TX)), True),
        ((TX_ACK, Rollback(TX)), True),
        ((TX_ADD,), True),
        ((Commit(TX), Rollback(OTHER)), True),
        ((TX_ACK,), False),
        ((TX_ACK, Commit(OTHER)), False),
        ((Commit(TX), TX_ACK), False),
        ((Prepare(XA), Commit(XA)), False),
        ((Subscribe(TOPIC, "s", b"info"), Unsubscribe(TOPIC, "s")), False),
        ((UpdateMessage(ADD),), False),
    ],
)
def test_a_file_is_closed_if_no_other_file_has_to_void_it(commands: tuple[Command, ...], is_closed: bool) -> None:
    assert compact(*commands).is_closed is is_closed


def test_a_record_that_does_not_decode_is_an_error() -> None:
    with pytest.raises(MalformedRecord):
        compacted([b"\x63\x00"])


def test_a_data_file_of_many_batches() -> None:
    records = [encode_record(encode(Trace("x" * 1_500_000))) for _ in range(7)]
    pieces = encode_data_file(records)
    assert all(len(piece) <= BATCH_BYTES_MAX + 28 for piece in pieces)
    walk = DataFileWalk(b"".join(pieces), 1)
    assert len(list(walk)) == 7
    assert len(pieces) == 5
    assert not walk.damages


def test_a_data_file_of_nothing_is_an_eof_marker() -> None:
    assert encode_data_file([]) == [EOF_MARKER]


# ---------------------------------------------------------------- in the store


def message(sequence: int) -> Message:
    producer = ProducerId("ID:c:1", 1, 1)
    return to_message(
        OpenWireMessage(
            type=MessageType.BYTES,
            producer_id=producer,
            destination=QUEUE,
            message_id=OpenWireMessageId(None, producer, sequence),
            persistent=True,
            content=b"x" * 400,
        )
    )


class Chain:
    """A store in which one old message holds a long chain of files together."""

    def __init__(self, directory: Path, cleanups: int) -> None:
        self.directory = directory
        self.posted: list[Callable[[], None]] = []
        self.store = JournalStore(
            directory,
            settings=JournalSettings(file_bytes_max=4000, compact_after_cleanups=cleanups),
            runtime=runtime(self.posted.append, clock=lambda: 0),
        )
        self.store.recover()

    def grow(self, also: Callable[[int], None] = lambda number: None) -> None:
        self.store.add(message(0))
        for number in range(1, 120):  # each message is acknowledged when the next ones have come: across files
            self.store.add(message(number))
            also(number)
            if number > 3:
                self.store.remove(QUEUE, message(number - 3).message_id)
        for number in (117, 118, 119):
            self.store.remove(QUEUE, message(number).message_id)
        self.sync()

    def sync(self) -> None:
        done = threading.Event()
        self.store._writer.submit(done.set)
        assert done.wait(20)
        while self.posted:
            self.posted.pop(0)()

    def clean(self, times: int) -> None:
        for _ in range(times):
            self.store.cleanup()
            self.sync()

    @property
    def file_count(self) -> int:
        return len(list(self.directory.glob("db-*.log")))


def test_one_old_message_does_not_keep_the_journal_forever(tmp_path: Path) -> None:
    chain = Chain(tmp_path, cleanups=3)
    chain.grow()
    grown = chain.file_count
    assert grown > 10
    chain.clean(2)
    assert chain.file_count >= grown, "not before the third cleanup in vain"
    chain.clean(60)
    assert chain.file_count <= 3, "the old message's, the acks of its neighbours, and the one being written"
    chain.store.abandon()
    assert [each.message_id for each in _contents(tmp_path)] == [message(0).message_id]


def test_removable_files_do_not_delay_compactions(tmp_path: Path) -> None:
    chain = Chain(tmp_path, cleanups=3)
    chain.grow()
    grown = chain.file_count
    number = 1000
    for _ in range(60):
        before, number = number, number + 25
        for each in range(before, number):
            chain.store.add(message(each))
        for each in range(before, number):
            chain.store.remove(QUEUE, message(each).message_id)
        chain.sync()
        removed = set(tmp_path.glob("db-*.log"))
        chain.clean(1)
        removed -= set(tmp_path.glob("db-*.log"))
        assert removed, "each cleanup finds something to remove"
    assert chain.file_count < grown / 2
    chain.store.abandon()
    assert [each.message_id for each in _contents(tmp_path)] == [message(0).message_id]


def test_producer_sequences_outlive_a_compaction(tmp_path: Path) -> None:
    chain = Chain(tmp_path, cleanups=1)

    def once(number: int) -> None:
        """Send and consume the only message of a producer."""
        only = replace(message(0), message_id=f"ID:once-{number}:1:1:{number}")
        chain.store.add(only)
        chain.store.remove(QUEUE, only.message_id)

    chain.grow(once)
    producers = ["ID:c:1:1:1", *(f"ID:once-{number}:1:1" for number in range(1, 120))]
    before = [chain.store.last_sequence(producer) for producer in producers]
    assert before == [119, *range(1, 120)]
    chain.clean(60)
    chain.store.abandon()
    new_master = Chain(tmp_path, cleanups=0)
    assert [new_master.store.last_sequence(producer) for producer in producers] == before
    new_master.store.abandon()


def test_compaction_can_be_switched_off(tmp_path: Path) -> None:
    chain = Chain(tmp_path, cleanups=0)
    chain.grow()
    grown = chain.file_count
    chain.clean(30)
    assert chain.file_count >= grown
    chain.store.abandon()


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    chain = Chain(tmp_path, cleanups=1)
    chain.grow()
    path = tmp_path / "db-2.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    chain.clean(40)
    assert path.read_bytes() == data
    chain.store.abandon()


def test_a_file_whose_end_is_missing_is_left_as_it_is(tmp_path: Path) -> None:
    """A copy would end with an EOF marker like any other, and no one would ever learn that something is missing."""
    chain = Chain(tmp_path, cleanups=1)
    chain.grow(lambda number: chain.store._writer.end_batch())
    chain.store.abandon()
    path = tmp_path / "db-2.log"
    data = path.read_bytes()
    data = data[: data.rindex(BATCH_MAGIC)]
    path.write_bytes(data)
    new_master = Chain(tmp_path, cleanups=1)
    assert [damage.file_id for damage in new_master.store.damages] == [2]
    for number in range(1, 120):  # the lost acknowledgement brought one back
        new_master.store.remove(QUEUE, message(number).message_id)
    new_master.clean(40)
    new_master.store.abandon()
    kept = path if path.exists() else tmp_path / DAMAGED_DIRECTORY / path.name
    assert kept.read_bytes() == data


def _contents(directory: Path) -> list[Message]:
    store = JournalStore(
        directory,
        runtime=runtime(clock=lambda: 0),
    )
    found = store.read(QUEUE, store.recover().queues[QUEUE])
    store.abandon()
    return found
