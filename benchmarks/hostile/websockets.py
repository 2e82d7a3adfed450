"""WebSocket: frames and requests that are legal, or nearly so, very many or never ending."""

import asyncio
import base64
import contextlib
from typing import Final

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.mqtt_client import connect, publish
from benchmarks.hostile.target import AttackClient, Refused, Target, common, connection

_SECONDS: Final = 4
_CHUNK: Final = 1 << 20
_KEY: Final = base64.b64encode(bytes(16)).decode()
_CONTINUATION, _TEXT, _BINARY, _PING = 0, 1, 2, 9
_CLOSE: Final = 8
_TOO_LONG: Final = 1 << 62


class WebSocket(AttackClient):
    """A client that has upgraded; it counts messages of the broker, and the bytes that came.

    Attributes:
        pongs: answers to pings.
    """

    pongs = 0

    async def _read(self) -> None:
        while True:
            head = await self._reader.readexactly(2)
            length = head[1]
            if length >= 126:
                length = int.from_bytes(await self._reader.readexactly(2 if length == 126 else 8), "big")
            content = await self._reader.readexactly(length)
            kind = head[0] & 15
            self.messages += kind in (_TEXT, _BINARY)
            self.pongs += kind == _PING + 1
            if kind == _CLOSE:
                self.refused(f"close code {int.from_bytes(content[:2], 'big')}")
            self._changed.set()


