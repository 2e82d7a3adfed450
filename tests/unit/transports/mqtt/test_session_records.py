# mypy: disable-error-code="attr-defined, no-untyped-def, method-assign"
"""The records by which MQTT sessions go on at the next master: `World.start` is a kill -9 and the next one."""

import json
from collections.abc import Callable

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.errors import InvalidDestination, NotReadYet
from pybroker.broker.domain.mqtt.packets import FilterSubscription
from pybroker.broker.domain.reserved_queues import SESSION_RECORDS
from pybroker.transports.mqtt import session_records, session_states
from pybroker.transports.mqtt.session_records import decode_record, encode_record, record_of
from pybroker.transports.mqtt.session_state import KeptSubscription
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World
from tests.unit.transports.mqtt.test_session_expiry import _EachUser, disconnect, expiry, subscription_names

PUBCOMP = 0x70
OPTIONS = 0x08
"""Retain as published."""


@pytest.fixture
def world() -> World:
    return World()


def record(world: World, client_id: str = "dev1") -> dict[str, object] | None:
    """Return the record of a session in the store."""
    found: list[bytes | None] = []
    world.broker.sessions.request(client_id, found.append)
    return None if found[0] is None else json.loads(found[0])


def stored(world: World) -> int:
    return len(world.store.recover().queues.get(SESSION_RECORDS.destination, ()))


def publish(world: World, *names: str) -> None:
    publisher = world.connect("publisher")
    for name in names:
        publisher.publish(name, name.encode(), 1)
    publisher.drop()


def test_qos_0_filters_go_on_beside_durable_ones(world: World) -> None:
    world.connect(clean=False).subscribe(("zero/#", 0), ("one/+", 1), ("two", 2))
    world.start()
    publish(world, "one/a", "two")
    peer = world.connect(clean=False)
    assert peer.is_session_present
    released = [int.from_bytes(each.body, "big") for each in peer.greeting if each.name == "PUBREL"]
    answers = [answer for number in released for answer in peer.acknowledge(PUBCOMP, number)]
    assert sorted(each.payload for each in peer.published(answers)) == [b"one/a", b"two"]
    publish(world, "zero/b", "one/b")
    assert sorted((each.payload, each.qos) for each in peer.published()) == [(b"one/b", 1), (b"zero/b", 0)]


def test_session_without_subscriptions_is_present(world: World) -> None:
    world.connect(clean=False)
    world.start()
    assert world.connect(clean=False).is_session_present
    assert not world.connect("other", clean=False).is_session_present


def test_wildcard_without_a_topic_goes_on(world: World) -> None:
    world.connect(clean=False).subscribe(("new/+", 1))
    world.start()
    world.start()
    publish(world, "new/a")
    peer = world.connect(clean=False)
    assert [each.payload for each in peer.published(peer.greeting)] == [b"new/a"]


def test_options_go_on(world: World) -> None:
    peer = world.connect(level=5, clean=False, pieces=(expiry(100),))
    peer.send(packets.subscribe(1, ("t", 1 | OPTIONS), pieces=(b"\x0b\x07",)))
    world.start()
    peer = world.connect(level=5, clean=False, pieces=(expiry(100),))
    world.connect("publisher").publish("t", b"x", 1, retain=True)
    (message,) = peer.published()
    assert (message.retain, message.properties) == (True, b"\x0b\x07")


def test_record_is_written_when_it_changes(world: World) -> None:
    bodies: list[bytes] = []
    put = world.broker.sessions.put
    states = world.states

    class Counting:
        """Counts what is written."""

        can_grow = True

        def put(self, key: str, body: bytes) -> None:
            bodies.append(body)
            put(key, body)

        def __getattr__(self, name: str) -> object:
            return getattr(world.broker.sessions, name)

        def __contains__(self, key: str) -> bool:
            return key in world.broker.sessions

    states._records = Counting()  # type: ignore[assignment]
    peer = world.connect(clean=False)
    peer.subscribe(("a", 1))
    peer.subscribe(("b", 1), ("c", 2))
    peer.send(packets.unsubscribe(3, "b"))
    peer.drop()
    world.connect(clean=False).drop()
    assert len(bodies) == 2, bodies
    peer = world.connect(clean=False)
    peer.subscribe(("d", 0))
    peer.send(packets.unsubscribe(3, "d"))
    assert len(bodies) == 4, bodies
    assert stored(world) == 1


