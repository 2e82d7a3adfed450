"""Acknowledgements: ranges, transactions, rejections, and consumers that leave with a window full of messages."""

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Refused, Target, common, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.transaction import LocalTransactionId

_QUEUE = queue("HOSTILE.ACKS")


async def _filled(target: Target, count: int) -> OpenWire:
    """Return a client that has sent so many persistent messages."""
    producer = await target.openwire()
    await producer.write(producer.messages_to(_QUEUE, count, text="x", persistent=True))
    await producer.settle(60)
    return producer


async def _full_window(target: Target) -> tuple[OpenWire, OpenWire, wire.ConsumerId, int]:
    """Return a producer, the client and the consumer that hold all its messages, and how many these are."""
    count = target.sized(20_000, 2_000)
    producer, client = await _filled(target, count), await target.openwire()
    consumer = await client.consume(_QUEUE, prefetch=count)
    await client.messages_reach(count, 20)
    return producer, client, consumer, count


def _ack(
    consumer: wire.ConsumerId, producer: OpenWire, kind: wire.AckType, *, last: int, count: int
) -> wire.MessageAck:
    return wire.MessageAck(
        destination=_QUEUE,
        consumer_id=consumer,
        ack_type=int(kind),
        first_message_id=wire.OpenWireMessageId(None, producer.producer, last - count + 1),
        last_message_id=wire.OpenWireMessageId(None, producer.producer, last),
        message_count=count,
    )


@attack("ack-range")
async def ack_range(target: Target) -> str:
    """A window of 32,000 messages that one acknowledgement consumes, twice."""
    await target.begin()
    count = target.sized(32_000, 2_000)
    producer, client = await _filled(target, 2 * count), await target.openwire()
    consumer = await client.consume(_QUEUE, prefetch=count)
    failures = []
    for number in (1, 2):
        await client.messages_reach(number * count, 20)
        failures += await client.requests(
            [_ack(consumer, producer, wire.AckType.STANDARD, last=number * count, count=count)]
        )
    return f"{client.messages:,} received; {common(failures)}"


@attack("ack-poison")
async def ack_poison(target: Target) -> str:
    """20,000 messages that one acknowledgement rejects, so that all move to the dead letter queue."""
    await target.begin()
    producer, client, consumer, count = await _full_window(target)
    failures = await client.requests([_ack(consumer, producer, wire.AckType.POISON, last=count, count=count)])
    await client.settle(60)
    return f"{client.messages:,} received; {common(failures) or 'rejected'}"


@attack("ack-reversed")
async def ack_reversed(target: Target) -> str:
    """20,000 messages of a window acknowledged one by one, the last first."""
    await target.begin()
    producer, client, consumer, count = await _full_window(target)
    data = b"".join(
        FORMAT.encode_frame(_ack(consumer, producer, wire.AckType.INDIVIDUAL, last=number, count=1))
        for number in range(count, 0, -1)
    )
    await client.write(data)
    await client.settle(60)
    return f"{client.messages:,} received; {common(client.errors) or 'acknowledged'}"


@attack("ack-wildcard", memory_limit_mb=512)
async def ack_wildcard(target: Target) -> str:
    """10,000 queues with a message each, all in the window of one consumer, which acknowledges them one by one."""
    await target.begin()
    producer, client = await target.openwire(), await target.openwire()
    count = target.sized(10_000, 1_000)
    for number in range(count):
        await producer.write(producer.messages_to(queue(f"HOSTILE.W.{number}"), 1, text="x"))
    await producer.settle(60)
    consumer = await client.consume(queue("HOSTILE.W.*"), prefetch=count)
    await client.messages_reach(count, 20)
    await client.write(
        b"".join(
            FORMAT.encode_frame(_ack(consumer, producer, wire.AckType.INDIVIDUAL, last=number, count=1))
            for number in range(1, count + 1)
        )
    )
    await client.settle(60)
    return f"{client.messages:,} received; {common(client.errors) or 'acknowledged'}"


@attack("ack-delivered-flood")
async def ack_delivered(target: Target) -> str:
    """DELIVERED and REDELIVERED acknowledgements of a window of 20,000, again and again for 4 s."""
    await target.begin()
    producer, client, consumer, count = await _full_window(target)
    data = b"".join(
        FORMAT.encode_frame(_ack(consumer, producer, kind, last=count, count=count))
        for kind in (wire.AckType.DELIVERED, wire.AckType.REDELIVERED)
    )
    sent = await client.flood(data * 100, target.sized(4, 1))
    return f"{200 * sent:,} frames; {common(client.errors)}"


@attack("stomp-cumulative-ack")
async def stomp_cumulative(target: Target) -> str:
    """30,000 messages to a STOMP subscription in mode client, acknowledged all at once."""
    await _stomp_answers(target, b"ACK")
    return "acknowledged"


@attack("stomp-cumulative-nack")
async def stomp_nack(target: Target) -> str:
    """30,000 messages to a STOMP subscription in mode client, rejected all at once."""
    await _stomp_answers(target, b"NACK")
    return "rejected"


async def _stomp_answers(target: Target, command: bytes) -> None:
    await target.begin()
    count = target.sized(30_000, 2_000)
    producer, client = await _filled(target, count), await target.stomp()
    headers = f"activemq.prefetchSize:{count}\n"
    await client.subscribe(f"/queue/{_QUEUE.name}", headers=headers, ack="client")
    await client.messages_reach(count, 30)
    await client.request(command + b"\nid:" + client.last_ack + b"\nreceipt:r\n\n\0", 60)
    await producer.settle(60)


