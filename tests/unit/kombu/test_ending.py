"""An event waits for a broker, but not in a worker that ends."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.client import ConnectionClosed, ConnectionFailed
from pybroker.kombu import ending


@pytest.fixture
def connection() -> Any:
    """A connection without a broker."""
    return SimpleNamespace(broker=None, error=None)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_is_ending", False)
    monkeypatch.setattr(ending, "_LOOK_SECONDS", 0.001)


def test_an_event_waits_for_a_broker(connection: Any) -> None:
    waiting = threading.Thread(target=ending.await_broker, args=(connection,))
    waiting.start()
    waiting.join(0.02)
    assert waiting.is_alive()
    connection.broker = "tcp://a:61616"
    waiting.join(10)
    assert not waiting.is_alive()


def test_it_is_not_sent_while_there_is_none_at_the_end(connection: Any) -> None:
    ending.begin()
    with pytest.raises(ConnectionFailed, match="shutting down"):
        ending.await_broker(connection)


def test_it_is_sent_at_the_end_while_there_is_one(connection: Any) -> None:
    ending.begin()
    connection.broker = "tcp://a:61616"
    ending.await_broker(connection)


def test_it_does_not_wait_where_none_can_come(connection: Any) -> None:
    connection.error = ConnectionClosed("closed")
    ending.await_broker(connection)
