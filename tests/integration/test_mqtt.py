"""MQTT end to end: paho and plain sockets as clients, a store of ActiveMQ's, and masters that are killed."""

import queue
import socket
import tarfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests import mqtt_packets as packets
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

Start = Callable[..., BrokerProcess]
SECONDS: Final = 30.0
SESSION_STORE: Final = Path(__file__).parents[1] / "golden" / "mqtt" / "06-session-store.tar.gz"


class Device:
    """A client of MQTT 3.1.1 over a plain socket, which waits for what it needs."""

    def __init__(self, ports: list[int], client_id: str, *, clean: bool = False) -> None:
        """Connect to whichever member serves."""
        self._data = b""
        deadline = time.monotonic() + SECONDS
        while True:
            for port in ports:
                if self._is_accepted(port, client_id, clean=clean):
                    self.port = port
                    return
            assert time.monotonic() < deadline, "no member serves"
            time.sleep(0.01)

    def _is_accepted(self, port: int, client_id: str, *, clean: bool) -> bool:
        """Connect to a member; return False if it does not serve."""
        self._data = b""
        with ExitStack() as unused:
            try:
                self.socket = unused.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
                self.socket.sendall(packets.connect(client_id, clean=clean))
                head, body = self.receive()
            except OSError:
                return False
            assert (head, body[1]) == (0x20, 0)
            self.is_session_present = body[0] == 1
            unused.pop_all()
        return True

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def receive(self) -> tuple[int, bytes]:
        """Return the first byte and the content of the next packet.

        Raises:
            OSError: the connection has ended.
        """
        while True:
            if len(self._data) >= 2:
                length, at = 0, 1
                while at < len(self._data):
                    length |= (self._data[at] & 0x7F) << 7 * (at - 1)
                    at += 1
                    if self._data[at - 1] < 0x80:
                        break
                if self._data[at - 1] < 0x80 and len(self._data) >= at + length:
                    found = self._data[0], self._data[at : at + length]
                    self._data = self._data[at + length :]
                    return found
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the broker has closed")
            self._data += chunk

    def message(self) -> tuple[str, bytes, int]:
        """Return the next message: topic, payload and packet identifier; answer it, and those before."""
        head, body = self.receive()
        while head == packets.PUBREL:  # of an earlier message
            self.socket.sendall(packets.packet(packets.PUBCOMP, body))
            head, body = self.receive()
        assert head >> 4 == 3, (head, body)
        end = 2 + int.from_bytes(body[:2], "big")
        topic, qos, packet_id = body[2:end].decode(), head >> 1 & 3, 0
        if qos:
            packet_id, end = int.from_bytes(body[end : end + 2], "big"), end + 2
            kind = packets.PUBACK if qos == 1 else packets.PUBREC
            self.socket.sendall(packets.packet(kind, packets.short(packet_id)))
        return topic, body[end:], packet_id

    def subscribe(self, *filters: tuple[str, int]) -> None:
        """Subscribe, and wait for the answer."""
        self.socket.sendall(packets.subscribe(1, *filters))
        head, _ = self.receive()
        assert head == 0x90

    def publish(self, topic: str, payload: bytes, packet_id: int) -> None:
        """Publish with QoS 1, and wait for the answer."""
        self.socket.sendall(packets.publish(topic, payload, qos=1, packet_id=packet_id))
        assert self.receive() == (packets.PUBACK, packets.short(packet_id))


class Paho:
    """A client of the library paho, whose messages wait in a queue."""

    def __init__(
        self,
        port: int,
        client_id: str,
        *,
        version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv311,
        transport: Literal["tcp", "websockets"] = "tcp",
    ) -> None:
        options: dict[str, Any] = {} if version is MQTTProtocolVersion.MQTTv5 else {"clean_session": True}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **options
        )
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.answers: queue.Queue[str] = queue.Queue()
        self.client.on_connect = lambda *_: self.answers.put("connected")
        self.client.on_subscribe = lambda *_: self.answers.put("subscribed")
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.answers.get(timeout=SECONDS) == "connected"

    def __enter__(self) -> "Paho":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, text: str, qos: int) -> None:
        self.client.subscribe(text, qos)
        assert self.answers.get(timeout=SECONDS) == "subscribed"

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos, retain).wait_for_publish(SECONDS)

    def receive(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=SECONDS)


