"""Consumers of wildcards over many queues and topics: what they cover takes several turns of the event loop."""

import contextlib
from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.object_memory import (
    CHARACTER_BYTES,
    CONSUMER_BYTES,
    DURABLE_MATCH_BYTES,
    MATCH_BYTES,
    PART_MIN,
)
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.policy import DestinationPolicy, FixedCountRecovery
from pybroker.broker.core.subscribing import _FEW_QUEUES
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import DestinationInUse, InvalidDestination, ResourceLimit, SubscriptionInUse
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, Inbox, World

QUEUES = 2 * _FEW_QUEUES
LIMIT = 8 * PART_MIN


class Loop:
    """An event loop whose turns the test runs: each look at the clock finds that a quarter of a piece has passed."""

    def __init__(self, limits: Limits | None = None, policy: DestinationPolicy | None = None) -> None:
        self.world = World(MemoryStore(), policy or DestinationPolicy(), limits or Limits())
        self.turns: list[Callable[[], None]] = []
        self.seconds = 0.0
        paging = self.broker.usage.paging
        paging.later = self.turns.append
        paging.monotonic = self.monotonic
        self.sender = self.world.client()

    @property
    def broker(self) -> BrokerCore:
        return self.world.broker

    def monotonic(self) -> float:
        self.seconds += PIECE_SECONDS / 4
        return self.seconds

    def send(self, *numbers: int, kind: str = "queue", color: str = "blue") -> None:
        for number in numbers:
            self.sender.send(f"{kind}://A.{number}", f"{number}", properties={"color": color})

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()

    def run(self) -> int:
        count = 0
        while self.turns:
            self.turn()
            count += 1
            assert count < 10_000, "it never ends"
        return count


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def client(loop: Loop) -> Client:
    return loop.world.client()


def numbers(inbox: Inbox) -> list[int]:
    return sorted(map(int, inbox.ids))


def consume(loop: Loop, inbox: Inbox) -> list[str]:
    """Acknowledge one message after the other until no more come; return their names."""
    names: list[str] = []
    while inbox.deliveries:
        names.append(inbox.ids[0])
        inbox.consumer.acknowledge(inbox.deliveries.pop(0))
        loop.run()
    return names


# ---------------------------------------------------------------- beginning


def test_consumer_gets_the_messages_of_all_queues_in_several_turns(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=QUEUES)
    assert client.throttle.input_holds == 1  # later commands keep their order
    answers: list[str] = []
    client.connection.when_durable(lambda: answers.append("subscribed"))
    assert not answers
    assert len(inbox.deliveries) < QUEUES
    assert loop.run() > 5
    assert numbers(inbox) == list(range(QUEUES))
    assert (client.throttle.input_holds, answers) == (0, ["subscribed"])


def test_queue_that_is_deleted_meanwhile_is_left_out(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=QUEUES)
    loop.sender.connection.remove_destination(parse(f"queue://A.{QUEUES - 1}"))
    loop.send(QUEUES - 1)  # created again, and so attached at once
    loop.run()
    assert numbers(inbox) == list(range(QUEUES))
    assert len(inbox.consumer.sources) == QUEUES


def test_queue_that_is_created_meanwhile_delivers_too(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=QUEUES + 1)
    loop.send(QUEUES)
    loop.run()
    assert numbers(inbox) == list(range(QUEUES + 1))


@pytest.mark.parametrize("whole_connection", [False, True])
def test_consumer_that_closes_meanwhile_is_attached_to_no_queue(
    loop: Loop, client: Client, *, whole_connection: bool
) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=1)
    (client.connection if whole_connection else inbox.consumer).close()
    loop.run()
    for number in range(QUEUES):
        loop.sender.connection.remove_destination(parse(f"queue://A.{number}"))  # refused if it had a consumer
    assert client.throttle.input_holds == 0 or whole_connection


def test_selector_that_refuses_everything_ends_its_round(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=QUEUES, selector="color = 'red'")
    assert loop.run() > 5
    loop.send(3, color="red")
    loop.run()
    assert inbox.ids == ["3"]


# ---------------------------------------------------------------- going on


def test_every_way_back_to_a_queue_wakes_the_consumers_that_rest(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=QUEUES)
    loop.run()
    consume(loop, inbox)
    assert len(inbox.consumer._busy or ()) <= 2  # the others rest
    inbox.consumer.set_prefetch(1)
    loop.send(0, 7, 7)  # the first fills the window, and two wait
    other = loop.world.client().subscribe("queue://A.9", prefetch=10)
    loop.send(9)
    other.consumer.close()  # and one comes back
    loop.run()
    assert sorted(consume(loop, inbox)) == ["0", "7", "7", "9"]


