"""The kinds of work whose growth `scale` measures, on a broker in memory.

A row is a generator: up to its first `yield` it prepares, and each later `yield` ends a turn of the event loop, after
which what the core has deferred runs in pieces.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from benchmarks.in_process import Bench, DroppingLink, Inbox, KeptJobs
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.policy import DestinationPolicy, PolicyEntry, PolicyMap
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ConsumerInfo,
    MessageAck,
)
from pybroker.broker.domain.openwire.ids import ConsumerId, OpenWireMessageId, ProducerId

Turns = Iterator[None]


# ---------------------------------------------------------------- destinations


def queues(bench: Bench, n: int) -> Turns:
    """N queues, each created by its first message."""
    sender = bench.connect()
    yield
    for number in range(n):
        sender.send(bench.message(queue(f"Q.{number}")))
        yield


def queue_removals(bench: Bench, n: int) -> Turns:
    """N queues deleted, one by one."""
    sender = bench.connect()
    for number in range(n):
        sender.send(bench.message(queue(f"Q.{number}")))
    yield
    for number in range(n):
        sender.remove_destination(queue(f"Q.{number}"))
        yield


def wildcard_creations(bench: Bench, n: int) -> Turns:
    """N queues created beside N consumers of wildcards, each of which covers one of them."""
    consumer = bench.connect()
    for number in range(n):
        Inbox(consumer, queue(f"Q.{number}.>"))
    yield
    for number in range(n):
        consumer.add_destination(queue(f"Q.{number}.orders"))
        yield


def wildcard_consumers(bench: Bench, n: int) -> Turns:
    """N consumers of wildcards that subscribe beside N queues, each covering one of them."""
    consumer = bench.connect()
    for number in range(n):
        consumer.add_destination(queue(f"Q.{number}.orders"))
    yield
    for number in range(n):
        Inbox(consumer, queue(f"Q.{number}.*"))
        yield


def wildcard_acknowledgements(bench: Bench, n: int) -> Turns:
    """N messages, each to a queue of its own, to one consumer of a wildcard, which acknowledges one after the other."""
    sender = bench.connect()
    for number in range(n):
        sender.send(bench.message(queue(f"Q.{number}")))
    inbox = Inbox(bench.connect(), queue("Q.*"), prefetch=10)
    yield
    while inbox.deliveries:
        inbox.consumer.acknowledge(inbox.deliveries.pop())
        yield


def wildcard_topics(bench: Bench, n: int) -> Turns:
    """N topics created beside N subscribers of wildcards, each of which covers one of them."""
    consumer = bench.connect()
    for number in range(n):
        Inbox(consumer, topic(f"*.{number}.>"))
    yield
    for number in range(n):
        consumer.add_destination(topic(f"T.{number}.orders"))
        yield


def policies(bench: Bench, n: int) -> Turns:
    """N destinations that find their policies among N entries with wildcards."""
    chosen = PolicyMap(PolicyEntry(queue(f"Q.{number}.>"), DestinationPolicy()) for number in range(n))
    yield
    for number in range(n):
        chosen.for_destination(queue(f"Q.{number}.orders"))
        yield


def inactive(bench: Bench, n: int) -> Turns:
    """One sweep that removes N inactive queues."""
    connection = bench.connect()
    for number in range(n):
        connection.add_destination(queue(f"Q.{number}"))
    bench.broker.remove_inactive_destinations()
    bench.run_deferred()
    bench.now_ms += 1_000_000
    yield
    bench.broker.remove_inactive_destinations()
    yield


# ---------------------------------------------------------------- consumers of one queue


def consumers(bench: Bench, n: int) -> Turns:
    """N consumers on a connection each, N messages, and the end of the connections."""
    sender = bench.connect()
    inboxes: list[Inbox] = []
    yield
    for _ in range(n):
        inboxes.append(Inbox(bench.connect(), queue("Q")))
        yield
    for _ in range(n):
        sender.send(bench.message(queue("Q")))
        yield
    for inbox in inboxes:
        inbox.acknowledge()
        yield
    for inbox in inboxes:
        inbox.connection.close()
        yield


def consumers_on_one_connection(bench: Bench, n: int) -> Turns:
    """N consumers on one connection: subscribed, given a message each, and closed with the connection."""
    sender, receiver = bench.connect(), bench.connect()
    inboxes: list[Inbox] = []
    yield
    for _ in range(n):
        inboxes.append(Inbox(receiver, queue("Q")))
        yield
    for _ in range(n):
        sender.send(bench.message(queue("Q")))
        yield
    receiver.close()
    yield


def consumers_with_prefetch_0(bench: Bench, n: int) -> Turns:
    """N messages beside N consumers that pull, and do not pull now; one other consumer gets all."""
    sender, receiver = bench.connect(), bench.connect()
    for _ in range(n):
        Inbox(receiver, queue("Q"), prefetch=0)
    inbox = Inbox(bench.connect(), queue("Q"))
    yield
    for _ in range(n):
        sender.send(bench.message(queue("Q")))
        inbox.acknowledge()
        yield


def consumers_that_pull(bench: Bench, n: int) -> Turns:
    """N consumers with prefetch 0, each of which pulls one message, the last first."""
    sender, receiver = bench.connect(), bench.connect()
    inboxes = [Inbox(receiver, queue("Q"), prefetch=0) for _ in range(n)]
    yield
    for inbox in reversed(inboxes):
        inbox.consumer.pull()
        sender.send(bench.message(queue("Q")))
        inbox.acknowledge()
        yield


def consumers_with_full_windows(bench: Bench, n: int) -> Turns:
    """N messages beside N consumers whose windows are full; one other consumer gets all."""
    sender, receiver = bench.connect(), bench.connect()
    for _ in range(n):
        Inbox(receiver, queue("Q"), prefetch=1)
        sender.send(bench.message(queue("Q")))
    inbox = Inbox(bench.connect(), queue("Q"))
    yield
    for _ in range(n):
        sender.send(bench.message(queue("Q")))
        inbox.acknowledge()
        yield


def consumers_in_strict_order(bench: Bench, n: int) -> Turns:
    """The same with the policy `strictOrderDispatch`."""
    bench.restart(DestinationPolicy(strict_order_dispatch=True))
    return consumers_with_full_windows(bench, n)


def consumers_with_selectors(bench: Bench, n: int) -> Turns:
    """N consumers with a selector that refuses the ten messages that arrive."""
    sender, receiver = bench.connect(), bench.connect()
    for number in range(n):
        Inbox(receiver, queue("Q"), selector=f"kind = 'k{number % 10}'")
    yield
    for _ in range(10):
        sender.send(bench.message(queue("Q"), properties={"kind": "other"}))
        yield


def selective_backlog(bench: Bench, n: int) -> Turns:
    """A backlog of N messages, and a consumer that wants every tenth of them."""
    sender, receiver = bench.connect(), bench.connect()
    for number in range(n):
        sender.send(bench.message(queue("Q"), properties={"kind": f"k{number % 10}"}))
    yield
    inbox = Inbox(receiver, queue("Q"), selector="kind = 'k7'", prefetch=10)
    yield
    while inbox.deliveries or bench.has_deferred:
        inbox.acknowledge()
        yield


def groups(bench: Bench, n: int) -> Turns:
    """N messages, each of a group of its own, and ten consumers."""
    sender = bench.connect()
    inboxes = [Inbox(bench.connect(), queue("Q")) for _ in range(10)]
    yield
    for number in range(n):
        sender.send(bench.message(queue("Q"), group_id=f"g{number}"))
        yield
        if number % 100 == 99:
            for inbox in inboxes:
                inbox.acknowledge()
                yield


def consumers_of_groups(bench: Bench, n: int) -> Turns:
    """N consumers, N messages of ten groups, and the end of the consumers."""
    sender = bench.connect()
    inboxes = [Inbox(bench.connect(), queue("Q")) for _ in range(n)]
    yield
    for number in range(n):
        sender.send(bench.message(queue("Q"), group_id=f"g{number % 10}"))
        yield
    for inbox in inboxes:
        inbox.acknowledge()
        inbox.consumer.close()
        yield


def priorities(bench: Bench, n: int) -> Turns:
    """N messages of all priorities on a queue that orders by them, received by one consumer."""
    bench.restart(DestinationPolicy(prioritized_messages=True))
    sender, receiver = bench.connect(), bench.connect()
    yield
    for number in range(n):
        sender.send(bench.message(queue("Q"), priority=number % 10))
        yield
    inbox = Inbox(receiver, queue("Q"), prefetch=100)
    while inbox.deliveries:
        inbox.acknowledge()
        yield


def consumer_priorities(bench: Bench, n: int) -> Turns:
    """N consumers of 100 priorities and N messages; those of the highest priorities are full."""
    sender, receiver = bench.connect(), bench.connect()
    inboxes = [Inbox(receiver, queue("Q"), prefetch=1, priority=number % 100) for number in range(n)]
    yield
    for _ in range(n):
        sender.send(bench.message(queue("Q")))
        yield
    for inbox in inboxes:
        inbox.acknowledge()
        yield


def acks_out_of_order(bench: Bench, n: int) -> Turns:
    """N deliveries in one window, acknowledged by their message ids, the last first."""
    sender, receiver = bench.connect(), bench.connect()
    inbox = Inbox(receiver, queue("Q"), prefetch=n)
    bench.fill(sender, n, queue("Q"))
    yield
    for delivery in reversed(inbox.deliveries):
        inbox.consumer.acknowledge_each([delivery.message.message_id])
        yield


def requeued(bench: Bench, n: int) -> Turns:
    """A consumer that closes with N deliveries outstanding, which go back to the queue."""
    sender, receiver = bench.connect(), bench.connect()
    inbox = Inbox(receiver, queue("Q"), prefetch=n)
    bench.fill(sender, n, queue("Q"))
    yield
    inbox.consumer.close()
    yield


# ---------------------------------------------------------------- browsers


def browsers(bench: Bench, n: int) -> Turns:
    """N browsers of a queue of 10 N messages, each of which reads ten."""
    sender, receiver = bench.connect(), bench.connect()
    bench.fill(sender, 10 * n, queue("Q"))
    yield
    for _ in range(n):
        Inbox(receiver, queue("Q"), browser=True, prefetch=10)
        yield


def browser_of_deep_queue(bench: Bench, n: int) -> Turns:
    """One browser that reads a queue of N messages to its end."""
    sender, receiver = bench.connect(), bench.connect()
    bench.fill(sender, n, queue("Q"))
    yield
    Inbox(receiver, queue("Q"), browser=True, prefetch=2 * n)
    yield


# ---------------------------------------------------------------- topics


def fan_out(bench: Bench, n: int) -> Turns:
    """N subscribers of a topic, and ten messages."""
    sender = bench.connect()
    inboxes = [Inbox(bench.connect(), topic("T")) for _ in range(n)]
    yield
    for _ in range(10):
        sender.send(bench.message(topic("T")))
        yield
    for inbox in inboxes:
        inbox.consumer.close()
        yield


def slow_subscribers(bench: Bench, n: int) -> Turns:
    """N subscribers of a topic whose windows are full, and ten messages."""
    sender = bench.connect()
    inboxes = [Inbox(bench.connect(), topic("T"), prefetch=1) for _ in range(n)]
    yield
    for _ in range(10):
        sender.send(bench.message(topic("T")))
        yield
    for inbox in inboxes:
        inbox.connection.close()
        yield


def durables(bench: Bench, n: int) -> Turns:
    """N durable subscriptions to one topic: created, given a message, and deleted."""
    sender = bench.connect()
    connections = [bench.connect() for _ in range(n)]
    yield
    inboxes: list[Inbox] = []
    for connection in connections:
        inboxes.append(Inbox(connection, topic("T"), subscription_name="s"))
        yield
    sender.send(bench.message(topic("T")))
    yield
    for inbox in inboxes:
        inbox.consumer.close()
        inbox.connection.unsubscribe(inbox.connection.client_id, "s")
        yield


def durables_of_topics(bench: Bench, n: int) -> Turns:
    """N durable subscriptions to N topics, which are created by them."""
    connections = [bench.connect() for _ in range(n)]
    yield
    for number, connection in enumerate(connections):
        Inbox(connection, topic(f"T.{number}"), subscription_name="s")
        yield


def virtual_topics(bench: Bench, n: int) -> Turns:
    """N virtual topics with a queue each, and a message to each of them."""
    sender, receiver = bench.connect(), bench.connect()
    yield
    for number in range(n):
        Inbox(receiver, queue(f"Consumer.A.VirtualTopic.{number}"))
        yield
    for number in range(n):
        sender.send(bench.message(topic(f"VirtualTopic.{number}")))
        yield


def virtual_topic_consumers(bench: Bench, n: int) -> Turns:
    """N queues of one virtual topic, and ten messages."""
    sender, receiver = bench.connect(), bench.connect()
    yield
    for number in range(n):
        Inbox(receiver, queue(f"Consumer.{number}.VirtualTopic.T"))
        yield
    for _ in range(10):
        sender.send(bench.message(topic("VirtualTopic.T")))
        yield


def composites(bench: Bench, n: int) -> Turns:
    """Messages to composite names: N copies in all, each message for a hundredth of them."""
    sender = bench.connect()
    name = ",".join(f"Q.{number}" for number in range(max(2, n // 100)))
    yield
    for _ in range(100):
        sender.send(bench.message(queue(name)))
        yield


# ---------------------------------------------------------------- advisories


def advisories_of_creations(bench: Bench, n: int) -> Turns:
    """N queues created beside ten subscribers of `ActiveMQ.Advisory.>`."""
    sender = bench.connect()
    inboxes = [Inbox(bench.connect(), topic("ActiveMQ.Advisory.>")) for _ in range(10)]
    yield
    for number in range(n):
        sender.add_destination(queue(f"Q.{number}"))
        yield
        for inbox in inboxes:
            inbox.acknowledge()


def advisory_listeners(bench: Bench, n: int) -> Turns:
    """N queues and their consumers beside N subscribers of advisories, each about one of them."""
    sender = bench.connect()
    for number in range(n):
        Inbox(sender, topic(f"ActiveMQ.Advisory.Consumer.Queue.Q.{number}.>"))
    yield
    for number in range(n):
        Inbox(sender, queue(f"Q.{number}.orders"))
        yield


def advisories_of_what_exists(bench: Bench, n: int) -> Turns:
    """Ten subscribers of `ActiveMQ.Advisory.>` beside N queues that exist."""
    sender = bench.connect()
    for number in range(n):
        sender.add_destination(queue(f"Q.{number}"))
    yield
    inboxes = []
    for _ in range(10):
        inboxes.append(Inbox(bench.connect(), topic("ActiveMQ.Advisory.>")))
        yield
    for inbox in inboxes:
        inbox.acknowledge()
        yield


def advisories_to_many(bench: Bench, n: int) -> Turns:
    """N subscribers to an advisory topic about one queue, beside N connections."""
    connections = [bench.connect() for _ in range(n)]
    yield
    for connection in connections:
        Inbox(connection, topic("ActiveMQ.Advisory.Consumer.Queue.Q"))
        yield


# ---------------------------------------------------------------- connections


def connections(bench: Bench, n: int) -> Turns:
    """N connections with a consumer each of a queue of their own; then they close."""
    opened: list[BrokerConnection] = []
    yield
    for number in range(n):
        opened.append(bench.connect())
        Inbox(opened[-1], queue(f"Q.{number}"))
        yield
    for connection in opened:
        connection.close()
        yield


def temporaries(bench: Bench, n: int) -> Turns:
    """N temporary queues of one connection with a consumer each; then it closes."""
    connection = bench.connect()
    yield
    for _ in range(n):
        Inbox(connection, connection.create_temporary(queue("").type.TEMP_QUEUE))
        yield
    connection.close()
    yield


# ---------------------------------------------------------------- sweeps


def expiry(bench: Bench, n: int) -> Turns:
    """A sweep over N messages that have expired, and ten over N that have not."""
    sender = bench.connect()
    for _ in range(n):
        sender.send(bench.message(queue("Q"), expiration=bench.now_ms + 1000))
        sender.send(bench.message(queue("P"), expiration=bench.now_ms + 10_000_000))
    bench.now_ms += 10_000
    yield
    for _ in range(10):
        bench.broker.remove_expired()
        yield


def deletion(bench: Bench, n: int) -> Turns:
    """The deletion of a queue of N messages."""
    sender = bench.connect()
    bench.fill(sender, n, queue("Q"))
    yield
    sender.remove_destination(queue("Q"))
    yield


def commits(bench: Bench, n: int) -> Turns:
    """A transaction that sends N messages, and one that acknowledges them; both are committed."""
    sender, receiver = bench.connect(), bench.connect()
    yield
    transaction = sender.begin()
    for _ in range(n):
        sender.send(bench.message(queue("Q")), transaction)
        yield
    sender.commit(transaction)
    yield
    inbox = Inbox(receiver, queue("Q"), prefetch=n)
    yield
    transaction = receiver.begin()
    inbox.consumer.acknowledge_all(inbox.deliveries, transaction)
    yield
    receiver.commit(transaction)
    yield


def rollbacks(bench: Bench, n: int) -> Turns:
    """The same two transactions, both rolled back."""
    sender, receiver = bench.connect(), bench.connect()
    bench.fill(sender, n, queue("Q"))
    inbox = Inbox(receiver, queue("Q"), prefetch=n)
    yield
    transaction = sender.begin()
    for _ in range(n):
        sender.send(bench.message(queue("Q")), transaction)
        yield
    sender.rollback(transaction)
    yield
    transaction = receiver.begin()
    inbox.consumer.acknowledge_all(inbox.deliveries, transaction)
    yield
    receiver.rollback(transaction)
    yield


# ---------------------------------------------------------------- the scheduler


def jobs(bench: Bench, n: int) -> Turns:
    """N messages scheduled, and sent when they are due, all at the same time."""
    due: list[int | None] = [None]

    def wake_at(time: int | None) -> None:
        due[0] = time

    bench.broker.open_scheduler(
        KeptJobs(),  # type: ignore[arg-type]  # what the rows need of it
        (),
        wake_at=wake_at,
        connection_id="ID:scheduler",
        jobs_max=10_000_000,
    )
    sender = bench.connect()
    yield
    for _ in range(n):
        sender.send(bench.message(queue("Q"), properties={"AMQ_SCHEDULED_DELAY": "1000"}))
        yield
    bench.now_ms += 2000
    scheduler = bench.broker.scheduler
    assert scheduler is not None
    while due[0] is not None:
        due[0] = None
        scheduler.fire(bench.now_ms)
        yield


# ---------------------------------------------------------------- a session of OpenWire


def openwire_consumers(bench: Bench, n: int) -> Turns:
    """N consumers on one OpenWire connection: subscribed, given and acknowledging a message each, closed."""
    sender = bench.connect()
    link = DroppingLink(bench.broker)
    yield
    for number in range(1, n + 1):
        link.send(
            ConsumerInfo(
                command_id=number + 2,
                response_required=True,
                consumer_id=ConsumerId("ID:c", 1, number),
                destination=queue("Q"),
                prefetch_size=1,
            )
        )
        yield
    sent: list[int] = []
    for _ in range(n):
        message = bench.message(queue("Q"))
        sent.append(int(message.message_id.rpartition(":")[2]))
        sender.send(message)
        yield
    for number, sequence in enumerate(sent, 1):
        link.send(
            MessageAck(
                command_id=n + number + 2,
                destination=queue("Q"),
                consumer_id=ConsumerId("ID:c", 1, number),
                ack_type=AckType.STANDARD,
                last_message_id=OpenWireMessageId(None, ProducerId("ID:producer", 1, 1), sequence),
                message_count=1,
            )
        )
        yield
    link.session.lost()
    yield


# ---------------------------------------------------------------- the rows


class Growth(NamedTuple):
    """A row: what it does with a broker, and N."""

    work: Callable[[Bench, int], Turns]
    n: int

    @property
    def name(self) -> str:
        """The row's name."""
        return self.work.__name__.replace("_", "-")


