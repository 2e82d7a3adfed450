"""AMQP clients that act at random: no message is lost or accepted twice, and no frame makes the broker fail.

One seed gives one conversation; a failure shows it.
"""

import random
from typing import Any, Final

import pytest

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.amqp.composites import append_composite
from pybroker.broker.domain.amqp.frames import AmqpFrame
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpCoordinator,
    AmqpDeclare,
    AmqpDeclared,
    AmqpDetach,
    AmqpDischarge,
    AmqpDisposition,
    AmqpEnd,
    AmqpFlow,
    AmqpModified,
    AmqpReleased,
    AmqpSource,
    AmqpTarget,
    AmqpTransactionalState,
    AmqpTransfer,
)
from pybroker.broker.domain.amqp.values import Symbol
from pybroker.broker.domain.destination import queue
from tests.unit.transports.amqp.conversation import ACCEPTED, World, text

STEPS: Final = 150
SEEDS: Final = range(40)
COORDINATOR: Final = 9


def request(value: object) -> bytes:
    out = bytearray(b"\0\x53\x77")
    append_composite(out, value)
    return bytes(out)


class Worker:
    """Receives from a queue, and gives messages back now and then.

    Attributes:
        accepted: the bodies of messages that it has accepted, and whose transaction was committed.
    """

    def __init__(self, world: World, chance: random.Random, number: int) -> None:
        self.world = world
        self.chance = chance
        self.name = f"worker{number}"
        self.accepted: list[object] = []
        self.open()

    def open(self) -> None:
        """Connect."""
        self.peer = self.world.open(self.name, max_frame_size=self.chance.choice((512, 4096)))
        self.peer.sender(None, COORDINATOR, target=AmqpCoordinator())
        self.held: dict[int, object] = {}
        self.transfer_count = 0
        self.attach()

    def attach(self) -> None:
        """Attach the link."""
        self.link_count = 0
        self.begun: list[AmqpFrame] = []
        self.take(self.peer.receiver("q"))

    def take(self, _answers: list[Any]) -> None:
        """Note what came with answers: messages, of which some may have begun before, and the end of a drain."""
        for frame in self.peer.frames:
            performative = frame.performative
            if isinstance(performative, AmqpFlow) and performative.handle == 1:
                assert performative.delivery_count is not None
                self.link_count = performative.delivery_count
            if not isinstance(performative, AmqpTransfer):
                continue
            self.transfer_count += 1
            self.link_count += performative.delivery_id is not None
            self.begun.append(frame)
            if not performative.more:
                [found] = self.peer.messages(self.begun)
                assert found.transfer.delivery_id is not None
                self.held[found.transfer.delivery_id] = found.body
                self.begun = []

    def collect(self) -> None:
        """Note the messages that came without a request."""
        self.peer.receive()
        self.take([])

    def step(self) -> None:
        """Do something."""
        self.collect()
        if self.peer.link.wakes_at is not None and self.chance.random() < 0.5:
            self.peer.session.on_timer()
            self.collect()
        action = self.chance.choice(
            (self.credit, self.credit, self.settle, self.settle, self.settle, self.transact, self.detach, self.drop)
        )
        if action not in (self.detach, self.drop) or self.chance.random() < 0.2:
            if self.chance.random() < 0.2:
                self.peer.session.pause_writing()
            action()
            self.peer.session.written()
            self.collect()

    def credit(self) -> None:
        drain = self.chance.random() < 0.3
        window = self.chance.choice((0, 1, 3, 1000))
        self.take(
            self.peer.credit(
                self.chance.randrange(6),
                delivery_count=self.link_count,
                drain=drain,
                next_incoming_id=self.transfer_count,
                incoming_window=window,
            )
        )

    def settle(self) -> None:
        if not self.held:
            return
        number = self.chance.choice(list(self.held))
        body = self.held.pop(number)
        state = self.chance.choice((ACCEPTED, ACCEPTED, AmqpReleased(), AmqpModified(delivery_failed=True), None))
        if state is ACCEPTED:
            self.accepted.append(body)
        settled = state is None or self.chance.random() < 0.7
        self.take(self.peer.settle(number, state, settled=settled))

    def transact(self) -> None:
        answers = self.peer.transfer(request(AmqpDeclare()), COORDINATOR)
        [txn_id] = [each.state.txn_id for each in answers if isinstance(getattr(each, "state", None), AmqpDeclared)]
        self.take(answers)
        numbers = self.chance.sample(list(self.held), self.chance.randrange(len(self.held) + 1))
        settled = self.chance.random() < 0.5
        for number in numbers:
            self.take(
                self.peer.settle(number, AmqpTransactionalState(txn_id=txn_id, outcome=ACCEPTED), settled=settled)
            )
        fail = self.chance.random() < 0.5
        self.peer.transfer(request(AmqpDischarge(txn_id=txn_id, fail=fail)), COORDINATOR)
        for number in numbers:
            if not fail:
                self.accepted.append(self.held.pop(number))
            elif settled:
                del self.held[number]
        self.take([])

    def detach(self) -> None:
        self.collect()
        self.peer.detach(1, closed=False)
        self.held = {}
        self.attach()

    def drop(self) -> None:
        self.peer.drop()
        self.open()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_lost_or_accepted_twice(seed: int) -> None:
    chance = random.Random(seed)
    world = World(policy=DestinationPolicy(max_redeliveries=-1))
    sender = world.open("sender")
    sender.sender("q")
    workers = [Worker(world, chance, number) for number in range(3)]
    sent: list[object] = []
    for _ in range(STEPS):
        if chance.random() < 0.4:
            body = f"{len(sent)}" + "x" * chance.choice((0, 0, 2000))
            sender.transfer(text(body))
            sent.append(body)
        else:
            chance.choice(workers).step()
    for worker in workers:
        worker.peer.drop()
    last = world.open("last")
    last.receiver("q")
    left = last.take(len(sent) + 1)
    done = [body for worker in workers for body in worker.accepted]
    assert sorted(map(str, done + left)) == sorted(map(str, sent))
    last.settle(0, last=len(sent))
    assert world.broker.queues[queue("q")].counters().size == 0


