"""The attacker's client of MQTT 3.1.1 and 5, over TCP or WebSocket: it writes packets, and counts what comes back."""

import asyncio
from typing import Any, Final

from benchmarks.hostile.target import AttackClient, Depth, Refused, Target, connection

CONNECT_SECONDS: Final = 30.0
_FAILURE: Final = 0x80


class Mqtt(AttackClient):
    """A client; it acknowledges nothing unless it is told to."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        depth: Depth,
        *,
        level: int,
        acknowledges: bool,
    ) -> None:
        super().__init__(reader, writer, depth)
        self.level = level
        self.answers = 0
        """Answers to SUBSCRIBE, PUBLISH and PINGREQ."""
        self._acknowledges = acknowledges
        self._is_connected = False

    async def subscribe(self, *filters: tuple[str, int], seconds: float = 30.0) -> None:
        """Subscribe, and wait for the answer. Raises `TimeoutError`."""
        wanted = self.answers + 1
        await self.write(subscribe(*filters, level=self.level))
        if not await self.until(lambda: self.answers >= wanted, seconds):
            raise TimeoutError("no SUBACK")

    async def publish(self, name: str, payload: bytes, *, retain: bool = False, seconds: float = 30.0) -> None:
        """Publish with QoS 1, and wait for the answer. Raises `TimeoutError`."""
        wanted = self.answers + 1
        await self.write(publish(name, payload, qos=1, retain=retain, level=self.level))
        if not await self.until(lambda: self.answers >= wanted, seconds):
            raise TimeoutError("no PUBACK")

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until everything written so far is carried out. Raises `TimeoutError`."""
        wanted = self.answers + 1
        await self.write(PINGREQ)
        if not await self.until(lambda: self.answers >= wanted, seconds):
            raise TimeoutError("no PINGRESP")

    async def greet(self, **options: Any) -> None:
        """Send CONNECT, and wait for the answer. Raises `Refused`."""
        await self.write(connect(level=self.level, **options))
        self.start_reading()
        if not await self.until(lambda: self._is_connected, CONNECT_SECONDS):
            raise Refused(next(iter(self.errors), "no CONNACK"))

    async def _read(self) -> None:
        data = b""
        while chunk := await self._reader.read(1 << 18):
            data = self._received(data + chunk)
            self._changed.set()

    def _received(self, data: bytes) -> bytes:
        """Count whole packets; return the rest."""
        at, acknowledgements = 0, bytearray()
        while at + 2 <= len(data):
            length, shift, start = 0, 0, at + 1
            while True:
                if start == len(data):
                    return data[at:]
                byte = data[start]
                start += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            if start + length > len(data):
                break
            self._packet(data[at], data, start, start + length, acknowledgements)
            at = start + length
        if acknowledgements:
            self._writer.write(acknowledgements)
        return data[at:]

    def _packet(self, head: int, data: bytes, start: int, end: int, acknowledgements: bytearray) -> None:
        kind = head >> 4
        if kind == 3:
            self.messages += 1
            if self._acknowledges and head & 6:
                at = start + 2 + int.from_bytes(data[start : start + 2], "big")
                acknowledgements += b"\x40\x02" + data[at : at + 2]
            return
        if kind == 2:
            self._is_connected = data[start + 1] == 0
            code = data[start + 1]
        elif kind in (9, 14):
            code = data[end - 1] if kind == 9 else data[start] if end > start else 0
        else:
            code = 0
        self.answers += kind in (4, 5, 9, 13)
        if code >= _FAILURE or (kind == 2 and code):
            self.refused(f"reason 0x{code:02x}")


PINGREQ: Final = b"\xc0\0"


async def mqtt(
    target: Target,
    client_id: str,
    *,
    level: int = 4,
    reads: bool = True,
    acknowledges: bool = False,
    **options: Any,
) -> Mqtt:
    """Return a connected client. `options` are those of `connect`."""
    reader, writer = await connection(target.mqtt_port, reads=reads)
    client = Mqtt(reader, writer, target.depth, level=level, acknowledges=acknowledges)
    await client.greet(client_id=client_id, **options)
    if not reads:
        client.stop_reading()
    return client


def connect(
    client_id: str,
    *,
    level: int = 4,
    clean: bool = True,
    will: tuple[str, bytes] | None = None,
    properties: bytes = b"",
    will_properties: bytes = b"",
) -> bytes:
    """Encode CONNECT without keep-alive."""
    flags = clean << 1 | (4 if will is not None else 0)
    content = text(b"MQTT") + bytes((level, flags, 0, 0)) + _properties(level, properties) + text(client_id.encode())
    if will is not None:
        content += _properties(level, will_properties) + text(will[0].encode()) + text(will[1])
    return packet(0x10, content)


def publish(
    name: str,
    payload: bytes,
    *,
    qos: int = 0,
    packet_id: int = 1,
    retain: bool = False,
    level: int = 4,
    properties: bytes = b"",
) -> bytes:
    """Encode PUBLISH."""
    identifier = packet_id.to_bytes(2, "big") if qos else b""
    content = text(name.encode()) + identifier + _properties(level, properties) + payload
    return packet(0x30 | qos << 1 | retain, content)


def subscribe(*filters: tuple[str, int], level: int = 4) -> bytes:
    """Encode SUBSCRIBE."""
    body = b"".join([text(each.encode()) + bytes((qos,)) for each, qos in filters])
    return packet(0x82, b"\0\1" + _properties(level, b"") + body)


def packet(head: int, content: bytes) -> bytes:
    """Encode a packet."""
    return bytes((head,)) + variable(len(content)) + content


def text(value: bytes) -> bytes:
    """Encode a text, or binary data."""
    return len(value).to_bytes(2, "big") + value


def variable(value: int) -> bytes:
    """Encode a variable byte integer."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(digits) + bytes((value,))


def _properties(level: int, encoded: bytes) -> bytes:
    return variable(len(encoded)) + encoded if level == 5 else b""
