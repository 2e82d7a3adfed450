"""The port through which operators change the state of a broker: messages, destinations, clients, transactions, jobs.

`Admin` reads the state; this port browses messages, and acts. Who may act is decided by the caller, which passes the
`Actor` for the audit log.

```text
call --> raises RequestError             nothing was changed
     `-> RunningOperation --> done(…)    once all is carried out, and on disk
              |  cancel()                ends it early; what was done stays done
              `  affected, examined      how far it is
```

An operation works in pieces of about a millisecond, so other clients wait no longer than that. What it has changed is
changed, also if it ends early: by `cancel`, by an error, or as the broker stops. Its result says how many messages
were affected. If the broker stops being master, the result has the error `OperationInterrupted`.

All of it is called on the event loop's thread, on which `done` is called too, exactly once: after the call of an
operation has returned, where there is an event loop, and never if the call has raised an error. What is done at once
calls back when it is on disk, maybe before it returns. Positions, cursors and pauses last as long as this member is
master: a new master begins without pauses, as an ActiveMQ does, and counts positions from the beginning.

Source: ActiveMQ 5.17, `QueueView`, `BrokerView`, `Queue.moveMatchingMessagesTo` and its kin; management.md, section 5.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError, RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import OpenWireMessage
from pybroker.broker.domain.transaction import XATransactionId

FROM_THE_BEGINNING: Final = -1
"""The cursor of the first page of a queue."""

LAST_PAGE: Final = -2
"""The cursor of the last page: the newest messages, as many as its limit. All others are passed without being read."""

PAGE_COUNT_MAX: Final = 500
"""Messages, or jobs, of one page."""

PAGE_BYTES_MAX: Final = 8 << 20
"""Bytes of messages after which a page ends, whatever its limits are: they are in memory until they are shown."""


class NotDeadLetterQueue(RequestError):
    """A retry of messages on a queue that gets no dead letters."""


class OperationInterrupted(RequestError):
    """An operation that ended early, because the broker stops or is no longer master."""


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Actor:
    """The operator who acts, for the audit log.

    Attributes:
        user: the name of the user.
        address: the address that the request came from, without its port.
    """

    user: str
    address: str


class MessageState(enum.Enum):
    """The state of a message that is browsed."""

    WAITING = "waiting"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHolder:
    """The consumer to which a message in flight was delivered.

    Attributes:
        connection_id: the id of its connection.
        client_id: the client id of its connection.
        consumer_id: its id on the wire, `<connection id>:<session>:<value>`; None: its protocol has none.
    """

    connection_id: str
    client_id: str
    consumer_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowsedMessage:
    """A message as it is now: a copy of nothing, so it must not be changed.

    Headers, properties and body are read by `openwire.message.view`, or `outline` without the body.

    Attributes:
        message: the message; its id is the one by which operations select it.
        position: its position in the queue, which it keeps until it leaves it; also the cursor of what follows it.
        state: waits, or is in flight.
        redelivery_count: how often it may have been delivered before.
        holder: the consumer that has it, if it is in flight.
    """

    message: Message
    position: int
    state: MessageState
    redelivery_count: int
    holder: MessageHolder | None = None


class PageEnd(enum.Enum):
    """Why a page has no more messages."""

    LAST = "no further message was there when the page was read"
    COUNT = "the page has as many as were asked for"
    BYTES = "its messages take as many bytes as were allowed"
    TIME = "looking for them took as long as was allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """The limits of one page. A message larger than the bytes that are left is the last one of its page.

    Attributes:
        count: messages, at most `PAGE_COUNT_MAX`.
        byte_count: sum of the lengths of their data, at most `PAGE_BYTES_MAX`.
        seconds: time to look for messages that match the selector.
    """

    count: int = 100
    byte_count: int = 1 << 20
    seconds: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Messages of a queue or durable subscription, oldest first.

    Attributes:
        messages: the messages that match.
        cursor: where the next page begins; it may be asked for even after `LAST`, for messages that have come since.
        end: why the page ends. After `TIME` it may have no messages, and the next one may.
        examined: messages that were compared with the selector.
    """

    messages: Sequence[BrowsedMessage]
    cursor: int
    end: PageEnd
    examined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSelection:
    """The messages that an operation is about: those that satisfy all that is given, oldest first.

    Messages in flight are never selected: their consumers have them.

    Attributes:
        selector: an SQL-92 condition; None or blank: every message.
        message_ids: ids as `Message.message_id` has them; None: every message. A JMS client's id that another protocol
            has written (`OpenWireMessageId.text_view`) is found by the selector `JMSMessageID = '…'`.
        maximum: how many at most; None: all.
    """

    selector: str | None = None
    message_ids: frozenset[str] | None = None
    maximum: int | None = None


