# mypy: disable-error-code="arg-type, misc"
"""Counting memory, and waiting for space."""

from collections.abc import Callable
from unittest import mock

import pytest

from pybroker.broker.core.gate import Gate
from pybroker.broker.core.paging import FEW_BACKLOGS
from pybroker.broker.core.usage import GRACE_BYTES, REFERENCE_BYTES, REQUESTS_MAX, SharedUsage, Usage
from pybroker.store.memory import MemoryStore
from tests.unit.core.backlogs import World, message

SIZE = message("a").size


def test_a_child_counts_in_its_parent():
    broker = Usage()
    one, other = Usage(0, broker), Usage(0, broker)
    one.acquire(3)
    other.acquire(4)
    one.release(1)
    assert (broker.used, one.used, other.used) == (6, 2, 4)


def test_without_limits_nothing_is_ever_full():
    usage = Usage(0, Usage())
    usage.acquire(1 << 50)
    assert not usage.is_full


def test_usage_is_full_at_its_own_or_its_parents_limit():
    broker = Usage(10)
    small, unlimited = Usage(3, broker), Usage(0, broker)
    small.acquire(3)
    assert (small.is_full, unlimited.is_full, broker.is_full) == (True, False, False)
    unlimited.acquire(7)
    assert (unlimited.is_full, broker.is_full) == (True, True)


class TestWaiting:
    def test_with_free_memory_it_is_called_at_once(self):
        called = []
        Usage(1).when_space(lambda: called.append(1))
        assert called == [1]

    def test_waiting_callbacks_run_in_order_once_memory_is_free(self):
        usage, called = Usage(10), []
        usage.acquire(11)
        for number in range(3):
            usage.when_space(lambda number=number: called.append(number))
        usage.release(1)
        assert called == []
        usage.release(1)
        assert called == [0, 1, 2]

    def test_callback_that_fills_the_memory_leaves_the_next_waiting(self):
        usage, called = Usage(10), []

        def send(number):
            called.append(number)
            usage.acquire(5)

        usage.acquire(10)
        for number in range(3):
            usage.when_space(lambda number=number: send(number))
        usage.release(5)
        assert called == [0]
        usage.release(5)
        assert called == [0, 1]

    def test_memory_freed_in_the_broker_serves_every_destination(self):
        broker = Usage(10)
        one, other = Usage(0, broker), Usage(0, broker)
        called = []
        one.acquire(10)
        other.when_space(lambda: called.append("other"))
        one.when_space(lambda: called.append("one"))
        one.release(1)
        assert called == ["other"]
        one.release(1)
        assert called == ["other"]
        one.release(1)
        assert called == ["other", "one"]

    def test_callback_waits_on_while_the_other_limit_is_reached(self):
        broker = Usage(10)
        small, other = Usage(3, broker), Usage(0, broker)
        called = []
        other.acquire(10)
        small.when_space(lambda: called.append(1))
        small.acquire(3)
        other.release(8)
        assert called == []
        small.release(1)
        assert called == [1]

    def test_callback_that_frees_memory_does_not_nest(self):
        usage, called, depth = Usage(2), [], 0

        def serve(number):
            nonlocal depth
            depth += 1
            assert depth == 1
            called.append(number)
            usage.acquire(1)
            usage.release(1)
            depth -= 1

        usage.acquire(2)
        for number in range(5000):
            usage.when_space(lambda number=number: serve(number))
        usage.release(1)
        assert called == list(range(5000))

    def test_new_callback_runs_after_those_being_called(self):
        usage, called = Usage(1), []
        usage.acquire(1)
        usage.when_space(lambda: (called.append("a"), usage.when_space(lambda: called.append("late"))))
        usage.when_space(lambda: called.append("b"))
        usage.release(1)
        assert called == ["a", "b", "late"]

    def test_a_destination_that_is_deleted_gives_everything_back(self):
        broker = Usage(10)
        gone, called = Usage(5, broker), []
        gone.acquire(10)
        gone.when_space(lambda: called.append("here"))
        Usage(0, broker).when_space(lambda: called.append("elsewhere"))
        gone.close()
        assert broker.used == 0
        assert called == ["here", "elsewhere"]
        gone.release(10)
        assert broker.used == 0


