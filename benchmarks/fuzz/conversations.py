"""Cases: what one connection sends to a broker. The seed, the protocol and a number make the same one again.

The first part of a case brings the connection to where its frames belong, before or after a login. Each further part is
a frame that has been mutated, or is out of place. Behind each part goes a marker, a request that the broker answers at
once, so that the number of answers is that of the parts that were carried out.

```text
OpenWire   WireFormatInfo, ConnectionInfo, SessionInfo, ProducerInfo, ConsumerInfo | part, KeepAliveInfo | part, …
STOMP      CONNECT, SUBSCRIBE                                                      | part, SEND+receipt  | part, …
MQTT       CONNECT                                                                 | part, PINGREQ       | part, …
AMQP       headers, SASL, open, begin, attach, flow                                | part, begin and end | part, …
WebSocket  a request, and messages with STOMP's parts                              | part, SEND+receipt  | part, …
TLS        a record of a handshake, mutated; it has no marker
```

Some cases of MQTT and AMQP are paced: a part goes out once the marker before it is answered, so that acknowledgements
meet what the broker has delivered meanwhile.
"""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.fuzz import (
    amqp_conversations,
    bytes_mutations,
    corpus,
    mqtt_conversations,
    stomp_frames,
    websocket_frames,
)
from benchmarks.fuzz.values import QUEUE, TOPIC, Values
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer

OPENWIRE: Final = "openwire"
STOMP: Final = "stomp"
MQTT: Final = "mqtt"
AMQP: Final = "amqp"
TLS: Final = "tls"
WEBSOCKET: Final = "ws"
PROTOCOLS: Final = (OPENWIRE, STOMP, WEBSOCKET, MQTT, AMQP, TLS)

USER: Final = "fuzz"
POOR_USER: Final = "poor"
"""A user with few rights."""
PASSWORD: Final = "secret"

STOMP_MARKER: Final = f"SEND\ndestination:/topic/{TOPIC}.MARK\nreceipt:~~\n\n\0".encode()
_WEBSOCKET_MARKER: Final = websocket_frames.frame(2, STOMP_MARKER)
_STOMP_ANSWER: Final = b"receipt-id:~~"
_MQTT_BEGINS: Final = (b"\x20", b"\xe0")
"""CONNACK, or DISCONNECT."""
_KEEP_ALIVE: Final = wire.KeepAliveInfo.DATA_TYPE
_SIZE: Final = struct.Struct(">i")
_BEFORE_LOGIN: Final = 0.2
"""The share of cases whose frames come before a login."""
_CAPTURES: Final = 0.1
_OVER_TLS: Final = 0.05
"""Few, for a handshake costs as much as a hundred frames."""
_ON_AUTO: Final = 0.1
_PACED: Final = 0.3
_FRAMES_MAX: Final = 12
_DURABLE: Final = 0.1
"""The share of STOMP's cases with a client id, which durable subscriptions take: each topic message goes to all of
these until they are swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What one connection sends.

    Attributes:
        listener: `openwire`, `stomp`, `ws`, `mqtt`, `amqp`, `auto`, and these with TLS: `openwire+ssl`; with `raw:`
            before it, without a handshake.
        parts: the first brings the connection to its state, and may be empty; the others are the frames.
        marker: follows each of these; empty: none.
        is_paced: each of these waits for the answer to the marker before it.
    """

    listener: str
    parts: tuple[bytes, ...]
    marker: bytes
    is_paced: bool = False

    def data(self) -> bytes:
        """Return all bytes."""
        return self.parts[0] + b"".join(part + self.marker for part in self.parts[1:])

    def step(self, number: int) -> bytes:
        """Return the bytes that are sent once `number` markers are answered."""
        if not self.is_paced:
            return b"" if number else self.data()
        begin = b"" if number else self.parts[0]
        return begin + b"".join(part + self.marker for part in self.parts[number + 1 : number + 2])

    def to_json(self) -> dict[str, Any]:
        """Return it for a file."""
        parts = [part.hex() for part in self.parts]
        return {"listener": self.listener, "marker": self.marker.hex(), "is_paced": self.is_paced, "parts": parts}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Conversation":
        """Return one that a file has."""
        parts = tuple(bytes.fromhex(part) for part in fields["parts"])
        marker, is_paced = bytes.fromhex(fields["marker"]), bool(fields.get("is_paced"))
        return Conversation(listener=fields["listener"], parts=parts, marker=marker, is_paced=is_paced)


