# mypy: disable-error-code="misc"
"""Clients of OpenWire, STOMP, MQTT 5 and AMQP with one interface, for tests of messages that cross protocols.

Each is a library of its protocol: `pybroker.client`, stomp.py, paho and qpid-proton. `ProtocolMessage` has what their
messages have in common; each client renders it as its users would, and reads what its library shows of a message.
"""

import contextlib
import json
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

import proton
import stomp
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton.reactor import Selector
from proton.utils import BlockingConnection, BlockingReceiver

import pybroker
from pybroker.client.errors import ClientError
from pybroker.client.messages import Message
from pybroker.client.sync import Consumer

SECONDS: Final = 30.0

Body: TypeAlias = str | bytes | Mapping[str, Any]
PropertyValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class ProtocolMessage:
    """A message as clients of all protocols see it; None in a field that the protocol, or the message, does not have.

    Attributes:
        body: the body.
        properties: what the sender sets; of a received message all that its protocol shows.
        persistent: the message survives the broker.
        priority: 0 to 9.
        seconds: how long it lives, or still lives; 0 for always.
        correlation_id: relates a reply to its request.
        reply_to: `queue://N` or `topic://N`.
        type: the application's type.
        is_redelivered: it may have been delivered before.
    """

    body: Body
    properties: Mapping[str, PropertyValue] = field(default_factory=dict[str, PropertyValue])
    persistent: bool | None = True
    priority: int | None = 4
    seconds: float = 0
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    is_redelivered: bool | None = False


class ProtocolClient(ABC):
    """A connection. Destinations are named `queue://N` and `topic://N`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def send(self, destination: str, message: ProtocolMessage) -> None:
        """Send a message, and wait for the broker's answer if there is one."""

    @abstractmethod
    def subscribe(self, destination: str, selector: str | None = None) -> None:
        """Begin to receive, unacknowledged."""

    @abstractmethod
    def receive(self) -> ProtocolMessage:
        """Wait for a message."""

    @abstractmethod
    def accept(self) -> None:
        """Acknowledge what `receive` has returned last."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; one that has broken is passed over."""


# ---------------------------------------------------------------- OpenWire


class OpenWireProtocolClient(ProtocolClient):
    """`pybroker.client`."""

    def __init__(self, port: int) -> None:
        self.connection = pybroker.connect(f"tcp://127.0.0.1:{port}", timeout=SECONDS)
        self._consumer: Consumer | None = None
        self._last: Message | None = None

    def send(self, destination: str, message: ProtocolMessage) -> None:
        headers: dict[str, Any] = {
            "ttl": message.seconds or None,
            "priority": message.priority,
            "correlation_id": message.correlation_id,
            "reply_to": message.reply_to,
            "type": message.type,
        }
        headers = {name: value for name, value in headers.items() if value is not None}
        persistent = message.persistent is True
        self.connection.send(destination, message.body, properties=message.properties, persistent=persistent, **headers)

    def subscribe(self, destination: str, selector: str | None = None) -> None:
        self._consumer = self.connection.consumer(destination, selector=selector, ack="individual", prefetch=1)

    def receive(self) -> ProtocolMessage:
        assert self._consumer is not None
        self._last = found = self._consumer.receive(timeout=SECONDS)
        assert found.body is not None
        assert not isinstance(found.body, list)
        return ProtocolMessage(
            body=found.body,  # type: ignore[arg-type]
            properties=dict(found.properties),  # type: ignore[arg-type]
            persistent=found.persistent,
            priority=found.priority,
            seconds=max(0.0, found.expiration / 1000 - time.time()) if found.expiration else 0,
            correlation_id=found.correlation_id,
            reply_to=None if found.reply_to is None else str(found.reply_to),
            type=found.type,
            is_redelivered=found.redelivered,
        )

    def accept(self) -> None:
        assert self._last is not None
        self._last.ack()

    def close(self) -> None:
        with contextlib.suppress(ClientError):
            self.connection.close()


# ---------------------------------------------------------------- STOMP

_STOMP_HEADERS: Final = frozenset({
    "content-length", "destination", "message-id", "expires", "timestamp", "ack", "subscription", "priority",
    "persistent", "correlation-id", "reply-to", "type", "redelivered", "transformation",
})  # fmt: skip


