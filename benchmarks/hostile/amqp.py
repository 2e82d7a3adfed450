"""AMQP clients: what they leave unsettled, unfinished or unread; their links, sessions and transactions; floods."""

import asyncio
import itertools
from typing import Final

from benchmarks.hostile.attacks import attack
from benchmarks.hostile.target import AttackClient, Depth, Refused, Target, common, connection
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    AmqpFrame,
    AmqpFrameDecoder,
    AmqpLimits,
    encode_disposition,
    encode_flow,
    encode_frame,
    encode_transfer,
)
from pybroker.broker.domain.amqp.performatives import (
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpCoordinator,
    AmqpDeclare,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpErrorCondition,
    AmqpFlow,
    AmqpModified,
    AmqpOpen,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    SaslInit,
    SaslOutcome,
)
from pybroker.broker.domain.amqp.sections import AmqpBodyKind, AmqpMessage, AmqpMessageHeader, encode_message
from pybroker.broker.domain.amqp.values import AmqpDescribed, AmqpValue, Symbol, UnsignedLong

_BIG: Final = (1 << 31) - 1
_QUEUE: Final = "queue://HOSTILE.AMQP"
_SECONDS: Final = 4
_EMPTY: Final = b"\0\0\0\x08\2\0\0\0"
_BEGIN: Final = AmqpBegin(next_outgoing_id=0, incoming_window=_BIG, outgoing_window=_BIG)
_serial = itertools.count(1)


class Amqp(AttackClient):
    """An AMQP client with sessions on the channels that it begins; counts messages and settled deliveries."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, depth: Depth) -> None:
        super().__init__(reader, writer, depth)
        self.is_authenticated = False
        self.settled = 0
        self.attached = 0
        self.begun = 0
        self.credit = 0

    async def open(self) -> None:
        """Log in, and begin a session on channel 0."""
        self.start_reading()
        await self.write(SASL_HEADER + encode_frame(0, SaslInit(mechanism=Symbol("ANONYMOUS"))))
        if not await self.until(lambda: self.is_authenticated, 30.0):
            raise Refused("no outcome of SASL")
        opened = AmqpOpen(container_id=f"hostile-{id(self)}-{next(_serial)}")
        await self.write(AMQP_HEADER + encode_frame(0, opened) + encode_frame(0, _BEGIN))
        if not await self.until(lambda: self.begun > 0, 30.0):
            raise Refused(next(iter(self.errors), "closed before begin"))

    async def attach(self, handle: int = 0, *, channel: int = 0, sends: bool = True, address: str = _QUEUE) -> None:
        """Attach a link, and wait for the answer."""
        wanted = self.attached + 1
        await self.write(encode_frame(channel, attach(handle, sends=sends, address=address)))
        if not await self.until(lambda: self.attached >= wanted, 30.0):
            raise Refused(next(iter(self.errors), "no attach"))

    async def _read(self) -> None:
        decoder = AmqpFrameDecoder(AmqpLimits())
        while chunk := await self._reader.read(1 << 18):
            for each in decoder.feed(chunk):
                if isinstance(each, AmqpFrame):
                    self._received(each)
            self._changed.set()

    def _received(self, frame: AmqpFrame) -> None:
        match frame.performative:
            case AmqpTransfer(more=more):
                self.messages += not more
            case AmqpDisposition(first=int(first), last=last):
                self.settled += (first if last is None else last) - first + 1
            case SaslOutcome():
                self.is_authenticated = True
            case AmqpAttach():
                self.attached += 1
            case AmqpBegin():
                self.begun += 1
            case AmqpFlow(link_credit=int(credit)):
                self.credit = credit
            case AmqpClose(error=AmqpErrorCondition() as error) | AmqpDetach(error=AmqpErrorCondition() as error):
                self.refused(f"{error.condition}: {error.description}"[:110])
            case AmqpEnd(error=AmqpErrorCondition() as error):
                self.refused(f"{error.condition}: {error.description}"[:110])
            case _:
                pass


def attach(handle: int, *, sends: bool, address: str | None) -> AmqpAttach:
    """Return the attach of a link; one that sends without an address is a coordinator's."""
    target = AmqpCoordinator(capabilities=None) if address is None else AmqpTarget(address=address if sends else None)
    return AmqpAttach(
        name=f"link-{handle}-{next(_serial)}",
        handle=handle,
        role=not sends,
        source=AmqpSource(address=None if sends else address),
        target=target,
        initial_delivery_count=0 if sends else None,
    )


def text(body: AmqpValue, *, durable: bool = False, properties: dict[AmqpValue, AmqpValue] | None = None) -> bytes:
    """Return the payload of a message whose body is a value."""
    header = AmqpMessageHeader(durable=durable)
    kind = AmqpBodyKind.VALUE
    return encode_message(
        AmqpMessage(header=header, application_properties=properties, body_kind=kind, body=body)
    )  # fmt: skip


