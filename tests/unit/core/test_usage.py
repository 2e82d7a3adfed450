# mypy: disable-error-code="arg-type, misc"
"""Counting memory, and waiting for space."""

from pybroker.broker.core.usage import SharedUsage, Usage
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

    def test_topic_usage_counts_a_message_of_many_durables_once(self):
        world = World()
        one, other = world.durable("one"), world.durable("other")
        world.publish("a", "b")
        assert world.topic.usage.used == world.usage.used == 2 * SIZE
        world.activate(one).ack(2)
        assert world.usage.used == 2 * SIZE
        world.activate(other).ack(1)
        assert world.usage.used == SIZE
        other.close()
        assert world.usage.used == SIZE  # outstanding still

    def test_a_deleted_durable_subscription_gives_back_what_waits(self):
        world = World()
        durable = world.durable()
        world.publish("a", "b")
        durable.close()
        assert world.usage.used == 0
        assert world.topic.durables == []

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
