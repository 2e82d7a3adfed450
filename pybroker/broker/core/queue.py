"""A queue: each message to one consumer, round robin over those that have room and want it, first in first out.

What comes back from a consumer goes to its old place. Where ActiveMQ keeps persistent and non-persistent messages in
two cursors and gives up on a selector 200 messages deep, this queue has one order and looks at every message.
"""

import logging
from collections.abc import Sequence

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import LocalTransactionId

_log = logging.getLogger(__name__)


class Queue:
    """One queue; the backlog (`Source`) of all its consumers."""

    __slots__ = (
        "_clock",
        "_dead_letters",
        "_expirable",
        "_max_redeliveries",
        "_next_sequence",
        "_store",
        "consumers",
        "destination",
        "gate",
        "pending",
    )

    def __init__(
        self,
        destination: Destination,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        max_redeliveries: int,
    ) -> None:
        self.destination = destination
        self.pending = Pending()
        self.gate = Gate(self.place)
        self.consumers: list[Consumer] = []
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._max_redeliveries = max_redeliveries
        self._next_sequence = 0
        self._expirable = False

    def send(self, message: Message) -> None:
        """Store a message if it must last, and hand it out."""
        if message.persistent:
            self._store.add(message)
        self.enqueue(message)

    def enqueue(self, message: Message) -> None:
        """Hand out a message that is stored, or need not be, unless a commit before it is not on disk yet."""
        if self.gate.is_closed:
            self.gate.wait(message)
        else:
            self.place(message)

    def place(self, message: Message, redelivery_count: int = 0) -> None:
        """Put a message at the end of the queue, or into the hands of a consumer that waits for it."""
        reference = Reference(message, self, self._next_sequence, redelivery_count)
        self._next_sequence += 1
        if message.expiration:
            self._expirable = True
        self.pending.append(reference)
        # Whatever else waits was already refused by every consumer with room, so only this one needs a look.
        if (consumer := self._choose(reference)) is not None:
            self._hand_over(reference, consumer)
            self.pending.sweep()
        else:
            message.decoded = None  # who waits, waits small: the fields are decoded again when they are needed

    def attach(self, consumer: Consumer) -> None:
        """Let a consumer take part."""
        self.consumers.append(consumer)
        consumer.sources.append(self)

    def detach(self, consumer: Consumer) -> None:
        """Let a consumer go; what it holds comes back by `restore`."""
        self.consumers.remove(consumer)
        consumer.scanned.pop(self, None)

    def in_flight(self) -> list[Reference]:
        """Return what consumers hold unsettled, oldest first."""
        held = (ref for consumer in self.consumers for ref in consumer.outstanding if ref.source is self)
        return sorted(held, key=lambda reference: reference.sequence)

    def expire(self) -> None:
        """Let go of every waiting message that is past its time."""
        if not self._expirable:
            return
        now = self._clock()
        self._expirable = False
        for reference in self.pending.scan():
            if reference.message.is_expired(now):
                self._expired(reference)
            elif reference.message.expiration:
                self._expirable = True
        self.pending.sweep()

    # ------------------------------------------------------------ source

    def dispatch(self) -> None:
        """Deliver what waits to the consumers that have room for it."""
        if not len(self.pending):
            return
        ready = [consumer for consumer in self.consumers if consumer.has_room]
        if not ready:
            return
        last = -1
        for reference in self.pending.scan(min(consumer.scanned.get(self, -1) for consumer in ready)):
            last = reference.sequence
            message = reference.message
            if message.expiration and message.is_expired(self._clock()):
                self._expired(reference)
            elif (consumer := self._choose(reference)) is not None:
                self._hand_over(reference, consumer)
            elif not any(consumer.has_room for consumer in ready):
                break
        for consumer in ready:
            if consumer.has_room and consumer.is_selective:
                consumer.scanned[self] = max(last, consumer.scanned.get(self, -1))
        self.pending.sweep()

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Journal that a message was consumed."""
        if reference.message.persistent:
            self._store.remove(self.destination, reference.message.message_id, transaction)

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts."""
        reference.state = State.SETTLED

    def restore(self, references: Sequence[Reference]) -> None:
        """Put references back into their places.

        All count as redelivered, for nobody knows which of them the consumer saw. Only the oldest comes under
        suspicion, and is dead-lettered when that has happened too often: it is the one the consumer was at, whether it
        crashed or gave up in order, and the rest of its window is innocent.
        """
        suspect = min(references, key=lambda reference: reference.sequence)
        suspect.suspected += 1
        for reference in references:
            reference.redelivery_count += 1
            if 0 <= self._max_redeliveries < reference.suspected:
                self._give_up(reference)
            else:
                self.pending.restore(reference)
        for consumer in self.consumers:
            consumer.scanned.pop(self, None)
        self.dispatch()

    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference."""
        self._dead_letters.bury(reference.message, cause)
        self.forget(reference, None)
        reference.state = State.SETTLED

    # ------------------------------------------------------------ private

    def _choose(self, reference: Reference) -> Consumer | None:
        for consumer in self.consumers:
            if consumer.has_room and consumer.accepts(reference.message, reference.redelivery_count):
                return consumer
        return None

    def _hand_over(self, reference: Reference, consumer: Consumer) -> None:
        self.pending.take(reference, State.DISPATCHED)
        if len(self.consumers) > 1:
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
        consumer.offer(reference)

    def _give_up(self, reference: Reference) -> None:
        message = reference.message
        if not message.persistent:
            _log.warning(
                "%s from %s is dropped: its consumers left it %d times, and it is not persistent",
                message.message_id,
                self.destination,
                reference.suspected,
            )
        self.reject(reference, f"redelivered {self._max_redeliveries} times without an acknowledgement")

    def _expired(self, reference: Reference) -> None:
        self.pending.take(reference, State.SETTLED)
        self._dead_letters.expire(reference.message)
        self.forget(reference, None)
