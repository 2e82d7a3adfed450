"""Recovery of stores captured from a real ActiveMQ: all that it found there, and nothing else, must come back."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire import values
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
    view,
)
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.bodies import BodyReader
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    CommandType,
    Commit,
    RemoveMessage,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    UpdateMessage,
    encode,
)
from pybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    EOF_MARKER,
    Location,
    data_file_name,
    encode_batch,
    encode_record,
)
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.replay import ReplayResult, inspect, replay
from pybroker.store.journal.state import StoreState

Described = dict[str, Any]

JOURNAL_ONLY = [
    "01-mixed",
    "02-consumed-gc",
    "03-durable",
    "04-localtx-kill9",
    "05-xa-indoubt-kill9",
    "06-priority",
    "07-large",
    "08-torn-tail",
    "09-scheduled",
    "10-corrupt-batch",
    "11-redelivered-updates",
]


def encode_add(message: Message) -> bytes:
    return encode(AddMessage(message.destination, message.message_id, message.data, message.priority))


def recovered(directory: Path) -> tuple[StoreState, ReplayResult]:
    state = StoreState()
    return state, replay(directory, state)


# ---------------------------------------------------------------- a message as the captured truth describes it


def described(message: Message) -> Described:
    """Describe a message with everything a real broker's JMS client recorded of it, in the same format."""
    fields = view(message)
    optional = {
        "original_destination": fields.original_destination.name if fields.original_destination else None,
        "correlation_id": fields.correlation_id,
        "type": fields.jms_type,
        "reply_to": str(fields.reply_to) if fields.reply_to else None,
        "group_id": fields.group_id,
        "group_sequence": fields.group_sequence or None,
        "transaction_id": str(fields.transaction_id) if fields.transaction_id else None,
    }
    assert fields.message_id is not None
    assert str(fields.message_id) == message.message_id
    return {
        "message_id": message.message_id,
        "class": f"ActiveMQ{_class_prefix(fields.type)}Message",
        "priority": message.priority,
        "producer_sequence_id": fields.message_id.producer_sequence_id,
        "timestamp": fields.timestamp,
        "expiration": message.expiration,
        "redelivered": fields.redelivery_counter > 0,
        "redelivery_counter": fields.redelivery_counter,
        "compressed": fields.compressed,
        "destination": str(message.destination),
        "properties": {name: _value(value) for name, value in fields.properties.items()},
        **{name: value for name, value in optional.items() if value is not None},
        **_body(fields),
    }


def _class_prefix(kind: MessageType) -> str:
    return "" if kind is MessageType.MESSAGE else kind.name.capitalize()


def _body(fields: OpenWireMessage) -> Described:
    match fields.type:
        case MessageType.TEXT:
            text = fields.text()
            return {} if text is None else {"text_utf8_sha256": _sha256(text.encode())}
        case MessageType.BYTES:
            return {"body_length": len(fields.body_bytes()), "body_sha256": _sha256(fields.body_bytes())}
        case MessageType.OBJECT:
            return {"object_content_sha256": _sha256(fields.body_bytes())}
        case MessageType.MAP:
            return {"map": {name: _value(value) for name, value in fields.map().items()}}
        case MessageType.STREAM:
            return {"stream": [_value(value) for value in fields.stream()]}
    return {}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _value(value: values.Value) -> Described:
    match value:
        case bool():
            return {"t": "Boolean", "v": value}
        case values.Byte():
            return {"t": "Byte", "v": value}
        case values.Short():
            return {"t": "Short", "v": value}
        case values.Long():
            return {"t": "Long", "v": value}
        case int():
            return {"t": "Integer" if -(2**31) <= value < 2**31 else "Long", "v": value}
        case values.Float():
            return {"t": "Float", "v": value}
        case float():
            return {"t": "Double", "v": value}
        case values.Char():
            return {"t": "Character", "v": {"char": value}}
        case str():
            return {"t": "String", "v": value}
        case bytes():
            return {"t": "byte[]", "v": {"bytes_hex": value.hex()}}
    raise AssertionError(f"no sample has a {type(value)}")


def truth(message: Described) -> Described:
    """Return the captured description, without what only repeats a digest in a form for human eyes."""
    redundant = {"text", "text_prefix", "text_length", "body_hex"}
    kept = {name: value for name, value in message.items() if name not in redundant}
    if "properties" in kept:
        kept["properties"] = {name: _plain_string(value) for name, value in kept["properties"].items()}
    return kept


def _plain_string(value: Described) -> Described:
    # The JMS client shows a string property as the raw buffer it came in.
    if value["t"] != "UTF8Buffer":
        return value
    return {"t": "String", "v": base64.b64decode(value["v"]["data"]).decode()}


