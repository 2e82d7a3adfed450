"""Transactions: the coordinator, what is sent and settled in them, and what becomes of it."""

from typing import Any

import pytest

from pybroker.broker.domain.amqp.composites import append_composite
from pybroker.broker.domain.amqp.frames import AmqpLimits
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpCoordinator,
    AmqpDeclare,
    AmqpDeclared,
    AmqpDeliveryState,
    AmqpDetach,
    AmqpDischarge,
    AmqpEnd,
    AmqpModified,
    AmqpRejected,
    AmqpReleased,
    AmqpTransactionalState,
    AmqpTransfer,
)
from pybroker.broker.domain.amqp.values import AmqpDescribed
from pybroker.broker.domain.destination import queue
from pybroker.transports.amqp import transactions
from tests.compiled import interpreted
from tests.unit.transports.amqp.conversation import Peer, World, text

COORDINATOR = 9


@pytest.fixture
def world() -> World:
    """A broker."""
    return World()


def request(value: object) -> bytes:
    out = bytearray(b"\0\x53\x77")
    append_composite(out, value)
    return bytes(out)


def transacting(world: World, container: str = "c") -> Peer:
    peer = world.open(container)
    attached, flow = peer.sender(None, COORDINATOR, target=AmqpCoordinator())
    assert isinstance(attached.target, AmqpCoordinator)
    assert flow.link_credit == 1000
    peer.sender("q", 0)
    peer.receiver("q", 1)
    return peer


def declare(peer: Peer) -> bytes:
    [answer] = peer.transfer(request(AmqpDeclare()), COORDINATOR)
    assert answer.settled
    assert isinstance(answer.state, AmqpDeclared)
    return answer.state.txn_id


def discharge(peer: Peer, txn_id: bytes, *, fail: bool = False) -> Any:
    answers = peer.transfer(request(AmqpDischarge(txn_id=txn_id, fail=fail)), COORDINATOR)
    states = [each.state for each in answers if getattr(each, "role", False)]
    return states[0] if states else None


def size(world: World, name: str = "q") -> int:
    found = world.broker.queues.get(queue(name))
    return 0 if found is None else found.counters().size


def within(txn_id: bytes, outcome: AmqpDeliveryState | None = None) -> AmqpTransactionalState:
    assert not isinstance(outcome, AmqpDescribed)
    return AmqpTransactionalState(txn_id=txn_id, outcome=outcome)  # type: ignore[arg-type]


def test_transaction_ids_are_numbers_of_eight_bytes(world: World) -> None:
    peer = transacting(world)
    assert declare(peer) == b"\0\0\0\0\0\0\0\1"
    assert declare(peer) == b"\0\0\0\0\0\0\0\2"


def test_sends_are_visible_after_the_commit(world: World) -> None:
    peer = transacting(world)
    txn_id = declare(peer)
    peer.credit(5)
    [answer] = peer.transfer(text("m"), state=within(txn_id))
    assert answer.settled
    assert answer.state == within(txn_id, AmqpAccepted())
    assert peer.messages() == []
    world.store.is_slow = True
    assert discharge(peer, txn_id) is None
    world.store.sync()
    peer.receive()
    assert [each.body for each in peer.messages(peer.frames)] == ["m"]
    assert AmqpAccepted() in [getattr(each.performative, "state", None) for each in peer.frames]


def test_sends_are_dropped_by_a_rollback(world: World) -> None:
    peer = transacting(world)
    txn_id = declare(peer)
    peer.transfer(text("m"), state=within(txn_id))
    assert discharge(peer, txn_id, fail=True) == AmqpAccepted()
    assert size(world) == 0


@pytest.mark.parametrize("ending", [AmqpDetach(handle=COORDINATOR, closed=True), AmqpDetach(handle=COORDINATOR)])
def test_end_of_the_coordinator_rolls_its_transactions_back(world: World, ending: AmqpDetach) -> None:
    peer = transacting(world)
    peer.sender(None, COORDINATOR + 1, target=AmqpCoordinator())
    received(peer, "m")
    txn_id = declare(peer)
    [answer] = peer.transfer(request(AmqpDeclare()), COORDINATOR + 1)
    other_id = answer.state.txn_id
    peer.transfer(text("a"), state=within(txn_id))
    peer.transfer(text("b"), state=within(other_id))
    peer.settle(0, within(txn_id, AmqpAccepted()))
    peer.take(5, delivery_count=1)
    peer.send(ending)
    [again] = peer.messages(peer.frames)
    assert again.body == "m"
    assert again.message.header is not None
    assert again.message.header.delivery_count == 1
    answers = peer.transfer(request(AmqpDischarge(txn_id=other_id, fail=False)), COORDINATOR + 1)
    assert AmqpAccepted() in [getattr(each, "state", None) for each in answers]
    assert size(world) == 2
    [answer] = peer.transfer(text("c"), state=within(txn_id))
    assert isinstance(answer.state, AmqpRejected)


