"""A queue browser: a consumer that gets each message of a queue once and in order, and consumes none.

Its acknowledgements only extend the prefetch window. After a failover the new broker sends all messages again, and the
browser drops those that the application has seen, by their ids.

Source: OpenWire, `ConsumerInfo.browser` and the dispatch without message at the end; ActiveMQ 5.17's STOMP, `browser`.
"""

from collections.abc import Callable

from pybroker.client.consumers import ConsumerState, Redelivery, RedeliveryCache
from pybroker.client.conversation import AddConsumer
from pybroker.client.messages import DeliveryState, Message
from pybroker.client.requests import Requests
from pybroker.errors import PybrokerError


class AllShown(PybrokerError):
    """The browser has returned all messages of the queue. This is no error."""


class BrowserState(ConsumerState):
    """The state of one browser. Not thread-safe."""

    def __init__(self, subscribe: AddConsumer, *, requests: Requests, clock: Callable[[], float]) -> None:
        """Create the state; the arguments are those of `ConsumerState`."""
        super().__init__(
            subscribe, requests=requests, redelivery_cache=RedeliveryCache(), redelivery=Redelivery(), clock=clock
        )
        self._seen: set[str] = set()
        self._is_exhausted = False

    def dispatch(self, message: Message) -> None:
        """Process a message that the broker delivers; skip it if the application has seen it."""
        if message.id in self._seen:
            message.delivery_state = DeliveryState.ACKNOWLEDGED
        super().dispatch(message)

    def exhausted(self) -> None:
        """Handle the broker's answer that the queue has no more messages."""
        self._is_exhausted = True
        super().exhausted()

    def interrupted(self) -> None:
        """Handle the loss of the broker: the next one begins at the oldest message."""
        super().interrupted()
        self._is_exhausted = False

    def receive_no_wait(self) -> Message | None:
        """Return the next message; None if there is none yet.

        Raises:
            AllShown: the browser has returned all messages.
            ClientError: the browser was ended before.
        """
        message = super().receive_no_wait()
        if message is not None:
            self._seen.add(message.id)
        elif self._is_exhausted:
            raise AllShown
        return message
