"""`KombuSubscription`, which consumes one queue of Kombu for one consumer: from its destination and its bindings.

```text
KombuSubscription ──┬── KombuSource: the queue's own destination
                    ├── KombuSource: a queue of a virtual topic, for each binding
                    └── KombuSource: a topic, for each binding of a transient queue
```

A queue with two bindings that take the same message gets it twice, with one message id. AMQP delivers it once, so the
second is acknowledged and dropped, if it comes soon enough.

A subscription that is cancelled may have messages that are not acknowledged: a worker that shuts down finishes its
tasks. A broker redelivers the messages of a consumer that is closed. So a source stays open, with a prefetch of 0,
until its last message is acknowledged; what it has received and not delivered goes back to the broker at once.
"""

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

from pybroker.broker.domain.destination import Destination
from pybroker.client import ConnectionClosed, Consumer, Message
from pybroker.kombu.bindings import Binding
from pybroker.kombu.message_form import routing_key_of

RECENT_MAX: Final = 1000
"""The messages of a queue among which a copy is recognised."""


class KombuSource:
    """A client's consumer of one destination.

    Attributes:
        consumer: the consumer.
        destination: its destination.
        bindings: the bindings whose messages it gets; none for the queue's own destination.
        unacknowledged: the number of messages that the application has, and has not acknowledged.
        is_cancelled: no further message is delivered; the source closes after the last acknowledgement.
    """

    def __init__(
        self, consumer: Consumer, destination: Destination, on_ready: Callable[[], None], bindings: Iterable[Binding]
    ) -> None:
        """Create a source; `on_ready` is called in the client's thread when `poll` may return a message."""
        self.consumer = consumer
        self.destination = destination
        self.bindings = set(bindings)
        self.unacknowledged = 0
        self.is_cancelled = False
        self._on_ready = on_ready
        self._is_armed = False

    def poll(self) -> Message | None:
        """Return the next message that belongs to a binding; None if there is none now: `on_ready` is called then.

        Raises:
            ClientError: the consumer has ended.
        """
        while (message := self.consumer.receive_no_wait()) is not None:
            if self.accepts(message):
                return message
            message.ack()
        if not self._is_armed:
            self._is_armed = True
            self.consumer.call_when_ready(self._ready)
        return None

    def _ready(self) -> None:
        self._is_armed = False
        self._on_ready()

    def accepts(self, message: Message) -> bool:
        """Return True if a message belongs to one of the bindings, and has not expired since the broker sent it.

        A consumer of a queue whose name is a pattern also gets the messages of other queues that the pattern covers:
        those of narrower bindings, which the broker has checked.
        """
        if 0 < message.expiration <= time.time() * 1000:
            return False
        if not self.bindings or (self.destination.is_queue and _place(message) != self.destination):
            return True
        return any(binding.accepts(routing_key_of(message)) for binding in self.bindings)

    def cancel(self) -> None:
        """Deliver no further message; close at once, or after the last acknowledgement."""
        if self.is_cancelled:
            return
        self.is_cancelled = True
        if self.unacknowledged and self.consumer.error is None:
            self.consumer.set_prefetch(0)
            self.give_back_received()
        else:
            self.consumer.close()

    def give_back_received(self) -> None:
        """Return to the broker what the consumer has received and the application has not."""
        with contextlib.suppress(ConnectionClosed):  # then the broker has it already
            while (message := self.consumer.receive_no_wait()) is not None:
                self.give_back(message)

    def give_back(self, message: Message) -> None:
        """Return a message to its queue. One of a topic, which has no queue to return to, is dropped.

        Raises:
            ConnectionClosed: its consumer has ended: it is redelivered anyway.
        """
        if self.destination.is_queue:
            self.consumer.give_back(message)
        else:
            message.ack()

    def acknowledged(self) -> None:
        """Record that the application has acknowledged a message, or given it back."""
        self.unacknowledged -= 1
        if self.is_cancelled:
            if self.unacknowledged:
                self.give_back_received()
            else:
                self.consumer.close()


class KombuSubscription:
    """The consumption of one queue for one consumer of Kombu.

    Attributes:
        queue: the queue's name.
        no_ack: a message is acknowledged before it is delivered.
        callback: called with each message of Kombu.
        sources: the sources by destination.
    """

    def __init__(self, queue: str, *, no_ack: bool, callback: Callable[[Any], object]) -> None:
        self.queue = queue
        self.no_ack = no_ack
        self.callback = callback
        self.sources: dict[Destination, KombuSource] = {}
        self._recent: OrderedDict[str, Destination] = OrderedDict()

    def poll(self) -> tuple[KombuSource, Message] | None:
        """Return the next message, with its source; None if there is none now.

        Raises:
            ClientError: a consumer has ended.
        """
        for source in list(self.sources.values()):
            while (message := source.poll()) is not None:
                if not self._is_copy(message, source):
                    return source, message
                message.ack()
        return None

    def accepts(self, message: Message, source: KombuSource) -> bool:
        """Return True if a message that a source received belongs to one of its bindings, and is no copy."""
        return source.accepts(message) and not self._is_copy(message, source)

    def _is_copy(self, message: Message, source: KombuSource) -> bool:
        """Return True if the message came through another binding before; it may come again through the same one."""
        if len(self.sources) < 2:
            return False
        place = _place(message) if source.destination.is_queue else source.destination
        first = self._recent.setdefault(message.id, place)
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        return first != place

    def cancel(self) -> None:
        """Cancel all sources."""
        for source in self.sources.values():
            source.cancel()


def _place(message: Message) -> Destination:
    """Return the queue that delivered a message."""
    return message.source or message.destination
