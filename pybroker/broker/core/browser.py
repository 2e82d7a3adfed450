"""A queue browser's backlog: a snapshot of what waits and what is in flight; nothing it does consumes a message."""

from collections.abc import Callable, Iterator, Sequence

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.transaction import LocalTransactionId


class Snapshot:
    """What a browser is shown: every matching message once, then the end."""

    __slots__ = ("_browsed", "_consumer", "_references")

    def __init__(self, queues: Sequence[Queue], consumer: Consumer, browsed: Callable[[], None]) -> None:
        self._consumer = consumer
        self._browsed = browsed
        found = [
            (reference.message, reference.redelivery_count)
            for queue in queues
            for reference in sorted([*queue.in_flight(), *queue.pending], key=lambda held: held.sequence)
            if consumer.accepts(reference.message, reference.redelivery_count)
        ]
        self._references: Iterator[Reference] | None = iter(
            [Reference(message, self, index, count) for index, (message, count) in enumerate(found)]
        )
        consumer.sources.append(self)

    def dispatch(self) -> None:
        """Show what the browser has room for; say so when there is no more."""
        while self._references is not None and self._consumer.has_room:
            reference = next(self._references, None)
            if reference is None:
                self._references = None
                self._browsed()
            else:
                reference.state = State.DISPATCHED
                self._consumer.offer(reference)

    def detach(self, consumer: Consumer) -> None:
        """Show no more."""
        self._references = None

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Looking changes nothing."""

    def settle(self, reference: Reference) -> None:
        """Looking changes nothing."""

    def restore(self, references: Sequence[Reference]) -> None:
        """Looking changes nothing."""

    def reject(self, reference: Reference, cause: str) -> None:
        """Never called: `Consumer.reject` refuses for browsers."""
        raise AssertionError("a browser rejects nothing")
