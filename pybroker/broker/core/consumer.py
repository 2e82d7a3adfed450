"""A consumer: its window over one or more backlogs, and its outstanding deliveries.

At most `window` deliveries are outstanding. The window is the prefetch, and what the client was granted beyond it for
deliveries that it has processed and acknowledges later (OpenWire's DELIVERED ack). With a prefetch of 0 every delivery
is pulled. An acknowledgement in a transaction frees capacity in the window at once, but settles the delivery only at
the commit. After a roll-back the delivery is outstanding again, and is not sent again: a JMS client redelivers from its
own memory, and ActiveMQ does not send it to STOMP clients either.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, takewhile
from operator import attrgetter
from typing import Final, NoReturn, cast

from pybroker.broker.core.containment import contain
from pybroker.broker.core.delivery_index import DeliveryIndex
from pybroker.broker.core.matcher import request_matcher
from pybroker.broker.core.object_memory import ObjectAccount
from pybroker.broker.core.paging import PIECE_MAX, PIECE_SECONDS, Paging
from pybroker.broker.core.piecewise import PiecewiseWorker, Steps, copy_cost
from pybroker.broker.core.reference import Origin, Reference
from pybroker.broker.core.rights import Right, Rights, named, refusal
from pybroker.broker.domain import audit
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver, RemovalReason
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.broker.domain.states import ImpossibleEvent
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId

_CONSUMED: Final = RemovalReason.CONSUMED
_LOOKED_AT_MAX: Final = 64
"""Outstanding deliveries among which one is searched by its message id, before all are indexed by it."""
_delivery: Final = attrgetter("delivery")
_source: Final = attrgetter("source")
_sequence: Final = attrgetter("sequence")

_STEP_COUNT: Final = 16
"""The acknowledgements of one step of many."""

EXCLUDED_MAX: Final = 1000  # messages of one consumer

_RETURNED_COUNT: Final = 256
"""The outstanding messages that a consumer which closes gives back in one step."""


class Owner(PiecewiseWorker):
    """The connection that owns consumers and transactions, as they see it.

    Attributes:
        connection_id: its id.
        client_id: the id of its client, which owns durable subscriptions.
        user: who the client is.
        rights: what the user may do; None: everything.
        peer: the other end of the connection, for logs.
        delivery_count: number of messages delivered to its consumers, without those that are only counted.
        flushed: number of these messages that have left the process.
        is_held: True while nothing may be delivered: the client does not read, or is gone, or the broker is stopping.
        objects: the memory of what it has created.
        closed: True once it closes, which may take several turns of the event loop.
        first: the consumer that alone gets deliveries until it has got what other messages may refer to; None: all do.
        paging: has the event loop and the clock.
    """

    def __init__(
        self,
        connection_id: str,
        client_id: str,
        objects: ObjectAccount,
        paging: Paging,
        *,
        is_held: bool = False,
        user: User = ANONYMOUS,
        rights: Rights | None = None,
        peer: str = "",
    ) -> None:
        self.connection_id = connection_id
        self.client_id = client_id
        self.user = user
        self.rights = rights
        self.peer = peer
        self.paging = paging
        self.delivery_count = 0
        self.flushed = 0
        self.is_held = is_held
        self.objects = objects
        self.closed = False
        self.first: BrokerConsumer | None = None

    def require(self, right: Right, *destinations: Destination) -> None:
        """Check that the user has a right to all of these destinations, or patterns of them.

        Raises:
            AccessDenied: it has not.
        """
        if not self.allows(right, *destinations):
            self._deny(right, destinations)

    def _deny(self, right: Right, destinations: Sequence[Destination]) -> NoReturn:
        audit.denied(self.user.name, self.peer, right.value, named(destinations))
        raise refusal(self.user, right, destinations)

    def allows(self, right: Right, *destinations: Destination) -> bool:
        """Return True if the user has a right to all of these destinations, or patterns of them."""
        return self.rights is None or self.rights.allow(right, destinations)

    def require_durable(self, destination: Destination) -> None:
        """Check that the user may have a durable subscription, which covers no advisories.

        Raises:
            AccessDenied: the user may not.
        """
        self.require(Right.READ, destination)
        rights = self.rights if destination.is_pattern else None
        if rights is not None and not rights.may_read_some(destination, advisories=False):
            self._deny(Right.READ, (destination,))

    def require_literal(self, destination: Destination) -> None:
        """Check that the user may consume from one destination, even if its name has wildcards.

        Raises:
            AccessDenied: the user may not.
        """
        if not self.may_read(destination):
            self._deny(Right.READ, (destination,))

    def may_read(self, destination: Destination) -> bool:
        """Return True if the user may consume from a destination."""
        return self.rights is None or self.rights.may_read(destination)

    @abstractmethod
    def add_acknowledgements(
        self, consumer: "BrokerConsumer", references: Sequence[Reference], transaction: TransactionId
    ) -> None:
        """Add acknowledgements to a transaction, before they are appended to the store.

        Raises:
            TransactionError: the transaction accepts no operations; `UnknownTransaction`: it is not open.
        """

    @abstractmethod
    def forget(self, consumer: "BrokerConsumer") -> None:
        """Remove a closed consumer."""

    @abstractmethod
    def recall(self, consumer: "BrokerConsumer") -> None:
        """Deliver the history of its topics to a consumer."""

    @abstractmethod
    def serve_first(self, consumer: "BrokerConsumer") -> None:
        """Deliver to this consumer alone, and hold the answers to commands, until `serve_all` or its end.

        Does nothing if there is another such consumer.
        """

    @abstractmethod
    def serve_all(self, consumer: "BrokerConsumer") -> None:
        """Deliver to all consumers again; do nothing if it is not this one that is served first."""

    @abstractmethod
    def will_continue(self, consumer: "BrokerConsumer") -> bool:
        """Return True if a consumer's round is continued in a later turn."""

    @abstractmethod
    def continue_later(self, consumer: "BrokerConsumer") -> bool:
        """Continue a consumer's round in a later turn; return False if there is none."""

    @abstractmethod
    def doom(self, transaction: TransactionId, reason: str) -> None:
        """Make a transaction's commit fail."""

    @abstractmethod
    def drop_transaction(self, transaction: TransactionId) -> None:
        """Remove a transaction that has ended, or is prepared."""


