"""PUBLISH packets to messages, and messages to PUBLISH packets.

Source: ActiveMQ 5.17 for MQTT 3.1.1; the properties of MQTT 5 are this broker's:

```text
MQTT                         message
payload                      the body of a bytes message
QoS 0, 1, 2                  ActiveMQ.MQTT.QoS; persistent with QoS 1 and 2
retain                       ActiveMQ.Retain, MQTT_RETAIN
message expiry interval      expiration
response topic               reply-to, a topic
correlation data             correlation id, or MQTT_CORRELATION_DATA in base 64 if it is no text
content type                 MQTT_CONTENT_TYPE
payload format indicator     MQTT_PAYLOAD_FORMAT
user properties              MQTT_USER_PROPERTIES, a JSON array of pairs; those with a legal name are properties, too
```

In the other direction, any message can be sent: the payload of one that is no bytes message is its text, or what
ActiveMQ makes of it, and in MQTT 5 its other properties become user properties.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.codec import encode_topic
from pybroker.broker.domain.mqtt.packets import LEVEL_5, PublishPacket, Will
from pybroker.broker.domain.mqtt.properties import NO_PROPERTIES, MqttProperties, encode_properties
from pybroker.broker.domain.mqtt.topics import check_name
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, view
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock
from pybroker.transports.mqtt import names
from pybroker.transports.mqtt.subscription_strategy import DURABLE_SUBSCRIPTIONS, SubscriptionStrategy

_SESSION_ID: Final = -1
_PRODUCER_VALUE: Final = 1
"""ActiveMQ's number of the one producer of an MQTT connection: `<connection id>:-1:1:<n>`."""

_TEMPLATES_MAX: Final = 1000
"""The topics of one publisher for which a template is kept."""

_NAMES_MAX: Final = 100
"""The encoded topic names that are kept for one subscriber: many may subscribe to all topics."""

_EXPIRY_MAX: Final = 2**32 - 1


def _marshalled(qos: int, *, retain: bool) -> bytes:
    properties: dict[str, Value] = {names.QOS: qos}
    if retain:
        properties |= {names.RETAIN: True, names.RETAIN_FLAG: True}
    return encode_map(properties)


_MARSHALLED: Final = {(qos, retain): _marshalled(qos, retain=retain) for qos in (0, 1, 2) for retain in (False, True)}
"""The properties of a message without any of MQTT 5, encoded."""


class PublishReader:
    """Converts the PUBLISH packets of one connection, and its will, to messages of one producer."""

    __slots__ = ("_clock", "_next_sequence", "_producer_id", "_sequence", "_strategy", "_templates")

    def __init__(
        self,
        connection_id: str,
        clock: Clock,
        next_sequence: Callable[[], int],
        producer_value: int = _PRODUCER_VALUE,
        strategy: SubscriptionStrategy = DURABLE_SUBSCRIPTIONS,
    ) -> None:
        """Number messages from 1.

        Args:
            connection_id: identifies the connection in message ids.
            clock: milliseconds since the epoch.
            next_sequence: numbers messages in the broker.
            producer_value: the number of the producer.
            strategy: has the topics of topic names.
        """
        self._strategy = strategy
        self._producer_id = ProducerId(connection_id, _SESSION_ID, producer_value)
        self._clock = clock
        self._next_sequence = next_sequence
        self._sequence = 0
        self._templates: dict[str, MessageTemplate] = {}

    def read(self, packet: PublishPacket | Will, topic_name: str) -> Message:
        """Return the message of a PUBLISH or a will.

        Args:
            packet: the packet.
            topic_name: its topic name, or that of its topic alias.

        Raises:
            InvalidTopic: the topic name is not valid.
        """
        template = self._templates.get(topic_name) or self._template(topic_name)
        self._sequence += 1
        now = self._clock()
        properties = packet.properties
        expiration, correlation_id, reply_to = 0, None, None
        if properties is NO_PROPERTIES:
            marshalled = _MARSHALLED[packet.qos, packet.retain]
        else:
            correlation_id, others = _read_properties(packet, properties)
            marshalled = encode_map(others)
            reply_to = self._reply_to(properties.response_topic)
            if properties.message_expiry is not None:
                expiration = now + properties.message_expiry * 1000
        return template.build(
            type=MessageType.BYTES,
            sequence=self._sequence,
            broker_sequence=self._next_sequence(),
            content=packet.payload,
            properties=_NONE,
            marshalled_properties=marshalled,
            persistent=packet.qos > 0,
            timestamp=now,
            expiration=expiration,
            correlation_id=correlation_id,
            reply_to=reply_to,
            broker_in_time=now,
        )

    def _template(self, topic_name: str) -> MessageTemplate:
        check_name(topic_name)
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        made = self._templates[topic_name] = MessageTemplate(self._producer_id, self._strategy.topic_of(topic_name))
        return made

    def _reply_to(self, response_topic: str | None) -> Destination | None:
        if response_topic is None:
            return None
        check_name(response_topic)
        return self._strategy.topic_of(response_topic)


