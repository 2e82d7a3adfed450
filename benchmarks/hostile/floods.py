"""Floods: one connection, or very many, that send small commands as fast as the broker reads them."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Sequence

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
    await target.begin()
    client = await target.openwire()
    local = LocalTransactionId(client.id, 1)
    kinds = (wire.TransactionType.BEGIN, wire.TransactionType.ROLLBACK)
    return await _own_flood(target, client, [client.transaction(kind, local) for kind in kinds])


@attack("flood-remove-info", quick=True)
async def remove_info(target: Target) -> str:
    """RemoveInfo of a consumer that does not exist, for 4 s."""
    await target.begin()
    client = await target.openwire()
    return await _own_flood(target, client, [wire.RemoveInfo(object_id=wire.ConsumerId(client.id, 1, 9))])


@attack("flood-remove-info-foreign", refused="IllegalStateException")
async def remove_info_foreign(target: Target) -> str:
    """RemoveInfo of a consumer of another connection, which is refused, for 4 s."""
    return await _openwire_flood(target, FORMAT.encode_frame(wire.RemoveInfo(object_id=wire.ConsumerId("x", 1, 1))))


@attack("flood-sessions")
async def sessions(target: Target) -> str:
    """A session, a producer and a consumer that begin and end, for 4 s."""
    await target.begin()
    client = await target.openwire()
    session, producer = wire.SessionId(client.id, 5), wire.ProducerId(client.id, 5, 1)
    consumer = client.consumer(queue("FLOOD.SESSION"))
    commands = [
        wire.SessionInfo(session_id=session),
        wire.ProducerInfo(producer_id=producer),
        consumer,
        wire.RemoveInfo(object_id=consumer.consumer_id),
        wire.RemoveInfo(object_id=producer),
        wire.RemoveInfo(object_id=session),
    ]
    return await _own_flood(target, client, commands)


async def _own_flood(target: Target, client: OpenWire, commands: Sequence[wire.DataStructure]) -> str:
    """Send commands of a client, which have its own ids, again and again."""
    frames = b"".join(map(FORMAT.encode_frame, commands))
    data = _chunk(frames)
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return _outcome(client, count * len(data) // len(frames) * len(commands))


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


@attack("connections-5000", fills=True)
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
    target.depth.reach(len(made), count, "connections opened")
    return f"{len(made):,} opened, {refused:,} refused"


def tls_context() -> ssl.SSLContext:
    """Return the context of a client that trusts every certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@attack("tls-handshakes", tls=True)
async def tls_handshakes(target: Target) -> str:
    """TLS connections that come and go, 100 at a time, for 4 s."""
    context = tls_context()
    await target.begin()
    until, count = time.monotonic() + target.sized(_SECONDS, 1), 0

    async def run() -> None:
        nonlocal count
        while time.monotonic() < until:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(10):
                    _, writer = await asyncio.open_connection("127.0.0.1", target.tls_port, ssl=context)
                writer.transport.abort()
                count += 1

    await asyncio.gather(*(run() for _ in range(100)))
    target.depth.reach(count, 100, "handshakes")
    return f"{count:,} handshakes"


