"""Finds outstanding deliveries by message id, for a client that settles them far from the order of delivery."""

from bisect import insort
from operator import attrgetter
from typing import Final

from pybroker.broker.core.reference import Reference

_delivery: Final = attrgetter("delivery")


class DeliveryIndex:
    """The outstanding deliveries of one consumer by message id.

    A consumer of several queues may hold messages of the same id. Such an id stands for the oldest of them.

    Attributes:
        added_to: the number of the last delivery that has been added.
    """

    __slots__ = ("_first", "_others", "added_to")

    def __init__(self) -> None:
        """Begin without deliveries."""
        self._first: dict[str, Reference] = {}
        self._others: dict[str, list[Reference]] = {}
        """The later deliveries of an id, oldest first; most ids have none."""
        self.added_to = 0

    def __len__(self) -> int:
        return len(self._first)

    def find(self, message_id: str) -> Reference | None:
        """Return the oldest delivery of a message; None if there is none."""
        return self._first.get(message_id)

    def add(self, reference: Reference) -> None:
        """Add a delivery that is outstanding, maybe again."""
        message_id = reference.message.message_id
        first = self._first.setdefault(message_id, reference)
        if first is not reference:
            if reference.delivery < first.delivery:
                self._first[message_id], reference = reference, first
            insort(self._others.setdefault(message_id, []), reference, key=_delivery)

    def remove(self, reference: Reference) -> None:
        """Remove a delivery that has been added and is settled."""
        message_id = reference.message.message_id
        others = self._others.get(message_id)
        if others is None:
            del self._first[message_id]
            return
        if self._first[message_id] is reference:
            self._first[message_id] = others.pop(0)
        else:
            others.remove(reference)
        if not others:
            del self._others[message_id]
