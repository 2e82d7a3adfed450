"""Nothing of what has ended is left for the garbage collector: connections, and what ends while they live on.

Each case runs over real sockets, on both event loops, while the collector is disabled. So objects that refer to one
another stay, and are counted.
"""

import asyncio
import gc
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import monotonic

import pytest
import uvloop

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import (
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    MessagePull,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionId,
    SessionInfo,
    ShutdownInfo,
    TransactionType,
)
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.transports.admission import AdmissionLimits
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.real_broker import (
    CONNECT,
    HELLO,
    SECONDS,
    WIRE,
    OpenWirePeer,
    Peer,
    World,
    collect_garbage,
    count_objects,
)
from tests.unit.transports.websocket.conversation import CLOSE, TEXT, frame, request

Case = Callable[[World], Awaitable[None]]

RESET = struct.pack("ii", 1, 0)
SUBSCRIBED = (
    b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0"
    b"SUBSCRIBE\nid:2\ndestination:/topic/a\nselector:n > 1\n\n\0"
    b"SUBSCRIBE\nid:3\ndestination:/queue/a\nbrowser:true\n\n\0"
    b"SUBSCRIBE\nid:4\ndestination:/temp-queue/replies\n\n\0"
)
SENT = (
    b"BEGIN\ntransaction:t\n\n\0"
    b"SEND\ntransaction:t\ndestination:/queue/a\n\nhello\0"
    b"SEND\ndestination:/temp-queue/replies\n\nhello\0"
    b"SEND\ndestination:/topic/a\nn:2\n\nhello\0"
    b"SEND\ndestination:/queue/a\nreceipt:sent\n\nhello\0"
)


# ---------------------------------------------------------------- STOMP


async def stomp_silent(world: World) -> None:
    async with world.peer("stomp"):
        pass


async def stomp_connected(world: World) -> None:
    async with world.stomp():
        pass


async def stomp_disconnected(world: World) -> None:
    async with world.stomp() as peer:
        await peer.ask(SUBSCRIBED + SENT, b"receipt-id:sent")
        await peer.ask(b"DISCONNECT\nreceipt:bye\n\n\0", b"receipt-id:bye")
        await peer.end()


async def stomp_with_everything(world: World) -> None:
    async with world.stomp() as peer:
        await peer.ask(SUBSCRIBED + SENT, b"receipt-id:sent")


async def stomp_reset(world: World) -> None:
    async with world.stomp() as peer:
        await peer.ask(SUBSCRIBED + SENT, b"receipt-id:sent")
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def stomp_unknown_command(world: World) -> None:
    async with world.stomp() as peer:
        await peer.ask(SUBSCRIBED + b"HELLO\n\n\0", b"Unknown STOMP action")
        await peer.end()


async def stomp_without_login(world: World) -> None:
    async with world.peer("stomp") as peer:
        await peer.ask(b"HELLO\n\n\0", b"Unknown STOMP action")
        await peer.end()


async def stomp_half_frame(world: World) -> None:
    async with world.stomp() as peer:
        await peer.send(b"SEND\ndestination:/queue/a\ncontent-length:4000000\n\n" + bytes(100_000))


async def stomp_large_message(world: World) -> None:
    """Its body is built, and rendered, in a thread; the first client leaves while that may be under way."""
    frame = b"SEND\ndestination:/queue/large\nreceipt:large\ncontent-length:2000000\n\n" + b"x" * 2_000_000 + b"\0"
    async with world.stomp() as peer:
        await peer.ask(frame, b"receipt-id:large")
    async with world.stomp() as peer:
        await peer.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/large\nack:auto\n\n\0", b"MESSAGE")


async def stomp_transactions(world: World) -> None:
    async with world.stomp() as peer:
        await peer.ask(SUBSCRIBED + SENT, b"receipt-id:sent")
        await peer.ask(b"ABORT\ntransaction:t\nreceipt:1\n\n\0", b"receipt-id:1")
        begun = b"BEGIN\ntransaction:u\n\n\0SEND\ntransaction:u\ndestination:/queue/a\n\nhello\0"
        await peer.ask(begun + b"COMMIT\ntransaction:u\nreceipt:2\n\n\0", b"receipt-id:2")


