"""Very many at once: connections that close, durable subscriptions that come back, commits and deletions of many."""

import asyncio

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Target, common, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.transaction import LocalTransactionId

_QUEUE = queue("HOSTILE.CROWD")
_TOPIC = topic("HOSTILE.CROWD")


@attack("connections-closing", quick=True, extra=("--connections-max", "3000"))
async def connections_closing(target: Target) -> str:
    """2,000 connections, each with a consumer that holds messages of one queue, which all close at the same moment."""
    count = target.sized(2_000, 300)
    await target.begin()
    producer = await target.openwire()
    clients = [await target.openwire() for _ in range(count)]
    for client in clients:
        await client.consume(_QUEUE, prefetch=5)
    await producer.write(producer.messages_to(_QUEUE, 5 * count, text="x", persistent=True))
    await producer.settle(60)
    for client in clients:
        await client.messages_reach(5, 20)
    for client in clients:
        await client.close()
    await asyncio.sleep(1)
    await producer.settle(60)
    return f"{len(clients):,} closed"


@attack("durables-reconnecting", extra=("--connections-max", "3000"), seconds_max=120.0)
async def durables_reconnecting(target: Target) -> str:
    """500 clients with a durable subscription to one topic each, 100 messages, and all of them come back 3 times."""
    count, rounds, messages = target.sized(500, 50), target.sized(4, 2), 100
    await target.begin()
    producer = await target.openwire()
    received = 0
    for number in range(rounds):
        clients = await asyncio.gather(*(_subscribed(target, f"durable-{each}") for each in range(count)))
        if number:
            for client in clients:
                await client.messages_reach(messages, 30)
        received += sum(client.messages for client in clients)
        await asyncio.gather(*(client.leave() for client in clients))
        if not number:
            await producer.write(producer.messages_to(_TOPIC, messages, text="x", persistent=True))
            await producer.settle(60)
    return f"{received:,} received; {common(producer.errors)}"


async def _subscribed(target: Target, client_id: str) -> OpenWire:
    client = await target.openwire(client_id=client_id)
    await client.consume(_TOPIC, prefetch=100, subscription_name="s")
    return client


@attack("durables-on-one-connection", memory_limit_mb=256)
async def durables_on_one_connection(target: Target) -> str:
    """2,000 durable subscriptions of one client, 50 messages; the client comes back with all of them, twice."""
    count = target.sized(2_000, 200)
    await target.begin()
    producer = await target.openwire()
    received = 0
    for number in range(3):
        client = await target.openwire(client_id="HOSTILE")
        infos = (client.consumer(_TOPIC, prefetch=100, subscription_name=f"s{each}") for each in range(count))
        await client.requests(infos)
        if number:
            await client.messages_reach(50 * count, 30)
        received += client.messages
        await client.leave()
        if not number:
            await producer.write(producer.messages_to(_TOPIC, 50, text="x", persistent=True))
            await producer.settle(60)
    return f"{received:,} received"


@attack("durables-selecting", quick=True)
async def durables_selecting(target: Target) -> str:
    """2,000 durable subscriptions with another selector each that is hard for the property of 100 kB of 10 messages."""
    count = target.sized(2_000, 300)
    await target.begin()
    client, producer = await target.openwire(), await target.openwire()
    # In a text of `abab...` these patterns stand nowhere, which no quick search finds out.
    infos = [
        client.consumer(
            _TOPIC, subscription_name=f"s{number}", selector=f"p LIKE '%a_a{'_' * (number % 50)}b{number}%'"
        )
        for number in range(count)
    ]
    failures = await client.requests(infos)
    await client.leave()
    values = {"p": "ab" * target.sized(50_000, 10_000)}
    await producer.write(producer.messages_to(_TOPIC, 10, values=values, persistent=True))
    await producer.settle(60)
    target.depth.reach(count - len(failures), count, "subscriptions with a selector")
    return common(producer.errors) or "accepted"


@attack("durables-in-thousands", memory_limit_mb=1024)
async def durables_in_thousands(target: Target) -> str:
    """20,000 durable subscriptions to one topic, created by 10 connections, and 10 messages."""
    count = target.sized(2_000, 200)
    await target.begin()
    producer = await target.openwire()
    failures: list[str] = []
    for _ in range(10):
        client = await target.openwire()
        failures += await client.requests(
            client.consumer(_TOPIC, prefetch=1, subscription_name=f"s{number}") for number in range(count)
        )
        await client.leave()
    for _ in range(10):
        await producer.write(producer.messages_to(_TOPIC, 1, text="x", persistent=True))
    await producer.settle(60)
    target.depth.reach(10 * count - len(failures), 10 * count, "durable subscriptions")
    return common(producer.errors) or "accepted"


