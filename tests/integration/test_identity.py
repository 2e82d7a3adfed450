"""The broker's own ids in its life: what stays the same over restarts and take-overs, and what never comes again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def brokers() -> Iterator[list[BrokerProcess]]:
    """Return a list whose processes are ended with the test."""
    started: list[BrokerProcess] = []
    yield started
    for each in started:
        each.close()


def begun(brokers: list[BrokerProcess], store: str, *extra: str) -> BrokerProcess:
    """Return a broker that serves."""
    broker = BrokerProcess(store, name="a", port=free_port(), extra=extra)
    brokers.append(broker)
    broker.wait_for("listening on")
    return broker


def test_copies_of_a_message_commit_no_open_transaction(brokers: list[BrokerProcess], store: str) -> None:
    """The broker stores the copies in a transaction of its own, whose id no client's first transaction has."""
    broker = begun(brokers, store)
    first, second = StompClient(broker.port), StompClient(broker.port)
    first.send("BEGIN", transaction="t")
    assert first.request("SEND", b"open", destination="/queue/Q", persistent="true", transaction="t").command
    assert second.request("SEND", b"copied", destination="/queue/A,/queue/Q", persistent="true").command == "RECEIPT"
    broker.kill()
    broker = begun(brokers, store)
    client = StompClient(broker.port)
    client.send("SUBSCRIBE", id="1", destination="/queue/Q", ack="auto")
    assert client.request("SEND", b"last", destination="/queue/Q", persistent="true").command == "RECEIPT"
    bodies = [frame.body for frame in client.backlog]
    while b"last" not in bodies:
        bodies.append(client.read().body)
    assert bodies == [b"copied", b"last"]
    for each in (first, second, client):
        each.close()
