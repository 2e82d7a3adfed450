"""The topic aliases that the broker gives a client of MQTT 5: numbers that stand for the topic names used last.

Source: MQTT 5.0, 3.3.2.3.4 "Topic Alias". A PUBLISH with a topic name and an alias defines it, or gives it another
meaning; one with an empty topic name and an alias uses it. They last as long as the connection.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

ALIASES_MAX: Final = 100
"""The topic aliases that either side of a connection may have: enough for the topics of a device or a dashboard."""

NAME_BYTES_MAX: Final = 200
"""Longer topic names get no alias, so that those of one connection take little memory."""


class Alias(NamedTuple):
    """The alias for a topic name.

    Attributes:
        number: 1 to the maximum of the client.
        is_known: False: it has another meaning for the client, or none, until a PUBLISH defines it.
    """

    number: int
    is_known: bool


class TopicAliases:
    """The topic aliases of one connection. The topic name that was used least recently loses its alias first."""

    __slots__ = ("_maximum", "_numbers")

    def __init__(self, maximum: int) -> None:
        """Begin without any; the client accepts `maximum`."""
        self._maximum = min(maximum, ALIASES_MAX)
        self._numbers: OrderedDict[bytes, int] = OrderedDict()

    def find(self, topic: bytes) -> Alias | None:
        """Return the alias to send with a topic name; None if it gets none. `record` it when it is sent."""
        number = self._numbers.get(topic)
        if number is not None:
            return Alias(number, is_known=True)
        if not self._maximum or len(topic) > NAME_BYTES_MAX:
            return None
        if len(self._numbers) < self._maximum:
            return Alias(len(self._numbers) + 1, is_known=False)
        return Alias(next(iter(self._numbers.values())), is_known=False)

    def record(self, topic: bytes, alias: Alias) -> None:
        """Record that a PUBLISH with a topic name, or its alias, is sent."""
        if alias.is_known:
            self._numbers.move_to_end(topic)
            return
        if len(self._numbers) >= self._maximum:
            self._numbers.popitem(last=False)
        self._numbers[topic] = alias.number
