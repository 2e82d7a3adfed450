"""Memory pressure changes nothing that a client sees: the same history with and without it.

Two brokers carry out one random history. In one of them messages leave memory whenever the history says so, those that
wait and the bodies of those that are delivered. Both must deliver the same messages in the same order with the same
redelivery counts, show the same to browsers, and send the same dead letters.
"""

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, Inbox, World

LIMIT = 10_000_000
IS_LONG = settings.get_current_profile_name() == "long"

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send"] * 6
            + ["subscribe"] * 3
            + ["squeeze"] * 4
            + ["acknowledge", "through", "reject", "expire", "close", "leave", "browse", "restart"]
            + ["in_transaction"] * 2
            + ["commit", "rollback", "prepare", "slow", "sync"]
        ),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=60,
)


class Disk(MemoryStore):
    """A store on disk whose writes may take until `sync`."""

    def __init__(self) -> None:
        super().__init__(supports_paging=True)
        self.is_slow = False
        self.callbacks: list[Callable[[], None]] = []

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self.is_slow:
            self.callbacks.append(callback)
        else:
            callback()

    def sync(self) -> None:
        self.is_slow = False
        while self.callbacks:
            self.callbacks.pop(0)()


class History:
    """One broker to which a history happens."""

    def __init__(self, *, has_pressure: bool, **policy: object) -> None:
        self.has_pressure = has_pressure
        self.disk = Disk()
        self.world = World(self.disk, DestinationPolicy(**policy), Limits(memory_bytes_max=LIMIT))  # type: ignore[arg-type]
        self.seen: list[object] = []
        self.sent = self.clients = 0
        self.released = 0
        self.begin()

    def begin(self) -> None:
        self.inboxes: list[tuple[Client, Inbox]] = []
        self.branches: dict[Client, XATransactionId] = {}
        self.prepared: list[XATransactionId] = []

    def carry_out(self, operations: list[tuple[str, int, int]]) -> list[object]:
        for what, first, second in operations:
            getattr(self, what)(first, second)
            self.record()
        self.sync(0, 0)
        for branch in self.prepared:
            self.world.client().connection.rollback(branch)
        for client, _ in self.inboxes:
            client.connection.close()
        self.record()
        for place in ("queue://Q", "queue://ActiveMQ.DLQ"):
            self.drain(self.world.client().subscribe(place, prefetch=2), place)
        again = self.world.client("me").subscribe("topic://T", subscription_name="s", prefetch=2)
        self.drain(again, "topic://T")
        used = [queue.usage.used for queue in self.world.broker.queues.values()]
        used += [topic.usage.used for topic in self.world.broker.topics.values()]
        assert not any(used)
        return self.seen

    def record(self) -> None:
        """Add what was delivered since the last call."""
        for number, (_, inbox) in enumerate(self.inboxes):
            new = inbox.deliveries[len(inbox.noted) :]
            for delivery in new:
                name = inbox.ids[inbox.deliveries.index(delivery)]
                inbox.noted.append((name, delivery.redelivery_count))
                self.seen.append((number, *inbox.noted[-1]))

    def drain(self, inbox: Inbox, place: str) -> None:
        while inbox.deliveries:
            self.seen.append((place, inbox.ids[0], inbox.counts[0]))
            inbox.ack()
            del inbox.deliveries[0]

    # ------------------------------------------------------------ operations

    def send(self, place: int, kind: int) -> None:
        self.sent += 1
        destination = "topic://T" if place > 5 else "queue://Q"
        name = f"{self.sent}" + "x" * (10 if kind == 1 else 2000)
        self.world.client().send(destination, name, persistent=kind != 2, priority=kind)

    def subscribe(self, place: int, prefetch: int) -> None:
        self.clients += 1
        if place > 5:
            if any(inbox.consumer.request.subscription_name for _, inbox in self.inboxes):
                return
            client = self.world.client("me")
            inbox = client.subscribe("topic://T", subscription_name="s", prefetch=1 + 3 * prefetch)
        else:
            client = self.world.client()
            selector = "JMSPriority > 3" if place % 2 else None
            inbox = client.subscribe("queue://Q", prefetch=1 + 3 * prefetch, selector=selector)
        self.inboxes.append((client, inbox))
        self.record()

    def squeeze(self, first: int, second: int) -> None:
        if self.has_pressure:
            usage = self.world.broker.usage
            usage.acquire(LIMIT)
            usage.request_page_out(self.disk.when_durable)
            if self.disk.is_slow:
                self.released += LIMIT  # memory is short until the store has written
            else:
                usage.used -= LIMIT

    def slow(self, first: int, second: int) -> None:
        self.disk.is_slow = True

    def sync(self, first: int, second: int) -> None:
        self.disk.sync()
        self.world.broker.usage.used -= self.released
        self.released = 0

    def one(self, first: int, second: int, operation: str, *arguments: object) -> None:
        """Settle one delivery of one consumer."""
        if self.inboxes:
            _, inbox = self.inboxes[first % len(self.inboxes)]
            held = [each for each in inbox.deliveries if each in inbox.consumer.outstanding]
            if held:
                getattr(inbox.consumer, operation)(held[second % len(held)], *arguments)

    def acknowledge(self, first: int, second: int) -> None:
        self.one(first, second, "acknowledge")

    def through(self, first: int, second: int) -> None:
        self.one(first, second, "acknowledge_through")

    def reject(self, first: int, second: int) -> None:
        self.one(first, second, "reject", "no use")

    def expire(self, first: int, second: int) -> None:
        self.one(first, second, "expire")

    def close(self, first: int, second: int) -> None:
        if self.inboxes:
            client, inbox = self.inboxes.pop(first % len(self.inboxes))
            inbox.consumer.close()
            self.end(client, "rollback")
            client.connection.close()

    def leave(self, first: int, second: int) -> None:
        if self.inboxes:
            client, _ = self.inboxes.pop(first % len(self.inboxes))
            self.branches.pop(client, None)
            client.connection.close()

    def browse(self, first: int, second: int) -> None:
        selector = "JMSPriority > 3" if second > 3 else None
        client = self.world.client()
        inbox = client.subscribe("queue://Q", browser=True, prefetch=1000, selector=selector)
        assert inbox.ended
        self.seen.append(("browsed", inbox.ids, inbox.counts))
        client.connection.close()

    def in_transaction(self, first: int, second: int) -> None:
        if self.inboxes:
            client, _ = self.inboxes[first % len(self.inboxes)]
            if client not in self.branches:
                self.branches[client] = XATransactionId(1, f"b{self.clients}-{len(self.seen)}-{first}".encode(), b"")
                client.connection.begin(self.branches[client])
            self.one(first, second, "acknowledge_through" if second > 4 else "acknowledge", self.branches[client])

    def end(self, client: Client, outcome: str) -> None:
        if (branch := self.branches.pop(client, None)) is not None:
            getattr(client.connection, outcome)(branch)

    def commit(self, first: int, second: int) -> None:
        if self.inboxes:
            self.end(self.inboxes[first % len(self.inboxes)][0], "commit")

    def rollback(self, first: int, second: int) -> None:
        if self.prepared:
            self.world.client().connection.rollback(self.prepared.pop(0))
        elif self.inboxes:
            self.end(self.inboxes[first % len(self.inboxes)][0], "rollback")

    def prepare(self, first: int, second: int) -> None:
        if self.inboxes:
            client = self.inboxes[first % len(self.inboxes)][0]
            if (branch := self.branches.pop(client, None)) is not None and client.connection.prepare(branch):
                self.prepared.append(branch)

    def restart(self, first: int, second: int) -> None:
        """Kill the broker; another one takes over."""
        if self.disk.is_slow or second < 4:
            return  # a store in memory keeps what a disk might have lost
        prepared = self.prepared
        self.world.start()
        self.begin()
        self.prepared = prepared


