"""A reference: one message in one backlog, with its delivery state.

A queue creates one reference per message, and delivers it to one consumer at a time. A topic creates one per
subscription.
"""

import enum
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence

from pybroker.broker.domain.admin import DeadLetterCause
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.ports import RemovalReason
from pybroker.broker.domain.transaction import TransactionId


class ReferenceState(enum.Enum):
    """The state of a reference in its backlog."""

    PENDING = "waits for a consumer"
    DISPATCHED = "delivered to a consumer, and not settled"
    SETTLED = "acknowledged, dead-lettered, expired or purged"


class Reference(Delivery):
    """A message in a backlog. What came over a bridge counts at least as many redeliveries as on its way.

    Attributes:
        source: the backlog.
        sequence: its position in the backlog, to which it returns if it is not settled.
        delivery: the number of its last delivery, counted by the connection, or by a consumer that only counts.
        strikes: how often a consumer closed while this was its oldest outstanding message, and so probably the one that
            it was processing.
        state: its delivery state.
    """

    __slots__ = ("delivery", "sequence", "source", "state", "strikes")

    def __init__(self, message: Message, source: "Origin", sequence: int, redelivery_count: int = 0) -> None:
        self.message, self.redelivery_count = message, redelivery_count  # without super(): called for every message
        if message.bridge is not None and message.bridge.redelivery_counter > redelivery_count:
            self.redelivery_count = message.bridge.redelivery_counter
        self.source = source
        self.sequence = sequence
        self.delivery = 0
        self.strikes = 0
        self.state = ReferenceState.PENDING


class Origin(metaclass=ABCMeta):
    """The backlog of a reference, which settles, restores or dead-letters it; to consumers it is a `DeliverySource`.

    Like `Owner` and `Host`, it is abstract by its metaclass and does not derive from `ABC`: mypyc compiles a class that
    derives from `ABC` as not fully native, and then checks each access to an attribute.
    """

    __slots__ = ()

    @abstractmethod
    def forget(
        self, reference: Reference, transaction: TransactionId | None, reason: RemovalReason, connection_id: str = ""
    ) -> None:
        """Append the removal of a message to the store. The reference is not changed.

        Args:
            reference: the message.
            transaction: the transaction with whose commit the removal takes effect; None: at once.
            reason: why it is removed.
            connection_id: the connection of the consumer that acknowledged it; empty: there is none.
        """

    @abstractmethod
    def settle(self, reference: Reference) -> None:
        """Mark a reference as settled: its acknowledgement has taken effect."""

    @abstractmethod
    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Insert unsettled references of a consumer again: those that its client may have seen, and the others."""

    @abstractmethod
    def reject(self, reference: Reference, cause: str, kind: DeadLetterCause = DeadLetterCause.REJECTED) -> None:
        """Dead-letter a message that a consumer rejected."""

    @abstractmethod
    def expire(self, reference: Reference) -> None:
        """Remove an expired message."""

    @abstractmethod
    def drop_body(self, reference: Reference, bodiless: dict[str, BodilessMessage]) -> None:
        """Remove the body of a delivered message from memory if it can be read back.

        Args:
            reference: a delivery that has left the process.
            bodiless: messages without body, by id, that other subscriptions hold; see `delivered`.
        """
