"""The messages that an application has received on a channel and not acknowledged: AMQP's quality of service.

Kombu calls `ack` and `reject` in any thread: Celery's timer does, and the threads of its pools.
"""

import threading
from collections.abc import Callable

from pybroker.client import Message
from pybroker.kombu.subscriptions import KombuSource


class UnacknowledgedMessages:
    """The unacknowledged messages of one channel, by delivery tag.

    The attributes and methods without underscore are those that Kombu's virtual channels call.

    Attributes:
        prefetch_count: the most messages that the application has at a time; 0 for no limit.
    """

    prefetch_count = 0

    def __init__(self, on_room: Callable[[], None]) -> None:
        """Create an empty collection; `on_room` is called when another message may be delivered."""
        self._on_room = on_room
        self._lock = threading.Lock()
        self._delivered: dict[int, tuple[Message, KombuSource]] = {}

    def __len__(self) -> int:
        return len(self._delivered)

    def can_consume(self) -> bool:
        """Return True if the application may have another message."""
        return not self.prefetch_count or len(self._delivered) < self.prefetch_count

    def append(self, tag: int, message: Message, source: KombuSource) -> None:
        """Record a message that is delivered to the application."""
        with self._lock:
            self._delivered[tag] = message, source
            source.unacknowledged += 1

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge a message; with `multiple` all until this one, or all if the tag is 0.

        Raises:
            ConnectionClosed: its consumer has ended: the message will be redelivered.
        """
        for message, source in self._take(tag, multiple=multiple):
            message.ack()
            source.acknowledged()
        self._on_room()

    def reject(self, tag: int, *, requeue: bool, to_dlq: bool) -> None:
        """Return a message to the broker, or discard it; with `to_dlq` the broker keeps it as a dead letter.

        Raises:
            ConnectionClosed: its consumer has ended: the message will be redelivered.
        """
        for message, source in self._take(tag, multiple=False):
            if requeue:
                source.give_back(message)
            elif to_dlq:
                source.consumer.reject(message, "rejected by its consumer")
            else:
                message.ack()
            source.acknowledged()
        self._on_room()

    def recover(self) -> None:
        """Return all messages to the broker, the oldest first."""
        for message, source in self._take(0, multiple=True):
            source.give_back(message)
            source.acknowledged()
        self._on_room()

    def clear(self) -> None:
        """Forget all messages, whose consumers are closed: the broker redelivers them. Those of topics are lost."""
        for message, source in self._take(0, multiple=True):
            source.unacknowledged -= 1
            if source.consumer.error is None:
                message.ack()

    def _take(self, tag: int, *, multiple: bool) -> list[tuple[Message, KombuSource]]:
        with self._lock:
            if multiple:
                tags = [each for each in self._delivered if not tag or each <= tag]
            else:
                tags = [tag] if tag in self._delivered else []
            return [self._delivered.pop(each) for each in tags]
