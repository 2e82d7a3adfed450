"""What a queue and a durable subscription have in common: a backlog in order, whose messages the store keeps.

What a consumer leaves unsettled comes back to its old place. Suspicion falls on one reference at a time: the oldest
that its consumer had really been sent when it left is the one it was at; the rest of its window is innocent. A message
that was the suspect too often is dead-lettered.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.pending import pending
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import TransactionId

if TYPE_CHECKING:
    from pybroker.broker.core.consumer import Consumer

_log = logging.getLogger(__name__)

_SETTLED = State.SETTLED

_NEVER = 2**63
"""Later than any time a message may name."""


class StoredSource:
    """A backlog (`Source`) with a store behind it; says nothing of who gets what."""

    __slots__ = (
        "_clock",
        "_dead_letters",
        "_next_expiry",
        "_next_sequence",
        "_store",
        "_subscription_key",
        "pending",
        "policy",
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
        self.pending = pending(prioritized=policy.prioritized_messages)
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._next_sequence: int = 0
        self._subscription_key = subscription_key
        self._next_expiry = _NEVER
        """No message that waits is over before."""

    def dispatch(self, consumer: "Consumer | None" = None) -> None:
        """Deliver what there is room for, to one consumer that got room, or to all."""
        raise NotImplementedError

    def detach(self, consumer: "Consumer") -> None:
        """Let a consumer go."""
        raise NotImplementedError

    def in_flight(self) -> list[Reference]:
        """Return what consumers hold unsettled, oldest first."""
        raise NotImplementedError

    def is_dead(self, reference: Reference) -> bool:
        """Tell whether a waiting reference is past its time; if so it is let go of."""
        if not self.is_over(reference.message):
            return False
        self.pending.take(reference, _SETTLED)
        self.expired(reference)
        return True

    def is_over(self, message: Message) -> bool:
        """Tell whether a message is past its time."""
        return message.expiration > 0 and message.is_expired(self._clock())

    def expire(self) -> None:
        """Let go of every waiting message that is past its time. Looks at them only if one may be."""
        if self._clock() <= self._next_expiry:
            return
        self._next_expiry = _NEVER
        for reference in self.pending.scan():
            if not self.is_dead(reference):
                self._note_expiry(reference.message)
        self.pending.sweep()

    def _note_expiry(self, message: Message) -> None:
        if 0 < message.expiration < self._next_expiry:
            self._next_expiry = message.expiration

    # ------------------------------------------------------------ source

    def forget(self, reference: Reference, transaction: TransactionId | None, *, consumed: bool = True) -> None:
        """Journal that a message is done with: consumed, or dead-lettered or expired."""
        raise NotImplementedError

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts, and what it took in memory."""
        raise NotImplementedError

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Put references back into their places; those that may have been seen count as redelivered."""
        max_redeliveries = self.policy.max_redeliveries
        returned = list(unseen)
        if seen:
            suspect = min(seen, key=lambda reference: reference.sequence)
            suspect.suspected += 1
        for reference in seen:
            reference.redelivery_count += 1
            if 0 <= max_redeliveries < reference.suspected:
                self._give_up(reference)
            else:
                returned.append(reference)
        for reference in returned:
            self._note_expiry(reference.message)
        self.pending.restore(returned)
        self.dispatch()

    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference."""
        self._dead_letters.bury(reference.message, cause, subscription_key=self._subscription_key)
        self.forget(reference, None, consumed=False)
        self.settle(reference)

    def expired(self, reference: Reference) -> None:
        """Let go of a reference that is past its time."""
        self._dead_letters.expire(reference.message, subscription_key=self._subscription_key)
        self.forget(reference, None, consumed=False)
        self.settle(reference)

    def _give_up(self, reference: Reference) -> None:
        message = reference.message
        if not message.persistent:
            _log.warning(
                "%s from %s is dropped: its consumers left it %d times, and it is not persistent",
                message.message_id,
                message.destination,
                reference.suspected,
            )
        self.reject(reference, f"redelivered {self.policy.max_redeliveries} times without an acknowledgement")
