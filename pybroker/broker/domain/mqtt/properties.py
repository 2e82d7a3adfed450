"""The properties of MQTT 5, in one table: identifier, type, and the packets that may have each.

Source: MQTT 5.0, 2.2.2.2 "Property".

```text
length (variable byte integer)   { identifier (variable byte integer)   value } …
```
"""

import enum
from typing import Final, NamedTuple

from pybroker.broker.domain.mqtt.errors import MqttProtocolError, malformed
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode
from pybroker.broker.domain.mqtt.wire import PacketReader, encode_binary, encode_text, encode_variable


class MqttProperties:
    """The properties of one packet. The attributes of the class are those of a packet without any.

    Attributes:
        payload_format: 1: the payload is UTF-8.
        message_expiry: the seconds after which the message is dropped; None: never.
        content_type: a description of the payload.
        response_topic: the topic name for an answer.
        correlation_data: what an answer repeats.
        subscription_ids: one in SUBSCRIBE; in a PUBLISH of the broker that of each subscription that matches.
        session_expiry: the seconds for which the session survives its connection; 0xFFFFFFFF: for ever.
        assigned_client_id: the client id that the broker chose.
        server_keep_alive: the keep-alive that the client must use, in seconds.
        authentication_method: the name of an extended authentication.
        authentication_data: its data.
        request_problem_information: 0: reason strings and user properties only where they cannot be left out.
        will_delay: the seconds between the loss of the client and its will.
        request_response_information: 1: CONNACK may have `response_information`.
        response_information: what the client may make response topics of.
        server_reference: another server for the client.
        reason_string: a sentence for people.
        receive_maximum: most PUBLISH packets with QoS 1 and 2 that are not answered, 1 to 65535.
        topic_alias_maximum: the greatest topic alias that may be sent to the sender of this property.
        topic_alias: a number for the topic.
        maximum_qos: the greatest QoS of the broker.
        retain_available: 0: the broker has no retained messages.
        user_properties: names and values, in their order.
        maximum_packet_size: most bytes of a packet that may be sent to the sender of this property.
        wildcards_available: 0: no filters with wildcards.
        subscription_ids_available: 0: no subscription identifiers.
        shared_available: 0: no shared subscriptions.
    """

    payload_format: int = 0
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int = 1
    will_delay: int = 0
    request_response_information: int = 0
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int = 65_535
    topic_alias_maximum: int = 0
    topic_alias: int | None = None
    maximum_qos: int = 2
    retain_available: int = 1
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcards_available: int = 1
    subscription_ids_available: int = 1
    shared_available: int = 1

    def __repr__(self) -> str:
        """Return the names of the properties that are set."""
        return f"MqttProperties({', '.join(vars(self))})"


NO_PROPERTIES: Final = MqttProperties()
"""The properties of a packet that has none; it must not be changed."""


class Carrier(enum.Enum):
    """A packet, or part of one, that has properties and comes from a client."""

    CONNECT = enum.auto()
    WILL = enum.auto()
    PUBLISH = enum.auto()
    ACKNOWLEDGEMENT = enum.auto()
    SUBSCRIBE = enum.auto()
    UNSUBSCRIBE = enum.auto()
    DISCONNECT = enum.auto()
    AUTH = enum.auto()


class _Kind(enum.Enum):
    FLAG = 1
    """One byte, 0 or 1."""
    BYTE = 2
    SHORT = 3
    """Two bytes."""
    INTEGER = 4
    """Four bytes."""
    POSITIVE_SHORT = 5
    """Two bytes, not 0."""
    POSITIVE_INTEGER = 6
    """Four bytes, not 0."""
    VARIABLE = 7
    """A variable byte integer, not 0."""
    TEXT = 8
    BINARY = 9
    PAIR = 10
    """Two texts: a name and a value."""


class _Property(NamedTuple):
    """One line of the table.

    Attributes:
        id: the identifier; all of them are below 0x80, and so take one byte.
        name: the attribute of `Properties`.
        kind: the type of the value.
        carriers: what may have it, if it comes from a client.
    """

    id: int
    name: str
    kind: _Kind
    carriers: frozenset[Carrier]


def _row(number: int, name: str, kind: _Kind, *carriers: Carrier) -> _Property:
    return _Property(number, name, kind, frozenset(carriers))