# ---------------------------------------------------------------- the captured stores


@pytest.mark.parametrize("name", JOURNAL_ONLY)
def test_queues_are_what_a_real_broker_found(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    state, _ = recovered(store.kahadb)

    with BodyReader(store.kahadb) as bodies:
        found = {
            str(each): [described(message) for message in bodies.bodies(state.entries(each))] for each in state.queues()
        }

    if name == "06-priority":
        # The store keeps three classes; the broker sorted the ten priorities when it was browsed.
        found = {each: sorted(messages, key=lambda message: -message["priority"]) for each, messages in found.items()}
    expected = store.facts["truth_journal_only"]["queues"]
    assert found == {each: [truth(message) for message in contents["messages"]] for each, contents in expected.items()}
    assert bodies.damages == []


def test_priorities_give_class_by_class_in_arrival_order(sample: Callable[[str], Any]) -> None:
    state, _ = recovered(sample("06-priority").kahadb)

    for destination in state.queues():
        order = [(entry.priority_class, entry.location) for entry in state.entries(destination)]
        assert order == sorted(order)
        assert len({priority_class for priority_class, _ in order}) == 3


@pytest.mark.parametrize("name", JOURNAL_ONLY)
def test_durable_subscriptions_are_what_a_real_broker_found(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    state, _ = recovered(store.kahadb)

    found = {}
    for destination, key, subscription in state.subscriptions():
        info = decode_subscription_info(subscription.info)
        assert (info.destination, info.key) == (destination, key)
        found[str(destination), key] = {
            "client_id": info.client_id,
            "name": info.name,
            "selector": info.selector,
            "no_local": info.no_local,
            "destination": str(destination),
            "subscribed_destination": str(info.subscribed_destination),
            "store_message_count": len(subscription.pending),
            "store_pending_message_ids": [entry.message_id for entry in state.entries(destination, key)],
        }

    expected = {
        (name, f"{each['client_id']}:{each['name']}"): {key: each[key] for key in each if key != "jms_delivered"}
        for name, contents in store.facts["truth_journal_only"]["topics"].items()
        for each in contents["subscriptions"]
    }
    assert found == expected
    assert len(found) == {"03-durable": 9, "06-priority": 1}.get(name, 0)


@pytest.mark.parametrize("name", ["03-durable", "06-priority"])
def test_a_returning_subscriber_gets_what_a_real_broker_gave_it(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    state, _ = recovered(store.kahadb)
    expected: dict[str, list[Described]] = {}
    for contents in store.facts["truth_journal_only"]["topics"].values():
        for each in contents["subscriptions"]:
            expected.setdefault(f"{each['client_id']}:{each['name']}", []).extend(each.get("jms_delivered", []))

    found: dict[str, list[Message]] = {}
    with BodyReader(store.kahadb) as bodies:
        for destination, key, _ in state.subscriptions():
            found.setdefault(key, []).extend(bodies.messages(state, destination, key))

    assert found.keys() == expected.keys()
    for key, captured in expected.items():
        messages = sorted(found[key], key=lambda message: -message.priority)
        if key == "cli-7:w":
            # A wildcard's topics are one stream for JMS and several here; each one's order is compared above.
            messages.sort(key=lambda message: message.message_id)
            captured.sort(key=lambda message: message["message_id"])
        assert [
            with_captured_fields(truth(each), message) for each, message in zip(captured, messages, strict=True)
        ] == [truth(each) for each in captured]


def with_captured_fields(captured: Described, message: Message) -> Described:
    """Describe a message by what was captured about it: of most delivered messages that is not every header."""
    full = described(message)
    if "n" in captured:
        full["n"] = full["properties"]["n"]["v"]
    return {name: full[name] for name in captured}


def test_transactions_in_doubt_are_what_xa_recover_returned(sample: Callable[[str], Any]) -> None:
    store = sample("05-xa-indoubt-kill9")

    state, result = recovered(store.kahadb)

    expected = {
        XATransactionId(each["format_id"], bytes.fromhex(each["gtrid_hex"]), bytes.fromhex(each["bqual_hex"]))
        for each in store.facts["truth_journal_only"]["xa_in_doubt"]
    }
    assert set(state.prepared) == expected
    assert [str(each) for each in result.unfinished] == [
        f"XID:[9,globalId={b'global-six'.hex()},branchId={b'b6'.hex()}]"
    ]
    assert list(state.inflight) == list(result.unfinished), "as good as rolled back, once the next master records it"


@pytest.mark.parametrize(("outcome", "facts"), [(Commit, "after_xacommit"), (Rollback, "after_xarollback")])
def test_the_outcome_of_transactions_in_doubt_decides(
    sample: Callable[[str], Any], outcome: type[Commit] | type[Rollback], facts: str
) -> None:
    store = sample("05-xa-indoubt-kill9")
    state, _ = recovered(store.kahadb)

    for offset, transaction in enumerate(list(state.prepared)):
        state.apply(outcome(transaction), Location(3, offset))

    found = {str(each): [entry.message_id for entry in state.entries(each)] for each in state.queues()}
    assert found == store.facts[facts]["queues"]
    assert state.prepared == {}


def test_unfinished_local_transactions_have_no_effect(sample: Callable[[str], Any]) -> None:
    """The comparison of queues above covers what is absent; this covers the transactions to roll back."""
    state, result = recovered(sample("04-localtx-kill9").kahadb)

    assert result.unfinished
    assert set(state.inflight) == set(result.unfinished)
    for transaction in result.unfinished:
        state.apply(Rollback(transaction), Location(5, 0))
    assert state.inflight == {}


@pytest.mark.parametrize("name", JOURNAL_ONLY)
def test_undamaged_stores_replay_without_a_error_text(sample: Callable[[str], Any], name: str) -> None:
    _, result = recovered(sample(name).kahadb)

    assert [each.file_id for each in result.torn_tails] == {"08-torn-tail": [3], "10-corrupt-batch": []}.get(name, [])
    if name != "10-corrupt-batch":
        assert result.damages == []


def test_damaged_batches_are_reported_one_by_one(sample: Callable[[str], Any]) -> None:
    """Each damaged batch held one message; the comparison of queues above shows that no other is missing."""
    store = sample("10-corrupt-batch")

    _, result = recovered(store.kahadb)

    found = [(each.file_id, each.reason, each.at_end) for each in result.damages]
    assert found == [
        (1, "a batch's checksum does not fit its bytes", False),
        (1, "no batch control record where a batch should begin", False),
        (2, "no batch control record where a batch should begin", False),
        (3, "a batch's checksum does not fit its bytes", False),
    ]
    for damage in result.damages:
        data = (store.kahadb / data_file_name(damage.file_id)).read_bytes()
        assert data[damage.offset + damage.length :].startswith(b"\x00\x00\x00\x1c\x02WRITE BATCH")


def test_replay_counts_records_files_and_the_end(sample: Callable[[str], Any]) -> None:
    store = sample("03-durable")
    seen: list[tuple[int, int, int]] = []

    result = replay(store.kahadb, StoreState(), progress=lambda *numbers: seen.append(numbers))

    assert result.records == {
        CommandType.TRACE: 1,
        CommandType.ADD_MESSAGE: 99,
        CommandType.REMOVE_MESSAGE: 102,
        CommandType.SUBSCRIPTION: 16,
        CommandType.PRODUCER_AUDIT: 1,
        CommandType.ACK_MESSAGE_FILE_MAP: 1,
    }
    assert [(done, total) for done, total, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[-1][2] == 220
    assert result.last_file_id == 3
    assert result.end == (store.kahadb / "db-3.log").stat().st_size - len(EOF_MARKER)


def test_reading_changes_nothing_on_disk(sample: Callable[[str], Any]) -> None:
    store = sample("08-torn-tail")
    before = {path.name: path.read_bytes() for path in store.kahadb.iterdir()}

    recovered(store.kahadb)

    assert {path.name: path.read_bytes() for path in store.kahadb.iterdir()} == before


# ---------------------------------------------------------------- journals made here

Q = queue("Q")
TX = LocalTransactionId("ID:c", 1)


def text_message(connection: str, sequence: int, body: str = "body") -> Message:
    fields = OpenWireMessage(type=MessageType.TEXT, destination=Q, persistent=True)
    fields.message_id = OpenWireMessageId(None, ProducerId(connection, 1, 1), sequence)
    fields.content = encode_text(body)
    return to_message(fields)


FIRST, SECOND, THIRD = (text_message("ID:c", sequence) for sequence in (1, 2, 3))


def write(directory: Path, file_id: int, *batches: Sequence[bytes | Command], rest: bytes = EOF_MARKER) -> None:
    """Write a data file of batches of commands or encoded payloads."""
    encoded = [
        encode_batch([encode_record(each if isinstance(each, bytes) else encode(each)) for each in batch])
        for batch in batches
    ]
    (directory / data_file_name(file_id)).write_bytes(b"".join(encoded) + rest)


def texts(directory: Path, state: StoreState, destination: Destination = Q) -> list[str]:
    with BodyReader(directory) as bodies:
        found = [message.message_id for message in bodies.messages(state, destination)]
    assert bodies.damages == []
    return found


def test_an_empty_directory_is_an_empty_store(tmp_path: Path) -> None:
    state, result = recovered(tmp_path)

    assert state.queues() == []
    assert (result.last_file_id, result.end, result.records) == (0, 0, {})


def test_empty_and_preallocated_files_are_no_damage(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST)])
    (tmp_path / "db-2.log").touch()
    (tmp_path / "db-3.log").write_bytes(EOF_MARKER + bytes(10_000) + EOF_MARKER)

    state, result = recovered(tmp_path)

    assert texts(tmp_path, state) == [FIRST.message_id]
    assert (result.damages, result.torn_tails, result.last_file_id, result.end) == ([], [], 3, 0)


def test_files_are_replayed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, 10, [RemoveMessage(Q, FIRST.message_id)])
    write(tmp_path, 9, [encode_add(FIRST), encode_add(SECOND)])

    state, _ = recovered(tmp_path)

    assert texts(tmp_path, state) == [SECOND.message_id]


def test_a_record_that_does_not_decode_is_damage(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST), b"\x01\x00", encode_add(SECOND)])

    state, result = recovered(tmp_path)

    assert texts(tmp_path, state) == [FIRST.message_id, SECOND.message_id]
    offset = BATCH_HEADER_BYTES + len(encode_record(encode_add(FIRST)))
    assert [(each.offset, each.length) for each in result.damages] == [(offset, 7)]
    assert result.damages[0].reason.startswith("a record does not decode: ")


