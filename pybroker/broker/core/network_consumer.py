"""The consumer of a bridge: what it acknowledges is counted as forwarded."""

from collections.abc import Sequence
from typing import cast

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.transaction import TransactionId


class NetworkConsumer(BrokerConsumer):
    """A consumer of queues, or of a durable subscription, whose messages go to another broker."""

    __slots__ = ()

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle deliveries that are outstanding, and count them as forwarded."""
        references = cast("Sequence[Reference]", deliveries)
        if len(references) <= PIECE_MAX:  # more are acknowledged in pieces, each of which comes here
            for reference in references:
                source = reference.source
                if isinstance(source, StoredSource):
                    source.forwarded += 1
        super().acknowledge_all(deliveries, transaction)
