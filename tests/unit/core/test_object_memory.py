# mypy: disable-error-code="arg-type"
"""The memory of what clients create: counted while it exists, limited for each connection and for all, recovered."""

import contextlib
from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.connection import _USUAL_TRANSACTIONS
from pybroker.broker.core.object_memory import (
    CHARACTER_BYTES,
    CONSUMER_BYTES,
    DESTINATION_BYTES,
    DURABLE_BYTES,
    GUARANTEED_BYTES,
    LEVEL_BYTES,
    OWN_BURST_BYTES,
    PART_BYTES,
    PART_MIN,
    PRODUCER_BYTES,
    RESERVE_BYTES_PER_SECOND,
    SESSION_BYTES,
    TRANSACTION_BYTES,
    Allowance,
    ObjectAccount,
    ObjectMemory,
)
from pybroker.broker.domain.destination import NAME_MAX, DestinationType, parse
from pybroker.broker.domain.errors import InvalidClientId, InvalidDestination, RequestError, ResourceLimit
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, World

LIMIT = 4 * PART_MIN
"""Both parts have 16 MB; what stays may count with all of that, what connections take too."""

CONSUMER_OF_Q = CONSUMER_BYTES + CHARACTER_BYTES
QUEUE = DESTINATION_BYTES + CHARACTER_BYTES


@pytest.fixture
def world():
    return World(MemoryStore(), limits=Limits(memory_bytes_max=LIMIT))


@pytest.fixture
def now():
    return [1000.0]


@pytest.fixture
def memory(now):
    return ObjectMemory(LIMIT, 100_000, count=lambda change: None, seconds=lambda: now[0])


def held(world: World) -> int:
    objects = world.broker.objects
    assert world.broker.usage.used == objects.counted == objects.held + objects.lasting
    return objects.held


def lasting(world: World) -> int:
    held(world)
    return world.broker.objects.lasting


def fill_shared(world: World, clients: int = 12) -> None:
    """Have other connections take what each of them gets of the shared part, until only crumbs are left."""
    for _ in range(clients):
        with pytest.raises(ResourceLimit):
            take_sessions(world.client())


def take_sessions(client: Client) -> None:
    while True:
        client.connection.objects.acquire(5 * SESSION_BYTES, "session")


def create(memory: ObjectMemory, account: ObjectAccount, name: str) -> None:
    """Create until it is refused, which is raised."""
    while True:
        memory.check_lasting(QUEUE, account, "queue")
        memory.add_lasting(f"{name} {len(memory._creators)}", QUEUE, account)


def fill_lasting(memory: ObjectMemory) -> int:
    """Have clients that connect again and again create until nothing more is created now; return how many."""
    before, created = memory.lasting, -1
    while created:
        account = ObjectAccount(memory)
        with contextlib.suppress(ResourceLimit):
            create(memory, account, "filled")
        created = account.created
    return (memory.lasting - before) // QUEUE


# ---------------------------------------------------------------- what a connection takes with it


def test_objects_of_a_connection_are_counted_until_they_are_closed(world):
    connection = world.client().connection
    producer = ProducerId("c1", 1, 1)
    connection.add_session()
    assert held(world) == SESSION_BYTES
    connection.add_producer(producer, parse("queue://Q"))
    connection.add_producer(producer, parse("queue://Q"))
    assert held(world) == SESSION_BYTES + PRODUCER_BYTES + CHARACTER_BYTES
    connection.remove_producer(producer)
    connection.remove_producer(producer)
    connection.remove_session()
    assert held(world) == 0
    assert lasting(world) == QUEUE