async def stomp_unread_output(world: World) -> None:
    frame = b"SEND\ndestination:/queue/a\ncontent-length:900000\n\n" + bytes(900_000) + b"\0"
    async with world.stomp() as sender:
        await sender.ask(frame * 20 + b"BEGIN\ntransaction:t\nreceipt:1\n\n\0", b"receipt-id:1")
        async with world.stomp() as slow:
            await slow.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0", b"MESSAGE")


# ---------------------------------------------------------------- WebSocket


async def websocket_silent(world: World) -> None:
    async with world.peer("ws"):
        pass


async def websocket_refused(world: World) -> None:
    async with world.peer("ws") as peer:
        await peer.ask(request("Origin: http://evil.example"), b"403 Forbidden")
        await peer.end()
    async with world.peer("ws") as peer:
        await peer.ask(b"GET / HTTP/1.1\r\nwrong\r\n\r\n", b"400 Bad Request")
        await peer.end()


async def websocket_with_everything(world: World) -> None:
    async with world.websocket() as peer:
        await peer.ask(frame(TEXT, SUBSCRIBED + SENT), b"receipt-id:sent")


async def websocket_closed(world: World) -> None:
    async with world.websocket("auto") as peer:
        await peer.ask(frame(TEXT, SUBSCRIBED + SENT), b"receipt-id:sent")
        await peer.send(frame(CLOSE, b"\x03\xe8"))
        await peer.end()


async def websocket_violation(world: World) -> None:
    async with world.websocket() as peer:
        await peer.send(frame(TEXT, SUBSCRIBED, mask=b""))
        await peer.end()


async def websocket_large_message(world: World) -> None:
    """Its body is built, and rendered, in a thread."""
    send = b"SEND\ndestination:/queue/large\nreceipt:large\ncontent-length:2000000\n\n" + b"x" * 2_000_000 + b"\0"
    async with world.websocket() as peer:
        await peer.ask(frame(TEXT, send), b"receipt-id:large")
    async with world.websocket() as peer:
        await peer.ask(frame(TEXT, b"SUBSCRIBE\nid:1\ndestination:/queue/large\nack:auto\n\n\0"), b"MESSAGE")


async def websocket_half_frame(world: World) -> None:
    async with world.websocket() as peer:
        half = frame(TEXT, b"SEND\ndestination:/queue/a\ncontent-length:4000000\n\n" + bytes(100_000))
        await peer.send(half[:-1000])


# ---------------------------------------------------------------- OpenWire


async def openwire_silent(world: World) -> None:
    async with world.peer("openwire"):
        pass


async def openwire_negotiated(world: World) -> None:
    async with world.peer("openwire") as peer:
        await peer.ask(HELLO, b"b1:61616")


async def openwire_garbage(world: World) -> None:
    async with world.peer("openwire") as peer:
        await peer.send(bytes.fromhex("00000005ffffffffff"))
        await peer.end()


async def openwire_refused(world: World) -> None:
    async with world.peer("openwire") as peer:
        info = ConnectionInfo(response_required=True, connection_id=ConnectionId("ID:r"), client_id="")
        await peer.ask(HELLO + WIRE.encode_frame(info), b"No clientID")
        await peer.end()


async def openwire_unknown_command(world: World) -> None:
    async with world.openwire() as peer:
        await fill(peer)
        await peer.send(bytes.fromhex("00000005ffffffffff"))
        await peer.end()


async def openwire_with_everything(world: World) -> None:
    async with world.openwire() as peer:
        await fill(peer)


async def openwire_removed(world: World) -> None:
    async with world.openwire() as peer:
        await fill(peer)
        removal = RemoveInfo(command_id=7, response_required=True, object_id=ConnectionId(peer.id))
        await peer.ask(WIRE.encode_frame(removal), b"\x1e" + bytes(5) + (7).to_bytes(4))
        await peer.send(WIRE.encode_frame(ShutdownInfo()))
        await peer.end()