def test_a_command_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST), b"\x63\x00"])

    with pytest.raises(JournalCorrupt, match=r"db-1.log.*unknown command type 99 in a sound record; a newer version"):
        recovered(tmp_path)


def test_a_subscription_whose_terms_do_not_decode_is_damage(tmp_path: Path) -> None:
    write(tmp_path, 1, [Subscribe(topic("T"), "c:s", b"\x37nonsense")])

    state, result = recovered(tmp_path)

    assert list(state.subscriptions()) == []
    assert len(result.damages) == 1


def test_a_torn_tail_is_normal_in_the_last_file_only(tmp_path: Path) -> None:
    torn = encode_batch([encode_record(encode_add(SECOND))])[:-1]
    write(tmp_path, 1, [encode_add(FIRST)], rest=torn)

    _, alone = recovered(tmp_path)
    write(tmp_path, 2, [encode_add(THIRD)])
    state, followed = recovered(tmp_path)

    assert ([each.length for each in alone.torn_tails], alone.damages) == ([len(torn)], [])
    assert ([each.length for each in followed.damages], followed.torn_tails) == ([len(torn)], [])
    assert texts(tmp_path, state) == [FIRST.message_id, THIRD.message_id]


def test_a_torn_tail_below_a_compacted_file_is_normal_too(tmp_path: Path) -> None:
    """ActiveMQ goes on writing to its current file while a compacted one has a higher number already."""
    torn = encode_batch([encode_record(encode_add(SECOND))])[:-1]
    write(tmp_path, 1, [encode_add(FIRST)], rest=torn)
    write(tmp_path, 2, [RewrittenDataFile(1)])

    state, result = recovered(tmp_path)

    assert ([each.file_id for each in result.torn_tails], result.damages) == ([1], [])
    assert state.compacted == {2}