def test_consumer_is_counted_with_its_selector_and_parts(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", selector="a = 1", composite=(parse("queue://P"), parse("queue://R")))
    assert held(world) == CONSUMER_BYTES + 2 * PART_BYTES + (5 + 3) * CHARACTER_BYTES
    inbox.consumer.close()
    inbox.consumer.close()
    assert held(world) == 0


def test_levels_of_a_deep_name_count_beyond_the_eighth(world):
    client = world.client()
    name = ".".join("a" * 20)
    client.connection.add_destination(parse("queue://" + name))
    assert lasting(world) == DESTINATION_BYTES + len(name) * CHARACTER_BYTES + 12 * LEVEL_BYTES
    wildcard = client.subscribe(f"topic://{name}.>")
    assert held(world) == CONSUMER_BYTES + (len(name) + 2) * CHARACTER_BYTES + 13 * LEVEL_BYTES
    wildcard.consumer.close()
    client.connection.add_producer(ProducerId("c1", 1, 1), parse("queue://" + name))
    assert held(world) == PRODUCER_BYTES + len(name) * CHARACTER_BYTES + 12 * LEVEL_BYTES
    before = lasting(world)
    client.subscribe(f"topic://{name}.>", subscription_name="s")
    assert lasting(world) == before + DURABLE_BYTES + len("c1:s") * CHARACTER_BYTES + 13 * LEVEL_BYTES
    client.connection.remove_destination(parse("queue://" + name))
    assert lasting(world) == DURABLE_BYTES + len("c1:s") * CHARACTER_BYTES + 13 * LEVEL_BYTES


def test_refused_consumer_is_not_counted(world):
    client = world.client()
    with pytest.raises(RequestError):
        client.subscribe("topic://T", browser=True)
    with pytest.raises(InvalidDestination, match="1025 characters"):
        client.subscribe("queue://" + "x" * (NAME_MAX + 1))
    assert held(world) == 0


def test_advisory_topics_count_with_their_listeners(world):
    client = world.client()
    name = "ActiveMQ.Advisory.Consumer.Queue." + "x" * NAME_MAX
    inbox = client.subscribe(f"topic://{name}")
    assert held(world) == CONSUMER_BYTES + DESTINATION_BYTES + len(name) * CHARACTER_BYTES
    assert lasting(world) == 0
    inbox.consumer.close()
    assert held(world) == 0


def test_advisory_topic_that_a_client_sends_to_stays_and_counts(world):
    world.client().connection.add_destination(parse("topic://ActiveMQ.Advisory.X"))
    assert lasting(world) > 0
    world.client().connection.remove_destination(parse("topic://ActiveMQ.Advisory.X"))
    assert lasting(world) == 0


def test_temporary_destinations_count_for_their_connection(world):
    client = world.client()
    name = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    client.connection.add_destination(name)
    assert held(world) == DESTINATION_BYTES + len(name.name) * CHARACTER_BYTES
    assert lasting(world) == 0
    with pytest.raises(InvalidDestination, match="belongs to another"):
        world.client().connection.add_destination(name)
    client.connection.remove_destination(name)
    assert held(world) == 0


def test_temporary_destinations_need_no_place_among_those_that_stay():
    world = World(MemoryStore(), limits=Limits(destinations_max=1))
    client = world.client()
    client.connection.add_destination(parse("queue://Q"))
    client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    client.subscribe("topic://ActiveMQ.Advisory.Connection")
    with pytest.raises(RequestError, match="there are 1 destinations already"):
        client.connection.add_destination(parse("queue://P"))


def test_open_transactions_beyond_the_usual_number_count(world):
    connection = world.client().connection
    begun = [connection.begin() for _ in range(_USUAL_TRANSACTIONS)]
    assert world.broker.objects.held == 0
    begun += [connection.begin(), connection.begin()]
    assert world.broker.objects.held == 2 * TRANSACTION_BYTES
    connection.commit(begun[0])
    connection.rollback(begun[1])
    assert world.broker.objects.held == 0


def test_transactions_are_refused_when_nothing_is_left(world):
    client = world.client()
    fill_shared(world)
    for _ in range(_USUAL_TRANSACTIONS + GUARANTEED_BYTES // TRANSACTION_BYTES):
        client.connection.begin()
    with pytest.raises(ResourceLimit, match="The transaction cannot be created"):
        client.connection.begin()


def test_closed_connection_gives_everything_back(world):
    client = world.client()
    client.subscribe("queue://Q")
    client.connection.add_session()
    client.connection.add_producer(ProducerId("c1", 1, 1), None)
    client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    for _ in range(_USUAL_TRANSACTIONS + 5):
        client.connection.begin()
    client.connection.close()
    client.connection.remove_session()
    assert held(world) == 0
    assert world.broker.objects.shared == 0


def test_closed_connection_creates_nothing_more(world):
    client = world.client()
    client.connection.close()
    with pytest.raises(RequestError, match="connection is closed"):
        client.subscribe("queue://Q")
    with pytest.raises(RequestError, match="connection is closed"):
        client.connection.add_producer(ProducerId("c1", 1, 1), None)
    with pytest.raises(RequestError, match="connection is closed"):
        client.connection.begin(LocalTransactionId("c1", 1))
    assert held(world) == 0


def test_one_connection_takes_three_quarters_of_what_all_share(world):
    client = world.client()
    with pytest.raises(ResourceLimit, match="The session cannot be created"):
        take_sessions(client)
    three_quarters = PART_MIN * 3 // 4
    assert client.connection.objects.held - GUARANTEED_BYTES in range(three_quarters - 20_000, three_quarters + 1)
    other = world.client()
    for _ in range(3000):
        other.connection.add_producer(ProducerId("c2", 1, _), None)


def test_new_connection_has_its_guaranteed_part_when_others_took_all(world):
    world.client().connection.add_destination(parse("queue://Q"))
    fill_shared(world)
    client = world.client()
    for _ in range(GUARANTEED_BYTES // CONSUMER_OF_Q):
        client.subscribe("queue://Q")
    with pytest.raises(ResourceLimit, match="The consumer cannot be created"):
        client.subscribe("queue://Q")
    with pytest.raises(ResourceLimit, match="The temporary destination cannot be created"):
        client.connection.create_temporary(DestinationType.TEMP_QUEUE)


def test_ten_thousand_consumers_fit_under_a_usual_limit():
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=512 << 20))
    client = world.client()
    for _ in range(10_000):
        client.connection.objects.acquire(CONSUMER_OF_Q, "consumer")


# ---------------------------------------------------------------- what stays


def test_durable_subscription_is_counted_until_it_is_deleted(world):
    client = world.client()
    client.connection.add_destination(parse("topic://T"))
    before = lasting(world)
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    assert lasting(world) == before + DURABLE_BYTES + len("c1:s") * CHARACTER_BYTES
    client.subscribe("topic://T", subscription_name="s", selector="a = 1").consumer.close()
    assert lasting(world) == before + DURABLE_BYTES + (len("c1:s") + 5) * CHARACTER_BYTES
    client.connection.unsubscribe("c1", "s")
    assert lasting(world) == before
    assert client.connection.objects.created == before


@pytest.mark.parametrize("how", ["send", "transaction", "producer", "consumer", "add", "composite"])
def test_destination_counts_for_the_connection_that_creates_it(world, how):
    world.client().send("queue://OTHER", "a")
    client = world.client()
    match how:
        case "send":
            client.send("queue://Q", "a")
        case "composite":
            client.send("queue://Q,OTHER", "a")
        case "transaction":
            client.send("queue://Q", "a", transaction=client.connection.begin())
        case "producer":
            client.connection.add_producer(ProducerId("c1", 1, 1), parse("queue://Q"))
        case "consumer":
            client.subscribe("queue://Q")
        case _:
            client.connection.add_destination(parse("queue://Q"))
    assert client.connection.objects.created == QUEUE


def test_deleted_destination_is_given_back_to_its_creator(world):
    client = world.client()
    client.connection.add_destination(parse("queue://Q"))
    world.client().connection.remove_destination(parse("queue://Q"))
    assert client.connection.objects.created == 0
    assert lasting(world) == 0


def test_dead_letter_queue_is_the_brokers_own(world):
    client = world.client()
    client.send("queue://Q", "a")
    created = client.connection.objects.created
    inbox = client.subscribe("queue://Q")
    inbox.consumer.reject(inbox.deliveries[0], "no")
    assert parse("queue://ActiveMQ.DLQ") in world.broker.queues
    assert client.connection.objects.created == created


def test_one_connection_leaves_space_for_what_others_create(memory):
    one, other = ObjectAccount(memory), ObjectAccount(memory)
    with pytest.raises(ResourceLimit, match="Delete what is not used, or raise memory_limit"):
        create(memory, one, "one")
    number = len(memory._creators)
    assert number * QUEUE in range(PART_MIN * 5 // 10, PART_MIN * 6 // 10)
    for number in range(300):
        memory.check_lasting(QUEUE, other, "queue")
        memory.add_lasting(f"other {number}", QUEUE, other)


def test_new_connection_creates_after_others_came_again_and_again(memory, now):
    fill_lasting(memory)
    now[0] += 20
    account = ObjectAccount(memory)
    for number in range(10):
        memory.check_lasting(QUEUE, account, "queue")
        memory.add_lasting(f"new {number}", QUEUE, account)


def test_reserve_lasts_for_a_while_of_clients_that_come_again(memory, now):
    fill_lasting(memory)
    left = memory.lasting_max - memory.lasting
    minutes = 0
    while memory.lasting + QUEUE <= memory.lasting_max:
        now[0] += 60
        minutes += 1
        assert fill_lasting(memory) * QUEUE <= 60 * RESERVE_BYTES_PER_SECOND + QUEUE
    assert minutes >= left // (60 * RESERVE_BYTES_PER_SECOND)


def test_one_connection_gets_little_of_the_reserve_at_a_time(memory, now):
    fill_lasting(memory)
    now[0] += 60
    account = ObjectAccount(memory)
    for _ in range(OWN_BURST_BYTES // QUEUE):
        memory.check_lasting(QUEUE, account, "queue")
    with pytest.raises(ResourceLimit):
        memory.check_lasting(QUEUE, account, "queue")
    now[0] += 6
    memory.check_lasting(QUEUE, account, "queue")


def test_destinations_max_bounds_the_part_of_what_stays():
    memory = ObjectMemory(16 << 30, 100_000, count=lambda change: None, seconds=lambda: 0.0)
    account = ObjectAccount(memory)
    with pytest.raises(ResourceLimit):
        create(memory, account, "one")
    assert len(memory._creators) in range(50_000, 60_000)


def test_clients_are_refused_only_what_is_new(world):
    client = world.client()
    client.subscribe("topic://T", subscription_name="old").consumer.close()
    client.send("queue://OLD", "a")
    fill_lasting(world.broker.objects)
    world.broker.objects._reserve = Allowance(0, 0, 0)
    late = world.client("late")
    with pytest.raises(ResourceLimit, match="queue://Q cannot be created"):
        late.send("queue://Q", "a")
    with pytest.raises(ResourceLimit, match="The subscription new cannot be created"):
        late.subscribe("topic://T", subscription_name="new")
    client.send("queue://OLD", "b")
    client.subscribe("topic://T", subscription_name="old").consumer.close()
    client.subscribe("topic://T", subscription_name="old", selector="a = 1").consumer.close()
    assert list(world.broker.durables) == ["c1:old"]
    late.connection.create_temporary(DestinationType.TEMP_QUEUE)
    late.subscribe("queue://OLD")


def test_refusal_removes_destinations_that_are_not_used(world):
    turns: list[Callable[[], None]] = []
    world.broker.usage.paging.later = turns.append
    client = world.client()
    for number in range(20):
        client.connection.add_destination(parse(f"queue://Q.{number}"))
    client.send("queue://KEPT", "a")
    client.connection.objects.created += 10 * PART_MIN
    client.connection.objects.reserve = Allowance(0, 0, 0)
    with pytest.raises(ResourceLimit):
        client.connection.add_destination(parse("queue://LAST"))
    while turns:
        turns.pop()()
    assert list(world.broker.queues) == [parse("queue://KEPT")]


def test_recovered_objects_are_counted_and_never_refused(world):
    client = world.client()
    for number in range(20):
        client.subscribe("topic://T", subscription_name=f"s{number}").consumer.close()
        client.send(f"queue://Q{number}", "a")
    count, before = world.broker.objects.destination_count, lasting_of(world)
    world.limits = Limits(memory_bytes_max=(1 << 20) + 1)
    world.start()
    assert world.broker.objects.destination_count == count
    assert lasting_of(world) == before


def lasting_of(world: World) -> int:
    return world.broker.objects.lasting


def test_usage_counts_no_more_than_the_parts(now):
    used = [0]

    def count(change: int) -> None:
        used[0] += change

    memory = ObjectMemory(LIMIT, 100_000, count=count, seconds=lambda: now[0])
    for number in range(20_000):
        memory.add_lasting(str(number), QUEUE, None)
    assert used[0] == LIMIT // 4
    for number in range(20_000):
        memory.remove_lasting(str(number), QUEUE)
    assert used[0] == 0


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("how", ["send", "transaction", "producer", "add", "part", "temporary"])
def test_long_names_are_refused(world, how):
    client = world.client()
    connection = client.connection
    long = "queue://" + "x" * (NAME_MAX + 1)
    connection.add_destination(parse("queue://" + "x" * NAME_MAX))
    begun = connection.begin()
    attempts: dict[str, Callable[[], object]] = {
        "send": lambda: client.send(long, "a"),
        "transaction": lambda: client.send(long, "a", transaction=begun),
        "producer": lambda: connection.add_producer(ProducerId("c1", 1, 1), parse(long)),
        "part": lambda: client.send("queue://A,B," + long, "a"),
        "temporary": lambda: connection.add_destination(parse("temp-" + long)),
        "add": lambda: connection.add_destination(parse(long)),
    }
    with pytest.raises(InvalidDestination, match="A name of 1025 characters, where 1024 are allowed"):
        attempts[how]()
    assert len(world.broker.queues) == 1
    assert world.broker.objects.held == 0


def test_long_ids_are_refused(world):
    world.client("x" * NAME_MAX)
    with pytest.raises(InvalidClientId, match="1025 characters"):
        world.client("x" * (NAME_MAX + 1))
    with pytest.raises(RequestError, match="A subscription name of 1025 characters"):
        world.client().subscribe("topic://T", subscription_name="s" * (NAME_MAX + 1))
