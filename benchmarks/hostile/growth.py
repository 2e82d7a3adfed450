"""Work that could grow with the square of what one client creates: destinations, consumers, browsers, jobs."""

import asyncio
import time

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Target, common, message, properties, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.transaction import LocalTransactionId

_QUEUE = queue("HOSTILE.GROWTH")


async def _send(client: OpenWire, data: bytes, seconds: float = 60.0) -> None:
    await client.write(data)
    await client.settle(seconds)


def _messages(client: OpenWire, names: list[wire.Destination], **fields: object) -> bytes:
    """Return one message for each destination."""
    base = client.sequence
    client.sequence += len(names)
    return b"".join(
        FORMAT.encode_frame(message(name, producer=client.producer, sequence=base + number, **fields))  # type: ignore[arg-type]
        for number, name in enumerate(names)
    )


@attack("queues-advisories", quick=True, memory_limit_mb=2304)
async def queues_advisories(target: Target) -> str:
    """50,000 queues created while 10 subscriptions of the same client listen to ActiveMQ.Advisory.>."""
    await target.begin()
    client = await target.openwire()
    for _ in range(10):
        await client.consume(topic("ActiveMQ.Advisory.>"))
    count = target.sized(50_000, 2_000)
    await _send(client, _messages(client, [queue(f"HOSTILE.{n}") for n in range(count)], text="x"))
    await client.messages_reach(10 * 1000, 20)  # each subscription's window
    target.depth.reach(count - sum(client.errors.values()), count, "queues created")
    return f"{count:,} created, {client.messages:,} advisories; {common(client.errors)}"


@attack("advisories-late", memory_limit_mb=2304)
async def advisories_late(target: Target) -> str:
    """10 subscriptions to ActiveMQ.Advisory.>, one after another, once there are 50,000 queues and 1,000 consumers."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(50_000, 2_000)
    await _send(client, _messages(client, [queue(f"HOSTILE.{n}") for n in range(count)], text="x"))
    failures = await client.requests(client.consumer(queue(f"HOSTILE.{n}"), prefetch=1) for n in range(1000))
    for _ in range(10):
        await client.consume(topic("ActiveMQ.Advisory.>"))
    await client.settle(60)
    target.depth.reach(count - sum(client.errors.values()), count, "queues created")
    return f"{client.messages:,} advisories; {common(failures)}"


@attack("advisories-unread")
async def advisories_unread(target: Target) -> str:
    """Consumers that come and go, 20,000 times, while 20 subscribers to all advisories read nothing."""
    await target.begin()
    for _ in range(20):
        slow = await target.openwire()
        await slow.consume(topic("ActiveMQ.Advisory.>"))
        slow.stop_reading()
    client = await target.openwire()
    count = target.sized(20_000, 1_000)
    data = b""
    for number in range(count):
        info = client.consumer(queue(f"HOSTILE.{number % 10}"))
        data += FORMAT.encode_frame(info)
        data += FORMAT.encode_frame(wire.RemoveInfo(object_id=info.consumer_id))
    await _send(client, data)
    return common(client.errors) or "accepted"


@attack("browsers", quick=True)
async def browsers(target: Target) -> str:
    """500 browsers at once of a queue of 50,000."""
    await target.begin()
    client, browser = await target.openwire(), await target.openwire()
    count = target.sized(50_000, 2_000)
    await _send(client, client.messages_to(_QUEUE, count, text="x", persistent=True))
    failures = await browser.requests(
        browser.consumer(_QUEUE, browser=True, prefetch=10) for _ in range(target.sized(500, 50))
    )
    await browser.messages_reach(10 * target.sized(500, 50), 20)
    return f"{count:,} waiting; {common(failures) or 'accepted'}; {browser.messages:,} received"


@attack("browsers-acknowledging")
async def browsers_acknowledging(target: Target) -> str:
    """50 browsers with a window of 32,000 that read a queue of 50,000 to its end."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(50_000, 2_000)
    await _send(client, client.messages_to(_QUEUE, count, text="x", persistent=True))
    total = 0
    readers = [await target.openwire() for _ in range(target.sized(50, 5))]
    for each in readers:
        await each.consume(_QUEUE, browser=True, prefetch=32_000)
    for each in readers:
        await each.messages_reach(min(count, 32_000), 30)
        total += each.messages
    return f"{total:,} received"