class DeliverySource(Origin):
    """A backlog that delivers to consumers: a queue, a subscription, or the snapshot of a browser."""

    __slots__ = ()

    @abstractmethod
    def dispatch(self, consumer: "BrokerConsumer | None" = None) -> None:
        """Deliver waiting messages to one consumer that got capacity, or to all consumers with capacity."""

    @property
    def is_dispatching(self) -> bool:
        """True while messages that wait may be delivered in a later turn, without another event."""
        return False

    @property
    def may_exclude(self) -> bool:
        """True if a message that one consumer does not accept may wait for another one."""
        return False

    def exclude(self, consumer: "BrokerConsumer", *, was_selective: bool) -> None:
        """React to a consumer that has excluded a message; `was_selective` if it did not accept all before."""

    def rest(self, consumer: "BrokerConsumer") -> bool:
        """Return True if no message waits for a consumer of many backlogs; `wake` is then called before one does."""
        return False

    def hold(self, consumer: "BrokerConsumer") -> None:
        """Deliver to no consumer until `detach`: one that closes gives back its outstanding messages in pieces."""

    @abstractmethod
    def detach(self, consumer: "BrokerConsumer") -> None:
        """Remove a consumer, whose outstanding messages are back."""


class BrokerConsumer:
    """One consumer of one connection; implements `ConsumerPort`.

    Attributes:
        outstanding: deliveries that are not settled, in the order of delivery. An OrderedDict, because a dict skips
            over all entries that were deleted at its front when it looks for the first one.
        window: how many deliveries may be outstanding now; 0 while nothing may be delivered.
        sources: the backlogs that deliver to it; see `add_source`.
        is_selective: True if it may refuse some messages.
        match_count: number of queues that its wildcards match, for each of which its connection's account is charged.
        offered_count: the number of all deliveries.
        acknowledged_count: the number of those that were acknowledged, in a transaction too, and not rolled back.
    """

    __slots__ = (
        "_busy",
        "_excluded",
        "_granted",
        "_index",
        "_matches",
        "_pulled",
        "_round_left",
        "acknowledged_count",
        "closed",
        "connection",
        "deliver",
        "is_selective",
        "match_count",
        "offered_count",
        "outstanding",
        "prefetch",
        "request",
        "sources",
        "started",
        "window",
    )

    def __init__(self, connection: Owner, request: ConsumerRequest, deliver: Deliver, *, prefetch: int) -> None:
        self.connection = connection
        self.request = request
        self.deliver = deliver
        self.prefetch = prefetch
        self.outstanding: OrderedDict[Reference, None] = OrderedDict()
        self.window = 0
        self.sources: list[DeliverySource] = []
        self._busy: OrderedDict[DeliverySource, None] | None = None
        """The backlogs where messages may wait, that which was visited last at the end; None: there is only one."""
        self._round_left = 0
        """The backlogs that are left to visit."""
        self.started = False
        self.closed = False
        self.match_count = 0
        self.offered_count: int = 0
        self.acknowledged_count = 0
        self._granted: int = 0
        self._index: DeliveryIndex | None = None
        """The outstanding deliveries by message id, once an acknowledgement is not for one of the oldest; else None."""
        self._pulled: int = 0
        self._excluded: set[str] = set()
        """The ids of messages that its client cannot process."""
        self._matches = request_matcher(request)
        self.is_selective = self._matches is not None or request.no_local

    @property
    def outstanding_count(self) -> int:
        """The number of outstanding deliveries."""
        return len(self.outstanding)

    @property
    def has_capacity(self) -> bool:
        """True when another message may be delivered now."""
        return self.outstanding_count < self.window

    @property
    def capacity(self) -> int:
        """The number of messages that may be delivered now; below 1 if none may."""
        return self.window - self.outstanding_count

    @property
    def is_in_round(self) -> bool:
        """True while messages may wait in backlogs that it visits in a later turn."""
        return self.connection.will_continue(self)

    @property
    def is_searching(self) -> bool:
        """True while messages that wait may be delivered to it in a later turn, without another event."""
        return self.is_in_round or any([source.is_dispatching for source in self.sources])

    def accepts(self, message: Message, redelivery_count: int = 0) -> bool:
        """Return True if the message matches the selector, and neither `noLocal` nor its client excludes it."""
        if self.request.no_local and message.connection_id == self.connection.connection_id:
            return False
        if self._excluded and message.message_id in self._excluded:
            return False
        return self._matches is None or self._matches(message, redelivery_count)

    def offer(self, reference: Reference) -> None:
        """Deliver a reference; the caller has checked that there is space, and that the consumer accepts it."""
        self.outstanding[reference] = None
        self.offered_count += 1
        connection = self.connection
        connection.delivery_count = reference.delivery = connection.delivery_count + 1
        if self._pulled:
            self._pulled -= 1
        try:
            self.deliver(reference)
        except Exception as error:  # must not fail the dispatch of others; the message returns when the consumer closes
            contain(error, "delivering", reference.message)

    def add_source(self, source: DeliverySource) -> None:
        """Add a backlog that delivers to this consumer.

        Of many, only those are visited where messages may wait: a wildcard may have tens of thousands of queues.
        """
        sources = self.sources
        sources.append(source)
        if len(sources) == 2:
            self._busy = OrderedDict.fromkeys(sources)
        elif self._busy is not None and not source.rest(self):
            self._busy[source] = None

    def wake(self, source: DeliverySource) -> None:
        """Visit a backlog again where no message has waited."""
        if self._busy is not None:
            self._busy[source] = None

    def dispatch(self) -> None:
        """Have the backlogs deliver to this consumer, that first which it has not visited for longest."""
        self.begin_round()
        if self._busy is None or not self.connection.will_continue(self):
            self.continue_round()

    def begin_round(self) -> None:
        """Have `continue_round` visit all backlogs."""
        if self._busy is not None:
            self._round_left = len(self._busy)

    def continue_round(self) -> None:
        """Visit the backlogs that are left, or as many as there is time for now: each may search for a piece's time.

        A round ends where the window is full. What comes to a backlog that was visited before is offered while there
        is capacity, and a consumer that gets capacity begins a new round.
        """
        busy = self._busy
        if busy is None:
            for source in self.sources:
                if len(self.outstanding) < self.window:
                    source.dispatch(self)
            return
        monotonic = self.connection.paging.monotonic
        ends_at = monotonic() + PIECE_SECONDS
        while busy and self._round_left > 0 and len(self.outstanding) < self.window:
            self._round_left -= 1
            source = next(iter(busy))
            busy.move_to_end(source)
            source.dispatch(self)
            if not self.closed and source.rest(self):
                busy.pop(source, None)
            if self._round_left > 0 and monotonic() >= ends_at:
                EFFORT.is_large = True
                if self.connection.continue_later(self):
                    return

    def reinstate(self, references: list[Reference]) -> None:
        """Make deliveries outstanding again, in their order, after their acknowledgements were rolled back."""
        self.acknowledged_count -= len(references)
        outstanding, ordered = self.outstanding, sorted(references, key=_delivery)
        if ordered:
            first, last = ordered[0].delivery, ordered[-1].delivery
            older: list[Reference] = []
            newer: list[Reference] = []
            is_near_end = False
            for oldest, newest in zip(outstanding, reversed(outstanding), strict=True):  # usually they are the oldest
                is_near_end = newest.delivery < first
                if is_near_end or oldest.delivery > last:
                    break
                older.append(oldest)
                newer.append(newest)
            if is_near_end:
                for reference in sorted([*ordered, *newer], key=_delivery):
                    outstanding[reference] = None
                    outstanding.move_to_end(reference)
            else:
                for reference in sorted([*ordered, *older], key=_delivery, reverse=True):
                    outstanding[reference] = None
                    outstanding.move_to_end(reference, last=False)
            EFFORT.is_large |= len(older) > _LOOKED_AT_MAX
        self._index_again(ordered)
        self.resize()

    def resize(self) -> None:
        """Recompute the window."""
        connection = self.connection
        if not self.started or connection.is_held or (connection.first is not None and connection.first is not self):
            self.window = 0
        elif self.prefetch:
            self.window = self.prefetch + self._granted
        else:
            self.window = self.outstanding_count + self._pulled

    def split(self, references: Iterable[Reference]) -> tuple[list[Reference], list[Reference]]:
        """Return the deliveries that the client may have seen, and the others.

        The client cannot have seen what was delivered after the connection's last flush: it has not left the process.
        """
        flushed = self.connection.flushed
        seen: list[Reference] = []
        unseen: list[Reference] = []
        for reference in references:
            (seen if reference.delivery <= flushed else unseen).append(reference)
        return seen, unseen

    # ------------------------------------------------------------ port

    def start(self) -> None:
        """Start deliveries."""
        self.started = True
        self.resize()
        self.dispatch()

    def outstanding_through(self, first_id: str | None, last_id: str) -> Sequence[Reference]:
        """Return the outstanding deliveries from one message id to another, in the order of delivery."""
        if first_id == last_id:
            for looked_at, reference in enumerate(self.outstanding):
                if looked_at == _LOOKED_AT_MAX:
                    return self._indexed(last_id)
                if reference.message.message_id == last_id:
                    return (reference,)
            return ()
        found: list[Reference] = []
        for reference in self.outstanding:
            message_id = reference.message.message_id
            if message_id == first_id:
                found.clear()
            found.append(reference)
            if message_id == last_id:
                return found if first_id is None or found[0].message.message_id == first_id else ()
        EFFORT.is_large |= len(found) > _LOOKED_AT_MAX
        return ()

    def acknowledge(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle one delivery; do nothing if it is not outstanding."""
        if reference := self._held(delivery):
            self.acknowledge_all((reference,), transaction)

    def acknowledge_through(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones that are outstanding."""
        if reference := self._held(delivery):
            earlier = takewhile(lambda held: held is not reference, self.outstanding)
            self.acknowledge_all([*earlier, reference], transaction)

    def acknowledge_oldest(self, count: int, transaction: TransactionId | None = None) -> int:
        """Settle so many deliveries, or all if fewer are outstanding; return how many."""
        oldest = list(islice(self.outstanding, max(count, 0)))
        if oldest:
            self.acknowledge_all(oldest, transaction)
        return len(oldest)

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle deliveries that are outstanding, in pieces if they are many."""
        references = cast("Sequence[Reference]", deliveries)  # the only kind that the core delivers
        if len(references) > PIECE_MAX:
            self.connection.work_off(self._acknowledging(references, transaction))
            return
        if transaction is not None:
            self.connection.add_acknowledgements(self, references, transaction)
        outstanding, connection_id = self.outstanding, self.connection.connection_id
        if self._index is not None:
            for reference in references:
                self._unindex(reference)
        for reference in references:
            del outstanding[reference]
            source = reference.source
            source.forget(reference, transaction, _CONSUMED, connection_id)
            if transaction is None:
                source.settle(reference)
        self.acknowledged_count += len(references)
        self._settled(len(references))

    def _acknowledging(self, references: Sequence[Reference], transaction: TransactionId | None) -> Steps:
        """Acknowledge many deliveries; those that are left when the consumer closes go back to the backlog."""
        for start in range(0, len(references), _STEP_COUNT):
            if self.closed or self.connection.closed:
                return
            outstanding = self.outstanding
            step = [each for each in references[start : start + _STEP_COUNT] if each in outstanding]
            try:
                self.acknowledge_all(step, transaction)
            except RequestError as error:
                if transaction is None or not start:
                    raise
                self.connection.doom(transaction, str(error))  # it must not commit without the others
                return
            yield _STEP_COUNT

    def acknowledge_each(self, message_ids: Sequence[str]) -> Sequence[str]:
        """Settle deliveries by message id, one by one; return the ids that are not outstanding."""
        oldest: list[Reference] = []
        for reference, message_id in zip(self.outstanding, message_ids, strict=False):
            if reference.message.message_id != message_id:
                break
            oldest.append(reference)
        if oldest:
            self.acknowledge_all(oldest)
        strange: list[str] = []
        for message_id in message_ids[len(oldest) :]:  # a client that does not settle in the order of delivery
            if references := self.outstanding_through(message_id, message_id):
                self.acknowledge_all(references)
            else:
                strange.append(message_id)
        return strange

    def grant(self, count: int) -> None:
        """Widen the window until the next acknowledgements, by at most the number of outstanding deliveries."""
        if self.prefetch:
            self._granted = min(self._granted + max(count, 0), self.outstanding_count)
            self.resize()
            self.dispatch()

    def unsettled(self) -> Iterable[Reference]:
        """Return the outstanding deliveries, in the order of delivery."""
        return self.outstanding

    def tracked_bytes(self, references: Sequence[Reference]) -> int:
        """Return the memory that the transport keeps of deliveries that are acknowledged in a transaction."""
        return 0

    def delivered(self) -> Iterator[Reference]:
        """Iterate over the outstanding deliveries that have left the process; see `delivered`."""
        for reference in list(self.outstanding):
            if reference.delivery <= self.connection.flushed and reference in self.outstanding:
                yield reference

    def pull(self, count: int = 1) -> None:
        """Allow `count` more deliveries to a consumer whose prefetch is 0."""
        self._pulled = count
        self.resize()
        self.dispatch()

    def recall(self) -> None:
        """Deliver the history of its topics, as to a new retroactive consumer."""
        self.connection.recall(self)

    def set_prefetch(self, prefetch: int) -> None:
        """Change the prefetch."""
        self.prefetch = prefetch
        self.resize()
        self.dispatch()

    def reject(self, delivery: Delivery, cause: str) -> None:
        """Dead-letter one delivery."""
        if reference := self._held(delivery):
            reference.source.reject(reference, cause)  # if it fails, the delivery returns when the consumer closes
            del self.outstanding[reference]
            self._unindex(reference)
            self._settled(1)

    def reject_all(self, deliveries: Sequence[Delivery], cause: str) -> None:
        """Dead-letter deliveries, in pieces if they are many."""
        self._settle_each(deliveries, partial(self.reject, cause=cause))

    def release(self, deliveries: Sequence[Delivery], *, has_failed: bool = False, is_excluded: bool = False) -> None:
        """Return deliveries to their backlogs, in pieces if they are many."""
        if is_excluded:
            deliveries = [each for each in deliveries if self._exclude(each)]
        steps = self._releasing(deliveries, has_failed=has_failed)
        if len(deliveries) <= _RETURNED_COUNT:
            for _ in steps:
                pass
        else:
            self.connection.work_off(steps)

    def _exclude(self, delivery: Delivery) -> bool:
        """Have this consumer not get a message again; reject it and return False if that is not possible."""
        if not all([source.may_exclude for source in self.sources]) or len(self._excluded) >= EXCLUDED_MAX:
            self.reject(delivery, "its consumer cannot process it, and there is no other one for it")
            return False
        self._excluded.add(delivery.message.message_id)
        was_selective, self.is_selective = self.is_selective, True
        for each in self.sources:
            each.exclude(self, was_selective=was_selective)
        return True

    def _releasing(self, deliveries: Sequence[Delivery], *, has_failed: bool) -> Steps:
        for start in range(0, len(deliveries), _RETURNED_COUNT):
            if self.closed or self.connection.closed:
                return
            step = deliveries[start : start + _RETURNED_COUNT]
            references = sorted([held for each in step if (held := self._held(each)) is not None], key=_sequence)
            for reference in references:
                del self.outstanding[reference]
                self._unindex(reference)
                reference.strikes += has_failed
            self.resize()  # before the backlogs deliver again
            _restore(references if has_failed else [], [] if has_failed else references)
            self._settled(len(references))
            yield len(step)

    def expire_all(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that the client found expired, in pieces if they are many."""
        self._settle_each(deliveries, self.expire)

    def _settle_each(self, deliveries: Sequence[Delivery], operation: Callable[[Delivery], None]) -> None:
        """Settle deliveries one by one, in pieces if they are many."""
        if len(deliveries) <= _STEP_COUNT:
            for delivery in deliveries:
                operation(delivery)
        else:
            self.connection.work_off(self._one_by_one(deliveries, operation))

    def _one_by_one(self, deliveries: Sequence[Delivery], operation: Callable[[Delivery], None]) -> Steps:
        """Settle deliveries; those that are left when the consumer closes go back to the backlog."""
        for delivery in deliveries:
            if self.closed or self.connection.closed:
                return
            operation(delivery)
            yield copy_cost(delivery.message.size)

    def expire(self, delivery: Delivery) -> None:
        """Settle a delivery that the client found expired."""
        if reference := self._held(delivery):
            reference.source.expire(reference)  # if it fails, the delivery returns when the consumer closes
            del self.outstanding[reference]
            self._unindex(reference)
            self._settled(1)

    def close(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> None:
        """Close the consumer, in pieces if many messages are outstanding."""
        self.connection.work_off(self.closing(last_delivered, delivered_none=delivered_none))

    def closing(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> Steps:
        """Close the consumer; outstanding messages go back, as redelivered if the client may have seen them."""
        if self.closed:
            return
        self.closed = True
        self.started = False
        self.window = 0
        if delivered_none:
            seen_to = 0
        elif (last := None if last_delivered is None else self._held(last_delivered)) is not None:
            seen_to = last.delivery
        else:
            seen_to = self.connection.flushed
        try:
            yield from self._giving_back(seen_to)
        except Exception:
            self._leave()
            raise
        self._leave()

    # ------------------------------------------------------------ private

    def _giving_back(self, seen_to: int) -> Steps:
        """Return the outstanding messages to their backlogs, which deliver nothing before the last one is back.

        Args:
            seen_to: the number of the last delivery that the client may have seen.
        """
        oldest: dict[Origin, Reference | None] = {}
        references = list(self.outstanding)
        for start in range(0, len(references), _RETURNED_COUNT):
            step = references[start : start + _RETURNED_COUNT]
            for reference in step:
                source = cast("DeliverySource", reference.source)  # the only kind of origin that delivers
                if source not in oldest:
                    oldest[source] = None
                    source.hold(self)
                first = oldest[source]
                if reference.delivery <= seen_to and (first is None or reference.sequence < first.sequence):
                    oldest[source] = reference
            if len(step) == _RETURNED_COUNT:
                yield _RETURNED_COUNT
        del references
        for first in oldest.values():
            if first is not None:
                first.strikes += 1
        self._index = None
        outstanding = self.outstanding
        while outstanding:  # the newest first: where the oldest message waits, all are inserted before it
            step = [outstanding.popitem()[0] for _ in range(min(_RETURNED_COUNT, len(outstanding)))]
            step.reverse()
            seen = [each for each in step if each.delivery <= seen_to]
            _restore(seen, [each for each in step if each.delivery > seen_to])
            yield len(step)

    def _leave(self) -> None:
        """Leave the backlogs and the connection."""
        for source in self.sources:
            source.detach(self)
        self.connection.forget(self)
        self._release_references()

    def _release_references(self) -> None:
        """Break the reference cycles, so that the memory of a closed consumer is freed without a garbage collection."""
        self.sources.clear()
        self._busy = None
        self.deliver = _deliver_to_closed

    def _held(self, delivery: Delivery) -> Reference | None:
        """Return a delivery as the reference that it is, None if it is not outstanding."""
        return delivery if isinstance(delivery, Reference) and delivery in self.outstanding else None

    def _indexed(self, message_id: str) -> Sequence[Reference]:
        """Return the oldest outstanding delivery of a message by the index, to which those made since are added."""
        if self._index is None:
            self._index = DeliveryIndex()
        index, added = self._index, list[Reference]()
        for reference in reversed(self.outstanding):
            if reference.delivery <= index.added_to:
                break
            added.append(reference)
        for reference in reversed(added):
            index.add(reference)
        index.added_to = self.connection.delivery_count
        found = index.find(message_id)
        return () if found is None else (found,)

    def _index_again(self, references: Sequence[Reference]) -> None:
        """Add deliveries that are outstanding again to the index, if there is one and it contained them."""
        if self._index is not None:
            for reference in references:
                if reference.delivery <= self._index.added_to:
                    self._index.add(reference)

    def _unindex(self, reference: Reference) -> None:
        """Remove a delivery that is settled from the index, if there is one and it contains the delivery."""
        index = self._index
        if index is not None and reference.delivery <= index.added_to:
            index.remove(reference)
            if not len(index):
                self._index = None

    def _settled(self, count: int) -> None:
        """Take back what was granted for settled deliveries, and use their capacity in the window."""
        if self._granted:
            self._granted = max(0, self._granted - count)
            self.resize()
        elif not self.prefetch:
            self.resize()
        self.dispatch()


def _deliver_to_closed(delivery: Delivery, /) -> None:
    raise ImpossibleEvent(f"{delivery.message.message_id} is delivered to a closed consumer")


def reinstate(held: Mapping[BrokerConsumer | None, list[Reference]]) -> None:
    """Undo acknowledgements: deliveries are outstanding again, and those of closed consumers go back to the backlogs.

    Each backlog gets all of its messages in one call, so that it restores their order before it delivers any of them.

    Args:
        held: acknowledged deliveries by consumer; None: the consumers of an earlier process, which have seen them.
    """
    seen: list[Reference] = []
    unseen: list[Reference] = []
    for consumer, references in held.items():
        if consumer is None:
            seen += references
        elif consumer.closed:
            for part, whole in zip(consumer.split(references), (seen, unseen), strict=True):
                whole += part
        else:
            consumer.reinstate(references)
    _restore(seen, unseen, strikes=True)


def _restore(seen: list[Reference], unseen: list[Reference], *, strikes: bool = False) -> None:
    """Return references to their backlogs, to each of them in one call so that it restores their order.

    Args:
        seen: those that a client may have seen.
        unseen: the others.
        strikes: the oldest of each backlog that may have been seen gets a strike.
    """
    by_origin: dict[Origin, tuple[list[Reference], list[Reference]]] = {}
    for index, references in enumerate((seen, unseen)):
        for origin, together in groupby(references, key=_source):
            by_origin.setdefault(origin, ([], []))[index].extend(together)
    for origin, parts in by_origin.items():
        if strikes and parts[0]:
            min(parts[0], key=_sequence).strikes += 1
        origin.restore(*parts)
