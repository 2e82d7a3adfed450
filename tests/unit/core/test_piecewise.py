"""Work that one command multiplies is done in pieces: later commands wait, a crash leaves all of it or nothing."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.paging import PIECE_MAX, Paging
from pybroker.broker.core.piecewise import PiecewiseWork
from pybroker.broker.domain.destination import DestinationType, queue
from pybroker.broker.domain.errors import CommitFailed, StoreUnavailable
from pybroker.broker.domain.openwire.values import Long
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.slow import SlowJobStore, SlowStore
from tests.unit.core.conftest import Client, Inbox, World, make_message
from tests.unit.core.spools import MemorySpool

MANY = 2 * PIECE_MAX + 100
COMPOSITE = "queue://" + ",".join(f"C.{number}" for number in range(200))


class Disk(SlowStore):
    """A store whose disk is slow only when the test wants it."""

    is_slow = False
    unwritten = 0

    @property
    def unwritten_bytes(self) -> int:
        return self.unwritten

    def when_durable(self, callback: Callable[[], None]) -> None:
        super().when_durable(callback) if self.is_slow else callback()


class LoopWorld(World):
    """A world with an event loop whose turns the test runs."""

    def __init__(self, store: MemoryStore, **options: Any) -> None:
        self.turns: list[Callable[[], None]] = []
        super().__init__(store, **options)

    def start(self) -> BrokerCore:
        broker = super().start()
        self.turns.clear()
        broker.usage.paging.later = self.turns.append
        return broker

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()

    def settle(self) -> int:
        """Run turns until nothing is left; return their number."""
        count = 0
        while self.turns:
            self.turn()
            count += 1
        return count


@pytest.fixture
def store() -> Disk:
    return Disk()


@pytest.fixture
def world(store: Disk) -> LoopWorld:
    return LoopWorld(store)


def waiting(world: World, name: str) -> list[str]:
    """Return the bodies of a queue's waiting messages, by a new consumer."""
    client = world.client()
    inbox = client.subscribe(f"queue://{name}", prefetch=100_000)
    if isinstance(world, LoopWorld):
        world.settle()
    found = inbox.ids
    client.connection.close()
    return found


def begin(client: Client) -> LocalTransactionId:
    transaction = client.connection.begin()
    assert isinstance(transaction, LocalTransactionId)
    return transaction


def answers(client: Client, label: str, into: list[str]) -> None:
    client.connection.when_durable(lambda: into.append(label))


# ---------------------------------------------------------------- the work itself


def work(steps: Iterator[int], later: list[Callable[[], None]], *, is_behind: bool = False) -> PiecewiseWork:
    paging = Paging()
    paging.later = later.append
    behind = [is_behind]
    durable: list[Callable[[], None]] = []

    def when_durable(callback: Callable[[], None]) -> None:
        behind[0] = False
        durable.append(callback)

    made = PiecewiseWork(steps, paging, is_behind=lambda: behind[0], when_caught_up=when_durable)
    made.proceed()
    if is_behind:
        assert not later, "it waits for the journal, not for a turn"
        (callback,) = durable
        callback()
    return made


def test_piece_ends_after_its_cost() -> None:
    done: list[int] = []

    def steps() -> Iterator[int]:
        for number in range(10):
            done.append(number)
            yield PIECE_MAX // 2

    later: list[Callable[[], None]] = []
    made = work(steps(), later)
    assert done == [0, 1]
    while later:
        later.pop(0)()
    assert made.is_done
    assert done == list(range(10))


def test_piece_waits_for_the_journal_that_is_behind() -> None:
    done: list[int] = []

    def steps() -> Iterator[int]:
        for number in range(4):
            done.append(number)
            yield PIECE_MAX

    later: list[Callable[[], None]] = []
    work(steps(), later, is_behind=True)
    assert done == [0]
    assert len(later) == 1, "and then for a turn"
    later.pop()()
    assert done == [0, 1]


