"""The answers to transfers of clients, gathered over a chunk of input.

They are sent once the broker has the messages for certain:

```text
 persistent message       confirmed: durable, or consumed and acknowledged
 other message            at the end of the chunk
 no space for it          once there is space, and then as above; so its link gets no new credit before
```

One disposition answers all successive deliveries of a chunk.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from pybroker.broker.domain.ports import ConnectionPort
from pybroker.transports.amqp.serial_numbers import ranges


class AnsweredLink(Protocol):
    """A link on which clients send."""

    def answered(self, count: int) -> None:
        """React to answers: the client may get new credit."""
        ...


class ReceivedDelivery:
    """A delivery that the broker has taken.

    Attributes:
        link: its link.
        delivery_id: its number in the session.
        is_settled: the client waits for no answer.
    """

    __slots__ = ("delivery_id", "is_settled", "link")

    def __init__(self, link: AnsweredLink, delivery_id: int, is_settled: bool) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.is_settled = is_settled


class TransferAnswers:
    """The answers of one session."""

    __slots__ = ("_connection", "_dispose", "_due", "_due_confirmed")

    def __init__(self, connection: ConnectionPort, dispose: Callable[[int, int], None]) -> None:
        """Gather none yet.

        Args:
            connection: the core's.
            dispose: sends a disposition for deliveries that are accepted and settled, from a first to a last one.
        """
        self._connection = connection
        self._dispose = dispose
        self._due: list[ReceivedDelivery] = []
        self._due_confirmed: list[ReceivedDelivery] = []

    def add(self, delivery: ReceivedDelivery, *, is_persistent: bool) -> None:
        """Answer a delivery whose message was sent just now."""
        connection = self._connection
        if connection.is_short_of_space:
            answer = partial(self._answer, (delivery,))
            if is_persistent:
                answer = partial(connection.when_confirmed, answer)
            connection.when_accepted(answer)
        elif is_persistent:
            self._due_confirmed.append(delivery)
        else:
            self._due.append(delivery)

    def close(self) -> None:
        """Answer nothing more: the session has ended. This breaks a reference cycle."""
        self._due = []
        self._due_confirmed = []
        self._dispose = _ignore

    def flush(self) -> None:
        """Answer what was gathered."""
        if self._due_confirmed:
            due, self._due_confirmed = self._due_confirmed, []
            self._connection.when_confirmed(partial(self._answer, due))
        if self._due:
            due, self._due = self._due, []
            self._answer(due)

    def _answer(self, deliveries: Sequence[ReceivedDelivery]) -> None:
        if len(deliveries) == 1:  # as clients send that wait for each answer
            only = deliveries[0]
            if not only.is_settled:
                self._dispose(only.delivery_id, only.delivery_id)
            only.link.answered(1)
            return
        unsettled = [each.delivery_id for each in deliveries if not each.is_settled]
        if unsettled:
            for first, last in ranges(unsettled):
                self._dispose(first, last)
        counts: dict[AnsweredLink, int] = {}
        for each in deliveries:
            counts[each.link] = counts.get(each.link, 0) + 1
        for link, count in counts.items():
            link.answered(count)


def _ignore(_first: int, _last: int) -> None:
    """Do nothing."""
