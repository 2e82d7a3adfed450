"""The ports between the rooms. Core implements what transports call; stores and locks implement what core and app call.

Everything here runs on the event loop's thread and never blocks, except where a docstring says otherwise.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


# ---------------------------------------------------------------- store


@dataclass(slots=True, kw_only=True)
class Backlog:
    """A durable subscription and the ids of what it still has to get, in dispatch order."""

    subscription: DurableSubscription
    message_ids: Sequence[str] = ()


class Settled(NamedTuple):
    """An acknowledgement that a prepared transaction holds: its message is locked until the outcome is known.

    Attributes:
        destination: where the message lies.
        message_id: which message.
        subscription_key: the durable subscription that acknowledged it; None on a queue.
    """

    destination: Destination
    message_id: str
    subscription_key: str | None = None


class Sent(NamedTuple):
    """A message that appears with a prepared transaction's commit.

    Attributes:
        destination: where it goes.
        message_id: which message; a queue's can be read from the commit on.
        message: a topic's message, which the store may not keep; None for a queue's.
    """

    destination: Destination
    message_id: str
    message: Message | None = None


@dataclass(slots=True, kw_only=True)
class PreparedTransaction:
    """An XA transaction in doubt: prepared, and neither committed nor rolled back.

    Attributes:
        transaction_id: its branch.
        sent: messages that appear with its commit, in the order of the sends.
        acknowledged: what goes for good with its commit; the ids are among the recovery's.
    """

    transaction_id: XATransactionId
    sent: Sequence[Sent] = ()
    acknowledged: Sequence[Settled] = ()


@dataclass(slots=True, kw_only=True)
class Recovery:
    """What a store holds when it is opened: message ids, whose bodies `MessageStore.read` returns.

    Dispatch order is by age; with priorities by three classes (above, at, below 4), and by age in each.

    Attributes:
        queues: message ids per queue in dispatch order, those included that a prepared transaction acknowledged. Lists
            are the receiver's own from now on.
        backlogs: durable subscriptions, one per concrete topic; their message ids likewise.
        prepared: XA transactions in doubt, in the order in which they were prepared.
        delivered: message ids that a consumer may have seen before; None when the last master did not say
            (it crashed), so that any of them may have been.
        broker_id: of the broker that the store belongs to, the same for each master; empty where none is kept.
    """

    queues: Mapping[Destination, Sequence[str]] = field(default_factory=dict[Destination, Sequence[str]])
    backlogs: Sequence[Backlog] = ()
    prepared: Sequence[PreparedTransaction] = ()
    delivered: frozenset[str] | None = None
    broker_id: str = ""


class Page(NamedTuple):
    """Messages read back together.

    Attributes:
        messages: those that could be read, in the order of the ids.
        looked_at: how many ids were looked at, from the first on; those of them without a message are lost.
    """

    messages: list[Message]
    looked_at: int


class MessageStore(Protocol):
    """What outlives the process. Appends are buffered and ordered; `when_durable` says when they are safe.

    With a transaction an operation takes effect at its commit, in the order of the operations.
    """

    def recover(self) -> Recovery:
        """Open the store and return its contents. Blocks; called once, before anything else."""
        ...

    def read(self, destination: Destination, message_ids: Sequence[str]) -> list[Message]:
        """Return messages that are stored and durable, in this order. Blocks for a read of the disk or some.

        One that cannot be read back is left out. The store has then said so in the log, and counts it as damage.

        Raises:
            StoreUnavailable: nothing can be read now; to ask again later may help.
        """
        ...

    def read_page(self, destination: Destination, message_ids: Sequence[str], bytes_max: int) -> Page:
        """Return messages as `read` does, from the first id on until they take `bytes_max` bytes or more.

        A page so takes less than `bytes_max` and one message more, whatever the size of that.

        Raises:
            StoreUnavailable: nothing can be read now; to ask again later may help.
        """
        ...

    @property
    def supports_paging(self) -> bool:
        """True when memory is freed by keeping only the id of a durable message, and reading the message back later."""
        ...

    @property
    def keeps_uncommitted(self) -> bool:
        """True when a queue's durable message can be paged out before its transaction commits, too."""
        ...

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Append a persistent message to its destination; a topic keeps it for its durable subscriptions.

        Returns:
            False when the destination holds a message of that id already: it is stored once, and to be handed out once.
        """
        ...

    def remove(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None = None,
        *,
        consumed_by: str | None = "",
    ) -> None:
        """Append that a queue's message is gone.

        One that was consumed before it was written is never written. What its consumer's connection sent before is not
        written later than this: it may have been made of that message.

        Args:
            destination: where it lay.
            message_id: which.
            transaction: with whose commit it goes.
            consumed_by: the connection id of its consumer; None: it was dead-lettered, or expired.
        """
        ...

    def acknowledge(
        self,
        topic: Destination,
        subscription_key: str,
        message_id: str,
        transaction: TransactionId | None = None,
        *,
        consumed_by: str | None = "",
    ) -> None:
        """Append that a durable subscription is done with a message.

        What its consumer's connection sent before is not written later than this.

        Args:
            topic: where it was sent.
            subscription_key: whose it is.
            message_id: which.
            transaction: with whose commit it goes.
            consumed_by: the connection id of its consumer; "": nobody was to get it; None: it was dead-lettered, or
                expired, and what became of it is not written later than this either.
        """
        ...

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> Sequence[str]:
        """Append a durable subscription; from here on it keeps the topic's messages.

        Args:
            subscription: which; one that is known goes on with its terms changed.
            retroactive: a new one also gets what the topic still stores for others.

        Returns:
            The message ids that it so gets, in dispatch order; they can be read once they are durable.
        """
        ...

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Append the end of a durable subscription and of its backlog."""
        ...

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, whether or not the message is still there.

        What is in a transaction counts from its commit on. A failover client sends again what it got no answer for, and
        this tells what of it was stored (ActiveMQ's producer audit). Only so many producers are remembered.

        Args:
            producer_id: `<connection id>:<session>:<producer>`, a message id without its sequence.

        Returns:
            The number, -1 for a producer that is not remembered.
        """
        ...

    def prepare(self, transaction: XATransactionId) -> None:
        """Append that a transaction is prepared: from here on only its outcome ends it, a crash does not."""
        ...

    def commit(self, transaction: TransactionId) -> None:
        """Append the commit."""
        ...

    def rollback(self, transaction: TransactionId) -> None:
        """Append the roll-back."""
        ...

    def keep(self, destination: Destination) -> None:
        """Append that a queue exists also while it is empty: from here on a recovery names it, until it is removed."""
        ...

    def remove_destination(self, destination: Destination) -> None:
        """Append that a destination and all it holds is gone."""
        ...

    def forget_empty(self, destination: Destination) -> None:
        """Free what is remembered of a destination that holds nothing. Appends nothing, and removes no message.

        One that holds messages, or is kept, or has durable subscriptions is left alone.
        """
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all that was appended so far is on disk as the sync strategy promises.

        At once when it already is. In order of the calls. Never after a failed write.
        """
        ...

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message added so far is confirmed: durable, or consumed and acknowledged.

        At once when they already are. Never after a failed write.
        """
        ...

    @property
    def unwritten_bytes(self) -> int:
        """How much was appended and is not on disk yet: what producers must be slowed down by."""
        ...

    @property
    def epoch(self) -> int:
        """Which take-over this is: higher than that of any master before; 0 until `recover`."""
        ...

    @property
    def is_full(self) -> bool:
        """True while there is no room for more: what is sent must be refused, what makes room goes on."""
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


class Deliver(Protocol):
    """How core hands a message to a consumer's transport: render it and put it into the connection's output."""

    def __call__(self, delivery: Delivery, /) -> None:
        """Send one message."""
        ...


class Consumer(Protocol):
    """A subscription of a connection.

    Outstanding is what was delivered and neither acknowledged nor rejected, at most `prefetch` plus what was granted.
    """

    def start(self) -> None:
        """Begin to deliver. Nothing is delivered before, so that a receipt can go first."""
        ...

    def outstanding_through(self, first_id: str | None, last_id: str) -> Sequence[Delivery]:
        """Return what is outstanding from one message id to another, in the order of delivery.

        Args:
            first_id: where the range begins; None: at the oldest.
            last_id: where it ends, inclusive.

        Returns:
            The range; empty when one of its ends is not outstanding.
        """
        ...

    def acknowledge(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle one delivery. In a transaction: at its commit, though the window opens at once."""
        ...

    def acknowledge_through(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones of this consumer that are outstanding."""
        ...

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle deliveries that are outstanding."""
        ...

    def acknowledge_each(self, message_ids: Sequence[str]) -> Sequence[str]:
        """Settle deliveries that are named by their messages, each by itself; return those that are not outstanding."""
        ...

    def grant(self, count: int) -> None:
        """Widen the window: the client has taken so many deliveries and settles them later (OpenWire, DELIVERED ack).

        The next acknowledgements take the grant back.
        """
        ...

    def pull(self, count: int = 1) -> None:
        """Allow so many more deliveries to a consumer whose prefetch is 0; none takes back what was not used."""
        ...

    def unsettled(self) -> Iterable[Delivery]:
        """Return what is outstanding, in the order of delivery."""
        ...

    def set_prefetch(self, prefetch: int) -> None:
        """Change the window."""
        ...

    def reject(self, delivery: Delivery, cause: str) -> None:
        """Give up on a delivery: a persistent message goes to the dead letter queue, another is dropped."""
        ...

    def expire(self, delivery: Delivery) -> None:
        """Let go of a delivery whose time was over when the client looked at it."""
        ...

    def requeue(self, delivery: Delivery) -> None:
        """Return a delivery the client does not want, to be delivered again."""
        ...

    def close(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> None:
        """End the subscription; what is outstanding goes back to its place.

        Args:
            last_delivered: the last one the application has seen; only those up to it count as redelivered.
                None: unknown, all may have been seen.
            delivered_none: the application has seen none.
        """
        ...


class Connection(Protocol):
    """A client's connection inside the broker. Its methods raise `ClientError` for what cannot be granted."""

    connection_id: str
    client_id: str

    def send(self, message: Message, transaction: TransactionId | None = None, *, answered: bool = False) -> None:
        """Route a message: store it if it must last, hand it to consumers. Durable only after `when_durable`.

        Args:
            message: what to send.
            transaction: takes effect at its commit.
            answered: the client waits for an answer, which `when_accepted` delays when there is no room. Others are
                slowed down by not being read.

        Raises:
            ClientError: it cannot be sent; `ResourceLimit` when there is no room for it.
        """
        ...

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for one that is not remembered."""
        ...

    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of what a producer has had scheduled, -1 for none that is remembered."""
        ...

    def is_scheduled(self, message: Message) -> bool:
        """Tell whether a message would be scheduled, instead of being sent at once."""
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

    def add_producer(self, producer_id: ProducerId, destination: Destination | None) -> None:
        """Learn of a producer; its destination is created if need be, and None means one that names it per message."""
        ...

    def remove_producer(self, producer_id: ProducerId) -> None:
        """Forget a producer; nothing happens when there is none of that id."""
        ...

    def create_temporary(self, kind: DestinationType) -> Destination:
        """Create a temporary destination of that kind for this connection, under a new name."""
        ...

    def add_destination(self, destination: Destination) -> None:
        """Create a destination if it does not exist; a temporary one becomes this connection's."""
        ...

    def remove_destination(self, destination: Destination) -> None:
        """Delete a destination with all it holds; nothing happens when there is none.

        Raises:
            DestinationInUse: somebody consumes from it.
        """
        ...

    def begin(self, transaction: TransactionId | None = None) -> TransactionId:
        """Begin a transaction: a local one of a new id when none is given. Beginning it again changes nothing."""
        ...

    def prepare(self, transaction: XATransactionId) -> bool:
        """Prepare an XA transaction. Durable only after `when_durable`.

        Returns:
            False when there was nothing to prepare: the transaction is over.
        """
        ...

    def commit(self, transaction: TransactionId, *, prepared: bool = False) -> None:
        """Make its sends visible and its acknowledgements count. Durable only after `when_durable`.

        Args:
            transaction: which.
            prepared: the second phase of two: it must have been prepared.
        """
        ...

    def rollback(self, transaction: TransactionId) -> None:
        """Drop its sends; its acknowledgements never happened, the deliveries are outstanding again."""
        ...

    def doom(self, transaction: TransactionId, reason: str) -> None:
        """Make a transaction's commit fail with `TransactionRolledBack`: part of it could not be done."""
        ...

    def in_doubt(self) -> Sequence[XATransactionId]:
        """Return the prepared transactions, whoever prepared them."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything this broker accepted so far is safe."""
        ...

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is confirmed: durable, or consumed and acknowledged."""
        ...

    @property
    def is_short_of_room(self) -> bool:
        """True when there is no room for what was sent last, and `when_accepted` will wait."""
        ...

    def when_accepted(self, callback: Callable[[], None]) -> None:
        """Call back once there is room for what was sent so far: the answer to a producer that must be slowed down."""
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
    id: str

    def next_sequence(self) -> int:
        """Return a number for a message that is taken in: larger than all before, also those of former masters.

        A JMS client says by it what its application has seen when it closes a consumer (OpenWire, `RemoveInfo`).
        """
        ...

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
