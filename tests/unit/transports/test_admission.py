"""Connections that become no clients fill neither the broker nor an address's part of it, and storms get through."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pybroker.broker.domain.errors import BrokerError, ResourceLimit
from pybroker.transports import newcomers as newcomers_module
from pybroker.transports.admission import Admission, AdmissionLimits, ListenerPlaces, ReachedLimit
from pybroker.transports.newcomers import YOUNG_SECONDS
from tests.unit.transports.world import Session, World, counted_pauses

Run = Callable[..., None]
OLD = YOUNG_SECONDS + 1


@dataclass(eq=False)
class Connection:
    peer: str = "10.0.0.1:1"
    is_connected: bool = False
    is_in_handshake: bool = False
    is_idle: bool = True
    errors: list[BrokerError] = field(default_factory=list)

    def give_up(self, error: BrokerError) -> None:
        self.errors.append(error)


def admission(connections: int, **limits: int) -> Admission[Connection]:
    return Admission[Connection](AdmissionLimits.of(connections, **limits))


def fill(held: Admission[Connection], count: int, now: float = 0.0, *, is_tls: bool = False) -> list[Connection]:
    """Add connections of as many addresses."""
    added = [Connection(f"10.0.0.{number}:1", is_in_handshake=is_tls) for number in range(count)]
    assert [held.add(each, now) for each in added] == [None] * count
    return added


# ---------------------------------------------------------------- defaults


@pytest.mark.parametrize(("connections", "newcomers"), [(1000, 900), (10, 9), (9, 9), (1, 1)])
def test_a_tenth_is_reserved_by_default(connections: int, newcomers: int) -> None:
    assert AdmissionLimits.of(connections).newcomers == newcomers


def test_limits_can_be_set() -> None:
    limits = AdmissionLimits.of(100, reserved=60, unconnected=7, per_address=8)
    assert (limits.newcomers, limits.handshakes, limits.unconnected, limits.per_address) == (40, 50, 7, 8)


# ---------------------------------------------------------------- newcomers of all addresses


def test_newcomers_cannot_fill_the_broker() -> None:
    held = admission(10, reserved=3)
    waiting = fill(held, 7)
    newest = Connection("10.9.9.9:1")
    assert held.add(newest, 0.0) is ReachedLimit.NEWCOMERS
    assert held.add(newest, OLD) is waiting[0]
    assert held.add(Connection("10.9.9.8:1"), OLD) is waiting[1]


def test_clients_have_the_places_that_newcomers_cannot_have() -> None:
    held = admission(10, reserved=3)
    for each in fill(held, 7):
        each.is_connected = True
    for each in fill(held, 3, OLD):
        each.is_connected = True
    assert held.add(Connection("10.9.9.9:1"), 2 * OLD) is ReachedLimit.CONNECTIONS


def test_full_broker_takes_a_client_in_place_of_an_idle_newcomer() -> None:
    held = admission(10, reserved=3)
    clients = fill(held, 7)
    for each in clients:
        each.is_connected = True
    waiting = fill(held, 3)
    assert held.add(Connection("10.9.9.9:1"), OLD) is waiting[0]


def test_one_whose_login_is_verified_makes_no_way() -> None:
    held = admission(10, reserved=7)
    waiting = fill(held, 3)
    waiting[0].is_idle = waiting[1].is_idle = False
    assert held.add(Connection("10.9.9.9:1"), OLD) is waiting[2]
    waiting[0].is_idle = True
    assert held.add(Connection("10.9.9.8:1"), OLD) is ReachedLimit.NEWCOMERS, "it was busy just now"
    assert held.add(Connection("10.9.9.8:1"), 2 * OLD) is waiting[0]


def test_busy_newcomers_are_looked_at_once_a_second() -> None:
    """Else each connection of a flood would cost a look at all whose logins are verified."""
    looks = 0

    class Busy(Connection):
        @property
        def is_idle(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
            nonlocal looks
            looks += 1
            return False

        @is_idle.setter
        def is_idle(self, value: bool) -> None: ...

    held = admission(1000)
    for number in range(900):
        held.add(Busy(f"10.1.{number // 250}.{number % 250}:1"), 0.0)
    for _ in range(100):
        assert held.must_wait(OLD, 0, has_handshake=False)
    assert looks == 900


def test_client_that_connected_just_now_makes_no_way() -> None:
    """Newcomers are looked through at most ten times a second, and one that is to leave is looked at again."""
    held = admission(10, reserved=7)
    waiting = fill(held, 3)
    assert held.add(Connection("10.9.9.9:1"), OLD) is waiting[0]
    waiting[1].is_connected = True
    assert held.add(Connection("10.9.9.8:1"), OLD) is waiting[2]


def test_server_waits_while_no_newcomer_is_idle() -> None:
    held = admission(10, reserved=5)
    assert not held.must_wait(0.0, 4, has_handshake=False)
    assert held.must_wait(0.0, 5, has_handshake=False)
    waiting = fill(held, 5)
    assert held.must_wait(0.0, 0, has_handshake=False)
    assert not held.must_wait(OLD, 0, has_handshake=False)
    for each in waiting:
        each.is_idle = False
    assert held.must_wait(OLD, 0, has_handshake=False)
    waiting[3].is_connected = True
    assert not held.must_wait(2 * OLD, 0, has_handshake=False)


def test_server_does_not_wait_to_refuse() -> None:
    held = admission(3)
    for each in fill(held, 3):
        each.is_connected = True
    assert not held.must_wait(OLD, 0, has_handshake=True)


def test_handshakes_leave_half_to_plain_listeners() -> None:
    held = admission(10)
    shaking = fill(held, 5, is_tls=True)
    assert held.must_wait(0.0, 0, has_handshake=True)
    assert not held.must_wait(0.0, 0, has_handshake=False)
    assert held.add(Connection("10.9.9.9:1", is_in_handshake=True), OLD) is shaking[0]
    shaking[1].is_in_handshake = False
    assert not held.must_wait(2 * OLD, 0, has_handshake=True)


def test_newcomers_are_looked_through_ten_times_a_second() -> None:
    class Counted(Connection):
        looks = 0

        @property
        def is_connected(self) -> bool:
            Counted.looks += 1
            return False

        @is_connected.setter
        def is_connected(self, value: bool) -> None: ...

    held = Admission[Connection](AdmissionLimits.of(1000, reserved=0))
    for number in range(1000):
        held.add(Counted(f"10.0.{number // 256}.{number % 256}:1"), 0.0)
    Counted.looks = 0
    for number in range(500):
        assert isinstance(held.add(Counted(f"10.1.0.{number}:1"), OLD + number / 5000), Connection)
    assert Counted.looks <= 2 * 1000 + 2 * 500


# ---------------------------------------------------------------- addresses


def test_address_at_the_limit_of_newcomers_is_refused_and_others_are_not() -> None:
    held = admission(100, unconnected=3)
    own = [Connection(f"10.0.0.1:{port}") for port in range(3)]
    assert [held.add(each, 0.0) for each in own] == [None] * 3
    assert held.add(Connection("10.0.0.1:9"), 0.0) is ReachedLimit.UNCONNECTED
    assert held.add(Connection("10.0.0.2:9"), 0.0) is None
    assert held.add(Connection("[::1]:9"), 0.0) is None
    assert held.add(Connection("10.0.0.1:9"), OLD) is own[0]


def test_an_ipv6_host_has_one_limit() -> None:
    held = admission(100, unconnected=2)
    assert held.add(Connection("[fd00::1]:1"), 0.0) is None
    assert held.add(Connection("[fd00::2]:1"), 0.0) is None
    assert held.add(Connection("[fd00::3]:1"), 0.0) is ReachedLimit.UNCONNECTED
    assert held.add(Connection("[fd00:0:0:1::1]:1"), 0.0) is None


def test_clients_are_no_newcomers() -> None:
    held = admission(10_000, unconnected=2)
    for port in range(1_000):
        client = Connection(f"10.0.0.1:{port}")
        assert held.add(client, float(port)) is None
        client.is_connected = True


def test_connections_of_an_address_have_a_limit() -> None:
    held = admission(100, per_address=2)
    first = Connection("10.0.0.1:1", is_connected=True)
    assert held.add(first, 0.0) is None
    assert held.add(Connection("[::ffff:10.0.0.1]:2", is_connected=True), 0.0) is None
    assert held.add(Connection("10.0.0.1:3"), OLD) is ReachedLimit.PER_ADDRESS
    held.remove(first)
    assert held.add(Connection("10.0.0.1:3"), OLD) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_connections_of_this_host_have_no_limit_of_their_own(address: str) -> None:
    held = admission(100, per_address=1)
    assert [held.add(Connection(f"{address}:{port}"), 0.0) for port in range(5)] == [None] * 5


# ---------------------------------------------------------------- listeners


def test_a_full_listener_refuses_while_another_is_open() -> None:
    held, own, other = admission(10), ListenerPlaces[Connection](2), ListenerPlaces[Connection](2)
    clients = [Connection(f"10.0.0.{number}:1", is_connected=True) for number in range(2)]
    assert [held.add(each, 0.0, own) for each in clients] == [None, None]
    assert held.add(Connection("10.0.0.7:1"), OLD, own) is ReachedLimit.LISTENER
    assert held.add(Connection("10.0.0.7:1"), OLD, other) is None
    assert held.add(Connection("10.0.0.7:2"), OLD) is None
    held.remove(clients[0])
    assert held.add(Connection("10.0.0.7:3"), OLD, own) is None
    assert (own.count, other.count) == (2, 1)


def test_a_newcomer_of_the_same_listener_makes_way() -> None:
    held, own = admission(10), ListenerPlaces[Connection](2)
    fill(held, 3)
    waiting = [Connection(f"10.1.0.{number}:1") for number in range(2)]
    assert [held.add(each, 0.0, own) for each in waiting] == [None, None]
    assert held.add(Connection("10.9.9.9:1"), OLD, own) is waiting[0]
    assert own.count == 2


def test_a_full_listener_refuses_an_address_with_too_many() -> None:
    """Two connections would have to make way for one, if it were taken."""
    held, own = admission(10, unconnected=1), ListenerPlaces[Connection](1)
    assert held.add(Connection("10.0.0.1:1"), 0.0, own) is None
    assert held.add(Connection("10.0.0.2:1"), 0.0) is None
    assert held.add(Connection("10.0.0.2:2"), OLD, own) is ReachedLimit.LISTENER
    assert own.count == 1


def test_nothing_is_kept_of_addresses_without_connections() -> None:
    held = admission(100)
    for connection in fill(held, 90):
        held.remove(connection)
    assert held._addresses == {}
    assert held._count == 0


# ---------------------------------------------------------------- over sockets


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions begin without a client."""
    monkeypatch.setattr(Session, "is_connected", False)


