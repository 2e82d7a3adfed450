"""A queue browser's backlog: a snapshot of what waits and what is in flight; nothing it does consumes a message."""

from collections.abc import Callable, Iterator, Sequence

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.transaction import TransactionId


class Snapshot:
    """What a browser is shown: every matching message once, then the end."""

    __slots__ = ("_browsed", "_consumer", "_found")

    def __init__(self, queues: Sequence[Queue], consumer: Consumer, browsed: Callable[[], None]) -> None:
        self._consumer = consumer
        self._browsed = browsed
        self._found: Iterator[Reference] | None = iter(
            [
                reference
                for queue in queues
                for reference in sorted([*queue.in_flight(), *queue.pending], key=lambda held: held.sequence)
            ]
        )
        consumer.sources.append(self)

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Show what the browser has room for; say so when there is no more."""
        while self._found is not None and self._consumer.has_room:
            found = next(self._found, None)
            if found is None:
                self._found = None
                self._browsed()
            elif self._consumer.accepts(found.message, found.redelivery_count):
                self._consumer.offer(Reference(found.message, self, found.sequence, found.redelivery_count))

    def detach(self, consumer: Consumer) -> None:
        """Show no more."""
        self._found = None

    def forget(self, reference: Reference, transaction: TransactionId | None) -> None:
        """Looking changes nothing."""

    def settle(self, reference: Reference) -> None:
        """Looking changes nothing."""

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Looking changes nothing."""

    def reject(self, reference: Reference, cause: str) -> None:
        """Never called: `Consumer.reject` refuses for browsers."""
        raise AssertionError("a browser rejects nothing")

    def expired(self, reference: Reference) -> None:
        """Looking changes nothing."""