def test_consumers_that_rest_are_forgotten_when_they_close(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    everything = client.subscribe("queue://A.*", prefetch=QUEUES)
    loop.run()
    assert loop.broker.queues[parse("queue://A.5")]._resting
    everything.consumer.close()
    loop.run()
    queue = loop.broker.queues[parse("queue://A.5")]
    assert not queue._resting
    other = client.subscribe("queue://A.*", prefetch=QUEUES)
    loop.run()
    assert numbers(other) == list(range(QUEUES))


def test_consumer_that_is_parked_where_it_rests_is_woken(loop: Loop) -> None:
    clients = [loop.world.client() for _ in range(70)]
    loop.send(3, 4)
    everything = clients[0].subscribe("queue://A.*", prefetch=10)
    consume(loop, everything)
    everything.consumer.close()
    inboxes = [each.subscribe("queue://A.*", prefetch=1) for each in clients]
    loop.send(*[3] * 69)  # fills all windows but one
    loop.send(4)  # goes to that one, and has the others before it parked
    queue = loop.broker.queues[parse("queue://A.4")]
    parked = [each for each in inboxes if each.consumer in queue.consumer_set.parked]
    assert len(parked) > 16
    for each in parked:
        consume(loop, each)
    loop.send(4)
    loop.run()
    assert not queue.pending.count
    assert [each.ids for each in parked if each.deliveries] == [["4"]]


def test_composite_names_rest_too(loop: Loop, client: Client) -> None:
    inbox = client.subscribe("queue://A.1", composite=(parse("queue://A.2"), parse("queue://A.3")), prefetch=1)
    loop.send(1, 2, 3, 3, 1)
    assert consume(loop, inbox) == ["1", "2", "3", "1", "3"]  # in turn


# ---------------------------------------------------------------- durable subscriptions


def test_durable_subscription_covers_all_topics_in_several_turns(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES), kind="topic")
    inbox = client.subscribe("topic://A.*", subscription_name="s", prefetch=QUEUES)
    assert client.throttle.input_holds == 1
    with pytest.raises(SubscriptionInUse):
        client.subscribe("topic://A.*", subscription_name="s")
    with pytest.raises(SubscriptionInUse):
        loop.sender.connection.unsubscribe(client.connection.client_id, "s")
    assert loop.run() > 5
    loop.send(*range(QUEUES), kind="topic")
    loop.run()
    assert numbers(inbox) == list(range(QUEUES))
    assert client.throttle.input_holds == 0


def test_durable_subscription_is_completed_if_its_client_leaves_meanwhile(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES), kind="topic")
    client.subscribe("topic://A.*", subscription_name="s", prefetch=QUEUES)
    client.connection.close()
    loop.run()
    loop.send(*range(QUEUES), kind="topic")
    loop.run()
    again = loop.world.client(client.connection.client_id)
    inbox = again.subscribe("topic://A.*", subscription_name="s", prefetch=QUEUES)
    loop.run()
    assert numbers(inbox) == list(range(QUEUES))


def test_topic_that_is_deleted_meanwhile_is_left_out(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES), kind="topic")
    client.subscribe("topic://A.*", subscription_name="s")
    last = parse(f"topic://A.{QUEUES - 1}")
    loop.sender.connection.remove_destination(last)
    loop.run()
    assert last not in loop.broker.topics
    loop.sender.connection.add_destination(last)
    with pytest.raises(DestinationInUse):
        loop.sender.connection.remove_destination(last)


# ---------------------------------------------------------------- memory


def test_queues_count_for_the_consumer_of_a_wildcard(loop: Loop, client: Client) -> None:
    objects = loop.broker.objects
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", prefetch=1)
    consumer = CONSUMER_BYTES + 3 * CHARACTER_BYTES
    assert (objects.held, objects.matched) == (consumer, QUEUES * MATCH_BYTES)
    loop.run()
    loop.send(QUEUES)
    assert (objects.held, objects.matched) == (consumer, (QUEUES + 1) * MATCH_BYTES)
    inbox.consumer.close()
    loop.run()
    assert (objects.held, objects.matched) == (0, 0)