class BehindJobStore(SlowJobStore):
    """A job store that has much to write until `sync`."""

    @property
    def unwritten_bytes(self) -> int:
        return 1 << 30 if self.is_behind else 0

    def __init__(self) -> None:
        super().__init__()
        self.is_behind = False


def test_pieces_wait_for_the_scheduler_that_is_behind(world: LoopWorld) -> None:
    jobs = BehindJobStore()
    world.broker.open_scheduler(jobs, (), wake_at=lambda _: None, connection_id="ID:b", jobs_max=MANY)
    client = world.client()
    client.send("queue://Q", *map(str, range(MANY)), properties={"AMQ_SCHEDULED_DELAY": Long(500)})
    jobs.is_behind = True
    client.send("topic://ActiveMQ.Scheduler.Management", "", properties={"AMQ_SCHEDULER_ACTION": "REMOVEALL"})
    left = len(jobs.recover())
    assert 0 < left < MANY
    assert world.settle() == 0
    for _ in range(3):
        jobs.sync()
        assert world.settle() == 1, "a piece for each sync"
        assert len(jobs.recover()) < left
        left = len(jobs.recover())
    jobs.is_behind = False
    jobs.sync()
    world.settle()
    assert not jobs.recover()
    assert client.throttle.input_holds == 0


def test_step_that_fails_ends_the_work_and_calls_back() -> None:
    def steps() -> Iterator[int]:
        yield PIECE_MAX
        raise StoreUnavailable("gone")

    later: list[Callable[[], None]] = []
    made = work(steps(), later)
    called: list[str] = []
    made.when_done(lambda: called.append("done"))
    with pytest.raises(StoreUnavailable):
        later.pop(0)()
    assert made.is_done
    assert called == ["done"]


# ---------------------------------------------------------------- composites


def test_copies_are_made_in_pieces_and_answered_at_the_end(world: LoopWorld, store: Disk) -> None:
    client, answered = world.client(), list[str]()
    store.is_slow = True
    client.send(COMPOSITE, "m")
    assert client.throttle.input_holds == 1
    answers(client, "composite", answered)
    assert world.settle() > 2
    assert client.throttle.input_holds == 0
    assert not answered, "the commit of the copies is not on disk"
    store.sync()
    world.settle()
    assert answered == ["composite"]
    store.is_slow = False
    assert [waiting(world, f"C.{number}") for number in (0, 57, 199)] == [["m"]] * 3


def test_crash_between_pieces_of_copies_leaves_none(world: LoopWorld, store: Disk) -> None:
    client = world.client()
    client.send(COMPOSITE, "m")
    world.turn()
    assert client.throttle.input_holds == 1
    world.start()
    assert [waiting(world, f"C.{number}") for number in (0, 57, 199)] == [[]] * 3


def test_connection_that_closes_between_pieces_of_copies_sends_all(world: LoopWorld) -> None:
    client = world.client()
    client.send(COMPOSITE, "m")
    client.connection.close()
    world.settle()
    assert [waiting(world, f"C.{number}") for number in (0, 57, 199)] == [["m"]] * 3


def test_copies_wait_for_the_spool(store: Disk) -> None:
    world = LoopWorld(store, limits=Limits(memory_bytes_max=1_000_000))
    spool = world.broker.usage.paging.spool = MemorySpool()
    client = world.client()
    client.send(COMPOSITE, "m" * 20_000, persistent=False)
    world.settle()
    assert client.throttle.input_holds == 1
    while client.throttle.input_holds:
        assert spool.unwritten_bytes
        assert world.broker.usage.is_full
        assert world.broker.usage.used < 3_800_000, "200 copies take 4,200,000 bytes"
        spool.work(10)
        world.settle()
    spool.work()
    assert [len(waiting(world, f"C.{number}")) for number in (0, 57, 199)] == [1, 1, 1]


def test_large_copies_wait_for_the_journal(store: Disk) -> None:
    world = LoopWorld(store)
    client = world.client()
    store.unwritten = 1 << 30
    store.is_slow = True
    client.send(COMPOSITE, "m" * 100_000)
    assert not world.turns, "the next piece waits for the journal"
    store.unwritten = 0
    store.is_slow = False
    store.sync()
    world.settle()
    assert waiting(world, "C.199") == ["m" * 100_000]