class TestFairness:
    """The broker's limit is 1000 bytes: its fair limit is 800, and a destination's reserve 125."""

    def test_destinations_below_their_reserve_go_on_while_others_wait(self):
        broker = Usage(1000)
        heavy, light, new = (Usage(0, broker) for _ in range(3))
        heavy.acquire(800)
        light.acquire(124)
        assert (heavy.is_full, light.is_full, new.is_full, broker.is_full) == (True, False, False, False)
        assert heavy.full is broker
        light.acquire(1)
        assert light.is_full
        new.acquire(75)
        assert new.is_full
        assert broker.is_full

    def test_below_the_fair_limit_a_single_destination_may_take_all(self):
        broker = Usage(1000)
        heavy = Usage(0, broker)
        heavy.acquire(799)
        assert not heavy.is_full

    def test_freed_memory_is_for_those_below_their_reserve_first(self):
        broker = Usage(1000)
        heavy, light = Usage(0, broker), Usage(0, broker)
        called = []
        heavy.acquire(1000)
        heavy.when_space(lambda: called.append("heavy"))
        light.when_space(lambda: (called.append("light"), light.acquire(10)))
        light.when_space(lambda: called.append("light again"))
        heavy.release(5)
        assert called == ["light"]
        heavy.release(6)
        assert called == ["light", "light again"]
        heavy.release(190)
        assert called == ["light", "light again"]
        heavy.release(10)
        assert called == ["light", "light again", "heavy"]

    def test_destinations_take_turns(self):
        broker = Usage(1000)
        one, other, holder = (Usage(0, broker) for _ in range(3))
        called = []

        def send(name, usage):
            called.append(name)
            usage.acquire(10)

        for usage in (one, other):
            usage.acquire(200)
        holder.acquire(400)
        for number in range(3):
            one.when_space(lambda number=number: send(f"one {number}", one))
        for number in range(3):
            other.when_space(lambda number=number: send(f"other {number}", other))
        for count in range(6):
            assert len(called) == count
            holder.release(10)
        assert called == ["one 0", "other 0", "one 1", "other 1", "one 2", "other 2"]

    def test_destination_that_falls_below_its_reserve_is_served_at_once(self):
        broker = Usage(1000)
        mine, holder = Usage(0, broker), Usage(0, broker)
        called = []
        holder.acquire(850)
        mine.acquire(130)
        mine.when_space(lambda: called.append("mine"))
        mine.release(6)
        assert called == ["mine"]

    def test_destination_that_rises_above_its_reserve_waits_with_the_others(self):
        broker = Usage(1000)
        mine, holder = Usage(0, broker), Usage(0, broker)
        called = []
        holder.acquire(1000)
        mine.when_space(lambda: called.append("mine"))
        mine.acquire(200)  # by a commit, say
        holder.release(300)
        assert called == []
        holder.release(101)
        assert called == ["mine"]

    def test_memory_counted_for_the_broker_alone_serves_destinations(self):
        broker = Usage(1000)
        mine, called = Usage(0, broker), []
        broker.acquire(1000)
        mine.when_space(lambda: called.append("mine"))
        broker.when_space(lambda: called.append("a new destination"))
        broker.release(1)
        assert called == ["mine", "a new destination"]

    def test_callbacks_of_a_cancelled_owner_are_not_called(self):
        broker = Usage(1000)
        mine, called = Usage(0, broker), []
        mine.acquire(1000)
        for owner in ("a", "b", "a"):
            mine.when_space(lambda owner=owner: called.append(owner), owner)
        mine.cancel("a")
        mine.cancel("a")
        mine.release(500)
        assert called == ["b"]
        mine.acquire(500)
        mine.when_space(lambda: called.append("c"), "c")
        mine.cancel("c")
        assert (broker._blocked, len(broker._heavy), mine._of_owners) == (0, 0, {})

    def test_callback_that_fails_leaves_the_others_waiting(self):
        broker = Usage(1000)
        mine, called = Usage(0, broker), []
        mine.acquire(1000)
        mine.when_space(lambda: 1 // 0)
        mine.when_space(lambda: called.append("next"))
        with pytest.raises(ZeroDivisionError):
            mine.release(300)
        mine.release(1)
        assert called == ["next"]

    def test_waiting_destinations_do_not_make_a_release_slow(self):
        broker = Usage(1000)
        waiting = [Usage(0, broker) for _ in range(2000)]
        looked_at = []
        holder = Usage(0, broker)
        holder.acquire(1000)
        for usage in waiting:
            usage.when_space(lambda: holder.acquire(1))
        with mock.patch.object(Usage, "_full", lambda self: looked_at.append(self)):
            for _ in range(100):
                holder.release(1)
        assert len(looked_at) <= 300

    def test_backlogs_page_out_before_a_producer_waits_for_long(self):
        broker, asked = Usage(6400), []
        broker.paging.when_durable = lambda callback: callback()
        broker.paging.backlogs.add(mock.Mock(request_page_out=lambda: asked.append(broker.used)))
        mine = Usage(0, broker)
        mine.acquire(6400)
        mine.when_space(lambda: None)
        assert asked == [6400]
        mine.when_space(lambda: None)
        assert asked == [6400], "nothing that could leave has come"
        mine.acquire(101)
        mine.when_space(lambda: None)
        assert asked == [6400, 6501]


def test_a_shared_message_counts_once():
    shared, one, other = SharedUsage(Usage()), message("a"), message("b" * 100)
    for held in (one, one, other):
        shared.acquire(held)
    assert shared.usage.used == one.size + other.size
    shared.release(one)
    assert shared.usage.used == one.size + other.size
    for held in (one, one, other):
        shared.release(held)
    assert shared.usage.used == 0


class TestWhatCounts:
    def test_queue_usage_counts_messages_until_acknowledged(self):
        world = World()
        client = world.consume(prefetch=1)
        world.put("a", "b", "c")
        assert world.queue.usage.used == 3 * SIZE
        client.ack()
        assert world.usage.used == 2 * SIZE
        client.consumer.reject(client.unsettled.pop(), "NACK")
        client.close()
        assert world.usage.used == SIZE
        world.consume().ack()
        assert world.usage.used == 0

    def test_what_expires_no_longer_counts(self):
        world = World()
        world.put("a", "b", expiration=world.now_ms + 1)
        world.now_ms += 2
        world.put("c", expiration=world.now_ms - 1)
        world.queue.remove_expired()
        assert world.usage.used == 0

    def test_topic_counts_a_message_once_and_each_durables_reference(self):
        world = World()
        one, other = world.durable("one"), world.durable("other")
        world.publish("a", "b")
        assert world.topic.usage.used == world.usage.used == 2 * SIZE + 4 * REFERENCE_BYTES
        world.activate(one).ack(2)
        assert world.usage.used == 2 * SIZE + 2 * REFERENCE_BYTES
        world.activate(other).ack(1)
        assert world.usage.used == SIZE + REFERENCE_BYTES
        other.close()
        assert world.usage.used == SIZE + REFERENCE_BYTES  # outstanding still

    def test_a_deleted_durable_subscription_gives_back_what_waits(self):
        world = World()
        durable = world.durable()
        world.publish("a", "b")
        durable.close()
        assert world.usage.used == 0

    def test_a_topic_counts_what_waits_beyond_a_window(self):
        world = World(pending_message_limit=2)
        client, fast = world.listen(prefetch=1), world.listen()
        world.publish(*"abcd", persistent=False)
        assert fast.names == ["a", "b", "c", "d"]
        assert world.usage.used == 2 * SIZE
        client.ack()
        assert world.usage.used == SIZE
        client.close()
        assert world.usage.used == 0


class TestGrace:
    """Small messages to other destinations, while one message takes all of the memory."""

    LIMIT = 256 << 20

    def test_light_destinations_go_on_above_the_limit_for_a_while(self):
        broker = Usage(self.LIMIT)
        large, light, other = (Usage(0, broker) for _ in range(3))
        large.acquire(self.LIMIT)
        assert large.is_full
        assert broker.is_full
        taken = 0
        while not light.is_full and light.used < broker.reserve:
            light.acquire(1000)
            light.release(1000)
            taken += 1000
        assert taken in range(GRACE_BYTES, GRACE_BYTES + 1000), "though it has left memory again"
        assert other.is_full, "the grace is for all of them together"

    def test_each_time_the_limit_is_reached_there_is_grace(self):
        broker = Usage(self.LIMIT)
        large, light = Usage(0, broker), Usage(0, broker)
        for _ in range(3):
            large.acquire(self.LIMIT)
            assert not light.is_full
            for _ in range(GRACE_BYTES // 1000 + 1):
                light.acquire(1000)
                light.release(1000)
            assert light.is_full
            large.release(self.LIMIT)
            assert not light.is_full

    def test_the_limit_may_be_reached_by_frames(self):
        broker = Usage(self.LIMIT)
        light = Usage(0, broker)
        broker.acquire(self.LIMIT)
        light.acquire(GRACE_BYTES // 8)
        assert not light.is_full
        light.release(GRACE_BYTES // 8)
        broker.release(1)
        broker.acquire(1)
        assert not light.is_full

    def test_a_destination_with_its_reserve_has_no_grace(self):
        broker = Usage(self.LIMIT)
        large, heavy = Usage(0, broker), Usage(0, broker)
        heavy.acquire(broker.reserve)
        large.acquire(self.LIMIT)
        assert heavy.is_full

    def test_open_transactions_take_of_the_grace(self):
        broker = Usage(self.LIMIT)
        large, others = Usage(0, broker), [Usage(0, broker) for _ in range(20)]
        large.acquire(self.LIMIT)
        for each in others:
            if not each.is_full:
                each.acquire_uncommitted(1 << 20)
        assert broker.used == self.LIMIT + GRACE_BYTES

    def test_messages_behind_a_commit_take_of_the_grace(self):
        broker = Usage(self.LIMIT)
        large, light = Usage(0, broker), Usage(0, broker)
        gate = Gate(lambda message: None, MemoryStore(), light)
        gate.close()
        large.acquire(self.LIMIT)
        count = 0
        while not light.is_full and count < 20:
            gate.admit(message("x" * (1 << 20)))
            count += 1
        assert count == GRACE_BYTES >> 20

    def test_a_limit_that_a_transaction_reaches_begins_the_grace(self):
        broker = Usage(self.LIMIT)
        large, light = Usage(0, broker), Usage(0, broker)
        for _ in range(2):
            large.acquire_uncommitted(self.LIMIT)
            assert not light.is_full
            light.acquire(GRACE_BYTES // 8)
            while not light.is_full:
                light.acquire(1000)
                light.release(1000)
            light.release(GRACE_BYTES // 8)
            large.release_uncommitted(self.LIMIT)

    @pytest.mark.parametrize("limit", [1000, GRACE_BYTES - 1])
    def test_under_a_low_limit_there_is_none(self, limit):
        broker = Usage(limit)
        large, light = Usage(0, broker), Usage(0, broker)
        large.acquire(limit)
        assert light.is_full


class FakeBacklog:
    """A backlog that records in which turn it was requested to page out."""

    def __init__(self, turns: list[int]) -> None:
        self.turns = turns
        self.requested_in: list[int] = []

    def request_page_out(self) -> None:
        self.requested_in.append(len(self.turns))


@pytest.mark.parametrize("count", [0, REQUESTS_MAX - 1, REQUESTS_MAX, 2 * REQUESTS_MAX + 1])
def test_page_outs_of_very_many_backlogs_are_requested_in_turns(count: int) -> None:
    usage = Usage(limit=1000)
    turns: list[int] = []
    later: list[Callable[[], None]] = []
    paging = usage.paging
    paging.later = later.append
    backlogs = [FakeBacklog(turns) for _ in range(count)]
    paging.backlogs.update(backlogs)
    durable: list[Callable[[], None]] = []
    usage.acquire(900)
    usage.request_page_out(durable.append)
    while later:
        turns.append(0)
        later.pop(0)()
    assert all(len(each.requested_in) == 1 for each in backlogs)
    assert all(sum(each.requested_in == [turn] for each in backlogs) <= REQUESTS_MAX for turn in range(len(turns) + 1))
    assert len(turns) == count // REQUESTS_MAX
    assert paging.is_paging_out
    (finish,) = durable
    finish()
    while later:
        later.pop(0)()
    assert not paging.is_paging_out


@pytest.mark.parametrize(("used", "is_repeated"), [(900, True), (750, False)])
def test_what_comes_during_a_page_out_is_paged_out_by_the_next_while_memory_is_short(
    used: int, *, is_repeated: bool
) -> None:
    usage = Usage(limit=1000)
    backlog = FakeBacklog([])
    usage.paging.backlogs.add(backlog)
    durable: list[Callable[[], None]] = []
    usage.paging.when_durable = durable.append
    usage.acquire(used)
    usage.request_page_out(durable.append)
    usage.request_page_out(durable.append)  # for a message that has just come
    assert len(backlog.requested_in) == len(durable) == 1
    durable.pop()()
    assert len(backlog.requested_in) == 1 + is_repeated
    if is_repeated:
        durable.pop()()
    assert not durable
    assert not usage.paging.is_paging_out


def test_end_of_a_write_to_the_spool_lowers_the_watermark_but_does_not_raise_it() -> None:
    usage = Usage(limit=1000)
    usage.acquire(900)
    usage.recompute_watermark()
    high = usage.watermark
    assert high > 900
    usage.release(100)
    usage.lower_watermark()
    assert 800 < usage.watermark < high
    low = usage.watermark
    usage.acquire(150)
    usage.lower_watermark()
    assert usage.watermark == low < usage.used


def test_a_backlog_that_closes_meanwhile_is_not_requested() -> None:
    usage = Usage(limit=1000)
    later: list[Callable[[], None]] = []
    usage.paging.later = later.append
    backlogs = [FakeBacklog([]) for _ in range(REQUESTS_MAX + 1)]
    usage.paging.backlogs.update(backlogs)
    usage.acquire(900)
    usage.request_page_out(lambda _: None)
    (left,) = [each for each in backlogs if not each.requested_in]
    usage.paging.backlogs.discard(left)
    for callback in later:
        callback()
    assert not left.requested_in


@pytest.mark.parametrize(("count", "is_later"), [(FEW_BACKLOGS, False), (FEW_BACKLOGS + 1, True)])
def test_what_many_backlogs_do_is_spread_over_turns(count: int, is_later: bool) -> None:
    paging = Usage().paging
    later: list[Callable[[], None]] = []
    done: list[int] = []
    paging.backlogs.update(FakeBacklog([]) for _ in range(count))
    paging.spread(lambda: done.append(1))
    assert done == [1], "without a loop there is no later turn"
    paging.later = later.append
    paging.spread(lambda: done.append(2))
    assert (done == [1]) is is_later
    assert len(later) == is_later