@attack("pulls-selecting-drain", seconds_max=120.0)
async def pulls_selecting_drain(target: Target) -> str:
    """50 selective consumers with prefetch 0 pull what there is not, while another drains 50,000 messages."""
    count = target.sized(50_000, 3_000)
    await target.begin()
    producer, puller, drain = await target.openwire(), await target.openwire(), await target.openwire()
    data = producer.messages_to(_QUEUE, count, text="x", persistent=True, values={"k": 1})
    await producer.write(data)
    await producer.settle(60)
    infos = [puller.consumer(_QUEUE, prefetch=0, selector=f"k = {number}") for number in range(2, 52)]
    await puller.requests(infos)
    consumer = await drain.consume(_QUEUE, prefetch=1000)
    pulls = b"".join(
        FORMAT.encode_frame(wire.MessagePull(consumer_id=info.consumer_id, destination=_QUEUE, timeout=50))
        for info in infos
    )
    drained = 0
    while drained < count and await drain.until(lambda drained=drained: drain.messages > drained, 20):  # type: ignore[misc]
        await puller.write(pulls)
        last = drain.messages
        ack = wire.MessageAck(
            destination=_QUEUE, consumer_id=consumer, ack_type=int(wire.AckType.STANDARD), message_count=last - drained,
            first_message_id=wire.OpenWireMessageId(None, producer.producer, drained + 1),
            last_message_id=wire.OpenWireMessageId(None, producer.producer, last),
        )  # fmt: skip
        await drain.write(FORMAT.encode_frame(ack))
        drained = last
    target.depth.reach(drained, count, "messages drained")
    return f"{drained:,} drained, {puller.messages:,} pulls without a message"


@attack("commit-interrupted", memory_limit_mb=512)
async def commit_interrupted(target: Target) -> str:
    """A commit of 100,000 sends to 100 queues and a topic, while another deletes these and subscribes to the topic."""
    total = target.sized(100_000, 5_000)
    await target.begin()
    client, other = await target.openwire(), await target.openwire()
    await other.consume(_TOPIC, subscription_name="before")
    local = LocalTransactionId(client.id, 1)
    await client.request(client.transaction(wire.TransactionType.BEGIN, local))
    for number in range(100):
        name = queue(f"HOSTILE.COMMIT.{number}") if number % 4 else _TOPIC
        await client.write(client.messages_to(name, total // 100, text="x", transaction_id=local, persistent=True))
    await client.settle(60)
    committed = client.start(client.transaction(wire.TransactionType.COMMIT_ONE_PHASE, local))
    infos = [
        wire.DestinationInfo(
            connection_id=wire.ConnectionId(other.id),
            destination=queue(f"HOSTILE.COMMIT.{number}"),
            operation_type=int(wire.DestinationOperation.REMOVE),
        )
        for number in range(99, 0, -1)
    ]
    await asyncio.sleep(0.05)  # the commit is under way
    await other.requests([*infos, other.consumer(_TOPIC, subscription_name="meanwhile")])
    await asyncio.wait_for(committed, 60)
    target.depth.reach(total - sum(client.errors.values()), total, "operations committed")
    return common(client.errors + other.errors) or "committed"


@attack("deletion-very-deep", memory_limit_mb=256, seconds_max=150.0)
async def deletion_very_deep(target: Target) -> str:
    """A queue of 1,000,000 small messages, most of them on disk, which is deleted."""
    count = target.sized(1_000_000, 20_000)
    await target.begin()
    client = await target.openwire()
    for _ in range(10):
        await client.write(client.messages_to(_QUEUE, count // 10, text="x", persistent=True))
    await client.settle(100)
    info = wire.DestinationInfo(
        connection_id=wire.ConnectionId(client.id),
        destination=_QUEUE,
        operation_type=int(wire.DestinationOperation.REMOVE),
    )
    failures = await client.requests([info])
    target.depth.reach(count - sum(client.errors.values()), count, "messages deleted")
    return common(failures) or "deleted"
