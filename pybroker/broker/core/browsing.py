"""The consumer of a queue browser, which remembers what it was sent in 16 bytes a message.

A browser consumes nothing: its acknowledgements only make space in its window. So of an outstanding delivery it keeps
the number, and the hash of the message id, by which a client acknowledges. The objects that another consumer keeps of a
delivery take some 500 bytes; fifty browsers with windows of 32,000 took a gigabyte.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, cast

from pybroker.broker.core.consumer import BrokerConsumer, DeliverySource, Owner
from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.core.piecewise import Steps
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.ports import Deliver
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId

_ITEM: Final = Struct("<q")
_ITEM_BYTES: Final = 8
_BROWSED: Final = BodilessMessage(
    Message(message_id="", destination=queue("browsed"), data=b"", persistent=False), broker_sequence=-1
)
"""Stands for a message whose delivery is only a number and a hash."""


class BrowsedDeliveries:
    """The outstanding deliveries of a browser: their numbers, which ascend, and the hashes of their message ids."""

    __slots__ = ("_hashes", "_numbers")

    def __init__(self) -> None:
        # Not arrays: a bytearray is found in quickly, and deletes its first bytes without moving the others.
        self._numbers = bytearray()
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._numbers) // _ITEM_BYTES

    def append(self, number: int, id_hash: int) -> None:
        """Add the newest delivery."""
        self._numbers += _ITEM.pack(number)
        self._hashes += _ITEM.pack(id_hash)

    def find(self, id_hash: int) -> int:
        """Return the index of the oldest delivery of a message; -1 if there is none."""
        hashes, wanted = self._hashes, _ITEM.pack(id_hash)
        at = hashes.find(wanted)
        while at >= 0 and at % _ITEM_BYTES:
            at = hashes.find(wanted, at + 1)
        return at // _ITEM_BYTES if at >= 0 else -1

    def find_last(self, id_hash: int, stop: int) -> int:
        """Return the index of the newest delivery of a message up to an index; -1 if there is none."""
        hashes, wanted = self._hashes, _ITEM.pack(id_hash)
        at = hashes.rfind(wanted, 0, (stop + 1) * _ITEM_BYTES)
        while at >= 0 and at % _ITEM_BYTES:
            at = hashes.rfind(wanted, 0, at + _ITEM_BYTES - 1)
        return at // _ITEM_BYTES if at >= 0 else -1

    def index(self, number: int) -> int:
        """Return the index of a delivery by its number; -1 if it is not outstanding."""
        if self._numbers and self.number(0) == number:  # as nearly always
            return 0
        index = bisect_left(range(len(self)), number, key=self.number)
        return index if index < len(self) and self.number(index) == number else -1

    def number(self, index: int) -> int:
        """Return the number of the delivery at an index."""
        return cast("int", _ITEM.unpack_from(self._numbers, index * _ITEM_BYTES)[0])

    def id_hash(self, index: int) -> int:
        """Return the hash of the message id at an index."""
        return cast("int", _ITEM.unpack_from(self._hashes, index * _ITEM_BYTES)[0])

    def remove(self, index: int) -> None:
        """Remove the delivery at an index."""
        start = index * _ITEM_BYTES
        del self._numbers[start : start + _ITEM_BYTES]
        del self._hashes[start : start + _ITEM_BYTES]

    def put_back(self, deliveries: Iterable[tuple[int, int]]) -> None:
        """Add removed deliveries again, each by its number and hash, in their old places."""
        items = [(self.number(index), self.id_hash(index)) for index in range(len(self))]
        self.clear()
        for number, id_hash in sorted([*items, *deliveries]):
            self.append(number, id_hash)

    def clear(self) -> None:
        """Remove all."""
        self._numbers.clear()
        self._hashes.clear()


class BrowserConsumer(BrokerConsumer):
    """The consumer of a browser; `outstanding` stays empty.

    The handle of a delivery is a `Reference` that has its number, and the hash of the message id as its sequence
    number; for a client that keeps no handles it is made again when it acknowledges.
    """

    __slots__ = ("_browsed",)

    def __init__(self, connection: Owner, request: ConsumerRequest, deliver: Deliver, *, prefetch: int) -> None:
        super().__init__(connection, request, deliver, prefetch=prefetch)
        self._browsed = BrowsedDeliveries()

    @property
    def has_capacity(self) -> bool:
        """True when another message may be delivered now."""
        return len(self._browsed) < self.window

    def offer(self, reference: Reference) -> None:
        """Deliver a reference, which loses its body then: it is never needed again."""
        connection = self.connection
        connection.delivery_count = reference.delivery = connection.delivery_count + 1
        reference.sequence = hash(reference.message.message_id)
        self._browsed.append(reference.delivery, reference.sequence)
        if self._pulled:
            self._pulled -= 1
        try:
            self.deliver(reference)
        except Exception as error:  # must not fail the dispatch of others
            contain(error, "delivering", reference.message)
        reference.message = BodilessMessage(reference.message, -1)

    def dispatch(self) -> None:
        """Have the snapshot deliver to this consumer."""
        for source in self.sources:
            if self.has_capacity:
                source.dispatch(self)

    def reinstate(self, references: list[Reference]) -> None:
        """Make deliveries outstanding again after their acknowledgements were rolled back."""
        self._browsed.put_back((reference.delivery, reference.sequence) for reference in references)
        self.resize()

    def resize(self) -> None:
        """Recompute the window."""
        if not self.started or self.connection.is_held:
            self.window = 0
        elif self.prefetch:
            self.window = self.prefetch + self._granted
        else:
            self.window = len(self._browsed) + self._pulled

    def delivered(self) -> Iterator[Reference]:
        """Iterate over nothing: a browser holds no bodies."""
        return iter(())

    # ------------------------------------------------------------ port

    def outstanding_through(self, first_id: str | None, last_id: str) -> Sequence[Reference]:
        """Return handles of the outstanding deliveries from one message id to another, in the order of delivery."""
        browsed = self._browsed
        last = browsed.find(hash(last_id))
        if last < 0:
            return ()
        first = 0 if first_id is None else browsed.find_last(hash(first_id), last)
        return () if first < 0 else [self._handle(index) for index in range(first, last + 1)]

    def acknowledge(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle one delivery; do nothing if it is not outstanding."""
        if isinstance(delivery, Reference) and self._browsed.index(delivery.delivery) >= 0:
            self.acknowledge_all((delivery,), transaction)

    def acknowledge_through(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones that are outstanding."""
        if isinstance(delivery, Reference) and (last := self._browsed.index(delivery.delivery)) >= 0:
            self.acknowledge_all([self._handle(index) for index in range(last + 1)], transaction)

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle deliveries that are outstanding, in pieces if they are many."""
        references = cast("Sequence[Reference]", deliveries)  # the only kind that the core delivers
        if len(references) > PIECE_MAX:
            self.connection.work_off(self._settling(references, transaction))
        else:
            self._settle(references, transaction)

    def acknowledge_each(self, message_ids: Sequence[str]) -> Sequence[str]:
        """Settle deliveries by message id, one by one; return the ids that are not outstanding."""
        strange: list[str] = []
        for message_id in message_ids:
            if references := self.outstanding_through(message_id, message_id):
                self._settle(references, None)
            else:
                strange.append(message_id)
        return strange

    def grant(self, count: int) -> None:
        """Widen the window until the next acknowledgements, by at most the number of outstanding deliveries."""
        if self.prefetch:
            self._granted = min(self._granted + max(count, 0), len(self._browsed))
            self.resize()
            self.dispatch()

    def unsettled(self) -> Iterable[Reference]:
        """Return nothing: where a browser's deliveries end makes no difference to the queue."""
        return ()

    def expire(self, delivery: Delivery) -> None:
        """Settle a delivery that the client found expired."""
        self.acknowledge(delivery)

    def close(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> None:
        """Close the consumer."""
        if not self.closed:
            self.closed = True
            self.started = False
            self.window = 0
            for source in self.sources:
                source.detach(self)
            self.connection.forget(self)
            self._release_references()
            self._browsed.clear()

    # ------------------------------------------------------------ private

    def _handle(self, index: int) -> Reference:
        source: DeliverySource = self.sources[0]
        reference = Reference(_BROWSED, source, self._browsed.id_hash(index))
        reference.delivery = self._browsed.number(index)
        return reference

    def _settling(self, references: Sequence[Reference], transaction: TransactionId | None) -> Steps:
        """Settle many deliveries, 16 in a step."""
        for start in range(0, len(references), 16):
            if self.closed:
                return
            self._settle(references[start : start + 16], transaction)
            yield 16

    def _settle(self, references: Sequence[Reference], transaction: TransactionId | None) -> None:
        browsed = self._browsed
        outstanding = [each for each in references if browsed.index(each.delivery) >= 0]
        if transaction is not None:
            self.connection.add_acknowledgements(self, outstanding, transaction)
        for reference in outstanding:
            browsed.remove(browsed.index(reference.delivery))
        if outstanding:
            self._settled(len(outstanding))
