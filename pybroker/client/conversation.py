"""`Conversation`, the client's side of a protocol: it encodes requests to bytes, and decodes bytes to events.

A conversation does no I/O, and lasts as long as one transport. `state` keeps what must survive the transport, and makes
the same requests again on the next one. Objects have numbers, which `state` assigns for the whole connection:
consumers, producers and transactions from 1, requests from `FIRST_NUMBER`. A protocol always derives the same ids from
them, so that a broker recognises duplicates.

```text
 application ── state ──── Request ───> Conversation ── bytes_to_send() ──> transport
                   ^ ───── Event ────── Conversation <── receive(chunk) ───
```
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.client.errors import ClientError
from pybroker.client.messages import Message, Outgoing

FIRST_NUMBER: Final = 10
"""The first number of a request; a conversation uses smaller numbers for its own commands."""

LOGIN_CHARS_MAX: Final = 10_000
"""The characters of a client id, user name or password, each of which takes at most six of the 65,535 bytes of a string
in OpenWire."""

# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The data of a login.

    Attributes:
        connection_id: a globally unique id; the same after each reconnect.
        client_id: the JMS client id, which identifies durable subscriptions.
        user: the user name; None for anonymous.
        password: the password; None for none.
        is_failover: the client connects to another broker when this one is lost.
        is_again: the client was connected before, and restores its state.

    Raises:
        TypeError: client id, user or password is no str.
        ValueError: it is too long.
    """

    connection_id: str
    client_id: str
    user: str | None = None
    password: str | None = None
    is_failover: bool = False
    is_again: bool = False

    def __post_init__(self) -> None:
        """Check what the application gives."""
        for name in ("client_id", "user", "password"):
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} is a str, not {type(value).__name__}")
            if value is not None and len(value) > LOGIN_CHARS_MAX:
                raise ValueError(f"{name} has at most {LOGIN_CHARS_MAX} characters")

    def __repr__(self) -> str:
        """Return the login without its password."""
        return f"Login({self.client_id!r}, user={self.user!r}, is_again={self.is_again})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTemporary:
    """Create a temporary destination. Its name is `<connection id>:<number>`."""

    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDestination:
    """Create a queue or topic; a request for one that exists has no effect."""

    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDestination:
    """Delete a destination with its messages; a request for one that does not exist has no effect."""

    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDestinations:
    """Request a `DestinationListed` for each destination of a type, and for each temporary queue.

    Attributes:
        consumer: the number of the consumer of advisories, which `RemoveConsumer` closes.
        type: the type of the destinations.
    """

    consumer: int
    type: DestinationType


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProducer:
    """Open a producer. Without a destination, each message names its own."""

    producer: int
    destination: Destination | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveProducer:
    """Close a producer."""

    producer: int


class AckMode(enum.Enum):
    """The acknowledgement mode of a consumer; the values are those of the API."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "individual"
    TRANSACTED = "transacted"

    @property
    def is_cumulative(self) -> bool:
        """True if one acknowledgement covers several messages, in the order of their delivery."""
        return self in (AckMode.AUTO, AckMode.CLIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConsumer:
    """Open a consumer.

    Attributes:
        consumer: the number of the consumer.
        destination: a queue or topic; may have wildcards or be composite.
        ack: the acknowledgement mode.
        prefetch: the most messages that the broker sends without acknowledgement; 0: it sends one for each `Pull`.
        selector: the selector; None for all messages.
        durable: the name of a durable subscription; None for none.
        no_local: excludes messages that this connection sent.
        exclusive: makes this the exclusive consumer of the queue.
        priority: consumers of higher priority get messages first.
        browser: the broker sends all messages of the queue, then `Exhausted`, and the consumer consumes none.
    """

    consumer: int
    destination: Destination
    ack: AckMode
    prefetch: int
    selector: str | None = None
    durable: str | None = None
    no_local: bool = False
    exclusive: bool = False
    priority: int = 0
    browser: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Request one message for a consumer with prefetch 0. `Delivered` or `Exhausted` follows instead of `Answered`.

    Attributes:
        consumer: the number of the consumer.
        destination: its destination.
        seconds: how long the broker waits for a message; None for no limit. With 0 the broker answers at once, which
            also cancels an earlier pull.
    """

    consumer: int
    destination: Destination
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPrefetch:
    """Change the prefetch of a consumer. Messages that the broker has sent are not affected.

    Attributes:
        consumer: the number of the consumer.
        destination: its destination.
        prefetch: the new prefetch, as in `AddConsumer`.
    """

    consumer: int
    destination: Destination
    prefetch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveConsumer:
    """Close a consumer; a durable subscription stays.

    Attributes:
        consumer: the number of the consumer.
        last: the last message that the application received from it; None for none.
        durable: the name of its durable subscription; None for none.
    """

    consumer: int
    last: Message | None = None
    durable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDurable:
    """Delete a durable subscription and its backlog."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Send a message. The broker answers a persistent one when it is on disk."""

    message: Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Acknowledge messages.

    Attributes:
        consumer: the number of the consumer that received them.
        messages: one or more messages, in the order of their delivery.
        individually: acknowledge each alone; otherwise as a range, from the oldest unacknowledged message on.
        transaction: the transaction whose commit makes the acknowledgement effective; None for none.
        poison: the reason why they cannot be processed and go to the dead letter queue; None otherwise.
    """

    consumer: int
    messages: Sequence[Message]
    individually: bool
    transaction: int | None = None
    poison: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Return one message to its queue, for any consumer. Only if the conversation's `can_release` is true.

    Attributes:
        consumer: the number of the consumer that received it.
        message: the message.
        is_seen: the application has received it: it is marked as redelivered, and counts as delivered once more.
    """

    consumer: int
    message: Message
    is_seen: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransaction:
    """Begin a transaction."""

    transaction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransaction:
    """Commit a transaction."""

    transaction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackTransaction:
    """Roll a transaction back. Messages acknowledged in it are outstanding again, with the same consumer."""

    transaction: int


