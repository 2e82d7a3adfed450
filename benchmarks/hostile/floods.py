"""Floods: one connection, or very many, that send small commands as fast as the broker reads them."""

import asyncio
import contextlib
import time

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Refused, Stomp, Target, common, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.transaction import LocalTransactionId

_CHUNK = 1 << 20
_SECONDS = 4


def _chunk(frame: bytes) -> bytes:
    return frame * max(1, _CHUNK // len(frame))


async def _openwire_flood(target: Target, frame: bytes) -> str:
    data = _chunk(frame)
    await target.begin()
    client = await target.openwire()
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return _outcome(client, count * len(data) // len(frame))


async def _stomp_flood(target: Target, frame: bytes) -> str:
    data = _chunk(frame)
    await target.begin()
    client = await target.stomp()
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return _outcome(client, count * len(data) // len(frame))


def _outcome(client: OpenWire | Stomp, frames: int) -> str:
    return f"{frames:,} frames; {common(client.errors)}{' closed' if client.closed.is_set() else ''}"


@attack("flood-keepalive", quick=True)
async def keepalive(target: Target) -> str:
    """KeepAliveInfo, no answer required, for 4 s."""
    return await _openwire_flood(target, FORMAT.encode_frame(wire.KeepAliveInfo(command_id=9)))


@attack("flood-keepalive-answered")
async def keepalive_answered(target: Target) -> str:
    """KeepAliveInfo with an answer required, for 4 s; the answers are read."""
    return await _openwire_flood(target, FORMAT.encode_frame(wire.KeepAliveInfo(command_id=9, response_required=True)))


@attack("flood-keepalive-unread")
async def keepalive_unread(target: Target) -> str:
    """KeepAliveInfo with an answer required, for 4 s, by a client that reads no answer."""
    data = _chunk(FORMAT.encode_frame(wire.KeepAliveInfo(command_id=9, response_required=True)))
    await target.begin()
    client = await target.openwire(reads=False)
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count} MB sent"


@attack("flood-begin-rollback", quick=True)
async def begin_rollback(target: Target) -> str:
    """Transactions that begin and roll back, for 4 s."""
    connection = wire.ConnectionId("c")
    local = LocalTransactionId("c", 1)
    frames = b"".join(
        FORMAT.encode_frame(wire.TransactionInfo(connection_id=connection, transaction_id=local, type=int(kind)))
        for kind in (wire.TransactionType.BEGIN, wire.TransactionType.ROLLBACK)
    )
    return await _openwire_flood(target, frames)


@attack("flood-remove-info", quick=True)
async def remove_info(target: Target) -> str:
    """RemoveInfo of a consumer that does not exist, for 4 s."""
    return await _openwire_flood(target, FORMAT.encode_frame(wire.RemoveInfo(object_id=wire.ConsumerId("x", 1, 1))))


@attack("flood-sessions")
async def sessions(target: Target) -> str:
    """The same SessionInfo and RemoveInfo, for 4 s."""
    session = wire.SessionId("x", 5)
    frames = FORMAT.encode_frame(wire.SessionInfo(session_id=session))
    return await _openwire_flood(target, frames + FORMAT.encode_frame(wire.RemoveInfo(object_id=session)))


@attack("flood-sends", quick=True)
async def sends(target: Target) -> str:
    """Small non-persistent messages to a topic without subscribers, for 4 s."""
    await target.begin()
    client = await target.openwire()
    data = client.messages_to(topic("FLOOD.TOPIC"), 3000, text="x" * 100)
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count * 3000:,} sent; {common(client.errors)}"


@attack("flood-sends-queue")
async def sends_queue(target: Target) -> str:
    """Small non-persistent messages to a queue that is consumed, for 4 s."""
    await target.begin()
    producer, consumer = await target.openwire(), await target.openwire()
    data = producer.messages_to(queue("FLOOD.QUEUE"), 3000, text="x" * 100)
    await consumer.consume(queue("FLOOD.QUEUE"), prefetch=32000)
    count = await producer.flood(data, target.sized(_SECONDS, 1))
    return f"{count * 3000:,} sent, {consumer.messages:,} received; {common(producer.errors)}"


@attack("flood-stomp-sends")
async def stomp_sends(target: Target) -> str:
    """Small STOMP messages to a topic without subscribers, for 4 s."""
    return await _stomp_flood(target, b"SEND\ndestination:/topic/FLOOD\n\nhello\0")


@attack("flood-stomp-heartbeats")
async def stomp_heartbeats(target: Target) -> str:
    """Line feeds, STOMP's heartbeats, for 4 s."""
    return await _stomp_flood(target, b"\n")


@attack("flood-stomp-begin-abort", quick=True)
async def stomp_begin_abort(target: Target) -> str:
    """STOMP transactions that begin and abort, for 4 s."""
    return await _stomp_flood(target, b"BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\n\n\0")


@attack("flood-stomp-subscribe")
async def stomp_subscribe(target: Target) -> str:
    """STOMP subscriptions that begin and end, for 4 s."""
    return await _stomp_flood(
        target, b"SUBSCRIBE\nid:1\ndestination:/queue/FLOOD\n\n\0UNSUBSCRIBE\nid:1\n\n\0"
    )  # fmt: skip


@attack("flood-bytewise")
async def bytewise(target: Target) -> str:
    """One frame, a byte in each segment, over 50 connections, for 4 s."""
    client = await _idle(target, 50)
    await target.begin()
    until = time.monotonic() + target.sized(_SECONDS, 1)
    frame = b"SEND\ndestination:/topic/FLOOD\n\n" + b"x" * 1_000_000
    position = 0
    while time.monotonic() < until:
        for _, writer in client:
            writer.write(frame[position : position + 1])
        position += 1
        await asyncio.sleep(0)
    return f"{position} bytes on each"


async def _idle(target: Target, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    made = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.stomp_port)
        writer.write(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        await reader.readuntil(b"\0")
        made.append((reader, writer))
    return made


@attack("flood-connects", quick=True)
async def connects(target: Target) -> str:
    """STOMP connections that come and go, 20 at a time, for 4 s."""
    await target.begin()
    until, count = time.monotonic() + target.sized(_SECONDS, 1), 0

    async def run() -> None:
        nonlocal count
        while time.monotonic() < until:
            with contextlib.suppress(OSError, Refused):
                client = await target.stomp()
                await client.close()
                count += 1

    await asyncio.gather(*(run() for _ in range(20)))
    return f"{count:,} connections"


@attack("flood-garbage-connects")
async def garbage_connects(target: Target) -> str:
    """Connections that send garbage and are closed, 20 at a time, for 4 s: what is logged counts too."""
    await target.begin()
    until, count = time.monotonic() + target.sized(_SECONDS, 1), 0

    async def run(port: int) -> None:
        nonlocal count
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"\x00\x00\x00\x05GARBAGE\0\n" * 10)
                async with asyncio.timeout(5):
                    await reader.read()
                writer.close()
                count += 1

    await asyncio.gather(*(run((target.openwire_port, target.stomp_port)[each % 2]) for each in range(20)))
    return f"{count:,} connections"


@attack("connections-5000")
async def connections(target: Target) -> str:
    """5,000 connections at once, beyond `connections_max`, while the bystander's stay."""
    await target.begin()
    count = target.sized(5000, 1500)
    made: list[asyncio.StreamWriter] = []
    refused = 0
    for _ in range(count):
        try:
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection("127.0.0.1", target.stomp_port)
            writer.write(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
            made.append(writer)
        except (OSError, TimeoutError):
            refused += 1
    await asyncio.sleep(1)
    for writer in made:
        writer.transport.abort()
    await asyncio.sleep(0.5)
    return f"{len(made):,} opened, {refused:,} refused"