@attack("wildcard-consumers", quick=True, memory_limit_mb=1024)
async def wildcard_consumers(target: Target) -> str:
    """1,000 consumers of wildcards, and then 1,000 queues that match each of them."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(1000, 100)
    failures = await client.requests(client.consumer(queue(f"HOSTILE.*.{n}.>"), prefetch=1) for n in range(count // 2))
    failures += await client.requests(client.consumer(queue("HOSTILE.>"), prefetch=1) for n in range(count // 2))
    names = [queue(f"HOSTILE.A.{n}.B") for n in range(count)]
    await _send(client, _messages(client, names, text="x"))
    await client.messages_reach(count // 2, 20)  # the window of each consumer of HOSTILE.>
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("wildcard-loop", memory_limit_mb=1024)
async def wildcard_loop(target: Target) -> str:
    """A consumer of `>` that comes and goes 100 times, once there are 20,000 queues."""
    await target.begin()
    client = await target.openwire()
    names = [queue(f"HOSTILE.{n}") for n in range(target.sized(20_000, 1_000))]
    await _send(client, _messages(client, names, text="x"))
    failures: list[str] = []
    for _ in range(target.sized(100, 20)):
        info = client.consumer(queue("HOSTILE.>"), prefetch=1)
        failures += await client.requests([info, wire.RemoveInfo(object_id=info.consumer_id)])
    return common(failures) or "accepted"


@attack("advisories-to-many")
async def advisories_to_many(target: Target) -> str:
    """1,000 subscribers to the advisories about queues, and 2,000 queues that are created."""
    await target.begin()
    listener, client = await target.openwire(), await target.openwire()
    failures = await listener.requests(
        listener.consumer(topic("ActiveMQ.Advisory.Queue"), prefetch=100) for _ in range(target.sized(1_000, 100))
    )
    names = [queue(f"HOSTILE.{n}") for n in range(target.sized(2_000, 200))]
    await _send(client, _messages(client, names, text="x"))
    return f"{common(failures) or 'accepted'}; {listener.messages:,} advisories"


@attack("advisories-crowd", memory_limit_mb=1024)
async def advisories_crowd(target: Target) -> str:
    """2,000 consumers of `>`, which includes the advisories, and then 100 connections that come and go."""
    await target.begin()
    listener = await target.openwire()
    failures = await listener.requests(
        listener.consumer(topic(">"), prefetch=10) for _ in range(target.sized(2_000, 200))
    )
    for _ in range(target.sized(100, 5)):
        client = await target.openwire()
        await client.leave()
    return f"{common(failures) or 'accepted'}; {listener.messages:,} advisories"


@attack("durables-backlog", index_mb=100)  # 1,500,000 times 70 bytes
async def durables_backlog(target: Target) -> str:
    """1,000 durable subscriptions without consumers, and 1,500 small persistent messages, which each of them keeps."""
    await target.begin()
    client, producer = await target.openwire(), await target.openwire()
    destination, count = topic("HOSTILE.KEPT"), target.sized(1_000, 100)
    infos = [client.consumer(destination, prefetch=1, subscription_name=f"s{n}") for n in range(count)]
    failures = await client.requests(infos)
    failures += await client.requests(wire.RemoveInfo(object_id=info.consumer_id) for info in infos)
    for _ in range(15):
        await producer.write(producer.messages_to(destination, target.sized(100, 10), text="x", persistent=True))
        await producer.settle(60)
    return common(failures) or "accepted"


@attack("wildcard-late", memory_limit_mb=1024, refused="consumer of 20000 queues")
async def wildcard_late(target: Target) -> str:
    """20,000 queues, and then 100 consumers of wildcards that match all of them."""
    await target.begin()
    client = await target.openwire()
    names = [queue(f"HOSTILE.A.{n}.B") for n in range(target.sized(20_000, 1_000))]
    await _send(client, _messages(client, names, text="x"))
    failures = await client.requests(
        client.consumer(queue("HOSTILE.*.*.B"), prefetch=1) for _ in range(target.sized(100, 20))
    )
    await client.settle(60)
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("wildcard-selector", memory_limit_mb=512)
async def wildcard_selector(target: Target) -> str:
    """10,000 queues with a message each, and 20 consumers of a wildcard whose selectors match none of them."""
    await target.begin()
    client = await target.openwire()
    names = [queue(f"HOSTILE.{n}") for n in range(target.sized(10_000, 1_000))]
    await _send(client, _messages(client, names, text="x", values=properties(10, 20)))
    like = " OR ".join(f"p{number % 10} LIKE '%x%{number}'" for number in range(100))
    failures = await client.requests(
        client.consumer(queue("HOSTILE.*"), prefetch=1, selector=f"{like} OR p1 = '{n}'") for n in range(20)
    )
    await asyncio.sleep(target.sized(5, 1))  # the search goes on after the answer
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("durable-wildcards", memory_limit_mb=512)
async def durable_wildcards(target: Target) -> str:
    """5,000 topics, and then 10 durable subscriptions to a wildcard that matches all of them."""
    await target.begin()
    client = await target.openwire()
    names = [topic(f"HOSTILE.{n}") for n in range(target.sized(5_000, 500))]
    await _send(client, _messages(client, names, text="x"))
    infos = [client.consumer(topic("HOSTILE.*"), prefetch=1, subscription_name=f"s{n}") for n in range(10)]
    failures = await client.requests(infos)
    failures += await client.requests(wire.RemoveInfo(object_id=info.consumer_id) for info in infos)
    return common(failures) or "accepted"


@attack("wildcard-topics")
async def wildcard_topics(target: Target) -> str:
    """2,000 subscriptions to `>`, and 2,000 messages to as many topics: each message to each subscription."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(2_000, 200)
    failures = await client.requests(client.consumer(topic("HOSTILE.>"), prefetch=32_000) for _ in range(count))
    names = [topic(f"HOSTILE.{n}") for n in range(count)]
    await _send(client, _messages(client, names, text="x"), 50)
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("wildcards-distinct", memory_limit_mb=512)
async def wildcards_distinct(target: Target) -> str:
    """2,000 subscriptions to as many different wildcards, and 200 messages to as many topics that all of them cover."""
    await target.begin()
    client = await target.openwire()
    wildcards = (
        ".".join("*" if n >> level & 1 else "a" for level in range(12)) + ".>" for n in range(target.sized(2_000, 200))
    )
    failures = await client.requests(client.consumer(topic(name), prefetch=32_000) for name in wildcards)
    names = [topic(".".join("a" * 12) + f".{n}") for n in range(target.sized(200, 20))]
    await _send(client, _messages(client, names, text="x"), 50)
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("names-deep", refused="cannot be created")
async def names_deep(target: Target) -> str:
    """5,000 subscriptions to wildcards whose names have 500 levels."""
    await target.begin()
    client = await target.openwire()
    rest = ".a" * 500
    failures = await client.requests(
        client.consumer(topic(f"{n}{rest}.>"), prefetch=1) for n in range(target.sized(5_000, 1_000))
    )
    return common(failures) or "accepted"