async def openwire_connected_again(world: World) -> None:
    """The same socket, another connection id."""
    async with world.openwire() as peer:
        await fill(peer)
        removal = RemoveInfo(command_id=7, response_required=True, object_id=ConnectionId(peer.id))
        await peer.ask(WIRE.encode_frame(removal), b"\x1e" + bytes(5) + (7).to_bytes(4))
        peer.id += "-again"
        await peer.command(peer.connection_info, SessionInfo(session_id=SessionId(peer.id, 1)))
        await fill(peer)


async def openwire_superseded(world: World) -> None:
    """The client has reconnected on another socket."""
    async with world.openwire() as former:
        await fill(former)
        async with world.openwire_again(former):
            await former.end()


async def openwire_ended_in_pieces(world: World) -> None:
    """So many consumers, and a commit of so many messages, are not done in one turn."""
    async with world.openwire() as peer:
        await peer.command(
            *(peer.consume(number, queue(f"q{number % 50}")) for number in range(2, 500)),
            peer.transaction(TransactionType.BEGIN),
            *(
                peer.message(
                    queue(f"q{number % 50}"), transaction_id=peer.transaction(TransactionType.BEGIN).transaction_id
                )
                for number in range(2_000)
            ),
        )
        await peer.send(WIRE.encode_frame(peer.transaction(TransactionType.COMMIT_ONE_PHASE)))


async def openwire_large_message(world: World) -> None:
    async with world.openwire() as peer:
        message = peer.message(queue("a"))
        message.content = bytes(3_000_000)
        await peer.command(message, peer.consume(1, queue("a")))


async def openwire_prepared(world: World) -> None:
    """A prepared branch belongs to the broker, until another client ends it."""
    xid = XATransactionId(1, b"global", b"branch")
    async with world.openwire() as peer:
        await peer.command(
            peer.branch(xid, TransactionType.BEGIN),
            peer.message(queue("a"), transaction_id=xid),
            peer.branch(xid, TransactionType.PREPARE),
        )
    async with world.openwire() as peer:
        await peer.command(peer.branch(xid, TransactionType.ROLLBACK))


async def fill(peer: OpenWirePeer) -> None:
    """Create one of each kind: consumers, a pull, a temporary queue, a transaction, and messages for all of them."""
    begin = peer.transaction(TransactionType.BEGIN)
    await peer.command(
        peer.temporary(DestinationOperation.ADD),
        peer.consume(1, queue("a")),
        peer.consume(2, topic("a"), selector="JMSPriority > 1"),
        peer.consume(3, queue("a"), browser=True),
        peer.consume(4, topic("a"), subscription_name="d"),
        peer.consume(5, queue("b"), prefetch_size=0),
        peer.consume(6, peer.temporary_queue),
        peer.consume(7, topic("a.>")),
        MessagePull(consumer_id=ConsumerId(peer.id, 1, 5), destination=queue("b"), timeout=60_000),
        begin,
        peer.message(queue("a"), transaction_id=begin.transaction_id),
        peer.message(peer.temporary_queue),
        peer.message(topic("a")),
        peer.message(queue("a")),
    )
    await peer.command(
        RemoveInfo(object_id=peer.consumer(4)),
        RemoveSubscriptionInfo(connection_id=ConnectionId(peer.id), client_id=peer.id, subscription_name="d"),
    )


# ---------------------------------------------------------------- others


async def detected(world: World) -> None:
    async with world.peer("auto") as peer:
        await peer.ask(CONNECT, b"CONNECTED")
    async with world.peer("auto") as peer:
        await peer.ask(HELLO, b"b1:61616")
    async with world.peer("auto") as peer:
        await peer.send(b"GET / HTTP/1.1\r\n\r\n")
        await peer.end()


async def too_many(world: World) -> None:
    world.server.admission.limits = AdmissionLimits.of(0)
    try:
        async with world.peer("stomp") as peer:
            await peer.until(b"ERROR")
            await peer.end()
    finally:
        world.server.admission.limits = AdmissionLimits.of(10)


