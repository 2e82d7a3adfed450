"""Hostile ends of a bridge: conversations with frames that are mutated, left out, repeated, or of another kind."""

import gc
import logging
import os
import random
import struct
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest

from benchmarks.fuzz.bytes_mutations import mutated, rearranged
from benchmarks.fuzz.values import Values
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.transports.network.bridge import BridgeEnd, BridgeSession
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from tests.unit.transports.network.bridges import Near, TwoBrokers, named_broker
from tests.unit.transports.openwire.conversation import FakeLink, OpenWireClient, settings

CASES: Final = int(os.environ.get("PYBROKER_CASES", "100"))
"""Conversations of each test; more for an hour of fuzzing."""
SEED: Final = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
OUTPUT_BYTES_MAX: Final = 1 << 20
"""Far more than an end writes in answer to a few kilobytes."""
MESSAGES: Final = 5
Frames = tuple[list[bytes], list[bytes]]
"""Those of the near end and of the far end."""
SessionRef = weakref.ref[BridgeSession] | weakref.ref[OpenWireSession]
_SIZE: Final = struct.Struct(">i")
_FORMAT: Final = WireFormat(12)


def recorded() -> Frames:
    """Return the frames of the near and of the far end of a bridge with demand, durable demand and messages."""
    brokers = TwoBrokers(sync_durable_subs=True, dynamically_included=(queue(">"), topic(">")))
    brokers.cut()
    session, link = brokers.near.bridge(sync_durable_subs=True, dynamically_included=(queue(">"), topic(">")))
    brokers.session, brokers.link = session, link
    far_link = brokers.far_link = FakeLink()
    brokers.far_session = far_session = OpenWireSession(
        broker=brokers.far, link=far_link, settings=settings(), sessions=Sessions()
    )
    far_link.session = far_session
    near_bytes, far_bytes = bytearray(), bytearray()

    def carry() -> None:
        while brokers.near.soon or link.output or far_link.output:
            while brokers.near.soon:
                brokers.near.soon.pop(0)()
            near, link.output = bytes(link.output), bytearray()
            far, far_link.output = bytes(far_link.output), bytearray()
            near_bytes.extend(near)
            far_bytes.extend(far)
            far_session.receive(near)
            session.receive(far)
            session.written()
            far_session.written()

    carry()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(queue("Q"), 1)
    reader.consume(topic("T.>"), 2, subscription_name="durable")
    carry()
    producer.send(queue("Q"), "1", "2")
    producer.send(topic("T.1"), "3")
    carry()
    assert session.forwarded_count == 3
    return frames_of(near_bytes), frames_of(far_bytes)


def frames_of(data: bytes | bytearray) -> list[bytes]:
    """Return frames without their sizes."""
    found: list[bytes] = []
    while data:
        (size,) = _SIZE.unpack_from(data)
        found.append(bytes(data[_SIZE.size : _SIZE.size + size]))
        data = data[_SIZE.size + size :]
    return found


def hostile(frames: Sequence[bytes], dice: random.Random) -> bytes:
    """Return a conversation that is nearly right."""
    changed = rearranged(frames, dice)
    for _ in range(dice.choice((0, 0, 1, 3))):
        try:
            other = _FORMAT.encode(Values(dice, "near", "far", (None, None)).command(12))
        except UnencodableOpenWire:  # a string that does not fit, for instance
            continue
        changed.insert(dice.randrange(1, len(changed) + 1), other)
    data = b"".join(_SIZE.pack(len(each)) + each for each in changed)
    return mutated(data, dice, changed) if dice.random() < 0.2 else data


def chunks(data: bytes, dice: random.Random) -> list[bytes]:
    """Cut bytes at random."""
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 3))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.fixture(scope="module")
def frames() -> Frames:
    return recorded()


@dataclass
class Outcomes:
    """The ends of sessions, for proof that conversations got far."""

    sessions: list[SessionRef] = field(default_factory=lambda: list[SessionRef]())
    endings: set[BridgeEnd | None] = field(default_factory=set[BridgeEnd | None])
    confirmed: int = 0

    def left(self) -> int:
        """Return how many sessions there are still."""
        gc.collect()
        return sum(each() is not None for each in self.sessions)


def client_of(broker: BrokerCore, name: str) -> OpenWireClient:
    """Return a client that has sent messages to a queue."""
    client = OpenWireClient(broker)
    client.connect("p")
    client.open_session()
    client.send(queue(name), *map(str, range(MESSAGES)))
    return client


def waiting(broker: BrokerCore, name: str) -> int:
    """Return the messages of a queue."""
    found = broker.queues.get(queue(name))
    return 0 if found is None else len(found.pending) + len(found.in_flight())


def play_acceptor(data: list[bytes], outcomes: Outcomes) -> None:
    """Give chunks to a bridge, and check what the near broker has afterwards."""
    near = Near(named_broker("near"))
    session, link = near.bridge(sync_durable_subs=True, dynamically_included=(queue(">"), topic(">")))
    outcomes.sessions.append(weakref.ref(session))
    client = client_of(near.broker, "Q")
    for chunk in data:
        session.receive(chunk)
        while near.soon:
            near.soon.pop(0)()
        session.written()
        session.on_timer()
    assert len(link.output) <= OUTPUT_BYTES_MAX
    outcomes.endings.add(session.end)
    session.lost()
    assert near.ended == [session]
    outcomes.confirmed += session.forwarded_count
    left = waiting(near.broker, "Q") + waiting(near.broker, "ActiveMQ.DLQ")
    assert left + session.forwarded_count >= MESSAGES, "only what the other end has confirmed may go"
    assert [each.connection_id for each in near.broker.connections()] == [client.id]


def play_initiator(data: list[bytes], outcomes: Outcomes) -> None:
    """Give chunks to an acceptor, and check what the far broker has afterwards."""
    far, link = named_broker("far"), FakeLink()
    client = client_of(far, "KEPT")
    session = OpenWireSession(broker=far, link=link, settings=settings(), sessions=Sessions())
    link.session = session
    outcomes.sessions.append(weakref.ref(session))
    for chunk in data:
        if not link.closed:
            session.receive(chunk)
            session.written()
            session.on_timer()
    assert len(link.output) <= OUTPUT_BYTES_MAX
    session.lost()
    assert waiting(far, "KEPT") == MESSAGES
    assert [each.connection_id for each in far.connections()] == [client.id]


def test_hostile_acceptor_only_ends_the_bridge(frames: Frames, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised, no message is lost that it has not confirmed, and nothing is left of the bridge."""
    caplog.set_level(logging.CRITICAL)  # records of the log would keep sessions
    outcomes = Outcomes()
    for case in range(CASES):
        dice = random.Random(f"{SEED} {case}")
        with noted(case):
            play_acceptor(chunks(hostile(frames[1], dice), dice), outcomes)
    assert not outcomes.left()
    assert {None, BridgeEnd.LOST} <= outcomes.endings, "some conversations go on, some are broken"
    assert outcomes.confirmed > CASES / 10, "messages went over many of the bridges"


def test_hostile_initiator_only_ends_its_connection(frames: Frames, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised, messages of others stay, and no connection is left."""
    caplog.set_level(logging.CRITICAL)
    outcomes = Outcomes()
    for case in range(CASES):
        dice = random.Random(f"{SEED} {case}")
        with noted(case):
            play_initiator(chunks(hostile(frames[0], dice), dice), outcomes)
    assert not outcomes.left()


@contextmanager
def noted(case: int) -> Generator[None]:
    """Add to a failure how it is repeated."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"PYBROKER_SEED={SEED} PYBROKER_CASES={case + 1}")
        raise
