"""The broker's core: which destinations and clients there are, and who meets whom.

Durable subscriptions are looked after by `durables`, what outlives the process by `takeover`.

No I/O and no clock of its own: it appends to a store, calls consumers' `deliver`, and asks the clock it was given.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TypeVar

from pybroker.broker.core.advisory import PENDING_MAX, Advisories
from pybroker.broker.core.browser import Snapshot
from pybroker.broker.core.connection import Connection
from pybroker.broker.core.consumer import Consumer, Owner
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.deadletter import DEAD_LETTER_QUEUE, DeadLetters
from pybroker.broker.core.durables import Durables
from pybroker.broker.core.handover import COMMITTED, Handover, put_aside
from pybroker.broker.core.host import Host
from pybroker.broker.core.inactive import InactiveDestinations
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.scheduled import is_scheduled
from pybroker.broker.core.scheduler import Scheduler
from pybroker.broker.core.takeover import seen, take_over
from pybroker.broker.core.topic import Topic, TopicSubscription
from pybroker.broker.core.transaction import Transaction
from pybroker.broker.core.uncommitted import Target
from pybroker.broker.core.usage import Usage
from pybroker.broker.core.virtual import DEFAULT_DEFINITIONS, Definition, Router
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.destination import Destination, is_advisory
from pybroker.broker.domain.errors import (
    ClientError,
    DestinationDoesNotExist,
    DestinationInUse,
    InvalidClientId,
    InvalidDestination,
    ResourceLimit,
)
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.ports import Clock, Deliver, MessageStore, Recovery, Throttle
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId

_log = logging.getLogger(__name__)

_Kind = TypeVar("_Kind", Queue, Topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may make one broker hold.

    Attributes:
        unwritten_bytes_max: what may wait for the disk before producers are slowed down: four full journal batches.
        destinations_max: how many queues and topics clients may create.
        memory_bytes_max: what all messages may take in memory before producers are slowed down; 0 for no limit.
    """

    unwritten_bytes_max: int = 16 << 20
    destinations_max: int = 100_000
    memory_bytes_max: int = 0


