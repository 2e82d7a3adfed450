"""Messages go back over a bridge when their queue has no consumer any more (network.md 12, acceptance check 9)."""

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.properties import connector_of, described
from pybroker.broker.domain.openwire.commands import MessageDispatch
from tests.unit.transports.network.mesh import Mesh
from tests.unit.transports.openwire.conversation import of_kind, texts

Q, T = queue("Q"), topic("T")
TEXTS = [str(number) for number in range(20)]


def stranded(**attributes: object) -> Mesh:
    """Return two brokers with two bridges: messages of a are stuck at b, and a consumer is at a."""
    mesh = Mesh("ab", "ba", **attributes)
    reader = mesh.client("b")
    reader.consume(Q, prefetch_size=1)
    mesh.pump()
    mesh.client("a").send(Q, *TEXTS)
    mesh.pump()
    reader.remove(reader.consumer())
    mesh.pump()
    return mesh


def paths(mesh: Mesh, dispatches: list[MessageDispatch]) -> set[tuple[str, ...]]:
    names = {near.broker.id: name for name, near in mesh.brokers.items()}
    messages = [each.message for each in dispatches if each.message is not None]
    return {tuple(names[broker.value or ""] for broker in each.broker_path or () if broker) for each in messages}


def test_messages_stay_without_replay() -> None:
    mesh = stranded()
    reader = mesh.client("a")
    reader.consume(Q, prefetch_size=100)
    mesh.pump()
    assert of_kind(reader.receive(), MessageDispatch) == []
    assert texts(mesh.client("b").consume(Q, prefetch_size=100)) == TEXTS


@pytest.mark.parametrize("ttl", [1, 2])
def test_messages_go_back_with_replay_in_order_and_once(ttl: int) -> None:
    mesh = stranded(replay_when_no_consumers=True, replay_delay=0, message_ttl=ttl)
    reader = mesh.client("a")
    reader.consume(Q, prefetch_size=100)
    mesh.pump()
    dispatches = of_kind(reader.receive(), MessageDispatch)
    assert (texts(dispatches), paths(mesh, dispatches)) == (TEXTS, {("a", "b")})
    reader.ack(dispatches)
    mesh.pump()
    assert texts(mesh.client("b").consume(Q, prefetch_size=100)) == []


def test_consumer_at_a_keeps_what_came_back() -> None:
    mesh = stranded(replay_when_no_consumers=True, replay_delay=0)
    reader = mesh.client("a")
    reader.consume(Q, prefetch_size=1)
    mesh.pump()
    other = mesh.client("b")
    other.consume(Q, prefetch_size=100)
    mesh.pump()
    assert of_kind(other.receive(), MessageDispatch) == []


def test_messages_follow_their_consumers_again_and_again() -> None:
    mesh = stranded(replay_when_no_consumers=True, replay_delay=0)
    for name in "abab":
        reader = mesh.client(name)
        reader.consume(Q, prefetch_size=100)
        mesh.pump()
        assert texts(of_kind(reader.receive(), MessageDispatch)) == TEXTS
        reader.remove(reader.consumer())
        mesh.pump()


def test_message_whose_answer_was_lost_is_not_lost_by_its_way_back() -> None:
    replay = {"replay_when_no_consumers": True, "replay_delay": 0}
    mesh = Mesh("ab", "ba", **replay)
    reader = mesh.client("b")
    reader.consume(Q, prefetch_size=1)
    mesh.pump()
    mesh.client("a").send(Q, "1", persistent=True)
    mesh.cut_before_answers("ab")  # so both brokers have it
    reader.remove(reader.consumer())
    reader = mesh.client("a")
    reader.consume(Q, prefetch_size=1)
    mesh.pump()  # it goes back to a, which has it already
    reader.remove(reader.consumer())
    reader = mesh.client("b")
    reader.consume(Q, prefetch_size=1)
    mesh.open("ab", **replay)
    assert texts(of_kind(reader.receive(), MessageDispatch)) == ["1"]
    assert not mesh.brokers["a"].broker.queues[Q].in_flight()


def test_excluded_destination_does_not_go_back() -> None:
    mesh = stranded(replay_when_no_consumers=True, replay_delay=0)
    mesh.cut("ba")
    mesh.open("ba", replay_when_no_consumers=True, replay_delay=0, excluded=(Q,))
    reader = mesh.client("a")
    reader.consume(Q, prefetch_size=100)
    mesh.pump()
    assert of_kind(reader.receive(), MessageDispatch) == []


def test_topic_message_does_not_go_back() -> None:
    mesh = Mesh("ab", "ba", replay_when_no_consumers=True, replay_delay=0, message_ttl=2)
    readers = [mesh.client("a"), mesh.client("b")]
    for reader in readers:
        reader.consume(T)
    mesh.pump()
    mesh.client("a").send(T, "1")
    mesh.pump()
    for reader in readers:
        assert texts(of_kind(reader.receive(), MessageDispatch)) == ["1"]


def test_duplex_bridge_has_the_setting_of_its_connector_at_both_ends() -> None:
    connector = NetworkConnector(replay_when_no_consumers=True, replay_delay=7)
    other = connector_of(described(connector, "b"))
    assert other.bridge_filter == ConditionalBridgeFilter(replay_when_no_consumers=True, replay_delay=7)
    assert connector_of(described(NetworkConnector(), "b")).bridge_filter is None
