# mypy: disable-error-code="attr-defined, override, union-attr, var-annotated"
"""Delivered messages whose bodies have left memory: each way in which a delivery can end."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest

from pybroker.broker.core import deadletter
from pybroker.broker.core.broker import Limits
from pybroker.broker.core.delivered import without_body
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.usage import REFERENCE_BYTES
from pybroker.broker.domain.destination import DestinationType, parse
from pybroker.broker.domain.errors import NotReadYet, StoreUnavailable
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.ports import Page
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.backlogs import message
from tests.unit.core.conftest import Inbox, World, make_message

Q = parse("queue://Q")
LIMIT = 10_000_000
BRANCH = XATransactionId(1, b"global", b"branch")
COUNT = 100


class Disk(MemoryStore):
    """A store on disk, which may be slow to write, and fail to read."""

    def __init__(self) -> None:
        super().__init__(supports_paging=True)
        self.reads = 0
        self.is_slow = False
        self.failure: type[StoreUnavailable] | None = None
        self.lost: set[str] = set()
        self.callbacks: list[Callable[[], None]] = []

    def read_page(self, destination: object, message_ids: "list[str]", bytes_max: int) -> Page:
        if self.failure is not None:
            raise self.failure("the disk does not answer")
        self.reads += 1
        page = super().read_page(destination, message_ids, bytes_max)  # type: ignore[arg-type]
        return Page([each for each in page.messages if each.message_id not in self.lost], page.looked_at)

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self.is_slow:
            self.callbacks.append(callback)
        else:
            callback()

    def sync(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


class Failing:
    """Raises an error at each call, and counts the calls."""

    class Error(Exception):
        """An error that is none of the broker's."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *arguments: object, **named: object) -> Message:
        self.count += 1
        raise self.Error


@pytest.fixture
def disk() -> Disk:
    return Disk()


def used(world: World) -> int:
    """Return the memory in use for messages, without destinations and consumers."""
    return world.broker.usage.used - world.broker.objects.counted


def started(disk: Disk, **policy: object) -> World:
    return World(disk, DestinationPolicy(**policy), Limits(memory_bytes_max=LIMIT))  # type: ignore[arg-type]


@pytest.fixture
def world(disk: Disk) -> World:
    return started(disk)


def text(number: int) -> str:
    return f"{number:04}" + "x" * 10_000


def numbers(inbox: Inbox) -> list[int]:
    return [int(each[:4]) for each in inbox.ids]


def squeeze(world: World) -> None:
    """Have messages leave memory, as whatever takes the memory above the watermark does."""
    world.broker.usage.acquire(LIMIT)
    world.broker.usage.request_page_out(world.store.when_durable)
    world.store.sync()
    world.broker.usage.used -= LIMIT


def bodiless(inbox: Inbox) -> int:
    return sum(isinstance(each.message, BodilessMessage) for each in inbox.deliveries)


def filled(world: World, **request: object) -> Inbox:
    """Return a consumer that holds messages whose bodies have left memory."""
    inbox = world.client().subscribe("queue://Q", **{"prefetch": 1000, **request})
    world.client().send("queue://Q", *map(text, range(COUNT)))
    squeeze(world)
    assert bodiless(inbox) == COUNT
    assert used(world) < COUNT * 1100
    return inbox


def drained(world: World, destination: str = "queue://Q") -> Iterable[tuple[int, int]]:
    """Consume all of a queue; yield the number and the redelivery count of each message."""
    inbox = world.client().subscribe(destination, prefetch=10)
    while inbox.deliveries:
        yield numbers(inbox)[0], inbox.counts[0]
        inbox.ack()
        del inbox.deliveries[0]


def test_acknowledged_messages_need_no_read(world, disk):
    inbox = filled(world)
    inbox.consumer.acknowledge_all(inbox.deliveries)
    assert disk.reads == 0
    assert used(world) == 0
    assert disk.recover().queues.get(Q, []) == []


