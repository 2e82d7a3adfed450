"""What a protocol does for a client over one connected transport: requests in, bytes out; bytes in, events out.

No I/O, no clock, no thread, and no memory beyond the transport's life: what outlives it is `state`'s business, which
makes the same requests again on the next transport. Names are numbers, counted by `state` for the whole connection:
consumers, producers and transactions each from 1, requests from `FIRST_NUMBER`. A protocol makes its own ids of them,
always the same ones, so that a broker recognises what it has seen.

```text
 application ── state ──── Request ───> Conversation ── bytes_to_send() ──> transport
                   ^ ───── Event ────── Conversation <── receive(chunk) ───
```
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from pybroker.broker.domain.destination import Destination
from pybroker.client.errors import ClientError
from pybroker.client.messages import Message, Outgoing

FIRST_NUMBER: Final = 10
"""Requests are numbered from here on; smaller numbers are for what a conversation asks for by itself."""

# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who opens a connection.

    Attributes:
        connection_id: unique in the world; the same after each reconnect.
        client_id: JMS client id, which durable subscriptions go by.
        user: None for anonymous.
        password: None for none.
        is_failover: the client finds another broker when this one goes.
        is_again: it was connected before and restores what it had.
    """

    connection_id: str
    client_id: str
    user: str | None = None
    password: str | None = None
    is_failover: bool = False
    is_again: bool = False

    def __repr__(self) -> str:
        """Leave the password out."""
        return f"Login({self.client_id!r}, user={self.user!r}, is_again={self.is_again})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTemporary:
    """Make a temporary destination. Its name is `<connection id>:<number>`."""

    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTemporary:
    """Delete a temporary destination."""

    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProducer:
    """Begin to send; without a destination each message names its own. A protocol without producers answers at once."""

    producer: int
    destination: Destination | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveProducer:
    """End sending."""

    producer: int


class AckMode(enum.Enum):
    """How a consumer's messages are acknowledged; the values are what the application writes."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "individual"
    TRANSACTED = "transacted"

    @property
    def is_cumulative(self) -> bool:
        """True where messages are acknowledged in the order they came, in runs."""
        return self in (AckMode.AUTO, AckMode.CLIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Begin to consume.

    Attributes:
        consumer: its number.
        destination: a queue or topic, perhaps with wildcards or composite.
        ack: see `AckMode`; STOMP says it here, OpenWire with each acknowledgement.
        prefetch: messages that may be under way or unacknowledged; 0: none but those that `Pull` asks for.
        selector: which messages.
        durable: name of a durable subscription.
        no_local: none that this connection sent.
        exclusive: no other consumer of the queue beside it.
        priority: consumers of higher priority get messages first.
        browser: it is shown what a queue holds, until `Exhausted`, and consumes none of it.
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
    """Deliver one message to a consumer with prefetch 0. Without an answer, but `Delivered` or `Exhausted` comes of it.

    Attributes:
        consumer: its number.
        destination: what it consumes.
        seconds: how long the broker waits for a message; None for as long as it takes, and 0 takes an earlier one back.
    """

    consumer: int
    destination: Destination
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Stop consuming; a durable subscription stays.

    Attributes:
        consumer: its number.
        last: the last message the application has got from it; None if none.
        durable: its durable subscription's name.
    """

    consumer: int
    last: Message | None = None
    durable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDurable:
    """Delete a durable subscription and what waits for it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a message. Asked for an answer, that comes when the broker has it as safe as it promises."""

    message: Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """The application is done with messages.

    Attributes:
        consumer: who got them.
        messages: at least one, in the order they came; `receipt` of each is what its delivery had.
        individually: those alone; otherwise they are a run that begins with the oldest which is not acknowledged.
        transaction: done only when that commits.
        poison: they cannot be processed: to the dead letter queue, for this reason.
    """

    consumer: int
    messages: Sequence[Message]
    individually: bool
    transaction: int | None = None
    poison: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Begin a transaction."""

    transaction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Do all of it."""

    transaction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Do nothing of it. Messages acknowledged in it are again as they were before: with their consumer."""

    transaction: int


Request: TypeAlias = (
    AddTemporary
    | RemoveTemporary
    | AddProducer
    | RemoveProducer
    | Subscribe
    | Pull
    | Unsubscribe
    | RemoveDurable
    | Send
    | Acknowledge
    | Begin
    | Commit
    | Rollback
)

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Opened:
    """The broker let us in: from now on it takes requests."""


@dataclass(frozen=True, slots=True)
class LoginFailed:
    """It did not: `error` is what the application gets, and nobody tries again."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was carried out, or refused.

    Attributes:
        number: the request's.
        error: why it was refused; None when it was carried out.
    """

    number: int
    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message for a consumer."""

    consumer: int
    message: Message


@dataclass(frozen=True, slots=True)
class Exhausted:
    """There is no message for a consumer that has asked for one, or no more for a browser."""

    consumer: int


@dataclass(frozen=True, slots=True)
class Complained:
    """Something failed that nobody waits for; to be logged."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """The broker ended a consumer by itself, for example because its destination was deleted."""

    consumer: int
    error: ClientError


@dataclass(frozen=True, slots=True)
class Redirected:
    """The broker tells of others (OpenWire's ConnectionControl).

    Attributes:
        brokers: addresses that may be tried, too.
        reconnect_to: go there now; empty for nowhere.
        rebalance: go to the first of the list, if that is another one.
    """

    brokers: tuple[str, ...] = ()
    reconnect_to: str = ""
    rebalance: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The broker is about to close the transport."""

    reason: str


Event: TypeAlias = (
    Opened | LoginFailed | Answered | Delivered | Exhausted | Complained | ConsumerEnded | Redirected | Ended
)

# ---------------------------------------------------------------- the protocol's side


class Conversation(Protocol):
    """One protocol over one connected transport. Not thread-safe.

    It greets at once where the protocol has a greeting, and may then be kept ready for long; `open` logs in.
    """

    def open(self, login: Login) -> None:
        """Log in, once, as soon as the peer has greeted; `Opened` or `LoginFailed` comes of it."""
        ...

    def receive(self, chunk: bytes) -> list[Event]:
        """Take what the transport gave, and return what came of it, in order.

        Raises:
            ProtocolViolation: the peer does not speak the protocol; the transport is of no use any more.
            FrameTooLarge: the peer sends a larger frame than was agreed; no other transport would help.
        """
        ...

    def request(self, request: Request, number: int, *, answer: bool) -> None:
        """Ask for something. Only after `Opened`.

        Args:
            request: what.
            number: the request's own, for `Answered`; on a new transport the same request has the same number.
            answer: whether `Answered` shall come for it, exactly once. Never asked for `Begin`.

        Raises:
            UnsendableMessage: it has no form in this protocol. Nothing was sent of it.
            FrameTooLarge: it is larger than the peer takes. Nothing was sent of it.
        """
        ...

    def close(self) -> None:
        """Say goodbye. What was asked before is still answered; then the peer closes the transport, or we do."""
        ...

    def bytes_to_send(self) -> bytes:
        """Return, and forget, what the transport shall send. The very first bytes are there from the beginning."""
        ...

    def tick(self, now: float) -> float:
        """Do what time asks for, such as keeping the connection alive; there may be `bytes_to_send` afterwards.

        Args:
            now: seconds of a clock that never goes back.

        Returns:
            When to ask again, by the same clock; infinite for no need.

        Raises:
            ConnectionLost: the peer has been silent for longer than was agreed.
        """
        ...