def test_non_persistent_copies_are_made_in_pieces(world: LoopWorld) -> None:
    client = world.client()
    client.send(COMPOSITE, "m", persistent=False)
    assert client.throttle.input_holds == 1
    world.settle()
    assert client.throttle.input_holds == 0
    assert waiting(world, "C.199") == ["m"]


def test_copies_in_a_transaction_belong_to_it(world: LoopWorld) -> None:
    client = world.client()
    transaction = begin(client)
    client.send(COMPOSITE, "m", transaction=transaction)
    assert client.throttle.input_holds == 1
    world.settle()
    assert waiting(world, "C.199") == []
    client.connection.commit(transaction)
    world.settle()
    assert waiting(world, "C.199") == ["m"]


def test_copies_of_a_transaction_end_with_its_connection(world: LoopWorld) -> None:
    client = world.client()
    transaction = begin(client)
    client.send(COMPOSITE, "m", transaction=transaction)
    client.connection.close()
    world.settle()
    assert [waiting(world, f"C.{number}") for number in (0, 199)] == [[], []]


def test_copy_that_a_transaction_refuses_dooms_it(world: LoopWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.broker.core.transaction.OPERATIONS_MAX", 150)
    client = world.client()
    transaction = begin(client)
    client.send(COMPOSITE, "m", transaction=transaction)
    world.settle()
    with pytest.raises(CommitFailed):
        client.connection.commit(transaction)


# ---------------------------------------------------------------- commit and roll-back


def sent_in_transaction(client: Client, count: int = MANY) -> LocalTransactionId:
    transaction = begin(client)
    for number in range(count):
        client.send("queue://Q", str(number), transaction=transaction)
    return transaction


def test_long_commit_is_carried_out_in_pieces(world: LoopWorld, store: Disk) -> None:
    client, answered = world.client(), list[str]()
    inbox = world.client().subscribe("queue://Q", prefetch=10_000)
    transaction = sent_in_transaction(client)
    store.is_slow = True
    client.connection.commit(transaction)
    assert client.throttle.input_holds == 1
    answers(client, "commit", answered)
    world.client().send("queue://Q", "of another")
    world.settle()
    assert client.throttle.input_holds == 0
    client.send("queue://Q", "later")
    assert inbox.ids == [], "the commit is not on disk"
    store.sync()
    world.settle()
    assert answered == ["commit"]
    names = inbox.ids
    assert [name for name in names if name != "of another"] == [*map(str, range(MANY)), "later"]
    assert "of another" in names


def test_memory_of_a_long_commit_is_counted_once(world: LoopWorld, store: Disk) -> None:
    client = world.client()
    transaction = sent_in_transaction(client)
    size = make_message("0", "queue://Q", client.connection.connection_id).size
    store.is_slow = True
    before = world.broker.usage.used
    client.connection.commit(transaction)
    while world.turns:
        assert before - MANY <= world.broker.usage.used <= before + 3 * MANY
        world.turn()
    assert world.broker.usage.used >= MANY * size, "they wait at the gate"
    store.sync()
    world.settle()
    assert MANY * size <= world.broker.usage.used <= MANY * (size + 3)
    world.broker.remove_destination(queue("Q"))
    assert world.broker.usage.used == 0


def test_deleted_queue_releases_what_waits_at_its_gate(world: LoopWorld, store: Disk) -> None:
    client = world.client()
    transaction = sent_in_transaction(client)
    store.is_slow = True
    client.connection.commit(transaction)
    world.settle()
    assert world.broker.usage.used > 0
    world.broker.remove_destination(queue("Q"))
    assert world.broker.usage.used == 0


def test_queue_deleted_between_pieces_of_a_commit_stays_empty(world: LoopWorld, store: Disk) -> None:
    """The commit came first, so its messages are deleted: the store has none, and memory may not have some."""
    client, other = world.client(), world.client()
    transaction, late = sent_in_transaction(client), sent_in_transaction(other, 3)
    client.send("queue://OTHER", "kept", transaction=transaction)
    client.connection.commit(transaction)
    world.turn()
    assert client.throttle.input_holds == 1
    world.broker.remove_destination(queue("Q"))
    world.settle()
    assert waiting(world, "Q") == []
    assert waiting(world, "OTHER") == ["kept"]
    other.connection.commit(late)
    world.settle()
    assert waiting(world, "Q") == ["0", "1", "2"], "this commit came after the deletion"
    for name in ("Q", "OTHER"):
        world.broker.remove_destination(queue(name))
    client.connection.close()
    other.connection.close()
    assert world.broker.usage.used == 0
    assert world.broker.usage.in_transactions == 0


def test_crash_between_pieces_of_a_commit_keeps_all(world: LoopWorld) -> None:
    client = world.client()
    client.connection.commit(sent_in_transaction(client))
    assert client.throttle.input_holds == 1
    world.start()
    assert waiting(world, "Q") == [*map(str, range(MANY))]


def test_connection_that_closes_between_pieces_of_a_commit_commits_all(world: LoopWorld) -> None:
    client = world.client()
    client.connection.commit(sent_in_transaction(client))
    client.connection.close()
    world.settle()
    assert waiting(world, "Q") == [*map(str, range(MANY))]


def test_long_roll_back_returns_all_acknowledged_messages(world: LoopWorld) -> None:
    producer, client = world.client(), world.client()
    producer.send("queue://Q", *map(str, range(MANY)))
    inbox = client.subscribe("queue://Q", prefetch=10_000)
    world.settle()
    transaction = begin(client)
    for index in range(MANY):
        inbox.ack(index, transaction)
    client.connection.rollback(transaction)
    world.settle()
    client.connection.close()
    world.settle()
    assert waiting(world, "Q") == [*map(str, range(MANY))]


def test_many_gates_open_in_pieces(world: LoopWorld) -> None:
    client = world.client()
    inboxes = [world.client().subscribe(f"queue://C.{number}") for number in range(200)]
    client.send(COMPOSITE, "m")
    got = 0
    while world.turns:
        world.turn()
        now = sum(len(inbox.deliveries) for inbox in inboxes)
        assert now - got <= 64
        got = now
    assert got == 200


# ---------------------------------------------------------------- removal and subscription within a commit


def test_queue_deleted_before_the_commit_counts_its_messages_once(world: LoopWorld) -> None:
    client = world.client()
    transaction = begin(client)
    client.send("queue://Q", "1", "2", transaction=transaction)
    held = world.broker.usage.used
    world.broker.remove_destination(queue("Q"))
    assert held - world.broker.usage.used < 1000, "the transaction still holds the messages"
    client.send("queue://Q", "3", transaction=transaction)
    client.connection.commit(transaction)
    client.send("queue://Q", "4")
    world.settle()
    assert waiting(world, "Q") == ["1", "2", "3", "4"]
    world.broker.remove_destination(queue("Q"))
    client.connection.close()
    assert world.broker.usage.used == world.broker.objects.counted


def test_queue_deleted_before_the_roll_back_releases_its_messages(world: LoopWorld) -> None:
    client = world.client()
    before = world.broker.usage.used
    transaction = begin(client)
    client.send("queue://Q", "1", "2", transaction=transaction)
    world.broker.remove_destination(queue("Q"))
    client.connection.rollback(transaction)
    assert world.broker.usage.used == before


def test_queue_created_again_keeps_later_messages_behind_the_commit(world: LoopWorld, store: Disk) -> None:
    client = world.client()
    transaction = begin(client)
    client.send("queue://Q", "1", transaction=transaction)
    world.broker.remove_destination(queue("Q"))
    inbox = world.client().subscribe("queue://Q")
    store.is_slow = True
    client.connection.commit(transaction)
    client.send("queue://Q", "later")
    assert inbox.ids == [], "the commit is not on disk"
    store.sync()
    world.settle()
    assert inbox.ids == ["1", "later"]


def test_queue_created_again_and_deleted_after_the_commit_is_empty(world: LoopWorld, store: Disk) -> None:
    client = world.client()
    transaction = begin(client)
    client.send("queue://Q", "1", transaction=transaction)
    world.broker.remove_destination(queue("Q"))
    store.is_slow = True
    client.connection.commit(transaction)
    world.broker.remove_destination(queue("Q"))
    store.sync()
    store.is_slow = False
    world.settle()
    assert waiting(world, "Q") == []
    world.start()
    assert waiting(world, "Q") == []


def test_deleted_temporary_queue_drops_what_is_committed_later(world: LoopWorld) -> None:
    client = world.client()
    temporary = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    before = world.broker.usage.used
    transaction = begin(client)
    client.connection.send(make_message("1", str(temporary), client.connection.connection_id), transaction)
    client.send("queue://Q", "2", transaction=transaction)
    client.connection.remove_destination(temporary)
    client.connection.commit(transaction)
    world.settle()
    assert temporary not in world.broker.queues
    assert waiting(world, "Q") == ["2"]
    world.broker.remove_destination(queue("Q"))
    assert world.broker.usage.used <= before


@pytest.mark.parametrize("persistent", [True, False])
def test_queue_deleted_within_a_commit_loses_all_its_messages(
    world: LoopWorld, store: Disk, *, persistent: bool
) -> None:
    client, answered = world.client(), list[str]()
    transaction = begin(client)
    for number in range(MANY):
        client.send("queue://Q", str(number), transaction=transaction, persistent=persistent)
    client.send("queue://R", "kept", transaction=transaction)
    store.is_slow = True
    client.connection.commit(transaction)
    answers(client, "commit", answered)
    assert world.turns
    world.broker.remove_destination(queue("Q"))
    inbox = world.client().subscribe("queue://Q")
    world.settle()
    assert not answered
    assert client.throttle.input_holds == 0
    client.send("queue://Q", "later")
    store.sync()
    store.is_slow = False
    world.settle()
    assert answered == ["commit"]
    assert inbox.ids == ["later"]
    inbox.ack()
    inbox.consumer.close()
    assert waiting(world, "R") == ["kept"]
    for name in ("Q", "R"):
        world.broker.remove_destination(queue(name))
    for each in list(world.broker.connections()):
        each.close()
    world.settle()
    assert world.broker.usage.used == world.broker.objects.counted
    world.start()
    assert waiting(world, "Q") == []


@pytest.mark.parametrize("is_other_there", [True, False])
def test_subscription_within_a_commit_gets_only_what_is_sent_later(
    world: LoopWorld, store: Disk, *, is_other_there: bool
) -> None:
    client, subscriber = world.client(), world.client("subscriber")
    if is_other_there:
        first = world.client("first").subscribe("topic://T", subscription_name="d", prefetch=10_000)
    transaction = begin(client)
    for number in range(MANY):
        client.send("topic://T", str(number), transaction=transaction)
    store.is_slow = True
    client.connection.commit(transaction)
    assert world.turns
    inbox = subscriber.subscribe("topic://T", subscription_name="d", prefetch=10_000)
    world.settle()  # it begins behind the commit, and at once where none sends to the topic
    client.send("topic://T", "later")
    store.sync()
    store.is_slow = False
    world.settle()
    assert inbox.ids == ["later"]
    if is_other_there:
        assert first.ids == [*map(str, range(MANY)), "later"]
    world.start()
    again = world.client("subscriber").subscribe("topic://T", subscription_name="d", prefetch=10_000)
    world.settle()
    assert again.ids == ["later"]


def test_subscription_deleted_before_the_commit_is_on_disk_gets_nothing(world: LoopWorld, store: Disk) -> None:
    client, subscriber = world.client(), world.client("subscriber")
    transaction = begin(client)
    client.send("topic://T", "1", transaction=transaction)
    store.is_slow = True
    client.connection.commit(transaction)
    inbox = subscriber.subscribe("topic://T", subscription_name="d")
    inbox.consumer.close()
    subscriber.connection.unsubscribe("subscriber", "d")
    store.sync()
    client.send("topic://T", "2")
    assert inbox.ids == []
    topic = next(each for name, each in world.broker.topics.items() if name.name == "T")
    assert not topic.is_in_use


@pytest.mark.parametrize("seed", range(20))
def test_memory_agrees_with_a_restart_whatever_happens_within_commits(seed: int) -> None:
    random, store = Random(seed), Disk()
    world = LoopWorld(store)
    client = world.client()
    names = ["Q", "R"]
    for number in range(40):
        kind = random.choice(["commit", "remove", "subscribe", "unsubscribe", "turn", "sync", "send"])
        if kind == "commit" and not client.throttle.input_holds:
            transaction = begin(client)
            for index in range(random.choice([1, PIECE_MAX + 100])):
                where = random.choice(["queue://Q", "queue://R", "topic://T"])
                client.send(where, f"{number}.{index}", transaction=transaction)
            if random.random() < 0.3:
                world.broker.remove_destination(queue(random.choice(names)))
            store.is_slow = random.random() < 0.5
            client.connection.commit(transaction)
        elif kind == "remove":
            world.broker.remove_destination(queue(random.choice(names)))
        elif kind == "subscribe":
            each = world.client(f"s{number}")
            each.subscribe("topic://T", subscription_name="d").consumer.close()
            each.connection.close()
        elif kind == "unsubscribe" and world.broker.durables:
            world.broker.unsubscribe(random.choice(list(world.broker.durables)).split(":")[0], "d")
        elif kind == "turn":
            world.turn()
        elif kind == "sync":
            store.sync()
        elif kind == "send" and not client.throttle.input_holds:
            client.send(random.choice(["queue://Q", "topic://T"]), f"{number}")
    store.is_slow = False
    store.sync()
    world.settle()

    def contents() -> dict[str, int]:
        backlogs = {str(name): each.pending.count for name, each in world.broker.queues.items()}
        return {name: count for name, count in backlogs.items() if count} | {
            key: durable.pending.count for key, durable in world.broker.durables.items()
        }

    before = contents()
    world.start()
    world.settle()
    assert contents() == before


# ---------------------------------------------------------------- acknowledgements


def consumed(world: LoopWorld) -> tuple[Client, Inbox]:
    world.client().send("queue://Q", *map(str, range(MANY)))
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=10_000)
    world.settle()
    assert len(inbox.deliveries) == MANY
    return client, inbox


