"""The unacknowledged deliveries of a subscription, by STOMP's ids.

Source: STOMP 1.2, "ACK"; ActiveMQ 5.17 for transactions.

Each delivery gets a serial number in its subscription. In 1.2 the `ack` header carries it:

```text
<connection id> : <subscription's serial> : <delivery's serial>
```

so that an id of a former subscription is recognised without storing any. In 1.0 and 1.1 a delivery is identified by its
message id.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from pybroker.broker.domain.delivery import Delivery


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


Taken = tuple[int, Delivery]
"""A delivery removed by an acknowledgement, behind its serial number; put back if its transaction is aborted.

No class of its own: one acknowledgement may take tens of thousands.
"""


class Unacknowledged:
    """The unacknowledged deliveries of one subscription, in the order in which they were sent."""

    __slots__ = ("_by_message_id", "_copies", "_deliveries", "_serial")

    def __init__(self, *, by_message_id: bool) -> None:
        self._serial = 0
        # Not a dict, which gets slow when its oldest entries are removed one after another.
        self._deliveries: OrderedDict[int, Delivery] = OrderedDict()
        self._by_message_id: dict[str, int] | None = {} if by_message_id else None
        self._copies = 0

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

    def take(self, serial: int) -> Taken | None:
        """Remove one delivery; None if it is not here."""
        delivery = self._deliveries.pop(serial, None)
        if delivery is None:
            return None
        self._remove_id(delivery)
        return serial, delivery

    def take_through(self, serial: int) -> list[Taken]:
        """Remove a delivery and all earlier ones; none if that delivery is not here."""
        deliveries = self._deliveries
        if serial not in deliveries:
            return []
        taken: list[Taken] = []
        for each, delivery in deliveries.items():
            if each > serial:
                break
            taken.append((each, delivery))
        if len(taken) == len(deliveries):
            deliveries.clear()
        else:
            for each, _ in taken:
                del deliveries[each]
        if self._by_message_id is not None:
            for _, delivery in taken:
                self._remove_id(delivery)
        return taken

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Add removed deliveries again, each in its old place."""
        merged = sorted([*taken, *self._deliveries.items()], key=_serial_of)
        self._deliveries = OrderedDict(merged)
        if self._by_message_id is not None:
            self._by_message_id.clear()
            self._copies = 0
            for serial, delivery in merged:
                self._add_id(serial, delivery)

    def _add_id(self, serial: int, delivery: Delivery) -> None:
        assert self._by_message_id is not None
        first = self._by_message_id.setdefault(delivery.message.message_id, serial)
        self._copies += first != serial

    def _remove_id(self, delivery: Delivery) -> None:
        """Remove a message id, or map it to another unacknowledged copy (a wildcard may deliver several of one id)."""
        if self._by_message_id is None:
            return
        message_id = delivery.message.message_id
        serial = self._by_message_id.get(message_id)
        if serial is None or serial in self._deliveries:
            self._copies -= 1
            return
        del self._by_message_id[message_id]
        if self._copies:
            for other, waiting in self._deliveries.items():
                if waiting.message.message_id == message_id:
                    self._by_message_id[message_id] = other
                    self._copies -= 1
                    return


def _serial_of(taken: Taken) -> int:
    return taken[0]