@attack("consumers-prefetch-0", memory_limit_mb=1024)
async def consumers_prefetch_0(target: Target) -> str:
    """20,000 consumers with prefetch 0 on one queue, and 2,000 messages."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(20_000, 2_000)
    failures = await client.requests(client.consumer(_QUEUE, prefetch=0) for _ in range(count))
    await _send(client, client.messages_to(_QUEUE, target.sized(2_000, 200), text="x"))
    return common(failures) or "accepted"


@attack("consumers-pulling", memory_limit_mb=256)
async def consumers_pulling(target: Target) -> str:
    """5,000 consumers with prefetch 0 that all pull with a time-out of 1 s, and no message."""
    await target.begin()
    client = await target.openwire()
    infos = [client.consumer(_QUEUE, prefetch=0) for _ in range(target.sized(5_000, 1_000))]
    failures = await client.requests(infos)
    data = b"".join(
        FORMAT.encode_frame(wire.MessagePull(consumer_id=info.consumer_id, destination=_QUEUE, timeout=1000))
        for info in infos
    )
    await _send(client, data)
    await client.messages_reach(len(infos), 10)  # a null message each, when their time is up
    return f"{common(failures) or 'accepted'}; {client.messages:,} answers"


@attack("consumers-one-connection", quick=True, memory_limit_mb=512)
async def consumers_one_connection(target: Target) -> str:
    """10,000 consumers of as many queues on one connection, which then closes without a word."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(10_000, 1_000)
    failures = await client.requests(client.consumer(queue(f"HOSTILE.{n}"), prefetch=1) for n in range(count))
    await client.close()
    return common(failures) or f"{count:,} accepted"