async def aborted(world: World) -> None:
    async with world.stomp() as stomp, world.openwire() as openwire:
        await stomp.ask(SUBSCRIBED + SENT, b"receipt-id:sent")
        await fill(openwire)
        for connection in list(world.server.connections):
            connection.abort()


async def tls_connected(world: World) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def converse() -> None:  # in a thread: a client in the event loop would have a transport, too
        with socket.create_connection(("127.0.0.1", world.ports["tls"])) as plain, context.wrap_socket(plain) as peer:
            peer.sendall(CONNECT)
            assert b"CONNECTED" in peer.recv(4096)

    await asyncio.to_thread(converse)


async def tls_refused(world: World) -> None:
    async with world.peer("tls") as peer:
        await peer.send(CONNECT)
        await peer.end()


ENDS: list[Case] = [
    stomp_silent,
    stomp_connected,
    stomp_disconnected,
    stomp_with_everything,
    stomp_reset,
    stomp_unknown_command,
    stomp_without_login,
    stomp_half_frame,
    stomp_large_message,
    stomp_transactions,
    stomp_unread_output,
    websocket_silent,
    websocket_refused,
    websocket_with_everything,
    websocket_closed,
    websocket_violation,
    websocket_large_message,
    websocket_half_frame,
    openwire_silent,
    openwire_negotiated,
    openwire_garbage,
    openwire_refused,
    openwire_unknown_command,
    openwire_with_everything,
    openwire_removed,
    openwire_connected_again,
    openwire_superseded,
    openwire_ended_in_pieces,
    openwire_large_message,
    openwire_prepared,
    detected,
    too_many,
    aborted,
    tls_connected,
    tls_refused,
]


# ---------------------------------------------------------------- what ends within a connection that lives on


async def stomp_subscriptions(world: World, stomp: Peer, openwire: OpenWirePeer) -> None:
    await stomp.ask(SUBSCRIBED + SENT + b"ABORT\ntransaction:t\nreceipt:0\n\n\0", b"receipt-id:0")
    for number in range(1, 5):
        await stomp.ask(b"UNSUBSCRIBE\nid:%d\nreceipt:end-%d\n\n\0" % (number, number), b"receipt-id:end-%d" % number)


async def stomp_durable_subscription(world: World, stomp: Peer, openwire: OpenWirePeer) -> None:
    subscribe = b"SUBSCRIBE\nid:d\ndestination:/topic/d\nactivemq.subscriptionName:s\nreceipt:1\n\n\0"
    await stomp.ask(subscribe, b"receipt-id:1")
    await stomp.ask(b"SEND\ndestination:/topic/d\npersistent:true\nreceipt:2\n\nhello\0", b"receipt-id:2")
    await stomp.ask(b"UNSUBSCRIBE\nid:d\nreceipt:3\n\n\0", b"receipt-id:3")
    await stomp.ask(b"UNSUBSCRIBE\nid:d\nactivemq.subscriptionName:s\nreceipt:4\n\n\0", b"receipt-id:4")


async def openwire_objects(world: World, stomp: Peer, openwire: OpenWirePeer) -> None:
    session = SessionId(openwire.id, 2)
    await openwire.command(
        SessionInfo(session_id=session),
        ProducerInfo(producer_id=ProducerId(openwire.id, 2, 1), destination=queue("c")),
        ConsumerInfo(consumer_id=ConsumerId(openwire.id, 2, 1), destination=queue("c"), prefetch_size=1),
    )
    await fill(openwire)
    await openwire.command(
        openwire.transaction(TransactionType.ROLLBACK),
        *(RemoveInfo(object_id=openwire.consumer(number)) for number in range(1, 8)),
        RemoveInfo(object_id=session),
        openwire.temporary(DestinationOperation.REMOVE),
    )


