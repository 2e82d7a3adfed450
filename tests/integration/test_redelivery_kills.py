"""A message that a consumer has rejected survives the master: it comes again after its delay, or is a dead letter."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

SETTINGS = """\
[[redelivery.policies]]
queue = "REDELIVERED"
maximum_redeliveries = 2
"""
QUEUE = "/queue/REDELIVERED"
DEAD_LETTERS = "/queue/ActiveMQ.DLQ"
COUNT = 20


@contextmanager
def broker(directory: Path) -> Iterator[tuple[BrokerProcess, StompClient]]:
    """A member on the store, with a client."""
    file = directory / "pybroker.toml"
    file.write_text(SETTINGS)
    port = free_port()
    extra = ("--config", str(file), "--openwire", "off")
    member = BrokerProcess(str(directory / "store"), name="a", port=port, extra=extra)
    try:
        member.wait_for("listening on")
        with closing(StompClient(port)) as client:
            yield member, client
    finally:
        member.close()


def subscribe(client: StompClient) -> None:
    client.send("SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual")


@pytest.mark.parametrize("waits", [True, False])
def test_rejected_messages_survive_a_kill(tmp_path: Path, waits: bool) -> None:
    """Killed after the receipt of the last rejection, or as soon as all rejections are sent."""
    bodies = [f"m{number}".encode() for number in range(COUNT)]
    with broker(tmp_path) as (member, client):
        for body in bodies:
            client.request("SEND", body, destination=QUEUE, persistent="true")
        subscribe(client)
        frames = [client.read() for _ in bodies]
        for frame in frames[:-1]:
            client.send("NACK", id=frame.headers["ack"])
        if waits:
            client.request("NACK", id=frames[-1].headers["ack"])
        member.kill()
    with broker(tmp_path) as (_, client):
        subscribe(client)
        found = [client.read() for _ in bodies]
        assert sorted(frame.body for frame in found) == sorted(bodies), "each once"
        if waits:
            assert {frame.headers["redeliveryDelay"] for frame in found} == {"1000"}
            assert {frame.headers["redelivered"] for frame in found} == {"true"}
        for frame in found:
            client.request("ACK", id=frame.headers["ack"])
        client.send("SUBSCRIBE", id="dead", destination=DEAD_LETTERS)
        client.send("SEND", b"end", destination=DEAD_LETTERS)
        assert client.read().body == b"end", "none is a dead letter"


def test_count_survives_kills(tmp_path: Path) -> None:
    """Two redeliveries are allowed, whichever master makes them."""
    with broker(tmp_path) as (member, client):
        client.request("SEND", b"m", destination=QUEUE, persistent="true")
        subscribe(client)
        client.request("NACK", id=client.read().headers["ack"])
        member.kill()
    with broker(tmp_path) as (member, client):
        subscribe(client)
        client.request("NACK", id=client.read().headers["ack"])
        member.kill()
    with broker(tmp_path) as (_, client):
        subscribe(client)
        client.request("NACK", id=client.read().headers["ack"])
        client.send("SUBSCRIBE", id="dead", destination=DEAD_LETTERS)
        letter = client.read()
        assert (letter.body, letter.headers["destination"]) == (b"m", DEAD_LETTERS)
