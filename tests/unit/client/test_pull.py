"""A consumer with prefetch 0: the broker sends one message for each pull."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire import commands as wire
from pybroker.client.consumers import ANSWER_SECONDS, ConsumerState, Redelivery
from pybroker.client.conversation import AckMode
from pybroker.client.messages import Message
from tests.unit.client.world import World

Q = queue("q")


def fill(world: World, *bodies: str) -> None:
    producer, _ = world.state.producers.add()
    for body in bodies:
        world.state.send(producer, Q, body, {})
    world.run()


def puller(world: World, ack: AckMode = AckMode.INDIVIDUAL) -> ConsumerState:
    consumer, _ = world.state.subscribe(Q, ack=ack, prefetch=0)
    world.run()
    return consumer


def pulled(world: World, consumer: ConsumerState) -> Message | None:
    """Receive as the API does with a timeout of 0."""
    message = consumer.receive_no_wait()
    if message is None:
        consumer.pull(0)
        world.run()
        message = consumer.receive_no_wait()
    return message


def pulls(world: World) -> list[int]:
    return [command.timeout for command in world.commands() if isinstance(command, wire.MessagePull)]


def remaining(world: World) -> list[object]:
    other, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=100)
    world.run()
    bodies: list[object] = []
    while (message := other.receive_no_wait()) is not None:
        bodies.append(message.body)
    world.state.unsubscribe(other)
    world.run()
    return bodies


def test_each_pull_delivers_one_message() -> None:
    world = World()
    fill(world, "a", "b", "c")
    consumer = puller(world)
    assert consumer.receive_no_wait() is None
    message = pulled(world, consumer)
    assert message is not None
    assert message.body == "a"
    assert consumer.receive_no_wait() is None
    assert remaining(world) == ["b", "c"]


def test_a_pull_returns_the_time_to_wait() -> None:
    world = World()
    consumer = puller(world)
    assert consumer.pull(None) is None
    assert consumer.pull(0.25) == 0.25 + ANSWER_SECONDS  # it is requested already
    world.run()
    assert consumer.pull(0) == ANSWER_SECONDS  # takes that back
    world.run()
    assert consumer.pull(0.0001) == 0.0001 + ANSWER_SECONDS
    world.run()
    assert pulls(world) == [0, -1, 1]


def test_an_empty_queue_ends_the_wait_of_a_pull() -> None:
    world = World()
    consumer = puller(world)
    is_notified: list[bool] = []
    consumer.pull(0)
    consumer.on_change.add(lambda: is_notified.append(True))
    world.run()
    assert is_notified == [True]
    assert consumer.receive_no_wait() is None


def test_a_cancelled_pull_leaves_the_message_at_the_broker() -> None:
    world = World()
    consumer = puller(world)
    consumer.cancel_pull()
    consumer.pull(None)
    world.run()
    consumer.cancel_pull()
    world.run()
    assert pulls(world) == [0, -1]
    fill(world, "a")
    assert consumer.receive_no_wait() is None
    assert remaining(world) == ["a"]


@pytest.mark.parametrize("ack", [AckMode.AUTO, AckMode.CLIENT, AckMode.INDIVIDUAL])
def test_an_acknowledged_message_is_gone(ack: AckMode) -> None:
    world = World()
    fill(world, "a", "b")
    consumer = puller(world, ack)
    message = pulled(world, consumer)
    assert message is not None
    if ack is not AckMode.AUTO:
        message.ack()
    world.state.unsubscribe(consumer)
    world.run()
    assert remaining(world) == ["b"]


def test_each_acknowledgement_of_a_puller_is_confirmed() -> None:
    world = World()
    fill(world, "a", "b", "c")
    consumer = puller(world)
    for _ in range(2):
        message = pulled(world, consumer)
        assert message is not None
        message.ack()
    world.run()
    world.again()
    assert pulls(world) == []
    assert remaining(world) == ["c"]


def test_a_waiting_consumer_pulls_from_the_next_broker() -> None:
    world = World()
    consumer = puller(world)
    is_notified: list[str] = []
    consumer.pull(None)
    world.run()
    consumer.on_change.add(lambda: is_notified.append("lost"))
    world.break_off()
    assert consumer.pull(0.5) == 0.5  # of no one: no answer to wait for
    consumer.on_change.add(lambda: is_notified.append("restored"))
    world.connect()
    world.run()
    assert is_notified == ["lost", "restored"]
    assert pulls(world) == []
    consumer.pull(None)
    fill(world, "a")
    assert consumer.receive_no_wait() is not None


def test_a_delivered_message_is_pulled_again_after_a_break() -> None:
    """Otherwise its acknowledgement would wait for the next pull of the application."""
    world = World()
    fill(world, "a", "b", "c")
    consumer = puller(world)
    held = [pulled(world, consumer) for _ in range(2)]
    world.again()
    assert len(pulls(world)) == 2
    for message in held:
        assert message is not None
        message.ack()
    world.state.unsubscribe(consumer)
    world.run()
    assert remaining(world) == ["c"]


def test_a_rolled_back_message_precedes_the_next_pull() -> None:
    world = World(redelivery=Redelivery(initial_delay=1))
    fill(world, "a", "b")
    consumer = puller(world, AckMode.TRANSACTED)
    transaction = world.state.transactions.begin()
    message = pulled(world, consumer)
    assert message is not None
    world.state.transactions.acknowledge(transaction, message)
    world.state.transactions.rollback(transaction)
    assert pulled(world, consumer) is None
    assert consumer.due_at == world.now + 1
    world.now += 1
    assert pulled(world, consumer) is message
    assert message.redelivery_count == 1
    assert pulls(world) == [-1], "it need not be asked for again, and the next one waits for its turn"


cuts = st.tuples(st.integers(0, 1500), st.integers(0, 1500))
steps = st.lists(st.sampled_from(["send", "pull", "pull", "wait", "run"]) | cuts, max_size=40)


@given(st.sampled_from([AckMode.AUTO, AckMode.CLIENT, AckMode.INDIVIDUAL]), steps)
def test_pulled_messages_arrive_once_and_in_order_over_breaks(
    ack: AckMode, script: list[str | tuple[int, int]]
) -> None:
    world = World()
    producer, _ = world.state.producers.add()
    consumer = puller(world, ack)
    sent = 0
    seen: list[int] = []

    def pull(seconds: float | None = 0) -> bool:
        message = consumer.receive_no_wait()
        if message is None:
            consumer.pull(seconds)
            world.run()
            message = consumer.receive_no_wait()
        if message is None:
            return False
        seen.append(int(str(message.body)))
        if ack is not AckMode.AUTO:
            message.ack()
        return True

    for step in script:
        if step == "send":
            world.state.send(producer, Q, str(sent), {})
            sent += 1
        elif step == "pull":
            pull()
        elif step == "wait":
            pull(None)
        elif isinstance(step, tuple):
            world.cut_after(*step)
        else:
            world.run()
    idle = 0
    while idle < 3:
        idle = 0 if pull() else idle + 1
    assert seen == list(range(sent))
    world.state.unsubscribe(consumer)
    world.run()
    assert remaining(world) == []
