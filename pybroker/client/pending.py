"""`PendingResult`, the future result of one operation, and `Callbacks`, for an event that happens repeatedly.

Both run callbacks in the thread or task that completes them. So threads and asyncio tasks can both wait for them.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from pybroker.client.conversation import Request
from pybroker.client.errors import ClientError

Value = TypeVar("Value")


class PendingResult(Generic[Value]):
    """The result of an operation: a value or an error, set once.

    Attributes:
        number: the number of the request.
        request: the request; None for an operation that is no single request.
        answer: True if the broker answers the request; otherwise it is done when it is sent.
        is_sent: a conversation has encoded the request, for the present broker or a former one.
        is_repeated: a former broker may have processed the request.
        is_done: the result is set.
        value: the value after success.
        error: the error after failure; None after success.
    """

    __slots__ = ("_callbacks", "answer", "error", "is_done", "is_repeated", "is_sent", "number", "request", "value")

    def __init__(self, number: int = 0, request: Request | None = None, *, answer: bool = True) -> None:
        self.number = number
        self.request = request
        self.answer = answer
        self.is_sent = False
        self.is_repeated = False
        self.is_done = False
        self.value: Value | None = None
        self.error: ClientError | None = None
        self._callbacks: list[Callable[[], None]] = []

    def complete(self, value: Value | None = None, error: ClientError | None = None) -> None:
        """Set the result and run the callbacks; does nothing if the result is set."""
        if self.is_done:
            return
        self.value, self.error, self.is_done = value, error, True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Register a function to call when the result is set; call it at once if it is."""
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def result(self) -> Value | None:
        """Return the value of a completed operation, or raise its error."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value


class Callbacks:
    """Functions to call at the next occurrence of an event, each once."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> None:
        """Add a function for the next occurrence."""
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[], None]) -> None:
        """Remove a function; does nothing if it is not registered."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def call(self) -> None:
        """Call the functions and remove them."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