@attack("consumers-one-queue", memory_limit_mb=512)
async def consumers_one_queue(target: Target) -> str:
    """10,000 consumers of one queue on one connection, 20,000 messages, then the connection closes."""
    await target.begin()
    client, producer = await target.openwire(), await target.openwire()
    count = target.sized(10_000, 1_000)
    failures = await client.requests(client.consumer(_QUEUE, prefetch=1, priority=n % 10) for n in range(count))
    await _send(producer, producer.messages_to(_QUEUE, 2 * count, text="x"))
    await client.close()
    await producer.settle(60)
    return common(failures) or f"{count:,} accepted"


@attack("stomp-subscriptions", memory_limit_mb=512)
async def stomp_subscriptions(target: Target) -> str:
    """10,000 STOMP subscriptions to one topic, 1,000 on each of ten connections, 20 messages, then these close."""
    await target.begin()
    clients = [await target.stomp() for _ in range(target.sized(10, 1))]
    frames = "".join(f"SUBSCRIBE\nid:{n}\ndestination:/topic/HOSTILE\n\n\0" for n in range(1_000))
    for client in clients:
        await client.write(frames.encode())
        await client.request(b"BEGIN\ntransaction:t\nreceipt:r\n\n\0", 50)
    send = b"SEND\ndestination:/topic/HOSTILE\n\nx\0"
    await clients[0].request(send * 19 + b"SEND\ndestination:/topic/HOSTILE\nreceipt:r\n\nx\0", 50)
    for client in clients:
        await client.messages_reach(20_000, 20)
    for client in clients:
        await client.close()
    return f"{sum(client.messages for client in clients):,} received"


@attack("scheduled-sends", quick=True, memory_limit_mb=512)
async def scheduled_sends(target: Target) -> str:
    """120,000 messages scheduled for the same millisecond, 5 s ahead."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(120_000, 5_000)
    data = client.messages_to(_QUEUE, count, text="x", values={"AMQ_SCHEDULED_DELAY": target.sized(5_000, 1_000)})
    await _send(client, data, 50)
    await asyncio.sleep(target.sized(6, 2))
    return common(client.errors) or f"{count:,} accepted"


@attack("scheduled-many", refused="messages are scheduled, and")
async def scheduled_many(target: Target) -> str:
    """300,000 messages scheduled for the next hour, six times what the memory limit has room for."""
    await target.begin()
    client = await target.openwire()
    for _ in range(30):
        await client.write(
            client.messages_to(_QUEUE, target.sized(10_000, 200), text="x", values={"AMQ_SCHEDULED_DELAY": 3_600_000})
        )
        await client.settle(60)
    return common(client.errors) or "accepted"


@attack("scheduled-crons", refused="there is no such day")
async def scheduled_crons(target: Target) -> str:
    """1,000 messages with a cron entry that never comes, and 1,000 that repeat 1,000 times, each millisecond."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(1_000, 100)
    data = client.messages_to(_QUEUE, count, text="x", values={"AMQ_SCHEDULED_CRON": "0 0 30 2 *"})
    data += client.messages_to(
        _QUEUE,
        count,
        text="x",
        values={"AMQ_SCHEDULED_DELAY": 1, "AMQ_SCHEDULED_PERIOD": 1, "AMQ_SCHEDULED_REPEAT": 1_000},
    )
    await _send(client, data)
    await asyncio.sleep(target.sized(5, 1))
    return common(client.errors) or "accepted"