class _Inbox(stomp.ConnectionListener):
    """Collects frames; the library calls it in its own thread."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.receipts: queue.SimpleQueue[str] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.receipts.put(f"ERROR {frame.headers}")


class StompProtocolClient(ProtocolClient):
    """stomp.py with STOMP 1.2. Maps are sent and received as JSON, by ActiveMQ's header `transformation`."""

    def __init__(self, port: int) -> None:
        self._connection = stomp.Connection12(
            [("127.0.0.1", port)], auto_decode=False, heartbeats=(0, 0), reconnect_attempts_max=1
        )
        self._inbox = _Inbox()
        self._connection.set_listener("inbox", self._inbox)
        self._connection.connect(wait=True)
        self._last: Any = None

    def send(self, destination: str, message: ProtocolMessage) -> None:
        body = message.body
        headers: dict[str, str] = {name: _stomp_text(value) for name, value in message.properties.items()}
        headers |= {"persistent": _stomp_text(message.persistent is True), "priority": str(message.priority)}
        if message.seconds:
            headers["expires"] = str(round((time.time() + message.seconds) * 1000))
        if message.correlation_id is not None:
            headers["correlation-id"] = message.correlation_id
        if message.reply_to is not None:
            headers["reply-to"] = _stomp_name(message.reply_to)
        if message.type is not None:
            headers["type"] = message.type
        if isinstance(body, bytes):
            headers["content-length"] = str(len(body))
        elif not isinstance(body, str):
            headers["transformation"] = "jms-map-json"
            body = json.dumps({"map": {"entry": [_entry(name, value) for name, value in body.items()]}})
        self._connection.auto_content_length = False  # that is the mark of bytes
        self._connection.send(_stomp_name(destination), body, headers=headers, receipt="sent")
        self._wait("sent")

    def subscribe(self, destination: str, selector: str | None = None) -> None:
        headers = {"activemq.prefetchSize": "1", "transformation": "jms-map-json", "receipt": "subscribed"}
        if selector is not None:
            headers["selector"] = selector
        self._connection.subscribe(_stomp_name(destination), "1", ack="client-individual", headers=headers)
        self._wait("subscribed")

    def receive(self) -> ProtocolMessage:
        self._last = frame = self._inbox.messages.get(timeout=SECONDS)
        headers = frame.headers
        body: Any = frame.body if isinstance(frame.body, bytes) else frame.body.encode()
        if body.startswith(b'{"map"'):  # every message of the subscription has the header
            body = dict(_pair(each) for each in json.loads(body)["map"]["entry"])
        elif "content-length" not in headers:
            body = body.decode()
        expires = int(headers.get("expires", "0"))
        reply_to = headers.get("reply-to")
        return ProtocolMessage(
            body=body,
            properties={name: value for name, value in headers.items() if name not in _STOMP_HEADERS},
            persistent=headers.get("persistent") == "true",
            priority=int(headers["priority"]),
            seconds=max(0.0, expires / 1000 - time.time()) if expires else 0,
            correlation_id=headers.get("correlation-id"),
            reply_to=None if reply_to is None else reply_to[1:].replace("/", "://", 1),
            type=headers.get("type"),
            is_redelivered=headers.get("redelivered") == "true",
        )

    def accept(self) -> None:
        self._connection.ack(self._last.headers["ack"], receipt="accepted")
        self._wait("accepted")

    def close(self) -> None:
        if self._connection.is_connected():
            with contextlib.suppress(stomp.exception.NotConnectedException, OSError):
                self._connection.disconnect()

    def _wait(self, receipt: str) -> None:
        found = self._inbox.receipts.get(timeout=SECONDS)
        assert found == receipt, found