def save(path: Path, conversations: list[Conversation], **about: Any) -> None:
    """Write conversations and what they are about to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [each.to_json() for each in conversations]
    path.write_text(json.dumps(about | {"conversations": rows}, indent=1) + "\n")


def case(protocol: str, seed: int, number: int, *, logins: bool) -> Conversation:
    """Return a case.

    Args:
        protocol: one of `PROTOCOLS`.
        seed: of the run.
        number: of the case.
        logins: the broker has users.
    """
    dice = Random(f"{seed} {protocol} {number} {logins}")
    return _MAKERS[protocol](dice, number, logins)


def answers(data: bytes, listener: str) -> int:
    """Return how many markers have been answered in what a broker has sent."""
    return _COUNTERS[_protocol(data, listener)](data)


def _protocol(data: bytes, listener: str) -> str:
    """Return the protocol of a listener; that of `auto` by the first bytes."""
    name = listener.removeprefix("raw:").removesuffix("+ssl")
    if name != "auto":
        return name
    if data.startswith((b"CONNECTED", b"ERROR", b"HTTP/1.1")):
        return STOMP
    if data.startswith(b"AMQP"):
        return AMQP
    return MQTT if data.startswith(_MQTT_BEGINS) else OPENWIRE


def _openwire_answers(data: bytes) -> int:
    count = offset = 0
    while offset + _SIZE.size < len(data):
        size = _SIZE.unpack_from(data, offset)[0]
        count += data[offset + _SIZE.size] == _KEEP_ALIVE and offset + _SIZE.size + size <= len(data)
        offset += _SIZE.size + size
    return count


def _stomp_answers(data: bytes) -> int:
    return data.count(_STOMP_ANSWER)


_COUNTERS: Final[Mapping[str, Callable[[bytes], int]]] = {
    OPENWIRE: _openwire_answers,
    STOMP: _stomp_answers,
    WEBSOCKET: _stomp_answers,
    MQTT: mqtt_conversations.answers,
    AMQP: amqp_conversations.answers,
}


# ---------------------------------------------------------------- OpenWire


def _openwire(dice: Random, number: int, logins: bool) -> Conversation:
    version = dice.choice((12, 12, 12, 12, 12, 11, 10, 9, 6, 5, 3, 2, 1))
    wire_format = _format(version)
    login = _login(dice, logins)
    values = Values(dice, f"fuzz-{number}", f"fuzz-{max(0, number - dice.randint(1, 9))}", login)
    hello = encode_offer(Offer(version=version, tight_encoding_enabled=dice.random() < 0.5, cache_enabled=False))
    if dice.random() < 0.03:  # the first frame itself
        first = _framed(bytes_mutations.mutated(hello[4:], dice, corpus.openwire_frames(version)), dice)
        parts = [b"", first]
    elif dice.random() < _CAPTURES:
        parts = [hello, *_capture(dice)]
    else:
        begin = hello
        if dice.random() > _BEFORE_LOGIN:
            begin += b"".join(map(wire_format.encode_frame, _beginning(values.connection_id, login, dice)))
        parts = [begin, *(_frame(values, version, dice) for _ in range(dice.randint(1, _FRAMES_MAX)))]
    marker = wire_format.encode_frame(wire.KeepAliveInfo(response_required=True))
    return Conversation(listener=_listener(OPENWIRE, dice), parts=tuple(parts), marker=marker)


@cache
def _format(version: int) -> WireFormat:
    return WireFormat(version)


def _login(dice: Random, logins: bool) -> tuple[str | None, str | None]:
    if not logins:
        return None, None
    return dice.choice(((USER, PASSWORD),) * 8 + ((POOR_USER, PASSWORD),) * 4 + ((USER, "wrong"), (None, None)))


def _beginning(connection: str, login: tuple[str | None, str | None], dice: Random) -> list[Any]:
    name = wire.ConnectionId(connection)
    user, password = login
    return [
        wire.ConnectionInfo(
            command_id=1, response_required=True, connection_id=name, client_id=connection, user_name=user,
            password=password, failover_reconnect=dice.random() < 0.1, manageable=dice.random() < 0.5,
        ),
        wire.SessionInfo(session_id=wire.SessionId(connection, 1)),
        wire.ProducerInfo(producer_id=wire.ProducerId(connection, 1, 1)),
        wire.ConsumerInfo(
            consumer_id=wire.ConsumerId(connection, 1, 1), destination=queue(QUEUE),
            prefetch_size=dice.choice((0, 3, 100)),
        ),
    ]  # fmt: skip


def _frame(values: Values, version: int, dice: Random) -> bytes:
    """Return a frame: a valid one that is out of place, or mutated bytes of one by the schema or of a golden file."""
    others = corpus.openwire_frames(version)
    chance = dice.random()
    if chance < 0.1:
        return _framed(bytes_mutations.mutated(dice.choice(others), dice, others), dice)
    try:
        frame = _format(version).encode(values.command(version))
    except UnencodableOpenWire:  # a string that does not fit, for instance
        frame = dice.choice(others)
    if chance < 0.3:
        frame = bytes_mutations.mutated(frame, dice, others)
    return _framed(frame, dice)


def _framed(frame: bytes, dice: Random) -> bytes:
    """Return a frame with its size, which now and then is another."""
    if dice.random() < 0.98:
        return _SIZE.pack(len(frame)) + frame
    return _SIZE.pack(dice.choice((len(frame) + 1, len(frame) - 1, 0, -1, 0x7FFFFFFF, 65_537, -(1 << 31)))) + frame


def _capture(dice: Random) -> list[bytes]:
    """Return a captured conversation with some frames mutated, left out, twice, or in another order."""
    frames = dice.choice(corpus.openwire_captures())[1:]
    return [_framed(frame, dice) for frame in bytes_mutations.rearranged(frames, dice)]


# ---------------------------------------------------------------- STOMP


def _stomp(dice: Random, number: int, logins: bool) -> Conversation:
    version = dice.choice(("1.0", "1.1", "1.2", "1.2"))
    user, password = _login(dice, logins)
    login = "" if user is None else f"login:{user}\npasscode:{password}\n"
    if dice.random() < _DURABLE:
        login += f"client-id:fuzz-{number}\n"
    connect = f"CONNECT\naccept-version:{version}\nhost:h\nheart-beat:0,0\n{login}\n\0".encode()
    chance = dice.random()
    if chance < 0.1:  # before a login, where one frame is the last
        others = [connect, stomp_frames.frame(dice)]
        parts = [b"", stomp_frames.mutated(dice.choice(others), dice, others)]
    elif chance < 0.2:
        pieces = [connect, *dice.choice(corpus.stomp_captures())[1:]]
        at = dice.randrange(1, len(pieces)) if len(pieces) > 1 else 0
        pieces[at] = stomp_frames.mutated(pieces[at], dice, pieces)
        parts = [pieces[0], *pieces[1:]]
    else:
        mode = dice.choice(("auto", "client", "client-individual"))
        begin = connect + f"SUBSCRIBE\nid:1\nack:{mode}\ndestination:/queue/{QUEUE}\n\n\0".encode()
        parts = [begin, *(_stomp_frame(dice) for _ in range(dice.randint(1, _FRAMES_MAX)))]
    return Conversation(listener=_listener(STOMP, dice), parts=tuple(parts), marker=STOMP_MARKER)


def _stomp_frame(dice: Random) -> bytes:
    frame = stomp_frames.frame(dice)
    if dice.random() < 0.4:
        return stomp_frames.mutated(frame, dice, [stomp_frames.frame(dice)])
    return frame


def _listener(protocol: str, dice: Random) -> str:
    name = "auto" if dice.random() < _ON_AUTO else protocol
    return f"{name}+ssl" if dice.random() < _OVER_TLS else name


# ---------------------------------------------------------------- WebSocket


def _websocket(dice: Random, number: int, logins: bool) -> Conversation:
    """Return a conversation of STOMP in messages; now and then the request itself is wrong."""
    inner = _stomp(dice, number, logins)
    if dice.random() < 0.05:
        parts = [b"", websocket_frames.wrong_request(dice)]
    else:
        first, *others = inner.parts
        begin = websocket_frames.request(dice) + (websocket_frames.frame(2, first) if first else b"")
        parts = [begin, *(websocket_frames.messages(part, dice) for part in others)]
    return Conversation(listener=_listener(WEBSOCKET, dice), parts=tuple(parts), marker=_WEBSOCKET_MARKER)


# ---------------------------------------------------------------- MQTT and AMQP


def _mqtt(dice: Random, number: int, logins: bool) -> Conversation:
    parts = mqtt_conversations.parts(dice, number, _login(dice, logins), _FRAMES_MAX)
    is_paced, listener = dice.random() < _PACED, _listener(MQTT, dice)
    return Conversation(listener=listener, parts=parts, marker=mqtt_conversations.MARKER, is_paced=is_paced)


def _amqp(dice: Random, number: int, logins: bool) -> Conversation:
    parts = amqp_conversations.parts(dice, number, _login(dice, logins), _FRAMES_MAX)
    is_paced, listener = dice.random() < _PACED, _listener(AMQP, dice)
    return Conversation(listener=listener, parts=parts, marker=amqp_conversations.MARKER, is_paced=is_paced)


# ---------------------------------------------------------------- TLS

_TLS_RECORDS: Final = (
    b"\x15\x03\x03\0\x02\x02\x28", b"\x14\x03\x03\0\x01\x01", b"\x17\x03\x03\0\x05hello", b"\x80\x2e\x01\x03\0"
)  # fmt: skip
"""An alert, a change of ciphers, application data, and the beginning of SSL 2."""


def _tls(dice: Random, number: int, logins: bool) -> Conversation:
    hellos = corpus.client_hellos()
    records = (*hellos, *_TLS_RECORDS)
    data = bytes_mutations.mutated(dice.choice(hellos), dice, records)
    if dice.random() < 0.3:
        data = dice.choice(hellos) + bytes_mutations.mutated(dice.choice(records), dice, records)
    name = dice.choice((OPENWIRE, STOMP, WEBSOCKET, MQTT, AMQP, "auto"))
    return Conversation(listener=f"raw:{name}+ssl", parts=(b"", data), marker=b"")


_MAKERS: Final[Mapping[str, Callable[[Random, int, bool], Conversation]]] = {
    OPENWIRE: _openwire,
    STOMP: _stomp,
    WEBSOCKET: _websocket,
    MQTT: _mqtt,
    AMQP: _amqp,
    TLS: _tls,
}
