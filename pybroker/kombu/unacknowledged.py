"""The messages that an application has received on a channel and not acknowledged: AMQP's quality of service.

Kombu calls `ack` and `reject` in any thread: Celery's timer does, and the threads of its pools.
"""

import threading
from collections.abc import Callable, Iterable

from pybroker.client import ClientError, ConnectionClosed, Message
from pybroker.client.messages import DeliveryState
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
        self._lock = threading.RLock()  # a handler of a signal may acknowledge while its thread has the lock
        self._delivered: dict[int, tuple[Message, KombuSource]] = {}

    def __len__(self) -> int:
        return len(self._delivered)

    def can_consume(self) -> bool:
        """Return True if the application may have another message."""
        return not self.prefetch_count or len(self._delivered) < self.prefetch_count

    @property
    def room(self) -> int | None:
        """The number of further messages that the application may have; None for no limit."""
        limit = self.prefetch_count
        return max(0, limit - len(self._delivered)) if limit else None

    def append(self, tag: int, message: Message, source: KombuSource) -> None:
        """Record a message that is delivered to the application."""
        source.delivered()
        with self._lock:
            self._delivered[tag] = message, source

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge a message; with `multiple` all until this one, or all if the tag is 0.

        Raises:
            ConnectionClosed: the consumer of one has ended: it will be redelivered. The others are acknowledged.
        """
        self._settle(tag, lambda message, _: message.ack(), multiple=multiple)

    def reject(self, tag: int, *, requeue: bool, to_dlq: bool) -> None:
        """Return a message to the broker, or discard it; with `to_dlq` the broker keeps it as a dead letter.

        Raises:
            ConnectionClosed: its consumer has ended: the message will be redelivered.
            ClientError: the broker refused to have it back, or did not answer; the application still has it.
        """

        def discard(message: Message, source: KombuSource) -> None:
            if to_dlq:
                source.consumer.reject(message, "rejected by its consumer")
            else:
                message.ack()

        self._settle(tag, _give_back if requeue else discard)

    def recover(self) -> None:
        """Return all messages to the broker, the oldest first.

        Raises:
            ClientError: as `reject`, for one of them. The others are returned.
        """
        self._settle(0, _give_back, multiple=True)

    def return_unused(self, tags: Iterable[int]) -> None:
        """Return messages of cancelled consumers that the application will not process; does not wait."""
        sources = dict[KombuSource, list[tuple[int, Message]]]()
        for tag in tags:
            for _, message, source in self._take(tag, multiple=False):
                sources.setdefault(source, []).append((tag, message))
        for source, messages in sources.items():
            if source.return_unused([message for _, message in messages]):
                for _ in messages:
                    source.acknowledged()
            else:
                with self._lock:
                    self._delivered |= {tag: (message, source) for tag, message in messages}

    def clear(self) -> None:
        """Forget all messages, whose consumers are closed: the broker redelivers them.

        Those of topics, whose consumers are the connection's, are delivered on another channel.
        """
        for _, message, source in self._take(0, multiple=True):
            if source.consumer.error is None:
                source.give_back(message)
            source.acknowledged()

    def _settle(self, tag: int, action: Callable[[Message, KombuSource], object], *, multiple: bool = False) -> None:
        """Do something with messages that ends their delivery; raise the first error after the last of them."""
        errors: list[ClientError] = []
        for number, message, source in self._take(tag, multiple=multiple):
            try:
                action(message, source)
            except ClientError as error:
                errors.append(error)
                is_kept = message.delivery_state is DeliveryState.DELIVERED
                if is_kept and not isinstance(error, ConnectionClosed):  # the application can do it again
                    with self._lock:
                        self._delivered[number] = message, source
                    continue
            source.acknowledged()
        self._on_room()
        if errors:
            raise errors[0]

    def _take(self, tag: int, *, multiple: bool) -> list[tuple[int, Message, KombuSource]]:
        with self._lock:
            if multiple:
                tags = [each for each in self._delivered if not tag or each <= tag]
            else:
                tags = [tag] if tag in self._delivered else []
            return [(each, *self._delivered.pop(each)) for each in tags]


def _give_back(message: Message, source: KombuSource) -> None:
    source.give_back(message)
