"""Messages of a queue are browsed, counted, removed, moved and copied by an operator."""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from pybroker.broker.core import message_pages
from pybroker.broker.core.backlog_walk import READ_MAX
from pybroker.broker.core.message_pages import read_bodies
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.virtual import CompositeDestination, Forward
from pybroker.broker.domain import audit
from pybroker.broker.domain.destination import parse, queue, topic
from pybroker.broker.domain.errors import (
    InvalidDestination,
    InvalidSelector,
    NotReadYet,
    ResourceLimit,
    StoreUnavailable,
)
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.operations import (
    EVERY_MESSAGE,
    LAST_PAGE,
    BrowsedMessage,
    MessageSelection,
    MessageState,
    OperationInterrupted,
    PageEnd,
    PageLimits,
)
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.conftest import Inbox, World
from tests.unit.core.operators import ACTOR, TARGET, Loop, Operator, Q, error_of, names_of, operated
from tests.unit.core.spools import MemorySpool
from tests.unit.core.test_delivered import Disk, filled, started


def numbers(*values: int) -> list[str]:
    return [str(value) for value in values]


def sent(operator: Operator, count: int) -> list[str]:
    """Send numbered messages with a property `n`, and return their names."""
    client = operator.world.client()
    names = numbers(*range(count))
    for number, name in enumerate(names):
        client.send("queue://Q", name, properties={"n": number})
    return names


def paged_out(operator: Operator) -> None:
    """Start the broker again: what its store has is paged out, and read when it is needed."""
    operator.world.start()
    operator.world.broker.usage.paging.later = operator.loop.later.append


def ids(operator: Operator) -> list[str]:
    return [each.message.message_id for each in operator.browse().messages]


def consumed(world: World, destination: str) -> list[str]:
    inbox = world.client().subscribe(destination, prefetch=1000)
    return inbox.ids


@pytest.fixture(params=["in memory", "paged out"])
def operator(request: pytest.FixtureRequest) -> Operator:
    """An operator of a queue with the messages 0 to 99."""
    operator = operated(MemoryStore(supports_paging=True))
    sent(operator, 100)
    if request.param == "paged out":
        paged_out(operator)
    return operator


# ---------------------------------------------------------------- browsing


def test_a_page_begins_behind_its_cursor(operator: Operator) -> None:
    first = operator.browse(count=3)
    assert (names_of(first), first.end) == (["0", "1", "2"], PageEnd.COUNT)
    second = operator.browse(first.cursor, count=3)
    assert names_of(second) == ["3", "4", "5"]
    rest = operator.browse(second.cursor)
    assert (names_of(rest), rest.end) == (numbers(*range(6, 100)), PageEnd.LAST)
    assert (operator.browse(rest.cursor).messages, operator.browse(rest.cursor).end) == ([], PageEnd.LAST)


def test_a_page_after_the_last_has_what_has_come_since(operator: Operator) -> None:
    last = operator.browse()
    operator.world.client().send("queue://Q", "new")
    assert names_of(operator.browse(last.cursor)) == ["new"]


def test_the_last_page_has_the_newest_messages(operator: Operator) -> None:
    page = operator.browse(LAST_PAGE, count=3)
    assert (names_of(page), page.end) == (["97", "98", "99"], PageEnd.LAST)
    assert names_of(operator.browse(LAST_PAGE, count=500)) == numbers(*range(100))
    operator.remove(MessageSelection(selector="n > 4 AND n <> 50"))
    assert names_of(operator.browse(LAST_PAGE, count=3)) == ["3", "4", "50"]
    operator.remove()
    page = operator.browse(LAST_PAGE, count=3)
    assert (page.messages, page.end) == ([], PageEnd.LAST)
    operator.world.client().send("queue://Q", "new")
    assert names_of(operator.browse(page.cursor)) == ["new"]


