"""Dead letters: messages that expired, were rejected or redelivered too often, or were dropped for a slow consumer.

The policy of the destination has a strategy (`policy.DeadLetterStrategy`); by default all dead letters go to the queue
`ActiveMQ.DLQ`.

```text
dead_letter, expire -> destination has no dead letters?           -> dropped
                       strategy drops everything?                 -> dropped
                       on its dead letter queue already?          -> dropped
                       non-persistent, and those are not kept?    -> dropped
                       expired, and those are not kept?           -> dropped
                       id sent to that queue before? (audit)      -> dropped
                       else: a dead letter                        -> the dead letter queue
```

A dead letter is a persistent copy of the message, with its id, priority, properties and body, on another destination.
Its original destination is the one that the message was on. Its properties have the cause (`dlqDeliveryFailureCause`),
the expiration of the message (`originalExpiration`), and its delivery mode if that was non-persistent
(`originalDeliveryMode`).

Source: ActiveMQ 5.17, `RegionBroker.sendToDeadLetterQueue`, `AbstractDeadLetterStrategy` and its subclasses. ActiveMQ
has one audit per strategy, this broker one per dead letter queue. So if two queues have copies of one message, for
example of a virtual topic, and a dead letter queue each, both copies are kept.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Protocol

from pybroker.broker.core.containment import FATAL, attempt
from pybroker.broker.core.log_aggregator import LogAggregator
from pybroker.broker.core.policy import (
    AnyDeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    SharedDeadLetterStrategy,
)
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.admin import DeadLetterCause
from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.linear_expression import LinearExpression
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import outline, to_message
from pybroker.broker.domain.openwire.rerouting import unread
from pybroker.broker.domain.openwire.values import Long, Value, encode_map
from pybroker.broker.domain.ports import Clock

_log = logging.getLogger(__name__)

DEAD_LETTER_QUEUE = queue("ActiveMQ.DLQ")
CAUSE_PROPERTY = "dlqDeliveryFailureCause"
EXPIRATION_PROPERTY = "originalExpiration"
DELIVERY_MODE_PROPERTY = "originalDeliveryMode"

_NAMES_KEPT = 1000

AUDITS_MAX = 10_000
"""Number of dead letter queues that have an audit; of more, the least recently used audit is deleted."""

Strategies = Callable[[Destination], AnyDeadLetterStrategy]
"""Returns the strategy of a destination."""

OnDeadLettered = Callable[[Message, Message | None, str], None]
"""A callback with the message, its dead letter (None if it was dropped), and the cause."""

OnExpired = Callable[[Message], None]
"""A callback with a message that has expired, after it was dead-lettered or dropped."""


class DeadLetterTarget(Protocol):
    """A destination that accepts messages."""

    def send(self, message: Message) -> object:
        """Store and dispatch a message."""
        ...


class Redeliverer(Protocol):
    """Redelivers messages of queues instead of dead-lettering them; see `redelivery`."""

    def count_of(self, message: Message) -> int:
        """Return how often a message was redelivered before it came to its queue this time."""
        ...

    def keeps(self, reference: Reference) -> bool | None:
        """Return True if a message would be redelivered, False if it would be dropped; None: it is not taken."""
        ...

    def takes(self, reference: Reference, cause: str, release: Callable[[Reference], None]) -> bool:
        """Redeliver or drop a message; return False if it is to be a dead letter, or dropped as one.

        Args:
            reference: the message, which no consumer gets any more.
            cause: why it would be a dead letter.
            release: releases the reference, once the message has left the queue.
        """
        ...


class DeadLetters:
    """Sends dead letters, or drops messages, by the strategy of their destination. Contents of a message never fail it.

    Attributes:
        on_dead_lettered: called after each message, sent or dropped.
        on_expired: called after each expired message.
        discarded: the destinations that have no dead letters; None: all may have some.
        redelivery: redelivers messages instead; None: there is none.
        aggregator: writes the log lines about these messages.
        sent: counts the dead letters that were sent, by cause; not those that were dropped.
        redelivered: counts the messages that came back from a consumer whose client may have seen them.
    """

    __slots__ = (
        "_audits",
        "_clock",
        "_fallback",
        "_places",
        "_strategies",
        "_target",
        "aggregator",
        "discarded",
        "on_dead_lettered",
        "on_expired",
        "redelivered",
        "redelivery",
        "sent",
    )

    def __init__(
        self,
        *,
        target: Callable[[Destination], DeadLetterTarget],
        clock: Clock,
        fallback: Callable[[Destination], DeadLetterTarget] | None = None,
        strategies: Strategies | None = None,
        on_dead_lettered: OnDeadLettered | None = None,
        on_expired: OnExpired | None = None,
    ) -> None:
        self._target = target
        self._fallback = fallback or target
        self._clock = clock
        self._strategies: Strategies = strategies or _shared
        self._audits: OrderedDict[Destination, Audit] = OrderedDict()
        self._places: OrderedDict[Destination, None] = OrderedDict()
        """The destinations to which dead letters were sent, the most recent at the end; as many as audits."""
        self.on_dead_lettered = on_dead_lettered
        self.on_expired = on_expired
        self.aggregator = LogAggregator(_log)
        self.sent: Counter[DeadLetterCause] = Counter()
        self.redelivered = 0
        self.redelivery: Redeliverer | None = None
        self.discarded: DiscardedLetters | None = None

    def dead_letter(
        self,
        message: Message,
        cause: str,
        *,
        subscription_key: str | None = None,
        kind: DeadLetterCause = DeadLetterCause.UNDELIVERABLE,
    ) -> None:
        """Send the dead letter of a message, unless the strategy drops it. The caller removes the message afterwards.

        Args:
            message: the message, on the destination where it failed.
            cause: the cause, which is a property of the dead letter.
            subscription_key: the durable subscription in whose backlog it was; None on a queue.
            kind: the kind of cause, for counts.
        """
        self._dead_letter(message, cause, subscription_key, kind, is_expired=message.is_expired(self._clock()))

    def expire(self, message: Message, *, subscription_key: str | None = None) -> None:
        """Send the dead letter of an expired message, unless the strategy drops it."""
        cause = f"java.lang.Throwable: Message Expired. Expiration:{message.expiration}"
        self._dead_letter(message, cause, subscription_key, DeadLetterCause.EXPIRED, is_expired=True)
        if self.on_expired is not None:
            attempt(partial(self.on_expired, message), "announcing an expired message", message)

    def keeps(self, message: Message) -> bool:
        """Return True if there are dead letters of a message's destination, and it may be one of them."""
        return self._keeping_strategy(message, is_expired=message.is_expired(self._clock())) is not None

    def forget(self, place: Destination, message_id: str) -> None:
        """Forget that a message was sent to a dead letter queue: it has left it, and may come there again."""
        if (audit := self._audits.get(place)) is not None:
            audit.discard(message_id)

    def gets_letters(self, destination: Destination) -> bool:
        """Return True if a dead letter was sent to a destination by this master."""
        return destination in self._places

    # ------------------------------------------------------------ private

    def _dead_letter(
        self, message: Message, cause: str, subscription_key: str | None, kind: DeadLetterCause, *, is_expired: bool
    ) -> None:
        letter = self._letter(message, cause, subscription_key, is_expired=is_expired)
        if letter is not None:
            self.sent[kind] += 1
        if self.on_dead_lettered is not None:
            attempt(partial(self.on_dead_lettered, message, letter, cause), "announcing a dead letter", message)

    def _letter(
        self, message: Message, cause: str, subscription_key: str | None, *, is_expired: bool
    ) -> Message | None:
        """Send and return the dead letter of a message; return None if the message is dropped."""
        strategy = self._keeping_strategy(message, is_expired=is_expired)
        if strategy is None:
            _log.debug("dropped %s from %s: %s", message.message_id, message.destination, cause)
            return None
        place = strategy.place_for(message.destination, subscription_key)
        audit = self._audit(place, strategy) if strategy.enable_audit else None
        if audit is not None and message.message_id in audit:
            where = f"from {message.destination}, on {place} already"
            self.aggregator.record("dropped", message.message_id, where, cause)
            return None
        expiration = self._clock() + strategy.expiration if strategy.expiration else 0
        letter = self._send_or_fall_back(message, place, cause, expiration)
        if audit is not None:
            audit.add(message.message_id)
        return letter

    def _keeping_strategy(
        self, message: Message, *, is_expired: bool
    ) -> SharedDeadLetterStrategy | IndividualDeadLetterStrategy | None:
        """Return the strategy that keeps a message as a dead letter; None if it is to be dropped."""
        strategy = self._strategies(message.destination)
        if self.discarded is not None and self.discarded.drops(message.destination):
            return None
        if isinstance(strategy, DiscardingDeadLetterStrategy) or not _keeps(strategy, message, is_expired):
            return None
        return strategy

    def _send_or_fall_back(self, message: Message, place: Destination, cause: str, expiration: int) -> Message:
        """Send a dead letter to its destination. If that fails, send it directly to the queue `ActiveMQ.DLQ`.

        Raises:
            StoreError, LockError, OSError: the store or the lock has failed, which no message causes.
        """
        try:
            return self._send(message, self._target(place), place, cause, expiration)
        except Exception as error:  # for example, too many destinations, or a name too long
            if isinstance(error, FATAL):
                raise
            _log.error(
                "%s goes to %s, because %s cannot have it: %s", message.message_id, DEAD_LETTER_QUEUE, place, error
            )
        return self._send(message, self._fallback(DEAD_LETTER_QUEUE), DEAD_LETTER_QUEUE, cause, expiration)

    def _send(
        self, message: Message, target: DeadLetterTarget, place: Destination, cause: str, expiration: int
    ) -> Message:
        try:
            letter = dead_letter_copy(message, place, cause, expiration)
        except Exception as error:  # caused by the message, which does not decode or encode
            _log.error(
                "%s from %s is dead-lettered as it is, without saying why, since it cannot be made again: %s",
                message.message_id,
                message.destination,
                error,
            )
            letter = _as_it_is(message, place, expiration)
        target.send(letter)
        self._places[place] = None
        self._places.move_to_end(place)
        if len(self._places) > AUDITS_MAX:
            self._places.popitem(last=False)
        self.aggregator.record("dead-lettered", message.message_id, f"from {message.destination} to {place}", cause)
        return letter

    def _audit(self, place: Destination, strategy: AnyDeadLetterStrategy) -> "Audit":
        audit = self._audits.get(place)
        if audit is None:
            audit = self._audits[place] = Audit(strategy.max_audit_depth, strategy.max_producers_to_audit)
            if len(self._audits) > AUDITS_MAX:
                self._audits.popitem(last=False)
        else:
            self._audits.move_to_end(place)
        return audit


