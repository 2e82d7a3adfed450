"""Decoded fields are kept for the messages that were decoded last, within a limit."""

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire import decoded_cache
from pybroker.broker.domain.openwire.decoded_cache import CACHE_BYTES_MAX, ENTRY_BYTES_MAX, used_bytes
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.values import encode_map

PRODUCER = ProducerId("ID:h-1-2-0:1", 1, 1)


def message(content: bytes = b"x", properties: int = 100) -> Message:
    """Return a message as it comes back from a store."""
    marshalled = encode_map({f"name{number}": number for number in range(properties)})
    sent = to_message(
        OpenWireMessage(
            type=MessageType.BYTES,
            message_id=OpenWireMessageId(None, PRODUCER, 1),
            producer_id=PRODUCER,
            destination=queue("Q"),
            content=content,
            marshalled_properties=marshalled,
        )
    )
    return routing(sent.data)


def test_the_last_messages_keep_their_fields() -> None:
    made = [message() for _ in range(2 * CACHE_BYTES_MAX // (1000 * decoded_cache.PROPERTY_FACTOR))]
    for each in made:
        assert view(each).properties["name7"] == 7
    kept = [each.decoded is not None for each in made]
    assert not kept[0]
    assert kept[-1]
    assert kept == sorted(kept), "the oldest ones were dropped"
    assert used_bytes() <= CACHE_BYTES_MAX
    assert view(made[-1]) is view(made[-1])
    assert view(made[0]).properties["name7"] == 7, "decoded again"


def test_large_messages_keep_nothing() -> None:
    for large in (message(b"x" * ENTRY_BYTES_MAX), message(properties=4000)):
        before = used_bytes()
        assert view(large).properties["name7"] == 7
        assert large.decoded is None
        assert used_bytes() == before
