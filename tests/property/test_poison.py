# mypy: disable-error-code="arg-type, attr-defined"
"""No message ends a broker, its master or another's connection, wherever the broker makes it again.

Messages with texts at the limits of what fits, and mutated ones, are sent by a real session through every place that
makes a message again: dead letters of all kinds, groups inside transactions, the scheduler, copies for virtual topics,
composite names and mirrors, retained messages, advisories, frames for STOMP and for older OpenWire. Whatever a message
is, chores and the ends of other connections go through, and a message that follows arrives.

`PYBROKER_TEST_PROFILE=long` sends 100,000 messages, in some twenty minutes; `PYBROKER_SEED` repeats a run.
"""

import logging
import os
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.policy import DestinationPolicy, FixedCountRecovery, PolicyMap
from pybroker.broker.core.virtual import CompositeDestination, Forward, MirroredQueues, VirtualTopic
from pybroker.broker.domain.destination import Destination, parse, queue, topic
from pybroker.broker.domain.openwire.commands import (
    ConnectionId,
    ConnectionInfo,
    ConsumerInfo,
    MessageDispatch,
    ProducerInfo,
    SessionId,
    SessionInfo,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, encode
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.appender import JournalSettings, SyncStrategy
from pybroker.store.journal.store import JournalStore
from pybroker.store.scheduler.store import JournalJobStore
from pybroker.transports.openwire.session import Sessions
from pybroker.transports.stomp.session import StompSession
from tests.conformance.conftest import Loop
from tests.runtimes import runtime
from tests.unit.transports.openwire.conversation import JAVA, NOW_MS, FakeLink, OpenWireClient, of_kind, texts

IS_LONG = settings.get_current_profile_name() == "long"
MESSAGES = 100_000 if IS_LONG else 200
LIFE = 250
"""Rounds, of a message on every way, between two masters."""
SEED = int(os.environ.get("PYBROKER_SEED") or random.SystemRandom().randrange(1 << 32))

NASTY = (
    b"\0" * 40_000,
    "\N{PILE OF POO}".encode() * 16_000,
    b"\xc0\x80" * 32_000,
    b"\xed\xa0\xbd\xed\xb2\xa9" * 10_000,  # a pair of surrogates, as Java writes it
    b"\xed\xa0\xbd" * 3,  # half of one
    b"\xc0\x80" + "\N{PILE OF POO}".encode() * 16_000,
    b"x" * 65_535,
    b"\xff\xfe",  # not UTF-8
    b"",
    b"a:b\nc\r\\d\0",
)
MARKS = (b"@@corr@@", b"@@type@@", b"@@group@@", b"@@name@@", b"@@value@@", b"@@user@@", b"@@reply@@")

WAYS: dict[str, str] = {
    "expiry": "queue://EXPIRY",
    "group in a transaction": "queue://GROUP",
    "redelivery": "queue://REDELIVERY",
    "schedule": "queue://LATER",
    "schedule in a transaction": "queue://LATER",
    "virtual topic": "topic://VirtualTopic.V",
    "composite name": "queue://A,topic://B,queue://C",
    "composite queue": "queue://COMPOSITE",
    "retained": "topic://RETAINED",
    "durable": "topic://DURABLE",
    "stomp and older openwire": "topic://SHOWN",
}
POLICY = DestinationPolicy(
    max_redeliveries=0, subscription_recovery_policy=FixedCountRecovery(maximum_size=3), always_retroactive=True
)
DEFINITIONS = (
    VirtualTopic(),
    CompositeDestination(
        destination=queue("COMPOSITE"),
        forward_to=(
            Forward(destination=topic("F"), selector="JMSType = 'x' OR n > 3"),
            Forward(destination=queue("G")),
        ),
        forward_only=False,
    ),
    MirroredQueues(),
)


class Clock:
    def __init__(self) -> None:
        self.now = NOW_MS

    def __call__(self) -> int:
        return self.now


class Member:
    """One master after the other on the same two journals, and clients of all kinds."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.rng = rng
        self.clock = Clock()
        self.loop = Loop()
        self.failures: list[Exception] = []
        self.names = 0
        self.sent = 0
        self.broken: Counter[str] = Counter()
        self.begin()

    def begin(self) -> None:
        self.store = JournalStore(self.directory / "kahadb", **self._common())
        self.jobs = JournalJobStore(self.directory / "scheduler", held_bytes_max=1 << 20, **self._common())
        self.broker = BrokerCore(
            "b1", store=self.store, clock=self.clock, policies=PolicyMap(default=POLICY), definitions=DEFINITIONS
        )
        self.broker.recover()
        recovered = self.jobs.recover()
        self.names += 1
        self.broker.open_scheduler(
            self.jobs, recovered, wake_at=lambda _: None, connection_id=f"ID:b-{self.names}", jobs_max=10_000
        )
        self.sessions = Sessions()
        if not self.broker.durables:
            info = DurableSubscription(
                client_id="d",
                name="s",
                destination=topic("DURABLE"),
                subscribed_destination=topic("DURABLE"),
                selector="JMSCorrelationID LIKE '%a' OR n = 1",
            )
            self.broker.durables.cover(self.broker.durables.add(info, None))
        self.broker.destinations.queue(queue("Consumer.a.VirtualTopic.V"))
        self.readers = [self.stomp("1.0"), self.stomp("1.2"), self.java(version=9), self.java(version=1)]
        self.listener = self.java(version=12, reads="queue://GROUP")
        self.producer = self.connect()

    def _common(self) -> dict[str, Any]:
        return {
            "runtime": runtime(self.loop.call_soon, on_failure=self.failures.append, clock=self.clock),
            "settings": JournalSettings(sync=SyncStrategy.NEVER, file_bytes_max=8 << 20),
        }

    def flush(self) -> None:
        """Have all of it on disk, and all who wait for that called."""
        done: list[int] = []
        self.broker.when_durable(lambda: done.append(1))
        self.loop.run_until(lambda: bool(done) or bool(self.failures))
        assert not self.failures
        self.loop.turn()

    def end(self) -> None:
        for client in (self.producer, self.listener, *self.readers):
            client.session.lost()
        assert not list(self.broker.connections()), "a client id that is never free again"
        self.flush()
        self.jobs.close()
        self.store.close(self.broker.delivered())
        assert not self.failures

    # ------------------------------------------------------------ clients

    def connect(self, version: int = 12) -> OpenWireClient:
        self.names += 1
        client = OpenWireClient(self.broker, self.sessions, offer=replace(JAVA, version=version))
        client.id = f"ID:c{self.names}"
        client.send_commands(
            ConnectionInfo(command_id=1, connection_id=ConnectionId(client.id), client_id=f"c{self.names}"),
            SessionInfo(command_id=2, session_id=SessionId(client.id, 1)),
            ProducerInfo(command_id=3, producer_id=client.producer()),
        )
        client.commands = 3
        return client

    def java(self, *, version: int, reads: str = "topic://>") -> OpenWireClient:
        client = self.connect(version)
        client.send_commands(
            ConsumerInfo(
                command_id=9, consumer_id=client.consumer(), destination=parse(reads), prefetch_size=10_000, priority=0
            )
        )
        return client

    def stomp(self, version: str) -> "StompClient":
        self.names += 1
        return StompClient(self.broker, f"ID:s{self.names}", version, self.clock)

    def drain(self) -> None:
        """Read what came, as a client that is not interested; clients that were cut off connect again."""
        for client in (self.producer, self.listener, *self.readers):
            client.link.output.clear()
            if not client.link.closed:
                client.session.written()
                client.link.output.clear()
        if self.producer.link.closed:
            self.producer.session.lost()
            self.producer = self.connect()
        assert not any(reader.link.closed for reader in (self.listener, *self.readers)), "cut off by another's message"

    # ------------------------------------------------------------ messages

    def send(self, way: str, data: bytes, transaction: LocalTransactionId | None) -> None:
        producer = self.producer
        frame = struct.pack(">i", len(data)) + data
        if transaction is not None:
            producer.send_commands(transact(producer, transaction, TransactionType.BEGIN))
        producer.session.receive(frame)
        if transaction is not None and not producer.link.closed:
            producer.send_commands(transact(producer, transaction, TransactionType.COMMIT_ONE_PHASE))
        if producer.link.closed:
            self.broken[way] += 1

    def message(self, way: str, number: int) -> tuple[bytes, LocalTransactionId | None]:
        """Return a message for a way, its texts replaced by nasty ones, and perhaps mutated."""
        rng, producer = self.rng, self.producer
        self.sent += 1
        sender = ProducerId(producer.id, 1, 1)
        transaction = LocalTransactionId(producer.id, self.sent) if "transaction" in way else None
        fields = OpenWireMessage(
            type=rng.choice([kind for kind in MessageType if kind is not MessageType.BLOB]),
            producer_id=sender,
            destination=Destination(parse(WAYS[way].partition(",")[0]).type, WAYS[way].partition("://")[2]),
            transaction_id=transaction,
            message_id=OpenWireMessageId(None, sender, self.sent),
            persistent=rng.random() < 0.8,
            correlation_id=rng.choice([None, "@@corr@@", "a"]),
            jms_type=rng.choice([None, "@@type@@", "x"]),
            user_id=rng.choice([None, None, "@@user@@"]),
            reply_to=rng.choice([None, None, queue("@@reply@@")]),
            content=rng.choice([None, b"", b"\0\0\0\x01a", rng.randbytes(rng.randrange(40))]),
            compressed=rng.random() < 0.05,
        )
        if way == "group in a transaction" or rng.random() < 0.2:
            fields.group_id = rng.choice(["@@group@@", f"g{number}"])
            fields.group_sequence = rng.choice([0, 1, -1])
        if way == "expiry":
            fields.expiration = self.clock() + 5
        properties: dict[str, object] = {"n": rng.randrange(6)}
        if rng.random() < 0.5:
            properties["@@name@@"] = rng.choice([1, "@@value@@", None, 2.5])
        if way.startswith("schedule"):
            properties["AMQ_SCHEDULED_DELAY"] = 5
        if way == "retained":
            properties["ActiveMQ.Retain"] = True
        fields.set_properties(properties)
        fields.marshalled_properties = with_nasty_texts(fields.marshalled_properties or b"", rng)
        data = with_nasty_texts(encode(fields), rng)
        return (mutated(data, rng) if rng.random() < 0.6 else data), transaction

    # ------------------------------------------------------------ a round

    def round(self, number: int) -> None:
        """Send a message on every way, and have done to it what makes it again."""
        for way in WAYS:
            data, transaction = self.message(way, number)
            self.send(way, data, transaction)
            self.drain()
        self.flush()
        taker = self.java(version=12, reads="queue://REDELIVERY")
        taker.session.written()
        taker.session.lost()
        self.clock.now += 10
        self.broker.remove_expired()
        self.broker.resume_stalled()
        assert self.broker.scheduler is not None
        self.broker.scheduler.fire(self.clock())
        self.flush()
        self.drain()
        if number % 50 == 0:
            self.read_letters()
            self.store.cleanup()
            self.jobs.cleanup()

    def read_letters(self) -> None:
        """Have readers of each kind receive the dead letters, and lose their connection or acknowledge them."""
        for name in (*self.rng.sample(sorted(each.name for each in self.broker.queues), 3), "ActiveMQ.DLQ"):
            for reader in (
                self.java(version=9, reads=f"queue://{name}"),
                self.java(version=12, reads=f"queue://{name}"),
            ):
                reader.session.written()
                reader.session.lost()
        for name in [each.name for each in self.broker.queues]:
            self.stomp("1.1").consume(name)
        self.flush()


class StompClient:
    """A STOMP client that shows what it can see."""

    def __init__(self, broker: BrokerCore, connection_id: str, version: str, clock: Clock) -> None:
        self.link = FakeLink()
        self.link.session = self.session = StompSession(
            broker=broker, link=self.link, connection_id=connection_id, limits=StompLimits(), clock=clock
        )
        self.send_frame(f"CONNECT\naccept-version:{version}\nhost:h\n\n\0")
        if connection_id:
            self.send_frame("SUBSCRIBE\nid:1\ndestination:/topic/>\nselector:n > 1 OR JMSType LIKE '%x'\n\n\0")
            self.send_frame("SUBSCRIBE\nid:2\ndestination:/topic/ActiveMQ.Advisory.>\nack:client\n\n\0")

    def send_frame(self, frame: str) -> None:
        self.session.receive(frame.encode())

    def consume(self, name: str) -> None:
        """Consume a queue."""
        self.send_frame(f"SUBSCRIBE\nid:9\ndestination:/queue/{name}\nactivemq.prefetchSize:10000\n\n\0")
        for _ in range(1000):
            if not self.link.output:
                break
            self.link.output.clear()
            self.session.written()
        self.session.lost()


def transact(client: OpenWireClient, transaction: LocalTransactionId, kind: TransactionType) -> TransactionInfo:
    return TransactionInfo(
        command_id=client.next_id(),
        connection_id=ConnectionId(client.id),
        transaction_id=transaction,
        type=kind,
    )


def with_nasty_texts(data: bytes, rng: random.Random) -> bytes:
    """Return encoded fields or properties with texts in the places of the marks."""
    for mark in MARKS:
        if mark in data:
            text = rng.choice(NASTY)
            data = data.replace(struct.pack(">H", len(mark)) + mark, struct.pack(">H", len(text)) + text)
    return data


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return a message with some bytes changed, taken out or put in, except its type byte."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        at = rng.randrange(6, len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at : at + rng.choice([1, 1, 4])]
            case _:
                changed[at:at] = rng.randbytes(rng.choice([1, 1, 4]))
        if len(changed) <= 7:
            break
    return bytes(changed)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing below critical: a hundred thousand broken messages are reported one by one."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.timeout(0)
def test_no_message_ends_a_broker() -> None:
    print(f"PYBROKER_SEED={SEED}")
    with tempfile.TemporaryDirectory() as directory, quiet():
        member = Member(Path(directory), random.Random(SEED))
        for number in range(1, MESSAGES // len(WAYS) + 2):
            member.round(number)
            if number % LIFE == 0:
                member.end()
                member.begin()
        member.read_letters()
        last = member.connect()
        last.send(queue("LAST"), "alive")
        member.flush()
        reader = member.java(version=12, reads="queue://LAST")
        assert texts(of_kind(reader.receive(), MessageDispatch)) == ["alive"]
        last.session.lost()
        reader.session.lost()
        member.end()
        print(f"{member.sent} messages on {len(WAYS)} ways; producers cut off: {member.broken.total()}")