def test_memory_full_of_deliveries_makes_no_producer_wait(world):
    inbox = world.client().subscribe("queue://Q", prefetch=2000)
    producer = world.client()
    answers: list[int] = []
    for number in range(2000):
        producer.connection.send(make_message(text(number), "queue://Q"), answered=True)
        producer.connection.when_accepted(lambda number=number: answers.append(number))
    assert answers == list(range(2000))
    assert len(inbox.deliveries) == 2000
    assert used(world) < LIMIT


def test_a_wide_window_over_a_long_backlog_is_bounded(world):
    world.broker.usage.paging.later = (turns := []).append
    world.client().send("queue://Q", *map(text, range(2000)))
    inbox = world.client().subscribe("queue://Q", prefetch=2000)
    peak = 0
    while turns:
        turns.pop(0)()
        peak = max(peak, used(world))
    assert numbers(inbox) == list(range(2000))
    assert peak < LIMIT
    assert used(world) < LIMIT


def test_a_message_not_on_disk_keeps_its_body(world, disk):
    inbox = world.client().subscribe("queue://Q", prefetch=1000)
    disk.is_slow = True
    world.client().send("queue://Q", text(0))
    world.broker.usage.acquire(LIMIT)
    world.broker.usage.request_page_out(disk.when_durable)
    world.client().send("queue://Q", text(1))
    disk.sync()
    assert [isinstance(each.message, BodilessMessage) for each in inbox.deliveries] == [True, False]


def test_a_message_not_sent_yet_keeps_its_body(world):
    client = world.client()
    client.reads = False
    inbox = client.subscribe("queue://Q", prefetch=1000)
    world.client().send("queue://Q", text(0))
    squeeze(world)
    assert bodiless(inbox) == 0


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_message_no_store_has_keeps_its_body(world, is_temporary):
    client = world.client()
    destination = "queue://Q"
    if is_temporary:
        destination = str(client.connection.create_temporary(DestinationType.TEMP_QUEUE))
    inbox = client.subscribe(destination, prefetch=1000)
    client.send(destination, text(0), persistent=is_temporary)
    squeeze(world)
    assert len(inbox.deliveries) == 1
    assert bodiless(inbox) == 0


def test_short_and_foreign_messages_stay_as_they_are():
    assert without_body(make_message("x", "queue://Q")) is None
    whole = make_message("x" * 1000, "queue://Q")
    strange = Message(message_id="a:1:1", destination=Q, data=b"\xff" * 1000, persistent=True)
    assert without_body(strange) is None
    made = without_body(whole)
    assert made is not None
    assert made.size == whole.size - len(whole.data)
    assert made.broker_sequence == view(whole).message_id.broker_sequence_id
    assert without_body(made) is None


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_closed_consumer_returns_them_in_order_unread(disk, prioritized):
    world = started(disk, prioritized_messages=prioritized)
    inbox = filled(world)
    inbox.ack(50)
    world.client().send("queue://Q", text(COUNT))
    inbox.consumer.connection.close()
    assert disk.reads == 0
    assert world.broker.queues[Q].pending.count == COUNT
    assert list(drained(world)) == [(n, 1) for n in range(COUNT + 1) if n != 50]
    assert used(world) == 0


def test_unseen_messages_return_without_a_mark(world):
    inbox = filled(world)
    inbox.consumer.close(inbox.deliveries[2])
    assert list(drained(world)) == [(n, int(n < 3)) for n in range(COUNT)]


def test_interleaved_windows_return_in_order(world):
    first, second = (world.client().subscribe("queue://Q", prefetch=1000) for _ in range(2))
    world.client().send("queue://Q", *map(text, range(40)))
    squeeze(world)
    assert bodiless(first) == bodiless(second) == 20
    third = world.client().subscribe("queue://Q", prefetch=0)
    first.consumer.close()
    squeeze(world)
    second.consumer.close()
    third.consumer.close()
    assert [number for number, _ in drained(world)] == list(range(40))


