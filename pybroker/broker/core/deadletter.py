"""Where messages go that nobody could use: expired, rejected, redelivered too often, pushed out.

What a destination's policy says decides (`policy.DeadLetterStrategy`); without one everything goes to the queue
`ActiveMQ.DLQ`.

```text
dead_letter, expire -> the strategy drops all?            -> dropped
                is it on its dead letter queue?    -> dropped
                non-persistent? (unless kept)      -> dropped
                expired? (if those are dropped)    -> dropped
                is its id there already? (audit)   -> dropped
                else: a letter -> the dead letter queue
```

A letter is the message with its id, priority, properties and body, persistent, on another destination. It says where
it was (original destination) and, in properties, why it is there (`dlqDeliveryFailureCause`), when it would have
expired (`originalExpiration`), and that it was not persistent (`originalDeliveryMode`).

Source: ActiveMQ 5.17, `RegionBroker.sendToDeadLetterQueue`, `AbstractDeadLetterStrategy` and its kinds. The audit is
one per dead letter queue here, where ActiveMQ has one per strategy: two queues' copies of a message (of a virtual
topic, say) that have a dead letter queue each both get there.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from pybroker.broker.core.containment import FATAL, attempt
from pybroker.broker.core.log_aggregator import LogAggregator
from pybroker.broker.core.policy import (
    AnyDeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    SharedDeadLetterStrategy,
)
from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import to_message, view
from pybroker.broker.domain.openwire.rerouting import unread
from pybroker.broker.domain.openwire.values import Long, Value, encode_map
from pybroker.broker.domain.ports import Clock

_log = logging.getLogger(__name__)

DEAD_LETTER_QUEUE = queue("ActiveMQ.DLQ")
CAUSE_PROPERTY = "dlqDeliveryFailureCause"
EXPIRATION_PROPERTY = "originalExpiration"
DELIVERY_MODE_PROPERTY = "originalDeliveryMode"

AUDITS_MAX = 10_000
"""Dead letter queues whose letters are remembered; beyond, those used longest ago are forgotten."""

Strategies = Callable[[Destination], AnyDeadLetterStrategy]
"""The strategy of a destination."""

OnDeadLettered = Callable[[Message, Message | None, str], None]
"""Told of a message, its letter or None if there was none, and the cause."""

OnExpired = Callable[[Message], None]
"""Told of a message whose time was over, after it was buried."""


class Target(Protocol):
    """A destination that takes messages."""

    def send(self, message: Message) -> None:
        """Store and hand out."""
        ...


class DeadLetters:
    """Keeps or drops what died, as the strategy of its destination says. Nothing that a message is makes a burial fail.

    Attributes:
        on_dead_lettered: called after each burial.
        on_expired: called after each burial of an expired message.
        aggregator: the lines of the log about what died.
    """

    __slots__ = (
        "_audits",
        "_clock",
        "_fallback",
        "_strategies",
        "_target",
        "aggregator",
        "on_dead_lettered",
        "on_expired",
    )

    def __init__(
        self,
        *,
        target: Callable[[Destination], Target],
        clock: Clock,
        fallback: Callable[[Destination], Target] | None = None,
        strategies: Strategies | None = None,
        on_dead_lettered: OnDeadLettered | None = None,
        on_expired: OnExpired | None = None,
    ) -> None:
        self._target = target
        self._fallback = fallback or target
        self._clock = clock
        self._strategies: Strategies = strategies or _shared
        self._audits: OrderedDict[Destination, Audit] = OrderedDict()
        self.on_dead_lettered = on_dead_lettered
        self.on_expired = on_expired
        self.aggregator = LogAggregator(_log)

    def dead_letter(self, message: Message, cause: str, *, subscription_key: str | None = None) -> None:
        """Move a message to its dead letter queue if it is one that is kept. The caller has it removed afterwards.

        Args:
            message: what died; its destination is where.
            cause: why, as it is told in the letter.
            subscription_key: the durable subscription it died in, if it was one.
        """
        self._dead_letter(message, cause, subscription_key, is_expired=message.is_expired(self._clock()))

    def expire(self, message: Message, *, subscription_key: str | None = None) -> None:
        """Bury a message that outlived its time."""
        cause = f"java.lang.Throwable: Message Expired. Expiration:{message.expiration}"
        self._dead_letter(message, cause, subscription_key, is_expired=True)
        if self.on_expired is not None:
            attempt(partial(self.on_expired, message), "telling of an expired message", message)

    # ------------------------------------------------------------ private

    def _dead_letter(self, message: Message, cause: str, subscription_key: str | None, *, is_expired: bool) -> None:
        letter = self._letter(message, cause, subscription_key, is_expired=is_expired)
        if self.on_dead_lettered is not None:
            attempt(partial(self.on_dead_lettered, message, letter, cause), "telling of a dead letter", message)

    def _letter(
        self, message: Message, cause: str, subscription_key: str | None, *, is_expired: bool
    ) -> Message | None:
        """Send a letter if one is due, and return it."""
        strategy = self._strategies(message.destination)
        if isinstance(strategy, DiscardingDeadLetterStrategy) or not _keeps(strategy, message, is_expired):
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

    def _send_or_fall_back(self, message: Message, place: Destination, cause: str, expiration: int) -> Message:
        """Send a letter to its place; to `ActiveMQ.DLQ` itself, past all that may stand before it, if that fails.

        Raises:
            StoreError, LockError, OSError: nothing can be stored any more. No message causes these.
        """
        try:
            return self._send(message, self._target(place), place, cause, expiration)
        except Exception as error:  # too many destinations, a name too long: no reason to lose the message
            if isinstance(error, FATAL):
                raise
            _log.error(
                "%s goes to %s, because %s cannot have it: %s", message.message_id, DEAD_LETTER_QUEUE, place, error
            )
        return self._send(message, self._fallback(DEAD_LETTER_QUEUE), DEAD_LETTER_QUEUE, cause, expiration)

    def _send(self, message: Message, target: Target, place: Destination, cause: str, expiration: int) -> Message:
        try:
            letter = dead_letter_copy(message, place, cause, expiration)
        except Exception as error:  # the message's fault: nothing else is touched here
            _log.error(
                "%s from %s is dead-lettered as it is, without saying why, since it cannot be made again: %s",
                message.message_id,
                message.destination,
                error,
            )
            letter = _as_it_is(message, place, expiration)
        target.send(letter)
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
    except MalformedOpenWire:  # made otherwise than by a client; what is stored is read back as it is
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
    """Return the copy that goes to a dead letter queue.

    Args:
        message: what died.
        place: where the letter goes.
        cause: why it died.
        expiration: when the letter is dead itself, in milliseconds since the epoch; 0: never, and only then the letter
            says when the message would have expired.

    Raises:
        MalformedOpenWire: the message's data do not decode.
    """
    original = view(message)
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


class Audit:
    """Remembers message ids: the last sequence numbers of the producers seen last.

    Per producer one integer, whose bit n stands for the sequence `newest - n`. What is older than its window counts as
    not seen: better a letter twice than none.
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

    def add(self, message_id: str) -> None:
        """Remember an id."""
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