def test_the_last_page_has_messages_in_flight_in_their_places(operator: Operator) -> None:
    inbox = operator.world.client().subscribe("queue://Q", prefetch=3, selector="n = 1 OR n = 97 OR n = 99")
    operator.loop.run()
    assert sorted(inbox.ids) == ["1", "97", "99"]
    assert names_of(operator.browse(LAST_PAGE, count=4)) == ["96", "97", "98", "99"]
    operator.remove(MessageSelection(selector="n <> 98"))
    assert names_of(operator.browse(LAST_PAGE, count=3)) == ["97", "98", "99"]
    assert names_of(operator.browse(LAST_PAGE, count=50)) == ["1", "97", "98", "99"]


def test_a_page_with_a_selector_has_what_matches(operator: Operator) -> None:
    page = operator.browse(selector="n >= 90", count=3)
    assert (names_of(page), page.end) == (["90", "91", "92"], PageEnd.COUNT)
    assert names_of(operator.browse(page.cursor, selector="n >= 90")) == numbers(*range(93, 100))


def test_a_page_ends_with_its_bytes(operator: Operator) -> None:
    page = operator.browse(byte_count=1)
    assert (names_of(page), page.end) == (["0"], PageEnd.BYTES)


def test_a_page_ends_with_its_time_and_the_next_continues(operator: Operator) -> None:
    now = iter(range(1_000_000))
    operator.world.broker.usage.paging.monotonic = lambda: float(next(now))
    page = operator.browse(selector="n = 99", seconds=1.0)
    assert (page.messages, page.end) == ([], PageEnd.TIME)
    assert 0 < page.examined < 100
    found: list[str] = []
    for _ in range(100):
        page = operator.browse(page.cursor, selector="n = 99", seconds=1.0)
        found += names_of(page)
    assert (found, page.end) == (["99"], PageEnd.LAST)


def test_messages_in_flight_are_among_the_others_with_their_consumer(operator: Operator) -> None:
    client = operator.world.client("me")
    inbox = client.subscribe("queue://Q", prefetch=3, selector="n = 1 OR n = 5 OR n = 98")
    operator.loop.run()
    assert sorted(inbox.ids) == ["1", "5", "98"]
    page = operator.browse()
    assert names_of(page) == numbers(*range(100))
    assert all(one.position < other.position for one, other in pairwise(page.messages))
    held = [each for each in page.messages if each.state is MessageState.IN_FLIGHT]
    assert [view(each.message).content for each in held] == [b"1", b"5", b"98"]
    holder = held[0].holder
    assert holder is not None
    assert (holder.connection_id, holder.client_id) == (client.connection.connection_id, "me")
    assert {each.holder for each in page.messages if each.state is MessageState.WAITING} == {None}


def test_a_queue_whose_messages_are_all_in_flight(operator: Operator) -> None:
    operator.world.client().subscribe("queue://Q", prefetch=1000)
    operator.loop.run()
    assert names_of(operator.browse(count=3)) == ["0", "1", "2"]
    assert names_of(operator.browse(selector="n = 42")) == ["42"]


