"""The ports between the rooms. Core implements what transports call; stores and locks implement what core and app call.

Everything here runs on the event loop's thread and never blocks, except where a docstring says otherwise.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


# ---------------------------------------------------------------- store


@dataclass(slots=True, kw_only=True)
class Backlog:
    """A durable subscription and what it still has to get, in dispatch order."""

    subscription: DurableSubscription
    messages: Sequence[Message] = ()


@dataclass(slots=True, kw_only=True)
class Recovery:
    """What a store holds when it is opened.

    Attributes:
        queues: messages per queue in dispatch order, without what a prepared transaction hides.
        backlogs: durable subscriptions, one per concrete topic.
        prepared: XA transactions in doubt.
        delivered: message ids that a consumer may have seen before; None when the last master did not say
            (it crashed), so that any of them may have been.
    """

    queues: Mapping[Destination, Sequence[Message]] = field(default_factory=dict[Destination, Sequence[Message]])
    backlogs: Sequence[Backlog] = ()
    prepared: Sequence[TransactionId] = ()
    delivered: frozenset[str] | None = None


class MessageStore(Protocol):
    """What outlives the process. Appends are buffered and ordered; `when_durable` says when they are safe.

    With a transaction an operation takes effect at its commit, in the order of the operations.
    """

    def recover(self) -> Recovery:
        """Open the store and return its contents. Blocks; called once, before anything else."""
        ...

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Append a persistent message to its destination; a topic keeps it for its durable subscriptions.

        Returns:
            False when the destination holds a message of that id already: it is stored once, and to be handed out once.
        """
        ...

    def remove(self, destination: Destination, message_id: str, transaction: TransactionId | None = None) -> None:
        """Append that a queue's message was consumed."""
        ...

    def acknowledge(
        self, topic: Destination, subscription_key: str, message_id: str, transaction: TransactionId | None = None
    ) -> None:
        """Append that a durable subscription is done with a message."""
        ...

    def subscribe(self, subscription: DurableSubscription) -> None:
        """Append a durable subscription; from here on it keeps the topic's messages."""
        ...

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Append the end of a durable subscription and of its backlog."""
        ...

    def commit(self, transaction: TransactionId) -> None:
        """Append the commit."""
        ...

    def rollback(self, transaction: TransactionId) -> None:
        """Append the roll-back."""
        ...

    def remove_destination(self, destination: Destination) -> None:
        """Append that a destination and all it holds is gone."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all that was appended so far is on disk as the sync strategy promises.

        At once when it already is. In order of the calls. Never after a failed write.
        """
        ...

    @property
    def unwritten_bytes(self) -> int:
        """How much was appended and is not on disk yet: what producers must be slowed down by."""
        ...

    def cleanup(self) -> None:
        """Let go of storage that nothing needs any more; called every now and then, never blocks."""
        ...

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Write what is left, note which pending messages consumers have seen, and let go. Blocks."""
        ...

    def abandon(self) -> None:
        """Let go at once, as if killed: for a master that lost its lock. Writes and acknowledges nothing more."""
        ...


# ---------------------------------------------------------------- lock


class LockProvider(Protocol):
    """The lock on the store: whoever holds it is the master. `acquire` blocks, in a thread of its own."""

    @property
    def name(self) -> str:
        """What it locks, for logs and errors, such as `/mnt/shared/kahadb/lock`."""
        ...

    def try_acquire(self) -> bool:
        """Take the lock if it is free. True: it is ours, and stamped as ours."""
        ...

    def acquire(self) -> bool:
        """Wait until the lock is ours. False when `cancel` ended the wait."""
        ...

    def cancel(self) -> None:
        """End a wait in another thread; a lock won in the meantime is given back."""
        ...

    def check(self) -> None:
        """Make sure that the lock is still ours. Cheap enough to be asked once per batch, from any thread.

        Raises:
            LockNotHeld: it is not, or the locked file was removed, replaced or touched by another.
        """
        ...

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        ...


# ---------------------------------------------------------------- core, as transports see it


class Delivery(Protocol):
    """One message on its way to one consumer. Its identity is the handle for acknowledgements."""

    message: Message
    redelivery_count: int


class Deliver(Protocol):
    """How core hands a message to a consumer's transport: render it and put it into the connection's output."""

    def __call__(self, delivery: Delivery, /) -> None:
        """Send one message."""
        ...


class Consumer(Protocol):
    """A subscription of a connection.

    At most `prefetch` deliveries are outstanding: sent and neither acknowledged nor rejected.
    """

    def start(self) -> None:
        """Begin to deliver. Nothing is delivered before, so that a receipt can go first."""
        ...

    def acknowledge(self, delivery: Delivery, transaction: LocalTransactionId | None = None) -> None:
        """Settle one delivery. In a transaction: at its commit, though the window opens at once."""
        ...

    def acknowledge_through(self, delivery: Delivery, transaction: LocalTransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones of this consumer that are outstanding."""
        ...

    def reject(self, delivery: Delivery, cause: str) -> None:
        """Give up on a delivery: a persistent message goes to the dead letter queue, another is dropped."""
        ...

    def close(self) -> None:
        """End the subscription; what is outstanding goes back in its place, counted as redelivered."""
        ...


class Connection(Protocol):
    """A client's connection inside the broker. Its methods raise `ClientError` for what cannot be granted."""

    connection_id: str
    client_id: str

    def send(self, message: Message, transaction: LocalTransactionId | None = None) -> None:
        """Route a message: store it if it must last, hand it to consumers. Durable only after `when_durable`."""
        ...

    def subscribe(
        self, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None = None
    ) -> Consumer:
        """Add a consumer, silent until its `start`.

        Args:
            request: what it wants.
            deliver: called for each message.
            browsed: for a browser, called when the queue's end is reached.
        """
        ...

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription that is not active."""
        ...

    def create_temporary(self, kind: DestinationType) -> Destination:
        """Create a temporary destination of that kind for this connection."""
        ...

    def begin(self) -> LocalTransactionId:
        """Begin a local transaction."""
        ...

    def commit(self, transaction: LocalTransactionId) -> None:
        """Make its sends visible and its acknowledgements count. Durable only after `when_durable`."""
        ...

    def rollback(self, transaction: LocalTransactionId) -> None:
        """Drop its sends; its acknowledgements never happened, the deliveries are outstanding again."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything this broker accepted so far is safe."""
        ...

    def written(self) -> None:
        """Learn that all that was delivered so far has left the process: from here on the client may have seen it."""
        ...

    def pause(self) -> None:
        """Stop delivering: the client does not read fast enough."""
        ...

    def resume(self) -> None:
        """Deliver again."""
        ...

    def close(self) -> None:
        """Remove consumers, open transactions and temporary destinations. Harmless when repeated."""
        ...


class Broker(Protocol):
    """The core as a transport's server sees it."""

    name: str

    def connect(self, connection_id: str, client_id: str, throttle: "Throttle") -> Connection:
        """Admit a client.

        Raises:
            InvalidClientId: another connection has that client id.
        """
        ...


class Throttle(Protocol):
    """How core slows a producer down: its connection is not read until the store has caught up."""

    def pause_reading(self) -> None:
        """Read nothing more from this peer for now."""
        ...

    def resume_reading(self) -> None:
        """Read again."""
        ...
