"""The short way in for messages and acknowledgements: what it remembers, and what it leaves to the long way.

That both ways read the same is a property, in `tests/property/test_openwire_session.py`.
"""

import dataclasses
import tracemalloc
from collections.abc import Callable
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any

import pytest

from pybroker.broker.domain.big_endian import INT, LONG
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import BridgeFields, Message
from pybroker.broker.domain.openwire import passed_brokers
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ActiveMQTextMessage,
    BrokerId,
    ConsumerId,
    MessageAck,
    OpenWireMessageId,
    ProducerId,
)
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.transcode import from_store
from pybroker.broker.domain.openwire.passed_brokers import PassedBrokers
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.openwire import arrivals
from pybroker.transports.openwire.arrivals import Acknowledgements, Arrival, Arrivals
from pybroker.transports.openwire.faults import MissingDestination
from pybroker.transports.openwire.ownership import ForeignMessageId
from tests.compiled import interpreted

WIRE = WireFormat(12)
PRODUCER = ProducerId("ID:c1", 1, 1)
ORDERS = queue("ORDERS")

TAIL_BYTES = 37
"""The bytes after a message's properties when the other fields are empty."""


def encoded(number: int = 1, **details: object) -> bytes:
    fields: dict[str, object] = {
        "producer_id": PRODUCER,
        "destination": ORDERS,
        "message_id": OpenWireMessageId(None, PRODUCER, number),
        "persistent": True,
        "content": b"\x00\x00\x00\x02hi",
        "marshalled_properties": b"\x00\x00\x00\x00",
    }
    return WIRE.encode(ActiveMQTextMessage(**(fields | details)))  # type: ignore[arg-type]


def new_arrivals() -> Arrivals:
    return Arrivals(count(700).__next__)


def read(reader: Arrivals, frame: bytes) -> Message:
    """Read a frame that stands amid others."""
    return reader.read(b"before" + frame + b"behind", 6, 6 + len(frame))[0]


def test_numbers_are_written_into_the_message_in_order() -> None:
    reader = new_arrivals()
    for number in range(3):
        message = read(reader, encoded(number))
        stored_id = from_store(message.data).message_id
        assert stored_id == OpenWireMessageId(None, PRODUCER, number, 700 + number)
        assert message.message_id == f"ID:c1:1:1:{number}"


def outcome(read: Callable[[], Arrival]) -> object:
    """Return what reading a frame gives, or the error that it raises."""
    try:
        message, producer, sequence, transaction = read()
    except (MalformedOpenWire, MissingDestination, ForeignMessageId) as error:
        return type(error), str(error)
    return message.message_id, message.destination, message.data, message.size, producer, sequence, transaction


WHOLE = (
    encoded(),
    encoded(2),
    encoded(3, transaction_id=LocalTransactionId("ID:c1", 7)),
    encoded(4, destination=queue("ORDERS?a=b")),
    encoded(5, destination=None),
    encoded(6, correlation_id="c", group_id="g"),
    encoded(7, message_id=OpenWireMessageId(None, ProducerId("ID:c2", 1, 1), 7)),
    encoded(8, content=b"x" * 300_000),
    *[encoded(9)[:end] for end in range(1, len(encoded(9)))],
)


@pytest.mark.parametrize("warm", [True, False])
def test_whole_frames_give_the_messages_of_frames_in_chunks(warm: bool) -> None:
    chunked, whole = new_arrivals(), new_arrivals()
    if warm:
        chunked.read(encoded(), 0, len(encoded()))
        whole.read(encoded(), 0, len(encoded()))
    for frame in WHOLE:
        expected = outcome(partial(chunked.read, frame, 0, len(frame)))
        assert outcome(partial(whole.read_whole, BytesIO(frame))) == expected


