# mypy: disable-error-code="arg-type"
"""A small honest broker and link to hold STOMP conversations against: queues, topics, windows and a slow disk."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import (
    CommitFailed,
    InvalidClientId,
    InvalidDestination,
    RequestError,
    ResourceLimit,
    SubscriptionInUse,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver, Throttle
from pybroker.broker.domain.security import ANONYMOUS, WITHOUT_LOGINS, Authenticator, User
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.stomp.session import StompSession

NOW_MS = 1_700_000_000_000


class FakeLink:
    """Collects what is written; time stands still until the test moves it."""

    peer = "127.0.0.1:50312"
    ending = "closed by the client"

    def __init__(self) -> None:
        self.output = bytearray()
        self.closed = False
        self.now = 100.0
        self.wake: float | None = None
        self.certificate: str | None = None
        self.reading_since: float | None = self.now
        self.write_paused_beyond: int | None = None
        self.reserved = self.input_holds = 0
        self.is_slice_spent = False
        self.is_input_waiting = False
        self.session: StompSession

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed, "written after close"
        self.output += data
        if self.write_paused_beyond is not None and len(self.output) > self.write_paused_beyond:
            self.session.pause_writing()

    def close(self) -> None:
        self.closed = True

    def time(self) -> float:
        return self.now

    def wake_at(self, when: float | None) -> None:
        self.wake = when

    def pause_reading(self) -> None:
        self.reading_since = None

    def resume_reading(self) -> None:
        self.reading_since = self.now

    def hold_input(self) -> None:
        self.input_holds += 1
        if self.input_holds == 1:
            self.pause_reading()
            self.session.hold()

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        self.input_holds -= 1
        if not self.input_holds:
            self.resume_reading()
            self.session.release()
            self.session.proceed()

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        work()
        done()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def reserve_frame(self, size: int, received: int) -> None:
        self.reserved = size

    def release_frame(self) -> None:
        self.reserved = 0

    def is_slice_over(self) -> bool:
        EFFORT.is_large = False
        return self.is_slice_spent


@dataclass(eq=False)
class FakeConsumer:
    connection: "FakeConnection"
    request: ConsumerRequest
    deliver: Deliver
    browsed: Callable[[], None] | None
    started: bool = False
    closed: bool = False
    outstanding: list[Delivery] = field(default_factory=list)
    in_transaction: dict[LocalTransactionId, list[Delivery]] = field(default_factory=dict)

    @property
    def prefetch(self) -> int:
        return 1000 if self.request.prefetch is None else self.request.prefetch

    def start(self) -> None:
        assert not self.closed, "started after its end"
        self.started = True
        self.connection.broker.dispatch()
        if self.browsed is not None:
            self.browsed()

    def offer(self, delivery: Delivery) -> None:
        self.outstanding.append(delivery)
        self.deliver(delivery)

    def has_capacity(self) -> bool:
        return self.started and len(self.outstanding) < self.prefetch and not self.connection.paused

    def acknowledge(self, delivery: Delivery, transaction: LocalTransactionId | None = None) -> None:
        self.outstanding.remove(delivery)
        self._record_acknowledged([delivery], transaction)

    def acknowledge_through(self, delivery: Delivery, transaction: LocalTransactionId | None = None) -> None:
        end = self.outstanding.index(delivery) + 1
        acknowledged, self.outstanding = self.outstanding[:end], self.outstanding[end:]
        self._record_acknowledged(acknowledged, transaction)

    def _record_acknowledged(self, deliveries: list[Delivery], transaction: LocalTransactionId | None) -> None:
        if transaction is None:
            self.connection.broker.acknowledged += [delivery.message.message_id for delivery in deliveries]
        else:
            self.connection.transactions[transaction]["acks"].append((self, deliveries))
        self.connection.broker.dispatch()

    def reject(self, delivery: Delivery, cause: str) -> None:
        if self.request.browser:
            raise RequestError("Cannot Nack a message on a Queue Browser Subscription.")
        self.outstanding.remove(delivery)
        self.connection.broker.rejected.append((delivery.message.message_id, cause))
        self.connection.broker.dispatch()

    def close(self) -> None:
        self.closed = True
        self.started = False
        self.connection.consumers.remove(self)
        if self.request.destination.is_queue and not self.request.browser:
            waiting = self.connection.broker.queues.setdefault(self.request.destination, [])
            waiting[:0] = [Delivery(each.message, each.redelivery_count + 1) for each in self.outstanding]
        self.outstanding = []
        self.connection.broker.dispatch()


@dataclass(eq=False)
class FakeConnection:
    broker: "FakeBroker"
    connection_id: str
    client_id: str
    throttle: Throttle
    persistency: bool | None = None
    consumers: list[FakeConsumer] = field(default_factory=list)
    transactions: dict[Any, Any] = field(default_factory=dict)
    begun: int = 0
    paused: bool = False
    written_count: int = 0
    closed: bool = False
    is_short_of_space: bool = False
    waiting_for_space: list[Callable[[], None]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def when_accepted(self, callback: Callable[[], None]) -> None:
        if self.is_short_of_space:
            self.waiting_for_space.append(callback)
        else:
            callback()

    def send(self, message: Message, transaction: LocalTransactionId | None = None, *, answered: bool = False) -> None:
        self.broker.require(message.destination)
        if transaction is None:
            self.broker.route(message)
        else:
            self.transactions[transaction]["sends"].append(message)

    def subscribe(
        self, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None = None
    ) -> FakeConsumer:
        self.broker.require(request.destination)
        name = request.subscription_name
        if name is not None and any(other.request.subscription_name == name for other in self.broker.all_consumers()):
            raise SubscriptionInUse(
                f"Durable consumer is in use for client: {self.client_id} and subscriptionName: {name}"
            )
        if name is not None:
            self.broker.durables.add((self.client_id, name))
        consumer = FakeConsumer(self, request, deliver, browsed)
        self.consumers.append(consumer)
        return consumer

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        if (client_id, subscription_name) not in self.broker.durables:
            raise InvalidDestination(f"No durable subscription exists for clientID: {client_id}")
        self.broker.durables.remove((client_id, subscription_name))

    def create_temporary(self, kind: DestinationType) -> Destination:
        self.broker.temporary_count += 1
        destination = Destination(kind, f"{self.connection_id}:{self.broker.temporary_count}")
        self.broker.temporaries.add(destination)
        return destination

    def begin(self) -> LocalTransactionId:
        self.begun += 1
        transaction = LocalTransactionId(self.connection_id, self.begun)
        self.transactions[transaction] = {"sends": [], "acks": []}
        return transaction

    def doom(self, transaction: LocalTransactionId, reason: str) -> None:
        self.transactions[transaction]["doom"] = reason

    def commit(self, transaction: LocalTransactionId) -> None:
        work = self.transactions.pop(transaction)
        if "doom" in work:
            raise CommitFailed(work["doom"])
        for _, deliveries in work["acks"]:
            self.broker.acknowledged += [delivery.message.message_id for delivery in deliveries]
        for message in work["sends"]:
            self.broker.route(message)

    def work_off(self, steps: Iterator[int]) -> None:
        self.steps += steps

    def rollback(self, transaction: LocalTransactionId) -> None:
        for consumer, deliveries in self.transactions.pop(transaction)["acks"]:
            consumer.outstanding[:0] = deliveries

    def when_carried_out(self, callback: Callable[[], None]) -> None:
        if self.broker.is_working:
            self.broker.waiting.append(callback)
        else:
            callback()

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self.broker.disk_is_slow:
            self.broker.waiting.append(callback)
        else:
            callback()

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        self.when_durable(callback)

    def written(self) -> None:
        self.written_count += 1

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.broker.dispatch()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for transaction in list(self.transactions):
                self.rollback(transaction)
            for consumer in list(self.consumers):
                consumer.close()
            self.broker.connections.remove(self)


class FakeBroker:
    """Queues hand each message to the first consumer with capacity; topics to every consumer there is."""

    name = "fake"

    def __init__(self) -> None:
        self.connections: list[FakeConnection] = []
        self.queues: dict[Destination, list[Delivery]] = {}
        self.temporaries: set[Destination] = set()
        self.temporary_count = 0
        self.durables: set[tuple[str, str]] = set()
        self.received: list[Message] = []
        self.acknowledged: list[str] = []
        self.rejected: list[tuple[str, str]] = []
        self.disk_is_slow = self.is_working = False
        self.persistency: bool | None = None
        self.waiting: list[Callable[[], None]] = []
        self.next_sequence = itertools.count(1).__next__

    def connect(self, connection_id: str, client_id: str, throttle: Throttle, user: User = ANONYMOUS) -> FakeConnection:
        if any(connection.client_id == client_id for connection in self.connections):
            raise InvalidClientId(f"Broker: fake - Client: {client_id} already connected")
        if client_id == "one too many":
            raise ResourceLimit("User u has 2 connections already: close some, or raise connections_per_user")
        connection = FakeConnection(self, connection_id, client_id, throttle, self.persistency)
        self.connections.append(connection)
        return connection

    def all_consumers(self) -> list[FakeConsumer]:
        return [consumer for connection in self.connections for consumer in connection.consumers]

    def require(self, destination: Destination) -> None:
        if destination.is_temporary and destination not in self.temporaries:
            raise InvalidDestination(f"The destination {destination} does not exist.")

    def route(self, message: Message) -> None:
        self.received.append(message)
        if message.destination.is_queue:
            self.queues.setdefault(message.destination, []).append(Delivery(message))
            self.dispatch()
            return
        for consumer in self.all_consumers():
            if consumer.request.destination == message.destination and consumer.has_capacity():
                consumer.offer(Delivery(message))

    def dispatch(self) -> None:
        for consumer in self.all_consumers():
            waiting = self.queues.get(consumer.request.destination, [])
            if consumer.request.browser:
                continue
            while waiting and consumer.has_capacity():
                consumer.offer(waiting.pop(0))

    def sync(self) -> None:
        """Have everything reach the disk."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


