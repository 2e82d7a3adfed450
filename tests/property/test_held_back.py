# mypy: disable-error-code="arg-type"
"""Topic consumers that are held back: none stands still, all that is counted is given back, nothing else changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.delivery_memory import CAPACITY_MIN, CAPACITY_STEP, DELIVERY_BYTES, GUARANTEED_BYTES
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.topic import TopicSubscription
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, Inbox, World

IS_LONG = settings.get_current_profile_name() == "long"
PREFETCHES = (0, 1, 3, 16, 17, 40, 100, 1000)
LIMIT = 128 << 20

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send"] * 6
            + ["subscribe"] * 3
            + ["acknowledge", "through", "last", "transacted", "transacted", "commit", "rollback"]
            + ["pull", "pull", "grant", "set_prefetch", "pause", "resume", "reject", "expire", "close", "leave"]
        ),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=80,
)


class History:
    """One broker to which a history happens."""

    def __init__(self, limit: int, *, spare: int | None = None, pending: int = 1000) -> None:
        """Begin.

        Args:
            limit: the memory limit; 0 for none.
            spare: deliveries that each connection may have, besides a few that all share; None: as many as usual.
            pending: messages that may wait for a consumer.
        """
        policy = DestinationPolicy(pending_message_limit=pending)
        self.world = World(MemoryStore(), policy, Limits(memory_bytes_max=limit))
        self.memory = self.world.broker.objects.deliveries
        self.spare = spare
        if spare is not None:
            self.memory.part = 100 * DELIVERY_BYTES
        self.sent = 0
        self.inboxes: list[tuple[Client, Inbox]] = []
        self.transactions: dict[Client, TransactionId] = {}
        self.seen: list[list[str]] = []
        self.sender = self.world.client()

    def carry_out(self, operations: list[tuple[str, int, int]]) -> list[list[str]]:
        for what, first, second in operations:
            if what in ("send", "subscribe"):
                getattr(self, what)(first, second)
            elif self.inboxes:
                getattr(self, what)(*self.inboxes[first % len(self.inboxes)], second)
            if self.spare is not None:
                self.check()
        self.settle_all()
        for client, inbox in list(self.inboxes):
            self.leave(client, inbox, 0)
        assert (self.memory.taken, self.memory.shared, len(self.memory.held_back)) == (0, 0, 0)
        assert self.world.broker.usage.used == self.world.broker.objects.counted
        return self.seen

    def check(self) -> None:
        """Check that each consumer for which messages wait has what it may have."""
        for _, inbox in self.inboxes:
            consumer = inbox.consumer
            subscription = consumer.sources[0]
            assert isinstance(subscription, TopicSubscription)
            outstanding = len(consumer.outstanding)
            assert outstanding <= consumer.capacity >= consumer.window
            if subscription.waiting_count and not consumer.connection.is_held:
                assert outstanding >= consumer.window
                if consumer.window == consumer.capacity:  # that alone holds it back, if it may have more
                    assert outstanding >= CAPACITY_MIN
                    wanted = consumer.prefetch + consumer._granted if consumer.prefetch else outstanding
                    step = min(wanted - consumer.capacity, consumer.capacity, CAPACITY_STEP) * DELIVERY_BYTES
                    if step > 0:
                        own = max(0, consumer.connection.objects.deliveries.taken + step - GUARANTEED_BYTES)
                        before = max(0, own - step)
                        assert own
                        assert not self.memory.allows(own, own - before)
                        assert consumer in self.memory.held_back
        counted = sum(client.connection.objects.deliveries.taken for client in {client for client, _ in self.inboxes})
        assert counted == self.memory.taken

    def settle_all(self) -> None:
        """Acknowledge everything until nothing is outstanding, and check that nothing waits then."""
        for client, inbox in self.inboxes:
            self.commit(client, inbox, 0)
            client.connection.resume()
            if not inbox.consumer.prefetch:
                inbox.consumer.set_prefetch(1)
        while any(inbox.consumer.outstanding for _, inbox in self.inboxes):
            for _, inbox in self.inboxes:
                inbox.consumer.acknowledge_all(list(inbox.consumer.outstanding))
        for _, inbox in self.inboxes:
            subscription = inbox.consumer.sources[0]
            assert isinstance(subscription, TopicSubscription)
            assert not subscription.waiting_count

    # ------------------------------------------------------------ operations

    def send(self, count: int, size: int) -> None:
        names = [str(self.sent + number) for number in range((1, 2, 5, 10, 17, 33, 64, 150)[count])]
        self.sent += len(names)
        self.sender.send("topic://T", *names, persistent=False)

    def subscribe(self, prefetch: int, place: int) -> None:
        if place < 3 and self.inboxes:
            client = self.inboxes[place % len(self.inboxes)][0]
        else:
            client = self.world.client()
            if self.spare is not None:
                client.connection.objects.deliveries.acquire_anyway(GUARANTEED_BYTES // DELIVERY_BYTES - self.spare)
        self.inboxes.append((client, client.subscribe("topic://T", prefetch=PREFETCHES[prefetch])))

    def acknowledge(self, client: Client, inbox: Inbox, count: int) -> None:
        outstanding = list(inbox.consumer.outstanding)
        inbox.consumer.acknowledge_all(outstanding[: len(outstanding) * (count + 1) // 8])

    def through(self, client: Client, inbox: Inbox, count: int) -> None:
        if outstanding := list(inbox.consumer.outstanding):
            inbox.consumer.acknowledge_through(outstanding[len(outstanding) * count // 8])

    def last(self, client: Client, inbox: Inbox, count: int) -> None:
        inbox.consumer.acknowledge_all(list(inbox.consumer.outstanding)[-1 - count :])

    def transacted(self, client: Client, inbox: Inbox, count: int) -> None:
        if client not in self.transactions:
            self.transactions[client] = client.connection.begin()
        outstanding = list(inbox.consumer.outstanding)
        count = len(outstanding) * (count + 1) // 8
        inbox.consumer.acknowledge_all(outstanding[:count], self.transactions[client])

    def commit(self, client: Client, inbox: Inbox, count: int) -> None:
        if client in self.transactions:
            client.connection.commit(self.transactions.pop(client))

    def rollback(self, client: Client, inbox: Inbox, count: int) -> None:
        if client in self.transactions:
            client.connection.rollback(self.transactions.pop(client))

    def pull(self, client: Client, inbox: Inbox, count: int) -> None:
        if not inbox.consumer.prefetch:
            inbox.consumer.pull(count)

    def grant(self, client: Client, inbox: Inbox, count: int) -> None:
        inbox.consumer.grant(8 * count)

    def set_prefetch(self, client: Client, inbox: Inbox, prefetch: int) -> None:
        inbox.consumer.set_prefetch(PREFETCHES[prefetch])

    def pause(self, client: Client, inbox: Inbox, count: int) -> None:
        client.connection.pause()

    def resume(self, client: Client, inbox: Inbox, count: int) -> None:
        client.connection.resume()

    def reject(self, client: Client, inbox: Inbox, count: int) -> None:
        inbox.consumer.reject_all(list(inbox.consumer.outstanding)[:count], "bad")

    def expire(self, client: Client, inbox: Inbox, count: int) -> None:
        inbox.consumer.expire_all(list(inbox.consumer.outstanding)[:count])

    def close(self, client: Client, inbox: Inbox, count: int) -> None:
        inbox.consumer.close()
        self.inboxes.remove((client, inbox))
        self.seen.append(inbox.ids)
        if all(each is not client for each, _ in self.inboxes):
            client.connection.close()
            self.transactions.pop(client, None)

    def leave(self, client: Client, inbox: Inbox, count: int) -> None:
        client.connection.close()
        self.transactions.pop(client, None)
        self.seen += [each.ids for other, each in self.inboxes if other is client]
        self.inboxes = [(other, each) for other, each in self.inboxes if other is not client]


@settings(max_examples=2000 if IS_LONG else 100, deadline=None)
@given(OPERATIONS, st.sampled_from([0, 1, 40, 300]))
def test_no_consumer_stands_still_and_all_is_given_back(operations, spare):
    for each in History(LIMIT, spare=spare).carry_out(operations):
        numbers = [int(name) for name in each]
        assert numbers == sorted(set(numbers))


@settings(max_examples=500 if IS_LONG else 50, deadline=None)
@given(OPERATIONS, st.sampled_from([5, 1000]))
def test_counting_changes_nothing_while_memory_is_left(operations, pending):
    counted = History(LIMIT, pending=pending).carry_out(operations)
    assert counted == History(0, pending=pending).carry_out(operations)


@pytest.mark.parametrize("spare", [0, 20])
def test_the_history_of_a_crowd(spare):
    operations = [("subscribe", 7, number % 8) for number in range(20)] + [("send", 7, 0)] * 5
    operations += [("acknowledge", number % 8, number % 8) for number in range(100)]
    assert History(LIMIT, spare=spare).carry_out(operations)
