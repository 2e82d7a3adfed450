"""A queue: each message to one consumer, first in first out, or by priority.

Who gets a message is said by its `consumer_set`. What comes back from a consumer goes to its old place. Where ActiveMQ
keeps persistent and non-persistent messages in two cursors and gives up on a selector 200 messages deep, this queue has
one order and looks at every message.

Between events nothing waits that a consumer with room would take. So a message that arrives needs one look at the
consumers, and a consumer that gets room one look at what waits. As long as every consumer takes any message
(`accepts_any`) that look is at the oldest only; else a consumer's search goes on where its last one ended, so that each
message is looked at once per consumer, however many wait.

Where a part of the queue is not in memory (see `paging`), a search looks at one page of it per turn of the event loop.
Until it has come to the end, what arrives waits too: it must not overtake what the search has yet to find. The states
of all that are in `search`.
"""

import logging
from collections.abc import Sequence
from typing import Final

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.consumer_set import ConsumerSet
from pybroker.broker.core.containment import contain
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.groups import first_of_group, without_flag
from pybroker.broker.core.paged_out_index import MessageRef
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX, severity
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.search import TRANSITIONS, Search, SearchEvent
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_DISPATCHED: Final = State.DISPATCHED
_SETTLED: Final = State.SETTLED

# Between these a search moves with every message or acknowledgement: as its table says, which a test compares.
_IDLE: Final = Search.IDLE
_IN_TURNS: Final = Search.IN_TURNS
_SEARCHING: Final = Search.SEARCHING
_ASKED_AGAIN: Final = Search.ASKED_AGAIN
_PAUSED: Final = Search.PAUSED
_UNFINISHED: Final = Search.UNFINISHED


