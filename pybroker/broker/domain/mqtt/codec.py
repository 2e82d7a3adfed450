"""Bytes to the packets of clients, and the broker's packets to bytes. No conversation.

Source: MQTT 3.1.1 and 5.0, sections 2 and 3:

```text
type (4 bits) flags (4 bits)   remaining length (variable byte integer)   remaining bytes
PUBLISH: dup, qos, qos, retain                                            topic, packet id (not with QoS 0),
SUBSCRIBE, UNSUBSCRIBE, PUBREL: 0010; others 0000                         properties (MQTT 5), payload
```
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from struct import Struct
from typing import Final

from pybroker.broker.domain.big_endian import UNSIGNED_SHORT
from pybroker.broker.domain.mqtt.errors import MqttProtocolError, malformed
from pybroker.broker.domain.mqtt.packets import (
    LEVEL_3_1,
    LEVEL_3_1_1,
    LEVEL_5,
    AcknowledgementPacket,
    AuthPacket,
    ConnectPacket,
    DisconnectPacket,
    FilterSubscription,
    MqttLimits,
    Packet,
    PacketType,
    PingPacket,
    PublishPacket,
    RetainHandling,
    SubscribePacket,
    UnsubscribePacket,
    Will,
)
from pybroker.broker.domain.mqtt.properties import (
    NO_PROPERTIES,
    Carrier,
    MqttProperties,
    encode_properties,
    read_properties,
)
from pybroker.broker.domain.mqtt.reason_codes import ConnectReturnCode, ReasonCode, return_code
from pybroker.broker.domain.mqtt.wire import PacketReader, encode_text, encode_variable

_PUBLISH: Final = PacketType.PUBLISH.value
_FIXED_FLAGS: Final = {each: 0 for each in PacketType} | {
    PacketType.SUBSCRIBE: 0b0010,
    PacketType.UNSUBSCRIBE: 0b0010,
    PacketType.PUBREL: 0b0010,
}
_NAMES: Final = {"MQIsdp": (LEVEL_3_1,), "MQTT": (LEVEL_3_1_1, LEVEL_5)}
_REASONS: Final = {each.value: each for each in ReasonCode}
_UNKNOWN_LENGTH: Final = 5
"""A packet's length is known after so many bytes at the latest."""

_pack_short: Final = UNSIGNED_SHORT.pack
_pack_acknowledgement: Final = Struct(">BBH").pack

PING_RESPONSE: Final = bytes((PacketType.PINGRESP << 4, 0))


