"""The interface of the broker that connections call.

A native base class and not a protocol, because some methods are called for each message.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from pybroker.broker.core.arrival_rules import ArrivalRules
from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.object_memory import ObjectMemory
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.piecewise import PiecewiseWork, Steps
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.transaction import BrokerTransaction
from pybroker.broker.core.uncommitted import SendTarget
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.ports import Clock, Deliver
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

COPIES_MAX: Final = 32
"""Copies of a message that are made at once: half a millisecond."""

COPIED_BYTES_MAX: Final = 1 << 20
"""Bytes of copies that are made at once."""


class Routed(Protocol):
    """The targets of a message, each with its copy, which is made when it is taken."""

    def __len__(self) -> int:
        """Return the number of targets."""
        ...

    def __iter__(self) -> Iterator[tuple[SendTarget, Message]]:
        """Yield each target with its copy."""
        ...

    def in_steps(self) -> Iterator[tuple[SendTarget, Message] | None]:
        """Yield the same, and None between the steps in which a large copy is made."""
        ...


def is_long(count: int, message: Message) -> bool:
    """Return True if so many copies of a message take too long to be made at once."""
    return count > COPIES_MAX or count * len(message.data) > COPIED_BYTES_MAX


class Host(metaclass=ABCMeta):
    """The broker that admitted a connection.

    Attributes:
        clock: milliseconds since the epoch.
        is_stopping: True once nothing is delivered any more.
        abandoned: True once nothing may be changed any more.
        arrival_rules: change each message that a client sends; None: there are none.
    """

    _observers: Observers

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_stopping = False
        self.abandoned = False
        self.arrival_rules: ArrivalRules | None = None

    def announce(self, event: Callable[[Observer], None]) -> None:
        """Notify each observer of an event outside the core, such as that a bridge stands."""
        self._observers.announce(event)

    @property
    @abstractmethod
    def paging(self) -> Paging:
        """The event loop and the clock, for what is done in pieces."""

    # ------------------------------------------------------------ messages

    @abstractmethod
    def admit(self, message: Message, owner: Owner) -> Usage:
        """Return the memory usage that a message will count for.

        A destination that `accept` or `route` then creates for this message counts for the owner, which sends it.

        Raises:
            InvalidDestination: its destination has a name that is too long.
            ResourceLimit: the store has no space for the message; `SpaceAwaited`: it has come over a bridge, and waits.
        """

    @abstractmethod
    def accept(self, message: Message, owner: Owner) -> bool:
        """Send or schedule a message, outside of any transaction.

        Many or large copies of a message are made in pieces (`Owner.work_off`).

        Returns:
            False if its destination has a message of the same id, and it was not added.

        Raises:
            RequestError: the message cannot be sent or scheduled.
        """

    @abstractmethod
    def accept_bridged(
        self, message: Message, owner: Owner, when_carried_out: Callable[[Callable[[], None]], None]
    ) -> bool:
        """Do what `accept` does with a message that has come over a bridge; return False too if it came before.

        Args:
            message: the message.
            owner: the bridge's connection.
            when_carried_out: calls back once all copies of the message are made.
        """

    @abstractmethod
    def schedules(self, message: Message) -> bool:
        """Return True if a message is to be scheduled instead of being sent at once.

        Raises:
            InvalidSchedule: its scheduling properties are invalid.
            ResourceLimit: there are too many jobs, or browses of the scheduler.
        """

    @abstractmethod
    def would_schedule(self, message: Message) -> bool:
        """Return True if a message would be scheduled, without regard to limits; raises nothing."""

    @abstractmethod
    def answers(self, message: Message, owner: Owner) -> bool:
        """Return True if a message is a request to the broker itself, which is answered and not sent.

        Raises:
            AccessDenied: the owner may not send to where it wants the answer.
        """

    @abstractmethod
    def plain_target(self, destination: Destination) -> SendTarget | None:
        """Return the only target of all messages of a destination; None: `route` says where each of them goes."""

    @abstractmethod
    def route(self, message: Message) -> Routed:
        """Return the targets of a message, each with the copy that it gets.

        Raises:
            RequestError: a destination cannot be created.
        """

    @property
    @abstractmethod
    def is_covering(self) -> bool:
        """True while some targets may have to be waited for; see `covering`."""

    @abstractmethod
    def covering(self, target: SendTarget) -> Steps:
        """Return the steps that are left until a message may be sent to a target: a topic is covered first.

        See `durables`.
        """

    @abstractmethod
    def route_scheduled(self, message: Message) -> tuple[SendTarget, Message]:
        """Return the target of a message that a transaction schedules, with the copy that it gets."""

    @abstractmethod
    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""

    @abstractmethod
    def announce_full(self, message: Message, usage: Usage) -> None:
        """Announce that a message is sent for which there is no space."""

    @property
    @abstractmethod
    def is_behind(self) -> bool:
        """True when more bytes are unwritten than the limit, and producers must be slowed down."""

    @property
    @abstractmethod
    def is_overrun(self) -> bool:
        """True when the messages and transactions in memory take twice the limit."""

    @abstractmethod
    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is durable."""

    @abstractmethod
    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is durable, or consumed and acknowledged."""

    @abstractmethod
    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 if it is not remembered."""

    @abstractmethod
    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of a producer's scheduled messages, -1 if it is not remembered."""

    @property
    @abstractmethod
    def objects(self) -> ObjectMemory:
        """The memory of what clients create."""

    # ------------------------------------------------------------ consumers and producers

    @abstractmethod
    def subscribe(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> BrokerConsumer:
        """Add a consumer to the destinations of its request; see `ConnectionPort`."""

    @abstractmethod
    def forget(self, consumer: BrokerConsumer) -> None:
        """Remove a closed consumer."""

    @abstractmethod
    def recall(self, consumer: BrokerConsumer) -> None:
        """Deliver the history of its topics to a consumer."""

    @abstractmethod
    def subscriptions_of(self, client_id: str) -> Sequence[DurableSubscription]:
        """Return the durable subscriptions of a client, each once, as they were subscribed."""

    @abstractmethod
    def unsubscribe(self, client_id: str, subscription_name: str, owner: Owner) -> None:
        """Delete a durable subscription that is not active."""

    @abstractmethod
    def add_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Announce a producer of one destination."""

    @abstractmethod
    def remove_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Announce that a producer of one destination has closed."""

    # ------------------------------------------------------------ destinations

    @abstractmethod
    def provide(self, destination: Destination, owner: Owner) -> bool:
        """Create a destination for a connection if it does not exist; return True if it did not.

        Raises:
            RequestError: it cannot be created.
        """

    @abstractmethod
    def own(self, destination: Destination, owner: Owner) -> None:
        """Record a connection as the owner of a temporary destination.

        Raises:
            InvalidDestination: it belongs to another connection, or its name is too long.
        """

    @abstractmethod
    def remove_destination(self, destination: Destination, owner: Owner) -> None:
        """Delete a destination with its messages for a connection.

        Raises:
            AccessDenied: the connection's user may not.
            DestinationInUse: it has a consumer or a durable subscription.
        """

    # ------------------------------------------------------------ transactions

    @abstractmethod
    def begin(self, transaction_id: TransactionId, owner: Owner) -> BrokerTransaction:
        """Begin a transaction of one connection."""

    @abstractmethod
    def branch(self, transaction_id: XATransactionId) -> BrokerTransaction | None:
        """Return an open or prepared XA transaction of any connection."""

    @abstractmethod
    def ended(self, transaction: BrokerTransaction) -> None:
        """Remove a transaction that has ended."""

    @abstractmethod
    def in_doubt(self) -> Sequence[tuple[XATransactionId, BrokerTransaction]]:
        """Return the prepared transactions."""

    # ------------------------------------------------------------ end

    @abstractmethod
    def disconnect(self, owner: Owner, steps: Steps) -> PiecewiseWork:
        """Remove a closed connection: its ids at once, and what it owns by these steps, in pieces; return that work."""

    @abstractmethod
    def remove_temporary(self, destination: Destination, owner: Owner) -> None:
        """Remove a temporary destination of a closed connection, unless another client has done so."""

    @abstractmethod
    def begin_work(self, steps: Steps) -> PiecewiseWork:
        """Carry out the first piece of work, and the others in later turns of the event loop.

        Raises:
            Exception: raised by a step of the first piece; the others are not carried out.
        """
