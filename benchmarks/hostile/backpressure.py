"""Limits that one destination reaches: what waits for it, and whether others wait too."""

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import Target, common, message, queue, topic

_MB = "x" * 1_000_000


@attack("backlog-non-persistent", quick=True)
async def non_persistent(target: Target) -> str:
    """200 MB of non-persistent messages to a queue without consumers, at a memory limit of 128 MB."""
    await target.begin()
    producer = await target.openwire()
    sent = 0
    for _ in range(200):
        await producer.write(producer.messages_to(queue("HOSTILE.FULL"), 1, text=_MB))
        sent += 1
        if not await producer.settles(2):
            return f"waits after {sent} MB"
    return f"{sent} MB accepted; {common(producer.errors)}"


@attack("backlog-non-persistent-many")
async def non_persistent_many(target: Target) -> str:
    """The same by 20 producers to 20 queues."""
    await target.begin()
    producers = [await target.openwire() for _ in range(20)]
    waiting = sent = 0
    for _ in range(10):
        for number, producer in enumerate(producers):
            await producer.write(producer.messages_to(queue(f"HOSTILE.FULL.{number}"), 1, text=_MB))
            sent += 1
    for producer in producers:
        if not await producer.settles(1):
            waiting += 1
    return f"{sent} MB sent; {waiting} of 20 producers wait"


@attack("backlog-small-non-persistent")
async def small_non_persistent(target: Target) -> str:
    """2,000,000 small non-persistent messages to a queue without consumers."""
    await target.begin()
    producer = await target.openwire()
    data = producer.messages_to(queue("HOSTILE.FULL"), 10_000, text="x")
    sent = 0
    for _ in range(target.sized(200, 20)):
        await producer.write(data)
        sent += 10_000
        if not await producer.settles(3):
            return f"waits after {sent:,}"
    return f"{sent:,} accepted; {common(producer.errors)}"


@attack("backlog-persistent-queues", quick=True)
async def persistent_queues(target: Target) -> str:
    """One persistent message of 1 MB in each of 256 queues."""
    await target.begin()
    producer = await target.openwire()
    for number in range(256):
        await producer.write(producer.messages_to(queue(f"HOSTILE.P.{number}"), 1, text=_MB, persistent=True))
        if not await producer.settles(3):
            return f"waits after {number}"
    return f"256 accepted; {common(producer.errors)}"


@attack("backlog-persistent-mixed")
async def persistent_mixed(target: Target) -> str:
    """A queue full of non-persistent messages, then 300 MB of persistent ones to another, over STOMP too."""
    await target.begin()
    producer, other, stomp = await target.openwire(), await target.openwire(), await target.stomp()
    await producer.write(producer.messages_to(queue("HOSTILE.N"), 140, text=_MB))
    body = f"SEND\ndestination:/queue/HOSTILE.S\npersistent:true\nreceipt:r\n\n{_MB}\0"
    for number in range(target.sized(150, 30)):
        await other.write(other.messages_to(queue("HOSTILE.P"), 1, text=_MB, persistent=True))
        try:
            await other.settle(3)
            await stomp.request(body, 3)
        except TimeoutError:
            return f"persistent sends wait after {2 * number} MB"
    return f"accepted; {common(other.errors + stomp.errors)}"


@attack("composite-large")
async def composite_large(target: Target) -> str:
    """A persistent and a non-persistent message of 1 MB to a composite of 256 queues."""
    names = ",".join(f"HOSTILE.C.{number}" for number in range(256))
    await target.begin()
    producer = await target.openwire()
    outcome = []
    for persistent in (True, False):
        await producer.write(producer.messages_to(queue(names), 1, text=_MB, persistent=persistent))
        try:
            await producer.settle(10)
            outcome.append("accepted")
        except TimeoutError:
            outcome.append("waits")
    return "; ".join(outcome) + common(producer.errors)


