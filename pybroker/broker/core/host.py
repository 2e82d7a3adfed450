"""The broker as a connection asks it: one port, instead of the broker's parts.

A native base class, not a protocol: some of it is called for each message.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from pybroker.broker.core.consumer import Consumer, Owner
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.transaction import Transaction
from pybroker.broker.core.uncommitted import Target
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.ports import Clock, Deliver
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId, XATransactionId


class Host(metaclass=ABCMeta):
    """The broker that admitted a connection.

    Attributes:
        clock: milliseconds since the epoch.
        is_stopping: nothing is delivered any more.
        abandoned: nothing may be changed any more.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_stopping = False
        self.abandoned = False

    # ------------------------------------------------------------ messages

    @abstractmethod
    def admit(self, message: Message) -> Usage:
        """Return the memory that a message will take.

        Raises:
            ResourceLimit: the store has no room for it.
        """

    @abstractmethod
    def accept(self, message: Message) -> None:
        """Send or schedule a message, outside of any transaction.

        Raises:
            ClientError: it cannot be.
        """

    @abstractmethod
    def schedules(self, message: Message) -> bool:
        """Tell whether a message is to be scheduled, instead of being sent at once.

        Raises:
            InvalidSchedule: its timetable makes no sense.
            ResourceLimit: there are too many jobs, or browses.
        """

    @abstractmethod
    def would_schedule(self, message: Message) -> bool:
        """Tell the same with regard to nothing but the message; nothing is raised."""

    @abstractmethod
    def route(self, message: Message) -> Sequence[tuple[Target, Message]]:
        """Return where a message goes, and as what.

        Raises:
            ClientError: a destination cannot be.
        """

    @abstractmethod
    def route_scheduled(self, message: Message) -> tuple[Target, Message]:
        """Return where a message that a transaction schedules goes, and as what."""

    @abstractmethod
    def policy(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination."""

    @property
    @abstractmethod
    def is_behind(self) -> bool:
        """True when so much waits for the disk that producers must be slowed down."""

    @abstractmethod
    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is safe."""

    @abstractmethod
    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once every message accepted so far is durable, or consumed and acknowledged."""

    @abstractmethod
    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for none that is remembered."""

    @abstractmethod
    def last_scheduled(self, producer_id: str) -> int:
        """Return the highest sequence number of what a producer has had scheduled, -1 for none that is remembered."""

    # ------------------------------------------------------------ consumers and producers

    @abstractmethod
    def subscribe(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> Consumer:
        """Add a consumer to what it asks for; see the port `Connection`."""

    @abstractmethod
    def forget(self, consumer: Consumer) -> None:
        """Drop a consumer that closed."""

    @abstractmethod
    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription that is not active."""

    @abstractmethod
    def add_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Learn of a producer of one destination."""

    @abstractmethod
    def remove_producer(self, owner: Owner, producer_id: ProducerId, destination: Destination) -> None:
        """Forget a producer of one destination."""

    # ------------------------------------------------------------ destinations

    @abstractmethod
    def provide(self, destination: Destination) -> None:
        """Make sure that a destination exists.

        Raises:
            ClientError: it cannot.
        """

    @abstractmethod
    def own(self, destination: Destination, owner: Owner) -> None:
        """Give a temporary destination to a connection.

        Raises:
            InvalidDestination: it is another's.
        """

    @abstractmethod
    def remove_destination(self, destination: Destination) -> None:
        """Delete a destination with all it holds.

        Raises:
            DestinationInUse: it has a consumer or a durable subscription.
        """

    # ------------------------------------------------------------ transactions

    @abstractmethod
    def begin(self, transaction_id: TransactionId, owner: Owner) -> Transaction:
        """Begin a transaction of one connection."""

    @abstractmethod
    def branch(self, transaction_id: XATransactionId) -> Transaction | None:
        """Return an open or prepared XA transaction of any connection."""

    @abstractmethod
    def ended(self, transaction: Transaction) -> None:
        """Forget a transaction that is over."""

    @abstractmethod
    def in_doubt(self) -> Sequence[XATransactionId]:
        """Return the prepared transactions."""

    # ------------------------------------------------------------ end

    @abstractmethod
    def disconnect(self, owner: Owner, temporaries: Iterable[Destination]) -> None:
        """Forget a connection that closed, and its temporary destinations with all that is on them."""
