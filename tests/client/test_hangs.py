"""Servers that never answer (name server, file server, a silent broker) delay calls no longer than their timeout."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pybroker.client import ConnectionClosed, Timeout, aio, connect
from pybroker.client.stomp_py import FailoverConnection
from tests.client.kills import nothing_left

PATIENCE = 30.0


@pytest.fixture
def silent_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A name server that answers when the test is over."""
    answers, asked = threading.Event(), threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        asked.set()
        answers.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    with nothing_left():
        yield
        assert asked.is_set()
        answers.set()


def test_a_name_server_that_does_not_answer(silent_names: None) -> None:
    for uri in ("failover:(tcp://broker.example:61616)", "failover:(stomp://broker.example:61613)"):
        with pytest.raises(Timeout):
            connect(uri, timeout=0.1)


def test_a_name_server_that_does_not_answer_a_task(silent_names: None) -> None:
    async def main() -> None:
        with pytest.raises(Timeout):
            async with aio.connect("failover:(tcp://broker.example:61616)", timeout=0.1):
                pass

    asyncio.run(main())


def test_a_file_with_brokers_that_cannot_be_read(tmp_path: Path) -> None:
    """A pipe that no one writes to stands for a file server that is gone."""
    brokers = tmp_path / "brokers"
    os.mkfifo(brokers)
    with nothing_left():
        with pytest.raises(Timeout):
            connect(f"failover:(tcp://127.0.0.1:1)?updateURIsURL={brokers}", timeout=0.3)
        with brokers.open("w"):
            pass


def test_names_are_looked_up_and_their_errors_reported(broker_uri: str, queue: str) -> None:
    with connect(f"failover:({broker_uri.replace('127.0.0.1', 'localhost')})", timeout=PATIENCE) as connection:
        connection.send(queue, "x")
    with pytest.raises(Timeout):
        connect("failover:(tcp://no-such-host.invalid:61616)", timeout=0.1)


def test_a_broker_that_answers_when_the_program_has_closed() -> None:
    with nothing_left(), closing(socket.create_server(("127.0.0.1", 0))) as server:
        connection = FailoverConnection(f"failover:(stomp://127.0.0.1:{server.getsockname()[1]})")
        outcome: list[BaseException] = []

        def opening() -> None:
            try:
                connection.connect()
            except ConnectionClosed as error:
                outcome.append(error)

        thread = threading.Thread(target=opening)
        thread.start()
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(1000)  # CONNECT
            closer = threading.Thread(target=connection.disconnect)
            closer.start()
            assert connection._closing.wait(PATIENCE)
            accepted.sendall(b"CONNECTED\nversion:1.2\n\n\0")
            closer.join(PATIENCE)
            thread.join(PATIENCE)
            assert not closer.is_alive()
    assert len(outcome) == 1


def test_a_disconnect_while_connect_starts_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be joined before it is started: the one that disconnects would fail, and leave the others."""
    connection = FailoverConnection("failover:(stomp://127.0.0.1:1)")
    half_started, may_go_on = threading.Event(), threading.Event()
    start = threading.Thread.start

    def start_slowly(thread: threading.Thread) -> None:
        if thread.name == "pybroker-stomp-listeners":
            half_started.set()
            may_go_on.wait(PATIENCE)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_slowly)
    failures: list[BaseException] = []

    def call(function: Callable[[], None]) -> None:
        try:
            function()
        except ConnectionClosed:
            pass
        except BaseException as error:
            failures.append(error)

    with nothing_left():
        connecting = threading.Thread(target=call, args=[connection.connect])
        connecting.start()
        assert half_started.wait(PATIENCE)
        disconnecting = threading.Thread(target=call, args=[connection.disconnect])
        disconnecting.start()
        disconnecting.join(0.1)  # as long as it takes to fail
        may_go_on.set()
        for thread in (connecting, disconnecting):
            thread.join(PATIENCE)
    assert failures == []