@attack("stomp-abort-individual")
async def stomp_abort_individual(target: Target) -> str:
    """A transaction of 20,000 acknowledgements one by one, aborted, and once more, in mode client-individual."""
    await target.begin()
    count = target.sized(20_000, 1_000)
    producer, client = await _filled(target, count), await target.stomp()
    headers = f"activemq.prefetchSize:{count}\n"
    await client.subscribe(f"/queue/{_QUEUE.name}", headers=headers, ack="client-individual")
    await client.messages_reach(count, 30)
    prefix = client.last_ack.rpartition(b"\\c")[0]  # an escaped colon
    acks = b"".join(b"ACK\ntransaction:t\nid:%s\\c%d\n\n\0" % (prefix, number) for number in range(count, 0, -1))
    for _ in range(2):
        await client.write(b"BEGIN\ntransaction:t\n\n\0" + acks)
        await client.request(b"ABORT\ntransaction:t\nreceipt:r\n\n\0", 60)
    await producer.settle(60)
    return common(client.errors) or "aborted"


@attack("stomp-topic-windows", refused="cannot be created")
async def stomp_topic_windows(target: Target) -> str:
    """300 STOMP subscriptions to a topic with full windows, in mode client; ten windows are aborted in transactions."""
    await target.begin()
    producer, client = await target.openwire(), await target.stomp()
    name, created = f"/topic/{_QUEUE.name}", 0
    for number in range(target.sized(300, 100)):
        try:
            await client.subscribe(name, ack="client", number=number + 1)
        except Refused:
            break
        created += 1
    count = target.sized(16_000, 500)
    for _ in range(10):
        await producer.write(producer.messages_to(topic(_QUEUE.name), count // 10, text="x"))
        await producer.settle(60)
    await client.messages_reach(created * min(count, 10_000) // 2, 60)
    for _ in range(target.sized(10, 2)):
        ack = b"BEGIN\ntransaction:t\n\n\0ACK\ntransaction:t\nid:" + client.last_ack + b"\n\n\0"
        await client.request(ack + b"ABORT\ntransaction:t\nreceipt:r\n\n\0", 50)
    return f"{created} subscriptions, {client.messages:,} received; {common(client.errors)}"


@attack("topic-ack-all")
async def topic_ack_all(target: Target) -> str:
    """200,000 deliveries of a topic, acknowledged by one transacted command that says 2,147,483,647, 20 times."""
    await target.begin()
    producer, client = await target.openwire(), await target.openwire()
    consumer = await client.consume(topic(_QUEUE.name), prefetch=2**31 - 1)
    count = target.sized(200_000, 5_000)
    for _ in range(20):
        await producer.write(producer.messages_to(topic(_QUEUE.name), count // 20, text="x"))
        await producer.settle(60)
    await client.messages_reach(count, 60)
    ack = _ack(consumer, producer, wire.AckType.STANDARD, last=count, count=2**31 - 1)
    for number in range(1, 21):
        transaction = LocalTransactionId(client.id, number)
        ack.transaction_id = transaction
        await client.request(client.transaction(wire.TransactionType.BEGIN, transaction))
        await client.request(ack)
        await client.request(client.transaction(wire.TransactionType.ROLLBACK, transaction))
    return f"{client.messages:,} received; {common(client.errors)}"


async def _wide_window(target: Target, count: int) -> tuple[OpenWire, OpenWire, wire.ConsumerId]:
    """Return a producer, and the client and consumer that hold so many messages."""
    producer, client = await target.openwire(), await target.openwire()
    for _ in range(0, count, 2000):
        await producer.write(producer.messages_to(_QUEUE, 2000, text="x", persistent=True))
        await producer.settle(60)
    consumer = await client.consume(_QUEUE, prefetch=1_000_000)
    await client.messages_reach(count, 40)
    return producer, client, consumer


@attack("last-delivered", seconds_max=100)
async def last_delivered(target: Target) -> str:
    """A consumer that holds 90,000 messages closes, and says that it has received one that is none of them."""
    await target.begin()
    _, client, consumer = await _wide_window(target, target.sized(90_000, 4000))
    await client.request(wire.RemoveInfo(object_id=consumer, last_delivered_sequence_id=0))
    return f"{client.messages:,} held; {common(client.errors)}"


@attack("rollback-newest", seconds_max=100)
async def rollback_newest(target: Target) -> str:
    """A window of 90,000 messages; 50 transactions acknowledge the newest, and roll back."""
    await target.begin()
    count = target.sized(90_000, 4000)
    producer, client, consumer = await _wide_window(target, count)
    failures = []
    for number in range(1, 51):
        local = LocalTransactionId(client.id, number)
        ack = _ack(consumer, producer, wire.AckType.INDIVIDUAL, last=count, count=1)
        ack.transaction_id = local
        kinds = wire.TransactionType.BEGIN, wire.TransactionType.ROLLBACK
        failures += await client.requests(
            [client.transaction(kinds[0], local), ack, client.transaction(kinds[1], local)]
        )
    return f"{client.messages:,} held; {common(failures)}"


@attack("ack-range-unmatched", seconds_max=100)
async def ack_range_unmatched(target: Target) -> str:
    """A window of 90,000 messages, and for 4 s ranges that end at a message which is not there."""
    await target.begin()
    producer, client, consumer = await _wide_window(target, target.sized(90_000, 4000))
    ack = _ack(consumer, producer, wire.AckType.STANDARD, last=9_999_999, count=9_999_999)
    sent = await client.flood(FORMAT.encode_frame(ack) * 200, target.sized(4, 1))
    return f"{client.messages:,} held; {sent:,} frames"