_MESSAGE: Final = (Carrier.PUBLISH, Carrier.WILL)
_TABLE: Final = (
    _row(0x01, "payload_format", _Kind.FLAG, *_MESSAGE),
    _row(0x02, "message_expiry", _Kind.INTEGER, *_MESSAGE),
    _row(0x03, "content_type", _Kind.TEXT, *_MESSAGE),
    _row(0x08, "response_topic", _Kind.TEXT, *_MESSAGE),
    _row(0x09, "correlation_data", _Kind.BINARY, *_MESSAGE),
    _row(0x0B, "subscription_ids", _Kind.VARIABLE, Carrier.SUBSCRIBE),
    _row(0x11, "session_expiry", _Kind.INTEGER, Carrier.CONNECT, Carrier.DISCONNECT),
    _row(0x12, "assigned_client_id", _Kind.TEXT),
    _row(0x13, "server_keep_alive", _Kind.SHORT),
    _row(0x15, "authentication_method", _Kind.TEXT, Carrier.CONNECT, Carrier.AUTH),
    _row(0x16, "authentication_data", _Kind.BINARY, Carrier.CONNECT, Carrier.AUTH),
    _row(0x17, "request_problem_information", _Kind.FLAG, Carrier.CONNECT),
    _row(0x18, "will_delay", _Kind.INTEGER, Carrier.WILL),
    _row(0x19, "request_response_information", _Kind.FLAG, Carrier.CONNECT),
    _row(0x1A, "response_information", _Kind.TEXT),
    _row(0x1C, "server_reference", _Kind.TEXT),
    _row(0x1F, "reason_string", _Kind.TEXT, Carrier.ACKNOWLEDGEMENT, Carrier.DISCONNECT, Carrier.AUTH),
    _row(0x21, "receive_maximum", _Kind.POSITIVE_SHORT, Carrier.CONNECT),
    _row(0x22, "topic_alias_maximum", _Kind.SHORT, Carrier.CONNECT),
    _row(0x23, "topic_alias", _Kind.SHORT, Carrier.PUBLISH),
    _row(0x24, "maximum_qos", _Kind.BYTE),
    _row(0x25, "retain_available", _Kind.FLAG),
    _row(0x26, "user_properties", _Kind.PAIR, *Carrier),
    _row(0x27, "maximum_packet_size", _Kind.POSITIVE_INTEGER, Carrier.CONNECT),
    _row(0x28, "wildcards_available", _Kind.FLAG),
    _row(0x29, "subscription_ids_available", _Kind.FLAG),
    _row(0x2A, "shared_available", _Kind.FLAG),
)
_SUBSCRIPTION_ID: Final = b"\x0b"
_USER_PROPERTY: Final = b"\x26"
_BY_ID: Final = {each.id: each for each in _TABLE}
_SIZES: Final = {
    _Kind.FLAG: 1, _Kind.BYTE: 1, _Kind.SHORT: 2, _Kind.INTEGER: 4, _Kind.POSITIVE_SHORT: 2, _Kind.POSITIVE_INTEGER: 4,
}  # fmt: skip
_POSITIVE: Final = frozenset({_Kind.POSITIVE_SHORT, _Kind.POSITIVE_INTEGER, _Kind.VARIABLE})


def read_properties(reader: PacketReader, carrier: Carrier, user_properties_max: int) -> MqttProperties:
    """Read properties with their length.

    Raises:
        MqttProtocolError: one is unknown, has a value that it cannot have, comes twice, or does not belong to the
            packet; or there are too many user properties.
    """
    size = reader.variable()
    if not size:
        return NO_PROPERTIES
    part = reader.part(size)
    found = MqttProperties()
    seen: set[int] = set()
    pairs: list[tuple[str, str]] = []
    while not part.is_at_end:
        number = part.variable()
        row = _BY_ID.get(number)
        if row is None or carrier not in row.carriers:
            raise malformed(f"A property {number:#04x} cannot be in {carrier.name}")
        if row.kind is _Kind.PAIR:
            if len(pairs) >= user_properties_max:
                raise MqttProtocolError(
                    f"A packet may have {user_properties_max} user properties", ReasonCode.QUOTA_EXCEEDED
                )
            pairs.append((part.text(), part.text()))
            continue
        if number in seen:
            raise MqttProtocolError(f"The property {row.name} comes twice")
        seen.add(number)
        setattr(found, row.name, _read(part, row))
    if pairs:
        found.user_properties = tuple(pairs)
    return found


def _read(reader: PacketReader, row: _Property) -> int | str | bytes | tuple[int, ...]:
    kind = row.kind
    if kind is _Kind.TEXT:
        return reader.text()
    if kind is _Kind.BINARY:
        return reader.binary()
    value = reader.variable() if kind is _Kind.VARIABLE else reader.unsigned(_SIZES[kind])
    if (kind is _Kind.FLAG and value > 1) or (not value and kind in _POSITIVE):
        raise MqttProtocolError(f"The property {row.name} cannot be {value}")
    return (value,) if kind is _Kind.VARIABLE else value


def encode_properties(properties: MqttProperties) -> bytes:
    """Encode properties with their length; those that have their default are left out.

    Raises:
        OverflowError: a value is too large.
    """
    pieces = [_encoded(row, getattr(properties, row.name)) for row in _TABLE if _is_set(properties, row)]
    pieces += [_SUBSCRIPTION_ID + encode_variable(each) for each in properties.subscription_ids]
    pieces += [_USER_PROPERTY + encode_text(name) + encode_text(value) for name, value in properties.user_properties]
    encoded = b"".join(pieces)
    return encode_variable(len(encoded)) + encoded


def _is_set(properties: MqttProperties, row: _Property) -> bool:
    """Return True for a property that comes once and has not its default."""
    is_single = row.kind is not _Kind.PAIR and row.kind is not _Kind.VARIABLE
    return is_single and getattr(properties, row.name) != getattr(MqttProperties, row.name)


def _encoded(row: _Property, value: int | str | bytes) -> bytes:
    head = row.id.to_bytes()
    match value:
        case int():
            return head + value.to_bytes(_SIZES[row.kind], "big")
        case str():
            return head + encode_text(value)
        case _:
            return head + encode_binary(value)
