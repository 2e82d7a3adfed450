"""A queue: each message to one consumer, round robin over those that have room and want it, first in first out.

What comes back from a consumer goes to its old place. Where ActiveMQ keeps persistent and non-persistent messages in
two cursors and gives up on a selector 200 messages deep, this queue has one order and looks at every message.
"""

import logging
from collections.abc import Sequence

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import LocalTransactionId

_log = logging.getLogger(__name__)


class Queue(StoredSource):
    """One queue; the backlog of all its consumers. A temporary queue stores nothing: it dies with its connection."""

    __slots__ = ("_is_stored", "consumers", "destination", "gate")

    def __init__(
        self,
        destination: Destination,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        max_redeliveries: int,
    ) -> None:
        super().__init__(store=store, dead_letters=dead_letters, clock=clock, max_redeliveries=max_redeliveries)
        self.destination = destination
        self.gate = Gate(self.place)
        self.consumers: list[Consumer] = []
        self._is_stored = not destination.is_temporary

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
        reference = self.append(message, redelivery_count)
        if message.expiration and self.is_dead(reference):
            return
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
            if self.is_dead(reference):
                continue
            if (consumer := self._choose(reference)) is not None:
                self._hand_over(reference, consumer)
            elif not any(consumer.has_room for consumer in ready):
                break
        for consumer in ready:
            if consumer.has_room and consumer.is_selective:
                consumer.scanned[self] = max(last, consumer.scanned.get(self, -1))
        self.pending.sweep()

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Journal that a message was consumed."""
        if reference.message.persistent and self._is_stored:
            self._store.remove(self.destination, reference.message.message_id, transaction)

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Put references back into their places, in front of every selective consumer's search."""
        for consumer in self.consumers:
            consumer.scanned.pop(self, None)
        super().restore(seen, unseen)

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
