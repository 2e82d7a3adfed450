"""A queue browser: a consumer that is shown what waits, once and in order, and consumes none of it.

Its acknowledgements only make room for more. A broker that takes over shows everything again: what the application has
seen is left out by its id.

Source: OpenWire, `ConsumerInfo.browser` and the dispatch without message at the end; ActiveMQ 5.17's STOMP, `browser`.
"""

from collections.abc import Callable

from pybroker.client.consumers import ConsumerState, Kept, Redelivery
from pybroker.client.conversation import Subscribe
from pybroker.client.messages import Message, Standing
from pybroker.client.requests import Requests


class AllShown(Exception):
    """A browser has shown everything; no error."""


class BrowserState(ConsumerState):
    """One browser. Not thread-safe."""

    def __init__(self, subscribe: Subscribe, *, requests: Requests, clock: Callable[[], float]) -> None:
        """Begin, as `ConsumerState` does."""
        super().__init__(subscribe, requests=requests, kept=Kept(), redelivery=Redelivery(), clock=clock)
        self._seen: set[str] = set()
        self._is_over = False

    def arrive(self, message: Message) -> None:
        """Take a message that is shown."""
        if message.id in self._seen:
            message.standing = Standing.SETTLED
        super().arrive(message)

    def exhausted(self) -> None:
        """Note that there is no more."""
        self._is_over = True
        super().exhausted()

    def interrupted(self) -> None:
        """Note that the broker is gone: the next one begins at the beginning."""
        super().interrupted()
        self._is_over = False

    def take(self) -> Message | None:
        """Return the next message; None if there is none yet.

        Raises:
            AllShown: there will be none any more.
            ClientError: it has ended before it was done.
        """
        message = super().take()
        if message is not None:
            self._seen.add(message.id)
        elif self._is_over:
            raise AllShown
        return message
