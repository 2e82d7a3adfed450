"""A message store that lives as long as the process: for tests, for laptops, and as the model of the real one.

It keeps every promise of the `MessageStore` port except the one in its name: what was appended is as safe at once as it
will ever be. `recover` gives back what is there: after `close` with the knowledge of what was delivered, without it as
after a crash. The store conformance suite runs over it and over the journal alike.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.ports import Backlog, Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId

Operation = Callable[[], None]


@dataclass(slots=True)
class _Backlog:
    """A durable subscription, and the ids of what it has not acknowledged."""

    subscription: DurableSubscription
    pending: dict[str, None] = field(default_factory=dict[str, None])


class MemoryStore:
    """Implements `MessageStore`.

    Args:
        prioritized: dispatch by KahaDB's three priority classes (above, at and below 4) instead of arrival alone.
    """

    def __init__(self, *, prioritized: bool = False) -> None:
        self._prioritized = prioritized
        self._messages: dict[Destination, dict[str, Message]] = {}
        self._topics: dict[Destination, dict[str, _Backlog]] = {}
        self._transactions: dict[TransactionId, list[Operation]] = {}
        self._delivered: frozenset[str] | None = frozenset()

    def recover(self) -> Recovery:
        """Return what is there. Transactions that were open never happened."""
        self._transactions.clear()
        recovery = Recovery(
            queues={
                destination: self._ordered(messages.values())
                for destination, messages in self._messages.items()
                if destination.is_queue and messages
            },
            backlogs=[
                Backlog(
                    subscription=backlog.subscription,
                    messages=self._ordered(
                        m for m in self._messages[topic].values() if m.message_id in backlog.pending
                    ),
                )
                for topic, backlogs in self._topics.items()
                for backlog in backlogs.values()
            ],
            delivered=self._delivered,
        )
        self._delivered = None
        return recovery

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Keep a message, once; a topic's only if somebody subscribed durably. False: it is there already."""
        if self._contains(message.destination, message.message_id):
            return False
        if message.destination.is_queue or message.destination in self._topics:
            self._do(lambda: self._add(message), transaction)
        return True

    def remove(self, destination: Destination, message_id: str, transaction: TransactionId | None = None) -> None:
        """Forget a queue's message; nothing happens when it is not there."""
        if self._contains(destination, message_id):
            self._do(lambda: self._forget(destination, message_id), transaction)

    def acknowledge(
        self, topic: Destination, subscription_key: str, message_id: str, transaction: TransactionId | None = None
    ) -> None:
        """Take a message out of a durable subscription's backlog; nothing happens when it is not there."""
        backlog = self._topics.get(topic, {}).get(subscription_key)
        if backlog is not None and message_id in backlog.pending:
            self._do(lambda: self._acknowledge(topic, subscription_key, message_id), transaction)

    def subscribe(self, subscription: DurableSubscription) -> None:
        """Add a durable subscription, or change one: it keeps its backlog."""
        backlogs = self._topics.setdefault(subscription.destination, {})
        self._messages.setdefault(subscription.destination, {})
        known = backlogs.get(subscription.key)
        if known is None:
            backlogs[subscription.key] = _Backlog(subscription)
        else:
            known.subscription = subscription

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Drop a durable subscription and its backlog; with the last one the topic goes."""
        backlogs = self._topics.get(topic, {})
        backlog = backlogs.pop(subscription_key, None)
        if backlog is None:
            return
        for message_id in backlog.pending:
            self._forget_unless_pending(topic, message_id)
        if not backlogs:
            self.remove_destination(topic)

    def commit(self, transaction: TransactionId) -> None:
        """Let a transaction's operations take effect, in their order."""
        for operation in self._transactions.pop(transaction, ()):
            operation()

    def rollback(self, transaction: TransactionId) -> None:
        """Forget a transaction's operations."""
        self._transactions.pop(transaction, None)

    def remove_destination(self, destination: Destination) -> None:
        """Drop a destination and all it holds."""
        self._messages.pop(destination, None)
        self._topics.pop(destination, None)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back at once."""
        callback()

    @property
    def unwritten_bytes(self) -> int:
        """Nothing ever waits."""
        return 0

    def cleanup(self) -> None:
        """Nothing is kept that is not needed."""

    def abandon(self) -> None:
        """Nobody can take this store over, so there is nothing to leave as it is."""

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Note what consumers have seen, for the next `recover`."""
        self._delivered = frozenset(delivered)

    def _do(self, operation: Operation, transaction: TransactionId | None) -> None:
        """Perform an operation now, or at the commit."""
        if transaction is None:
            operation()
        else:
            self._transactions.setdefault(transaction, []).append(operation)

    def _contains(self, destination: Destination, message_id: str) -> bool:
        return message_id in self._messages.get(destination, {})

    def _add(self, message: Message) -> None:
        backlogs = self._topics.get(message.destination, {})
        gone = message.destination.is_topic and not backlogs  # the subscriptions, since the message was sent
        if gone or self._contains(message.destination, message.message_id):
            return
        self._messages.setdefault(message.destination, {})[message.message_id] = message
        for backlog in backlogs.values():
            backlog.pending[message.message_id] = None

    def _forget(self, destination: Destination, message_id: str) -> None:
        self._messages.get(destination, {}).pop(message_id, None)

    def _acknowledge(self, topic: Destination, subscription_key: str, message_id: str) -> None:
        backlog = self._topics.get(topic, {}).get(subscription_key)
        if backlog is not None:
            backlog.pending.pop(message_id, None)
            self._forget_unless_pending(topic, message_id)

    def _forget_unless_pending(self, topic: Destination, message_id: str) -> None:
        if not any(message_id in backlog.pending for backlog in self._topics[topic].values()):
            self._forget(topic, message_id)

    def _ordered(self, messages: Iterable[Message]) -> list[Message]:
        """Return messages in dispatch order; they come in the order of arrival."""
        if not self._prioritized:
            return list(messages)
        return sorted(messages, key=lambda message: priority_class(message.priority), reverse=True)


def priority_class(priority: int) -> int:
    """Return 1, 0 or -1 for KahaDB's high, default and low class."""
    return (priority > PRIORITY_DEFAULT) - (priority < PRIORITY_DEFAULT)
