"""Selectors that cost much: patterns against long text, long selectors over long queues, many of them, deep ones."""

import asyncio

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import OpenWire, Refused, Target, common, properties, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.values import Value

_QUEUE = queue("HOSTILE.SELECTED")
_SELECTOR_BYTES = 7_000


async def _selected(target: Target, selector: str, values: dict[str, Value], *, count: int = 1) -> str:
    """Add a consumer with a selector, and send messages with these properties."""
    await target.begin()
    consumer, producer = await target.openwire(), await target.openwire()
    frames = producer.messages_to(_QUEUE, count, values=values)
    try:
        await consumer.consume(_QUEUE, selector=selector)
        outcome = "accepted"
    except Refused as refused:
        outcome = f"refused: {refused}"
    await producer.write(frames)
    await producer.settle(60)
    return f"{outcome}; {consumer.messages} received; {common(producer.errors)}"


@attack("like-long-text", quick=True)
async def like_long_text(target: Target) -> str:
    """A property of 1 MB against LIKE '%aaaa (4,000 times a) b%'."""
    size = target.sized(1_000_000, 300_000)
    return await _selected(target, f"p LIKE '%{'a' * 4000}b%'", {"p": "a" * size})


@attack("like-wildcards", quick=True)
async def like_wildcards(target: Target) -> str:
    """A property against LIKE '%a_ (2,000 times) b%'."""
    return await _selected(target, f"p LIKE '%{'a_' * 2000}b%'", {"p": "a" * 1_000_000})


@attack("like-many-percents")
async def like_many_percents(target: Target) -> str:
    """A property against LIKE '%a%a%a... (2,000 times) b', where a backtracking matcher has exponential work."""
    return await _selected(target, f"p LIKE '%{'a%' * 2000}b'", {"p": "a" * 100_000})


@attack("like-stomp-header")
async def like_stomp_header(target: Target) -> str:
    """The same by STOMP: a header of 10 KB against patterns of LIKE, 2,000 messages."""
    pattern = "%" + "a_" * 2000 + "b%"
    await target.begin()
    consumer, producer = await target.stomp(), await target.stomp()
    try:
        await consumer.subscribe("/queue/HOSTILE.SELECTED", headers=f"selector:p LIKE '{pattern}'\n")
        outcome = "accepted"
    except Refused as refused:
        outcome = f"refused: {refused}"
    frame = f"SEND\ndestination:/queue/HOSTILE.SELECTED\np:{'a' * 10_000}\n\nx\0".encode()
    await producer.write(frame * target.sized(2000, 200))
    await producer.request("SEND\ndestination:/queue/HOSTILE.SELECTED\nreceipt:r\n\nx\0", 60)
    return outcome


@attack("number-long-text", quick=True)
async def number_long_text(target: Target) -> str:
    """A property of 1 MB of digits and a letter, against a STOMP selector that compares it with 500 numbers."""
    size = target.sized(1_000_000, 300_000)
    selector = "convert_string_expressions:" + " OR ".join(["p > 1.5"] * 500)
    return await _selected(target, selector, {"p": "1" * size + "x"})


@attack("equal-long-texts")
async def equal_long_texts(target: Target) -> str:
    """Two equal properties of 8 MB, which a selector compares 500 times."""
    text = "a" * target.sized(8_000_000, 1_000_000)
    return await _selected(target, " AND ".join(["p = q"] * 500), {"p": text, "q": text})


@attack("selectors-fan-out", quick=True)
async def selectors_fan_out(target: Target) -> str:
    """500 subscriptions to a topic, each with another selector that is hard for the property of 1 MB of 20 messages."""
    return await _hard_for_all(target, topic("HOSTILE.SELECTED"))


@attack("selectors-one-queue")
async def selectors_one_queue(target: Target) -> str:
    """500 consumers of a queue, each with another selector that is hard for the property of 1 MB of 20 messages."""
    return await _hard_for_all(target, _QUEUE)


