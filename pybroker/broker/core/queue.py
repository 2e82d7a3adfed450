"""A queue: each message to one consumer, first in first out, or by priority.

Who gets a message is said by its `contenders`. What comes back from a consumer goes to its old place. Where ActiveMQ
keeps persistent and non-persistent messages in two cursors and gives up on a selector 200 messages deep, this queue has
one order and looks at every message.

Between events nothing waits that a consumer with room would take. So a message that arrives needs one look at the
consumers, and a consumer that gets room one look at what waits. As long as every consumer takes any message
(`is_plain`) that look is at the oldest only; else a consumer's search goes on where its last one ended, so that each
message is looked at once per consumer, however many wait.
"""

import logging
from collections.abc import Sequence

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.contenders import Contenders
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.groups import first_of_group, without_flag
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_DISPATCHED = State.DISPATCHED
_SETTLED = State.SETTLED


class Queue(StoredSource):
    """One queue; the backlog of all its consumers. A temporary queue stores nothing: it dies with its connection."""

    __slots__ = ("_is_asked_again", "_is_searching", "_is_stored", "contenders", "destination", "gate", "usage")

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
        self.gate = Gate(self.place)
        self.contenders = Contenders(policy)
        self.usage = usage
        self._is_stored = not destination.is_temporary
        self._is_searching = False
        self._is_asked_again = False

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Who consumes from it; browsers do not."""
        return self.contenders.all

    @property
    def is_in_use(self) -> bool:
        """True when somebody consumes from it."""
        return bool(self.contenders.all)

    def stores(self, message: Message) -> bool:
        """Tell whether a message must outlive the process."""
        return message.persistent and self._is_stored

    def send(self, message: Message) -> None:
        """Store a message if it must last, and hand it out, unless it is here already."""
        if not (message.persistent and self._is_stored) or self._store.add(message):
            self.gate.admit(message)
        else:
            _log.info("%s is on %s already", message.message_id, self.destination)

    def place(self, message: Message, redelivery_count: int = 0) -> None:
        """Put a message at the end of the queue, or into the hands of a consumer that waits for it."""
        reference = Reference(message, self, self._next_sequence, redelivery_count)
        self._next_sequence += 1
        self.usage.take(message.size)
        if message.expiration:
            if self.is_over(message):
                self.expired(reference)
                return
            self._note_expiry(message)
        contenders = self.contenders
        if message.group_id is not None:
            contenders.expect_groups()
        # Whatever else waits was already refused by every consumer with room, so only this one needs a look.
        if not contenders.is_plain:
            consumer = contenders.choose(reference)
        else:
            consumer = None if self.pending.count else contenders.with_room()
        if consumer is None:
            self.pending.append(reference)
            message.decoded = None  # who waits, waits small: the fields are decoded again when they are needed
            return
        reference.state = _DISPATCHED
        self._hand_over(reference, consumer)
        if message.group_id is not None and self._reopen():
            self.dispatch()

    def attach(self, consumer: Consumer) -> None:
        """Let a consumer take part."""
        self.contenders.add(consumer)
        consumer.sources.append(self)

    def detach(self, consumer: Consumer) -> None:
        """Let a consumer go; what it holds comes back by `restore`."""
        frees = self.contenders.remove(consumer)
        for level in self.pending.levels:
            level.searched.pop(consumer, None)
        # What it holds is older than what waits: if it holds any, its return makes the others look.
        if frees and not any(reference.source is self for reference in consumer.outstanding):
            self.dispatch()

    def in_flight(self) -> list[Reference]:
        """Return what consumers hold unsettled, oldest first."""
        held = (ref for consumer in self.contenders.all for ref in consumer.outstanding if ref.source is self)
        return sorted(held, key=lambda reference: reference.sequence)

    def close(self) -> None:
        """Give back the memory it takes: it is deleted, with all it holds."""
        self.usage.close()

    # ------------------------------------------------------------ source

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Deliver what there is room for, to one consumer that got room, or to all."""
        if not self.pending.count:
            return
        contenders = self.contenders
        if consumer is not None and contenders.exclusive not in (None, consumer):
            return
        if contenders.is_plain:
            self._deliver_oldest(consumer)
        elif self._is_searching:  # called from within, by what a delivery or an expiry set off
            self._is_asked_again = True
        else:
            self._is_searching = True
            try:
                self._search([consumer] if consumer is not None and not self._reopen() else contenders.eligible)
                while self._reopen() or self._is_asked_again:
                    self._is_asked_again = False
                    self._search(contenders.eligible)
            finally:
                self._is_searching = False
            self.pending.sweep()

    def forget(self, reference: Reference, transaction: TransactionId | None, *, consumed: bool = True) -> None:
        """Journal that a message is done with."""
        if reference.message.persistent and self._is_stored:
            self._store.remove(self.destination, reference.message.message_id, transaction, consumed=consumed)

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts, and what it took in memory."""
        reference.state = _SETTLED
        self.usage.give(reference.message.size)

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Put references back into their places; those that may have been seen count as redelivered."""
        for reference in (*seen, *unseen):
            reference.message = without_flag(reference.message)
        super().restore(seen, unseen)

    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference."""
        reference.message = without_flag(reference.message)
        super().reject(reference, cause)

    def expired(self, reference: Reference) -> None:
        """Let go of a reference that is past its time."""
        reference.message = without_flag(reference.message)
        super().expired(reference)

    # ------------------------------------------------------------ private

    def _hand_over(self, reference: Reference, consumer: Consumer) -> None:
        contenders = self.contenders
        message = reference.message
        if message.group_id is not None and contenders.join_group(message, consumer):
            try:
                reference.message = first_of_group(message)
            except MalformedOpenWire as error:
                _log.error("%s opens a group without saying so: it does not decode: %s", message.message_id, error)
        if len(contenders.all) > 1:
            contenders.served(consumer)
        consumer.offer(reference)

    def _deliver_oldest(self, consumer: Consumer | None) -> None:
        """Deliver from the front: everybody takes anything."""
        pending, contenders = self.pending, self.contenders
        while pending.count:
            taker = contenders.with_room() if consumer is None else consumer
            if taker is None or not taker.has_room:
                break
            reference = pending.pop(_DISPATCHED)
            if reference.message.expiration and self.is_over(reference.message):
                self.expired(reference)
            else:
                self._hand_over(reference, taker)

    def _search(self, consumers: Sequence[Consumer]) -> None:
        """Deliver to consumers that do not take everything, from what they have not looked at yet."""
        for level in self.pending.levels:
            while level.count and (ready := [consumer for consumer in consumers if consumer.has_room]):
                start = min(level.searched.get(consumer, -1) for consumer in ready)
                stop = self._deliver_until_full(level, start)
                for consumer in ready:
                    level.searched[consumer] = max(stop, level.searched.get(consumer, -1))
                if stop >= self._next_sequence - 1:
                    break

    def _deliver_until_full(self, level: Pending, after: int) -> int:
        """Deliver what waits behind a sequence number until a consumer is full; return how far that was."""
        for reference in level.scan(after):
            if not self.is_dead(reference) and (taker := self.contenders.choose(reference)) is not None:
                self.pending.take(reference, _DISPATCHED)
                self._hand_over(reference, taker)
                if not taker.has_room:
                    return reference.sequence
        return self._next_sequence - 1

    def _reopen(self) -> bool:
        """Have everybody look again at messages whose group has lost its owner; True when there are any."""
        groups = self.contenders.groups
        if groups is None or groups.reopened is None:
            return False
        for level in self.pending.levels:
            level.search_again(groups.reopened)
        groups.reopened = None
        return True
