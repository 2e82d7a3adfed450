"""Settlement of deliveries: accepted, rejected, released, modified, or settled without a state."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpDeliveryState,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpErrorCondition,
    AmqpModified,
    AmqpReceived,
    AmqpRejected,
    AmqpReleased,
)
from pybroker.broker.domain.amqp.values import Symbol
from pybroker.broker.domain.destination import queue
from pybroker.transports.amqp import channel
from tests.compiled import interpreted
from tests.unit.transports.amqp.conversation import Peer, Received, World, text

DLQ = queue("ActiveMQ.DLQ")


@pytest.fixture
def world() -> World:
    """A broker."""
    return World()


def size(world: World, name: str = "q") -> int:
    found = world.broker.queues.get(queue(name))
    return 0 if found is None else found.counters().size


def filled(world: World, *bodies: str, durable: bool = True) -> None:
    sender = world.open("filler")
    sender.sender("q")
    for body in bodies:
        sender.transfer(text(body, durable=durable))
    sender.drop()


def receiving(world: World, credit: int = 1, container: str = "r", **fields: Any) -> tuple[Peer, list[Received]]:
    peer = world.open(container)
    peer.receiver("q", **fields)
    peer.credit(credit)
    return peer, peer.messages(peer.frames)


def failed_count(found: Received) -> int:
    header = found.message.header
    return 0 if header is None else header.delivery_count or 0


@pytest.mark.parametrize("durable", [True, False])
def test_rejected_message_is_a_dead_letter_if_durable(world: World, durable: bool) -> None:
    filled(world, "m", durable=durable)
    peer, _ = receiving(world)
    error = AmqpErrorCondition(condition=Symbol("x:y"), description="bad")
    assert peer.settle(0, AmqpRejected(error=error)) == []
    assert size(world) == 0
    assert size(world, "ActiveMQ.DLQ") == int(durable)


AGAIN = [
    (AmqpReleased(), 0),
    (AmqpModified(), 0),
    (AmqpModified(delivery_failed=False, undeliverable_here=False), 0),
    (AmqpModified(delivery_failed=True), 1),
]


@pytest.mark.parametrize(("state", "count"), AGAIN)
def test_message_that_is_given_back_goes_to_another_client(world: World, state: AmqpDeliveryState, count: int) -> None:
    filled(world, "m")
    peer, _ = receiving(world)
    other, nothing = receiving(world, container="other")
    assert nothing == []
    assert peer.settle(0, state) == []
    [found] = other.messages()
    assert (found.body, failed_count(found)) == ("m", count)


@pytest.mark.parametrize(("state", "count"), AGAIN)
def test_message_that_is_given_back_comes_again_if_there_is_credit(
    world: World, state: AmqpDeliveryState, count: int
) -> None:
    filled(world, "m")
    peer, _ = receiving(world, credit=2)
    peer.settle(0, state)
    [found] = peer.messages(peer.frames)
    assert (found.body, found.transfer.delivery_id, failed_count(found)) == ("m", 1, count)
    peer.settle(1, state)
    assert peer.messages(peer.frames) == []  # without credit it waits
    assert peer.take(1, delivery_count=2) == ["m"]


def test_message_that_fails_too_often_is_a_dead_letter() -> None:
    world = World(policy=DestinationPolicy(max_redeliveries=3))
    filled(world, "m")
    peer, _ = receiving(world, credit=10)
    for number in range(4):
        peer.settle(number, AmqpModified(delivery_failed=True))
    assert size(world) == 0
    assert size(world, "ActiveMQ.DLQ") == 1


def test_undeliverable_message_goes_to_another_link_only(world: World) -> None:
    filled(world, "m")
    peer, _ = receiving(world, credit=10)
    peer.settle(0, AmqpModified(undeliverable_here=True, delivery_failed=True))
    assert peer.messages(peer.frames) == []
    assert size(world) == 1
    _, [found] = receiving(world, container="other")
    assert (found.body, failed_count(found)) == ("m", 1)


@pytest.mark.parametrize(
    ("default", "left"),
    [(None, 1), (AmqpReleased(), 1), (AmqpAccepted(), 0), (AmqpModified(delivery_failed=True), 1)],
)
def test_message_settled_without_state_has_the_default_outcome(
    world: World, default: AmqpDeliveryState | None, left: int
) -> None:
    filled(world, "m")
    peer, _ = receiving(world, default_outcome=default)
    assert peer.settle(0, None) == []
    assert size(world) == left
    assert peer.take(1, delivery_count=1) == ["m"] * left


def test_state_that_is_no_outcome_settles_nothing(world: World) -> None:
    filled(world, "m")
    peer, _ = receiving(world)
    assert peer.settle(0, AmqpReceived(section_number=0, section_offset=0), settled=False) == []
    assert peer.settle(0, None, settled=False) == []
    peer.settle(0)
    assert size(world) == 0


@interpreted
@pytest.mark.parametrize("state", [AmqpReceived(section_number=0, section_offset=0), None])
def test_range_without_an_outcome_is_not_searched(
    world: World, state: AmqpDeliveryState | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of such frames come, each of which would look at all that the client has not settled."""
    filled(world, "m")
    peer, _ = receiving(world)
    searched: list[int] = []

    def search(first: int, *_: object) -> list[int]:
        searched.append(first)
        return []

    monkeypatch.setattr(channel, "within", search)
    assert peer.settle(0, state, last=0xFFFF_FFFF, settled=False) == []
    assert searched == []
    peer.settle(0, last=0xFFFF_FFFF)
    assert searched == [0]