@attack("tls-records", tls=True)
async def tls_records(target: Target) -> str:
    """A TLS connection that sends a record for each byte, for 4 s."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = tls_context().wrap_bio(incoming, outgoing)
    reader, writer = await asyncio.open_connection("127.0.0.1", target.tls_port)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(1 << 16))
    for byte in b"CONNECT\naccept-version:1.2\nhost:h\n\n\0" + b"\n" * 200_000:
        tls.write(bytes((byte,)))
    data = outgoing.read()
    await target.begin()
    async with asyncio.timeout(target.sized(_SECONDS, 1)):
        writer.write(data)
        await writer.drain()
    return f"{len(data):,} bytes of records"


@attack("tls-half-open", tls=True, fills=True)
async def tls_half_open(target: Target) -> str:
    """1,500 connections to the TLS port that begin no handshake, or break off in the middle of one."""
    await target.begin()
    return await _tls_half_open(target, target.sized(1500, 300), lambda number: _RECORD_HEAD if number % 2 else b"")


_RECORD_HEAD = b"\x16\x03\x01\x02\x00"


@attack("tls-half-open-hellos", tls=True, extra=("--connections-max", "4000"))
async def tls_half_open_hellos(target: Target) -> str:
    """1,500 connections to the TLS port that send a ClientHello, all at the same moment, and read no answer."""
    tls = tls_context().wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO())
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    await target.begin()
    return await _tls_half_open(target, target.sized(1500, 300), lambda _: hello)


async def _tls_half_open(target: Target, count: int, data: Callable[[int], bytes]) -> str:
    """Open so many connections to the TLS port, and then have each send its data."""
    made = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", target.tls_port)
            made.append(writer)
    for number, writer in enumerate(made):
        writer.write(data(number))
    await asyncio.sleep(target.sized(4, 1))
    target.depth.reach(len(made), count, "connections opened")
    return f"{len(made):,} opened"


@attack("flood-20-connections", refused="Exception|ERROR")
async def twenty_connections(target: Target) -> str:
    """20 connections that flood at the same time, each with another command, STOMP and OpenWire, for 4 s."""
    frames = (wire.KeepAliveInfo(response_required=True), wire.FlushCommand(), wire.RemoveInfo(object_id=None))
    await target.begin()
    jobs = []
    for number in range(10):
        client, stomp = await target.openwire(), await target.stomp()
        command = FORMAT.encode_frame(frames[number % len(frames)])
        jobs.append(client.flood(_chunk(command), target.sized(_SECONDS, 1)))
        frame = b"SEND\ndestination:/topic/F\n\nx\0" if number % 2 else b"ACK\nid:none\n\n\0"
        jobs.append(stomp.flood(_chunk(frame), target.sized(_SECONDS, 1)))
    counts = await asyncio.gather(*jobs)
    return f"{sum(counts)} MB"


@attack("flood-900-connections")
async def nine_hundred_connections(target: Target) -> str:
    """900 connections that each send 500 small messages at the same moment."""
    await target.begin()
    data = b"SEND\ndestination:/topic/FLOOD\n\nx\0" * 500
    clients = [await target.stomp() for _ in range(target.sized(900, 100))]
    for client in clients:
        await client.write(data)
    await asyncio.gather(*(each.request(b"SEND\ndestination:/topic/F\nreceipt:r\n\nx\0", 40) for each in clients))
    return f"{500 * len(clients):,} messages"


@attack("flood-pulls")
async def pulls(target: Target) -> str:
    """MessagePulls of one consumer with prefetch 0, each with a time-out of a millisecond, for 4 s."""
    await target.begin()
    client = await target.openwire()
    consumer = await client.consume(queue("FLOOD.PULL"), prefetch=0)
    pull = wire.MessagePull(consumer_id=consumer, destination=queue("FLOOD.PULL"), timeout=1)
    count = await client.flood(_chunk(FORMAT.encode_frame(pull)), target.sized(_SECONDS, 1))
    return f"{count} MB; {client.messages:,} answers; {common(client.errors)}"


@attack("flood-consumer-control")
async def consumer_control(target: Target) -> str:
    """ConsumerControl that changes a prefetch again and again over 20,000 waiting messages, for 4 s."""
    await target.begin()
    client = await target.openwire()
    await client.write(client.messages_to(queue("FLOOD.CONTROL"), target.sized(20_000, 2_000), text="x"))
    consumer = await client.consume(queue("FLOOD.CONTROL"), prefetch=1)
    data = b"".join(
        FORMAT.encode_frame(
            wire.ConsumerControl(consumer_id=consumer, destination=queue("FLOOD.CONTROL"), prefetch=number % 5)
        )
        for number in range(5000)
    )
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count * 5000:,} frames; {common(client.errors)}"