@pytest.fixture
def port(start: Start) -> int:
    """The MQTT port of a broker on a store in memory."""
    number = free_port()
    start("--mqtt", str(number), store="memory:").wait_for("listening on")
    return number


@pytest.fixture
def members(start: Start, tmp_path: Path) -> tuple[dict[int, BrokerProcess], Callable[[int], None]]:
    """Two members on one store by their MQTT ports, and how to replace one that is killed."""
    running: dict[int, BrokerProcess] = {}

    def begin(number: int) -> None:
        running[number] = start("--mqtt", str(number), store=tmp_path / "store", name=f"n{number}")

    for number in (free_port(), free_port()):
        begin(number)
    return running, begin


@pytest.mark.parametrize("version", list(MQTTProtocolVersion))
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_paho_sends_and_receives(port: int, version: MQTTProtocolVersion, qos: int) -> None:
    with Paho(port, "receiver", version=version) as receiver, Paho(port, "sender", version=version) as sender:
        receiver.subscribe("a/+", qos)
        sender.publish("a/b", b"hello", qos)
        message = receiver.receive()
        assert (message.topic, message.payload, message.qos) == ("a/b", b"hello", qos)


def test_large_message(port: int) -> None:
    body = bytes(range(256)) * 8192
    with Paho(port, "receiver") as receiver, Paho(port, "sender") as sender:
        receiver.subscribe("large", 1)
        sender.publish("large", body, 1)
        assert receiver.receive().payload == body


def test_web_pages_use_websocket(start: Start) -> None:
    number = free_port()
    start("--ws", str(number), store="memory:").wait_for("listening on")
    with Paho(number, "page", transport="websockets") as page:
        page.subscribe("t", 1)
        page.publish("t", b"x", 1)
        assert page.receive().payload == b"x"


def test_one_port_takes_mqtt_too(start: Start) -> None:
    number = free_port()
    start("--auto", str(number), store="memory:").wait_for("listening on")
    with Paho(number, "one") as client:
        client.subscribe("t", 1)
        client.publish("t", b"x", 1)
        assert client.receive().payload == b"x"


def test_stomp_and_mqtt(start: Start) -> None:
    number = free_port()
    broker = start("--mqtt", str(number), store="memory:")
    broker.wait_for("listening on")
    with Paho(number, "device") as device, closing(StompClient(broker.port)) as stomp:
        device.subscribe("a/#", 1)
        stomp.request("SUBSCRIBE", id="1", destination="/topic/b.>")
        stomp.send("SEND", b"from STOMP", destination="/topic/a.b", persistent="true")
        message = device.receive()
        assert (message.topic, message.payload, message.qos) == ("a/b", b"from STOMP", 1)
        device.publish("b/c", b"from MQTT", 2)
        frame = stomp.read()
        assert frame.headers["destination"] == "/topic/b.c"
        assert frame.headers["ActiveMQ.MQTT.QoS"] == "2"
        assert frame.headers["content-length"] == "9"
        assert frame.body == b"from MQTT"


def test_session_of_activemq_goes_on(start: Start, tmp_path: Path) -> None:
    """The store is one that an ActiveMQ left at `kill -9`; the client gets its backlog before it subscribes."""
    with tarfile.open(SESSION_STORE) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    number = free_port()
    start("--mqtt", str(number)).wait_for("listening on")
    with Device([number], "dev1") as device:
        assert device.is_session_present
        found = [device.message() for _ in range(4)]
    assert sorted(payload for _, payload, _ in found) == [b"m0", b"m1", b"m2", b"two"]
    assert {topic.partition("/")[0] for topic, _, _ in found} == {"t"}


def test_session_of_mqtt_5_ends_at_its_expiry(start: Start) -> None:
    """Its durable subscription is deleted without the client, and its will is published."""
    number = free_port()
    broker = start("--mqtt", str(number), store="memory:")
    broker.wait_for("listening on")
    with Paho(number, "watcher") as watcher:
        watcher.subscribe("will", 1)
        with socket.create_connection(("127.0.0.1", number), timeout=SECONDS) as device:
            device.sendall(
                packets.connect(
                    "device",
                    level=5,
                    will=("will", b"gone"),
                    pieces=(b"\x11\0\0\0\1",),
                    will_pieces=(b"\x18\0\0\0\x09",),
                )
            )
            device.sendall(packets.subscribe(1, ("t", 1), pieces=()))
            assert device.recv(1) == b"\x20"
        message = watcher.receive()
        assert (message.topic, message.payload) == ("will", b"gone")
    broker.wait_for("the session of device has ended: its subscription AT_LEAST_ONCE:t is deleted")


