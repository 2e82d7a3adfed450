# mypy: disable-error-code="arg-type"
"""Destinations that nothing uses go after a while, and no others."""

from collections.abc import Callable

import pytest

from pybroker.broker.core import inactive
from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy, FixedCountRecovery
from pybroker.broker.domain.destination import DestinationType, parse
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.openwire.commands import DestinationInfo, DestinationOperation
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.marshal.transcode import from_store
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, World

TIMEOUT = DestinationPolicy().inactive_timeout_before_gc
BRANCH = XATransactionId(1, b"global", b"branch")


@pytest.fixture
def world() -> World:
    return World(MemoryStore(), limits=Limits(destinations_max=5))


def sweep(world: World, milliseconds: int = TIMEOUT, times: int = 5) -> None:
    """Let time pass, with some sweeps on the way."""
    world.broker.remove_inactive_destinations()
    for _ in range(times):
        world.now_ms += milliseconds // times
        world.broker.remove_inactive_destinations()


def there(world: World) -> set[str]:
    return {str(each) for each in (*world.broker.queues, *world.broker.topics)}


def use(world: World, *destinations: str) -> None:
    """Send to destinations and consume it, and leave."""
    client = world.client()
    for destination in destinations:
        client.send(destination, "x")
        inbox = client.subscribe(destination)
        inbox.consumer.acknowledge_all(list(inbox.deliveries))
    client.connection.close()


def test_unused_destinations_go_after_the_timeout(world):
    use(world, "queue://Q", "topic://T")
    sweep(world, TIMEOUT - 5)
    assert there(world) == {"queue://Q", "topic://T"}
    sweep(world, 5)
    assert there(world) == set()


def test_new_names_can_be_made_after_the_limit(world):
    for round_ in range(3):
        names = [f"queue://{round_}.{number}" for number in range(5)]
        use(world, *names)
        with pytest.raises(RequestError, match="there are 5 destinations already"):
            use(world, "queue://more")
        sweep(world)
    assert there(world) == set()


def turn(turns: list[Callable[[], None]]) -> None:
    while turns:
        turns.pop(0)()


def test_near_the_limit_what_is_unused_goes_at_once():
    turns: list[Callable[[], None]] = []
    world = World(MemoryStore(), limits=Limits(destinations_max=40))
    world.broker.usage.paging.later = turns.append
    world.client().subscribe("queue://consumed")
    world.client().send("queue://holds", "x")
    use(world, *(f"queue://{number}" for number in range(34)))
    assert not turns
    assert len(there(world)) == 36
    use(world, "queue://more")
    assert "queue://0" in there(world), "anyone who creates one may have others in hand"
    turn(turns)
    assert there(world) == {"queue://consumed", "queue://holds"}
    use(world, *(f"queue://{number}" for number in range(38)))
    with pytest.raises(RequestError, match="there are 40 destinations already"):
        use(world, "queue://more")
    assert not turns, "sweeps take a small share of the time"
    world.now_ms += 2
    with pytest.raises(RequestError, match="there are 40 destinations already"):
        use(world, "queue://more")
    turn(turns)
    use(world, "queue://more")


def test_near_the_limit_what_is_not_to_go_stays():
    turns: list[Callable[[], None]] = []
    world = World(MemoryStore(), DestinationPolicy(gc_inactive_destinations=False), Limits(destinations_max=5))
    world.broker.usage.paging.later = turns.append
    use(world, *(f"queue://{number}" for number in range(5)))
    with pytest.raises(RequestError, match="there are 5 destinations already"):
        use(world, "queue://more")
    turn(turns)
    assert len(there(world)) == 5


