# mypy: disable-error-code="arg-type, operator"
"""The broker's own ids: what stays the same over restarts and take-overs, and what never comes again."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pybroker.broker.domain.openwire.commands import BrokerInfo
from pybroker.broker.domain.openwire.marshal.wireformat import agree, decode_offer, encode_offer
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.stomp_client import StompClient
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database
from tests.unit.transports.openwire.conversation import JAVA

__all__ = ["postgres_cluster", "postgres_database"]


class Shown(NamedTuple):
    """Identity of the broker that clients see."""

    broker_id: str
    name: str


def in_broker_info(port: int) -> Shown:
    """Return the BrokerInfo an OpenWire client gets after its ConnectionInfo."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link, link.makefile("rb") as stream:

        def frame() -> bytes:
            return stream.read(int.from_bytes(stream.read(4)))

        offer = decode_offer(frame())
        link.sendall(encode_offer(JAVA))
        info = agree(offer, JAVA).wire_format().decode(frame())
    assert isinstance(info, BrokerInfo)
    assert info.broker_id is not None
    return Shown(str(info.broker_id.value), str(info.broker_name))


def in_advisory(port: int, queue: str) -> tuple[Shown, str]:
    """Return the origin and the message id of the advisory about a new queue."""
    listener, client = StompClient(port), StompClient(port)
    assert listener.request("SUBSCRIBE", id="1", destination="/topic/ActiveMQ.Advisory.Queue").command == "RECEIPT"
    listener.backlog.clear()
    client.send("SEND", b"x", destination=f"/queue/{queue}")
    headers = listener.read_until("MESSAGE").headers
    listener.close()
    client.close()
    return Shown(headers["originBrokerId"], headers["originBrokerName"]), headers["message-id"]


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


def test_restarts_change_neither_id_nor_name(brokers: list[BrokerProcess], store: str) -> None:
    """The first stop is orderly, the second a kill; the message ids of advisories never come again."""
    shown, message_ids = [], []
    for number, end in enumerate((BrokerProcess.terminate, BrokerProcess.kill, BrokerProcess.kill)):
        openwire = free_port()
        broker = begun(brokers, store, "--openwire", str(openwire), "--broker-name", "orders")
        origin, message_id = in_advisory(broker.port, f"Q{number}")
        shown += [in_broker_info(openwire), origin]
        message_ids.append(message_id)
        end(broker)
    assert set(shown) == {Shown(shown[0].broker_id, "orders")}
    assert len(set(message_ids)) == 3


def test_a_take_over_changes_neither_id_nor_name(tmp_path: Path) -> None:
    take_over(str(tmp_path / "data"))


def test_a_take_over_in_a_database_changes_neither(postgres_database: PostgresDatabase) -> None:
    take_over(postgres_database.url)


def take_over(store: str) -> None:
    """Kill a master, and see that the next one is the same broker by another member's hand."""
    openwire = free_port()
    with Pair(store, "--openwire", str(openwire)) as pair:
        master, standby = pair.wait_for_master(), pair.wait_for_standby()
        before, message_id = in_advisory(master.port, "Q1")
        assert in_broker_info(openwire) == before
        assert before.broker_id.startswith("ID:")
        assert before.name == "localhost"
        master.kill()
        standby.wait_for("listening on")
        after, other_message_id = in_advisory(standby.port, "Q2")
        assert in_broker_info(openwire) == before == after
        assert other_message_id != message_id
        assert pair.wait_for_status(lambda status: status["master"] == standby.name)
