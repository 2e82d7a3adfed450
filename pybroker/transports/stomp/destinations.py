"""Destinations as STOMP headers write them, and back.

Source: ActiveMQ 5.17's STOMP transport. A name is taken literally behind its prefix; anything else is a queue.

```text
/queue/N   /topic/N                 a queue, a topic
/temp-queue/N   /temp-topic/N       this connection's temporary one that it calls N; made when first named
/remote-temp-queue/ID…              another connection's, by the name it was announced under in `reply-to`
/queue/A,/topic/B                   a composite: both (a core's name for it: queue `A,topic://B`)
```

Blanks around the items of a composite do not count. In ActiveMQ they do: an item after a comma and a blank is a queue
called `/queue/B`.
"""

from typing import TypeVar

from pybroker.broker.domain.destination import PARTS_MAX, Destination, DestinationType, checked
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.stomp.errors import StompRequestError

_QUEUE, _TOPIC = "/queue/", "/topic/"
_TEMPORARY = {"/temp-queue/": DestinationType.TEMP_QUEUE, "/temp-topic/": DestinationType.TEMP_TOPIC}
_PREFIXES = {
    _QUEUE: DestinationType.QUEUE,
    _TOPIC: DestinationType.TOPIC,
    "/remote-temp-queue/": DestinationType.TEMP_QUEUE,
    "/remote-temp-topic/": DestinationType.TEMP_TOPIC,
}
_PREFIX_OF = {kind: prefix for prefix, kind in _PREFIXES.items()}

_REMEMBERED_MAX = 1000
"""Names remembered for each purpose; a client that keeps inventing new ones only loses the short cut."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class DestinationNames:
    """One connection's view of names: remembers what it has seen, and what it calls its temporary destinations."""

    __slots__ = ("_connection", "_own_names", "_parsed", "_temporaries", "_temporaries_max", "_written")

    def __init__(self, connection: ConnectionPort, *, temporaries_max: int) -> None:
        self._connection = connection
        self._temporaries_max = temporaries_max
        self._temporaries: dict[str, Destination] = {}
        self._own_names: dict[Destination, str] = {}
        self._parsed: dict[str, Destination] = {}
        self._written: dict[Destination, str] = {}

    def parse(self, text: str) -> Destination:
        """Return the destination a header names; a temporary one of this connection is made if need be.

        Raises:
            InvalidDestination: there is no name, or a composite has too many.
            Refused: one temporary destination too many.
        """
        known = self._parsed.get(text)
        if known is not None:
            return known
        destination = self._parse(text.strip())
        remember(self._parsed, text, destination)
        return destination

    def write(self, destination: Destination) -> str:
        """Return the header value that names a destination to this connection."""
        known = self._written.get(destination)
        if known is None:
            known = self._own_names.get(destination) or _PREFIX_OF[destination.type] + destination.name
            remember(self._written, destination, known)
        return known

    def _parse(self, text: str) -> Destination:
        if "," in text:
            return self._parse_composite(text)
        for prefix, kind in _TEMPORARY.items():
            if text.startswith(prefix):
                return self._temporaries.get(text) or self._make_temporary(text, prefix, kind)
        for prefix, kind in _PREFIXES.items():
            if text.startswith(prefix):
                return checked(kind, text[len(prefix) :])
        return checked(DestinationType.QUEUE, text)

    def _parse_composite(self, text: str) -> Destination:
        """Return the composite: its type is that of its first item, its name that one's and the qualified others."""
        items = [item for item in map(str.strip, text.split(",")) if item]
        if not items:
            raise InvalidDestination("the destination's name is empty: write for example /queue/A,/queue/B")
        if len(items) > PARTS_MAX:
            raise InvalidDestination(f"the destination has {len(items)} names, at most {PARTS_MAX} are allowed")
        first, *others = dict.fromkeys(self._parse(item) for item in items)
        return Destination(first.type, ",".join((first.name, *map(str, others))))

    def _make_temporary(self, text: str, prefix: str, kind: DestinationType) -> Destination:
        if text == prefix:
            raise InvalidDestination(f"the destination's name is empty: write for example {prefix}replies")
        if len(self._temporaries) >= self._temporaries_max:
            raise StompRequestError(
                f"A connection may have {self._temporaries_max} temporary destinations",
                "Reuse one of them; the correlation-id tells replies apart.",
            )
        destination = self._connection.create_temporary(kind)
        self._temporaries[text] = destination
        self._own_names[destination] = text
        self._written.pop(destination, None)
        return destination


def names_a_destination(text: str) -> bool:
    """Tell whether a `reply-to` names a destination; ActiveMQ keeps any other value as a property of that name."""
    return text.strip().startswith((*_PREFIXES, *_TEMPORARY))


def remember(memory: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add to what only saves work when it is there; a full memory starts anew."""
    if len(memory) >= _REMEMBERED_MAX:
        memory.clear()
    memory[key] = value
