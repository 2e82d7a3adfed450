"""The requests of a management process to its node, and the rows of the answers: lines of JSON over a pair of sockets.

```text
process -> node   {"id": 7, "method": "destinations", "arguments": {}}
node -> process   {"id": 7, "rows": [[…], …]}                        any number of them
                  {"id": 7, "result": …}                             or
                  {"id": 7, "error": [404, "there is no such queue"]}
process -> node   {"cancel": 7}                                      end it; no answer is awaited
process -> node   {"log": [30, "…"]}                                 a line for the log; its level as of `logging`
```

Both ends are of one version: the node starts the process, which answers for no other version.
"""

import enum
from http import HTTPStatus
from typing import Final, NamedTuple

from pybroker.broker.domain.admin import DestinationState, SubscriptionState
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError

REQUEST_BYTES_MAX: Final = 4 << 20
"""The length of a line, at most: the body of a message to be sent, and as much again for escapes."""

ANSWER_BYTES_MAX: Final = 16 << 20

ANSWERS_MAX: Final = 100
"""Requests that a process has the node answer at a time."""


DATA_BYTES_MAX: Final = 16 << 20
"""The data of a message that is browsed: of a larger one the content is left out."""


class ManagementRole(enum.IntEnum):
    """The role of a user in management; a higher one has the rights of the lower ones."""

    MONITOR = 1
    OPERATOR = 2
    ADMIN = 3


class RequestFailed(BrokerError):
    """A request that is not carried out.

    Attributes:
        status: the status of HTTP that says why.
        text: one sentence for the user.
    """

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class DestinationRow(NamedTuple):
    """A queue or topic; see `DestinationState` and `Counters`.

    Attributes:
        kind: `queue` or `topic`.
        is_temporary: True if it ends with the connection of a client.
    """

    kind: str
    name: str
    is_temporary: bool
    size: int
    consumers: int
    producers: int
    enqueued: int
    dequeued: int
    dispatched: int
    expired: int
    in_flight: int
    cached: int
    memory_bytes: int
    memory_bytes_max: int
    wait_seconds: float
    wait_seconds_max: float
    wait_seconds_min: float
    message_bytes: int
    message_bytes_max: int
    message_bytes_min: int
    is_paused: bool
    is_dead_letter_queue: bool
    is_prioritized: bool
    has_flow_control: bool
    is_always_retroactive: bool
    oldest_seconds: float
    forwarded: int = 0

    @classmethod
    def of(cls, state: DestinationState) -> "DestinationRow":
        """Return the row of a destination."""
        destination, counters = state.destination, state.counters
        return cls(
            kind_of(destination),
            destination.name,
            destination.is_temporary,
            counters.size,
            state.consumers,
            state.producers,
            counters.enqueued,
            counters.dequeued,
            counters.dispatched,
            counters.expired,
            counters.in_flight,
            state.cached,
            state.memory_bytes,
            state.memory_bytes_max,
            counters.wait_seconds,
            counters.wait_seconds_max,
            counters.wait_seconds_min,
            counters.message_bytes,
            counters.message_bytes_max,
            counters.message_bytes_min,
            state.is_paused,
            state.is_dead_letter_queue,
            state.is_prioritized,
            state.has_flow_control,
            state.is_always_retroactive,
            state.oldest_seconds,
            counters.forwarded,
        )


class SubscriptionRow(NamedTuple):
    """A durable subscription, with or without a consumer; see `SubscriptionState`."""

    key: str
    client_id: str
    name: str
    destination: str
    selector: str
    is_no_local: bool
    is_active: bool
    connection_id: str
    size: int
    in_flight: int
    enqueued: int
    dispatched: int
    dequeued: int
    expired: int

    @classmethod
    def of(cls, state: SubscriptionState) -> "SubscriptionRow":
        """Return the row of a subscription."""
        counters = state.counters
        return cls(
            state.key,
            state.client_id,
            state.name,
            state.destination.name,
            state.selector or "",
            state.no_local,
            state.connection_id is not None,
            state.connection_id or "",
            counters.size,
            counters.in_flight,
            counters.enqueued,
            counters.dispatched,
            counters.dequeued,
            counters.expired,
        )


