"""MQTT: sessions, subscriptions, packet identifiers, wills and retained messages, very many of each or never ending."""

import asyncio

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.mqtt_client import PINGREQ, connect, mqtt, packet, publish, text
from benchmarks.hostile.target import Target, common

_CHUNK = 1 << 20
_SECONDS = 4
_EXPIRES_LATE = b"\x11\0\0\x0e\x10"
"""Session expiry interval: an hour."""


async def _flood(target: Target, frame: bytes) -> str:
    data = frame * max(1, _CHUNK // len(frame))
    await target.begin()
    client = await mqtt(target, "flood")
    count = await client.flood(data, target.sized(_SECONDS, 1))
    target.depth.reach(count, 1, "floods")
    return f"{count * len(data) // len(frame):,} packets; {common(client.errors)}"


@attack("mqtt-flood-ping", quick=True, mqtt=True)
async def flood_ping(target: Target) -> str:
    """PINGREQ, for 4 s; the answers are read."""
    return await _flood(target, PINGREQ)


@attack("mqtt-flood-publish", quick=True, mqtt=True)
async def flood_publish(target: Target) -> str:
    """Small messages with QoS 0 to a topic without subscribers, for 4 s."""
    return await _flood(target, publish("flood/topic", b"x" * 100))


@attack("mqtt-flood-qos-2", mqtt=True, seconds_max=120.0)
async def flood_qos_2(target: Target) -> str:
    """Messages with QoS 2 under 65,535 packet identifiers that are never released, by 8 sessions."""
    count = target.sized(65_535, 3_000)
    data = b"".join([publish("flood/twice", b"x", qos=2, packet_id=number) for number in range(1, count + 1)])
    await target.begin()
    clients = [await mqtt(target, f"twice-{number}", clean=False) for number in range(target.sized(8, 3))]
    for client in clients:
        await client.write(data)
        await client.until(lambda client=client: client.answers >= count, 30)  # type: ignore[misc]
        target.depth.reach(client.answers, count, "packet identifiers unreleased")
    return f"{sum(client.answers for client in clients):,} answered"


@attack("mqtt-take-over", quick=True, mqtt=True, refused="closed without a reason")
async def take_over(target: Target) -> str:
    """One client id connects again and again, with a session and a will of 60 KB, for 4 s."""
    await target.begin()
    watcher = await mqtt(target, "watcher")
    await watcher.subscribe(("will/#", 0))
    until = asyncio.get_running_loop().time() + target.sized(_SECONDS, 1)
    count = 0
    while asyncio.get_running_loop().time() < until:
        await mqtt(target, "same", clean=False, will=("will/same", b"x" * 60_000))
        count += 1
    await watcher.messages_reach(count - 1, 20)
    return f"{count:,} connections"


@attack("mqtt-filters", quick=True, mqtt=True, memory_limit_mb=512, refused="reason 0x80")
async def filters(target: Target) -> str:
    """A session with 10,000 filters of many wildcards, to which 1,000 messages of 100 levels are published."""
    count, batch = target.sized(10_000, 1_000), 500
    await target.begin()
    client, producer = await mqtt(target, "filters"), await mqtt(target, "producer")
    for first in range(0, count, batch):
        await client.subscribe(*((f"{'+/' * (number % 90)}{number}/#", 0) for number in range(first, first + batch)))
    data = publish("/".join("abcdefghij" * 10), b"x") * target.sized(1_000, 100)
    await producer.write(data)
    await producer.settle()
    target.depth.reach(count, count, "filters")
    return common(client.errors + producer.errors) or "accepted"


@attack("mqtt-sessions", mqtt=True, memory_limit_mb=512)
async def sessions(target: Target) -> str:
    """5,000 sessions are left, each with a durable subscription to one topic, a delayed will, and 20 messages."""
    count = target.sized(5_000, 200)
    await target.begin()
    for number in range(count):
        client = await mqtt(
            target, f"session-{number}", level=5, properties=_EXPIRES_LATE, will=("will", b"w" * 1000),
            will_properties=b"\x18\0\0\x0e\x10",
        )  # fmt: skip
        await client.subscribe(("sessions/all", 1))
        await client.close()
    producer = await mqtt(target, "producer")
    for _ in range(20):
        await producer.publish("sessions/all", b"x" * 100)
    target.depth.reach(count, count, "sessions")
    return common(producer.errors) or "accepted"


@attack("mqtt-retained", mqtt=True, memory_limit_mb=256)
async def retained(target: Target) -> str:
    """5,000 topics with a retained message of 5 KB, and a subscriber of all that comes 10 times."""
    count = target.sized(5_000, 1_000)
    data = [publish(f"retained/{number}", b"x" * 5_000, retain=True) for number in range(count)]
    await target.begin()
    producer = await mqtt(target, "producer")
    await producer.write(b"".join(data))
    await producer.settle()
    came = 0
    for number in range(10):
        client = await mqtt(target, f"reader-{number}")
        await client.subscribe(("retained/#", 0))
        await client.messages_reach(count, 20)
        came += client.messages
        await client.close()
    return f"{came:,} came; {common(producer.errors)}"


@attack("mqtt-unread", quick=True, mqtt=True)
async def unread(target: Target) -> str:
    """20 subscribers with QoS 0 and 1 that read nothing, and 200 MB to them."""
    await target.begin()
    readers = [await mqtt(target, f"slow-{number}") for number in range(20)]
    for number, reader in enumerate(readers):
        await reader.subscribe(("unread", number % 2))
        reader.stop_reading()
    producer = await mqtt(target, "producer")
    sent = 0
    for number in range(target.sized(200, 40)):
        await producer.write(publish("unread", b"x" * 10_000, qos=number % 2) * 100)
        sent += 1
        try:
            await producer.settle(3)
        except TimeoutError:
            break
    return f"{sent} MB sent; {common(producer.errors)}"


@attack("mqtt-unacknowledged", mqtt=True)
async def unacknowledged(target: Target) -> str:
    """100 subscribers with QoS 1 that read, and acknowledge nothing, and 20,000 messages."""
    await target.begin()
    readers = [await mqtt(target, f"silent-{number}", clean=number % 2 == 0) for number in range(100)]
    for reader in readers:
        await reader.subscribe(("unacknowledged", 1))
    producer = await mqtt(target, "producer")
    data = publish("unacknowledged", b"x" * 200, qos=1) * 1_000
    for _ in range(target.sized(20, 2)):
        await producer.write(data)
        await producer.settle()
    for reader in readers:
        await reader.messages_reach(100, 10)
    return f"{sum(reader.messages for reader in readers):,} held"


@attack("mqtt-user-properties", mqtt=True)
async def user_properties(target: Target) -> str:
    """Messages of MQTT 5 with 1,000 user properties each, to 50 subscribers of both versions."""
    pairs = b"".join([b"\x26" + text(b"name-%d" % number) + text(b"v" * 50) for number in range(1_000)])
    await target.begin()
    readers = [await mqtt(target, f"reader-{number}", level=4 + number % 2) for number in range(50)]
    for reader in readers:
        await reader.subscribe(("properties", 0))
    producer = await mqtt(target, "producer", level=5)
    count = target.sized(200, 20)
    for _ in range(count):
        await producer.write(publish("properties", b"x", level=5, properties=pairs))
    await producer.settle()
    for reader in readers:
        await reader.messages_reach(count, 30)
    return f"{sum(reader.messages for reader in readers):,} received"


@attack("mqtt-wills", mqtt=True, extra=("--connections-max", "3000"))
async def wills(target: Target) -> str:
    """2,000 connections with a will of 10 KB for one topic, which all are lost at the same moment."""
    count = target.sized(2_000, 200)
    await target.begin()
    watcher = await mqtt(target, "watcher")
    await watcher.subscribe(("wills", 0))
    clients = [await mqtt(target, f"will-{number}", will=("wills", b"x" * 10_000)) for number in range(count)]
    for client in clients:
        await client.close()
    await watcher.messages_reach(count, 30)
    return f"{watcher.messages:,} wills"


@attack("mqtt-shared", mqtt=True)
async def shared(target: Target) -> str:
    """A shared subscription of 500 members that acknowledge nothing, 20,000 messages, and all members leave at once."""
    count = target.sized(500, 50)
    await target.begin()
    members = [await mqtt(target, f"member-{number}", level=5) for number in range(count)]
    for member in members:
        await member.subscribe(("$share/g/shared", 1))
    producer = await mqtt(target, "producer")
    for _ in range(target.sized(20, 2)):
        await producer.write(publish("shared", b"x" * 100, qos=1) * 1_000)
        await producer.settle()
    for member in members[:5]:
        await member.messages_reach(1, 10)
    held = sum(member.messages for member in members)
    for member in members[1:]:
        await member.close()
    await producer.settle()
    return f"{held:,} held by {count} members"


@attack("mqtt-malformed", quick=True, mqtt=True, refused="closed without a reason|reason 0x81|no CONNACK")
async def malformed(target: Target) -> str:
    """3,000 connections, each with a packet that no MQTT client sends, before or after CONNECT."""
    wrong = [
        b"\xf0\xff\xff\xff\xff\xff", b"\x00\x00", packet(0x10, text(b"MQTT") + b"\x09"), b"\x10\x02\x00\x04",
        b"\x82\x00", packet(0x36, text(b"t")), packet(0x30, text(b"a/#") + b"x"), b"\x30\xff\xff\xff\x7f",
    ]  # fmt: skip
    await target.begin()
    count = target.sized(3_000, 200)
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.mqtt_port)
        before = connect(f"bad-{number}", level=4 + number % 2) if number % 3 else b""
        writer.write(before + wrong[number % len(wrong)])
        if number % len(wrong) != 7:  # of a packet of 256 MB the broker waits for the rest
            await asyncio.wait_for(_end(reader), 20)
            target.depth.refusals["closed without a reason"] += 1
        writer.transport.abort()
    return f"{count:,} connections"


async def _end(reader: asyncio.StreamReader) -> None:
    """Read to the end, or to a reset."""
    try:
        await reader.read()
    except ConnectionError:
        return
