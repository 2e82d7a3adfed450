"""The broker's core: creates its parts, keeps the connections, and routes messages.

`destinations` keeps the queues and topics, `subscribing` attaches consumers, `takeover` recovers all from the store.
The core does no I/O: it appends to the store, calls `deliver` of its consumers, and reads the clock that it was given.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count

from pybroker.broker.core.administration import Administration
from pybroker.broker.core.advisory import Advisories
from pybroker.broker.core.bridged_messages import BridgedMessages, When
from pybroker.broker.core.client_ids import ClientIds
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.destinations import BrokerSender, Destinations, check_name
from pybroker.broker.core.host import Host, is_long
from pybroker.broker.core.inactive import InactiveDestinations
from pybroker.broker.core.limits import Limits as Limits
from pybroker.broker.core.object_memory import ObjectMemory
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.operations import BrokerOperations
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.piecewise import (
    PORTION_COST,
    PiecewiseWork,
    PiecewiseWorker,
    Steps,
    WorkQueue,
    carry_out,
    copy_cost,
)
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.core.retained_history import RETAIN_BYTES
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.core.rights import Authorization, Right
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.scheduled import is_scheduled
from pybroker.broker.core.scheduler import MANAGEMENT, Scheduler, is_management
from pybroker.broker.core.scheduling_queue import SchedulingQueue, to_scheduling_queue
from pybroker.broker.core.selector import forget_message
from pybroker.broker.core.statistics import StatisticsRequests, SystemUsage
from pybroker.broker.core.store_space import StoreSpace
from pybroker.broker.core.subscribing import Subscribing
from pybroker.broker.core.takeover import RecoveryLoader, seen
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.transaction import UNCHECKED_BYTES, BrokerTransaction, check_branch
from pybroker.broker.core.uncommitted import SendTarget
from pybroker.broker.core.usage import Usage
from pybroker.broker.core.user_connections import UserConnections
from pybroker.broker.core.virtual import DEFAULT_DEFINITIONS, Copies, Definition
from pybroker.broker.domain import audit
from pybroker.broker.domain.admin import Admin
from pybroker.broker.domain.destination import Destination, parts, topic
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import ResourceLimit, TransactionError
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.message import outline
from pybroker.broker.domain.openwire.spotting import may_have
from pybroker.broker.domain.ports import Clock, Deliver, MessageSpool, MessageStore, Throttle
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.reserved_queues import BRIDGED_RECORDS, RETAINED_RECORDS, SESSION_RECORDS, ReservedQueue
from pybroker.broker.domain.rules import Rules
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId


class BrokerCore(Host):
    """The core; implements `BrokerPort`, and its connections `ConnectionPort`."""

    url = ""
    """The URL at which clients connect, for advisory messages."""
    scheduler: Scheduler | None = None
    _statistics: StatisticsRequests | None = None
    _jobs: JobStore | None = None
    _transaction_count = 0
    _first_source = 0

    def __init__(
        self,
        name: str,
        *,
        store: MessageStore,
        clock: Clock,
        limits: Limits | None = None,
        policies: PolicyMap | None = None,
        definitions: Iterable[Definition] = DEFAULT_DEFINITIONS,
        defer: Callable[[Callable[[], None]], object] | None = None,
        monotonic: Callable[[], float] | None = None,
        run_id: str = "",
        spool: MessageSpool | None = None,
        rules: Rules | None = None,
    ) -> None:
        super().__init__(clock)
        self.name, self.store = name, store
        self.id = f"ID:{name}"
        """The broker's id for clients and other brokers: the same for each master of a store, and after each start."""
        self.run_id = run_id or f"{self.id}-{clock()}"
        """Prefix of the ids of messages and transactions of the broker itself; unique to this run."""
        # Unique as long as there are fewer than a million messages a second: else the next master repeats numbers.
        self.next_sequence = count(clock() * 1000).__next__
        self.limits = limits = limits or Limits()
        self.usage = Usage(self.limits.memory_bytes_max)
        self._counted = self.usage if self.limits.memory_bytes_max > UNCHECKED_BYTES else None
        """The memory in which transactions are counted; a limit below what each may hold is one for messages alone."""
        self._prepare_paging(defer, spool, monotonic)
        self.dead_letters = DeadLetters(
            target=lambda destination: self._as_broker,
            fallback=self._fallback,
            clock=clock,
            strategies=lambda destination: self.policy(destination).dead_letter_strategy,
            on_dead_lettered=self._dead_lettered,
            on_expired=self._expired,
        )
        self.space = StoreSpace(lambda: self.is_full, self.paging)
        self._observers, work = Observers(), WorkQueue(self.begin_work)
        self.retained, self.sessions = RetainedMessages(self._records(RETAINED_RECORDS)), self._records(SESSION_RECORDS)
        self._runtime = CoreRuntime(
            store=store,
            clock=clock,
            policies=policies or PolicyMap(),
            usage=self.usage,
            dead_letters=self.dead_letters,
            observers=self._observers,
            objects=self._object_memory(),
            retained=self.retained,
            bridged=BridgedMessages(self._records(BRIDGED_RECORDS), self.paging, clock),
        )
        self.scheduling_queue = SchedulingQueue(store, self.usage, self.dead_letters.dead_letter)
        self.destinations = there = Destinations(self._runtime, definitions, limits.destinations_max, work)
        self._as_broker: BrokerSender = BrokerSender(there, self.send)
        self.queues, self.topics, self.durables, self._plain = there.queues, there.topics, there.durables, there.plain
        self._authorization = Authorization(rules)
        self._ids, self.per_user = ClientIds(self.name), UserConnections(self.limits.connections_per_user)
        self._clients = self._ids.connections
        self._closing, self._works = dict[Owner, PiecewiseWork](), dict[PiecewiseWork, None]()  # what is under way
        self.branches: dict[XATransactionId, BrokerTransaction] = {}
        """XA transactions of all connections, open and prepared ones."""
        self.operations = BrokerOperations(self, self._runtime, self.destinations)
        self.admin: Admin = self._administration()
        self.advisories = Advisories(self, self.admin, self.topics, self._runtime)
        self.observe(self.advisories)
        self._subscribing = Subscribing(self._runtime, self.destinations, self.advisories)
        self._inactive = InactiveDestinations(self._runtime, self.destinations, self, self.limits.destinations_max)
        self.destinations.free_space = self._inactive.free_space

    def observe(self, observer: Observer) -> None:
        """Add an observer, which is notified of events from now on."""
        self._observers.add(observer)

    # ------------------------------------------------------------ start, periodic work and end

    def recover(self) -> None:
        """Recover the contents of the store. Blocks; called once, before the first client."""
        self.load(self.store.recover())

    def load(self, recovery: Recovery) -> None:
        """Take over the contents of the store, after the caller has called `MessageStore.recover` in a thread."""
        self.id = recovery.broker_id or self.id
        self.destinations.ensure_configured()
        queues = self.scheduling_queue, self.retained, self.sessions, self._runtime.bridged
        RecoveryLoader(self.store, self.destinations, *queues, self.branches, self._counted).perform(recovery)
        self.objects.begin_grace()

    def open_scheduler(
        self,
        jobs: JobStore,
        recovered: Sequence[Job],
        *,
        wake_at: Callable[[int | None], None],
        connection_id: str,
        jobs_max: int,
    ) -> None:
        """Start scheduled delivery.

        Args:
            jobs: the job store.
            recovered: the jobs that it held.
            wake_at: schedules a call of `Scheduler.fire` at that time.
            connection_id: the producer id of repeated messages begins with it; no broker may have used it before.
            jobs_max: number of jobs that clients may create, if the memory limit has room for them.
        """
        self._jobs = jobs
        self._due_work = WorkQueue(self.begin_work)
        self.scheduler = Scheduler(
            jobs=jobs,
            send=self._send_due,
            when_durable=self._when_due_durable,
            is_busy=lambda: self._due_work.is_busy,
            monotonic=lambda: self.usage.paging.monotonic(),
            clock=self.clock,
            wake_at=wake_at,
            connection_id=connection_id,
            jobs_max=min(jobs_max, self.objects.jobs_max),
            limited_by="jobs_max" if jobs_max <= self.objects.jobs_max else "memory_limit",
            count=self.objects.count_jobs,
            dead_letter=self.dead_letters.dead_letter,
        )
        self.scheduler.load(recovered, after_crash=self.scheduling_queue.after_crash)
        self.scheduling_queue.open(self.scheduler, jobs)

    def open_statistics(self, system_usage: SystemUsage | None = None) -> None:
        """Answer requests for statistics from now on; with the usage of store and spool."""
        self._statistics = StatisticsRequests(
            self, self.admin, self.destinations.matching, self.destinations.first_timestamp, system_usage
        )

    def delivered(self) -> Iterator[str]:
        """Return the ids of unsettled messages that a consumer may have seen, for `MessageStore.close`."""
        return seen([*self.queues.values(), *self.durables.values()], self.transactions())

    def remove_expired(self) -> None:
        """Remove waiting messages that have expired; called periodically, for destinations without consumers.

        Also called when a slow store has read pages. It keeps only the few pages that were requested last. So each call
        begins with a different backlog, and no backlog has to wait until the others are empty.
        """
        sources = [*self.queues.values(), *self.durables.values()]
        self._first_source = (self._first_source + 1) % max(1, len(sources))
        for source in (*sources[self._first_source :], *sources[: self._first_source]):
            attempt(source.remove_expired, "looking for expired messages")
        attempt(self.usage.paging.retry_waiting, "reading again")

    def remove_inactive_destinations(self) -> None:
        """Remove inactive destinations; called periodically."""
        self._inactive.sweep()

    def resume_stalled(self) -> None:
        """Release producers that wait although no memory is freed (see `usage`), and schedule; called periodically."""
        attempt(self.scheduling_queue.resume, "scheduling what was committed")
        for usage in [self.usage, *[q.usage for q in self.queues.values()], *[t.usage for t in self.topics.values()]]:
            attempt(usage.release_stalled, "releasing producers")

    def refresh_records(self) -> None:
        """Write records again that alone keep data files; called every second, since the next cleanup removes these."""
        for records in (self.retained, self.sessions, self._runtime.bridged):
            attempt(records.refresh, "writing records again")

    def report(self) -> None:
        """Log the counts of events of single messages since the last report; called every few seconds."""
        self.dead_letters.aggregator.report()
        forget_message()  # it may be large

    def quiesce(self) -> None:
        """Stop all deliveries before clients are disconnected: messages that one returns must not go to the next."""
        self.is_stopping = True
        self.report()
        self._stop_scheduler()
        for connection in self._clients.values():
            connection.pause()
        self.operations.interrupt()
        for work in list(self._works):
            attempt(work.finish, "carrying out work before the end")

    def abandon(self) -> None:
        """Stop all changes: this broker may no longer write to the store, and its clients are being disconnected."""
        self.abandoned = True
        for work in self._works:
            work.drop()
        self.operations.abandon()
        self.report()
        self._stop_scheduler()

    @property
    def is_behind(self) -> bool:
        """True when more bytes are unwritten than the limit, and producers must be slowed down."""
        scheduled = 0 if self._jobs is None else self._jobs.unwritten_bytes
        return self.store.unwritten_bytes + scheduled > self.limits.unwritten_bytes_max

    @property
    def is_overrun(self) -> bool:
        """True when the messages and transactions in memory take twice the limit."""
        return self._counted is not None and self._counted.is_overrun

    @property
    def is_full(self) -> bool:
        """True while the store has no space for new messages."""
        return self.store.is_full or (self._jobs is not None and self._jobs.is_full)

    @property
    def objects(self) -> ObjectMemory:
        """The memory of what clients create."""
        return self._runtime.objects

    # ------------------------------------------------------------ clients

    def connect(
        self,
        connection_id: str,
        client_id: str,
        throttle: Throttle,
        user: User = ANONYMOUS,
        *,
        takes_over: bool = False,
    ) -> BrokerConnection:
        """Admit a client."""
        if takes_over:
            self._ids.take_over(client_id, user)
        self._ids.check(connection_id, client_id)
        rights = self._authorization.rights(user)
        self.durables.check_user(client_id, user, rights)
        self.per_user.add(user)
        connection = BrokerConnection(self, connection_id, client_id, throttle, user, rights)
        self._ids.add(connection)
        for owner, work in self._closing.items():
            if owner.client_id == client_id or owner.connection_id == connection_id:
                connection.wait_for(work)
                break
        self._observers.announce(lambda observer: observer.connection_added(connection))
        return connection

    def cut_off(self, names: Collection[str]) -> None:
        """Close the connections of these users, who are no longer what they were when they logged in."""
        for connection in list(self._clients.values()):
            if connection.user.name in names and not connection.user.is_guest:
                attempt(connection.cut_off, "disconnecting a user who has changed")

    def users(self) -> set[User]:
        """Return the users who are connected."""
        return {connection.user for connection in self._clients.values()}

    def use_rules(self, rules: Rules) -> None:
        """Put other rules in force; connections whose consumers they concern are closed, and may subscribe again."""
        self._authorization.replace(rules)
        self.destinations.subscription_index.changed()
        for connection in list(self._clients.values()):  # in one piece: other rules may come before the next
            attempt(connection.apply_rules, "applying changed rules")

    def disconnect(self, owner: Owner, steps: Steps) -> PiecewiseWork:
        """Remove a closed connection: its ids at once, and what it owns by these steps, in pieces.

        The client may connect again at once; its commands wait until the former connection has left all it owned.
        """
        if self._ids.remove(owner.client_id, owner.connection_id):
            self.per_user.remove(owner.user)
        work = self.begin_work(chain(steps, self._leaving(owner)))
        if not work.is_done:
            self._closing[owner] = work
            work.when_done(partial(self._closing.pop, owner, None))
        return work

    def _leaving(self, owner: Owner) -> Steps:
        self._observers.announce(lambda observer: observer.connection_removed(owner))
        yield 1

    def remove_temporary(self, destination: Destination, owner: Owner) -> None:
        """Remove a temporary destination of a closed connection; see `Host`."""
        self.destinations.remove_owned(destination, owner)

    @property
    def paging(self) -> Paging:
        """The event loop and the clock, for what is done in pieces."""
        return self.usage.paging

    def begin_work(self, steps: Steps) -> PiecewiseWork:
        """Carry out the first piece of work, and the others in later turns; all at once while the broker stops."""
        work = PiecewiseWork(
            steps,
            self.usage.paging,
            is_behind=lambda: self.is_behind or self._is_spool_behind,
            when_caught_up=self._when_caught_up,
        )
        if self.is_stopping:
            work.finish()
            return work
        work.proceed()
        if not work.is_done:
            self._works[work] = None
            work.when_done(partial(self._works.pop, work, None))
        return work

    @property
    def _is_spool_behind(self) -> bool:
        """True while memory is full, and some of it is on its way to the spool."""
        spool = self.usage.paging.spool
        return spool is not None and spool.unwritten_bytes > 0 and self.usage.is_full

    def _when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back once the store has written all so far, or else the spool some of what is on its way."""
        spool = self.usage.paging.spool
        if self.is_behind or spool is None:
            self.when_durable(callback)
        else:
            spool.when_written(callback)

    # ------------------------------------------------------------ messages

    def send(self, message: Message, worker: PiecewiseWorker | None = None) -> bool:
        """Send a message outside client transactions; False if its destination has one of the same id.

        Args:
            message: the message.
            worker: makes many or large copies in pieces; None: they are made at once.
        """
        target = self._plain.get(message.destination)
        if target is None:
            routed = self.route(message)
            EFFORT.is_large = True  # a pattern may have created destinations, and copies may be many
            is_covering = self.durables.is_covering
            if len(routed) > 1 or is_covering:
                # A commit's messages are sent behind it: a retained one is to be stored before its producer's answer.
                is_together = message.persistent and len(routed) > 1 and not may_have(message, RETAIN_BYTES)
                if worker is not None and (is_covering or is_long(len(routed), message)):
                    routed.check()
                    worker.work_off(self._sending(routed.in_steps(), is_together=is_together))
                    return True
                if is_together or is_covering:
                    carry_out(self._sending(list(routed), is_together=is_together))
                    return True
            sends: Iterable[tuple[Queue | Topic, Message]] = routed
        else:
            sends = ((target, message),)
        is_new = True
        for target, copy in sends:
            if copy.expiration and copy.is_expired(self.clock()):
                self.dead_letters.expire(copy)
            elif not target.send(copy):
                is_new = False
        return is_new

    def _send_due(self, message: Message) -> None:
        """Send the message of a job that is due.

        Raises:
            RequestError: it cannot be sent; `ResourceLimit`: there is no space, and the scheduler tries again.
        """
        self.admit(message, None)
        self.send(message, self._due_work)

    def _when_due_durable(self, callback: Callable[[], None]) -> None:
        """Call back once the messages of jobs that are due are sent and durable."""
        self._due_work.when_done(partial(self.store.when_durable, callback))

    def _sending(self, routed: Iterable[tuple[Queue | Topic, Message] | None], *, is_together: bool) -> Steps:
        """Send the copies of one message; together: in a transaction, so that a crash leaves all or none of them."""
        transaction: BrokerTransaction | None = None
        if is_together:
            transaction = self.begin_transaction()
        try:
            for each in routed:
                if each is None:
                    yield PORTION_COST
                    continue
                target, copy = each
                yield from self.covering(target)
                if copy.is_expired(self.clock()):
                    self.dead_letters.expire(copy)
                elif transaction is not None:
                    transaction.add_send(target, copy)
                else:
                    target.send(copy)
                yield copy_cost(copy.size)
        except Exception:
            if transaction is not None:
                transaction.rollback()
            raise
        if transaction is not None:
            yield from transaction.committing()

    def admit(self, message: Message, owner: Owner | None) -> Usage:
        """Return the memory usage that a message will count for; see `Host`. The owner is None for the broker itself.

        Raises:
            InvalidDestination: a name is too long.
            ResourceLimit: the store has no space for the message; see `StoreSpace.refusal`.
        """
        if message.persistent and (self.space.shortage or self.is_full):
            raise self.space.refusal(message)
        target = self._plain.get(message.destination)
        if target is not None:
            return target.usage
        self.destinations.creator = owner
        return self._usage_of(message.destination)

    def _usage_of(self, destination: Destination) -> Usage:
        """Return the usage of the first part of a destination that makes producers wait; the broker's if none does.

        Raises:
            InvalidDestination: a name is too long.
        """
        usage = self.usage
        for part in parts(destination):
            check_name(part)
            target = self.destinations.existing(part)
            if usage is self.usage and target is not None and target.usage.is_full:
                usage = target.usage
        return usage

    def schedules(self, message: Message) -> bool:
        """Return True if a message is to be scheduled; see `Host`."""
        return self.scheduler is not None and is_scheduled(message) and self.scheduler.accepts(message)

    def would_schedule(self, message: Message) -> bool:
        """Return True if a message would be scheduled, without regard to limits."""
        return self.scheduler is not None and is_scheduled(message) and self.scheduler.is_for(message)

    def _check_management(self, message: Message, owner: Owner) -> None:
        """Check that the owner may give a scheduler command, and send to where the broker answers it.

        Raises:
            AccessDenied: its user may not.
        """
        owner.require(Right.WRITE, topic(MANAGEMENT))
        if (reply_to := outline(message).reply_to) is not None:
            self.require_reply(reply_to, owner)

    def require_reply(self, reply_to: Destination, owner: Owner) -> None:
        """Check that the owner may send to where it wants an answer of the broker.

        Raises:
            AccessDenied: its user may not.
        """
        for part in parts(reply_to):
            owner.require(Right.WRITE, part)
            if not part.is_temporary and self.destinations.existing(part) is None:
                owner.require(Right.CREATE, part)

    def reply(self, message: Message, owner: Owner) -> None:
        """Send an answer of the broker to where the owner wants it.

        Raises:
            RequestError: it cannot be sent; `ResourceLimit`: there is no memory for it.
        """
        if self.admit(message, owner).is_full:
            raise ResourceLimit(f"Usage Manager Memory Limit reached on {message.destination}")
        self.send(message)

    def answers(self, message: Message, owner: Owner) -> bool:
        """Return True if a message is a request for statistics, which is answered; see `Host`."""
        return self._statistics is not None and self._statistics.answers(message, owner)

    def accept(self, message: Message, owner: Owner) -> bool:
        """Send or schedule a client's message outside transactions; see `Host`."""
        if self.scheduler is not None and is_scheduled(message) and self.scheduler.accepts(message):
            if owner.rights is not None and is_management(message):
                self._check_management(message, owner)
            return self.scheduler.schedule(message, owner)
        if self._statistics is not None and self._statistics.answers(message, owner):
            return True
        return self.send(message, owner)

    def accept_bridged(self, message: Message, owner: Owner, when_carried_out: When) -> bool:
        """Send what has come over a bridge, unless it was accepted before; see `Host`."""
        when_safe = self.when_durable if self.would_schedule(message) else when_carried_out  # jobs: another store
        return self._runtime.bridged.accept(message, partial(self.accept, message, owner), when_safe, self.queues)

    def route_scheduled(self, message: Message) -> tuple[SendTarget, Message]:
        """Return the target of a message that a transaction schedules, with the copy that it gets."""
        return self.scheduling_queue, to_scheduling_queue(message)

    def plain_target(self, destination: Destination) -> Queue | Topic | None:
        """Return the only target of all messages of a destination, if one is known; see `Host`."""
        return self._plain.get(destination)

    def route(self, message: Message) -> Copies[Queue | Topic]:
        """Return the targets of a message, each with the copy that it gets.

        Raises:
            RequestError: a destination cannot be created.
        """
        routed = self.destinations.router.route(message)
        if routed is not None:
            return routed
        target = self.destinations.target(message.destination)
        if not self.durables.is_covering:
            self._plain[message.destination] = target
        return Copies(message, [(target, message.destination, None)])

    @property
    def is_covering(self) -> bool:
        """True while some targets may have to be waited for; see `covering`."""
        return self.durables.is_covering

    def covering(self, target: SendTarget) -> Steps:
        """Return the steps that are left until a message may be sent to a target; see `Host`."""
        return self.durables.covering(target)

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 if it is not remembered."""
        return self.store.last_sequence(producer_id)

    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of a producer's scheduled messages, -1 if it is not remembered."""
        return -1 if self._jobs is None else self._jobs.last_sequence(producer_id)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is durable."""
        jobs = self._jobs
        if jobs is None:
            self.store.when_durable(callback)
        else:
            self.store.when_durable(lambda: jobs.when_durable(callback))

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is durable, or consumed and acknowledged."""
        self._runtime.bridged.write()  # here, so that no consumer's acknowledgement is stored before
        if self.retained.is_removing:
            self.when_durable(callback)
        elif (jobs := self._jobs) is None:
            self.store.when_confirmed(callback)
        else:
            self.store.when_confirmed(lambda: jobs.when_durable(callback))

    # ------------------------------------------------------------ questions

    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""
        return self._runtime.policy(destination)

    @property
    def is_ending(self) -> bool:
        """True once no destination may be removed: the broker is stopping, or may no longer write to the store."""
        return self.is_stopping or self.abandoned

    def connections(self) -> Iterable[BrokerConnection]:
        """Return the open connections."""
        return self._clients.values()

    def transactions(self) -> Iterator[BrokerTransaction]:
        """Yield the open transactions of all connections, and those in doubt."""
        yield from self.branches.values()
        for connection in self._clients.values():
            yield from (each for each in connection.transactions.values() if isinstance(each.id, LocalTransactionId))

    # ------------------------------------------------------------ transactions

    def begin_transaction(self) -> BrokerTransaction:
        """Begin a transaction of the broker itself, which ends soon."""
        return BrokerTransaction(self._next_transaction(), self.store, commits=self.destinations.commits)

    def begin(self, transaction_id: TransactionId, owner: Owner) -> BrokerTransaction:
        """Begin a transaction of one connection."""
        if isinstance(transaction_id, XATransactionId):
            check_branch(transaction_id)
            if transaction_id in self.branches:
                raise TransactionError(f"{transaction_id} is a transaction of another user")
        begun = BrokerTransaction(
            transaction_id, self.store, owner, usage=self._counted, commits=self.destinations.commits
        )
        if isinstance(transaction_id, XATransactionId):
            begun.user = None if owner.rights is None else owner.user.name
            self.branches[transaction_id] = begun
        return begun

    def branch(self, transaction_id: XATransactionId) -> BrokerTransaction | None:
        """Return an open or prepared XA transaction of any connection."""
        if (found := self.branches.get(transaction_id)) is None:
            self.store.require_fence()  # it may be prepared at the next master: a former one must not call it unknown
        return found

    def ended(self, transaction: BrokerTransaction) -> None:
        """Remove a transaction that has ended."""
        if isinstance(transaction.id, XATransactionId):
            self.branches.pop(transaction.id, None)

    def in_doubt(self) -> Sequence[tuple[XATransactionId, BrokerTransaction]]:
        """Return the prepared transactions."""
        self.store.require_fence()  # more may be prepared at the next master
        return [(branch, transaction) for branch, transaction in self.branches.items() if transaction.prepared]

    # ------------------------------------------------------------ destinations

    def provide(self, destination: Destination, owner: Owner) -> bool:
        """Create a destination for a connection if it does not exist; return True if it did not."""
        check_name(destination)
        is_new = self.destinations.existing(destination) is None
        self.destinations.creator = owner
        self.destinations.target(destination)
        return is_new

    def own(self, destination: Destination, owner: Owner) -> None:
        """Record a connection as the owner of a temporary destination; see `Host`."""
        self.destinations.own(destination, owner)

    def remove_destination(self, destination: Destination, owner: Owner | None = None) -> None:
        """Delete a destination with its messages; see `Host`. The owner is None for the broker itself."""
        there = self.destinations
        if owner is not None and there.existing(destination) is not None and there.owner(destination) is not owner:
            owner.require(Right.REMOVE, destination)
        is_there = there.existing(destination) is not None
        there.remove(destination)
        if owner is not None and is_there and not destination.is_temporary:
            audit.removed(owner.user.name, owner.peer, str(destination))

    # ------------------------------------------------------------ consumers and producers

    def subscribe(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> BrokerConsumer:
        """Add a consumer to the destinations of its request; see the port `BrokerConnection`."""
        EFFORT.is_large = True
        return self._subscribing.subscribe(owner, request, deliver, browsed)

    def forget(self, consumer: BrokerConsumer) -> None:
        """Remove a closed consumer."""
        self._subscribing.forget(consumer)

    def recall(self, consumer: BrokerConsumer) -> None:
        """Deliver the history of its topics to a consumer."""
        self._subscribing.recall(consumer)

    def subscriptions_of(self, client_id: str) -> Sequence[DurableSubscription]:
        """Return the durable subscriptions of a client."""
        return self.durables.of_client(client_id)

    def unsubscribe(self, client_id: str, subscription_name: str, owner: Owner | None = None) -> None:
        """Delete a durable subscription. The owner is None for the broker itself.

        Raises:
            InvalidDestination: there is no subscription of that name.
            AccessDenied: the owner may not read its topic.
            InvalidClientId: the client id belongs to another user.
            SubscriptionInUse: the subscription is active.
        """
        durable = self.durables.get(f"{client_id}:{subscription_name}")
        if owner is not None and durable is not None:
            self.durables.check_reader(durable, owner)
            self.durables.check_user(client_id, owner.user, owner.rights)  # it need not be the connection's own
        self.durables.unsubscribe(client_id, subscription_name, owner)
        if owner is not None:
            audit.unsubscribed(owner.user.name, owner.peer, f"{client_id}:{subscription_name}")

    def add_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Announce a producer of one destination."""
        self._observers.announce(lambda observer: observer.producer_added(producer_id, destination))

    def remove_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Announce that a producer of one destination has closed."""
        self._observers.announce(lambda observer: observer.producer_removed(producer_id, destination))

    def announce_full(self, message: Message, usage: Usage) -> None:
        """Announce that a message is sent for which there is no space; see `Host`."""
        self._observers.announce(lambda observer: observer.memory_full(message, usage.used))

    def _stop_scheduler(self) -> None:
        if self.scheduler is not None:
            self.scheduler.stop()

    # ------------------------------------------------------------ private

    def _next_transaction(self) -> LocalTransactionId:
        self._transaction_count += 1
        return LocalTransactionId(self.run_id, self._transaction_count)

    def _records(self, queue: ReservedQueue) -> RecordQueue:
        return RecordQueue(queue, self.store, self._next_transaction, self.clock, self.paging)

    def _prepare_paging(
        self,
        defer: Callable[[Callable[[], None]], object] | None,
        spool: MessageSpool | None,
        monotonic: Callable[[], float] | None,
    ) -> None:
        paging = self.usage.paging
        paging.later, paging.spool, paging.when_durable = defer, spool, self.store.when_durable
        if monotonic is not None:
            paging.monotonic = monotonic

    def _object_memory(self) -> ObjectMemory:
        return ObjectMemory(
            0 if self._counted is None else self.limits.memory_bytes_max,
            self.limits.destinations_max,
            count=self._count_objects,
            seconds=lambda: self.usage.paging.monotonic(),
        )

    def _administration(self) -> Administration:
        return Administration(
            self.destinations,
            self._clients,
            self._runtime,
            is_full=lambda: self.is_full,
            is_dead_letter_queue=self.operations.is_dead_letter_queue,
            in_doubt=lambda: sum([transaction.prepared for transaction in self.branches.values()]),
        )

    def _count_objects(self, change: int) -> None:
        if change > 0:
            self.usage.acquire(change)
        else:
            self.usage.release(-change)

    def _fallback(self, destination: Destination) -> Queue:
        return self.destinations.queue(destination)

    def _dead_lettered(self, message: Message, letter: Message | None, cause: str) -> None:
        if letter is not None:
            self._observers.announce(lambda observer: observer.message_dead_lettered(message, cause))

    def _expired(self, message: Message) -> None:
        self._observers.announce(lambda observer: observer.message_expired(message))
