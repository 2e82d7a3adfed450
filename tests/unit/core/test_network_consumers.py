"""The consumers of bridges, and the messages that have come over bridges."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pybroker.broker.core.bridged_messages import NUMBERS_MAX, WINDOWS_MAX, BridgedMessages
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.message import BridgeFields, Message
from pybroker.broker.domain.openwire.commands import BrokerId, ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.openwire.marshal.transcode import from_store
from pybroker.broker.domain.openwire.message import decode, encode, to_message, view
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.reserved_queues import BRIDGED_RECORDS
from pybroker.broker.domain.subscription import NetworkSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.unit.core.conftest import Inbox, World, make_message

NAMES = ("yes 1", "no 2", "yes 3")


def network(admits: Callable[[Message], bool] = lambda message: b"no" not in message.data) -> NetworkSubscription:
    """Return the subscription of a bridge; by default no message with `no` in it passes."""
    return NetworkSubscription(
        remote_broker_id="ID:b",
        broker_path=("ID:c", "ID:b"),
        consumer_path=(ConsumerId("far", 1, 2), ConsumerId("near", 1, 3)),
        admits=admits,
    )


def bridged(
    name: str, destination: str = "queue://Q", *path: str, counter: int = 0, persistent: bool = True
) -> Message:
    fields = view(make_message(name, destination, "ID:origin", persistent=persistent))
    return to_message(replace(fields, broker_path=path or ("ID:a",), redelivery_counter=counter))


def count_transactions() -> Callable[[], LocalTransactionId]:
    numbers = count(1)
    return lambda: LocalTransactionId("b", next(numbers))


def forwarded_count(world: World, destination: str) -> int:
    state = world.broker.admin.state(parse(destination))
    assert state is not None
    return state.counters.forwarded


def record_count(world: World) -> int:
    return len(world.store.recover().queues.get(BRIDGED_RECORDS.destination, ()))


@pytest.mark.parametrize("is_bridge_first", [True, False])
def test_message_not_admitted_goes_to_another_consumer(world: World, is_bridge_first: bool) -> None:
    client, inboxes = world.client("client"), dict[bool, Inbox]()
    for is_bridge in (is_bridge_first, not is_bridge_first):
        subscription, priority = (network(), 5) if is_bridge else (None, 0)
        inboxes[is_bridge] = world.client().subscribe("queue://Q", network=subscription, priority=priority)
    client.send("queue://Q", *NAMES)
    assert inboxes[True].ids == ["yes 1", "yes 3"]
    assert inboxes[False].ids == ["no 2"]


def test_message_not_admitted_waits_for_another_consumer(world: World) -> None:
    over = world.client("bridge").subscribe("queue://Q", network=network())
    client = world.client("client")
    client.send("queue://Q", *NAMES)
    assert over.ids == ["yes 1", "yes 3"]
    assert client.subscribe("queue://Q").ids == ["no 2"]


def test_bridge_needs_selector_and_admission(world: World) -> None:
    over = world.client("bridge").subscribe("queue://Q", network=network(), selector="n = 1")
    client = world.client("client")
    client.send("queue://Q", "yes a", "no b", properties={"n": 1})
    client.send("queue://Q", "yes c", properties={"n": 2})
    assert over.ids == ["yes a"]


def test_topic_message_not_admitted_is_not_delivered_to_the_bridge(world: World) -> None:
    over = world.client("bridge").subscribe("topic://T", network=network())
    client = world.client("client")
    local = client.subscribe("topic://T")
    client.send("topic://T", *NAMES)
    assert over.ids == ["yes 1", "yes 3"]
    assert local.ids == list(NAMES)


@pytest.mark.parametrize("is_online", [True, False])
def test_durable_message_not_admitted_is_unmatched(world: World, is_online: bool) -> None:
    bridge, client = world.client("bridge"), world.client("client")
    first = bridge.subscribe("topic://T", subscription_name="NC-DS_a_T", network=network())
    if not is_online:
        first.consumer.close()
    client.send("topic://T", *NAMES)
    over = first if is_online else bridge.subscribe("topic://T", subscription_name="NC-DS_a_T", network=network())
    assert over.ids == ["yes 1", "yes 3"]
    for index in range(2):
        over.ack(index)
    subscription = world.broker.admin.subscription("bridge:NC-DS_a_T")
    assert subscription is not None
    assert subscription.counters.size == 0
    assert subscription.counters.forwarded == 2


def test_forwarded_messages_of_a_queue_are_counted(world: World) -> None:
    over = world.client("bridge").subscribe("queue://Q", network=network(), prefetch=10)
    client = world.client("client")
    client.send("queue://Q", "1", "2", "3")
    over.ack(0)
    assert forwarded_count(world, "queue://Q") == 1
    over.consumer.acknowledge_through(over.deliveries[2])
    assert forwarded_count(world, "queue://Q") == 3
    local = client.subscribe("queue://Q")
    over.consumer.close()
    client.send("queue://Q", "4")
    local.ack(0)
    assert forwarded_count(world, "queue://Q") == 3


def test_unanswered_messages_return_in_order_as_redelivered(world: World) -> None:
    bridge, client = world.client("bridge"), world.client("client")
    over = bridge.subscribe("queue://Q", network=network())
    client.send("queue://Q", "1", "2", "3")
    over.ack(1)
    over.consumer.close()
    again = bridge.subscribe("queue://Q", network=network())
    assert list(zip(again.ids, again.counts, strict=True)) == [("1", 1), ("3", 1)]


def test_advisory_of_a_bridge_says_where_its_consumers_are(world: World) -> None:
    listener = world.client("listener").subscribe("topic://ActiveMQ.Advisory.Consumer.Queue.Q")
    world.client("bridge").subscribe("queue://Q", network=network())
    world.client("client").subscribe("queue://Q")
    first, second = [from_store(each.data).data_structure for each in listener.messages.values()]
    assert isinstance(first, ConsumerInfo)
    assert isinstance(second, ConsumerInfo)
    assert first.network_subscription
    assert first.broker_path == (BrokerId("ID:c"), BrokerId("ID:b"))
    assert first.network_consumer_path == (ConsumerId("far", 1, 2), ConsumerId("near", 1, 3))
    assert (second.network_subscription, second.broker_path, second.network_consumer_path) == (False, None, None)


# ---------------------------------------------------------------- what has come over a bridge


def test_routing_finds_what_a_bridge_has_written() -> None:
    message = bridged("m", "queue://Q", "ID:a", "ID:b", counter=3)
    assert message.bridge == routing(message.data).bridge == BridgeFields(("ID:a", "ID:b"), 3)
    assert routing(make_message("m", "queue://Q").data).bridge is None


@pytest.mark.parametrize("destination", ["queue://Q", "topic://T"])
def test_message_is_redelivered_as_often_as_it_was_on_its_way(world: World, destination: str) -> None:
    client = world.client()
    inbox = client.subscribe(destination)
    client.connection.send(bridged("m", destination, counter=2))
    assert inbox.counts == [2]


def test_returned_message_counts_on_from_what_it_had(world: World) -> None:
    client = world.client()
    client.connection.send(bridged("m", counter=2))
    client.subscribe("queue://Q").consumer.close()
    assert client.subscribe("queue://Q").counts == [3]


@pytest.mark.parametrize("persistent", [True, False])
def test_message_that_comes_again_over_a_bridge_is_dropped(world: World, persistent: bool) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q")
    first = bridged("m", persistent=persistent)
    again = to_message(replace(decode(first.data), redelivery_counter=1))
    assert client.connection.send(first)
    inbox.ack(0)
    assert not client.connection.send(again)
    assert inbox.ids == ["m"]


def test_overtaken_message_is_no_duplicate(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q")
    older, newer = bridged("older"), bridged("newer")
    for each in (newer, older, newer, older):
        client.connection.send(each)
    assert inbox.ids == ["newer", "older"]


def test_message_of_one_id_for_two_destinations_comes_to_both(world: World) -> None:
    client = world.client()
    inboxes = [client.subscribe(name) for name in ("queue://Q", "queue://P")]
    message = bridged("m")
    for name in ("queue://Q", "queue://P"):
        client.connection.send(to_message(replace(decode(message.data), destination=parse(name))))
    assert [inbox.ids for inbox in inboxes] == [["m"], ["m"]]


def test_message_that_comes_back_from_where_it_went_is_new(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q")
    message = bridged("m")
    client.connection.send(message)
    inbox.ack(0)
    client.connection.send(to_message(replace(decode(message.data), broker_path=("ID:a", "ID:b"))))
    assert inbox.ids == ["m", "m"]


def test_next_master_knows_what_has_come_over_bridges(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q")
    first, other = bridged("m"), bridged("not persistent", persistent=False)
    for each in (first, other):
        client.connection.send(each)
    inbox.ack(0)
    inbox.ack(1)
    for _ in range(2):
        world.start()
        client = world.client()
        assert not client.connection.send(to_message(replace(decode(first.data), redelivery_counter=1)))
    assert client.connection.send(bridged("next"))
    assert client.subscribe("queue://Q").ids == ["next"]


def test_record_is_stored_before_the_answer_is_requested(world: World) -> None:
    turns: list[Callable[[], None]] = []
    world.broker.paging.later = turns.append
    client, stored = world.client(), list[int]()
    first, second = bridged("first"), bridged("second")
    client.connection.send(first)
    client.connection.send(second)
    client.connection.when_confirmed(lambda: stored.append(record_count(world)))
    assert stored == [1]
    world.start()
    assert not any(world.client().connection.send(each) for each in (first, second))
    for turn in turns:
        turn()
    assert record_count(world) == 1


def test_message_is_not_recorded_before_all_copies_are_stored(world: World) -> None:
    turns: list[Callable[[], None]] = []
    world.broker.paging.later = turns.append
    client, answers = world.client(), list[int]()
    names = [f"Q{number}" for number in range(100)]
    message = bridged("m" * 50_000, "queue://" + ",".join(names))
    client.connection.send(message)
    client.connection.when_confirmed(lambda: answers.append(record_count(world)))
    world.client().connection.when_confirmed(lambda: None)
    assert (record_count(world), answers) == (0, [])
    while turns:
        turns.pop(0)()
    assert answers == [1]
    assert len(world.broker.queues) == len(names)
    assert not client.connection.send(message)


def test_scheduled_message_is_recorded_once_its_job_is_durable(world: World) -> None:
    class SlowJobStore(MemoryJobStore):
        def when_durable(self, callback: Callable[[], None]) -> None:
            waiting.append(callback)

    waiting: list[Callable[[], None]] = []
    world.broker.open_scheduler(SlowJobStore(), (), wake_at=lambda _: None, connection_id="s", jobs_max=10)
    client = world.client()
    made = make_message("m", "queue://Q", "ID:origin", properties={"AMQ_SCHEDULED_DELAY": 1_000})
    message = to_message(replace(view(made), broker_path=("ID:a",)))
    assert client.connection.send(message)
    client.connection.when_confirmed(lambda: None)
    assert record_count(world) == 0
    for callback in waiting:
        callback()
    client.connection.when_confirmed(lambda: None)
    assert record_count(world) == 1
    assert not client.connection.send(message)


@pytest.mark.parametrize(
    "refuses",
    [{"send_fail_if_no_space": True}, {"send_fail_if_no_space_after_timeout": 100}],
    ids=lambda each: min(each),
)
def test_bridge_waits_where_a_client_is_refused_for_space(make_world: Callable[..., World], refuses: Any) -> None:
    world = make_world(memory_limit=2_000, **refuses)
    bridge, client, answers = world.client(), world.client(), list[str]()
    client.send("queue://Q", "one", "two")
    with pytest.raises(ResourceLimit):
        client.connection.send(make_message("three", "queue://Q"), answered=True)
    assert bridge.connection.send(bridged("four"), answered=True)
    bridge.connection.when_accepted(lambda: answers.append("accepted"))
    assert not answers
    inbox = client.subscribe("queue://Q")
    assert inbox.ids == ["one", "two", "four"]
    inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert answers == ["accepted"]


def test_highest_counter_of_a_bridge_leaves_room_for_deliveries_here(world: World) -> None:
    message = bridged("m", counter=(1 << 31) - 1)
    assert message.bridge is not None
    assert message.bridge.redelivery_counter == 1 << 30
    assert routing(message.data).bridge == message.bridge


def test_damaged_record_is_reported_and_left_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.client().connection.send(bridged("m"))
    (name,) = world.store.recover().queues[BRIDGED_RECORDS.destination]
    (record,) = world.store.read(BRIDGED_RECORDS.destination, [name])
    record.data = encode(replace(decode(record.data), content=b"{}"))
    record.decoded = None
    world.start()
    assert "is of no use" in caplog.text
    assert world.client().connection.send(bridged("next"))


def test_memory_of_bridged_messages_is_bounded(make_world: Callable[..., World]) -> None:
    world = make_world()
    records = RecordQueue(BRIDGED_RECORDS, world.store, count_transactions(), lambda: 1_000, Paging())
    memory = BridgedMessages(records, Paging(), lambda: 1_000)

    def numbered(producer: int, number: int) -> Message:
        return Message(
            message_id=f"ID:p-{producer}:1:1:{number}", destination=parse("queue://Q"), data=b"", persistent=True
        )

    for number in (1, 2, 1 + NUMBERS_MAX):
        memory.add(numbered(0, number))
    assert [memory.has(numbered(0, number)) for number in (1, 2, 3, 1 + NUMBERS_MAX)] == [False, True, False, True]
    memory.add(numbered(0, 5))
    assert memory.has(numbered(0, 5))
    memory.add(numbered(0, 10 * NUMBERS_MAX))
    assert not memory.has(numbered(0, 1 + NUMBERS_MAX))
    for producer in range(1, WINDOWS_MAX + 1):
        memory.add(numbered(producer, 7))
    assert not memory.has(numbered(0, 10 * NUMBERS_MAX))
    assert memory.has(numbered(1, 7))
    memory.write()
    assert len(records) == WINDOWS_MAX