ROWS: Final = (
    Growth(queues, 2000),
    Growth(queue_removals, 2000),
    Growth(wildcard_creations, 300),
    Growth(wildcard_consumers, 300),
    Growth(wildcard_acknowledgements, 1000),
    Growth(wildcard_topics, 300),
    Growth(policies, 300),
    Growth(inactive, 2000),
    Growth(consumers, 500),
    Growth(consumers_on_one_connection, 500),
    Growth(consumers_with_prefetch_0, 1000),
    Growth(consumers_that_pull, 1000),
    Growth(consumers_with_full_windows, 1000),
    Growth(consumers_in_strict_order, 1000),
    Growth(consumers_with_selectors, 2000),
    Growth(selective_backlog, 2000),
    Growth(groups, 2000),
    Growth(consumers_of_groups, 1000),
    Growth(priorities, 2000),
    Growth(consumer_priorities, 1000),
    Growth(acks_out_of_order, 1000),
    Growth(requeued, 10_000),
    Growth(browsers, 100),
    Growth(browser_of_deep_queue, 2000),
    Growth(fan_out, 2000),
    Growth(slow_subscribers, 500),
    Growth(durables, 500),
    Growth(durables_of_topics, 300),
    Growth(virtual_topics, 500),
    Growth(virtual_topic_consumers, 500),
    Growth(composites, 2000),
    Growth(advisories_of_creations, 500),
    Growth(advisory_listeners, 300),
    Growth(advisories_of_what_exists, 500),
    Growth(advisories_to_many, 300),
    Growth(connections, 500),
    Growth(temporaries, 500),
    Growth(expiry, 2000),
    Growth(deletion, 5000),
    Growth(commits, 2000),
    Growth(rollbacks, 2000),
    Growth(jobs, 1000),
    Growth(openwire_consumers, 500),
)
