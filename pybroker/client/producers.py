"""The producers of one connection: their numbers, and those of their messages.

A broker knows by a producer's id and a message's sequence which sends it has had before, and drops them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.client.conversation import AddProducer, RemoveProducer
from pybroker.client.errors import ConnectionClosed, UnsendableMessage
from pybroker.client.messages import Body, Outgoing
from pybroker.client.requests import Opening, Requests
from pybroker.client.tickets import Ticket


class Producers:
    """See the module. Not thread-safe."""

    def __init__(self, requests: Requests, wall_clock_ms: Callable[[], int]) -> None:
        """Begin with none; the clock gives milliseconds since the epoch."""
        self._requests = requests
        self._wall_clock_ms = wall_clock_ms
        self._numbers = count(1)
        self._sequences: dict[int, Iterator[int]] = {}
        self._openings: dict[int, Opening] = {}

    @property
    def openings(self) -> Iterable[Opening]:
        """What the next broker is asked for."""
        return self._openings.values()

    def add(self, destination: Destination | None = None) -> tuple[int, Ticket[None]]:
        """Begin to send; return the producer's number."""
        producer = next(self._numbers)
        self._sequences[producer] = count(1)
        request = AddProducer(producer=producer, destination=destination)
        ticket = self._requests.ask(request)
        self._openings[producer] = Opening(request, ticket)
        return producer, ticket

    def remove(self, producer: int) -> None:
        """End sending."""
        opening = self._openings.pop(producer, None)
        if opening is not None:
            del self._sequences[producer]
            self._requests.resolve(opening.ticket.number, ConnectionClosed("the producer is closed"))
            self._requests.tell(RemoveProducer(producer=producer))

    def forget(self, producer: int) -> None:
        """Do not ask the next broker for a producer that was refused."""
        self._openings.pop(producer, None)

    def message(self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any]) -> Outgoing:
        """Return a producer's next message.

        Raises:
            UnsendableMessage: a header is of no use.
            ConnectionClosed: there is no such producer any more.
        """
        if producer not in self._sequences:
            raise ConnectionClosed("the producer is closed")
        headers = dict(headers)
        now = self._wall_clock_ms()
        headers.setdefault("timestamp", now)
        ttl = headers.pop("ttl", None)
        if ttl is not None:
            headers["expiration"] = now + int(ttl * 1000)
        try:
            return Outgoing(
                producer=producer,
                sequence=next(self._sequences[producer]),
                destination=destination,
                body=body,
                **headers,
            )
        except TypeError as error:
            raise UnsendableMessage(f"a header that there is not: {error}") from error