def test_a_whole_frame_becomes_the_message_without_a_copy() -> None:
    size = 16 << 20
    data = encoded(content=bytes(size))
    tracemalloc.start()
    try:
        frame = BytesIO()
        frame.write(data[:100])
        frame.write(data[100:])
        tracemalloc.reset_peak()
        message = new_arrivals().read_whole(frame)[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(message.data) > size
    assert peak < size * 5 // 4, "a buffer that grows has an eighth to spare"


@pytest.mark.parametrize("end", range(len(encoded())))
@pytest.mark.parametrize("warm", [True, False])
def test_messages_cut_short_are_malformed(end: int, warm: bool) -> None:
    """Whatever stands behind them in the chunk: it is another frame."""
    reader, whole = new_arrivals(), encoded()
    if warm:
        read(reader, whole)
    for behind in (b"", whole[end:], b"\x00" * 100):
        with pytest.raises(MalformedOpenWire):
            reader.read(b"before" + whole[:end] + behind, 6, 6 + end)


def test_messages_that_go_on_behind_their_end_are_malformed() -> None:
    for warm in (True, False):
        reader = new_arrivals()
        if warm:
            read(reader, encoded())
        with pytest.raises(MalformedOpenWire):
            read(reader, encoded() + b"\x00")


@pytest.mark.parametrize("length", [-1, -5, -6, -30, -(1 << 31), 1 << 30])
@pytest.mark.parametrize("field", ["content", "properties"])
def test_lengths_that_cannot_be_are_malformed(field: str, length: int) -> None:
    """The lengths may point back into the message, so that its end is where it should be."""
    frame = bytearray(encoded())
    at = frame.index(b"\x00\x00\x00\x02hi") - 4 if field == "content" else frame.index(b"hi\x01") + 3
    frame[at : at + 4] = length.to_bytes(4, signed=True)
    with pytest.raises(MalformedOpenWire):
        read(new_arrivals(), bytes(frame))


@pytest.mark.parametrize(
    "fields",
    [
        {"correlation_id": "~~~~"},
        {"jms_type": "~~~~"},
        {"reply_to": queue("~~~~")},
        {"user_id": "~~~~"},
        {"group_id": "~~~~"},
        {"cluster": (BrokerId("~~~~"),)},
    ],
)
def test_texts_that_do_not_decode_are_malformed(fields: dict[str, Any]) -> None:
    """An ActiveMQ that loads such a message from a store shuts itself down, so none may come into one."""
    reader = new_arrivals()
    assert from_store(read(reader, encoded(**fields).replace(b"~~~~", "éé".encode())).data)
    for warm in (False, True):
        if warm:
            read(reader, encoded())
        with pytest.raises(MalformedOpenWire, match="not UTF-8"):
            read(reader, encoded(**fields).replace(b"~~~~", b"\xff\xfe\xff\xfe"))


def test_negative_length_at_the_end_is_malformed() -> None:
    frame = encoded(content=b"\x00" * 200)
    at = frame.index(b"\x00" * 200) + 201
    assert frame[at - 1 : at + 4] == b"\x01\x00\x00\x00\x04"
    for cut in range(at + 4, at + 4 + TAIL_BYTES):
        length = cut - at - 4 - TAIL_BYTES
        with pytest.raises(MalformedOpenWire):
            read(new_arrivals(), frame[:at] + length.to_bytes(4, signed=True) + frame[at + 4 : cut])


def test_ids_with_text_view_are_grouped_by_producer() -> None:
    reader = new_arrivals()
    for number, text in ((1, "ID:foreign"), (5, "ID:foreign:5"), (6, "ID:foreign:5"), (7, "other")):
        message_id = OpenWireMessageId(text, PRODUCER, number)
        assert read(reader, encoded(number, message_id=message_id)).message_id == f"ID:c1:1:1:{number}"
    assert read(reader, encoded(8)).message_id == "ID:c1:1:1:8"


def test_options_are_cut_in_the_message_too() -> None:
    reader = new_arrivals()
    for number in (1, 2):
        message = read(reader, encoded(number, destination=queue("ORDERS?a=b")))
        assert message.destination == ORDERS
        assert from_store(message.data).destination == ORDERS
        assert from_store(message.data).content == b"\x00\x00\x00\x02hi"


@pytest.mark.parametrize("destination", [None, queue(""), queue("?a=b")])
def test_missing_destination_is_reported_with_transaction(destination: object) -> None:
    transaction = LocalTransactionId("ID:c1", 3)
    with pytest.raises(MissingDestination) as error:
        read(new_arrivals(), encoded(destination=destination, transaction_id=transaction))
    assert error.value.transaction == transaction


NEAR, FAR = BrokerId("ID:near-1"), BrokerId("ID:far-1")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"redelivery_counter": 3},
        {"redelivery_counter": -1},
        {"redelivery_counter": (1 << 31) - 1},
        {"compressed": True, "arrival": 5, "broker_in_time": 6, "droppable": True},
        {"broker_path": (NEAR, FAR)},
        {"broker_path": (FAR,)},
        {"broker_path": ()},
        {"broker_path": None},
        {"user_id": "me"},
        {"cluster": (FAR,)},
        {"data_structure": ConsumerId("ID:c1", 1, 1)},
        {"target_consumer_id": ConsumerId("ID:c1", 1, 1)},
        {"group_id": "g", "group_sequence": 4},
        {"content": None, "marshalled_properties": None},
    ],
)
def test_what_has_passed_brokers_reads_alike_beside_others(fields: dict[str, Any]) -> None:
    usual = {"broker_path": (NEAR,), "redelivery_counter": 0}
    alone, warm = new_arrivals(), Arrivals(count(699).__next__)
    read(warm, encoded(0, **usual))
    for number in (1, 2):
        for details in (usual | fields, usual):
            frame = encoded(number, **details)
            expected, message = read(alone, frame), read(warm, frame)
            for name in [each.name for each in dataclasses.fields(Message)]:
                assert getattr(message, name) == getattr(expected, name), name
            alone.forget()
            alone._passed = PassedBrokers()


