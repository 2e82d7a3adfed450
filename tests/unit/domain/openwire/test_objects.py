# mypy: disable-error-code="arg-type"
"""Acknowledgements, subscriptions and the size prefix: what the golden files do not show."""

from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import AckType, MessageAck
from pybroker.broker.domain.openwire.ids import ConsumerId, OpenWireMessageId, ProducerId, broker_ids, read_broker_ids
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader, UnencodableOpenWire, string
from pybroker.broker.domain.openwire.objects import (
    decode_ack,
    decode_subscription_info,
    encode_ack,
    encode_subscription_info,
    with_size_prefix,
    without_size_prefix,
)
from pybroker.broker.domain.openwire.throwables import CAUSES_MAX, Throwable
from pybroker.broker.domain.subscription import DurableSubscription
from tests.openwire_ids import read_id

SUBSCRIPTION = DurableSubscription(
    client_id="client", name="name", destination=topic("A.B"), subscribed_destination=topic("A.>"), selector="a = 'é'"
)
ACK = MessageAck(
    ack_type=AckType.STANDARD,
    destination=queue("Q"),
    consumer_id=ConsumerId("ID:h:1", 1, 2),
    first_message_id=OpenWireMessageId(None, ProducerId("ID:h:1", 1, 1), 1),
    last_message_id=OpenWireMessageId(None, ProducerId("ID:h:1", 1, 1), 2),
    message_count=2,
)
WITHOUT_CAUSE = encode_ack(MessageAck())[:-1]
"""The cause comes last."""


def causes(count: int) -> Throwable:
    value = Throwable(class_name="x.Root", message="root")
    for number in range(count):
        value = Throwable(class_name="x.Y", message=str(number), cause=value)
    return value


def test_old_subscription_names_its_destination_once() -> None:
    encoded = encode_subscription_info(SUBSCRIPTION)
    wildcard = b"\x01\x65" + string("A.>")
    assert encoded.endswith(wildcard + b"\x00")

    subscription = decode_subscription_info(encoded[: -len(wildcard) - 1] + b"\x00\x00")

    assert subscription.subscribed_destination == topic("A.B")


@pytest.mark.parametrize(
    ("decode", "encoded"),
    [(decode_subscription_info, encode_subscription_info(SUBSCRIPTION)), (decode_ack, encode_ack(ACK))],
)
def test_objects_are_exact(decode: Any, encoded: bytes) -> None:
    with pytest.raises(MalformedOpenWire, match="1 bytes too many"):
        decode(encoded + b"\x00")
    with pytest.raises(MalformedOpenWire, match="data type 23 where"):
        decode(b"\x17" + encoded[1:])
    for length in range(len(encoded)):
        with pytest.raises(MalformedOpenWire):
            decode(encoded[:length])


@pytest.mark.parametrize("change", [{"ack_type": 128}, {"message_count": 2**31}, {"command_id": -(2**31) - 1}])
def test_an_acks_numbers_are_checked(change: dict[str, int]) -> None:
    with pytest.raises(UnencodableOpenWire, match="out of its range"):
        encode_ack(MessageAck(**({"ack_type": 2} | change)))


def test_causes_have_a_limit_both_ways() -> None:
    most = MessageAck(poison_cause=causes(CAUSES_MAX - 2))
    encoded = encode_ack(most)

    assert decode_ack(encoded) == most
    with pytest.raises(UnencodableOpenWire, match="causes"):
        encode_ack(MessageAck(poison_cause=causes(CAUSES_MAX - 1)))
    one_around = b"\x01\x00\x00\x00\x00"
    cause = len(WITHOUT_CAUSE)
    with pytest.raises(MalformedOpenWire, match="causes"):
        decode_ack(encoded[:cause] + one_around + encoded[cause:])


def test_a_stack_has_no_negative_length() -> None:
    with pytest.raises(MalformedOpenWire, match="-1 frames"):
        decode_ack(WITHOUT_CAUSE + b"\x01\x00\x00\xff\xff")


def test_a_path_has_a_limit_and_no_gaps() -> None:
    path = ("a", "é")

    assert read_broker_ids(Reader(broker_ids(path))) == path
    assert read_broker_ids(Reader(broker_ids(()))) == ()
    for damaged in (b"\x01\x04\x01", b"\x01\xff\xff", b"\x01\x00\x01\x00", b"\x01\x00\x01\x01\x7c\x00"):
        with pytest.raises(MalformedOpenWire, match="path"):
            read_broker_ids(Reader(damaged))


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x7c\x01\x00\x01b", id="broker-id"),
        pytest.param(b"\x64\x00", id="queue-without-name"),
        pytest.param(b"\x6f" + bytes(8) + b"\x01\x78\x00", id="transaction-without-connection"),
    ],
)
def test_other_ids_are_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        read_id(encoded)


def test_size_prefix() -> None:
    assert with_size_prefix(b"abc") == b"\x00\x00\x00\x03abc"
    assert without_size_prefix(b"\x00\x00\x00\x03abc") == b"abc"


@pytest.mark.parametrize(
    "stored", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x02abc", b"\x00\x00\x00\x04abc", b"\xff\xff\xff\xff"]
)
def test_a_wrong_size_prefix_is_refused(stored: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        without_size_prefix(stored)
