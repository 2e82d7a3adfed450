"""The sessions of MQTT 5 that end a while after their connections, and the wills that wait meanwhile."""

import gc
import tracemalloc
from collections import Counter

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.security import Authenticator, Credentials, Decided, User
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.mqtt import session_states
from pybroker.transports.mqtt.session import MqttSession
from tests import mqtt_packets as packets
from tests.compiled import interpreted
from tests.unit.transports.mqtt.conversation import Peer, World
from tests.unit.transports.openwire.conversation import FakeLink

NEVER = 0xFFFF_FFFF


def expiry(seconds: int) -> bytes:
    """Encode the session expiry interval."""
    return b"\x11" + seconds.to_bytes(4, "big")


def will_delay(seconds: int) -> bytes:
    """Encode the will delay interval."""
    return b"\x18" + seconds.to_bytes(4, "big")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def watcher(world: World) -> Peer:
    peer = world.connect("watcher")
    peer.subscribe(("will", 1))
    return peer


def kept(world: World, seconds: int, *, clean: bool = False) -> Peer:
    """Return a client with a durable subscription to `t`."""
    peer = world.connect("dev1", 5, clean=clean, pieces=(expiry(seconds),))
    peer.subscribe(("t", 1), ("u", 0))
    return peer


def mortal(world: World, delay: int, seconds: int, *, clean: bool = False) -> Peer:
    """Return a client with a will that waits."""
    return world.connect(
        "dev1", 5, clean=clean, pieces=(expiry(seconds),), will=("will", b"gone"), will_pieces=(will_delay(delay),)
    )


def subscription_names(world: World) -> list[str]:
    return [info.name for info in world.broker.subscriptions_of("dev1")]


def disconnect(peer: Peer, *pieces: bytes, reason: int = 0) -> None:
    peer.send(packets.packet(0xE0, bytes([reason]), packets.properties(*pieces)))
    peer.drop()


# ---------------------------------------------------------------- session expiry


def test_backlog_comes_though_the_session_ends_with_the_connection(world: World) -> None:
    kept(world, 99).drop()
    world.connect("sender").publish("t", b"x", 1)
    second = world.connect("dev1", 5, clean=False)
    assert second.is_session_present
    assert [each.payload for each in second.published(second.greeting)] == [b"x"]
    second.drop()
    assert subscription_names(world) == []
    assert not world.connect("dev1", 5, clean=False).is_session_present


def test_session_without_expiry_ends_with_the_connection(world: World) -> None:
    kept(world, 0).drop()
    assert subscription_names(world) == []
    assert not world.connect("dev1", 5, clean=False).is_session_present


def test_session_ends_though_its_client_never_returns(world: World) -> None:
    kept(world, 5).drop()
    world.advance(4.9)
    assert subscription_names(world) == ["AT_LEAST_ONCE:t"]
    world.advance(0.2)
    assert subscription_names(world) == []
    assert len(world.states) == 0


def test_clock_begins_when_the_connection_ends(world: World) -> None:
    peer = kept(world, 5)
    world.advance(60)
    peer.drop()
    world.advance(4)
    peer = kept(world, 5)
    assert peer.is_session_present
    world.advance(60)
    peer.drop()
    assert subscription_names(world) == ["AT_LEAST_ONCE:t"]


def test_late_timer_does_not_prolong_a_session(world: World) -> None:
    kept(world, 5).drop()
    world.now_ms += 5000
    assert not kept(world, 5).is_session_present


def test_session_without_end(world: World) -> None:
    kept(world, NEVER).drop()
    assert world.wakes_at is None
    world.advance(2**33)
    assert kept(world, 1).is_session_present


def test_disconnect_changes_the_expiry(world: World) -> None:
    disconnect(kept(world, 1), expiry(5))
    world.advance(3)
    peer = kept(world, 1)
    assert peer.is_session_present
    disconnect(peer, expiry(0))
    assert subscription_names(world) == []


def test_disconnect_may_not_begin_an_expiry(world: World) -> None:
    peer = kept(world, 0)
    [answer] = peer.send(packets.packet(0xE0, b"\0", packets.properties(expiry(5))))
    assert (answer.name, answer.body[0]) == ("DISCONNECT", 0x82)
    assert subscription_names(world) == []


def test_session_of_3_1_1_takes_over_and_does_not_end(world: World) -> None:
    kept(world, 5).drop()
    peer = world.connect("dev1", 4, clean=False)
    assert peer.is_session_present
    peer.drop()
    world.advance(1000)
    assert subscription_names(world) == ["AT_LEAST_ONCE:t"]


def test_subscription_in_use_is_deleted_later(world: World) -> None:
    kept(world, 5).drop()
    jms = world.broker.connect("jms", "dev1", FakeLink())
    name = "AT_LEAST_ONCE:t"
    jms.subscribe(ConsumerRequest(destination=topic("t"), subscription_name=name), lambda delivery: None)
    world.advance(10)
    assert subscription_names(world) == [name]
    jms.close()
    world.advance(session_states.RETRY_MS / 1000)
    assert subscription_names(world) == []
    assert len(world.states) == 0


# ---------------------------------------------------------------- delayed wills


def test_delayed_will(world: World, watcher: Peer) -> None:
    mortal(world, 3, 5).drop()
    world.advance(2.9)
    assert watcher.payloads() == []
    world.advance(0.2)
    assert watcher.payloads() == [b"gone"]
    world.advance(10)
    assert watcher.payloads() == []
    assert len(world.states) == 0


