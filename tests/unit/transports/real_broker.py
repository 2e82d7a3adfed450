"""A broker behind real sockets with all its protocols, clients of it, and a count of its objects."""

import asyncio
import contextlib
import gc
import itertools
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Self

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import DestinationInUse
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.commands import (
    ActiveMQTextMessage,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DataStructure,
    DestinationInfo,
    DestinationOperation,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    SessionId,
    SessionInfo,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, broker_offer, encode_offer
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.connection import MakeSession
from pybroker.transports.detect import DetectedProtocol, Detector
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from pybroker.transports.openwire.settings import OpenWireSettings
from pybroker.transports.server import ListenerProtocol, Server, Tls, bind
from pybroker.transports.session import Link
from pybroker.transports.stomp.session import StompSession
from pybroker.transports.tls import server_context
from pybroker.transports.websocket.origins import OriginRule
from pybroker.transports.websocket.session import WebSocketSession, WebSocketSettings
from pybroker.transports.websocket.subprotocols import STOMP
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.websocket.conversation import TEXT, frame, request

SECONDS = 10.0
STARTED_MS = 1_795_220_400_000

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0"
HELLO = encode_offer(Offer(max_inactivity_ms=0))
WIRE = WireFormat()


def count_objects() -> Counter[str]:
    """Return the number of objects of transports and core, by type; not of values, which caches keep."""
    names = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    kept = "pybroker.transports.loop_lag."  # the longest turns
    found = (name for name in names if name.startswith(("pybroker.transports.", "pybroker.broker.core.")))
    return Counter(name for name in found if not name.startswith(kept))


def collect_garbage() -> Counter[str]:
    """Return the number of objects of any module that were left for the garbage collector, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


class Peer:
    """A client's socket."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def until(self, part: bytes) -> bytes:
        """Read until these bytes have come, or the end."""
        received = b""
        while part not in received:
            chunk = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
            if not chunk:
                raise AssertionError(f"the broker closed after {received!r}")
            received += chunk
        return received

    async def ask(self, data: bytes, part: bytes) -> bytes:
        await self.send(data)
        return await self.until(part)

    async def end(self) -> None:
        """Read to the broker's end."""
        with contextlib.suppress(ConnectionResetError):
            while await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16):
                pass


class OpenWirePeer(Peer):
    """An OpenWire client of a connection of its own."""

    def __init__(self, made: socket.socket, number: int) -> None:
        super().__init__(made)
        self.id = f"ID:c{number}"
        self._commands = itertools.count(1000)
        self._messages = itertools.count(1)

    @property
    def connection_info(self) -> ConnectionInfo:
        return ConnectionInfo(connection_id=ConnectionId(self.id), client_id=self.id)

    @property
    def producer(self) -> ProducerId:
        return ProducerId(self.id, 1, 1)

    def consumer(self, number: int) -> ConsumerId:
        return ConsumerId(self.id, 1, number)

    def transaction(self, kind: TransactionType, number: int = 1) -> TransactionInfo:
        return TransactionInfo(
            connection_id=ConnectionId(self.id), transaction_id=LocalTransactionId(self.id, number), type=kind
        )

    def branch(self, xid: XATransactionId, kind: TransactionType) -> TransactionInfo:
        return TransactionInfo(connection_id=ConnectionId(self.id), transaction_id=xid, type=kind)

    def consume(self, number: int, destination: Destination, **details: object) -> ConsumerInfo:
        return ConsumerInfo(
            consumer_id=self.consumer(number),
            destination=destination,
            **{"prefetch_size": 10, **details},  # type: ignore[arg-type]
        )

    @property
    def temporary_queue(self) -> Destination:
        return Destination(DestinationType.TEMP_QUEUE, f"{self.id}:1")

    def temporary(self, operation: DestinationOperation) -> DestinationInfo:
        return DestinationInfo(
            connection_id=ConnectionId(self.id),
            destination=self.temporary_queue,
            operation_type=operation,
        )

    def message(self, destination: Destination, **details: object) -> ActiveMQTextMessage:
        return ActiveMQTextMessage(
            command_id=next(self._commands),
            producer_id=self.producer,
            destination=destination,
            message_id=OpenWireMessageId(None, self.producer, next(self._messages)),
            content=encode_text("hello"),
            **details,  # type: ignore[arg-type]
        )

    async def command(self, *commands: DataStructure) -> bytes:
        """Send commands, and one more whose answer says that they are carried out; return what came."""
        last = next(self._commands)
        marker = ProducerInfo(command_id=last, response_required=True, producer_id=self.producer)
        await self.send(b"".join(map(WIRE.encode_frame, (*commands, marker))))
        return await self.until(b"\x1e" + bytes(5) + last.to_bytes(4))

    async def connect(self) -> None:
        await self.send(HELLO)
        await self.command(self.connection_info, SessionInfo(session_id=SessionId(self.id, 1)))


