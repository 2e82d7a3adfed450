"""What one client can make the broker write into its log."""

import asyncio
import contextlib

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, Target, common, message, queue
from pybroker.broker.domain.openwire import commands as wire

_SECONDS = 5


@attack("log-refused-commands", quick=True, refused="InvalidSelectorException|InvalidDestinationException")
async def refused_commands(target: Target) -> str:
    """38 MB of commands that are refused, with names of 20 kB."""
    await target.begin()
    client = await target.openwire()
    name = "n" * 20_000
    data = b"".join(
        FORMAT.encode_frame(client.consumer(queue(f"{number}{name}"), selector="this is (no selector"))
        for number in range(50)
    )
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count} MB; {common(client.errors)}"


@attack("log-refused-sends", quick=True, refused="InvalidDestinationException")
async def refused_sends(target: Target) -> str:
    """Messages to destinations that cannot be, with names of 20 kB, no answers required."""
    await target.begin()
    client = await target.openwire()
    data = b"".join(
        FORMAT.encode_frame(message(queue(f"\n{number}," * 300), producer=client.producer, sequence=number, text="x"))
        for number in range(500)
    )
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count * 500:,} sent; {common(client.errors)}"


@attack("log-malformed", quick=True, refused=".")
async def malformed(target: Target) -> str:
    """Connections that send malformed frames full of line feeds and escapes, STOMP and OpenWire."""
    await target.begin()
    count = 0
    until = asyncio.get_running_loop().time() + target.sized(_SECONDS, 1)
    while asyncio.get_running_loop().time() < until:
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", target.stomp_port)
                writer.write(b"\x1b[31m" + b"EVIL\n" * 2_000 + b"\n\n\0" * 2_000)
                await writer.drain()
                client = await target.openwire()
                await client.write(b"\0\0\0\x05\xffEVIL")
                await reader.read()  # until the broker closes
                await client.closed.wait()
                writer.close()
                await client.close()
                count += 1
    return f"{count} pairs of connections"


@attack("log-stomp-errors", quick=True, refused="ERROR")
async def stomp_errors(target: Target) -> str:
    """STOMP frames that are refused with ERROR while the connection lives, with headers of 8 kB."""
    await target.begin()
    client = await target.stomp()
    text = "e" * 8_000
    data = f"ACK\nid:{text}\n\n\0SUBSCRIBE\nid:1\ndestination:/queue/x\nselector:({text}\n\n\0".encode() * 20
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count * 40:,} frames; {common(client.errors)}"


@attack("log-acknowledgements", refused="Unknown acknowledgement|JMSException")
async def acknowledgements(target: Target) -> str:
    """Acknowledgements of what was never delivered, for consumers that are not there."""
    await target.begin()
    client = await target.openwire()
    consumer = await client.consume(queue("HOSTILE.LOG"))
    producer = wire.ProducerId("p" * 10_000, 1, 1)
    data = b"".join(
        FORMAT.encode_frame(
            wire.MessageAck(
                destination=queue("HOSTILE.LOG"),
                consumer_id=consumer,
                ack_type=number % 8,
                first_message_id=wire.OpenWireMessageId(None, producer, 1),
                last_message_id=wire.OpenWireMessageId(None, producer, number),
                message_count=number,
            )
        )
        for number in range(100)
    )
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count * 100:,} frames; {common(client.errors)}{' closed' if client.closed.is_set() else ''}"
