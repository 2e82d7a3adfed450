"""A consumer whose outstanding deliveries are only counted: of a topic without a durable subscription, or of a browser.

An acknowledgement of such a consumer only makes space in its window: a topic keeps no message for it, and a browser
consumes none. So the consumer keeps the number of its outstanding deliveries, not the deliveries, and a full
window takes no memory, however wide it is. A client that acknowledges a wide window at once, as Java's with
`DUPS_OK_ACKNOWLEDGE` or `optimizeAcknowledge`, always gets the whole window.

Which deliveries an acknowledgement names is therefore not checked, only that no more are acknowledged than are
outstanding. Source: ActiveMQ 5.17, `TopicSubscription.acknowledge`, which counts as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from pybroker.broker.core.consumer import BrokerConsumer, DeliverySource, Owner
from pybroker.broker.core.containment import contain
from pybroker.broker.core.piecewise import Steps
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.admin import DeadLetterCause
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.ports import Deliver, RemovalReason
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId

_COUNTED: Final = BodilessMessage(
    Message(message_id="", destination=queue("counted"), data=b"", persistent=False), broker_sequence=-1
)
"""Stands for the messages of deliveries that are only counted."""


class CountedAcknowledgement(Reference):
    """The acknowledgement of a number of deliveries, as an operation of a transaction.

    Attributes:
        count: the number.
    """

    __slots__ = ("count",)

    def __init__(self, source: DeliverySource, count: int) -> None:
        super().__init__(_COUNTED, source, 0)
        self.count = count


class CountedSource(DeliverySource):
    """A backlog for whose messages an acknowledgement, a rejection or the end of the consumer changes nothing."""

    __slots__ = ()

    def acknowledged(self, count: int) -> None:
        """Called after the acknowledgement of so many deliveries has taken effect."""

    def forget(
        self, reference: Reference, transaction: TransactionId | None, reason: RemovalReason, connection_id: str = ""
    ) -> None:
        """Do nothing: the store keeps no message for this backlog."""

    def settle(self, reference: Reference) -> None:
        """Count acknowledgements of a transaction that has committed."""
        if isinstance(reference, CountedAcknowledgement):
            self.acknowledged(reference.count)

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Do nothing: what was delivered does not return."""

    def reject(self, reference: Reference, cause: str, kind: DeadLetterCause = DeadLetterCause.REJECTED) -> None:
        """Do nothing: there is no dead letter, as in ActiveMQ. Other subscriptions have the message too."""

    def expire(self, reference: Reference) -> None:
        """Do nothing: what expired for this consumer may be alive for others."""

    def drop_body(self, reference: Reference, bodiless: dict[str, BodilessMessage]) -> None:
        """Do nothing: no delivered message is kept."""


class CountingConsumer(BrokerConsumer):
    """A consumer that counts its outstanding deliveries; `outstanding` stays empty.

    Attributes:
        in_flight: the number of outstanding deliveries.
    """

    __slots__ = ("in_flight",)

    def __init__(self, connection: Owner, request: ConsumerRequest, deliver: Deliver, *, prefetch: int) -> None:
        super().__init__(connection, request, deliver, prefetch=prefetch)
        self.in_flight = 0

    @property
    def outstanding_count(self) -> int:
        """The number of outstanding deliveries."""
        return self.in_flight

    def offer(self, reference: Reference) -> None:
        """Deliver a reference, which gets its number among the deliveries of this consumer; it is not kept."""
        self.offered_count = reference.delivery = self.offered_count + 1
        self.in_flight += 1
        if self._pulled:
            self._pulled -= 1
        try:
            self.deliver(reference)
        except Exception as error:  # must not fail the dispatch of others
            contain(error, "delivering", reference.message)

    def reinstate(self, references: list[Reference]) -> None:
        """Make deliveries outstanding again after their acknowledgements were rolled back."""
        acknowledgements = cast("list[CountedAcknowledgement]", references)  # the only kind that it makes
        count = sum([each.count for each in acknowledgements])
        self.in_flight += count
        self.acknowledged_count -= count
        self.resize()

    def delivered(self) -> Iterator[Reference]:
        """Iterate over nothing: no delivered message is kept."""
        return iter(())

    # ------------------------------------------------------------ port

    def outstanding_through(self, first_id: str | None, last_id: str) -> Sequence[Reference]:
        """Return nothing: no delivery is kept."""
        return ()

    def acknowledge(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle one delivery."""
        self.acknowledge_oldest(1, transaction)

    def acknowledge_through(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones that are outstanding.

        A later delivery that was rejected before counts as one of these; the next call corrects the number.
        """
        if isinstance(delivery, Reference):
            self.acknowledge_oldest(delivery.delivery - (self.offered_count - self.in_flight), transaction)

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle as many deliveries as these."""
        self.acknowledge_oldest(len(deliveries), transaction)

    def acknowledge_oldest(self, count: int, transaction: TransactionId | None = None) -> int:
        """Settle so many deliveries, or all if fewer are outstanding; return how many."""
        count = min(count, self.in_flight)
        if count <= 0:
            return 0
        if transaction is not None:
            acknowledgement = CountedAcknowledgement(self.sources[0], count)
            self.connection.add_acknowledgements(self, (acknowledgement,), transaction)
        self.in_flight -= count
        self.acknowledged_count += count
        if transaction is None:
            cast("CountedSource", self.sources[0]).acknowledged(count)
        self._settled(count)
        return count

    def acknowledge_each(self, message_ids: Sequence[str]) -> Sequence[str]:
        """Settle as many deliveries as these; return the ids beyond the number of outstanding ones."""
        count = self.acknowledge_oldest(len(message_ids))
        return message_ids[count:]

    def unsettled(self) -> Iterable[Reference]:
        """Return nothing: where the deliveries end makes no difference to the backlog."""
        return ()

    def tracked_bytes(self, references: Sequence[Reference]) -> int:
        """Return the memory that the transport keeps of deliveries that are acknowledged in a transaction."""
        acknowledgements = cast("Sequence[CountedAcknowledgement]", references)
        return self.request.tracked_bytes * sum([each.count for each in acknowledgements])

    def reject(self, delivery: Delivery, cause: str) -> None:
        """Settle one delivery."""
        self.acknowledge_oldest(1)

    def reject_all(self, deliveries: Sequence[Delivery], cause: str) -> None:
        """Settle as many deliveries as these."""
        self.acknowledge_oldest(len(deliveries))

    def release(self, deliveries: Sequence[Delivery], *, has_failed: bool = False, is_excluded: bool = False) -> None:
        """Settle as many deliveries as these: what was delivered does not return."""
        self.acknowledge_oldest(len(deliveries))

    def expire(self, delivery: Delivery) -> None:
        """Settle one delivery."""
        self.acknowledge_oldest(1)

    def expire_all(self, deliveries: Sequence[Delivery]) -> None:
        """Settle as many deliveries as these."""
        self.acknowledge_oldest(len(deliveries))

    def _giving_back(self, seen_to: int) -> Steps:
        """Return nothing: no delivery is kept."""
        return iter(())

    def _leave(self) -> None:
        """Leave the backlogs, which count what was outstanding, and the connection."""
        super()._leave()
        self.in_flight = 0