class PacketDecoder:
    """Turns chunks into packets.

    Attributes:
        level: the protocol level, which the first CONNECT sets.
        packet_bytes_max: the greatest remaining length; `limits.unconnected_packet_bytes` unless it is set.
    """

    __slots__ = ("_limits", "_needed", "_started", "_unfinished", "level", "packet_bytes_max")

    def __init__(self, limits: MqttLimits) -> None:
        self.level = LEVEL_3_1_1
        self.packet_bytes_max = min(limits.unconnected_packet_bytes, limits.packet_bytes)
        self._limits = limits
        self._unfinished: BytesIO | None = None
        """The bytes of a packet whose length is known, and that is not complete."""
        self._needed: int = 0
        """The length of that packet."""
        self._started: bytes = b""
        """The bytes of a packet whose length is not known yet, four at most."""

    def feed(self, chunk: bytes) -> Iterator[Packet]:
        """Yield each packet that `chunk` completes, decoding it only when requested.

        The iterator must be exhausted before the next chunk, except when no more chunks follow.

        Raises:
            MqttProtocolError: the bytes are no packet, or exceed a limit. Nothing can be decoded after that.
        """
        start = 0
        unfinished = self._unfinished
        if unfinished is not None:
            start = self._needed - unfinished.tell()
            if start > len(chunk):
                unfinished.write(chunk)
                return
            unfinished.write(memoryview(chunk)[:start])
            whole = unfinished.getvalue()
            self._unfinished = unfinished = None
            packet = self._decode(whole, whole[0], _content_at(whole), len(whole))
            del whole  # the payload is a copy
            yield packet
        elif self._started:
            chunk = self._started + chunk
            self._started = b""
        end = len(chunk)
        while end - start >= 2:
            length = chunk[start + 1]
            body = start + 2
            if length >= 0x80:
                found = self._long_length(chunk, start)
                if found is None:
                    break
                length, body = found
            if length > self.packet_bytes_max:
                raise self._too_large(length)
            stop = body + length
            if stop > end:
                _check_head(chunk[start])  # no need to wait for what another protocol takes for the length
                self._unfinished = BytesIO()
                self._unfinished.write(memoryview(chunk)[start:])
                self._needed = stop - start
                return
            head = chunk[start]
            yield (self._publish if head >> 4 == _PUBLISH else self._decode)(chunk, head, body, stop)
            start = stop
        self._started = chunk[start:]

    @property
    def received(self) -> int:
        """How many bytes of an unfinished packet have come."""
        return len(self._started) if self._unfinished is None else self._unfinished.tell()

    @property
    def unfinished(self) -> int:
        """The length of the unfinished packet; 0 for none."""
        return len(self._started) if self._unfinished is None else self._needed

    def clear(self) -> None:
        """Drop all bytes: the connection has ended, and the garbage collection that finds this object may come late."""
        self._unfinished = None
        self._started = b""

    def _long_length(self, chunk: bytes, start: int) -> tuple[int, int] | None:
        """Return a remaining length of several bytes and where the content begins; None if it is not complete."""
        there = min(len(chunk), start + _UNKNOWN_LENGTH)
        length = 0
        for at in range(start + 1, there):
            byte = chunk[at]
            length |= (byte & 0x7F) << 7 * (at - start - 1)
            if byte < 0x80:
                return length, at + 1
        if there - start == _UNKNOWN_LENGTH:
            raise malformed("The remaining length has more than four bytes")
        return None

    def _too_large(self, length: int) -> MqttProtocolError:
        return MqttProtocolError(
            f"A packet of {length} bytes: {self.packet_bytes_max} are allowed here", ReasonCode.PACKET_TOO_LARGE
        )

    def _decode(self, data: bytes, head: int, body: int, stop: int) -> Packet:
        if head >> 4 == _PUBLISH:
            return self._publish(data, head, body, stop)
        kind = _type_of(head)
        reader = PacketReader(data, body, stop)
        packet = self._read(kind, reader)
        if not reader.is_at_end:
            raise malformed(f"{kind.name} has {reader.end - reader.offset} bytes too many")
        return packet

    # ------------------------------------------------------------ packets

    def _read(self, kind: PacketType, reader: PacketReader) -> Packet:
        match kind:
            case PacketType.CONNECT:
                return self._connect(reader)
            case PacketType.SUBSCRIBE:
                return self._subscribe(reader)
            case PacketType.UNSUBSCRIBE:
                return self._unsubscribe(reader)
            case PacketType.PINGREQ:
                return _PING
            case PacketType.DISCONNECT:
                return self._disconnect(reader)
            case PacketType.AUTH:
                return self._auth(reader)
            case _:
                return self._acknowledgement(kind, reader)

    def _publish(self, data: bytes, head: int, body: int, stop: int) -> PublishPacket:
        topic_at = body + 2
        if topic_at > stop:
            raise malformed("PUBLISH ends within its topic name")
        at = topic_end = topic_at + (data[body] << 8 | data[body + 1])
        qos = head >> 1 & 3
        packet_id = 0
        if qos:
            at += 2
        if at > stop:
            raise malformed("PUBLISH ends before its payload")
        if qos:
            packet_id = data[topic_end] << 8 | data[topic_end + 1]
            if qos == 3 or not packet_id:
                raise malformed("PUBLISH has QoS 3" if qos == 3 else "The packet identifier of PUBLISH is 0")
        elif head & 8:
            raise malformed("PUBLISH with QoS 0 cannot have the DUP flag")
        properties = NO_PROPERTIES
        if self.level == LEVEL_5:
            if at < stop and not data[at]:
                at += 1
            else:
                reader = PacketReader(data, at, stop)
                properties = read_properties(reader, Carrier.PUBLISH, self._limits.user_properties)
                at = reader.offset
        try:
            topic = data[topic_at:topic_end].decode()
        except UnicodeDecodeError as error:
            raise malformed("The topic name is no UTF-8") from error
        if "\0" in topic:
            raise malformed("The topic name contains the character NUL")
        return PublishPacket(topic, data[at:stop], qos, head & 1 == 1, head & 8 == 8, packet_id, properties)

    def _connect(self, reader: PacketReader) -> ConnectPacket:
        name = reader.text()
        level = reader.unsigned(1)
        if name not in _NAMES:
            raise malformed(f"CONNECT of the protocol {name[:20]!r}: MQTT is spoken here")
        if level not in _NAMES[name]:
            if name == "MQTT" and level > LEVEL_3_1_1:
                raise MqttProtocolError(
                    f"CONNECT of level {level:#04x}: levels 3, 4 and 5 are spoken here",
                    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
                )
            raise malformed(f"CONNECT of {name} with level {level}")
        self.level = level
        flags = reader.unsigned(1)
        keep_alive = reader.unsigned(2)
        has_will, qos = flags & 4, flags >> 3 & 3
        is_reserved_set = flags & 1 and level > LEVEL_3_1  # in MQTT 3.1 that bit has no meaning
        if is_reserved_set or qos == 3 or (not has_will and flags & 0b0011_1000):
            raise malformed(f"CONNECT has the flags {flags:#010b}")
        has_user, has_password = flags & 0x80, flags & 0x40
        if has_password and not has_user and level == LEVEL_3_1_1:
            raise malformed("CONNECT has a password without a user name")
        properties = self._properties(reader, Carrier.CONNECT)
        client_id = reader.text()
        will = None
        if has_will:
            of_will = self._properties(reader, Carrier.WILL)
            will = Will(reader.text(), reader.binary(), qos, bool(flags & 0x20), of_will)
        return ConnectPacket(
            level=level,
            client_id=client_id,
            clean=bool(flags & 2),
            keep_alive=keep_alive,
            user=reader.text() if has_user else None,
            password=reader.binary() if has_password else None,
            will=will,
            properties=properties,
        )

    def _acknowledgement(self, kind: PacketType, reader: PacketReader) -> AcknowledgementPacket:
        packet_id = reader.packet_id()
        if self.level < LEVEL_5 or reader.is_at_end:
            return AcknowledgementPacket(kind, packet_id)
        reason = _reason(reader)
        if not reader.is_at_end:
            self._properties(reader, Carrier.ACKNOWLEDGEMENT)
        return AcknowledgementPacket(kind, packet_id, reason)

    def _subscribe(self, reader: PacketReader) -> SubscribePacket:
        packet_id = reader.packet_id()
        properties = self._properties(reader, Carrier.SUBSCRIBE)
        found: list[FilterSubscription] = []
        while not reader.is_at_end:
            self._check_filters(len(found))
            text, options = reader.text(), reader.unsigned(1)
            qos, handling = options & 3, options >> 4 & 3
            if qos == 3 or handling == 3 or options & (0b1100_0000 if self.level == LEVEL_5 else 0b1111_1100):
                raise malformed(f"SUBSCRIBE has the options {options:#010b}")
            found.append(FilterSubscription(text, qos, bool(options & 4), bool(options & 8), RetainHandling(handling)))
        if not found:
            raise MqttProtocolError("SUBSCRIBE has no topic filters")
        return SubscribePacket(packet_id, tuple(found), properties)

    def _unsubscribe(self, reader: PacketReader) -> UnsubscribePacket:
        packet_id = reader.packet_id()
        self._properties(reader, Carrier.UNSUBSCRIBE)
        found: list[str] = []
        while not reader.is_at_end:
            self._check_filters(len(found))
            found.append(reader.text())
        if not found:
            raise MqttProtocolError("UNSUBSCRIBE has no topic filters")
        return UnsubscribePacket(packet_id, tuple(found))

    def _disconnect(self, reader: PacketReader) -> DisconnectPacket:
        if self.level < LEVEL_5 or reader.is_at_end:
            return DisconnectPacket()
        reason = _reason(reader)
        has_properties = reader.offset < reader.end
        return DisconnectPacket(
            reason, self._properties(reader, Carrier.DISCONNECT) if has_properties else NO_PROPERTIES
        )

    def _auth(self, reader: PacketReader) -> AuthPacket:
        if self.level < LEVEL_5:
            raise malformed("AUTH belongs to MQTT 5")
        reason = 0 if reader.is_at_end else reader.unsigned(1)
        if not reader.is_at_end:
            self._properties(reader, Carrier.AUTH)
        return AuthPacket(reason)

    def _check_filters(self, count: int) -> None:
        if count >= self._limits.filters:
            raise MqttProtocolError(
                f"A packet may have {self._limits.filters} topic filters", ReasonCode.QUOTA_EXCEEDED
            )

    def _properties(self, reader: PacketReader, carrier: Carrier) -> MqttProperties:
        if self.level < LEVEL_5:
            return NO_PROPERTIES
        return read_properties(reader, carrier, self._limits.user_properties)