def _as_it_is(message: Message, place: Destination, expiration: int) -> Message:
    try:
        return unread(message, place, expiration)
    except MalformedOpenWire:  # not sent by a client; the stored bytes are kept as they are
        return replace(message, destination=place, expiration=expiration, decoded=None)


def _shared(destination: Destination) -> AnyDeadLetterStrategy:
    return _SHARED


_SHARED = SharedDeadLetterStrategy()


def _keeps(
    strategy: SharedDeadLetterStrategy | IndividualDeadLetterStrategy, message: Message, is_expired: bool
) -> bool:
    return not (
        strategy.is_place(message.destination)
        or (not message.persistent and not strategy.process_non_persistent)
        or (is_expired and not strategy.process_expired)
    )


def dead_letter_copy(message: Message, place: Destination, cause: str, expiration: int = 0) -> Message:
    """Return the copy of a message that goes to a dead letter queue.

    Args:
        message: the message.
        place: the dead letter queue.
        cause: why the message is dead-lettered.
        expiration: when the dead letter itself expires, in milliseconds since the epoch; 0: never. Only then it has the
            property `originalExpiration`.

    Raises:
        MalformedOpenWire: the message does not decode.
    """
    original = outline(message)
    properties: dict[str, Value] = dict(original.properties)
    if not expiration:
        properties.setdefault(EXPIRATION_PROPERTY, Long(original.expiration))
    if not original.persistent:
        properties[DELIVERY_MODE_PROPERTY] = "NON_PERSISTENT"
    properties[CAUSE_PROPERTY] = cause
    return to_message(
        replace(
            original,
            destination=place,
            original_destination=message.destination,
            transaction_id=None,
            expiration=expiration,
            persistent=True,
            redelivery_counter=0,
            marshalled_properties=encode_map(properties),
        )
    )


