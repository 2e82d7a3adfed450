# mypy: disable-error-code="attr-defined"
"""The table of a journal: whatever is in it, both decoders agree, and neither raises."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire import message as openwire
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.commands import MessageAck
from pybroker.broker.domain.openwire.ids import ConsumerId, OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.objects import encode_ack
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, encode_map, encode_stream
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.columns.schema import CORRUPT
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    Commit,
    Prepare,
    RemoveMessage,
    Rollback,
    Trace,
    UpdateMessage,
    encode,
)
from pybroker.store.journal.format import BATCH_MAGIC, EOF_MARKER, encode_batch, encode_record
from pybroker.store.journal.marks import encode_mark
from tests.unit.columns.agreement import assert_agreement, assert_same, scalar_rows, vector_rows

few = settings(max_examples=settings().max_examples // 4)
"""Each example reads a journal a dozen times."""

# ---------------------------------------------------------------- journals as brokers write them

longs = st.integers(-(2**63), 2**63 - 1)
times = st.sampled_from((0, -1, 1, 1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000, 2**62))
texts = st.sampled_from(("", "A", 'say "a"\\\n', "ORDERS.1", "größe", "日本", "a\x00b", "😀", "\ud800"))
maybe_text = st.none() | texts
connections = st.sampled_from(("ID:h-1-2-0:1", "ID:größe:1", "\x00"))
destinations = st.builds(
    Destination, st.sampled_from(DestinationType), st.sampled_from(("A", "ORDERS.1", "größe", "😀"))
)
numbers = st.integers(-3, 12)
producers = st.builds(ProducerId, st.none() | connections, numbers, numbers)
message_ids = st.builds(
    OpenWireMessageId, st.sampled_from((None, None, "other")), st.none() | producers, longs, numbers
)
transactions: st.SearchStrategy[TransactionId] = st.builds(LocalTransactionId, connections, longs) | st.builds(
    XATransactionId, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=4), st.binary(max_size=4)
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.characters(max_codepoint=0xFFFF).map(Char),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1),
    longs.map(Long),
    st.floats(),
    st.floats(width=32).map(Float),
    texts,
    st.just("x" * 9000),
    st.binary(max_size=3),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.booleans(), max_size=2),
)
maps = st.dictionaries(texts, values, max_size=4).map(encode_map)
repeated_names = st.just(b"\x00\x00\x00\x02\x00\x01a\x01\x01\x00\x01a\x01\x00")
properties = st.one_of(
    st.none(), st.just(b""), st.just(b"\xff\xff\xff\xff"), maps, repeated_names, st.binary(max_size=20)
)
contents = st.one_of(
    st.none(),
    st.just(b""),
    texts.map(encode_text),
    maps,
    st.lists(st.one_of(st.booleans(), texts), max_size=3).map(encode_stream),
    st.binary(max_size=12),
)
messages = st.builds(
    OpenWireMessage,
    type=st.sampled_from(MessageType),
    producer_id=st.none() | producers,
    destination=destinations,
    transaction_id=st.none() | transactions,
    original_destination=st.none() | destinations,
    message_id=message_ids,
    original_transaction_id=st.none() | transactions,
    group_id=maybe_text,
    group_sequence=numbers,
    correlation_id=maybe_text,
    persistent=st.booleans(),
    expiration=times,
    priority=st.integers(-128, 127),
    reply_to=st.none() | destinations,
    timestamp=times,
    jms_type=maybe_text,
    content=contents,
    marshalled_properties=properties,
    compressed=st.sampled_from((False, False, True)),
    redelivery_counter=numbers,
    broker_path=st.sampled_from((None, None, ("ID:b",))),
    user_id=maybe_text,
    broker_in_time=times,
)
usual_messages = st.builds(
    OpenWireMessage,
    type=st.sampled_from((MessageType.TEXT, MessageType.BYTES)),
    producer_id=st.just(ProducerId("ID:h-1-2-0:1", 1, 1)),
    destination=st.just(Destination(DestinationType.QUEUE, "ORDERS.1")),
    message_id=st.builds(
        OpenWireMessageId, st.none(), st.just(ProducerId("ID:h-1-2-0:1", 1, 1)), st.integers(1, 99), st.just(0)
    ),
    persistent=st.just(True),
    timestamp=st.just(1_700_000_000_000),
    broker_in_time=st.integers(1_700_000_000_001, 1_700_000_009_999),
    content=texts.map(encode_text),
    marshalled_properties=maps,
)
data = (messages | usual_messages | usual_messages).map(openwire.encode)
acks = st.builds(
    MessageAck,
    ack_type=st.integers(-1, 8),
    destination=st.none() | destinations,
    transaction_id=st.none() | transactions,
    consumer_id=st.none() | st.builds(ConsumerId, st.none() | connections, numbers, numbers),
    first_message_id=st.none() | message_ids,
    last_message_id=st.none() | message_ids,
    poison_cause=st.none() | st.builds(Throwable, class_name=maybe_text, message=maybe_text),
).map(encode_ack)
keys = st.text("ab:é", max_size=4)
adds = st.builds(AddMessage, destinations, keys, data, numbers, st.booleans(), st.none() | transactions)
removes = st.builds(
    RemoveMessage, destinations, keys, st.none() | st.just(b"") | acks, st.none() | keys, st.none() | transactions
)
endings: st.SearchStrategy[Command] = st.one_of(
    *(st.builds(kind, transactions) for kind in (Prepare, Commit, Rollback))
)
commands: st.SearchStrategy[Command] = st.one_of(
    adds, adds, removes, removes, endings, adds.map(UpdateMessage), st.builds(Trace, st.none() | keys)
)
payloads = commands.map(encode)
marks = st.integers(1_700_000_000_000, 1_700_000_100_000).map(lambda time: encode_mark(time)[5:])


@st.composite
def journals(draw: st.DrawFn) -> list[list[bytes]]:
    """Return batches of payloads; some begin with a time mark."""
    batches = draw(st.lists(st.lists(payloads, min_size=1, max_size=5), min_size=1, max_size=5))
    return [[draw(marks), *batch] if draw(st.booleans()) else batch for batch in batches]


def encoded(batches: Sequence[Sequence[bytes]], *, checksum: bool = True) -> bytes:
    return b"".join(encode_batch([encode_record(each) for each in batch], checksum=checksum) for batch in batches)


def check(content: bytes, *, piece_bytes: int | None = None, window_bytes: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # What is damaged at the end of the newest file is not reported, so there is one more.
        Path(folder, "db-1.log").write_bytes(content)
        Path(folder, "db-2.log").write_bytes(encoded([[encode(Trace("end"))]]) + EOF_MARKER)
        assert_agreement(Path(folder), piece_bytes=piece_bytes, window_bytes=window_bytes)


@few
@given(journals(), st.booleans())
def test_what_is_written_reads_the_same(batches: list[list[bytes]], checksum: bool) -> None:
    check(encoded(batches, checksum=checksum) + EOF_MARKER)


@few
@given(journals(), st.integers(1, 2000))
def test_chunk_size_does_not_change_the_rows(batches: list[list[bytes]], piece_bytes: int) -> None:
    check(encoded(batches) + EOF_MARKER, piece_bytes=piece_bytes)


@few
@given(journals(), st.data())
def test_records_that_do_not_decode_are_reported_alike(batches: list[list[bytes]], draw: st.DataObject) -> None:
    """Bytes are changed before the batch gets its checksum: the batch is sound, and its records are not."""
    for batch in batches:
        for index, payload in enumerate(batch):
            if draw.draw(st.booleans()):
                place = draw.draw(st.integers(0, len(payload) - 1))
                changed = bytes((draw.draw(st.integers(0, 255)),))
                batch[index] = payload[:place] + changed + payload[place + draw.draw(st.integers(0, 2)) :]
    check(encoded(batches) + EOF_MARKER)


@few
@given(journals(), st.booleans(), st.data())
def test_damage_is_reported_alike(batches: list[list[bytes]], checksum: bool, draw: st.DataObject) -> None:
    content = bytearray(encoded(batches, checksum=checksum) + EOF_MARKER)
    for _ in range(draw.draw(st.integers(1, 4))):
        content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
    check(bytes(content[: draw.draw(st.integers(0, len(content)))]))


@few
@given(st.binary(max_size=300), st.binary(max_size=60))
def test_bytes_that_mean_nothing_are_reported_alike(content: bytes, payload: bytes) -> None:
    check(content)
    check(BATCH_MAGIC + content)
    check(encoded([[payload]]) + EOF_MARKER)


@few
@given(st.lists(st.lists(usual_messages.map(openwire.encode), min_size=1, max_size=60), min_size=1, max_size=40))
def test_many_batches_of_many_records_are_walked_alike(bodies: list[list[bytes]]) -> None:
    """More batches than the walk takes one by one."""
    place = Destination(DestinationType.QUEUE, "ORDERS.1")
    batches = [
        [encode(AddMessage(place, f"ID:h:{number}", each)) for number, each in enumerate(body)] for body in bodies
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "db-1.log").write_bytes(encoded(batches * 25) + EOF_MARKER)
        columns = ("offset", "size", "message_id", "time", CORRUPT)
        assert_same(vector_rows(Path(folder), columns), scalar_rows(Path(folder), columns))