class BrowsedRow(NamedTuple):
    """A message that is browsed; see `domain.operations.BrowsedMessage`.

    Behind a row come the other pieces of its data, each in a row of one column.

    Attributes:
        state: `waiting` or `in flight`.
        holder: connection id, client id and consumer id of the consumer that has it; None: none has.
        size: the number of its bytes.
        data: its bytes, as `Message.data` has them, in base64; of more than `DATA_BYTES_MAX` without the content.
    """

    message_id: str
    position: int
    state: str
    redelivery_count: int
    holder: tuple[str, str, str] | None
    size: int
    data: str


class ProgressRow(NamedTuple):
    """How far an operation on messages is; see `domain.operations.RunningOperation`."""

    affected: int
    examined: int


class JobRow(NamedTuple):
    """A scheduled message; see `domain.operations.ScheduledMessage`. Times are milliseconds."""

    job_id: str
    next_time_ms: int
    start_time_ms: int
    cron: str
    delay_ms: int
    period_ms: int
    repeat: int
    run_count: int
    destination: str
    size: int


class BranchRow(NamedTuple):
    """An XA branch in doubt; see `domain.operations.InDoubtBranch`."""

    branch: str
    user: str
    sent: int
    acknowledged: int


class ConnectionRow(NamedTuple):
    """A connection of a client.

    Attributes:
        connection_id: its id.
        client_id: the client id.
        user: the name of its user; `anonymous` without a login.
        peer: the client's address and port.
        listener: the listener that it came through, such as `stomp+ssl`; empty if it is not known.
        consumers: the number of its consumers.
        producers: the number of its producers.
        transactions: the number of its open transactions.
        is_blocked: True while it is not read, because memory or the store is full.
    """

    connection_id: str
    client_id: str
    user: str
    peer: str
    listener: str
    consumers: int
    producers: int
    transactions: int
    is_blocked: bool


class ConsumerRow(NamedTuple):
    """A consumer.

    Attributes:
        consumer_id: its id in OpenWire, such as `ID:host-1-2-0:1:1:1`; an id of that form for STOMP.
        connection_id: that of its connection.
        client_id: that of its client.
        user: the name of its user.
        kind: `queue` or `topic`.
        destination: the name of its destination; of several ones with commas.
        selector: its selector; empty for none.
        subscription: the name of its durable subscription; empty for none.
        prefetch: the deliveries that may be outstanding.
        enqueued: the messages that were delivered to it.
        dequeued: those that it has acknowledged.
        in_flight: those that are outstanding.
        priority: its priority.
        is_exclusive: True if it gets all messages of its queue.
        is_retroactive: True if it gets its topic's history.
        is_no_local: True if it does not get what its connection sends.
        is_browser: True if it consumes no message.
        pending_max: the messages that may wait for it, of a topic; 0: no limit of its own.
        is_temporary: True if its destination is a temporary one.
        session_id: the number of its session in the connection; -1 for STOMP.
        number: its number in the session.
        waiting: the messages that wait for it alone, of a topic or a durable subscription.
        discarded: the messages of a topic that were dropped because it is slow.
        is_network: True if it is that of a bridge to another broker.
    """

    consumer_id: str
    connection_id: str
    client_id: str
    user: str
    kind: str
    destination: str
    selector: str
    subscription: str
    prefetch: int
    enqueued: int
    dequeued: int
    in_flight: int
    priority: int
    is_exclusive: bool
    is_retroactive: bool
    is_no_local: bool
    is_browser: bool
    pending_max: int
    is_temporary: bool
    session_id: int
    number: int
    waiting: int
    discarded: int
    is_network: bool = False


class ProducerRow(NamedTuple):
    """A producer of an OpenWire client; one of STOMP has none.

    Attributes:
        producer_id: its id in OpenWire.
        connection_id: that of its connection.
        client_id: that of its client.
        user: the name of its user.
        kind: `queue` or `topic`; empty if it names a destination in each message.
        destination: the name of its destination; empty if it names one in each message.
        is_temporary: True if its destination is a temporary one.
        session_id: the number of its session in the connection.
    """

    producer_id: str
    connection_id: str
    client_id: str
    user: str
    kind: str
    destination: str
    is_temporary: bool
    session_id: int


def kind_of(destination: Destination) -> str:
    """Return `queue` or `topic`."""
    return "topic" if destination.is_topic else "queue"
