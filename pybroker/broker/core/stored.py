"""The base class of queues and durable subscriptions: an ordered backlog whose messages are in the store.

If a consumer closes with outstanding messages, they return to their old positions. The oldest one that the client may
have seen gets a delivery strike, because the consumer was probably processing it; the others get none. A message with
more strikes than the policy's `max_redeliveries` is dead-lettered; a persistent one that would be dropped stays. One
whose body left memory meanwhile (see `delivered`) returns as a paged-out message, and is read back before it is
dead-lettered.

The class is also the `Pager` of its backlog: it pages messages out and reads them back (see `paging`). What the store
does not have goes to the spool.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer, DeliverySource
from pybroker.broker.core.containment import contain
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.paged_out_index import IN_STORE, SEQUENCE_MAX, MessageRef, PagedOutIndex
from pybroker.broker.core.paging import (
    CLOCK_MASK,
    PAGE_BYTES_MAX,
    PAGE_MAX,
    PAGE_OUT_PIECE,
    PIECE_MAX,
    PIECE_SECONDS,
    SPOOL_PIECE_BYTES,
    Paging,
    severity,
)
from pybroker.broker.core.pending import Pending, pending
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.core.search import TRANSITIONS, Search, SearchEvent
from pybroker.broker.core.usage import Usage
from pybroker.broker.core.waiting_times import WaitingTimes
from pybroker.broker.domain.admin import Counters, DeadLetterCause
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.ports import Clock, MessageStore, RemovalReason

_log = logging.getLogger(__name__)

_SETTLED: Final = ReferenceState.SETTLED

EXPIRY_PIECE: Final = 2000
"""Messages in memory that a sweep for expired ones checks before it continues in a later turn of the event loop, in
less than a millisecond."""

EXPIRED_COST: Final = 80
"""An expired message, which may become a dead letter, counts for so many."""

_EARLY: Final = 0.9
"""The part of a period after which a sweep is due: the times of two calls may differ by a little less than it."""

_NEVER = 2**63
"""Later than every expiration."""

_IN_STORE: Final = IN_STORE


class StoredSource(DeliverySource):
    """A backlog whose messages are in the store; derived classes choose the consumers.

    Attributes:
        dispatched: the number of deliveries to consumers.
        dequeued: the number of messages that were acknowledged, have expired, or were dead-lettered.
        expired: those of them that have expired.
        forwarded: those of them that bridges have forwarded to other brokers.
        waits: how long messages wait for a consumer.
    """

    __slots__ = (
        "_clock",
        "_dead_letters",
        "_expiring",
        "_is_closed",
        "_is_paging_out",
        "_is_spooling",
        "_lost_count",
        "_next_expiry",
        "_next_sequence",
        "_next_stored_expiry",
        "_on_disk_before",
        "_page_out_at",
        "_progress",
        "_recovered_count",
        "_scanned",
        "_store",
        "_subscription_key",
        "_swept_at",
        "_unread",
        "dequeued",
        "dispatched",
        "expired",
        "forwarded",
        "paging",
        "pending",
        "policy",
        "waits",
    )

    def __init__(
        self,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: DestinationPolicy,
        subscription_key: str | None = None,
    ) -> None:
        self.policy = policy
        self.waits = WaitingTimes()
        self.dispatched = 0
        self.dequeued = 0
        self.expired = 0
        self.forwarded = 0
        self._recovered_count = 0
        self._lost_count = 0
        self.paging = Paging()
        self.pending = pending(prioritized=policy.prioritized_messages, pager=self)
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._next_sequence: int = 0
        self._subscription_key = subscription_key
        self._next_expiry = _NEVER
        """No waiting message in memory expires before this time."""
        self._next_stored_expiry = _NEVER
        """No paged-out message expires before this time."""
        self._swept_at = -_NEVER
        """The time of the last sweep for expired messages."""
        self._scanned: dict[Pending, int] | None = None
        self._expiring: dict[Pending, int] | None = None
        """By level, the sequence number up to which a sweep has checked what is in memory; None: no sweep runs."""
        """The position of the scan for expired paged-out messages, by level; None: no scan is running."""
        self._page_out_at = _NEVER
        """Memory usage above which messages are paged out: the watermark, or more if the last page-out left more."""
        self._is_paging_out = False
        self._is_spooling = False
        self._on_disk_before = 0
        """The store has all persistent messages below this sequence number on disk."""
        self._unread: dict[Reference, Callable[[], None]] = {}
        """Messages that consumers gave back, by what is to be done with each once its body can be read back."""
        self._progress = Search.IDLE
        self._is_closed = False

    def _close(self) -> tuple[list[Reference], list[Reference]]:
        """Drop all messages, as the backlog is deleted.

        Nothing of it refers to itself from now on, so that its memory is freed without a garbage collection.

        Returns:
            The references that waited in memory, and those whose bodies were to be read back.
        """
        self._is_closed = True
        self.paging.backlogs.discard(self)
        self._scanned = self._expiring = None
        waiting, unread = self.pending.clear(), list(self._unread)
        self.pending, self._unread = Pending(), {}
        return waiting, unread

    @property
    def next_sequence(self) -> int:
        """The sequence number that the next message gets."""
        return self._next_sequence

    @property
    def is_closed(self) -> bool:
        """True once the backlog has been deleted."""
        return self._is_closed

    @property
    @abstractmethod
    def holders(self) -> Iterable[BrokerConsumer]:
        """The consumers that may have outstanding messages."""

    @abstractmethod
    def in_flight(self) -> list[Reference]:
        """Return the outstanding messages of all consumers, oldest first."""

    def counters(self) -> Counters:
        """Return the counts of messages; those that are acknowledged in an open transaction are in flight."""
        size = self._next_sequence - self.dequeued - self._lost_count
        return Counters(
            size=size,
            enqueued=self._next_sequence - self._recovered_count,
            dispatched=self.dispatched,
            dequeued=self.dequeued,
            expired=self.expired,
            forwarded=self.forwarded,
            in_flight=size - self.pending.count,
            wait_seconds=self.waits.total,
            wait_seconds_max=self.waits.longest,
            wait_seconds_min=self.waits.shortest,
        )

    def oldest_seconds(self, now: float, began_at: float) -> float:
        """Return for how long the oldest waiting message has waited; 0 if none waits.

        Args:
            now: monotonic seconds.
            began_at: when this broker began, which counts for a message that an earlier one had stored.
        """
        first = min([part.first_sequence for part in self.pending.parts])
        if first == SEQUENCE_MAX:
            return 0.0
        return max(0.0, now - (began_at if first < self._recovered_count else self.waits.begun_at(first, now)))

    @property
    def cached_count(self) -> int:
        """The number of messages that wait in memory."""
        parts = self.pending.parts
        return self.pending.count - sum([part.paged_out.count for part in parts if part.paged_out is not None])

    def lose(self, count: int) -> None:
        """Count messages that are not in the backlog any more; see `Pager`."""
        self._lost_count += count

    @property
    def is_dispatching(self) -> bool:
        """True while messages that wait may be delivered in a later turn, without another event."""
        return self._progress is not Search.IDLE and bool(self.pending.count)

    def drop_if_expired(self, reference: Reference) -> bool:
        """Remove a waiting message if it has expired; return True if it had."""
        if not self.is_expired(reference.message):
            return False
        self.pending.remove(reference, _SETTLED)
        try:
            self.expire(reference)
        except Exception as error:  # the message stays in the store, and the next master recovers it
            contain(error, "expiring", reference.message)
        return True

    def is_expired(self, message: Message) -> bool:
        """Return True if a message has expired."""
        return message.expiration > 0 and message.is_expired(self._clock())

    def remove_expired(self) -> None:
        """Remove expired messages that wait; look for them only if one may have expired, and the policy says so.

        Messages in memory are checked in pieces, in later turns of the event loop; paged-out ones in a slow scan over
        several calls (see `paging`).
        """
        now = self._clock()
        self._recompute_watermark()
        if self._is_due(now):
            if now > self._next_expiry and self._expiring is None:
                self._next_expiry = _NEVER
                self._expiring = {}
                self._continue_expiry()
            if self._scanned is None and now > self._next_stored_expiry and self.pending.is_paged:
                self._next_stored_expiry = _NEVER
                self._scanned = {}
        if self._scanned is not None:
            self._continue_scan()
        if self.pending.is_paged or self._progress is Search.UNFINISHED:
            self.dispatch()  # the store may have been unavailable at the last dispatch
        if self.paging.waiting:
            self.paging.retry_waiting()

    def _is_due(self, now: int) -> bool:
        """Return True if it is time to look for expired messages, by the policy."""
        period = self.policy.expire_messages_period
        if period is None:
            return True
        if not period or 0 <= now - self._swept_at < period * _EARLY:
            return False
        self._swept_at = now
        return True

    def _continue_expiry(self) -> None:
        """Continue to check the messages in memory, for at most a piece."""
        checked = self._expiring
        if checked is None:
            return
        left, ends_at = EXPIRY_PIECE, self.paging.monotonic() + PIECE_SECONDS
        for level in self.pending.parts:
            for reference in level.in_memory(checked.get(level, -1)):
                if self.drop_if_expired(reference):
                    left -= EXPIRED_COST
                else:
                    self._record_expiry(reference.message)
                    left -= 1
                if left <= 0 or (not left & CLOCK_MASK and self.paging.monotonic() > ends_at):
                    checked[level] = reference.sequence
                    if self.paging.defer(self._continue_expiry):
                        self.pending.compact()
                        return
                    left = EXPIRY_PIECE
            checked[level] = SEQUENCE_MAX
        self._expiring = None
        self.pending.compact()

    def _continue_scan(self) -> None:
        """Continue the scan for expired messages that are paged out."""
        try:
            while self._scan_page():
                if self.paging.defer(self._continue_scan):
                    return
        except StoreUnavailable as error:
            _log.log(severity(error), "the scan for expired messages pauses: %s", error)

    def _scan_page(self) -> bool:
        """Scan one page; return True if the next page is to be scanned too."""
        scanned = self._scanned
        if scanned is None or self._progress is Search.IN_TURNS or self._progress is Search.PAUSED:
            return False
        for level in self.pending.levels:
            if level.is_paged and (after := scanned.get(level, -1)) < self._next_sequence:
                if not (quota := self.paging.scan_quota(self._clock(), PAGE_MAX)):
                    return False
                references, scanned[level] = level.peek(after, quota)
                for reference in references:
                    if (
                        not self.drop_if_expired(reference)
                        and 0 < reference.message.expiration < self._next_stored_expiry
                    ):
                        self._next_stored_expiry = reference.message.expiration
                return True
        self._scanned = None
        return False

    def _record_expiry(self, message: Message) -> None:
        if 0 < message.expiration < self._next_expiry:
            self._next_expiry = message.expiration

    # ------------------------------------------------------------ memory

    def recover(self, destination: Destination, ids: Sequence[str], delivered: Collection[str] | None) -> None:
        """Add the messages that the store held when it was opened, without reading them.

        Args:
            destination: their destination in the store.
            ids: their ids in dispatch order; the backlog takes over a list and changes it.
            delivered: ids that a consumer may have seen; None: all of them.
        """
        self.pending.recover(destination, ids, start=self._next_sequence, delivered=delivered)
        self._next_sequence += len(ids)
        self._recovered_count += len(ids)
        self._next_stored_expiry = -1  # unknown until they are read

    def read(self, refs: Sequence[MessageRef]) -> tuple[list[Reference], int]:
        """Read messages from the store and the spool; see `Pager`."""
        found: list[Reference] = []
        looked_at, space = 0, PAGE_BYTES_MAX
        for destination, group in groupby(refs, key=_stored_destination):
            together = list(group)
            if destination is None:
                start = len(found)
                count = self._read_spooled(together, found, space)
                looked_at += count
                space -= sum([len(reference.message.data) for reference in found[start:]])
                if space <= 0 or count < len(together):
                    break
                continue
            messages, count = self._store.read_page(destination, [ref.message_id for ref in together], space)
            looked_at += count
            is_whole = count == len(together)
            if len(messages) < len(together):  # the store has logged which are lost
                there = {message.message_id for message in messages}
                together = [ref for ref in together[:count] if ref.message_id in there]
            for message, (sequence, _, _, redelivery_count, strikes, _) in zip(messages, together, strict=True):
                reference = Reference(message, self, sequence, self._deliveries_before(message, redelivery_count))
                if strikes:
                    reference.strikes = strikes
                found.append(reference)
            space -= sum([len(message.data) for message in messages])
            if space <= 0 or not is_whole:
                break
        return found, looked_at

    def _deliveries_before(self, message: Message, count: int) -> int:
        """Return how often a message was delivered: so often from this backlog, or before the broker redelivered it."""
        redelivery = self._dead_letters.redelivery
        return count if redelivery is None else max(count, redelivery.count_of(message))

    def _read_spooled(self, refs: Sequence[MessageRef], found: list[Reference], bytes_max: int) -> int:
        """Append messages of the spool to `found`; return how many were looked up."""
        spool = self.paging.spool
        assert spool is not None, "a place is in a spool"
        messages = spool.read_page([ref.place for ref in refs], bytes_max)
        for message, ref in zip(messages, refs, strict=False):
            if message is not None:
                message.destination = ref.destination
                reference = Reference(message, self, ref.sequence, ref.redelivery_count)
                reference.strikes = ref.strikes
                found.append(reference)
        return len(messages)

    def release_place(self, place: int) -> None:
        """Free the place in the spool of a message that is not paged out any more."""
        if self.paging.spool is not None:
            self.paging.spool.release(place)

    def release_index(self, paged_out: PagedOutIndex) -> None:
        """Free an index that is not used any more, a part of it in each turn of the event loop."""
        while paged_out.release_next():
            if self.paging.defer(partial(self.release_index, paged_out)):
                return

    def _free(self, references: list[Reference]) -> None:
        """Free references of a deleted backlog, some in each turn of the event loop: there may be many."""
        while references:
            del references[-PIECE_MAX:]
            if references and self.paging.defer(partial(self._free, references)):
                return

    def _defer_dispatch(self) -> bool:
        """Continue the dispatch in a later turn of the loop, after output is sent; return False if there is no loop."""
        if not self.paging.defer(self._continue_dispatch):
            return False
        self._progress = TRANSITIONS.after(self._progress, SearchEvent.YIELD)
        return True

    def _continue_dispatch(self) -> None:
        self._progress = TRANSITIONS.after(self._progress, SearchEvent.TURN)
        usage = self._usage()
        if usage.broker.used > usage.broker.watermark:  # what was read back and delivered in the last turn
            self._reduce_memory(usage)
        self.dispatch()

    def count_in(self, references: Sequence[Reference]) -> None:
        """Add messages that have been read back to the memory usage."""
        for reference in references:
            if reference.message.expiration:
                self._record_expiry(reference.message)

    @abstractmethod
    def count_out(self, references: Sequence[Reference]) -> None:
        """Subtract paged-out messages from the memory usage; this may call back producers that wait for memory."""

    def request_page_out(self) -> None:
        """Page out messages as soon as they are on disk."""
        if not self._is_paging_out and self._can_page_out:
            self._is_paging_out = True
            self._store.when_durable(partial(self.paging.spread, partial(self._page_out, self._next_sequence)))

    def _reduce_memory(self, usage: Usage) -> None:
        """Page out messages if the usage of this backlog, or of the whole broker, is above the watermark."""
        if not self._can_page_out:
            return
        if usage.used > self._page_out_at:
            self.request_page_out()
        usage.request_page_out(self._store.when_durable)

    def _reduce_returned(self, references: Sequence[Reference]) -> None:
        """Page out messages that consumers returned, if they take the memory above a watermark.

        The last page-out set the watermarks above what it left, which was at the consumers then.
        """
        if not self._can_page_out:
            return
        usage, size = self._usage(), sum([reference.message.size for reference in references])
        self._page_out_at = max(usage.watermark, self._page_out_at - size)
        usage.record_return(size)
        self._reduce_memory(usage)

    @property
    def _can_page_out(self) -> bool:
        return self._store.supports_paging or self.paging.spool is not None

    def _recompute_watermark(self) -> None:
        if self._can_page_out:
            self._page_out_at = self._usage().watermark

    def _page_out(self, before: int) -> None:
        """Page out the messages behind the front that are on disk: those below a sequence number, some in each turn."""
        usage, paging = self._usage(), self.paging
        paging.unfinished.discard(self)
        self._is_paging_out = False
        front_bytes = usage.front_bytes
        self._spool(front_bytes, before)
        left: list[Reference] = []
        if self._store.supports_paging:
            self._on_disk_before = before
            count_max = SEQUENCE_MAX if paging.later is None else PAGE_OUT_PIECE
            left, _ = self.pending.page_out(front_bytes, before, self._is_stored, count_max=count_max)
            self._is_paging_out = is_unfinished = len(left) == count_max
            self._leave_memory(left)
            if is_unfinished:
                paging.unfinished.add(self)
                paging.defer(partial(self._page_out, before))
                return
        self._page_out_at = max(usage.watermark, usage.used + usage.watermark // 4)
        if left and usage.used > usage.watermark and self._next_sequence > before:
            self.request_page_out()  # for messages that arrived since the last request

    def _leave_memory(self, references: Sequence[Reference]) -> None:
        if references:
            # While a sweep is running, the expirations of what it has not checked yet are not known.
            next_expiry = self._next_expiry if self._expiring is None else -1
            self._next_stored_expiry = min(self._next_stored_expiry, next_expiry)
        self.count_out(references)

    def _spool(self, front_bytes: int, before: int) -> None:
        """Begin to write messages behind the front that the store does not have to the spool, one piece of them."""
        spool = self.paging.spool
        if spool is None or self._is_spooling:
            return
        found, _, _ = self.pending.behind_front(front_bytes, before, SPOOL_PIECE_BYTES, self._is_spooled)
        if found:
            when_written = partial(self._when_spooled, found, front_bytes, before)
            self._is_spooling = spool.write([reference.message for reference in found], when_written)

    def _when_spooled(self, written: Sequence[Reference], front_bytes: int, before: int, places: Sequence[int]) -> None:
        """Page them out, in a later turn if the pieces of many backlogs are written at the same time."""
        self.paging.spread(partial(self._spooled, written, front_bytes, before, places))

    def _spooled(self, written: Sequence[Reference], front_bytes: int, before: int, places: Sequence[int]) -> None:
        """Page out what still waits of a piece that has been written, and begin with the next; no places: it failed."""
        self._is_spooling = False
        if not places:
            return
        unused = dict(zip(written, places, strict=True))
        left, _ = self.pending.page_out(front_bytes, SEQUENCE_MAX, unused.__contains__, unused)
        for reference in left:
            del unused[reference]
        for place in unused.values():
            self.release_place(place)
        usage = self._usage()
        self._leave_memory(left)
        usage.broker.lower_watermark()
        self._page_out_at = max(usage.watermark, usage.used + usage.watermark // 4)
        if left:
            self._spool(front_bytes, before)
            if not self._is_spooling and usage.used > usage.watermark and self._next_sequence > before:
                self.request_page_out()  # for messages that arrived since the last request

    @abstractmethod
    def _usage(self) -> Usage:
        """Return the memory usage that counts its messages."""

    def _is_stored(self, reference: Reference) -> bool:
        """Return True if the store has a message."""
        return reference.message.persistent

    def _is_spooled(self, reference: Reference) -> bool:
        """Return True if a message leaves memory by the spool."""
        return not self._is_stored(reference)

    # ------------------------------------------------------------ source

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Insert references at their old positions; those that a client may have seen count as redelivered.

        If the backlog has been deleted, they are dropped.
        """
        if self._is_closed:
            for reference in (*seen, *unseen):
                self.release(reference)
            return
        max_redeliveries = self.policy.max_redeliveries
        returned = list(unseen)
        for reference in seen:
            reference.redelivery_count += 1
            if not (0 <= max_redeliveries < reference.strikes and self._dead_letter(reference)):
                returned.append(reference)
        self._dead_letters.redelivered += len(returned) - len(unseen)
        if returned:
            first = min([reference.sequence for reference in returned])
            self.waits.begin_again(first, is_first=not self.pending.count)
        paged_out: list[Reference] = []
        in_memory: list[Reference] = []
        for reference in returned:  # once, as each look at so many messages takes milliseconds
            message = reference.message
            self._record_expiry(message)
            (paged_out if isinstance(message, BodilessMessage) else in_memory).append(reference)
        if paged_out:
            self.pending.restore_paged_out(paged_out)
        self.pending.restore(in_memory)
        if paged_out:
            self._leave_memory(paged_out)
        self.dispatch()
        self._reduce_returned(in_memory)

    def reject(self, reference: Reference, cause: str, kind: DeadLetterCause = DeadLetterCause.REJECTED) -> None:
        """Dead-letter or redeliver a reference; one whose body is not in memory once it has been read back."""
        if isinstance(reference.message, BodilessMessage) and not self._read_body(
            reference, partial(self.reject, reference, cause, kind)
        ):
            return
        key, redelivery = self._subscription_key, self._dead_letters.redelivery
        if (
            redelivery is not None
            and key is None
            and not self._is_closed
            and not self.is_expired(reference.message)
            and redelivery.takes(reference, cause, self.release)
        ):
            return
        self._dead_letters.dead_letter(reference.message, cause, subscription_key=key, kind=kind)
        self._remove(reference)

    def expire(self, reference: Reference) -> None:
        """Remove an expired message; one whose body is not in memory once it has been read back."""
        if isinstance(reference.message, BodilessMessage) and not self._read_body(
            reference, partial(self.expire, reference)
        ):
            return
        self._dead_letters.expire(reference.message, subscription_key=self._subscription_key)
        self._remove(reference)
        self.count_expired(reference.message)

    def _remove(self, reference: Reference) -> None:
        """Remove a message that was not acknowledged."""
        self.forget(reference, None, RemovalReason.DISCARDED)
        self.release(reference)

    @abstractmethod
    def release(self, reference: Reference) -> None:
        """Mark a reference as settled, and release its memory: its message has left the backlog."""

    def settle(self, reference: Reference) -> None:
        """Release a reference: its acknowledgement has taken effect."""
        self.release(reference)

    def count_expired(self, message: Message) -> None:
        """Count a message that has expired."""
        self.expired += 1

    def _has_on_disk(self, reference: Reference) -> bool:
        """Return True if the store has a message on disk, from where it can be read back."""
        return reference.sequence < self._on_disk_before and self._is_stored(reference)

    @abstractmethod
    def _replace(self, reference: Reference, message: Message) -> None:
        """Replace the message of a reference by the same one with or without its body, and count the difference."""

    def _read_body(self, reference: Reference, action: Callable[[], None]) -> bool:
        """Read the body of a delivered message back; return False if it is not there now.

        If the store cannot be read now, the action is called later. Until then the message is locked: it is in no
        backlog, and the store has it. If the store has lost the message, it is removed, since nothing is left of it.
        """
        message = reference.message
        if not self._unread:  # else it waits behind the others: a slow store keeps few pages for those who ask again
            try:
                found, _ = self._store.read_page(message.destination, [message.message_id], PAGE_BYTES_MAX)
            except StoreUnavailable as error:
                text = "%s of %s is locked until the store can be read: %s"
                _log.log(severity(error), text, message.message_id, message.destination, error)
            else:
                if found:
                    self._replace(reference, found[0])
                    return True
                _log.error(
                    "%s of %s is removed without a dead letter: the store has lost it",
                    message.message_id,
                    message.destination,
                )
                self._remove(reference)
                return False
        self._unread[reference] = action
        self.paging.waiting[self._retry_unread] = None
        return False

    def _retry_unread(self) -> None:
        """Do what waits for bodies to be read back, until one of them cannot be read."""
        unread, self._unread = self._unread, {}
        try:
            for reference in list(unread):
                action = unread.pop(reference)
                try:
                    action()
                except Exception as error:  # nothing was removed: the message waits again
                    contain(error, "removing a message that a consumer gave back", reference.message)
                    self.restore((), (reference,))
        finally:
            self._unread.update(unread)

    def _dead_letter(self, reference: Reference) -> bool:
        """Dead-letter a message with too many strikes; return False if it must wait again.

        It must if that failed, and if it is persistent and would be dropped: no client has rejected it. A consumer that
        crashes again and again does not delete what others may still process. ActiveMQ keeps it too.
        """
        message = reference.message
        if message.persistent and not self._keeps(reference):
            cause = f"its consumers left it {reference.strikes} times, and there are no dead letters of it"
            self._dead_letters.aggregator.record("kept", message.message_id, f"on {message.destination}", cause)
            return False
        if not message.persistent:
            cause = f"its consumers left it {reference.strikes} times, and it is not persistent"
            self._dead_letters.aggregator.record("dropped", message.message_id, f"from {message.destination}", cause)
        try:
            cause = f"redelivered {self.policy.max_redeliveries} times without an acknowledgement"
            self.reject(reference, cause, DeadLetterCause.REDELIVERED)
        except Exception as error:
            contain(error, "giving up", message)
            return False
        return True

    def _keeps(self, reference: Reference) -> bool:
        """Return True if a message would be redelivered or dead-lettered, and not dropped."""
        letters = self._dead_letters
        if letters.redelivery is not None and self._subscription_key is None:
            outcome = letters.redelivery.keeps(reference)
            if outcome is not None:
                return outcome
        return letters.keeps(reference.message)


def _stored_destination(ref: MessageRef) -> Destination | None:
    """Return the destination of a message in the store; None for one in the spool."""
    return ref.destination if ref.place == _IN_STORE else None