def test_range_is_settled_with_one_disposition(world: World) -> None:
    filled(world, *map(str, range(5)))
    peer, found = receiving(world, credit=10)
    assert len(found) == 5
    [answer] = peer.settle(1, AmqpAccepted(), last=3, settled=False)
    assert answer == AmqpDisposition(role=False, first=1, last=3, settled=True, state=AmqpAccepted())
    assert size(world) == 2
    peer.settle(0, last=0xFFFF_FFFF)
    assert size(world) == 0


def test_unknown_deliveries_are_ignored(world: World) -> None:
    peer, _ = receiving(world)
    assert peer.settle(7, last=1_000_000_000) == []


def test_disposition_of_a_sender_is_ignored(world: World) -> None:
    filled(world, "m")
    peer, _ = receiving(world)
    assert peer.send(AmqpDisposition(role=False, first=0, settled=True, state=AmqpAccepted())) == []
    assert size(world) == 1


def test_presettled_message_is_gone_once_it_has_left(world: World) -> None:
    filled(world, "m")
    peer, [found] = receiving(world, snd_settle_mode=1)
    assert found.transfer.settled
    assert size(world) == 0
    assert peer.settle(0) == []


@pytest.mark.parametrize("end", [AmqpDetach(handle=1, closed=True), AmqpDetach(handle=1, closed=False), AmqpEnd()])
def test_link_that_ends_gives_messages_back_unmarked(world: World, end: AmqpDetach | AmqpEnd) -> None:
    filled(world, "m")
    peer, _ = receiving(world)
    assert peer.send(end) == [end]
    _, [found] = receiving(world, container="other")
    assert (found.body, failed_count(found)) == ("m", 0)


def test_session_that_ends_keeps_the_connection(world: World) -> None:
    filled(world, "m")
    peer, _ = receiving(world)
    peer.send(AmqpEnd())
    peer.begin()
    peer.receiver("q")
    assert peer.take(1) == ["m"]


def test_topic_messages_need_no_outcome(world: World) -> None:
    peer = world.open()
    peer.receiver("topic://t")
    peer.credit(3)
    peer.sender("topic://t")
    for body in "abcd":
        peer.transfer(text(body), 0)
    peer.receive()
    assert peer.settle(0, AmqpReleased(), settled=False) == [
        AmqpDisposition(role=False, first=0, settled=True, state=AmqpReleased())
    ]
    assert peer.take(1, delivery_count=3) == ["d"]


def test_link_that_closes_behind_other_work_gets_nothing(world: World) -> None:
    filled(world, *map(str, range(600)))
    peer = world.open("r")
    peer.receiver("q", 1)
    peer.receiver("q", 2)
    assert len(peer.take(600, 1)) == 600
    peer.credit(600, 2, next_incoming_id=600)
    pieces: list[Callable[[], None]] = []
    world.broker.usage.paging.later = pieces.append
    [ended] = peer.send(AmqpDetach(handle=77))
    assert isinstance(ended, AmqpEnd)
    while pieces:
        pieces.pop(0)()
        assert peer.performatives() == []
    world.broker.usage.paging.later = None
    peer.send(AmqpEnd())
    peer.begin()
    peer.receiver("q", 1)
    assert len(peer.take(1000, 1)) == 600