@dataclass(eq=False)
class Peer:
    """A client that sends and receives frames."""

    session: StompSession
    link: FakeLink
    broker: FakeBroker

    def send(self, *frames: str) -> list[str]:
        """Send frames (`^` at the end stands for NUL) and return what comes back, whole frames as text."""
        self.session.receive("".join(frames).replace("^", "\0").encode())
        return self.receive()

    def receive(self) -> list[str]:
        """Return the frames written since the last call."""
        text = bytes(self.link.output).decode()
        self.link.output.clear()
        return [frame for frame in re.split("\0\n", text) if frame]

    def flush(self) -> list[str]:
        """Have the output leave the process and return what is written in consequence."""
        self.link.output.clear()
        self.session.written()
        return self.receive()


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def connect(broker: FakeBroker) -> Callable[..., Peer]:
    """Return a function that opens a connection and, unless `version` is None, connects in that version."""
    count = 0

    def open_peer(
        version: str | None = "1.2",
        headers: str = "",
        limits: StompLimits | None = None,
        authenticator: Authenticator = WITHOUT_LOGINS,
    ) -> Peer:
        nonlocal count
        count += 1
        link = FakeLink()
        session = StompSession(
            broker=broker,
            link=link,
            connection_id=f"ID:host-1-{count}",
            limits=limits or StompLimits(),
            clock=lambda: NOW_MS,
            authenticator=authenticator,
        )
        link.session = session
        peer = Peer(session, link, broker)
        if version is not None:
            [answer] = peer.send(f"CONNECT\naccept-version:{version}\nhost:h\n{headers}\n^")
            assert answer.startswith("CONNECTED\n")
        return peer

    return open_peer


def headers_of(frame: str) -> dict[str, str]:
    """Return a frame's headers; a repeated name is an error of ours."""
    _, _, rest = frame.partition("\n")
    lines = rest.partition("\n\n")[0].split("\n")
    names = [line.partition(":")[0] for line in lines]
    assert len(names) == len(set(names)), frame
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture
def parsed() -> Callable[[str], tuple[str, dict[str, str], str]]:
    """Return a function that splits a server's frame: command, raw headers, body."""

    def parse_frame(frame: str) -> tuple[str, dict[str, str], str]:
        return frame.partition("\n")[0], headers_of(frame), frame.partition("\n\n")[2]

    return parse_frame