async def _client(target: Target, *, reads: bool = True) -> Amqp:
    reader, writer = await connection(target.amqp_port, reads=reads)
    client = Amqp(reader, writer, target.depth)
    await client.open()
    return client


async def _sent(client: Amqp, count: int, payload: bytes, handle: int = 0, start: int = 0) -> None:
    """Send messages as far as the credit of 1,000 goes, and wait for the answers."""
    for base in range(start, start + count, 300):
        numbers = range(base, min(base + 300, start + count))
        wanted = client.settled + len(numbers)
        await client.write(b"".join(encode_transfer(0, handle, n, b"%d" % n, payload) for n in numbers))
        if not await client.until(lambda wanted=wanted: client.settled >= wanted, 60.0):  # type: ignore[misc]
            raise Refused(next(iter(client.errors), "not settled"))


async def _flood(target: Target, client: Amqp, data: bytes, frames: int) -> str:
    data, copies = data * max(1, (1 << 18) // len(data)), max(1, (1 << 18) // len(data))
    count = await client.flood(data, target.sized(_SECONDS, 1))
    return f"{count * frames * copies:,} frames; {common(client.errors)}"


# ---------------------------------------------------------------- floods


@attack("amqp-empty-frames", amqp=True)
async def empty_frames(target: Target) -> str:
    """Empty frames, for 4 s."""
    await target.begin()
    return await _flood(target, await _client(target), _EMPTY, 1)


@attack("amqp-flows-answered", amqp=True, quick=True)
async def flows_answered(target: Target) -> str:
    """Flows of a link that ask for an answer, for 4 s; the answers are read."""
    await target.begin()
    client = await _client(target)
    await client.attach(sends=False)
    flow = AmqpFlow(
        next_incoming_id=0, incoming_window=_BIG, next_outgoing_id=0, outgoing_window=_BIG,
        handle=0, delivery_count=0, link_credit=10, echo=True,
    )  # fmt: skip
    return await _flood(target, client, encode_frame(0, flow), 1)


@attack("amqp-flows-unread", amqp=True)
async def flows_unread(target: Target) -> str:
    """Flows that ask for an answer, for 4 s, by a client that reads none."""
    await target.begin()
    client = await _client(target, reads=False)
    await client.attach(sends=False)
    client.stop_reading()
    flow = AmqpFlow(next_incoming_id=0, incoming_window=_BIG, next_outgoing_id=0, outgoing_window=_BIG, echo=True)
    return await _flood(target, client, encode_frame(0, flow), 1)


@attack("amqp-attaches", amqp=True)
async def attaches(target: Target) -> str:
    """Attach and detach of a consumer of another queue each time, in the range of 100, for 4 s."""
    await target.begin()
    client = await _client(target)
    frames = b"".join(
        encode_frame(0, attach(0, sends=False, address=f"queue://HOSTILE.AMQP.{number}"))
        + encode_frame(0, AmqpDetach(handle=0, closed=True))
        for number in range(100)
    )
    return await _flood(target, client, frames, 200)


@attack("amqp-sessions", amqp=True)
async def sessions(target: Target) -> str:
    """Begin and end of a session, for 4 s."""
    await target.begin()
    client = await _client(target)
    return await _flood(target, client, encode_frame(1, _BEGIN) + encode_frame(1, AmqpEnd()), 2)


@attack("amqp-sends", amqp=True, quick=True)
async def sends(target: Target) -> str:
    """Presettled messages with 100 properties each, as fast as credit permits, for 4 s."""
    await target.begin()
    client = await _client(target)
    await client.attach()
    properties: dict[AmqpValue, AmqpValue] = {f"p{number}": "v" * 20 for number in range(100)}
    payload = text("x", properties=properties)
    number, until = 0, asyncio.get_running_loop().time() + target.sized(_SECONDS, 1)
    while asyncio.get_running_loop().time() < until and not client.closed.is_set():
        count, client.credit = client.credit, 0
        numbers = range(number, number + count)
        await client.write(b"".join(encode_transfer(0, 0, n, b"%d" % n, payload, settled=True) for n in numbers))
        number += count
        await client.until(lambda: client.credit > 0, 5.0)
    return f"{number:,} messages; {common(client.errors)}"


# ---------------------------------------------------------------- what is unsettled or unfinished


@attack("amqp-unsettled", amqp=True, quick=True, seconds_max=120.0)
async def unsettled(target: Target) -> str:
    """Credit of 2,147,483,647 on a queue of 100,000 messages, none of which is settled; then the link is closed."""
    count = target.sized(100_000, 3_000)
    await target.begin()
    producer, client = await _client(target), await _client(target)
    await producer.attach()
    await _sent(producer, count, text("x" * 100, durable=True))
    await client.attach(sends=False)
    await client.write(encode_flow(0, 0, _BIG, 0, _BIG, 0, 0, _BIG))
    await client.until(lambda: client.messages >= count, 40.0)
    received = client.messages
    await client.write(encode_frame(0, AmqpDetach(handle=0, closed=True)))
    return f"{received:,} received; {common(client.errors)}"


@attack("amqp-unfinished", amqp=True, quick=True, refused="resource-limit|message-size|closed")
async def unfinished(target: Target) -> str:
    """Messages of many frames on 200 links, none of which is finished, as much as the broker takes."""
    await target.begin()
    client = await _client(target)
    links = target.sized(200, 20)
    part = bytes(100_000)
    for handle in range(links):
        await client.attach(handle)
    sent = 0
    for handle, _ in itertools.product(range(links), range(20)):
        if client.errors or client.closed.is_set():
            break
        first = sent // 20 == handle and sent % 20 == 0
        number = handle if first else None
        tag = b"%d" % handle if first else None
        await client.write(encode_transfer(0, handle, number, tag, part, more=True))
        sent += 1
    await client.until(lambda: bool(client.errors), 5.0)
    return f"{sent * len(part) / 1e6:,.0f} MB; {common(client.errors)}"


@attack("amqp-half-open", amqp=True, extra=("--connections-max", "3000"))
async def half_open(target: Target) -> str:
    """1,400 connections that send the first header, and nothing more."""
    await target.begin()
    clients = []
    for _ in range(target.sized(1_400, 300)):
        reader, writer = await connection(target.amqp_port, reads=True)
        writer.write(SASL_HEADER)
        clients.append((reader, writer))
    await asyncio.sleep(2)
    return f"{len(clients):,} connections"


@attack("amqp-links-many", amqp=True, refused="amqp:resource-limit-exceeded: The consumer cannot be created")
async def links_many(target: Target) -> str:
    """10 connections with 10 sessions each and 100 consumers in each of them, which all end at once."""
    each = target.sized(10, 2)
    await target.begin()
    clients = [await _client(target) for _ in range(each)]
    for client in clients:
        for channel in range(1, 11):
            frames = [encode_frame(channel, _BEGIN)]
            for handle in range(100):
                frames.append(encode_frame(channel, attach(handle, sends=False, address=_QUEUE)))
                frames.append(encode_flow(channel, 0, _BIG, 0, _BIG, handle, 0, 10))
            await client.write(b"".join(frames))
        await client.until(lambda client=client: client.attached >= 1000, 30.0)  # type: ignore[misc]
        target.depth.reach(client.attached, 1000, "answers to attach")
    producer = await _client(target)
    await producer.attach()
    await _sent(producer, 5_000, text("x"))
    for client in clients:
        await client.close()
    await asyncio.sleep(2)
    return common(producer.errors) or "accepted"


@attack("amqp-modified", amqp=True, quick=True)
async def modified(target: Target) -> str:
    """1,000 messages that come again and again, each given back as undeliverable elsewhere, for 4 s."""
    await target.begin()
    producer, client = await _client(target), await _client(target)
    await producer.attach()
    await _sent(producer, 1_000, text("x" * 1000, durable=True))
    await client.attach(sends=False)
    state = AmqpModified(delivery_failed=False)
    until = asyncio.get_running_loop().time() + target.sized(_SECONDS, 1)
    given = 0
    while asyncio.get_running_loop().time() < until and not client.closed.is_set():
        await client.write(encode_flow(0, 0, _BIG, 0, _BIG, 0, given, 1_000))
        await client.until(lambda given=given: client.messages > given, 5.0)  # type: ignore[misc]
        last = client.messages
        await client.write(encode_disposition(0, given, last - 1, state, is_receiver=True, settled=True))
        given = last
    return f"{given:,} given back; {common(client.errors)}"


# ---------------------------------------------------------------- transactions and values


@attack("amqp-transactions", amqp=True)
async def transactions(target: Target) -> str:
    """10,000 transactions that are declared and never discharged, of which the broker rejects most."""
    count = target.sized(10_000, 1_000)
    await target.begin()
    client = await _client(target)
    await client.write(encode_frame(0, attach(0, sends=True, address=None)))
    await client.until(lambda: client.credit > 0, 10.0)
    declare = text(AmqpDescribed(UnsignedLong(AmqpDeclare.DESCRIPTOR), []))
    await _sent(client, count, declare)
    return f"{client.settled:,} answers; {common(client.errors)}"


@attack("amqp-nested", amqp=True, quick=True)
async def nested(target: Target) -> str:
    """1,000 messages whose body has lists 30 deep, each of 10 values, and 5,000 properties."""
    await target.begin()
    client = await _client(target)
    await client.attach()
    body: AmqpValue = ["x"] * 10
    for _ in range(28):
        body = [*["x"] * 9, body]
    properties: dict[AmqpValue, AmqpValue] = {f"p{number}": number for number in range(5_000)}
    await _sent(client, target.sized(1_000, 30), text(body, properties=properties))
    target.depth.reach(client.settled, target.sized(1_000, 30), "messages")
    return f"{client.settled:,} settled; {common(client.errors)}"
