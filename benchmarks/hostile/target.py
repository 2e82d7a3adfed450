"""The attacker's view of a broker: its ports, and clients that write prepared frames and count what comes back.

A client decodes only responses. It is no JMS client: it sends what it is given, in any order, at any rate.
"""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

__all__ = ["OpenWire", "Refused", "Stomp", "Target", "message", "properties", "queue", "topic", "xid"]

FORMAT: Final = WireFormat()
"""Version 12, loose, uncached: what a client gets that offers neither of these."""

_RESPONSES: Final = range(30, 35)
_DISPATCH: Final = 21
_CONNECTION_ERROR: Final = 16
_CHUNK_BYTES: Final = 1 << 20
_REASON_CHARS: Final = 110
CLOSED: Final = "closed without a reason"
"""The reason of a connection that the broker has closed, without an exception or ERROR before."""
UNANSWERED: Final = "no answer"
"""The reason of a command that the broker has not answered in time, such as a send that waits for memory."""

_serial = itertools.count(1)


class Refused(Exception):
    """The broker answered a command with an exception, or a frame with ERROR."""


class Depth:
    """How far an attack came: what it reached of what it was to reach, and what the broker refused.

    Attributes:
        refusals: number of commands, frames and connections that were refused or not answered, by reason.
        broken_off: why the attack ended early.
    """

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()
        self.broken_off: list[str] = []
        self._counts: dict[str, tuple[int, int]] = {}

    def reach(self, count: int, wanted: int, what: str) -> None:
        """Record that it came to a count, of those wanted; several of the same kind are added."""
        before, before_wanted = self._counts.get(what, (0, 0))
        self._counts[what] = before + min(count, wanted), before_wanted + wanted

    def reached(self) -> list[str]:
        """Return what was reached, such as `50,000 of 50,000 queues`."""
        return [self._text(what) for what, (count, wanted) in self._counts.items() if count >= wanted]

    def missed(self) -> list[str]:
        """Return what was not reached, in the same form, and why the attack ended early."""
        return self.broken_off + [self._text(what) for what, (count, wanted) in self._counts.items() if count < wanted]

    def _text(self, what: str) -> str:
        count, wanted = self._counts[what]
        return f"{count:,} of {wanted:,} {what}"


class Target:
    """A broker under attack.

    Attributes:
        openwire_port, stomp_port: on 127.0.0.1.
        tls_port, mqtt_port, ws_port, amqp_port: the same; 0 without such a listener.
        quick: the short form: fewer and smaller.
        harm: what the attack found besides waits and memory; each line fails it.
        depth: how far the attack came.
    """

    def __init__(
        self,
        *,
        openwire_port: int,
        stomp_port: int,
        tls_port: int = 0,
        mqtt_port: int = 0,
        ws_port: int = 0,
        amqp_port: int = 0,
        quick: bool,
    ) -> None:
        self.openwire_port = openwire_port
        self.stomp_port = stomp_port
        self.tls_port = tls_port
        self.mqtt_port = mqtt_port
        self.ws_port = ws_port
        self.amqp_port = amqp_port
        self.quick = quick
        self.harm: list[str] = []
        self.depth = Depth()
        self.began_at = 0.0

    def sized(self, full: int, quick: int) -> int:
        """Return the first number, or in the short form the second."""
        return quick if self.quick else full

    async def begin(self) -> None:
        """Report that everything is prepared, and wait for the order to begin."""
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        self.began_at = time.monotonic()

    async def openwire(self, *, reads: bool = True, connects: bool = True, **fields: Any) -> "OpenWire":
        """Return an OpenWire client, logged in.

        Args:
            reads: it reads what the broker sends; else its socket fills.
            connects: it sends ConnectionInfo, with these fields, and waits for the answer.
            fields: of ConnectionInfo.
        """
        reader, writer = await connection(self.openwire_port, reads=reads)
        client = OpenWire(reader, writer, self.depth, reads=reads or connects)
        await client.write(encode_offer(Offer(frame_bytes_max=1 << 40)))
        if connects:
            await client.connect(**fields)
            if not reads:
                client.stop_reading()
        return client

    async def stomp(self, *, reads: bool = True, headers: str = "") -> "Stomp":
        """Return a STOMP 1.2 client, connected."""
        reader, writer = await connection(self.stomp_port, reads=reads)
        client = Stomp(reader, writer, self.depth)
        await client.connect(headers)
        if not reads:
            client.stop_reading()
        return client


