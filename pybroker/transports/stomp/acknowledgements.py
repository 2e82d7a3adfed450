"""The unacknowledged deliveries of a subscription, by STOMP's ids.

Source: STOMP 1.2, "ACK"; ActiveMQ 5.17 for transactions.

Each delivery gets a serial number in its subscription. In 1.2 the `ack` header carries it:

```text
<connection id> : <subscription's serial> : <delivery's serial>
```

so that an id of a former subscription is recognised without storing any. In 1.0 and 1.1 a delivery is identified by its
message id.

`KeptDeliveries` keeps the deliveries. Where the core only counts them, `counted_deliveries` keeps a few bytes of each.
"""

from abc import ABCMeta, abstractmethod
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple, cast

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.ports import ConsumerPort
from pybroker.broker.domain.transaction import TransactionId

_PUT_BACK_COUNT: Final = 64
"""Deliveries that are put back in one step, as a quarter of the usual operations."""


class AckId(NamedTuple):
    """The parts of a 1.2 `ack` header."""

    subscription: int
    delivery: int


def parse_ack_id(text: str, connection_id: str) -> AckId | None:
    """Return the id, or None if it cannot be one of that connection."""
    end = len(connection_id)
    if not text.startswith(connection_id) or text[end : end + 1] != ":":
        return None
    subscription, _, delivery = text[end + 1 :].partition(":")
    if not (_is_serial(subscription) and _is_serial(delivery)):
        return None
    return AckId(int(subscription), int(delivery))


