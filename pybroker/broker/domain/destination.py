"""Destinations and their names: queues and topics, permanent and temporary, wildcard patterns and composite names.

Source: ActiveMQ's naming rules (names are case-sensitive, `.` separates levels, empty levels are legal, `,` makes a
composite).
"""

import enum
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import InvalidDestination

NAME_MAX: Final = 1024
"""The characters of a name that a client may choose: of a destination, a client id, a subscription. ActiveMQ has no
limit, and a hundred thousand names of 32 kB take 10 GB."""


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

ADVISORY_PREFIX = "ActiveMQ.Advisory."
"""The prefix of the names of advisory topics."""

PARTS_MAX = 256
"""The maximum number of parts of a composite name: a message sent to it is copied for each part."""

_QUEUES = frozenset((DestinationType.QUEUE, DestinationType.TEMP_QUEUE))
"""A set, because it is used several times per message: comparing with members of the enum takes three times as long."""


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
        """True if the destination is deleted with the connection that created it."""
        return self.type >= DestinationType.TEMP_QUEUE

    @property
    def is_pattern(self) -> bool:
        """True if a level is `*`, or the last level is `>`. A composite name is not a pattern, but its parts may be."""
        levels = self.name.split(".")
        return ("*" in levels or levels[-1] == ">") and not self.is_composite

    @property
    def is_composite(self) -> bool:
        """True when the name stands for several destinations; see `parts`."""
        return "," in self.name


def queue(name: str) -> Destination:
    """Return the queue of that physical name."""
    return Destination(DestinationType.QUEUE, name)


def topic(name: str) -> Destination:
    """Return the topic of that physical name."""
    return Destination(DestinationType.TOPIC, name)


def parse(text: str, default: DestinationType = DestinationType.QUEUE) -> Destination:
    """Return the destination written in qualified form; a bare name gets the default type.

    Raises:
        InvalidDestination: the name is empty.
    """
    for kind, scheme in _SCHEMES.items():
        if text.startswith(scheme):
            return checked(kind, text[len(scheme) :])
    return checked(default, text)


def is_advisory(destination: Destination) -> bool:
    """Return True if a destination is an advisory topic, or a pattern of advisory topics."""
    return destination.name.startswith(ADVISORY_PREFIX)


def is_reserved(topic: Destination) -> bool:
    """Return True for a topic whose name is the broker's own: an advisory topic, or one that begins with `$`."""
    return topic.name.startswith((ADVISORY_PREFIX, "$"))


def creator_of(temporary: Destination) -> str:
    """Return the id of the connection that has created a temporary destination: its name is that id and a number."""
    return temporary.name.rpartition(":")[0]


def parts(destination: Destination) -> tuple[Destination, ...]:
    """Return the parts of a composite name, each once, in their order; of any other name, the destination itself.

    The parts of `A,topic://B` are A, of the type of the composite, and the topic B. All protocols use this function.

    Raises:
        InvalidDestination: the name lists nothing, or more than `PARTS_MAX` destinations.
    """
    if not destination.is_composite:
        return (destination,)
    texts = [text for text in map(str.strip, destination.name.split(",")) if text]
    if not texts:
        raise InvalidDestination("the destination's name lists no names: write for example A,B")
    if len(texts) > PARTS_MAX:
        raise InvalidDestination(f"the destination's name lists {len(texts)} names, at most {PARTS_MAX} are allowed")
    return tuple(dict.fromkeys(parse(text, destination.type) for text in texts))


def parts_to_consume(destination: Destination) -> tuple[Destination, ...]:
    """Return the destinations of a consumer of this name.

    Raises:
        InvalidDestination: as `parts`, or they are both queues and topics.
    """
    listed = parts(destination)
    if any(part.is_queue is not listed[0].is_queue for part in listed):
        raise InvalidDestination("one consumer cannot take messages from queues and topics at the same time")
    return listed


def checked(kind: DestinationType, name: str) -> Destination:
    """Return the destination for a client's name, without blanks around it, and without options, which follow a `?`.

    Raises:
        InvalidDestination: the name is empty.
    """
    name = name.partition("?")[0].strip()
    if not name:
        raise InvalidDestination("the destination's name is empty: write one, such as ORDERS")
    return Destination(kind, name)


def matches(pattern: str, name: str) -> bool:
    """Return True if a wildcard pattern covers a concrete name.

    `*` stands for exactly one level, a last `>` for any number of levels including none: `A.>` covers `A`,
    `A.B` and `A.B.C`. Several at the end count as one, as in ActiveMQ. Inside a level both characters are literal.
    """
    wanted, is_open = pattern_levels(pattern)
    levels = name.split(".")
    if is_open:
        if len(levels) < len(wanted):
            return False
        del levels[len(wanted) :]
    elif len(wanted) != len(levels):
        return False
    return all(want in ("*", level) for want, level in zip(wanted, levels, strict=True))


def covers(wide: str, narrow: str) -> bool:
    """Return True if a pattern covers all names that another one covers.

    `*.>` and `>` both cover everything; of them, `*.>` counts as the narrower one.
    """
    wide_levels, wide_is_open = pattern_levels(wide)
    narrow_levels, narrow_is_open = pattern_levels(narrow)
    if wide_is_open:
        if len(narrow_levels) < len(wide_levels):
            return False
    elif narrow_is_open or len(narrow_levels) != len(wide_levels):
        return False
    return all(level in ("*", other) for level, other in zip(wide_levels, narrow_levels, strict=False))


def patterns_overlap(one: str, other: str) -> bool:
    """Return True if there is a name that both patterns cover."""
    ours, ours_are_open = pattern_levels(one)
    theirs, theirs_are_open = pattern_levels(other)
    if (len(ours) < len(theirs) and not ours_are_open) or (len(theirs) < len(ours) and not theirs_are_open):
        return False
    return all(our == their or "*" in (our, their) for our, their in zip(ours, theirs, strict=False))


def pattern_levels(pattern: str) -> tuple[list[str], bool]:
    """Return the levels of a pattern without a final `>`, and True if it had one, so that further levels may follow."""
    levels = pattern.split(".")
    is_open = levels[-1] == ">"
    while levels and levels[-1] == ">":
        levels.pop()
    return levels, is_open