@pytest.mark.parametrize("is_browser", [False, True])
def test_returned_messages_replace_what_a_search_left(world, is_browser):
    """A message that waits at the front keeps the list, and with it the places of those that a search delivered."""
    world.client().send("queue://Q", text(0), properties={"color": "blue"})
    world.client().send("queue://Q", *map(text, range(1, 4)), properties={"color": "red"})
    inbox = world.client().subscribe("queue://Q", selector="color = 'red'", prefetch=1000)
    squeeze(world)
    assert bodiless(inbox) == 3
    inbox.consumer.close()
    if is_browser:
        browser = world.client().subscribe("queue://Q", browser=True, prefetch=1000)
        assert browser.ids == [text(n) for n in range(4)]
    again = world.client().subscribe("queue://Q", selector="color = 'red'", prefetch=1000)
    assert again.ids == [text(n) for n in range(1, 4)]
    again.consumer.close()
    assert [number for number, _ in drained(world)] == [0, 1, 2, 3]
    assert used(world) == 0


def test_a_rejected_message_is_a_whole_dead_letter(world, disk):
    inbox = filled(world)
    inbox.consumer.reject(inbox.deliveries[3], "no use")
    letters = world.client().subscribe("queue://ActiveMQ.DLQ")
    assert letters.ids == [text(3)]
    assert disk.reads == 1
    inbox.consumer.connection.close()
    assert [number for number, _ in drained(world)] == [n for n in range(COUNT) if n != 3]


def test_a_message_expired_at_the_client_is_a_dead_letter(world):
    inbox = filled(world)
    inbox.consumer.expire(inbox.deliveries[3])
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == [text(3)]


def test_a_returned_message_expires_in_its_queue(world):
    inbox = world.client().subscribe("queue://Q", prefetch=1000)
    world.client().send("queue://Q", *map(text, range(3)), expiration=world.now_ms + 1000)
    squeeze(world)
    inbox.consumer.close()
    world.now_ms += 2000
    world.broker.remove_expired()
    assert world.broker.queues[Q].pending.count == 0
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == [text(n) for n in range(3)]


def test_a_message_left_too_often_is_a_whole_dead_letter(disk):
    world = started(disk, max_redeliveries=1)
    for _ in range(2):
        inbox = filled(world) if not disk.reads else world.client().subscribe("queue://Q", prefetch=1000)
        squeeze(world)
        inbox.consumer.connection.close()
        disk.reads += 1
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == [text(0)]
    assert [number for number, _ in drained(world)] == list(range(1, COUNT))


@pytest.mark.parametrize("failure", [StoreUnavailable, NotReadYet])
@pytest.mark.parametrize("ending", ["reject", "expire"])
def test_an_unreadable_message_is_dead_lettered_later(world, disk, caplog, failure, ending):
    inbox = filled(world)
    disk.failure = failure
    for number in (3, 5):
        getattr(inbox.consumer, ending)(inbox.deliveries[number], *(["no use"] if ending == "reject" else []))
    if failure is StoreUnavailable:
        assert "is locked until the store can be read: the disk does not answer" in caplog.text
    letters = world.client().subscribe("queue://ActiveMQ.DLQ")
    world.broker.remove_expired()
    assert letters.ids == []
    assert len(list(world.broker.delivered())) == COUNT, "a clean stop records them as seen"
    disk.failure = None
    world.broker.remove_expired()
    assert letters.ids == [text(3), text(5)]
    inbox.consumer.connection.close()
    assert [number for number, _ in drained(world)] == [n for n in range(COUNT) if n not in (3, 5)]


