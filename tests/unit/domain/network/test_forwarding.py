"""What ActiveMQ's bridge sent is what forwarding makes of the messages as they were before."""

from dataclasses import replace
from typing import Final

import pytest

from pybroker.broker.domain.network.forwarding import ForwardingEncoder, broker_path_of
from pybroker.broker.domain.openwire.message import OpenWireMessage, decode, encode
from pybroker.broker.domain.openwire.routing import routing
from tests.unit.domain.network.recorded import conversations


def recorded() -> list[bytes]:
    """Return the messages that bridges sent, from the data type on."""
    found: list[bytes] = []
    for name, conversation in conversations().items():
        if name == "oneway_default":  # tight and with caching, unlike the store
            continue
        for frame in conversation["frames"]:
            if frame["from"] == "initiator" and "Message" in frame["command"]["_type"]:
                found += [bytes.fromhex(frame["hex"])[4:]] if "messageId" in frame["command"] else []
    return found


MESSAGES: Final = recorded()


def before(fields: OpenWireMessage) -> OpenWireMessage:
    """Return a message as it was stored at the broker that has forwarded it."""
    assert fields.broker_path
    return replace(
        fields,
        command_id=5,
        response_required=False,
        producer_id=fields.message_id and fields.message_id.producer_id,
        transaction_id=fields.original_transaction_id,
        original_transaction_id=None,
        broker_path=fields.broker_path[:-1] or None,
        redelivery_counter=0,
    )


def test_recordings_have_messages_of_a_bridge() -> None:
    assert len(MESSAGES) > 20
    assert any(decode(each).original_transaction_id for each in MESSAGES)
    assert any(decode(each).original_destination for each in MESSAGES)
    assert any(decode(each).redelivery_counter for each in MESSAGES)


@pytest.mark.parametrize("frame", MESSAGES, ids=range(len(MESSAGES)))
def test_forwarded_message_is_byte_for_byte_that_of_activemq(frame: bytes) -> None:
    fields = decode(frame)
    assert fields.broker_path is not None
    assert fields.producer_id is not None
    message = routing(encode(before(fields)))
    assert broker_path_of(message.data) == fields.broker_path[:-1]
    encoded = ForwardingEncoder(fields.producer_id, fields.broker_path[-1]).encode(
        message,
        redelivery_count=fields.redelivery_counter,
        command_id=fields.command_id,
        response_required=fields.response_required,
    )
    assert encoded == frame
    assert broker_path_of(encoded) == fields.broker_path
