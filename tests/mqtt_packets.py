"""The packets of MQTT clients as bytes, written without the codec that they test."""

from collections.abc import Sequence
from typing import Final

CONNECT: Final = 0x10
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
SUBSCRIBE: Final = 0x82
UNSUBSCRIBE: Final = 0xA2
PINGREQ: Final = b"\xc0\0"
DISCONNECT: Final = b"\xe0\0"


def variable(value: int) -> bytes:
    """Encode a variable byte integer."""
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def packet(head: int, *content: bytes) -> bytes:
    """Encode a packet."""
    body = b"".join(content)
    return bytes([head]) + variable(len(body)) + body


def short(value: int) -> bytes:
    """Encode an integer of two bytes."""
    return value.to_bytes(2, "big")


def text(value: str | bytes) -> bytes:
    """Encode a text, or binary data."""
    data = value if isinstance(value, bytes) else value.encode()
    return short(len(data)) + data


def properties(*pieces: bytes) -> bytes:
    """Encode properties with their length."""
    encoded = b"".join(pieces)
    return variable(len(encoded)) + encoded


def connect(
    client_id: str,
    *,
    level: int = 4,
    clean: bool = True,
    keep_alive: int = 0,
    user: str | None = None,
    password: str | bytes | None = None,
    will: tuple[str, bytes] | None = None,
    will_qos: int = 0,
    will_retain: bool = False,
    pieces: Sequence[bytes] = (),
    will_pieces: Sequence[bytes] = (),
) -> bytes:
    """Encode CONNECT; `pieces` and `will_pieces` are properties, of MQTT 5 only."""
    flags = clean << 1 | (user is not None) << 7 | (password is not None) << 6
    payload = [text(client_id)]
    if will is not None:
        flags |= 4 | will_qos << 3 | will_retain << 5
        payload += [properties(*will_pieces)] if level == 5 else []
        payload += [text(will[0]), text(will[1])]
    payload += [text(each) for each in (user, password) if each is not None]
    name = "MQIsdp" if level == 3 else "MQTT"
    head = [text(name), bytes([level, flags]), short(keep_alive)]
    return packet(CONNECT, *head, *([properties(*pieces)] if level == 5 else []), *payload)


def publish(
    topic: str,
    payload: bytes,
    *,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    dup: bool = False,
    pieces: Sequence[bytes] | None = None,
) -> bytes:
    """Encode PUBLISH; `pieces` are its properties, None before MQTT 5."""
    head = PUBLISH | dup << 3 | qos << 1 | retain
    middle = [text(topic), short(packet_id) if qos else b"", b"" if pieces is None else properties(*pieces)]
    return packet(head, *middle, payload)


def subscribe(packet_id: int, *filters: tuple[str, int], pieces: Sequence[bytes] | None = None) -> bytes:
    """Encode SUBSCRIBE of topic filters and their options; `pieces` are its properties, None before MQTT 5."""
    body = [text(each) + bytes([options]) for each, options in filters]
    return packet(SUBSCRIBE, short(packet_id), b"" if pieces is None else properties(*pieces), *body)


def unsubscribe(packet_id: int, *filters: str, pieces: Sequence[bytes] | None = None) -> bytes:
    """Encode UNSUBSCRIBE."""
    return packet(
        UNSUBSCRIBE, short(packet_id), b"" if pieces is None else properties(*pieces), *[text(each) for each in filters]
    )
