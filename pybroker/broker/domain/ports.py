"""The ports between the packages. The core implements what transports call, stores and locks what core and app call.

Everything here runs on the event loop's thread and never blocks, except where a docstring states otherwise.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from pybroker.broker.domain.admin import Admin
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.broker.domain.space import DeferredSendsPort
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


# ---------------------------------------------------------------- store


class RemovalReason(Enum):
    """Why a message is removed from its queue or from the backlog of a subscription."""

    CONSUMED = "acknowledged by a consumer"
    UNMATCHED = "not selected by the durable subscription"
    DISCARDED = "dead-lettered, expired or scheduled: what was sent before, a dead letter too, is written first"


class Page(NamedTuple):
    """Messages read back together.

    Attributes:
        messages: the messages that could be read, in the order of the ids.
        looked_at: number of ids that were looked up, from the first on; those of them without a message are lost.
    """

    messages: list[Message]
    looked_at: int


class MessageStore(Protocol):
    """Keeps messages, subscriptions and transactions across crashes.

    Appends are buffered and ordered; `when_durable` calls back once they are durable. The operations of a transaction
    take effect at its commit, in their order.
    """

    def recover(self) -> Recovery:
        """Open the store and return its contents. Blocks; called once, before anything else."""
        ...

    def read(self, destination: Destination, message_ids: Sequence[str]) -> list[Message]:
        """Return messages that are stored and durable, in this order. Blocks for one or several reads of the disk.

        A message that cannot be read back is left out. The store logs it, and counts it as damage.

        Raises:
            StoreUnavailable: nothing can be read now; a later call may succeed.
        """
        ...

    def read_page(self, destination: Destination, message_ids: Sequence[str], bytes_max: int) -> Page:
        """Return messages as `read` does, from the first id on until they take `bytes_max` bytes or more.

        Raises:
            StoreUnavailable: nothing can be read now; a later call may succeed.
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
            False if the destination already holds a message of that id: it must not be dispatched again.
        """
        ...

    def remove(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Append the removal of a queue's message.

        A message that is consumed before it was written is never written. The removal is not written before messages
        that the consumer's connection has sent earlier, because those may be results of this message.

        Args:
            destination: the queue.
            message_id: the message.
            transaction: the transaction with whose commit the removal takes effect; None: at once.
            reason: why it is removed.
            connection_id: the connection of the consumer that acknowledged it; empty: there is none.
        """
        ...

    def acknowledge(
        self,
        topic: Destination,
        subscription_key: str,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Append a durable subscription's acknowledgement of a message.

        The acknowledgement is not written before messages that the consumer's connection has sent earlier.

        Args:
            topic: the topic.
            subscription_key: the subscription.
            message_id: the message.
            transaction: the transaction with whose commit the acknowledgement takes effect; None: at once.
            reason: why the subscription does not need it any longer.
            connection_id: the connection of the consumer that acknowledged it; empty: there is none.
        """
        ...

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> Sequence[str]:
        """Append a durable subscription, for which the topic's messages are stored from now on.

        Args:
            subscription: the subscription; one that exists keeps its backlog, and its terms are changed.
            retroactive: a new subscription also gets the messages that the topic still stores for others. What
                `settling` has left is done at once.

        Returns:
            The ids of these messages, in dispatch order; they can be read once they are durable.
        """
        ...

    def settling(self, topic: Destination) -> Iterator[int]:
        """Return steps of what must be done before a retroactive subscription to a topic can begin.

        Each yields the number of operations that it took. What comes meanwhile may need further steps.
        """
        ...

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Append the end of a durable subscription and of its backlog."""
        ...

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, also of a message that is gone.

        Messages of a transaction count from its commit on. A failover client repeats sends that were not answered, and
        by this number the broker recognises those that were stored (ActiveMQ's producer audit). The store remembers a
        limited number of producers.

        Args:
            producer_id: `<connection id>:<session>:<producer>`, a message id without its sequence.

        Returns:
            The number, -1 for a producer that is not remembered.
        """
        ...

    def prepare(self, transaction: XATransactionId) -> None:
        """Append that a transaction is prepared: only a commit or a roll-back ends it, also after a crash."""
        ...

    def commit(self, transaction: TransactionId) -> None:
        """Append the commit."""
        ...

    def commit_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Append the commit; return steps that show its effects, each yielding the number of operations that it took.

        For a crash the transaction is committed once the commit is durable, whatever steps are done. Until the last
        step the contents lack some effects: messages must not be delivered, nor read back, before it.
        """
        ...

    def rollback(self, transaction: TransactionId) -> None:
        """Append the roll-back."""
        ...

    def rollback_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Append the roll-back; return steps that free the memory of its operations, each yielding their number."""
        ...

    def declare(self, destination: Destination) -> None:
        """Append that a queue exists even while it is empty: recoveries contain it until it is removed."""
        ...

    def remove_destination(self, destination: Destination) -> None:
        """Append the deletion of a destination with its messages."""
        ...

    def take_records_to_move(self, queue: Destination, count_max: int) -> Sequence[str]:
        """Return ids of messages on a reserved queue to be replaced by others of the same content, each id once.

        They are small, and disk space is freed once they are removed.
        """
        ...

    def forget_empty(self, destination: Destination) -> None:
        """Free the memory of an empty destination. Appends nothing.

        Does nothing if the destination has messages or durable subscriptions, or `declare` was called for it.
        """
        ...

    def require_fence(self) -> None:
        """Have the next callbacks wait until this broker was found to be the master still, though nothing is appended.

        For answers about what the next master may have changed: that no durable subscription gets a persistent message,
        that one exists, or which XA branches are in doubt.
        """
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything appended so far is on disk, as far as the sync strategy guarantees it.

        Callbacks run in the order of the calls, at once if nothing is pending, and never after a failed write.
        """
        ...

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message added so far is confirmed: durable, or consumed and acknowledged.

        The callback runs at once if they already are, and never after a failed write.
        """
        ...

    @property
    def used_bytes(self) -> int:
        """The size of the store on disk; 0 if it is not in files."""
        ...

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not yet on disk; above a limit, producers are slowed down."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this promotion, higher than that of any former master; 0 before `recover`."""
        ...

    @property
    def is_full(self) -> bool:
        """True while the disk is full: sends must be refused; acknowledgements and commits are accepted."""
        ...

    def cleanup(self) -> None:
        """Delete data that is no longer needed; called periodically, never blocks."""
        ...

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Write all buffered records, record the messages that consumers may have seen, and close the store. Blocks."""
        ...

    def abandon(self) -> None:
        """Close the store without writing, as if killed: for a master that lost its lock. Runs no more callbacks."""
        ...


class MessageSpool(Protocol):
    """Keeps messages that no store has, so that they can leave memory; all of them are gone with the process."""

    @property
    def used_bytes(self) -> int:
        """Bytes of the disk that it takes."""
        ...

    @property
    def bytes_max(self) -> int:
        """Limit of these bytes."""
        ...

    @property
    def is_full(self) -> bool:
        """True while it takes no more messages, because of its limit or of its disk."""
        ...

    def write(self, messages: Sequence[Message], when_written: Callable[[Sequence[int]], None]) -> bool:
        """Begin to write messages, which the caller keeps in memory until the callback.

        Args:
            messages: the messages, which are not changed before the callback; one at least.
            when_written: called on the event loop, never within this call: with the place of each message, by which it
                is read back; with none if they could not be written.

        Returns:
            False if there is no space, or the last write failed a short time ago; there is no callback then.
        """
        ...

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of messages whose callbacks have not come yet."""
        ...

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once after the next callback of a `write`, of which one must be outstanding."""
        ...

    def read_page(self, places: Sequence[int], bytes_max: int) -> Sequence[Message | None]:
        """Return messages from the first place on until they take `bytes_max` bytes or more. Blocks for a few reads.

        None stands for a message that cannot be read back, which is logged. All messages stay until `release`.

        Raises:
            StoreUnavailable: the spool is closed.
        """
        ...

    def release(self, place: int) -> None:
        """Free the space of one message."""
        ...

    def close(self) -> None:
        """Free all space."""
        ...


# ---------------------------------------------------------------- lock


class LockProvider(Protocol):
    """The lock on the store, whose holder is the master. `acquire` blocks, and runs in a separate thread."""

    @property
    def name(self) -> str:
        """The name of the lock in logs and errors, such as `/mnt/shared/kahadb/lock`."""
        ...

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, and write this broker's stamp; return True if this broker holds it."""
        ...

    def acquire(self) -> bool:
        """Wait until the lock is acquired; return False if `cancel` ended the wait."""
        ...

    def cancel(self) -> None:
        """End a wait in another thread; a lock acquired in the meantime is released."""
        ...

    def check(self) -> None:
        """Check that this broker still holds the lock. Fast enough for each batch; may be called in any thread.

        Raises:
            LockNotHeld: the lock is lost, or another process has removed, replaced or changed the locked file.
        """
        ...

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        ...


# ---------------------------------------------------------------- core, as transports see it


class Deliver(Protocol):
    """A consumer's transport, as the core calls it: encodes a message and appends it to the connection's output."""

    def __call__(self, delivery: Delivery, /) -> None:
        """Send one delivery."""
        ...


class ConsumerPort(Protocol):
    """A consumer of a connection.

    A delivery is outstanding until it is acknowledged or rejected. At most `prefetch`, plus what was granted, are.
    """

    def start(self) -> None:
        """Start deliveries. Nothing is delivered before, so that a receipt can be sent first."""
        ...

    def outstanding_through(self, first_id: str | None, last_id: str) -> Sequence[Delivery]:
        """Return the outstanding deliveries from one message id to another, in the order of delivery.

        Args:
            first_id: the first message of the range; None: the oldest.
            last_id: the last message of the range.

        Returns:
            The range; empty if one of these messages is not outstanding, or if deliveries are only counted.
        """
        ...

    def acknowledge(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle one delivery. In a transaction it settles at the commit, but frees capacity in the window at once."""
        ...

    def acknowledge_through(self, delivery: Delivery, transaction: TransactionId | None = None) -> None:
        """Settle a delivery and all earlier ones of this consumer that are outstanding."""
        ...

    def acknowledge_all(self, deliveries: Sequence[Delivery], transaction: TransactionId | None = None) -> None:
        """Settle deliveries that are outstanding, in pieces if they are many."""
        ...

    def acknowledge_oldest(self, count: int, transaction: TransactionId | None = None) -> int:
        """Settle so many deliveries, or all if fewer are outstanding; return how many.

        This is how deliveries that are only counted are acknowledged, rejected and found expired (see
        `ConsumerRequest.is_counted`).
        """
        ...

    def acknowledge_each(self, message_ids: Sequence[str]) -> Sequence[str]:
        """Settle deliveries by message id, one by one; return the ids that are not outstanding."""
        ...

    def grant(self, count: int) -> None:
        """Widen the window by `count` deliveries that the client acknowledges later (OpenWire, DELIVERED ack).

        The next acknowledgements narrow it again.
        """
        ...

    def pull(self, count: int = 1) -> None:
        """Allow `count` more deliveries to a consumer whose prefetch is 0; 0 cancels deliveries not yet made."""
        ...

    def unsettled(self) -> Iterable[Delivery]:
        """Return the outstanding deliveries, in the order of delivery."""
        ...

    def set_prefetch(self, prefetch: int) -> None:
        """Change the prefetch."""
        ...

    def recall(self) -> None:
        """Deliver the history of its topics, as to a new retroactive consumer."""
        ...

    def reject(self, delivery: Delivery, cause: str) -> None:
        """Reject a delivery: by default a persistent message is dead-lettered, and a non-persistent one dropped."""
        ...

    def reject_all(self, deliveries: Sequence[Delivery], cause: str) -> None:
        """Reject deliveries, in pieces if they are many: later commands of the connection wait until that is done."""
        ...

    def release(self, deliveries: Sequence[Delivery], *, has_failed: bool = False, is_excluded: bool = False) -> None:
        """Return outstanding deliveries to the backlog, each to its position, in pieces if they are many.

        Args:
            deliveries: the deliveries.
            has_failed: the client has tried to process them: they count as redelivered, and each has a delivery strike.
            is_excluded: this consumer does not get them again. Where there can be no other one, or it has excluded very
                many, they are rejected.
        """
        ...

    @property
    def is_searching(self) -> bool:
        """True while messages that wait may be delivered to it in a later turn, without another event."""
        ...

    def expire(self, delivery: Delivery) -> None:
        """Settle a delivery that the client found expired."""
        ...

    def expire_all(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that the client found expired, in pieces if they are many."""
        ...

    def close(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> None:
        """Close the consumer, in pieces if many messages are outstanding: later commands wait until that is done."""
        ...

    def closing(self, last_delivered: Delivery | None = None, *, delivered_none: bool = False) -> Iterator[int]:
        """Close the consumer; outstanding messages return to their positions in the backlog.

        Args:
            last_delivered: the last delivery that the application has seen; those up to it count as redelivered.
                None: unknown, the application may have seen all.
            delivered_none: the application has seen none.

        Returns:
            Steps that yield their costs.
        """
        ...


class ConnectionPort(Protocol):
    """A client's connection in the core. Its methods raise `RequestError` if a request cannot be granted."""

    connection_id: str
    client_id: str
    is_patient: bool
    """True while a send waits for space as long as it takes, and does not raise `SpaceAwaited`."""

    @property
    def persistency(self) -> bool | None:
        """True if every message sent becomes persistent, False if none is; None: each is as its client says."""
        ...

    @property
    def is_administrator(self) -> bool:
        """True if the user has the right `admin` to all queues, or there are no rules."""
        ...

    def send(self, message: Message, transaction: TransactionId | None = None, *, answered: bool = False) -> bool:
        """Route a message: store it if it is persistent, and dispatch it. Durable only after `when_durable`.

        Args:
            message: the message.
            transaction: the transaction with whose commit the send takes effect; None: at once.
            answered: True if the client waits for an answer, which `when_accepted` delays while there is no space. If
                False, the client is slowed down by not reading its connection.

        Returns:
            False if its destination has a message of the same id, and it was not added: it is a repetition, or the
            other message has taken its id.

        Raises:
            RequestError: it cannot be sent; `ResourceLimit`: there is no space for it; `SpaceAwaited`: not yet.
        """
        ...

    def deferred_sends(self, on_empty: Callable[[], None]) -> DeferredSendsPort:
        """Begin to defer the sends of a producer, after `SpaceAwaited`, up to the call of `on_empty`."""
        ...

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 if it is not remembered."""
        ...

    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of a producer's scheduled messages, -1 if it is not remembered."""
        ...

    def is_scheduled(self, message: Message) -> bool:
        """Return True if a message would be scheduled instead of being sent at once."""
        ...

    def subscribe(
        self, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None = None
    ) -> ConsumerPort:
        """Add a consumer, which gets no deliveries before its `start`.

        Args:
            request: the consumer's request.
            deliver: called for each delivery.
            browsed: for a browser, called at the end of the queue.
        """
        ...

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription that is not active."""
        ...

    def durable_subscriptions(self) -> Sequence[DurableSubscription]:
        """Return the durable subscriptions of this client id, each once, as they were subscribed."""
        ...

    def add_producer(self, producer_id: ProducerId, destination: Destination | None) -> None:
        """Add a producer, and create its destination if it does not exist; None: it names one in each message."""
        ...

    def remove_producer(self, producer_id: ProducerId) -> None:
        """Remove a producer; do nothing if there is none of that id."""
        ...

    def add_session(self) -> None:
        """Count a session of the protocol.

        Raises:
            ResourceLimit: the connection has created too much.
        """
        ...

    def remove_session(self) -> None:
        """Subtract a session that is closed."""
        ...

    def create_temporary(self, kind: DestinationType) -> Destination:
        """Create a temporary destination of that kind for this connection, with a new name."""
        ...

    def add_destination(self, destination: Destination, *, is_adopted: bool = False) -> None:
        """Create a destination if it does not exist; this connection becomes the owner of a temporary one.

        Args:
            destination: the destination.
            is_adopted: it is a temporary one of a client of another broker. If its client connects to this broker, it
                takes it back.

        Raises:
            InvalidDestination: the name is not valid, or another connection owns it.
        """
        ...

    def remove_adopted(self, destination: Destination) -> None:
        """Delete an adopted temporary destination with its messages, unless its client has taken it back."""
        ...

    def remove_destination(self, destination: Destination) -> None:
        """Delete a destination with its messages; do nothing if it does not exist.

        Raises:
            DestinationInUse: it has a consumer or a durable subscription.
        """
        ...

    def begin(self, transaction: TransactionId | None = None) -> TransactionId:
        """Begin a transaction, a local one with a new id if None is given; do nothing if it is open."""
        ...

    def prepare(self, transaction: XATransactionId) -> bool:
        """Prepare an XA transaction. Durable only after `when_durable`.

        Returns:
            False if the transaction has no operations, and has ended.
        """
        ...

    def commit(self, transaction: TransactionId, *, prepared: bool = False) -> None:
        """Commit: its sends and acknowledgements take effect. Durable only after `when_durable`.

        Args:
            transaction: the transaction.
            prepared: True if it must have been prepared (two-phase commit).
        """
        ...

    def rollback(self, transaction: TransactionId) -> None:
        """Roll back: drop its sends, and make its acknowledged deliveries outstanding again."""
        ...

    def doom(self, transaction: TransactionId, reason: str) -> None:
        """Make a transaction's commit fail with `CommitFailed`, because an operation in it has failed."""
        ...

    def work_off(self, steps: Iterator[int]) -> None:
        """Carry out steps in pieces, each yielding its cost; later commands, and answers, wait until all are done."""
        ...

    def in_doubt(self) -> Sequence[XATransactionId]:
        """Return the prepared transactions of all clients."""
        ...

    def when_carried_out(self, callback: Callable[[], None]) -> None:
        """Call back once all earlier commands of this connection are complete; one may take many event-loop turns."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything that the broker has accepted so far is durable."""
        ...

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is confirmed: durable, or consumed and acknowledged."""
        ...

    @property
    def is_short_of_space(self) -> bool:
        """True when there is no space for the messages sent last, so that `when_accepted` will wait."""
        ...

    def when_accepted(self, callback: Callable[[], None]) -> None:
        """Call back once there is space for the messages sent so far; the answer to their producer waits for this."""
        ...

    def written(self) -> None:
        """Record that all deliveries so far have left the process, so that the client may have seen them."""
        ...

    def pause(self) -> None:
        """Pause deliveries, because the client does not read fast enough."""
        ...

    def resume(self) -> None:
        """Resume deliveries."""
        ...

    def close(self, first: Iterator[int] = ...) -> None:
        """Remove the consumers, open transactions and temporary destinations; do nothing if closed.

        Args:
            first: steps that are carried out before, as by `work_off`.
        """
        ...


class BrokerPort(Protocol):
    """The core, as a transport's server calls it."""

    name: str
    id: str

    @property
    def admin(self) -> Admin:
        """The state of the broker."""
        ...

    def next_sequence(self) -> int:
        """Return the broker sequence number for a message on arrival, larger than all before, also of former masters.

        When a JMS client closes a consumer, it names the last delivery that its application has seen by this number
        (OpenWire, `RemoveInfo`).
        """
        ...

    def connect(
        self,
        connection_id: str,
        client_id: str,
        throttle: "Throttle",
        user: User = ANONYMOUS,
        *,
        takes_over: bool = False,
    ) -> ConnectionPort:
        """Admit a client.

        Args:
            connection_id: the id of the connection.
            client_id: the id of the client.
            throttle: its transport.
            user: who the client is.
            takes_over: close another connection of this user that has the client id, of whichever protocol.

        Raises:
            InvalidClientId: another connection has that client id.
        """
        ...


class Throttle(Protocol):
    """A transport, as the core slows a producer down: its connection is not read while the store is behind."""

    @property
    def peer(self) -> str:
        """The other end, for logs, such as `127.0.0.1:50312`."""
        ...

    def pause_reading(self) -> None:
        """Stop reading from this peer."""
        ...

    def resume_reading(self) -> None:
        """Resume reading from this peer."""
        ...

    def hold_input(self) -> None:
        """Process no more of what this peer sends, nor of what was received behind the present command.

        Each hold is released by itself.
        """
        ...

    def release_input(self) -> None:
        """Process the peer's input again, from where it was held."""
        ...

    def give_up(self, error: BrokerError) -> None:
        """Close the connection with an error, which its commands do not bring about."""
        ...
