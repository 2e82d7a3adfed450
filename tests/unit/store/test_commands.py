"""The command codec, against every record of every captured store and against bytes written out by hand."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId
from pybroker.broker.domain.openwire.objects import decode_ack
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.acks import prepared_ack
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddMessage,
    AddScheduledJob,
    Command,
    CommandType,
    Commit,
    DestroyScheduler,
    Prepare,
    ProducerAudit,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
    decode,
    encode,
    encode_add_pieces,
    encode_add_record,
    encode_remove_record,
)
from pybroker.store.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES, USER_RECORD, encode_record
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import DataFileWalk, data_files, load

LOCAL = LocalTransactionId("ID:host-1-2-3:4", 7)
XA = XATransactionId(-1, b"global", b"branch")

ONE_OF_EACH: list[Command] = [
    Trace(),
    Trace("LOADED"),
    AddMessage(queue("Q"), "ID:1", b"\x1cdata"),
    AddMessage(topic("T.é"), "ID:2", b"\x1c", 9, True, LOCAL),
    AddMessage(queue("n" * 200), "i" * 300, b"\x1c" * 5000, 0, False, XA),
    RemoveMessage(queue("Q"), "ID:1"),
    RemoveMessage(queue("Q"), "ID:1", b"\x16ack", None, XA),
    RemoveMessage(topic("T"), "ID:2", b"", "client:name", LOCAL),
    Prepare(XA),
    Commit(LOCAL),
    Rollback(XA),
    RemoveDestination(Destination(DestinationType.TEMP_TOPIC, "T")),
    Subscribe(topic("T"), "client:name", b"\x37info", True),
    Subscribe(topic("T"), "client:name", b"\x37info"),
    Unsubscribe(topic("T"), "client:name"),
    ProducerAudit(b"\xac\xed"),
    AckMessageFileMap(b"\xac\xed"),
    UpdateMessage(AddMessage(queue("Q"), "ID:1", b"\x1cnew")),
    AddScheduledJob("JMS", "ID:1", 1, "", -1, 2**62, -1, b"\x1c", 4),
    RescheduleJob("JMS", "ID:1", 1, 2, 3),
    RemoveScheduledJob("JMS", "ID:1", -1),
    RemoveScheduledJobs("JMS", -(2**63), 2**63 - 1),
    DestroyScheduler("JMS"),
    RewrittenDataFile(3),
    RewrittenDataFile(3, 1, False),
]

SAMPLES = sorted(
    path.name.removesuffix(".tar.gz") for path in (Path(__file__).parents[2] / "golden/kahadb").glob("*.tar.gz")
)
NAMES_IN_FACTS = {
    CommandType.TRACE: "trace",
    CommandType.ADD_MESSAGE: "add",
    CommandType.REMOVE_MESSAGE: "remove",
    CommandType.PREPARE: "prepare",
    CommandType.COMMIT: "commit",
    CommandType.ROLLBACK: "rollback",
    CommandType.REMOVE_DESTINATION: "rmdest",
    CommandType.SUBSCRIPTION: "sub",
    CommandType.PRODUCER_AUDIT: "audit",
    CommandType.ACK_MESSAGE_FILE_MAP: "ackmap",
    CommandType.UPDATE_MESSAGE: "update",
    CommandType.REWRITTEN_DATA_FILE: "rewritten",
}


def payloads(directory: Path) -> list[bytes]:
    return [payload for id_, path in data_files(directory).items() for _, payload in DataFileWalk(load(path), id_)]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_record_of_a_real_broker_round_trips(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    records = payloads(store.kahadb) + (payloads(store.scheduler) if store.scheduler.exists() else [])

    assert len(records) > 0
    assert [encode(decode(payload)) for payload in records] == records


@pytest.mark.parametrize("name", [name for name in SAMPLES if not name.startswith(("02", "09", "11"))])
def test_a_real_broker_counted_the_same_records(sample: Callable[[str], Any], name: str) -> None:
    # 02 and 11 have compacted files, whose records the broker's tool counts apart; 09 has a second journal.
    store = sample(name)

    counts = Counter(NAMES_IN_FACTS[CommandType(payload[0])] for payload in payloads(store.kahadb))

    assert counts == store.facts["journal_record_counts_replayed"]


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_encoding_and_decoding_are_inverse(command: Command) -> None:
    assert decode(encode(command)) == command


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_every_truncation_is_refused(command: Command) -> None:
    payload = encode(command)
    for length in range(len(payload)):
        with pytest.raises(MalformedRecord):
            decode(payload[:length])


def test_an_add_is_laid_out_as_activemq_does() -> None:
    payload = encode(AddMessage(queue("MIXED.Q"), "ID:1", b"\x1c\x00"))

    assert payload == (
        b"\x01\x1f"
        b"\x12\x0b\x08\x00\x12\x07MIXED.Q"  # destination
        b"\x1a\x04ID:1"
        b'"\x06\x00\x00\x00\x02\x1c\x00'  # size prefix, message
        b"\x28\x04\x30\x00"  # priority, priority supported
    )


def test_a_local_transaction_has_two_fields_numbered_one() -> None:
    payload = bytes.fromhex("0425 0a23 0a21 0a1d") + b"ID:vm-41433-1795219905050-4:1" + bytes.fromhex("0801")

    assert decode(payload) == Commit(LocalTransactionId("ID:vm-41433-1795219905050-4:1", 1))


def test_an_xa_transaction_has_its_branch_before_its_global_id() -> None:
    payload = b"\x03\x1f\x0a\x1d\x12\x1b\x08\xb4\x24\x12\x0abranch-one\x1a\x0aglobal-one"

    assert decode(payload) == Prepare(XATransactionId(4660, b"global-one", b"branch-one"))


def test_an_ack_that_is_empty_differs_from_one_that_is_absent() -> None:
    empty = encode(RemoveMessage(topic("T"), "ID:1", b"", "c:s"))
    absent = encode(RemoveMessage(topic("T"), "ID:1", None, "c:s"))

    assert len(empty) == len(absent) + 2
    assert [decode(empty).ack, decode(absent).ack] == [b"", None]  # type: ignore[union-attr]


@pytest.mark.parametrize("transaction", [None, LOCAL, XA])
def test_the_hot_path_encodes_the_same_bytes(transaction: TransactionId | None) -> None:
    message = Message(message_id="ID:1", destination=queue("Q"), data=b"\x1c" * 1000, persistent=True, priority=7)

    pieces = encode_add_pieces(message, transaction, priority_supported=True)
    assert pieces[1] is message.data
    assert (
        b"".join(pieces)
        == encode_add_record(message, transaction, priority_supported=True)
        == encode_record(encode(AddMessage(message.destination, "ID:1", message.data, 7, True, transaction)))
    )
    ack = prepared_ack(topic("T"), "ID:1", transaction) if isinstance(transaction, XATransactionId) else None
    assert encode_remove_record(topic("T"), "ID:1", transaction, "c:s") == encode_record(
        encode(RemoveMessage(topic("T"), "ID:1", ack, "c:s", transaction))
    )


def test_an_ack_in_an_xa_transaction_is_as_activemqs(sample: Callable[[str], Any]) -> None:
    walk = DataFileWalk((sample("05-xa-indoubt-kill9").kahadb / "db-1.log").read_bytes(), 1)
    captured = [each for _, payload in walk if isinstance(each := decode(payload), RemoveMessage)]
    assert captured
    for command in captured:
        theirs = decode_ack(command.ack or b"")
        assert isinstance(command.transaction, XATransactionId)
        ours = decode_ack(prepared_ack(command.destination, command.message_id, command.transaction))
        assert (ours.destination, ours.transaction_id, ours.message_count) == (
            theirs.destination,
            theirs.transaction_id,
            theirs.message_count,
        )
        assert str(ours.last_message_id) == str(theirs.last_message_id) == command.message_id
        assert ours.last_message_id is not None
        assert theirs.last_message_id is not None
        assert ours.last_message_id.producer_id == theirs.last_message_id.producer_id


@pytest.mark.parametrize("strange", ["", "ID:1", "a:b:c:d", "x:1:1:y"])
def test_a_message_id_of_another_make_is_named_whole(strange: str) -> None:
    message_id = decode_ack(prepared_ack(queue("Q"), strange, XA)).last_message_id
    assert message_id == OpenWireMessageId(strange, None, 0)


@pytest.mark.parametrize("size", [0, 90, 127, 128, 4095, 4096, 20_000])
def test_a_record_of_any_size_is_what_a_reader_finds(size: int) -> None:
    message = Message(message_id="ID:1", destination=queue("Q"), data=bytes(size), persistent=True)
    record = encode_add_record(message)

    assert RECORD_HEADER.unpack_from(record) == (len(record), USER_RECORD)
    assert decode(record[RECORD_HEADER_BYTES:]) == AddMessage(queue("Q"), "ID:1", bytes(size))


def test_fields_of_later_versions_are_skipped() -> None:
    known = encode(AddMessage(queue("Q"), "ID:1", b"\x1c"))[2:]
    unknown = (
        b"\x78\x05"  # varint
        b"\x7a\x03abc"  # bytes
        b"\x79"
        + bytes(8)
        + b"\x7d"
        + bytes(4)  # fixed widths
        + b"\x82\x01\x01x"  # a field number beyond one byte
    )

    assert decode(b"\x01" + bytes([len(known + unknown)]) + known + unknown) == AddMessage(queue("Q"), "ID:1", b"\x1c")


def test_an_add_may_omit_defaults_and_reorder_its_fields() -> None:
    body = b'"\x05\x00\x00\x00\x01\x1c' + b"\x1a\x04ID:1" + b"\x12\x03\x12\x01Q"

    assert decode(b"\x01" + bytes([len(body)]) + body) == AddMessage(queue("Q"), "ID:1", b"\x1c", 4, False, None)


def test_the_usual_shape_and_field_by_field_agree() -> None:
    """A redundant field makes an add unusual; the message must come out the same."""
    usual = encode(AddMessage(queue("Q"), "ID:1", b"\x1cabc", 9, True))
    body = usual[2:] + b"\x30\x01"

    assert decode(b"\x01" + bytes([len(body)]) + body) == decode(usual)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "ends in the middle"),
        (b"\x11\x00", "unknown command type 17"),
        (b"\x00\x01", "its length says 1"),
        (b"\x04\x00", "field 1 is missing"),
        (b"\x05\x02\x0a\x00", "field 2 is missing"),
        (b"\x00\x02\x0a\x05", "ends in the middle"),
        (b"\x00\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x00\x01\x0b", "wire type 3"),
        (b"\x00\x0c\x08" + b"\xff" * 11, "longer than ten bytes"),
        (b"\x06\x04\x0a\x02\x08\x04", "unknown destination type 4"),
        (b"\x07\x0b\x0a\x03\x12\x01T\x12\x00\x22\x02ab", "size prefix"),
    ],
)
def test_the_error_names_what_is_wrong(payload: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        decode(payload)