_PING: Final = PingPacket()
_FROM_BROKER: Final = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)


def _content_at(packet: bytes) -> int:
    """Return where the content of a packet begins."""
    at = 1
    while packet[at] >= 0x80:
        at += 1
    return at + 1


def _check_head(head: int) -> None:
    """Check the first byte of a packet that has begun."""
    if head >> 4 != _PUBLISH:
        _type_of(head)


def _type_of(head: int) -> PacketType:
    number = head >> 4
    if not number:
        raise malformed("A packet of type 0")
    kind = PacketType(number)
    if kind in _FROM_BROKER:
        raise MqttProtocolError(f"{kind.name} comes from a broker, not from a client")
    if head & 0xF != _FIXED_FLAGS[kind]:
        raise malformed(f"{kind.name} has the flags {head & 0xF:#06b}")
    return kind


def _reason(reader: PacketReader) -> ReasonCode:
    number = reader.unsigned(1)
    found = _REASONS.get(number)
    if found is None:
        raise malformed(f"An unknown reason code {number:#04x}")
    return found


# ---------------------------------------------------------------- the broker's packets


def encode_connack(level: int, reason: ReasonCode, *, session_present: bool, properties: MqttProperties) -> bytes:
    """Encode CONNACK; before MQTT 5 without properties, and with that version's return code.

    MQTT 3.1 has no session present flag: the byte is reserved.
    """
    code: ReasonCode | ConnectReturnCode = reason if level >= LEVEL_5 else return_code(reason)
    content = bytes((session_present and level > LEVEL_3_1, code))
    if level >= LEVEL_5:
        content += encode_properties(properties)
    return _packet(PacketType.CONNACK, content)


