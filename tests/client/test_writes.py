"""Threads write their requests to the socket themselves: each whole, in order, and into no other file."""

import os
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from pybroker.client import ClientError, ConnectionFailed, connect
from pybroker.client.sync import Connection
from pybroker.client.wire import Wire
from pybroker.testing import Broker

PATIENCE = 60.0
QUEUE = "queue://written"
WRITE = os.write


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def check_order(connection: Connection, senders: int, messages: int) -> None:
    """Receive what so many threads have sent, each its own numbers in order, and nothing else."""
    expected = [0] * senders
    with connection.consumer(QUEUE) as consumer:
        for _ in range(senders * messages):
            body = consumer.receive(PATIENCE).body
            assert isinstance(body, str)
            sender, number, text = body.split(":")
            assert int(number) == expected[int(sender)]
            assert text == padding(int(number))
            expected[int(sender)] += 1
    assert expected == [messages] * senders


def padding(number: int) -> str:
    """Return a text: every seventh is larger than the socket takes at once."""
    return "x" * (3_000_000 if number % 7 == 6 else number)


def send_from_threads(connection: Connection, senders: int, messages: int) -> None:
    """Send in several threads at once; every third message is not persistent, and waits for no answer."""
    errors: list[Exception] = []

    def run(sender: int) -> None:
        try:
            for number in range(messages):
                body = f"{sender}:{number}:{padding(number)}"
                connection.send(QUEUE, body, persistent=number % 3 != 2)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(sender,)) for sender in range(senders)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert errors == []


def test_threads_that_send_at_once_do_not_mix_their_bytes(broker: Broker) -> None:
    with connect(broker.uri) as connection:
        send_from_threads(connection, senders=5, messages=14)
        check_order(connection, senders=5, messages=14)


def test_what_a_socket_takes_in_part_is_completed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the connection's thread: it takes a few bytes, all, or none, by turns."""
    turns, partial = count(), threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        turn = next(turns) % 3
        if turn == 0:
            partial.set()
            return WRITE(descriptor, data[: 1 + len(data) // 2])
        if turn == 1:
            raise BlockingIOError
        return WRITE(descriptor, data)

    with connect(broker.uri) as connection:
        monkeypatch.setattr("pybroker.client.wire.os.write", write)
        send_from_threads(connection, senders=3, messages=30)
        check_order(connection, senders=3, messages=30)
    assert partial.is_set()


def test_an_interruption_after_a_write_neither_loses_nor_repeats_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler of a signal may raise as soon as the write returns, here with half of the request."""
    interrupted = list[int]()

    def write_here(self: Wire, data: bytes, written: list[int]) -> None:
        half = data if interrupted else data[: len(data) // 2]
        original(self, half, written)
        if not interrupted:
            interrupted.extend(written)
            raise KeyboardInterrupt

    original = Wire.write_here
    with connect(broker.uri) as connection:
        monkeypatch.setattr(Wire, "write_here", write_here)
        with pytest.raises(KeyboardInterrupt):
            connection.send(QUEUE, "0:0:")
        connection.send(QUEUE, "0:1:x")
        check_order(connection, senders=1, messages=2)
    assert interrupted


def test_a_handler_of_a_signal_may_send_during_a_write(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message follows the one that is being written."""
    handled = list[object]()

    def write(descriptor: int, data: bytes) -> int:
        if not handled:
            handled.append(connection.begin_send(QUEUE, "0:1:x"))
        return WRITE(descriptor, data)

    with connect(broker.uri) as connection:
        monkeypatch.setattr("pybroker.client.wire.os.write", write)
        connection.send(QUEUE, "0:0:")
        check_order(connection, senders=1, messages=2)
    assert handled


def test_a_close_ends_the_sends_of_other_threads(broker: Broker) -> None:
    """Each has returned, and its message is stored, or it raises."""
    connection, confirmed, ends = connect(broker.uri), list[str](), list[Exception]()
    begun = threading.Semaphore(0)

    def run(sender: int) -> None:
        try:
            for number in count():
                connection.send(QUEUE, f"{sender}:{number}")
                confirmed.append(f"{sender}:{number}")
                begun.release()
        except ClientError as error:
            ends.append(error)

    threads = [threading.Thread(target=run, args=(sender,)) for sender in range(4)]
    for each in threads:
        each.start()
    for _ in range(40):
        assert begun.acquire(timeout=PATIENCE)
    connection.close()
    for each in threads:
        each.join(PATIENCE)
    assert len(ends) == 4
    with connect(broker.uri) as other:
        stored = {message.body for message in other.browse(QUEUE)}
    assert set(confirmed) <= stored


def test_a_lost_connection_does_not_write_to_the_next_file_of_its_descriptor(broker: Broker) -> None:
    with connect(broker.uri) as connection:
        link = connection._wrapped._link
        wire = link._wire
        assert wire is not None
        sock = wire.socket()
        assert sock is not None
        descriptor = sock.fileno()
        connection.send(QUEUE, "x")
        broker.kill9()
        with pytest.raises(ConnectionFailed):
            connection.send(QUEUE, "x", timeout=PATIENCE)
        opened = list[int]()
        try:
            while descriptor not in opened:
                opened += os.pipe()
                assert len(opened) < 100, "the descriptor is not free"
            written = list[int]()
            wire.write_here(b"x", written)
            assert written == []
        finally:
            for each in opened:
                os.close(each)
