"""A consumer: its window over one or more backlogs, and what it holds unsettled.

At most `window` references are outstanding: the prefetch, and what the client was granted beyond it because it settles
later what it has taken already (OpenWire's DELIVERED ack). With a prefetch of 0 every delivery is pulled. An
acknowledgement in a transaction opens the window at once but settles at the commit; after a roll-back the reference is
outstanding again, without being delivered again: a JMS client redelivers from its own memory, and a STOMP client of
ActiveMQ has never got anything else.
"""

from abc import ABCMeta, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Final, cast

from pybroker.broker.core.containment import contain
from pybroker.broker.core.reference import Origin, Reference
from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.errors import ClientError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId

_delivery: Final = attrgetter("delivery")


class Owner(metaclass=ABCMeta):
    """The connection that consumers and transactions belong to, as far as they know it.

    Attributes:
        connection_id: which.
        client_id: whose; a durable subscription belongs to it.
        delivery_count: how many messages its consumers were given.
        flushed: how many of them have left the process.
        is_held: nothing may be delivered: the client does not read, or is gone, or the broker is stopping.
    """

    def __init__(self, connection_id: str, client_id: str, *, is_held: bool = False) -> None:
        self.connection_id = connection_id
        self.client_id = client_id
        self.delivery_count = 0
        self.flushed = 0
        self.is_held = is_held

    @abstractmethod
    def add_acknowledgements(
        self, consumer: "Consumer", references: Sequence[Reference], transaction: TransactionId
    ) -> None:
        """Add acknowledgements to a transaction, before the store learns of them.

        Raises:
            TransactionError: nothing can be added to it; `UnknownTransaction`: it is not open.
        """

    @abstractmethod
    def forget(self, consumer: "Consumer") -> None:
        """Drop a consumer that closed."""

    @abstractmethod
    def drop_transaction(self, transaction: TransactionId) -> None:
        """Drop a transaction that is over, or prepared."""


class Source(Origin):
    """A backlog that consumers take from: a queue, a subscription, a browser's snapshot."""

    __slots__ = ()

    @abstractmethod
    def dispatch(self, consumer: "Consumer | None" = None) -> None:
        """Deliver what there is room for, to one consumer that got room, or to all."""

    @abstractmethod
    def detach(self, consumer: "Consumer") -> None:
        """Let a consumer go; what it holds comes back by `restore`."""