def test_an_ack_copied_behind_its_commit_still_counts(tmp_path: Path) -> None:
    """The add's file remains, the ack's was compacted away, the commit is between: ActiveMQ resurrects the message."""
    write(tmp_path, 1, [encode_add(FIRST), encode_add(SECOND)])
    write(tmp_path, 3, [Commit(TX)])
    write(tmp_path, 4, [RewrittenDataFile(2)], [RemoveMessage(Q, FIRST.message_id, None, None, TX)])

    state, result = recovered(tmp_path)

    assert texts(tmp_path, state) == [SECOND.message_id]
    assert result.unfinished == []


def test_traces_at_the_very_end_are_retained(tmp_path: Path) -> None:
    write(tmp_path, 1, [Trace("early"), encode_add(FIRST), Trace("one"), Trace()], [Trace("two")])

    assert recovered(tmp_path)[1].closing_traces == ["one", "two"]


def test_an_update_gives_the_new_body_in_the_old_place(tmp_path: Path) -> None:
    newer = text_message("ID:c", 1, "newer")
    write(tmp_path, 1, [encode_add(FIRST), encode_add(SECOND)])
    write(tmp_path, 2, [UpdateMessage(AddMessage(Q, newer.message_id, newer.data))])

    state, _ = recovered(tmp_path)

    with BodyReader(tmp_path) as bodies:
        assert [view(message).text() for message in bodies.messages(state, Q)] == ["newer", "body"]