_NONE: Final[Mapping[str, str]] = {}


def _read_properties(packet: PublishPacket | Will, properties: MqttProperties) -> tuple[str | None, dict[str, Value]]:
    """Return the correlation id, and the properties of a message."""
    made: dict[str, Value] = {names.QOS: packet.qos}
    if packet.retain:
        made |= {names.RETAIN: True, names.RETAIN_FLAG: True}
    if properties.payload_format:
        made[names.PAYLOAD_FORMAT] = properties.payload_format
    if properties.content_type is not None:
        made[names.CONTENT_TYPE] = properties.content_type
    pairs = properties.user_properties
    if pairs:
        made[names.USER_PROPERTIES] = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
        for name, value in pairs:
            if name not in made and name not in names.OWN and _is_legal(name):
                made[name] = value
    data = properties.correlation_data
    if data is None:
        return None, made
    try:
        return data.decode(), made
    except UnicodeDecodeError:
        made[names.CORRELATION_DATA] = base64.b64encode(data).decode()
        return None, made


def _is_legal(name: str) -> bool:
    """Return True for a name that selectors can use, and that JMS does not reserve."""
    return name.isidentifier() and not name.startswith("JMS")


# ---------------------------------------------------------------- messages to packets


class RenderedPublish(NamedTuple):
    """The parts of a PUBLISH that do not depend on the subscription.

    Attributes:
        topic: the topic name, encoded with its length.
        payload: the body.
        qos: the QoS that the message was published with.
        retained: the message is the retained one of its topic.
        retain_flag: it was published with the retain flag.
        properties: those of MQTT 5, without message expiry and subscription identifiers.
    """

    topic: bytes
    payload: bytes
    qos: int
    retained: bool
    retain_flag: bool
    properties: MqttProperties