def received(peer: Peer, *bodies: str) -> None:
    for body in bodies:
        peer.transfer(text(body))
    assert peer.take(len(bodies)) == list(bodies)


@pytest.mark.parametrize("settled", [True, False])
def test_accepted_messages_are_gone_after_the_commit(world: World, settled: bool) -> None:
    peer = transacting(world)
    received(peer, "a")
    txn_id = declare(peer)
    assert peer.settle(0, within(txn_id, AmqpAccepted()), settled=settled) == []
    assert size(world) == 1
    assert discharge(peer, txn_id) == AmqpAccepted()
    assert size(world) == 0


def test_unsettled_delivery_is_settled_by_the_commit(world: World) -> None:
    peer = transacting(world)
    received(peer, "a")
    txn_id = declare(peer)
    peer.settle(0, within(txn_id, AmqpAccepted()), settled=False)
    answers = peer.transfer(request(AmqpDischarge(txn_id=txn_id)), COORDINATOR)
    settled = [each for each in answers if each.role is False]
    assert [(each.first, each.settled) for each in settled] == [(0, True)]


def test_settled_messages_come_again_after_a_rollback(world: World) -> None:
    peer = transacting(world)
    received(peer, "a")
    txn_id = declare(peer)
    peer.settle(0, within(txn_id, AmqpAccepted()))
    assert discharge(peer, txn_id, fail=True) == AmqpAccepted()
    peer.credit(1, delivery_count=1)
    [found] = peer.messages(peer.frames)
    assert found.message.header is not None
    assert (found.body, found.message.header.delivery_count) == ("a", 1)


def test_message_settled_after_its_outcome_comes_again_after_a_rollback(world: World) -> None:
    peer = transacting(world)
    peer.transfer(text("a"))
    assert peer.take(2) == ["a"]
    txn_id = declare(peer)
    peer.settle(0, within(txn_id, AmqpAccepted()), settled=False)
    peer.settle(0, within(txn_id, AmqpAccepted()), settled=True)
    discharge(peer, txn_id, fail=True)
    [again] = peer.messages(peer.frames)
    assert again.body == "a"
    assert again.message.header is not None
    assert again.message.header.delivery_count == 1


def test_unsettled_messages_stay_with_the_client_after_a_rollback(world: World) -> None:
    peer = transacting(world)
    received(peer, "a")
    txn_id = declare(peer)
    peer.settle(0, within(txn_id, AmqpAccepted()), settled=False)
    discharge(peer, txn_id, fail=True)
    assert peer.take(1, delivery_count=1) == []
    again = declare(peer)
    peer.settle(0, within(again, AmqpAccepted()))
    assert discharge(peer, again) == AmqpAccepted()
    assert size(world) == 0


@pytest.mark.parametrize(
    ("outcome", "left", "dead"),
    [(AmqpRejected(), 0, 1), (AmqpReleased(), 1, 0), (AmqpModified(delivery_failed=True), 1, 0)],
)
def test_other_outcomes_take_effect_at_the_commit(
    world: World, outcome: AmqpDeliveryState, left: int, dead: int
) -> None:
    peer = transacting(world)
    received(peer, "a")
    txn_id = declare(peer)
    peer.settle(0, within(txn_id, outcome))
    assert (size(world), size(world, "ActiveMQ.DLQ")) == (1, 0)
    assert peer.take(1, delivery_count=1) == []
    assert discharge(peer, txn_id) == AmqpAccepted()
    assert (size(world), size(world, "ActiveMQ.DLQ")) == (left, dead)
    assert [each.body for each in peer.messages(peer.frames)] == ["a"] * left


