"""What is harmless alone and was slow together: wildcards and exclusive consumers, browsers, groups, copies."""

import asyncio
import itertools
from collections.abc import Iterator

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Target, common, message, queue, topic
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.commands import DestinationOperation

_BUSY = "HOSTILE.BUSY"
_MANAGEMENT = "ActiveMQ.Scheduler.Management"


async def _make_queues(target: Target, count: int) -> None:
    """Create queues, by several connections as each may create some hundreds."""
    for first in range(0, count, 800):
        client = await target.openwire()
        await client.requests(
            wire.DestinationInfo(
                connection_id=wire.ConnectionId(client.id),
                destination=queue(f"HOSTILE.{number}"),
                operation_type=DestinationOperation.ADD,
            )
            for number in range(first, min(count, first + 800))
        )


async def _fill(client: OpenWire, destination: Destination, count: int) -> None:
    for left in range(count, 0, -2000):
        await client.write(client.messages_to(destination, min(left, 2000), text="x"))
        await client.settle(60)


async def _hold_one_of_many(target: Target, *, exclusive: bool) -> tuple[OpenWire, wire.ConsumerId]:
    """Have a consumer of 2,400 queues hold 30,000 messages of one of them."""
    await _make_queues(target, target.sized(2400, 200))
    sender, holder = await target.openwire(), await target.openwire()
    count = target.sized(30_000, 2000)
    await _fill(sender, queue(_BUSY), count)
    consumer = await holder.consume(queue("HOSTILE.>"), prefetch=count, exclusive=exclusive)
    await holder.messages_reach(count, 40)
    return holder, consumer


@attack("exclusive-wildcard-leaves", seconds_max=100)
async def exclusive_wildcard(target: Target) -> str:
    """An exclusive consumer of a wildcard over 2,400 queues holds 30,000 messages of one of them, and closes."""
    await target.begin()
    holder, consumer = await _hold_one_of_many(target, exclusive=True)
    await holder.request(wire.RemoveInfo(object_id=consumer))
    return f"{holder.messages:,} held"


@attack("browse-wildcard-held", seconds_max=100)
async def browse_wildcard(target: Target) -> str:
    """A browser of a wildcard over 2,400 queues, while a consumer of all of them holds 30,000 messages of one."""
    await target.begin()
    await _hold_one_of_many(target, exclusive=False)
    browser = await target.openwire()
    await browser.consume(queue("HOSTILE.>"), prefetch=10, browser=True)
    await browser.messages_reach(10, 30)
    return f"{browser.messages} shown"