@attack("expiry-at-once")
async def expiry_at_once(target: Target) -> str:
    """200,000 messages that expire at the same moment, then a browser and a consumer."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(200_000, 10_000)
    data = client.messages_to(_QUEUE, count, text="x", persistent=True, expiration=int(time.time() * 1000) + 20_000)
    await _send(client, data, 50)
    await asyncio.sleep(max(0.0, 20.5 - (time.monotonic() - target.began_at)))
    other = await target.openwire()
    failures = await other.requests([other.consumer(_QUEUE, browser=True), other.consumer(_QUEUE)])
    await other.settle(30)
    return common(failures) or f"{other.messages:,} received"


@attack("deletion-deep-queue")
async def deletion_deep(target: Target) -> str:
    """A queue of 200,000 messages that is deleted, over and over with fewer."""
    await target.begin()
    client = await target.openwire()
    outcomes = []
    for count in (target.sized(200_000, 10_000), 10_000, 10_000):
        await _send(client, client.messages_to(_QUEUE, count, text="x", persistent=True))
        info = wire.DestinationInfo(
            connection_id=wire.ConnectionId(client.id),
            destination=_QUEUE,
            operation_type=int(wire.DestinationOperation.REMOVE),
        )
        outcomes += await client.requests([info])
    return common(outcomes) or "deleted"


@attack("temporary-queues", memory_limit_mb=1536)
async def temporary_queues(target: Target) -> str:
    """20,000 temporary queues on one connection, with a message each, then the connection closes."""
    await target.begin()
    client, other = await target.openwire(), await target.openwire()
    count = target.sized(20_000, 1_000)
    names = [wire.Destination(_TEMPORARY, f"{client.id}:{n}") for n in range(count)]
    failures = await client.requests(
        wire.DestinationInfo(connection_id=wire.ConnectionId(client.id), destination=name, operation_type=0)
        for name in names
    )
    await _send(client, _messages(client, names, text="x"))
    await client.close()
    await other.settle(60)
    return common(failures) or f"{count:,} accepted"


_TEMPORARY = type(_QUEUE.type).TEMP_QUEUE


@attack("durable-subscriptions")
async def durable_subscriptions(target: Target) -> str:
    """2,000 durable subscriptions of one topic, 200 messages, and their removal."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(2_000, 200)
    infos = [client.consumer(topic("HOSTILE.D"), prefetch=1, subscription_name=f"s{n}") for n in range(count)]
    failures = await client.requests(infos)
    await _send(client, client.messages_to(topic("HOSTILE.D"), target.sized(200, 20), text="x", persistent=True))
    await client.leave()
    again = await target.openwire(client_id=client.id)
    failures += await again.requests(
        wire.RemoveSubscriptionInfo(
            connection_id=wire.ConnectionId(again.id), subscription_name=f"s{n}", client_id=client.id
        )
        for n in range(count)
    )
    return common(failures) or f"{count:,} accepted"


@attack("durable-recovery")
async def durable_recovery(target: Target) -> str:
    """A durable subscription with 50,000 messages retained, whose consumer comes and goes 20 times."""
    await target.begin()
    destination, name = topic("HOSTILE.D"), "s"
    client, producer = await target.openwire(), await target.openwire()
    await client.consume(destination, subscription_name=name)
    await client.leave()
    await _send(producer, producer.messages_to(destination, target.sized(50_000, 3_000), text="x", persistent=True))
    received = 0
    for _ in range(20):
        again = await target.openwire(client_id=client.id)
        await again.consume(destination, prefetch=1000, subscription_name=name)
        await again.settle()
        received += again.messages
        await again.leave()
    return f"{received:,} received"


