"""What somebody waits for: a `Ticket` for one outcome, a `Bell` for something that happens again and again.

Both are told of by calls, in whatever thread or task it happens, so that threads and tasks can wait each in their way.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from pybroker.client.conversation import Request
from pybroker.client.errors import ClientError

Value = TypeVar("Value")


class Ticket(Generic[Value]):
    """One outcome: a value or an error, once.

    Attributes:
        number: the request's.
        request: what was asked for; None for what is no single request.
        answer: whether the broker answers it; otherwise it is done when it is sent.
        is_sent: a conversation has encoded it, with the present broker or one before.
        is_repeated: one before the present broker may have carried it out.
        is_done: the outcome is there.
        value: when it went well.
        error: when it did not.
    """

    __slots__ = ("_watchers", "answer", "error", "is_done", "is_repeated", "is_sent", "number", "request", "value")

    def __init__(self, number: int = 0, request: Request | None = None, *, answer: bool = True) -> None:
        self.number = number
        self.request = request
        self.answer = answer
        self.is_sent = False
        self.is_repeated = False
        self.is_done = False
        self.value: Value | None = None
        self.error: ClientError | None = None
        self._watchers: list[Callable[[], None]] = []

    def resolve(self, value: Value | None = None, error: ClientError | None = None) -> None:
        """Set the outcome, unless there is one already."""
        if self.is_done:
            return
        self.value, self.error, self.is_done = value, error, True
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have that called once the outcome is there; at once if it is."""
        if self.is_done:
            watcher()
        else:
            self._watchers.append(watcher)

    def result(self) -> Value | None:
        """Return the value of a ticket that is done, or raise its error."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value


class Bell:
    """Calls everybody who waits, each time that it rings."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: list[Callable[[], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have that called when it rings next, once."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Do not call that any more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def ring(self) -> None:
        """Call them."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()