@interpreted
def test_other_outcomes_of_open_transactions_are_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would hold any number of deliveries that are no longer unsettled, which are limited."""
    monkeypatch.setattr(transactions, "OTHERS_MAX", 3)
    peer = transacting(world)
    received(peer, *"abcdef")
    one, two = declare(peer), declare(peer)
    assert peer.settle(0, within(one, AmqpReleased()), last=1) == []
    assert peer.settle(2, within(two, AmqpRejected())) == []
    assert discharge(peer, one, fail=True) == AmqpAccepted()
    assert peer.settle(3, within(two, AmqpReleased()), last=4, settled=False) == []
    assert peer.settle(3, within(two, AmqpReleased()), last=4, settled=False) == []
    [ended] = peer.settle(5, within(two, AmqpModified()))
    assert isinstance(ended, AmqpEnd)
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"


def test_two_transactions_at_once(world: World) -> None:
    peer = transacting(world)
    one, two = declare(peer), declare(peer)
    peer.transfer(text("one"), state=within(one))
    peer.transfer(text("two"), state=within(two))
    discharge(peer, two)
    assert peer.take(5) == ["two"]
    discharge(peer, one)
    assert [each.body for each in peer.messages(peer.frames)] == ["one"]


def test_unknown_transaction_is_refused(world: World) -> None:
    peer = transacting(world)
    state = discharge(peer, b"nope")
    assert state.error.condition == "amqp:transaction:unknown-id"
    [answer] = peer.transfer(text("m"), state=within(b"nope"))
    assert answer.state.error.condition == "amqp:transaction:unknown-id"
    [ended] = peer.settle(0, within(b"nope", AmqpAccepted()))
    assert isinstance(ended, AmqpEnd)


def test_failed_send_dooms_its_transaction(world: World) -> None:
    peer = transacting(world)
    peer.sender(None, 5)
    txn_id = declare(peer)
    peer.transfer(text("m"), state=within(txn_id))
    [detached] = peer.transfer(text("without to"), 5, settled=True, state=within(txn_id))
    assert detached.error.condition == "amqp:precondition-failed"
    state = discharge(peer, txn_id)
    assert state.error.condition == "amqp:transaction:rollback"
    assert size(world) == 0


def test_settled_message_on_an_ended_link_dooms_its_transaction(world: World) -> None:
    peer = transacting(world)
    first, second = declare(peer), declare(peer)
    [ended] = peer.transfer(text("m"), 1, settled=True, state=within(first))
    assert isinstance(ended, AmqpDetach)
    assert peer.transfer(text("m"), 1, settled=True, state=within(second)) == []
    for txn_id in (first, second):
        assert isinstance(discharge(peer, txn_id), AmqpRejected)


def test_settled_message_that_becomes_too_long_dooms_its_transaction() -> None:
    world = World(limits=AmqpLimits(message_bytes_max=1000))
    peer = transacting(world)
    txn_id = declare(peer)
    begun = AmqpTransfer(handle=0, delivery_id=7, settled=True, more=True, state=within(txn_id))
    assert peer.send(begun, payload=b"x" * 900) == []
    [ended] = peer.send(AmqpTransfer(handle=0, more=True), payload=b"x" * 900)
    assert isinstance(ended, AmqpDetach)
    assert isinstance(discharge(peer, txn_id), AmqpRejected)


def test_lost_connection_rolls_back(world: World) -> None:
    peer = transacting(world)
    received(peer, "a")
    txn_id = declare(peer)
    peer.transfer(text("b"), state=within(txn_id))
    peer.settle(0, within(txn_id, AmqpAccepted()))
    peer.drop()
    other = transacting(world, "other")
    assert other.take(5) == ["a"]


def test_link_that_ends_within_a_transaction(world: World) -> None:
    peer = transacting(world)
    received(peer, "a", "b")
    txn_id = declare(peer)
    peer.settle(0, within(txn_id, AmqpAccepted()))
    peer.settle(1, within(txn_id, AmqpReleased()))
    peer.detach(1)
    assert discharge(peer, txn_id) == AmqpAccepted()
    assert size(world) == 1


@pytest.mark.parametrize("payload", [b"", text("m"), b"\0\x53\x77\0\x53\x99\x45"])
def test_message_that_is_no_request_ends_the_link(world: World, payload: bytes) -> None:
    peer = transacting(world)
    [detached] = peer.transfer(payload, COORDINATOR)
    assert detached.handle == COORDINATOR
    assert detached.error is not None


def test_distributed_transaction_is_refused(world: World) -> None:
    peer = transacting(world)
    declared = AmqpDeclare(global_id=AmqpDescribed(1, b"x"))
    [detached] = peer.transfer(request(declared), COORDINATOR)
    assert detached.error.condition == "amqp:not-implemented"
