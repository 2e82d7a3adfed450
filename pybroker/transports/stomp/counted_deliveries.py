"""The unacknowledged deliveries of a subscription whose deliveries the core only counts: a few bytes of each.

They are those of a topic without a durable subscription, and of a browser (see `ConsumerRequest.is_counted`). An
acknowledgement names a delivery by its serial number or by its message id, and what it acknowledges is a number of
deliveries. So this keeps of each delivery its serial number, and in 1.0 and 1.1 the hash of its message id.

```text
serials | i64 | i64 | i64 | ...   ascending
hashes  | i64 | i64 | i64 | ...   in 1.0 and 1.1
```
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import Final, cast

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.ports import ConsumerPort
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.stomp.acknowledgements import Taken, Unacknowledged

_ITEM: Final = Struct("q")
_ITEM_BYTES: Final = 8

_PUT_BACK_PER_OPERATION: Final = 16
"""Deliveries that are put back in the time of a usual operation."""

BYTES_MAX: Final = 120 << 10
"""The memory of a subscription's full window, by which the window is limited: so every connection may have one, with
the 128 kB that are guaranteed to it. They are 15,360 deliveries, in 1.0 and 1.1 half of it; to search these takes 50
microseconds."""


class CountedTaken(Taken):
    """Removed deliveries. Of those of a transaction the last ones are remembered, as many as a window has."""

    __slots__ = ("_hashes", "_serials")

    def __init__(self, serials: bytearray, hashes: bytearray) -> None:
        super().__init__()
        self._serials = serials
        self._hashes = hashes

    def __len__(self) -> int:
        return len(self._serials) // _ITEM_BYTES

    def acknowledge(self, consumer: ConsumerPort, transaction: TransactionId | None) -> None:
        """Acknowledge as many deliveries."""
        consumer.acknowledge_oldest(len(self), transaction)

    def reject(self, consumer: ConsumerPort, cause: str) -> None:
        """Acknowledge as many deliveries: what is only counted becomes no dead letter."""
        consumer.acknowledge_oldest(len(self))

    def includes(self, message_id: str) -> bool:
        """Return True if one of them is of that message."""
        return _find(self._hashes, hash(message_id)) >= 0

    def add(self, other: Taken) -> None:
        """Add what a later acknowledgement of the same transaction has removed from the same subscription."""
        later = cast("CountedTaken", other)
        self._serials += later._serials
        self._hashes += later._hashes
        excess = len(self) - window_max(by_message_id=bool(self._hashes))
        if excess > 0:
            self.forgotten += excess
            del self._serials[: excess * _ITEM_BYTES]
            del self._hashes[: excess * _ITEM_BYTES]

    def sorted_with(self, serials: bytearray, hashes: bytearray) -> tuple[bytearray, bytearray]:
        """Return these and others, in the order of their serial numbers; the oldest beyond a window are forgotten."""
        numbers = _numbers(self._serials + serials)
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        excess = max(0, len(order) - window_max(by_message_id=bool(self._hashes)))
        self.forgotten += excess
        del order[:excess]
        id_hashes = _numbers(self._hashes + hashes)
        return _bytes(numbers, order), _bytes(id_hashes, order) if id_hashes else bytearray()


class CountedDeliveries(Unacknowledged):
    """Unacknowledged deliveries, of which a few bytes are kept."""

    __slots__ = ("_hashes", "_is_by_message_id", "_last", "_serials")

    def __init__(self, *, by_message_id: bool) -> None:
        self._is_by_message_id = by_message_id
        self._last = 0
        # Not arrays: a bytearray is found in quickly, and deletes its first bytes without moving the others.
        self._serials = bytearray()
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._serials) // _ITEM_BYTES

    def add(self, delivery: Delivery) -> int:
        """Add a delivery, and return its serial number."""
        self._last = serial = self._last + 1
        self._serials += _ITEM.pack(serial)
        if self._is_by_message_id:
            self._hashes += _ITEM.pack(hash(delivery.message.message_id))
        return serial

    def serial_of(self, message_id: str) -> int | None:
        """Return the serial number of the first delivery of a message; None without one, and in 1.2."""
        id_hash = hash(message_id)
        if self._hashes.startswith(_ITEM.pack(id_hash)):  # as nearly always
            return self._serial(0)
        EFFORT.is_large = True
        index = _find(self._hashes, id_hash)
        return self._serial(index) if index >= 0 else None

    def take(self, serial: int) -> CountedTaken | None:
        """Remove one delivery; None if it is not here."""
        index = self._index(serial)
        return self._remove(index, index + 1) if index >= 0 else None

    def take_through(self, serial: int) -> CountedTaken | None:
        """Remove a delivery and all earlier ones; None if that delivery is not here."""
        index = self._index(serial)
        return self._remove(0, index + 1) if index >= 0 else None

    def put_back(self, taken: Taken) -> Iterator[int]:
        """Return the one step that adds removed deliveries again, each in its old place."""
        removed = cast("CountedTaken", taken)
        self._serials, self._hashes = removed.sorted_with(self._serials, self._hashes)
        yield len(self) // _PUT_BACK_PER_OPERATION

    def _index(self, serial: int) -> int:
        """Return the index of a delivery; -1 if it is not here."""
        if self._serials and self._serial(0) == serial:  # as nearly always
            return 0
        index = bisect_left(range(len(self)), serial, key=self._serial)
        return index if index < len(self) and self._serial(index) == serial else -1

    def _serial(self, index: int) -> int:
        return cast("int", _ITEM.unpack_from(self._serials, index * _ITEM_BYTES)[0])

    def _remove(self, start: int, stop: int) -> CountedTaken:
        part = slice(start * _ITEM_BYTES, stop * _ITEM_BYTES)
        taken = CountedTaken(self._serials[part], self._hashes[part])
        del self._serials[part]
        del self._hashes[part]
        return taken


def tracked_bytes(*, by_message_id: bool) -> int:
    """Return the memory of each delivery that is only counted, in bytes."""
    return 2 * _ITEM_BYTES if by_message_id else _ITEM_BYTES


def window_max(*, by_message_id: bool) -> int:
    """Return the number of deliveries of the largest window."""
    return BYTES_MAX // tracked_bytes(by_message_id=by_message_id)


def _find(items: bytearray, wanted: int) -> int:
    """Return the index of the first item of that value; -1 if there is none."""
    packed = _ITEM.pack(wanted)
    at = items.find(packed)
    while at >= 0 and at % _ITEM_BYTES:
        at = items.find(packed, at + 1)
    return at // _ITEM_BYTES if at >= 0 else -1


def _numbers(items: bytearray) -> list[int]:
    return array("q", bytes(items)).tolist()


def _bytes(numbers: list[int], order: list[int]) -> bytearray:
    return bytearray(array("q", [numbers[index] for index in order]).tobytes())
