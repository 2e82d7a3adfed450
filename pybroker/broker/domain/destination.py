"""Destinations and their names: queues and topics, lasting and temporary, and the wildcards over them.

Source: ActiveMQ's naming rules (names are case-sensitive, `.` separates levels, empty levels are legal).
"""

import enum
from typing import NamedTuple

from pybroker.broker.domain.errors import InvalidDestination


class DestinationType(enum.IntEnum):
    """Kind of destination; the values are KahaDB's (`KahaDestination.DestinationType`)."""

    QUEUE = 0
    TOPIC = 1
    TEMP_QUEUE = 2
    TEMP_TOPIC = 3


_SCHEMES = {
    DestinationType.QUEUE: "queue://",
    DestinationType.TOPIC: "topic://",
    DestinationType.TEMP_QUEUE: "temp-queue://",
    DestinationType.TEMP_TOPIC: "temp-topic://",
}


_QUEUES = frozenset((DestinationType.QUEUE, DestinationType.TEMP_QUEUE))
"""Asked several times per message: looking members up in their enum takes three times as long."""


class Destination(NamedTuple):
    """A queue or topic by its physical name (without prefix or options). A tuple, because it is a hot dict key."""

    type: DestinationType
    name: str

    def __str__(self) -> str:
        """Return the qualified form, such as `queue://ORDERS`."""
        return _SCHEMES[self.type] + self.name

    @property
    def is_queue(self) -> bool:
        """True for point-to-point: each message to one consumer."""
        return self.type in _QUEUES

    @property
    def is_topic(self) -> bool:
        """True for publish/subscribe: each message to every subscription."""
        return not self.is_queue

    @property
    def is_temporary(self) -> bool:
        """True when the destination lives and dies with the connection that made it."""
        return self.type >= DestinationType.TEMP_QUEUE

    @property
    def is_pattern(self) -> bool:
        """True when a level is `*`, or the last level is `>`."""
        levels = self.name.split(".")
        return "*" in levels or levels[-1] == ">"


def queue(name: str) -> Destination:
    """Return the queue of that physical name."""
    return Destination(DestinationType.QUEUE, name)


def topic(name: str) -> Destination:
    """Return the topic of that physical name."""
    return Destination(DestinationType.TOPIC, name)


def parse(text: str) -> Destination:
    """Return the destination written in qualified form; a bare name means a queue.

    Raises:
        InvalidDestination: the name is empty.
    """
    for kind, scheme in _SCHEMES.items():
        if text.startswith(scheme):
            return checked(kind, text[len(scheme) :])
    return checked(DestinationType.QUEUE, text)


def checked(kind: DestinationType, name: str) -> Destination:
    """Return the destination of a name as a client wrote it: trimmed, and cut at `?` where options begin.

    Raises:
        InvalidDestination: nothing is left of the name.
    """
    name = name.partition("?")[0].strip()
    if not name:
        raise InvalidDestination("the destination's name is empty: write one, such as ORDERS")
    return Destination(kind, name)


def matches(pattern: str, name: str) -> bool:
    """Tell whether a wildcard pattern covers a concrete name.

    `*` stands for exactly one level, a last `>` for any number of levels including none: `A.>` covers `A`,
    `A.B` and `A.B.C`. Inside a level both characters are literal.
    """
    wanted = pattern.split(".")
    levels = name.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        del levels[len(wanted) :]
    elif len(wanted) != len(levels):
        return False
    return all(want in ("*", level) for want, level in zip(wanted, levels, strict=True))
