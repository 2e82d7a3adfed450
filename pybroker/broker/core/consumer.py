"""A consumer: its window over one or more backlogs, and what it holds unsettled.

At most `prefetch` references are outstanding. An acknowledgement in a transaction opens the window at once but
settles at the commit; after a roll-back the reference is outstanding again, without being delivered again, as
ActiveMQ has it (STOMP transport, ACK in a transaction).
"""

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING

from pybroker.broker.core.reference import Reference, Source
from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.errors import ClientError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver, Delivery
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import LocalTransactionId

if TYPE_CHECKING:
    from pybroker.broker.core.connection import Connection


class Consumer:
    """One subscription of one connection; implements the port of that name."""

    __slots__ = (
        "_matches",
        "closed",
        "connection",
        "deliver",
        "outstanding",
        "prefetch",
        "request",
        "scanned",
        "sources",
        "started",
    )

    def __init__(self, connection: "Connection", request: ConsumerRequest, deliver: Deliver, *, prefetch: int) -> None:
        self.connection = connection
        self.request = request
        self.deliver = deliver
        self.prefetch = prefetch
        self.outstanding: dict[Reference, None] = {}
        self.sources: list[Source] = []
        self.started = False
        self.closed = False
        self.scanned: dict[Source, int] = {}
        """Per source the sequence up to which nothing that waits matches the selector."""
        self._matches = matcher(request.selector)

    @property
    def has_room(self) -> bool:
        """True when another message may be delivered now."""
        return self.started and len(self.outstanding) < self.prefetch and not self.connection.is_held

    @property
    def is_selective(self) -> bool:
        """True when some messages may not be for this consumer."""
        return self._matches is not None or self.request.no_local

    def accepts(self, message: Message, redelivery_count: int = 0) -> bool:
        """Tell whether the message is for this consumer: selector and `noLocal`."""
        if self.request.no_local and message.connection_id == self.connection.connection_id:
            return False
        return self._matches is None or self._matches(message, redelivery_count)

    def offer(self, reference: Reference) -> None:
        """Deliver a reference; the caller made sure of room and match."""
        self.outstanding[reference] = None
        reference.flush_count = self.connection.flush_count
        self.deliver(reference)

    def dispatch(self) -> None:
        """Have every backlog deliver what there is room for, a different one first each time."""
        if len(self.sources) > 1:
            self.sources.append(self.sources.pop(0))
        for source in self.sources:
            if not self.has_room:
                return
            source.dispatch()

    def take_back(self, references: list[Reference]) -> None:
        """Hold references again whose acknowledgements were rolled back; they are older than what came since."""
        if self.closed:
            _restore(references, self.connection.flush_count)
        else:
            self.outstanding = dict.fromkeys(references) | self.outstanding

    # ------------------------------------------------------------ port

    def start(self) -> None:
        """Begin to deliver."""
        self.started = True
        self.dispatch()

    def acknowledge(self, delivery: Delivery, transaction: LocalTransactionId | None = None) -> None:
        """Settle one delivery; one that is not outstanding is left alone."""
        if reference := self._held(delivery):
            self._acknowledge([reference], transaction)

    def acknowledge_through(self, delivery: Delivery, transaction: LocalTransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones that are outstanding."""
        if reference := self._held(delivery):
            earlier = takewhile(lambda held: held is not reference, self.outstanding)
            self._acknowledge([*earlier, reference], transaction)

    def reject(self, delivery: Delivery, cause: str) -> None:
        """Dead-letter one delivery.

        Raises:
            ClientError: this is a browser, which owns nothing it could give up.
        """
        if self.request.browser:
            raise ClientError("Cannot Nack a message on a Queue Browser Subscription.")
        if reference := self._held(delivery):
            del self.outstanding[reference]
            reference.source.reject(reference, cause)
            self.dispatch()

    def close(self) -> None:
        """End the subscription; what is outstanding goes back, counted as redelivered."""
        if self.closed:
            return
        self.closed = True
        self.started = False
        self.connection.forget(self)
        for source in self.sources:
            source.detach(self)
        references = list(self.outstanding)
        self.outstanding.clear()
        _restore(references, self.connection.flush_count)

    # ------------------------------------------------------------ private

    def _held(self, delivery: Delivery) -> Reference | None:
        """Return the reference behind a handle if it is outstanding here."""
        return delivery if isinstance(delivery, Reference) and delivery in self.outstanding else None

    def _acknowledge(self, references: list[Reference], transaction: LocalTransactionId | None) -> None:
        if transaction is not None:
            self.connection.transaction(transaction).acknowledged(self, references)
        for reference in references:
            del self.outstanding[reference]
            reference.source.forget(reference, transaction)
            if transaction is None:
                reference.source.settle(reference)
        self.dispatch()


Matcher = Callable[[Message, int], bool]
"""A compiled selector: message and redelivery count in, match or not out."""


def matcher(selector: str | None) -> Matcher | None:
    """Return the compiled selector, or None for one that is absent or blank and lets everything through.

    Raises:
        InvalidSelector: it cannot be parsed.
    """
    return compile_selector(selector).matches if selector and not selector.isspace() else None


def _restore(references: list[Reference], flush_count: int) -> None:
    """Give references back to their backlogs, each backlog in one go so that it sees their order.

    What was delivered after the connection's last flush never left the process: nobody can have seen it.
    """
    by_source: dict[Source, tuple[list[Reference], list[Reference]]] = {}
    for reference in references:
        seen, unseen = by_source.setdefault(reference.source, ([], []))
        (seen if reference.flush_count < flush_count else unseen).append(reference)
    for source, (seen, unseen) in by_source.items():
        source.restore(seen, unseen)