def test_many_messages_in_flight_are_read_in_pieces(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them may be behind the last message that waits."""
    operator.world.client().subscribe("queue://Q", prefetch=1000, selector="n <> 50")
    operator.loop.run()
    counts: list[int] = []

    def read(source: StoredSource, references: Sequence[Reference]) -> dict[int, Reference]:
        counts.append(len(references))
        return read_bodies(source, references)

    monkeypatch.setattr(message_pages, "read_bodies", read)
    assert names_of(operator.browse()) == numbers(*range(100))
    assert max(counts) <= READ_MAX
    assert names_of(operator.browse(cursor=48, count=3)) == ["49", "50", "51"]


def test_bodies_that_have_left_memory_are_read_back() -> None:
    world = started(Disk())
    inbox = filled(world)
    operator = Operator(world)
    assert names_of(operator.browse()) == inbox.ids
    first = operator.browse(count=1).messages[0]
    found = operator.message(first.message.message_id)
    assert found is not None
    assert (found.message.data, found.state) == (first.message.data, MessageState.IN_FLIGHT)


def test_one_message_is_found_by_its_id(operator: Operator) -> None:
    wanted = operator.browse().messages[77]
    found = operator.message(wanted.message.message_id)
    assert found == wanted
    assert operator.message("ID:none:1:1:1") is None


def test_a_redelivered_message_says_so() -> None:
    operator = operated()
    sent(operator, 2)
    operator.world.client().subscribe("queue://Q", prefetch=1).consumer.close()
    assert [each.redelivery_count for each in operator.browse().messages] == [1, 0]


def test_a_page_of_a_queue_by_priority_is_by_age() -> None:
    operator = operated(MemoryStore(prioritized=True, supports_paging=True), prioritized_messages=True)
    client = operator.world.client()
    for number in range(50):
        client.send("queue://Q", str(number), priority=number % 10)
    assert operator.names() == numbers(*range(50))
    assert operator.browse(selector="JMSPriority = 9").examined == 50


def test_what_a_durable_subscription_holds_is_browsed() -> None:
    operator = operated()
    client = operator.world.client("me")
    inbox = client.subscribe("topic://T", subscription_name="s", prefetch=2)
    client.send("topic://T", "a", "b", "c")
    browse = operator.world.broker.operations.browse_subscription
    browse("me:s", -1, PageLimits(), None, operator.results.append)
    page = operator.page()
    assert names_of(page) == ["a", "b", "c"]
    assert [each.state.value for each in page.messages] == ["in flight", "in flight", "waiting"]
    inbox.consumer.close()
    browse("me:s", -1, PageLimits(), None, operator.results.append)
    assert [each.state.value for each in operator.page().messages] == ["waiting"] * 3
    with pytest.raises(InvalidDestination, match="no durable subscription 'me:t'"):
        browse("me:t", -1, PageLimits(), None, operator.results.append)


def test_a_store_that_reads_later_delays_a_page() -> None:
    disk = Disk()
    operator = operated(disk)
    names = sent(operator, 5)
    paged_out(operator)
    disk.failure = NotReadYet
    operator.world.broker.operations.browse(Q, -1, PageLimits(), None, operator.results.append)
    operator.loop.run()
    assert operator.results == []
    disk.failure = None
    operator.world.broker.remove_expired()
    assert names_of(operator.page()) == names


def test_a_store_that_cannot_be_read_ends_a_page_with_its_error() -> None:
    disk = Disk()
    operator = operated(disk)
    sent(operator, 5)
    paged_out(operator)
    disk.failure = StoreUnavailable
    operator.world.broker.operations.browse(Q, -1, PageLimits(), None, operator.results.append)
    operator.loop.run()
    (error,) = operator.results
    assert isinstance(error, StoreUnavailable)


@pytest.mark.parametrize("act", ["browse", "count", "remove", "move"])
def test_a_bad_selector_is_refused_with_its_error(operator: Operator, act: str) -> None:
    arguments = {"selector": "n ==="} if act == "browse" else {"selection": MessageSelection(selector="n ===")}
    with pytest.raises(InvalidSelector, match="n ==="):
        getattr(operator, act)(**arguments)
    assert operator.world.broker.operations._running == {}


@pytest.mark.parametrize("act", ["browse", "message", "count", "remove", "move", "copy"])
def test_an_unknown_queue_is_refused(act: str) -> None:
    arguments = ["m:1"] if act == "message" else []
    with pytest.raises(InvalidDestination, match="there is no queue 'Q': check the name"):
        getattr(operated(), act)(*arguments)


# ---------------------------------------------------------------- counting and removing


def test_a_count_changes_nothing(operator: Operator) -> None:
    assert operator.count(MessageSelection(selector="n < 10")).affected == 10
    assert operator.count(MessageSelection(selector="n < 10", maximum=3)).affected == 3
    assert operator.count().affected == 100
    assert operator.count(MessageSelection(message_ids=frozenset(ids(operator)[:5]))).affected == 5
    assert operator.names() == numbers(*range(100))


def test_a_purge_removes_what_waits_and_tells_what_is_in_flight(operator: Operator) -> None:
    inbox = operator.world.client().subscribe("queue://Q", prefetch=10)
    operator.loop.run()
    result = operator.remove()
    assert (result.affected, result.in_flight, result.error) == (90, 10, None)
    assert operator.names() == numbers(*range(10))
    for index in range(10):
        inbox.ack(index)
    operator.world.start()
    assert Q not in operator.world.broker.queues, "nothing of it is in the store"


def test_a_purged_queue_counts_what_has_left_it(operator: Operator) -> None:
    operator.remove()
    state = operator.world.broker.admin.state(Q)
    assert state is not None
    assert (state.counters.size, state.counters.dequeued, state.counters.in_flight) == (0, 100, 0)
    assert operator.world.broker.queues[Q].usage.used == 0
    operator.world.client().send("queue://Q", "next")
    assert consumed(operator.world, "queue://Q") == ["next"]


def test_a_purge_leaves_what_comes_meanwhile(operator: Operator) -> None:
    operator.world.broker.operations.remove(Q, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.world.client().send("queue://Q", "new")
    assert operator.result().affected == 100
    assert operator.names() == ["new"]


@pytest.mark.parametrize(
    ("selector", "maximum", "removed"),
    [("n < 10", None, range(10)), ("n >= 50", 3, range(50, 53)), (None, 5, range(5)), ("  ", 5, range(5))],
)
def test_selected_messages_are_removed(
    operator: Operator, selector: str | None, maximum: int | None, removed: range
) -> None:
    result = operator.remove(MessageSelection(selector=selector, maximum=maximum))
    assert result.affected == len(removed)
    left = numbers(*(each for each in range(100) if each not in removed))
    assert operator.names() == left
    paged_out(operator)
    assert operator.names() == left


def test_messages_are_removed_by_their_ids(operator: Operator) -> None:
    wanted = frozenset(ids(operator)[10:20])
    assert operator.remove(MessageSelection(message_ids=wanted, selector="n < 15")).affected == 5
    assert operator.remove(MessageSelection(message_ids=wanted)).affected == 5
    assert operator.remove(MessageSelection(message_ids=wanted)).affected == 0
    assert operator.names() == numbers(*range(10), *range(20, 100))


def test_a_queue_by_priority_is_purged() -> None:
    operator = operated(MemoryStore(prioritized=True, supports_paging=True), prioritized_messages=True)
    client = operator.world.client()
    for number in range(200):
        client.send("queue://Q", str(number), priority=number % 10, properties={"n": number})
    paged_out(operator)
    for number in range(200, 300):
        operator.world.client().send("queue://Q", str(number), priority=number % 10, properties={"n": number})
    assert operator.remove(MessageSelection(selector="n < 100 OR n >= 250")).affected == 150
    assert operator.world.broker.queues[Q].pending.count == 150
    assert operator.remove().affected == 150
    assert (operator.world.broker.queues[Q].pending.count, operator.names()) == (0, [])


def test_a_purge_is_done_in_pieces(operator: Operator) -> None:
    sent(operator, 5000)
    operator.loop.turns = 0
    assert operator.remove().affected == 5100
    assert operator.loop.turns > 20


def test_a_purge_reports_its_progress_and_can_be_cancelled(operator: Operator) -> None:
    sent(operator, 5000)
    running = operator.world.broker.operations.remove(Q, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.turn()
    assert 0 < running.affected < 1000
    running.cancel()
    result = operator.result()
    assert result.is_cancelled
    assert running.is_done
    assert result.affected == running.affected < 1000
    assert operator.world.broker.queues[Q].pending.count == 5100 - result.affected
    running.cancel()
    assert operator.results == []


# ---------------------------------------------------------------- moving and copying


def test_moved_messages_keep_their_order_and_know_their_origin(operator: Operator) -> None:
    before = {name: view(each.message) for each, name in zip(*both(operator), strict=True)}
    result = operator.move(MessageSelection(selector="n >= 90"))
    assert (result.affected, result.skipped, result.error) == (10, 0, None)
    assert operator.names() == numbers(*range(90))
    page = operator.browse(queue=TARGET)
    assert names_of(page) == numbers(*range(90, 100))
    moved = view(page.messages[0].message)
    assert (moved.message_id, moved.original_destination) == (before["90"].message_id, Q)
    assert moved.properties == {"n": 90}
    assert moved.destination == TARGET
    paged_out(operator)
    assert (operator.names(), operator.names(TARGET)) == (numbers(*range(90)), numbers(*range(90, 100)))


def both(operator: Operator) -> tuple[list[BrowsedMessage], list[str]]:
    page = operator.browse()
    return list(page.messages), names_of(page)


def test_a_move_resets_the_redeliveries() -> None:
    operator = operated()
    sent(operator, 1)
    operator.world.client().subscribe("queue://Q").consumer.close()
    operator.move()
    assert [each.redelivery_count for each in operator.browse(queue=TARGET).messages] == [0]


def test_all_messages_are_moved_to_a_consumer(operator: Operator) -> None:
    inbox = operator.world.client().subscribe("queue://TARGET", prefetch=1000)
    assert operator.move().affected == 100
    assert inbox.ids == numbers(*range(100))
    assert operator.world.broker.queues[Q].pending.count == 0
    state = operator.world.broker.admin.state(Q)
    assert state is not None
    assert (state.counters.size, state.counters.dequeued, state.memory_bytes) == (0, 100, 0)


def test_messages_are_moved_by_their_ids(operator: Operator) -> None:
    wanted = ids(operator)
    assert operator.move(MessageSelection(message_ids=frozenset([wanted[3], wanted[97]]))).affected == 2
    assert operator.names(TARGET) == ["3", "97"]
    assert len(operator.names()) == 98


def test_a_copy_leaves_the_queue_as_it_is(operator: Operator) -> None:
    assert operator.copy(MessageSelection(maximum=40)).affected == 40
    assert operator.names() == numbers(*range(100))
    assert operator.names(TARGET) == numbers(*range(40))


def test_what_the_target_has_already_stays(operator: Operator) -> None:
    operator.copy(MessageSelection(maximum=40))
    result = operator.move()
    assert (result.affected, result.skipped) == (60, 40)
    assert operator.names() == numbers(*range(40))
    assert operator.names(TARGET) == numbers(*range(100))


@pytest.mark.parametrize("act", ["move", "copy"])
def test_the_queue_itself_as_target_changes_nothing(operator: Operator, act: str) -> None:
    result = getattr(operator, act)(target=Q)
    assert (result.affected, operator.names()) == (0, numbers(*range(100)))


def test_each_part_of_a_composite_target_gets_a_moved_message(operator: Operator) -> None:
    assert operator.move(MessageSelection(maximum=5), target=queue("Q2,topic://T,Q3")).affected == 5
    assert operator.names(parse("queue://Q2")) == operator.names(parse("queue://Q3")) == numbers(*range(5))
    assert len(operator.names()) == 95
    with pytest.raises(InvalidDestination, match="contains queue://Q itself"):
        operator.move(target=queue("Q,Q4"))


def test_a_topic_as_target_has_its_subscribers_get_the_messages(operator: Operator) -> None:
    inbox = operator.world.client().subscribe("topic://T")
    kept = operator.world.client("me").subscribe("topic://T", subscription_name="s")
    assert operator.move(MessageSelection(maximum=5), target=topic("T")).affected == 5
    assert inbox.ids == kept.ids == numbers(*range(5))


def test_a_virtual_topic_as_target_fills_its_queues(operator: Operator) -> None:
    operator.world.client().subscribe("queue://Consumer.a.VirtualTopic.X").consumer.close()
    assert operator.move(MessageSelection(maximum=5), target=topic("VirtualTopic.X")).affected == 5
    page = operator.browse(queue=queue("Consumer.a.VirtualTopic.X"))
    assert names_of(page) == numbers(*range(5))
    assert view(page.messages[0].message).original_destination == topic("VirtualTopic.X")


@pytest.mark.parametrize("is_persistent", [True, False])
def test_a_virtual_topic_that_leads_back_leaves_a_message_where_it_is(is_persistent: bool) -> None:
    operator = operated(MemoryStore(supports_paging=True))
    client = operator.world.client()
    first, second = queue("Consumer.A.VirtualTopic.X"), queue("Consumer.B.VirtualTopic.X")
    for each in (first, second):
        client.subscribe(str(each), prefetch=0)
    client.send(str(first), "one", "two", persistent=is_persistent)
    result = operator.move(queue=first, target=topic("VirtualTopic.X"))
    assert (result.affected, result.skipped) == (0, 2)
    assert (operator.names(first), operator.names(second)) == (["one", "two"], ["one", "two"])


def test_what_would_be_sent_nowhere_stays(operator: Operator) -> None:
    forward = Forward(destination=queue("EVEN"), selector="n = 2")
    operator.world.broker.destinations.router._add(CompositeDestination(destination=queue("C"), forward_to=(forward,)))
    result = operator.move(target=queue("C"))
    assert (result.affected, result.skipped) == (1, 99)
    assert operator.names(queue("EVEN")) == ["2"]
    assert operator.names() == numbers(0, 1, *range(3, 100))


@pytest.mark.parametrize("target", ["queue://A.>", "queue://A,B.*", "queue://" + "x" * 2000])
def test_a_target_that_cannot_be_is_refused(operator: Operator, target: str) -> None:
    with pytest.raises(InvalidDestination):
        operator.move(target=parse(target))
    assert operator.world.broker.operations._running == {}


def test_a_full_store_ends_a_move(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.move(MessageSelection(maximum=10))
    monkeypatch.setattr(MemoryStore, "is_full", True)
    result = operator.move()
    assert result.affected == 0
    assert "Usage Manager Store is Full" in str(error_of(result))
    assert operator.names() == numbers(*range(10, 100))
    assert consumed(operator.world, "queue://Q") == numbers(*range(10, 100))


def full_target(limit: int) -> Operator:
    """Return the operator of a queue of 100 messages, whose target has space for a few."""
    operator = operated()
    sent(operator, 100)
    operator.world.broker._runtime.policies._entries[TARGET] = DestinationPolicy(memory_limit=limit)
    return operator


def test_a_move_to_a_full_queue_waits_for_space_and_goes_on() -> None:
    operator = full_target(20_000)
    operator.world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.run()
    assert operator.results == []
    assert 10 < operator.world.broker.queues[TARGET].pending.count < 30
    inbox = operator.world.client().subscribe("queue://TARGET", prefetch=1000)
    seen: list[str] = []
    for _ in range(200):
        operator.loop.run()
        while inbox.deliveries:
            seen += inbox.ids[:1]
            inbox.consumer.acknowledge(inbox.deliveries.pop(0))
    assert seen == numbers(*range(100))
    assert operator.result().affected == 100


def test_a_move_to_a_queue_that_stays_full_ends_with_what_was_done() -> None:
    operator = full_target(20_000)
    operator.world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, operator.results.append)
    for _ in range(10):
        operator.loop.run()
        operator.world.broker.resume_stalled()
    result = operator.result()
    assert isinstance(error_of(result), ResourceLimit)
    moved = operator.names(TARGET)
    assert len(moved) == result.affected > 10
    assert moved + operator.names() == numbers(*range(100))
    assert operator.world.broker.queues[TARGET].usage._waiting == {}


def test_a_move_that_waits_for_space_is_cancelled_at_once() -> None:
    operator = full_target(20_000)
    running = operator.world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.run()
    running.cancel()
    result = operator.result()
    assert (result.is_cancelled, result.error) == (True, None)
    assert operator.names(TARGET) + operator.names() == numbers(*range(100))
    assert operator.world.broker.queues[TARGET].usage._waiting == {}


def test_an_expired_message_is_not_moved_but_expires() -> None:
    operator = operated()
    client = operator.world.client()
    client.send("queue://Q", "old", expiration=operator.world.now_ms + 10)
    client.send("queue://Q", "new")
    operator.world.now_ms += 20
    assert operator.move().affected == 1
    assert (operator.names(), operator.names(TARGET)) == (["old"], ["new"])
    operator.world.broker.remove_expired()
    operator.loop.run()
    assert operator.names() == []
    assert operator.names(queue("ActiveMQ.DLQ")) == ["old"]


def test_a_queue_that_is_deleted_meanwhile_ends_a_move(operator: Operator) -> None:
    sent(operator, 5000)
    operator.world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.turn()
    operator.world.broker.remove_destination(Q)
    result = operator.result()
    assert "was deleted meanwhile" in str(error_of(result))
    assert 0 < result.affected < 5100
    assert len(operator.names(TARGET)) == result.affected


def test_messages_in_transit_are_seen_only_once_they_are_on_disk() -> None:
    disk = Disk()
    operator = operated(disk)
    sent(operator, 5)
    inbox = operator.world.client().subscribe("queue://TARGET")
    disk.is_slow = True
    operator.world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.run()
    assert (inbox.ids, operator.results) == ([], [])
    disk.sync()
    operator.loop.run()
    assert inbox.ids == numbers(*range(5))
    assert operator.result().affected == 5


@interpreted
def test_an_error_within_a_piece_leaves_its_messages_where_they_were(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = operator.world.broker
    route, count = broker.route, 0

    def failing(message):
        nonlocal count
        count += 1
        if count == 20:
            raise ValueError("a bug")
        return route(message)

    monkeypatch.setattr(broker, "route", failing)
    result = operator.move()
    assert "a bug" in str(error_of(result))
    assert "carrying out an operation" in caplog.text
    assert operator.names(TARGET) + operator.names() == numbers(*range(100))
    assert consumed(operator.world, "queue://Q") == numbers(*range(result.affected, 100))


# ---------------------------------------------------------------- messages in the spool


@pytest.fixture
def spooled() -> Operator:
    """An operator of a queue with the messages 0 to 99, of which every other one goes to the spool."""
    operator = operated(MemoryStore(supports_paging=True), memory_limit=20_000, producer_flow_control=False)
    spool = operator.world.broker.usage.paging.spool = MemorySpool()
    client = operator.world.client()
    for number in range(100):
        client.send("queue://Q", str(number), persistent=number % 2 == 0, properties={"n": number})
        operator.loop.run()
        spool.work()
    assert len(spool.messages) > 30
    return operator


def spool_of(operator: Operator) -> MemorySpool:
    spool = operator.world.broker.usage.paging.spool
    assert isinstance(spool, MemorySpool)
    return spool


def test_spooled_messages_are_shown_in_their_places(spooled: Operator) -> None:
    assert spooled.names() == numbers(*range(100))
    assert names_of(spooled.browse(selector="n > 96")) == ["97", "98", "99"]
    wanted = spooled.browse().messages[71]
    found = spooled.message(wanted.message.message_id)
    assert found is not None
    assert (found.position, found.message.data) == (wanted.position, wanted.message.data)


def test_spooled_messages_are_removed_from_the_spool_unread(spooled: Operator) -> None:
    reads = spool_of(spooled).read_count
    assert spooled.remove().affected == 100
    assert (spool_of(spooled).messages, spool_of(spooled).read_count) == ({}, reads)
    assert spooled.world.broker.queues[Q].usage.used == 0


def test_spooled_messages_are_removed_by_ids_and_by_a_selector(spooled: Operator) -> None:
    wanted = frozenset(ids(spooled)[60:70])
    assert spooled.remove(MessageSelection(message_ids=wanted)).affected == 10
    assert spooled.remove(MessageSelection(selector="n >= 80")).affected == 20
    assert spooled.names() == numbers(*range(60), *range(70, 80))


def test_spooled_messages_are_moved_in_their_order(spooled: Operator) -> None:
    wanted = frozenset(ids(spooled)[60:70])
    assert spooled.move(MessageSelection(message_ids=wanted)).affected == 10
    assert spooled.move().affected == 90
    spool_of(spooled).work()
    assert spooled.names(TARGET) == numbers(*range(60, 70), *range(60), *range(70, 100))
    assert spooled.names() == []


# ---------------------------------------------------------------- the end of the broker, limits, the log


def test_a_broker_that_stops_ends_an_operation_with_what_was_done(operator: Operator) -> None:
    sent(operator, 5000)
    running = operator.world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.turn()
    operator.world.broker.quiesce()
    (result,) = operator.results
    assert isinstance(error_of(result), OperationInterrupted)
    assert running.is_done
    assert 0 < result.affected < 1000
    with pytest.raises(OperationInterrupted):
        operator.move()
    operator.world.store.close(operator.world.broker.delivered())
    restarted = Operator(operator.world)
    operator.world.start()
    restarted = Operator(operator.world, loop=Loop())
    assert restarted.world.broker.queues[TARGET].pending.count == result.affected
    assert restarted.world.broker.queues[Q].pending.count == 5100 - result.affected


def test_a_broker_that_is_no_longer_master_ends_an_operation_at_once(operator: Operator) -> None:
    sent(operator, 5000)
    running = operator.world.broker.operations.remove(Q, EVERY_MESSAGE, ACTOR, operator.results.append)
    operator.loop.turn()
    count = running.affected
    operator.world.broker.abandon()
    (result,) = operator.results
    operator.loop.run()
    assert isinstance(error_of(result), OperationInterrupted)
    assert running.affected == count
    assert len(operator.results) == 1


def test_there_is_a_limit_to_operations(operator: Operator) -> None:
    sent(operator, 5000)
    operations = operator.world.broker.operations
    running = [operations.count(Q, MessageSelection(selector="n = 0"), operator.results.append) for _ in range(64)]
    with pytest.raises(ResourceLimit, match="64 operations are under way"):
        operations.count(Q, EVERY_MESSAGE, operator.results.append)
    for each in running:
        each.cancel()
    operator.loop.run()
    assert len(operator.results) == 64
    assert operator.count().affected == 5100


def test_one_message_is_singular_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pybroker.audit")
    audit.operated("op", "10.0.0.7", "sent a message to", "queue://A", 1)
    assert caplog.messages == ["'op' from 10.0.0.7 sent a message to queue://A: 1 message"]


def test_each_change_is_in_the_audit_log(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pybroker.audit")
    operator.move(MessageSelection(maximum=7))
    operator.copy(MessageSelection(maximum=6))
    operator.remove()
    operator.count()
    assert [record.getMessage() for record in caplog.records] == [
        "'ops' from 10.0.0.9 moved messages to queue://TARGET from queue://Q: 7 messages",
        "'ops' from 10.0.0.9 copied messages to queue://TARGET from queue://Q: 6 messages",
        "'ops' from 10.0.0.9 removed messages of queue://Q: 93 messages",
    ]
    assert caplog.records[0].audit["messages"] == "7"  # type: ignore[attr-defined]


def test_without_an_event_loop_all_is_done_at_once(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.client().send("queue://Q", *numbers(*range(3000)))
    results: list[Any] = []
    world.broker.operations.move(Q, TARGET, EVERY_MESSAGE, ACTOR, results.append)
    assert results[0].affected == 3000
    inbox: Inbox = world.client().subscribe("queue://TARGET", prefetch=3000)
    assert inbox.ids == numbers(*range(3000))