class Consumer:
    """One subscription of one connection; implements the port of that name.

    Attributes:
        outstanding: what was delivered and is not settled, in the order of delivery. An OrderedDict, because a dict
            steps over everything that was taken from its front to find what is there now.
        window: how many may be outstanding now; 0 while nothing may be delivered.
        sources: the backlogs it takes from.
        is_selective: some messages may not be for this consumer.
    """

    __slots__ = (
        "_granted",
        "_matches",
        "_pulled",
        "closed",
        "connection",
        "deliver",
        "is_selective",
        "outstanding",
        "prefetch",
        "request",
        "sources",
        "started",
        "window",
    )

    def __init__(self, connection: Owner, request: ConsumerRequest, deliver: Deliver, *, prefetch: int) -> None:
        self.connection = connection
        self.request = request
        self.deliver = deliver
        self.prefetch = prefetch
        self.outstanding: OrderedDict[Reference, None] = OrderedDict()
        self.window = 0
        self.sources: list[Source] = []
        self.started = False
        self.closed = False
        self._granted = 0
        self._pulled = 0
        self._matches = matcher(request.selector)
        self.is_selective = self._matches is not None or request.no_local

    @property
    def has_room(self) -> bool:
        """True when another message may be delivered now."""
        return len(self.outstanding) < self.window

    def accepts(self, message: Message, redelivery_count: int = 0) -> bool:
        """Tell whether the message is for this consumer: selector and `noLocal`."""
        if self.request.no_local and message.connection_id == self.connection.connection_id:
            return False
        return self._matches is None or self._matches(message, redelivery_count)

    def offer(self, reference: Reference) -> None:
        """Deliver a reference; the caller made sure of room and match."""
        self.outstanding[reference] = None
        connection = self.connection
        connection.delivery_count = reference.delivery = connection.delivery_count + 1
        if self._pulled:
            self._pulled -= 1
        try:
            self.deliver(reference)
        except Exception as error:  # whoever has it dispatched is not to suffer; it comes back when the consumer leaves
            contain(error, "delivering", reference.message)

    def dispatch(self) -> None:
        """Have every backlog deliver what there is room for, a different one first each time."""
        sources = self.sources
        if len(sources) > 1:
            sources.append(sources.pop(0))
        for source in sources:
            if len(self.outstanding) >= self.window:
                return
            source.dispatch(self)

    def reinstate(self, references: list[Reference]) -> None:
        """Hold references again, each in its place, whose acknowledgements were rolled back."""
        self.outstanding = OrderedDict.fromkeys(sorted([*references, *self.outstanding], key=_delivery))
        self.resize()

    def resize(self) -> None:
        """Work out the window anew."""
        if not self.started or self.connection.is_held:
            self.window = 0
        elif self.prefetch:
            self.window = self.prefetch + self._granted
        else:
            self.window = len(self.outstanding) + self._pulled

    def split(self, references: Iterable[Reference]) -> tuple[list[Reference], list[Reference]]:
        """Return those the client may have seen and the others.

        What was delivered after the connection's last flush never left the process: nobody can have seen it.
        """
        flushed = self.connection.flushed
        seen: list[Reference] = []
        unseen: list[Reference] = []
        for reference in references:
            (seen if reference.delivery <= flushed else unseen).append(reference)
        return seen, unseen

    # ------------------------------------------------------------ port

    def start(self) -> None:
        """Begin to deliver."""
        self.started = True
        self.resize()
        self.dispatch()

    def outstanding_through(self, first_id: str | None, last_id: str) -> Sequence[Reference]:
        """Return what is outstanding from one message id to another, in the order of delivery."""
        if first_id == last_id:
            for reference in self.outstanding:
                if reference.message.message_id == last_id:
                    return (reference,)
            return ()
        found: list[Reference] = []
        for reference in self.outstanding:
            message_id = reference.message.message_id
            if message_id == first_id:
                found.clear()
            found.append(reference)
            if message_id == last_id:
                return found if first_id is None or found[0].message.message_id == first_id else ()
        return ()

    def acknowledge(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle one delivery; one that is not outstanding is left alone."""
        if reference := self._held(delivery):
            self.acknowledge_all((reference,), transaction)

    def acknowledge_through(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones that are outstanding."""
        if reference := self._held(delivery):
            earlier = takewhile(lambda held: held is not reference, self.outstanding)
            self.acknowledge_all([*earlier, reference], transaction)

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle deliveries that are outstanding."""
        references = cast("Sequence[Reference]", deliveries)  # they came from here
        if transaction is not None:
            self.connection.add_acknowledgements(self, references, transaction)
        outstanding, consumed_by = self.outstanding, self.connection.connection_id
        for reference in references:
            del outstanding[reference]
            source = reference.source
            source.forget(reference, transaction, consumed_by)
            if transaction is None:
                source.settle(reference)
        self._settled(len(references))

    def acknowledge_each(self, message_ids: Sequence[str]) -> Sequence[str]:
        """Settle deliveries that are named by their messages, each by itself; return those that are not outstanding."""
        oldest: list[Reference] = []
        for reference, message_id in zip(self.outstanding, message_ids, strict=False):
            if reference.message.message_id != message_id:
                break
            oldest.append(reference)
        if oldest:
            self.acknowledge_all(oldest)
        strange: list[str] = []
        for message_id in message_ids[len(oldest) :]:  # a client that does not settle in the order of delivery
            if references := self.outstanding_through(message_id, message_id):
                self.acknowledge_all(references)
            else:
                strange.append(message_id)
        return strange

    def grant(self, count: int) -> None:
        """Widen the window until the next acknowledgements, by no more than is outstanding."""
        if self.prefetch:
            self._granted = min(self._granted + max(count, 0), len(self.outstanding))
            self.resize()
            self.dispatch()

    def unsettled(self) -> Iterable[Reference]:
        """Return what is outstanding, in the order of delivery."""
        return self.outstanding

    def pull(self, count: int = 1) -> None:
        """Allow so many more deliveries to a consumer whose prefetch is 0."""
        self._pulled = count
        self.resize()
        self.dispatch()

    def set_prefetch(self, prefetch: int) -> None:
        """Change the window."""
        self.prefetch = prefetch
        self.resize()
        self.dispatch()

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
            self._settled(1)

    def expire(self, delivery: Delivery) -> None:
        """Let go of a delivery the client found to be past its time."""
        if reference := self._held(delivery):
            del self.outstanding[reference]
            reference.source.expire(reference)
            self._settled(1)

    def requeue(self, delivery: Delivery) -> None:
        """Put a delivery back into its place, to be delivered again."""
        if reference := self._held(delivery):
            del self.outstanding[reference]
            reference.source.restore((), (reference,))
            self._settled(1)

    def close(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> None:
        """End the subscription; what is outstanding goes back, counted as redelivered if it may have been seen."""
        if self.closed:
            return
        self.closed = True
        self.started = False
        self.window = 0
        for source in self.sources:
            source.detach(self)
        self.connection.forget(self)
        references = list(self.outstanding)
        if delivered_none:
            seen, unseen = [], references
        elif isinstance(last_delivered, Reference) and last_delivered in self.outstanding:
            count = references.index(last_delivered) + 1
            seen, unseen = references[:count], references[count:]
        else:
            seen, unseen = self.split(references)
        self.outstanding.clear()
        _restore(seen, unseen)

    # ------------------------------------------------------------ private

    def _held(self, delivery: Delivery) -> Reference | None:
        """Return the reference behind a handle if it is outstanding here."""
        return delivery if isinstance(delivery, Reference) and delivery in self.outstanding else None

    def _settled(self, count: int) -> None:
        """Use the room that settled deliveries have left."""
        if self._granted:
            self._granted = max(0, self._granted - count)
            self.resize()
        elif not self.prefetch:
            self.resize()
        self.dispatch()


Matcher = Callable[[Message, int], bool]
"""A compiled selector: message and redelivery count in, match or not out."""


def matcher(selector: str | None) -> Matcher | None:
    """Return the compiled selector, or None for one that is absent or blank and lets everything through.

    Raises:
        InvalidSelector: it cannot be parsed.
    """
    return compile_selector(selector).matches if selector and not selector.isspace() else None


def reinstate(held: Mapping[Consumer | None, list[Reference]]) -> None:
    """Have consumers hold again what they had acknowledged; what those held that left goes back to the backlogs.

    It goes back in one go, so that a backlog sees the order of all of it before it hands any of it out.

    Args:
        held: by consumer; None: those of an earlier process, whose clients have seen it.
    """
    seen: list[Reference] = []
    unseen: list[Reference] = []
    for consumer, references in held.items():
        if consumer is None:
            seen += references
        elif consumer.closed:
            for part, whole in zip(consumer.split(references), (seen, unseen), strict=True):
                whole += part
        else:
            consumer.reinstate(references)
    _restore(seen, unseen)


def _restore(seen: list[Reference], unseen: list[Reference]) -> None:
    """Give references back to their backlogs, each backlog in one go so that it sees their order."""
    by_origin: dict[Origin, tuple[list[Reference], list[Reference]]] = {}
    for index, references in enumerate((seen, unseen)):
        for reference in references:
            by_origin.setdefault(reference.source, ([], []))[index].append(reference)
    for origin, parts in by_origin.items():
        origin.restore(*parts)