class Broker(Host):
    """The core; implements the port of that name, and that of its connections."""

    def __init__(
        self,
        name: str,
        *,
        store: MessageStore,
        clock: Clock,
        limits: Limits | None = None,
        policies: PolicyMap | None = None,
        definitions: Iterable[Definition] = DEFAULT_DEFINITIONS,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        run_id: str = "",
    ) -> None:
        super().__init__(clock)
        self.name = name
        self.id = f"ID:{name}"
        """Identifies the broker to clients and other brokers: the same for each master of a store, and each start."""
        self.run_id = run_id or f"{self.id}-{clock()}"
        """Begins the ids of what this run of the broker sends and commits itself; no connection or other run has it."""
        self.url = ""
        """Where clients reach it, in advisories."""
        # A million messages a second would outrun the clock, and meet the next master's numbers.
        self.next_sequence = count(clock() * 1000).__next__
        self.store = store
        self.scheduler: Scheduler | None = None
        self._jobs: JobStore | None = None
        self.limits = limits or Limits()
        self._policies = policies or PolicyMap()
        self._observers = Observers()
        self.dead_letters = DeadLetters(
            target=lambda _: self,
            last_resort=self.queue,
            clock=clock,
            strategies=lambda destination: self.policy(destination).dead_letter_strategy,
            on_buried=self._buried,
            on_expired=self._expired,
        )
        self.usage = Usage(self.limits.memory_bytes_max)
        self.usage.paging.call_soon = call_soon
        self.handover = Handover(store, self.usage, self.dead_letters.bury)
        self.queues: dict[Destination, Queue] = {}
        self.topics: dict[Destination, Topic] = {}
        self._advisories = Advisories(self, self, self.topics)
        self.observe(self._advisories)
        self._plain: dict[Destination, Queue | Topic] = {}
        """Destinations with nothing else behind them: most of them, found in one step."""
        self._router: Router[Queue | Topic] = Router(definitions, self.queues, self.target, keep=store.keep)
        self.durables = Durables(
            self.topics, store=store, dead_letters=self.dead_letters, clock=clock, policy=self.policy
        )
        self._transaction_count = 0
        self._clients: dict[str, Connection] = {}
        self._owners: dict[Destination, Owner] = {}
        self._queue_patterns: dict[Consumer, None] = {}
        self._topic_patterns: dict[Consumer, TopicSubscription] = {}
        self.branches: dict[XATransactionId, Transaction] = {}
        """XA transactions, the prepared ones and those under way, of all connections."""
        self._inactive = InactiveDestinations(self)
        self._first_source = 0

    def observe(self, observer: Observer) -> None:
        """Have an observer hear of what happens from now on."""
        self._observers.add(observer)

    # ------------------------------------------------------------ life

    def recover(self) -> None:
        """Take over what the store holds. Blocks; called once, before the first client."""
        self.load(self.store.recover())

    def load(self, recovery: Recovery) -> None:
        """Take over what the store returned; `recover` for those that call `MessageStore.recover` in a thread."""
        self.id = recovery.broker_id or self.id
        take_over(self, recovery)

    def open_scheduler(
        self,
        jobs: JobStore,
        recovered: Sequence[Job],
        *,
        wake_at: Callable[[int | None], None],
        connection_id: str,
        jobs_max: int,
    ) -> None:
        """Serve scheduled delivery from now on.

        Args:
            jobs: where jobs are kept.
            recovered: those it held.
            wake_at: has `Scheduler.fire` called at that time.
            connection_id: of the producer that repeated messages are from; no broker had it before.
            jobs_max: how many jobs clients may have.
        """
        self._jobs = jobs
        self.scheduler = Scheduler(
            jobs=jobs,
            send=self._send_due,
            when_sent=self.store.when_durable,
            clock=self.clock,
            wake_at=wake_at,
            connection_id=connection_id,
            jobs_max=jobs_max,
            bury=self.dead_letters.bury,
        )
        self.scheduler.load(recovered)
        self.handover.open(self.scheduler, jobs)

    def delivered(self) -> Iterator[str]:
        """Return the ids of messages that are not settled and that a consumer has seen, for `MessageStore.close`."""
        return seen(self)

    def expire(self) -> None:
        """Remove waiting messages that have expired; called periodically, for destinations without consumers.

        Also called when a slow store has read pages. It keeps few of them, those that were asked for last: so another
        backlog is the first to ask each time, and none waits until the others are empty.
        """
        sources = [*self.queues.values(), *self.durables.values()]
        self._first_source = (self._first_source + 1) % max(1, len(sources))
        for source in (*sources[self._first_source :], *sources[: self._first_source]):
            attempt(source.expire, "looking for expired messages")
        attempt(self.usage.paging.ask_again, "reading again")

    def remove_inactive_destinations(self) -> None:
        """Remove destinations that nothing has used for a while; called every now and then."""
        self._inactive.sweep()

    def relieve(self) -> None:
        """Go on with what may wait for what never comes: producers, see `usage`, and what is left to schedule.

        Called every now and then.
        """
        attempt(self.handover.go_on, "scheduling what was committed")
        usages = [self.usage, *[queue.usage for queue in self.queues.values()]]
        usages += [topic.usage for topic in self.topics.values()]
        for usage in usages:
            attempt(usage.relieve, "having producers go on")

    def report(self) -> None:
        """Log what happened to many messages since the last report, in counts; called every few seconds."""
        self.dead_letters.occurrences.report()

    def quiesce(self) -> None:
        """Deliver nothing any more: clients are about to leave, and what one leaves must not go to the next."""
        self.is_stopping = True
        self.report()
        self._stop_scheduler()
        for connection in self._clients.values():
            connection.pause()

    def abandon(self) -> None:
        """Change nothing any more: the store is not ours to write to, and clients are being cut off."""
        self.abandoned = True
        self.report()
        self._stop_scheduler()

    @property
    def is_behind(self) -> bool:
        """True when so much waits for the disk that producers must be slowed down."""
        scheduled = 0 if self._jobs is None else self._jobs.unwritten_bytes
        return self.store.unwritten_bytes + scheduled > self.limits.unwritten_bytes_max

    @property
    def is_full(self) -> bool:
        """True while the store has no room for what clients send."""
        return self.store.is_full or (self._jobs is not None and self._jobs.is_full)

    # ------------------------------------------------------------ clients

    def connect(self, connection_id: str, client_id: str, throttle: Throttle) -> Connection:
        """Admit a client."""
        if client_id in self._clients:
            raise InvalidClientId(f"Broker: {self.name} - Client: {client_id} already connected")
        connection = Connection(self, connection_id, client_id, throttle)
        self._clients[client_id] = connection
        self._observers.announce(lambda observer: observer.connection_added(connection))
        return connection

    def disconnect(self, owner: Owner, temporaries: Iterable[Destination]) -> None:
        """Forget a client that closed, and its temporary destinations with all that is on them."""
        self._clients.pop(owner.client_id, None)
        for destination in temporaries:
            if self._owners.get(destination) is owner:  # else another client has deleted it
                self._drop(destination)
        self._observers.announce(lambda observer: observer.connection_removed(owner))

    # ------------------------------------------------------------ messages

    def send(self, message: Message) -> None:
        """Send a message, outside of any transaction of a client's."""
        target = self._plain.get(message.destination)
        if target is None:
            routed = self.route(message)
            if len(routed) > 1 and message.persistent:
                self._send_together(routed)
                return
        else:
            routed = ((target, message),)
        for target, copy in routed:
            if copy.expiration and copy.is_expired(self.clock()):
                self.dead_letters.expire(copy)
            else:
                target.send(copy)

    def _send_due(self, message: Message) -> None:
        """Send a scheduled message; without room its job stays, and is tried again.

        Raises:
            ClientError: it cannot be sent; `ResourceLimit` for lack of room.
        """
        self.admit(message)
        self.send(message)

    def _send_together(self, routed: Sequence[tuple[Queue | Topic, Message]]) -> None:
        """Send the copies of one message so that a crash keeps all or none: a client would not send it again."""
        self._transaction_count += 1
        transaction = Transaction(LocalTransactionId(self.run_id, self._transaction_count), self.store)
        for target, copy in routed:
            if copy.is_expired(self.clock()):
                self.dead_letters.expire(copy)
            else:
                transaction.sent(target, copy)
        transaction.commit()

    def admit(self, message: Message) -> Usage:
        """Return the memory that a message will take.

        Raises:
            ResourceLimit: the store has no room for it; told in ActiveMQ's first words.
        """
        if message.persistent and self.is_full:
            raise ResourceLimit(
                f"Usage Manager Store is Full: {message.destination} takes nothing persistent until consumers, or an "
                "operator, have made room."
            )
        target = self._plain.get(message.destination)
        return self.usage if target is None else target.usage

    def schedules(self, message: Message) -> bool:
        """Tell whether a message is to be scheduled; see the port."""
        return self.scheduler is not None and is_scheduled(message) and self.scheduler.accepts(message)

    def would_schedule(self, message: Message) -> bool:
        """Tell whether a message would be scheduled, there being room."""
        return self.scheduler is not None and is_scheduled(message) and self.scheduler.is_for(message)

    def schedule(self, message: Message) -> None:
        """Schedule a message that is to be scheduled."""
        assert self.scheduler is not None
        self.scheduler.schedule(message)

    def route_scheduled(self, message: Message) -> tuple[Target, Message]:
        """Return where a message that a transaction schedules goes, and as what."""
        return self.handover, put_aside(message)

    def route(self, message: Message) -> Sequence[tuple[Queue | Topic, Message]]:
        """Return where a message goes, and as what.

        Raises:
            ClientError: a destination cannot be.
        """
        routed = self._router.route(message)
        if routed is not None:
            return routed
        target = self._plain[message.destination] = self.target(message.destination)
        return ((target, message),)

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for none that is remembered."""
        return self.store.last_sequence(producer_id)

    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of what a producer has had scheduled, -1 for none that is remembered."""
        return -1 if self._jobs is None else self._jobs.last_sequence(producer_id)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is safe."""
        jobs = self._jobs
        if jobs is None:
            self.store.when_durable(callback)
        else:
            self.store.when_durable(lambda: jobs.when_durable(callback))

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is safe, or was consumed."""
        jobs = self._jobs
        if jobs is None:
            self.store.when_sent(callback)
        else:
            self.store.when_sent(lambda: jobs.when_durable(callback))

    # ------------------------------------------------------------ questions

    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""
        return self._policies.for_destination(destination)

    def connections(self) -> Iterable[Connection]:
        """Return the clients that are connected."""
        return self._clients.values()

    def owner(self, destination: Destination) -> str | None:
        """Return whose temporary destination it is, by connection id; None for a lasting one."""
        owner = self._owners.get(destination)
        return None if owner is None else owner.connection_id

    def destinations(self) -> Iterable[Destination]:
        """Return the queues and topics there are."""
        return chain(self.queues, self.topics)

    def consumer_count(self, destination: Destination) -> int:
        """Return how many consume from a destination; a topic's durable subscriptions count also while away."""
        if destination.is_queue:
            queue = self.queues.get(destination)
            return 0 if queue is None else len(queue.consumers)
        topic = self.topics.get(destination)
        return 0 if topic is None else len(topic.subscriptions) + len(topic.durables)

    def totals(self) -> Totals:
        """Count what there is; see the port `Admin`."""
        connections = self._clients.values()
        return Totals(
            connections=len(connections),
            destinations=len(self.queues) + len(self.topics),
            waiting=sum(each.pending.count for each in (*self.queues.values(), *self.durables.values())),
            in_flight=sum(len(consumer.outstanding) for each in connections for consumer in each.consumers),
            memory_bytes=self.usage.used,
            memory_bytes_max=self.usage.limit,
            is_full=self.is_full,
        )

    def transactions(self) -> Iterator[Transaction]:
        """Yield the transactions under way, of all connections, and those in doubt."""
        yield from self.branches.values()
        for connection in self._clients.values():
            yield from (each for each in connection.transactions.values() if isinstance(each.id, LocalTransactionId))

    # ------------------------------------------------------------ transactions

    def begin(self, transaction_id: TransactionId, owner: Owner) -> Transaction:
        """Begin a transaction of one connection."""
        begun = Transaction(transaction_id, self.store, owner)
        if isinstance(transaction_id, XATransactionId):
            self.branches[transaction_id] = begun
        return begun

    def branch(self, transaction_id: XATransactionId) -> Transaction | None:
        """Return an XA transaction under way or prepared, whoever began it."""
        return self.branches.get(transaction_id)

    def ended(self, transaction: Transaction) -> None:
        """Forget a transaction that is over."""
        if isinstance(transaction.id, XATransactionId):
            self.branches.pop(transaction.id, None)

    def in_doubt(self) -> Sequence[XATransactionId]:
        """Return the prepared transactions."""
        return [branch for branch, transaction in self.branches.items() if transaction.prepared]

    # ------------------------------------------------------------ destinations

    def provide(self, destination: Destination) -> None:
        """Make sure that a destination exists."""
        self.target(destination)

    def target(self, destination: Destination) -> Queue | Topic:
        """Return the destination a message goes to, creating it on first use.

        Raises:
            InvalidDestination: a temporary destination that is gone.
            ClientError: too many destinations.
        """
        existing = self.existing(destination)
        if existing is not None:
            return existing
        self._admit(destination)
        return self.place(destination)

    def existing(self, destination: Destination) -> Queue | Topic | None:
        """Return a destination if there is one."""
        return (self.queues if destination.is_queue else self.topics).get(destination)

    def place(self, destination: Destination) -> Queue | Topic:
        """Return a destination, which is made if need be; nobody is asked for leave."""
        return self.queue(destination) if destination.is_queue else self.topic(destination)

    def own(self, destination: Destination, owner: Owner) -> None:
        """Give a temporary destination to a connection.

        Raises:
            InvalidDestination: it is another's.
        """
        if self._owners.setdefault(destination, owner) is not owner:
            raise InvalidDestination(f"{destination} belongs to another connection")

    def remove_destination(self, destination: Destination) -> None:
        """Delete a destination with all it holds.

        Raises:
            DestinationInUse: somebody consumes from it, or a durable subscription collects its messages.
        """
        existing = self.existing(destination)
        if existing is None:
            return
        if existing.is_in_use:
            raise DestinationInUse(f"Destination: {destination} still has an active subscription")
        self._drop(destination)
        if not destination.is_temporary:
            self.store.remove_destination(destination)

    def is_of_virtual_topic(self, destination: Destination) -> bool:
        """Tell whether a queue gets copies of what is sent to a virtual topic."""
        return self._router.is_of_virtual_topic(destination)

    def remove_inactive(self, destination: Destination) -> None:
        """Remove a destination that holds nothing and that nothing uses; see `inactive`."""
        self._drop(destination)
        self.store.forget_empty(destination)

    # ------------------------------------------------------------ consumers and producers

    def subscribe(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> Consumer:
        """Add a consumer to what it asks for; see the port."""
        destination = request.destination
        for each in request.destinations:
            if each.is_temporary and self._owners.get(each) is not owner:
                raise InvalidDestination(f"Cannot consume from {each}: it belongs to another connection, or is gone")
            if each.is_queue is not destination.is_queue:
                raise InvalidDestination(f"Cannot consume from queues and topics at once: {destination} and {each}")
        if request.browser:
            consumer = self._browse(owner, request, deliver, browsed or _nothing)
        elif request.subscription_name is not None:
            consumer = self._subscribe_durable(owner, request, deliver, request.subscription_name)
        elif destination.is_queue:
            consumer = self._subscribe_queue(owner, request, deliver)
        else:
            consumer = self._subscribe_topic(owner, request, deliver)
        self._observers.announce(lambda observer: observer.consumer_added(consumer))
        return consumer

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription.

        Raises:
            InvalidDestination: there is none of that name.
            SubscriptionInUse: it is active.
        """
        self.durables.unsubscribe(client_id, subscription_name)

    def forget(self, consumer: Consumer) -> None:
        """Drop a consumer that closed from those that wait for new destinations, and advisory topics only it wanted."""
        self._queue_patterns.pop(consumer, None)
        self._topic_patterns.pop(consumer, None)
        for source in consumer.sources:
            if isinstance(source, TopicSubscription):
                for topic in source.topics:
                    if is_advisory(topic.destination) and not topic.is_in_use:
                        self._drop(topic.destination)
        self._observers.announce(lambda observer: observer.consumer_removed(consumer))

    def add_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Learn of a producer of one destination."""
        self._observers.announce(lambda observer: observer.producer_added(producer_id, destination))

    def remove_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Forget a producer of one destination."""
        self._observers.announce(lambda observer: observer.producer_removed(producer_id, destination))

    def _stop_scheduler(self) -> None:
        if self.scheduler is not None:
            self.scheduler.stop()

    # ------------------------------------------------------------ private: consumers

    def _buried(self, message: Message, letter: Message | None, cause: str) -> None:
        if letter is not None:
            self._observers.announce(lambda observer: observer.message_dead_lettered(message, cause))

    def _expired(self, message: Message) -> None:
        self._observers.announce(lambda observer: observer.message_expired(message))

    def _browse(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None]
    ) -> Consumer:
        if not request.destination.is_queue:
            raise ClientError(f"Only queues can be browsed, and {request.destination} is a topic")
        consumer = Consumer(
            owner,
            request,
            deliver,
            prefetch=_prefetch(request, self.policy(request.destination).queue_browser_prefetch),
        )
        Snapshot(_matching(request, self.queues), consumer, browsed)
        return consumer

    def _subscribe_queue(self, owner: Owner, request: ConsumerRequest, deliver: Deliver) -> Consumer:
        consumer = Consumer(
            owner, request, deliver, prefetch=_prefetch(request, self.policy(request.destination).queue_prefetch)
        )
        if self._create(request):
            self._queue_patterns[consumer] = None
        for queue in _matching(request, self.queues):
            queue.attach(consumer)
        return consumer

    def _subscribe_topic(self, owner: Owner, request: ConsumerRequest, deliver: Deliver) -> Consumer:
        consumer = Consumer(
            owner, request, deliver, prefetch=_prefetch(request, self.policy(request.destination).topic_prefetch)
        )
        policy = self.policy(request.destination)
        if is_advisory(request.destination):
            policy = replace(policy, pending_message_limit=PENDING_MAX, pending_message_limit_multiplier=None)
        subscription = TopicSubscription(consumer, dead_letters=self.dead_letters, clock=self.clock, policy=policy)
        if self._create(request):
            self._topic_patterns[consumer] = subscription
        for topic in _matching(request, self.topics):
            subscription.join(topic)
        self._advisories.welcome(consumer, subscription)
        return consumer

    def _create(self, request: ConsumerRequest) -> bool:
        """Create the destinations a consumer names; True when there are patterns among them."""
        patterns = False
        for destination in request.destinations:
            if destination.is_pattern and not self._router.creates_queue(destination):
                patterns = True
            else:
                patterns |= destination.is_pattern
                # An advisory topic goes with its last listener, so there are no more of them than consumers.
                create = self.place if is_advisory(destination) else self.target
                create(destination)
        return patterns

    def _subscribe_durable(self, owner: Owner, request: ConsumerRequest, deliver: Deliver, name: str) -> Consumer:
        destination = request.destination
        if destination.is_temporary:
            raise InvalidDestination("A durable subscription cannot be created for a temporary topic.")
        if is_advisory(destination):
            raise InvalidDestination("Cannot create a durable subscription for an advisory Topic")
        if not destination.is_topic:
            raise InvalidDestination("Invalid Subscription: cannot durably subscribe to a Queue destination!")
        info = DurableSubscription(
            client_id=owner.client_id,
            name=name,
            destination=destination,
            subscribed_destination=destination,
            selector=request.selector,
            no_local=request.no_local,
        )
        self.durables.check_inactive(info)
        # Made first, because a bad selector is found here, before an old subscription is given up for the new one.
        consumer = Consumer(
            owner, request, deliver, prefetch=_prefetch(request, self.policy(destination).durable_topic_prefetch)
        )
        if not destination.is_pattern:
            self.target(destination)
        self.durables.activate(info, consumer)
        return consumer

    # ------------------------------------------------------------ private: destinations

    def _drop(self, destination: Destination) -> None:
        owner = self.owner(destination)
        self._observers.announce(lambda observer: observer.destination_removed(destination, owner))
        self._owners.pop(destination, None)
        self._plain.pop(destination, None)
        if (topic := self.topics.pop(destination, None)) is not None:
            topic.gate.redirect(self._send_late)
            topic.close()
        if (queue := self.queues.pop(destination, None)) is not None:
            queue.gate.redirect(self._send_late)
            queue.close()
            self._router.queue_removed(destination)

    def _send_late(self, message: Message) -> None:
        """Take a message whose destination was deleted between its sending and its transaction's commit.

        It is made anew; but a temporary one is gone with its owner, and so is the message.
        """
        destination = message.destination
        if destination.is_temporary and destination not in self._owners:
            _log.info("%s is dropped: %s is gone", message.message_id, destination)
        else:
            self.place(destination).gate.admit(message)

    def queue(self, destination: Destination) -> Queue:
        """Return a queue, which is made if need be."""
        if (queue := self.queues.get(destination)) is None:
            policy = self.policy(destination)
            queue = self.queues[destination] = Queue(
                destination,
                store=self.store,
                dead_letters=self.dead_letters,
                clock=self.clock,
                policy=policy,
                usage=Usage(policy.memory_limit, self.usage),
            )
            for consumer in self._queue_patterns:
                if consumer.request.wants(destination):
                    queue.attach(consumer)
            self._router.queue_added(destination)
            owner = self.owner(destination)
            self._observers.announce(lambda observer: observer.destination_added(destination, owner))
        return queue

    def topic(self, destination: Destination) -> Topic:
        """Return a topic, which is made if need be."""
        if (topic := self.topics.get(destination)) is None:
            policy = self.policy(destination)
            topic = self.topics[destination] = Topic(
                destination,
                store=self.store,
                clock=self.clock,
                policy=policy,
                usage=Usage(policy.memory_limit, self.usage),
            )
            for consumer, subscription in self._topic_patterns.items():
                if consumer.request.wants(destination):
                    subscription.join(topic)
            self.durables.topic_added(topic)
            owner = self.owner(destination)
            self._observers.announce(lambda observer: observer.destination_added(destination, owner))
        return topic

    def _admit(self, destination: Destination) -> None:
        """Make sure that clients may create a destination. What is stored, and the dead letter queue, need no leave."""
        if destination.is_temporary and destination not in self._owners:
            raise DestinationDoesNotExist(f"The destination {destination} does not exist.")
        if destination == COMMITTED:
            raise InvalidDestination(f"{destination} is the broker's own")
        count = len(self.queues) + len(self.topics)
        self._inactive.make_room(count)
        if count >= self.limits.destinations_max and destination != DEAD_LETTER_QUEUE:
            raise ClientError(
                f"{destination} cannot be created: there are {self.limits.destinations_max} destinations already"
            )


def _matching(request: ConsumerRequest, existing: Mapping[Destination, _Kind]) -> list[_Kind]:
    """Return the existing destinations a consumer asked for."""
    if not request.composite and not request.destination.is_pattern:
        return [existing[request.destination]] if request.destination in existing else []
    return [kind for destination, kind in existing.items() if request.wants(destination)]


def _prefetch(request: ConsumerRequest, default: int) -> int:
    return default if request.prefetch is None else request.prefetch


def _nothing() -> None:
    """Do nothing, for a browser nobody tells the end of."""
