"""Refusals and limits of a codec, and the caches of a connection."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQTextMessage,
    BlankLocalTransactionId,
    BlankXATransactionId,
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ControlCommand,
    DataArrayResponse,
    DataResponse,
    DataStructure,
    ExceptionResponse,
    KeepAliveInfo,
    MessageAck,
    MessageDispatch,
    MessagePull,
    OpenWireMessageId,
    ProducerAck,
    ProducerId,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    StackFrame,
    Throwable,
    TransactionInfo,
    WireFormatInfo,
)
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.caches import RESERVED_SLOTS
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.sources import NESTING_MAX
from pybroker.broker.domain.openwire.throwables import CAUSES_MAX
from pybroker.broker.domain.transaction import LocalTransactionId

ENCODINGS = pytest.mark.parametrize("tight", [False, True], ids=["loose", "tight"])
CONNECTION = "ID:h-1-2-0:1"
SESSION = SessionInfo(command_id=3, session_id=SessionId(CONNECTION, 1))


def encoded(value: DataStructure, **options: Any) -> bytes:
    return WireFormat(**options).encode(value)


def with_bits(bits: str, data: str, data_type: int) -> bytes:
    """Return a tight frame of up to eight booleans."""
    return bytes([data_type, 1, int(bits[::-1], 2)]) + bytes.fromhex(data)


# ---------------------------------------------------------------- the formats as drawn


def test_a_loose_frame_by_hand() -> None:
    assert encoded(Response(correlation_id=5)) == bytes.fromhex("1e 00000000 00 00000005")
    assert WireFormat().encode_frame(Response(correlation_id=5)).hex() == "0000000a1e000000000000000005"


def test_a_tight_frame_by_hand() -> None:
    name = CONNECTION.encode().hex()
    assert encoded(SESSION, tight=True).hex() == f"04012e0000000379000c{name}0001"


def test_a_cached_value_by_hand() -> None:
    name = CONNECTION.encode().hex()
    loose, tight = (WireFormat(cache_size=1024, tight=tight, reuse=True) for tight in (False, True))

    assert loose.encode(SESSION).hex() == f"04000000030001000001790100 0c{name}0000000000000001".replace(" ", "")
    assert loose.encode(SESSION).hex() == "040000000300000000"
    assert tight.encode(SESSION).hex() == f"04015e00000003000079000c{name}0001"
    assert tight.encode(SESSION).hex() == "040100000000030000"


@pytest.mark.parametrize(
    ("number", "size"),
    [(0, 0), (1, 2), (0xFFFF, 2), (0x10000, 4), (0xFFFFFFFF, 4), (0x100000000, 8), (-1, 8), (-(2**63), 8)],
)
def test_a_tight_long_takes_what_it_needs(number: int, size: int) -> None:
    def of(value: int) -> bytes:
        return encoded(RemoveInfo(last_delivered_sequence_id=value), tight=True)

    assert len(of(number)) - len(of(0)) == size
    assert WireFormat(tight=True).decode(of(number)) == RemoveInfo(last_delivered_sequence_id=number)


@pytest.mark.parametrize(
    ("booleans", "head"),
    [(2, "01"), (504, "3f"), (505, "c040"), (2040, "c0ff"), (2041, "800100"), (8 * 4095, "800fff")],
)
def test_a_boolean_stream_starts_with_its_length(booleans: int, head: str) -> None:
    # One for the response, one for the array, one per element.
    value = DataArrayResponse(data=(None,) * (booleans - 2))
    frame = encoded(value, tight=True)

    assert frame[1:].startswith(bytes.fromhex(head))
    assert WireFormat(tight=True).decode(frame) == value


def test_more_booleans_than_a_stream_may_have_are_refused() -> None:
    paths = (BrokerInfo(peer_broker_infos=(None,) * 32767),) * 8
    value = BrokerInfo(peer_broker_infos=paths)

    with pytest.raises(UnencodableOpenWire, match="booleans"):
        encoded(value, tight=True)


@ENCODINGS
def test_arrays_of_a_frame_have_a_common_limit(tight: bool) -> None:
    for extra in (False, True):
        paths = (BrokerInfo(peer_broker_infos=(None,) * 19_998),) * 2 + (None,) * (2 + extra)
        frame = encoded(BrokerInfo(peer_broker_infos=paths), tight=tight)
        if extra:
            with pytest.raises(MalformedOpenWire, match="more than 40000 elements"):
                WireFormat(tight=tight).decode(frame)
        else:
            assert WireFormat(tight=tight).decode(frame) == BrokerInfo(peer_broker_infos=paths)


@pytest.mark.parametrize("head", ["40", "7f", "81", "c1", "80ffff", "c0", "80", "02ff"])
def test_a_boolean_stream_that_cannot_be_is_refused(head: str) -> None:
    with pytest.raises(MalformedOpenWire):
        WireFormat(tight=True).decode(bytes.fromhex("0a" + head))


# ---------------------------------------------------------------- what is refused


@ENCODINGS
def test_a_frame_needs_a_data_type_that_the_version_has(tight: bool) -> None:
    for frame in (b"", b"\x00", b"\x0d", b"\xff" + bytes(40)):
        with pytest.raises(MalformedOpenWire):
            WireFormat(tight=tight).decode(frame)


@ENCODINGS
@pytest.mark.parametrize(
    ("value", "since"),
    [(MessagePull(), 2), (ProducerAck(), 3), (ActiveMQBlobMessage(), 3), (BrokerSubscriptionInfo(), 12)],
    ids=lambda value: type(value).__name__,
)
def test_an_older_version_has_no_younger_structure(value: DataStructure, since: int, tight: bool) -> None:
    old, young = WireFormat(since - 1, tight=tight), WireFormat(since, tight=tight)

    assert young.decode(young.encode(value)) == value
    with pytest.raises(MalformedOpenWire, match="unknown"):
        old.decode(young.encode(value))
    with pytest.raises(UnencodableOpenWire, match=type(value).__name__):
        old.encode(value)
    with pytest.raises(UnencodableOpenWire, match=type(value).__name__):
        old.encode(DataResponse(data=value))


@ENCODINGS
def test_bytes_left_over_are_an_error(tight: bool) -> None:
    wire = WireFormat(tight=tight)
    with pytest.raises(MalformedOpenWire, match="too many"):
        wire.decode(wire.encode(SESSION) + b"\x00")


def test_booleans_left_over_are_an_error() -> None:
    with pytest.raises(MalformedOpenWire, match="booleans too many"):
        WireFormat(tight=True).decode(bytes.fromhex("0a 02 0000 00000000"))


@ENCODINGS
def test_every_cut_is_an_error(tight: bool) -> None:
    wire = WireFormat(tight=tight, stack_traces=True)
    cause = Throwable(class_name="a.B", message="no", stack=(StackFrame("a.B", "m", "B.java", 7),))
    message = ActiveMQTextMessage(content=b"12345", message_id=OpenWireMessageId("x", ProducerId("c", 1, 1), 3))
    for value in (
        MessageAck(poison_cause=cause, destination=queue("Q")),
        MessageDispatch(message=message, consumer_id=ConsumerId(CONNECTION, 1, 1)),
        ConnectionInfo(connection_id=ConnectionId("c"), broker_path=(BrokerId("b"), None)),
    ):
        frame = wire.encode(value)
        for end in range(len(frame)):
            with pytest.raises(MalformedOpenWire):
                wire.decode(frame[:end])


@ENCODINGS
def test_a_structure_in_the_wrong_place_is_refused(tight: bool) -> None:
    wire = WireFormat(tight=tight)
    misplaced = SessionInfo(session_id=ConsumerId(CONNECTION, 1, 1))  # type: ignore[arg-type]
    element = ConnectionInfo(broker_path=(SessionId("c", 1),))  # type: ignore[arg-type]
    for value in (misplaced, element):
        with pytest.raises(MalformedOpenWire, match="does not belong"):
            wire.decode(wire.encode(value))


def test_a_nested_message_never_is_a_frame_of_its_own() -> None:
    wire = WireFormat(tight=True)
    frame = wire.encode(MessageDispatch(message=ActiveMQTextMessage()))
    # Booleans: response, consumer, destination, message, and the bit in question.
    flipped = frame[:2] + bytes([frame[2] | 0b10000]) + frame[3:]
    with pytest.raises(MalformedOpenWire, match="inside a frame"):
        wire.decode(flipped)


@ENCODINGS
def test_incomplete_transaction_id_names_no_transaction(tight: bool) -> None:
    wire = WireFormat(tight=tight)
    blanks = (
        BlankLocalTransactionId(7),
        BlankLocalTransactionId(7, ConnectionId(None)),
        BlankXATransactionId(1, b"g"),
        BlankXATransactionId(1, None, b"b"),
    )
    for blank in blanks:
        assert wire.decode(wire.encode(blank)) == blank
        assert wire.decode(wire.encode(DataResponse(data=blank))) == DataResponse(data=blank)
        with pytest.raises(MalformedOpenWire, match="belongs"):
            wire.decode(wire.encode(TransactionInfo(transaction_id=blank)))  # type: ignore[arg-type]


def test_a_destination_has_a_name() -> None:
    with pytest.raises(MalformedOpenWire, match="without a name"):
        WireFormat().decode(b"\x64\x00")


@ENCODINGS
def test_nesting_has_an_end(tight: bool) -> None:
    wire = WireFormat(tight=tight)
    value: DataStructure = KeepAliveInfo()
    for _ in range(NESTING_MAX + 1):
        value = DataResponse(data=value)
    assert wire.decode(wire.encode(value)) == value
    with pytest.raises(UnencodableOpenWire, match="nested"):
        wire.encode(DataResponse(data=value))


def test_deeper_nesting_than_python_could_bear_is_refused() -> None:
    level = bytes.fromhex("20 00000000 00 00000000 01")
    with pytest.raises(MalformedOpenWire, match="nested"):
        WireFormat().decode(level * 10_000 + b"\x0a" + bytes(5))


@ENCODINGS
def test_causes_have_an_end(tight: bool) -> None:
    wire = WireFormat(tight=tight, stack_traces=True)
    error = Throwable(class_name="a.B", message="root")
    for _ in range(CAUSES_MAX - 2):
        error = Throwable(class_name="a.B", message="no", cause=error)
    assert wire.decode(wire.encode(ExceptionResponse(exception=error))) == ExceptionResponse(exception=error)
    with pytest.raises(UnencodableOpenWire, match="causes"):
        wire.encode(ExceptionResponse(exception=Throwable(class_name="a.B", cause=error)))


def test_exception_without_stack_trace_has_class_and_message() -> None:
    error = Throwable(
        class_name="a.B", message="no", stack=(StackFrame("a.B", "m", None, -1),), cause=Throwable(class_name="c.D")
    )
    for tight in (False, True):
        wire = WireFormat(tight=tight)
        decoded = wire.decode(wire.encode(ConnectionErrorCommand(exception=error)))
        assert decoded == ConnectionErrorCommand(exception=Throwable(class_name="a.B", message="no"))


@pytest.mark.parametrize("count", ["8000", "ffff", "0004", "7fff"])
def test_an_array_has_space_for_its_elements(count: str) -> None:
    with pytest.raises(MalformedOpenWire, match="array of"):
        WireFormat().decode(bytes.fromhex(f"21 00000000 00 00000000 01 {count} 000000"))


def test_in_tight_encoding_an_element_takes_a_boolean() -> None:
    wire = WireFormat(tight=True)
    assert wire.decode(with_bits("01", "00000000 00000000 0006", 33)) == DataArrayResponse(data=(None,) * 6)
    with pytest.raises(MalformedOpenWire, match="array of 7"):
        wire.decode(with_bits("01", "00000000 00000000 0007", 33))


@ENCODINGS
def test_values_out_of_range_cannot_be_encoded(tight: bool) -> None:
    wire = WireFormat(tight=tight)
    for value in (
        Response(correlation_id=2**31),
        RemoveInfo(last_delivered_sequence_id=2**63),
        MessageAck(ack_type=128),
        ControlCommand(command="x" * 65536),
        DataArrayResponse(data=(None,) * 32768),
        WireFormatInfo(magic=b"short"),
    ):
        with pytest.raises(UnencodableOpenWire):
            wire.encode(value)


def test_a_tight_string_is_shorter_than_a_loose_one() -> None:
    longest = ControlCommand(command="x" * 32766)
    assert WireFormat(tight=True).decode(encoded(longest, tight=True)) == longest
    with pytest.raises(UnencodableOpenWire, match="32766"):
        encoded(ControlCommand(command="x" * 32767), tight=True)
    longer = ControlCommand(command="x" * 65535)
    assert WireFormat().decode(encoded(longer)) == longer


def test_a_view_of_a_chunk_decodes_like_its_bytes() -> None:
    frame = encoded(SESSION)
    assert WireFormat().decode(memoryview(b"..." + frame)[3:]) == SESSION


@pytest.mark.parametrize(
    "options",
    [
        {"version": 0},
        {"version": 13},
        {"cache_size": -1},
        {"cache_size": 32768},
        {"reuse": True},
        {"reuse": True, "cache_size": RESERVED_SLOTS - 1},
    ],
    ids=str,
)
def test_a_format_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not"):
        WireFormat(**options)


# ---------------------------------------------------------------- identifiers that repeat


@ENCODINGS
@pytest.mark.parametrize("name", [None, "", "x", "é" * 100, "x" * 256, "x" * 257, "é" * 300])
def test_identifiers_are_the_same_however_long_and_however_often(name: str | None, tight: bool) -> None:
    wire = WireFormat(tight=tight)
    value = MessageAck(
        consumer_id=ConsumerId(name, 1, 2),
        last_message_id=OpenWireMessageId(None, ProducerId(name, 2, 1), 3),
        destination=topic(name or ""),
    )
    first = wire.encode(value)
    assert wire.encode(value) == first
    assert wire.decode(first) == wire.decode(first) == value


def test_identifiers_of_equal_contents_are_distinct() -> None:
    wire = WireFormat(cache_size=1024, reuse=True)
    reader = WireFormat(cache_size=1024)
    same = (ConnectionId("a"), BrokerId("a"), ConsumerId("a", 1, 1), ProducerId("a", 1, 1))
    for value in same + same:
        decoded = reader.decode(wire.encode(RemoveInfo(object_id=value)))
        assert isinstance(decoded, RemoveInfo)
        assert type(decoded.object_id) is type(value)
        assert decoded.object_id == value


# ---------------------------------------------------------------- value caching


def cached_session(flag: int, index: int, rest: str = "") -> bytes:
    return bytes.fromhex("04 00000003 00") + struct.pack(">Bh", flag, index) + bytes.fromhex(rest)


def test_the_reader_takes_the_index_it_is_given() -> None:
    wire = WireFormat(cache_size=200)
    assert wire.decode(cached_session(1, 199, "01 79 00 0000000000000007")) == replace(
        SESSION, session_id=SessionId(None, 7)
    )
    assert wire.decode(cached_session(0, 199)) == replace(SESSION, session_id=SessionId(None, 7))


def test_null_is_cached_like_any_value() -> None:
    wire = WireFormat(cache_size=200)
    assert wire.decode(cached_session(1, 3, "00")) == replace(SESSION, session_id=None)
    assert wire.decode(cached_session(0, 3)) == replace(SESSION, session_id=None)


def test_index_minus_one_stores_nothing() -> None:
    wire = WireFormat(cache_size=200)
    assert wire.decode(cached_session(1, -1, "00")) == replace(SESSION, session_id=None)
    with pytest.raises(MalformedOpenWire, match="index -1"):
        wire.decode(cached_session(0, -1))


@pytest.mark.parametrize("index", [200, 32767, -2, -32768])
def test_an_index_beyond_the_table_is_refused(index: int) -> None:
    with pytest.raises(MalformedOpenWire, match=f"index {index}"):
        WireFormat(cache_size=200).decode(cached_session(1, index, "00"))
    with pytest.raises(MalformedOpenWire, match=f"index {index}"):
        WireFormat(cache_size=200).decode(cached_session(0, index))


def test_a_peer_cannot_have_us_keep_more_than_the_limit() -> None:
    writer, reader = WireFormat(cache_size=1024), WireFormat(cache_size=1024)
    largest = SessionInfo(session_id=SessionId("x" * 65535, 1))
    prefix, value = writer.encode(largest)[:7], writer.encode(largest)[9:]

    def stored_at(index: int) -> bytes:
        return prefix[:6] + b"\x01" + struct.pack(">h", index) + value

    for index in (*range(255), *range(255)):
        assert reader.decode(stored_at(index)) == largest
    with pytest.raises(MalformedOpenWire, match="limit"):
        reader.decode(stored_at(255))


def test_a_known_value_must_suit_the_field() -> None:
    wire = WireFormat(cache_size=200)
    wire.decode(encoded(RemoveInfo(object_id=ConsumerId("c", 1, 1)), cache_size=200, reuse=True))
    with pytest.raises(MalformedOpenWire, match="index 0 holds ConsumerId"):
        wire.decode(cached_session(0, 0))


@ENCODINGS
def test_failed_encoding_keeps_caches_synchronous(tight: bool) -> None:
    writer = WireFormat(tight=tight, cache_size=150, reuse=True)
    reader = WireFormat(tight=tight, cache_size=150)
    for number in range(200):
        # Its identifiers are written before the number that is out of range.
        with pytest.raises(UnencodableOpenWire):
            writer.encode(
                MessageAck(destination=queue(f"Q{number}"), consumer_id=ConsumerId("c", 1, number), message_count=2**31)
            )
        for value in (
            MessageAck(destination=queue(f"Q{number}"), consumer_id=ConsumerId("c", 1, number)),
            MessageAck(destination=queue(f"Q{number // 2}"), consumer_id=ConsumerId("c", 1, number // 2)),
        ):
            assert reader.decode(writer.encode(value)) == value


@ENCODINGS
@pytest.mark.parametrize("slots", [RESERVED_SLOTS, RESERVED_SLOTS + 50])
def test_a_frame_with_more_values_than_the_table_has_slots(slots: int, tight: bool) -> None:
    writer = WireFormat(tight=tight, cache_size=slots, reuse=True)
    reader = WireFormat(tight=tight, cache_size=slots)
    many = BrokerInfo(peer_broker_infos=tuple(BrokerInfo(broker_id=BrokerId(str(number))) for number in range(250)))
    for _ in range(3):
        assert reader.decode(writer.encode(many)) == many
        for number in range(250):
            value = SessionInfo(session_id=SessionId("c", number))
            assert reader.decode(writer.encode(value)) == value
            one = BrokerInfo(broker_id=BrokerId(str(number)))
            assert reader.decode(writer.encode(one)) == one


@ENCODINGS
def test_a_command_where_an_identifier_is_usual_is_never_cached(tight: bool) -> None:
    writer = WireFormat(tight=tight, cache_size=RESERVED_SLOTS, reuse=True)
    reader = WireFormat(tight=tight, cache_size=RESERVED_SLOTS)
    value = RemoveInfo(object_id=KeepAliveInfo(command_id=4))
    first = writer.encode(value)
    assert reader.decode(first) == value
    assert writer.encode(value) == first


@pytest.mark.parametrize(
    ("tight", "wanted"),
    [
        (
            False,
            "07000000000001000000010001016f000000000000000501000201780100016300 "
            "070000000000000000010003016f000000000000000600000200 "
            "070000000000000000010004016f000000000000000501000501780100016400 "
            "07000000000000000000000100",
        ),
        (
            True,
            "0702da0700000000000000026f000500017800016300 "
            "07012c00000000000000036f0006000100 "
            "0702ec0300000000000000056f000500047800016400 "
            "070100000000000000000200",
        ),
    ],
    ids=["loose", "tight"],
)
def test_nested_cached_values_have_activemqs_indexes(tight: bool, wanted: str) -> None:
    """Loose counts the outer value first, tight the inner one. The bytes are ActiveMQ 5.17.2's, fresh caches."""
    writer = WireFormat(tight=tight, cache_size=16383, reuse=True)
    reader = WireFormat(tight=tight, cache_size=16383)
    transactions = [LocalTransactionId(*parts) for parts in (("c", 5), ("c", 6), ("d", 5), ("c", 5))]
    frames = [writer.encode(TransactionInfo(transaction_id=transaction)) for transaction in transactions]

    assert [frame.hex() for frame in frames] == wanted.split()
    assert [reader.decode(frame) for frame in frames] == [
        TransactionInfo(transaction_id=transaction) for transaction in transactions
    ]


@ENCODINGS
def test_cached_values_may_hold_cached_values(tight: bool) -> None:
    writer = WireFormat(tight=tight, cache_size=1024, reuse=True)
    reader = WireFormat(tight=tight, cache_size=1024)
    lengths: list[int] = []
    for value in (1, 2, 1):
        begin = TransactionInfo(transaction_id=LocalTransactionId(CONNECTION, value))
        frame = writer.encode(begin)
        assert reader.decode(frame) == begin
        lengths.append(len(frame))
    assert lengths[0] > lengths[1] > lengths[2]
