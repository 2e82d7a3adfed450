"""Conversion between destinations and STOMP headers.

Source: ActiveMQ 5.17's STOMP transport. A name is taken literally behind its prefix; anything else is a queue.

```text
/queue/N   /topic/N                 a queue, a topic
/temp-queue/N   /temp-topic/N       this connection's temporary one with its own name N; created at its first use
/remote-temp-queue/ID…              another connection's, by its name in `reply-to`
/queue/A,/topic/B                   a composite: both (in the core: queue `A,topic://B`)
```

Blanks around the items of a composite are ignored. In ActiveMQ an item after a comma and a blank is a queue called
`/queue/B`.
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

_CACHED_MAX = 1000
"""The limit to the entries of each cache, which is cleared when it is full."""

_KEY_MAX = 1100
"""The characters of a key that is cached: the longest name of a destination has fewer, and composites are rare."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class DestinationNames:
    """The destination names of one connection: its temporary destinations, and a cache of the others."""

    __slots__ = ("_connection", "_own_names", "_parsed", "_temporaries", "_temporaries_max", "_written")

    def __init__(self, connection: ConnectionPort, *, temporaries_max: int) -> None:
        self._connection = connection
        self._temporaries_max = temporaries_max
        self._temporaries: dict[str, Destination] = {}
        self._own_names: dict[Destination, str] = {}
        self._parsed: dict[str, Destination] = {}
        self._written: dict[Destination, str] = {}

    def parse(self, text: str) -> Destination:
        """Return the destination of a header; creates a temporary destination at its first use.

        Raises:
            InvalidDestination: there is no name, or a composite has too many.
            StompRequestError: one temporary destination too many.
        """
        known = self._parsed.get(text)
        if known is not None:
            return known
        destination = self._parse(text.strip())
        cache_entry(self._parsed, text, destination)
        return destination

    def write(self, destination: Destination) -> str:
        """Return the header for a destination."""
        known = self._written.get(destination)
        if known is None:
            known = self._own_names.get(destination) or _PREFIX_OF[destination.type] + destination.name
            cache_entry(self._written, destination, known)
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
        """Return a composite, with the type of its first item and the names of all, qualified from the second on."""
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
                "Reuse one of them; distinguish replies by their correlation-id.",
            )
        destination = self._connection.create_temporary(kind)
        self._temporaries[text] = destination
        self._own_names[destination] = text
        self._written.pop(destination, None)
        return destination


def names_a_destination(text: str) -> bool:
    """Return True if a `reply-to` is a destination; ActiveMQ keeps any other value as a property."""
    return text.strip().startswith((*_PREFIXES, *_TEMPORARY))


def cache_entry(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add an entry to a cache, which is cleared first if it is full; a long key is not cached."""
    if len(str(key)) > _KEY_MAX:
        return
    if len(cache) >= _CACHED_MAX:
        cache.clear()
    cache[key] = value
