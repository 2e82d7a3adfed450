"""What one client can make the broker hold: headers, properties, unfinished frames, transactions, outboxes."""

import asyncio
import contextlib

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, UNANSWERED, Target, common, message, queue, topic, xid
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.values import Value
from pybroker.broker.domain.transaction import LocalTransactionId

_QUEUE = queue("HOSTILE.MEMORY")


@attack("waiting-properties")
async def waiting_properties(target: Target) -> str:
    """10,000 waiting messages of 400 small properties each, which a consumer's selector has looked at."""
    values: dict[str, Value] = {f"p{n}": n for n in range(400)}
    await target.begin()
    producer, consumer = await target.openwire(), await target.openwire()
    await consumer.consume(_QUEUE, selector="p1 = 5")
    count = target.sized(10_000, 1_000)
    for _ in range(10):
        await producer.write(producer.messages_to(_QUEUE, count // 10, values=values))
        await producer.settle(60)
    return common(producer.errors) or f"{count:,} accepted"


@attack("waiting-properties-topic")
async def waiting_properties_topic(target: Target) -> str:
    """The same to a topic, with 20 slow subscribers that have selectors, and 20 slow STOMP subscribers."""
    values: dict[str, Value] = {f"p{n}": n for n in range(400)}
    await target.begin()
    producer, slow = await target.openwire(), await target.openwire()
    for _ in range(20):
        await slow.consume(topic("HOSTILE.P"), prefetch=1000, selector="p1 = 1")
    slow.stop_reading()
    for _ in range(20):
        stomp = await target.stomp()
        await stomp.subscribe("/topic/HOSTILE.P", ack="client")
        stomp.stop_reading()
    count = target.sized(10_000, 500)
    for _ in range(10):
        await producer.write(producer.messages_to(topic("HOSTILE.P"), count // 10, values=values))
        with contextlib.suppress(TimeoutError):
            await producer.settle(5)
    return common(producer.errors) or f"{count:,} sent"


@attack("long-headers", quick=True)
async def long_headers(target: Target) -> str:
    """10,000 messages with correlation id, type, group and user id of 30 kB each."""
    text = "h" * 30_000
    fields = {"correlation_id": text, "jms_type": text, "group_id": text, "user_id": text}
    await target.begin()
    producer = await target.openwire()
    count, sent = target.sized(10_000, 3_000), 0
    for _ in range(20):
        await producer.write(producer.messages_to(_QUEUE, count // 20, text="x", **fields))
        if not await producer.settles(3):
            return f"waits after {sent:,}; {common(producer.errors)}"
        sent += count // 20
    return common(producer.errors) or f"{sent:,} accepted"


@attack("long-ids")
async def long_ids(target: Target) -> str:
    """5,000 messages whose producer ids, reply destinations, transaction and text ids are of 20 kB and all differ."""
    long = "i" * 20_000
    await target.begin()
    client = await target.openwire()
    count = target.sized(5_000, 500)
    for n in range(count):
        made = message(
            _QUEUE, producer=client.producer, sequence=n + 1, text="x", persistent=True, reply_to=queue(f"{n}{long}")
        )
        made.message_id = wire.OpenWireMessageId(f"ID:{n}{long}", client.producer, n + 1)
        await client.write(FORMAT.encode_frame(made))
    with contextlib.suppress(TimeoutError):
        await client.settle(20)
    return common(client.errors) or f"{count:,} accepted"


@attack("long-names", refused="InvalidDestinationException")
async def long_names(target: Target) -> str:
    """20,000 queues with names of 30 kB, and as many consumers and client ids."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(20_000, 500)
    failures = []
    for n in range(0, count, 500):
        failures += await client.requests(
            (client.consumer(queue(f"{each}{'n' * 30_000}"), prefetch=1) for each in range(n, n + 500)), 10
        )
    return common(failures) or f"{count:,} accepted"


@attack("frames-unfinished", quick=True, refused="Exception|closed")
async def frames_unfinished(target: Target) -> str:
    """20 connections with a frame of 90 MB, all but its last byte, before any ConnectionInfo."""
    await _unfinished(target, connects=False)
    return "sent"


@attack("frames-unfinished-connected")
async def frames_unfinished_connected(target: Target) -> str:
    """The same after ConnectionInfo, with text messages."""
    await _unfinished(target, connects=True)
    return "sent"


async def _unfinished(target: Target, *, connects: bool) -> None:
    size = target.sized(90 << 20, 30 << 20)
    piece = b"x" * (1 << 20)
    await target.begin()

    async def run() -> None:
        client = await target.openwire(connects=connects)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(15):
                await client.write((size + 2).to_bytes(4, "big") + bytes([28]))
                for _ in range(size >> 20):
                    await client.write(piece)

    await asyncio.gather(*(run() for _ in range(20)), return_exceptions=True)
    await asyncio.sleep(1)


@attack("stomp-frames-unfinished", quick=True, refused="Unfinished large frames")
async def stomp_frames_unfinished(target: Target) -> str:
    """20 STOMP connections with a body of 90 MB and without end, before and after CONNECT."""
    size = target.sized(90 << 20, 30 << 20)
    piece = b"x" * (1 << 20)
    await target.begin()

    async def run(*, connects: bool) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            if connects:
                client = await target.stomp()
                write = client.write
            else:
                _, writer = await asyncio.open_connection("127.0.0.1", target.stomp_port)

                async def write(data: bytes) -> None:
                    writer.write(data)
                    await writer.drain()

            async with asyncio.timeout(15):
                await write(b"SEND\ndestination:/queue/X\n\n" if connects else b"CONNECT\nhost:h\n\n")
                for _ in range(size >> 20):
                    await write(piece)

    await asyncio.gather(*(run(connects=bool(n % 2)) for n in range(20)), return_exceptions=True)
    await asyncio.sleep(1)
    return "sent"


@attack("transactions-open", quick=True, refused="ResourceAllocationException|the connection has 10")
async def transactions_open(target: Target) -> str:
    """Open transactions with 400 MB of messages, which then are left, and a transaction in each of 20,000 ids."""
    await target.begin()
    client = await target.openwire()
    local = LocalTransactionId(client.id, 1)
    await client.request(client.transaction(wire.TransactionType.BEGIN, local))
    data = client.messages_to(_QUEUE, 10, text="x" * 1_000_000, transaction_id=local, persistent=True)
    sent = 0
    for _ in range(target.sized(40, 30)):
        await client.write(data)
        sent += 10
        try:
            await client.settle(2)
        except TimeoutError:
            break
    other = await target.openwire()
    failures = await other.requests(
        (
            other.transaction(wire.TransactionType.BEGIN, LocalTransactionId(other.id, n))
            for n in range(target.sized(20_000, 1_000))
        ),
        20,
    )
    return f"{sent} MB sent; {common(client.errors)}; {common(failures)}"


@attack("transaction-small-messages", memory_limit_mb=1024)
async def transaction_small(target: Target) -> str:
    """One transaction of 300,000 small messages to 1,000 queues, committed at once."""
    await target.begin()
    client = await target.openwire()
    local = LocalTransactionId(client.id, 1)
    await client.request(client.transaction(wire.TransactionType.BEGIN, local))
    total = target.sized(300_000, 10_000)
    for _ in range(10):
        data = b"".join(
            client.messages_to(queue(f"HOSTILE.T.{n}"), total // 1000, text="x", transaction_id=local, persistent=True)
            for n in range(100)
        )
        await client.write(data)
    outcomes = await client.requests([client.transaction(wire.TransactionType.COMMIT_ONE_PHASE, local)])
    return common(client.errors) or common(outcomes) or f"{total:,} committed"


@attack("transaction-rollback")
async def transaction_rollback(target: Target) -> str:
    """A consumer that acknowledges 50,000 messages in a transaction and rolls it back, 5 times."""
    await target.begin()
    producer, client = await target.openwire(), await target.openwire()
    count = target.sized(50_000, 3_000)
    await producer.write(producer.messages_to(_QUEUE, count, text="x", persistent=True))
    await producer.settle(60)
    outcomes = []
    for number in range(5):
        local = LocalTransactionId(client.id, number + 1)
        consumer = await client.consume(_QUEUE, prefetch=count)
        await client.messages_reach(count * (number + 1), 10)
        await client.request(client.transaction(wire.TransactionType.BEGIN, local))
        last = wire.OpenWireMessageId(None, producer.producer, count)
        ack = wire.MessageAck(
            destination=_QUEUE, consumer_id=consumer, ack_type=2, last_message_id=last, message_count=count,
            first_message_id=wire.OpenWireMessageId(None, producer.producer, 1), transaction_id=local,
        )  # fmt: skip
        outcomes += await client.requests([ack, client.transaction(wire.TransactionType.ROLLBACK, local)])
        await client.request(wire.RemoveInfo(object_id=consumer))
    return f"{client.messages:,} received; {common(outcomes)}"


@attack("branches-prepared", quick=True)
async def branches_prepared(target: Target) -> str:
    """20,000 prepared branches with a message each, RECOVER, and their rollback."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(20_000, 1_000)
    kinds = wire.TransactionType
    failures: list[str] = []
    for first in range(0, count, 1000):
        for n in range(first, first + 1000):
            client.start(client.transaction(kinds.BEGIN, xid(n)))
            await client.write(client.messages_to(_QUEUE, 1, text="x", persistent=True, transaction_id=xid(n)))
            client.start(client.transaction(kinds.END, xid(n)))
            client.start(client.transaction(kinds.PREPARE, xid(n)))
        await client.settle(60)
    recover = wire.TransactionInfo(connection_id=wire.ConnectionId(client.id), type=int(kinds.RECOVER))
    found = await client.request(recover, 60)
    failures += await client.requests(client.transaction(kinds.ROLLBACK, xid(n)) for n in range(count))
    target.depth.reach(len(found.data or ()), count, "branches prepared")
    return f"{len(found.data or ()):,} prepared; {common(client.errors)}; {common(failures)}"


@attack("branches-prepared-large")
async def branches_prepared_large(target: Target) -> str:
    """300 prepared branches with 1 MB each, which are left."""
    await target.begin()
    client = await target.openwire()
    kinds = wire.TransactionType
    failures = []
    for n in range(target.sized(300, 250)):
        client.start(client.transaction(kinds.BEGIN, xid(n)))
        data = client.messages_to(_QUEUE, 1, text="x" * 1_000_000, persistent=True, transaction_id=xid(n))
        await client.write(data)
        client.start(client.transaction(kinds.END, xid(n)))
        failures += await client.requests([client.transaction(kinds.PREPARE, xid(n))], 3)
        if failures[-1:] == [UNANSWERED]:
            break
    target.depth.reach(n + 1 - len(failures), target.sized(300, 250), "branches prepared")
    return f"{n + 1} prepared; {common(failures)}"


@attack("slow-subscribers")
async def slow_subscribers(target: Target) -> str:
    """30 subscribers of topic `>` that read nothing, and 400 MB of messages to many topics."""
    await target.begin()
    producer = await target.openwire()
    for number in range(30):
        if number % 2:
            slow = await target.openwire()
            await slow.consume(topic("HOSTILE.>"), prefetch=32_000)
            slow.stop_reading()
        else:
            stomp = await target.stomp()
            await stomp.subscribe("/topic/HOSTILE.>")
            stomp.stop_reading()
    sent = 0
    for n in range(target.sized(400, 150)):
        await producer.write(producer.messages_to(topic(f"HOSTILE.{n % 20}"), 100, text="x" * 10_000))
        if not await producer.settles(3):
            return f"waits after {sent} MB; {common(producer.errors)}"
        sent += 1
    return f"{sent} MB accepted; {common(producer.errors)}"


@attack("slow-browsers")
async def slow_browsers(target: Target) -> str:
    """100 browsers that read nothing of a queue of 100 MB of persistent messages."""
    await target.begin()
    producer = await target.openwire()
    for _ in range(target.sized(100, 20)):
        await producer.write(producer.messages_to(_QUEUE, 100, text="x" * 10_000, persistent=True))
        with contextlib.suppress(TimeoutError):
            await producer.settle(5)
    for number in range(target.sized(100, 20)):
        slow = await target.openwire()
        await slow.consume(_QUEUE, browser=True, prefetch=32_000)
        slow.stop_reading()
        del number
    await asyncio.sleep(1)
    return common(producer.errors) or "accepted"


@attack("many-properties-waiting")
async def many_properties_waiting(target: Target) -> str:
    """300 waiting messages of 1 MB of properties, sent by STOMP, with browsers that have selectors."""
    head = "".join(f"h{number}:{'v' * 900}\n" for number in range(900))
    frame = f"SEND\ndestination:/queue/HOSTILE.MEMORY\npersistent:true\n{head}\nx\0".encode()
    await target.begin()
    producer, client = await target.stomp(), await target.openwire()
    sent = await producer.flood(frame, target.sized(10, 2))
    failures = await client.requests(
        (client.consumer(_QUEUE, browser=True, selector=f"h1 = '{n}'") for n in range(10)), 20
    )
    return f"{sent} sent; {common(producer.errors)}; {common(failures)}"
