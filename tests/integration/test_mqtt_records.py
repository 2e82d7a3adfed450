"""Retained messages and sessions of MQTT over masters that are killed, end to end.

Nothing that was answered is lost, or comes back.
"""

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import mqtt_packets as packets
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient
from tests.integration.test_mqtt import SECONDS, Device
from tests.postgres_cluster import postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

Start = Callable[..., BrokerProcess]
TOPICS = 60
END = "end"


class Publisher:
    """A device that publishes retained messages with QoS 1, and knows what a broker may have of each topic.

    Attributes:
        possible: by topic, the payload that was answered last, and those behind it that were not; empty: removed.
    """

    def __init__(self, seed: int) -> None:
        self.possible: dict[str, set[bytes]] = {f"retained/{number}": {b""} for number in range(TOPICS)}
        self._random = random.Random(seed)
        self._number = 0

    def burst(self, device: Device, count: int, unanswered: int) -> None:
        """Publish messages that are answered, and some more of which no answer is awaited."""
        sent: list[tuple[int, str, bytes]] = []
        for _ in range(count + unanswered):
            self._number += 1
            topic = self._random.choice(list(self.possible))
            payload = b"" if self._random.random() < 0.3 else b"%d" % self._number
            packet_id = self._number % 60_000 + 1
            self.possible[topic].add(payload)
            device.socket.sendall(packets.publish(topic, payload, qos=1, packet_id=packet_id, retain=True))
            sent.append((packet_id, topic, payload))
        for place, (packet_id, topic, payload) in enumerate(sent[:count]):
            assert device.receive() == (packets.PUBACK, packets.short(packet_id))
            later = {each for _, other, each in sent[place + 1 :] if other == topic}
            self.possible[topic] = {payload, *later}


def held(ports: list[int]) -> dict[str, bytes]:
    """Return the retained messages that a new subscriber gets: those before the one of the topic `END`."""
    found: dict[str, bytes] = {}
    with Device(ports, "reader", clean=True) as device:
        device.subscribe(("retained/+", 1), (END, 1))
        while True:
            topic, payload, _ = device.message()
            if topic == END:
                return found
            assert topic not in found
            found[topic] = payload


@pytest.fixture(params=["directory", "database"])
def members(
    request: pytest.FixtureRequest, start: Start, tmp_path: Path
) -> tuple[dict[int, BrokerProcess], Callable[[int], None]]:
    """Two members on one store by their MQTT ports, and how to replace one that is killed."""
    running: dict[int, BrokerProcess] = {}
    store, extra = str(tmp_path / "store"), list[str]()
    if request.param == "database":
        store, extra = request.getfixturevalue("postgres_database").url, ["--lock", "postgres-row"]

    def begin(number: int) -> None:
        running[number] = start("--mqtt", str(number), *extra, store=store, name=f"n{number}")

    for number in (free_port(), free_port()):
        begin(number)
    return running, begin


