"""Breaks at any byte lose no unacknowledged message, duplicate none, and preserve the order."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue
from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import AckMode
from pybroker.client.errors import ClientError, TransactionInDoubt, TransactionRolledBack
from pybroker.client.messages import Message
from pybroker.client.pending import PendingResult
from tests.unit.client.world import World

IN, OUT = queue("in"), queue("out")

cuts = st.tuples(st.integers(0, 1500), st.integers(0, 1500))
steps = st.lists(st.sampled_from(["send", "send", "take", "run"]) | cuts, max_size=40)
modes = st.sampled_from([AckMode.AUTO, AckMode.CLIENT, AckMode.INDIVIDUAL])


@given(modes, st.integers(1, 5), steps)
def test_every_message_arrives_once_and_in_order(
    ack: AckMode, prefetch: int, script: list[str | tuple[int, int]]
) -> None:
    world = World()
    producer, _ = world.state.producers.add()
    consumer, _ = world.state.subscribe(IN, ack=ack, prefetch=prefetch)
    sent: list[PendingResult[None]] = []
    seen: list[int] = []

    def receive_one() -> bool:
        message = consumer.receive_no_wait()
        if message is None:
            return False
        seen.append(int(str(message.body)))
        if ack is not AckMode.AUTO:
            message.ack()
        return True

    for step in script:
        if step == "send":
            sent.append(world.state.send(producer, IN, str(len(sent)), {}))
        elif step == "take":
            receive_one()
        elif isinstance(step, tuple):
            world.cut_after(*step)
        else:
            world.run()
    _until_nothing_comes(world, receive_one)
    assert [pending.error for pending in sent] == [None] * len(sent)
    assert all(pending.is_done for pending in sent)
    assert seen == list(range(len(sent)))
    _assert_empty(world, consumer)


late_steps = st.lists(st.sampled_from(["send", "take", "take", "run"]) | st.integers(0, 9) | cuts, max_size=40)


@given(st.sampled_from([AckMode.CLIENT, AckMode.INDIVIDUAL]), late_steps)
def test_messages_acknowledged_late_arrive_once(ack: AckMode, script: list[str | int | tuple[int, int]]) -> None:
    """The application keeps messages over breaks. A number in the script selects the next one to acknowledge."""
    world = World()
    producer, _ = world.state.producers.add()
    consumer, _ = world.state.subscribe(IN, ack=ack, prefetch=100)
    sent = 0
    seen: list[int] = []
    held: list[Message] = []

    def receive_one() -> bool:
        message = consumer.receive_no_wait()
        if message is not None:
            seen.append(int(str(message.body)))
            held.append(message)
        return message is not None

    for step in script:
        if step == "send":
            world.state.send(producer, IN, str(sent), {})
            sent += 1
        elif step == "take":
            receive_one()
        elif isinstance(step, tuple):
            world.cut_after(*step)
        elif isinstance(step, int):
            if held:
                held.pop(step % len(held)).ack()
        else:
            world.run()
    _until_nothing_comes(world, receive_one)
    for message in held:
        message.ack()
    world.run()
    assert seen == list(range(sent))
    _assert_empty(world, consumer)


@given(steps)
def test_every_message_is_moved_once_by_transactions(script: list[str | tuple[int, int]]) -> None:
    """The application repeats a rolled back transaction; after one in doubt it processes what is redelivered."""
    world = World()
    producer, _ = world.state.producers.add()
    source, _ = world.state.subscribe(IN, ack=AckMode.TRANSACTED, prefetch=3)
    sent = 0

    def move() -> bool:
        message = source.receive_no_wait()
        if message is None:
            return False
        transaction = world.state.transactions.begin()
        try:
            world.state.transactions.acknowledge(transaction, message)
            world.state.transactions.send(transaction, OUT, str(message.body), {})
            outcome = world.state.transactions.commit(transaction)
            world.run()
            assert outcome.is_done
            outcome.result()
        except (TransactionRolledBack, TransactionInDoubt):
            world.state.transactions.rollback(transaction)
        return True

    for step in script:
        if step == "send":
            world.state.send(producer, IN, str(sent), {})
            sent += 1
        elif step == "take":
            move()
        elif isinstance(step, tuple):
            world.cut_after(*step)
        else:
            world.run()
    _until_nothing_comes(world, move)
    assert _drained(world) == [str(number) for number in range(sent)]
    _assert_empty(world, source)


@given(st.integers(1, 6), st.lists(cuts, max_size=4))
def test_a_transaction_of_sends_takes_effect_as_a_whole(count: int, all_cuts: list[tuple[int, int]]) -> None:
    world = World()
    transaction = world.state.transactions.begin()
    for number in range(count):
        world.state.transactions.send(transaction, OUT, str(number), {})
        if all_cuts:
            world.cut_after(*all_cuts.pop())
        world.run()
    outcome = world.state.transactions.commit(transaction)
    if all_cuts:
        world.cut_after(*all_cuts.pop())
    world.run()
    assert outcome.is_done
    done = [str(number) for number in range(count)]
    if outcome.error is None:
        assert _drained(world) == done
    else:
        assert isinstance(outcome.error, TransactionInDoubt)
        assert _drained(world) in ([], done)


def _until_nothing_comes(world: World, receive_one: Callable[[], bool]) -> None:
    """Receive until three attempts return nothing: an acknowledgement may let the broker send more."""
    idle = 0
    while idle < 3:
        world.run()
        idle = 0 if receive_one() else idle + 1


def _drained(world: World) -> list[object]:
    consumer, _ = world.state.subscribe(OUT, ack=AckMode.AUTO, prefetch=10)
    received: list[Message] = []

    def receive_one() -> bool:
        message = consumer.receive_no_wait()
        if message is not None:
            received.append(message)
        return message is not None

    _until_nothing_comes(world, receive_one)
    return [message.body for message in received]


def _assert_empty(world: World, consumer: ConsumerState) -> None:
    """Check that no acknowledged message is delivered to another consumer."""
    world.state.unsubscribe(consumer)
    other, pending = world.state.subscribe(IN, ack=AckMode.INDIVIDUAL, prefetch=100)
    world.run()
    assert pending.is_done
    assert other.receive_no_wait() is None
    world.state.fail(ClientError("over"))
