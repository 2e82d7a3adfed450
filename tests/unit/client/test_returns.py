"""Messages that are given back: to a broker with `release`, and to one without it, as ActiveMQ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import AckMode
from pybroker.client.errors import ClientError, Timeout, TransactionRolledBack, UnreadableMessage
from pybroker.client.messages import DeliveryState, Message
from tests.unit.client.world import World

Q = queue("q")

cuts = st.tuples(st.integers(0, 1500), st.integers(0, 1500))
numbered = st.tuples(st.sampled_from(["back", "ack"]), st.integers(0, 9))
steps = st.lists(st.sampled_from(["send", "take", "take", "run"]) | numbered | cuts, max_size=40)


def fill(world: World, *bodies: str) -> None:
    producer, _ = world.state.producers.add()
    for body in bodies:
        world.state.send(producer, Q, body, {"properties": {"a": 1}})
    world.run()


def opened(world: World, prefetch: int = 10, **options: object) -> ConsumerState:
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=prefetch, **options)
    world.run()
    return consumer


def taken(consumer: ConsumerState) -> Message:
    message = consumer.receive_no_wait()
    assert message is not None
    return message


def rest(world: World) -> list[tuple[object, int]]:
    """Consume what the queue has: bodies and redelivery counts."""
    other, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=100)
    world.run()
    found: list[tuple[object, int]] = []
    while (message := other.receive_no_wait()) is not None:
        found.append((message.body, message.redelivery_count))
    world.state.unsubscribe(other)
    world.run()
    return found


@pytest.mark.parametrize("releases", [True, False])
@given(prefetch=st.integers(1, 5), script=steps)
def test_breaks_at_any_byte_lose_and_duplicate_none(
    releases: bool, prefetch: int, script: list[str | tuple[object, int]]
) -> None:
    """The application gives messages back and acknowledges others, over breaks."""
    world = World(releases=releases)
    producer, _ = world.state.producers.add()
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=prefetch)
    sent = 0
    seen: dict[str, int] = {}
    expected: dict[str, int] = {}
    held: list[Message] = []

    def receive_one() -> bool:
        message = consumer.receive_no_wait()
        if message is not None:
            body = str(message.body)
            seen[body] = seen.get(body, 0) + 1
            assert message.redelivered or seen[body] == 1
            held.append(message)
        return message is not None

    for step in script:
        match step:
            case "send":
                world.state.send(producer, Q, str(sent), {})
                expected[str(sent)] = 1
                sent += 1
            case "take":
                receive_one()
            case "run":
                world.run()
            case ("ack", int(index)) if held:
                held.pop(index % len(held)).ack()
            case ("back", int(index)) if held:
                message = held.pop(index % len(held))
                expected[str(message.body)] += 1
                world.state.give_back(consumer, message)
            case (int(to_broker), int(to_client)):
                world.cut_after(to_broker, to_client)
            case _:
                pass
    world.run()
    while receive_one() or held:
        if held:
            held.pop().ack()
        world.run()
    assert seen == expected
    world.state.unsubscribe(consumer)
    world.run()
    assert rest(world) == []


def test_a_release_keeps_the_place_and_counts() -> None:
    world = World()
    fill(world, "a", "b", "c")
    consumer = opened(world, 2)
    first, second = taken(consumer), taken(consumer)
    given = world.state.give_back(consumer, second)
    assert not given.is_done
    world.run()
    assert given.error is None
    assert taken(consumer).redelivery_count == 1  # b again: the window has room for one
    world.state.unsubscribe(consumer)
    world.run()
    assert first.delivery_state is DeliveryState.DELIVERED
    assert rest(world) == [("a", 1), ("b", 2), ("c", 0)]


def test_the_only_message_reopens_the_consumer() -> None:
    world = World(releases=False)
    fill(world, "a", "b")
    consumer = opened(world)
    changes: list[str] = []
    consumer.on_change.add(lambda: changes.append("changed"))
    world.state.give_back(consumer, taken(consumer))
    assert changes == ["changed"]
    world.run()
    removed = [each for each in world.commands() if isinstance(each, wire.RemoveInfo)]
    assert [each.object_id for each in removed] == [wire.ConsumerId("ID:c-1:1", 1, 1)]
    assert consumer.subscribe.consumer == 2
    assert [taken(consumer).body for _ in range(2)] == ["a", "b"]
    world.again()  # the new number is restored
    assert consumer.error is None
    world.state.unsubscribe(consumer)
    world.run()
    assert rest(world) == [("a", 3), ("b", 2)]  # the break and the close count too


def test_a_pull_follows_the_consumer_that_is_opened_again() -> None:
    world = World(releases=False)
    fill(world, "a")
    consumer = opened(world, 0)
    consumer.pull(None)
    world.run()
    message = taken(consumer)
    consumer.pull(None)
    world.run()
    assert consumer.awaits_pull
    world.state.give_back(consumer, message)
    assert not consumer.awaits_pull
    world.run()
    consumer.pull(None)
    world.run()
    assert taken(consumer).redelivery_count == 1


@pytest.mark.parametrize("options", [{}, {"exclusive": True}])
def test_one_of_several_is_replaced_by_a_copy(options: dict[str, bool]) -> None:
    world = World(releases=False)
    fill(world, "a", "b", "c")
    consumer = opened(world, 3, **options)
    message, other = taken(consumer), taken(consumer)
    if options:
        other.ack()
    given = world.state.give_back(consumer, message)
    world.run()
    assert given.is_done
    assert given.error is None
    third, copy = taken(consumer), taken(consumer)
    assert (third.body, copy.body) == ("c", "a")
    assert copy.redelivered
    assert copy.properties["a"] == 1
    assert copy.id != message.id


def test_a_refused_copy_leaves_the_message_with_the_application() -> None:
    world = World(releases=False)
    fill(world, "a", "b")
    consumer = opened(world)
    message, other = taken(consumer), taken(consumer)
    message.source = topic("t")
    with pytest.raises(ClientError, match="of a queue"):
        world.state.give_back(consumer, message)
    message.source = queue("")  # the broker refuses it
    given = world.state.give_back(consumer, message)
    world.run()
    with pytest.raises(TransactionRolledBack):
        given.result()
    assert message.delivery_state is DeliveryState.DELIVERED
    message.ack()
    other.ack()
    world.state.unsubscribe(consumer)
    world.run()
    assert rest(world) == []


def test_an_unreadable_message_cannot_be_copied_and_stays() -> None:
    world = World(releases=False)
    fill(world, "a", "b")
    consumer = opened(world)
    message, _ = taken(consumer), taken(consumer)

    def damaged() -> str:
        raise UnreadableMessage("damaged")

    message.read_body = damaged
    with pytest.raises(UnreadableMessage):
        world.state.give_back(consumer, message)
    world.run()
    message.ack()
    world.state.unsubscribe(consumer)
    world.run()
    assert rest(world) == [("b", 1)]


def test_a_timeout_is_raised_and_the_message_is_in_its_queue() -> None:
    world = World(releases=False)
    fill(world, "a", "b")
    consumer = opened(world)
    message, other = taken(consumer), taken(consumer)
    given = world.state.give_back(consumer, message)
    world.state.cancel(given, Timeout("late"))
    with pytest.raises(Timeout):
        given.result()
    message.ack()  # has no effect
    other.ack()
    world.run()
    again = taken(consumer)
    assert (again.body, again.redelivered) == ("a", True)


def test_a_message_of_a_lost_broker_is_given_back_by_that() -> None:
    world = World(releases=False)
    fill(world, "a", "b")
    consumer = opened(world, 2)
    message, other = taken(consumer), taken(consumer)
    world.break_off()
    assert world.state.give_back(consumer, message).is_done
    world.connect()
    world.run()
    again = taken(consumer)
    assert (again.body, again.redelivered) == ("a", True)
    other.ack()
    again.ack()
    world.state.unsubscribe(consumer)
    world.run()
    assert rest(world) == []


def test_acknowledged_in_another_order_the_rest_is_marked() -> None:
    """A broker finds the last delivered message among the outstanding ones only."""
    world = World()
    fill(world, "a", "b", "c")
    consumer = opened(world)
    taken(consumer)
    taken(consumer).ack()
    world.state.unsubscribe(consumer)
    world.run()
    assert rest(world) == [("a", 1), ("c", 0)]