def test_queues_count_for_a_browser_of_a_wildcard(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    inbox = client.subscribe("queue://A.*", browser=True, prefetch=1)
    assert loop.broker.objects.matched == QUEUES * MATCH_BYTES
    inbox.consumer.close()
    assert loop.broker.objects.matched == 0


def test_connection_gets_all_that_it_matched_again_after_a_take_over() -> None:
    loop = Loop(Limits(memory_bytes_max=LIMIT))
    client = loop.world.client("app")
    for _ in range(40):
        client.subscribe("queue://A.*", prefetch=1)
    number = 0
    with contextlib.suppress(ResourceLimit):
        for number in range(5_000):
            loop.world.client().send(f"queue://A.{number}", "x")
    assert loop.broker.objects.matched > 0.9 * loop.broker.objects.matched_max
    loop.world.start()
    client = loop.world.client("app")
    for _ in range(40):
        client.subscribe("queue://A.*", prefetch=1)
    assert loop.broker.objects.matched == 40 * number * MATCH_BYTES
    with pytest.raises(ResourceLimit):
        client.subscribe("queue://A.*", prefetch=1)


def test_crowd_of_wildcards_leaves_others_their_consumers() -> None:
    loop = Loop(Limits(memory_bytes_max=LIMIT))
    crowd = loop.world.client()
    for _ in range(1_000):
        crowd.subscribe("queue://A.*", prefetch=1)
    with contextlib.suppress(ResourceLimit):
        for number in range(1_000):
            crowd.send(f"queue://A.{number}", "x")
    other = loop.world.client()
    for _ in range(200):
        other.subscribe("queue://B")


def test_wildcard_of_temporary_queues_is_refused(client: Client) -> None:
    with pytest.raises(InvalidDestination, match="would be a wildcard"):
        client.connection.add_destination(parse("temp-queue://>"))
    with pytest.raises(InvalidDestination, match="belongs to another connection"):
        client.subscribe("temp-queue://>")


def test_consumer_that_matches_too_many_queues_is_refused() -> None:
    loop = Loop(Limits(memory_bytes_max=LIMIT))
    client = loop.world.client()
    loop.send(*range(3 * QUEUES))

    def subscribe_all() -> None:
        while True:
            client.subscribe("queue://A.*", prefetch=1)
            loop.run()

    with pytest.raises(ResourceLimit, match="consumer of 600 queues"):
        subscribe_all()
    assert loop.broker.objects.matched < loop.broker.objects.matched_max
    client.connection.close()
    loop.run()
    assert loop.broker.objects.held == 0


def test_queue_that_too_many_consumers_match_is_not_created() -> None:
    loop = Loop(Limits(memory_bytes_max=LIMIT))
    objects = loop.broker.objects
    client = loop.world.client()
    for _ in range(1000):
        client.subscribe("queue://A.*", prefetch=1)
    with pytest.raises(ResourceLimit, match="1000 consumers of wildcards match it"):
        loop.send(*range(QUEUES))
    assert objects.matched_max - 1000 * MATCH_BYTES < objects.matched < objects.matched_max
    loop.sender.send("queue://B", "another")
    client.connection.close()
    loop.run()
    assert (objects.held, objects.matched) == (0, 0)
    loop.send(*range(QUEUES))


def test_durable_subscriptions_that_begin_together_are_counted_from_their_begin() -> None:
    loop = Loop(Limits(memory_bytes_max=LIMIT))
    objects = loop.broker.objects
    loop.send(*range(2_000), kind="topic")
    clients = [loop.world.client() for _ in range(20)]

    def subscribe_all() -> None:
        for client in clients:
            client.subscribe("topic://A.*", subscription_name="s")

    with pytest.raises(ResourceLimit, match="The subscription s cannot be created"):
        subscribe_all()
    loop.run()
    assert objects.lasting < objects.lasting_max


def test_durable_subscription_that_is_replaced_by_a_wide_one_is_checked_first() -> None:
    loop = Loop(Limits(memory_bytes_max=LIMIT))
    objects = loop.broker.objects
    loop.send(*range(1_500), kind="topic")
    client = loop.world.client()
    for number in range(50):
        client.subscribe("topic://B", subscription_name=f"s{number}").consumer.close()

    def replace_all() -> None:
        for number in range(50):
            client.subscribe("topic://A.*", subscription_name=f"s{number}").consumer.close()
            loop.run()

    with pytest.raises(ResourceLimit, match="cannot be created"):
        replace_all()
    assert objects.lasting < objects.lasting_max
    assert len(loop.broker.durables) == 50, "what is refused leaves the old one"


@pytest.mark.parametrize("is_sent_meanwhile", [False, True])
def test_new_retroactive_durable_subscription_gets_the_history_of_each_topic(*, is_sent_meanwhile: bool) -> None:
    loop = Loop(policy=DestinationPolicy(subscription_recovery_policy=FixedCountRecovery(5)))
    loop.send(*range(QUEUES), kind="topic")
    inbox = loop.world.client().subscribe("topic://A.*", subscription_name="s", prefetch=1000, retroactive=True)
    if is_sent_meanwhile:
        loop.send(0, kind="topic")
    loop.run()
    assert numbers(inbox) == sorted([*range(QUEUES), *[0] * is_sent_meanwhile])


def test_topics_count_for_a_durable_subscription_to_a_wildcard(loop: Loop, client: Client) -> None:
    objects = loop.broker.objects
    loop.send(*range(QUEUES), kind="topic")
    before = objects.lasting
    client.subscribe("topic://A.*", subscription_name="s").consumer.close()
    loop.run()
    assert objects.lasting - before > QUEUES * DURABLE_MATCH_BYTES
    largest = objects.lasting
    loop.send(QUEUES, kind="topic")
    assert objects.lasting > largest + DURABLE_MATCH_BYTES
    recovered = loop.world.start().objects
    assert recovered.lasting == objects.lasting
    client = loop.world.client(client.connection.client_id)
    client.connection.unsubscribe(client.connection.client_id, "s")
    assert recovered.lasting < largest - QUEUES * DURABLE_MATCH_BYTES + 10_000


def test_browser_looks_through_the_queues_of_another_wildcard_in_several_turns(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    holder = loop.world.client().subscribe("queue://A.>", prefetch=QUEUES + 1)
    loop.run()
    loop.sender.send("queue://A.0", "last")
    loop.run()
    assert len(holder.deliveries) == QUEUES + 1
    inbox = client.subscribe("queue://A.>", browser=True, prefetch=2 * QUEUES)
    assert not inbox.ended
    assert loop.run() > 2
    assert inbox.ended
    assert sorted(inbox.ids) == sorted(holder.ids)


def test_exclusive_consumer_of_a_wildcard_leaves_its_messages_to_the_next(loop: Loop, client: Client) -> None:
    loop.send(*range(QUEUES))
    first = loop.world.client()
    inbox = first.subscribe("queue://A.>", prefetch=10, exclusive=True)
    loop.run()
    following = client.subscribe("queue://A.>", prefetch=QUEUES)
    loop.run()
    assert (len(inbox.deliveries), following.deliveries) == (10, [])
    inbox.consumer.close()
    loop.run()
    assert numbers(following) == list(range(QUEUES))


def test_consumer_gets_older_messages_of_a_queue_first_that_it_visits_later(loop: Loop, client: Client) -> None:
    inbox = client.subscribe("queue://A.*", prefetch=10 * QUEUES, selector="color = 'blue'")
    loop.run()
    client.connection.pause()
    loop.send(*range(QUEUES))
    client.connection.resume()
    left = next(number for number in range(QUEUES) if str(number) not in inbox.ids)
    loop.sender.send(f"queue://A.{left}", "late", properties={"color": "blue"})
    loop.run()
    assert inbox.ids.index(str(left)) < inbox.ids.index("late")
    assert len(inbox.ids) == QUEUES + 1


def test_search_for_another_consumer_leaves_older_messages_to_one_that_comes_later(loop: Loop, client: Client) -> None:
    inbox = client.subscribe("queue://A.*", prefetch=10 * QUEUES, selector="color = 'blue'")
    others = [
        loop.world.client().subscribe(f"queue://A.{number}", prefetch=1, selector="color = 'red'")
        for number in range(QUEUES)
    ]
    loop.send(*range(QUEUES), color="red")
    loop.run()
    client.connection.pause()
    loop.send(*range(QUEUES))
    for other in others:
        other.ack()  # it examines what waits, and does not look at that again
    loop.send(*range(QUEUES), color="red")
    for number in range(QUEUES):
        loop.sender.send(f"queue://A.{number}", f"late {number}", properties={"color": "blue"})
    client.connection.resume()
    left = next(number for number in range(QUEUES) if str(number) not in inbox.ids)
    others[left].ack(1)
    loop.run()
    assert inbox.ids.index(str(left)) < inbox.ids.index(f"late {left}")
    assert len(inbox.ids) == 2 * QUEUES