async def connection(port: int, *, reads: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to a port, with a small buffer if the client is not going to read."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not reads:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=1 << 16)


class AttackClient:
    """Writes with backpressure; reads in a task of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, depth: Depth) -> None:
        self._reader = reader
        self._writer = writer
        self._depth = depth
        self.closed = asyncio.Event()
        self.messages = 0
        self.errors: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start_reading(self) -> None:
        """Read what comes from now on."""
        self._task = asyncio.create_task(self._read_until_end())

    def stop_reading(self) -> None:
        """Read no more, so that the broker cannot write."""
        assert self._task is not None
        self._task.cancel()
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def write(self, data: bytes) -> None:
        """Write, as fast as the broker reads. Raises `OSError` when the connection is closed."""
        view = memoryview(data)
        for offset in range(0, len(view), _CHUNK_BYTES):
            self._writer.write(view[offset : offset + _CHUNK_BYTES])
            await self._writer.drain()

    async def flood(self, data: bytes, seconds: float) -> int:
        """Write the same again and again for some seconds, or until the broker closes; return how many times."""
        until, count = time.monotonic() + seconds, 0
        try:
            async with asyncio.timeout(seconds):
                while time.monotonic() < until and not self.closed.is_set():
                    self._writer.write(data)
                    await self._writer.drain()
                    count += 1
        except (TimeoutError, OSError):
            pass  # the broker reads no more, which is its right; or it has closed
        return count

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition on what has come holds, the connection is closed, or time is up."""
        try:
            async with asyncio.timeout(seconds):
                while not condition() and not self.closed.is_set():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return condition()

    async def messages_reach(self, count: int, seconds: float) -> bool:
        """Wait for that many messages, which the attack is to receive; return whether they came."""
        came = await self.until(lambda: self.messages >= count, seconds)
        self._depth.reach(self.messages, count, "messages received")
        return came

    async def close(self) -> None:
        """Close without a word."""
        self._writer.transport.abort()
        self.closed.set()
        if self._task is not None:
            self._task.cancel()

    def refused(self, reason: str) -> None:
        """Count a refusal."""
        self.errors[reason] += 1
        self._depth.refusals[reason] += 1

    async def _read_until_end(self) -> None:
        is_open = False
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._read()
            if not self.errors:
                self.refused(CLOSED)
        except asyncio.CancelledError:  # it reads no more, and may write
            is_open = True
            raise
        finally:
            if not is_open:
                self.closed.set()
                self._changed.set()

    async def _read(self) -> None:
        raise NotImplementedError


class OpenWire(AttackClient):
    """An OpenWire client with one connection id, session 1, producer 1; consumers are numbered."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, depth: Depth, *, reads: bool
    ) -> None:
        super().__init__(reader, writer, depth)
        self.id = f"hostile-{os.getpid()}-{next(_serial)}"
        self.producer = wire.ProducerId(self.id, 1, 1)
        self._numbers = itertools.count(1)
        self._consumers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.dispatches: Callable[[bytes], None] | None = None
        if reads:
            self.start_reading()

    async def connect(self, **fields: Any) -> None:
        """Open connection, session and producer."""
        fields.setdefault("client_id", self.id)
        await self.request(wire.ConnectionInfo(connection_id=wire.ConnectionId(self.id), manageable=True, **fields))
        await self.request(wire.SessionInfo(session_id=wire.SessionId(self.id, 1)))
        await self.request(wire.ProducerInfo(producer_id=self.producer))

    def start(self, command: Any) -> "asyncio.Future[Any]":
        """Send a command that is answered; the future has the response, or raises `Refused`."""
        number = next(self._numbers)
        command.command_id, command.response_required = number, True
        future = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self._writer.write(FORMAT.encode_frame(command))
        return future

    async def request(self, command: Any, seconds: float = 30.0) -> Any:
        """Send a command and return the response. Raises `Refused`, `TimeoutError`, `ConnectionError`."""
        future = self.start(command)
        await self._writer.drain()
        closing = asyncio.create_task(self.closed.wait())
        try:
            await asyncio.wait((future, closing), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if future.done():
            return future.result()
        future.cancel()
        if self.closed.is_set():
            raise ConnectionError("connection closed")
        self._depth.refusals[UNANSWERED] += 1
        raise TimeoutError(f"no answer within {seconds:g} s")

    async def requests(self, commands: Iterable[Any], seconds: float = 50.0) -> list[str]:
        """Send commands one behind the other without waiting; return the reasons of those refused or unanswered."""
        futures = []
        for command in commands:
            futures.append(self.start(command))
            await self._writer.drain()
        _, pending = await asyncio.wait(futures, timeout=seconds) if futures else (set(), set())
        failures = [str(each.exception()) for each in futures if each.done() and each.exception() is not None]
        if pending:
            self._depth.refusals[UNANSWERED] += len(pending)
        return failures + [UNANSWERED] * len(pending)

    async def consume(self, destination: Destination, *, prefetch: int = 1000, **fields: Any) -> wire.ConsumerId:
        """Add a consumer, and wait for the answer."""
        info = self.consumer(destination, prefetch=prefetch, **fields)
        await self.request(info)
        assert info.consumer_id is not None
        return info.consumer_id

    def consumer(self, destination: Destination, *, prefetch: int = 1000, **fields: Any) -> wire.ConsumerInfo:
        """Return the command that adds the next consumer."""
        consumer_id = wire.ConsumerId(self.id, 1, next(self._consumers))
        return wire.ConsumerInfo(
            consumer_id=consumer_id, destination=destination, prefetch_size=prefetch, **fields
        )  # fmt: skip

    def messages_to(self, destination: Destination, count: int, **fields: Any) -> bytes:
        """Return the frames of that many messages, no answers required, ids in sequence."""
        base = self.sequence
        self.sequence += count
        return b"".join(
            FORMAT.encode_frame(message(destination, producer=self.producer, sequence=base + number, **fields))
            for number in range(count)
        )

    sequence = 1

    def transaction(self, kind: wire.TransactionType, transaction_id: TransactionId) -> wire.TransactionInfo:
        """Return a step of a transaction."""
        return wire.TransactionInfo(
            connection_id=wire.ConnectionId(self.id), transaction_id=transaction_id, type=int(kind)
        )

    async def leave(self) -> None:
        """Take leave with RemoveInfo, as a JMS client does, and close: its client id is free then."""
        await self.request(wire.RemoveInfo(object_id=wire.ConnectionId(self.id)))
        await self.close()

    async def settle(self, seconds: float = 30.0) -> None:
        """Wait until the broker has read everything written so far."""
        await self.request(wire.FlushCommand(), seconds)

    async def settles(self, seconds: float) -> bool:
        """Return True if the broker reads everything written so far within that time; False if it does not."""
        try:
            await self.settle(seconds)
        except TimeoutError:
            return False
        return True

    async def _read(self) -> None:
        reader = self._reader
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            kind = frame[0]
            if kind == _DISPATCH:
                self.messages += 1
                if self.dispatches is not None:
                    self.dispatches(frame)
            elif kind in _RESPONSES:
                self._answered(FORMAT.decode(frame))
            elif kind == _CONNECTION_ERROR:
                error: Any = FORMAT.decode(frame)
                self.refused(_reason(error.exception))
            elif kind == wire.KeepAliveInfo.DATA_TYPE:
                keep: Any = FORMAT.decode(frame)
                if keep.response_required:
                    self._writer.write(FORMAT.encode_frame(wire.KeepAliveInfo()))
            self._changed.set()

    def _answered(self, response: Any) -> None:
        future = self._answers.pop(response.correlation_id, None)
        if isinstance(response, wire.ExceptionResponse):
            reason = _reason(response.exception)
            self.refused(reason)
            if future is not None and not future.done():
                future.set_exception(Refused(reason))
                future.exception()  # looked at, also if no caller does
        elif future is not None and not future.done():
            future.set_result(response)


class Stomp(AttackClient):
    """A STOMP 1.2 client; counts messages and receipts."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, depth: Depth) -> None:
        super().__init__(reader, writer, depth)
        self.receipts = 0
        self.last_ack = b""
        self._connected = False

    async def connect(self, headers: str) -> None:
        """Connect."""
        await self.write(f"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n{headers}\n\0".encode())
        self.start_reading()
        if not await self.until(lambda: self._connected, 30.0):
            raise Refused(next(iter(self.errors), "closed before CONNECTED"))

    async def request(self, frame: str | bytes, seconds: float = 30.0) -> None:
        """Send a frame that has `receipt:r`, and wait for the receipt. Raises `Refused` on ERROR, or `TimeoutError`."""
        wanted, errors = self.receipts + 1, sum(self.errors.values())
        await self.write(frame.encode() if isinstance(frame, str) else frame)
        await self.until(lambda: self.receipts >= wanted or sum(self.errors.values()) > errors, seconds)
        if sum(self.errors.values()) > errors:
            raise Refused(list(self.errors)[-1])
        if self.receipts < wanted:
            if self.closed.is_set():
                raise ConnectionError("connection closed")
            self._depth.refusals[UNANSWERED] += 1
            raise TimeoutError("no receipt")

    async def subscribe(self, destination: str, *, headers: str = "", ack: str = "auto", number: int = 1) -> None:
        """Subscribe, and wait for the receipt."""
        await self.request(f"SUBSCRIBE\nid:{number}\ndestination:{destination}\nack:{ack}\nreceipt:r\n{headers}\n\0")

    async def _read(self) -> None:
        rest = b""
        while chunk := await self._reader.read(1 << 18):
            *frames, rest = (rest + chunk).split(b"\0")
            for frame in frames:
                self._received(frame.lstrip(b"\n"))
            if len(rest) > 1 << 20:
                rest = rest[:1024] + rest[-64:]  # a long body: only its frame's head counts
            self._changed.set()

    def _received(self, frame: bytes) -> None:
        if frame.startswith(b"MESSAGE"):
            self.messages += 1
            head, found, _ = frame.partition(b"\nack:")[2].partition(b"\n")
            if found:
                self.last_ack = head
        elif frame.startswith(b"RECEIPT"):
            self.receipts += 1
        elif frame.startswith(b"CONNECTED"):
            self._connected = True
        elif frame.startswith(b"ERROR"):
            self.refused(_stomp_reason(frame))


def message(
    destination: Destination,
    *,
    producer: wire.ProducerId,
    sequence: int,
    text: str | None = None,
    content: bytes | None = None,
    values: dict[str, Value] | None = None,
    kind: type[wire.ActiveMQMessage] = wire.ActiveMQTextMessage,
    persistent: bool = False,
    **fields: Any,
) -> wire.ActiveMQMessage:
    """Return a message with that body and these properties; `fields` are those of the command."""
    if text is not None:
        content = encode_text(text)
    fields.setdefault("timestamp", int(time.time() * 1000))
    if values is not None:
        fields["marshalled_properties"] = encode_map(values)
    return kind(
        producer_id=producer,
        destination=destination,
        message_id=wire.OpenWireMessageId(None, producer, sequence),
        persistent=persistent,
        content=content,
        **fields,
    )


def properties(count: int, chars: int) -> dict[str, Value]:
    """Return that many text properties of that many characters."""
    return {f"p{number}": "v" * chars for number in range(count)}


def xid(number: int) -> XATransactionId:
    """Return the id of a branch of a distributed transaction."""
    return XATransactionId(4660, f"hostile-{os.getpid()}-{number}".encode(), b"1")


def common(errors: Counter[str] | Sequence[str]) -> str:
    """Return the most frequent reason, and how many there were."""
    counts = Counter(errors)
    if not counts:
        return ""
    reason, _ = counts.most_common(1)[0]
    return f"{sum(counts.values())} x {reason}" if sum(counts.values()) > 1 else reason


def _reason(error: wire.Throwable | None) -> str:
    if error is None:
        return "no exception"
    return f"{(error.class_name or '?').rpartition('.')[2]}: {error.message}"[:_REASON_CHARS]


def _stomp_reason(frame: bytes) -> str:
    for line in frame.split(b"\n"):
        if line.startswith(b"message:"):
            return "ERROR " + line[8 : 8 + _REASON_CHARS].decode(errors="replace")
    return "ERROR"
