"""A message store that lives as long as the process: for tests, for laptops, and as the model of the real one.

It keeps every promise of the `MessageStore` port except the one in its name: what was appended is as safe at once as it
will ever be. `recover` gives back what is there: after `close` with the knowledge of what was delivered, without it as
after a crash. The store conformance suite runs over it and over the journal alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.ports import Page, RemovalReason
from pybroker.broker.domain.recovery import (
    PreparedAck,
    PreparedSend,
    PreparedTransaction,
    Recovery,
    SubscriptionBacklog,
)
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store.pages import page_count
from pybroker.store.producers import ProducerSequences

Operation = Callable[[], None]


@dataclass(slots=True)
class _Backlog:
    """A durable subscription, and the ids of what it has not acknowledged."""

    subscription: DurableSubscription
    pending: dict[str, None] = field(default_factory=dict[str, None])


@dataclass(slots=True)
class _Transaction:
    """An unfinished transaction: its operations, and the recovery's description of it while it is prepared."""

    operations: list[Operation] = field(default_factory=list[Operation])
    sent: list[Message] = field(default_factory=list[Message])
    acknowledged: list[PreparedAck] = field(default_factory=list[PreparedAck])


class MemoryStore:
    """Implements `MessageStore`.

    Args:
        prioritized: dispatch by KahaDB's three priority classes (above, at and below 4) instead of arrival alone.
        supports_paging: reports that paged-out messages take no memory, for tests of paging.
    """

    def __init__(self, *, prioritized: bool = False, supports_paging: bool = False) -> None:
        self._prioritized = prioritized
        self._supports_paging = supports_paging
        self._messages: dict[Destination, dict[str, Message]] = {}
        self._topics: dict[Destination, dict[str, _Backlog]] = {}
        self._transactions: dict[TransactionId, _Transaction] = {}
        self._prepared: dict[XATransactionId, _Transaction] = {}
        self._declared: dict[Destination, None] = {}
        self._epoch = 0
        self._sequences = ProducerSequences()
        self._delivered: frozenset[str] | None = frozenset()

    def recover(self) -> Recovery:
        """Return the stored messages. Open transactions that were not prepared are dropped."""
        self._epoch += 1
        self._transactions.clear()
        recovery = Recovery(
            queues={
                destination: self._ordered(messages.values())
                for destination, messages in self._messages.items()
                if destination.is_queue and (messages or destination in self._declared)
            },
            backlogs=[
                SubscriptionBacklog(
                    subscription=backlog.subscription,
                    message_ids=self._ordered(
                        m for m in self._messages[topic].values() if m.message_id in backlog.pending
                    ),
                )
                for topic, backlogs in self._topics.items()
                for backlog in backlogs.values()
            ],
            prepared=[
                PreparedTransaction(
                    transaction_id=transaction_id,
                    sent=[
                        PreparedSend(each.destination, each.message_id, each if each.destination.is_topic else None)
                        for each in transaction.sent
                    ],
                    acknowledged=[each for each in transaction.acknowledged if self._is_pending(each)],
                )
                for transaction_id, transaction in self._prepared.items()
            ],
            delivered=self._delivered,
        )
        self._delivered = None
        return recovery

    def read(self, destination: Destination, message_ids: Sequence[str]) -> list[Message]:
        """Return messages. Requesting one that is not stored is a bug, as nothing is ever damaged here."""
        held = self._messages.get(destination, {})
        return [held[message_id] for message_id in message_ids if message_id in held]

    def read_page(self, destination: Destination, message_ids: Sequence[str], bytes_max: int) -> Page:
        """Return messages from the first id on until they take so many bytes or more."""
        held = self._messages.get(destination, {})
        sizes = [len(held[each].data) if each in held else 0 for each in message_ids]
        count = page_count(sizes, bytes_max)
        return Page(self.read(destination, message_ids[:count]), count)

    @property
    def supports_paging(self) -> bool:
        """Return the value given to the constructor."""
        return self._supports_paging

    @property
    def keeps_uncommitted(self) -> bool:
        """Return the value given to the constructor."""
        return self._supports_paging

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Keep a message, once; a topic's only with durable subscriptions. False: it is there already."""
        if self._contains(message.destination, message.message_id):
            return False
        if message.destination.is_queue or message.destination in self._topics:
            self._do(lambda: self._add(message), transaction, message)
        return True

    def remove(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Forget a queue's message; nothing happens when it is not there."""
        if self._contains(destination, message_id):
            settled = PreparedAck(destination, message_id)
            self._do(lambda: self._forget(destination, message_id), transaction, settled)

    def acknowledge(
        self,
        topic: Destination,
        subscription_key: str,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Take a message out of a durable subscription's backlog; nothing happens when it is not there."""
        backlog = self._topics.get(topic, {}).get(subscription_key)
        if backlog is not None and message_id in backlog.pending:
            settled = PreparedAck(topic, message_id, subscription_key)
            self._do(lambda: self._acknowledge(topic, subscription_key, message_id), transaction, settled)

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> Sequence[str]:
        """Add a durable subscription, or change one: it keeps its backlog. A new one may get what the topic holds."""
        backlogs = self._topics.setdefault(subscription.destination, {})
        messages = self._messages.setdefault(subscription.destination, {})
        known = backlogs.get(subscription.key)
        if known is not None:
            known.subscription = subscription
            return ()
        gets = self._ordered(messages.values()) if retroactive else []
        backlogs[subscription.key] = _Backlog(subscription, dict.fromkeys(gets))
        return gets

    def settling(self, topic: Destination) -> Iterator[int]:
        """Return no steps: nothing is left to do."""
        return iter(())

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

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for one that is not remembered."""
        return self._sequences.last(producer_id)

    def prepare(self, transaction: XATransactionId) -> None:
        """Let a transaction outlive everything but its outcome; nothing happens when it did nothing that lasts."""
        if transaction in self._transactions:
            self._prepared[transaction] = self._transactions.pop(transaction)

    def commit(self, transaction: TransactionId) -> None:
        """Let a transaction's operations take effect, in their order."""
        for operation in self._end(transaction).operations:
            operation()

    def commit_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Let a transaction's operations take effect at once; no step is left."""
        self.commit(transaction)
        return iter(())

    def rollback(self, transaction: TransactionId) -> None:
        """Forget a transaction's operations."""
        self._end(transaction)

    def rollback_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Forget a transaction's operations at once; no step is left."""
        self.rollback(transaction)
        return iter(())

    def declare(self, destination: Destination) -> None:
        """Record that a queue exists also while it is empty."""
        if destination.type is DestinationType.QUEUE:
            self._declared[destination] = None
            self._messages.setdefault(destination, {})

    def remove_destination(self, destination: Destination) -> None:
        """Drop a destination and all it holds."""
        self._declared.pop(destination, None)
        self._messages.pop(destination, None)
        self._topics.pop(destination, None)

    def take_records_to_move(self, queue: Destination, count_max: int) -> Sequence[str]:
        """Return nothing: there are no files."""
        del queue, count_max
        return ()

    def forget_empty(self, destination: Destination) -> None:
        """Free the state of an empty destination that is not declared."""
        if (
            not self._messages.get(destination)
            and destination not in self._topics
            and destination not in self._declared
        ):
            self._messages.pop(destination, None)

    def require_fence(self) -> None:
        """Do nothing: there is no other master."""

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back at once."""
        callback()

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back at once."""
        self.when_durable(callback)

    @property
    def unwritten_bytes(self) -> int:
        """Nothing ever waits."""
        return 0

    @property
    def used_bytes(self) -> int:
        """Nothing is on a disk."""
        return 0

    @property
    def epoch(self) -> int:
        """How often it was opened."""
        return self._epoch

    @property
    def is_full(self) -> bool:
        """Always False: memory has other limits."""
        return False

    def cleanup(self) -> None:
        """Nothing is kept that is not needed."""

    def abandon(self) -> None:
        """No other process can take this store over, so nothing happens."""

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Record what consumers have seen, for the next `recover`."""
        self._delivered = frozenset(delivered)

    def _do(self, operation: Operation, transaction: TransactionId | None, subject: Message | PreparedAck) -> None:
        """Perform an operation now, or at the commit."""
        if transaction is None:
            operation()
            return
        begun = self._transactions.setdefault(transaction, _Transaction())
        begun.operations.append(operation)
        if isinstance(subject, Message):
            begun.sent.append(subject)
        else:
            begun.acknowledged.append(subject)

    def _end(self, transaction: TransactionId) -> _Transaction:
        """Take a transaction out, wherever it is; an empty one for one that did nothing."""
        begun = self._transactions.pop(transaction, None)
        if begun is None and isinstance(transaction, XATransactionId):
            begun = self._prepared.pop(transaction, None)
        return begun or _Transaction()

    def _is_pending(self, settled: PreparedAck) -> bool:
        if settled.subscription_key is None:
            return self._contains(settled.destination, settled.message_id)
        backlog = self._topics.get(settled.destination, {}).get(settled.subscription_key)
        return backlog is not None and settled.message_id in backlog.pending

    def _contains(self, destination: Destination, message_id: str) -> bool:
        return message_id in self._messages.get(destination, {})

    def _add(self, message: Message) -> None:
        self._sequences.record(message.message_id)
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

    def _ordered(self, messages: Iterable[Message]) -> list[str]:
        """Return message ids in dispatch order; the messages come in the order of arrival."""
        if self._prioritized:
            messages = sorted(messages, key=lambda message: priority_class(message.priority), reverse=True)
        return [message.message_id for message in messages]


def priority_class(priority: int) -> int:
    """Return 1, 0 or -1 for KahaDB's high, default and low class."""
    return (priority > PRIORITY_DEFAULT) - (priority < PRIORITY_DEFAULT)