@interpreted
@pytest.mark.parametrize("is_read_late", [False, True])
@pytest.mark.parametrize("ending", ["reject", "expire"])
def test_a_message_that_cannot_be_dead_lettered_returns(world, disk, caplog, monkeypatch, ending, is_read_late):
    inbox = filled(world)
    monkeypatch.setattr(deadletter, "to_message", failing := Failing())
    monkeypatch.setattr(deadletter, "_as_it_is", failing)
    settle = partial(getattr(inbox.consumer, ending), inbox.deliveries[3], *(["no use"] if ending == "reject" else []))
    if is_read_late:
        disk.failure = NotReadYet
        settle()
        disk.failure = None
        world.broker.remove_expired()
        assert "removing a message that a consumer gave back failed" in caplog.text
    else:
        with pytest.raises(Failing.Error):
            settle()
    assert failing.count
    monkeypatch.undo()
    inbox.consumer.connection.close()
    assert [number for number, _ in drained(world)] == list(range(COUNT))
    assert used(world) == 0


def test_a_kill_before_the_read_keeps_the_message(world, disk):
    inbox = filled(world)
    disk.failure = StoreUnavailable
    inbox.consumer.reject(inbox.deliveries[3], "no use")
    disk.failure = None
    world.start()
    assert list(drained(world)) == [(n, 1) for n in range(COUNT)]


def test_a_deleted_queue_forgets_what_it_could_not_read(world, disk):
    inbox = filled(world)
    disk.failure = StoreUnavailable
    inbox.consumer.reject(inbox.deliveries[3], "no use")
    inbox.consumer.connection.close()
    world.client().connection.remove_destination(Q)
    disk.failure = None
    world.broker.remove_expired()
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []
    assert used(world) == 0


def test_a_lost_message_is_removed_with_an_error(world, disk, caplog):
    inbox = filled(world)
    disk.lost.add(inbox.deliveries[3].message.message_id)
    inbox.consumer.reject(inbox.deliveries[3], "no use")
    assert "is removed without a dead letter: the store has lost it" in caplog.text
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []
    inbox.consumer.connection.close()
    assert [number for number, _ in drained(world)] == [n for n in range(COUNT) if n != 3]
    assert used(world) == 0


@pytest.mark.parametrize("squeezed_after", [False, True])
def test_a_committed_acknowledgement_needs_no_read(world, disk, squeezed_after):
    inbox = filled(world) if not squeezed_after else world.client().subscribe("queue://Q", prefetch=1000)
    if squeezed_after:
        world.client().send("queue://Q", *map(text, range(50)))
    connection = inbox.consumer.connection
    transaction = connection.begin()
    inbox.consumer.acknowledge_all(list(inbox.deliveries), transaction)
    squeeze(world)
    assert bodiless(inbox) == len(inbox.deliveries)
    connection.commit(transaction)
    assert disk.reads == 0
    assert used(world) == 0
    assert disk.recover().queues.get(Q, []) == []


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_rolled_back_acknowledgement_is_undone(world, is_closed):
    inbox = filled(world)
    connection = inbox.consumer.connection
    transaction = connection.begin()
    inbox.consumer.acknowledge_all(inbox.deliveries[:10], transaction)
    squeeze(world)
    if is_closed:
        inbox.consumer.close()
        connection.rollback(transaction)
    else:
        connection.rollback(transaction)
        assert list(inbox.consumer.outstanding) == inbox.deliveries
        connection.close()
    assert list(drained(world)) == [(n, 1) for n in range(COUNT)]
    assert used(world) == 0


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_prepared_acknowledgements_end_without_bodies(world, outcome, is_killed):
    inbox = filled(world)
    connection = inbox.consumer.connection
    connection.begin(BRANCH)
    inbox.consumer.acknowledge_all(inbox.deliveries[:10], BRANCH)
    connection.prepare(BRANCH)
    if is_killed:
        world.start()
    squeeze(world)
    if not is_killed:
        connection.close()
    getattr(world.client().connection, outcome)(BRANCH, **({"prepared": True} if outcome == "commit" else {}))
    expected = list(range(10 if outcome == "commit" else 0, COUNT))
    assert sorted(number for number, _ in drained(world)) == expected
    assert used(world) == 0


