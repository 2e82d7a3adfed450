"""The producers of one connection: their numbers, and the sequences of their messages.

A broker recognises a duplicate by the producer's id and the message's sequence, and drops it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.client.conversation import AddProducer, RemoveProducer
from pybroker.client.errors import ConnectionClosed, UnsendableMessage
from pybroker.client.messages import Body, Outgoing
from pybroker.client.pending import PendingResult
from pybroker.client.requests import Requests, RestorableRequest


class Producers:
    """The open producers of one connection. Not thread-safe."""

    def __init__(self, requests: Requests, wall_clock_ms: Callable[[], int]) -> None:
        """Create an empty set of producers; the clock returns milliseconds since the epoch."""
        self._requests = requests
        self._wall_clock_ms = wall_clock_ms
        self._numbers = count(1)
        self._sequences: dict[int, Iterator[int]] = {}
        self._restorable: dict[int, RestorableRequest] = {}

    @property
    def restorable(self) -> Iterable[RestorableRequest]:
        """The requests to submit again on the next broker."""
        return self._restorable.values()

    def add(self, destination: Destination | None = None) -> tuple[int, PendingResult[None]]:
        """Open a producer; return its number and the result of the request."""
        producer = next(self._numbers)
        self._sequences[producer] = count(1)
        request = AddProducer(producer=producer, destination=destination)
        pending = self._requests.submit(request)
        self._restorable[producer] = RestorableRequest(request, pending)
        return producer, pending

    def remove(self, producer: int) -> None:
        """Close a producer."""
        restorable = self._restorable.pop(producer, None)
        if restorable is not None:
            del self._sequences[producer]
            self._requests.complete(restorable.pending.number, ConnectionClosed("the producer is closed"))
            self._requests.send_once_or_log(RemoveProducer(producer=producer))

    def forget(self, producer: int) -> None:
        """Remove a producer that the broker refused, so that it is not restored on the next one."""
        self._restorable.pop(producer, None)

    def message(self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any]) -> Outgoing:
        """Return a producer's next message.

        Raises:
            UnsendableMessage: there is no such header.
            ConnectionClosed: the producer is closed.
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
            raise UnsendableMessage(f"unknown header: {error}") from error
