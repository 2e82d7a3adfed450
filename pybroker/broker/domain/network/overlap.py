"""One copy of each topic message goes over a bridge, however many of its demand subscriptions take it.

Subscriptions to `T.1` and `T.>` both get a message for `T.1`, and so do those of two consumers without conduit. Each
would forward it, as ActiveMQ 5.17 does. Queues have no such copies: a message goes to one consumer.
"""

from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.destination import Destination

REMEMBERED_MAX: Final = 1 << 16
"""Messages of which another subscription may still bring a copy, some 10 MB of ids. One that lags further behind, such
as a durable subscription with a backlog, forwards copies: the remote broker then gets a message twice."""


class OverlapFilter:
    """Recognises the further copies of messages that a bridge has forwarded."""

    def __init__(self, taking: Callable[[Destination], tuple[int, ...]]) -> None:
        """Begin with nothing forwarded.

        Args:
            taking: returns the numbers of the subscriptions that cover a destination, as `DemandTable.taking`.
        """
        self._taking = taking
        self._expected: dict[str, set[int]] = {}

    def is_first(self, number: int, destination: Destination, message_id: str) -> bool:
        """Return True if a message is to be forwarded, and False if another subscription has forwarded it.

        A message that one subscription brings again, because it was redelivered, counts as the first.

        Args:
            number: the demand subscription that has it.
            destination: the message's own destination.
            message_id: the message's id.
        """
        if destination.is_queue:
            return True
        others = self._expected.get(message_id)
        if others is not None:
            if number not in others:
                return True
            others.discard(number)
            if not others:
                del self._expected[message_id]
            return False
        taking = self._taking(destination)
        if len(taking) > 1:
            self._expected[message_id] = {each for each in taking if each != number}
            if len(self._expected) > REMEMBERED_MAX:
                del self._expected[next(iter(self._expected))]
        return True

    def expects(self, message_id: str) -> bool:
        """Return True if another subscription may still bring a copy of a message that was forwarded."""
        return message_id in self._expected

    def forget(self, message_id: str) -> None:
        """Expect no copies of a message that was not forwarded after all: the next one counts as the first."""
        self._expected.pop(message_id, None)