AFTER_A_SEARCH = [
    *[("send", 0, 1), ("send", 0, 5), ("send", 0, 6), ("subscribe", 1, 7), ("squeeze", 0, 0), ("close", 0, 0)],
    *[("browse", 0, 0), ("subscribe", 1, 0), ("squeeze", 0, 0), ("leave", 0, 0), ("subscribe", 0, 7)],
]
"""A message that matches no selector keeps the list in which searches leave the places of those that do."""


@example(operations=AFTER_A_SEARCH, prioritized=False, redeliveries=6)
@settings(max_examples=2000 if IS_LONG else 60, deadline=None)
@given(operations=OPERATIONS, prioritized=st.booleans(), redeliveries=st.sampled_from([-1, 1, 6]))
def test_pressure_changes_no_delivery(
    operations: list[tuple[str, int, int]], prioritized: bool, redeliveries: int
) -> None:
    policy = {"prioritized_messages": prioritized, "max_redeliveries": redeliveries}
    relaxed, pressed = (History(has_pressure=has_pressure, **policy) for has_pressure in (False, True))
    assert pressed.carry_out(operations) == relaxed.carry_out(operations)


def test_pressure_reaches_what_is_delivered() -> None:
    history = History(has_pressure=True)
    history.carry_out([("subscribe", 0, 7), *[("send", 0, 3)] * 9, ("squeeze", 0, 0), ("reject", 0, 2)])
    assert ("queue://ActiveMQ.DLQ", "3" + "x" * 2000, 0) in history.seen
    assert history.world.broker.queues[parse("queue://Q")]._on_disk_before == 9