class Queue(StoredSource):
    """One queue; the backlog of all its consumers. A temporary queue stores nothing: it dies with its connection."""

    __slots__ = (
        "_is_temporary",
        "consumer_set",
        "destination",
        "gate",
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
        self.paging = usage.paging
        self.gate = Gate(self.enqueue, store, usage.paging)
        self.paging.backlogs.add(self)
        self._recompute_watermark()
        self._is_temporary = destination.is_temporary

    @property
    def next_sequence(self) -> int:
        """Sequence of the next message that arrives."""
        return self._next_sequence

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Who consumes from it; browsers do not."""
        return self.consumer_set.all

    @property
    def is_in_use(self) -> bool:
        """True when somebody consumes from it."""
        return bool(self.consumer_set.all)

    @property
    def is_kept_now(self) -> bool:
        """True: a queue's messages are stored for whoever comes."""
        return True

    def stores(self, message: Message) -> bool:
        """Tell whether a message must outlive the process."""
        return message.persistent and not self._is_temporary

    def send(self, message: Message) -> None:
        """Store a message if it must last, and hand it out, unless it is here already."""
        if not (message.persistent and not self._is_temporary) or self._store.add(message):
            self.gate.admit(message)
        else:
            _log.info("%s is on %s already", message.message_id, self.destination)

    def enqueue(self, message: Message, redelivery_count: int = 0) -> None:
        """Put a message at the end of the queue, or into the hands of a consumer that waits for it."""
        reference = Reference(message, self, self._next_sequence, redelivery_count)
        self._next_sequence += 1
        self.usage.acquire(message.size)
        if message.expiration:
            if self.is_expired(message):
                self.expire(reference)
                return
            self._record_expiry(message)
        consumer_set = self.consumer_set
        if message.group_id is not None:
            consumer_set.ensure_groups()
        # Whatever else waits was already refused by every consumer with room, so only this one needs a look.
        if not consumer_set.accepts_any:
            progress = self._progress
            is_searched = progress is _IDLE or progress is _IN_TURNS
            # It must not overtake what consumers may yet find.
            consumer = consumer_set.choose(reference) if is_searched or not self.pending.count else None
        else:
            consumer = None if self.pending.count else consumer_set.first_with_room()
        if consumer is None:
            self.pending.append(reference)
            message.decoded = None  # who waits, waits small: the fields are decoded again when they are needed
            usage = self.usage
            if usage.used > self._page_out_at or usage.broker.used > usage.broker.watermark:
                self._reduce_memory(usage)
            return
        reference.state = _DISPATCHED
        self._deliver(reference, consumer)
        if message.group_id is not None and self._search_reopened_groups():
            self.dispatch()

    def attach(self, consumer: Consumer) -> None:
        """Let a consumer take part."""
        self.consumer_set.add(consumer)
        consumer.sources.append(self)

    def detach(self, consumer: Consumer) -> None:
        """Let a consumer go; what it holds comes back by `restore`."""
        frees = self.consumer_set.remove(consumer)
        self.pending.forget_consumer(consumer)
        # What it holds is older than what waits: if it holds any, its return makes the others look.
        if frees and not any(reference.source is self for reference in consumer.outstanding):
            self.dispatch()

    def in_flight(self) -> list[Reference]:
        """Return what consumers hold unsettled, oldest first."""
        held = (ref for consumer in self.consumer_set.all for ref in consumer.outstanding if ref.source is self)
        return sorted(held, key=lambda reference: reference.sequence)

    def close(self) -> None:
        """Give back the memory it takes: it is deleted, with all it holds."""
        self.paging.backlogs.discard(self)
        self.pending.clear()
        self.usage.close()

    # ------------------------------------------------------------ source

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Deliver what there is room for, to one consumer that got room, or to all."""
        if not self.pending.count:
            return
        consumer_set = self.consumer_set
        if consumer is not None and consumer_set.exclusive not in (None, consumer):
            return
        takes_any = consumer_set.accepts_any
        progress = before = self._progress
        if before is not _IDLE:
            if before is (_IN_TURNS if takes_any else _PAUSED):
                return  # it goes on by itself
            event = SearchEvent.ASK_FOR_ANY if takes_any else SearchEvent.ASK
            progress = self._progress = TRANSITIONS.after(before, event)
        elif not takes_any:
            progress = self._progress = _SEARCHING
        try:
            if progress is _IDLE:
                self._deliver_oldest(consumer)
            elif progress is _SEARCHING:
                is_for_one = consumer is not None and before is _IDLE and not self._search_reopened_groups()
                self._search([consumer] if consumer is not None and is_for_one else consumer_set.eligible)
        except StoreUnavailable as error:
            _log.log(severity(error), "%s is not served further now: %s", self.destination, error)

    def forget(self, reference: Reference, transaction: TransactionId | None, consumed_by: str | None) -> None:
        """Journal that a message is done with."""
        if reference.message.persistent and not self._is_temporary:
            self._store.remove(self.destination, reference.message.message_id, transaction, consumed_by=consumed_by)

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts, and what it took in memory."""
        reference.state = _SETTLED
        self.usage.release(reference.message.size)

    def read(self, refs: Sequence[MessageRef]) -> tuple[list[Reference], int]:
        """Return references to messages in the store; see `Pager`."""
        found, count = super().read(refs)
        if any(reference.message.group_id is not None for reference in found):
            self.consumer_set.ensure_groups()
        return found, count

    def count_in(self, references: Sequence[Reference]) -> None:
        """Count what has come into memory."""
        super().count_in(references)
        self.usage.acquire(sum([reference.message.size for reference in references]))

    def count_out(self, references: Sequence[Reference]) -> None:
        """Count what has left memory. Producers that waited for it may go on from inside."""
        self.usage.release(sum([reference.message.size for reference in references]))

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Put references back into their places; those that may have been seen count as redelivered."""
        for reference in (*seen, *unseen):
            reference.message = without_flag(reference.message)
        super().restore(seen, unseen)

    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference."""
        reference.message = without_flag(reference.message)
        super().reject(reference, cause)

    def expire(self, reference: Reference) -> None:
        """Let go of a reference that is past its time."""
        reference.message = without_flag(reference.message)
        super().expire(reference)

    # ------------------------------------------------------------ private

    def _usage(self) -> Usage:
        return self.usage

    def _is_stored(self, reference: Reference) -> bool:
        return self.stores(reference.message)

    def _deliver(self, reference: Reference, consumer: Consumer) -> None:
        consumer_set = self.consumer_set
        message = reference.message
        if message.group_id is not None and consumer_set.record_group_delivery(message, consumer):
            try:
                reference.message = first_of_group(message)
            except Exception as error:  # the message's fault: nothing else is touched here
                contain(error, "flagging as the first of its group", message)
        if len(consumer_set.all) > 1:
            consumer_set.rotate(consumer)
        consumer.offer(reference)

    def _deliver_oldest(self, consumer: Consumer | None) -> None:
        """Deliver from the front: everybody takes anything. What was read back leaves in turns, a page in each."""
        pending, consumer_set = self.pending, self.consumer_set
        room = PAGE_BYTES_MAX
        while pending.count:
            receiver = consumer_set.first_with_room() if consumer is None else consumer
            if receiver is None or not receiver.has_room:
                break
            if is_paged := pending.is_paged:
                if room <= 0 and self._defer_dispatch():
                    break
                if not (pending.fill() and consumer_set.accepts_any):
                    self.dispatch(consumer)  # nothing is left, or what was read has groups
                    break
            reference = pending.pop(_DISPATCHED)
            if is_paged:
                room -= len(reference.message.data)
            if reference.message.expiration and self.is_expired(reference.message):
                self.expire(reference)
            else:
                self._deliver(reference, receiver)

    def _search(self, consumers: Sequence[Consumer]) -> None:
        """Deliver to consumers that do not take everything. Where it looked at a whole page, it goes on next turn."""
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

    def _search_levels(self, consumers: Sequence[Consumer]) -> bool:
        """Deliver from what consumers have not looked at yet; tell whether that is all, and not a page of it."""
        for level in self.pending.levels:
            while level.count and (ready := [consumer for consumer in consumers if consumer.has_room]):
                start = min(level.searched.get(consumer, -1) for consumer in ready)
                stop, is_page = self._deliver_until_full(level, start)
                for consumer in ready:
                    level.searched[consumer] = max(stop, level.searched.get(consumer, -1))
                if is_page:
                    return False
                if stop >= self._next_sequence - 1:
                    break
        return True

    def _deliver_until_full(self, level: Pending, after: int) -> tuple[int, bool]:
        """Deliver what waits behind a sequence number until a consumer is full, or a page was looked at.

        Returns:
            How far that was, and whether it was for the page.
        """
        is_bounded = level.is_paged and self.paging.call_soon is not None
        count, room = PAGE_MAX, PAGE_BYTES_MAX
        for reference in level.scan(after):
            if not self.drop_if_expired(reference) and (receiver := self.consumer_set.choose(reference)) is not None:
                self.pending.remove(reference, _DISPATCHED)
                self._deliver(reference, receiver)
                if not receiver.has_room:
                    return reference.sequence, False
            if is_bounded:
                count -= 1
                room -= len(reference.message.data)
                if count <= 0 or room <= 0:
                    return reference.sequence, True
        return self._next_sequence - 1, False

    def _search_reopened_groups(self) -> bool:
        """Have everybody look again at messages whose group has lost its owner; True when there are any."""
        groups = self.consumer_set.groups
        if groups is None or groups.reopened is None:
            return False
        self.pending.search_again(groups.reopened)
        groups.reopened = None
        return True