def test_queue_used_between_two_sweeps_stays(world):
    for _ in range(10):
        use(world, "queue://Q")
        sweep(world, TIMEOUT // 2, times=1)
    assert there(world) == {"queue://Q"}


def consumes(client: Client) -> None:
    client.subscribe("queue://Q")


def consumes_all(client: Client) -> None:
    client.subscribe("queue://>")


def browses(client: Client) -> None:
    client.subscribe("queue://Q", browser=True)


def produces(client: Client) -> None:
    client.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q"))


def produces_to_many(client: Client) -> None:
    client.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q,queue://R"))


def leaves_a_message(client: Client) -> None:
    client.send("queue://Q", "x")


def leaves_a_non_persistent_message(client: Client) -> None:
    client.send("queue://Q", "x", persistent=False)


def sends_in_a_transaction(client: Client) -> None:
    client.send("queue://Q", "x", transaction=client.connection.begin())


def prepares_a_send(client: Client) -> None:
    client.connection.begin(BRANCH)
    client.send("queue://Q", "x", transaction=BRANCH)
    client.connection.prepare(BRANCH)
    client.connection.close()


def prepares_an_acknowledgement(client: Client) -> None:
    client.send("queue://Q", "x")
    inbox = client.subscribe("queue://Q")
    client.connection.begin(BRANCH)
    inbox.ack(0, BRANCH)
    client.connection.prepare(BRANCH)
    client.connection.close()


@pytest.mark.parametrize(
    "uses",
    [
        consumes,
        consumes_all,
        browses,
        produces,
        produces_to_many,
        leaves_a_message,
        leaves_a_non_persistent_message,
        sends_in_a_transaction,
        prepares_a_send,
        prepares_an_acknowledgement,
    ],
)
def test_queue_in_use_stays(world, uses: Callable[[Client], None]):
    use(world, "queue://Q")
    uses(world.client())
    sweep(world)
    sweep(world)
    assert "queue://Q" in there(world)


@pytest.mark.parametrize("uses", [prepares_a_send, prepares_an_acknowledgement])
def test_queue_of_a_recovered_branch_stays(world, uses: Callable[[Client], None]):
    uses(world.client())
    world.start()
    sweep(world)
    assert "queue://Q" in there(world)
    world.client().connection.rollback(BRANCH)


@pytest.mark.parametrize("name", ["T", "*", ">"])
def test_topic_of_a_durable_subscription_stays(world, name):
    use(world, "topic://T")
    client = world.client()
    client.subscribe(f"topic://{name}", subscription_name="s")
    client.connection.close()
    sweep(world)
    assert there(world) == {"topic://T"}


def test_topic_that_remembers_messages_stays():
    world = World(MemoryStore(), DestinationPolicy(subscription_recovery_policy=FixedCountRecovery()))
    use(world, "topic://T")
    sweep(world)
    assert there(world) == {"topic://T"}


def test_queue_of_a_virtual_topic_stays(world):
    """It collects what is sent to the topic while its consumers are away."""
    use(world, "queue://Consumer.a.VirtualTopic.T", "queue://Consumer.a.Other")
    sweep(world)
    assert there(world) == {"queue://Consumer.a.VirtualTopic.T"}
    world.client().send("topic://VirtualTopic.T", "kept")
    assert world.client().subscribe("queue://Consumer.a.VirtualTopic.T").ids == ["kept"]


def test_temporary_queue_stays(world):
    temporary = world.client().connection.create_temporary(DestinationType.TEMP_QUEUE)
    sweep(world)
    assert there(world) == {str(temporary)}


def test_policy_can_keep_destinations_for_ever():
    world = World(MemoryStore(), DestinationPolicy(gc_inactive_destinations=False))
    use(world, "queue://Q")
    sweep(world)
    assert there(world) == {"queue://Q"}


def test_listeners_learn_of_the_removal(world):
    use(world, "queue://Q")
    inbox = world.client().subscribe("topic://ActiveMQ.Advisory.Queue")
    inbox.deliveries.clear()
    sweep(world)
    (advisory,) = inbox.deliveries
    about = from_store(advisory.message.data).data_structure
    assert isinstance(about, DestinationInfo)
    assert (about.destination, about.operation_type) == (parse("queue://Q"), DestinationOperation.REMOVE)


def test_store_forgets_the_name_and_keeps_messages(world):
    use(world, "queue://Q")
    assert parse("queue://Q") in world.store._messages
    sweep(world)
    assert parse("queue://Q") not in world.store._messages
    world.client().send("queue://R", "x")
    world.store.forget_empty(parse("queue://R"))
    assert parse("queue://R") in world.store._messages


def test_sweep_looks_at_a_slice_per_turn(monkeypatch):
    monkeypatch.setattr(inactive, "SLICE", 3)
    world = World(MemoryStore())
    turns: list[Callable[[], None]] = []
    world.broker.usage.paging.later = turns.append
    use(world, *(f"queue://{number}" for number in range(10)))
    left = []
    for _ in range(2):
        world.broker.remove_inactive_destinations()
        left.append(len(there(world)))
        while turns:
            turns.pop()()
            left.append(len(there(world)))
        world.now_ms += TIMEOUT
    assert left == [10, 10, 10, 10, 7, 4, 1, 0]
    use(world, "queue://new")
    assert there(world) == {"queue://new"}