def encode_publish(
    level: int,
    topic: bytes,
    payload: bytes,
    *,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes = b"\0",
) -> bytes:
    """Encode PUBLISH.

    Args:
        level: the protocol level.
        topic: the topic name, encoded with its length.
        payload: the body.
        qos: 0, 1 or 2.
        retain: see `packets.Publish`; so for the next ones.
        dup: the broker has sent it before.
        packet_id: not used with QoS 0.
        properties: encoded with their length; not used before MQTT 5.

    Raises:
        OverflowError: the packet is longer than MQTT's packets can be.
    """
    middle = _pack_short(packet_id) if qos else b""
    if level >= LEVEL_5:
        middle += properties
    head = _PUBLISH << 4 | dup << 3 | qos << 1 | retain
    length = encode_variable(len(topic) + len(middle) + len(payload))
    return b"".join((head.to_bytes(), length, topic, middle, payload))


def encode_acknowledgement(
    level: int, kind: PacketType, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS
) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP; the reason is left out before MQTT 5, and if it is success."""
    head = kind << 4 | _FIXED_FLAGS[kind]
    if reason is ReasonCode.SUCCESS or level < LEVEL_5:
        return _pack_acknowledgement(head, 2, packet_id)
    return _pack_acknowledgement(head, 3, packet_id) + reason.to_bytes()


def encode_suback(level: int, packet_id: int, reasons: Sequence[ReasonCode]) -> bytes:
    """Encode SUBACK, with one reason code for each topic filter; before MQTT 5 each failure is 0x80."""
    return _with_reasons(PacketType.SUBACK, level, packet_id, reasons)


def encode_unsuback(level: int, packet_id: int, reasons: Sequence[ReasonCode]) -> bytes:
    """Encode UNSUBACK, with one reason code for each topic filter; before MQTT 5 without them."""
    return _with_reasons(PacketType.UNSUBACK, level, packet_id, reasons if level >= LEVEL_5 else ())


def _with_reasons(kind: PacketType, level: int, packet_id: int, reasons: Sequence[ReasonCode]) -> bytes:
    if level >= LEVEL_5:
        return _packet(kind, _pack_short(packet_id) + b"\0" + bytes(reasons))
    return _packet(kind, _pack_short(packet_id) + bytes([min(each, ReasonCode.UNSPECIFIED_ERROR) for each in reasons]))


def encode_disconnect(reason: ReasonCode, properties: MqttProperties = NO_PROPERTIES) -> bytes:
    """Encode DISCONNECT, which the broker sends in MQTT 5 only."""
    return _packet(PacketType.DISCONNECT, reason.to_bytes() + encode_properties(properties))


def encode_topic(name: str) -> bytes:
    """Encode a topic name for `encode_publish`.

    Raises:
        OverflowError: its UTF-8 has more than 65,535 bytes.
    """
    return encode_text(name)


def _packet(kind: PacketType, content: bytes) -> bytes:
    return (kind << 4).to_bytes() + encode_variable(len(content)) + content