class World:
    """A broker behind real sockets."""

    def __init__(self, certificates: Certificates) -> None:
        self.numbers = itertools.count(1)
        self.faults: list[dict[str, object]] = []
        self.server = Server(limits=AdmissionLimits.of(10))
        self.broker = BrokerCore(
            "b1",
            store=MemoryStore(),
            clock=itertools.count(STARTED_MS).__next__,
            defer=self.server.turn.defer,
            limits=Limits(memory_bytes_max=256 << 20),
        )
        self.broker.url = "tcp://b1:61616"
        self.broker.recover()
        self.broker.open_scheduler(MemoryJobStore(), (), wake_at=lambda _: None, connection_id="ID:jobs", jobs_max=10)
        self._stomp_limits = StompLimits(body_bytes=8 << 20)
        self._settings = OpenWireSettings(offer=broker_offer(), broker_url="tcp://b1:61616")
        self._sessions = Sessions()
        context = server_context(certificates.both)
        tls = Tls(context=lambda: context, handshake_seconds=SECONDS)
        self._websocket_settings = WebSocketSettings(
            families={STOMP: self._stomp},
            origins=OriginRule("same-host"),
            message_bytes_max=9 << 20,
            handshake_seconds=SECONDS,
        )
        sessions: dict[DetectedProtocol, MakeSession] = {
            DetectedProtocol.STOMP: self._stomp,
            DetectedProtocol.OPENWIRE: self._openwire,
            DetectedProtocol.WEBSOCKET: self._websocket,
        }
        self.ports: dict[str, int] = {}
        for protocol in (
            ListenerProtocol(scheme="stomp", session=self._stomp, refusal=b"ERROR\n\n\0"),
            ListenerProtocol(scheme="openwire", session=self._openwire),
            ListenerProtocol(scheme="tls", session=self._stomp, tls=tls),
            ListenerProtocol(scheme="ws", session=self._websocket),
            ListenerProtocol(scheme="auto", session=lambda link: Detector(link, sessions, seconds=SECONDS)),
        ):
            bound = bind("127.0.0.1", 0, protocol.scheme)
            self.ports[protocol.scheme] = bound.getsockname()[1]
            self.server.listen(protocol, bound)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.abort()
        await self.settle()

    def _stomp(self, link: Link) -> StompSession:
        return StompSession(
            broker=self.broker,
            link=link,
            connection_id=f"ID:s{next(self.numbers)}",
            limits=self._stomp_limits,
            clock=self.broker.clock,
        )

    def _websocket(self, link: Link) -> WebSocketSession:
        return WebSocketSession(link, self._websocket_settings)

    def _openwire(self, link: Link) -> OpenWireSession:
        return OpenWireSession(broker=self.broker, link=link, settings=self._settings, sessions=self._sessions)

    @contextlib.asynccontextmanager
    async def _connected(self, name: str) -> AsyncIterator[socket.socket]:
        made = socket.socket()
        made.setblocking(False)
        with made:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.ports[name]))
            yield made

    @contextlib.asynccontextmanager
    async def peer(self, name: str) -> AsyncIterator[Peer]:
        """Connect, and send nothing."""
        async with self._connected(name) as made:
            yield Peer(made)

    @contextlib.asynccontextmanager
    async def stomp(self) -> AsyncIterator[Peer]:
        """Connect a STOMP client."""
        async with self.peer("stomp") as peer:
            await peer.ask(CONNECT, b"CONNECTED")
            yield peer

    @contextlib.asynccontextmanager
    async def websocket(self, name: str = "ws") -> AsyncIterator[Peer]:
        """Connect a STOMP client over WebSocket."""
        async with self.peer(name) as peer:
            await peer.ask(request("Sec-WebSocket-Protocol: v12.stomp"), b"\r\n\r\n")
            await peer.ask(frame(TEXT, CONNECT), b"CONNECTED")
            yield peer

    @contextlib.asynccontextmanager
    async def openwire(self) -> AsyncIterator[OpenWirePeer]:
        """Connect an OpenWire client that has a session and a producer."""
        async with self._connected("openwire") as made:
            peer = OpenWirePeer(made, next(self.numbers))
            await peer.connect()
            yield peer

    @contextlib.asynccontextmanager
    async def openwire_again(self, former: OpenWirePeer) -> AsyncIterator[OpenWirePeer]:
        """Connect a client that has a connection already."""
        async with self._connected("openwire") as made:
            peer = OpenWirePeer(made, 0)
            peer.id = former.id
            await peer.connect()
            yield peer

    async def settle(self, connection_count: int = 0) -> None:
        """Wait until so many connections are left, and no work of others; delete the destinations that are not used."""
        async with asyncio.timeout(SECONDS):
            while len(self.server.connections) > connection_count or self.server._refused:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0)
            await self._turns()
        for destination in [*self.broker.queues, *self.broker.topics]:
            with contextlib.suppress(DestinationInUse):
                self.broker.remove_destination(destination)
        await self._turns()

    async def _turns(self) -> None:
        """Let deferred work be done."""
        for _ in range(50):
            await asyncio.sleep(0)
