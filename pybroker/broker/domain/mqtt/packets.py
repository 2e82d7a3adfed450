"""The packets of MQTT that clients send, decoded, and the limits to them.

Source: MQTT 3.1.1 and 5.0, section 3. PINGREQ has no content: it is a packet type alone.
"""

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from pybroker.broker.domain.mqtt.properties import NO_PROPERTIES, MqttProperties
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode

LEVEL_3_1: Final = 3
LEVEL_3_1_1: Final = 4
LEVEL_5: Final = 5


class PacketType(enum.IntEnum):
    """The upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Will(NamedTuple):
    """The message that the broker publishes if its client is lost.

    Attributes:
        topic: its topic name.
        payload: its body.
        qos: 0, 1 or 2.
        retain: True if it becomes the topic's retained message.
        properties: MQTT 5 only: those of its PUBLISH, and the delay.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: MqttProperties = NO_PROPERTIES


@dataclass(slots=True, kw_only=True)
class ConnectPacket:
    """CONNECT.

    Attributes:
        level: the protocol level: 3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.
        client_id: empty: the broker chooses one.
        clean: the session begins without the state of an earlier one; before MQTT 5 it also ends with the connection.
        keep_alive: the seconds within which the client sends something; 0: no limit.
        user: None without one.
        password: None without one.
        will: None without one.
        properties: empty before MQTT 5.
    """

    level: int
    client_id: str
    clean: bool
    keep_alive: int
    user: str | None
    password: bytes | None
    will: Will | None
    properties: MqttProperties = NO_PROPERTIES

    def __repr__(self) -> str:
        """Return the packet without its password, payload and properties."""
        return f"ConnectPacket(level={self.level}, client_id={self.client_id!r}, clean={self.clean})"


@dataclass(slots=True)
class PublishPacket:
    """PUBLISH.

    Attributes:
        topic: the topic name; empty in MQTT 5: that of the topic alias.
        payload: the body.
        qos: 0, 1 or 2.
        retain: True if it becomes the topic's retained message.
        dup: the client has sent it before.
        packet_id: 0 with QoS 0.
        properties: empty before MQTT 5.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: MqttProperties = NO_PROPERTIES

    def __repr__(self) -> str:
        """Return the packet without its payload and properties."""
        return f"PublishPacket({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, packet_id={self.packet_id})"


class AcknowledgementPacket(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP.

    Attributes:
        type: which of them.
        packet_id: that of the PUBLISH, 1 to 65535.
        reason: `SUCCESS` before MQTT 5.
    """

    type: PacketType
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS


class RetainHandling(enum.IntEnum):
    """When a SUBSCRIBE has the retained messages sent."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


class FilterSubscription(NamedTuple):
    """One topic filter of a SUBSCRIBE, with its options.

    Attributes:
        filter: the topic filter.
        qos: the highest QoS of its deliveries.
        no_local: the client's own messages are not delivered.
        retain_as_published: deliveries keep the retain flag of their PUBLISH.
        retain_handling: when retained messages are sent.
    """

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.ALWAYS


class SubscribePacket(NamedTuple):
    """SUBSCRIBE, with one subscription at least."""

    packet_id: int
    subscriptions: tuple[FilterSubscription, ...]
    properties: MqttProperties = NO_PROPERTIES


class UnsubscribePacket(NamedTuple):
    """UNSUBSCRIBE, with one topic filter at least."""

    packet_id: int
    filters: tuple[str, ...]


class PingPacket(NamedTuple):
    """PINGREQ."""


class DisconnectPacket(NamedTuple):
    """DISCONNECT; `SUCCESS` and no properties before MQTT 5."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: MqttProperties = NO_PROPERTIES


class AuthPacket(NamedTuple):
    """AUTH, of MQTT 5 only."""

    reason: int


Packet = (
    ConnectPacket
    | PublishPacket
    | AcknowledgementPacket
    | SubscribePacket
    | UnsubscribePacket
    | PingPacket
    | DisconnectPacket
    | AuthPacket
)
"""A packet of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """Limits on what one peer may make the broker hold.

    Attributes:
        packet_bytes: the remaining length of a packet; 268,435,455 at most, which MQTT cannot exceed.
        unconnected_packet_bytes: the same before CONNECT is answered. Each of its texts has 65,535 bytes at most, which
            suffice for a token as password.
        connect_seconds: time until CONNECT, after which the connection is closed.
        filters: topic filters of one SUBSCRIBE or UNSUBSCRIBE.
        subscriptions: topic filters of one session.
        shared_subscriptions: those of them that are shared. Each group has a connection in the core, and all of a
            client that is lost end in one turn: 1,000 in about 100 ms.
        user_properties: user properties of one packet.
        receive_maximum: PUBLISH packets with QoS 1 and 2 that a client of MQTT 5 may have unanswered, 1 to 65535. The
            default is as much as one group commit of the store takes well, and few enough that a client soon notices
            when the store is slow.
        keep_alive_max: seconds of the longest keep-alive of a client of MQTT 5, 1 to 65535, which also replaces a
            keep-alive of 0; 0: each is accepted. Earlier versions cannot answer another one than the client's.
    """

    packet_bytes: int = 100 * 1024 * 1024
    unconnected_packet_bytes: int = 256 * 1024
    connect_seconds: float = 30.0
    filters: int = 1000
    subscriptions: int = 10_000
    shared_subscriptions: int = 1000
    user_properties: int = 1000
    receive_maximum: int = 1000
    keep_alive_max: int = 0