def frame(kind: int, payload: bytes, *, final: bool = True) -> bytes:
    """Encode a frame of a client; its mask is 0, which changes nothing."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes((final << 7 | kind,)) + length + bytes(4) + payload


def request(protocol: str) -> bytes:
    """Encode the request for a WebSocket."""
    return (
        f"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ).encode()


async def websocket(target: Target, protocol: str, *, reads: bool = True) -> WebSocket:
    """Return a client that has upgraded, and is not connected to the broker yet."""
    reader, writer = await connection(target.ws_port, reads=reads)
    writer.write(request(protocol))
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in answer:
        raise Refused(answer.decode().partition("\r\n")[0])
    client = WebSocket(reader, writer, target.depth)
    client.start_reading()
    if not reads:
        client.stop_reading()
    return client


async def _stomp(target: Target, *, reads: bool = True) -> WebSocket:
    client = await websocket(target, "v12.stomp")
    await client.write(frame(_TEXT, b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"))
    await client.messages_reach(1, 30)
    if not reads:
        client.stop_reading()
    return client


@attack("ws-flood-ping", quick=True, mqtt=True)
async def flood_ping(target: Target) -> str:
    """Pings of 125 bytes, for 4 s; the answers are read."""
    data = frame(_PING, b"x" * 125) * 8_000
    await target.begin()
    client = await _stomp(target)
    await client.flood(data, target.sized(_SECONDS, 1))
    target.depth.reach(client.pongs, 1_000, "pongs")
    return f"{client.pongs:,} pongs; {common(client.errors)}"


@attack("ws-ping-unread", mqtt=True)
async def ping_unread(target: Target) -> str:
    """The same by 50 clients that read no answer."""
    data = frame(_PING, b"x" * 125) * 8_000
    await target.begin()
    clients = [await _stomp(target, reads=False) for _ in range(target.sized(50, 5))]
    counts = await asyncio.gather(*(client.flood(data, target.sized(_SECONDS, 1)) for client in clients))
    return f"{sum(counts):,} MB sent"


@attack("ws-flood-mqtt", quick=True, mqtt=True)
async def flood_mqtt(target: Target) -> str:
    """Small MQTT messages, each in a WebSocket message, for 4 s."""
    packet = frame(_BINARY, publish("flood/topic", b"x" * 20))
    data = packet * (_CHUNK // len(packet))
    await target.begin()
    client = await websocket(target, "mqtt")
    await client.write(frame(_BINARY, connect("flood")))
    await client.messages_reach(1, 30)
    count = await client.flood(data, target.sized(_SECONDS, 1))
    target.depth.reach(count, 1, "floods")
    return f"{count * len(data) // len(packet):,} messages; {common(client.errors)}"


@attack("ws-fragments", quick=True, mqtt=True)
async def fragments(target: Target) -> str:
    """STOMP frames of 100 KB in fragments of one byte."""
    size = target.sized(100_000, 30_000)
    body = b"SEND\ndestination:/topic/FRAGMENTS\nreceipt:r\n\n" + b"x" * size + b"\0"
    first, rest, last = body[:1], body[1:-1], body[-1:]
    data = frame(_TEXT, first, final=False)
    data += b"".join([frame(_CONTINUATION, bytes((byte,)), final=False) for byte in rest])
    data += frame(_CONTINUATION, last)
    await target.begin()
    client = await _stomp(target)
    for number in range(target.sized(5, 2)):
        await client.write(data)
        await client.messages_reach(number + 2, 30)
    return common(client.errors) or "answered"


@attack("ws-fragments-empty", mqtt=True)
async def fragments_empty(target: Target) -> str:
    """A message whose fragments are empty, and which never ends, for 4 s."""
    data = frame(_CONTINUATION, b"", final=False) * (_CHUNK // 6)
    await target.begin()
    client = await _stomp(target)
    await client.write(frame(_TEXT, b"SEND", final=False))
    count = await client.flood(data, target.sized(_SECONDS, 1))
    target.depth.reach(count, 1, "floods")
    return f"{count} MB sent; {common(client.errors)}"


@attack("ws-unfinished", mqtt=True, memory_limit_mb=256, refused="close code 1008|closed without a reason")
async def unfinished(target: Target) -> str:
    """200 clients send 5 MB of a message that they do not finish."""
    await target.begin()
    clients = [await _stomp(target) for _ in range(target.sized(200, 30))]
    begun = frame(_TEXT, b"SEND\ndestination:/topic/UNFINISHED\n\n" + b"x" * 100_000, final=False)
    more = frame(_CONTINUATION, b"x" * 100_000, final=False)
    sent = 0
    for number in range(50):
        for client in [each for each in clients if not each.closed.is_set()]:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(0.05):
                    await client.write(more if number else begun)
                    sent += 1
    return f"{sent / 10:,.0f} MB sent; {sum(client.closed.is_set() for client in clients)} closed"


@attack("ws-requests-open", quick=True, mqtt=True)
async def requests_open(target: Target) -> str:
    """500 requests for a WebSocket that send a header each 10 ms, and do not end."""
    await target.begin()
    writers = []
    for _ in range(target.sized(500, 50)):
        _, writer = await asyncio.open_connection("127.0.0.1", target.ws_port)
        writer.write(b"GET / HTTP/1.1\r\n")
        writers.append(writer)
    for number in range(target.sized(60, 20)):
        for writer in writers:
            writer.write(b"X-%d: %s\r\n" % (number, b"y" * 80))
        await asyncio.sleep(0.01)
    for writer in writers:
        writer.transport.abort()
    target.depth.reach(len(writers), len(writers), "requests")
    return "abandoned"


@attack("ws-wrong", quick=True, mqtt=True, refused="close code 10|closed without a reason")
async def wrong(target: Target) -> str:
    """2,000 connections that upgrade, and break a rule of the frames: masks, lengths, opcodes, UTF-8, control."""
    frames = [
        b"\x81\x05hello", b"\x82\xff" + _TOO_LONG.to_bytes(8, "big") + bytes(4), frame(3, b""), frame(15, b""),
        frame(_TEXT, b"\xff\xfe"), frame(_PING, b"x", final=False), b"\xf1\x80" + bytes(4), frame(_CONTINUATION, b"x"),
        frame(_CLOSE, b"\x00\x01"),
    ]  # fmt: skip
    await target.begin()
    count = target.sized(2_000, 150)
    for number in range(count):
        client = await websocket(target, "v12.stomp")
        await client.write(frames[number % len(frames)])
        await asyncio.wait_for(client.closed.wait(), 20)
        await client.close()
    target.depth.reach(count, count, "connections refused")
    return f"{count:,} connections"