def test_path_that_is_cut_short_behind_the_same_path_is_malformed() -> None:
    reader, whole = new_arrivals(), encoded(broker_path=(NEAR,))
    read(reader, whole)
    for end in range(len(whole)):
        with pytest.raises(MalformedOpenWire):
            read(reader, whole[:end])


@interpreted
def test_path_above_the_limit_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_brokers, "_PATH_BYTES_MAX", 20)
    passed = PassedBrokers()
    passed.remember(BridgeFields(("ID:near-1", "ID:far-1"), 0))
    assert passed._encoded == b""
    passed.remember(BridgeFields(("ID:near-1",), 0))
    assert passed._encoded != b""


@interpreted
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_HEADS_MAX", 3)
    reader = new_arrivals()
    for number in range(20):
        assert read(reader, encoded(number, destination=queue(f"Q{number}"))).destination == queue(f"Q{number}")
        assert len(reader._heads) <= 3
    read(reader, encoded(destination=queue("x" * 5000)))
    assert all(len(raw) <= 1024 for raw in reader._heads)


def test_priorities_are_brought_into_their_range() -> None:
    for priority, wanted in ((-5, 0), (0, 0), (9, 9), (10, 9), (127, 9)):
        assert read(new_arrivals(), encoded(priority=priority)).priority == wanted


# ---------------------------------------------------------------- acknowledgements

ACK = MessageAck(
    destination=ORDERS,
    consumer_id=ConsumerId("ID:c1", 1, 1),
    ack_type=AckType.STANDARD,
    first_message_id=OpenWireMessageId(None, PRODUCER, 1, 700),
    last_message_id=OpenWireMessageId(None, PRODUCER, 2, 701),
    message_count=2,
)


def test_acknowledgements_cut_short_are_malformed() -> None:
    whole = WIRE.encode(ACK)
    for warm in (True, False):
        for end in range(len(whole)):
            reader = Acknowledgements()
            if warm:
                reader.read(whole, 0, len(whole))
            with pytest.raises(MalformedOpenWire):
                reader.read(b"before" + whole[:end] + whole[end:] + b"\x00" * 50, 6, 6 + end)


def test_acknowledgements_need_a_consumer() -> None:
    frame = WIRE.encode(MessageAck(destination=ORDERS, ack_type=2))
    with pytest.raises(MalformedOpenWire):
        Acknowledgements().read(frame, 0, len(frame))


def test_texts_of_acknowledged_ids_do_not_matter() -> None:
    reader = Acknowledgements()
    for number, text in ((5, "ID:foreign:5"), (6, "ID:foreign:5"), (7, None), (8, "x")):
        message_id = OpenWireMessageId(text, PRODUCER, number)
        frame = WIRE.encode(
            MessageAck(consumer_id=ConsumerId("ID:c1", 1, 1), first_message_id=message_id, last_message_id=message_id)
        )
        ack = reader.read(frame, 0, len(frame))
        assert ack is not None
        assert (ack.first_id, ack.last_id) == (f"ID:c1:1:1:{number}", f"ID:c1:1:1:{number}")


def test_broker_numbers_of_acknowledged_ids_do_not_matter() -> None:
    reader = Acknowledgements()
    frame = WIRE.encode(ACK)
    renumbered = frame.replace(LONG.pack(700), LONG.pack(9)).replace(LONG.pack(701), LONG.pack(5))
    assert reader.read(frame, 0, len(frame)) == reader.read(renumbered, 0, len(renumbered))


def single(number: int = 1, **details: object) -> MessageAck:
    """Return the acknowledgement that an auto-acknowledging consumer sends for each message."""
    message_id = OpenWireMessageId(None, details.pop("producer_id", PRODUCER), number, number ^ 700)  # type: ignore[arg-type]
    fields: dict[str, object] = {
        "command_id": 9,
        "destination": ORDERS,
        "consumer_id": ConsumerId("ID:c1", 1, 1),
        "ack_type": AckType.STANDARD,
        "first_message_id": message_id,
        "last_message_id": message_id,
        "message_count": 1,
    }
    return MessageAck(**(fields | details))  # type: ignore[arg-type]


def usual(reader: Acknowledgements, *acks: MessageAck) -> list[str]:
    """Read frames that stand amid others the shortest way, from the first one on."""
    frames = [WIRE.encode_frame(ack) for ack in acks]
    return reader.usual(b"before" + b"".join(frames) + b"behind", 10, 6 + len(frames[0]))


def acquainted(*acks: MessageAck) -> Acknowledgements:
    """Return a reader that has read these."""
    reader = Acknowledgements()
    for ack in acks or (single(),):
        frame = WIRE.encode(ack)
        reader.read(frame, 0, len(frame))
    return reader