EVERY_MESSAGE: Final = MessageSelection()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """The end of an operation.

    Attributes:
        affected: messages that were counted, removed, moved or copied; jobs that were removed.
        examined: messages that were looked at.
        skipped: selected messages that stay as they are: they are persistent, and their target has one of the same id;
            a virtual destination leads back to them; or a retry does not know where they came from.
        in_flight: messages of the queue that were at consumers at the end, which no operation touches.
        is_cancelled: True if `cancel` has ended it.
        error: why it ended early; None: it did not.
    """

    affected: int
    examined: int = 0
    skipped: int = 0
    in_flight: int = 0
    is_cancelled: bool = False
    error: BrokerError | None = None


class RunningOperation(Protocol):
    """An operation under way."""

    @property
    def affected(self) -> int:
        """The number of messages that were counted, shown, removed, moved or copied so far."""
        ...

    @property
    def examined(self) -> int:
        """The number of messages that were looked at so far."""
        ...

    @property
    def is_done(self) -> bool:
        """True once `done` was called."""
        ...

    def cancel(self) -> None:
        """End it before its next message; `done` is called soon, at once if it is done already, never twice."""
        ...


WhenResult = Callable[[OperationResult], None]
WhenPage = Callable[[MessagePage | BrokerError], None]
WhenMessage = Callable[[BrowsedMessage | BrokerError | None], None]
"""Gets the message; None if there is none of that id."""
WhenDone = Callable[[], None]
"""Called once the change is on disk."""


def missing_destination(kind: str, name: str) -> str:
    """Return the sentence about a queue or topic that is not there; `kind` is `queue` or `topic`."""
    return f"there is no {kind} {name!r}: check the name, which is case-sensitive"


# ---------------------------------------------------------------- messages


