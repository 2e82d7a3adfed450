"""A destination that fills the memory of the broker waits; the others go on."""

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.topic import WAITING_BYTES_MIN, WAITING_SHARE
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World, make_message

LIMIT = 80 << 20
LARGE = 1_000_000


def send(world: World, destination: str, size: int = LARGE, *, persistent: bool = False) -> bool:
    """Send a message from a client of its own that waits for the answer; return True if it is there."""
    client = world.client()
    client.connection.send(make_message("x" * size, destination, persistent=persistent), answered=True)
    answers: list[str] = []
    client.connection.when_accepted(lambda: answers.append("answer"))
    return bool(answers)


def filled(world: World, destination: str) -> int:
    """Send until the producers wait; return the number of messages."""
    for count in range(1, 200):
        if not send(world, destination):
            return count
    raise AssertionError("nothing makes the producers wait")


def test_a_queue_that_fills_the_memory_waits_alone():
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=LIMIT))
    assert filled(world, "queue://FULL") in range(60, 72)
    assert all(send(world, f"queue://OTHER.{number}", 500_000) for number in range(10))
    assert send(world, "queue://A,topic://B")
    assert not send(world, "queue://FULL", 10)
    assert not send(world, "queue://NEW,FULL"), "a composite name waits for each of its destinations"


def test_every_destination_waits_at_the_limit_itself():
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=LIMIT))
    filled(world, "queue://FULL")
    for number in range(30):
        if not send(world, f"queue://OTHER.{number}", 900_000):
            break
    assert number in range(10, 25)
    assert world.broker.usage.used < LIMIT + (2 << 20)
    inbox = world.client().subscribe("queue://FULL")
    inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert send(world, "queue://LAST")


def test_slow_topic_consumers_have_a_share_of_the_memory():
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=LIMIT))
    slow = world.client().subscribe("topic://T.>", prefetch=1)
    assert all(send(world, f"topic://T.{number % 30}") for number in range(100))
    assert world.broker.usage.used <= LIMIT // WAITING_SHARE
    assert len(slow.deliveries) == 1
    seen = 0
    while slow.deliveries:
        slow.ack()
        slow.deliveries.pop(0)
        seen += 1
    assert seen in range(9, 12)
    assert world.broker.usage.used == world.broker.objects.counted


def test_a_slow_topic_consumer_gets_one_large_message():
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=1 << 20))
    slow = world.client().subscribe("topic://T", prefetch=1)
    send(world, "topic://T", 10)
    send(world, "topic://T", WAITING_BYTES_MIN + 1)
    slow.ack()
    slow.deliveries.pop(0)
    assert len(slow.deliveries) == 1


def test_without_a_limit_of_messages_there_is_no_limit_of_bytes():
    world = World(MemoryStore(), DestinationPolicy(pending_message_limit=-1), Limits(memory_bytes_max=LIMIT))
    world.client().subscribe("topic://T", prefetch=1)
    assert filled(world, "topic://T") in range(60, 72)
    assert send(world, "topic://OTHER")
