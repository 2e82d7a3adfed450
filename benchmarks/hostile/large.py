"""Messages of 90 MB on every way through the broker that may copy them, and messages of megabytes to many with TLS."""

import asyncio
import time
from typing import Final

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.floods import tls_context
from benchmarks.hostile.target import Target, common, queue, topic
from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer

_QUEUE = queue("HOSTILE.LARGE")
_OLD = WireFormat(5)
"""Another layout of messages than the store's."""
_READ_BYTES = 1 << 20
_CHARS: Final = 90_000_000, 20_000_000
"""The length of a text, and that in the short form."""


async def _sent(target: Target, destination: Destination, source: Destination, **fields: object) -> str:
    """Send a persistent text to a destination, to a consumer of another one."""
    producer = await target.openwire()
    frame = producer.messages_to(destination, 1, text="x" * target.sized(*_CHARS), persistent=True, **fields)
    await target.begin()
    consumer = await target.openwire()
    await consumer.consume(source)
    await producer.write(frame)
    await producer.settle(40)
    await consumer.messages_reach(1, 20)
    return f"{consumer.messages} received; {common(producer.errors)}"


@attack("large-composite", frame_mb=90)
async def composite(target: Target) -> str:
    """A persistent text of 90 MB to a composite of two queues."""
    return await _sent(target, queue("HOSTILE.LARGE,HOSTILE.OTHER"), _QUEUE)


@attack("large-virtual", frame_mb=90)
async def virtual(target: Target) -> str:
    """A persistent text of 90 MB to a virtual topic with a queue."""
    return await _sent(target, topic("VirtualTopic.LARGE"), queue("Consumer.a.VirtualTopic.LARGE"))


@attack("large-scheduled", frame_mb=90)
async def scheduled(target: Target) -> str:
    """A persistent text of 90 MB scheduled for 2 s later."""
    return await _sent(target, _QUEUE, _QUEUE, values={"AMQ_SCHEDULED_DELAY": 2000})


class _Raw:
    """A client whose frames are in a wire format of its own; it counts the bytes that it receives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, form: WireFormat) -> None:
        self._reader, self._writer, self._form = reader, writer, form
        self.id = f"hostile-raw-{time.monotonic_ns()}"

    @classmethod
    async def connected(cls, target: Target, form: WireFormat) -> "_Raw":
        """Return a client that has negotiated the format, and is logged in."""
        reader, writer = await asyncio.open_connection("127.0.0.1", target.openwire_port, limit=_READ_BYTES)
        client = cls(reader, writer, form)
        writer.write(encode_offer(Offer(version=form.version, frame_bytes_max=1 << 40)))
        connection = wire.ConnectionId(client.id)
        for command in (
            wire.ConnectionInfo(connection_id=connection, client_id=client.id),
            wire.SessionInfo(session_id=wire.SessionId(client.id, 1)),
            wire.ProducerInfo(producer_id=wire.ProducerId(client.id, 1, 1)),
        ):
            client.send(command)
        return client

    def send(self, command: wire.BaseCommand) -> None:
        """Send a command."""
        self._writer.write(self._form.encode_frame(command))

    async def write(self, frame: bytes) -> None:
        """Send a frame, as fast as the broker reads."""
        view = memoryview(frame)
        for offset in range(0, len(view), _READ_BYTES):
            self._writer.write(view[offset : offset + _READ_BYTES])
            await self._writer.drain()

    async def received(self, length: int, seconds: float) -> int:
        """Read until a frame that is at least that long has come; return its length, or 0 if none comes in time."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    size = INT.unpack(await self._reader.readexactly(INT.size))[0]
                    for left in range(size, 0, -_READ_BYTES):
                        await self._reader.readexactly(min(left, _READ_BYTES))
                    if size >= length:
                        return int(size)
        except (TimeoutError, asyncio.IncompleteReadError):
            return 0


@attack("large-old-version", frame_mb=90)
async def old_version(target: Target) -> str:
    """A persistent text of 90 MB from and to a client of wire version 5, and one of version 12 to the same."""
    size = target.sized(*_CHARS)
    raw = await _Raw.connected(target, _OLD)
    producer = wire.ProducerId(raw.id, 1, 1)
    frame = _OLD.encode_frame(
        wire.ActiveMQTextMessage(
            producer_id=producer,
            destination=_QUEUE,
            message_id=wire.OpenWireMessageId(None, producer, 1),
            persistent=True,
            content=encode_text("x" * size),
        )
    )
    usual = await target.openwire()
    other = usual.messages_to(_QUEUE, 1, text="x" * size, persistent=True)
    await target.begin()
    raw.send(wire.ConsumerInfo(consumer_id=wire.ConsumerId(raw.id, 1, 1), destination=_QUEUE, prefetch_size=10))
    await raw.write(frame)
    received = bool(await raw.received(size, 20))
    await usual.write(other)
    received += bool(await raw.received(size, 20))
    target.depth.reach(received, 2, "messages received")
    return f"{received} of 2 received; {common(usual.errors)}"


class _Subscriber:
    """A STOMP client with TLS that counts the bytes of what it receives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._received = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def subscribed(cls, target: Target, destination: str) -> "_Subscriber":
        """Return a client that has subscribed."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", target.tls_port, ssl=tls_context(), limit=_READ_BYTES
        )
        writer.write(b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0")
        writer.write(f"SUBSCRIBE\nid:1\ndestination:{destination}\nreceipt:r\n\n\0".encode())
        await reader.readuntil(b"\0")
        await reader.readuntil(b"\0")
        client = cls(reader, writer)
        client._task = asyncio.create_task(client._read())
        return client

    async def _read(self) -> None:
        while chunk := await self._reader.read(_READ_BYTES):
            self._received += len(chunk)
            self._changed.set()

    async def received(self, length: int, seconds: float) -> bool:
        """Wait until so many bytes have come; return whether they came."""
        try:
            async with asyncio.timeout(seconds):
                while self._received < length:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self._received >= length


@attack("large-tls", tls=True, frame_mb=90)
async def tls(target: Target) -> str:
    """A persistent text of 90 MB to a STOMP consumer with TLS."""
    size = target.sized(*_CHARS)
    producer = await target.openwire()
    frame = producer.messages_to(_QUEUE, 1, text="x" * size, persistent=True)
    await target.begin()
    consumer = await _Subscriber.subscribed(target, f"/queue/{_QUEUE.name}")
    await producer.write(frame)
    await producer.settle(40)
    target.depth.reach(await consumer.received(size, 20), 1, "messages received")
    return common(producer.errors) or "received"


@attack("tls-fan-out", tls=True)
async def tls_fan_out(target: Target) -> str:
    """60 STOMP subscribers of a topic with TLS, and five messages of 3 MB."""
    await target.begin()
    count, size, subscribers = 5, 3_000_000, []
    for _ in range(target.sized(60, 10)):
        subscribers.append(await _Subscriber.subscribed(target, "/topic/HOSTILE.FAN"))
    producer = await target.openwire()
    for _ in range(count):
        await producer.write(producer.messages_to(topic("HOSTILE.FAN"), 1, text="x" * size))
        await producer.settle(30)
    for each in subscribers:
        target.depth.reach(await each.received(count * size, 30), 1, "subscribers that received all")
    return common(producer.errors) or "received by all"