@attack("message-groups")
async def message_groups(target: Target) -> str:
    """100,000 messages of as many groups, 1,000 consumers, half of which close."""
    await target.begin()
    producer, one, two = await target.openwire(), await target.openwire(), await target.openwire()
    half = target.sized(500, 50)
    failures = await one.requests(one.consumer(_QUEUE, prefetch=10) for _ in range(half))
    failures += await two.requests(two.consumer(_QUEUE, prefetch=10) for _ in range(half))
    names = target.sized(100_000, 5_000)
    data = b"".join(
        FORMAT.encode_frame(
            message(_QUEUE, producer=producer.producer, sequence=n + 1, text="x", group_id=f"g{n}", group_sequence=1)
        )
        for n in range(names)
    )
    await _send(producer, data)
    await one.close()
    await producer.settle(60)
    return common(failures) or "accepted"


@attack("exclusive-priorities")
async def exclusive_priorities(target: Target) -> str:
    """100,000 messages of ten priorities against 2,000 consumers of ten priorities, half of them exclusive."""
    await target.begin()
    producer, consumer = await target.openwire(), await target.openwire()
    data = b"".join(
        producer.messages_to(_QUEUE, target.sized(1000, 100), text="x", priority=n % 10) for n in range(100)
    )
    await _send(producer, data)
    failures = await consumer.requests(
        consumer.consumer(_QUEUE, prefetch=5, priority=n % 10, exclusive=n % 2 == 0)
        for n in range(target.sized(2_000, 200))
    )
    await producer.settle(60)
    return f"{common(failures) or 'accepted'}; {consumer.messages:,} received"


