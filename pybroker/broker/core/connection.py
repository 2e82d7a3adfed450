"""A client's connection in the core: owns its consumers, transactions and temporary destinations until it closes."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.deferred_sends import DeferredSends
from pybroker.broker.core.flow_control_log import FlowControlLog
from pybroker.broker.core.host import Host, Routed, is_long
from pybroker.broker.core.object_memory import (
    SESSION_BYTES,
    TRANSACTION_BYTES,
    ObjectAccount,
    size_of_consumer,
    size_of_destination,
    size_of_producer,
)
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.piecewise import PORTION_COST, PiecewiseWork, Steps, contained, copy_cost
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.rights import Right, Rights
from pybroker.broker.core.scheduler import is_management
from pybroker.broker.core.selector import SelectorQuota
from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain import audit
from pybroker.broker.domain.destination import Destination, DestinationType, creator_of, is_advisory, parts, queue
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import (
    BrokerError,
    ClosedByOperator,
    CommitFailed,
    InvalidDestination,
    RequestError,
    ResourceLimit,
    SessionTakenOver,
    TransactionError,
    UnknownTransaction,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.ports import Deliver, Throttle
from pybroker.broker.domain.security import ANONYMOUS, AccessDenied, NotAuthenticated, User
from pybroker.broker.domain.space import SpaceAwaited
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId

_log = logging.getLogger(__name__)

TRANSACTIONS_MAX = 10_000
"""Open transactions of one connection; a JMS session has one at a time."""

_USUAL_TRANSACTIONS = 10
"""Open transactions of a connection that count only themselves, so that few are as fast as without these limits."""
_NO_STEPS: Final[Steps] = iter(())

_EVERY_QUEUE: Final = queue(">")

_STEP_COST: Final = 10
"""Closing a consumer takes as long as so many usual operations."""

_UNCHECKED_TRANSACTIONS = 100
"""Open transactions that a connection may have whatever memory is in use: a consumer may free some only by a commit."""


class BrokerConnection(Owner):
    """The connection of one client; implements `ConnectionPort`.

    A connection that owns very much is closed in pieces, in later turns of the event loop. If its client comes back
    before, the commands of the new connection wait.
    """

    def __init__(
        self,
        host: Host,
        connection_id: str,
        client_id: str,
        throttle: Throttle,
        user: User = ANONYMOUS,
        rights: Rights | None = None,
    ) -> None:
        account = ObjectAccount(host.objects)
        super().__init__(
            connection_id,
            client_id,
            account,
            host.paging,
            is_held=host.is_stopping,
            user=user,
            rights=rights,
            peer=throttle.peer,
        )
        self.consumers: dict[BrokerConsumer, None] = {}
        self._selector_quota = SelectorQuota()
        self.temporaries: dict[Destination, None] = {}
        self.producers: dict[ProducerId, Destination | None] = {}
        self._host = host
        self._throttle = throttle
        self._throttled = False
        self._pressed = False
        self._full: dict[Usage, Destination] = {}
        """Usages that were full when messages were sent whose answers have to wait."""
        self.is_patient = False
        self._deferred: dict[DeferredSends, None] = {}
        self._flow_control_log = FlowControlLog(connection_id, host.clock)
        self._waited_on: dict[Usage, None] = {}
        """Usages on which this connection has waited for space."""
        self.transactions: dict[TransactionId, BrokerTransaction] = {}
        """Transactions that this connection began, and that have neither ended nor been prepared."""
        self._transaction_count = 0
        self._temporary_count = 0
        self._held_answers: list[Callable[[], None]] = []
        """Answers that wait until the consumer that is served first has got its messages."""
        self._undispatched: OrderedDict[BrokerConsumer, None] = OrderedDict()
        """Consumers to which is still to be delivered, after a pause or from many backlogs."""
        self._is_dispatching = False
        """True while they get messages, in this turn of the event loop or a later one."""
        self._work: PiecewiseWork | None = None
        """The work that a command of this connection has begun, and that is done in pieces."""
        self._is_working = False
        """True from the beginning of its first piece on."""
        self._holds_input = False
        self._more_work: list[Steps] = []
        """Work that has come meanwhile."""
        self._unanswered: list[Callable[[], None]] = []
        """Requests for callbacks, which wait for that work."""

    def cut_off(self) -> None:
        """Close, as the user no longer exists, or has another password or other groups."""
        audit.disconnected(self.user.name, self.peer, "its user has changed")
        self._throttle.give_up(NotAuthenticated(f"User {self.user.name} has changed: log in again"))

    def stop(self) -> None:
        """Close, as an operator has decided."""
        audit.disconnected(self.user.name, self.peer, "an operator has closed it")
        self._throttle.give_up(ClosedByOperator("An operator has closed this connection"))

    def give_way(self) -> None:
        """Close, as another connection of this client has begun."""
        self._throttle.give_up(SessionTakenOver(f"Another connection has taken over the client id {self.client_id}"))

    def apply_rules(self) -> None:
        """Close, if a consumer has to subscribe again after the rules have changed."""
        rights = self.rights
        if rights is None or self.closed:
            return
        for consumer in self.consumers:
            if any([rights.has_changed_for(each) for each in consumer.request.destinations]):
                what = consumer.request.destination
                audit.disconnected(self.user.name, self.peer, f"the rights to {what} have changed")
                self._throttle.give_up(AccessDenied(f"The rights of user {self.user.name} to {what} have changed"))
                return

    # ------------------------------------------------------------ messages

    def send(self, message: Message, transaction: TransactionId | None = None, *, answered: bool = False) -> bool:
        """Route a message, now or at its transaction's commit; see `ConnectionPort`."""
        is_new = True
        host = self._host
        rights = self.rights
        if (
            rights is not None
            and message.destination is not rights.last_written
            and not self._takes_effect(message.destination, rights)
        ):
            return True
        if host.arrival_rules is not None:
            message = host.arrival_rules.apply(message, self.user.name, host.clock())
        usage = host.admit(message, self)
        is_answer_held = usage.is_full and self._press(usage, message, transaction, answered=answered)
        if transaction is None:
            if message.bridge is None:
                is_new = host.accept(message, self)
            else:
                is_new = host.accept_bridged(message, self, self.when_carried_out)
        elif host.schedules(message):
            scheduling = self.transaction(transaction)
            if is_management(message):  # at once, as in ActiveMQ, and in pieces
                is_new = host.accept(message, self)
            else:
                is_new = scheduling.add_send(*host.route_scheduled(message))
        elif not host.answers(message, self):  # which is done at once, as in ActiveMQ
            sending = self.transaction(transaction)
            plain = host.plain_target(message.destination)
            if plain is not None:
                is_new = sending.add_send(plain, message)
            elif ((count := len(routed := host.route(message))) > 1 and is_long(count, message)) or host.is_covering:
                self.work_off(self._adding(sending, routed))
            else:
                for target, copy in routed:
                    is_new &= sending.add_send(target, copy)
        if is_answer_held:
            self._full[usage] = message.destination
        if message.persistent and not self._throttled and host.is_behind:
            self._throttled = True
            self._throttle.pause_reading()
            host.when_durable(self._unthrottle)
        return is_new

    def _takes_effect(self, destination: Destination, rights: Rights) -> bool:
        """Check that the user may send there; return False for an advisory, which only the broker may publish.

        Raises:
            AccessDenied: the user may not.
        """
        if destination not in rights.writable:
            if self._is_ignored(destination):
                return False
            self.require(Right.WRITE, destination)
        rights.last_written = destination
        return True

    @property
    def persistency(self) -> bool | None:
        """True if every message sent becomes persistent, False if none is; None: each is as its client says."""
        rules = self._host.arrival_rules
        return None if rules is None else rules.persistency

    def _is_ignored(self, destination: Destination) -> bool:
        """Return True if messages are taken without effect: under rules the broker alone publishes advisories."""
        return (
            self.rights is not None
            and destination.type is DestinationType.TOPIC
            and is_advisory(destination)
            and not destination.is_composite
        )

    def _press(self, usage: Usage, message: Message, transaction: TransactionId | None, *, answered: bool) -> bool:
        """Apply flow control to a message for which there is no space, by the rules of `usage`.

        Returns:
            True if the answer to the message has to wait.

        Raises:
            ResourceLimit: the message has to be refused.
        """
        policy = self._host.policy(message.destination)
        if policy.advisory_when_full or policy.advisory_for_fast_producers:
            self._host.announce_full(message, usage)
        if not policy.producer_flow_control:
            return False
        name = message.destination
        if policy.send_fail_if_no_space and message.bridge is None:  # as in ActiveMQ, a bridge waits
            raise ResourceLimit(f"Usage Manager Memory Limit reached on {name}. Consume from it, or raise its limit.")
        if transaction is not None and (sending := self.transaction(transaction)).holds_memory:
            sending.check_space(usage, message)
            return False
        if answered:
            is_patient = self.is_patient or message.bridge is not None or transaction is not None
            if policy.send_fail_if_no_space_after_timeout and not is_patient:
                raise self._space_awaited(usage, name, policy.send_fail_if_no_space_after_timeout / 1000)
            return True
        if not self._is_read_on:
            if not self._pressed:
                self._pressed = True
                self._throttle.pause_reading()
                self._wait_for_space(usage, name, self._release)
        elif usage.is_overrun:
            raise ResourceLimit(
                f"Usage Manager Memory Limit reached on {name}. A connection that also consumes, or has a transaction, "
                "is not made to wait. Consume, raise the limit, or send over a connection of its own."
            )
        return False

    def _space_awaited(self, usage: Usage, name: Destination, seconds: float) -> SpaceAwaited:
        text = f"Usage Manager Memory Limit Wait Timeout on {name}: no space in {seconds:g} s. Consume from it."
        return SpaceAwaited(text, seconds, partial(self._when_space, usage, name), usage.cancel)

    def deferred_sends(self, on_empty: Callable[[], None]) -> DeferredSends:
        """Begin to defer the sends of a producer."""

        def forget(done: DeferredSends) -> None:
            self._deferred.pop(done, None)
            on_empty()

        deferred = DeferredSends(self.paging, forget, self._throttle)
        self._deferred[deferred] = None
        return deferred

    @property
    def is_blocked(self) -> bool:
        """True while its client has to wait, because memory is full or the store is behind."""
        return self._throttled or self._pressed or bool(self._full) or bool(self._deferred)

    @property
    def _is_read_on(self) -> bool:
        """True if this connection must be read, because it may send what frees memory: acknowledgements or a commit."""
        return any(not is_advisory(consumer.request.destination) for consumer in self.consumers) or any(
            transaction.holds_memory for transaction in self.transactions.values()
        )

    def _release(self) -> None:
        if self._pressed:
            self._pressed = False
            self._throttle.resume_reading()

    def _wait_for_space(self, usage: Usage, destination: Destination, callback: Callable[[], None]) -> None:
        self._waited_on[usage] = None
        self._when_space(usage, destination, callback, self)

    def _when_space(self, usage: Usage, destination: Destination, callback: Callable[[], None], owner: object) -> None:
        if usage.is_full:
            callback = self._flow_control_log.log_wait(destination, usage, usage.broker, callback)
        usage.when_space(callback, owner)

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer."""
        return self._host.last_sequence(producer_id)

    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of a producer's scheduled messages."""
        return self._host.last_scheduled(producer_id)

    def is_scheduled(self, message: Message) -> bool:
        """Return True if a message would be scheduled instead of being sent at once."""
        return self._host.would_schedule(message)

    def when_carried_out(self, callback: Callable[[], None]) -> None:
        """Call back once all earlier commands are complete."""
        if self._work is not None:
            self._unanswered.append(callback)
        else:
            callback()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is carried out and durable."""
        if self._work is not None:
            self._unanswered.append(partial(self._host.when_durable, callback))
        elif self.first is not None:
            self._held_answers.append(callback)
        else:
            self._host.when_durable(callback)

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is durable, or consumed and acknowledged."""
        if self._work is not None:
            self._unanswered.append(partial(self._host.when_confirmed, callback))
        else:
            self._host.when_confirmed(callback)

    def work_off(self, steps: Steps) -> None:
        """Carry out work in pieces; until it is done, no later command of this connection is carried out.

        The work of a connection that has closed, such as a roll-back, holds nothing up.

        Raises:
            Exception: raised by a step of the first piece; the others are not carried out.
        """
        if self._is_working:  # begun by no command, such as by deliveries without acknowledgement that have left
            self._more_work.append(steps)
            return
        self._is_working = True
        try:
            work = self._host.begin_work(steps)
        except BaseException:
            self._work_on()
            raise
        if work.is_done or self.closed:
            self._work_on()
        else:
            self._hold_for(work)

    def wait_for(self, work: PiecewiseWork) -> None:
        """Carry out no command until work is done: this connection's, or the end of its client's former one."""
        self._is_working = True
        self._hold_for(work)

    def _hold_for(self, work: PiecewiseWork) -> None:
        self._work = work
        if not self._holds_input:
            self._holds_input = True
            self._throttle.hold_input()
        work.when_done(partial(self._worked_off, work))

    def _worked_off(self, work: PiecewiseWork) -> None:
        if work.has_failed and not self.closed:  # an answer would confirm what was not done
            self._unanswered.clear()
            self._throttle.give_up(BrokerError("a command could not be carried out to its end: see the broker's log"))
        self._work_on()
        if self._work is None:
            unanswered, self._unanswered = self._unanswered, []
            for callback in unanswered:
                callback()
            if not self._is_working:  # a callback may have begun further work, which keeps the hold
                self._holds_input = False
                self._throttle.release_input()  # behind the answers, as it may process input at once

    def _work_on(self) -> None:
        """Begin the work that has come meanwhile, if there is any."""
        self._work = None  # here, or the compiler takes it for None where the caller looks for further work
        self._is_working = False
        more, self._more_work = self._more_work, []
        for steps in more:
            attempt(partial(self.work_off, steps), "beginning further work")

    def _adding(self, transaction: BrokerTransaction, routed: Routed) -> Steps:
        """Add many or large copies of a message to a transaction, which must not commit without all of them."""
        try:
            for each in routed.in_steps():
                if not transaction.is_open:  # the connection has closed, and rolled it back
                    return
                if each is None:
                    yield PORTION_COST
                    continue
                target, copy = each
                yield from self._host.covering(target)
                if transaction.is_open:
                    transaction.add_send(target, copy)
                yield copy_cost(copy.size)
        except RequestError as error:
            transaction.doom(str(error))
            _log.info("%s: refused: %s", self.connection_id, error)

    @property
    def is_short_of_space(self) -> bool:
        """True when the answer to the messages sent since the last `when_accepted` has to wait for space."""
        return bool(self._full)

    def when_accepted(self, callback: Callable[[], None]) -> None:
        """Call back once there is space for the messages sent so far."""
        full, self._full = self._full, {}
        for usage, destination in full.items():  # nested callbacks: waits for one usage after the other, the last first
            callback = partial(self._wait_for_space, usage, destination, callback)
        callback()

    # ------------------------------------------------------------ consumers

    def subscribe(
        self, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None = None
    ) -> BrokerConsumer:
        """Add a consumer, which gets no deliveries before its `start`."""
        size = size_of_consumer(request)
        self._selector_quota.acquire(request.selector)
        try:
            self.objects.acquire(size, "consumer")
        except BaseException:
            self._selector_quota.release(request.selector)
            raise
        try:
            consumer = self._host.subscribe(self, request, deliver, browsed)
        except BaseException:
            self._selector_quota.release(request.selector)
            self.objects.release(size)
            if self.first is not None and self.first not in self.consumers:
                self.serve_all(self.first)
            raise
        self.consumers[consumer] = None
        return consumer

    def forget(self, consumer: BrokerConsumer) -> None:
        """Remove a closed consumer."""
        if consumer in self.consumers:
            del self.consumers[consumer]
            self._selector_quota.release(consumer.request.selector)
            self.objects.release(size_of_consumer(consumer.request))
            self.objects.add_matches(-consumer.match_count)
        self._host.forget(consumer)
        self.serve_all(consumer)

    def serve_first(self, consumer: BrokerConsumer) -> None:
        """Deliver to this consumer alone, and hold the answers to commands, until `serve_all` or its end."""
        if self.first is None:
            self.first = consumer
            for each in self.consumers:
                each.resize()

    def serve_all(self, consumer: BrokerConsumer) -> None:
        """Deliver to all consumers again, unless it is not this one that is served first."""
        if self.first is not consumer:
            return
        self.first = None
        answers, self._held_answers = self._held_answers, []
        for answer in answers:
            self.when_durable(answer)
        if not self.is_held:
            self._dispatch_to_all()

    def recall(self, consumer: BrokerConsumer) -> None:
        """Deliver the history of its topics to a consumer."""
        self._host.recall(consumer)

    def durable_subscriptions(self) -> Sequence[DurableSubscription]:
        """Return the durable subscriptions of this client id."""
        return self._host.subscriptions_of(self.client_id)

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription that is not active."""
        self._host.unsubscribe(client_id, subscription_name, self)

    # ------------------------------------------------------------ destinations

    def add_producer(self, producer_id: ProducerId, destination: Destination | None) -> None:
        """Add a producer, and create its destination if it does not exist."""
        if destination is not None and not self._is_ignored(destination):
            self.require(Right.WRITE, destination)
            for part in parts(destination):
                self._host.provide(part, self)
        self.remove_producer(producer_id)  # in case the client repeats the command
        self.objects.acquire(size_of_producer(destination), "producer")
        self.producers[producer_id] = destination
        if destination is not None:
            self._host.add_producer(self, producer_id, destination)

    def remove_producer(self, producer_id: ProducerId) -> None:
        """Remove a producer."""
        if producer_id not in self.producers:
            return
        destination = self.producers.pop(producer_id)
        self.objects.release(size_of_producer(destination))
        if destination is not None:
            self._host.remove_producer(self, producer_id, destination)

    def add_session(self) -> None:
        """Count a session of the protocol."""
        self.objects.acquire(SESSION_BYTES, "session")

    def remove_session(self) -> None:
        """Subtract a session that is closed."""
        self.objects.release(SESSION_BYTES)

    def create_temporary(self, kind: DestinationType) -> Destination:
        """Create a temporary destination that lives as long as this connection."""
        self._temporary_count += 1
        destination = Destination(kind, f"{self.connection_id}:{self._temporary_count}")
        self.add_destination(destination)
        return destination

    def add_destination(self, destination: Destination, *, is_adopted: bool = False) -> None:
        """Create a destination; a temporary one lives as long as this connection."""
        if destination.is_temporary and destination not in self.temporaries:
            self.require(Right.CREATE, destination)
            # Not a prefix: one connection's id may begin with that of another, and a colon.
            if self.rights is not None and not is_adopted and creator_of(destination) != self.connection_id:
                raise InvalidDestination(f"{destination} is no name for a temporary destination of this connection")
            size = size_of_destination(destination)
            self.objects.acquire(size, "temporary destination")
            try:
                self._host.own(destination, self)
            except BaseException:
                self.objects.release(size)
                raise
            self.temporaries[destination] = None
        for part in parts(destination):
            if self._host.provide(part, self) and not part.is_temporary:
                audit.created(self.user.name, self.peer, str(part))

    def remove_adopted(self, destination: Destination) -> None:
        """Delete an adopted temporary destination, unless its client has taken it back."""
        if self.temporaries.pop(destination, self) is None:
            self.objects.release(size_of_destination(destination))
            self._host.remove_temporary(destination, self)

    def remove_destination(self, destination: Destination) -> None:
        """Delete a destination that has no consumers."""
        self._host.remove_destination(destination, self)
        if destination in self.temporaries:
            del self.temporaries[destination]
            self.objects.release(size_of_destination(destination))

    # ------------------------------------------------------------ transactions

    def begin(self, transaction: TransactionId | None = None) -> TransactionId:
        """Begin a transaction; do nothing if it is open."""
        if transaction is None:
            self._transaction_count += 1
            transaction = LocalTransactionId(self.connection_id, self._transaction_count)
        if self._found(transaction) is None:
            if self.closed:
                raise TransactionError("the connection is closed")
            if len(self.transactions) >= TRANSACTIONS_MAX:
                raise TransactionError(
                    f"the connection has {TRANSACTIONS_MAX} open transactions already: commit or roll back some"
                )
            if len(self.transactions) >= _UNCHECKED_TRANSACTIONS and self._host.is_overrun:
                raise ResourceLimit(
                    f"Usage Manager Memory Limit reached: the connection has {len(self.transactions)} open transactions"
                )
            is_unusual = len(self.transactions) >= _USUAL_TRANSACTIONS
            if is_unusual:
                self.objects.acquire(TRANSACTION_BYTES, "transaction")
            try:
                self.transactions[transaction] = self._host.begin(transaction, self)
            except BaseException:
                if is_unusual:
                    self.objects.release(TRANSACTION_BYTES)
                raise
        return transaction

    def prepare(self, transaction: XATransactionId) -> bool:
        """Prepare an XA transaction, which from then on belongs to the broker instead of this connection."""
        preparing = self.transaction(transaction)
        EFFORT.is_large = True
        try:
            is_prepared = preparing.prepare()
        except CommitFailed:
            self._forget(preparing)
            raise
        if is_prepared:
            _detach_owner(preparing)
        else:
            self._forget(preparing)
        return is_prepared

    def commit(self, transaction: TransactionId, *, prepared: bool = False) -> None:
        """Commit a transaction."""
        ending = self.transaction(transaction)
        if prepared and not ending.prepared:
            raise TransactionError(f"{transaction} is not prepared")
        self._forget(ending)
        EFFORT.is_large = True
        ending.commit(self)

    def rollback(self, transaction: TransactionId) -> None:
        """Roll back a transaction."""
        ending = self.transaction(transaction)
        self._forget(ending)
        EFFORT.is_large = True
        ending.rollback(self)

    def doom(self, transaction: TransactionId, reason: str) -> None:
        """Make a transaction's commit fail."""
        self.transaction(transaction).doom(reason)

    def in_doubt(self) -> Sequence[XATransactionId]:
        """Return the prepared transactions."""
        return [branch for branch, transaction in self._host.in_doubt() if self._may_end(transaction)]

    def add_acknowledgements(
        self, consumer: BrokerConsumer, references: Sequence[Reference], transaction: TransactionId
    ) -> None:
        """Add acknowledgements to a transaction, before they are appended to the store."""
        self.transaction(transaction).add_acknowledgements(consumer, references)

    def drop_transaction(self, transaction: TransactionId) -> None:
        """Remove a transaction that has ended, or is prepared."""
        del self.transactions[transaction]
        if len(self.transactions) >= _USUAL_TRANSACTIONS:
            self.objects.release(TRANSACTION_BYTES)

    def transaction(self, transaction: TransactionId) -> BrokerTransaction:
        """Return an open transaction.

        Raises:
            UnknownTransaction: it is not open.
        """
        found = self._found(transaction)
        if found is None:
            raise UnknownTransaction(f"Transaction '{transaction}' has not been started.")
        return found

    def _found(self, transaction: TransactionId) -> BrokerTransaction | None:
        if isinstance(transaction, XATransactionId):
            branch = self._host.branch(transaction)
            return branch if branch is not None and self._may_end(branch) else None
        return self.transactions.get(transaction)

    def _may_end(self, branch: BrokerTransaction) -> bool:
        """Return True if an XA transaction is one of this user, or this user is an administrator of all queues.

        The store does not keep the user: after a failover each user may end the transactions in doubt.
        """
        return branch.user is None or branch.user == self.user.name or self.is_administrator

    @property
    def is_administrator(self) -> bool:
        """True if the user has the right `admin` to all queues, or there are no rules."""
        return self.allows(Right.REMOVE, _EVERY_QUEUE)

    def _forget(self, ending: BrokerTransaction) -> None:
        """Remove a transaction that has ended, from the connection that began it and from the broker."""
        _detach_owner(ending)
        self._host.ended(ending)

    # ------------------------------------------------------------ flow and end

    def written(self) -> None:
        """Record that all deliveries so far may have left the process."""
        self.flushed = self.delivery_count

    def pause(self) -> None:
        """Stop delivering."""
        self.is_held = True
        for consumer in self.consumers:
            consumer.resize()

    def resume(self) -> None:
        """Deliver again."""
        if self.is_held and not self.closed and not self._host.is_stopping:
            self.is_held = False
            self._dispatch_to_all()

    def _dispatch_to_all(self) -> None:
        """Deliver to all consumers, those first that the last such round has left out.

        Each gets capacity when its turn comes: before, the search for another one would offer it messages that are
        newer than those that it has not examined yet.
        """
        for consumer in self.consumers:
            consumer.begin_round()
        self._undispatched = OrderedDict.fromkeys([*self._undispatched, *self.consumers])
        if not self._is_dispatching:
            self._dispatch_piece()

    def will_continue(self, consumer: BrokerConsumer) -> bool:
        """Return True if a consumer's round is continued in a later turn."""
        return consumer in self._undispatched

    def continue_later(self, consumer: BrokerConsumer) -> bool:
        """Continue a consumer's round in a later turn; return False if there is none."""
        if not self._is_dispatching:
            self._set_dispatching(is_dispatching=self.paging.defer(self._dispatch_piece))
        if self._is_dispatching:
            self._undispatched[consumer] = None
        return self._is_dispatching

    def _dispatch_piece(self) -> None:
        """Deliver to some of the consumers, and to the others in later turns: each may take as long as a piece."""
        self._set_dispatching(is_dispatching=True)
        paging = self.paging
        ends_at = paging.monotonic() + PIECE_SECONDS
        while self._undispatched and not self.is_held:
            consumer, _ = self._undispatched.popitem(last=False)
            if not consumer.closed:
                consumer.resize()
                attempt(consumer.continue_round, "delivering in pieces")
            if paging.monotonic() >= ends_at and paging.defer(self._dispatch_piece):
                return
        self._set_dispatching(is_dispatching=False)

    def _set_dispatching(self, *, is_dispatching: bool) -> None:
        self.paging.open_rounds += is_dispatching - self._is_dispatching
        self._is_dispatching = is_dispatching

    def close(self, first: Steps = _NO_STEPS) -> None:
        """Roll back open transactions, return outstanding messages, and remove the connection from the broker.

        Work under way is carried out before, so that a client that comes back and repeats a message finds its copies.

        Args:
            first: steps of the command that closes it, which are carried out before; its answer waits for the end.
        """
        if self.closed or self._host.abandoned:
            return
        self.closed = self.is_held = True
        self._undispatched.clear()
        for consumer in self.consumers:
            consumer.resize()
        for usage in self._waited_on:
            usage.cancel(self)
        self._waited_on.clear()
        for deferred in self._deferred:
            deferred.close()
        self._deferred.clear()
        self._release()  # the socket may still be open, and only a read detects its end
        self._unthrottle()
        begun = _NO_STEPS if self._work is None else self._work.rest()
        work = self._host.disconnect(
            self,
            chain(contained(first, "closing a connection"), contained(begun, "closing a connection"), self._closing()),
        )
        if first is not _NO_STEPS and not work.is_done:
            self.wait_for(work)

    def _closing(self) -> Steps:
        """Roll back transactions, and close what it owns. An error in one does not affect the others."""
        for transaction in list(self.transactions):
            attempt(partial(self.rollback, transaction), "rolling back for a connection that closes")
            yield _STEP_COST
        for consumer in list(self.consumers):
            count = len(consumer.sources)
            yield from contained(consumer.closing(), "closing a consumer")
            yield _STEP_COST + count
        for producer_id in list(self.producers):
            attempt(partial(self.remove_producer, producer_id), "removing a producer")
            yield _STEP_COST
        for destination in list(self.temporaries):
            attempt(partial(self._host.remove_temporary, destination, self), "removing a temporary destination")
            yield _STEP_COST
        self.objects.close()

    def _unthrottle(self) -> None:
        if self._throttled:
            self._throttled = False
            self._throttle.resume_reading()


def _detach_owner(transaction: BrokerTransaction) -> None:
    """Remove a transaction from the connection that began it."""
    if transaction.owner is not None:
        transaction.owner.drop_transaction(transaction.id)
        transaction.owner = None