def test_many_rejections_are_carried_out_in_pieces(world: LoopWorld) -> None:
    client, inbox = consumed(world)
    inbox.consumer.reject_all(inbox.deliveries, "bad")
    assert client.throttle.input_holds == 1
    assert world.settle() > 5
    assert client.throttle.input_holds == 0
    assert waiting(world, "ActiveMQ.DLQ") == [*map(str, range(MANY))]
    assert waiting(world, "Q") == []


def test_consumer_that_closes_between_rejections_returns_the_rest(world: LoopWorld) -> None:
    client, inbox = consumed(world)
    inbox.consumer.reject_all(inbox.deliveries, "bad")
    client.connection.close()
    world.settle()
    rest = waiting(world, "Q")
    assert 0 < len(rest) < MANY
    assert waiting(world, "ActiveMQ.DLQ") + rest == [*map(str, range(MANY))]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_many_acknowledgements_are_carried_out_in_pieces(world: LoopWorld, *, in_transaction: bool) -> None:
    client, inbox = consumed(world)
    transaction = begin(client) if in_transaction else None
    inbox.consumer.acknowledge_all(inbox.deliveries, transaction)
    assert client.throttle.input_holds == 1
    world.settle()
    assert client.throttle.input_holds == 0
    if transaction is not None:
        client.connection.commit(transaction)
        world.settle()
    world.start()
    assert waiting(world, "Q") == []


