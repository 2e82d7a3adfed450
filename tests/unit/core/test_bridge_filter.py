"""Messages that have come over a bridge go back while their queue has no consumer, by the filter of the queue."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.broker.core.bridge_filter import WAITS_PER_DELAY
from pybroker.broker.core.consumer_set import PARKING_MIN
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter
from pybroker.broker.domain.openwire.arrival_time import arrival_time, with_arrival_time
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.openwire.message import MessageType, to_message, view
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.subscription import NetworkSubscription
from pybroker.store.memory import MemoryStore
from tests.timers import Callback, ManualTimers
from tests.unit.core.conftest import Inbox, World, make_message

FAR = "ID:far"
REPLAY = ConditionalBridgeFilter(replay_when_no_consumers=True)


def has_passed(message: Message) -> bool:
    return message.bridge is not None and FAR in message.bridge.broker_path


def network(bridge_filter: ConditionalBridgeFilter | None = None) -> NetworkSubscription:
    return NetworkSubscription(
        remote_broker_id=FAR,
        broker_path=(FAR,),
        consumer_path=(ConsumerId("far", 1, 2),),
        admits=lambda message: not has_passed(message),
        may_return=has_passed,
        bridge_filter=bridge_filter,
    )


class Filtered:
    """A broker with clients, a bridge, timers and a clock."""

    def __init__(self, **terms: Any) -> None:
        given = ConditionalBridgeFilter(**{"replay_when_no_consumers": True, **terms})
        self.world = World(MemoryStore(), DestinationPolicy(network_bridge_filter_factory=given))
        self.timers = ManualTimers()
        self.turns: list[Callback] = []
        self.now = 0.0
        paging = self.world.broker.paging
        paging.after, paging.later, paging.monotonic = self.timers.after, self.turns.append, lambda: self.now
        self.client = self.world.client("client")
        self.bridge = self.world.client("bridge")

    def arrive(self, *names: str, destination: str = "queue://Q", path: tuple[str, ...] = (FAR,), **given: Any) -> None:
        for name in names:
            fields = view(make_message(name, destination, "ID:origin", **given))
            self.client.connection.send(to_message(replace(fields, broker_path=path)))

    def over(self, destination: str = "queue://Q", **request: Any) -> Inbox:
        return self.bridge.subscribe(destination, network=network(), **request)

    def elapse(self, seconds: float) -> None:
        """Let time pass, and all timers be over."""
        self.now += seconds
        self.world.now_ms += int(seconds * 1000)
        self.timers.elapse()
        self.turn()

    def turn(self) -> None:
        """Run all later turns of the event loop."""
        while self.turns:
            turns, self.turns[:] = self.turns[:], []
            for callback in turns:
                callback()


def test_message_stays_without_a_filter(world: World) -> None:
    world.client().connection.send(to_message(replace(view(make_message("1", "queue://Q")), broker_path=(FAR,))))
    assert world.client("bridge").subscribe("queue://Q", network=network()).ids == []


def test_filter_of_the_bridge_holds_for_queues_without_their_own(world: World) -> None:
    world.client().connection.send(to_message(replace(view(make_message("1", "queue://Q")), broker_path=(FAR,))))
    assert world.client("bridge").subscribe("queue://Q", network=network(REPLAY)).ids == ["1"]


def test_policy_comes_before_the_filter_of_the_bridge() -> None:
    filtered = Filtered(replay_when_no_consumers=False)
    filtered.arrive("1")
    assert filtered.bridge.subscribe("queue://Q", network=network(REPLAY)).ids == []


def test_messages_go_back_once_the_last_consumer_has_left() -> None:
    filtered = Filtered()
    local, other = (filtered.client.subscribe("queue://Q", prefetch=1) for _ in range(2))
    over = filtered.over()
    filtered.arrive("1", "2", "3", "4")
    local.consumer.close()
    assert over.ids == []
    other.consumer.close()
    assert over.ids == ["1", "2", "3", "4"]


def test_other_bridges_and_browsers_are_no_consumers() -> None:
    filtered = Filtered()
    filtered.arrive("1")
    filtered.client.subscribe("queue://Q", browser=True)
    filtered.bridge.subscribe("queue://Q", network=replace(network(), may_return=None))
    assert filtered.over().ids == ["1"]


def test_message_waits_for_its_delay_without_further_traffic() -> None:
    filtered = Filtered(replay_delay=2000)
    over = filtered.over()
    filtered.arrive("1")
    assert (over.ids, filtered.timers.seconds) == ([], [2.0])
    filtered.elapse(2)
    assert (over.ids, filtered.timers.seconds) == (["1"], [])


def test_delay_counts_from_the_arrival() -> None:
    filtered = Filtered(replay_delay=2000)
    filtered.arrive("1")
    filtered.elapse(1.5)
    over = filtered.over()
    assert (over.ids, filtered.timers.seconds) == ([], [0.5])
    filtered.elapse(0.5)
    assert over.ids == ["1"]
    filtered.arrive("2")
    filtered.over()
    assert filtered.timers.seconds == [2.0]


def test_timer_is_for_many_messages_and_keeps_their_order() -> None:
    filtered = Filtered(replay_delay=2000)
    over = filtered.over()
    for number in range(20):
        filtered.arrive(str(number))
        filtered.now += 0.001
        filtered.world.now_ms += 1
    filtered.elapse(1.98)
    assert (over.ids, filtered.timers.seconds) == (["0"], [2 / WAITS_PER_DELAY])
    filtered.elapse(2 / WAITS_PER_DELAY)
    assert (over.ids, filtered.timers.seconds) == ([str(number) for number in range(20)], [])


def test_delay_of_a_recovered_message_goes_on() -> None:
    filtered = Filtered(replay_delay=2000)
    filtered.arrive("1")
    filtered.world.now_ms += 1500
    filtered.world.start()
    paging = filtered.world.broker.paging
    paging.after = filtered.timers.after
    over = filtered.world.client("bridge").subscribe("queue://Q", network=network())
    assert (over.ids, filtered.timers.seconds) == ([], [0.5])


def test_clock_that_was_set_back_does_not_keep_a_message() -> None:
    filtered = Filtered(replay_delay=2000)
    filtered.arrive("1")
    filtered.world.now_ms -= 3_600_000
    assert filtered.over().ids == ["1"]


def test_end_of_the_bridge_cancels_the_timer() -> None:
    filtered = Filtered(replay_delay=2000)
    over = filtered.over()
    filtered.arrive("1")
    over.consumer.close()
    assert filtered.timers.seconds == []


def test_end_of_the_queue_cancels_the_timer() -> None:
    filtered = Filtered(replay_delay=2000)
    filtered.over()
    filtered.arrive("1")
    queue = next(iter(filtered.world.broker.queues.values()))
    queue.close()
    assert filtered.timers.seconds == []


def test_messages_that_do_not_go_back_need_no_timer() -> None:
    filtered = Filtered(replay_delay=2000)
    over = filtered.over()
    filtered.arrive("own", path=("ID:other",))
    filtered.client.send("queue://Q", "local")
    assert (over.ids, filtered.timers.seconds) == (["own", "local"], [])


def test_consumer_here_keeps_messages_without_a_timer() -> None:
    filtered = Filtered(replay_delay=2000)
    local = filtered.client.subscribe("queue://Q", prefetch=1)
    over = filtered.over()
    filtered.arrive("1", "2")
    assert (local.ids, over.ids, filtered.timers.seconds) == (["1"], [], [])


@pytest.mark.parametrize(("is_aware", "expected"), [(True, ["2"]), (False, [])])
def test_selector_aware_filter_asks_the_selectors(is_aware: bool, expected: list[str]) -> None:
    filtered = Filtered(selector_aware=is_aware)
    filtered.client.subscribe("queue://Q", selector="n = 1", prefetch=1)
    over = filtered.over()
    for number in (1, 1, 2):
        filtered.arrive(str(number), properties={"n": number})
    assert over.ids == expected


def test_selector_of_the_bridge_holds_for_what_goes_back() -> None:
    filtered = Filtered()
    over = filtered.over(selector="n = 2")
    for number in (1, 2):
        filtered.arrive(str(number), properties={"n": number})
    assert over.ids == ["2"]


def test_topic_message_does_not_go_back() -> None:
    filtered = Filtered()
    over = filtered.over("topic://T")
    filtered.arrive("1", destination="topic://T")
    assert over.ids == []


@pytest.mark.parametrize("is_replay", [True, False])
def test_rate_limit_forwards_so_many_in_each_period(is_replay: bool) -> None:
    filtered = Filtered(rate_limit=2, rate_duration=500, replay_when_no_consumers=is_replay)
    over = filtered.over()
    filtered.arrive("1", "2", "3", "4", "5", path=(FAR,) if is_replay else ("ID:other",))
    assert (over.ids, filtered.timers.seconds) == (["1", "2"], [0.5])
    filtered.elapse(0.5)
    assert over.ids == ["1", "2", "3", "4"]
    filtered.arrive("6", path=(FAR,) if is_replay else ("ID:other",))
    assert over.ids == ["1", "2", "3", "4"], "it does not overtake"
    filtered.elapse(0.5)
    assert (over.ids, filtered.timers.seconds) == (["1", "2", "3", "4", "5", "6"], [])
    filtered.elapse(60)
    filtered.arrive("7", path=(FAR,) if is_replay else ("ID:other",))
    assert over.ids[-1] == "7"


def test_rate_limit_leaves_other_consumers_alone() -> None:
    filtered = Filtered(rate_limit=1)
    over = filtered.over()
    filtered.client.send("queue://Q", "1", "2", "3")
    assert over.ids == ["1"]
    local = filtered.client.subscribe("queue://Q")
    assert local.ids == ["2", "3"]


def test_queues_of_a_wildcard_have_filters_of_their_own() -> None:
    filtered = Filtered(rate_limit=1, replay_delay=1000)
    over = filtered.over("queue://Q.>")
    filtered.arrive("a1", "a2", destination="queue://Q.A")
    filtered.arrive("b1", "b2", destination="queue://Q.B")
    filtered.elapse(1)
    assert over.ids == ["a1", "b1"]
    filtered.elapse(1)
    assert over.ids == ["a1", "b1", "a2", "b2"]


def test_backlog_without_a_filter_is_examined_once(world: World) -> None:
    asked: list[str] = []

    def admits(message: Message) -> bool:
        asked.append(message.message_id)
        return False

    bridge, client = world.client("bridge"), world.client("client")
    bridge.subscribe("queue://Q", network=replace(network(), admits=admits))
    local = client.subscribe("queue://Q", selector="n = 1")
    client.send("queue://Q", "1", "2", "3")
    local.consumer.close()
    assert len(asked) == len(set(asked)) == 3


@pytest.mark.parametrize("size", [0, 3, 2000])
def test_time_of_arrival_is_replaced_and_the_rest_is_kept(size: int) -> None:
    message = make_message("x" * size, "queue://Q")
    dated = with_arrival_time(message.data, 1234567)
    assert arrival_time(dated) == 1234567
    assert view(to_message(replace(view(message), broker_in_time=1234567))) == view(routing(dated))


def test_blob_message_has_no_time_of_arrival() -> None:
    fields = replace(view(make_message("1", "queue://Q")), type=MessageType.BLOB)
    data = to_message(fields).data
    assert (arrival_time(data), with_arrival_time(data, 5)) == (0, data)


def test_message_over_a_bridge_gets_the_time_of_its_arrival(make_world: Callable[..., World]) -> None:
    world = make_world()
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.connection.send(to_message(replace(view(make_message("1", "queue://Q")), broker_path=(FAR,))))
    (message,) = inbox.messages.values()
    assert arrival_time(message.data) == view(message).broker_in_time == world.now_ms


def test_held_bridge_goes_on_behind_many_consumers_without_capacity() -> None:
    filtered = Filtered(rate_limit=1)
    for _ in range(PARKING_MIN + 1):
        filtered.client.subscribe("queue://Q", prefetch=1)
    over = filtered.over()
    filtered.arrive(*map(str, range(PARKING_MIN + 1)), path=())
    filtered.arrive("a", "b", "c", path=())
    for _ in range(3):
        filtered.elapse(1)
    assert over.ids == ["a", "b", "c"]


@pytest.mark.parametrize("terms", [{}, {"replay_when_no_consumers": False, "rate_limit": 1}])
def test_departure_of_a_consumer_examines_nothing_while_another_one_stays(terms: dict[str, Any]) -> None:
    filtered = Filtered(**terms)
    filtered.client.subscribe("queue://Q", prefetch=1)
    idle = [filtered.client.subscribe("queue://Q", selector="FALSE") for _ in range(10)]
    admits = Mock(return_value=False)
    filtered.bridge.subscribe("queue://Q", network=replace(network(), admits=admits))
    filtered.arrive(*map(str, range(100)))
    admits.reset_mock()
    for each in idle:
        each.consumer.close()
        filtered.turn()
    admits.assert_not_called()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_went_back_is_no_duplicate_when_it_comes_again(is_restarted: bool) -> None:
    filtered = Filtered()
    over = filtered.over()
    message = to_message(replace(view(make_message("1", "queue://Q", "ID:origin")), broker_path=(FAR,)))
    assert filtered.client.connection.send(message)
    assert over.ids == ["1"]
    over.consumer.acknowledge_all(list(over.deliveries))
    over.consumer.close()
    if is_restarted:
        filtered.world.start()
    client = filtered.world.client()
    assert client.connection.send(message)
    assert client.subscribe("queue://Q").ids == ["1"]


def along(message: Message, *path: str) -> Message:
    """Return a message as it comes over a bridge, by brokers of these ids."""
    return to_message(replace(view(message), broker_path=path))


def test_duplicate_is_refused_while_the_copy_goes_back() -> None:
    """If both brokers answered that they have it, both would drop theirs."""
    filtered = Filtered()
    message = make_message("1", "queue://Q", "ID:origin")
    send = filtered.client.connection.send
    assert send(along(message, FAR))
    over = filtered.over()
    assert over.ids == ["1"]
    with pytest.raises(ResourceLimit, match="on its way back"):
        send(along(message, FAR))
    over.consumer.acknowledge_all(list(over.deliveries))
    assert send(along(message, FAR))


def test_duplicate_is_known_while_another_message_goes_back() -> None:
    filtered = Filtered(replay_delay=2000)
    send = filtered.client.connection.send
    over = filtered.over()
    filtered.arrive("1")
    filtered.elapse(2)
    assert over.ids == ["1"]
    other = make_message("2", "queue://Q", "ID:origin")
    assert send(along(other, FAR))
    assert not send(along(other, FAR))


def test_returned_message_is_new_once_the_copy_here_has_gone() -> None:
    """It comes back twice, as its first answer is lost; meanwhile the copy here has gone to the other broker."""
    filtered = Filtered()
    message = make_message("1", "queue://Q", "ID:origin")
    send = filtered.client.connection.send
    assert send(message)
    over = filtered.over()
    assert not send(along(message, "ID:here", FAR)), "the queue has it"
    over.consumer.acknowledge_all(list(over.deliveries))
    over.consumer.close()
    assert send(along(message, "ID:here", FAR))