def _is_serial(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


class Taken(metaclass=ABCMeta):
    """Deliveries removed by acknowledgements, at least one; they are put back if their transaction is aborted.

    Attributes:
        forgotten: the number of further deliveries, the oldest ones, that cannot be put back.
    """

    __slots__ = ("forgotten",)

    def __init__(self) -> None:
        self.forgotten = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def acknowledge(self, consumer: ConsumerPort, transaction: TransactionId | None) -> None:
        """Acknowledge them.

        Raises:
            RequestError: the core refuses that.
        """

    @abstractmethod
    def reject(self, consumer: ConsumerPort, cause: str) -> None:
        """Reject them."""

    @abstractmethod
    def includes(self, message_id: str) -> bool:
        """Return True if one of them is of that message."""

    @abstractmethod
    def add(self, other: "Taken") -> None:
        """Add what a later acknowledgement of the same transaction has removed from the same subscription."""


class Unacknowledged(metaclass=ABCMeta):
    """The unacknowledged deliveries of one subscription, in the order in which they were sent."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def add(self, delivery: Delivery) -> int:
        """Add a delivery, and return its serial number."""

    @abstractmethod
    def serial_of(self, message_id: str) -> int | None:
        """Return the serial number of the first delivery of a message; None without one, and in 1.2."""

    @abstractmethod
    def take(self, serial: int) -> Taken | None:
        """Remove one delivery; None if it is not here."""

    @abstractmethod
    def take_through(self, serial: int) -> Taken | None:
        """Remove a delivery and all earlier ones; None if that delivery is not here."""

    @abstractmethod
    def put_back(self, taken: Taken) -> Iterator[int]:
        """Return the steps that add removed deliveries again, each in its old place; deliveries may come meanwhile."""


class KeptTaken(Taken):
    """Removed deliveries by their serial numbers.

    There is no object for each: one acknowledgement may take tens of thousands, and new objects cause garbage
    collections.
    """

    __slots__ = ("deliveries",)

    def __init__(self, deliveries: dict[int, Delivery]) -> None:
        super().__init__()
        self.deliveries = deliveries

    def __len__(self) -> int:
        return len(self.deliveries)

    def acknowledge(self, consumer: ConsumerPort, transaction: TransactionId | None) -> None:
        """Acknowledge them; the core knows the earlier ones by the last."""
        last = next(reversed(self.deliveries.values()))
        if len(self.deliveries) == 1:
            consumer.acknowledge(last, transaction)
        else:
            consumer.acknowledge_through(last, transaction)

    def reject(self, consumer: ConsumerPort, cause: str) -> None:
        """Reject them."""
        for delivery in self.deliveries.values():
            consumer.reject(delivery, cause)

    def includes(self, message_id: str) -> bool:
        """Return True if one of them is of that message."""
        EFFORT.is_large = True
        return any(delivery.message.message_id == message_id for delivery in self.deliveries.values())

    def add(self, other: Taken) -> None:
        """Add what a later acknowledgement of the same transaction has removed from the same subscription."""
        self.deliveries.update(cast("KeptTaken", other).deliveries)


class KeptDeliveries(Unacknowledged):
    """Unacknowledged deliveries, each kept until it is acknowledged."""

    __slots__ = ("_by_message_id", "_copies", "_deliveries", "_serial")

    def __init__(self, *, by_message_id: bool) -> None:
        self._serial = 0
        # Not a dict, which gets slow when its oldest entries are removed one after another.
        self._deliveries: OrderedDict[int, Delivery] = OrderedDict()
        self._by_message_id: dict[str, int] | None = {} if by_message_id else None
        self._copies: dict[str, list[int]] = {}
        """The serials of further deliveries of a message, lowest first: a wildcard may deliver several of one id."""

    def __len__(self) -> int:
        return len(self._deliveries)

    def add(self, delivery: Delivery) -> int:
        """Add a delivery, and return its serial number."""
        self._serial = serial = self._serial + 1
        self._deliveries[serial] = delivery
        if self._by_message_id is not None:
            self._add_id(serial, delivery)
        return serial

    def serial_of(self, message_id: str) -> int | None:
        """Return the serial number of the first delivery of a message; None without one."""
        return None if self._by_message_id is None else self._by_message_id.get(message_id)

    def take(self, serial: int) -> KeptTaken | None:
        """Remove one delivery; None if it is not here."""
        delivery = self._deliveries.pop(serial, None)
        if delivery is None:
            return None
        self._remove_id(serial, delivery)
        return KeptTaken({serial: delivery})

    def take_through(self, serial: int) -> KeptTaken | None:
        """Remove a delivery and all earlier ones; None if that delivery is not here."""
        deliveries = self._deliveries
        taken: dict[int, Delivery] = {}
        if serial not in deliveries:
            return None
        if serial == next(reversed(deliveries)):
            taken, self._deliveries = deliveries, OrderedDict()
        while serial not in taken:
            each, delivery = deliveries.popitem(last=False)
            taken[each] = delivery
        if self._by_message_id is not None:
            for each, delivery in taken.items():
                self._remove_id(each, delivery)
        return KeptTaken(taken)

    def put_back(self, taken: Taken) -> Iterator[int]:
        """Return the steps that add removed deliveries again, each in its old place; deliveries may come meanwhile."""
        removed = cast("KeptTaken", taken).deliveries
        last = max(removed)
        between = takewhile(lambda serial: serial < last, self._deliveries)
        left = sorted([*removed, *between])
        while left:  # from the last one on, each to the front
            deliveries = self._deliveries
            for serial in reversed(left[-_PUT_BACK_COUNT:]):
                if serial in removed:
                    deliveries[serial] = removed[serial]
                    self._add_id(serial, removed[serial])
                elif serial not in deliveries:  # removed meanwhile
                    continue
                deliveries.move_to_end(serial, last=False)
            del left[-_PUT_BACK_COUNT:]
            yield _PUT_BACK_COUNT // 4

    def _add_id(self, serial: int, delivery: Delivery) -> None:
        """Map a message id to the first of its unacknowledged copies."""
        if self._by_message_id is None:
            return
        message_id = delivery.message.message_id
        first = self._by_message_id.setdefault(message_id, serial)
        if first != serial:
            insort(self._copies.setdefault(message_id, []), max(first, serial))
            self._by_message_id[message_id] = min(first, serial)

    def _remove_id(self, serial: int, delivery: Delivery) -> None:
        """Remove a delivery's message id, or map it to the next unacknowledged copy."""
        if self._by_message_id is None:
            return
        message_id = delivery.message.message_id
        copies = self._copies.get(message_id) if self._copies else None
        if copies is None:
            self._by_message_id.pop(message_id, None)
            return
        if self._by_message_id[message_id] == serial:
            self._by_message_id[message_id] = copies.pop(0)
        else:
            copies.remove(serial)
        if not copies:
            del self._copies[message_id]