def test_acknowledgements_in_a_transaction_end_with_its_connection(world: LoopWorld) -> None:
    client, inbox = consumed(world)
    inbox.consumer.acknowledge_all(inbox.deliveries, begin(client))
    client.connection.close()
    world.settle()
    assert waiting(world, "Q") == [*map(str, range(MANY))]


# ---------------------------------------------------------------- the end of a connection


def crowded(world: LoopWorld, client_id: str = "crowd") -> Client:
    """Return a client with many consumers, temporary queues and a durable subscription."""
    client = world.client(client_id)
    for number in range(200):
        client.subscribe(f"queue://C.{number}")
        client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    client.subscribe("topic://T", subscription_name="durable")
    return client


def test_connection_with_many_consumers_closes_in_pieces(world: LoopWorld) -> None:
    client = crowded(world)
    world.client().send("queue://C.199", "m")
    client.connection.close()
    assert len(world.broker.queues[queue("C.199")].consumers) == 1
    assert world.settle() > 2
    assert not world.broker.queues[queue("C.199")].consumers
    assert not any(each.is_temporary for each in world.broker.queues)
    assert waiting(world, "C.199") == ["m"]


def test_client_that_reconnects_waits_for_the_end_of_its_former_connection(world: LoopWorld) -> None:
    crowded(world).connection.close()
    client = world.client("crowd")
    assert client.throttle.input_holds == 1
    other = world.client("other")
    assert other.throttle.input_holds == 0
    world.settle()
    assert client.throttle.input_holds == 0
    client.subscribe("topic://T", subscription_name="durable")


