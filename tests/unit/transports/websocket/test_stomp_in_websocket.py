"""STOMP's own session within WebSocket: answers, limits, memory and timers are those of a connection over TCP."""

from typing import Any

import pytest

from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.transports.session import Link
from pybroker.transports.stomp.session import StompSession
from pybroker.transports.websocket.receiver import PIECE_BYTES
from tests.unit.transports.stomp.conftest import NOW_MS, FakeBroker
from tests.unit.transports.websocket.conversation import (
    BINARY,
    CLOSE,
    CONTINUATION,
    TEXT,
    Conversation,
    close_code,
    frame,
    upgraded,
)

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0"
LIMITS = StompLimits(body_bytes=200_000)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def client(broker: FakeBroker) -> Conversation:
    """A connected client."""

    def make(link: Link) -> Any:
        return StompSession(
            broker=broker,  # type: ignore[arg-type]
            link=link,
            connection_id="ID:c",
            limits=LIMITS,
            clock=lambda: NOW_MS,
        )

    conversation = upgraded(make)
    assert conversation.link.wake == 130.0
    ((opcode, answer),) = conversation.ask(frame(TEXT, CONNECT))
    assert opcode == TEXT
    assert answer.startswith(b"CONNECTED\nversion:1.2\n")
    assert conversation.session.is_connected
    return conversation


def last_call(client: Conversation) -> tuple[object, ...]:
    return client.link.calls[-1]


def test_idle_connection_has_no_timer(client: Conversation) -> None:
    assert client.link.wake is None


def test_disconnect_and_error_have_their_codes(client: Conversation) -> None:
    answers = client.ask(frame(TEXT, b"DISCONNECT\nreceipt:r\n\n\0"))
    assert answers == [(TEXT, b"RECEIPT\nreceipt-id:r\n\n\0\n"), (CLOSE, (1000).to_bytes(2))]
    assert client.link.is_closed


def test_error_that_ends_the_connection_has_its_code(client: Conversation) -> None:
    error, close = client.ask(frame(TEXT, b"BOGUS\n\n\0SEND\ndestination:/queue/Q\n\nx\0"))
    assert error[1].startswith(b"ERROR\n")
    assert close_code(close[1]) == 1002


def test_error_that_does_not_end_it_is_a_message(client: Conversation) -> None:
    ((opcode, error),) = client.ask(frame(TEXT, b"SEND\n\nx\0"))
    assert (opcode, error[:6]) == (TEXT, b"ERROR\n")
    assert client.ask(frame(TEXT, b"DISCONNECT\n\n\0"))[-1] == (CLOSE, (1000).to_bytes(2))


@pytest.mark.parametrize("size", [65_536, 65_537, LIMITS.body_bytes])
def test_message_may_be_as_long_as_over_tcp(client: Conversation, broker: FakeBroker, size: int) -> None:
    assert client.ask(frame(TEXT, b"SEND\ndestination:/queue/Q\n\n" + b"x" * size + b"\0")) == []
    assert b"x" * size in bytes(broker.received[0].data)


def test_message_that_is_too_long_is_refused_by_stomp(client: Conversation) -> None:
    head = b"SEND\ndestination:/queue/Q\ncontent-length:%d\n\n" % (LIMITS.body_bytes + 1)
    error, close = client.ask(frame(TEXT, head + b"x" * 60_000))
    assert b"The maximum data length was exceeded" in error[1]
    assert close_code(close[1]) == 1002


def test_memory_of_an_unfinished_frame_is_reserved_from_its_head_on(client: Conversation) -> None:
    head = b"SEND\ndestination:/queue/Q\ncontent-length:150000\n\n"
    data = frame(BINARY, head + bytes(150_000) + b"\0")
    client.feed(data[: 3 * PIECE_BYTES])
    assert client.link.calls == []
    client.feed(data[3 * PIECE_BYTES : 4 * PIECE_BYTES])
    assert last_call(client) == ("reserve", len(head) + 150_001, 3 * PIECE_BYTES)
    client.feed(data[4 * PIECE_BYTES :])
    assert last_call(client) == ("release frame",)


def test_stomp_frame_in_many_messages_is_reserved_too(client: Conversation, broker: FakeBroker) -> None:
    head = b"SEND\ndestination:/queue/Q\ncontent-length:100000\n\n"
    client.feed(frame(TEXT, head), *(frame(TEXT, b"y" * 10_000) for _ in range(9)))
    assert last_call(client) == ("reserve", len(head) + 100_001, len(head) + 90_000)
    client.feed(frame(TEXT, b"y" * 5_000, fin=False), frame(CONTINUATION, b"y" * 5_000), frame(TEXT, b"\0"))
    assert last_call(client) == ("release frame",)
    assert len(broker.received) == 1
