"""Several consumers in turn, a changed prefetch, and destinations, on a connection without sockets."""

from unittest.mock import Mock

import pytest

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.domain.destination import DestinationType, queue, topic
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.openwire import commands as wire
from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import AckMode, CreateDestination, ListDestinations, Release, Request, SetPrefetch
from pybroker.client.errors import ClientError, ConnectionClosed, Refused, Timeout, UnsendableMessage
from pybroker.client.messages import Message
from pybroker.client.state import ClientState
from pybroker.client.stomp import StompConversation
from tests.compiled import interpreted
from tests.unit.client.world import World

Q, R = queue("q"), queue("r")


def opened(world: World, *destinations: object, ack: AckMode = AckMode.INDIVIDUAL) -> list[ConsumerState]:
    consumers = [world.state.subscribe(queue(str(each)), ack=ack, prefetch=10)[0] for each in destinations]
    world.run()
    return consumers


def fill(world: World, name: str, *bodies: str) -> None:
    producer, _ = world.state.producers.add()
    for body in bodies:
        world.state.send(producer, queue(name), body, {})
    world.run()


def chosen(state: ClientState, consumers: list[ConsumerState]) -> Message:
    received = state.receive_any(consumers)
    assert received is not None
    assert received[0] in consumers
    return received[1]


def test_consumers_take_turns_whatever_their_order() -> None:
    world = World()
    consumers = opened(world, "a", "b", "c")
    for name, count in (("a", 4), ("b", 2), ("c", 1)):
        fill(world, name, *(f"{name}{number}" for number in range(count)))
    turns = [chosen(world.state, consumers[::-1] if number % 2 else consumers).body for number in range(7)]
    assert sorted(str(turn) for turn in turns[:3]) == ["a0", "b0", "c0"]
    assert sorted(str(turn) for turn in turns[3:5]) == ["a1", "b1"]
    assert turns[5:] == ["a2", "a3"]
    assert world.state.receive_any(consumers) is None
    assert world.state.receive_any([]) is None


def test_auto_mode_acknowledges_the_message_before() -> None:
    world = World()
    consumers = opened(world, "a", "b", ack=AckMode.AUTO)
    fill(world, "a", "1")
    fill(world, "b", "2")
    for _ in range(2):
        chosen(world.state, consumers)
    assert world.state.receive_any(consumers) is None
    world.run()
    acks = [each.consumer_id for each in world.commands() if isinstance(each, wire.MessageAck)]
    assert acks == [wire.ConsumerId("ID:c-1:1", 1, number) for number in (1, 2)]


def test_closed_consumers_are_ignored_and_ended_ones_raise() -> None:
    world = World()
    first, second = consumers = opened(world, "a", "b")
    fill(world, "b", "x")
    world.state.unsubscribe(first)
    assert chosen(world.state, consumers).body == "x"
    second.end(Refused("the broker closed the consumer"))
    with pytest.raises(Refused, match="the broker closed"):
        world.state.receive_any(consumers)
    with pytest.raises(ConnectionClosed, match="all the consumers"):
        world.state.receive_any([first])
    failed: list[str] = []
    world.state.on_failed.add(lambda: failed.append("failed"))
    world.state.fail(ClientError("over"))
    assert failed == ["failed"]
    for some in (consumers, []):
        with pytest.raises(ClientError, match="over"):
            world.state.receive_any(some)


def test_a_pull_is_cancelled_once() -> None:
    world = World()
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=0)
    world.run()
    consumer.pull(None)
    for _ in range(3):
        consumer.cancel_pull()
    world.run()
    assert not consumer.awaits_pull
    consumer.cancel_pull()
    world.run()
    assert [each.timeout for each in world.commands() if isinstance(each, wire.MessagePull)] == [0, -1]


def test_a_changed_prefetch_is_restored_even_if_the_consumer_is_not_confirmed() -> None:
    world = World()
    consumer, pending = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.run(until=lambda: len(world.sent) > 0)
    world.break_off()
    consumer.set_prefetch(3)
    assert not pending.is_done
    world.connect()
    world.run()
    infos = [each.prefetch_size for each in world.commands() if isinstance(each, wire.ConsumerInfo)]
    assert (pending.is_done, infos) == (True, [3])
    consumer.set_prefetch(2)
    world.run()
    controls = [
        (each.destination, each.prefetch) for each in world.commands() if isinstance(each, wire.ConsumerControl)
    ]
    assert controls == [(Q, 2)]
    consumer.end(ConnectionClosed("closed"))
    with pytest.raises(ConnectionClosed):
        consumer.set_prefetch(1)


def test_created_destinations_are_restored_until_they_are_deleted() -> None:
    world = World()
    pending = [world.state.create_destination(each) for each in (Q, R, topic("t"))]
    pending.append(world.state.delete_destination(R))
    world.run()
    assert [each.error for each in pending] == [None] * 4
    world.again()
    infos = [each for each in world.commands() if isinstance(each, wire.DestinationInfo)]
    assert [(each.destination, each.operation_type) for each in infos] == [(Q, 0), (topic("t"), 0)]


def test_a_refused_destination_is_not_restored() -> None:
    world = World()
    pending = world.state.create_destination(queue(""))
    world.run()
    assert isinstance(pending.error, Refused)
    world.again()
    assert not any(isinstance(each, wire.DestinationInfo) for each in world.commands())


@pytest.mark.parametrize("after", range(0, 1200, 40))
def test_a_search_survives_a_break_at_any_time(after: int) -> None:
    world = World()
    fill(world, "q", "x")
    found, missing = world.state.find_destination(Q), world.state.find_destination(R)
    world.cut_after(10_000, after)
    world.run()
    world.again()
    assert (found.result(), missing.result()) == (True, False)
    infos = [each for each in world.commands() if isinstance(each, wire.ConsumerInfo | wire.DestinationInfo)]
    assert infos == []  # nothing of it is left to be restored


@interpreted
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_search_ends_if_its_temporary_queue_is_refused(monkeypatch: pytest.MonkeyPatch, is_restored: bool) -> None:
    world = World()
    search = world.state.find_destination(Q)
    if is_restored:
        world.run(until=lambda: len(world.sent) > 0)
        world.break_off()
        world.connect()
    monkeypatch.setattr(BrokerConnection, "add_destination", Mock(side_effect=ResourceLimit("too many")))
    world.run()
    with pytest.raises(Refused, match="too many"):
        search.result()


def test_a_search_ends_with_the_connection_or_its_timeout() -> None:
    world = World()
    late, lost = world.state.find_destination(Q), world.state.find_destination(Q)
    world.state.cancel(late, Timeout("late"))
    world.run(until=lambda: len(world.sent) > 0)
    world.state.fail(ClientError("over"))
    with pytest.raises(Timeout):
        late.result()
    with pytest.raises(ClientError, match="over"):
        lost.result()


def test_stomp_has_no_form_for_these_requests() -> None:
    conversation = StompConversation()
    assert not conversation.can_release
    message = Message(id="1", destination=Q, read_body=str, read_properties=dict)
    requests: list[Request] = [
        SetPrefetch(consumer=1, destination=Q, prefetch=1),
        CreateDestination(destination=Q),
        ListDestinations(consumer=1, type=DestinationType.QUEUE),
        Release(consumer=1, message=message),
    ]
    for request in requests:
        with pytest.raises(UnsendableMessage):
            conversation.request(request, 10, answer=True)