def test_killed_masters_lose_and_revive_no_retained_message(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    running, begin = members
    ports = list(running)
    publisher = Publisher(seed=7)
    with Device(ports, "publisher", clean=True) as device:
        device.socket.sendall(packets.publish(END, b"end", qos=1, packet_id=1, retain=True))
        assert device.receive()[0] == packets.PUBACK
    for round_number in range(6):
        with Device(ports, "publisher", clean=True) as device:
            publisher.burst(device, 80, 40)
            running[device.port].kill()
            begin(device.port)
        found = held(ports)
        assert len(found) > 10, round_number
        for topic, possible in publisher.possible.items():
            payload = found.get(topic, b"")
            assert payload in possible, (round_number, topic)
            publisher.possible[topic] = {payload}


def test_stomp_producer_and_subscriber_have_them_after_a_kill(start: Start, tmp_path: Path) -> None:
    store, port = tmp_path / "store", free_port()
    first = start("--mqtt", str(port), store=store)
    first.wait_for("listening on")
    with closing(StompClient(first.port)) as stomp, Device([port], "device", clean=True) as device:
        stomp.request("SEND", b"by STOMP", destination="/topic/s.a", persistent="true", **{"ActiveMQ.Retain": "true"})
        stomp.request("SEND", b"not persistent", destination="/topic/s.b", **{"ActiveMQ.Retain": "true"})
        device.socket.sendall(packets.publish("s/c", b"by MQTT", qos=1, packet_id=1, retain=True))
        assert device.receive()[0] == packets.PUBACK
    first.kill()
    second = start("--mqtt", str(port), store=store)
    second.wait_for("listening on")
    with closing(StompClient(second.port)) as stomp, Device([port], "device", clean=True) as device:
        headers: dict[str, Any] = {"activemq.retroactive": "true", "destination": "/topic/s.*", "id": "1"}
        stomp.request("SUBSCRIBE", **headers)
        frames = [stomp.read() for _ in range(3)]
        assert sorted(frame.body for frame in frames) == [b"by MQTT", b"by STOMP", b"not persistent"]
        assert {frame.headers["ActiveMQ.Retained"] for frame in frames} == {"true"}
        device.subscribe(("s/#", 1))
        assert {device.message()[:2] for _ in range(3)} == {
            ("s/a", b"by STOMP"),
            ("s/b", b"not persistent"),
            ("s/c", b"by MQTT"),
        }


def test_tools_and_queues_show_the_records_as_one_queue(start: Start, tmp_path: Path) -> None:
    """`check` finds nothing wrong with a store that has records; a client cannot reach their queue."""
    store, port = tmp_path / "store", free_port()
    broker = start("--mqtt", str(port), store=store)
    broker.wait_for("listening on")
    with Device([port], "device", clean=True) as device:
        device.socket.sendall(packets.publish("a", b"x", qos=1, packet_id=1, retain=True))
        assert device.receive()[0] == packets.PUBACK
    with closing(StompClient(broker.port)) as stomp:
        stomp.send("SUBSCRIBE", id="1", destination="/queue/ActiveMQ.Retained")
        assert "is the broker's own" in stomp.read_until("ERROR").headers["message"]
    broker.kill()
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "journal", "check", str(store)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_session_goes_on_over_two_kills(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    """With a filter with QoS 0, and a wildcard of which no topic exists."""
    running, begin = members
    ports = list(running)
    with Device(ports, "device") as device:
        assert not device.is_session_present
        device.subscribe(("state/#", 0), ("new/+", 1), ("plain/x", 2))
    for round_number in range(2):
        with Device(ports, "publisher", clean=True) as publisher:
            running[publisher.port].kill()
            begin(publisher.port)
        with Device(ports, "publisher", clean=True) as publisher:
            publisher.publish("new/a", b"%d" % round_number, 1)
        with Device(ports, "device") as device:
            assert device.is_session_present
            assert device.message()[:2] == ("new/a", b"%d" % round_number)
            with Device([device.port], "publisher", clean=True) as publisher:
                publisher.publish("state/y", b"y", 1)
            assert device.message()[:2] == ("state/y", b"y")


def test_session_expiry_goes_on_after_a_kill(start: Start, tmp_path: Path) -> None:
    store, port = tmp_path / "store", free_port()
    first = start("--mqtt", str(port), store=store)
    first.wait_for("listening on")
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as device:
        device.sendall(packets.connect("device", level=5, pieces=(b"\x11\0\0\0\1",)))
        device.sendall(packets.subscribe(1, ("t", 1), pieces=()))
        received = b""
        while b"\x90" not in received:  # SUBACK: it is in the store
            received += device.recv(1 << 16)
        first.kill()
    second = start("--mqtt", str(port), store=store)
    second.wait_for("the session of device has ended: its subscription AT_LEAST_ONCE:t is deleted")
