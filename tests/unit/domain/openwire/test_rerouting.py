"""Copies for other destinations are what decoding, changing and encoding a message would make of it."""

from dataclasses import replace

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode, to_message
from pybroker.broker.domain.openwire.portions import PORTION_BYTES
from pybroker.broker.domain.openwire.rerouting import Rerouting
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId

PRODUCER = ProducerId("ID:h-1", 1, 2)
PLAIN = OpenWireMessage(
    type=MessageType.TEXT,
    producer_id=PRODUCER,
    destination=queue("A,topic://B"),
    message_id=OpenWireMessageId(None, PRODUCER, 7),
    persistent=True,
    content=b"body",
)
RICH = replace(
    PLAIN,
    type=MessageType.BLOB,
    command_id=9,
    response_required=True,
    group_id="g",
    group_sequence=3,
    correlation_id="c",
    expiration=99,
    priority=8,
    reply_to=queue("R"),
    jms_type="t",
    marshalled_properties=encode_map({"k": 1}),
    compressed=True,
    user_id="u",
    broker_path=("b",),
    remote_blob_url="http://x",
)
MESSAGES = {
    "plain": PLAIN,
    "rich": RICH,
    "in a transaction": replace(PLAIN, transaction_id=LocalTransactionId("ID:h-1", 5)),
    "in an XA transaction": replace(RICH, transaction_id=XATransactionId(1, b"g", b"b")),
    "rerouted before": replace(PLAIN, original_destination=topic("O"), original_transaction_id=None),
    "without producer": replace(PLAIN, producer_id=None),
    "of a producer without connection": replace(PLAIN, producer_id=ProducerId(None, 1, 2)),
}
TARGETS = [queue("B"), topic("Ünï\U0001f600"), Destination(DestinationType.TEMP_QUEUE, "ID:1")]


@pytest.mark.parametrize("fields", MESSAGES.values(), ids=MESSAGES.keys())
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_copy_differs_in_its_destinations_only(fields: OpenWireMessage, target: Destination) -> None:
    message = to_message(fields)
    rerouting = Rerouting(message)
    copy = rerouting.copy(target, fields.destination)
    expected = replace(fields, destination=target, original_destination=fields.destination)
    assert copy.data == encode(expected)
    assert copy.destination == target
    assert decode(message.data) == fields, "the message is as it was"
    for name in ("message_id", "persistent", "priority", "expiration", "connection_id", "payload_size"):
        assert getattr(copy, name) == getattr(message, name) == getattr(routing(copy.data), name)


@pytest.mark.parametrize("fields", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_copy_may_keep_the_origin_of_the_message(fields: OpenWireMessage) -> None:
    copy = Rerouting(to_message(fields)).copy(queue("B"))
    assert copy.data == encode(replace(fields, destination=queue("B")))


def test_copies_are_made_from_bytes_however_often() -> None:
    rerouting = Rerouting(routing(encode(RICH)))
    assert [decode(rerouting.copy(queue(name)).data).destination for name in "XYX"] == [queue(name) for name in "XYX"]


def test_names_have_their_limit() -> None:
    with pytest.raises(UnencodableOpenWire):
        Rerouting(to_message(PLAIN)).copy(queue("n" * 65536))


def test_a_message_that_ends_too_soon_is_malformed() -> None:
    message = to_message(PLAIN)
    whole = message.data
    head = len(whole) - len(encode(PLAIN).partition(b"\x01\x6e")[2]) - 2
    for length in range(head):
        message.data = whole[:length]
        with pytest.raises(MalformedOpenWire):
            Rerouting(message)


@pytest.mark.parametrize("size", [0, 100, PORTION_BYTES, 3 * PORTION_BYTES + 1])
def test_copy_in_steps_is_the_same_copy(size: int) -> None:
    message = to_message(replace(RICH, content=bytes(range(256)) * (size // 256) + b"x" * (size % 256)))
    steps = Rerouting(message).copying(queue("B"), queue("A"))
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            copy = end.value
            break
        count += 1
    assert copy.data == Rerouting(message).copy(queue("B"), queue("A")).data
    assert count == -(-len(copy.data) // PORTION_BYTES), "no step copies more than a portion"
