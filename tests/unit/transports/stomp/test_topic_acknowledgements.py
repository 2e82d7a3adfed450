"""Acknowledgements of a topic, on a whole broker: the core counts, the connection answers by id."""

import pytest

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.counting_consumer import CountingConsumer
from pybroker.broker.core.object_memory import GUARANTEED_BYTES, PART_MIN
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.transports.stomp.counted_deliveries import BYTES_MAX, window_max
from tests.unit.core.conftest import Throttle, make_message
from tests.unit.transports.stomp.test_refused_acks import Peer

COUNT = 6


def subscribed(version: str, mode: str, prefetch: int = 4) -> tuple[Peer, list[str]]:
    """Return a client of a topic, and the headers that name its first deliveries."""
    peer = Peer(version)
    subscribe = f"SUBSCRIBE\nid:1\ndestination:/topic/T\nack:{mode}\nactivemq.prefetchSize:{prefetch}\n\n"
    assert peer.send(subscribe) == []
    return peer, names(publish(peer, COUNT))


def publish(peer: Peer, count: int) -> list[str]:
    """Publish messages, and return the frames that the client gets."""
    before = len(peer.link.output)
    producer = peer.broker.connect(f"p{before}", f"p{before}", Throttle())
    for number in range(count):
        producer.send(make_message(str(number), "topic://T", persistent=False))
    return peer.frames(before)


def names(frames: list[str]) -> list[str]:
    """Return the headers of acknowledgements of these MESSAGE frames."""
    found = []
    for frame in frames:
        headers = dict(line.split(":", 1) for line in frame.split("\n\n", 1)[0].split("\n")[1:])
        ack = headers.get("ack")
        found.append(f"id:{ack}" if ack else f"subscription:1\nmessage-id:{headers['message-id']}")
    return found


def consumers(broker: BrokerCore) -> list[CountingConsumer]:
    each_of = (each for connection in broker._clients.values() for each in connection.consumers)
    return [each for each in each_of if isinstance(each, CountingConsumer)]


def in_flight(broker: BrokerCore) -> int:
    (consumer,) = consumers(broker)
    return consumer.in_flight


both = pytest.mark.parametrize("version", ["1.1", "1.2"])


@both
@pytest.mark.parametrize(("mode", "more"), [("client", 2), ("client-individual", 1)])
def test_window_opens_by_what_is_acknowledged(version: str, mode: str, more: int) -> None:
    peer, ids = subscribed(version, mode)
    assert len(ids) == 4
    answers = peer.send(f"ACK\n{ids[1]}\nreceipt:r\n\n")
    assert [each.split("\n", 1)[0] for each in answers] == ["RECEIPT"] + ["MESSAGE"] * more
    assert peer.send(f"ACK\n{ids[1]}\nreceipt:r\n\n")[0].startswith("ERROR\nmessage:Unexpected ACK")
    assert in_flight(peer.broker) == 4


@both
def test_rejected_message_makes_space_and_is_no_dead_letter(version: str) -> None:
    peer, ids = subscribed(version, "client")
    assert len(peer.send(f"NACK\n{ids[2]}\n\n")) == 1
    assert len(peer.send(f"ACK\n{ids[3]}\n\n")) == 1, "the last message; three were acknowledged"
    assert in_flight(peer.broker) == 2


@both
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_aborted_acknowledgements_can_be_repeated(version: str, mode: str) -> None:
    peer, ids = subscribed(version, mode)
    peer.send("BEGIN\ntransaction:t\n\n")
    for each in ids[:2]:
        peer.send(f"ACK\n{each}\ntransaction:t\n\n")
    assert in_flight(peer.broker) == 4
    repeated = peer.send(f"ACK\n{ids[0]}\ntransaction:t\nreceipt:r\n\n")[0]
    assert repeated.startswith("RECEIPT" if (version, mode) == ("1.1", "client") else "ERROR")
    peer.send("ABORT\ntransaction:t\n\n")
    assert in_flight(peer.broker) == COUNT
    for each in ids[1:] if mode == "client" else ids:
        assert peer.send(f"ACK\n{each}\nreceipt:r\n\n") == ["RECEIPT\nreceipt-id:r\n\n"]
    assert in_flight(peer.broker) == COUNT - 4


@both
def test_window_that_the_connection_tracks_is_bounded_and_counted(version: str) -> None:
    """Whatever the client and the policy say; one such subscription is allowed to every connection."""
    policies = PolicyMap(default=DestinationPolicy(topic_prefetch=1_000_000))
    peer = Peer(version, Limits(memory_bytes_max=4 * PART_MIN), policies)
    before = peer.broker.objects.held
    peer.send("SUBSCRIBE\nid:auto\ndestination:/topic/T\n\n")
    assert peer.broker.objects.held - before < 10_000
    for prefetch in ("", "activemq.prefetchSize:2147483647\n"):
        before = peer.broker.objects.held
        peer.send(f"SUBSCRIBE\nid:1\ndestination:/topic/T\nack:client\n{prefetch}\n")
        assert BYTES_MAX <= peer.broker.objects.held - before < BYTES_MAX + 10_000
        tracking = [each for each in consumers(peer.broker) if each.request.window_max is not None]
        assert [each.prefetch for each in tracking] == [window_max(by_message_id=version == "1.1")]
        peer.send("UNSUBSCRIBE\nid:1\n\n")
        assert peer.broker.objects.held == before


def test_many_clients_have_a_tracked_subscription_each() -> None:
    peer = Peer("1.1", Limits(memory_bytes_max=4 * PART_MIN))
    peer.broker.objects.shared = peer.broker.objects.shared_max  # others have used up what is shared
    peers = [Peer("1.1", broker=peer.broker, connection_id=f"x{number}") for number in range(100)]
    for each in peers:
        assert each.send("SUBSCRIBE\nid:1\ndestination:/topic/T\nack:client\nreceipt:r\n\n")[0].startswith("RECEIPT")


def test_further_tracked_windows_of_a_connection_are_refused_beyond_its_share() -> None:
    peer = Peer("1.2", Limits(memory_bytes_max=4 * PART_MIN))
    refused = 0
    for number in range(300):
        answers = peer.send(f"SUBSCRIBE\nid:{number}\ndestination:/topic/T\nack:client\nreceipt:r\n\n")
        refused += answers[0].startswith("ERROR\nmessage:The consumer cannot be created")
    assert refused > 150
    assert peer.broker.objects.held < PART_MIN + GUARANTEED_BYTES
    answers = peer.send("SUBSCRIBE\nid:q\ndestination:/topic/T\nack:client\nactivemq.prefetchSize:1\nreceipt:r\n\n")
    assert answers[0].startswith("RECEIPT")


@both
def test_abort_of_many_windows_leaves_one_and_delivery_goes_on(version: str) -> None:
    peer, ids = subscribed(version, "client", prefetch=100_000)
    window = window_max(by_message_id=version == "1.1")
    peer.send("BEGIN\ntransaction:t\n\n")
    for _ in range(3):
        ids = names(publish(peer, window))[-1:]
        assert peer.send(f"ACK\n{ids[0]}\ntransaction:t\nreceipt:r\n\n")[0].startswith("RECEIPT")
    peer.send("ABORT\ntransaction:t\n\n")
    assert in_flight(peer.broker) == window
    assert publish(peer, 1) == []
    answers = peer.send(f"ACK\n{ids[0]}\nreceipt:r\n\n")
    assert [each.split("\n", 1)[0] for each in answers] == ["RECEIPT", "MESSAGE"]
    assert in_flight(peer.broker) == COUNT + 1