def test_nothing_that_was_answered_is_lost_when_masters_are_killed(
    members: tuple[dict[int, BrokerProcess], Callable[[int], None]],
) -> None:
    """A client with a session gets every message whose PUBLISH was answered, whichever members were killed."""
    running, begin = members
    ports = list(running)
    answered: list[bytes] = []
    with Device(ports, "receiver") as receiver:
        receiver.subscribe(("t/#", 1))
    for round_number in range(5):
        with Device(ports, "sender") as sender:
            for number in range(40):
                payload = b"%d.%d" % (round_number, number)
                sender.publish("t/x", payload, number + 1)
                answered.append(payload)
            master = sender.port
            running[master].kill()
            begin(master)
    received: list[bytes] = []
    with Device(ports, "receiver") as receiver:
        assert receiver.is_session_present
        while len(set(received)) < len(answered):
            received.append(receiver.message()[1])
    assert sorted(set(received)) == sorted(answered)


def test_connack_has_the_limits_of_the_settings(start: Start) -> None:
    port = free_port()
    settings = ("--mqtt-keep-alive-max", "1m", "--mqtt-receive-maximum", "7")
    start("--mqtt", str(port), *settings, store="memory:").wait_for("listening on")
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        client.sendall(packets.connect("dev1", level=5, keep_alive=0))
        answer = client.recv(1 << 12)
    assert b"\x13" + packets.short(60) in answer  # Server Keep Alive
    assert b"\x21" + packets.short(7) in answer  # Receive Maximum


def test_queues_of_virtual_topics_survive_kills(start: Start) -> None:
    port = free_port()
    settings = ("--mqtt", str(port), "--mqtt-subscription-strategy", "mqtt-virtual-topic-subscriptions")
    broker = start(*settings)
    broker.wait_for("listening on")
    with Device([port], "dev1") as device:
        device.subscribe(("t/+", 1), ("new/+", 2))  # no topic exists yet
    broker.kill()
    broker = start(*settings)
    broker.wait_for("listening on")
    with Device([port], "sender", clean=True) as sender:
        sender.publish("t/a", b"1", 1)
        sender.publish("new/a", b"2", 2)
    broker.kill()
    broker = start(*settings)
    broker.wait_for("listening on")
    with Device([port], "dev1") as device:
        assert device.is_session_present
        assert [device.message()[:2] for _ in range(2)] == [("t/a", b"1"), ("new/a", b"2")]
    with closing(StompClient(broker.port)) as stomp:
        stomp.request("SUBSCRIBE", id="1", destination="/queue/Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.t.*")
        with Device([port], "sender", clean=True) as sender:
            sender.publish("t/b", b"3", 1)
        frame = stomp.read_until("MESSAGE", **{"original-destination": "/topic/VirtualTopic.t.b"})
        assert frame.body == b"3"


@pytest.mark.parametrize("strategy", ["mqtt-default-subscriptions", "mqtt-virtual-topic-subscriptions"])
def test_a_thousand_filters_of_one_client_survive_a_kill(start: Start, strategy: str) -> None:
    port, count = free_port(), 1000
    settings = ("--mqtt", str(port), "--mqtt-subscription-strategy", strategy)
    broker = start(*settings)
    broker.wait_for("listening on")
    filters = [(f"d/{number}/+", 1) for number in range(count)]
    with Device([port], "dev1") as device:
        device.subscribe(*filters)
    with Device([port], "sender", clean=True) as sender:
        data = [packets.publish(f"d/{each}/t", b"%d" % each, qos=1, packet_id=each + 1) for each in range(count)]
        sender.socket.sendall(b"".join(data))
        assert {sender.receive()[0] for _ in data} == {packets.PUBACK}
    broker.kill()
    start(*settings).wait_for("listening on")
    with Device([port], "dev1") as device:
        assert device.is_session_present
        assert {device.message()[:2] for _ in range(count)} == {(f"d/{each}/t", b"%d" % each) for each in range(count)}
        device.subscribe(*filters)
        device.socket.sendall(packets.unsubscribe(2, *(text for text, _ in filters)))
        assert device.receive()[0] == 0xB0