Request: TypeAlias = (
    AddTemporary
    | CreateDestination
    | DeleteDestination
    | ListDestinations
    | AddProducer
    | RemoveProducer
    | AddConsumer
    | Pull
    | SetPrefetch
    | RemoveConsumer
    | RemoveDurable
    | SendMessage
    | Acknowledge
    | Release
    | BeginTransaction
    | CommitTransaction
    | RollbackTransaction
)

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Opened:
    """The broker accepted the login, and accepts requests from now on."""


@dataclass(frozen=True, slots=True)
class LoginFailed:
    """The broker refused the login. The client makes no other attempt, and the application gets the error."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Answered:
    """The broker answered a request.

    Attributes:
        number: the number of the request.
        error: the reason of a refusal; None after success.
    """

    number: int
    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker delivered a message to a consumer."""

    consumer: int
    message: Message


@dataclass(frozen=True, slots=True)
class DestinationListed:
    """The broker named a destination that exists, for `ListDestinations`. The last one may follow after `Answered`.

    Attributes:
        consumer: the number of the request's consumer.
        destination: the destination.
    """

    consumer: int
    destination: Destination


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The broker has no message for a pull, or no more for a browser."""

    consumer: int


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """The broker reported an error of a request without an answer, which is to be logged."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """The broker closed a consumer, for example because its destination was deleted."""

    consumer: int
    error: ClientError


@dataclass(frozen=True, slots=True)
class Redirected:
    """The broker announced other brokers (OpenWire's ConnectionControl).

    Attributes:
        brokers: the addresses of other brokers.
        reconnect_to: the address to connect to now; empty for none.
        rebalance: connect to the first broker of the list if it is another one.
        sender: the address that the broker itself has for clients; empty if it is not known.
    """

    brokers: tuple[str, ...] = ()
    reconnect_to: str = ""
    rebalance: bool = False
    sender: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The broker is about to close the transport."""

    reason: str


Event: TypeAlias = (
    Opened
    | LoginFailed
    | Answered
    | Delivered
    | DestinationListed
    | Exhausted
    | ErrorReported
    | ConsumerEnded
    | Redirected
    | Ended
)

# ---------------------------------------------------------------- conversation


class Conversation(Protocol):
    """One protocol over one connected transport. Not thread-safe.

    A conversation sends the greeting at once if the protocol has one. It can then stay without a login for long, as a
    backup; `open` logs in.
    """

    @property
    def can_release(self) -> bool:
        """True if the broker takes a `Release`. Known after `Opened`."""
        ...

    def open(self, login: Login) -> None:
        """Log in after the peer's greeting. `Opened`, `LoginFailed` or `Ended` follows. Called once."""
        ...

    def receive(self, chunk: bytes) -> list[Event]:
        """Process bytes from the transport, and return the events in order.

        Raises:
            ProtocolViolation: the peer does not speak the protocol; the transport must be closed.
            FrameTooLarge: the peer sends a larger frame than was agreed; another transport does not help.
        """
        ...

    def request(self, request: Request, number: int, *, answer: bool) -> None:
        """Encode a request. Allowed after `Opened` only.

        Args:
            request: the request.
            number: its number, for `Answered`; the same request has the same number on each transport.
            answer: True if one `Answered` follows. Always false for `BeginTransaction`.

        Raises:
            UnsendableMessage: the request has no form in this protocol, and was not sent.
            FrameTooLarge: the request is larger than the peer accepts, and was not sent.
        """
        ...

    def close(self) -> None:
        """Close the connection in order. The broker answers earlier requests first; then `Ended` follows."""
        ...

    def bytes_to_send(self) -> bytes:
        """Return the bytes to send, and remove them here. A new conversation has the bytes of its greeting."""
        ...

    def tick(self, now: float) -> float:
        """Do the work due, such as a heart-beat, which `bytes_to_send` returns afterwards.

        Args:
            now: seconds of a monotonic clock.

        Returns:
            The time of the next call, by the same clock; infinite for none.

        Raises:
            ConnectionLost: the peer was silent for longer than was agreed.
        """
        ...