@dataclass(frozen=True, kw_only=True)
class DiscardedLetters:
    """Which destinations have no dead letters, whatever their strategies (ActiveMQ's `discardingDLQBrokerPlugin`).

    Attributes:
        drop_all: none has.
        drop_temporary_topics: temporary topics have none.
        drop_temporary_queues: temporary queues have none.
        drop_only: destinations whose whole name one of these matches have none.
    """

    drop_all: bool = True
    drop_temporary_topics: bool = True
    drop_temporary_queues: bool = True
    drop_only: tuple[LinearExpression, ...] = ()

    def drops(self, destination: Destination) -> bool:
        """Return True if a destination has no dead letters."""
        if self.drop_all:
            return True
        if destination.is_temporary:
            is_dropped = self.drop_temporary_queues if destination.is_queue else self.drop_temporary_topics
            return is_dropped or self._is_named(destination.name)
        return self._is_named(destination.name)

    @cached_property
    def _is_named(self) -> Callable[[str], bool]:
        """Returns True for a name that one of the expressions matches; keeps the results of the last names."""

        @lru_cache(_NAMES_KEPT)
        def is_named(name: str) -> bool:
            return any([pattern.matches(name) for pattern in self.drop_only])

        return is_named


class Audit:
    """Remembers message ids: the last sequence numbers of the producers added last.

    It keeps one integer per producer, whose bit n stands for the sequence number `newest - n`. An id that is too old
    for that counts as not seen: a dead letter may be kept twice, but is not lost.
    """

    __slots__ = ("_depth", "_producers", "_producers_max")

    def __init__(self, depth: int, producers: int) -> None:
        self._depth = depth
        self._producers_max = producers
        self._producers: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __contains__(self, message_id: str) -> bool:
        producer, sequence = _split(message_id)
        newest, seen = self._producers.get(producer, (sequence, 0))
        return sequence <= newest and bool(seen >> (newest - sequence) & 1)

    def discard(self, message_id: str) -> None:
        """Remove an id, which may come again."""
        producer, sequence = _split(message_id)
        newest, seen = self._producers.get(producer, (sequence, 0))
        if sequence <= newest and seen:
            self._producers[producer] = newest, seen & ~(1 << (newest - sequence))

    def add(self, message_id: str) -> None:
        """Add an id."""
        producer, sequence = _split(message_id)
        newest, seen = self._producers.pop(producer, (sequence, 0))
        if sequence > newest:
            seen = seen << (sequence - newest) if sequence - newest < self._depth else 0
            newest = sequence
        seen |= 1 << (newest - sequence) if newest - sequence < self._depth else 0
        self._producers[producer] = newest, seen & ((1 << self._depth) - 1)
        if len(self._producers) > self._producers_max:
            self._producers.popitem(last=False)


def _split(message_id: str) -> tuple[str, int]:
    """Return the producer and the sequence number of an id, `<connection id>:<session>:<producer>:<sequence>`."""
    producer, _, sequence = message_id.rpartition(":")
    return producer, int(sequence)
