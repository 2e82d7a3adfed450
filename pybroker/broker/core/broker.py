"""The broker's core: its parts put together, which clients there are, and where what they send goes.

Which destinations there are is known by `destinations`, who takes from them is arranged by `subscribing`, and what
outlives the process is brought back by `takeover`.

No I/O and no clock of its own: it appends to a store, calls consumers' `deliver`, and asks the clock it was given.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from pybroker.broker.core.administration import Administration
from pybroker.broker.core.advisory import Advisories
from pybroker.broker.core.connection import Connection
from pybroker.broker.core.consumer import Consumer, Owner
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.destinations import Destinations
from pybroker.broker.core.host import Host
from pybroker.broker.core.inactive import InactiveDestinations
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.scheduled import is_scheduled
from pybroker.broker.core.scheduler import Scheduler
from pybroker.broker.core.scheduling_queue import SchedulingQueue, to_scheduling_queue
from pybroker.broker.core.subscribing import Subscribing
from pybroker.broker.core.takeover import TakeOver, seen
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.transaction import Transaction
from pybroker.broker.core.uncommitted import Target
from pybroker.broker.core.usage import Usage
from pybroker.broker.core.virtual import DEFAULT_DEFINITIONS, Definition
from pybroker.broker.domain.admin import Admin
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import InvalidClientId, ResourceLimit
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.ports import Clock, Deliver, MessageStore, Recovery, Throttle
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId


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
        """The URL at which clients connect, for advisory messages."""
        # A million messages a second would outrun the clock, and meet the next master's numbers.
        self.next_sequence = count(clock() * 1000).__next__
        self.store = store
        self.scheduler: Scheduler | None = None
        self._jobs: JobStore | None = None
        self.limits = limits or Limits()
        self.usage = Usage(self.limits.memory_bytes_max)
        self.usage.paging.call_soon = call_soon
        self.dead_letters = DeadLetters(
            target=lambda _: self,
            fallback=self._fallback,
            clock=clock,
            strategies=lambda destination: self.policy(destination).dead_letter_strategy,
            on_dead_lettered=self._dead_lettered,
            on_expired=self._expired,
        )
        self._observers = Observers()
        self._runtime = CoreRuntime(
            store=store,
            clock=clock,
            policies=policies or PolicyMap(),
            usage=self.usage,
            dead_letters=self.dead_letters,
            observers=self._observers,
        )
        self.scheduling_queue = SchedulingQueue(store, self.usage, self.dead_letters.dead_letter)
        self.destinations = Destinations(self._runtime, definitions, self.limits.destinations_max)
        self.queues = self.destinations.queues
        self.topics = self.destinations.topics
        self.durables = self.destinations.durables
        self._plain = self.destinations.plain
        self._transaction_count = 0
        self._clients: dict[str, Connection] = {}
        self.branches: dict[XATransactionId, Transaction] = {}
        """XA transactions, the prepared ones and those under way, of all connections."""
        self.admin: Admin = Administration(self.destinations, self._clients, self.usage, lambda: self.is_full)
        advisories = Advisories(self, self.admin, self.topics)
        self.observe(advisories)
        self._subscribing = Subscribing(self._runtime, self.destinations, advisories)
        self._inactive = InactiveDestinations(self._runtime, self.destinations, self, self.limits.destinations_max)
        self.destinations.make_room = self._inactive.make_room
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
        TakeOver(self.store, self.destinations, self.scheduling_queue, self.branches).perform(recovery)

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
            when_durable=self.store.when_durable,
            clock=self.clock,
            wake_at=wake_at,
            connection_id=connection_id,
            jobs_max=jobs_max,
            dead_letter=self.dead_letters.dead_letter,
        )
        self.scheduler.load(recovered)
        self.scheduling_queue.open(self.scheduler, jobs)

    def delivered(self) -> Iterator[str]:
        """Return the ids of messages that are not settled and that a consumer has seen, for `MessageStore.close`."""
        return seen([*self.queues.values(), *self.durables.values()], self.transactions())

    def remove_expired(self) -> None:
        """Remove waiting messages that have expired; called periodically, for destinations without consumers.

        Also called when a slow store has read pages. It keeps few of them, those that were asked for last: so another
        backlog is the first to ask each time, and none waits until the others are empty.
        """
        sources = [*self.queues.values(), *self.durables.values()]
        self._first_source = (self._first_source + 1) % max(1, len(sources))
        for source in (*sources[self._first_source :], *sources[: self._first_source]):
            attempt(source.remove_expired, "looking for expired messages")
        attempt(self.usage.paging.retry_waiting, "reading again")

    def remove_inactive_destinations(self) -> None:
        """Remove destinations that nothing has used for a while; called every now and then."""
        self._inactive.sweep()

    def resume_stalled(self) -> None:
        """Go on with what may wait for what never comes: producers, see `usage`, and what is left to schedule.

        Called every now and then.
        """
        attempt(self.scheduling_queue.resume, "scheduling what was committed")
        usages = [self.usage, *[queue.usage for queue in self.queues.values()]]
        usages += [topic.usage for topic in self.topics.values()]
        for usage in usages:
            attempt(usage.release_stalled, "having producers go on")

    def report(self) -> None:
        """Log what happened to many messages since the last report, in counts; called every few seconds."""
        self.dead_letters.aggregator.report()

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
        self.destinations.remove_owned(owner, temporaries)
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
                transaction.add_send(target, copy)
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

    def accept(self, message: Message) -> None:
        """Send or schedule a message of a client's, outside of any transaction."""
        if self.scheduler is not None and is_scheduled(message) and self.scheduler.accepts(message):
            self.scheduler.schedule(message)
        else:
            self.send(message)

    def route_scheduled(self, message: Message) -> tuple[Target, Message]:
        """Return where a message that a transaction schedules goes, and as what."""
        return self.scheduling_queue, to_scheduling_queue(message)

    def route(self, message: Message) -> Sequence[tuple[Queue | Topic, Message]]:
        """Return where a message goes, and as what.

        Raises:
            ClientError: a destination cannot be.
        """
        routed = self.destinations.router.route(message)
        if routed is not None:
            return routed
        target = self._plain[message.destination] = self.destinations.target(message.destination)
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

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is durable, or consumed and acknowledged."""
        jobs = self._jobs
        if jobs is None:
            self.store.when_confirmed(callback)
        else:
            self.store.when_confirmed(lambda: jobs.when_durable(callback))

    # ------------------------------------------------------------ questions

    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""
        return self._runtime.policy(destination)

    @property
    def is_ending(self) -> bool:
        """True once nothing is to be removed any more: clients are leaving, or the store is not ours."""
        return self.is_stopping or self.abandoned

    def connections(self) -> Iterable[Connection]:
        """Return the clients that are connected."""
        return self._clients.values()

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
        """Return an open or prepared XA transaction of any connection."""
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
        self.destinations.target(destination)

    def own(self, destination: Destination, owner: Owner) -> None:
        """Give a temporary destination to a connection; see the port."""
        self.destinations.own(destination, owner)

    def remove_destination(self, destination: Destination) -> None:
        """Delete a destination with all it holds; see the port."""
        self.destinations.remove(destination)

    # ------------------------------------------------------------ consumers and producers

    def subscribe(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> Consumer:
        """Add a consumer to what it asks for; see the port."""
        return self._subscribing.subscribe(owner, request, deliver, browsed)

    def forget(self, consumer: Consumer) -> None:
        """Drop a consumer that closed."""
        self._subscribing.forget(consumer)

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription.

        Raises:
            InvalidDestination: there is none of that name.
            SubscriptionInUse: it is active.
        """
        self.durables.unsubscribe(client_id, subscription_name)

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

    def _fallback(self, destination: Destination) -> Queue:
        return self.destinations.queue(destination)

    def _dead_lettered(self, message: Message, letter: Message | None, cause: str) -> None:
        if letter is not None:
            self._observers.announce(lambda observer: observer.message_dead_lettered(message, cause))

    def _expired(self, message: Message) -> None:
        self._observers.announce(lambda observer: observer.message_expired(message))
