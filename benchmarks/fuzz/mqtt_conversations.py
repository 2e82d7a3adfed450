"""Conversations of MQTT 3.1, 3.1.1 and 5: packets of every type in their roles, some out of order, repeated or mutated.

`valid` is a conversation as clients have it. `parts` begins like it, and goes on with packets that a client may send in
another state: acknowledgements of what was not delivered, releases of what was not published, a second CONNECT.

Packet identifiers of the broker begin at 1 in each session, so that low numbers acknowledge what it has delivered.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from benchmarks.fuzz import bytes_mutations, corpus
from benchmarks.fuzz.values import NAME_COUNT, TOPIC
from tests import mqtt_packets as packets

MARKER: Final = packets.PINGREQ

_ANSWER: Final = 0xD0
_TOPIC: Final = TOPIC.replace(".", "/")
_NAMES: Final = (
    _TOPIC, _TOPIC, _TOPIC, f"{_TOPIC}/a", f"{_TOPIC}/b", "FUZZ", "$SYS/broker", "ActiveMQ/Advisory/Connection",
    "a,b", "a?x=1", "VirtualTopic/FUZZ", "FUZZ//T", "/", "é\U0001f600", " FUZZ ", "x" * 1_000, "queue://FUZZ.Q", "",
)  # fmt: skip
_FILTERS: Final = (
    *_NAMES, "#", "+/+", "FUZZ/#", "FUZZ/+", "+", "#/a", "a+", "$share/g/FUZZ/#", "$share/g/FUZZ/T", "$share/g",
    "$share//x", "$SYS/#", "ActiveMQ/Advisory/#", "+/" * 60 + "#",
)  # fmt: skip
_PAYLOADS: Final = (b"", b"a", b"\xff\0", b"text", b"x" * 2_000)
_PROPERTIES: Final = (
    b"\x01\x01", b"\x02\0\0\0\x01", b"\x02\0\0\0\0", b"\x03\0\x01t", b"\x08\0\x06FUZZ/R", b"\x08\0\x01#",
    b"\x09\0\x02\xff\0", b"\x0b\x01", b"\x0b\x00", b"\x0b\xff\xff\xff\x7f", b"\x11\0\0\0\x05", b"\x11\xff\xff\xff\xff",
    b"\x15\0\x01m", b"\x17\0", b"\x17\x02", b"\x18\0\0\0\x01", b"\x1f\0\x01r", b"\x21\0\x01", b"\x21\0\0",
    b"\x22\0\x0a", b"\x23\0\x01", b"\x23\0\0", b"\x26\0\x01a\0\x01b", b"\x27\0\0\0\x80", b"\x27\0\0\0\0", b"\x7f",
)  # fmt: skip
"""Encoded properties of MQTT 5, with values that are right, and others; most belong to one kind of packet."""
_REASONS: Final = (0, 0, 0, 4, 0x10, 0x80, 0x87, 0x92, 0x97, 0xFF)
_IDENTIFIERS: Final = (1, 1, 1, 2, 2, 3, 4, 5, 100, 65_535, 0)
_SESSIONS: Final = 12
"""Client ids that cases share: so few that a session is taken over while another connection has it."""
_SHARED: Final = 0.3
_WILL: Final = 0.2
_PROPERTY: Final = 0.2
_MUTATED: Final = 0.2


def answers(data: bytes) -> int:
    """Return how many markers have been answered in what a broker has sent."""
    count = offset = 0
    while offset < len(data):
        length, at = _length(data, offset + 1)
        if at + length > len(data):
            break
        count += data[offset] == _ANSWER
        offset = at + length
    return count


def parts(dice: Random, number: int, login: tuple[str | None, str | None], frames_max: int) -> tuple[bytes, ...]:
    """Return the parts of a case.

    Args:
        dice: all choices.
        number: of the case.
        login: user and password.
        frames_max: most packets behind the first part.
    """
    maker = MqttPackets(dice, dice.choice((4, 4, 5, 5, 5, 3)), number, login)
    chance = dice.random()
    if chance < 0.1:  # before CONNECT, where one packet is the last
        others = corpus.mqtt_packets()
        return b"", bytes_mutations.mutated(dice.choice((maker.connect(), maker.packet())), dice, others)
    if chance < 0.4:
        begin, *rest = valid(maker)
        return begin, *bytes_mutations.rearranged(rest, dice)
    return maker.connect(), *(maker.packet() for _ in range(dice.randint(1, frames_max)))


def valid(maker: "MqttPackets") -> tuple[bytes, ...]:
    """Return a conversation in which each packet is allowed: publishes with each QoS, and all acknowledgements."""
    none = [] if maker.level == 5 else None
    name = f"FUZZ/V/{maker.number % NAME_COUNT}"
    return (
        maker.connect(),
        packets.subscribe(1, (name, 2), (f"{name}/a", 1), pieces=none),
        packets.publish(name, b"0", pieces=none),
        packets.publish(f"{name}/a", b"1", qos=1, packet_id=2, pieces=none),
        packets.publish(name, b"2", qos=2, packet_id=3, pieces=none),
        packets.packet(packets.PUBREL, packets.short(3)),
        packets.packet(packets.PUBACK, packets.short(1)),
        packets.packet(packets.PUBREC, packets.short(2)),
        packets.packet(packets.PUBCOMP, packets.short(2)),
        packets.publish(name, b"kept", qos=1, packet_id=4, retain=True, pieces=none),
        packets.packet(packets.PUBACK, packets.short(3)),
        packets.publish(name, b"", retain=True, pieces=none),
        packets.unsubscribe(5, name, f"{name}/a", pieces=none),
        packets.DISCONNECT,
    )


class MqttPackets:
    """Makes the packets of one conversation.

    Attributes:
        level: 3, 4 or 5, as CONNECT has it.
        number: of the case.
        client_id: of the session.
    """

    def __init__(self, dice: Random, level: int, number: int, login: tuple[str | None, str | None]) -> None:
        """Begin a conversation.

        Args:
            dice: all choices.
            level: of the protocol.
            number: of the case.
            login: user and password.
        """
        self._dice = dice
        self.level = level
        self.number = number
        self._login = login
        self._is_shared = dice.random() < _SHARED
        self.client_id = f"fuzz-{dice.randrange(_SESSIONS)}" if self._is_shared else f"fuzz-one-{number}"
        self._makers: tuple[Callable[[], bytes], ...] = (
            *(self._publish,) * 6, *(self._acknowledge,) * 6, *(self._subscribe,) * 3, self._unsubscribe,
            self._disconnect, self.connect, self._broker_packet, self._authenticate,
        )  # fmt: skip

    def connect(self) -> bytes:
        """Return CONNECT."""
        dice = self._dice
        user, password = self._login
        has_will = dice.random() < _WILL
        expiry = [b"\x11\0\0\0\x3c"] if self._is_shared else []
        return packets.connect(
            self.client_id,
            level=self.level,
            clean=not self._is_shared or dice.random() < 0.2,
            user=user,
            password=password,
            will=(dice.choice(_NAMES), dice.choice(_PAYLOADS)) if has_will else None,
            will_qos=dice.choice((0, 1, 2)),
            will_retain=dice.random() < 0.2,
            pieces=[*expiry, *self._properties()],
            will_pieces=self._properties(),
        )

    def packet(self) -> bytes:
        """Return a packet that a client may send in some state, a captured one, or one that is mutated."""
        dice = self._dice
        made = dice.choice(corpus.mqtt_packets()) if dice.random() < 0.05 else dice.choice(self._makers)()
        return _mutated(made, dice) if dice.random() < _MUTATED else made

    def _publish(self) -> bytes:
        dice = self._dice
        return packets.publish(
            dice.choice(_NAMES),
            dice.choice(_PAYLOADS),
            qos=dice.choice((0, 1, 1, 2, 2, 2, 3)) if dice.random() < 0.2 else dice.choice((0, 1, 2)),
            packet_id=self._identifier(),
            retain=dice.random() < 0.15,
            dup=dice.random() < 0.15,
            pieces=self._pieces(),
        )

    def _acknowledge(self) -> bytes:
        """Return PUBACK, PUBREC, PUBREL or PUBCOMP; of MQTT 5 with a reason and properties now and then."""
        dice = self._dice
        head = dice.choice((packets.PUBACK, packets.PUBREC, packets.PUBREL, packets.PUBCOMP))
        more = b""
        if self.level == 5 and dice.random() < 0.4:
            more = bytes((dice.choice(_REASONS),))
            more += packets.properties(*self._properties()) if dice.random() < 0.5 else b""
        return packets.packet(head, packets.short(self._identifier()), more)

    def _subscribe(self) -> bytes:
        dice = self._dice
        filters = [(dice.choice(_FILTERS), self._options()) for _ in range(dice.choice((1, 1, 1, 2, 5)))]
        return packets.subscribe(self._identifier(), *filters, pieces=self._pieces())

    def _options(self) -> int:
        """Return a QoS, and of MQTT 5 no local, retain as published and retain handling."""
        dice = self._dice
        if self.level < 5:
            return dice.choice((0, 1, 2)) if dice.random() < 0.97 else dice.choice((3, 4, 0x80))
        return dice.choice((0, 1, 2)) | dice.choice((0, 4, 8, 0x10, 0x20, 0x0C)) | (0xC0 if dice.random() < 0.02 else 0)

    def _unsubscribe(self) -> bytes:
        return packets.unsubscribe(self._identifier(), self._dice.choice(_FILTERS), pieces=self._pieces())

    def _disconnect(self) -> bytes:
        dice = self._dice
        if self.level < 5 or dice.random() < 0.3:
            return packets.DISCONNECT
        reason = bytes((dice.choice((0, 4, 4, 0x81, 0xFF)),))
        return packets.packet(0xE0, reason, packets.properties(*self._properties()))

    def _broker_packet(self) -> bytes:
        """Return a packet that only brokers send, or of a type that is reserved."""
        head = self._dice.choice((0x20, 0x90, 0xB0, 0xD0, 0x00, 0xC1, 0x61, 0x80))
        return packets.packet(head, self._dice.choice((b"", b"\0\0", b"\0\x01\0")))

    def _authenticate(self) -> bytes:
        return packets.packet(
            0xF0, bytes((self._dice.choice((0, 0x18, 0x19)),)), packets.properties(*self._properties())
        )

    def _identifier(self) -> int:
        return self._dice.choice(_IDENTIFIERS)

    def _pieces(self) -> list[bytes] | None:
        return self._properties() if self.level == 5 else None

    def _properties(self) -> list[bytes]:
        dice = self._dice
        if dice.random() > _PROPERTY:
            return []
        return [dice.choice(_PROPERTIES) for _ in range(dice.choice((1, 1, 2, 4)))]


def _mutated(packet: bytes, dice: Random) -> bytes:
    """Return a packet with other content; its length is right most times, or the next packet would be lost in it."""
    if dice.random() < 0.2:
        return bytes_mutations.mutated(packet, dice, corpus.mqtt_packets())
    _, at = _length(packet, 1)
    return packets.packet(packet[0], bytes_mutations.mutated(packet[at:], dice, corpus.mqtt_packets()))


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a remaining length, and the offset behind it; a length beyond the data if that is not complete."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    return len(data) + 1, at