# ---------------------------------------------------------------- is it a journal?


@pytest.mark.parametrize("content", [b"not a journal at all", b"\x7fELF" + bytes(100), b"\0\0\0\x1d"])
def test_files_that_have_nothing_to_do_with_kahadb_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "db-1.log").write_bytes(content)

    with pytest.raises(JournalCorrupt, match="not a KahaDB journal"):
        inspect(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        EOF_MARKER,
        bytes(1000),
        b"\0\0\0\x1c\x02WRI",  # a first write that was torn
        b"damaged" + encode_batch([encode_record(b"\0\0")]),
    ],
)
def test_one_file_that_could_be_a_journal_is_enough(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "db-1.log").write_bytes(b"whatever this is")
    (tmp_path / "db-2.log").write_bytes(content)

    assert list(inspect(tmp_path)) == [1, 2]


def test_a_file_deleted_during_the_replay_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, [encode_add(FIRST)])
    write(tmp_path, 2, [encode_add(SECOND)])

    def listed(directory: Path) -> dict[int, Path]:
        files = data_files(directory)
        (tmp_path / "db-1.log").unlink(missing_ok=True)
        return files

    monkeypatch.setattr("pybroker.store.journal.replay.data_files", listed)

    assert list(inspect(tmp_path)) == [2]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="absent"):
        replay(tmp_path / "absent", StoreState())


def test_a_data_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "db-1.log").mkdir()

    with pytest.raises(StoreUnavailable, match=r"db-1\.log"):
        replay(tmp_path, StoreState())


# ---------------------------------------------------------------- bodies


def test_a_body_that_changed_under_us_is_left_out_and_reported(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST)], [encode_add(SECOND)], [encode_add(THIRD)])
    state, _ = recovered(tmp_path)
    entries = list(state.entries(Q))
    data = bytearray((tmp_path / "db-1.log").read_bytes())
    data[entries[0].location.offset + 4] = 9  # no user record any more
    data[entries[1].location.offset + 5] = 0  # a trace where an add was
    (tmp_path / "db-1.log").write_bytes(data)

    with BodyReader(tmp_path) as bodies:
        found = [message.message_id for message in bodies.messages(state, Q)]

    assert found == [THIRD.message_id]
    assert [each.offset for each in bodies.damages] == [entry.location.offset for entry in entries[:2]]


def test_a_body_beyond_a_truncated_files_end_is_reported(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST)])
    state, _ = recovered(tmp_path)
    (entry,) = state.entries(Q)
    data = (tmp_path / "db-1.log").read_bytes()

    for length in (0, entry.location.offset + 3, entry.location.offset + 20):
        (tmp_path / "db-1.log").write_bytes(data[:length])
        with BodyReader(tmp_path) as bodies, pytest.raises(JournalCorrupt, match="no record where a message should be"):
            bodies.message(entry)


def test_a_message_of_another_id_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST)])
    state, _ = recovered(tmp_path)
    (entry,) = state.entries(Q)

    with BodyReader(tmp_path) as bodies, pytest.raises(JournalCorrupt, match="another record"):
        bodies.message(entry._replace(message_id="ID:other"))


def test_a_body_whose_file_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path, 1, [encode_add(FIRST)])
    state, _ = recovered(tmp_path)
    (entry,) = state.entries(Q)
    (tmp_path / "db-1.log").unlink()

    with BodyReader(tmp_path) as bodies, pytest.raises(StoreUnavailable, match=r"db-1\.log"):
        bodies.message(entry)


def test_large_bodies_from_many_files_are_read(tmp_path: Path) -> None:
    """Alternating priority classes make the reader go back to files it has let go."""
    expected = []
    for file_id in range(1, 41):
        message = text_message(f"ID:{file_id}", file_id, "x" * (file_id * 10_000))
        write(tmp_path, file_id, [AddMessage(Q, message.message_id, message.data, file_id % 10, True)])
        expected.append((-1 if file_id % 10 > 4 else 1 if file_id % 10 < 4 else 0, file_id, file_id * 10_000))
    state, _ = recovered(tmp_path)

    with BodyReader(tmp_path) as bodies:
        found = [len(view(message).text() or "") for message in bodies.messages(state, Q)]

    assert found == [length for _, _, length in sorted(expected)]
