"""AMQP end to end: qpid-proton as client, over sockets, WebSocket and TLS, and masters that are killed."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
from proton import ConnectionException, Message, ProtonException
from proton.utils import BlockingConnection

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

Start = Callable[..., BrokerProcess]
SECONDS: Final = 30.0
NOTHING_SECONDS: Final = 0.2
"""The time in which nothing comes."""


def connect(*ports: int, container: str | None = None, **options: Any) -> BlockingConnection:
    """Connect to whichever member serves."""
    deadline = time.monotonic() + SECONDS
    while True:
        for port in ports:
            try:
                return BlockingConnection(f"127.0.0.1:{port}", timeout=SECONDS, container_id=container, **options)
            except (ConnectionException, OSError):
                assert time.monotonic() < deadline, "no member serves"
        time.sleep(0.01)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Closes what a test has opened."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def port(start: Start) -> int:
    """The AMQP port of a broker on a store in memory."""
    number = free_port()
    start("--amqp", str(number), store="memory:").wait_for("listening on")
    return number


@pytest.fixture
def members(start: Start, tmp_path: Path) -> tuple[dict[int, BrokerProcess], Callable[[int], None]]:
    """Two members on one store by their AMQP ports, and how to replace one that is killed."""
    running: dict[int, BrokerProcess] = {}

    def begin(number: int) -> None:
        running[number] = start("--amqp", str(number), store=tmp_path / "store", name=f"n{number}")

    for number in (free_port(), free_port()):
        begin(number)
    return running, begin


def test_proton_sends_and_receives(port: int) -> None:
    with closing(connect(port)) as connection:
        sender = connection.create_sender("queue://q")
        sender.send(Message(body="hello", properties={"x": 1}, durable=True))
        receiver = connection.create_receiver("q", credit=1)
        message = receiver.receive(timeout=SECONDS)
        assert message.body == "hello"
        assert message.properties == {"x": 1}
        assert message.delivery_count == 0
        receiver.accept()


def test_large_message(port: int) -> None:
    body = bytes(range(256)) * 8192
    with closing(connect(port)) as connection:
        connection.create_sender("large").send(Message(body=body, durable=True))
        receiver = connection.create_receiver("large", credit=1)
        assert receiver.receive(timeout=SECONDS).body == body
        receiver.accept()


def test_one_port_takes_amqp_too(start: Start) -> None:
    number = free_port()
    start("--auto", str(number), store="memory:").wait_for("listening on")
    with closing(connect(number)) as connection:
        connection.create_sender("q").send(Message(body="x"))
        assert connection.create_receiver("q", credit=1).receive(timeout=SECONDS).body == "x"


def test_stomp_and_amqp(start: Start) -> None:
    number = free_port()
    broker = start("--amqp", str(number), "--amqp-transformer", "jms", store="memory:")
    broker.wait_for("listening on")
    with closing(connect(number)) as connection, closing(StompClient(broker.port)) as stomp:
        stomp.request("SUBSCRIBE", id="1", destination="/queue/to-stomp")
        connection.create_sender("queue://to-stomp").send(Message(body="from AMQP", properties={"x": "y"}))
        frame = stomp.read()
        assert (frame.body, frame.headers["x"]) == (b"from AMQP", "y")
        stomp.send("SEND", b"from STOMP", destination="/queue/to-amqp", persistent="true")
        receiver = connection.create_receiver("to-amqp", credit=1)
        message = receiver.receive(timeout=SECONDS)
        assert (message.body, message.durable) == ("from STOMP", True)


def test_nothing_that_was_accepted_is_lost_when_masters_are_killed(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    """Every message that was accepted is delivered, whichever members were killed."""
    running, begin = members
    ports = list(running)
    accepted: list[str] = []
    for round_number in range(4):
        connection = connect(*ports)
        sender = connection.create_sender("queue://kills")
        for number in range(40):
            body = f"{round_number}.{number}"
            sender.send(Message(body=body, durable=True))
            accepted.append(body)
        assert connection.conn is not None
        master = int(connection.conn.connected_address.rpartition(":")[2])
        running[master].kill()
        begin(master)
        with pytest.raises(ProtonException):
            sender.send(Message(body="lost", durable=True), timeout=SECONDS)
    received: set[str] = set()
    with closing(connect(*ports)) as connection:
        receiver = connection.create_receiver("queue://kills", credit=50)
        while len(received) < len(accepted):
            received.add(str(receiver.receive(timeout=SECONDS).body))
            receiver.accept()
    assert sorted(received) == sorted(accepted)
