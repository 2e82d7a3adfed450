"""Ends of ranges: the deepest nesting, the greatest numbers, the largest messages and transactions."""

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import OpenWire, Target, common, message, queue, topic
from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.values import Long

_QUEUE = queue("HOSTILE.EXTREME")
_GREATEST = (1 << 63) - 1


@attack("nesting-deep", refused="JMSException")
async def nesting(target: Target) -> str:
    """Structures in structures, 50,000 deep: responses, brokers' infos, an exception's causes, composite paths."""
    depth = target.sized(50_000, 20_000)
    head = b"\x00\x00\x00\x01\x00"  # command id, no answer required
    frames = {
        "responses": (b"\x20" + head + b"\x00\x00\x00\x01\x01") * depth,  # DataResponse, whose data is one
        "brokers": (b"\x02" + head + b"\x00\x00\x01\x00\x01\x01") * depth,  # BrokerInfo, whose only peer is one
        "removes": (b"\x0c" + head + b"\x01") * depth,  # RemoveInfo, whose object is one
    }
    await target.begin()
    outcomes = []
    for name, frame in frames.items():
        client = await target.openwire()
        await client.write(INT.pack(len(frame)) + frame)
        await client.until(lambda client=client: bool(client.errors), 3)  # type: ignore[misc]
        outcomes.append(f"{name}: {common(client.errors)[:30] or ('closed' if client.closed.is_set() else 'accepted')}")
    return "; ".join(outcomes)


@attack("numbers-extreme", quick=True, refused="Exception")
async def numbers(target: Target) -> str:
    """Greatest and least numbers: time-outs, delays, expirations, priorities, windows, counts."""
    await target.begin()
    outcomes = []
    for number in (_GREATEST, -_GREATEST - 1, -1):
        client = await target.openwire()
        small = max(-(1 << 31), min(number, (1 << 31) - 1))
        consumer = await client.consume(_QUEUE, prefetch=0)
        commands: list[wire.DataStructure] = [
            wire.MessagePull(consumer_id=consumer, destination=_QUEUE, timeout=number),
            client.consumer(_QUEUE, prefetch=small, maximum_pending_message_limit=small, priority=127),
            wire.ConsumerControl(consumer_id=consumer, destination=_QUEUE, prefetch=small),
            wire.DestinationInfo(
                connection_id=wire.ConnectionId(client.id), destination=_QUEUE, operation_type=1, timeout=number
            ),
            _message(client, 1, expiration=number, timestamp=number, priority=-128, group_sequence=small),
            _message(client, number, redelivery_counter=small, arrival=number),
            _message(client, 3, values={"AMQ_SCHEDULED_DELAY": Long(number), "AMQ_SCHEDULED_REPEAT": small}),
            _message(client, 4, values={"AMQ_SCHEDULED_PERIOD": Long(number), "AMQ_SCHEDULED_REPEAT": 1}),
        ]
        failures = await client.requests(commands, 3)
        outcomes.append(f"{len(failures)} refused{' closed' if client.closed.is_set() else ''}")
    return "; ".join(outcomes)


def _message(client: OpenWire, sequence: int, **fields: object) -> wire.ActiveMQMessage:
    made = message(_QUEUE, producer=client.producer, sequence=sequence, text="x", persistent=True, **fields)  # type: ignore[arg-type]
    return made


@attack("message-90mb", frame_mb=90)
async def large_messages(target: Target) -> str:
    """Persistent texts of 90 MB from OpenWire and STOMP to a STOMP consumer, and to a durable subscription."""
    size = target.sized(90_000_000, 20_000_000)
    text = "ä" * (size // 2)
    producer = await target.openwire()
    frame = producer.messages_to(_QUEUE, 1, text=text, persistent=True)
    durable = producer.messages_to(topic("HOSTILE.LARGE"), 1, text=text, persistent=True)
    body = f"SEND\ndestination:/queue/{_QUEUE.name}\npersistent:true\nreceipt:r\n\n{text}\0".encode()
    await target.begin()
    consumer, sender, subscriber = await target.stomp(), await target.stomp(), await target.openwire()
    await subscriber.consume(topic("HOSTILE.LARGE"), subscription_name="s")
    await consumer.subscribe(f"/queue/{_QUEUE.name}")
    await producer.write(frame)
    await producer.write(durable)
    await producer.settle(40)
    await sender.request(body, 40)
    await consumer.messages_reach(2, 10)
    return f"{consumer.messages} of 2 received; {common(producer.errors + sender.errors + consumer.errors)}"


@attack("stomp-transaction", memory_limit_mb=512)
async def stomp_transaction(target: Target) -> str:
    """A STOMP transaction of 200,000 sends, committed at once, and one of 50,000 acknowledgements that is aborted."""
    await target.begin()
    client = await target.stomp()
    name = f"/queue/{_QUEUE.name}"
    send = f"SEND\ndestination:{name}\npersistent:true\ntransaction:t\n\nx\0".encode()
    await client.write(b"BEGIN\ntransaction:t\n\n\0" + send * target.sized(200_000, 10_000))
    await client.request(b"COMMIT\ntransaction:t\nreceipt:r\n\n\0", 50)
    count = target.sized(50_000, 5_000)
    await client.subscribe(name, headers=f"activemq.prefetchSize:{count}\n", ack="client")
    await client.messages_reach(count, 20)
    ack = b"BEGIN\ntransaction:u\n\n\0ACK\ntransaction:u\nid:" + client.last_ack + b"\n\n\0"
    await client.request(ack + b"ABORT\ntransaction:u\nreceipt:r\n\n\0", 50)
    return f"{client.messages:,} received; {common(client.errors)}"


@attack("durable-removal")
async def durable_removal(target: Target) -> str:
    """5 durable subscriptions with 50,000 retained messages each, all removed at once."""
    await target.begin()
    client, producer = await target.openwire(), await target.openwire()
    destination = topic("HOSTILE.RETAINED")
    infos = [client.consumer(destination, prefetch=1, subscription_name=f"s{n}") for n in range(5)]
    failures = await client.requests(infos)
    failures += await client.requests(wire.RemoveInfo(object_id=info.consumer_id) for info in infos)
    await producer.write(producer.messages_to(destination, target.sized(50_000, 5_000), text="x", persistent=True))
    await producer.settle(60)
    failures += await client.requests(
        wire.RemoveSubscriptionInfo(
            connection_id=wire.ConnectionId(client.id), subscription_name=f"s{n}", client_id=client.id
        )
        for n in range(5)
    )
    return common(failures) or "removed"


@attack("temporary-deep")
async def temporary_deep(target: Target) -> str:
    """A temporary queue with 100,000 messages, whose connection closes without a word."""
    await target.begin()
    client, other = await target.openwire(), await target.openwire()
    name = _QUEUE._replace(type=type(_QUEUE.type).TEMP_QUEUE, name=f"{client.id}:1")
    await client.request(
        wire.DestinationInfo(connection_id=wire.ConnectionId(client.id), destination=name, operation_type=0)
    )
    await client.write(client.messages_to(name, target.sized(100_000, 5_000), text="x"))
    await client.settle(60)
    await client.close()
    await other.settle(30)
    return "deleted"
