"""The consumer of a bridge: what it acknowledges is counted as forwarded, and queues may filter what it gets."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.matcher import Matcher, matcher
from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId


class MessageFilter(Protocol):
    """Decides for one queue what a bridge gets, beside its own rules."""

    def may_forward(self) -> bool:
        """Return True if it may get one message more now."""
        ...

    def may_return(self, message: Message) -> bool:
        """Return True if it may get, now, a message that only the rule against loops keeps from it."""
        ...


class NetworkConsumer(BrokerConsumer):
    """A consumer of queues, or of a durable subscription, whose messages go to another broker.

    Attributes:
        on_returned: called with messages that the other broker has, and that it had before, while they are still stored
            here; None: nothing is called.
    """

    __slots__ = ("_filters", "_is_held", "_selects", "_unfiltered", "on_returned")

    def __init__(self, connection: Owner, request: ConsumerRequest, deliver: Deliver, *, prefetch: int) -> None:
        super().__init__(connection, request, deliver, prefetch=prefetch)
        self.on_returned: Callable[[Sequence[Message]], None] | None = None
        self._filters: dict[Destination, MessageFilter] = {}
        self._is_held = False
        self._selects: Matcher | None = None
        self._unfiltered: Matcher | None = None

    def add_filter(self, destination: Destination, message_filter: MessageFilter) -> None:
        """Have the queue of a destination filter what this consumer gets."""
        if not self._filters:  # until then, a message costs no more than without filters
            self._selects = matcher(self.request.selector)
            self._unfiltered, self._matches = self._matches, self._passes
        self._filters[destination] = message_filter

    def hold(self) -> None:
        """Get nothing until `unhold`, if this consumer has one queue, so that its backlog is not examined meanwhile."""
        if not self.request.composite and not self.request.destination.is_pattern:
            self._is_held = True
            self.window = 0

    def unhold(self) -> None:
        """End `hold`."""
        self._is_held = False
        self.resize()

    def resize(self) -> None:
        """Recompute the window."""
        super().resize()
        if self._is_held:
            self.window = 0

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle those of these deliveries that are outstanding, and count them as forwarded."""
        outstanding = self.outstanding
        references = [each for each in cast("Sequence[Reference]", deliveries) if each in outstanding]
        if len(references) <= PIECE_MAX:  # more are acknowledged in pieces, each of which comes here
            for reference in references:
                source = reference.source
                if isinstance(source, StoredSource):
                    source.forwarded += 1
            if self._filters:
                self._report_returned(references)
        super().acknowledge_all(references, transaction)

    def _report_returned(self, references: Sequence[Reference]) -> None:
        network, on_returned = self.request.network, self.on_returned
        if network is not None and on_returned is not None:
            remote_id, messages = network.remote_broker_id, [each.message for each in references]
            returned = [each for each in messages if each.bridge and remote_id in each.bridge.broker_path]
            if returned:
                on_returned(returned)

    def _passes(self, message: Message, redelivery_count: int) -> bool:
        """Return what `_matches` does, as the filter of the message's queue changes it."""
        unfiltered, network = self._unfiltered, self.request.network
        is_match = unfiltered is None or unfiltered(message, redelivery_count)
        message_filter = self._filters.get(message.destination)
        if message_filter is None:
            return is_match
        if is_match:
            return message_filter.may_forward()
        if network is None or network.may_return is None or not network.may_return(message):
            return False
        selects = self._selects
        if selects is not None and not selects(message, redelivery_count):
            return False
        return message_filter.may_return(message)
