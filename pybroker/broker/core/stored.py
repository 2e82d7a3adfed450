"""What a queue and a durable subscription have in common: a backlog in order, whose messages the store keeps.

What a consumer leaves unsettled comes back to its old place. Suspicion falls on one reference at a time: the oldest
that its consumer had really been sent when it left is the one it was at; the rest of its window is innocent. A message
that was the suspect too often is dead-lettered.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import LocalTransactionId

if TYPE_CHECKING:
    from pybroker.broker.core.consumer import Consumer

_log = logging.getLogger(__name__)


class StoredSource:
    """A backlog (`Source`) with a store behind it; says nothing of who gets what."""

    __slots__ = ("_clock", "_dead_letters", "_expirable", "_max_redeliveries", "_next_sequence", "_store", "pending")

    def __init__(self, *, store: MessageStore, dead_letters: DeadLetters, clock: Clock, max_redeliveries: int) -> None:
        self.pending = Pending()
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._max_redeliveries = max_redeliveries
        self._next_sequence = 0
        self._expirable = False

    def dispatch(self) -> None:
        """Deliver what consumers have room for."""
        raise NotImplementedError

    def detach(self, consumer: "Consumer") -> None:
        """Let a consumer go."""
        raise NotImplementedError

    def append(self, message: Message, redelivery_count: int = 0) -> Reference:
        """Add a message at the end and return its reference."""
        reference = Reference(message, self, self._next_sequence, redelivery_count)
        self._next_sequence += 1
        if message.expiration:
            self._expirable = True
        self.pending.append(reference)
        return reference

    def is_dead(self, reference: Reference) -> bool:
        """Tell whether a waiting reference is past its time; if so it is let go of."""
        message = reference.message
        if not message.expiration or not message.is_expired(self._clock()):
            return False
        self.pending.take(reference, State.SETTLED)
        self._dead_letters.expire(message)
        self.forget(reference, None)
        return True

    def expire(self) -> None:
        """Let go of every waiting message that is past its time."""
        if not self._expirable:
            return
        self._expirable = False
        for reference in self.pending.scan():
            if not self.is_dead(reference) and reference.message.expiration:
                self._expirable = True
        self.pending.sweep()

    # ------------------------------------------------------------ source

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Journal that a message is done with."""
        raise NotImplementedError

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts."""
        reference.state = State.SETTLED

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Put references back into their places; those that may have been seen count as redelivered."""
        for reference in unseen:
            self.pending.restore(reference)
        if seen:
            suspect = min(seen, key=lambda reference: reference.sequence)
            suspect.suspected += 1
        for reference in seen:
            reference.redelivery_count += 1
            if 0 <= self._max_redeliveries < reference.suspected:
                self._give_up(reference)
            else:
                self.pending.restore(reference)
        self.dispatch()

    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference."""
        self._dead_letters.bury(reference.message, cause)
        self.forget(reference, None)
        reference.state = State.SETTLED

    def _give_up(self, reference: Reference) -> None:
        message = reference.message
        if not message.persistent:
            _log.warning(
                "%s from %s is dropped: its consumers left it %d times, and it is not persistent",
                message.message_id,
                message.destination,
                reference.suspected,
            )
        self.reject(reference, f"redelivered {self._max_redeliveries} times without an acknowledgement")