class PublishWriter:
    """Renders messages for the subscriptions of one connection.

    Attributes:
        strategy: has the topic names of topics.
    """

    __slots__ = ("_body_bytes_max", "_clock", "_level", "_topics", "strategy")

    def __init__(
        self,
        level: int,
        clock: Clock,
        *,
        body_bytes_max: int,
        strategy: SubscriptionStrategy = DURABLE_SUBSCRIPTIONS,
    ) -> None:
        """Create a writer.

        Args:
            level: the protocol level.
            clock: milliseconds since the epoch.
            body_bytes_max: the limit to an inflated body.
            strategy: has the topic names of topics.
        """
        self.strategy = strategy
        self._level = level
        self._clock = clock
        self._body_bytes_max = body_bytes_max
        self._topics: dict[Destination, bytes] = {}

    def render(self, message: Message) -> RenderedPublish:
        """Return the parts of a PUBLISH.

        Raises:
            MalformedOpenWire: the message's bytes do not decode.
            OverflowError: its topic name is too long for MQTT.
            InvalidTopic: it was not sent to a topic.
        """
        fields = view(message)
        properties = fields.properties
        qos = properties.get(names.QOS)
        source = self.strategy.source_of(message)
        return RenderedPublish(
            topic=self._topics.get(source) or self._topic(source),
            payload=self._payload(fields),
            qos=qos if type(qos) is int and 0 <= qos <= 2 else int(message.persistent),
            retained=properties.get(names.RETAINED) is True,
            retain_flag=properties.get(names.RETAIN_FLAG) is True,
            properties=NO_PROPERTIES if self._level < LEVEL_5 else self._written_properties(fields, properties),
        )

    def encoded_properties(
        self, made: RenderedPublish, message: Message, subscription_id: int | None, topic_alias: int | None
    ) -> bytes:
        """Return the properties of one PUBLISH of MQTT 5, encoded with their length.

        Raises:
            OverflowError: one is too long for MQTT.
        """
        properties = made.properties
        if not message.expiration and subscription_id is None and topic_alias is None:
            return b"\0" if properties is NO_PROPERTIES else encode_properties(properties)
        copy = MqttProperties()
        vars(copy).update(vars(properties))
        copy.topic_alias = topic_alias
        if message.expiration:
            left = max(1, -(-(message.expiration - self._clock()) // 1000))
            copy.message_expiry = min(left, _EXPIRY_MAX)
        if subscription_id is not None:
            copy.subscription_ids = (subscription_id,)
        return encode_properties(copy)

    def _topic(self, source: Destination) -> bytes:
        if len(self._topics) >= _NAMES_MAX:
            self._topics.clear()
        encoded = self._topics[source] = encode_topic(self.strategy.topic_name(source))
        return encoded

    def _payload(self, fields: OpenWireMessage) -> bytes:
        kind = fields.type
        if kind is MessageType.TEXT:
            return fields.text_utf8(self._body_bytes_max) or b""
        if kind is MessageType.MAP:
            return _java_map(fields.map()).encode(errors="replace") if fields.content else b"{}"
        return fields.body_bytes(self._body_bytes_max)

    def _written_properties(self, fields: OpenWireMessage, properties: Mapping[str, Value]) -> MqttProperties:
        """Return the properties of MQTT 5 for a message of any protocol."""
        made = MqttProperties()
        if properties.get(names.PAYLOAD_FORMAT) == 1 or fields.type is MessageType.TEXT:
            made.payload_format = 1
        content_type = properties.get(names.CONTENT_TYPE)
        if isinstance(content_type, str):
            made.content_type = content_type
        if fields.reply_to is not None and fields.reply_to.type is DestinationType.TOPIC:  # not a temporary one
            made.response_topic = self.strategy.topic_name(fields.reply_to)
        made.correlation_data = _correlation_data(fields, properties)
        pairs = tuple(_user_properties(properties))
        if pairs:
            made.user_properties = pairs
        return made if vars(made) != _UNSET else NO_PROPERTIES


def _java_map(values: Mapping[str, Value]) -> str:
    """Return the form of Java's `Map.toString`, which ActiveMQ sends."""
    return "{" + ", ".join([f"{name}={java_text(value)}" for name, value in values.items()]) + "}"


_UNSET: Final = {"correlation_data": None}


def _correlation_data(fields: OpenWireMessage, properties: Mapping[str, Value]) -> bytes | None:
    encoded = properties.get(names.CORRELATION_DATA)
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error:
            pass  # a property of another client that has the same name
    return None if fields.correlation_id is None else fields.correlation_id.encode(errors="replace")


def _user_properties(properties: Mapping[str, Value]) -> Iterable[tuple[str, str]]:
    """Yield the user properties of a PUBLISH as they were; of another message its properties, as texts."""
    packed = properties.get(names.USER_PROPERTIES)
    if isinstance(packed, str):
        pairs = _unpacked(packed)
        if pairs is not None:
            return pairs
    return [(name, java_text(value)) for name, value in properties.items() if name not in names.OWN]


def _unpacked(text: str) -> Sequence[tuple[str, str]] | None:
    """Return user properties; None if a client of another protocol has written something else."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    pairs: list[tuple[str, str]] = []
    for each in cast("list[object]", found):
        match each:
            case [str() as name, str() as value]:
                pairs.append((name, value))
            case _:
                return None
    return pairs
