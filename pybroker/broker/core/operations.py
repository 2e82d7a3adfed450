"""Implements the port `Operations`: what operators do with messages, destinations, clients, transactions and jobs.

Each act that changes something is a line in the audit log, once it has ended: with its user, the address, the number
of messages, and the reason if it ended early.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from pybroker.broker.core.arrival_rules import ArrivalRules
from pybroker.broker.core.backlog_walk import Waiting
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.deadletter import DEAD_LETTER_QUEUE
from pybroker.broker.core.destinations import Destinations, check_name
from pybroker.broker.core.inactive import Users
from pybroker.broker.core.job_pages import JobPageReader
from pybroker.broker.core.matcher import matcher
from pybroker.broker.core.message_pages import MessagePageReader, MessageSearch
from pybroker.broker.core.message_selection import SelectedMessages
from pybroker.broker.core.operation import STOPPING, OperationSteps, SteppedOperation
from pybroker.broker.core.piecewise import Steps
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.scheduled import is_scheduled
from pybroker.broker.core.scheduler import Scheduler, is_management
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.core.transfer import MessageTransfer, TransferHost, original_destination
from pybroker.broker.domain import audit
from pybroker.broker.domain.destination import Destination, parts
from pybroker.broker.domain.errors import (
    BrokerError,
    InvalidDestination,
    RequestError,
    ResourceLimit,
    UnknownTransaction,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import OpenWireMessage, to_message
from pybroker.broker.domain.operations import (
    Actor,
    BrowsedMessage,
    InDoubtBranch,
    JobCursor,
    JobPage,
    MessagePage,
    MessageSelection,
    NotDeadLetterQueue,
    OperationInterrupted,
    OperationResult,
    PageLimits,
    RunningOperation,
    WhenDone,
    WhenJobs,
    WhenMessage,
    WhenPage,
    WhenResult,
    missing_destination,
)
from pybroker.broker.domain.transaction import XATransactionId

OPERATIONS_MAX: Final = 64
"""Operations at a time: each holds a page of messages at most, and takes its share of the deferred work of a turn."""

_REMOVAL_COST: Final = 5
"""A removal takes as long as so many usual operations."""


class OperatedBroker(TransferHost, Users, Protocol):
    """The broker, as operations see it."""

    run_id: str
    arrival_rules: ArrivalRules | None
    scheduler: Scheduler | None

    def clock(self) -> int:
        """Return the milliseconds since the epoch."""
        ...

    def next_sequence(self) -> int:
        """Return the broker sequence number of a message."""
        ...

    @property
    def is_behind(self) -> bool:
        """True when more bytes are unwritten than the limit."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is durable."""
        ...

    def send(self, message: Message) -> bool:
        """Send a message outside client transactions."""
        ...

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription."""
        ...

    def in_doubt(self) -> Sequence[tuple[XATransactionId, BrokerTransaction]]:
        """Return the prepared transactions."""
        ...

    def ended(self, transaction: BrokerTransaction) -> None:
        """Remove a transaction that has ended."""
        ...


class BrokerOperations:
    """The operations on one broker."""

    def __init__(self, broker: OperatedBroker, runtime: CoreRuntime, destinations: Destinations) -> None:
        self._broker = broker
        self._runtime = runtime
        self._destinations = destinations
        self._paging = runtime.usage.paging
        self._running: dict[SteppedOperation, Callable[[BrokerError | None], None]] = {}
        """The operations under way, each with what calls its caller back."""
        self._producer_id = ProducerId(f"{broker.run_id}-5", 1, 0)
        self._sent_count = 0

    # ------------------------------------------------------------ the broker

    def interrupt(self) -> None:
        """End all operations, as the broker stops; their callers are called back once what was done is on disk."""
        for operation in list(self._running):
            attempt(operation.interrupt, "ending an operation")

    def abandon(self) -> None:
        """End all operations at once: nothing may be changed any more."""
        running, self._running = self._running, {}
        for operation, report in running.items():
            operation.drop()
            attempt(partial(report, OperationInterrupted(STOPPING)), "ending an operation")

    def is_dead_letter_queue(self, destination: Destination) -> bool:
        """Return True if a policy names a queue for dead letters, or this master has sent some there."""
        if not destination.is_queue or destination.is_temporary:
            return False
        runtime = self._runtime
        return (
            destination == DEAD_LETTER_QUEUE
            or runtime.dead_letters.gets_letters(destination)
            or runtime.policies.names_for_dead_letters(destination)
        )

    # ------------------------------------------------------------ messages

    def browse(
        self, queue: Destination, cursor: int, limits: PageLimits, selector: str | None, done: WhenPage
    ) -> RunningOperation:
        """Return a page of messages; see the port."""
        return self._browse(self._queue(queue), cursor, limits, selector, done)

    def browse_subscription(
        self, key: str, cursor: int, limits: PageLimits, selector: str | None, done: WhenPage
    ) -> RunningOperation:
        """Return a page of what a durable subscription holds; see the port."""
        durable = self._destinations.durables.get(key)
        if durable is None:
            raise InvalidDestination(f"there is no durable subscription {key!r}")
        return self._browse(durable, cursor, limits, selector, done)

    def _browse(
        self, source: StoredSource, cursor: int, limits: PageLimits, selector: str | None, done: WhenPage
    ) -> RunningOperation:
        matches = matcher(selector)
        operation = self._new()
        reader = MessagePageReader(operation, source, cursor, limits, matches)

        def report(error: BrokerError | None) -> None:
            page: MessagePage | BrokerError = reader.page if error is None else error
            done(page)

        return self._begin(operation, reader.steps(), report)

    def message(self, queue: Destination, message_id: str, done: WhenMessage) -> RunningOperation:
        """Return one message; see the port."""
        operation = self._new()
        search = MessageSearch(operation, self._queue(queue), message_id)

        def report(error: BrokerError | None) -> None:
            found: BrowsedMessage | BrokerError | None = search.found if error is None else error
            done(found)

        return self._begin(operation, search.steps(), report)

    def count(self, queue: Destination, selection: MessageSelection, done: WhenResult) -> RunningOperation:
        """Count messages; see the port."""
        source = self._queue(queue)
        operation = self._new()
        selected = SelectedMessages(operation, source, selection)
        return self._begin(
            operation, selected.steps(partial(_counting, operation)), partial(_report, operation, source, done)
        )

    def remove(
        self, queue: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Remove messages; see the port."""
        source = self._queue(queue)
        operation = self._new()
        selected = SelectedMessages(operation, source, selection)
        steps = selected.steps(partial(_removing, operation, source))
        return self._change(operation, steps, source, actor, "removed messages of", done)

    def move(
        self, queue: Destination, target: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Move messages; see the port."""
        return self._transfer(queue, target, selection, actor, done, is_move=True)

    def copy(
        self, queue: Destination, target: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Copy messages; see the port."""
        return self._transfer(queue, target, selection, actor, done, is_move=False)

    def _transfer(
        self,
        queue: Destination,
        target: Destination,
        selection: MessageSelection,
        actor: Actor,
        done: WhenResult,
        *,
        is_move: bool,
    ) -> RunningOperation:
        source = self._queue(queue)
        _check_target(target)
        if is_move and target.is_composite and queue in parts(target):
            raise InvalidDestination(f"{target} contains {queue} itself: copy the messages to the other names")
        operation = self._new()
        selected = SelectedMessages(operation, source, selection, reads_all=True)
        transfer = MessageTransfer(
            self._broker,
            operation,
            source,
            selected,
            lambda message: target,
            is_move=is_move,
            moved=self._left_dead_letter_queue(queue),
        )
        steps = iter(()) if target == queue else transfer.steps()
        act = f"{'moved' if is_move else 'copied'} messages to {target} from"
        return self._change(operation, steps, source, actor, act, done)

    def retry(
        self, queue: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Move messages of a dead letter queue to their original destinations; see the port."""
        source = self._queue(queue)
        if not self.is_dead_letter_queue(queue):
            raise NotDeadLetterQueue(
                f"{queue.name!r} is no dead letter queue, so its messages have no place to go back to: "
                "use move, and name their target"
            )
        operation = self._new()
        selected = SelectedMessages(operation, source, selection, reads_all=True)
        transfer = MessageTransfer(
            self._broker,
            operation,
            source,
            selected,
            original_destination,
            is_move=True,
            skips_invalid=True,
            moved=self._left_dead_letter_queue(queue),
        )
        return self._change(operation, transfer.steps(), source, actor, "retried messages of", done)

    def _left_dead_letter_queue(self, queue: Destination) -> Callable[[Message], None]:
        """Return what is called for each message that has left a queue: it may become a dead letter there again."""
        letters = self._runtime.dead_letters
        return lambda message: letters.forget(queue, message.message_id)

    # ------------------------------------------------------------ destinations

    def pause(self, queue: Destination, actor: Actor) -> None:
        """Deliver nothing to the consumers of a queue; see the port."""
        self._queue(queue).pause(is_paused=True)
        audit.operated(actor.user, actor.address, "paused", str(queue))

    def resume(self, queue: Destination, actor: Actor) -> None:
        """Deliver again; see the port."""
        self._queue(queue).pause(is_paused=False)
        audit.operated(actor.user, actor.address, "resumed", str(queue))

    def create(self, destination: Destination, actor: Actor, done: WhenDone) -> bool:
        """Create a queue or topic; see the port."""
        self._check_running()
        there = self._destinations
        _check_permanent(destination)
        check_name(destination)
        if destination.is_pattern and not there.router.creates_queue(destination):
            raise InvalidDestination(f"{destination} would be a wildcard: write a name without `*` and `>`")
        is_new = there.existing(destination) is None
        there.creator = None
        there.target(destination)
        if destination.is_queue:
            self._runtime.store.declare(destination)
        if is_new:
            audit.operated(actor.user, actor.address, "created", str(destination))
        self._broker.when_durable(done)
        return is_new

    def delete(self, destination: Destination, actor: Actor, done: WhenDone) -> bool:
        """Delete a queue or topic with its messages; see the port."""
        self._check_running()
        _check_permanent(destination)
        existing = self._destinations.existing(destination)
        count = existing.counters().size if isinstance(existing, Queue) else None
        self._destinations.remove(destination)
        if existing is not None:
            audit.operated(actor.user, actor.address, "deleted", str(destination), count)
        self._broker.when_durable(done)
        return existing is not None

    def send(self, message: OpenWireMessage, actor: Actor, done: WhenDone) -> str:
        """Send or schedule a message; see the port."""
        self._check_running()
        broker = self._broker
        if message.destination is None:
            raise InvalidDestination("The message has no destination: name one, such as queue://ORDERS")
        self._sent_count += 1
        now = broker.clock()
        made = to_message(
            replace(
                message,
                producer_id=self._producer_id,
                message_id=OpenWireMessageId(None, self._producer_id, self._sent_count, broker.next_sequence()),
                timestamp=message.timestamp or now,
                broker_in_time=now,
                transaction_id=None,
                original_transaction_id=None,
            )
        )
        if broker.arrival_rules is not None:
            made = broker.arrival_rules.apply(made, actor.user, now)
        if is_management(made):
            raise RequestError(f"{message.destination} takes commands to the scheduler: use the operations for jobs")
        if broker.admit(made, None).is_full and broker.policy(made.destination).producer_flow_control:
            raise ResourceLimit(
                f"Usage Manager Memory Limit reached on {made.destination}: consume, or raise the limit"
            )
        scheduler = broker.scheduler
        if scheduler is not None and is_scheduled(made) and scheduler.accepts(made):
            scheduler.schedule(made)
        else:
            broker.send(made)
        audit.operated(actor.user, actor.address, "sent a message to", str(message.destination), 1)
        broker.when_durable(done)
        return made.message_id

    # ------------------------------------------------------------ clients

    def cut_off(self, connection_id: str, actor: Actor) -> bool:
        """Close a connection; see the port."""
        for connection in self._broker.connections():
            if connection.connection_id == connection_id:
                audit.operated(actor.user, actor.address, "closed the connection", connection_id)
                connection.stop()
                return True
        return False

    def unsubscribe(self, client_id: str, name: str, actor: Actor, done: WhenDone) -> None:
        """Delete a durable subscription; see the port."""
        self._check_running()
        durable = self._destinations.durables.get(f"{client_id}:{name}")
        count = None if durable is None else durable.counters().size
        self._broker.unsubscribe(client_id, name)
        what = f"{client_id}:{name}"
        audit.operated(actor.user, actor.address, "deleted the durable subscription", what, count)
        self._broker.when_durable(done)

    # ------------------------------------------------------------ transactions

    def in_doubt(self) -> Sequence[InDoubtBranch]:
        """Return the branches in doubt; see the port."""
        return [
            InDoubtBranch(
                branch=branch,
                user=transaction.user,
                sent=transaction.sent_count,
                acknowledged=transaction.acknowledged_count,
            )
            for branch, transaction in self._broker.in_doubt()
        ]

    def commit_branch(self, branch: XATransactionId, actor: Actor, done: WhenResult) -> RunningOperation:
        """Commit a branch in doubt; see the port."""
        return self._end_branch(branch, BrokerTransaction.committing, actor, "committed", done)

    def roll_back_branch(self, branch: XATransactionId, actor: Actor, done: WhenResult) -> RunningOperation:
        """Roll back a branch in doubt; see the port."""
        return self._end_branch(branch, BrokerTransaction.rolling_back, actor, "rolled back", done)

    def _prepared(self, branch: XATransactionId) -> BrokerTransaction:
        self._check_running()
        for each, transaction in self._broker.in_doubt():
            if each == branch:
                return transaction
        raise UnknownTransaction(f"{branch} is not in doubt: it has ended, or is not prepared")

    def _end_branch(
        self,
        branch: XATransactionId,
        end: Callable[[BrokerTransaction], Steps],
        actor: Actor,
        act: str,
        done: WhenResult,
    ) -> RunningOperation:
        """Carry out the end of a branch, which nothing interrupts: it is decided at once."""
        transaction = self._prepared(branch)
        operation = self._new()
        count = transaction.sent_count + transaction.acknowledged_count
        self._broker.ended(transaction)

        def report(error: BrokerError | None) -> None:
            operation.affected = 0 if error is not None else count
            reason = None if error is None else str(error)
            audit.operated(actor.user, actor.address, act, str(branch), operation.affected, reason)
            done(OperationResult(affected=operation.affected, error=error))

        return self._begin(operation, end(transaction), report, is_change=True, is_decided=True)

    # ------------------------------------------------------------ jobs

    def jobs(self, cursor: JobCursor, count: int, done: WhenJobs) -> RunningOperation:
        """Return a page of the scheduled messages; see the port."""
        operation = self._new()
        reader = JobPageReader(operation, self._broker.scheduler, cursor, count)

        def report(error: BrokerError | None) -> None:
            page: JobPage | BrokerError = reader.page if error is None else error
            done(page)

        return self._begin(operation, reader.steps(), report)

    def remove_job(self, job_id: str, next_time: int | None, actor: Actor, done: WhenDone) -> int:
        """Remove the scheduled messages of an id; see the port."""
        self._check_running()
        scheduler = self._broker.scheduler
        count = 0 if scheduler is None else scheduler.remove(job_id, next_time)
        if count:
            audit.operated(actor.user, actor.address, "removed the scheduled message", job_id, count)
        self._broker.when_durable(done)
        return count

    # ------------------------------------------------------------ private

    def _queue(self, destination: Destination) -> Queue:
        found = self._destinations.queues.get(destination)
        if found is None:
            raise InvalidDestination(missing_destination("queue", destination.name))
        return found

    def _check_running(self) -> None:
        if self._broker.is_ending:
            raise OperationInterrupted(STOPPING)

    def _new(self) -> SteppedOperation:
        """Return a new operation, which is yet to begin.

        Raises:
            OperationInterrupted: the broker is stopping, or is no longer master.
            ResourceLimit: too many operations are under way.
        """
        self._check_running()
        if len(self._running) >= OPERATIONS_MAX:
            raise ResourceLimit(f"{OPERATIONS_MAX} operations are under way: wait for one, or cancel it")
        return SteppedOperation(self._paging, pace=self._pace, ended=self._ended)

    def _pace(self, callback: Callable[[], None]) -> None:
        """Call back once the store is not behind."""
        if self._broker.is_behind:
            self._broker.when_durable(callback)
        else:
            callback()

    def _change(
        self,
        operation: SteppedOperation,
        steps: OperationSteps,
        source: Queue,
        actor: Actor,
        act: str,
        done: WhenResult,
    ) -> RunningOperation:
        """Carry out steps that change something, which is logged."""

        def report(error: BrokerError | None) -> None:
            if error is None and source.is_closed:
                error = InvalidDestination(f"{source.destination} was deleted meanwhile")
            reason = str(error) if error is not None else "cancelled" if operation.is_cancelled else None
            audit.operated(actor.user, actor.address, act, str(source.destination), operation.affected, reason)
            _report(operation, source, done, error)

        return self._begin(operation, steps, report, is_change=True)

    def _begin(
        self,
        operation: SteppedOperation,
        steps: OperationSteps,
        report: Callable[[BrokerError | None], None],
        *,
        is_change: bool = False,
        is_decided: bool = False,
    ) -> RunningOperation:
        """Carry out an operation; once all is done, and on disk if it changes something, `report` is called."""
        self._running[operation] = report
        operation.is_change, operation.is_decided = is_change, is_decided
        operation.begin(steps, at_once=is_decided)
        return operation

    def _ended(self, operation: SteppedOperation, error: BrokerError | None) -> None:
        """Report the end of an operation, unless `abandon` does."""
        if error is None and operation.is_interrupted and not operation.is_decided:
            error = OperationInterrupted(STOPPING)
        if operation.is_change:
            self._broker.when_durable(partial(self._report, operation, error))
        else:
            self._report(operation, error)

    def _report(self, operation: SteppedOperation, error: BrokerError | None) -> None:
        report = self._running.pop(operation, None)
        if report is not None:
            operation.is_done = True
            attempt(partial(report, error), "reporting an operation")


def _report(operation: SteppedOperation, source: Queue, done: WhenResult, error: BrokerError | None) -> None:
    done(
        OperationResult(
            affected=operation.affected,
            examined=operation.examined,
            skipped=operation.skipped,
            in_flight=source.counters().in_flight,
            is_cancelled=operation.is_cancelled,
            error=error,
        )
    )


def _counting(operation: SteppedOperation, found: Sequence[Waiting]) -> OperationSteps:
    operation.affected += len(found)
    yield 0


def _removing(operation: SteppedOperation, source: Queue, found: Sequence[Waiting]) -> OperationSteps:
    operation.affected += source.discard(found)
    yield _REMOVAL_COST * len(found)


def _check_target(target: Destination) -> None:
    """Check the name of a target, each part of a composite one.

    Raises:
        InvalidDestination: it cannot be used.
    """
    for part in parts(target):
        check_name(part)
        if part.is_pattern:
            raise InvalidDestination(f"{part} is a wildcard: name a queue or topic")


def _check_permanent(destination: Destination) -> None:
    """Check that a name stands for one permanent destination.

    Raises:
        InvalidDestination: it does not.
    """
    if not destination.name.strip():
        raise InvalidDestination("Invalid destination name: a non-empty name is required")  # ActiveMQ's text
    if destination.is_composite:
        raise InvalidDestination(f"{destination} names several destinations: name one after the other")
    if destination.is_temporary:
        raise InvalidDestination(f"{destination} belongs to a connection, with whose end it is deleted")