# ---------------------------------------------------------------- frames in any order


class Hostile:
    """A client whose frames mostly belong to open sessions and attached links, and are strange otherwise."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.chance = chance
        self.peer = world.open(f"c{chance.random()}")
        self.links: dict[int, set[int]] = {0: set()}
        self._delivery_ids = 0

    def step(self) -> None:
        """Send some frame."""
        chance = self.chance
        channel = chance.choice(list(self.links)) if self.links else 0
        if channel not in self.links or chance.random() < 0.02:
            channel = (
                chance.choice((0, 1, 2)) if chance.random() < 0.1 else min({0, 1, 2}.difference(self.links), default=0)
            )
            self.links[channel] = set()
            frame: Any = AmqpBegin(next_outgoing_id=0, incoming_window=chance.choice((0, 1, 5)), outgoing_window=5)
        else:
            frame = self._frame(channel)
        txn_id = self._txn_id()
        payloads = (
            b"",
            text("m"),
            text("x" * 2000),
            b"junk",
            request(AmqpDeclare()),
            request(AmqpDischarge(txn_id=txn_id)),
        )
        self.peer.send(frame, channel=channel, payload=chance.choice(payloads))
        if any(isinstance(each.performative, AmqpEnd) for each in self.peer.frames) and channel in self.links:
            self.peer.send(AmqpEnd(), channel=channel)
            self.links.pop(channel)
        if chance.random() < 0.02:
            self.peer.link.now += 1.0
            self.peer.session.on_timer()

    def _txn_id(self) -> bytes:
        return self.chance.choice((b"\0\0\0\0\0\0\0\1", b"\0\0\0\0\0\0\0\2", b"x"))

    def _state(self) -> Any:
        outcome: Any = self.chance.choice(
            (AmqpAccepted(), AmqpReleased(), AmqpModified(undeliverable_here=True), AmqpModified(delivery_failed=True))
        )
        in_transaction = AmqpTransactionalState(txn_id=self._txn_id(), outcome=outcome)
        return self.chance.choice((None, outcome, outcome, outcome, in_transaction))

    def _frame(self, channel: int) -> Any:
        chance, links = self.chance, self.links[channel]
        handle = chance.choice(list(links)) if links and chance.random() < 0.98 else chance.randrange(6)
        kind = chance.randrange(40)
        if not links or kind < 8:
            handle = chance.randrange(6)
            if handle not in links or chance.random() < 0.02:
                links.add(handle)
                return self._attach(handle)
        if kind < 16:
            return AmqpFlow(
                next_incoming_id=0,
                incoming_window=chance.choice((0, 1, 50, 1 << 31)),
                next_outgoing_id=0,
                outgoing_window=0,
                handle=chance.choice((None, handle)),
                link_credit=chance.choice((None, 0, 3, 0xFFFF_FFFF)),
                delivery_count=chance.choice((None, 0, 1, 0xFFFF_FFFF)),
                drain=chance.random() < 0.3,
                echo=chance.random() < 0.3,
            )
        if kind < 28:
            self._delivery_ids += 1
            return AmqpTransfer(
                handle=handle,
                delivery_id=self._delivery_ids if chance.random() < 0.95 else None,
                more=chance.random() < 0.2,
                settled=chance.random() < 0.3,
                aborted=chance.random() < 0.1,
                state=self._state() if chance.random() < 0.3 else None,
            )
        if kind < 36:
            first = chance.randrange(10)
            return AmqpDisposition(
                role=chance.random() < 0.9,
                first=first,
                last=chance.choice((None, first + 2, 0xFFFF_FFFF)),
                settled=chance.random() < 0.5,
                state=self._state(),
            )
        if kind < 39:
            links.discard(handle)
            return AmqpDetach(handle=handle, closed=chance.random() < 0.5)
        self.links.pop(channel)
        return AmqpEnd()

    def _attach(self, handle: int) -> AmqpAttach:
        chance = self.chance
        address = chance.choice((None, "q", "q", "topic://t", "q?consumer.x=1", "temp-queue://x", "a,b", "q.>"))
        source = AmqpSource(
            address=address,
            dynamic=chance.random() < 0.2,
            durable=chance.choice((None, 2)),
            distribution_mode=chance.choice((None, Symbol("copy"))),
        )
        target: Any = chance.choice(
            (None, AmqpTarget(address="q"), AmqpTarget(address=address), AmqpTarget(dynamic=True), AmqpCoordinator())
        )
        return AmqpAttach(
            name=chance.choice(("l", "m")),
            handle=handle,
            role=chance.random() < 0.5,
            snd_settle_mode=chance.choice((None, 0, 1)),
            source=None if chance.random() < 0.1 else source,
            target=target,
            max_message_size=chance.choice((None, 500)),
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_strange_frames_are_no_error_of_the_broker(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    world = World()
    client = Hostile(world, chance)
    for _ in range(400):
        if client.peer.link.closed:
            client.peer.drop()
            client = Hostile(world, chance)
        client.step()
    client.peer.send(AmqpClose())
    client.peer.drop()
    assert not [each for each in caplog.records if each.exc_info]
    assert all(not found.is_in_use for found in world.broker.queues.values())