def test_nothing_is_usual_before_the_first() -> None:
    assert usual(Acknowledgements(), single()) == []


def test_what_is_alike_is_read_the_shortest_way() -> None:
    reader = acquainted()
    for number in (1, 2, 300, -1, 2**63 - 1):
        assert usual(reader, single(number)) == [f"ID:c1:1:1:{number}"]
    assert reader.consumer_id == ConsumerId("ID:c1", 1, 1)


def test_messages_of_several_producers_are_distinct() -> None:
    other = ProducerId("ID:c22", 1, 7)
    reader = acquainted(single(1), single(1, producer_id=other))
    for number in range(3):
        assert usual(reader, single(number)) == [f"ID:c1:1:1:{number}"]
        assert usual(reader, single(number, producer_id=other)) == [f"ID:c22:1:7:{number}"]
    assert usual(reader, single(1, producer_id=ProducerId("ID:c3", 1, 7))) == []


def test_what_is_alike_is_read_at_once() -> None:
    other, unknown = ProducerId("ID:c2", 1, 7), ProducerId("ID:c3", 1, 7)
    reader = acquainted(single(1), single(1, producer_id=other))
    run = [single(1), single(7, producer_id=other, command_id=10), single(3, command_id=2**31 - 1), single(3)]
    ids = ["ID:c1:1:1:1", "ID:c2:1:7:7", "ID:c1:1:1:3", "ID:c1:1:1:3"]
    assert usual(reader, *run) == ids
    for different in (
        single(4, response_required=True),
        single(4, message_count=2),
        single(4, producer_id=unknown),
        single(4, producer_id=ProducerId("ID:c22", 1, 7)),
        single(4, transaction_id=LocalTransactionId("ID:c1", 1)),
        single(4, consumer_id=ConsumerId("ID:c1", 1, 2)),
    ):
        assert usual(reader, *run, different, single(5)) == ids
    whole = WIRE.encode_frame(single(1))
    for cut in range(len(whole)):
        assert reader.usual(whole * 2 + whole[:cut], 4, len(whole)) == ids[:1] * 2


@pytest.mark.parametrize(
    "details",
    [
        {"response_required": True},
        {"destination": queue("OTHERS")},
        {"destination": None},
        {"transaction_id": LocalTransactionId("ID:c1", 1)},
        {"consumer_id": ConsumerId("ID:c1", 1, 2)},
        {"ack_type": AckType.INDIVIDUAL},
        {"ack_type": AckType.DELIVERED},
        {"first_message_id": None},
        {"first_message_id": OpenWireMessageId(None, PRODUCER, 4, 704)},
        {"first_message_id": None, "last_message_id": None},
        {"message_count": 2},
        {"message_count": 0},
    ],
)
def test_other_acknowledgements_take_the_slow_path(details: dict[str, object]) -> None:
    assert usual(acquainted(), single(5, **details)) == []


def test_ack_in_a_transaction_is_not_cached() -> None:
    transacted = single(1, transaction_id=LocalTransactionId("ID:c1", 1), consumer_id=ConsumerId("ID:c1", 1, 2))
    reader = acquainted(single(), transacted)
    assert usual(reader, transacted) == []
    assert usual(reader, single(2)) == ["ID:c1:1:1:2"]


def test_fast_path_equals_slow_path_for_any_bytes() -> None:
    """Each byte of an acknowledgement in turn is another one, or the last."""
    whole = WIRE.encode(single(7))
    for at in range(len(whole)):
        changed = [whole[:at] + bytes((value,)) + whole[at + 1 :] for value in (0, 1, 2, whole[at] ^ 0x80, 0xFF)]
        for frame in (*changed, whole[:at], whole[:at] + b"\x00" * 9, whole + whole[at:]):
            data = INT.pack(len(frame)) + frame
            for message_id in acquainted().usual(data, 4, len(data)):
                ack = acquainted().read(frame, 0, len(frame))
                wanted = (ConsumerId("ID:c1", 1, 1), None, AckType.STANDARD, message_id, message_id, 1, None)
                assert ack == wanted
                assert frame[5] == 0, "no one waits for an answer"


@interpreted
def test_producers_remembered_for_acknowledgements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_HEADS_MAX", 3)
    reader = Acknowledgements()
    for number in range(20):
        frame = WIRE.encode(single(1, producer_id=ProducerId(f"ID:p{number}", 1, 1)))
        assert reader.read(frame, 0, len(frame)) is not None
        assert len(reader._prefixes) <= 3
    frame = WIRE.encode(single(1, producer_id=ProducerId("ID:" + "p" * 5000, 1, 1)))
    reader.read(frame, 0, len(frame))
    assert all(len(head) <= 1024 for head in reader._prefixes)
