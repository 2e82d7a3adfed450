"""`KombuSubscription`, which consumes one queue of Kombu for one consumer: from its destination and its bindings.

```text
KombuSubscription ──┬── KombuSource: the queue's own destination
                    ├── KombuSource: a queue of a virtual topic, for each binding
                    └── KombuSource: a topic, for each binding of a transient queue
```

A queue with two bindings that take the same message gets it twice, with one message id. AMQP delivers it once, so the
second is acknowledged and dropped, if it comes soon enough.

A subscription that is cancelled may have messages that are not acknowledged: a worker that shuts down finishes its
tasks. A broker redelivers the messages of a consumer that is closed. So a source is stopped, and stays open until its
last message is acknowledged; what it has received and not delivered goes back to the broker at once.

A source is also stopped when its channel can take no more messages, and has received one: each consumer has the whole
limit of the channel as its prefetch, and all together can receive more. It starts again when there is room.
"""

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from pybroker.broker.domain.destination import Destination
from pybroker.client import ConnectionClosed, ConnectionFailed, Consumer, Message, Refused
from pybroker.kombu.bindings import Binding
from pybroker.kombu.message_form import routing_key_of

Item = TypeVar("Item")

RECENT_MAX: Final = 1000
"""The messages of a queue among which a copy is recognised."""


class KombuSource:
    """A client's consumer of one destination. Kombu acknowledges messages in any thread; one thread polls.

    Attributes:
        consumer: the consumer.
        destination: its destination.
        bindings: the bindings whose messages it gets; none for the queue's own destination.
        is_cancelled: no further message is delivered; the source closes after the last acknowledgement.
    """

    def __init__(
        self, consumer: Consumer, destination: Destination, on_ready: Callable[[], None], bindings: Iterable[Binding]
    ) -> None:
        """Create a source; `on_ready` is called in the client's thread when `poll` may return a message."""
        self.consumer = consumer
        self.destination = destination
        self.bindings = set(bindings)
        self.is_cancelled = False
        self._on_ready = on_ready
        self._is_armed = False
        self._returned = deque[Message]()
        # Not taken by `_ready`, which the client calls while it holds its own lock. A handler of a signal may come
        # while its thread has it: Celery's for a cold shutdown cancels consumers, and acknowledges.
        self._lock = threading.RLock()
        self._unacknowledged = 0
        self._is_stopped = False

    @property
    def unacknowledged(self) -> int:
        """The number of messages that the application has, and has not acknowledged."""
        return self._unacknowledged

    def poll(self) -> Message | None:
        """Return the next message that belongs to a binding; None if there is none now: `on_ready` is called then.

        Raises:
            ClientError: the consumer has ended.
        """
        if self._returned:
            return self._returned.popleft()
        while (message := self.consumer.receive_no_wait()) is not None:
            if self.accepts(message):
                return message
            message.ack()
        self._arm()
        return None

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self.consumer.call_when_ready(self._ready)

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

    # ------------------------------------------------------------ the limit of the channel

    def hold_back(self) -> None:
        """Return to the broker what the consumer has received, and what still arrives, until `resume`.

        Messages of a topic have no queue to return to, and wait in the client: they are for this connection alone.
        """
        if not self.destination.is_queue:
            return
        with self._lock, contextlib.suppress(ConnectionClosed):  # `poll` reports the end of the consumer
            if self._is_stopped:
                return
            if not self.consumer.has_message:
                self._arm()
                return
            self._is_stopped = True
            self.consumer.stop()

    def resume(self, room: int | None, limit: int) -> None:
        """Let the broker send again if the source is held back, and the channel has room.

        Args:
            room: the number of messages that the channel can take; None for no limit.
            limit: the prefetch of a source that is not held back.
        """
        with self._lock, contextlib.suppress(ConnectionClosed):
            if self._is_stopped and not self.is_cancelled and room != 0:
                window = limit if room is None else min(limit, self._unacknowledged + room)
                self.consumer.set_prefetch(window)
                self._is_stopped = window < limit

    def limit(self, prefetch: int) -> None:
        """Set the prefetch, unless the source is held back or cancelled."""
        with self._lock, contextlib.suppress(ConnectionClosed):
            if not self._is_stopped and not self.is_cancelled:
                self.consumer.set_prefetch(prefetch)

    # ------------------------------------------------------------ what the application has

    def delivered(self) -> None:
        """Record that the application gets a message, which it acknowledges later."""
        with self._lock:
            self._unacknowledged += 1

    def acknowledged(self) -> None:
        """Record that the application has acknowledged a message, or given it back."""
        with self._lock:
            self._unacknowledged -= 1
            is_done = self.is_cancelled and not self._unacknowledged
        if is_done:
            self.consumer.close()

    def cancel(self) -> None:
        """Deliver no further message; close at once, or after the last acknowledgement."""
        with self._lock:
            if self.is_cancelled:
                return
            self.is_cancelled = True
            if self._unacknowledged:
                with contextlib.suppress(ConnectionClosed):  # then the broker has its messages already
                    self.consumer.stop()
                return
        self.consumer.close()

    def return_unused(self, messages: Iterable[Message]) -> bool:
        """Return messages of a cancelled source to their queue, which the application will not process; does not wait.

        They do not count as delivered. Return False if they stay: they are of a topic, which has no queue to return to.
        """
        if not self.is_cancelled or not self.destination.is_queue:
            return False
        with contextlib.suppress(ConnectionClosed, ConnectionFailed, Refused):  # it has ended: the broker has them
            self.consumer.stop(messages)
        return True

    def give_back(self, message: Message) -> None:
        """Return a message to its queue. One of a topic, which has no queue to return to, is delivered again here.

        Raises:
            ConnectionClosed: its consumer has ended: it is redelivered anyway.
        """
        if self.destination.is_queue:
            self.consumer.give_back(message)
            return
        message.redelivery_count += 1
        self._returned.append(message)
        self._on_ready()


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
        self._turn = 0

    def poll(self) -> tuple[KombuSource, Message] | None:
        """Return the next message, with its source; None if there is none now. Each source gets its turn.

        Raises:
            ClientError: a consumer has ended.
        """
        for source in in_turn(self.sources.values(), self._turn):
            while (message := source.poll()) is not None:
                if not self._is_copy(message, source):
                    self._turn += 1
                    return source, message
                message.ack()
        return None

    def hold_back(self) -> None:
        """Return to the broker what has been received and not delivered: the channel can take no more."""
        for source in tuple(self.sources.values()):
            source.hold_back()

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


def in_turn(items: Iterable[Item], turn: int) -> list[Item]:
    """Return the items, beginning with another one in each turn."""
    all_items = list(items)
    start = turn % len(all_items) if all_items else 0
    return all_items[start:] + all_items[:start]


def _place(message: Message) -> Destination:
    """Return the queue that delivered a message."""
    return message.source or message.destination
