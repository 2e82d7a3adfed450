"""A proxy is open as long as the broker's port, ends as it ends, and can be partitioned."""

import socket
import struct
from collections.abc import Iterator

import pytest

from pybroker.testing.process import Watcher
from pybroker.testing.proxy import CHUNK_BYTES, ListenerProxy

PATIENCE_SECONDS = 20.0
SILENCE_SECONDS = 0.1
"""Enough for loopback to show what should not come."""


class World:
    """A proxy in front of a listener."""

    def __init__(self) -> None:
        self.watcher = Watcher()
        self.proxy = ListenerProxy(self.watcher.loop)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_SECONDS)
        self.sockets: list[socket.socket] = [self.listener]

    def open(self) -> None:
        self.watcher.call(self.proxy.open, self.listener.getsockname()[1])

    def client(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=PATIENCE_SECONDS)
        self.sockets.append(client)
        return client

    def accepted(self) -> socket.socket:
        broker, _ = self.listener.accept()
        broker.settimeout(PATIENCE_SECONDS)
        self.sockets.append(broker)
        return broker

    def connection(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a connection through the open proxy."""
        return self.client(), self.accepted()

    def close(self) -> None:
        self.watcher.run(self.proxy.close)
        self.watcher.close()
        for each in self.sockets:
            each.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def silent(connection: socket.socket) -> bool:
    """Return True if nothing comes for a while."""
    connection.settimeout(SILENCE_SECONDS)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_SECONDS)
    return False


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_proxy_refuses_before_open_and_after_shut(world: World) -> None:
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            world.client()
        world.open()
        client, broker = world.connection()
        world.watcher.call(world.proxy.shut)
        client.sendall(b"still here")
        assert broker.recv(10) == b"still here"


def test_port_is_not_assigned_to_others(world: World) -> None:
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind(("127.0.0.1", world.proxy.port))


def test_both_ways_whole_and_in_order(world: World) -> None:
    world.open()
    client, broker = world.connection()
    data = bytes(range(256)) * (5 * CHUNK_BYTES // 256)
    for source, sink in ((client, broker), (broker, client)):
        received = b""
        for start in range(0, len(data), CHUNK_BYTES):
            source.sendall(data[start : start + CHUNK_BYTES])
            while len(received) < start + CHUNK_BYTES:
                received += sink.recv(CHUNK_BYTES)
        assert received == data


def test_an_end_is_passed_on_and_the_other_way_stays_open(world: World) -> None:
    world.open()
    client, broker = world.connection()
    client.shutdown(socket.SHUT_WR)
    assert broker.recv(1) == b""
    broker.sendall(b"bye")
    assert client.recv(3) == b"bye"


@pytest.mark.parametrize("is_clients", [True, False])
def test_a_reset_is_passed_on(world: World, is_clients: bool) -> None:
    world.open()
    client, broker = world.connection()
    breaker, other = (client, broker) if is_clients else (broker, client)
    reset(breaker)
    with pytest.raises(ConnectionResetError):
        other.recv(1)


def test_client_after_the_brokers_end_is_reset(world: World) -> None:
    world.open()
    world.listener.close()
    with pytest.raises(ConnectionResetError):
        world.client().recv(1)


def test_cut_it_is_silent_and_nothing_is_lost(world: World) -> None:
    world.open()
    client, broker = world.connection()
    world.watcher.call(world.proxy.partition)
    client.sendall(b"to the broker")
    broker.sendall(b"to the client")
    assert silent(broker)
    assert silent(client)
    world.watcher.call(world.proxy.heal)
    assert broker.recv(20) == b"to the broker"
    assert client.recv(20) == b"to the client"


def test_a_cut_proxy_does_not_pass_on_a_close(world: World) -> None:
    world.open()
    client, broker = world.connection()
    world.watcher.call(world.proxy.partition)
    broker.close()
    assert silent(client)
    world.watcher.call(world.proxy.heal)
    assert client.recv(1) == b""


def test_a_new_client_of_a_cut_gate_waits(world: World) -> None:
    world.open()
    world.watcher.call(world.proxy.partition)
    client = world.client()
    client.sendall(b"hello")
    world.listener.settimeout(SILENCE_SECONDS)
    with pytest.raises(TimeoutError):
        world.accepted()
    world.listener.settimeout(PATIENCE_SECONDS)
    world.watcher.call(world.proxy.heal)
    assert world.accepted().recv(5) == b"hello"


def test_a_broker_that_does_not_read_is_felt(world: World) -> None:
    world.open()
    client, _ = world.connection()
    client.settimeout(1.0)
    with pytest.raises(TimeoutError):
        client.sendall(bytes(1000 * CHUNK_BYTES))