@attack("slow-consumer-queue")
async def slow_consumer(target: Target) -> str:
    """300 MB to a queue whose consumer, with a window of 32,000, reads nothing; and the same to a topic."""
    await target.begin()
    slow, producer = await target.openwire(), await target.openwire()
    await slow.consume(queue("HOSTILE.SLOW"), prefetch=32_000)
    await slow.consume(topic("HOSTILE.SLOW"), prefetch=32_000)
    slow.stop_reading()
    for number in range(target.sized(300, 150)):
        await producer.write(producer.messages_to(queue("HOSTILE.SLOW"), 50, text="x" * 10_000, persistent=True))
        await producer.write(producer.messages_to(topic("HOSTILE.SLOW"), 50, text="x" * 10_000))
        if not await producer.settles(3):
            return f"waits after {number} MB"
    return f"accepted; {common(producer.errors)}"


@attack("outstanding-many-queues", quick=True)
async def outstanding_many_queues(target: Target) -> str:
    """67 queues, each with a consumer that holds 1 MB of persistent messages and more; then a send to another queue."""
    await target.begin()
    producer = await target.openwire()
    count = target.sized(67, 40)
    holders = [await target.openwire() for _ in range(count)]
    for number, holder in enumerate(holders):
        await holder.consume(queue(f"HOSTILE.HELD.{number}"), prefetch=1000)
    for round_ in range(target.sized(4, 2)):
        for number in range(count):
            name = queue(f"HOSTILE.HELD.{number}")
            await producer.write(producer.messages_to(name, 50, text="x" * 20_000, persistent=True))
        try:
            await producer.settle(5)
            other = message(
                queue("HOSTILE.OTHER"), producer=producer.producer, sequence=producer.sequence, persistent=True
            )
            producer.sequence += 1
            await producer.request(other, 5)
        except TimeoutError:
            return f"another queue's producer waits after {(round_ + 1) * count} MB"
    held = sum(holder.messages for holder in holders)
    return f"answered; {held:,} held; {common(producer.errors)}"


@attack("outstanding-wide-window")
async def outstanding_wide_window(target: Target) -> str:
    """A consumer with a window of 32,766 that acknowledges none of 600 MB of persistent messages, 20 kB each."""
    await target.begin()
    producer, holder = await target.openwire(), await target.openwire()
    await holder.consume(queue("HOSTILE.WIDE"), prefetch=32_766)
    for number in range(target.sized(600, 60)):
        await producer.write(producer.messages_to(queue("HOSTILE.WIDE"), 50, text="x" * 20_000, persistent=True))
        if not await producer.settles(5):
            return f"waits after {number} MB"
    await holder.messages_reach(producer.sequence - 1, 20)
    return f"{holder.messages:,} held; {common(producer.errors)}"


@attack("outstanding-topic", seconds_max=120.0)
async def outstanding_topic(target: Target) -> str:
    """10 topic consumers with windows of 32,766 that acknowledge none of 600 MB of messages, 20 kB each."""
    await target.begin()
    producer, holder = await target.openwire(), await target.openwire()
    for _ in range(10):
        await holder.consume(topic("HOSTILE.WIDE"), prefetch=32_766)
    for number in range(target.sized(600, 60)):
        await producer.write(producer.messages_to(topic("HOSTILE.WIDE"), 50, text="x" * 20_000))
        if not await producer.settles(5):
            return f"waits after {number} MB"
    # On a busy machine the holder reads too slowly for all of them, and some are dropped before.
    await holder.messages_reach(min(10 * (producer.sequence - 1), 60_000), 60)
    return f"{holder.messages:,} held; {common(producer.errors)}"


@attack("outstanding-long-backlog")
async def outstanding_long_backlog(target: Target) -> str:
    """The same, of messages that waited before the consumer came."""
    await target.begin()
    producer, holder = await target.openwire(), await target.openwire()
    for _ in range(target.sized(60, 6)):
        await producer.write(producer.messages_to(queue("HOSTILE.WIDE"), 500, text="x" * 20_000, persistent=True))
        await producer.settle(20)
    await holder.consume(queue("HOSTILE.WIDE"), prefetch=32_766)
    await holder.messages_reach(producer.sequence - 1, 40)
    return f"{holder.messages:,} held; {common(producer.errors)}"
