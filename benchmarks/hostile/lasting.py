"""What stays when a client leaves: durable subscriptions, destinations, and the messages that they concern."""

import asyncio

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import OpenWire, Target, common, queue, topic
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.transaction import LocalTransactionId

_TOPIC = topic("HOSTILE.LASTING")
_ADD, _REMOVE = 0, 1
"""Operations of DestinationInfo."""


async def _fill(client: OpenWire, destination: Destination, count: int, each: int = 5000) -> None:
    """Send persistent messages of one character."""
    for _ in range(count // each):
        await client.write(client.messages_to(destination, each, text="x", persistent=True))
        await client.settle(60)


async def _subscribe_and_leave(client: OpenWire, destination: Destination, name: str) -> None:
    consumer = await client.consume(destination, prefetch=1, subscription_name=name)
    await client.request(wire.RemoveInfo(object_id=consumer))


def _destination(client: OpenWire, destination: Destination, operation: int) -> wire.DestinationInfo:
    return wire.DestinationInfo(
        connection_id=wire.ConnectionId(client.id), destination=destination, operation_type=operation
    )


@attack("durables-retroactive", seconds_max=120, index_mb=120)  # 1,200,000 times 100 bytes
async def durables_retroactive(target: Target) -> str:
    """5 new retroactive durable subscriptions to a topic, which keeps 200,000 messages for an absent one."""
    await target.begin()
    producer, client = await target.openwire(), await target.openwire()
    count = target.sized(200_000, 10_000)
    await _subscribe_and_leave(client, _TOPIC, "absent")
    await _fill(producer, _TOPIC, count)
    failures: list[str] = []
    for number in range(5):
        info = client.consumer(_TOPIC, prefetch=100, subscription_name=f"new{number}", retroactive=True)
        failures += await client.requests([info])
        await asyncio.sleep(0.5)
    await client.messages_reach(5 * 100, 30)
    return f"{client.messages:,} received; {common(failures) or 'accepted'}"


async def _durables_then_topics(target: Target, count: int, topics: int) -> str:
    """Subscribe with two clients to four wildcards, and then create topics that match three of them."""
    await target.begin()
    wildcards = [topic(name) for name in ("HOSTILE.>", "HOSTILE.*.A", "HOSTILE.*.*", "*.*.B")]
    failures: list[str] = []
    for _ in range(2):
        client = await target.openwire()
        infos = (
            client.consumer(wildcards[number % 4], prefetch=1, subscription_name=f"s{number}")
            for number in range(count // 2)
        )
        failures += await client.requests(infos, 60)
    producer = await target.openwire()
    for number in range(topics):
        for name in "AB":
            await producer.write(producer.messages_to(topic(f"HOSTILE.{number}.{name}"), 1, text="x", persistent=True))
        await producer.settle(60)
    return f"{common(failures) or 'accepted'}; {common(producer.errors)}"


@attack("durables-then-topics", seconds_max=120)
async def durables_then_topics(target: Target) -> str:
    """3,000 durable subscriptions to wildcards, and then topics that match them."""
    return await _durables_then_topics(target, target.sized(3_000, 300), 2)


@attack("durables-then-topics-many", memory_limit_mb=1024, seconds_max=150)
async def durables_then_topics_many(target: Target) -> str:
    """20,000 durable subscriptions to wildcards, and then topics that match them."""
    return await _durables_then_topics(target, target.sized(20_000, 300), 3)


async def _commit_interrupted(target: Target, command: str) -> str:
    """Commit 400,000 sends to 50 queues, and meanwhile change something else, and one of the queues."""
    await target.begin()
    client, other = await target.openwire(), await target.openwire()
    await other.request(_destination(other, queue("HOSTILE.OTHER"), _ADD))
    await other.write(other.messages_to(queue("HOSTILE.OTHER"), 1, text="x", persistent=True))
    local = LocalTransactionId(client.id, 1)
    count = target.sized(400, 20)
    failures: list[str] = []
    await client.request(client.transaction(wire.TransactionType.BEGIN, local))
    for number in range(count):
        destination = queue(f"HOSTILE.COMMIT.{number % 50}")
        await client.write(client.messages_to(destination, 1000, text="x", transaction_id=local, persistent=True))
    await client.settle(60)
    committed = client.start(client.transaction(wire.TransactionType.COMMIT_ONE_PHASE, local))
    await asyncio.sleep(0.02)
    if command == "delete":
        infos = [_destination(other, queue(name), _REMOVE) for name in ("HOSTILE.OTHER", "HOSTILE.COMMIT.49")]
        failures += await other.requests(infos)
    else:
        failures += await other.requests([other.consumer(_TOPIC, subscription_name=f"s{n}") for n in range(3)])
    await asyncio.wait_for(committed, 60)
    return common(failures) or "accepted"


@attack("commit-and-deletion", memory_limit_mb=1024, seconds_max=150)
async def commit_and_deletion(target: Target) -> str:
    """A commit of 400,000 sends to 50 queues, while another client deletes one of them, and another queue."""
    return await _commit_interrupted(target, "delete")


@attack("commit-and-durable", memory_limit_mb=1024, seconds_max=150)
async def commit_and_durable(target: Target) -> str:
    """A commit of 400,000 sends to 50 queues, while another client subscribes durably to a topic."""
    return await _commit_interrupted(target, "subscribe")
