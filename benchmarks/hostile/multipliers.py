"""Work that one command multiplies: copies, in transactions and jobs too; the end of a connection that owns much."""

import asyncio

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import Target, common, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.transaction import LocalTransactionId

_MB = "x" * 1_000_000
_COMPOSITE = queue(",".join(f"HOSTILE.C.{number}" for number in range(256)))


@attack("composite-transaction")
async def composite_transaction(target: Target) -> str:
    """A message of 1 MB to a composite of 256 queues in a transaction that is rolled back, and in one that commits."""
    await target.begin()
    client = await target.openwire()
    outcomes: list[str] = []
    for number, end in enumerate((wire.TransactionType.ROLLBACK, wire.TransactionType.COMMIT_ONE_PHASE)):
        local = LocalTransactionId(client.id, number + 1)
        await client.request(client.transaction(wire.TransactionType.BEGIN, local))
        await client.write(client.messages_to(_COMPOSITE, 1, text=_MB, persistent=True, transaction_id=local))
        outcomes += await client.requests([client.transaction(end, local)])
    return common(client.errors) or common(outcomes) or "committed"


@attack("composite-scheduled")
async def composite_scheduled(target: Target) -> str:
    """10 persistent messages of 1 MB to a composite of 256 queues, scheduled for the same moment."""
    await target.begin()
    client = await target.openwire()
    values = {"AMQ_SCHEDULED_DELAY": 1000}
    await client.write(client.messages_to(_COMPOSITE, target.sized(10, 2), text=_MB, persistent=True, values=values))
    await client.settle(30)
    await asyncio.sleep(target.sized(10, 3))
    return common(client.errors) or "accepted"


@attack("composite-virtual", memory_limit_mb=512)
async def composite_virtual(target: Target) -> str:
    """20 messages to a composite of 100 virtual topics with 100 queues each: 200,000 copies."""
    await target.begin()
    client = await target.openwire()
    queues = target.sized(100, 10)
    names = [queue(f"Consumer.C{n}.VirtualTopic.H{t}") for t in range(100) for n in range(queues)]
    failures = await client.requests(client.consumer(name, prefetch=1) for name in names)
    virtual = topic(",".join(f"VirtualTopic.H{t}" for t in range(100)))
    await client.write(client.messages_to(virtual, target.sized(20, 2), text="x", persistent=True))
    await client.settle(60)
    await client.messages_reach(len(names), 20)  # the window of each consumer
    return f"{common(failures) or 'accepted'}; {client.messages:,} received"


@attack("connection-removed", memory_limit_mb=512)
async def connection_removed(target: Target) -> str:
    """10,000 consumers with messages on one connection, which RemoveInfo ends, 3 times."""
    await target.begin()
    producer, count = await target.openwire(), target.sized(10_000, 1_000)
    await producer.write(
        b"".join(producer.messages_to(queue(f"HOSTILE.{n}"), 1, text="x", persistent=True) for n in range(count))
    )
    await producer.settle(60)
    failures: list[str] = []
    for _ in range(3):
        client = await target.openwire()
        failures += await client.requests(client.consumer(queue(f"HOSTILE.{n}"), prefetch=1) for n in range(count))
        failures += await client.requests([wire.RemoveInfo(object_id=wire.ConnectionId(client.id))])
        await client.close()
    return common(failures) or f"{count:,} removed"


@attack("connection-replaced", memory_limit_mb=512, refused="^closed")
async def connection_replaced(target: Target) -> str:
    """A connection with 10,000 consumers that its client replaces by another of the same ids, 5 times."""
    await target.begin()
    count = target.sized(10_000, 1_000)
    failures: list[str] = []
    for _ in range(5):
        client = await target.openwire(connects=False)
        client.id = "HOSTILE"
        client.producer = wire.ProducerId(client.id, 1, 1)
        await client.connect()
        failures += await client.requests(client.consumer(queue(f"HOSTILE.{n}"), prefetch=1) for n in range(count))
    target.depth.reach(5 * count - len(failures), 5 * count, "consumers added")
    return common(failures) or "replaced"