async def _release(target: Target, *, by_group: bool) -> str:
    """Have 3,000 consumers of one message each wait behind an exclusive one, which then leaves."""
    await target.begin()
    count, where = target.sized(3000, 300), queue(_BUSY)
    first, sender = await target.openwire(), await target.openwire()
    consumer = await first.consume(where, prefetch=1, exclusive=True, priority=10)
    waiting = [await target.openwire() for _ in range(3)]
    selector = None if by_group else "a = 1"
    for client in waiting:
        await client.requests(client.consumer(where, prefetch=1, selector=selector) for _ in range(count // 3))
    for number in range(count + 1):
        group = {"group_id": f"g{number}"} if by_group else {"values": {"a": 1}}
        await sender.write(sender.messages_to(where, 1, text="x", **group))
    await sender.settle(60)
    await first.request(wire.RemoveInfo(object_id=consumer))
    for client in waiting:
        await client.messages_reach(count // 3, 60)
    return f"{sum(client.messages for client in waiting):,} released"


@attack("selective-release", seconds_max=100)
async def selective_release(target: Target) -> str:
    """3,000 consumers with a selector and room for one message each get theirs as an exclusive consumer leaves."""
    return await _release(target, by_group=False)


@attack("groups-release", seconds_max=100)
async def groups_release(target: Target) -> str:
    """3,000 consumers with room for one message each get one of another group as an exclusive consumer leaves."""
    return await _release(target, by_group=True)


@attack("groups-long-names", seconds_max=100)
async def groups_long_names(target: Target) -> str:
    """Message groups with names of 30 kB, 1,024 in each of 20 queues, whose messages are all consumed."""
    await target.begin()
    sender, reader = await target.openwire(), await target.openwire()
    queues, groups = target.sized(20, 2), 1024
    for number in range(queues):
        where = queue(f"HOSTILE.{number}")
        consumer = await reader.consume(where, prefetch=groups)
        for first in range(0, groups, 64):
            frames = [
                sender.messages_to(where, 1, text="x", group_id=f"{each}" + "g" * 30_000)
                for each in range(first, first + 64)
            ]
            await sender.write(b"".join(frames))
            await sender.settle(30)
        await reader.messages_reach((number + 1) * groups, 30)
        last = sender.sequence - 1
        await reader.request(
            wire.MessageAck(
                destination=where,
                consumer_id=consumer,
                ack_type=2,
                first_message_id=wire.OpenWireMessageId(None, sender.producer, last - groups + 1),
                last_message_id=wire.OpenWireMessageId(None, sender.producer, last),
                message_count=groups,
            )
        )
    return f"{reader.messages:,} consumed"


@attack("long-topics-to-many", seconds_max=100)
async def long_topics(target: Target) -> str:
    """300 subscribers of a wildcard, and a message to each of 1,000 topics with names of 900 characters."""
    await target.begin()
    reader, sender = await target.openwire(), await target.openwire()
    subscribers, topics = target.sized(300, 30), target.sized(1000, 100)
    await reader.requests(reader.consumer(topic("HOSTILE.>"), prefetch=32_000) for _ in range(subscribers))
    for number in range(topics):
        await sender.write(sender.messages_to(topic(f"HOSTILE.{number}." + "n" * 900), 1, text="x"))
        if number % 50 == 49:
            await sender.settle(60)
    await reader.messages_reach(subscribers * topics, 60)
    return f"{reader.messages:,} received"


async def _fan_out(target: Target, values: dict[str, object]) -> str:
    """Send 5 messages with these properties to 60 STOMP subscribers."""
    await target.begin()
    subscribers = [await target.stomp() for _ in range(target.sized(60, 10))]
    for each in subscribers:
        await each.subscribe("/topic/HOSTILE.FAN")
    sender = await target.openwire()
    for _ in range(5):
        await sender.write(sender.messages_to(topic("HOSTILE.FAN"), 1, text="x", values=values))
        await sender.settle(30)
    for each in subscribers:
        await each.messages_reach(5, 30)
    return common(sender.errors) or "received by all"


@attack("stomp-fan-out-escapes", seconds_max=60)
async def stomp_fan_out_escapes(target: Target) -> str:
    """60 STOMP subscribers of a topic, and messages with 900 kB of properties that have to be escaped."""
    return await _fan_out(target, {f"p{number}": ":\n\\" * 300 for number in range(900)})


@attack("stomp-fan-out-properties", seconds_max=60, quick=True)
async def stomp_fan_out_properties(target: Target) -> str:
    """60 STOMP subscribers of a topic, and messages with 8,000 properties."""
    return await _fan_out(target, {f"p{number}": number for number in range(8000)})


@attack("scheduler-browse-properties", seconds_max=60)
async def scheduler_browse_properties(target: Target) -> str:
    """500 scheduled messages with 1,800 properties each, browsed 10 times."""
    await target.begin()
    client = await target.openwire()
    values = {f"p{number}": number for number in range(1800)} | {"AMQ_SCHEDULED_DELAY": 3_600_000}
    count = target.sized(500, 50)
    for _ in range(count // 50):
        await client.write(client.messages_to(queue(_BUSY), 50, text="x", values=values))
        await client.settle(30)
    answers = queue("HOSTILE.ANSWERS")
    reader = await target.openwire()
    await reader.consume(answers, prefetch=10_000)
    browse = {"AMQ_SCHEDULER_ACTION": "BROWSE"}
    await client.write(client.messages_to(topic(_MANAGEMENT), 10, text="", values=browse, reply_to=answers))
    await reader.messages_reach(10 * count, 40)
    return f"{reader.messages:,} described"


@attack("scheduled-properties-due", seconds_max=60)
async def scheduled_properties(target: Target) -> str:
    """1,000 scheduled messages with 900 properties each, all due at the same moment."""
    await target.begin()
    client, reader = await target.openwire(), await target.openwire()
    values = dict.fromkeys(_short_names(900), True)
    count = target.sized(1000, 100)
    await reader.consume(queue(_BUSY), prefetch=count)
    left_ms = target.sized(6000, 1000)
    for _ in range(count // 100):
        left_ms = max(1, left_ms - 500)
        await client.write(
            client.messages_to(queue(_BUSY), 100, text="x", values=values | {"AMQ_SCHEDULED_DELAY": left_ms})
        )
        await client.settle(30)
    await reader.messages_reach(count, 40)
    return f"{reader.messages:,} sent"


@attack("schedule-same-id", refused="is scheduled for 64 destinations already", seconds_max=60)
async def schedule_same_id(target: Target) -> str:
    """One message id scheduled for 6,000 destinations."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(6000, 600)
    for first in range(0, count, 200):
        frames = [
            FORMAT.encode_frame(
                message(
                    queue(f"HOSTILE.{number}"),
                    producer=client.producer,
                    sequence=1,
                    text="x",
                    persistent=True,
                    values={"AMQ_SCHEDULED_DELAY": 3_600_000},
                )
            )
            for number in range(first, first + 200)
        ]
        await client.write(b"".join(frames))
        await client.settle(30)
    return f"{count:,} scheduled; {common(client.errors)}"


@attack("stomp-11-copies", seconds_max=100)
async def stomp_11_copies(target: Target) -> str:
    """A STOMP 1.1 subscription holds 20,000 messages and two copies of another, and acknowledges half at once."""
    await target.begin()
    sender = await target.openwire()
    for name in (_BUSY, "HOSTILE.A", "HOSTILE.B"):
        await sender.request(
            wire.DestinationInfo(
                connection_id=wire.ConnectionId(sender.id),
                destination=queue(name),
                operation_type=DestinationOperation.ADD,
            )
        )
    count = target.sized(20_000, 2000)
    reader, writer = await asyncio.open_connection("127.0.0.1", target.stomp_port)
    writer.write(
        b"CONNECT\naccept-version:1.1\nhost:h\n\n\0"
        b"SUBSCRIBE\nid:1\ndestination:/queue/HOSTILE.>\nack:client\nactivemq.prefetchSize:40000\nreceipt:r\n\n\0"
    )
    await _until(reader, b"receipt-id:r")
    await _fill(sender, queue(_BUSY), count)
    await sender.write(sender.messages_to(queue("HOSTILE.A,HOSTILE.B"), 1, text="x"))
    ids: list[bytes] = []
    async with asyncio.timeout(60):
        while len(ids) < count + 2:
            frame = await reader.readuntil(b"\0")
            ids += [line[11:] for line in frame.split(b"\n") if line.startswith(b"message-id:")]
    target.depth.reach(len(ids), count + 2, "messages received")
    writer.write(b"ACK\nsubscription:1\nmessage-id:" + ids[count // 2] + b"\nreceipt:a\n\n\0")
    await _until(reader, b"receipt-id:a")
    writer.close()
    return f"{len(ids):,} received"


async def _until(reader: asyncio.StreamReader, mark: bytes) -> None:
    async with asyncio.timeout(60):
        while mark not in await reader.readuntil(b"\0"):
            pass


def _short_names(count: int) -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return itertools.islice(("".join(each) for each in itertools.product(letters, repeat=3)), count)
