"""Packets with many topic filters, and sessions with many subscriptions, are carried out in several turns."""

from collections import deque
from collections.abc import Callable

import pytest

from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.mqtt import client as mqtt_client
from pybroker.transports.mqtt.turns import PIECE, in_turns
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World

COUNT = 4 * PIECE - 1
FILTERS = [(f"t/{number}", 1) for number in range(COUNT)]


class Turns:
    """The later turns of the event loop, which the test has come."""

    def __init__(self, world: World) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        world.broker.usage.paging.later = self._waiting.append

    def pass_all(self) -> int:
        """Have all turns come; return their number."""
        count = 0
        while self._waiting:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
            count += 1
        return count


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def turns(world: World) -> Turns:
    return Turns(world)


@pytest.mark.parametrize("count", range(PIECE - 1, 6 * PIECE, PIECE))
def test_input_is_held_and_released(world: World, turns: Turns, count: int) -> None:
    peer = world.connect()
    answers = peer.send(packets.subscribe(1, *((f"t/{number}", 1) for number in range(count))))
    turns.pass_all()
    assert (peer.link.input_holds, peer.link.holds) == (0, 0)
    answers += peer.send(packets.PINGREQ)
    assert [each.name for each in answers] == ["SUBACK", "PINGRESP"]


def kept(world: World, turns: Turns, client_id: str = "dev1") -> Peer:
    """Return a client with a session that lasts, and many subscriptions."""
    peer = world.open()
    peer.send(packets.connect(client_id, clean=False))
    peer.send(packets.subscribe(1, *FILTERS))
    turns.pass_all()
    assert [each.name for each in peer.receive()] == ["SUBACK"]
    return peer


def test_subscribe_and_unsubscribe_keep_the_order(world: World, turns: Turns) -> None:
    peer = world.connect()
    data = packets.subscribe(1, *FILTERS) + packets.unsubscribe(2, *(text for text, _ in FILTERS)) + packets.PINGREQ
    assert peer.names(data) == []
    assert 0 < len(world.broker.destinations.topics) < COUNT
    assert world.connect("other").publish("t/0", b"x", 1) == ["PUBACK"]
    assert turns.pass_all() >= 2 * (COUNT // PIECE)
    answers = peer.receive()
    assert [each.name for each in answers if each.name != "PUBLISH"] == ["SUBACK", "UNSUBACK", "PINGRESP"]
    assert answers[0].body[2:] == b"\1" * COUNT
    assert not peer.link.input_holds


def test_session_continues_with_all_its_messages(world: World, turns: Turns) -> None:
    kept(world, turns).drop()
    sender = world.connect("sender")
    for number in range(COUNT):
        sender.publish(f"t/{number}", b"%d" % number, 1)
    peer = world.open()
    assert peer.send(packets.connect("dev1", clean=False)) == []
    turns.pass_all()
    answers = peer.receive()
    assert (answers[0].name, answers[0].body[0]) == ("CONNACK", 1)
    assert sorted(int(each.payload) for each in peer.published(answers)) == list(range(COUNT))


def test_connection_is_lost_meanwhile(world: World, turns: Turns) -> None:
    kept(world, turns).drop()
    lost = world.open()
    lost.send(packets.connect("dev1", clean=False))
    lost.drop()
    turns.pass_all()
    peer = world.connect("dev2")
    peer.send(packets.subscribe(1, *FILTERS))
    peer.drop()
    turns.pass_all()
    assert lost.receive() == peer.receive() == []
    assert not [each for each in world.broker.connections() if each.client_id in ("dev1", "dev2")]
    again = world.open()
    again.send(packets.connect("dev1", clean=False))
    turns.pass_all()
    assert [each.name for each in again.receive()] == ["CONNACK"]
    assert len(world.broker.subscriptions_of("dev1")) == COUNT


def test_another_connection_takes_over_meanwhile(world: World, turns: Turns) -> None:
    kept(world, turns).drop()
    first, second = world.open(), world.open()
    first.send(packets.connect("dev1", clean=False))
    second.send(packets.connect("dev1", clean=False))
    turns.pass_all()
    assert first.link.closed
    assert [each.name for each in second.receive()] == ["CONNACK"]
    world.connect("sender").publish("t/5", b"x", 1)
    assert second.payloads() == [b"x"]


def test_error_in_a_later_turn_ends_the_connection(world: World, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = world.connect()
    peer.send(packets.subscribe(1, *FILTERS))

    def fail(_: str) -> None:
        raise BrokerError("the store has stopped")

    monkeypatch.setattr(mqtt_client, "check_filter", fail)
    turns.pass_all()
    assert peer.link.closed


def test_a_thousand_pieces_are_done_at_once_without_a_loop(world: World) -> None:
    connection = world.broker.connect("c", "c", world.open().link)
    done: list[int] = []
    acts = ((lambda: done.append(1)) for _ in range(1000 * PIECE))
    in_turns(connection, acts, lambda: done.append(2), lambda error: None)
    assert (len(done), done[-1]) == (1000 * PIECE + 1, 2)