def test_connection_that_closes_while_it_waits_for_its_former_one_is_gone(world: LoopWorld) -> None:
    crowded(world).connection.close()
    world.client("crowd").connection.close()
    third = world.client("crowd")
    assert third.throttle.input_holds == 1, "the first one has not left yet"
    world.settle()
    assert third.throttle.input_holds == 0
    assert len(list(world.broker.connections())) == 1


def test_broker_that_stops_carries_out_the_work_under_way(world: LoopWorld) -> None:
    client = world.client()
    client.send(COMPOSITE, "m")
    crowded(world).connection.close()
    world.broker.quiesce()
    assert not any(queue.consumers for queue in world.broker.queues.values())
    world.settle()
    world.start()
    assert waiting(world, "C.199") == ["m"]


def test_broker_that_lost_its_lock_changes_nothing_more(world: LoopWorld) -> None:
    client = world.client()
    client.send(COMPOSITE, "m")
    world.broker.abandon()
    world.settle()
    assert client.throttle.input_holds == 1
    world.start()
    assert waiting(world, "C.199") == []


# ---------------------------------------------------------------- scheduled messages


def scheduled(world: LoopWorld, jobs: MemoryJobStore) -> None:
    """Schedule a message to a composite, and have it due."""
    world.broker.open_scheduler(jobs, [], wake_at=lambda _: None, connection_id="ID:jobs", jobs_max=10)
    client = world.client()
    message = make_message("m", COMPOSITE, client.connection.connection_id, properties={"AMQ_SCHEDULED_DELAY": 1000})
    client.connection.send(message)
    world.now_ms += 2000
    assert world.broker.scheduler is not None
    world.broker.scheduler.fire(world.now_ms)


def test_scheduled_copies_are_made_in_pieces_before_the_job_ends(world: LoopWorld) -> None:
    jobs = MemoryJobStore()
    scheduled(world, jobs)
    assert len(jobs.recover()) == 1, "its copies are not committed"
    assert world.settle() > 2
    assert jobs.recover() == []
    assert waiting(world, "C.199") == ["m"]


def test_crash_between_pieces_of_scheduled_copies_keeps_the_job(world: LoopWorld) -> None:
    jobs = MemoryJobStore()
    scheduled(world, jobs)
    world.start()
    assert len(jobs.recover()) == 1
    assert waiting(world, "C.0") == []
