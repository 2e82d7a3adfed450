"""One address cannot hold all places by connections that become no clients."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pybroker.transports.newcomers import Newcomers
from tests.unit.transports.world import World

Run = Callable[..., None]


@dataclass(eq=False)
class Connection:
    peer: str
    is_connected: bool = False


def test_address_at_the_limit_is_refused_and_others_are_not() -> None:
    newcomers = Newcomers(3)
    held = [Connection(f"10.0.0.1:{port}") for port in range(3)]
    assert all(map(newcomers.add, held))
    assert not newcomers.add(Connection("10.0.0.1:9"))
    assert newcomers.add(Connection("10.0.0.2:9"))
    assert newcomers.add(Connection("[::1]:9"))


def test_clients_do_not_count() -> None:
    newcomers = Newcomers(2)
    for port in range(1_000):
        client = Connection(f"10.0.0.1:{port}")
        assert newcomers.add(client)
        client.is_connected = True


def test_connection_that_is_gone_makes_space() -> None:
    newcomers = Newcomers(1)
    first = Connection("10.0.0.1:1")
    assert newcomers.add(first)
    newcomers.remove(first)
    newcomers.remove(first)
    assert newcomers.add(Connection("10.0.0.1:2"))


def test_nothing_is_kept_of_addresses_without_connections() -> None:
    newcomers = Newcomers(1)
    for number in range(100):
        connection = Connection(f"10.0.0.{number}:1")
        newcomers.add(connection)
        newcomers.remove(connection)
    assert newcomers._by_address == {}


def test_peers_that_say_nothing_leave_half_of_the_places(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        for _ in range(2):
            _, session = await world.meet()
            session.is_connected = False
        refused = world.connect()
        assert await world.read_to_end(refused) == b"too many"
        world.sessions[0].is_connected = True
        await world.meet()
        assert len(world.server.connections) == 3

    with caplog.at_level(logging.WARNING):
        run(scenario, connections_max=4)
    [line] = [each for each in caplog.messages if "refused" in each]
    assert "2 connections of its address have not sent a CONNECT or ConnectionInfo yet" in line
