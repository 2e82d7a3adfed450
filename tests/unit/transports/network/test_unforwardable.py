"""A message that cannot be encoded for the remote broker, and everything else on the way."""

from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.network.forwarding import ForwardingEncoder
from pybroker.broker.domain.openwire.commands import MessageDispatch
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.values import decode_map
from pybroker.transports.network.bridge import BridgeEnd
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

Q, T, DLQ = queue("Q"), topic("T"), queue("ActiveMQ.DLQ")
FAILURES = topic("ActiveMQ.Advisory.NetworkBridge.ForwardFailure")
_PROPERTIES_MAX = 1000

pytestmark = [
    interpreted,
    pytest.mark.parametrize("error", [UnencodableOpenWire("too many brokers"), ValueError("a mistake")]),
]


@pytest.fixture(autouse=True)
def _encoder(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Make each message with the text `bad` one that cannot be encoded."""
    encode: Any = ForwardingEncoder.encode

    def failing(self: ForwardingEncoder, message: Any, **details: Any) -> bytes:
        if message.data.find(b"bad") >= 0:
            raise error
        return bytes(encode(self, message, **details))

    monkeypatch.setattr(ForwardingEncoder, "encode", failing)


def got(client: OpenWireClient) -> list[str | None]:
    """Return the texts that a client has got, and acknowledge them."""
    dispatches = of_kind(client.receive(), MessageDispatch)
    for each in dispatches:
        client.ack([each])
    return texts(dispatches)


def property_of(dispatch: MessageDispatch, name: str) -> str:
    assert dispatch.message is not None
    return str(decode_map(dispatch.message.marshalled_properties or b"", _PROPERTIES_MAX)[name])


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("always_sync_send", [True, False])
def test_message_that_cannot_be_sent_becomes_a_dead_letter(persistent: bool, always_sync_send: bool) -> None:
    brokers = TwoBrokers(advisory_for_failed_forward=True, always_sync_send=always_sync_send, prefetch_size=1)
    watcher, producer = brokers.client(brokers.near.broker, "w"), brokers.client(brokers.near.broker, "p")
    watcher.consume(FAILURES)
    reader = brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1", "bad", "2", persistent=persistent)
    brokers.pump()
    assert got(reader) == ["1", "2"], "a window of one message is free again"
    found = brokers.near.broker.queues[Q]
    assert (len(found.pending), len(found.in_flight())) == (0, 0)
    dead = brokers.client(brokers.near.broker, "d").consume(DLQ)
    assert texts(dead) == ["bad"] * persistent, "messages that are not persistent have no dead letters by default"
    assert all("far: it cannot be sent: " in property_of(each, "dlqDeliveryFailureCause") for each in dead)
    (advisory,) = of_kind(watcher.receive(), MessageDispatch)
    assert property_of(advisory, "cause").startswith("it cannot be sent: ")
    assert (brokers.session.end, brokers.session.forwarded_count) == (None, 2)


def test_each_copy_of_a_topic_message_is_given_up() -> None:
    """None of them counts as forwarded, because another one would have been."""
    brokers = TwoBrokers(prefetch_size=1)
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(topic("T.>"), 1)
    reader.consume(topic("T.1"), 2, subscription_name="durable")
    brokers.pump()
    producer.send(topic("T.1"), "bad", "1")
    brokers.pump()
    assert got(reader) == ["1", "1"]
    assert texts(brokers.client(brokers.near.broker, "d").consume(DLQ)) == ["bad"], "that of the durable subscription"
    assert brokers.session.end is None


def test_advisory_that_cannot_be_sent_ends_a_duplex_bridge() -> None:
    """The remote broker's demand table would stay wrong; the next bridge begins with a new one."""
    brokers = TwoBrokers(duplex=True)
    assert brokers.session.is_connected
    brokers.client(brokers.near.broker, "bad").consume(Q)
    brokers.pump()
    (ended,) = brokers.near.ended
    assert ended.end is BridgeEnd.LOST
    assert ended.reason.startswith("an advisory cannot be sent: ")
