"""One message's place in one backlog, and what that backlog does with it in the end.

A queue makes one reference per message and hands it to one consumer at a time; a topic makes one per subscription.
"""

import enum
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.transaction import TransactionId


class State(enum.Enum):
    """Where a reference stands in its backlog."""

    PENDING = "waits for a consumer"
    DISPATCHED = "sent to a consumer, not settled"
    SETTLED = "acknowledged, dead-lettered, expired or purged"


class Reference(Delivery):
    """A message in a backlog.

    Attributes:
        source: the backlog it belongs to.
        sequence: its place there; a returned reference goes back to its place.
        delivery: how many deliveries its connection had got with it, when it was delivered last: its place among them.
        strikes: how often its consumer left while it was the oldest one outstanding: the one it was at.
        state: see `State`.
    """

    __slots__ = ("delivery", "sequence", "source", "state", "strikes")

    def __init__(self, message: Message, source: "Origin", sequence: int, redelivery_count: int = 0) -> None:
        self.message, self.redelivery_count = message, redelivery_count  # one is made for every message: no super()
        self.source = source
        self.sequence = sequence
        self.delivery = 0
        self.strikes = 0
        self.state = State.PENDING


class Origin(metaclass=ABCMeta):
    """The backlog that a reference belongs to, which decides what becomes of it; consumers see it as `Source`.

    Abstract by its metaclass, like `Owner` and `Host`: to mypyc a class derived from `ABC` is not wholly native, and it
    checks each access to an attribute.
    """

    __slots__ = ()

    @abstractmethod
    def forget(self, reference: Reference, transaction: TransactionId | None, consumed_by: str | None) -> None:
        """Have the store forget a message, in a transaction or at once. The reference is not touched.

        Args:
            reference: to what.
            transaction: with whose commit.
            consumed_by: the connection id of its consumer; None: it was dead-lettered, or expired.
        """

    @abstractmethod
    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts."""

    @abstractmethod
    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Take back references a consumer leaves unsettled: those it may have seen, and those it cannot have."""

    @abstractmethod
    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference a consumer gave up on."""

    @abstractmethod
    def expire(self, reference: Reference) -> None:
        """Let go of a reference that a consumer found to be past its time."""
