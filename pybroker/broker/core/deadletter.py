"""Where messages go that nobody could use: expired, rejected, redelivered too often.

As ActiveMQ's shared dead letter strategy: a persistent message moves to the queue `ActiveMQ.DLQ` with its id, priority,
properties and body, and says where it was and why it is there; a non-persistent one is dropped. A message that dies on
the dead letter queue itself is dropped too, and so is a second copy while the first is still there.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import to_message, view
from pybroker.broker.domain.openwire.values import Long, encode_map
from pybroker.broker.domain.ports import Clock

_log = logging.getLogger(__name__)

DEAD_LETTER_QUEUE = queue("ActiveMQ.DLQ")
CAUSE_PROPERTY = "dlqDeliveryFailureCause"
EXPIRATION_PROPERTY = "originalExpiration"


class Target(Protocol):
    """A destination that takes messages."""

    def send(self, message: Message) -> None:
        """Store and hand out."""
        ...


class DeadLetters:
    """The dead letter strategy: one shared queue."""

    __slots__ = ("_clock", "_target")

    def __init__(self, *, target: Callable[[Destination], Target], clock: Clock) -> None:
        self._target = target
        self._clock = clock

    def bury(self, message: Message, cause: str) -> None:
        """Move a message to the dead letter queue if it is one that is kept. The caller has it removed afterwards."""
        if not message.persistent or message.destination == DEAD_LETTER_QUEUE:
            _log.debug("dropped %s from %s: %s", message.message_id, message.destination, cause)
            return
        _log.info("dead-lettered %s from %s: %s", message.message_id, message.destination, cause)
        try:
            letter = dead_letter(message, cause)
        except MalformedOpenWire as error:
            _log.error(
                "%s is dead-lettered as it is, without saying why: it does not decode: %s", message.message_id, error
            )
            letter = replace(message, destination=DEAD_LETTER_QUEUE, decoded=None)
        self._target(DEAD_LETTER_QUEUE).send(letter)

    def expire(self, message: Message) -> None:
        """Bury a message that outlived its time."""
        self.bury(message, f"Message Expired. Expiration:{message.expiration}")


def dead_letter(message: Message, cause: str) -> Message:
    """Return the copy that goes to the dead letter queue: same id, no expiration, original destination and cause."""
    original = view(message)
    properties = dict(original.properties)
    properties[CAUSE_PROPERTY] = cause
    properties.setdefault(EXPIRATION_PROPERTY, Long(original.expiration))
    return to_message(
        replace(
            original,
            destination=DEAD_LETTER_QUEUE,
            original_destination=message.destination,
            transaction_id=None,
            expiration=0,
            persistent=True,
            redelivery_counter=0,
            marshalled_properties=encode_map(properties),
        )
    )
