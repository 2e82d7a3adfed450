"""A queue: delivers each message to one consumer, first in first out, or by priority.

The `consumer_set` chooses the consumer. A message that comes back from a consumer is inserted at its old position.
ActiveMQ keeps persistent and non-persistent messages in two cursors, and a selector sees only the first 200 messages.
This queue has one order, and a selector sees every message.

Between events, no message waits that a consumer with capacity accepts. So a new message is offered to the consumers
once, and a consumer that gets capacity searches the waiting messages once. While every consumer accepts every message
(`accepts_any`), only the oldest message has to be examined. Otherwise a consumer's search starts where its last one
ended, so that each consumer looks at each message once, however many wait.

A search and a dispatch examine a limited number of messages in each turn of the event loop, or one page if a part of
the queue is paged out (see `paging`). Until the search ends, new messages wait too: they must not overtake a message
that the search may still find. The states of a search are defined in `search`.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from pybroker.broker.core.bridge_filter import QueueBridgeFilters
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.consumer_set import PREPARED_FACTOR, Answers, ConsumerSet
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.delivered import Bodiless, without_body
from pybroker.broker.core.dispatch_start import dispatch_start
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.groups import first_of_group, without_flag
from pybroker.broker.core.message_sizes import MessageSizes
from pybroker.broker.core.network_consumer import NetworkConsumer
from pybroker.broker.core.paged_out_index import IN_STORE, MessageRef
from pybroker.broker.core.paging import CLOCK_MASK, PAGE_BYTES_MAX, PAGE_MAX, PIECE_MAX, PIECE_SECONDS, severity
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.core.search import TRANSITIONS, Search, SearchEvent
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.admin import Counters, DeadLetterCause
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore, RemovalReason
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_sequence: Final = attrgetter("sequence")
_DISPATCHED: Final = ReferenceState.DISPATCHED
_SETTLED: Final = ReferenceState.SETTLED

# Queues set these states themselves, without a look-up in the table for each message; a test compares them with it.
_IDLE: Final = Search.IDLE
_IN_TURNS: Final = Search.IN_TURNS
_SEARCHING: Final = Search.SEARCHING
_ASKED_AGAIN: Final = Search.ASKED_AGAIN
_PAUSED: Final = Search.PAUSED
_UNFINISHED: Final = Search.UNFINISHED

_LOOKED_AT_MAX: Final = 64
"""Outstanding deliveries of each consumer among which the oldest of this queue is looked for."""

_MANY_CONSUMERS: Final = 64
"""From this number on, the time to gather the consumers of a search is measured: tens of microseconds."""


class Queue(StoredSource):
    """One queue: the backlog of all its consumers. A temporary queue stores nothing, and ends with its connection.

    Attributes:
        sizes: the sizes of the messages that were sent to it.
    """

    __slots__ = (
        "_answers",
        "_bridge_filters",
        "_is_temporary",
        "_piece_began_at",
        "_piece_ends_at",
        "_piece_left",
        "_resting",
        "_start",
        "consumer_set",
        "destination",
        "gate",
        "sizes",
        "usage",
    )

    def __init__(
        self,
        destination: Destination,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: DestinationPolicy,
        usage: Usage,
    ) -> None:
        super().__init__(store=store, dead_letters=dead_letters, clock=clock, policy=policy)
        self.destination = destination
        self.consumer_set = ConsumerSet(policy)
        self.usage = usage
        self.sizes = MessageSizes()
        self.paging = usage.paging
        self._start = dispatch_start(policy, self.consumer_set, usage.paging, self.dispatch)
        self.gate = Gate(self.enqueue, store, usage)
        self.paging.backlogs.add(self)
        self._recompute_watermark()
        self._is_temporary = destination.is_temporary
        self._bridge_filters: QueueBridgeFilters | None = None
        """The filters of bridges that consume it; None: there are none."""
        self._answers: Answers | None = None
        """The results of the selectors of several consumers for the message that was evaluated last."""
        self._piece_left = 0
        """The number of messages that the present search may still examine in this turn of the event loop."""
        self._piece_began_at = 0.0
        """The time at which the present search began, if it has many consumers; else 0."""
        self._piece_ends_at = 0.0
        """The time at which it continues in a later turn; 0: the clock was not read yet."""
        self._resting: set[BrokerConsumer] | None = None
        """The consumers of many queues that do not visit this one before a message waits; None: there are none."""

    @property
    def consumers(self) -> Collection[BrokerConsumer]:
        """The consumers of the queue, without browsers."""
        return self.consumer_set.all

    @property
    def is_in_use(self) -> bool:
        """True when the queue has a consumer."""
        return bool(self.consumer_set.all)

    @property
    def is_kept_now(self) -> bool:
        """True: a queue keeps its messages even without consumers."""
        return True

    def first(self) -> Message | None:
        """Return the oldest message, waiting in memory or among the oldest in flight; None if there is none."""
        oldest = [
            reference
            for consumer in self.consumer_set.all
            for reference in islice(consumer.outstanding, _LOOKED_AT_MAX)
            if reference.source is self
        ]
        if (waiting := next(self.pending.in_memory(), None)) is not None:
            oldest.append(waiting)
        return min(oldest, key=_sequence).message if oldest else None

    def counters(self) -> Counters:
        """Return the counts of messages."""
        return self.sizes.added_to(super().counters())

    def stores(self, message: Message) -> bool:
        """Return True if a message must survive a crash."""
        return message.persistent and not self._is_temporary

    def send(self, message: Message) -> bool:
        """Store a message if it is persistent, and enqueue it; False if the store has one of the same id."""
        if not (message.persistent and not self._is_temporary) or self._store.add(message):
            self.gate.admit(message)
            return True
        _log.info("%s is on %s already", message.message_id, self.destination)
        return False

    def enqueue(self, message: Message, redelivery_count: int = 0) -> None:
        """Deliver a message to a consumer with capacity that accepts it, or append it to the queue."""
        if self._dead_letters.redelivery is not None:
            redelivery_count = self._deliveries_before(message, redelivery_count)
        reference = Reference(message, self, self._next_sequence, redelivery_count)
        self._next_sequence += 1
        self.sizes.add(message.payload_size)
        self.usage.acquire(message.size)
        if message.expiration:
            if self.is_expired(message):
                self.expire(reference)
                return
            self._record_expiry(message)
        consumer_set = self.consumer_set
        if message.group_id is not None:
            consumer_set.ensure_groups()
        # Every consumer with capacity has already refused the other waiting messages, so only this one is offered.
        if not consumer_set.accepts_any:
            EFFORT.is_large = True
            if self._progress is _UNFINISHED and not self.pending.count:
                self._progress = _IDLE  # what the search had not examined is gone
            # It must not overtake a message that a search or a dispatch in pieces may still find.
            if self._progress is not _IDLE and self.pending.count:
                consumer = None
            elif len(consumer_set.eligible) < 2 or self.paging.later is None:
                consumer = consumer_set.choose(reference)
            else:
                answers = self._answers_to(reference, self.paging.monotonic() + PIECE_SECONDS)
                consumer = consumer_set.choose(reference, answers)
                if consumer is None and answers.is_over:
                    self._append(reference)
                    self._search_later()
                    return
            if consumer is not None and self.paging.open_rounds and self.pending.count and consumer.is_in_round:
                self._append(reference)  # behind older messages that the consumer has not examined yet
                self._search_later()
                return
        else:
            consumer = None if self.pending.count else consumer_set.first_with_capacity()
        if consumer is None:
            self._append(reference)
            return
        reference.state = _DISPATCHED
        self._deliver(reference, consumer)
        if message.group_id is not None and self._search_reopened_groups():
            self.dispatch()

    def attach(self, consumer: BrokerConsumer) -> None:
        """Add a consumer."""
        if isinstance(consumer, NetworkConsumer):
            self._add_filter(consumer)
        if self._bridge_filters is not None:
            self._answers = None  # that of a bridge may have changed
        self.consumer_set.add(consumer)
        if self._start is not None:
            self._start.consumer_added()
        consumer.add_source(self)

    @property
    def may_exclude(self) -> bool:
        """True: another consumer may come."""
        return True

    def exclude(self, consumer: BrokerConsumer, *, was_selective: bool) -> None:
        """React to a consumer that has excluded a message."""
        self._answers = None  # one of them may have changed
        if not was_selective:
            self.consumer_set.becomes_selective()

    def hold(self, consumer: BrokerConsumer) -> None:
        """Deliver to no consumer until one that closes is detached, as its outstanding messages come back in pieces."""
        self.consumer_set.hold(consumer)

    def detach(self, consumer: BrokerConsumer) -> None:
        """Remove a consumer, whose outstanding messages are back."""
        frees = self.consumer_set.remove(consumer)
        if self._start is not None:
            self._start.consumer_removed()
        self.pending.forget_consumer(consumer)
        if self._resting is not None:
            self._resting.discard(consumer)
            if not self._resting:
                self._end_rest()
        if self._bridge_filters is not None and self._bridge_filters.remove(consumer):
            self._examine_again()
        elif frees:
            self.dispatch()

    def in_flight(self) -> list[Reference]:
        """Return the outstanding messages of all consumers, oldest first."""
        held = (ref for consumer in self.consumer_set.all for ref in consumer.outstanding if ref.source is self)
        return sorted([*held, *self._unread], key=lambda reference: reference.sequence)

    @property
    def holders(self) -> Iterable[BrokerConsumer]:
        """The consumers that may have outstanding messages."""
        return self.consumer_set.all

    def outstanding_between(self, after: int, before: int) -> list[Reference]:
        """Return the outstanding messages behind a sequence number and before another, in any order."""
        return [
            reference
            for consumer in self.consumer_set.all
            for reference in consumer.outstanding
            if after < reference.sequence < before and reference.source is self
        ]

    def pause(self, *, is_paused: bool) -> None:
        """Deliver nothing to consumers from now on, or again."""
        self.consumer_set.pause(is_paused=is_paused)
        if not is_paused:
            self.dispatch()

    def take(self, references: Sequence[Reference]) -> None:
        """Remove waiting messages from the backlog: no consumer gets them before they are released, or restored."""
        for reference in references:
            self.pending.remove(reference, _DISPATCHED)
        self.pending.compact()

    def discard(self, waiting: Sequence[Reference | MessageRef]) -> int:
        """Remove waiting messages, which need not be in memory, as an operator has said; return how many there were.

        Each of them was found in this turn of the event loop.
        """
        removed: list[Reference | MessageRef] = []
        for each in waiting:
            if isinstance(each, Reference):
                self.pending.remove(each, _DISPATCHED)
                removed.append(each)
            elif self.pending.discard(each.sequence):
                self.dequeued += 1
                removed.append(each)
        self.pending.compact()
        for each in removed:  # in their order: after a crash the oldest ones are gone
            if isinstance(each, Reference):
                self.forget(each, None, RemovalReason.CONSUMED)
            elif each.place == IN_STORE:
                self._store.remove(self.destination, each.message_id)
        for each in removed:
            if isinstance(each, Reference):
                self.release(each)
        return len(removed)

    def close(self) -> None:
        """Drop all messages and release their memory: the queue is deleted."""
        waiting, _ = self._close()
        if self._start is not None:
            self._start.close()
        if self._bridge_filters is not None:
            self._bridge_filters.close()
        self._answers = None
        self._end_rest()
        self.usage.close()
        self._free(waiting)

    # ------------------------------------------------------------ source

    def dispatch(self, consumer: BrokerConsumer | None = None) -> None:
        """Deliver waiting messages to one consumer that got capacity, or to all consumers with capacity."""
        consumer_set = self.consumer_set
        if consumer_set.parked and consumer is not None:
            consumer_set.unpark(consumer)
        if not self.pending.count:
            return
        if consumer is not None and not consumer_set.is_shared and consumer_set.exclusive is not consumer:
            return
        takes_any = consumer_set.accepts_any
        progress = before = self._progress
        if before is not _IDLE:
            if before is (_IN_TURNS if takes_any else _PAUSED):
                return  # continues in the event loop's next turn
            event = SearchEvent.ASK_FOR_ANY if takes_any else SearchEvent.ASK
            progress = self._progress = TRANSITIONS.after(before, event)
        elif not takes_any:
            progress = self._progress = _SEARCHING
        try:
            if progress is _IDLE:
                try:
                    self._deliver_oldest(consumer if before is _IDLE else None)
                except BaseException:
                    self._progress = _UNFINISHED
                    raise
            elif progress is _SEARCHING:
                is_alone = before is _IDLE and not self.paging.open_rounds  # no other one has older messages to examine
                is_for_one = consumer is not None and is_alone and not self._search_reopened_groups()
                self._search([consumer] if consumer is not None and is_for_one else consumer_set.eligible)
        except StoreUnavailable as error:
            _log.log(severity(error), "%s is not served further now: %s", self.destination, error)

    def rest(self, consumer: BrokerConsumer) -> bool:
        """Return True if no message waits for a consumer of many backlogs; `wake` is then called before one does."""
        if self.pending.count or consumer in self.consumer_set.parked:
            return False
        if self._resting is None:
            self._resting = set()
            self.consumer_set.on_parked = self._wake_parked
        self._resting.add(consumer)
        return True

    def forget(
        self, reference: Reference, transaction: TransactionId | None, reason: RemovalReason, connection_id: str = ""
    ) -> None:
        """Append the removal of a message to the store."""
        if reference.message.persistent and not self._is_temporary:
            message_id = reference.message.message_id
            self._store.remove(self.destination, message_id, transaction, reason, connection_id)

    def release(self, reference: Reference) -> None:
        """Mark a reference as settled, and release its memory."""
        reference.state = _SETTLED
        self.dequeued += 1
        self.usage.release(reference.message.size)

    def read(self, refs: Sequence[MessageRef]) -> tuple[list[Reference], int]:
        """Read messages from the store; see `Pager`."""
        found, count = super().read(refs)
        if any(reference.message.group_id is not None for reference in found):
            self.consumer_set.ensure_groups()
        return found, count

    def count_in(self, references: Sequence[Reference]) -> None:
        """Add messages that have been read back to the memory usage."""
        super().count_in(references)
        self.usage.acquire(sum([reference.message.size for reference in references]))

    def count_out(self, references: Sequence[Reference]) -> None:
        """Subtract paged-out messages from the memory usage; this may call back producers that wait for memory."""
        self.usage.release(sum([reference.message.size for reference in references]))

    def drop_body(self, reference: Reference, bodiless: Bodiless) -> None:
        """Remove the body of a delivered message from memory if it can be read back."""
        if self._has_on_disk(reference) and (made := without_body(reference.message)) is not None:
            self._replace(reference, made)

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Insert references at their old positions; those that a client may have seen count as redelivered."""
        self._wake()
        if self.consumer_set.groups is not None:
            for reference in (*seen, *unseen):
                reference.message = without_flag(reference.message)
        super().restore(seen, unseen)

    def reject(self, reference: Reference, cause: str, kind: DeadLetterCause = DeadLetterCause.REJECTED) -> None:
        """Dead-letter a reference."""
        reference.message = without_flag(reference.message)
        super().reject(reference, cause, kind)

    def expire(self, reference: Reference) -> None:
        """Remove an expired message."""
        reference.message = without_flag(reference.message)
        super().expire(reference)

    # ------------------------------------------------------------ private

    def _usage(self) -> Usage:
        return self.usage

    def _is_stored(self, reference: Reference) -> bool:
        return self.stores(reference.message)

    def _append(self, reference: Reference) -> None:
        """Append a message that waits."""
        self._wake()
        self.waits.begin(reference.sequence, is_first=not self.pending.count)
        self.pending.append(reference)
        reference.message.decoded = None  # saves memory: the fields are decoded again when they are needed
        usage = self.usage
        if usage.used > self._page_out_at or usage.broker.used > usage.broker.watermark:
            self._reduce_memory(usage)

    def _wake(self) -> None:
        """Have the consumers that rest visit this queue again, before a message waits."""
        if self._resting is not None:
            for consumer in self._resting:
                consumer.wake(self)
            self._end_rest()

    def _wake_parked(self, parked: Sequence[BrokerConsumer]) -> None:
        """Have consumers that were parked visit this queue again: only that returns them to the order."""
        if self._resting is not None:
            for consumer in self._resting.intersection(parked):
                self._resting.discard(consumer)
                consumer.wake(self)

    def _end_rest(self) -> None:
        self._resting = self.consumer_set.on_parked = None  # which would keep a deleted queue in memory

    def _answers_to(self, reference: Reference, ends_at: float) -> Answers:
        """Return the answers to a message; the consumers are asked until a time."""
        answers = self._answers
        if answers is None:
            answers = self._answers = Answers(self.paging.monotonic)
        answers.begin(reference, ends_at)
        return answers

    def _search_later(self) -> None:
        """Search in a later turn for the message that was appended, as some consumers have not answered."""
        if self._progress is _IDLE:
            self._progress = _UNFINISHED
            self._defer_dispatch()
        else:
            self.dispatch()

    def is_returning(self, message: Message) -> bool:
        """Return True while this queue's copy of a message is on its way back over a bridge."""
        return self._bridge_filters is not None and self._bridge_filters.is_returning(message)

    def _add_filter(self, consumer: NetworkConsumer) -> None:
        """Filter what a bridge gets, if the policy says so, or else the bridge itself."""
        terms, network = self.policy.network_bridge_filter_factory, consumer.request.network
        if terms is None and network is not None:
            terms = network.bridge_filter
        if terms is not None and terms.has_effect:
            filters = self._bridge_filters
            if filters is None:
                filters = QueueBridgeFilters(self.consumer_set, self.paging, self._clock, self._examine_again)
                self._bridge_filters = filters
            filters.add(consumer, self.destination, terms)

    def _examine_again(self) -> None:
        """Have all consumers examine all waiting messages again, as some may be accepted now that were not before."""
        self._answers = None
        self.pending.search_again(0)
        self.dispatch()

    def _replace(self, reference: Reference, message: Message) -> None:
        freed = reference.message.size - message.size
        reference.message = message
        self.usage.release(freed)

    def _deliver(self, reference: Reference, consumer: BrokerConsumer) -> None:
        consumer_set = self.consumer_set
        message = reference.message
        if message.group_id is not None and consumer_set.record_group_delivery(message, consumer):
            reference.message = first_of_group(message)
        if len(consumer_set.all) > 1:
            consumer_set.rotate(consumer)
        self.dispatched += 1
        consumer.offer(reference)

    def _deliver_oldest(self, consumer: BrokerConsumer | None) -> None:
        """Deliver the oldest messages while every consumer accepts every message, at most a piece or page per turn."""
        pending, consumer_set = self.pending, self.consumer_set
        space, left, ends_at = PAGE_BYTES_MAX, PIECE_MAX, 0.0
        while pending.count:
            receiver = consumer_set.first_with_capacity() if consumer is None else consumer
            if receiver is None or not receiver.has_capacity:
                break
            left -= 1
            if not left & CLOCK_MASK:
                now = self.paging.monotonic()
                ends_at = ends_at or now + PIECE_SECONDS
                if (left <= 0 or now >= ends_at) and self._defer_dispatch():
                    break
            if is_paged := pending.is_paged:
                if space <= 0 and self._defer_dispatch():
                    break
                if not (pending.fill() and consumer_set.accepts_any):
                    self.dispatch(consumer)  # the queue is empty, or messages that were read belong to groups
                    break
            reference = pending.pop(_DISPATCHED)
            if is_paged:
                space -= len(reference.message.data)
            if reference.message.expiration and self.is_expired(reference.message):
                self.expire(reference)
            else:
                self.waits.end(reference.sequence)
                self._deliver(reference, receiver)

    def _search(self, consumers: Sequence[BrokerConsumer]) -> None:
        """Deliver while not every consumer accepts every message. After a piece, continue in a later turn."""
        self._piece_left, self._piece_ends_at = PIECE_MAX, 0.0
        self._piece_began_at = self.paging.monotonic() if len(consumers) > _MANY_CONSUMERS else 0.0
        self._search_reopened_groups()  # an owner may have left since the last piece
        try:
            is_done = self._search_levels(consumers)
            while is_done and (self._search_reopened_groups() or self._progress is _ASKED_AGAIN):
                self._progress = _SEARCHING
                is_done = self._search_levels(self.consumer_set.eligible)
        except BaseException:
            self._progress = _UNFINISHED
            raise
        self._progress = _IDLE if is_done else _UNFINISHED
        self.pending.compact()
        if not is_done:
            self._defer_dispatch()

    def _search_levels(self, consumers: Sequence[BrokerConsumer]) -> bool:
        """Deliver messages that consumers have not examined; return False if a piece ended before the search did."""
        for level in self.pending.levels:
            while level.count and (ready := [consumer for consumer in consumers if consumer.has_capacity]):
                start = min(level.searched.get(consumer, -1) for consumer in ready)
                wanted = sum([each.capacity for each in ready]) if level.is_paged else 1
                stop, is_over = self._deliver_until_full(level, start, wanted)
                for consumer in ready:
                    level.searched[consumer] = max(stop, level.searched.get(consumer, -1))
                if is_over:
                    return False
                if stop >= self._next_sequence - 1:
                    break
        return True

    def _deliver_until_full(self, level: Pending, after: int, wanted: int) -> tuple[int, bool]:
        """Deliver messages behind a sequence number until a consumer's window is full, or a piece has been searched.

        Args:
            level: the part of the backlog that is searched.
            after: the sequence number.
            wanted: the messages that all consumers may get now, if some have to be read.

        Returns:
            The last sequence number examined, and True if the end of the piece was the reason to stop.
        """
        paging, is_paged = self.paging, level.is_paged
        is_bounded = paging.later is not None
        left, space = min(PAGE_MAX, self._piece_left) if is_paged else self._piece_left, PAGE_BYTES_MAX
        for reference in level.scan(after, wanted):
            if self.drop_if_expired(reference):
                receiver = None
            elif is_bounded and len(self.consumer_set.eligible) > 1:
                if not self._piece_ends_at:
                    self._begin_piece(paging.monotonic())
                answers = self._answers_to(reference, self._piece_ends_at)
                receiver = self.consumer_set.choose(reference, answers)
                if receiver is None and answers.is_over:
                    return reference.sequence - 1, True
            else:
                receiver = self.consumer_set.choose(reference)
            if receiver is not None:
                self.pending.remove(reference, _DISPATCHED)
                self.waits.end(reference.sequence)
                self._deliver(reference, receiver)
                if not receiver.has_capacity:
                    self._piece_left = left - 1
                    if len(self.consumer_set.eligible) > _MANY_CONSUMERS and self._is_piece_over(paging.monotonic()):
                        self._piece_left = 0  # all of them are looked at again for the next message
                    return reference.sequence, is_bounded and self._piece_left <= 0
            if is_bounded:
                left -= 1
                if is_paged:
                    space -= len(reference.message.data)
                if not left & CLOCK_MASK and self._is_piece_over(paging.monotonic()):
                    left = 0
                if left <= 0 or space <= 0:
                    return reference.sequence, True
        self._piece_left = left
        return self._next_sequence - 1, False

    def _is_piece_over(self, now: float) -> bool:
        """Return True if the present search has used its time in this turn of the event loop."""
        if not self._piece_ends_at:
            self._begin_piece(now)
        return now >= self._piece_ends_at

    def _begin_piece(self, now: float) -> None:
        """Set the end of a piece: not before it has lasted as long as it took to gather its consumers."""
        prepared = now - self._piece_began_at if self._piece_began_at else 0.0
        self._piece_ends_at = now + max(PIECE_SECONDS, PREPARED_FACTOR * prepared)

    def _search_reopened_groups(self) -> bool:
        """Make consumers search again for messages whose group has lost its owner; return True if there are any."""
        groups = self.consumer_set.groups
        if groups is None or groups.reopened is None:
            return False
        self.pending.search_again(groups.reopened)
        groups.reopened = None
        return True