def test_peers_that_say_nothing_leave_half_of_the_places(
    run: Run, caplog: pytest.LogCaptureFixture, silent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcomers_module, "_LOOK_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        for _ in range(2):
            await world.meet()
        refused = world.connect()
        assert await world.read_to_end(refused) == b"too many"
        world.sessions[0].is_connected = True
        await world.meet()
        assert len(world.server.connections) == 3
        assert world.server.refused_count == 1

    with caplog.at_level(logging.WARNING):
        run(scenario, connections_max=4)
    [line] = [each for each in caplog.messages if "refused" in each]
    assert "2 connections of its address have not sent a CONNECT or ConnectionInfo yet" in line


def test_silent_peer_makes_way_and_is_answered(run: Run, silent: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newcomers_module, "YOUNG_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        client, first = await world.meet()
        _, second = await world.meet()
        assert isinstance(first.error, ResourceLimit)
        assert await world.read_to_end(client) == b""
        assert list(world.server.connections) == [second.link]
        assert world.server.refused_count == 1
        client.close()
        await world.until(lambda: first.is_lost)
        assert list(world.server.connections) == [second.link]

    run(scenario, limits=AdmissionLimits.of(4, unconnected=1))


def test_peers_wait_in_the_kernel_until_one_becomes_a_client(
    run: Run, silent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = counted_pauses(monkeypatch)

    async def scenario(world: World) -> None:
        for _ in range(2):
            await world.meet()
        meeting = asyncio.ensure_future(world.meet())
        pauses.clear()
        await world.until(lambda: pauses)
        assert len(world.sessions) == 2
        assert world.server.refused_count == 0
        world.sessions[1].is_connected = True
        await meeting

    run(scenario, limits=AdmissionLimits.of(10, reserved=8))


def test_connections_of_one_address_beyond_its_limit_are_refused(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.transports.admission.is_loopback", lambda _: False)

    async def scenario(world: World) -> None:
        await world.meet()
        assert await world.read_to_end(world.connect()) == b"too many"

    with caplog.at_level(logging.WARNING):
        run(scenario, limits=AdmissionLimits.of(10, per_address=1))
    assert "1 connections of its address are open already, raise connections_per_address" in caplog.text