def test_the_memory_of_a_recovered_branch_is_freed(world):
    inbox = filled(world)
    inbox.consumer.connection.begin(BRANCH)
    inbox.consumer.acknowledge_all(list(inbox.deliveries), BRANCH)
    inbox.consumer.connection.prepare(BRANCH)
    world.start()
    before = world.broker.queues[Q].usage.used
    squeeze(world)
    assert world.broker.queues[Q].usage.used < before / 5


def test_the_flag_of_a_group_is_given_again(world):
    inbox = world.client().subscribe("queue://Q", prefetch=1000)
    producer = world.client().connection
    for number in range(2):
        producer.send(message(text(number), group_id="g"))
    squeeze(world)
    inbox.consumer.connection.close()
    again = world.client().subscribe("queue://Q", prefetch=1000)
    flags = [view(again.messages[each]).group_first_for_consumer for each in again.deliveries]
    assert flags == [True, False]


def test_durable_subscriptions_share_one_message(world, disk):
    client = world.client("me")
    inboxes = [client.subscribe("topic://T", subscription_name=f"s{n}", prefetch=1000) for n in range(3)]
    world.client().send("topic://T", *map(text, range(20)))
    squeeze(world)
    assert [bodiless(each) for each in inboxes] == [20, 20, 20]
    assert len({each.deliveries[5].message for each in inboxes}) == 1
    assert used(world) < 20 * (1100 + 3 * REFERENCE_BYTES)
    inboxes[0].consumer.acknowledge_all(list(inboxes[0].deliveries))
    assert disk.reads == 0
    inboxes[1].consumer.reject(inboxes[1].deliveries[4], "no use")
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == [text(4)]
    client.connection.close()
    again = world.client("me").subscribe("topic://T", subscription_name="s1", prefetch=1000)
    assert numbers(again) == [n for n in range(20) if n != 4]
    assert set(again.counts) == {1}
    again.consumer.acknowledge_all(list(again.deliveries))
    assert len(world.client("me2").subscribe("queue://ActiveMQ.DLQ", prefetch=0).deliveries) == 0
    world.client().connection.unsubscribe("me", "s2")
    assert world.broker.topics[parse("topic://T")].usage.used == 0


def test_a_deleted_subscription_forgets_what_it_could_not_read(world, disk):
    client = world.client("me")
    inbox = client.subscribe("topic://T", subscription_name="s", prefetch=1000)
    world.client().send("topic://T", *map(text, range(3)))
    squeeze(world)
    disk.failure = StoreUnavailable
    inbox.consumer.reject(inbox.deliveries[1], "no use")
    client.connection.close()
    world.client().connection.unsubscribe("me", "s")
    disk.failure = None
    world.broker.remove_expired()
    assert world.broker.topics[parse("topic://T")].usage.used == 0
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []


def test_a_browser_reads_what_consumers_hold(world):
    filled(world)
    browser = world.client().subscribe("queue://Q", browser=True, prefetch=1000)
    assert browser.ids == [text(n) for n in range(COUNT)]
    assert browser.ended


def test_a_browser_waits_for_what_cannot_be_read(world, disk):
    inbox = filled(world)
    disk.lost.add(inbox.deliveries[3].message.message_id)
    disk.failure = NotReadYet
    browser = world.client().subscribe("queue://Q", browser=True, selector="x IS NULL", prefetch=1000)
    assert browser.ids == []
    assert not browser.ended
    disk.failure = None
    world.broker.remove_expired()
    assert numbers(browser) == [n for n in range(COUNT) if n != 3]
    assert browser.ended


def test_many_deliveries_are_looked_through_in_pieces(world):
    inbox = world.client().subscribe("queue://Q", prefetch=10_000)
    world.client().send("queue://Q", *("x" * 300 for _ in range(600)))
    world.broker.usage.paging.later = (turns := []).append
    squeeze(world)
    seen = [bodiless(inbox)]
    inbox.consumer.acknowledge_all(inbox.deliveries[500:])
    while turns:
        turns.pop(0)()
        seen.append(bodiless(inbox))
    assert 400 < seen[0] < 500, "the rest of 500 is for the holders"
    assert seen[-1] == 500
