"""Identifiers of others: producers, message ids, and connections that never say who they are."""

import asyncio
import time

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import FORMAT, OpenWire, Refused, Target, common, message, queue
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer

_QUEUE = queue("HOSTILE.IDENTITY")


async def _answer(client: OpenWire, command: object) -> str:
    try:
        await client.request(command, 5)
    except (Refused, ConnectionError, TimeoutError) as error:
        return f"refused: {error}"
    return "accepted"


async def _genuine_messages(target: Target, wanted: int) -> int:
    """Consume what the queue holds, for three seconds at most, and return how many messages are genuine."""
    consumer = await target.openwire()
    genuine = 0

    def count(frame: bytes) -> None:
        nonlocal genuine
        genuine += b"genuine" in frame

    consumer.dispatches = count
    await consumer.consume(_QUEUE)
    await consumer.until(lambda: genuine >= wanted, 3)
    return genuine


@attack("producer-of-another", quick=True, refused="IllegalStateException")
async def producer_of_another(target: Target) -> str:
    """A client sends with the producer id of another connection, and removes that connection's producer."""
    await target.begin()
    owner, thief = await target.openwire(), await target.openwire()
    sent = await _answer(thief, message(_QUEUE, producer=owner.producer, sequence=1, text="x", persistent=True))
    added = await _answer(thief, wire.ProducerInfo(producer_id=owner.producer))
    stolen = message(_QUEUE, producer=owner.producer, sequence=3, text="x", persistent=True)
    stolen.producer_id = thief.producer
    named = await _answer(thief, stolen)
    await _answer(thief, wire.RemoveInfo(object_id=wire.ConnectionId(owner.id)))
    if await _answer(owner, message(_QUEUE, producer=owner.producer, sequence=2, text="x")) != "accepted":
        target.harm.append("the owner of the producer id cannot send any more")
    if sent == "accepted":
        target.harm.append("a message under another connection's producer id was accepted")
    return f"send {sent}; ProducerInfo {added}; its message id {named}"


@attack("ids-used-first", quick=True, refused="IllegalStateException")
async def ids_used_first(target: Target) -> str:
    """A client uses the message ids that another will use, first; that owner's acknowledged messages must arrive."""
    await target.begin()
    owner_id = f"ID:victim-{time.monotonic_ns()}"
    owner_producer = wire.ProducerId(owner_id, 1, 1)
    thief = await target.openwire()
    for number in range(1, 11):
        made = message(_QUEUE, producer=owner_producer, sequence=number, text="forged", persistent=True)
        await thief.write(FORMAT.encode_frame(made))
        made.producer_id = thief.producer  # the id of the message alone is another's
        await thief.write(FORMAT.encode_frame(made))
    await thief.until(lambda: False, 0.5)
    owner = await target.openwire(connects=False)
    owner.id, owner.producer = owner_id, owner_producer
    await owner.connect()
    for number in range(1, 11):
        await _answer(owner, message(_QUEUE, producer=owner_producer, sequence=number, text="genuine", persistent=True))
    genuine = await _genuine_messages(target, 10)
    if genuine < 10:
        target.harm.append(f"{10 - genuine} acknowledged messages of the owner vanished")
    return f"{genuine} of 10 genuine; forged: {common(thief.errors) or 'accepted'}"


@attack("stomp-ids-used-first", quick=True, refused="IllegalStateException")
async def stomp_ids_used_first(target: Target) -> str:
    """A client uses STOMP's message ids before the broker gives them out: the next of each session it has seen."""
    await target.begin()
    victim, reader = await target.stomp(), await target.openwire()
    seen: list[wire.OpenWireMessageId] = []

    def remember(frame: bytes) -> None:
        dispatch: object = FORMAT.decode(frame)
        assert isinstance(dispatch, wire.MessageDispatch)
        if dispatch.message is not None and dispatch.message.message_id is not None:
            seen.append(dispatch.message.message_id)

    reader.dispatches = remember
    await reader.consume(queue("HOSTILE.SEEN"))
    await victim.request("SEND\ndestination:/queue/HOSTILE.SEEN\npersistent:true\nreceipt:r\n\nx\0")
    await reader.messages_reach(1, 5)
    (known,) = seen
    assert known.producer_id is not None
    next_connection = _incremented(known.producer_id.connection_id or "")
    for producer in (known.producer_id, known.producer_id._replace(connection_id=next_connection)):
        for number in range(1, 30):
            made = message(_QUEUE, producer=producer, sequence=number, text="forged", persistent=True)
            await reader.write(FORMAT.encode_frame(made))
            made.producer_id = reader.producer
            await reader.write(FORMAT.encode_frame(made))
    await reader.until(lambda: False, 0.5)
    other = await target.stomp()
    for client in (victim, other):
        for _ in range(10):
            await client.request(f"SEND\ndestination:/queue/{_QUEUE.name}\npersistent:true\nreceipt:r\n\ngenuine\0")
    genuine = await _genuine_messages(target, 20)
    if genuine < 20:
        target.harm.append(f"{20 - genuine} acknowledged STOMP messages vanished")
    return f"{genuine} of 20 genuine; forged: {common(reader.errors) or 'accepted'}"


def _incremented(text: str) -> str:
    """Return a connection id whose last number is one higher."""
    head = text.rstrip("0123456789")
    return head + str(int(text[len(head) :] or 0) + 1)


@attack("connections-silent", extra=("--connections-max", "100", "--connect-timeout", "1s"), fills=True)
async def connections_silent(target: Target) -> str:
    """90 connections, of 100 allowed, that send WireFormatInfo and nothing else; after 12 s 20 clients."""
    await target.begin()
    silent = []
    for _ in range(90):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.openwire_port)
        writer.write(encode_offer(Offer()))
        silent.append((reader, writer))
    await asyncio.sleep(12)  # ten times `connect_timeout` is what the broker grants, see docs/differences.md
    opened = 0
    for _ in range(20):
        try:
            await target.openwire()
            opened += 1
        except (OSError, TimeoutError, Refused):
            break
    if opened < 20:
        target.harm.append("silent connections keep others out")
    return f"{opened} of 20 clients connected"


@attack("client-id-taken", quick=True, refused="InvalidClientIDException")
async def client_id_taken(target: Target) -> str:
    """1,000 connections with the client id of another, which must be refused and leave it alone."""
    await target.begin()
    owner = await target.openwire()
    refused = 0
    for _ in range(target.sized(1000, 100)):
        client = await target.openwire(connects=False)
        info = wire.ConnectionInfo(connection_id=wire.ConnectionId(client.id), client_id=owner.id)
        refused += (await _answer(client, info)) != "accepted"
        await client.close()
    if await _answer(owner, wire.FlushCommand()) != "accepted":
        target.harm.append("the owner of the client id lost its connection")
    return f"{refused} refused"


@attack("connection-id-taken", refused="closed")
async def connection_id_taken(target: Target) -> str:
    """1,000 connections with the connection id of another: as in ActiveMQ, each replaces the former one."""
    await target.begin()
    owner = await target.openwire()
    accepted = 0
    for _ in range(target.sized(1000, 100)):
        client = await target.openwire(connects=False)
        info = wire.ConnectionInfo(connection_id=wire.ConnectionId(owner.id), client_id=owner.id)
        accepted += (await _answer(client, info)) == "accepted"
    kept = await _answer(owner, wire.FlushCommand())
    return f"{accepted} accepted; the owner's connection: {kept}"