class TestEnd:
    def test_expiry_begins_again_at_the_next_master(self, world: World) -> None:
        world.connect(level=5, clean=False, pieces=(expiry(10),)).subscribe(("t", 1))
        world.connect("other", 5, clean=False, pieces=(expiry(10),)).subscribe(("u", 0))
        world.connect("lasting", clean=False)
        world.advance(8)
        world.start()
        world.advance(9)
        assert (stored(world), len(subscription_names(world))) == (3, 1)
        world.advance(2)
        assert (stored(world), subscription_names(world)) == (1, [])
        assert not world.connect(level=5, clean=False).is_session_present

    def test_client_that_comes_back_in_time_goes_on(self, world: World) -> None:
        world.connect(level=5, clean=False, pieces=(expiry(10),)).subscribe(("t", 1), ("u", 0))
        world.start()
        world.advance(5)
        peer = world.connect(level=5, clean=False, pieces=(expiry(10),))
        world.advance(20)
        publish(world, "u")
        assert (peer.is_session_present, peer.payloads()) == (True, [b"u"])

    @pytest.mark.parametrize("level", [4, 5])
    def test_clean_start_removes_it(self, world: World, level: int) -> None:
        world.connect(clean=False).subscribe(("t", 0))
        world.start()
        world.connect(level=level)
        assert stored(world) == 0

    def test_disconnect_with_expiry_0_removes_it(self, world: World) -> None:
        peer = world.connect(level=5, clean=False, pieces=(expiry(10),))
        assert record(world) == {
            "version": 1, "user": None, "expiry": 10, "durable": False, "subscriptions": []
        }  # fmt: skip
        disconnect(peer, expiry(20))
        assert record(world)["expiry"] == 20  # type: ignore[index]
        disconnect(world.connect(level=5, clean=False, pieces=(expiry(10),)), expiry(0))
        assert stored(world) == 0

    def test_session_whose_state_was_dropped_ends(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_states, "SESSIONS_MAX", 1)
        for name in ("dev1", "dev2"):
            peer = world.connect(name, 5, clean=False, pieces=(expiry(10),))
            peer.subscribe(("u", 0))
            peer.drop()
        peer = world.connect(level=5, clean=False, pieces=(expiry(10),))
        publish(world, "u")
        assert (peer.is_session_present, peer.payloads()) == (True, [b"u"])
        world.advance(11)
        assert stored(world) == 1


class TestOutdated:
    """An ActiveMQ that has the store meanwhile, or an operator, deletes and changes durable subscriptions."""

    def test_session_whose_durables_are_gone_is_not_present(self, world: World) -> None:
        world.connect(clean=False).subscribe(("a", 1), ("b", 0))
        world.store.unsubscribe(topic("a"), "dev1:AT_LEAST_ONCE:a")
        world.start()
        assert stored(world) == 0
        assert not world.connect(clean=False).is_session_present

    def test_session_whose_durables_go_later_is_not_present(self, world: World) -> None:
        world.connect(clean=False).subscribe(("a", 1), ("b", 0))
        world.start()
        world.broker.unsubscribe("dev1", "AT_LEAST_ONCE:a")
        assert not world.connect(clean=False).is_session_present

    def test_filter_with_another_qos_goes_by_its_durable(self, world: World) -> None:
        peer = world.connect(level=5, clean=False, pieces=(expiry(0xFFFF_FFFF),))
        peer.send(packets.subscribe(1, ("a", 0), ("b", 1 | OPTIONS), ("c", 1 | OPTIONS), pieces=(b"\x0b\x07",)))
        world.start()
        other = world.broker.connect("x", "dev1", peer.link)
        other.unsubscribe("dev1", "AT_LEAST_ONCE:c")
        other.close()
        peer = world.connect(clean=False)
        peer.subscribe(("a", 1))
        world.start()
        publish(world, "a", "b", "c")
        peer = world.connect(clean=False)
        assert sorted((each.payload, each.qos) for each in peer.published(peer.greeting)) == [(b"a", 1), (b"b", 1)]


