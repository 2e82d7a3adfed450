"""A forwarded message has the fields that a bridge changes, and all others as they were stored."""

from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.network.forwarding import ForwardingEncoder, broker_path_of
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode
from pybroker.broker.domain.openwire.routing import routing
from tests.property.test_openwire import blobs, destinations, ints, message_ids, messages, names, producer_ids

stored = st.builds(
    replace,
    messages | blobs,
    destination=destinations,
    message_id=message_ids,
)


def expected(
    fields: OpenWireMessage, *, producer_id: ProducerId, broker_id: str, count: int, command_id: int, answered: bool
) -> OpenWireMessage:
    """Return the message that a bridge sends for a stored one."""
    return replace(
        fields,
        command_id=command_id,
        response_required=answered,
        producer_id=producer_id,
        transaction_id=None,
        original_transaction_id=fields.original_transaction_id or fields.transaction_id,
        broker_path=(*(fields.broker_path or ()), broker_id),
        redelivery_counter=count,
        target_consumer_id=None,
    )


@given(stored, producer_ids, names, ints, ints, st.booleans())
def test_forwarded_message_has_the_fields_of_a_bridge(
    fields: OpenWireMessage, producer_id: ProducerId, broker_id: str, count: int, command_id: int, answered: bool
) -> None:
    frame = ForwardingEncoder(producer_id, broker_id).encode(
        routing(encode(fields)),
        redelivery_count=count,
        command_id=command_id,
        response_required=answered,
    )
    assert decode(frame) == expected(
        fields, producer_id=producer_id, broker_id=broker_id, count=count, command_id=command_id, answered=answered
    )


@given(st.lists(stored, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
def test_forwarding_is_alike_for_messages_that_repeat(kinds: list[OpenWireMessage], order: list[int]) -> None:
    """Heads of former messages are reused: each message is the same as if it were the only one."""
    producer = ProducerId("a->b-1", 1, 1)
    encoder = ForwardingEncoder(producer, "ID:a")
    for number, kind in enumerate(order):
        fields = kinds[kind % len(kinds)]
        assert fields.message_id is not None
        fields = replace(fields, message_id=fields.message_id._replace(producer_sequence_id=number))
        message = routing(encode(fields))
        frame = encoder.encode(
            message,
            redelivery_count=0,
            command_id=number,
            response_required=True,
        )
        assert decode(frame) == expected(
            fields, producer_id=producer, broker_id="ID:a", count=0, command_id=number, answered=True
        )


@given(stored, destinations)
def test_forwarded_message_has_the_destination_dispatched(fields: OpenWireMessage, destination: Destination) -> None:
    message = routing(encode(fields))
    encoder = ForwardingEncoder(ProducerId("c", 1, 1), "ID:a")
    for each in (message, replace(message, destination=destination), message):
        frame = encoder.encode(
            each,
            redelivery_count=0,
            command_id=1,
            response_required=True,
        )
        assert decode(frame).destination == each.destination


@given(stored)
def test_path_is_found_in_stored_bytes(fields: OpenWireMessage) -> None:
    assert broker_path_of(encode(fields)) == (fields.broker_path or ())


@given(stored)
def test_path_of_a_large_message_is_found(fields: OpenWireMessage) -> None:
    assert broker_path_of(encode(replace(fields, content=bytes(9000)))) == (fields.broker_path or ())


@given(stored, st.data())
def test_truncated_message_raises_only_documented_errors(fields: OpenWireMessage, data: st.DataObject) -> None:
    whole = encode(fields)
    message = routing(whole)
    cut = replace(message, data=whole[: data.draw(st.integers(0, len(whole) - 1))])
    with suppress(MalformedOpenWire):
        broker_path_of(cut.data)
    with suppress(MalformedOpenWire):
        ForwardingEncoder(ProducerId("c", 1, 1), "ID:a").encode(
            cut,
            redelivery_count=0,
            command_id=1,
            response_required=True,
        )


def test_large_content_is_forwarded_as_it_is() -> None:
    producer = ProducerId("ID:p-1", 1, 1)
    fields = OpenWireMessage(
        type=MessageType.BYTES,
        producer_id=producer,
        destination=Destination(DestinationType.QUEUE, "Q"),
        message_id=OpenWireMessageId(None, producer, 1),
        content=bytes(range(256)) * 512,
    )
    frame = ForwardingEncoder(ProducerId("c", 1, 1), "ID:a").encode(
        routing(encode(fields)),
        redelivery_count=3,
        command_id=7,
        response_required=False,
    )
    assert decode(frame) == expected(
        fields, producer_id=ProducerId("c", 1, 1), broker_id="ID:a", count=3, command_id=7, answered=False
    )