class MessageOperations(Protocol):
    """Operations on the messages of a queue.

    All raise `InvalidDestination` if there is no such queue, `InvalidSelector` if the selector cannot be parsed, and
    `ResourceLimit` if too many operations are under way.
    """

    def browse(
        self, queue: Destination, cursor: int, limits: PageLimits, selector: str | None, done: WhenPage
    ) -> RunningOperation:
        """Return a page of the messages behind a cursor, those in flight too. Reads no message before the cursor.

        A message that is delivered, or comes back, while the page is read may be missing.
        """
        ...

    def browse_subscription(
        self, key: str, cursor: int, limits: PageLimits, selector: str | None, done: WhenPage
    ) -> RunningOperation:
        """Return a page of what a durable subscription holds; `key` is that of its `SubscriptionState`."""
        ...

    def message(self, queue: Destination, message_id: str, done: WhenMessage) -> RunningOperation:
        """Return one message, waiting or in flight. Compares the ids of all messages, without reading them."""
        ...

    def count(self, queue: Destination, selection: MessageSelection, done: WhenResult) -> RunningOperation:
        """Count the messages that the other operations would affect."""
        ...

    def remove(
        self, queue: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Remove messages. Without selector and ids that is a purge: what waits at the time of the call is removed."""
        ...

    def move(
        self, queue: Destination, target: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Move messages, in their order; after a crash each of them is at exactly one of the two places.

        They keep their id, and have the queue as original destination, and no earlier deliveries. The target may be a
        topic, a composite name or a virtual destination. A move to the same queue moves none. The result has the
        error `ResourceLimit` if there was no space for a message.
        """
        ...

    def copy(
        self, queue: Destination, target: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Copy messages as `move` moves them."""
        ...

    def retry(
        self, queue: Destination, selection: MessageSelection, actor: Actor, done: WhenResult
    ) -> RunningOperation:
        """Move messages of a dead letter queue to their original destinations, as `move` does.

        As in ActiveMQ they keep the properties that say why they were dead-lettered. If one fails again, it becomes a
        dead letter again.

        Raises:
            NotDeadLetterQueue: no policy names the queue for dead letters, and none were sent there.
        """
        ...


# ---------------------------------------------------------------- destinations


class DestinationOperations(Protocol):
    """Operations on destinations. Names must be those of permanent queues and topics, and not composite."""

    def pause(self, queue: Destination, actor: Actor) -> None:
        """Deliver nothing to the consumers of a queue until `resume`; browsers see the messages, and sends are taken.

        What consumers have already got they may acknowledge. It is not kept in the store, as in ActiveMQ: the next
        master delivers.

        Raises:
            InvalidDestination: there is no such queue.
        """
        ...

    def resume(self, queue: Destination, actor: Actor) -> None:
        """Deliver again; do nothing if the queue is not paused. Raises as `pause`."""
        ...

    def create(self, destination: Destination, actor: Actor, done: WhenDone) -> bool:
        """Create a queue or topic; return False if it exists.

        A queue created so is in the store, also while it is empty, until it is deleted. A topic is not.

        Raises:
            InvalidDestination: the name cannot be used.
            ResourceLimit: there are too many destinations.
        """
        ...

    def delete(self, destination: Destination, actor: Actor, done: WhenDone) -> bool:
        """Delete a queue or topic with its messages; return False if it does not exist.

        Raises:
            DestinationInUse: it has consumers or durable subscriptions. ActiveMQ deletes it then too, and its consumers
                wait for ever.
        """
        ...

    def send(self, message: OpenWireMessage, actor: Actor, done: WhenDone) -> str:
        """Send a message to its destination, or schedule it if its properties say so; return its id.

        The fields `message_id`, `producer_id`, `timestamp` (if it is 0) and those of the broker are set.

        Raises:
            RequestError: it cannot be sent; `ResourceLimit`: there is no space for it.
        """
        ...


# ---------------------------------------------------------------- clients, transactions, jobs


class ClientOperations(Protocol):
    """Operations on connections and durable subscriptions."""

    def cut_off(self, connection_id: str, actor: Actor) -> bool:
        """Close a connection, which gets an error; return False if there is none of that id."""
        ...

    def unsubscribe(self, client_id: str, name: str, actor: Actor, done: WhenDone) -> None:
        """Delete a durable subscription with its messages.

        Raises:
            InvalidDestination: there is none.
            SubscriptionInUse: it has a consumer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubtBranch:
    """An XA branch that is prepared: its outcome is for its transaction manager to decide.

    Attributes:
        branch: its id; `str` of it is the text that logs have.
        user: who has begun it; None: an earlier master's client, or there are no logins.
        sent: messages that its commit sends.
        acknowledged: messages that its commit removes, and its roll-back returns.
    """

    branch: XATransactionId
    user: str | None
    sent: int
    acknowledged: int


class TransactionOperations(Protocol):
    """Heuristic decisions about XA branches in doubt. Their transaction manager may have decided otherwise."""

    def in_doubt(self) -> Sequence[InDoubtBranch]:
        """Return the branches in doubt."""
        ...

    def commit_branch(self, branch: XATransactionId, actor: Actor, done: WhenResult) -> RunningOperation:
        """Commit a branch.

        Raises:
            UnknownTransaction: it is not in doubt.
        """
        ...

    def roll_back_branch(self, branch: XATransactionId, actor: Actor, done: WhenResult) -> RunningOperation:
        """Roll a branch back. Raises as `commit_branch`."""
        ...


class JobCursor(NamedTuple):
    """The position of a job among all, which are ordered by their next times."""

    next_time: int
    job_id: str


FIRST_JOB: Final = JobCursor(-1, "")
"""The cursor of the first page of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledJob:
    """A scheduled message.

    Attributes:
        job_id: its id; jobs of one id have different next times.
        next_time: when it is due, in milliseconds since the epoch; so is `start_time`, when it was scheduled.
        cron: its crontab entry; empty: it has none.
        delay: milliseconds before the first run.
        period: milliseconds between runs.
        repeat: runs after the next one; -1: without end.
        run_count: past runs.
        message: the message; None: it cannot be read now.
    """

    job_id: str
    next_time: int
    start_time: int
    cron: str
    delay: int
    period: int
    repeat: int
    run_count: int
    message: Message | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Jobs by their next times, the earliest first.

    Attributes:
        jobs: the jobs.
        total: the number of all jobs.
        cursor: where the next page begins; None: there is none.
    """

    jobs: Sequence[ScheduledJob]
    total: int
    cursor: JobCursor | None


WhenJobs = Callable[[JobPage | BrokerError], None]


class JobOperations(Protocol):
    """Operations on scheduled messages. Without the setting for them there are none."""

    def jobs(self, cursor: JobCursor, count: int, done: WhenJobs) -> RunningOperation:
        """Return a page of the jobs behind a cursor; looks at all jobs."""
        ...

    def remove_job(self, job_id: str, next_time: int | None, actor: Actor, done: WhenDone) -> int:
        """Remove the jobs of an id, or the one of them that is due at a time; return how many there were."""
        ...


class Operations(
    MessageOperations, DestinationOperations, ClientOperations, TransactionOperations, JobOperations, Protocol
):
    """All operations on one broker."""
