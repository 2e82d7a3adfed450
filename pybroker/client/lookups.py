"""Searches for a destination on the broker, which do not create it.

No command asks a broker for a destination. A consumer of the advisory topic of a type gets one advisory for each
destination that exists, and each search opens such a consumer:

```text
 1 create a temporary queue   2 list the destinations   3 the answer, and the advisory of the temporary queue   4 close
```

The end of the list has no mark. ActiveMQ sends the list before its answer, and pybroker sends it in the order in which
the destinations were created, perhaps after its answer. So the list is complete when both the answer and the advisory
of the temporary queue, which is the newest, have arrived. A broker that sends no advisories never completes it.

Source: OpenWire, advisories; ActiveMQ 5.17, `AdvisoryBroker`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pybroker.broker.domain.destination import Destination
from pybroker.client.conversation import DeleteDestination, ListDestinations, RemoveConsumer
from pybroker.client.errors import ClientError
from pybroker.client.pending import PendingResult
from pybroker.client.requests import Requests, RestorableRequest


@dataclass(slots=True)
class _Search:
    """A search in progress.

    Attributes:
        destination: the destination that is searched for.
        newest: the temporary queue that ends the list.
        outcome: True if the destination exists.
        restorable: the request for the list.
        is_answered: the present broker has answered the request.
        has_newest: the present broker has listed the temporary queue.
    """

    destination: Destination
    newest: Destination
    outcome: PendingResult[bool]
    restorable: RestorableRequest
    is_answered: bool = False
    has_newest: bool = False


class Lookups:
    """The searches for destinations of one connection. Not thread-safe."""

    def __init__(self, requests: Requests, on_ended: Callable[[Destination], None]) -> None:
        """Create an empty set of searches.

        Args:
            requests: the connection's requests.
            on_ended: called at the end of a search with its temporary queue, which it has asked the broker to delete.
        """
        self._requests = requests
        self._on_ended = on_ended
        self._searches: dict[int, _Search] = {}

    def find(self, destination: Destination, consumer: int, newest: Destination) -> PendingResult[bool]:
        """Search for a destination; the result is True if it exists.

        Args:
            destination: the destination.
            consumer: the number of the consumer of the list.
            newest: a temporary queue whose creation was requested just before.
        """
        request = ListDestinations(consumer=consumer, type=destination.type)
        outcome: PendingResult[bool] = PendingResult()
        search = _Search(destination, newest, outcome, RestorableRequest(request, PendingResult()))
        self._searches[consumer] = search
        outcome.add_done_callback(lambda: self._ended(consumer, newest))
        self._observe(search, self._requests.submit(request))
        return outcome

    def _observe(self, search: _Search, pending: PendingResult[None]) -> None:
        search.restorable.pending = pending
        pending.add_done_callback(lambda: self._answered(search, pending))

    def _answered(self, search: _Search, pending: PendingResult[None]) -> None:
        if pending.error is not None:
            search.outcome.complete(error=pending.error)
        elif pending is search.restorable.pending:
            search.is_answered = True
            self._review(search)

    def listed(self, consumer: int, destination: Destination) -> None:
        """Process a destination that the broker listed."""
        search = self._searches.get(consumer)
        if search is None:
            return
        if destination == search.destination:
            search.outcome.complete(True)
        elif destination == search.newest:
            search.has_newest = True
            self._review(search)

    def refused(self, newest: Destination, error: ClientError) -> None:
        """End the search whose temporary queue the broker refused: the list would never be complete."""
        for search in [each for each in self._searches.values() if each.newest == newest]:
            search.outcome.complete(error=error)

    def _review(self, search: _Search) -> None:
        if search.is_answered and search.has_newest:
            search.outcome.complete(False)

    def _ended(self, consumer: int, newest: Destination) -> None:
        search = self._searches.pop(consumer)
        self._requests.complete(search.restorable.pending.number)  # the next broker would get it otherwise
        self._requests.send_once_or_log(RemoveConsumer(consumer=consumer))
        self._requests.send_once_or_log(DeleteDestination(destination=newest))
        self._on_ended(newest)

    # ------------------------------------------------------------ brokers come and go

    def interrupted(self) -> None:
        """Handle the loss of the broker: the next one lists its destinations from the beginning."""
        for search in self._searches.values():
            search.is_answered = search.has_newest = False

    def fail(self, error: ClientError) -> None:
        """Complete all searches with an error: the connection has failed."""
        for search in list(self._searches.values()):
            search.outcome.complete(error=error)

    def restore(self) -> Iterable[int]:
        """Request the lists again from the next broker, and return the numbers of these requests."""
        restored: list[int] = []
        for search in list(self._searches.values()):
            former = search.restorable.pending
            restored.append(self._requests.restore(search.restorable))
            if search.restorable.pending is not former:
                self._observe(search, search.restorable.pending)
        return restored