@attack("redelivery-storm", seconds_max=120.0)
async def redelivery_storm(target: Target) -> str:
    """A consumer with a window of 30,000 that closes without a word, 20 times, over 30,000 messages."""
    await target.begin()
    producer = await target.openwire()
    count = target.sized(30_000, 3_000)
    await _send(producer, producer.messages_to(_QUEUE, count, text="x", persistent=True))
    received = 0
    for number in range(target.sized(20, 5)):
        consumer = await target.openwire()
        await consumer.consume(_QUEUE, prefetch=count)
        # Of every seventh consumer on, one message more is a dead letter: each was the oldest one at seven that closed.
        await consumer.messages_reach(count - number // 7, 5)
        received += consumer.messages
        await consumer.close()
    await producer.settle(60)
    return f"{received:,} received"


@attack("composite-consumers", memory_limit_mb=256)
async def composite_consumers(target: Target) -> str:
    """200 consumers of composites of 256 queues."""
    await target.begin()
    client = await target.openwire()
    names = ",".join(f"HOSTILE.C.{n}" for n in range(256))
    failures = await client.requests(client.consumer(queue(names), prefetch=1) for _ in range(target.sized(200, 20)))
    await _send(client, client.messages_to(queue(names), 20, text="x"))
    await client.close()
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("virtual-topic")
async def virtual_topic(target: Target) -> str:
    """2,000 queues of one virtual topic, and 50 messages to it: each is stored in every queue."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(2_000, 200)
    names = [queue(f"Consumer.C{n}.VirtualTopic.HOSTILE") for n in range(count)]
    failures = await client.requests(client.consumer(name, prefetch=1) for name in names)
    data = client.messages_to(topic("VirtualTopic.HOSTILE"), target.sized(50, 5), text="x", persistent=True)
    await _send(client, data, 50)
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("composite-small")
async def composite_small(target: Target) -> str:
    """5,000 small messages to a composite of 256 queues: 1,280,000 copies."""
    await target.begin()
    client = await target.openwire()
    names = queue(",".join(f"HOSTILE.C.{n}" for n in range(256)))
    sent = 0
    for _ in range(target.sized(50, 2)):
        await client.write(client.messages_to(names, 100, text="x"))
        if not await client.settles(5):
            return f"waits after {sent:,}; {common(client.errors)}"
        sent += 100
    return common(client.errors) or f"{sent:,} accepted"


@attack("scheduler-browse", refused="16 browse")
async def scheduler_browse(target: Target) -> str:
    """45,000 scheduled messages, which are browsed 20 times and then removed."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(45_000, 2_000)
    await _send(client, client.messages_to(_QUEUE, count, text="x", values={"AMQ_SCHEDULED_DELAY": 3_600_000}))
    answers = wire.Destination(_TEMPORARY, f"{client.id}:1")
    await client.request(
        wire.DestinationInfo(connection_id=wire.ConnectionId(client.id), destination=answers, operation_type=0)
    )
    await client.consume(answers, prefetch=32_000)
    management = topic("ActiveMQ.Scheduler.Management")
    browse = client.messages_to(management, 20, values={"AMQ_SCHEDULER_ACTION": "BROWSE"}, text="", reply_to=answers)
    await _send(client, browse, 50)
    await client.messages_reach(min(20 * count, 32_000), 10)  # no more than its window
    await _send(client, client.messages_to(management, 1, values={"AMQ_SCHEDULER_ACTION": "REMOVEALL"}, text=""), 50)
    return f"{client.messages:,} received; {common(client.errors)}"


@attack("scheduler-browse-transaction", refused="16 browse")
async def scheduler_browse_transaction(target: Target) -> str:
    """45,000 scheduled messages, and a transaction that browses them 500 times and removes them."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(45_000, 2_000)
    await _send(client, client.messages_to(_QUEUE, count, text="x", values={"AMQ_SCHEDULED_DELAY": 3_600_000}))
    transaction = LocalTransactionId(client.id, 1)
    await client.request(client.transaction(wire.TransactionType.BEGIN, transaction))
    management, answers = topic("ActiveMQ.Scheduler.Management"), queue("HOSTILE.ANSWERS")
    common_fields = {"text": "", "transaction_id": transaction}
    browse = {"AMQ_SCHEDULER_ACTION": "BROWSE"}
    await client.write(client.messages_to(management, 500, values=browse, reply_to=answers, **common_fields))
    await client.write(client.messages_to(management, 1, values={"AMQ_SCHEDULER_ACTION": "REMOVEALL"}, **common_fields))
    await client.settle(60)
    await client.request(client.transaction(wire.TransactionType.COMMIT_ONE_PHASE, transaction), 60)
    return common(client.errors) or "browsed and removed"


@attack("priorities-interleaved")
async def priorities_interleaved(target: Target) -> str:
    """100,000 persistent messages of all priorities that expire, and 100 consumers that pull one each."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(100_000, 5_000)
    soon = int(time.time() * 1000) + 10_000
    for number in range(10):
        data = client.messages_to(_QUEUE, count // 10, text="x", persistent=True, priority=number, expiration=soon)
        await client.write(data)
    await client.settle(60)
    infos = [client.consumer(_QUEUE, prefetch=0) for _ in range(100)]
    failures = await client.requests(infos)
    for info in infos:
        client.start(wire.MessagePull(consumer_id=info.consumer_id, destination=_QUEUE, timeout=-1))
    await client.settle(30)
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("retained-topic-consumers")
async def topic_consumers_slow(target: Target) -> str:
    """500 topic consumers with a window of 1 that acknowledge nothing, and 50,000 messages: old ones are dropped."""
    await target.begin()
    client, producer = await target.openwire(), await target.openwire()
    failures = await client.requests(
        client.consumer(topic("HOSTILE.SLOW"), prefetch=1) for _ in range(target.sized(500, 50))
    )
    await _send(producer, producer.messages_to(topic("HOSTILE.SLOW"), target.sized(50_000, 2_000), text="x"), 50)
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("producers-500000", seconds_max=150.0, refused="ResourceAllocationException")
async def producers(target: Target) -> str:
    """500,000 producers, 50,000 on each of ten connections, which stay; then a client needs a few objects."""
    await target.begin()
    failures: list[str] = []
    clients = [await target.openwire() for _ in range(10)]
    for client in clients:
        count = target.sized(50_000, 1_000)
        infos = (wire.ProducerInfo(producer_id=wire.ProducerId(client.id, 1, 2 + n)) for n in range(count))
        failures += await client.requests(infos, 60)
    await _needs_a_few(target)
    return f"{count * len(clients) - len(failures):,} accepted; {common(failures)}"


@attack("consumers-500000", seconds_max=150.0, refused="ResourceAllocationException")
async def consumers_500000(target: Target) -> str:
    """50,000 consumers on each of five connections, which stay; then a client needs a few objects."""
    await target.begin()
    failures: list[str] = []
    clients = [await target.openwire() for _ in range(5)]
    for client in clients:
        count = target.sized(50_000, 1_000)
        failures += await client.requests((client.consumer(_QUEUE, prefetch=1) for _ in range(count)), 60)
    await _needs_a_few(target)
    return f"{count * len(clients) - len(failures):,} accepted; {common(failures)}"


@attack("queue-names-long", seconds_max=120.0, refused="ResourceAllocationException|InvalidDestinationException")
async def queue_names_long(target: Target) -> str:
    """20,000 queues with names of 1,000 characters, which each get a message, and as many with 30,000."""
    await target.begin()
    client = await target.openwire()
    count = target.sized(20_000, 500)
    for length in (1_000, 30_000):
        for first in range(0, count, 500):
            names = [queue(f"HOSTILE.{n}.{'n' * length}") for n in range(first, first + 500)]
            await _send(client, _messages(client, names, text="x"))
    await client.close()
    await _needs_a_few(target)
    return common(client.errors) or "accepted"


@attack("creations-reconnecting", quick=True, seconds_max=120.0, refused="ResourceAllocationException")
async def creations_reconnecting(target: Target) -> str:
    """500 connections, one after another, that create 300 queues with a message each and 20 durable subscriptions."""
    await target.begin()
    refused, count = 0, 0
    for number in range(target.sized(500, 60)):
        client = await target.openwire()
        count += 300
        await _send(client, _messages(client, [queue(f"HOSTILE.{number}.{n}") for n in range(300)], text="x"))
        for n in range(20):
            info = client.consumer(topic("HOSTILE"), subscription_name=f"s{n}")
            refused += len(await client.requests([info]))
        refused += sum(client.errors.values())
        await client.close()
    await _needs_a_few(target)
    return f"{count:,} queues; {refused:,} refused"


@attack("temporaries-and-sessions", quick=True, refused="ResourceAllocationException")
async def temporaries(target: Target) -> str:
    """50,000 temporary queues and 50,000 sessions on each of three connections, which stay."""
    await target.begin()
    failures: list[str] = []
    clients = [await target.openwire() for _ in range(3)]
    for client in clients:
        count = target.sized(50_000, 2_000)
        failures += await client.requests((_temporary(client, n) for n in range(count)), 60)
        sessions = (wire.SessionInfo(session_id=wire.SessionId(client.id, n)) for n in range(count))
        failures += await client.requests(sessions, 60)
    await _needs_a_few(target)
    return f"{2 * count * len(clients) - len(failures):,} accepted; {common(failures)}"


def _temporary(client: OpenWire, number: int) -> wire.DestinationInfo:
    name = wire.Destination(_TEMPORARY, f"{client.id}:{number}")
    return wire.DestinationInfo(connection_id=wire.ConnectionId(client.id), destination=name, operation_type=0)


async def _needs_a_few(target: Target) -> None:
    """Have a new client create what an application needs; what it is refused is harm. It tries for ten seconds."""
    client = await target.openwire()
    own = queue(f"NEEDED.{client.id}")
    until = time.monotonic() + 10
    while failures := await client.requests([client.consumer(own, prefetch=1)]):
        if time.monotonic() > until:
            target.harm.append(f"no queue can be created: {common(failures)}")
            return
        await asyncio.sleep(0.2)
    while failures := await client.requests([client.consumer(topic(f"T.{client.id}"), subscription_name="needed")]):
        if time.monotonic() > until:
            target.harm.append(f"no durable subscription can be created: {common(failures)}")
            return
        await asyncio.sleep(0.2)
    failures = await client.requests([_temporary(client, 1)])
    failures += await client.requests(client.consumer(own, prefetch=1) for _ in range(20))
    target.harm.extend(failures)