@pytest.mark.parametrize("seconds", [0, 2])
def test_will_comes_at_the_end_of_the_session_at_the_latest(world: World, watcher: Peer, seconds: int) -> None:
    mortal(world, 5, seconds).drop()
    world.advance(seconds - 0.1 if seconds else 0)
    assert watcher.payloads() == ([] if seconds else [b"gone"])
    world.advance(0.2)
    assert watcher.payloads() == ([b"gone"] if seconds else [])


def test_will_of_session_without_end_waits_for_its_delay(world: World, watcher: Peer) -> None:
    mortal(world, 5, NEVER).drop()
    world.advance(4)
    assert watcher.payloads() == []
    world.advance(2)
    assert watcher.payloads() == [b"gone"]
    assert world.connect("dev1", 5, clean=False).is_session_present


def test_session_that_continues_cancels_the_will(world: World, watcher: Peer) -> None:
    mortal(world, 3, 60).drop()
    world.advance(2)
    mortal(world, 3, 60)
    world.advance(60)
    assert watcher.payloads() == []


def test_clean_start_publishes_the_will(world: World, watcher: Peer) -> None:
    mortal(world, 3, 60).drop()
    world.connect("dev1", 5)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize("clean", [True, False])
def test_take_over_publishes_a_delayed_will_if_the_session_ends(world: World, watcher: Peer, clean: bool) -> None:
    mortal(world, 3, 60)
    mortal(world, 3, 60, clean=clean)
    world.advance(10)
    assert watcher.payloads() == ([b"gone"] if clean else [])


def test_disconnect_with_will_delays_it(world: World, watcher: Peer) -> None:
    disconnect(mortal(world, 3, 60), reason=4)
    assert watcher.payloads() == []
    world.advance(3)
    assert watcher.payloads() == [b"gone"]
    disconnect(mortal(world, 3, 60))
    world.advance(60)
    assert watcher.payloads() == []


def test_expiry_of_the_message_of_a_will_begins_when_it_is_published(world: World) -> None:
    watcher = world.connect("watcher", 5)
    watcher.subscribe(("will", 1))
    pieces = (will_delay(30), b"\x02\0\0\0\x05")
    peer = world.connect("dev1", 5, pieces=(expiry(60),), will=("will", b"gone"), will_pieces=pieces)
    peer.drop()
    world.advance(30)
    [found] = watcher.published()
    assert found.properties == b"\x02\0\0\0\x05"


def test_broker_that_stops_publishes_the_wills_that_wait(world: World, watcher: Peer) -> None:
    mortal(world, 3, 60).drop()
    world.states.publish_wills()
    assert watcher.payloads() == [b"gone"]
    world.states.close()
    mortal(world, 3, 60).drop()
    assert (world.wakes_at, len(world.states)) == (None, 0)


# ---------------------------------------------------------------- limits


def test_forgotten_session_still_ends(world: World, watcher: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_states, "SESSIONS_MAX", 1)
    mortal(world, 60, 60).drop()
    kept(world, 60).drop()
    world.connect("other", 5, pieces=(expiry(NEVER),)).drop()
    assert len(world.states) == 2
    world.advance(61)
    assert subscription_names(world) == []
    assert len(world.states) == 1


def test_memory_of_sessions_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_states, "BYTES_MAX", 100_000)
    for number in range(10):
        peer = world.connect(f"dev{number}", 5, pieces=(expiry(NEVER),))
        peer.subscribe(*[(f"topic/{each}", 0) for each in range(30)])
        peer.drop()
    assert 0 < len(world.states) < 8


def test_end_of_many_sessions_takes_several_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_states, "FIRED_MAX", 2)
    for number in range(5):
        world.connect(f"dev{number}", 5, pieces=(expiry(1),)).drop()
    world.now_ms += 1000
    world.states.fire()
    assert (len(world.states), world.wakes_at) == (3, world.now_ms)
    world.advance(0)
    assert len(world.states) == 0


@pytest.fixture
def test_takeovers_leak_nothing(world: World) -> None:
    def count() -> Counter[type]:
        gc.collect()
        return Counter(map(type, gc.get_objects()))

    def take_over(times: int) -> None:
        for _ in range(times):
            mortal(world, 10**9, 10**9).publish("v", b"x", 2)

    gc.collect()
    gc.freeze()  # what other tests have left
    kept(world, 10**9)
    take_over(150)
    before = count()
    assert before[MqttSession] == 1
    take_over(300)
    growth = count() - before
    assert growth[MqttSession] == 0
    assert growth.total() < 300, growth
    assert world.states.timer_count < 200


class _EachUser(Authenticator):
    """Believes everyone."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        decided(User(credentials.user or ""))


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_session_is_not_continued_by_another_user(user: str) -> None:
    world = World(_EachUser())
    peer = world.connect("dev1", 5, user="ann", password="x", pieces=(expiry(60),))
    peer.subscribe(("t", 0))
    peer.drop()
    peer = world.connect("dev1", 5, clean=False, user=user, password="x")
    assert peer.is_session_present is (user == "ann")
    world.connect("sender", user="ann", password="x").publish("t", b"x")
    assert peer.payloads() == ([b"x"] if user == "ann" else [])


@interpreted
def test_nothing_remains_of_clients_whose_sessions_have_ended(world: World) -> None:
    def connect(count: int) -> int:
        for number in range(count):
            world.connect(f"client {count} {number}").send(packets.DISCONNECT)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = connect(10)
    after = connect(500)
    tracemalloc.stop()
    assert after - before < 500 * 20