async def _hard_for_all(target: Target, destination: wire.Destination) -> str:
    await target.begin()
    consumer, producer = await target.openwire(), await target.openwire()
    # In a text of `abab...` these patterns stand nowhere, which no quick search finds out.
    failures = await consumer.requests(
        consumer.consumer(destination, selector=f"p LIKE '%a{'_' * (2 * number)}a_b%'")
        for number in range(target.sized(500, 100))
    )
    size = target.sized(1_000_000, 300_000)
    await producer.write(producer.messages_to(destination, target.sized(20, 5), values={"p": "ab" * (size // 2)}))
    await producer.settle(60)
    return f"{common(failures) or 'accepted'}; {consumer.messages} received; {common(producer.errors)}"


@attack("selector-over-backlog")
async def over_backlog(target: Target) -> str:
    """One selector of 7 kB with 400 LIKEs over 20,000 waiting messages."""
    parts = " OR ".join(f"p{number % 10} LIKE '%x{number}'" for number in range(400))
    return await _over_backlog(target, [parts[:_SELECTOR_BYTES].rpartition(" OR ")[0]])


@attack("selectors-over-backlog")
async def many_over_backlog(target: Target) -> str:
    """50 consumers with different selectors over 20,000 waiting messages."""
    return await _over_backlog(target, [f"p1 LIKE '%x{n}' OR p2 = '{n}'" for n in range(50)])


async def _over_backlog(target: Target, selectors: list[str]) -> str:
    await target.begin()
    producer, consumer = await target.openwire(), await target.openwire()
    count = target.sized(20_000, 2_000)
    await producer.write(producer.messages_to(_QUEUE, count, values=properties(10, 20)))
    await producer.settle(60)
    failures = await consumer.requests(consumer.consumer(_QUEUE, selector=each) for each in selectors)
    await producer.settle(60)
    await asyncio.sleep(target.sized(5, 1))  # the search goes on after the answer
    return f"{count:,} waiting; {common(failures) or 'accepted'}"


@attack("selector-browse-backlog")
async def browse_backlog(target: Target) -> str:
    """20 browsers with a selector that matches nothing, over 20,000 waiting messages."""
    await target.begin()
    producer, consumer = await target.openwire(), await target.openwire()
    count = target.sized(20_000, 2_000)
    await producer.write(producer.messages_to(_QUEUE, count, values=properties(10, 20), persistent=True))
    await producer.settle(60)
    failures = await consumer.requests(
        consumer.consumer(_QUEUE, selector=f"p1 LIKE '%x{n}'", browser=True) for n in range(20)
    )
    await consumer.messages_reach(20, 30)  # a null message ends each browse
    return f"{common(failures) or 'accepted'}; {consumer.messages} of 20 ended"


@attack("selectors-compiled", refused="the selectors of a connection")
async def compiled(target: Target) -> str:
    """300 distinct selectors of 8 kB."""
    await target.begin()
    client = await target.openwire()
    selectors = [_long_selector(number) for number in range(target.sized(300, 30))]
    failures = await client.requests(client.consumer(_QUEUE, selector=each) for each in selectors)
    return common(failures) or f"{len(selectors)} accepted"


def _long_selector(number: int) -> str:
    text = " OR ".join(f"p{number}_{each} LIKE '%{each}' AND q > {each}" for each in range(300))
    return text[:8000].rpartition(" OR ")[0]


@attack("selectors-compiled-topic")
async def compiled_topic(target: Target) -> str:
    """300 distinct selectors of 8 kB on a topic, by STOMP, then 20 messages."""
    await target.begin()
    client, producer = await target.stomp(), await target.openwire()
    for number in range(target.sized(300, 30)):
        await client.write(
            f"SUBSCRIBE\nid:{number}\ndestination:/topic/HOSTILE\nselector:{_long_selector(number)}\n\n\0".encode()
        )
    failures = client.errors
    await producer.write(producer.messages_to(topic("HOSTILE"), 20, values=properties(10, 20)))
    await producer.settle(60)
    return common(failures) or "accepted"


@attack("selector-large-properties", refused="MessageFormatException")
async def large_properties(target: Target) -> str:
    """16 MB of properties and one selector."""
    values = properties(16_000, 1000)
    await target.begin()
    return await _selected_now(target, "p1 = 'x' OR p2 IS NULL", values)


@attack("selector-many-properties", quick=True, refused="MessageFormatException")
async def many_properties(target: Target) -> str:
    """A message with 500,000 small properties and one selector."""
    values: dict[str, Value] = {f"p{number}": number for number in range(target.sized(500_000, 200_000))}
    await target.begin()
    return await _selected_now(target, "p1 = 7", values)


async def _selected_now(target: Target, selector: str, values: dict[str, Value]) -> str:
    consumer, producer = await target.openwire(), await target.openwire()
    await consumer.consume(_QUEUE, selector=selector)
    await producer.write(producer.messages_to(_QUEUE, 1, values=values))
    await producer.settle(60)
    return f"accepted; {common(producer.errors)}"


@attack("selector-deep", quick=True, refused="InvalidSelectorException")
async def deep(target: Target) -> str:
    """Selectors of 60 kB nested deeply: parentheses, NOT, minus; and chains of thousands of ANDs and additions."""
    await target.begin()
    client = await target.openwire()
    depth = 15_000
    return await _each(
        client,
        {
            "parentheses": "(" * 2 * depth + "a = 1" + ")" * 2 * depth,
            "not": "NOT " * depth + "a = 1",
            "minus": "a = " + "- " * depth + "1",
            "and": " AND ".join(["a = 1"] * 6_000),
            "plus": "a = " + "+".join(["1"] * depth),
        },
    )


@attack("selector-long", quick=True, refused="InvalidSelectorException")
async def long(target: Target) -> str:
    """Selectors of 60 kB: IN with 8,000 values, a number of 60,000 digits, spaces, a quoted text."""
    await target.begin()
    client = await target.openwire()
    return await _each(
        client,
        {
            "in": "a IN (" + ",".join(f"'{number}'" for number in range(8_000)) + ")",
            "digits": "a = " + "1" * 60_000,
            "exponent": "a = 1E" + "9" * 1000,
            "spaces": "a = " + " " * 60_000 + "1",
            "text": "a = '" + "x" * 60_000 + "'",
            "comment": "a = 1 /*" + "*" * 50_000,
        },
    )


async def _each(client: OpenWire, selectors: dict[str, str]) -> str:
    outcomes = []
    for name, selector in selectors.items():
        try:
            await client.consume(_QUEUE, selector=selector)
            outcomes.append(f"{name} accepted")
        except (Refused, TimeoutError, ConnectionError) as error:
            outcomes.append(f"{name} {error}"[:40])
    return "; ".join(outcomes)


@attack("selector-durable-recovery")
async def durable_recovery(target: Target) -> str:
    """A durable subscription whose selector changes again and again, over 20,000 retained messages."""
    await target.begin()
    client, producer = await target.openwire(), await target.openwire()
    destination = topic("HOSTILE.DURABLE")
    await client.consume(destination, prefetch=1, subscription_name="s", selector="p1 = 'x'")
    count = target.sized(20_000, 2_000)
    await producer.write(producer.messages_to(destination, count, values=properties(10, 20), persistent=True))
    await producer.settle(60)
    outcomes = []
    for number in range(10):
        again = await target.openwire()
        try:
            await again.consume(
                destination,
                prefetch=1,
                subscription_name=f"s{number}",
                selector=f"p2 LIKE '%{number}'",
                retroactive=True,
            )
        except Refused as refused:
            outcomes.append(str(refused))
        await again.close()
    return common(outcomes) or "accepted"