def _stomp_text(value: PropertyValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entry(name: str, value: str | int) -> dict[str, Any]:
    """Return an entry of a map, as XStream writes it: an object with its two values by their types."""
    return {"string": [name, value]} if isinstance(value, str) else {"string": name, "int": value}


def _pair(entry: Mapping[str, Any]) -> tuple[str, Any]:
    name = entry["string"]
    if not isinstance(name, str):
        return name[0], name[1]
    return name, next(value for kind, value in entry.items() if kind != "string")


def _stomp_name(destination: str) -> str:
    kind, _, name = destination.partition("://")
    return f"/{kind}/{name}"


# ---------------------------------------------------------------- MQTT


class MqttProtocolClient(ProtocolClient):
    """paho with MQTT 5: topics only, and properties are texts."""

    def __init__(self, port: int, client_id: str = "") -> None:
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.manual_ack_set(True)
        self._messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._answers: queue.Queue[str] = queue.Queue()
        self._last: paho.MQTTMessage | None = None
        self._client.on_connect = lambda *_: self._answers.put("connected")
        self._client.on_subscribe = lambda *_: self._answers.put("subscribed")
        self._client.on_message = lambda _client, _data, message: self._messages.put(message)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._answers.get(timeout=SECONDS) == "connected"

    def send(self, destination: str, message: ProtocolMessage) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        if message.properties:
            properties.UserProperty = [(name, _stomp_text(value)) for name, value in message.properties.items()]
        if message.seconds:
            properties.MessageExpiryInterval = round(message.seconds)
        if message.correlation_id is not None:
            properties.CorrelationData = message.correlation_id.encode()
        if message.reply_to is not None:
            properties.ResponseTopic = _mqtt_topic(message.reply_to)
        assert isinstance(message.body, (str, bytes))
        qos = 1 if message.persistent else 0
        sent = self._client.publish(_mqtt_topic(destination), message.body, qos, properties=properties)
        sent.wait_for_publish(SECONDS)

    def subscribe(self, destination: str, selector: str | None = None) -> None:
        assert selector is None, "MQTT has no selectors"
        self._client.subscribe(_mqtt_topic(destination), 1)
        assert self._answers.get(timeout=SECONDS) == "subscribed"

    def receive(self) -> ProtocolMessage:
        self._last = found = self._messages.get(timeout=SECONDS)
        shown = found.properties
        reply_to = getattr(shown, "ResponseTopic", None)
        correlation: bytes | None = getattr(shown, "CorrelationData", None)
        return ProtocolMessage(
            body=bytes(found.payload),
            properties=dict(getattr(shown, "UserProperty", ())),
            persistent=found.qos > 0,
            priority=None,
            seconds=float(getattr(shown, "MessageExpiryInterval", 0)),
            correlation_id=None if correlation is None else correlation.decode(),
            reply_to=None if reply_to is None else "topic://" + reply_to.replace("/", "."),
            is_redelivered=found.dup,
        )

    def accept(self) -> None:
        assert self._last is not None
        self._client.ack(self._last.mid, self._last.qos)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._client._reset_sockets()  # else its socket pair stays open until a garbage collection


def _mqtt_topic(destination: str) -> str:
    assert destination.startswith("topic://"), destination
    return destination.removeprefix("topic://").replace(".", "/")


# ---------------------------------------------------------------- AMQP


class AmqpProtocolClient(ProtocolClient):
    """qpid-proton. Text is a value, bytes are data, a map is a value."""

    def __init__(self, port: int, **options: Any) -> None:
        self.connection = BlockingConnection(f"127.0.0.1:{port}", timeout=SECONDS, **options)
        self._receiver: BlockingReceiver | None = None
        self._is_closed = False

    def send(self, destination: str, message: ProtocolMessage) -> None:
        sender = self.connection.create_sender(destination)
        sender.send(amqp_message(message))
        sender.close()

    def subscribe(self, destination: str, selector: str | None = None) -> None:
        option = None if selector is None else Selector(selector)
        self._receiver = self.connection.create_receiver(destination, credit=1, options=option)

    def receive(self) -> ProtocolMessage:
        assert self._receiver is not None
        return protocol_message(self._receiver.receive(timeout=SECONDS))

    def accept(self) -> None:
        assert self._receiver is not None
        self._receiver.accept()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.connection.wait(lambda: False, timeout=0.01)
        except proton.Timeout:
            self.connection.close()
        except (proton.ConnectionException, AttributeError):  # it is lost: proton's close and timer do not expect that
            self.connection.container.process()  # closes the socket


def amqp_message(message: ProtocolMessage) -> proton.Message:
    """Return the message as a user of proton writes it."""
    body = message.body
    made = proton.Message(
        body=body if isinstance(body, str | bytes) else dict(body),
        properties={
            name: proton.int32(value) if type(value) is int else value for name, value in message.properties.items()
        },
        durable=message.persistent is True,
        inferred=isinstance(message.body, bytes),
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        subject=message.type,
    )
    if message.priority is not None:
        made.priority = message.priority
    if message.seconds:
        made.ttl = message.seconds
    return made


def protocol_message(found: proton.Message) -> ProtocolMessage:
    """Return a message as it came over AMQP."""
    body: Any = found.body
    correlation_id: Any = found.correlation_id
    return ProtocolMessage(
        body=bytes(body) if isinstance(body, memoryview) else body,
        properties=dict(found.properties or {}),
        persistent=found.durable,
        priority=found.priority,
        seconds=found.ttl,
        correlation_id=correlation_id,
        reply_to=found.reply_to,
        type=found.subject,
        is_redelivered=found.delivery_count > 0,
    )