async def openwire_transactions(world: World, stomp: Peer, openwire: OpenWirePeer) -> None:
    begin = openwire.transaction(TransactionType.BEGIN)
    xid = XATransactionId(1, b"global", b"branch")
    await openwire.command(
        begin,
        openwire.message(queue("t"), transaction_id=begin.transaction_id, persistent=True),
        openwire.transaction(TransactionType.COMMIT_ONE_PHASE),
        begin,
        openwire.message(queue("t"), transaction_id=begin.transaction_id),
        openwire.transaction(TransactionType.ROLLBACK),
        openwire.branch(xid, TransactionType.BEGIN),
        openwire.message(queue("t"), transaction_id=xid, persistent=True),
        openwire.branch(xid, TransactionType.PREPARE),
        openwire.branch(xid, TransactionType.COMMIT_TWO_PHASE),
    )


async def deleted_with_messages(world: World, stomp: Peer, openwire: OpenWirePeer) -> None:
    """A queue and a topic are deleted, and a transaction that sends to them ends later."""
    begin = openwire.transaction(TransactionType.BEGIN)
    destinations = (queue("gone"), topic("gone"))
    await openwire.command(
        begin,
        *(openwire.message(each, transaction_id=begin.transaction_id) for each in destinations),
        *(openwire.message(each, persistent=True) for each in destinations),
    )
    await openwire.command(
        *(
            DestinationInfo(
                connection_id=ConnectionId(openwire.id), destination=each, operation_type=DestinationOperation.REMOVE
            )
            for each in destinations
        ),
        openwire.transaction(TransactionType.COMMIT_ONE_PHASE),
    )


async def scheduled_jobs(world: World, stomp: Peer, openwire: OpenWirePeer) -> None:
    send = b"SEND\ndestination:/queue/later\nAMQ_SCHEDULED_DELAY:1\nreceipt:1\n\nhello\0"
    await stomp.ask(send, b"receipt-id:1")
    assert world.broker.scheduler is not None
    world.broker.scheduler.fire(world.broker.clock())
    await stomp.ask(b"SUBSCRIBE\nid:s\ndestination:/queue/later\n\n\0", b"MESSAGE")
    await stomp.ask(b"UNSUBSCRIBE\nid:s\nreceipt:2\n\n\0", b"receipt-id:2")


WITHIN: list[Callable[[World, Peer, OpenWirePeer], Awaitable[None]]] = [
    stomp_subscriptions,
    stomp_durable_subscription,
    openwire_objects,
    openwire_transactions,
    deleted_with_messages,
    scheduled_jobs,
]


@pytest.fixture(scope="module", autouse=True)
def only_own_objects() -> None:
    """Have the collector neither count nor look at what other tests have left, which may be millions of objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """An event loop, while nothing is collected, and no log record is kept, with the traceback of what it logs."""
    gc.collect()
    gc.disable()
    logging.disable()
    try:
        with asyncio.Runner(loop_factory=request.param) as runner:
            yield runner
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


async def check(world: World, act: Callable[[], Awaitable[None]], connection_count: int = 0) -> None:
    """Check that nothing is left of what is done, and ends."""
    for _ in range(2):  # the first fills caches
        await act()
        await world.settle(connection_count)
    gc.collect()
    before = count_objects()
    await act()
    await world.settle(connection_count)
    end = monotonic() + SECONDS
    while (left := count_objects() - before) and monotonic() < end:  # a thread may still render a body
        await world.settle(connection_count)
    garbage = collect_garbage()
    assert garbage == {}
    assert left == {}


@pytest.mark.parametrize("case", ENDS)
def test_ended_connection_leaves_nothing_behind(case: Case, runner: asyncio.Runner, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with World(certificates) as world:
            await check(world, partial(case, world))

    runner.run(scenario())


@pytest.mark.parametrize("case", WITHIN)
def test_ended_object_of_a_connection_leaves_nothing_behind(
    case: Callable[[World, Peer, OpenWirePeer], Awaitable[None]], runner: asyncio.Runner, certificates: Certificates
) -> None:
    async def scenario() -> None:
        async with World(certificates) as world, world.stomp() as stomp, world.openwire() as openwire:
            await check(world, partial(case, world, stomp, openwire), connection_count=2)

    runner.run(scenario())