def test_session_of_another_user_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(_EachUser())
    world.connect(clean=False, user="alice", password="x").subscribe(("secret", 0))
    world.start()
    peer = world.connect(clean=False, user="bob", password="x")
    assert not peer.is_session_present
    assert record(world)["user"] == "bob"  # type: ignore[index]
    publish_as = world.connect("publisher", user="alice", password="x")
    publish_as.publish("secret", b"x", 1)
    assert peer.payloads() == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"version": 2}', b"\xff", b'{"version": 1, "user": 5}'])
def test_record_that_cannot_be_used_is_ignored(world: World, body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world.connect(clean=False).subscribe(("a", 1), ("b", 0))
    world.broker.sessions.put("dev1", body)
    world.start()
    peer = world.connect(clean=False)
    assert peer.is_session_present
    assert "the record of the session of dev1 cannot be used" in caplog.text
    publish(world, "a", "b")
    assert peer.payloads() == [b"a"]


def test_connect_waits_for_a_store_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise NotReadYet("the database has not answered")

    world.connect(clean=False).subscribe(("a", 0))
    world.start()
    turns: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "read_page", away)
        peer = world.open()
        assert peer.send(packets.connect("dev1", clean=False)) == []
        gone = world.open()
        gone.send(packets.connect("gone", clean=False))
    world.broker.remove_expired()
    (answer,) = peer.receive()
    assert (answer.name, answer.body) == ("CONNACK", b"\1\0")
    assert turns == []


def test_connection_that_is_lost_before_its_record_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.connect(clean=False).subscribe(("a", 0))
    world.start()
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(world.broker.usage.paging, "later", turns.append)
    peer: Peer = world.open()
    assert peer.send(packets.connect("dev1", clean=False)) == []
    peer.drop()
    while turns:
        turns.pop(0)()
    assert peer.receive() == []
    assert stored(world) == 1


def test_session_ends_in_time_though_its_client_is_lost_as_it_comes_back(world: World) -> None:
    world.connect(level=5, clean=False, pieces=(expiry(60),)).subscribe(("t", 1))
    world.start()
    turns: list[Callable[[], None]] = []
    world.broker.usage.paging.later = turns.append
    peer = world.open(5)
    assert peer.send(packets.connect("dev1", level=5, clean=False, pieces=(expiry(60),))) == []
    peer.drop()
    while turns:
        turns.pop(0)()
    assert subscription_names(world) == ["AT_LEAST_ONCE:t"]
    world.advance(61)
    assert subscription_names(world) == []


def test_store_that_refuses_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise InvalidDestination("the client id is too long for the tables")

    monkeypatch.setattr(type(world.broker.sessions), "put", refuse)
    world.connect(clean=False).subscribe(("a", 1))
    assert "outlasts its master by durable subscriptions alone: the client id is too long" in caplog.text
    world.start()
    assert world.connect(clean=False).is_session_present


def test_full_store_has_no_outdated_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = world.connect(clean=False)
    monkeypatch.setattr(type(world.store), "is_full", True)
    peer.subscribe(("a", 0))
    assert stored(world) == 0


def test_record_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_records, "RECORD_BYTES_MAX", 1000)
    kept = {f"a/{number}": KeptSubscription(FilterSubscription(f"a/{number}", 0)) for number in range(100)}
    body = encode_record(record_of(kept, user="x", expiry_seconds=None))
    assert 900 < len(body) < 1200
    found = decode_record("dev1", body)
    assert found is not None
    assert list(found.subscriptions) == list(kept)[: len(found.subscriptions)]
