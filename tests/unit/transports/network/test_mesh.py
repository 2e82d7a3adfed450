"""Networks of more than two brokers: hops, rings, and two ways to one consumer (network.md 5.4, 7, 12)."""

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import MessageDispatch
from tests.unit.transports.network.mesh import Mesh
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

Q, T = queue("Q"), topic("T")

HUB = ("ah", "ha", "bh", "hb")
"""The broker h is the hub of a and b."""

RING = ("ab", "ba", "bc", "cb", "ca", "ac")


def received(client: OpenWireClient, consumer: int = 1) -> list[MessageDispatch]:
    """Return what a client has got, and acknowledge it."""
    dispatches = of_kind(client.receive(), MessageDispatch)
    for each in dispatches:
        client.ack([each], consumer_id=client.consumer(consumer))
    return dispatches


def path(mesh: Mesh, dispatch: MessageDispatch) -> list[str]:
    """Return the names of the brokers that a message has passed."""
    assert dispatch.message is not None
    names = {near.broker.id: name for name, near in mesh.brokers.items()}
    return [names[each.value or ""] for each in dispatch.message.broker_path or () if each]


def test_one_hop_ends_at_the_hub() -> None:
    mesh = Mesh(*HUB)
    reader, producer = mesh.client("b"), mesh.client("a")
    reader.consume(Q)
    mesh.pump()
    producer.send(Q, "1")
    mesh.pump()
    assert received(reader) == []
    assert texts(mesh.client("a").consume(Q)) == ["1"], "it has not left its broker"


def test_two_hops_reach_the_other_spoke() -> None:
    mesh = Mesh(*HUB, consumer_ttl=2, message_ttl=2)
    reader, producer = mesh.client("b"), mesh.client("a")
    reader.consume(Q)
    mesh.pump()
    producer.send(Q, "1", "2")
    mesh.pump()
    dispatches = received(reader)
    assert texts(dispatches) == ["1", "2"]
    assert path(mesh, dispatches[0]) == ["a", "h"]


def test_demand_from_further_away_has_its_own_share() -> None:
    mesh = Mesh(*HUB, consumer_ttl=2, message_ttl=2)
    readers = {name: mesh.client(name) for name in "abh"}
    for reader in readers.values():
        reader.consume(Q)
        mesh.pump()
    producer = mesh.client("h")
    for number in range(30):
        producer.send(Q, str(number))
        mesh.pump()
    counts = {name: len(received(reader)) for name, reader in readers.items()}
    mesh.pump()
    assert counts == {"a": 10, "b": 10, "h": 10}


def test_ring_delivers_a_topic_once() -> None:
    mesh = Mesh(*RING, consumer_ttl=2, message_ttl=2)
    readers = {name: mesh.client(name) for name in "abc"}
    for reader in readers.values():
        reader.consume(T)
        mesh.pump()
    mesh.client("a").send(T, "1", "2", "3")
    mesh.pump()
    for reader in readers.values():
        assert texts(received(reader)) == ["1", "2", "3"]


def test_ring_delivers_each_message_of_a_queue_once() -> None:
    mesh = Mesh(*RING, consumer_ttl=2, message_ttl=2)
    reader = mesh.client("c")
    reader.consume(Q)
    mesh.pump()
    assert mesh.demand("a") == 2, "the direct way, and that over b"
    producer = mesh.client("a")
    found: list[str | None] = []
    for number in range(12):
        producer.send(Q, str(number))
        mesh.pump()
        found += texts(received(reader))
    assert found == [str(number) for number in range(12)]


def test_suppressed_way_is_used_when_the_direct_one_is_cut() -> None:
    mesh = Mesh(*RING, consumer_ttl=2, message_ttl=2, suppress_duplicate_queue_subscriptions=True)
    reader = mesh.client("c")
    reader.consume(Q)
    mesh.pump()
    assert (mesh.demand("a"), mesh.demand("b")) == (1, 1)
    producer = mesh.client("a")
    producer.send(Q, "1")
    mesh.pump()
    (first,) = received(reader)
    assert path(mesh, first) == ["a"]
    mesh.cut("ac")
    producer.send(Q, "2")
    mesh.pump()
    (second,) = received(reader)
    assert path(mesh, second) == ["a", "b"]


def test_message_stays_where_it_was_forwarded() -> None:
    """Its consumer has left, and another one is where it came from: it does not go back to a broker it has passed."""
    mesh = Mesh("ab", "ba")
    reader = mesh.client("b")
    reader.consume(Q)
    mesh.pump()
    mesh.client("a").send(Q, "1")
    mesh.pump()
    reader.remove(reader.consumer())
    mesh.pump()
    other = mesh.client("a")
    assert other.consume(Q) == []
    mesh.pump()
    assert received(other) == []
    assert texts(mesh.client("b").consume(Q)) == ["1"]
